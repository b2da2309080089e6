"""Without rounds: each user reports products of her columns once, and the server solves."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from typing import Any

import numpy as np

from noisette import _random, _validate
from noisette._random import Rng
from noisette._validate import FloatArray, IntArray
from noisette.domains import Categorical, Interval
from noisette.guarantees import Guarantee
from noisette.regression.channels import Gathered, VectorChannel, channel_of
from noisette.regression.designs import BadValue, Design
from noisette.regression.training import Model, Training

_USERS_AT_ONCE = 1 << 12  # users worked on at a time


@dataclass(frozen=True, eq=False)
class Solution:
    """A model from private second moments, with the error to expect of it.

    ``covariance`` is that of the weights, to first order in the noise, and ``excess`` the mean squared error, on the
    target's scale [-1, 1], that the noise adds to predictions; both leave out the bias of the ridge. ``ridge`` is the
    one in use.
    """

    model: Model
    covariance: FloatArray
    excess: float
    ridge: float


@dataclass(frozen=True)
class ProductReports:
    """One private report of each user about products of her columns and her target: what two trainers share.

    The columns are those ``kept`` of the design. What is known beforehand is not reported: a category's square is the
    category, and two categories of one attribute never meet.
    """

    design: Design
    target: Interval | Categorical
    epsilon: float
    _: KW_ONLY
    mechanism: str = "auto"

    def __post_init__(self) -> None:
        if self.design.coding != "unit":
            raise ValueError(f"Expected a design of coding='unit', got {self.design.coding!r}.")
        _ = self.protocol, self.channel  # wrong options are refused now, not at the first report

    @cached_property
    def protocol(self) -> Training:
        """Training on the same columns, whose checks, encodings and predictions are shared."""
        return Training(self.design, self.target, self.epsilon)

    @property
    def _logistic(self) -> bool:
        return isinstance(self.target, Categorical)

    @cached_property
    def kept(self) -> IntArray:
        """The columns of the model."""
        return np.arange(self.design.width)

    @cached_property
    def pairs(self) -> IntArray:
        """The products to report, as rows (i, j) of places among the columns kept; j = d for the target."""
        owners, categorical = self.design.owners[self.kept], self.design.categorical[self.kept]
        width, found = len(self.kept), []
        for i in range(width):
            for j in range(i, width):
                known = not self._logistic if i == 0 == j else owners[i] == owners[j] and categorical[i]
                if not known:
                    found.append((i, j))
            found.append((i, width))
        return np.asarray(found, dtype=np.int64)

    @property
    def radius(self) -> float:
        """Largest length of the vector of products: each two attributes have at most one that is not zero."""
        return math.sqrt(self.design.most_products + self._logistic)

    @cached_property
    def channel(self) -> VectorChannel:
        """How the products leave a device."""
        return self._channel()

    def _channel(self, report: int | None = None) -> VectorChannel:
        epsilon = _validate.epsilon(self.epsilon)
        sizes: dict[str, Any] = {"dims": len(self.pairs), "bound": 1.0, "radius": self.radius}
        return channel_of(self.mechanism, epsilon, report=report, **sizes)

    @property
    def guarantee(self) -> Guarantee:
        """What a user's one report protects: her whole record."""
        return self.channel.guarantee

    def _encoded(self, rows: Any, target: Any, *, clip: bool) -> tuple[FloatArray, FloatArray]:
        """Return the design rows and the targets of some users on the model's scale."""
        matrix = self.design.encode(rows, outside="clip" if clip else "refuse")
        values = self.protocol.encode_target(target, clip=clip)
        if len(matrix) != len(values):
            raise ValueError(f"Expected as many targets as rows, got {len(values)} and {len(matrix)}.")
        return matrix, values

    def _moments(self, means: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the means of x x^T and of x y from the means of the products."""
        width = len(self.kept)
        table = np.zeros((width + 1, width + 1))
        table[0, 0] = 1.0
        table[self.pairs[:, 0], self.pairs[:, 1]] = table[self.pairs[:, 1], self.pairs[:, 0]] = means
        own = np.flatnonzero(self.design.categorical[self.kept])
        table[own, own] = table[0, own]
        return table[:width, :width], table[:width, width]


@dataclass(frozen=True, kw_only=True)
class OneShot(ProductReports):
    """Linear regression from products of two columns, or of a column and the target, reported once by each user.

    Formula: with x the design row and y the target on [-1, 1], the mechanism reports the vector of all x_i x_j and
    x_i y that are not known beforehand (a category's square is the category, two categories of one attribute
    never meet). With A and b the estimated means, A's negative eigenvalues set to zero, w = (A + ridge)^-1 b, the ridge
    at least the noise of A, ``2 s sqrt(d)`` for d columns and a standard error s of an entry: below it, directions of A
    cannot be told from noise.

    *Guarantee*: that of the mechanism, for a user's whole record, in the local model.
    *Utility*: `Solution.excess`. There are d^2 / 2 moments for the d entries of a gradient, so this needs more users
    than Training where d is above a few; it needs no rounds, and any ridge or subset of columns can be solved later.

    >>> rng = np.random.default_rng(1)
    >>> rows = rng.uniform(-1, 1, (50_000, 1))
    >>> shot = OneShot(Design((Interval(),)), Interval(), epsilon=2.0)
    >>> shot.run([(rows, 0.5 * rows[:, 0])], rng=7).model.average.round(1)
    array([0. , 0.5])
    """

    ridge: float = 1e-4
    entries: int | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.target, Interval):
            raise TypeError(f"Expected target={self.target!r} to be an Interval: classes have no second moments.")
        super().__post_init__()

    @cached_property
    def protocol(self) -> Training:
        """Training on the same columns, with the ridge."""
        return Training(self.design, self.target, self.epsilon, ridge=self.ridge)

    @cached_property
    def channel(self) -> VectorChannel:
        """How the products, or as many of them as ``entries`` says, leave a device."""
        return self._channel(self.entries)

    def products(self, rows: FloatArray, target: FloatArray) -> FloatArray:
        """Return the products of each user's design row and target."""
        joined = np.column_stack([rows, target])
        return np.asarray(joined[:, self.pairs[:, 0]] * joined[:, self.pairs[:, 1]])

    def report(self, rows: Any, target: Any, *, clip: bool = False, rng: Rng = None) -> Any:
        """Return the private reports of some users: what a device does with its own record."""
        products = self.products(*self._encoded(rows, target, clip=clip))
        return self.channel.privatize(products, products, rng=rng)

    def run(self, stream: Iterable[tuple[Any, Any]], *, clip: bool = False, rng: Rng = None) -> Solution:
        """Solve from a stream of (rows, targets), each row a user."""
        source = _random.generator(rng)
        sums: Any = None
        for rows, target in stream:
            table, targets = np.asarray(rows), np.asarray(target)
            for start in range(0, len(table), _USERS_AT_ONCE):
                block = slice(start, start + _USERS_AT_ONCE)
                try:
                    reports = self.report(table[block], targets[block], clip=clip, rng=source)
                except BadValue as error:
                    raise error.moved(start) from None
                gathered = self.channel.gather(reports)
                sums = gathered if sums is None else sums.merge(gathered)
        if sums is None:
            raise ValueError("Expected at least one user to learn from, got an empty stream.")
        return self.solve(sums)

    def solve(self, gathered: Gathered) -> Solution:
        """Return the ridge solution from the sums of all reports: what a server does."""
        gram, cross = self._moments(self.channel.mean(gathered))
        width = self.design.width
        variance = self.channel.noise / len(self.pairs) / gathered.users
        ridge = max(self.ridge, 2 * math.sqrt(variance * width))
        values, vectors = np.linalg.eigh(gram)
        repaired = (vectors * np.maximum(values, 0.0)) @ vectors.T
        penalty = ridge * np.eye(width)
        penalty[0, 0] = 0.0
        # the constant is not shrunk, so its own direction must not be singular either
        inverse = np.linalg.pinv(repaired + penalty, hermitian=True)
        weights = inverse @ cross
        spread = inverse @ self._sources(weights)
        covariance = variance * spread @ spread.T
        return Solution(
            Model(weights, weights, 1, gathered.users), covariance, float(np.sum(repaired * covariance)), ridge
        )

    def predict(self, solution: Solution, rows: Any) -> FloatArray:
        """Return the predicted target of each row."""
        return self.protocol.predict(solution.model, rows)

    def _sources(self, weights: FloatArray) -> FloatArray:
        """Return how noise in each product enters b - A w: a column for each product."""
        width, count = self.design.width, len(self.pairs)
        result = np.zeros((width + 1, count))
        first, second = self.pairs.T
        products = np.arange(count)
        extended = np.append(weights, -1.0)
        np.add.at(result, (first, products), -extended[second])
        moved = first != second
        np.add.at(result, (second[moved], products[moved]), -extended[first[moved]])
        category = (first == 0) & np.append(self.design.categorical, False)[second]
        np.add.at(result, (second[category], products[category]), -extended[second[category]])
        return result[:width]
