"""Averaged priors against a slow sum over a grid of truths, and the shape of the answer."""

import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import norm

from noisette.enhancement.averaging import _LEARNED, Bell, Ridge, _Family, bayes
from noisette.enhancement.hdr4me import l2
from noisette.enhancement.npmle import fit, npmle


def slow(y, s, origin=0.0):
    """Return the averaged posterior means, every prior spelt out on a fine grid of truths."""
    t = np.linspace(-6, 6, 12_001)
    step = t[1] - t[0]
    spike = np.zeros_like(t)
    spike[np.argmin(np.abs(t - origin))] = 1.0
    flat = np.where(np.abs(t) <= 1, 1.0, 0.0)
    slabs = [flat / flat.sum()]
    if origin == 0:
        slabs += [np.where(t * side > 0, flat, 0.0) / np.sum(np.where(t * side > 0, flat, 0.0)) for side in (-1, 1)]
    least = max(np.quantile(s, 0.1) / 2, 2.0**-20)
    for k in range(max(1, int(np.ceil(-np.log2(least))))):
        slab = norm.pdf(t, origin, 0.5**k)
        slabs.append(slab * step)
    priors, weights = [spike], [0.16]
    sides, bells = (2 if origin == 0 else 0), len(slabs) - (3 if origin == 0 else 1)
    for share, total, parts in (
        (0.0, 1.0, (0.18, 0.004, 0.116)),
        (0.5, 0.013, (0.1, 0.65, 0.25)),
        (0.8, 0.032, (0.1, 0.65, 0.25)),
        (0.9, 0.097, (0.1, 0.65, 0.25)),
        (0.95, 0.097, (0.1, 0.65, 0.25)),
        (0.98, 0.083, (0.1, 0.65, 0.25)),
    ):
        whole = parts[0] if sides else parts[0] + parts[1]
        row = [whole] + [parts[1] / 2] * sides + [parts[2] / bells] * bells
        for slab, weight in zip(slabs, row, strict=True):
            priors.append(share * spike + (1 - share) * slab)
            weights.append(total * weight)
    density = norm.pdf(y[:, None], t, s[:, None])
    scores = [np.log(w) + np.sum(np.log(density @ p)) for w, p in zip(weights, priors, strict=True)]
    means = [(density * p) @ t / (density @ p) for p in priors]
    squares = [(density * p) @ t**2 / (density @ p) for p in priors]
    learned = [Bell.fit(y, s, origin=origin), Bell.fit(y, s, origin=origin, tied=True), Ridge(origin, s.mean())]
    learned += [fit(y, s, blur=blur * np.quantile(s, 0.1)) for blur in (0, 2, 4, 8)]
    before = (0.004, 0.004, 0.085, 0.0002, 0.0013, 0.0035, 0.12)
    for weight, prior in zip(before, learned, strict=True):
        scores.append(np.log(weight) + np.sum(prior.held_out(y, s).log_density))
        found = prior.posterior(y, s)
        means.append(found.mean)
        squares.append(found.variance + found.mean**2)
    w = np.exp(np.asarray(scores) - logsumexp(scores))
    mean = w @ np.asarray(means)
    return mean, w @ np.asarray(squares) - mean**2


@pytest.mark.parametrize("seed", range(4))
def test_against_a_slow_sum_over_truths(seed):
    rng = np.random.default_rng(seed)
    s = rng.uniform(0.15, 0.8, 30)
    truth = np.where(rng.random(30) < 0.3, rng.uniform(-1, 1, 30), 0.0)
    y = truth + s * rng.standard_normal(30)
    mean, variance = slow(y, s)
    found = bayes(y, s)
    assert found.value == pytest.approx(mean, abs=2e-3)
    assert found.slope * s**2 == pytest.approx(variance, abs=2e-3)


def test_the_origin_may_be_an_end_of_the_domain():
    rng = np.random.default_rng(5)
    s = np.full(30, 0.2)
    y = -1 + np.where(np.arange(30) < 4, 1.2, 0.0) + s * rng.standard_normal(30)
    mean, _ = slow(y, s, origin=-1.0)
    assert bayes(y, s, origin=-1.0).value == pytest.approx(mean, abs=2e-3)


@pytest.mark.parametrize("origin", [0.0, -1.0])
def test_weights_before_the_data_add_up_to_one(origin):
    prior = _Family(origin, np.array([1.0, 0.5])).log_prior
    assert prior.size == 1 + 6 * (5 if origin == 0 else 3)
    assert np.exp(prior).sum() + sum(_LEARNED) == pytest.approx(1)


