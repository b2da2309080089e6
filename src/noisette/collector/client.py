"""The device: it answers campaigns privately, keeps its own budget, and sends when it can."""

from __future__ import annotations

import hashlib
import json
import os
import random
import sqlite3
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import httpx

from noisette._random import Rng
from noisette.accounting import Ledger
from noisette.collector.campaigns import VERSION, Campaign
from noisette.collector.periods import period_at
from noisette.collector.tokens import new_secret, token

_ACCOUNT = "device"
_FIRST_PAUSE = 0.2  # seconds before the second attempt; each pause is twice the one before
_LONGEST_PAUSE = 30.0
_PERHAPS_LATER = frozenset({408, 425, 429})

_SCHEMA = """
CREATE TABLE IF NOT EXISTS secrets (secret BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS campaigns (id TEXT PRIMARY KEY, definition TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS answers (question TEXT PRIMARY KEY, report TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS queue (
    campaign TEXT NOT NULL,
    period TEXT NOT NULL,
    question TEXT NOT NULL REFERENCES answers (question),
    key TEXT NOT NULL,
    state TEXT NOT NULL DEFAULT 'waiting' CHECK (state IN ('waiting', 'sent', 'refused')),
    reason TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (campaign, period)
)
"""


@dataclass(frozen=True)
class Sent:
    """How many reports of this device have reached the collector, were refused by it, and still wait."""

    sent: int
    refused: int
    waiting: int


