"""The exact sampler of rounded normal noise: its table, its quick path, its slow path, its law."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import pytest
from scipy.special import erfc, ndtr
from scipy.stats import chi2

from noisette.mechanisms.tensor.gaussian import _normal
from noisette.mechanisms.tensor.gaussian._loops import add
from noisette.mechanisms.tensor.gaussian._normal import STEPS, add_noise, add_noise_to_all, build_table

FALSE_ALARM = 1e-6


def parts_of(table: _normal.AliasTable) -> dict[int, Fraction]:
    """Return the probability of each part that the alias table gives."""
    capacity = Fraction(1, len(table.alias))
    masses: dict[int, Fraction] = {}
    for column, threshold in enumerate(table.thresholds):
        own = Fraction(threshold, 1 << 256)
        for part, mass in ((column, own), (int(table.alias[column]), capacity - own)):
            masses[part] = masses.get(part, Fraction(0)) + mass
    return masses


def test_the_table_holds_the_masses_of_the_strips() -> None:
    masses = parts_of(build_table())
    assert sum(masses.values()) == 1
    with mpmath.workprec(400):
        for strip in (0, 1, 17, 64, 127):
            low, high = mpmath.mpf(strip) / 16, mpmath.mpf(strip + 1) / 16
            rectangle = mpmath.npdf(high) / 8
            wedge = 2 * (mpmath.ncdf(high) - mpmath.ncdf(low)) - rectangle
            for part, expected in ((strip, rectangle), (128 + strip, wedge)):
                found = mpmath.mpf(masses[part].numerator) / masses[part].denominator
                assert abs(found - expected) < mpmath.ldexp(1, -240)
        tail = mpmath.mpf(masses[256].numerator) / masses[256].denominator
        assert abs(tail - mpmath.erfc(8 / mpmath.sqrt(2))) < mpmath.ldexp(1, -240)
    assert not any(masses.get(part) for part in range(257, 512))


def histogram_distance(draws: np.ndarray, edges: np.ndarray) -> float:
    """Return Pearson's statistic of the draws against the normal law."""
    counts = np.histogram(draws, edges)[0]
    expected = np.diff(ndtr(edges)) * draws.size
    return float(((counts - expected) ** 2 / expected).sum())


EDGES = np.concatenate([[-np.inf], np.linspace(-4, 4, 8 * 37 + 1), [np.inf]])  # 37 cuts every strip differently


def test_the_law_is_normal() -> None:
    draws = np.zeros(2_000_000)
    add_noise(draws, np.random.default_rng(11))
    assert histogram_distance(draws, EDGES) < chi2.isf(FALSE_ALARM, EDGES.size - 2)


@pytest.mark.slow
def test_a_law_without_wedges_is_rejected() -> None:
    rng = np.random.default_rng(11)
    weights = np.exp(-(((np.arange(128) + 1) / 16) ** 2) / 2)
    strips = rng.choice(128, 2_000_000, p=weights / weights.sum())
    draws = (strips + rng.random(strips.size)) / 16 * rng.choice([-1, 1], strips.size)
    assert histogram_distance(draws, EDGES) > chi2.isf(FALSE_ALARM, EDGES.size - 2)


def test_reports_lie_half_a_step_off_the_lattice() -> None:
    values = np.random.default_rng(0).normal(size=1000) * 100
    before = np.rint(values * STEPS)
    add_noise(values, np.random.default_rng(1))
    noise = values * STEPS - before - 0.5
    assert np.array_equal(noise, np.rint(noise))
    assert 0.9 < (noise / STEPS).std() < 1.1


