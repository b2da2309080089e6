"""What noise does to a gradient: its direction, its magnitude, and how far one step of descent ends up.

`VectorNoise` adds normal noise to every entry (DP-SGD), `EntryNoise` more to some than to others, and `SphericalNoise`
adds it to the magnitude and to the angles (GeoDP). `predicted` gives the expected errors of each, `measured`
those of a sample of noisy gradients, and `efficiency_difference` the measure of one step in Duan 2024.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from scipy.special import ndtr

from noisette import _validate
from noisette._random import Rng, generator
from noisette._validate import FloatArray
from noisette.mechanisms.geometric.spherical import from_spherical, to_spherical
from noisette.sgd.theory.angles import folded, wrapped
from noisette.sgd.theory.lengths import length_and_cosine
from noisette.sgd.theory.turns import normal_turns

__all__ = [
    "EfficiencyDifference",
    "EntryNoise",
    "GradientErrors",
    "SphericalNoise",
    "Turn",
    "VectorNoise",
    "efficiency_difference",
    "expected_efficiency_difference",
    "measured",
    "predicted",
]

_DRAWN, _BLOCK = 1 << 23, 32  # numbers drawn where no integral is known, and draws at a time


@dataclass(frozen=True)
class VectorNoise:
    """Normal noise on every entry of a gradient, with this standard deviation: C sigma / B in DP-SGD."""

    std: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "std", _validate.positive(self.std, "std"))

    def draw(self, gradient: Any, count: int, *, rng: Rng = None) -> FloatArray:
        """Return noisy copies of a gradient, for experiments: this noise is not safe to publish."""
        clean = _flat(gradient, "gradient")
        return np.asarray(clean + self.std * generator(rng).standard_normal((count, clean.size)))

    def mean(self, gradient: FloatArray) -> FloatArray:
        """Return the expected noisy gradient."""
        return gradient

    def square(self, gradient: FloatArray) -> float:
        """Return the expected squared length of the noisy gradient."""
        return float(gradient @ gradient) + gradient.size * self.std**2

    def errors(self, gradient: FloatArray) -> GradientErrors:
        """Return the expected errors: integrals over a few independent variables."""
        return EntryNoise(np.full(gradient.size, self.std**2)).errors(gradient)


@dataclass(frozen=True, eq=False)
class Turn:
    """An orthogonal map of vectors, one or many along the last axis, and the way back."""

    there: Callable[[FloatArray], FloatArray]
    back: Callable[[FloatArray], FloatArray]


@dataclass(frozen=True, eq=False)
class EntryNoise:
    """Normal noise with a variance for each entry: budgets by layer, or a covariance along each mode of a tensor.

    Where entries are correlated, they are not after ``turn``, and ``variances`` are those behind it. An entry then
    depends on the length of those behind it, for which no integral is known: the error of the angles is the mean over
    draws of the noise, always the same ones, with a standard error.
    """

    variances: FloatArray
    turn: Turn | None = None

    def mean(self, gradient: FloatArray) -> FloatArray:
        """Return the expected noisy gradient."""
        return gradient

    def square(self, gradient: FloatArray) -> float:
        """Return the expected squared length of the noisy gradient."""
        return float(gradient @ gradient) + float(self.variances.sum())

    def errors(self, gradient: FloatArray) -> GradientErrors:
        """Return the expected errors, by integrals over a few independent variables."""
        if self.turn is None:
            length, cosine = length_and_cosine(gradient, self.variances)
            return _errors(self, gradient, float(normal_turns(gradient, self.variances).mean()), cosine, length)
        length, cosine = length_and_cosine(self.turn.there(gradient), self.variances)
        turns, error = self._drawn_turns(gradient, self.turn)
        return replace(_errors(self, gradient, turns, cosine, length), standard_errors=(error, 0.0, 0.0, 0.0))

    def _drawn_turns(self, gradient: FloatArray, turn: Turn) -> tuple[float, float]:
        """Return the mean squared error of the angles over draws of the noise, and its standard error."""
        rng, stds = np.random.default_rng(0), np.sqrt(self.variances)
        blocks = min(max(_DRAWN // (_BLOCK * gradient.size), 4), 512)
        found = []
        for _ in range(blocks):
            drawn = stds * rng.standard_normal((_BLOCK, gradient.size))
            found.append(measured(gradient + turn.back(drawn), gradient))
        errors = [one.standard_errors[0] for one in found if one.standard_errors is not None]
        return math.fsum(one.direction for one in found) / blocks, math.hypot(*errors) / blocks


@dataclass(frozen=True)
class SphericalNoise:
    """Normal noise on the magnitude and on each angle, after a share ``beta`` of the angles' range was kept.

    GeoDP as printed (Duan 2024, Algorithm 5) has C sigma / B and sqrt(d + 2) beta pi sigma / B; the standard deviations
    of a sound one are the ``sigmas`` of `noisette.AngleGaussian`. ``centre`` is a magnitude and angles to which the
    noise is added in place of the gradient's own: means over examples, for one.
    """

    magnitude_std: float
    angle_std: float
    beta: float = 1.0
    centre: tuple[float, FloatArray] | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        for name in ("magnitude_std", "angle_std"):
            object.__setattr__(self, name, _validate.positive(getattr(self, name), name))
        if not 0 < _validate.number(self.beta, "beta") <= 1:
            raise ValueError(f"Expected beta={self.beta!r} in (0, 1]: the share of the angles' range that is kept.")

    def kept(self, gradient: FloatArray) -> tuple[float, FloatArray, FloatArray]:
        """Return the magnitude that gets noise, the gradient's angles, and the angles that get noise."""
        if gradient.size < 2:
            raise ValueError("Expected a gradient of two entries or more: one number has no direction.")
        magnitude, angles = to_spherical(gradient)
        if self.centre is not None:
            return self.centre[0], angles, self.centre[1]
        left = np.clip(angles, (1 - self.beta) * math.pi, math.pi)
        left[-1] = np.clip(angles[-1], -self.beta * math.pi, self.beta * math.pi)
        return float(magnitude), angles, left

    def draw(self, gradient: Any, count: int, *, rng: Rng = None) -> FloatArray:
        """Return noisy copies of a gradient, for experiments: this noise is not safe to publish."""
        magnitude, _, left = self.kept(_flat(gradient, "gradient"))
        source = generator(rng)
        sizes = magnitude + self.magnitude_std * source.standard_normal(count)
        return np.asarray(from_spherical(sizes, left + self.angle_std * source.standard_normal((count, left.size))))

    def mean(self, gradient: FloatArray) -> FloatArray:
        """Return the expected noisy gradient: noise of deviation t multiplies each sine and cosine by exp(-t^2/2)."""
        magnitude, _, left = self.kept(gradient)
        return magnitude * self._direction(left)

    def square(self, gradient: FloatArray) -> float:
        """Return the expected squared length of the noisy gradient: that of its magnitude."""
        return self.kept(gradient)[0] ** 2 + self.magnitude_std**2

    def _direction(self, left: FloatArray) -> FloatArray:
        """Return the expected unit vector of noisy angles."""
        damped = math.exp(-(self.angle_std**2) / 2)
        before = np.append(1.0, np.cumprod(damped * np.sin(left)))
        return np.append(before[:-1] * damped * np.cos(left), before[-1])

    def errors(self, gradient: FloatArray) -> GradientErrors:
        """Return the expected errors, in closed form.

        An angle that noise takes past 0 or pi is folded back, and then all that follow point the other way: angle z is
        pi minus itself where an odd number of the sines before it, and of the magnitude, are negative.
        """
        magnitude, angles, left = self.kept(gradient)
        first, second, sign = folded(left, self.angle_std)
        forward = 2 * float(ndtr(magnitude / self.magnitude_std)) - 1  # expected sign of the magnitude
        straight = (1 + np.append(forward, forward * np.cumprod(sign[:-1]))) / 2  # chance of an even number before
        even = second - 2 * angles * first + angles**2
        odd = math.pi**2 - 2 * math.pi * (first + angles) + second + 2 * angles * first + angles**2
        apart = left[-1] - angles[-1]
        even[-1], odd[-1] = (wrapped(apart + turn, self.angle_std) for turn in (0.0, math.pi))
        turns = straight * even + (1 - straight) * odd
        own = math.sqrt(float(gradient @ gradient))
        unit = gradient / own if own > 0 else np.zeros_like(gradient)
        reach = magnitude / self.magnitude_std
        length = self.magnitude_std * math.sqrt(2 / math.pi) * math.exp(-(reach**2) / 2) + magnitude * forward
        return _errors(self, gradient, float(turns.mean()), forward * float(unit @ self._direction(left)), length)


