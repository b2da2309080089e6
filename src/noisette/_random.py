"""Generators, and exact samplers for the noise that leaves a device.

A sampler here is exact: the law of what it returns is the stated one, not a floating-point
neighbour of it. Each draws a 53-bit uniform, decides by float64 arithmetic wherever the decision is
certain given a bound on that arithmetic's error, and settles the rare rest (about one value in ten
million) in arbitrary precision with as many further random bits as it takes. The work does not
depend on the private input, and the fast path is a fixed sequence of vector operations.

The bits of a geometric variable are independent Bernoulli draws, which gives a sampler without any
rare path; at 2^24 grid steps a noise scale it needs some thirty uniforms a value where inversion
needs one. `geometric` therefore inverts, and a test holds it against the bitwise law.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from noisette._validate import FloatArray

if TYPE_CHECKING:
    from noisette._strips import Strips

Rng = int | np.random.Generator | None

ULP = 2.0**-53
_LOG_ERROR = 2.0**-49  # numpy's log, exp and one division err by less, relatively: see tests/test_random.py
_SMALLEST_RATE = 2.0**-45  # below it 44 / rate would leave the integers that float64 holds
_SPLIT_RATE = 2.0**-26  # below it geometric() draws high and low bits apart
_COMPILED_FROM = 4096  # Gaussian draws, from which a table and compiled code pay off
_BLOCK = 1 << 14  # draws whose words fit a core's cache


def generator(rng: Rng = None) -> np.random.Generator:
    """Return the generator that ``rng`` stands for.

    ``None`` is AES in counter mode keyed by the operating system, which no fork, copy or pickle repeats; an int is a
    reproducible PCG64 for tests, the one of ``numpy.random.default_rng``, so that simulated people need another seed; a
    Generator is used as it is.
    """
    if rng is None:
        from noisette._secret import SecretBits

        return np.random.Generator(SecretBits())
    if isinstance(rng, np.random.Generator):
        return rng
    if isinstance(rng, bool) or not isinstance(rng, int | np.integer):
        raise TypeError(f"Expected rng to be None, an int seed or a numpy Generator, got {type(rng).__name__}.")
    if rng < 0:
        raise ValueError(f"Expected rng={rng} >= 0 as a seed.")
    return np.random.default_rng(int(rng))


def is_secret(rng: np.random.Generator) -> bool:
    """Tell whether a generator is one of ``rng=None``: keyed by the operating system, and never repeated."""
    secret = sys.modules.get("noisette._secret")  # not imported before the first of them is built
    return secret is not None and isinstance(getattr(rng, "bit_generator", None), secret.SecretBits)


def bits64(rng: np.random.Generator, size: int, room: npt.NDArray[np.uint64] | None = None) -> npt.NDArray[np.uint64]:
    """Draw words of 64 random bits, as fast as the generator has them; in ``room`` where that is of use.

    Room is for two words more than are drawn.
    """
    bits: Any = rng.bit_generator
    return bits.words(size, room) if is_secret(rng) else rng.integers(0, 2**64, size, dtype=np.uint64)


def words(rng: np.random.Generator, high: int, size: int) -> npt.NDArray[np.int64]:
    """Draw integers uniform on 0, ..., high - 1, exactly; high <= 2^62."""
    # numpy's bounded integers are exact, and fastest when the bound is above 2^32 and far below 2^64
    shift = max(0, 56 - high.bit_length())
    draws = rng.integers(0, high << shift, size)
    draws >>= shift
    return draws


def one_of_two(rng: np.random.Generator, first: int, second: int, size: int) -> tuple[FloatArray, FloatArray]:
    """Draw integers uniform below ``first`` and others uniform below ``second``, for a caller that uses one of them.

    Both come exactly from one word below first * second; which one is used must not depend on the word.
    """
    word = words(rng, first * second, size)
    low = word // second
    word -= low * second
    return low.astype(np.float64), word.astype(np.float64)


def geometric(rng: np.random.Generator, rate: float, size: int) -> FloatArray:
    """Draw k = 0, 1, 2, ... with probability (1 - a) a^k, a = exp(-rate), as float64."""
    if rate < _SMALLEST_RATE:
        raise ValueError(
            f"Expected rate={rate} >= {_SMALLEST_RATE}: noise of that scale leaves the integers float64 holds. "
            "Use a coarser grid."
        )
    if rate < _SPLIT_RATE:
        return _split_geometric(rng, rate, size)
    # U uniform on (0, 1) has P(U <= a^k) = a^k, so floor(-ln U / rate) is geometric
    uniform = rng.random(size)
    result = np.empty(size)
    unsure: list[int] = []
    for start in range(0, size, _BLOCK):
        block = uniform[start : start + _BLOCK]
        with np.errstate(divide="ignore"):
            below = np.log(block, out=result[start : start + _BLOCK])
            below *= -1 / rate
            slack = np.divide(ULP / rate, block)  # U lies up to one ulp above its 53 bits
        error = below * _LOG_ERROR
        slack += error
        above = np.floor(np.add(below, error, out=error), out=error)
        with np.errstate(invalid="ignore"):  # U below 2^-53 gives inf - inf, which is settled exactly
            below -= slack
        np.floor(below, out=below)
        unsure += (start + np.flatnonzero(above != below)).tolist()
    for index in unsure:
        result[index] = _exact_geometric(rng, rate, uniform[index])
    return result


def discrete_laplace(rng: np.random.Generator, rate: float, size: int) -> FloatArray:
    """Draw integers k with probability proportional to exp(-rate |k|), as float64."""
    result = geometric(rng, rate, size)
    p_zero = float(np.tanh(rate / 2))
    uniform = rng.random(size)
    for start in range(0, size, _BLOCK):
        block, own = uniform[start : start + _BLOCK], result[start : start + _BLOCK]
        own += 1
        sign = (block >= p_zero).view(np.int8) - 2 * (block >= (1 + p_zero) / 2).view(np.int8)
        for index in _near(block, p_zero, (1 + p_zero) / 2):
            bits = _Bits(rng, block[index])
            zero = bits.below(lambda mp: mp.tanh(mp.mpf(rate) / 2))
            sign[index] = 0 if zero else 1 if bits.below(lambda mp: (1 + mp.tanh(mp.mpf(rate) / 2)) / 2) else -1
        own *= sign
    return result


def discrete_gaussian(rng: np.random.Generator, sigma: float, size: int) -> FloatArray:
    """Draw integers k with probability proportional to exp(-k^2 / (2 sigma^2)), as float64.

    Many are drawn from the law cut into strips, see `noisette._strips`, few by rejection: both are exact.
    """
    if size < _COMPILED_FROM:
        return _rejected_gaussian(rng, sigma, size)
    from noisette._strips import LARGEST, strips

    if not 0 < sigma < LARGEST:
        return _rejected_gaussian(rng, sigma, size)
    return _stripped_gaussian(rng, strips(float(sigma)), size)


def _stripped_gaussian(rng: np.random.Generator, law: Strips, size: int) -> FloatArray:
    """Draw from the strips, and settle what float64 leaves open."""
    from noisette._strips import fill

    result = np.empty(size)
    pending = np.empty((_BLOCK, 5))
    numbers = law.shift, float(law.scale), 0.5 / law.sigma**2
    filled = 0
    while filled < size:
        block = result[filled : filled + _BLOCK]
        words = rng.integers(0, 2**64, block.size + block.size // 16 + 16, dtype=np.uint64)
        done, left = fill(block, words, numbers, law.low, law.gap, law.thresholds, law.alias, pending)
        for place, strip, k, uniform, sign in pending[:left].tolist():
            block[int(place)] = _settled(rng, law, int(strip), int(k), uniform, bool(sign))
        filled += done
    return result


def _settled(rng: np.random.Generator, law: Strips, strip: int, k: int, uniform: float, negative: bool) -> float:
    """Return a draw of a known wedge, or of the tail (strip -1); one that is not kept is replaced."""
    bits = _Bits(rng, uniform)
    if strip < 0:
        beyond = int(geometric(rng, law.tail_rate, 1)[0])
        k = law.edge + beyond
        kept = bits.below(lambda mp: law.left_by_tail(mp, beyond))
    else:
        kept = bits.below(lambda mp: law.left_by_wedge(mp, strip, k))
    if kept:
        return float(-k if negative else k)
    return float(_rejected_gaussian(rng, law.sigma, 1)[0])


def _rejected_gaussian(rng: np.random.Generator, sigma: float, size: int) -> FloatArray:
    """Draw by rejection from the discrete Laplace (Canonne, Kamath, Steinke 2020, Algorithm 3)."""
    rate = float(1 / (np.floor(sigma) + 1))
    shift, precision = rate * sigma**2, 1 / (2 * sigma**2)
    result = np.empty(size)
    filled = 0
    while filled < size:
        magnitude = geometric(rng, rate, int(1.35 * (size - filled)) + 16)
        gamma = magnitude - shift
        gamma *= gamma
        gamma *= precision
        kept = magnitude[bernoulli_exp(rng, gamma, lambda mp, i, k=magnitude: _gaussian_gamma(mp, k[i], rate, sigma))]
        kept *= 1 - 2 * (rng.random(kept.size) < 0.5).view(np.int8)
        kept = kept[(kept != 0) | ~np.signbit(kept)][: size - filled]  # zero has one sign, not two
        result[filled : filled + kept.size] = kept
        filled += kept.size
    return result


def bernoulli_exp(rng: np.random.Generator, gamma: FloatArray, exact: Callable[..., Any]) -> npt.NDArray[np.bool_]:
    """Draw True with probability exp(-gamma); ``exact(mpmath, i)`` is gamma[i] without rounding."""
    uniform = rng.random(gamma.size)
    probability = np.exp(-gamma)
    result: npt.NDArray[np.bool_] = uniform < probability
    for index in _near(uniform, probability):
        result[index] = _Bits(rng, uniform[index]).below(partial(_exp_minus, exact, index))
    return result


def _near(uniform: FloatArray, *probabilities: float | FloatArray) -> list[int]:
    """Return where a uniform is too near a computed probability for float64 to decide.

    gamma = z^2 / 2 with z off by less than 2^-50 moves exp(-gamma) by less than z exp(-z^2 / 2) 2^-50 <= 0.61 2^-50; a
    relative error of gamma moves it by at most gamma exp(-gamma) <= 0.37 times as much.
    """
    unsure = np.zeros(uniform.size, dtype=bool)
    for probability in probabilities:
        unsure |= (uniform < probability + _LOG_ERROR) & (uniform > probability - _LOG_ERROR)
    return np.flatnonzero(unsure).tolist() if unsure.any() else []


def _exp_minus(exact: Callable[..., Any], index: int, mp: Any) -> Any:
    """Return exp(-gamma[index]) without rounding of gamma."""
    return mp.exp(-exact(mp, index))


def _gaussian_gamma(mp: Any, magnitude: float, rate: float, sigma: float) -> Any:
    """Return the exponent of the rejection step without rounding."""
    variance = mp.mpf(sigma) ** 2
    return (mp.mpf(magnitude) - mp.mpf(rate) * variance) ** 2 / (2 * variance)


def bernoulli_threshold(probability: float | FloatArray) -> FloatArray:
    """Return the probability that ``rng.random() < probability`` really has: a multiple of 2^-53."""
    return np.asarray(np.ceil(np.multiply(probability, 2.0**53)) * ULP)


def _split_geometric(rng: np.random.Generator, rate: float, size: int) -> FloatArray:
    """Draw a geometric variable of tiny rate as high and low bits, which are independent."""
    bits = int(np.floor(np.log2(2.0**-24 / rate)))
    result = geometric(rng, rate * 2.0**bits, size)
    result *= 2.0**bits
    pending = np.arange(size)
    while pending.size:
        low = words(rng, 1 << bits, pending.size).astype(np.float64)
        kept = bernoulli_exp(rng, low * rate, lambda mp, i, k=low: mp.mpf(k[i]) * mp.mpf(rate))
        result[pending[kept]] += low[kept]
        pending = pending[~kept]
    return result


def _exact_geometric(rng: np.random.Generator, rate: float, uniform: float) -> float:
    """Return floor(-ln U / rate) for the real U that begins with the 53 bits of ``uniform``."""
    bits = _Bits(rng, uniform)
    while True:
        ends = bits.ends(lambda mp, u: -mp.log(u) / mp.mpf(rate))
        if ends is not None and ends[0] == ends[1]:
            return float(ends[0])
        bits.extend()


class _Bits:
    """A real number uniform on [0, 1): its first 53 bits, and as many more as a decision needs."""

    def __init__(self, rng: np.random.Generator, uniform: float) -> None:
        self._rng, self._digits, self._count = rng, int(uniform * 2**53), 53

    def extend(self) -> None:
        """Draw 64 bits more."""
        self._digits = (self._digits << 64) | int(self._rng.integers(0, 2**64, dtype=np.uint64))
        self._count += 64

    def ends(self, decreasing: Callable[[Any, Any], Any]) -> tuple[int, int] | None:
        """Return the floors of a decreasing function at both ends of what is known; None at zero."""
        import mpmath

        if self._digits == 0:
            return None
        with mpmath.workprec(self._count + 64):
            low, high = (decreasing(mpmath, mpmath.ldexp(self._digits + end, -self._count)) for end in (1, 0))
            error = mpmath.ldexp(high, -self._count - 56)
            return int(mpmath.floor(low - error)), int(mpmath.floor(high + error))

    def below(self, threshold: Callable[[Any], Any]) -> bool:
        """Tell whether the number is below ``threshold(mpmath)``."""
        import mpmath

        while True:
            with mpmath.workprec(self._count + 64):
                scaled = mpmath.ldexp(threshold(mpmath), self._count)
                error = mpmath.ldexp(scaled, -self._count - 56)
                if self._digits + 1 <= scaled - error:
                    return True
                if self._digits >= scaled + error:
                    return False
            self.extend()
