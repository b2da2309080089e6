"""The parts of enhancement against sums written out: priors and posteriors, cells, grids, scales and what is told."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from noisette.core import Estimate
from noisette.enhancement import averaging, npmle, prior
from noisette.enhancement.npmle import PriorFit, _cells, _grid, _prior, _support, fit, likelihood, maximise
from noisette.enhancement.prior import Prior, by_fold
from noisette.enhancement.problem import NormalMeans, _places, _steady, run_lengths
from noisette.enhancement.stein import Enhanced

PRIOR = Prior(np.asarray([-0.5, 0.1, 0.8]), np.asarray([0.2, 0.5, 0.3]), 0.05)
SEEN, ERROR = np.asarray([-0.7, 0.0, 0.4, 1.1]), np.asarray([0.2, 0.3, 0.1, 0.5])


def posterior(own: Prior, y: float, s: float) -> tuple[float, float, float]:
    """Mean, variance and log density by a sum over a fine grid of truths."""
    t = np.linspace(-4, 4, 80_001)
    density = sum(w * np.exp(-((t - a) ** 2) / (2 * own.width**2)) for a, w in zip(own.atoms, own.weights, strict=True))
    density = density / (own.width * math.sqrt(2 * math.pi))
    joint = density * np.exp(-((y - t) ** 2) / (2 * s**2)) / (s * math.sqrt(2 * math.pi))
    mass = joint.sum()
    mean = (joint @ t) / mass
    return float(mean), float(joint @ (t - mean) ** 2 / mass), math.log(float(mass) * (t[1] - t[0]))


def test_posteriors_are_those_of_a_fine_grid() -> None:
    found = PRIOR.posterior(SEEN, ERROR)
    for place, (y, s) in enumerate(zip(SEEN, ERROR, strict=True)):
        mean, variance, log = posterior(PRIOR, y, s)
        assert found.mean[place] == pytest.approx(mean, rel=1e-6, abs=1e-9)
        assert found.variance[place] == pytest.approx(variance, rel=1e-5)
        assert found.log_density[place] == pytest.approx(log, rel=1e-6)
    assert PRIOR.mean == pytest.approx(-0.1 + 0.05 + 0.24)
    assert PRIOR.variance == pytest.approx(0.2 * 0.69**2 + 0.5 * 0.09**2 + 0.3 * 0.61**2 + 0.05**2)


def test_many_observations_are_answered_as_few_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """In blocks, with merged atoms and without those that are negligible."""
    rng = np.random.default_rng(1)
    own = Prior(np.linspace(-1, 1, 200), rng.dirichlet(np.ones(200)), 0.01)
    y, s = rng.normal(0, 0.6, 500), rng.uniform(0.1, 0.5, 500)
    whole = own.posterior(y, s)
    monkeypatch.setattr(prior, "_BLOCK", 16)
    parts = own.posterior(y, s)
    assert np.allclose(parts.mean, whole.mean, atol=2e-3)
    assert np.allclose(parts.variance, whole.variance, rtol=1e-2, atol=3e-4)
    assert np.allclose(parts.log_density, whole.log_density, rtol=0.01, atol=0.01)


def test_merged_atoms_keep_mass_mean_and_scatter() -> None:
    own = Prior(np.asarray([0.0, 0.1, 0.35, 0.9]), np.asarray([0.1, 0.3, 0.2, 0.4]), 0.05)
    found = own.merged(0.3)
    assert found.weights == pytest.approx([0.4, 0.2, 0.4])
    assert found.atoms == pytest.approx([0.075, 0.35, 0.9])
    assert found.mean == pytest.approx(own.mean)
    assert found.variance == pytest.approx(own.variance)
    assert own.merged(0.05) is own


def test_atoms_that_matter_to_no_observation_are_dropped() -> None:
    own = Prior(np.asarray([-5.0, 0.0, 5.0]), np.full(3, 1 / 3), 0.0)
    near = np.asarray([-0.1, 0.1])
    assert own.relevant(near, np.asarray([0.1, 0.1])).atoms.tolist() == [0.0]
    assert own.relevant(np.asarray([-0.1, 2.5]), np.asarray([0.1, 0.1])).atoms.tolist() == [0.0, 5.0]
    assert own.relevant(near, np.asarray([0.1, 2.0])).atoms.tolist() == [-5.0, 0.0, 5.0]


def test_folds_are_every_fifth_coordinate() -> None:
    found = by_fold(7, lambda fold, own: prior.Posterior(*(np.full(len(range(7)[own]), float(fold)) for _ in range(3))))
    assert found.mean.tolist() == [0, 1, 2, 3, 4, 0, 1]
    fits = PriorFit(PRIOR, tuple(Prior(np.asarray([float(n)]), np.ones(1), 0.0) for n in range(5)))
    assert fits.held_out(np.zeros(7), np.ones(7)).mean.tolist() == [0, 1, 2, 3, 4, 0, 1]
    assert fits.moments == (PRIOR.mean, PRIOR.variance)
    assert fits.slack(np.asarray([0.1, 1.0])) == pytest.approx([0.0, 0.15**2])  # a fifth of the noise less the width


def test_an_atom_is_worth_a_weight_where_it_has_one_or_the_gradient_peaks() -> None:
    gradient = np.asarray([2.0, 1.0, -1.0, 3.0, 3.0, -2.0, 0.5])
    weights = np.asarray([0.0, 0.5, 0.0, 0.0, 0.0, 0.5, 0.0])
    assert _support(weights, gradient).tolist() == [0, 1, 3, 4, 5, 6]
    assert _support(np.zeros(7), gradient).tolist() == [0, 3, 4, 6]
    assert _support(np.zeros(3), np.asarray([-1.0, -0.5, -1.0])).tolist() == []
    assert _support(np.zeros(3), np.asarray([-1.0, 0.0, -1.0])).tolist() == []
    kept = _prior(np.asarray([0.0, 1.0, 2.0]), np.asarray([0.5, 1e-13, 1.0]), 0.1)
    assert kept.atoms.tolist() == [0.0, 2.0]
    assert kept.weights == pytest.approx([1 / 3, 2 / 3])


def test_the_most_likely_weights_leave_no_direction_up() -> None:
    rng = np.random.default_rng(2)
    observed, errors = np.append(rng.normal(-0.5, 0.1, 40), rng.normal(0.6, 0.1, 20)), np.full(60, 0.1)
    grid = np.linspace(-1, 1, 41)
    kernel = likelihood(observed, errors, grid)
    assert kernel.max(axis=1) == pytest.approx(np.ones(60))
    ratio = kernel[0, 3] / kernel[0, 7]
    wanted = math.exp((-((observed[0] - grid[3]) ** 2) + (observed[0] - grid[7]) ** 2) / 0.02)
    assert ratio == pytest.approx(wanted, rel=1e-9)
    weights = maximise(kernel, np.ones(60))
    assert weights.sum() == pytest.approx(1)
    assert np.all(weights >= 0)
    slope = kernel.T @ (1 / (kernel @ weights)) - 60
    assert slope.max() <= 1e-3 + 1e-6 * 60
    best = float(np.log(kernel @ weights).sum())
    for seed in range(20):
        other = 0.99 * weights + 0.01 * np.random.default_rng(seed).dirichlet(np.ones(41))
        assert float(np.log(kernel @ other).sum()) <= best + 1e-3
    doubled = maximise(np.vstack([kernel, kernel[:1]]), np.append(np.full(60, 2.0), 0.0))
    assert np.allclose(kernel @ doubled, kernel @ weights, rtol=1e-2)


def test_grids_are_an_eighth_of_a_deviation_fine() -> None:
    found = _grid(np.asarray([-0.5, 0.5]), np.asarray([0.4, 0.4]), True)
    assert found == pytest.approx(np.linspace(-0.5, 0.5, 21))
    assert _grid(np.asarray([-3.0, 3.0]), np.full(2, 0.4), True)[[0, -1]].tolist() == [-1.0, 1.0]
    assert _grid(np.asarray([-3.0, 3.0]), np.full(2, 0.4), False)[[0, -1]].tolist() == [-3.0, 3.0]
    assert _grid(np.asarray([-3.0, 3.0]), np.full(2, 0.001), False).size == 400
    assert _grid(np.asarray([0.2, 0.2]), np.full(2, 0.1), False).tolist() == [0.2]
    assert _grid(np.asarray([0.0, 0.01]), np.full(2, 4.0), False).size == 2
    assert _grid(np.asarray([-0.5, 0.5]), np.full(2, 0.4), True, blur=0.5).size == 5


def test_cells_keep_means_noise_and_folds(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(3)
    observed, errors, folds = rng.normal(0, 1, 300), rng.uniform(0.4, 0.6, 300), np.arange(300) % 5
    few = _cells(observed, errors, folds)
    assert np.array_equal(few.observed, observed)
    assert np.array_equal(few.counts.sum(axis=0), np.full(5, 60))
    monkeypatch.setattr(npmle, "_EXACT", 299)
    many = _cells(observed, errors, folds)
    assert many.observed.size < 100
    total = many.counts.sum(axis=1)
    assert np.array_equal(many.counts.sum(axis=0), np.full(5, 60))
    assert total @ many.observed == pytest.approx(observed.sum())
    # the scatter within a cell is missing in the squares of means, and is taken off those of the noise
    assert total @ (many.observed**2 - many.std_error**2) == pytest.approx((observed**2 - errors**2).sum())
    monkeypatch.setattr(npmle, "_EXACT", 300)
    assert _cells(observed, errors, folds).observed.size == 300


def test_a_fit_and_those_without_a_fold() -> None:
    observed, errors = np.asarray([0.9, 1.1, -1.1, -0.9, 1.0, -1.0]), np.full(6, 0.1)
    found = fit(observed, errors, bounded=False)
    assert len(found.others) == 5
    assert found.prior.mean == pytest.approx(0.0, abs=0.05)
    alone = fit(observed[:1], errors[:1], bounded=False)
    assert len(alone.others) == 1
    blurred = fit(observed, errors, bounded=False, blur=0.3)
    assert blurred.prior.width == 0.3


def estimate(value: Any, error: Any, **more: Any) -> Estimate:
    value = np.asarray(value, dtype=float)
    return Estimate(value, np.asarray(error, dtype=float), np.full(value.shape, 100), **more)


def test_domains_are_put_on_one_scale_and_back() -> None:
    made = NormalMeans.of(estimate([2.0, 9.0, 5.0], [1.0, 2.0, np.inf], low=0.0, high=10.0), 0.5)
    assert made.observed == pytest.approx([-0.6, 0.8])
    assert made.std_error == pytest.approx([0.2, 0.4])
    assert made.bias == pytest.approx([0.1, 0.1])
    assert made.debiased == pytest.approx([-0.7, 0.7])
    assert (made.active.tolist(), made.blank.tolist(), made.bounded) == (
        [True, True, False],
        [False, False, True],
        True,
    )
    answer = Enhanced(np.asarray([0.0, 0.9]), np.asarray([0.1, 5.0]), np.zeros(2), np.asarray([0.01, 0.02]), 0.5, 9.0)
    told = made.solve(answer, "mine")
    assert told.value == pytest.approx([5.0, 9.5, 7.5])
    assert told.std_error == pytest.approx([0.5, 5 * 1.9, 5 * 1.5])  # no farther than the far end
    assert told.expected_gain == pytest.approx((25 * (0.04 + 0.01 - 0.01) + 25 * (0.16 + 0.01 - 0.02)) / 2)
    assert told.method == "mine"
    free = NormalMeans.of(estimate([2.0, -4.0], [1.0, 0.5]), 0.0)
    assert free.radius == pytest.approx([5.5, 5.5])  # the farthest is 4 and three errors of 0.5, or 2 and three of 1
    assert not free.bounded
    assert free.solve(answer, "mine").std_error == pytest.approx([0.55, 27.5])
    own = NormalMeans.of(estimate([2.0, -4.0], [1.0, 0.5]), 0.0, scale="own")
    assert own.radius.tolist() == [1.0, 1.0]


def test_equal_reports_are_luck_where_they_are_few() -> None:
    """The noise of one report is learnt from the others: 0.2^2 * 25 = 1, so ten reports have an error of sqrt(1/10)."""
    error, count = np.asarray([0.0, 0.2, 0.0, 0.0]), np.asarray([10, 25, 11, 1])
    none = np.zeros(4, dtype=bool)
    assert _steady(error, count, none) == pytest.approx([math.sqrt(0.1), 0.2, 0.0, 0.0])
    assert _steady(error, count, np.asarray([False, False, True, True])) == pytest.approx(
        [math.sqrt(0.1), 0.2, math.sqrt(1 / 11), 0.0]
    )
    assert _steady(np.zeros(2), np.asarray([5, 5]), none[:2]).tolist() == [0.0, 0.0]


def test_runs_of_attributes() -> None:
    assert run_lengths(estimate([1.0, 2.0, 3.0], [1, 1, 1])) == (3,)
    assert run_lengths(estimate([1.0, 2.0, 3.0], [1, 1, 1], groups=(1, 2))) == (1, 2)
    for wrong in ((1, 1), (3, 1), (3, 0)):
        with pytest.raises(ValueError, match="Expected groups"):
            run_lengths(estimate([1.0, 2.0, 3.0], [1, 1, 1], groups=wrong))
    runs, mask = np.asarray([0, 0, 1, 1, 2]), np.asarray([True, False, True, True, False])
    assert [part.tolist() for part in _places(runs, mask)] == [[0], [1, 2], []]


@pytest.mark.parametrize(
    ("value", "error", "more", "words"),
    [
        ([1.0, 2.0], [1.0, -1.0], {}, "std_error >= 0, got -1.0 in dimension 1"),
        ([1.0, 2.0], [1.0, np.nan], {}, "dimension 1"),
        ([1.0, np.nan], [1.0, 1.0], {}, "finite value in dimension 1"),
        ([1.0, 2.0], [1.0, 1.0], {"low": 0.0, "high": [3.0, 0.0]}, "low < high"),
    ],
)
def test_one_number_that_no_collection_gives_is_refused(value: Any, error: Any, more: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        NormalMeans.of(estimate(value, error, **more), 0.0)
    with pytest.raises(ValueError, match="finite bias"):
        NormalMeans.of(estimate([1.0, 2.0], [1.0, 1.0]), [0.0, np.inf])


@pytest.mark.parametrize(("small", "count"), [(11, 7), (9, 3), (0, 3), (100, 7)])
def test_deviations_reach_down_to_half_of_a_small_error(small: int, count: int) -> None:
    """One error in ten is smaller: of a hundred the tenth and the eleventh decide."""
    errors = np.full(100, 2.0**-2)
    errors[:small] = 2.0**-6
    found = averaging._deviations(np.random.default_rng(1).permutation(errors))
    assert found.tolist() == [2.0**-k for k in range(count)]
