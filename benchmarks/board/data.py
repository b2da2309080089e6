"""People's values from the data sets: numbers with their range, categories as codes, vectors, texts."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

import numpy as np

from noisette import datasets

SEED = 24


def sample(values: Any, users: int) -> Any:
    """Return some of the people, the same ones always."""
    chosen = np.random.default_rng(SEED).permutation(len(values))[:users]
    return values[np.sort(chosen)]


@lru_cache(maxsize=64)
def column(table: str, name: str) -> Any:
    """Return a column without its missing values."""
    found = datasets.table(table, [name]).column(name).drop_null()
    return found.to_numpy(zero_copy_only=False)


@lru_cache(maxsize=64)
def codes(table: str, name: str) -> tuple[Any, int]:
    """Return a column of categories as codes, and how many there are."""
    labels, found = np.unique(column(table, name).astype(str), return_inverse=True)
    return found, len(labels)


@lru_cache(maxsize=16)
def binned(name: str, users: int) -> Any:
    """Return so many people of a histogram of DPBench, each by the number of their bin."""
    counts = datasets.histograms()[name].reshape(-1)
    rng = np.random.default_rng(SEED)
    return rng.choice(len(counts), users, p=counts / counts.sum())


@lru_cache(maxsize=4)
def profiles(size: int) -> tuple[Any, int]:
    """Return persons of the census as one of millions of combinations of their answers."""
    sizes = {"AGEP": 100, "STATE": 57, "SEX": 3, "RAC1P": 10, "SCHL": 25, "MAR": 6, "HICOV": 3}
    table = datasets.table("acs", list(sizes))
    found, total = np.zeros(table.num_rows, dtype=np.int64), 1
    for name, places in sizes.items():
        if total * places > size:
            break
        own = table.column(name).fill_null(0).to_numpy().astype(np.int64) % places
        found, total = found * places + own, total * places
    return found, total


@lru_cache(maxsize=4)
def images(name: str, users: int) -> Any:
    """Return pictures as rows of numbers from 0 to 1."""
    found = sample(datasets.images(name).train, users)
    return found.reshape(len(found), -1).astype(np.float64) / 255


@lru_cache(maxsize=2)
def words(users: int) -> list[str]:
    """Return one word of each review, of the small letters a to z and at most ten."""
    rng = np.random.default_rng(SEED)
    found = []
    for text in sample(np.asarray(column("imdb", "text")), users):
        own = re.findall(r"[a-z]{5,10}", str(text).lower())
        found.append(own[rng.integers(len(own))] if own else "nothing")
    return found
