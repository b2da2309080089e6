"""Sums on a Ray cluster: the bits of one process, whatever dies meanwhile; and what goes wrong is said."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from types import ModuleType

import numpy as np
import pytest
from click.testing import CliRunner
from tests.collector.helpers import COMMUTE, accept, entries
from tests.scale.cluster import ENVIRONMENT, Cluster, children, free_port, title

import noisette as nz
from noisette.aggregation import aggregate_files, split_files, write_reports
from noisette.cli import verbs
from noisette.collector import Store
from noisette.scale import aggregate_on_ray
from noisette.survey.campaigns import Campaign

RUN = Path(__file__).with_name("run.py")
HASHING = nz.LocalHashing(1.0, nz.Categorical(1000))  # a thousand hashes for each report: work without many bytes
USERS, FILES = 40_000, 16


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("reports")
    paths = [folder / f"{number:02}.parquet" for number in range(FILES)]
    for number, path in enumerate(paths):
        codes = np.random.default_rng(number).integers(0, 1000, USERS)
        write_reports(path, HASHING, [HASHING.privatize(codes, rng=number)])
    return paths


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster() as made:
        yield made


def _here(*arguments: object) -> str:
    """Return what the command line prints in this process."""
    done = CliRunner().invoke(verbs, list(map(str, arguments)))
    assert done.exit_code == 0, done.output
    return done.stdout


def _run(*arguments: object) -> subprocess.CompletedProcess[str]:
    """Run the command line in a process of its own."""
    command = [sys.executable, "-c", "from noisette.cli import main; main()", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT, check=False, timeout=600)


def _wait(cluster: Cluster, node: subprocess.Popen[bytes], run: subprocess.Popen[str]) -> int | None:
    """Wait until a worker of a node is in the middle of a partition, and return it; None if the run ended before."""
    while not (found := cluster.working(node)):
        if run.poll() is not None:
            return None
        time.sleep(0.02)
    return found[0]


@pytest.mark.long
def test_the_command_has_the_bits_of_one_process(cluster: Cluster, files: list[Path]) -> None:
    there = _run("estimate", *files[:4], "--json", "--ray", cluster.address)
    assert there.returncode == 0, there.stderr
    assert there.stdout == _here("estimate", *files[:4], "--json")


@pytest.mark.long
def test_the_command_reads_a_database_on_a_cluster(cluster: Cluster, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'reports.db'}"
    campaign, store = Campaign.from_dict(COMMUTE), Store(url)
    store.register(campaign)
    for seed in range(3):
        accept(store, campaign, *entries(campaign, 100, seed))
    store.close()
    command = ["estimate", url, "--campaign", "commute", "--json"]
    there = _run(*command, "--ray", cluster.address)
    assert there.returncode == 0, there.stderr
    assert there.stdout == _here(*command)
    assert json.loads(there.stdout)["users"] == 300


@pytest.mark.long
def test_a_damaged_partition_is_named(cluster: Cluster, files: list[Path], tmp_path: Path) -> None:
    bad = tmp_path / "bad.parquet"
    content = bytearray(files[0].read_bytes())
    content[len(content) // 2] ^= 0xFF
    bad.write_bytes(content)
    done = _run("estimate", files[1], bad, "--ray", cluster.address)
    assert done.returncode == 2
    assert "bad.parquet is damaged" in done.stderr
    assert "(Node " in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.long
def test_a_lost_worker_and_a_lost_node_change_no_bit(cluster: Cluster, files: list[Path]) -> None:
    """Real kills in the middle of partitions: of a worker on the head, and of the second node with all it runs.

    A run that was over before the second node had begun is made again: its workers are started by then.
    """
    command = [sys.executable, str(RUN), cluster.address, *map(str, files)]
    expected, lost = aggregate_files(files).to_json(), False
    for _ in range(5):
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT
        ) as run:
            if worker := _wait(cluster, cluster.head, run):
                os.kill(worker, signal.SIGKILL)
            if _wait(cluster, cluster.second, run):
                cluster.kill(cluster.second)
                lost = True
            output, errors = run.communicate(timeout=600)
        assert run.returncode == 0, errors
        *progress, sums = output.splitlines()
        assert progress == [str(USERS)] * FILES  # each once, though some were read twice
        assert sums == expected
        if lost:
            break
    assert lost


@pytest.mark.long
def test_a_cluster_of_ones_own(files: list[Path]) -> None:
    """It is started, gives the same bits, and nothing of it is left."""
    command = [sys.executable, str(RUN), "local", *map(str, files[:2])]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT) as run:
        assert run.stdout is not None
        first, own = run.stdout.readline(), children(run.pid)
        rest, errors = run.communicate(timeout=600)
    assert run.returncode == 0, errors
    assert (first + rest).splitlines() == [str(USERS)] * 2 + [aggregate_files(files[:2]).to_json()]
    assert own
    ended = time.monotonic()
    while left := [text for pid in own if (text := title(pid))]:
        assert time.monotonic() - ended < 300, left
        time.sleep(0.1)


def test_ray_is_not_there(files: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)  # type: ignore[arg-type]  # as if it were not installed
    with pytest.raises(ValueError, match=r"A cluster needs ray: pip install 'noisette\[scale\]'"):
        aggregate_on_ray(split_files(files[:1]), address="local")


@pytest.fixture
def ray_to_be() -> ModuleType:
    return pytest.importorskip("ray")


@pytest.mark.usefixtures("ray_to_be")
def test_nobody_answers(files: list[Path]) -> None:
    """It is found out before Ray is asked, which would try for minutes."""
    reports = split_files(files[:1])
    with pytest.raises(ConnectionError, match=r"no Ray cluster answers at 127\.0\.0\.1"):
        aggregate_on_ray(reports, address=f"127.0.0.1:{free_port()}")
    with pytest.raises(ConnectionError, match="no Ray cluster answers at"):
        aggregate_on_ray(reports, address="host.invalid:6379")
    with socket.create_server(("127.0.0.1", 0)) as other:
        place = f"127.0.0.1:{other.getsockname()[1]}"
        answering = Thread(target=_answer, args=(other,))
        answering.start()
        with pytest.raises(ConnectionError, match=f"what answers at {place} is no Ray cluster"):
            aggregate_on_ray(reports, address=place)
        answering.join()
    assert not __import__("ray").is_initialized()


def _answer(server: socket.socket) -> None:
    connection, _ = server.accept()
    with connection:
        connection.recv(1000)
        connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")


@pytest.mark.usefixtures("ray_to_be")
@pytest.mark.parametrize("address", ["", "host", "host:", ":1", "host:0", "host:70000", "http://host:1/", "ray://host"])
def test_what_is_no_address(address: str, files: list[Path]) -> None:
    with pytest.raises(ValueError, match="to be HOST:PORT, ray://HOST:PORT, auto or local"):
        aggregate_on_ray(split_files(files[:1]), address=address)


@pytest.mark.usefixtures("ray_to_be")
def test_connected_to_nothing(files: list[Path]) -> None:
    with pytest.raises(ValueError, match="connected to no cluster"):
        aggregate_on_ray(split_files(files[:1]), address=None)


def test_distributions_stay_in_one_process(files: list[Path]) -> None:
    done = _run("estimate", files[0], "--ray", "local", "--distribution")
    assert done.returncode == 2
    assert "Leave out --ray" in done.stderr
