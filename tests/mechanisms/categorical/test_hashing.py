"""The hash family is listed whole: two categories collide exactly as often as the estimate of local hashing assumes."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

import noisette as nz
from noisette.mechanisms.categorical.hashing import PRIME, AffineHash

FAMILIES = [(prime, buckets) for prime in (3, 7, 13) for buckets in (2, 3, 4, 5, 8)]


def images(family: AffineHash) -> np.ndarray:
    """Return the bucket of every number below the prime (columns) under every map (rows)."""
    return family.bucket(np.arange(family.seeds)[:, None], np.arange(family.prime))


@pytest.mark.parametrize(("prime", "buckets"), FAMILIES)
def test_every_pair_collides_with_the_stated_probability(prime: int, buckets: int) -> None:
    family = AffineHash(prime, buckets)
    table = images(family)
    for first in range(prime):
        for second in range(first):
            collisions = int(np.count_nonzero(table[:, first] == table[:, second]))
            assert Fraction(collisions, family.seeds) == family.collision


@pytest.mark.parametrize(("prime", "buckets"), FAMILIES)
def test_pairs_of_images_are_independent(prime: int, buckets: int) -> None:
    """The joint counts of two images are the products of their shares, so any statement about pairs is exact."""
    table = images(AffineHash(prime, buckets))
    shares = np.bincount(np.arange(prime) * buckets // prime, minlength=buckets)
    for first, second in ((0, 1), (1, prime - 1), (prime - 1, 0)):
        joint = np.zeros((buckets, buckets), dtype=int)
        np.add.at(joint, (table[:, first], table[:, second]), 1)
        assert np.array_equal(joint, np.outer(shares, shares))


def test_the_textbook_probability_would_be_wrong() -> None:
    """The twin: 1 / buckets is what a perfectly uniform hash would give, and no prime is a multiple of the buckets."""
    assert AffineHash(7, 3).collision == Fraction(17, 49) != Fraction(1, 3)
    assert AffineHash(PRIME, 4).collision > Fraction(1, 4)
    # without slope 0 pairs collide less often
    table = images(AffineHash(7, 3))[7:]
    assert Fraction(int((table[:, 0] == table[:, 1]).sum()), 42) < Fraction(1, 3)


@pytest.mark.parametrize("epsilon", [1e-6, 1.0, 2.0, 5.0, 12.0, 1000.0])
def test_collision_is_one_over_the_buckets_to_double_precision(epsilon: float) -> None:
    mechanism = nz.LocalHashing(epsilon, nz.Categorical(10))
    excess = mechanism._hash.collision - Fraction(1, mechanism.buckets)
    assert 0 <= excess <= Fraction(mechanism.buckets, 2**60)


def test_prime_is_prime() -> None:
    """By trial division: collisions are exact for a prime only."""
    assert PRIME == 2**31 - 1
    assert np.all(PRIME % np.arange(2, int(PRIME**0.5) + 1) != 0)


@pytest.mark.parametrize(
    ("users", "size"), [(1, 2), (1, 5000), (7, 1), (7, 20000), (300, 129), (16384, 3), (40000, 5), (70000, 2)]
)
@pytest.mark.parametrize("buckets", [2, 4, 21, 1000])
def test_counts_are_those_of_hashing_every_category(users: int, size: int, buckets: int) -> None:
    """The running additions of `count` against one multiplication for each user and category."""
    rng = np.random.default_rng(users + buckets)
    family = AffineHash(PRIME, buckets)
    seeds, values = rng.integers(0, family.seeds, users), rng.integers(0, buckets, users)
    seeds[0], seeds[-1] = family.seeds - 1, 0  # the largest slope and shift, and none
    found = family.count(seeds, values, size)
    for v in np.unique(np.linspace(0, size - 1, 60).astype(int)):
        assert found[v] == np.count_nonzero(family.bucket(seeds, np.full(users, v)) == values)


def test_counts_at_the_largest_category() -> None:
    """No product or sum overflows at the end of the range."""
    family = AffineHash(PRIME, 1 << 20)
    seeds = np.asarray([family.seeds - 1, family.seeds - 2, 12345678901234567])
    exact = [
        ((seed // PRIME * (PRIME - 1) + seed % PRIME) % PRIME) * (1 << 20) // PRIME for seed in map(int, seeds.tolist())
    ]
    assert family.bucket(seeds, np.full(3, PRIME - 1)).tolist() == exact


def test_too_many_categories_are_refused() -> None:
    nz.LocalHashing(1.0, nz.Categorical(PRIME))
    with pytest.raises(ValueError, match=r"at most 2147483647 categories to hash, got size=2147483648"):
        nz.LocalHashing(1.0, nz.Categorical(PRIME + 1))
