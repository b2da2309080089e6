"""Sealing to the server's key: HPKE in base mode (RFC 9180), X25519, HKDF-SHA256, AES-256-GCM.

All of it is in WebCrypto too: the collector's client for web pages seals in the same way.
"""

from __future__ import annotations

import base64
import binascii
import logging
import os
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite

from noisette._files import ChangingFile, whole_file

_END = b"-----END PRIVATE KEY-----"
_SUITE = Suite(KEM.X25519, KDF.HKDF_SHA256, AEAD.AES_256_GCM)
OVERHEAD = 32 + 16  # the one-time public key and the tag

log = logging.getLogger("noisette.shuffler")


class CannotOpen(ValueError):
    """A packet that was not sealed to this key, or not for this round and block."""


class PublicKey:
    """The server's public key: whoever has it can seal, and not open.

    >>> key = ServerKey.generate()
    >>> sealed = PublicKey(key.public.text).seal(b"secret", b"round 1")
    >>> len(sealed) - OVERHEAD, key.open(sealed, b"round 1")
    (6, b'secret')
    >>> key.open(sealed, b"round 2")
    Traceback (most recent call last):
    ...
    noisette.shuffler.sealing.CannotOpen: ...
    """

    def __init__(self, text: str) -> None:
        try:
            raw = base64.b64decode(text, validate=True)
            self._key = X25519PublicKey.from_public_bytes(raw)
        except (TypeError, ValueError, binascii.Error) as error:
            raise ValueError(
                f"Expected a server's public key of 44 letters, got {text!r}. `noisette federate key` shows it."
            ) from error
        self.text = text

    def seal(self, payload: bytes, label: bytes) -> bytes:
        """Return a payload that only the server can open, and only under the same label."""
        return _SUITE.encrypt(payload, self._key, info=label)


class ServerKey:
    """The server's private keys: what was sealed to any of them opens, and clients are shown the first.

    A key that was read from a file follows the file, so that a new key comes first and old ones go while a service
    runs. Clients that know an old key seal for it until they learn the new one.
    """

    def __init__(self, *keys: X25519PrivateKey) -> None:
        if not keys:
            raise ValueError("Expected at least one private key.")
        self._keys = keys
        self._file: ChangingFile | None = None

    @property
    def public(self) -> PublicKey:
        """The public key to seal for."""
        return self.publics[0]

    @property
    def publics(self) -> list[PublicKey]:
        """The public keys whose seals open, the newest first."""
        self._look()
        raw = (key.public_key().public_bytes_raw() for key in self._keys)
        return [PublicKey(base64.b64encode(one).decode()) for one in raw]

    @classmethod
    def generate(cls) -> ServerKey:
        """Make a new key from the operating system's entropy."""
        return cls(X25519PrivateKey.generate())

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> ServerKey:
        """Read the keys that `write` wrote, and follow the file."""
        file = ChangingFile(path)
        made = cls(*_private_keys(path))
        made._file = file
        return made

    def _look(self) -> None:
        """Read the file again if it has changed; a file that cannot be read changes nothing."""
        try:
            if self._file is not None and self._file.changed():
                self._keys = tuple(_private_keys(self._file.path))
        except (OSError, ValueError) as error:
            log.error("server key not read", extra={"fields": {"detail": str(error)}})

    def change(self, action: str) -> list[PublicKey]:
        """Put a new key first ("rotate") or keep the first alone ("retire"), in the file too; return what is shown."""
        self._look()
        made = self.rotated() if action == "rotate" else self.newest()
        if self._file is not None:
            made.write(self._file.path, replace=True)
        self._keys = made._keys
        return self.publics

    def rotated(self) -> ServerKey:
        """Return the same keys with a new one before them."""
        return ServerKey(X25519PrivateKey.generate(), *self._keys)

    def newest(self) -> ServerKey:
        """Return the first key alone: what was sealed to the others opens no more."""
        return ServerKey(self._keys[0])

    def write(self, path: str | os.PathLike[str], *, replace: bool = False) -> None:
        """Write the keys to a file that its owner alone can read; a file that is there stays unless ``replace``."""
        form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        written = b"".join(key.private_bytes(*form) for key in self._keys)
        if not replace:
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        with whole_file(path, mode=0o600) as file:
            file.write(written)

    def open(self, sealed: bytes, label: bytes) -> bytes:
        """Return what was sealed, or raise `CannotOpen`."""
        self._look()
        for key in self._keys:
            try:
                return _SUITE.decrypt(sealed, key, info=label)
            except (InvalidTag, ValueError):
                continue
        raise CannotOpen(
            "This packet was not sealed to this key for this round and block. "
            "Give devices the public key of this server."
        )


def _private_keys(path: str | os.PathLike[str]) -> list[X25519PrivateKey]:
    """Return the keys of a file, of which it holds one after the other."""
    found = []
    for block in Path(path).read_bytes().split(_END)[:-1]:
        try:
            key = serialization.load_pem_private_key(block + _END, password=None)
        except ValueError as error:
            raise ValueError(f"{path} is no private key. `noisette federate key` makes one in a new file.") from error
        if not isinstance(key, X25519PrivateKey):
            raise ValueError(f"{path}: expected a key for X25519, got a {type(key).__name__}.")
        found.append(key)
    if not found:
        raise ValueError(f"{path} is no private key. `noisette federate key` makes one in a new file.")
    return found
