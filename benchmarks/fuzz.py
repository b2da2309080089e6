"""Send two collectors and a shuffler what no client of ours would send, and count the answers.

python benchmarks/fuzz.py --requests 50000     statuses on standard output; fails on an answer of 5xx that is not 503

One collector is behind the shuffler, one takes reports itself; all are processes of their own on this machine. Every
request is drawn by a seed: a route, with the key of a role, a wrong one or none, and a body that is sound, cut, mutated
byte by byte, nested, huge in its numbers or of another route.
Posts to the shuffler and its batches to the collector are signed, so that what is in them is looked at; sealed packets
hold sound reports and all the others.
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
from threading import local
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import httpx
from tests.attacks.servers import collector, memory
from tests.collector.helpers import COMMUTE, KEYS, PERSON, entry
from tests.shuffler.processes import shuffler

from noisette.device.sealed import label
from noisette.shuffler import Round, ServerKey, new_secret
from noisette.shuffler.clients import entry_of, sign
from noisette.shuffler.wire import Frame
from noisette.survey.batches import pack
from noisette.survey.campaigns import Campaign

CAMPAIGN = Campaign.from_dict(COMMUTE)
SEALED = 2624  # bytes of every report of the campaign before it is sealed
OPERATOR = "the-key-of-the-operator"
STRANGE = [
    None,
    True,
    -1,
    0,
    1e308,
    -1e308,
    1e-320,
    2**63,
    2**64,
    10**400,
    "",
    "é",
    "\x00",
    "x" * 5000,
    [],
    {},
    [[]] * 50,
]
WORDS = [
    "once",
    "2026-11-17",
    "2026-W47",
    "1000-01-01",
    "9999-12-31",
    "commute",
    "ghost",
    "../..",
    "%00",
    "é",
    "x" * 300,
]


class Fuzz:
    """Draws requests."""

    def __init__(self, folder: Path, urls: tuple[str, str, str], secret_of: dict[str, str], own: str) -> None:
        collector_url, plain_url, shuffler_url = urls
        self._collector, self._plain, self._shuffler = collector_url, plain_url, shuffler_url
        self._secret_of, self._own = secret_of, own
        self._key = ServerKey.read(folder / "server.pem").public
        rows = CAMPAIGN.survey.rows([CAMPAIGN.privatize(PERSON, rng=seed) for seed in range(3)])
        self._packed = pack(CAMPAIGN, "once", bytes(range(96)), rows)
        self._local = local()

    def send(self, seed: int) -> str:
        """Send the request of a seed, and return where it went and how it was answered."""
        rng = random.Random(seed)
        if not hasattr(self._local, "http"):
            self._local.http = httpx.Client(timeout=120)
        method, url, route, headers, body = rng.choice(
            (self._report, self._report, self._token, self._read, self._post, self._post, self._shuffled, self._operate)
        )(rng)
        try:
            raw = [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]
            answer = self._local.http.request(method, url, headers=raw, content=body)
            return f"{route} {answer.status_code}"
        except httpx.TransportError as error:  # a connection that the other side ended
            return f"{route} {type(error).__name__}"

    def _auth(self, rng: random.Random, *likely: str) -> dict[str, str]:
        key = rng.choice([*likely * 12, "", "wrong", "é".encode().decode("latin-1")])
        return {"Authorization": f"{rng.choice(['Bearer'] * 8 + ['Basic', ''])} {key}".strip()}

    def _json(self, rng: random.Random) -> bytes:
        """Return a report or several, of which something is wrong more often than not."""
        made: Any = {"version": 1} | entry(CAMPAIGN.privatize(PERSON, rng=rng.randrange(1000)))
        for _ in range(rng.choice((0, 1, 1, 2))):
            made[rng.choice([*made, "group", "signature", "campaign", "reports"])] = rng.choice([*STRANGE, *WORDS])
        if rng.random() < 0.2:
            made = {"version": 1, "reports": [made] * rng.choice((1, 2, 50))}
        text = json.dumps(made).encode()
        return self._spoilt(
            rng, rng.choice([text] * 8 + [self._packed] * 4 + [b"[" * 3000, b'{"a":' * 3000, b"", b"null"])
        )

    def _spoilt(self, rng: random.Random, body: bytes) -> bytes:
        """Return bytes with some of them changed, cut or doubled."""
        made = bytearray(body)
        if made and rng.random() < 0.5:
            for _ in range(rng.choice((1, 1, 3, 20))):
                made[rng.randrange(len(made))] = rng.randrange(256)
        if rng.random() < 0.1:
            made = made[: rng.randrange(len(made) + 1)]
        return bytes(made * 2 if rng.random() < 0.05 else made)

    def _report(self, rng: random.Random) -> tuple[Any, ...]:
        name = rng.choice(["commute"] * 8 + WORDS)
        url = f"{self._plain}/campaigns/{name}/reports"
        return "POST", url, "reports", self._auth(rng, KEYS["device"]), self._json(rng)

    def _token(self, rng: random.Random) -> tuple[Any, ...]:
        url = f"{self._plain}/campaigns/{rng.choice(['blind', 'commute', 'ghost'])}/tokens"
        if rng.random() < 0.3:
            return "GET", f"{url}/{rng.choice(WORDS)}", "tokens", self._auth(rng, KEYS["device"]), None
        asked = {"code": "1.abc", "period": "once", "blinded": "AAAA"}
        asked[rng.choice(list(asked))] = rng.choice([*STRANGE, *WORDS])  # type: ignore[assignment]
        body = self._spoilt(rng, json.dumps(asked).encode())
        return "POST", url, "tokens", self._auth(rng, KEYS["device"]), body

    def _read(self, rng: random.Random) -> tuple[Any, ...]:
        path = rng.choice(["estimates", "plan", "shuffler", "table", "", "reports", "audit", "../metrics"])
        word = lambda: str(rng.choice([*STRANGE[:9], *WORDS]))  # noqa: E731
        query = "&".join(
            f"{name}={word()}" for name in rng.sample(["period", "level", "enhance", "format"], rng.randrange(3))
        )
        url = f"{self._collector}/campaigns/{rng.choice(['commute', 'blind', 'ghost'])}/{path}?{query}"
        method = rng.choice(["GET", "GET", "GET", "PUT", "DELETE", "OPTIONS", "BREW"])
        return method, url, "reading", self._auth(rng, KEYS["analyst"], KEYS["auditor"]), None

    def _frame(self, rng: random.Random) -> bytes:
        own = rng.choice([label(CAMPAIGN, "once")] * 4 + [Round(rng.choice(WORDS)[:150] or "x", rng.randrange(3), 2)])
        packets = []
        for _ in range(rng.choice((1, 1, 2, 5))):
            content = self._json(rng)[:SEALED].ljust(SEALED)
            packets.append((0, self._key.seal(content, own.label(0))))
        return self._spoilt(rng, Frame(own, packets).encode())

    def _post(self, rng: random.Random) -> tuple[Any, ...]:
        body, name = self._frame(rng), rng.choice(list(self._secret_of))
        number = rng.choice([str(rng.random())] * 8 + ["1", "x" * 90, ""])
        least = rng.choice([0, 0, 3, 10**6])
        headers = sign(self._secret_of[name], "/posts", name, number, body, minimum=least)
        if rng.random() < 0.2:
            headers[rng.choice(list(headers))] = rng.choice(["", "x", "0" * 64, "-1", "é".encode().decode("latin-1")])
        return "POST", f"{self._shuffler}/posts", "posts", headers, body

    def _shuffled(self, rng: random.Random) -> tuple[Any, ...]:
        body = self._frame(rng)
        part = f"{rng.randrange(4):032x}.{rng.randrange(3)}.{rng.randrange(1, 4)}"
        number = rng.choice([part, part, f"{rng.getrandbits(128):032x}.0.1", "x", "9" * 60])
        headers = sign(self._own, "/shuffled", "shuffler", number, body)
        return "POST", f"{self._collector}/shuffled", "shuffled", headers, body

    def _operate(self, rng: random.Random) -> tuple[Any, ...]:
        method = rng.choice(["GET", "POST", "DELETE"])
        path = rng.choice(["batches", "clients", "changes", "metrics", "ready", f"batches/{rng.choice(WORDS)}/drop"])
        path += rng.choice(["", "", f"/{rng.choice(WORDS)}", "/retry"])
        names = rng.choice([["x y"], [], [5], "x", None, ["x" * 65]])
        body = self._spoilt(rng, json.dumps({"names": names}).encode()) if method == "POST" else None
        return method, f"{self._shuffler}/{path}", "operation", self._auth(rng, OPERATOR), body


def study(requests: int, first: int) -> dict[str, Any]:
    """Start both services, send so many requests, and count the answers."""
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        own, secret_of = new_secret(), {f"c{number}": new_secret() for number in range(500)}
        for name, entries in (("clients", secret_of), ("shufflers", {"shuffler": own})):
            told = {one: entry_of(secret) for one, secret in entries.items()}
            (folder / f"{name}.json").write_text(json.dumps(told), encoding="utf-8")
        (folder / "shuffler.json").write_text(json.dumps({"shuffler": own}), encoding="utf-8")
        (folder / "operators.json").write_text(json.dumps({"olga": OPERATOR}), encoding="utf-8")
        ServerKey.generate().write(folder / "server.pem")
        terms = ("--shufflers", "shufflers.json", "--server-key", "server.pem", "--minimum", "3", "--rate", "0")
        behind = collector(folder, COMMUTE, COMMUTE | {"id": "blind", "tokens": "blind"}, options=terms)
        (folder / "plain").mkdir()
        plain = collector(
            folder / "plain", COMMUTE, COMMUTE | {"id": "blind", "tokens": "blind"}, options=("--rate", "0")
        )
        processes = {"collector behind the shuffler": behind, "collector": plain}
        try:
            urls = [one.start() for one in processes.values()]
            processes["shuffler"] = shuffler(folder, urls[0], "--minimum", "2", "--operators", "operators.json")
            urls.append(processes["shuffler"].start())
            fuzz = Fuzz(folder, (urls[0], urls[1], urls[2]), secret_of, own)
            with ThreadPoolExecutor(4) as pool:
                found = Counter(pool.map(fuzz.send, range(first, first + requests)))
            states = {one["state"] for one in _batches(urls[2])}
            peaks = {name: memory(one.pid, "VmHWM") >> 20 for name, one in processes.items()}
            alive = [httpx.get(f"{one}/health", timeout=60).status_code for one in urls]
        finally:
            for one in processes.values():
                one.stop()
    wrong = {name: count for name, count in found.items() if name[-3] == "5" and not name.endswith(" 503")}
    return {"requests": found.total(), "wrong": wrong, "health": alive, "MiB": peaks, "batches": sorted(states)} | {
        "answers": dict(sorted(found.items()))
    }


def _batches(url: str) -> list[dict[str, Any]]:
    headers = {"Authorization": f"Bearer {OPERATOR}"}
    return list(httpx.get(url + "/batches", headers=headers, timeout=60).json()["batches"])


def main() -> None:
    """Fuzz, and print the counts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=50_000)
    parser.add_argument("--seed", type=int, default=0, help="the first of the seeds, one a request")
    given = parser.parse_args()
    began = time.monotonic()
    found = study(given.requests, given.seed)
    print(json.dumps(found | {"seconds": round(time.monotonic() - began)}, indent=1))
    if found["wrong"] or set(found["health"]) != {200}:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
