"""States, users still needed and figures of what is known so far, worked out by another way at each of their ends."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from noisette.collector.results import known as module
from noisette.collector.results.known import _error, _figure, _percent, _rounded, _sentence, known_so_far, time_of
from noisette.survey.campaigns import Campaign

Z = 1.959963984540054
TARGET = 4000
CAMPAIGN = Campaign.from_dict(
    {
        "id": "a",
        "epsilon": 3.0,
        "users": TARGET,
        "attributes": [{"name": "age", "range": [10, 50]}, {"name": "by", "categories": list("abcde")}],
        "mechanism": {"age": "duchi", "by": "grr"},
    }
)
AGE, *BY = (Z * CAMPAIGN.predict(TARGET)).tolist()  # half-widths at the target
SIGNALS = {"age": 20.0, "by": float(CAMPAIGN.survey.topics[1].signals[0])}
SPANS = {"age": 40.0, "by": 1.0}


def found(users: int, half: float, shares: list[float]) -> dict[str, Any]:
    rows = [("age", 30.0, half), *((f"by={label}", 0.2, one) for label, one in zip("abcde", shares, strict=True))]
    return {"users": users, "dimensions": [{"name": n, "value": v, "std_error": one / Z} for n, v, one in rows]}


def by_hand(users: int, halves: list[float], aims: list[float], signal: float, wanted: bool) -> tuple[str, int]:
    """Work out the state and how many more users it takes, from half-widths and those that are aimed at."""
    worst = max(half / aim for half, aim in zip(halves, aims, strict=True))
    vague = max(half / (signal / 2) for half in halves)
    enough = worst <= 1 or (not wanted and users >= TARGET)
    if vague <= 1 and enough:
        return "done", 0
    state = "usable"
    if vague > 1:
        state, worst = "too early", vague if enough else max(vague, worst)
    needed = math.ceil(users * worst**2 - users)
    if not wanted and users < TARGET:
        needed = min(needed, TARGET - users)
    return state, max(needed, 1)


CASES = [
    (users, times, apart)
    for users in (1, 300, 3999, 4000, 4001, 9000)
    for times in (0.5, 0.999, 1.0, 1.001, 1.4, 3.0, 60.0)
    for apart in (0.3, 1.0, 1.7)
]


@pytest.mark.parametrize("wanted", [None, 0.4, 3.0, 80.0])
def test_states_and_users_needed(wanted: float | None) -> None:
    seen = set()
    for users, times, apart in CASES:
        shares = [times * one for one in BY]
        shares[3] *= apart  # one label is known better or worse than the others
        told = known_so_far(CAMPAIGN, found(users, times * AGE, shares), wanted=wanted)
        for one, halves, planned in zip(told, ([times * AGE], shares), ([AGE], BY), strict=True):
            name = one["question"]
            aims = planned if wanted is None else [SPANS[name] * wanted / 100] * len(planned)
            state, needed = by_hand(users, halves, aims, SIGNALS[name], wanted is not None)
            assert one["state"] == state
            assert one["needed"] == pytest.approx(needed, abs=1)  # a rounding may move a ceiling
            seen.add(state)
    assert len(seen) >= 2


def test_a_question_that_is_vague_is_early_however_many_have_come() -> None:
    """A half-width of half the signal is the end of it; ratios count together where neither is enough."""
    half = SIGNALS["age"] / 2
    for width, state in ((half * (1 - 1e-9), "done"), (half * (1 + 1e-9), "too early")):
        age, _ = known_so_far(CAMPAIGN, found(TARGET, width, BY))
        assert age["state"] == state
    age, _ = known_so_far(CAMPAIGN, found(TARGET, 3 * half, BY))
    assert age["needed"] == pytest.approx(TARGET * 8, abs=1)
    age, _ = known_so_far(CAMPAIGN, found(100, 3 * half, BY), wanted=12.5)  # 5 of 40: six times too wide
    assert age["needed"] == pytest.approx(100 * 35, abs=1)
    age, _ = known_so_far(CAMPAIGN, found(100, 3 * half, BY), wanted=100.0)  # enough for that, and vague
    assert (age["state"], age["needed"]) == ("too early", pytest.approx(800, abs=1))


def test_users_needed_before_anybody_has_come() -> None:
    nothing: dict[str, Any] = {"users": 0, "dimensions": []}
    for wanted in (0.7, 2.0, 50.0):
        age, by = known_so_far(CAMPAIGN, nothing, wanted=wanted)
        assert age["needed"] == math.ceil(TARGET * (AGE / (40 * wanted / 100)) ** 2)
        assert by["needed"] == math.ceil(TARGET * max(one / (wanted / 100) for one in BY) ** 2)
    some = {"users": 150, "dimensions": []}
    age, _ = known_so_far(CAMPAIGN, some, wanted=2.0)
    assert age["needed"] == math.ceil(TARGET * (AGE / 0.8) ** 2) - 150
    assert known_so_far(CAMPAIGN, {"users": 10**9, "dimensions": []}, wanted=2.0)[0]["needed"] == 0
    assert known_so_far(CAMPAIGN, some)[0]["needed"] == TARGET - 150
    assert known_so_far(CAMPAIGN, {"users": 5000, "dimensions": []})[0]["needed"] == 0


def test_when_is_asked_only_where_users_are_needed() -> None:
    asked = list[int]()

    def when(needed: int) -> str:
        asked.append(needed)
        return f"in {needed}"

    told = known_so_far(CAMPAIGN, found(1000, AGE / 2, [2 * one for one in BY]), when=when)
    assert [(one["needed"], one["when"]) for one in told] == [(0, ""), (3000, "in 3000")]
    assert asked == [3000]
    assert known_so_far(CAMPAIGN, found(1000, AGE, [2 * one for one in BY]))[1]["when"] == ""


def test_the_error_of_a_row_is_half_of_its_interval() -> None:
    assert _error({"low": 1.0, "high": 4.0, "std_error": 9.0}) == pytest.approx(1.5 / Z)
    for ends in ({"low": None, "high": 4.0}, {"low": 1.0, "high": math.inf}, {"low": -math.inf, "high": 4.0}, {}):
        assert _error({"std_error": 9.0} | ends) == 9.0


@pytest.mark.parametrize(
    ("value", "error", "text"),
    [
        (1234.5678, 0.0, "1,235"),
        (1234.5678, 100.0, "1,235"),
        (1234.5678, 10.0, "1,235"),
        (1234.5678, 9.9, "1,234.6"),
        (1234.5678, 1.0, "1,234.6"),
        (1234.5678, 0.99, "1,234.57"),
        (0.5, 1e-12, "0.500000000"),
        (0.25, 1.0, "0.3"),
        (2.5, 20.0, "3"),
        (-2.5, 20.0, "-3"),
    ],
)
def test_numbers_have_two_digits_of_their_error(value: float, error: float, text: str) -> None:
    assert _rounded(value, error) == text


def test_shares_outside_of_their_range_are_moved_to_its_end() -> None:
    told = [_percent({"value": value, "std_error": 0.02}) for value in (-0.2, 0.1, 0.9, 1.3)]
    assert told == ["0.0 % ± 3.9", "10.0 % ± 3.9", "90.0 % ± 3.9", "100.0 % ± 3.9"]


def test_times_of_day() -> None:
    assert [time_of(seconds) for seconds in (0, 29.9, 30.1, 3569.0, 3571.0, 86399.0)] == [
        *("00:00", "00:00", "00:01", "00:59", "01:00", "24:00")
    ]


def test_three_labels_are_named_and_the_others_counted() -> None:
    question = CAMPAIGN.survey.topics[1]
    rows = [{"value": value, "std_error": 0.05} for value in (0.1, 0.4, 0.2, 0.25, 0.05)]
    said = "by: 40.0 % ± 9.8 b, 25.0 % ± 9.8 d, 20.0 % ± 9.8 c"
    assert _sentence(CAMPAIGN, question, rows) == f"{said}, and 2 more."
    three = SimpleNamespace(name="by", tells="shares", kind="category", estimated=("a", "b", "c"))
    told = _sentence(CAMPAIGN, three, rows[1:4])  # type: ignore[arg-type]  # what it looks at
    assert told == "by: 40.0 % ± 9.8 a, 25.0 % ± 9.8 c, 20.0 % ± 9.8 b."
    texts = [{"text": f"t{place}", "share": 0.1, "std_error": 0.01} for place in range(5)]
    for count, more in ((3, ""), (4, ", and 1 more"), (5, ", and 2 more")):
        told = module._texts(CAMPAIGN, question, texts[:count])
        assert told == f"by: 10.0 % ± 2.0 't0', 10.0 % ± 2.0 't1', 10.0 % ± 2.0 't2'{more}."
    assert module._texts(CAMPAIGN, question, []) == "by: no text is frequent enough yet."


def test_figures_of_dates_times_and_what_has_no_range() -> None:
    survey = Campaign.from_dict(
        {
            "id": "b",
            "epsilon": 3.0,
            "users": 100,
            "questions": [
                {"name": "born", "range": ["1950-01-01", "2009-12-31"]},
                {"name": "rises", "range": ["05:00", "10:00"]},
                {"name": "size", "range": [100, 200]},
            ],
            "form": {"questions": {"size": {"unit": "cm"}}},
        }
    )
    born, rises, size = survey.survey.topics[:3]
    error = 10 / Z
    assert _figure(survey, born, "mean", {"value": 2814.4, "std_error": error}) == "1977-09-15 ± 10.0 days"
    assert _figure(survey, born, "mean", {"value": -1e9, "std_error": error}) == "1950-01-01 ± 10.0 days"
    assert _figure(survey, rises, "mean", {"value": 26201.0, "std_error": 60 * error}) == "07:17 ± 10.0 min"
    assert _figure(survey, rises, "mean", {"value": 1e9, "std_error": 60 * error}) == "10:00 ± 10.0 min"
    assert _figure(survey, size, "mean", {"value": 90.0, "std_error": error}) == "100.0 ± 10.0 cm"
    assert _figure(survey, size, "mean", {"value": 222.0, "std_error": error}) == "200.0 ± 10.0 cm"
    assert _figure(survey, size, "variance", {"value": 900.0, "std_error": error}) == "900.0 ± 10.0"
    assert _figure(survey, size, "variance", {"value": -9.0, "std_error": error}) == "0.0 ± 10.0"
    assert _figure(survey, size, "covariance", {"value": -9.0, "std_error": error}) == "-9.0 ± 10.0"
    assert np.isclose(Z, module.HALF_WIDTH_95)
