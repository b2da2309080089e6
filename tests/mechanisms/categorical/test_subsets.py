"""Uniform subsets: both ways to draw them agree bit by bit, all subsets are equally likely, and long ones end."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from scipy.stats import chi2, norm

from noisette.mechanisms.categorical import _subsets
from noisette.mechanisms.categorical._subsets import bits_and_draws, fill_subsets


@pytest.mark.parametrize(
    ("size", "length"), [(2, 1), (5, 2), (5, 4), (9, 1), (20, 13), (100, 12), (100, 90), (3000, 7)]
)
def test_both_ways_agree(size: int, length: int) -> None:
    rng = np.random.default_rng(size * length)
    items, own = rng.integers(0, size, 400), rng.random(400) < 0.6
    bits, draws = bits_and_draws(size, length)
    words = rng.integers(0, 2**64 - 1, (400, -(-draws * bits // 64)), dtype=np.uint64, endpoint=True)
    found = []
    for fill in (_subsets._fill_few, _subsets._compiled()):
        rows, exact = np.empty((400, length), dtype=np.int64), np.ones(400, dtype=bool)
        fill(words.view(f"<u{bits // 8}"), bits, items, own, size, rows, exact)
        found.append((rows[exact], exact))
    assert np.array_equal(found[0][0], found[1][0])
    assert np.array_equal(found[0][1], found[1][1])
    rows, exact = found[0]
    assert exact.mean() > 0.8
    assert np.all(np.diff(rows, axis=1) > 0)
    assert rows.min() >= 0
    assert rows.max() < size
    assert np.array_equal((rows == items[exact, None]).any(axis=1), own[exact])


@pytest.mark.parametrize("own", [True, False])
@pytest.mark.parametrize(("many", "tries"), [(0, 0), (0, 1 << 40), (1 << 40, 0)])
def test_all_subsets_are_equally_likely(own: bool, many: int, tries: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Chi-square at a false-alarm rate of 1e-6, for each of the three ways; the twin weighs two subsets unevenly."""
    monkeypatch.setattr(_subsets, "_COMPILED_FROM", many)
    monkeypatch.setattr(_subsets, "_FEW_TRIES", tries)
    count = 60_000
    rows = np.empty((count, 3), dtype=np.int64)
    fill_subsets(np.random.default_rng(1), np.full(count, 2), np.full(count, own), 6, rows)
    seen = np.unique(rows @ [36, 6, 1], return_counts=True)[1]
    assert seen.size == (math.comb(5, 2) if own else math.comb(5, 3))
    limit = chi2.isf(1e-6, seen.size - 1)
    mean = count / seen.size
    assert ((seen - mean) ** 2).sum() / mean < limit
    seen[0], seen[1] = seen[0] * 1.1, seen[1] - seen[0] * 0.1
    assert ((seen - mean) ** 2).sum() / mean > limit


@pytest.mark.parametrize(("size", "length"), [(50, 9), (63, 20), (64, 20), (65, 50), (100, 27), (127, 40), (128, 60)])
def test_masks_fill_every_row(size: int, length: int) -> None:
    """Each item is in as often as any other: the largest of all z scores at a false-alarm rate of 1e-6 in all."""
    assert _subsets.mask_words(size, length)[2] <= _subsets._FEW_TRIES
    count, rng = 20_000, np.random.default_rng(size)
    items, own = rng.integers(0, size, count), rng.random(count) < 0.4
    rows = np.empty((count, length), dtype=np.int64)
    fill_subsets(rng, items, own, size, rows)
    assert np.all(np.diff(rows, axis=1) > 0)
    assert rows.min() >= 0
    assert rows.max() < size
    assert np.array_equal((rows == items[:, None]).any(axis=1), own)
    chance = (length - own[:, None]) / (size - 1) * (items[:, None] != np.arange(size))
    seen = np.bincount(rows[rows != np.where(own, items, -1)[:, None]], minlength=size)
    z = (seen - chance.sum(axis=0)) / np.sqrt((chance * (1 - chance)).sum(axis=0))
    assert np.abs(z).max() < norm.isf(1e-6 / size / 2)


