"""RFC 9180, base mode, from X25519, HMAC and AES-256-GCM alone: what seals are held against."""

from __future__ import annotations

import hashlib
import hmac

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM


def _extract(salt: bytes, suite: bytes, label: bytes, key: bytes) -> bytes:
    return hmac.new(salt or bytes(32), b"HPKE-v1" + suite + label + key, hashlib.sha256).digest()


def _expand(secret: bytes, suite: bytes, label: bytes, info: bytes, length: int) -> bytes:
    told = length.to_bytes(2, "big") + b"HPKE-v1" + suite + label + info
    return hmac.new(secret, told + b"\x01", hashlib.sha256).digest()[:length]


def _cipher(agreed: bytes, sent: bytes, public: bytes, label: bytes) -> tuple[AESGCM, bytes]:
    """Return cipher and nonce that follow from what both sides agreed on."""
    kem = b"KEM" + (0x20).to_bytes(2, "big")
    suite = b"HPKE" + b"".join(n.to_bytes(2, "big") for n in (0x20, 1, 2))
    secret = _expand(_extract(b"", kem, b"eae_prk", agreed), kem, b"shared_secret", sent + public, 32)
    context = b"\x00" + _extract(b"", suite, b"psk_id_hash", b"") + _extract(b"", suite, b"info_hash", label)
    root = _extract(secret, suite, b"secret", b"")
    key, nonce = (_expand(root, suite, name, context, size) for name, size in ((b"key", 32), (b"base_nonce", 12)))
    return AESGCM(key), nonce


def open_by_hand(private: X25519PrivateKey, sealed: bytes, label: bytes) -> bytes:
    """Open what was sealed to a key."""
    sent, public = sealed[:32], private.public_key().public_bytes_raw()
    cipher, nonce = _cipher(private.exchange(X25519PublicKey.from_public_bytes(sent)), sent, public, label)
    return cipher.decrypt(nonce, sealed[32:], b"")


def seal_by_hand(own: X25519PrivateKey, public: bytes, payload: bytes, label: bytes) -> bytes:
    """Seal to a public key with a one-time key that is given."""
    sent = own.public_key().public_bytes_raw()
    cipher, nonce = _cipher(own.exchange(X25519PublicKey.from_public_bytes(public)), sent, public, label)
    return sent + cipher.encrypt(nonce, payload, b"")
