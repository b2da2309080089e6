"""Where private values live: every sensitivity in the library is derived from one of these."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from noisette import _validate
from noisette._validate import FloatArray

BoolArray = npt.NDArray[np.bool_]


@runtime_checkable
class Domain(Protocol):
    """A public set of admissible inputs."""

    kind: ClassVar[str]

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one element: () for a scalar."""

    @property
    def diameter(self) -> float:
        """Largest Euclidean distance of two elements."""

    def contains(self, x: Any) -> BoolArray:
        """Tell, for each element along the leading axes, whether it belongs."""

    def clip(self, x: Any) -> npt.NDArray[Any]:
        """Return the nearest elements of the domain."""

    def spec(self) -> dict[str, Any]:
        """Return a JSON description that `from_spec` reads back."""


class _Spec:
    """Shared JSON description: the kind and the dataclass's own fields."""

    kind: ClassVar[str]

    def spec(self) -> dict[str, Any]:
        """Return a JSON description that `from_spec` reads back."""
        return {"kind": self.kind} | {f.name: getattr(self, f.name) for f in fields(self)}  # type: ignore[arg-type]


@dataclass(frozen=True)
class Interval(_Spec):
    """Real numbers from ``low`` to ``high``.

    >>> Interval(0, 100).to_canonical([0, 75])
    array([-1. ,  0.5])
    """

    low: float = -1.0
    high: float = 1.0
    kind: ClassVar[str] = "interval"

    def __post_init__(self) -> None:
        low, high = _bounds(self.low, self.high)
        object.__setattr__(self, "low", low)
        object.__setattr__(self, "high", high)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one element."""
        return ()

    @property
    def diameter(self) -> float:
        """Length of the interval."""
        return self.high - self.low

    def contains(self, x: Any) -> BoolArray:
        """Tell which values lie inside; NaN does not."""
        values = _validate.reals(x)
        return (values >= self.low) & (values <= self.high)

    def clip(self, x: Any) -> FloatArray:
        """Move values outside to the nearer end."""
        return np.clip(_validate.reals(x), self.low, self.high)

    def to_canonical(self, x: Any) -> FloatArray:
        """Map the interval on [-1, 1]."""
        return _to_canonical(_validate.reals(x), self.low, self.high)

    def from_canonical(self, x: Any) -> FloatArray:
        """Map [-1, 1] on the interval."""
        return _from_canonical(_validate.reals(x), self.low, self.high)


@dataclass(frozen=True)
class Grid(_Spec):
    """The numbers low, low + step, ..., high.

    >>> Grid(0, 10).size
    11
    """

    low: float
    high: float
    step: float = 1.0
    kind: ClassVar[str] = "grid"

    def __post_init__(self) -> None:
        low, high = _bounds(self.low, self.high)
        step = _validate.positive(self.step, "step")
        count = (high - low) / step
        if not 0.5 <= count < 2**52 or abs(count - round(count)) > _grid_tolerance(low, high, step):
            raise ValueError(f"Expected step={step} to divide high - low = {high - low}, at most 2^52 times.")
        for name, value in (("low", low), ("high", high), ("step", step)):
            object.__setattr__(self, name, value)

    @property
    def size(self) -> int:
        """Number of points."""
        return round((self.high - self.low) / self.step) + 1

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one element."""
        return ()

    @property
    def diameter(self) -> float:
        """Distance of the ends."""
        return self.high - self.low

    def index(self, x: Any) -> FloatArray:
        """Return the position of the nearest point, counted from ``low``."""
        return np.rint((_validate.reals(x) - self.low) / self.step)

    def contains(self, x: Any) -> BoolArray:
        """Tell which values are points of the grid, up to rounding of the last bits."""
        values = _validate.reals(x)
        with np.errstate(invalid="ignore"):
            position = (values - self.low) / self.step
            near = np.abs(position - np.rint(position)) <= _grid_tolerance(self.low, self.high, self.step)
        return near & (position > -0.5) & (position < self.size - 0.5)

    def clip(self, x: Any) -> FloatArray:
        """Return the nearest points."""
        return self.low + self.step * np.clip(self.index(x), 0, self.size - 1)


