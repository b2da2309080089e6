"""The tutorial runs as it is written: its files, its plan, its server and its devices."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import httpx

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "first-campaign.md").read_text(encoding="utf-8")
NOISETTE = [sys.executable, "-c", "from noisette.cli import main; main()"]


def _blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def _commands() -> dict[str, str]:
    """Return the lines of each console block that follow its command."""
    split = (block.removeprefix("$ ").split("\n", 1) for block in _blocks("console"))
    return {shown[0]: shown[1] for shown in split}


def test_the_first_campaign(tmp_path: Path) -> None:
    campaign, keys = _blocks("yaml")
    (script,) = _blocks("python")
    for name, text in (("commute.yaml", campaign), ("keys.yaml", keys), ("devices.py", script)):
        (tmp_path / name).write_text(text, encoding="utf-8")
    (plan, planned), (serve, _), (answer, answered), (read, _) = _commands().items()
    run = {"cwd": tmp_path, "text": True, "env": os.environ | {"PYTHONUNBUFFERED": "1"}}
    shown = subprocess.run([*NOISETTE, *shlex.split(plan)[1:]], capture_output=True, check=True, **run)
    assert shown.stdout == planned
    command = [*NOISETTE, *shlex.split(serve)[1:-1], "0"]  # a free port instead of 8000
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, **run) as server:
        try:
            assert server.stdout is not None
            url = next(found[0] for line in server.stdout if (found := re.search(r"http://\S+", line)))
            sent = subprocess.run(
                [sys.executable, *shlex.split(answer)[1:-1], url], capture_output=True, check=True, **run
            )
            assert sent.stdout == answered
            _, _, header, address = shlex.split(read)
            name, _, value = header.partition(": ")
            found = httpx.get(address.replace("http://127.0.0.1:8000", url), headers={name: value}).json()
        finally:
            server.send_signal(signal.SIGTERM)
    assert server.returncode == 0
    assert found["users"] == 5001
    # six standard errors: a false alarm of 1e-8 for each of the two
    for row, truth, rounding in zip(found["dimensions"], (31.8, 0.493), (0.05, 0.0005), strict=False):
        assert abs(row["value"] - truth) < 6 * row["std_error"] + rounding
