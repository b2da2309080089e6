"""The parts that surveys and services are made of, each against a computation written out by hand."""

from __future__ import annotations

import hashlib
import math
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import combinations
from pathlib import Path
from statistics import NormalDist
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import noisette as nz
from noisette.collector.results import estimates
from noisette.survey import choosing
from noisette.survey.batches import Batch, identities, joined, key_digests, pieces
from noisette.survey.campaigns import Campaign
from noisette.survey.choosing import Allowance
from noisette.survey.coding.texts import top_texts
from noisette.survey.estimation.comparing import (
    _beyond_radius,
    _looks,
    _radius,
    benjamini_hochberg,
    boundaries,
    holm,
    repeated_p_value,
    spent,
)
from noisette.survey.estimation.distributions import _Bounds
from noisette.survey.estimation.ratios import BoundedEstimate, CellShares, RatioEstimate, Supports, fieller
from noisette.survey.estimation.weighting import raked
from noisette.survey.periods import check_period, period_at, periods_from

NORMAL = NormalDist()
MASK = 2**64 - 1


@cache
def campaign(name: str = "ages", **more: Any) -> Campaign:
    fields: dict[str, Any] = {"id": name, "epsilon": 2.0, "users": 9, "attributes": [{"name": "age", "range": [0, 99]}]}
    return Campaign.from_dict(fields | {"mechanism": "piecewise"} | more)


def batch(*seeds: int, name: str = "ages", period: str = "once", keyed: bool = True) -> Batch:
    """Return a batch of reports whose tokens and keys are their seeds, many times over."""
    rows = campaign(name).survey.rows([campaign(name).privatize({"age": 30.0}, rng=seed) for seed in seeds])
    tokens = np.asarray([[seed] * 16 for seed in seeds], dtype=np.uint8).reshape(-1, 16)
    keys = key_digests(name, [str(seed) for seed in seeds]) if keyed else None
    groups = np.zeros(len(seeds), dtype=np.uint16)
    return Batch(campaign(name), period, tokens, keys, groups, rows, np.arange(len(seeds)))


def mark(row: bytes, group: int, period: str) -> int:
    """The mark of a report, in whole numbers: eight bytes after the other are mixed into a state."""
    row += bytes(-len(row) % 8)
    state = group + len(period)
    for place in range(0, len(row), 8):
        state = ((state ^ int.from_bytes(row[place : place + 8], "little")) * 0x9E3779B97F4A7C15) & MASK
        state ^= state >> 29
    return state - 2**64 if state >= 2**63 else state


def test_marks_tell_reports_groups_and_periods_apart() -> None:
    made = batch(1, 2, 3)
    assert made.marks.tolist() == [mark(row.tobytes(), 0, "once") for row in made.rows]
    tokens = [int.from_bytes(bytes([seed] * 8), "little", signed=True) for seed in (1, 2, 3)]
    assert made.key_marks.tolist() == [one ^ token for one, token in zip(made.marks.tolist(), tokens, strict=True)]
    assert len(set(made.marks.tolist())) == 3
    assert mark(b"\1\2\3", 5, "day") == mark(b"\1\2\3" + bytes(5), 5, "day") != mark(b"\1\2\3", 6, "day")


def test_tokens_are_masked_by_campaign_and_period() -> None:
    made = batch(7, 8)
    mask = hashlib.sha256(b"token\nages\nonce").digest()[:16]
    assert pieces(made.token_digests) == [bytes(seed ^ byte for byte in mask) for seed in (7, 8)]
    other = batch(7, 8, period="later")
    assert not set(pieces(other.token_digests)) & set(pieces(made.token_digests))
    assert pieces(key_digests("ages", ["x", "y"])) == [
        hashlib.sha256(f"key\nages\n{key}".encode()).digest()[:16] for key in "xy"
    ]


def test_identities_are_in_order_of_their_bytes() -> None:
    """Of tokens with the report's mark, and of keys with that of report and token; sorted as bytes are."""
    one, two = batch(3, 1), batch(2, keyed=False)
    digests, marks = identities([one, two])
    wanted = [
        *zip(pieces(one.token_digests), one.marks.tolist(), strict=True),
        *zip(pieces(one.keys), one.key_marks.tolist(), strict=True),  # type: ignore[arg-type]
        *zip(pieces(two.token_digests), two.marks.tolist(), strict=True),
    ]
    assert list(zip(pieces(digests), marks.tolist(), strict=True)) == sorted(wanted)


