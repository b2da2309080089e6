"""What is to be collected, which mechanisms can collect it, and how many dimensions a user should report."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from noisette.domains import Attributes, Box, Categorical, Domain, Grid, Interval, Selection, TensorBall, TensorDomain
from noisette.mechanisms import CATALOGUE
from noisette.mechanisms.build import Fit, build, collecting

_BALANCE = 2.1773189849653  # the u with sinh u = 2 u, at which u coth(u / 2)^2 is least


def report_rules(epsilon: float, dims: int) -> dict[str, int]:
    """Return how many dimensions to report by two rules that look at neither mechanism nor data.

    ``minimax``: the m of least (1/m) ((exp(e/m) + 1) / (exp(e/m) - 1))^2, Duchi's worst case, about e / 2.18;
    ``wang-2019``: max(1, min(d, floor(e / 2.5))), whose cost is up to 48 % larger just below epsilon 5, and up to 19 %
    above it.

    >>> report_rules(10.0, 100)
    {'minimax': 5, 'wang-2019': 4}
    """
    below = min(max(math.floor(epsilon / _BALANCE), 1), dims)
    minimax = min((below, min(below + 1, dims)), key=lambda m: 1 / m / math.tanh(epsilon / m / 2) ** 2)
    return {"minimax": minimax, "wang-2019": max(1, min(dims, math.floor(epsilon / 2.5)))}


def best_report(cost: Callable[[int], float], dims: int) -> int:
    """Return the number of dimensions of least cost: the best of a few from 1 to ``dims``, then of those between.

    A search, not a formula: a biased mechanism may have its least error at one dimension, at all, or in between.
    """
    known = lru_cache(maxsize=None)(cost)
    tried = np.unique(np.rint(np.geomspace(1, dims, 12))).astype(np.int64)
    while True:
        best = int(np.argmin([known(m) for m in tried.tolist()]))
        low, high = int(tried[max(best - 1, 0)]), int(tried[min(best + 1, tried.size - 1)])
        if high - low <= 2:
            return int(tried[best])
        tried = np.unique(np.rint(np.linspace(low, high, 9))).astype(np.int64)


@dataclass(frozen=True)
class Offer:
    """A mechanism that collects what a setting asks for, to be built for a number of dimensions to report."""

    setting: Setting
    fit: Fit

    @property
    def name(self) -> str:
        """Its catalogue name."""
        return self.fit.name

    @property
    def samples(self) -> bool:
        """Whether each user reports some of the dimensions, so that their number means something."""
        return self.fit.sampled

    @property
    def fixed(self) -> bool:
        """Whether the best number of dimensions is not searched: new budgets may take seconds each."""
        return self.fit.able.slow_start

    def build(self, report: int) -> Any:
        """Return the mechanism for ``report`` dimensions, if it samples some."""
        setting = self.setting
        return build(
            self.name,
            setting.whole,
            epsilon=setting.epsilon,
            delta=setting.delta if self.fit.able.delta == "needed" else 0.0,
            report=report if self.samples else None,
        )


@dataclass(frozen=True)
class Setting:
    """What is to be collected, from how many and at which budget.

    ``domain`` is that of each of the ``dims`` entries, and ``vector`` that of all of them where it is no box.
    """

    users: int
    dims: int
    epsilon: float
    delta: float
    report: int | None
    domain: Domain
    vector: Domain | None = None

    def offers(self, names: Sequence[str] | None) -> list[Offer]:
        """Return the mechanisms asked for, or all that apply, are quick to build and are made for such values.

        Those for tensors take a vector as a tensor of one mode, where they are asked for.
        """
        if names is not None:
            if not names:
                raise ValueError("Expected at least one mechanism, got none. Leave mechanisms out to compare all.")
            return [self._asked(name) for name in dict.fromkeys(names)]
        found = [Offer(self, fit) for fit in map(self._fit, CATALOGUE) if fit and fit.usual]
        offers = [one for one in found if not (one.fixed and one.build(self.usual_report).slow_start)]
        if not offers:
            raise ValueError(
                f"No mechanism of the catalogue collects {self._asked_for}. Ask for less at once, or give a delta."
            )
        return offers

    @property
    def usual_report(self) -> int:
        """The number of dimensions asked for, or what the rule says."""
        return self.report or report_rules(self.epsilon, self.dims)["minimax"]

    @property
    def record(self) -> Attributes | None:
        """The attributes of a record, if that is what is collected: several categorical ones, or what was given."""
        if isinstance(self.domain, Categorical) and self.dims > 1:
            return Attributes((self.domain,) * self.dims)
        return self.domain if isinstance(self.domain, Attributes) else None

    @property
    def whole(self) -> Domain | None:
        """The domain of all that a user holds, None where several dimensions of a kind make no vector or record."""
        if self.vector is not None:
            return self.vector
        if self.record is not None or self.dims == 1:
            return self.record or (
                self.domain if isinstance(self.domain, Interval | Grid | Categorical | Selection) else None
            )
        return Box(self.dims, self.domain.low, self.domain.high) if isinstance(self.domain, Interval) else None

    @property
    def _asked_for(self) -> str:
        """What is to be collected, as messages show it."""
        return f"dims={self.dims} of {self.domain}" if self.vector is None else str(self.vector)

    def _asked(self, name: str) -> Offer:
        found = self._fit(name)
        if found.obstacle:
            raise ValueError(f"Mechanism {name!r} cannot be planned here, for {self._asked_for}: {found.obstacle}")
        return Offer(self, found)

    def _fit(self, name: str) -> Fit:
        """Return how a mechanism collects what is asked for, or why it does not."""
        found = collecting(name, self.whole, delta=self.delta)
        if found and found.able.levels:
            try:
                Offer(self, found).build(1)
            except ValueError as error:  # a budget too small for its levels, say
                return Fit(name, found.able, obstacle=str(error))
        return found


def compared() -> list[str]:
    """Return the mechanisms that are compared unless others are named: not those made for tensors."""
    tensors = {TensorDomain, TensorBall}
    return [name for name, cls in CATALOGUE.items() if not tensors & set(cls.capabilities.domains)]
