"""Sealing to the server's key: HPKE in base mode (RFC 9180), X25519, HKDF-SHA256, AES-256-GCM.

All of it is in WebCrypto too: the collector's client for web pages seals in the same way.
"""

from __future__ import annotations

import base64
import binascii
import os
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite

_SUITE = Suite(KEM.X25519, KDF.HKDF_SHA256, AEAD.AES_256_GCM)
OVERHEAD = 32 + 16  # the one-time public key and the tag


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
    """The server's private key, which opens what was sealed to its public key."""

    def __init__(self, key: X25519PrivateKey) -> None:
        self._key = key
        raw = key.public_key().public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)
        self.public = PublicKey(base64.b64encode(raw).decode())

    @classmethod
    def generate(cls) -> ServerKey:
        """Make a new key from the operating system's entropy."""
        return cls(X25519PrivateKey.generate())

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> ServerKey:
        """Read a key that `write` wrote."""
        try:
            found = serialization.load_pem_private_key(Path(path).read_bytes(), password=None)
        except ValueError as error:
            raise ValueError(f"{path} is not a private key. Make one with `noisette federate key {path}`.") from error
        if not isinstance(found, X25519PrivateKey):
            raise ValueError(f"{path}: expected a key for X25519, got a {type(found).__name__}.")
        return cls(found)

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write the key to a new file that its owner alone can read."""
        pem = self._key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(pem)

    def open(self, sealed: bytes, label: bytes) -> bytes:
        """Return what was sealed, or raise `CannotOpen`."""
        try:
            return _SUITE.decrypt(sealed, self._key, info=label)
        except (InvalidTag, ValueError) as error:
            raise CannotOpen("This packet was not sealed to this key for this round and block.") from error
