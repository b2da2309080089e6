"""LevelledResponse: the spec's reference numbers, laws and matrices against enumeration, and what bad input meets."""

from __future__ import annotations

import itertools
import json
import math
import warnings
from typing import Any

import numpy as np
import pytest
from scipy.special import ndtri
from scipy.stats import chi2

import noisette as nz
from noisette.aggregation import load

FALSE_ALARM = 1e-6
LEVELS = [
    ([-1, -0.6, 0, 1], [3.0, 2.0, 1.0]),
    ([-1, -0.6, -0.2, 0.2, 0.6, 1], [0.5, 2.0, 0.1, 2.0, 1.0]),  # neither ordered nor distinct
    ([0, 20_000, 90_000, 250_000], [0.4, 1.6, 0.4]),
    ([-3, 5], [1.2]),
]


def printed_law(edges: Any, epsilons: Any, x: float, level: int) -> np.ndarray:
    """Chances of all pairs, straight from Algorithm 3 with the misprint of its step 2 mended."""
    size, own = len(epsilons), math.exp(epsilons[level])
    v = 2 * (x - edges[0]) / (edges[-1] - edges[0]) - 1
    law = []
    for reported in range(size):
        chance = (own if reported == level else 1.0) / (own + size - 1)
        p_keep = 1 / (1 + math.exp(-epsilons[reported]))
        p_plus = (1 + v) / 2 * p_keep + (1 - v) / 2 * (1 - p_keep)
        law += [chance * (1 - p_plus), chance * p_plus]
    return np.asarray(law)


def printed_matrix(edges: Any, epsilons: Any, fine: int = 9) -> np.ndarray:
    """Largest log ratios between levels, by trying values all over both."""
    size = len(epsilons)
    laws = [
        [printed_law(edges, epsilons, x, t) for x in np.linspace(edges[t], edges[t + 1], fine)] for t in range(size)
    ]
    return np.asarray(
        [
            [max(float(np.log(p / q).max()) for p, q in itertools.product(laws[i], laws[j])) for j in range(size)]
            for i in range(size)
        ]
    )


@pytest.mark.parametrize(("unit", "joint"), [(0.1, 0.8988), (0.5, 3.9475), (1.0, 8.0667)])
def test_reference_numbers_of_the_spec(unit: float, joint: float) -> None:
    mechanism = nz.LevelledResponse(np.linspace(-1, 1, 6), [5 * unit, 4 * unit, 3 * unit, 2 * unit, unit])
    assert mechanism.guarantee.epsilon == pytest.approx(joint, abs=5e-5)
    assert nz.exact_epsilon(mechanism) == pytest.approx(joint, abs=5e-5)
    assert mechanism.guarantee.epsilon == np.max(mechanism.guarantee.matrix)


@pytest.mark.parametrize(("edges", "epsilons"), LEVELS)
def test_matrix_is_what_enumeration_finds(edges: Any, epsilons: Any) -> None:
    mechanism = nz.LevelledResponse(edges, epsilons)
    found = printed_matrix(edges, epsilons)
    assert np.asarray(mechanism.guarantee.matrix) == pytest.approx(found, rel=1e-9, abs=1e-9)
    # the twin: what the paper claims, max(e_t, e_t'), is another matrix unless there is one level
    assert (len(epsilons) == 1) == np.allclose(found, np.maximum.outer(epsilons, epsilons), rtol=1e-3)


def test_matrix_bounds_every_ratio_of_the_law() -> None:
    mechanism = nz.LevelledResponse(*LEVELS[1])
    x = np.random.default_rng(3).uniform(-1, 1, 400)
    logs = mechanism.log_prob(mechanism.support.all, x[:, None])
    level = np.searchsorted(mechanism.edges[1:-1], x, side="right")
    bound = np.asarray(mechanism.guarantee.matrix)[level[:, None], level]
    assert np.all((logs[:, None] - logs).max(axis=2) <= bound)


@pytest.mark.parametrize(("edges", "epsilons"), LEVELS)
def test_law_and_moments_are_the_printed_ones(edges: Any, epsilons: Any) -> None:
    mechanism = nz.LevelledResponse(edges, epsilons)
    low, high = np.asarray(mechanism.edges[:-1]), np.asarray(mechanism.edges[1:])
    for t, x in [(t, float(low[t] + share * (high - low)[t])) for t in range(low.size) for share in (0.0, 0.3, 0.99)]:
        law = printed_law(edges, epsilons, x, t)
        assert np.exp(mechanism.log_prob(mechanism.support.all, x)) == pytest.approx(law, rel=1e-9)
        says = mechanism.readout.offset + mechanism.readout.weights
        moments = mechanism.moments(x)
        assert law @ says == pytest.approx(x, abs=1e-9 * mechanism.domain.diameter)
        assert float(moments.variance) == pytest.approx(law @ (says - x) ** 2, rel=1e-8)
        assert float(moments.third) == pytest.approx(law @ np.abs(says - x) ** 3, rel=1e-8)


