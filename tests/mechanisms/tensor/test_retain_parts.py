"""Keeping or noising an entry: its laws by sums over the grid, and the shares of a budget spent again by hand."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import pytest
from scipy.stats import norm

from noisette.guarantees import gaussian_delta
from noisette.mechanisms.scalar.gaussian import lattice_sigma
from noisette.mechanisms.tensor.retain import calibration
from noisette.mechanisms.tensor.retain.calibration import NoiseChoice, Request, choose, group
from noisette.mechanisms.tensor.retain.laws import KeptGaussian, KeptLaplace, RoundedGaussian, RoundedLaplace, chance

K = np.arange(-3000.0, 3001.0)
LAPLACE, GAUSSIAN = KeptLaplace(0.7, 4), KeptGaussian(2.5, 4)


def law(kept: KeptLaplace | KeptGaussian, p_keep: float, at: int) -> Any:
    """The chances of all reports about the value ``at``, from the formula."""
    if isinstance(kept, KeptLaplace):
        mass = math.tanh(kept.rate / 2) * np.exp(-kept.rate * np.abs(K - at))
    else:
        mass = np.exp(-((K - at) ** 2) / (2 * kept.sigma**2))
        mass /= mass.sum()
    return p_keep * (at == K) + (1 - p_keep) * mass


@pytest.mark.parametrize("odds", [-800.0, -700.0, -20.0, -1.0, 0.0, 1.0, 20.0, 36.0, 40.0, 800.0])
def test_a_chance_is_a_little_less_than_its_odds_say(odds: float) -> None:
    found = Fraction(chance(odds))
    assert (found * 2**53).denominator == 1
    with mpmath.workdps(40):
        true = 1 / (1 + mpmath.exp(-mpmath.mpf(odds)))
        assert mpmath.mpf(found.numerator) / found.denominator < true
    assert found <= 1 - Fraction(1, 2**53)
    if abs(odds) < 30:
        assert float(true) - float(found) <= 2.0**-53 + 2.0**-39 * max(1.0, abs(odds)) * float(true * (1 - true))


@pytest.mark.parametrize("rate", [0.01, 0.7, 5.0])
def test_laplace_noise_that_is_rounded(rate: float) -> None:
    """The chance that a continuous variable is nearer to k than to any other number, and its moments."""
    noise = RoundedLaplace(rate)
    k = np.arange(-4.0, 5.0)
    tail: Any = lambda x: 0.5 * math.exp(-rate * x) if x >= 0 else 1 - 0.5 * math.exp(rate * x)  # noqa: E731
    wanted = [tail(one - 0.5) - tail(one + 0.5) for one in k]
    assert np.allclose(np.exp(noise.log_mass(k)), wanted, rtol=1e-9)
    mass = np.exp(noise.log_mass(K))
    assert noise.absolute == pytest.approx([float((np.abs(K) ** n * mass).sum()) for n in (1, 2, 3)], rel=1e-6)


@pytest.mark.parametrize("sigma", [0.3, 2.0, 20.0])
def test_normal_noise_that_is_rounded(sigma: float) -> None:
    noise = RoundedGaussian(sigma)
    k = np.arange(-5.0, 6.0)
    assert np.allclose(
        np.exp(noise.log_mass(k)), norm.sf(np.abs(k) - 0.5, scale=sigma) - norm.sf(np.abs(k) + 0.5, scale=sigma)
    )
    mass = np.exp(noise.log_mass(K))
    assert mass.sum() == pytest.approx(1, rel=1e-12)
    assert noise.absolute == pytest.approx([float((np.abs(K) ** n * mass).sum()) for n in (1, 2, 3)], rel=1e-9)
    drawn = noise.sample(np.random.default_rng(1), 1000)
    assert np.array_equal(drawn, np.rint(np.random.default_rng(1).normal(scale=sigma, size=1000)))


@pytest.mark.parametrize("p_keep", [0.0, 0.2, 0.9])
def test_the_epsilon_of_an_entry_is_the_largest_ratio(p_keep: float) -> None:
    first, second = law(LAPLACE, p_keep, 0), law(LAPLACE, p_keep, 4)
    near = np.abs(K) < 300
    ratio = float(np.log(first[near] / second[near]).max())
    assert float(LAPLACE.epsilon(np.asarray(p_keep))) == pytest.approx(ratio, rel=1e-12)
    assert LAPLACE.centre == pytest.approx(math.tanh(0.35), rel=1e-14)


@pytest.mark.parametrize("epsilon", [2.81, 3.0, 6.0, 30.0, 900.0])
def test_as_much_is_kept_as_the_budget_leaves(epsilon: float) -> None:
    kept = LAPLACE.largest_kept(epsilon)
    assert float(LAPLACE.epsilon(np.asarray(kept))) <= epsilon
    if epsilon < 30:
        assert float(LAPLACE.epsilon(np.asarray(kept))) > epsilon - 1e-9
    assert LAPLACE.largest_kept(2.8) == 0.0
    assert LAPLACE.largest_kept(2.0) == 0.0


@pytest.mark.parametrize("kept", [LAPLACE, GAUSSIAN, KeptLaplace(0.4, 1)], ids=["laplace", "gaussian", "one step"])
@pytest.mark.parametrize("p_keep", [0.0, 0.3])
@pytest.mark.parametrize("order", [1.5, 2.0, 7.0])
def test_renyi_divergences_are_sums_over_the_grid(kept: Any, p_keep: float, order: float) -> None:
    first, second = law(kept, p_keep, 0), law(kept, p_keep, kept.steps)
    seen = (first > 0) & (second > 0)
    logs = order * np.log(first[seen]) + (1 - order) * np.log(second[seen])
    sums = float(np.logaddexp.reduce(logs)) / (order - 1)
    found = float(kept.renyi(np.asarray([order]), np.asarray(p_keep))[0])
    assert found == pytest.approx(sums, rel=1e-9)
    assert found >= sums * (1 - 1e-12)


@pytest.mark.parametrize("epsilon", [0.5, 2.0])
@pytest.mark.parametrize("p_keep", [0.0, 0.01, 0.3])
def test_the_delta_of_kept_gaussian_noise_is_a_sum(epsilon: float, p_keep: float) -> None:
    first, second = law(GAUSSIAN, p_keep, 0), law(GAUSSIAN, p_keep, 4)
    true = float(np.maximum(first - math.exp(epsilon) * second, 0).sum())
    assert GAUSSIAN.delta(epsilon, p_keep) == pytest.approx(true, rel=1e-6, abs=1e-12)


def test_the_largest_chance_to_keep_beside_gaussian_noise() -> None:
    plain = GAUSSIAN.delta(1.0, 0.0)
    for delta in (plain + 0.01, (1 + plain) / 2):
        kept = GAUSSIAN.largest_kept(1.0, delta)
        assert kept is not None
        assert kept > 0
        assert GAUSSIAN.delta(1.0, kept) <= delta
        assert GAUSSIAN.delta(1.0, kept + 1e-6) > delta
    assert GAUSSIAN.largest_kept(1.0, 1e-9) is None
    assert GAUSSIAN.largest_kept(1.0, plain * (1 - 1e-9)) in (None, 0.0)


@pytest.mark.parametrize(
    ("noise", "whole", "delta"),
    [
        ("laplace", False, 0.0),
        ("laplace", True, 0.0),
        ("laplace", True, 1e-3),
        ("gaussian", False, 1e-3),
        ("gaussian", True, 1e-3),
    ],
)
def test_a_choice_is_fed_back(noise: str, whole: bool, delta: float) -> None:
    """What was chosen spends no more than the budget, and nearly all of it; and a tenth less noise would not do."""
    request = Request(noise, 4, 3.0, delta, whole, (1.0,), (6,))
    chosen = choose(request)
    small: Any = KeptLaplace(chosen.law.rate * 1.1, 4) if noise == "laplace" else KeptGaussian(chosen.law.sigma / 1.1, 4)  # type: ignore[union-attr]  # noqa: E501  # fmt: skip
    if whole and noise == "gaussian":  # nothing is kept: six entries move by 4 each, as one moves by 4 sqrt(6)
        assert float(gaussian_delta(4 * math.sqrt(6) / chosen.law.sigma, 3.0)) <= delta * (1 + 1e-6)  # type: ignore[union-attr]
        assert float(gaussian_delta(4 * math.sqrt(6) / small.sigma, 3.0)) > delta
    elif whole:
        assert request.spent(chosen.law, chosen.p_keep) <= 3.0 * (1 + 1e-9)
        assert request.spent(small, chosen.p_keep) > 3.0
        if delta == 0:
            assert request.spent(chosen.law, chosen.p_keep) == pytest.approx(
                6 * float(chosen.law.epsilon(np.asarray(chosen.p_keep))), rel=1e-12  # type: ignore[union-attr]
            )  # fmt: skip
    elif noise == "laplace":
        assert float(chosen.law.epsilon(np.asarray(chosen.p_keep))) <= 3.0  # type: ignore[union-attr]
        assert float(small.epsilon(np.asarray(chosen.p_keep))) > 3.0
    else:
        assert chosen.law.delta(3.0, chosen.p_keep) <= delta  # type: ignore[union-attr]
        assert small.delta(3.0, chosen.p_keep) > delta
    mass = law(chosen.law, 0.0, 0)
    assert chosen.error == pytest.approx((1 - chosen.p_keep) * float((K**2 * mass).sum()), rel=1e-6)
    assert chosen.error <= chosen.plain
    assert chosen.helps == (chosen.p_keep > 0)


def test_no_other_noise_would_have_a_smaller_error() -> None:
    request = Request("laplace", 4, 7.0, 0.0, False, (1.0,), (1,))
    chosen = choose(request)
    assert chosen.helps
    errors = []
    for rate in np.linspace(0.05, 7 / 4, 2000):
        own = KeptLaplace(float(rate), 4)
        errors.append(request.error(own, own.largest_kept(7.0)))
    assert chosen.error <= min(errors) * (1 + 1e-5)
    assert chosen.plain == pytest.approx(errors[-1], rel=1e-6)
    assert not choose(Request("laplace", 4, 3.0, 0.0, False, (1.0,), (1,))).helps


def test_the_epsilon_at_a_delta_is_the_least_over_orders() -> None:
    """Canonne, Kamath, Steinke 2020, Proposition 12, at every order that is tried."""
    request = Request("gaussian", 4, 3.0, 1e-4, True, (0.5, 1.0), (2, 3))
    orders = calibration._ORDERS
    best = math.inf
    for order in orders:
        total = 2 * float(GAUSSIAN.renyi(np.asarray([order]), np.asarray(0.1))[0])
        total += 3 * float(GAUSSIAN.renyi(np.asarray([order]), np.asarray(0.2))[0])
        best = min(best, total + math.log(1 - 1 / order) - math.log(1e-4 * order) / (order - 1))
    assert request.spent(GAUSSIAN, 0.2) == pytest.approx(best, rel=1e-12)
    assert request.size == 5
    kept = (1 - 0.1) * 2 + (1 - 0.2) * 3
    assert request.error(GAUSSIAN, 0.2) == pytest.approx(kept / 5 * GAUSSIAN.noise.absolute[1], rel=1e-12)


def test_weights_are_grouped_toward_more_keeping() -> None:
    assert group(None, 7) == ((1.0,), (7,))
    assert group(np.ones(4), 4) == ((1.0,), (4,))
    shares, counts = group(np.asarray([0.2, 0.6, 0.2, 1.0, 0.6001]), 5)
    assert counts == (1, 2, 2)
    assert shares == (0.0, 0.5, 1.0)
    shares, _ = group(np.asarray([0.0, 0.5 - 1e-6]), 2)
    assert shares == (33 / 64, 1.0)


def test_many_entries_have_noise_as_smooth_as_real_noise() -> None:
    """From 64 steps on a variance of 4 more is added, and the whole is rounded outward."""
    request = Request("gaussian", 255, 0.1, 1e-6, True, (1.0,), (100,))
    plain: Any = calibration._plain(request)
    sigma = lattice_sigma(100 * 255, 0.1, 1e-6) / 10
    assert sigma >= 64
    assert sigma**2 + 4 < plain.sigma**2 < (sigma**2 + 4) * (1 + 1e-9)
    fine = Request("gaussian", 4, 3.0, 1e-6, True, (1.0,), (9,))
    own: Any = calibration._plain(fine)
    least = lattice_sigma(9 * 4, 3.0, 1e-6) / 3
    assert 2 <= least < 64
    assert least < own.sigma < least * (1 + 1e-9)
    with pytest.raises(ValueError, match="a rate above"):
        calibration._plain(Request("laplace", 2**24 - 1, 1e-6, 0.0, True, (1.0,), (10,)))
    chosen = NoiseChoice(LAPLACE, 0.0, 1.0, 1.0)
    assert not chosen.helps
