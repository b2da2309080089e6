"""Projection against a general optimiser, and what each rule promises."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize

import noisette as nz
from noisette.enhancement.simplex import base_cut, project, simplex

numbers = st.lists(st.floats(-5, 5), min_size=1, max_size=12)


def estimate(values, errors, **options):
    values = np.asarray(values, dtype=float)
    errors = np.broadcast_to(np.asarray(errors, dtype=float), values.shape).copy()
    options = {"low": 0.0, "high": 1.0, "kind": "frequency"} | options
    return nz.Estimate(values, errors, np.full(values.size, 1_000), **options)


@pytest.mark.slow
@given(numbers)
def test_projection_lies_on_the_simplex_and_is_the_nearest_point(values):
    values = np.asarray(values)
    found = project(values)
    assert found.min() >= 0
    assert found.sum() == pytest.approx(1, abs=1e-9)
    # the variational inequality that characterises a projection, at every corner
    gap = values - found
    for corner in np.eye(values.size):
        assert gap @ (corner - found) <= 1e-8


def test_projection_against_an_optimiser():
    rng = np.random.default_rng(1)
    for _ in range(5):
        values = rng.normal(0.1, 0.5, 6)
        other = minimize(
            lambda x, v=values: np.sum((x - v) ** 2),
            np.full(6, 1 / 6),
            method="SLSQP",
            bounds=[(0, 1)] * 6,
            constraints={"type": "eq", "fun": lambda x: x.sum() - 1},
            options={"ftol": 1e-14},
        )
        assert project(values) == pytest.approx(other.x, abs=1e-6)


def test_cutting_and_rescaling_is_not_the_projection():
    """The twin: norm-mul lies on the simplex too, but farther away."""
    values = np.array([0.9, 0.4, -0.2])
    scaled = np.maximum(values, 0) / np.maximum(values, 0).sum()
    assert np.sum((scaled - values) ** 2) > np.sum((project(values) - values) ** 2) + 0.001


@pytest.mark.slow
@given(numbers, st.integers(0, 2**31))
def test_never_farther_from_any_distribution(values, seed):
    values = np.asarray(values)
    truth = np.random.default_rng(seed).dirichlet(np.ones(values.size))
    assert np.sum((project(values) - truth) ** 2) <= np.sum((values - truth) ** 2) + 1e-9


def test_norm_sub_is_the_same_method():
    raw = estimate([0.6, 0.5, -0.1], 0.1)
    assert nz.enhance(raw, "simplex").value == pytest.approx(nz.enhance(raw, "norm-sub").value)
    assert nz.enhance(raw, "norm-sub").method == "norm-sub"


def test_unseen_categories_share_what_is_left():
    raw = estimate([0.5, 0.2, np.nan, np.nan], [0.05, 0.05, np.inf, np.inf])
    found = nz.enhance(raw, "simplex")
    assert found.value == pytest.approx([0.5, 0.2, 0.15, 0.15])
    assert np.all(found.std_error[2:] >= 0.3)
    crowded = nz.enhance(estimate([0.8, 0.4, np.nan], [0.05, 0.05, np.inf]), "simplex")
    assert crowded.value == pytest.approx([0.7, 0.3, 0.0])


def test_simplex_refuses_means():
    with pytest.raises(ValueError, match=r"start at 0.*low=-1"):
        nz.enhance(nz.Estimate(np.ones(2), np.ones(2), np.ones(2, dtype=int), low=-1.0, high=1.0), "simplex")


@pytest.mark.slow
def test_base_cut_keeps_an_absent_category_as_seldom_as_promised():
    """200 absent categories: at most 5 % of collections keep one; 4,000 collections, threshold at 1e-6."""
    rng = np.random.default_rng(2)
    kept = sum(np.any(base_cut(rng.standard_normal(200), np.ones(200)).value > 0) for _ in range(4_000))
    rate = 1 - (1 - 0.05 / 200) ** 200
    assert abs(kept - 4_000 * rate) < 4.9 * np.sqrt(4_000 * rate * (1 - rate))


def test_base_cut_at_one_standard_error_would_keep_more():
    """The twin: without the correction for the number of categories."""
    rng = np.random.default_rng(2)
    kept = sum(np.any(rng.standard_normal(200) > 1.645) for _ in range(500))
    assert kept > 490


@pytest.mark.parametrize("significance", [0.0, 1.0, -0.1])
def test_base_cut_significance(significance):
    with pytest.raises(ValueError, match="significance"):
        nz.enhance(estimate([0.5, 0.5], 0.1), "base-cut", significance=significance)


def test_standard_errors_of_the_projection_cover():
    """Mean coverage of 95 % intervals over 300 collections of 20 frequencies, half of them zero."""
    rng = np.random.default_rng(3)
    truth = np.concatenate([rng.dirichlet(np.ones(10)), np.zeros(10)])
    inside = []
    for _ in range(300):
        y = truth + 0.02 * rng.standard_normal(20)
        result = simplex(y, np.full(20, 0.02))
        inside.append(np.mean(np.abs(result.value - truth) <= 1.96 * result.std_error))
    assert np.mean(inside) > 0.93


@pytest.mark.long
@pytest.mark.parametrize("size", [2, 8, 40, 500])
def test_auto_beats_the_raw_frequencies(size):
    rng = np.random.default_rng(size)
    truth = rng.dirichlet(np.full(size, 0.2))
    losses = []
    for _ in range(40):
        y = truth + 0.03 * rng.standard_normal(size)
        found = nz.enhance(estimate(y, 0.03))
        assert found.value.sum() == pytest.approx(1)
        assert found.value.min() >= 0
        projected = nz.enhance(estimate(y, 0.03), "simplex")
        losses.append([np.sum((v - truth) ** 2) for v in (y, projected.value, found.value)])
    raw, projected, auto = np.mean(losses, axis=0)
    assert projected <= raw
    assert auto <= 1.02 * projected
    if size >= 40:
        assert auto < 0.9 * projected


def test_real_reports_of_a_frequency_mechanism():
    rng = np.random.default_rng(4)
    truth = np.concatenate([[0.5, 0.3, 0.2], np.zeros(61)])
    m = nz.UnaryEncoding(epsilon=1.0, domain=nz.Categorical(64))
    raw = m.aggregate(m.privatize(rng.choice(64, 20_000, p=truth), rng=5)).estimate()
    assert raw.kind == "frequency"
    found = nz.enhance(raw)
    assert found.value.sum() == pytest.approx(1)
    assert np.sum((found.value - truth) ** 2) < 0.5 * np.sum((raw.value - truth) ** 2)


@pytest.mark.slow
@pytest.mark.parametrize("tied", [False, True])
def test_the_promised_gain_counts_that_categories_share_their_noise(tied):
    """Inside the simplex the projection takes off the surplus of the sum: a tenth of the noise, or nothing."""
    rng = np.random.default_rng(21)
    truth, s = np.full(10, 0.1), np.full(10, 0.01)
    promised, true, stated = [], [], []
    for _ in range(400):
        z = rng.standard_normal(10)
        z = (z - z.mean()) * np.sqrt(10 / 9) if tied else z
        raw = nz.Estimate(truth + 0.01 * z, s, np.full(10, 500), low=0.0, high=1.0, kind="frequency")
        found = nz.enhance(raw, "simplex")
        promised.append(found.expected_gain)
        true.append(np.mean((raw.value - truth) ** 2) - np.mean((found.value - truth) ** 2))
        stated.append(np.mean(found.std_error**2))
    noise = 4.9 * np.std(promised) / 20
    assert np.mean(promised) == pytest.approx(np.mean(true), abs=noise + 1e-18)
    assert np.mean(promised) == pytest.approx(0.0 if tied else 1e-5, abs=noise + 1e-18)  # the twin of one another
    assert np.mean(stated) >= (1.0 if tied else 0.9) * 1e-4 * 0.999


def test_known_frequencies_leave_the_rest_to_the_others():
    raw = nz.Estimate(
        np.array([0.5, 0.4, 0.3]), np.array([0.0, 0.1, 0.1]), np.full(3, 500), low=0.0, high=1.0, kind="frequency"
    )
    for method in ("simplex", "auto"):
        assert nz.enhance(raw, method).value == pytest.approx([0.5, 0.3, 0.2])


def test_a_category_that_no_report_named_is_not_certain():
    """Randomised response over 50 categories of which 10 occur: nobody names some, whose estimate is below zero."""
    m = nz.GeneralizedRandomizedResponse(epsilon=6.0, domain=nz.Categorical(50))
    raw = m.aggregate(m.privatize(np.arange(400) % 10, rng=3)).estimate()
    assert np.any((raw.value < 0) & (raw.std_error == 0))
    found = nz.enhance(raw)
    assert np.all(found.value >= 0)
    assert found.value.sum() == pytest.approx(1)
    assert np.all(found.std_error > 0)


def test_base_cut_states_its_risk():
    """z of 1 - 0.05 / 4 is 2.24: the first two are kept, at s^2; the others are cut, at y^2 - s^2."""
    observed, errors = np.asarray([0.5, 0.23, 0.21, -0.1]), np.asarray([0.1, 0.1, 0.1, 0.2])
    found = base_cut(observed, errors)
    assert found.value.tolist() == [0.5, 0.23, 0.0, 0.0]
    assert found.risk == pytest.approx([0.01, 0.01, 0.0341, -0.03])
    assert found.std_error[:2] == pytest.approx([0.1, 0.1])
    assert found.std_error[2] == found.std_error[3] > 0
    assert found.slope.tolist() == [1.0, 1.0, 0.0, 0.0]