Noise = VectorNoise | EntryNoise | SphericalNoise


@dataclass(frozen=True)
class GradientErrors:
    """Errors of a noisy gradient: of its direction, of its magnitude, and of its entries.

    ``direction`` is the mean squared error of an angle, the last one taken around the circle; ``cosine`` the expected
    cosine between noisy and clean gradient; ``magnitude`` the mean squared error of the length; ``gradient`` that of an
    entry. ``standard_errors`` are those of a measurement, or of a prediction by draws, in the same order.
    """

    direction: float
    cosine: float
    magnitude: float
    gradient: float
    standard_errors: tuple[float, float, float, float] | None = None


def predicted(noise: Noise, gradient: Any) -> GradientErrors:
    """Return the expected errors of a way of noise for one gradient: exact, or with standard errors.

    >>> g = np.full(100, 0.01)
    >>> plain, geo = predicted(VectorNoise(0.01), g), predicted(SphericalNoise(0.01, 0.1), g)
    >>> round(plain.cosine, 3), round(geo.cosine, 3)
    (0.708, 0.785)
    """
    return noise.errors(_flat(gradient, "gradient"))


def measured(perturbed: Any, gradient: Any) -> GradientErrors:
    """Return the errors of a sample of noisy gradients, one in each row, with their standard errors."""
    clean = _flat(gradient, "gradient")
    rows = _plain(perturbed, "perturbed")
    _validate.trailing(rows, clean.shape, "perturbed")
    rows = rows.reshape(-1, clean.size)
    if clean.size < 2 or len(rows) < 2:
        raise ValueError(f"Expected two rows or more of two entries or more, got shape {rows.shape}.")
    magnitude, angles = to_spherical(clean)
    lengths, turned = to_spherical(rows)
    apart = turned - angles
    apart[:, -1] = (apart[:, -1] + math.pi) % (2 * math.pi) - math.pi
    with np.errstate(invalid="ignore", divide="ignore"):
        cosine = np.nan_to_num(rows @ clean / (lengths * magnitude))
    found = np.stack(
        [
            np.square(apart).mean(axis=1),
            cosine,
            np.square(lengths - magnitude),
            np.square(rows - clean).mean(axis=1),
        ]
    )
    direction, turning, size, entry = (float(mean) for mean in found.mean(axis=1))
    errors = found.std(axis=1, ddof=1) / math.sqrt(len(rows))
    spread = float(errors[0]), float(errors[1]), float(errors[2]), float(errors[3])
    return GradientErrors(direction, turning, size, entry, spread)