@dataclass(frozen=True)
class Box(_Spec):
    """Vectors whose entries lie in intervals of their own.

    >>> Box(3).diameter == 2 * 3**0.5
    True
    """

    dims: int
    low: float | tuple[float, ...] = -1.0
    high: float | tuple[float, ...] = 1.0
    kind: ClassVar[str] = "box"

    def __post_init__(self) -> None:
        dims = _validate.integer(self.dims, "dims", low=1)
        low, high = (self._side(side, dims) for side in (self.low, self.high))
        if not (np.all(np.isfinite(low)) and np.all(np.isfinite(high)) and np.all(low < high)):
            raise ValueError(f"Expected finite low < high in every dimension, got low={self.low}, high={self.high}.")
        object.__setattr__(self, "dims", dims)
        for name, side in (("low", self.low), ("high", self.high)):
            values = np.asarray(side, dtype=float)
            plain = float(values) if values.ndim == 0 else tuple(values.tolist())
            object.__setattr__(self, name, plain)

    @staticmethod
    def _side(side: Any, dims: int) -> FloatArray:
        """Return one bound as a scalar or a vector of ``dims`` numbers."""
        values = _validate.reals(side, "bound")
        if values.ndim > 1 or values.size not in (1, dims):
            raise ValueError(f"Expected one bound or {dims} of them, got {values.size}.")
        return values

    @property
    def lows(self) -> FloatArray:
        """Lower bound of each dimension."""
        return np.broadcast_to(np.asarray(self.low), (self.dims,))

    @property
    def highs(self) -> FloatArray:
        """Upper bound of each dimension."""
        return np.broadcast_to(np.asarray(self.high), (self.dims,))

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one element."""
        return (self.dims,)

    @property
    def diameter(self) -> float:
        """Length of the diagonal."""
        return float(np.linalg.norm(self.highs - self.lows))

    def contains(self, x: Any) -> BoolArray:
        """Tell which vectors lie inside."""
        values = _validate.reals(x)
        _validate.trailing(values, self.shape, "x")
        return np.asarray(((values >= self.low) & (values <= self.high)).all(axis=-1))

    def clip(self, x: Any) -> FloatArray:
        """Move entries outside to the nearer bound."""
        values = _validate.reals(x)
        _validate.trailing(values, self.shape, "x")
        return np.clip(values, self.low, self.high)

    def to_canonical(self, x: Any) -> FloatArray:
        """Map every dimension on [-1, 1]."""
        return _to_canonical(_validate.reals(x), np.asarray(self.low), np.asarray(self.high))

    def from_canonical(self, x: Any) -> FloatArray:
        """Map [-1, 1] back on every dimension."""
        return _from_canonical(_validate.reals(x), np.asarray(self.low), np.asarray(self.high))


@dataclass(frozen=True)
class L2Ball(_Spec):
    """Vectors of Euclidean length at most ``radius``."""

    dims: int
    radius: float = 1.0
    kind: ClassVar[str] = "l2-ball"

    def __post_init__(self) -> None:
        object.__setattr__(self, "dims", _validate.integer(self.dims, "dims", low=1))
        object.__setattr__(self, "radius", _validate.positive(self.radius, "radius"))

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one element."""
        return (self.dims,)

    @property
    def diameter(self) -> float:
        """Twice the radius."""
        return 2 * self.radius

    def contains(self, x: Any) -> BoolArray:
        """Tell which vectors are short enough, up to rounding of the last bits."""
        values = _validate.reals(x)
        _validate.trailing(values, self.shape, "x")
        return np.asarray(np.linalg.norm(values, axis=-1) <= self.radius * (1 + 1e-12))

    def clip(self, x: Any) -> FloatArray:
        """Shorten vectors that are too long."""
        values = _validate.reals(x)
        _validate.trailing(values, self.shape, "x")
        largest = np.maximum(np.abs(values).max(axis=-1, keepdims=True), np.finfo(float).tiny)
        scaled = values / largest  # so that no square overflows
        norm = np.maximum(np.linalg.norm(scaled, axis=-1, keepdims=True), np.finfo(float).tiny)
        fits = norm <= self.radius / largest
        return np.where(fits, values, scaled * (self.radius / norm))


@dataclass(frozen=True)
class Sphere(L2Ball):
    """Vectors of Euclidean length exactly ``radius``."""

    kind: ClassVar[str] = "sphere"

    def contains(self, x: Any) -> BoolArray:
        """Tell which vectors have the right length, up to a relative 1e-6."""
        values = _validate.reals(x)
        _validate.trailing(values, self.shape, "x")
        return np.asarray(np.abs(np.linalg.norm(values, axis=-1) - self.radius) <= 1e-6 * self.radius)

    def clip(self, x: Any) -> FloatArray:
        """Rescale vectors to the right length; the zero vector has no direction and is refused."""
        values = _validate.reals(x)
        _validate.trailing(values, self.shape, "x")
        norm = np.linalg.norm(values, axis=-1, keepdims=True)
        if not np.all(norm > 0):
            raise ValueError(
                "Expected vectors of length > 0: a zero vector has no direction. "
                "Use an L2Ball domain for lengths below the radius."
            )
        return np.asarray(values * (self.radius / norm))


