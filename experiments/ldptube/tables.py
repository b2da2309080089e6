"""The data of the thesis's chapter 4: three synthetic tables as it describes them, and two real ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property

import numpy as np

from noisette import datasets
from noisette._validate import FloatArray

_SEED = 4
_BLOCK = 25  # columns in memory at a time


@dataclass(frozen=True, eq=False)
class Table:
    """Users by dimensions on [-1, 1], read some columns at a time."""

    name: str
    users: int
    dims: int
    columns: Callable[[range], FloatArray]

    def blocks(self) -> Iterator[tuple[slice, FloatArray]]:
        """Yield the table some columns at a time."""
        for start in range(0, self.dims, _BLOCK):
            place = range(start, min(start + _BLOCK, self.dims))
            yield slice(place.start, place.stop), self.columns(place)

    @cached_property
    def powers(self) -> FloatArray:
        """Means of the values and of their squares, a row each."""
        result = np.empty((2, self.dims))
        for place, values in self.blocks():
            result[:, place] = values.mean(axis=0), np.mean(values**2, axis=0)
        return result

    @property
    def mean(self) -> FloatArray:
        """The truth that a collection estimates."""
        return np.asarray(self.powers[0])

    def resampled(self, dims: int) -> Table:
        """Return a table of columns drawn at random, some again if there are not enough, as the thesis does."""
        order = np.random.default_rng([_SEED, dims]).permutation(self.dims)
        if dims > self.dims:
            order = np.append(order, np.random.default_rng([_SEED, dims, 1]).integers(0, self.dims, dims - self.dims))
        chosen = order[:dims]
        result = Table(self.name, self.users, dims, lambda place: self.columns(range(0)))
        result.__dict__["powers"] = self.powers[:, chosen]
        return result


def gaussian(users: int, dims: int) -> Table:
    """N(mean, 1/16^2), a tenth of the means 0.9 and the others 0, cut at 1."""

    def columns(place: range) -> FloatArray:
        noise = np.stack([_rng("gaussian", j).standard_normal(users) for j in place], axis=1) / 16
        return np.minimum(noise + np.where(np.asarray(place) < dims // 10, 0.9, 0.0), 1.0)

    return Table("Gaussian", users, dims, columns)


def poisson(users: int, dims: int) -> Table:
    """Poisson counts with rates from 1 to 99, each dimension mapped from its least and largest count to [-1, 1]."""
    rates = _rng("poisson", 0).uniform(1, 99, dims)

    def columns(place: range) -> FloatArray:
        counts = np.stack([_rng("poisson", 1 + j).poisson(rates[j], users) for j in place], axis=1)
        low, high = counts.min(axis=0), counts.max(axis=0)
        return np.asarray(2 * (counts - low) / np.maximum(high - low, 1) - 1)

    return Table("Poisson", users, dims, columns)


def uniform(users: int, dims: int) -> Table:
    """Uniform values on [-1, 1]."""

    def columns(place: range) -> FloatArray:
        return np.stack([_rng("uniform", j).uniform(-1, 1, users) for j in place], axis=1)

    return Table("Uniform", users, dims, columns)


@cache
def mnist() -> Table:
    """The 60,000 training images of MNIST, one a user; each pixel from black to white is -1 to 1."""
    pixels = datasets.images("mnist").train.reshape(60_000, 784)
    return Table("MNIST", 60_000, 784, lambda place: pixels[:, place.start : place.stop] / 127.5 - 1)


@cache
def acs(users: int = 150_000, dims: int = 750) -> Table:
    """Persons of the American Community Survey 2024 whose income is known, drawn at random; features are -1 or 1.

    Thresholds of age, hours, income and wages; every code of every other column; then the same for women only, until
    there are ``dims``. Features that nobody or everybody has are left out.
    """
    codes = ("SEX", "STATE", "RAC1P", "HISP", "CIT", "SCHL", "DIS", "MAR", "ESR", "COW", "HICOV", "GQ")
    raw = datasets.table("acs", ["AGEP", "WKHP", "PINCP", "WAGP", *codes])
    income = raw["PINCP"].to_numpy(zero_copy_only=False).astype(float)
    chosen = np.random.default_rng(_SEED).choice(np.flatnonzero(np.isfinite(income)), users, replace=False)
    columns = {
        name: np.nan_to_num(raw[name].to_numpy(zero_copy_only=False).astype(float)[chosen]) for name in raw.column_names
    }
    features: list[np.ndarray] = []
    for name, points in (("AGEP", range(16, 96)), ("WKHP", range(1, 99, 2))):
        features += [columns[name] >= point for point in points]
    for name in ("PINCP", "WAGP"):
        features += [columns[name] >= point for point in np.unique(np.quantile(columns[name], np.arange(1, 100) / 100))]
    for name in codes:
        features += [columns[name] == code for code in np.unique(columns[name])]
    features += [feature & (columns["SEX"] == 2) for feature in features]
    telling = [feature for feature in features if 0 < np.count_nonzero(feature) < users]
    if len(telling) < dims:
        raise ValueError(f"Expected {dims} features, the table gives {len(telling)}.")
    bits = np.stack(telling[:dims], axis=1)
    return Table("ACS persons", users, dims, lambda place: np.where(bits[:, place.start : place.stop], 1.0, -1.0))


def _rng(name: str, column: int) -> np.random.Generator:
    return np.random.default_rng([_SEED, sum(map(ord, name)), column])
