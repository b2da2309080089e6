"""Histograms, tables and named families as what is known about the true values."""

import numpy as np
import pytest
from scipy import integrate, stats

import noisette as nz
from noisette.prediction.model import populations

WIDE = nz.Interval(10, 30)


def mean_and_variance(population: populations.Population) -> tuple[float, float]:
    mean = float(population.pooled @ population.points)
    return mean, float(population.pooled @ (population.points - mean) ** 2)


def test_table_keeps_means_and_variances() -> None:
    """Columns move to a grid of 257 points without a change in mean or variance: exact for every quadratic."""
    rng = np.random.default_rng(1)
    rows = np.concatenate([rng.uniform(10, 30, (500, 3)), rng.choice([10.0, 30.0, 17.3], (500, 3))])
    weights = rng.dirichlet(np.ones(1000))
    for probs in (None, weights):
        population = populations.table(rows, probs, WIDE, dims=3)
        mean, square = (population.weights @ population.points**p for p in (1, 2))
        own = np.full(1000, 1e-3) if probs is None else probs
        assert population.weights.sum(axis=1) == pytest.approx(1.0, abs=1e-12)
        assert mean == pytest.approx(own @ rows, rel=1e-12)
        assert square == pytest.approx(own @ rows**2, rel=1e-12)
        within = (own @ rows**2 - (own @ rows) ** 2).mean()
        assert population.spread == pytest.approx(within, rel=1e-9)


def test_two_neighbours_would_not_keep_the_variance() -> None:
    """The twin: sharing a value between two neighbours keeps the mean and adds to the variance."""
    rows = np.full((4, 2), 10 + 20 * 0.5 / 256)
    linear = 0.25 * (20 / 256) ** 2
    assert populations.table(rows, None, WIDE, dims=2).spread == pytest.approx(0.0, abs=1e-10)
    assert linear > 1e-3


def test_coarsening_keeps_means_and_variances() -> None:
    population = populations.named("poisson", WIDE, dims=7)
    coarse = population.coarsened(9)
    assert coarse.points.size == 9
    assert mean_and_variance(coarse) == pytest.approx(mean_and_variance(population), rel=1e-10)
    assert coarse.spread == pytest.approx(population.spread, rel=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "frozen"),
    [
        ("uniform", stats.uniform(-1, 2)),
        ("beta", stats.beta(2, 5, loc=-1, scale=2)),
        ("beta:0.5,0.5", stats.beta(0.5, 0.5, loc=-1, scale=2)),
        ("beta:8,1.5", stats.beta(8, 1.5, loc=-1, scale=2)),
    ],
)
def test_continuous_families(text: str, frozen: stats.rv_continuous) -> None:
    population = populations.named(text, nz.Interval())
    assert mean_and_variance(population) == pytest.approx(frozen.stats("mv"), rel=1e-10, abs=1e-12)
    sixth = float(population.pooled @ population.points**6)
    assert sixth == pytest.approx(frozen.moment(6), rel=1e-6)  # scipy integrates it to some 1e-8
    assert mean_and_variance(populations.named(text, WIDE)) == pytest.approx(
        (20 + 10 * frozen.mean(), 100 * frozen.var()), rel=1e-9
    )


@pytest.mark.parametrize(("mean", "std"), [(0.0, 0.0625), (0.9, 0.0625), (-0.4, 1.5), (3.0, 0.1)])
def test_clipped_gaussian(mean: float, std: float) -> None:
    population = populations.named(f"gaussian:{mean},{std}", nz.Interval())
    law = stats.norm(mean, std)
    low, high = max(-1.0, mean - 12 * std), min(1.0, mean + 12 * std)
    for power in (1, 2, 4):
        inside = integrate.quad(lambda x: x**power * law.pdf(x), low, high, epsabs=1e-13)[0] if low < high else 0.0  # noqa: B023
        expected = inside + (-1.0) ** power * law.cdf(-1) + law.sf(1)
        assert float(population.pooled @ population.points**power) == pytest.approx(expected, abs=1e-9)


def test_gaussian_as_in_the_thesis() -> None:
    """Every tenth dimension has mean 0.9, less what is clipped; the rest 0."""
    population = populations.named("gaussian", nz.Interval(), dims=100)
    assert population.shares == pytest.approx([0.9, 0.1])
    means = population.weights @ population.points
    clipped = integrate.quad(lambda x: (x - 1) * stats.norm.pdf(x, 0.9, 1 / 16), 1, 2)[0]
    assert means == pytest.approx([0.0, 0.9 - clipped], abs=1e-9)
    assert populations.named("gaussian", nz.Interval(), dims=1).shares == pytest.approx([1.0, 0.0])


