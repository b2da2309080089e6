"""Composition: against enumeration of the products, exact sums in many digits, and each other."""

from __future__ import annotations

import itertools
import math

import mpmath
import numpy as np
import pytest

import noisette as nz
from noisette.accounting import (
    compose,
    gdp_epsilon,
    loss_distribution,
    privacy_curve,
    randomized_response_delta,
    randomized_response_epsilon,
    zcdp,
    zcdp_epsilon,
)
from noisette.accounting.composition import meets, summed_epsilon

DELTA = 1e-6


def _sum_of_the_formula(epsilon: float, times: int, total: float) -> float:
    """The spec's sum, term by term with sixty digits."""
    with mpmath.workdps(60):
        e, t = mpmath.mpf(epsilon), mpmath.mpf(total)
        terms = (
            mpmath.binomial(times, j) * max(mpmath.mpf(0), mpmath.exp(j * e) - mpmath.exp(t + (times - j) * e))
            for j in range(times + 1)
        )
        return float(sum(terms, mpmath.mpf(0)) / (1 + mpmath.exp(e)) ** times)


@pytest.mark.parametrize("epsilon", [1e-3, 0.1, 1.0, 5.0])
@pytest.mark.parametrize("times", [1, 2, 7, 100])
def test_randomized_response_is_the_exact_sum(epsilon: float, times: int) -> None:
    for share in (0.0, 0.1, 0.5, 0.97, 1.3):
        total = share * times * epsilon
        expected = _sum_of_the_formula(epsilon, times, total)
        assert randomized_response_delta(epsilon, times, total) == pytest.approx(expected, rel=1e-11, abs=1e-300)


@pytest.mark.slow
@pytest.mark.parametrize(("epsilon", "total"), [(0.01, 60.0), (0.001, 5.0), (0.05, 1500.0)])
def test_a_million_responses(epsilon: float, total: float) -> None:
    """The same sum over the terms that count, by their ratios, with forty digits."""
    times = 10**6
    with mpmath.workdps(40):
        e, t = mpmath.mpf(epsilon), mpmath.mpf(total)
        odds = mpmath.exp(e)
        first = int(mpmath.floor((times + t / e) / 2)) + 1
        log_term = mpmath.loggamma(times + 1) - mpmath.loggamma(first + 1) - mpmath.loggamma(times - first + 1)
        term = mpmath.exp(log_term + first * e - times * mpmath.log(1 + odds))
        sum_ = mpmath.mpf(0)
        for j in range(first, first + 9_000):
            sum_ += term * -mpmath.expm1(t - (2 * j - times) * e)
            term *= odds * (times - j) / (j + 1)
        expected = float(sum_)
    assert randomized_response_delta(epsilon, times, total) == pytest.approx(expected, rel=1e-10)


@pytest.mark.slow
def test_the_epsilon_of_responses_is_the_least() -> None:
    for epsilon, times in ((1.0, 100), (0.01, 10**6), (3.0, 2)):
        total = randomized_response_epsilon(epsilon, times, DELTA)
        assert randomized_response_delta(epsilon, times, total) <= DELTA
        assert randomized_response_delta(epsilon, times, total * (1 - 1e-9)) > DELTA * (1 - 1e-9)
    assert randomized_response_epsilon(0.5, 7, 0.0) == 3.5


def _divergence(first: np.ndarray, second: np.ndarray, epsilon: float) -> float:
    return float(np.maximum(first - math.exp(epsilon) * second, 0).sum())


def _product(laws: list[np.ndarray]) -> np.ndarray:
    """The law of independent reports, over all combinations of them."""
    whole = np.ones(1)
    for law in laws:
        whole = np.outer(whole, law).reshape(-1)
    return whole


@pytest.mark.parametrize("times", [2, 5])
def test_repeated_response_over_categories_is_the_enumerated_product(times: int) -> None:
    k = 4
    mechanism = nz.GeneralizedRandomizedResponse(epsilon=1.0, domain=nz.Categorical(k))
    law = np.exp(mechanism.log_prob(np.arange(k), np.arange(k)[:, None]))
    first, second = (_product([law[x]] * times) for x in (0, 1))
    found = compose(mechanism, times, delta=1e-3)
    assert _divergence(first, second, found.epsilon) <= 1e-3
    assert _divergence(first, second, found.epsilon * 0.9999) > 1e-3, "not tight"
    # the twin: randomised response of two categories, which the pure epsilon alone allows, is told apart more easily
    assert randomized_response_delta(1.0, times, found.epsilon) > 2e-3


