"""How fast the collector takes reports, with durability on, and what that costs in memory and in waiting.

python benchmarks/collector.py             half a million reports in batches and single ones, SQLite and PostgreSQL
python benchmarks/collector.py --full      the same with ten million in batches: rate and memory after each million
python benchmarks/collector.py --small     a few thousand, to see that it runs
python benchmarks/collector.py --workers   single reports into PostgreSQL by one process and by two, and who waits
python benchmarks/collector.py --full --batches --only sqlite --record     ... and into the tables of the documentation

With --full the batches of each database get five minutes (--minutes): what is not sent by then is left out, and the
summary says how many were.

The server is a process of its own, the sender is this one; both are on this machine. Batches are binary, 10,000 reports
each, and two are under way at a time. Single reports are JSON on 64 connections. The bare endpoint is FastAPI alone: it
takes the same bodies on the same connections and commits them to one table of the same database, as many to a
transaction as have arrived, without looking at them; the two take turns in one run. PostgreSQL is started here, with
the settings of deploy/compose.yaml, and commits synchronously; SQLite waits for the disk at every commit. With
--workers PostgreSQL logs whoever waits for a lock for a millisecond.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import queue
import secrets
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import uvloop
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.collector.helpers import COMMUTE
from tests.collector.postgres import Postgres, found

from collector_page import record
from noisette.survey import batches
from noisette.survey.campaigns import Campaign

CAMPAIGN: dict[str, Any] = COMMUTE | {"users": 1_000_000}
KEY = "a-key-for-the-benchmark"
PATH = "/campaigns/commute/reports"
BATCH = 10_000
CONNECTIONS = 64
TURNS = 3


@dataclass(frozen=True)
class Run:
    """One measurement: reports a second, how long requests took, the server's memory in MB and its CPU time a report.

    On a machine that does other things the rate says little; ``cpu_us`` says what one core could reach.
    """

    what: str
    database: str
    reports: int
    rate: float
    p50_ms: float
    p99_ms: float
    memory_before: float
    memory_after: float
    cpu_us: float
    postgres_us: float = 0.0  # CPU time of all processes of PostgreSQL a report
    sender_us: float = 0.0  # and of who sends
    waits: int = 0  # for a lock of PostgreSQL, of a millisecond or more, where they were looked for

    @property
    def kind(self) -> str:
        """Whether reports came in batches, or single ones beside the bare endpoint or to several processes."""
        return next((kind for kind in ("batches", "workers") if self.what.startswith(kind)), "single")


def run_ours(database: str, workers: int) -> None:
    """Serve the collector in so many processes on a free port, and print which."""
    from noisette._service import listen, run, run_workers
    from noisette.collector import Store, create_app
    from noisette.collector.telemetry import log
    from noisette.collector.web.access import Keys

    Store(database).close()
    bound = listen("127.0.0.1", 0)
    print(bound.getsockname()[1], flush=True)

    def work() -> None:
        keys = Keys({"device": [KEY]})
        run(create_app([Campaign.from_dict(CAMPAIGN)], Store(database), keys, rate=None), bound, log)

    work() if workers == 1 else run_workers(workers, work, log)


def run_bare(database: str) -> None:
    """Serve an endpoint that writes every body and looks at none."""
    import sqlalchemy as sa
    import uvicorn

    from noisette._service import listen
    from noisette.collector.storage.database import open_database

    opened = open_database(database)
    table = sa.Table(
        "bare", sa.MetaData(), sa.Column("n", sa.Integer, primary_key=True), sa.Column("body", sa.LargeBinary)
    )
    with opened.writing() as connection:
        table.create(connection, checkfirst=True)
    waiting: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def write() -> None:
        while True:
            taken = [waiting.get()]
            while not waiting.empty():
                taken.append(waiting.get())
            with opened.writing() as connection:
                connection.execute(sa.insert(table), [{"body": body} for body, _, _ in taken])
            taken[0][2].call_soon_threadsafe(lambda done=taken: [one.set_result(None) for _, one, _ in done])

    threading.Thread(target=write, daemon=True).start()
    app = FastAPI()

    @app.post("/campaigns/{campaign_id}/reports")
    async def receive(campaign_id: str, request: Request) -> JSONResponse:
        loop = asyncio.get_running_loop()
        done = loop.create_future()
        waiting.put((await request.body(), done, loop))
        await done
        return JSONResponse({"accepted": 1}, 201)

    bound = listen("127.0.0.1", 0)
    print(bound.getsockname()[1], flush=True)
    uvicorn.Server(uvicorn.Config(app, access_log=False, log_level="warning")).run(sockets=[bound])


@contextmanager
def server(kind: str, database: str, processes: int = 1) -> Iterator[tuple[int, int]]:
    """Start a server in a process of its own and give its port and process."""
    command = [sys.executable, __file__, "--serve", kind, "--database", database, "--processes", str(processes)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            assert process.stdout is not None
            yield int(process.stdout.readline()), process.pid
        finally:
            process.terminate()


def family(pid: int) -> list[int]:
    """Return a process and its children."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="utf-8").split()
    return [pid, *map(int, children)]


