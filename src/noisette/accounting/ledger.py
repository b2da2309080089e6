"""A budget ledger in a file: what each user, device or campaign has left, and no way to overspend it.

The debit is on the disk before the release begins. A process that dies between the two has lost budget; none has ever
released what was not debited.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
import time
from collections.abc import Iterator
from decimal import ROUND_FLOOR
from pathlib import Path
from typing import Any, Literal, Self, get_args

from noisette import _sqlite
from noisette.accounting.budgets import (
    PLACES,
    UNSTATED,
    AlreadyDebited,
    Amount,
    Balance,
    BudgetExceeded,
    DebitReceipt,
    LedgerError,
    UnknownAccount,
    amounts_of,
    as_decimal,
    balance_of,
    in_units,
    receipt_of,
    replay_of,
)
from noisette.accounting.conversions import zcdp_rho
from noisette.core import Mechanism
from noisette.guarantees import Guarantee, Model, Relation, Unit

Composition = Literal["basic", "zcdp"]

_APPLICATION = 0x4E5A4C47  # marks the file as a ledger
_VERSION = 2
_CHECKED_BYTES = 2**26  # files up to this size are checked as a whole when they are opened

_ACCOUNT_NAMES = (
    *("key", "unit", "model", "relation", "composition", "limit_epsilon", "limit_delta", "limit_rho"),
    *("epsilon", "delta", "rho", "debits"),
)
_ACCOUNT = ", ".join(_ACCOUNT_NAMES)
_DEBIT = "number, key, epsilon, delta, rho, note, idempotency_key, converted"

_SCHEMA = """
CREATE TABLE accounts (
    key TEXT PRIMARY KEY,
    unit TEXT NOT NULL,
    model TEXT NOT NULL,
    relation TEXT NOT NULL,
    composition TEXT NOT NULL CHECK (composition IN ('basic', 'zcdp')),
    limit_epsilon INTEGER NOT NULL,
    limit_delta INTEGER NOT NULL,
    limit_rho INTEGER NOT NULL,
    epsilon INTEGER NOT NULL DEFAULT 0,
    delta INTEGER NOT NULL DEFAULT 0,
    rho INTEGER NOT NULL DEFAULT 0,
    debits INTEGER NOT NULL DEFAULT 0,
    CHECK (epsilon <= limit_epsilon AND delta <= limit_delta AND rho <= limit_rho)
) WITHOUT ROWID;
CREATE TABLE debits (
    number INTEGER PRIMARY KEY,
    key TEXT NOT NULL REFERENCES accounts (key),
    epsilon INTEGER NOT NULL CHECK (epsilon >= 0),
    delta INTEGER NOT NULL CHECK (delta >= 0),
    rho INTEGER NOT NULL CHECK (rho >= 0),
    note TEXT NOT NULL,
    idempotency_key TEXT,
    seconds REAL NOT NULL,
    converted TEXT NOT NULL DEFAULT ''
);
CREATE UNIQUE INDEX once ON debits (key, idempotency_key) WHERE idempotency_key IS NOT NULL;
CREATE INDEX of_account ON debits (key);
"""
_FROM_FIRST_VERSION = (  # which knew units only: whoever opens such an account again says the rest
    f"ALTER TABLE accounts ADD COLUMN model TEXT NOT NULL DEFAULT '{UNSTATED}'",
    f"ALTER TABLE accounts ADD COLUMN relation TEXT NOT NULL DEFAULT '{UNSTATED}'",
    "ALTER TABLE debits ADD COLUMN converted TEXT NOT NULL DEFAULT ''",
)
_USUAL: dict[Model, Relation] = {
    "local": "any-pair",
    "shuffled": "replace",
    "distributed": "replace",
    "central": "add-remove",
}


class Ledger:
    """Budgets in an SQLite file, safe to use from many processes and threads at once.

    Accounts add up epsilons and deltas (basic composition) or, with ``composition="zcdp"``, the rho of every release;
    sums are exact decimals, debits rounded up to 1e-12 (epsilon), 1e-18 (delta), 1e-15 (rho). Each debit is one
    transaction: it is refused, or it is on the disk when the call returns. The file belongs on a local disk:
    SQLite's locks do not work over a network.

    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> ledger = Ledger(Path(folder.name) / "budget.db")
    >>> ledger.open_account("device-7", epsilon=1.0)
    >>> with ledger.spend("device-7", 0.8, note="week 1"):
    ...     pass  # release here
    >>> ledger.balance("device-7").left["epsilon"]
    Decimal('0.2')
    >>> ledger.debit("device-7", 0.3)
    Traceback (most recent call last):
    ...
    noisette.accounting.budgets.BudgetExceeded: Account 'device-7' has epsilon=0.2, delta=0 left, ...
    >>> ledger.close()
    >>> folder.cleanup()
    """

    def __init__(self, path: str | os.PathLike[str], *, create: bool = True, timeout: float = 30.0) -> None:
        self._path = Path(path).absolute()  # threads and forks open it too, wherever the process is by then
        self._timeout = float(timeout)
        self._local = threading.local()
        if str(path) == ":memory:":
            raise ValueError("Expected path to be a file: a ledger in memory forgets what was spent.")
        if not self._path.exists() and not create:
            raise LedgerError(f"There is no ledger at {self._path}. Restore it: a new one would forget what was spent.")
        if not self._path.parent.is_dir():
            raise LedgerError(f"There is no folder {self._path.parent} for the ledger. Make it first.")
        try:
            self._prepare()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close this thread's connection; the next call opens another."""
        connection = getattr(self._local, "connection", None)
        if connection is not None and self._local.process == os.getpid():
            connection.close()
        self._local.connection = None

    def open_account(
        self,
        key: str,
        epsilon: Amount,
        delta: Amount = 0,
        *,
        unit: Unit = "record",
        model: Model | None = None,
        relation: Relation | None = None,
        composition: Composition = "basic",
    ) -> None:
        """Open an account with a limit; doing so again with the same terms does nothing.

        The limit is about one unit, in a model (default: local) and under a relation (default: any-pair in the local
        model, replace in the shuffled and the distributed one, add-remove in the central one). Guarantees under other
        terms are converted where that is proved, see `Guarantee.implied`, and refused otherwise.
        """
        if not isinstance(key, str) or not key:
            raise ValueError(f"Expected key={key!r} to be a text that names a user, device or campaign.")
        for name, value, allowed in (
            ("unit", unit, get_args(Unit)),
            ("model", model, (*get_args(Model), None)),
            ("relation", relation, (*get_args(Relation), None)),
            ("composition", composition, get_args(Composition)),
        ):
            if value not in allowed:
                raise ValueError(f"Expected {name}={value!r} to be one of {allowed}.")
        limits = [in_units(epsilon, "epsilon", ROUND_FLOOR), in_units(delta, "delta", ROUND_FLOOR), 0]
        if limits[0] <= 0:
            raise ValueError(f"Expected a limit epsilon={epsilon!r} > 0.")
        if limits[1] > 10 ** PLACES["delta"]:
            raise ValueError(f"Expected a limit delta={delta!r} <= 1.")
        if composition == "zcdp":
            if limits[1] <= 0:
                raise ValueError(f"Expected a limit delta={delta!r} > 0: zCDP has no pure epsilon. Give e.g. 1e-6.")
            rho = zcdp_rho(float(as_decimal(limits[0], "epsilon")), float(as_decimal(limits[1], "delta")))
            limits[2] = in_units(rho, "rho", ROUND_FLOOR)
        chosen = model or "local"
        protected = (unit, chosen, relation or _USUAL[chosen])
        terms = (*protected, composition, *limits)
        names = ("unit", "model", "relation", "composition", "limit_epsilon", "limit_delta", "limit_rho")
        with self._transaction() as connection:
            row = connection.execute(
                f"SELECT {', '.join(names)}, debits FROM accounts WHERE key = ?", (key,)
            ).fetchone()
            if row is None:
                connection.execute(
                    f"INSERT INTO accounts (key, {', '.join(names)}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)", (key, *terms)
                )
                return
            *had, debits = row
            if had[1] == UNSTATED and (had[0], *had[3:]) == (unit, *terms[3:]):
                if debits and (model is None or relation is None):
                    raise LedgerError(
                        f"Account {key!r} was opened by a version that wrote down no model and no relation, and has "
                        f"{debits} debits. Say model= and relation= of them, e.g. model='local', relation='any-pair'; "
                        "where they were mixed, open another account."
                    )
                connection.execute("UPDATE accounts SET model = ?, relation = ? WHERE key = ?", (*protected[1:], key))
            elif tuple(had) != terms:
                limit = f"epsilon={as_decimal(had[4], 'epsilon')}, delta={as_decimal(had[5], 'delta')}"
                raise ValueError(
                    f"Account {key!r} exists with other terms: {limit}, unit {had[0]}, model {had[1]}, "
                    f"relation {had[2]}, {had[3]} composition. "
                    "Terms do not change once opened; open an account of another name for another budget."
                )

    def debit(
        self,
        key: str,
        spent: Amount | Guarantee | Mechanism,
        *,
        note: str = "",
        idempotency_key: str | None = None,
    ) -> DebitReceipt:
        """Take a release's budget off an account, or raise `BudgetExceeded` and take nothing.

        ``spent`` is an epsilon in the account's terms, a guarantee or a mechanism; a guarantee under other terms is
        converted, which the receipt says, or refused. A second debit with the same ``idempotency_key`` is not
        taken again: it returns the first one's receipt with ``replayed=True``. Send then the report that was made the
        first time; a fresh one would be a second release.
        """
        for name, text in (("key", key), ("note", note), ("idempotency_key", idempotency_key)):
            if not (isinstance(text, str) or (text is None and name == "idempotency_key")):
                raise TypeError(f"Expected {name}={text!r} to be a text. Nothing was debited.")
        with self._reading() as connection:
            found = self._account(connection, key)
        amounts, converted = amounts_of(spent, found)  # terms do not change once stated: no need to hold a lock
        with self._transaction() as connection:
            account = self._account(connection, key)
            if idempotency_key is not None:
                first = connection.execute(
                    f"SELECT {_DEBIT} FROM debits WHERE key = ? AND idempotency_key = ?", (key, idempotency_key)
                ).fetchone()
                if first is not None:
                    return replay_of(first, amounts, idempotency_key)
            left = {name: account[f"limit_{name}"] - account[name] for name in PLACES}
            if any(amounts[name] > left[name] for name in PLACES):
                names = ["rho"] if account["composition"] == "zcdp" else ["epsilon", "delta"]
                asked, have = ({n: as_decimal(some[n], n) for n in names} for some in (amounts, left))
                raise BudgetExceeded(key, asked, have)
            connection.execute(
                "UPDATE accounts SET epsilon = epsilon + ?, delta = delta + ?, rho = rho + ?, debits = debits + 1 "
                "WHERE key = ?",
                (amounts["epsilon"], amounts["delta"], amounts["rho"], key),
            )
            number = connection.execute(
                "INSERT INTO debits (key, epsilon, delta, rho, note, idempotency_key, converted, seconds) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (key, *amounts.values(), note, idempotency_key, converted, time.time()),
            ).lastrowid
        assert number is not None  # sqlite numbers every row
        return receipt_of((number, key, *amounts.values(), note, idempotency_key, converted))

    def receipt(self, key: str, idempotency_key: str) -> DebitReceipt | None:
        """Return the debit that was made under an idempotency key, or None."""
        with self._reading() as connection:
            row = connection.execute(
                f"SELECT {_DEBIT} FROM debits WHERE key = ? AND idempotency_key = ?", (key, idempotency_key)
            ).fetchone()
        return None if row is None else receipt_of(row, replayed=True)

    @contextlib.contextmanager
    def spend(
        self,
        key: str,
        spent: Amount | Guarantee | Mechanism,
        *,
        note: str = "",
        idempotency_key: str | None = None,
    ) -> Iterator[DebitReceipt]:
        """Debit, and then run the body, which releases; what was debited stays so whatever happens in it.

        Raises `AlreadyDebited` for an ``idempotency_key`` that was used before: the body would release twice.
        """
        receipt = self.debit(key, spent, note=note, idempotency_key=idempotency_key)
        if receipt.replayed:
            raise AlreadyDebited(
                f"Idempotency key {idempotency_key!r} of account {key!r} was debited before (number {receipt.number}). "
                "Its release may have happened: send the stored report, or spend under a new key."
            )
        yield receipt

    def balance(self, key: str) -> Balance:
        """Return what an account has spent and has left."""
        with self._reading() as connection:
            return balance_of(self._account(connection, key))

    def accounts(self) -> Iterator[Balance]:
        """Yield the balance of every account."""
        with self._reading() as connection:
            for row in connection.execute(f"SELECT {_ACCOUNT} FROM accounts ORDER BY key"):
                yield balance_of(dict(zip(_ACCOUNT_NAMES, row, strict=True)))

    def history(self, key: str) -> Iterator[DebitReceipt]:
        """Yield the debits of an account, oldest first."""
        with self._reading() as connection:
            self._account(connection, key)
            for row in connection.execute(f"SELECT {_DEBIT} FROM debits WHERE key = ? ORDER BY number", (key,)):
                yield receipt_of(row)

    def verify(self) -> None:
        """Check the whole file, and that every account's sums are those of its debits; raise LedgerError if not."""
        with self._reading() as connection:
            found = [str(row[0]) for row in connection.execute("PRAGMA integrity_check(3)")]
            if found != ["ok"]:
                raise self._damaged("; ".join(found))
            wrong = connection.execute(
                "SELECT a.key FROM accounts a LEFT JOIN debits d ON d.key = a.key GROUP BY a.key HAVING a.debits <> "
                "count(d.number) OR a.epsilon <> coalesce(sum(d.epsilon), 0) OR a.delta <> coalesce(sum(d.delta), 0) "
                "OR a.rho <> coalesce(sum(d.rho), 0) LIMIT 3"
            ).fetchall()
            lost = connection.execute("SELECT key FROM debits WHERE key NOT IN (SELECT key FROM accounts) LIMIT 3")
            if wrong or (wrong := lost.fetchall()):
                raise self._damaged(
                    f"the sums of {', '.join(repr(row[0]) for row in wrong)} are not those of its debits"
                )

    def _account(self, connection: sqlite3.Connection, key: str) -> dict[str, Any]:
        row = connection.execute(f"SELECT {_ACCOUNT} FROM accounts WHERE key = ?", (key,)).fetchone()
        if row is None:
            raise UnknownAccount(f"There is no account {key!r} in {self._path}. Open it with its limit first.")
        return dict(zip(_ACCOUNT_NAMES, row, strict=True))

    def _connect(self) -> sqlite3.Connection:
        """Return this thread's own connection; one inherited through a fork is never used."""
        connection: sqlite3.Connection | None = getattr(self._local, "connection", None)
        if connection is None or self._local.process != os.getpid():
            connection = _sqlite.connect(self._path, timeout=self._timeout)
            self._local.connection, self._local.process = connection, os.getpid()
            self._local.file = self._file()
        elif self._local.file != self._file():
            raise LedgerError(
                f"{self._path} is not the file any more that was opened: it was moved, replaced or deleted, and what "
                "is spent here would be forgotten. Nothing was debited. Put it back, and open the ledger again."
            )
        return connection

    def _file(self) -> tuple[int, int] | None:
        """Return what identifies the file at the path; None where there is none."""
        try:
            found = self._path.stat()
        except FileNotFoundError:
            return None
        if found.st_nlink > 1:
            raise LedgerError(
                f"{self._path} is one of {found.st_nlink} hard links to one file, and SQLite keeps what was written "
                "last beside the name that it was opened by. Nothing was debited. Remove the other names."
            )
        return found.st_dev, found.st_ino

    @contextlib.contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        """Give a connection and say what is wrong with the file in words."""
        try:
            yield self._connect()
        except sqlite3.OperationalError as error:
            raise LedgerError(
                f"The ledger {self._path} cannot be used: {error}. Nothing was debited. "
                f"If it is locked, another process held it for {self._timeout:g} seconds: try again."
            ) from error
        except sqlite3.DatabaseError as error:
            raise self._damaged(str(error)) from error

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """Hold the only right to write, and leave nothing behind or everything on the disk."""
        with self._reading() as connection, _sqlite.transaction(connection):
            yield connection

    def _prepare(self) -> None:
        """Make the file if it is not there, and refuse what is not a sound ledger."""
        deadline = time.monotonic() + self._timeout
        while True:
            try:
                with self._reading() as connection:
                    connection.execute("PRAGMA journal_mode = WAL")
                break
            except LedgerError as error:
                locked = isinstance(error.__cause__, sqlite3.OperationalError) and "locked" in str(error.__cause__)
                if not locked or time.monotonic() > deadline:
                    raise
                time.sleep(0.01)  # two processes made it at once: changing the mode does not wait for a lock
        with self._transaction() as connection:
            application = connection.execute("PRAGMA application_id").fetchone()[0]
            version = connection.execute("PRAGMA user_version").fetchone()[0]
            tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
            if application == 0 and tables == 0:
                for statement in _SCHEMA.split(";\n"):
                    if statement.strip():
                        connection.execute(statement)
                connection.execute(f"PRAGMA application_id = {_APPLICATION}")
                connection.execute(f"PRAGMA user_version = {_VERSION}")
            elif application != _APPLICATION:
                raise LedgerError(f"{self._path} is a database of something else, not a ledger. Take another path.")
            elif version == 1:  # in one transaction: it is all there afterwards, or as it was
                for statement in _FROM_FIRST_VERSION:
                    connection.execute(statement)
                connection.execute(f"PRAGMA user_version = {_VERSION}")
            elif version != _VERSION:
                raise LedgerError(
                    f"{self._path} has version {version} of the format, expected {_VERSION}: it was written by a newer "
                    "noisette. Nothing was changed; use that one."
                )
        if self._path.stat().st_size <= _CHECKED_BYTES:
            with self._reading() as connection:
                found = str(connection.execute("PRAGMA quick_check(1)").fetchone()[0])
                if found != "ok":
                    raise self._damaged(found)

    def _damaged(self, why: str) -> LedgerError:
        return LedgerError(
            f"{self._path} is damaged or not a ledger: {why}. Restore it from a backup, release nothing until then: "
            "a new file would forget what was spent."
        )
