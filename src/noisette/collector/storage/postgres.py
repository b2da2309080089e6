"""PostgreSQL behind the seam: a server that several processes write to, with digests in runs of about a million.

An index of random digests costs more for each the larger it is. So new digests go into the table ``seen_young``, whose
index refuses one that is there, whoever wrote it. When it is full, the table is renamed and never written to again: a
*run*. Each process has a filter in memory (`noisette.collector.storage.filters`) that tells of nearly every new digest
that it is in no run; the few others are looked up. Runs and the young table inherit from ``seen``, which shows all. The
filter is never trusted alone: runs that it does not cover yet are looked through.

Whoever inserts has the young table locked against renaming until he commits, and looks afterwards which table it was.
So of the runs that there are then, none is new to him without his knowing.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, ClassVar, NoReturn
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt
import psycopg
import sqlalchemy as sa
from psycopg.pq import ConnStatus, ExecStatus, Format, TransactionStatus
from sqlalchemy.dialects import postgresql
from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg

from noisette.collector.storage import tables
from noisette.collector.storage.database import AddedSums, Database, Marks
from noisette.collector.storage.filters import DigestFilter
from noisette.survey.batches import DIGEST_BYTES, Digests

_CONNECTING, _POOLED = 10, 30  # seconds that a new connection may take, and that one waits for a connection of ours
_UNANSWERED = 30_000  # milliseconds after which a connection that nobody answers on is given up
_LOCK = 0x4E5A434F  # taken by whoever looks at the version of the tables
_WRITERS = 256  # processes with sums of their own
_IDLE = 1.0  # seconds after which a connection is tried before it is used
_FULL = 52 << 20  # bytes of the young table, of a million digests, after which it becomes a run
_INSERTED_DIGESTS = 2000  # most that one statement inserts; more are sent by COPY
_PAUSE = 0.05  # seconds between two trials to make a run
_READ_BYTES = 1 << 20  # bytes that are read of a run at a time
_BUSY_BYTES = 7 << 20  # bytes of a young table that is left in its order: it holds hundreds of reports a transaction
# commits wait for the disk; nobody waits for a database that hangs, nor a database for us
_SETTINGS = (
    "-c synchronous_commit=on -c statement_timeout=60s -c lock_timeout=20s -c idle_in_transaction_session_timeout=60s"
)
_COPY_HEAD = b"PGCOPY\n\xff\r\n\x00" + bytes(8)
_COPY_TAIL = b"\xff\xff"
# a row of PostgreSQL's binary COPY: number of fields, then length and bytes of each, big-endian
_COPY_ROW = np.dtype(
    [("fields", ">i2"), ("size", ">i4"), ("digest", "u1", DIGEST_BYTES), ("eight", ">i4"), ("mark", ">i8")]
)
_READ_ROW = np.dtype([("fields", ">i2"), ("size", ">i4"), ("digest", "u1", DIGEST_BYTES)])
_COPY = "COPY seen_young (digest, mark) FROM STDIN WITH (FORMAT BINARY)"
# the count says what is there: an error would write the digest and the time into PostgreSQL's own log
_INSERT_DIGESTS = (
    "WITH new AS (INSERT INTO seen_young (digest, mark) SELECT * FROM unnest($1::uuid[], $2::bigint[]) "
    "ON CONFLICT DO NOTHING RETURNING 1) SELECT count(*) FROM new"
)
_BLOCK = ("number", "campaign", "period", "users", "mixed", "tokens", "groups", "rows")
_INSERT_BLOCK = (
    f"INSERT INTO blocks ({', '.join(_BLOCK)}) "
    "VALUES ($1::bigint, $2::text, $3::text, $4::bigint, $5::bigint, $6::bytea, $7::bytea, $8::bytea)"
)
_PLACE = ' WHERE campaign = $1::text AND period = $2::text AND "group" = $3::bigint AND writer = $4::bigint'
_SELECT_SUMS = f"SELECT users, vector FROM sums{_PLACE} FOR UPDATE"
_UPDATE_SUMS = f"UPDATE sums SET layout = $5::text, users = $6::bigint, vector = $7::bytea{_PLACE}"
# which table was inserted into, and how large it is: evaluated when it runs, not when it is planned
_YOUNG = "SELECT to_regclass('seen_young')::oid::bigint, pg_relation_size(to_regclass('seen_young'))"
_RUNS = (
    "SELECT oid::bigint, relname::text FROM pg_class WHERE oid = 'seen'::regclass OR oid IN "
    "(SELECT inhrelid FROM pg_inherits WHERE inhparent = 'seen'::regclass)"
)
_UNORDERED = (
    "SELECT relname, pg_relation_size(pg_class.oid) FROM pg_class JOIN pg_inherits ON pg_class.oid = inhrelid "
    "JOIN pg_index ON indrelid = inhrelid "
    "WHERE inhparent = 'seen'::regclass AND (relname = 'seen_young' OR NOT indisclustered)"
)
_NEW_YOUNG = "CREATE TABLE seen_young (PRIMARY KEY (digest)) INHERITS (seen) WITH (autovacuum_enabled = off)"

# the index of these is a fifth smaller than that of byte strings
tables.Digest.own[PGDialect_psycopg] = postgresql.UUID()


class _Line:
    """psycopg's connection below its own machinery, which takes five times as long for a statement.

    Statements are prepared once; numbers are bigints, texts and bytes go as they are. Errors are those of SQLAlchemy.
    The transaction is begun and ended by it too.
    """

    _prepared: ClassVar[WeakKeyDictionary[Any, dict[str, bytes]]] = WeakKeyDictionary()

    def __init__(self, connection: sa.Connection) -> None:
        driver: Any = connection.connection.driver_connection
        self.raw = driver
        self._wire: Any = self.raw.pgconn
        self._connection = connection
        self._known = self._prepared.setdefault(self.raw, {})

    def __enter__(self) -> _Line:
        try:
            if self._wire.transaction_status == TransactionStatus.IDLE:
                self._checked(self._wire.exec_(b"BEGIN"))
        except psycopg.Error as error:
            self._raise_kind(error)
        return self

    def __exit__(self, _: Any, error: BaseException | None, __: Any) -> None:
        if isinstance(error, psycopg.Error):
            self._raise_kind(error)

    def _raise_kind(self, error: psycopg.Error) -> NoReturn:
        if self.raw.closed or self._wire.status == ConnStatus.BAD:
            self._connection.invalidate()
        raise sa.exc.OperationalError("writing", None, error) from error

    def say(self, statement: str, *given: bytes | str | int) -> list[tuple[Any, ...]]:
        """Run a statement, and return its rows as bytes."""
        name = self._known.get(statement)
        if name is None:
            name = b"noisette-%d" % len(self._known)
            self._checked(self._wire.prepare(name, statement.encode()))
            self._known[statement] = name
        return self._rows(self._wire.exec_prepared(name, *_bound(given), 1))

    def ask(self, statement: str, *given: bytes | str | int) -> list[tuple[Any, ...]]:
        """Run a statement that will hardly come again."""
        values, formats = _bound(given)
        return self._rows(self._wire.exec_params(statement.encode(), values, None, formats, 1))

    def commit(self) -> None:
        """End the transaction: what was written is on the disk. One that has failed is SQLAlchemy's to roll back."""
        if self._wire.transaction_status == TransactionStatus.INERROR:
            return
        if (ended := self._checked(self._wire.exec_(b"COMMIT")).command_status) != b"COMMIT":
            raise psycopg.OperationalError(f"The transaction ended with {ended}. Send the reports again.")

    def _rows(self, result: Any) -> list[tuple[Any, ...]]:
        self._checked(result)
        columns = range(result.nfields)
        return [tuple(result.get_value(row, column) for column in columns) for row in range(result.ntuples)]

    @staticmethod
    def _checked(result: Any) -> Any:
        if result.status not in (ExecStatus.COMMAND_OK, ExecStatus.TUPLES_OK):
            raise psycopg.errors.error_from_result(result)
        return result


