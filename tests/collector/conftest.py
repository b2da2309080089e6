"""A campaign, a store and a service that tests share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI
from fastapi.responses import HTMLResponse
from tests.collector.helpers import COMMUTE, KEYS, running
from tests.collector.postgres import Postgres, found

from noisette.collector import Store, create_app
from noisette.collector.web.access import Keys
from noisette.device.conversation import trusted
from noisette.survey.campaigns import Campaign


@pytest.fixture(scope="session")
def campaign() -> Campaign:
    return Campaign.from_dict(COMMUTE)


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """A server that all tests share, each with a database of its own."""
    if not found():
        pytest.skip("no PostgreSQL server is installed here")
    with Postgres() as server:
        yield server


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    made = Store(f"sqlite:///{tmp_path / 'reports.db'}")
    yield made
    made.close()


@contextmanager
def _serving(campaign: Campaign, store: Store) -> Iterator[httpx.Client]:
    """Give a client of the service, which listens on a port of this machine."""
    keys = Keys({role: [key] for role, key in KEYS.items()})
    app = create_app([campaign], store, keys, largest_body=200_000)
    with running(app) as url, httpx.Client(base_url=url, timeout=300, verify=trusted()) as client:
        yield client


@pytest.fixture
def service(campaign: Campaign, store: Store) -> Iterator[httpx.Client]:
    with _serving(campaign, store) as client:
        yield client


@pytest.fixture(scope="module")
def untouched(campaign: Campaign, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[httpx.Client, Store]]:
    """A service, and its store, that all tests of a file share which leave both as they were: requests are refused."""
    store = Store(f"sqlite:///{tmp_path_factory.mktemp('untouched') / 'reports.db'}")
    with _serving(campaign, store) as client:
        yield client, store
    assert store.periods(campaign) == {}
    store.close()


@pytest.fixture(scope="session")
def sites() -> Iterator[list[str]]:
    """Two sites with a page and no more, of other origins than the collector's."""
    page = FastAPI(openapi_url=None)
    page.get("/")(lambda: HTMLResponse("<!doctype html><title>A shop</title>"))
    page.get("/favicon.ico")(lambda: HTMLResponse(""))
    with running(page) as one, running(page) as two:
        yield [one, two]
