"""A real browser: Debian's chromium, driven by Playwright. Where there is none the tests fail; none is skipped."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, sync_playwright

FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync"
)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    script = Path(__file__).parents[2] / "scripts" / "browser.sh"
    found = subprocess.run([str(script)], capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=found.stdout.strip(), args=FLAGS.split())
        yield chromium
        chromium.close()
