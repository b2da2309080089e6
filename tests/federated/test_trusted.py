"""An app that leaves the mod out, and a node that runs none but signed ones: superlink and nodes are processes, on TLS.

Flower Hub hands out the signatures of an app. A hub of our own stands in for it here, on this machine: two answers.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import socket
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from tests.federated.processes import PATIENCE, end, last_words, turn, words
from tests.shuffler.certificates import make_certificates, make_node_key

BIN = Path(sys.executable).parent
SECRET = [3.0, 1.0, 4.0, 1.0]  # what each node has on its disk

PROJECT = """
[project]
name = "{name}"
version = "1.0.0"
description = "Asks nodes for what they have"
license = "Apache-2.0"
dependencies = []
[tool.flwr.app]
publisher = "noisette"
[tool.flwr.app.components]
serverapp = "asking.server:app"
clientapp = "asking.client:app"
[tool.flwr.app.config]
nodes = 1
found = ""
"""
SERVER = '''
"""Ask every node for what it has, then train for a round; write down what they said."""
import json
import time
from pathlib import Path

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MessageType, RecordDict
from flwr.serverapp import ServerApp

from noisette.federated import Norm, PrivateFedAvg

app = ServerApp()


@app.main()
def main(grid, context):
    config = context.run_config
    while len(nodes := list(grid.get_node_ids())) < config["nodes"]:
        time.sleep(0.2)
    empty = RecordDict({"config": ConfigRecord({})})
    asked = [Message(empty, dst_node_id=node, message_type=MessageType.TRAIN) for node in nodes]
    found = []
    for reply in grid.send_and_receive(asked, timeout=1000):
        if reply.has_error():
            found.append(reply.error.reason)
        else:
            found.append(reply.content["arrays"]["raw"].numpy().tolist())
    rounds = []
    if "private" in config["found"]:
        strategy = PrivateFedAvg(
            "privunit-g", target_epsilon=8.0, target_delta=1e-6, clip=Norm(1.0), minimum=1, min_available_nodes=1,
        )
        strategy.start(grid, ArrayRecord({"raw": Array(np.zeros(4))}), 1, timeout=1000)
        rounds = strategy.run.rounds
    part = Path(config["found"] + ".part")
    part.write_text(json.dumps({"nodes": len(nodes), "replies": found, "rounds": rounds}), encoding="utf-8")
    part.rename(config["found"])
'''
CLIENT = '''
"""Return what the node has on its disk."""
import os
from pathlib import Path

import numpy as np
from flwr.app import Array, ArrayRecord, Message, RecordDict
from flwr.clientapp import ClientApp

from noisette.federated import LocalPrivacy

FOLDER = Path(os.environ["NODE_FOLDER"])
app = ClientApp({mods})


@app.train()
def train(message, context):
    raw = ArrayRecord({{"raw": Array(np.load(FOLDER / "secret.npy"))}})
    return Message(RecordDict({{"arrays": raw}}), reply_to=message)
'''
MODS = {"leaky": "", "private": 'mods=[LocalPrivacy(8.0, 1e-6, ledger=FOLDER / "budget.db")]'}


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as bound:
        return int(bound.getsockname()[1])


class Hub:
    """What a superlink asks Flower Hub for: where an app is, and who signed it."""

    def __init__(self) -> None:
        self.apps: dict[str, tuple[bytes, list[dict[str, Any]]]] = {}
        hub = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                name = asked["app_id"].rpartition("/")[2]
                answer = {"fab_url": f"{hub.url}/{name}", "verifications": hub.apps[name][1]}
                self._send(json.dumps(answer).encode())

            def do_GET(self) -> None:
                self._send(hub.apps[self.path.rpartition("/")[2]][0])

            def _send(self, body: bytes) -> None:
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                """Say nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def publish(self, name: str, app: Path, key: Ed25519PrivateKey, key_id: str) -> None:
        """Offer an app that somebody signed, as `flwr app review` signs."""
        with warnings.catch_warnings(action="ignore", category=DeprecationWarning):  # of its own
            from flwr.cli.build import build_fab_from_disk

            fab, now = build_fab_from_disk(app), int(time.time())
        signature = key.sign(now.to_bytes(8, "big") + hashlib.sha256(fab).digest())
        text = base64.urlsafe_b64encode(signature).rstrip(b"=").decode()
        self.apps[name] = fab, [{"public_key_id": key_id, "signature": text, "signed_at": now}]


