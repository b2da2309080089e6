"""The frame of the experiments: what a study gives is written whole, and studies do not undo each other."""

import json
import os
import signal
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest
from click.testing import CliRunner

from experiments import frame, made
from noisette.cli import verbs
from noisette.cli.evidence.reproduce import PAPERS

ROOT = frame.Path(frame.__file__).resolve().parents[1]
ENVIRONMENT = os.environ | {"PYTHONPATH": os.pathsep.join(str(path) for path in (ROOT, ROOT / "src"))}


@pytest.fixture
def paper():
    def fig_1(full, advance):
        """Double, at two points."""
        advance(0.5)
        line = frame.Series("measured", [1.0, 2.0], [2.0, 4.0], low=[1.0, 3.0], high=[3.0, 5.0])
        chart = frame.Chart(
            "fig-1", "Twice", "x", "y, twice", [line, frame.Series("2x", [1, 2], [2, 4], predicted=True)]
        )
        rows = [("a", 1.0, 20_000), ("b", float("nan"), None)]
        return frame.Study(
            "Figure 1", "It doubles.", f"It does ({full}).", ("case", "y", "n"), rows, {"seed": 7}, [chart]
        )

    def table_2(full, advance):
        return frame.Study("Table 2", "Nothing.", "Nothing.", ("n",), [(1,)])

    module = ModuleType("experiments.doubling")
    module.__doc__ = "Doubling.\n\nWhat it is about."
    module.STUDIES = (fig_1, table_2)
    return module


@pytest.mark.long
def test_a_run_writes_a_page_numbers_and_figures(paper, tmp_path):
    shares = []
    record = frame.run(paper, ["fig-1", "table-2"], False, tmp_path, shares.append)
    assert record == json.loads((tmp_path / "results.json").read_text("utf-8"))
    assert shares == [0.25, 1.0]
    assert (tmp_path / "fig-1.png").read_bytes().startswith(b"\x89PNG")
    page = (tmp_path / "README.md").read_text("utf-8")
    assert page.startswith("# Doubling\n\nWhat it is about.\n\n## Figure 1\n\n**Claimed.** It doubles.")
    assert "| a | 1 | 20,000 |\n| b | - | - |" in page
    assert "![Twice](fig-1.png)" in page
    assert "*Small setting, 0 s: seed 7.*" in page
    assert "**Obtained.** Too small to judge" in page


def test_the_full_setting_is_a_verdict(paper, tmp_path):
    frame.run(paper, ["fig-1"], True, tmp_path, lambda _: None)
    assert "**Obtained.** It does (True)." in (tmp_path / "README.md").read_text("utf-8")


def test_a_study_that_runs_again_leaves_the_others(paper, tmp_path):
    frame.run(paper, ["table-2"], True, tmp_path, lambda _: None)
    record = frame.run(paper, ["fig-1"], False, tmp_path, lambda _: None)
    assert [(study["name"], study["full"]) for study in record["studies"]] == [("fig-1", False), ("table-2", True)]


@pytest.fixture
def in_parts():
    """A study of three parts whose second one may fail, and the parts that were computed."""
    computed, broken = [], []

    def part(number):
        if number in broken:
            raise KeyboardInterrupt
        computed.append(number)
        return {"square": number**2, "nothing": float("nan")}

    def fig_1(full, advance):
        found = [frame.remember(("part", number), lambda number=number: part(number)) for number in range(3)]
        rows = [(one["square"],) for one in found]
        return frame.Study("Figure 1", "Squares.", "Squares.", ("n",), rows, fraction="3 of 10 parts")

    module = ModuleType("experiments.squares")
    module.__doc__ = "Squares."
    module.STUDIES = (fig_1,)
    return module, computed, broken


def test_an_interrupted_study_goes_on(in_parts, tmp_path):
    paper, computed, broken = in_parts
    broken.append(2)
    with pytest.raises(KeyboardInterrupt):
        frame.run(paper, ["fig-1"], True, tmp_path, lambda _: None)
    assert computed == [0, 1]
    with (tmp_path / frame.UNFINISHED / "fig-1-full.jsonl").open("a") as file:
        file.write('["(\'part\', 2)", {"squ')  # a line that the interruption cut off
    broken.clear()
    record = frame.run(paper, ["fig-1"], True, tmp_path, lambda _: None, resume=True)
    assert computed == [0, 1, 2]
    assert record["studies"][0]["rows"] == [[0], [1], [4]]
    assert not (tmp_path / frame.UNFINISHED).exists()
    assert "*Full setting (3 of 10 parts), " in (tmp_path / "README.md").read_text("utf-8")


