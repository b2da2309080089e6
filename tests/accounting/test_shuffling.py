"""Shuffling: bounds against exact enumeration of shuffled reports at small n, and against what has been refuted."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy.stats import binom, norm

import noisette as nz
from noisette.accounting import (
    Blanket,
    blankets,
    compose,
    gdp_epsilon,
    randomized_response_epsilon,
    shuffled,
    shuffled_closed_form,
    shuffled_delta,
)
from noisette.accounting._sums import expected_excess
from noisette.accounting.likelihoods import likelihoods

# by what classes declare, which check_mechanism holds against their examples: these take long to make
PURE = sorted(name for name, cls in nz.CATALOGUE.items() if cls.capabilities.delta != "needed")
GRADED = [name for name in PURE if nz.CATALOGUE[name].capabilities.levels]
SINGLE = [
    name
    for name in PURE
    if name not in GRADED
    and {nz.Categorical, nz.Interval, nz.Grid} & {*nz.CATALOGUE[name].capabilities.domains}
    and getattr(nz.CATALOGUE[name].example(1.0).witnesses()[1], "ndim", 0) == 1
]
DELTA = 1e-6


def _response(k: int, epsilon: float) -> np.ndarray:
    """The table of randomised response, row by input."""
    table = np.full((k, k), 1 / (math.exp(epsilon) + k - 1))
    np.fill_diagonal(table, math.exp(epsilon) / (math.exp(epsilon) + k - 1))
    return table


def _histogram(table: np.ndarray, inputs: list[int]) -> np.ndarray:
    """The exact law of the histogram of all reports, which is what a shuffler lets through, but for its last count."""
    k = table.shape[1]
    law = np.zeros((len(inputs) + 1,) * (k - 1))
    law[(0,) * (k - 1)] = 1
    for x in inputs:
        law = law * table[x, -1] + sum(table[x, y] * np.roll(law, 1, axis=y) for y in range(k - 1))
    return law


def _exact_delta(table: np.ndarray, others: list[int], epsilon: float) -> float:
    """The exact delta of the user who holds category 0 or 1 among these others."""
    first, second = (_histogram(table, [x, *others]) for x in (0, 1))
    grown = math.exp(epsilon)
    return max(float(np.maximum(a - grown * b, 0).sum()) for a, b in ((first, second), (second, first)))


def test_the_enumerator_agrees_with_binomials() -> None:
    """With two categories and everybody else alike, the count of ones is a sum of two binomial variables."""
    table, n = _response(2, 1.0), 9
    law = _histogram(table, [0, *[1] * (n - 1)])
    others = binom.pmf(np.arange(n), n - 1, table[1, 0])
    assert law == pytest.approx(table[0, 0] * np.r_[0, others] + table[0, 1] * np.r_[others, 0], abs=1e-15)


@pytest.mark.slow
@pytest.mark.parametrize("epsilon0", [0.5, 1.0, 3.0])
@pytest.mark.parametrize("n", [2, 7, 30])
def test_binary_response_is_bounded_for_every_population(n: int, epsilon0: float) -> None:
    table = _response(2, epsilon0)
    mechanism = nz.Duchi(epsilon=epsilon0)
    for share in (0.1, 0.4, 0.8):
        epsilon = share * epsilon0
        exact = max(_exact_delta(table, [0] * ones + [1] * (n - 1 - ones), epsilon) for ones in range(n))
        bound = float(blankets(mechanism)[0].delta(n, epsilon)[0])
        assert exact <= bound <= 8 * exact + 1e-12
        assert bound <= float(Blanket.clones(epsilon0).delta(n, epsilon)[0]) * (1 + 1e-9)
        assert shuffled_delta(mechanism, n, epsilon) >= exact


@pytest.mark.slow
@pytest.mark.parametrize(("k", "n"), [(3, 2), (3, 12), (4, 20)])
@pytest.mark.parametrize("epsilon0", [0.5, 1.0, 2.5])
def test_response_over_categories_is_bounded(k: int, n: int, epsilon0: float) -> None:
    table = _response(k, epsilon0)
    mechanism = nz.GeneralizedRandomizedResponse(epsilon=epsilon0, domain=nz.Categorical(k))
    populations = [[y] * (n - 1) for y in range(k)] + [list(np.arange(n - 1) % k)]
    for share in (0.2, 0.7):
        epsilon = share * epsilon0
        exact = max(_exact_delta(table, others, epsilon) for others in populations)
        for bound in (shuffled_delta(mechanism, n, epsilon), float(Blanket.clones(epsilon0).delta(n, epsilon)[0])):
            assert exact <= bound


def _variation_ratio_delta(k: int, epsilon0: float, n: int, epsilon: float) -> float:
    """The refuted bound, as published for mechanisms of known total variation: Wang, Peng, Li, Wen et al. 2023.

    C ~ Bin(n - 1, 2 r), A ~ Bin(C, 1/2), with a = beta / (p - 1), r = a p / q: compare (A + D1, C - A + D2) with
    (A + D2, C - A + D1), D1 = 1 with chance p a, else D2 = 1 with chance a / (1 - p a).
    """
    p = q = math.exp(epsilon0)
    a = (p - 1) / (p + k - 1) / (p - 1)
    first, second = np.zeros((n + 1, n + 1)), np.zeros((n + 1, n + 1))
    for c in range(n):
        counts = np.arange(c + 1)
        mass = binom.pmf(c, n - 1, 2 * a * p / q) * binom.pmf(counts, c, 0.5)
        for one, two, chance in ((1, 0, p * a), (0, 1, a), (0, 0, 1 - p * a - a)):
            np.add.at(first, (counts + one, c - counts + two), mass * chance)
            np.add.at(second, (counts + two, c - counts + one), mass * chance)
    return float(np.maximum(first - math.exp(epsilon) * second, 0).sum())


def test_the_variation_ratio_bound_is_false_and_ours_is_not() -> None:
    """Randomised response over four categories, twenty users who all hold what one of them may hold."""
    k, epsilon0, n, epsilon = 4, 1.0, 20, 0.7
    exact = _exact_delta(_response(k, epsilon0), [0] * (n - 1), epsilon)
    assert exact == pytest.approx(1.89e-5, rel=2e-3)
    claimed = _variation_ratio_delta(k, epsilon0, n, epsilon)
    assert claimed == pytest.approx(1.25e-5, rel=2e-3)
    assert claimed < exact, "the claim is violated"
    mechanism = nz.GeneralizedRandomizedResponse(epsilon=epsilon0, domain=nz.Categorical(k))
    assert exact <= shuffled_delta(mechanism, n, epsilon) <= 3 * exact


def test_a_blanket_that_is_too_large_is_seen() -> None:
    """The twin: twenty per cent more in the blanket, and enumeration refutes the bound."""
    sound = blankets(nz.Duchi(epsilon=1.0))[0]
    wrong = Blanket(1.5 * sound.share, sound.weights, sound.first, sound.second)
    n, epsilon = 7, 0.8
    exact = max(_exact_delta(_response(2, 1.0), [0] * ones + [1] * (n - 1 - ones), epsilon) for ones in range(n))
    assert float(wrong.delta(n, epsilon)[0]) < exact <= float(sound.delta(n, epsilon)[0])


@pytest.mark.slow
def test_shares_are_those_of_the_formulas() -> None:
    grown = math.e
    assert [b.share for b in blankets(nz.Duchi(epsilon=1.0))] == pytest.approx([2 / (grown + 1)])
    response = nz.GeneralizedRandomizedResponse(epsilon=1.0, domain=nz.Categorical(30))
    assert {round(b.share, 9) for b in blankets(response)} == {round(30 / (grown + 29), 9)}
    for mechanism, t in (
        (nz.Piecewise(epsilon=1.0), math.exp(0.5)),
        (nz.SquareWave(epsilon=1.0), 1 / (2 * (grown - grown + 1) / (2 * grown * (grown - 2)))),
    ):
        for blanket in blankets(mechanism):
            assert blanket.share == pytest.approx((t + 1) / (t + grown), rel=1e-6)
    for blanket in blankets(nz.Laplace(epsilon=1.0)):  # the farther end of the domain
        assert blanket.share == pytest.approx(math.exp(-0.5), rel=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("name", SINGLE)
def test_no_input_makes_a_report_less_likely_than_the_blanket(name: str) -> None:
    """Random inputs and reports: the floor is the least likelihood over all of them."""
    mechanism = nz.CATALOGUE[name].example(1.0)
    found = likelihoods(mechanism)
    assert found is not None
    domain = mechanism.domain
    rng = np.random.default_rng(3)
    some = rng.uniform(-1, 1, 200) if domain.kind != "categorical" else rng.integers(0, domain.size, 50)
    inputs = domain.clip(some) if domain.kind != "categorical" else some
    reports = mechanism.privatize(np.resize(inputs, 400), rng=5)
    least = mechanism.log_prob(reports[:, None], inputs).min(axis=1)
    # each report's floor from the two farthest witnesses, or from all categories
    ends = np.asarray(mechanism.witnesses()[0]) if domain.kind != "categorical" else np.arange(domain.size)
    floor = mechanism.log_prob(reports[:, None], ends).min(axis=1)
    assert np.all(floor <= least + 1e-9)
    assert found.floor_mass.sum() <= 1


def test_inputs_that_cannot_all_be_tried_have_no_blanket() -> None:
    """Of all texts some may be less likely than those that were tried: nothing is built on a guess."""
    assert likelihoods(nz.CATALOGUE["pem"].example(1.0)) is None


@pytest.mark.slow
@pytest.mark.parametrize("name", GRADED)
def test_graded_inputs_have_no_blanket_and_hide_among_clones(name: str) -> None:
    mechanism = nz.CATALOGUE[name].example(1.0)
    assert blankets(mechanism) == []
    by_epsilon = shuffled(nz.Guarantee(mechanism.guarantee.epsilon), 1000, DELTA, method="clones").epsilon
    assert shuffled(mechanism, 1000, DELTA).epsilon == pytest.approx(by_epsilon, rel=1e-3)


def _three_part_delta(
    weights: list[float], first: list[float], second: list[float], share: float, n: int, e: float
) -> float:
    """The exact delta of one report among blanket reports, by enumerating how many of each kind there are."""
    total = 0.0
    for m in range(n):
        chance = binom.pmf(m, n - 1, share)
        bag = m + 1
        for i in range(bag + 1):
            for j in range(bag + 1 - i):
                counts = (i, j, bag - i - j)
                ways = math.factorial(bag) / math.prod(math.factorial(c) for c in counts)
                blanket = ways * math.prod(w**c for w, c in zip(weights, counts, strict=True))
                # the report in question is any one of the bag
                ratio = [sum(c * r for c, r in zip(counts, side, strict=True)) / bag for side in (first, second)]
                total += chance * blanket * max(0.0, ratio[0] - math.exp(e) * ratio[1])
    return total


@pytest.mark.parametrize(("k", "n"), [(3, 5), (6, 15)])
def test_many_terms_on_a_lattice_agree_with_enumeration(k: int, n: int) -> None:
    mechanism = nz.GeneralizedRandomizedResponse(epsilon=1.5, domain=nz.Categorical(k))
    (blanket,) = blankets(mechanism)
    high, low = math.exp(1.5) / (math.exp(1.5) + k - 1) * k, 1 / (math.exp(1.5) + k - 1) * k
    for epsilon in (0.1, 0.6, 1.2):
        exact = _three_part_delta(
            [1 / k, 1 / k, (k - 2) / k], [high, low, low], [low, high, low], blanket.share, n, epsilon
        )
        assert exact * (1 - 1e-9) <= float(blanket.delta(n, epsilon)[0]) <= exact * 1.01


@pytest.mark.parametrize("n", [3, 100, 5000])
def test_lattice_and_binomial_sums_agree(n: int) -> None:
    """Two computations of the same bound, down to deltas that no Fourier transform would show untilted."""
    blanket = Blanket.clones(1.0)
    for epsilon in (0.0, 0.05, 0.3, 0.9):
        gain = blanket.first[:, 1] - math.exp(epsilon) * blanket.second[:, 1]
        by_lattice = expected_excess(gain, blanket.weights, blanket.share, n) / (blanket.share * n)
        by_binomials = float(blanket.delta(n, epsilon)[0])
        if by_binomials > 1e-20:
            assert by_binomials * (1 - 1e-6) <= by_lattice <= by_binomials * 1.02


@pytest.mark.slow
def test_reference_numbers() -> None:
    """Reference table: n = 1,000, e0 = 1, delta = 1e-6."""
    duchi = nz.Duchi(epsilon=1.0)
    assert shuffled_closed_form(1.0, 1000, DELTA) == pytest.approx(0.566, abs=5e-4)
    assert shuffled(duchi, 1000, DELTA, method="closed-form").epsilon == pytest.approx(0.566, abs=5e-4)
    assert shuffled(duchi, 1000, DELTA, method="clones").epsilon == pytest.approx(0.182, abs=5e-4)
    blanket = shuffled(duchi, 1000, DELTA, method="blanket")
    assert blanket.epsilon == pytest.approx(0.149, abs=5e-4)
    assert shuffled(duchi, 1000, DELTA) == blanket
    assert (blanket.model, blanket.relation, blanket.unit, blanket.delta) == ("shuffled", "replace", "record", DELTA)
    assert shuffled(nz.Guarantee(1.0), 1000, DELTA).epsilon == pytest.approx(0.182, abs=5e-4)


@pytest.mark.long
def test_shuffled_models_of_federated_learning() -> None:
    """Reference table: a model of d weights over T rounds composes d T bags; the normal limit is mu_1 sqrt(d T)."""
    duchi, n, grown = nz.Duchi(epsilon=1.0), 1000, math.e
    mu = (grown - 1) * math.sqrt(2 / (n * (grown + 1)))
    for weights, rounds, expected in ((1000, 1, 6.37), (10**5, 10, 983.0)):
        found = shuffled(duchi, n, DELTA, times=weights * rounds).epsilon
        limit = gdp_epsilon(mu * math.sqrt(weights * rounds), DELTA)
        assert limit == pytest.approx(expected, rel=1e-3)
        assert limit <= found <= 1.002 * limit
        assert found < randomized_response_epsilon(1.0, weights * rounds, DELTA)


@pytest.mark.long
def test_a_million_bags_by_the_central_limit_theorem() -> None:
    """Mean and variance of the loss of one bag, enumerated, give the sum of a million of them: another computation."""
    n, times = 1000, 10**6
    p, share = math.e / (1 + math.e), 2 / (math.e + 1)
    m = np.arange(400, 680)
    weight = binom.pmf(m, n - 1, share)
    mean = square = 0.0
    for count, chance in zip(m, weight, strict=True):
        i = np.arange(count + 2)
        ones, zeros = binom.pmf(i - 1, count, 0.5), binom.pmf(i, count, 0.5)
        first, second = p * ones + (1 - p) * zeros, (1 - p) * ones + p * zeros
        kept = first > 1e-250
        loss = np.log(first[kept] / second[kept])
        mean += chance * (first[kept] * loss).sum()
        square += chance * (first[kept] * loss**2).sum()
    centre, spread = times * mean, math.sqrt(times * (square - mean**2))
    epsilon = shuffled(nz.Duchi(epsilon=1.0), n, DELTA, times=times).epsilon
    beyond = np.linspace(0, 12 * spread, 200_001)
    density = norm.pdf((epsilon + beyond - centre) / spread) / spread
    assert np.trapezoid(-np.expm1(-beyond) * density, beyond) == pytest.approx(DELTA, rel=0.02)


@pytest.mark.long
@pytest.mark.parametrize("name", PURE)
def test_every_pure_mechanism_is_amplified(name: str) -> None:
    mechanism = nz.CATALOGUE[name].example(1.0)
    found = shuffled(mechanism, 1000, DELTA).epsilon
    assert found <= (0.15 if blankets(mechanism) else 0.1825), "the clones hold for all of them, blankets are better"


@pytest.mark.slow
@pytest.mark.parametrize("mechanism", [nz.Piecewise(epsilon=2.0), nz.Laplace(epsilon=2.0), nz.SquareWave(epsilon=2.0)])
def test_no_pair_of_inputs_is_worse_than_the_witnesses(mechanism: nz.Piecewise) -> None:
    """Random pairs under the same blanket, on a coarse lattice of reports that only hides differences."""
    n, epsilon = 200, 0.5
    worst = max(float(b.delta(n, epsilon)[0]) for b in blankets(mechanism))
    low, high = (mechanism.support.low, mechanism.support.high)
    low, high = max(low, -20.0), min(high, 20.0)
    origin, step = mechanism.support.origin, mechanism.support.step
    index = np.unique(np.linspace((low - origin) / step, (high - origin) / step, 4001).round())
    reports = origin + step * index
    rng = np.random.default_rng(11)
    inputs = np.concatenate([[-1.0, 1.0], rng.uniform(-1, 1, 10)])
    logs = mechanism.log_prob(reports[:, None], inputs)
    density = np.exp(logs - logs.max())
    density /= density.sum(axis=0)
    floor = density.min(axis=1)
    share = float(floor.sum())
    for i, j in ((0, 1), (2, 3), (4, 5), (6, 7), (0, 8), (9, 1)):
        ratio = (np.repeat((density[:, k] / floor * share)[:, None], 3, axis=1) for k in (i, j))
        assert float(Blanket(share, floor / share, *ratio).delta(n, epsilon)[0]) <= worst * 1.05


@pytest.mark.slow
def test_more_users_hide_more_and_one_hides_nothing() -> None:
    found = [shuffled(nz.Duchi(epsilon=1.0), n, DELTA).epsilon for n in (1, 2, 10, 100, 10**4, 10**6)]
    assert found[0] == pytest.approx(1.0, rel=1e-5)
    assert all(a >= b for a, b in itertools.pairwise(found))
    assert found[-1] < 0.004


@pytest.mark.long
@pytest.mark.parametrize("times", [5])
def test_the_closed_form_of_several_reports_spends_delta_once(times: int) -> None:
    """Half of delta goes to the reports, in equal parts; what they compose to is checked by basic composition."""
    one = shuffled_closed_form(1.0, 100_000, DELTA / (2 * times))
    found = shuffled(nz.Guarantee(1.0), 100_000, DELTA, times=times, method="closed-form").epsilon
    part = nz.Guarantee(one, DELTA / (2 * times))
    assert found == compose(part, times, delta=DELTA).epsilon
    assert shuffled(nz.Guarantee(1.0), 100_000, DELTA, times=times, method="clones").epsilon < found
    assert found <= times * one * (1 + 1e-9)
    assert found > 0.99 * one


@pytest.mark.slow
def test_the_closed_form_is_above_the_clones_it_bounds() -> None:
    for epsilon0 in (0.1, 1.0, 2.0):
        for n in (10**3, 10**5):
            clones = shuffled(nz.Guarantee(epsilon0), n, DELTA, method="clones").epsilon
            assert clones <= shuffled_closed_form(epsilon0, n, DELTA)
    assert shuffled_closed_form(5.0, 1000, DELTA) == 5.0, "outside its range it says nothing"


@pytest.mark.slow
@pytest.mark.parametrize("epsilon0", [6.0, 12.0, 20.0, 25.0, 29.0])
@pytest.mark.parametrize("k", [2, 5])
def test_large_budgets_do_not_drown_in_rounding(k: int, epsilon0: float) -> None:
    """Few users share so small a blanket: what is left is the report itself, and no bound may fall below that."""
    mechanism = nz.GeneralizedRandomizedResponse(epsilon=epsilon0, domain=nz.Categorical(k))
    for n in (2, 6):
        for gap in (1e-3, 0.1, 3.0):
            epsilon = epsilon0 - gap
            exact = _exact_delta(_response(k, epsilon0), [0] * (n - 1), epsilon)
            bounds = [float(b.delta(n, epsilon)[0]) for b in (*blankets(mechanism), Blanket.clones(epsilon0))]
            assert min(bounds) >= exact * (1 - 1e-6)
            assert shuffled_delta(mechanism, n, epsilon) >= exact * (1 - 1e-6)


def test_huge_budgets_are_not_amplified() -> None:
    for epsilon0 in (29.0, 31.0, 100.0, 1000.0):
        assert shuffled(nz.Guarantee(epsilon0), 1000, DELTA).epsilon == pytest.approx(epsilon0, rel=1e-6)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: shuffled(nz.Gaussian(epsilon=1.0), 1000, DELTA), "pure local guarantee"),
        (
            lambda: shuffled(nz.Guarantee(1.0, model="central"), 1000, DELTA),
            "guarantee, got 1-DP, unit record, model central",
        ),
        (lambda: shuffled(nz.Duchi(epsilon=1.0), 0, DELTA), "users=0"),
        (lambda: shuffled(nz.Duchi(epsilon=1.0), 1000, 0.0), r"delta=0\.0"),
        (lambda: shuffled(nz.Duchi(epsilon=1.0), 1000, DELTA, method="stronger"), "method='stronger'"),
        (lambda: shuffled(nz.PrivUnit(epsilon=1.0, dims=8), 10, DELTA, method="blanket"), "No blanket can be read off"),
        (lambda: shuffled_delta(nz.Duchi(epsilon=1.0), 10, -0.5), r"epsilon=-0\.5"),
    ],
)
def test_bad_arguments(call: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()
