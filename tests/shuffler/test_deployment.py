"""Everything as in production, on one machine: superlink, three supernodes, shuffler and server app, each a process."""

from __future__ import annotations

import io
import json
import os
import signal
import socket
import sqlite3
import ssl
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from tests.federated.processes import PATIENCE, end, last_words, turn, words
from tests.shuffler.certificates import make_certificates, make_node_key

from noisette.datasets import folder as data_folder
from noisette.datasets import images
from noisette.federated.server.history import History
from noisette.shuffler import ServerKey
from noisette.shuffler.clients import enrol

NODES, BLOCKS, ROUNDS = 3, 10, 2
OPERATOR = "the-key-of-the-operator"
BIN = Path(sys.executable).parent
APP = Path(__file__).parent / "quickstart"


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as bound:
        return int(bound.getsockname()[1])


@dataclass
class Deployment:
    """The processes of one federation, with TLS and node authentication."""

    root: Path
    processes: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.superlink, self.receiver, self.shuffler = _free_port(), _free_port(), _free_port()
        self.server, self.key = self.root / "server", ServerKey.generate()
        self.environment = os.environ | {
            "FLWR_HOME": str(self.root / "flwr"),
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
            "OMP_NUM_THREADS": "1",
            "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
        }

    def prepare(self) -> None:
        """Write what each party has on its own disk: images, keys, secrets."""
        digits = images("mnist")
        enrol(self.root / "clients.json", [f"node-{n}" for n in range(NODES)], folder=self.root)
        for number in range(NODES):
            own = self.root / f"node{number}"
            own.mkdir()
            chosen = slice(600 * number, 600 * (number + 1))
            np.savez(own / "images.npz", images=digits.train[chosen], labels=digits.train_labels[chosen])
            (self.root / f"node-{number}.json").rename(own / "credentials.json")
            make_node_key(own)
        self.server.mkdir()
        np.savez(self.server / "images.npz", images=digits.test[:2000], labels=digits.test_labels[:2000])
        enrol(self.server / "shufflers.json", ["shuffler"], folder=self.root)
        self.key.write(self.server / "server.pem")
        make_certificates(self.root)
        for name in ("cert.pem", "key.pem"):
            (self.server / name).write_bytes((self.root / name).read_bytes())
        (self.root / "flwr").mkdir()
        how = f'root-certificates = "{self.root / "ca.pem"}"'
        there = f'[superlink]\ndefault = "here"\n[superlink.here]\naddress = "127.0.0.1:{self.superlink}"\n{how}\n'
        (self.root / "flwr" / "config.toml").write_text(there, encoding="utf-8")

    def start(self, name: str, *command: Any, **environment: Path) -> None:
        """Start a process, its output in a file."""
        own = self.environment | {key: str(value) for key, value in environment.items()}
        with (self.root / f"{name}.log").open("a", encoding="utf-8") as log:
            made = subprocess.Popen(words(*command), cwd=self.root, env=own, stdout=log, stderr=subprocess.STDOUT)
        self.processes[name] = made

    def flwr(self, *words: Any) -> None:
        """Run Flower's command line against the superlink; here, since it is slow to import."""
        with warnings.catch_warnings(action="ignore", category=DeprecationWarning):  # of its own
            from flwr.cli.app import app
            from typer.testing import CliRunner

            done = CliRunner().invoke(app, [*map(str, words)], env=self.environment)
        assert done.exit_code == 0, done.output

    def up(self) -> None:
        """Start everything but the run."""
        ours = ("--host", "127.0.0.1", "--port")
        tls = ("--ssl-certfile", "cert.pem", "--ssl-keyfile", "key.pem", "--ssl-ca-certfile", "ca.pem")
        self.start(
            "superlink",
            *("flower-superlink", *ours, self.superlink, *tls, "--enable-supernode-auth"),
            SERVER_FOLDER=self.server,
        )
        self.start_shuffler()
        self.wait_for(self.superlink, self.shuffler)
        for number in range(NODES):
            own = self.root / f"node{number}"
            self.flwr("supernode", "register", own / "node.pub", "here")
            how = ("--root-certificates", "ca.pem", "--auth-supernode-private-key", own / "node", *tls)
            self.start(
                f"node{number}",
                *("flower-supernode", "--superlink", f"127.0.0.1:{self.superlink}", *ours, _free_port(), *how),
                NODE_FOLDER=own,
            )

    def start_shuffler(self) -> None:
        """Start the shuffler, on the same port and with the same store every time."""
        (self.root / "operators.json").write_text(json.dumps({"olga": OPERATOR}), encoding="utf-8")
        tls = ("--certificate", "cert.pem", "--key", "key.pem", "--authority", "ca.pem")
        self.start(
            "shuffler",
            *("noisette", "federate", "shuffler", "--clients", "clients.json", "--credentials", "shuffler.json"),
            *("--server", f"https://127.0.0.1:{self.receiver}", "--minimum", NODES),
            *("--port", self.shuffler, *tls, "--operators", "operators.json"),
        )

    def kill_shuffler(self) -> int:
        """Kill the shuffler when it has accepted something, start it again; return how many packets had left it."""
        deadline = time.monotonic() + PATIENCE
        while self.accepted()[0] == 0:
            assert time.monotonic() < deadline, self.logs()
            time.sleep(0.02)
        self.processes["shuffler"].kill()
        assert self.processes["shuffler"].wait() == -signal.SIGKILL
        accepted, stored = self.accepted()
        self.start_shuffler()
        return accepted - stored

    def accepted(self) -> tuple[int, int]:
        """Return how many packets the shuffler's file says were accepted, and how many are still in it."""
        with closing(
            sqlite3.connect(self.root / "shuffler.db", timeout=60)
        ) as store:  # it may have to undo a transaction
            bits = [np.frombuffer(row[0], np.uint8) for row in store.execute("SELECT bits FROM seen")]
            stored = store.execute("SELECT count(*) FROM packets").fetchone()[0]
        return sum(int(np.unpackbits(one).sum()) for one in bits), int(stored)

    def wait_for(self, *ports: int) -> None:
        """Wait until something listens on each port."""
        deadline = time.monotonic() + PATIENCE
        for port in ports:
            while True:
                try:
                    socket.create_connection(("127.0.0.1", port)).close()
                    break
                except OSError:
                    assert time.monotonic() < deadline, self.logs()
                    time.sleep(0.1)

    def submit(self) -> None:
        """Submit the app."""
        config = {
            "rounds": ROUNDS,
            "receiver-port": self.receiver,
            "shuffler": f"https://127.0.0.1:{self.shuffler}",
            "server-key": self.key.public.text,
            "authority": str(self.root / "ca.pem"),
            "spread": 1.0,  # seconds over which clients send, which leaves time for a kill
        }
        words = " ".join(f"{key}={json.dumps(value)}" for key, value in config.items())
        self.flwr("run", APP, "here", "--run-config", words)

    def found(self) -> dict[str, Any]:
        """Wait for the end of the run and return what the server found."""
        deadline = time.monotonic() + PATIENCE
        while not (self.server / "found.json").exists():
            assert time.monotonic() < deadline, self.logs()
            assert all(process.poll() is None for process in self.processes.values()), self.logs()
            time.sleep(0.1)
        found: dict[str, Any] = json.loads((self.server / "found.json").read_text(encoding="utf-8"))
        return found

    def logs(self) -> str:
        """Return the last words of everyone."""
        return last_words(self.root)

    def down(self) -> None:
        """End everything, the superlink last."""
        end(self.processes)


