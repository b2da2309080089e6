"""A gateway: it answers for many users whose values it holds, such as the rows of a file, each of them once.

What a gateway keeps is in one folder: a ledger, a secret and every report that it has made. A report is on the disk
before it is sent, and is sent again under the same token until the collector has decided about it. So a run that was
cut short goes on where it stood, and no user counts twice or spends twice.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

import httpx
import numpy as np
import numpy.typing as npt

from noisette._random import Rng
from noisette._sqlite import transaction
from noisette.certificates import check_promise
from noisette.device.conversation import CollectorError, admit, ahead_of, bearer, hold, post, reason_of, shown, trusted
from noisette.device.state import Sent, Verdict, check_time, home_of, ledger_of, note_law, pay, question_of, secret_of
from noisette.device.tokens import Wallet, token, written
from noisette.guarantees import warn_known_noise
from noisette.mechanisms.written import other_law
from noisette.survey.batches import TOKEN_BYTES, pack
from noisette.survey.campaigns import VERSION, Campaign
from noisette.survey.periods import period_at

if TYPE_CHECKING:
    from noisette.device.sealed import Seal

_ACCOUNT = "each user"
_LARGEST_BATCH = 10_000
_LARGEST_BODY = 3 * 2**20  # bytes, below what a collector takes by default
_ONE_BY_ONE = 100  # users between two looks at how far it is, where each is admitted or sealed for by herself

_SCHEMA = """
CREATE TABLE IF NOT EXISTS secrets (secret BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS sources (digest TEXT PRIMARY KEY);
CREATE TABLE IF NOT EXISTS answers (
    question TEXT NOT NULL, user BLOB NOT NULL, report BLOB NOT NULL, PRIMARY KEY (question, user)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS asked (question TEXT PRIMARY KEY);
CREATE TABLE IF NOT EXISTS laws (question TEXT PRIMARY KEY, law TEXT NOT NULL);
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


class Gateway:
    """Answers one campaign, in the current period, for many users.

    ``epsilon`` and ``delta`` are all that any user of this folder will ever spend, over all campaigns: each user
    answers a question once, so one debit stands for all. ``codes`` has the enrolment code of each user, for campaigns
    whose tokens are signed. ``shuffler`` is the URL of the shuffler in front of the collector, where there is one, and
    ``secrets`` has each user's secret there; reports are sealed for the key that the collector shows.
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
        codes: Mapping[str, str] | None = None,
        shuffler: str | None = None,
        secrets: Mapping[str, str] | None = None,
        attempts: int = 6,
        timeout: float = 60.0,
    ) -> None:
        home = home_of(state)
        self._path = home / "reports.db"
        self._attempts = attempts
        line: dict[str, Any] = {"timeout": timeout, "verify": trusted()}
        self._lines = {"collector": httpx.Client(base_url=url, headers=bearer(api_key), **line)}
        if shuffler is not None:
            self._lines["shuffler"] = httpx.Client(base_url=shuffler, **line)
        self._ledger = ledger_of(home, _ACCOUNT, epsilon, delta)
        self._secret = secret_of(self._path, _SCHEMA)
        try:
            self.campaign = self._fetch(campaign_id)
            self._codes = {self._name(user.encode()): code for user, code in (codes or {}).items()}
            self._seals = self._enrolled(secrets or {})
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
        """Close the connections and the ledger; what waits stays in its file."""
        for line in self._lines.values():
            line.close()
        self._ledger.close()

    def _fetch(self, campaign_id: str) -> Campaign:
        answer = self._lines["collector"].get(f"/campaigns/{campaign_id}")
        found = shown(answer, campaign_id, sealed="shuffler" in self._lines)
        self._life, self._ahead = answer.json().get("life", {}), ahead_of(answer)
        return found

    def _enrolled(self, secret_of: Mapping[str, str]) -> dict[bytes, Seal]:
        """Return how the reports of each user go through the shuffler; nothing if they do not."""
        if "shuffler" not in self._lines:
            return {}
        from noisette.device.sealed import Seal
        from noisette.shuffler.sealing import PublicKey

        answer = self._lines["collector"].get(f"/campaigns/{self.campaign.id}/shuffler")
        answer.raise_for_status()
        body = answer.json()
        self._minimum, key = int(body["minimum"]), PublicKey(body["public_key"])
        return {self._name(user.encode()): Seal(user, secret, key) for user, secret in secret_of.items()}

    def _name(self, user: bytes) -> bytes:
        """Return the name of a user in this folder: without the secret nobody can tell who it is."""
        return hmac.new(self._secret, user, hashlib.sha256).digest()

    def check(self, users: Sequence[bytes]) -> None:
        """Refuse users without an enrolment code or a secret at the shuffler, where the campaign asks for them."""
        if self.campaign.tokens == "drawn":
            raise ValueError(
                f"Expected users of {self.campaign.id!r} to answer by Client: what is drawn follows from each one's "
                "own token, which a gateway has signed only after it has answered."
            )
        needed: list[tuple[Collection[bytes], str]] = []
        needed += [(self._codes, "enrolment code")] if self.campaign.signed else []
        needed += [(self._seals, "secret at the shuffler")] if "shuffler" in self._lines else []
        for known, what in needed:
            for user in users:
                if self._name(user) not in known:
                    raise ValueError(f"Expected the {what} of user {user.decode()!r}: {self.campaign.id} asks for it.")

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
        """Prove the law, and pay for this question once for all users or raise `noisette.accounting.BudgetExceeded`."""
        check_time(self.campaign, self._life, self._ahead)
        check_promise(self.campaign.survey)  # what it is about to draw by keeps what the campaign promises
        pay(self._path, self._ledger, _ACCOUNT, self.campaign, self._question)

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
        warn_known_noise(rng)
        self.check(users)
        self.debit()
        names = [self._name(user) for user in users]
        rows = self.campaign.privatize_coded(coded, rng=rng)
        chosen = np.zeros(len(names), dtype=np.uint16) if groups is None else groups
        made = [(self._question, name, row.tobytes()) for name, row in zip(names, rows, strict=True)]
        queued = [
            (self.campaign.id, self.period, name, self._question, int(group))
            for name, group in zip(names, chosen, strict=True)
        ]
        columns = "(campaign, period, user, question, public_group)"
        with transaction(self._path) as database:  # a report that is not written here is forgotten, and never sent
            note_law(database, self.campaign, self._question)
            database.executemany("INSERT OR IGNORE INTO answers VALUES (?, ?, ?)", made)
            before = database.total_changes
            database.executemany(f"INSERT OR IGNORE INTO queue {columns} VALUES (?, ?, ?, ?, ?)", queued)
            return database.total_changes - before

    def send(self, on_progress: Callable[[float], None] = lambda share: None) -> Sent:
        """Send what waits, in batches where nothing is sealed, and return what became of all; the rest stays.

        What waits of earlier periods, from a run that was cut short, goes first: a collector takes late reports for
        some time.
        """
        query = "SELECT DISTINCT period FROM queue WHERE campaign = ? AND state = 'waiting' ORDER BY period"
        with transaction(self._path) as database:
            periods = [row[0] for row in database.execute(query, (self.campaign.id,))]
        for period in periods:
            if not self._send_period(period, on_progress):
                break
        return self.tally()

    def _send_period(self, period: str, on_progress: Callable[[float], None]) -> bool:
        """Send what waits of one period; tell whether nothing waits any more."""
        size = self.campaign.row.itemsize + TOKEN_BYTES + 2
        most = max(1, min(_LARGEST_BATCH, _LARGEST_BODY // size))
        if self._codes or self._seals:
            most = min(most, _ONE_BY_ONE)
        query = (
            "SELECT queue.user, public_group, report FROM queue JOIN answers USING (question, user) "
            "WHERE campaign = ? AND period = ? AND state = 'waiting' LIMIT ?"
        )
        self._refuse_other_laws(period)
        while True:
            with transaction(self._path) as database:
                batch = database.execute(query, (self.campaign.id, period, most)).fetchall()
            if not batch:
                return True
            if not self._send(batch, period):
                return False
            tally = self.tally(period)
            on_progress((tally.sent + tally.refused) / tally.reports)

    def _refuse_other_laws(self, period: str) -> None:
        """Write down as refused what waits of a period and was drawn by another law than the campaign has here."""
        columns = "queue.user, law FROM queue JOIN laws USING (question)"
        query = f"SELECT {columns} WHERE campaign = ? AND period = ? AND state = 'waiting' AND law != ?"
        with transaction(self._path) as database:
            found = database.execute(query, (self.campaign.id, period, self.campaign.law_sha256)).fetchall()
        if found:
            own = self.campaign.law_sha256
            self._settle([(user, "refused", other_law(own, law)) for user, law in found], period)

    def _send(self, batch: list[tuple[bytes, int, bytes]], period: str) -> bool:
        """Send one batch and write down what became of it; tell whether there was a decision about all."""
        tokens = self._admitted([user for user, _, _ in batch], period)
        if tokens is None:
            return False
        admitted = [one for one in batch if one[0] in tokens]
        if not admitted:
            return True
        send = self._send_sealed if self._seals else self._send_batch
        return send(admitted, tokens, period)

    def _admitted(self, users: Sequence[bytes], period: str) -> dict[bytes, tuple[bytes, bytes]] | None:
        """Return token and signature of the users who are admitted, noting who is not; None if none is decided on."""
        campaign = self.campaign
        if campaign.tokens == "open":
            return {user: (bytes.fromhex(token(user, campaign.id, period)), b"") for user in users}
        found = {}
        for user in users:
            own = Wallet(self._path, user)
            verdict = hold(self._lines, admit(own, campaign.id, period, self._codes.get(user, ""), self._attempts))
            signed = own.signed(campaign.id, period)
            if signed is not None:
                found[user] = signed
            elif not self._decided(user, period, verdict):
                return None
        return found

    def _send_batch(
        self, batch: list[tuple[bytes, int, bytes]], tokens: dict[bytes, tuple[bytes, bytes]], period: str
    ) -> bool:
        """Send users' reports to the collector in one body."""
        users, groups, reports = zip(*batch, strict=True)
        names, signatures = (b"".join(tokens[user][place] for user in users) for place in (0, 1))
        rows = np.frombuffer(b"".join(reports), dtype=self.campaign.row)
        body = pack(self.campaign, period, names, rows, groups=groups, signatures=signatures)
        answer = hold(self._lines, post(self.campaign.id, body, self._attempts))
        if answer is None:
            return False
        if answer.is_success:
            body = answer.json()
            if body["accepted"] + body["repeated"] != len(batch):
                raise CollectorError(f"Sent {len(batch)} reports, the collector counted {body}. Ask who runs it.")
            self._settle([(user, "sent", "") for user in users], period)
            return True
        refused = answer.json().get("reports") if answer.status_code in (400, 409, 410, 422) else None
        if not refused:
            raise CollectorError(f"The collector refuses the batch, which is kept: {reason_of(answer)}")
        self._settle([(users[one["index"]], "refused", one["detail"]) for one in refused], period)
        return True

    def _send_sealed(
        self, batch: list[tuple[bytes, int, bytes]], tokens: dict[bytes, tuple[bytes, bytes]], period: str
    ) -> bool:
        """Send each user's report to the shuffler, as her own device would."""
        campaign, public = self.campaign, self.campaign.public_group
        for user, group, report in batch:
            key = token(user, campaign.id, f"{period}/key")[:32]
            body = {"version": VERSION, "key": key, "period": period, "law": campaign.law_sha256}
            body |= written(*tokens[user])
            body["report"] = campaign.written(np.frombuffer(report, dtype=campaign.row)[0])
            body |= {} if public is None else {"group": public.values[group]}
            carried = self._seals[user].carry(campaign, body, self._attempts, self._minimum)
            if not self._decided(user, period, hold(self._lines, carried)):
                return False
        return True

    def _decided(self, user: bytes, period: str, verdict: Verdict | None) -> bool:
        """Write down what becomes of a report; tell whether that is its end."""
        if verdict is None:
            return False
        self._settle([(user, verdict.state, verdict.reason)], period)
        return verdict.state != "waiting"

    def _settle(self, outcomes: Sequence[tuple[bytes, str, str]], period: str) -> None:
        rows = [(state, reason, self.campaign.id, period, user) for user, state, reason in outcomes]
        statement = "UPDATE queue SET state = ?, reason = ? WHERE campaign = ? AND period = ? AND user = ?"
        with transaction(self._path) as database:
            database.executemany(statement, rows)

    def tally(self, period: str | None = None) -> Sent:
        """Count a period's users, this one's by default, by what became of their reports."""
        query = "SELECT state, count(*) FROM queue WHERE campaign = ? AND period = ? GROUP BY state"
        with transaction(self._path) as database:
            found = dict(database.execute(query, (self.campaign.id, period or self.period)).fetchall())
        return Sent(found.get("sent", 0), found.get("refused", 0), found.get("waiting", 0))

    def refusals(self) -> dict[str, int]:
        """Return how many of this period's reports were refused, by reason."""
        query = "SELECT reason, count(*) FROM queue WHERE campaign = ? AND period = ? AND state = 'refused' GROUP BY 1"
        with transaction(self._path) as database:
            return dict(database.execute(query, (self.campaign.id, self.period)).fetchall())