def pearson(mechanism: nz.LevelledResponse, x: float, law: np.ndarray, seed: int) -> float:
    """Pearson's statistic of 200,000 reports about x against a law."""
    counts = mechanism.aggregate(mechanism.privatize(np.full(200_000, x), rng=seed)).total
    return float(((counts - 200_000 * law) ** 2 / (200_000 * law)).sum())


@pytest.mark.parametrize("x", [-1.0, -0.6, -0.6000001, 0.31, 1.0])
def test_sampler_has_the_printed_law(x: float) -> None:
    edges, epsilons = LEVELS[0]
    mechanism = nz.LevelledResponse(edges, epsilons)
    level = int(np.searchsorted(edges[1:-1], x, side="right"))
    limit = chi2.isf(FALSE_ALARM, 5)
    assert pearson(mechanism, x, printed_law(edges, epsilons, x, level), 1) < limit
    # the twin: the sign flipped with the budget of the own level is another law
    own = [printed_law(edges, [epsilons[level]] * 3, x, level)][0]
    assert pearson(mechanism, x, own, 1) > limit or (level == 1 == level and x == -0.6)


def test_estimate_is_unbiased() -> None:
    mechanism = nz.LevelledResponse([0, 20, 70, 100], [1.0, 2.0, 0.5])
    x = np.random.default_rng(5).gamma(2.0, 12.0, 300_000).clip(0, 100)
    estimate = mechanism.aggregate(mechanism.privatize(x, rng=6)).estimate()
    spread = math.sqrt(float(mechanism.moments(x).variance.sum())) / x.size
    threshold = float(ndtri(1 - FALSE_ALARM / 2)) * spread
    assert abs(float(estimate.value[0]) - x.mean()) < threshold
    assert float(estimate.std_error[0]) == pytest.approx(math.hypot(spread, x.std() / math.sqrt(x.size)), rel=0.02)
    # the twin: signs read with the budget of one level only
    wrong = 50 + 50 / math.tanh(0.5) * (mechanism.privatize(x, rng=6)[:, 1]).mean()
    assert abs(float(wrong) - x.mean()) > threshold


@pytest.mark.slow
def test_the_largest_factor_that_holds_is_found() -> None:
    start = nz.LevelledResponse(*LEVELS[1])
    total = start.calibrate(total=1.5)
    assert 1.5 * (1 - 1e-9) < total.guarantee.epsilon <= 1.5
    ratios = np.asarray(total.epsilons) / start.epsilons
    assert np.ptp(ratios) < 1e-12 * ratios[0]
    target = 0.3 + np.abs(np.subtract.outer(np.arange(5), np.arange(5)))
    graded = start.calibrate(matrix=target)
    assert np.all(np.asarray(graded.guarantee.matrix) <= target)
    larger = nz.LevelledResponse(start.edges, [1.000001 * e for e in graded.epsilons])
    assert np.any(np.asarray(larger.guarantee.matrix) > target)


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [1e-6, 1e3])
def test_extreme_budgets(epsilon: float) -> None:
    mechanism = nz.LevelledResponse([-1, 0, 1], [epsilon, epsilon / 2])
    assert nz.exact_epsilon(mechanism) <= mechanism.guarantee.epsilon * (1 + 1e-9)
    counted = mechanism.aggregate(mechanism.privatize(np.full(1000, 0.25), rng=1)).estimate()
    assert abs(float(counted.value[0]) - 0.25) < 6 * float(counted.std_error[0]) + 1e-3
    nz.testing.check_mechanism(mechanism.calibrate(total=min(epsilon, 30.0)), samples=20_000)


def test_many_levels() -> None:
    mechanism = nz.LevelledResponse(np.linspace(0, 1, 201), np.linspace(0.5, 3, 200))
    reports = mechanism.privatize(np.linspace(0, 1, 5000), rng=1)
    assert reports.dtype == np.int16
    assert reports[:, 0].max() > 127
    assert mechanism.aggregate(reports).users == 5000


