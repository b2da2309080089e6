"""Several choices and texts that may be left out: rates, shares among those who answered, and what no answer is."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import noisette as nz
from noisette.domains import Texts
from noisette.survey.coding.texts import NO_TEXT, OptionalText
from noisette.survey.reports import SurveyReports
from noisette.survey.results import SurveyAggregate

OPTIONS = ["phone", "tablet", "watch"]
WORDS = {"ab": 0.5, "b": 0.3, "caa": 0.2}


def devices(people: int, rng: np.random.Generator) -> list[list[str] | None]:
    """Seven of ten answer; those choose one option or two, or none."""
    return [
        None if silent else [OPTIONS[first]][: int(some)] + [OPTIONS[(first + 1) % 3]][: int(more)]
        for silent, first, some, more in zip(
            rng.random(people) < 0.3,
            rng.choice(3, people, p=[0.6, 0.3, 0.1]),
            rng.random(people) < 0.9,
            rng.random(people) < 0.4,
            strict=True,
        )
    ]


def words(people: int, rng: np.random.Generator) -> list[str | None]:
    told = rng.choice(list(WORDS), people, p=list(WORDS.values()))
    return [None if silent else str(one) for silent, one in zip(rng.random(people) < 0.3, told, strict=True)]


def _error(over: np.ndarray, under: np.ndarray) -> float:
    """Return the error of a ratio of means by what each report says, to the first order."""
    ratio = over.mean() / under.mean()
    return float((over - ratio * under).std(ddof=1) / under.mean() / math.sqrt(len(over)))


@pytest.mark.parametrize("most", [2, 0])
def test_errors_of_options_are_those_of_what_each_report_says(most: int) -> None:
    question, rng = nz.Choices("has", OPTIONS, most=most, optional=True), np.random.default_rng(2)
    survey = nz.Survey([question], epsilon=2.0, mechanism="privset" if most else "auto")
    answers = devices(20_000, rng)
    rows = survey.privatize({"has": answers}, rng=3)
    results, mechanism = survey.estimate(rows), survey.sections[0].mechanism
    assert mechanism.name == ("privset" if most else "drawn-option")
    sent = np.asarray(rows.rows["part0"])
    p_own, p_other = mechanism.p_own, mechanism.p_other
    if most:
        supported = (sent[:, :, None] == np.arange(4)).any(axis=1)
        says = (supported - p_other) / (p_own - p_other)
        every = says.sum(axis=1)
    else:  # a share is the mean of the reports about it, the number that of all reports
        drawn, yes = np.divmod(sent.reshape(-1), 2)
        about = drawn[:, None] == np.arange(4)
        told = (yes - p_other) / (p_own - p_other)
        share = (about * told[:, None]).sum(axis=0) / about.sum(axis=0)
        says = share + about * (told[:, None] - share) * 20_000 / about.sum(axis=0)
        every = 4 * told
    under = 1 - says[:, 3]
    made, number = results["has"], results["has chosen"]
    for place in range(3):
        assert made.shares.iloc[place] == pytest.approx(says[:, place].mean() / under.mean(), abs=1e-9)
        assert made.std_error.iloc[place] == pytest.approx(_error(says[:, place], under), rel=0.01)
    assert number.std_error == pytest.approx(_error(every - says[:, 3], under), rel=0.02)
    given = [one for one in answers if one is not None]
    truth = [np.mean([label in one for one in given]) for label in OPTIONS]
    assert np.all(np.abs(made.shares - truth) < 5 * made.std_error)
    assert abs(made.mean - np.mean([len(one) for one in given])) < 5 * number.std_error
    assert abs(made.response_rate - len(given) / 20_000) < 5 * results["has answered"].std_error
    planned = survey.plan(users=20_000).table().set_index("quantity")["std_error"]
    assert planned["response rate"] == pytest.approx(results["has answered"].std_error, rel=0.1)
    assert planned["mean number"] == pytest.approx(number.std_error, rel=0.3)


@pytest.mark.parametrize("letters", [None, "abc"])
def test_errors_of_texts_are_those_of_what_each_report_says(letters: str | None) -> None:
    survey = nz.Survey([nz.Text("t", 3, letters, optional=True)], epsilon=3.0)
    rng = np.random.default_rng(4)
    answers = words(40_000, rng)
    rows = survey.privatize({"t": answers}, rng=5)
    results, mechanism = survey.estimate(rows), survey.sections[0].mechanism
    top = results["t"].top().set_index("text")
    assert sorted(top.index) == sorted(WORDS)
    cell, bucket = np.divmod(np.asarray(rows.rows["part0"]).reshape(-1), mechanism.buckets)
    lengths = np.asarray(mechanism.lengths)[cell // mechanism.seeds]
    gap = mechanism.p_own - mechanism.p_other

    def says(text: str) -> np.ndarray:
        symbols = mechanism.domain.symbols([text])[0]
        return (mechanism._own(cell, np.broadcast_to(symbols, (len(cell), len(symbols)))) == bucket) / gap

    under = 1 + mechanism.p_other / gap - says(NO_TEXT)
    rate = results["t answered"]
    # what texts lend each other by collisions of the maps, in any of which two collide with a chance of 1 / buckets
    lent = sum((0.7 * share) ** 2 for share in WORDS.values()) / mechanism.seeds / (mechanism.buckets - 1)
    assert rate.std_error == pytest.approx(math.sqrt(under.var() / len(cell) + lent), rel=0.02)
    given = [one for one in answers if one is not None]
    assert abs(results["t"].response_rate - len(given) / 40_000) < 5 * rate.std_error
    measures = np.full(len(cell), True) if mechanism.at_once else cell // mechanism.seeds == len(mechanism.lengths) - 1
    assert np.all(lengths[measures] == 3)
    for word, share in WORDS.items():
        assert abs(top.loc[word, "share"] - share) < 5 * top.loc[word, "std_error"]
        own = (says(word) - mechanism.p_other / gap) * measures / measures.mean()
        error = math.hypot(_error(own, under), share * math.sqrt(lent) / 0.7)
        assert top.loc[word, "std_error"] == pytest.approx(error, rel=0.05)
        low, high = top.loc[word, ["low", "high"]]
        assert (high - low) / 2 == pytest.approx(1.96 * top.loc[word, "std_error"], rel=0.05)


def test_no_answer_and_texts_that_nobody_may_give_are_never_shown() -> None:
    survey = nz.Survey([nz.Text("t", 2, "ab", optional=True)], epsilon=8.0)
    (item,) = survey.items
    assert isinstance(item, OptionalText)
    assert item.domain == Texts(2, "ab ")
    assert OptionalText(nz.Text("t", 2, "a b", optional=True)).domain == Texts(2, "a b")
    liars = survey.privatize_coded({"t": np.asarray(["a "] * 3000 + [" "] * 3000 + ["ab"] * 4000)}, rng=1)
    results = survey.aggregate(SurveyReports(survey, liars, None)).results()
    assert results["t"].top()["text"].tolist() == ["ab"]
    assert results["t"].chosen() == ["ab"]
    assert results["t"].response_rate == pytest.approx(0.7, abs=0.02)
    for many in (0, 1001, 2.5):
        with pytest.raises((TypeError, ValueError), match=f"texts={many}"):
            results["t"].top(many)  # type: ignore[arg-type]


def test_nothing_chosen_is_an_answer_and_nothing_said_is_none(tmp_path: Path) -> None:
    has, site = nz.Choices("has", OPTIONS, most=2, optional=True), nz.Text("t", 4, optional=True)
    assert has.code(None).tolist() == [3, -1]
    assert has.code([]).tolist() == [-1, -1]
    assert has.code("phone; watch").tolist() == [0, 2]
    assert site.code(None) == NO_TEXT
    survey = nz.Survey([has, site], epsilon=4.0)
    for frame in (
        pd.DataFrame({"has": [None, ["watch"], []], "t": ["tea", None, "te"]}),
        {"has": [None, ["watch"], []], "t": ["tea", None, "te"]},
        [{"t": "tea"}, {"has": ["watch"], "t": None}, {"has": [], "t": "te"}],
    ):
        columns = _columns(frame, survey)
        assert has.column(columns).tolist() == [[3, -1], [2, -1], [-1, -1]]
        assert site.column(columns).tolist() == ["tea", NO_TEXT, "te"]
    only = _columns({"has": [None, None], "t": [None, None]}, survey)
    assert has.column(only).tolist() == [[3, -1]] * 2
    assert site.column(only).tolist() == [NO_TEXT] * 2
    path = tmp_path / "answers.csv"
    path.write_text("has,t\n,\nwatch;phone,tea\n", encoding="utf-8")
    assert survey.privatize_file(path, tmp_path / "r.parquet", rng=1) == 2
    for text, wrong in (
        ("tomato", "more than 4"),
        ("", "empty"),
        (" ", "empty"),
        ("a\n", "control"),
        (b"tea", "bytes"),
    ):
        with pytest.raises(ValueError, match=wrong):
            site.code(text if text != "a\n" else "a\nb")
    with pytest.raises(ValueError, match="row 2, column 't'"):
        survey.privatize({"has": [None, None], "t": [None, "tomato"]})
    with pytest.raises(ValueError, match="row 2, column 'has': 'radio' is not among"):
        survey.privatize({"has": [None, ["radio"]], "t": ["tea", None]})
    with pytest.raises(ValueError, match="missing"):
        nz.Survey([nz.Choices("has", OPTIONS)], epsilon=1.0).privatize({"has": [None, ["watch"]]})
    with pytest.raises(ValueError, match="missing"):
        nz.Survey([nz.Text("t")], epsilon=1.0).privatize({"t": [None, "tea"]})


def _columns(data: Any, survey: nz.Survey) -> Any:
    from noisette.survey.coding.columns import columns_of

    return columns_of(data, survey.questions, [])


@pytest.mark.parametrize("people", [0, 1, 2])
def test_of_hardly_anybody_nothing_is_told(people: int) -> None:
    asked = [nz.Choices("has", OPTIONS, most=2, optional=True), nz.Text("t", 4, optional=True)]
    survey = nz.Survey(asked, epsilon=1.0)
    if people:
        results = survey.estimate(survey.privatize({"has": [None] * people, "t": ["tea"] * people}, rng=1))
    else:
        results = SurveyAggregate.nothing(survey).results()
    table = results.table()
    told = table[table["reports"] > 0]
    assert np.isfinite(told[["low", "high"]].to_numpy(float)).all()
    assert (told["low"] <= told["high"]).all()
    assert len(results["t"].top()) == 0
    assert len(survey.plan(users=max(people, 1)).table()) == 7


def test_groups_are_compared_by_what_those_who_answered_said() -> None:
    rng = np.random.default_rng(6)
    silent = np.where(np.arange(40_000) < 20_000, 0.1, 0.6)
    told = rng.choice(list(WORDS), 40_000, p=list(WORDS.values()))
    answers = [
        None if one < chance else str(word) for one, chance, word in zip(rng.random(40_000), silent, told, strict=True)
    ]
    survey = nz.Survey([nz.Text("t", 3, "abc", optional=True)], epsilon=4.0, groups={"g": ["x", "y"]})
    results = survey.estimate(survey.privatize({"t": answers, "g": ["x"] * 20_000 + ["y"] * 20_000}, rng=7))
    table = results.compare("g").set_index("quantity")
    assert table.loc["response rate", "difference"] == pytest.approx(-0.5, abs=0.03)
    for word in WORDS:
        assert table.loc[word, "low"] < 0 < table.loc[word, "high"]
        assert abs(table.loc[word, "difference"]) < 0.1
