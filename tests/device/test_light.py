"""A device needs httpx and none of the packages of a collector: shown by a client that cannot import them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from noisette.survey.campaigns import Campaign

pytest.importorskip("fastapi")
pytest.importorskip("sqlalchemy")
from tests.collector.helpers import COMMUTE, KEYS, PERSON, known_keys, running

from noisette.collector import Store, create_app

CODE = """
import json, sys
url, state, key, person, *blocked = json.loads(sys.argv[1])

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in blocked:
            raise ModuleNotFoundError(f"a device has no {name}", name=name)

sys.meta_path.insert(0, Blocked())
from noisette.device import Client
with Client(url, state=state, api_key=key, epsilon=2.0) as device:
    print(device.answer("commute", person), device.send())
print({name.partition(".")[0] for name in sys.modules} & set(blocked))
"""
SERVICE = ["sqlalchemy", "fastapi", "starlette", "pydantic", "uvicorn", "prometheus_client", "psycopg", "yaml"]
OTHERS = ["cryptography", "torch", "flwr", "ray", "pandas", "pyarrow", "sklearn", "plotly", "dp_accounting"]


def _device(url: str, state: Path, blocked: list[str]) -> subprocess.CompletedProcess[str]:
    told = json.dumps([url, str(state), KEYS["device"], PERSON, *blocked])
    return subprocess.run([sys.executable, "-c", CODE, told], capture_output=True, text=True, check=False)


@pytest.mark.long
def test_a_device_answers_without_what_a_collector_needs(tmp_path: Path) -> None:
    campaign = Campaign.from_dict(COMMUTE)
    store = Store(f"sqlite:///{tmp_path / 'reports.db'}")
    with running(create_app([campaign], store, known_keys())) as url:
        done = _device(url, tmp_path / "device", SERVICE + OTHERS)
        assert done.returncode == 0, done.stderr
        assert done.stdout.splitlines() == ["True Sent(sent=1, refused=0, waiting=0)", "set()"]
        assert store.periods(campaign) == {"once": 1}
        without_httpx = _device(url, tmp_path / "other", ["httpx"])
    assert "a device has no httpx" in without_httpx.stderr, "the twin: what is blocked is really missed"
