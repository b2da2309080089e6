"""Sections of a survey by hand: shares of people, tickets, pieces of estimates, and columns with one wrong entry."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import noisette as nz
from noisette.core import Estimate
from noisette.domains import TensorDomain
from noisette.survey.coding.columns import Columns, columns_of, entry_names, needed
from noisette.survey.coding.sections import Section, Together, flat, grouped, piece, read_sections
from noisette.survey.questions import Choice, Choices, Number, Vector

SURVEY = nz.Survey([nz.Number("x", 0, 1), nz.Choice("c", ["a", "b"]), nz.Vector("v", 3, -1, 1)], epsilon=4.0)


def together(*signals: list[float], draw: tuple[int, ...] = ()) -> Any:
    """Sections whose error for n people is 1 / n for each quantity."""
    sections = [
        SimpleNamespace(
            questions=[SimpleNamespace(signals=np.asarray(own))],
            predict=lambda users, own=own: np.full(len(own), 1 / users),
        )
        for own in signals
    ]
    return Together(tuple(sections), draw)  # type: ignore[arg-type]  # what it asks of sections


def test_errors_of_sections_that_are_drawn() -> None:
    """A fifth of 50 people answer the first: its own error for 10, and the scatter of a sample of a fifth."""
    shared = together([2.0, 3.0], [4.0])
    assert shared.predict(50).tolist() == [1 / 50] * 3
    drawn = together([2.0, 3.0], [4.0], draw=(1, 4))
    first = [math.sqrt(1 / 10**2 + size**2 * (5 - 1) / 50) for size in (2.0, 3.0)]
    second = math.sqrt(1 / 40**2 + 4.0**2 * (5 / 4 - 1) / 50)
    assert drawn.predict(50).tolist() == pytest.approx([*first, second])
    assert np.isfinite(drawn.predict(1)).all()  # one person at least is asked
    assert drawn.predict(1)[0] == pytest.approx(math.sqrt(1 + 4.0 * 4))


def test_what_sections_spend_together() -> None:
    for each in ([0.5, 0.25], [0.1, 0.2, 0.3]):
        assert together(draw=(1,) * len(each)).total(each) == max(each)
        total = together().total(each)
        assert sum(each) <= total <= sum(each) * (1 + 1e-12)


def test_tickets_fall_to_sections_by_their_numbers() -> None:
    drawn = together([1.0], [1.0], [1.0], draw=(2, 1, 3))
    assert drawn.drawn(np.arange(6)).tolist() == [0, 0, 1, 2, 2, 2]


def test_names_of_a_plan_are_those_of_so_many_people() -> None:
    asked = list[tuple[str, int]]()

    def named(label: str) -> Any:
        item = SimpleNamespace(questions=(label,))
        item.planned_name = lambda mechanism, users, quantity: asked.append((mechanism, users)) or f"{label}!"
        return item

    sections = [
        SimpleNamespace(items=[named("a")], mechanism="m"),
        SimpleNamespace(items=[named("b"), named("c")], mechanism="n"),
    ]
    for draw, users in (((), 100), ((1, 3), 25)):
        both = Together(tuple(sections), draw)  # type: ignore[arg-type]
        asked.clear()
        assert both.planned_name("a", "q", 100) == "a!"  # type: ignore[arg-type]
        assert asked == [("m", users)]
        assert both.planned_name("b", "q", 100) == "q"  # type: ignore[arg-type]  # in a record nothing is renamed
        assert both.planned_name("z", "q", 100) == "q"  # type: ignore[arg-type]
    assert Together(tuple(sections), (1, 3)).planned_name("a", "q", 1) == "a!"  # type: ignore[arg-type]
    assert asked[-1] == ("m", 1)


def test_a_piece_of_an_estimate() -> None:
    told: dict[str, Any] = {
        "names": tuple("abcd"),
        "low": np.asarray([0.0, 1.0, 2.0, 3.0]),
        "high": 9.0,
        "ends": (np.asarray([-1.0, -2.0, -3.0, -4.0]), 8.0),
        "noise": np.asarray([0.1, 0.2, 0.3, 0.4]),
    }
    whole = Estimate(np.arange(4.0), np.arange(4.0) / 10, np.asarray(7), **told)
    part = piece(whole, slice(1, 3))
    assert (part.value.tolist(), part.std_error.tolist(), part.names) == ([1.0, 2.0], [0.1, 0.2], ("b", "c"))
    assert np.asarray(part.count).tolist() == [7, 7]
    assert (np.asarray(part.low).tolist(), part.high) == ([1.0, 2.0], 9.0)
    assert part.ends is not None
    assert (np.asarray(part.ends[0]).tolist(), part.ends[1]) == ([-2.0, -3.0], 8.0)
    assert np.asarray(part.noise).tolist() == [0.2, 0.3]
    bare = piece(Estimate(np.arange(4.0), np.arange(4.0), np.full(4, 2)), slice(0, 1))
    assert (bare.names, bare.ends, bare.noise) == (None, None, None)


def test_sections_are_read_again() -> None:
    made = SURVEY.sections
    items = [item for one in made for item in one.items]
    assert [len(own) for own in grouped(items)] == [2, 1]
    spec = {"mechanism": "together", "parts": [one.mechanism.spec() for one in made]}
    assert read_sections(items, spec).draw == ()
    assert read_sections(items, spec | {"draw": [2, 1]}).draw == (2, 1)
    assert read_sections(items, spec | {"draw": [2**31, 1]}).draw == (2**31, 1)
    for wrong, message in (
        (spec | {"draw": [1]}, "draw="),
        (spec | {"draw": [0, 1]}, "draw"),
        (spec | {"draw": [2**31 + 1, 1]}, "draw"),
        (spec | {"draw": 5}, "draw="),
        (spec | {"parts": spec["parts"][:1]}, "of 2 sections"),
        (spec | {"parts": 5}, "of 2 sections"),
        (made[0].mechanism.spec(), "of 2 sections"),
    ):
        with pytest.raises(ValueError, match=message):
            read_sections(items, wrong)
    with pytest.raises(ValueError, match="Expected a mechanism for"):
        Section(made[0].items, made[1].mechanism)
    one = read_sections(made[1].items, made[1].mechanism.spec())
    assert (len(one.sections), one.sections[0].weight, made[0].weight) == (1, 1, 2)
    assert flat(TensorDomain((2, 3), -1.0, 4.0)).spec() == nz.Box(6, -1.0, 4.0).spec()


def test_dimensions_of_a_report_are_whole_and_small() -> None:
    survey = nz.Survey([nz.Vector("v", 3, -1, 1)], epsilon=1.0, mechanism="piecewise", report=2)
    (section,) = survey.sections
    assert section.shape == (2, 2)
    value = 0.25
    good = np.asarray([[[0, value], [2, value]]])
    assert section.reports(good).indices.tolist() == [[0, 2]]
    for strange in (0.5, 2.0**31, -(2.0**31), math.inf, math.nan):
        bad = good.copy()
        bad[0, 1, 0] = strange
        with pytest.raises(ValueError, match="outside the support"):
            section.reports(bad)
    edge = good.copy()
    edge[0, 1, 0] = 2.0**31 - 1
    assert section.reports(edge).indices.tolist() == [[0, 2**31 - 1]]


def held(name: str, values: Any, **given: Any) -> Columns:
    return Columns({name: values}, len(values), **given)


def test_a_place_is_counted_from_one() -> None:
    assert held("x", [1]).place(0, "x") == "row 1, column 'x'"
    assert held("x", [1], source="f.csv, ", before=1999).place(4, "x") == "f.csv, row 2,004, column 'x'"
    kept = held("x", [1, 2], before=10, kept=np.asarray([3, 7]))
    assert kept.place(1, "x") == "row 18, column 'x'"


def test_numbers_with_one_wrong_entry() -> None:
    assert held("x", [1, 2.5]).numbers("x").tolist() == [1, 2.5]
    assert held("x", ["1", "2.5"]).numbers("x").tolist() == [1, 2.5]
    for values, row in (([1, None, 3], 2), ([1, 2, math.inf], 3), (["1", "x"], 2), ([math.nan, 1.0], 1)):
        with pytest.raises(ValueError, match=f"row {row}, column 'x'"):
            held("x", values).numbers("x")
    found = held("x", [1.0, None, 3.0]).numbers("x", missing=True)
    assert np.isnan(found).tolist() == [False, True, False]
    assert held("x", ["1", "", None, "4"]).numbers("x", missing=True)[[0, 3]].tolist() == [1.0, 4.0]
    for values, row in (([None, 1.0, math.inf], 3), ([None, "1", "x"], 3)):
        with pytest.raises(ValueError, match=f"row {row}, column 'x'"):
            held("x", values).numbers("x", missing=True)
    with pytest.raises(ValueError, match=r"one value a person.*\(2, 2\)"):
        held("x", np.zeros((2, 2))).numbers("x")


@pytest.mark.parametrize("missing", [False, True])
def test_labels_with_one_wrong_entry(missing: bool) -> None:
    labels = ["a", "b", "True"]
    assert held("c", ["b", "a"]).codes("c", labels, missing=missing).tolist() == [1, 0]
    assert held("c", [True, True]).codes("c", labels, missing=missing).tolist() == [2, 2]
    packed = pa.array(["b", "a", "b"]).dictionary_encode()
    assert held("c", packed).codes("c", labels, missing=missing).tolist() == [1, 0, 1]
    unused = pa.DictionaryArray.from_arrays(pa.array([0, 0]), pa.array(["a", "other"]))
    assert held("c", unused).codes("c", labels, missing=missing).tolist() == [0, 0]
    with pytest.raises(ValueError, match="row 3, column 'c': 'z' is not among"):
        held("c", ["a", "b", "z"]).codes("c", labels, missing=missing)
    with pytest.raises(ValueError, match="with a fraction"):
        held("c", [1.5, 2.5]).codes("c", labels, missing=missing)
    with pytest.raises(ValueError, match="row 2, column 'c' holds numbers with a fraction"):
        held("c", np.asarray([1.0, np.inf])).codes("c", ["1", "2"], missing=missing)
    assert held("c", np.asarray([2.0, 1.0])).codes("c", ["1", "2"], missing=missing).tolist() == [1, 0]
    if missing:  # a column of integers of which some are missing is one of floats in pandas
        assert held("c", np.asarray([2.0, np.nan, 1.0])).codes("c", ["1", "2"], missing=True).tolist() == [1, 2, 0]
        assert held("c", ["b", None, "", "a"]).codes("c", labels, missing=True).tolist() == [1, 3, 3, 0]
        assert held("c", [None, None]).codes("c", labels, missing=True).tolist() == [3, 3]
        with pytest.raises(ValueError, match="row 3, column 'c': 'z'"):
            held("c", ["a", None, "z"]).codes("c", labels, missing=True)
        gaps = pa.array(["b", None, "a"]).dictionary_encode()
        assert held("c", gaps).codes("c", labels, missing=True).tolist() == [1, 3, 0]
    else:
        with pytest.raises(ValueError, match="row 2"):
            held("c", ["b", None]).codes("c", labels)


def test_several_labels_with_one_wrong_entry() -> None:
    labels = ["p", "q", "r", "s"]

    def chosen(values: Any, most: int = 3) -> Any:
        return held("m", values).selections("m", labels, most).tolist()

    rows = [[3, -1, -1], [0, 2, -1], [-1, -1, -1], [0, 1, 2]]
    assert chosen(["s", " r ;p", "", "q;r;p"]) == rows
    assert chosen([["s"], ["r", "p"], [], ["q", "r", "p"]]) == rows
    assert chosen([{"s"}, {"r", "p"}, set(), ("q", "r", "p")]) == rows
    assert chosen(pa.array([["s", "p"], ["q", "r"]], pa.list_(pa.string(), 2)), 2) == [[0, 3], [1, 2]]
    for values, message in (
        ([["p"], ["z"]], "row 2, column 'm': 'z' is not among"),
        (["p", "", "q;z"], "row 3, column 'm': 'z'"),
        ([["p"], ["p", "q", "r", "s"]], "row 2, column 'm': expected at most 3 options, got 4"),
        ([["p"], ["q", "r", "q"]], "row 2, column 'm': expected each option once"),
        ([["p"], None], "row 2, column 'm': the list is missing"),
        ([["p"], ["q", None]], "row 2, column 'm': an option of the list is missing"),
        ([["p"], "q", ("r",)], "row 2, column 'm': 'q' is a text among lists"),
        ([{"a": 1}], "row 1, column 'm' holds"),
    ):
        with pytest.raises(ValueError, match=message):
            chosen(values)


def test_vectors_with_one_wrong_entry() -> None:
    good = [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]
    names = {f"v[{place}]": [row[place] for row in good] for place in range(3)}
    for values in (good, np.asarray(good), [np.asarray(row) for row in good], pa.array(good)):
        assert held("v", values).arrays("v", (3,)).tolist() == good
    assert Columns(names, 2).arrays("v", (3,)).tolist() == good
    square = np.arange(8.0).reshape(2, 2, 2)
    for values in (square, square.reshape(2, 4), list(square), square.tolist()):
        assert held("v", values).arrays("v", (2, 2)).tolist() == square.tolist()
    for values, message in (
        ([[1.0, 2.0, 3.0], [4.0, 5.0]], "row 2, column 'v': expected 3 numbers, got 2"),
        ([[1.0, 2.0, 3.0], None], "row 2, column 'v': the value is missing"),
        ([[1.0, 2.0, 3.0], [1.0, math.inf, 3.0]], "row 2, column 'v': expected finite numbers"),
        ([[1.0, 2.0, 3.0], ["1", "x", "3"]], "row [12], column 'v'"),
        (np.zeros((2, 4)), r"expected an array of shape \(3,\), got \(4,\)"),
        (np.asarray([["a"] * 3] * 2), "not numbers"),
    ):
        with pytest.raises(ValueError, match=message):
            held("v", values).arrays("v", (3,))
    assert entry_names("t", (2, 2)) == ["t[0,0]", "t[0,1]", "t[1,0]", "t[1,1]"]


def test_columns_that_a_survey_needs() -> None:
    questions = [Number("x", 0, 1), Vector("v", 2, 0, 1)]
    assert needed(questions, ["g"], ["g", "x", "v", "other"], "It") == ["x", "v", "g"]
    assert needed(questions, [], ["x", "v[0]", "v[1]"], "It") == ["x", "v[0]", "v[1]"]
    assert needed(questions, [], ["x", "v", "v[0]", "v[1]"], "It") == ["x", "v"]
    with pytest.raises(ValueError, match="It lacks column 'v'"):
        needed(questions, [], ["x", "v[0]"], "It")
    with pytest.raises(ValueError, match=r"lacks column 'x'\. Rename or add it: the columns are none"):
        needed(questions, [], [], "It")
    with pytest.raises(ValueError, match="one length"):
        columns_of({"x": [0.5], "v": [[0, 0], [0, 1]]}, questions, [])
    with pytest.raises(ValueError, match="at least one row"):
        columns_of({"x": [], "v": []}, questions, [])
    with pytest.raises(ValueError, match="row 2 lacks column 'x'"):
        columns_of([{"x": 1, "v": [0, 0]}, {"v": [0, 0]}], questions, [])
    optional = [Number("x", 0, 1, optional=True), Choice("c", ["a", "b"])]
    found = columns_of([{"x": 1.0, "c": "a"}, {"c": "b"}], optional, [])
    assert (found.rows, found.held["x"]) == (2, [1.0, None])
    for wrong in ([], [1], "x", 5, None):
        with pytest.raises(TypeError, match="Expected a DataFrame"):
            columns_of(wrong, optional, [])
    with pytest.raises(TypeError, match="list of answers in column 'x'"):
        columns_of({"x": "ab", "c": ["a", "b"]}, optional, [])
    assert columns_of({"m": [["a"]]}, [Choices("m", ["a", "b"])], []).rows == 1
    batch = pa.record_batch({"x": [0.5, 0.7], "c": ["a", "b"]})
    assert columns_of(batch, optional, []).numbers("x").tolist() == [0.5, 0.7]