@pytest.mark.parametrize("rate", [1e-7, 1e-4, 0.3, 1.0, 50.0])
def test_poisson(rate: float) -> None:
    population = populations.named(f"poisson:{rate}", nz.Interval())
    top = max(stats.poisson.ppf(1 - 2.0**-20, rate), 1)  # where hardly anybody counts one, one is the upper end
    counts = np.arange(400)
    values = np.minimum(-1 + 2 * counts / top, 1)
    mass = stats.poisson.pmf(counts, rate)
    mean = mass @ values
    assert mean_and_variance(population) == pytest.approx((mean, mass @ (values - mean) ** 2), rel=1e-8)


def test_poisson_rates_spread_from_1_to_99() -> None:
    one = populations.named("poisson", nz.Interval(), dims=1)
    assert mean_and_variance(one) == pytest.approx(mean_and_variance(populations.named("poisson:50", nz.Interval())))
    assert populations.named("poisson", nz.Interval(), dims=5000).weights.shape == (99, populations.NODES)


def test_families_on_a_grid_stay_on_it() -> None:
    grid = nz.Grid(0, 12, 0.5)
    population = populations.named("uniform", grid)
    assert grid.contains(population.points).all()
    assert float(population.pooled @ population.points) == pytest.approx(6.0, abs=1e-9)
    assert nz.deviation(nz.DiscreteLaplace(1.0, domain=grid), users=10, distribution="beta").bias == 0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("normal", "Unknown distribution 'normal'"),
        ("beta:1", "0 or 2 numbers after 'beta'"),
        ("gaussian:0,x", "0 or 2 numbers after 'gaussian'"),
        ("gaussian:0,-1", r"std=-1\.0 > 0"),
        ("beta:0,1", r"=0\.0 > 0"),
        ("poisson:-3", r"=-3\.0 > 0"),
        ("uniform:0,1", "0 numbers after 'uniform'"),
    ],
)
def test_bad_names(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        populations.named(text, nz.Interval())


def test_bad_tables() -> None:
    with pytest.raises(ValueError, match=r"shape \(\.\.\., 3\), got \(4, 2\)"):
        populations.table(np.zeros((4, 2)), None, nz.Interval(), dims=3)
    with pytest.raises(ValueError, match=r"got 1\.5"):
        populations.table(np.full((4, 2), 1.5), None, nz.Interval(), dims=2)
    with pytest.raises(ValueError, match="real numbers for 'uniform'"):
        populations.named("uniform", nz.Categorical(3))


def test_what_is_known_is_read_by_its_shape() -> None:
    """A table has a column for each dimension; one column, or numbers alone, are a sample that all dimensions share."""
    rows = np.asarray([[10.0, 30.0], [20.0, 12.0], [30.0, 18.0]])
    probs = [0.5, 0.25, 0.25]
    found = populations.known(rows, probs, None, WIDE, dims=2)
    expected = populations.table(rows, probs, WIDE, dims=2)
    assert found is not None
    assert np.array_equal(found.weights, expected.weights)
    alone = populations.histogram(rows[:, 0], probs, WIDE)
    for values, dims in ((rows[:, 0], 2), (rows[:, 0], 1), (rows[:, :1], 1)):
        found = populations.known(values, probs, None, WIDE, dims=dims)
        assert found is not None
        assert np.array_equal(found.points, alone.points)
        assert np.array_equal(found.weights, alone.weights)
    assert populations.known(None, None, None, WIDE) is None
    for values, given in ((rows[:, 0], None), (None, probs)):
        with pytest.raises(ValueError, match="got both"):
            populations.known(values, given, "uniform", WIDE)
    with pytest.raises(ValueError, match="the probabilities of what"):
        populations.known(None, probs, None, WIDE)


def test_a_table_is_laid_on_as_many_points_as_are_named() -> None:
    found = populations.table([[0.1, -0.5], [0.3, 1.0]], None, nz.Interval(), dims=2)
    assert found.points.size == populations.NODES == 257
    assert np.ptp(np.diff(found.points)) < 1e-12
