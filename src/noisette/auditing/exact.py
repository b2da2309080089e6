"""The exact epsilon and delta of a mechanism, from its own log-likelihoods."""

from __future__ import annotations

import contextlib
import math
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np

from noisette import _validate
from noisette._search import narrowed
from noisette._special import gauss_legendre
from noisette._validate import FloatArray
from noisette.auditing import pairs
from noisette.auditing.inputs import groups
from noisette.cells import Cells, Dissected
from noisette.core import Mechanism
from noisette.mechanisms._base import BaseMechanism, Lattice, Points

_DOUBLINGS = 48  # as far as float64 holds lattice positions exactly
_DIRECT = 1 << 20  # reports up to which a run is summed one by one
_NEGLIGIBLE = 750.0  # a log mass that much below the largest is zero in float64
_PANELS, _NODES = 64, 20
_SEEN, _UNSEEN = 1e-6, 1e-13  # by which a delta of another pair exceeds, of itself and at all, to count
_SHARES = 0.0, 0.5, 1.0  # of the epsilon, at which reports are compared
_MISSING = 1e-9, 1e-6  # of the mass; runs that lose more are not all reports, rounding of large logs aside
_ULPS = 4  # of the larger log, by which the logs of two masses may err together
_TOLERANCE = 1e-9  # by which a log ratio of interior inputs, whose laws are mixtures, may err
_SEARCHED = 256  # numbers in an input up to which other inputs than a mechanism's own are tried
_REPORTS = 16  # about each of them
_USUAL = 32.0  # logs are sums of terms up to this size, which err as much where they cancel


class NotALaw(ArithmeticError):
    """A mechanism's `log_prob` does not add up to one over its cells."""


class NotWorst(ArithmeticError):
    """Reports about two inputs of the domain show more than the pair that a mechanism calls its worst."""


def exact_epsilon(mechanism: Mechanism, *, delta: float = 0.0) -> float:
    """Return the supremum over reports and pairs of inputs of the log-likelihood ratio.

    Formula: sup over x, x', y of ln P(y | x) - ln P(y | x'); with ``delta`` the least epsilon at which `exact_delta`
    is at most that.

    *Guarantee*: never below the truth. A mechanism with `dissect` cuts its reports into runs along which the ratio is
    monotone, so the ends of the runs hold the worst one, and its docstring says why no other pair of inputs is worse.
    Where a ratio of exact fractions is known the result is their log rounded up, elsewhere the gap that `log_prob`
    shows plus what its logs may err by, some 3e-14. A tail along which the ratio grows gives infinity, and so does a
    report that only one of two inputs can send. The runs must hold all of the mass: `NotALaw` is raised if they do
    not, unless the witnesses show more than is stated anyway, and that is returned. Of a mechanism without `dissect`
    the witnesses are taken at their word, and both tails of a lattice without ends are followed. Nobody's word is all:
    inputs drawn from the domain, and reports about them, are tried as well, and a pair with a larger ratio is returned.
    With ``delta`` pairs of inputs drawn from the domain are summed over wherever reports can be cut for any two inputs,
    and the worst is returned; where they cannot, reports are drawn, and `NotWorst` is raised if they show more than the
    pairs of `dissect`. Of a class from outside of this library no proof says that its pair is the worst one. The result
    is then an `AtLeast`: a float whose `repr` says that the truth may be larger. It is plain where all pairs were
    compared.

    >>> from noisette import Duchi, Gaussian
    >>> round(exact_epsilon(Duchi(epsilon=1.0)), 9)
    1.0
    >>> exact_epsilon(Gaussian(epsilon=1.0, delta=1e-6))
    inf
    >>> round(exact_epsilon(Gaussian(epsilon=1.0, delta=1e-6), delta=1e-6), 6)
    1.0
    """
    slack = _validate.delta(delta)
    if slack > 0:
        return _epsilon_at(mechanism, slack)
    gap, rounding = _witnessed(mechanism)
    try:
        certified = max((laws.epsilon() for laws in _checked(mechanism)), default=-math.inf)
    except NotALaw:
        if gap - rounding <= mechanism.guarantee.epsilon:
            raise
        certified = gap + rounding
    result = certified if gap - rounding <= certified else gap + rounding
    found = _searched(mechanism) if result < math.inf else math.inf
    return pairs.said(mechanism, found if found > result * (1 + _TOLERANCE) + _TOLERANCE else result)