def _bound(given: Sequence[bytes | str | int]) -> tuple[list[bytes], list[int]]:
    """Return parameters and their formats, which are all binary."""
    values = [one.to_bytes(8, "big", signed=True) if isinstance(one, int) else one for one in given]
    return [one.encode() if isinstance(one, str) else one for one in values], [Format.BINARY] * len(values)


def _number(value: bytes) -> int:
    return int.from_bytes(value, "big", signed=True)


def _array(element: int, kind: str, values: npt.NDArray[Any]) -> bytes:
    """Return an array of one dimension in PostgreSQL's binary form, ``element`` the number of its type there."""
    shape = values.shape[1:]
    rows = np.empty(len(values), dtype=[("size", ">i4"), ("own", kind, shape)])
    rows["size"], rows["own"] = rows["own"][:1].nbytes if len(rows) else 0, values
    return np.asarray([1, 0, element, len(rows), 1], dtype=">i4").tobytes() + rows.tobytes()


def _uuids(digests: Digests) -> bytes:
    return _array(2950, "u1", digests)


class PostgresDatabase(Database):
    """A database of PostgreSQL, which commits synchronously whatever its own settings are."""

    insert = staticmethod(postgresql.insert)

    @classmethod
    def located(cls, url: sa.URL) -> sa.URL:
        """Return the URL as it is: it names a host."""
        return url

    def __init__(self, url: sa.URL) -> None:
        # psycopg prepares nothing by itself: it would forget all that is prepared, ours too, when a table is dropped
        given: dict[str, Any] = {"options": _SETTINGS, "prepare_threshold": None}
        given |= {"connect_timeout": _CONNECTING, "tcp_user_timeout": _UNANSWERED}
        options: dict[str, Any] = {"connect_args": given, "pool_timeout": _POOLED}
        self.engine = sa.create_engine(url.set(drivername="postgresql+psycopg"), **options)
        sa.event.listen(self.engine, "checkin", _note_use)
        sa.event.listen(self.engine, "checkout", _try_idle)
        self._claim: sa.Connection | None = None
        self._claiming, self._number = threading.Lock(), 0
        self._filter, self._known = (
            DigestFilter(),
            (0, frozenset[int]()),
        )  # it covers these runs, all beside this young table
        self._reader: threading.Thread | None = None
        self._full, self._next_try, self._closed = False, 0.0, threading.Event()

    def close(self) -> None:
        self._closed.set()
        if self._reader is not None:
            self._reader.join()
        if self._claim is not None:
            self._claim.close()
        super().close()

    def shrink_digests(self, connection: sa.Connection) -> None:
        """Turn byte strings into UUIDs."""
        present = {one["name"]: one["type"] for one in sa.inspect(connection).get_columns(tables.seen.name)}
        if not isinstance(present["digest"], sa.Uuid):  # a table that was just made has it
            kind = "uuid USING encode(digest, 'hex')::uuid"
            connection.execute(sa.text(f"ALTER TABLE seen ALTER COLUMN digest TYPE {kind}"))

    def widen(self, connection: sa.Connection, column: sa.Column[str]) -> None:
        """Give a column the type that it has in `tables`."""
        kind = column.type.compile(connection.dialect)
        connection.execute(sa.text(f"ALTER TABLE {column.table.name} ALTER COLUMN {column.name} TYPE {kind}"))

    @property
    def writer_number(self) -> int:
        """The first number that no other process holds.

        It is claimed once, by a lock that ends with its connection. If that breaks, two processes may share sums: they
        then wait for each other, and nothing is lost.
        """
        with self._claiming:
            if self._claim is None:
                self._claim = self.engine.connect().execution_options(isolation_level="AUTOCOMMIT")
                query = sa.text("SELECT pg_try_advisory_lock(:key, :number)")
                tried = (
                    number
                    for number in range(_WRITERS)
                    if self._claim.execute(query, {"key": _LOCK, "number": number}).scalar()
                )
                self._number = next(tried, secrets.randbelow(_WRITERS))
            return self._number

    def check_room(self) -> None:
        """Do nothing: the disk is the server's, which says so when it is asked to write."""

    @contextmanager
    def snapshot(self) -> Iterator[sa.Connection]:
        """Give a connection in one transaction of repeatable reads."""
        with self.engine.connect() as connection:
            connection.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
            connection.execute(sa.text("SET LOCAL statement_timeout = 0"))
            yield connection

    @contextmanager
    def writing(self) -> Iterator[sa.Connection]:
        """Give a transaction; others go on beside it."""
        with self.engine.begin() as connection:
            yield connection
            with _Line(connection) as line:
                line.commit()
        if self._full:
            self._seal()

    def lock_tables(self, connection: sa.Connection) -> None:
        """Take an advisory lock."""
        connection.execute(sa.text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK})

    def prepare(self, connection: sa.Connection) -> None:
        """Make the young table, unless it is there."""
        if connection.execute(sa.text("SELECT to_regclass('seen_young')")).scalar() is None:
            connection.execute(sa.text(_NEW_YOUNG))

    def write(
        self,
        connection: sa.Connection,
        digests: Digests,
        marks: Marks,
        blocks: list[dict[str, Any]],
        gains: list[AddedSums],
    ) -> bool:
        """Write all of it: most often six short statements."""
        with _Line(connection) as line:
            if not self._insert(line, digests, marks):
                return False
            for block in blocks:
                line.say(_INSERT_BLOCK, *(block[name] for name in _BLOCK))
        for gain in gains:
            place = gain.place | {"writer": self.writer_number}
            with _Line(connection) as line:
                rows = line.say(_SELECT_SUMS, *place.values())
                if not rows:  # another thread may be about to make it as well
                    self.insert_new(connection, tables.sums, place | gain.nothing.stored())
                    rows = line.say(_SELECT_SUMS, *place.values())
                [(users, vector)] = rows
                line.say(_UPDATE_SUMS, *place.values(), *gain.onto(_number(users), vector).stored().values())
        return True

    def add_digests(self, connection: sa.Connection, digests: Digests, marks: Marks) -> bool:
        """Insert digests into the young table; one that is known aborts the transaction."""
        with _Line(connection) as line:
            return self._insert(line, digests, marks)

    def _insert(self, line: _Line, digests: Digests, marks: Marks) -> bool:
        known = self._known  # before the filter is asked, which grows
        suspects = digests[self._filter.suspects(digests)]
        try:
            if len(digests) > _INSERTED_DIGESTS:
                _copy(line.raw, digests, marks)
            else:
                [(count,)] = line.say(_INSERT_DIGESTS, _uuids(digests), _array(20, ">i8", marks))
                if _number(count) < len(digests):
                    return False
        except psycopg.errors.UniqueViolation:
            return False
        [(number, size)] = line.say(_YOUNG)
        young = _number(number)
        if _number(size) > _FULL:
            self._full = True
        if len(suspects):
            query = "SELECT 1 FROM seen WHERE digest = ANY($1::uuid[]) AND tableoid <> $2::bigint::oid LIMIT 1"
            if line.say(query, _uuids(suspects), young):
                return False
        if young == known[0]:
            return True
        self._cover()
        names = [name.decode() for oid, name in line.ask(_RUNS) if _number(oid) not in {young, *known[1]}]
        queries = [f'SELECT 1 FROM ONLY "{name}" WHERE digest = ANY($1::uuid[]) LIMIT 1' for name in names]
        return not any(line.ask(query, _uuids(digests)) for query in queries)

    def restore_digests(self, connection: sa.Connection, rows: Sequence[Any]) -> None:
        """Write digests where all new ones go: filters may have been made of the rest."""
        digests = np.frombuffer(b"".join(row["digest"] for row in rows), np.uint8).reshape(-1, DIGEST_BYTES)
        if not self.add_digests(connection, digests, np.asarray([row["mark"] for row in rows], dtype=np.int64)):
            raise ValueError("The backup holds a token or a key twice. Restore an older one.")

    def find_digests(self, connection: sa.Connection, digests: Sequence[bytes]) -> dict[bytes, int]:
        """Return the marks of those digests that are in the young table or in a run."""
        every = np.frombuffer(b"".join(digests), np.uint8).reshape(-1, DIGEST_BYTES)
        known = self._known
        found: dict[bytes, int] = {}
        suspects = every[self._filter.suspects(every)]
        with _Line(connection) as line:
            for table in ("seen_young", "seen"):
                rows = line.say(f"SELECT digest, mark FROM {table} WHERE digest = ANY($1::uuid[])", _uuids(every))
                found.update((digest, _number(mark)) for digest, mark in rows)
                [(young, _)] = line.say(_YOUNG)
                every = suspects if _number(young) == known[0] else every
        return found

    def _cover(self) -> None:
        """Read the runs that the filter does not cover, beside all else."""
        with self._claiming:
            if not self._closed.is_set() and (self._reader is None or not self._reader.is_alive()):
                self._reader = threading.Thread(target=self._read_runs, name="noisette-filter", daemon=True)
                self._reader.start()

    def _read_runs(self) -> None:
        """Put every run into the filter; what the database does not give now, it is asked for again later."""
        with suppress(sa.exc.SQLAlchemyError), self.engine.connect() as connection, _Line(connection) as line:
            line.raw.execute("SET LOCAL statement_timeout = 0")
            while True:
                runs = dict(line.raw.execute(_RUNS))  # one statement, which sees one state
                [young] = (oid for oid, name in runs.items() if name == "seen_young")
                new = runs.keys() - self._known[1] - {young}
                for oid in new:
                    query = f'COPY (SELECT digest FROM ONLY "{runs[oid]}") TO STDOUT (FORMAT BINARY)'
                    with line.raw.cursor() as cursor, cursor.copy(query) as copy:
                        for digests in _read(copy):
                            if self._closed.is_set():
                                return
                            self._filter.add(digests)
                self._known = (young, self._known[1] | new)
                if not new:
                    return

    def _seal(self) -> None:
        """Make the young table a run, if nobody uses it at this moment, and begin a new one."""
        if time.monotonic() < self._next_try:
            return
        self._next_try = time.monotonic() + _PAUSE
        with suppress(sa.exc.OperationalError), self.engine.begin() as connection:
            connection.exec_driver_sql("LOCK TABLE seen_young IN ACCESS EXCLUSIVE MODE NOWAIT")
            young, size = connection.exec_driver_sql(_YOUNG).one()
            if size > _FULL:  # no other process was faster
                connection.exec_driver_sql(f"ALTER TABLE seen_young RENAME TO seen_{young}")
                connection.exec_driver_sql(f"ALTER INDEX seen_young_pkey RENAME TO seen_{young}_pkey")
                connection.exec_driver_sql(f"ALTER TABLE seen_{young} RESET (autovacuum_enabled)")
                connection.exec_driver_sql(_NEW_YOUNG)
            self._full = False

    def settle(self) -> None:
        """Put digests in order of their bytes, so that they tell no order of arrival, unless very many are young."""
        with self.engine.connect() as connection:
            tables_ = connection.exec_driver_sql(_UNORDERED).all()
        for name, size in tables_:
            if size <= (_BUSY_BYTES if name == "seen_young" else 2 * _FULL):
                with suppress(sa.exc.OperationalError), self.engine.begin() as connection:
                    connection.exec_driver_sql(f'LOCK TABLE "{name}" IN ACCESS EXCLUSIVE MODE NOWAIT')
                    connection.exec_driver_sql(f'CLUSTER "{name}" USING "{name}_pkey"')


