"""Report files: Parquet whose metadata says which mechanism made the reports."""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from noisette._files import whole_file
from noisette.aggregation._arrow import naming
from noisette.aggregation.streams import checked_names, named
from noisette.core import Aggregate
from noisette.mechanisms import from_spec
from noisette.mechanisms.vector.sampled import Reports
from noisette.mechanisms.written import law_sha256, other_law

_FORMAT, _VERSION = "noisette-reports", 1
_USUAL_METADATA_BYTES = 100_000_000  # that Arrow reads unless more are allowed
_VALUES = 1 << 20  # numbers in a row group and in a batch: 8 MB of float64
REMAKE = "Copy it again, or make it again with `noisette privatize`."
DAMAGED = "is damaged, truncated or not Parquet ({reason}). " + REMAKE
_OTHER = "Give files that `noisette privatize` or write_reports wrote."


def write_reports(
    path: str | Path, mechanism: Any, batches: Iterable[Any], *, names: Sequence[str] | None = None
) -> int:
    """Write batches of reports to a file that appears whole or not at all, and return the number of users.

    One row group of some 8 MB is held at a time. ``names`` are those of the estimated dimensions.
    """
    import pyarrow.parquet as parquet

    users, names = 0, None if names is None else checked_names(mechanism, names)
    law = law_sha256(mechanism)
    with whole_file(path) as stream:
        writer: Any = None
        for block in _row_groups(batches):
            table = _to_table(block, mechanism, law, names)
            if writer is None:
                writer = parquet.ParquetWriter(stream, table.schema, compression="zstd", write_page_checksum=True)
            if table.schema != writer.schema:
                raise ValueError(f"Expected every batch as the first, {writer.schema}, got {table.schema}.")
            writer.write_table(table)
            users += len(table)
        if writer is None:
            raise ValueError(f"Expected at least one report to write to {path}, got none.")
        writer.close()
    return users


@dataclass(frozen=True)
class ReportFile:
    """A report file: who made the reports, and the reports in batches of constant memory."""

    path: Path
    mechanism: Any
    names: tuple[str, ...] | None
    users: int
    shape: tuple[int, ...]

    @classmethod
    def open(cls, path: str | Path) -> ReportFile:
        """Read a file's metadata, refusing what is no report file."""
        path = Path(path)
        schema, users, text = description(path, _FORMAT, f"not a file of reports. {_OTHER}")
        try:
            mechanism = from_spec(text["noisette.mechanism"])
            listed = json.loads(text["noisette.names"])
            names = None if listed is None else checked_names(mechanism, listed)
            shape = tuple(map(int, json.loads(text["noisette.shape"])))
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"{path} does not say well which mechanism made it: {error} {REMAKE}") from error
        if why := other_law(law_sha256(mechanism), text.get("noisette.law")):
            raise ValueError(f"{path} cannot be estimated here. {why}")
        if not _fits(schema, shape):
            raise ValueError(f"{path} has columns {schema.names}, which are no reports of shape {shape}. {REMAKE}")
        return cls(path, mechanism, names, users, shape)

    def batches(self) -> Iterator[Any]:
        """Yield the reports, as ``mechanism.privatize`` returned them, some 8 MB at a time."""
        return read_reports(self.path, self.shape)

    def row_groups(self) -> tuple[int, ...]:
        """Return how many reports each row group holds: the pieces in which a file can be read."""
        with naming(self.path, DAMAGED), open_parquet(self.path) as source:
            found = source.metadata
            return tuple(found.row_group(number).num_rows for number in range(found.num_row_groups))

    def aggregate(self, *, on_progress: Callable[[int], None] | None = None) -> Aggregate:
        """Aggregate the file's reports; ``on_progress`` is called with the users of each batch."""
        total: Aggregate | None = None
        for batch in self.batches():
            try:
                sums = self.mechanism.aggregate(batch)
            except (TypeError, ValueError) as error:
                first = 1 if total is None else total.users + 1
                raise ValueError(f"{self.path}, reports from number {first:,} on: {error}") from error
            total = sums if total is None else total + sums
            if on_progress is not None:
                on_progress(len(batch))
        assert total is not None  # a file without reports was refused when it was opened
        return named(total, self.names)


