"""Tables of differences by hand: scores, limits, corrections, looks, and pairs of cells of a quantile."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy.stats import multivariate_normal, norm

import noisette as nz
from noisette.core import Estimate
from noisette.survey.estimation import comparing
from noisette.survey.estimation.comparing import (
    QuantileDifference,
    _apart,
    _beyond_radius,
    _looks,
    _radius,
    _Side,
    _table,
    boundaries,
    repeated_p_value,
    spent,
)

GAP, ERROR = np.asarray([0.5, -0.3, 0.02, np.nan]), np.asarray([0.1, 0.2, 0.05, np.inf])
COLUMNS = {"question": list("wxyz")}


def normal_ends(score: Any) -> tuple[Any, Any]:
    return GAP - score * ERROR, GAP + score * ERROR


def table(**given: Any) -> Any:
    told: dict[str, Any] = {"level": 0.9, "correct": "none", "looks": None, "what": "'g'"} | given
    return _table(COLUMNS, GAP, ERROR, normal_ends, **told)


@pytest.mark.filterwarnings("ignore:invalid value")
def test_differences_one_by_one_and_together() -> None:
    scores = np.abs(GAP[:3] / ERROR[:3])
    chances = 2 * norm.sf(scores)
    for correct, tests in (("none", 1), ("holm", 3), ("bh", 3)):
        found = table(correct=correct)
        assert found["p_value"][:3].tolist() == pytest.approx(chances.tolist(), rel=1e-6)
        limit = norm.isf(0.1 / (2 * tests))
        assert found["low"][:3].tolist() == pytest.approx((GAP[:3] - limit * ERROR[:3]).tolist())
        assert found["high"][:3].tolist() == pytest.approx((GAP[:3] + limit * ERROR[:3]).tolist())
        assert np.isnan(found["p_value"][3])
        assert found.attrs["note"].startswith("3 differences (b - a) between values of 'g'. All 90% intervals hold")
    assert table(correct="holm")["adjusted"][1] == pytest.approx(min(1.0, 2 * chances[1]))
    assert table(correct="bh")["adjusted"][1] == pytest.approx(chances[1] * 3 / 2)
    assert table()["adjusted"][1] == pytest.approx(chances[1])
    for wrong in ({"level": 0.0}, {"level": 1.0}, {"level": 1.5}, {"level": -0.1}, {"correct": "sidak"}):
        with pytest.raises(ValueError, match="Expected"):
            table(**wrong)
    looked = table(looks=[0.3, 0.8])
    limit = boundaries((0.3, 0.8), 0.1)[-1]
    assert looked["low"][0] == pytest.approx(0.5 - limit * 0.1)
    assert looked["p_value"][1] == pytest.approx(float(repeated_p_value(np.asarray(1.5), (0.3, 0.8))), rel=1e-6)
    assert "at all 2 looks together" in looked.attrs["note"]


@pytest.mark.parametrize("times", [(0.2, 0.5, 1.0), (0.3, 0.4, 0.9)])
def test_three_looks_alarm_as_often_as_the_rule_allows(times: tuple[float, ...]) -> None:
    """The chance to stay within all boundaries up to a look, of three normal variables that go together."""
    limits = boundaries(times, 0.05)
    matrix = [[math.sqrt(min(a, b) / max(a, b)) for b in times] for a in times]
    assert 2 * norm.sf(limits[0]) == pytest.approx(spent(times[0], 0.05), rel=1e-6)
    for count in (2, 3):
        own = np.asarray(limits[:count])
        law = multivariate_normal(np.zeros(count), np.asarray(matrix)[:count, :count], maxpts=200_000, seed=1)
        assert 1 - law.cdf(own, lower_limit=-own) == pytest.approx(spent(times[count - 1], 0.05), abs=2e-5)
    assert boundaries(times, 0.01)[-1] > limits[-1]


def test_ends_of_looks() -> None:
    assert _looks([1.0]) == (1.0,)
    many = [(place + 1) / 1001 for place in range(1001)]
    assert len(_looks(many[:1000])) == 1000
    for wrong in (many, [0.5, 1.0000001], [0.0]):
        with pytest.raises(ValueError, match="Expected looks"):
            _looks(wrong)


def test_a_p_value_is_the_level_at_which_the_boundary_is_met() -> None:
    times = (0.4, 1.0)
    for alpha in comparing._LEVELS[[0, 5, 10]]:
        score = boundaries(times, float(alpha))[-1]
        assert float(repeated_p_value(np.asarray(score), times)) == pytest.approx(float(alpha), rel=1e-9)
    between = boundaries(times, 0.003)[-1]
    assert float(repeated_p_value(np.asarray(between), times)) == pytest.approx(0.003, rel=0.02)


def difference() -> QuantileDifference:
    """Three cells in one group and two in the other."""
    scores = np.asarray([[3.0], [0.0], [1.0]]), np.asarray([2.0, 0.0])
    low = np.asarray([[-1.0, 1.0], [-3.0, -1.0], [-5.0, -3.0]])
    return QuantileDifference(low, low + 4.0, scores)


def test_pairs_of_cells_that_are_kept() -> None:
    found = difference()
    for alpha in (0.9, 0.3, 0.05, 0.001):
        radius = _radius(alpha)
        kept = [
            (found.low[i, j], found.high[i, j])
            for i, a in enumerate((3.0, 0.0, 1.0))
            for j, b in enumerate((2.0, 0.0))
            if math.hypot(a, b) <= radius
        ]
        assert found.interval(alpha, ()) == (min(one for one, _ in kept), max(one for _, one in kept))
        limit = boundaries((0.5, 1.0), alpha / 2)[-1]
        kept = [
            (found.low[i, j], found.high[i, j])
            for i, a in enumerate((3.0, 0.0, 1.0))
            for j, b in enumerate((2.0, 0.0))
            if max(a, b) <= limit
        ]
        assert found.interval(alpha, (0.5, 1.0)) == (min(one for one, _ in kept), max(one for _, one in kept))


def test_the_p_value_of_a_difference_of_quantiles() -> None:
    """Zero is left out once no pair is kept that reaches it from above, or none that reaches it from below."""
    assert difference().p_value(()) == 1.0  # the likeliest pair holds it
    apart = QuantileDifference(
        np.asarray([[1.0, 3.0], [-2.0, 0.5]]),
        np.asarray([[2.0, 4.0], [-1.0, 1.0]]),
        (np.asarray([[0.0], [1.5]]), np.asarray([2.0, 0.0])),
    )
    least = math.hypot(1.5, 2.0)  # the one pair that begins at zero or below
    assert apart.p_value(()) == pytest.approx(_beyond_radius(least))
    wanted = 2 * float(repeated_p_value(np.asarray(2.0), (0.5, 1.0)))
    assert apart.p_value((0.5, 1.0)) == pytest.approx(min(1.0, wanted))


def test_sides_gather_estimates_row_by_row() -> None:
    one = Estimate(np.asarray([1.0, 2.0, 3.0]), np.asarray([0.1, 0.2, 0.3]), np.full(3, 50))
    two = Estimate(np.asarray([5.0, 7.0]), np.asarray([0.5, 0.7]), np.full(2, 50))
    side = _Side([(two, 1), (one, 0), (one, 2), (two, 0)])
    assert (side.value.tolist(), side.std_error.tolist()) == ([7.0, 1.0, 3.0, 5.0], [0.7, 0.1, 0.3, 0.5])
    scores = np.asarray([0.5, 1.0, 2.0, 3.0])
    low, high = side.ends_at(scores, np.zeros(4))
    for row, (made, place) in enumerate([(two, 1), (one, 0), (one, 2), (two, 0)]):
        ends = made.ends_at(np.full(made.value.shape, scores[row]))
        assert (low[row], high[row]) == pytest.approx((ends[0][place], ends[1][place]))
    other = _Side([(one, 1), (one, 1), (two, 0), (two, 1)])
    low, high = _apart(side, other, scores)
    for row in range(4):
        (a_low, a_high), (b_low, b_high) = (
            tuple(float(end[row]) for end in own.ends_at(scores, np.zeros(4))) for own in (side, other)
        )
        a, b = side.value[row], other.value[row]
        assert low[row] == pytest.approx(b - a - math.hypot(b - b_low, a_high - a))
        assert high[row] == pytest.approx(b - a + math.hypot(b_high - b, a - a_low))


def test_a_difference_that_nobody_asked_about_is_refused() -> None:
    asked = [nz.Number("x", 0, 10), nz.Choice("c", ["a", "b"]), nz.Text("t", 4)]
    plan = nz.Survey(asked, epsilon=1.0, groups={"g": ["u", "v"]}).plan(users=1000)
    for differences, wrong in (
        ({"y": 0.1}, "differences of x, c, got 'y'"),
        ({"t": 0.1}, "got 't'"),
        ({"x": math.nan}, "differences=nan to be finite"),
        ({"x": -math.inf}, "to be finite"),
        (math.inf, "to be finite"),
    ):
        with pytest.raises(ValueError, match=wrong):
            plan.compare("g", differences)
    wide: list[tuple[dict[str, float], str]] = [({"x": -1.0}, "and >= 0"), ({"x": math.nan}, "finite")]
    for spread, wrong in (*wide, ({"y": 1.0}, "spread of x, c")):
        with pytest.raises(ValueError, match=wrong):
            plan.compare("g", 0.1, spread=spread)
    assert len(plan.compare("g", {"x": -1.0}, spread={"x": 0.0})) == 1


@pytest.mark.parametrize("what", [{}, 5, [1, 2], {"a": 1}])
def test_what_are_no_results_is_not_compared(what: Any) -> None:
    survey = nz.Survey([nz.Number("x", 0, 1)], epsilon=1.0)
    results = survey.estimate(survey.privatize({"x": [0.5, 0.5]}, rng=1))
    with pytest.raises(TypeError, match="Expected a public group, other results, or several results by name"):
        results.compare(what)
