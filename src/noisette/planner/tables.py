"""The moments of one report as functions of its budget: polynomials that a web page can evaluate."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields, replace
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.polynomial import chebyshev

from noisette._validate import FloatArray
from noisette.domains import Interval
from noisette.guarantees import Guarantee
from noisette.mechanisms import CATALOGUE
from noisette.prediction.model.responses import respond
from noisette.prediction.offers import Offer, Setting, compared

LEAST = 1e-6  # budget of a report
_DEGREE = 9
_JUMP_WIDTH = 1e-12  # relative width of a panel that still jumps: it is left out, its neighbours reach as far
_PANEL_RATIO = 32.0  # largest ratio of the ends of a panel
_QUADRATIC = 1e-3  # relative
_CANONICAL = Interval()
_VALUES = np.asarray([0.0, 1.0, -1.0, 0.37, -0.72, 0.5])


@dataclass(frozen=True)
class Effort:
    """How closely a law is followed, and at how many budgets a panel is looked at: more than its polynomial needs."""

    tolerance: float
    nodes: int


CLOSE = Effort(5e-10, 20)  # what stays above is the mechanism's own lattice
COSTLY = Effort(1e-5, 12)  # for mechanisms that take long to build
ROUGH = Effort(1e-3, 12)  # for those that are a table of their own at each budget


@dataclass(frozen=True)
class Panel:
    """Polynomials in the log of the budget from ``low`` to ``high``, one row of coefficients for each quantity."""

    low: float
    high: float
    rows: FloatArray
    error: float


@dataclass(frozen=True)
class LawTable:
    """How the reports of a mechanism scatter at each budget, on [-1, 1].

    Rows of a panel are ln variance(0), ln variance(1) and bias(1): variance(t) = (1 - t^2) variance(0) + t^2
    variance(1), bias(t) = t bias(1). Between two panels there may be none, where a mechanism takes seconds to build.
    One that cannot be sampled is known at ``dims`` dimensions only; a ``fixed`` one reports as many as the rule says.
    """

    name: str
    guarantee: Guarantee
    panels: tuple[Panel, ...]
    dims: int | None = None
    fixed: bool = False

    @property
    def error(self) -> float:
        """Largest relative difference of a variance that was seen while fitting."""
        return max(panel.error for panel in self.panels)

    def at(self, epsilon: float) -> tuple[float, float, float]:
        """Return variance(0), variance(1) and bias(1), as the page computes them.

        >>> law("laplace", low=0.1, high=10.0, dims=1, most=1).at(1.0)
        (8.0, 8.0, 0.0)
        """
        slack = 1 + _JUMP_WIDTH
        panel = next((p for p in self.panels if p.low / slack <= epsilon <= p.high * slack), None)
        if panel is None:
            raise ValueError(f"Expected a budget that {self.name} was fitted at, got epsilon={epsilon}.")
        place = math.log(epsilon**2 / (panel.low * panel.high)) / math.log(panel.high / panel.low)
        zero, one, bias = np.asarray(chebyshev.chebval(place, panel.rows.T)).tolist()
        return math.exp(zero), math.exp(one), bias

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON description, without digits that do not count."""
        panels = [{"low": p.low, "high": p.high, "rows": p.rows.round(14).tolist()} for p in self.panels]
        return {
            "name": self.name,
            "guarantee": [self.guarantee.unit, self.guarantee.model, self.guarantee.relation],
            "dims": self.dims,
            "fixed": self.fixed,
            "error": self.error,
            "panels": panels,
        }


def law(name: str, *, low: float, high: float, dims: int, most: int, domain: Interval = _CANONICAL) -> LawTable | None:
    """Return the law of a mechanism that collects ``dims`` numbers with a pure guarantee, None if there is none.

    Budgets of a user go from ``low`` to ``high``, those of a report down to ``low`` / ``most`` but not below `LEAST`.
    There is none of a mechanism whose variance is no quadratic of the value.
    """
    sampled = _offer(name, 2)
    samples = sampled is not None and sampled.samples
    offer = _offer(name, 1 if samples else dims, domain=domain)
    if offer is None:
        return None
    least = max(low / most, LEAST) if samples else low
    cls: Any = CATALOGUE[name]
    return _fitted(cls, (least, low, high), None if samples else dims, offer.fixed)


@lru_cache(maxsize=256)
def _fitted(cls: Any, budgets: tuple[float, float, float], dims: int | None, fixed: bool) -> LawTable | None:
    """Return the law of a mechanism from the least budget of a report on: the pages of a process share it."""
    source, (least, low, high) = _AnyBudget(cls.name, dims or 1), budgets
    if not source.is_quadratic(math.sqrt(low * high)):
        return None
    effort = ROUGH if fixed else COSTLY if source.dims > 1 else CLOSE
    ranges = source.quick_ranges(least, high)
    panels = tuple(panel for ends in ranges for piece in _cut(*ends) for panel in fit(source.moments, *piece, effort))
    return LawTable(cls.name, source.build(1.0).guarantee, panels, dims, fixed)


def others(names: Iterable[str], *, dims: int, delta: float, domain: Interval = _CANONICAL) -> list[str]:
    """Return the mechanisms for one number, or for ``dims``, that `plan` compares and that are not among ``names``."""
    known = (name for name in compared() if any(_offer(name, size, 1.0, delta, domain) for size in {1, 2, dims}))
    return sorted(set(known) - set(names))


