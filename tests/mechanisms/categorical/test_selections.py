"""Mechanisms for several options: every report is listed, the variances are those of the specification."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from scipy.stats import chi2

import noisette as nz
from noisette.auditing import exact_delta
from noisette.mechanisms.categorical.selections.privset import apart

CASES = [
    (cls, epsilon, size, most)
    for cls in (nz.PrivSet, nz.DrawnOption)
    for epsilon in (1e-6, 0.5, 2.0, 6.0)
    for size, most in ((2, 1), (3, 3), (4, 2), (6, 2))
]


def all_reports(mechanism: Any) -> np.ndarray:
    if mechanism.name == "drawn-option":
        return np.arange(2 * mechanism.domain.size)
    return np.asarray(list(itertools.combinations(range(mechanism.items), mechanism.length)))


def all_selections(domain: nz.Selection) -> np.ndarray:
    rows = [row for many in range(domain.most + 1) for row in itertools.combinations(range(domain.size), many)]
    return np.asarray([[*row, *[-1] * (domain.most - len(row))] for row in rows])


@pytest.mark.parametrize(("cls", "epsilon", "size", "most"), CASES)
class TestByEnumeration:
    def test_masses_ratios_and_delta(self, cls: Any, epsilon: float, size: int, most: int) -> None:
        mechanism = cls(epsilon, nz.Selection(size, most))
        reports, rows = all_reports(mechanism), all_selections(mechanism.domain)
        logs = mechanism.log_prob(reports[:, None], rows[None])
        assert np.allclose(np.exp(logs).sum(axis=0), 1, rtol=0, atol=1e-12)
        worst = float(np.ptp(logs, axis=1).max())
        assert worst <= epsilon
        assert worst >= epsilon * (1 - 1e-7)
        assert nz.exact_epsilon(mechanism) == pytest.approx(worst, rel=1e-9, abs=1e-13)
        masses = np.exp(logs)
        for share in (0.0, 0.5):
            excess = masses[:, :, None] - math.exp(share * epsilon) * masses[:, None, :]
            found = float(np.maximum(excess, 0).sum(axis=0).max())
            assert exact_delta(mechanism, share * epsilon) == pytest.approx(found, rel=1e-9, abs=1e-13)

    def test_estimates_are_unbiased_with_the_stated_variance(
        self, cls: Any, epsilon: float, size: int, most: int
    ) -> None:
        """Score of every report, weighed by its mass: mean and variance of shares and of the number."""
        mechanism = cls(epsilon, nz.Selection(size, most))
        reports, rows = all_reports(mechanism), all_selections(mechanism.domain)
        masses = np.exp(mechanism.log_prob(reports[:, None], rows[None]))
        readout = mechanism.readout
        scores, about = [], []
        for report in reports:
            tally = mechanism.tally(report[None])
            scores.append(readout.offset + readout.scale * tally.total)
            about.append(tally.count)
        score, counted = np.asarray(scores), np.asarray(about)
        for place, row in enumerate(rows):
            weight = masses[:, place, None] * counted
            weight = weight / weight.sum(axis=0)  # given that a report is about the option
            mean = (weight * score).sum(axis=0)
            scale = 1 / (mechanism.p_own - mechanism.p_other)
            assert np.allclose(mean, mechanism.target(row), rtol=0, atol=1e-9 * scale * size)
            variance = (weight * (score - mean) ** 2).sum(axis=0)
            third = (weight * np.abs(score - mean) ** 3).sum(axis=0)
            moments = mechanism.moments(row)
            assert np.allclose(moments.variance, variance, rtol=1e-7)
            assert np.allclose(moments.third, third, rtol=1e-7)
            assert not np.allclose(moments.variance * 1.01, variance, rtol=1e-7)


@pytest.mark.parametrize(
    ("size", "most", "epsilon", "length", "none", "every"),
    [
        (10, 3, 1.0, 1, 5.81, 14.21),
        (10, 10, 1.0, 1, 12.3, None),
        (100, 3, 1.0, 9, 11.3, None),
        (1000, 5, 2.0, 23, 3.71, None),
    ],
)
def test_golden_variances(size: int, most: int, epsilon: float, length: int, none: float, every: float | None) -> None:
    """The table of the specification, computed apart from this file."""
    mechanism = nz.PrivSet(epsilon, nz.Selection(size, most))
    assert mechanism.length == length
    assert mechanism.spread[0] == pytest.approx(none, rel=5e-3)
    if every is not None:
        assert mechanism.spread[1] == pytest.approx(every, rel=1e-3)


def test_one_choice_is_subset_selection() -> None:
    """With one option or none, the options and a dummy are the categories."""
    ours = nz.PrivSet(1.3, nz.Selection(20, 1))
    theirs = nz.SubsetSelection(1.3, nz.Categorical(21))
    chances = [float(chance) for chance in theirs._law(ours.length)]
    assert [ours.p_own, ours.p_other] == pytest.approx(chances, rel=1e-12)


def test_shares_of_sets_apart() -> None:
    for size, most, length in itertools.product((3, 5, 8), (1, 2, 3), (1, 2, 3)):
        if length <= size - most:
            own = math.comb(size - most, length) / math.comb(size, length)
            assert float(apart(size, most, length)) == pytest.approx(own, rel=1e-12)


@pytest.mark.parametrize("cls", [nz.PrivSet, nz.DrawnOption])
@pytest.mark.slow
def test_the_contract_on_longer_lists(cls: Any) -> None:
    nz.testing.check_mechanism(cls(1.0, nz.Selection(12, 3)), samples=40_000)


@pytest.mark.slow
@pytest.mark.parametrize("cls", [nz.PrivSet, nz.DrawnOption])
@pytest.mark.parametrize(("size", "most"), [(2, 1), (50, 50), (1000, 3)])
@pytest.mark.parametrize("epsilon", [1e-6, 1.0, 30.0, 400.0])
def test_extremes_stay_sound(cls: Any, size: int, most: int, epsilon: float) -> None:
    mechanism = cls(epsilon, nz.Selection(size, most))
    rows = np.stack([np.arange(most), np.full(most, -1)])
    reports = mechanism.privatize(rows, rng=1)
    assert np.isfinite(mechanism.log_prob(reports, rows)).all()
    assert 0 < nz.exact_epsilon(mechanism) <= epsilon
    estimate = mechanism.aggregate(reports).estimate()
    assert np.isfinite(estimate.interval(0.95, method="finite")[1][-1])
    assert np.isfinite(mechanism.moments(rows).variance).all()


def test_what_is_no_selection_is_refused() -> None:
    mechanism = nz.PrivSet(1.0, nz.Selection(4, 2))
    with pytest.raises(ValueError, match=r"Expected rows of different options 0 ... 3, .* got \[1, 1\]"):
        mechanism.privatize([[0, 1], [1, 1]])
    with pytest.raises(ValueError, match="There is no nearest selection to clip to"):
        mechanism.privatize([[0, 4]], clip=True)
    with pytest.raises(TypeError, match=r"Call domain\.encode first"):
        mechanism.privatize([[0.0, 1.0]])
    with pytest.raises(ValueError, match="outside the support of privset"):
        mechanism.aggregate([[9]])
    with pytest.raises(TypeError, match="to be Selection"):
        nz.DrawnOption(1.0, nz.Categorical(4))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="Expected at most 65,536 options for privset"):
        nz.PrivSet(1.0, nz.Selection(70_000, 2))


def test_the_plan_takes_the_lesser_variance() -> None:
    few = nz.plan(users=1000, epsilon=1.0, domain=nz.Selection(10, 3))
    anything = nz.plan(users=1000, epsilon=1.0, domain=nz.Selection(10))
    assert (few.best.mechanism, anything.best.mechanism) == ("privset", "drawn-option")
    assert few.best.mse == pytest.approx((5.8103 + 0.3 * (14.2120 - 5.8103)) / 1000, rel=1e-4)
    known = nz.deviation(few.best.build(), users=1000, values=[[0, 1, 2], [0, -1, -1]])
    assert known.std.shape == (11,)
    assert known.std[0] > known.std[1] > known.std[3]


# --- the wheel


class TestWheel:
    """Arcs of a ring: its law point by point on a small ring, its support, its bound."""

    @pytest.fixture
    def small(self, monkeypatch: pytest.MonkeyPatch) -> Any:
        """Return a wheel on a ring of 101 points."""
        from noisette.mechanisms.categorical.selections import wheel

        monkeypatch.setattr(wheel, "RING", 101)
        return nz.Wheel(1.0, nz.Selection(9, 2))

    def test_the_masses_of_all_points_add_up(self, small: Any) -> None:
        """For maps at random, for every selection; and no two differ by more than epsilon."""
        rng = np.random.default_rng(1)
        rows = all_selections(small.domain)
        for seed in rng.integers(0, 101, (20, small.coefficients)):
            reports = np.concatenate([np.tile(seed, (101, 1)), np.arange(101)[:, None]], axis=1)
            logs = small.log_prob(reports[:, None], rows[None]) + small.coefficients * math.log(101)
            assert np.allclose(np.exp(logs).sum(axis=0), 1, rtol=0, atol=1e-12)
            assert np.ptp(logs, axis=1).max() <= 1.0

    def test_points_are_drawn_with_their_masses(self, small: Any) -> None:
        """200,000 points under one map against the law, at 1e-6; the twin is another selection."""
        seed = np.asarray([3, 50, 7, 90])
        reports = np.concatenate([np.tile(seed, (101, 1)), np.arange(101)[:, None]], axis=1)
        rows = np.tile([1, 4], (200_000, 1))
        drawn = small.privatize_drawn(rows, np.tile(seed, (200_000, 1)), rng=5)[:, -1]
        seen = np.bincount(drawn, minlength=101)
        for own, fits in (([1, 4], True), ([1, 5], False)):
            mass = np.exp(small.log_prob(reports, np.asarray(own)) + small.coefficients * math.log(101))
            statistic = float(((seen - mass * 200_000) ** 2 / (mass * 200_000)).sum())
            assert (chi2.sf(statistic, 100) > 1e-6) == fits

    @pytest.mark.slow
    def test_an_option_is_supported_as_often_as_stated(self, small: Any) -> None:
        """Over all maps of a smaller degree than is drawn: exact for the own options and for others."""
        rows, law = np.asarray([2, 6]), small._law
        own = other = 0.0
        slopes = np.stack(np.meshgrid(*[np.arange(101)] * 3, indexing="ij"), axis=-1).reshape(-1, 3)[::37]
        maps = np.concatenate([np.zeros((len(slopes), 1), dtype=np.int64), slopes], axis=1)
        for point in range(0, 101, 10):
            reports = np.concatenate([maps, np.full((len(maps), 1), point)], axis=1)
            mass = np.exp(small.log_prob(reports, rows) + small.coefficients * math.log(101)) * 101 / len(maps) / 11
            inside = [
                (point - small._places(maps, np.full((len(maps), 1), option))[:, 0]) % 101 < law.arc
                for option in (2, 5)
            ]
            own, other = own + float(mass @ inside[0]), other + float(mass @ inside[1])
        assert own == pytest.approx(small.p_own, rel=0.02)
        assert other == pytest.approx(small.p_other, rel=0.02)
        assert own > 1.5 * other

    @pytest.mark.parametrize(("epsilon", "size", "most"), [(1.0, 20, 3), (2.0, 1000, 5), (6.0, 50, 1), (1e-6, 40, 2)])
    def test_variance_and_bound(self, epsilon: float, size: int, most: int) -> None:
        """The specification's variances, and an epsilon just below what was asked."""
        mechanism = nz.Wheel(epsilon, nz.Selection(size, most))
        assert epsilon * (1 - 1e-3) <= mechanism.bound <= epsilon
        assert nz.exact_epsilon(mechanism) == pytest.approx(mechanism.bound, rel=1e-6)
        known = {(1.0, 20, 3): (13.4, 24.1), (2.0, 1000, 5): (3.98, 16.07)}
        if (epsilon, size, most) in known:
            assert mechanism.spread == pytest.approx(known[epsilon, size, most], rel=2e-3)

    @pytest.mark.slow
    def test_counting_is_looking_at_every_option(self) -> None:
        """The compiled count against the places themselves."""
        mechanism = nz.Wheel(1.0, nz.Selection(300, 2))
        reports = mechanism.privatize(np.random.default_rng(2).permutation(300)[:100].reshape(50, 2), rng=3)
        places = mechanism._places(reports[:, :-1], np.tile(np.arange(300), (50, 1)))
        has = (reports[:, -1:] - places) % (2**31 - 1) < mechanism._law.arc
        tally = mechanism.tally(reports)
        assert tally.total[:-1].tolist() == has.sum(axis=0).tolist()
        assert tally.squares[-1] == (has.sum(axis=1) ** 2).sum()

    def test_bad_input(self) -> None:
        """Too many options to choose, and too small a budget."""
        with pytest.raises(ValueError, match="at most 16 chosen options"):
            nz.Wheel(1.0, nz.Selection(100, 17))
        with pytest.raises(ValueError, match="larger epsilon than 1e-10"):
            nz.Wheel(1e-10, nz.Selection(100, 2))

    def test_a_long_list_takes_it(self) -> None:
        """A survey's auto: PrivSet for a short list, the wheel where reports of PrivSet would be long."""
        few, many = ([str(place) for place in range(size)] for size in (30, 5000))
        asked = {
            name: nz.Survey([nz.Choices("c", of, most=3)], epsilon=1.0) for name, of in (("few", few), ("many", many))
        }
        assert asked["few"].randomizer.name == "privset"
        assert asked["many"].randomizer.name == "wheel"
        rival = nz.PrivSet(1.0, asked["many"].randomizer.domain)
        assert asked["many"].randomizer.spread[0] <= 1.1 * rival.spread[0]
        assert rival.length > 64


