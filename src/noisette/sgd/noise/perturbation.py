"""How a sum of bounded gradients becomes private: what is summed over the examples, and the noise on the sum.

``multiplier`` is the standard deviation of the noise over the most that one example contributes. A perturbation that
makes several releases a step shares the squared mu among them, so that together they are as private as one. Noise is
exact, on a lattice: `_lattice` has the argument.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from noisette.sgd.clipping import Clip, PerLayer, Sums
from noisette.sgd.noise._lattice import make_noisy_means
from noisette.sgd.recording.layers import Part
from noisette.sgd.theory.steps import EntryNoise, Noise, VectorNoise

Shapes = Mapping[str, Mapping[str, torch.Size]]  # by layer, then by parameter


class Perturbation:
    """Noise for a mean of gradients."""

    sums_gradients: bool = True  # whether what is summed over the examples is their gradients

    def start(self, clip: Clip, shapes: Shapes) -> None:
        """Learn the shapes of the gradients, and refuse a rule of clipping that this noise does not fit."""

    def truth(self, expected: float) -> float:
        """Return the multiplier that holds over the one that was asked for: below 1 for what is unsound."""
        return 1.0

    def collect(self, clip: Clip, parts: Mapping[str, Part], scale: float) -> Sums:
        """Return what a batch adds to the sum."""
        return clip.total(parts, scale)

    def room(self, examples: int) -> float:
        """Return what double precision may add, relatively, to a bound once sums over so many examples are whitened."""
        return 8 * examples * 2.0**-53  # a product or two for each of two sums

    def release(self, sums: Sums, clip: Clip, multiplier: float, expected: float, rng: np.random.Generator) -> Sums:
        """Return the private mean gradient over an expected number of examples, in the precision of the sums or double.

        ``multiplier`` is that of noise on a lattice, `_lattice.widened`. The memory of the sums may be used for it.
        """
        raise NotImplementedError

    def noise(self, clip: Clip, multiplier: float, expected: float) -> float:
        """Return the standard deviation of an entry of the mean, where all have the same; NaN where they have not."""
        return math.nan

    def law(self, sums: Sums, clip: Clip, multiplier: float, expected: float) -> Noise:
        """Return the law of what `release` would return, of which errors can be predicted."""
        raise NotImplementedError


@dataclass(frozen=True)
class GaussianPerturbation(Perturbation):
    """Add N(0, (multiplier x bound)^2) to each entry of the sum (Abadi et al. 2016, Algorithm 1)."""

    def release(self, sums: Sums, clip: Clip, multiplier: float, expected: float, rng: np.random.Generator) -> Sums:
        return noisy_means(sums, multiplier * clip.bound, expected, rng)

    def noise(self, clip: Clip, multiplier: float, expected: float) -> float:
        return multiplier * clip.bound / expected

    def law(self, sums: Sums, clip: Clip, multiplier: float, expected: float) -> Noise:
        return VectorNoise(self.noise(clip, multiplier, expected))


@dataclass(frozen=True)
class Layered(Perturbation):
    """Give each layer a budget of its own (LLAGP, the baseline of Yuan et al. 2025: more to the layers near the input).

    Layer l, clipped to C_l, gets noise C_l multiplier / sqrt(share_l); the shares of the squared mu add up to one. By
    default they fall linearly from the first layer to the last. Needs clipping by layer.
    """

    shares: Sequence[float] | None = None

    def __post_init__(self) -> None:
        if self.shares is not None and not all(math.isfinite(share) and share > 0 for share in self.shares):
            raise ValueError(f"Expected shares={tuple(self.shares)!r} > 0, one for each layer.")

    def start(self, clip: Clip, shapes: Shapes) -> None:
        if not isinstance(clip, PerLayer):
            raise ValueError("Budgets by layer need clipping by layer: give clip='per-layer' or clip='curvature'.")

    def scales(self, sums: Sums, clip: Clip, multiplier: float) -> dict[str, float]:
        """Return the standard deviation of the noise on each layer's sum."""
        assert isinstance(clip, PerLayer)
        shares = list(self.shares) if self.shares is not None else list(range(len(sums), 0, -1))
        if len(shares) != len(sums):
            raise ValueError(f"Expected {len(sums)} shares, one for each of {', '.join(sums)}; got {len(shares)}.")
        whole = math.fsum(shares)
        return {
            layer: multiplier * threshold / math.sqrt(share / whole)
            for layer, threshold, share in zip(sums, clip.thresholds, shares, strict=True)
        }

    def release(self, sums: Sums, clip: Clip, multiplier: float, expected: float, rng: np.random.Generator) -> Sums:
        return noisy_means(sums, self.scales(sums, clip, multiplier), expected, rng)

    def law(self, sums: Sums, clip: Clip, multiplier: float, expected: float) -> Noise:
        scales = self.scales(sums, clip, multiplier)
        rows = [
            np.full(total.numel(), (scales[layer] / expected) ** 2)
            for layer, entries in sums.items()
            for total in entries.values()
        ]
        return EntryNoise(np.concatenate(rows))


def noisy_means(sums: Sums, scale: float | Mapping[str, float], expected: float, rng: np.random.Generator) -> Sums:
    """Return (total + noise) / expected for all entries, with one standard deviation or one for each layer.

    The means take the memory of the sums and their precision. Several cores share the work of long rows.
    """
    released = {layer: {name: _lent(total) for name, total in entries.items()} for layer, entries in sums.items()}
    rows: dict[float, list[npt.NDArray[Any]]] = {}
    for layer, own in released.items():
        size = scale if isinstance(scale, float) else scale[layer]
        rows.setdefault(size, []).extend(total.numpy().reshape(-1) for total in own.values())
    for size, alike in rows.items():
        make_noisy_means(alike, size, expected, rng)
    return released


def _lent(total: torch.Tensor) -> torch.Tensor:
    """Return a sum that a loop can write to, in double precision unless it is in single precision."""
    return (total if total.dtype == torch.float32 else total.double()).cpu().contiguous()


def full_name(layer: str, own: str) -> str:
    """Return a parameter's name as the model has it."""
    return f"{layer}.{own}" if layer else own
