"""The example: Flower's quickstart shape, two lines for privacy, and it learns."""

from __future__ import annotations

import importlib
import sys
import tomllib
from pathlib import Path

import pytest
from flwr.app import Context, RecordDict
from tests.federated.flower import LocalGrid

HERE = Path(__file__).resolve().parents[2] / "examples" / "flower_quickstart"


def _loaded():
    return [name for name in sys.modules if name.split(".")[0] == "quickstart"]


@pytest.fixture
def quickstart(monkeypatch, tmp_path):
    """Import the apps of the example, in a folder where their ledger may lie.

    Another app for tests has the same name: what a test before this one has loaded of it is put aside.
    """
    for name in _loaded():
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(HERE)
    monkeypatch.chdir(tmp_path)
    yield lambda name: importlib.import_module(f"quickstart.{name}")
    for name in _loaded():
        del sys.modules[name]


def test_privacy_is_one_line_in_each_app_beside_its_import():
    for name, plain in (("client_app", "app = ClientApp("), ("server_app", "strategy = PrivateFedAvg(")):
        lines = (HERE / f"quickstart/{name}.py").read_text().splitlines()
        marked = [line for line in lines if line.endswith("# noisette")]
        assert len(marked) == 2
        assert marked[0].startswith("from noisette.federated import")
        assert marked[1].strip().startswith(plain)
        assert not any("noisette" in line for line in lines if line not in marked)


def test_flower_installs_nothing_and_the_budget_is_defensible():
    """Flower would look for a dependency on an index, where a checkout is not."""
    project = tomllib.loads((HERE / "pyproject.toml").read_text())
    assert project["project"]["dependencies"] == []
    assert project["tool"]["flwr"]["app"]["config"]["target-epsilon"] <= 8


@pytest.mark.long
@pytest.mark.needs_data
def test_the_example_learns_within_its_budget(quickstart):
    project = tomllib.loads((HERE / "pyproject.toml").read_text())["tool"]["flwr"]
    run, nodes = project["app"]["config"] | {"clients-per-round": 50}, 100
    client, server = quickstart("client_app"), quickstart("server_app")
    grid = LocalGrid(client.app, range(nodes))
    for node, context in grid.contexts.items():
        context.node_config |= {"num-partitions": nodes, "partition-id": node}
        context.run_config |= run
    seen = []
    inner, server.test = server.test, lambda *args: seen.append(inner(*args)) or seen[-1]
    server.app(grid, Context(run_id=1, node_id=0, node_config={}, state=RecordDict(), run_config=run))
    assert len(seen) == 1 + run["num-server-rounds"]
    assert seen[-1] > 0.2  # 0.41 to 0.46 with all 200 clients, 0.1 without learning
    assert Path("budget.db").exists()