def test_batches_are_joined_only_with_their_like() -> None:
    made = joined([batch(1), batch(2, keyed=False), batch(3), batch(4, period="later"), batch(keyed=False)])
    assert sorted((one.period, one.keys is None, len(one)) for one in made) == [
        ("later", False, 1),
        ("once", False, 2),
        ("once", True, 1),
    ]
    two = next(one for one in made if len(one) == 2)
    assert two.tokens[:, 0].tolist() == [1, 3]
    assert two.index.tolist() == [0, 1]
    assert two.keys is not None
    assert pieces(two.keys) == pieces(key_digests("ages", ["1", "3"]))
    first = batch(1, 2, 3).take(np.asarray([True, False, True]))
    assert first.tokens[:, 0].tolist() == [1, 3]
    assert first.index.tolist() == [0, 2]
    assert (first.columns["users"], first.columns["groups"], len(first.columns["tokens"])) == (2, b"", 32)


def test_periods_follow_each_other() -> None:
    assert periods_from("day", "2024-02-28", 3) == ("2024-02-28", "2024-02-29", "2024-03-01")
    assert periods_from("week", "2026-W52", 3) == ("2026-W52", "2026-W53", "2027-W01")
    assert periods_from("month", "2026-12", 2) == ("2026-12", "2027-01")
    months = periods_from("month", "2024-01", 24)
    assert [one[-2:] for one in months] == [f"{month:02d}" for month in range(1, 13)] * 2
    moment = datetime(2026, 11, 15, 23, 59, tzinfo=UTC)
    assert [period_at(kind, moment) for kind in ("once", "day", "week", "month")] == [
        "once",
        "2026-11-15",
        "2026-W46",
        "2026-11",
    ]
    assert period_at("day", moment + timedelta(minutes=1)) == "2026-11-16"


@pytest.mark.parametrize(
    ("kind", "name"),
    [("day", "2026-11-31"), ("day", "2026-1-01"), ("week", "2026-W54"), ("week", "2026-W00"), ("month", "2026-13"),
     ("month", "0001-01"), ("day", "0001-12-31"), ("day", "today"), ("month", "2026-11-01")],
)  # fmt: skip
def test_what_names_no_period_is_refused(kind: str, name: str) -> None:
    with pytest.raises(ValueError, match=f"to name a {kind}"):
        periods_from(kind, name, 1)
    with pytest.raises(ValueError, match="Expected period"):
        check_period(kind, name)


def test_a_period_has_begun() -> None:
    now = datetime(2026, 11, 15, tzinfo=UTC)
    for name in ("2026-11-15", "2026-11-14", "1000-01-01"):
        check_period("day", name, now)
    with pytest.raises(ValueError, match="to have begun"):
        check_period("day", "2026-11-16", now)
    check_period("once", "once", now)
    with pytest.raises(ValueError, match="single period"):
        check_period("once", "2026-11-15", now)


def test_the_covariance_of_sums_of_shares() -> None:
    """The matrix of all cells by the formula, then weights on both sides."""
    shares, variance = np.asarray([0.5, 0.3, 0.2]), np.asarray([0.01, 0.02, 0.03])
    supports = Supports(-0.5, 2.0, 1, 2)
    cells = CellShares(40, shares, variance, -0.2, 0.15, supports)
    matrix = np.diag(variance)
    for i in range(3):
        for j in range(3):
            if i != j:
                f = shares[i] + shares[j]
                matrix[i, j] = (0.15 + (-0.2 - 0.15) * f - shares[i] * shares[j]) / 39
    first, second = np.asarray([[1.0, 0, 0], [1, 2, 3]]), np.asarray([[0.0, 1, 0], [3, -1, 0.5]])
    wanted = [one @ matrix @ two for one, two in zip(first, second, strict=True)]
    assert np.allclose(cells.covariance(first, second), wanted, rtol=1e-12)
    made = cells.linear(second, ("a", "b"))
    assert np.allclose(made.value, second @ shares)
    assert np.allclose(made.std_error**2, [two @ matrix @ two for two in second], rtol=1e-12)
    assert made.count.tolist() == [40, 40]
    alone = CellShares(1, shares, variance, -0.2, 0.15, supports)
    assert np.isinf(alone.covariance(first, second)).all()
    ratio = cells.ratio(first, np.ones((2, 3)), ("a", "b"))
    assert np.allclose(ratio.value, first @ shares)
    m = ratio.value[1]
    parts = [first[1] @ matrix @ first[1], first[1] @ matrix @ np.ones(3), np.ones(3) @ matrix @ np.ones(3)]
    assert ratio.std_error[1] == pytest.approx(math.sqrt(max(parts[0] - 2 * m * parts[1] + m**2 * parts[2], 0)))


