"""Parts of the pages by hand, without a browser: the plan in words, what the audit found, and what is left out."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from tests.collector.helpers import COMMUTE, until

from noisette.collector.storage.tracks import QUANTITIES
from noisette.collector.web import pages
from noisette.collector.web.pages import Watched, _budget, _listed, shortened
from noisette.collector.web.planpage import plan_page
from noisette.survey.campaigns import Campaign
from noisette.survey.periods import period_at

ONE: dict[str, Any] = {
    "id": "one",
    "title": "One question",
    "epsilon": 1.0,
    "users": 500,
    "mechanism": "duchi",
    "attributes": [{"name": "hours", "range": [0, 8]}],
}


def asked(**terms: Any) -> Campaign:
    return Campaign.from_dict(ONE | terms)


@pytest.mark.parametrize(
    ("terms", "words"),
    [
        ({"period": "once"}, "Each answers once, at"),
        ({"period": "day"}, "Each answers every day, the same report in every period, at"),
        ({"period": "week", "answers": "fresh"}, "Each answers every week, a fresh report in every period, at"),
    ],
)
def test_the_plan_says_how_often_a_user_answers(terms: dict[str, Any], words: str) -> None:
    page = plan_page(asked(**terms))
    assert f"500 users are hoped for. {words} " in page
    assert "Mechanism: duchi." in page


def test_a_long_plan_is_cut_and_says_so() -> None:
    labels = [f"n{place}" for place in range(61)]
    page = plan_page(asked(mechanism="grr", attributes=[{"name": "by", "categories": labels}], users=50))
    assert "The first 60 of 61 quantities." in page
    assert "by=n59<" in page
    assert "by=n60<" not in page
    page = plan_page(asked(mechanism="grr", attributes=[{"name": "by", "categories": labels[:60]}], users=50))
    assert "by=n59<" in page
    assert "The first 60" not in page
    counts = re.findall(r'<tr><th scope="row">([\d,]+)</th>', page)
    assert counts == ["1", "5", "50", "500", "5,000"]  # a hundredth to a hundred times as many, and nobody below one


def test_rivals_are_shown_in_the_questions_own_unit() -> None:
    """Errors on 0 to 8 are eight times those on 0 to 1; several questions have no rivals."""

    def errors(page: str) -> dict[str, float]:
        rows = page.partition("What other mechanisms would tell")[2]
        found = re.findall(r'<th scope="row">([a-z-]+)</th><td>± ([\d.]+)</td>', rows)
        return {name: float(error) for name, error in found}

    wide = errors(plan_page(asked()))
    narrow = errors(plan_page(asked(attributes=[{"name": "hours", "range": [0, 1]}])))
    assert {"duchi", "laplace"} <= set(wide)
    for name, error in wide.items():
        assert error == pytest.approx(8 * narrow[name], rel=0.2)
    two = asked(attributes=[*ONE["attributes"], {"name": "more", "range": [0, 1]}])
    assert not errors(plan_page(two))


def test_the_audit_beside_the_dashboard_is_of_the_law(monkeypatch: pytest.MonkeyPatch) -> None:
    campaign = asked()
    found = {"dimensions": [{"name": campaign.quantities[0]}]}
    watched = Watched(campaign)
    beside = watched.beside(found)
    assert beside["terms"] == campaign.terms()
    users = [row["users"] for row in beside["plan"]]
    assert (users[0], users[-1], len(users)) == (10, 4 * 500, 9)
    for row in beside["plan"]:
        assert row["std_errors"].tolist() == campaign.predict(row["users"]).tolist()
    until(lambda: watched.beside(found)["audit"]["verdict"] != "computing")
    audit = watched.beside(found)["audit"]
    assert (audit["verdict"], audit["promised"], audit["delta"]) == ("holds", 1.0, 0.0)
    assert audit["exact"] == pytest.approx(1.0, rel=1e-9)
    for exact, verdict in ((1 + 5e-10, "holds"), (1 + 2e-9, "violated"), (7.0, "violated"), (0.5, "holds")):
        monkeypatch.setattr(pages, "exact_epsilon", lambda *_, exact=exact, **__: exact)
        watched._examine()
        assert watched._audit is not None
        assert (watched._audit["verdict"], watched._audit["exact"]) == (verdict, exact)

    def fails(*_: Any, **__: Any) -> float:
        raise RuntimeError("no sum")

    monkeypatch.setattr(pages, "exact_epsilon", fails)
    watched._examine()
    assert (watched._audit["verdict"], watched._audit["reason"]) == ("unknown", "RuntimeError: no sum")


@pytest.mark.parametrize(("answers", "spent"), [("fresh", [0.0, 1.0, 3.0]), ("permanent", [0.0, 1.0, 1.0])])
def test_what_a_faithful_user_has_spent(answers: str, spent: list[float]) -> None:
    campaign = asked(period="day", answers=answers)
    for periods, each in zip((0, 1, 3), spent, strict=True):
        told = _budget(campaign, {"periods": ["2026-11-18"] * periods})
        assert told == {"each": 1.0, "periods": periods, "spent": each, "answers": answers}


def test_the_list_counts_this_period_and_all() -> None:
    campaign = asked(period="day")
    now = period_at("day")
    told = _listed(campaign, {now: 3, "2001-01-01": 4})
    assert (told["id"], told["users"], told["reports"], told["target_users"]) == ("one", 3, 7, 500)
    assert _listed(campaign, {})["users"] == 0


def test_a_dashboard_shows_the_first_quantities_of_each_attribute() -> None:
    sizes = [QUANTITIES + 3, 2, QUANTITIES]
    firsts = np.cumsum([0, *sizes])[:-1].tolist()
    rows = [{"name": str(place)} for place in range(sum(sizes))]
    groups = [{"values": [{"dimensions": rows[:1] + rows[-1:]}, {"dimensions": rows[QUANTITIES:]}]}]
    found = shortened(
        {
            "attributes": [{"first": first, "size": size} for first, size in zip(firsts, sizes, strict=True)],
            "dimensions": rows,
            "drift": {"quantities": list(range(sum(sizes)))},
            "groups": groups,
        }
    )
    kept = [*range(QUANTITIES), *range(QUANTITIES + 3, sum(sizes))]
    assert [int(row["name"]) for row in found["dimensions"]] == kept == found["drift"]["quantities"]
    assert [(one["first"], one["size"], one["left_out"]) for one in found["attributes"]] == [
        (0, QUANTITIES, 3),
        (QUANTITIES, 2, 0),
        (QUANTITIES + 2, QUANTITIES, 0),
    ]
    first, second = found["groups"][0]["values"]
    assert [row["name"] for row in first["dimensions"]] == ["0", str(sum(sizes) - 1)]
    assert [int(row["name"]) for row in second["dimensions"]] == kept[QUANTITIES:]


def test_the_campaign_of_other_tests_has_a_plan() -> None:
    page = plan_page(Campaign.from_dict(COMMUTE))
    assert page.startswith("<!doctype html>")
    assert "What other mechanisms would tell" not in page
