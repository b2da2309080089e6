"""Each user reports some attributes of her record, numbers and categories, each by a mechanism of its own."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from fractions import Fraction
from functools import cached_property
from operator import attrgetter
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from noisette import _random, _validate
from noisette._random import Rng
from noisette._special import gammaln
from noisette._validate import FloatArray, IntArray
from noisette.cells import Cells
from noisette.core import Aggregate, Capabilities, Moments, PubliclyDrawn, Readout, Tail, Tally
from noisette.domains import Attributes, BoolArray, Categorical
from noisette.guarantees import Claim, Guarantee
from noisette.mechanisms._base import BaseMechanism, blocks
from noisette.mechanisms.categorical.hashing import SeededBuckets
from noisette.mechanisms.vector import _attribute_cells
from noisette.mechanisms.vector.sampled import choose, least_cost, part_of, total_of

_ENTRIES = 1 << 20  # numbers worked on at a time
_EXACT_INTEGERS = 2.0**53
_COLUMNS_ONE_BY_ONE = 16  # columns
_NEAR_ONE = 1e-9  # shares whose sum is off by no more are taken for rounded ones, and made smaller if they exceed 1


@dataclass(frozen=True)
class AttributeReports:
    """Rows of an attribute and a report about it, attributes in increasing order, the rest of a row zero."""

    mechanism: SampledAttributes

    def __str__(self) -> str:
        inner = self.mechanism.inner
        names = inner if isinstance(inner, str) else ", ".join(sorted(set(inner)))
        return f"increasing attributes below {self.mechanism.domain.dims}, each with a report of {names}"

    def contains(self, reports: npt.NDArray[Any]) -> BoolArray:
        """Tell which users' reports could have been sent."""
        own = self.mechanism
        shape = reports.shape[: reports.ndim - 2]
        rows = reports.reshape(-1, *own.report_shape)
        index = rows[..., 0]
        known = _all((index >= 0) & (index < own.domain.dims) & (index == np.floor(index)))
        sound = known & _all(index[:, 1:] > index[:, :-1])
        fits = np.zeros(index.shape, dtype=bool)
        for inner, chosen, width in own.sorts(np.where(known[:, None], index, 0).astype(np.int64)):
            values = rows[chosen][:, 1:]
            sent = values[:, :width].reshape(len(values), *inner.report_shape)
            fits[chosen] = inner.support.contains(sent) & _all(values[:, width:] == 0)
        return np.asarray((sound & _all(fits)).reshape(shape))


