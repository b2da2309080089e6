"""Every possible report is listed: log_prob is a law, no ratio exceeds epsilon, moments and estimates follow."""

from __future__ import annotations

import itertools
import math
from functools import cached_property
from typing import Any

import mpmath
import numpy as np
import pytest

import noisette as nz
from noisette.auditing import exact_delta
from noisette.mechanisms.categorical.hashing import AffineHash

NAMES = ("grr", "sue", "oue", "olh", "subset-selection", "hadamard", "pgr", "histogram")
COUNTING = NAMES[:-1]
EPSILONS = (1e-6, 0.1, 1.0, 3.0, 10.0)
SIZES = (2, 3, 5, 9)
MANY = (("olh", 10.0), ("pgr", 10.0))  # 22,027 buckets, and as many points
LISTED = [case for case in itertools.product(COUNTING, EPSILONS, SIZES) if case[:2] not in MANY]


class SmallHashing(nz.LocalHashing):
    """Local hashing with so few maps that all of them can be listed."""

    @cached_property
    def _hash(self) -> AffineHash:
        return AffineHash(11, self.buckets)


def build(name: str, epsilon: float, size: int) -> Any:
    cls = SmallHashing if name == "olh" else nz.CATALOGUE[name]
    return cls(epsilon, nz.Categorical(size))


def all_reports(mechanism: Any) -> np.ndarray:
    """List every report that the mechanism can send."""
    size = mechanism.domain.size
    if mechanism.name == "grr":
        return np.arange(size)
    if mechanism.name == "hadamard":
        return np.arange(mechanism.order)
    if mechanism.name == "pgr":
        return np.arange(mechanism.design.order)
    if mechanism.name in ("sue", "oue"):
        return np.asarray(list(itertools.product((0, 1), repeat=size)), dtype=np.uint8)
    if mechanism.name == "subset-selection":
        return np.asarray(list(itertools.combinations(range(size), mechanism.length)))
    return np.asarray(list(itertools.product(range(mechanism._hash.seeds), range(mechanism.buckets))))


def law(mechanism: Any, reports: np.ndarray) -> np.ndarray:
    """Return the log mass of every report (rows) given every category (columns)."""
    return mechanism.log_prob(reports[:, None], np.arange(mechanism.domain.size)[None, :])


@pytest.mark.parametrize(("name", "epsilon", "size"), LISTED)
class TestByEnumeration:
    def test_the_masses_of_all_reports_add_up_to_one(self, name: str, epsilon: float, size: int) -> None:
        mechanism = build(name, epsilon, size)
        total = np.exp(law(mechanism, all_reports(mechanism))).sum(axis=0)
        assert np.allclose(total, 1, rtol=0, atol=1e-12)

    def test_no_ratio_exceeds_epsilon_and_one_comes_near(self, name: str, epsilon: float, size: int) -> None:
        mechanism = build(name, epsilon, size)
        masses = law(mechanism, all_reports(mechanism))
        worst = float((masses.max(axis=1) - masses.min(axis=1)).max())
        assert worst <= mechanism.guarantee.epsilon == epsilon
        assert worst >= epsilon * (1 - 1e-7)
        assert nz.exact_epsilon(mechanism) == pytest.approx(worst, rel=1e-12, abs=1e-14)

    @pytest.mark.slow
    def test_delta_is_the_sum_over_all_reports(self, name: str, epsilon: float, size: int) -> None:
        """The cells that the mechanism declares, against (P(y | x) - exp(e) P(y | x'))_+ report by report."""
        mechanism = build(name, epsilon, size)
        masses = np.exp(law(mechanism, all_reports(mechanism)))
        for share in (0.0, 0.5, 0.9):
            excess = masses[:, :, None] - math.exp(share * epsilon) * masses[:, None, :]
            found = float(np.maximum(excess, 0).sum(axis=0).max())
            assert exact_delta(mechanism, share * epsilon) == pytest.approx(found, rel=1e-9, abs=1e-13)
        assert exact_delta(mechanism, epsilon) == 0

    @pytest.mark.long
    def test_moments_are_those_of_the_estimate(self, name: str, epsilon: float, size: int) -> None:
        """Each report is aggregated on its own and its estimate weighed by its mass."""
        mechanism = build(name, epsilon, size)
        reports = all_reports(mechanism)
        masses = np.exp(law(mechanism, reports))
        values = np.stack([mechanism.aggregate(reports[row : row + 1]).estimate().value for row in range(len(reports))])
        mean = masses.T @ values
        scale = abs(mechanism.readout.scale)
        assert np.allclose(mean, np.eye(size), rtol=0, atol=1e-13 * scale)
        moments = mechanism.moments(np.arange(size))
        centred = np.abs(values[None] - np.eye(size)[:, None])  # own category, report, estimated category
        for power, stated in ((2, moments.variance), (3, moments.third)):
            found = np.einsum("rx,xrv->xv", masses, centred**power)
            assert np.allclose(found, stated, rtol=1e-9, atol=1e-12)
        assert np.all(moments.bias == 0)


