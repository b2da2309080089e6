"""Which tensors are neighbours, and how far apart they can be once the noise is made white."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from noisette._validate import FloatArray
from noisette.domains import TensorBall, TensorDomain
from noisette.guarantees import Model, Relation, Unit
from noisette.mechanisms.tensor._signs import Reach
from noisette.mechanisms.tensor.modes import Mode

FORMS = "'any-pair', 'slice:MODE', 'fibre:MODE', 'element', 'l2:DISTANCE' or 'box:WIDTH'"


@dataclass(frozen=True)
class Neighbours:
    """Tensors that differ in one block only: an index of each of ``fixed`` modes, everything along the others.

    Within the block they differ by at most ``width`` in every entry, or by at most ``distance`` in Frobenius norm,
    whichever is given.
    """

    shape: tuple[int, ...]
    fixed: tuple[int, ...] = ()
    width: float | None = None
    distance: float | None = None
    unit: Unit = "record"
    model: Model = "central"
    relation: Relation = "replace"

    @classmethod
    def read(cls, text: Any, domain: TensorDomain | TensorBall) -> Neighbours:
        """Read a relation as a user writes it."""
        if not isinstance(text, str):
            raise TypeError(f"Expected relation={text!r} to be a text: {FORMS}.")
        word, _, detail = text.partition(":")
        shape, order = domain.dims, len(domain.dims)
        if word in ("l2", "box"):
            size = _number(text, detail)
            return cls(shape, **{"distance" if word == "l2" else "width": size})  # type: ignore[arg-type]
        if word in ("slice", "fibre"):
            mode = _mode(text, detail, order)
            others = tuple(k for k in range(order) if k != mode)
            return cls._within(domain, (mode,) if word == "slice" else others)
        if text == "element":
            return cls._within(domain, tuple(range(order)), unit="element")
        if text == "any-pair":
            return cls._within(domain, (), model="local", relation="any-pair")
        raise ValueError(f"Expected relation={text!r} to be {FORMS}.")

    @classmethod
    def _within(cls, domain: TensorDomain | TensorBall, fixed: tuple[int, ...], **names: Any) -> Neighbours:
        """Return neighbours in the domain that differ in one block."""
        if isinstance(domain, TensorDomain):
            return cls(domain.dims, fixed, width=domain.high - domain.low, **names)
        distance = domain.diameter if domain.mode not in fixed else 2 * domain.radius
        slack = 2e-12 + math.prod(domain.dims) * 2.0**-53  # by which a norm that float64 adds up may pass the radius
        return cls(domain.dims, fixed, distance=distance * (1 + slack), **names)

    @property
    def free(self) -> tuple[int, ...]:
        """Modes along which neighbours may differ anywhere."""
        return tuple(k for k in range(len(self.shape)) if k not in self.fixed)

    @property
    def entries(self) -> int:
        """Entries in which neighbours may differ."""
        return math.prod(self.shape[k] for k in self.free)

    @property
    def l2(self) -> float:
        """Largest Frobenius distance of neighbours."""
        if self.distance is not None:
            return self.distance
        assert self.width is not None
        return self.width * math.sqrt(self.entries)

    def white(self, modes: Sequence[Mode]) -> tuple[float, bool]:
        """Return the largest |difference x_1 U_1^-1 ... x_N U_N^-1| from above, and whether it is attained.

        A difference in one block is a product of unit vectors along the fixed modes and a tensor along the free ones,
        and so is its whitened norm. An l2 ball reaches as far as the spectral norms. A box is maximised at signs: a
        mode with diagonal covariance contributes the trace of its inverse; one with full covariance the largest
        s' Sigma^-1 s, bounded where that is not known, and so are several of them.
        """
        square = math.prod(modes[k].largest for k in self.fixed)
        if self.distance is not None:
            square *= self.distance**2 * math.prod(modes[k].spectral for k in self.free)
            return math.sqrt(square) * (1 + 1e-15 * len(modes)), True
        assert self.width is not None
        reaches = [modes[k].reach for k in self.free]
        attained = all(reach.exact for reach in reaches) and self._separate(modes, reaches)
        square *= self.width**2 * math.prod(reach.upper for reach in reaches)
        return math.sqrt(square) * (1 + 1e-15 * len(modes)), attained

    def worst(self, modes: Sequence[Mode]) -> FloatArray:
        """Return a difference that reaches farthest among those known."""
        vectors = []
        for number, mode in enumerate(modes):
            if number in self.fixed:
                vectors.append(np.eye(mode.size)[_largest_column(mode)])
            elif self.distance is None:
                vectors.append(mode.reach.signs)
            else:
                vectors.append(_top_vector(mode))
        result = np.ones(())
        for vector in vectors:
            result = np.multiply.outer(result, vector)
        size = self.distance / float(np.linalg.norm(result)) if self.distance is not None else self.width
        return np.asarray(np.multiply(result, size))  # type: ignore[arg-type]  # one of the two is given

    def _separate(self, modes: Sequence[Mode], reaches: Sequence[Reach]) -> bool:
        """Tell whether signs that are best along each mode are best together.

        They are if at most one of the modes has correlated noise; or if the best signs leave no negative entry in any
        inverse, since they then attain the sum of all absolute entries.
        """
        full = [(modes[k], reach) for k, reach in zip(self.free, reaches, strict=True) if modes[k].full]
        attained = [float(np.abs(mode.precision).sum()) <= reach.lower * (1 + 1e-9) for mode, reach in full]
        return len(full) <= 1 or all(attained)


def _largest_column(mode: Mode) -> int:
    """Return the index at which the diagonal of Sigma^-1 is largest."""
    diagonal = np.square(mode.whitener).sum(axis=0) if mode.full else mode.precision
    return int(np.argmax(diagonal))


def _top_vector(mode: Mode) -> FloatArray:
    """Return the direction in which the noise is least."""
    if mode.covariance is None:
        return np.full(mode.size, 1 / math.sqrt(mode.size))
    if not mode.full:
        return np.asarray(np.eye(mode.size)[int(np.argmax(mode.precision))])
    return np.asarray(np.linalg.eigh(mode.precision)[1][:, -1])


def _number(text: str, detail: str) -> float:
    """Read a positive number after the colon."""
    try:
        value = float(detail)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise ValueError(f"Expected relation={text!r} to end in a number above 0, e.g. 'l2:1.0'.")
    return value


def _mode(text: str, detail: str, order: int) -> int:
    """Read the number of a mode after the colon."""
    if not detail.isdigit() or int(detail) >= order:
        raise ValueError(f"Expected relation={text!r} to end in a mode from 0 to {order - 1}, e.g. 'slice:0'.")
    return int(detail)
