"""Settings shared by all tests; which of them run is decided in conftest.py at the root."""

from __future__ import annotations

import asyncio
import inspect
import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext

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

# Seconds that a page, or the answer to a request, may take before a test gives up: httpx's and Playwright's own five
# are too few beside busy processes.
_PATIENCE = 300.0
with suppress(ModuleNotFoundError):
    import httpx

    _default = inspect.signature(httpx.get).parameters["timeout"].default
    _default.connect = _default.read = _default.write = _default.pool = _PATIENCE
    # To read all authorities takes longer than most requests of a test, and httpx.get does so each time: once will do.
    httpx._transports.default.create_ssl_context = cache(httpx.create_ssl_context)  # type: ignore[attr-defined]


@pytest.fixture(autouse=True)
def _no_loop_of_the_browser(request: pytest.FixtureRequest) -> Iterator[None]:
    """Playwright's event loop counts as running until the last test; tests without a browser start their own."""
    running = None if "browser" in request.fixturenames else asyncio._get_running_loop()
    if running is None:
        yield
        return
    asyncio._set_running_loop(None)
    yield
    asyncio._set_running_loop(running)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """A real browser: Debian's chromium, driven by Playwright. `make test` installs it, or says how to."""
    from playwright.sync_api import expect, sync_playwright

    names = (os.environ.get("NOISETTE_BROWSER"), "chromium", "chromium-browser")
    found = next(filter(None, map(shutil.which, filter(None, names))), None)
    if found is None:
        pytest.skip("needs chromium: scripts/browser.sh installs it")
    expect.set_options(timeout=_PATIENCE * 1000)
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=found, args=_FLAGS.split())
        make = chromium.new_context

        def patient(**options: Any) -> BrowserContext:
            context = make(**options)
            context.set_default_timeout(_PATIENCE * 1000)
            return context

        chromium.new_context = patient  # type: ignore[method-assign]
        yield chromium
        chromium.close()
