"""Campaigns: what is refused, what the planner chooses, what is predicted, and reports as JSON."""

from __future__ import annotations

import json
import math
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.collector.helpers import COMMUTE, PERSON

from noisette.device.tokens import token
from noisette.domains import Attributes, Categorical, Interval
from noisette.prediction import plan
from noisette.survey.campaigns import Campaign
from noisette.survey.periods import check_period, period_at

NUMBER = {"name": "minutes", "range": [0, 120]}
LABELS = {"name": "by", "categories": ["car", "bike", "bus", "foot"]}


def _made(**changes: Any) -> Campaign:
    return Campaign.from_dict({"id": "c", "epsilon": 1.0, "users": 1000, "attributes": [NUMBER]} | changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"id": "Two words"}, "small letters"),
        ({"id": "x'; DROP TABLE reports"}, "small letters"),
        ({"epsilon": -1.0}, "epsilon=-1.0 > 0"),
        ({"epsilon": "1"}, "epsilon='1' to be a number"),
        ({"epsilon": math.nan}, "epsilon=nan"),
        ({"delta": 1.0}, "delta=1.0"),
        ({"users": 0}, "1 <= users"),
        ({"users": 1.5}, "users=1.5"),
        ({"period": "hour"}, "period='hour' to be one of once, day, week, month"),
        ({"answers": "sometimes"}, "answers='sometimes'"),
        ({"mechanism": "coin"}, "Unknown mechanism 'coin'"),
        ({"mechanism": "grr"}, "grr"),
        ({"mechanism": "square-wave"}, "to be unbiased"),
        ({"mechanism": 3}, "mechanism=3"),
        ({"mechanism": {"hours": "duchi"}}, "each of minutes"),
        ({"report": 2}, "report"),
        ({"title": ""}, "title"),
        ({"attributes": []}, "at least one question"),
        ({"attributes": [NUMBER, NUMBER]}, "distinct names"),
        ({"attributes": [{"name": "a", "range": [1, 0]}]}, "1"),
        ({"attributes": [{"name": "a", "range": [0, math.inf]}]}, "inf"),
        ({"attributes": [{"name": "a", "range": [0]}]}, "two numbers"),
        ({"attributes": [{"name": "a", "categories": [True, False]}]}, "put them in quotes"),
        ({"attributes": [{"name": "a", "categories": ["one"]}]}, "at least two categories of 'a'"),
        ({"attributes": [{"name": "a"}]}, "a range, categories or options"),
        ({"attributes": [{"name": "a", "vector": 1, "range": [0, 1]}]}, "vector of a"),
        ({"attributes": [{"name": "a", "vector": 4, "length": 0}]}, "length of a"),
        ({"attributes": [{"name": "a", "vector": 4}]}, "a range, low and high, or a length of the vector 'a'"),
        ({"attributes": [{"name": "a", "tensor": [4], "range": [0, 1]}]}, "at least two sizes"),
        ({"attributes": [{"name": "a", "tensor": [4, 0], "range": [0, 1]}]}, "tensor of a"),
        ({"attributes": [{"name": "a", "tensor": [2000, 2000], "range": [0, 1]}]}, "1,000,000 entries"),
        ({"attributes": [{"name": "a", "levels": [[0, 1]]}]}, "low, high and budget"),
        ({"attributes": [{"name": "a", "levels": [[0, 1, -1.0]]}]}, "-1.0"),
        ({"attributes": [{"name": "a", "levels": [[0, 1, 1.0], [2, 3, 1.0]]}]}, "1"),
        ({"attributes": [{"name": "a\nb", "range": [0, 1]}]}, "text of one line"),
        ({"attributes": [LABELS], "breakdown": ["by"]}, "a number to break down"),
        ({"breakdown": ["minutes"]}, "categorical questions"),
        ({"attributes": [NUMBER, LABELS], "joint": [["by", "by"]]}, "two questions, and once"),
        ({"attributes": [NUMBER, LABELS], "joint": [["by", "minutes"]], "mechanism": "olh"}, "another mechanism"),
        ({"public_group": {"name": "r", "values": []}}, "distinct values"),
        ({"public_group": {"name": "r", "values": ["a", "a"]}}, "distinct values"),
        ({"public_group": "r"}, "a name and values"),
        ({"tokens": "paper"}, "tokens='paper'"),
        ({"attributes": [{"name": "a", "tensor": [2, 2], "range": [0, 1]}], "mechanism": "tensor-gaussian"}, "delta"),
        ({"attributes": [{"name": "a", "tensor": [2, 2], "range": [0, 1]}], "mechanism": "matrix"}, "local mechanism"),
        ({"attributes": [{"name": "a", "levels": [[0, 1, 1.0]]}], "mechanism": "duchi"}, "levelled or optimal-graded"),
        ({"colour": "red"}, "Unknown field 'colour'"),
    ],
)
def test_what_is_wrong_is_said(changes: dict[str, Any], message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=re.escape(message)):
        _made(**changes)


