"""One legal report of unbounded noise, as far off as its sender likes: how far it can move an estimate."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy import stats

import noisette as nz
from noisette.core import STRAY

USERS = 5000


def _far(mechanism: Any, honest: Any, distance: float) -> Any:
    """Return reports whose last is as far off as may be, on the lattice that the mechanism sends."""
    lying = honest.copy()
    lattice = getattr(mechanism.support, "lattice", mechanism.support)
    lying[-1] = lattice.origin + lattice.step * math.floor(distance / lattice.step)
    return lying


def test_one_report_moves_a_mean_by_its_reach_over_n() -> None:
    mechanism = nz.Laplace(epsilon=1.0, domain=nz.Interval(0, 120))
    honest = mechanism.privatize(np.full(USERS, 59.0), rng=1)
    lying = _far(mechanism, honest, 2e6)
    moved = [mechanism.aggregate(reports).estimate().value[0] for reports in (honest, lying)]
    reach = mechanism.readout.scale * (mechanism.readout.reach[1] - mechanism.readout.reach[0])
    assert abs(moved[1] - moved[0]) <= reach / USERS < 1.2
    assert np.mean(lying) - np.mean(honest) > 300  # what it would do without a bound


@pytest.mark.parametrize("far", [1e9, 5e12, 2.0**62, -(2.0**62)])
def test_squares_do_not_overflow(far: float) -> None:
    histogram = nz.CATALOGUE["histogram"](epsilon=1.0, domain=nz.Categorical(4))
    tensor = nz.CATALOGUE["tensor-gaussian"].example(1.0)
    for mechanism, values in (
        (histogram, np.zeros(USERS, dtype=int)),
        (tensor, np.zeros((USERS, *tensor.domain.dims))),
    ):
        honest = mechanism.privatize(values, rng=2)
        plain = mechanism.aggregate(honest).estimate()
        found = mechanism.aggregate(_far(mechanism, honest, far)).estimate()
        low, high = (mechanism.readout.scale * end for end in mechanism.readout.reach)
        assert np.all(np.abs(found.value - plain.value) <= 2 * np.max(high - low) / USERS)
        assert np.all(found.std_error >= 0.9 * plain.std_error)


def test_an_honest_report_is_moved_as_rarely_as_stated() -> None:
    """Exact laws of the noise, by scipy: the chance beyond the reach, and the bias that moving it costs."""
    for epsilon in (0.1, 1.0, 4.0):
        laplace = nz.Laplace(epsilon=epsilon, domain=nz.Interval(0, 120))
        low, high = (laplace.support.value(end) for end in laplace.readout.reach)
        scale = 120 / epsilon
        beyond = stats.laplace.sf(high - 120, scale=scale) + stats.laplace.cdf(low - 120, scale=scale)
        assert beyond <= STRAY
        assert stats.laplace.sf((high - 120) / 3, scale=scale) > STRAY  # a third of it would be too near
        assert scale * beyond <= STRAY * laplace.readout.tail.scale  # E max(noise - reach, 0) = scale * chance
        gaussian = nz.CATALOGUE["gaussian"](epsilon=epsilon, delta=1e-6, domain=nz.Interval(0, 120))
        low, high = (gaussian.support.value(end) for end in gaussian.readout.reach)
        deviation = float(np.sqrt(gaussian.moments(np.asarray(60.0)).variance))
        assert stats.norm.sf((high - 120) / deviation) * 2 <= STRAY


@pytest.mark.slow
def test_unbounded_mechanisms_declare_it() -> None:
    """A mechanism whose support has no end says so, and no other does."""
    for name, kind in nz.CATALOGUE.items():
        support = kind.example(1.0).support
        lattice = getattr(support, "lattice", support)
        if hasattr(lattice, "high"):
            assert kind.capabilities.unbounded is not math.isfinite(lattice.high), name
