"""Kill the shuffler, or the collector behind it, at random moments under load, and count every report afterwards.

python benchmarks/shuffler_faults.py --kills 30     thirty kills of each, counts on standard output

Three threads post sealed reports, each from a client of its own, to a shuffler that forwards at least six together. At
a random moment one of the two processes gets SIGKILL and is started again; posts that were not answered are sent again.
At the end the batch that still waits is filled up, and the collector must have every report that was sent, once, and
nothing else.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event, Lock
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import httpx
from tests.attacks.servers import collector
from tests.collector.helpers import COMMUTE, PERSON, entry
from tests.shuffler.processes import Process, shuffler

from noisette.collector import Store
from noisette.device.sealed import label, pad
from noisette.shuffler import ServerKey, new_secret
from noisette.shuffler.clients import entry_of, sign
from noisette.shuffler.wire import Frame
from noisette.survey.batches import pieces
from noisette.survey.campaigns import Campaign

MINIMUM, THREADS = 6, 3
CAMPAIGN = Campaign.from_dict(COMMUTE)
OPERATOR = "the-key-of-the-operator"


class Load:
    """Clients that have not sent yet, and the tokens of those that have."""

    def __init__(self, folder: Path, clients: int, seed: int) -> None:
        self.secrets = {f"c{number}": new_secret() for number in range(clients)}
        entries = {name: entry_of(secret) for name, secret in self.secrets.items()}
        (folder / "clients.json").write_text(json.dumps(entries), encoding="utf-8")
        self._key, self._waiting = ServerKey.read(folder / "server.pem").public, list(self.secrets)
        self._report = CAMPAIGN.privatize(PERSON, rng=seed)
        self.acknowledged: list[bytes] = []
        self._turn, self._http = Lock(), httpx.Client(timeout=10)

    def post(self, url: str, stop: Event) -> bool:
        """Send the report of the next client until it is acknowledged; tell whether there was one."""
        with self._turn:
            if not self._waiting:
                raise RuntimeError("Too few clients for so many kills.")
            name = self._waiting.pop()
        own, sent = label(CAMPAIGN, "once"), {"version": 1} | entry(self._report)
        body = Frame(own, [(0, self._key.seal(pad(CAMPAIGN, sent), own.label(0)))]).encode()
        headers = sign(self.secrets[name], "/posts", name, f"post-of-{name}", body, minimum=MINIMUM)
        while True:
            try:
                answer = self._http.post(url + "/posts", content=body, headers=headers)
                if answer.status_code in (200, 201):
                    break
                if answer.status_code != 503:
                    raise RuntimeError(f"{answer.status_code} {answer.text}")
            except httpx.TransportError:
                time.sleep(0.05)
        with self._turn:
            self.acknowledged.append(bytes.fromhex(sent["token"])[:16])
        return not stop.is_set()


def study(what: str, kills: int) -> dict[str, Any]:
    """Kill so often, let everything arrive, and compare what the collector has with what was acknowledged."""
    clock = random.Random(kills)
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        own = new_secret()
        (folder / "shufflers.json").write_text(json.dumps({"shuffler": entry_of(own)}), encoding="utf-8")
        (folder / "shuffler.json").write_text(json.dumps({"shuffler": own}), encoding="utf-8")
        (folder / "operators.json").write_text(json.dumps({"olga": OPERATOR}), encoding="utf-8")
        ServerKey.generate().write(folder / "server.pem")
        load = Load(folder, 200_000 if kills > 200 else 20_000, seed=1)
        terms = ("--shufflers", "shufflers.json", "--server-key", "server.pem", "--minimum", str(MINIMUM))
        behind = collector(folder, options=(*terms, "--database", "sqlite:///reports.db"))
        try:
            front = shuffler(folder, behind.start(), "--minimum", "2", "--operators", "operators.json")
            url = front.start()
            victim: Process = {"the shuffler": front, "the collector behind it": behind}[what]
            with ThreadPoolExecutor(THREADS) as pool:
                for number in range(kills):
                    stop = Event()
                    work = [pool.submit(_until, load, url, stop) for _ in range(THREADS)]
                    time.sleep(clock.choice((0.05, 0.3, 1.0)) * clock.random())
                    victim.stop()
                    victim.start()
                    time.sleep(clock.random())
                    stop.set()
                    for one in work:
                        one.result()
                    print(
                        time.strftime("%H:%M:%S"), what, f"kill {number + 1}: {len(load.acknowledged)} sent", flush=True
                    )
            _drain(load, url)
        finally:
            for one in (front, behind):
                one.stop()
        store = Store(f"sqlite:///{folder / 'reports.db'}")
        stored: Counter[bytes] = Counter()
        for batch in store.batches(CAMPAIGN, "once"):
            stored.update(pieces(batch.tokens))
        store.close()
    sent = Counter(load.acknowledged)
    row = {"lost": (sent - stored).total(), "doubled or invented": (stored - sent).total()}
    return {"what": what, "kills": kills, "acknowledged": sent.total(), "stored": stored.total()} | row


def _until(load: Load, url: str, stop: Event) -> None:
    while load.post(url, stop):
        pass


def _drain(load: Load, url: str) -> None:
    """Wait until the shuffler has forwarded all, and fill up the batch that waits for company."""
    headers, deadline = {"Authorization": f"Bearer {OPERATOR}"}, time.monotonic() + 300
    while batches := httpx.get(url + "/batches", headers=headers, timeout=60).json()["batches"]:
        if any(one["state"] == "aside" for one in batches) or time.monotonic() > deadline:
            raise RuntimeError(f"Something cannot be forwarded: {batches}")
        if all(one["state"] == "waiting" for one in batches):
            load.post(url, Event())
        time.sleep(0.1)
    time.sleep(0.5)


def main() -> None:
    """Kill, and print how each fared."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=10, help="of each process")
    given = parser.parse_args()
    for what in ("the shuffler", "the collector behind it"):
        print(json.dumps(study(what, given.kills)), flush=True)


if __name__ == "__main__":
    main()
