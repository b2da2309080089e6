"""Edges of mechanisms for categories and selections, each against a count of all cases: what is a report, which weights
are the largest that a budget allows, how two shares of one report go together, and a search that finds no text."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import pytest

import noisette as nz
from noisette.mechanisms.categorical._base import UNIT, Codes, KeepOrReplace, just_below, log_fraction, whole
from noisette.mechanisms.categorical._singer import Singer
from noisette.mechanisms.categorical.projective import CyclicNoise
from noisette.mechanisms.categorical.selections import wheel
from noisette.mechanisms.categorical.selections.wheel import RING, RingPoints
from noisette.mechanisms.categorical.subset import Subsets
from noisette.mechanisms.categorical.texts import search as searching


@pytest.mark.parametrize(("size", "length"), [(5, 3), (4, 4), (6, 2), (3, 1)])
def test_what_is_a_set_of_items(size: int, length: int) -> None:
    """Of all rows of numbers from -1 to one beyond the last, in steps of a half."""
    rows = np.asarray(list(itertools.product(np.arange(-1, size + 1, 0.5), repeat=length)))
    known = set(itertools.combinations(range(size), length))
    expected = [tuple(row) in known for row in rows.tolist()]
    assert sum(expected) == math.comb(size, length)
    assert Subsets(size, length).contains(rows).tolist() == expected


def test_what_is_a_code_or_a_point_of_the_ring() -> None:
    given = np.asarray([-2, -1, -0.5, 0, 0.5, 6, 6.5, 7, 7.5, np.nan, np.inf])
    inside = [False, False, False, True, False, True, False, False, False, False, False]
    assert Codes(7).contains(given).tolist() == inside
    for kind in (np.int64, np.int32, np.uint8):
        whole_ones = np.asarray([0, 6, 7, 8, 200]).astype(kind)
        assert Codes(7).contains(whole_ones).tolist() == [True, True, False, False, False]
    assert Codes(7).contains(np.asarray([-1, -(2**63), 2**63 - 1])).tolist() == [False] * 3
    assert whole(np.asarray([1.0, 1.5, -2.0])).tolist() == [True, False, True]
    assert whole(np.asarray([1, 2])).tolist() == [True, True]
    good = [0, RING - 1, 5]
    assert RingPoints(2).contains(np.asarray([good])).tolist() == [True]
    for place, bad in itertools.product(range(3), (-1, RING, 0.5)):
        row = np.asarray([good], dtype=float)
        row[0, place] = bad
        assert RingPoints(2).contains(np.concatenate([[good], row])).tolist() == [True, False]


@pytest.mark.parametrize("shift", [2.0**-60, 2.0**-30, 0.1, 0.4999, 0.5, 0.5001, 3.0])
def test_logs_of_fractions_are_precise_near_one(shift: float) -> None:
    for value in (1 + Fraction(shift), 1 - min(Fraction(shift), Fraction(9, 10))):
        with mpmath.workdps(60):
            exact = float(mpmath.log(mpmath.mpf(value.numerator) / value.denominator))
        assert log_fraction(value) == pytest.approx(exact, rel=1e-14)


@pytest.mark.parametrize("epsilon", [1e-6, 0.3, 1.0, 7.0, 30.0, 36.5, 39.0, 41.0, 300.0])
def test_weights_are_the_largest_integers_within_the_budget(epsilon: float) -> None:
    """One more for the own report would break the budget, or 2^53 draws; so would one more for each other."""
    limit = just_below(epsilon)
    for weights, own, block, size in [
        (one := KeepOrReplace.build(size, epsilon), one.keep + one.other, 1, size) for size in (2, 3, 50)
    ] + [
        (noise := CyclicNoise.build(design, epsilon), noise.own, design.block, design.order)
        for design in (Singer(2, 1, 3), Singer(3, 1, 3), Singer(2, 2, 3))
    ]:
        other = weights.other
        assert type(own) is int
        assert type(other) is int
        assert weights.total == own * block + other * (size - block) <= UNIT

        with mpmath.workdps(60):
            ratio = mpmath.exp(mpmath.mpf(min(limit, 40.0)))
            assert own <= ratio * other * (1 + mpmath.mpf(2) ** -45)
            fits = own + own // 2**40 + 2 <= ratio * other and (own + 2) * block + other * (size - block) <= UNIT
            assert not fits or epsilon < 1e-3  # where a weight more is what rounding of exp(epsilon) - 1 comes to
            assert (other + 1) * (size - block + ratio * block) * (1 + mpmath.mpf(2) ** -45) > UNIT


def scores(mechanism: Any, reports: np.ndarray) -> np.ndarray:
    """Return what each report alone says of every category."""
    readout = mechanism.readout
    return np.asarray([readout.offset + readout.scale * mechanism.tally(row[None]).total for row in reports])


@pytest.mark.parametrize("size", [2, 3, 5])
@pytest.mark.parametrize("name", ["grr", "sue", "oue", "subset-selection", "privset"])
def test_two_shares_of_one_report_go_together_as_stated(name: str, size: int) -> None:
    """Every report, weighed by its mass: of the own category and another one, and of two others."""
    if name == "privset":
        mechanism: Any = nz.PrivSet(1.0, nz.Selection(size, 1))
        values: Any = np.asarray([0])
        listed = list(itertools.combinations(range(mechanism.items), mechanism.length))
    else:
        mechanism = nz.CATALOGUE[name](1.0, domain=nz.Categorical(size))
        values = np.asarray(0)
        listed = {
            "grr": range(size),
            "sue": itertools.product((0, 1), repeat=size),
            "oue": itertools.product((0, 1), repeat=size),
            "subset-selection": itertools.combinations(range(size), getattr(mechanism, "length", 1)),
        }[name]
    reports = np.asarray(list(listed), dtype=mechanism.report_dtype)
    mass = np.exp(mechanism.log_prob(reports, values))
    assert mass.sum() == pytest.approx(1)
    said = scores(mechanism, reports)[:, :size]
    found = (mass[:, None, None] * (said - mass @ said)[:, :, None] * (said - mass @ said)[:, None, :]).sum(axis=0)
    stated = mechanism.covariances
    assert stated is not None
    assert stated[0] == pytest.approx(found[0, 1], rel=1e-9, abs=1e-12)
    if size > 2:
        assert stated[1] == pytest.approx(found[1, 2], rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("name", ["olh", "drawn-option", "wheel", "pem"])
def test_a_report_shows_what_was_drawn_for_it_and_its_value_by_the_law(name: str) -> None:
    """Among reports of one draw the own answer is as frequent as its likelihood, given the draw, says."""
    mechanism: Any = nz.CATALOGUE[name].example(1.0)
    drawn = mechanism.draw(5, np.random.default_rng(3))
    value: Any = {"olh": 2, "drawn-option": [1, 3], "wheel": [1, 3], "pem": "b"}[name]
    for one in drawn:
        known = np.repeat(one[None], 4000, axis=0)
        reports = mechanism.privatize_drawn(np.asarray([value] * 4000), known, rng=4)
        assert np.array_equal(np.asarray(mechanism.drawn(reports)).reshape(known.shape), known)
        likely = np.asarray(mechanism.log_prob(reports, np.asarray([value] * 4000)))
        top = likely > likely.min() + 1e-9
        gap = float(np.exp(likely.max() - likely.min()))
        if name == "wheel":  # arcs of one selection may overlap, so that the rest of the ring has more
            assert 2 < gap <= math.e
        else:
            assert gap == pytest.approx(math.e, rel=1e-6)
        assert 0.2 < top.mean() < 0.95


@pytest.mark.slow
@pytest.mark.parametrize("at_once", [True, False])
def test_a_search_without_a_text_at_its_end_finds_none(at_once: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    mechanism = nz.PrefixExtending(1.0, nz.Texts(1, alphabet="abcd"), seeds=2)
    monkeypatch.setattr(nz.PrefixExtending, "at_once", at_once)
    total = mechanism.tally(mechanism.privatize(["a", "b", "a"] * 30, rng=1)).total
    assert len(searching.search(mechanism, total, 2).texts) > 0
    monkeypatch.setattr(nz.Texts, "text", lambda self, row: None)
    found = searching.search(mechanism, total, 2)
    assert found.texts == ()
    assert [len(part) for part in (found.share, found.std_error, found.checked, found.shown)] == [0] * 4
    assert (found.threshold, found.asked, found.reports) == (math.inf, 2, 90)
    assert found.users == (90 if at_once else searching._groups(mechanism, total)[-1].users)
    assert found.made.count.dtype == np.int64


@pytest.mark.parametrize("more", [-1, 0, 1])
def test_as_many_extensions_are_kept_as_there_are(more: int) -> None:
    mechanism = nz.PrefixExtending(1.0, nz.Texts(1, alphabet="abcd"), seeds=2)
    group = searching._groups(mechanism, mechanism.tally(mechanism.privatize(["a", "b"], rng=1)).total)[0]
    start = searching._Prefixes(np.zeros((1, 0), dtype=np.uint8), np.zeros(1, dtype=np.int8))
    every = len(searching.extensions(mechanism.domain, 0, 0, group.length)[0])
    found = searching._best(mechanism.domain, start, group, group.excess, every + more)
    assert len(found.symbols) == every + min(more, 0)


@pytest.mark.parametrize("users", [0, 1, 2])
def test_of_fewer_than_two_users_no_share_is_known(users: int) -> None:
    mechanism = nz.PrefixExtending(1.0, nz.Texts(1, alphabet="abcd"), seeds=2)
    counts = np.zeros((2, mechanism.buckets), dtype=np.int64)
    counts[0, :users] = 1
    group = searching._Group(mechanism, 1, counts)
    made = group.measured(mechanism.domain.symbols(["a", "c"]))
    assert (made.low, made.high, made.count.tolist()) == (0.0, 1.0, [users, users])
    assert np.isnan(made.value).all() == np.isinf(made.std_error).all() == (users < 2)


def test_what_is_counted_on_a_ring_is_what_its_polynomials_say() -> None:
    """The loop as Python, which is what is compiled; coefficients as large as they may be carry most."""
    rng = np.random.default_rng(4)
    reports = rng.integers(0, RING, (6, 5))
    reports[0, :-1], reports[1] = RING - 1, RING - 1
    arc, total = RING // 3, np.zeros(17, dtype=np.int64)
    squares = wheel._count(reports, arc, total)
    wanted, numbers = np.zeros(17, dtype=np.int64), []
    for *coefficients, point in reports.tolist():
        near = []
        for option in range(17):
            place = 0
            for coefficient in coefficients:
                place = (place * option + coefficient) % RING
            near.append((point - place) % RING < arc)
        wanted += near
        numbers.append(sum(near))
    assert total.tolist() == wanted.tolist()
    assert squares == sum(number**2 for number in numbers)
    edge = np.asarray([[0, 0, 5]])  # the arc of the place 0 holds the points 0 ... arc - 1
    for width, inside in ((5, 0), (6, 3)):
        total = np.zeros(3, dtype=np.int64)
        wheel._count(edge, width, total)
        assert total.sum() == inside


@pytest.mark.parametrize("few", [3, 300])
def test_words_are_supported_as_each_report_says(few: int) -> None:
    """Both loops of the search as Python, and which prefixes collide: word by word, report by report."""
    rng, seeds, buckets = np.random.default_rng(few), 4, 5
    reports = np.stack([np.sort(rng.integers(0, seeds, few)), rng.integers(0, buckets, few)])
    heads, tails = rng.integers(0, buckets, (seeds, 3)), rng.integers(0, buckets, (seeds, 40))
    head_of, tail_of = rng.integers(0, 3, 70), rng.integers(0, 40, 70)
    offsets = rng.integers(0, buckets, (seeds, 2))
    bucket = (offsets[:, :, None] + heads[:, None, head_of] + tails[:, None, tail_of]) % buckets
    counts = np.zeros((seeds, buckets), dtype=np.int64)
    np.add.at(counts, tuple(reports), 1)
    wanted = counts[np.arange(seeds)[:, None, None], bucket].sum(axis=0)
    found = np.zeros((2, 70), dtype=np.float32)
    searching._support_of_few(reports, offsets, heads, tails, buckets, head_of, tail_of, found)
    assert np.array_equal(found, wanted)
    numbers = rng.integers(0, 1000, (3, seeds, 256))
    words = rng.integers(0, 256, (70, 3)).astype(np.uint8)
    own = sum(numbers[place][:, words[:, place]].astype(np.int64) for place in range(3)) % buckets
    bucket = (offsets[:, :, None] + own[:, None]) % buckets
    found = np.zeros((2, 70), dtype=np.float32)
    searching._support_of_many(np.concatenate([counts, counts], axis=1), offsets, numbers, words, buckets, found)
    assert np.array_equal(found, counts[np.arange(seeds)[:, None, None], bucket].sum(axis=0))
    rows, alike = rng.integers(0, 2, (9, 4)), np.zeros((4, 4), dtype=np.int64)
    searching._alike(rows, alike)
    assert np.array_equal(alike, (rows[:, :, None] == rows[:, None, :]).sum(axis=0) * (1 - np.eye(4, dtype=np.int64)))


@pytest.mark.parametrize("length", [1, 2, 5, 8])
def test_halves_of_words_make_the_words(length: int) -> None:
    domain = nz.Texts(8, alphabet="ab")
    words = searching.extensions(domain, 0, 0, length)[0]
    (heads, head_of), (tails, tail_of) = searching._halves(domain, 0, 0, length)
    assert np.array_equal(np.concatenate([heads[head_of], tails[tail_of]], axis=1), words)
    assert heads.shape[1] == length // 2
    assert len(np.unique(heads, axis=0)) == len(heads)
    assert len(np.unique(tails, axis=0)) == len(tails)


@pytest.mark.slow
def test_the_first_text_too_many_decides_how_much_support_the_last_one_needs() -> None:
    """One report more than the support that is expected of the first text that nobody asked for."""
    mechanism = nz.PrefixExtending(3.0, nz.Texts(1, alphabet="abcd"), seeds=2)
    total = mechanism.tally(mechanism.privatize(["a"] * 400 + ["b"] * 250 + ["c"] * 90, rng=1)).total
    found, every = (searching.search(mechanism, total, texts) for texts in (1, 20))
    assert found.texts[:2] == every.texts[:2] == ("a", "b")
    assert found.chosen is not None
    assert every.chosen is not None
    expected = 740 * (found.chosen.others[0] + found.chosen.gap * found.share[1])
    assert found.chosen.least[0] * 740 / found.chosen.users[0] == pytest.approx(math.floor(expected) + 1)
    assert every.chosen.least[0] < found.chosen.least[0]
    assert np.all(found.chosen.least[1:] == 741)
    assert found.shown.tolist()[:2] == [True, False]
    assert every.shown.tolist()[:2] == [True, True]
