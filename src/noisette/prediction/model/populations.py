"""What is known about the true values before they are collected: a histogram, a sample, a table or a named family."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy.special import gammaln, ndtr, roots_jacobi, roots_legendre, xlogy

from noisette import _validate
from noisette._validate import FloatArray
from noisette.domains import Categorical, Domain, Grid, Interval

NODES = 257  # of the grid that stands for a column of data
_BLOCK = 1 << 20
_POISSON_TAIL = 2.0**-20  # share of a Poisson dimension that may lie above its upper bound


@dataclass(frozen=True, eq=False)
class Population:
    """Distributions of the true values, one for each group of dimensions that are alike.

    Row g of ``weights`` is the distribution of a group that holds ``shares[g]`` of the dimensions, over ``points`` that
    all groups share. Weights sum to 1; those that stand for a table may be slightly negative.
    """

    points: FloatArray
    weights: FloatArray
    shares: FloatArray

    @cached_property
    def pooled(self) -> FloatArray:
        """Weights averaged over the dimensions."""
        return np.asarray(self.shares @ self.weights)

    @cached_property
    def spread(self) -> float:
        """Variance of the values within a dimension, averaged over the dimensions."""
        points = self.points - self.points[0]
        squares = self.weights @ points**2 - (self.weights @ points) ** 2
        return float(self.shares @ np.maximum(squares, 0.0))

    def coarsened(self, nodes: int) -> Population:
        """Return the population on ``nodes`` points, every mean and variance unchanged."""
        if self.points.size <= nodes or np.ptp(self.points) == 0:
            return self
        domain = Interval(float(self.points.min()), float(self.points.max()))
        points = np.linspace(domain.low, domain.high, nodes)
        return Population(points, self.weights @ _split(self.points, domain, nodes), self.shares)


def known(values: Any, probs: Any, distribution: str | None, domain: Domain, *, dims: int = 1) -> Population | None:
    """Return what the caller knows, or None where nothing was given."""
    if distribution is not None:
        if values is not None or probs is not None:
            raise ValueError(f"Expected values or distribution={distribution!r}, got both. Give one of them.")
        return named(distribution, domain, dims=dims)
    if values is None:
        if probs is not None:
            raise ValueError("Expected values beside probs: the probabilities of what? Give both, or neither.")
        return None
    if np.ndim(values) == 2 and dims > 1:
        return table(values, probs, domain, dims=dims)
    column = np.shape(values)[1:] == (1,)
    return histogram(np.ravel(values) if column else values, probs, domain)


def histogram(values: Any, probs: Any, domain: Domain) -> Population:
    """Return a discrete distribution; without ``probs`` the values are a sample and weigh the same."""
    read: Any = _validate.integers if isinstance(domain, Categorical) else _validate.reals
    points = read(values, "values")
    if points.ndim != 1:
        raise ValueError(
            f"Expected values of one dimension, a list of numbers; got an array of shape {points.shape}. "
            "Give the values of one dimension, or a table of users by dimensions to a collection of many dimensions."
        )
    check_inside(points, domain)
    weights = probabilities(probs, points.size)
    if isinstance(domain, Categorical):
        weights = np.asarray(np.bincount(points, weights, minlength=domain.size), dtype=np.float64)
        points = np.arange(domain.size)
    return Population(points.astype(np.float64), weights[None], np.ones(1))


def table(values: Any, probs: Any, domain: Domain, *, dims: int) -> Population:
    """Return the distribution of each column of a table of users by dimensions, on a grid of `NODES` points.

    Each value is shared among three neighbouring points so that mean and variance of the column stay what they are;
    any quadratic function of the values, such as the variance of a report, keeps its exact average.
    """
    rows = _validate.reals(values, "values")
    _validate.trailing(rows, (dims,), "values")
    if not isinstance(domain, Interval):
        raise ValueError(f"Expected an Interval for the columns of a table, got {domain}.")
    check_inside(rows, domain)
    weights = probabilities(probs, len(rows))
    sums = np.zeros(dims * NODES)
    columns = np.arange(dims) * NODES
    size = max(1, _BLOCK // dims)
    for start in range(0, len(rows), size):
        block = rows[start : start + size]
        middle, parts = _neighbours(block, domain, NODES)
        cells = (middle + columns).ravel()
        share = np.broadcast_to(weights[start : start + size, None], block.shape)
        for offset, weight in zip((-1, 0, 1), parts, strict=True):
            sums += np.bincount(cells + offset, (weight * share).ravel(), minlength=sums.size)
    points = np.linspace(domain.low, domain.high, NODES)
    return Population(points, sums.reshape(dims, NODES), np.full(dims, 1 / dims))


def named(text: str, domain: Domain, *, dims: int = 1) -> Population:
    """Return a named family on the domain, e.g. ``"uniform"`` or ``"beta:2,5"``.

    Parameters are in units of the domain mapped on [-1, 1], save those of beta and Poisson, which are their own:

    - ``uniform``: every value alike;
    - ``gaussian[:mean,std]``: clipped to the domain; without parameters the data of Duan 2024: std 1/16, mean 0, or 0.9
      in every tenth dimension;
    - ``beta[:a,b]``: from the lower end to the upper one, 2,5 without parameters;
    - ``poisson[:rate]``: 0 is the lower end, the count that one user in a million exceeds the upper one; without a
      parameter the data of Duan 2024, rates spread evenly over 1 to 99 among the dimensions.

    >>> population = named("uniform", Interval())
    >>> round(float(population.pooled @ population.points**2), 9)
    0.333333333
    """
    name, _, tail = str(text).partition(":")
    if name not in _FAMILIES:
        raise ValueError(f"Unknown distribution {text!r}; expected one of {', '.join(_FAMILIES)}, e.g. 'beta:2,5'.")
    build, sizes = _FAMILIES[name]
    try:
        parameters = tuple(float(word) for word in tail.split(",")) if tail else ()
    except ValueError:
        parameters = (np.nan,)
    if len(parameters) not in sizes or not np.all(np.isfinite(parameters)):
        wanted = " or ".join(map(str, sizes))
        raise ValueError(f"Expected {wanted} numbers after {name!r}, got {text!r}. Write e.g. 'gaussian:0.2,0.1'.")
    if not isinstance(domain, Interval | Grid):
        raise ValueError(
            f"Expected a domain of real numbers for {text!r}, got {domain}. Give values and probs instead."
        )
    canonical, weights, shares = build(parameters, dims)
    interval = Interval(domain.low, domain.high)
    points = np.clip(interval.from_canonical(canonical), domain.low, domain.high)
    if isinstance(domain, Grid):
        points, weights = _on_grid(points, weights, domain)
    return Population(points, weights, shares)


def candidates(domain: Domain, count: int = 33) -> FloatArray:
    """Return ``count`` values, or all categories, between which the worst and the best distribution are sought."""
    if isinstance(domain, Categorical):
        return np.arange(float(domain.size))
    if isinstance(domain, Grid):
        index = np.unique(np.rint(np.linspace(0, domain.size - 1, min(domain.size, count))))
        return np.asarray(domain.low + domain.step * index)
    if isinstance(domain, Interval):
        return np.linspace(domain.low, domain.high, count)
    raise ValueError(f"Expected a domain of one dimension, got {domain}.")


_Family = Callable[[tuple[float, ...], int], tuple[FloatArray, FloatArray, FloatArray]]


def _uniform(parameters: tuple[float, ...], dims: int) -> tuple[FloatArray, FloatArray, FloatArray]:
    points, weights = roots_legendre(32)
    return points, weights[None] / 2, np.ones(1)


def _beta(parameters: tuple[float, ...], dims: int) -> tuple[FloatArray, FloatArray, FloatArray]:
    a, b = (_validate.positive(p, "beta parameter") for p in parameters or (2.0, 5.0))
    points, weights = roots_jacobi(32, b - 1, a - 1)
    return points, weights[None] / weights.sum(), np.ones(1)


def _gaussian(parameters: tuple[float, ...], dims: int) -> tuple[FloatArray, FloatArray, FloatArray]:
    if parameters:
        points, weights = _clipped_gaussian(*parameters)
        return points, weights[None], np.ones(1)
    low, high = _clipped_gaussian(0.0, 1 / 16), _clipped_gaussian(0.9, 1 / 16)
    gap = np.zeros_like(low[1])
    weights = np.asarray([np.concatenate([low[1], gap]), np.concatenate([gap, high[1]])])
    share = (dims // 10) / dims
    return np.concatenate([low[0], high[0]]), weights, np.asarray([1 - share, share])


def _clipped_gaussian(mean: float, std: float) -> tuple[FloatArray, FloatArray]:
    """Return points and weights of a Gaussian whose tails are moved to -1 and 1."""
    std = _validate.positive(std, "std")
    low, high = max(-1.0, mean - 9 * std), min(1.0, mean + 9 * std)
    ends = np.asarray([-1.0, 1.0])
    atoms = ndtr((np.asarray([low, -high]) - [mean, -mean]) / std)
    if low >= high:
        return ends, atoms / atoms.sum()
    nodes, weights = roots_legendre(64)
    inside = (low + high) / 2 + (high - low) / 2 * nodes
    density = np.exp(-0.5 * ((inside - mean) / std) ** 2) * weights
    mass = density / density.sum() * (1 - atoms.sum())
    return np.concatenate([ends, inside]), np.concatenate([atoms, mass])


def _poisson(parameters: tuple[float, ...], dims: int) -> tuple[FloatArray, FloatArray, FloatArray]:
    groups = 1 if parameters else min(dims, 99)
    spread = 1 + 98 * (np.arange(groups) + 0.5) / groups
    rates = np.asarray([_validate.positive(p, "poisson rate") for p in parameters]) if parameters else spread
    counts = np.arange(0.0, np.ceil(rates.max() + 8 * np.sqrt(rates.max()) + 24))
    mass = np.exp(xlogy(counts, rates[:, None]) - rates[:, None] - gammaln(counts + 1))
    mass /= mass.sum(axis=1, keepdims=True)
    top = (np.cumsum(mass, axis=1) < 1 - _POISSON_TAIL).sum(axis=1)  # the count exceeded by few
    canonical = Interval()
    weights = np.zeros((groups, NODES))
    for group in range(groups):
        values = np.minimum(-1 + 2 * counts / max(top[group], 1), 1.0)
        weights[group] = mass[group] @ _split(values, canonical, NODES)
    return np.linspace(-1, 1, NODES), weights, np.full(groups, 1 / groups)


_FAMILIES: dict[str, tuple[_Family, tuple[int, ...]]] = {
    "uniform": (_uniform, (0,)),
    "gaussian": (_gaussian, (0, 2)),
    "beta": (_beta, (0, 2)),
    "poisson": (_poisson, (0, 1)),
}


def _neighbours(values: FloatArray, domain: Interval, nodes: int) -> tuple[Any, tuple[FloatArray, ...]]:
    """Return the middle one of three neighbouring grid points and the shares of the three, which keep two moments."""
    position = (values - domain.low) * ((nodes - 1) / domain.diameter)
    middle = np.clip(np.rint(position), 1, nodes - 2)
    rest = position - middle
    square = rest * rest
    return middle.astype(np.int64), ((square - rest) / 2, 1 - square, (square + rest) / 2)


def _split(values: FloatArray, domain: Interval, nodes: int) -> FloatArray:
    """Return the matrix that moves weights of ``values`` to the grid."""
    middle, parts = _neighbours(values, domain, nodes)
    matrix = np.zeros((values.size, nodes))
    for offset, weight in zip((-1, 0, 1), parts, strict=True):
        matrix[np.arange(values.size), middle + offset] = weight
    return matrix


def _on_grid(points: FloatArray, weights: FloatArray, grid: Grid) -> tuple[FloatArray, FloatArray]:
    """Share each point among its two neighbours on the grid, which keeps the mean."""
    position = (points - grid.low) / grid.step
    below = np.clip(np.floor(position), 0, grid.size - 2)
    rest = position - below
    both = np.concatenate([below, below + 1])
    return grid.low + grid.step * both, np.concatenate([weights * (1 - rest), weights * rest], axis=1)


def probabilities(probs: Any, size: int) -> FloatArray:
    """Return weights that sum to one: those given, or equal ones."""
    if probs is None:
        return np.full(size, 1 / size)
    weights = _validate.reals(probs, "probs")
    if weights.shape != (size,):
        raise ValueError(f"Expected one probability for each of {size} values, got probs of shape {weights.shape}.")
    if not np.all(weights >= 0):
        raise ValueError(f"Expected probs >= 0, got {weights[~(weights >= 0)][0]}.")
    total = float(weights.sum())
    if not abs(total - 1) <= 1e-6:
        raise ValueError(f"Expected probs to sum to 1, got {total:.9g}. Divide them by their sum.")
    return np.asarray(weights / total)


def check_inside(points: Any, domain: Domain) -> None:
    """Refuse values that the mechanism would refuse."""
    inside = domain.contains(points)
    if not np.all(inside):
        bad = np.asarray(points)[~inside][0]
        raise ValueError(f"Expected values in {domain}, got {bad}. Map the values to the domain first, or widen it.")