def test_uneven_draws_are_drawn_again() -> None:
    """The first 16 bits of the words are all 0: in the uneven rest of every bound that is no power of two."""

    class Zeros:
        def __init__(self) -> None:
            self.calls = 0
            self.source = np.random.default_rng(3)

        bit_generator = None

        def integers(self, *args: object, **options: object) -> np.ndarray:
            self.calls += 1
            words: np.ndarray = self.source.integers(*args, **options)
            return words * np.uint64(self.calls > 1)

    zeros = Zeros()
    rows = np.empty((5, 3), dtype=np.int64)
    fill_subsets(zeros, np.arange(5), np.zeros(5, dtype=bool), 8, rows)  # type: ignore[arg-type]  # all that is used of it
    assert zeros.calls >= 2
    assert len(np.unique(rows, axis=0)) > 1


def test_long_subsets_have_draws_to_spare() -> None:
    rows = np.empty((2, 150_000), dtype=np.int64)
    fill_subsets(np.random.default_rng(1), np.asarray([7, 9]), np.asarray([True, False]), 300_000, rows)
    assert np.all(np.diff(rows, axis=1) > 0)
    assert 7 in rows[0]
    assert 9 not in rows[1]


def masked(masks: list[int], chance: int, tries: Iterator[int], item: int, own: bool, size: int, length: int) -> Any:
    """Return the items of a row by sets: drawn by the bits of its words, then mended by tries; None without enough."""
    others = set(range(size)) - {item}
    chosen = set()
    for one in others:
        bit = 0
        for place in range(len(masks) // 2):
            word = masks[2 * place + one // 64] >> (one % 64) & 1
            bit = bit | word if chance >> place & 1 else bit & word
        chosen |= {one} if bit else set()
    many = len(chosen) > length - own
    part, wanted = (others - chosen, len(others) - length + own) if many else (chosen, length - own)
    while len(part) < wanted:
        drawn = next(tries, None)
        if drawn is None:
            return None
        part |= {drawn % 128} & others
    return sorted((others - part if many else part) | ({item} if own else set()))


@pytest.mark.parametrize(("size", "length"), [(5, 2), (64, 20), (65, 30), (100, 27), (127, 63), (128, 90), (128, 3)])
def test_masks_are_sets(size: int, length: int) -> None:
    rng = np.random.default_rng(size)
    bits, chance, spare = _subsets.mask_words(size, length)
    masks = rng.integers(0, 2**64, (30, 2 * bits), dtype=np.uint64)
    tries = rng.integers(0, 256, 30 * 8 * spare - 20 * spare, dtype=np.uint8)
    items, own = rng.integers(0, size, 30), rng.random(30) < 0.5
    rows, exact = np.zeros((30, length), dtype=np.int64), np.ones(30, dtype=bool)
    _subsets._compiled_masks()(masks, chance, tries, items, own, size, rows, exact, _subsets._places())
    left = iter(tries.tolist())
    for row in range(30):
        wanted = masked(masks[row].tolist(), chance, left, int(items[row]), bool(own[row]), size, length)
        assert exact[row] == (wanted is not None)
        assert wanted is None or rows[row].tolist() == wanted
    assert exact[0]


@pytest.mark.parametrize("own", [True, False])
@pytest.mark.parametrize(("size", "length"), [(5, 3), (6, 2), (4, 3)])
def test_of_all_draws_of_three_bits_each_subset_has_as_many(size: int, length: int, own: bool) -> None:
    """Exactly: every row of draws of 3 bits, one of them to spare; what has too few of them is drawn again."""
    draws = length + 1
    word = f"<u{bits_and_draws(size, length)[0] // 8}"
    drawn = np.ascontiguousarray(np.indices((8,) * draws).reshape(draws, -1).T).astype(word)
    for item in (0, size - 1):
        found = []
        for fill in (_subsets._fill_few, _subsets._compiled()):
            rows, exact = np.empty((len(drawn), length), dtype=np.int64), np.ones(len(drawn), dtype=bool)
            fill(drawn, 3, np.full(len(drawn), item), np.full(len(drawn), own), size, rows, exact)
            seen = np.unique(rows[exact] @ (size ** np.arange(length)), return_counts=True)[1]
            assert seen.size == math.comb(size - 1, length - own)
            assert np.ptp(seen) == 0
            assert np.all((rows[exact] == item).any(axis=1) == own)
            found.append((rows[exact], exact))
        assert np.array_equal(found[0][0], found[1][0])
        assert np.array_equal(found[0][1], found[1][1])