def memory(pid: int) -> float:
    """Return the resident memory of a process and its children in MB."""
    texts = [Path(f"/proc/{one}/status").read_text(encoding="utf-8") for one in family(pid)]
    lines = [line for text in texts for line in text.splitlines() if line.startswith("VmRSS")]
    return sum(int(line.split()[1]) / 1024 for line in lines)


def used(pid: int) -> float:
    """Return the CPU seconds that a process and its children have used."""
    found = [Path(f"/proc/{one}/stat").read_text(encoding="utf-8").rpartition(")")[2].split() for one in family(pid)]
    return sum(int(one[11]) + int(one[12]) for one in found) / os.sysconf("SC_CLK_TCK")


class Sender(asyncio.Protocol):
    """One connection that sends a request when the last one was answered, and costs little itself."""

    def __init__(self, left: Iterator[bytes], seconds: list[float], done: asyncio.Future[None]) -> None:
        self._left, self._seconds, self._done, self._answer = left, seconds, done, b""

    def connection_made(self, transport: Any) -> None:
        """Begin."""
        self._transport = transport
        self._next()

    def _next(self) -> None:
        request = next(self._left, None)
        if request is None:
            self._transport.close()
            self._done.set_result(None)
        else:
            self._began = time.perf_counter()
            self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        """Take an answer, of which the head says how long it is."""
        self._answer += data
        head, found, body = self._answer.partition(b"\r\n\r\n")
        if not found or len(body) < int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0]):
            return
        if not head.startswith(b"HTTP/1.1 201"):
            self._done.set_exception(RuntimeError(self._answer.decode()))
            return
        self._seconds.append(time.perf_counter() - self._began)
        self._answer = b""
        self._next()

    def connection_lost(self, error: Exception | None) -> None:
        """Tell that the server has ended it."""
        if not self._done.done():
            self._done.set_exception(error or ConnectionError("The server ended a connection."))


async def send(port: int, requests: list[bytes], connections: int) -> list[float]:
    """Send requests over so many connections that are kept open, and return how long each answer took."""
    left, seconds, loop = iter(requests), list[float](), asyncio.get_running_loop()
    ended = [loop.create_future() for _ in range(connections)]
    for done in ended:
        await loop.create_connection(lambda done=done: Sender(left, seconds, done), "127.0.0.1", port)  # type: ignore[misc]
    await asyncio.gather(*ended)
    return seconds


def measure(
    what: str,
    where: tuple[int, int],
    name: str,
    bodies: list[bytes],
    each: int,
    connections: int,
    media: str,
    postgres: Postgres | None = None,
) -> Run:
    """Send bodies of so many reports each, and describe how it went."""
    port, pid = where
    head = f"POST {PATH} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {KEY}\r\nContent-Type: {media}\r\n"
    requests = [f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body for body in bodies]
    own = [pid] if postgres is None or name == "sqlite" else [pid, postgres.pid]
    before, spent, sender, started = memory(pid), [*map(used, own)], time.process_time(), time.perf_counter()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        seconds = runner.run(send(port, requests, connections))
    count = len(bodies) * each
    rate, sender = count / (time.perf_counter() - started), time.process_time() - sender
    p50, p99 = (float(np.quantile(seconds, share)) * 1000 for share in (0.5, 0.99))
    cpu, *others = ((used(one) - two) / count * 1e6 for one, two in zip(own, spent, strict=True))
    each_us = sender / count * 1e6
    return Run(what, name, count, rate, p50, p99, before, memory(pid), cpu, float(sum(others)), each_us)


def packed(campaign: Campaign, count: int, seed: int) -> list[bytes]:
    """Return binary batches of fresh tokens."""
    rng = np.random.default_rng(seed)
    people = {"minutes": rng.uniform(0, 120, BATCH), "by": rng.integers(0, 4, BATCH)}
    rows = campaign.privatize_coded(people)
    return [batches.pack(campaign, "once", secrets.token_bytes(32 * BATCH), rows) for _ in range(count)]


