"""Mechanisms for several options: every report is listed, the variances are those of the specification."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest

import noisette as nz
from noisette.auditing import exact_delta
from noisette.mechanisms.categorical.privset import apart

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