@dataclass(frozen=True)
class EfficiencyDifference:
    """How much farther from the optimum a noisy step ends than a clean one, squared: item A and item B of Theorem 6.

    Item A comes from the length of the noise and is positive on average; item B from its direction.
    """

    item_a: float
    item_b: float

    @property
    def total(self) -> float:
        """|w* - noisy step|^2 - |w* - clean step|^2."""
        return self.item_a + self.item_b


def efficiency_difference(
    perturbed: Any, gradient: Any, weights: Any, optimum: Any, *, learning_rate: float
) -> EfficiencyDifference:
    """Return the efficiency difference of one step.

    Formula: eta^2 (|g~|^2 - |g|^2) + 2 eta <g~ - g, w* - w>, g~ the noisy gradient. With g~ = g + C n / B that is
    eta^2 (2 C <n, g> / B + C^2 |n|^2 / B^2) + (2 eta C / B) <n, w* - w>.
    Tensors of torch are taken as they are; gradients and weights may have any shape, if all have the same.
    Duan 2024, Theorem 6; at the optimum item B vanishes and item A does not (Corollary 1).

    >>> step = efficiency_difference([1.5, 0.0], [1.0, 0.0], [2.0, 0.0], [0.0, 0.0], learning_rate=0.1)
    >>> round(step.item_a, 4), round(step.item_b, 4), round(1.85**2 - 1.9**2, 4)
    (0.0125, -0.2, -0.1875)
    """
    clean, noisy, gap = _step(gradient, perturbed, weights, optimum)
    rate = _validate.positive(learning_rate, "learning_rate")
    moved = noisy - clean
    # (g~ - g)(g~ + g), not a difference of squares: small noise would cancel there
    return EfficiencyDifference(rate**2 * float(moved @ (noisy + clean)), 2 * rate * float(moved @ gap))


