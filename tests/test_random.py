"""The samplers draw the laws they state, by the fast path and by the exact one."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import numpy.typing as npt
import pytest
from randomgen import AESCounter
from scipy import stats

from noisette import _random

FALSE_ALARM = 1e-6
FloatArray = npt.NDArray[np.float64]
Cdf = Callable[[FloatArray], FloatArray]


def chi_square(draws: FloatArray, cdf: Cdf, *, cells: int = 40) -> float:
    """Return the p-value of integer draws against P(K <= k) = cdf(k), in cells of some equal chance."""
    edges = np.unique(np.quantile(draws, np.linspace(0, 1, cells + 1)[1:-1], method="lower"))
    bounds = np.concatenate([[0.0], cdf(edges), [1.0]])
    expected = np.diff(bounds) * draws.size
    observed = np.bincount(np.searchsorted(edges, draws, side="left"), minlength=edges.size + 1)
    kept = expected > 20
    rest_expected, rest_observed = expected[~kept].sum(), observed[~kept].sum()
    statistic = float(((observed[kept] - expected[kept]) ** 2 / expected[kept]).sum())
    freedom = int(kept.sum()) - 1
    if rest_expected > 1e-9:
        statistic += float((rest_observed - rest_expected) ** 2 / max(rest_expected, 1.0))
        freedom += 1
    return float(stats.chi2.sf(statistic, freedom))


def geometric_cdf(rate: float) -> Cdf:
    return lambda k: -np.expm1(-rate * (k + 1))


def laplace_cdf(rate: float) -> Cdf:
    ratio = math.exp(-rate)

    def cdf(k: FloatArray) -> FloatArray:
        tail = np.exp(-rate * np.where(k >= 0, k + 1, -k)) / (1 + ratio)
        return np.where(k >= 0, 1 - tail, tail)

    return cdf


def gaussian_cdf(sigma: float) -> Cdf:
    if sigma > 1000:  # rounding k to the nearest integer and summing differ by O(sigma^-2)
        return lambda k: stats.norm.cdf((k + 0.5) / sigma)
    support = np.arange(-math.ceil(40 * sigma) - 2, math.ceil(40 * sigma) + 3.0)
    mass = np.exp(-0.5 * (support / sigma) ** 2)
    sums = np.cumsum(mass) / mass.sum()
    return lambda k: sums[np.asarray(k - support[0], dtype=int)]


class Scripted:
    """A generator whose uniforms and further words are given."""

    def __init__(self, uniforms: list[float], words: list[int]) -> None:
        self.uniforms, self.words, self.used = uniforms, words, 0

    def random(self, size: int) -> FloatArray:
        return np.asarray(self.uniforms[:size])

    def integers(self, low: int, high: int, dtype: Any = None) -> int:
        assert (low, high, dtype) == (0, 2**64, np.uint64)
        self.used += 1
        return self.words[self.used - 1]


@pytest.mark.parametrize("rate", [20.0, 3.0, 0.7, 1e-3, 2.0**-24, 2.0**-30, 2.0**-45])
def test_geometric_law(rate: float) -> None:
    draws = _random.geometric(np.random.default_rng(1), rate, 200_000)
    assert draws.min() >= 0
    assert np.array_equal(draws, np.rint(draws))
    assert chi_square(draws, geometric_cdf(rate)) > FALSE_ALARM
    if rate < 10:  # at 20 nearly every draw is zero: no wrong rate can be told
        assert chi_square(draws, geometric_cdf(1.05 * rate)) < FALSE_ALARM


@pytest.mark.parametrize("rate", [0.01, 2.0**-29])
def test_geometric_bits_are_independent(rate: float) -> None:
    """Bit i is one with probability a^(2^i) / (1 + a^(2^i)), and bits are independent."""
    draws = _random.geometric(np.random.default_rng(2), rate, 200_000).astype(np.int64)
    top = round(math.log2(1 / rate))
    places = [0, 1, 2, 3, 5, top, top + 1]
    chance = [1 / (1 + math.exp(rate * 2.0**i)) for i in places]
    bits = [(draws >> i) & 1 for i in places]
    for bit, p_one in zip(bits, chance, strict=True):
        assert stats.binomtest(int(bit.sum()), draws.size, p_one).pvalue > FALSE_ALARM / 100
    for i in range(len(places)):
        for j in range(i):
            observed = np.bincount(2 * bits[i] + bits[j], minlength=4)
            law = [(1 - chance[i]) * (1 - chance[j]), (1 - chance[i]) * chance[j], chance[i] * (1 - chance[j])]
            expected = np.asarray([*law, chance[i] * chance[j]]) * draws.size
            assert stats.chisquare(observed, expected).pvalue > FALSE_ALARM / 100
    # twin: noise that a rounding to tens has touched
    rounded = np.rint(draws / 10).astype(np.int64) * 10
    assert stats.binomtest(int((rounded & 1).sum()), draws.size, chance[0]).pvalue < FALSE_ALARM


@pytest.mark.parametrize("rate", [5.0, 0.3, 2.0**-10, 2.0**-25, 1e-12])
def test_discrete_laplace_law(rate: float) -> None:
    draws = _random.discrete_laplace(np.random.default_rng(3), rate, 200_000)
    assert chi_square(draws, laplace_cdf(rate)) > FALSE_ALARM
    assert chi_square(draws, laplace_cdf(0.95 * rate)) < FALSE_ALARM
    zeros = int((draws == 0).sum())
    assert stats.binomtest(zeros, draws.size, math.tanh(rate / 2)).pvalue > FALSE_ALARM


def test_discrete_laplace_twin_with_two_zeros() -> None:
    """A random sign on a geometric magnitude counts zero twice, and the test sees it."""
    rng = np.random.default_rng(4)
    draws = _random.geometric(rng, 0.3, 200_000) * rng.choice([-1.0, 1.0], 200_000)
    assert chi_square(draws, laplace_cdf(0.3)) < FALSE_ALARM


@pytest.mark.parametrize("sigma", [0.3, 0.4, 1.0, 2.7, 50.0, 2.0**12, 2.0**25, 2.0**40])
def test_discrete_gaussian_law(sigma: float) -> None:
    draws = _random.discrete_gaussian(np.random.default_rng(5), sigma, 200_000)
    assert np.array_equal(draws, np.rint(draws))
    assert chi_square(draws, gaussian_cdf(sigma)) > FALSE_ALARM
    assert chi_square(draws, gaussian_cdf(1.04 * sigma)) < FALSE_ALARM


def test_discrete_gaussian_of_next_to_no_noise() -> None:
    """At sigma = 0.05 another value than zero has probability below 1e-86."""
    assert not _random.discrete_gaussian(np.random.default_rng(5), 0.05, 10_000).any()


def test_discrete_gaussian_twin_by_rounding() -> None:
    """Rounded normal noise is not discrete Gaussian noise, and the test sees it."""
    draws = np.rint(np.random.default_rng(6).normal(0, 0.4, 200_000))
    assert chi_square(draws, gaussian_cdf(0.4)) < FALSE_ALARM


@pytest.mark.slow
@pytest.mark.parametrize("rate", [3.0, 0.01, 2.0**-24, 2.0**-30])
def test_exact_path_decides_as_the_fast_one(rate: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """With an error bound so large that nothing is certain, each value is settled exactly: to the same value."""
    samplers = [
        lambda rng: _random.geometric(rng, rate, 400),
        lambda rng: _random.discrete_laplace(rng, rate, 400),
        lambda rng: _random.discrete_gaussian(rng, 1 / rate, 200),
    ]
    fast = [sampler(np.random.default_rng(7)) for sampler in samplers]
    calls = []
    exact_geometric = _random._exact_geometric
    monkeypatch.setattr(_random, "_exact_geometric", lambda *args: calls.append(1) or exact_geometric(*args))
    monkeypatch.setattr(_random, "_LOG_ERROR", 1.0)
    exact = [sampler(np.random.default_rng(7)) for sampler in samplers]
    assert len(calls) >= 1000
    for one, other in zip(fast, exact, strict=True):
        np.testing.assert_array_equal(one, other)


def test_uniform_on_a_boundary_asks_for_more_bits() -> None:
    """exp(-rate) lies above 1/2 by some 2^-56: the first 53 bits of a U next to 1/2 do not decide."""
    rate = math.log(2)
    with mpmath.workprec(300):
        edge = int(mpmath.floor((mpmath.exp(-mpmath.mpf(rate)) - 0.5) * mpmath.mpf(2) ** 117))
    assert 0 < edge < 2**64
    for word, value in ((edge - 1, 1.0), (edge + 1, 0.0), (0, 1.0), (2**64 - 1, 0.0)):
        rng = Scripted([0.5], [word])
        assert _random.geometric(rng, rate, 1)[0] == value
        assert rng.used == 1
    # a word that is itself on the boundary asks for another one
    rng = Scripted([0.5], [edge, 2**64 - 1])
    assert _random.geometric(rng, rate, 1)[0] == 0.0
    assert rng.used == 2


def test_uniform_of_zero_is_extended() -> None:
    rng = Scripted([0.0], [0, 2**63])  # U is 2^-118 and a little: 53 + 64 zeros, then a one
    value = _random.geometric(rng, 1.0, 1)[0]
    assert value == math.floor(118 * math.log(2))
    assert rng.used == 2


def test_below_compares_real_numbers() -> None:
    def threshold(mp: Any) -> Any:
        return mp.mpf(0.5) + mp.ldexp(1, -100)  # 2^17 units of the 117th bit above the first 53 bits

    for word, answer in ((2**17 - 2, True), (2**17 + 1, False), (0, True), (2**64 - 1, False)):
        rng = Scripted([], [word])
        assert _random._Bits(rng, 0.5).below(threshold) is answer
        assert rng.used == 1
    rng = Scripted([], [])
    assert _random._Bits(rng, 0.25).below(threshold) is True
    assert _random._Bits(rng, 0.75).below(threshold) is False
    assert rng.used == 0


def test_what_rounding_could_move_is_settled_by_neither_side() -> None:
    """A value that is on an edge, as far as mpmath's digits tell, is not taken for one beside it."""
    assert _random._Bits(Scripted([], []), 0.5).ends(lambda mp, u: mp.mpf(5)) == (4, 5)
    first = 2**52  # the 53 bits of one half
    for edge in (first, first + 1):  # the ends of what they leave open
        rng = Scripted([], [2**63])
        assert _random._Bits(rng, 0.5).below(lambda mp, edge=edge: mp.ldexp(edge, -53)) is (edge > first)
        assert rng.used == 1


