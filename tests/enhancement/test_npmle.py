"""The fit's certificate of optimality, an independent optimiser, the spec's numbers, and a million dimensions."""

import tracemalloc

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.stats import norm

from noisette.enhancement import npmle as fitting
from noisette.enhancement.npmle import _cells, _grid, fit, likelihood, maximise, npmle

Z = 4.9


def problem(size, seed, unequal=True):
    rng = np.random.default_rng(seed)
    s = rng.uniform(0.05, 1.5, size) if unequal else np.full(size, 0.3)
    truth = np.where(rng.random(size) < 0.3, 0.7, -0.2)
    return truth, truth + s * rng.standard_normal(size), s


@pytest.mark.slow
@pytest.mark.parametrize(("size", "noise"), [(750, 0.002), (200, 1e-5)])
def test_the_fit_converges_where_hundreds_of_truths_stand_alone(size, noise):
    """A step that leaves atoms out, because others are heavier, takes all chance from their observations."""
    truth = np.random.default_rng(8).uniform(-1, 1, size)
    y, s = truth + noise * np.random.default_rng(9).standard_normal(size), np.full(size, noise)
    grid = _grid(y, s, True)
    kernel = likelihood(y, np.hypot(s, (grid[1] - grid[0]) / 2), grid)
    everyone, others = np.ones(size), (np.arange(size) % 5 > 0).astype(float)
    weights = maximise(kernel, everyone)
    for counts, found in ((everyone, weights), (others, maximise(kernel, others, start=weights))):
        gradient = kernel.T @ (counts / (kernel @ found)) - counts.sum()
        assert gradient.max() <= 1e-3 + 1e-6 * size


@pytest.mark.parametrize("unequal", [False, True])
@pytest.mark.parametrize("size", [2, 10, 300, 20_000])
def test_no_atom_could_raise_the_likelihood(size, unequal):
    """Concave problem: D_k <= tolerance at every grid point bounds the distance from the maximum."""
    _, y, s = problem(size, 1, unequal)
    grid = _grid(y, s, True)
    cells = _cells(y, s, np.zeros(size, dtype=np.int64))
    kernel, counts = likelihood(cells.observed, cells.std_error, grid), cells.counts.sum(axis=1)
    weights = maximise(kernel, counts)
    assert weights.sum() == pytest.approx(1)
    assert np.all(weights >= 0)
    gradient = kernel.T @ (counts / (kernel @ weights)) - counts.sum()
    assert gradient.max() <= 1e-3 + 1e-6 * size
    assert gradient[weights > 1e-3] == pytest.approx(0, abs=0.01 * size)  # no gain where the weight is


@pytest.mark.slow
def test_likelihood_reaches_that_of_an_independent_optimiser():
    _, y, s = problem(60, 2)
    grid = np.linspace(-1, 1, 25)
    density = norm.pdf(y[:, None], grid, s[:, None])

    def loss(logits):
        p = np.exp(logits - logits.max())
        return -np.sum(np.log(density @ (p / p.sum())))

    other = min(minimize(loss, np.random.default_rng(k).normal(0, 1, 25), method="L-BFGS-B").fun for k in range(3))
    weights = maximise(likelihood(y, s, grid), np.ones(60))
    ours = -np.sum(np.log(density @ weights))
    assert ours <= other + 2e-3


def test_counts_weigh_like_repeated_observations():
    _, y, s = problem(30, 3)
    grid = np.linspace(-1, 1, 41)
    kernel = likelihood(y, s, grid)
    repeated = maximise(np.repeat(kernel, 3, axis=0), np.ones(90), tolerance=0.0)
    counted = maximise(kernel, np.full(30, 3.0), tolerance=0.0)
    assert np.sum(np.log(kernel @ counted)) == pytest.approx(np.sum(np.log(kernel @ repeated)), abs=1e-3)


def test_posterior_is_the_mean_under_the_prior():
    _, y, s = problem(50, 4)
    prior = fit(y, s).prior
    found = prior.posterior(y, s)
    for j in range(5):
        t = np.linspace(-3, 3, 60_001)
        density = norm.pdf(t[:, None], prior.atoms, prior.width) @ prior.weights * norm.pdf(y[j], t, s[j])
        mean = np.sum(t * density) / np.sum(density)
        assert found.mean[j] == pytest.approx(mean, abs=1e-4)
        assert found.variance[j] == pytest.approx(np.sum((t - mean) ** 2 * density) / np.sum(density), abs=1e-4)
        assert found.log_density[j] == pytest.approx(np.log(np.sum(density) * (t[1] - t[0])), abs=1e-4)


