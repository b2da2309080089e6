"""Sums and squared norms of rows: the compiled loops, and the way of other precisions, against exact arithmetic."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
import torch

from noisette.mechanisms import _team
from noisette.sgd.recording import _rows
from noisette.sgd.recording.layers import _compared_squares

COMPILED = [torch.float32, torch.float64]
KINDS = [*COMPILED, torch.float16, torch.bfloat16]
SHAPES = [(0, 3), (1, 1), (3, 5), (4, 2), (5, 1023), (9, 1030), (13, 2049)]


def drawn(shape, kind, seed=0):
    """Return rows with an integer part of their own, so that no two of them can be taken for each other."""
    rows = torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return (rows + torch.arange(shape[0])[:, None]).to(kind)


def factors(count):
    """Return weights with zeros among them, alone and four in a row."""
    weights = torch.linspace(0.3, 1.7, count, dtype=torch.float64)
    weights[2::8] = weights[4:8] = 0.0
    return weights


def close(found, expected, size):
    """Tell whether double precision can have made ``found``: the sums have at most 2,049 terms of ``size`` together."""
    return bool(np.all(np.abs(np.asarray(found) - expected) <= 1e-13 * size + 1e-300))


@pytest.mark.parametrize("kind", [*COMPILED, torch.bfloat16], ids=str)  # float16 is widened before
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_squares_are_just_above_the_exact_ones(shape, kind):
    rows = drawn(shape, kind)
    found = _rows.squares(rows.reshape(shape[0], shape[1], 1))
    assert found.shape == (shape[0],)
    assert found.dtype == torch.float64
    for row, seen in zip(rows.double().tolist(), found.tolist(), strict=True):
        exact = sum(Fraction(value) ** 2 for value in row)
        ratio = float((Fraction(seen) - exact) / exact) * 2.0**40
        assert 0.99 < ratio < 2.0  # what is added covers what may be flushed to zero, and is no more than stated


@pytest.mark.parametrize(("kind", "small"), [(torch.float64, 2.0**-540), (torch.float32, 2.0**-149)])
def test_squares_that_underflow_are_covered(kind, small):
    for others in (0.0, small, 1e3 * small):
        row = torch.tensor([[others, small, -small]], dtype=kind)
        exact = sum(Fraction(value) ** 2 for value in row[0].double().tolist())
        assert Fraction(float(_rows.squares(row)[0])) >= exact > 0


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
def test_one_number_that_is_not_finite_shows_in_its_row_and_no_other(kind, value):
    for place in (0, 1500, 2048):
        rows = drawn((6, 2049), kind)
        rows[4, place] = value
        assert torch.isfinite(_rows.squares(rows)).tolist() == [True] * 4 + [False, True]


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_weighted_and_clamped_sums_are_those_of_double_precision(shape, kind):
    rows, weights = drawn(shape, kind), factors(shape[0])
    rows[weights == 0] = math.nan  # a row of weight 0 is not read
    wide = rows.double().nan_to_num(0.0).numpy().astype(np.longdouble) * weights.numpy()[:, None]
    size = np.abs(wide).sum(axis=0)
    found = _rows.weighted(rows, weights)
    assert found.dtype == torch.float64
    assert close(found, wide.sum(axis=0), size)
    total = torch.full((shape[1],), 3.0, dtype=torch.float64)
    again = _rows.weighted(rows, weights, total)
    assert close(again, 3 + wide.sum(axis=0), 3 + size)
    for limit in (0.25, 2.0, 100.0):
        assert close(_rows.clamped(rows, weights, limit), np.clip(wide, -limit, limit).sum(axis=0), size)


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("examples", [1, 4, 9])
@pytest.mark.parametrize(
    ("long", "wide"), [(1, 1), (2, 5), (5, 2), (3, 1030), (1030, 3), (80, 80), (83, 97), (96, 121)]
)
def test_sums_of_outer_products_are_those_of_double_precision(examples, long, wide, kind):
    left, right, weights = drawn((examples, long), kind), drawn((examples, wide), kind, 1), factors(examples)
    exact = [side.double().numpy().astype(np.longdouble) for side in (left, right)]
    for side in (left, right):
        side[weights == 0] = math.inf
    expected = np.einsum("i,ij,ik->jk", weights.numpy().astype(np.longdouble), *exact)
    size = np.einsum("i,ij,ik->jk", weights.numpy(), *(np.abs(side) for side in exact))
    found = _rows.outer(left, right, weights)
    assert found.shape == (long, wide)
    assert close(found, expected, size)


@pytest.mark.parametrize("library", [True, False], ids=["torch's threads", "Python's threads"])
@pytest.mark.parametrize("kind", COMPILED, ids=str)
@pytest.mark.parametrize("shape", [(5, 70_001), (301, 1000)], ids=str)
def test_several_cores_do_what_one_does_to_the_bit(shape, kind, library, monkeypatch):
    """Rows, and columns, that are no multiple of the shares that cores take."""
    rows, weights, cores = drawn(shape, kind), factors(shape[0]), torch.get_num_threads()
    images = rows[:, :324].reshape(-1, 4, 9, 9)
    if not library:
        monkeypatch.setattr(_team, "find_library", lambda: 0)
    monkeypatch.setattr(_rows, "_SHARED", 1000)

    def made():
        narrow, wide = rows[:, :601], rows[:, :700]
        sums = (
            _rows.weighted(rows, weights),
            _rows.clamped(rows, weights, 2.0),
            _rows.outer(narrow[:, :70], wide, weights),
            _rows.outer(narrow, wide, weights),
            _rows.outer(narrow, wide, weights.clamp(min=0.1), quick=True),
            _rows.each_product(rows[:, :600].reshape(-1, 6, 100), rows[:, :600].reshape(-1, 6, 100)),
            *_rows.moments(images, images.cos()),
            *_rows.normalised(images.flatten(2), images.flatten(2).cos(), 1e-5),
        )
        return _rows.squares(rows), *sums

    found = []
    try:
        for threads in (1, 2, 3, 5):
            torch.set_num_threads(threads)
            found.append(made())
    finally:
        torch.set_num_threads(cores)
    for together in found[1:]:
        for one, other in zip(found[0], together, strict=True):
            assert torch.equal(one, other)
            assert bool(other.any())


def test_gamma_is_the_bound_of_a_sum_of_products():
    """Higham 2002, section 3.1: n u / (1 - n u), and nothing where n u is not small."""
    assert _rows.gamma(3, 2.0**-24) == pytest.approx(3 * 2.0**-24 / (1 - 3 * 2.0**-24), rel=1e-15)
    assert _rows.gamma(10, 0.03) == pytest.approx(0.3 / 0.7)
    assert _rows.gamma(10, 0.05) == _rows.gamma(100, 0.05) == math.inf
    assert np.finfo(np.float64).eps / 2 == _rows.UNIT


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_widened_rows_are_copies_without_what_has_no_weight(kind):
    rows, weights = drawn((9, 3), kind), factors(9)
    before = rows.clone()
    made = _rows.widened(rows, weights)
    assert made.dtype == torch.float64
    assert torch.equal(made, before.double() * (weights != 0)[:, None])
    assert torch.equal(rows, before)


def test_a_bound_of_an_examples_norm_has_its_margins():
    """Where every product is exact the margins are all there is: twice 2^-40 of the norm in its square, and once."""
    one = torch.ones(1, 1, 1, dtype=torch.float64)
    found = Fraction(_compared_squares(one, one).item())
    assert 1 + Fraction(29, 10) * Fraction(1, 2**40) < found < 1 + Fraction(4) * Fraction(1, 2**40)
