"""The parts of FastProjUnit, each against matrices written out, whole numbers of Python or closed forms."""

from __future__ import annotations

import math
from collections import Counter
from fractions import Fraction
from functools import cache
from types import SimpleNamespace
from typing import Any

import mpmath
import numpy as np
import pytest
from scipy.linalg import hadamard
from scipy.special import ndtri

import noisette as nz
from noisette.mechanisms import _walsh
from noisette.mechanisms.vector.projections.codebook import Codebook, lattice, quantiles, top_sums
from noisette.mechanisms.vector.projections.hadamard import HadamardRows, hashed, transform

MASK = 2**64 - 1


@cache
def projected(bits: int | None = None, ball: bool = False, radius: float = 2.0) -> Any:
    domain = nz.L2Ball(200, radius) if ball else nz.Sphere(200, radius)
    return nz.CATALOGUE["fast-projunit"](4.0, domain=domain, rows=64, bits=bits, rotation=3)


def mixed(seed: int, place: int) -> int:
    """SplitMix64 of a seed and a place, in whole numbers of any size."""
    word = (seed * 0xD1342543DE82EF95 + 0x9E3779B97F4A7C15) & MASK
    word = ((word ^ (word >> 32)) + place * 0x9E3779B97F4A7C15) & MASK
    word = ((word ^ (word >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    word = ((word ^ (word >> 27)) * 0x94D049BB133111EB) & MASK
    return word ^ (word >> 31)


def signs(rotation: int, dims: int) -> np.ndarray[Any, Any]:
    """Bit by bit, the highest of each byte first, bytes from the lowest."""
    found = []
    for place in range(dims):
        byte = (mixed(rotation, place // 64) >> (8 * (place % 64 // 8))) & 255
        found.append(-1.0 if (byte >> (7 - place % 8)) & 1 else 1.0)
    return np.asarray(found)


def test_places_are_mixed_as_whole_numbers_are() -> None:
    for seed in (0, 1, 2**32 - 1):
        found = hashed(seed, np.arange(5)).tolist()
        assert found == [mixed(seed, place) for place in range(5)]
    seeds = np.asarray([3, 9])
    assert hashed(seeds[:, None], np.arange(4)).tolist() == [[mixed(seed, p) for p in range(4)] for seed in (3, 9)]


@pytest.mark.parametrize("size", [1, 2, 4, 8, 32, 4096, 8192, 16384])
def test_the_transform_is_hadamards_matrix(size: int) -> None:
    """Above 4,096 numbers it goes by stretches: entry j of the transform of place i is (-1)^popcount(i & j)."""
    rng = np.random.default_rng(size)
    for place in {0, 1 % size, size // 2, size - 1, int(rng.integers(size))}:
        rows = np.zeros((2, size))
        rows[1, place] = 3.0
        transform(rows)
        wanted = 3.0 * (1 - 2 * np.asarray([(place & j).bit_count() & 1 for j in range(size)]))
        assert np.array_equal(rows[1], wanted)
        assert not rows[0].any()


def test_the_transform_does_not_depend_on_how_much_fits_a_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = np.random.default_rng(1).integers(-9, 9, (2, 64)).astype(float)
    for block in (4, 8, 64):
        own = rows.copy()
        monkeypatch.setattr(_walsh, "_BLOCK", block)
        monkeypatch.setattr(_walsh, "stages", _walsh._stages)
        _walsh._walsh(own)
        assert np.array_equal(own, rows @ hadamard(64))


@pytest.mark.parametrize("dims", [200, 256, 65])
def test_projections_are_those_of_their_matrices(dims: int) -> None:
    rows = HadamardRows(dims, 64, rotation=3)
    padded = 1 << (dims - 1).bit_length()
    assert (rows.padded, rows.width, rows.idle) == (padded, 64, False)
    own = signs(3, dims)
    dense = hadamard(padded)[:, :dims] * own  # sqrt(d) H D
    vectors = np.random.default_rng(1).normal(size=(3, dims))
    assert np.allclose(rows.spectrum(vectors), vectors @ dense.T, atol=1e-9)
    spectra = np.random.default_rng(2).normal(size=(2, padded))
    assert np.allclose(rows.back(spectra.copy()), spectra @ dense, atol=1e-9)
    seeds = np.asarray([5, 8, 9])
    places = rows.chosen(seeds)
    found = rows.directions(rows.spectrum(vectors), seeds)
    for own_places, vector, direction in zip(places, vectors, found, strict=True):
        seen = (dense @ vector)[own_places]
        assert np.allclose(direction, seen / np.linalg.norm(seen), rtol=1e-12)
    gammas = mpmath.gamma(mpmath.mpf(65) / 2) * mpmath.gamma(mpmath.mpf(padded) / 2)
    gammas /= mpmath.gamma(32) * mpmath.gamma(mpmath.mpf(padded + 1) / 2)
    length = math.sqrt(padded / 64) * float(gammas)
    assert rows.length == pytest.approx(length, rel=1e-12)
    assert rows.share == pytest.approx(1 / (8 * length), rel=1e-12)


def test_a_vector_that_projects_to_nothing_has_the_first_axis() -> None:
    rows = HadamardRows(200, 64)
    found = rows.directions(np.zeros((2, 256)), np.asarray([1, 2]))
    assert np.array_equal(found, np.eye(64)[[0, 0]])
    tiny = np.full((1, 256), 1e-300)
    assert np.allclose(rows.directions(tiny, np.asarray([1])), 1 / 8)


def test_nothing_is_projected_to_as_many_rows() -> None:
    for rows in (200, 300):
        idle = HadamardRows(200, rows)
        assert (idle.idle, idle.width, idle.padded, idle.length, idle.share) == (True, 200, 200, 1.0, 1.0)
        vectors = np.random.default_rng(1).normal(size=(2, 200))
        assert np.array_equal(idle.spectrum(vectors), vectors)
        assert np.array_equal(idle.back(vectors), vectors)
        assert np.array_equal(idle.chosen(np.asarray([4]))[0], np.arange(200))
    assert HadamardRows(200, 199).idle is False


@pytest.mark.parametrize("dims", [512, 513, 2000])
def test_a_seed_names_different_places(dims: int) -> None:
    """Up to eight times the rows the smallest words count, beyond the first different places."""
    rows = HadamardRows(dims, 64)
    places = rows.chosen(np.arange(40))
    assert places.shape == (40, 64)
    assert np.all(np.diff(places, axis=1) > 0)
    assert places.min() >= 0
    assert places.max() < rows.padded
    seed = 7
    if rows.padded <= 8 * 64:
        words = [mixed(seed, place) for place in range(rows.padded)]
        wanted = sorted(sorted(range(rows.padded), key=words.__getitem__)[:64])
    else:
        wanted, number = [], 0
        while len(wanted) < 64:
            place = mixed(seed, number) % rows.padded
            wanted += [place] if place not in wanted else []
            number += 1
        wanted = sorted(wanted)
    assert places[seed].tolist() == wanted


def test_the_largest_of_normal_numbers() -> None:
    """E max of 2 is 1/sqrt(pi), of 3 it is 3/(2 sqrt(pi)); the squares of all of n add up to n."""
    assert top_sums(2, 1) == pytest.approx((1 / math.sqrt(math.pi), 1.0), rel=1e-9)
    assert top_sums(3, 1) == pytest.approx((1.5 / math.sqrt(math.pi), 1 + math.sqrt(3) / (2 * math.pi)), rel=1e-9)
    assert top_sums(3, 2)[0] == pytest.approx(1.5 / math.sqrt(math.pi), rel=1e-9)  # the middle one has mean 0
    assert top_sums(8, 8) == pytest.approx((0.0, 8.0), abs=1e-9)


def test_cells_of_the_normal_law_have_its_variance() -> None:
    ends = quantiles()
    assert ends.size == 2**16 + 1
    assert np.array_equal(ends[1:-1], ndtri(np.arange(1, 2**16) / 2**16))
    assert ends[0] == -ends[-1]
    assert ends[-1] > ends[-2]
    a, b = ends[:-1], ends[1:]
    assert float(((a * a + a * b + b * b) / 3).mean()) == pytest.approx(1, rel=1e-13)


@pytest.mark.parametrize("mean", [0.3, 0.5, 1.0, 3.0])
def test_estimates_are_added_up_on_powers_of_two(mean: float) -> None:
    step = lattice(mean)
    assert math.log2(step) == int(math.log2(step))
    assert 1 / (2 * mean) < step * 2**16 <= 1 / mean


@pytest.mark.parametrize("epsilon", [0.01, 1.0, 3.0, 8.0, 50.0])
@pytest.mark.parametrize("bits", [1, 3, 6])
def test_a_codebook_is_the_best_that_its_budget_allows(epsilon: float, bits: int) -> None:
    book = Codebook.build(64, bits, epsilon)
    size = 2**bits
    assert book.size == size
    assert Fraction(book.own, book.other) <= Fraction(math.exp(min(epsilon, 700.0))) * (1 + Fraction(1, 2**40))
    assert mpmath.log(mpmath.mpf(book.own) / book.other) <= epsilon
    assert book.own > book.other >= 1
    assert book.total == book.near * book.own + (size - book.near) * book.other <= 2**53
    excess = math.expm1(min(epsilon, 30.0))
    means = [excess * top_sums(size, near)[0] / (near * excess + size) for near in range(1, size)]
    assert means[book.near - 1] >= max(means) * (1 - 1e-9)
    assert book.mean == pytest.approx(max(means), rel=1e-6)
    if epsilon <= 8:  # as near to the budget as 53 bits allow
        assert math.log(book.own / book.other) > epsilon * (1 - 1e-6)


def test_the_moments_of_a_word_are_sums_over_all_words() -> None:
    """E<g, u> and its square, with weight own for the near ones: sums of the largest are closed forms for three."""
    book = Codebook(2, 3, 1, 7, 2)
    first, square = 1.5 / math.sqrt(math.pi), 1 + math.sqrt(3) / (2 * math.pi)
    assert book.total == 11
    assert book.preferred == pytest.approx(5 / 11, rel=1e-14)
    assert book.mean == pytest.approx((7 * first + 2 * (0 - first)) / 11, rel=1e-9)
    assert book.square == pytest.approx((7 * square + 2 * (3 - square)) / 11, rel=1e-9)
    assert book.proxy == pytest.approx(1 + (book.mean / (5 / 11)) ** 2 / 4, rel=1e-12)


def test_each_word_is_drawn_as_often_as_it_weighs() -> None:
    """Every draw once: near words 5 times, others twice; draws above the sum of weights are drawn again."""
    book = Codebook(3, 5, 2, 5, 2)
    direction = np.asarray([0.6, 0.0, 0.8])
    order = book.nearest(11, direction)
    products = book.words(np.full(5, 11), np.arange(5)) @ direction
    assert order.tolist() == np.argsort(-products, kind="stable").tolist()
    draws = [np.arange(16) + 0.5, np.full(1, 20.0), np.full(1, 15.5)]
    draws[0] = np.append(draws[0], 16.0)  # the sum of all weights is 16: one too many, and so is 20
    queue = iter([one / 2**53 for one in draws])
    source: Any = SimpleNamespace(random=lambda size: next(queue))
    found = Counter(book.draw(np.full(17, 11), np.tile(direction, (17, 1)), source).tolist())
    found[int(_last_word(book, order))] -= 1  # the draw of 15.5 came twice
    assert {word: found[word] for word in range(5)} == {word: 5 if word in order[:2] else 2 for word in range(5)}


def _last_word(book: Codebook, order: Any) -> int:
    """The last of 16 draws names the last word by its number."""
    return book.size - 1


def test_words_are_those_of_their_seed() -> None:
    """Number by number: 16 bits name a cell of the normal law, 48 a place in it."""
    book, ends = Codebook(3, 8, 1, 2, 1), quantiles()
    for seed, number in ((0, 0), (5, 3), (2**32 - 1, 7)):
        words = [mixed(seed, 3 * number + place) for place in range(3)]
        cells = [word >> 48 for word in words]
        wanted = [
            ends[c] + (w & (2**48 - 1)) / 2**48 * (ends[c + 1] - ends[c]) for c, w in zip(cells, words, strict=True)
        ]
        assert np.allclose(book.words(np.asarray([seed]), np.asarray([number]))[0], wanted, rtol=1e-15)


@pytest.mark.parametrize("bits", [None, 4])
@pytest.mark.parametrize("ball", [False, True])
def test_reports_are_read_as_by_matrices(bits: int | None, ball: bool) -> None:
    """W'z/C for each report, W = sqrt(d/k) S H D; sums in a sketch, in a tally and by hand agree."""
    mechanism = projected(bits, ball)
    vectors = np.zeros((3, 200))
    vectors[:, :2] = [[1.2, 1.6], [-2.0, 0.0], [0.0, 2.0]]
    reports = mechanism.privatize(vectors, rng=1)
    rows = HadamardRows(201 if ball else 200, 64, rotation=3)
    dense = hadamard(256)[:, : rows.dims] * signs(3, rows.dims) / math.sqrt(256)
    found = mechanism.decode(reports)
    inner = mechanism._inner
    for report, estimate in zip(reports, found, strict=True):
        z = report[1:] if bits is None else inner.words(report[:1].astype(int), report[1:].astype(int))[0] / inner.mean
        projection = math.sqrt(256 / 64) * dense[rows.chosen(report[:1].astype(int))[0]]
        wanted = 2.0 * (z @ projection)[:200] / rows.length
        assert np.allclose(estimate, wanted, rtol=1e-9, atol=1e-3 * np.abs(wanted).max() if bits else 1e-9)
    sketch = mechanism.sketch()
    for report, weight in zip(reports, (1.0, 1.0, 3.0), strict=True):
        mechanism.add_to(sketch, report, weight)
    assert np.allclose(mechanism.unfold(sketch), found[0] + found[1] + 3 * found[2], rtol=1e-9, atol=1e-12)
    tally = mechanism.tally(reports)
    assert np.allclose(tally.total * mechanism.readout.scale, found.sum(axis=0), rtol=1e-9, atol=1e-12)
    assert tally.users == 3
    whole = found / mechanism.readout.scale / mechanism.readout.coarse
    assert np.allclose(tally.squares, np.rint(whole**2).sum(axis=0), atol=2)
    assert np.array_equal(mechanism.readable(reports, vectors), found)


def test_a_covariance_is_that_of_uniform_directions() -> None:
    """The trace of a I + b vv' is E|estimate|^2 - 1, and along v it is E<estimate, v>^2 - 1."""
    for bits in (None, 4):
        mechanism = projected(bits)
        inner, padded, width, length = mechanism._inner, 256, 64, mechanism._projection.length
        a, b = mechanism._covariance
        if bits is None:
            along, whole = (
                (inner.cap.base + inner.cap.gamma * inner.cap.mean) / inner.cap.mean**2,
                1 / inner.cap.mean**2,
            )
        else:
            along = inner.square / inner.mean**2
            whole = along + (width - 1) / inner.mean**2
        assert a + b == pytest.approx(along / length**2 - 1, rel=1e-9)
        assert padded * a + b == pytest.approx(padded / width * whole / length**2 - 1, rel=1e-9)
        assert mechanism.coupling == b
        x = np.zeros(200)
        x[0] = 2.0
        moments = mechanism.moments(x)
        assert moments.variance[0] == pytest.approx(4 * (a + b), rel=1e-12)
        assert moments.variance[1] == pytest.approx(4 * a, rel=1e-12)
        assert moments.third[1] == pytest.approx(math.sqrt(8 / math.pi) * (4 * a) ** 1.5, rel=1e-12)
        assert mechanism.worst_variance() == pytest.approx(4 * (a + max(0.0, b)), rel=1e-12)


@pytest.mark.parametrize(
    "wrong", [[-1, 3], [2**32, 3], [0.5, 3], [7, -1], [7, 16], [7, 2.5], [math.nan, 3], [7, math.nan]]
)
def test_a_seed_or_word_that_is_none_is_outside_the_support(wrong: list[float]) -> None:
    support = projected(4).support
    good = np.asarray([[0, 0], [2**32 - 1, 15], [7, 3]], dtype=float)
    assert support.contains(good).all()
    good[1] = wrong
    assert support.contains(good).tolist() == [True, False, True]


def test_chances_of_words_are_their_weights() -> None:
    mechanism = projected(4)
    inner = mechanism._inner
    vector = np.zeros(200)
    vector[0] = 2.0
    reports = np.stack([np.full(16, 9.0), np.arange(16.0)], axis=1)
    logs = mechanism.log_prob(reports, np.tile(vector, (16, 1)))
    direction = mechanism._projection.directions(mechanism._spectrum(vector), np.asarray(9))
    near = set(inner.nearest(9, direction)[: inner.near].tolist())
    wanted = [math.log((inner.own if word in near else inner.other) / inner.total / 2**32) for word in range(16)]
    assert np.allclose(logs, wanted, rtol=1e-12)
    assert float(np.exp(logs).sum() * 2**32) == pytest.approx(1, rel=1e-12)
    assert mechanism.log_prob([9.0, 16.0], vector) == -np.inf


def test_vectors_shorter_than_the_radius_are_lifted() -> None:
    mechanism = projected(ball=True)
    short = np.zeros(200)
    short[0] = 1.0
    lifted = np.append(short / 2, math.sqrt(0.75))
    dense = hadamard(256)[:, :201] * signs(3, 201)
    assert np.allclose(mechanism._spectrum(short), dense @ lifted, atol=1e-9)
    assert mechanism.report_shape == (65,)
    assert projected(4).report_shape == (2,)
    assert mechanism.readout.scale == pytest.approx(2 * mechanism.support.step * mechanism._projection.share, rel=1e-12)


@pytest.mark.parametrize(("bits", "epsilon"), [(1, 0.12), (2, 0.98), (3, 2.64), (5, 0.7)])
def test_weights_of_a_codebook_fit_into_all_draws(bits: int, epsilon: float) -> None:
    """At these budgets rounding alone would make their sum one too many."""
    assert 2**53 - 64 < Codebook.build(64, bits, epsilon).total <= 2**53
