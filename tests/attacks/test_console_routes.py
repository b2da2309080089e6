"""Attacks on the routes of the console and of pages, on a process of its own while an honest device goes on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.attacks.servers import Honest, collector, memory, started
from tests.collector.helpers import COMMUTE, KEYS, OPERATOR, SECRET, auth

pytestmark = pytest.mark.long

MIB = 1 << 20


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, int]]:
    folder = tmp_path_factory.mktemp("console")
    process = collector(folder, COMMUTE)
    keys = {role: [key] for role, key in KEYS.items()} | {"enrolment": [SECRET], "operator": [OPERATOR]}
    (folder / "keys.yaml").write_text(json.dumps(keys), encoding="utf-8")
    with started(process) as found:
        yield found


def bomb(levels: int) -> str:
    """Return YAML that says 9 * 8 ** levels things in a few hundred bytes."""
    names = [chr(ord("a") + place) for place in range(levels + 1)]
    lists = [f"&{names[0]} [{','.join('x' * 9)}]"]
    lists += [f"&{own} [{','.join([f'*{before}'] * 8)}]" for before, own in pairwise(names)]
    return f"[{', '.join(lists)}]"


@pytest.mark.parametrize("field", ["title", "late", "attributes"])
def test_aliases_of_yaml_are_refused(served: tuple[str, int], field: str) -> None:
    """Before: 700 bytes with an analyst's key stopped everything for 26 s, and took 350 MiB; two levels more end it."""
    url, pid = served
    rest = "".join(f"{name}: {json.dumps(own)}\n" for name, own in COMMUTE.items() if name != field)
    before = memory(pid)
    with Honest(url) as device:
        for path, key in (("/plan", auth("analyst")), ("/campaigns", {"Authorization": f"Bearer {OPERATOR}"})):
            body = f"{field}: {bomb(9)}\n{rest}"
            answer = httpx.post(url + path, content=body, headers=key, timeout=120)
            assert answer.status_code == 422
            assert "without aliases" in answer.json()["detail"]
    assert set(device.answers) <= {201}
    assert memory(pid, "VmHWM") - before < 100 * MIB


def test_nested_and_endless_surveys_are_refused_quickly(served: tuple[str, int]) -> None:
    url, _ = served
    for body in ("[" * 262_000, "{a: " * 60_000, "[" + "1," * 130_000 + "1]", "- " * 100_000):
        answer = httpx.post(f"{url}/plan", content=body, headers=auth("analyst"), timeout=120)
        assert answer.status_code == 422


def test_json_is_read_as_json(served: tuple[str, int]) -> None:
    """YAML takes 1e-3 for a text."""
    url, _ = served
    body = json.dumps(COMMUTE).replace('"epsilon": 2.0', '"epsilon": 2e-1')
    answer = httpx.post(f"{url}/plan", content=body, headers=auth("analyst"), timeout=120)
    assert (answer.status_code, answer.json()["guarantee"]["epsilon"]) == (200, 0.2)


def test_large_plans_leave_the_threads_of_others_alone(served: tuple[str, int]) -> None:
    """Before: forty of them, each of minutes, and no token was signed and no estimate shown until they ended."""
    url, _ = served
    many = [{"name": f"q{place}", "range": [0, 1 + place / 1000]} for place in range(2000)]
    body = json.dumps({"id": "large", "epsilon": 1.0, "users": 100, "attributes": many})

    def ask(_: int) -> Any:
        return httpx.post(f"{url}/plan", content=body, headers=auth("analyst"), timeout=300)

    with ThreadPoolExecutor(45) as pool, Honest(url) as device:
        asked = [pool.submit(ask, place) for place in range(45)]
        found = httpx.get(f"{url}/campaigns/commute/estimates", headers=auth("analyst"), timeout=300)
        assert found.status_code == 200
        assert not all(one.done() for one in asked)  # it did not wait for them
        statuses = {one.result().status_code for one in asked}
    assert statuses <= {200, 503}
    assert 503 in statuses
    assert set(device.answers) <= {201}


def test_a_host_of_any_length_is_no_error_of_the_server(served: tuple[str, int]) -> None:
    """Before: 500, to anybody."""
    url, _ = served
    for host in ("a" * 6000, "é", "a][", "x:y:z", "a b", "\x7f"):
        answer = httpx.get(f"{url}/c/commute/qr.svg", headers={b"Host": host.encode("utf-8")}, timeout=300)
        assert answer.status_code < 500, (host[:20], answer.status_code)


def test_nobody_says_where_he_comes_from(tmp_path: Path) -> None:
    """Before: behind a proxy on the same host a client wrote its own X-Forwarded-For, and no limit held."""
    with started(collector(tmp_path, COMMUTE, options=("--rate", "5"))) as (url, _):
        with httpx.Client(base_url=url, timeout=300, headers=auth("device")) as client:
            statuses = {
                client.get("/campaigns/commute", headers={"X-Forwarded-For": f"10.0.0.{place}"}).status_code
                for place in range(60)
            }
        assert 429 in statuses
