"""Dates and times of day as numbers: days since 1970 and seconds since midnight, and back."""

from __future__ import annotations

import datetime as dt
import math
from typing import Any

_EPOCH = dt.date(1970, 1, 1)
DAY = 86_400  # seconds


def axis_of(value: Any) -> str:
    """Return "date", "time" or "number": what a value is, dates and times also as ISO 8601 writes them.

    >>> axis_of("1990-12-31"), axis_of("08:30"), axis_of(3.5)
    ('date', 'time', 'number')
    """
    if isinstance(value, str):
        return "time" if ":" in value and "-" not in value else "date"
    return "date" if isinstance(value, dt.date) else "time" if isinstance(value, dt.time) else "number"


def number_of(value: Any, axis: str, name: str) -> Any:
    """Return a date or a time as a number; a number stays what it is.

    >>> number_of("1970-01-31", "date", "born"), number_of("08:30", "time", "rises")
    (30.0, 30600.0)
    """
    if axis == "number":
        return value
    try:
        if axis == "date":
            day = dt.date.fromisoformat(value) if isinstance(value, str) else value
            return float(day.toordinal() - _EPOCH.toordinal())
        clock = dt.time.fromisoformat(value) if isinstance(value, str) else value
        return clock.hour * 3600 + clock.minute * 60 + clock.second + clock.microsecond / 1e6
    except (AttributeError, ValueError) as error:
        like = "1990-12-31" if axis == "date" else "08:30"
        raise ValueError(f"Expected {name}={value!r} to be a {axis}, such as {like}.") from error


def shown(value: float, axis: str, whole: bool) -> Any:
    """Return a number as its axis shows it: a date, a time of day, a whole number or a number.

    >>> shown(30.2, "date", True), shown(30600.0, "time", False), shown(3.0, "number", True)
    (datetime.date(1970, 1, 31), datetime.time(8, 30), 3)
    """
    if not math.isfinite(value):
        return value
    if axis == "date":
        return dt.date.fromordinal(round(value) + _EPOCH.toordinal())
    if axis == "time":
        second = min(max(round(value), 0), DAY - 1)
        return dt.time(second // 3600, second // 60 % 60, second % 60)
    return round(value) if whole else value


def column_of(column: Any, axis: str) -> Any:
    """Return an Arrow column of dates or times as one of numbers; raises Arrow's own error for anything else."""
    import pyarrow as pa

    if axis == "date":
        days = column if pa.types.is_date32(column.type) else column.cast(pa.date32(), safe=False)
        return days.cast(pa.int32())
    if pa.types.is_string(column.type):  # HH:MM or HH:MM:SS
        import pyarrow.compute as compute

        short = compute.equal(compute.utf8_length(column), 5)
        whole = compute.if_else(short, compute.binary_join_element_wise(column, ":00", ""), column)
        dated = compute.binary_join_element_wise("1970-01-01 ", whole, "")
        return compute.strptime(dated, format="%Y-%m-%d %H:%M:%S", unit="s").cast(pa.int64())
    clock = column.cast(pa.time64("us"))
    return pa.array(clock.cast(pa.int64()).to_numpy(zero_copy_only=False) / 1e6, from_pandas=True)