def test_counts_merge_and_survive_text() -> None:
    mechanism = nz.LevelledResponse(*LEVELS[0])
    reports = mechanism.privatize(np.linspace(-1, 1, 999), rng=4).reshape(3, 333, 2)
    whole = mechanism.aggregate(reports)
    assert whole == mechanism.aggregate(reports[0]) + mechanism.aggregate(reports[2]) + mechanism.aggregate(reports[1])
    assert load(whole.to_json()) == whole
    assert whole.total.sum() == whole.users == 999
    again = nz.from_spec(json.dumps(mechanism.spec()))
    assert again == mechanism
    assert again.aggregate(reports) == whole
    with pytest.raises(ValueError, match="Expected 6 sums"):
        load(
            nz.Duchi(1.0)
            .aggregate(nz.Duchi(1.0).privatize([0.5]))
            .to_json()
            .replace(json.dumps(nz.Duchi(1.0).spec()), json.dumps(mechanism.spec()))
        )


@pytest.mark.slow
def test_black_box_audit_of_the_pair() -> None:
    mechanism = nz.LevelledResponse(np.linspace(-1, 1, 6), [2.5, 2.0, 1.5, 1.0, 0.5])
    seen = nz.audit(mechanism, inputs=(-1.0, 1.0), samples=100_000, rng=7)
    assert 2.5 < seen.lower_bound <= mechanism.guarantee.epsilon  # more than the paper's max(e_t), from reports alone
    assert seen.verdict == "holds"


def test_the_published_claim_is_false_and_says_so() -> None:
    with pytest.warns(nz.PrivacyWarning, match="published claim of epsilon=3 per record does not hold"):
        published = nz.LevelledResponse(*LEVELS[0], as_published=True)
    assert (published.guarantee.claim.epsilon, published.guarantee.claim_holds) == (3.0, False)
    assert published.guarantee.epsilon == nz.LevelledResponse(*LEVELS[0]).guarantee.epsilon


def test_levels_in_any_order_and_their_faults() -> None:
    made = nz.LevelledResponse.from_levels([(0, 1, 1.0), (-1, -0.6, 3.0), (-0.6, 0, 2.0)])
    assert made == nz.LevelledResponse(*LEVELS[0])
    with pytest.raises(ValueError, match=r"\[-1, 0.2\) and \[0, 1\) overlap"):
        nz.LevelledResponse.from_levels([(0, 1, 1.0), (-1, 0.2, 3.0)])
    with pytest.raises(ValueError, match=r"\[-1, -0.5\) and \[0, 1\) leave a gap"):
        nz.LevelledResponse.from_levels([(0, 1, 1.0), (-1, -0.5, 3.0)])
    with pytest.raises(ValueError, match="Expected levels as"):
        nz.LevelledResponse.from_levels([(0, 1)])


