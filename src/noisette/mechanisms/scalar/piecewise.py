"""Piecewise and its variants: a window of likely reports around the value."""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass, replace
from functools import cached_property, lru_cache
from typing import Any, ClassVar

from noisette._search import golden_section
from noisette.core import Capabilities
from noisette.domains import Interval
from noisette.mechanisms.scalar._window import Window, WindowMechanism


def unbiased_travel(epsilon: float, log_t: float) -> float:
    """Return 2 (E + t) / (E - 1), by which the window of the three-piece family of parameter t must travel."""
    return 2 * (1 + math.exp(log_t - epsilon)) / -math.expm1(-epsilon)


@dataclass(frozen=True)
class Piecewise(WindowMechanism):
    """Report from a window around the value, which is exp(epsilon) times as likely as the rest.

    Formula, on [-1, 1] with s = exp(e/2): reports in [-Q, Q], Q = (s+1)/(s-1); the window is
    [(Q+1)x/2 - (Q-1)/2, (Q+1)x/2 + (Q-1)/2] and holds s/(s+1) of the mass.

    *Guarantee*: epsilon-LDP for one value, exactly: the law is an integer table.
    *Utility*: unbiased; variance x^2/(s-1) + (s+3)/(3(s-1)^2). Beats Duchi above epsilon 1.29 in the worst case.
    Wang, Xiao, Yang, Zhao, Hui, Shin, Shin, Yu 2019, Algorithm 2 and Lemma 1.

    >>> round(float(Piecewise(epsilon=1.0).moments(0.3).variance), 7)
    3.8208378
    """

    epsilon: float
    _: KW_ONLY
    domain: Interval = Interval()  # noqa: RUF009
    name: ClassVar[str] = "piecewise"
    citation: ClassVar[str] = "wang2019collecting"

    @cached_property
    def _window(self) -> Window:
        log_t = self.epsilon / 2
        return Window.build(self.domain, self.epsilon, log_t, unbiased_travel(self.epsilon, log_t))


@dataclass(frozen=True)
class PiecewiseOptimal(WindowMechanism):
    """Piecewise with the window that makes the worst-case variance least.

    Formula, on [-1, 1] with E = exp(e): variance (t+1)x^2/(E-1) + (t+E)((t+1)^3+E-1)/(3t^2(E-1)^2), t the
    minimiser at x = 1.

    *Guarantee*: epsilon-LDP for one value, exactly: the law is an integer table.
    *Utility*: unbiased; below Piecewise everywhere in the worst case, 0.162 against 0.241 at epsilon 4.
    The three-piece family of Wang et al. 2019 (its exp(e/3) variant is Zhao et al. 2021's PM-SUB), optimised.

    >>> round(float(PiecewiseOptimal(epsilon=1.0).moments(1.0).variance), 3)
    5.066
    """

    epsilon: float
    _: KW_ONLY
    domain: Interval = Interval()  # noqa: RUF009
    name: ClassVar[str] = "piecewise-optimal"
    citation: ClassVar[str] = "zhao2021local"

    @cached_property
    def _window(self) -> Window:
        log_t = optimal_log_t(self.epsilon)
        return Window.build(self.domain, self.epsilon, log_t, unbiased_travel(self.epsilon, log_t))


@dataclass(frozen=True)
class SquareWave(WindowMechanism):
    """Report from a window of fixed width centred on the value.

    Formula, on [0, 1]: reports in [-b, 1+b], window [x-b, x+b], b = (e E - E + 1) / (2 E (E - 1 - e)), E = exp(e);
    any other interval is mapped to [0, 1] and the report mapped back.

    *Guarantee*: epsilon-LDP for one value, exactly: the law is an integer table.
    *Utility*: biased toward the middle as published (bias affine in x); made for reconstructing distributions. With
    ``debiased=True`` each report is corrected and a plain mean is unbiased, with more variance than Piecewise.
    Li, Wang, Li, Skoric, Lopuhaa-Zwakenberg 2020, section 5.

    >>> m = SquareWave(epsilon=1.0, domain=Interval(0, 1))
    >>> round(float(m.moments(0.3).bias), 6), round(float(m.moments(0.3).variance), 6)
    (0.126424, 0.137796)
    """

    epsilon: float
    _: KW_ONLY
    domain: Interval = Interval()  # noqa: RUF009
    debiased: bool = False
    name: ClassVar[str] = "square-wave"
    capabilities: ClassVar[Capabilities] = replace(WindowMechanism.capabilities, unbiased=False)
    citation: ClassVar[str] = "li2020estimating"

    @property
    def unbiased(self) -> bool:
        return self.debiased

    @classmethod
    def declared(cls, **options: Any) -> Capabilities:
        """Return what the mechanism can do: its reports are biased unless they are corrected."""
        return replace(cls.capabilities, unbiased=bool(options.get("debiased")))

    @cached_property
    def _window(self) -> Window:
        log_t = -log_full_width(self.epsilon)
        travel = unbiased_travel(self.epsilon, log_t) if self.debiased else 2.0
        return Window.build(self.domain, self.epsilon, log_t, travel)


def log_full_width(epsilon: float) -> float:
    """Return ln 2b of the square wave, b = (e E - E + 1) / (2 E (E - 1 - e)); b is 1/2 at zero."""
    if epsilon < 1e-2:  # series of both factors, which cancel for small e
        top = sum((-epsilon) ** k / math.factorial(k + 2) for k in range(8))
        bottom = sum(epsilon**k / math.factorial(k + 2) for k in range(8))
        return math.log(top / bottom)
    shrunk = math.exp(-epsilon)  # divides numerator and denominator, so that neither overflows
    return math.log(epsilon - 1 + shrunk) - epsilon - math.log1p(-shrunk * (1 + epsilon))


def log_worst_variance(log_t: float, epsilon: float) -> float:
    """Return the log of the three-piece family's variance at x = 1, without overflow for any epsilon."""
    log_less = epsilon + math.log(-math.expm1(-epsilon))  # ln(E - 1)
    log_t1 = _log_add(log_t, 0.0)
    second = _log_add(log_t, epsilon) + _log_add(3 * log_t1, log_less) - math.log(3) - 2 * log_t - 2 * log_less
    return _log_add(log_t1 - log_less, second)


@lru_cache(maxsize=256)
def optimal_log_t(epsilon: float) -> float:
    """Return the ln t of least worst-case variance, by golden section: the variance is unimodal in ln t."""
    return golden_section(lambda log_t: log_worst_variance(log_t, epsilon), 0.0, epsilon / 2 + 2, floor=1.0)


def _log_add(first: float, second: float) -> float:
    larger, smaller = max(first, second), min(first, second)
    return larger + math.log1p(math.exp(smaller - larger))
