"""What `deploy/` says is what there is: commands, options, units, and the proxy before both services."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
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
    found = {
        f"compose {name}": one["command"] for name, one in compose().items() if one["image"].startswith("noisette:")
    }
    image = (DEPLOY / "Containerfile").read_text(encoding="utf-8")
    found["image"] = json.loads(re.search(r"^CMD (.*)$", image, re.M)[1])  # type: ignore[index]
    for unit in DEPLOY.glob("*.service"):
        text = unit.read_text(encoding="utf-8").replace("\\\n", " ")
        found[unit.name] = re.search(r"^ExecStart=\S+ (.*)$", text, re.M)[1].split()  # type: ignore[index]
    return found


def test_the_image_is_named_with_the_version() -> None:
    """In the compose file, in the label, and in the commands beside it."""
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    ours = [one["image"] for name, one in compose().items() if name in ("collector", "shuffler")]
    assert ours == [f"noisette:{version}"] * 2
    container = (DEPLOY / "Containerfile").read_text(encoding="utf-8")
    assert f'image.version="{version}"' in container
    assert re.findall(r"noisette:([\d.]+)", container) == [version] * 2


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
def proxied(folder: Path, collector: str, shuffler: str, names: Mapping[str, str] | None = None) -> Iterator[int]:
    """Run nginx with our configuration before two services of this machine, and give its port.

    ``names`` are those of this machine in place of names of the configuration.
    """
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
        *(names or {}).items(),
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


class Whole:
    """All that compose.yaml starts, by its own commands, as processes of this machine.

    Names of hosts become addresses of loopback, the folders of containers folders of the test, ports free ones, and the
    minimum of a batch the number of devices here. All else is what the file says.
    """

    def __init__(self, folder: Path, clients: int) -> None:
        self.folder, self.clients = folder, clients
        self.password = "a-password-of-the-database"
        self.ports = dict(zip(("database", "collector", "shuffler"), _free_ports(3), strict=True))
        self._running: list[subprocess.Popen[bytes]] = []

    def prepare(self) -> None:
        """Make the files that the first lines of compose.yaml ask for, with the commands of the documentation."""
        own, other = (self.folder / "etc" / name for name in ("collector", "shuffler"))
        for one in (own, other, self.folder / "var"):
            one.mkdir(parents=True)
        asked = {"id": "trial", "epsilon": 2.0, "users": 100, "attributes": [{"name": "minutes", "range": [0, 120]}]}
        (own / "campaign.yaml").write_text(json.dumps(asked), encoding="utf-8")
        keys = {role: [f"{role}-key-of-a-whole-trial"] for role in ("device", "analyst", "auditor", "operator")}
        (own / "keys.yaml").write_text(json.dumps(keys), encoding="utf-8")
        (other / "operators.json").write_text('{"olga": "key-of-olga-the-operator"}', encoding="utf-8")
        for file in (own / "keys.yaml", other / "operators.json"):
            file.chmod(0o600)
        (own / "pgpass").write_text(
            f"127.0.0.1:{self.ports['database']}:noisette:noisette:{self.password}\n", encoding="utf-8"
        )
        (own / "pgpass").chmod(0o600)
        self.run("federate", "key", str(own / "server.pem"))
        self.run("federate", "enrol", str(own / "shufflers.json"), "shuffler", "--to", str(other))
        names = [f"c{number}" for number in range(self.clients)]
        self.run("federate", "enrol", str(other / "clients.json"), *names, "--to", str(self.folder / "etc"))

    def run(self, *words: str) -> str:
        """Run one command of ours to its end."""
        done = subprocess.run(self.command(words), capture_output=True, text=True, env=self.env, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    @property
    def env(self) -> dict[str, str]:
        """The environment: whom TLS trusts, and where the database's password is."""
        trusted = self.folder / "ca.pem"
        more = {"SSL_CERT_FILE": str(trusted)} if trusted.exists() else {}
        return dict(os.environ) | more | {"PGPASSFILE": str(self.folder / "etc/collector/pgpass")}

    def command(self, words: Sequence[str]) -> list[str]:
        """Return a command line of ours."""
        return [sys.executable, "-c", "from noisette.cli import main; main()", *words]

    def start(self, name: str) -> None:
        """Start one of the services, and wait until it is ready."""
        words = [self.here(name, one) for one in compose()[name]["command"]]
        if name == "database":
            self._start_database(words)
            return
        self._spawn(self.command([*words, f"--port={self.ports[name]}"]))
        until_answered(f"http://127.0.0.1:{self.ports[name]}/ready", self._running[-1])

    def here(self, name: str, word: str) -> str:
        """Return a word of a command with what is here in place of what is in a container."""
        changed = re.sub(r"--minimum=\d+", f"--minimum={self.clients}", word)
        changed = changed.replace("/etc/noisette", str(self.folder / "etc" / name)).replace("0.0.0.0", "127.0.0.1")
        changed = changed.replace("/var/lib/noisette", str(self.folder / "var"))
        changed = changed.replace("@database/", f"@127.0.0.1:{self.ports['database']}/")
        return changed.replace("http://collector:8000", f"http://127.0.0.1:{self.ports['collector']}")

    def _start_database(self, words: list[str]) -> None:
        """Do what the entry point of its image does, as its user: make a cluster with a password, and serve."""
        home = Path(tempfile.mkdtemp(prefix="noisette-compose-"))  # its user has no way into the test's folder
        self.home = home
        programs = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))[-1].parent
        (home / "password").write_text(self.password, encoding="utf-8")
        shutil.chown(home, "postgres")
        shutil.chown(home / "password", "postgres")
        become = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"]
        made = [programs / "initdb", "-D", home / "data", "-U", "noisette", "-A", "scram-sha-256"]
        made += ["--pwfile", home / "password", "--no-sync"]
        subprocess.run([*become, *map(str, made)], check=True, cwd=home, capture_output=True)
        port = str(self.ports["database"])
        place = ["-D", str(home / "data"), "-k", str(home), "-p", port, "-c", "listen_addresses=127.0.0.1"]
        self._spawn([*become, str(programs / words[0]), *words[1:], *place], cwd=home)
        asked = [str(programs / "createdb"), "-h", "127.0.0.1", "-p", port, "-U", "noisette", "-w"]
        deadline = time.monotonic() + 600
        env = self.env | {"PGPASSWORD": self.password}
        while subprocess.run([*asked, "noisette"], env=env, check=False, capture_output=True).returncode:
            assert time.monotonic() < deadline
            time.sleep(0.2)

    def _spawn(self, command: list[str], cwd: Path | None = None) -> None:
        with (self.folder / f"log-{len(self._running)}.txt").open("wb") as log:
            self._running.append(
                subprocess.Popen(command, env=self.env, cwd=cwd or self.folder, stdout=log, stderr=log)
            )

    def stop(self) -> None:
        """End everything, the last first, as SIGTERM does."""
        for one in reversed(self._running):
            one.send_signal(signal.SIGTERM if one is not self._running[0] else signal.SIGINT)
            one.wait(60)
        shutil.rmtree(self.home, ignore_errors=True)


