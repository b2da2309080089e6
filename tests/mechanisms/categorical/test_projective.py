"""Projective geometry response: its sets are difference sets, its sums those of every shift, its variance the best."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import noisette as nz
from noisette.mechanisms.categorical import _singer, projective
from noisette.mechanisms.categorical._base import UNIT
from noisette.mechanisms.categorical._singer import Singer, hyperplane_sums, primitive, recurrence
from noisette.mechanisms.categorical.projective import CyclicNoise
from noisette.prediction.planning import handy

DESIGNS = [(2, 1, 3), (3, 1, 3), (2, 2, 3), (5, 1, 3), (2, 3, 3), (3, 2, 3), (2, 1, 6), (3, 1, 4), (2, 2, 4), (7, 1, 4)]


def pgr(epsilon: float, size: int) -> Any:
    return nz.ProjectiveGeometryResponse(epsilon, nz.Categorical(size))


def summed(mechanism: Any) -> float:
    """Return the variance of one report's estimates, summed over the categories."""
    own, other = mechanism._support_law
    return float((own * (1 - own) + (mechanism.domain.size - 1) * other * (1 - other)) / (own - other) ** 2)


@pytest.mark.parametrize(("prime", "power", "dims"), DESIGNS)
class TestDesigns:
    def test_every_difference_is_met_equally_often(self, prime: int, power: int, dims: int) -> None:
        design = Singer(prime, power, dims)
        members = design.members.astype(int)
        q = prime**power
        assert design.order == sum(q**place for place in range(dims))
        assert members.size == design.block == sum(q**place for place in range(dims - 1))
        differences = np.bincount(((members[:, None] - members) % design.order).ravel(), minlength=design.order)
        assert differences.tolist() == [design.block] + [design.shared] * (design.order - 1)

    def test_its_spectrum_is_flat(self, prime: int, power: int, dims: int) -> None:
        design = Singer(prime, power, dims)
        indicator = np.zeros(design.order)
        indicator[design.members] = 1
        spectrum = np.abs(np.fft.fft(indicator)) ** 2
        assert np.allclose(spectrum[1:], design.block - design.shared)
        # the twin: with one member moved it is not
        wrong = np.roll(indicator, 1)
        wrong[design.members[0]], wrong[design.members[0] + 1] = indicator[design.members[:1].repeat(2)]
        assert not np.allclose(np.abs(np.fft.fft(wrong))[1:] ** 2, design.block - design.shared)

    @pytest.mark.slow
    def test_sums_are_those_of_every_shift(self, prime: int, power: int, dims: int) -> None:
        design = Singer(prime, power, dims)
        values = np.random.default_rng(1).integers(0, design.order, 300)
        held = np.isin((values[:, None] + np.arange(design.order)) % design.order, design.members).sum(axis=0)
        ways = [design._count_each, design._count_by_fourier] + [design._count_sheared] * (power == 1)
        ways += [design._count_by_signs] * (prime == 2)
        for way in ways:
            for size in (1, design.order // 2, design.order):
                assert way(values, size).tolist() == held[:size].tolist()
        # the twin: a set that is shifted by one gives other sums
        assert held.tolist() != np.roll(held, 1).tolist()


def test_the_ways_to_decode_agree_on_many_reports(monkeypatch: pytest.MonkeyPatch) -> None:
    """float32, float64 and integers, where one category has nearly all reports."""
    design = Singer(37, 1, 4)
    values = np.random.default_rng(2).integers(0, design.order, 200_000)
    values[:150_000] = 7
    exact = design._count_sheared(values, 40_000)
    assert np.array_equal(design._count_by_fourier(values, 40_000), exact)
    few = values[140_000:140_200]
    narrow = design._count_by_fourier(few, 40_000)
    monkeypatch.setattr(_singer, "_DOUBT", -1.0)  # no float32, and no rounding either
    with pytest.raises(OverflowError, match="Aggregate them in parts"):
        design._count_by_fourier(values, 40_000)
    monkeypatch.undo()
    assert np.array_equal(narrow, design._count_each(few, 40_000))
    assert design.count(few, 40_000).sum() == narrow.sum()


def test_hyperplanes_by_their_equations() -> None:
    """Sums over the points with a vanishing product, each hyperplane found by its vector."""
    prime, dims = 3, 4
    vectors = list(_singer._vectors(prime, dims))
    values = np.random.default_rng(3).integers(0, 9, len(vectors)).astype(np.uint16)
    places = _singer._point_to_plane(prime, dims)
    found = hyperplane_sums(values, prime, dims)[places]
    products = np.asarray(vectors) @ np.asarray(vectors).T % prime
    assert found.tolist() == ((products == 0) @ values.astype(int)).tolist()


@pytest.mark.parametrize(("prime", "degree"), [(2, 3), (2, 12), (3, 5), (7, 3), (13, 2)])
def test_powers_of_a_primitive_element_exhaust_the_field(prime: int, degree: int) -> None:
    taps = primitive(prime, degree)
    sequence = recurrence(prime, taps, [0] * (degree - 1) + [1], prime**degree - 1 + degree).astype(int)
    for place in range(degree, sequence.size):  # the recurrence itself, step by step
        assert sequence[place] == sum(a * b for a, b in zip(taps, sequence[place - degree :], strict=False)) % prime
    states = sum(sequence[place : place + prime**degree - 1] * prime**place for place in range(degree))
    assert np.unique(states).size == prime**degree - 1


@pytest.mark.parametrize(
    ("size", "epsilon", "total", "ratio"),
    [
        (22_000, 1.0, 81_215, 1.0025),
        (22_000, 2.0, 15_940, 1.0008),
        (22_000, 5.0, 600.0, 1.0001),
        (3_300_000, 1.0, 12_182_456, 1.0024),
        (3_300_000, 5.0, 90_150.8, 1.0000),
        (100, 5.0, 3.5157, 1.9545),
    ],
)
def test_golden_variances(size: int, epsilon: float, total: float, ratio: float) -> None:
    """Computed apart from this file for the specification: summed variance, and in units of subset selection's."""
    found = summed(pgr(epsilon, size))
    assert found == pytest.approx(total, rel=2e-3)
    best = summed(nz.SubsetSelection(epsilon, nz.Categorical(size)))
    assert found / best == pytest.approx(ratio, abs=1e-4)


@pytest.mark.parametrize("size", [2, 17, 1000, 22_000])
@pytest.mark.parametrize("epsilon", [1e-6, 0.1, 1.0, 3.0, 6.0])
def test_epsilon_is_the_log_of_two_integers(size: int, epsilon: float) -> None:
    mechanism = pgr(epsilon, size)
    law = mechanism.law()
    assert 0 < law.other < law.own
    assert law.total <= UNIT
    ratio = math.log1p((law.own - law.other) / law.other)
    assert epsilon * (1 - 1e-4) < ratio < epsilon
    assert ratio <= nz.exact_epsilon(mechanism) <= epsilon


def test_the_estimate_is_unbiased_in_fractions() -> None:
    """Summed over all reports, the support of a category has the chances that the estimate undoes."""
    mechanism = pgr(1.3, 20)
    law, order = mechanism.law(), mechanism.design.order
    inside = np.isin((np.arange(order)[:, None] + np.arange(20)) % order, mechanism.design.members)
    weights = np.where(inside[:, 4], law.own, law.other).astype(object)  # of the reports about category 4
    own, other = mechanism._support_law
    chances = [Fraction(int(weights @ inside[:, v].astype(object)), law.total) for v in range(20)]
    assert chances == [own if v == 4 else other for v in range(20)]


def test_lists_of_any_length() -> None:
    """What is predicted takes no table of the categories; the longest list is refused by name."""
    for size in (2, 10_000_000, 1 << 25):
        mechanism = pgr(2.0, size)
        assert size <= mechanism.design.order <= max(1 << 24, 4 * size)
        assert 0 < mechanism.p_other < mechanism.p_own < 1
    with pytest.raises(ValueError, match="Expected at most 33,554,432 categories for pgr, got 33,554,433"):
        pgr(2.0, (1 << 25) + 1)
    with pytest.raises(ValueError, match="Expected a larger epsilon than 1e-09"):
        pgr(1e-9, 1 << 25).law()


@pytest.mark.slow
def test_a_long_list_is_decoded() -> None:
    mechanism = pgr(5.0, 1_000_000)
    codes = np.repeat([7, 999_999], [60_000, 40_000])
    estimate = mechanism.aggregate(mechanism.privatize(codes, rng=1)).estimate()
    error = math.sqrt(float(mechanism.moments(7).variance[0]) / 100_000)
    assert abs(estimate.value[7] - 0.6) < 7 * error
    assert abs(estimate.value[999_999] - 0.4) < 7 * error
    assert np.abs(estimate.value[8:999_999]).max() < 7 * error


def test_a_survey_takes_it_for_long_lists() -> None:
    """Subset selection's sets are long there; Hadamard response has 37 times the optimum at epsilon 5."""
    long = nz.Survey([nz.Choice("town", [f"town {code}" for code in range(1000)])], epsilon=2.0)
    short = nz.Survey([nz.Choice("diet", ["none", "vegan", "halal"])], epsilon=2.0)
    assert long.answering.sections[0].mechanism.name == "pgr"
    assert short.answering.sections[0].mechanism.name in ("grr", "subset-selection")


@pytest.mark.parametrize("size", [2, 3, 5, 10, 17, 32, 64, 100, 300, 1000, 4000, 22_000, 3_300_000, 10_000_000])
@pytest.mark.parametrize("epsilon", [0.1, 0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0])
def test_auto_is_never_far_above_the_best(size: int, epsilon: float) -> None:
    made = nz.plan(users=1000, epsilon=epsilon, domain=nz.Categorical(size))
    taken = handy(made.candidates)[0]
    assert taken.mse <= 1.07 * made.best.mse
    assert not taken.bulky
    if taken.mechanism == "hadamard":
        assert taken.mse == min(one.mse for one in made.candidates if not one.bulky)


@pytest.mark.parametrize("dims", [3, 5])
def test_one_draw_in_2_to_53_that_tells_the_category_is_enough(dims: int) -> None:
    """The least budget that is taken gives the design a weight of one more than the others; a little less, none."""
    design = Singer(2, 1, dims)
    refused, taken = 1e-16, 1e-9
    while taken > refused * (1 + 1e-9):
        middle = math.sqrt(refused * taken)
        try:
            noise = CyclicNoise.build(design, middle)
        except ValueError:
            refused = middle
        else:
            taken = middle
            assert noise.own > noise.other
    noise = CyclicNoise.build(design, taken)
    assert noise.own - noise.other == 1
    with pytest.raises(ValueError, match="Raise epsilon or merge categories"):
        CyclicNoise.build(design, refused)


@pytest.mark.parametrize("bits", [16, 32])
def test_sums_are_held_in_the_shortest_type_that_does(bits: int) -> None:
    """With a sign, one bit less; one more of either needs the next type."""
    for largest in (1, 2 ** (bits - 1) - 1, 2 ** (bits - 1), 2**bits - 1, 2**bits):
        plain, signed = _singer._holding(largest), _singer._signed_holding(largest)
        assert np.iinfo(plain).max >= largest
        assert np.iinfo(signed).max >= largest
        shorter = [np.uint16, np.uint32], [np.int16, np.int32]
        for found, types in ((plain, shorter[0]), (signed, shorter[1])):
            assert not [
                one for one in types if np.iinfo(one).bits < np.iinfo(found).bits and np.iinfo(one).max >= largest
            ]


@pytest.mark.parametrize("size", [7, 13, 40])
def test_a_design_of_just_as_many_points_as_categories_is_looked_at(size: int) -> None:
    """Planes of two and of three, and the space of three."""
    assert size in projective._designs(size)[1][0]
    assert projective._designs(size)[1][0].min() == size
