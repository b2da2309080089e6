"""Columns of Arrow as numbers and texts, and what Arrow says of a file that it cannot read, in words that help."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from noisette._validate import FloatArray

IMPUTE = "Remove the row or impute the value before privatising."
_MISSING = frozenset({"", "na", "n/a", "nan", "null", "none", "#n/a", "-"})


@contextmanager
def naming(path: Path, complaint: str) -> Iterator[None]:
    """Turn what Arrow says of a bad file into one that names it: "{path} {complaint}", with a place for {reason}."""
    import pyarrow as pa

    try:
        yield
    except (FileNotFoundError, IsADirectoryError, PermissionError):
        raise
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        reason = str(error).splitlines()[0].rstrip(".")
        raise ValueError(f"{path} {complaint.format(reason=reason)}") from error


def as_text(column: Any, place: Callable[[int], str]) -> Any:
    """Return a column of Arrow as text, or name the first value that is missing; ``place`` says where a row stands."""
    import pyarrow as pa
    import pyarrow.compute as compute

    text = compute.utf8_trim_whitespace(_plain(column, place).cast(pa.string()))
    empty = np.asarray(compute.fill_null(compute.equal(text, ""), True))
    if empty.any():
        raise ValueError(f"{place(int(np.argmax(empty)))}: the value is missing. {IMPUTE}")
    return text


def as_numbers(column: Any, place: Callable[[int], str]) -> FloatArray:
    """Return a column of Arrow as numbers, or name the first value that is none or missing."""
    import pyarrow as pa

    column = _plain(column, place)
    try:
        numbers = column.cast(pa.float64(), safe=False)
    except pa.ArrowInvalid:
        numbers = pa.array([_parsed(text, place, row) for row, text in enumerate(column.to_pylist())])
    except pa.ArrowNotImplementedError as error:
        raise ValueError(f"{place(0)} holds {column.type}, not numbers. Choose other columns.") from error
    if numbers.null_count:
        row = int(np.argmax(np.asarray(numbers.is_null())))
        raise ValueError(f"{place(row)}: the value is missing. {IMPUTE}")
    return np.asarray(numbers.to_numpy(zero_copy_only=False), dtype=np.float64)


def _plain(column: Any, place: Callable[[int], str]) -> Any:
    """Return a column without a dictionary; refuse types such as periods of pandas, held as numbers that count them."""
    import pyarrow as pa

    if isinstance(column.type, pa.BaseExtensionType):
        raise ValueError(f"{place(0)} holds {column.type}, not numbers or texts. Turn it into some first.")
    return column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column


def _parsed(text: str | None, place: Callable[[int], str], row: int) -> float:
    """Convert one piece of text that Arrow may have refused."""
    stripped = (text or "").strip()
    try:
        return float(stripped.replace("_", "?"))  # Python reads 1_0 as 10
    except ValueError:
        if stripped.lower() in _MISSING:
            shown = f" (it is written {text!r})" if stripped else ""
            raise ValueError(f"{place(row)}: the value is missing{shown}. {IMPUTE}") from None
        raise ValueError(f"{place(row)}: {text!r} is not a number. Correct it, or choose other columns.") from None
