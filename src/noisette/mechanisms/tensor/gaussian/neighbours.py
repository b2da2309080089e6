"""Which tensors are neighbours, and how far apart they can be in units of the noise."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from noisette._validate import FloatArray
from noisette.domains import TensorBall, TensorDomain
from noisette.guarantees import Model, Relation, Unit
from noisette.mechanisms.tensor.gaussian._signs import Reach, largest_joint_form
from noisette.mechanisms.tensor.gaussian.modes import Mode

_LEAST, _MOST = 1e-100, 1e100  # float64 holds cubes of noise from one to the other
FORMS = "'any-pair', 'slice:MODE', 'fibre:MODE', 'element', 'l2:DISTANCE' or 'box:WIDTH'"


@dataclass(frozen=True)
class Neighbours:
    """Tensors that differ in one block only: an index of each of ``fixed`` modes, everything along the others.

    Within the block they differ by at most ``width`` in every entry, or by at most ``distance`` in Frobenius norm,
    whichever is given. Where ``slices`` names a free mode, each of the n slices along it differs by at most
    ``distance`` / sqrt(n).
    """

    shape: tuple[int, ...]
    fixed: tuple[int, ...] = ()
    width: float | None = None
    distance: float | None = None
    unit: Unit = "record"
    model: Model = "central"
    relation: Relation = "replace"
    slices: int | None = None

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
        slices = None if domain.mode in fixed else domain.mode
        distance = domain.diameter if domain.mode not in fixed else 2 * domain.radius
        slack = 2e-12 + math.prod(domain.dims) * 2.0**-53  # by which a norm that float64 adds up may pass the radius
        return cls(domain.dims, fixed, distance=distance * (1 + slack), slices=slices, **names)

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
        and so is its whitened norm. For an l2 ball the norm is at most the product of the spectral norms; with a bound
        on each slice it may be less along the mode of the slices. For a box it is largest at signs: a mode with a
        diagonal covariance contributes the trace of its inverse, and those with full covariances contribute what
        `largest_joint_form` proves for all of them together. Each factor is rounded up, by more than the error of
        float64.
        """
        up = 1 + 2.0**-48 * (len(modes) + 2)  # for the products below, and for the width or distance itself
        squares, attained = [modes[k].largest for k in self.fixed], True
        if self.distance is not None:
            squares += [modes[k].spectral for k in self.free if k != self.slices]
            if self.slices is not None:
                mode = modes[self.slices]
                each = min(mode.spectral, mode.reach.weight / mode.size)
                squares.append(each)
                attained = each * mode.size <= mode.reach.lower * (1 + 1e-9)
        else:
            joint = self._joint(modes)
            squares += [*(modes[k].reach.upper for k in self.free if not modes[k].full), joint.upper]
            attained = joint.exact
        length = self.width if self.distance is None else self.distance
        assert length is not None
        # roots first: squares of small factors would vanish, and the noise with them
        reach = length * math.prod(map(math.sqrt, squares)) * up
        if not _LEAST <= reach <= _MOST:
            raise ValueError(
                f"Expected neighbours that are {_LEAST:g} to {_MOST:g} apart once the noise is white, got {reach:g}. "
                "Rescale the values, or the covariances: only their shape counts."
            )
        return reach, attained

    def worst(self, modes: Sequence[Mode]) -> FloatArray:
        """Return the longest whitened difference of neighbours that is known."""
        result = np.ones(())
        for number, mode in enumerate(modes):
            if number in self.fixed:
                vector = np.eye(mode.size)[_largest_column(mode)]
            elif self.width is not None:
                vector = np.ones(mode.size)
            else:
                vector = mode.reach.signs if number == self.slices else _top_vector(mode)
            result = np.multiply.outer(result, vector)
        if self.distance is not None:
            return np.asarray(result * (self.distance / float(np.linalg.norm(result))))
        assert self.width is not None
        full = [k for k in self.free if modes[k].full]
        return np.asarray(
            self.width
            * result
            * np.expand_dims(self._joint(modes).signs, [k for k in range(len(modes)) if k not in full])
        )

    def _joint(self, modes: Sequence[Mode]) -> Reach:
        """Return the bound for signs along the free modes with full covariance."""
        full = [modes[k] for k in self.free if modes[k].full]
        if not full:
            return Reach(1.0, 1.0, np.ones(()), 1.0)
        return largest_joint_form([mode.precision for mode in full], [mode.reach for mode in full])


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