def test_a_wrong_law_is_seen() -> None:
    """The twin: masses of another budget do not fit the moments, and a budget too small is exceeded."""
    wrong, right = build("grr", 1.01, 5), build("grr", 1.0, 5)
    masses = np.exp(law(wrong, np.arange(5)))
    values = np.stack([right.aggregate([row]).estimate().value for row in range(5)])
    assert not np.allclose(masses.T @ values, np.eye(5), rtol=0, atol=1e-3)
    worst = float(np.ptp(law(wrong, np.arange(5)), axis=1).max())
    assert worst > right.guarantee.epsilon


def published(name: str, epsilon: float, size: int) -> tuple[Any, Any]:
    """Return (p, q) as the reference table prints them, in forty digits."""
    e, s = mpmath.exp(mpmath.mpf(epsilon)), mpmath.exp(mpmath.mpf(epsilon) / 2)
    if name == "grr":
        return e / (e + size - 1), 1 / (e + size - 1)
    if name == "sue":
        return s / (s + 1), 1 / (s + 1)
    if name == "oue":
        return mpmath.mpf(1) / 2, 1 / (e + 1)
    if name == "olh":
        buckets = int(mpmath.nint(e)) + 1
        return e / (e + buckets - 1), mpmath.mpf(1) / buckets
    if name == "pgr":
        design = nz.CATALOGUE[name](epsilon, nz.Categorical(size)).design
        every, own, both = design.order, design.block, design.shared
        total = e * own + every - own
        return e * own / total, (e * both + own - both) / total
    if name == "hadamard":
        return e / (e + 1), mpmath.mpf(1) / 2
    w = nz.SubsetSelection(epsilon, nz.Categorical(size)).length
    kept = w * e + size - w
    return w * e / kept, w * ((w - 1) * e + size - w) / ((size - 1) * kept)


def summed_variance(size: int, p: Any, q: Any) -> float:
    """Return the sum over the categories of q(1-q)/(p-q)^2 + f(1-p-q)/(p-q), where the frequencies f add up to one."""
    return float(size * q * (1 - q) / (p - q) ** 2 + (1 - p - q) / (p - q))


@pytest.mark.parametrize("size", [2, 7, 100, 1000])
@pytest.mark.parametrize("epsilon", [1e-6, 1e-3, 0.5, 1.0, 2.0, 5.0, 10.0])
@pytest.mark.parametrize("name", COUNTING)
def test_probabilities_and_variance_are_the_published_ones(name: str, epsilon: float, size: int) -> None:
    mechanism = nz.CATALOGUE[name](epsilon, nz.Categorical(size))
    with mpmath.workdps(40):
        p, q = published(name, epsilon, size)
        assert mechanism.p_own == pytest.approx(float(p), rel=1e-9)
        assert mechanism.p_other == pytest.approx(float(q), rel=1e-9)
        expected = summed_variance(size, p, q)
        wrong = summed_variance(size, p, q * mpmath.mpf("1.01"))
    # at epsilon 1e-6 the last 2^-46 of the budget is given away
    assert float(mechanism.moments(0).variance.sum()) == pytest.approx(expected, rel=1e-6)
    assert wrong != pytest.approx(expected, rel=1e-6)


def test_reference_variances() -> None:
    """Summed over the categories at k = 100, e = 2: the reference table, "Frequencies"."""
    for name, expected in (("subset-selection", 70.0), ("oue", 73.4), ("grr", 273.5)):
        mechanism = nz.CATALOGUE[name](2.0, nz.Categorical(100))
        assert round(float(mechanism.moments(17).variance.sum()), 1) == expected


