"""Everything as in production, on one machine: superlink, three supernodes, shuffler and server app, each a process."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from tests.shuffler.certificates import make_certificates, make_node_key

from noisette.datasets import folder as data_folder
from noisette.datasets import images
from noisette.shuffler import ServerKey
from noisette.shuffler.clients import enrol

NODES, BLOCKS = 3, 10
BIN = Path(sys.executable).parent
APP = Path(__file__).parent / "quickstart"
PATIENCE = 300  # seconds, for a machine that is busy with other things


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as bound:
        return int(bound.getsockname()[1])


@dataclass
class Deployment:
    """The processes of one federation, with TLS and node authentication or without."""

    root: Path
    secure: bool
    processes: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.superlink, self.receiver, self.shuffler = _free_port(), _free_port(), _free_port()
        self.server, self.key = self.root / "server", ServerKey.generate()
        self.scheme, self.rounds = ("https", 1) if self.secure else ("http", 2)
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
        how = f'root-certificates = "{self.root / "ca.pem"}"' if self.secure else "insecure = true"
        there = f'[superlink]\ndefault = "here"\n[superlink.here]\naddress = "127.0.0.1:{self.superlink}"\n{how}\n'
        (self.root / "flwr" / "config.toml").write_text(there, encoding="utf-8")

    def start(self, name: str, *command: Any, **environment: Path) -> None:
        """Start a process, its output in a file."""
        own = self.environment | {key: str(value) for key, value in environment.items()}
        with (self.root / f"{name}.log").open("w", encoding="utf-8") as log:
            words = [str(BIN / command[0]), *map(str, command[1:])]
            made = subprocess.Popen(words, cwd=self.root, env=own, stdout=log, stderr=subprocess.STDOUT)
        self.processes.append(made)

    def flwr(self, *words: Any) -> dict[str, Any]:
        """Run Flower's command line against the superlink and return its answer."""
        command = [str(BIN / "flwr"), *map(str, words), "--format", "json"]
        done = subprocess.run(command, cwd=self.root, env=self.environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
        assert found["success"], found
        return found

    def up(self) -> None:
        """Start everything but the run."""
        ours = ("--host", "127.0.0.1", "--port")
        tls = ("--ssl-certfile", "cert.pem", "--ssl-keyfile", "key.pem", "--ssl-ca-certfile", "ca.pem")
        link = (*tls, "--enable-supernode-auth") if self.secure else ("--insecure",)
        self.start(
            "superlink",
            *("flower-superlink", *ours, self.superlink, *link),
            SERVER_FOLDER=self.server,
        )
        mixing = ("--certificate", "cert.pem", "--key", "key.pem", "--authority", "ca.pem") if self.secure else ()
        self.start(
            "shuffler",
            *("noisette", "federate", "shuffler", "--clients", "clients.json", "--credentials", "shuffler.json"),
            *("--server", f"{self.scheme}://127.0.0.1:{self.receiver}", "--minimum", NODES),
            *("--port", self.shuffler, *mixing),
        )
        self.wait_for(self.superlink, self.shuffler)
        for number in range(NODES):
            own = self.root / f"node{number}"
            how: tuple[Any, ...] = ("--insecure",)
            if self.secure:
                self.flwr("supernode", "register", own / "node.pub", "here")
                how = ("--root-certificates", "ca.pem", "--auth-supernode-private-key", own / "node", *tls)
            self.start(
                f"node{number}",
                *("flower-supernode", "--superlink", f"127.0.0.1:{self.superlink}", *ours, _free_port(), *how),
                NODE_FOLDER=own,
            )

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

    def run(self) -> dict[str, Any]:
        """Submit the app, wait for its end, and return what the server found."""
        config = {
            "rounds": self.rounds,
            "receiver-port": self.receiver,
            "shuffler": f"{self.scheme}://127.0.0.1:{self.shuffler}",
            "server-key": self.key.public.text,
            "authority": str(self.root / "ca.pem") if self.secure else "",
        }
        words = " ".join(f"{key}={json.dumps(value)}" for key, value in config.items())
        self.flwr("run", APP, "here", "--run-config", words)
        deadline = time.monotonic() + PATIENCE
        while not (self.server / "found.json").exists():
            assert time.monotonic() < deadline, self.logs()
            assert all(process.poll() is None for process in self.processes), self.logs()
            time.sleep(0.1)
        found: dict[str, Any] = json.loads((self.server / "found.json").read_text(encoding="utf-8"))
        return found

    def logs(self) -> str:
        """Return the last words of everyone."""
        ends = [(path.name, path.read_text(encoding="utf-8")[-3000:]) for path in sorted(self.root.glob("*.log"))]
        return "\n".join(f"== {name}\n{text}" for name, text in ends)

    def down(self) -> None:
        """End everything, the superlink last."""
        for process in reversed(self.processes):
            process.terminate()
        for process in self.processes:
            try:
                process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@pytest.fixture(params=[False, True], ids=["insecure", "tls-and-node-authentication"])
def deployment(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Deployment]:
    if data_folder() is None:
        pytest.skip("needs MNIST: set NOISETTE_DATA")
    made = Deployment(tmp_path, request.param)
    made.prepare()
    yield made
    made.down()


@pytest.mark.slow
def test_a_federation_of_processes(deployment: Deployment) -> None:
    """Digits are learnt; each value went through the shuffler, and none came to the server from a client."""
    deployment.up()
    found = deployment.run()
    before, *after = found["accuracy"]
    assert before < 0.2
    assert after[-1] > 0.6
    assert len(found["rounds"]) == deployment.rounds
    for entry in found["rounds"]:
        assert (entry["asked"], entry["counted"], entry["failed"], entry["missing"]) == (NODES, NODES, 0, 0)
        assert entry["released"]
        assert not entry["rejected"]
        assert entry["rejected_mixed"] == 0
        assert entry["lines"]["shuffled"]["model"] == "shuffled"
    verify: Any = str(deployment.root / "ca.pem") if deployment.secure else True
    told = httpx.get(f"{deployment.scheme}://127.0.0.1:{deployment.shuffler}/metrics", verify=_context(verify)).text
    packets = float(NODES * BLOCKS * deployment.rounds)
    assert f"noisette_packets_accepted_total {packets}" in told
    assert f"noisette_packets_forwarded_total {packets}" in told
    for number in range(NODES):  # every node kept its own books
        assert (deployment.root / f"node{number}" / "budget.db").exists()


def _context(verify: Any) -> Any:
    import ssl

    return ssl.create_default_context(cafile=verify) if isinstance(verify, str) else verify
