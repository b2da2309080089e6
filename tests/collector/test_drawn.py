"""What is drawn for a user follows from her token: her device draws it, and the collector draws it again."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from scipy import stats
from tests.collector.helpers import KEYS, SECRET, known_keys, running

import noisette as nz
from noisette.collector import Store, create_app
from noisette.device import Client
from noisette.device.blind import new_code
from noisette.survey.campaigns import Campaign
from noisette.survey.draws import PublicDraws
from noisette.survey.periods import period_at, periods_from

TEXT = {"id": "drinks", "epsilon": 4.0, "users": 1000, "attributes": [{"name": "drink", "text": 6}], "tokens": "drawn"}
MIXED = TEXT | {
    "id": "mixed",
    "attributes": [
        {"name": "drink", "text": 6},
        {"name": "age", "range": [0, 99]},
        {"name": "by", "categories": ["a", "b"]},
    ],
}
VALUES = {"drink": "tea", "age": 30, "by": "b"}


def options(folder: Path, number: int) -> dict[str, Any]:
    return {"state": folder, "api_key": KEYS["device"], "epsilon": 8.0, "code": new_code(SECRET, number)}


def posted(url: str, campaign: str, body: dict[str, Any]) -> httpx.Response:
    headers = {"Authorization": f"Bearer {KEYS['device']}"}
    return httpx.post(f"{url}/campaigns/{campaign}/reports", json=body, headers=headers)


def kept(folder: Path) -> dict[str, Any]:
    """Return the report that a device is about to send, with its signed token."""
    from noisette.device.state import Device
    from noisette.device.tokens import written

    device = Device(folder, epsilon=8.0, delta=0.0)
    (campaign, body), *_ = device.waiting()
    signed = device.wallet.signed(campaign, device.signing_period(campaign, body["period"]))
    device.close()
    assert signed is not None
    return body | written(*signed)


@pytest.mark.long
def test_a_report_follows_and_another_one_is_refused(tmp_path: Path, store: Store) -> None:
    campaigns = [Campaign.from_dict(TEXT), Campaign.from_dict(MIXED)]
    with running(create_app(campaigns, store, known_keys())) as url:
        for campaign in campaigns:
            folder = tmp_path / campaign.id
            with Client(url, **options(folder, 1)) as device:
                values = {one.name: VALUES[one.name] for one in campaign.survey.questions}
                assert device.answer(campaign.id, values)
            honest = kept(folder)
            mechanism = campaign.survey.sections[-1].mechanism
            report = honest["report"]
            if campaign.id == "drinks":  # she would like to be in the group that measures
                liar = (report + mechanism.seeds * mechanism.buckets) % mechanism.support.size
            else:  # she would like to answer another section, or about another attribute
                other = 1 - report[0]
                liar = [other, _any_report(campaign, other)]
            answer = posted(url, campaign.id, honest | {"report": liar, "key": "l" * 32})
            assert answer.status_code >= 400
            assert "follows from her token" in answer.text
            with Client(url, **options(folder, 1)) as device:
                assert device.send().sent == 1
            assert store.periods(campaign) == {"once": 1}


def _any_report(campaign: Campaign, place: int) -> Any:
    rng = np.random.default_rng(0)
    while True:
        drawn, report = campaign.privatize(VALUES, rng=rng)
        if drawn == place:
            return report


def test_what_follows_is_all_that_is_public() -> None:
    """The twin: with one signature all public parts agree whatever the noise; with another one they do not."""
    survey = nz.Survey(
        [nz.Text("drink", 6), nz.Number("age", 0, 99), nz.Choice("by", [str(n) for n in range(40)])], epsilon=2.0
    )
    values = {"drink": "tea", "age": 3, "by": "7"}
    agreed = 0
    for number in range(40):
        signature = bytes([number]) * 256
        rows = [survey.rows([survey.answer(values, signature=signature, rng=seed)])[0] for seed in range(3)]
        assert all(survey.follows(row, signature) for row in rows)
        agreed += survey.follows(rows[0], bytes([number + 1]) * 256)
    assert agreed < 20
    hashed = nz.Survey([nz.Choice("by", ["a", "b", "c"])], epsilon=1.0, mechanism="olh")
    row = hashed.rows([hashed.answer({"by": "a"}, signature=b"s", rng=1)])[0]
    assert hashed.follows(row, b"s")
    assert not hashed.follows(row, b"t")
    with pytest.raises(ValueError, match="one user"):
        survey.privatize_coded(
            {name: np.repeat(value[None], 2) for name, value in survey.encode(values).items()}, signature=b"s"
        )


def test_drawn_reports_have_the_law_of_others() -> None:
    """Chi-square of the reports of many signatures against the mechanism's own law."""
    mechanism = nz.PrefixExtending.example(1.0)
    draws = [mechanism.draw(1, PublicDraws(number.to_bytes(4, "big"), "part0")) for number in range(8000)]
    sent = mechanism.privatize_drawn(np.repeat("a", 8000), np.concatenate(draws), rng=3)
    expected = 8000 * np.exp(mechanism.log_prob(np.arange(mechanism.support.size), "a"))
    seen = np.bincount(sent, minlength=mechanism.support.size)
    assert stats.chi2.sf(((seen - expected) ** 2 / expected).sum(), expected.size - 1) > 1e-6
    assert stats.chi2.sf(((seen - 8000 / expected.size) ** 2 / 8000 * expected.size).sum(), expected.size - 1) < 1e-6


