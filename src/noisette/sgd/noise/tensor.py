"""Noise for parameters as the tensors that they are: a covariance along each mode, as in Yang et al. 2021."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from noisette._validate import FloatArray
from noisette.mechanisms.tensor.gaussian._normal import add_noise_to_all
from noisette.mechanisms.tensor.gaussian.calibration import optimal_mode, read_subspace
from noisette.mechanisms.tensor.gaussian.modes import Mode, dense, multiply, per_mode
from noisette.mechanisms.tensor.gaussian.neighbours import Neighbours
from noisette.sgd.clipping import Clip, LInf, Sums
from noisette.sgd.noise._lattice import on_lattice
from noisette.sgd.noise.perturbation import Perturbation, Shapes, full_name
from noisette.sgd.theory.steps import EntryNoise, Noise, Turn

PerParameter = Mapping[str, Sequence[Any]]


@dataclass(frozen=True)
class _Noise:
    """The noise of one parameter, up to scale: its modes, how far neighbours are apart in it, and its power."""

    modes: tuple[Mode, ...]
    reach: float
    power: float

    @property
    def size(self) -> int:
        """Entries of the parameter."""
        return math.prod(mode.size for mode in self.modes)

    @cached_property
    def _axes(self) -> list[tuple[FloatArray, FloatArray | None]]:
        """Variances along the modes, and the orthogonal map behind which they are uncorrelated."""
        made: list[tuple[FloatArray, FloatArray | None]] = []
        for mode in self.modes:
            if mode.full:
                values, vectors = np.linalg.eigh(mode.root @ mode.root.T)
                made.append((values, vectors.T))
            else:
                made.append((mode.variances, None))
        return made

    @property
    def spectrum(self) -> FloatArray:
        """Variances of the entries once they are uncorrelated, in row-major order."""
        made = np.ones(1)
        for variances, _ in self._axes:
            made = np.multiply.outer(made, variances).reshape(-1)
        return made

    @property
    def correlated(self) -> bool:
        """Whether a mode has a covariance that is not diagonal."""
        return any(turn is not None for _, turn in self._axes)

    def turned(self, gradient: FloatArray, *, back: bool) -> FloatArray:
        """Return gradients, each a row, in the basis of `spectrum`, or back from there."""
        shaped = gradient.reshape([*gradient.shape[:-1], *(mode.size for mode in self.modes)])
        turns = [turn.T if back and turn is not None else turn for _, turn in self._axes]
        return dense(shaped, turns).reshape(gradient.shape)

    def whiten(self, total: Tensor, scale: float, out: FloatArray) -> None:
        """Write a sum, in units of noise of this scale and uncorrelated, to a row."""
        shaped = out.reshape(total.shape)
        np.multiply(total.double().cpu().numpy(), 1 / scale, out=shaped)
        multiply(shaped, [None if mode.covariance is None else mode.whitener for mode in self.modes])

    def colour(self, white: FloatArray, scale: float) -> Tensor:
        """Return what `whiten` made, and noise was added to, as a tensor with noise of this scale; in place."""
        shaped = white.reshape([mode.size for mode in self.modes])
        multiply(shaped, [None if mode.covariance is None else mode.root for mode in self.modes])
        return torch.from_numpy(on_lattice(shaped, scale, self._least))

    @cached_property
    def _least(self) -> float:
        """The least standard deviation of an entry, of noise of scale one."""
        return math.sqrt(math.prod(float(mode.variances.min()) for mode in self.modes))

    @property
    def amplified(self) -> float:
        """Double precision errs in whitening by so many times 2^-53 of a tensor's norm, over what neighbours reach."""
        operations = 8 + sum(mode.size + 4 for mode in self.modes if mode.full)
        return operations * math.prod(mode.rounding for mode in self.modes) / self.reach


