"""Calibration: what it returns meets the target, and a little more would not."""

from __future__ import annotations

import math

import dp_accounting
import pytest
from dp_accounting import rdp as renyi

import noisette as nz
from noisette.accounting import (
    calibrate,
    compose,
    gdp_epsilon,
    noise_multiplier,
    randomized_response_delta,
    report_epsilon,
    sampled_gaussian,
    shuffled,
)

DELTA = 1e-6


@pytest.mark.parametrize(("epsilon", "times"), [(1.0, 10), (8.0, 1000), (2.0, 10**6)])
def test_report_epsilon_is_the_largest(epsilon: float, times: int) -> None:
    budget = report_epsilon(epsilon, DELTA, times=times)
    assert randomized_response_delta(budget, times, epsilon) <= DELTA
    assert randomized_response_delta(budget * 1.002, times, epsilon) > DELTA
    assert budget >= epsilon / times * (1 - 1e-6)


def test_without_a_delta_the_budget_is_divided() -> None:
    assert report_epsilon(1.0, times=50) == pytest.approx(0.02, rel=1e-3)
    assert 50 * report_epsilon(1.0, times=50) <= 1.0


def test_a_mechanism_is_calibrated_by_its_own_likelihoods() -> None:
    domain = nz.Categorical(50)
    mechanism = calibrate(lambda e: nz.GeneralizedRandomizedResponse(e, domain), 1.0, DELTA, times=30)
    assert compose(mechanism, 30, delta=DELTA).epsilon <= 1.0
    more = nz.GeneralizedRandomizedResponse(mechanism.epsilon * 1.003, domain)
    assert compose(more, 30, delta=DELTA).epsilon > 1.0
    # randomised response over 50 categories reveals less than its epsilon alone allows
    assert mechanism.epsilon > 2 * report_epsilon(1.0, DELTA, times=30)


@pytest.mark.slow
def test_a_budget_takes_few_compositions() -> None:
    """Halving from the sum of budgets on composed a dozen times."""
    built = []

    def build(epsilon: float) -> nz.Laplace:
        built.append(epsilon)
        return nz.Laplace(epsilon=epsilon)

    mechanism = calibrate(build, 8.0, DELTA, times=300)
    assert len(set(built)) <= 7
    assert compose(mechanism, 300, delta=DELTA).epsilon <= 8.0
    assert compose(nz.Laplace(epsilon=mechanism.epsilon * 1.003), 300, delta=DELTA).epsilon > 8.0


@pytest.mark.parametrize(("epsilon", "times"), [(0.01, 3), (0.5, 1), (30.0, 4), (1000.0, 2)])
def test_a_calibrated_budget_is_the_largest(epsilon: float, times: int) -> None:
    """The twin is a budget a little larger."""
    mechanism = calibrate(lambda e: nz.Laplace(epsilon=e), epsilon, DELTA, times=times)
    assert compose(mechanism, times, delta=DELTA).epsilon <= epsilon
    assert compose(nz.Laplace(epsilon=mechanism.epsilon * 1.003), times, delta=DELTA).epsilon > epsilon


@pytest.mark.long
def test_weights_are_calibrated_through_a_shuffler() -> None:
    """Three hundred weights and clients: the budget of each weight for epsilon 8 in the shuffled model."""
    mechanism = calibrate(nz.Duchi, 8.0, DELTA, times=300, users=300, tolerance=0.02)
    assert shuffled(mechanism, 300, DELTA, times=300).epsilon <= 8.0
    more = nz.Duchi(epsilon=mechanism.epsilon * 1.04)
    assert shuffled(more, 300, DELTA, times=300).epsilon > 8.0
    assert mechanism.epsilon > 8 * report_epsilon(8.0, DELTA, times=300)


def test_no_sampling_is_exact() -> None:
    found = sampled_gaussian(5.0, DELTA, releases=25)
    assert found.epsilon == pytest.approx(gdp_epsilon(1.0, DELTA))
    assert (found.unit, found.model, found.relation) == ("example", "central", "add-remove")
    replaced = sampled_gaussian(5.0, DELTA, releases=25, relation="replace")
    assert replaced.epsilon == pytest.approx(gdp_epsilon(2.0, DELTA))
    assert replaced.relation == "replace"
    multiplier = noise_multiplier(2.0, DELTA, releases=100)
    assert sampled_gaussian(multiplier, DELTA, releases=100).epsilon <= 2.0 * (1 + 1e-9)
    assert sampled_gaussian(multiplier * 0.999, DELTA, releases=100).epsilon > 2.0


