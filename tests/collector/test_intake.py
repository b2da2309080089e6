"""Whatever arrives is either a batch of possible reports or refused with a reason: nothing else ever comes out."""

from __future__ import annotations

import json
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings
from tests.collector.helpers import COMMUTE, PERSON, entry

from noisette.collector.intake.reading import outside, overgrown, parse
from noisette.collector.storage.store import Refusal, Refused
from noisette.survey.campaigns import Campaign
from noisette.survey.survey import Survey

CAMPAIGNS = [
    Campaign.from_dict(COMMUTE),
    *(
        Campaign.from_dict(COMMUTE | {"attributes": [COMMUTE["attributes"][1]], "mechanism": name})
        for name in ("grr", "oue", "olh", "subset-selection")
    ),
    Campaign.from_dict(COMMUTE | {"attributes": [COMMUTE["attributes"][0]], "mechanism": "laplace"}),
]
LAYOUTS = {id(campaign): campaign.layout for campaign in CAMPAIGNS}
SOUND = [
    {"version": 1} | entry(one.privatize({part.name: PERSON[part.name] for part in one.attributes}, rng=1))
    for one in CAMPAIGNS
]
NUMBERS = st.integers() | st.floats() | st.sampled_from([0, 1, 2**63, -(2**63) - 1, 1e308, -0.0])
VALUES: Any = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
FIELDS = st.dictionaries(st.sampled_from(["version", "key", "period", "token", "report", "x"]), VALUES, max_size=2)


def _outcome(campaign: Campaign, body: bytes) -> bool:
    """Tell whether a body is taken; anything but a refusal with its reasons is an error of ours."""
    refusals: tuple[Refusal, ...] = ()
    try:
        batches = parse(campaign, body)
        if wrong := outside(batches):
            raise Refused(wrong)
    except Refused as refused:
        refusals = refused.refusals
    if refusals:
        assert all(one.reason and one.detail for one in refusals)
        return False
    for batch in batches:
        assert LAYOUTS[id(campaign)].tally(batch.rows).users == len(batch)
    return True


@settings(max_examples=150)
@given(body=st.binary(max_size=60), place=st.integers(0, len(CAMPAIGNS) - 1))
def test_any_bytes(body: bytes, place: int) -> None:
    assert not _outcome(CAMPAIGNS[place], body)


@pytest.mark.long
@settings(max_examples=300)
@given(changes=FIELDS, place=st.integers(0, len(CAMPAIGNS) - 1))
def test_any_field(changes: dict[str, Any], place: int) -> None:
    campaign, sound = CAMPAIGNS[place], SOUND[place]
    assert _outcome(campaign, json.dumps(sound).encode())
    _outcome(campaign, json.dumps(sound | changes).encode())


@pytest.mark.long
@settings(max_examples=300)
@given(report=st.lists(st.lists(NUMBERS, max_size=3), max_size=2) | st.lists(NUMBERS, max_size=5) | NUMBERS)
def test_any_numbers(report: Any) -> None:
    for campaign in CAMPAIGNS:
        _outcome(campaign, json.dumps({"version": 1} | entry(report)).encode())


def test_a_crash_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The twin: an error that is no refusal comes through."""

    def broken(*_: Any) -> None:
        raise IndexError("not a refusal")

    monkeypatch.setattr(Survey, "rows", broken)
    with pytest.raises(IndexError):
        _outcome(CAMPAIGNS[0], json.dumps({"version": 1} | entry([[0, 1.0]])).encode())


def test_as_many_lists_and_values_as_reports_can_have() -> None:
    """Brackets and commas in the label of a group are not the parser's work; a batch of many more lists is."""
    label = "[{,," * 20
    campaign = Campaign.from_dict(COMMUTE | {"public_group": {"name": "town", "values": ["north", label]}})
    one = entry(campaign.privatize(PERSON, rng=1)) | {"group": label}
    batch = [one | {"key": f"{number:032x}"} for number in range(40)]
    honest = json.dumps({"version": 1, "reports": batch}).encode()
    assert not overgrown(campaign, honest)
    for filler in (b"[", b"{", b","):
        assert overgrown(campaign, honest + 5000 * filler)
