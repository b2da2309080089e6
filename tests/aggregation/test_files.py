"""Report files: what goes in comes out, in constant memory, whole or not at all; bad files are named."""

import errno
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import noisette as nz
from noisette import _files
from noisette._files import whole_file
from noisette.aggregation import ReportFile, aggregate_files, files, write_reports

MECHANISM = nz.Sampled("piecewise", epsilon=2.0, dims=5, report=2)
NAMES = tuple("abcde")


def _reports(users: int = 1000, seed: int = 1) -> nz.Reports:
    return MECHANISM.privatize(np.random.default_rng(seed).uniform(-1, 1, (users, 5)), rng=seed)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "reports.parquet"
    write_reports(path, MECHANISM, [_reports()], names=NAMES)
    return path


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(nz.CATALOGUE))
def test_round_trip_of_every_mechanism(name: str, tmp_path: Path) -> None:
    mechanism = nz.CATALOGUE[name].example(1.0)
    worst = np.asarray(mechanism.witnesses()[0])
    reports = mechanism.privatize(worst[np.arange(500) % len(worst)], rng=3)
    path = tmp_path / "reports.parquet"
    batches = (reports[start : start + 70] for start in range(0, 500, 70))
    assert write_reports(path, mechanism, batches) == 500
    file = ReportFile.open(path)
    assert file.mechanism == mechanism
    assert file.users == 500
    assert aggregate_files([path]) == mechanism.aggregate(reports)
    (back,) = file.batches()
    for before, after in zip(_arrays(reports), _arrays(back), strict=True):
        assert after.dtype == before.dtype
        np.testing.assert_array_equal(after, before)


def _arrays(reports: Any) -> list[np.ndarray]:
    return [reports.indices, reports.values] if isinstance(reports, nz.Reports) else [np.asarray(reports)]


def test_reports_of_tensors_keep_their_shape(tmp_path: Path) -> None:
    """Mechanisms to come send arrays of more axes."""
    reports = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    write_reports(tmp_path / "r.parquet", MECHANISM, [reports])
    (back,) = ReportFile.open(tmp_path / "r.parquet").batches()
    np.testing.assert_array_equal(back, reports)
    assert back.dtype == reports.dtype


@pytest.mark.slow
def test_shards_merge_to_the_same_bits_in_any_order(tmp_path: Path) -> None:
    paths = []
    for seed in range(3):
        paths.append(tmp_path / f"{seed}.parquet")
        write_reports(paths[-1], MECHANISM, [_reports(100 + seed, seed)], names=NAMES)
    whole_aggregate = aggregate_files(paths)
    assert whole_aggregate == aggregate_files(reversed(paths))
    assert whole_aggregate.users == 303
    assert whole_aggregate.names == NAMES


def test_metadata_is_readable_elsewhere(file: Path) -> None:
    metadata = pq.read_schema(file).metadata
    assert metadata[b"noisette.format"] == b"noisette-reports"
    assert metadata[b"noisette.version"] == b"1"
    assert nz.from_spec(json.loads(metadata[b"noisette.mechanism"])) == MECHANISM
    assert json.loads(metadata[b"noisette.names"]) == list(NAMES)


# whole or not at all


def _failing(error: BaseException) -> Iterator[nz.Reports]:
    yield _reports(600_000)
    raise error


@pytest.mark.slow
@pytest.mark.parametrize("nameless", [True, False])
@pytest.mark.parametrize("error", [RuntimeError("no"), KeyboardInterrupt(), OSError(errno.ENOSPC, "No space left")])
def test_an_error_leaves_nothing_new(
    error: BaseException, nameless: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not nameless:
        monkeypatch.setattr(_files, "_open_nameless", lambda folder, mode: None)
    path = tmp_path / "reports.parquet"
    with pytest.raises(type(error)):
        write_reports(path, MECHANISM, _failing(error))
    assert list(tmp_path.iterdir()) == []
    write_reports(path, MECHANISM, [_reports(10)])
    before = path.read_bytes()
    with pytest.raises(type(error)):
        write_reports(path, MECHANISM, _failing(error))
    assert list(tmp_path.iterdir()) == [path]
    assert path.read_bytes() == before
    write_reports(path, MECHANISM, [_reports(20)])
    assert ReportFile.open(path).users == 20
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.long
@pytest.mark.parametrize("kill", [signal.SIGINT, signal.SIGKILL])
def test_a_killed_writer_leaves_nothing(kill: signal.Signals, tmp_path: Path) -> None:
    code = """
import itertools, signal, sys, numpy as np, noisette as nz
from noisette.aggregation import write_reports
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell in the background would let it be ignored
m = nz.Duchi(epsilon=1.0)
reports = m.privatize(np.zeros(1 << 20), rng=1)
def batches():
    for number in itertools.count():
        if number == 3: print("writing", flush=True)
        yield reports
write_reports(sys.argv[1], m, batches())
"""
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path / "r.parquet")], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"writing\n"
    time.sleep(0.1)
    process.send_signal(kill)
    try:
        process.wait(600)
    finally:
        process.kill()
        process.stdout.close()
    if kill == signal.SIGKILL and not _has_nameless_files(tmp_path):
        pytest.skip("this file system has no nameless files")
    assert list(tmp_path.iterdir()) == []