def test_folds_do_not_see_their_own_observations():
    """Moving an observation moves the fit to everyone, but not the prior by which it is judged."""
    _, y, s = problem(40, 5, unequal=False)
    moved = y.copy()
    moved[3] = y.min()
    assert np.array_equal(_grid(y, s, True), _grid(moved, s, True))
    first, second = fit(y, s), fit(moved, s)
    grid = np.linspace(-1.5, 1.5, 50)
    noise = np.full(50, 0.3)
    own = first.others[3].posterior(grid, noise).mean
    assert own == pytest.approx(second.others[3].posterior(grid, noise).mean, abs=2e-3)
    change = np.abs(first.prior.posterior(grid, noise).mean - second.prior.posterior(grid, noise).mean)
    assert change.max() > 0.02


@pytest.mark.slow
def test_gathering_in_cells_changes_little():
    """20,000 observations in cells against one by one."""
    _, y, s = problem(20_000, 6)
    grid = _grid(y, s, True)
    cells = _cells(y, s, np.arange(20_000) % 5)
    assert cells.counts.sum() == 20_000
    assert cells.observed.size < 10_000
    weights = maximise(likelihood(cells.observed, cells.std_error, grid), cells.counts.sum(axis=1))
    exact = likelihood(y, s, grid)
    best = maximise(exact, np.ones(20_000))
    assert np.sum(np.log(exact @ weights)) > np.sum(np.log(exact @ best)) - 2.0


@pytest.mark.slow
@pytest.mark.parametrize(("setting", "reference"), [("uniform", 0.068), ("clustered", 0.0096), ("sparse", 0.014)])
def test_measured_errors_of_the_spec(setting, reference):
    """Reference table: d = 1,000, s = 0.3, one run each: the spread over seeds is the tolerance."""
    rng = np.random.default_rng(31)
    squares = []
    for _ in range(30):
        truth = {
            "uniform": rng.uniform(-1, 1, 1_000),
            "clustered": 0.5 + 0.1 * rng.standard_normal(1_000),
            "sparse": np.where(np.arange(1_000) < 50, 0.8, 0.0),
        }[setting]
        y = truth + 0.3 * rng.standard_normal(1_000)
        squares.append(np.mean((npmle(y, np.full(1_000, 0.3)).value - truth) ** 2))
    assert abs(np.mean(squares) - reference) < Z * np.std(squares) + 0.0005


def test_nearly_the_bayes_risk_with_unequal_errors():
    """Truths at two points and known: within 10 % of the posterior mean that knows them, at 5,000 dimensions."""
    truth, y, s = problem(5_000, 7)
    odds = 0.3 / 0.7 * np.exp(((y + 0.2) ** 2 - (y - 0.7) ** 2) / (2 * s**2))
    oracle = -0.2 + 0.9 * odds / (1 + odds)
    loss = np.mean((npmle(y, s).value - truth) ** 2)
    assert loss < 1.1 * np.mean((oracle - truth) ** 2)
    assert loss < 0.25 * np.mean((y - truth) ** 2)


@pytest.mark.slow
def test_noise_far_below_the_grid_leaves_values_alone():
    rng = np.random.default_rng(8)
    truth = rng.uniform(-1, 1, 200)
    s = np.full(200, 1e-7)
    y = np.clip(truth + s * rng.standard_normal(200), -1, 1)
    assert npmle(y, s).value == pytest.approx(y, abs=1e-7)


@pytest.mark.parametrize("size", [1, 2, 3])
def test_few_dimensions(size):
    y = np.array([0.2, 0.3, -1.8])[:size]
    result = npmle(y, np.full(size, 0.5))
    assert np.all(np.isfinite(result.value))
    assert np.all(result.std_error > 0)
    assert np.all(np.abs(result.value) <= 1.1)


