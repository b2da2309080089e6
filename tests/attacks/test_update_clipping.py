"""Updates made to slip past the clip of a federated client.

The noise of a report hides one update among all of the clip's length. An update that comes out longer, by however
little, is not hidden as promised; one that comes out as NaN or raises is told apart from all others. So lengths are
measured exactly here, with rational numbers, and not in the arithmetic that is under test.
"""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import pytest

from noisette.federated import Channel, Length, ModelLayout, Norm, Ranges
from noisette.federated.families import family

EXTREMES = [
    5e-324,
    1e-310,
    2.2250738585072014e-308,
    1e-200,
    1e-154,
    1e-100,
    1e-8,
    1.0,
    1e8,
    1e100,
    1e154,
    1e200,
    1.7e308,
]
NORMS = [5e-324, 1e-300, 1e-120, 1e-3, 1.0, 3.0, 1e6, 1e120, 1.7e308]


def squared_length(vector):
    """Return the squared length, exactly."""
    return sum(Fraction(x) ** 2 for x in vector.tolist())


def crafted(count, rng):
    """Yield updates of few weights: of one size, of mixed sizes, with one large weight, and in narrower types."""
    for size in EXTREMES:
        yield np.full(3, size)
        yield size * rng.uniform(0.5, 1.0, 7)
    for first, second in itertools.product(EXTREMES, repeat=2):
        yield np.asarray([first, second, -second])
    for _ in range(count):
        yield rng.choice(EXTREMES, 6) * rng.uniform(-1, 1, 6)
        yield np.ldexp(rng.uniform(-1, 1, 6), rng.integers(-1074, 1024, 6))
        yield rng.normal(0, 1, 6).astype(np.float16).astype(float)
        yield np.ldexp(rng.uniform(-1, 1, 6), rng.integers(-140, 127, 6)).astype(np.float32).astype(float)


@pytest.mark.slow
@pytest.mark.parametrize("norm", NORMS)
def test_no_update_comes_out_longer_than_the_clip(norm):
    for update in crafted(150, np.random.default_rng(3)):
        vector = update.copy()
        with np.errstate(all="raise", under="ignore"):
            Norm(norm).inward(vector, ModelLayout.of(vector))
        assert np.isfinite(vector).all(), update
        assert squared_length(vector) <= 1, update


@pytest.mark.parametrize("dims", [1_000, 100_000])
def test_many_small_weights_whose_squares_are_lost_in_the_sum(dims):
    """Beside one large weight each square rounds to nothing, and the length came out too small by all of them."""
    for lost in (2.0**-27.01, 2.0**-26.51):
        vector = np.full(dims, lost)
        vector[0] = 1.0
        Norm(1.0).inward(vector, ModelLayout.of(vector))
        exact = Fraction(float(vector[0])) ** 2 + (dims - 1) * Fraction(float(vector[1])) ** 2
        assert exact <= 1
        assert exact > 1 - Fraction(1, 10**8)  # and the bound takes next to nothing


@pytest.mark.slow
def test_the_plain_sum_of_squares_is_too_small():
    """The twin: what is shown above does happen to squares that are added one after another."""
    vector = np.full(100_000, 2.0**-27.01)
    vector[0] = 1.0
    plain = np.cumsum(vector * vector)[-1]
    assert Fraction(float(plain)) < squared_length(vector)


@pytest.mark.slow
@pytest.mark.parametrize("norm", NORMS)
def test_an_update_of_fixed_length_has_a_direction_whatever_it_is(norm):
    for update in crafted(50, np.random.default_rng(5)):
        vector = update.copy()
        Length(norm).inward(vector, ModelLayout.of(vector))
        assert abs(float(squared_length(vector)) - 1) < 1e-6, update


@pytest.mark.slow
@pytest.mark.parametrize("radius", [5e-324, 1e-300, 1.0, 1.7e308])
@pytest.mark.parametrize("centre", [-1.7e308, -1.0, 0.0, 5e-324, 1e300])
@pytest.mark.parametrize("norm", [None, 5e-324, 1.0, 1.7e308])
def test_no_weight_comes_out_of_its_range(radius, centre, norm):
    clip = Ranges(centre, radius, norm)
    for update in crafted(10, np.random.default_rng(7)):
        vector = update.copy()
        clip.inward(vector, ModelLayout.of(vector))
        assert np.all(np.abs(vector) <= 1), update  # NaN is not


CHANNELS = [
    *((name, Norm(1.0)) for name in ("privunit", "privunit-g", "tensor-gaussian")),
    *((name, Ranges(0.0, 1.0)) for name in ("laplace", "gaussian", "staircase", "hybrid", "retain-or-noise")),
]


@pytest.mark.parametrize(("name", "clip"), CHANNELS)
def test_the_lattice_of_a_report_is_that_of_the_channel(name, clip):
    """Reports about updates of all sizes and types are points of one public lattice, of one type and length."""
    channel = Channel(name, ModelLayout.of(np.zeros(6)), clip, **{family(name).price: 1.0})
    kinds = set()
    for update in itertools.islice(crafted(30, np.random.default_rng(9)), 0, None, 7):
        if update.size != 6:
            continue
        payload = channel.privatize(update).payload
        kinds.add((payload.dtype, payload.shape))
        assert np.all(channel.support.contains(channel.unpack(payload)))
    assert len(kinds) == 1
