"""All quantities together: covariances by enumeration and simulation, boxes, suprema and lengths against scipy."""

from __future__ import annotations

import math
from itertools import product
from typing import Any

import numpy as np
import pytest
from scipy import integrate, stats
from scipy.special import ndtri

import noisette as nz
from noisette.prediction import Deviation, JointDeviation, deviation, joint
from noisette.prediction.joint import box_probability

FALSE_ALARM = 1e-6
RNG = np.random.default_rng(17)
ROWS = np.clip(RNG.normal(0.4, 0.4, (240, 1)) + RNG.normal(0, 0.15, (240, 4)), -1, 1)


def independent(bias: Any, std: Any) -> JointDeviation:
    columns = (np.asarray(bias, dtype=float), np.asarray(std, dtype=float), np.ones(np.size(std)))
    return JointDeviation(Deviation(*columns, 100.0, (0.0, 0.0)), None, True)


def correlated(bias: Any, covariance: np.ndarray) -> JointDeviation:
    std = np.sqrt(np.diag(covariance))
    marginal = Deviation(np.asarray(bias, dtype=float), std, np.ones(std.size), 100.0, (0.0, 0.0))
    return JointDeviation(marginal, covariance / np.outer(std, std), True)


def covariances_agree(found: np.ndarray, predicted: np.ndarray) -> bool:
    """Every entry within a normal bound whose width is estimated from the products themselves."""
    centred = found - found.mean(axis=0)
    products = centred[:, :, None] * centred[:, None, :]
    limit = -ndtri(FALSE_ALARM / 2 / predicted.size)
    error = products.std(axis=0) / math.sqrt(len(found))
    return bool(np.all(np.abs(products.mean(axis=0) - predicted) <= limit * error + 1e-15))


def collect(mechanism: Any, rows: np.ndarray, collections: int, seed: int) -> np.ndarray:
    truth = mechanism.domain.expand(rows).mean(axis=0) if mechanism.kind == "attributes" else rows.mean(axis=0)
    rng = np.random.default_rng(seed)
    return np.asarray(
        [mechanism.aggregate(mechanism.privatize(rows, rng=rng)).estimate().value - truth for _ in range(collections)]
    )


