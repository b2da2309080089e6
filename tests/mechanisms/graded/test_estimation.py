"""HierA as printed, maximum likelihood, and what neither can do; on counts alone."""

from __future__ import annotations

import math
from dataclasses import replace

import mpmath
import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import ndtri

import noisette as nz
from noisette.aggregation import aggregate_stream, load
from noisette.mechanisms.graded.estimation import _levelled, _slope, convert_signs, hiera, maximum_likelihood, mixture
from noisette.prediction.graded import Reused, predicted_hiera

FALSE_ALARM = 1e-6
Z = float(ndtri(1 - FALSE_ALARM / 2))
FIVE = nz.LevelledResponse(np.linspace(-1, 1, 6), [2.5, 2.0, 1.5, 1.0, 0.5])


def printed(reports: np.ndarray, epsilons: list[float], mu: int, clip: bool, rng: np.random.Generator) -> float:
    """Algorithm 5 on the reports themselves, sign by sign; budgets fall from level to level."""
    k = len(epsilons)
    p = [math.exp(e) / (math.exp(e) + 1) for e in epsilons]
    sets = [reports[reports[:, 0] == i, 1] for i in range(k)]
    pools: list[list[np.ndarray]] = [[] for _ in range(k)]
    for i in range(k):
        last = min(k, i + mu)
        pools[i] += [sets[i]] * (mu - (last - 1 - i))
        for j in range(i + 1, last):
            q = (p[i] + p[j] - 1) / (2 * p[i] - 1)
            pools[j].append(np.where(rng.random(sets[i].size) < q, sets[i], -sets[i]))
    total, size = 0.0, 0
    for i in range(k):
        signs = np.concatenate(pools[i])
        n1, n2 = int((signs > 0).sum()), int((signs < 0).sum())
        high = [(p[i] * signs.size - n) / (2 * p[i] - 1) for n in (n2, n1)]
        if clip:
            high = [min(max(n, 0.0), signs.size) for n in high]
        total += high[0] - high[1]
        size += signs.size
    return total / size


@pytest.mark.parametrize("clip", [True, False])
def test_without_conversion_it_is_the_printed_algorithm(clip: bool) -> None:
    x = np.random.default_rng(1).normal(0.3, 0.2, 300).clip(-1, 1)
    levels = FIVE if not clip else nz.LevelledResponse(FIVE.edges, [e / 5 for e in FIVE.epsilons])
    reports = levels.privatize(x, rng=2)
    counted = levels.aggregate(reports)
    exact = printed(reports.astype(float), list(levels.epsilons), 1, clip, np.random.default_rng(0))
    assert float(hiera(counted, clip=clip).value[0]) == pytest.approx(exact, abs=1e-12)
    if not clip:
        assert hiera(counted, clip=False).value == pytest.approx(counted.estimate().value, abs=1e-12)
        assert hiera(counted, clip=False).std_error == pytest.approx(counted.estimate().std_error, rel=1e-9)
    else:
        # the twin: so small are these budgets that clipping changes something
        assert abs(exact - float(counted.estimate().value[0])) > 1e-6


@pytest.mark.long
@pytest.mark.parametrize("mu", [2, 3, 5])
def test_with_conversion_it_has_the_law_of_the_printed_algorithm(mu: int) -> None:
    """Means and variances over 1,500 conversions of the same reports agree."""
    reports = FIVE.privatize(np.random.default_rng(1).uniform(-1, 1, 400), rng=2)
    counted, rng = FIVE.aggregate(reports), np.random.default_rng(3)
    ours = np.asarray([float(hiera(counted, reuse=mu, clip=False, rng=rng).value[0]) for _ in range(1500)])
    floats = reports.astype(float)
    theirs = np.asarray([printed(floats, list(FIVE.epsilons), mu, False, rng) for _ in range(1500)])
    error = math.hypot(ours.std(), theirs.std()) / math.sqrt(1500)
    assert abs(ours.mean() - theirs.mean()) < Z * error
    assert ours.var() / theirs.var() == pytest.approx(1, abs=Z * math.sqrt(4 / 1500))
    # on average a conversion changes nothing; the twin: without the copies of the last levels it would
    assert abs(ours.mean() - float(counted.estimate().value[0])) < Z * ours.std() / math.sqrt(1500)


