"""One way to try again: after how long, how often, and after which answers of an HTTP service."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import count

_FIRST_PAUSE = 0.2  # seconds before the second attempt; each pause is twice the one before
_LONGEST_PAUSE = 30.0
_PERHAPS_LATER = frozenset({408, 425, 429})  # too slow, too early, too many requests


def pauses(attempts: int | None = None) -> Iterator[float]:
    """Yield the seconds to wait before each attempt, for ever where ``attempts`` is None.

    Before the first there is no pause. Each later one is drawn between half and all of its length, so that clients
    that failed together do not come back together.
    """
    for attempt in count() if attempts is None else range(attempts):
        longest = min(_LONGEST_PAUSE, _FIRST_PAUSE * 2.0 ** min(attempt - 1, 60)) if attempt else 0.0
        yield longest * random.uniform(0.5, 1.0)


def decided(status: int) -> bool:
    """Tell whether an answer of this status is final, so that asking again would not change it.

    >>> decided(201), decided(404), decided(429), decided(503)
    (True, True, False, False)
    """
    return status < 500 and status not in _PERHAPS_LATER
