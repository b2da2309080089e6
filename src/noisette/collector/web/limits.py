"""How many requests one address may make."""

from __future__ import annotations

import math
import time
from collections import OrderedDict
from collections.abc import Callable

_KEPT = 10_000  # addresses that are remembered; whoever was seen longest ago is forgotten first


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
