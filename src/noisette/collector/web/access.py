"""Who may come in, and how often: API keys and what each role may do, and how many requests one address may make."""

from __future__ import annotations

import hashlib
import math
import os
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROLES = ("device", "analyst", "auditor", "operator")
VIEWER = "viewer/"  # how the role of a link begins, with the campaign whose results it shows

_SHORTEST_KEY = 16
_KEPT_ADDRESSES = 10_000  # addresses that are remembered; whoever was seen longest ago is forgotten first
_ENROLMENT = "enrolment"  # no role: the secret behind the codes of users whose tokens are signed


@dataclass(frozen=True)
class KnownKey:
    """A key's name, role and hash, and the moment at which it ends, if there is one."""

    name: str
    role: str
    digest: bytes
    ends: datetime | None


class Keys:
    """The keys of each role, and the secrets behind enrolment codes; any number of each is valid at a time.

    Of the keys only hashes are kept in memory, and keys are looked up by their hash. Keys of a file are called by
    their role and place, those that the database names by their names; `refresh` reads a file that has changed.

    >>> keys = Keys({"device": ["a-key-of-many-letters"]})
    >>> keys.roles("a-key-of-many-letters"), keys.roles("another")
    (frozenset({'device'}), frozenset())
    >>> keys.name("a-key-of-many-letters")
    'file/device-1'
    """

    def __init__(self, of_role: Mapping[str, Sequence[str]]) -> None:
        self._path: Path | None = None
        self._changed = 0
        self._named: list[KnownKey] = []
        self._take(of_role)

    def _take(self, of_role: Mapping[str, Sequence[str]]) -> None:
        if not isinstance(of_role, Mapping) or not of_role or not set(of_role) <= {*ROLES, _ENROLMENT}:
            raise ValueError(f"Expected lists of keys under some of {', '.join((*ROLES, _ENROLMENT))}.")
        known: list[KnownKey] = []
        enrolment: tuple[str, ...] = ()
        for role, keys in of_role.items():
            if not isinstance(keys, list | tuple) or not all(isinstance(key, str) for key in keys):
                raise ValueError(f"Expected the keys of role {role!r} to be a list of texts.")
            if any(len(key) < _SHORTEST_KEY for key in keys):
                raise ValueError(
                    f"Expected keys of at least {_SHORTEST_KEY} characters; one of role {role!r} is shorter. "
                    "Make one with: python -c 'import secrets; print(secrets.token_urlsafe())'."
                )
            if role == _ENROLMENT:
                enrolment = tuple(keys)
            else:
                named = enumerate(keys, start=1)
                known += [KnownKey(f"file/{role}-{place}", role, digest(key), None) for place, key in named]
        self._known, self.enrolment = known, enrolment
        self._index()

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Keys:
        """Read keys from a YAML file of roles and lists of keys."""
        changed = Path(path).stat().st_mtime_ns
        found = cls(_of_file(Path(path)))
        found._path, found._changed = Path(path), changed
        return found

    def refresh(self) -> bool:
        """Read the file again if it has changed, and tell whether; an error in it leaves all as it was."""
        if self._path is None or self._path.stat().st_mtime_ns == self._changed:
            return False
        changed = self._path.stat().st_mtime_ns
        self._take(_of_file(self._path))
        self._changed = changed
        return True

    def name_keys(self, named: Sequence[KnownKey]) -> None:
        """Take the keys that the database names in place of those before."""
        self._named = list(named)
        self._index()

    def known(self, key: str) -> tuple[str, frozenset[str]]:
        """Return what a key is called in the log of changes, and its roles; none if nobody knows it."""
        given, now = digest(key), None
        found: list[KnownKey] = []
        for one in self._by_digest.get(given, ()):
            if one.ends is not None and now is None:
                now = datetime.now(UTC)
            if one.ends is None or (now is not None and now < one.ends):
                found.append(one)
        return (found[0].name, frozenset([one.role for one in found])) if found else ("", frozenset())

    def roles(self, key: str) -> frozenset[str]:
        """Return the roles of a key."""
        return self.known(key)[1]

    def name(self, key: str) -> str:
        """Return what a known key is called in the log of changes."""
        return self.known(key)[0]

    def _index(self) -> None:
        """Order keys by their hashes, by which alone a key is found: the time that takes says nothing about a key."""
        found: dict[bytes, list[KnownKey]] = {}
        for one in (*self._known, *self._named):
            found.setdefault(one.digest, []).append(one)
        self._by_digest = found


def _of_file(path: Path) -> Any:
    """Return what a YAML file holds."""
    import yaml

    try:
        found = yaml.safe_load(path.read_text(encoding="utf-8"))
        Keys(found)
    except yaml.YAMLError as error:  # its message would show a part of the file
        raise ValueError(f"{path}: not a YAML file. Write a list of keys under each role.") from error
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    return found


def new_keys() -> dict[str, list[str]]:
    """Return a new key for each role."""
    return {role: [secrets.token_urlsafe(24)] for role in ROLES}


def digest(key: str) -> bytes:
    """Return the hash by which a key is known."""
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
        if len(self._buckets) > _KEPT_ADDRESSES:
            self._buckets.popitem(last=False)
        return 0.0 if allowed else (1 - left) / self._rate
