"""Reports in partitions: pieces that any process can read by itself, and whose sums add up to those of the whole."""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Generic, Protocol, Self, TypeVar

from noisette.aggregation.files import open_files, read_reports
from noisette.core import Aggregate

_VALUES = 1 << 22  # numbers in a partition: a task of some tenths of a second


class Summable(Protocol):
    """Sums of reports, such as an `Aggregate`: integers, so that any order of adding gives the same bits."""

    @property
    def users(self) -> int:
        """Of how many users they are."""

    def __add__(self, other: Self, /) -> Self: ...


class Partition(Protocol):
    """A piece of the reports that can be sent to another process and read there."""

    @property
    def users(self) -> int:
        """How many reports it has, which is known before it is read."""

    def batches(self) -> Iterator[Any]:
        """Yield its reports, of which one batch is in memory at a time."""

    def __str__(self) -> str: ...


S = TypeVar("S", bound=Summable)


@dataclass(frozen=True)
class Partitioned(Generic[S]):
    """Reports in partitions, of how many users they are in all, and what sums a batch of them."""

    summing: Callable[[Any], S]
    users: int
    partitions: tuple[Partition, ...]

    def finished(self, total: S | None) -> S:
        """Return the sums of all partitions, refusing those that do not count every user once."""
        if total is None or total.users != self.users:
            found = 0 if total is None else total.users
            raise ValueError(
                f"Expected {self.users:,} reports, read {found:,}: they were changed meanwhile. Run it again."
            )
        return total


@dataclass(frozen=True)
class Piece:
    """Some row groups of a report file; ``checksum``, of the file's footer, identifies the file."""

    path: Path
    checksum: int
    shape: tuple[int, ...]
    row_groups: tuple[int, ...]
    users: int

    def __str__(self) -> str:
        first, last = self.row_groups[0] + 1, self.row_groups[-1] + 1
        return f"row group{f' {first}' if first == last else f's {first} to {last}'} of {self.path}"


@dataclass(frozen=True)
class FilePartition:
    """Row groups of one file, or of several small ones."""

    pieces: tuple[Piece, ...]

    @property
    def users(self) -> int:
        """How many reports it has."""
        return sum(piece.users for piece in self.pieces)

    def __str__(self) -> str:
        more = len(self.pieces) - 1
        return f"{self.pieces[0]}{f' and {more:,} more' if more else ''}"

    def batches(self) -> Iterator[Any]:
        """Yield the reports, some 8 MB at a time."""
        for piece in self.pieces:
            if piece.path.exists() and footer_checksum(piece.path) != piece.checksum:
                raise ValueError(
                    f"{piece.path} is not the file that was opened at first. "
                    "Let every node see the same files, and leave them alone until the end."
                )
            yield from read_reports(piece.path, piece.shape, row_groups=piece.row_groups)


def split_files(paths: Iterable[str | Path], *, values: int = _VALUES) -> Partitioned[Aggregate]:
    """Cut report files into partitions of about this many numbers each, along their row groups.

    Large files are split, small ones put together. All are opened and compared first, as `aggregate_files` does.
    """
    files = open_files(paths)
    partitions: list[FilePartition] = []
    kept: list[Piece] = []
    size = 0
    for file in files:
        path, width = file.path.resolve(), max(1, math.prod(file.shape))
        checksum = footer_checksum(path)
        groups: list[int] = []
        users = 0
        rows = file.row_groups()
        for number, count in enumerate(rows):
            groups.append(number)
            users += count
            size += count * width
            if size >= values or number == len(rows) - 1:
                kept.append(Piece(path, checksum, file.shape, tuple(groups), users))
                groups, users = [], 0
            if size >= values:
                partitions.append(FilePartition(tuple(kept)))
                kept, size = [], 0
    if kept:
        partitions.append(FilePartition(tuple(kept)))
    first = files[0]
    summing = _Named(first.mechanism, first.names)
    return Partitioned(summing, sum(file.users for file in files), tuple(partitions))


@dataclass(frozen=True)
class _Named:
    """What sums a batch of reports, with the names of the dimensions, which were checked when the file was opened."""

    mechanism: Any
    names: tuple[str, ...] | None

    def __call__(self, batch: Any) -> Aggregate:
        found: Aggregate = self.mechanism.aggregate(batch)
        return found if self.names is None else replace(found, names=self.names)


def aggregate_partitions(reports: Partitioned[S], *, on_progress: Callable[[int], None] | None = None) -> S:
    """Sum all partitions in this process, one after the other; ``on_progress`` is called with the users of each.

    >>> import tempfile
    >>> from noisette import Duchi
    >>> from noisette.aggregation import write_reports
    >>> m = Duchi(epsilon=1.0)
    >>> reports = m.privatize([0.2] * 500, rng=7)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = write_reports(f"{folder}/r.parquet", m, [reports])
    ...     aggregate_partitions(split_files([f"{folder}/r.parquet"])) == m.aggregate(reports)
    True
    """
    total: S | None = None
    for partition in reports.partitions:
        sums = summed(reports.summing, partition)
        total = added(total, sums)
        if on_progress is not None:
            on_progress(sums.users)
    return reports.finished(total)


def summed(summing: Callable[[Any], S], partition: Partition) -> S:
    """Sum one partition; errors name it."""
    total: S | None = None
    try:
        for batch in partition.batches():
            total = added(total, summing(batch))
    except (TypeError, ValueError, OSError) as error:
        raise ValueError(f"{_capital(str(partition))}: {error}") from error
    if total is None or total.users != partition.users:
        found = 0 if total is None else total.users
        raise ValueError(f"{_capital(str(partition))}: expected {partition.users:,} reports, found {found:,}.")
    return total


def added(total: S | None, more: S) -> S:
    """Return the sum of what there is."""
    return more if total is None else total + more


def footer_checksum(path: Path) -> int:
    """Return the CRC of a Parquet file's footer, which says where every page is and between which values."""
    with path.open("rb") as stream:
        size = stream.seek(-8, 2) + 8
        length = int.from_bytes(stream.read(4), "little")
        stream.seek(max(0, size - 8 - length))
        return zlib.crc32(stream.read(length))


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
