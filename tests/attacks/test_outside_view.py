"""Programs that people have tried to get past `nz.audit`: it sees reports alone, of any type, and must find the leak.

Each claims an epsilon of 1. What tells the inputs apart is a length, an order, a missing value, a last bit, a moment
beyond the mean, or several numbers that say something only together.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import noisette as nz

Program = Callable[[Any, int, np.random.Generator], Any]


def chosen(rng: np.random.Generator, n: int, chance: float) -> Any:
    return rng.random(n) < chance


def opposite(x: Any, n: int, rng: np.random.Generator) -> Any:
    noise = rng.laplace(0, 2, n)
    return np.stack([x + noise, x - noise], axis=1)


def last_of_ten(x: Any, n: int, rng: np.random.Generator) -> Any:
    bits = rng.integers(0, 2, (n, 9))
    return np.column_stack([bits, bits[:, 0] ^ bits[:, 1] ^ int(x)])


LEAKS: dict[str, Program] = {
    "randomised response of 1.2": lambda x, n, rng: np.where(chosen(rng, n, 1 / (1 + math.exp(-1.2))), x, 1 - x),
    "the value once in a hundred": lambda x, n, rng: np.where(chosen(rng, n, 0.01), x + 10.0, rng.laplace(x, 2, n)),
    "the length of a text": lambda x, n, rng: ["aa" if x and one else "a" for one in chosen(rng, n, 0.02)],
    "the length of a list": lambda x, n, rng: [[0] * (2 + int(x)) if one else [0] for one in chosen(rng, n, 0.3)],
    "the order of a pair": lambda x, n, rng: [
        ("b", "a") if one else ("a", "b") for one in chosen(rng, n, 0.1 + 0.8 * x)
    ],
    "two noises that cancel": opposite,
    "the parity": lambda x, n, rng: 2 * np.rint(rng.laplace(0, 50, n)) + x * chosen(rng, n, 0.5),
    "a number that is none": lambda x, n, rng: np.where(chosen(rng, n, 0.05 * x), np.nan, rng.normal(size=n)),
    "an infinite number": lambda x, n, rng: np.where(chosen(rng, n, 0.05 * x), np.inf, rng.normal(size=n)),
    "no report now and then": lambda x, n, rng: [None if one else 1.0 for one in chosen(rng, n, 0.05 * x)],
    "the skew": lambda x, n, rng: (rng.exponential(1, n) - 1) * (1 if x else -1),
    "the spread": lambda x, n, rng: rng.normal(0, 1 + 2 * x, n),
    "the spread of ten": lambda x, n, rng: rng.normal(0, 1 + 0.5 * x, (n, 10)),
    "the correlation of ten": lambda x, n, rng: rng.normal(size=(n, 10)) + x * rng.normal(size=(n, 1)),
    "three of ten columns together": last_of_ten,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", LEAKS)
def test_a_leak_is_found(name: str) -> None:
    found = nz.audit(LEAKS[name], inputs=(0, 1), claimed=1.0, samples=40_000, rng=3)
    assert found.verdict == "violated"
    assert found.lower_bound > 1.1


def test_the_honest_twin_is_left_alone() -> None:
    def honest(x: Any, n: int, rng: np.random.Generator) -> Any:
        return np.where(chosen(rng, n, 1 / (1 + math.exp(-1.0))), x, 1 - x)

    assert nz.audit(honest, inputs=(0, 1), claimed=1.0, samples=40_000, rng=3).verdict == "holds"