@dataclass
class TensorPerturbation(Perturbation):
    """Add Gaussian noise with a covariance along each mode of each parameter (Yang et al. 2021).

    Parameter p gets s_p N x_1 U_1 ... x_N U_N. ``covariances`` maps a parameter's name, as ``model.named_parameters()``
    has it, to an entry U_k U_k' for each mode: None, variances, or a matrix. ``subspaces`` maps it to matrices W_k, and
    asks for the covariances that are least in what is used of the gradient, x_1 W_1 ... x_N W_N. Both must be public.
    Parameters that are not named get noise of one size.

    *Guarantee*: as for Gaussian noise of the same multiplier z, with equality: what one example adds is at most 1 / z
    long once the noise is white. Norms of at most C: s_p = z C prod_k |U_k^-1|. Entries of at most c, ``clip="linf"``:
    the c^2 r_p / s_p^2 add up to 1 / z^2, r_p the largest squared length of signs once white; they are shared so that
    the noise seen by the subspaces is least.
    *Utility*: on a ball of norms no covariance beats the identity, and `GaussianPerturbation` is as good or better: the
    whole contribution may point in the direction of least noise. On a box of entries directions do help.
    """

    covariances: PerParameter = field(default_factory=dict)
    subspaces: PerParameter = field(default_factory=dict)
    _noises: dict[str, dict[str, _Noise]] = field(default_factory=dict, init=False, repr=False)
    _box: bool = field(default=False, init=False, repr=False)

    def start(self, clip: Clip, shapes: Shapes) -> None:
        known = {full_name(layer, own): shape for layer, entries in shapes.items() for own, shape in entries.items()}
        for argument, given in (("covariances", self.covariances), ("subspaces", self.subspaces)):
            for name in given:
                if name not in known:
                    raise ValueError(
                        f"Unknown parameter {name!r} in {argument}. "
                        f"Name one that the model trains: {', '.join(sorted(known))}."
                    )
        self._box = isinstance(clip, LInf)
        self._noises = {
            layer: {
                own: self._read(full_name(layer, own), tuple(shape), box=self._box) for own, shape in entries.items()
            }
            for layer, entries in shapes.items()
        }

    def _read(self, name: str, dims: tuple[int, ...], *, box: bool) -> _Noise:
        """Check what was given for one parameter, and find the reach of its neighbours of size one."""
        given, wanted = (
            per_mode(entries.get(name), len(dims), f"{argument}[{name!r}]")
            for entries, argument in ((self.covariances, "covariances"), (self.subspaces, "subspaces"))
        )
        neighbours = Neighbours(dims, width=1.0) if box else Neighbours(dims, distance=1.0)
        modes, spaces = [], []
        for number, (size, covariance, subspace) in enumerate(zip(dims, given, wanted, strict=True)):
            if covariance is not None and subspace is not None:
                raise ValueError(f"Expected a covariance or a subspace for mode {number} of {name!r}, got both.")
            space = read_subspace(subspace, size, number)
            spaces.append(space)
            modes.append(
                Mode.read(size, covariance, number)
                if space is None
                else optimal_mode("exact", neighbours, number, size, space)
            )
        power = math.prod(mode.weighted(space) for mode, space in zip(modes, spaces, strict=True))
        return _Noise(tuple(modes), neighbours.white(modes)[0], power)

    def scales(self, clip: Clip, multiplier: float) -> dict[str, dict[str, float]]:
        """Return s_p for each parameter, by layer."""
        if not isinstance(clip, LInf):
            return {
                layer: {own: multiplier * clip.bound * noise.reach for own, noise in entries.items()}
                for layer, entries in self._noises.items()
            }
        # least sum of power s^2 with sum (c reach / s)^2 = 1 / z^2, by Lagrange
        whole = math.fsum(n.reach * math.sqrt(n.power) for entries in self._noises.values() for n in entries.values())
        each = multiplier * clip.linf_clip_norm
        return {
            layer: {own: each * math.sqrt(n.reach / math.sqrt(n.power) * whole) for own, n in entries.items()}
            for layer, entries in self._noises.items()
        }

    def room(self, examples: int) -> float:
        """Return what whitening in double precision may add, relatively: the most for any parameter."""
        worst = max(noise.amplified * self._stretch(noise) for own in self._noises.values() for noise in own.values())
        return 4 * examples * worst * 2.0**-53

    def _stretch(self, noise: _Noise) -> float:
        """Return how long the contributions can be whose whitened length is at most `reach`."""
        return math.sqrt(noise.size) if self._box else 1.0

    def release(self, sums: Sums, clip: Clip, multiplier: float, expected: float, rng: np.random.Generator) -> Sums:
        scales = self.scales(clip, multiplier)
        noises = [
            (noise, sums[layer][own], scales[layer][own])
            for layer, entries in self._noises.items()
            for own, noise in entries.items()
        ]
        white = np.empty(sum(noise.size for noise, _, _ in noises))
        rows = np.split(white, np.cumsum([noise.size for noise, _, _ in noises])[:-1])
        for (noise, total, scale), row in zip(noises, rows, strict=True):
            noise.whiten(total, scale, row)
        add_noise_to_all(rows, rng, sigma=1.0, unit=1.0)
        made = iter(noise.colour(row, scale / expected) for (noise, _, scale), row in zip(noises, rows, strict=True))
        return {layer: {own: next(made) for own in entries} for layer, entries in self._noises.items()}

    def law(self, sums: Sums, clip: Clip, multiplier: float, expected: float) -> Noise:
        scales = self.scales(clip, multiplier)
        noises = [
            (noise, (scales[layer][own] / expected) ** 2)
            for layer, entries in self._noises.items()
            for own, noise in entries.items()
        ]

        def turned(gradient: FloatArray, back: bool) -> FloatArray:
            ends = np.cumsum([noise.size for noise, _ in noises])[:-1]
            parts = zip(np.split(gradient, ends, axis=-1), noises, strict=True)
            return np.concatenate([noise.turned(part, back=back) for part, (noise, _) in parts], axis=-1)

        variances = np.concatenate([scale * noise.spectrum for noise, scale in noises])
        if not any(noise.correlated for noise, _ in noises):
            return EntryNoise(variances)
        return EntryNoise(variances, Turn(partial(turned, back=False), partial(turned, back=True)))
