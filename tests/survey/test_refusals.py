"""What surveys, campaigns, batches, files and results refuse, each with the reason."""

from __future__ import annotations

import dataclasses
import re
import struct
import zlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from tests.held import Held, refusal

import noisette as nz
from noisette.survey.batches import WrongCampaign, pack, unpack
from noisette.survey.campaigns import Campaign
from noisette.survey.coding.sections import read_sections
from noisette.survey.estimation import comparing
from noisette.survey.questions import read_question
from noisette.survey.reports import SurveyReports, write

HELD = Held(__file__)
TERMS: dict[str, Any] = {"questions": [{"name": "age", "range": [0, 99]}], "epsilon": 2.0}
CAMPAIGN: dict[str, Any] = {
    "id": "ages",
    "epsilon": 2.0,
    "users": 100,
    "attributes": [{"name": "age", "range": [0, 99]}],
    "mechanism": "piecewise",
}


@cache
def survey(**more: Any) -> nz.Survey:
    return nz.Survey([nz.Number("age", 0, 99), nz.Choice("diet", ["a", "b"])], epsilon=2.0, **more)


@cache
def grouped() -> nz.Survey:
    return nz.Survey([nz.Number("age", 0, 99)], epsilon=2.0, groups={"region": ["north", "south"]})


@cache
def results() -> Any:
    data = {"age": [20.0, 40.0, 60.0] * 20, "diet": ["a", "b", "a"] * 20}
    return survey().estimate(survey().privatize(data, rng=1))


@cache
def regions() -> Any:
    data = {"age": [20.0, 40.0] * 30, "region": ["north", "south"] * 30}
    return grouped().estimate(grouped().privatize(data, rng=1))


def reports() -> SurveyReports:
    return survey().privatize({"age": [20.0, 40.0], "diet": ["a", "b"]}, rng=1)


def regional() -> SurveyReports:
    return grouped().privatize({"age": [20.0, 40.0], "region": ["north", "south"]}, rng=1)


@cache
def other_results() -> Any:
    other = nz.Survey([nz.Number("height", 0, 3)], epsilon=2.0)
    return other.estimate(other.privatize({"height": [1.0, 2.0]}, rng=1))


