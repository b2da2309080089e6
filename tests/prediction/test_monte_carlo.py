"""Predictions against simulated collections.

Every test rejects a right prediction with probability at most 1e-6: the distribution by the inequality of Dvoretzky,
Kiefer, Wolfowitz and Massart on top of the prediction's own Berry-Esseen bound, mean and variance by normal quantiles.
Each has a twin that a wrong prediction fails.
"""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

import noisette as nz
from noisette.prediction import Deviation, deviation

pytestmark = pytest.mark.slow

FALSE_ALARM = 1e-6
REPORTS = 1000
COLLECTIONS = 2500
VALUES = np.array([-0.875, -0.25, 0.0, 0.5, 1.0])
COUNTS = np.array([100, 200, 300, 150, 250])
SCALARS = [name for name, cls in nz.CATALOGUE.items() if cls.kind == "mean"]


def agrees(deviations: np.ndarray, predicted: Deviation) -> bool:
    """Kolmogorov-Smirnov test within the predicted error of the Gaussian model."""
    chance = math.sqrt(math.log(2 / FALSE_ALARM) / (2 * deviations.size))
    distance = stats.kstest(deviations, stats.norm(predicted.bias, predicted.std).cdf).statistic
    return bool(distance <= predicted.berry_esseen + chance)


def moments_agree(deviations: np.ndarray, predicted: Deviation) -> bool:
    """Normal tests of mean and variance at half the false-alarm rate each; the variance's own error is estimated."""
    limit = -stats.norm.ppf(FALSE_ALARM / 4)
    centred = deviations - deviations.mean()
    mean_error = predicted.std / math.sqrt(deviations.size)
    variance_error = math.sqrt(max(np.mean(centred**4) - np.mean(centred**2) ** 2, 0.0) / deviations.size)
    mean_fits = abs(deviations.mean() - predicted.bias) <= limit * mean_error
    return bool(mean_fits and abs(centred.var(ddof=1) - predicted.std**2) <= limit * variance_error)


def column(predicted: Deviation, j: int) -> Deviation:
    """Return the prediction of one quantity out of many."""
    error = predicted.mse[j]
    return Deviation(predicted.bias[j], predicted.std[j], predicted.third[j], predicted.reports, (error, error))


def collect(mechanism: nz.core.Mechanism, seed: int) -> np.ndarray:
    """Simulate collections from users who hold VALUES in COUNTS, and return average report minus true mean."""
    values = np.repeat(VALUES, COUNTS)
    rng = np.random.default_rng(seed)
    blocks = []
    for _ in range(0, COLLECTIONS, 250):
        reports = mechanism.privatize(np.tile(values, 250), rng=rng)
        reports = reports.reshape(250, values.size, *reports.shape[1:])
        if reports.ndim > 2:  # reports that are no numbers: the aggregate knows what they stand for
            means = np.asarray([mechanism.aggregate(own).estimate().value[0] for own in reports])
        else:
            means = reports.mean(axis=1)
        blocks.append(means - values.mean())
    return np.concatenate(blocks)


@pytest.mark.long
@pytest.mark.parametrize("epsilon", [0.5, 2.0])
@pytest.mark.parametrize("name", SCALARS)
def test_scalar_mechanisms(name: str, epsilon: float) -> None:
    mechanism = nz.CATALOGUE[name].example(epsilon)
    predicted = deviation(mechanism, users=REPORTS, values=VALUES, probs=COUNTS / REPORTS)
    found = collect(mechanism, seed=11)
    assert agrees(found, predicted)
    assert moments_agree(found, predicted)


def test_misprinted_piecewise_is_rejected() -> None:
    mechanism = nz.Piecewise(1.0)
    s = math.exp(0.5)
    printed = VALUES / (s - 1) + math.exp(3.5) / (3 * (s - 1) ** 2)
    predicted = deviation(mechanism, users=REPORTS, values=VALUES, probs=COUNTS / REPORTS)
    wrong = replace(predicted, std=math.sqrt(COUNTS / REPORTS @ printed / REPORTS))
    found = collect(mechanism, seed=12)
    assert agrees(found, predicted)
    assert not agrees(found, wrong)
    assert not moments_agree(found, wrong)


def test_square_wave_without_its_bias_is_rejected() -> None:
    mechanism = nz.SquareWave(1.0)
    predicted = deviation(mechanism, users=REPORTS, values=VALUES, probs=COUNTS / REPORTS)
    found = collect(mechanism, seed=13)
    assert agrees(found, predicted)
    assert not agrees(found, replace(predicted, bias=0.0))


def test_a_variance_a_fifth_off_is_rejected() -> None:
    """The moments test sees what a test of the distribution may not."""
    mechanism = nz.Laplace(1.0)
    predicted = deviation(mechanism, users=REPORTS, values=VALUES, probs=COUNTS / REPORTS)
    found = collect(mechanism, seed=14)
    assert moments_agree(found, predicted)
    assert not moments_agree(found, replace(predicted, std=predicted.std * math.sqrt(1.2)))