def exact_delta(mechanism: Mechanism, epsilon: float) -> float:
    """Return the hockey-stick divergence of the worst pair of inputs.

    Formula: sup over x, x' of sum over y of (P(y | x) - exp(epsilon) P(y | x'))_+.

    *Guarantee*: exact up to the rounding of float64, some 1e-14. Runs of constant mass are counted, straight ones are
    geometric series, others are summed report by report up to a million, and beyond by Gauss-Legendre quadrature
    with the Euler-Maclaurin correction, which errs by less than 1e-14 there. Zero from `exact_epsilon` on. Other pairs
    than those of `dissect` are tried as in `exact_epsilon`, and the result is an `AtLeast` in the same cases.

    >>> from noisette import Duchi
    >>> round(exact_delta(Duchi(epsilon=1.0), 0.0), 6)  # total variation: tanh(1/2)
    0.462117
    >>> exact_delta(Duchi(epsilon=1.0), 1.0)
    0.0
    """
    budget = _validate.number(epsilon, "epsilon")
    if not budget >= 0:
        raise ValueError(f"Expected epsilon={epsilon!r} >= 0.")
    named = _complete(mechanism)

    def larger(laws: _Laws, least: float) -> float:
        found = laws.delta(budget)
        return found if found > least * (1 + _SEEN) + _UNSEEN else least

    result, known = _search(mechanism, named, max(laws.delta(budget) for laws in named), larger)
    _compare(mechanism, known, [share * budget for share in _SHARES])
    return pairs.said(mechanism, result)


def worst_pair(mechanism: Mechanism, epsilon: float) -> tuple[float, Any, Any]:
    """Return the hockey-stick divergence at epsilon of the worst pair of inputs, and the pair: 0 where none is known.

    Some set of reports has a chance for the first input that exceeds exp(epsilon) times its chance for the second one
    by that much. Where a mechanism dissects a part of its reports, the divergence is that of this part, and too small.

    >>> from noisette import Duchi
    >>> worst_pair(Duchi(epsilon=1.0), 0.5)  # doctest: +ELLIPSIS
    (0.287..., ..., ...)
    """
    found: tuple[float, Any, Any] = (0.0, None, None)
    for laws in _laws(mechanism):
        for row in (0, 1):
            delta = laws.delta(epsilon, row)
            if delta > found[0]:
                found = delta, laws.cells.pair[row], laws.cells.pair[1 - row]
    return found


def exact_matrix(mechanism: Mechanism, *, delta: float = 0.0) -> tuple[tuple[float, ...], ...]:
    """Return what the reports of inputs of each level give away against those of each other level.

    Formula: entry [i][j] is the supremum over x of level i, x' of level j and all y of ln P(y | x) - ln P(y | x'); with
    ``delta`` the least epsilon at which the hockey-stick divergence of the two is at most that. It need not be
    symmetric.

    *Guarantee*: as `exact_epsilon`, pair by pair, from `log_prob`: it does not look at ``guarantee.matrix``.

    >>> from noisette import LevelledResponse
    >>> matrix = exact_matrix(LevelledResponse(edges=[-1, -0.6, 0, 1], epsilons=[3.0, 2.0, 1.0]))
    >>> [round(entry, 4) for entry in matrix[2]]
    [3.5435, 2.3927, 2.3554]
    """
    slack = _validate.delta(delta)
    if not (isinstance(mechanism, BaseMechanism) and mechanism.capabilities.levels):
        raise TypeError(
            f"Expected a mechanism with levels, got {type(mechanism).__name__}: take exact_epsilon instead."
        )
    between: dict[tuple[int, int], list[tuple[_Laws, int]]] = defaultdict(list)
    for laws in _complete(mechanism) if slack > 0 else _checked(mechanism):
        first, second = (_level(mechanism, x) for x in laws.cells.pair)
        between[first, second].append((laws, 0))
        between[second, first].append((laws, 1))

    def entry(both: list[tuple[_Laws, int]]) -> float:
        if slack > 0:
            return _least(lambda epsilon: any(laws.delta(epsilon, row) > slack for laws, row in both))
        return max(laws.epsilon(row) for laws, row in both)

    for laws in _others(mechanism):
        first, second = (_level(mechanism, x) for x in laws.cells.pair)
        between[first, second].append((laws, 0))
        between[second, first].append((laws, 1))
    levels: Any = mechanism
    size = range(len(levels.edges) - 1)
    return tuple(tuple(pairs.said(mechanism, entry(between[i, j])) for j in size) for i in size)