def _copy(raw: Any, digests: Digests, marks: Marks) -> None:
    """Copy digests into the young table."""
    rows = np.empty(len(digests), dtype=_COPY_ROW)
    rows["fields"], rows["size"], rows["eight"] = 2, DIGEST_BYTES, 8
    rows["digest"], rows["mark"] = digests, marks
    with raw.cursor() as cursor, cursor.copy(_COPY) as copy:
        copy.write(_COPY_HEAD + rows.tobytes() + _COPY_TAIL)


def _read(copy: Any) -> Iterator[Digests]:
    """Yield the digests that PostgreSQL copies out, some thousands at a time."""
    held = bytearray()
    skip = len(_COPY_HEAD)
    for chunk in copy:
        held += chunk
        if len(held) >= _READ_BYTES:
            whole = skip + (len(held) - skip) // _READ_ROW.itemsize * _READ_ROW.itemsize
            yield np.frombuffer(bytes(held[skip:whole]), dtype=_READ_ROW)["digest"]
            del held[:whole]
            skip = 0
    whole = len(held) - len(_COPY_TAIL)
    yield np.frombuffer(bytes(held[skip:whole]), dtype=_READ_ROW)["digest"]


def _note_use(_: Any, record: Any) -> None:
    """Note when a connection was given back."""
    record.info["used"] = time.monotonic()


def _try_idle(raw: Any, record: Any, _: Any) -> None:
    """Try a connection that was idle for a while; the pool makes another one where it is broken."""
    idle = time.monotonic() - record.info.get("used", time.monotonic()) > _IDLE
    if raw.closed or (idle and raw.pgconn.exec_(b"").status == ExecStatus.FATAL_ERROR):
        raise sa.exc.DisconnectionError