@pytest.mark.parametrize(("text", "value"), [("1e1", 10.0), ("2E-3", 0.002), ("1.5e+0", 1.5), ("+3e0", 3.0)])
def test_numbers_with_an_exponent_are_numbers(tmp_path: Path, text: str, value: float) -> None:
    """YAML 1.1 takes 1e1 for a text, which nobody expects of a budget; in quotes it is one."""
    path = tmp_path / "campaign.yaml"
    path.write_text(
        f"id: a\nepsilon: {text}\nusers: 9\nattributes: [{{name: x, range: [-1e2, 1e2]}}]", encoding="utf-8"
    )
    found = Campaign.read(path)
    assert found.epsilon == value
    assert found.terms()["attributes"][0]["range"] == [-100.0, 100.0]
    path.write_text(f"id: a\nepsilon: '{text}'\nusers: 9\nattributes: [{{name: x, range: [0, 1]}}]", encoding="utf-8")
    with pytest.raises(ValueError, match="to be a number, got str"):
        Campaign.read(path)


def test_files(tmp_path: Path) -> None:
    path = tmp_path / "campaign.yaml"
    path.write_text("id: a\nepsilon: 1\nusers: 100\nattributes:\n  - {name: x, range: [0, 1]}\n", encoding="utf-8")
    assert Campaign.read(path).quantities == ("x",)
    path.write_text("id: [", encoding="utf-8")
    with pytest.raises(ValueError, match="not a YAML file"):
        Campaign.read(path)
    path.write_text("id: a", encoding="utf-8")
    with pytest.raises(ValueError, match=r"campaign.yaml: Expected a field 'attributes'"):
        Campaign.read(path)


@pytest.mark.long
def test_automatic_choice_does_not_depend_on_units() -> None:
    """Minutes or seconds: the same budget for the categories. Planned in raw units it would not be so (the twin)."""
    coarse, fine = (
        _made(attributes=[{"name": "t", "range": [0, high]}, LABELS]).mechanism.spec() for high in (1, 7200)
    )
    assert all(coarse[name] == fine[name] for name in ("inner", "shares", "report"))
    raw = [
        plan(users=1000, epsilon=1.0, domain=Attributes((Interval(0, high), Categorical(4)))).best.spec["shares"]
        for high in (1, 7200)
    ]
    assert raw[0] != raw[1]


@pytest.mark.parametrize("epsilon", [1e-6, 1.0, 1000.0])
@pytest.mark.parametrize("attributes", [[NUMBER], [LABELS], [NUMBER, LABELS]], ids=["number", "labels", "both"])
def test_the_mechanism_keeps_the_budget(epsilon: float, attributes: list[Any]) -> None:
    made = _made(epsilon=epsilon, attributes=attributes)
    assert made.mechanism.guarantee.epsilon <= epsilon * (1 + 1e-12)
    again = Campaign.from_wire(json.loads(json.dumps(made.to_wire())))
    assert again.terms() == made.terms()
    assert again.mechanism.spec() == made.mechanism.spec()


