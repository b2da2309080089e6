"""A collector of its own, and devices that report to it over the network while somebody watches."""

from __future__ import annotations

import json
import secrets
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import local
from typing import Any
from urllib.parse import urlsplit

import httpx
import numpy as np

from noisette._retry import decided, pauses
from noisette.demo.population import Devices
from noisette.device.tokens import new_secret, token
from noisette.survey.campaigns import VERSION, Campaign
from noisette.survey.periods import period_at

_CONNECTIONS = 12  # connections
_ATTEMPTS, _PATIENCE = 6, 120.0
_DEVICES_AT_ONCE = 500  # devices simulated together
_SECONDS_BETWEEN = 4.0  # seconds between two looks at the estimates
Watch = Callable[[dict[str, Any], float], None]
_SERVE = [sys.executable, "-c", "from noisette.cli import main; main()", "serve"]
_STOPPING = 15  # seconds to finish what has begun


@dataclass(frozen=True)
class Collector:
    """Where it is, and the keys of the roles."""

    url: str
    keys: dict[str, str]
    process: subprocess.Popen[str]

    def header(self, role: str) -> dict[str, str]:
        """Return the header that carries the key of a role."""
        return {"Authorization": f"Bearer {self.keys[role]}"}


@contextmanager
def serving(campaign: dict[str, Any]) -> Iterator[Collector]:
    """Start a collector for a campaign and stop it in the end, as an operator would."""
    import yaml

    keys = {role: secrets.token_urlsafe(24) for role in ("device", "analyst", "auditor")}
    with TemporaryDirectory(prefix="noisette-demo-") as name:
        folder = Path(name)
        (folder / "campaign.yaml").write_text(yaml.safe_dump(campaign, allow_unicode=True), encoding="utf-8")
        (folder / "keys.yaml").write_text(yaml.safe_dump({role: [key] for role, key in keys.items()}), encoding="utf-8")
        files = [str(folder / "campaign.yaml"), "--keys", str(folder / "keys.yaml")]
        command = [*_SERVE, *files, "--database", f"sqlite:///{folder / 'reports.db'}", "--port", "0", "--json"]
        log = folder / "log"
        with (
            log.open("w", encoding="utf-8") as errors,
            subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True) as process,
        ):
            try:
                yield Collector(_address(process, log), keys, process)
            finally:
                process.send_signal(signal.SIGTERM)
                try:
                    process.wait(_STOPPING)
                except subprocess.TimeoutExpired:
                    process.kill()


def _address(process: subprocess.Popen[str], log: Path) -> str:
    """Read what the collector says about itself when it listens."""
    said = ""
    for line in process.stdout or ():
        said += line
        if line == "}\n":  # the end of the JSON object
            return str(json.loads(said)["url"])
    raise RuntimeError(f"The collector did not start: {log.read_text(encoding='utf-8').strip()[-500:]}")


@dataclass
class Reported:
    """How the reporting went: every look at the estimates on the way, and how long it took."""

    accepted: int
    looks: list[dict[str, Any]] = field(default_factory=list)
    seconds: float = 0.0


def report(
    campaign: Campaign, collector: Collector, devices: Devices, noise: np.random.Generator, watch: Watch
) -> Reported:
    """Let all devices report, one request each, and show the estimates on the way."""
    started, looks = time.perf_counter(), []
    path, network = f"/campaigns/{campaign.id}/reports", _Network(collector)
    with (
        httpx.Client(base_url=collector.url, headers=collector.header("analyst"), timeout=_PATIENCE) as analyst,
        ThreadPoolExecutor(_CONNECTIONS) as threads,
    ):
        try:
            sending = [threads.submit(network.post, path, body) for body in _bodies(campaign, devices, noise)]
            pause = _SECONDS_BETWEEN
            while wait(sending, timeout=pause).not_done:
                asked = time.perf_counter()
                looks.append(analyst.get(f"/campaigns/{campaign.id}/estimates").raise_for_status().json())
                watch(looks[-1], time.perf_counter() - started)
                pause = max(
                    _SECONDS_BETWEEN, 5 * (time.perf_counter() - asked)
                )  # a busy machine is left to the devices
            accepted = sum(one.result() for one in sending)
        finally:
            threads.shutdown(cancel_futures=True)
            network.close()
    return Reported(accepted, looks, time.perf_counter() - started)


def _bodies(campaign: Campaign, devices: Devices, noise: np.random.Generator) -> Iterator[bytes]:
    """Make what every device sends; what a device does alone is here done for some at once."""
    period, coded = period_at(campaign.period), devices.coded
    for start in range(0, len(devices.sports), _DEVICES_AT_ONCE):
        here = {name: values[start : start + _DEVICES_AT_ONCE] for name, values in coded.items()}
        for row in campaign.privatize_coded(here, rng=noise):
            own = {"token": token(new_secret(), campaign.id, period), "key": uuid.uuid4().hex}
            body = {"version": VERSION, "period": period, "report": row[0].tolist()} | own
            yield json.dumps(body).encode()


class _Network:
    """A connection for each thread, which is made again when it breaks."""

    def __init__(self, collector: Collector) -> None:
        self._place = urlsplit(collector.url).netloc
        self._headers = collector.header("device") | {"Content-Type": "application/json"}
        self._own, self._made = local(), list[HTTPConnection]()

    def post(self, path: str, body: bytes) -> int:
        """Send a report until it is acknowledged, always under the same key; return 1."""
        for pause in pauses(_ATTEMPTS):
            time.sleep(pause)
            connection = self._connection()
            try:
                connection.request("POST", path, body, self._headers)
                answer = connection.getresponse()
                said = answer.read()
            except (HTTPException, OSError):
                connection.close()  # the next request opens it again
                continue
            if answer.status in (200, 201):
                return 1
            if decided(answer.status):
                raise RuntimeError(f"The collector refused a report: {said.decode(errors='replace')}")
        raise RuntimeError("The collector does not answer.")

    def _connection(self) -> HTTPConnection:
        if not hasattr(self._own, "connection"):
            self._own.connection = HTTPConnection(self._place, timeout=_PATIENCE)
            self._made.append(self._own.connection)
        found: HTTPConnection = self._own.connection
        return found

    def close(self) -> None:
        """Close all connections."""
        for connection in self._made:
            connection.close()
