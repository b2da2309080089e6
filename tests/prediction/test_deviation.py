"""The Gaussian model of a deviation: its methods, where its moments come from, what it refuses."""

import math

import numpy as np
import pytest
from scipy import stats

import noisette as nz
from noisette.prediction import Deviation, deviation

VALUES = np.array([-0.875, -0.25, 0.0, 0.5, 1.0])
PROBS = np.array([0.1, 0.2, 0.3, 0.15, 0.25])
SCALARS = [name for name, cls in nz.CATALOGUE.items() if cls.kind == "mean"]


@pytest.mark.parametrize("name", SCALARS)
def test_averages_of_moments(name: str) -> None:
    mechanism = nz.CATALOGUE[name].example(1.0)
    moments = mechanism.moments(VALUES)
    dev = deviation(mechanism, users=2500, values=VALUES, probs=PROBS)
    assert dev.bias == pytest.approx(PROBS @ moments.bias, abs=1e-12)
    assert dev.std == pytest.approx(math.sqrt(PROBS @ moments.variance / 2500), rel=1e-12)
    assert dev.third == pytest.approx(PROBS @ moments.third, rel=1e-12)
    spread = dev.std * 50
    assert dev.berry_esseen == pytest.approx(0.33554 * (dev.third + 0.415 * spread**3) / (spread**3 * 50), rel=1e-12)
    assert dev.range == (dev.mse, dev.mse)


def test_a_sample_is_a_histogram_of_equal_weights() -> None:
    rng = np.random.default_rng(5)
    sample = rng.choice(VALUES, 200_000, p=PROBS)
    found, counts = np.unique(sample, return_counts=True)
    mechanism = nz.SquareWave(0.7)
    one = deviation(mechanism, users=10, values=sample)
    other = deviation(mechanism, users=10, values=found, probs=counts / counts.sum())
    assert (one.bias, one.std, one.third) == pytest.approx((other.bias, other.std, other.third), rel=1e-9)


@pytest.mark.parametrize("bias", [0.0, 0.3, -2.0, 50.0])
@pytest.mark.parametrize("std", [0.1, 1.0])
def test_probabilities_against_scipy(bias: float, std: float) -> None:
    dev = Deviation(bias, std, 1.0, 100.0, (0.0, 0.0))
    normal, folded = stats.norm(bias, std), stats.foldnorm(abs(bias) / std, scale=std)
    x = np.linspace(bias - 5 * std, bias + 5 * std, 41)
    assert dev.cdf(x) == pytest.approx(normal.cdf(x), abs=1e-14)
    assert dev.pdf(x) == pytest.approx(normal.pdf(x), rel=1e-12)
    assert dev.mse == pytest.approx(bias**2 + std**2)
    radius = np.abs(bias) + std * np.linspace(-3, 5, 17)
    radius = radius[radius >= 0]
    assert dev.probability_within(radius) == pytest.approx(normal.cdf(radius) - normal.cdf(-radius), abs=1e-14)
    for level in (0.05, 0.5, 0.95, 0.999999):
        assert dev.probability_within(dev.supremum(level)) == pytest.approx(level, abs=1e-9)
        if abs(bias) < 10:
            assert dev.supremum(level) == pytest.approx(folded.ppf(level), rel=1e-8)


def test_small_probabilities_keep_their_digits() -> None:
    """A bound far below the bias is met with a tiny probability, which the difference of two near-ones would lose."""
    dev = Deviation(1.0, 0.05, 1.0, 100.0, (0.0, 0.0))
    assert dev.probability_within(0.1) == pytest.approx(stats.norm.sf(18) - stats.norm.sf(22), rel=1e-9)


def test_scaling_with_the_domain() -> None:
    """Hundredfold values are a hundredfold deviation."""
    narrow = deviation(nz.Hybrid(2.0), users=500, values=VALUES, probs=PROBS)
    wide = deviation(nz.Hybrid(2.0, domain=nz.Interval(0, 200)), users=500, values=100 * VALUES + 100, probs=PROBS)
    assert wide.std == pytest.approx(100 * narrow.std, rel=1e-6)
    assert wide.berry_esseen == pytest.approx(narrow.berry_esseen, rel=1e-6)


