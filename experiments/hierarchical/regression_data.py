"""The regression of income on attributes of the American Community Survey, in the form of the paper's census tables."""

from __future__ import annotations

from typing import Any

import numpy as np

from noisette import Categorical, Interval, datasets
from noisette.regression import Design

TARGET = Interval(0, 200_000)

# Public ranges and categories from the survey's code book; 0 stands for "does not apply".
ATTRIBUTES: dict[str, Interval | Categorical] = {
    "AGEP": Interval(0, 100),
    "SCHL": Interval(0, 24),
    "WKHP": Interval(0, 99),
    "DIS": Interval(1, 2),
    "HICOV": Interval(0, 2),
    "SEX": Categorical(labels=("1", "2")),
    "RAC1P": Categorical(labels=tuple(map(str, range(1, 10)))),
    "MAR": Categorical(labels=tuple(map(str, range(6)))),
    "ESR": Categorical(labels=tuple(map(str, range(7)))),
    "COW": Categorical(labels=tuple(map(str, range(10)))),
}


def design(coding: Any) -> Design:
    """Return the columns: five numbers and five categorical attributes, as the paper's US table has."""
    return Design(tuple(ATTRIBUTES.values()), names=tuple(ATTRIBUTES), coding=coding)


def people(*, every: bool = False) -> tuple[Any, Any]:
    """Return the attributes and the incomes of all who state one; with ``every`` the others too, with income 0."""
    import pyarrow.compute as compute

    table = datasets.table("acs", [*ATTRIBUTES, "PINCP"])
    if not every:
        table = table.filter(compute.is_valid(table["PINCP"]))
    columns = [np.asarray(compute.fill_null(table[name], 0), dtype=np.float64) for name in (*ATTRIBUTES, "PINCP")]
    return np.column_stack(columns[:-1]), columns[-1]
