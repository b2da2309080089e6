"""What a caller sees: shapes, seeds, JSON, merging, labels, estimates with intervals, and errors that help."""

from __future__ import annotations

import copy
import json
import pickle
import tracemalloc
from typing import Any

import numpy as np
import pytest
from scipy.special import ndtri
from scipy.stats import binom

import noisette as nz

NAMES = ("grr", "sue", "oue", "olh", "subset-selection", "hadamard", "pgr", "histogram")
FALSE_ALARM = 1e-6


def build(name: str, epsilon: float = 1.0, size: int = 7) -> Any:
    return nz.CATALOGUE[name](epsilon, nz.Categorical(size))


@pytest.mark.parametrize("name", NAMES)
class TestEach:
    @pytest.mark.slow
    def test_passes_the_common_checks(self, name: str) -> None:
        nz.testing.check_mechanism(build(name, 1.5), samples=10_000, rng=5)  # test_testing has other budgets

    def test_shapes_follow_the_input(self, name: str) -> None:
        mechanism = build(name)
        assert np.shape(mechanism.privatize(3, rng=1)) == mechanism.report_shape
        assert mechanism.privatize([1, 2, 3, 4, 5, 6], rng=1).shape == (6, *mechanism.report_shape)
        assert mechanism.privatize([1, 2], rng=1).dtype == mechanism.report_dtype
        assert mechanism.moments([[1, 2, 3]]).variance.shape == (1, 3, 7)
        reports = mechanism.privatize([1, 2, 3, 4, 5, 6], rng=1).reshape(2, 3, *mechanism.report_shape)
        assert mechanism.log_prob(reports, [[1, 2, 3], [4, 5, 6]]).shape == (2, 3)
        assert mechanism.log_prob(reports[:, :, None], np.arange(7)).shape == (2, 3, 7)
        assert mechanism.tally(reports).users == 6

    def test_small_integer_types_are_categories_too(self, name: str) -> None:
        mechanism = build(name)
        for kind in (np.uint8, np.int16, np.uint64):
            x = np.asarray([0, 3, 6], dtype=kind)
            assert np.array_equal(mechanism.privatize(x, rng=3), mechanism.privatize([0, 3, 6], rng=3))

    def test_json_keeps_everything(self, name: str) -> None:
        mechanism = nz.CATALOGUE[name](0.7, nz.Categorical(labels=("red", "green", "blue")))
        restored = nz.from_spec(json.dumps(mechanism.spec()))
        assert restored == mechanism
        assert type(restored) is type(mechanism)
        assert mechanism.spec()["mechanism"] == name
        for same in (pickle.loads(pickle.dumps(mechanism)), copy.deepcopy(mechanism)):
            assert same == mechanism

    def test_batches_of_any_size_add_up_to_the_same_bits(self, name: str) -> None:
        mechanism = build(name, size=13)
        reports = mechanism.privatize(np.arange(5000) % 13, rng=8)
        whole = mechanism.aggregate(reports)
        for cut in (1, 255, 2000, 4999):
            assert mechanism.aggregate(reports[cut:]) + mechanism.aggregate(reports[:cut]) == whole

    def test_labels_name_the_estimates(self, name: str) -> None:
        mechanism = nz.CATALOGUE[name](1.0, nz.Categorical(labels=("yes", "no")))
        codes = mechanism.domain.encode(["yes", "no", "no"])
        assert mechanism.aggregate(mechanism.privatize(codes, rng=1)).estimate().names == ("yes", "no")
        assert build(name).aggregate(build(name).privatize([1], rng=1)).names is None

    @pytest.mark.slow
    def test_frequencies_are_estimated_without_bias(self, name: str) -> None:
        """Every category within its own standard error times a threshold that a sound estimate exceeds once in 10^6."""
        size, users = 40, 100_000
        truth = np.random.default_rng(1).dirichlet(np.ones(size) / 2)
        x = np.random.default_rng(2).choice(size, users, p=truth)
        seen = np.bincount(x, minlength=size) / users
        mechanism = build(name, 1.5, size)
        moments = mechanism.moments(np.arange(size))
        error = np.sqrt(seen @ moments.variance / users)
        threshold = float(ndtri(1 - FALSE_ALARM / size / 2))
        aggregate = mechanism.aggregate(mechanism.privatize(x, rng=3))
        estimate = aggregate.estimate()
        assert np.all(np.abs(estimate.value - seen) <= threshold * error)
        assert np.allclose(estimate.std_error, error, rtol=0.15)
        # the twin: a readout that takes a fifth too much for chance, or a scale 30 % too small, is seen
        shift = 0.2 * abs(mechanism.readout.offset) if name != "histogram" else 0.05
        assert np.any(np.abs(estimate.value - shift - seen) > threshold * error)
        assert np.any(np.abs(0.7 * estimate.value - seen) > threshold * error)

    @pytest.mark.slow
    def test_finite_intervals_cover(self, name: str) -> None:
        """They hold at any n with at least their level: misses are counted against the binomial tail."""
        mechanism = build(name, 1.0, 5)
        x = np.asarray([0] * 12 + [1] * 6 + [2] * 2)
        truth = np.bincount(x, minlength=5) / x.size
        runs = 400
        estimates = [mechanism.aggregate(mechanism.privatize(x, rng=seed)).estimate() for seed in range(runs)]
        off = np.abs(np.stack([estimate.value for estimate in estimates]) - truth)
        low, high = estimates[0].interval(0.9, method="finite")
        most = binom.isf(FALSE_ALARM / 5, runs, 0.1)
        assert np.all(np.count_nonzero(off > (high - low) / 2, axis=0) <= most)
        # the twin: a quarter of the width does not cover
        assert np.any(np.count_nonzero(off > (high - low) / 8, axis=0) > most)

    def test_os_entropy_by_default(self, name: str) -> None:
        mechanism = build(name, 1.0, 100)
        x = np.zeros(200, dtype=int)
        assert not np.array_equal(mechanism.privatize(x), mechanism.privatize(x))

    @pytest.mark.parametrize(
        ("bad", "error", "message"),
        [
            ([0, -1], ValueError, r"categories 0 \.\.\. 6, got -1\. .*such as 'other'"),
            ([0, 7], ValueError, r"categories 0 \.\.\. 6, got 7\. .*no nearest category"),
            (np.asarray([2**63], dtype=np.uint64), ValueError, r"categories 0 \.\.\. 6, got"),
            ([0.0, 1.5], TypeError, r"got np\.float64\(1\.5\) in an array of float64"),
            ([0.0, np.nan], TypeError, r"got np\.float64\(nan\).*missing values a category of their own"),
            ([np.inf], TypeError, r"got np\.float64\(inf\)"),
            (["red"], TypeError, r"got np\.str_\('red'\).*Number the values first"),
            ([True], TypeError, r"got np\.True_ in an array of bool"),
            ([None], TypeError, r"got None in an array of object"),
            ([], ValueError, r"at least one category, got an empty array"),
        ],
    )
    def test_bad_categories_are_refused(self, name: str, bad: Any, error: Any, message: str) -> None:
        mechanism = build(name)
        for clip in (False, True):
            with pytest.raises(error, match=message):
                mechanism.privatize(bad, clip=clip, rng=1)
        with pytest.raises(error, match=message):
            mechanism.moments(bad)

    @pytest.mark.parametrize("epsilon", [0.0, -1.0, float("nan"), float("inf")])
    def test_bad_budgets_are_refused(self, name: str, epsilon: float) -> None:
        with pytest.raises(ValueError, match=r"Expected epsilon="):
            build(name, epsilon)

    def test_budgets_that_say_nothing_are_refused(self, name: str) -> None:
        with pytest.raises(ValueError, match=r"epsilon=1e-12 >= 1e-09"):
            build(name, 1e-12)

    def test_other_domains_are_refused(self, name: str) -> None:
        with pytest.raises(TypeError, match=r"Expected domain=Interval.* to be Categorical"):
            nz.CATALOGUE[name](1.0, nz.Interval())
        with pytest.raises(TypeError, match=r"Expected domain=7 to be Categorical"):
            nz.CATALOGUE[name](1.0, 7)

    def test_no_reports_are_refused(self, name: str) -> None:
        mechanism = build(name)
        with pytest.raises(ValueError, match=r"at least one report"):
            mechanism.tally(np.empty((0, *mechanism.report_shape), dtype=mechanism.report_dtype))
        with pytest.raises(TypeError, match=r"Expected reports of"):
            mechanism.tally(np.full((3, *mechanism.report_shape), "a"))