EVERY_KIND = [
    NUMBER,
    LABELS,
    {"name": "v", "vector": 3, "range": [-1, 1]},
    {"name": "way", "vector": 4, "length": 2.0},
    {"name": "t", "tensor": [2, 2], "range": [0, 1]},
    {"name": "g", "levels": [[0, 50, 2.0], [50, 100, 1.0]]},
]
ANSWERS = {"minutes": 35, "by": "bus", "v": [0, 0.5, 1], "way": [2, 0, 0, 0], "t": [[0, 1], [0.5, 0.5]], "g": 70}


@pytest.mark.long
@pytest.mark.parametrize("epsilon", [0.06, 1.0, 1000.0])
def test_every_kind_together(epsilon: float) -> None:
    """One report of all kinds survives JSON, keeps the budget, and names what it tells."""
    made = _made(epsilon=epsilon, attributes=EVERY_KIND)
    assert made.mechanism.guarantee.epsilon <= epsilon * (1 + 1e-12)
    again = Campaign.from_wire(json.loads(json.dumps(made.to_wire())))
    assert again.terms() == made.terms()
    assert again.row == made.row
    sent = json.loads(json.dumps([again.privatize(ANSWERS, rng=seed) for seed in range(20)]))
    sums = made.layout.tally(made.decode(sent))
    assert [name for one in sums.estimates() for name in one.names or ()] == list(made.quantities)
    for wrong in (sent[0][:-1], [*sent[0], 1], sent[0][0], [None] * 5, [[*sent[0][:4], "1"]]):
        with pytest.raises((TypeError, ValueError)):
            made.decode([wrong])


@pytest.mark.parametrize("epsilon", [1e-4, 0.01])
def test_tiny_budgets_get_no_biased_mechanism(epsilon: float) -> None:
    """The planner's best mix at a tiny budget holds a biased mechanism, whose intervals would not cover (the twin)."""
    attributes = [NUMBER, LABELS]
    made = _made(epsilon=epsilon, attributes=attributes)
    inputs = {"interval": np.asarray([0.0, 60.0, 120.0]), "categorical": np.arange(4)}
    for inner in made.mechanism.inner_mechanisms:
        moments = inner.moments(inputs[inner.domain.kind])
        assert np.abs(moments.bias).max() <= 1e-6 * np.sqrt(moments.variance.max())
    best = plan(users=1000, epsilon=epsilon, domain=Attributes((Interval(0, 1), Categorical(4)))).best
    assert not best.unbiased


def test_a_mechanism_that_breaks_the_promise_is_refused() -> None:
    wire = _made(mechanism="duchi").to_wire()
    wire["spec"] = wire["spec"] | {"epsilon": 1.1}
    with pytest.raises(ValueError, match="Do not answer it"):
        Campaign.from_wire(wire)
    wire = _made(mechanism="duchi").to_wire()
    wire["spec"] = _made(mechanism="duchi", attributes=[{"name": "x", "range": [0, 1]}]).mechanism.spec()
    with pytest.raises(ValueError, match="got one for"):
        Campaign.from_wire(wire)
    with pytest.raises(ValueError, match="version 1"):
        Campaign.from_wire(wire | {"version": 2})


def test_prediction_against_the_closed_form() -> None:
    """Duchi's report is ±C times the half-width: its worst variance, at the middle, is the square of that."""
    factor = (math.e + 1) / (math.e - 1)
    assert _made(mechanism="duchi").predict() == pytest.approx([60 * factor / math.sqrt(1000)], rel=1e-9)
    assert _made(mechanism="duchi").predict(4000) == pytest.approx([30 * factor / math.sqrt(1000)], rel=1e-9)


def test_prediction_against_what_is_collected() -> None:
    """The z-scores of 40 collections at the predicted worst case have mean square 1, at a false-alarm rate of 1e-6."""
    from scipy.stats import chi2

    made = _made(mechanism="duchi", users=500)
    rng = np.random.default_rng(3)
    errors = []
    for _ in range(40):
        reports = np.asarray(made.mechanism.privatize(np.full(500, 60.0), rng=rng))
        errors.append(made.mechanism.aggregate(reports).estimate().value[0] - 60.0)
    scores = np.square(np.asarray(errors) / made.predict()[0]).sum()
    low, high = chi2.ppf([5e-7, 1 - 5e-7], 40)
    assert low < scores < high
    assert not low < scores / 9 < high  # the twin: a prediction three times too large is seen


