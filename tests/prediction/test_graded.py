"""Predicted errors of graded collection against simulation by the mechanisms themselves."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats
from scipy.special import ndtri

import noisette as nz
from noisette.mechanisms.graded.estimation import hiera, maximum_likelihood
from noisette.prediction import compare
from noisette.prediction.graded import Reused, duchi_within, plan_levels, predicted_hiera, simulated

FIVE = nz.LevelledResponse(np.linspace(-1, 1, 6), [2.5, 2.0, 1.5, 1.0, 0.5])
VALUES = np.random.default_rng(1).normal(0.3, 0.2, 4000).clip(-1, 1)
Z = float(ndtri(1 - 1e-6 / 2))


def obtained(read: object, runs: int, seed: int) -> np.ndarray:
    """Errors of a reading over collections from the 4,000 users."""
    rng = np.random.default_rng(seed)
    return np.asarray([read(FIVE.aggregate(FIVE.privatize(VALUES, rng=rng)), rng) - VALUES.mean() for _ in range(runs)])


@pytest.mark.long
@pytest.mark.parametrize("mu", [2, 4])  # one is the mechanism itself, see below
def test_hiera_without_clipping(mu: int) -> None:
    errors = obtained(lambda a, rng: float(hiera(a, reuse=mu, clip=False, rng=rng).value[0]), 1500, mu)
    predicted = nz.deviation(Reused(FIVE, mu), users=4000, values=VALUES)
    assert errors.var() / predicted.std**2 == pytest.approx(1, abs=Z * math.sqrt(2 / 1500))
    assert abs(errors.mean()) < Z * predicted.std / math.sqrt(1500)
    assert predicted_hiera(FIVE, mu, users=4000, clip=False, values=VALUES)[1] == pytest.approx(predicted.std, rel=1e-3)
    if mu == 2:  # the twin: the error of the direct estimate is another one
        direct = nz.deviation(FIVE, users=4000, values=VALUES).std
        assert abs(errors.var() / direct**2 - 1) > Z * math.sqrt(2 / 1500)


def test_mu_one_is_the_mechanism_itself() -> None:
    x = np.linspace(-1, 1, 41)
    own, read = FIVE.moments(x), Reused(FIVE, 1).moments(x)
    assert read.variance == pytest.approx(own.variance, rel=1e-9)
    assert read.third == pytest.approx(own.third, rel=1e-9)


def test_more_reuse_never_helps() -> None:
    """The second flips only add variance, at every value and for every mu."""
    x = np.linspace(-1, 1, 201)
    for mu in range(2, 6):
        assert np.all(Reused(FIVE, mu).moments(x).variance > FIVE.moments(x).variance)


@pytest.mark.long
def test_maximum_likelihood() -> None:
    errors = obtained(lambda a, _: maximum_likelihood(a).mean, 250, 9)
    bias, std = simulated(FIVE, lambda a: maximum_likelihood(a).mean, users=4000, values=VALUES, draws=250)
    assert std / errors.std() == pytest.approx(1, abs=Z * math.sqrt(1 / 250))
    assert abs(bias - errors.mean()) < Z * std * math.sqrt(2 / 250)


@pytest.mark.slow
def test_clipped_hiera() -> None:
    errors = obtained(lambda a, rng: float(hiera(a, reuse=2, rng=rng).value[0]), 400, 10)
    _, std = predicted_hiera(FIVE, 2, users=4000, values=VALUES)
    assert std / errors.std() == pytest.approx(1, abs=Z * math.sqrt(1 / 400))


def test_duchi_keeps_the_matrix_and_no_more() -> None:
    matrix = np.asarray(FIVE.guarantee.matrix)
    epsilon = duchi_within(FIVE.edges, matrix).epsilon

    def ratios(e: float) -> np.ndarray:
        c = (math.exp(e) + 1) / (math.exp(e) - 1)
        ends = np.stack([FIVE.edges[:-1], FIVE.edges[1:]], axis=1)
        tried = [
            [math.log((c + s * x) / (c + s * y)) for s in (1, -1) for x in ends[i] for y in ends[j]]
            for i in range(5)
            for j in range(5)
        ]
        return np.max(tried, axis=1).reshape(5, 5)

    assert np.all(ratios(epsilon) <= matrix + 1e-9)
    assert np.any(ratios(1.0001 * epsilon) > matrix)


@pytest.mark.long
def test_plan(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    monkeypatch.setenv("NOISETTE_CACHE", str(tmp_path))
    made = plan_levels(users=10_000, edges=[-1, 0, 1], epsilons=[2.0, 1.0], values=VALUES, optimal_points=8)
    names = [candidate.mechanism for candidate in made.candidates]
    assert set(names) == {
        "duchi",
        "levelled",
        "levelled, hiera mu 2",
        "levelled, maximum likelihood",
        "optimal-graded",
    }
    assert names[0] == "optimal-graded"  # nothing unbiased beats it under the same matrix
    assert [c.mse for c in made.candidates] == sorted(c.mse for c in made.candidates)
    asked = np.asarray(nz.LevelledResponse([-1, 0, 1], [2.0, 1.0]).guarantee.matrix)
    assert np.all(np.asarray(made.best.build().guarantee.matrix) <= asked)
    assert made.to_dict()["best"] == "optimal-graded"
    unknown = plan_levels(users=10_000, edges=[-1, 0, 1], epsilons=[2.0, 1.0], total=1.0, optimal_points=8)
    assert unknown.epsilon == pytest.approx(1.0)
    assert "levelled, maximum likelihood" not in [c.mechanism for c in unknown.candidates]
    (direct,) = (c for c in unknown.candidates if c.mechanism == "levelled")
    assert direct.range is not None


def test_compare_takes_readings() -> None:
    found = compare([Reused(FIVE, 2), FIVE, Reused(FIVE, 5)], users=1000, values=VALUES)
    assert found[0].mechanism == "levelled"


def test_bad_use() -> None:
    with pytest.raises(ValueError, match="Expected 1 <= reuse <= 5"):
        Reused(FIVE, 6)
    with pytest.raises(ValueError, match="depends on the true values"):
        simulated(FIVE, lambda a: 0.0, users=10)
    with pytest.raises(ValueError, match="Expected values in"):
        plan_levels(users=10, edges=[-1, 0, 1], epsilons=[1.0, 1.0], values=[3.0])


def test_a_level_of_ones_own_is_not_a_second_quantity():
    """300 collections of 1,000 users: a variance that is off by half would be seen; false alarm 1e-6."""
    mechanism = nz.LevelledResponse([-1, -0.6, 0, 1], [3.0, 2.0, 1.0], personalised=True)
    people = np.asarray([[0.5, 1], [0.2, 2]])
    predicted = nz.deviation(mechanism, users=1000, values=people)
    rows = np.tile(people, (500, 1))
    found = [mechanism.aggregate(mechanism.privatize(rows, rng=s)).estimate().value[0] - 0.35 for s in range(300)]
    low, high = stats.chi2.ppf([5e-7, 1 - 5e-7], len(found))
    scaled = float(np.sum((np.asarray(found) / predicted.std) ** 2))
    assert low < scaled < high
    assert not low < scaled * 2 < high
