"""How each mechanism of the catalogue answers about a whole update, and what one of its answers gives away.

An update is told in ``count`` independent answers, of one budget each. Guarantees compose the answers of all rounds,
and a shuffler mixes the answers of all clients to one question. The budget is the epsilon of an answer, or for
Gaussian noise its mu.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from noisette._validate import FloatArray
from noisette.domains import Box, Domain, Interval, L2Ball, TensorBall, TensorDomain
from noisette.federated.clipping import Shape
from noisette.guarantees import Claim, Guarantee, gaussian_delta
from noisette.mechanisms import CATALOGUE
from noisette.mechanisms._base import ScalarMechanism

_POINT = 6.0  # deviations of the privacy loss above its mean at which Gaussian noise is asked for
_FARTHEST = 64.0  # standard deviations of an entry: a report out there was not sent by the mechanism


def gaussian_point(mu: float) -> dict[str, float]:
    """Return an epsilon and delta on the curve of mu-GDP."""
    epsilon = mu**2 / 2 + _POINT * mu  # the mean of the loss, and so many of its deviations
    return {"epsilon": epsilon, "delta": float(gaussian_delta(mu, epsilon))}


@dataclass(frozen=True)
class Family(ABC):
    """A mechanism that answers about updates of any length."""

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)
    shapes: ClassVar[tuple[Shape, ...]]
    gaussian: ClassVar[bool] = False
    unbiased: ClassVar[bool] = True
    claims_run: ClassVar[bool] = False  # its source claims the same for any number of rounds
    adjustable: ClassVar[frozenset[str]] = frozenset()  # options that a client lets its server choose

    def count(self, dims: int) -> int:
        """Return how many answers tell one update."""
        return dims

    @abstractmethod
    def answer(self, budget: float, domain: Domain) -> Any:
        """Return the mechanism of one answer, for the accounts."""

    @abstractmethod
    def mechanism(self, budget: float, domain: Domain) -> Any:
        """Return the mechanism for vectors of the domain."""

    def decode(self, mechanism: Any, report: FloatArray) -> FloatArray:
        """Return the estimate of the vector that one report gives."""
        return report

    def variance(self, mechanism: Any, answer: Any) -> float:
        """Return the largest variance of an entry of the estimate."""
        return float(np.max(answer.moments(np.asarray([[0.0], [1.0]])).variance))

    def ends(self, mechanism: Any) -> tuple[float, float] | None:
        """Return the two numbers that reports hold, if there are two."""
        return None

    def reach(self, deviation: float) -> float:
        """Return how far from zero an entry of a report may be; the support may say less."""
        return 1 + _FARTHEST * deviation

    def claim(self, answer: Guarantee, update: Guarantee) -> Claim:
        """Return what the source of the mechanism states for a client, for a round or for the whole run."""
        return Claim(update.epsilon, update.delta, source=CATALOGUE[self.name].citation)


class Coordinates(Family):
    """A mechanism for one number, asked about each weight."""

    shapes = ("box",)

    @cached_property
    def gaussian(self) -> bool:  # type: ignore[override]  # a property where others have a constant
        """Whether the noise has a delta."""
        return bool(CATALOGUE[self.name].example(1.0).guarantee.delta > 0)

    def answer(self, budget: float, domain: Domain) -> ScalarMechanism:
        terms = gaussian_point(budget) if self.gaussian else {"epsilon": budget}
        made: ScalarMechanism = CATALOGUE[self.name](**terms, **self.options)
        return made

    def mechanism(self, budget: float, domain: Domain) -> ScalarMechanism:
        return self.answer(budget, domain)

    def ends(self, mechanism: Any) -> tuple[float, float] | None:
        points: tuple[float, ...] = getattr(mechanism.support, "values", ())
        return (points[0], points[1]) if len(points) == 2 else None


class TwoNumbers(Family):
    """LDP-FL: one of two numbers for each weight."""

    shapes = ("box",)
    claims_run = True

    def answer(self, budget: float, domain: Domain) -> Any:
        return CATALOGUE["duchi"](epsilon=budget)

    def mechanism(self, budget: float, domain: Domain) -> Any:
        dims = math.prod(domain.shape)
        return CATALOGUE[self.name](epsilon=budget * dims, domain=domain)

    def ends(self, mechanism: Any) -> tuple[float, float] | None:
        return float(mechanism.support.low), float(mechanism.support.high)

    def claim(self, answer: Guarantee, update: Guarantee) -> Claim:
        """Return the budget of one weight: the paper says that it does not add up over weights and rounds."""
        return Claim(answer.epsilon, source=CATALOGUE[self.name].citation)


class Entries(Family):
    """Keep an entry or add noise to it, entry by entry."""

    shapes = ("box",)
    adjustable = frozenset({"levels"})

    def answer(self, budget: float, domain: Domain) -> Any:
        return self.mechanism(budget, Box(1))

    def mechanism(self, budget: float, domain: Domain) -> Any:
        return CATALOGUE[self.name](epsilon=budget, domain=TensorDomain(domain.shape), unit="element", **self.options)


class Whole(Family):
    """A mechanism that answers about the vector at once."""

    shapes: ClassVar[tuple[Shape, ...]] = ("ball", "sphere")

    def count(self, dims: int) -> int:
        return 1

    def answer(self, budget: float, domain: Domain) -> Any:
        return self.mechanism(budget, domain)

    def mechanism(self, budget: float, domain: Domain) -> Any:
        return CATALOGUE[self.name](epsilon=budget, domain=domain, **self.options)

    def variance(self, mechanism: Any, answer: Any) -> float:
        return float(np.max(mechanism.moments(np.eye(1, mechanism.dims)).variance))


class WholeBox(Whole):
    """A mechanism that answers at once about a vector of bounded entries."""

    shapes = ("box",)

    def variance(self, mechanism: Any, answer: Any) -> float:
        return float(np.max(mechanism.moments(np.zeros(mechanism.dims)).variance))

    def ends(self, mechanism: Any) -> tuple[float, float] | None:
        return -1.0, 1.0  # reports are signs

    def decode(self, mechanism: Any, report: FloatArray) -> FloatArray:
        return np.asarray(mechanism.readout.offset + mechanism.readout.scale * report)


class Angles(Whole):
    """LDPVec: noise on the magnitude and on the angles; the vector that they describe is biased toward zero."""

    unbiased = False
    adjustable = frozenset({"noise", "beta"})

    @cached_property
    def gaussian(self) -> bool:  # type: ignore[override]  # a property where others have a constant
        """Whether the noise has a delta."""
        return self.options.get("noise") == "gaussian"

    def mechanism(self, budget: float, domain: Domain) -> Any:
        terms = gaussian_point(budget) if self.gaussian else {"epsilon": budget}
        return CATALOGUE[self.name](domain=domain, **terms, **self.options)

    def decode(self, mechanism: Any, report: FloatArray) -> FloatArray:
        decoded: FloatArray = mechanism.decode(report)
        return decoded

    def variance(self, mechanism: Any, answer: Any) -> float:
        return 1 / float(mechanism.dims)  # of a vector of length one whose direction is all noise

    def reach(self, deviation: float) -> float:
        return math.inf  # angles: their support is checked


class GaussianTensor(Whole):
    """Gaussian noise on the whole update, exactly as much as its length, or the box of its entries, asks for."""

    shapes = ("ball", "box")
    gaussian = True

    def mechanism(self, budget: float, domain: Domain) -> Any:
        tensors = TensorBall(domain.shape) if isinstance(domain, L2Ball) else TensorDomain(domain.shape)
        return CATALOGUE[self.name](tensors, **gaussian_point(budget), **self.options)

    def variance(self, mechanism: Any, answer: Any) -> float:
        return float(mechanism.sigma) ** 2


_FAMILIES: dict[str, type[Family]] = {
    "adaptive-duchi": TwoNumbers,
    "retain-or-noise": Entries,
    "privunit": Whole,
    "privunit-g": Whole,
    "duchi-box": WholeBox,
    "angle-noise": Angles,
    "tensor-gaussian": GaussianTensor,
}


def names() -> list[str]:
    """Return the mechanisms that can answer about updates."""
    return [name for name in CATALOGUE if name in _FAMILIES or _scalar(name)]


def family(name: str, options: Mapping[str, Any] | None = None) -> Family:
    """Return how a mechanism of the catalogue answers about updates."""
    if name in _FAMILIES:
        return _FAMILIES[name](name, dict(options or {}))
    if name in CATALOGUE and _scalar(name):
        return Coordinates(name, dict(options or {}))
    raise ValueError(f"Expected mechanism={name!r} to be one of {', '.join(names())}.")


def _scalar(name: str) -> bool:
    """Tell whether a mechanism answers about numbers of an interval, all levels alike and without bias."""
    cls = CATALOGUE[name]
    if not issubclass(cls, ScalarMechanism) or cls.accepts is not Interval:
        return False
    example = cls.example(1.0)
    return example.guarantee.matrix is None and bool(np.all(np.abs(example.moments([-0.5, 0.5]).bias) < 1e-9))
