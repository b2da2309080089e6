"""How a sum of bounded gradients becomes private: what is summed over the examples, and the noise on the sum.

``multiplier`` is the standard deviation of the noise over the most that one example contributes. A perturbation that
makes several releases a step shares the squared mu among them, so that together they are as private as one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from noisette.sgd.clipping import Clip, PerLayer, Sums
from noisette.sgd.layers import Part
from noisette.utility.sgd import EntryNoise, Noise, VectorNoise

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

    def release(self, sums: Sums, clip: Clip, multiplier: float, expected: float, rng: np.random.Generator) -> Sums:
        """Return the private mean gradient over an expected number of examples."""
        raise NotImplementedError

    def noise(self, clip: Clip, multiplier: float, expected: float) -> float:
        """Return the standard deviation of an entry of the mean, where all have the same; NaN where they have not."""
        return math.nan

    def law(self, sums: Sums, clip: Clip, multiplier: float, expected: float) -> Noise:
        """Return the law of what `release` would return, of which errors can be predicted."""
        raise NotImplementedError


@dataclass(frozen=True)
class Gaussian(Perturbation):
    """Add N(0, (multiplier x bound)^2) to each entry of the sum (Abadi et al. 2016, Algorithm 1)."""

    def release(self, sums: Sums, clip: Clip, multiplier: float, expected: float, rng: np.random.Generator) -> Sums:
        scale = multiplier * clip.bound
        return {
            layer: {name: noisy_mean(total, normal(total, rng), scale, expected) for name, total in entries.items()}
            for layer, entries in sums.items()
        }

    def noise(self, clip: Clip, multiplier: float, expected: float) -> float:
        return multiplier * clip.bound / expected

    def law(self, sums: Sums, clip: Clip, multiplier: float, expected: float) -> Noise:
        return VectorNoise(self.noise(clip, multiplier, expected))


@dataclass(frozen=True)
class Layered(Perturbation):
    """Give each layer a budget of its own (LLAGP, the baseline of paper 000: more to the layers near the input).

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
        scales = self.scales(sums, clip, multiplier)
        return {
            layer: {
                name: noisy_mean(total, normal(total, rng), scales[layer], expected) for name, total in entries.items()
            }
            for layer, entries in sums.items()
        }

    def law(self, sums: Sums, clip: Clip, multiplier: float, expected: float) -> Noise:
        scales = self.scales(sums, clip, multiplier)
        rows = [
            np.full(total.numel(), (scales[layer] / expected) ** 2)
            for layer, entries in sums.items()
            for total in entries.values()
        ]
        return EntryNoise(np.concatenate(rows))


def normal(like: Tensor, rng: np.random.Generator) -> Tensor:
    """Return standard normal noise of a tensor's shape and kind."""
    drawn = rng.standard_normal(like.shape, dtype=np.float32 if like.dtype == torch.float32 else np.float64)
    return torch.as_tensor(drawn).to(like)


def noisy_mean(total: Tensor, noise: Tensor, scale: float, expected: float) -> Tensor:
    """Return (total + scale x noise) / expected, in the memory of the noise."""
    return noise.mul_(scale).add_(total).div_(expected)


def full_name(layer: str, own: str) -> str:
    """Return a parameter's name as the model has it."""
    return f"{layer}.{own}" if layer else own
