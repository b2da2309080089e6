"""Several attributes at once: frequencies that add up by attribute, means beside them, nothing mixed up."""

import dataclasses

import numpy as np
import pytest

import noisette as nz
from noisette.enhancement.channel import chances_at, check_size, report_edges
from noisette.enhancement.problem import by_kind

GROUPS = (3, 1, 5, 1, 40)


def record(seed=0, *, noise=0.05):
    """Frequencies of three attributes and two means on [-1, 1], in runs."""
    rng = np.random.default_rng(seed)
    parts = [rng.dirichlet(np.full(k, 0.3)) if k > 1 else rng.uniform(-1, 1, 1) for k in GROUPS]
    truth = np.concatenate(parts)
    s = noise * rng.uniform(0.5, 2, truth.size)
    low = np.concatenate([np.full(k, 0.0 if k > 1 else -1.0) for k in GROUPS])
    y = truth + s * rng.standard_normal(truth.size)
    names = tuple(f"q{j}" for j in range(truth.size))
    raw = nz.Estimate(y, s, np.full(truth.size, 500), low=low, high=1.0, names=names, kind="attributes", groups=GROUPS)
    return truth, raw


def runs(values):
    return np.split(values, np.cumsum(GROUPS)[:-1])


@pytest.mark.parametrize("method", ["auto", "simplex", "norm-sub"])
def test_the_frequencies_of_each_attribute_add_up(method):
    _, raw = record()
    found = nz.enhance(raw, method)
    for part in runs(found.value):
        assert part.size == 1 or part.sum() == pytest.approx(1)
        assert part.size == 1 or np.all(part >= 0)
    assert found.groups == GROUPS
    assert found.names == raw.names
    assert found.kind == "attributes"


@pytest.mark.parametrize("method", ["simplex", "base-cut"])
def test_each_attribute_is_treated_as_if_it_were_alone(method):
    _, raw = record(1)
    found = nz.enhance(raw, method)
    for here, got, error in zip(runs(np.arange(raw.value.size)), runs(found.value), runs(found.std_error), strict=True):
        if here.size == 1:
            assert got == raw.value[here]  # a mean, which these methods do not concern
            continue
        alone = nz.Estimate(raw.value[here], raw.std_error[here], raw.count[here], low=0.0, high=1.0, kind="frequency")
        expected = nz.enhance(alone, method)
        assert got == pytest.approx(expected.value)
        assert error == pytest.approx(expected.std_error)


def test_means_and_frequencies_are_enhanced_apart():
    _, raw = record(2)
    for method in ("james-stein", "npmle", "sure", "hdr4me-l1", "box"):
        found = nz.enhance(raw, method)
        single = np.repeat(np.asarray(GROUPS) == 1, GROUPS)
        means = nz.Estimate(raw.value[single], raw.std_error[single], raw.count[single], low=-1.0, high=1.0)
        assert found.value[single] == pytest.approx(nz.enhance(means, method).value)


def test_a_category_that_nobody_could_report_gets_what_its_own_attribute_has_left():
    _, raw = record(3, noise=1e-4)
    value, error = raw.value.copy(), raw.std_error.copy()
    place = 5  # the second category of the attribute with five
    missing = value[place]
    value[place], error[place] = np.nan, np.inf
    blank = dataclasses.replace(raw, value=value, std_error=error)
    for method in ("simplex", "auto"):
        found = nz.enhance(blank, method)
        assert found.value[place] == pytest.approx(missing, abs=0.01)
        assert np.isfinite(found.std_error[place])


@pytest.mark.slow
def test_a_collection_of_many_attributes_gains():
    """Thirty attributes of four values by the thesis's histogram encoding: the error falls, and is never above raw."""
    rng = np.random.default_rng(4)
    people = nz.Attributes((4,) * 30)
    x = np.stack([rng.choice(4, 3_000, p=rng.dirichlet(np.ones(4))) for _ in range(30)], axis=1)
    truth = np.concatenate([np.bincount(column, minlength=4) / 3_000 for column in x.T])
    for inner, share in (("histogram", 0.5), ("subset-selection", 0.95)):
        m = nz.SampledAttributes(inner, epsilon=2.0, domain=people)
        raw = m.aggregate(m.privatize(x, rng=5)).estimate()
        found = nz.enhance(raw)
        before, after = (np.mean((v - truth) ** 2) for v in (raw.value, found.value))
        assert after < share * before
        assert found.expected_gain == pytest.approx(before - after, rel=0.5)
        projected = nz.enhance(raw, "simplex")
        assert np.mean((projected.value - truth) ** 2) < before


def test_groups_that_do_not_fit_are_named():
    _, raw = record()
    with pytest.raises(ValueError, match=r"groups=\(3, 4\).*50 in all"):
        nz.enhance(dataclasses.replace(raw, groups=(3, 4)))


def test_a_predicted_bias_finds_its_place():
    _, raw = record(6)
    bias = np.linspace(0, 0.1, raw.value.size)
    shifted = dataclasses.replace(raw, value=raw.value + bias)
    assert nz.enhance(shifted, "auto", bias=bias).value == pytest.approx(nz.enhance(raw, "auto").value)


def test_the_gain_of_a_record_is_the_mean_over_what_was_reported():
    """Two means gain 0.3 each and nine frequencies 0.1 each, of which one was never reported."""
    errors = np.full(11, 0.2)
    errors[4] = np.inf
    raw = nz.Estimate(
        np.full(11, 0.2), errors, np.full(11, 9), low=0.0, high=1.0, kind="attributes", groups=(1, 4, 1, 5)
    )

    def step(part, shift):
        assert shift.tolist() == ([0.0, 5.0] if part.kind == "mean" else [1.0, 2.0, 3.0, 4.0, 6.0, 7.0, 8.0, 9.0, 10.0])
        gain = 0.3 if part.kind == "mean" else 0.1
        return dataclasses.replace(part, value=part.value + gain, method=part.kind, expected_gain=gain)

    found = by_kind(raw, np.arange(11.0), step)
    assert found.expected_gain == pytest.approx((2 * 0.3 + 8 * 0.1) / 10)
    assert found.method == "mean and frequency"
    assert found.value.round(6).tolist() == [0.5, 0.3, 0.3, 0.3, 0.3, 0.5, 0.3, 0.3, 0.3, 0.3, 0.3]


def test_a_table_that_fills_the_memory_is_refused():
    check_size(50_000_000)
    with pytest.raises(ValueError, match="at most 50000000 entries, got 50000001"):
        check_size(50_000_001)


@pytest.mark.parametrize("bins", [2, 7])
def test_the_chances_of_bins_are_those_of_many_reports(bins):
    """The bins cover all reports, and each has the share of reports that fall between its ends."""
    mechanism = nz.Piecewise(1.0)
    inputs = np.asarray([-1.0, 0.2, 1.0])
    chances = chances_at(mechanism, inputs, bins=bins)
    edges = report_edges(mechanism, bins=bins)
    assert chances.shape == (edges.size - 1, 3)
    assert chances.sum(axis=0) == pytest.approx(np.ones(3))
    for x, column in zip(inputs, chances.T, strict=True):
        counts = np.histogram(mechanism.privatize(np.full(40_000, x), rng=5), edges)[0]
        assert np.all(np.abs(counts / 40_000 - column) < 5 * np.sqrt(column / 40_000) + 1e-3)