@dataclass(frozen=True)
class SampledAttributes(BaseMechanism, PubliclyDrawn):
    """Report some attributes of a record, drawn at random, each by its own mechanism with its share of the budget.

    Formula: a uniform subset of m attributes out of d; each through the mechanism that ``inner`` names, one for all or
    one for each attribute, with budget e/m. ``inner="histogram"`` adds noise of budget e/(2m) to every entry of the
    encoded categories, as Duan 2024 does. ``report=None`` takes the m of least worst-case error. When all attributes
    are reported ``shares`` may split the budget unevenly among them. Budgets are rounded down, so that their exact sum
    is never above epsilon.

    *Guarantee*: epsilon-LDP for the user's whole record, by composition over the m attributes.
    *Utility*: unbiased where the inner mechanisms are; about n m / d reports an attribute. Of the mechanisms for
    categories "subset-selection" has the least variance, "grr" the shortest report for few categories, "olh" for many.
    Duan 2024, section 4.2.3, for histogram encoding; sampling as Wang et al. 2019, Algorithm 4.

    >>> people = Attributes((3, 10, 40), names=("sex", "region", "job"))
    >>> m = SampledAttributes("oue", epsilon=1.0, domain=people, report=1)
    >>> reports = m.privatize([[0, 9, 31], [2, 4, 7]], rng=7)
    >>> estimate = m.aggregate(reports).estimate()
    >>> estimate.groups, estimate.names[2:5]
    ((3, 10, 40), ('sex=2', 'region=0', 'region=1'))
    """

    inner: str | tuple[str, ...]
    epsilon: float
    domain: Attributes
    _: KW_ONLY
    report: int = None  # type: ignore[assignment]  # __post_init__ chooses it
    shares: tuple[float, ...] | None = None
    delta: float = 0.0
    name: ClassVar[str] = "sampled-attributes"
    kind: ClassVar[str] = "attributes"
    capabilities: ClassVar[Capabilities] = Capabilities(
        (Attributes,), delta="optional", slow_start=True, composite=True
    )
    uncertified: ClassVar[str] = "the verifier does not know the law of one of its parts"
    citation: ClassVar[str] = "duan2024benchmarking"

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", _validate.epsilon(self.epsilon))
        object.__setattr__(self, "delta", _validate.delta(self.delta))
        if not isinstance(self.domain, Attributes):
            raise TypeError(f"Expected domain={self.domain!r} to be Attributes, e.g. Attributes((2, 5, 10)).")
        if not isinstance(self.inner, str):
            object.__setattr__(self, "inner", tuple(self.inner))
            if len(self.inner) != self.dims:
                raise ValueError(f"Expected one mechanism or {self.dims}, one an attribute, got {len(self.inner)}.")
        if self.shares is not None:
            self._settle_shares()
        if self.report is None:
            report = self.dims if self.shares is not None else least_cost(self.dims, self._cost)
        else:
            report = _validate.integer(self.report, "report", low=1, high=self.dims)
        object.__setattr__(self, "report", report)
        if self.shares is not None and report != self.dims:
            raise ValueError(f"Expected report={report} to be {self.dims}: only whole records share a budget unevenly.")
        if np.dtype(self.report_dtype).kind == "f" and any(
            isinstance(inner.support, SeededBuckets) and inner.support.seeds > _EXACT_INTEGERS
            for inner in self.distinct
        ):
            raise ValueError(
                "Expected no 'olh' beside reports that are real numbers. Take 'oue' or 'subset-selection'."
            )

    def _settle_shares(self) -> None:
        shares = _validate.reals(self.shares, "shares")
        if shares.shape != (self.dims,) or not np.all(shares > 0) or not abs(float(shares.sum()) - 1) <= _NEAR_ONE:
            raise ValueError(f"Expected {self.dims} shares > 0 that add up to 1, got {self.shares}.")
        object.__setattr__(self, "shares", tuple(shares.tolist()))

    @classmethod
    def example(cls, epsilon: float) -> Self:
        """Return randomised response on one of two attributes, of two and of three categories."""
        return cls("grr", epsilon=epsilon, domain=Attributes((2, 3)), report=1)

    @property
    def dims(self) -> int:
        """Number of attributes."""
        return self.domain.dims

    @property
    def groups(self) -> tuple[int, ...]:
        """How many quantities an estimate has for each attribute."""
        return self.domain.groups

    def target(self, x: Any) -> FloatArray:
        """Return the numbers, and the frequencies of all categories."""
        return np.asarray(self.domain.expand(x))

    def _build(self, report: int) -> tuple[list[Any], IntArray]:
        """Return the distinct mechanisms when ``report`` attributes share the budget, and which one each attribute
        has."""
        from noisette.mechanisms import by_name  # the catalogue lists this class, so it is complete only later

        parts, index = self.domain.distinct
        if isinstance(self.inner, str) and self.shares is None:
            return [self._inner(by_name(self.inner), attribute, Fraction(1, report)) for attribute in parts], index
        names = (self.inner,) * self.dims if isinstance(self.inner, str) else self.inner
        given = [Fraction(1, report)] * self.dims if self.shares is None else [*map(Fraction, self.shares)]
        whole = Fraction(1) if self.shares is None else max(sum(given, Fraction(0)), Fraction(1))
        shares = [share / whole for share in given]
        places: dict[tuple[str, int, Fraction], int] = {}
        keys = zip(names, index.tolist(), shares, strict=True)
        owner = np.asarray([places.setdefault(key, len(places)) for key in keys], dtype=np.int64)
        return [self._inner(by_name(name), parts[attribute], share) for name, attribute, share in places], owner

    def _inner(self, cls: Any, attribute: Any, share: Fraction) -> Any:
        """Return one attribute's mechanism."""
        budget = {"epsilon": part_of(self.epsilon, share)}
        if self.delta > 0 and cls.capabilities.delta != "none":  # others may be pure
            budget["delta"] = part_of(self.delta, share)
        if cls.kind not in ("mean", "frequency") or (cls.kind == "frequency") != isinstance(attribute, Categorical):
            raise ValueError(
                f"Expected a mechanism for {attribute}, got {cls.name!r}, which is for another kind of values."
            )
        mechanism = cls(**budget, domain=attribute)
        if self.delta == 0 and mechanism.guarantee.delta > 0:
            raise ValueError(f"Expected delta > 0 for {cls.name!r}: it has no pure guarantee. Give one, e.g. 1e-6.")
        return mechanism

    @cached_property
    def _built(self) -> tuple[list[Any], IntArray]:
        return self._build(self.report)

    @property
    def distinct(self) -> list[Any]:
        """The mechanisms without repetition."""
        return self._built[0]

    @property
    def owners(self) -> IntArray:
        """Number of each attribute's mechanism: attributes of one mechanism have the same."""
        return self._built[1]

    @cached_property
    def inner_mechanisms(self) -> tuple[Any, ...]:
        """The mechanism of each attribute."""
        distinct, owner = self._built
        return tuple(distinct[kind] for kind in owner.tolist())

    @property
    def slow_start(self) -> bool:
        """Whether the first use of an inner mechanism takes seconds."""
        return any(inner.slow_start for inner in self.distinct)

    def _cost(self, report: int) -> float:
        """Return the worst second moment of one report, averaged over attributes, divided by ``report``.

        The variance of an estimate is (d/m) E[Y^2] - x^2 over n, so the best m makes this cost least.
        """
        distinct, owner = self._build(report)
        return float(np.asarray([_second_moment(inner) for inner in distinct])[owner].mean()) / report

    @property
    def guarantee(self) -> Guarantee:
        """Return the guarantee of the whole record: the largest sum over attributes that may be reported together."""
        own = sorted(((m.guarantee.epsilon, m.guarantee.delta) for m in self.inner_mechanisms), reverse=True)
        epsilon, delta = (total_of(column) for column in zip(*own[: self.report], strict=True))
        claim = Claim(self.epsilon, self.delta, source=self.citation)
        return Guarantee(min(self.epsilon, epsilon), min(self.delta, delta), claim=claim)

    @cached_property
    def _widths(self) -> IntArray:
        """Numbers in a report of each distinct mechanism."""
        return np.asarray([math.prod(inner.report_shape) for inner in self.distinct])

    @cached_property
    def report_shape(self) -> tuple[int, int]:
        """A row for each reported attribute: which it is, and the numbers of its report."""
        return self.report, 1 + int(self._widths.max())

    @cached_property
    def report_dtype(self) -> npt.DTypeLike:
        """The smallest type that holds all reports and the number of every attribute."""
        kinds = [np.dtype(inner.report_dtype) for inner in self.distinct]
        return np.result_type(*kinds, np.min_scalar_type(self.dims))

    @property
    def support(self) -> AttributeReports:
        """Possible reports of a user."""
        return AttributeReports(self)

    def sorts(self, index: IntArray) -> Iterator[tuple[Any, BoolArray, int]]:
        """Yield each distinct mechanism, which of the reported attributes are its own, and how wide its reports are."""
        owner = self.owners[index]
        for kind, inner in enumerate(self.distinct):
            chosen = owner == kind
            if chosen.any():
                yield inner, chosen, int(self._widths[kind])

    def unpack(self, inner: Any, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return reports of an inner mechanism as it sent them, from the rows that hold them."""
        shape = inner.report_shape
        own = values[:, : math.prod(shape)].reshape(len(values), *shape)
        return own.astype(inner.report_dtype, copy=False)

    def _answer(self, x: Any, *, clip: bool, rng: Rng) -> npt.NDArray[Any]:
        """Return each user's reports; ``x`` has one row a user, categories as codes."""
        return self._reported(x, None, clip=clip, rng=rng)

    def draw(self, users: int, rng: np.random.Generator) -> IntArray:
        """Draw the attributes that each user reports."""
        return np.asarray(choose(rng, users, self.dims, self.report))

    def drawn(self, reports: Any) -> IntArray:
        """Return the attributes that each user reported."""
        rows = np.asarray(reports).reshape(-1, *self.report_shape)
        return np.asarray(rows[..., 0], dtype=np.int64)

    def privatize_drawn(self, x: Any, drawn: IntArray, *, rng: Rng = None) -> Any:
        """Return each user's reports about these attributes."""
        return self._reported(_validate.people(x, self.domain.shape), drawn, clip=False, rng=rng)

    def _reported(self, x: Any, drawn: IntArray | None, *, clip: bool, rng: Rng) -> npt.NDArray[Any]:
        values = _validate.numbers(x)
        rows = values.reshape(-1, self.dims)
        source = _random.generator(rng)
        reports = np.zeros((len(rows), *self.report_shape), dtype=self.report_dtype)
        for span in blocks(len(rows), max(1, _ENTRIES // self.dims)):
            block = self._admit(rows[span], clip=clip)
            chosen = self.draw(len(block), source) if drawn is None else drawn[span]
            picked = np.take_along_axis(block, chosen, axis=1)
            reports[span, :, 0] = chosen
            for inner, own, width in self.sorts(chosen):
                inputs = picked[own].astype(np.int64) if inner.kind == "frequency" else picked[own]
                sent = np.asarray(inner.privatize(inputs, rng=source)).reshape(-1, width)
                place = reports[span]
                place[own, 1 : 1 + width] = sent
        return reports.reshape(*values.shape[:-1], *self.report_shape)

    def written_law(self) -> dict[str, Any] | None:
        """Return how many attributes are drawn, and the law of each."""
        return record_law([inner.written_law() for inner in self.inner_mechanisms], self.report)

    def table(self) -> dict[str, Any] | None:
        """Return the tables of the distinct mechanisms and which attribute uses which, None if one has no table."""
        tables = [inner.table() for inner in self.distinct]
        if None in tables:
            return None
        shape = {"report": self.report, "width": self.report_shape[1]}
        return {"kind": "record"} | shape | {"owners": self.owners.tolist(), "parts": tables}

    def _admit(self, rows: npt.NDArray[Any], *, clip: bool) -> FloatArray:
        """Return admissible records, clipped where asked."""
        block = np.asarray(rows, dtype=np.float64)
        if not np.isfinite(block).all():
            row, column = np.argwhere(~np.isfinite(block))[0]
            raise ValueError(
                f"Expected finite values, got {block[row, column]} in attribute {column}. "
                "Impute missing numbers; give missing categories a code of their own."
            )
        outside = self.domain.outside(block)
        if not outside.any():
            return block
        if clip:
            return self.domain.clip(block)
        row, column = np.argwhere(outside)[0]
        attribute = self.domain.parts[column]
        bounds = (
            f"a code 0 ... {attribute.size - 1}" if isinstance(attribute, Categorical) else f"a number in {attribute}"
        )
        raise ValueError(
            f"Expected {bounds} in attribute {column}, got {block[row, column]:g}. "
            "Pass clip=True to move numbers to the nearest end; map unknown categories to one of their own."
        )

    def moments(self, x: Any) -> Moments:
        """Return, for each quantity, the exact moments of what one report about its attribute estimates."""
        values = _validate.reals(x)
        _validate.trailing(values, (self.dims,), "x")
        rows = self._admit(values.reshape(-1, self.dims), clip=False)
        starts = np.concatenate([[0], np.cumsum(self.groups)])
        found = {name: np.empty((len(rows), int(starts[-1]))) for name in ("bias", "variance", "third")}
        for j, inner in enumerate(self.inner_mechanisms):
            column = rows[:, j].astype(np.int64) if inner.kind == "frequency" else rows[:, j]
            moments = inner.moments(column)
            for name, array in found.items():
                array[:, starts[j] : starts[j + 1]] = getattr(moments, name).reshape(len(rows), -1)
        shape = (*values.shape[:-1], int(starts[-1]))
        return Moments(*(found[name].reshape(shape) for name in ("bias", "variance", "third")))

    def log_prob(self, report: Any, x: Any) -> FloatArray:
        """Return the log density of each user's reports given her record."""
        reports = np.asarray(report)
        _validate.trailing(reports, self.report_shape, "report")
        values = self._admit(_validate.reals(x).reshape(-1, self.dims), clip=False)
        flat = reports.reshape(-1, *self.report_shape)
        possible = self.support.contains(flat)
        rows = max(len(flat), len(values))
        flat = np.broadcast_to(flat, (rows, *self.report_shape))
        possible = np.broadcast_to(possible, (rows,))
        index = np.where(possible[:, None], flat[..., 0], np.arange(self.report)).astype(np.int64)
        chosen = np.take_along_axis(np.broadcast_to(values, (rows, self.dims)), index, axis=1)
        mass = np.zeros(index.shape)
        for inner, own, _ in self.sorts(index):
            own &= possible[:, None]
            if own.any():
                inputs = chosen[own].astype(np.int64) if inner.kind == "frequency" else chosen[own]
                mass[own] = inner.log_prob(self.unpack(inner, flat[own][:, 1:]), inputs)
        return np.where(possible, mass.sum(axis=1) - self._log_subsets, -np.inf)

    @property
    def _log_subsets(self) -> float:
        return float(gammaln(self.dims + 1) - gammaln(self.report + 1) - gammaln(self.dims - self.report + 1))

    def witnesses(self) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        """Return two records that differ most in every attribute, and the reports that distinguish them best."""
        return _attribute_cells.witnesses(self)

    def dissect(self) -> Iterator[Cells]:
        """Combine the cells of the inner mechanisms, for records that differ in every attribute."""
        return _attribute_cells.dissect(self)

    def _each(self, get: Callable[[Any], Any]) -> npt.NDArray[Any]:
        """Return a number of each attribute's own mechanism for each of its quantities."""
        pairs = zip(self.inner_mechanisms, self.groups, strict=True)
        return np.concatenate([np.broadcast_to(get(inner), (size,)) for inner, size in pairs])

    @property
    def code_ends(self) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        """Those of each attribute's own mechanism."""
        return self._each(lambda inner: inner.code_ends[0]), self._each(lambda inner: inner.code_ends[1])

    @property
    def report_ends(self) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        """Those of each attribute's own mechanism."""
        return self._each(lambda inner: inner.report_ends[0]), self._each(lambda inner: inner.report_ends[1])

    @cached_property
    def readout(self) -> Readout:
        """What each attribute's own mechanism does with its sums."""

        def joined(get: Callable[[Readout], Any]) -> FloatArray:
            return self._each(lambda inner: get(inner.readout)).astype(np.float64)

        return Readout(
            **{name: joined(attrgetter(name)) for name in ("offset", "scale", "low", "high", "coarse")},
            tail=Tail(joined(attrgetter("tail.variance")), joined(attrgetter("tail.scale"))),
            noise=joined(lambda own: np.nan if own.noise is None else own.noise),
        )

    def tally(self, reports: Any, each: Callable[[int, npt.NDArray[Any]], None] | None = None) -> Tally:
        """Reduce a batch of reports to integer sums for each quantity.

        ``each`` is called with each attribute and the reports about it, as its own mechanism sent them.
        """
        array = np.asarray(reports)
        if array.dtype.kind not in "biuf":
            raise TypeError(f"Expected reports to hold numbers, got an array of {array.dtype}.")
        _validate.trailing(array, self.report_shape, "reports")
        if array.size == 0:
            raise ValueError(f"Expected at least one report, got an empty array of shape {array.shape}.")
        rows = array.reshape(-1, *self.report_shape)
        try:
            return self._tally(rows, each)
        except ValueError:
            self.check_support(rows)  # its message shows the report
            raise

    def _tally(self, rows: npt.NDArray[Any], each: Callable[[int, npt.NDArray[Any]], None] | None) -> Tally:
        """Sum the reports of each attribute by its own mechanism, which refuses those that it cannot have sent."""
        index = rows[..., 0]
        order, ends = by_attribute(index, self.dims)
        if not _all(index[:, 1:] > index[:, :-1]).all():
            raise ValueError("Expected attributes in increasing order.")
        values = rows.reshape(-1, self.report_shape[1])[:, 1:]
        starts = np.concatenate([[0], np.cumsum(self.groups)])
        sums = np.zeros((3, int(starts[-1])), dtype=np.int64)
        for j, inner in enumerate(self.inner_mechanisms):
            own = order[ends[j] : ends[j + 1]]
            if own.size:
                sent = values[own]
                with np.errstate(invalid="ignore"):  # what is no whole number is refused below
                    reports = self.unpack(inner, sent)
                width = math.prod(reports.shape[1:])
                if sent[:, width:].any() or not np.array_equal(reports.reshape(-1, width), sent[:, :width]):
                    raise ValueError("Expected a report of its mechanism's type, and zeros after it.")
                tally = inner.tally(reports)
                sums[:, starts[j] : starts[j + 1]] = tally.count, tally.total, tally.squares
                if each is not None:
                    each(j, reports)
        return Tally(len(rows), *sums)

    def aggregate(self, reports: Any) -> Aggregate:
        """Sum a batch of reports; attributes and categories name the estimated quantities."""
        return replace(super().aggregate(reports), names=self.domain.quantities)


def by_attribute(index: npt.NDArray[Any], dims: int) -> tuple[IntArray, IntArray]:
    """Return the places of reports in the order of their attributes, and where those of each attribute end."""
    with np.errstate(invalid="ignore"):  # what is no whole number is refused below
        flat = index.reshape(-1)
        codes = flat.astype(np.min_scalar_type(dims))  # of few bits, which numpy sorts at once
    if not np.array_equal(codes, flat) or codes.max(initial=0) >= dims:
        raise ValueError(f"Expected attributes below {dims}.")
    order = np.argsort(codes, kind="stable")
    return order, np.concatenate([[0], np.cumsum(np.bincount(codes, minlength=dims))])


def _all(table: BoolArray) -> BoolArray:
    """Tell which rows are true everywhere; a few columns are read one by one, since numpy is slow on short rows."""
    if table.shape[1] > _COLUMNS_ONE_BY_ONE:
        return np.asarray(table.all(axis=1))
    found = np.ones(len(table), dtype=bool)
    for column in table.T:
        found &= column
    return found


def record_law(parts: Sequence[dict[str, Any] | None], report: int) -> dict[str, Any] | None:
    """Return the law of a report about some of several answers; which ones does not depend on the answers.

    It is None where the law of one of them is.
    """
    return None if None in parts else {"kind": "record", "report": report, "parts": list(parts)}


def _second_moment(inner: Any) -> float:
    """Return the largest second moment of an estimate from one report; of a number from its middle, in half-widths."""
    inputs = np.asarray(inner.witnesses()[0])
    moments = inner.moments(inputs)
    if inner.kind == "frequency":
        return float((moments.variance.mean(axis=-1) + 1 / inner.domain.size).max())
    half = inner.domain.diameter / 2
    centred = inputs - (inner.domain.low + half) + moments.bias
    return float((moments.variance + centred**2).max() / half**2)