@pytest.mark.parametrize(("least", "most"), [(1, 1), (2, 2), (0, 4), (0, 2), (1, 3)])
def test_what_a_report_says_of_weighted_cells(least: int, most: int) -> None:
    """The least and the largest over all sets of cells that a report may support, listed."""
    supports = Supports(-0.7, 2.5, least, most)
    for weights in ([1.0, 2, -1, 0.5], [-3.0, -1, -2, -1], [0.0, 0, 0, 1], [5.0, 1, 1, 1]):
        says = [
            -0.7 * sum(weights) + 2.5 * sum(weights[cell] for cell in own)
            for size in range(least, most + 1)
            for own in combinations(range(4), size)
        ]
        low, high = supports.ends(np.asarray(weights))
        assert (float(low), float(high)) == pytest.approx((min(says), max(says)))
    # kinds of cells, of which there are several, are the same as the cells themselves
    low, high = supports.ends(np.asarray([[2.0, -1.0]]), np.asarray([1, 3]))
    each = supports.ends(np.asarray([[2.0, -1, -1, -1]]))
    assert (low[0], high[0]) == pytest.approx((each[0][0], each[1][0]))


def test_shares_among_those_who_answered_are_ratios_of_sums() -> None:
    """Computed for all labels at once, beside the general formula with rows of weights."""
    mechanism = nz.GeneralizedRandomizedResponse(1.5, nz.Categorical(5))
    total = np.asarray([60, 25, 10, 30, 40])
    cells = CellShares.of(mechanism, np.stack([np.full(5, 165), total, total]))
    fast = cells.among(1, ("a", "b", "c", "d"))
    slow = cells.ratio(np.eye(4, 5), np.tile([1.0, 1, 1, 1, 0], (4, 1)), ("a", "b", "c", "d"))
    for name in ("value", "std_error", "spread", "count"):
        assert np.allclose(getattr(fast, name), getattr(slow, name), rtol=1e-10), name
    assert np.allclose(fast.interval(0.9), slow.interval(0.9), rtol=1e-6)


@pytest.mark.parametrize("level", [0.5, 0.95])
def test_fiellers_interval_solves_its_equation(level: float) -> None:
    """At its ends the numerator less m times the denominator is as many standard errors from zero as is allowed."""
    top, bottom, spread = 4.0, 2.0, (0.04, 0.01, 0.05)
    z = NORMAL.inv_cdf((1 + level) / 2)
    for m in fieller(top, bottom, spread, level):
        error = math.sqrt(spread[0] - 2 * m * spread[1] + m**2 * spread[2])
        assert abs(top - m * bottom) == pytest.approx(z * error, rel=1e-9)
    low, high = fieller(top, 0.1, spread, level)
    assert (float(low), float(high)) == (-np.inf, np.inf)
    made = RatioEstimate.of(np.asarray([top]), np.asarray([bottom]), np.asarray(spread)[:, None], np.ones(1, int), ("a",), 0.0, 2.1)  # noqa: E501  # fmt: skip
    ends = made.interval(level)
    assert ends[0][0] == pytest.approx(float(fieller(top, bottom, spread, level)[0]))
    assert ends[1][0] == 2.1
    for wrong in (0.0, 1.0):
        with pytest.raises(ValueError, match=r"level=.* in \(0, 1\)"):
            made.interval(wrong)
    with pytest.raises(ValueError, match="no other interval"):
        made.interval(level, method="exact")
    nothing = RatioEstimate.of(np.zeros(1), np.zeros(1), np.ones((3, 1)), np.ones(1, int), ("a",), 0.0, 1.0)
    assert np.isnan(nothing.value[0])
    assert np.isinf(nothing.std_error[0])


