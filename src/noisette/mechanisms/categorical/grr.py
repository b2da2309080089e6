"""Generalised randomised response: the category itself, or any other one."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from noisette._validate import FloatArray, IntArray
from noisette.core import Capabilities
from noisette.domains import Categorical
from noisette.mechanisms.categorical._base import Codes, CountingMechanism, KeepOrReplace


@dataclass(frozen=True)
class GeneralizedRandomizedResponse(CountingMechanism):
    """Report the category itself, or with a smaller chance any other one.

    Formula: P(y = x) = E / (E + k - 1), each other y has probability 1 / (E + k - 1), E = exp(e).

    *Guarantee*: epsilon-LDP for one category, exactly: the law is a table of integers.
    *Utility*: unbiased; the variance of a rare category's frequency is (E + k - 2) / (E - 1)^2. It grows with k: from
    k = 3E + 2 on OUE is better, and subset selection, of which this is the case of one category, is never worse.
    Kairouz, Bonawitz, Ramage 2016 (k-RR); variance in Wang, Blocki, Li, Jha 2017, Theorem 2 (direct encoding).

    >>> m = GeneralizedRandomizedResponse(epsilon=1.0, domain=Categorical(7))
    >>> round(m.p_own / m.p_other, 6)
    2.718282
    >>> m.privatize([0, 3, 3, 6], rng=7).shape
    (4,)
    """

    epsilon: float
    domain: Categorical
    name: ClassVar[str] = "grr"
    capabilities: ClassVar[Capabilities] = replace(CountingMechanism.capabilities, tells_category=True)
    citation: ClassVar[str] = "kairouz2016discrete"

    @cached_property
    def _response(self) -> KeepOrReplace:
        return KeepOrReplace.build(self.domain.size, self.epsilon)

    @cached_property
    def _support_law(self) -> tuple[Fraction, Fraction]:
        return self._response.p_same, self._response.p_different

    @property
    def supported(self) -> tuple[int, int]:
        """A report is a category."""
        return 1, 1

    @property
    def _joint_law(self) -> tuple[Fraction, Fraction]:
        return Fraction(0), Fraction(0)

    @property
    def support(self) -> Codes:
        """The categories."""
        return Codes(self.domain.size)

    def law(self) -> KeepOrReplace:
        """Return the weights of the category itself and of the others."""
        return self._response

    def table(self) -> dict[str, Any]:
        """Return the weights."""
        return self._response.table()

    def _count(self, reports: npt.NDArray[Any]) -> IntArray:
        return np.bincount(reports, minlength=self.domain.size).astype(np.int64, copy=False)

    def log_prob(self, report: Any, x: Any) -> FloatArray:
        reports, codes = np.broadcast_arrays(np.asarray(report), self._inputs(x))
        mass = np.where(reports == codes, np.log(self.p_own), np.log(self.p_other))
        return np.where(self.support.contains(reports), mass, -np.inf)

    def _alike(self) -> list[tuple[Any, float, Fraction, Fraction]]:
        same, different = self._support_law
        own = [(0, 0.0, same, different), (1, 0.0, different, same)]
        rest = self.domain.size - 2
        return [*own, (2, math.log(rest), different, different)] if rest else own

    def witnesses(self) -> tuple[IntArray, IntArray]:
        """Return two categories and their true reports: all pairs are alike."""
        return np.arange(2), np.arange(2)