def expected_efficiency_difference(
    noise: Noise, gradient: Any, weights: Any, optimum: Any, *, learning_rate: float
) -> EfficiencyDifference:
    """Return the expected efficiency difference of one step, over the noise.

    Formula: eta^2 (E|g~|^2 - |g|^2) + 2 eta <E g~ - g, w* - w>. For noise on the vector that is eta^2 d s^2 and 0: on
    average its direction does no harm. Noise on the angles is not centred on the gradient: its item B is not 0.
    Corollary 2 says that clipping and learning rate cannot lower item B; its spread is 2 eta s |w* - w|, and both do.
    Duan 2024, Theorem 6, Corollaries 1 and 2.

    >>> at = np.zeros(100)
    >>> step = expected_efficiency_difference(VectorNoise(0.1), at + 0.1, at, at, learning_rate=0.5)
    >>> round(step.item_a, 6), step.item_b
    (0.25, 0.0)
    """
    clean, _, gap = _step(gradient, gradient, weights, optimum)
    rate = _validate.positive(learning_rate, "learning_rate")
    longer = noise.square(clean) - float(clean @ clean)
    return EfficiencyDifference(rate**2 * longer, 2 * rate * float((noise.mean(clean) - clean) @ gap))


def _errors(noise: Noise, gradient: FloatArray, direction: float, cosine: float, length: float) -> GradientErrors:
    """Put the expected errors together, from the expected cosine and length."""
    own, square = float(gradient @ gradient), noise.square(gradient)
    apart = square - 2 * float(noise.mean(gradient) @ gradient) + own
    return GradientErrors(direction, cosine, square - 2 * math.sqrt(own) * length + own, apart / gradient.size)


def _step(gradient: Any, perturbed: Any, weights: Any, optimum: Any) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return clean and noisy gradient and w* - w, checked to be of one shape."""
    named = {"gradient": gradient, "perturbed": perturbed, "weights": weights, "optimum": optimum}
    plain = {name: _plain(value, name) for name, value in named.items()}
    shapes = {name: array.shape for name, array in plain.items()}
    if len(set(shapes.values())) > 1:
        raise ValueError(f"Expected gradient, perturbed, weights and optimum of one shape, got {shapes}.")
    clean, noisy, place, best = (_flat(array, name) for name, array in plain.items())
    return clean, noisy, best - place


def _flat(x: Any, name: str) -> FloatArray:
    """Return an array or a tensor as one finite vector."""
    values = _plain(x, name).reshape(-1)
    if not np.isfinite(values).all():
        raise ValueError(f"Expected {name} to be finite, got {values[~np.isfinite(values)][0]}.")
    return values


def _plain(x: Any, name: str) -> FloatArray:
    return _validate.reals(x.detach().cpu().double().numpy() if hasattr(x, "detach") else x, name)