def test_histogram_has_laplace_variance() -> None:
    """8 / e^2 in every entry: two entries tell categories apart, so each has half of the budget."""
    for epsilon in (1e-3, 0.5, 2.0, 100.0):
        moments = nz.HistogramEncoding(epsilon, nz.Categorical(4)).moments([[0, 1], [2, 3]])
        assert moments.variance.shape == (2, 2, 4)
        assert np.allclose(moments.variance, 8 / epsilon**2, rtol=1e-6)
        assert np.allclose(moments.third, 6 * (2 / epsilon) ** 3, rtol=1e-6)


@pytest.mark.parametrize("epsilon", [1e-6, 1e-3, 1.0, 30.0, 1000.0])
def test_histogram_law_is_a_product_of_laplace_laws(epsilon: float) -> None:
    """Against (rate / 2) exp(-rate |y - onehot|) in forty digits, rate = e/2, up to the step of the lattice."""
    mechanism = nz.HistogramEncoding(epsilon, nz.Categorical(3))
    reports = mechanism.privatize([0, 1, 2] * 20, rng=5)
    for x in range(3):
        found = mechanism.log_prob(reports, x)
        with mpmath.workdps(40):
            rate = mpmath.mpf(epsilon) / 2
            expected = [
                float(
                    3 * mpmath.log(rate / 2)
                    - rate * sum(abs(mpmath.mpf(float(y)) - (v == x)) for v, y in enumerate(row))
                )
                for row in reports
            ]
        assert np.allclose(found, expected, rtol=1e-9, atol=1e-6)
    inputs, witnesses = mechanism.witnesses()
    gaps = np.ptp(mechanism.log_prob(witnesses[:, None], inputs), axis=1)
    assert epsilon * (1 - 1e-7) <= gaps.max() <= epsilon
    random = np.ptp(mechanism.log_prob(reports[:, None], np.arange(3)), axis=1)
    assert random.max() <= gaps.max()