def test_the_ridge_is_hdr4me_l2():
    rng = np.random.default_rng(10)
    s = rng.uniform(0.1, 1.9, 20)
    y = rng.standard_normal(20)
    found = Ridge(0.0, 1.0).posterior(y, s)
    assert found.mean == pytest.approx(l2(y, s).value)
    assert found.log_density == pytest.approx(norm.logpdf(y, 0, np.sqrt(s**2 + s / norm.ppf(0.975))))
    assert found.variance == pytest.approx(1 / (1 / s**2 + norm.ppf(0.975) / s))
    heavy = Ridge(0.0, 1.0).posterior(np.array([5.0]), np.array([10.0]))
    assert heavy.mean == pytest.approx([5 / 101])


@pytest.mark.long
@pytest.mark.parametrize("kind", ["spread", "ladder"])
def test_truths_spread_beyond_the_noise_need_a_smooth_prior(kind):
    """The twin is the NPMLE alone: it puts atoms on single observations and ends above raw."""
    rng = np.random.default_rng(11)
    losses = []
    for _ in range(40):
        rate = rng.uniform(1, 99, 100)
        truth = 2 * rate / (rate + 4.5 * np.sqrt(rate) + 3) - 1 if kind == "spread" else np.linspace(-0.5, 0.5, 100)
        s = np.full(100, 0.01 if kind == "ladder" else 0.03)
        y = truth + s * rng.standard_normal(100)
        losses.append([np.sum((v - truth) ** 2) for v in (y, bayes(y, s).value, npmle(y, s).value)])
    raw, ours, alone = np.mean(losses, axis=0)
    assert ours < 1.02 * raw
    assert alone > 1.04 * raw


def test_in_heavy_noise_it_is_nearly_the_middle():
    rng = np.random.default_rng(6)
    y = 40 * rng.standard_normal(500)
    assert np.mean(bayes(y, np.full(500, 40.0)).value ** 2) < 0.1


def test_an_unseen_truth_gets_the_mean_and_spread_of_the_others():
    rng = np.random.default_rng(7)
    truth = rng.normal(0.4, 0.1, 2_000)
    result = bayes(truth + 0.2 * rng.standard_normal(2_000), np.full(2_000, 0.2))
    assert result.blank_value == pytest.approx(0.4, abs=0.02)
    assert result.blank_error == pytest.approx(0.1, abs=0.03)


@pytest.mark.long
def test_truths_tied_to_the_noise_are_not_mistaken_for_noise():
    """theta = 3 s: one mean for all would take the noisy ones for outliers."""
    rng = np.random.default_rng(8)
    ratio = []
    for _ in range(40):
        s = 0.03 * np.exp(0.6 * rng.standard_normal(60))
        truth = np.minimum(3 * s, 1.0)
        y = truth + s * rng.standard_normal(60)
        ratio.append([np.sum((bayes(y, s).value - truth) ** 2), np.sum((y - truth) ** 2)])
    ours, raw = np.mean(ratio, axis=0)
    assert ours < 0.5 * raw


@pytest.mark.parametrize("tied", [False, True])
def test_bell_against_the_normal_posterior(tied):
    rng = np.random.default_rng(9)
    s = rng.uniform(0.2, 0.9, 25)
    y = 0.3 + rng.standard_normal(25) * s
    bell = Bell.fit(y, s, tied=tied)
    mean, doubt, spread = bell.parts[0]
    unit = s if tied else np.ones(25)
    expected = unit * (mean * (s / unit) ** 2 + (y / unit) * spread) / ((s / unit) ** 2 + spread)
    found = bell.posterior(y, s)
    assert found.mean == pytest.approx(expected)
    total = unit * np.sqrt((s / unit) ** 2 + spread + doubt)
    assert found.log_density == pytest.approx(norm.logpdf(y, unit * mean, total))
    without = np.arange(25) % 5 != 2
    other = Bell.fit(y[without], s[without], tied=tied).parts[0]
    assert bell.parts[3] == pytest.approx(other)


@pytest.mark.parametrize("noise", [1e-6, 1e-9, 1e-12])
def test_hardly_any_noise_is_no_trouble(noise):
    """Half of the domain explains nothing on the other side: a density too small for float64 is no error."""
    truth = np.tile([-0.5, 0.5, 0.25], 20)
    y = truth + noise * np.random.default_rng(1).standard_normal(60)
    found = bayes(y, np.full(60, noise))
    assert found.value == pytest.approx(truth, abs=5 * noise)
    assert np.all(np.isfinite(found.risk))


def test_a_truth_of_the_ridge_varies_by_no_more_than_one():
    """Truths lie on [-1, 1], and 1.96 is HDR4ME's confidence of 0.95."""
    assert Ridge(0.2, 0.5).moments == pytest.approx((0.2, 0.5 / norm.ppf(0.975)))
    assert Ridge(0.2, 40.0).moments == (0.2, 1.0)