def sampled_deviations(mechanism: nz.Sampled, users: np.ndarray, collections: int, seed: int) -> np.ndarray:
    """Return, for each simulated collection and dimension, the average report minus the true mean."""
    rows, dims = users.shape
    everyone = np.broadcast_to(users, (collections, rows, dims)).reshape(-1, dims)
    reports = mechanism.privatize(everyone, rng=seed)
    cells = reports.indices + dims * (np.arange(len(everyone)) // rows)[:, None]
    sums = np.bincount(cells.ravel(), reports.values.ravel(), minlength=collections * dims)
    counts = np.bincount(cells.ravel(), minlength=collections * dims)
    return (sums / counts).reshape(collections, dims) - users.mean(axis=0)


@pytest.mark.parametrize("inner", ["piecewise", "laplace", "square-wave"])
def test_sampled_term(inner: str) -> None:
    """With much budget the choice of who reports is most of the noise; the twin without its term is rejected."""
    users = np.repeat(VALUES, 80)[:, None] * [1.0, -1.0, 0.5, 1.0, 0.25]
    mechanism = nz.Sampled(inner, epsilon=16.0, dims=5, report=2)
    predicted = deviation(mechanism, users=len(users), values=users)
    found = sampled_deviations(mechanism, users, collections=3000, seed=21)
    inside = nz.CATALOGUE[inner](epsilon=8.0).moments(users).variance.mean(axis=0)
    for j in range(5):
        right = column(predicted, j)
        assert agrees(found[:, j], right)
        assert moments_agree(found[:, j], right)
        if j != 4:
            assert not moments_agree(found[:, j], replace(right, std=math.sqrt(inside[j] / right.reports)))


@pytest.mark.parametrize("inner", ["duchi", "hybrid", "square-wave"])
def test_sampled_at_a_thousand_reports(inner: str) -> None:
    """2,500 users report two of five dimensions, a thousand reports each."""
    users = np.repeat(VALUES, 500)[:, None] * [1.0, -1.0, 0.5, 1.0, 0.25]
    mechanism = nz.Sampled(inner, epsilon=4.0, dims=5, report=2)
    predicted = deviation(mechanism, users=len(users), values=users)
    assert predicted.reports == REPORTS
    found = sampled_deviations(mechanism, users, collections=400, seed=23)
    for j in range(5):
        assert agrees(found[:, j], column(predicted, j))
        assert moments_agree(found[:, j], column(predicted, j))


def test_the_bound_of_berry_and_esseen_is_needed() -> None:
    """At a large budget few reports differ: a thousand are far from Gaussian, within the bound but not without it.

    The twin is the bound with the third moment of a Gaussian-like report, s^3 in place of rho.
    """
    mechanism = nz.Duchi(6.0)
    predicted = deviation(mechanism, users=REPORTS, values=[1.0])
    rng = np.random.default_rng(15)
    found = mechanism.privatize(np.ones(COLLECTIONS * REPORTS), rng=rng).reshape(COLLECTIONS, REPORTS).mean(axis=1) - 1
    assert predicted.berry_esseen > 0.1
    assert agrees(found, predicted)
    one_report = predicted.std * math.sqrt(REPORTS)
    twin = replace(predicted, third=one_report**3)
    assert twin.berry_esseen < 0.02
    assert not agrees(found, twin)


def test_square_wave_subset_term_follows_the_mean_report() -> None:
    """The spread of who reports enters through t + bias(t): Var(t), right without bias, is rejected for square wave."""
    users = np.repeat([-1.0, 1.0], 200)[:, None] * np.ones(4)
    mechanism = nz.Sampled("square-wave", epsilon=1.0, dims=4, report=1)
    predicted = deviation(mechanism, users=400, values=users[:, 0])
    found = sampled_deviations(mechanism, users, collections=3000, seed=22)[:, 0]
    assert moments_agree(found, predicted)
    inside = nz.SquareWave(1.0).moments(users[:, 0]).variance.mean()
    wrong = math.sqrt(inside / 100 + users[:, 0].var() * (1 / 100 - 1 / 400))
    assert not moments_agree(found, replace(predicted, std=wrong))


@pytest.mark.parametrize("name", [n for n, cls in nz.CATALOGUE.items() if cls.kind == "frequency"])
def test_frequencies(name: str) -> None:
    mechanism = nz.CATALOGUE[name].example(1.0)
    size = mechanism.domain.size
    codes = np.repeat(np.arange(size), 40 * np.arange(1, size + 1))
    truth = np.bincount(codes, minlength=size) / codes.size
    predicted = deviation(mechanism, users=codes.size, values=codes)
    rng = np.random.default_rng(31)
    found = np.asarray(
        [mechanism.aggregate(mechanism.privatize(codes, rng=rng)).estimate().value - truth for _ in range(600)]
    )
    for category in range(size):
        right = column(predicted, category)
        assert agrees(found[:, category], right)
        assert moments_agree(found[:, category], right)
        assert not moments_agree(found[:, category], replace(right, std=1.5 * right.std))


WHOLE = [n for n, cls in nz.CATALOGUE.items() if cls.kind == "vector-mean" and cls is not nz.Sampled]


@pytest.mark.long
@pytest.mark.parametrize("name", WHOLE)
def test_vectors(name: str) -> None:
    """Each dimension of mechanisms on whole vectors, from the rows of a small population."""
    mechanism = nz.CATALOGUE[name].example(3.0)
    rows = mechanism.domain.clip(np.random.default_rng(41).normal(0.3, 0.4, (REPORTS, *mechanism.domain.shape)))
    predicted = deviation(mechanism, users=len(rows), values=rows)
    truth = rows.mean(axis=0).ravel()
    rng = np.random.default_rng(42)
    found = np.asarray(
        [mechanism.aggregate(mechanism.privatize(rows, rng=rng)).estimate().value.ravel() - truth for _ in range(400)]
    )
    for j in range(truth.size):
        right = column(predicted, j)
        assert agrees(found[:, j], right)
        assert moments_agree(found[:, j], right)
