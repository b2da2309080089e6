"""Partitions of report files: together they are the files, and what is wrong with one is said of that one."""

import pickle
import shutil
from pathlib import Path

import numpy as np
import pytest

import noisette as nz
from noisette.aggregation import Partitioned, aggregate_files, aggregate_partitions, split_files, write_reports
from noisette.aggregation.partitions import FilePartition, summed

MECHANISM = nz.Sampled("piecewise", epsilon=2.0, dims=5, report=2)
NAMES = tuple("abcde")


def _write(path: Path, users: int, seed: int) -> Path:
    x = np.random.default_rng(seed).uniform(-1, 1, (users, 5))
    write_reports(path, MECHANISM, [MECHANISM.privatize(x, rng=seed)], names=NAMES)
    return path


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of three row groups: 2^20 numbers are 2^19 users who report two dimensions."""
    return _write(tmp_path_factory.mktemp("large") / "large.parquet", 1_200_000, 1)


def _groups(reports: Partitioned[nz.Aggregate]) -> list[list[tuple[str, tuple[int, ...]]]]:
    found = [partition for partition in reports.partitions if isinstance(partition, FilePartition)]
    return [[(piece.path.name, piece.row_groups) for piece in partition.pieces] for partition in found]


@pytest.mark.slow
def test_large_files_are_split_and_small_ones_put_together(large: Path, tmp_path: Path) -> None:
    small = [_write(tmp_path / f"{seed}.parquet", 100, seed) for seed in range(3)]
    reports = split_files([small[0], large, *small[1:]], values=1 << 20)
    assert _groups(reports) == [
        [("0.parquet", (0,)), ("large.parquet", (0,))],
        [("large.parquet", (1,))],
        [("large.parquet", (2,)), ("1.parquet", (0,)), ("2.parquet", (0,))],
    ]
    assert [partition.users for partition in reports.partitions] == [524_388, 524_288, 151_624]
    assert reports.users == 1_200_300


@pytest.mark.slow
@pytest.mark.parametrize("values", [1, 1 << 20, 1 << 21, 1 << 40])
def test_partitions_have_the_bits_of_the_whole(values: int, large: Path, tmp_path: Path) -> None:
    paths = [large, _write(tmp_path / "small.parquet", 100, 2)]
    reports, seen = split_files(paths, values=values), list[int]()
    sums = aggregate_partitions(reports, on_progress=seen.append)
    assert sums == aggregate_files(paths)
    assert sums.names == NAMES
    assert sum(seen) == 1_200_100
    assert len(seen) == len(reports.partitions)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(nz.CATALOGUE))
def test_every_mechanism_travels(name: str, tmp_path: Path) -> None:
    """A worker gets mechanism and partition as bytes, and sends sums back as bytes."""
    mechanism = nz.CATALOGUE[name].example(1.0)
    worst = np.asarray(mechanism.witnesses()[0])
    reports = mechanism.privatize(worst[np.arange(50) % len(worst)], rng=3)
    write_reports(tmp_path / "r.parquet", mechanism, [reports])
    split = split_files([tmp_path / "r.parquet"])
    there, part = pickle.loads(pickle.dumps((split.summing, split.partitions[0])))
    assert pickle.loads(pickle.dumps(summed(there, part))) == mechanism.aggregate(reports)


@pytest.mark.slow
def test_a_partition_left_out_or_doubled_is_seen(large: Path) -> None:
    whole = split_files([large], values=1 << 20)
    for wrong in (whole.partitions[1:], (*whole.partitions, whole.partitions[0]), ()):
        with pytest.raises(ValueError, match="Expected 1,200,000 reports, read"):
            aggregate_partitions(Partitioned(whole.summing, whole.users, wrong))


@pytest.mark.slow
def test_a_damaged_row_group_is_named(large: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.parquet"
    shutil.copy(large, copy)
    with copy.open("r+b") as stream:  # the second third of the file is the second row group
        stream.seek(copy.stat().st_size // 2)
        stream.write(bytes(64))
    reports = split_files([copy], values=1 << 20)
    assert summed(reports.summing, reports.partitions[0]) is not None
    with pytest.raises(ValueError, match=r"Row group 2 of .*copy.parquet: .*copy.parquet is damaged"):
        aggregate_partitions(reports)


def test_another_file_of_that_name_is_refused(tmp_path: Path) -> None:
    """The same mechanism, the same number of users: only the reports differ, as on a node that sees another disk."""
    path = _write(tmp_path / "r.parquet", 1000, 1)
    reports = split_files([path])
    _write(path, 1000, 2)
    with pytest.raises(ValueError, match=r"r.parquet is not the file that was opened at first"):
        aggregate_partitions(reports)
    path.unlink()
    with pytest.raises(ValueError, match=r"Row group 1 of .*r.parquet: There is no file"):
        aggregate_partitions(reports)


def test_bad_files_are_refused_before_any_work(tmp_path: Path) -> None:
    path = _write(tmp_path / "r.parquet", 10, 1)
    with pytest.raises(ValueError, match="is given twice"):
        split_files([path, path])
    with pytest.raises(ValueError, match="at least one report file"):
        split_files([])
