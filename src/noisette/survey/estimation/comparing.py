"""Differences between groups, periods and arms of an experiment: tests, intervals, and corrections for many looks."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import ndtr, ndtri

from noisette import _validate
from noisette._bounded import added, jump_of_sum, moves_of, touching
from noisette._validate import FloatArray
from noisette.survey.estimation.hierarchy import QUANTILES, CdfEstimate

if TYPE_CHECKING:
    import pandas as pd

    from noisette.core import Estimate
    from noisette.survey.coding.joints import Within
    from noisette.survey.results import Results

CORRECTIONS = ("holm", "bh", "none")
_MOST_COMPARED = 2_000_000  # rows of differences
_MOST_LOOKS = 1000
_GRID = 201  # points at which the law of a statistic is followed from look to look
_FARTHEST_BOUNDARY = 9.0  # standard errors beyond which nothing is followed
_LEVELS = np.geomspace(1e-9, 0.999, 16)  # at which boundaries are computed, to find a p-value between them


def compared(
    arms: Mapping[str, Results], level: float, correct: str, looks: Sequence[float] | None, what: str
) -> pd.DataFrame:
    """Return the difference of every quantity between every two arms, whose people are not the same."""
    labels = list(arms)
    known = {label: _quantities(one) for label, one in arms.items()}
    searched = _add_texts(known, arms)
    names = [name for name in known[labels[0]] if all(name in own for own in known.values())]
    pairs = [(a, b) for a in range(len(labels)) for b in range(a + 1, len(labels))]
    if not pairs:
        raise ValueError(f"Expected at least two values of {what} to compare.")
    if not names and not searched:
        raise ValueError(f"Expected a quantity that all of {what} estimate, got none.")
    if len(pairs) * len(names) > _MOST_COMPARED:
        raise ValueError(f"Expected at most {_MOST_COMPARED:,} differences. Compare fewer groups or quantities.")
    arranged = [_Side([own[name] for name in names]) for own in known.values()]
    first, second = (np.asarray(side) for side in zip(*pairs, strict=True))
    found = np.stack([one.value for one in arranged]), np.stack([one.std_error for one in arranged])
    gap = (found[0][second] - found[0][first]).ravel()
    error = np.hypot(found[1][first], found[1][second]).ravel()

    def ends_at(score: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the ends of all differences from those of both estimates."""
        scores = score.reshape(len(pairs), -1)
        each = [_apart(arranged[a], arranged[b], own) for (a, b), own in zip(pairs, scores, strict=True)]
        low, high = (np.concatenate(side) for side in zip(*each, strict=True))
        return low, high

    columns = {
        "question": [question for question, _ in names] * len(pairs),
        "quantity": [quantity for _, quantity in names] * len(pairs),
        "a": np.repeat([labels[a] for a, _ in pairs], len(names)),
        "b": np.repeat([labels[b] for _, b in pairs], len(names)),
    }
    asked = {one.name: one.estimated for one in arms[labels[0]].survey.topics}
    estimates = {
        name: [one[name].estimate for one in arms.values()] for name in dict.fromkeys(name for name, _ in names)
    }
    quantiles = {}
    for place, (question, quantity) in enumerate(names):
        made = [one for one in estimates[question] if isinstance(one, CdfEstimate)]
        if len(made) == len(arms):
            chance = QUANTILES[asked[question].index(quantity)]
            rows = range(place, gap.size, len(names))
            for row, (a, b) in zip(rows, pairs, strict=True):
                quantiles[row] = QuantileDifference.of(made[a], made[b], chance)
    return _table(columns, gap, error, ends_at, level, correct, looks, what, quantiles)


