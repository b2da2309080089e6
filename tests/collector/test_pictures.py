"""Pictures of the pages for the documentation, made from a real collector.

A test fails where a page of the tutorial does not show what the tutorial says. With NOISETTE_PICTURES=1 the pictures of
docs/images are made anew.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from playwright.sync_api import Browser, Page, expect
from tests.collector.helpers import KEYS, entry, known_keys, running

import noisette as nz
from noisette.collector import Store, create_app
from noisette.collector.campaigns.life import Life
from noisette.collector.storage.tracks import note_arrivals
from noisette.collector.web.console import once_key
from noisette.planner import page as planner_page
from noisette.survey.campaigns import Campaign

pytestmark = pytest.mark.long

IMAGES = Path(__file__).parents[2] / "docs" / "images"
LUNCH: dict[str, Any] = {
    "id": "lunch",
    "title": "Lunch at work",
    "epsilon": 2.0,
    "users": 2000,
    "wanted": 5,
    "questions": [
        {"name": "eat", "categories": ["meat", "fish", "vegan"]},
        {"name": "devices", "options": ["phone", "tablet", "watch"], "most": 2},
        {"name": "minutes", "range": [0, 60]},
    ],
    "mechanism": {"eat": "grr", "devices": "privset", "minutes": "piecewise"},
    "groups": {"site": ["north", "south"]},
    "form": {
        "by": "the kitchen",
        "questions": {
            "eat": {"ask": "What do you eat?"},
            "devices": {"ask": "What do you carry?"},
            "minutes": {"ask": "How long is your break?", "unit": "minutes"},
        },
    },
}


def keep(page: Page, name: str, *, whole: bool = True) -> None:
    """Write a picture where that was asked for; each is a few tens of kB."""
    if os.environ.get("NOISETTE_PICTURES"):
        page.screenshot(path=IMAGES / f"{name}.png", full_page=whole)


def test_pictures_of_the_tutorial(tmp_path: Path, browser: Browser) -> None:
    campaign = Campaign.from_dict(LUNCH)
    store = Store(f"sqlite:///{tmp_path / 'r.db'}")
    key, people, now = once_key(store.registry), 1500, time.time()
    store.register(campaign, Life.read(LUNCH).written())
    note_arrivals(store, campaign, "once", [(now - 3600.0 * hour, 1500 - 60 * hour) for hour in range(24, 0, -1)])
    with running(create_app([], store, known_keys())) as url:
        rng = np.random.default_rng(5)
        values = {
            "eat": rng.choice(3, people, p=[0.5, 0.2, 0.3]),
            "devices": np.where(rng.random((people, 1)) < 0.7, [[0, -1]], [[0, 2]]),
            "minutes": np.clip(rng.normal(32, 8, people), 0, 60),
        }
        rows = campaign.privatize_coded(values, rng=6)
        reports = [
            entry(campaign.survey.written(row), group=["north", "south"][place % 2]) for place, row in enumerate(rows)
        ]
        for start in range(0, people, 500):
            body = {"version": 1, "reports": reports[start : start + 500]}
            device = {"Authorization": f"Bearer {KEYS['device']}"}
            httpx.post(f"{url}/campaigns/lunch/reports", json=body, headers=device).raise_for_status()
        phone = {"viewport": {"width": 390, "height": 780}}
        person = browser.new_context(**phone).new_page()
        person.goto(f"{url}/c/lunch")
        person.locator("form").wait_for()
        keep(person, "form", whole=False)
        person.get_by_role("radio", name="vegan").check()
        person.get_by_role("checkbox", name="phone").check()
        person.get_by_label("How long is your break?", exact=True).fill("30")
        person.get_by_role("radio", name="north").check()
        person.get_by_role("button", name="Make my report").click()
        person.locator("#how summary").click()
        keep(person, "report")
        owner = browser.new_context(viewport={"width": 1000, "height": 900}).new_page()
        owner.goto(f"{url}/console#key={key}")
        owner.locator("#write").get_by_label("Title").fill("Coffee")
        owner.get_by_label("Question", exact=True).fill("How many cups a day?")
        owner.get_by_label("Kind").select_option("number")
        owner.get_by_label("From", exact=True).fill("0")
        owner.get_by_label("To", exact=True).fill("10")
        expect(owner.locator("#plan tbody tr")).to_have_count(1)
        keep(owner, "console")
        reader = browser.new_context(viewport={"width": 1000, "height": 900}).new_page()
        reader.goto(f"{url}/dashboard#lunch?key={KEYS['analyst']}")
        expect(reader.locator("#known li")).to_have_count(4)
        expect(reader.locator("#comparison")).to_contain_text("by site")
        expect(reader.locator("#known li small").first).to_contain_text("at the pace of the last day")
        expect(reader.locator("#estimates")).to_contain_text("minutes")
        keep(reader, "dashboard", whole=False)
        for page in (person, owner, reader):
            page.context.close()


def test_picture_of_the_planner(tmp_path: Path, browser: Browser) -> None:
    """The page of "Should I collect this?", with the numbers of its text."""
    file = tmp_path / "planner.html"
    text = planner_page(
        users=3000, dims=24, epsilon=1.0, domain=nz.Interval(0, 10), distribution="beta:2,6", target_mse=0.04
    )
    file.write_text(text, encoding="utf-8")
    with browser.new_context(viewport={"width": 1180, "height": 940}) as context:
        page = context.new_page()
        page.goto(file.as_uri())
        expect(page.locator("#verdict-title")).to_contain_text("± 1.8")
        expect(page.locator("#verdict-aim")).to_have_text("coarser than wanted")
        keep(page, "planner", whole=False)
