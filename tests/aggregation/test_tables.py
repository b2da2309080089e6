"""Tables of raw data: what is in the file, in constant memory, and the place of whatever cannot be used."""

import gzip
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from noisette.aggregation import Table
from noisette.aggregation._arrow import as_numbers, as_text


def _write(folder: Path, text: str | bytes, name: str = "people.csv") -> Path:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def _read(path: Path, columns: list[str] | None = None, **options: Any) -> np.ndarray:
    return np.concatenate(list(Table.open(path, columns, **options).numbers()))


@pytest.mark.slow
@pytest.mark.parametrize("compress", [bytes, gzip.compress])
def test_csv_equals_parquet_equals_what_was_written(compress: Any, tmp_path: Path) -> None:
    values = np.random.default_rng(1).normal(size=(6000, 30))
    names = [f"c{i}" for i in range(30)]
    lines = [",".join(names), *(",".join(map(repr, row)) for row in values.tolist())]
    text = _write(tmp_path, compress("\n".join(lines).encode()), "people.csv" if compress is bytes else "people.csv.gz")
    binary = tmp_path / "people.parquet"
    pq.write_table(pa.table(dict(zip(names, values.T, strict=True))), binary)
    for path in (text, binary):
        table = Table.open(path)
        assert table.columns == tuple(names)
        batches = list(table.numbers())
        np.testing.assert_array_equal(np.concatenate(batches), values)
        assert table.rows_read == 6000
        assert table.share_read == 1.0
        np.testing.assert_array_equal(_read(path, ["c7", "c2"]), values[:, [7, 2]])
    assert len(list(Table.open(text).numbers())) > 1, "the file should take several batches"


def test_spellings_of_numbers(tmp_path: Path) -> None:
    path = _write(tmp_path, '\ufeffa,b\r\n 1 , 2\r\n1e3,-.5\r\n\r\n+4,"5"\r\n')
    np.testing.assert_array_equal(_read(path), [[1, 2], [1000, -0.5], [4, 5]])
    path = _write(tmp_path, "a\tb\n1\t2\n", "people.tsv")
    np.testing.assert_array_equal(_read(path), [[1, 2]])
    path = _write(tmp_path, "1,2\n3,4\n")
    np.testing.assert_array_equal(_read(path, header=False), [[1, 2], [3, 4]])


def test_numbers_of_any_arrow_type(tmp_path: Path) -> None:
    columns = {
        "whole": pa.array([1, 2], pa.int8()),
        "small": pa.array([0.5, 2.0], pa.float16()),
        "flag": pa.array([True, False]),
        "coded": pa.array([3.0, 4.0]).dictionary_encode(),
        "text": pa.array(["7", "8.5"]),
    }
    pq.write_table(pa.table(columns), tmp_path / "people.parquet")
    np.testing.assert_array_equal(_read(tmp_path / "people.parquet"), [[1, 0.5, 1, 3, 7], [2, 2, 0, 4, 8.5]])


@pytest.mark.slow
def test_rows_longer_than_a_block(tmp_path: Path) -> None:
    path = _write(tmp_path, "a,essay,b\n" + f"0.25,{'long ' * 2_000_000},0.5\n" * 2)
    np.testing.assert_array_equal(_read(path, ["a", "b"]), [[0.25, 0.5], [0.25, 0.5]])


def test_many_columns(tmp_path: Path) -> None:
    columns = 50_000
    path = _write(tmp_path, ",".join(f"c{i}" for i in range(columns)) + "\n" + ("0.25," * columns)[:-1] + "\n")
    assert _read(path, ["c0", "c49999"]).tolist() == [[0.25, 0.25]]


