"""Random bits that no fork, copy or pickle repeats; imported when the first secret generator is built.

A generator that lives long lives through `os.fork`, `copy.deepcopy` and `pickle`, and each of them would hand the same
key to two holders. Two runs with the same noise cancel it: the difference of what they release is exact. So the key is
drawn anew in the child of a fork, a copy has a key of its own, and a pickle holds none.
"""

from __future__ import annotations

import os
from typing import Any, NoReturn
from weakref import WeakSet

import numpy as np
import numpy.typing as npt
from randomgen import AESCounter

_KEPT_BACK = (
    "The state of a secret generator is not given out: it reveals all noise to come. Where a run must be repeated, "
    "in a test, give rng a seed."
)
_USUAL = 1 << 17  # words that are asked for at a time, as a rule
_ZEROS = memoryview(bytes(8 * _USUAL))  # what is encrypted: the words are the key stream alone
_living: WeakSet[SecretBits] = WeakSet()


class SecretBits(AESCounter):  # type: ignore[misc]
    """AES in counter mode, with a key of 128 bits from the operating system that is never shown."""

    def __init__(self) -> None:
        super().__init__(key=_fresh_key())
        self._stream: Any = None
        _living.add(self)

    def words(self, size: int, room: npt.NDArray[np.uint64] | None = None) -> npt.NDArray[np.uint64]:
        """Return many words of 64 bits, of a second key where OpenSSL is there to encrypt them all in one go.

        One at a time, as every other draw is made, takes three times as long. Large ``room`` is used for them.
        """
        # OpenSSL asks for room for one block more
        made = room if room is not None and len(room) >= size + 2 else np.empty(size + 2, dtype=np.uint64)
        with self.lock:
            if self._stream is None:
                self._stream = _stream()
            if self._stream:
                zeros = _ZEROS[: 8 * size] if size <= _USUAL else bytes(8 * size)
                self._stream.update_into(zeros, made[: size + 2].view(np.uint8).data)
        return made[:size] if self._stream else np.asarray(self.random_raw(size), dtype=np.uint64)

    @property
    def state(self) -> NoReturn:
        """Refuse: the state reveals all noise to come, and whoever sets it repeats what was drawn."""
        raise TypeError(_KEPT_BACK)

    def __getstate__(self) -> None:
        """Refuse, as above."""
        raise TypeError(_KEPT_BACK)

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy, or what comes out of a pickle, is another generator with a key of its own."""
        return SecretBits, ()

    def _begin_anew(self) -> None:
        """Take another key, and open the lock: the thread that may have held it does not live in the child."""
        self.lock._at_fork_reinit()
        self.seed(key=_fresh_key())
        self._stream = None


def _stream() -> Any:
    """Return AES in counter mode by OpenSSL, with a key of its own, or False without the package cryptography."""
    try:
        from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
    except ImportError:
        return False
    return Cipher(algorithms.AES(os.urandom(16)), modes.CTR(bytes(16))).encryptor()


def _fresh_key() -> int:
    return int.from_bytes(os.urandom(16), "little")


def _begin_all_anew() -> None:
    """Rekey what lives in the child of a fork, or end it: Python would go on after an error here, and repeat noise."""
    try:
        for bits in list(_living):
            bits._begin_anew()
    except BaseException:
        os.abort()


if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(after_in_child=_begin_all_anew)
