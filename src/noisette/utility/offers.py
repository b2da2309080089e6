"""What of the catalogue can collect given values, and how to build it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, runtime_checkable

from noisette.domains import Box, Domain, Interval, L2Ball
from noisette.mechanisms import CATALOGUE, by_name
from noisette.mechanisms.vector.sampled import Sampled
from noisette.utility.reporting import report_rules
from noisette.utility.responses import Sampling


@dataclass(frozen=True)
class Offer:
    """A mechanism of the catalogue, to be built for a number of dimensions to report, where that means something.

    One that may take seconds for every new budget, as its ``slow_start`` tells, is ``fixed``: no search for the best
    number of dimensions, which would try many budgets.
    """

    name: str
    build: Callable[[int], Any]
    samples: bool = False
    fixed: bool = False


@runtime_checkable
class Fitting(Protocol):
    """A mechanism of several budgets: it is scaled as a whole, to an interval and a total."""

    def fitted(self, *, domain: Interval, epsilon: float) -> Any:
        """Return the mechanism on another interval, at another total."""


@dataclass(frozen=True)
class Setting:
    """What is to be collected, from how many and at which budget."""

    users: int
    dims: int
    epsilon: float
    delta: float
    report: int | None
    domain: Domain

    def offers(self, names: Sequence[str] | None) -> list[Offer]:
        """Return the mechanisms asked for, or all that apply and are quick to build."""
        if names is not None:
            if not names:
                raise ValueError("Expected at least one mechanism, got none. Leave mechanisms out to compare all.")
            return [self._asked(name) for name in dict.fromkeys(names)]
        found = [self._offer(name, cls) for name, cls in CATALOGUE.items()]
        offers = [offer for offer in found if isinstance(offer, Offer) and not self._is_slow(offer)]
        if not offers:
            raise ValueError(f"No mechanism of the catalogue collects dims={self.dims} of {self.domain}.")
        return offers

    @property
    def usual_report(self) -> int:
        """The number of dimensions asked for, or what the rule says."""
        return self.report or report_rules(self.epsilon, self.dims)["minimax"]

    def _is_slow(self, offer: Offer) -> bool:
        """Tell whether a mechanism, built for this budget, has still to do work that takes seconds."""
        if not offer.fixed:
            return False
        mechanism = offer.build(self.usual_report)
        return bool(getattr(mechanism, "inner_mechanism", mechanism).slow_start)

    def _asked(self, name: str) -> Offer:
        offer = self._offer(name, by_name(name))
        if isinstance(offer, str):
            raise ValueError(f"Mechanism {name!r} cannot be planned here: {offer}")
        return offer

    def _offer(self, name: str, cls: type[Any]) -> Offer | str:
        """Return how to build a mechanism for this setting, or why it does not apply."""
        if cls.kind not in ("mean", "frequency", "vector-mean"):
            return f"it estimates no mean and no frequency, it is of kind {cls.kind!r}."
        example = cls.example(self.epsilon)
        budget: dict[str, Any] = {"epsilon": self.epsilon}
        if example.guarantee.delta > 0:
            if self.delta == 0:
                return "it has no pure guarantee. Give a delta, e.g. 1e-6."
            budget["delta"] = self.delta
        fixed = bool(getattr(cls, "slow_start", False))
        if isinstance(example, Sampling):
            return "it is built from another one. Name that one, e.g. 'piecewise': of several dimensions it is sampled."
        if example.domain.shape == ():
            if example.domain.kind != self.domain.kind:
                return f"it takes a domain of kind {example.domain.kind}, got {self.domain}."
            if isinstance(example, Fitting):
                if self.dims > 1 or not isinstance(self.domain, Interval):
                    return f"its levels are those of one number, got dims={self.dims} of {self.domain}."
                inside = self.domain
                return Offer(name, lambda _: example.fitted(domain=inside, **budget), fixed=fixed)
            if self.dims == 1:
                return Offer(name, lambda _: replace(example, **budget, domain=self.domain), fixed=fixed)
            if not isinstance(self.domain, Interval):
                return f"several dimensions are sampled from intervals only, got {self.domain}."
            box = Box(self.dims, self.domain.low, self.domain.high)
            return Offer(
                name, lambda m: Sampled(name, dims=self.dims, report=m, domain=box, **budget), samples=True, fixed=fixed
            )
        whole = self._whole(example.domain)
        if whole is None:
            return f"it takes vectors of {example.domain}, got {self.dims} dimensions of {self.domain}."
        return Offer(name, lambda _: cls(**budget, domain=whole), fixed=fixed)

    def _whole(self, like: Domain) -> Domain | None:
        """Return the domain of whole vectors that holds this setting's box, of the same kind as ``like``."""
        if self.dims == 1 or not isinstance(self.domain, Interval):
            return None
        if isinstance(like, Box):
            return Box(self.dims, self.domain.low, self.domain.high)
        if isinstance(like, L2Ball) and self.domain.low == -self.domain.high:
            return L2Ball(self.dims, self.domain.high * math.sqrt(self.dims))
        return None