def fit(function: Callable[[float], FloatArray], low: float, high: float, effort: Effort) -> Iterator[Panel]:
    """Cut the budgets into panels on which polynomials meet the tolerance.

    The function returns three quantities and an error that no polynomial can mend. One that is rough at every scale
    gains nothing from smaller panels: then the larger one stays, with its error. One that jumps is cut until the jump
    lies between two panels.
    """
    yield from _refined(function, _panel(function, low, high, effort.nodes), effort)


def _refined(function: Callable[[float], FloatArray], whole: Panel, effort: Effort) -> Iterator[Panel]:
    if whole.error <= effort.tolerance:
        yield whole
        return
    if whole.high / whole.low - 1 < _JUMP_WIDTH:
        return
    middle = math.sqrt(whole.low * whole.high)
    halves = [_panel(function, a, b, effort.nodes) for a, b in ((whole.low, middle), (middle, whole.high))]
    if whole.high / whole.low < 4 and min(half.error for half in halves) > whole.error / 2:
        yield whole
        return
    for half in halves:
        yield from _refined(function, half, effort)


def _panel(function: Callable[[float], FloatArray], low: float, high: float, count: int) -> Panel:
    """Fit polynomials to the values at Chebyshev nodes, both ends among them."""
    nodes = np.cos(np.pi * np.arange(count) / (count - 1))
    budgets = np.clip(np.exp((math.log(low * high) + nodes * math.log(high / low)) / 2), low, high)
    values = np.asarray([function(budget) for budget in budgets.tolist()])
    coefficients = chebyshev.chebfit(nodes, values[:, :3], _DEGREE)
    misses = np.abs(chebyshev.chebval(nodes, coefficients) - values[:, :3].T)
    return Panel(low, high, coefficients.T, float(max(misses.max(), values[:, 3].max())))


@dataclass(frozen=True)
class _AnyBudget:
    """A mechanism of the catalogue for a number of dimensions, to be built at any budget."""

    name: str
    dims: int

    @cached_property
    def _template(self) -> Any:
        offer = _offer(self.name, self.dims)
        assert offer is not None
        return offer.build(1)

    def build(self, epsilon: float) -> Any:
        """Return the mechanism."""
        if "epsilon" in {field.name for field in fields(self._template)}:
            return replace(self._template, epsilon=epsilon)
        offer = _offer(self.name, self.dims, epsilon)
        assert offer is not None
        return offer.build(1)

    def moments(self, epsilon: float) -> FloatArray:
        """Return ln variance at 0 and at 1, bias at 1, and how far the variance is from a quadratic between them."""
        answer = respond(self.build(epsilon), _VALUES)
        zero, one = float(answer.variance[0]), float(answer.variance[1:3].mean())
        miss = np.abs(((1 - _VALUES**2) * zero + _VALUES**2 * one) / answer.variance - 1).max()
        slope = 0.0 if answer.unbiased else float(answer.bias[1] - answer.bias[2]) / 2
        return np.asarray([math.log(zero), math.log(one), slope, miss])

    def is_quadratic(self, epsilon: float) -> bool:
        """Tell whether two numbers say what the variance is at every value; nearly so is enough."""
        return self._is_slow(epsilon) or bool(self.moments(epsilon)[3] < _QUADRATIC)

    def _is_slow(self, epsilon: float) -> bool:
        """Tell whether the first use of a budget takes seconds."""
        return bool(self.build(epsilon).slow_start)

    def quick_ranges(self, low: float, high: float) -> Iterator[tuple[float, float]]:
        """Return the ranges of budgets at which the mechanism does not have to wait for its first use."""
        grid = np.geomspace(low, high, 65).tolist() if self._template.capabilities.slow_start else [low, high]
        edges = [low]
        for below, above in pairwise(grid):
            if self._is_slow(below) != self._is_slow(above):
                edges += _edge(self._is_slow, below, above)
        edges.append(high)
        yield from ((a, b) for a, b in zip(edges[::2], edges[1::2], strict=True) if not self._is_slow(a))


def _cut(low: float, high: float) -> Iterator[tuple[float, float]]:
    """Cut a range of budgets into parts that a polynomial may follow."""
    ends = np.geomspace(low, high, 1 + math.ceil(math.log(high / low) / math.log(_PANEL_RATIO))).tolist()
    yield from pairwise([low, *ends[1:-1], high])


def _edge(slow: Callable[[float], bool], below: float, above: float) -> list[float]:
    """Return the two neighbouring floats between which the answer changes."""
    before = slow(below)
    while math.nextafter(below, above) < above:
        middle = below + (above - below) / 2
        below, above = (middle, above) if slow(middle) == before else (below, middle)
    return [below, above]


def _offer(
    name: str, dims: int, epsilon: float = 1.0, delta: float = 0.0, domain: Interval = _CANONICAL
) -> Offer | None:
    """Return how to build a mechanism for numbers with the guarantee asked for, or None for one of another kind."""
    try:
        (offer,) = Setting(1, dims, epsilon, delta, None, domain).offers([name])
    except ValueError:
        return None
    return offer
