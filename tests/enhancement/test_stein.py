"""Slopes against finite differences, and estimated risks against true losses."""

import numpy as np
import pytest

from noisette.enhancement import averaging, bounds, hdr4me, npmle, shrinkage, simplex
from noisette.enhancement.stein import Enhanced, clipped, pooled_square, unbiased_risk

Z = 4.9  # two-sided normal quantile of a false-alarm rate of 1e-6

RULES = {
    "box": bounds.box,
    "uniform-prior": bounds.uniform_prior,
    "l1": hdr4me.l1,
    "l2": hdr4me.l2,
    "star": hdr4me.star,
    "james-stein": shrinkage.james_stein,
    "james-stein-zero": lambda y, s: shrinkage.james_stein(y, s, target="zero"),
    "simplex": simplex.simplex,
}


def numeric_slope(rule, y, s, step=1e-6):
    slopes = np.empty_like(y)
    for j in range(y.size):
        up, down = y.copy(), y.copy()
        up[j] += step
        down[j] -= step
        slopes[j] = (rule(up, s).value[j] - rule(down, s).value[j]) / (2 * step)
    return slopes


@pytest.mark.parametrize("name", RULES)
def test_slope_is_the_derivative_of_each_value_by_its_own_observation(name):
    rng = np.random.default_rng(4)
    y = rng.normal(0.1, 0.6, 12)
    s = np.full(12, 0.4)
    assert RULES[name](y, s).slope == pytest.approx(numeric_slope(RULES[name], y, s), abs=1e-5)


@pytest.mark.parametrize("name", ["box", "uniform-prior", "l1", "l2", "star"])
def test_slope_holds_with_unequal_errors(name):
    rng = np.random.default_rng(5)
    y, s = rng.normal(0.0, 0.8, 15), rng.uniform(0.05, 2.0, 15)
    assert RULES[name](y, s).slope == pytest.approx(numeric_slope(RULES[name], y, s), abs=1e-5)


@pytest.mark.long
@pytest.mark.parametrize("unequal", [False, True])
@pytest.mark.parametrize("name", [name for name in RULES if name != "simplex"])
def test_risk_is_unbiased(name, unequal):
    """Mean of estimated less true loss over 1,500 draws, within 4.9 standard errors.

    Slopes that are a tenth too small miss it by eleven of them and more.
    """
    rng = np.random.default_rng(6)
    truth = rng.uniform(-1, 1, 8)
    s = rng.uniform(0.2, 0.8, 8) if unequal else np.full(8, 0.5)
    gaps = []
    for _ in range(1_500):
        y = truth + s * rng.standard_normal(8)
        result = RULES[name](y, s)
        gaps.append(np.sum(result.risk - (result.value - truth) ** 2))
    gaps = np.asarray(gaps)
    # James-Stein's weights hang on an estimated spread when errors differ: allow it 2 % of the raw risk.
    slack = 0.02 * np.sum(s**2) if unequal and name.startswith("james") else 0.0
    assert abs(gaps.mean()) <= Z * gaps.std() / np.sqrt(gaps.size) + slack


@pytest.mark.slow
def test_a_risk_without_the_slope_is_rejected():
    """The twin: dropping the divergence term is a bias that the test above would see."""
    rng = np.random.default_rng(6)
    truth, s = rng.uniform(-1, 1, 8), np.full(8, 0.5)
    gaps = []
    for _ in range(4_000):
        y = truth + s * rng.standard_normal(8)
        result = bounds.uniform_prior(y, s)
        wrong = unbiased_risk(y, s, result.value, np.zeros(8))
        gaps.append(np.sum(wrong - (result.value - truth) ** 2))
    gaps = np.asarray(gaps)
    assert abs(gaps.mean()) > 10 * Z * gaps.std() / np.sqrt(gaps.size)


@pytest.mark.long
@pytest.mark.parametrize("rule", [npmle.npmle, averaging.bayes])
def test_learned_priors_report_a_risk_that_is_not_too_low(rule):
    """Fitted on other folds the risk is that of a slightly worse rule: its mean is not below the true loss."""
    rng = np.random.default_rng(7)
    gaps = []
    for _ in range(60):
        truth = np.where(rng.random(80) < 0.2, 0.8, 0.0)
        s = rng.uniform(0.2, 0.5, 80)
        y = truth + s * rng.standard_normal(80)
        result = rule(y, s)
        gaps.append(np.mean(result.risk - (result.value - truth) ** 2))
    gaps = np.asarray(gaps)
    assert gaps.mean() > -Z * gaps.std() / np.sqrt(gaps.size)
    assert gaps.mean() < 0.02  # of a raw risk of about 0.13


def test_clipping_never_moves_away_from_a_truth_inside():
    rng = np.random.default_rng(8)
    value = rng.normal(0, 2, 1_000)
    truth = rng.uniform(-1, 1, 1_000)
    ones = np.ones(1_000)
    result = clipped(value, ones, Enhanced(value, ones, ones, ones))
    assert np.all(np.abs(result.value - truth) <= np.abs(value - truth))
    assert np.all(result.slope[np.abs(value) > 1] == 0)


def test_pooled_square_is_the_mean_square_of_the_truths():
    rng = np.random.default_rng(9)
    truth = np.full(200_000, 0.7)
    found = pooled_square(truth + rng.standard_normal(truth.size), np.ones(truth.size))
    spread = np.sqrt(2 + 4 * 0.49) / np.sqrt(truth.size)
    assert abs(found - (0.49 + spread)) < Z * spread
    assert pooled_square(np.empty(0), np.empty(0)) == 0.0
