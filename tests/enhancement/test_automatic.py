"""The default's two promises, measured over many seeds: never 2 % above raw, never above the best of HDR4ME."""

import sys
from dataclasses import replace

import numpy as np
import pytest

import noisette as nz
from noisette.enhancement.averaging import bayes
from noisette.enhancement.bounds import uniform_prior

automatic = sys.modules["noisette.enhancement.automatic"]  # whose name is that of its function, too

SEEDS = 200
HDR4ME = ("hdr4me-l1", "hdr4me-l2", "hdr4me-star")


def truths(kind, size, noise, rng):
    i = np.arange(size)
    return {
        "zero": np.zeros(size),
        "dense": rng.uniform(-1, 1, size),
        "sparse": np.where(i < max(1, size // 10), 0.9, 0.0),
        "clustered": np.clip(0.5 + 0.1 * rng.standard_normal(size), -1, 1),
        "ends": np.where(i % 2, 1.0, -1.0),
        "one end": np.ones(size),
        "ladder": np.clip(noise * (i - size / 2), -1, 1),
        "two points": np.clip(2 * noise * (i % 2), -1, 1),
        "normal": np.clip(0.3 * rng.standard_normal(size), -1, 1),
    }[kind]


def ratio(kind, size, noise, *, unequal=False, methods=("auto",), seeds=SEEDS):
    """Return the mean squared errors of raw and of each method, by seed."""
    rows = []
    for seed in range(seeds):
        rng = np.random.default_rng([seed, size])
        truth = truths(kind, size, noise, rng)
        s = noise * (np.exp(0.6 * rng.standard_normal(size)) if unequal else np.ones(size))
        y = truth + s * rng.standard_normal(size)
        raw = nz.Estimate(y, s, np.full(size, 1_000), low=-1.0, high=1.0)
        rows.append([np.mean((v - truth) ** 2) for v in (y, *(nz.enhance(raw, m).value for m in methods))])
    return np.asarray(rows)


KINDS = ["zero", "dense", "sparse", "clustered", "ends", "one end", "ladder", "two points", "normal"]


@pytest.mark.long
@pytest.mark.parametrize(
    ("size", "kind", "noise"),  # a Latin square: any two of the three meet once
    [
        ((1, 3, 10)[row], kind, (0.02, 0.3, 3.0)[(row + place) % 3])
        for row in range(3)
        for place, kind in enumerate(KINDS)
    ],
)
def test_few_dimensions_are_never_hurt(size, kind, noise):
    raw, auto = ratio(kind, size, noise).mean(axis=0)
    assert auto <= 1.02 * raw


@pytest.mark.long
@pytest.mark.parametrize(
    ("size", "kind", "noise"),
    [((2, 5)[row], kind, (0.02, 0.3)[(row + place) % 2]) for row in range(2) for place, kind in enumerate(KINDS)],
)
def test_few_dimensions_with_unequal_noise_are_never_hurt(size, kind, noise):
    raw, auto = ratio(kind, size, noise, unequal=True).mean(axis=0)
    assert auto <= 1.02 * raw


@pytest.mark.long
@pytest.mark.parametrize(("kind", "unequal"), [("dense", False), ("ladder", False), ("ladder", True), ("normal", True)])
def test_thirty_dimensions_are_never_hurt(kind, unequal):
    """Where the rule changes, at the truths that were the hardest of some three hundred arrangements.

    Over 60 seeds the ratio has a standard error of 0.3 to 0.4 %, with unequal noise of 2 %, where it is near 0.93.
    """
    raw, auto = ratio(kind, 30, 0.02, unequal=unequal, seeds=60).mean(axis=0)
    assert auto <= 1.02 * raw


@pytest.mark.long
def test_averaged_priors_with_few_dimensions_would_hurt():
    """The twin, and the reason for the rule by the number of dimensions: five truths two deviations from zero."""
    rng = np.random.default_rng(1)
    losses = []
    for _ in range(150):
        truth = 0.04 * rng.choice([-1.0, 1.0], 5)
        y = truth + 0.02 * rng.standard_normal(5)
        losses.append([np.sum((bayes(y, np.full(5, 0.02)).value - truth) ** 2), np.sum((y - truth) ** 2)])
    ours, raw = np.mean(losses, axis=0)
    assert ours > 1.1 * raw


def thesis_noise(mechanism, epsilon, size, users, truth):
    """Standard errors when all dimensions are reported with epsilon / size each."""
    share = epsilon / size
    if mechanism == "laplace":
        return np.full(size, np.sqrt(8 / share**2 / users))
    t = np.exp(share / 2)
    return np.sqrt((truth**2 / (t - 1) + (t + 3) / (3 * (t - 1) ** 2)) / users)


def thesis_data(name):
    rng = np.random.default_rng(3)
    if name == "gaussian":
        return np.where(np.arange(100) < 10, 0.9, 0.0), 100_000
    if name == "uniform":
        return np.zeros(500), 120_000
    rate = rng.uniform(1, 99, 300)  # Poisson counts, divided by about their largest value
    return 2 * rate / (rate + 4.5 * np.sqrt(rate) + 3) - 1, 150_000


@pytest.mark.long
@pytest.mark.parametrize(
    ("data", "mechanism", "epsilon", "seeds"),
    [
        ("gaussian", "laplace", 0.1, 20),
        ("gaussian", "piecewise", 0.8, SEEDS),
        ("gaussian", "laplace", 1.6, SEEDS),
        ("gaussian", "laplace", 3.2, 20),
        ("poisson", "piecewise", 0.8, 20),
        ("uniform", "laplace", 0.4, 20),
    ],
)
def test_settings_of_the_thesis(data, mechanism, epsilon, seeds):
    """Figure 4.6: below the best of HDR4ME, which is named by hindsight, and below raw.

    By 10 standard errors or more over 20 seeds, but for the two settings that are nearly level.
    """
    truth, users = thesis_data(data)
    s = thesis_noise(mechanism, epsilon, truth.size, users, truth)
    rows = []
    for seed in range(seeds):
        y = truth + s * np.random.default_rng(seed).standard_normal(truth.size)
        raw = nz.Estimate(y, s, np.full(truth.size, users), low=-1.0, high=1.0)
        rows.append([np.mean((v - truth) ** 2) for v in (y, *(nz.enhance(raw, m).value for m in (*HDR4ME, "auto")))])
    raw, *published, auto = np.mean(rows, axis=0)
    assert auto <= min(published)
    assert auto <= raw


def test_nobody_could_keep_both_promises_in_one_dimension():
    """At theta = 0 the soft threshold of HDR4ME has 2 % of the raw risk; whoever matches it pays elsewhere.

    Brown and Low 1996: a rule with risk r at 0 has at least (t - sqrt(r) exp(t^2 / 2))^2 at t, in units of the noise.
    """
    z = np.linspace(-12, 12, 400_001)
    density = np.exp(-(z**2) / 2) / np.sqrt(2 * np.pi)
    soft = np.maximum(np.abs(z) - 1.959964, 0) ** 2
    risk = np.sum(soft * density) * (z[1] - z[0])
    t = np.linspace(0, 3, 3_001)
    bound = np.max(np.maximum(t - np.sqrt(risk) * np.exp(t**2 / 2), 0) ** 2)
    assert risk < 0.03
    assert bound > 1.02


def test_what_was_chosen_is_said():
    few = nz.Estimate(np.zeros(10), np.full(10, 0.1), np.full(10, 99), low=-1.0, high=1.0)
    assert nz.enhance(few).method == "auto: james-stein"
    assert nz.enhance(nz.Estimate(np.zeros(2), np.full(2, 3.0), np.full(2, 99), low=-1.0, high=1.0)).method == (
        "auto: uniform-prior"
    )
    many = nz.Estimate(np.zeros(50), np.full(50, 0.1), np.full(50, 99), low=-1.0, high=1.0)
    assert nz.enhance(many).method == "auto: bayes"
    assert nz.enhance(nz.Estimate(np.zeros(2), np.ones(2), np.full(2, 99))).method == "auto: none"


def chosen(size, noise, **domain):
    """Return what is chosen for so many zeros with so much noise."""
    return nz.enhance(nz.Estimate(np.zeros(size), np.full(size, noise), np.full(size, 99), **domain)).method


def test_where_the_choice_turns():
    """Each rule at both sides of its number: 30 dimensions, 4 for James-Stein, noise of 0.8 of the radius."""
    inside = {"low": -1.0, "high": 1.0}
    assert (chosen(29, 0.1, **inside), chosen(30, 0.1, **inside)) == ("auto: james-stein", "auto: bayes")
    assert (chosen(3, 0.1), chosen(4, 0.1)) == ("auto: none", "auto: james-stein")
    assert (chosen(4, 0.799, **inside), chosen(4, 0.8, **inside)) == ("auto: james-stein", "auto: uniform-prior")


@pytest.mark.parametrize(("share", "name"), [(0.9895, "bayes"), (0.9905, "box")])
def test_a_gain_of_a_hundredth_is_worth_it(share, name, monkeypatch):
    def averaged(problem):
        found = automatic.raw(problem)
        return replace(found, risk=share * found.risk, name="bayes")

    monkeypatch.setattr(automatic, "_average", averaged)
    assert chosen(40, 0.1, low=-1.0, high=1.0) == f"auto: {name}"


@pytest.mark.parametrize(("above", "worse"), [(1.9, False), (2.1, True)])
def test_a_risk_is_worse_from_two_standard_errors_on(above, worse):
    """Of differences that are d +- 1 the sum is n d, with a standard error of sqrt(n); so in units of the noise."""
    size = 64
    difference = above / np.sqrt(size) + np.tile([1.0, -1.0], size // 2)
    ones = np.ones(size)
    assert automatic._worse(ones, 5.0 + difference, 5.0 * ones) is worse
    assert automatic._worse(3.0 * ones, 5.0 + difference, 5.0 * ones) is worse
    assert not automatic._worse(ones, 5.0 - difference, 5.0 * ones)
    # one noisy coordinate hides in the sum what the others tell in units of their noise
    uneven = np.append(ones, 1e3)
    assert automatic._worse(uneven, np.append(5.0 + difference, 0.0), np.append(5.0 * ones, 1e3)) is worse


def test_falls_back_when_the_estimated_risk_says_so():
    """Truths that repeat every five places fool priors that are fitted on folds of every fifth."""
    rng = np.random.default_rng(4)
    y = rng.uniform(-1, 1, 40)
    s = np.full(40, 0.02)
    raw = nz.Estimate(y, s, np.full(40, 99), low=-1.0, high=1.0)
    found = nz.enhance(raw)
    plain = uniform_prior(y, s)
    assert found.expected_gain >= np.mean(s**2 - plain.risk) - 2 * np.sqrt(2 / 40) * 0.02**2


@pytest.mark.long
def test_where_nothing_is_to_be_gained_nothing_is_risked(monkeypatch):
    """Poisson data and square wave at epsilon = 1,000: HDR4ME* keeps the raw estimate, and so does the projection.

    The twin is what was averaged over: it loses by following the noise.
    """
    truth, users = thesis_data("poisson")
    s = np.full(truth.size, 0.0013)
    ours, averaged, raw = [], [], []

    def average(problem, work=automatic._average):
        found = work(problem)
        averaged.append(np.sum((found.value - truth) ** 2))
        return found

    monkeypatch.setattr(automatic, "_average", average)
    for seed in range(12):
        y = truth + s * np.random.default_rng(seed).standard_normal(truth.size)
        found = nz.enhance(nz.Estimate(y, s, np.full(truth.size, users), low=-1.0, high=1.0))
        assert found.method == "auto: box"
        ours.append(np.sum((found.value - truth) ** 2))
        raw.append(np.sum((y - truth) ** 2))
    assert np.all(np.asarray(ours) <= raw)
    assert np.mean(averaged) > np.mean(raw)


def test_a_dimension_without_reports_is_told_by_the_others_all_the_same():
    rng = np.random.default_rng(3)
    y = np.append(rng.uniform(0.2, 0.6, 60), np.nan)
    s = np.append(np.full(60, 1e-6), np.inf)
    found = nz.enhance(nz.Estimate(y, s, np.append(np.full(60, 1_000), 0), low=-1.0, high=1.0))
    assert found.method == "auto: box"
    assert 0.2 < found.value[-1] < 0.6
    assert found.std_error[-1] < 0.5


@pytest.mark.slow
def test_large_budgets_are_left_nearly_alone():
    """At epsilon = 200 over 50 dimensions the raw estimate is good: the change stays far below its error."""
    rng = np.random.default_rng(5)
    x = np.clip(rng.normal(rng.uniform(-0.8, 0.8, 50), 0.1, (20_000, 50)), -1, 1)
    c = nz.Sampled("piecewise", epsilon=200.0, dims=50, report=50)
    raw = c.aggregate(c.privatize(x, rng=6)).estimate()
    found = nz.enhance(raw)
    truth = x.mean(axis=0)
    assert np.sum((found.value - truth) ** 2) <= 1.02 * np.sum((raw.value - truth) ** 2)
    assert np.all(np.abs(found.value - raw.value) < 3 * raw.std_error)
