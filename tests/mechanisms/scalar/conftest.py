"""The laws of the scalar mechanisms as their papers print them, on [-1, 1], written apart from the library."""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
import pytest
from scipy import optimize, stats


def gauss_legendre(points: int) -> list[tuple[float, float]]:
    """Return nodes and weights on [-1, 1], exact for polynomials of degree 2 points - 1."""
    nodes, weights = np.polynomial.legendre.leggauss(points)
    return list(zip(nodes.tolist(), weights.tolist(), strict=True))


FLAT = gauss_legendre(3)  # cubes over a constant density
SMOOTH = gauss_legendre(16)  # noise over one scale, to double precision


@dataclass(frozen=True)
class Law:
    """A density that is smooth between ``breaks`` and zero outside them, and atoms (place, chance)."""

    density: Callable[[float], float]
    breaks: tuple[float, ...]
    atoms: tuple[tuple[float, float], ...] = ()
    rule: list[tuple[float, float]] = field(default_factory=lambda: SMOOTH)

    def expect(self, function: Callable[[float], float], low: float = -math.inf, high: float = math.inf) -> float:
        """Return the expectation of ``function`` over reports in (low, high]."""
        inside = [end for end in self.breaks if low < end < high]
        ends = sorted({max(low, self.breaks[0]), min(high, self.breaks[-1]), *inside}) if self.breaks else []
        total = math.fsum(
            (b - a) / 2 * weight * function(y) * self.density(y)
            for a, b in itertools.pairwise(ends)
            for node, weight in self.rule
            for y in [a + (b - a) * (node + 1) / 2]
        )
        return total + math.fsum(chance * function(place) for place, chance in self.atoms if low < place <= high)

    def moments(self, x: float) -> tuple[float, float, float]:
        """Return bias, variance and third absolute central moment."""
        mean = self.expect(lambda y: y)
        split = replace(self, breaks=tuple(sorted({*self.breaks, mean})))
        second = split.expect(lambda y: (y - mean) ** 2)
        return mean - x, second, split.expect(lambda y: abs(y - mean) ** 3)


def uniform_pieces(pieces: list[tuple[float, float, float]]) -> Law:
    """Return the law with density ``height`` on each (low, high, height), which follow one another without a gap."""
    ordered = sorted(piece for piece in pieces if piece[0] < piece[1])
    ends = [ordered[0][0], *(high for _, high, _ in ordered)]
    heights = [0.0, *(height for _, _, height in ordered), 0.0]
    return Law(lambda y: heights[bisect.bisect_right(ends, y)], tuple(ends), rule=FLAT)


def laplace(x: float, epsilon: float) -> Law:
    scale = 2 / epsilon
    ends = tuple(x + scale * k for k in range(-50, 51))
    return Law(lambda y: math.exp(-abs(y - x) / scale) / (2 * scale), ends)


def gaussian(x: float, epsilon: float, delta: float = 1e-6) -> Law:
    def excess(sigma: float) -> float:  # Balle, Wang 2018, Theorem 8, sensitivity 2
        mu = 2 / sigma
        tail = stats.norm.logcdf(-mu / 2 - epsilon / mu)
        return float(stats.norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon + tail)) - delta

    sigma = optimize.brentq(excess, 1e-3, 1e3, xtol=1e-13, rtol=1e-14)
    ends = tuple(x + sigma * k for k in range(-13, 14))
    return Law(lambda y: math.exp(-0.5 * ((y - x) / sigma) ** 2) / (sigma * math.sqrt(2 * math.pi)), ends)


def stairs(x: float, epsilon: float, gamma: float) -> Law:
    b, width = math.exp(-epsilon), 2.0
    top = (1 - b) / (2 * width * (gamma + b * (1 - gamma)))
    pieces = []
    for k in range(math.ceil(45 / epsilon) + 1):
        inner, middle, outer = k * width, (k + gamma) * width, (k + 1) * width
        for low, high, height in ((inner, middle, top * b**k), (middle, outer, top * b ** (k + 1))):
            pieces += [(x + low, x + high, height), (x - high, x - low, height)]
    return uniform_pieces(pieces)


def staircase_variance(gamma: float, epsilon: float) -> float:
    """Variance of staircase noise of sensitivity 2, from the spec."""
    b = math.exp(-epsilon)
    s0, s1 = 1 / (1 - b), b / (1 - b) ** 2
    s2, s3 = b * (1 + b) / (1 - b) ** 3, b * (1 + 4 * b + b * b) / (1 - b) ** 4
    series = s3 + 3 * gamma * s2 + 3 * gamma**2 * s1 + gamma**3 * s0
    return 4 * (1 - b) ** 2 * series / (3 * (gamma + b * (1 - gamma)))


