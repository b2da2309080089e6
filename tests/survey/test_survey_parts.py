"""A survey's own checks at each of their ends, with one wrong entry among sound ones, and cells of groups by hand."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import noisette as nz
from noisette.survey.coding.columns import Columns
from noisette.survey.survey import _array, _numeric, _questions, named_errors, read_fields

X, Y, C, D = nz.Number("x", 0, 1), nz.Number("y", 0, 2), nz.Choice("c", ["a", "b"]), nz.Choice("d", ["p", "q", "r"])
ONE = nz.Survey([C], epsilon=2.0, mechanism="oue", groups={"g": ["s", "t"], "h": ["u", "v", "w"]})
MIXED = nz.Survey([X, nz.Vector("v", 3, -1, 1)], epsilon=4.0)


def refused(call: Any, message: str, kind: Any = ValueError) -> None:
    with pytest.raises(kind, match=message):
        call()


def test_cells_are_all_combinations_of_groups() -> None:
    assert ONE.cells == 6
    assert {label: cells.tolist() for label, cells in ONE.members("g").items()} == {"s": [0, 1, 2], "t": [3, 4, 5]}
    assert {label: cells.tolist() for label, cells in ONE.members("h").items()} == {
        "u": [0, 3],
        "v": [1, 4],
        "w": [2, 5],
    }
    found = ONE.cells_of(Columns({"g": ["t", "s", "t"], "h": ["u", "w", "v"]}, 3))
    assert found is not None
    assert (found.tolist(), found.dtype) == ([3, 2, 4], np.uint16)
    assert MIXED.cells_of(Columns({}, 3)) is None
    assert MIXED.cells == 1
    refused(lambda: ONE.members("z"), "No public group 'z'; the groups are g, h", KeyError)
    refused(lambda: MIXED.members("z"), "the groups are none", KeyError)


def test_groups_that_may_be_asked_for() -> None:
    many = {f"g{place}": [str(label) for label in range(10)] for place in range(3)}
    assert nz.Survey([C], epsilon=1.0, groups=many).cells == 1000
    refused(lambda: nz.Survey([C], epsilon=1.0, groups=many | {"g0": [*map(str, range(11))]}), "at most 1,000")
    assert nz.Survey([C], epsilon=1.0, groups={"g": ["only"]}).cells == 1
    groups: Any = ({"c": ["a", "b"]}, {"g": []}, {"g": ["a", "b", "a"]}, {"": ["a"]}, {"g": [1, 2]})
    for given in groups:
        refused(lambda: nz.Survey([C], epsilon=1.0, groups=given), "group|values")  # noqa: B023 - called at once
    wrong: Any = ["g"]
    refused(lambda: nz.Survey([C], epsilon=1.0, groups=wrong), "to name groups", TypeError)


@pytest.mark.slow
def test_pairs_that_may_be_asked_for() -> None:
    made = nz.Survey([X, C, D], epsilon=3.0, joint=[["c", "d"], ("c", "x")])
    assert made.joint == (("c", "d"), ("c", "x"))
    pairs: Any = (
        [["c"]],
        [["c", "d", "x"]],
        [["c", "z"]],
        [["z", "c"]],
        [["c", "c"]],
        [["c", "d"], ["d", "c"]],
        ["cd"],
    )
    for given in pairs:
        refused(lambda: nz.Survey([X, C, D], epsilon=3.0, joint=given), "joint")  # noqa: B023 - called at once
    text: Any = "cd"
    refused(lambda: nz.Survey([X, C, D], epsilon=3.0, joint=text), "list of pairs", TypeError)
    with pytest.warns(DeprecationWarning, match="the old word"):
        old = nz.Survey([X, Y, C], epsilon=3.0, breakdown=["c"])
    assert old.joint == (("c", "x"), ("c", "y"))
    names: Any = (["x"], ["c", "c"], ["z"], "c")
    for given in names:
        refused(lambda: nz.Survey([X, C], epsilon=3.0, breakdown=given), "breakdown")  # noqa: B023 - called at once
    refused(lambda: nz.Survey([C, D], epsilon=3.0, breakdown=["c"]), "a number to break down")
    only = nz.Number("z", 0, 1, want="distribution")
    refused(lambda: nz.Survey([C, only], epsilon=3.0, breakdown=["c"]), "a number to break down")


@pytest.mark.slow
def test_questions_users_and_reports_at_their_ends() -> None:
    lists: Any = ([], [X, 5], "x", {"x": X}, 5)
    for given in lists:
        refused(lambda: _questions(given), "at least one question", TypeError)  # noqa: B023 - called at once
    refused(lambda: _questions([X, nz.Number("x", 1, 2)]), "distinct names")
    assert nz.Survey([X, Y, C], epsilon=3.0, report=3).report == 3
    assert nz.Survey([X, Y, C], epsilon=3.0, report=1, users=1).users == 1
    for wrong in ({"report": 4}, {"report": 0}, {"users": 0}, {"epsilon": 0.0}, {"delta": -0.1}):
        refused(lambda: nz.Survey([X, Y, C], **({"epsilon": 3.0} | wrong)), next(iter(wrong)))  # noqa: B023
    mechanisms: Any = (5, {"x": 5}, None)
    for given in mechanisms:
        refused(lambda: nz.Survey([X], epsilon=1.0, mechanism=given), "mechanism=", TypeError)  # noqa: B023
    refused(lambda: nz.Survey([X], epsilon=1.0).plan(), "how many users")
    refused(lambda: nz.Survey([X], epsilon=1.0).plan(0), "users=0")
    assert nz.Survey([X], epsilon=1.0, users=50).plan().users == 50
    assert nz.Survey([X], epsilon=1.0, users=50).plan(1).users == 1


@pytest.mark.slow
def test_a_person_answers_every_question() -> None:
    optional = nz.Survey([X, nz.Choice("f", ["a", "b"], optional=True)], epsilon=3.0)
    assert {name: float(value) for name, value in optional.encode({"x": 0.5}).items()} == {"x": 0.5, "f": 2.0}
    values: Any = ({}, {"f": "a"}, {"x": 0.5, "z": 1}, [0.5], 5)
    for given in values:
        refused(lambda: optional.encode(given), "a value for each of x, f")  # noqa: B023 - called at once
    assert float(optional.encode({"x": 1.5}, clip=True)["x"]) == 1.0
    refused(lambda: optional.encode({"x": 1.5}), "Expected x=1.5")
    refused(lambda: optional.question("z"), "No question 'z'", KeyError)
    refused(lambda: optional.question("f answered"), "not asked by itself", KeyError)
    assert optional.question("f").name == optional.topic("f").name == "f"


@pytest.mark.parametrize(
    ("report", "depth", "fine"),
    [
        (1, 0, True),
        (1.5, 0, True),
        (True, 0, False),
        ("1", 0, False),
        ([1], 0, False),
        ([1, 2.5], 1, True),
        ([], 1, True),
        ([1, True], 1, False),
        ([1, [2]], 1, False),
        ((1, 2), 1, False),
        (1, 1, False),
        ([[1], [2]], 2, True),
        ([[1], 2], 2, False),
        ([[1], [None]], 2, False),
        ([1, 2], 2, False),
    ],
)
def test_numbers_in_lists(report: Any, depth: int, fine: bool) -> None:
    assert _numeric(report, depth) is fine


def test_reports_in_json_with_one_wrong_entry() -> None:
    (section,) = ONE.sections
    assert section.shape == (2,)
    good = [[0, 1], [1, 1]]
    assert _array(section, good).tolist() == good
    for bad, message in (
        ([1], "one length"),
        ([0, 1, 1], "one length"),
        ([0, True], "numbers alone"),
        ([0, 0.5], "whole numbers"),
        ([0, 2**70], "within 64 bits"),
        ([0, 256], "outside the support"),
        ([0, -1], "outside the support"),
    ):
        refused(lambda: _array(section, [good[0], bad]), message)  # noqa: B023 - called at once
    refused(lambda: _array(section, [[0, 1, 1], [1, 1, 1]]), r"shape \(2,\), got \(3,\)")
    rows = ONE.rows(good)
    rows["part0"][1, 0] = 2
    ONE.check(ONE.rows(good))
    refused(lambda: ONE.check(rows), "support")
    assert np.array_equal(ONE.decode(good), ONE.rows(good))
    floats = MIXED.rows([MIXED.answer({"x": 0.5, "v": [0, 0, 0]}, rng=seed) for seed in range(3)])
    MIXED.check(floats)
    if not MIXED.draw:
        refused(lambda: MIXED.rows([[1.0]]), "a list of 2")
        refused(lambda: MIXED.rows([[1.0, [0, 0, 0], 3]]), "a list of 2")


def drawing() -> nz.Survey:
    """A survey of which each person answers one of two sections."""
    spec = MIXED.spec()
    parts = [section.mechanism.spec() for section in MIXED.sections]
    return nz.Survey.from_spec(spec | {"spec": {"mechanism": "together", "parts": parts, "draw": [1, 2]}})


@pytest.mark.slow
def test_who_drew_a_section_says_nothing_of_the_other() -> None:
    survey = drawing()
    reports = [survey.answer({"x": 0.5, "v": [0.1, 0, 0]}, rng=seed) for seed in range(12)]
    assert {one[0] for one in reports} == {0, 1}
    rows = survey.decode(reports)
    assert rows["drawn"].tolist() == [one[0] for one in reports]
    for place in (0, 1):
        own = rows["drawn"] == place
        assert len(survey.part(rows, place)) == int(own.sum())
        assert not np.any(rows[f"part{place}"][~own])
    for bad in ([2, 0.5], [-1, 0.5], [True, 0.5], [0], [0, 0.5, 1], (0, 0.5), 5, [0.0, 0.5]):
        refused(lambda: survey.rows([reports[0], bad]), "number of a section below 2")  # noqa: B023 - called at once
    for change in ("drawn", "other"):
        wrong = rows.copy()
        if change == "drawn":
            wrong["drawn"][3] = 2
            refused(lambda: list(survey.parts(wrong)), "one of 2 sections")  # noqa: B023 - called at once
        else:
            place = 1 - int(wrong["drawn"][3])
            np.atleast_1d(wrong[f"part{place}"][3:4]).flat[0] = 0.25
            refused(lambda: list(survey.parts(wrong)), "zeros for the others")  # noqa: B023 - called at once
    list(survey.parts(rows[:0]))
    one = survey.rows(reports[:1])
    assert survey.written(one[0]) == reports[0]
    counts = np.bincount(survey.privatize_coded({"x": np.full(3000, 0.5), "v": np.zeros((3000, 3))}, rng=1)["drawn"])
    assert abs(counts[0] - 1000) < 5 * math.sqrt(3000 * 2 / 9)  # one in three; a false alarm of 6e-7


def test_a_signature_draws_for_one_person() -> None:
    survey = drawing()
    coded = {"x": np.full(2, 0.5), "v": np.zeros((2, 3))}
    refused(lambda: survey.privatize_coded(coded, signature=b"s"), "one user for a signature, got 2")
    alone = {name: values[:1] for name, values in coded.items()}
    for signature in (b"one", b"two", b"three"):
        row = survey.privatize_coded(alone, signature=signature, rng=1)
        again = survey.privatize_coded(alone, signature=signature, rng=2)
        assert row["drawn"].tolist() == again["drawn"].tolist()
        assert survey.follows(row[0], signature)
        other = row.copy()
        other["drawn"] = 1 - other["drawn"]
        assert not survey.follows(other[0], signature)


def test_files_and_their_faults(tmp_path: Path) -> None:
    path = tmp_path / "survey.yaml"
    path.write_text("epsilon: 1e1\nquestions: [{name: c, categories: ['1e6', b]}]\n")
    found = nz.Survey.read(path)
    assert (found.epsilon, list(found.questions[0].written()["categories"])) == (10.0, ["1e6", "b"])
    copy = tmp_path / "copy.yaml"
    found.save(copy)
    assert nz.Survey.read(copy) == found
    for text, message in (
        ("a: [", "is not a YAML file"),
        ("[1, 2]", "Expected a survey"),
        ("epsilon: 1", "a field 'questions'"),
        ("questions: []\nepsilon: 1", "at least one question"),
        ("questions: 5\nepsilon: 1", "at least one question"),
        ("questions: [{name: x, range: [0, 1]}]", "a field 'epsilon'"),
        ("questions: [{name: x, range: [0, 1]}]\nepsilon: 1\nother: 2", "Unknown field 'other'"),
        ("questions: [{name: x, range: [0, 1]}]\nattributes: []\nepsilon: 1", "got both"),
        ("questions: [{name: x, range: [0, 1]}]\nepsilon: 1\nbreakdown: c", "to be a list"),
        ("questions: [{name: x, range: [0, 1]}]\nepsilon: 1\npublic_group: {name: g}", "a name and values"),
    ):
        path.write_text(text)
        with pytest.raises(ValueError, match=message) as caught:
            nz.Survey.read(path)
        assert str(caught.value).count(str(path)) == 1
    path.write_bytes(b"\xff\xfe\xfa")
    refused(lambda: read_fields(path), "is not a YAML file")
    assert named_errors(path, lambda: 5) == 5
    data = tmp_path / "d.csv"
    data.write_text("c\nb\n")
    refused(lambda: found.privatize_file(data, data), "is the input")
    shares = list[float]()
    assert found.privatize_file(data, tmp_path / "r.parquet", on_progress=shares.append) == 1
    assert shares[-1] == 1.0
