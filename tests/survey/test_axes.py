"""Dates and times as numbers, one by one and as columns, at midnight and around it."""

from __future__ import annotations

import datetime as dt
import math
from typing import Any

import pyarrow as pa
import pytest

from noisette.survey.coding.axes import axis_of, column_of, number_of, shown


@pytest.mark.parametrize(
    ("value", "axis"),
    [
        ("1990-12-31", "date"),
        ("08:30", "time"),
        ("1990-12-31T08:30", "date"),  # with a hyphen it is no time of day
        ("tuesday", "date"),
        (dt.date(1990, 1, 2), "date"),
        (dt.time(8, 30), "time"),
        (3.5, "number"),
        (7, "number"),
    ],
)
def test_what_a_value_is(value: Any, axis: str) -> None:
    assert axis_of(value) == axis


def test_one_by_one_and_back() -> None:
    for text, days in (("1970-01-01", 0.0), ("1969-12-31", -1.0), ("1972-03-01", 2 * 365 + 31 + 29)):
        assert number_of(text, "date", "x") == number_of(dt.date.fromisoformat(text), "date", "x") == days
        assert shown(days, "date", True) == dt.date.fromisoformat(text)
    for text, seconds in (
        ("00:00", 0.0),
        ("00:01:02", 62.0),
        ("13:05:09.25", 13 * 3600 + 309.25),
        ("23:59:59", 86399.0),
    ):
        assert number_of(text, "time", "x") == number_of(dt.time.fromisoformat(text), "time", "x") == seconds
        assert shown(seconds, "time", False) == dt.time.fromisoformat(text).replace(microsecond=0)
    assert [shown(value, "time", False) for value in (-5.0, 86399.4, 86400.0, 1e9)] == [
        dt.time(0),
        dt.time(23, 59, 59),
        dt.time(23, 59, 59),
        dt.time(23, 59, 59),
    ]
    assert shown(0.5000001, "date", True) == dt.date(1970, 1, 2)
    assert (shown(2.6, "number", True), shown(2.6, "number", False)) == (3, 2.6)
    assert math.isnan(shown(math.nan, "date", True))
    assert number_of("x", "number", "n") == "x"
    for value, axis in (("1990-13-01", "date"), ("25:00", "time"), (5, "date"), (5, "time"), (None, "date")):
        with pytest.raises(ValueError, match=f"to be a {axis}"):
            number_of(value, axis, "x")


def test_columns_are_read_as_their_entries() -> None:
    days = ["1970-01-02", "1969-12-30", None]
    for column in (pa.array(days), pa.array([d and dt.date.fromisoformat(d) for d in days])):
        assert column_of(column, "date").to_pylist() == [1, -2, None]
    moments = pa.array([dt.datetime(1970, 1, 3, 15, 0)])
    assert column_of(moments, "date").to_pylist() == [2]
    assert column_of(pa.array(["08:30", "08:30:15", None]), "time").to_pylist() == [30600, 30615, None]
    clocks = pa.array([dt.time(8, 30, 15, 500_000), dt.time(0, 0, 1)])
    assert column_of(clocks, "time").to_pylist() == [30615.5, 1.0]
    for wrong in (["08:30", "8"], ["1970-01-01"]):
        with pytest.raises(pa.ArrowInvalid):
            column_of(pa.array(wrong), "time")
