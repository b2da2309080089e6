"""The thief of the collector's database: what he holds links no report to a person, and none to a moment.

He has every row of every table with whatever order and numbers the database gives them, the log, and the list of
people with their enrolment numbers. He watched nothing, and does not have the file of keys.
"""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest
import sqlalchemy as sa
from tests.attacks.servers import collector, started
from tests.collector.helpers import COMMUTE, SECRET, auth, entry
from tests.collector.postgres import Postgres, found

from noisette.collector import Store
from noisette.collector.storage.backup import backup
from noisette.device.blind import VerifyingKey, new_code
from noisette.survey.batches import Batch
from noisette.survey.campaigns import Campaign

pytestmark = pytest.mark.long

PEOPLE = 40
BLIND = COMMUTE | {"id": "blind", "tokens": "blind"}


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/noisette.db"
    elif not found():
        pytest.skip("PostgreSQL is not installed here")
    else:
        with Postgres() as server:
            yield server.new_database()


def answer(url: str, number: int) -> bytes:
    """Get a token for a person's code and answer with it at once, and return the token."""
    token = secrets.token_bytes(32)
    path = f"{url}/campaigns/blind"
    with httpx.Client(headers=auth("device"), timeout=120) as client:
        public = VerifyingKey(int(client.get(f"{path}/tokens/once").json()["modulus"], 16))
        blinded, inverse = public.blind(token)
        asked = {"code": new_code(SECRET, number), "period": "once", "blinded": base64.b64encode(blinded).decode()}
        signed = client.post(f"{path}/tokens", json=asked)
        assert signed.status_code == 200, signed.text
        signature = public.finish(token, base64.b64decode(signed.json()["signed"]), inverse)
        report = Campaign.from_dict(BLIND).privatize({"minutes": number, "by": "bike"})
        body = entry(report, token=token.hex(), signature=base64.b64encode(signature).decode())
        assert client.post(f"{path}/reports", json={"version": 1} | body).status_code == 201
    return token


def named(row: dict[str, Any]) -> int | None:
    """Return whose row of issued tokens this is, by trying every number of the list of people."""
    for number in range(1, PEOPLE + 1):
        told = f"issued\nblind\nonce\n{number}".encode()
        if bytes(row["digest"]) in (hashlib.sha256(told).digest()[:16], hashlib.sha256(told).digest()):
            return number
    return None


def stolen(url: str) -> dict[str, list[dict[str, Any]]]:
    """Return every table in the order in which the database keeps it."""
    engine = sa.create_engine(url.replace("postgresql://", "postgresql+psycopg://"))
    places = {"postgresql": "ctid"}
    order = places.get(engine.dialect.name, "rowid")
    tables = {}
    with engine.connect() as connection:
        for name in sa.inspect(connection).get_table_names():
            ordered = f"SELECT * FROM {name} ORDER BY {order}"
            try:
                tables[name] = [dict(one) for one in connection.execute(sa.text(ordered)).mappings()]
            except sa.exc.OperationalError:  # a table of SQLite that is kept in the order of its key
                tables[name] = [dict(one) for one in connection.execute(sa.text(f"SELECT * FROM {name}")).mappings()]
    engine.dispose()
    return tables


def test_no_row_names_a_person(database: str, tmp_path: Path) -> None:
    """Each person asks for a token and answers at once, so that ranks would link them: nothing tells who asked."""
    with started(collector(tmp_path, BLIND, options=("--database", database))) as (url, _):
        tokens = [answer(url, number) for number in range(1, PEOPLE + 1)]
    rows = stolen(database)
    assert len(rows["issued"]) == PEOPLE  # the thief sees that so many came
    assert [named(row) for row in rows["issued"]] == [None] * PEOPLE
    older = {"digest": hashlib.sha256(b"issued\nblind\nonce\n7").digest()[:16]}
    assert named(older) == 7  # the twin: so it was, and every number was read from the table
    whole = json.dumps(rows, default=lambda own: bytes(own).hex() if isinstance(own, bytes | memoryview) else str(own))
    assert not any(token.hex() in whole for token in tokens)  # half of a token is kept, which proves nothing
    assert "127.0.0.1" not in whole