def test_different_releases_are_the_enumerated_product() -> None:
    mechanisms = [
        nz.Duchi(epsilon=0.7),
        nz.GeneralizedRandomizedResponse(epsilon=0.4, domain=nz.Categorical(3)),
        nz.HadamardResponse(epsilon=1.1, domain=nz.Categorical(3)),
    ]
    laws = []
    for mechanism in mechanisms:
        reports = (
            np.asarray(mechanism.support.values) if mechanism.name == "duchi" else np.arange(mechanism.support.size)
        )
        pair = [-1.0, 1.0] if mechanism.name == "duchi" else [0, 1]
        laws.append([np.exp(mechanism.log_prob(reports, x)) for x in pair])
    delta = 1e-3
    found = compose(mechanisms, 2, delta=delta).epsilon
    worst = max(
        _divergence(_product([law[i] for law, i in zip(laws, way, strict=True)] * 2),
                    _product([law[1 - i] for law, i in zip(laws, way, strict=True)] * 2), found)
        for way in itertools.product((0, 1), repeat=3)
    )  # fmt: skip
    assert delta * 0.97 <= worst <= delta


@pytest.mark.parametrize("times", [1, 3, 20])
def test_approximate_guarantees_compose_as_kairouz_oh_viswanath(times: int) -> None:
    """delta = 1 - (1 - d)^k (1 - delta of randomised response): the failures are independent of the responses."""
    found = compose(nz.Guarantee(0.3, 1e-4), times, delta=0.05)
    pure = randomized_response_delta(0.3, times, found.epsilon)
    assert 1 - (1 - 1e-4) ** times * (1 - pure) == pytest.approx(0.05, rel=1e-3)
    assert 1 - (1 - 1e-4) ** times * (1 - pure) <= 0.05


def test_normal_noise_adds_up_in_squares() -> None:
    one, other = nz.Gaussian(epsilon=1.0, delta=1e-6), nz.Gaussian(epsilon=0.5, delta=1e-6)
    mu = math.sqrt(10 * ((2 / one.sigma) ** 2 + (2 / other.sigma) ** 2))
    assert compose([one, other], 10, delta=DELTA).epsilon == pytest.approx(gdp_epsilon(mu, DELTA), rel=1e-6)
    assert compose(one, delta=1e-6).epsilon == pytest.approx(1.0, rel=1e-6)


def test_distribution_agrees_with_normal_noise_in_closed_form() -> None:
    """Mixed with a release that says almost nothing, Gaussian noise goes through the privacy loss distribution."""
    mechanism = nz.Gaussian(epsilon=1.0, delta=1e-6)
    alone = compose(mechanism, 30, delta=DELTA).epsilon
    mixed = compose([mechanism, nz.Duchi(epsilon=1e-6)], 30, delta=DELTA).epsilon
    assert alone * (1 - 1e-6) <= mixed <= alone * 1.002


@pytest.mark.long
def test_many_reports_cost_less_than_their_sum() -> None:
    """Laplace: between the normal limit, whose mean and variance are known, and concentrated privacy."""
    e0, times = 0.01, 10**6
    found = compose(nz.Laplace(epsilon=e0), times, delta=DELTA).epsilon
    assert found <= zcdp_epsilon(times * zcdp(nz.Laplace(epsilon=e0)), DELTA)
    assert found == pytest.approx(gdp_epsilon(e0 * math.sqrt(times) * (1 - e0 / 6), DELTA), rel=2e-3)
    assert found < randomized_response_epsilon(e0, times, DELTA) < times * e0


@pytest.mark.parametrize("name", ["duchi", "grr", "laplace", "piecewise", "oue", "privunit", "sampled"])
def test_one_release_costs_at_most_what_it_states(name: str) -> None:
    mechanism = nz.CATALOGUE[name].example(1.0)
    assert compose(mechanism).epsilon == 1.0
    once = compose(mechanism, delta=1e-3)
    assert once.epsilon <= 1.0
    assert float(privacy_curve(mechanism).delta(once.epsilon)) == pytest.approx(1e-3, rel=1e-3)


def test_large_totals_are_found_without_underflow() -> None:
    """The twin: dp-accounting's own inversion is off by one at a thousand, where exp(-loss) is zero in float64."""
    exact = randomized_response_epsilon(1.0, 2000, DELTA)
    assert exact > 900
    assert exact <= summed_epsilon([privacy_curve(nz.Duchi(epsilon=1.0))], 2000, DELTA) <= exact * (1 + 1e-6)
    whole = loss_distribution(nz.Duchi(epsilon=1.0)).self_compose(2000)
    assert float(whole.get_epsilon_for_delta(DELTA)) > exact + 0.1


