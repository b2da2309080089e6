"""Argument checks: one place, messages that show the value and the rule."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
_SHOWN_LABELS = 8  # in a message


def positive(value: float, name: str, *, remedy: str = "") -> float:
    """Return ``value`` as a finite float above zero."""
    result = number(value, name)
    if not (math.isfinite(result) and result > 0):
        raise ValueError(_join(f"Expected {name}={value!r} > 0 and finite.", remedy))
    return result


def epsilon(value: float, name: str = "epsilon") -> float:
    """Return a privacy budget: finite and above zero."""
    return positive(value, name, remedy="Typical budgets lie between 0.1 and 10.")


def delta(value: float, *, positive: bool = False) -> float:
    """Return a failure probability in [0, 1), or in (0, 1) where ``positive``."""
    result = number(value, "delta")
    if not 0 <= result < 1:
        raise ValueError(f"Expected delta={value!r} in [0, 1). Take it far below 1 / number of users, e.g. 1e-6.")
    if positive and result == 0:
        raise ValueError(
            f"Expected delta={value!r} > 0: Gaussian noise has no pure guarantee. "
            "Give a delta such as 1e-6, or use Laplace for delta = 0."
        )
    return result


def integer(value: int, name: str, *, low: int, high: int | None = None) -> int:
    """Return ``value`` as an int in [low, high]."""
    if isinstance(value, bool | np.bool_) or not isinstance(value, int | np.integer):
        raise TypeError(f"Expected {name}={value!r} to be an integer, got {type(value).__name__}.")
    if value < low or (high is not None and value > high):
        upper = "" if high is None else f" <= {high}"
        raise ValueError(f"Expected {low} <= {name}{upper}, got {name}={value!r}.")
    return int(value)


def reals(x: Any, name: str = "x") -> FloatArray:
    """Return ``x`` as a non-empty float64 array; a view where it already is one."""
    return np.asarray(numbers(x, name), dtype=np.float64)


def numbers(x: Any, name: str = "x") -> npt.NDArray[Any]:
    """Return ``x`` as a non-empty array of real numbers of whatever width it has."""
    if isinstance(x, np.ma.MaskedArray) and np.ma.is_masked(x):
        raise ValueError(f"Expected {name} without masked values. Remove or impute missing values first.")
    array = np.asarray(x)
    if array.dtype.kind not in "iuf":
        raise TypeError(
            f"Expected {name} to hold real numbers, got dtype {array.dtype}. Convert it first, e.g. with astype(float)."
        )
    if array.size == 0:
        raise ValueError(f"Expected at least one value in {name}, got an empty array of shape {array.shape}.")
    return array


def integers(x: Any, name: str = "x") -> IntArray:
    """Return ``x`` as a non-empty int64 array."""
    array = np.asarray(x)
    if array.dtype.kind not in "iu":
        raise TypeError(
            f"Expected {name} to hold integers, got dtype {array.dtype}. Encode labels as 0, 1, 2, ... first."
        )
    if array.size == 0:
        raise ValueError(f"Expected at least one value in {name}, got an empty array of shape {array.shape}.")
    return np.asarray(array, dtype=np.int64)


_SEVERAL_VALUES = (
    "Each value costs the whole budget, so several of one person need a share of it each. Take nz.Sampled for several "
    "numbers a person, nz.SampledAttributes for numbers and categories, or one mechanism a column, each with its part "
    "of epsilon."
)
_SEVERAL_ARRAYS = (
    "Each element costs the whole budget. Reshape it if all are of different people; if some are of one person, build "
    "the mechanism for all that a person has, or give each element its part of epsilon."
)


def people(x: Any, shape: tuple[int, ...], name: str = "x") -> Any:
    """Return what a mechanism takes: one element of this shape, or people along one axis before it.

    All but torch's own tensors becomes a plain array, so that the shape that is checked is that of the values.
    """
    if isinstance(x, np.ma.MaskedArray) and np.ma.is_masked(x):
        raise ValueError(f"Expected {name} without masked values. Remove or impute missing values first.")
    x = x.detach() if hasattr(x, "detach") else x
    try:
        x = x if _is_tensor(x) else np.asarray(x)
    except ValueError:
        raise ValueError(f"Expected {name} to be an array, got rows of different lengths.") from None
    trailing(x, shape, name)
    found = tuple(x.shape)
    if len(found) <= len(shape) + 1:
        return x
    one = f"array of shape {shape}" if shape else "value"
    many = ", ".join(["people", *map(str, shape)]) if shape else "people,"
    remedy = _SEVERAL_ARRAYS if shape else _SEVERAL_VALUES
    if not shape and found[1:] == (1,):
        remedy = "Take the only column itself, as in x[:, 0] or frame['age']."
    raise ValueError(f"Expected one {one} a person, {name} of shape {shape} or ({many}), got {found}. {remedy}")


def _is_tensor(x: Any) -> bool:
    """Tell whether ``x`` is torch's own tensor, and of no other class that may state another shape."""
    torch = sys.modules.get("torch")
    return torch is not None and type(x) is torch.Tensor


def trailing(array: Any, shape: tuple[int, ...], name: str) -> None:
    """Check that the last axes of ``array`` are ``shape``."""
    found = tuple(array.shape)
    if len(found) < len(shape) or found[len(found) - len(shape) :] != shape:
        wanted = ", ".join(["...", *map(str, shape)])
        raise ValueError(f"Expected {name} of shape ({wanted}), got {found}.")


def number(value: float, name: str) -> float:
    """Return a plain float, refusing what is not a number."""
    if isinstance(value, bool | np.bool_) or not isinstance(value, int | float | np.integer | np.floating):
        raise TypeError(f"Expected {name}={value!r} to be a number, got {type(value).__name__}.")
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def few(labels: Sequence[str], *, quoted: bool = False) -> str:
    """Return the first labels for a message: there may be millions.

    >>> few("abcdefghij"), few(["no", "yes"], quoted=True)
    ('a, b, c, d, e, f, g, h and 2 more', "'no', 'yes'")
    """
    shown, rest = labels[:_SHOWN_LABELS], len(labels) - _SHOWN_LABELS
    return ", ".join(map(repr, shown) if quoted else shown) + (f" and {rest:,} more" if rest > 0 else "")


def _join(message: str, remedy: str) -> str:
    return f"{message} {remedy}".rstrip()
