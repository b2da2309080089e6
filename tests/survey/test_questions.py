"""Every kind of question at each of its ends: what is taken, what is refused, what it is worth, what is written."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from noisette.survey.coding.columns import Columns
from noisette.survey.questions import (
    Choice,
    Choices,
    Graded,
    Number,
    Question,
    Tensor,
    Text,
    Vector,
    _all_fine,
    read_question,
    text,
    texts,
)

AGE = Number("age", 10, 50)
WHOLE = Number("n", -2, 7, whole=True)
OPEN = Number("o", 1, 4, optional=True)
BORN = Number("born", "1990-01-01", "1990-12-31")
RISES = Number("rises", "05:00", "10:00")
BY = Choice("by", ["car", "bike", "bus"])
FREE = Choice("free", ["yes", "no"], optional=True)
HAS = Choices("has", ["cat", "dog", "fish", "bird", "snake"], most=2)


def held(columns: dict[str, list[Any]]) -> Columns:
    return Columns(columns, len(next(iter(columns.values()))))


def wrong(call: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize(
    ("question", "inside", "outside"),
    [
        (AGE, [10, 50, 10.5, 49.999], [9.999, 50.001, math.inf, -math.inf]),
        (WHOLE, [-2, 7, 0], [-3, 8]),
        (OPEN, [1, 4], [0.9, 4.1]),
        (Graded("g", [(0, 50, 2.0), (50, 100, 1.0)]), [0, 100, 50], [-0.1, 100.1]),
    ],
)
def test_numbers_at_the_ends_of_their_range(question: Any, inside: list[float], outside: list[float]) -> None:
    low, high = question.domain.low, question.domain.high
    for value in inside:
        assert float(question.code(value)) == value
        assert float(question.code(value, clip=True)) == value
        assert question.column(held({question.name: [value, inside[0]]})).tolist() == [value, inside[0]]
    for value in outside:
        wrong(lambda: question.code(value), f"Expected {question.name}=.* in ")  # noqa: B023 - called at once
        assert float(question.code(value, clip=True)) == min(max(value, low), high)
        if math.isfinite(value):
            mixed = held({question.name: [inside[0], value, inside[1]]})
            wrong(lambda: question.column(mixed), "is outside")  # noqa: B023 - called at once
            assert question.column(mixed, clip=True).tolist() == [inside[0], min(max(value, low), high), inside[1]]
    wrong(lambda: question.code(math.nan), "got nan")


def test_numbers_that_are_missing_or_not_whole() -> None:
    assert math.isnan(float(OPEN.code(None)))
    found = OPEN.column(held({"o": [2.0, None, 4.0]}))
    assert found[[0, 2]].tolist() == [2.0, 4.0]
    assert np.isnan(found[1])
    wrong(lambda: OPEN.column(held({"o": [2.0, None, 4.5]})), "is outside")
    assert np.isnan(OPEN.column(held({"o": [None, 9.0]}), clip=True)).tolist() == [True, False]
    with pytest.raises((ValueError, TypeError)):
        AGE.code(None)
    wrong(lambda: WHOLE.code(3.5), "whole number")
    assert math.isnan(float(Number("n", -2, 7, whole=True, optional=True).code(None)))
    wrong(lambda: WHOLE.column(held({"n": [1, 3.5, 2]})), "whole number, got 3.5")
    assert WHOLE.column(held({"n": [1, 7]})).tolist() == [1, 7]


def test_dates_and_times_are_numbers_of_their_axis() -> None:
    assert (BORN.axis, RISES.axis, AGE.axis) == ("date", "time", "number")
    assert (BORN.whole, RISES.whole) == (True, False)
    assert (BORN.low, BORN.high) == (7305.0, 7669.0)  # 20 years of 365 days, and five leap days
    assert (RISES.low, RISES.high) == (5 * 3600.0, 10 * 3600.0)
    assert float(BORN.code("1990-01-02")) == 7306.0
    assert float(RISES.code("05:30")) == 5.5 * 3600
    wrong(lambda: BORN.code("1991-01-01"), "born='1991-01-01' in 1990-01-01 to 1990-12-31")
    wrong(lambda: RISES.code("04:59"), "in 05:00:00 to 10:00:00")
    wrong(lambda: BORN.column(held({"born": ["1990-01-02", "1989-12-31"]})), "1989-12-31 is outside 1990-01-01 to")
    assert BORN.written() == {"name": "born", "range": ["1990-01-01", "1990-12-31"]}
    assert RISES.written()["range"] == ["05:00:00", "10:00:00"]
    wrong(lambda: Number("x", "1990-01-01", 5), "to be numbers, dates or times")
    assert math.isnan(float(Number("d", "1990-01-01", "1990-12-31", optional=True).code(None)))


def test_what_a_number_may_be() -> None:
    for low, high in ((0, 1e90), (0, 1e-90), (-5e89, 5e89)):
        assert Number("x", low, high).high == high
    for low, high in ((0, 1.01e90), (0, 0.99e-90)):
        wrong(lambda: Number("x", low, high), "rescale the values")  # noqa: B023 - called at once
    for low, high in ((1, 1), (2, 1), (0, math.inf), (-math.inf, 0), (math.nan, 1)):
        wrong(lambda: Number("x", low, high), "range of 'x' to be finite, low < high")  # noqa: B023 - called at once
    wrong(lambda: Number("x", 0, 1, "mode"), "want='mode'")
    wrong(lambda: Number("x", 0, 1.5, whole=True), "whole numbers as ends")
    wrong(lambda: Number("x", 0.5, 1, whole=True), "whole numbers as ends")
    for want in ("distribution", "quantiles", "variance"):
        wrong(lambda: Number("x", 0, 1, want, optional=True), "which is optional")  # noqa: B023 - called at once
    flags: Any = ("yes", 1, None)
    for flag in flags:
        wrong(lambda: Number("x", 0, 1, optional=flag), "optional=")  # noqa: B023 - called at once
        wrong(lambda: Number("x", 0, 1, whole=flag), "whole=")  # noqa: B023 - called at once
        wrong(lambda: Choice("x", ["a", "b"], optional=flag), "optional=")  # noqa: B023 - called at once


@pytest.mark.parametrize(
    ("question", "signals", "spans"),
    [
        (AGE, [20.0], [40.0]),
        (Number("v", 10, 16, "variance"), [3.0, 9.0], [6.0, 9.0]),
        (Number("q", 10, 16, "quantiles"), [3.0] * 5, [6.0] * 5),
        (BY, [math.sqrt(2) / 3] * 3, [1.0] * 3),
        (HAS, [math.sqrt(0.4 * 0.6)] * 5, [1.0] * 5),
        (Choices("c", ["a", "b", "c"]), [0.5] * 3, [1.0] * 3),
        (Vector("w", 3, -1, 5), [3.0] * 3, [6.0] * 3),
        (Vector("l", 4, length=6.0), [3.0] * 4, [12.0] * 4),
        (Tensor("t", (2, 3), 0, 5), [2.5] * 6, [5.0] * 6),
        (Graded("g", [(0, 50, 2.0), (50, 90, 1.0)]), [45.0], [90.0]),
        (Text("s"), [0.04], [1.0]),
    ],
)
def test_how_large_quantities_are(question: Question, signals: list[float], spans: list[float]) -> None:
    assert question.signals.tolist() == pytest.approx(signals)
    assert question.spans.tolist() == pytest.approx(spans)
    assert len(question.quantities) == len(signals)


def test_who_asks_for_more_than_a_mean() -> None:
    wants = {want: Number("x", 0, 1, want) for want in ("mean", "distribution", "quantiles", "variance")}
    assert [one.wants_distribution for one in wants.values()] == [False, True, True, False]
    assert [one.plain for one in wants.values()] == [True, True, False, False]
    assert Graded("g", [(0, 1, 1.0), (1, 2, 2.0)]).wants_distribution is True
    assert BY.wants_distribution is False
    assert wants["variance"].quantities == ("x", "x: variance")
    assert [one.plain for one in (BY, HAS, Vector("v", 2, 0, 1), Text("t"))] == [True, False, False, False]
    assert [one.optional for one in (HAS, OPEN, FREE)] == [False, True, True]


def test_labels_are_coded_by_their_place() -> None:
    assert [int(BY.code(label)) for label in ("car", "bike", "bus")] == [0, 1, 2]
    assert int(FREE.code(None)) == 2
    assert BY.column(held({"by": ["bus", "car"]})).tolist() == [2, 0]
    assert FREE.column(held({"free": ["no", None, "yes"]})).tolist() == [1, 2, 0]
    for value in ("Car", "train", 1, None, True):
        wrong(lambda: BY.code(value), "to be one of")  # noqa: B023 - called at once
    wrong(lambda: BY.column(held({"by": ["bus", "train"]})), "train")
    wrong(lambda: BY.column(held({"by": ["bus", None]})), "by")


def test_several_labels_and_how_many() -> None:
    assert HAS.code(["fish", "cat"]).tolist() == HAS.code(" fish ; cat;").tolist()
    assert sorted(HAS.code(["fish", "cat"]).tolist()) == [0, 2]
    assert sorted(HAS.code([]).tolist()) == sorted(HAS.code("").tolist()) == [-1, -1]
    for value, message in (
        (["cat", "dog", "fish"], "has:"),
        (["cow"], "has: 'cow' to be one of"),
        ([1], "to be a list of labels"),
        (3, "to be a list of labels"),
    ):
        wrong(lambda: HAS.code(value), message)  # noqa: B023 - called at once
    assert (Choices("c", ["a", "b", "c"]).most, Choices("c", ["a", "b", "c"], 3).most) == (3, 3)
    assert Choices("c", ["a", "b", "c"], 1).most == 1
    for most in (-1, 4):
        wrong(lambda: Choices("c", ["a", "b", "c"], most), "most of 'c'")  # noqa: B023 - called at once
    wrong(lambda: Choices("c", ["a", "b;c"]), "without ';', got 'b;c'")


def test_vectors_and_tensors() -> None:
    vector, ball, tensor = Vector("v", 2, -1, 3), Vector("b", 2, length=5.0), Tensor("t", [2, 3], 0, 1)
    assert vector.code([-1, 3]).tolist() == [-1, 3]
    wrong(lambda: vector.code([-1, 3.1]), r"Expected v in")
    assert vector.code([-1.5, 3.1], clip=True).tolist() == [-1, 3]
    for value in ([1], [1, 2, 3], 1.0):
        wrong(lambda: vector.code(value), r"v of shape \(2,\)")  # noqa: B023 - called at once
    for value in ([1, math.nan], [math.inf, 1]):
        wrong(lambda: vector.code(value), "finite numbers")  # noqa: B023 - called at once
    wrong(lambda: vector.column(held({"v": [[0, 0], [0, 4]]})), "the vector is outside")
    assert vector.column(held({"v": [[0, 0], [0, 4]]}), clip=True).tolist() == [[0, 0], [0, 3]]
    assert (vector.low, vector.high, ball.low) == (-1.0, 3.0, None)
    assert tensor.shape == (2, 3)
    for dims in (1, 0):
        wrong(lambda: Vector("v", dims, 0, 1), "vector of v")  # noqa: B023 - called at once
    assert Vector("v", 1_000_000, 0, 1).dims == 1_000_000
    wrong(lambda: Vector("v", 1_000_001, 0, 1), "vector of v")
    for ends in ({}, {"low": 0}, {"high": 1}, {"low": 0, "high": 1, "length": 1.0}):
        wrong(lambda: Vector("v", 3, **ends), "a range, low and high, or a length")  # noqa: B023 - called at once
    wrong(lambda: Vector("v", 3, length=0.0), "length of v")
    shapes: Any = ([5], 5, [1, 1], [1000, 1001], [0, 5], [2, 1_000_001])
    for shape in shapes:
        wrong(lambda: Tensor("t", shape, 0, 1), "tensor")  # noqa: B023 - called at once
    assert Tensor("t", [1, 2], 0, 1).shape == (1, 2)
    assert Tensor("t", [1000, 1000], 0, 1).shape == (1000, 1000)


def test_levels_are_triples_one_after_the_other() -> None:
    found = Graded("g", [[0, 50, 2.0], [50, 100, 1.0]])
    assert found.levels == ((0.0, 50.0, 2.0), (50.0, 100.0, 1.0))
    levels: Any = ([[0, 50]], [[0, 50, 1.0, 2.0]], 5, [5], [[0, 50, 2.0], [50, 100]])
    for given in levels:
        wrong(lambda: Graded("g", given), "lists of low, high and budget")  # noqa: B023 - called at once


def test_texts_and_how_long() -> None:
    assert (Text("s").longest, Text("s", 1).longest, Text("s", 32).longest) == (24, 1, 32)
    for longest in (0, 33):
        wrong(lambda: Text("s", longest), "longest text of s")  # noqa: B023 - called at once
    assert str(Text("s", 3).code(" abc ")) == "abc"
    wrong(lambda: Text("s", 3).code("abcd"), "Expected s='abcd'")
    wrong(lambda: Text("s", 3, "abc").code("abd"), "abd")
    assert Text("s", 3).column(held({"s": ["a", "abc"]})).tolist() == ["a", "abc"]
    wrong(lambda: Text("s", 3).column(held({"s": ["a", "abcd", "b"]})), "'abcd'")


WRITTEN: list[dict[str, Any]] = [
    {"name": "a", "range": [0.0, 1.0]},
    {"name": "a", "range": [0.0, 1.0], "optional": True},
    {"name": "a", "range": [0.0, 1.0], "want": "variance"},
    {"name": "a", "range": [0.0, 9.0], "whole": True},
    {"name": "a", "range": [0.0, 9.0], "want": "quantiles", "whole": True},
    {"name": "a", "categories": ["x", "y"]},
    {"name": "a", "categories": ["x", "y"], "optional": True},
    {"name": "a", "options": ["x", "y", "z"], "most": 2},
    {"name": "a", "options": ["x", "y", "z"], "most": 2, "optional": True},
    {"name": "a", "vector": 3, "range": [0.0, 1.0]},
    {"name": "a", "vector": 3, "length": 2.0},
    {"name": "a", "tensor": [2, 3], "range": [0.0, 1.0]},
    {"name": "a", "levels": [[0.0, 1.0, 2.0], [1.0, 3.0, 1.0]]},
    {"name": "a", "text": 7},
    {"name": "a", "text": 7, "alphabet": "abc"},
    {"name": "a", "text": 7, "optional": True},
    {"name": "a", "text": 7, "alphabet": "abc", "optional": True},
]


@pytest.mark.parametrize("entry", WRITTEN, ids=str)
def test_what_is_written_is_read_again(entry: dict[str, Any]) -> None:
    question = read_question(entry)
    assert question.written() == entry
    assert read_question(question.written()) == question
    wrong(lambda: read_question(entry | {"other": 1}), "Expected a question with a name")
    if question.kind not in ("number", "category", "choices", "text"):
        wrong(lambda: read_question(entry | {"optional": True}), "Ask for each number as one that is optional")


def test_entries_that_are_no_questions() -> None:
    for entry in (None, 5, [], {}, {"name": "a"}, {"range": [0, 1]}, {"name": "a", "most": 1}):
        wrong(lambda: read_question(entry), "Expected a question")  # noqa: B023 - called at once
    for ends in ([0], [0, 1, 2], (0, 1), 5):
        wrong(lambda: read_question({"name": "a", "range": ends}), "two numbers")  # noqa: B023 - called at once


def test_names_are_texts_of_one_line() -> None:
    assert text("n" * 200, "name") == "n" * 200
    assert text("a", "name") == "a"
    for value in ("", "n" * 201, "a\nb", "a\x00", 5, None, True):
        wrong(lambda: text(value, "name"), "to be a text of one line")  # noqa: B023 - called at once
    assert Number("n" * 200, 0, 1).name == "n" * 200
    wrong(lambda: Number("n" * 201, 0, 1), "name of a question")


@pytest.mark.parametrize(
    ("values", "fine"),
    [
        (["a", "b"], True),
        (["a b", "c"], True),
        (["n" * 200, "b"], True),
        (["n" * 201, "b"], False),
        (["a", ""], False),
        (["", "a"], False),
        ([" a", "b"], False),
        (["a", " b"], False),
        (["a ", "b"], False),
        (["a", "b "], False),
        (["a", 5], False),
        (["a", "b\n"], False),
        (["a", None], False),
    ],
)
def test_lists_of_texts_with_one_wrong_entry(values: list[Any], fine: bool) -> None:
    assert _all_fine(values) is fine
    if fine:
        assert texts(values, "labels") == texts(tuple(values), "labels") == tuple(values)
        assert texts(np.asarray(values), "labels") == tuple(values)
    else:
        wrong(lambda: texts(values, "labels"), "labels")


def test_two_different_labels_at_least() -> None:
    assert len(Choice("c", ["a", "b"]).labels) == 2
    wrong(lambda: Choice("c", ["a"]), "at least two categories of 'c'")
    wrong(lambda: Choice("c", ["a", "b", "a"]), "distinct labels as categories of 'c'")
    labels: Any = "ab"
    wrong(lambda: Choice("c", labels), "to be texts")
