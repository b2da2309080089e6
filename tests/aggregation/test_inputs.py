"""Tables that are to be privatised: each value in its public range, one wrong among many named by its place."""

from __future__ import annotations

import zlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

import noisette as nz
from noisette.aggregation.inputs import CheckedRows
from noisette.aggregation.partitions import footer_checksum
from noisette.aggregation.tables import Table


def written(folder: Path, **columns: Any) -> Path:
    path = folder / "people.parquet"
    parquet.write_table(pa.table(columns), path)
    return path


def rows(path: Path, mechanism: Any, *names: str, clip: bool = False, ranged: bool = True) -> Any:
    found = list(CheckedRows(Table.open(path, list(names)), mechanism, clip, ranged).batches())
    return np.concatenate(found)


@pytest.mark.parametrize("place", [0, 2])
@pytest.mark.parametrize("value", [-0.1, 4.1])
def test_one_number_outside_its_range_is_refused(tmp_path: Path, place: int, value: float) -> None:
    mechanism = nz.Sampled("laplace", epsilon=1.0, domain=nz.Box(2, 0, 4))
    ages = [0.0, 4.0, 2.0]
    path = written(tmp_path, age=ages, other=[1.0, 2.0, 3.0])
    assert np.array_equal(rows(path, mechanism, "age", "other")[:, 0], ages)
    ages[place] = value
    path = written(tmp_path, age=ages, other=[1.0, 2.0, 3.0])
    for ranged, words in ((True, "outside the range"), (False, "outside the default range")):
        with pytest.raises(ValueError, match=rf"{words} \[0, 4\].*--range age=LOW,HIGH"):
            rows(path, mechanism, "age", "other", ranged=ranged)
    assert rows(path, mechanism, "age", "other", clip=True)[place, 0] == value  # the mechanism moves it


def test_records_of_numbers_and_categories(tmp_path: Path) -> None:
    domain = nz.Attributes((nz.Interval(0, 9), nz.Categorical(3, labels=("a", "b", "c"))), names=("age", "by"))
    mechanism: Any = SimpleNamespace(domain=domain, name="sampled-attributes")
    path = written(tmp_path, age=[0.0, 9.0, 5.0], by=["a", "c", "b"])
    assert rows(path, mechanism, "age", "by").tolist() == [[0, 0], [9, 2], [5, 1]]
    path = written(tmp_path, age=[0.0, 9.5, 5.0], by=["a", "c", "b"])
    with pytest.raises(ValueError, match=r"9.5 is outside the range \[0, 9\]"):
        rows(path, mechanism, "age", "by")
    path = written(tmp_path, age=[0.0, 9.0, 5.0], by=["a", "c", "d"])
    with pytest.raises(ValueError, match="'d' is not among the categories"):
        rows(path, mechanism, "age", "by")


def test_whole_numbers_of_a_grid(tmp_path: Path) -> None:
    mechanism = nz.CATALOGUE["discrete-laplace"](1.0, domain=nz.Grid(0, 5))
    path = written(tmp_path, n=[0.0, 5.0, 3.0])
    assert rows(path, mechanism, "n").tolist() == [0, 5, 3]
    path = written(tmp_path, n=[0.0, 2.5, 3.0])
    with pytest.raises(ValueError, match=r"2\.5 is not a whole number"):
        rows(path, mechanism, "n")
    assert rows(path, mechanism, "n", clip=True).tolist() == [0, 2.5, 3]
    path = written(tmp_path, n=[0.0, 6.0, 3.0])
    with pytest.raises(ValueError, match=r"outside the range \[0, 5\]"):
        rows(path, mechanism, "n")


def test_tensors_have_one_range_for_all_entries(tmp_path: Path) -> None:
    mechanism = nz.TensorGaussian(nz.TensorDomain((2,), -1, 2), 1.0)
    path = written(tmp_path, a=[-1.0, 0.0], b=[2.0, 1.0])
    assert rows(path, mechanism, "a", "b").shape == (2, 2)
    path = written(tmp_path, a=[-1.0, 0.0], b=[2.0, 2.1])
    with pytest.raises(ValueError, match=r"2.1 is outside the range \[-1, 2\]"):
        rows(path, mechanism, "a", "b")


def test_the_checksum_of_a_footer_is_that_of_its_bytes(tmp_path: Path) -> None:
    """The last eight bytes of a Parquet file are the footer's length and PAR1."""
    path = written(tmp_path, a=[1.0, 2.0])
    whole = path.read_bytes()
    length = int.from_bytes(whole[-8:-4], "little")
    assert whole[-4:] == b"PAR1"
    assert footer_checksum(path) == zlib.crc32(whole[-8 - length : -8])
