"""Answers that change, as published: a noisy answer is kept for each value and sent again whenever it recurs.

Each class states two numbers: what one period's report gives away, and what all reports of a user give away to somebody
who links them.
The second one is found by enumerating sequences of values, and is far above what was published, because a sequence that
stays the same repeats one kept answer where one that changes draws another: the reports tell *that* and *when* a value
changed. `noisette.survey.campaigns` has ``answers="tracked"`` instead, whose budget holds for all periods together.
"""

from __future__ import annotations

import math
import warnings
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from noisette import _random, _validate
from noisette._random import Rng
from noisette._validate import FloatArray, IntArray
from noisette.guarantees import PrivacyWarning

_MOST_PERIODS = 1000


@dataclass(frozen=True)
class Memoised(ABC):
    """A protocol for one of ``size`` values in each of ``periods`` periods, as its authors state it.

    ``epsilon`` is the budget of the answer that is kept for a value, for ever; ``once`` that of one period's report.
    """

    size: int
    periods: int
    epsilon: float
    once: float
    name: ClassVar[str]
    citation: ClassVar[str]

    def __post_init__(self) -> None:
        _validate.integer(self.size, "size", low=2)
        _validate.integer(self.periods, "periods", low=1, high=_MOST_PERIODS)
        for name in ("epsilon", "once"):
            object.__setattr__(self, name, _validate.epsilon(getattr(self, name)))
        self._check()
        warnings.warn(
            f"{self.name} claims {self.claimed:g} for a user's whole life; whoever links her {self.periods} reports "
            f"learns {self.linked_epsilon():.4g} or more. Take answers='tracked' of a campaign.",
            PrivacyWarning,
            stacklevel=3,
        )

    def _check(self) -> None:
        if not self.once < self.epsilon:
            raise ValueError(f"Expected once={self.once:g} below epsilon={self.epsilon:g}, which is kept for ever.")

    @property
    @abstractmethod
    def claimed(self) -> float:
        """The budget that is published for all reports of a user, whatever her values are."""

    @abstractmethod
    def linked_epsilon(self) -> float:
        """Return a log-likelihood ratio that all reports of a user reach for two sequences of values."""

    @abstractmethod
    def privatize(self, x: Any, *, rng: Rng = None) -> Any:
        """Return the reports of people, one row of values for each."""

    @abstractmethod
    def frequencies(self, reports: Any) -> FloatArray:
        """Return the estimated share of each value in each period."""

    @property
    @abstractmethod
    def variance(self) -> float:
        """Variance of a rare value's share in one period, times the number of people."""

    def _values(self, x: Any) -> IntArray:
        values = _validate.integers(x)
        if values.ndim != 2 or values.shape[1] != self.periods or values.min() < 0 or values.max() >= self.size:
            raise ValueError(
                f"Expected a row of {self.periods} values below {self.size} for each person, got {values.shape}."
            )
        return values


def _support_variance(p_own: float, p_other: float) -> float:
    return p_other * (1 - p_other) / (p_own - p_other) ** 2


def _second(first: float, once: float) -> float:
    """Return the chance to keep a kept bit in one period's report, for randomised response of two answers."""
    return (math.exp(first + once) - 1) / (math.exp(first + once) + math.exp(first) - math.exp(once) - 1)


def _logs(own: FloatArray, kept: FloatArray, counts: IntArray) -> FloatArray:
    """Return the log chance of reports that were made from one kept bit.

    ``own`` are the chances that the kept bit is 0 or 1, kept[u] that a report is 1 given it, and counts[..., b] how
    many of the reports are b.
    """
    each = np.log(own) + counts[..., :1] * np.log(1 - kept) + counts[..., 1:] * np.log(kept)
    return np.asarray(np.logaddexp(each[..., 0], each[..., 1]))


