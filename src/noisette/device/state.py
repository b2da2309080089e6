"""What a device keeps on its disk: its ledger, secret, answers and queue. Nothing here touches a network."""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from noisette._random import Rng
from noisette._sqlite import transaction
from noisette.accounting import Ledger, LedgerError
from noisette.certificates import check_promise
from noisette.device.tokens import WALLET, Wallet, new_secret, token
from noisette.guarantees import warn_known_noise
from noisette.mechanisms.written import other_law
from noisette.survey.campaigns import VERSION, Campaign
from noisette.survey.periods import period_at

_ACCOUNT = "device"
_OFF = 600.0  # seconds that a clock may be off
_KEPT_TERMS = (
    "attributes",
    "epsilon",
    "delta",
    "period",
    "answers",
    "public_group",
    "tokens",
    "begins",
    "periods",
)

_SCHEMA = """
CREATE TABLE IF NOT EXISTS secrets (secret BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS campaigns (id TEXT PRIMARY KEY, definition TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS answers (question TEXT PRIMARY KEY, report TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS asked (question TEXT PRIMARY KEY);
CREATE TABLE IF NOT EXISTS laws (question TEXT PRIMARY KEY, law TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS queue (
    campaign TEXT NOT NULL,
    period TEXT NOT NULL,
    question TEXT NOT NULL REFERENCES answers (question),
    key TEXT NOT NULL,
    public_group TEXT,
    state TEXT NOT NULL DEFAULT 'waiting' CHECK (state IN ('waiting', 'sent', 'refused')),
    reason TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (campaign, period)
)
"""


@dataclass(frozen=True)
class Sent:
    """How many reports of a device or a gateway have reached the collector, were refused by it, and still wait."""

    sent: int
    refused: int
    waiting: int

    @property
    def reports(self) -> int:
        """All reports that were made."""
        return self.sent + self.refused + self.waiting


@dataclass(frozen=True)
class Verdict:
    """What becomes of a report: "sent", "refused" for good, or "waiting" until something is mended; and why."""

    state: str
    reason: str = ""


SENT = Verdict("sent")


