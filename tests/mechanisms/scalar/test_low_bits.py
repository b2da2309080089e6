"""The low-order bits of a naive Laplace report give its input away; those of ours carry nothing (Mironov 2012)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from scipy import stats

import noisette as nz

FALSE_ALARM = 1e-6
FloatArray = npt.NDArray[np.float64]
FINE = ("laplace", "staircase", "scdf", "gaussian", "piecewise", "piecewise-optimal", "hybrid", "square-wave")


def attainable(report: FloatArray, x: float, scale: float) -> npt.NDArray[np.bool_]:
    """Tell which reports x + scale * (standard Laplace noise) can take in float64, given a uniform of 53 bits.

    numpy draws noise ln(U + U) or -ln(2 - U - U); most floats are the image of no U, so a report is nearly a signature.
    """
    noise = (report - x) / scale
    found = np.zeros(report.shape, dtype=bool)
    for upper in (False, True):
        uniform = 1 - np.exp(-np.maximum(noise, 0)) / 2 if upper else np.exp(np.minimum(noise, 0)) / 2
        nearest = np.rint(uniform * 2.0**53)
        for offset in range(-6, 7):
            candidate = np.clip((nearest + offset) * 2.0**-53, 2.0**-53, 1 - 2.0**-53)
            image = x - scale * np.log(2 - candidate - candidate) if upper else x + scale * np.log(2 * candidate)
            found |= (image == report) & ((candidate >= 0.5) == upper)
    return found


def attack(report: FloatArray, scale: float) -> FloatArray:
    """Guess from one report whether the input was 0 or 1: by its bits where they tell, by its size otherwise."""
    from_zero, from_one = attainable(report, 0.0, scale), attainable(report, 1.0, scale)
    return np.where(from_zero != from_one, from_one, report > 0.5).astype(float)


@pytest.mark.parametrize("epsilon", [0.1, 1.0])
def test_naive_laplace_reveals_its_input(epsilon: float) -> None:
    """Nobody may be right more often than exp(e) / (1 + exp(e)) about an epsilon-private report; here 9 of 10 times."""
    rng = np.random.default_rng(1)
    secret = rng.integers(0, 2, 20_000).astype(float)
    report = secret + rng.laplace(0, 1 / epsilon, secret.size)
    right = int((attack(report, 1 / epsilon) == secret).sum())
    allowed = math.exp(epsilon) / (1 + math.exp(epsilon))
    assert stats.binomtest(right, secret.size, allowed, alternative="greater").pvalue < FALSE_ALARM
    assert right / secret.size > 0.88


@pytest.mark.parametrize("epsilon", [0.1, 1.0])
@pytest.mark.parametrize("name", ["laplace", "staircase", "scdf", "piecewise", "hybrid", "duchi"])
def test_our_reports_stay_within_epsilon(name: str, epsilon: float) -> None:
    """The same attack on ours never does better than epsilon allows."""
    rng = np.random.default_rng(2)
    secret = rng.integers(0, 2, 20_000).astype(float)
    report = nz.CATALOGUE[name](epsilon, domain=nz.Interval(0, 1)).privatize(secret, rng=rng)
    right = int((attack(report, 1 / epsilon) == secret).sum())
    allowed = math.exp(epsilon) / (1 + math.exp(epsilon))
    assert stats.binomtest(right, secret.size, allowed, alternative="greater").pvalue > FALSE_ALARM


@pytest.mark.parametrize("name", FINE)
def test_every_input_reports_on_one_lattice(name: str) -> None:
    mechanism = nz.CATALOGUE[name](1.0, domain=nz.Interval(0, 1))
    lattice = mechanism.support
    assert math.frexp(lattice.step)[0] == 0.5  # a power of two
    rng = np.random.default_rng(3)
    for x in (0.0, 1.0, 0.5, 1 / 3, math.pi - 3, 1e-300, 1 - 2.0**-53, *rng.random(20)):
        report = mechanism.privatize(np.full(500, x), rng=rng)
        steps = (report - lattice.origin) / lattice.step
        assert np.array_equal(steps, np.rint(steps))
        assert mechanism.support.contains(report).all()


def two_samples(first: npt.NDArray[Any], second: npt.NDArray[Any], cells: int) -> float:
    """Return the p-value that two samples of small integers have one law."""
    table = np.asarray([np.bincount(sample, minlength=cells) for sample in (first, second)])
    return float(stats.chi2_contingency(table[:, table.sum(axis=0) > 0]).pvalue)


@pytest.mark.parametrize("name", FINE)
def test_low_order_bits_do_not_depend_on_the_input(name: str) -> None:
    mechanism = nz.CATALOGUE[name](1.0, domain=nz.Interval(0, 1))
    rng = np.random.default_rng(4)
    low = [
        mechanism.support.index(mechanism.privatize(np.full(40_000, x), rng=rng)).astype(np.int64) % 64
        for x in (0.0, 1 / 3)
    ]
    if name == "hybrid":  # away from Duchi's two reports, whose chances do depend on the input
        pair = mechanism.support.index(np.asarray([mechanism._pair.low, mechanism._pair.high])).astype(np.int64) % 64
        low = [bits[~np.isin(bits, pair)] for bits in low]
    assert two_samples(low[0], low[1], 64) > FALSE_ALARM


def test_low_order_bits_of_naive_laplace_depend_on_the_input() -> None:
    """The twin: trailing zeros of x + noise near zero tell 0 from 1/3."""
    rng = np.random.default_rng(5)

    def trailing_zeros(x: float) -> npt.NDArray[np.int64]:
        report = x + rng.laplace(0, 1.0, 40_000)
        bits = np.abs(report[np.abs(report) < 0.25]).view(np.int64)
        return np.minimum(np.log2((bits & -bits).astype(float)), 12).astype(np.int64)

    first, second = trailing_zeros(0.0), trailing_zeros(1 / 3)
    assert two_samples(first, second, 13) < FALSE_ALARM
