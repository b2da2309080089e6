"""Estimates as files: one row for each quantity, of everybody and of every group."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator, Mapping
from typing import Any

FORMATS = {
    "json": "application/json",
    "csv": "text/csv; charset=utf-8",
    "parquet": "application/vnd.apache.parquet",
}

_TEXTS = ("campaign", "period", "group", "member", "name")
_NUMBERS = ("value", "std_error", "low", "high", "predicted_std_error")
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")


def rows(found: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield what `noisette.collector.results.estimates` returned as flat rows; ``group`` is empty for everybody."""
    head = {"campaign": found["campaign"], "period": found["period"]}
    for row in found["dimensions"]:
        yield head | {"group": "", "member": ""} | row
    for group in found["groups"]:
        for value in group["values"]:
            for row in value["dimensions"]:
                yield head | {"group": group["name"], "member": value["value"]} | row


def to_csv(found: Mapping[str, Any]) -> bytes:
    """Return the rows as CSV in which no text is taken for a formula by a spreadsheet."""
    out = io.StringIO(newline="")
    columns = (*_TEXTS, *_NUMBERS, "reports")
    writer = csv.writer(out, lineterminator="\r\n")
    writer.writerow(columns)
    for row in rows(found):
        texts = [inert(str(row[name])) for name in _TEXTS]
        writer.writerow([*texts, *(_shown(row.get(name)) for name in (*_NUMBERS, "reports"))])
    return out.getvalue().encode("utf-8")


def inert(text: str) -> str:
    """Return a text that a spreadsheet shows and does not run: what could start a formula gets an apostrophe.

    >>> inert('=HYPERLINK("evil")'), inert(" =2"), inert("bike")
    ('\\'=HYPERLINK("evil")', "' =2", 'bike')
    """
    return f"'{text}" if text.lstrip(" ").startswith(_FORMULA) else text


def _shown(number: Any) -> str:
    if number is None or not math.isfinite(number):
        return ""
    return repr(float(number)) if isinstance(number, float) else str(number)


def to_parquet(found: Mapping[str, Any]) -> bytes:
    """Return the rows as Parquet; what is not known is null."""
    import pyarrow as pa
    import pyarrow.parquet as parquet

    listed = list(rows(found))
    columns = {name: pa.array([str(row[name]) for row in listed], pa.string()) for name in _TEXTS}
    columns |= {name: pa.array([_finite(row.get(name)) for row in listed], pa.float64()) for name in _NUMBERS}
    columns["reports"] = pa.array([int(row["reports"]) for row in listed], pa.int64())
    out = io.BytesIO()
    parquet.write_table(pa.table(columns), out)
    return out.getvalue()


def _finite(number: Any) -> float | None:
    return None if number is None or not math.isfinite(number) else float(number)
