"""Settings shared by all tests."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from playwright.sync_api import Browser

_FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync"
)

# Where the founders keep the real data; tests that need them are skipped, with a reason, where there are none.
_DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
if _DATA.is_dir():
    os.environ.setdefault("NOISETTE_DATA", str(_DATA))

# The same examples on every run and every machine; a slow machine is not a failure.
settings.register_profile("noisette", derandomize=True, deadline=None)
settings.load_profile("noisette")


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test marked ``needs_data`` where there are no real data."""
    if item.get_closest_marker("needs_data") and not os.environ.get("NOISETTE_DATA"):
        pytest.skip("NOISETTE_DATA names no folder")


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """A real browser: Debian's chromium, driven by Playwright. Where there is none the tests fail; none is skipped."""
    from playwright.sync_api import sync_playwright

    script = Path(__file__).parents[1] / "scripts" / "browser.sh"
    found = subprocess.run([str(script)], capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=found.stdout.strip(), args=_FLAGS.split())
        yield chromium
        chromium.close()
