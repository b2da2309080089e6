"""Verdicts, populations for a wanted error and power: against formulas, scipy and simulated tests."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

import noisette as nz
from noisette.prediction import compare, deviation, plan, population_needed, power, verdict

TENTHS = np.arange(1, 11) / 10


@pytest.mark.parametrize("name", ["laplace", "duchi", "piecewise", "hybrid"])
@pytest.mark.parametrize("options", [{}, {"values": TENTHS}, {"distribution": "uniform"}])
def test_the_population_is_the_least_that_is_enough(name: str, options: dict[str, object]) -> None:
    mechanism = nz.CATALOGUE[name](0.7)
    for target in (0.5, 0.01, 3e-5):
        users = population_needed(mechanism, mse=target, **options)
        assert deviation(mechanism, users=users, **options).mse <= target * (1 + 1e-9)
        if users > 1:
            assert deviation(mechanism, users=users - 1, **options).mse > target * (1 - 1e-9)


def test_a_bias_keeps_a_target_out_of_reach() -> None:
    wave = nz.SquareWave(1.0)
    bias = deviation(wave, users=1, values=TENTHS).bias
    assert population_needed(wave, mse=bias**2 * 0.999, values=TENTHS) is None
    users = population_needed(wave, mse=bias**2 * 1.01, values=TENTHS)
    assert deviation(wave, users=users, values=TENTHS).mse <= bias**2 * 1.01
    assert population_needed(wave, power=0.8, effect=0.1, values=TENTHS) is None  # a biased test has no level
    worst = deviation(wave, users=10**9).bias ** 2
    assert population_needed(wave, mse=worst * 0.99) is None
    enough = population_needed(wave, mse=worst * 1.1)
    assert deviation(wave, users=enough).mse <= worst * 1.1 < deviation(wave, users=enough - 1).mse


def test_reference_populations() -> None:
    """From the closed forms: 8 / e^2 for Laplace, c^2 for Duchi at worst; (1.959964 + 0.841621)^2 for power 0.8."""
    assert population_needed(nz.Laplace(1.0), mse=0.01) == 800
    c2 = ((math.e + 1) / (math.e - 1)) ** 2
    assert population_needed(nz.Duchi(1.0), mse=0.01) == math.ceil(c2 / 0.01)
    lamb = stats.norm.ppf(0.975) + stats.norm.ppf(0.8)
    # the other tail adds about 1e-6 to the power, hence one user less at most
    assert population_needed(nz.Laplace(1.0), power=0.8, effect=0.1) == pytest.approx(8 * lamb**2 / 0.01, abs=1.01)


def test_sampled_and_records() -> None:
    sampled = nz.Sampled("piecewise", epsilon=2.0, dims=10, report=2)
    users = population_needed(sampled, mse=0.02, values=TENTHS)
    assert deviation(sampled, users=users, values=TENTHS).mse <= 0.02
    record = nz.SampledAttributes("oue", epsilon=2.0, domain=nz.Attributes((3, 5, 9)), report=1)
    for options in ({}, {"values": [[0, 4, 8], [1, 0, 0], [2, 3, 3]]}):
        users = population_needed(record, mse=0.001, **options)
        errors = [deviation(record, users=n, **options).mse.mean() for n in (users, users - 1)]
        # the worst case of every frequency at once is no distribution: the plan's is lower
        assert errors[1] > 0.001 or not options
        assert errors[0] <= 0.001 * (1 + 1e-9) or not options


@pytest.mark.parametrize("ratio", [0.1, 1.0, 2.8, 5.0])
@pytest.mark.parametrize("significance", [0.01, 0.05, 0.2])
def test_power_against_scipy(ratio: float, significance: float) -> None:
    quantile = stats.norm.ppf(1 - significance / 2)
    expected = stats.norm.sf(quantile, loc=ratio) + stats.norm.cdf(-quantile, loc=ratio)
    assert power(0.3, 0.3 * ratio, significance) == pytest.approx(expected, rel=1e-10)


def test_power_is_how_often_a_test_sees_it() -> None:
    """1,200 simulated tests of a wrong mean; false alarm 1e-6; the twin of half the effect is rejected."""
    mechanism, users, effect = nz.Piecewise(2.0), 400, 0.16
    rng = np.random.default_rng(4)
    values = np.full(users, 0.2 + effect)
    dev = deviation(mechanism, users=users, values=[0.2 + effect])
    means = mechanism.privatize(np.tile(values, 1200), rng=rng).reshape(1200, users).mean(axis=1)
    seen = int(np.sum(np.abs(means - 0.2) > stats.norm.ppf(0.975) * dev.std))
    chance = power(dev.std, effect)
    slack = dev.berry_esseen * 2
    low, high = stats.binom(1200, chance - slack).ppf(5e-7), stats.binom(1200, min(chance + slack, 1)).ppf(1 - 5e-7)
    assert low <= seen <= high
    assert not low <= stats.binom(1200, power(dev.std, effect / 2)).mean() <= high


@pytest.mark.slow
def test_plans_answer_for_every_candidate() -> None:
    made = plan(users=5000, dims=8, epsilon=2.0, values=TENTHS, target_mse=0.001, target_power=0.9, effect=0.1)
    assert made.targets == {"mse": 0.001, "power": 0.9, "effect": 0.1, "significance": 0.05}
    for candidate in made.candidates:
        built = candidate.build()
        if candidate.needed["mse"] is not None:
            assert candidate.needed["mse"] == population_needed(built, mse=0.001, values=TENTHS)
        if candidate.unbiased:
            assert candidate.power == pytest.approx(power(candidate.std, 0.1), rel=1e-9)
            users = population_needed(built, power=0.9, effect=0.1, values=TENTHS)
            assert candidate.needed["power"] == pytest.approx(users, abs=1)
        else:
            assert candidate.power is None
            assert candidate.needed["power"] is None
    assert made.to_dict()["candidates"][0]["needed"] == made.best.needed


@pytest.mark.slow
def test_verdicts() -> None:
    """One user at a small budget is noise, a million are not; between them the error is half to all of the signal."""
    tiny, huge = plan(users=1, epsilon=0.1), plan(users=10**6, epsilon=1.0)
    assert (tiny.verdict, huge.verdict) == ("not worth collecting", "worth collecting")
    assert (verdict(1.0, 1.0), verdict(1.0001, 1.0), verdict(0.25, 1.0), verdict(0.2501, 1.0)) == (
        *("doubtful", "not worth collecting"),
        *("worth collecting", "doubtful"),
    )
    assert verdict(0.0, 0.5) == "worth collecting"
    assert tiny.to_dict()["verdict"] == "not worth collecting"
    assert tiny.to_dict()["signal"] == 1.0


@pytest.mark.slow
def test_a_biased_guess_is_not_worth_collecting() -> None:
    """Square wave at a tiny budget says the middle, whatever the values: its error stays just below the signal."""
    made = plan(users=2000, dims=500, epsilon=0.5)
    assert made.best.mechanism == "square-wave"
    assert made.best.verdict == "doubtful"
    assert made.best_unbiased is not None
    assert made.best_unbiased.verdict == made.verdict == "not worth collecting"


@pytest.mark.slow
def test_signals() -> None:
    """Root mean square distance from the middle; of categories from equal frequencies, whatever the distribution."""
    assert plan(users=10, epsilon=1.0, domain=nz.Interval(0, 10)).signal == 5.0
    made = plan(users=10, epsilon=1.0, domain=nz.Interval(0, 10), values=[4.0, 9.0])
    assert made.signal == pytest.approx(math.sqrt((1 + 16) / 2))
    assert plan(users=10, epsilon=1.0, distribution="uniform").signal == pytest.approx(math.sqrt(1 / 3))
    rng = np.random.default_rng(5)
    for size in (2, 5):
        frequency = rng.dirichlet(np.ones(size))
        one_hot = sum(frequency[v] * np.mean((np.eye(size)[v] - 1 / size) ** 2) for v in range(size))
        made = plan(users=10, epsilon=1.0, domain=nz.Categorical(size), values=np.arange(size), probs=frequency)
        assert made.signal**2 == pytest.approx(one_hot)
        assert np.mean((frequency - 1 / size) ** 2) <= made.signal**2


def test_no_answer_is_farther_from_the_guess_than_the_signal() -> None:
    """The promise behind "not worth collecting": the guess is never worse than the signal."""
    rng = np.random.default_rng(6)
    for _ in range(50):
        values = rng.uniform(-1, 1, 5) ** 3
        made = plan(users=100, epsilon=1.0, values=values, mechanisms=["duchi"])
        assert abs(values.mean()) <= made.signal + 1e-12


def test_compare_judges_too() -> None:
    ranked = compare([nz.Laplace(0.01), nz.Duchi(5.0)], users=50)
    assert [c.verdict for c in ranked] == ["worth collecting", "not worth collecting"]


BAD = [
    ({}, "either mse or power"),
    ({"mse": 0.1, "power": 0.8, "effect": 0.1}, "either mse or power"),
    ({"mse": -1.0}, r"target_mse=-1\.0 > 0"),
    ({"power": 0.8}, "an effect beside"),
    ({"power": 0.01, "effect": 0.1}, "between significance=0.05"),
]


@pytest.mark.parametrize(("options", "message"), BAD)
def test_bad_targets(options: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        population_needed(nz.Duchi(1.0), **options)
