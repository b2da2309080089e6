"""Wheel: options lie on a ring by a map drawn at random, and a point near the own ones is reported."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache, cached_property
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from noisette import _random, _validate
from noisette._random import Rng
from noisette._special import gammaln
from noisette._validate import FloatArray, IntArray
from noisette.cells import Cells, largest_ratio
from noisette.core import Capabilities, PubliclyDrawn
from noisette.domains import BoolArray, Selection
from noisette.mechanisms.categorical._base import just_below, log_fraction, whole
from noisette.mechanisms.categorical.selections._base import SelectionMechanism

RING = 2**31 - 1  # points, a prime
_DRAWS = 1 << 62  # of which a point has a whole number: 2^53 would leave it too few to keep a small epsilon
_MOST_CHOSEN = 16  # options: a map has two coefficients more
_SPREAD = 12.0  # standard deviations of the number of supported options that are added up


@dataclass(frozen=True)
class RingPoints:
    """Rows of ``coefficients`` of a map and a point, all below the prime."""

    coefficients: int

    def __str__(self) -> str:
        return f"rows of {self.coefficients} coefficients and a point, integers 0 ... {RING - 1}"

    def contains(self, reports: npt.NDArray[Any]) -> BoolArray:
        """Tell which rows are such."""
        return np.asarray(((reports >= 0) & (reports < RING) & whole(reports)).all(axis=-1))


@dataclass(frozen=True)
class Arcs:
    """Points of the ring: each that lies on an arc of an own option has ``own`` of 2^62 draws, the rest is uniform."""

    arc: int
    own: int

    def sample(self, places: IntArray, points: npt.NDArray[Any], rng: np.random.Generator) -> None:
        """Write a point for each row of places of own options; -1 is none.

        Arcs of equal length that begin at increasing places cover the least of that length and of the gap to the next
        one each: so they are cut into pieces that share nothing, and so is what they leave.
        """
        start, covered, gap = self._pieces(places)
        most = covered.sum(axis=1) * self.own
        draw = rng.integers(0, _DRAWS, len(places))
        inside = draw < most
        left = rng.integers(0, RING - covered.sum(axis=1))
        index = np.where(inside, draw // self.own, left)
        lengths = np.where(inside[:, None], covered, gap - covered)
        ends = np.cumsum(lengths, axis=1)
        piece = np.minimum((index[:, None] >= ends).sum(axis=1), places.shape[1] - 1)
        rows = np.arange(len(places))
        offset = index - (ends - lengths)[rows, piece]
        begin = start[rows, piece] + np.where(inside, 0, covered[rows, piece])
        nobody = (places < 0).all(axis=1)
        points[...] = np.where(nobody, left, (begin + offset) % RING)

    def _pieces(self, places: IntArray) -> tuple[IntArray, IntArray, IntArray]:
        """Return where each arc begins, in order, how much it covers before the next, and the gap to that."""
        beyond = np.iinfo(np.int64).max
        start = np.sort(np.where(places < 0, beyond, places), axis=1)
        again = start[:, :1] + np.where(start[:, :1] == beyond, 0, RING)
        start = np.where(start == beyond, again, start)
        gap = np.concatenate([start[:, 1:], again], axis=1) - start
        return start, np.minimum(gap, self.arc), gap

    def covered(self, places: IntArray) -> IntArray:
        """Return how many points all arcs of a row cover."""
        return np.asarray(self._pieces(places.reshape(-1, places.shape[-1]))[1].sum(axis=1).reshape(places.shape[:-1]))

    def outside(self, covered: Any) -> Any:
        """Return the draws of a point that lies on no own arc."""
        return (_DRAWS - covered * self.own) / (RING - covered)


@dataclass(frozen=True)
class Wheel(SelectionMechanism, PubliclyDrawn):
    """Place all options on a ring by a map drawn at random, and report the map and a point, more often on an own arc.

    Formula: an option's arc has the length p = 1 / (2m - 1 + mE) of the ring, E = exp(e), m the most that may be
    chosen. A point on the arc of an own option has the density E / O, O = m p E + 1 - m p; what is left of the chance
    is spread over the rest of the ring, which has a density of at least 1 / O. A report supports every option on whose
    arc its point lies: an own one with probability p E / O, any other one with p. Maps are polynomials of degree m + 1
    modulo a prime, whose values at m + 2 options are independent: nothing rests on a hash that merely looks random.

    *Guarantee*: epsilon-LDP for the whole selection, exactly; the map is drawn before the selection is looked at.
    *Utility*: unbiased shares in a report of m + 3 numbers however long the list is, with a variance near PrivSet's for
    long lists; the mean number of options is estimated badly. The server looks at every option for every user.
    Wang, Qian, Du, Yang, Huang, Xu 2020 (Wheel mechanism), on a ring of integers.

    >>> m = Wheel(epsilon=1.0, domain=Selection(2000, 3))
    >>> round(m.spread[0], 1), round(m.spread[1], 1)
    (13.4, 24.1)
    >>> m.privatize([[0, 4, -1], [-1, -1, -1]], rng=7).shape
    (2, 6)
    """

    epsilon: float
    domain: Selection
    name: ClassVar[str] = "wheel"
    citation: ClassVar[str] = "wang2020setvalued"
    capabilities: ClassVar[Capabilities] = Capabilities((Selection,))
    law: ClassVar[None] = None  # type: ignore[assignment]  # no table: weights depend on how the arcs overlap

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.domain.most > _MOST_CHOSEN:
            raise ValueError(
                f"Expected at most {_MOST_CHOSEN} chosen options for {self.name}, got {self.domain.most}. Take privset."
            )
        if self.domain.size >= RING:
            raise ValueError(f"Expected fewer than {RING:,} options for {self.name}, got {self.domain.size:,}.")
        _ = self._law  # is checked here

    @cached_property
    def _law(self) -> Arcs:
        most, ratio = self.domain.most, math.exp(min(self.epsilon, 40.0))
        arc = max(1, round(RING / (2 * most - 1 + most * ratio)))
        exact = Fraction(math.exp(min(just_below(self.epsilon), 60.0)))
        # own (RING - m arc) <= E (2^62 - m arc own): the rest of the ring keeps a density of own / E at least
        own = math.floor(exact * _DRAWS / (RING - most * arc + most * arc * exact))
        if own * RING <= _DRAWS:
            raise ValueError(
                f"Expected a larger epsilon than {self.epsilon!r} for {self.name}: not one of 2^62 draws would tell "
                "the own options. Raise epsilon, or take privset."
            )
        return Arcs(arc, own)

    def written_law(self) -> dict[str, Any]:
        """Return the ring, the length of an arc, and the draws of a point on an own one."""
        return {"kind": "arcs", "ring": RING, "arc": self._law.arc, "own": self._law.own}

    def table(self) -> dict[str, Any] | None:
        """Return the same numbers, unless a web page would round one of them."""
        return self.written_law() if self._law.own < 1 << 53 else None

    @property
    def coefficients(self) -> int:
        """Number of coefficients of a map."""
        return self.domain.most + 2

    @cached_property
    def _support_law(self) -> tuple[Fraction, Fraction]:
        return Fraction(self._law.arc * self._law.own, _DRAWS), Fraction(self._law.arc, RING)

    def _number(self, chosen: int) -> tuple[float, float]:
        """Add up over how many own arcs hold the point, and how many others: these are binomial."""
        chance, size = self.p_other, self.domain.size
        lift = float(Fraction(self._law.own * RING, _DRAWS))
        own = np.asarray(
            [lift * math.comb(chosen, j) * chance**j * (1 - chance) ** (chosen - j) for j in range(chosen + 1)]
        )
        own[0] = 1 - own[1:].sum()
        others = _binomial(size - chosen, chance)
        first, mass = others
        both = np.convolve(own, mass)
        found = first + np.arange(both.size)
        strays = np.abs(found - float(both @ found)) / (self.p_own - self.p_other)
        return float(both @ strays**2), float(both @ strays**3)

    @property
    def _most_supported(self) -> int:
        return self.domain.size

    @property
    def report_shape(self) -> tuple[int, ...]:
        """The coefficients of the map, the highest power first, and the point."""
        return (self.coefficients + 1,)

    @property
    def support(self) -> RingPoints:
        """All maps and points."""
        return RingPoints(self.coefficients)

    def _fill(self, rows: IntArray, reports: npt.NDArray[Any], rng: np.random.Generator) -> None:
        reports[:, :-1] = self.draw(len(rows), rng)
        self._law.sample(self._places(reports[:, :-1], rows), reports[:, -1], rng)

    @staticmethod
    def _places(maps: IntArray, rows: IntArray) -> IntArray:
        """Return where the options of each row lie under its map, -1 for none."""
        found = np.zeros(np.broadcast_shapes(maps.shape[:-1], rows.shape[:-1]) + rows.shape[-1:], dtype=np.int64)
        codes = np.maximum(rows, 0)
        for place in range(maps.shape[-1]):
            found = (found * codes + maps[..., place, None]) % RING
        return np.where(rows < 0, -1, found)

    def draw(self, users: int, rng: np.random.Generator) -> IntArray:
        """Draw the coefficients of a map for each user."""
        return np.asarray(rng.integers(0, RING, (users, self.coefficients)))

    def drawn(self, reports: Any) -> IntArray:
        """Return the map of each report."""
        return self._reports(reports)[:, :-1]

    def privatize_drawn(self, x: Any, drawn: IntArray, *, rng: Rng = None) -> Any:
        """Return one report for each selection, with this map."""
        rows = self._inputs(_validate.people(x, self.domain.shape)).reshape(-1, self.domain.most)
        reports = np.empty((len(rows), *self.report_shape), dtype=np.int64)
        reports[:, :-1] = drawn
        self._law.sample(self._places(reports[:, :-1], rows), reports[:, -1], _random.generator(rng))
        return reports

    def readable(self, reports: Any, inputs: Any) -> BoolArray:
        """Tell for each report on whose arcs of the inputs its point lies."""
        known, rows = self._reports(reports)[:, None], self._inputs(inputs)[None]
        return np.asarray(self._near(known, self._places(known[..., :-1], rows)).any(axis=-1))

    def _near(self, reports: IntArray, places: IntArray) -> BoolArray:
        """Tell which arcs hold the point of a report."""
        return np.asarray(((reports[..., -1:] - places) % RING < self._law.arc) & (places >= 0))

    def _sums(self, reports: npt.NDArray[Any]) -> tuple[IntArray, IntArray, int]:
        count, plain = _compiled()
        total = np.zeros(self.domain.size, dtype=np.int64)
        squares = count(plain(reports), self._law.arc, total)
        return np.full(self.domain.size, len(reports)), total, int(squares)

    def log_prob(self, report: Any, x: Any) -> FloatArray:
        """Return the exact log mass of a report: of its map, and of its point given the map."""
        reports, rows = np.asarray(report), self._inputs(x)
        _validate.trailing(reports, self.report_shape, "report")
        possible = self.support.contains(reports)
        known = np.where(possible[..., None], reports, 0).astype(np.int64)
        places = self._places(known[..., :-1], rows)
        near = self._near(known, places)
        covered = self._law.covered(places)
        uniform = -(self.coefficients * math.log(RING) + math.log(_DRAWS))
        mass = np.where(near.any(axis=-1), math.log(self._law.own), np.log(self._law.outside(covered)))
        return np.where(possible, uniform + mass, -np.inf)

    def dissect(self) -> Iterator[Cells]:
        """Return the worst reports: a map that lays arcs side by side, and points on those of one selection alone."""
        size, most = self.domain.size, self.domain.most
        first, second = np.arange(most), np.arange(size - most, size)
        apart = second[second >= most]
        second = np.pad(apart, (0, most - apart.size), constant_values=-1)
        reports = np.asarray([self._side_by_side(0), self._side_by_side(int(second[0]) if apart.size else size - 1)])
        inside = Fraction(self._law.own)
        outside = [self._outside(many) for many in (apart.size, most)]
        bound = largest_ratio([(inside, outside[0]), (outside[1], inside)])
        cells = Cells.constant((first, second), reports, np.zeros(2), bound if apart.size else None)
        yield replace(cells, complete=False)

    def _outside(self, many: int) -> Fraction:
        covered = many * self._law.arc
        return Fraction(_DRAWS - covered * self._law.own, RING - covered)

    def _side_by_side(self, option: int) -> list[int]:
        """Return the map under which option j begins at j arcs, and the beginning of an option."""
        return [0] * (self.coefficients - 2) + [self._law.arc, 0, option * self._law.arc % RING]

    def witnesses(self) -> tuple[IntArray, IntArray]:
        """Return two selections that are far apart, and points on the arcs of one alone."""
        (cells,) = self.dissect()
        return np.stack(cells.pair), np.asarray(cells.nodes[0])

    @property
    def bound(self) -> float:
        """The log of the largest ratio of two densities at a point: arcs cover m of their lengths at most."""
        return log_fraction(Fraction(self._law.own) / self._outside(self.domain.most))


def _binomial(many: int, chance: float) -> tuple[int, FloatArray]:
    """Return the masses of a binomial law near its mean, and where they begin."""
    spread = _SPREAD * math.sqrt(many * chance * (1 - chance)) + 40
    low, high = max(0, math.floor(many * chance - spread)), min(many, math.ceil(many * chance + spread))
    found = np.arange(low, high + 1, dtype=np.float64)
    log = gammaln(many + 1) - gammaln(found + 1) - gammaln(many - found + 1)
    mass = np.exp(log + found * math.log(chance) + (many - found) * math.log1p(-chance))
    return low, mass / mass.sum()


@cache
def _compiled() -> tuple[Any, Any]:
    """Return the count of reports that support each option, as machine code, and how its arrays are made."""
    from noisette.mechanisms._compiled import compiled, plain

    return compiled(_count), plain


def _count(reports: Any, arc: int, total: Any) -> int:
    """Add to the totals of options on whose arcs points lie; return the sum of the squared numbers of options."""
    last, squares = reports.shape[1] - 1, 0
    for row in range(reports.shape[0]):
        number = 0
        for option in range(total.size):
            place = reports[row, 0]
            for power in range(1, last):
                place = place * option + reports[row, power]
                place = (place & RING) + (place >> 31)  # the same modulo 2^31 - 1
                place = (place & RING) + (place >> 31)
                place -= RING * (place >= RING)
            gap = reports[row, last] - place
            gap += RING * (gap < 0)
            supported = int(gap < arc)
            number += supported
            total[option] += supported
        squares += number * number
    return squares
