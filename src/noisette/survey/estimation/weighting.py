"""Results weighted to known margins of public groups, by post-stratification and raking, or of a private choice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from noisette import _validate
from noisette._bounded import added, jump_of_sum, moves_of
from noisette._validate import FloatArray
from noisette.core import Estimate
from noisette.survey.coding.joints import Crosstab, Within
from noisette.survey.estimation.hierarchy import CdfEstimate
from noisette.survey.estimation.ratios import BoundedEstimate, CellShares, RatioEstimate
from noisette.survey.results import Answer, GroupedResults, Results
from noisette.survey.survey import Survey

if TYPE_CHECKING:
    import pandas as pd

Margins = Mapping[str, Mapping[str, float]]
_NEAR_ONE = 1e-6  # shares whose sum is off by no more are taken for rounded ones
_ROUNDS, _SETTLED = 1000, 1e-10  # of raking, and how near the margins must come


@dataclass(frozen=True, eq=False)
class WeightedResults(Results):
    """Results about a population whose margins are known, from people who are not a fair sample of it.

    ``design_effect`` says how much larger variances are than those of as many people who need no weights.
    """

    margins: Margins = field(default_factory=dict)

    @cached_property
    def _answers(self) -> dict[str, Answer]:
        private = [name for name in self.margins if name not in self.survey.groups]
        found = _by_choice(self, private[0]) if private else _by_cells(self)
        return {one.name: Answer(one, found[one.name], self) for one in self.survey.topics if one.name in found}

    def __getitem__(self, name: str) -> Answer:
        if name not in self._answers and name in [one.name for one in self.survey.topics]:
            raise KeyError(
                f"There is no weighted answer to {name!r}. Texts have none, and shares of a private choice weigh only "
                "numbers and choices of one label that were asked jointly with it. Take the answer from the results "
                "without weights."
            )
        return super().__getitem__(name)

    def by(self, name: str) -> GroupedResults:
        """Weighted results are about everybody."""
        raise ValueError("Weighted results are about the whole population. Take by() of the results without weights.")

    def table(self, *, level: float | None = None) -> pd.DataFrame:
        """Return a tidy table of everybody."""
        level = self.level if level is None else level
        return self._noted(list(self._parts(level)), level, f"Weighted to known shares of {', '.join(self.margins)}.")

    def design_effect(self) -> pd.DataFrame:
        """Return for each quantity its variance divided by that of the same estimate without weights."""
        import pandas as pd

        plain = Results(self.aggregate, self.method, self.level)
        rows = []
        for name, answer in self.items():
            both = zip(answer.estimate.std_error.tolist(), plain[name].estimate.std_error.tolist(), strict=True)
            for quantity, (own, without) in zip(answer.question.estimated, both, strict=True):
                rows.append((name, quantity, (own / without) ** 2 if without > 0 else np.nan))
        return pd.DataFrame.from_records(rows, columns=["question", "quantity", "design_effect"])


def weighted(results: Results, margins: Margins) -> WeightedResults:
    """Check margins and return the results that they weigh."""
    survey = results.survey
    if not isinstance(margins, Mapping) or not margins:
        raise TypeError("Expected known shares of a group, such as {'region': {'north': 0.3, 'south': 0.7}}.")
    checked = {str(name): _margin(survey, str(name), shares) for name, shares in margins.items()}
    private = [name for name in checked if name not in survey.groups]
    if private and len(checked) > 1:
        raise ValueError(f"Expected the private choice {private[0]!r} alone, or public groups alone.")
    return WeightedResults(results.aggregate, results.method, results.level, margins=checked)


def _margin(survey: Survey, name: str, shares: Any) -> dict[str, float]:
    """Return the known shares of one group or choice."""
    labels: Sequence[str]
    if name in survey.groups:
        labels = survey.groups[name]
    elif _items(survey, name):
        labels = survey.question(name).estimated
    else:
        known = [*survey.groups, *(one.name for one in survey.questions if _items(survey, one.name))]
        raise ValueError(
            f"Expected {name!r} to be a public group, or a choice that is asked jointly with another choice of one "
            f"label or with a number; there are {', '.join(known) or 'none'}."
        )
    if not isinstance(shares, Mapping) or set(shares) != set(labels):
        raise ValueError(f"Expected a share for each value of {name!r}, {list(labels)}, got {shares!r}.")
    found = {label: _validate.number(shares[label], f"share of {label}") for label in labels}
    if min(found.values()) < 0 or not abs(sum(found.values()) - 1) <= _NEAR_ONE:  # also where one is not a number
        raise ValueError(f"Expected shares of {name!r} >= 0 that add up to 1, got {dict(shares)}.")
    return found


# --- public groups


def raked(counts: FloatArray, margins: Sequence[tuple[int, FloatArray]]) -> FloatArray:
    """Return the share of each cell that has these margins and is otherwise as the counts are.

    Formula: the cells of one margin after the other are scaled to it, until all are met (Deming, Stephan 1940). With
    one margin that is post-stratification.

    >>> raked(np.asarray([[10.0, 20.0], [30.0, 40.0]]), [(0, np.asarray([0.5, 0.5]))]).round(3).tolist()
    [[0.167, 0.333], [0.214, 0.286]]
    """
    found = counts / counts.sum()
    for _ in range(_ROUNDS):
        worst = 0.0
        for axis, shares in margins:
            others = tuple(place for place in range(found.ndim) if place != axis)
            now = found.sum(axis=others)
            if np.any((now == 0) & (shares > 0)):
                raise ValueError("Expected somebody in every group whose share is not zero. Merge groups.")
            factor = np.divide(shares, now, out=np.zeros_like(shares), where=now > 0)
            worst = max(worst, float(np.abs(now - shares).max()))
            shape = [1] * found.ndim
            shape[axis] = -1
            found = found * factor.reshape(shape)
        if worst < _SETTLED:
            return np.asarray(found)
    raise ValueError("Expected margins that some table has: raking them does not settle. Are there empty groups?")


def _by_cells(results: WeightedResults) -> dict[str, Estimate]:
    """Return estimates of all questions, combined over the cells of public groups."""
    survey = results.survey
    shape = [len(values) for values in survey.groups.values()]
    counts = np.zeros(survey.cells)
    for cell, sums in results.aggregate.cells.items():
        counts[cell] = sums.users
    if counts.sum() == 0:
        return dict(results.sums.by_question())
    names = list(survey.groups)
    margins = [(names.index(name), np.asarray(list(own.values()))) for name, own in results.margins.items()]
    weights = raked(counts.reshape(shape), margins).ravel()
    cells = [cell for cell in sorted(results.aggregate.cells) if weights[cell] > 0]
    places = np.stack(np.unravel_index(cells, shape), axis=1)
    dummies = [places[:, axis, None] == np.arange(shape[axis]) for axis, _ in margins]
    parts = [results.aggregate.cells[cell].by_question(results.method) for cell in cells]
    own = weights[cells]
    design = np.concatenate(dummies, axis=1).astype(np.float64)
    return {
        name: combined([one[name] for one in parts], own, counts[cells], design)
        for name in parts[0]
        if survey.topic(name).tells != "texts"
    }


def combined(parts: Sequence[Estimate], weights: FloatArray, people: FloatArray, design: FloatArray) -> Estimate:
    """Return the estimate about a population whose parts, cells of public groups, have known weights.

    Formula: sum of W_c m_c; its variance is the sum of W_c^2 (s_c^2 + e_c^2 / n_c), where e_c is what the margins do
    not explain of m_c: how many people fall into a cell varies, and matters where cells of one margin differ.
    Variances and correlations of a mixture do not follow from those of its parts, and are left out.
    """
    count = np.sum([np.broadcast_to(one.count, one.value.shape) for one in parts], axis=0)
    square = (weights**2)[:, None]
    first = parts[0]

    def residual(values: FloatArray) -> FloatArray:
        root = np.sqrt(weights)[:, None]
        fit = design @ np.linalg.lstsq(root * design, root * np.where(np.isfinite(values), values, 0.0), rcond=None)[0]
        return np.asarray(np.sum(square * (values - fit) ** 2 / people[:, None], axis=0))

    if isinstance(first, CdfEstimate):
        ends = np.stack([one.cdf for one in parts])  # type: ignore[attr-defined]
        spread = np.tensordot(
            weights**2, np.stack([one.covariance for one in parts if isinstance(one, CdfEstimate)]), axes=1
        )
        scatter = residual(ends)
        own = tuple(one for one in parts if isinstance(one, CdfEstimate))
        return first.again(spread + np.diag(scatter), int(count[0]), own, weights, scatter)
    if isinstance(first, BoundedEstimate):
        unknown, error = (np.full(first.value.shape, one) for one in (np.nan, np.inf))
        return BoundedEstimate(unknown, error, count, first.low, first.high, names=first.names)
    if isinstance(first, RatioEstimate):
        over, under = (np.stack([getattr(one, of) for one in parts]) for of in ("numerator", "denominator"))
        spread = np.tensordot(
            weights**2, np.stack([one.spread for one in parts if isinstance(one, RatioEstimate)]), axes=1
        )
        top, bottom = weights @ over, weights @ under
        scatter = residual(over - top / bottom * under)
        spread[0] += scatter
        names = tuple(first.names or ())
        made = RatioEstimate.of(top, bottom, spread, count, names, float(first.low), float(first.high))  # type: ignore[arg-type]
        ratios = tuple(one for one in parts if isinstance(one, RatioEstimate))
        return replace(made, parts=ratios, weights=weights, scatter=scatter)
    values, errors = (np.stack([getattr(one, of) for one in parts]) for of in ("value", "std_error"))
    scatter = residual(values)
    error = np.sqrt(np.sum(square * errors**2, axis=0) + scatter)
    stated = {"low": first.low, "high": first.high, "names": first.names, "method": first.method, "kind": first.kind}
    mixture: dict[str, Any] = {"parts": tuple(parts), "weights": weights, "scatter": scatter}
    return MixedEstimate(weights @ values, error, count, **stated, **mixture)  # type: ignore[arg-type]


@dataclass(frozen=True)
class MixedEstimate(Estimate):
    """Estimates about a population made of weighted parts that have no person in common."""

    parts: tuple[Estimate, ...] = ()
    weights: FloatArray = field(default_factory=lambda: np.zeros(0))
    scatter: FloatArray = field(default_factory=lambda: np.zeros(0))  # variance that the parts do not have

    @property
    def jump(self) -> FloatArray:
        each = [(own * one.jump, own * one.std_error) for own, one in zip(self.weights, self.parts, strict=True)]
        return jump_of_sum(*zip(*each, strict=True))

    def ends_at(self, score: Any, moves: Any = None) -> tuple[FloatArray, FloatArray]:
        """Return the ends of sums of independent estimates."""
        moves = moves_of(self.std_error, self.jump) if moves is None else moves
        each = [one.ends_at(score, moves) for one in self.parts]
        lows, highs = (np.stack(side) for side in zip(*each, strict=True))
        values = np.stack([one.value for one in self.parts])
        return added(values, lows, highs, self.weights, np.asarray(score) ** 2 * self.scatter)


# --- a private choice


def _items(survey: Survey, name: str) -> list[Within | Crosstab]:
    """Return the pairs that a choice is asked in."""
    pairs = [item for item in survey.items if isinstance(item, Within | Crosstab)]
    return [item for item in pairs if name in item.asked and (isinstance(item, Crosstab) or item.choice.name == name)]


def _by_choice(results: WeightedResults, name: str) -> dict[str, Estimate]:
    """Return sharper estimates from a private choice of known shares: of the other question of each of its pairs.

    Formula: sum over labels k of P_k m_k with m_k = sum of y_c f_c / F_k over the cells c of the label, F_k their sum;
    the delta method takes P_k (y_c - m_k) / F_k as the weight of cell c.
    """
    known = np.asarray(list(results.margins[name].values()))
    found: dict[str, Estimate] = {}
    for item in _items(results.survey, name):
        mechanism, sums = results.sums.piece(item)
        cells = CellShares.of(mechanism, sums)
        if isinstance(item, Within):
            other: Any = item.number
            own = np.repeat(np.eye(known.size), 2, axis=1)
            goals = np.tile([other.low, other.high], known.size)[None]
            low, high = other.low, other.high
        else:
            other = item.second if item.first.name == name else item.first
            rows, columns = len(item.first.labels), len(item.second.labels)
            by_first, by_second = np.repeat(np.eye(rows), columns, axis=1), np.tile(np.eye(columns), (1, rows))
            own, goals = (by_first, by_second) if item.first.name == name else (by_second, by_first)
            low, high = 0.0, 1.0
        share = cells.sums(own)
        mean = (goals[:, None] * own) @ cells.value / share
        weights = (goals - mean @ own) * ((known / share) @ own)
        error = np.sqrt(np.maximum(cells.covariance(weights, weights), 0.0))
        count = np.full(len(goals), cells.users, dtype=np.int64)
        ends = tuple(mean @ known + end - cells.sums(weights) for end in cells.supports.ends(weights))
        stated: dict[str, Any] = {"names": other.quantities, "ends": ends}
        found.setdefault(other.name, BoundedEstimate(mean @ known, error, count, low, high, **stated))
    return found