@pytest.mark.parametrize(("size", "most", "epsilon"), [(5, 2, 0.1), (8, 3, 0.1), (4, 1, 0.3), (10, 2, 0.1)])
def test_the_chance_of_two_options_together_by_enumeration(size: int, most: int, epsilon: float) -> None:
    """Where one of the two was chosen, and where none was; alone, where it was chosen and where it was not."""
    mechanism = nz.PrivSet(epsilon, nz.Selection(size, most))
    assert mechanism.length > 1
    sets = np.asarray(list(itertools.combinations(range(mechanism.items), mechanism.length)))
    x = np.arange(most)
    masses = np.exp(mechanism.log_prob(sets, x))
    assert masses.sum() == pytest.approx(1, rel=1e-12)
    own, other = (float(one) for one in mechanism._support_law)
    mixed, others = (float(one) for one in mechanism._joint_law)

    def together(*options: int) -> float:
        return float(masses[np.isin(sets, options).sum(axis=1) == len(options)].sum())

    assert together(0) == pytest.approx(own, rel=1e-12)
    assert together(size - 1) == pytest.approx(other, rel=1e-12)
    assert together(0, size - 1) == pytest.approx(mixed, rel=1e-12)
    if size - most > 1:
        assert together(size - 2, size - 1) == pytest.approx(others, rel=1e-12)


@pytest.mark.parametrize(
    ("size", "most", "epsilon"), [(20, 1, 0.1), (30, 3, 0.2), (40, 2, 1.5), (9, 4, 0.5), (60, 5, 0.1)]
)
def test_a_subset_has_the_length_of_least_variance(size: int, most: int, epsilon: float) -> None:
    mechanism = nz.PrivSet(epsilon, nz.Selection(size, most))
    items, times = mechanism.items, math.exp(epsilon)

    def variance(length: int) -> float:
        without = math.comb(items - most, length) / math.comb(items, length)
        beside = without * length / (items - most)
        whole = times * (1 - without) + without
        own, other = times * length / items / whole, (times * (length / items - beside) + beside) / whole
        return other * (1 - other) / (own - other) ** 2

    assert mechanism.length == min(range(1, items - most + 1), key=variance)