@pytest.mark.parametrize(
    ("attribute", "name"),
    [(NUMBER, name) for name in ("laplace", "duchi", "piecewise", "hybrid", "staircase", "piecewise-optimal")]
    + [(LABELS, name) for name in ("grr", "oue", "sue", "olh", "subset-selection", "hadamard", "histogram")],
)
def test_reports_survive_json(attribute: dict[str, Any], name: str) -> None:
    made = _made(attributes=[attribute], mechanism=name)
    value = {key: PERSON[key] for key in (attribute["name"],)}
    rng = np.random.default_rng(5)
    sent = [made.privatize(value, rng=rng) for _ in range(20)]
    decoded = made.decode(json.loads(json.dumps(sent)))
    inputs = made.encode(value)[attribute["name"]][None]
    rng = np.random.default_rng(5)
    directly = np.concatenate([np.asarray(made.mechanism.privatize(inputs, rng=rng)) for _ in range(20)])
    assert np.array_equal(decoded["part0"], directly)
    assert made.layout.tally(decoded).aggregates[0].names == made.quantities


@pytest.mark.parametrize(
    "report",
    [
        *(None, "1", True, [], {"a": 1}, [0, 1.0]),
        *([[0, 1e-7]], [[0, 1.0, 2.0]], [["0", 1]], [[True, 1.0]], [[[0, 1.0]]]),
        *([[0, math.inf]], [[0, math.nan]], [[0, 10**30]]),
        *([[2, 1.0]], [[-1, 0.0]], [[0.5, 0.0]], [[1, 4]], [[1, 0.5]]),
    ],
)
def test_impossible_reports(campaign: Campaign, report: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        campaign.decode([report])


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({}, "each of minutes, by"),
        (PERSON | {"age": 3}, "each of minutes, by"),
        (PERSON | {"minutes": 121}, "minutes=121 in"),
        (PERSON | {"minutes": math.nan}, "Leave the question unanswered"),
        (PERSON | {"minutes": "35"}, "minutes='35'"),
        (PERSON | {"by": "plane"}, "by='plane' to be one of car, bike"),
        (PERSON | {"by": 1}, "by=1"),
    ],
)
def test_impossible_values(campaign: Campaign, values: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        campaign.privatize(values)


def test_numbers_are_clipped_only_when_asked(campaign: Campaign) -> None:
    assert campaign.encode(PERSON | {"minutes": 999}, clip=True) == {"minutes": 120, "by": 1}


def test_periods() -> None:
    now = datetime(2027, 1, 1, 12, tzinfo=UTC)
    names = {kind: period_at(kind, now) for kind in ("once", "day", "week", "month")}
    assert names == {"once": "once", "day": "2027-01-01", "week": "2026-W53", "month": "2027-01"}
    for kind, name in names.items():
        check_period(kind, name, now)
    for kind, wrong in [
        ("once", "2027"),
        ("day", "2027-01-02"),
        ("day", "2027-1-1"),
        ("day", "2026-02-30"),
        ("week", "2027-W01"),
        ("week", "2025-W53"),
        ("month", "2027-02"),
        ("month", "2026-13"),
        ("month", ""),
    ]:
        with pytest.raises(ValueError, match="Expected period="):
            check_period(kind, wrong, now)


def test_tokens_against_the_standard() -> None:
    """HMAC-SHA256 by its definition, RFC 2104, written out."""
    from hashlib import sha256

    secret, text = bytes(range(32)), b"commute\n2026-W46"
    inner, outer = (bytes(b ^ pad for b in secret.ljust(64, b"\0")) for pad in (0x36, 0x5C))
    expected = sha256(outer + sha256(inner + text).digest()).hexdigest()
    assert token(secret, "commute", "2026-W46") == expected


def test_campaign_of_the_tests_is_as_written(campaign: Campaign) -> None:
    assert {key: campaign.terms()[key] for key in COMMUTE} == COMMUTE
