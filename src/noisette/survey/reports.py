"""Reports of a survey: one row a person and the public group she stated, in memory and in Parquet files."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from noisette._files import whole_file
from noisette.aggregation._arrow import naming
from noisette.aggregation.files import DAMAGED, REMAKE, description, metadata_for, metadata_of, open_parquet, shown
from noisette.mechanisms.written import other_law
from noisette.survey.survey import Rows, Survey

FORMAT = "noisette-survey-reports"
_BATCH_BYTES = 1 << 23  # of reports in a row group and in a batch


@dataclass(frozen=True, eq=False)
class SurveyReports:
    """Reports as structured rows, one field for each section of the survey, and the cell of public groups of each.

    ``len`` counts people; ``a + b`` and ``a.merge(b)`` put reports of one survey together.
    """

    survey: Survey
    rows: Rows
    cells: npt.NDArray[Any] | None

    def __post_init__(self) -> None:
        if self.rows.dtype != self.survey.row:
            raise ValueError(f"Expected reports of type {self.survey.row}, got {self.rows.dtype}.")
        if (self.cells is None) != (not self.survey.groups) or (
            self.cells is not None and (self.cells.shape != self.rows.shape or self.cells.max(initial=0) >= self._most)
        ):
            raise ValueError(f"Expected a code of the public groups below {self._most} for each report.")

    @property
    def _most(self) -> int:
        return self.survey.cells

    def __len__(self) -> int:
        return len(self.rows)

    def __repr__(self) -> str:
        return f"SurveyReports({len(self):,} people, {self.survey!r})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, SurveyReports):
            return NotImplemented
        pairs = ((self.cells, other.cells), (self.rows, other.rows))
        return self.survey == other.survey and all(np.array_equal(one, two) for one, two in pairs)  # type: ignore[arg-type]

    __hash__ = None  # type: ignore[assignment]  # equal by content

    def __add__(self, other: SurveyReports) -> SurveyReports:
        return self.merge(other)

    def merge(self, other: SurveyReports) -> SurveyReports:
        """Return the reports of both."""
        if not isinstance(other, SurveyReports):
            raise TypeError(f"Expected reports of a survey to merge, got {type(other).__name__}.")
        check_same(self.survey, other.survey)
        cells = None if self.cells is None else np.concatenate([self.cells, other.cells])
        return SurveyReports(self.survey, np.concatenate([self.rows, other.rows]), cells)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a Parquet file, which appears whole or not at all; `read` and `Survey.estimate` take it."""
        write(Path(path), self.survey, [self])

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> SurveyReports:
        """Read a file of reports with the survey that it names."""
        found = ReportsFile.open(path)
        batches = list(found.batches())
        cells = None if batches[0].cells is None else np.concatenate([one.cells for one in batches])
        return cls(found.survey, np.concatenate([one.rows for one in batches]), cells)


def check_same(own: Survey, other: Survey) -> None:
    """Refuse reports of different surveys."""
    if own is other:
        return
    mine, theirs = own.spec(), other.spec()
    wrong = [name for name in mine if name != "users" and mine[name] != theirs[name]]
    if wrong:
        differences = ", ".join(f"{name} {shown(mine[name])} and {shown(theirs[name])}" for name in wrong)
        raise ValueError(f"Expected reports of one survey; these differ in {differences}. Estimate them apart.")