def _level(mechanism: Any, x: Any) -> int:
    """Return the level of an input."""
    named = np.asarray(x, dtype=float)
    return int(named[-1]) if named.ndim else int(np.searchsorted(mechanism.edges[1:-1], named, side="right"))


@dataclass(frozen=True)
class _Laws:
    """Log masses of a pair of inputs along the runs, polynomials[input, run, power], and how far they may err.

    ``unshared`` says of each input whether some report can come from it alone.
    """

    cells: Cells
    polynomials: FloatArray
    rounding: FloatArray
    unshared: tuple[bool, bool]

    @classmethod
    def build(cls, mechanism: Mechanism, cells: Cells) -> _Laws:
        """Evaluate `log_prob` at the nodes of the runs."""
        values = np.stack(
            [[_log_prob(mechanism, reports, x) for reports in cells.nodes] for x in cells.pair]
        )  # input, node, run
        never = values == -math.inf
        rounding = _rounding(values.reshape(-1, values.shape[2]))
        unshared = bool(np.any(never[1] & ~never[0])), bool(np.any(never[0] & ~never[1]))
        return cls(cells, _through(values, cells.span), rounding, unshared)._straightened()

    def check(self, name: str) -> None:
        """Refuse runs that do not hold all of the mass, or log masses that are none."""
        large = 16 * float(np.spacing(np.abs(self.cells.log_weight).max())) + 4 * float(np.max(self.rounding))
        missing = min(max(_MISSING[0], large), _MISSING[1])
        for row, x in enumerate(self.cells.pair):
            mass = self._divergence(row, -math.inf)
            if not abs(mass - 1) <= missing:
                raise NotALaw(
                    f"The probabilities of {name} add up to {mass:.9g} for input {x}, not to 1. "
                    "Either its log_prob is wrong, or its dissect leaves reports out."
                )

    def _straightened(self) -> _Laws:
        """Take slopes that differ by no more than rounding for equal."""
        if self.polynomials.shape[2] == 1:
            return self
        same = np.abs(self.polynomials[0, :, 1] - self.polynomials[1, :, 1]) * self.cells.span <= self.rounding
        polynomials = self.polynomials.copy()
        polynomials[1, same, 1] = polynomials[0, same, 1]
        return replace(self, polynomials=polynomials)

    def epsilon(self, row: int | None = None) -> float:
        """Return the largest log ratio, of input ``row`` to the other one or either way, rounded up."""
        if row is None:
            return max(self.epsilon(0), self.epsilon(1))
        if self.unshared[row]:
            return math.inf
        possible, bound = self.polynomials[row, :, 0] > -math.inf, self.cells.bound
        loss = self.polynomials[row, possible] - self.polynomials[1 - row, possible]
        worst = loss[:, 0]
        if loss.shape[1] > 1:
            endless = np.isinf(self.cells.places[possible])
            if np.any(loss[endless, 1] > 0):
                return math.inf
            last = np.where(endless, 0.0, self.cells.places[possible] - 1)
            worst = np.maximum(worst, loss[:, 0] + loss[:, 1] * last)
        largest = int(np.argmax(worst))
        measured, rounding = max(float(worst[largest]), 0.0), float(self.rounding[possible][largest])
        # float64 cannot tell the two apart, and the bound is proved
        return bound if bound is not None and abs(measured - bound) <= 2 * rounding else measured + rounding

    def delta(self, epsilon: float, row: int | None = None) -> float:
        """Return the hockey-stick divergence of input ``row`` from the other one, or the larger one."""
        if row is None:
            return max(self.delta(epsilon, 0), self.delta(epsilon, 1))
        return 0.0 if epsilon >= self.epsilon(row) else min(self._divergence(row, epsilon), 1.0)

    def _divergence(self, row: int, epsilon: float) -> float:
        """Sum (p - exp(epsilon) q)_+ over all runs, p the masses under input ``row``."""
        cells, own, other = self.cells, self.polynomials[row].copy(), self.polynomials[1 - row].copy()
        own[:, 0] += cells.log_weight
        other[:, 0] += cells.log_weight + epsilon
        level = (own[:, 1:] == 0).all(axis=1) & (other[:, 1:] == 0).all(axis=1) & np.isfinite(cells.places)
        level |= (own[:, 0] == -math.inf) | (cells.places == 1)  # nothing, or one place
        count = np.where(level, cells.places, 0.0)
        count *= 1 + cells.tilt * (count - 1) / 2
        total = math.fsum((count * np.exp(own[:, 0]) * _excess(own[:, 0], other[:, 0]))[level])
        for run in np.flatnonzero(~level):
            total += _run_sum(own[run], other[run], float(cells.places[run]), float(cells.tilt[run]))
        return total


