"""From the words of a command line to a mechanism."""

from __future__ import annotations

import csv
import difflib
import math
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from noisette.domains import Box, Categorical, Grid, Interval, L2Ball, TensorDomain

Ranges = Mapping[str, tuple[float, float]]
_DEFAULT = (-1.0, 1.0)


def split_list(text: str) -> list[str]:
    """Split at commas; a name with a comma stands in double quotes."""
    return [part.strip() for part in next(csv.reader([text], skipinitialspace=True), [])]


def parse_numbers(text: str, option: str) -> list[float]:
    """Return a list of finite numbers."""
    try:
        numbers = [float(part) for part in split_list(text)]
    except ValueError:
        numbers = []
    if not numbers or not all(map(math.isfinite, numbers)):
        raise ValueError(f"Expected numbers separated by commas, got {option} {text!r}. Write e.g. {option} 0.1,0.2.")
    return numbers


def parse_range(text: str, *, why: str = "") -> tuple[float, float]:
    """Return the ends of a range."""
    try:
        low, high = (float(part) for part in text.split(","))
    except ValueError:
        raise ValueError(
            f"Expected two numbers, got --range {text!r}. Write e.g. --range 0,100. {why}".rstrip()
        ) from None
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise ValueError(f"Expected a finite LOW < HIGH, got --range {text!r}.")
    return low, high


def parse_ranges(texts: Sequence[str], columns: Sequence[str], *, why: str = "") -> Ranges:
    """Return the range of each column that has one; a range without a column is that of all others."""
    common, own = None, {}
    for text in texts:
        name, mark, ends = text.rpartition("=")
        if not mark:
            common = parse_range(ends, why=why)
        elif name in columns:
            own[name] = parse_range(ends, why=why)
        else:
            raise ValueError(f"--range {text!r} is for a column that is not used. {_near(name, columns)}")
    return own if common is None else {name: own.get(name, common) for name in columns}


def parse_categories(text: str | None) -> Categorical | None:
    """Return a public list of categories: names, a file of names, or how many there are."""
    if text is None:
        return None
    if text.startswith("@"):
        lines = Path(text[1:]).read_text(encoding="utf-8").splitlines()
        names = [line.strip() for line in lines if line.strip()]
    else:
        names = [name for name in split_list(text) if name]
    if len(names) == 1 and names[0].isdigit():
        return Categorical(int(names[0]))
    if len(names) < 2:
        raise ValueError(
            f"Expected at least two categories, got --categories {text!r}. Write e.g. --categories no,yes."
        )
    return Categorical(labels=tuple(names))


def parse_column_categories(texts: Sequence[str], columns: Sequence[str]) -> dict[str, Categorical]:
    """Return the public categories of each column that has some; a list without a column is that of the only one."""
    result: dict[str, Categorical] = {}
    for text in texts:
        name, mark, values = text.partition("=")
        if not (mark and name in columns):
            if len(columns) > 1:
                raise ValueError(
                    f"--categories {text!r} names none of the columns {', '.join(columns)}. Of several columns write "
                    "COLUMN=A,B,... for each that holds categories, or choose one with --columns."
                )
            name, values = columns[0], text
        found = parse_categories(values)
        if found is not None:
            result[name] = found
    return result


def parse_levels(levels: str | None, budgets: str | None) -> tuple[list[float], list[float]] | None:
    """Return the edges of levels and their budgets, which go together."""
    if levels is None and budgets is None:
        return None
    if levels is None or budgets is None:
        raise ValueError("Give --levels and --budgets together, e.g. --levels -1,-0.5,0.5,1 --budgets 1,2,1.")
    return parse_numbers(levels, "--levels"), parse_numbers(budgets, "--budgets")


def find(name: str) -> type[Any]:
    """Return a mechanism of the catalogue, or say which names are near."""
    from noisette.mechanisms import CATALOGUE

    if name not in CATALOGUE:
        raise ValueError(f"Unknown mechanism {name!r}. {_near(name, list(CATALOGUE))}")
    return CATALOGUE[name]


