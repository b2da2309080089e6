"""Bins of reports by a grid: the same as by bisection, whatever the bins."""

from __future__ import annotations

import numpy as np
import pytest

import noisette as nz
from noisette.enhancement.channel import places_of, report_edges


@pytest.mark.parametrize("name", ["piecewise", "laplace", "hybrid", "staircase"])
def test_against_bisection(name: str) -> None:
    mechanism = nz.CATALOGUE[name](epsilon=1.0)
    edges = report_edges(mechanism, bins=32)
    assert edges is not None
    reports = mechanism.privatize(np.linspace(-1, 1, 5000), rng=1)
    reports = np.concatenate([reports, edges, np.nextafter(edges, -np.inf), [-1e300, 1e300]])
    assert np.array_equal(places_of(edges, reports), np.searchsorted(edges[1:-1], reports, side="right"))


def test_uneven_and_empty_bins() -> None:
    edges = np.sort(np.concatenate([np.geomspace(1e-9, 1e9, 40), [5.0, 5.0]]))
    reports = np.concatenate([edges, np.geomspace(1e-12, 1e12, 3000)])
    assert np.array_equal(places_of(edges, reports), np.searchsorted(edges[1:-1], reports, side="right"))
