"""What the mechanisms for tensors share: lattices, numpy and torch alike, symmetric modes, merged covariances."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import permutations, product
from typing import Any

import numpy as np
import numpy.typing as npt

from noisette import _validate
from noisette._validate import FloatArray
from noisette.domains import BoolArray
from noisette.mechanisms.tensor.gaussian.modes import Mode
from noisette.mechanisms.tensor.gaussian.neighbours import Neighbours

_MERGED = 4096  # largest mode that is made of several


@dataclass(frozen=True)
class TensorLattice:
    """Tensors of one shape whose entries are origin + step k for integers k."""

    shape: tuple[int, ...]
    origin: float
    step: float

    def __str__(self) -> str:
        return f"tensors of shape {self.shape}, entries {self.origin:g} + {self.step:g} k"

    def nearest(self, values: FloatArray) -> FloatArray:
        """Return the nearest tensors of the lattice."""
        return np.asarray(self.origin + self.step * np.rint((values - self.origin) / self.step))

    def contains(self, reports: npt.NDArray[Any]) -> BoolArray:
        """Tell which tensors lie on the lattice, or are as near to it as float32 can hold."""
        values = np.asarray(reports, dtype=np.float64)
        with np.errstate(invalid="ignore", over="ignore"):
            nearest = self.nearest(values)
            same = np.isfinite(values) & ((nearest == values) | (nearest.astype(np.float32) == values))
        return np.asarray(same.all(axis=tuple(range(-len(self.shape), 0))))


def opened(x: Any, out: Any) -> tuple[npt.NDArray[Any], npt.NDArray[Any], Callable[[npt.NDArray[Any]], Any]]:
    """Return ``x`` as an array, the array that takes the result, and what turns that into the kind that ``x`` was."""
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(x, torch.Tensor):
        values = np.ascontiguousarray(_validate.numbers(x)) if np.ndim(x) else _validate.numbers(x)
        dtype = values.dtype if values.dtype.kind == "f" else np.dtype(np.float64)
        return values, _target(out, values.shape, dtype), lambda result: result if out is None else out
    host = x.detach().cpu()
    narrow = host.dtype in (torch.float16, torch.bfloat16)
    values = np.ascontiguousarray(_validate.numbers((host.float() if narrow else host).numpy()))
    dtype = values.dtype if values.dtype.kind == "f" else np.dtype(np.float64)
    kept = x.dtype if x.dtype.is_floating_point else torch.float64
    if out is None:
        return values, _target(None, values.shape, dtype), lambda r: torch.from_numpy(r).to(x.device, kept)
    if not isinstance(out, torch.Tensor) or out.device.type != "cpu" or out.dtype not in (torch.float32, torch.float64):
        raise TypeError("Expected out to be a float32 or float64 torch tensor on the cpu, like x.")
    return values, _target(out.detach().numpy(), values.shape, dtype), lambda result: out


def _target(out: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """Return the array that takes the result."""
    if out is None:
        return np.empty(shape, dtype)
    if not isinstance(out, np.ndarray) or out.dtype.kind != "f" or not (out.flags.c_contiguous and out.flags.writeable):
        raise TypeError("Expected out to be a writeable, contiguous array of floats.")
    if out.shape != shape:
        raise ValueError(f"Expected out of shape {shape}, like x, got {out.shape}.")
    return out


def groups(given: Any, modes: Sequence[Mode], neighbours: Neighbours) -> tuple[tuple[int, ...], ...]:
    """Check groups of modes that may be permuted."""
    found = tuple(tuple(_validate.integer(k, "symmetry", low=0, high=len(modes) - 1) for k in group) for group in given)
    named = [k for group in found for k in group]
    if len(set(named)) != len(named) or any(len(group) < 2 for group in found):
        raise ValueError(f"Expected symmetry={given!r} to hold groups of two modes or more, no mode twice.")
    for group in found:
        if any(modes[k] != modes[group[0]] for k in group):
            raise ValueError(f"Expected modes {group} of one size and one covariance to be symmetric in them.")
    if found and neighbours.fixed:
        raise ValueError(
            "Expected relation 'any-pair', 'l2:...' or 'box:...' with a symmetry: a slice of a symmetric tensor cannot "
            "change alone."
        )
    return found


def permutations_of(symmetry: Sequence[tuple[int, ...]], order: int) -> Iterator[tuple[int, ...]]:
    """Return every permutation of the modes that permutes each group within itself."""
    for choice in product(*(permutations(group) for group in symmetry)):
        turn = list(range(order))
        for group, image in zip(symmetry, choice, strict=True):
            for source, place in zip(group, image, strict=True):
                turn[source] = place
        yield tuple(turn)


def average(values: FloatArray, symmetry: Sequence[tuple[int, ...]], order: int) -> None:
    """Replace tensors by their mean over the permutations of each group of modes, in place."""
    lead = values.ndim - order
    total, count = np.zeros_like(values), 0
    for turn in permutations_of(symmetry, order):
        total += values.transpose(*range(lead), *(lead + k for k in turn))
        count += 1
    np.divide(total, count, out=values)


def regroup(modes: Sequence[Mode], dims: Sequence[int]) -> tuple[Any, ...]:
    """Return the covariances of the same noise for other modes, entries in row-major order."""
    if math.prod(mode.size for mode in modes) != math.prod(dims):
        raise ValueError(f"Expected a shape of {math.prod(m.size for m in modes)} entries, got {tuple(dims)}.")
    result: list[Any] = []
    old, new = list(modes), list(dims)
    while old:
        ours, theirs = [old.pop(0)], [new.pop(0)]
        while math.prod(mode.size for mode in ours) != math.prod(theirs):
            if math.prod(mode.size for mode in ours) < math.prod(theirs):
                ours.append(old.pop(0))
            else:
                theirs.append(new.pop(0))
        if all(mode.covariance is None for mode in ours):
            result += [None] * len(theirs)
        elif len(theirs) == 1 and theirs[0] <= _MERGED:
            result.append(_merged(ours))
        else:
            raise ValueError(
                f"Modes of sizes {[mode.size for mode in ours]} cannot become {theirs}: their noise is correlated, and "
                f"only modes of identity covariance are split, and merged ones have {_MERGED} indices at most. "
                "Reshape the tensor before privatising it."
            )
    if any(size != 1 for size in new):
        raise ValueError(f"Expected sizes of modes above 0, got {tuple(dims)}.")
    return (*result, *([None] * len(new)))


def _merged(modes: Sequence[Mode]) -> FloatArray:
    """Return the covariance of several modes taken as one."""
    full = any(mode.full for mode in modes)
    result: FloatArray = np.ones((1, 1) if full else 1)
    for mode in modes:
        entry = mode.variances if mode.covariance is None or not mode.full else mode.covariance
        result = np.asarray(np.kron(result, np.diag(entry) if full and entry.ndim == 1 else entry), dtype=np.float64)
    return result
