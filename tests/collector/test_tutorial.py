"""The tutorial runs as it is written: its files, its plan, its server and its devices."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from click.testing import CliRunner
from fastapi import FastAPI
from fastapi.responses import HTMLResponse
from playwright.sync_api import Browser, expect
from tests.collector.helpers import running

from noisette.cli import verbs

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "first-campaign.md").read_text(encoding="utf-8")
NOISETTE = [sys.executable, "-c", "from noisette.cli import main; main()"]


def _blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def _commands() -> dict[str, str]:
    """Return the lines of each console block that follow its command."""
    split = (block.removeprefix("$ ").split("\n", 1) for block in _blocks("console"))
    return {shown[0]: shown[1] for shown in split}


def _noisette(command: str) -> str:
    """Run a command of ours and return what it prints."""
    done = CliRunner().invoke(verbs, shlex.split(command)[1:])
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.mark.long
def test_the_first_campaign(tmp_path: Path, browser: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    campaign, keys, form = _blocks("yaml")
    (key,) = re.findall(r"`echo (\S+) > device.key`", PAGE)
    script, later = _blocks("python")
    (page,), (people,) = _blocks("html"), _blocks("csv")
    texts = {
        "commute.yaml": campaign + form,
        "keys.yaml": keys,
        "devices.py": script,
        "later.py": later,
        "people.csv": people,
    }
    for name, text in (texts | {"device.key": f"{key}\n"}).items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    (plan, planned), (serve, _), (answer, answered), (wait, waited), (report, reported), (read, _) = _commands().items()
    run = {"cwd": tmp_path, "text": True, "env": os.environ | {"PYTHONUNBUFFERED": "1"}}
    monkeypatch.chdir(tmp_path)
    assert _noisette(plan) == planned
    with _site() as site:
        words = serve.replace("http://127.0.0.1:8001", site.url)
        command = [*NOISETTE, *shlex.split(words)[1:-1], "0"]  # a free port instead of 8000
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, **run) as server:
            try:
                assert server.stdout is not None
                url = next(found[0] for line in server.stdout if (found := re.search(r"http://\S+", line)))
                for words, told in ((answer, answered), (wait, waited)):
                    command = [sys.executable, *shlex.split(words)[1:-1], url]
                    assert subprocess.run(command, capture_output=True, check=True, **run).stdout == told
                assert _noisette(report.replace("http://127.0.0.1:8000", url)) == reported
                site.page = page.replace("http://127.0.0.1:8000", url)
                visitor = browser.new_context().new_page()
                visitor.goto(site.url)
                expect(visitor.locator("#state")).to_have_text("Sent 1, left 0.", timeout=120_000)
                visitor.close()
                assert httpx.get(f"{url}/dashboard").status_code == 200
                _, _, header, address = shlex.split(read)
                name, _, value = header.partition(": ")
                found = httpx.get(
                    address.replace("http://127.0.0.1:8000", url), headers={name: value}, timeout=300
                ).json()
            finally:
                server.send_signal(signal.SIGTERM)
    assert server.returncode == 0
    assert found["users"] == 5001 + 1 + 3 + 1
    # six standard errors: a false alarm of 1e-8 for each of the two
    for row, truth, rounding in zip(found["dimensions"], (31.8, 0.493), (0.06, 0.0015), strict=False):
        assert abs(row["value"] - truth) < 6 * row["std_error"] + rounding


class _Site:
    """A site with one page."""

    def __init__(self) -> None:
        self.url, self.page = "", ""


@contextmanager
def _site() -> Iterator[_Site]:
    site, app = _Site(), FastAPI(openapi_url=None)
    app.get("/")(lambda: HTMLResponse(site.page))
    with running(app) as url:
        site.url = url
        yield site