def _through(values: FloatArray, span: FloatArray) -> FloatArray:
    """Return the coefficients of the polynomials through ``values[input, node, run]`` at places 0, span, 2 span."""
    first = values[:, 0]
    with np.errstate(invalid="ignore"):
        if values.shape[1] == 1:
            rest: list[FloatArray] = []
        elif values.shape[1] == 2:
            rest = [(values[:, 1] - first) / span]
        else:
            bend = (values[:, 2] - 2 * values[:, 1] + first) / (2 * span**2)
            rest = [(values[:, 1] - first) / span - bend * span, bend]
    flat = [np.where(np.isfinite(coefficient), coefficient, 0.0) for coefficient in rest]
    return np.stack([first, *flat], axis=-1)


def _excess(own: FloatArray, other: FloatArray) -> FloatArray:
    """Return (1 - exp(other - own))_+, the share of a mass that exceeds another."""
    with np.errstate(invalid="ignore"):
        gap = np.where(other == -math.inf, -math.inf, other - own)
    return np.asarray(-np.expm1(np.minimum(gap, 0.0)))


def _run_sum(own: FloatArray, other: FloatArray, places: float, tilt: float) -> float:
    """Sum (1 + tilt j) (exp(own(j)) - exp(other(j)))_+ over the places of a run."""
    low, high = _positive(own - other, 0.0, places - 1) if other[0] > -math.inf else (0.0, places - 1)
    low, high = _visible(own, low, high)
    if high < low:
        return 0.0
    if own.size == 2 and tilt == 0:
        if own[1] == other[1] or other[0] == -math.inf:
            return _geometric(own, low, high) * float(_excess(own[0], other[0]))
        return max(_geometric(own, low, high) - _geometric(other, low, high), 0.0)

    def term(place: FloatArray) -> FloatArray:
        mass, rival = (sum(line[power] * place**power for power in range(line.size)) for line in (own, other))
        return np.asarray((1 + tilt * place) * np.exp(mass) * _excess(np.asarray(mass), np.asarray(rival)))

    if high - low < _DIRECT:
        return float(term(np.arange(low, high + 1)).sum())
    ends, (node, weight) = np.linspace(low, high, _PANELS + 1), gauss_legendre(_NODES)
    half = np.diff(ends)[:, None] / 2
    integral = float((term(ends[:-1, None] + half * (node + 1)) * weight * half).sum())
    first, last = term(low + np.arange(3.0)), term(high - np.arange(3.0))
    slopes = float((first + last) @ [1.5, -2.0, 0.5])  # at the last place less that at the first
    return integral + float(first[0] + last[0]) / 2 + slopes / 12


def _geometric(line: FloatArray, low: float, high: float) -> float:
    """Sum exp(line(j)) from place low to place high."""
    slope = abs(float(line[1]))
    largest = math.exp(line[0] + line[1] * (low if line[1] <= 0 else high))
    return largest * (math.expm1(-slope * (high - low + 1)) / math.expm1(-slope) if slope > 0 else high - low + 1)


def _positive(line: FloatArray, low: float, high: float) -> tuple[float, float]:
    """Return the places between low and high at which a straight line is above zero."""
    slope = line[1]
    if slope == 0:
        return (low, high) if line[0] > 0 else (low, low - 1)
    root = -line[0] / slope
    return (max(low, float(np.floor(root)) + 1), high) if slope > 0 else (low, min(high, float(np.ceil(root)) - 1))