def _one(reports: Any) -> Any:
    """Return where one entry of one report is: the last of the fourth, or the first where reports are pairs."""
    chosen = np.zeros(reports.shape, dtype=bool)
    chosen[3, -1 if reports.shape[-1] > 2 else 0] = True
    return chosen


SPOILED: dict[str, tuple[str, Any, str]] = {
    "category k": ("grr", lambda r: np.where(np.arange(5) == 3, 7, r), r"Report .*7.* outside the support of grr"),
    "category -1": ("grr", lambda r: np.where(np.arange(5) == 3, -1, r), r"support of grr: the integers 0 \.\.\. 6"),
    "column K": ("hadamard", lambda r: np.where(np.arange(5) == 0, 8, r), r"outside the support of hadamard"),
    "bit 2": ("oue", lambda r: r + np.uint8(1), r"outside the support of oue: vectors of 7 zeros and ones"),
    "bit -1": ("oue", lambda r: r.astype(int) - 1, r"outside the support of oue"),
    "bit 257": ("oue", lambda r: r.astype(int) + 256 * (r == 1), r"outside the support of oue"),
    "short row": ("sue", lambda r: r[:, :6], r"Expected reports of shape \(\.\.\., 7\), got \(5, 6\)"),
    "bucket g": ("olh", lambda r: r * [1, 0] + [0, 4], r"outside the support of olh: pairs of a seed below"),
    "seed below 0": ("olh", lambda r: r - [2**62, 0], r"outside the support of olh"),
    "seeds alone": ("olh", lambda r: r[:, 0], r"Expected reports of shape \(\.\.\., 2\)"),
    "falling set": ("subset-selection", lambda r: r[:, ::-1], r"support of subset-selection: increasing sequences"),
    "set beyond k": ("subset-selection", lambda r: r + 5, r"outside the support of subset-selection"),
    "off the lattice": ("histogram", lambda r: r + 1e-9, r"outside the support of histogram"),
    "one entry off the lattice": ("histogram", lambda r: r + 1e-9 * _one(r), r"outside the support of histogram"),
    "one entry infinite": ("histogram", lambda r: np.where(_one(r), np.inf, r), r"outside the support of histogram"),
    "one bit 2": ("oue", lambda r: np.where(_one(r), np.uint8(2), r), r"outside the support of oue"),
    "one bit 2, symmetric": ("sue", lambda r: np.where(_one(r), np.uint8(2), r), r"outside the support of sue"),
    "one seed below 0": ("olh", lambda r: r - 2**62 * _one(r) * [1, 0], r"outside the support of olh"),
    "one set has a member twice": (
        "subset-selection",
        lambda r: np.where(np.arange(5)[:, None] == 3, r[:, :1], r),
        r"outside the support of subset-selection",
    ),
    "nan": ("histogram", lambda r: r * np.nan, r"outside the support of histogram"),
    "infinite": ("histogram", lambda r: r + np.inf, r"outside the support of histogram"),
}


