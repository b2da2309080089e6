"""Edges of mechanisms for tensors: noise slice by slice, and sketches of which float64 knows too few digits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import noisette as nz
from noisette.mechanisms.tensor.gaussian import _noise, _sketches
from noisette.mechanisms.tensor.gaussian._farthest import farthest
from noisette.mechanisms.tensor.gaussian.modes import Mode

MATRIX = np.asarray([[2.0, 0.5, 0.1, 0.0], [0.5, 1.0, -0.2, 0.3], [0.1, -0.2, 3.0, 0.4], [0.0, 0.3, 0.4, 1.5]])


@pytest.mark.parametrize("slices", [1, 7, 24, 1000])
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("own", [None, "variances", "matrix"])
@pytest.mark.parametrize("in_place", [False, True])
def test_noise_is_coloured_slice_by_slice(
    slices: int, turned: bool, own: str | None, in_place: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What each entry gets before it is coloured is known here; Kronecker products of the roots are the other way."""
    monkeypatch.setattr(_noise, "SLICES", slices)
    given = {None: None, "variances": np.asarray([1.0, 4.0, 9.0, 0.25]), "matrix": MATRIX}[own]
    long = None if given is None else Mode.read(4, given, 0)
    modes: list[Any] = [long, None, Mode.read(2, np.asarray([4.0, 0.5]), 2)]
    shape = (4, 3, 2)
    if turned:
        modes, shape = modes[::-1], shape[::-1]
    source = np.sin(np.arange(24.0)).reshape(shape)
    target = source if in_place else np.zeros(shape)
    roots = [
        np.eye(n) if m is None else (np.diag(m.root) if m.root.ndim == 1 else m.root)
        for m, n in zip(modes, shape, strict=True)
    ]
    white = np.einsum("ijk,ai,bj,ck->abc", source, *(np.linalg.inv(root) for root in roots))
    wanted = np.einsum("ijk,ai,bj,ck->abc", white**3, *roots)

    def cube(values: np.ndarray) -> None:
        values **= 3

    _noise.release_slices(source, target, modes, lambda part: part + 0.0, cube)
    assert target == pytest.approx(wanted, rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("projections", [1, 5])
def test_entries_beyond_the_digits_of_float64_are_computed_with_more(
    projections: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In steps of 2^-70 every entry of these sketches is unsure, in steps of 1/4 hardly any is."""
    matrices = np.asarray([[[9, 3], [3, 30]], [[5, -2], [-2, 8]]])
    asked: list[Any] = []
    plain = _sketches._rounded

    def noted(*given: Any) -> int:
        asked.append(given[3])
        return plain(*given)

    monkeypatch.setattr(_sketches, "_rounded", noted)
    entries = 2 * 2 * min(projections, 2)
    fine = _sketches.rounded_sketches(matrices, projections, 2.0**-70, np.random.default_rng(1))
    below = 2 if projections > 1 else 0  # above the diagonal there is nothing
    assert len(asked) == entries - below
    asked.clear()
    rough = _sketches.rounded_sketches(matrices, projections, 0.25, np.random.default_rng(1))
    assert len(asked) <= below
    assert np.abs(fine - rough).max() <= 0.125 + 1e-9
    assert np.array_equal(rough, np.rint(rough * 4) / 4)


@pytest.mark.parametrize("relation", ["element", "slice:0", "fibre:0"])
@pytest.mark.parametrize("place", [0, 4095])
def test_the_first_and_the_last_of_many_places_are_always_searched(relation: str, place: int) -> None:
    """Some places of entries that may differ are drawn where there are more than 64: both corners are among them."""
    shape, own, other = (4096, 2), np.full(4096, 1e-3), np.asarray([1.0, 2.0])
    own[place] = 1.0
    if relation == "fibre:0":
        shape, own, other = (2, 4096), other, own
    gap, length = farthest(nz.TensorDomain(shape, 0, 1), relation, [own, other])
    entry = 1 if relation == "element" and place else 0  # the corner itself
    wanted = {"element": 2.0 if entry else 1.0, "slice:0": 5.0**0.5, "fibre:0": 5.0**0.5}[relation]
    assert length == pytest.approx(wanted, rel=1e-12)
    assert np.flatnonzero(gap.sum(axis=1 if shape[0] == 4096 else 0)).tolist() == [place]