def test_a_run_without_time_shows_what_it_has_and_goes_on_later(tmp_path):
    computed = []

    def fig_1(full, advance):
        found = frame.several(range(4), lambda seed: computed.append(seed) or seed)
        return frame.Study("Figure 1", "Seeds.", "Seeds.", ("n",), [(n,) for n in found], fraction=f"{len(found)} of 4")

    paper = ModuleType("experiments.seeds")
    paper.__doc__, paper.STUDIES = "Seeds.", (fig_1,)
    record = frame.run(paper, ["fig-1"], True, tmp_path, lambda _: None, minutes=1e-9)
    assert computed == [0]
    assert record["studies"][0]["partial"]
    assert "(1 of 4)" in (tmp_path / "README.md").read_text("utf-8")
    frame.run(paper, ["fig-1"], True, tmp_path, lambda _: None, resume=True, minutes=1e-9)
    assert computed == [0]  # what is kept costs no time, and nothing new begins
    record = frame.run(paper, ["fig-1"], True, tmp_path, lambda _: None, resume=True)
    assert computed == [0, 1, 2, 3]
    assert record["studies"][0]["rows"] == [[0], [1], [2], [3]]
    assert not record["studies"][0]["partial"]
    assert not (tmp_path / frame.UNFINISHED).exists()


def test_as_many_parts_as_a_study_needs_are_computed_when_the_time_is_over(tmp_path):
    computed = []

    def fig_1(full, advance):
        found = frame.several(range(4), lambda seed: computed.append(seed) or seed, least=3)
        return frame.Study("Figure 1", "Seeds.", "Seeds.", ("n",), [(n,) for n in found])

    paper = ModuleType("experiments.seeds")
    paper.__doc__, paper.STUDIES = "Seeds.", (fig_1,)
    record = frame.run(paper, ["fig-1"], True, tmp_path, lambda _: None, minutes=1e-9)
    assert computed == [0, 1, 2]
    assert record["studies"][0]["partial"]


def test_a_finished_study_stays_when_a_run_goes_on_and_is_computed_again_when_it_does_not(in_parts, tmp_path):
    paper, computed, _ = in_parts
    frame.run(paper, ["fig-1"], True, tmp_path, lambda _: None)
    frame.run(paper, ["fig-1"], True, tmp_path, lambda _: None, resume=True)
    assert computed == [0, 1, 2]
    frame.run(paper, ["fig-1"], False, tmp_path, lambda _: None, resume=True)  # the other size is another study
    assert computed == [0, 1, 2, 0, 1, 2]
    frame.run(paper, ["fig-1"], False, tmp_path, lambda _: None)
    assert len(computed) == 9


def test_a_finished_study_that_was_begun_anew_goes_on(in_parts, tmp_path):
    paper, computed, broken = in_parts
    frame.run(paper, ["fig-1"], True, tmp_path, lambda _: None)
    broken.append(1)
    with pytest.raises(KeyboardInterrupt):
        frame.run(paper, ["fig-1"], True, tmp_path, lambda _: None)
    broken.clear()
    frame.run(paper, ["fig-1"], True, tmp_path, lambda _: None, resume=True)
    assert computed == [0, 1, 2, 0, 1, 2]  # the parts of the newer run were taken up, not the finished study


def test_parts_of_another_size_or_of_a_run_that_begins_anew_are_not_taken(in_parts, tmp_path):
    paper, computed, broken = in_parts
    broken.append(1)
    for full, resume in ((True, False), (False, True), (True, False)):
        with pytest.raises(KeyboardInterrupt):
            frame.run(paper, ["fig-1"], full, tmp_path, lambda _: None, resume=resume)
    assert computed == [0, 0, 0]


