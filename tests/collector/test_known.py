"""What is known so far: sentences, states and users still needed, against figures worked out by hand."""

from __future__ import annotations

from typing import Any

import pytest

from noisette.collector.results.known import _texts, known_so_far
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
    told = _texts(campaign, campaign.survey.told[0], users, rows)
    assert (told["question"], told["state"], told["needed"]) == ("site", state, needed)
    assert ("no text is frequent enough yet" in told["sentence"]) == (not found)
