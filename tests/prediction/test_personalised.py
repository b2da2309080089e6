"""Users who choose budgets and regions: Theorem 3, weights, and estimates from real reports.

Statistical tests reject a right prediction with probability 1e-6 at most; each has a twin.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy import stats
from scipy.special import ndtri

import noisette as nz
from noisette.prediction import Deviation, Personalised, deviation

FALSE_ALARM = 1e-6
HALVES = [nz.Interval(-1, 0), nz.Interval(0, 1)]
BUDGETS = [0.5, 2.0, 8.0]


def agree(found: np.ndarray, predicted: Deviation) -> bool:
    """Kolmogorov-Smirnov within the Berry-Esseen bound, and normal tests of mean and variance."""
    chance = math.sqrt(math.log(6 / FALSE_ALARM) / (2 * found.size))
    distance = stats.kstest(found, stats.norm(predicted.bias, predicted.std).cdf).statistic
    limit = -ndtri(FALSE_ALARM / 6)
    squares = (found - found.mean()) ** 2
    mean_fits = abs(found.mean() - predicted.bias) <= limit * predicted.std / math.sqrt(found.size)
    variance_fits = abs(squares.mean() - predicted.std**2) <= limit * squares.std() / math.sqrt(found.size)
    return bool(distance <= predicted.berry_esseen + chance and mean_fits and variance_fits)


def population(users: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    region = (rng.random(users) < 0.7).astype(int)
    return rng.beta(2, 5, users) - (1 - region), region


@pytest.mark.long
@pytest.mark.parametrize("inner", ["piecewise", "laplace"])
def test_predictions_against_collections(inner: str) -> None:
    """Budgets are dealt out at random; the twin is the prediction for the other weights."""
    both: tuple[Any, ...] = ("plain", "inverse-variance")
    choices = Personalised.of(inner, epsilons=BUDGETS, regions=HALVES)
    values, region = population(3000, seed=1)
    rng = np.random.default_rng(2)
    deal = np.arange(values.size) % 3
    found = []
    for _ in range(500):
        choice = 2 * rng.permutation(deal) + region
        collected = choices.aggregate(choices.privatize(values, choice, rng=rng))
        found.append([collected.estimate(weights).value[0] for weights in both])
    users = np.bincount(choice, minlength=6)
    own = [values[region == place % 2] for place in range(6)]
    predicted = [choices.deviation(users, values=own, weights=weights) for weights in both]
    for place, deviations in enumerate(np.asarray(found).T - values.mean()):
        assert agree(deviations, predicted[place])
        assert not agree(deviations, predicted[1 - place])


def test_theorem_3() -> None:
    """By hand: delta = sum r_z delta_z / r, sigma^2 = sum r_z Var_z / r^2, for the biased square wave."""
    choices = Personalised.of("square-wave", epsilons=[1.0, 3.0])
    values = [[0.2, 0.4], [-0.5, 0.9, 0.1]]
    users = np.array([300, 100])
    moments = [m.moments(np.asarray(v)) for m, v in zip(choices.mechanisms, values, strict=True)]
    predicted = choices.deviation(users, values=values, weights="plain")
    assert predicted.bias == pytest.approx(users @ [m.bias.mean() for m in moments] / 400, rel=1e-9)
    assert predicted.std**2 == pytest.approx(users @ [m.variance.mean() for m in moments] / 400**2, rel=1e-9)
    alone = choices.deviation([300, 0], values=values, weights="plain")
    one = deviation(choices.mechanisms[0], users=300, values=values[0])
    assert (alone.bias, alone.std) == pytest.approx((one.bias, one.std), rel=1e-12)


def test_weights_are_the_best_for_what_is_public() -> None:
    """No other weights, region by region, have a smaller variance at the worst noise and uniform values."""
    choices = Personalised.of("laplace", epsilons=BUDGETS, regions=HALVES)
    users = np.array([500, 100, 300, 50, 20, 400])
    best = choices.weights(users)
    shares = users / users.sum()
    assert [best[place::2].sum() for place in (0, 1)] == pytest.approx([shares[place::2].sum() for place in (0, 1)])
    noise = np.array([8 * (0.5 / e) ** 2 for e in BUDGETS for _ in HALVES])  # 2 (1/e)^2: a region is one wide

    def variance(weights: np.ndarray) -> float:
        return float((weights**2 * noise / users + (weights - shares) ** 2 / 12 / users).sum())

    rng = np.random.default_rng(3)
    for _ in range(300):
        step = rng.normal(0, 0.02, 6)
        for place in (0, 1):
            step[place::2] -= step[place::2].mean()
        assert variance(best + step) > variance(best)
    assert variance(best) < 0.2 * variance(shares)
    assert choices.deviation(users, distribution="uniform").std ** 2 == pytest.approx(variance(best), rel=1e-6)


def test_equal_groups_have_equal_weights() -> None:
    choices = Personalised((nz.Duchi(1.0), nz.Duchi(1.0)))
    assert choices.weights([30, 10]) == pytest.approx([0.75, 0.25])


def test_plain_is_unbiased_whoever_chose_what_and_weights_are_not() -> None:
    """Users with large values take small budgets: only the plain average stays true. The docs say so."""
    choices = Personalised.of("piecewise", epsilons=[0.5, 8.0])
    values = np.repeat([0.8, -0.2], 2000)
    choice = np.repeat([0, 1], 2000)
    aggregate = choices.aggregate(choices.privatize(values, choice, rng=5))
    limit = -ndtri(FALSE_ALARM / 4)
    plain, weighted = aggregate.estimate("plain"), aggregate.estimate("inverse-variance")
    assert abs(plain.value[0] - 0.3) < limit * plain.std_error[0]
    assert abs(weighted.value[0] - 0.3) > limit * weighted.std_error[0]


def test_an_estimate_of_regions_may_lie_in_any_of_them() -> None:
    choices = Personalised.of("duchi", epsilons=[1.0], regions=[nz.Interval(-3, 0), nz.Interval(0, 1)])
    aggregate = choices.aggregate(choices.privatize([-2.0, 0.5, 0.5], [0, 1, 1], rng=1))
    assert (aggregate.estimate().low, aggregate.estimate().high) == (-3.0, 1.0)


@pytest.mark.long
def test_merging_is_exact_and_errors_are_honest() -> None:
    """Shards in any order give the same bits; with 400 collections the interval covers as often as it says."""
    choices = Personalised.of("hybrid", epsilons=BUDGETS, regions=HALVES)
    values = population(1500, seed=7)[0]
    rng = np.random.default_rng(8)
    covered = 0
    for _ in range(400):
        fresh = np.abs(rng.permutation(np.abs(values))) * np.sign(values)
        choice = 2 * (rng.permutation(values.size) % 3) + (fresh >= 0)
        aggregate = choices.aggregate(choices.privatize(fresh, choice, rng=rng))
        low, high = aggregate.estimate().interval(0.95)
        covered += bool(low[0] <= fresh.mean() <= high[0])
    assert covered >= stats.binom(400, 0.95).ppf(FALSE_ALARM)
    cuts = (slice(9), slice(9, 400), slice(400, 1500))
    parts = [choices.aggregate(choices.privatize(fresh[cut], choice[cut], rng=3)) for cut in cuts]
    assert parts[0] + parts[1] + parts[2] == parts[2] + (parts[1] + parts[0])
    assert (parts[0] + parts[1] + parts[2]).users.sum() == 1500


@pytest.mark.slow
def test_many_dimensions() -> None:
    """The thesis's figure 4.4 in small: some of the dimensions are reported, ten groups."""
    choices = Personalised.of("piecewise", epsilons=[1.0, 5.0, 10.0, 15.0, 20.0], regions=HALVES, dims=20, report=4)
    rng = np.random.default_rng(9)
    choice = np.arange(4000) % 10
    rows = rng.uniform(0, 1, (4000, 20)) - (1 - choice % 2)[:, None]
    estimate = choices.aggregate(choices.privatize(rows, choice, rng=10)).estimate()
    assert estimate.value.shape == (20,)
    assert np.all(np.abs(estimate.value - rows.mean(axis=0)) < -ndtri(FALSE_ALARM / 40) * estimate.std_error)
    plain, better = (
        choices.deviation([400] * 10, distribution="uniform", weights=w).std for w in ("plain", "inverse-variance")
    )
    assert better < 0.5 * plain
    assert estimate.std_error == pytest.approx(np.full(20, better), rel=0.2)