@pytest.fixture
def written(tmp_path):
    """A function that writes a paper with one study of two parts, and imports it."""

    def write(runs=2, docstring="What it shows.", beside=1, least=7):
        file = tmp_path / "study.py"
        file.write_text(
            f'''
from experiments import frame, made

RUNS = {runs}
BESIDE = {beside}

def part(number):
    """Square a number."""
    return number**{least}

def fig_1(full, advance):
    """{docstring}"""
    rows = [(frame.remember(run, lambda run=run: part(run)),) for run in range(RUNS)]
    return frame.Study("Figure 1", "Claimed {docstring}", "Found {docstring}", ("n",), rows)

def fig_2(full, advance):
    return BESIDE

STUDIES = (fig_1,)
''',
            encoding="utf-8",
        )
        made._names.cache_clear()
        module = ModuleType("experiments.written")
        exec(compile(file.read_text("utf-8"), str(file), "exec"), module.__dict__)
        return module

    return write


def rows(module, folder, *, resume=True):
    return frame.run(module, ["fig-1"], True, folder, lambda _: None, resume=resume)["studies"][0]["rows"]


def test_a_study_that_was_finished_with_another_setting_is_computed_again(written, tmp_path):
    folder = tmp_path / "results"
    assert len(rows(written(), folder)) == 2
    before = (folder / "results.json").stat().st_mtime_ns
    assert len(rows(written(docstring="Other words for the same.", beside=5), folder)) == 2
    assert (folder / "results.json").stat().st_mtime_ns == before  # wording and what another study reads change nothing
    assert len(rows(written(runs=3), folder)) == 3
    assert rows(written(runs=3, least=2), folder) == [[0], [1], [4]]  # what it calls is part of a study


def test_a_study_of_which_the_setting_is_not_known_is_computed_again(written, tmp_path):
    rows(written(), tmp_path)
    kept = json.loads((tmp_path / "results.json").read_text("utf-8"))
    del kept["studies"][0]["code"]
    kept["studies"][0]["rows"] = []
    (tmp_path / "results.json").write_text(json.dumps(kept), encoding="utf-8")
    assert len(rows(written(), tmp_path)) == 2


def test_parts_of_another_setting_are_put_aside(written, tmp_path):
    parts = tmp_path / frame.UNFINISHED / "fig-1-full.jsonl"
    parts.parent.mkdir()
    for first, found in (('"of another code"', [[0], [1]]), (json.dumps(made.digest(written().fig_1)), [[9], [1]])):
        parts.write_text(f'{first}\n["0", 9, 1.0]\n', encoding="utf-8")
        assert rows(written(), tmp_path) == found
    assert '"of another code"' in parts.with_suffix(".old").read_text("utf-8")


@pytest.fixture
def half(in_parts, tmp_path):
    """A run of three parts that was interrupted after two, its file of parts, and a function that goes on."""
    paper, computed, broken = in_parts
    broken.append(2)
    with pytest.raises(KeyboardInterrupt):
        frame.run(paper, ["fig-1"], True, tmp_path, lambda _: None)
    broken.clear()
    computed.clear()

    def go_on(*, resume=True):
        record = frame.run(paper, ["fig-1"], True, tmp_path, lambda _: None, resume=resume)
        assert record["studies"][0]["rows"] == [[0], [1], [4]]
        return computed

    return tmp_path / frame.UNFINISHED / "fig-1-full.jsonl", go_on


def test_parts_that_are_cut_off_anywhere_are_computed_again_and_whole_ones_stay(half):
    file, go_on = half
    whole = file.read_bytes()
    ends = [place + 1 for place, byte in enumerate(whole) if byte == ord("\n")]
    assert len(ends) == 3  # the digest, two parts
    near = {end + side for end in (0, *ends) for side in (-2, -1, 0, 1, 2)} & set(range(len(whole) + 1))
    for length in sorted({*range(0, len(whole), 11), *near}):
        go_on().clear()
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(whole[:length])
        assert go_on() == [0, 1, 2][max(sum(end <= length for end in ends) - 1, 0) :]
        assert not file.exists()


def test_what_follows_a_file_that_was_cut_off_in_its_first_line_is_kept(in_parts, tmp_path):
    paper, computed, broken = in_parts
    file = tmp_path / frame.UNFINISHED / "fig-1-full.jsonl"
    file.parent.mkdir()
    for cut in (b"", b'"0123', b"\x00\x00\xff"):
        file.write_bytes(cut)
        broken.append(2)
        with pytest.raises(KeyboardInterrupt):
            frame.run(paper, ["fig-1"], True, tmp_path, lambda _: None, resume=True)
        broken.clear()
        frame.run(paper, ["fig-1"], True, tmp_path, lambda _: None, resume=True)
        assert computed == [0, 1, 2]
        computed.clear()


