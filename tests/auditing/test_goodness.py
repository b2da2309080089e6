"""Each check complains from its stated false-alarm rate on: held against scipy's tests, on data made by hand."""

import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy import stats

import noisette as nz
from noisette.auditing import goodness

RESPONSE = nz.GeneralizedRandomizedResponse(1.0, nz.Categorical(3))
LAPLACE = nz.DiscreteLaplace(1.0, domain=nz.Grid(0, 10))


def complains_from(check: Callable[[float], str | None], share: float) -> str:
    """Hold that a check complains at this rate of false alarms and not below, and return what it says."""
    assert 0 < share < 1
    assert check(share * 0.999) is None
    found = check(share * 1.001)
    assert found is not None
    return found


def chance(mechanism: Any, report: Any, x: Any) -> float:
    return float(np.exp(mechanism.log_prob(np.asarray([report]), np.asarray(x))[0]))


def test_counts_of_few_reports() -> None:
    counts = np.asarray([1830, 560, 610])
    masses = np.asarray([chance(RESPONSE, code, 0) for code in range(3)])
    exact = stats.chisquare(counts, 3000 * masses).pvalue
    calls = np.split(np.repeat(np.arange(3), counts), [700])
    said = complains_from(lambda share: goodness.fit(RESPONSE, 0, calls, share), 3 * exact)
    assert said.startswith("a report was sent 560 times where log_prob expects 635.8")
    assert goodness.fit(RESPONSE, 0, [np.repeat(np.arange(3), np.rint(3000 * masses).astype(int))], 0.9) is None


def test_a_report_that_repeats() -> None:
    """Ten reports are the same: a binomial tail, times the two hundred thousand reports that are possible."""
    masses, counts = np.full(991, 5e-6), np.ones(991, dtype=np.int64)
    counts[17] = 10
    exact = stats.binom.sf(9, 1000, 5e-6) / 5e-6
    said = complains_from(lambda share: goodness._repeats(masses, counts, 1000, share), 2 * exact)
    assert said == "one report was sent 10 times of 1000, where 0.005 are expected"
    assert goodness._repeats(masses, np.ones(991, dtype=np.int64), 991, 0.9) is None


def test_a_pair_by_chance_is_no_fault() -> None:
    """Of 3,000 reports, each one of four million, two are the same in every second collection."""
    rng = np.random.default_rng(8)
    told = 0
    for _ in range(100):
        counts = np.unique(rng.integers(0, 2**22, 3000), return_counts=True)[1]
        told += goodness._repeats(np.full(counts.size, 2.0**-22), counts, 3000, 0.05) is not None
    assert told <= 5 * 3
    counts = np.ones(2999, dtype=np.int64)
    counts[5] = 2
    assert goodness._repeats(np.full(2999, 2.0**-22), counts, 3000, 0.9) is None


def test_too_few_random_bits() -> None:
    """Of 2,000 reports 100 come twice, where 2 pairs are expected, one in a million to be the same."""
    masses, counts = np.full(1900, 1e-6), np.ones(1900, dtype=np.int64)
    counts[:100] = 2
    expected = 2000 * 1999 / 2 * 1e-6
    limit = 1.1 * expected + 10 * math.sqrt(expected) + 20
    said = complains_from(lambda share: goodness._repeats(masses, counts, 2000, share), math.exp(limit - 100))
    assert said == "reports repeat 100 times among 2000, where 2 are expected: too few random bits"


def test_last_bits_that_tell_inputs_apart() -> None:
    """620 of 1,000 places are even about one input, 500 about the other, on both sides of the median."""
    one = 2 * np.arange(1000) + (np.arange(1000) % 50 >= 31)
    two = 3 * np.arange(1000)
    exact = stats.chi2_contingency([[620, 380], [500, 500]], correction=False).pvalue
    rows = [np.column_stack([places * 0.25 + 3.0, np.zeros(1000)]) for places in (one, two)]
    support = SimpleNamespace(step=0.25, origin=3.0)
    said = complains_from(lambda share: goodness.last_bits(support, *rows, share), 24 * exact)
    assert said == "the last bits of entry 0 tell inputs apart"
    said = complains_from(lambda share: goodness.last_bits(support, *(r[:, ::-1] for r in rows), share), 24 * exact)
    assert said == "the last bits of entry 1 tell inputs apart"
    assert goodness.last_bits(SimpleNamespace(step=0.25, origin=3.0, real=True), *rows, 1.0) is None
    assert goodness.last_bits(support, *(row[:, :1] for row in rows), 1.0) is None  # one number has tests of its own


def test_last_bits_that_tell_the_noise() -> None:
    """Both inputs have as many even places, but those above the median have more."""
    even = np.concatenate([np.arange(1000) % 100 < 40, np.arange(1000) % 100 < 60])
    places = 2.0 * np.arange(2000) + ~even
    exact = stats.chi2_contingency([[600, 400], [400, 600]], correction=False).pvalue
    rows = np.column_stack([places, np.zeros(2000)])
    said = complains_from(lambda share: goodness.last_bits(SimpleNamespace(step=1.0), rows, rows, share), 24 * exact)
    assert said == "the last bits of entry 0 tell which way the noise went"