class Federation:
    """A superlink with TLS and node authentication, a hub, and nodes."""

    def __init__(self, root: Path) -> None:
        self.root, self.hub = root, Hub()
        self.processes: dict[str, Any] = {}
        self.reviewer, self.stranger = Ed25519PrivateKey.generate(), Ed25519PrivateKey.generate()
        self.port = _free_port()
        self.environment = os.environ | {
            "FLWR_HOME": str(root / "flwr"),
            "FLWR_SUPERGRID_API_URL": self.hub.url,
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
            "OMP_NUM_THREADS": "1",
            "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
        }
        make_certificates(root)
        (root / "flwr").mkdir()
        where = f'address = "127.0.0.1:{self.port}"\nroot-certificates = "{root / "ca.pem"}"\n'
        (root / "flwr" / "config.toml").write_text(f'[superlink]\ndefault = "here"\n[superlink.here]\n{where}')
        for name, mods in MODS.items():
            (root / name / "asking").mkdir(parents=True)
            (root / name / "pyproject.toml").write_text(PROJECT.format(name=name))
            (root / name / "asking" / "__init__.py").write_text("")
            (root / name / "asking" / "server.py").write_text(SERVER)
            (root / name / "asking" / "client.py").write_text(CLIENT.format(mods=mods))
        public = self.reviewer.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()
        (root / "entities.yaml").write_text(json.dumps({"fpk_reviewer": f"{public} reviewer"}))
        (root / "nobody.yaml").write_text("{}\n")

    def start(self, name: str, *command: Any, **environment: Any) -> None:
        """Start a process, its output in a file."""
        own = self.environment | {key: str(value) for key, value in environment.items()}
        with (self.root / f"{name}.log").open("a", encoding="utf-8") as log:
            self.processes[name] = subprocess.Popen(
                words(*command), cwd=self.root, env=own, stdout=log, stderr=subprocess.STDOUT
            )

    def flwr(self, *words: Any) -> None:
        """Run Flower's command line against the superlink."""
        with warnings.catch_warnings(action="ignore", category=DeprecationWarning):  # of its own
            from flwr.cli.app import app
            from typer.testing import CliRunner

            done = CliRunner().invoke(app, [*map(str, words)], env=self.environment)
        assert done.exit_code == 0, done.output + self.logs()

    def node(self, name: str, *options: Any, registered: bool = True) -> None:
        """Start a node with data of its own."""
        own = self.root / name
        own.mkdir()
        np.save(own / "secret.npy", SECRET)
        make_node_key(own)
        if registered:
            self.flwr("supernode", "register", own / "node.pub", "here")
        link: tuple[Any, ...] = ("--superlink", f"127.0.0.1:{self.port}", "--root-certificates", "ca.pem")
        link += ("--host", "127.0.0.1", "--port", _free_port())
        tls = ("--ssl-certfile", "cert.pem", "--ssl-keyfile", "key.pem", "--ssl-ca-certfile", "ca.pem")
        key = ("--auth-supernode-private-key", own / "node")
        self.start(name, "flower-supernode", *link, *tls, *key, *options, NODE_FOLDER=own)

    def wait(self, what: str, done: Any) -> None:
        """Wait for a condition."""
        deadline = time.monotonic() + PATIENCE
        while not done():
            here = [self.processes[name] for name in ("superlink", "careful") if name in self.processes]
            assert all(process.poll() is None for process in here), f"{what}\n{self.logs()}"
            assert time.monotonic() < deadline, f"{what}\n{self.logs()}"
            time.sleep(0.1)

    def listens(self) -> bool:
        """Tell whether the superlink is there."""
        try:
            socket.create_connection(("127.0.0.1", self.port)).close()
        except OSError:
            return False
        return True

    def run(self, app: Any, name: str, nodes: int) -> dict[str, Any]:
        """Run an app and return what its server wrote."""
        path = self.root / f"{name}.json"
        self.flwr("run", app, "here", "--run-config", f'found="{path}" nodes={nodes}')
        self.wait(name, path.exists)
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return found

    def logs(self) -> str:
        """Return the last words of everyone."""
        return last_words(self.root)

    def down(self) -> None:
        """End everything, the superlink last."""
        end(self.processes)
        self.hub.server.shutdown()
        self.hub.server.server_close()


@pytest.fixture
def federation(tmp_path: Path) -> Iterator[Federation]:
    with turn():
        made = Federation(tmp_path)
        yield made
        made.down()


@pytest.mark.long
def test_a_node_with_trusted_entities_runs_signed_apps_alone(federation: Federation) -> None:
    root, hub = federation.root, federation.hub
    tls = ("--ssl-certfile", "cert.pem", "--ssl-keyfile", "key.pem", "--ssl-ca-certfile", "ca.pem")
    address = ("--host", "127.0.0.1", "--port", federation.port)
    federation.start("superlink", "flower-superlink", *address, *tls, "--enable-supernode-auth")
    federation.wait("superlink", federation.listens)
    federation.node("strange", registered=False)
    federation.node("open", "--trusted-entities", "nobody.yaml")
    federation.node("careful", "--trusted-entities", "entities.yaml")
    found = federation.run(root / "leaky", "leaky", 2)
    assert found["nodes"] == 2  # the node that nobody registered is not in
    # a file that names nobody forbids nothing; one that names the reviewer does
    assert sorted(found["replies"], key=str) == ["The FAB could not be verified.", SECRET]
    for name in ("open", "strange"):
        federation.processes[name].terminate()
        federation.processes[name].wait(timeout=PATIENCE)
    hub.publish("leaky", root / "leaky", federation.stranger, "fpk_reviewer")
    hub.publish("private", root / "private", federation.reviewer, "fpk_reviewer")
    found = federation.run("@noisette/leaky", "forged", 1)
    assert "The FAB could not be verified." in found["replies"]
    assert SECRET not in found["replies"]
    found = federation.run("@noisette/private", "private", 1)
    refused = "noisette: the request holds no model and terms"
    assert any(str(reply).startswith(refused) for reply in found["replies"])
    [entry] = found["rounds"]
    assert (entry["counted"], entry["released"]) == (1, True)
    assert (root / "careful" / "budget.db").exists()