def test_damaged_lines_are_computed_again_and_those_after_them_stay(half):
    file, go_on = half
    first, second, third = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(first + second[:9] + b"\xff\n\n\x00\x00\n7\n" + third)
    assert go_on() == [0, 2]


def test_parts_that_nobody_asked_for_are_put_aside_not_lost(half):
    file, go_on = half
    kept = file.read_bytes()
    assert go_on(resume=False) == [0, 1, 2]
    assert file.with_suffix(".old").read_bytes() == kept


def test_what_is_put_aside_twice_is_there_twice(half):
    file, go_on = half
    kept = file.read_bytes()
    go_on(resume=False)
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(kept[:-9])
    go_on(resume=False)
    assert file.with_suffix(".old").read_bytes() == kept
    assert file.with_suffix(".1.old").read_bytes() == kept[:-9]


def test_a_kill_while_parts_are_mended_leaves_them(half, monkeypatch):
    file, go_on = half
    cut = file.read_bytes() + b'["2", 4'
    file.write_bytes(cut)

    def killed(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        for name in ("fsync", "replace"):  # however far the mended file has come
            patched.setattr(os, name, killed)
            with pytest.raises(KeyboardInterrupt):
                go_on()
            assert file.read_bytes() == cut
    assert go_on() == [2]


def test_a_kill_between_the_pages_of_a_study_makes_it_run_again(paper, tmp_path, monkeypatch):
    """A study without parts: its README is written, or it is not taken for finished."""
    whole = frame.whole_file
    for stop in ("README.md", "results.json"):
        folder = tmp_path / stop

        def killed(path, stop=stop):
            if path.name == stop:
                raise KeyboardInterrupt
            return whole(path)

        with monkeypatch.context() as patched:
            patched.setattr(frame, "whole_file", killed)
            with pytest.raises(KeyboardInterrupt):
                frame.run(paper, ["fig-1"], True, folder, lambda _: None)
        record = frame.run(paper, ["fig-1"], True, folder, lambda _: None, resume=True)
        assert (folder / "README.md").read_text("utf-8") == frame.readme(paper.__doc__, record)


def test_a_part_outlives_its_folder(tmp_path, monkeypatch):
    """A run beside this one takes the folder away, empty as it is, between its making and the first part."""
    made, tries = Path.mkdir, []

    def taken(self, *arguments, **named):
        made(self, *arguments, **named)
        tries.append(self)
        if len(tries) == 1:
            self.rmdir()

    parts = frame.Parts(tmp_path / frame.UNFINISHED / "fig-1.jsonl", "code")
    monkeypatch.setattr(Path, "mkdir", taken)
    assert parts.remember("a", lambda: 1) == 1
    assert len(tries) == 2
    assert "a" in frame.Parts(tmp_path / frame.UNFINISHED / "fig-1.jsonl", "code")


@pytest.mark.long
def test_a_run_that_is_killed_goes_on(tmp_path):
    study = tmp_path / "slow.py"
    study.write_text(
        """
'''Slow.'''
import os, pathlib, signal, sys
from experiments import frame

def fig_1(full, advance):
    def part(number):
        pathlib.Path("computed").open("a").write(f"{number} ")
        if number == int(sys.argv[1]):
            os.kill(os.getpid(), signal.SIGKILL)
        return number**2

    rows = [(value,) for value in frame.several(range(4), part)]
    return frame.Study("Figure 1", "Squares.", "Squares.", ("n",), rows)

STUDIES = (fig_1,)
if __name__ == "__main__":
    frame.run(sys.modules["__main__"], ["fig-1"], True, frame.Path("out"), lambda _: None, resume=True)
""",
        encoding="utf-8",
    )
    for killed, code in ((2, -signal.SIGKILL), (3, -signal.SIGKILL), (9, 0)):
        found = subprocess.run([sys.executable, str(study), str(killed)], cwd=tmp_path, env=ENVIRONMENT, check=False)
        assert found.returncode == code
    assert (tmp_path / "computed").read_text("utf-8").split() == ["0", "1", "2", "2", "3", "3"]
    assert json.loads((tmp_path / "out" / "results.json").read_text("utf-8"))["studies"][0]["rows"] == [
        [0], [1], [4], [9]
    ]  # fmt: skip


def test_runs_of_two_studies_side_by_side_keep_both(paper, tmp_path):
    _, second = paper.STUDIES

    def fig_1(full, advance):  # while it runs, another process finishes the second study
        frame.run(paper, ["table-2"], True, tmp_path, lambda _: None)
        return second(full, advance)

    beside = ModuleType("experiments.doubling")
    beside.__doc__, beside.STUDIES = paper.__doc__, (fig_1, second)
    record = frame.run(beside, ["fig-1"], True, tmp_path, lambda _: None)
    assert [study["name"] for study in record["studies"]] == ["fig-1", "table-2"]
    assert record == json.loads((tmp_path / "results.json").read_text("utf-8"))


def test_results_that_are_cut_off_are_put_aside(in_parts, tmp_path):
    paper, _, _ = in_parts
    frame.run(paper, ["fig-1"], True, tmp_path, lambda _: None)
    results = tmp_path / "results.json"
    cut = results.read_bytes()[:100]
    results.write_bytes(cut)
    with pytest.warns(UserWarning, match="is damaged"):
        record = frame.run(paper, ["fig-1"], True, tmp_path, lambda _: None, resume=True)
    assert record["studies"][0]["rows"] == [[0], [1], [4]]
    assert results.with_suffix(".old").read_bytes() == cut


@pytest.mark.parametrize(
    ("before", "after", "same"),
    [
        ('f"Without noise {x:.1f} %."', 'f"Without noise {x:.2f} %, where the paper implies 62.55 %."', True),
        ('f"Without noise {x:.1f} %."', 'f"Without noise {2 * x:.1f} %."', False),
        ('f"box:{x}"', 'f"slice:{x}"', False),  # a setting, not a sentence
        ('"box"', '"slice"', False),
    ],
)
def test_words_around_numbers_leave_a_digest_alone(tmp_path, before, after, same):
    digests = []
    for number, text in enumerate((before, after)):
        file = tmp_path / f"study_{number}.py"
        file.write_text(f"def fig_1(x):\n    return {text}\n", encoding="utf-8")
        seen = {}
        made._follow(file, "fig_1", seen)
        digests.append([*seen.values()])
    assert (digests[0] == digests[1]) is same


@pytest.mark.slow
@pytest.mark.parametrize("paper", PAPERS.values())
def test_a_study_is_known_by_its_code_and_that_of_what_it_calls(paper):
    known = frame.studies(import_module(f"experiments.{paper}"))
    digests = [made.digest(study) for study in known.values()]
    assert len(set(digests)) == len(known)


def test_a_command_that_is_interrupted_says_how_it_goes_on(monkeypatch, tmp_path):
    def run(paper, names, full, folder, advance, **options):
        (folder / frame.UNFINISHED).mkdir(parents=True)
        (folder / frame.UNFINISHED / "fig-1.jsonl").write_text("")
        raise KeyboardInterrupt

    monkeypatch.setattr(frame, "run", run)
    found = CliRunner().invoke(verbs, ["reproduce", "readings", "-o", str(tmp_path / "out")])
    assert found.exit_code == 1
    assert "--resume goes on" in " ".join(found.output.split())


def test_a_table_with_many_columns_is_printed_whole(tmp_path):
    found = CliRunner().invoke(verbs, ["reproduce", "readings", "--only", "hao2023hierarchical", "-o", str(tmp_path)])
    assert found.exit_code == 0
    for row in json.loads((tmp_path / "results.json").read_text("utf-8"))["studies"][0]["rows"]:
        for word in " ".join(frame.show(cell) for cell in row).split():
            assert word in found.output


@pytest.mark.parametrize(("arguments", "message"), [(["celeba"], "Unknown paper"), ([], "Missing argument")])
def test_the_command_names_what_is_wrong(arguments, message):
    result = CliRunner().invoke(verbs, ["reproduce", *arguments])
    assert result.exit_code == 2
    assert message in result.output


def test_every_paper_with_a_folder_is_known():
    folders = {path.parent.name for path in frame.Path(frame.__file__).parent.glob("*/__init__.py")}
    assert folders == {place.partition(".")[0] for place in PAPERS.values()}
