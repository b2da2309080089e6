"""Each user reports some of her dimensions, with the budget split among them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, field, fields, replace
from fractions import Fraction
from functools import cached_property
from itertools import combinations_with_replacement
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from noisette import _random, _validate
from noisette._random import Rng
from noisette._special import gammaln
from noisette._validate import FloatArray, IntArray
from noisette.cells import Cells, Dissected, up
from noisette.core import Capabilities, EventDeclared, Moments, PubliclyDrawn, Readout, RepeatedEvent, Tail, Tally
from noisette.domains import BoolArray, Box, Interval
from noisette.guarantees import Claim, Guarantee
from noisette.mechanisms._base import BLOCK, BaseMechanism, ScalarMechanism
from noisette.mechanisms.vector._vectors import admitted

_PARABOLA = 3  # nodes that a run of a parabola has
_MOST_CELLS = 1 << 16  # combinations of inner cells that are kept apart
_ENTRIES = 1 << 20  # that are drawn at a time


@dataclass(frozen=True)
class Reports:
    """Compact reports: for each user the dimensions reported and their values on [-1, 1]'s scale."""

    indices: npt.NDArray[np.int32]
    values: FloatArray

    def __post_init__(self) -> None:
        if self.indices.ndim != 2 or self.indices.shape != self.values.shape:
            shapes = f"{self.indices.shape} and {self.values.shape}"
            raise ValueError(f"Expected indices and values of one shape (users, report), got {shapes}.")

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, rows: slice) -> Reports:
        return Reports(self.indices[rows], self.values[rows])


@dataclass(frozen=True)
class SampledSupport:
    """Dimensions in increasing order, each with a report of the inner mechanism."""

    inner: ScalarMechanism
    dims: int

    def __str__(self) -> str:
        return f"increasing dimensions below {self.dims}, values {self.inner.support}"

    def contains(self, reports: Reports) -> BoolArray:
        """Tell which users' reports could have been sent."""
        known = ((reports.indices >= 0) & (reports.indices < self.dims)).all(axis=1)
        increasing = (reports.indices[:, 1:] > reports.indices[:, :-1]).all(axis=1)
        return np.asarray(known & increasing & self.inner.support.contains(reports.values).all(axis=1))


