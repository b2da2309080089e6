"""Solved programmes on disk, one small file each, found by the hash of what was solved."""

from __future__ import annotations

import contextlib
import hashlib
import os
from pathlib import Path

import numpy as np

from noisette._files import whole_file
from noisette._validate import FloatArray


def directory() -> Path:
    """Return $NOISETTE_CACHE, or the user's cache directory."""
    own = os.environ.get("NOISETTE_CACHE")
    if own:
        return Path(own)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "noisette"


def load(key: str, size: int) -> FloatArray | None:
    """Return the stored masses of a key, or None if there are none that are whole and plausible."""
    masses = read(key)
    if masses is None or masses.size != size:
        return None
    plausible = bool(np.all(np.isfinite(masses)) and np.all(masses >= 0) and 0 < 2 * masses.sum() < 1)
    return masses if plausible else None


def read(key: str) -> FloatArray | None:
    """Return the stored numbers of a key, or None if there are none that are whole."""
    try:
        content = _path(key).read_bytes()
    except (OSError, RuntimeError):  # RuntimeError: there is no home directory
        return None
    digest, body = content[:32], content[32:]
    if len(body) % 8 or digest != _digest(key, body):
        return None
    return np.frombuffer(body, dtype="<f8").astype(np.float64)


def store(key: str, masses: FloatArray) -> None:
    """Write the masses of a key, whole or not at all; a cache that cannot be written is no error."""
    body = np.ascontiguousarray(masses, dtype="<f8").tobytes()
    with contextlib.suppress(OSError, RuntimeError, ValueError):
        path = _path(key)
        path.parent.mkdir(parents=True, exist_ok=True)
        with whole_file(path) as file:
            file.write(_digest(key, body) + body)


def _path(key: str) -> Path:
    return directory() / f"lp-{hashlib.sha256(key.encode()).hexdigest()[:32]}.bin"


def _digest(key: str, body: bytes) -> bytes:
    return hashlib.sha256(key.encode() + b"\0" + body).digest()
