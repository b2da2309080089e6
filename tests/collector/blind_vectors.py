"""Conformance vectors of blind tokens: what Python makes of keys, tokens and factors, which every device must make too.

The signature is OpenSSL's own RSA-PSS signature of the token, which blinding and unblinding must end at. Run as a
script it writes blind.json anew, with new keys.
"""

from __future__ import annotations

import base64
import hashlib
import json
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from noisette.device.blind import SigningKey

FILE = Path(__file__).parent / "blind.json"


def tokens() -> list[bytes]:
    """Return tokens: the extremes, and some of a seed."""
    drawn = [hashlib.sha256(f"token {number}".encode()).digest() for number in range(5)]
    return [bytes(32), b"\xff" * 32, *drawn]


def factors(modulus: int) -> list[int]:
    """Return factors that blind: the smallest and largest ones, and some of a seed."""
    drawn = [int.from_bytes(hashlib.shake_256(f"factor {number}".encode()).digest(256)) for number in range(5)]
    return [2, modulus - 1, *(one % modulus for one in drawn)]


def vector(key: SigningKey) -> dict[str, Any]:
    """Return a key, and for each token what it becomes on its way."""
    private = load_pem_private_key(key.pem, password=None)
    assert isinstance(private, rsa.RSAPrivateKey)
    pss = padding.PSS(padding.MGF1(hashes.SHA384()), salt_length=0)
    steps = []
    for token, factor in zip(tokens(), factors(key.public.modulus), strict=True):
        blinded, inverse = key.public.blind_by(factor, token)
        signed = key.sign(blinded)
        step = {"token": token.hex(), "factor": format(factor, "x"), "inverse": format(inverse, "0512x")}
        step |= {"blinded": blinded.hex(), "signed": signed.hex()}
        steps.append(step | {"signature": private.sign(token, pss, hashes.SHA384()).hex()})
    return {"pem": base64.b64encode(key.pem).decode(), "modulus": format(key.public.modulus, "x"), "steps": steps}


def stored() -> list[dict[str, Any]]:
    """Return the vectors that are stored."""
    found: list[dict[str, Any]] = json.loads(FILE.read_text(encoding="utf-8"))
    return found


if __name__ == "__main__":
    FILE.write_text(json.dumps([vector(SigningKey.new()) for _ in range(2)], indent=0) + "\n", encoding="utf-8")