@dataclass(frozen=True)
class Sampled(BaseMechanism, EventDeclared, PubliclyDrawn):
    """Report some of the dimensions, drawn at random, each by a scalar mechanism with its share of the budget.

    Formula: a uniform subset of m dimensions out of d; the value of each, mapped to [-1, 1], by the inner mechanism
    with budget e/m (and delta/m). ``report=None`` takes the m of least worst-case error, about e / 2.2.

    *Guarantee*: epsilon-LDP for the user's whole vector, by composition over the m dimensions.
    *Utility*: unbiased where the inner mechanism is; about n m / d reports a dimension.
    Wang et al. 2019, Algorithm 4; its m = max(1, min(d, floor(e / 2.5))) costs up to 48 % more than ours.

    >>> c = Sampled("piecewise", epsilon=1.0, dims=5000, report=50)
    >>> c.guarantee.epsilon, c.inner_mechanism.epsilon
    (1.0, 0.02)
    >>> Sampled("duchi", epsilon=8.0, dims=100).report
    4
    """

    inner: str
    epsilon: float
    dims: int = None  # type: ignore[assignment]  # taken from the domain
    _: KW_ONLY
    report: int | None = None
    domain: Box = None  # type: ignore[assignment]  # __post_init__ puts Box(dims)
    delta: float = 0.0
    options: Mapping[str, Any] = field(default_factory=dict)
    name: ClassVar[str] = "sampled"
    kind: ClassVar[str] = "vector-mean"
    citation: ClassVar[str] = "wang2019collecting"
    capabilities: ClassVar[Capabilities] = Capabilities((Box,), delta="optional", slow_start=True, composite=True)

    def __post_init__(self) -> None:
        if self.dims is None and self.domain is None:
            raise TypeError("Expected dims or domain: how long are the vectors? E.g. dims=4 or domain=Box(4).")
        dims = self.domain.dims if self.dims is None else _validate.integer(self.dims, "dims", low=1)
        object.__setattr__(self, "dims", dims)
        object.__setattr__(self, "epsilon", _validate.epsilon(self.epsilon))
        object.__setattr__(self, "delta", _validate.delta(self.delta))
        domain: Any = Box(dims) if self.domain is None else self.domain
        if not isinstance(domain, Box) or domain.dims != dims:
            raise ValueError(f"Expected a Box of dims={dims} as the domain, got {domain}.")
        object.__setattr__(self, "domain", domain)
        if self.report is None:
            report = best_report(dims, self._build)
        else:
            report = _validate.integer(self.report, "report", low=1, high=dims)
        object.__setattr__(self, "report", report)
        _ = self.inner_mechanism  # a wrong inner mechanism is refused now, not at the first report

    @classmethod
    def example(cls, epsilon: float) -> Self:
        """Return Piecewise on two of three dimensions."""
        return cls("piecewise", epsilon=epsilon, dims=3, report=2)

    def _build(self, report: int) -> ScalarMechanism:
        """Return the inner mechanism when ``report`` dimensions share the budget."""
        from noisette.mechanisms import by_name  # the catalogue lists this class, so it is complete only later

        cls = by_name(self.inner)
        if not (isinstance(cls, type) and issubclass(cls, ScalarMechanism)):
            raise ValueError(f"Expected a mechanism for one real number, got {self.inner!r}, which is not one.")
        if "epsilon" not in {own.name for own in fields(cls)}:  # type: ignore[arg-type]
            raise ValueError(f"Expected a mechanism with one budget, got {self.inner!r}, which has one for each level.")
        share = Fraction(1, report)
        budget = {"epsilon": part_of(self.epsilon, share)}
        if self.delta > 0:
            budget["delta"] = part_of(self.delta, share)
        mechanism = cls(**budget, **self.options)
        if not isinstance(mechanism.domain, Interval):
            raise ValueError(f"Expected a mechanism on an interval, got {self.inner!r} on {mechanism.domain}.")
        if self.delta == 0 and mechanism.guarantee.delta > 0:
            raise ValueError(
                f"Expected delta > 0 for {self.inner!r}: it has no pure guarantee. Give one, e.g. delta=1e-6."
            )
        return mechanism

    @cached_property
    def inner_mechanism(self) -> ScalarMechanism:
        """The scalar mechanism that each reported dimension goes through, on [-1, 1]."""
        return self._build(self._count)

    @property
    def slow_start(self) -> bool:
        """Whether the first use of the inner mechanism takes seconds."""
        return self.inner_mechanism.slow_start

    @property
    def _count(self) -> int:
        """Dimensions a user reports."""
        assert self.report is not None  # __post_init__ chose it
        return self.report

    @property
    def guarantee(self) -> Guarantee:
        """Return the guarantee of the whole vector: that of one dimension, ``report`` times."""
        inner = self.inner_mechanism.guarantee
        claim = Claim(self.epsilon, self.delta, source=self.citation)
        epsilon, delta = (total_of([budget], self._count) for budget in (inner.epsilon, inner.delta))
        return Guarantee(min(self.epsilon, epsilon), min(self.delta, delta), claim=claim)

    def written_law(self) -> dict[str, Any] | None:
        """Return how many dimensions are drawn, and the law of one."""
        law = self.inner_mechanism.written_law()
        return law and {"kind": "sampled", "dims": self.dims, "report": self._count, "part": law}

    def privacy_event(self) -> RepeatedEvent:
        """Return what accounting composes: the reports of a user's dimensions."""
        return RepeatedEvent(self.inner_mechanism, self._count)

    @property
    def support(self) -> SampledSupport:  # type: ignore[override]
        """Possible reports of a user."""
        return SampledSupport(self.inner_mechanism, self.dims)

    @cached_property
    def _scale(self) -> tuple[FloatArray, FloatArray]:
        """Middle and half-width of each dimension."""
        half = (self.domain.highs - self.domain.lows) / 2
        return self.domain.lows + half, half

    def draw(self, users: int, rng: np.random.Generator) -> IntArray:
        """Draw the dimensions that each user reports."""
        return np.asarray(choose(rng, users, self.dims, self._count))

    def drawn(self, reports: Reports) -> IntArray:
        """Return the dimensions that each user reported."""
        return reports.indices.astype(np.int64)

    def privatize_drawn(self, x: Any, drawn: IntArray, *, rng: Rng = None) -> Reports:
        """Return each user's reports about these dimensions."""
        return self._reported(_validate.people(x, self.domain.shape), drawn, clip=False, rng=rng)

    def _answer(self, x: Any, *, clip: bool, rng: Rng) -> Reports:
        """Return each user's reports; ``x`` has one row a user."""
        return self._reported(x, None, clip=clip, rng=rng)

    def _reported(self, x: Any, drawn: IntArray | None, *, clip: bool, rng: Rng) -> Reports:
        rows = _validate.reals(x).reshape(-1, self.dims)
        source = _random.generator(rng)
        count = self._count
        reports = Reports(np.empty((len(rows), count), dtype=np.int32), np.empty((len(rows), count)))
        middle, half = self._scale
        for piece in self._row_blocks(len(rows)):
            block = admitted(rows[piece], self.domain, clip=clip)
            chosen = self.draw(len(block), source) if drawn is None else drawn[piece]
            canonical = np.take_along_axis(block, chosen, axis=1)
            canonical -= middle[chosen]
            canonical /= half[chosen]
            np.clip(canonical, -1.0, 1.0, out=canonical)  # the division may round past an end
            reports.indices[piece] = chosen
            # each entry has its own share of the budget, so each is a person's value to the inner mechanism
            sent = self.inner_mechanism.privatize(canonical.reshape(-1), rng=source)
            reports.values[piece] = sent.reshape(canonical.shape)
        return reports

    def _row_blocks(self, users: int) -> Iterator[slice]:
        size = max(1, _ENTRIES // self.dims)
        return (slice(start, min(start + size, users)) for start in range(0, users, size))

    def moments(self, x: Any) -> Moments:
        """Return, for each dimension, the exact moments of one report about it."""
        values = _validate.reals(x)
        _validate.trailing(values, (self.dims,), "x")
        _, half = self._scale
        inner = self.inner_mechanism.moments(np.clip(self.domain.to_canonical(values), -1, 1))
        return Moments(inner.bias * half, inner.variance * half**2, inner.third * half**3)

    def log_prob(self, report: Reports, x: Any) -> FloatArray:
        """Return the log density of each user's reports given her vector."""
        values = np.clip(self.domain.to_canonical(_validate.reals(x)), -1, 1).reshape(-1, self.dims)
        count = self._count
        rows = max(len(values), len(report))
        indices, reported = (np.broadcast_to(a, (rows, count)) for a in (report.indices, report.values))
        chosen = np.take_along_axis(np.broadcast_to(values, (rows, self.dims)), indices.astype(np.int64), axis=1)
        subsets = gammaln(self.dims + 1) - gammaln(count + 1) - gammaln(self.dims - count + 1)
        return np.asarray(self.inner_mechanism.log_prob(reported, chosen).sum(axis=1) - subsets)

    def witnesses(self) -> tuple[FloatArray, Reports]:
        """Return vectors that repeat the inner mechanism's worst inputs, and reports that repeat its worst reports."""
        inputs, reports = self.inner_mechanism.witnesses()
        count = self._count
        vectors = self.domain.from_canonical(np.repeat(np.asarray(inputs)[:, None], self.dims, axis=1))
        indices = np.broadcast_to(np.arange(count, dtype=np.int32), (len(reports), count))
        return vectors, Reports(indices, np.repeat(np.asarray(reports)[:, None], count, axis=1))

    def dissect(self) -> Iterator[Cells]:
        """Combine the cells of the inner mechanism, for vectors that differ in every dimension.

        Which dimensions are reported does not depend on the vector. Given the dimensions, the law of a report is a
        product, and two products are farthest apart where all their factors are. With normal inner laws only the mean
        of the reports depends on the vector, and the mean is normal. If an inner law has too many cells, or cells that
        are not constant, only reports that repeat one inner report are returned: the worst one is among them.
        """
        inner = self.inner_mechanism
        if not isinstance(inner, Dissected):
            return
        subsets = math.log(math.comb(self.dims, self._count))
        for cells in inner.dissect():
            cells = self._merged(cells) if len(cells.nodes) == 1 else cells
            kinds = cells.log_weight.size
            if self._count > 1 and len(cells.nodes) == _PARABOLA:
                yield self._diagonal(cells, subsets)
                continue
            if self._count > 1 and (
                len(cells.nodes) > 1 or math.comb(kinds + self._count - 1, kinds - 1) > _MOST_CELLS
            ):
                rows, coefficient = np.repeat(np.arange(kinds)[:, None], self._count, axis=1), np.zeros(kinds)
                complete = False
            else:
                rows = np.asarray(list(combinations_with_replacement(range(kinds), self._count)))
                often = (rows[:, :, None] == np.arange(kinds)).sum(axis=1)
                coefficient, complete = gammaln(self._count + 1) - gammaln(often + 1).sum(axis=1), cells.complete
            first = rows[:, 0]
            indices = np.broadcast_to(np.arange(self._count, dtype=np.int32), rows.shape)
            yield Cells(
                pair=tuple(self.domain.from_canonical(np.full(self.dims, x)) for x in cells.pair),  # type: ignore[arg-type]
                nodes=tuple(Reports(indices, node[rows]) for node in cells.nodes),
                log_weight=coefficient + cells.log_weight[rows].sum(axis=1) + subsets,
                places=cells.places[first],
                span=cells.span[first],
                tilt=cells.tilt[first],
                bound=None if cells.bound is None else _times(self._count, cells.bound),
                complete=complete,
            )

    def _diagonal(self, cells: Cells, subsets: float) -> Cells:
        """Return reports that are the same in each dimension, with the weight of all others of the same mean.

        For m dimensions and noise of deviation s steps, each stands for sqrt(m) (2 pi s^2)^((m - 1) / 2) reports of its
        likelihood; the lattice is so fine that sums are integrals.
        """
        count = self._count
        logs = [self.inner_mechanism.log_prob(node, np.asarray(cells.pair[0])) for node in cells.nodes]
        variance = -(cells.span**2) / (logs[2] - 2 * logs[1] + logs[0])
        alike = math.log(count) / 2 + (count - 1) / 2 * np.log(2 * math.pi * variance)
        indices = np.broadcast_to(np.arange(count, dtype=np.int32), (cells.log_weight.size, count))
        return replace(
            cells,
            pair=tuple(self.domain.from_canonical(np.full(self.dims, x)) for x in cells.pair),  # type: ignore[arg-type]
            nodes=tuple(Reports(indices, np.repeat(node[:, None], count, axis=1)) for node in cells.nodes),
            log_weight=count * cells.log_weight + alike + subsets,
            bound=None,
        )

    def _merged(self, cells: Cells) -> Cells:
        """Put constant cells of the same two masses together."""
        logs = np.stack([self.inner_mechanism.log_prob(cells.nodes[0], np.asarray(x)) for x in cells.pair])
        _, first, kind = np.unique(logs, axis=1, return_index=True, return_inverse=True)
        weight = np.bincount(kind.reshape(-1), np.exp(cells.log_weight))
        merged = Cells.constant(cells.pair, cells.nodes[0][first], np.log(weight), cells.bound)
        return replace(merged, complete=cells.complete)

    @property
    def code_ends(self) -> tuple[Any, Any]:
        """Those of the mechanism of one dimension."""
        ends: tuple[Any, Any] = self.inner_mechanism.code_ends
        return ends

    @property
    def report_ends(self) -> tuple[FloatArray, FloatArray]:
        """The ends of the mechanism of one dimension, mapped back to its interval."""
        middle, half = self._scale
        least, largest = (middle + half * end for end in self.inner_mechanism.report_ends)
        return np.asarray(least), np.asarray(largest)

    @cached_property
    def readout(self) -> Readout:
        """The mean of the reports of each dimension, mapped back to its interval."""
        inner = self.inner_mechanism.readout
        middle, half = self._scale
        return Readout(
            offset=middle + half * inner.offset,
            scale=half * inner.scale,
            low=self.domain.lows,
            high=self.domain.highs,
            tail=Tail(inner.tail.variance * half**2, inner.tail.scale * half),
            coarse=inner.coarse,
            noise=None if inner.noise is None else inner.noise * half**2,
        )

    def tally(self, reports: Reports) -> Tally:
        """Reduce a batch of reports to integer sums per dimension."""
        if not isinstance(reports, Reports):
            raise TypeError(f"Expected the Reports that privatize returns, got {type(reports).__name__}.")
        if reports.indices.shape[1] != self.report:
            raise ValueError(
                f"Expected {self.report} reports a user, got {reports.indices.shape[1]}. Compare the specs."
            )
        if len(reports) == 0:
            raise ValueError("Expected at least one report, got none.")
        from noisette.mechanisms._compiled import plain  # numba, which import noisette does not wait for
        from noisette.mechanisms.vector import _sums

        sums = np.zeros((self.dims, 3), dtype=np.int64)
        size = max(1, BLOCK // self._count)
        for start in range(0, len(reports), size):
            block = reports[start : start + size]
            codes = self.inner_mechanism.codes(block.values)
            wrong = _sums.add(plain(block.indices), codes, 1 / self.readout.coarse, sums)
            if wrong >= 0:
                raise ValueError(
                    f"Expected each user's dimensions in increasing order, from 0 to {self.dims - 1}; "
                    f"user {start + wrong} reports {block.indices[wrong].tolist()}."
                )
        count, total, squares = np.ascontiguousarray(sums.T)
        return Tally(len(reports), count, total, squares)


def _times(count: int, bound: float) -> float:
    """Return ``count * bound``, rounded up."""
    return up(count * Fraction(bound)) if math.isfinite(bound) else bound


def choose(rng: np.random.Generator, users: int, dims: int, count: int) -> npt.NDArray[np.int64]:
    """Draw for each user a uniform subset of ``count`` out of ``dims``, in increasing order."""
    if count == dims:
        return np.broadcast_to(np.arange(dims), (users, dims))
    if count == 1:
        return rng.integers(0, dims, (users, 1))
    if count**2 > 2 * dims:
        return np.sort(np.argpartition(rng.random((users, dims)), count - 1, axis=1)[:, :count], axis=1)
    # few draws of many dimensions: a set without repeats turns up at least once in three tries
    chosen = np.sort(rng.integers(0, dims, (users, count)), axis=1)
    pending = np.flatnonzero((chosen[:, 1:] == chosen[:, :-1]).any(axis=1))
    while pending.size:
        again = np.sort(rng.integers(0, dims, (pending.size, count)), axis=1)
        chosen[pending] = again
        pending = pending[(again[:, 1:] == again[:, :-1]).any(axis=1)]
    return chosen


def best_report(dims: int, build: Callable[[int], ScalarMechanism]) -> int:
    """Return the number of dimensions to report: the m of least worst-case second moment of a report, divided by m.

    The variance of the estimate of one dimension is (d/m) E[Y^2] - x^2 over n, so the best m makes this least.
    """
    ends = np.asarray([-1.0, 0.0, 1.0])

    def cost(report: int) -> float:
        moments = build(report).moments(ends)
        return float((moments.variance + (ends + moments.bias) ** 2).max()) / report

    return least_cost(dims, cost)


def part_of(budget: float, share: Fraction) -> float:
    """Return a share of a budget, rounded down: shares that add up to 1 never spend more than the budget.

    >>> part_of(1.0, Fraction(1, 5)) * 5, part_of(1.0, Fraction(1, 4))
    (0.9999999999999999, 0.25)
    """
    exact = Fraction(budget) * share
    nearest = float(exact)
    return nearest if Fraction(nearest) <= exact else math.nextafter(nearest, 0.0)


def total_of(budgets: Iterable[float], times: int = 1) -> float:
    """Return ``times`` times the sum of budgets, rounded up.

    >>> total_of([0.1] * 10), total_of([0.1], 10)
    (1.0000000000000002, 1.0000000000000002)
    """
    exact = times * sum(map(Fraction, budgets), Fraction(0))
    nearest = float(exact)
    return nearest if Fraction(nearest) >= exact else math.nextafter(nearest, math.inf)


def least_cost(dims: int, cost: Callable[[int], float]) -> int:
    """Return the number from 1 to ``dims`` of least cost; the cost falls first and rises after that."""
    best, least = 1, math.inf
    for report in range(1, dims + 1):
        found = cost(report)
        if found < least:
            best, least = report, found
        elif report > best + 3:
            break
    return best
