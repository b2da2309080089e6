"""The campaign that tests ask, and what a device sends."""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import sqlalchemy as sa
import uvicorn
from tests.commute import COMMUTE as COMMUTE

from noisette._service import listen, server
from noisette.collector import Store, create_app
from noisette.collector.intake.reading import parse
from noisette.collector.intake.reception import store_all
from noisette.collector.intake.shuffled import Shuffled
from noisette.collector.storage import tables
from noisette.collector.storage.store import Accepted
from noisette.collector.web.access import Keys
from noisette.shuffler import Clients, ServerKey, Shuffler, new_secret
from noisette.shuffler import create_app as create_shuffler
from noisette.shuffler.receiver import PATH
from noisette.shuffler.sender import Http
from noisette.survey.batches import Batch, pieces
from noisette.survey.campaigns import Campaign
from noisette.survey.sums import Sums

SECRET = "the-secret-of-the-operator"  # enrolment codes are made from it
OPERATOR = "key-of-the-operator-in-tests"
KEYS = {role: f"key-of-the-{role}-in-tests" for role in ("device", "analyst", "auditor")}
PERSON = {"minutes": 35, "by": "bike"}


def auth(role: str) -> dict[str, str]:
    """Return the header of a role."""
    return {"Authorization": f"Bearer {KEYS[role]}"}


def entry(report: Any, **changes: Any) -> dict[str, Any]:
    """Return a report as it is sent in a batch, with a key and a token of its own."""
    return {"key": secrets.token_hex(16), "period": "once", "token": secrets.token_hex(32), "report": report} | changes


def entries(campaign: Campaign, count: int, seed: int = 1) -> list[dict[str, Any]]:
    """Return reports of many users as they are sent in a batch."""
    rng = np.random.default_rng(seed)
    return [entry(campaign.privatize(PERSON, rng=rng)) for _ in range(count)]


def arrived(campaign: Campaign, *batch: dict[str, Any]) -> tuple[Batch, ...]:
    """Return the reports of a body as the service reads them."""
    return parse(campaign, json.dumps({"version": 1, "reports": batch}).encode())


def accept(store: Store, campaign: Campaign, *batch: dict[str, Any]) -> Accepted:
    """Store a batch, or raise why not."""
    (outcome,) = store_all(store, [arrived(campaign, *batch)])
    if isinstance(outcome, BaseException):
        raise outcome
    return outcome


def tally(campaign: Campaign, reports: Iterable[Any]) -> Sums:
    """Sum reports that were JSON."""
    return campaign.layout.tally(campaign.decode(list(reports)))


def digests(store: Store) -> dict[bytes, int]:
    """Return the marks of all digests of a database, from the table and the log before it."""
    with store.reading() as connection:
        found = {bytes(digest): mark for digest, mark in connection.execute(sa.select(tables.seen))}
        for row in connection.execute(sa.select(tables.digest_log)):
            logged = dict(zip(pieces(np.frombuffer(row.digests, "u1")), np.frombuffer(row.marks, "<i8"), strict=True))
            assert all(found.get(digest, mark) == mark for digest, mark in logged.items())
            found |= logged
    return found


def reconcile(store: Store, campaign: Campaign, period: str = "once") -> int:
    """Check that reports, sums and digests of tokens agree exactly, and return how many reports there are."""
    batches = list(store.batches(campaign, period))
    total = store.layout(campaign).nothing()
    tokens = set()
    for batch in batches:
        total += store.layout(campaign).tally(batch.rows)
        tokens.update(pieces(batch.token_digests))
    assert store.aggregate(campaign, period) == total
    assert len(tokens) == total.users
    assert tokens <= digests(store).keys()
    return total.users


def known_keys() -> Keys:
    """Return the keys of all roles, and the secret behind enrolment codes."""
    return Keys({role: [key] for role, key in KEYS.items()} | {"enrolment": [SECRET], "operator": [OPERATOR]})


@dataclass(frozen=True)
class Both:
    """A collector behind a shuffler."""

    collector: str
    shuffler: str
    store: Store
    shuffled: Shuffled
    secret_of: dict[str, str]
    own: str


@contextmanager
def behind_a_shuffler(folder: Path, campaign: Campaign, users: int, *, origins: Sequence[str] = ()) -> Iterator[Both]:
    """Serve a campaign behind a shuffler that mixes so many users, all of whom it knows; pages of sites may answer."""
    store = Store(f"sqlite:///{folder / 'shuffled.db'}")
    own, secret_of = new_secret(), {f"device-{number}": new_secret() for number in range(users)}
    shuffled = Shuffled(ServerKey.generate(), Clients({"shuffler": own}), minimum=users)
    with running(create_app([campaign], store, known_keys(), shuffled=shuffled, origins=origins)) as collector:
        mixing = Shuffler(folder / "shuffler.db", minimum=users)
        to = Http(collector, client="shuffler", secret=own, path=PATH, attempts=1)
        with running(create_shuffler(mixing, Clients(secret_of), to, origins=origins)) as url:
            yield Both(collector, url, store, shuffled, secret_of, own)


def until(done: Callable[[], bool]) -> None:
    """Wait until something is so, but not for long."""
    deadline = time.monotonic() + 300
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.05)


class Quick(uvicorn.Server):
    """A server that looks more often whether it should end."""

    async def main_loop(self) -> None:
        """Wait for the end."""
        await self.on_tick(0)
        while not self.should_exit:
            await asyncio.sleep(0.005)


@contextmanager
def running(app: Any) -> Iterator[str]:
    """Serve an app on a port of this machine and give its address."""
    with listen("127.0.0.1", 0) as bound:
        serving = Quick(server(app).config)
        thread = Thread(target=serving.run, kwargs={"sockets": [bound]})
        thread.start()
        try:
            yield f"http://127.0.0.1:{bound.getsockname()[1]}"
        finally:
            serving.should_exit = True
            thread.join()
