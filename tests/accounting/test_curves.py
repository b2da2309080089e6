"""Privacy curves: against closed forms, against the auditor's exact sums, and against wrong ones."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pytest
from scipy.special import ndtr

import noisette as nz
from noisette.accounting import Curve, curves, privacy_curve
from noisette.accounting._runs import PairLosses, pair_losses
from noisette.auditing.exact import exact_delta, exact_epsilon
from noisette.cells import Cells, Dissected
from noisette.mechanisms.scalar._additive import LaplaceNoise

EPSILONS = (0.1, 1.0, 4.0)


def _variation(name: str, e: float) -> float:
    """Total variation distance of the worst pair, from the papers' formulas."""
    grown, root = math.exp(e), math.exp(e / 2)
    k = 5
    return {
        "duchi": math.tanh(e / 2),
        "laplace": 1 - math.exp(-e / 2),
        "piecewise": 1 - math.exp(-e / 2),
        "grr": (grown - 1) / (grown + k - 1),
        "oue": 0.5 - 1 / (grown + 1),
        "sue": (root - 1) / (root + 1),
        "hadamard": grown / (grown + 1) - 0.5,
        "histogram": _two_laplace(e),
    }[name]


def _two_laplace(e: float) -> float:
    """Integrate (f(u - 1) f(v) - f(u) f(v - 1))_+ for two entries u, v with Laplace noise of rate e/2."""
    rate = e / 2
    # outside [0, 1] both laws of an entry fall alike: it only adds weight to the nearer end
    u, w = np.polynomial.legendre.leggauss(200)
    u, w = (u + 1) / 2, w / 2
    inside = rate / 2 * np.exp(-rate * u), rate / 2 * np.exp(-rate * (1 - u))  # densities about 0 and about 1
    edge = 0.5, 0.5 * math.exp(-rate)  # mass of an entry below 0 if it is about 0, if it is about 1
    points = [(0.0, edge[0], edge[1]), (1.0, edge[1], edge[0])]
    about0 = np.concatenate([w * inside[0], [p[1] for p in points]])
    about1 = np.concatenate([w * inside[1], [p[2] for p in points]])
    first = np.outer(about1, about0)  # entry of the own category is about 1
    second = np.outer(about0, about1)
    return float(np.maximum(first - second, 0).sum())


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("name", ["duchi", "laplace", "piecewise", "grr", "oue", "sue", "hadamard", "histogram"])
def test_total_variation_is_the_papers(name: str, epsilon: float) -> None:
    found = float(privacy_curve(nz.CATALOGUE[name].example(epsilon)).delta(0.0))
    assert found == pytest.approx(_variation(name, epsilon), rel=2e-5 if name == "histogram" else 1e-7)


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_laplace_curve_is_the_closed_form(epsilon: float) -> None:
    """delta = 1 - exp((e - e0) / 2); a spread over 2,048 parts and 1,000 dots adds less than a millionth of e0."""
    curve = privacy_curve(nz.Laplace(epsilon=epsilon))
    at = np.linspace(0, epsilon, 777)
    expected = 1 - np.exp((at - epsilon) / 2)
    assert np.all(curve.delta(at) >= expected - 1e-15)
    assert curve.delta(at) == pytest.approx(expected, abs=1e-6 * epsilon)


def _largest_delta(own: float, epsilon: float) -> float:
    """Return the largest delta of anything that has the pure epsilon ``own``: randomised response of one bit has it."""
    return (math.exp(own) - math.exp(epsilon)) / (1 + math.exp(own))


@pytest.mark.long
@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("name", sorted(nz.CATALOGUE))
def test_curve_is_above_the_auditors_exact_sum_and_close_to_it(name: str, epsilon: float) -> None:
    mechanism = nz.CATALOGUE[name].example(epsilon)
    curve = privacy_curve(mechanism)
    whole = not isinstance(mechanism, Dissected) or all(cells.complete for cells in mechanism.dissect())
    for share in (0.0, 0.13, 0.5, 0.9):
        if whole:
            exact = exact_delta(mechanism, share * epsilon)
        else:  # too many reports to sum over: the curve must hold for whatever has this epsilon
            exact = _largest_delta(exact_epsilon(mechanism), share * epsilon)
        bound = float(curve.delta(share * epsilon))
        assert exact * (1 - 1e-9) - 1e-15 <= bound <= exact * 1.005 + 1e-12, share


def test_normal_noise_is_gaussian() -> None:
    mechanism = nz.Gaussian(epsilon=1.0, delta=1e-6)
    mu = 2 / mechanism.sigma
    for epsilon in (0.0, 0.3, 0.8):
        exact = ndtr(mu / 2 - epsilon / mu) - math.exp(epsilon) * ndtr(-mu / 2 - epsilon / mu)
        assert exact <= float(privacy_curve(mechanism).delta(epsilon)) <= exact * 1.001


@pytest.mark.parametrize("name", ["duchi", "laplace", "discrete-gaussian", "grr", "sampled"])
def test_losses_are_a_law_and_have_the_curve(name: str) -> None:
    """The pair of laws that dp-accounting is given has, by its own formula, the deltas of the dots."""
    curve = privacy_curve(nz.CATALOGUE[name].example(1.0), dots=50)
    losses, masses, infinite = curve.losses
    assert masses.min() >= 0
    assert masses.sum() + infinite == pytest.approx(1, abs=1e-12)
    for epsilon, delta in zip(curve.epsilons, curve.deltas, strict=True):
        formula = infinite + (masses * np.maximum(-np.expm1(epsilon - losses), 0)).sum()
        assert formula == pytest.approx(delta, rel=1e-9, abs=1e-14)
        assert float(curve.distribution().get_delta_for_epsilon(float(epsilon))) == pytest.approx(formula, abs=1e-14)


