"""A window of likely outputs over unequal outputs, in integers.

2^48 positions are shared out among the outputs. A report is the output at a position drawn uniformly from a window of
``width`` positions with probability ``p_window`` (a multiple of 2^-53), and from all positions otherwise: each output's
chance is a rational number, and no two inputs' chances differ by more than 1 + p_window 2^48 / ((1 - p_window) width).
The input moves the window. Outputs are integers here, in steps of ``step`` on the interval [-1, 1].
`table` chooses the outputs for a budget: the solution of the linear programme, in closed form where there is one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import Any

import numpy as np

from noisette import _random
from noisette._search import golden_section
from noisette._validate import FloatArray, IntArray
from noisette.cells import log_above

PROGRAMME_ABOVE = 0.75  # up to it `exponential` solves the programme
PROGRAMME_BELOW = 8.0  # here `sine` is 0.1 % above the programme (0.4 % at 6), which grows with the budget
LARGEST = 20.0  # above it the table would outgrow a cache
_PAIR_BELOW = 1e-3  # up to it two outputs, Duchi's, lose less than a millionth
_CELLS = 200  # outputs on each side of zero in the programme
_FINE = 128  # outputs per unit in the exponential table
_WINDOW_CELLS = 24  # outputs in the narrowest window of the sine table
POSITIONS = 1 << 48


@dataclass(frozen=True, eq=False)
class WindowTable:
    """Outputs ``codes`` in rising order, symmetric about zero, each with its number of positions."""

    step: float
    codes: IntArray
    counts: IntArray
    width: int
    p_window: float

    @classmethod
    def build(cls, epsilon: float, step: float, codes: IntArray, masses: FloatArray, share: float) -> WindowTable:
        """Return the table of outputs ``codes`` >= 0, of masses that need not sum to 1, and of their mirror images.

        ``share`` is the part of all positions that the window holds; the chance of the window is the largest that
        keeps the ratio of any two chances at or below exp(epsilon).
        """
        counts = np.maximum(1, np.rint(masses * (POSITIONS / 2 / masses.sum()))).astype(np.int64)
        counts[np.argmax(counts)] += POSITIONS // 2 - counts.sum()
        if codes[0] == 0:  # the two halves of the middle output become one
            codes, counts = np.concatenate([-codes[:0:-1], codes]), np.concatenate([counts[:0:-1], counts])
            counts[counts.size // 2] *= 2
        else:
            codes, counts = np.concatenate([-codes[::-1], codes]), np.concatenate([counts[::-1], counts])
        width = max(1, round(share * POSITIONS))
        # expm1 errs by less than a relative 2^-51: E - 1 is at least this, and the odds of the window at most that
        odds = Fraction(math.expm1(epsilon)) * (1 - Fraction(1, 2**50)) * Fraction(width, POSITIONS)
        p_window = math.floor(odds / (1 + odds) * 2**53) * _random.ULP
        return cls(step, codes, counts, width, p_window)

    @property
    def epsilon(self) -> float:
        """The largest log-ratio of the chances of one output: the budget that the table spends."""
        return math.log1p(self.p_window / (1 - self.p_window) * (POSITIONS / self.width))

    @property
    def ratio_above(self) -> float:
        """The same, from fractions and rounded up."""
        p_window = Fraction(self.p_window)
        return log_above(1 + p_window / (1 - p_window) * Fraction(POSITIONS, self.width))

    def farthest(self, low: float, high: float) -> list[tuple[float, float]]:
        """Return pairs of places from ``low`` to ``high`` one of which is the worst, whatever the epsilon of delta is.

        Let g be what a position of the window has more than one outside and t = (exp(epsilon) - 1) (1 - p_window) /
        2^48. If positions were reported, disjoint windows were worst, with delta = width (g - t); o positions in common
        cost o (g - t). Outputs hide more: of one that the window covers in part, B positions inside and A outside, they
        hide the lesser of t A and (g - t) B. The law is a mixture between the places of `_rows`, and delta is convex:
        the worst are among those and the two ends. No partner is worse than the farther end, as it has least in common
        with each output of the window. So of the rows apart from that end the one of least A and the one of least B
        are enough; of the others those that have fewer positions in common with it than the ends' own windows hide.
        """
        places = self._rows[0]
        rows = np.concatenate([[low, high], places[(places > low) & (places < high)]])
        left = rows <= (low + high) / 2
        far = np.where(left, high, low)
        hidden_inside, hidden_outside = np.zeros(rows.size), np.zeros(rows.size)
        starts, stops = self._outputs_at(rows)
        for edge, inward in ((rows, stops[0] - rows), (rows + self.width, rows + self.width - starts[1])):
            outward = np.where(edge == rows, rows - starts[0], stops[1] - edge)
            cut = (inward > 0) & (outward > 0)
            hidden_inside += np.where(cut, inward, 0.0)
            hidden_outside += np.where(cut, outward, 0.0)
        far_starts, far_stops = self._outputs_at(far)
        apart = np.where(left, stops[1] <= far_starts[0], far_stops[1] <= starts[0])
        common = np.maximum(self.width - np.abs(far - rows), 0.0)
        kept = ~apart & (common < hidden_inside[:2].max())
        for hidden in (hidden_inside, hidden_outside):
            kept[np.argmin(np.where(apart, hidden, np.inf))] = True
        pairs = zip(rows[kept].tolist(), far[kept].tolist(), strict=True)
        return list(dict.fromkeys([(low, high), *pairs]))

    def _outputs_at(self, places: FloatArray) -> tuple[tuple[FloatArray, FloatArray], tuple[FloatArray, FloatArray]]:
        """Return where the outputs at both edges of windows start, and where they stop."""
        first = np.searchsorted(self.ends, places, side="right") - 1
        last = np.searchsorted(self.ends, places + self.width, side="left") - 1
        ends = self.ends.astype(np.float64)
        return (ends[first], ends[last]), (ends[first + 1], ends[last + 1])

    def mean(self, place: float) -> float:
        """Return the mean output at a place, in steps."""
        places, means, _ = self._rows
        return float(np.interp(place, places, means))

    @cached_property
    def ends(self) -> IntArray:
        """First position of each output, and one past the last."""
        return np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(self.counts)])

    @cached_property
    def _rows(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return places of the window, and mean and variance there, between which the law is a mixture of the two.

        They are the places at which an edge of the window meets an end of an output's positions. The sums are
        Python's integers, so nothing is lost in their differences.
        """
        last, ends = POSITIONS - self.width, self.ends
        places = np.unique(np.concatenate([ends, ends - self.width, [last]]))
        places = places[(places >= 0) & (places <= last)]
        codes, counts = self.codes.astype(object), self.counts.astype(object)
        above, below = places + self.width, places

        def inside(power: int) -> tuple[Any, int]:
            """Sum of code^power over the window's positions at each place, and over all positions."""
            values = codes**power
            sums = np.concatenate([[0], np.cumsum(values * counts)])

            def upto(position: IntArray) -> Any:
                index = np.minimum(np.searchsorted(ends, position, side="right") - 1, codes.size - 1)
                return sums[index] + values[index] * (position - ends[index]).astype(object)

            return upto(above) - upto(below), sums[-1]

        chance = int(self.p_window * 2**53)
        whole = 2**53 * self.width
        first, second = inside(1), inside(2)
        drift = first[0] * chance  # the mean is this over whole: all outputs together are symmetric about zero
        squares = second[0] * (chance * POSITIONS) + second[1] * ((2**53 - chance) * self.width)
        variance = (squares * whole - drift**2 * POSITIONS) / (whole**2 * POSITIONS)
        return places.astype(np.float64), (drift / whole).astype(np.float64), variance.astype(np.float64)

    @property
    def reach(self) -> float:
        """The largest mean, in steps."""
        return float(self._rows[1][-1])

    @cached_property
    def worst_variance(self) -> float:
        """The largest variance of a report over all inputs with |x| <= 1, where the interval is [-1, 1]."""
        _, mean, variance = self._rows
        limit = 1 / self.step
        used = (np.diff(mean) > 0) & (mean[1:] >= -limit) & (mean[:-1] <= limit)
        gap, rise = np.diff(mean)[used], np.diff(variance)[used]
        mean, variance = mean[:-1][used], variance[:-1][used]
        share = np.clip(0.5 + rise / (2 * gap**2), 0, 1)  # of the upper row, where the mixture varies most
        share = np.clip(share, (-limit - mean) / gap, (limit - mean) / gap)
        return float((variance + share * rise + share * (1 - share) * gap**2).max()) * self.step**2

    def place(self, target: FloatArray) -> FloatArray:
        """Return the place of the window for which the mean output is ``target``, in steps."""
        places, mean, _ = self._rows
        return np.rint(np.interp(target, mean, places))

    def sample(self, place: FloatArray, rng: np.random.Generator) -> IntArray:
        """Draw one output for each place."""
        position = _random.words(rng, self.width, place.size)
        position += place.astype(np.int64)
        anywhere = _random.words(rng, POSITIONS, place.size)
        np.copyto(position, anywhere, where=rng.random(place.size) >= self.p_window)
        return np.asarray(self.codes[np.searchsorted(self.ends, position, side="right") - 1])

    @property
    def total(self) -> int:
        """Sum of the weights of all outputs."""
        return 2**53 * self.width * POSITIONS

    def weights(self, place: int) -> list[int]:
        """Return the weight of each output for a window at this place, as whole numbers."""
        chance = int(self.p_window * 2**53)
        ends = self.ends.tolist()
        return [
            chance * POSITIONS * max(min(end, place + self.width) - max(start, place), 0)
            + (2**53 - chance) * self.width * (end - start)
            for start, end in pairwise(ends)
        ]

    def mass(self, code: FloatArray, place: FloatArray) -> FloatArray:
        """Return the chance of an output at each place, 0 where there is no output."""
        index = np.minimum(np.searchsorted(self.codes, code), self.codes.size - 1)
        start, end = self.ends[index], self.ends[index + 1]
        inside = np.maximum(np.minimum(end, place + self.width) - np.maximum(start, place), 0.0)
        mass = self.p_window * (inside / self.width) + (1 - self.p_window) * ((end - start) / POSITIONS)
        return np.where(self.codes[index] == code, mass, 0.0)

    def moments(self, place: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return mean, variance and third absolute central moment at each place, in steps."""
        places, means, variances = self._rows
        mean = np.interp(place, places, means)
        upper = np.clip(np.searchsorted(places, place, side="right"), 1, places.size - 1)
        lower = upper - 1
        share = (place - places[lower]) / (places[upper] - places[lower])
        variance = (1 - share) * (variances[lower] + (means[lower] - mean) ** 2)
        variance += share * (variances[upper] + (means[upper] - mean) ** 2)
        return mean, variance, self._third(place, mean)

    @cached_property
    def _powers(self) -> list[FloatArray]:
        """Sums of code^0, ..., code^3 over the positions before each output's first, per position."""
        codes = self.codes.astype(np.float64)
        return [np.concatenate([[0.0], np.cumsum(codes**k * (self.counts / POSITIONS))]) for k in range(4)]

    def _third(self, place: FloatArray, mean: FloatArray) -> FloatArray:
        """Return the mean of |output - mean|^3, by binomial sums above and below the mean."""
        centre = self.ends[np.searchsorted(self.codes, mean)].astype(np.float64)

        def cubes(low: FloatArray | float, high: FloatArray | float) -> FloatArray:
            zero, one, two, three = (
                np.interp(high, self.ends, sums) - np.interp(low, self.ends, sums) for sums in self._powers
            )
            return np.asarray(three - 3 * mean * two + 3 * mean**2 * one - mean**3 * zero)

        stop = place + self.width
        split = np.clip(centre, place, stop)
        inside = (cubes(split, stop) - cubes(place, split)) * (POSITIONS / self.width)
        everywhere = cubes(centre, float(POSITIONS)) - cubes(0.0, centre)
        return np.asarray(self.p_window * inside + (1 - self.p_window) * everywhere)


@lru_cache(maxsize=64)
def table(epsilon: float) -> WindowTable:
    """Return the table that spends at most ``epsilon``."""
    if epsilon <= PROGRAMME_ABOVE:
        return exponential(epsilon)
    if epsilon <= PROGRAMME_BELOW:
        return programme(epsilon)
    return sine(min(epsilon, LARGEST))


def exponential(epsilon: float) -> WindowTable:
    """Return the optimum for small budgets: outputs +-exp(s)/sinh(T), s uniform on [-T, T], T = tanh(epsilon/2).

    The window holds half of all positions. At equal variance for every x the edges a, b of its window have
    a + b = 2x, which leaves one function free; of those, this one minimises the variance: coth(T)/T - 1.
    """
    half = math.tanh(epsilon / 2)
    low, high = 2 / math.expm1(2 * half), 2 / -math.expm1(-2 * half)
    codes, masses = np.ones(1, dtype=np.int64), np.ones(1)
    if epsilon > _PAIR_BELOW:
        codes = np.arange(round(low * _FINE), round(high * _FINE) + 1)
        masses = np.diff(np.log(np.clip(np.append(codes - 0.5, codes[-1] + 0.5) / _FINE, low, high)))
    return _fit(epsilon, codes, masses, 0.5)


def programme(epsilon: float) -> WindowTable:
    """Return the solution of the linear programme, from the cache if it was solved before."""
    from noisette.mechanisms import _solved
    from noisette.mechanisms.scalar import _lp_solve  # only here, to keep `import noisette` quick

    # no optimum from epsilon 0.75 to 8 has an output beyond this
    step = _round_up((1 / math.tanh(epsilon / 2) + 1.3 * math.exp(-epsilon / 3)) / _CELLS)
    codes = np.arange(_CELLS + 1)
    key = f"lp-optimal 1 {epsilon!r} {step!r} {_CELLS}"
    masses = _solved.load(key, codes.size)
    if masses is None:
        masses = _lp_solve.solve(epsilon, np.asarray(step * codes, dtype=np.float64)).masses
        _solved.store(key, masses)
    total = 2 * float(masses.sum())
    share = (1 - total) / (math.expm1(epsilon) * total)
    # a millionth of room, so that the ends of the interval stay within reach after rounding to integers
    return WindowTable.build(epsilon, step * (1 + 2.0**-20), codes, masses, share)


def sine(epsilon: float) -> WindowTable:
    """Return the table of outputs a sin(k u), u uniform: the smooth mechanism of equal variance for every x.

    For every u the window from u to u + w has edges a sin(k u) and a sin(k (u + w)) that add up to twice its mean if
    tan(k w / 2) = k / (2 (E - 1)). With t = k w / 2 the positions weigh 1 - t / tan(t) in all; t is the angle of least
    variance.
    """
    _, total, width, rate, amplitude = _sine(_sine_angle(epsilon), epsilon)
    reach = amplitude * math.sin(rate * total / 2)
    narrowest = amplitude * (math.sin(rate * total / 2) - math.sin(rate * (total / 2 - width)))
    cells = math.ceil(reach / narrowest * _WINDOW_CELLS)
    codes = np.arange(cells + 1)
    edges = np.append(np.maximum(codes - 0.5, 0.0), cells + 0.5) * (reach / (cells + 0.5))
    masses = np.diff(np.arcsin(np.minimum(edges / amplitude, math.sin(rate * total / 2))))
    return _fit(epsilon, codes, masses, width / total)


def _sine(angle: float, epsilon: float) -> tuple[float, float, float, float, float]:
    """Return variance, mass of all positions, width, rate and amplitude of the sine table of an angle."""
    total = 1 - angle / math.tan(angle)
    width = (1 - total) / math.expm1(epsilon)
    rate = 2 * angle / width
    if rate * total > math.pi:  # the outputs would turn back
        return math.inf, total, width, rate, math.inf
    amplitude = 1 / (math.cos(angle) * math.sin(rate * (total - width) / 2))

    def squares(length: float) -> float:
        return amplitude**2 * (length / 2 - math.sin(rate * length) / (2 * rate))

    return squares(total) + math.expm1(epsilon) * squares(width), total, width, rate, amplitude


def _sine_angle(epsilon: float) -> float:
    """Return the angle of least variance, by golden section up to the angle at which outputs turn back."""
    high = (1.5 * math.pi / math.expm1(epsilon)) ** (1 / 3)
    return golden_section(lambda angle: _sine(angle, epsilon)[0], 0.7 * high, high)


def _fit(epsilon: float, codes: IntArray, masses: FloatArray, share: float) -> WindowTable:
    """Return the table whose step lets the mean reach the ends of [-1, 1], and no farther."""
    draft = WindowTable.build(epsilon, 1.0, codes, masses, share)
    return replace(draft, step=_round_up(1 / draft.reach))


def _round_up(step: float) -> float:
    """Return ``step`` rounded up to 36 bits: the same on every machine, whatever its last digits."""
    unit = math.ldexp(1.0, math.floor(math.log2(step)) - 36)
    return math.ceil(step / unit) * unit
