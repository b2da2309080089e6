"""Edges of files and partitions: names beside numbers, and how many numbers a partition has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import noisette as nz
from noisette.aggregation import split_files, write_reports
from noisette.aggregation import tables as reading


@pytest.mark.parametrize(
    ("names", "header", "refused"),
    [
        (["1", "2"], True, True),
        (["1", "age"], True, False),
        (["age", "2020"], True, False),
        (["1", "2"], False, False),
        (["1e3"], True, True),
        (["nan"], True, True),
        (["1", "1"], False, True),
        (["age", "age"], True, True),
        (["age", "size"], True, False),
    ],
)
def test_names_of_columns(names: list[str], header: bool, refused: bool) -> None:
    if refused:
        with pytest.raises(ValueError, match=r"two columns named|starts with numbers"):
            reading._check_names(Path("people.csv"), names, header=header)
    else:
        reading._check_names(Path("people.csv"), names, header=header)


@pytest.mark.parametrize(
    ("values", "users"), [(1, [4, 5, 6]), (12, [4, 5, 6]), (13, [9, 6]), (27, [9, 6]), (28, [15]), (10**9, [15])]
)
def test_partitions_have_about_as_many_numbers_as_are_asked_for(values: int, users: list[int], tmp_path: Path) -> None:
    """Three files of 4, 5 and 6 users who report three numbers each."""
    mechanism: Any = nz.DuchiBox(1.0, dims=3)
    paths = []
    for size in (4, 5, 6):
        paths.append(tmp_path / f"{size}.parquet")
        write_reports(paths[-1], mechanism, iter([mechanism.privatize(np.zeros((size, 3)), rng=size)]))
    found = split_files(paths, values=values)
    assert [part.users for part in found.partitions] == users
    assert found.users == 15