@cache
def private() -> Any:
    joint = nz.Survey([nz.Choice("c", ["a", "b"]), nz.Number("x", 0, 1)], epsilon=4.0, joint=[("c", "x")])
    return joint.estimate(joint.privatize({"c": ["a", "b"] * 20, "x": [0.2, 0.4] * 20}, rng=1)).by("c")


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "a survey that is a list": (lambda: nz.Survey.from_dict([TERMS]), "Expected a survey with questions"),
    "a survey under its old name and its new one": (
        lambda: nz.Survey.from_dict(TERMS | {"attributes": TERMS["questions"]}),
        "got both",
    ),
    "an unknown field": (lambda: nz.Survey.from_dict(TERMS | {"colour": 1}), "Unknown field 'colour'"),
    "no budget": (lambda: nz.Survey.from_dict({"questions": TERMS["questions"]}), "Expected a field 'epsilon'"),
    "no questions": (lambda: nz.Survey.from_dict(TERMS | {"questions": []}), "at least one question"),
    "a breakdown that is a word": (lambda: nz.Survey.from_dict(TERMS | {"breakdown": "age"}), "breakdown='age'"),
    "a description that is a list": (lambda: nz.Survey.from_spec([]), "the description of a survey"),
    "a question that nobody asks": (lambda: survey().question("height"), "No question 'height'"),
    "a campaign that is a list": (lambda: Campaign.from_dict([CAMPAIGN]), "Expected a campaign with the fields"),
    "a campaign without users": (
        lambda: Campaign.from_dict({name: one for name, one in CAMPAIGN.items() if name != "users"}),
        "Expected a field 'users'",
    ),
    "a campaign without a budget": (
        lambda: Campaign.from_dict({name: one for name, one in CAMPAIGN.items() if name != "epsilon"}),
        "Expected a field 'epsilon'",
    ),
    "a campaign with an unknown field": (lambda: Campaign.from_dict(CAMPAIGN | {"colour": 1}), "'colour'"),
    "the mechanisms of too few sections": (
        lambda: read_sections(survey().items, {"mechanism": "together", "parts": []}),
        "sections, got another number",
    ),
    "the mechanisms of no section": (
        lambda: read_sections(survey().items, {"mechanism": "together", "parts": 3}),
        "sections, got another number",
    ),
    "reports of another type": (
        lambda: dataclasses.replace(reports(), rows=np.zeros(2, dtype=[("part0", "<f8")])),
        "Expected reports of type",
    ),
    "groups where none are asked for": (
        lambda: dataclasses.replace(reports(), cells=np.zeros(2, dtype=np.uint16)),
        "a code of the public groups",
    ),
    "no groups where some are asked for": (
        lambda: dataclasses.replace(regional(), cells=None),
        "a code of the public groups",
    ),
    "a group too few": (
        lambda: dataclasses.replace(regional(), cells=np.zeros(1, dtype=np.uint16)),
        "a code of the public groups",
    ),
    "a group that there is not": (
        lambda: dataclasses.replace(regional(), cells=np.asarray([0, 2], dtype=np.uint16)),
        "a code of the public groups below 2",
    ),
    "reports and a number": (lambda: reports().merge(3), "Expected reports of a survey to merge"),  # type: ignore[arg-type]
    "reports of two surveys": (lambda: reports().merge(regional()), "Expected"),
    "sums and a number": (lambda: results().aggregate.merge(3), "Expected an aggregate of a survey"),
    "a level of 0": (lambda: results().aggregate.results(level=0.0), "level=0.0"),
    "a level of 1": (lambda: results().aggregate.results(level=1.0), "level=1.0"),
    "an unknown method": (lambda: results().aggregate.results(enhance="magic"), "magic"),
    "texts of a number": (lambda: results()["age"].top(), "asks for no texts"),
    "results beside a number": (lambda: results().compare({"this": results(), "that": 3}), "to compare with"),
    "results with nothing": (lambda: results().compare({"this": results()}), "at least two values"),
    "results of other questions": (lambda: results().compare(other_results()), "a quantity that all of"),
    "an unknown correction": (lambda: regions().compare("region", correct="none at all"), "correct='none at all'"),
    "a comparison at level 0": (lambda: regions().compare("region", level=0.0), "level=0.0"),
    "a comparison at level 1": (lambda: regions().compare("region", level=1.0), "level=1.0"),
    "a group that nobody is in": (lambda: regions().by("region")["east"], "No value 'east'"),
    "a group of a private choice": (lambda: private()["a"], "is private. Take table"),
    "two columns of one name": (
        lambda: survey().privatize(pd.DataFrame([[1.0, 2.0, "a"]], columns=["age", "age", "diet"])),
        "two columns named 'age'",
    ),
    "fractions for labels": (lambda: survey().privatize({"age": [1.0], "diet": [0.5]}), "not labels"),
    "a matrix for labels": (
        lambda: survey().privatize({"age": [1.0], "diet": np.asarray([["a", "b"]])}),
        "one value a person",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    made, words = REFUSED[name]
    found = refusal(made)
    assert re.search(words, found)
    HELD.check(name, found)


def test_no_reports_leave_no_file(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="at least one report to write"):
        write(tmp_path / "none.parquet", survey(), [])
    assert list(tmp_path.iterdir()) == []


def test_more_differences_than_a_table_may_have_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = len(regions().compare("region"))
    monkeypatch.setattr(comparing, "_MOST_COMPARED", rows)
    assert len(regions().compare("region")) == rows
    monkeypatch.setattr(comparing, "_MOST_COMPARED", rows - 1)
    with pytest.raises(ValueError, match=f"at most {rows - 1} differences"):
        regions().compare("region")


@cache
def campaign() -> Campaign:
    return Campaign.from_dict(CAMPAIGN)


def body(count: int = 3) -> bytes:
    rows = campaign().survey.rows([campaign().privatize({"age": 30.0}, rng=seed) for seed in range(count)])
    return pack(campaign(), "once", bytes(range(32)) * count, rows)


def sealed(text: bytes) -> bytes:
    """Return a body with the checksum that belongs to it."""
    return text + struct.pack("<I", zlib.crc32(text))


def changed(place: int, form: str, value: Any) -> bytes:
    """Return a body in whose head one number is another one."""
    head = bytearray(body()[:-4])
    struct.pack_into(form, head, place, value)
    return sealed(bytes(head))


def test_a_batch_is_read_as_it_was_packed() -> None:
    """By the table at the head of the module, written out here byte by byte."""
    found = body()
    width = campaign().row.itemsize
    assert struct.unpack_from("<4sHHHHII", found) == (b"NZRB", 2, 4, 4, 0, 3, width)
    assert found[20:28] == b"agesonce"
    assert found[28:60].hex() == campaign().law_sha256
    assert found[60:156] == bytes(range(32)) * 3
    assert len(found) == 156 + 3 * width + 4
    assert struct.unpack("<I", found[-4:])[0] == zlib.crc32(found[:-4])
    batch = unpack(campaign(), found, most=3)
    assert (len(batch), batch.period, batch.groups.tolist(), batch.index.tolist()) == (3, "once", [0, 0, 0], [0, 1, 2])
    assert batch.rows.tobytes() == found[156:-4]
    older = bytearray(found[:28] + found[60:-4])  # version 1, of 0.1.0, without the law
    struct.pack_into("<H", older, 4, 1)
    assert unpack(campaign(), sealed(bytes(older)), most=3).rows.tobytes() == found[156:-4]


BATCHES: dict[str, tuple[Callable[[], Any], str]] = {
    "nothing": (lambda: b"", "begins with NZRB"),
    "a head alone": (lambda: body()[:23], "begins with NZRB"),
    "other letters": (lambda: b"NZRC" + body()[4:], "begins with NZRB"),
    "another version": (lambda: changed(4, "<H", 3), "version 2 of a binary batch, got 3"),
    "one bit on its way": (lambda: body()[:60] + bytes([body()[60] ^ 1]) + body()[61:], "checksum"),
    "no report": (lambda: changed(12, "<I", 0), "1 to 3 reports in a batch, got 0"),
    "more reports than are taken": (lambda: body(4), "1 to 3 reports in a batch, got 4"),
    "fewer reports than there are": (lambda: changed(12, "<I", 2), "bytes for 2 reports"),
    "a byte too many": (lambda: sealed(body()[:-4] + b"\0"), "bytes for 3 reports"),
    "a byte too few": (lambda: sealed(body()[:-5]), "bytes for 3 reports"),
    "reports of another length": (lambda: _wider(), "Expected reports of"),
    "a name that is no text": (lambda: sealed(body()[:20] + b"\xff" + body()[21:-4]), "ASCII"),
}


def _wider() -> bytes:
    text = bytearray(body()[:-4])
    width = campaign().row.itemsize
    struct.pack_into("<I", text, 16, width + 1)
    return sealed(bytes(text) + bytes(3))


@pytest.mark.parametrize("name", BATCHES)
def test_a_batch_that_is_refused(name: str) -> None:
    made, words = BATCHES[name]
    found = refusal(lambda: unpack(campaign(), made(), most=3))
    assert re.search(words, found)
    HELD.check(name, found)


def test_a_batch_for_another_campaign_is_refused() -> None:
    with pytest.raises(WrongCampaign, match="another campaign than 'ages'"):
        unpack(campaign(), sealed(body()[:20] + b"eggs" + body()[24:-4]), most=3)


@pytest.mark.parametrize("size", [95, 97, 0])
def test_a_token_too_few_is_refused(size: int) -> None:
    rows = campaign().survey.rows([campaign().privatize({"age": 30.0}, rng=seed) for seed in range(3)])
    with pytest.raises(ValueError, match=f"Expected 3 tokens of 32 bytes, got {size} bytes"):
        pack(campaign(), "once", bytes(size), rows)


@pytest.mark.parametrize("index", [0.5, float(2**31), -float(2**31), np.nan])
def test_a_place_of_a_vector_that_is_none_is_refused_among_others(index: float) -> None:
    (section,) = nz.Survey([nz.Vector("a", 40, 0, 1)], epsilon=1.0).sections
    assert isinstance(section.mechanism, nz.Sampled)
    rows = np.zeros((3, *section.shape))
    section.reports(rows)
    rows[1, ..., 0] = index
    with pytest.raises(ValueError, match="outside the support"):
        section.reports(rows)


def test_a_file_with_a_hole_is_refused(tmp_path: Path) -> None:
    """One report of many is missing: nothing is made up in its place."""
    import pyarrow.parquet as parquet

    path = tmp_path / "reports.parquet"
    reports().save(path)
    table = parquet.read_table(path)
    name = table.column_names[0]
    holed = pa.array([table.column(name)[0].as_py(), None], type=table.schema.field(name).type)
    parquet.write_table(table.set_column(0, table.schema.field(name).with_nullable(True), holed), path)
    with pytest.raises(ValueError, match="missing values"):
        SurveyReports.read(path)
    renamed = table.rename_columns(["other", *table.column_names[1:]])
    parquet.write_table(renamed.replace_schema_metadata(table.schema.metadata), path)
    with pytest.raises(ValueError, match="has columns"):
        SurveyReports.read(path)


def test_all_people_answer_a_question_that_is_not_optional() -> None:
    assert results()["age"].response_rate == 1.0


@pytest.mark.parametrize(
    ("make", "remedy"),
    [
        (lambda: nz.Choices("c", ["a", "b"], optional="yes"), "to be true or false"),
        (lambda: nz.Text("t", optional=1), "optional=1 of .t. to be true"),
        (lambda: nz.Number("x", 0, 1, want="quantiles", optional=True), "a choice of ranges that is optional"),
        (lambda: read_question({"name": "v", "vector": 3, "range": [0, 1], "optional": True}), "each number as one"),
        (
            lambda: nz.Survey(
                [nz.Choice("a", ["x", "y"]), nz.Choices("b", ["x", "y"], optional=True)],
                epsilon=1.0,
                joint=[("a", "b")],
            ),
            "not optional: 'b' is not",
        ),
        (
            lambda: nz.Survey(
                [nz.Choice("a", ["x", "y"], optional=True), nz.Choice("b", ["x", "y"])], epsilon=1.0, joint=[("a", "b")]
            ),
            "a label such as 'no answer' in place of optional",
        ),
    ],
)
def test_what_cannot_be_optional_says_what_to_do_instead(make: Any, remedy: str) -> None:
    with pytest.raises(ValueError, match=remedy):
        make()
    assert not nz.Text("t", optional=False).optional


def test_the_remedies_for_answers_that_are_left_out_work() -> None:
    """Shares among those who answered, from a listed 'no answer', are the truth to within six standard errors."""
    world, n = np.random.default_rng(2), 4000
    silent, drinks = world.random((2, n)) < [[0.3], [0.6]]
    chosen = [["no answer"] if one else ["tea"] * int(tea) for one, tea in zip(silent, drinks, strict=True)]
    survey = nz.Survey([nz.Choices("c", ["tea", "milk", "no answer"], most=2)], epsilon=4.0)
    found = survey.estimate(survey.privatize({"c": chosen}, rng=3))["c"].shares
    truth = np.mean([one == ["tea"] for one in chosen]) / (1 - silent.mean())
    assert found["tea"] / (1 - found["no answer"]) == pytest.approx(truth, abs=0.12)


@pytest.mark.parametrize(
    ("question", "answer", "words"),
    [
        (nz.Choices("x", ["a", "b"]), [["a"]], "row 1, column 'x' holds list.*, not lists of labels. Give one list"),
        (nz.Number("x", 0, 100), np.datetime64("2020-01-01"), "row 1, column 'x': '2020-01-01' is not a number"),
        (nz.Number("x", 0, 100), "1_0", "row 1, column 'x': '1_0' is not a number"),
        (nz.Vector("x", 3, -1, 1), "0;0;0", "row 1, column 'x': expected a list of 3 numbers, got '0;0;0'"),
        (nz.Vector("x", 3, -1, 1), 0.5, "row 1, column 'x': expected a list of 3 numbers, got 0.5"),
    ],
)
def test_an_answer_of_another_form_is_named(question: Any, answer: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        nz.Survey([question], epsilon=2.0).privatize([{"x": answer}], rng=1)


if __name__ == "__main__":
    stories = {name: refusal(made) for name, (made, _) in REFUSED.items()}
    for name, (made, _) in BATCHES.items():
        stories[name] = refusal(lambda made=made: unpack(campaign(), made(), most=3))  # type: ignore[misc]
    HELD.write(stories)
