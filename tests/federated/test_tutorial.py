"""The tutorial's command shows what the page shows; its examples run with those of the other pages."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "federate-with-a-budget.md").read_text(encoding="utf-8")


@pytest.mark.long
@pytest.mark.needs_data
def test_the_plan_of_the_tutorial():
    (block,) = re.findall(r"^```console\n\$ noisette (.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    command, shown = block.split("\n", 1)
    run = [sys.executable, "-c", "from noisette.cli import main; main()", *shlex.split(command)]
    done = subprocess.run(run, capture_output=True, text=True, check=True, env=os.environ | {"COLUMNS": "80"})
    assert done.stdout == shown
