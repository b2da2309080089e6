"""Random bits that no fork, copy or pickle repeats; imported when the first secret generator is built.

A generator that lives long lives through `os.fork`, `copy.deepcopy` and `pickle`, and each of them would hand the same
key to two holders. Two runs with the same noise cancel it: the difference of what they release is exact. So the key is
drawn anew in the child of a fork, a copy has a key of its own, and a pickle holds none.

Python tells of its own forks. Of one that a library makes in C it does not learn: so every draw, whose lock is a
`_Guard`, looks first at a page that the system wipes in any child.
"""

from __future__ import annotations

import mmap
import os
import sys
from _thread import RLock
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
_WIPE_ON_FORK = 18  # of madvise in Linux, from 4.14 on
_living: WeakSet[SecretBits] = WeakSet()


def _marked() -> mmap.mmap | None:
    """Return a page that says 1, and 0 in a child however it came to be; None where the system has none."""
    if sys.platform != "linux":
        return None
    try:
        page = mmap.mmap(-1, mmap.PAGESIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        page.madvise(_WIPE_ON_FORK)
    except OSError:
        return None
    page[0] = 1
    return page


_page, _take = _marked(), RLock.acquire
_process = os.getpid()


class _Guard(RLock):  # type: ignore[misc]  # final in typeshed alone
    """The lock of a generator, which notices a fork that nobody told of before anything is drawn."""

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Take the lock, and fresh keys for all generators in the child of a fork."""
        if not _page[0] if _page is not None else os.getpid() != _process:
            _begin_all_anew()
        return _take(self, blocking, timeout)

    __enter__ = acquire


class SecretBits(AESCounter):  # type: ignore[misc]
    """AES in counter mode, with a key of 128 bits from the operating system that is never shown."""

    def __init__(self) -> None:
        super().__init__(key=_fresh_key())
        self._guard, self._stream = _Guard(), None
        _living.add(self)

    def words(self, size: int, room: npt.NDArray[np.uint64] | None = None) -> npt.NDArray[np.uint64]:
        """Return many words of 64 bits, of a second key where OpenSSL is there to encrypt them all in one go.

        One at a time, as every other draw is made, takes three times as long. Large ``room`` is used for them.
        """
        # OpenSSL asks for room for one block more
        made = room if room is not None and len(room) >= size + 2 else np.empty(size + 2, dtype=np.uint64)
        with self._guard:
            if self._stream is None:
                self._stream = _stream()
            if self._stream:
                zeros = _ZEROS[: 8 * size] if size <= _USUAL else bytes(8 * size)
                self._stream.update_into(zeros, made[: size + 2].view(np.uint8).data)
        return made[:size] if self._stream else np.asarray(self.random_raw(size), dtype=np.uint64)

    @property
    def lock(self) -> _Guard:
        """The lock that numpy takes for every draw."""
        return self._guard

    def random_raw(self, size: Any = None, output: bool = True) -> Any:
        """Return words of 64 bits, under the lock of all other draws."""
        with self._guard:
            return super().random_raw(size, output)

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
        self._guard._at_fork_reinit()  # type: ignore[attr-defined]
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
    global _process
    try:
        for bits in list(_living):
            bits._begin_anew()
        _process = os.getpid()
        if _page is not None:
            _page[0] = 1
    except BaseException:
        os.abort()


if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(after_in_child=_begin_all_anew)