def build(
    name: str,
    columns: Sequence[str],
    *,
    epsilon: float,
    delta: float,
    report: int | None,
    ranges: Ranges,
    categories: Categorical | None,
    levels: tuple[list[float], list[float]] | None = None,
) -> Any:
    """Return the mechanism ``name`` for some columns of a table, from what kind of input its example takes.

    ``categories`` are those of the only column, ``levels`` edges and budgets, where the mechanism has levels.
    """
    cls = find(name)
    example: Any = cls.example(epsilon)
    kind, dims = example.domain.kind, len(columns)
    budget: dict[str, float] = {"epsilon": epsilon}
    if delta:
        if "delta" not in {field.name for field in fields(cls)}:
            raise ValueError(f"{name} has a pure guarantee: leave --delta {delta:g} out.")
        budget["delta"] = delta
    elif example.guarantee.delta > 0:
        raise ValueError(
            f"{name} has no pure guarantee: give a delta far below one in the number of rows, --delta 1e-6."
        )
    if (categories is not None) != (kind == "categorical"):
        if categories is None:
            column = "COLUMN=" if dims > 1 else ""
            raise ValueError(f"{name} needs a public list of categories: --categories {column}A,B,... or @FILE.")
        raise ValueError(f"{name} takes numbers: leave --categories out, or choose a mechanism for frequencies.")
    if ranges and kind == "categorical":
        raise ValueError(f"{name} takes categories: leave --range out.")
    if report is not None and kind != "interval":
        raise ValueError(f"{name} reports its input as a whole: leave --report {report} out.")
    if kind in ("categorical", "grid") and dims > 1:
        raise ValueError(f"{name} takes one column, got {dims}. Choose one with --columns.")
    if kind == "categorical":
        return cls(**budget, domain=categories)
    if kind == "grid":
        if not ranges:
            raise ValueError(f"{name} takes whole numbers of a public range: give --range LOW,HIGH.")
        return cls(**budget, domain=Grid(*ranges[columns[0]]))
    if hasattr(example, "fitted"):
        if dims > 1 or report is not None:
            raise ValueError(f"{name} has levels of one number: choose a column with --columns, leave --report out.")
        if levels is not None:
            if ranges:
                raise ValueError("The levels go from end to end of the range: leave --range out.")
            return cls(*map(tuple, levels), **({"delta": delta} if delta else {})).calibrate(total=epsilon)
        return example.fitted(domain=Interval(*ranges.get(columns[0], _DEFAULT)), **budget)
    if levels is not None:
        raise ValueError(f"{name} has no levels: leave --levels and --budgets out, or use levelled or optimal-graded.")
    if kind == "interval":
        return find("sampled")(name, dims=dims, report=report, domain=_box(columns, ranges), **budget)
    if hasattr(example, "inner"):
        raise ValueError(
            f"{name} needs a mechanism for one number: name that one, e.g. --mechanism hybrid. For categories in "
            "several columns give --categories COLUMN=A,B,... for each, and --mechanism oue."
        )
    if example.guarantee.model != "local":
        raise ValueError(f"{name} answers for a curator who holds the whole table, not row by row: use it from Python.")
    if cls.kind == "direction":
        raise ValueError(f"{name} answers with a magnitude and angles, not with columns: use it from Python.")
    box = _box(columns, ranges)
    if kind == "tensor":
        return cls(**budget, domain=_tensor(name, box))
    return cls(**budget, domain=box if kind == "box" else _ball(name, box))


def _box(columns: Sequence[str], ranges: Ranges) -> Box:
    """Return the product of the columns' ranges, short where they are all alike."""
    ends = [ranges.get(name, _DEFAULT) for name in columns]
    if len(set(ends)) == 1:
        return Box(len(ends), *ends[0])
    return Box(len(ends), tuple(low for low, _ in ends), tuple(high for _, high in ends))


def _ball(name: str, box: Box) -> L2Ball:
    """Return the smallest ball about zero that holds the box, so that no row has to be shortened."""
    if any(box.lows != -box.highs) or len(set(box.highs.tolist())) > 1:
        raise ValueError(f"{name} takes vectors about zero: give one --range -R,R for all columns.")
    return L2Ball(box.dims, float(box.highs[0]) * math.sqrt(box.dims))


def _tensor(name: str, box: Box) -> TensorDomain:
    """Return rows as tensors of one mode, whose entries share one range."""
    ends = set(zip(box.lows.tolist(), box.highs.tolist(), strict=True))
    if len(ends) > 1:
        raise ValueError(f"{name} takes entries of one range: give one --range LOW,HIGH for all columns.")
    return TensorDomain((box.dims,), *ends.pop())


def _near(name: str, names: Sequence[str]) -> str:
    close = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
    known = ", ".join(names[:30])
    return f"Did you mean {' or '.join(close)}?" if close else f"Expected one of {known}."
