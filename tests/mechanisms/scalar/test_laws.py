"""log_prob is the law: it has mass one, it is the published density, and no ratio exceeds epsilon, exactly."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import pytest
from tests.mechanisms.scalar.helpers import BUILD

import noisette as nz
from noisette.mechanisms._base import Lattice

EPSILONS = (1e-6, 1e-3, 0.5, 1.0, 4.0, 20.0, 60.0, 1000.0)
DOMAINS = ((-1.0, 1.0), (0.0, 100.0), (5.0, 5.1), (-1e9, 1e9), (1e6, 1e6 + 1))
WINDOWS = {name: BUILD[name] for name in ("piecewise", "piecewise-optimal", "square-wave", "square-wave-debiased")}
ADDITIVE = {name: BUILD[name] for name in ("laplace", "staircase", "scdf")}
PURE = {name: build for name, build in BUILD.items() if name != "gaussian"}
GRID: dict[str, Callable[..., Any]] = {
    "discrete-laplace": nz.DiscreteLaplace,
    "discrete-gaussian": nz.DiscreteGaussian,
}


def domains() -> list[nz.Interval]:
    return [nz.Interval(low, high) for low, high in DOMAINS]


def witnessed(mechanism: Any) -> float:
    inputs, reports = mechanism.witnesses()
    law = mechanism.log_prob(np.asarray(reports)[:, None], np.asarray(inputs)[None, :])
    return float((law.max(axis=1) - law.min(axis=1)).max())


def rounding(mechanism: Any, epsilon: float) -> float:
    """Return what float64 may add to a difference of log densities: a few units in their last place."""
    size = abs(math.log(mechanism.support.step)) if isinstance(mechanism.support, Lattice) else 1.0
    return 4 * 2.0**-52 * (size + epsilon + 60)


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("name", PURE)
def test_no_pair_exceeds_epsilon(name: str, epsilon: float) -> None:
    """At the witnesses, and at 10^4 random reports and pairs of inputs, which the witnesses dominate."""
    rng = np.random.default_rng(1)
    for domain in domains():
        mechanism = PURE[name](epsilon, domain=domain)
        worst = witnessed(mechanism)
        slack = rounding(mechanism, epsilon)
        assert worst <= epsilon + slack
        x = np.clip(rng.uniform(domain.low, domain.high, (2, 2000)), domain.low, domain.high)
        reports = mechanism.privatize(x[0], rng=rng)
        gaps = mechanism.log_prob(reports, x[0]) - mechanism.log_prob(reports, x[1])
        assert np.isfinite(gaps).all()
        assert np.abs(gaps).max() <= worst + slack


@pytest.mark.parametrize("name", PURE)
def test_budget_is_used(name: str) -> None:
    for epsilon in (1e-3, 0.5, 1.0, 4.0):
        assert math.isclose(nz.exact_epsilon(PURE[name](epsilon)), epsilon, rel_tol=1e-6)


def log(ratio: Fraction) -> Any:
    return mpmath.log(mpmath.mpf(ratio.numerator)) - mpmath.log(mpmath.mpf(ratio.denominator))


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [1e-7, *EPSILONS, 1e6, 0.05, 0.999, 2.0, 7.3, 10.0, 15.0, 30.0, 36.0, 44.0])
@pytest.mark.parametrize("name", WINDOWS)
def test_window_epsilon_in_rationals(name: str, epsilon: float) -> None:
    """The table is rational: two densities, whose ratio is compared with exp(epsilon) without rounding."""
    with mpmath.workprec(2200):
        for domain in domains():
            window = WINDOWS[name](epsilon, domain=domain)._window
            p_window = Fraction(window.p_window)
            assert 0 < p_window < 1
            assert (p_window * 2**53).denominator == 1
            inside, outside = p_window / window.width, (1 - p_window) / window.moves
            assert 0 < log(inside / outside) <= mpmath.mpf(epsilon)


@pytest.mark.parametrize("epsilon", [1e-7, *EPSILONS, 1e6, 0.3, 0.61, 0.62, 2.0, 10.0, 36.0])
@pytest.mark.parametrize("name", ["duchi", "hybrid"])
def test_two_point_epsilon_in_rationals(name: str, epsilon: float) -> None:
    """rng.random() < p has a chance that is a multiple of 2^-53: compare these chances at both ends."""
    with mpmath.workprec(400):
        for domain in domains():
            mechanism = PURE[name](epsilon, domain=domain)
            pair = mechanism._pair if getattr(mechanism, "_alone", None) is None else mechanism._alone._pair
            ends = np.asarray([domain.low, domain.high])
            p_high = [Fraction(math.ceil(Fraction(float(p)) * 2**53), 2**53) for p in pair.p_high(ends)]
            assert 0 < p_high[0] < p_high[1] < 1
            assert log(p_high[1] / p_high[0]) <= mpmath.mpf(epsilon)
            assert log((1 - p_high[0]) / (1 - p_high[1])) <= mpmath.mpf(epsilon)
            assert mechanism.support.contains(np.asarray([pair.low, pair.high])).all()


@pytest.mark.parametrize("epsilon", [1e-7, *EPSILONS, 0.1, 2.0, 10.0, 36.0])
def test_additive_epsilon_in_rationals(epsilon: float) -> None:
    with mpmath.workprec(2200):
        for domain in domains():
            laplace = nz.Laplace(epsilon, domain=domain)
            assert Fraction(laplace._noise.rate) * laplace._steps <= Fraction(epsilon)
            for build in (nz.Staircase, nz.Scdf):
                mechanism = build(epsilon, domain=domain)
                noise = mechanism._noise
                assert noise.width == mechanism._steps
                assert Fraction(noise.rate) <= Fraction(epsilon)
                first = Fraction(noise.p_first) / (2 * noise.first)
                fall = 1 - mpmath.exp(-mpmath.mpf(noise.rate))
                later = (1 - Fraction(noise.p_first)) / (2 * noise.width)
                assert abs(log(first / later) - mpmath.log(fall)) <= mpmath.mpf(epsilon)


@pytest.mark.parametrize("name", [*ADDITIVE, "gaussian"])
def test_domain_is_rounded_outward(name: str) -> None:
    """Noise is scaled to the distance of the lattice points that the ends of the domain may be rounded to."""
    for domain in [*domains(), nz.Interval(0.1, 0.7), nz.Interval(-1 / 3, 1 / 7)]:
        mechanism = nz.CATALOGUE[name](1.0, domain=domain)
        below, rest = mechanism._position(np.asarray([domain.low, domain.high]))
        farthest = below[1] + (rest[1] > 0) - below[0]
        assert mechanism._steps == farthest


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("name", WINDOWS)
def test_window_law_has_mass_one(name: str, epsilon: float) -> None:
    """The density is constant on three runs of lattice points, whose edges bisection finds."""
    for domain in domains():
        mechanism = WINDOWS[name](epsilon, domain=domain)
        lattice = mechanism.support
        last = round((lattice.high - lattice.low) / lattice.step)

        def law(k: int, x: float, mechanism: Any = mechanism, lattice: Lattice = lattice) -> float:
            return float(mechanism.log_prob(lattice.low + lattice.step * k, x))

        for share in (0.0, 0.37, 1.0):
            x = min(max(domain.low + share * domain.diameter, domain.low), domain.high)
            place = int(mechanism._window.place(np.asarray([x]), mechanism._map)[0])
            inside = law(place, x)
            start = _first(lambda k, v=inside, x=x: law(k, x) == v, 0, place)
            stop = _first(lambda k, v=inside, x=x: law(k, x) != v, place, last + 1)
            outside = law(0, x) if start > 0 else law(last, x)
            step = Fraction(lattice.step)
            runs = ((stop - start, inside), (start + last + 1 - stop, outside))
            total = math.fsum(float(step * count) * math.exp(value) for count, value in runs if count)
            assert math.isclose(total, 1, rel_tol=1e-9)
            assert law(-1, x) == law(last + 1, x) == -math.inf


def _first(test: Callable[[int], bool], low: int, high: int) -> int:
    """Return the least k in [low, high] for which ``test`` holds, taken to hold at ``high``."""
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if test(middle) else (middle + 1, high)
    return low


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("name", ["duchi", "hybrid"])
def test_two_point_law_has_mass_one(name: str, epsilon: float) -> None:
    for domain in domains():
        mechanism = PURE[name](epsilon, domain=domain)
        for x in (domain.low, (domain.low + domain.high) / 2, domain.high):
            if not isinstance(mechanism.support, Lattice):
                mass = np.exp(mechanism.log_prob(np.asarray(mechanism.support.values), x)).sum()
                assert math.isclose(mass, 1, rel_tol=1e-12)
                assert mechanism.log_prob(x, x) == -math.inf
                continue
            window, pair = mechanism._window, mechanism._pair
            atoms = np.exp(mechanism.log_prob(np.asarray([pair.low, pair.high]), x)) * window.step
            place = window.place(np.asarray([x]), window.unbiased_map)
            below = np.exp(window.log_mass(np.asarray([pair.low, pair.high]), place)) * mechanism.p_piecewise
            # what the two reports have above the window's own mass is Duchi's share
            assert math.isclose((atoms - below).sum(), 1 - mechanism.p_piecewise, rel_tol=1e-9, abs_tol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [0.02, 0.5, 1.0, 4.0, 20.0])
@pytest.mark.parametrize("name", [*ADDITIVE, "gaussian"])
def test_fine_lattice_law_has_mass_one(name: str, epsilon: float) -> None:
    """Every m-th lattice point stands for m of them: the density is constant or smooth over so few."""
    for domain in (nz.Interval(), nz.Interval(5, 5.1)):
        mechanism = nz.CATALOGUE[name](epsilon, domain=domain)
        x = domain.low + 0.3 * domain.diameter
        sd = math.sqrt(float(mechanism.moments(x).variance))
        stride = max(1, round(sd / 2000 / mechanism.support.step))
        centre = mechanism.support.index(np.asarray(x))
        reports = mechanism.support.value(centre + stride * np.arange(-200_000.0, 200_001.0))
        total = np.exp(mechanism.log_prob(reports, x)).sum() * stride * mechanism.support.step
        assert math.isclose(total, 1, rel_tol=2e-3 if name in ("staircase", "scdf") else 1e-6)  # jumps, or none


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 3.0])
@pytest.mark.parametrize("name", [*WINDOWS, *ADDITIVE, "gaussian", "hybrid"])
def test_density_is_the_published_one(name: str, epsilon: float, published: Any) -> None:
    build = nz.Gaussian if name == "gaussian" else PURE[name]
    mechanism = build(epsilon)
    rng = np.random.default_rng(2)
    for x in (-1.0, 0.3):
        law = published(name, x, epsilon)
        reports = mechanism.privatize(np.full(300, x), rng=rng)
        spread = np.asarray([y for y in reports if min(abs(y - end) for end in (*law.breaks, 1e9)) > 1e-6])
        spread = np.asarray([y for y in spread if all(abs(y - at) > 1e-6 for at, _ in law.atoms)])
        if epsilon <= 0.61 and name == "hybrid":
            assert spread.size == 0
            continue
        expected = np.asarray([law.density(y) for y in spread])
        np.testing.assert_allclose(np.exp(mechanism.log_prob(spread, x)), expected, rtol=1e-6)
        # twin: the law of another input is told apart
        other = published(name, x + 0.2, epsilon)
        assert not np.allclose(np.exp(mechanism.log_prob(spread, x)), [other.density(y) for y in spread], rtol=1e-3)


@pytest.mark.parametrize("name", GRID)
def test_grid_law(name: str) -> None:
    mechanism = GRID[name](1.0, domain=nz.Grid(0, 10, 2.5))
    assert mechanism.log_prob([0.1, 1.0], 5.0).tolist() == [-math.inf, -math.inf]
    assert np.isfinite(mechanism.log_prob([-2.5, 5.0, 100.0], 5.0)).all()
    reports = mechanism.support.value(np.arange(-400.0, 401.0))
    assert math.isclose(np.exp(mechanism.log_prob(reports, 2.5)).sum(), 1, rel_tol=1e-12)
    if name == "discrete-laplace":
        assert math.isclose(nz.exact_epsilon(mechanism), 1.0, rel_tol=1e-12)
    else:
        assert nz.exact_epsilon(mechanism) == math.inf


def test_log_prob_broadcasts() -> None:
    mechanism = nz.Piecewise(1.0)
    reports, x = np.zeros((5, 1)), np.linspace(-1, 1, 3)
    assert mechanism.log_prob(reports, x).shape == (5, 3)
    assert mechanism.log_prob(0.0, 0.0).shape == ()


@pytest.mark.parametrize(("epsilon", "power"), [(1.0, -23), (1e-3, -15), (100.0, -29)])
def test_steps_are_far_below_the_noise_and_below_the_domain(epsilon: float, power: int) -> None:
    """2^-24 of the noise, but 2^-16 of the domain where that is finer, and never 2^-30 of it."""
    assert nz.Laplace(epsilon).support.step == 2.0**power
