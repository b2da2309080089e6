"""What the collector makes of bodies, at each limit and one beyond it, with one wrong entry among sound ones."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.collector.helpers import COMMUTE, PERSON, entry

from noisette.collector.campaigns.life import Life
from noisette.collector.intake import reading
from noisette.collector.intake.reading import (
    Entry,
    Single,
    _of_period,
    _signed,
    body_schema,
    glance,
    outside,
    overgrown,
    parse,
    together,
)
from noisette.collector.storage.store import Refused
from noisette.survey import batches
from noisette.survey.campaigns import Campaign

PLAIN = Campaign.from_dict(COMMUTE)
LABELS = ["a[b", "c{d,e,f", "g"]
GROUPED = Campaign.from_dict(COMMUTE | {"public_group": {"name": "town", "values": LABELS}})
DAILY = Campaign.from_dict(COMMUTE | {"id": "daily", "period": "day"})
BITS = Campaign.from_dict(
    COMMUTE | {"id": "bits", "attributes": [{"name": "by", "categories": list("abcde")}], "mechanism": "oue"}
)


def sound(campaign: Campaign, seed: int = 1, **changes: Any) -> dict[str, Any]:
    person = {one.name: PERSON.get(one.name, "a") if campaign is not BITS else "a" for one in campaign.attributes}
    return entry(campaign.privatize(person, rng=seed), **changes)


def several(*reports: dict[str, Any], **changes: Any) -> bytes:
    return json.dumps({"version": 1, "reports": reports} | changes).encode()


def refusals(campaign: Campaign, body: bytes, life: Life | None = None) -> list[tuple[int, str]]:
    with pytest.raises(Refused) as caught:
        parse(campaign, body, *([] if life is None else [life]))
    return [(one.index, one.reason) for one in caught.value.refusals]


@pytest.mark.parametrize(
    ("field", "good", "bad"),
    [
        ("key", ["a" * 16, "Z9_-" * 16], ["a" * 15, "a" * 65, "a" * 15 + "!"]),
        ("token", ["0f" * 32], ["0" * 63, "0" * 65, "A" * 64]),
        ("period", ["once"], ["o" * 17, 3]),
        ("group", [None], ["g" * 201]),
        ("signature", [None, "a" * 1024], ["a" * 1025]),
        ("version", [1], [2, 0, True, 1.0, "1"]),
        ("campaign", [None, "commute"], ["c" * 64]),
    ],
)
def test_ends_of_every_field(field: str, good: list[Any], bad: list[Any]) -> None:
    for value in good:
        assert len(parse(PLAIN, json.dumps({"version": 1} | sound(PLAIN) | {field: value}).encode())) == 1
    for value in bad:
        assert refusals(PLAIN, json.dumps({"version": 1} | sound(PLAIN) | {field: value}).encode()) == [
            (0, "malformed")
        ]
    for value in (["x" * 63], ["y"]):
        body = json.dumps({"version": 1, "campaign": value[0]} | sound(PLAIN)).encode()
        assert refusals(PLAIN, body) == [(0, "wrong-campaign")]


def test_a_batch_has_one_report_at_least_and_no_other_field() -> None:
    assert refusals(PLAIN, several()) == [(0, "malformed")]
    assert refusals(PLAIN, several(sound(PLAIN), more=1)) == [(0, "malformed")]
    assert refusals(PLAIN, several(sound(PLAIN), version=True)) == [(0, "malformed")]
    (one,) = parse(PLAIN, several(sound(PLAIN)))
    assert len(one) == 1
    deep = b'{"version": 1, "report": ' + b"[" * 1500 + b"]" * 1500 + b"}"
    assert refusals(PLAIN, deep) == [(0, "malformed")]


def test_tokens_keys_groups_and_numbers_of_a_batch() -> None:
    reports = [sound(GROUPED, seed, group=LABELS[seed % 3]) for seed in range(5)]
    (batch,) = parse(GROUPED, several(*reports))
    assert batch.groups.tolist() == [0, 1, 2, 0, 1]
    tokens = [bytes.fromhex(one["token"])[:16] for one in reports]
    assert [bytes(row) for row in batch.tokens] == tokens
    assert np.array_equal(batch.keys, batches.key_digests("commute", [one["key"] for one in reports]))
    assert batch.index.tolist() == list(range(5))
    rows = GROUPED.survey.rows([one["report"] for one in reports])
    assert np.array_equal(batch.rows, rows)
    (plain,) = parse(PLAIN, several(sound(PLAIN)))
    assert plain.groups.tolist() == [0]
    assert plain.signed == ()


def test_a_batch_for_each_period_in_the_order_of_their_first_reports() -> None:
    days = ["2026-03-02", "2026-03-01", "2026-03-02", "2026-03-03", "2026-03-01"]
    reports = [sound(DAILY, seed, period=day) for seed, day in enumerate(days)]
    found = parse(DAILY, several(*reports))
    assert [(one.period, one.index.tolist()) for one in found] == [
        ("2026-03-02", [0, 2]),
        ("2026-03-01", [1, 4]),
        ("2026-03-03", [3]),
    ]
    (same,) = parse(DAILY, several(reports[0], reports[2]))
    assert (same.period, same.index.tolist()) == ("2026-03-02", [0, 1])
    signed = tuple((bytes([place]), b"s") for place in range(5))
    (whole,) = parse(PLAIN, several(*map(_plain, range(5))))
    part = _of_period(replace(whole, signed=signed), "later", np.asarray([1, 3]))
    assert (part.period, part.signed, part.index.tolist()) == ("later", (signed[1], signed[3]), [1, 3])
    assert _of_period(whole, "later", np.asarray([1, 3])).signed == ()


def _plain(seed: int) -> dict[str, Any]:
    return sound(PLAIN, seed)


def test_single_reports_are_read_together_by_campaign() -> None:
    def glanced(campaign: Campaign, seed: int) -> Single:
        found = glance(campaign, json.dumps({"version": 1} | sound(campaign, seed)).encode())
        assert isinstance(found, Single)
        assert len(found) == 1
        return found

    singles = [glanced(PLAIN, 1), glanced(BITS, 2), glanced(PLAIN, 3)]
    found = list(together(singles))
    assert [(one.campaign.id, len(one)) for one in found] == [("commute", 2), ("bits", 1)]
    assert not isinstance(glance(PLAIN, several(sound(PLAIN))), Single)


def test_one_wrong_period_or_group_is_named_each_time() -> None:
    reports = [
        sound(GROUPED, 0, group="g"),
        sound(GROUPED, 1, group="h"),
        sound(GROUPED, 2, group="g"),
        sound(GROUPED, 3, group="h"),
        sound(GROUPED, 4, group="g", period="2026"),
        sound(GROUPED, 5),
    ]
    wrong = [(1, "wrong-group"), (3, "wrong-group"), (4, "wrong-period"), (5, "wrong-group")]
    assert refusals(GROUPED, several(*reports)) == wrong
    assert refusals(PLAIN, several(sound(PLAIN), sound(PLAIN, group="g"))) == [(1, "wrong-group")]
    closed = Life(state="closed")
    assert refusals(PLAIN, several(sound(PLAIN)), closed) == [(0, "campaign-closed")]


def test_codes_of_groups_in_a_binary_batch() -> None:
    reports = [sound(GROUPED, seed) for seed in range(4)]
    rows = GROUPED.survey.rows([one["report"] for one in reports])
    tokens = b"".join(bytes.fromhex(one["token"]) for one in reports)
    for codes, wrong in (([0, 1, 2, 2], []), ([0, 3, 2, 9], [(1, "wrong-group"), (3, "wrong-group")])):
        body = batches.pack(GROUPED, "once", tokens, rows, groups=codes)
        if wrong:
            assert refusals(GROUPED, body) == wrong
        else:
            (found,) = parse(GROUPED, body)
            assert found.groups.tolist() == codes
    good = batches.pack(GROUPED, "once", tokens, rows, groups=[0, 1, 2, 2])
    assert refusals(GROUPED, good, Life(state="closed")) == [(0, "campaign-closed")]
    other = Campaign.from_dict(COMMUTE | {"id": "another", "public_group": {"name": "town", "values": LABELS}})
    assert refusals(other, good) == [(0, "wrong-campaign")]
    assert refusals(GROUPED, good[:-1]) == [(0, "malformed")]


def test_a_signature_that_cannot_be_read_is_none() -> None:
    told = sound(PLAIN) | {"signature": base64.b64encode(b"signed").decode()}
    token = bytes.fromhex(told["token"])
    assert _signed(Entry(**told)) == (token, b"signed")
    for wrong in (None, "", "*", "YQ", "é"):
        assert _signed(Entry(**(told | {"signature": wrong}))) == (token, b"")


@pytest.mark.parametrize(("campaign", "lists", "values"), [(PLAIN, 0, 0), (BITS, 0, 0), (GROUPED, 1, 2)])
def test_lists_and_values_that_so_many_reports_can_have(campaign: Campaign, lists: int, values: int) -> None:
    """Beside a report there are three lists and sixteen values; its own are counted by the lists in it."""
    most_lists, most_values = 3 + lists, 16 + values  # those of the label with the most
    for name in campaign.row.names or ():
        shape = campaign.row[name].shape
        example = np.zeros(shape).tolist()
        most_lists += json.dumps(example).count("[")
        most_values += max(1, np.zeros(shape).size)
    two = b'"report""report"'  # with two more that are allowed for
    for filler, most in ((b"[", most_lists), (b"{", most_lists), (b",", most_values)):
        assert not overgrown(campaign, two + filler * (4 * most))
        assert overgrown(campaign, two + filler * (4 * most + 1))
    mixed = two + b"[" * (2 * most_lists) + b"{" * (2 * most_lists)
    assert not overgrown(campaign, mixed)
    assert overgrown(campaign, mixed + b"[")


def test_reports_of_a_batch_are_counted_before_they_are_read() -> None:
    assert not overgrown(PLAIN, b'"report"' * 10_000)
    assert overgrown(PLAIN, b'"report"' * 10_001)


def test_small_bodies_are_parsed_whatever_they_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = list[int]()
    monkeypatch.setattr(reading, "overgrown", lambda _, body: asked.append(len(body)) or True)
    for size in (4096, 4097):
        assert refusals(PLAIN, b" " * size) == [(0, "malformed")]
    assert asked == [4097]


def test_reports_outside_of_the_support_are_found_by_halving() -> None:
    wrong = [1, 4, 5, 10]
    (batch,) = parse(BITS, several(*(sound(BITS, seed) for seed in range(11))))
    name = (BITS.row.names or ("",))[0]
    batch.rows[name][wrong] = 3
    found = outside([batch])
    assert [(one.index, one.reason) for one in found] == [(place, "out-of-support") for place in wrong]
    batch.rows[name][:] = 3
    many = np.concatenate([batch.rows] * 10)
    large = replace(batch, rows=many, index=np.arange(110) + 7)
    found = outside([large])
    assert [one.index for one in found] == list(range(7, 107))  # a hundred are told
    assert outside([parse(BITS, several(sound(BITS)))[0]]) == []
    assert len(outside([large, batch])) == 100


def test_reports_of_the_wrong_shape_are_told_up_to_a_hundred() -> None:
    good, bad = sound(PLAIN), sound(PLAIN) | {"report": "x"}
    assert refusals(PLAIN, several(good, bad, good, bad)) == [(1, "out-of-support"), (3, "out-of-support")]
    assert len(refusals(PLAIN, several(*[bad] * 101))) == 100


def test_what_the_document_says_of_a_body() -> None:
    told = body_schema()
    one, batch = told["content"]["application/json"]["schema"]["oneOf"]
    assert told["required"] is True
    assert "report" in one["properties"]
    assert "token" in batch["properties"]["reports"]["items"]["properties"]
    assert "$defs" not in batch
