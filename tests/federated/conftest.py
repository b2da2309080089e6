"""What Flower needs to know of a process before it makes messages."""

import os

import pytest

os.environ["FLWR_TELEMETRY_ENABLED"] = "0"


@pytest.fixture(autouse=True)
def flower_identity(monkeypatch):
    """Say which run and node this is, as Flower's runtimes do."""
    from flwr.supercore.task_identity import TaskIdentity

    for name in ("_run_id", "_node_id", "_task_id"):
        monkeypatch.setattr(TaskIdentity, name, 1)