def test_unknown_values_take_the_worst() -> None:
    choices = Personalised.of("duchi", epsilons=[1.0, 4.0])
    unknown = choices.deviation([100, 100])
    for points in ([0.0], [1.0], [-1.0, 1.0], [0.3, -0.2]):
        known = choices.deviation([100, 100], values=[points, points])
        assert unknown.range[0] * (1 - 1e-9) <= known.mse <= unknown.mse * (1 + 1e-9)


BAD = [
    (lambda c: c.privatize([0.1, 0.2], [0]), "one choice for each of 2"),
    (lambda c: c.privatize([0.1], [7]), "from 0 to 1, got 7"),
    (lambda c: c.privatize([3.0], [0]), r"got 3\.0"),
    (lambda c: c.aggregate([None]), "reports of 2 groups"),
    (lambda c: c.deviation([1, 2, 3]), "users of 2 groups"),
    (lambda c: c.deviation([0, 0]), r"got users=\[0, 0\]"),
    (lambda c: c.deviation([5, 5], values=[[0.1]]), "values of 2 groups"),
    (lambda c: c.weights([5, 5], "best"), "'best' to be"),
    (lambda c: Personalised(()), "at least one group"),
    (lambda c: Personalised((nz.GeneralizedRandomizedResponse(1.0, nz.Categorical(3)),)), "estimate means"),
    (lambda c: Personalised((nz.Duchi(1.0), nz.DuchiBox(1.0, 2))), "as many dimensions"),
]


