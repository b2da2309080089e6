"""How each mechanism of the catalogue answers about a whole update, read from what its class declares.

An update is told in ``count`` independent answers, of one budget each. Guarantees compose the answers of all rounds,
and a shuffler mixes the answers of all clients to one question. The budget is the epsilon of an answer, or for
Gaussian noise its mu.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from noisette.core import Capabilities
from noisette.domains import Box, Domain, Interval, L2Ball, Sphere, TensorBall, TensorDomain
from noisette.federated.clipping import Shape
from noisette.guarantees import Claim, Guarantee
from noisette.mechanisms import CATALOGUE
from noisette.mechanisms.build import build

_FARTHEST = 64.0  # standard deviations of an entry: a report out there was not sent by the mechanism
_SHAPES: dict[Shape, tuple[type[Any], ...]] = {
    "ball": (L2Ball, TensorBall),
    "sphere": (L2Ball, Sphere),
    "box": (Interval, Box, TensorDomain),
}


@dataclass(frozen=True)
class Family:
    """A mechanism that answers about updates of any length."""

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def able(self) -> Capabilities:
        """What the mechanism declares."""
        able: Capabilities = CATALOGUE[self.name].declared(**self.options)
        return able

    @property
    def shapes(self) -> tuple[Shape, ...]:
        """What an update may be clipped to."""
        return tuple(shape for shape, kinds in _SHAPES.items() if set(kinds) & set(self.able.domains))

    @property
    def answers_updates(self) -> bool:
        """Whether a client can answer about vectors with it: one number at a time only where that is unbiased."""
        able = self.able
        apart = able.model != "local" or able.composite or able.levels
        return not apart and bool(self.shapes) and (able.unbiased or not self._scalar)

    @property
    def _scalar(self) -> bool:
        """Whether the mechanism is for one number, and is asked about each weight."""
        return Interval in self.able.domains

    def count(self, dims: int) -> int:
        """Return how many answers tell one update."""
        return dims if self._scalar or self.able.entrywise else 1

    def mechanism(self, budget: float, domain: Domain) -> Any:
        """Return the mechanism for vectors of the domain, or for each weight of them."""
        place = Interval() if self._scalar else domain
        spent: dict[str, Any] = {"mu" if self.able.gaussian else "epsilon": budget}
        return build(self.name, place, unit="element" if self.able.entrywise else "record", **spent, **self.options)

    def answer(self, budget: float, domain: Domain) -> Any:
        """Return the mechanism of one answer, for the accounts."""
        return self.mechanism(budget, Box(1)).entry if self.able.entrywise else self.mechanism(budget, domain)

    def variance(self, mechanism: Any, answer: Any) -> float:
        """Return the largest variance of an entry of the estimate."""
        return float((answer if self.able.entrywise else mechanism).worst_variance())

    def reach(self, deviation: float) -> float:
        """Return how far from zero an entry of a report may be; the support may say less."""
        return math.inf if self.able.decoded else 1 + _FARTHEST * deviation

    def claim(self, answer: Guarantee, update: Guarantee) -> Claim:
        """Return what the source of the mechanism states for a client, for a round or for the whole run."""
        stated = answer if self.able.claims_entry else update
        return Claim(stated.epsilon, stated.delta, source=CATALOGUE[self.name].citation)


def names() -> list[str]:
    """Return the mechanisms that can answer about updates."""
    return [name for name in CATALOGUE if Family(name).answers_updates]


def family(name: str, options: Mapping[str, Any] | None = None) -> Family:
    """Return how a mechanism of the catalogue answers about updates."""
    found = Family(name, dict(options or {}))
    if name not in CATALOGUE or not found.answers_updates:
        raise ValueError(f"Expected mechanism={name!r} to be one of {', '.join(names())}.")
    return found
