"""A billion reports on paper: the sums of every mechanism have room for them, and the benchmark knows its own sums."""

import importlib.util
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import noisette as nz
from noisette.aggregation import aggregate_partitions, split_files
from noisette.core import Aggregate

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "scale.py"
USERS, DOUBLINGS = 1 << 10, 20  # 2^30 reports in the end


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(nz.CATALOGUE))
def test_the_sums_of_a_billion_reports_fit(name: str) -> None:
    """Sums of 2^10 reports are doubled twenty times, by the checked additions by which partitions are merged."""
    mechanism = nz.CATALOGUE[name].example(1.0)
    worst = np.asarray(mechanism.witnesses()[0])
    few: Aggregate = mechanism.aggregate(mechanism.privatize(worst[np.arange(USERS) % len(worst)], rng=1))
    many = few
    for _ in range(DOUBLINGS):
        many += many
    assert many.users == 1 << 30
    np.testing.assert_array_equal(many.estimate().value, few.estimate().value)


def test_sums_that_do_not_fit_are_refused() -> None:
    """The twin: doubled for long enough, the sums of any mechanism overflow, and that is an error."""
    mechanism = nz.Duchi(1.0)
    many = mechanism.aggregate(mechanism.privatize(np.ones(10), rng=1))
    for _ in range(59):  # to 10 * 2^59 users, within a factor of two of 2^63
        many += many
    with pytest.raises(OverflowError, match="no longer fit 64 bits"):
        many += many


@pytest.fixture(scope="module")
def benchmark() -> Any:
    """benchmarks/scale.py as a module; dataclasses look it up by its name."""
    spec = importlib.util.spec_from_file_location("benchmarks_scale", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, spec.name, module)
        spec.loader.exec_module(module)
        yield module


@pytest.mark.long
@pytest.mark.parametrize("job", ["hashing", "sampled"])
def test_the_benchmark_knows_what_its_files_add_up_to(
    job: str, benchmark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(benchmark, "A_FILE", 300)
    block = benchmark.Block.of(job, 150)
    paths = benchmark.write(tmp_path, block, 1000)
    assert len(paths) == 4
    assert aggregate_partitions(split_files(paths)) == block.expected(1000)


@pytest.mark.long
def test_the_benchmark_writes_its_tables(benchmark: Any) -> None:
    part = {"seconds": 1.25, "start": 2.0, "cpu": 3.0, "driver": 100.4, "worker": 200.0}
    more = part | {"cpu": 12.0}
    rows = [
        {"job": "hashing", "users": users, "bytes": 5 * users, "load": 1.2, "here": part, "ray": ray}
        for users, ray in ((10**7, part), (10**8, more))
    ]
    text = benchmark.tables(rows)
    assert "| 100,000,000 | 500 | 1.2 s | 3.0 s | 1.2 s | 2.0 s | 12.0 s | 100 | 100 | 200 | 1 |" in text
    assert "piecewise" not in text
    assert "100,000,000 reports: one process was faster on the clock, 3.2 s with Ray's start against 1.2 s" in text
    assert "Ray took 4.0 times the seconds of a core" in text
    assert "0 ns of a core in one process and 100 ns on Ray" in text
    assert "5.0 GB and 3 s of a core in one process, 102 s on Ray" in text  # 12 s, and 100 ns for 9e8 more