@pytest.mark.parametrize(("call", "message"), BAD)
def test_bad_input(call: Any, message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        call(Personalised.of("duchi", epsilons=[1.0, 2.0]))


@pytest.mark.parametrize("name", ["piecewise", "duchi", "laplace"])
@pytest.mark.parametrize("high", [1.0, 99.0])
def test_weights_are_by_the_worst_variance_in_any_unit(high: float, name: str) -> None:
    """Of one number and of some of many: a group counts users / (V + S^2), in dimensions that a user reports.

    V is largest at the ends for piecewise, in the middle for duchi.
    """
    domain, worst_at = nz.Interval(-1, high), np.asarray([-1.0, 0.0, 1.0])
    alone = Personalised(tuple(nz.build(name, domain, epsilon=e) for e in (1.0, 4.0)))
    box = nz.Box(8, -1, high)
    many = Personalised(tuple(nz.Sampled(name, e, domain=box, report=r) for e, r in ((1.0, 2), (4.0, 4))))
    for choices, budgets, shares in ((alone, (1.0, 4.0), (1.0, 1.0)), (many, (0.5, 1.0), (0.25, 0.5))):
        worst = [float(np.max(nz.CATALOGUE[name](budget).moments(worst_at).variance)) for budget in budgets]
        own = [count * share / (v + 1 / 3) for count, share, v in zip((30, 10), shares, worst, strict=True)]
        assert choices.weights([30, 10]) == pytest.approx(np.asarray(own) / sum(own), rel=1e-6)


def test_users_of_one_group_that_cannot_be() -> None:
    own = Personalised.of("duchi", epsilons=[1.0, 2.0])
    for users in ([5, -1], [0, 0], [5], [5, 6, 7]):
        with pytest.raises(ValueError, match="number of users of 2 groups"):
            own.weights(users)
    assert own.weights([0, 3]).tolist() == [0.0, 1.0]


def test_one_group_is_its_mechanism_and_every_group_has_the_shape_of_the_first() -> None:
    duchi = nz.Duchi(1.0)
    alone = Personalised((duchi,))
    assert alone.weights([7]).tolist() == [1.0]
    told, plain = alone.deviation([7], values=[[0.2, 0.6]]), deviation(duchi, users=7, values=[0.2, 0.6])
    assert (told.bias, told.std) == (pytest.approx(plain.bias), pytest.approx(plain.std))
    with pytest.raises(ValueError, match="as many dimensions"):
        Personalised((duchi, nz.Duchi(2.0), nz.DuchiBox(1.0, 2)))
