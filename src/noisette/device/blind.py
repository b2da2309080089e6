"""Tokens that the collector has signed without seeing them: it knows who may answer, and not who answered.

A device makes a token of 32 random bytes, blinds it, and shows it with its enrolment code. The collector signs one
blinded token for each code, campaign and period. The device removes the blinding, and sends the token with its report:
the signature proves that some admitted user answers, and nothing links it to the code. This is RSABSSA-SHA384-PSSZERO-
Deterministic of RFC 9474: the token has entropy enough to need no salt. Each campaign and period has a key of its own,
so a token is good for one period of one campaign. Verification is plain RSA-PSS, done by the cryptography package;
only blinding and the private operation are ours, on numbers that are blinded once more against timing.
"""

from __future__ import annotations

import hashlib
import hmac
import math
import secrets
from dataclasses import dataclass
from functools import cached_property
from typing import Self

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

BITS = 2048
SIGNATURE_BYTES = BITS // 8
_EXPONENT = 65537
_DIGEST = hashlib.sha384
_PADDING = padding.PSS(padding.MGF1(hashes.SHA384()), salt_length=0)


@dataclass(frozen=True)
class VerifyingKey:
    """The key that a campaign's tokens of one period are verified with."""

    modulus: int

    def __post_init__(self) -> None:
        if self.modulus.bit_length() != BITS or self.modulus % 2 == 0:
            raise ValueError(f"Expected an odd modulus of {BITS} bits. Do not answer: the collector may mark users.")

    @cached_property
    def _key(self) -> rsa.RSAPublicKey:
        return rsa.RSAPublicNumbers(_EXPONENT, self.modulus).public_key()

    def verifies(self, token: bytes, signature: bytes) -> bool:
        """Tell whether a signature is the collector's for this token."""
        try:
            self._key.verify(signature, token, _PADDING, hashes.SHA384())
        except InvalidSignature:
            return False
        return True

    def blind(self, token: bytes) -> tuple[bytes, int]:
        """Return a token as the collector may see it, and what takes the blinding off again."""
        while True:
            factor = secrets.randbelow(self.modulus)
            if factor > 1 and math.gcd(factor, self.modulus) == 1:
                return self.blind_by(factor, token)

    def blind_by(self, factor: int, token: bytes) -> tuple[bytes, int]:
        """Blind a token by a given factor, which is never used again."""
        message = int.from_bytes(_encode(token, self.modulus.bit_length() - 1), "big")
        hidden = message * pow(factor, _EXPONENT, self.modulus) % self.modulus
        return hidden.to_bytes(SIGNATURE_BYTES, "big"), pow(factor, -1, self.modulus)

    def finish(self, token: bytes, signed: bytes, inverse: int) -> bytes:
        """Take the blinding off a signature, or raise if the collector did not sign what it was shown."""
        signature = (int.from_bytes(signed, "big") * inverse % self.modulus).to_bytes(SIGNATURE_BYTES, "big")
        if not self.verifies(token, signature):
            raise ValueError("Expected a signature of the blinded token. Do not answer: the collector may mark users.")
        return signature


@dataclass(frozen=True)
class SigningKey:
    """The key that signs the blinded tokens of one campaign and period."""

    pem: bytes

    @classmethod
    def new(cls) -> Self:
        """Make a key."""
        key = rsa.generate_private_key(public_exponent=_EXPONENT, key_size=BITS)
        plain = serialization.NoEncryption()
        return cls(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain))

    @cached_property
    def _numbers(self) -> rsa.RSAPrivateNumbers:
        key = serialization.load_pem_private_key(self.pem, password=None)
        assert isinstance(key, rsa.RSAPrivateKey)  # we make no other
        return key.private_numbers()

    @cached_property
    def public(self) -> VerifyingKey:
        """The key that devices and the collector verify with."""
        return VerifyingKey(self._numbers.public_numbers.n)

    def sign(self, blinded: bytes) -> bytes:
        """Sign a blinded token; what is raised to the secret power is blinded once more, and the result is checked."""
        numbers = self._numbers
        modulus, hidden = numbers.public_numbers.n, int.from_bytes(blinded, "big")
        if len(blinded) != SIGNATURE_BYTES or not 1 < hidden < modulus:
            raise ValueError(f"Expected a blinded token of {SIGNATURE_BYTES} bytes, below the modulus.")
        factor = secrets.randbelow(modulus - 2) + 2
        inner = hidden * pow(factor, _EXPONENT, modulus) % modulus
        first, second = pow(inner, numbers.dmp1, numbers.p), pow(inner, numbers.dmq1, numbers.q)
        root = second + (first - second) * numbers.iqmp % numbers.p * numbers.q  # in a third of the time of one power
        signed = root * pow(factor, -1, modulus) % modulus
        if pow(signed, _EXPONENT, modulus) != hidden:
            raise ArithmeticError("A signature came out wrong; it was not given away.")
        return signed.to_bytes(SIGNATURE_BYTES, "big")


def new_code(secret: str, number: int) -> str:
    """Return the enrolment code of a user: a number, and a proof that whoever holds the secret gave it out.

    >>> (
    ...     checked_code("a secret of the operator", new_code("a secret of the operator", 7)),
    ...     checked_code("another", "7.0"),
    ... )
    (7, None)
    """
    proof = hmac.new(secret.encode(), f"enrolment\n{number}".encode(), hashlib.sha256).hexdigest()[:32]
    return f"{number}.{proof}"


def checked_code(secret: str, code: str) -> int | None:
    """Return the number of a code, or None if it is none of ours."""
    number, _, _ = code.partition(".")
    if not (code.isascii() and number.isdigit() and len(number) < 19):
        return None
    return int(number) if hmac.compare_digest(new_code(secret, int(number)), code) else None


def _encode(message: bytes, bits: int) -> bytes:
    """Encode a message by EMSA-PSS with an empty salt (RFC 8017, section 9.1.1)."""
    size = -(-bits // 8)
    digest = _DIGEST(bytes(8) + _DIGEST(message).digest()).digest()
    block = bytes(size - len(digest) - 2) + b"\x01"
    masked = bytearray(a ^ b for a, b in zip(block, _mask(digest, len(block)), strict=True))
    masked[0] &= 0xFF >> (8 * size - bits)
    return bytes(masked) + digest + b"\xbc"


def _mask(seed: bytes, size: int) -> bytes:
    """Return the mask of MGF1 (RFC 8017, appendix B.2.1)."""
    parts = (
        _DIGEST(seed + counter.to_bytes(4, "big")).digest() for counter in range(-(-size // _DIGEST().digest_size))
    )
    return b"".join(parts)[:size]
