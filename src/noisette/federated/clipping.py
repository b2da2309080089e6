"""Public bounds on an update, known before anybody looks at it: on its length, or on each layer.

A rule of clipping maps an update on the domain that a mechanism answers for, the unit ball, the unit sphere or
[-1, 1]^d, and reports back. The sensitivity of the mechanism is that of the domain: nobody states it a second time.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol

import numpy as np

from noisette import _validate
from noisette._validate import FloatArray
from noisette.domains import Box, Domain, L2Ball, Sphere
from noisette.federated.layout import ModelLayout
from noisette.mechanisms.vector.adaptive_duchi import adaptive_range

Shape = Literal["ball", "sphere", "box"]

_UNIT = 2.0**-53  # largest relative error of one rounding in float64
_MODERATE = (2.0**-400, 2.0**400)  # squares and quotients of numbers between them neither overflow nor vanish


class UpdateClip(Protocol):
    """A public bound on updates."""

    shape: ClassVar[Shape]

    def domain(self, layout: ModelLayout) -> Domain:
        """Return the domain that clipped updates are mapped on."""

    def inward(self, vector: FloatArray, layout: ModelLayout) -> float:
        """Clip a vector and map it on the domain, in place; return the share of it that clipping removed."""

    def outward(self, vector: FloatArray, layout: ModelLayout) -> FloatArray:
        """Map a report about the domain back to updates, in place."""

    def scale(self, layout: ModelLayout) -> FloatArray:
        """Return what one unit of the domain is in each layer."""

    def reach(self, layout: ModelLayout) -> float:
        """Return the largest length of a clipped update."""

    def spec(self) -> dict[str, Any]:
        """Return a JSON description that `clip_from` reads."""


@dataclass(frozen=True)
class Norm:
    """Updates of Euclidean length at most ``norm``; longer ones are shortened.

    What `inward` returns has length at most 1, exactly, for any finite update: the length is computed with an upper
    bound on the rounding of float64, and the factor leaves room for its own rounding.

    >>> update, layout = np.asarray([3.0, 4.0]), ModelLayout.of(np.zeros(2))
    >>> Norm(1.0).inward(update, layout), update.round(9).tolist()
    (0.8, [0.6, 0.8])
    """

    norm: float
    shape: ClassVar[Shape] = "ball"

    def __post_init__(self) -> None:
        object.__setattr__(self, "norm", _validate.positive(self.norm, "norm"))

    def domain(self, layout: ModelLayout) -> Domain:
        return L2Ball(layout.dims)

    def inward(self, vector: FloatArray, layout: ModelLayout) -> float:
        length, norm = _scaled(vector, self.norm)
        vector *= (1 - 8 * _UNIT) / max(length, norm, np.finfo(float).tiny)
        return 1 - norm / length if length > norm else 0.0

    def outward(self, vector: FloatArray, layout: ModelLayout) -> FloatArray:
        vector *= self.norm
        return vector

    def scale(self, layout: ModelLayout) -> FloatArray:
        return np.full(len(layout.sizes), self.norm)

    def reach(self, layout: ModelLayout) -> float:
        return self.norm

    def spec(self) -> dict[str, Any]:
        return {"clip": "norm", "norm": self.norm}


@dataclass(frozen=True)
class Length(Norm):
    """Updates scaled to Euclidean length exactly ``norm``, shorter ones too: only the direction is reported."""

    shape: ClassVar[Shape] = "sphere"

    def domain(self, layout: ModelLayout) -> Domain:
        return Sphere(layout.dims)

    def inward(self, vector: FloatArray, layout: ModelLayout) -> float:
        length, norm = _scaled(vector, self.norm)
        if not vector.any():  # no direction: a fixed one gives nothing away
            vector[:] = 1 / math.sqrt(vector.size)
            return 0.0
        vector *= 1 / length
        return max(0.0, 1 - norm / length)

    def spec(self) -> dict[str, Any]:
        return {"clip": "length", "norm": self.norm}


@dataclass(frozen=True)
class Ranges:
    """Weights of each layer in [centre - radius, centre + radius]; others are moved to the nearer end.

    One range stands for all layers. Updates longer than ``norm``, where it is given, are shortened first: `around_zero`
    is the clip of federated LDP-SGD, which needs both, as a short vector may still have a large entry.

    >>> Ranges.around_zero(norm=2.0, dims=100).radius
    (0.2,)
    """

    centre: tuple[float, ...]
    radius: tuple[float, ...]
    norm: float | None = None
    shape: ClassVar[Shape] = "box"

    def __post_init__(self) -> None:
        for name in ("centre", "radius"):
            given = getattr(self, name)
            numbers = given if isinstance(given, Sequence | np.ndarray) else (given,)
            object.__setattr__(self, name, tuple(_validate.number(float(number), name) for number in numbers))
        for number in self.radius:
            _validate.positive(number, "radius", remedy="A layer needs room for its weights.")
        if not all(map(math.isfinite, self.centre)):
            raise ValueError(f"Expected finite centres, got {self.centre}.")
        if len(self.centre) != len(self.radius):
            raise ValueError(f"Expected as many centres as radii, got {len(self.centre)} and {len(self.radius)}.")
        if self.norm is not None:
            object.__setattr__(self, "norm", _validate.positive(self.norm, "norm"))

    @classmethod
    def around_zero(cls, *, norm: float, dims: int) -> Ranges:
        """Return the range in which each weight of an even update of length ``norm`` is: +- norm / sqrt(dims)."""
        radius = _validate.positive(norm, "norm") / math.sqrt(_validate.integer(dims, "dims", low=1))
        return cls((0.0,), (radius,), norm)

    @classmethod
    def adapted(
        cls, layout: ModelLayout, noisy: FloatArray, last: Ranges, *, margin: float = 1.0, widest: float | None = None
    ) -> Ranges:
        """Return the ranges that the *noisy* weights of a round span, layer by layer, for the next round.

        The radius is ``margin`` times half of what they span: weights that are averaged never leave the range they
        were clipped to, so that with a margin of 1, as published, a range never grows. ``widest`` bounds the radius, as
        noise may run away. A layer whose weights are all equal keeps its last range.
        Sun, Qian, Chen 2021, Algorithm 1.
        """
        vector = _validate.reals(noisy, "noisy")
        centres, radii = (list(numbers) for numbers in last._of(layout))
        for number, (_, entries) in enumerate(layout.parts()):
            values = vector[entries]
            if values.size and float(values.min()) < float(values.max()):
                found = adaptive_range(values)
                centres[number], radii[number] = (found.low + found.high) / 2, margin * (found.high - found.low) / 2
                if widest is not None:
                    radii[number] = min(radii[number], widest)
        return cls(tuple(centres), tuple(radii), last.norm)

    def _of(self, layout: ModelLayout) -> tuple[FloatArray, FloatArray]:
        """Return centre and radius of each layer."""
        layers = len(layout.sizes)
        if len(self.radius) not in (1, layers):
            raise ValueError(f"Expected one range or one for each of {layers} layers, got {len(self.radius)}.")
        return np.broadcast_to(self.centre, layers), np.broadcast_to(self.radius, layers)

    def domain(self, layout: ModelLayout) -> Domain:
        return Box(layout.dims)

    def inward(self, vector: FloatArray, layout: ModelLayout) -> float:
        with np.errstate(all="ignore"):  # whatever a layer's ends are, its weights come to lie in [-1, 1]
            whole, taken = float(np.abs(vector).sum()), 0.0
            if self.norm is not None and (length := math.sqrt(np.einsum("i,i->", vector, vector))) > self.norm:
                vector *= self.norm / length
                taken = whole * (1 - self.norm / length)
            for (_, entries), centre, radius in zip(layout.parts(), *self._of(layout), strict=True):
                layer = vector[entries]
                layer -= centre
                layer /= radius
                if layer.size and not (layer.max() <= 1 and layer.min() >= -1):
                    taken += float(radius) * float(np.maximum(np.abs(layer) - 1, 0.0).sum())
                    layer[np.isnan(layer)] = 0.0
                    np.clip(layer, -1.0, 1.0, out=layer)
            return taken / whole if whole > 0 else 0.0

    def outward(self, vector: FloatArray, layout: ModelLayout) -> FloatArray:
        for (_, entries), centre, radius in zip(layout.parts(), *self._of(layout), strict=True):
            vector[entries] *= radius
            vector[entries] += centre
        return vector

    def scale(self, layout: ModelLayout) -> FloatArray:
        return np.asarray(self._of(layout)[1])

    def reach(self, layout: ModelLayout) -> float:
        corner = float(np.linalg.norm(layout.spread(self.scale(layout))))
        return corner if self.norm is None else min(corner, self.norm)

    def spec(self) -> dict[str, Any]:
        return {"clip": "ranges", "centre": list(self.centre), "radius": list(self.radius), "norm": self.norm}


def clip_from(spec: Mapping[str, Any]) -> Norm | Length | Ranges:
    """Read back a rule of clipping from its description."""
    kind = spec.get("clip")
    if kind == "norm":
        return Norm(spec["norm"])
    if kind == "length":
        return Length(spec["norm"])
    if kind == "ranges":
        return Ranges(tuple(spec["centre"]), tuple(spec["radius"]), spec.get("norm"))
    raise ValueError(f"Expected clip={kind!r} to be 'norm', 'length' or 'ranges'.")


def _scaled(vector: FloatArray, norm: float) -> tuple[float, float]:
    """Return an upper bound on the Euclidean length of a vector, and the norm, in a unit in which both are moderate.

    A vector that is too long or too short to be squared is multiplied by a power of two, in place, and so is the norm.
    In a sum of n squares, in whatever order it is taken, each term is rounded n times at most: up to n = 2^40 the sum
    is too small by less than n + 1 units of rounding, and its root by fewer. Squares that vanish are far below the
    others' rounding.
    """
    with np.errstate(all="ignore"):
        square = float(np.einsum("i,i->", vector, vector))  # one thread: many clients share a machine
        if not (_MODERATE[0] < square < _MODERATE[1] and _MODERATE[0] < norm < _MODERATE[1]):
            power = -int(np.frexp(np.abs(vector).max())[1])
            np.ldexp(vector, power, out=vector)
            norm = float(np.ldexp(norm, power))
            square = float(np.einsum("i,i->", vector, vector))
    return math.sqrt(square) * (1 + (vector.size + 8) * _UNIT), norm
