"""How much one example may change a sum of gradients: rules that bound its norm.

A rule gives each example a weight from the norms of its gradient in every layer; `bound` is the norm that no weighted
gradient exceeds. Adding or removing an example changes the sum by that much.

What is proved: suppose the framework computes what an example brings, its activations and the gradients of its outputs,
as a function of that example and of the parameters. Then the computed sums with and without it differ by at most
`bound`, rounding included:

* norms are upper bounds (see `layers`), computed in double precision like the weights, and a weighted gradient has at
  most ``kept`` times the bound, where 1 - ``kept`` is left to rounding;
* B examples in m pieces of at most n are summed in double precision, so the sum errs by at most gamma (n + m + 8) times
  the sum of the B bounds: (n + m + 8) B 2^-53 bounds, nearly. With one example less it errs again, by as much. Twice
  that, and the few roundings of a weight, are below 1 - ``kept`` (`Clip.leave_room`);
* outer products of large layers are summed in single precision where a batch of one piece has at most ``few`` examples,
  a public limit. There are m = ceil(B / 32) chains of at most k = ceil(B / m) examples, and one more that adds up their
  sums. The rounding of a partial sum of i examples errs by at most u = 2^-24 of its norm, which is at most i bounds. In
  the m chains that is u B (k + 1) / 2 bounds. In the last one it is u k m (m + 1) / 2 <= u B (m + 3) / 2 bounds, since
  k m < B + m and, for m up to 62, m (m + 1) <= 2 B. The rounding of the weighted factors is u B, and so is that of the
  products where a processor rounds those too. So the sum errs by at most u B (k + m + 8) / 2 bounds; a factor of
  1 + 2^-10 is far more than the errors of the partial sums add to their norms. Layers stand side by side here, as one
  long row: their chains hold the same examples. A batch of more than ``few`` examples, and one with numbers out of
  range, is summed in double precision, so that either of two sums errs by no more than that;
* numbers of single precision in range are at most 2^24 in size. What is lost where one of them, a product or a sum is
  below 2^-126, and may be read or written as 0, is at most 2^-126 (2^24 + 2^24 + 4) for each example and entry, less
  than 2^-100: for 2^40 entries and 2^20 examples 2^-30 of a bound of 2^-30. Smaller bounds take double precision.

The supposition leaves out that a kernel may add in another order for a batch of another size, which moves a gradient by
a rounding of the framework. The size of the batch, by which a mean is divided, moves none (see `losses`). An example
with a number that is not finite has weight 0 in every layer, and adds nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from noisette import _validate
from noisette.sgd.recording import _rows
from noisette.sgd.recording.layers import Formed, Gradients, Part

_LEAST_ROOM = 2.0**-16  # left to rounding; enough for five million examples in pieces of 1,024
_MOST_ROOM = 2.0**-6
_QUICK_ROOM = 2.0**-9  # what sums in single precision may leave to rounding
_QUICK_BOUND = 2.0**-30  # a bound below which they are not taken
_FARTHEST = 200.0  # of the logarithm of a norm that moves, so that no float overflows
Sums = dict[str, Gradients]  # by layer, then by parameter


class Clip:
    """A rule that bounds every example's gradient."""

    share: float = 0.0  # of the squared privacy parameter mu, spent on the rule itself
    kept: float = 1 - _LEAST_ROOM  # of the bound; the rest is left to rounding
    few: int = 0  # examples of a batch up to which sums may be in single precision

    @property
    def bound(self) -> float:
        """The norm that no example's contribution exceeds."""
        raise NotImplementedError

    def weights(self, squares: Tensor) -> Tensor:
        """Return a weight for each example, or for each (layer, example), from squared norms (layers, examples).

        The norms are upper bounds, in double precision, and infinite for an example that is to add nothing.
        """
        raise NotImplementedError

    def leave_room(self, examples: int, piece: int, processes: int = 1, few: int = 0) -> None:
        """Leave room for the rounding of sums over up to ``examples`` examples, in pieces of at most ``piece``.

        Batches of up to ``few`` examples may be summed in single precision, unless that would take too much of it.
        """
        roundings = piece + -(-examples // piece) + processes + 7
        room = max(4 * examples * roundings * _rows.UNIT, _LEAST_ROOM)
        if room > _MOST_ROOM:
            raise ValueError(
                f"Sums over {examples} examples in pieces of {piece} leave {room:.2g} of the norm to rounding. "
                f"Expected at most {_MOST_ROOM:.2g}: take physical_batch nearer to {math.isqrt(examples)}."
            )
        quick = few * _rows.quick_roundings(few) * _rows.QUICK_UNIT * (1 + 2.0**-10) + _LEAST_ROOM
        self.few = few if quick <= _QUICK_ROOM else 0
        self.kept = 1 - (max(room, quick) if self.few else room)

    def total(self, parts: Mapping[str, Part], scale: float) -> Sums:
        """Return the sum of the bounded gradients, each ``scale`` times what was recorded, in double precision."""
        return dict(self.totals(parts, scale))

    def totals(
        self, parts: Mapping[str, Part], scale: float, *, quick: bool = False
    ) -> Iterator[tuple[str, Gradients]]:
        """Yield the layers of `total` one by one; with ``quick`` in single precision where that is proved enough."""
        factors, _ = self._factors(parts, scale)
        quick = quick and factors.shape[1] <= self.few and self.bound >= _QUICK_BOUND
        for (name, layer), row in zip(parts.items(), factors, strict=True):
            yield name, layer.quick_total(row) if quick else layer.total(row)

    def each(self, parts: Mapping[str, Part], scale: float) -> Sums:
        """Return every example's bounded gradient, with examples along the first axis."""
        bounded, factors, _ = self.apart(parts, scale)
        return _multiplied(bounded, factors)

    def apart(self, parts: Mapping[str, Part], scale: float) -> tuple[Mapping[str, Part], Tensor, Tensor]:
        """Return the examples' gradients, the factors (layers, examples) that bound them, and squared norms then.

        To multiply by the factors is left to the caller: it is a pass over all gradients. A factor of 0 is that of an
        example that adds nothing, whatever its numbers are.
        """
        factors, squares = self._factors(parts, scale)
        return parts, factors, torch.where(factors > 0, squares * (factors / scale).square(), 0.0).sum(0)

    def _factors(self, parts: Mapping[str, Part], scale: float) -> tuple[Tensor, Tensor]:
        """Return what recorded gradients are multiplied with (layers, examples), and their scaled squared norms."""
        squares, finite = _layer_squares(parts, scale)
        weights = self.weights(squares) * (self.kept * scale)
        if not finite:
            weights = torch.where(torch.isfinite(squares), weights, 0.0)
        return weights.expand(len(parts), -1), squares

    def start(self, dims: Mapping[str, int]) -> None:
        """Learn how many numbers each layer has."""

    def learn(self, released: Sums, noise: float) -> None:
        """See a released mean gradient, whose entries carry noise of this standard deviation; it costs nothing."""

    def ask(self, expected: float, release: Callable[[float, float], float]) -> None:
        """Ask for the share of examples within the bound; it is paid for by `share`.

        ``release`` returns a count with noise, given by how much an example changes it.
        """

    def forget(self) -> None:
        """Forget what was counted of a batch that was left before its last piece."""

    def state(self) -> dict[str, Any]:
        """Return what changes during training."""
        return {}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take up what `state` gave."""


def _layer_squares(parts: Mapping[str, Part], scale: float) -> tuple[Tensor, bool]:
    """Return upper bounds of the squared norms (layers, examples) of gradients ``scale`` times what was recorded.

    An example with a number that is not finite has infinite norms in all layers; the second entry says whether there
    is none. One sum shows it: no square is negative, so no two of them cancel.
    """
    found = [layer.squares() for layer in parts.values()]
    squares = torch.stack(found) if len(found) > 1 else found[0][None]
    squares *= scale**2 * (1 + 2.0**-40)
    if math.isfinite(squares.sum().item()):
        return squares, True
    return torch.where(torch.isfinite(squares).all(0), squares, math.inf), False


def _multiplied(parts: Mapping[str, Part], factors: Tensor) -> Sums:
    """Return every example's gradient times its factor in each layer, in double precision."""
    made: Sums = {}
    for (name, layer), row in zip(parts.items(), factors, strict=True):
        made[name] = {}
        for key, value in layer.each().items():
            made[name][key] = _rows.widened(value, row) * row.reshape(-1, *[1] * (value.ndim - 1))
    return made


def added_up(total: Sums | None, added: Sums) -> Sums:
    """Return the sum of what earlier pieces of a batch added and what this one adds."""
    if total is None:
        return added
    for layer, entries in added.items():
        for name, value in entries.items():
            total[layer][name] += value
    return total


def copied(sums: Sums) -> Sums:
    """Return sums in memory of their own."""
    return {layer: {name: value.clone() for name, value in entries.items()} for layer, entries in sums.items()}


def total_squares(parts: Mapping[str, Part], scale: float) -> Tensor:
    """Return an upper bound of the squared norm of each example's gradient, infinite where it is not finite."""
    return _layer_squares(parts, scale)[0].sum(0)


@dataclass
class Normed(Clip):
    """A rule with one norm, which can be set anew."""

    l2_clip_norm: float = 1.0

    def __post_init__(self) -> None:
        _validate.positive(self.l2_clip_norm, "l2_clip_norm")

    @property
    def bound(self) -> float:
        return self.l2_clip_norm

    def state(self) -> dict[str, Any]:
        return {"l2_clip_norm": self.l2_clip_norm}

    def restore(self, state: Mapping[str, Any]) -> None:
        self.l2_clip_norm = float(state["l2_clip_norm"])


@dataclass
class L2(Normed):
    """Scale a gradient down to norm C: min(1, C / ||g||) (Abadi et al. 2016, Algorithm 1)."""

    def weights(self, squares: Tensor) -> Tensor:
        return squares.sum(0).rsqrt_().mul_(self.l2_clip_norm).clamp_(max=1.0)


@dataclass
class AutoS(Clip):
    """Normalise: g / (||g|| + gamma); no threshold to tune (Bu et al. 2023, AUTO-S; Duan 2024, eq. 3.13)."""

    gamma: float = 0.01

    def __post_init__(self) -> None:
        _validate.positive(self.gamma, "gamma")

    @property
    def bound(self) -> float:
        return 1.0

    def weights(self, squares: Tensor) -> Tensor:
        return 1 / (squares.sum(0).sqrt() + self.gamma)


@dataclass
class Psac(Normed):
    """Normalise, small gradients less: C g / (||g|| + r / (||g|| + r)) (Xia et al. 2023, DP-PSAC)."""

    r: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        _validate.positive(self.r, "r")

    def weights(self, squares: Tensor) -> Tensor:
        norms = squares.sum(0).sqrt()
        return self.l2_clip_norm / (norms + self.r / (norms + self.r))


@dataclass
class LInf(Clip):
    """Clip each number to [-c, c]; one example then has a norm of up to c sqrt(d), which is what the noise follows."""

    linf_clip_norm: float = 0.01
    _dims: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        _validate.positive(self.linf_clip_norm, "linf_clip_norm")

    @property
    def bound(self) -> float:
        root = math.nextafter(math.sqrt(self._dims), math.inf)
        return math.nextafter(self.linf_clip_norm * root, math.inf)

    def start(self, dims: Mapping[str, int]) -> None:
        self._dims = sum(dims.values())

    def weights(self, squares: Tensor) -> Tensor:
        return squares.new_ones(squares.shape[1])

    def apart(self, parts: Mapping[str, Part], scale: float) -> tuple[Mapping[str, Part], Tensor, Tensor]:
        factors, _ = self._factors(parts, scale)
        clamped = {
            name: Formed({key: self._clamped(value, row) for key, value in layer.each().items()})
            for (name, layer), row in zip(parts.items(), factors, strict=True)
        }
        return clamped, torch.ones_like(factors), torch.stack([layer.squares() for layer in clamped.values()]).sum(0)

    def _clamped(self, value: Tensor, row: Tensor) -> Tensor:
        """Return gradients times their factors, in their own precision, with no number above the limit."""
        limit = torch.tensor(self.linf_clip_norm * self.kept, dtype=value.dtype)
        if float(limit) > self.linf_clip_norm * self.kept:
            limit = torch.nextafter(limit, torch.zeros_like(limit))
        factors = row.reshape(-1, *[1] * (value.ndim - 1))
        made = (value * factors.to(value.dtype)).clamp(-float(limit), float(limit))
        return torch.where(factors > 0, made, 0.0)

    def totals(
        self, parts: Mapping[str, Part], scale: float, *, quick: bool = False
    ) -> Iterator[tuple[str, Gradients]]:
        factors, _ = self._factors(parts, scale)
        for (name, layer), row in zip(parts.items(), factors, strict=True):
            limit = self.linf_clip_norm * self.kept
            each = layer.each().items()
            yield name, {key: _rows.clamped(value, row, limit).reshape(value.shape[1:]) for key, value in each}


@dataclass
class PerLayer(Clip):
    """Clip each layer's gradient on its own, to C times the root of its share; shares are equal by default.

    The squares of the thresholds add up to C^2, so the bound is that of `L2`.
    """

    l2_clip_norm: float = 1.0
    shares: Sequence[float] | None = None
    _divided: tuple[float, ...] = field(default=(), init=False)  # shares as they are now

    def __post_init__(self) -> None:
        _validate.positive(self.l2_clip_norm, "l2_clip_norm")
        if self.shares is not None and not all(math.isfinite(share) and share > 0 for share in self.shares):
            raise ValueError(f"Expected shares={tuple(self.shares)!r} > 0, one for each layer.")

    @property
    def bound(self) -> float:
        return self.l2_clip_norm

    @property
    def thresholds(self) -> tuple[float, ...]:
        """The norm to which each layer's gradient is clipped."""
        total = math.fsum(self._divided)
        whole = self.l2_clip_norm * (1 - 2.0**-40)  # so that the squares add up to no more than the norm's
        return tuple(whole * math.sqrt(share / total) for share in self._divided)

    def start(self, dims: Mapping[str, int]) -> None:
        shares = [1.0] * len(dims) if self.shares is None else list(self.shares)
        if len(shares) != len(dims):
            raise ValueError(f"Expected {len(dims)} shares, one for each of {', '.join(dims)}; got {len(shares)}.")
        self._divided = tuple(shares)

    def weights(self, squares: Tensor) -> Tensor:
        return (squares.new_tensor(self.thresholds)[:, None] / squares.sqrt()).clamp(max=1.0)


@dataclass
class Curvature(PerLayer):
    """Clip layer by layer, with thresholds that follow the diagonal of the Hessian.

    DPHSGD, a baseline of Yuan et al. 2025, sets its threshold from that. The diagonal of the Gauss-Newton matrix is
    the expected square of the gradient; here it is averaged over the *released* gradients with the noise's variance
    taken off, so that it costs no privacy. Layer l gets the share h_l / sum h of C^2, and a tenth is spread evenly.
    """

    decay: float = 0.9
    _curvature: list[float] = field(default_factory=list, init=False)
    _dims: Mapping[str, int] = field(default_factory=dict, init=False)

    def start(self, dims: Mapping[str, int]) -> None:
        super().start(dims)
        self._dims, self._curvature = dims, [0.0] * len(dims)

    def learn(self, released: Sums, noise: float) -> None:
        for place, (name, size) in enumerate(self._dims.items()):
            squares = sum(float(value.square().sum()) for value in released[name].values()) - size * noise**2
            self._curvature[place] = self.decay * self._curvature[place] + (1 - self.decay) * max(squares, 0.0)
        self._set()

    def _set(self) -> None:
        total = math.fsum(self._curvature)
        if total > 0:
            self._divided = tuple(0.9 * h / total + 0.1 / len(self._curvature) for h in self._curvature)

    def state(self) -> dict[str, Any]:
        return {"curvature": list(self._curvature)}

    def restore(self, state: Mapping[str, Any]) -> None:
        self._curvature = [float(h) for h in state["curvature"]]
        self._set()


@dataclass
class Quantile(Normed):
    """Move the threshold to a quantile of the norms (Andrew et al. 2021, Algorithm 1).

    C <- C exp(-rate (b - quantile)), where b is the noisy share of examples with a norm of at most C. The count, less
    one half each, changes by one half with an example; its noise takes ``share`` of the squared mu.
    """

    quantile: float = 0.5
    rate: float = 0.2
    share: float = 0.01

    def __post_init__(self) -> None:
        super().__post_init__()
        _validate.positive(self.rate, "rate")
        for name in ("quantile", "share"):
            if not 0 < getattr(self, name) < 1:
                raise ValueError(f"Expected {name}={getattr(self, name)!r} between 0 and 1.")
        self._within = 0.0

    def weights(self, squares: Tensor) -> Tensor:
        norms = squares.sum(0).sqrt()
        self._within += float((norms <= self.l2_clip_norm).sum()) - 0.5 * len(norms)
        return (self.l2_clip_norm / norms).clamp(max=1.0)

    def ask(self, expected: float, release: Callable[[float, float], float]) -> None:
        noisy = release(self._within, 0.5)
        self.forget()
        inside = min(max(noisy / expected + 0.5, 0.0), 1.0)
        moved = math.log(self.l2_clip_norm) - self.rate * (inside - self.quantile)
        self.l2_clip_norm = math.exp(min(max(moved, -_FARTHEST), _FARTHEST))

    def forget(self) -> None:
        self._within = 0.0


CLIPS: dict[str, type[Clip]] = {
    "l2": L2,
    "linf": LInf,
    "auto-s": AutoS,
    "psac": Psac,
    "quantile": Quantile,
    "per-layer": PerLayer,
    "curvature": Curvature,
}