def _visible(line: FloatArray, low: float, high: float) -> tuple[float, float]:
    """Return the places between low and high at which a log mass is not negligible beside its largest there."""
    if high < low:
        return low, high
    if line.size == 3 and line[2] < 0:
        peak = min(max(-line[1] / (2 * line[2]), low), high)
        slope, bend = line[1] + 2 * line[2] * peak, -line[2]
        # the log mass falls by |slope| t + bend t^2 at a distance t from the peak
        reach = (math.sqrt(slope**2 + 4 * bend * _NEGLIGIBLE) - abs(slope)) / (2 * bend)
        return max(low, float(np.floor(peak - reach))), min(high, float(np.ceil(peak + reach)))
    slope = line[1]
    reach = float(np.ceil(_NEGLIGIBLE / abs(slope))) if slope else math.inf
    low, high = (low, min(high, low + reach)) if slope <= 0 else (max(low, high - reach), high)
    if not (math.isfinite(low) and math.isfinite(high)):
        raise NotALaw(
            "Along an endless run of reports the mass does not fall: it cannot add up to 1. "
            "Correct log_prob or dissect."
        )
    return low, high


def _laws(mechanism: Mechanism) -> Iterator[_Laws]:
    """Return the laws of the worst pairs, none for a mechanism that does not dissect its reports."""
    if isinstance(mechanism, Dissected):
        for cells in mechanism.dissect():
            yield _Laws.build(mechanism, cells)


def _checked(mechanism: Mechanism) -> Iterator[_Laws]:
    """Return the same, if they hold all of the mass or one of them settles the matter without."""
    for laws in _laws(mechanism):
        if laws.cells.complete and not any(laws.unshared):
            laws.check(mechanism.name)
        yield laws


def _complete(mechanism: Mechanism) -> list[_Laws]:
    """Return the laws of the worst pairs over all reports; a few reports are enumerated."""
    laws = list(_laws(mechanism))
    if not laws and isinstance(mechanism.support, Points):
        every, weights = np.asarray(mechanism.support.values), np.zeros(len(mechanism.support.values))
        each = combinations(mechanism.witnesses()[0], 2)
        laws = [_Laws.build(mechanism, Cells.constant(pair, every, weights)) for pair in each]
    if not laws or not all(pair.cells.complete for pair in laws):
        why = "are too many to sum over" if laws else "are not listed by it"
        raise ValueError(
            f"The reports of {mechanism.name} {why}. For a mechanism made of several, ask the accountant; else give "
            "it a method dissect, as noisette.cells.Dissected describes."
        )
    for pair in laws:
        pair.check(mechanism.name)
    return laws


def _epsilon_at(mechanism: Mechanism, delta: float) -> float:
    """Return the least epsilon at which no pair of inputs exceeds ``delta``: of those named and of those searched."""
    named = _complete(mechanism)
    result = _least(lambda epsilon: any(laws.delta(epsilon) > delta for laws in named))

    def larger(laws: _Laws, least: float) -> float:
        if laws.delta(least + _TOLERANCE * (1 + least)) <= delta * (1 + _SEEN) + min(_UNSEEN, delta / 8):
            return least
        return _least(lambda epsilon: laws.delta(epsilon) > delta)

    result, known = _search(mechanism, named, result, larger)
    _compare(mechanism, known, [share * result for share in _SHARES] if result < math.inf else [0.0])
    return pairs.said(mechanism, result)


def _others(mechanism: Mechanism) -> Iterator[_Laws]:
    """Return the laws of pairs of inputs that were drawn from the domain, where they hold all of the mass."""
    for cells in pairs.cut(mechanism):
        laws = _Laws.build(mechanism, cells)
        with contextlib.suppress(NotALaw):
            laws.check(mechanism.name)
            yield laws


def _search(
    mechanism: Mechanism, named: list[_Laws], most: float, larger: Callable[[_Laws, float], float]
) -> tuple[float, list[_Laws]]:
    """Return the most that any pair has, and the pairs that were named with those drawn that have more.

    ``larger`` returns what a pair has where that is more than a number, and the number where it is not. From the worst
    pair drawn the search goes on to pairs that exchange one entry of the two.
    """
    known, best, worst = list(named), 0.0, None
    least = most if pairs.proved(mechanism) else 0.0
    for laws in _others(mechanism):
        if (found := larger(laws, max(best, least))) > max(best, least):
            best, worst = found, laws
    while worst is not None:
        if best > most:
            most, known = best, [*known, worst]
        start, worst = worst, None
        for first, second in pairs.turned(mechanism, start.cells.pair) if best < math.inf else ():
            cells = pairs.between(mechanism, first, second)
            if cells is not None and (found := larger(other := _Laws.build(mechanism, cells), best)) > best:
                best, worst = found, other
                break
    return most, known