@pytest.mark.parametrize(("multiplier", "releases", "sampling_prob"), [(1.0, 1000, 0.01), (0.8, 100, 0.05)])
def test_sampling_agrees_with_renyi_accounting(multiplier: float, releases: int, sampling_prob: float) -> None:
    """dp-accounting's Renyi accountant is another computation, and an upper bound; no sampling is one, too."""
    found = sampled_gaussian(multiplier, DELTA, releases=releases, sampling_prob=sampling_prob).epsilon
    step = dp_accounting.PoissonSampledDpEvent(sampling_prob, dp_accounting.GaussianDpEvent(multiplier))
    bound = renyi.RdpAccountant().compose(step, releases).get_epsilon(DELTA)
    assert 0.8 * bound <= found <= bound
    assert found < sampled_gaussian(multiplier, DELTA, releases=releases).epsilon


def test_one_sampled_release_in_closed_form() -> None:
    """delta of one release, removing an example: the mixture q N(1, s^2) + (1 - q) N(0, s^2) against N(0, s^2)."""
    q, s, delta = 0.1, 1.0, 1e-4
    epsilon = sampled_gaussian(s, delta, sampling_prob=q).epsilon
    inner = math.log1p(math.expm1(epsilon) / q)  # exp(inner) = (exp(epsilon) - 1 + q) / q
    normal = [0.5 * math.erfc((inner * s + sign * 0.5 / s) / math.sqrt(2)) for sign in (-1, 1)]
    exact = q * (normal[0] - math.exp(inner) * normal[1])
    assert exact == pytest.approx(delta, rel=2e-3)
    assert exact <= delta


@pytest.mark.slow
@pytest.mark.parametrize(
    ("epsilon", "releases", "sampling_prob"),
    [(2.0, 300, 0.02), (0.1, 50, 0.3), (30.0, 80, 0.25), (1.0, 1, 0.1), (8.0, 20, 0.999), (1e-3, 10, 0.5)],
)
def test_noise_multiplier_is_the_least(epsilon: float, releases: int, sampling_prob: float) -> None:
    options = {"releases": releases, "sampling_prob": sampling_prob}
    found = noise_multiplier(epsilon, DELTA, **options)
    assert sampled_gaussian(found, DELTA, **options).epsilon <= epsilon
    assert sampled_gaussian(found * 0.997, DELTA, **options).epsilon > epsilon


@pytest.mark.slow
def test_a_multiplier_takes_few_compositions() -> None:
    from noisette.accounting import sampling

    sampling._amplified.cache_clear()
    multiplier = noise_multiplier(3.0, 1e-5, releases=1000, sampling_prob=0.01)
    composed = sampling._amplified.cache_info().misses
    assert composed <= 10
    sampled_gaussian(multiplier, 1e-5, releases=1000, sampling_prob=0.01)
    assert sampling._amplified.cache_info().misses == composed


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: noise_multiplier(1.0, 0.0), r"delta=0\.0"),
        (lambda: noise_multiplier(-1.0, DELTA), r"epsilon=-1\.0"),
        (lambda: noise_multiplier(1.0, DELTA, sampling_prob=0.0), r"sampling_prob=0\.0"),
        (lambda: noise_multiplier(1.0, DELTA, releases=0), "releases=0"),
        (lambda: sampled_gaussian(0.0, DELTA), r"noise_multiplier=0\.0"),
        (lambda: sampled_gaussian(1.0, DELTA, relation="any-pair"), "relation='any-pair'"),
        (lambda: report_epsilon(1e-9, times=10), "No budget of"),
        (lambda: report_epsilon(1.0, times=0), "times=0"),
        (lambda: report_epsilon(1.0, times=10, users=100), r"delta=0\.0 > 0"),
    ],
)
def test_bad_arguments(call: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()