def test_a_part_collapsed_to_its_mean_would_understate() -> None:
    """The twin of `PairLosses.atoms`: merging the outputs of a part instead of spreading them loses privacy loss."""
    pairs = pair_losses(nz.Laplace(epsilon=4.0))
    assert pairs is not None
    first, second = (np.add.reduceat(mass, np.arange(0, mass.size, 700)) for mass in (pairs[0].first, pairs[0].second))
    merged = float(np.maximum(first - math.exp(2) * second, 0).sum())
    exact = 1 - math.exp((2 - 4) / 2)
    assert merged < exact * 0.999
    assert float(privacy_curve(nz.Laplace(epsilon=4.0)).delta(2.0)) >= exact


@dataclass(frozen=True)
class Incomplete(nz.Duchi):
    """A mechanism whose dissect leaves out a report."""

    def dissect(self) -> Iterator[Cells]:
        yield Cells.constant((self.domain.low, self.domain.high), np.asarray(self.support.values[:1]), [0.0])


@dataclass(frozen=True)
class Understated(nz.Laplace):
    """Noise of half the scale under the same guarantee."""

    @property
    def _noise(self) -> LaplaceNoise:
        return LaplaceNoise(2 * self.epsilon / self._steps)


def test_missing_reports_leave_the_guarantee_alone() -> None:
    curve = privacy_curve(Incomplete(epsilon=1.0))
    assert curve.deltas == pytest.approx([math.tanh(0.5), 0.0])


def test_likelihoods_above_the_guarantee_are_refused() -> None:
    with pytest.raises(ValueError, match=r"above the 1\.0 that the guarantee states"):
        privacy_curve(Understated(epsilon=1.0))


def test_worst_curves() -> None:
    pure = Curve.randomized_response(2.0)
    assert float(pure.delta(1.0)) == pytest.approx((math.e**2 - math.e) / (math.e**2 + 1))
    both = Curve.randomized_response(2.0, 0.01)
    assert float(both.delta(1.0)) == pytest.approx(0.01 + 0.99 * (math.e**2 - math.e) / (math.e**2 + 1))
    assert float(both.delta(50.0)) == pytest.approx(0.01)
    assert Curve.randomized_response(0.0).deltas == pytest.approx([0, 0])
    assert np.all(np.isfinite(Curve.randomized_response(1000.0).losses[1]))


def test_through_takes_the_hull_of_dots() -> None:
    """A dot that lies above the line through others is lowered to it; the true curve, convex, is below both."""
    interval = 0.1
    truth = 1 - np.exp((interval * np.arange(11) - 1) / 2)
    noisy = truth.copy()
    noisy[[3, 4]] += 0.01
    curve = Curve.through(interval, noisy)
    assert np.all(curve.deltas >= truth - 1e-15)
    assert np.all(curve.deltas <= noisy + 1e-15)
    assert curve.deltas[3] < noisy[3]


def test_spacing_a_curve_anew_raises_it() -> None:
    curve = privacy_curve(nz.Laplace(epsilon=1.0))
    coarse = curve.spaced(0.3)
    at = np.linspace(0, 1.5, 100)
    assert np.all(coarse.delta(at) >= curve.delta(at) - 1e-15)
    assert float(coarse.delta(1.3)) == 0


@pytest.mark.parametrize(
    ("epsilon", "interval", "dots"), [(1.0, 0.3, 5), (1.0, 0.25, 5), (3 * 0.1, 0.1, 4), (1.0, 2.0, 2)]
)
def test_a_curve_spaced_anew_ends_at_the_first_dot_beyond_it(epsilon: float, interval: float, dots: int) -> None:
    """The third is above three tenths by a rounding, which is no reason for a fourth step."""
    curve = Curve.randomized_response(epsilon)
    found = curve.spaced(interval)
    assert found.deltas.size == dots
    assert found.deltas == pytest.approx(curve.delta(interval * np.arange(dots)), rel=1e-12, abs=1e-15)
    assert curve.spaced(epsilon) is curve


def test_what_is_not_a_release_is_refused() -> None:
    with pytest.raises(TypeError, match="Expected a mechanism or a Guarantee, got float"):
        privacy_curve(1.0)


@pytest.mark.parametrize("shares", [(0.2, 0.9), (0.9, 0.2)])
def test_of_two_pairs_the_one_that_is_farther_apart_counts(shares: tuple[float, float]) -> None:
    """Randomised response that is asked with some chance only: losses of 1, 0 and -1."""

    def pair(share: float) -> PairLosses:
        own, other = share / (1 + math.exp(-1)), share / (1 + math.exp(1))
        losses = np.asarray([1.0, -1.0, 0.0])
        return PairLosses(np.asarray([own, other, 1 - share]), np.asarray([other, own, 1 - share]), losses, losses)

    found = curves._integrated([*map(pair, shares)], nz.Guarantee(1.0), Curve.randomized_response(1.0, 0.0), 100)
    assert float(np.ravel(found.delta(np.zeros(1)))[0]) == pytest.approx(0.9 * math.tanh(0.5), rel=1e-6)
