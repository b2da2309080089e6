"""A gateway: it answers for many users whose values it holds, such as the rows of a file, each of them once.

What a gateway keeps is in one folder: a ledger, a secret and every report that it has made. A report is on the disk
before it is sent, and is sent again under the same token until the collector has decided about it. So a run that was
cut short goes on where it stood, and no user counts twice or spends twice.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import httpx
import numpy as np
import numpy.typing as npt

from noisette._random import Rng
from noisette.accounting import Ledger
from noisette.collector.batches import TOKEN_BYTES, pack
from noisette.collector.campaigns import Campaign
from noisette.collector.client import bearer, hold, post, reason_of
from noisette.collector.device import question_of, transaction
from noisette.collector.periods import period_at
from noisette.collector.tokens import new_secret, token

_ACCOUNT = "each user"
_LARGEST_BATCH = 10_000
_LARGEST_BODY = 3 * 2**20  # bytes, below what a collector takes by default

_SCHEMA = """
CREATE TABLE IF NOT EXISTS secrets (secret BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS sources (digest TEXT PRIMARY KEY);
CREATE TABLE IF NOT EXISTS answers (
    question TEXT NOT NULL, user BLOB NOT NULL, report BLOB NOT NULL, PRIMARY KEY (question, user)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS queue (
    campaign TEXT NOT NULL,
    period TEXT NOT NULL,
    user BLOB NOT NULL,
    question TEXT NOT NULL,
    public_group INTEGER NOT NULL,
    state TEXT NOT NULL DEFAULT 'waiting' CHECK (state IN ('waiting', 'sent', 'refused')),
    reason TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (campaign, period, user)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS still_waiting ON queue (campaign, period) WHERE state = 'waiting'
"""


@dataclass(frozen=True)
class Tally:
    """What became of a campaign's reports in a period: each user is in one of the three counts."""

    sent: int
    refused: int
    waiting: int

    @property
    def users(self) -> int:
        """All users who have a report."""
        return self.sent + self.refused + self.waiting


class Gateway:
    """Answers one campaign, in the current period, for many users.

    ``epsilon`` and ``delta`` are all that any user of this folder will ever spend, over all campaigns: each user
    answers a question once, so one debit stands for all.
    """

    def __init__(
        self,
        url: str,
        campaign_id: str,
        *,
        state: str | os.PathLike[str],
        api_key: str,
        epsilon: float,
        delta: float = 0.0,
        attempts: int = 6,
        timeout: float = 60.0,
    ) -> None:
        home = Path(state)
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._path = home / "reports.db"
        self._attempts = attempts
        self._http = httpx.Client(base_url=url, headers=bearer(api_key), timeout=timeout)
        self._ledger = Ledger(home / "budget.db")
        self._ledger.open_account(_ACCOUNT, epsilon=epsilon, delta=delta)
        with transaction(self._path) as database:
            for statement in _SCHEMA.split(";\n"):
                database.execute(statement)
            if database.execute("SELECT count(*) FROM secrets").fetchone()[0] == 0:
                database.execute("INSERT INTO secrets VALUES (?)", (new_secret(),))
            self._secret: bytes = database.execute("SELECT secret FROM secrets").fetchone()[0]
        try:
            self.campaign = self._fetch(campaign_id)
        except BaseException:
            self.close()
            raise
        self.period = period_at(self.campaign.period)
        self._question = question_of(self.campaign, self.period)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection and the ledger; what waits stays in its file."""
        self._http.close()
        self._ledger.close()

    def _fetch(self, campaign_id: str) -> Campaign:
        answer = self._http.get(f"/campaigns/{campaign_id}")
        if answer.status_code != 200:
            raise RuntimeError(f"The collector does not show campaign {campaign_id!r}: {reason_of(answer)}")
        campaign = Campaign.from_wire(answer.json())
        if campaign.tokens != "open":
            raise ValueError(f"Campaign {campaign_id!r} admits users by enrolment code: give each a Client of her own.")
        return campaign

    def same_source(self, digest: str) -> None:
        """Refuse rows of another source than the folder has seen: their numbers would name other users."""
        with transaction(self._path) as database:
            known = [row[0] for row in database.execute("SELECT digest FROM sources")]
            if known and known != [digest]:
                raise ValueError(
                    "This file is not the one that was reported from this --state: row numbers would name other users. "
                    "Name the column that identifies users with --user."
                )
            database.execute("INSERT OR IGNORE INTO sources VALUES (?)", (digest,))

    def debit(self) -> None:
        """Pay for this question, once for all users, or raise `noisette.accounting.BudgetExceeded`."""
        spent = self.campaign.mechanism.guarantee
        self._ledger.debit(_ACCOUNT, spent, note=self.campaign.id, idempotency_key=self._question)

    def answer(
        self,
        users: Sequence[bytes],
        coded: Mapping[str, npt.NDArray[Any]],
        groups: npt.NDArray[np.uint16] | None = None,
        *,
        rng: Rng = None,
    ) -> int:
        """Privatise and queue the answers of users who have none yet, and return how many are new in this period.

        ``coded`` has each attribute's values along one axis, labels as codes. A user who has answered the question
        keeps that report. ``rng`` is for tests: leave it out.
        """
        self.debit()
        names = [hmac.new(self._secret, user, hashlib.sha256).digest() for user in users]
        rows = self.campaign.privatize_coded(coded, rng=rng)
        chosen = np.zeros(len(names), dtype=np.uint16) if groups is None else groups
        made = [(self._question, name, row.tobytes()) for name, row in zip(names, rows, strict=True)]
        queued = [
            (self.campaign.id, self.period, name, self._question, int(group))
            for name, group in zip(names, chosen, strict=True)
        ]
        columns = "(campaign, period, user, question, public_group)"
        with transaction(self._path) as database:  # a report that is not written here is forgotten, and never sent
            database.executemany("INSERT OR IGNORE INTO answers VALUES (?, ?, ?)", made)
            before = database.total_changes
            database.executemany(f"INSERT OR IGNORE INTO queue {columns} VALUES (?, ?, ?, ?, ?)", queued)
            return database.total_changes - before

    def send(self, on_progress: Callable[[float], None] = lambda share: None) -> Tally:
        """Send what waits in batches, and return what became of all; what cannot be sent now stays."""
        size = self.campaign.row.itemsize + TOKEN_BYTES + 2
        most = max(1, min(_LARGEST_BATCH, _LARGEST_BODY // size))
        query = (
            "SELECT queue.user, public_group, report FROM queue JOIN answers USING (question, user) "
            "WHERE campaign = ? AND period = ? AND state = 'waiting' LIMIT ?"
        )
        while True:
            with transaction(self._path) as database:
                batch = database.execute(query, (self.campaign.id, self.period, most)).fetchall()
            if not batch or not self._send(batch):
                return self.tally()
            tally = self.tally()
            on_progress((tally.sent + tally.refused) / tally.users)

    def _send(self, batch: list[tuple[bytes, int, bytes]]) -> bool:
        """Send one batch and write down what the collector said; tell whether it said anything."""
        users, groups, reports = zip(*batch, strict=True)
        tokens = b"".join(bytes.fromhex(token(user, self.campaign.id, self.period)) for user in users)
        rows = np.frombuffer(b"".join(reports), dtype=self.campaign.row)
        body = pack(self.campaign, self.period, tokens, rows, groups=groups)
        answer = hold(self._http, post(self.campaign.id, body, self._attempts))
        if answer is None:
            return False
        if answer.is_success:
            told = answer.json()
            if told["accepted"] + told["repeated"] != len(batch):
                raise RuntimeError(f"Sent {len(batch)} reports, the collector counted {told}. Ask who runs it.")
            self._settle([(user, "sent", "") for user in users])
            return True
        refused = answer.json().get("reports") if answer.status_code in (400, 409, 422) else None
        if not refused:
            raise RuntimeError(f"The collector refuses the batch: {reason_of(answer)}")
        self._settle([(users[one["index"]], "refused", one["detail"]) for one in refused])
        return True

    def _settle(self, outcomes: Sequence[tuple[bytes, str, str]]) -> None:
        rows = [(state, reason, self.campaign.id, self.period, user) for user, state, reason in outcomes]
        statement = "UPDATE queue SET state = ?, reason = ? WHERE campaign = ? AND period = ? AND user = ?"
        with transaction(self._path) as database:
            database.executemany(statement, rows)

    def tally(self) -> Tally:
        """Count this period's users by what became of their reports."""
        query = "SELECT state, count(*) FROM queue WHERE campaign = ? AND period = ? GROUP BY state"
        with transaction(self._path) as database:
            found = dict(database.execute(query, (self.campaign.id, self.period)).fetchall())
        return Tally(found.get("sent", 0), found.get("refused", 0), found.get("waiting", 0))

    def refusals(self) -> dict[str, int]:
        """Return how many of this period's reports were refused, by reason."""
        query = "SELECT reason, count(*) FROM queue WHERE campaign = ? AND period = ? AND state = 'refused' GROUP BY 1"
        with transaction(self._path) as database:
            return dict(database.execute(query, (self.campaign.id, self.period)).fetchall())
