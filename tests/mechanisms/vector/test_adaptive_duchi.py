"""LDP-FL's mechanism: its two numbers, its budgets by enumeration, and what the published form truly keeps."""

from __future__ import annotations

import math
import time
from itertools import product
from typing import Any

import numpy as np
import pytest
from scipy.special import ndtri

import noisette as nz
from noisette.mechanisms.vector.adaptive_duchi import adaptive_range, composed_delta

ALARM = 1e-6


def published(**options: Any) -> nz.AdaptiveDuchi:
    with pytest.warns(nz.PrivacyWarning, match="does not hold"):
        return nz.AdaptiveDuchi(as_published=True, **options)


@pytest.mark.parametrize(("epsilon", "centre", "radius"), [(0.3, 0.0, 1.0), (1.0, 0.2, 0.05), (6.0, -3.0, 2.0)])
def test_the_two_numbers_and_their_chances_are_those_of_equation_2(
    epsilon: float, centre: float, radius: float
) -> None:
    m = published(epsilon=epsilon, domain=nz.Box(2, centre - radius, centre + radius))
    far = radius * (math.exp(epsilon) + 1) / (math.exp(epsilon) - 1)
    assert [float(m.support.low), float(m.support.high)] == pytest.approx([centre - far, centre + far], rel=1e-12)
    for w in np.linspace(centre - radius, centre + radius, 7):
        wanted = ((w - centre) * (math.exp(epsilon) - 1) + radius * (math.exp(epsilon) + 1)) / (
            2 * radius * (math.exp(epsilon) + 1)
        )
        both = np.full(2, float(m.support.high))
        assert math.exp(float(m.log_prob(both, np.full(2, w)))) == pytest.approx(wanted**2, rel=1e-9)
        # the variance of the spec, which Lemma 2 has without its last term
        variance = far**2 - (w - centre) ** 2
        assert m.moments(np.full(2, w)).variance == pytest.approx(variance, rel=1e-9)
        if w != centre:
            assert m.moments(np.full(2, w)).variance != pytest.approx(far**2, rel=1e-9, abs=1e-12 * far)


def test_each_layer_may_have_its_own_centre_and_radius() -> None:
    domain = nz.Box(3, (-1.0, 0.0, 5.0), (1.0, 0.1, 9.0))
    m = nz.AdaptiveDuchi(epsilon=6.0, domain=domain)
    x = np.tile([0.5, 0.02, 6.0], (200_000, 1))
    mean = m.aggregate(m.privatize(x, rng=3)).estimate()
    level = ndtri(1 - ALARM / 6)
    error = level * np.sqrt(m.moments(x[0]).variance / len(x))
    assert np.all(np.abs(mean.value - x[0]) <= error)
    assert np.any(np.abs(mean.value - 1.1 * x[0]) > error)  # the twin: a bias of a tenth shows
    assert m.support.contains(np.asarray([float(m.support.high[0]), *m.support.low[1:]]))


def enumerated_delta(count: int, epsilon: float, total: float) -> float:
    """Sum over all vectors of answers."""
    p_high = 1 / (1 + math.exp(-epsilon))
    answers = np.asarray(list(product([0, 1], repeat=count))).sum(axis=1)
    own, other = (
        p_high**answers * (1 - p_high) ** (count - answers),
        (1 - p_high) ** answers * p_high ** (count - answers),
    )
    return float(np.maximum(own - math.exp(total) * other, 0.0).sum())


@pytest.mark.parametrize("count", [1, 2, 5, 12])
@pytest.mark.parametrize("total", [0.0, 0.3, 1.0, 3.0])
def test_the_composed_delta_is_that_of_enumeration(count: int, total: float) -> None:
    for epsilon in (0.1, 0.5, 2.0):
        assert composed_delta(count, epsilon, total) == pytest.approx(
            enumerated_delta(count, epsilon, total), abs=1e-13
        )
    # the twin: basic composition says more
    if count > 2:
        assert composed_delta(count, 1.01 * total / count + 0.01, total) < 0.2