@dataclass(frozen=True)
class BiLoloha(Memoised):
    """Hash values to two buckets, keep a noisy bucket for each, and report it with fresh noise.

    Formula: the kept bucket is the own one with probability exp(e) / (exp(e) + 1); a period's report is the kept one
    with the probability that makes one report ``once``-LDP.

    *Published*: 2 ``epsilon`` for all reports of a user "on the users' values", as there are two buckets.
    *Holds*: ``once`` for one report; all reports linked, `linked_epsilon`, which grows with every period.
    Arcolezi, Pinzon, Palamidessi, Gambs 2023 (LOLOHA with g = 2).
    """

    name: ClassVar[str] = "biloloha"
    citation: ClassVar[str] = "arcolezi2023frequency"

    @property
    def claimed(self) -> float:
        """Two buckets, each with a kept answer."""
        return 2 * self.epsilon

    @cached_property
    def _chances(self) -> tuple[float, float]:
        """Chances that the own bucket is kept, and that the kept one is reported."""
        first, both = math.exp(self.epsilon), math.exp(self.epsilon + self.once)
        return first / (first + 1), (both - 1) / (both + first - math.exp(self.once) - 1)

    def linked_epsilon(self) -> float:
        """Return the largest log-likelihood ratio over all pairs of sequences and all reports, by enumeration.

        Reports with the same number of ones are alike, and a sequence counts by how many of the ones and of the zeros
        fall into the second bucket.
        """
        keep, same = self._chances
        kept = np.asarray([1 - same, same])  # of a 1, given the kept bucket
        own = np.asarray([[keep, 1 - keep], [1 - keep, keep]])
        worst = 0.0
        for ones in range(self.periods + 1):
            a, c = np.meshgrid(np.arange(ones + 1), np.arange(self.periods - ones + 1), indexing="ij")
            first = np.stack([self.periods - ones - c, ones - a], axis=-1)
            second = np.stack([c, a], axis=-1)
            logs = _logs(own[0], kept, first) + _logs(own[1], kept, second)
            worst = max(worst, float(logs.max() - logs.min()))
        return worst

    def privatize(self, x: Any, *, rng: Rng = None) -> Any:
        """Return the bucket of every value under a person's map, and her reports: people, (map and report), periods."""
        values, source = self._values(x), _random.generator(rng)
        keep, same = self._chances
        people = np.arange(len(values))[:, None]
        maps = source.integers(0, 2, (len(values), self.size))
        kept = np.arange(2) ^ (source.random((len(values), 2)) >= keep)
        sent = kept[people, maps[people, values]] ^ (source.random(values.shape) >= same)
        return maps, sent

    def frequencies(self, reports: Any) -> FloatArray:
        maps, sent = reports
        p_own, p_other = self._support
        seen = np.stack([(maps == sent[:, [period]]).mean(axis=0) for period in range(self.periods)])
        return np.asarray((seen - p_other) / (p_own - p_other))

    @property
    def _support(self) -> tuple[float, float]:
        keep, same = self._chances
        return keep * same + (1 - keep) * (1 - same), 0.5

    @property
    def variance(self) -> float:
        return _support_variance(*self._support)


@dataclass(frozen=True)
class LongitudinalOsue(Memoised):
    """Keep for each value a vector of noisy bits (OUE), and report it with fresh noise on every bit (SUE).

    Formula: a kept bit is 1 with probability 1/2 for the own value, 1 / (exp(e) + 1) for each other one; a period's
    report keeps each bit with the probability that makes one report ``once``-LDP.

    *Published*: ``epsilon`` for all reports about one value, times the number of values a user ever has, so at most
    ``size`` times ``epsilon``.
    *Holds*: ``once`` for one report; of all reports linked `linked_epsilon` is what one change in the middle gives away
    against none.
    Arcolezi, Couchot, Al Bouna, Xiao 2022 (L-OSUE).
    """

    name: ClassVar[str] = "l-osue"
    citation: ClassVar[str] = "arcolezi2022improving"

    @property
    def claimed(self) -> float:
        """A kept answer for each of the values."""
        return self.size * self.epsilon

    @cached_property
    def _chances(self) -> tuple[float, float]:
        """Chances that a bit of another value is kept as 1, and that a kept bit is reported as it is."""
        return 1 / (math.exp(self.epsilon) + 1), _second(self.epsilon, self.once)

    def linked_epsilon(self) -> float:
        """Return the log-likelihood ratio of a sequence that never changes and one that changes once, in the middle.

        The bits are independent, so the ratio is the sum of the largest of each bit: of a bit of neither value, one
        kept bit for all periods against two; of the two values' own bits likewise.
        """
        if self.periods < 2:
            return self.once
        other, same = self._chances
        kept = np.asarray([1 - same, same])
        rare, own = np.asarray([1 - other, other]), np.asarray([0.5, 0.5])
        half = self.periods // 2
        a, b = np.meshgrid(np.arange(half + 1), np.arange(self.periods - half + 1), indexing="ij")
        early, late = np.stack([half - a, a], axis=-1), np.stack([self.periods - half - b, b], axis=-1)

        def ratio(always: FloatArray, before: FloatArray, after: FloatArray) -> FloatArray:
            constant = _logs(always, kept, early + late)
            return constant - _logs(before, kept, early) - _logs(after, kept, late)

        gaps = [(ratio(rare, rare, rare), self.size - 2), (ratio(own, own, rare), 1), (ratio(rare, rare, own), 1)]
        ways = [
            sum(times * float(gap.max()) for gap, times in gaps),
            sum(-times * float(gap.min()) for gap, times in gaps),
        ]
        return max(ways)

    def privatize(self, x: Any, *, rng: Rng = None) -> Any:
        """Return the bits that each person reports: people, periods, values."""
        values, source = self._values(x), _random.generator(rng)
        other, same = self._chances
        sent = np.empty((*values.shape, self.size), dtype=bool)
        for row, seen in enumerate(values):
            names, place = np.unique(seen, return_inverse=True)
            chance = np.where(names[:, None] == np.arange(self.size), 0.5, other)
            kept = source.random(chance.shape) < chance
            sent[row] = kept[place] ^ (source.random((self.periods, self.size)) >= same)
        return sent

    def frequencies(self, reports: Any) -> FloatArray:
        p_own, p_other = self._support
        return np.asarray((np.asarray(reports).mean(axis=0) - p_other) / (p_own - p_other))

    @property
    def _support(self) -> tuple[float, float]:
        other, same = self._chances
        return 0.5, other * same + (1 - other) * (1 - same)

    @property
    def variance(self) -> float:
        return _support_variance(*self._support)


