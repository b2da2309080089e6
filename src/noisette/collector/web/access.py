"""Who may come in, and how often: API keys and what each role may do, and how many requests one address may make."""

from __future__ import annotations

import hashlib
import hmac
import math
import os
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

ROLES = ("device", "analyst", "auditor")

_SHORTEST = 16
_KEPT = 10_000  # addresses that are remembered; whoever was seen longest ago is forgotten first
_ENROLMENT = "enrolment"  # no role: the secret behind the codes of users whose tokens are signed


class Keys:
    """The keys of each role, and the secret behind enrolment codes.

    Of the keys only hashes are kept in memory, and they are compared in constant time.

    >>> keys = Keys({"device": ["a-key-of-many-letters"]})
    >>> keys.roles("a-key-of-many-letters"), keys.roles("another")
    (frozenset({'device'}), frozenset())
    """

    def __init__(self, of_role: Mapping[str, Sequence[str]]) -> None:
        if not isinstance(of_role, Mapping) or not of_role or not set(of_role) <= {*ROLES, _ENROLMENT}:
            raise ValueError(f"Expected lists of keys under some of {', '.join((*ROLES, _ENROLMENT))}.")
        self._known: list[tuple[bytes, str]] = []
        self.enrolment: str | None = None
        for role, keys in of_role.items():
            if not isinstance(keys, list | tuple) or not all(isinstance(key, str) for key in keys):
                raise ValueError(f"Expected the keys of role {role!r} to be a list of texts.")
            if any(len(key) < _SHORTEST for key in keys):
                raise ValueError(
                    f"Expected keys of at least {_SHORTEST} characters; one of role {role!r} is shorter. "
                    "Make one with: python -c 'import secrets; print(secrets.token_urlsafe())'."
                )
            if role != _ENROLMENT:
                self._known += [(_digest(key), role) for key in keys]
            elif len(keys) != 1:
                raise ValueError(f"Expected one secret under {_ENROLMENT!r}, got {len(keys)}.")
            else:
                self.enrolment = keys[0]

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Keys:
        """Read keys from a YAML file of roles and lists of keys."""
        import yaml

        try:
            found: Any = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
            return cls(found)
        except yaml.YAMLError as error:  # its message would show a part of the file
            raise ValueError(f"{path}: not a YAML file.") from error
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error

    def roles(self, key: str) -> frozenset[str]:
        """Return the roles of a key; every known key is looked at, whichever matches."""
        given = _digest(key)
        return frozenset([role for known, role in self._known if hmac.compare_digest(known, given)])


def new_keys() -> dict[str, list[str]]:
    """Return a new key for each role."""
    return {role: [secrets.token_urlsafe(24)] for role in ROLES}


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest()


class RateLimit:
    """A bucket for each address: it holds up to two seconds' worth of requests and fills at a steady rate.

    Addresses are kept in memory alone, and never written to a log.

    >>> limit = RateLimit(1.0, clock=lambda: 0.0)
    >>> [limit.wait("here") for _ in range(3)], limit.wait("there")
    ([0.0, 0.0, 1.0], 0.0)
    """

    def __init__(self, per_second: float, *, clock: Callable[[], float] = time.monotonic) -> None:
        if not (per_second > 0 and math.isfinite(per_second)):
            raise ValueError(f"Expected rate={per_second!r} > 0 requests a second.")
        self._rate, self._most, self._clock = per_second, max(1.0, 2 * per_second), clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def wait(self, address: str) -> float:
        """Take one request off an address's bucket; return 0, or the seconds to wait if the bucket is empty."""
        now = self._clock()
        left, seen = self._buckets.pop(address, (self._most, now))
        left = min(self._most, left + (now - seen) * self._rate)
        allowed = left >= 1
        self._buckets[address] = (left - 1 if allowed else left, now)
        if len(self._buckets) > _KEPT:
            self._buckets.popitem(last=False)
        return 0.0 if allowed else (1 - left) / self._rate
