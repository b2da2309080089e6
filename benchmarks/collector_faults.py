"""Kill the collector, or its database, at random moments under load, and count every report afterwards.

python benchmarks/collector_faults.py --kills 10 --record     ten kills of each kind, into docs/benchmarks-collector.md

Three threads send batches of 1, 7 or 50 reports. At a random moment the server's process gets SIGKILL, or PostgreSQL
ends all its processes at once without saving. After every kill the database is read: every report that was acknowledged
must be there, the sums must be those of the stored reports to the bit, and no digest may belong to no report. Then all
that was not acknowledged is sent again. At the end everything has been sent and must be there once.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from threading import Event
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.collector.faults import Load, collector
from tests.collector.helpers import COMMUTE
from tests.collector.postgres import Postgres, found

from collector_page import record
from noisette.survey.campaigns import Campaign


@contextmanager
def databases() -> Iterator[dict[str, tuple[str, Postgres | None]]]:
    """Give what is killed, by name, the database's URL, and its server where that is what is killed."""
    with tempfile.TemporaryDirectory() as folder:
        lite = {"the collector, on SQLite": (f"sqlite:///{folder}/reports.db", None)}
        if not found():
            yield lite
            return
        with Postgres() as server:
            whole: dict[str, tuple[str, Postgres | None]] = {**lite}
            whole["the collector, on PostgreSQL"] = (server.new_database(), None)
            whole["PostgreSQL"] = (server.new_database(), server)
            yield whole


def study(what: str, url: str, server: Postgres | None, kills: int) -> dict[str, Any]:
    """Kill so often, reconcile after every kill, send the rest, and reconcile once more."""
    load, under_way = Load(Campaign.from_dict(COMMUTE), threads=3, seed=kills), 0
    clock = random.Random(kills)
    with tempfile.TemporaryDirectory() as folder:
        process = collector(Path(folder), url)
        try:
            for number in range(kills):
                kill: Callable[[], Any] = process.stop if server is None else server.crash
                load.until_killed(process.start(), kill, least=clock.choice((1, 300, 3000)))
                process.stop()
                if server is not None:
                    server.start()
                counts = load.reconcile(url)
                under_way += counts.stored - counts.acknowledged
                print(time.strftime("%H:%M:%S"), what, f"kill {number + 1}:", counts, flush=True)
                if not counts.exact:
                    raise RuntimeError(f"{what}: the counts do not agree after kill {number + 1}")
            address = process.start()
            for queue in load.unsent:
                load.send(address, queue, Event())
        finally:
            process.stop()
    counts = load.reconcile(url)
    if not counts.exact or not counts.stored == counts.acknowledged == len(load.sent):
        raise RuntimeError(f"{what}: the counts do not agree at the end: {counts}, {len(load.sent)} sent")
    return {"what": what, "kills": kills, "unanswered": under_way} | asdict(counts)


def main() -> None:
    """Kill, print how each database fared, and put the rows into the documentation."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=10, help="of each kind")
    parser.add_argument("--record", action="store_true", help="write collector.json and docs/benchmarks-collector.md")
    given = parser.parse_args()
    with databases() as chosen:
        rows = [study(what, url, server, given.kills) for what, (url, server) in chosen.items()]
    for row in rows:
        print(row)
    if given.record:
        command = " ".join(["python", "benchmarks/collector_faults.py", *sys.argv[1:]])
        record("faults", "", command, os.getloadavg()[0], rows)


if __name__ == "__main__":
    main()
