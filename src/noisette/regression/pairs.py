"""A classifier from counts: each user reports one of her attributes together with her class."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from noisette import _random, _validate
from noisette._random import Rng
from noisette._validate import FloatArray, IntArray
from noisette.core import Estimate
from noisette.domains import Categorical, Interval
from noisette.enhancement.simplex import project
from noisette.guarantees import Guarantee
from noisette.mechanisms.build import build
from noisette.regression.designs import Design
from noisette.regression.training import Model, Training

PAIRS = "pairs"  # the name that asks for it
_PARTS = 3  # of a number's range: with fewer the middle is lost, with more each has too few users
_SCALING = 0.05  # of the users find the scale of the score
_CATEGORY, _SLOPE = 0.4, 0.8  # how far the rate of a category, and of a number by half its range, is expected from all
_CENTRES = (2 * np.arange(_PARTS) + 1) / _PARTS - 1
_LOG_ODDS = 2.0  # the largest score that the users who find its scale look at
_LEAST_VARIANCE = 0.05  # of the class, where its rate is as good as 0 or 1
_LEAST_SCALE = 1e-3  # of the score where noise hides it: the order of predictions stays


@dataclass(frozen=True)
class ClassPairs:
    """A logistic model of two classes for few users or small budgets, from one report of each.

    A user draws one attribute without looking at her record, and reports its category, or the third of its range that
    her number is in, together with her class, by subset selection over all such pairs. The weight of a category is
    c p r^2 / (p^2 r^2 + s^2), with c its covariance with the class, s^2 the variance of that estimate and p its share:
    the expected difference between the rate of the second class in it and among all, if such differences are normal
    with deviation r = 0.4 beforehand. It tends to c / p where noise is small; where it is large, rare categories count
    for little. A number has the slope of the rate in the same way, with its variance as p, and r = 0.8 on the scale
    [-1, 1]. One user in twenty reports a gradient of a model with one column instead, the score so far, which gives it
    intercept and scale.

    *Guarantee*: epsilon-LDP for a user's whole record, attributes and class, in the local model: she sends one report,
    and which one does not depend on her record.
    *Utility*: an attribute counts as if the others were not there. Gradients find the best weights where users are many
    or the budget is large; see docs/regression.md. Both r were chosen on the American Community Survey.

    >>> rng = np.random.default_rng(1)
    >>> kind = rng.integers(0, 4, 20_000)
    >>> bought = (rng.random(20_000) < 0.2 + 0.2 * kind).astype(int)
    >>> model = ClassPairs(Design((Categorical(4),)), epsilon=1.0).run(kind[:, None], bought, rng=7)
    >>> bool(np.all(np.diff(model.average[1:]) > 0))
    True
    """

    design: Design
    epsilon: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", _validate.epsilon(self.epsilon))
        if self.design.coding != "unit":
            raise ValueError(f"Expected a design with coding='unit', got {self.design.coding!r}.")

    @cached_property
    def _mechanisms(self) -> list[Any]:
        """For each attribute the mechanism for pairs of its part and the class."""
        sizes = [a.size if isinstance(a, Categorical) else _PARTS for a in self.design.attributes]
        return [build("subset-selection", Categorical(2 * size), epsilon=self.epsilon) for size in sizes]

    @property
    def guarantee(self) -> Guarantee:
        """What a user's one report protects: her whole record."""
        guarantee: Guarantee = self._mechanisms[0].guarantee
        return guarantee

    def run(self, rows: Any, target: Any, *, clip: bool = False, rng: Rng = None) -> Model:
        """Let users report once each, classes as 0 and 1; the rows' order does not matter."""
        source = _random.generator(rng)
        matrix = self.design.encode(rows, outside="clip" if clip else "refuse")
        classes = np.asarray(target, dtype=np.int64)
        if len(matrix) != len(classes) or not len(matrix):
            raise ValueError(f"Expected as many targets as rows, and some, got {len(classes)} and {len(matrix)}.")
        scaling = source.random(len(matrix)) < _SCALING
        drawn = source.integers(0, len(self._mechanisms), len(matrix))
        drawn[scaling] = -1
        shares: list[Estimate | None] = []
        for place, mechanism in enumerate(self._mechanisms):
            own = drawn == place
            pairs = 2 * self._part(matrix[own], place) + classes[own]
            shares.append(mechanism.aggregate(mechanism.privatize(pairs, rng=source)).estimate() if own.any() else None)
        found = self._scaled(*self._weights(shares), matrix[scaling], classes[scaling], source)
        return Model(found, found, rounds=1, users=len(matrix))

    def _part(self, matrix: FloatArray, place: int) -> IntArray:
        """Return each user's category of an attribute, or the part of its range."""
        columns = matrix[:, self.design.owners == place]
        if isinstance(self.design.attributes[place], Interval):
            return np.clip(((columns[:, 0] + 1) / 2 * _PARTS).astype(np.int64), 0, _PARTS - 1)
        return np.asarray(columns.argmax(axis=1), dtype=np.int64)

    def _weights(self, shares: list[Estimate | None]) -> tuple[FloatArray, float]:
        """Return the expected rate of each column less that of all, and the latter, from the shares of all pairs."""
        rates = [float(pairs.value[1::2].sum()) for pairs in shares if pairs is not None]
        rate = min(max(float(np.mean(rates)), 0.0), 1.0) if rates else 0.5
        weights = np.zeros(self.design.width)
        for place, pairs in enumerate(shares):
            if pairs is None:
                continue
            value, variance = pairs.value.reshape(-1, 2), np.square(pairs.std_error).reshape(-1, 2)
            covariance = value[:, 1] - rate * value.sum(axis=1)
            noise = variance @ [rate**2, (1 - rate) ** 2]
            size, spread = project(value.sum(axis=1)), _CATEGORY
            if isinstance(self.design.attributes[place], Interval):
                covariance, noise = _CENTRES @ covariance, _CENTRES**2 @ noise
                size, spread = _CENTRES**2 @ size - (_CENTRES @ size) ** 2, _SLOPE
            known = np.square(size * spread) + noise
            weights[self.design.owners == place] = np.divide(
                covariance * size * spread**2, known, out=np.zeros_like(known), where=known > 0
            )
        return weights, rate

    def _scaled(
        self, weights: FloatArray, rate: float, matrix: FloatArray, classes: Any, rng: np.random.Generator
    ) -> FloatArray:
        """Return weights whose score has the intercept and the scale that the remaining users' gradients give it."""
        if not weights.any() or not len(matrix):
            return weights
        # to first order a difference of rates over rate (1 - rate) is one of log-odds, if attributes are independent
        weights = weights / (_LOG_ODDS * max(rate * (1 - rate), _LEAST_VARIANCE))
        one = Training(Design((Interval(),)), Categorical(2), self.epsilon)
        intercept, slope = one.run([((matrix @ weights)[:, None].clip(-1, 1), classes)], rng=rng).average
        weights = weights * max(float(slope), _LEAST_SCALE)
        weights[0] = float(intercept)
        return np.asarray(weights)
