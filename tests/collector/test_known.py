"""What is known so far: sentences, states and users still needed, against figures worked out by hand."""

from __future__ import annotations

from typing import Any

import pytest

from noisette.collector.results.known import known_so_far
from noisette.survey.campaigns import Campaign

CAMPAIGN = Campaign.from_dict(
    {
        "id": "commute",
        "epsilon": 2.0,
        "users": 10_000,
        "attributes": [{"name": "age", "range": [16, 80]}, {"name": "by", "categories": ["car", "bike"]}],
        "mechanism": {"age": "duchi", "by": "grr"},
        "form": {"questions": {"by": {"ask": "How do you come?"}, "age": {"unit": "years"}}},
    }
)


def known(users: int, age: tuple[float, float], car: tuple[float, float]) -> list[dict[str, Any]]:
    """Return what is known where the values and standard errors are these."""
    rows = [("age", *age), ("by=car", *car), ("by=bike", 1 - car[0], car[1])]
    dimensions = [{"name": name, "value": value, "std_error": error} for name, value, error in rows]
    return known_so_far(CAMPAIGN, {"users": users, "dimensions": dimensions})


def test_sentences_have_half_widths_of_95_percent() -> None:
    age, by = known(2500, (40.0, 1.0), (0.496, 0.0163))
    assert age["sentence"] == "age: 40.0 ± 2.0 years on average."
    assert by["sentence"] == "How do you come? 50.4 % ± 3.2 bike, 49.6 % ± 3.2 car."


def test_a_mean_outside_its_range_is_moved_to_the_end_and_early() -> None:
    age, _ = known(10, (117.8, 20.0), (0.5, 0.4))
    assert age["sentence"] == "age: 80 ± 39 years on average."
    assert age["state"] == "too early"


def test_users_needed_follow_the_square_of_the_error() -> None:
    planned = CAMPAIGN.predict(10_000)
    age, by = known(2500, (40.0, 1.5 * planned[0]), (0.5, 0.9 * planned[1]))
    assert (age["state"], by["state"]) == ("usable", "done")
    assert age["needed"] == pytest.approx(2500 * (1.5**2 - 1), abs=1)
    assert by["needed"] == 0
    age, _ = known(2500, (40.0, 3 * planned[0]), (0.5, planned[1]))
    assert age["needed"] == 7500  # the target is enough in any case
    age, _ = known(10_000, (40.0, 1.2 * planned[0]), (0.5, planned[1]))
    assert (age["state"], age["needed"]) == ("done", 0)


def test_nothing_is_said_without_reports() -> None:
    found = known_so_far(CAMPAIGN, {"users": 0, "dimensions": []})
    assert [one["state"] for one in found] == ["too early"] * 2
    assert {one["needed"] for one in found} == {10_000}
    age, _ = known(12_000, (40.0, float("inf")), (0.5, 0.01))  # past the target, and nobody answered this question
    assert (age["state"], age["needed"]) == ("too early", 0)


@pytest.mark.parametrize(
    ("users", "found", "state", "needed"),
    [
        (9_000, 0, "too early", 1000),
        (20_000, 0, "too early", 0),
        (9_999, 2, "usable", 1),
        (10_000, 2, "done", 0),
        (20_000, 2, "done", 0),
    ],
)
def test_texts_are_usable_once_one_is_found_and_done_at_the_target(
    users: int, found: int, state: str, needed: int
) -> None:
    campaign = Campaign.from_dict(
        {"id": "sites", "epsilon": 2.0, "users": 10_000, "attributes": [{"name": "site", "text": 4}]}
    )
    rows = [{"text": f"a{place}", "share": 0.25, "std_error": 0.01} for place in range(found)]
    dimensions = [{"name": name, "value": 0.1, "std_error": 0.01} for name in campaign.quantities]
    (told,) = known_so_far(campaign, {"users": users, "dimensions": dimensions}, {"site": {"rows": rows}})
    assert (told["question"], told["state"], told["needed"]) == ("site", state, needed)
    assert ("no text is frequent enough yet" in told["sentence"]) == (not found)


