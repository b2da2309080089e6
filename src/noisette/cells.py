"""All reports of a mechanism in a few cells: what it takes to sum over them, or to be sure of the worst one.

A mechanism on a fine lattice has more reports than can be enumerated, but along stretches of them its log mass is
constant, a straight line or a parabola. One that says so gets exact epsilon and delta from its own `log_prob` at the
ends of these stretches.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Protocol, runtime_checkable

import numpy as np

from noisette._validate import FloatArray

_SLICES = 2.0**20  # in a standard deviation of normal noise


@dataclass(frozen=True)
class Cells:
    """All reports, in runs along which the log masses under two inputs are polynomials.

    ``pair`` are the two inputs. Run i has ``places[i]`` places, infinity for a tail. The reports at one place are alike
    under both inputs and weigh ``exp(log_weight[i]) (1 + tilt[i] j)`` together at place j: they are so many, or have
    so much volume where `log_prob` is a density. ``nodes[n]`` holds a report of each run at place ``n span[i]``; with
    one node log masses are constant along a run, with two straight lines, with three parabolas that differ by a
    straight line.

    ``bound``, where there is one, is an upper limit of the log ratio of the masses of any report, proved in exact
    arithmetic; float64 only comes near it. Runs that are not ``complete`` hold the worst report but not all of them.
    """

    pair: tuple[Any, Any]
    nodes: tuple[Any, ...]
    log_weight: FloatArray
    places: FloatArray
    span: FloatArray
    tilt: FloatArray
    bound: float | None = None
    complete: bool = True

    @classmethod
    def constant(cls, pair: tuple[Any, Any], reports: Any, log_weight: Any, bound: float | None = None) -> Cells:
        """Return runs of one place each."""
        weights = np.asarray(log_weight, dtype=float)
        ones, zeros = np.ones(weights.size), np.zeros(weights.size)
        return cls(pair, (reports,), weights, ones, ones, zeros, bound)

    @classmethod
    def normal(cls, pair: tuple[Any, Any], middle: FloatArray, unit: FloatArray, log_volume: float, free: int) -> Cells:
        """Cut the space of reports with normal noise into slices across the line through two inputs.

        ``middle`` lies between the inputs and ``unit`` is one standard deviation along the line. ``log_volume`` is the
        log of the product of all standard deviations, of which there are ``free``.
        """
        step, span = unit / _SLICES, math.ceil(8 * _SLICES)
        sides = np.asarray([1.0, -1.0])[(...,) + (None,) * unit.ndim] * step
        starts = np.stack([np.zeros_like(step), -step])
        nodes = tuple(middle + starts + n * span * sides for n in range(3))
        weight = log_volume + (free - 1) / 2 * math.log(2 * math.pi) - math.log(_SLICES)
        return cls(pair, nodes, np.full(2, weight), np.full(2, math.inf), np.full(2, float(span)), np.zeros(2))


@runtime_checkable
class Dissected(Protocol):
    """A mechanism whose reports fall into few cells."""

    def dissect(self) -> Iterator[Cells]:
        """Cut the reports for pairs of inputs among which the worst one is, for epsilon and for every delta."""


@runtime_checkable
class CutAnywhere(Protocol):
    """A mechanism whose reports fall into few cells for any two inputs, not for the worst ones alone."""

    def cut(self, first: Any, second: Any) -> Cells | None:
        """Cut all reports for two inputs; None where they have the same law."""


def log_above(ratio: Fraction) -> float:
    """Return the least float64 that is not below the log of a fraction.

    >>> log_above(Fraction(1)), log_above(Fraction(2)) >= math.log(2)
    (0.0, True)
    """
    import mpmath

    with mpmath.workprec(160):
        exact = mpmath.log(mpmath.mpf(ratio.numerator) / ratio.denominator)
        return up(exact + mpmath.ldexp(abs(exact) + (ratio != 1), -150))


def up(value: Any) -> float:
    """Return the least float64 that is not below a number of mpmath's."""
    near = float(value)
    return near if near >= value else math.nextafter(near, math.inf)


def largest_ratio(masses: Iterable[tuple[Fraction, Fraction]]) -> float:
    """Return an upper limit of the log ratio, either way, of the two exact masses of each cell."""
    worst = Fraction(1)
    for first, second in masses:
        if (first == 0) != (second == 0):
            return math.inf
        if first:
            worst = max(worst, first / second, second / first)
    return log_above(worst)