LONG = "a,b\n" + "0.5,0.5\n" * 600_000


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,b\n1,2\n3,x\n", "people.csv, row 2, column 'b': 'x' is not a number"),
        ("a,b\n1,2\n3,\n", "people.csv, row 2, column 'b': the value is missing"),
        ("a,b\n1,NA\n", r"row 1, column 'b': the value is missing \(it is written 'NA'\)"),
        ("a,b\nnan,1\n", "row 1, column 'a': expected a finite number, got nan"),
        ("a,b\n1,-inf\n", "row 1, column 'b': expected a finite number, got -inf"),
        ("a,b\n1,1e999\n", "row 1, column 'b': expected a finite number, got inf"),
        ("a\n1\n\n2\n", "row 2, column 'a': the value is missing"),
        (LONG + "0.5,oops\n", "row 600,001, column 'b': 'oops' is not a number"),
        ("a,b\n1,2\n3\n", "people.csv cannot be read as CSV .*Row #3: Expected 2 columns, got 1"),
        ("a,b\n", "has a header but no rows"),
        ("", "people.csv is empty"),
        ("\n", "people.csv has no rows"),
        ("a,a\n1,2\n", "two columns named 'a'. Rename one"),
        ("1,2\n3,4\n", "starts with numbers, '1', '2', where the names of the columns belong.*--no-header"),
        (b"a,b\n1,\xff\n", "people.csv cannot be read as CSV .*0xff.* Give UTF-8 text"),
        (LONG.encode() + b"1,\xff\n", "people.csv cannot be read as CSV .*UTF8.* Give UTF-8 text"),
        (b"\x89PNG\r\n\x1a\n\x00", "people.csv cannot be read as CSV"),
        (b"PAR1 and then something else", "people.csv cannot be read as CSV or Parquet"),
    ],
)
def test_bad_text_is_named(text: str | bytes, message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        _read(_write(tmp_path, text))


def test_bad_parquet_is_named(tmp_path: Path) -> None:
    path = tmp_path / "people.parquet"
    for column, message in (
        (pa.array([1.0, None]), "people.parquet, row 2, column 'a': the value is missing"),
        (pa.array([1.0, np.nan]), "people.parquet, row 2, column 'a': expected a finite number, got nan"),
        (pa.array(["1", "x"]), "people.parquet, row 2, column 'a': 'x' is not a number"),
        (pa.array([[1.0], [2.0]]), "column 'a' holds list<.*>, not numbers. Choose other columns"),
    ):
        pq.write_table(pa.table({"a": column}), path)
        with pytest.raises(ValueError, match=message):
            _read(path)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(ValueError, match=r"people.parquet cannot be read as CSV or Parquet"):
        _read(path)


def test_columns_that_are_not_there(tmp_path: Path) -> None:
    path = _write(tmp_path, "age,height\n1,2\n")
    with pytest.raises(ValueError, match=r"no column 'hieght'. Did you mean 'height'\? It has 'age', 'height'"):
        Table.open(path, ["hieght"])
    with pytest.raises(ValueError, match="Expected every column once"):
        Table.open(path, ["age", "age"])
    with pytest.raises(ValueError, match="at least one column"):
        Table.open(path, [])
    with pytest.raises(FileNotFoundError, match="There is no file"):
        Table.open(tmp_path / "missing.csv")
    with pytest.raises(IsADirectoryError, match="is a folder"):
        Table.open(tmp_path)


def test_labels(tmp_path: Path) -> None:
    path = _write(tmp_path, 'a,kind\n1, red\n2,"green, light"\n3,7\n')
    (labels,) = Table.open(path, ["kind"]).labels()
    assert labels.tolist() == ["red", "green, light", "7"]
    binary = tmp_path / "people.parquet"
    for column, wanted in ((pa.array(["x", "y"]).dictionary_encode(), ["x", "y"]), (pa.array([3, 4]), ["3", "4"])):
        pq.write_table(pa.table({"kind": column}), binary)
        (labels,) = Table.open(binary).labels()
        assert labels.tolist() == wanted
    for column in (pa.array(["x", None]), pa.array(["x", " "])):
        pq.write_table(pa.table({"kind": column}), binary)
        with pytest.raises(ValueError, match="row 2, column 'kind': the value is missing"):
            list(Table.open(binary).labels())


PEAK = """
import re, sys
from pathlib import Path
from noisette.aggregation import Table
def read(path):
    total = sum(len(batch) for batch in Table.open(path).numbers())
    return total, int(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1])
print(*read(sys.argv[1]), *read(sys.argv[2]))
"""
WRITE = """
import sys, numpy as np, pyarrow as pa, pyarrow.csv, pyarrow.parquet as pq
for rows, path in ((500_000, sys.argv[1]), (3_000_000, sys.argv[2])):
    values = np.random.default_rng(1).uniform(size=(4, rows)).round(6)
    table = pa.table(dict(zip("abcd", values)))
    if path.endswith("csv"):
        pa.csv.write_csv(table, path)
    else:
        pq.write_table(table, path, row_group_size=rows, use_dictionary=False)  # one row group, however large
"""


@pytest.mark.long
@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_memory_does_not_grow_with_the_file(kind: str, tmp_path: Path) -> None:
    """Three million rows instead of half a million: 80 MB more of float64, less than 40 MB more of memory."""
    paths = [str(tmp_path / f"{size}.{kind}") for size in ("small", "large")]
    subprocess.run([sys.executable, "-c", WRITE, *paths], check=True)
    command = [sys.executable, "-c", PEAK, *paths]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    few, before, many, after = map(int, output.split())
    assert (few, many) == (500_000, 3_000_000)
    assert (after - before) / 1024 < 40


def test_periods_of_pandas_are_no_numbers(tmp_path: Path) -> None:
    pd.DataFrame({"day": pd.period_range("1971-01-01", periods=3, freq="D")}).to_parquet(tmp_path / "days.parquet")
    batch = next(Table.open(tmp_path / "days.parquet").batches())
    for read in (as_numbers, as_text):
        with pytest.raises(ValueError, match=r"row 1 holds extension<pandas\.period"):
            read(batch.column(0), lambda row: f"row {row + 1}")