def test_the_error_that_the_owner_wants_is_what_counts() -> None:
    def state(half: float, wanted: float | None) -> tuple[str, int]:
        rows = [("age", 40.0, half / 1.96), ("by=car", 0.5, 0.001), ("by=bike", 0.5, 0.001)]
        dimensions = [{"name": name, "value": value, "std_error": error} for name, value, error in rows]
        age, _ = known_so_far(CAMPAIGN, {"users": 20_000, "dimensions": dimensions}, wanted=wanted)
        return age["state"], age["needed"]

    assert state(3.2, 5.0) == ("done", 0)  # 5 % of 64 years
    assert state(6.4, None) == ("done", 0)  # the target is reached, and nothing else was wanted
    assert state(6.4, 5.0)[0] == "usable"
    assert state(6.4, 5.0)[1] == pytest.approx(60_000, abs=20)  # half of the error takes four times the users
    assert state(24.0, 50.0)[0] == "too early"  # a guess in the middle is hardly worse
    assert state(24.0, None)[0] == "too early"
    assert state(24.0, None)[1] > 0  # whatever is too early needs more users, beyond the target too
    empty = known_so_far(CAMPAIGN, {"users": 0, "dimensions": []}, wanted=0.1)
    assert all(one["needed"] > 100_000 for one in empty)


EVERY_KIND = Campaign.from_dict(
    {
        "id": "kinds",
        "epsilon": 4.0,
        "users": 1000,
        "questions": [
            {"name": "born", "range": ["1950-01-01", "2010-12-31"]},
            {"name": "up", "range": ["03:00", "12:00"]},
            {"name": "pay", "range": [1000, 9000], "want": "quantiles"},
            {"name": "spread", "range": [0, 10], "want": "variance"},
            {"name": "smoke", "categories": ["yes", "no"], "optional": True},
            {"name": "carry", "options": ["phone", "watch"]},
            {"name": "a", "range": [0, 10]},
            {"name": "b", "range": [0, 10]},
            {"name": "way", "categories": ["car", "bus"]},
            {"name": "minutes", "range": [0, 60]},
        ],
        "joint": [["a", "b"], ["way", "minutes"]],
        "form": {
            "questions": {
                "born": {"ask": "When were you born?"},
                "pay": {"ask": "What do you earn?", "unit": "€"},
                "smoke": {"ask": "Do you smoke?"},
                "carry": {"ask": "What do you carry?"},
                "minutes": {"unit": "minutes"},
            }
        },
    }
)


def test_every_kind_of_answer_is_told_in_the_words_and_units_of_its_form() -> None:
    """Dates were once days since 1970, times seconds, and what follows from a question had the name of a column."""
    values = {
        "born": (2814.0, 10.0),
        "up": (26_201.0, 60.0),
        "pay: median": (3630.0, 100.0),
        "pay: quantile 0.25": (3000.0, 100.0),
        "pay: quantile 0.75": (4000.0, 100.0),
        "smoke answered": (0.85, 0.01),
        "carry chosen": (1.48, 0.05),
        "a × b: correlation": (0.5, 0.1),
        "a × b: covariance": (4.0, 0.1),
        "way × minutes: mean where way=car": (30.0, 1.0),
    }
    dimensions = []
    for name in EVERY_KIND.quantities:
        value, error = values.get(name, (0.5, 0.01))
        dimensions.append({"name": name, "value": value, "std_error": error})
    found = known_so_far(EVERY_KIND, {"users": 1000, "dimensions": dimensions})
    told = [one["sentence"] for one in found]
    assert "When were you born? 1977-09-15 ± 20 days on average." in told
    assert "up: 07:17 ± 2.0 min on average." in told
    assert (
        "What do you earn? half are below 3,630 ± 196 €, a quarter below 3,000 ± 196 €, "
        "three quarters below 4,000 ± 196 €."
    ) in told
    assert "Do you smoke? 85.0 % ± 2.0 answered." in told
    assert "What do you carry? 1.480 ± 0.098 of them on average." in told
    assert "a × b: 0.50 ± 0.20 correlation, 4.00 ± 0.20 covariance." in told  # a covariance is not cut at 1
    assert any("30.0 ± 2.0 minutes on average for car" in one for one in told)


def test_an_interval_that_is_not_symmetric_has_the_half_width_that_the_dashboard_shows() -> None:
    rows = [("age", 40.0, 9.0, 38.0, 44.0), ("by=car", 0.5, 0.01, None, None), ("by=bike", 0.5, 0.01, None, None)]
    names = ("name", "value", "std_error", "low", "high")
    dimensions = [dict(zip(names, row, strict=True)) for row in rows]
    age, _ = known_so_far(CAMPAIGN, {"users": 10_000, "dimensions": dimensions})
    assert age["sentence"] == "age: 40.0 ± 3.0 years on average."