def _has_nameless_files(folder: Path) -> bool:
    descriptor = _files._open_nameless(folder, 0o666)
    if descriptor is not None:
        os.close(descriptor)
    return descriptor is not None


def test_where_nothing_can_be_written(tmp_path: Path) -> None:
    for path, error, message in (
        (tmp_path, IsADirectoryError, "is a folder"),
        (tmp_path / "missing" / "r.parquet", FileNotFoundError, "missing does not exist. Create it first"),
        ("/dev/null", ValueError, "/dev/null is not a regular file"),
    ):
        with pytest.raises(error, match=message), whole_file(path):
            pass
    assert Path("/dev/null").is_char_device()


def test_a_link_leads_to_the_file_that_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "real").write_bytes(b"old")
    (tmp_path / "link").symlink_to("real")
    with whole_file(tmp_path / "link") as stream:
        stream.write(b"new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_bytes() == b"new"


def test_nothing_to_write(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="Expected at least one report"):
        write_reports(tmp_path / "r.parquet", MECHANISM, [])
    with pytest.raises(ValueError, match="one row a user"):
        write_reports(tmp_path / "r.parquet", MECHANISM, [0.5])
    with pytest.raises(ValueError, match="of one shape"):
        write_reports(tmp_path / "r.parquet", MECHANISM, [np.zeros((2, 3)), np.zeros((2, 4))])
    assert list(tmp_path.iterdir()) == []


# bad files


def test_any_truncation_is_refused(file: Path) -> None:
    content = file.read_bytes()
    for size in (0, 1, 3, 4, 8, len(content) // 2, len(content) - 8, len(content) - 1):
        file.write_bytes(content[:size])
        with pytest.raises(ValueError, match=r"reports.parquet is (empty|damaged, truncated or not Parquet).* again"):
            aggregate_files([file])


@pytest.mark.slow
def test_a_flipped_bit_is_seen(file: Path) -> None:
    """Pages and description carry checksums: a flipped bit is an error, or it hit what nobody reads."""
    content, before = bytearray(file.read_bytes()), aggregate_files([file])
    seen = 0
    places = list(range(5, len(content), 97))
    for place in places:
        damaged = content.copy()
        damaged[place] ^= 1
        file.write_bytes(damaged)
        try:
            after = aggregate_files([file])
        except ValueError:
            seen += 1
        else:
            assert after == before
            assert after.names == before.names
    assert seen > 0.9 * len(places)


def _rewritten(file: Path, columns: dict[str, Any] | None = None, **metadata: str) -> None:
    table = pq.read_table(file)
    changed = {f"noisette.{key}": value for key, value in metadata.items()}
    kept = {key.decode(): value.decode() for key, value in table.schema.metadata.items()}
    if columns is not None:
        table = pa.table(columns)
    described = kept | changed
    described["noisette.checksum"] = files.checksum({k: v for k, v in described.items() if k != "noisette.checksum"})
    pq.write_table(table.replace_schema_metadata(described), file)


def _lists(array: np.ndarray) -> pa.Array:
    return pa.FixedSizeListArray.from_arrays(pa.array(array.reshape(-1)), array.shape[1])


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ({"format": "other"}, "is Parquet, but not a file of reports"),
        ({"version": "2"}, "has version 2 of the format, this noisette reads 1"),
        ({"mechanism": "{"}, "does not say well which mechanism made it"),
        ({"mechanism": '{"mechanism": "dutchi"}'}, "Unknown mechanism 'dutchi'"),
        ({"shape": "[3]"}, r"columns \['indices', 'values'\], which are no reports of shape \(3,\)"),
        ({"shape": "[]"}, r"no reports of shape \(\)"),
        ({"names": '["a"]'}, "reports.parquet does not say well .*Expected 5 names"),
    ],
)
def test_foreign_metadata(metadata: dict[str, str], message: str, file: Path) -> None:
    _rewritten(file, **metadata)
    with pytest.raises(ValueError, match=message):
        aggregate_files([file])


