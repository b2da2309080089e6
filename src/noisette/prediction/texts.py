"""How frequent a text must be to be found, before anybody has answered."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from noisette import _validate
from noisette._search import narrowed
from noisette._special import ndtr, ndtri
from noisette._validate import FloatArray
from noisette.domains.texts import OPEN
from noisette.mechanisms.categorical.texts.prefixes import PrefixExtending
from noisette.mechanisms.categorical.texts.search import (
    MOST_TEXTS,
    SURVIVORS,
    check_level,
    extensions,
    listed_level,
    many_texts,
)

_CHANCE = 0.9  # of being shown, for which the share is stated


@dataclass(frozen=True)
class TextPrediction:
    """What a search for texts among this many users will find.

    Formula: with G groups, n = users / G of them in each, p = E / (E + g - 1) and q = 1 / g, the share of a prefix that
    F of the users have is estimated with variance (q (1 - q) + F (p (1 - p) - q (1 - q))) / (n (p - q)^2). From one
    length to the next the C prefixes with most support are kept: those above the level t at which N Phi(-t / sd) and
    the chances of all known prefixes add up to C, N the number of candidates. A text is shown with the product of the
    chances to pass at every length and the check, and to be measured above zero. Where all texts are looked at by all
    users at once, it is shown if it is above what chance explains, and among as many as were asked for.

    >>> from noisette import PrefixExtending, Texts
    >>> found = TextPrediction(PrefixExtending(epsilon=4.0, domain=Texts(24)), users=1_000_000)
    >>> round(found.threshold, 4), round(found.findable(), 4)
    (0.0032, 0.0065)
    """

    mechanism: PrefixExtending
    users: float
    texts: int = 20

    def __post_init__(self) -> None:
        _validate.positive(self.users, "users")
        _validate.integer(self.texts, "texts", low=1, high=MOST_TEXTS)

    @property
    def _kept(self) -> int:
        return SURVIVORS * self.texts

    def std_error(self, share: float | FloatArray = 0.0, groups: float = 0) -> FloatArray:
        """Return the standard error of the share of a prefix, by default by those who measure."""
        p, q = self.mechanism.p_own, self.mechanism.p_other
        every = len(self.mechanism.lengths)
        users = self.users * (groups or (every if self.mechanism.at_once else 1)) / every
        return np.sqrt((q * (1 - q) + np.asarray(share) * (p * (1 - p) - q * (1 - q))) / users) / (p - q)

    @cached_property
    def threshold(self) -> float:
        """Share, as those who check estimate it, below which no text is shown."""
        p, q = self.mechanism.p_own, self.mechanism.p_other
        if self.mechanism.at_once:
            return (listed_level(self.mechanism, self.users) - q) / (p - q)
        return (check_level(self.users / len(self.mechanism.lengths), self._kept, q) - q) / (p - q)

    def findable(self, chance: float = _CHANCE) -> float:
        """Return the share from which on a text is shown with this chance, however long it is and whatever others are.

        Infinity where even a text that everybody has would be missed.
        """
        if self._alone(1.0) < chance:
            return math.inf
        return narrowed(lambda share: self._alone(share) < chance, 0.0, 1.0, absolute=1e-15)[1]

    def _alone(self, share: float) -> float:
        """Return the chance that a text is shown of which every prefix has just its own share, nothing else known."""
        chance = self._passed(np.asarray(share))
        for _, groups, candidates in self._steps:
            noise = float(self.std_error(groups=groups))
            level = -noise * float(ndtri(min(self._kept / candidates, 0.5)))
            chance *= ndtr((share - level) / self.std_error(share, groups))
        return float(chance)

    def _passed(self, share: FloatArray) -> FloatArray:
        """Return the chance that texts of these shares pass the check, and are measured above zero."""
        error = self.std_error(share)
        chance = ndtr((share - self.threshold) / error)
        if self.mechanism.at_once:
            return np.asarray(chance)
        return np.asarray(chance * ndtr((share + float(ndtri(0.025)) * self.std_error()) / error))

    @cached_property
    def _steps(self) -> list[tuple[int, int, int]]:
        """Return the lengths of prefixes, how many groups search at each, and how many candidates they look at."""
        if self.mechanism.at_once:
            return []
        *searching, _, _ = self.mechanism.lengths
        steps, start = [], 0
        for length in sorted(set(searching)):
            found = len(extensions(self.mechanism.domain, OPEN, start, length)[0])
            steps.append((length, searching.count(length), found * (1 if start == 0 else self._kept)))
            start = length
        return steps

    def recall(self, shares: Mapping[str, float]) -> dict[str, float]:
        """Return for each text of a population the chance that it is shown, from the shares of all."""
        names, given = list(shares), np.asarray(list(shares.values()), dtype=float)
        symbols = self.mechanism.domain.symbols(names)
        sizes = (symbols != 0).sum(axis=1)
        chance = self._passed(given)
        if self.mechanism.at_once:
            level = max(self._level(given, many_texts(self.mechanism), 0, self.texts), self.threshold)
            return dict(zip(names, ndtr((given - level) / self.std_error(given)).tolist(), strict=True))
        whole = np.zeros(len(names), dtype=bool)
        for length, groups, candidates in self._steps:
            _, place = np.unique(symbols[:, :length], axis=0, return_inverse=True)
            known = np.bincount(place.reshape(-1), given).astype(np.float64)
            level = self._level(known, candidates, groups, self._kept)
            passed = ndtr((known - level) / self.std_error(known, groups))[place.reshape(-1)]
            chance = np.where(whole, chance, chance * passed)
            whole |= sizes < length  # from here on more and more users report about the whole of it
        return dict(zip(names, chance.tolist(), strict=True))

    def _level(self, known: FloatArray, candidates: float, groups: int, kept: int) -> float:
        """Return the share above which this many prefixes are expected as are kept."""
        noise, errors = float(self.std_error(groups=groups)), self.std_error(known, groups)

        def many(level: float) -> bool:
            return bool(candidates * ndtr(-level / noise) + ndtr((known - level) / errors).sum() > kept)

        return narrowed(many, -1.0, 2.0, absolute=1e-15)[1]