def description(path: Path, kind: str, otherwise: str) -> tuple[Any, int, dict[str, str]]:
    """Return the columns of a file of reports, their number, and what it says of itself, which must be of one kind."""
    with naming(path, DAMAGED), open_parquet(path) as source:
        schema, users = source.schema_arrow, source.metadata.num_rows
    text = metadata_of(schema)
    if text.get("noisette.format") != kind:
        raise ValueError(f"{path} is Parquet, but {otherwise}")
    if text.get("noisette.version") != str(_VERSION):
        raise ValueError(
            f"{path} has version {text.get('noisette.version')} of the format, this noisette reads {_VERSION}. "
            "Read it with the version that wrote it."
        )
    if users == 0:
        raise ValueError(f"{path} holds no reports. {REMAKE}")
    if text.pop("noisette.checksum", None) != checksum(text):
        raise ValueError(f"{path} is damaged: its description does not match its checksum. {REMAKE}")
    return schema, users, text


def metadata_of(schema: Any) -> dict[str, str]:
    """Return the metadata of a file that begin with noisette."""
    pairs = (schema.metadata or {}).items()
    return {key.decode(errors="replace"): value.decode(errors="replace") for key, value in pairs}


def metadata_for(kind: str, **fields: str) -> dict[str, str]:
    """Return what a file is to say of itself, with a checksum."""
    metadata = {"noisette.format": kind, "noisette.version": str(_VERSION)}
    metadata |= {f"noisette.{name}": value for name, value in fields.items()}
    return metadata | {"noisette.checksum": checksum(metadata)}