@pytest.mark.parametrize("epsilon", [600.0, 709.9, 720.0, 744.0, 1000.0])
@pytest.mark.parametrize("times", [1, 2, 10])
def test_budgets_whose_chances_leave_the_floats(epsilon: float, times: int) -> None:
    """exp(-710) has no inverse in float64 and exp(-746) is zero: the answer is still the exact sum's.

    The twin is to add budgets up, which states more than holds.
    """
    delta = 0.3
    found = compose(nz.Duchi(epsilon=epsilon), times, delta=delta).epsilon
    assert _sum_of_the_formula(epsilon, times, found * (1 + 1e-13)) <= delta  # it holds
    assert _sum_of_the_formula(epsilon, times, found * (1 - 1e-11)) > delta  # and no less does
    assert _sum_of_the_formula(epsilon, times, epsilon * times) == 0
    assert found < epsilon * times - 0.3


@pytest.mark.slow
@pytest.mark.parametrize("delta", [1e-12, 1e-15, 1e-60])
def test_small_deltas_are_better_than_concentrated_privacy(delta: float) -> None:
    found, rho = compose(nz.Laplace(epsilon=0.1), 400, delta=delta).epsilon, zcdp(nz.Laplace(epsilon=0.1))
    assert 0.9 < found / min(zcdp_epsilon(400 * rho, delta), 40.0) <= 1
    assert found > compose(nz.Laplace(epsilon=0.1), 400, delta=10 * delta).epsilon


@pytest.mark.slow
def test_meets_agrees_with_compose() -> None:
    for released in (nz.Duchi(epsilon=0.2), nz.Laplace(epsilon=0.2), nz.Guarantee(0.2), nz.Guarantee(0.2, 1e-9)):
        total = compose(released, 50, delta=DELTA).epsilon
        assert meets(released, 50, total * (1 + 1e-9), DELTA)
        assert not meets(released, 50, total * 0.999, DELTA)
    assert meets(nz.Guarantee(0.2), 5, 1.0, 0.0)
    assert not meets(nz.Guarantee(0.2, 1e-6), 5, 1.0, 1e-6)


def test_unit_model_and_relation_stay_and_must_agree() -> None:
    local = nz.Guarantee(0.5, unit="element")
    assert compose(local, 4).unit == "element"
    assert compose(local, 4) == nz.Guarantee(2.0, unit="element")
    with pytest.raises(ValueError, match="cannot be counted as"):
        compose([local, nz.Guarantee(0.5)])


def test_basic_composition_adds_up_where_no_delta_is_given() -> None:
    summed = compose(nz.Gaussian(epsilon=0.5, delta=1e-7), 3)
    assert (summed.epsilon, summed.delta) == (1.5, pytest.approx(3e-7))
    graded = nz.Guarantee(1.0, matrix=((0.0, 1.0), (1.0, 0.0)))
    assert compose(graded, 2).matrix == ((0.0, 2.0), (2.0, 0.0))


def test_bad_arguments() -> None:
    with pytest.raises(ValueError, match="at least one release"):
        compose([])
    with pytest.raises(ValueError, match="times=0"):
        compose(nz.Guarantee(1.0), 0)
    with pytest.raises(ValueError, match=r"delta=1\.5"):
        compose(nz.Guarantee(1.0), delta=1.5)
    with pytest.raises(ValueError, match="No epsilon meets delta=1e-09"):
        compose(nz.Guarantee(1.0, 1e-6), 10, delta=1e-9)
    with pytest.raises(TypeError, match="got int"):
        compose(3)
    with pytest.raises(ValueError, match=r"total=-1\.0"):
        randomized_response_delta(1.0, 2, -1.0)


def test_a_delta_that_is_just_enough_lets_budgets_add_up() -> None:
    """The sum of the deltas itself is allowed; below it only a larger epsilon is found, or none."""
    for times in (1, 4):
        own = nz.Guarantee(0.75, 2.0**-20)
        found = compose(own, times, delta=times * 2.0**-20)
        assert 0.75 * times * (1 - 1e-9) <= found.epsilon <= 0.75 * times
        assert found.delta == times * 2.0**-20
        with pytest.raises(ValueError, match="No epsilon meets delta"):
            compose(own, times, delta=times * 2.0**-21)