@pytest.mark.parametrize("dims", [1, 3, 64, 1000])
def test_a_delta_buys_a_larger_budget_for_each_weight_and_the_calculator_agrees(dims: int) -> None:
    pure, relaxed = nz.AdaptiveDuchi(1.0, dims), nz.AdaptiveDuchi(1.0, dims, delta=1e-6)
    assert pure.weight_epsilon == pytest.approx(1 / dims)
    assert relaxed.weight_epsilon > pure.weight_epsilon
    assert nz.exact_epsilon(pure) <= 1 + 1e-9
    assert nz.exact_epsilon(relaxed, delta=1e-6) == pytest.approx(1.0, rel=1e-4)
    assert nz.exact_epsilon(relaxed, delta=1e-6) <= 1 + 1e-9
    if dims == 1000:  # far less than d times the budget of one
        assert relaxed.weight_epsilon > 7 * pure.weight_epsilon


def test_the_published_form_says_what_holds_for_a_weight_and_for_the_model() -> None:
    m = published(epsilon=1.0, dims=50)
    assert (m.guarantee.epsilon, m.guarantee.unit) == (50.0, "record")
    assert (m.per_weight.epsilon, m.per_weight.unit) == (1.0, "element")
    assert m.guarantee.claim is not None
    assert (m.guarantee.claim.epsilon, m.guarantee.claim_holds) == (1.0, False)
    assert nz.exact_epsilon(m) == pytest.approx(50.0, rel=1e-9)
    assert nz.AdaptiveDuchi(1.0, 1, as_published=True).guarantee.claim_holds  # one weight is the model


def test_the_next_range_comes_from_noisy_weights() -> None:
    assert adaptive_range(np.asarray([[0.5, -1.5], [0.0, 0.2]])) == nz.Interval(-1.5, 0.5)
    with pytest.raises(ValueError, match="Keep the last range"):
        adaptive_range([1.0, 1.0])
    with pytest.raises(ValueError, match="nan"):
        adaptive_range([1.0, math.nan])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"epsilon": -1.0, "dims": 3}, "epsilon=-1.0 > 0"),
        ({"epsilon": 1e-6, "dims": 10_000_000}, "Give a delta"),
        ({"epsilon": 1.0, "dims": 3, "delta": 1.5}, "delta=1.5"),
        ({"epsilon": 1.0, "dims": 3, "delta": 1e-6, "as_published": True}, "pure epsilon"),
        ({"epsilon": 1.0, "domain": nz.Box(3), "dims": 4}, "dims=4"),
    ],
)
def test_bad_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        nz.AdaptiveDuchi(**options)


def test_weights_outside_and_what_is_no_report_are_refused() -> None:
    m = nz.AdaptiveDuchi(1.0, domain=nz.Box(2, -0.1, 0.1))
    with pytest.raises(ValueError, match=r"\[-0.1, 0.1\] in dimension 1, got 0.2.*clip=True"):
        m.privatize([0.0, 0.2])
    assert m.support.contains(m.privatize([0.0, 0.2], clip=True))
    for bad in ([math.nan, 0.0], [math.inf, 0.0]):
        with pytest.raises(ValueError, match="finite"):
            m.privatize(bad)
    for report in ([0.0, 0.0], [math.nan, 0.0], [float(m.support.high), 1.0]):
        with pytest.raises(ValueError, match="outside the support"):
            m.aggregate([report])
    with pytest.raises(ValueError, match="shape"):
        m.privatize([0.0, 0.0, 0.0])


@pytest.mark.slow
@pytest.mark.parametrize(("epsilon", "dims"), [(1e-6, 1), (1e-6, 10**6), (1e3, 1), (1e3, 10**6)])
def test_extremes_work(epsilon: float, dims: int) -> None:
    m = nz.AdaptiveDuchi(epsilon, dims)
    y = m.privatize(np.zeros(dims), rng=1)
    assert np.isfinite(y).all()
    assert m.support.contains(y)
    assert nz.exact_epsilon(m) <= epsilon * (1 + 1e-9)


def test_ten_million_weights_take_little_more_than_their_uniform_draws() -> None:
    """A core draws ten million uniform numbers in some 0.04 s: twenty times that is below a second."""
    m, weights = nz.AdaptiveDuchi(1.0, 2_000_000, delta=1e-6), np.zeros(2_000_000)

    def cpu(work: Any) -> float:
        times = []
        for _ in range(4):
            start = time.process_time()
            work()
            times.append(time.process_time() - start)
        return min(times)

    assert cpu(lambda: m.privatize(weights, rng=1)) < 20 * cpu(lambda: np.random.default_rng(1).random(2_000_000))