def test_levels_are_taken_by_falling_budget() -> None:
    """The same users, levels named in another order: the same estimate."""
    mixed = nz.LevelledResponse([-1, 0, 1], [0.5, 2.0])
    swapped = nz.LevelledResponse([-1, 0, 1], [2.0, 0.5])
    counted = mixed.aggregate(mixed.privatize(np.full(5000, 0.4), rng=1))
    turned = nz.Aggregate(swapped, counted.users, counted.count, counted.total[[2, 3, 0, 1]], counted.squares)
    assert hiera(counted, reuse=2, rng=5).value == hiera(turned, reuse=2, rng=5).value


def test_equal_budgets_are_not_flipped_again() -> None:
    mechanism = nz.LevelledResponse([-1, 0, 0.5, 1], [1.0, 1.0, 1.0])
    counted = mechanism.aggregate(mechanism.privatize(np.linspace(-1, 1, 1000), rng=1))
    for mu in (1, 2, 3):
        assert hiera(counted, reuse=mu, clip=False).value == pytest.approx(counted.estimate().value, abs=1e-12)


@pytest.mark.long
def test_reusing_reports_does_not_help() -> None:
    """n = 10,000, e = 0.5, uniform values, 1,500 collections: mu > 1 has the larger error, by far more than chance.

    The exact mean absolute error at mu = 1 is 0.0161: the specification's 0.0137 is a simulation's.
    """
    rng, runs, n = np.random.default_rng(11), 1500, 10_000
    grid = np.linspace(-1, 1, 2001)
    exact = math.sqrt(2 / math.pi) * math.sqrt(float(FIVE.moments(grid).variance.mean()) / n)
    assert exact == pytest.approx(0.0161, abs=5e-5)
    errors = np.empty((runs, 3))
    for run in range(runs):
        x = rng.uniform(-1, 1, n)
        counted = FIVE.aggregate(FIVE.privatize(x, rng=rng))
        for place, mu in enumerate((1, 2, 5)):
            errors[run, place] = abs(float(hiera(counted, reuse=mu, clip=False, rng=rng).value[0]) - x.mean())
    means, spread = errors.mean(axis=0), errors.std(axis=0) / math.sqrt(runs)
    assert abs(means[0] - exact) < Z * spread[0]
    assert means[0] - 0.0137 > Z * spread[0]
    for place in (1, 2):
        worse = errors[:, place] - errors[:, 0]
        assert worse.mean() > Z * worse.std() / math.sqrt(runs)
        assert means[place] == pytest.approx(0.0175, abs=0.001)


@pytest.mark.long
def test_standard_error_counts_the_second_flips() -> None:
    counted = FIVE.aggregate(FIVE.privatize(np.random.default_rng(1).uniform(-1, 1, 50_000), rng=2))
    rng = np.random.default_rng(3)
    values = np.asarray([float(hiera(counted, reuse=3, clip=False, rng=rng).value[0]) for _ in range(4000)])
    stated = (
        float(hiera(counted, reuse=3, clip=False, rng=rng).std_error[0]) ** 2
        - float(counted.estimate().std_error[0]) ** 2
    )
    assert values.var() / stated == pytest.approx(1, abs=Z * math.sqrt(2 / 4000))


def test_conversion_has_the_rates_it_should() -> None:
    rng = np.random.default_rng(4)
    p_from, p_to, kept = 0.9, 0.7, (0.9 + 0.7 - 1) / 0.8
    plus = np.asarray([convert_signs([0, 1000], p_from, p_to, rng=rng)[1] for _ in range(4000)])
    assert plus.mean() == pytest.approx(1000 * kept, abs=Z * math.sqrt(1000 * kept * (1 - kept) / 4000))
    assert p_from * kept + (1 - p_from) * (1 - kept) == pytest.approx(p_to)
    assert convert_signs([3, 4], 0.8, 0.8).tolist() == [3, 4]


@pytest.mark.parametrize("rates", [(0.6, 0.7), (0.5, 0.5), (0.7, 0.4), (1.2, 0.7)])
def test_conversion_to_less_noise_is_refused(rates: tuple[float, float]) -> None:
    with pytest.raises(ValueError, match="signs only become noisier"):
        convert_signs([1, 2], *rates)