def single(campaign: Campaign, count: int) -> list[bytes]:
    """Return single reports as devices send them."""
    reports = [campaign.privatize({"minutes": 35, "by": "bike"}) for _ in range(100)]
    return [
        json.dumps(
            {
                "version": 1,
                "key": secrets.token_hex(16),
                "period": "once",
                "token": secrets.token_hex(32),
                "report": reports[number % 100],
            }
        ).encode()
        for number in range(count)
    ]


def in_batches(
    campaign: Campaign, name: str, database: str, sizes: list[int], seconds: float, postgres: Postgres | None
) -> Iterator[Run]:
    """Measure batches, so many reports after so many into the same database, until the time is over."""
    with server("ours", database) as where:
        measure("warm-up", where, name, packed(campaign, 2, 0), BATCH, 2, batches.MEDIA_TYPE)
        started = time.monotonic()
        for number, size in enumerate(sizes):
            bodies = packed(campaign, size // BATCH, number)
            yield measure(f"batches {number + 1}", where, name, bodies, BATCH, 2, batches.MEDIA_TYPE, postgres)
            used = time.monotonic() - started
            if used * (number + 2) / (number + 1) > seconds:
                break


def one_by_one(campaign: Campaign, name: str, fresh: Any, size: int, postgres: Postgres | None) -> Iterator[Run]:
    """Measure single reports, ours and the bare endpoint in turns."""
    media = "application/json"
    with server("ours", fresh()) as ours, server("bare", fresh()) as bare:
        for where in (ours, bare):
            measure("warm-up", where, name, single(campaign, size // 10), 1, CONNECTIONS, media)
        for _ in range(TURNS):
            bodies = single(campaign, size)
            yield measure("bare", bare, name, bodies, 1, CONNECTIONS, media, postgres)
            yield measure("single", ours, name, bodies, 1, CONNECTIONS, media, postgres)


def by_workers(campaign: Campaign, size: int) -> Iterator[Run]:
    """Measure single reports into PostgreSQL by one process and by two, in turns, and count who waited for a lock."""
    watched = ("log_lock_waits=on", "deadlock_timeout=1ms", "log_line_prefix=%p:")
    media = "application/json"
    with (
        Postgres(*settings(), *watched) as postgres,
        server("ours", postgres.new_database()) as one,
        server("ours", postgres.new_database(), 2) as two,
    ):
        for where in (one, two):
            until_ready(where)
            measure("warm-up", where, "postgresql", single(campaign, size // 5), 1, CONNECTIONS, media)
        for _ in range(TURNS):
            for what, where in (("workers 1", one), ("workers 2", two)):
                before = postgres.logged().count("still waiting for")
                done = measure(what, where, "postgresql", single(campaign, size), 1, CONNECTIONS, media, postgres)
                yield replace(done, waits=postgres.logged().count("still waiting for") - before)
        shares = [used(pid) for pid in family(two[1])[1:]]
        print(f"CPU seconds of each of the two workers: {', '.join(f'{own:.1f}' for own in shares)}")


def until_ready(where: tuple[int, int]) -> None:
    """Wait until a server answers."""
    import httpx

    while True:
        try:
            httpx.get(f"http://127.0.0.1:{where[0]}/health", timeout=60).raise_for_status()
            return
        except httpx.TransportError:
            time.sleep(0.1)


def settings() -> list[str]:
    """Return the settings of PostgreSQL that deploy/compose.yaml documents."""
    import yaml

    file = Path(__file__).resolve().parent.parent / "deploy" / "compose.yaml"
    words = yaml.safe_load(file.read_text(encoding="utf-8"))["services"]["database"]["command"]
    return [word for word in words if "=" in word]


def main() -> None:
    """Measure, print a line for each run, and a summary as JSON at the end."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--millions", type=int, default=10, help="how many, with --full")
    parser.add_argument("--minutes", type=float, default=5.0, help="for the batches of one database, with --full")
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--only", choices=["sqlite", "postgresql"])
    parser.add_argument("--batches", action="store_true", help="batches alone")
    parser.add_argument("--single", action="store_true", help="single reports alone")
    parser.add_argument("--workers", action="store_true", help="one process and two on PostgreSQL")
    parser.add_argument("--reports", type=int, default=10_000, help="in each turn, with --workers")
    parser.add_argument("--record", action="store_true", help="write collector.json and docs/benchmarks-collector.md")
    parser.add_argument("--serve", choices=["ours", "bare"], help=argparse.SUPPRESS)
    parser.add_argument("--database", help=argparse.SUPPRESS)
    parser.add_argument("--processes", type=int, default=1, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve:
        run_ours(given.database, given.processes) if given.serve == "ours" else run_bare(given.database)
        return
    campaign = Campaign.from_dict(CAMPAIGN)
    sizes = [1_000_000] * given.millions if given.full else [20_000 if given.small else 500_000]
    runs: list[Run] = []
    if given.workers:
        runs += map(show, by_workers(campaign, 300 if given.small else given.reports))
    with tempfile.TemporaryDirectory() as folder, Postgres(*settings()) if found() else nullcontext() as postgres:
        made = iter(range(1000))
        fresh = {"sqlite": lambda: f"sqlite:///{folder}/{next(made)}.db"}
        if postgres is not None:
            fresh["postgresql"] = postgres.new_database
        chosen = {name: new for name, new in fresh.items() if given.only in (None, name)}
        for name, new in chosen.items():
            if not given.batches and not given.workers:
                runs += map(show, one_by_one(campaign, name, new, 300 if given.small else 5000, postgres))
        for name, new in chosen.items():
            if not given.single and not given.workers:
                runs += map(show, in_batches(campaign, name, new(), sizes, given.minutes * 60, postgres))
    load = os.getloadavg()[0]
    for line in summary(runs):
        print(line)
    print(f"load of this machine: {load:.1f} on {os.cpu_count()} cores")
    print(json.dumps([asdict(run) for run in runs]))
    if given.record:
        for kind, database in dict.fromkeys((run.kind, run.database) for run in runs):
            own = [asdict(run) for run in runs if (run.kind, run.database) == (kind, database)]
            command = " ".join(["python", "benchmarks/collector.py", *sys.argv[1:]])
            record(kind, database, command, load, own)


def summary(runs: list[Run]) -> Iterator[str]:
    """Say for each database what was reached."""
    for name in dict.fromkeys(run.database for run in runs):
        own = [run for run in runs if run.database == name]
        sent = [run for run in own if run.what.startswith("batches")]
        if sent:
            total = sum(run.reports for run in sent)
            rate = total / sum(run.reports / run.rate for run in sent)
            slowest, worst = min(run.rate for run in sent), max(run.p99_ms for run in sent)
            yield f"{name}: {total:,} reports in batches at {rate:,.0f} a second, the slowest part at {slowest:,.0f}"
            held = f"{sent[0].memory_after:.0f} MB after the first part, {sent[-1].memory_after:.0f} MB at the end"
            yield f"{name}: p99 of a batch at most {worst:,.0f} ms; memory {held}"
        one, two = ([run for run in own if run.what == f"workers {count}"] for count in (1, 2))
        if one and two:
            rates = [statistics.median(run.rate for run in some) for some in (one, two)]
            costs = [statistics.median(run.cpu_us for run in some) for some in (one, two)]
            yield f"{name}: two processes take {rates[1]:,.0f} reports a second, one {rates[0]:,.0f}"
            yield f"{name}: CPU a report {costs[1]:.0f} us by two processes, {costs[0]:.0f} us by one"
            total = sum(run.reports for run in (*one, *two))
            yield f"{name}: waits for a lock, in {total:,} reports: {sum(run.waits for run in (*one, *two))}"
        ours, bare = ([run for run in own if run.what == what] for what in ("single", "bare"))
        if ours:
            shares = statistics.median(run.rate for run in ours) / statistics.median(run.rate for run in bare)
            worst = max(run.p99_ms for run in ours)
            yield f"{name}: single reports reach {shares:.0%} of the bare endpoint; p99 at most {worst:,.0f} ms"


def show(run: Run) -> Run:
    """Print a run."""
    waited = f"p50 {run.p50_ms:7.1f} ms   p99 {run.p99_ms:7.1f} ms"
    spent = f"{run.cpu_us:.1f} us, PostgreSQL's {run.postgres_us:.1f}, the sender's {run.sender_us:.1f}"
    held = f"memory {run.memory_before:.0f} to {run.memory_after:.0f} MB   CPU {spent}"
    now = time.strftime("%H:%M:%S")
    print(f"{now}   {run.database:10} {run.what:11} {run.rate:10,.0f} reports/s   {waited}   {held}", flush=True)
    return run


if __name__ == "__main__":
    main()
