"""A server that is killed goes on where it stopped: no round is lost, none is asked for twice, no budget overspent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from tests.federated.flower import LocalGrid, model, moving_app

from noisette.accounting import Ledger
from noisette.federated import LocalPrivacy, Norm, PrivateFedAvg
from noisette.federated.server.history import History

pytestmark = pytest.mark.long

ROOT = Path(__file__).resolve().parents[2]
SERVER = """
import sys, time
from flwr.supercore.task_identity import TaskIdentity
for name in ("_run_id", "_node_id", "_task_id"):
    setattr(TaskIdentity, name, 1)
from noisette.federated import LocalPrivacy, PrivateFedAvg, Norm
from tests.federated.flower import LocalGrid, model, moving_app

folder, replies = sys.argv[1], 0

def slow(reply, node):
    global replies
    replies += 1
    if replies == 8:  # the second of the third round
        open(f"{folder}/stopped", "w").close()
        time.sleep(3600)
    return reply

app = moving_app([LocalPrivacy(12.0, ledger=f"{folder}/budget.db")])
strategy = PrivateFedAvg("privunit-g", target_epsilon=12.0, clip=Norm(1.0), state=f"{folder}/run.npz")
strategy.start(LocalGrid(app, [1, 2, 3], slow), model(), num_rounds=4)
"""


def serve(folder):
    """Start a server of three clients that comes to a stop in its third round."""
    environment = os.environ | {"PYTHONPATH": str(ROOT), "FLWR_TELEMETRY_ENABLED": "0"}
    command = [sys.executable, "-W", "ignore", "-c", SERVER, str(folder)]
    return subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def test_a_killed_server_goes_on(tmp_path):
    state = tmp_path / "run.npz"
    server = serve(tmp_path)
    try:
        deadline = time.monotonic() + 600
        while not (tmp_path / "stopped").exists():
            assert time.monotonic() < deadline
            assert server.poll() is None
            time.sleep(0.05)
    finally:
        server.send_signal(signal.SIGKILL)
        server.wait()
    before = History.load(state)
    assert before.done == 2
    app = moving_app([LocalPrivacy(12.0, ledger=tmp_path / "budget.db")])
    strategy = PrivateFedAvg("privunit-g", target_epsilon=12.0, clip=Norm(1.0), state=state)
    strategy.start(LocalGrid(app, [1, 2, 3]), model(), num_rounds=4)  # a second server, in this process
    after = History.load(state)
    assert [entry["round"] for entry in after.rounds] == [1, 2, 3, 4]
    assert all(entry["counted"] == 3 and entry["released"] for entry in after.rounds)
    assert after.rounds[: before.done] == before.rounds
    assert set(after.taken_part.values()) == {4}
    with Ledger(tmp_path / "budget.db") as ledger:
        spent = [float(one.epsilon) for one in ledger.accounts()]
    assert spent == pytest.approx([12.0] * 3, rel=1e-3)
    assert max(spent) <= 12.0
    assert np.isfinite(after.weights).all()