def test_what_is_not_known_has_the_whole_range() -> None:
    made = BoundedEstimate(
        np.asarray([0.5, np.nan, 0.99]), np.asarray([0.1, 0.1, 0.1]), np.ones(3, int), low=0.0, high=1.0
    )
    low, high = made.interval(0.95)
    assert (low[1], high[1]) == (0.0, 1.0)
    assert low[0] == pytest.approx(0.5 - 1.959964 * 0.1, rel=1e-6)
    assert high[0] == pytest.approx(0.5 + 1.959964 * 0.1, rel=1e-6)
    assert high[2] == 1.0
    unknown = BoundedEstimate(np.asarray([0.5]), np.asarray([np.inf]), np.ones(1, int), low=0.0, high=1.0)
    assert [end[0] for end in unknown.interval(0.95)] == [0.0, 1.0]


def test_p_values_are_adjusted_step_by_step() -> None:
    """Holm: the k-th smallest of n times n - k + 1, never falling; Benjamini and Hochberg: times n / k, from above."""
    chances = np.asarray([0.04, np.nan, 0.001, 0.03, 0.5, 0.02])
    assert np.allclose(holm(chances), [0.09, np.nan, 0.005, 0.09, 0.5, 0.08], equal_nan=True)
    assert np.allclose(benjamini_hochberg(chances), [0.05, np.nan, 0.005, 0.05, 0.5, 0.05], equal_nan=True)
    assert holm(np.asarray([0.7, 0.9])).tolist() == [1.0, 1.0]
    assert benjamini_hochberg(np.asarray([0.7, 0.9])).tolist() == [0.9, 0.9]
    for adjust in (holm, benjamini_hochberg):
        assert np.isnan(adjust(np.asarray([np.nan]))).all()


def test_the_radius_of_a_difference_of_quantiles() -> None:
    """P(chi^2_1 > x) + P(chi^2_2 > x) / 2 at radius sqrt(x)."""
    for radius in (0.5, 2.0, 4.0):
        assert _beyond_radius(radius) == pytest.approx(2 * NORMAL.cdf(-radius) + math.exp(-(radius**2) / 2) / 2)
    for alpha in (0.4, 0.05, 1e-6):
        assert _beyond_radius(_radius(alpha)) == pytest.approx(alpha, rel=1e-9)
        assert _beyond_radius(_radius(alpha)) <= alpha


def test_looks_spend_what_lan_and_demets_allow() -> None:
    for share in (0.1, 0.5, 1.0):
        z = NORMAL.inv_cdf(1 - 0.05 / 4)
        assert spent(share, 0.05) == pytest.approx(4 * NORMAL.cdf(-z / math.sqrt(share)), rel=1e-9)
    assert boundaries((1.0,), 0.05)[0] == pytest.approx(NORMAL.inv_cdf(0.975), rel=1e-6)
    first, last = boundaries((0.5, 1.0), 0.05)
    assert 2 * NORMAL.cdf(-first) == pytest.approx(spent(0.5, 0.05), rel=1e-6)
    # O'Brien and Fleming's shape for two looks, tabulated: 2.963 and 1.969 (Lan, DeMets 1983)
    assert (first, last) == pytest.approx((2.963, 1.969), abs=2e-3)
    rng = np.random.default_rng(1)
    steps = rng.normal(size=(400_000, 2)) * math.sqrt(0.5)
    half, whole = np.abs(steps[:, 0]) / math.sqrt(0.5), np.abs(steps.sum(axis=1))
    alarms = float(((half > first) | (whole > last)).mean())
    assert abs(alarms - 0.05) < 5 * math.sqrt(0.05 * 0.95 / 400_000)
    scores = np.asarray([last, 3.0])
    found = repeated_p_value(scores, (0.5, 1.0))
    assert found[0] == pytest.approx(0.05, rel=0.02)
    assert found[1] < 0.05


