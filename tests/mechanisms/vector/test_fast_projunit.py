"""FastProjUnit against its definition: the projection row by row, its error, the order of words, and what may leak."""

import dataclasses
import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from scipy.linalg import hadamard
from scipy.special import ndtri
from scipy.stats import chi2, norm

import noisette as nz
from noisette.mechanisms.vector.projections.codebook import Codebook, quantiles, top_sums
from noisette.mechanisms.vector.projections.hadamard import HadamardRows, transform

FALSE_ALARM = 1e-6


def unit(dims, seed=7):
    vector = np.random.default_rng(seed).standard_normal(dims)
    return vector / np.linalg.norm(vector)


@pytest.mark.slow
@pytest.mark.parametrize("size", [2, 4, 8, 64, 1 << 10])
def test_the_transform_is_hadamards_matrix(size):
    rows = np.random.default_rng(0).standard_normal((2, size))
    moved = rows.copy()
    transform(moved)
    np.testing.assert_allclose(moved, rows @ hadamard(size), atol=1e-9)


def test_a_projection_is_signs_then_rows_of_the_matrix():
    projection, vector = HadamardRows(100, 64, rotation=3), unit(100)
    assert (projection.padded, projection.width) == (128, 64)
    seeds = np.arange(5)
    found = projection.directions(projection.spectrum(vector), seeds)
    padded = np.append(vector * projection._signs, np.zeros(28))
    for seed, direction in zip(seeds, found, strict=True):
        places = projection.chosen(np.asarray(seed))
        wanted = (hadamard(128) @ padded)[places]
        np.testing.assert_allclose(direction, wanted / np.linalg.norm(wanted), atol=1e-12)
        sketch = np.zeros(128)
        sketch[places] = direction
        back = (hadamard(128).T @ sketch)[:100] * projection._signs
        np.testing.assert_allclose(projection.back(sketch.copy()), back, atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("dims", [100, 5000])
def test_every_row_is_chosen_as_often_and_none_twice(dims):
    """Chi-square over the places, which a subset without replacement makes smaller than independent draws would."""
    projection, users = HadamardRows(dims, 64), 2000
    places = projection.chosen(np.arange(users))
    assert (np.diff(places, axis=1) > 0).all()
    counts = np.bincount(places.reshape(-1), minlength=projection.padded)
    expected = users * 64 / projection.padded
    statistic = ((counts - expected) ** 2 / expected).sum()
    assert statistic < chi2.isf(FALSE_ALARM, projection.padded - 1)
    assert statistic > chi2.ppf(FALSE_ALARM, projection.padded - 1) * (1 - 64 / projection.padded)


@pytest.mark.parametrize(("dims", "rows"), [(4096, 64), (1 << 23, 1024)])
def test_the_mean_length_of_a_projection(dims, rows):
    with mpmath.workdps(40):
        half = mpmath.mpf(rows) / 2, mpmath.mpf(dims) / 2
        wanted = mpmath.sqrt(half[1] / half[0]) * mpmath.gammaprod([half[0] + 0.5, half[1]], [half[0], half[1] + 0.5])
    assert HadamardRows(dims, rows).length == pytest.approx(float(wanted), rel=1e-12)


# (d/k)/(C m_k)^2 - 1 over PrivUnit's 1/m_d^2 - 1 at d = 10^6, from the definitions in mpmath: oracles.md, part B
@pytest.mark.parametrize(
    ("epsilon", "rows", "loss"),
    [
        (4.0, 128, 1.009),
        (4.0, 512, 1.002),
        (4.0, 1024, 1.001),
        (8.0, 128, 1.030),
        (8.0, 512, 1.007),
        (8.0, 1024, 1.0033),
    ],
)
def test_the_loss_to_privunit(epsilon, rows, loss):
    dims = 1 << 20
    projected = nz.FastProjUnit(epsilon=epsilon, dims=dims, rows=rows)
    whole = nz.PrivUnit(epsilon=epsilon, dims=dims).cap.mean ** -2 - 1
    a, b = projected._covariance
    assert (dims * a + b) / whole == pytest.approx(loss, abs=6e-4)


@pytest.mark.slow
def test_the_error_is_as_predicted():
    """At n = 500 the squared error is a sum of some 5,000 squares: within 6 of its deviations, sqrt(2/5000)."""
    dims, users, vector = 5000, 500, unit(5000)
    mechanism = nz.FastProjUnit(epsilon=8.0, dims=dims)
    reports = mechanism.privatize(np.broadcast_to(vector, (users, dims)), rng=3)
    sketch = mechanism.sketch()
    for report in reports:
        mechanism.add_to(sketch, report)
    mean = mechanism.unfold(sketch) / users
    predicted = float(mechanism.moments(vector).variance.sum()) / users
    assert np.square(mean - vector).sum() / predicted == pytest.approx(1.0, abs=6 * math.sqrt(2 / dims))
    estimate = mechanism.aggregate(reports[:50]).estimate()
    np.testing.assert_allclose(estimate.value, mechanism.decode(reports[:50]).mean(axis=0), atol=1e-12)


@pytest.mark.long
@pytest.mark.parametrize(
    "mechanism",
    [
        nz.FastProjUnit(epsilon=4.0, dims=300, rows=64),
        nz.FastProjUnit(epsilon=2.0, dims=4, domain=nz.L2Ball(4, 3.0)),
        nz.FastProjUnit(epsilon=3.0, dims=4, bits=4),
    ],
)
def test_the_contract(mechanism):
    nz.testing.check_mechanism(mechanism, samples=2000)


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [1e-3, 0.5, 4.0, 8.0, 20.0])
def test_words_have_exact_weights(epsilon):
    book = Codebook.build(8, 6, epsilon)
    assert book.total <= 1 << 53
    ratio = Fraction(book.own, book.other)
    assert 1 < ratio <= Fraction(math.exp(epsilon))
    mechanism = nz.FastProjUnit(epsilon=epsilon, dims=8, bits=6)
    assert nz.exact_epsilon(mechanism) <= epsilon
    words = np.column_stack([np.zeros(64), np.arange(64)])
    masses = np.exp(mechanism.log_prob(words, unit(8)[None])) * 2.0**32
    assert masses.sum() == pytest.approx(1.0, rel=1e-12)
    assert np.unique(masses).size == 2


