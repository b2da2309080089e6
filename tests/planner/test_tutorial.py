"""The commands of the tutorial run, and print what it shows."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "should-i-collect.md"


def _missing(shown: list[str], printed: list[str]) -> str | None:
    """Return the first line that was not printed after those before it; "..." stands for any lines."""
    rest = iter(" ".join(line.split()) for line in printed)
    for line in shown:
        if line != "..." and " ".join(line.split()) not in rest:
            return line
    return None


@pytest.mark.long
def test_commands_print_what_is_shown(tmp_path: Path) -> None:
    blocks = re.findall(r"```console\n\$ noisette ([^\n]*)\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert blocks
    for command, shown in blocks:
        run = [sys.executable, "-c", "from noisette.cli import main; main()", *shlex.split(command)]
        width = os.environ | {"COLUMNS": "80"}
        done = subprocess.run(run, cwd=tmp_path, capture_output=True, text=True, check=False, env=width)
        assert done.returncode == 0, done.stderr
        missing = _missing(shown.splitlines(), done.stdout.splitlines())
        assert missing is None, f"noisette {command} did not print {missing!r} but\n{done.stdout}"
    assert (tmp_path / "planner.html").stat().st_size > 10_000


def test_another_line_is_seen() -> None:
    """The twin: a figure that was not printed, or not in this order."""
    assert _missing(["a", "...", "c"], ["a", "b", "c"]) is None
    assert _missing(["a", "d"], ["a", "b"]) == "d"
    assert _missing(["b", "a"], ["a", "b"]) == "a"
