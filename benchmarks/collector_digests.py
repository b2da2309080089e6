"""What the index of tokens costs PostgreSQL as it grows: processor time of its processes, and bytes of its log.

python benchmarks/collector_digests.py --millions 10    digests as the collector keeps them, in runs of a million
python benchmarks/collector_digests.py --millions 10 --before    in one index, as it kept them before

Digests of 20,000 reports are copied in one transaction, as the collector does; nothing else is written. Processor time
says what the growing index costs, also on a machine that does other things.
"""

from __future__ import annotations

import argparse
import os
import secrets
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.collector.postgres import Postgres

from collector import settings, used
from noisette.collector import Store
from noisette.collector.storage import postgres as storage
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
    if given.before:
        storage._FULL = 1 << 62
    with Postgres(*settings()) as postgres, closing(Store(postgres.new_database())) as store:
        database, pid = store.database, postgres.pid
        for million in range(1, given.millions + 1):
            spent, log, took = used(pid), _log(database), 0.0
            drawn = [digests() for _ in range(1_000_000 // AT_ONCE)]
            own = time.process_time()
            for new in drawn:
                began = time.perf_counter()
                with database.writing() as connection:
                    assert database.add_digests(connection, new, np.zeros(AT_ONCE, dtype=np.int64))
                took += time.perf_counter() - began
            bytes_each = (_log(database) - log) / 1e6
            cost = f"{used(pid) - spent:.2f} us of PostgreSQL, {time.process_time() - own:.2f} us of this process"
            cost += f" and {bytes_each:.0f} bytes of log a digest"
            print(f"million {million}: {cost}; {1e6 / took:,.0f} a second; load {os.getloadavg()[0]:.1f}", flush=True)


def _log(database: Any) -> float:
    with database.reading() as connection:
        query = "SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn"
        return float(connection.exec_driver_sql(query).scalar_one())


if __name__ == "__main__":
    main()
