"""Rows of a table as a mechanism takes them, every value checked against its public domain before any report."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from noisette import _validate
from noisette._random import Rng, generator
from noisette._validate import FloatArray, IntArray
from noisette.aggregation.files import write_reports
from noisette.aggregation.tables import Table

PUBLIC = (
    "A range must be known beforehand, from what the numbers mean: one that is read off the data tells something "
    "about the people in it."
)


def privatize_table(
    table: Table,
    mechanism: Any,
    output: str | Path,
    *,
    clip: bool = False,
    ranged: bool = True,
    rng: Rng = None,
    on_progress: Callable[[float], None] = lambda share: None,
) -> int:
    """Privatise every row of a table into a file of reports, in constant memory, and return the number of users.

    ``ranged`` says whether the caller stated the range of the numbers; messages then do not call it the default.
    """
    source, checked = generator(rng), CheckedRows(table, mechanism, clip, ranged)

    def reports() -> Iterator[Any]:
        for batch in checked.batches():
            yield mechanism.privatize(batch, clip=clip, rng=source)
            on_progress(table.share_read)

    labels = {"frequency": "labels", "attributes": "quantities"}.get(mechanism.kind)
    names = table.columns if labels is None else getattr(mechanism.domain, labels)
    return write_reports(output, mechanism, reports(), names=names)


def sample_of(path: str | Path, columns: Sequence[str] | None, domain: Any) -> npt.NDArray[Any]:
    """Return a file's numbers or category codes as one array; of one column as a list."""
    table = Table.open(Path(path), columns)
    if domain.kind == "interval":
        rows = np.concatenate(list(table.numbers()))
        return rows[:, 0] if rows.shape[1] == 1 else rows
    parts = domain.parts if domain.kind == "attributes" else (domain,) * len(table.columns)
    if len(parts) != len(table.columns):
        raise ValueError(
            f"Expected as many --categories as columns, got {len(parts)} for {', '.join(table.columns)}. "
            "Choose columns with --columns."
        )
    batches = [texts for _, texts in table.records(table.columns)]
    codes = []
    for name, attribute in zip(table.columns, parts, strict=True):
        labels = np.concatenate([texts[name] for texts in batches])
        codes.append(labels.astype(np.int64) if attribute.labels is None else attribute.encode(labels))
    return codes[0] if len(codes) == 1 else np.column_stack(codes)


@dataclass(frozen=True)
class CheckedRows:
    """Batches of a table in the form that a mechanism takes."""

    table: Table
    mechanism: Any
    clip: bool
    ranged: bool

    def batches(self) -> Iterator[Any]:
        """Yield what `privatize` takes."""
        domain = self.mechanism.domain
        if domain.kind == "categorical":
            for labels in self.table.labels():
                yield self._coded(labels, domain, 0)
            return
        if domain.kind == "attributes":
            yield from self._records(domain.parts)
            return
        for batch in self.table.numbers():
            if domain.kind == "box":
                self._check(batch, domain.lows, domain.highs)
            elif domain.kind == "tensor":
                self._check(batch, *(np.full(batch.shape[1], end) for end in (domain.low, domain.high)))
            elif domain.kind == "grid":
                self._check(batch, np.full(1, domain.low), np.full(1, domain.high))
                self._check_whole(batch)
            yield batch if domain.shape else batch[:, 0]

    def _records(self, parts: Sequence[Any]) -> Iterator[FloatArray]:
        """Yield rows of numbers and category codes."""
        coded = {place: attribute for place, attribute in enumerate(parts) if attribute.kind == "categorical"}
        lows = np.asarray([0.0 if place in coded else one.low for place, one in enumerate(parts)])
        highs = np.asarray([one.size - 1 if place in coded else one.high for place, one in enumerate(parts)])
        for batch, labels in self.table.records([self.table.columns[place] for place in coded]):
            for place, attribute in coded.items():
                batch[:, place] = self._coded(labels[self.table.columns[place]], attribute, place)
            self._check(batch, lows, highs)
            yield batch

    def _coded(self, values: npt.NDArray[np.str_], domain: Any, column: int) -> IntArray:
        """Return category codes, naming the row of a value that is no category."""
        labels = [str(code) for code in range(domain.size)] if domain.labels is None else list(domain.labels)
        codes = {label: code for code, label in enumerate(labels)}
        names, inverse = np.unique(values, return_inverse=True)
        known = np.asarray([codes.get(name, -1) for name in names.tolist()], dtype=np.int64)[inverse]
        if known.min() < 0:
            row = int(np.argmin(known))
            few, place = _validate.few(labels), self.table.place(row, self.table.columns[column])
            raise ValueError(
                f"{place}: {str(values[row])!r} is not among the categories {few}. "
                "Add it to --categories, or map it to one such as 'other' first."
            )
        return known

    def _check(self, batch: FloatArray, lows: FloatArray, highs: FloatArray) -> None:
        """Refuse the first value outside its public range, unless values are to be clipped."""
        outside = (batch < lows) | (batch > highs)
        if self.clip or not outside.any():
            return
        row, column = np.argwhere(outside)[0].tolist()
        name = self.table.columns[column]
        raise ValueError(
            f"{self.table.place(row, name)}: {batch[row, column]:g} is outside the "
            f"{'' if self.ranged else 'default '}range [{lows[column]:g}, {highs[column]:g}]. "
            f"Give the public range of the numbers, --range {name}=LOW,HIGH, or --clip to move such "
            f"numbers to the nearer end. {PUBLIC}"
        )

    def _check_whole(self, batch: FloatArray) -> None:
        """Refuse the first value between two points of the grid, unless values are to be moved."""
        whole = self.mechanism.domain.contains(batch)
        if not self.clip and not whole.all():
            row = int(np.argmin(whole))
            place = self.table.place(row, self.table.columns[0])
            raise ValueError(
                f"{place}: {batch[row, 0]:g} is not a whole number, which {self.mechanism.name} takes. "
                "Use --clip to round such numbers, or a mechanism for numbers between."
            )