def _compare(mechanism: Mechanism, known: list[_Laws], epsilons: list[float]) -> None:
    """Raise `NotWorst` where reports about some pair of inputs show more than all pairs that are known."""
    limits = np.asarray([max(laws.delta(epsilon) for laws in known) for epsilon in epsilons])
    for first, second, seen in pairs.shown(mechanism, np.asarray(epsilons)):
        over = np.flatnonzero(seen > limits + _MISSING[0])
        if over.size:
            worst = int(over[np.argmax((seen - limits)[over])])
            raise NotWorst(
                f"Reports of {mechanism.name} about {first} and {second} show a delta of {seen[worst]:.3g} or more at "
                f"epsilon {epsilons[worst]:.3g}, and the worst inputs that its dissect names have {limits[worst]:.3g}. "
                "Let its dissect name the worst inputs."
            )


def _least(exceeds: Callable[[float], bool]) -> float:
    """Return the least epsilon at which nothing is exceeded, rounded up, by bisection."""
    low, high = 0.0, 1.0
    if not exceeds(low):
        return 0.0
    while exceeds(high):
        low, high = high, 2 * high
        if high > 1e6:
            return math.inf
    return narrowed(exceeds, low, high, tolerance=1e-12)[1]


def _witnessed(mechanism: Mechanism) -> tuple[float, float]:
    """Return the largest log ratio among the witnesses and along both tails of a lattice without ends, +- rounding."""
    inputs, reports = mechanism.witnesses()
    gap, rounding = _spread(mechanism, reports, inputs)
    lattice = mechanism.support
    if isinstance(lattice, Lattice) and (lattice.low, lattice.high) == (-math.inf, math.inf):
        for sign in (-1.0, 1.0):
            tail = sign * np.max(np.abs(reports)) + sign * lattice.step * 2.0 ** np.arange(_DOUBLINGS)
            along, error = _spread(mechanism, tail, inputs)
            if along[-1] - error[-1] > 1.5 * max(along[-4], float(gap.max())):
                return math.inf, 0.0
            gap, rounding = np.append(gap, along), np.append(rounding, error)
    worst = int(np.argmax(gap - rounding))
    return float(gap[worst]), float(rounding[worst])


def _searched(mechanism: Mechanism) -> float:
    """Return the largest log ratio among inputs of the domain, and reports that were sent about them."""
    largest = 0.0
    if math.prod(mechanism.domain.shape) > _SEARCHED:
        return largest
    rng = np.random.default_rng(0)
    for group in groups(mechanism, rng):
        reports = mechanism.privatize(np.repeat(np.stack(group), _REPORTS, axis=0), rng=rng)
        for each in (reports, mechanism.witnesses()[1]):
            largest = max(largest, float(np.max(_spread(mechanism, each, group)[0])))
    return largest


def _spread(mechanism: Mechanism, reports: Any, inputs: Any) -> tuple[FloatArray, FloatArray]:
    """Return, for each report, the gap between its largest and smallest log-likelihood, and how far that may err."""
    likelihood = np.stack([_log_prob(mechanism, reports, x) for x in inputs])
    highest, lowest = likelihood.max(axis=0), likelihood.min(axis=0)
    with np.errstate(invalid="ignore"):
        gap = np.where(highest == -math.inf, 0.0, highest - lowest)
    return gap, _rounding(likelihood)


def _rounding(logs: FloatArray) -> FloatArray:
    """Return how far the difference of two logs of a column may err."""
    size = np.where(np.isfinite(logs), np.abs(logs), 0.0).max(axis=0)
    return np.asarray(_ULPS * np.spacing(np.maximum(size, _USUAL)))


def _log_prob(mechanism: Mechanism, reports: Any, x: Any) -> FloatArray:
    """Return the log masses of many reports under one input; what is no number would hide the largest of them."""
    logs = np.asarray(mechanism.log_prob(reports, np.asarray(x)[None]))
    if np.isnan(logs).any():
        raise NotALaw(f"log_prob of {mechanism.name} is no number for a report about {x}. Correct it.")
    return logs