def staircase(x: float, epsilon: float) -> Law:
    gamma = optimize.minimize_scalar(
        staircase_variance, args=(epsilon,), bounds=(0, 1), method="bounded", options={"xatol": 1e-12}
    ).x
    return stairs(x, epsilon, float(gamma))


def scdf(x: float, epsilon: float) -> Law:
    return stairs(x, epsilon, 1 / epsilon - math.exp(-epsilon) / (1 - math.exp(-epsilon)))


def duchi(x: float, epsilon: float) -> Law:
    far = (math.exp(epsilon) + 1) / (math.exp(epsilon) - 1)
    p_high = x * (math.exp(epsilon) - 1) / (2 * math.exp(epsilon) + 2) + 0.5
    return Law(lambda y: 0.0, (), ((-far, 1 - p_high), (far, p_high)))


def piecewise(x: float, epsilon: float) -> Law:
    s = math.exp(epsilon / 2)
    far = (s + 1) / (s - 1)
    left = (far + 1) / 2 * x - (far - 1) / 2
    right = left + far - 1
    height = (math.exp(epsilon) - s) / (2 * s + 2)
    low = height / math.exp(epsilon)
    return uniform_pieces([(-far, left, low), (left, right, height), (right, far, low)])


def three_piece_variance(t: float, x: float, epsilon: float) -> float:
    e = math.exp(epsilon)
    return (t + 1) * x * x / (e - 1) + (t + e) * ((t + 1) ** 3 + e - 1) / (3 * t * t * (e - 1) ** 2)


def piecewise_optimal(x: float, epsilon: float) -> Law:
    e = math.exp(epsilon)
    t = math.exp(
        optimize.minimize_scalar(
            lambda log_t: three_piece_variance(math.exp(log_t), 1.0, epsilon),
            bounds=(0, epsilon + 2),
            method="bounded",
            options={"xatol": 1e-10},
        ).x
    )
    far = (e + t) * (t + 1) / (t * (e - 1))
    left, right = ((e + t) * (x * t + sign) / (t * (e - 1)) for sign in (-1, 1))
    height = e / (t + e) / (right - left)
    low = t / (t + e) / (2 * far - (right - left))
    return uniform_pieces([(-far, left, low), (left, right, height), (right, far, low)])


def hybrid(x: float, epsilon: float) -> Law:
    if epsilon <= 0.61:
        return duchi(x, epsilon)
    share = 1 - math.exp(-epsilon / 2)
    one, two = piecewise(x, epsilon), duchi(x, epsilon)
    return Law(lambda y: share * one.density(y), one.breaks, tuple((at, (1 - share) * p) for at, p in two.atoms))


def square_wave(x: float, epsilon: float, *, debiased: bool = False) -> Law:
    e, t = math.exp(epsilon), (x + 1) / 2
    b = (epsilon * e - e + 1) / (2 * e * (e - 1 - epsilon))
    den = 2 * b * e + 1
    slope, offset = (2 * b * (e - 1) / den, (1 + 2 * b) / (2 * den)) if debiased else (1.0, 0.0)

    def back(v: float) -> float:
        return 2 * (v - offset) / slope - 1

    unit = slope / 2  # densities shrink as lengths grow
    return uniform_pieces(
        [
            (back(-b), back(t - b), unit / den),
            (back(t - b), back(t + b), unit * e / den),
            (back(t + b), back(1 + b), unit / den),
        ]
    )


PUBLISHED: dict[str, Callable[[float, float], Law]] = {
    "laplace": laplace,
    "gaussian": gaussian,
    "staircase": staircase,
    "scdf": scdf,
    "duchi": duchi,
    "piecewise": piecewise,
    "piecewise-optimal": piecewise_optimal,
    "hybrid": hybrid,
    "square-wave": square_wave,
    "square-wave-debiased": lambda x, epsilon: square_wave(x, epsilon, debiased=True),
}


@pytest.fixture(scope="session")
def published() -> Callable[[str, float, float], Law]:
    """Return the published law of the named mechanism: (name, x, epsilon) -> Law."""
    return lambda name, x, epsilon: PUBLISHED[name](x, epsilon)


@pytest.fixture(scope="session")
def stairs_law() -> Callable[[float, float, float], Law]:
    """Return staircase noise with a first stair of one's own: (x, epsilon, gamma) -> Law."""
    return stairs