@dataclass(frozen=True)
class Categorical(_Spec):
    """The categories 0, 1, ..., size - 1, with names if you like.

    >>> Categorical(labels=("no", "yes")).encode(["yes", "no"])
    array([1, 0])
    """

    size: int = 0
    labels: tuple[str, ...] | None = None
    kind: ClassVar[str] = "categorical"

    def __post_init__(self) -> None:
        if self.labels is not None:
            labels = tuple(map(str, self.labels))
            if len(set(labels)) != len(labels):
                raise ValueError(f"Expected distinct labels, got {labels}.")
            if self.size not in (0, len(labels)):
                raise ValueError(f"Expected size={self.size} to equal the number of labels, {len(labels)}.")
            object.__setattr__(self, "labels", labels)
            object.__setattr__(self, "size", len(labels))
        object.__setattr__(self, "size", _validate.integer(self.size, "size", low=2))

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one element."""
        return ()

    @property
    def diameter(self) -> float:
        """Distance of two different categories seen as unit vectors."""
        return math.sqrt(2)

    def contains(self, x: Any) -> BoolArray:
        """Tell which codes name a category."""
        codes = _validate.integers(x)
        return (codes >= 0) & (codes < self.size)

    def clip(self, x: Any) -> npt.NDArray[Any]:
        """Refuse: there is no nearest category."""
        if np.all(self.contains(x)):
            return _validate.integers(x)
        raise ValueError(
            "Categories cannot be clipped: there is no nearest one. "
            "Map unknown values to a category of their own, such as 'other'."
        )

    def encode(self, values: Any) -> npt.NDArray[np.int64]:
        """Turn labels into codes."""
        if self.labels is None:
            raise ValueError(
                "Expected labels to encode by name; this domain has none. Build it as Categorical(labels=[...])."
            )
        codes = {label: code for code, label in enumerate(self.labels)}
        names, inverse = np.unique(np.asarray(values).astype(str), return_inverse=True)
        unknown = [name for name in names.tolist() if name not in codes]
        if unknown:
            raise ValueError(f"Unknown category {unknown[0]!r}; expected one of {list(self.labels)}.")
        return np.asarray([codes[name] for name in names.tolist()], dtype=np.int64)[inverse]


@dataclass(frozen=True)
class TensorDomain(_Spec):
    """Tensors of one shape with every entry in [low, high]."""

    dims: tuple[int, ...] = field()
    low: float = -1.0
    high: float = 1.0
    kind: ClassVar[str] = "tensor"

    def __post_init__(self) -> None:
        shape = _tensor_shape(self.dims)
        low, high = _bounds(self.low, self.high)
        for name, value in (("dims", shape), ("low", low), ("high", high)):
            object.__setattr__(self, name, value)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one element."""
        return self.dims

    @property
    def diameter(self) -> float:
        """Largest Frobenius distance."""
        return float((self.high - self.low) * np.sqrt(np.prod(np.asarray(self.dims, dtype=float))))

    def contains(self, x: Any) -> BoolArray:
        """Tell which tensors lie inside."""
        values = _validate.reals(x)
        _validate.trailing(values, self.dims, "x")
        axes = tuple(range(values.ndim - len(self.dims), values.ndim))
        inside: BoolArray = np.asarray(((values >= self.low) & (values <= self.high)).all(axis=axes))
        return inside

    def clip(self, x: Any) -> FloatArray:
        """Move entries outside to the nearer bound."""
        values = _validate.reals(x)
        _validate.trailing(values, self.dims, "x")
        return np.clip(values, self.low, self.high)