class Device:
    """The state of one device, in a folder of its own; every change is on the disk when a method returns."""

    def __init__(self, folder: str | os.PathLike[str], *, epsilon: float, delta: float) -> None:
        home = home_of(folder)
        self._ledger = ledger_of(home, _ACCOUNT, epsilon, delta)
        self._path = home / "answers.db"
        self._ahead = 0.0
        self.wallet = Wallet(self._path)
        self._secret = secret_of(self._path, _SCHEMA)

    def close(self) -> None:
        """Close the ledger; what waits stays in its file."""
        self._ledger.close()

    @property
    def left(self) -> Mapping[str, Any]:
        """What is left of the budget."""
        return self._ledger.balance(_ACCOUNT).left

    def remember(self, campaign: Campaign, definition: str, *, ahead: float = 0.0) -> None:
        """Keep a campaign for when the collector does not answer, and refuse one that changes under its id.

        ``ahead`` is by how many seconds this clock is ahead of the collector's.

        A value outside the range is not reported. A collector that could try one range after the other would learn
        from the silence where the value is not.
        """
        self._ahead = ahead
        with self._open() as database:
            row = database.execute("SELECT definition FROM campaigns WHERE id = ?", (campaign.id,)).fetchone()
            sent, seen = json.loads(definition), json.loads(definition if row is None else row[0])
            if changed := [name for name in _KEPT_TERMS if sent.get(name) != seen.get(name)]:
                raise ValueError(
                    f"Campaign {campaign.id!r} has another {', '.join(changed)} than before. Do not answer it: a "
                    "collector that has to change a question gives it another id."
                )
            database.execute("INSERT OR REPLACE INTO campaigns VALUES (?, ?)", (campaign.id, definition))

    def recall(self, campaign_id: str) -> Campaign | None:
        """Return a campaign as it was last seen."""
        known = self._seen(campaign_id)
        return Campaign.from_wire(known) if known else None

    def clients_mixed(self, campaign_id: str) -> int:
        """Return among how many clients a campaign states that reports are mixed."""
        return int(self._seen(campaign_id).get("minimum", 0))

    def _seen(self, campaign_id: str) -> dict[str, Any]:
        with self._open() as database:
            row = database.execute("SELECT definition FROM campaigns WHERE id = ?", (campaign_id,)).fetchone()
        found: dict[str, Any] = {} if row is None else json.loads(row[0])
        return found

    def answer(
        self,
        campaign: Campaign,
        values: Mapping[str, Any],
        *,
        group: str | None,
        clip: bool,
        rng: Rng,
        signature: bytes | None = None,
    ) -> bool:
        """Debit, privatise and queue the answer of the current period, unless there is one; tell whether it is new.

        With the ``signature`` of the token all that is drawn follows from it. A tracked user is silent, and debited
        nothing, in all periods but the one that is drawn for her.

        Before anything is debited the verifier proves that the law of the report keeps the campaign's guarantee, where
        it knows such laws: `noisette.certificates.CertificateError` is raised if it does not.
        """
        warn_known_noise(rng)
        campaign.survey.encode(values, clip=clip)  # a wrong value is an error before anything is debited
        check_group(campaign, group)
        period = period_at(campaign.period)
        check_time(campaign, self._seen(campaign.id).get("life", {}), self._ahead)
        if signature is not None and campaign.drawn_period(signature) not in (None, period):
            return False
        question = question_of(campaign, period)
        with self._open() as database:
            known = database.execute("SELECT 1 FROM answers WHERE question = ?", (question,)).fetchone()
            taken = database.execute(
                "SELECT 1 FROM queue WHERE campaign = ? AND period = ?", (campaign.id, period)
            ).fetchone()
        if taken is not None:
            return False
        is_new = known is None
        report = ""
        if is_new:
            check_promise(campaign.survey)
            pay(self._path, self._ledger, _ACCOUNT, campaign, question)
            report = json.dumps(
                campaign.survey.answer(values, clip=clip, signature=signature, rng=rng), separators=(",", ":")
            )
        with self._open() as database:
            if is_new:  # of two that answer at the same time one is written, and only that one is ever sent
                written = database.execute("INSERT OR IGNORE INTO answers VALUES (?, ?)", (question, report))
                is_new = written.rowcount == 1
                if is_new:
                    note_law(database, campaign, question)
            database.execute(
                "INSERT OR IGNORE INTO queue (campaign, period, question, key, public_group) VALUES (?, ?, ?, ?, ?)",
                (campaign.id, period, question, uuid.uuid4().hex, group),
            )
        return is_new

    def waiting(self) -> list[tuple[str, dict[str, Any]]]:
        """Return campaign and body of each report that was not sent yet; a token that must be signed is not in it."""
        columns = "campaign, period, key, public_group, report, law"
        tables = "queue JOIN answers USING (question) LEFT JOIN laws USING (question)"
        query = f"SELECT {columns} FROM {tables} WHERE state = 'waiting'"
        with self._open() as database:
            rows = database.execute(query).fetchall()
            terms = {name: json.loads(text) for name, text in database.execute("SELECT id, definition FROM campaigns")}
        found = []
        for campaign, period, key, group, report, law in rows:
            body = {"version": VERSION, "key": key, "period": period, "report": json.loads(report)}
            known = terms.get(campaign, {})
            stated = law is not None and "law_sha256" in known.get("guarantee", {})  # an older collector states none
            body |= {"law": law} if stated else {}
            blind = known.get("tokens", "open") != "open"
            named = {} if blind else {"token": token(self._secret, campaign, period)}
            found.append((campaign, body | named | ({} if group is None else {"group": group})))
        return found

    def signing_period(self, campaign_id: str, period: str) -> str:
        """Return the period whose key signs the token of a report."""
        with self._open() as database:
            row = database.execute("SELECT definition FROM campaigns WHERE id = ?", (campaign_id,)).fetchone()
        terms = {} if row is None else json.loads(row[0])
        return str(terms["begins"]) if terms.get("answers") == "tracked" else period

    def settle(self, key: str, verdict: Verdict) -> None:
        """Write down that a report was taken, or why it was not, and whether it is kept."""
        with self._open() as database:
            statement = "UPDATE queue SET state = ?, reason = ? WHERE key = ?"
            database.execute(statement, (verdict.state, verdict.reason, key))

    def counts(self) -> Sent:
        """Count the reports by what became of them."""
        with self._open() as database:
            found = dict(database.execute("SELECT state, count(*) FROM queue GROUP BY state").fetchall())
        return Sent(found.get("sent", 0), found.get("refused", 0), found.get("waiting", 0))

    def refusals(self, state: str = "refused") -> list[tuple[str, str, str]]:
        """Return campaign, period and reason of the reports that were refused, or that wait because of one."""
        query = "SELECT campaign, period, reason FROM queue WHERE state = ? AND reason != ''"
        with self._open() as database:
            return database.execute(query, (state,)).fetchall()

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        with transaction(self._path) as database:
            yield database


def home_of(folder: str | os.PathLike[str]) -> Path:
    """Return the folder of a device or a gateway, which its owner alone can read."""
    home = Path(folder).absolute()  # the process may go elsewhere, and its memory must not be left behind
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    return home


def ledger_of(home: Path, account: str, epsilon: float, delta: float) -> Ledger:
    """Open the ledger in a folder, with an account for all that may ever be spent."""
    ledger = Ledger(home / "budget.db")
    ledger.open_account(account, epsilon, delta, model="local", relation="any-pair")
    return ledger