def compared_within(items: Sequence[Within], results: Results, level: float, correct: str) -> pd.DataFrame:
    """Return the differences of means between the labels of a private choice, whose estimates go together."""
    columns: dict[str, list[Any]] = {"question": [], "quantity": [], "a": [], "b": []}
    gaps, errors = [], []
    rows: tuple[list[_Quantity], list[_Quantity]] = ([], [])
    for item in items:
        found = results[item.name].estimate
        labels = item.choice.labels
        differences, spread = item.differences(*results.sums.piece(item))
        for a in range(len(labels)):
            for b in range(a + 1, len(labels)):
                for name, value in zip(columns, (item.number.name, "mean", labels[a], labels[b]), strict=True):
                    columns[name].append(value)
                gaps.append(differences[a, b])
                errors.append(spread[a, b])
                rows[0].append((found, a))
                rows[1].append((found, b))
    what = f"the private choice {items[0].choice.name!r}"
    gap, error, (first, second) = np.asarray(gaps), np.asarray(errors), (_Side(one) for one in rows)

    def ends_at(score: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the wider of two intervals: the delta method's, and that from the ends of both means."""
        low, high = _apart(first, second, score)
        with np.errstate(invalid="ignore"):
            return np.fmin(low, gap - score * error), np.fmax(high, gap + score * error)

    return _table(columns, gap, error, ends_at, level, correct, None, what)


_Quantity = tuple["Estimate", int]  # an estimate, and which of its quantities


class _Side:
    """One quantity a row: its estimate, and the ends of its interval at any score."""

    def __init__(self, rows: Sequence[_Quantity]) -> None:
        self.size = len(rows)
        self.made = list({id(one): one for one, _ in rows}.values())
        numbered = {id(one): place for place, one in enumerate(self.made)}
        own = np.asarray([numbered[id(one)] for one, _ in rows], dtype=np.int64)
        places = np.asarray([place for _, place in rows], dtype=np.int64)
        self._rows = [np.flatnonzero(own == number) for number in range(len(self.made))]
        self._places = [places[rows] for rows in self._rows]
        self.value = self._gathered([one.value for one in self.made])
        self.std_error = self._gathered([one.std_error for one in self.made])
        self.jump = self._gathered([one.jump for one in self.made])

    def _gathered(self, columns: Sequence[FloatArray]) -> FloatArray:
        found = np.empty(self.size)
        for rows, places, column in zip(self._rows, self._places, columns, strict=True):
            found[rows] = column[places]
        return found

    def ends_at(self, score: FloatArray, moves: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the ends, each row at a score of its own."""
        lows, highs = [], []
        for one, rows, places in zip(self.made, self._rows, self._places, strict=True):
            scores, own = np.ones(one.value.shape), np.zeros(one.value.shape)
            scores[places], own[places] = score[rows], moves[rows]
            low, high = one.ends_at(scores, own)
            lows.append(low)
            highs.append(high)
        return self._gathered(lows), self._gathered(highs)


def _apart(first: _Side, second: _Side, score: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the ends of the differences of independent estimates."""
    errors = first.std_error, second.std_error
    moves = moves_of(np.hypot(*errors), jump_of_sum([first.jump, second.jump], errors))
    each = [one.ends_at(score, moves) for one in (first, second)]
    lows, highs = (np.stack(side) for side in zip(*each, strict=True))
    return added(np.stack([first.value, second.value]), lows, highs, np.asarray([-1.0, 1.0]))


def _add_texts(known: Mapping[str, dict[tuple[str, str], _Quantity]], arms: Mapping[str, Results]) -> bool:
    """Add the shares in every arm of texts that are frequent in some arm; tell whether texts were asked for.

    Those who measure had no part in choosing any of them, in no arm.
    """
    asked = [name for name, one in next(iter(arms.values())).items() if one.question.tells == "texts"]
    asked = [
        name for name in asked if all(name in one and one[name].question.tells == "texts" for one in arms.values())
    ]
    for name in asked:
        shown = [text for one in arms.values() for text in one[name].chosen()]
        texts = list(dict.fromkeys(shown))
        for label, one in arms.items():
            if texts:
                made = one[name].measured(texts)
                known[label].update({(name, text): (made, place) for place, text in enumerate(texts)})
    return bool(asked)


def _quantities(results: Results) -> dict[tuple[str, str], _Quantity]:
    """Return the estimate of every quantity, and its place there."""
    found: dict[tuple[str, str], _Quantity] = {}
    for answer in results.values():
        if answer.question.tells != "texts":
            name, made = answer.question.name, answer.estimate
            found |= {(name, quantity): (made, place) for place, quantity in enumerate(answer.question.estimated)}
    return found


@dataclass(frozen=True, eq=False)
class QuantileDifference:
    """The difference of one quantile between two groups: for each pair of cells, how far off it is and what it says.

    Formula: a quantile is in the cell from s to t where F(s) < chance <= F(t); z is by how many standard errors the
    worse of the two is violated by what was seen, 0 where none is. A pair of cells, one in each group, is kept where
    z_a^2 + z_b^2 <= x, and the interval reaches from the least difference of kept pairs to the largest. It is too low
    only if F_a seems too small at the upper end of the true cell, or F_b too large at the lower end of its own, by
    squares that exceed x together; too high likewise. Each has a probability of P(chi^2_1 > x) / 2 + P(chi^2_2 > x) / 4
    at most, whatever the distributions, which is (1 - level) / 2 at the x that is taken. At several looks both z are
    held below the boundary of half the error each instead.
    """

    low: FloatArray
    high: FloatArray
    scores: tuple[FloatArray, FloatArray]

    @classmethod
    def of(cls, first: CdfEstimate, second: CdfEstimate, chance: float) -> QuantileDifference:
        """Return all pairs of cells."""
        (low_a, high_a, a), (low_b, high_b, b) = (one.quantile_cells(chance) for one in (first, second))
        return cls(low_b - high_a[:, None], high_b - low_a[:, None], (a[:, None], b))

    def interval(self, alpha: float, times: tuple[float, ...]) -> tuple[float, float]:
        """Return the ends of all differences that are kept."""
        kept = self._far(times) <= (boundaries(times, alpha / 2)[-1] if times else _radius(alpha))
        return float(self.low[kept].min()), float(self.high[kept].max())

    def p_value(self, times: tuple[float, ...]) -> float:
        """Return the least alpha whose interval leaves out zero."""
        far = self._far(times)
        least = max(far[self.high >= 0].min(initial=np.inf), far[self.low <= 0].min(initial=np.inf))
        chance = 2 * float(repeated_p_value(np.asarray(least), times)) if times else _beyond_radius(float(least))
        return min(chance, 1.0)

    def _far(self, times: tuple[float, ...]) -> FloatArray:
        a, b = self.scores
        return np.asarray(np.maximum(a, b) if times else np.hypot(a, b))


def _beyond_radius(radius: float) -> float:
    """Return the chance that an interval of a difference of quantiles misses it at most."""
    return float(2 * ndtr(-radius)) + math.exp(-(radius**2) / 2) / 2


@lru_cache(maxsize=256)
def _radius(alpha: float) -> float:
    """Return the radius that is exceeded with this chance.

    >>> round(_radius(0.05), 3), round(_beyond_radius(_radius(1e-9)) * 1e9, 6)
    (2.354, 1.0)
    """
    low, high = 0.0, 40.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _beyond_radius(middle) > alpha else (low, middle)
    return high


def _table(
    columns: Mapping[str, Any],
    gap: FloatArray,
    error: FloatArray,
    ends_at: Callable[[FloatArray], tuple[FloatArray, FloatArray]],
    level: float,
    correct: str,
    looks: Sequence[float] | None,
    what: str,
    quantiles: Mapping[int, QuantileDifference] | None = None,
) -> pd.DataFrame:
    """Return differences with intervals, p-values, and p-values corrected for all of them."""
    import pandas as pd

    if correct not in CORRECTIONS:
        raise ValueError(f"Expected correct={correct!r} to be one of {', '.join(CORRECTIONS)}.")
    if not 0 < level < 1:
        raise ValueError(f"Expected level={level!r} in (0, 1), e.g. 0.95.")
    known = np.isfinite(gap)
    score = touching(ends_at, gap, error, np.zeros_like(gap))
    intervals = {row: own for row, own in (quantiles or {}).items() if np.isfinite(gap[row])}
    known[list(intervals)] = True  # where one value is certain, a quantile has no standard error
    tests = max(1, int(known.sum())) if correct != "none" else 1
    times = () if looks is None else _looks(looks)
    if times:
        chance = np.where(known, repeated_p_value(np.where(known, score, 0.0), times), np.nan)
        limit = float(boundaries(times, (1 - level) / tests)[-1])
    else:
        chance = np.where(known, 2 * ndtr(-np.where(known, score, 0.0)), np.nan)
        limit = float(ndtri(1 - (1 - level) / (2 * tests)))
    low, high = ends_at(np.full(gap.shape, limit))
    for row, own in intervals.items():
        low[row], high[row] = own.interval((1 - level) / tests, times)
        chance[row] = own.p_value(times)
    adjusted = holm(chance) if correct == "holm" else benjamini_hochberg(chance) if correct == "bh" else chance
    stated = {"difference": gap, "std_error": error, "low": low, "high": high}
    table = pd.DataFrame({**columns, **stated, "p_value": chance, "adjusted": adjusted})
    together = "hold for each difference by itself" if correct == "none" else "hold together (Bonferroni)"
    rule = {
        "holm": "the adjusted p-values are Holm's, for all tests of this table together",
        "bh": "the adjusted p-values are Benjamini and Hochberg's: of those below q a share of q is false on average",
        "none": "no p-value is adjusted for the others",
    }[correct]
    often = f" They hold at all {len(times)} looks together (alpha spending)." if times else ""
    cells = " Those of quantiles are made of whole cells and hold more often than that." if intervals else ""
    table.attrs["note"] = (
        f"{int(known.sum()):,} differences (b - a) between values of {what}. All {level:.0%} intervals {together}; "
        f"{rule}.{often}{cells}"
    )
    return table


def holm(chances: FloatArray) -> FloatArray:
    """Return p-values adjusted for all tests together, those that are NaN left out (Holm 1979).

    >>> holm(np.asarray([0.01, 0.04, 0.03])).tolist()
    [0.03, 0.06, 0.06]
    """
    found = np.full(chances.shape, np.nan)
    known = np.flatnonzero(np.isfinite(chances))
    order = known[np.argsort(chances[known], kind="stable")]
    steps = chances[order] * (order.size - np.arange(order.size))
    found[order] = np.minimum(np.maximum.accumulate(steps), 1.0) if order.size else steps
    return found


def benjamini_hochberg(chances: FloatArray) -> FloatArray:
    """Return p-values adjusted so that of those below q a share of q is false on average (Benjamini, Hochberg 1995).

    >>> benjamini_hochberg(np.asarray([0.01, 0.04, 0.03])).tolist()
    [0.03, 0.04, 0.04]
    """
    found = np.full(chances.shape, np.nan)
    known = np.flatnonzero(np.isfinite(chances))
    order = known[np.argsort(chances[known], kind="stable")]
    if order.size:
        steps = chances[order] * order.size / np.arange(1, order.size + 1)
        found[order] = np.minimum(np.minimum.accumulate(steps[::-1])[::-1], 1.0)
    return found


# --- looking again and again


def _looks(shares: Sequence[float]) -> tuple[float, ...]:
    """Check the shares of the planned people at which one has looked, the last one being now."""
    times = tuple(_validate.number(one, "share of a look") for one in shares)
    if not times or len(times) > _MOST_LOOKS or not all(a < b for a, b in zip((0.0, *times), times, strict=False)):
        raise ValueError(
            f"Expected looks={list(shares)} to be rising shares in (0, 1] of the people planned for, one for each look "
            "so far, the last one being now, e.g. [0.25, 0.5]."
        )
    if times[-1] > 1:
        raise ValueError(f"Expected looks={list(shares)} to be at most 1: everybody planned for has answered then.")
    return times


def spent(share: float, alpha: float) -> float:
    """Return how much of the chance of a false alarm may be spent up to a share of the people.

    Formula: each side spends 2 - 2 Phi(z / sqrt(t)) with z the quantile of 1 - alpha / 4 (Lan, DeMets 1983): little at
    first, all of it in the end.

    >>> round(spent(1.0, 0.05), 6), spent(0.2, 0.05) < 1e-4
    (0.05, True)
    """
    return float(4 * ndtr(-ndtri(1 - alpha / 4) / math.sqrt(share)))


@lru_cache(maxsize=256)
def boundaries(times: tuple[float, ...], alpha: float) -> tuple[float, ...]:
    """Return for each look how many standard errors a difference must have, so that all looks alarm falsely with alpha.

    Formula: the statistic times the square root of the share of people is a Brownian motion. Its law among those that
    have not crossed is followed from look to look (Armitage, McPherson, Rowe 1969), and each boundary spends what the
    rule allows.
    """
    found: list[float] = []
    grid = np.linspace(-1, 1, _GRID)
    points, mass = np.zeros(1), np.ones(1)  # all start at zero
    before, used = 0.0, 0.0
    for time in times:
        step, reach = math.sqrt(time - before), math.sqrt(time)
        allowed = spent(time, alpha) - used
        low, high = 0.0, 40.0
        for _ in range(40):
            middle = (low + high) / 2
            low, high = (middle, high) if _beyond(points, mass, middle * reach, step) > allowed else (low, middle)
        found.append(high)
        used += _beyond(points, mass, high * reach, step)
        nodes = grid * min(high, _FARTHEST_BOUNDARY) * reach
        law = np.exp(-(((nodes[:, None] - points) / step) ** 2) / 2) / (math.sqrt(2 * math.pi) * step)
        width = np.full(_GRID, nodes[1] - nodes[0])
        width[[0, -1]] /= 2
        points, mass, before = nodes, width * (law @ mass), time
    return tuple(found)


def _beyond(points: FloatArray, mass: FloatArray, far: float, step: float) -> float:
    """Return the chance to be farther than this from zero after a normal step from these points."""
    return float(mass @ (ndtr((points - far) / step) + ndtr((-far - points) / step)))


def repeated_p_value(scores: FloatArray, times: tuple[float, ...]) -> FloatArray:
    """Return the least chance of a false alarm at which each score would be beyond its boundary at the last look."""
    limits = np.asarray([boundaries(times, float(alpha))[-1] for alpha in _LEVELS])
    # the logarithm of such a chance falls about as the square of the score
    return np.asarray(np.exp(np.interp(scores**2, limits[::-1] ** 2, np.log(_LEVELS[::-1]))))
