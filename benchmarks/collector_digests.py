"""What the index of tokens costs PostgreSQL as it grows: processor time of its process, and bytes of its log.

python benchmarks/collector_digests.py --millions 8    digests as the collector keeps them
python benchmarks/collector_digests.py --millions 6 --before    as bytes, with PostgreSQL's default settings

Digests of 20,000 reports are copied in one transaction, as the collector does; nothing else is written. Processor time
says what the growing index costs, also on a machine that does other things.
"""

from __future__ import annotations

import argparse
import os
import secrets
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.collector.postgres import Postgres

from collector import settings, used
from noisette.collector.storage.database import open_database
from noisette.survey.batches import DIGEST_BYTES

AT_ONCE = 20_000


def digests() -> Any:
    """Return random digests in order of their bytes."""
    drawn = np.frombuffer(secrets.token_bytes(DIGEST_BYTES * AT_ONCE), np.uint8).reshape(-1, DIGEST_BYTES)
    words = drawn.view(">u8").astype(np.uint64)
    return drawn[np.lexsort((words[:, 1], words[:, 0]))]


def main() -> None:
    """Print a line for each million."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--millions", type=int, default=8)
    parser.add_argument("--before", action="store_true")
    given = parser.parse_args()
    kind = "bytea" if given.before else "uuid"
    with Postgres(*([] if given.before else settings())) as postgres:
        database = open_database(postgres.new_database())
        with database.writing() as connection:
            connection.exec_driver_sql(f"CREATE TABLE seen (digest {kind} PRIMARY KEY, mark bigint NOT NULL)")
            pid = connection.exec_driver_sql("SELECT pg_backend_pid()").scalar_one()
        for million in range(1, given.millions + 1):
            spent, log, took = used(pid), _log(database), 0.0
            for _ in range(1_000_000 // AT_ONCE):
                new = digests()
                began = time.perf_counter()
                with database.writing() as connection:
                    assert database.add_digests(connection, new, np.zeros(AT_ONCE, dtype=np.int64))
                took += time.perf_counter() - began
            bytes_each = (_log(database) - log) / 1e6
            cost = f"{used(pid) - spent:.2f} us of PostgreSQL's process and {bytes_each:.0f} bytes of log a report"
            print(f"million {million}: {cost}; {1e6 / took:,.0f} a second; load {os.getloadavg()[0]:.1f}", flush=True)
        database.close()


def _log(database: Any) -> float:
    with database.reading() as connection:
        query = "SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn"
        return float(connection.exec_driver_sql(query).scalar_one())


if __name__ == "__main__":
    main()