@dataclass(frozen=True)
class Attributes(_Spec):
    """Records of several attributes, each a number of an `Interval` or a code of a `Categorical`, in one row.

    A whole number stands for so many categories. ``names`` are those of the attributes.

    >>> people = Attributes((Interval(0, 120), 2, Categorical(labels=("red", "green"))), names=("age", "sex", "colour"))
    >>> people.quantities
    ('age', 'sex=0', 'sex=1', 'colour=red', 'colour=green')
    """

    parts: tuple[Any, ...]
    names: tuple[str, ...] | None = None
    kind: ClassVar[str] = "attributes"

    def __post_init__(self) -> None:
        parts = tuple(self._part(part) for part in self.parts)
        if not parts:
            raise ValueError("Expected at least one attribute, got none.")
        object.__setattr__(self, "parts", parts)
        if self.names is not None:
            names = tuple(map(str, self.names))
            if len(set(names)) != len(parts):
                raise ValueError(f"Expected {len(parts)} distinct names of attributes, got {names}.")
            object.__setattr__(self, "names", names)

    @staticmethod
    def _part(part: Any) -> Interval | Categorical:
        """Return one attribute's domain."""
        if isinstance(part, Mapping):
            part = from_spec(part)
        elif isinstance(part, int | np.integer) and not isinstance(part, bool):
            part = Categorical(int(part))
        if not isinstance(part, Interval | Categorical):
            raise TypeError(f"Expected each attribute to be an Interval, a Categorical or a size, got {part!r}.")
        return part

    def spec(self) -> dict[str, Any]:
        """Return a JSON description that `from_spec` reads back."""
        return {"kind": self.kind, "parts": [part.spec() for part in self.parts], "names": self.names}

    @property
    def dims(self) -> int:
        """Number of attributes."""
        return len(self.parts)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one element."""
        return (self.dims,)

    @property
    def diameter(self) -> float:
        """Largest distance of two records, a category seen as a unit vector."""
        return math.sqrt(sum(part.diameter**2 for part in self.parts))

    @cached_property
    def groups(self) -> tuple[int, ...]:
        """How many quantities an estimate has for each attribute: 1 for a mean, else one for each category."""
        return tuple(part.size if isinstance(part, Categorical) else 1 for part in self.parts)

    @cached_property
    def distinct(self) -> tuple[tuple[Any, ...], npt.NDArray[np.int64]]:
        """Domains without repetition, and which of them each attribute has."""
        places: dict[Any, int] = {}
        index = [places.setdefault(part, len(places)) for part in self.parts]
        return tuple(places), np.asarray(index, dtype=np.int64)

    @cached_property
    def quantities(self) -> tuple[str, ...]:
        """Names of the means and frequencies that are estimated."""
        names = map(str, range(self.dims)) if self.names is None else self.names
        found: list[str] = []
        for name, part in zip(names, self.parts, strict=True):
            labels = [name] if isinstance(part, Interval) else map(str, part.labels or range(part.size))
            found += labels if isinstance(part, Interval) else (f"{name}={label}" for label in labels)
        return tuple(found)

    @cached_property
    def categorical(self) -> BoolArray:
        """Tell which attributes are categories."""
        return np.asarray([isinstance(part, Categorical) for part in self.parts])

    @cached_property
    def bounds(self) -> tuple[FloatArray, FloatArray]:
        """Least and largest number, or code, of each attribute."""
        ends = [
            (0.0, part.size - 1.0) if isinstance(part, Categorical) else (part.low, part.high) for part in self.parts
        ]
        low, high = np.asarray(ends).T
        return low, high

    def outside(self, x: Any) -> BoolArray:
        """Tell which entries are no number of their interval and no code of a category."""
        values = _validate.reals(x)
        _validate.trailing(values, self.shape, "x")
        low, high = self.bounds
        inside = (values >= low) & (values <= high)
        if self.categorical.any():
            inside &= ~self.categorical | (values == np.floor(values))
        return np.asarray(~inside)

    def contains(self, x: Any) -> BoolArray:
        """Tell which records are admissible."""
        return np.asarray(~self.outside(x).any(axis=-1))

    def clip(self, x: Any) -> FloatArray:
        """Move numbers to the nearer end; there is no nearest category, so an unknown code is refused."""
        values = _validate.reals(x)
        outside = self.outside(values) & self.categorical
        if outside.any():
            place = tuple(np.argwhere(outside)[0])
            raise ValueError(
                f"Expected a code of a category in attribute {place[-1]}, got {values[place]}. "
                "Map unknown values to a category of their own, such as 'other'."
            )
        return np.clip(values, *self.bounds)

    def expand(self, x: Any) -> FloatArray:
        """Return numbers as they are and categories as vectors of zeros and a one: what an estimate is about."""
        values = _validate.reals(x)
        _validate.trailing(values, self.shape, "x")
        columns = [
            values[..., j, None] == np.arange(part.size) if isinstance(part, Categorical) else values[..., j, None]
            for j, part in enumerate(self.parts)
        ]
        return np.concatenate(columns, axis=-1, dtype=np.float64)


@dataclass(frozen=True)
class TensorBall(_Spec):
    """Tensors of one shape whose Frobenius norm is at most ``radius``; with ``mode``, that of each slice along it is.

    >>> TensorBall((4, 3), radius=1.0, mode=0).diameter  # four rows, each of length 1 at most
    4.0
    """

    dims: tuple[int, ...]
    radius: float = 1.0
    mode: int | None = None
    kind: ClassVar[str] = "tensor-ball"

    def __post_init__(self) -> None:
        object.__setattr__(self, "dims", _tensor_shape(self.dims))
        object.__setattr__(self, "radius", _validate.positive(self.radius, "radius"))
        if self.mode is not None:
            object.__setattr__(self, "mode", _validate.integer(self.mode, "mode", low=0, high=len(self.dims) - 1))

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one element."""
        return self.dims

    @property
    def diameter(self) -> float:
        """Largest Frobenius distance."""
        return 2 * self.radius * math.sqrt(1 if self.mode is None else self.dims[self.mode])

    def contains(self, x: Any) -> BoolArray:
        """Tell which tensors are short enough, up to rounding of the last bits."""
        norms = self.norms(x)
        return np.asarray((norms <= self.radius * (1 + 1e-12)).all(axis=tuple(range(-len(self.dims), 0))))

    def clip(self, x: Any) -> FloatArray:
        """Shorten what is too long."""
        values = _validate.reals(x)
        norms = self.norms(values)
        if np.isinf(norms).any():  # squares overflowed: shrink first, by a power of two
            values = np.where(np.isinf(norms), values * 2.0**-600, values)
            norms = np.where(np.isinf(norms), np.maximum(self.norms(values), np.nextafter(self.radius, np.inf)), norms)
        return np.asarray(values * np.where(norms > self.radius, self.radius / np.maximum(norms, self.radius), 1.0))

    def norms(self, x: Any) -> FloatArray:
        """Return the norm of each tensor, or of each of its slices, with axes of length one for what is summed."""
        values = _validate.reals(x)
        _validate.trailing(values, self.dims, "x")
        lead = values.shape[: values.ndim - len(self.dims)]
        if self.mode is None:
            flat, kept = values.reshape(*lead, 1, -1), [1] * len(self.dims)
            squares = np.einsum("...ib,...ib->...i", flat, flat)
        else:
            kept = [size if axis == self.mode else 1 for axis, size in enumerate(self.dims)]
            flat = values.reshape(*lead, math.prod(self.dims[: self.mode]), self.dims[self.mode], -1)
            squares = np.einsum("...aib,...aib->...i", flat, flat)
        return np.asarray(np.sqrt(squares).reshape(*lead, *kept))