@pytest.fixture
def deployment(tmp_path: Path) -> Iterator[Deployment]:
    if data_folder() is None:
        pytest.skip("needs MNIST: set NOISETTE_DATA")
    with turn():
        made = Deployment(tmp_path)
        made.prepare()
        yield made
        made.down()


@pytest.mark.long
def test_a_federation_of_processes(deployment: Deployment) -> None:
    """Digits are learnt over TLS; each value went through the shuffler once, killed on the way, none to the server."""
    deployment.up()
    deployment.submit()
    left = deployment.kill_shuffler()
    found = deployment.found()
    before, *after = found["accuracy"]
    assert before < 0.2
    assert after[-1] > 0.6
    assert len(found["rounds"]) == ROUNDS
    for entry in found["rounds"]:
        assert (entry["asked"], entry["counted"], entry["failed"], entry["missing"]) == (NODES, NODES, 0, 0)
        assert entry["released"]
        assert not entry["rejected"]
        assert entry["rejected_mixed"] == 0
        assert entry["lines"]["shuffled"]["model"] == "shuffled"
    known = ssl.create_default_context(cafile=deployment.root / "ca.pem")
    url = f"https://127.0.0.1:{deployment.shuffler}/metrics"
    told = httpx.get(url, verify=known, headers={"Authorization": f"Bearer {OPERATOR}"}).text
    packets = NODES * BLOCKS * ROUNDS
    assert f"noisette_packets_forwarded_total {packets - left:.1f}" in told  # also those accepted before the kill
    assert deployment.accepted() == (packets, 0)
    _check_last_round(deployment)


def _check_last_round(deployment: Deployment) -> None:
    """The model moved by the mean of the reports that the nodes have kept, in their own books; no other sum does."""
    run = History.load(deployment.server / "state.json")
    channel, kept = run.terms.channel(run.layout), []
    for number in range(NODES):
        [path] = (deployment.root / f"node{number}" / "budget.db-reports").glob("*.npy")
        with path.open("rb") as file:
            assert int(file.readline()) == ROUNDS
            kept.append(channel.estimate(np.load(io.BytesIO(file.read()), allow_pickle=False)))
    before = np.load(deployment.server / f"model-{ROUNDS - 1}.npy")
    assert run.weights - before == pytest.approx(np.mean(kept, axis=0), abs=1e-5)
    assert run.weights - before != pytest.approx(np.mean(kept[1:], axis=0), abs=1e-5)
