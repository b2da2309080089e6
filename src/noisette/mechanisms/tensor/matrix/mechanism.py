"""The matrix mechanism: answer many linear queries about a histogram from the few that serve them best."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass, fields, replace
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from noisette import _random, _validate
from noisette._validate import FloatArray
from noisette.cells import Cells
from noisette.core import Capabilities, Estimate, EventDeclared, GaussianEvent, Moments, Readout, Tail
from noisette.domains import BoolArray, TensorDomain
from noisette.guarantees import Claim, Guarantee, Model, Relation, gaussian_mu
from noisette.mechanisms._base import coarseness, power_of_two
from noisette.mechanisms.tensor._whole import WholeTensorMechanism, open_array
from noisette.mechanisms.tensor.matrix.strategies import BITS, Kronecker, Marginals, Strategy, error_of
from noisette.mechanisms.tensor.matrix.workloads import read_modes

_RELATIONS: dict[str, tuple[Model, Relation]] = {
    "add-remove": ("central", "add-remove"),
    "replace": ("central", "replace"),
    "any-pair": ("local", "any-pair"),
}
_FINENESS = 2.0**20  # steps of the lattice in the noise, and in what a record changes
_COARSEST, _FINEST = 2.0**14, 2.0**42  # steps of the lattice in the noise
_FARTHEST = 2.0**13  # spreads of the noise from the data
_UNMOVED = 1e-6  # of what a record that comes or goes changes
_SHARES = 1e-9  # rounding of a user's shares
_COMPARED = 1 << 10  # cells up to which every record is looked at
_WRITTEN = 1 << 14  # numbers of a strategy that a certificate holds
_GDP = 1 + 1e-8  # noise on the coarsest such lattice against the normal distribution, in a thousand dimensions


@dataclass(frozen=True)
class Finite:
    """Tensors of finite numbers within reach of the noise."""

    dims: tuple[int, ...]
    reach: float

    def __str__(self) -> str:
        return f"tensors of shape {self.dims} with entries in [{-self.reach:g}, {self.reach:g}]"

    def contains(self, reports: npt.NDArray[Any]) -> BoolArray:
        """Tell which tensors could be reports."""
        values = np.asarray(reports, dtype=float)
        axes = tuple(range(values.ndim - len(self.dims), values.ndim))
        with np.errstate(invalid="ignore"):
            return np.asarray((np.abs(values) <= self.reach).all(axis=axes))


@dataclass(frozen=True, eq=False)
class MatrixMechanism(WholeTensorMechanism, EventDeclared):
    """Answer a workload W of linear queries about a histogram x from noisy answers to other queries, a strategy A.

    Formula: y = A x + N(0, s^2 I), the report is A^+ y and the answers W A^+ y. A minimises the sum of the answers'
    variances: X = A'A minimises tr(W'W X^-1) over diag(X) <= 1, by a fixed point with a dual bound; ``gap`` is at most
    1e-6. Along several modes W = W_1 x ... x W_N, and A is the product of the best strategies of the modes, which is
    the best one and is never formed. s is the least that meets (epsilon, delta) for what one record changes.

    *Guarantee*: (epsilon, delta)-DP for one record, in the central model, where a curator holds the histogram: a record
    comes or goes (``relation="add-remove"``, the default) or moves to another cell (``"replace"``). With
    ``"any-pair"`` the model is local: each user sends the report of a tensor that is 1 in the user's own cell. A x is
    rounded to a lattice of 2^-20 of the noise, and discrete Gaussian noise is sampled on it exactly; the cost of
    rounding is inside epsilon.
    *Utility*: the report is unbiased up to half a step of the lattice; where W has fewer independent queries than x has
    cells, its answers are. `answers` gives them with standard errors. The variances of 64 prefixes add up to 282 s^2;
    asked one by one they would add up to 2,080 s^2.
    Li, Miklau, Hay, McGregor, Rastogi 2015, as in Yang, Xiang, Chen, Li, Li 2021, Definition 10; noise sampled as in
    Canonne, Kamath, Steinke 2020.

    >>> m = MatrixMechanism(1.0, 1e-6, domain=TensorDomain((64,), 0, 1000), workload="prefix")
    >>> round(m.error / m.sigma**2, 1), m.gap < 1e-6
    (282.2, True)
    >>> estimate = m.answers(m.privatize(np.full(64, 10.0), rng=7))
    >>> estimate.value.shape, estimate.std_error.shape
    ((64,), (64,))
    """

    epsilon: float
    delta: float = 1e-6
    _: KW_ONLY
    domain: TensorDomain
    workload: Any = "identity"
    strategy: Any = None
    relation: str = "add-remove"
    name: ClassVar[str] = "matrix"
    capabilities: ClassVar[Capabilities] = Capabilities((TensorDomain,), delta="needed", gaussian=True, model="central")
    citation: ClassVar[str] = "li2015matrix"
    uncertified: ClassVar[str] = (
        "the verifier knows what a record that comes or goes changes in the answers of a product of strategies, one "
        f"for each mode, of {_WRITTEN:,} numbers in all; not marginal tables, and no other neighbours"
    )

    def __post_init__(self) -> None:
        self._settle()
        object.__setattr__(self, "delta", _validate.delta(self.delta, positive=True))
        if self.relation not in _RELATIONS:
            raise ValueError(f"Expected relation={self.relation!r} to be one of {tuple(_RELATIONS)}.")
        dims = self.domain.dims
        if self.relation != "add-remove" and self.size == 1:
            raise ValueError(f"Expected at least two cells for relation={self.relation!r}: a record has nowhere to go.")
        if self.relation == "any-pair" and not (self.domain.low <= 0 and self.domain.high >= 1):
            raise ValueError(f"Expected a domain that holds 0 and 1, where a user's cell is marked, got {self.domain}.")
        if self._order is None:
            object.__setattr__(self, "workload", read_modes(self.workload, dims, "workload"))
        if self.strategy is not None:
            if self._order is not None:
                raise ValueError(f"Expected no strategy beside workload={self.workload!r}: the best one is known.")
            object.__setattr__(self, "strategy", read_modes(self.strategy, dims, "strategy"))
        if self._change[0] < _UNMOVED * self._strategy.change(replaced=False)[0]:
            raise ValueError(
                f"With relation={self.relation!r} no answer changes when a record is replaced: there is nothing to "
                "protect. Publish the answers, or take relation='add-remove' if the number of records is private."
            )
        _ = self._lattice  # a strategy or a range that cannot be served is refused now

    @classmethod
    def declared(cls, **options: Any) -> Capabilities:
        """Return what the mechanism can do: it is local where a tensor is one user's."""
        local = options.get("relation") == "any-pair"
        return replace(cls.capabilities, model="local" if local else "central")

    def worst_variance(self) -> float:
        """Return the largest variance of an entry, which is the same whatever the tensor."""
        return float(np.max(self.moments(self.witnesses()[0]).variance))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MatrixMechanism) and self._fields == other._fields

    def __hash__(self) -> int:
        return hash(self._fields)

    @property
    def _fields(self) -> tuple[Any, ...]:
        return tuple(getattr(self, field.name) for field in fields(self))

    @classmethod
    def example(cls, epsilon: float) -> Self:
        """Return the mechanism for prefix sums of four cells."""
        return cls(epsilon=epsilon, domain=TensorDomain((4,), 0, 100), workload="prefix")

    @property
    def _order(self) -> int | None:
        """Modes of each marginal table, None for other workloads."""
        if not (isinstance(self.workload, str) and self.workload.startswith("marginal-")):
            return None
        order = self.workload.removeprefix("marginal-")
        if not order.isdigit() or int(order) > len(self.domain.dims):
            raise ValueError(
                f"Expected workload={self.workload!r} to be marginal-0 to marginal-{len(self.domain.dims)}, by the "
                f"number of modes of each table; the data have {len(self.domain.dims)}."
            )
        return int(order)

    @cached_property
    def _strategy(self) -> Strategy:
        if self._order is not None:
            return Marginals(self.domain.dims, self._order)
        if self.strategy is not None:
            return Kronecker.given(self.workload, self.strategy, self.domain.dims)
        return Kronecker.best(self.workload, self.domain.dims)

    @property
    def guarantee(self) -> Guarantee:
        """Return the (epsilon, delta) guarantee for one record."""
        model, relation = _RELATIONS[self.relation]
        claim = Claim(self.epsilon, self.delta, source=self.citation)
        return Guarantee(self.epsilon, self.delta, model=model, relation=relation, claim=claim)

    @cached_property
    def _change(self) -> tuple[float, tuple[tuple[int, ...], tuple[int, ...]]]:
        return self._strategy.change(replaced=self.relation != "add-remove")

    @cached_property
    def _lattice(self) -> tuple[float, float]:
        """Step of the lattice that A x is rounded to, and the noise in steps.

        Rounding, and float64 sums, move each entry by less than a step, so two neighbours by less than two.
        """
        change, _ = self._change
        mu, asked = gaussian_mu(self.epsilon, self.delta) / _GDP, math.prod(self._strategy.shape)
        noise = change / mu
        fine = max(min(noise, change / math.sqrt(asked)) / _FINENESS, noise / _FINEST)
        # float64 errs by less than half a step
        step = max(power_of_two(fine), 4 * power_of_two(self._strategy.slip(self._largest)))
        if self._place > 1 or step > noise / _COARSEST:
            raise ValueError(
                f"Expected entries up to {self._largest:g} to be below 2^27, and sums of them to fit a lattice well "
                f"below the noise of {noise:g} in float64. Give a smaller public bound in the domain, or fewer cells."
            )
        return step, (change / step + 2 * math.sqrt(asked)) / mu

    @property
    def sigma(self) -> float:
        """Standard deviation of the noise of a strategy query."""
        step, noise = self._lattice
        return step * noise

    @property
    def mu(self) -> float:
        """One report is mu-GDP, rounding included."""
        step, noise = self._lattice
        return (self._change[0] / step + 2 * math.sqrt(math.prod(self._strategy.shape))) / noise * _GDP

    def written_law(self) -> dict[str, Any] | None:
        """Return the strategy, the lattice of its answers and the noise; None for other strategies or neighbours."""
        strategy = self._strategy
        small = math.prod(strategy.shape) * self.size <= _WRITTEN
        if self.relation != "add-remove" or not isinstance(strategy, Kronecker) or not small:
            return None
        rows = [[Fraction(1)]]
        for matrix in strategy.matrices:  # in fractions: the product of float64 matrices is none of float64
            own = [[Fraction(float(entry)) for entry in row] for row in matrix]
            rows = [[a * b for a in one for b in row] for one in rows for row in own]
        step, noise = self._lattice
        return {"kind": "queries", "step": step, "noise": {"kind": "gaussian", "sigma": noise}, "rows": rows}

    def privacy_event(self) -> GaussianEvent:
        """Return what accounting composes."""
        return GaussianEvent(self.mu)

    @cached_property
    def error(self) -> float:
        """Sum of the variances of all answers."""
        return self._strategy.total_variance() * self.sigma**2

    @cached_property
    def gap(self) -> float:
        """How far the strategy may be from the best one, relatively: its error over a dual bound, less 1.

        Along several modes it is that of the whole product. Error and bound are for a record that comes or goes, the
        case that strategies are optimised for.
        """
        return max(error_of(self._strategy) / self._strategy.bound - 1, 0.0)

    @property
    def lower_bound(self) -> float:
        """Sum of variances below which no strategy with Gaussian noise of this mu can go (add-remove), by duality."""
        return self._strategy.bound / self.mu**2

    def answers(self, reports: Any) -> Estimate:
        """Return the workload's answers with standard errors; reports of several users are averaged.

        Along several modes queries are in row-major order; marginal tables follow one another.
        """
        values, _ = open_array(reports, "reports")
        rows = self._rows(values, "reports")
        self.check_support(rows.reshape(-1, *self.domain.dims))
        mean = rows.mean(axis=0).reshape(self.domain.dims)
        variances = self._strategy.answer_variances() * (self.sigma**2 / len(rows))
        return Estimate(
            value=self._strategy.answer(mean),
            std_error=np.sqrt(np.maximum(variances, 0.0)),
            count=np.full(variances.size, len(rows), dtype=np.int64),
            tail=Tail(variances * len(rows), 0.0),
            kind=self.kind,
        )

    def true_answers(self, x: Any) -> FloatArray:
        """Return the workload's answers to the data themselves, without any privacy."""
        return self._strategy.answer(self._inputs(x))

    def _admit(self, rows: FloatArray, *, clip: bool) -> FloatArray:
        admitted = super()._admit(rows, clip=clip)
        if self.relation == "any-pair":
            shares = (admitted.min(axis=1) >= 0) & (np.abs(admitted.sum(axis=1) - 1) <= _SHARES)
            if not np.all(shares):
                bad = admitted[int(np.argmin(shares))]
                raise ValueError(
                    "Expected each user's tensor to be 1 in one cell and 0 elsewhere, or shares that sum to 1, got one "
                    f"from {bad.min():g} up that sums to {bad.sum():g}. In the local model a user holds one record."
                )
        return admitted

    @property
    def _largest(self) -> float:
        """Largest absolute value of an entry of x; a user's shares sum to 1, whatever the domain holds."""
        return 1.0 if self.relation == "any-pair" else max(abs(self.domain.low), abs(self.domain.high))

    @property
    def _place(self) -> float:
        """Last place of the bits that are kept of an entry of x."""
        return 2 * power_of_two(self._largest) / 2.0 ** (BITS - 1)

    def _rounded(self, rows: FloatArray) -> FloatArray:
        """Return A x in whole steps.

        Entries of x keep their leading bits, so that sums are nearly exact. Whole numbers lose nothing. What other
        numbers lose does not change when a record comes or goes, as a record is a whole number of units in the last
        place. The shares of a user are rounded to shares that sum to 1: they are a mean of records, so two users are no
        farther apart than two records.
        """
        places = rows / self._place
        places = _shares(places, round(1 / self._place)) if self.relation == "any-pair" else np.floor(places + 0.5)
        step, _ = self._lattice
        return np.rint(self._strategy.ask(places.reshape(-1, *self.domain.dims) * self._place) / step)

    def _perturb(self, rows: FloatArray, rng: np.random.Generator, reports: FloatArray) -> None:
        step, noise = self._lattice
        asked = self._rounded(rows)
        asked += _random.discrete_gaussian(rng, noise, asked.size).reshape(asked.shape)
        asked *= step
        reports[...] = self._strategy.reconstruct(asked).reshape(rows.shape)

    @cached_property
    def support(self) -> Finite:
        """Tensors of finite numbers: what A^+ makes of the lattice."""
        spread = self.sigma * math.sqrt(float(self._strategy.cell_variances().max()))
        return Finite(self.domain.dims, self._largest + _FARTHEST * spread)

    @cached_property
    def _unit(self) -> float:
        """What cells are rounded to before they are summed: far below their noise."""
        deviations = self.sigma * np.sqrt(self._strategy.cell_variances())
        return max(power_of_two(float(deviations.min())) / 2.0**20, power_of_two(self.support.reach) / 2.0**43)

    def _codes(self, rows: FloatArray) -> FloatArray:
        return np.rint(rows / self._unit)

    @cached_property
    def readout(self) -> Readout:
        """The plain mean of the reports, cell by cell."""
        variances = self.sigma**2 * self._strategy.cell_variances().reshape(-1)
        half = (self.domain.high - self.domain.low) / 2
        return Readout(
            offset=0.0,
            scale=np.full(self.size, self._unit),
            low=self.domain.low,
            high=self.domain.high,
            tail=Tail(variances + half**2, 0.0),
            coarse=coarseness((half + math.sqrt(float(variances.max()))) / self._unit),
        )

    def moments(self, x: Any) -> Moments:
        """Return the moments of each cell of a report: sums of discrete Gaussians, normal but for rounding.

        The bias is what rounding to the lattice and, for a singular strategy, the projection A^+ A change in x.
        """
        values = self._inputs(x)
        step, _ = self._lattice
        seen = self._strategy.reconstruct(self._rounded(values.reshape(-1, self.size)) * step).reshape(values.shape)
        deviation = self.sigma * np.sqrt(np.broadcast_to(self._strategy.cell_variances(), values.shape))
        return Moments(seen - values, deviation**2, 2 * math.sqrt(2 / math.pi) * deviation**3)

    def log_prob(self, report: Any, x: Any) -> FloatArray:
        """Return the log density of a report, in steps of the lattice, from what A makes of it."""
        reports, _ = open_array(report, "report")
        possible = self.support.contains(reports)
        order = len(self.domain.dims)
        inside = possible.reshape(possible.shape + (1,) * order)
        step, noise = self._lattice
        values = self._inputs(x)
        asked = self._rounded(values.reshape(-1, self.size)).reshape(
            *values.shape[: values.ndim - order], *self._strategy.shape
        )
        away = self._strategy.ask(np.where(inside, reports, 0.0)) / step - asked
        axes = tuple(range(away.ndim - order, away.ndim))
        squares = np.square(away / noise).sum(axis=axes)
        return np.where(
            possible, -squares / 2 - self._strategy.rank * math.log(noise * math.sqrt(2 * math.pi)), -np.inf
        )

    def _pair(self) -> FloatArray:
        """Return neighbours that are easy to distinguish: a tensor without and with a record, or with it elsewhere.

        The strategy's answers to one record are compared cell by cell. Of more than 1,024 cells, those that change the
        answers most by the strategy's own account are compared, and others drawn at random.
        """
        cells = np.arange(self.size)
        if self.size > _COMPARED:
            known = [np.ravel_multi_index(cell, self.domain.dims) for cell in self._change[1]]
            others = np.random.default_rng(0).integers(0, self.size, max(2, _COMPARED**2 // self.size))
            cells = np.concatenate([known, others])
        records = np.zeros((cells.size, self.size))
        records[np.arange(cells.size), cells] = 1.0
        asked = self._strategy.ask(records.reshape(-1, *self.domain.dims)).reshape(cells.size, -1)
        squares = np.square(asked).sum(axis=1)
        pair = np.zeros((2, self.size))
        if self.relation == "add-remove":
            pair[1] = records[int(np.argmax(squares))]
        else:
            apart = squares[:, None] + squares - 2 * asked @ asked.T
            pair[:] = records[list(np.unravel_index(int(np.argmax(apart)), apart.shape))]
        pair = pair.reshape(2, *self.domain.dims)
        return pair if self.domain.low <= 0 else pair + math.ceil(self.domain.low)

    def witnesses(self) -> tuple[FloatArray, FloatArray]:
        """Return the pair of neighbours that the strategy moves most, also as reports."""
        pair = self._pair()
        return pair, pair.copy()

    def dissect(self) -> Iterator[Cells]:
        """Return reports on the line through the two neighbours that the strategy moves most.

        Across the line both laws are the same, and their mass there is that of a normal distribution of one dimension
        less: on a lattice of 2^-20 of the noise, sums equal integrals to about 1e-10. Places are steps along the line.
        """
        first, second = self._pair()
        cells = self.cut(first, second)
        assert cells is not None  # the strategy tells some records apart
        yield cells

    def cut(self, first: Any, second: Any) -> Cells | None:
        """Return reports on the line through any two tensors' answers, as `dissect` does."""
        first, second = np.asarray(first, dtype=float), np.asarray(second, dtype=float)
        step, noise = self._lattice
        start, end = (self._strategy.reconstruct(self._rounded(x.reshape(1, -1)) * step)[0] for x in (first, second))
        length = float(np.linalg.norm(self._strategy.ask(end - start))) / step
        if length == 0:
            return None
        unit, span = (end - start) / length, math.ceil(8 * noise)
        heads = np.asarray([0.0, -1.0]), np.asarray([1.0, -1.0])
        nodes = []
        for number in range(3):
            places = heads[0] + number * span * heads[1]
            nodes.append(start + places.reshape(-1, *(1,) * first.ndim) * unit)
        weight = np.full(2, (self._strategy.rank - 1) * math.log(noise * math.sqrt(2 * math.pi)))
        endless, spans = np.full(2, math.inf), np.full(2, float(span))
        return Cells((first, second), tuple(nodes), weight, endless, spans, np.zeros(2))


def _shares(rows: FloatArray, total: int) -> FloatArray:
    """Round non-negative numbers, whose sum is within 1 of ``total``, to whole numbers that sum to it.

    Each is rounded down, then those that lost most are raised by 1; of equal losses the first.

    >>> _shares(np.asarray([[2.5, 2.5, 3.0], [0.4, 0.3, 7.3]]), 8).tolist()
    [[3.0, 2.0, 3.0], [1.0, 0.0, 7.0]]
    """
    whole = np.floor(rows)
    lacking = total - whole.sum(axis=1, keepdims=True)
    order = np.argsort(whole - rows, axis=1, kind="stable")
    raised = np.arange(rows.shape[1]) < lacking
    np.put_along_axis(whole, order, np.take_along_axis(whole, order, axis=1) + raised, axis=1)
    return whole
