"""Several choices: shares and their number from lists and texts, by files and answers, and what is refused."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import noisette as nz

LABELS = ["phone", "tablet", "watch", "tv"]


def survey(**options: Any) -> nz.Survey:
    return nz.Survey([nz.Choices("devices", LABELS, most=2)], epsilon=3.0, **options)


def people(count: int) -> list[list[str]]:
    rng = np.random.default_rng(1)
    return [[LABELS[j] for j in np.flatnonzero(rng.random(4) < [0.5, 0.2, 0.1, 0.05])][:2] for _ in range(count)]


@pytest.mark.slow
def test_shares_and_the_mean_number() -> None:
    chosen = people(4000)
    results = survey().estimate(survey().privatize({"devices": chosen}, rng=1))
    answer = results["devices"]
    truth = [sum(label in one for one in chosen) / 4000 for label in LABELS]
    assert list(answer.shares.index) == LABELS
    assert np.all(np.abs(answer.shares - truth) < 5 * answer.std_error)
    assert abs(answer.mean - sum(truth)) < 5 * results["devices chosen"].std_error
    low, high = results["devices chosen"].interval(0.95)
    assert low < answer.mean < high
    assert (answer.interval()["low"] < answer.shares).all()
    planned = survey().plan(users=4000).table().set_index("quantity")["std_error"]
    assert planned["mean number"] == pytest.approx(results["devices chosen"].std_error, rel=0.3)
    assert planned["phone"] == pytest.approx(answer.std_error["phone"], rel=0.3)


def test_lists_texts_and_files_are_the_same(tmp_path: Path) -> None:
    chosen = people(300)
    lists = survey().privatize(pd.DataFrame({"devices": chosen}), rng=5).rows
    texts = [" ; ".join(one) for one in chosen]
    assert np.array_equal(survey().privatize({"devices": texts}, rng=5).rows, lists)
    frame = pd.DataFrame({"devices": [";".join(one) for one in chosen]})
    frame.to_csv(tmp_path / "people.csv", index=False)
    survey().privatize_file(tmp_path / "people.csv", tmp_path / "reports.parquet", rng=5)
    again = survey().estimate(tmp_path / "reports.parquet").table()
    assert again.equals(survey().estimate(survey().privatize({"devices": chosen}, rng=5)).table())
    survey(groups={"region": ["n", "s"]}).save(tmp_path / "survey.yaml")
    assert nz.Survey.read(tmp_path / "survey.yaml") == survey(groups={"region": ["n", "s"]})


@pytest.mark.long
def test_beside_other_questions_and_in_groups() -> None:
    asked = [nz.Choices("devices", LABELS, most=2), nz.Number("age", 18, 99)]
    both = nz.Survey(asked, epsilon=6.0, groups={"region": ["n", "s"]})
    data = {"devices": people(2000), "age": np.full(2000, 40.0), "region": ["n", "s"] * 1000}
    results = both.estimate(both.privatize(data, rng=2))
    assert set(results.table()["question"]) == {"devices", "age", "devices chosen"}
    assert "devices chosen" in set(results.compare("region")["question"])
    assert results.by("region")["n"]["devices"].shares.size == 4


def test_one_person_answers() -> None:
    for value in (["tv", "phone"], "tv;phone", [], ""):
        report = survey().answer({"devices": value}, rng=1)
        survey().decode([report])
    for value, told in {
        ("radio",): "'radio' to be one of phone, tablet, watch, tv",
        ("tv", "tv"): "each option once",
        ("tv", "phone", "watch"): "at most 2 options",
    }.items():
        with pytest.raises(ValueError, match=told):
            survey().answer({"devices": list(value)})
    for wrong in (None, 5, [3]):
        with pytest.raises(ValueError, match="to be a list of labels, empty for none"):
            survey().answer({"devices": wrong})


@pytest.mark.parametrize(
    ("column", "told"),
    [
        ([["tv"], ["radio"]], r"row 2, column 'devices': 'radio' is not among the options 'phone'"),
        ([["tv", "tv"]], r"row 1, column 'devices': expected each option once"),
        (["phone;tablet;watch"], r"row 1, column 'devices': expected at most 2 options, got 3"),
        ([["tv"], None], r"row 2, column 'devices': the list is missing"),
        ([5], r"row 1, column 'devices': '5' is not among"),
    ],
)
def test_bad_columns_are_refused_by_row(column: list[Any], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        survey().privatize({"devices": column})


def test_bad_questions_are_refused() -> None:
    with pytest.raises(ValueError, match=r"without ';', got 'a;b'"):
        nz.Choices("q", ["a;b", "c"])
    with pytest.raises(ValueError, match="Expected 0 <= most of 'q' <= 2, got most of 'q'=3"):
        nz.Choices("q", ["a", "b"], most=3)
    with pytest.raises(ValueError, match="Expected distinct labels"):
        nz.Choices("q", ["a", "a"])
    assert nz.Choices("q", ["a", "b", "c"]).most == 3


def test_auto_takes_the_mechanism_of_least_variance() -> None:
    anything = nz.Survey([nz.Choices("q", [f"o{j}" for j in range(10)])], epsilon=1.0)
    few = nz.Survey([nz.Choices("q", [f"o{j}" for j in range(10)], most=3)], epsilon=1.0)
    assert anything.answering.sections[0].mechanism.name == "drawn-option"
    assert few.answering.sections[0].mechanism.name == "privset"
    named = nz.Survey([nz.Choices("q", ["a", "b", "c"])], epsilon=1.0, mechanism="privset")
    assert named.answering.sections[0].mechanism.name == "privset"


@pytest.mark.long
@pytest.mark.parametrize(("most", "epsilon"), [(4, 1.0), (2, 4.0)])
def test_intervals_cover(most: int, epsilon: float) -> None:
    """Of 150 collections, at a false-alarm rate of 1e-6; (2, 1.0) is a study of benchmarks/intervals.py."""
    asked = nz.Survey([nz.Choices("devices", LABELS, most=most)], epsilon=epsilon)
    mechanism = asked.answering.sections[0].mechanism
    rng = np.random.default_rng(3)
    rows = mechanism.domain.encode([one[:most] for one in people(2000)])
    truth = mechanism.target(rows).mean(axis=0)
    inside = np.zeros(truth.size)
    for _ in range(150):
        low, high = mechanism.aggregate(mechanism.privatize(rows, rng=rng)).estimate().interval(0.95)
        inside += (low <= truth) & (truth <= high)
    assert np.all(inside / 150 > 0.95 - 4.9 * np.sqrt(0.95 * 0.05 / 150))


def test_a_message_names_a_few_of_many_labels() -> None:
    labels = [f"label {place}" for place in range(10_000)]
    one, several = (
        nz.Survey([kind("q", labels)], epsilon=1.0, mechanism=name)
        for kind, name in ((nz.Choice, "grr"), (nz.Choices, "drawn-option"))
    )
    for asked, answer in ((one, "pizza"), (several, ["pizza"])):
        with pytest.raises(ValueError, match=r"to be one of label 0, .* label 7 and 9,992 more"):
            asked.answer({"q": answer})
    with pytest.raises(ValueError, match=r"'pizza'; expected one of .* and 9,992 more"):
        nz.Categorical(labels=labels).encode(["pizza"])
    with pytest.raises(ValueError, match="distinct labels, got 'label 3' twice"):
        nz.Categorical(labels=[*labels, "label 3"])


def test_one_row_of_many_that_names_an_option_twice() -> None:
    survey = nz.Survey([nz.Choices("c", ["x", "y", "z"], most=3)], epsilon=1.0)
    rows = [["x", "y"], ["z"], ["y", "x", "y"], []]
    with pytest.raises(ValueError, match=r"row 3, column 'c': expected each option once, got it twice"):
        survey.privatize({"c": rows}, rng=1)
    rows[2] = ["y", "x"]
    assert survey.estimate(survey.privatize({"c": rows}, rng=1)).users == 4


@pytest.mark.slow
def test_the_plan_knows_that_one_option_is_drawn() -> None:
    """By hand: d E / (E - 1)^2 of the noise, and (d - 1) / 4 of the draw where half of the people chose an option.

    Nearly all of it is the draw at epsilon 4: without it, as where everybody chose all, the plan was 3 times too small.
    """
    odds, users = math.exp(4.0), 4000
    survey = nz.Survey([nz.Choices("c", ["a", "b", "c"])], epsilon=4.0, mechanism="drawn-option")
    by_hand = 3 * odds / (odds - 1) ** 2 + 2 / 4
    assert survey.predict(users)[:3] ** 2 * users == pytest.approx(by_hand, rel=1e-9)
    world = np.random.default_rng(5)
    members = world.random((users, 3)) < 0.5
    people = {"c": [[name for name, own in zip("abc", row, strict=True) if own] for row in members]}
    seen = [survey.estimate(survey.privatize(people, rng=world))["c"].shares.to_numpy() for _ in range(100)]
    # 300 squares, of which three of a collection depend on each other: 14 % at most is their error
    assert np.mean((np.asarray(seen) - members.mean(axis=0)) ** 2) * users == pytest.approx(by_hand, rel=0.5)
