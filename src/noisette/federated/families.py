"""How each mechanism of the catalogue answers about a whole update, read from what its class declares.

An update is reported in ``count`` independent answers, each with the same ``epsilon``, or for Gaussian noise the same
``mu``. Guarantees compose the answers of all rounds, and a shuffler mixes the answers of all clients to one question.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, wraps
from typing import Any, TypeVar

from noisette import _validate
from noisette.core import Capabilities, Sketched
from noisette.domains import Box, Domain, Interval, L2Ball, Sphere, TensorBall, TensorDomain
from noisette.federated.clipping import Shape
from noisette.guarantees import Claim, Guarantee
from noisette.mechanisms import CATALOGUE
from noisette.mechanisms.build import build

AUTO = "auto"
_SHORT_UPDATE = 2048  # weights, up to which a sketch is hardly shorter than the update
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
        """Return how many answers make up one update."""
        return dims if self._scalar or self.able.entrywise else 1

    @property
    def price(self) -> str:
        """The name of what one answer costs: "mu" of Gaussian noise, "epsilon" of everything else."""
        return "mu" if self.able.gaussian else "epsilon"

    @property
    def leaves_delta(self) -> bool:
        """Whether an answer has an epsilon and a delta of its own, which is an option."""
        return self.able.delta == "needed" and not self.able.gaussian

    def spent(self, epsilon: float | None, mu: float | None) -> dict[str, float]:
        """Return what one answer costs, by its name; the other way to say it is refused."""
        given = {"epsilon": epsilon, "mu": mu}
        value, other = given.pop(self.price), given.popitem()
        if value is None or other[1] is not None:
            got = "nothing" if other[1] is None else f"{other[0]}={other[1]}"
            raise ValueError(f"Expected {self.price}, which {self.name} takes for one answer, and got {got}.")
        return {self.price: _validate.positive(value, self.price)}

    def mechanism(self, domain: Domain, *, epsilon: float | None = None, mu: float | None = None) -> Any:
        """Return the mechanism for vectors of the domain, or for each weight of them."""
        place = Interval() if self._scalar else domain
        spent: dict[str, Any] = self.spent(epsilon, mu)
        return build(self.name, place, unit="element" if self.able.entrywise else "record", **spent, **self.options)

    def answer(self, domain: Domain, *, epsilon: float | None = None, mu: float | None = None) -> Any:
        """Return the mechanism of one answer, for the accounts."""
        if self.able.entrywise:
            return self.mechanism(Box(1), epsilon=epsilon, mu=mu).entry
        return self.mechanism(domain, epsilon=epsilon, mu=mu)

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


def chosen(name: str, dims: int, shape: Shape) -> str:
    """Return the mechanism that "auto" stands for; any other name is itself.

    It is the first of the catalogue that is unbiased, needs no delta and answers about the whole vector at once. Of
    long updates it is one whose reports are sketches, if there is one: as small an error in far fewer bytes.

    >>> chosen("auto", 2_048, "ball"), chosen("auto", 7_000_000, "ball"), chosen("laplace", 4, "box")
    ('privunit', 'fast-projunit', 'laplace')
    """
    if name != AUTO:
        return name
    whole = [one for one in map(Family, names()) if shape in one.shapes and one.count(2) == 1]
    whole = [one for one in whole if one.able.unbiased and one.able.delta == "none"]
    short = [one for one in whole if dims > _SHORT_UPDATE and issubclass(CATALOGUE[one.name], Sketched)]
    return (short or whole)[0].name


def names() -> list[str]:
    """Return the mechanisms that can answer about updates."""
    return [name for name in CATALOGUE if Family(name).answers_updates]


def family(name: str, options: Mapping[str, Any] | None = None) -> Family:
    """Return how a mechanism of the catalogue answers about updates."""
    found = Family(name, dict(options or {}))
    if name not in CATALOGUE or not found.answers_updates:
        raise ValueError(f"Expected mechanism={name!r} to be one of {', '.join(names())}.")
    return found


_Priced = TypeVar("_Priced")


def with_old_budget(*names: str) -> Callable[[type[_Priced]], type[_Priced]]:
    """Let a class still take ``budget``, which meant epsilon or mu, by name or in its old place among ``names``."""

    def changed(kind: type[Any]) -> type[Any]:
        make = kind.__init__

        @wraps(make)
        def init(self: Any, *args: Any, **given: Any) -> None:
            if "budget" in given or len(args) > names.index("budget"):
                given = dict(zip(names, args, strict=False)) | given
                price = family(given["mechanism"]).price
                _warn_of_budget(price)
                args, given[price] = (), given.pop("budget")
            make(self, *args, **given)

        def budget(self: Any) -> float:
            _warn_of_budget("epsilon" if self.mu is None else "mu")
            return float(self.epsilon if self.mu is None else self.mu)

        kind.__init__, kind.budget = init, property(budget, doc="The old name of what one answer costs.")
        return kind

    return changed


def _warn_of_budget(price: str) -> None:
    warnings.warn(
        f"budget is now {price}. Use that: the old name goes in a later release.", DeprecationWarning, stacklevel=3
    )