@pytest.mark.parametrize("case", SPOILED)
def test_reports_of_another_mechanism_are_refused(case: str) -> None:
    name, spoil, message = SPOILED[case]
    mechanism = build(name)
    reports = mechanism.privatize([0, 1, 2, 3, 4], rng=6)
    mechanism.tally(reports)
    with pytest.raises(ValueError, match=message):
        mechanism.tally(spoil(reports))


def test_float_reports_of_integer_mechanisms_are_refused() -> None:
    with pytest.raises(TypeError, match=r"Expected reports of grr to be integers, got an array of float64"):
        build("grr").tally([1.0, 2.0])


class TestTwoUnaryEncodings:
    def test_optimized_chooses_the_class(self) -> None:
        domain = nz.Categorical(4)
        assert type(nz.UnaryEncoding(1.0, domain)) is nz.UnaryEncoding
        symmetric = nz.UnaryEncoding(1.0, domain, optimized=False)
        assert type(symmetric) is nz.SymmetricUnaryEncoding
        assert symmetric == nz.SymmetricUnaryEncoding(1.0, domain) == nz.CATALOGUE["sue"](1.0, domain)
        assert symmetric.name == symmetric.spec()["mechanism"] == "sue"
        assert nz.UnaryEncoding(1.0, domain).spec()["mechanism"] == "oue"
        assert (
            nz.from_spec({"mechanism": "oue", "epsilon": 1.0, "domain": domain.spec(), "optimized": False}) == symmetric
        )
        assert symmetric.p_own > 0.5 == nz.UnaryEncoding(1.0, domain).p_own

    def test_a_contradiction_is_refused(self) -> None:
        with pytest.raises(ValueError, match=r"Expected optimized=True to be False for 'sue'"):
            nz.SymmetricUnaryEncoding(1.0, nz.Categorical(4), optimized=True)
        with pytest.raises(ValueError, match=r"Expected optimized=0 to be True for 'oue'"):
            nz.UnaryEncoding(1.0, nz.Categorical(4), optimized=0)

    def test_their_aggregates_do_not_mix(self) -> None:
        one, other = build("sue"), build("oue")
        with pytest.raises(ValueError, match=r"Expected aggregates of one mechanism"):
            one.aggregate(one.privatize([1], rng=1)) + other.aggregate(other.privatize([1], rng=1))