@pytest.mark.parametrize("wrong", [[], [0.0, 0.5], [0.5, 0.5], [0.5, 0.4], [-0.1], [0.5, 1.1]])
def test_looks_that_are_none(wrong: list[float]) -> None:
    assert _looks([0.25, 1.0]) == (0.25, 1.0)
    with pytest.raises(ValueError, match="Expected looks"):
        _looks(wrong)


def test_groups_that_nobody_is_in_may_have_no_share() -> None:
    """Scaled to margins one after the other: an empty group whose share is zero stays empty, any other is refused."""
    counts = np.asarray([[10.0, 20.0], [0.0, 0.0], [30.0, 40.0]])
    found = raked(counts, [(0, np.asarray([0.25, 0.0, 0.75])), (1, np.asarray([0.5, 0.5]))])
    assert found.sum(axis=1) == pytest.approx([0.25, 0.0, 0.75])
    assert found.sum(axis=0) == pytest.approx([0.5, 0.5])
    # otherwise as the counts are: the odds between cells stay
    assert found[0, 0] * found[2, 1] / (found[0, 1] * found[2, 0]) == pytest.approx(10 * 40 / (20 * 30))
    with pytest.raises(ValueError, match="somebody in every group"):
        raked(counts, [(0, np.asarray([0.25, 0.1, 0.65]))])


@pytest.mark.parametrize("chance", [0.0, 0.1, 0.2, 0.5, 0.7, 1.0])
def test_the_first_end_below_which_there_are_enough(chance: float) -> None:
    """Against a walk through all ends, from none to one behind the last; an end nobody can tell about is not enough."""
    shares = [0.1, 0.2, 0.2, 0.5, 0.7]
    for known in (shares, [None, None, *shares[2:]], [0.9] * 5):
        bounds = _Bounds(np.zeros((1, 5)), np.ones((1, 5)), np.zeros(1), np.ones(1))
        wanted = next((n for n, one in enumerate(known) if one is not None and one >= chance - 1e-9), 5)
        assert bounds.first(lambda place, known=known: known[place], chance) == wanted  # type: ignore[misc]