def secret_of(path: Path, schema: str) -> bytes:
    """Make the tables of a device's or a gateway's database where they are not there, and return its secret.

    What was answered before questions were written down when they were paid for is taken over.
    """
    with transaction(path) as database:
        for statement in (*schema.split(";\n"), WALLET):
            database.execute(statement)
        if database.execute("SELECT count(*) FROM secrets").fetchone()[0] == 0:
            database.execute("INSERT INTO secrets VALUES (?)", (new_secret(),))
        if database.execute("SELECT 1 FROM asked LIMIT 1").fetchone() is None:
            database.execute("INSERT INTO asked SELECT DISTINCT question FROM answers")
        (secret,) = database.execute("SELECT secret FROM secrets").fetchone()
    return bytes(secret)


def note_law(database: sqlite3.Connection, campaign: Campaign, question: str) -> None:
    """Write down by which law a question is answered; refuse to answer it by another one than before."""
    database.execute("INSERT OR IGNORE INTO laws VALUES (?, ?)", (question, campaign.law_sha256))
    (law,) = database.execute("SELECT law FROM laws WHERE question = ?", (question,)).fetchone()
    if why := other_law(campaign.law_sha256, law):
        raise ValueError(f"Campaign {campaign.id!r} was answered from this folder by another law. {why}")


def pay(path: Path, ledger: Ledger, account: str, campaign: Campaign, question: str) -> None:
    """Debit a question once, or refuse it where this file knows nothing of the debit that the ledger has.

    A question is written down before it is debited. So a debit without a report is one whose report was never written,
    and so never sent: it may be made now. A file that does not know the question is not the one that it was
    paid from: reports may have been sent, and others about the same value would be a second release.
    """
    with transaction(path) as database:
        known = database.execute("SELECT 1 FROM asked WHERE question = ?", (question,)).fetchone()
        if known is None and ledger.receipt(account, question) is not None:
            raise LedgerError(
                f"Campaign {campaign.id!r} was answered from this folder before, and {path.name} does not hold the "
                "report: it was deleted, or an older copy was put in its place. Nothing is sent: another report about "
                f"the same value would be a second release. Put the last {path.name} back."
            )
        database.execute("INSERT OR IGNORE INTO asked VALUES (?)", (question,))
    ledger.debit(account, campaign.mechanism.guarantee, note=campaign.id, idempotency_key=question)


def check_group(campaign: Campaign, group: str | None) -> None:
    """Refuse a public group that the campaign does not know, or none where it asks for one."""
    public = campaign.public_group
    if public is None and group is not None:
        raise ValueError(f"Campaign {campaign.id!r} asks for no public group: leave group={group!r} out.")
    if public is not None and group not in public.values:
        raise ValueError(f"Expected group={group!r}, which is {public.name}, to be one of {', '.join(public.values)}.")


def check_time(campaign: Campaign, life: Mapping[str, Any], ahead: float, now: datetime | None = None) -> None:
    """Refuse what no collector could take, before anything is spent: a campaign that is over, a clock that is off.

    ``ahead`` is by how many seconds this clock is ahead of the collector's. A few minutes are no harm: a report of a
    period that has not begun is kept and sent later.
    """
    here = datetime.now(UTC) if now is None else now
    there = here - timedelta(seconds=ahead)
    if abs(ahead) > _OFF and period_at(campaign.period, here) != period_at(campaign.period, there):
        side = "ahead of" if ahead > 0 else "behind"
        raise ValueError(
            f"This clock is {abs(ahead) / 60:,.0f} minutes {side} the collector's, and in another {campaign.period}. "
            "Set it and answer again: nothing was spent."
        )
    if life.get("state", "open") != "open":
        raise ValueError(f"Campaign {campaign.id!r} is {life['state']}, and takes no reports. Nothing was spent.")
    opens, closes = (_moment(life[name]) if life.get(name) else None for name in ("opens", "closes"))
    if (opens and there < opens) or (closes and there >= closes):
        when = f"opens at {opens}" if opens and there < opens else f"closes at {closes}"
        raise ValueError(f"Campaign {campaign.id!r} {when}. Nothing was spent.")


def _moment(text: str) -> datetime:
    found = datetime.fromisoformat(text)
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def question_of(campaign: Campaign, period: str) -> str:
    """Name what is asked, so that it is answered once: for ever, or once in each period."""
    asked = json.dumps([campaign.id, campaign.mechanism.spec()], sort_keys=True)
    digest = hashlib.sha256(asked.encode()).hexdigest()
    return digest if campaign.answers in ("permanent", "tracked") else f"{digest}/{period}"