def read_reports(path: Path, shape: tuple[int, ...], *, row_groups: Sequence[int] | None = None) -> Iterator[Any]:
    """Yield the reports of a file, or of some of its row groups, some 8 MB at a time."""
    rows = max(1, _VALUES // max(1, math.prod(shape)))
    with naming(path, DAMAGED), open_parquet(path) as source:
        for batch in source.iter_batches(batch_size=rows, row_groups=row_groups):
            yield _from_batch(batch, path, shape)


def open_files(paths: Iterable[str | Path]) -> list[ReportFile]:
    """Open report files, refusing those of different mechanisms or dimensions before any work."""
    files = [ReportFile.open(path) for path in paths]
    if not files:
        raise ValueError("Expected at least one report file, got none.")
    _check_alike(files)
    return files


def aggregate_files(paths: Iterable[str | Path], *, on_progress: Callable[[int], None] | None = None) -> Aggregate:
    """Aggregate any number of report files of any size, in constant memory.

    All files are opened and compared first: files of different mechanisms or dimensions are refused before any work.
    """
    files = open_files(paths)
    total = files[0].aggregate(on_progress=on_progress)
    for file in files[1:]:
        total += file.aggregate(on_progress=on_progress)
    return total


def _check_alike(files: list[ReportFile]) -> None:
    """Refuse files that do not belong together, and one that would be counted twice."""
    first, seen = files[0], set()
    for file in files:
        place = file.path.resolve()
        if place in seen:
            raise ValueError(f"{file.path} is given twice: its users would count twice. Name each file once.")
        seen.add(place)
        for what, mine, theirs in (
            ("mechanism", first.mechanism.spec(), file.mechanism.spec()),
            ("dimensions", first.names, file.names),
        ):
            if mine != theirs:
                raise ValueError(
                    f"{file.path} and {first.path} differ in {what}: {_gap(theirs, mine)}. Estimate them apart."
                )


def _gap(one: Any, other: Any) -> str:
    """Say in which fields two descriptions differ."""
    if isinstance(one, dict) and isinstance(other, dict):
        keys = [key for key in one | other if one.get(key) != other.get(key)]
        return ", ".join(f"{key} {shown(one.get(key))} and {shown(other.get(key))}" for key in keys)
    return f"{shown(one)} and {shown(other)}"


def shown(value: Any) -> str:
    """Write a value as JSON, shortened."""
    text = json.dumps(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _row_groups(batches: Iterable[Any]) -> Iterator[dict[str, npt.NDArray[Any]]]:
    """Regroup batches into parts of about `_VALUES` numbers."""
    kept: list[dict[str, npt.NDArray[Any]]] = []
    values = 0
    for batch in batches:
        columns = _columns(batch)
        first = next(iter(columns.values()))
        rows = max(1, _VALUES // max(1, math.prod(first.shape[1:])))
        for start in range(0, len(first), rows):
            group = {name: array[start : start + rows] for name, array in columns.items()}
            kept.append(group)
            values += next(iter(group.values())).size
            if values >= _VALUES:
                yield _joined(kept)
                kept, values = [], 0
    if kept:
        yield _joined(kept)


def _joined(parts: list[dict[str, npt.NDArray[Any]]]) -> dict[str, npt.NDArray[Any]]:
    try:
        return {name: np.concatenate([group[name] for group in parts]) for name in parts[0]}
    except (KeyError, ValueError) as error:
        raise ValueError(f"Expected every batch of reports of one shape: {error}.") from error


def _columns(reports: Any) -> dict[str, npt.NDArray[Any]]:
    """Return the arrays that make up a batch, users along the first axis."""
    if isinstance(reports, Reports):
        return {"indices": reports.indices, "values": reports.values}
    array = np.asarray(reports)
    if array.ndim == 0 or array.dtype.kind not in "biuf":
        raise ValueError(f"Expected reports with one row a user, got {type(reports).__name__} {reports!r:.40}.")
    return {"report": array}


def _to_table(columns: dict[str, npt.NDArray[Any]], mechanism: Any, law: str, names: Sequence[str] | None) -> Any:
    """Return an Arrow table: a plain column for numbers, fixed-size lists for vectors and more."""
    import pyarrow as pa

    shape = next(iter(columns.values())).shape[1:]
    arrays = []
    for array in columns.values():
        flat = pa.array(np.ascontiguousarray(array).reshape(-1))
        arrays.append(pa.FixedSizeListArray.from_arrays(flat, math.prod(shape)) if shape else flat)
    described = metadata_for(
        _FORMAT,
        mechanism=json.dumps(mechanism.spec()),
        law=law,
        names=json.dumps(None if names is None else list(map(str, names))),
        shape=json.dumps(shape),
    )
    return pa.table(arrays, names=list(columns)).replace_schema_metadata(described)


def checksum(metadata: dict[str, str]) -> str:
    """Return the CRC of what a file says about itself; Parquet keeps one for the data only."""
    own = sorted((key, value) for key, value in metadata.items() if key.startswith("noisette."))
    return f"{zlib.crc32(json.dumps(own).encode()):08x}"


def _from_batch(batch: Any, path: Path, shape: tuple[int, ...]) -> Any:
    """Return a record batch as the reports it was made from."""
    arrays = {}
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        flat = column.flatten() if shape else column
        if column.null_count or flat.null_count:
            raise ValueError(f"{path} has missing values in column {name!r}. {REMAKE}")
        arrays[name] = flat.to_numpy(zero_copy_only=False).reshape(batch.num_rows, *shape)
    return arrays["report"] if "report" in arrays else Reports(**arrays)


def _fits(schema: Any, shape: tuple[int, ...]) -> bool:
    """Tell whether the columns are those that `_to_table` makes of reports of this shape."""
    import pyarrow as pa

    def number(kind: Any) -> bool:
        return bool(pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_floating(kind))

    def holds(kind: Any) -> bool:
        if not shape:
            return number(kind)
        listed = pa.types.is_fixed_size_list(kind) and kind.list_size == math.prod(shape)
        return listed and number(kind.value_type)

    known = schema.names == ["report"] or (schema.names == ["indices", "values"] and len(shape) == 1)
    return known and all(holds(kind) for kind in schema.types)


@contextmanager
def open_parquet(path: Path) -> Iterator[Any]:
    """Open a Parquet file so that neither its size nor that of its row groups decides how much memory is used."""
    import pyarrow.parquet as parquet

    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder. Name the report files in it, e.g. {path}/*.parquet.")
    if not path.exists():
        raise FileNotFoundError(f"There is no file {path}. Check the name and the folder.")
    size = path.stat().st_size
    if size == 0:
        raise ValueError(f"{path} is empty. {REMAKE}")
    most = min(
        max(size, _USUAL_METADATA_BYTES), 2**31 - 1
    )  # bytes of a description: millions of labels are longer than usual
    with parquet.ParquetFile(
        path, pre_buffer=False, buffer_size=1 << 16, page_checksum_verification=True, thrift_string_size_limit=most
    ) as source:
        yield source