def added(
    loop: Callable[..., int], start: np.ndarray, words: np.ndarray, spare: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the numbers with noise that a loop makes, and the draws it leaves open."""
    values = start.copy()
    pending, open_draws = np.zeros((words.size + 1, 4), dtype=np.uint64), np.empty(words.size + 1, dtype=np.uint8)
    left = loop(values, STEPS, 1 / STEPS, 0.0, words, spare, pending, open_draws)
    return values, pending[:left]


def test_the_quick_path_reads_words_as_the_table_says() -> None:
    table = build_table()
    words = np.random.default_rng(5).integers(0, 2**64, 20_000, dtype=np.uint64)
    values, pending = added(add, np.zeros(words.size), words, np.empty(0, dtype=np.uint64))
    left = len(pending)
    open_places = set(pending[:, 0].tolist())
    for place, word in enumerate(words.tolist()):
        column, sign, chance = word >> 32 & 511, word >> 41 & 1, word >> 42
        exact = Fraction(table.thresholds[column], 1 << 247)
        below = Fraction(chance + 1, 1 << 22) <= exact
        part = column if below else int(table.alias[column])
        if part < 128 and place not in open_places:
            cell = (part << 32) + (word & 0xFFFFFFFF)
            assert values[place] * STEPS - 0.5 == (-cell - 1 if sign else cell)
        else:  # without spare words all wedges are left open
            assert place in open_places
    assert left == pytest.approx(words.size * sum(float(m) for p, m in parts_of(table).items() if p >= 128), rel=0.2)


def test_every_tie_reaches_the_slow_path_under_the_code_that_it_knows() -> None:
    """One draw in four million is a tie: every column's is made here, in machine code and in Python alike."""
    table = build_table()
    columns = np.flatnonzero(table.shown < 1 << 22).astype(np.uint64)
    assert columns.size > 250
    words = (table.shown[columns].astype(np.uint64) << np.uint64(42)) | columns << np.uint64(32) | np.uint64(12345)
    for loop in (add, add.py_func):
        start = np.linspace(-3, 3, words.size)
        values, pending = added(loop, start, words, np.zeros(2 * words.size, dtype=np.uint64))
        assert len(pending) == words.size
        assert pending[:, 0].tolist() == list(range(words.size))
        assert set(pending[:, 1].tolist()) == {_normal._COLUMNS}
        assert not pending[:, 2:].any()
        assert np.array_equal(values, start)
    for word, column in zip(words[::16].tolist(), columns[::16].tolist(), strict=True):
        parts = (column, int(table.alias[column]))
        strip = _normal._settle(np.random.default_rng(4), table, word, _normal._COLUMNS, 0, 0) >> 32
        assert strip in {part % 128 for part in parts if part < 256} or (256 in parts and strip >= 128)


@pytest.mark.slow
def test_machine_code_and_python_draw_the_same_noise() -> None:
    """Every word, wedges tried with spare words included: the same values, and the same draws left open."""
    rng = np.random.default_rng(8)
    words, spare = (rng.integers(0, 2**64, size, dtype=np.uint64) for size in (30_000, 8_000))
    start = rng.normal(size=words.size)
    found = []
    for loop in (add, add.py_func):
        found.append(added(loop, start, words, spare))
    for one, other in zip(*found, strict=True):
        assert np.array_equal(one, other)


@pytest.mark.parametrize(("step", "unit"), [(0.0, 3.0), (2.0**-20, 2.0**-20)])
def test_single_precision_gets_the_same_noise_and_is_rounded_behind_it(step: float, unit: float) -> None:
    """Blocks, ties of rare parts and far numbers included; noise computed in single precision would be another."""
    start = np.random.default_rng(6).normal(size=200_000).astype(np.float32)
    start[:4] = [np.inf, -np.inf, 3e38, np.finfo(np.float32).tiny / 4]
    single, double = start.copy(), start.astype(np.float64)
    for values in (single, double):
        add_noise_to_all([values], np.random.default_rng(7), sigma=0.7, unit=unit, step=step)
    assert single.dtype == np.float32
    assert np.array_equal(single, double.astype(np.float32))
    twice = start[4:] + (double - start)[4:].astype(np.float32)
    assert not np.array_equal(single[4:], twice)  # noise that was rounded before it was added


@pytest.mark.parametrize("few", [1, 2, 3, 30])
def test_no_word_behind_the_spare_ones_is_read(few: int) -> None:
    """A compiled loop would take what lies in memory there for chance: Python says where one is read too many."""
    rng = np.random.default_rng(9)
    words, spare = (rng.integers(0, 2**64, size, dtype=np.uint64) for size in (3_000, few))
    start = np.zeros(words.size)
    (values, pending), (others, left) = (added(loop, start, words, spare) for loop in (add, add.py_func))
    assert np.array_equal(values, others)
    assert np.array_equal(pending, left)
    assert len(pending) > 30


def test_points_of_a_wedge_are_kept_as_the_density_says() -> None:
    """The chord and the tangent that decide most of them decide as many digits of the curve would."""
    table, rng = build_table(), np.random.default_rng(21)
    columns = [c for c in range(128, 256) if table.shown[c] > 1]  # a chance of 0 chooses their own part, a wedge
    assert len(columns) > 80
    kept = 0
    for column in 3 * columns:
        spare = rng.integers(0, 2**64, 40, dtype=np.uint64)
        values, pending = added(add, np.zeros(1), np.array([column << 32], dtype=np.uint64), spare)
        low, high = (mpmath.mpf(column - 128 + more) / 16 for more in (0, 1))
        top = mpmath.expm1((high**2 - low**2) / 2)
        for first, second in spare.reshape(-1, 2).tolist():
            z = low + mpmath.ldexp(first, -64) / 16
            if mpmath.ldexp(second, -64) * top < mpmath.expm1((high**2 - z**2) / 2):
                assert not len(pending)
                assert values[0] * STEPS - 0.5 == ((column - 128) << 32) + (first >> 32)
                kept += 1
                break
    assert kept > 240


@pytest.mark.long
def test_ties_wedges_and_the_tail_are_settled_by_their_laws() -> None:
    table, rng = build_table(), np.random.default_rng(3)
    strip, low = 20, 20 / 16
    draws = np.asarray([_normal._wedge(rng, strip, 0, 0) for _ in range(2000)]) / STEPS - low
    z = np.linspace(low, low + 1 / 16, 2001)
    density = np.exp(-z * z / 2) - np.exp(-(z[-1] ** 2) / 2)
    cdf = np.concatenate([[0], np.cumsum((density[1:] + density[:-1]) / 2)])
    uniform = np.sort(np.interp(draws, z - low, cdf / cdf[-1]))
    assert kolmogorov(uniform) < limit(2000)
    assert kolmogorov(np.sort(draws * 16)) > limit(2000)  # a wedge is not a rectangle
    tail = np.asarray([_normal._tail(rng) for _ in range(2000)]) / STEPS
    assert tail.min() >= 8
    assert kolmogorov(np.sort(erfc(tail / np.sqrt(2)) / erfc(8 / np.sqrt(2)))) < limit(2000)
    column = int(np.flatnonzero((table.shown > 0) & (table.shown < 1 << 22))[0])
    word = (int(table.shown[column]) << 42) | column << 32 | 12345
    rest = Fraction(table.thresholds[column] % (1 << 225), 1 << 225)
    own = [_normal._settle(rng, table, word, 512, 0, 0) == (column << 32) + 12345 for _ in range(4000)]
    if column < 128:
        assert abs(np.mean(own) - float(rest)) < 4.9 * np.sqrt(float(rest * (1 - rest)) / 4000) + 1e-9


def test_words_of_an_undecided_wedge_are_kept() -> None:
    rng = np.random.default_rng(0)
    low, high, first = 20 / 16, 21 / 16, 1 << 62  # a quarter of the strip
    z = low + 1 / 64
    ratio = np.expm1((high**2 - z**2) / 2) / np.expm1((high**2 - low**2) / 2)
    accepted = [_normal._wedge(rng, 20, first, int((ratio - gap) * 2**64)) >> 30 for gap in (1e-9, 1e-6)]
    assert accepted == [(20 << 2) + 1] * 2
    rejected = [_normal._wedge(rng, 20, first, int((ratio + 1e-9) * 2**64)) for _ in range(50)]
    assert len(set(rejected)) == 50


def kolmogorov(uniform: np.ndarray) -> float:
    """Return the largest gap between sorted values and the uniform law."""
    rank = np.arange(uniform.size + 1) / uniform.size
    return float(max((uniform - rank[:-1]).max(), (rank[1:] - uniform).max()))


def limit(size: int) -> float:
    """Return the gap that a uniform sample exceeds with probability 1e-6 at most (Massart 1990)."""
    return float(np.sqrt(np.log(2 / FALSE_ALARM) / (2 * size)))


@pytest.mark.parametrize(("unit", "step"), [(1.0, 0.0), (2.0**-20, 0.0), (2.0**-20, 2.0**-20)])
def test_what_is_settled_apart_is_rounded_as_all_the_rest(
    monkeypatch: pytest.MonkeyPatch, unit: float, step: float
) -> None:
    """Far from zero whole numbers are rounded; in another way for a few draws it would show which noise they had."""
    from noisette.mechanisms.tensor.gaussian import _loops

    table, values = build_table(), np.linspace(1.0, 2.0, 20_000) * 2.0**25
    quick, slow, left = values.copy(), values.copy(), []

    def all_open(values: np.ndarray, *given: Any, places: int, threads: int) -> None:
        *numbers, words, pending, open_draws, counts = given
        for block in range(places):
            first, whole = block * _normal.BLOCK, _normal.words_of(_normal.BLOCK)
            piece, own = values[first : first + _normal.BLOCK], words[block * whole : (block + 1) * whole]
            parts = own[: piece.size], own[piece.size :]
            counts[block] = left_open(piece, pending[block], *numbers, *parts, pending[block], open_draws[block])

    def left_open(piece: np.ndarray, pending: np.ndarray, *given: Any) -> int:
        words, kept = given[3], piece.copy()
        count = int(add(piece, *given))
        others = set(pending[:count, 0].tolist())
        for place, word in enumerate(words.tolist()):
            column, chance = word >> 32 & 511, word >> 42
            part = column if chance < table.shown[column] else int(table.alias[column])
            if part < 128 and chance != table.shown[column] and place not in others:
                pending[count], piece[place] = (place, part, 0, 0), kept[place]
                count += 1
        left.append(count)
        return count

    add_noise_to_all([quick], np.random.default_rng(3), sigma=1.0, unit=unit, step=step)
    monkeypatch.setattr(_loops, "add_blocks", all_open)
    add_noise_to_all([slow], np.random.default_rng(3), sigma=1.0, unit=unit, step=step)
    assert sum(left) > 0.9 * values.size
    assert np.count_nonzero(quick != slow) <= 4  # draws that took more random words than the other pass