def test_sampled_term() -> None:
    """sigma^2 = (E var + (1 - m/d) Var(t)) / r; the twin without the second term is off by more than half."""
    mechanism = nz.Sampled("piecewise", epsilon=24.0, dims=20, report=4)
    inner = nz.Piecewise(6.0).moments(VALUES)
    users, reports = 1000, 200
    dev = deviation(mechanism, users=users, values=VALUES, probs=PROBS)
    spread = PROBS @ VALUES**2 - (PROBS @ VALUES) ** 2
    expected = PROBS @ inner.variance / reports + spread * (1 / reports - 1 / users)
    assert dev.reports == reports
    assert dev.std**2 == pytest.approx(expected, rel=1e-7)
    assert PROBS @ inner.variance / reports < 0.5 * dev.std**2


def test_sampling_everyone_has_no_term() -> None:
    everyone = nz.Sampled("laplace", epsilon=6.0, dims=3, report=3)
    one = nz.Laplace(2.0)
    dev, same = (deviation(m, users=900, values=VALUES, probs=PROBS) for m in (everyone, one))
    assert (dev.std, dev.third, dev.reports) == pytest.approx((same.std, same.third, same.reports), rel=1e-9)


def test_sampled_on_a_wider_box() -> None:
    box = nz.Box(4, 0.0, 200.0)
    wide = nz.Sampled("piecewise", epsilon=4.0, dims=4, report=2, domain=box)
    narrow = nz.Sampled("piecewise", epsilon=4.0, dims=4, report=2)
    one = deviation(wide, users=100, values=100 * VALUES + 100, probs=PROBS)
    other = deviation(narrow, users=100, values=VALUES, probs=PROBS)
    assert one.std == pytest.approx(100 * other.std, rel=1e-9)


def test_rows_give_one_number_a_dimension() -> None:
    rows = np.random.default_rng(2).uniform(-1, 1, (50, 3)) * [1.0, 0.5, 0.1]
    mechanism = nz.Sampled("duchi", epsilon=6.0, dims=3, report=2)
    dev = deviation(mechanism, users=50, values=rows)
    for j in range(3):
        one = deviation(mechanism, users=50, values=rows[:, j])
        assert (dev.bias[j], dev.std[j], dev.third[j]) == pytest.approx((one.bias, one.std, one.third), rel=1e-9)
    assert dev.supremum(0.9).shape == dev.berry_esseen.shape == (3,)


@pytest.mark.parametrize("name", [n for n, cls in nz.CATALOGUE.items() if cls.kind == "frequency"])
def test_frequencies(name: str) -> None:
    """E var = f var(own) + (1 - f) var(other) for each category, by the full table of moments."""
    mechanism = nz.CATALOGUE[name].example(1.5)
    size = mechanism.domain.size
    frequency = np.arange(1.0, size + 1)
    frequency /= frequency.sum()
    table = mechanism.moments(np.arange(size))
    dev = deviation(mechanism, users=400, values=np.arange(size), probs=frequency)
    assert dev.bias == pytest.approx(frequency @ table.bias, abs=1e-12)
    assert dev.std**2 == pytest.approx(frequency @ table.variance / 400, rel=1e-12)
    assert dev.third == pytest.approx(frequency @ table.third, rel=1e-12)
    sample = np.repeat(np.arange(size), np.rint(frequency * size * (size + 1) / 2).astype(int))
    assert deviation(mechanism, users=400, values=sample).std == pytest.approx(dev.std, rel=1e-12)
    unknown = deviation(mechanism, users=400)
    assert np.all(unknown.range[0] <= dev.mse * (1 + 1e-12))
    assert np.all(unknown.range[1] >= dev.mse * (1 - 1e-12))
    assert unknown.range[1] == pytest.approx(table.variance.max(axis=0) / 400, rel=1e-12)