def test_bad_use() -> None:
    counted = FIVE.aggregate(FIVE.privatize([0.1], rng=1))
    for mu in (0, 6):
        with pytest.raises(ValueError, match="Expected 1 <= reuse <= 5"):
            hiera(counted, reuse=mu)
    with pytest.warns(DeprecationWarning, match="mu of hiera is now reuse"):
        assert hiera(counted, mu=2, rng=1).method == "hiera, mu 2"  # type: ignore[call-arg]
    with pytest.warns(DeprecationWarning, match="mu of Reused is now reuse"):
        assert Reused(FIVE, mu=2) == Reused(FIVE, 2)  # type: ignore[call-arg]
    with pytest.warns(DeprecationWarning, match="mu of predicted_hiera is now reuse"):
        made = predicted_hiera(FIVE, mu=1, users=50, clip=False, values=[0.5])  # type: ignore[call-arg]
    assert made == predicted_hiera(FIVE, 1, users=50, clip=False, values=[0.5])
    duchi = nz.Duchi(1.0)
    foreign = duchi.aggregate(duchi.privatize([0.1], rng=1))
    for function in (hiera, maximum_likelihood):
        with pytest.raises(TypeError, match="duchi"):
            function(foreign)
    with pytest.raises(ValueError, match="both >= 0"):
        convert_signs([-1, 2], 0.8, 0.7)
    with pytest.raises(ValueError, match="Expected probabilities"):
        maximum_likelihood(counted).quantile(1.5)


def test_streams_merge_and_text_give_the_same_answers() -> None:
    x = np.random.default_rng(1).uniform(-1, 1, 20_000)
    reports = FIVE.privatize(x, rng=2)
    whole = FIVE.aggregate(reports)
    streamed = aggregate_stream(FIVE, np.array_split(reports, 37))
    assert streamed == whole
    assert hiera(load(streamed.to_json()), reuse=2, rng=1).value == hiera(whole, reuse=2, rng=1).value
    assert maximum_likelihood(streamed).mean == maximum_likelihood(whole).mean


@pytest.mark.slow
def test_likelihood_is_the_largest_there_is() -> None:
    """Against a general optimiser over the same atoms, from several starts."""
    counted = FIVE.aggregate(FIVE.privatize(np.random.default_rng(1).normal(-0.4, 0.1, 2000).clip(-1, 1), rng=2))
    _, _, chances = FIVE.atoms
    found, likelihood = mixture(chances.T, counted.total)
    assert found.min() >= 0
    assert found.sum() == pytest.approx(1)

    def loss(z: np.ndarray) -> float:
        w = np.exp(z - z.max())
        return -float(counted.total @ np.log(chances.T @ (w / w.sum())))

    rng = np.random.default_rng(3)
    best = -min(minimize(loss, rng.normal(size=10), method="L-BFGS-B", options={"maxiter": 5000}).fun for _ in range(5))
    assert likelihood >= best - 1e-6
    assert likelihood == pytest.approx(best, abs=0.05)  # the other one stops a little short
    gradient = chances @ (counted.total / (chances.T @ found)) / counted.users
    assert gradient.max() < 1 + 1e-8  # and no atom would raise it


def test_exact_frequencies_are_given_back() -> None:
    """Counts in proportion to the law of a known distribution return its shares and means."""
    x = np.concatenate([np.full(300, -0.9), np.full(500, -0.1), np.linspace(0.61, 0.99, 200)])
    law = np.exp(FIVE.log_prob(FIVE.support.all, x[:, None])).mean(axis=0)
    counts = np.rint(1e15 * law).astype(np.int64)
    counted = nz.Aggregate(FIVE, int(counts.sum()), np.full(10, counts.sum()), counts, counts)
    found = maximum_likelihood(counted)
    assert found.shares == pytest.approx([0.3, 0.0, 0.5, 0.0, 0.2], abs=1e-5)
    assert found.means[[0, 2, 4]] == pytest.approx([-0.9, -0.1, 0.8], abs=1e-4)
    assert found.mean == pytest.approx(x.mean(), abs=1e-5)
    assert found.quantile([0.3001, 0.7999]) == pytest.approx([-0.2, 0.2], abs=0.01)
    ends, shares = found.probabilities(40)
    assert shares.sum() == pytest.approx(1)
    assert ((ends[1:] + ends[:-1]) / 2) @ shares == pytest.approx(x.mean(), abs=2e-3)
    assert found.cdf([-1.0, 1.0]) == pytest.approx([0, 1], abs=1e-9)


