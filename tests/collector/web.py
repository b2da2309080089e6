"""A page of another site that has the client, in a real browser."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from playwright.sync_api import Page, Route
from tests.collector.helpers import KEYS, PERSON

OPEN = """async ([url, options]) => {
  const { Client } = await import(url + "/static/noisette.js");
  globalThis.client = await Client.open(url, { attempts: 2, ...options });
}"""


class Shop:
    """A page of another site that has the client."""

    def __init__(self, page: Page, url: str, site: str) -> None:
        self.page, self.url, self.site = page, url, site

    def open(self, *, epsilon: float = 2.0, key: str = KEYS["device"], **options: Any) -> None:
        """Load the page, and make or find its device."""
        self.page.goto(self.site)
        self.page.evaluate(OPEN, [self.url, {"apiKey": key, "epsilon": epsilon} | options])

    def answer(self, campaign: str = "commute", values: Any = PERSON) -> bool:
        """Answer a campaign."""
        return bool(self.page.evaluate("([id, values]) => client.answer(id, values)", [campaign, values]))

    def send(self) -> dict[str, int]:
        """Send what waits."""
        found: dict[str, int] = self.page.evaluate("client.send()")
        return found

    @property
    def left(self) -> float:
        """What is left of the budget."""
        return float(self.page.evaluate("client.left"))


def losing(posted: list[str]) -> Callable[[Route], None]:
    """Return a network that brings a request, notes what was posted, and loses the answer."""

    def lose(route: Route) -> None:
        posted.append((route.request.post_data_buffer or b"").decode("latin-1"))
        route.fetch()
        route.abort()

    return lose
