"""What of the catalogue can collect given values, and how to build it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Protocol, runtime_checkable

from noisette.domains import Attributes, Box, Categorical, Domain, Interval, L2Ball, TensorDomain
from noisette.mechanisms import CATALOGUE, by_name
from noisette.mechanisms.vector.attributes import SampledAttributes
from noisette.mechanisms.vector.sampled import Sampled
from noisette.prediction.reporting import report_rules
from noisette.prediction.responses import Recording, Sampling


@cache
def example_of(cls: Any) -> Any:
    """Return an instance that shows which domain a mechanism takes."""
    return cls.example(1.0)


@cache
def is_pure(cls: Any) -> bool:
    """Tell whether a mechanism has a pure guarantee."""
    return bool(example_of(cls).guarantee.delta == 0)


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
        """Return the mechanisms asked for, or all that apply, are quick to build and are made for such values.

        Those for tensors take a vector as a tensor of one mode, where they are asked for.
        """
        if names is not None:
            if not names:
                raise ValueError("Expected at least one mechanism, got none. Leave mechanisms out to compare all.")
            return [self._asked(name) for name in dict.fromkeys(names)]
        found = [self._offer(name, CATALOGUE[name]) for name in compared()]
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
        inner = getattr(mechanism, "inner_mechanisms", (getattr(mechanism, "inner_mechanism", mechanism),))
        return any(bool(one.slow_start) for one in inner)

    def _asked(self, name: str) -> Offer:
        offer = self._offer(name, by_name(name))
        if isinstance(offer, str):
            raise ValueError(f"Mechanism {name!r} cannot be planned here: {offer}")
        return offer

    def _offer(self, name: str, cls: Any) -> Offer | str:
        """Return how to build a mechanism for this setting, or why it does not apply."""
        if cls.kind not in ("mean", "frequency", "vector-mean", "attributes"):
            return f"it estimates no mean and no frequency, it is of kind {cls.kind!r}."
        fixed = bool(getattr(cls, "slow_start", False))
        if issubclass(cls, Fitting) and (self.dims > 1 or not isinstance(self.domain, Interval)):
            return f"its levels are those of one number, got dims={self.dims} of {self.domain}."
        example = example_of(cls)
        if example.guarantee.model != "local":
            return "it answers for a curator who holds the records, not for each user."
        budget: dict[str, Any] = {"epsilon": self.epsilon}
        if not is_pure(cls):
            if self.delta == 0:
                return "it has no pure guarantee. Give a delta, e.g. 1e-6."
            budget["delta"] = self.delta
        if isinstance(example, Sampling):
            return "it is built from another one. Name that one, e.g. 'piecewise': of several dimensions it is sampled."
        if isinstance(example, Recording):
            return "it is built from others. Name those, or give an Attributes domain and leave mechanisms out."
        if example.domain.shape == () and self.record is not None:
            return self._attributes(name, example, budget, fixed)
        if example.domain.shape == ():
            if example.domain.kind != self.domain.kind:
                return f"it takes a domain of kind {example.domain.kind}, got {self.domain}."
            if isinstance(example, Fitting):
                inside: Any = self.domain
                try:
                    made = example.fitted(domain=inside, **budget)
                except ValueError as error:  # a budget too small for its levels, say
                    return str(error)
                return Offer(name, lambda _: made, fixed=fixed)
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

    @property
    def record(self) -> Attributes | None:
        """The attributes of a record, if that is what is collected: several categorical ones, or what was given."""
        if isinstance(self.domain, Categorical) and self.dims > 1:
            return Attributes((self.domain,) * self.dims)
        return self.domain if isinstance(self.domain, Attributes) else None

    def _attributes(self, name: str, example: Any, budget: dict[str, Any], fixed: bool) -> Offer | str:
        """Return how to build a mechanism for all attributes of a record, or why it does not apply to them."""
        record = self.record
        assert record is not None  # the caller knows
        unlike = [part for part in record.parts if part.kind != example.domain.kind]
        if unlike:
            return f"it takes attributes of kind {example.domain.kind}, got {unlike[0]}."
        return Offer(
            name, lambda m: SampledAttributes(name, domain=record, report=m, **budget), samples=True, fixed=fixed
        )

    def _whole(self, like: Domain) -> Domain | None:
        """Return the domain of whole vectors that holds this setting's box, of the same kind as ``like``."""
        if self.dims == 1 or not isinstance(self.domain, Interval):
            return None
        if isinstance(like, Box):
            return Box(self.dims, self.domain.low, self.domain.high)
        if isinstance(like, TensorDomain):
            return TensorDomain((self.dims,), self.domain.low, self.domain.high)
        if isinstance(like, L2Ball) and self.domain.low == -self.domain.high:
            return L2Ball(self.dims, self.domain.high * math.sqrt(self.dims))
        return None


def compared() -> list[str]:
    """Return the mechanisms that are compared unless others are named: not those made for tensors."""
    domains = {name: getattr(cls, "__dataclass_fields__", {}).get("domain") for name, cls in CATALOGUE.items()}
    return [name for name, domain in domains.items() if domain is None or not str(domain.type).startswith("Tensor")]