def _free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        bound = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [one.getsockname()[1] for one in bound]


def until_answered(url: str, process: subprocess.Popen[bytes] | None = None, **options: Any) -> None:
    """Wait until an address answers with 200, as long as its process runs."""
    import httpx

    deadline = time.monotonic() + 600
    while True:
        with suppress(httpx.TransportError):
            if httpx.get(url, timeout=60, **options).status_code == 200:
                return
        assert time.monotonic() < deadline, url
        assert process is None or process.poll() is None, process
        time.sleep(0.2)


def _lacking() -> str:
    """Say what is missing to start everything without containers."""
    missing = [name for name in ("nginx", "setpriv") if shutil.which(name) is None]
    missing += [] if list(Path("/usr/lib/postgresql").glob("*/bin/initdb")) and os.geteuid() == 0 else ["postgresql"]
    return f"needs {', '.join(missing)}, as root: deploy/programs.sh installs them" if missing else ""


@pytest.mark.long
@pytest.mark.needs("fastapi")
@pytest.mark.skipif(bool(_lacking()), reason=_lacking())
def test_everything_that_compose_starts_takes_an_honest_report(tmp_path: Path) -> None:
    """PostgreSQL, collector, shuffler and proxy by the commands of compose.yaml; devices answer through TLS."""
    import ssl

    import httpx

    from noisette.shuffler.clients import read_credentials

    devices = 3
    whole = Whole(tmp_path, devices)
    whole.prepare()
    with ExitStack() as stack:
        stack.callback(whole.stop)
        for name in ("database", "collector", "shuffler"):
            whole.start(name)
        names = {"collect.example": "localhost", "shuffle.example": "127.0.0.1"}
        urls = [f"http://127.0.0.1:{whole.ports[name]}" for name in ("collector", "shuffler")]
        port = stack.enter_context(proxied(tmp_path, *urls, names=names))
        trusted = ssl.create_default_context(cafile=tmp_path / "ca.pem")
        until_answered(f"https://127.0.0.1:{port}/health", verify=trusted)
        people = [f"c{number}" for number in range(devices)]
        (tmp_path / "people.csv").write_text("user,minutes\n" + "".join(f"{one},35\n" for one in people))
        secrets = dict(read_credentials(tmp_path / "etc" / f"{one}.json") for one in people)
        (tmp_path / "secrets.json").write_text(json.dumps(secrets), encoding="utf-8")
        (tmp_path / "key").write_text("device-key-of-a-whole-trial", encoding="utf-8")
        sent = ["report", str(tmp_path / "people.csv"), "--campaign", f"https://localhost:{port}/campaigns/trial"]
        sent += ["--user", "user", "--epsilon", "2", "--key-file", str(tmp_path / "key")]
        sent += ["--secrets", str(tmp_path / "secrets.json"), "--shuffler", f"https://127.0.0.1:{port}", "--json"]
        assert json.loads(whole.run(*sent))["sent"] == devices
        analyst = {"Authorization": "Bearer analyst-key-of-a-whole-trial"}
        estimates = f"https://localhost:{port}/campaigns/trial/estimates"
        deadline = time.monotonic() + 600
        while (found := httpx.get(estimates, headers=analyst, verify=trusted, timeout=60).json())["users"] < devices:
            assert time.monotonic() < deadline, found
            time.sleep(0.2)
        assert found["users"] == devices
        url = whole.here("collector", "postgresql://noisette@database/noisette")
        assert "trial" in whole.run("collector", "verify", "--database", url)
