"""A collector of its own process to be killed under load, and how its counts are reconciled afterwards."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Thread
from typing import Any

import httpx
import numpy as np
from tests.collector.helpers import COMMUTE, KEYS, PERSON, auth, digests, entry, reconcile
from tests.shuffler.processes import Process

from noisette.collector import Store
from noisette.survey.batches import key_digests, pieces
from noisette.survey.campaigns import Campaign

REPORTS = "/campaigns/commute/reports"
# digests wait in the log a million at a time; here so few that a kill comes while some go on into the tree
_SERVE = (
    "from noisette.collector.storage import sqlite; sqlite.MOST_DIGESTS = 300; from noisette.cli import main; main()"
)


def collector(folder: Path, database: str, *options: str) -> Process:
    """Return `noisette serve` for the campaign of the tests."""
    (folder / "campaign.yaml").write_text(json.dumps(COMMUTE), encoding="utf-8")  # JSON is YAML
    (folder / "keys.yaml").write_text(json.dumps({role: [key] for role, key in KEYS.items()}), encoding="utf-8")
    words = ["serve", "campaign.yaml", "--keys", "keys.yaml", "--port", "PORT", "--database", database, *options]
    return Process(folder, _SERVE, *words)


@dataclass(frozen=True)
class Counts:
    """What became of reports: how many were acknowledged and stored, and how many of them wrongly."""

    acknowledged: int
    stored: int
    lost: int  # acknowledged and not stored
    invented: int  # stored, or a digest of them, and never sent

    @property
    def exact(self) -> bool:
        """Whether nothing is wrong; that no sum has a report twice is seen before."""
        return not self.lost and not self.invented


@dataclass
class Load:
    """Batches of reports on several threads, and what was acknowledged of them."""

    campaign: Campaign
    threads: int
    seed: int = 11
    acknowledged: set[str] = field(default_factory=set)
    sent: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._clock, rng = random.Random(self.seed), np.random.default_rng(self.seed)
        self._reports = [self.campaign.privatize(PERSON, rng=rng) for _ in range(50)]  # many users may send the same
        self.unsent: list[list[list[dict[str, Any]]]] = [[] for _ in range(self.threads)]

    def _batch(self) -> list[dict[str, Any]]:
        """Make a batch of new reports."""
        made = [entry(report) for report in self._reports[: self._clock.choice((1, 7, 50))]]
        self.sent.update(one["key"] for one in made)
        return made

    def until_killed(self, url: str, kill: Callable[[], Any], *, least: int = 300) -> None:
        """Send without end on all threads, and kill at a random moment after so many reports were acknowledged.

        What is left in a queue then may or may not have been stored.
        """
        stop = Event()
        senders = [Thread(target=self.send, args=(url, queue, stop, True)) for queue in self.unsent]
        for thread in senders:
            thread.start()
        before, deadline = len(self.acknowledged), time.monotonic() + 300
        while len(self.acknowledged) < before + least and time.monotonic() < deadline:
            time.sleep(0.01)
        enough = len(self.acknowledged) >= before + least
        time.sleep(self._clock.uniform(0, 0.2))
        kill()
        stop.set()
        for thread in senders:
            thread.join()
        assert enough, "nobody answered: nothing was tested"

    def send(self, url: str, queue: list[list[dict[str, Any]]], stop: Event, more: bool = False) -> None:
        """Send one batch after the other until told to stop or nobody answers, and note what was acknowledged."""
        with httpx.Client(base_url=url, headers=auth("device"), timeout=120) as client:
            while (queue or more) and not stop.is_set():
                queue += [] if queue else [self._batch()]
                try:
                    answer = client.post(REPORTS, json={"version": 1, "reports": queue[0]})
                except httpx.TransportError:
                    return
                if answer.status_code == 503:  # the database is away
                    time.sleep(0.05)
                    continue
                assert answer.is_success, answer.text
                self.acknowledged.update(one["key"] for one in queue.pop(0))

    def reconcile(self, database: str) -> Counts:
        """Compare sums, reports and digests of a database exactly, and all with what was sent and acknowledged."""
        store = Store(database)
        users = reconcile(store, self.campaign)
        names = sorted(self.sent)
        known = digests(store)
        store.close()
        own = zip(pieces(key_digests(self.campaign.id, names)), names, strict=True)
        stored = {name for digest, name in own if digest in known}
        invented = abs(users - len(stored)) + abs(len(known) - 2 * users)
        return Counts(len(self.acknowledged), users, len(self.acknowledged - stored), invented)