# answers that change


def tracked(periods: int = 2) -> Campaign:
    return Campaign.from_dict(TEXT | {"id": "daily", "period": "day", "answers": "tracked", "periods": periods})


@pytest.mark.long
def test_a_tracked_user_reports_in_one_period_and_a_liar_in_no_other(tmp_path: Path, store: Store) -> None:
    campaign = tracked()
    today = period_at("day")
    assert campaign.begins == today
    with running(create_app([campaign], store, known_keys())) as url:
        answered = []
        for number in range(12):
            with Client(url, **options(tmp_path / str(number), number)) as device:
                before = dict(device.left)
                answered.append(device.answer("daily", {"drink": "tea"}))
                assert not device.answer("daily", {"drink": "mate"})  # whatever changes
                assert (dict(device.left) == before) != answered[-1]  # silence costs nothing
                sent = device.send()
                assert (sent.sent, sent.refused) == (int(answered[-1]), 0)
        assert 0 < sum(answered) < 12
        assert store.periods(campaign) == {today: sum(answered)}
        # one whose period is another day takes her signature and answers today
        number = answered.index(False)
        with Client(url, **options(tmp_path / str(number), number)) as device:
            token, signature = device._device.wallet.signed("daily", today) or (b"", b"")
        assert campaign.drawn_period(signature) == periods_from("day", today, 2)[1]
        from noisette.device.tokens import written

        report = campaign.survey.answer({"drink": "tea"}, signature=signature, rng=1)
        body = {"version": 1, "key": "l" * 32, "period": today, "report": report} | written(token, signature)
        answer = posted(url, "daily", body)
        assert answer.status_code >= 400
        assert "follows from her token" in answer.text


def test_what_a_tracked_campaign_costs_and_tells() -> None:
    campaign = tracked(30)
    assert campaign.mechanism.guarantee.epsilon == pytest.approx(4.0)  # for all periods together
    again = Campaign.from_wire(json.loads(json.dumps(campaign.to_wire())))
    assert (again.begins, again.periods, again.answers) == (campaign.begins, 30, "tracked")
    noise, scatter = campaign.survey.predict(1000)[0], campaign.survey.question("drink").signal ** 2 * 29 / 30_000
    assert campaign.predict(30_000)[0] == pytest.approx(math.sqrt(noise**2 + scatter))
    days = [campaign.drawn_period(bytes([number, 1])) for number in range(200)]
    assert set(days) <= set(periods_from("day", campaign.begins, 30))
    assert len(set(days)) > 20


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"answers": "tracked", "periods": 3}, "period of day, week or month"),
        ({"answers": "tracked", "period": "day", "periods": 3, "tokens": "blind"}, "tokens='drawn'"),
        ({"answers": "tracked", "period": "day"}, "Expected periods"),
        ({"answers": "tracked", "period": "day", "periods": 1}, "periods"),
        ({"answers": "tracked", "period": "week", "periods": 4, "begins": "2026-11-17"}, "to name a week"),
        ({"periods": 4}, "only with answers='tracked'"),
        ({"period": "day"}, "Expected answers='fresh' or 'tracked'"),
    ],
)
def test_terms_that_cannot_be_kept_are_refused(change: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Campaign.from_dict(TEXT | change)


def test_periods_follow_each_other() -> None:
    assert periods_from("day", "2026-12-31", 2) == ("2026-12-31", "2027-01-01")
    assert periods_from("week", "2026-W53", 2) == ("2026-W53", "2027-W01")
    assert periods_from("month", "2027-01", 14)[-1] == "2028-02"