def test_two_dimensions_of_which_one_is_reported_are_opposite() -> None:
    """Without noise and with equal entries, whoever is missing in one dimension is there in the other: -1."""
    rows = np.repeat([[-1.0, -1.0], [1.0, 1.0]], 50, axis=0)
    mechanism = nz.Sampled("duchi", epsilon=40.0, dims=2, report=1)
    assert joint(mechanism, users=100, values=rows).correlation == pytest.approx(np.array([[1, -1], [-1, 1]]), abs=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(("inner", "report"), [("laplace", 1), ("square-wave", 2)])
def test_sampled_dimensions(inner: str, report: int) -> None:
    """Simulated averages of reports; the twin without covariances is rejected."""
    mechanism = nz.Sampled(inner, epsilon=40.0, dims=4, report=report)
    predicted = joint(mechanism, users=len(ROWS), values=ROWS)
    everyone = np.broadcast_to(ROWS, (6000, *ROWS.shape)).reshape(-1, 4)
    reports = mechanism.privatize(everyone, rng=5)
    cells = reports.indices + 4 * (np.arange(len(everyone)) // len(ROWS))[:, None]
    sums = np.bincount(cells.ravel(), reports.values.ravel(), minlength=24_000)
    found = (sums / np.bincount(cells.ravel(), minlength=24_000)).reshape(6000, 4) - ROWS.mean(axis=0)
    # an average over a random number of reports is noisier by a share of 1 / reports: 2 % here
    slack = 1 + 1.5 / predicted.marginal.reports
    assert covariances_agree(found, slack * predicted.covariance)
    assert not covariances_agree(found, slack * np.diag(np.diag(predicted.covariance)))


def test_signs_of_whole_boxes() -> None:
    """Even dimensions have ties and covariances of their own; the law is enumerated for one vector."""
    for dims, epsilon in ((2, 1.0), (3, 0.7), (4, 2.0)):
        mechanism = nz.DuchiBox(epsilon=epsilon, dims=dims)
        x = np.linspace(-0.9, 0.8, dims)
        signs = np.asarray(list(product([-1, 1], repeat=dims)), dtype=np.int8)
        mass = np.exp(mechanism.log_prob(signs, x))
        points = signs / mechanism.kappa
        second = (points * mass[:, None]).T @ points - np.outer(x, x)
        predicted = joint(mechanism, users=10, values=x[None])
        assert predicted.covariance * 10 == pytest.approx(second, rel=1e-9, abs=1e-9)


@pytest.mark.long
def test_signs_of_a_population() -> None:
    mechanism = nz.DuchiBox(epsilon=3.0, dims=4)
    predicted = joint(mechanism, users=len(ROWS), values=ROWS)
    found = collect(mechanism, ROWS, 1500, seed=8)
    assert covariances_agree(found, predicted.covariance)
    assert not covariances_agree(found, 1.3 * predicted.covariance)


@pytest.mark.long
@pytest.mark.parametrize("cls", [nz.PrivUnit, nz.PrivUnitG])
def test_caps(cls: Any) -> None:
    mechanism = cls(epsilon=4.0, domain=nz.L2Ball(4, 2.0))
    predicted = joint(mechanism, users=len(ROWS), values=ROWS)
    found = collect(mechanism, ROWS, 1500, seed=9)
    assert covariances_agree(found, predicted.covariance)
    assert not covariances_agree(found, 1.3 * predicted.covariance)


@pytest.mark.parametrize("name", ["grr", "oue", "sue", "subset-selection"])
def test_categories_by_enumeration(name: str) -> None:
    """The covariance of what one report says, from the masses of all reports."""
    size = 5
    mechanism = nz.CATALOGUE[name](0.8, nz.Categorical(size))
    reports: Any = {
        "grr": lambda: np.arange(size),
        "subset-selection": lambda: np.asarray(
            [s for s in product(range(size), repeat=mechanism.length) if all(np.diff(s) > 0)]
        ),
    }.get(name, lambda: np.asarray(list(product([0, 1], repeat=size)), dtype=np.uint8))()
    supported = np.stack([mechanism._count(report[None]) for report in reports]).astype(float)
    supported -= mechanism.p_other
    supported /= mechanism.p_own - mechanism.p_other
    frequency = np.array([0.4, 0.3, 0.2, 0.1, 0.0])
    expected = np.zeros((size, size))
    for own in range(size):
        mass = np.exp(mechanism.log_prob(reports, np.asarray(own)))
        mean = mass @ supported
        expected += frequency[own] * ((supported * mass[:, None]).T @ supported - np.outer(mean, mean))
    predicted = joint(mechanism, users=1, values=np.arange(size), probs=frequency)
    assert predicted.exact
    assert predicted.covariance == pytest.approx(expected, rel=1e-9, abs=1e-9)


def test_histogram_entries_are_independent_and_hashes_are_bounded() -> None:
    noise = joint(nz.HistogramEncoding(1.0, nz.Categorical(4)), users=50, values=[0, 1, 2])
    assert noise.exact
    assert noise.correlation == pytest.approx(np.eye(4))
    hashed = joint(nz.LocalHashing(1.0, nz.Categorical(4)), users=50, values=[0, 1, 2])
    assert not hashed.exact
    assert hashed.correlation is None


@pytest.mark.long
def test_records() -> None:
    """Within attributes and between them, simulated; the twin without covariances is rejected."""
    rng = np.random.default_rng(4)
    rows = np.column_stack([rng.integers(0, 3, 300), rng.integers(0, 2, 300), rng.integers(0, 2, 300)])
    rows[:, 1] = rows[:, 0] > 0
    mechanism = nz.SampledAttributes("grr", epsilon=9.0, domain=nz.Attributes((3, 2, 2)), report=1)
    predicted = joint(mechanism, users=300, values=rows)
    found = collect(mechanism, rows, 1500, seed=3)
    slack = 1 + 1.5 / 100
    assert covariances_agree(found, slack * predicted.covariance)
    assert not covariances_agree(found, slack * np.diag(np.diag(predicted.covariance)))
    between = predicted.covariance.copy()
    between[:3, 3:5] = between[3:5, :3] = 0.0  # the twin that forgets who reports which
    assert not covariances_agree(found, slack * between)


def test_boxes_against_scipy() -> None:
    rng = np.random.default_rng(2)
    for dims in (2, 3, 6):
        root = rng.normal(size=(dims, dims))
        matrix = root @ root.T + np.eye(dims)
        std = np.sqrt(np.diag(matrix))
        model = correlated(rng.normal(0, 0.3, dims), matrix)
        radius = std * rng.uniform(0.7, 2.5, dims)
        truth = stats.multivariate_normal(model.bias, matrix, seed=1).cdf(radius, lower_limit=-radius)
        assert model.probability_within(radius) == pytest.approx(truth, abs=1e-3)


@pytest.mark.slow
def test_box_of_equal_correlation() -> None:
    """One common factor: the chance is a one-dimensional integral, in 60 dimensions too."""
    rho, dims, radius = 0.5, 60, 2.5
    matrix = np.full((dims, dims), rho) + (1 - rho) * np.eye(dims)

    def inside(z: float) -> float:
        near = [(sign * radius - math.sqrt(rho) * z) / math.sqrt(1 - rho) for sign in (1, -1)]
        return stats.norm.pdf(z) * (stats.norm.cdf(near[0]) - stats.norm.cdf(near[1])) ** dims

    truth = integrate.quad(inside, -9, 9)[0]
    found = box_probability(np.full(dims, -radius), np.full(dims, radius), matrix)
    assert found == pytest.approx(truth, abs=2e-3)
    assert abs((2 * stats.norm.cdf(radius) - 1) ** dims - truth) > 0.1  # the twin that takes them for independent


def test_independent_products_and_suprema() -> None:
    model = independent([0.1, -0.3, 0.0], [0.2, 0.1, 0.5])
    radius = np.array([0.3, 0.5, 0.4])
    chances = [
        stats.norm(b, s).cdf(r) - stats.norm(b, s).cdf(-r)
        for b, s, r in zip(model.bias, model.std, radius, strict=True)
    ]
    assert model.probability_within(radius) == pytest.approx(math.prod(chances), rel=1e-12)
    for level in (0.5, 0.95, 0.999):
        assert model.probability_within(model.supremum(level)) == pytest.approx(level, abs=1e-7)
    draws = np.random.default_rng(1).normal(model.bias, model.std, (400_000, 3))
    largest, length = np.abs(draws).max(axis=1), np.linalg.norm(draws, axis=1)
    limit = -ndtri(FALSE_ALARM / 4)
    assert abs(model.expected_supremum - largest.mean()) < limit * largest.std() / math.sqrt(len(draws))
    assert abs(model.expected_l2 - length.mean()) < limit * length.std() / math.sqrt(len(draws))
    assert abs(math.sqrt(3 * model.mse) - length.mean()) > limit * length.std() / math.sqrt(len(draws))  # Jensen's gap


def test_length_of_a_standard_vector() -> None:
    """The mean of a chi variable, with and without correlations."""
    for dims in (1, 2, 50, 5000):
        assert independent(np.zeros(dims), np.ones(dims)).expected_l2 == pytest.approx(stats.chi(dims).mean(), rel=1e-6)
    turned = np.array([[2.0, 1.0], [1.0, 2.0]])  # eigenvalues 1 and 3
    value = correlated([0.0, 0.0], turned).expected_l2
    draws = np.random.default_rng(3).multivariate_normal([0, 0], turned, 400_000)
    length = np.linalg.norm(draws, axis=1)
    assert abs(value - length.mean()) < -ndtri(FALSE_ALARM / 2) * length.std() / math.sqrt(len(draws))


def test_small_probabilities_keep_their_digits() -> None:
    model = independent(np.full(40, 1.0), np.full(40, 0.1))
    one = stats.norm.sf(5) - stats.norm.sf(15)
    assert math.log(model.probability_within(0.5)) == pytest.approx(40 * math.log(one), rel=1e-9)


def test_many_dimensions() -> None:
    """Supremum of 5,000 independent dimensions: the level's 5,000th root in each of them."""
    mechanism = nz.Sampled("piecewise", epsilon=1.0, dims=5000, report=50)
    together = joint(mechanism, users=200_000, distribution="uniform")
    one = deviation(mechanism, users=200_000, distribution="uniform")
    assert together.std.shape == (5000,)
    assert together.supremum(0.95) == pytest.approx(one.supremum(0.95 ** (1 / 5000)), rel=1e-6)
    assert together.probability_within(together.supremum(0.9)) == pytest.approx(0.9, abs=1e-6)


def test_no_knowledge_takes_each_at_its_worst() -> None:
    unknown = joint(nz.Sampled("piecewise", epsilon=1.0, dims=10, report=2), users=500)
    assert not unknown.exact
    assert unknown.mse == pytest.approx(
        deviation(nz.Sampled("piecewise", epsilon=1.0, dims=10, report=2), users=500).mse
    )
    assert joint(nz.GeneralizedRandomizedResponse(1.0, nz.Categorical(3)), users=5).std.shape == (3,)


def test_one_value() -> None:
    one = joint(nz.SquareWave(1.0), users=100, values=[0.5])
    dev = deviation(nz.SquareWave(1.0), users=100, values=[0.5])
    assert one.supremum(0.9) == pytest.approx(dev.supremum(0.9), rel=1e-8)
    assert one.expected_supremum == pytest.approx(
        stats.foldnorm(abs(dev.bias) / dev.std, scale=dev.std).mean(), rel=1e-6
    )


def test_bad_bounds() -> None:
    model = independent([0.0], [1.0])
    with pytest.raises(ValueError, match=r"xi=-1"):
        model.probability_within(-1)
    with pytest.raises(ValueError, match=r"level=1\.5"):
        model.supremum(1.5)


@pytest.mark.parametrize("biases", [(0.1, 5.0), (-5.0, 0.1), (0.0, 5.0, 4.9)])
def test_the_largest_of_quantities_whose_biases_are_far_apart(biases: tuple[float, ...]) -> None:
    """The mean of the largest, from the distribution function of each on a fine grid."""
    std = 0.04
    radius = np.linspace(0.0, 6.0, 600_001)
    within = np.prod([stats.norm(b, std).cdf(radius) - stats.norm(b, std).cdf(-radius) for b in biases], axis=0)
    exact = float(np.trapezoid(1 - within, radius))
    assert independent(biases, [std] * len(biases)).expected_supremum == pytest.approx(exact, abs=1e-6)