class Client:
    """One user's device: it privatises locally, never spends more than its budget, and answers a question once.

    ``state`` is a folder that belongs to this device alone: its ledger, its secret, its answers and its queue.
    ``epsilon`` and ``delta`` are all that it will ever spend, over all campaigns. In one period a campaign gets one
    report, however often `answer` is called and whatever the value then is; a campaign with permanent answers gets the
    same report in every period, debited once. So asking again averages no noise away.

    The debit and the report are on the disk before anything is sent. A report is sent again until the collector has
    answered, always under the same key, so it counts once.
    """

    def __init__(
        self,
        url: str,
        *,
        state: str | os.PathLike[str],
        api_key: str,
        epsilon: float,
        delta: float = 0.0,
        attempts: int = 4,
        timeout: float = 10.0,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        folder = Path(state)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._ledger = Ledger(folder / "budget.db")
        self._ledger.open_account(_ACCOUNT, epsilon=epsilon, delta=delta)
        self._path = folder / "answers.db"
        self._attempts = attempts
        self._http = httpx.Client(
            base_url=url, headers={"Authorization": f"Bearer {api_key}"}, timeout=timeout, transport=transport
        )
        with self._open() as database:
            for statement in _SCHEMA.split(";\n"):
                database.execute(statement)
            if database.execute("SELECT count(*) FROM secrets").fetchone()[0] == 0:
                database.execute("INSERT INTO secrets VALUES (?)", (new_secret(),))
            self._secret: bytes = database.execute("SELECT secret FROM secrets").fetchone()[0]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection and the ledger; what waits stays in its file."""
        self._http.close()
        self._ledger.close()

    @property
    def left(self) -> Mapping[str, Any]:
        """What is left of the budget."""
        return self._ledger.balance(_ACCOUNT).left

    def campaign(self, campaign_id: str) -> Campaign:
        """Fetch a campaign; while the collector does not answer, return it as it was last seen."""
        try:
            answer = self._http.get(f"/campaigns/{campaign_id}")
            if answer.is_server_error:
                answer.raise_for_status()
        except httpx.HTTPError:
            with self._open() as database:
                row = database.execute("SELECT definition FROM campaigns WHERE id = ?", (campaign_id,)).fetchone()
            if row is None:
                raise
            return Campaign.from_wire(json.loads(row[0]))
        if answer.status_code != 200:
            raise RuntimeError(f"The collector does not show campaign {campaign_id!r}: {_reason(answer)}")
        found = Campaign.from_wire(answer.json())
        if found.id != campaign_id:
            raise ValueError(f"Expected campaign {campaign_id!r}, the collector sent {found.id!r}.")
        with self._open() as database:
            database.execute("INSERT OR REPLACE INTO campaigns VALUES (?, ?)", (campaign_id, answer.text))
        return found

    def answer(self, campaign_id: str, values: Mapping[str, Any], *, clip: bool = False, rng: Rng = None) -> bool:
        """Answer a campaign for the current period and put the report into the queue; `send` sends it.

        Returns whether a new report was made. Raises `noisette.accounting.BudgetExceeded` when the budget does not
        allow another one. ``rng`` is for tests: leave it out on a device.
        """
        campaign = self.campaign(campaign_id)
        campaign.encode(values, clip=clip)  # a wrong value is an error before anything is debited
        period = period_at(campaign.period)
        question = _question(campaign, period)
        with self._open() as database:
            known = database.execute("SELECT 1 FROM answers WHERE question = ?", (question,)).fetchone()
            taken = database.execute(
                "SELECT 1 FROM queue WHERE campaign = ? AND period = ?", (campaign.id, period)
            ).fetchone()
        if taken is not None:
            return False
        fresh = known is None
        report = ""
        if fresh:
            # A debit without a report is one whose report was never written, and so never sent: it may be made now.
            self._ledger.debit(_ACCOUNT, campaign.mechanism, note=campaign.id, idempotency_key=question)
            report = json.dumps(campaign.privatize(values, clip=clip, rng=rng), separators=(",", ":"))
        with self._open() as database:
            if fresh:
                database.execute("INSERT OR IGNORE INTO answers VALUES (?, ?)", (question, report))
            database.execute(
                "INSERT OR IGNORE INTO queue (campaign, period, question, key) VALUES (?, ?, ?, ?)",
                (campaign.id, period, question, uuid.uuid4().hex),
            )
        return fresh

    def send(self) -> Sent:
        """Send what waits, trying again with growing pauses; what the collector cannot take now stays in the queue."""
        query = "SELECT campaign, period, key, report FROM queue JOIN answers USING (question) WHERE state = 'waiting'"
        with self._open() as database:
            waiting = database.execute(query).fetchall()
        for campaign, period, key, report in waiting:
            body = {"version": VERSION, "key": key, "period": period, "token": token(self._secret, campaign, period)}
            answer = self._post(campaign, body | {"report": json.loads(report)})
            if answer is None:
                break
            state = ("sent", "") if answer.is_success else ("refused", _reason(answer))
            with self._open() as database:
                database.execute("UPDATE queue SET state = ?, reason = ? WHERE key = ?", (*state, key))
        with self._open() as database:
            counts = dict(database.execute("SELECT state, count(*) FROM queue GROUP BY state").fetchall())
        return Sent(counts.get("sent", 0), counts.get("refused", 0), counts.get("waiting", 0))

    def refusals(self) -> list[tuple[str, str, str]]:
        """Return campaign, period and reason of the reports that the collector refused."""
        with self._open() as database:
            return database.execute("SELECT campaign, period, reason FROM queue WHERE state = 'refused'").fetchall()

    def _post(self, campaign: str, body: Mapping[str, Any]) -> httpx.Response | None:
        """Post a report until the collector has decided about it, or return None when all attempts failed."""
        for attempt in range(self._attempts):
            if attempt:
                time.sleep(min(_LONGEST_PAUSE, _FIRST_PAUSE * 2 ** (attempt - 1)) * random.uniform(0.5, 1.0))
            try:
                answer = self._http.post(f"/campaigns/{campaign}/reports", json=body)
            except httpx.TransportError:
                continue
            if answer.status_code < 500 and answer.status_code not in _PERHAPS_LATER:
                return answer
        return None

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        """Give the device's own database; what is done with it is on the disk at the end, or undone."""
        with closing(sqlite3.connect(self._path, timeout=30, isolation_level=None)) as database:
            database.execute("PRAGMA synchronous = FULL")
            database.execute("BEGIN IMMEDIATE")
            try:
                yield database
            except BaseException:
                database.execute("ROLLBACK")
                raise
            database.execute("COMMIT")


def _question(campaign: Campaign, period: str) -> str:
    """Name what is asked, so that it is answered once: for ever, or once in each period."""
    asked = json.dumps([campaign.id, campaign.mechanism.spec()], sort_keys=True)
    digest = hashlib.sha256(asked.encode()).hexdigest()
    return digest if campaign.answers == "permanent" else f"{digest}/{period}"


def _reason(answer: httpx.Response) -> str:
    """Return the collector's words."""
    try:
        return str(answer.json()["detail"])
    except (ValueError, KeyError, TypeError):
        return f"status {answer.status_code}"