@pytest.mark.parametrize("users", [1, 254, 255, 256, 511, 70_001])
def test_column_sums_count_every_row(users: int) -> None:
    """Sums of bytes would wrap at 256: all bits on, and random bits, with every remainder of 255."""
    mechanism = build("oue", size=3)
    ones = np.ones((users, 3), dtype=np.uint8)
    assert mechanism.tally(ones).total.tolist() == [users] * 3
    bits = np.random.default_rng(users).integers(0, 2, (users, 3))
    for kind in (np.uint8, np.int64, bool):
        assert np.array_equal(mechanism.tally(bits.astype(kind)).total, bits.sum(axis=0))
    strided = np.asfortranarray(bits.astype(np.uint8))
    assert np.array_equal(mechanism.tally(strided).total, bits.sum(axis=0))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["grr", "olh", "hadamard"])
def test_a_million_categories_need_no_square_table(name: str) -> None:
    """One integer a report; the server's memory is a few numbers for each category."""
    mechanism = build(name, 2.0, 1_000_000)
    tracemalloc.start()
    mechanism.aggregate(mechanism.privatize(np.arange(20), rng=1)).estimate()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 150e6


def test_privatizing_needs_little_more_than_its_reports() -> None:
    for name, users, size in (("grr", 2_000_000, 100), ("oue", 100_000, 100), ("olh", 1_000_000, 100)):
        mechanism = build(name, 1.0, size)
        x = np.arange(users) % size
        mechanism.privatize(x[:10], rng=1)  # builds the tables
        tracemalloc.start()
        reports = mechanism.privatize(x, rng=1)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < reports.nbytes + 8e6