@pytest.mark.long
@pytest.mark.parametrize("size", [2, 3, 1000, pytest.param(1_000_000, marks=pytest.mark.long)])
@pytest.mark.parametrize("epsilon", [1e-6, 1.0, 1000.0])
@pytest.mark.parametrize("name", NAMES)
def test_extremes_stay_sound(name: str, epsilon: float, size: int) -> None:
    """Never a probability of 0 or 1, never an overflow, never more than epsilon."""
    if name == "histogram":
        size = min(size, 50_000)  # a report has eight bytes for each category
    if epsilon != 1.0:
        size = min(size, 100_000)  # a million at one budget shows what size does
    mechanism = nz.CATALOGUE[name](epsilon, nz.Categorical(size))
    x = np.asarray([0, size - 1, size // 2])
    reports = mechanism.privatize(x, rng=3)
    assert np.all(mechanism.support.contains(reports))
    assert np.all(np.isfinite(mechanism.log_prob(reports, x)))
    assert 0 < nz.exact_epsilon(mechanism) <= epsilon
    estimate = mechanism.aggregate(reports).estimate()
    low, high = estimate.interval(0.95, method="finite")
    assert estimate.value.shape == (size,)
    assert np.all(np.isfinite(estimate.value))
    assert np.all(np.isfinite(high - low))
    moments = mechanism.moments(size - 1)
    assert np.all(moments.variance > 0)
    assert np.all(np.isfinite(moments.third))
    if name != "histogram":
        assert 0 < mechanism.p_other < mechanism.p_own < 1


@pytest.mark.parametrize("name", NAMES)
def test_reports_that_cannot_be_have_no_mass(name: str) -> None:
    mechanism = nz.CATALOGUE[name](1.0, nz.Categorical(7))
    good = mechanism.privatize([3], rng=1)
    assert np.isfinite(mechanism.log_prob(good, 3)).all()
    impossible = [good + 0.3, np.full(good.shape, np.nan), np.full(good.shape, np.inf)]
    if name != "histogram":  # whose noise has no bound
        impossible += [good - 100.0, np.full(good.shape, 1e300)]
    for bad in impossible:
        assert np.all(mechanism.log_prob(bad, 3) == -np.inf)


@pytest.mark.long
def test_likelihoods_of_long_reports_overstate_no_ratio() -> None:
    """A report of 10^6 bits has a log mass near -7e5, whose last digit is 1e-10: more than 1e-6 of this budget."""
    mechanism = nz.UnaryEncoding(1e-4, nz.Categorical(1_000_000))
    inputs, reports = mechanism.witnesses()
    for report in reports:
        masses = np.concatenate([mechanism.log_prob(report, [x]) for x in inputs.tolist()])
        assert np.ptp(masses) <= 1e-4
    assert nz.exact_epsilon(mechanism) == pytest.approx(1e-4, rel=1e-4)


def test_subset_selection_is_the_best_of_the_catalogue() -> None:
    """Summed over the categories, whatever their frequencies, as its docstring says."""
    for size, epsilon in itertools.product((2, 3, 5, 16, 100, 1023), (0.01, 0.3, 1.0, 2.0, 4.0, 7.0)):
        found = {
            name: float(nz.CATALOGUE[name](epsilon, nz.Categorical(size)).moments(0).variance.sum()) for name in NAMES
        }
        assert min(found.values()) >= found["subset-selection"] * (1 - 1e-9), (size, epsilon, found)


def test_subset_length_is_the_best_integer() -> None:
    for size, epsilon in itertools.product((2, 3, 10, 57), (0.1, 1.0, 2.5)):
        e = math.exp(epsilon)
        variances = {}
        for w in range(1, size):
            p = w * e / (w * e + size - w)
            variances[w] = summed_variance(size, p, (w - p) / (size - 1))
        best = min(variances.values())
        assert variances[nz.SubsetSelection(epsilon, nz.Categorical(size)).length] == pytest.approx(best, rel=1e-12)


@pytest.mark.parametrize(("name", "other"), [("grr", 1.0), ("oue", 1.0), ("sue", 0.2), ("hadamard", 8.0)])
def test_finite_sample_tail_bounds_the_moment_generating_function(name: str, other: float) -> None:
    """Sub-gamma: ln E exp(t (S - ES)) <= v t^2 / (2 (1 - c t)), for any chance between p_other and p_own."""
    for size, epsilon in itertools.product((2, 50, 1000), (0.5, other, 3.0)):
        mechanism = nz.CATALOGUE[name](epsilon, nz.Categorical(size))
        tail, gap = mechanism.readout.tail, mechanism.p_own - mechanism.p_other
        variance, scale = tail.variance * gap**2, tail.scale * gap
        chance = np.linspace(mechanism.p_other, mechanism.p_own, 40)[:, None]
        t = np.geomspace(1e-3, min(20.0, 0.99 / scale) if scale else 20.0, 200)
        assert np.all(_log_mgf(chance, t) <= variance * t**2 / (2 * (1 - scale * t)) + 1e-15)
        assert np.all(_log_mgf(1 - chance, t) <= variance * t**2 / (2 * (1 - scale * t)) + 1e-15)
        # the twin: no bound holds with four fifths of the largest variance
        largest = float((chance * (1 - chance)).max())
        assert np.any(_log_mgf(chance, t) > 0.8 * largest * t**2 / (2 * (1 - scale * t)))


def _log_mgf(chance: np.ndarray, t: np.ndarray) -> np.ndarray:
    return np.log1p(chance * np.expm1(t)) - chance * t


@pytest.mark.parametrize("epsilon", [0.5, 4.0])
def test_a_hashed_report_supports_the_categories_that_it_is_most_likely_from(epsilon: float) -> None:
    mechanism = nz.CATALOGUE["olh"](epsilon, nz.Categorical(7))
    reports = mechanism.privatize(np.repeat(np.arange(7), 20), rng=1)
    logs = mechanism.log_prob(reports[:, None], np.arange(7))
    telling = np.ptp(logs, axis=1) > epsilon / 2  # the others support all categories, or none
    likely = logs > logs.max(axis=1, keepdims=True) - epsilon / 2
    assert telling.mean() > 0.5
    for found in (mechanism.supports(reports, np.arange(7)), mechanism.readable(reports, np.arange(7))):
        assert np.array_equal(found[telling], likely[telling])
        assert np.all(found[~telling].all(axis=1) | ~found[~telling].any(axis=1))