DOMAINS: dict[str, type[Any]] = {
    cls.kind: cls for cls in (Interval, Grid, Box, L2Ball, Sphere, Categorical, TensorDomain, TensorBall, Attributes)
}


def from_spec(spec: Mapping[str, Any]) -> Any:
    """Rebuild a domain from its JSON description."""
    options = dict(spec)
    kind = options.pop("kind", None)
    if kind not in DOMAINS:
        raise ValueError(f"Unknown domain kind {kind!r}; expected one of {sorted(DOMAINS)}.")
    names = {f.name for f in fields(DOMAINS[kind])}
    if not set(options) <= names:
        raise ValueError(
            f"Unknown fields {sorted(set(options) - names)} for domain {kind!r}; expected {sorted(names)}."
        )
    return DOMAINS[kind](**{k: tuple(v) if isinstance(v, list) else v for k, v in options.items()})


def _tensor_shape(dims: Any) -> tuple[int, ...]:
    """Check the sizes of the modes of a tensor."""
    if isinstance(dims, int | np.integer):
        raise TypeError(f"Expected dims={dims!r} to be a tuple, e.g. dims=({dims},).")
    shape = tuple(_validate.integer(size, "dims", low=1) for size in dims)
    if not shape:
        raise ValueError("Expected at least one mode in dims=(). Use Interval for a single number.")
    return shape


def _bounds(low: float, high: float) -> tuple[float, float]:
    """Check the ends of a range and return them as floats."""
    ends = _validate.number(low, "low"), _validate.number(high, "high")
    if not (ends[0] < ends[1] and math.isfinite(ends[1] - ends[0])):
        raise ValueError(f"Expected finite low < high, got low={low!r}, high={high!r}.")
    return ends


def _grid_tolerance(low: float, high: float, step: float) -> float:
    """Return how far, in steps, rounding of the last bits may move a point of the grid."""
    return 1e-9 + 2.0**-50 * max(abs(low), abs(high)) / step


def _to_canonical(values: FloatArray, low: Any, high: Any) -> FloatArray:
    half = (high - low) / 2
    return np.asarray((values - (low + half)) / half)


def _from_canonical(values: FloatArray, low: Any, high: Any) -> FloatArray:
    half = (high - low) / 2
    return np.asarray((low + half) + half * values)