def test_an_old_database_still_knows_who_had_a_token(tmp_path: Path) -> None:
    """Up to schema 5 a person was written in another way: she gets no second token."""
    database = f"sqlite:///{tmp_path}/noisette.db"
    with started(collector(tmp_path, BLIND, options=("--database", database))) as (url, _):
        answer(url, 1)
        with closing(Store(database)) as store, store.writing() as connection:
            older = hashlib.sha256(b"issued\nblind\nonce\n2").digest()[:16]
            connection.exec_driver_sql("INSERT INTO issued (digest, blinded) VALUES (?, ?)", (older, bytes(16)))
        for number in (1, 2):
            asked = {
                "code": new_code(SECRET, number),
                "period": "once",
                "blinded": base64.b64encode(b"\x01" * 256).decode(),
            }
            told = httpx.post(f"{url}/campaigns/blind/tokens", json=asked, headers=auth("device"), timeout=300)
            assert (told.status_code, told.json()["reason"]) == (409, "token-issued")


def concordance(found: list[int]) -> float:
    """Return which share of the pairs is in order of arrival; half of them if the order tells nothing."""
    pairs = [(a, b) for place, a in enumerate(found) for b in found[place + 1 :]]
    return sum(a < b for a, b in pairs) / len(pairs)


def test_no_order_tells_when_a_report_came(tmp_path: Path) -> None:
    """Single reports, one transaction each; after keeping house neither file nor backup has their order.

    The share of pairs in order has a standard deviation of 0.04 for 64 reports in random order: 0.25 to 0.75 is missed
    with a chance below 1e-9. The rows as they were written first are the twin: all pairs are in order.
    """
    database, count = f"sqlite:///{tmp_path}/noisette.db", 64
    campaign = Campaign.from_dict(COMMUTE)
    report = campaign.privatize({"minutes": 35, "by": "bike"}, rng=1)
    tokens = [secrets.token_bytes(32) for _ in range(count)]
    with started(collector(tmp_path, options=("--database", database))) as (url, _):
        for token in tokens:
            body = {"version": 1} | entry(report, token=token.hex())
            sent = httpx.post(f"{url}/campaigns/commute/reports", json=body, headers=auth("device"), timeout=300)
            assert sent.status_code == 201
    place_of = {token[:16]: place for place, token in enumerate(tokens)}
    digests = {_batch(campaign, token).token_digests.tobytes(): at for at, token in enumerate(tokens)}

    def orders(path: Path) -> dict[str, list[int]]:
        with closing(sqlite3.connect(path)) as file:
            kept = [bytes(one) for (one,) in file.execute("SELECT tokens FROM blocks ORDER BY rowid")]
            seen = [bytes(one) for (one,) in file.execute("SELECT digest FROM seen")]
            log = [bytes(one) for (one,) in file.execute("SELECT digests FROM digest_log ORDER BY number")]
        halves = [own[start : start + 16] for own in kept for start in range(0, len(own), 16)]
        logged = [own[start : start + 16] for own in log for start in range(0, len(own), 16)]
        return {
            "blocks": [place_of[one] for one in halves],
            "seen": [digests[one] for one in seen if one in digests],
            "log": [digests[one] for one in logged if one in digests],
        }

    before = orders(tmp_path / "noisette.db")
    assert concordance(before["log"]) == 1.0  # the log of digests, until house is kept
    assert 0.25 < concordance(before["blocks"]) < 0.75  # numbers are drawn
    with closing(Store(database)) as store:
        store.mix()
    backup(database, tmp_path / "backup.db")
    for path in (tmp_path / "noisette.db", tmp_path / "backup.db"):
        after = orders(path)
        assert len(after["blocks"]) == len(after["seen"]) == count
        assert after["log"] == []
        assert 0.25 < concordance(after["blocks"]) < 0.75
        assert 0.25 < concordance(after["seen"]) < 0.75


def _batch(campaign: Campaign, token: bytes) -> Batch:
    import numpy as np

    own = np.frombuffer(token[:16], np.uint8).reshape(1, 16)
    rows = np.zeros(1, dtype=campaign.row)
    return Batch(campaign, "once", own, None, np.zeros(1, dtype=np.uint16), rows, np.arange(1))