def _dependent(across: bool) -> tuple[list[Any], float]:
    """Return two calls of four values each, and the chi-square test of neighbours, or of both calls."""
    rng = np.random.default_rng(3)
    first = rng.permutation(np.repeat(np.arange(4), [1620, 1500, 1500, 1380]))  # so that quarters end in values
    other = np.where(rng.random(6000) < 0.05, first, rng.permutation(first))
    if across:
        pairs, calls = (first, other), [first, other]
    else:
        calls = [np.column_stack([first, other]).reshape(-1)[part] for part in (slice(0, 6000), slice(6000, None))]
        pairs = (first, other)
    table = np.bincount(4 * pairs[0] + pairs[1], minlength=16).reshape(4, 4)
    return [call.astype(float) for call in calls], float(stats.chi2_contingency(table, correction=False).pvalue)


@pytest.mark.parametrize("across", [False, True])
def test_reports_that_depend_on_each_other(across: bool) -> None:
    calls, exact = _dependent(across)
    said = complains_from(lambda share: goodness.independence(calls, share), 4 * exact)
    assert said == f"reports {'at one place of two calls' if across else 'of one call'} depend on each other"


def test_the_value_itself() -> None:
    """Twenty of a hundred reports are the value, at the bound of Chernoff for so many."""
    near = sum(chance(LAPLACE, report, 5.0) for report in (4.0, 5.0, 6.0))
    reports = np.repeat([4.0, 5.0, 6.0, 9.0], [10, 10, 20, 60])
    count, expected = 40, 100 * near
    exact = math.exp(count - expected - count * math.log(count / expected))
    said = complains_from(lambda share: goodness.shown(LAPLACE, 5.0, np.split(reports, 4), share), exact)
    assert said.startswith("40 of 100 reports are the value itself, where ")


@pytest.mark.parametrize("count", [3, 12])
def test_reports_about_one_value_that_never_change(count: int) -> None:
    """A report that is sent every time, of which the law expects it in a part of the times alone."""
    inputs, reports = np.repeat([2.0, 7.0], count), np.repeat([9.0, 1.0], count)
    reports[-1] = 3.0  # the second value's are not all the same
    exact = chance(LAPLACE, 9.0, 2.0) ** count
    said = complains_from(lambda share: goodness.in_the_clear(LAPLACE, inputs, reports, count, share), 4 * exact)
    assert said == f"all {count} reports about 2.0 are the same"
    said = complains_from(lambda share: goodness.frozen(LAPLACE, inputs, reports, count, share), 2 * exact)
    assert said == f"all {count} reports about 2.0 are the same"


def test_reports_at_one_distance_from_many_values() -> None:
    """Forty of sixty are three above their values: Chernoff's bound, over the distances that were seen."""
    shifted = SimpleNamespace(  # which is not the same on both sides of a value
        support=LAPLACE.support, log_prob=lambda report, x: LAPLACE.log_prob(np.asarray(report) - 2, x)
    )
    inputs = np.arange(60.0) % 11
    away = np.concatenate([np.full(40, 3.0), np.repeat([-6.0, -4.0, 0.0, 5.0], 5)])
    expected = 1e-3 + sum(chance(shifted, x + 3 + side, x) for x in inputs for side in (-1, 0, 1))
    exact = 8 * 5 * math.exp(40 - expected - 40 * math.log(40 / expected))
    said = complains_from(lambda share: goodness.in_the_clear(shifted, inputs, inputs + away, 1, share), exact)
    assert said == "40 of 60 reports are 3 steps from their values"


def test_what_cannot_be_is_said() -> None:
    assert goodness.in_the_clear(RESPONSE, np.zeros(2, dtype=int), np.asarray([1, 3]), 1, 1e-9) == (
        "privatize sent a report about 0 that log_prob calls impossible"
    )
    assert goodness.fit(RESPONSE, 0, [np.asarray([0, 1, 3])], 1e-9) == (
        "privatize sent a report that log_prob calls impossible"
    )


@pytest.mark.parametrize("twice", [65, 200])
def test_entries_that_repeat(twice: int) -> None:
    """Some of 6,500 reports come twice on a lattice of 2^22 places, where five are expected to and 65 are no proof."""
    places = np.sort(np.random.default_rng(1).permutation(2**22)[:6500]).astype(float)
    rows = np.column_stack([np.arange(6500 + twice) % 2, np.concatenate([places[::-1], places[:twice]])])
    said = goodness.collisions(SimpleNamespace(step=1.0), rows, 1e-9)
    assert (said is None) == (twice == 65)
    assert said is None or said.startswith("entry 1 repeats 200 times among 6700 reports, where 5.")
    assert goodness.collisions(SimpleNamespace(step=1.0, real=True), rows, 1e-9) is None


def test_a_mass_between_two_places_is_no_fault() -> None:
    """One report in fourteen is a value between two places of a fine lattice: two places in three of it, and one."""
    support = nz.Laplace(1.0).support
    rng = np.random.default_rng(4)
    places = np.concatenate([np.full(500, 40_000.0), np.full(250, 40_001.0), rng.integers(0, 70_000, 9250)])
    reports = support.value(rng.permutation(places))

    def log_prob(sent: Any, x: Any) -> Any:
        place = support.index(np.asarray(sent))
        tall = 0.05 * (place == 40_000) + 0.025 * (place == 40_001)
        return np.log(0.925 / 70_000 + tall) + 0.0 * np.asarray(x)

    sound = SimpleNamespace(support=support, log_prob=log_prob)
    assert goodness.fit(sound, 0.5, [reports], 1e-3) is None
    moved = np.where(reports == support.value(np.asarray(40_001.0)), support.value(np.asarray(40_002.0)), reports)
    assert goodness.fit(sound, 0.5, [moved], 1e-9) is not None