def write(path: Path, survey: Survey, batches: Iterable[SurveyReports]) -> int:
    """Write batches of reports to a file, one row group of some 8 MB held at a time; return how many there were."""
    import pyarrow as pa
    import pyarrow.parquet as parquet

    kinds = [_kind(survey.row[name]) for name in survey.row.names or ()]
    fields = [pa.field(name, kind) for name, kind in zip(_names(survey), kinds, strict=True)]
    fields += [pa.field("cell", pa.uint16())] if survey.groups else []
    schema = pa.schema(fields, metadata=metadata_for(FORMAT, survey=json.dumps(survey.spec()), law=survey.law_sha256))
    rows, users = max(1, _BATCH_BYTES // survey.row.itemsize), 0
    with whole_file(path) as stream:
        with parquet.ParquetWriter(stream, schema, compression="zstd", write_page_checksum=True) as writer:
            for batch in batches:
                check_same(survey, batch.survey)
                for start in range(0, len(batch), rows):
                    writer.write_table(_table(batch, slice(start, start + rows), schema))
                users += len(batch)
        if users == 0:
            raise ValueError(f"Expected at least one report to write to {path}, got none.")
    return users


def _names(survey: Survey) -> list[str]:
    """Return the columns of the sections, and the column that says which section was drawn."""
    return [name.replace("part", "section") for name in survey.row.names or ()]


def _kind(dtype: Any) -> Any:
    """Return the Arrow type of a section: a number, or a list as long as a report."""
    import pyarrow as pa

    own = pa.from_numpy_dtype(dtype.base.newbyteorder("="))
    return own if not dtype.shape else pa.list_(own, int(np.prod(dtype.shape)))


def _table(batch: SurveyReports, rows: slice, schema: Any) -> Any:
    """Return some reports as an Arrow table."""
    import pyarrow as pa

    columns: list[Any] = []
    for name in batch.rows.dtype.names or ():
        values = np.ascontiguousarray(batch.rows[name][rows])
        flat = pa.array(values.astype(values.dtype.newbyteorder("="), copy=False).reshape(-1))
        shape = values.shape[1:]
        columns.append(pa.FixedSizeListArray.from_arrays(flat, int(np.prod(shape))) if shape else flat)
    if batch.cells is not None:
        columns.append(pa.array(batch.cells[rows].astype(np.uint16)))
    return pa.Table.from_arrays(columns, schema=schema)


@dataclass(frozen=True)
class ReportsFile:
    """A file of a survey's reports: the survey, how many people reported, and the reports in constant memory."""

    path: Path
    survey: Survey
    users: int

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> ReportsFile:
        """Read a file's description of itself; refuse a file that holds no survey's reports."""
        path = Path(path)
        otherwise = "not a file of a survey's reports. Give what reports.save or survey.privatize_file wrote."
        schema, users, metadata = description(path, FORMAT, otherwise)
        try:
            survey = Survey.from_spec(json.loads(metadata["noisette.survey"]))
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"{path} does not say well which survey it is of: {error} {REMAKE}") from error
        if why := other_law(survey.law_sha256, metadata.get("noisette.law")):
            raise ValueError(f"{path} cannot be estimated here. {why}")
        names = _names(survey) + (["cell"] if survey.groups else [])
        if schema.names != names:
            raise ValueError(f"{path} has columns {schema.names}, expected {names}. {REMAKE}")
        return cls(path, survey, users)

    def batches(self) -> Iterator[SurveyReports]:
        """Yield the reports, some 8 MB at a time."""
        size = max(1, _BATCH_BYTES // self.survey.row.itemsize)
        with naming(self.path, DAMAGED), open_parquet(self.path) as source:
            for batch in source.iter_batches(batch_size=size):
                rows = np.zeros(batch.num_rows, dtype=self.survey.row)
                for place, name in enumerate(self.survey.row.names or ()):
                    rows[name] = self._array(batch.column(place), rows[name])
                cells = batch.column("cell").to_numpy() if self.survey.groups else None
                yield SurveyReports(self.survey, rows, cells)

    def _array(self, column: Any, like: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return a column as the reports it was made from."""
        flat = column.flatten() if like.ndim > 1 else column
        if column.null_count or flat.null_count or len(flat) != like.size:
            raise ValueError(f"{self.path} has missing values in a section. {REMAKE}")
        return np.asarray(flat.to_numpy(zero_copy_only=False).reshape(like.shape))


def is_survey_file(path: str | os.PathLike[str]) -> bool:
    """Tell whether a Parquet file says that it holds reports of a survey."""
    with naming(Path(path), DAMAGED), open_parquet(Path(path)) as source:
        return metadata_of(source.schema_arrow).get("noisette.format") == FORMAT


def batches_of(survey: Survey, reports: Any) -> Iterator[SurveyReports]:
    """Yield reports of a survey from memory or from a file, refusing those of another one."""
    if isinstance(reports, SurveyReports):
        check_same(survey, reports.survey)
        yield reports
    elif isinstance(reports, str | os.PathLike):
        found = ReportsFile.open(reports)
        try:
            check_same(survey, found.survey)
        except ValueError as error:
            raise ValueError(f"{reports}: {error}") from error
        yield from found.batches()
    else:
        raise TypeError(f"Expected reports of a survey or the path of a file of them, got {type(reports).__name__}.")