def test_rewriting_alone_is_not_refused(file: Path) -> None:
    """The twin of the refusals above and below."""
    before = aggregate_files([file])
    _rewritten(file)
    assert aggregate_files([file]) == before


def test_foreign_columns(file: Path) -> None:
    reports = _reports()
    good = {"indices": _lists(reports.indices), "values": _lists(reports.values)}
    stray = reports.values.copy()
    stray[700, 1] = 0.12345
    twice = reports.indices.copy()
    twice[3] = 4
    missing = pa.array([None, *good["values"].to_pylist()[1:]], good["values"].type)
    for changes, message in (
        ({"values": _lists(stray)}, "reports.parquet, reports from number 1 on: Report .*outside the support"),
        ({"values": _lists(np.full_like(stray, np.nan))}, "reports.parquet, reports from .*outside the support"),
        ({"indices": _lists(twice)}, "reports.parquet, reports from .*increasing order"),
        ({"indices": _lists(reports.indices + 4)}, "reports.parquet, reports from .*from 0 to 4; user 0 reports"),
        ({"values": missing}, "has missing values in column 'values'"),
        ({"values": pa.array(["x"] * 1000)}, "which are no reports"),
    ):
        _rewritten(file, good | changes)
        with pytest.raises(ValueError, match=message):
            aggregate_files([file])
    _rewritten(file, {"report": _lists(reports.values)})
    with pytest.raises(ValueError, match=r"reports.parquet, reports from .*Expected the Reports"):
        aggregate_files([file])


def test_not_report_files(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": [1.0]}), tmp_path / "other.parquet")
    (tmp_path / "text.parquet").write_text("a,b\n1,2\n" * 10)
    write_reports(tmp_path / "r.parquet", MECHANISM, [_reports(5)])
    empty = pq.read_table(tmp_path / "r.parquet").slice(0, 0)
    pq.write_table(empty, tmp_path / "norows.parquet")
    for path, error, message in (
        (tmp_path / "other.parquet", ValueError, "other.parquet is Parquet, but not a file of reports"),
        (tmp_path / "text.parquet", ValueError, "text.parquet is damaged, truncated or not Parquet"),
        (tmp_path / "norows.parquet", ValueError, "norows.parquet holds no reports"),
        (tmp_path / "missing.parquet", FileNotFoundError, "There is no file .*missing.parquet"),
        (tmp_path, IsADirectoryError, "is a folder"),
    ):
        with pytest.raises(error, match=message):
            ReportFile.open(path)
    with pytest.raises(ValueError, match="at least one report file"):
        aggregate_files([])


def test_files_that_do_not_belong_together(file: Path, tmp_path: Path) -> None:
    other = nz.Sampled("piecewise", epsilon=3.0, dims=5, report=2)
    second = tmp_path / "second.parquet"
    write_reports(second, other, [other.privatize(np.zeros((3, 5)))], names=NAMES)
    with pytest.raises(
        ValueError, match=r"second.parquet and .*reports.parquet differ in mechanism: epsilon 3.0 and 2.0"
    ):
        aggregate_files([file, second])
    write_reports(second, MECHANISM, [_reports(3)], names=tuple("vwxyz"))
    with pytest.raises(ValueError, match="differ in dimensions"):
        aggregate_files([file, second])
    with pytest.raises(ValueError, match="is given twice: its users would count twice"):
        aggregate_files([file, tmp_path / ".." / tmp_path.name / file.name])


# constant memory

PEAK = """
import re, sys, numpy as np, noisette as nz, pyarrow.parquet
from pathlib import Path
from noisette.aggregation import ReportFile, aggregate_files, write_reports
m = nz.Duchi(epsilon=1.0)
reports = m.privatize(np.zeros(1 << 20), rng=1)
def batches(count):
    for _ in range(count): yield reports
def peak(count):
    write_reports(sys.argv[1], m, batches(count))
    assert {read} == count << 20
    return int(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1])
small = peak(4)
print(peak(24) - small)
"""


def _growth(read: str, path: Path) -> int:
    """Return the megabytes that twenty-four batches of 8 MB take more than four do."""
    command = [sys.executable, "-c", PEAK.format(read=read), str(path)]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout) // 1024


@pytest.mark.long
def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    assert _growth("aggregate_files([sys.argv[1]]).users", tmp_path / "r.parquet") < 64


@pytest.mark.long
def test_a_file_held_in_memory_would_be_seen(tmp_path: Path) -> None:
    """The twin: all batches at once take 160 MB more."""
    assert _growth("sum(map(len, list(ReportFile.open(sys.argv[1]).batches())))", tmp_path / "r.parquet") > 100