@pytest.mark.parametrize("noise", ["equal", "small", "decades"])
@pytest.mark.long
def test_many_dimensions_in_linear_memory(noise):
    """How long a million take is measured in benchmarks/sizes.py."""
    rng = np.random.default_rng(9)
    size = 250_000
    truth = rng.uniform(-1, 1, size) if noise == "small" else np.where(rng.random(size) < 0.05, 0.8, 0.0)
    s = {"equal": np.full(size, 0.3), "small": np.full(size, 0.01)}.get(noise)
    s = np.exp(rng.uniform(np.log(1e-3), np.log(3), size)) if s is None else s
    y = truth + s * rng.standard_normal(size)
    tracemalloc.start()
    result = npmle(y, s)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 40 * 8 * size  # forty float64 a dimension; a grid of 400 points would need ten times that
    assert np.mean((result.value - truth) ** 2) < (1.0 if noise == "small" else 0.2) * np.mean(s**2)


@pytest.mark.long
def test_answers_to_many_are_those_to_few():
    """Sorted, in blocks, with atoms merged and dropped, against every atom of the distribution for every value."""
    rng = np.random.default_rng(10)
    size = 9_000
    s = np.exp(rng.uniform(np.log(1e-3), np.log(3), size))
    y = np.where(rng.random(size) < 0.5, rng.uniform(-1, 1, size), 0.25) + s * rng.standard_normal(size)
    prior = fit(y, s).prior
    found, few = prior.posterior(y, s), rng.choice(size, 2_000, replace=False)
    exact = prior.posterior(y[few], s[few])
    assert np.max(np.abs(found.mean[few] - exact.mean) / s[few]) < 0.01
    assert np.max(np.abs(found.log_density[few] - exact.log_density)) < 0.01
    crude = prior.merged(0.5).posterior(y[few], s[few])  # the twin: atoms merged without regard to the noise
    assert np.max(np.abs(crude.mean - exact.mean) / s[few]) > 0.1


def test_dropped_atoms_would_have_had_no_share():
    prior = fit(*problem(300, 11)[1:]).prior
    y, s = np.linspace(0.2, 0.3, 50), np.linspace(0.02, 0.03, 50)
    few = prior.relevant(y, s)
    assert few.atoms.size < prior.atoms.size
    assert few.posterior(y, s).mean == pytest.approx(prior.posterior(y, s).mean, abs=1e-12)
    assert few.posterior(y, s).log_density == pytest.approx(prior.posterior(y, s).log_density, abs=1e-11)
    there = few.atoms[np.argmin(np.abs(few.atoms - 0.25))]
    less = type(prior)(*(part[few.atoms != there] for part in (few.atoms, few.weights)), few.width)
    assert np.max(np.abs(less.posterior(y, s).mean - prior.posterior(y, s).mean)) > 1e-6  # the twin


@pytest.mark.parametrize(
    ("observed", "bounded", "ends"),
    [
        ([-3.0, 0.2, 2.0], True, (-1.0, 1.0)),
        ([-3.0, 0.2, 2.0], False, (-3.0, 2.0)),
        ([-0.5, 0.25], True, (-0.5, 0.25)),
        ([1.5, 2.0], True, (1.0, 1.0)),
        ([-2.0, -1.5], True, (-1.0, -1.0)),
    ],
)
def test_the_grid_lies_over_the_data_inside_the_domain(observed, bounded, ends):
    found = _grid(np.asarray(observed), np.full(len(observed), 0.5), bounded)
    assert (found[0], found[-1]) == ends
    assert found.size == round((ends[1] - ends[0]) / 0.0625) + 1  # an eighth of a deviation apart
    blurred = _grid(np.asarray(observed), np.full(len(observed), 0.5), bounded, 0.25)
    assert blurred.size == round((ends[1] - ends[0]) / 0.125) + 1
    assert _grid(np.asarray(observed), np.full(len(observed), 1e-4), bounded).size == (400 if ends[0] < ends[1] else 1)


def test_few_observations_are_kept_one_by_one(monkeypatch):
    """More are gathered in cells of like deviation and position, with how many there are of each fold."""
    monkeypatch.setattr(fitting, "_EXACT", 6)
    observed, std_error = np.asarray([0.5, 0.5, 0.1, 0.5, 0.9, 0.1, 0.5]), np.full(7, 0.1)
    folds = np.arange(7) % 5
    few = _cells(observed[:6], std_error[:6], folds[:6])
    assert few.observed.tolist() == observed[:6].tolist()
    assert few.counts.tolist() == np.eye(5)[folds[:6]].tolist()
    many = _cells(observed, std_error, folds)
    assert np.allclose(np.sort(many.observed), [0.1, 0.5, 0.9])
    assert many.counts.sum(axis=0).tolist() == [2.0, 2.0, 1.0, 1.0, 1.0]
