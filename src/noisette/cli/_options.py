"""From the words of a command line to a mechanism."""

from __future__ import annotations

import csv
import difflib
import math
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from noisette.core import Capabilities
from noisette.domains import Attributes, Box, Categorical, Grid, Interval

Ranges = Mapping[str, tuple[float, float]]
_DEFAULT = (-1.0, 1.0)
ROOT = Path(__file__).resolve().parents[3]  # of a checkout


def split_list(text: str) -> list[str]:
    """Split at commas; a name with a comma stands in double quotes."""
    return [word.strip() for word in next(csv.reader([text], skipinitialspace=True), [])]


def parse_numbers(text: str, option: str) -> list[float]:
    """Return a list of finite numbers."""
    try:
        numbers = [float(word) for word in split_list(text)]
    except ValueError:
        numbers = []
    if not numbers or not all(map(math.isfinite, numbers)):
        raise ValueError(f"Expected numbers separated by commas, got {option} {text!r}. Write e.g. {option} 0.1,0.2.")
    return numbers


def parse_range(text: str, *, why: str = "") -> tuple[float, float]:
    """Return the ends of a range."""
    try:
        low, high = (float(word) for word in text.split(","))
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
    """Return the mechanism ``name`` for some columns of a table, by what it declares to take.

    ``categories`` are those of the only column, ``levels`` edges and budgets, where the mechanism has levels.
    """
    from noisette.mechanisms import CATALOGUE
    from noisette.mechanisms import build as builder

    able = find(name).capabilities
    if able.composite:
        raise ValueError(
            f"{name} is built from a mechanism for one value: name that one. For categories in several columns give "
            "--categories COLUMN=A,B,... for each, and --mechanism one for categories."
        )
    if levels is not None and not able.levels:
        graded = " or ".join(own for own, cls in CATALOGUE.items() if cls.capabilities.levels)
        raise ValueError(f"{name} has no levels: leave --levels and --budgets out, or use {graded}.")
    if able.levels and (len(columns) > 1 or report is not None):
        raise ValueError(f"{name} has levels of one number: choose a column with --columns, leave --report out.")
    if levels is not None and ranges:
        raise ValueError("The levels go from end to end of the range: leave --range out.")
    domain: Any = _domain(name, able, columns, ranges, categories)
    options: dict[str, Any] = {}
    if levels is not None:
        options["edges"], options["epsilons"] = map(tuple, levels)
        domain = Interval(levels[0][0], levels[0][-1])
    found = builder.collecting(name, domain, delta=1.0)  # a delta that is missing is asked for when it is built
    if found.obstacle:
        raise ValueError(f"{name} cannot privatise these columns: {found.obstacle}")
    if report is not None and not found.sampled:
        raise ValueError(f"{name} reports its input as a whole: leave --report {report} out.")
    return builder.build(name, domain, epsilon=epsilon, delta=delta, report=report, **options)


def build_record(
    names: Sequence[str],
    columns: Sequence[str],
    *,
    ranges: Ranges,
    categories: Mapping[str, Categorical],
    **budget: Any,
) -> Any:
    """Return the mechanism for rows that hold categories beside other categories or numbers."""
    from noisette.mechanisms.build import build_record as made

    for name in sorted(set(categories) & set(ranges)):
        if len(ranges) < len(columns):  # a range for all columns is meant for those that hold numbers
            raise ValueError(f"Column {name!r} has --categories and a --range: leave one of them out.")
    for name in names:
        find(name)
    parts = (categories[name] if name in categories else Interval(*ranges.get(name, _DEFAULT)) for name in columns)
    return made(names, Attributes(tuple(parts), names=tuple(columns)), **budget)


def _domain(
    name: str, able: Capabilities, columns: Sequence[str], ranges: Ranges, categories: Categorical | None
) -> Any:
    """Return the domain of some columns, of a kind that the mechanism takes."""
    categorical, whole = Categorical in able.domains, Grid in able.domains and Interval not in able.domains
    if categorical and categories is None:
        column = "COLUMN=" if len(columns) > 1 else ""
        raise ValueError(f"Give {name} a public list of categories: --categories {column}A,B,... or @FILE.")
    if categories is not None and not categorical:
        raise ValueError(f"{name} takes numbers: leave --categories out, or choose a mechanism for frequencies.")
    if ranges and categorical:
        raise ValueError(f"{name} takes categories: leave --range out.")
    if (categorical or whole) and len(columns) > 1:
        raise ValueError(f"{name} takes one column, got {len(columns)}. Choose one with --columns.")
    if categorical:
        return categories
    if whole and not ranges:
        raise ValueError(f"{name} takes whole numbers of a public range: give --range LOW,HIGH.")
    ends = [ranges.get(column, _DEFAULT) for column in columns]
    if whole or able.levels:
        return (Grid if whole else Interval)(*ends[0])
    if len(set(ends)) == 1:
        return Box(len(ends), *ends[0])
    return Box(len(ends), tuple(low for low, _ in ends), tuple(high for _, high in ends))


def _near(name: str, names: Sequence[str]) -> str:
    close = difflib.get_close_matches(name, names, n=3, cutoff=0.6)  # a guess that is far off hides the list
    known = ", ".join(names)
    return f"Did you mean {' or '.join(close)}?" if close else f"Expected one of {known}."


def warn_of_seed(seed: int | None) -> None:
    """Say on standard error that reports of a known seed protect nobody."""
    if seed is not None:
        click.echo("Warning: --seed makes the noise predictable. Use it for tests only.", err=True)


def from_checkout(name: str, what: str) -> Any:
    """Return a module that comes with the repository and not with the package."""
    place = ROOT.joinpath(*name.split("."))
    if not (place.with_suffix(".py").is_file() or (place / "__init__.py").is_file()):
        raise FileNotFoundError(
            f"{what} not in {place.parent}. That comes with the repository, not with the package: run this command in "
            "a checkout that has it."
        )
    if str(ROOT) not in sys.path:
        sys.path.insert(0, str(ROOT))
    return import_module(name)
