"""Three-piece mechanisms on integers: one window of outputs is exp(epsilon) times as likely as each other output.

N = w + m outputs; the window of w moves with the input over m + 1 places. Both w and m are integers and the chance of
the window is a multiple of 2^-53, so the law is a table of rationals and its epsilon is certain. Places are whole
numbers too: a mean report misses its value by up to 2^-32 of the domain's half-width, which `moments` states as bias.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np

from noisette import _random
from noisette._validate import FloatArray
from noisette.cells import Cells, largest_ratio
from noisette.core import Moments, Readout, Tail
from noisette.domains import Interval
from noisette.mechanisms._base import Lattice, ScalarLaw, TableMechanism, check_step, coarseness, power_of_two


@dataclass(frozen=True)
class Window(ScalarLaw):
    """The integer table: window of ``width`` outputs, ``moves`` + 1 places, chance ``p_window``."""

    domain: Interval
    step: float
    first: float
    width: int
    moves: int
    p_window: float

    @classmethod
    def build(cls, domain: Interval, epsilon: float, log_t: float, travel: float) -> Window:
        """Return the table of a window that travels ``travel`` on [-1, 1]'s scale and is 1/t as wide, on ``domain``."""
        half = domain.diameter / 2
        total = travel * (1 + math.exp(-log_t)) * half
        largest = max(abs(domain.low), abs(domain.high))
        step = max(power_of_two(total) / 2**33, power_of_two(largest) / 2**50)
        if step > power_of_two(total) / 2**33:
            check_step(step, domain)
        moves = math.ceil(travel * half / step) + 1  # room for the rounding of width and chances
        width = math.ceil(moves * math.exp(-log_t)) or 1
        # the window's odds are E / t, at most E width / moves; below epsilon 2 the latter, for there the mean report
        # hangs on a small difference of the two chances
        log_odds = epsilon + (math.log(width / moves) if epsilon < 2 else -log_t)
        margin = 1 + (1 + epsilon) * 2.0**-50  # covers the rounding of these lines
        p_other = math.ceil(margin / (1 + math.exp(min(log_odds, 700.0))) * 2**53)
        # the outputs lie evenly about the middle of the domain, to within a hundred-thousandth of a step
        grain = max(step / 2**20, power_of_two(largest + total) / 2**51)
        first = grain * round(((domain.low + half) - step * (width + moves - 1) / 2) / grain)
        return cls(domain, step, first, width, moves, 1 - max(1, p_other) * _random.ULP)

    @cached_property
    def lattice(self) -> Lattice:
        """All outputs."""
        last = self.width + self.moves - 1
        return Lattice(self.first + self.step * (last // 2), self.step, self.first, self.first + self.step * last)

    @cached_property
    def _mean(self) -> tuple[float, float]:
        """Mean report = offset + slope * place, in steps from the first output."""
        p_other = 1 - self.p_window
        slope = self.p_window - p_other * self.width / self.moves
        total = self.width + self.moves
        offset = slope * (self.width - 1) / 2 + p_other * total / self.moves * (total - 1) / 2
        return offset, slope

    @cached_property
    def unbiased_map(self) -> tuple[float, float]:
        """(a, b) with place a + b x for which the mean report is x."""
        offset, slope = self._mean
        return (-self.first / self.step - offset) / slope, 1 / (self.step * slope)

    @cached_property
    def centred_map(self) -> tuple[float, float]:
        """(a, b) with place a + b x that spreads the domain evenly over all places."""
        b = self.moves / self.domain.diameter
        return -b * self.domain.low, b

    def place(self, x: FloatArray, mapping: tuple[float, float]) -> FloatArray:
        """Return the window's place for each input."""
        place = np.asarray(x * mapping[1])
        place += mapping[0]
        np.rint(place, out=place)
        return np.clip(place, 0, self.moves, out=place)

    def table(self, mapping: tuple[float, float]) -> dict[str, Any]:
        """Return the integers, the chance and the map from inputs to places."""
        own = {name: getattr(self, name) for name in ("first", "step", "width", "moves", "p_window")}
        return {"kind": "window", "map": list(mapping)} | own

    @property
    def total(self) -> int:
        """Sum of the weights of all outputs."""
        return (1 << 53) * self.width * self.moves

    def written(self) -> dict[str, Any]:
        return {
            "kind": "window",
            "first": self.first,
            "step": self.step,
            "width": self.width,
            "moves": self.moves,
            "inside": int(self.p_window * (1 << 53)),
        }

    def kinds(self, place: Any) -> tuple[tuple[int, int], ...]:
        """Return the weights of outputs inside the window and outside."""
        inside = int(self.p_window * (1 << 53))
        return (self.width, inside * self.moves), (self.moves, ((1 << 53) - inside) * self.width)

    def sample(self, place: FloatArray, rng: np.random.Generator) -> FloatArray:
        size = place.size
        other = rng.random(size) >= self.p_window
        report = _random.words(rng, self.moves, size).astype(np.float64)
        report += self.width * (report >= place)
        inside = _random.words(rng, self.width, size).astype(np.float64)
        inside += place
        report -= inside
        report *= other
        report += inside
        report *= self.step
        report += self.first
        return report

    def log_mass(self, report: FloatArray, place: FloatArray) -> FloatArray:
        """Return the log probability of each report, -inf outside."""
        index = np.rint((report - self.first) / self.step)
        inside = (index >= place) & (index < place + self.width)
        outside = (index < 0) | (index >= self.width + self.moves)
        high, low = math.log(self.p_window / self.width), math.log((1 - self.p_window) / self.moves)
        return np.where(outside, -np.inf, np.where(inside, high, low))

    def mean(self, place: FloatArray) -> FloatArray:
        """Return the mean report at each place."""
        offset, slope = self._mean
        return np.asarray(self.first + self.step * (offset + slope * place))

    def absolute(self, place: FloatArray, centre: FloatArray, power: int) -> FloatArray:
        """Return E|report - centre|^power, 2 or 3, at each place.

        The sum over outputs is the integral over their steps, less 1/12 squared steps for the second power.
        """
        ends = (0.0, place, place + self.width, float(self.width + self.moves))
        shift = (centre - self.first) / self.step + 0.5
        below = [np.sign(end - shift) * np.abs(end - shift) ** (power + 1) / (power + 1) for end in ends]
        p_high, p_low = self.p_window / self.width, (1 - self.p_window) / self.moves
        total = p_high * (below[2] - below[1]) + p_low * ((below[1] - below[0]) + (below[3] - below[2]))
        if power == 2:
            total = np.maximum(total - 1 / 12, 0.0)
        return np.asarray(self.step**power * total)

    def edges(self, place: FloatArray) -> FloatArray:
        """Return the reports on both sides of every edge of the windows at these places."""
        index = np.concatenate([place - 1, place, place + self.width - 1, place + self.width])
        return np.asarray(self.first + self.step * np.unique(np.clip(index, 0, self.width + self.moves - 1)))

    def cuts(self, place: FloatArray) -> FloatArray:
        """Return the positions at which runs of reports of the same mass begin, and one past the last report."""
        return np.unique(np.concatenate([[0.0, float(self.width + self.moves)], place, place + self.width]))

    def exact_mass(self, index: float, place: float) -> Fraction:
        """Return the probability of the report at a position, as a fraction."""
        inside = place <= index < place + self.width
        chance = Fraction(self.p_window)
        return chance / self.width if inside else (1 - chance) / self.moves


class WindowMechanism(TableMechanism):
    """A scalar mechanism that is one `Window`, placed so that the report is unbiased or as published."""

    domain: Interval

    @property
    def unbiased(self) -> bool:
        """Whether the window is placed so that the mean report is the value."""
        return True

    @property
    @abstractmethod
    def _window(self) -> Window:
        """The integer table."""

    @property
    def _map(self) -> tuple[float, float]:
        return self._window.unbiased_map if self.unbiased else self._window.centred_map

    @property
    def support(self) -> Lattice:
        """Bounded lattice of outputs."""
        return self._window.lattice

    def law(self) -> Window:
        """Return the integer table."""
        return self._window

    def _placed(self, x: FloatArray) -> FloatArray:
        return self._window.place(x, self._map)

    def table(self) -> dict[str, Any]:
        return self._window.table(self._map)

    def moments(self, x: Any) -> Moments:
        values = self._inputs(x)
        place = self._window.place(values, self._map)
        mean = self._window.mean(place)
        return Moments(mean - values, self._window.absolute(place, mean, 2), self._window.absolute(place, mean, 3))

    def log_prob(self, report: Any, x: Any) -> FloatArray:
        reports, values = np.broadcast_arrays(np.asarray(report, dtype=float), self._inputs(x))
        place = self._window.place(values, self._map)
        return np.asarray(self._window.log_mass(reports, place) - math.log(self._window.step))

    def witnesses(self) -> tuple[FloatArray, FloatArray]:
        """Return ends and middle of the domain, and reports on both sides of every edge there."""
        inputs = np.asarray([self.domain.low, (self.domain.low + self.domain.high) / 2, self.domain.high])
        return inputs, self._window.edges(self._window.place(inputs, self._map))

    def dissect(self) -> Iterator[Cells]:
        """Cut the outputs at the edges of the windows of both ends of the domain.

        No pair is worse: what two inputs differ in is the part of each window outside the other one, which is all the
        larger the farther apart they are.
        """
        yield self.cut(self.domain.low, self.domain.high)

    def cut(self, first: Any, second: Any) -> Cells:
        """Cut the outputs at the edges of the windows of any two inputs."""
        pair = (float(first), float(second))
        window, place = self._window, self._window.place(np.asarray(pair), self._map)
        cuts = window.cuts(place)
        masses = ((window.exact_mass(cut, place[0]), window.exact_mass(cut, place[1])) for cut in cuts[:-1].tolist())
        volume = np.log(np.diff(cuts) * window.step)
        return Cells.constant(pair, window.first + window.step * cuts[:-1], volume, largest_ratio(masses))

    @cached_property
    def readout(self) -> Readout:
        """The mean of the reports, its affine bias undone."""
        moments = self.moments(np.linspace(self.domain.low, self.domain.high, 3))
        low_bias, high_bias = float(moments.bias[0]), float(moments.bias[2])
        slope = 1 + (high_bias - low_bias) / self.domain.diameter
        worst = float(moments.variance.max())
        return bounded_readout(self.support, self.domain, variance=worst, slope=slope, bias=low_bias)


def bounded_readout(
    support: Lattice, domain: Interval, *, variance: float, slope: float = 1.0, bias: float = 0.0
) -> Readout:
    """Return the readout of bounded reports whose mean is low + bias + slope (x - low)."""
    span = support.high - support.low
    return Readout(
        offset=domain.low + (support.origin - domain.low - bias) / slope,
        scale=support.step / slope,
        low=domain.low,
        high=domain.high,
        tail=Tail(variance / slope**2 + (domain.diameter / 2) ** 2, span / (3 * slope)),
        coarse=coarseness(span / support.step / 2**6),
    )
