"""What `deploy/` says is what there is: commands, options, units, and the proxy before both services."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[1]
DEPLOY = ROOT / "deploy"


def compose() -> dict[str, Any]:
    """Return the services of the compose file."""
    return dict(yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))["services"])


def commands() -> dict[str, list[str]]:
    """Return every command line of ours that a file of the folder runs."""
    found = {f"compose {name}": one["command"] for name, one in compose().items() if one["image"] == "noisette"}
    image = (DEPLOY / "Containerfile").read_text(encoding="utf-8")
    found["image"] = json.loads(re.search(r"^CMD (.*)$", image, re.M)[1])  # type: ignore[index]
    for unit in DEPLOY.glob("*.service"):
        text = unit.read_text(encoding="utf-8").replace("\\\n", " ")
        found[unit.name] = re.search(r"^ExecStart=\S+ (.*)$", text, re.M)[1].split()  # type: ignore[index]
    return found


@pytest.mark.needs("fastapi")
@pytest.mark.parametrize("name", sorted(commands()))
def test_commands_and_options_exist(name: str, tmp_path: Path) -> None:
    """Each is parsed by the command line itself, with files that it can see in place of those of the host."""
    from noisette.cli import verbs

    words = [
        re.sub(r"(^|=)(/etc|/var|\$\{CREDENTIALS_DIRECTORY\})/\S+$", rf"\1{tmp_path}/file", one)
        for one in commands()[name]
    ]
    (tmp_path / "file").touch()
    command, rest = verbs, words
    while hasattr(command, "resolve_command"):
        context = command.make_context("noisette", list(rest), resilient_parsing=True)
        _, command, rest = command.resolve_command(context, rest)
    made = command.make_context(command.name, list(rest))
    assert not made.args


def test_services_are_bounded() -> None:
    for name, one in compose().items():
        assert one["restart"] == "always", name
        assert "mem_limit" in one, name
        if name != "database":
            assert one["cap_drop"] == ["ALL"], name
            assert one["read_only"], name
    assert "ports" not in compose()["collector"]  # only the proxy can be reached from outside
    assert "ports" not in compose()["shuffler"]
    assert compose()["collector"]["networks"] == ["storage", "inside"]
    assert "storage" not in compose()["shuffler"]["networks"]  # the shuffler does not see the reports


@pytest.mark.needs("fastapi")
def test_alerts_ask_for_counters_that_exist() -> None:
    from noisette.collector.telemetry import CollectorMetrics
    from noisette.shuffler._http import PacketMetrics

    rules = yaml.safe_load((DEPLOY / "alerts.yaml").read_text(encoding="utf-8"))["groups"][0]["rules"]
    asked = {name for rule in rules for name in re.findall(r"noisette_[a-z_]+", rule["expr"])}
    known = CollectorMetrics().text().decode() + PacketMetrics().text().decode()
    own = (ROOT / "src/noisette/shuffler/service.py").read_text(encoding="utf-8")
    known += " ".join(
        f"noisette_{name} noisette_{name}_total" for name in re.findall(r'(?:Counter|Gauge), "(\w+)"', own)
    )
    assert len(asked) > 7
    assert not {name for name in asked if name.removesuffix("_bucket").removesuffix("_total") not in known}


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed here")
@pytest.mark.parametrize("unit", sorted(one.name for one in DEPLOY.glob("*.service")))
def test_units_are_sound(unit: str, tmp_path: Path) -> None:
    text = (DEPLOY / unit).read_text(encoding="utf-8").replace("/opt/noisette/bin/noisette", sys.executable)
    (tmp_path / unit).write_text(text, encoding="utf-8")
    done = subprocess.run(["systemd-analyze", "verify", tmp_path / unit], capture_output=True, text=True, check=False)
    own = [line for line in done.stderr.splitlines() if unit in line]
    assert (done.returncode, own) == (0, []), done.stderr
    spoilt = text.replace("MemoryMax=", "MemoryMaximum=")  # the twin: a misspelt setting is seen
    (tmp_path / unit).write_text(spoilt, encoding="utf-8")
    done = subprocess.run(["systemd-analyze", "verify", tmp_path / unit], capture_output=True, text=True, check=False)
    assert "MemoryMaximum" in done.stderr


@contextmanager
def proxied(folder: Path, collector: str, shuffler: str) -> Iterator[int]:
    """Run nginx with our configuration before two services of this machine, and give its port."""
    from tests.shuffler.certificates import make_certificates

    make_certificates(folder)
    (folder / "tls").mkdir()
    for name in ("cert.pem", "key.pem"):
        shutil.copy(folder / name, folder / "tls" / name)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    text = (DEPLOY / "nginx.conf").read_text(encoding="utf-8")
    for old, new in (
        ("server collector:8000;", f"server {collector.removeprefix('http://')};"),
        ("server shuffler:8100;", f"server {shuffler.removeprefix('http://')};"),
        ("listen 443 ssl", f"listen 127.0.0.1:{port} ssl"),
        ("pid /tmp/nginx.pid;", f"pid {folder}/nginx.pid; daemon off;"),
    ):
        assert old in text
        text = text.replace(old, new)
    for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"):
        text = text.replace("http {", f"http {{ {kind}_temp_path {folder}/{kind};", 1)
    (folder / "nginx.conf").write_text(text, encoding="utf-8")
    command = ["nginx", "-p", str(folder), "-c", str(folder / "nginx.conf")]
    subprocess.run([*command, "-t"], check=True, capture_output=True)
    running = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        yield port
    finally:
        running.terminate()
        running.wait(60)


@pytest.mark.long
@pytest.mark.needs("fastapi")
@pytest.mark.skipif(shutil.which("nginx") is None, reason="nginx is not installed here")
def test_the_proxy_leads_to_both_and_bounds_what_comes(tmp_path: Path) -> None:
    """Real services behind the real proxy: what devices need is there over TLS, what operators do is not."""
    import ssl
    import time

    import httpx
    from tests.attacks.test_shuffler_service import services

    with (
        contextmanager(services.__wrapped__)(tmp_path) as both,
        proxied(tmp_path, both.collector, both.shuffler) as port,
    ):
        trusted = ssl.create_default_context(cafile=tmp_path / "ca.pem")
        with httpx.Client(base_url=f"https://127.0.0.1:{port}", verify=trusted, timeout=60) as client:
            for _ in range(200):  # until it listens
                try:
                    client.get("/health")
                    break
                except httpx.ConnectError:
                    time.sleep(0.05)
            to_collector = {"Host": "collect.example"}
            assert client.get("/health").json() == {"status": "ok"}
            assert client.get("/campaigns/commute", headers=to_collector).status_code == 401
            for path in ("/batches", "/clients", "/metrics", "/ready"):
                assert client.get(path).status_code == 404
            assert client.post("/posts", content=b"x").status_code == 401
            assert client.post("/posts", content=bytes(5 << 20)).status_code == 413
            assert client.post("/shuffled", content=b"x", headers=to_collector).json()["reason"] == "forged"
