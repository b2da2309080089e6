"""Inputs to try, drawn from a domain alone: its ends, every kind of category, and what lies between.

A mechanism names inputs that it says are worst (`witnesses`, `dissect`). It may be wrong, or lie, so a check needs
inputs that the mechanism did not choose.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from noisette.core import Mechanism
from noisette.domains import (
    Attributes,
    Box,
    Categorical,
    Grid,
    Interval,
    L2Ball,
    Selection,
    Sphere,
    TensorBall,
    TensorDomain,
    Texts,
)

_PAIR = 2
_WRITTEN = 4096  # numbers of one kind that are tried
_CATEGORIES = 24  # all of them are tried up to here, beyond it the ends and some others


def drawn(domain: Any, rng: np.random.Generator, count: int = 6) -> list[npt.NDArray[Any]]:
    """Return the extreme values of a domain, and ``count`` values from anywhere in it; none of an unknown domain.

    >>> [float(x) for x in drawn(Interval(0, 1), np.random.default_rng(7), count=1)]
    [0.0, 1.0, 0.625095466604667]
    """
    if isinstance(domain, Categorical):
        codes = np.arange(domain.size)
        if domain.size > _CATEGORIES:
            codes = np.unique(np.concatenate([codes[:2], codes[-2:], rng.integers(0, domain.size, count)]))
        return list(codes)
    if isinstance(domain, Selection):
        every = [rng.permutation(domain.size)[: domain.most] for _ in range(count)]
        few = [np.where(np.arange(domain.most) < rng.integers(0, domain.most + 1), row, -1) for row in every]
        return [np.full(domain.most, -1), np.arange(domain.most), *every[: count // 2], *few[count // 2 :]]
    if isinstance(domain, Interval):
        return [np.asarray(x) for x in (domain.low, domain.high, *rng.uniform(domain.low, domain.high, count))]
    if isinstance(domain, Grid):
        places = np.concatenate([[0, domain.size - 1], rng.integers(0, domain.size, count)])
        return list(domain.low + domain.step * places)
    if isinstance(domain, Box | TensorDomain):
        return _box(domain, rng, count)
    if isinstance(domain, L2Ball | TensorBall):
        return _ball(domain, rng, count)
    if isinstance(domain, Texts):
        letters = np.asarray(list(domain.alphabet or "abcdefghijklmnopqrstuvwxyz 0123456789éя漢"))
        texts = ["".join(rng.choice(letters, size)) for size in rng.integers(1, domain.width + 1, 9 * count)]
        return [np.asarray(text) for text in dict.fromkeys(texts) if domain.fault(text) is None][: count + 2]
    if isinstance(domain, Attributes):
        columns = [drawn(part, rng, count) for part in domain.parts]
        rows = [[column[0] for column in columns], [column[-1] for column in columns]]
        rows += [[column[int(rng.integers(len(column)))] for column in columns] for _ in range(count)]
        dtype = np.int64 if domain.categorical.all() else np.float64
        return [np.asarray(row, dtype=dtype) for row in rows]
    return []


def _box(domain: Box | TensorDomain, rng: np.random.Generator, count: int) -> list[npt.NDArray[Any]]:
    """Return opposite corners, other corners and points inside."""
    low, high = (
        (domain.lows, domain.highs)
        if isinstance(domain, Box)
        else (np.full(domain.dims, domain.low), np.full(domain.dims, domain.high))
    )
    corners = [np.where(rng.random(low.shape) < 0.5, low, high) for _ in range(count // 2)]
    inside = [low + rng.random(low.shape) * (high - low) for _ in range(count - count // 2)]
    return [np.asarray(x) for x in (low, high, *corners, *inside)]


def _shares(domain: TensorDomain, rng: np.random.Generator, count: int) -> list[npt.NDArray[Any]]:
    """Return tensors that sum to 1: all of it in one entry, equal parts in halves of the entries, and any other."""
    size = int(np.prod(domain.shape))
    first = (np.arange(size) < (size + 1) // 2).astype(float)
    rows = [*np.eye(size)[[0, -1]], first / first.sum(), first[::-1] / first.sum(), np.full(size, 1 / size)]
    return [np.reshape(row, domain.shape) for row in (*rows, *rng.dirichlet(np.ones(size), count))]


def _ball(domain: L2Ball | TensorBall, rng: np.random.Generator, count: int) -> list[npt.NDArray[Any]]:
    """Return opposite directions, others, and shorter ones where there are such; slightly inside, for rounding."""
    shape = domain.shape
    directions = [domain.clip(1e3 * domain.radius * rng.standard_normal(shape)) for _ in range(count)]
    first = directions[0]
    if isinstance(domain, Sphere):
        return [first, -first, *directions[1:]]
    shorter = [rng.random() * direction for direction in directions[count // 2 :]]
    return [first, -first, *directions[1 : count // 2], *shorter, np.zeros(shape)]


def written(domain: Any) -> npt.NDArray[Any]:
    """Return values of a domain that people write down: decimals, fractions, constant vectors, axes; all of a grid.

    >>> values = written(Interval(-1, 1))
    >>> bool(np.isin([0.3, -0.35, 0.123, 1 / 7], values).all()), len(values)
    (True, 2612)
    """
    if isinstance(domain, Grid) and domain.size <= _WRITTEN:
        return np.asarray(domain.low + domain.step * np.arange(domain.size))
    if isinstance(domain, Interval | Grid):
        low, high = float(domain.low), float(domain.high)
        shares = [low + (high - low) * np.arange(parts + 1) / parts for parts in (64, 100)]
        finest = [_multiples(low, high, 10**digits) for digits in range(3, -13, -1)]
        decimals = next((values for values in finest if len(values)), np.zeros(0))
        fractions = [_multiples(low, high, parts, _WRITTEN // 32) for parts in range(1, 33)]
        return np.unique(domain.clip(np.concatenate([*shares, decimals, *fractions])))
    if isinstance(domain, Box | TensorDomain | L2Ball | TensorBall):
        size = int(np.prod(domain.shape))
        axes = np.eye(size)[: _PAIR**2]
        constants = np.concatenate([np.arange(-20, 21) / 20, np.arange(-8, 9) / 8])[:, None] * np.ones(size)
        rows = np.concatenate([constants, *(length * axes for length in (1.0, -1.0, 0.5, -0.5))])
        if isinstance(domain, L2Ball | TensorBall):
            rows = rows * float(domain.radius) / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1.0)
        elif not np.all(domain.contains(rows.reshape(-1, *domain.shape))):  # shares of the domain
            least, most = (np.ravel(end) for end in _box(domain, np.random.default_rng(0), 0)[:2])
            rows = least + (rows + 1) / 2 * (most - least)
        rows = np.unique(rows, axis=0).reshape(-1, *domain.shape)
        return rows[np.asarray(domain.contains(rows))]
    return np.zeros(0)


def _multiples(low: float, high: float, parts: float, most: int = _WRITTEN) -> npt.NDArray[np.float64]:
    """Return the numbers k / parts between two ends, each as it is read from paper; none where there are too many."""
    first, last = np.ceil(low * parts), np.floor(high * parts)
    return np.arange(first, last + 1) / parts if 0 <= last - first < most else np.zeros(0)


def groups(mechanism: Mechanism, rng: np.random.Generator, count: int = 6) -> Iterator[list[npt.NDArray[Any]]]:
    """Yield lists of inputs, any two of one list neighbours under the guarantee, drawn from the domain.

    In the local model all values are neighbours; where the unit is an element, values that differ in one entry. Which
    data are neighbours under another relation the domain does not tell: of such a mechanism nothing is yielded.
    """
    guarantee, domain = mechanism.guarantee, mechanism.domain
    every = [x for x in drawn(domain, rng, count) if admitted(mechanism, x)]
    if len(every) < _PAIR and isinstance(domain, TensorDomain):
        every = [x for x in _shares(domain, rng, count) if admitted(mechanism, x)]
    if len(every) < _PAIR:
        return
    if guarantee.unit == "element" and isinstance(domain, Box | TensorDomain):
        low, high = every[:2]
        for base in every[2:4]:
            place = tuple(int(rng.integers(size)) for size in domain.shape)
            changed = np.stack([base, base, base])
            changed[1, *place], changed[2, *place] = low[place], high[place]
            yield list(changed)
    elif guarantee.relation == "any-pair":
        yield every


def admitted(mechanism: Mechanism, x: Any) -> bool:
    """Tell whether a mechanism takes an input; some ask for more than their domain, such as shares that sum to 1."""
    try:
        mechanism.privatize(np.asarray(x)[None], rng=np.random.default_rng(0))
    except (ValueError, NotImplementedError):  # the second: a law without a sampler
        return False
    return True