MANY = {
    "piecewise": nz.Piecewise(1.0),
    "duchi": nz.Duchi(0.5),
    "square-wave": nz.SquareWave(1.0),
    "square-wave-on-unit-interval": nz.SquareWave(0.1, domain=nz.Interval(0, 1)),
    "sampled-piecewise": nz.Sampled("piecewise", epsilon=8.0, dims=10, report=2),
    "sampled-laplace": nz.Sampled("laplace", epsilon=8.0, dims=10, report=2),
    "sampled-square-wave": nz.Sampled("square-wave", epsilon=2.0, dims=10, report=5),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", MANY)
@pytest.mark.parametrize("users", [3, 10_000])
def test_no_distribution_leaves_the_range(name: str, users: int) -> None:
    """Random distributions on a fine grid, sparse and dense, never beat the extremes; two of them attain them."""
    mechanism = MANY[name]
    unknown = deviation(mechanism, users=users)
    low, high = (0.0, 1.0) if mechanism.domain == nz.Interval(0, 1) else (-1.0, 1.0)
    rng = np.random.default_rng(3)
    errors = []
    for _ in range(300):
        points = rng.uniform(low, high, rng.integers(1, 6))
        points = np.where(rng.random(points.size) < 0.3, rng.choice([low, high]), points)
        weights = rng.dirichlet(np.full(points.size, 0.5))
        errors.append(deviation(mechanism, users=users, values=points, probs=weights).mse)
    assert min(errors) >= unknown.range[0] * (1 - 1e-6)
    assert max(errors) <= unknown.range[1] * (1 + 1e-6)
    assert unknown.mse == unknown.range[1]
    simple = [[(low + high) / 2], [high], [low, high]]
    attained = [deviation(mechanism, users=users, values=points).mse for points in simple]
    assert unknown.range == pytest.approx((min(attained), max(attained)), rel=1e-6)


def test_the_worst_distribution_may_need_two_values() -> None:
    """The twin of the search over pairs: single values alone would miss the spread of the users who report."""
    mechanism = nz.Sampled("laplace", epsilon=8.0, dims=10, report=2)
    single = max(deviation(mechanism, users=100, values=[x]).mse for x in np.linspace(-1, 1, 21))
    assert deviation(mechanism, users=100).mse > 1.5 * single


BAD = [
    ({"users": 0}, "Expected 1 <= users"),
    ({"users": 2.5}, "users=2.5 to be an integer"),
    ({"users": 5, "values": [0.1, 2.0]}, r"got 2\.0"),
    ({"users": 5, "values": [0.1, math.nan]}, "got nan"),
    ({"users": 5, "values": []}, "at least one value"),
    ({"users": 5, "values": ["a"]}, "real numbers"),
    ({"users": 5, "values": [[0.1, 0.2]]}, r"shape \(1, 2\)"),
    ({"users": 5, "values": [0.1, 0.2], "probs": [0.5, 0.6]}, r"sum to 1, got 1\.1"),
    ({"users": 5, "values": [0.1, 0.2], "probs": [1.5, -0.5]}, r"probs >= 0, got -0\.5"),
    ({"users": 5, "values": [0.1, 0.2], "probs": [1.0]}, "each of 2 values"),
    ({"users": 5, "probs": [1.0]}, "values beside probs"),
    ({"users": 5, "values": [0.1], "distribution": "uniform"}, "got both"),
    ({"users": 5, "distribution": "cauchy"}, "Unknown distribution 'cauchy'"),
]


@pytest.mark.parametrize(("options", "message"), BAD)
def test_bad_input(options: dict[str, object], message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        deviation(nz.Duchi(1.0), **options)


def test_bad_levels_and_bounds() -> None:
    dev = deviation(nz.Duchi(1.0), users=10, values=[0.0])
    with pytest.raises(ValueError, match=r"level=1\.0"):
        dev.supremum(1.0)
    with pytest.raises(ValueError, match=r"xi=-0\.1 >= 0"):
        dev.probability_within(-0.1)


def test_uneven_boxes_ask_for_rows() -> None:
    box = nz.Box(2, (0.0, -1.0), (1.0, 1.0))
    mechanism = nz.Sampled("duchi", epsilon=1.0, dims=2, report=1, domain=box)
    with pytest.raises(ValueError, match="rows of whole vectors"):
        deviation(mechanism, users=10, values=[0.5])
    assert deviation(mechanism, users=10, values=[[0.5, -0.5]]).std.shape == (2,)