def test_uniforms_on_either_side_of_a_probability_are_settled_exactly() -> None:
    near, far = 0.5 * _random._LOG_ERROR, 2 * _random._LOG_ERROR
    uniforms = np.asarray([0.25 - far, 0.25 - near, 0.25, 0.25 + near, 0.25 + far, 0.75 - near, 0.75 + near])
    assert _random._near(uniforms, 0.25) == [1, 2, 3]
    assert _random._near(uniforms, 0.25, np.full(7, 0.75)) == [1, 2, 3, 5, 6]


@pytest.mark.slow
def test_rare_path_is_rare(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    exact_geometric = _random._exact_geometric
    monkeypatch.setattr(_random, "_exact_geometric", lambda *args: calls.append(1) or exact_geometric(*args))
    _random.geometric(np.random.default_rng(8), 2.0**-24, 3_000_000)
    # expected: slack and error of one value, in steps: some 37 * 2^-53 / rate * 2
    assert len(calls) <= stats.poisson.isf(FALSE_ALARM, 3_000_000 * 80 * 2.0**-53 * 2.0**24)


def test_error_of_numpy_functions_is_below_the_bound() -> None:
    """The fast path rests on numpy's log, exp and tanh erring by less than 2^-50, relatively."""
    rng = np.random.default_rng(9)
    near_one = 1 - np.arange(1, 400) * 2.0**-53
    arguments = np.concatenate([rng.random(1500), near_one, 2.0 ** -np.arange(1.0, 54), rng.random(300) * 2.0**-40])
    exponents = np.concatenate([rng.random(1000) * 45, rng.random(300) * 1e-3, rng.random(300) * 2.0**-30])
    cases = [
        (np.log, mpmath.log, arguments[arguments > 0]),
        (np.exp, mpmath.exp, -exponents),
        (np.tanh, mpmath.tanh, exponents[exponents > 0]),
    ]
    with mpmath.workprec(160):
        for function, exact, points in cases:
            worst = max(
                abs(mpmath.mpf(float(value)) / exact(mpmath.mpf(float(point))) - 1)
                for value, point in zip(function(points), points, strict=True)
            )
            assert worst < 2.0**-50
            assert worst < _random._LOG_ERROR / 2


def test_tiny_rates_are_refused() -> None:
    with pytest.raises(ValueError, match=r"Expected rate=.* >= .*Use a coarser grid"):
        _random.geometric(np.random.default_rng(1), 2.0**-46, 10)


@pytest.mark.parametrize("high", [1, 2, 3, 5, 7, 64, 100])
def test_words_are_uniform(high: int) -> None:
    draws = _random.words(np.random.default_rng(10), high, 100_000)
    counts = np.bincount(draws, minlength=high)
    assert counts.size == high
    if high > 1:
        assert stats.chisquare(counts).pvalue > FALSE_ALARM
        assert stats.chisquare(np.bincount(draws[draws < high - 1], minlength=high)).pvalue < FALSE_ALARM


@pytest.mark.parametrize("high", [2**31, 2**53 - 111, 2**61 + 12345, 2**62])
def test_words_reach_huge_bounds(high: int) -> None:
    draws = _random.words(np.random.default_rng(11), high, 100_000)
    assert draws.min() >= 0
    assert int(draws.max()) < high
    sixteenth = [int(draw) * 16 // high for draw in draws.tolist()]
    assert stats.chisquare(np.bincount(sixteenth, minlength=16)).pvalue > FALSE_ALARM
    assert stats.chisquare(np.bincount(draws % 16, minlength=16)).pvalue > FALSE_ALARM


def test_one_of_two_is_jointly_uniform() -> None:
    first, second = _random.one_of_two(np.random.default_rng(12), 3, 7, 100_000)
    cells = (7 * first + second).astype(int)
    assert first.max() == 2
    assert second.max() == 6
    assert stats.chisquare(np.bincount(cells, minlength=21)).pvalue > FALSE_ALARM


def test_bernoulli_threshold_is_the_chance_of_a_uniform_below() -> None:
    for p_true in (2.0**-60, 0.1, 1 / 3, 0.5, 0.7, 1 - 2.0**-53):
        # rng.random() is k 2^-53: count the k below p exactly
        below = math.ceil(Fraction(p_true) * 2**53)
        assert Fraction(float(_random.bernoulli_threshold(p_true))) == Fraction(below, 2**53)


def test_bernoulli_exp_law() -> None:
    gamma = np.repeat([0.0, 1e-9, 0.3, 2.0, 12.0], 100_000)
    kept = _random.bernoulli_exp(np.random.default_rng(13), gamma, lambda mp, i: mp.mpf(float(gamma[i])))
    assert kept[gamma == 0].all()
    for value in (0.3, 2.0, 12.0):
        count = int(kept[gamma == value].sum())
        assert stats.binomtest(count, 100_000, math.exp(-value)).pvalue > FALSE_ALARM
    assert stats.binomtest(int(kept[gamma == 0.3].sum()), 100_000, math.exp(-0.32)).pvalue < FALSE_ALARM


def test_none_is_a_fresh_cryptographic_generator() -> None:
    one, other = _random.generator(None), _random.generator(None)
    assert isinstance(one.bit_generator, AESCounter)
    first, second = one.random(8), other.random(8)
    assert not np.any(first == second)
    keys = {tuple(_random.generator(None).random(2)) for _ in range(50)}
    assert len(keys) == 50


def test_seeds_and_generators() -> None:
    assert np.array_equal(_random.generator(7).random(4), _random.generator(np.int64(7)).random(4))
    assert not np.array_equal(_random.generator(7).random(4), _random.generator(8).random(4))
    rng = np.random.default_rng(7)
    assert _random.generator(rng) is rng
    first = _random.geometric(rng, 0.1, 5)
    assert not np.array_equal(first, _random.geometric(rng, 0.1, 5))


@pytest.mark.parametrize("bad", [True, 1.5, "7", [1], np.random.RandomState])
def test_bad_generators_are_refused(bad: Any) -> None:
    with pytest.raises(TypeError, match="Expected rng to be None, an int seed or a numpy Generator, got"):
        _random.generator(bad)


def test_negative_seed_is_refused() -> None:
    with pytest.raises(ValueError, match=r"Expected rng=-1 >= 0"):
        _random.generator(-1)


def test_words_of_64_bits_are_those_of_the_generator() -> None:
    assert np.array_equal(
        _random.bits64(np.random.default_rng(1), 9), np.random.default_rng(1).bit_generator.random_raw(9)
    )


@pytest.mark.parametrize("edge", ["zero", "sign"])
@pytest.mark.parametrize("word", [0, 2**64 - 1])
def test_a_sign_on_either_boundary_is_settled_exactly(edge: str, word: int) -> None:
    """P(0) = tanh(rate / 2), then half of the rest: numbers next to either boundary ask for more bits."""
    rate, p_zero = 0.7, math.tanh(0.35)
    with mpmath.workprec(300):
        exact = mpmath.tanh(mpmath.mpf(rate) / 2)
        exact = exact if edge == "zero" else (1 + exact) / 2
        first = int(mpmath.floor(mpmath.ldexp(exact, 53)))  # the first 53 bits, which leave it open

    class Drawn(Scripted):
        def random(self, size: int) -> FloatArray:
            self.asked = getattr(self, "asked", 0) + 1
            return np.asarray([0.5]) if self.asked == 1 else np.asarray([first * 2.0**-53])

    rng = Drawn([], [word] * 4)
    found = _random.discrete_laplace(rng, rate, 1)[0]  # type: ignore[arg-type]
    assert rng.used > 0
    magnitude = 1 + math.floor(-math.log(0.5) / rate)
    below = word == 0
    assert found == ((0 if below else magnitude) if edge == "zero" else (magnitude if below else -magnitude))
    assert p_zero == pytest.approx(float(exact) if edge == "zero" else 2 * float(exact) - 1)
