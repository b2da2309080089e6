"""GeoDP: noise on the direction and on the magnitude of a gradient, each on its own (Duan 2024, Algorithm 5)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, get_args

import numpy as np
import torch
from torch import Tensor

from noisette.mechanisms.geometric.spherical import from_spherical, to_spherical
from noisette.sgd.clipping import Clip, Sums
from noisette.sgd.noise._angles import WeightedRows, clipped_angle_sums
from noisette.sgd.noise._lattice import add_exactly
from noisette.sgd.noise.perturbation import Perturbation, Shapes
from noisette.sgd.recording._rows import flat, widened
from noisette.sgd.recording.layers import Laid, Part
from noisette.sgd.theory.steps import Noise, SphericalNoise

_LARGEST = 1e30  # that an example's numbers may be multiplied by or come to, in single precision
Average = Literal["angles", "gradient"]


@dataclass
class Geo(Perturbation):
    """Noise on magnitude and angles, after the angles are clipped to a share ``beta`` of their range.

    The first d - 2 angles are clipped to [(1 - beta) pi, pi], the last to [-beta pi, beta pi]: their diameter is
    sqrt(d + 2) beta pi. Magnitude and angles are two releases and get half of the squared mu each.

    With ``average="angles"`` magnitudes and angles of every example are averaged; about the middle of their range one
    example's angles change the sum by sqrt(d + 2) beta pi / 2. With ``average="gradient"`` the mean gradient is
    converted, as Algorithm 5 does; one example can turn it around, so the noise follows the whole diameter.

    *Guarantee*: as for Gaussian noise of the same multiplier. With ``as_published=True`` the noise on the angles of the
    mean gradient is divided by the batch size, as printed. That is unsound: replacing one of many examples that nearly
    cancel turns the mean around. What holds is then the guarantee of a multiplier sqrt(1 + B^2) times smaller.

    *Utility*: the noise on the angles grows with sqrt(d). At the same true guarantee plain Gaussian noise is better in
    all but tiny models; see the experiments.
    """

    beta: float = 0.1
    average: Average = "angles"
    as_published: bool = False
    _shapes: Shapes = field(default_factory=dict, init=False, repr=False)
    _dims: int = field(default=0, init=False, repr=False)

    def __post_init__(self) -> None:
        if not 0 < self.beta <= 1:
            raise ValueError(f"Expected beta={self.beta!r} in (0, 1]: the share of the angles' range that is kept.")
        if self.average not in get_args(Average):
            raise ValueError(f"Expected average={self.average!r} to be one of {get_args(Average)}.")
        if self.as_published and self.average != "gradient":
            raise ValueError("The published form converts the mean gradient: give average='gradient' with it.")

    def start(self, clip: Clip, shapes: Shapes) -> None:
        self._shapes = shapes
        self._dims = sum(shape.numel() for entries in shapes.values() for shape in entries.values())
        if self._dims < 2:
            raise ValueError("A model of one parameter has no direction: give perturb='gaussian'.")

    @property
    def sums_gradients(self) -> bool:  # type: ignore[override]  # of each run its own
        """Whether what is summed over the examples is their gradients."""
        return self.average == "gradient"

    @property
    def diameter(self) -> float:
        """How far apart two clipped directions can be, as vectors of angles."""
        return math.sqrt(self._dims + 2) * self.beta * math.pi

    def truth(self, expected: float) -> float:
        """Return the multiplier that holds over the one that was asked for."""
        return 1 / math.hypot(1.0, expected) if self.as_published else 1.0

    def room(self, examples: int) -> float:
        """Return what double precision may add to sums of angles, and single precision to the ends of their range."""
        return (16 * examples + 8) * examples * 2.0**-53 + 2.0**-20 / self.beta

    def collect(self, clip: Clip, parts: Mapping[str, Part], scale: float) -> Sums:
        if self.average == "gradient":
            return clip.total(parts, scale)
        bounded, factors, squares = clip.apart(parts, scale)
        lengths = squares.sqrt()
        laid = [
            (entry, row)
            for layer, row in zip(bounded.values(), factors, strict=True)
            for entry in layer.laid().values()
        ]
        if all(entry.left.dtype == torch.float32 and entry.left.device.type == "cpu" for entry, _ in laid):
            angles = self._angle_sums(laid, lengths)
        else:
            rows = [
                widened(flat(entry), row) * row[:, None]
                for layer, row in zip(bounded.values(), factors, strict=True)
                for entry in layer.each().values()
            ]
            angles = self._clipped(to_spherical(torch.cat(rows, 1))[1]).sum(0)
        return {"": {"magnitude": lengths.sum(), "angles": angles - len(lengths) * self._middle(angles)}}

    def _angle_sums(self, laid: Sequence[tuple[Laid, Tensor]], lengths: Tensor) -> Tensor:
        """Return the sums of the examples' clipped angles, of gradients in single precision with their factors."""
        whole = torch.where(lengths > 0, 1 / lengths, 0.0)
        for entry, row in laid:  # what single precision cannot hold has no direction, and moves no one else's
            longest = 1.0 if entry.right is None else entry.left.abs().amax(1).double().clamp(min=1.0)
            whole = torch.where(row * whole * longest < _LARGEST, whole, 0.0)
        rows = [
            WeightedRows(
                entry.left.numpy(),
                (row * whole).float().numpy(),  # angles know no length
                None if entry.right is None else entry.right.numpy(),
                None if entry.order is None else entry.order.numpy(),
            )
            for entry, row in laid
        ]
        angles = np.concatenate(clipped_angle_sums(rows, (1 - self.beta) * math.pi))[:-1]
        ends = np.concatenate([row.last() for row in rows[-2:]], axis=1)[:, -2:]
        widest = self.beta * math.pi
        angles[-1] = np.clip(np.arctan2(ends[:, 1], ends[:, 0]), -widest, widest).sum()
        return torch.from_numpy(angles)

    def release(self, sums: Sums, clip: Clip, multiplier: float, expected: float, rng: np.random.Generator) -> Sums:
        magnitude, angles = self._centre(sums, expected)
        sizes, middle = self._stds(clip, multiplier, expected), self._middle(angles)
        white = np.append(float(magnitude) / sizes[0], (angles - middle).cpu().numpy() / sizes[1])
        add_exactly(white, rng)
        noisy = torch.from_numpy(white[1:] * sizes[1]) + middle.cpu()
        return self._shaped(from_spherical(torch.tensor(white[0] * sizes[0]), noisy))

    def law(self, sums: Sums, clip: Clip, multiplier: float, expected: float) -> Noise:
        magnitude, angles = self._centre(sums, expected)
        centre = float(magnitude), angles.double().numpy()
        return SphericalNoise(*self._stds(clip, multiplier, expected), self.beta, centre)

    def _centre(self, sums: Sums, expected: float) -> tuple[Tensor, Tensor]:
        """Return the magnitude and the angles that noise is added to."""
        if self.average == "angles":
            magnitude, angles = sums[""]["magnitude"] / expected, sums[""]["angles"] / expected
            return magnitude, angles + self._middle(angles)
        magnitude, angles = to_spherical(self._flat(sums) / expected)
        return magnitude, self._clipped(angles)

    def _stds(self, clip: Clip, multiplier: float, expected: float) -> tuple[float, float]:
        """Return the standard deviations of the noise on the magnitude and on each angle."""
        if self.as_published:
            return multiplier * clip.bound / expected, multiplier * self.diameter / expected
        spread = multiplier * math.sqrt(2)  # two releases
        reach = self.diameter / (2 * expected) if self.average == "angles" else self.diameter
        return spread * clip.bound / expected, spread * reach

    def _clipped(self, angles: Tensor) -> Tensor:
        """Return angles within the share of their range that is kept."""
        kept = angles.clamp((1 - self.beta) * math.pi, math.pi)
        kept[..., -1] = angles[..., -1].clamp(-self.beta * math.pi, self.beta * math.pi)
        return kept

    def _middle(self, angles: Tensor) -> Tensor:
        """Return the middle of what is kept, for each angle."""
        middle = angles.new_full(angles.shape[-1:], (1 - self.beta / 2) * math.pi)
        middle[-1] = 0.0
        return middle

    def _flat(self, gradients: Sums) -> Tensor:
        """Return all entries one behind the other, in double precision."""
        return torch.cat([entry.flatten() for entries in gradients.values() for entry in entries.values()]).double()

    def _shaped(self, flat: Tensor) -> Sums:
        """Return a flat gradient as the layers have it."""
        made: Sums = {}
        start = 0
        for layer, entries in self._shapes.items():
            made[layer] = {}
            for name, shape in entries.items():
                made[layer][name] = flat[start : start + shape.numel()].reshape(shape)
                start += shape.numel()
        return made