@dataclass(frozen=True)
class DBitFlip(Memoised):
    """Keep for each value ``bits`` noisy bits of drawn values, and report them without fresh noise.

    Formula: a person draws ``bits`` of the values for ever; for each value of her own every drawn bit is 1 with
    probability s / (s + 1) if it is the own one, else 1 / (s + 1), s = exp(e / 2), once for all.

    *Published*: ``epsilon`` for one value, times the number of values that her drawn bits tell apart.
    *Holds*: ``epsilon`` for one report; of all reports linked infinity, since two unequal reports prove a change.
    Ding, Kulkarni, Yekhanin 2017 (dBitFlipPM).
    """

    bits: int = 1
    name: ClassVar[str] = "dbitflip-pm"
    citation: ClassVar[str] = "ding2017collecting"

    def _check(self) -> None:
        object.__setattr__(self, "bits", _validate.integer(self.bits, "bits", low=1, high=self.size))
        if self.once != self.epsilon:
            raise ValueError(f"Expected once={self.once:g} to equal epsilon={self.epsilon:g}: there is no fresh noise.")

    @property
    def claimed(self) -> float:
        """A kept answer for each drawn value, and one for all others, which are alike."""
        return min(self.bits + 1, self.size) * self.epsilon

    def linked_epsilon(self) -> float:
        """Return infinity from the second period on: a user whose value never changes sends equal reports."""
        return math.inf if self.periods > 1 else self.epsilon

    def privatize(self, x: Any, *, rng: Rng = None) -> Any:
        """Return the values that each person drew, and her bits: (people, bits) and (people, periods, bits)."""
        values, source = self._values(x), _random.generator(rng)
        drawn = np.argsort(source.random((len(values), self.size)), axis=1)[:, : self.bits]
        keep = self._support[0]
        sent = np.empty((*values.shape, self.bits), dtype=bool)
        for row, seen in enumerate(values):
            names, place = np.unique(seen, return_inverse=True)
            chance = np.where(names[:, None] == drawn[row], keep, 1 - keep)
            sent[row] = (source.random(chance.shape) < chance)[place]
        return drawn, sent

    def frequencies(self, reports: Any) -> FloatArray:
        """Return the estimated share of each value in each period, from those who drew it."""
        drawn, sent = reports
        p_own, p_other = self._support
        found = np.full((self.periods, self.size), np.nan)
        for value in range(self.size):
            rows, place = np.nonzero(drawn == value)
            if rows.size:
                found[:, value] = (sent[rows, :, place].mean(axis=0) - p_other) / (p_own - p_other)
        return found

    @property
    def _support(self) -> tuple[float, float]:
        root = math.exp(self.epsilon / 2)
        return root / (root + 1), 1 / (root + 1)

    @property
    def variance(self) -> float:
        return _support_variance(*self._support) * self.size / self.bits


def published(periods: int = 30) -> list[Memoised]:
    """Return each protocol at the budgets of its row in the table of claims."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyWarning)
        return [
            BiLoloha(100, periods, 2.0, 1.0),
            LongitudinalOsue(100, periods, 4.0, 1.0),
            DBitFlip(100, periods, 4.0, 4.0, bits=10),
        ]