@pytest.mark.parametrize(
    ("edges", "epsilons", "message"),
    [
        ([-1, 0.5, 0.2, 1], [1, 1, 1], r"rising order, got 0.2 after 0.5: levels must neither overlap"),
        ([-1, 0, 0, 1], [1, 1, 1], "got 0 after 0"),
        ([-1], [], "at least two edges"),
        ([-1, math.nan, 1], [1, 1], "finite edges"),
        ([-math.inf, 0, 1], [1, 1], "finite edges"),
        ([-1, 0, 1], [1], "one budget for each of 2 levels, got 1"),
        ([-1, 0, 1], [1, -2], r"Expected epsilons\[1\]=-2 > 0"),
        ([-1, 0, 1], [1, 0.0], r"epsilons\[1\]=0.0 > 0"),
        ([-1, 0, 1], [1, 1e-9], "budgets in"),
    ],
)
def test_bad_levels(edges: Any, epsilons: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        nz.LevelledResponse(edges, epsilons)


def test_bad_types() -> None:
    with pytest.raises(TypeError, match="Expected edges to be a list of numbers"):
        nz.LevelledResponse("abc", [1.0])
    with pytest.raises(TypeError, match=r"epsilons\[0\]='x' to be a number"):
        nz.LevelledResponse([0, 1], ["x"])
    with pytest.raises(ValueError, match="either total="):
        nz.LevelledResponse([0, 1], [1.0]).calibrate()
    with pytest.raises(ValueError, match=r"Expected matrix of shape \(2, 2\)"):
        nz.LevelledResponse([0, 1, 2], [1.0, 1.0]).calibrate(matrix=[[1.0]])
    with pytest.raises(ValueError, match="No factor of the budgets"):
        nz.LevelledResponse([0, 1, 2], [1.0, 1.0]).calibrate(matrix=[[1.0, 0.0], [1.0, 1.0]])


@pytest.mark.parametrize("x", [1.5, [-2.0, 0.0], math.nan, [math.inf], []])
def test_values_outside(x: Any) -> None:
    with pytest.raises(ValueError, match=r"Expected (values in|finite values|at least one)"):
        nz.LevelledResponse(*LEVELS[0]).privatize(x)


def test_clipping_on_request() -> None:
    mechanism = nz.LevelledResponse(*LEVELS[0])
    assert np.array_equal(mechanism.privatize([9.0] * 50, clip=True, rng=1), mechanism.privatize([1.0] * 50, rng=1))


@pytest.mark.parametrize("report", [[[3, 1]], [[-1, 1]], [[0, 0]], [[0.5, 1.0]]])
def test_foreign_reports(report: Any) -> None:
    with pytest.raises(ValueError, match="outside the support of levelled: pairs of a level from 0 to 2"):
        nz.LevelledResponse(*LEVELS[0]).aggregate(np.asarray(report))


def test_reports_of_another_shape() -> None:
    with pytest.raises(ValueError, match=r"Expected reports of shape \(..., 2\)"):
        nz.LevelledResponse(*LEVELS[0]).aggregate(np.zeros((5, 3)))


class TestPersonalised:
    """Levels that users choose themselves."""

    mechanism = nz.LevelledResponse([-1, 0, 1], [2.0, 0.5], personalised=True)

    def test_matrix_takes_any_value_at_any_level(self) -> None:
        laws = [[printed_law([-1, 0, 1], [2.0, 0.5], x, t) for x in np.linspace(-1, 1, 9)] for t in range(2)]
        found = [[max(float(np.log(p / q).max()) for p in laws[i] for q in laws[j]) for j in (0, 1)] for i in (0, 1)]
        assert np.asarray(self.mechanism.guarantee.matrix) == pytest.approx(np.asarray(found), rel=1e-9)
        by_range = nz.LevelledResponse([-1, 0, 1], [2.0, 0.5]).guarantee.matrix
        assert np.all(np.diag(self.mechanism.guarantee.matrix) > np.diag(by_range) + 0.5)
        assert nz.exact_epsilon(self.mechanism) == pytest.approx(self.mechanism.guarantee.epsilon, rel=1e-9)

    def test_estimate_is_unbiased(self) -> None:
        rng = np.random.default_rng(8)
        rows = np.stack([rng.uniform(-1, 0.4, 200_000), rng.integers(0, 2, 200_000)], axis=1)
        estimate = self.mechanism.aggregate(self.mechanism.privatize(rows, rng=9)).estimate()
        spread = math.sqrt(float(self.mechanism.moments(rows).variance.sum())) / len(rows)
        assert abs(float(estimate.value[0]) - rows[:, 0].mean()) < float(ndtri(1 - FALSE_ALARM / 2)) * spread

    def test_a_level_outside(self) -> None:
        with pytest.raises(ValueError, match="Expected levels from 0 to 1, got 2"):
            self.mechanism.privatize([[0.1, 2.0]])
        with pytest.raises(ValueError, match=r"Expected x of shape"):
            self.mechanism.privatize([0.1, 0.2, 0.3])

    @pytest.mark.slow
    def test_audit(self) -> None:
        seen = nz.audit(self.mechanism, samples=50_000, rng=3)
        assert 0.7 * self.mechanism.guarantee.epsilon < seen.lower_bound <= self.mechanism.guarantee.epsilon


def test_building_warns_nothing() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        nz.LevelledResponse(*LEVELS[0])


def test_one_pair_and_tables_of_pairs_are_looked_at_alike() -> None:
    support = nz.LevelledResponse([-1, 0, 1, 2], [2.0, 0.5, 1.0]).support
    for pair, known in (([0, 1], True), ([2, -1], True), ([3, 1], False), ([-1, 1], False), ([1, 0], False)):
        assert bool(support.contains(np.asarray(pair))) is known
        assert support.contains(np.tile(pair, (2, 3, 1))).tolist() == [[known] * 3] * 2
        assert bool(support.contains(np.asarray(pair, dtype=float))) is known
    assert not support.contains(np.asarray([0.5, 1.0]))
    for wrong in (np.asarray(1), np.zeros(3), np.zeros((2, 1))):
        with pytest.raises(ValueError, match="pairs of a level and a sign"):
            support.contains(wrong)
