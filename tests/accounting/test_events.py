"""What dp-accounting is told: events that dominate, never through the count that it ignores."""

from __future__ import annotations

import math

import dp_accounting
import numpy as np
import pytest
from dp_accounting import pld, rdp

import noisette as nz
from noisette.accounting import compose, event, gdp, loss_distribution, randomized_response_epsilon

REPLACE = dp_accounting.NeighboringRelation.REPLACE_ONE
DELTA = 1e-6


def _spent(happened: dp_accounting.DpEvent, delta: float = DELTA, interval: float = 1e-4) -> float:
    return float(pld.PLDAccountant(REPLACE, interval).compose(happened).get_epsilon(delta))


@pytest.mark.long
@pytest.mark.parametrize("epsilon", [0.1, 4.0])
@pytest.mark.parametrize("name", sorted(nz.CATALOGUE))
def test_every_mechanism_emits_an_event_that_dominates_it(name: str, epsilon: float) -> None:
    """The event, composed by dp-accounting, never promises more than our own composition of the likelihoods."""
    mechanism = nz.CATALOGUE[name].example(epsilon)
    happened = event(mechanism, times=4)
    ours = compose(mechanism, 4, delta=DELTA).epsilon
    accountant = rdp.RdpAccountant(neighboring_relation=REPLACE)
    assert accountant.supports(happened)
    assert accountant.compose(happened).get_epsilon(DELTA) >= ours * (1 - 1e-6)
    if mechanism.guarantee.delta == 0:
        assert _spent(happened) >= ours * (1 - 1e-6)


def test_randomized_response_is_told_exactly() -> None:
    mechanism = nz.GeneralizedRandomizedResponse(epsilon=1.0, domain=nz.Categorical(17))
    happened = event(mechanism)
    assert happened.num_buckets == 17
    assert happened.noise_parameter == pytest.approx(17 / (math.e + 16), rel=1e-9)
    assert event(nz.Duchi(epsilon=1.0)).num_buckets == 2


def test_normal_noise_is_told_by_its_diameter() -> None:
    mechanism = nz.Gaussian(epsilon=1.0, delta=1e-6, domain=nz.Interval(0, 100))
    assert event(mechanism).noise_multiplier == pytest.approx(mechanism.sigma / 100, rel=1e-6)
    assert gdp(mechanism) == pytest.approx(100 / mechanism.sigma, rel=1e-6)
    assert gdp(nz.Laplace(epsilon=1.0)) is None


def test_noise_on_a_coarse_grid_is_concentrated_not_gaussian() -> None:
    """With sigma of some steps only, discrete Gaussian noise has another delta than the normal law."""
    mechanism = nz.DiscreteGaussian(epsilon=1.0, delta=1e-6, domain=nz.Grid(0, 1))
    happened = event(mechanism)
    assert isinstance(happened, dp_accounting.ZCDpEvent)
    assert happened.rho == pytest.approx(1 / (2 * mechanism.sigma**2), rel=1e-6)
    assert gdp(mechanism) is None


def test_the_count_is_ignored_by_dp_accounting_so_we_write_repetitions_out() -> None:
    """The twin: the compact event reports ten rounds as one. If this fails, dp-accounting was mended."""
    one = event(nz.Duchi(epsilon=1.0))
    compact = dp_accounting.SelfComposedDpEvent(one, 10)
    exact = randomized_response_epsilon(1.0, 10, DELTA)
    assert _spent(compact) == pytest.approx(1.0, abs=1e-3)
    assert exact * (1 - 1e-9) <= _spent(event(nz.Duchi(epsilon=1.0), times=10)) <= exact * 1.001


@pytest.mark.parametrize("name", ["duchi", "grr", "laplace", "hybrid", "sampled", "gaussian", "discrete-gaussian"])
def test_self_composed_equals_unrolled(name: str) -> None:
    one = loss_distribution(nz.CATALOGUE[name].example(0.5), dots=100)
    unrolled = one
    for _ in range(6):
        unrolled = unrolled.compose(one)
    together = one.self_compose(7)
    for epsilon in (0.0, 0.4, 1.1, 2.3):
        first, second = (float(p.get_delta_for_epsilon(epsilon)) for p in (together, unrolled))
        assert first == pytest.approx(second, rel=1e-9, abs=1e-13)
        assert first > float(one.get_delta_for_epsilon(epsilon))


def test_distributions_of_one_interval_compose() -> None:
    mixed = [nz.Duchi(epsilon=0.3), nz.Laplace(epsilon=0.5), nz.Gaussian(epsilon=0.5, delta=1e-6)]
    whole = loss_distribution(mixed[0], interval=1e-3)
    for mechanism in mixed[1:]:
        whole = whole.compose(loss_distribution(mechanism, interval=1e-3))
    assert float(whole.get_epsilon_for_delta(1e-5)) == pytest.approx(compose(mixed, delta=1e-5).epsilon, rel=5e-3)


def test_what_has_no_event_says_so() -> None:
    assert isinstance(event(nz.Guarantee(1.0, 1e-6)), dp_accounting.NonPrivateDpEvent)
    assert isinstance(event(nz.Guarantee(1000.0)), dp_accounting.NonPrivateDpEvent)
    assert isinstance(event(nz.Guarantee(0.0)), dp_accounting.NoOpDpEvent)


def test_events_of_all_budgets_are_finite() -> None:
    for epsilon in np.geomspace(1e-6, 600, 12):
        happened = event(nz.Guarantee(float(epsilon)))
        assert 0 < happened.noise_parameter < 1


def test_bad_arguments() -> None:
    with pytest.raises(ValueError, match="times=0"):
        event(nz.Duchi(epsilon=1.0), times=0)
    with pytest.raises(ValueError, match=r"interval=-1\.0"):
        loss_distribution(nz.Duchi(epsilon=1.0), interval=-1.0)