def test_an_input_that_rounding_ties_still_has_so_many_near_words():
    """A projection that is zero, and one so short that its squares vanish, are answered as any other is."""
    mechanism = nz.FastProjUnit(epsilon=2.0, dims=70, rows=64, domain=nz.L2Ball(70))
    projection = mechanism._projection
    for vector in (np.zeros(70), np.full(70, 1e-300)):
        assert mechanism.support.contains(mechanism.privatize(vector, rng=1))
    spectrum = np.zeros(128)
    spectrum[0] = 1.0  # of which most seeds see nothing
    found = projection.directions(spectrum, np.arange(20))
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1.0)


def test_the_sums_of_the_largest_normal_numbers():
    """The largest of 2 and of 3: 1/sqrt(pi), 3/(2 sqrt(pi)), by David and Nagaraja 2003, section 3.2; all: 0 and n."""
    assert top_sums(2, 1)[0] == pytest.approx(1 / math.sqrt(math.pi), rel=1e-12)
    assert top_sums(3, 1)[0] == pytest.approx(1.5 / math.sqrt(math.pi), rel=1e-12)
    assert top_sums(7, 7) == (pytest.approx(0.0, abs=1e-12), pytest.approx(7.0, rel=1e-12))


@pytest.mark.slow
def test_words_are_normal():
    book = Codebook.build(50, 4, 1.0)
    words = book.words(np.repeat(np.arange(100), 16), np.tile(np.arange(16), 100)).reshape(-1)
    counts = np.histogram(words, np.concatenate([[-np.inf], ndtri(np.arange(1, 64) / 64), [np.inf]]))[0]
    assert ((counts - words.size / 64) ** 2 / (words.size / 64)).sum() < chi2.isf(FALSE_ALARM, 63)
    ends = quantiles()
    assert float(((ends[1:] ** 2 + ends[1:] * ends[:-1] + ends[:-1] ** 2) / 3).mean()) == pytest.approx(1.0, rel=1e-12)
    assert np.abs(norm.cdf(ends[1:-1]) - np.arange(1, 1 << 16) / (1 << 16)).max() < 1e-12


# d/m_M^2 over PrivUnitG's d/m^2: oracles.md, part B
@pytest.mark.slow
@pytest.mark.parametrize(
    ("epsilon", "bits", "loss"), [(2.0, 7, 1.015), (4.0, 8, 1.017), (8.0, 11, 1.02), (8.0, 12, 1.009)]
)
def test_the_loss_of_a_codebook(epsilon, bits, loss):
    book = Codebook.build(1024, bits, epsilon)
    assert (nz.PrivUnitG(epsilon=epsilon, dims=4).cap.mean / book.mean) ** 2 == pytest.approx(loss, abs=4e-3)


def test_bad_options_are_refused():
    with pytest.raises(ValueError, match="rows=8"):
        nz.FastProjUnit(epsilon=1.0, dims=100, rows=8)
    with pytest.raises(ValueError, match="2\\^bits words"):
        nz.FastProjUnit(epsilon=1.0, dims=100, bits=20)
    with pytest.raises(ValueError, match="length 1"):
        nz.FastProjUnit(epsilon=1.0, dims=3).privatize(np.ones(3))


def test_a_seed_that_was_drawn_for_a_token_is_kept():
    mechanism = nz.FastProjUnit(epsilon=1.0, dims=100, rows=64)
    drawn = mechanism.draw(3, np.random.default_rng(1))
    reports = mechanism.privatize_drawn(np.stack([unit(100)] * 3), drawn, rng=2)
    np.testing.assert_array_equal(mechanism.drawn(reports), drawn)
    assert mechanism.support.contains(reports).all()


@pytest.mark.slow
def test_a_projection_is_certified_and_a_codebook_is_not_yet():
    mechanism = nz.FastProjUnit(epsilon=4.0, dims=3000)
    assert nz.certify(mechanism).verdict.proved
    with pytest.raises(ValueError, match="codebooks"):
        nz.certify(dataclasses.replace(mechanism, bits=8))
