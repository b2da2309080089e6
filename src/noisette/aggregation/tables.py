"""Tables of raw data, CSV or Parquet of any size, read in constant memory."""

from __future__ import annotations

import csv
import difflib
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from noisette._validate import FloatArray
from noisette.aggregation._arrow import IMPUTE, as_numbers, as_text, naming

_VALUES = 1 << 20  # numbers in a batch
_BLOCK, _LARGEST_BLOCK = 1 << 18, 1 << 22  # bytes of CSV parsed at a time, at least and where rows are long
_LINES = 1 << 28  # bytes within which the first two lines of a CSV must end
_CODECS = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}
_UNREADABLE = "cannot be read as CSV or Parquet ({reason}). Give UTF-8 text with a header line, or Parquet."


@dataclass
class Table:
    """Some columns of a CSV or Parquet file, one row a user, in batches of constant memory.

    ``columns`` are all of the file's unless chosen. ``rows_read`` and ``share_read`` tell how far a pass has come. A
    value that is missing, not a number or not finite is an error that names its row and its column; the first row
    below the header is row 1.
    """

    path: Path
    columns: tuple[str, ...]
    header: bool = True
    single: bool = False
    rows_read: int = field(default=0, init=False)
    share_read: float = field(default=0.0, init=False)

    @classmethod
    def open(cls, path: str | Path, columns: Sequence[str] | None = None, *, header: bool = True) -> Table:
        """Look at a file's column names and choose among them; ``header=False`` calls a CSV's columns f0, f1, ..."""
        path = Path(path)
        if path.is_dir():
            raise IsADirectoryError(f"{path} is a folder. Name one CSV or Parquet file.")
        if not path.exists():
            raise FileNotFoundError(f"There is no file {path}. Check the name and the folder.")
        if path.stat().st_size == 0:
            raise ValueError(f"{path} is empty. Give a CSV with a header line, or a Parquet file.")
        with naming(path, _UNREADABLE):
            names = _parquet(path).schema_arrow.names if _is_parquet(path) else _csv_names(path, header=header)
        _check_names(path, names, header=header)
        chosen = tuple(names if columns is None else columns)
        if not chosen:
            raise ValueError(f"Expected at least one column of {path}; it has {_listed(names)}.")
        for name in sorted(set(chosen) - set(names)):
            near = difflib.get_close_matches(name, names, n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise ValueError(f"{path} has no column {name!r}.{hint} It has {_listed(names)}.")
        if len(set(chosen)) < len(chosen):
            raise ValueError(f"Expected every column once, got {_listed(chosen)}.")
        return cls(path, chosen, header, len(names) == 1)

    def numbers(self) -> Iterator[FloatArray]:
        """Yield arrays of shape (rows, columns)."""
        for values, _ in self.records(()):
            yield values

    def labels(self) -> Iterator[npt.NDArray[np.str_]]:
        """Yield arrays of shape (rows,): the text of the only column."""
        (name,) = self.columns
        return (texts[name] for _, texts in self.records([name]))

    def records(self, text: Collection[str]) -> Iterator[tuple[FloatArray, dict[str, npt.NDArray[np.str_]]]]:
        """Yield arrays of shape (rows, columns), zero in the columns that hold text, and the text of those."""
        for batch in self.batches():
            values, texts = np.zeros((batch.num_rows, len(self.columns))), {}
            for place, (name, column) in enumerate(zip(self.columns, batch.columns, strict=True)):
                where = partial(self.place, name=name)
                if name in text:
                    texts[name] = np.asarray(as_text(column, where).to_pylist())
                else:
                    values[:, place] = as_numbers(column, where)
            self._check_finite(values)
            yield values, texts
            self.rows_read += len(values)

    def batches(self) -> Iterator[Any]:
        """Yield record batches of the chosen columns: a CSV's as text, so that a bad value can be shown.

        Whoever takes them adds the rows of each to ``rows_read`` when done with it.
        """
        self.rows_read, self.share_read = 0, 0.0
        with naming(self.path, _UNREADABLE):
            if _is_parquet(self.path):
                source = _parquet(self.path, len(self.columns))
                total = max(1, source.metadata.num_rows)
                rows = max(1, _VALUES // len(self.columns))
                for batch in source.iter_batches(batch_size=rows, columns=list(self.columns)):
                    if batch.num_rows:
                        self.share_read = (self.rows_read + batch.num_rows) / total
                        yield batch
            else:
                reader, stream = _csv(self.path, header=self.header, columns=self.columns, single=self.single)
                total = max(1, self.path.stat().st_size)
                for batch in reader:
                    if batch.num_rows:
                        self.share_read = min(1.0, stream.tell() / total)
                        yield batch
        if self.rows_read == 0:
            raise ValueError(f"{self.path} has a header but no rows. Give one row a user.")

    def _check_finite(self, values: FloatArray) -> None:
        finite = np.isfinite(values)
        if not finite.all():
            row, place = np.argwhere(~finite)[0]
            bad = values[row, place]
            raise ValueError(f"{self.place(row, self.columns[place])}: expected a finite number, got {bad}. {IMPUTE}")

    def place(self, row: int, name: str) -> str:
        """Say where in the file a value of the current batch stands."""
        return f"{self.path}, row {self.rows_read + row + 1:,}, column {name!r}"


def _is_parquet(path: Path) -> bool:
    """Tell the formats apart by the first bytes, as names may lie."""
    with path.open("rb") as stream:
        return stream.read(4) == b"PAR1"


def _parquet(path: Path, columns: int = 1) -> Any:
    """Open a Parquet file so that its pages are read as they are needed, whatever the size of its row groups."""
    import pyarrow.parquet as parquet

    buffer = min(1 << 20, max(1 << 12, (1 << 25) // columns))
    return parquet.ParquetFile(path, pre_buffer=False, buffer_size=buffer)


def _csv_head(path: Path) -> bytes:
    """Return the start of a CSV, with its first two lines."""
    import pyarrow as pa

    with pa.input_stream(path) as start:
        head: bytes = start.read(_BLOCK)
        while head.count(b"\n") < 2 and len(head) < _LINES and (more := start.read(_BLOCK)):
            head += more
    return head


def _delimiter(path: Path) -> str:
    return "\t" if ".tsv" in path.name.lower() else ","


def _csv_names(path: Path, *, header: bool) -> list[str]:
    """Return the first row of a CSV, or as many made-up names."""
    start, _, rest = _csv_head(path).rpartition(b"\n")  # a cut last line may end within a character
    lines = (start or rest).decode("utf-8-sig").splitlines(keepends=True)
    first = next((row for row in csv.reader(lines, delimiter=_delimiter(path)) if row), None)
    if first is None:
        raise ValueError(f"{path} has no rows. Give a CSV with a header line.")
    return first if header else [f"f{number}" for number in range(len(first))]


def _csv(path: Path, *, header: bool, columns: Sequence[str], single: bool) -> tuple[Any, Any]:
    """Return a streaming reader of a CSV's columns as text, and the stream below it, whose position shows progress."""
    import pyarrow as pa
    from pyarrow import csv as arrow

    longest = max(map(len, _csv_head(path).split(b"\n", 2)[:2]))
    stream = pa.OSFile(str(path))
    codec = _CODECS.get(path.suffix.lower())
    reader = arrow.open_csv(
        stream if codec is None else pa.CompressedInputStream(stream, codec),
        # a row must fit in a block, many rows make wide files quick; without threads an error knows its row
        read_options=arrow.ReadOptions(
            block_size=max(_BLOCK, min(256 * longest, _LARGEST_BLOCK), 4 * longest),
            autogenerate_column_names=not header,
            use_threads=False,
        ),
        # where there is one column an empty line is a missing value
        parse_options=arrow.ParseOptions(
            delimiter=_delimiter(path), newlines_in_values=True, ignore_empty_lines=not single
        ),
        convert_options=arrow.ConvertOptions(
            include_columns=list(columns), column_types={name: pa.string() for name in columns}
        ),
    )
    return reader, stream


def _check_names(path: Path, names: Sequence[str], *, header: bool) -> None:
    """Refuse names that cannot tell the columns apart, and a first row of numbers taken for names."""
    twice = [name for name, times in Counter(names).items() if times > 1]
    if twice:
        raise ValueError(f"{path} has two columns named {twice[0]!r}. Rename one.")
    if header and all(_is_number(name) for name in names):
        raise ValueError(
            f"{path} starts with numbers, {_listed(names)}, where the names of the columns belong. "
            "Add a header line, or read it with header=False (--no-header on the command line)."
        )


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _listed(names: Sequence[str]) -> str:
    """Show the first few names."""
    shown = ", ".join(map(repr, names[:8]))
    return shown if len(names) <= 8 else f"{shown}, ... ({len(names):,} in all)"