@pytest.mark.slow
def test_likelihood_beats_the_direct_estimate_at_small_budgets() -> None:
    small = nz.LevelledResponse(np.linspace(-1, 1, 6), [0.5, 0.4, 0.3, 0.2, 0.1])
    rng = np.random.default_rng(5)
    errors = np.empty((200, 2))
    for run in range(200):
        x = rng.normal(0.3, 0.2, 5000).clip(-1, 1)
        counted = small.aggregate(small.privatize(x, rng=rng))
        errors[run] = float(counted.estimate().value[0]) - x.mean(), maximum_likelihood(counted).mean - x.mean()
    gain = errors[:, 0] ** 2 - errors[:, 1] ** 2
    assert gain.mean() > Z * gain.std() / math.sqrt(200)


@pytest.mark.slow
def test_optimal_graded_reports_have_a_likelihood_too(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    monkeypatch.setenv("NOISETTE_CACHE", str(tmp_path))
    mechanism = nz.OptimalGraded(edges=[0, 20, 80, 100], epsilons=[1.0, 3.0, 1.0], rule="max", points=10)
    x = np.random.default_rng(1).gamma(4.0, 10.0, 50_000).clip(0, 100)
    counted = mechanism.aggregate(mechanism.privatize(x, rng=2))
    found = maximum_likelihood(counted)
    assert found.mean == pytest.approx(x.mean(), abs=6 * float(counted.estimate().std_error[0]))
    assert found.shares == pytest.approx(np.histogram(x, [0, 20, 80, 100])[0] / x.size, abs=0.1)


def test_separate_inputs_have_a_likelihood_too(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    monkeypatch.setenv("NOISETTE_CACHE", str(tmp_path))
    mechanism = nz.OptimalGraded(points=[0, 1, 5], epsilons=[3.0, 3.0, 2.0])
    x = np.random.default_rng(1).choice([0.0, 1.0, 5.0], 50_000, p=[0.5, 0.3, 0.2])
    found = maximum_likelihood(mechanism.aggregate(mechanism.privatize(x, rng=2)))
    assert found.shares == pytest.approx([0.5, 0.3, 0.2], abs=0.05)
    assert found.mean == pytest.approx(1.3, abs=0.1)


@pytest.mark.parametrize("mean", [0.001, 0.2, 0.4999, 0.499992, 0.5000007, 0.5, 0.7, 0.999])
def test_the_slope_of_an_exponential_law_has_its_mean(mean: float) -> None:
    """int x exp(s x) / int exp(s x) on [0, 1], with many digits: near a half both parts of the formula are huge."""
    slope = mpmath.mpf(_slope(mean))
    with mpmath.workdps(60):
        found = mpmath.mpf(1) / 2 if slope == 0 else 1 / (1 - mpmath.exp(-slope)) - 1 / slope
        assert float(found) == pytest.approx(mean, abs=2e-12)


def test_nothing_is_estimated_where_nobody_has_reported() -> None:
    mechanism = nz.LevelledResponse([0.0, 1.0, 3.0], [1.0, 2.0])
    some = mechanism.aggregate(mechanism.privatize(np.asarray([0.5]), rng=1))
    empty = replace(some, users=0, count=0 * some.count, total=0 * some.total, squares=0 * some.squares)
    assert _levelled(some) is mechanism
    with pytest.raises(ValueError, match="at least one report, got none"):
        hiera(empty)


def test_separate_points_have_levels_that_end_half_way() -> None:
    mechanism = nz.OptimalGraded(points=[0.0, 1.0, 4.0, 5.0], epsilons=[1.0, 2.0, 1.5, 1.0])
    counted = mechanism.aggregate(mechanism.privatize([0.0, 1.0, 4.0, 5.0] * 50, rng=1))
    assert maximum_likelihood(counted).edges.tolist() == [0.0, 0.5, 2.5, 4.5, 5.0]
