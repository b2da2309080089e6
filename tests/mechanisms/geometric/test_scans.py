"""The loops of spherical coordinates against fifty digits."""

import math
import multiprocessing

import mpmath
import numpy as np
import pytest

from noisette.mechanisms.geometric._scans import LARGEST, turned, turns
from noisette.mechanisms.geometric.spherical import from_spherical, to_spherical

ULPS = 4 * 2.0**-53


def test_angles_are_right_in_every_octant_and_at_its_ends():
    ratios = np.concatenate([[0.0], np.geomspace(1e-300, 1e300, 300), np.tan(np.arange(1, 16) * math.pi / 32)])
    for sign in (-1.0, 1.0):
        for ratio in ratios:  # of the entry over what is behind it, which is 1
            out = np.empty(1)
            turns(np.array([sign * ratio]), 1.0, out)
            assert abs(out[0] - float(mpmath.atan2(1, sign * ratio))) <= ULPS * math.pi, ratio
    out = np.empty(1)
    for entry, angle in ((0.0, 0.0), (2.0, 0.0), (-2.0, math.pi)):  # nothing behind
        turns(np.array([entry]), 0.0, out)
        assert out[0] == angle


def test_what_is_behind_an_entry_is_all_that_follows():
    x = np.random.default_rng(1).normal(size=100)
    out = np.empty(100)
    turns(x, 9.0, out)
    expected = [float(mpmath.atan2(mpmath.sqrt(9 + mpmath.fsum(v**2 for v in x[z + 1 :])), x[z])) for z in range(100)]
    np.testing.assert_allclose(out, expected, rtol=0, atol=2e-15)


@pytest.mark.parametrize("reach", [1.0, 100.0, LARGEST])
def test_sines_and_cosines_are_right(reach):
    rng = np.random.default_rng(2)
    multiples = np.rint(rng.uniform(-reach, reach, 50) / math.pi * 2) * math.pi / 2  # where one of them vanishes
    out = np.empty(1)
    for angle in np.concatenate([rng.uniform(-reach, reach, 400), np.clip(multiples, -LARGEST, LARGEST), [0.0, -0.0]]):
        product = turned(np.array([angle]), out)
        assert abs(out[0] - float(mpmath.cos(angle))) <= ULPS
        assert abs(product - float(mpmath.sin(angle))) <= ULPS


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 7, 8, 41])
def test_running_products_are_those_of_one_loop(size):
    angles = np.random.default_rng(size).uniform(0.5, 2.5, size)
    out = np.empty(size)
    product = turned(angles, out)
    before = np.append(1.0, np.cumprod(np.sin(angles)))
    np.testing.assert_allclose(out, before[:-1] * np.cos(angles), rtol=1e-14, atol=1e-15)
    assert product == pytest.approx(before[-1], rel=1e-14)


def test_angles_beyond_what_is_reduced_are_taken_all_the_same():
    angles = np.random.default_rng(3).uniform(-1, 1, 5000)
    angles[17] = 1e12
    expected = from_spherical(1.0, np.where(angles == 1e12, math.atan2(math.sin(1e12), math.cos(1e12)), angles))
    np.testing.assert_allclose(from_spherical(1.0, angles), expected, rtol=1e-12, atol=1e-300)
    for count in (3, 5000):
        angles[1] = math.inf
        with pytest.raises(ValueError, match="finite angles, got inf"):
            from_spherical(1.0, angles[:count])


def _convert(sender):
    sender.send(float(to_spherical(np.ones(1 << 18))[0]))


def test_a_child_process_has_threads_of_its_own():
    to_spherical(np.ones(1 << 18))  # starts this process's threads
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_convert, args=(sender,))
    process.start()
    assert receiver.poll(600)
    assert receiver.recv() == 512.0
    process.join(600)
