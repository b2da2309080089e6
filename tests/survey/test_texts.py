"""A survey that asks for texts nobody listed: files, plan, results and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import noisette as nz
from noisette.prediction.texts import TextPrediction
from noisette.survey import Campaign

SHARES = {"tea": 0.5, "cocoa": 0.3, "maté": 0.2}


def answers(users: int, seed: int = 1) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    drinks = rng.choice(list(SHARES), users, p=list(SHARES.values()))
    return pd.DataFrame({"drink": drinks, "age": rng.integers(18, 99, users), "region": rng.choice(["n", "s"], users)})


@pytest.fixture(scope="module")
def survey() -> nz.Survey:
    return nz.Survey([nz.Text("drink", longest=6)], epsilon=4.0, groups={"region": ["n", "s"]})


@pytest.fixture(scope="module")
def reports(survey: nz.Survey):  # type: ignore[no-untyped-def]
    return survey.privatize(answers(12_000), rng=7)


def test_a_file_and_back(tmp_path: Path) -> None:
    survey = nz.Survey([nz.Text("drink", 6), nz.Text("code", 8, alphabet="0123456789")], epsilon=4.0)
    survey.save(tmp_path / "s.yaml")
    assert "text: 6" in (tmp_path / "s.yaml").read_text()
    assert nz.Survey.read(tmp_path / "s.yaml") == survey
    assert nz.Survey.from_spec(json.loads(json.dumps(survey.spec()))) == survey
    assert [own.mechanism.name for own in survey.sections] == ["pem", "pem"]
    wire = Campaign.from_dict({"id": "drinks", **survey.terms(), "users": 5000}).to_wire()
    assert Campaign.from_wire(json.loads(json.dumps(wire))).survey.guarantee.epsilon == pytest.approx(4.0)


@pytest.mark.long
def test_the_top_is_found_with_intervals(survey: nz.Survey, reports, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    results = survey.estimate(reports)
    top = results["drink"].top(3)
    assert list(top.columns[:4]) == ["text", "share", "low", "high"]
    assert set(top["text"]) == set(SHARES)
    assert top["share"].is_monotonic_decreasing
    for row in top.itertuples():
        assert abs(row.share - SHARES[row.text]) < 5.5 * row.std_error
        assert row.low < row.share < row.high
    assert "are not shown" in top.attrs["note"]
    table = results.table()
    assert set(table["quantity"]) == set(SHARES)
    assert set(table["group"]) == {"all", "region=n", "region=s"}
    assert len(results["drink"].plot().data) == len(results.plot().data) == 1
    reports.save(tmp_path / "r.parquet")
    again = survey.aggregate(tmp_path / "r.parquet")
    assert again == survey.aggregate([reports])
    pd.testing.assert_frame_equal(again.results()["drink"].top(3), top)
    assert list(results["drink"].top(1)["text"]) == ["tea"]
    wide = results["drink"].top(3, level=0.99)
    assert (wide["high"] > top["high"]).all()


@pytest.mark.slow
def test_texts_are_compared_between_groups_and_arms_of_other_budgets() -> None:
    """A text that some arm shows is measured in all; who measures had no part in the choice of it."""
    rng = np.random.default_rng(4)
    groups, answers = ["n", "s", "nobody"], {"n": ["ab", "ba"], "s": ["ab", "c"]}
    survey = nz.Survey([nz.Text("t", 3, alphabet="abc")], epsilon=4.0, groups={"region": groups})
    regions = rng.choice(["n", "s"], 12_000)
    texts = [answers[region][place] for region, place in zip(regions, rng.integers(0, 2, 12_000), strict=True)]
    results = survey.estimate(survey.privatize({"t": texts, "region": regions}, rng=5))
    found = results.compare("region").set_index(["quantity", "a", "b"])
    assert {quantity for quantity, _, _ in found.index} == {"ab", "ba", "c"}
    for text, truth in {"ab": 0.0, "ba": -0.5, "c": 0.5}.items():
        row = found.loc[(text, "n", "s")]
        assert abs(row["difference"] - truth) < 5.5 * row["std_error"]
        assert (row["p_value"] < 1e-6) == (truth != 0)
        assert np.isnan(found.loc[(text, "n", "nobody")]["difference"])
    assert results.by("region") is results.by("region")  # nothing is searched twice
    other = nz.Survey([nz.Text("t", 3, alphabet="abc")], epsilon=3.0)
    arm = other.estimate(other.privatize({"t": texts[:6000]}, rng=6))
    assert set(results.compare(arm)["quantity"]) == {"ab", "ba", "c"}
    nothing = survey.estimate([])
    assert len(nothing.compare("region")) == 0
    assert nothing["t"].top().attrs["note"] == "No reports yet."


def test_halves_add_up_to_the_same_bits(survey: nz.Survey, reports) -> None:  # type: ignore[no-untyped-def]
    frame = answers(200)
    rng = np.random.default_rng(3)
    halves = [survey.aggregate(survey.privatize(part, rng=rng)) for part in (frame[:90], frame[90:])]
    assert halves[0] + halves[1] == halves[1].merge(halves[0])
    assert (halves[0] + halves[1]).users == 200


def test_nothing_to_find(survey: nz.Survey) -> None:
    one = survey.estimate(survey.privatize(answers(1), rng=1))
    assert len(one["drink"].top()) == 0
    assert "1 reports are too few" in one["drink"].top().attrs["note"]
    with pytest.raises(AttributeError, match=r"no mean. Take its top\(\)"):
        _ = one["drink"].mean
    with pytest.raises(AttributeError, match=r"take top\(\)"):
        _ = one["drink"].shares
    for bad in (0, 2000):
        with pytest.raises(ValueError, match="texts"):
            one["drink"].top(bad)
    with pytest.raises(ValueError, match="level"):
        one["drink"].top(level=1.0)


def test_the_plan_says_how_frequent_a_text_must_be(survey: nz.Survey) -> None:
    plan = survey.plan(users=20_000)
    table = plan.table()
    made = TextPrediction(survey.sections[0].mechanism, 20_000)
    assert table["quantity"][0] == f"a text of {made.findable():.2%} or more"
    assert table["std_error"][0] == pytest.approx(float(made.std_error(made.findable())))
    assert table["verdict"][0] == "worth collecting"
    few = survey.plan(users=20).table()
    assert few["quantity"][0] == "no text is found"
    assert few["verdict"][0] != "worth collecting"


@pytest.mark.parametrize(
    ("value", "words"),
    [("", "empty"), ("a\tb", "control character"), ("toolong", "7 bytes"), (7, "of type int"), ("\ud800", "half of")],
)
def test_what_is_no_text_is_refused_on_the_device_and_in_a_table(survey: nz.Survey, value: object, words: str) -> None:
    with pytest.raises(ValueError, match=words) as error:
        survey.answer({"drink": value})
    assert "drink" in str(error.value)
    if isinstance(value, str) and value.isprintable() and value:
        with pytest.raises(ValueError, match=f"row 2, column 'drink'.*{words}"):
            survey.privatize({"drink": ["tea", value], "region": ["n", "s"]})


def test_spaces_at_the_ends_and_accents_typed_apart_are_the_same_text(survey: nz.Survey) -> None:
    seeds = [survey.answer({"drink": drink}, rng=5) for drink in ("maté", " maté ", "mate\u0301")]
    assert seeds[0] == seeds[1] == seeds[2]
    table = [
        survey.privatize({"drink": [drink], "region": ["n"]}, rng=5).rows.tobytes() for drink in ("maté", "mate\u0301 ")
    ]
    assert table[0] == table[1]


def test_another_mechanism_is_refused() -> None:
    with pytest.raises(ValueError, match="to be pem"):
        nz.Survey([nz.Text("drink")], epsilon=1.0, mechanism="grr")
    for bad in (0, 33, 2.5):
        with pytest.raises((ValueError, TypeError), match="longest text of drink"):
            nz.Text("drink", bad)


@pytest.mark.parametrize("value", [b"\xff", "\ud800"])
def test_what_is_not_utf8_is_named(value: Any) -> None:
    """Bytes, and half of a character: the row is told, and what to do."""
    survey = nz.Survey([nz.Text("t", longest=4)], epsilon=2.0)
    with pytest.raises(ValueError, match=r"row 2, column 't': .* is no text of UTF-8\. Decode"):
        survey.privatize({"t": ["tea", value]}, rng=1)
