"""Take the picture of the README from the real thing: the planner page and a collector's dashboard, side by side.

scripts/picture.py [FILE]      docs/images/planner-and-dashboard.png by default; needs the extras of `make test`

The collector is a process that collects the demonstration's campaign; 20,000 simulated devices have reported to it.
"""

from __future__ import annotations

import base64
import json
import shutil
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from playwright.sync_api import Browser, sync_playwright

from noisette.demo import devices, population
from noisette.demo.devices import serving
from noisette.planner import page
from noisette.survey.campaigns import Campaign

ROOT = Path(__file__).resolve().parents[1]
TARGET = ROOT / "docs" / "images" / "planner-and-dashboard.png"
USERS, EPSILON, SEED = 20_000, 4.0, 7
WIDTH, HEIGHT = 1180, 1240  # of each page, wide enough for its columns
SHOWN = 820  # pixels of each half in the picture
_FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
_TITLES = ("Before: plan the error", "After: estimates, with honest error bars")


def planner(browser: Browser, folder: Path) -> bytes:
    """Photograph the planner page for the demonstration's numbers."""
    text = page(users=USERS, epsilon=EPSILON, dims=len(population.SIGNALS), distribution="beta:2,5")
    (folder / "planner.html").write_text(text, encoding="utf-8")
    sheet = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT})
    sheet.goto((folder / "planner.html").as_uri())
    sheet.locator("svg").first.wait_for()
    return sheet.screenshot()


def dashboard(browser: Browser) -> bytes:
    """Photograph the dashboard of a collector to which every device has reported."""
    asked = population.campaign(USERS, EPSILON)
    with serving(asked) as collector:
        campaign = Campaign.from_dict(asked)
        people = population.simulate(USERS, np.random.default_rng(SEED))
        noise = np.random.default_rng(SEED + 1)
        devices.report(campaign, collector, people, noise, lambda found, seconds: None)
        sheet = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT})
        sheet.goto(f"{collector.url}/dashboard")
        sheet.get_by_label("key").fill(collector.keys["analyst"])
        sheet.get_by_role("button", name="Open").click()
        sheet.locator("#errors svg").first.wait_for()
        sheet.wait_for_load_state("networkidle")
        return sheet.screenshot()


def main() -> None:
    """Take both and put them beside each other."""
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else TARGET
    with sync_playwright() as playwright, TemporaryDirectory() as folder:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=_FLAGS)
        halves = [base64.b64encode(taken).decode() for taken in (planner(browser, Path(folder)), dashboard(browser))]
        figures = "".join(
            f"<figure><figcaption>{title}</figcaption><img src='data:image/png;base64,{half}'></figure>"
            for title, half in zip(_TITLES, halves, strict=True)
        )
        style = f"""body {{ margin: 0; padding: 16px; display: flex; gap: 16px; background: #e8e6e3; width: max-content;
          font: 600 22px system-ui, sans-serif; color: #2b2a28 }} figure {{ margin: 0 }}
          figcaption {{ padding: 0 4px 10px }} img {{ width: {SHOWN}px; display: block; border-radius: 8px;
          box-shadow: 0 2px 10px #0003 }}"""
        sheet = browser.new_page(viewport={"width": 2 * SHOWN + 48, "height": 1000})
        sheet.set_content(f"<!doctype html><style>{style}</style>{figures}")
        sheet.locator("body").screenshot(path=target)
        browser.close()
    print(json.dumps({"picture": str(target), "bytes": target.stat().st_size}))


if __name__ == "__main__":
    main()
