"""The mechanisms of a campaign: one for the plain attributes together, one for each vector, tensor or graded number."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from noisette._random import Rng
from noisette.core import Aggregate
from noisette.domains import Attributes, Box, Categorical, Interval, TensorDomain
from noisette.guarantees import Guarantee
from noisette.mechanisms import from_spec
from noisette.mechanisms.vector.sampled import Reports, Sampled
from noisette.survey.questions import Attribute


@dataclass(frozen=True, eq=False)
class Part:
    """Some attributes and the mechanism that answers for them; its reports are arrays of one shape and type.

    A report of `Sampled` becomes rows of a dimension and its value. A tensor may be collected as a long vector.
    """

    attributes: tuple[Attribute, ...]
    mechanism: Any

    def __post_init__(self) -> None:
        wanted, domain = self.domain, self.mechanism.domain
        if domain.spec() != wanted.spec() and domain.spec() != self._flat_spec:
            raise ValueError(f"Expected a mechanism for {wanted}, got one for {domain}.")

    @property
    def domain(self) -> Any:
        """What the mechanism is asked about: the one attribute, or the record of all."""
        return domain_of(self.attributes)

    @property
    def _flat_spec(self) -> Any:
        first = self.attributes[0].domain
        return flat(first).spec() if isinstance(first, TensorDomain) else None

    @property
    def quantities(self) -> tuple[str, ...]:
        """Names of what is estimated."""
        return tuple(name for attribute in self.attributes for name in attribute.quantities)

    @cached_property
    def _layout(self) -> tuple[tuple[int, ...], np.dtype[Any]]:
        """Shape and type of one report: as the mechanism says, or as a report of it has."""
        mechanism = self.mechanism
        if isinstance(mechanism, Sampled):
            return (len(mechanism.privatize(_inside(mechanism.domain)[None], rng=0).indices[0]), 2), np.dtype("<f8")
        if hasattr(mechanism, "report_shape"):
            return tuple(mechanism.report_shape), np.dtype(mechanism.report_dtype).newbyteorder("<")
        sent = np.asarray(mechanism.privatize(_inside(mechanism.domain)[None], rng=0))
        return sent.shape[1:], sent.dtype.newbyteorder("<")

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one report."""
        return self._layout[0]

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the numbers in a report, little-endian."""
        return self._layout[1]

    def privatize(self, coded: Sequence[npt.NDArray[Any]], *, rng: Rng = None) -> npt.NDArray[Any]:
        """Return a report for each user; each attribute has its coded values along a first axis."""
        users = len(coded[0])
        alone = len(self.attributes) == 1
        values = coded[0].reshape(users, *self.mechanism.domain.shape) if alone else np.stack(coded, axis=1)
        sent = self.mechanism.privatize(values, rng=rng)
        if isinstance(sent, Reports):
            sent = np.stack([sent.indices, sent.values], axis=-1)
        return np.asarray(sent)

    def reports(self, rows: npt.NDArray[Any]) -> Any:
        """Return rows as the mechanism's own reports."""
        if not isinstance(self.mechanism, Sampled):
            return np.ascontiguousarray(rows).astype(rows.dtype.newbyteorder("="), copy=False)
        index = rows[..., 0]
        if not np.all((index == np.floor(index)) & (np.abs(index) < 2**31)):
            raise ValueError(f"Report is outside the support: {self.mechanism.support}.")
        return Reports(index.astype(np.int32), np.ascontiguousarray(rows[..., 1]))

    def aggregate(self, rows: npt.NDArray[Any]) -> Aggregate:
        """Sum reports, refusing those that the mechanism cannot have sent."""
        made: Aggregate = self.mechanism.aggregate(self.reports(rows))
        return made

    @property
    def sums(self) -> int:
        """How many sums of each kind an aggregate has: one for each quantity, or for each kind of report."""
        weights = self.mechanism.readout.weights
        return len(self.quantities) if weights is None else int(weights.size)


@dataclass(frozen=True, eq=False)
class Together:
    """Several parts that every user answers, each with a budget of its own; the budgets add up."""

    parts: tuple[Part, ...]

    name = "together"

    @property
    def guarantee(self) -> Guarantee:
        """Return the guarantee of one user's whole answer, by composition."""
        each = [part.mechanism.guarantee for part in self.parts]
        return Guarantee(math.fsum(one.epsilon for one in each), math.fsum(one.delta for one in each))

    def spec(self) -> dict[str, Any]:
        """Return a JSON description."""
        return {"mechanism": self.name, "parts": [part.mechanism.spec() for part in self.parts]}


def grouped(attributes: Sequence[Attribute]) -> list[tuple[Attribute, ...]]:
    """Return the attributes that share a mechanism: all plain ones first, then each other one by itself."""
    plain = tuple(one for one in attributes if one.plain)
    return ([plain] if plain else []) + [(one,) for one in attributes if not one.plain]


def read_parts(attributes: Sequence[Attribute], spec: Any) -> tuple[Part, ...]:
    """Build the parts again from the description of their mechanisms."""
    asked = grouped(attributes)
    specs = spec.get("parts") if isinstance(spec, Mapping) and spec.get("mechanism") == Together.name else [spec]
    if not isinstance(specs, list) or len(specs) != len(asked):
        raise ValueError(f"Expected the mechanisms of {len(asked)} parts, got another number.")
    return tuple(Part(own, from_spec(one)) for own, one in zip(asked, specs, strict=True))


def domain_of(attributes: tuple[Attribute, ...]) -> Any:
    """Return the domain of one attribute, or of the record of several."""
    if len(attributes) == 1:
        return attributes[0].domain
    return Attributes(tuple(one.domain for one in attributes), names=tuple(one.name for one in attributes))


def flat(domain: TensorDomain) -> Box:
    """Return tensors as vectors of their entries, row by row."""
    return Box(math.prod(domain.dims), domain.low, domain.high)


def _inside(domain: Any) -> npt.NDArray[Any]:
    """Return some value of a domain."""
    if isinstance(domain, Categorical):
        return np.asarray(0)
    if isinstance(domain, Interval):
        return np.asarray((domain.low + domain.high) / 2)
    if hasattr(domain, "radius"):
        value = np.zeros(domain.shape)
        value.flat[0] = domain.radius
        return value
    middle = (np.asarray(domain.low) + np.asarray(domain.high)) / 2
    return np.broadcast_to(middle, domain.shape).astype(np.float64)