def test_a_graded_mechanism_has_two_points_a_level_at_least(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of many levels, that is; of few it has as many points as are solved within a second."""
    seen: list[Any] = []

    def build(name: str, domain: Any, **given: Any) -> Any:
        seen.append(given.get("points"))
        raise ValueError("Enough seen.")

    monkeypatch.setattr(choosing, "build", build)
    for many, points in ((3, 16), (8, 16), (9, 18), (20, 40)):
        levels = tuple((place, place + 1, 1.0) for place in range(many))
        with pytest.raises(ValueError, match="Enough seen"):
            choosing._graded(nz.Graded("l", levels), Allowance(2.0, 0.0, 100), "optimal-graded")
        assert seen[-1] == points


def test_texts_say_how_they_were_found() -> None:
    chosen: dict[str, Any] = {"reports": 70, "threshold": 0.2, "chosen": None}
    for change, words in (
        ({"reports": 0, "threshold": 9.0}, "No reports yet"),
        ({"threshold": 1.001}, "70 reports are too few"),
        ({"threshold": 1.0, "chosen": np.ones(2)}, "All people choose and measure"),
        ({"threshold": 1.0}, "measured by 30 people who had no part in the choice"),
        ({}, "was below 20.00% are not shown"),
    ):
        ends = np.asarray([0.1, -0.1, 0.2, 0.05]), np.asarray([0.3, 0.2, 0.5, 0.2])
        found: Any = SimpleNamespace(
            texts=["a", "b", "c", "d"],
            share=np.asarray([0.2, 0.1, 0.4, 0.1]),
            std_error=np.asarray([0.01, 0.02, 0.03, 0.04]),
            shown=np.asarray([True, True, True, False]),
            interval=lambda level, ends=ends: ends,
            asked=9,
            users=30,
            **(chosen | change),
        )
        table = top_texts(found, 0.9)
        assert table["text"].tolist() == ["c", "a"]
        assert table["std_error"].tolist() == [0.03, 0.01]
        assert words in table.attrs["note"]
        assert table.attrs["reports"] == 30


def test_a_group_of_one_person_is_planned_for_as_one() -> None:
    survey = nz.Survey([nz.Number("x", 0, 2)], epsilon=1.0, groups={"g": ["s", "t"]})
    rows = {row.group: row.std_error for row in survey.plan(6, shares={"g": {"s": 0.8, "t": 0.2}}).rows}
    assert rows["g=t"] == survey.predict(1)[0]
    assert rows["g=s"] == survey.predict(5)[0]
    none = survey.plan(6, shares={"g": {"s": 0.9, "t": 0.1}}).rows
    assert next(row.std_error for row in none if row.group == "g=t") == math.inf


def test_choices_are_asked_together_with_a_choice_in_either_order() -> None:
    asked = [nz.Choices("m", ["u", "v", "w"], most=2), nz.Choice("c", ["a", "b"])]
    (found,), (turned,) = (
        [item for section in nz.Survey(asked, epsilon=2.0, joint=[pair]).sections for item in section.items]
        for pair in (("m", "c"), ("c", "m"))
    )
    assert found.domain == turned.domain
    cells = [one.estimated for one in (found, turned) for one in one.questions if one.name in ("m × c", "c × m")]
    assert list(cells[0]) == [f"{m}, {c}" for m in "uvw" for c in "ab"]
    assert list(cells[1]) == [f"{c}, {m}" for c in "ab" for m in "uvw"]


def test_numbers_among_which_some_are_missing_may_be_labels() -> None:
    """As pandas holds whole numbers where one is missing."""
    import pandas as pd
    import pyarrow as pa

    survey = nz.Survey([nz.Choice("c", ["1", "2"], optional=True)], epsilon=1.0)
    data = pd.DataFrame({"c": [1.0, np.nan, 2.0]})
    known = pd.DataFrame({"c": ["1", None, "2"]})
    table = pa.table({"c": pa.array([1.0, None, 2.0])})
    wanted = survey.privatize(known, rng=1).rows.tobytes()
    assert [survey.privatize(one, rng=1).rows.tobytes() for one in (data, table)] == [wanted] * 2


def test_labels_differ_by_the_least_likely_gap_and_the_longest_arm() -> None:
    """Three labels by hand: the error of a gap is its own, or that of both arms where this is more or all there is."""
    gap = np.asarray([[0.0, 3.0, 1.0], [-3.0, 0.0, -2.0], [-1.0, 2.0, 0.0]])
    value = np.asarray([5.0, 2.0, 4.0])
    low, high = value - np.asarray([1.0, 0.2, 0.3]), value + np.asarray([0.5, 0.4, 0.6])
    error = np.asarray([[0.0, 9.0, 0.01], [9.0, 0.0, math.nan], [0.01, math.nan, 0.0]])
    item: Any = SimpleNamespace(name="i", differences=lambda *given: (gap, error))
    found = SimpleNamespace(interval=lambda level: (low, high), value=value)
    whole: Any = SimpleNamespace(users=9, piece=lambda one: (), by_question=lambda: {"i": found})
    own = np.asarray([1.0, 0.4, 0.6]) / NORMAL.inv_cdf(0.975)
    ratios = [3.0 / 9.0, 1.0 / math.hypot(own[0], own[2]), 2.0 / math.hypot(own[1], own[2])]
    least = min(2 * NORMAL.cdf(-one) for one in ratios)
    told = estimates._pairs_differ(item, whole)
    assert told["p_value"] == pytest.approx(least, rel=1e-9)
    assert told["adjusted"] == pytest.approx(min(1.0, 3 * least), rel=1e-9)
    nobody: Any = SimpleNamespace(users=0)
    assert estimates._pairs_differ(item, nobody) == {"p_value": None, "adjusted": None}


def test_a_survey_is_written_in_its_own_letters(tmp_path: Path) -> None:
    """Whoever opens the file reads them as they were asked."""
    survey = nz.Survey([nz.Choice("région", ["Île", "北"])], epsilon=1.0)
    survey.save(tmp_path / "survey.yaml")
    text = (tmp_path / "survey.yaml").read_text(encoding="utf-8")
    assert all(word in text for word in ("région", "Île", "北"))
    assert nz.Survey.read(tmp_path / "survey.yaml").terms() == survey.terms()
