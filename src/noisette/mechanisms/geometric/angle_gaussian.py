"""GeoDP's perturbation of a vector: Gaussian noise on its magnitude and on its angles."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from noisette import _validate
from noisette._validate import FloatArray
from noisette.cells import Cells
from noisette.core import Capabilities, EventDeclared, GaussianEvent, Moments, Readout, Tail
from noisette.domains import L2Ball, Sphere
from noisette.guarantees import Claim, Guarantee, gaussian_delta, gaussian_epsilon, gaussian_mu, warn_unsound
from noisette.mechanisms._base import coarseness, power_of_two
from noisette.mechanisms.geometric._angles import TINY, AngleMechanism, SphericalLattice, conceded
from noisette.mechanisms.tensor.gaussian._normal import STEPS, add_noise

_FINENESS = 2.0**20  # output steps in a standard deviation


@dataclass(frozen=True)
class AngleGaussian(AngleMechanism, EventDeclared):
    """Add Gaussian noise to the magnitude and to each angle of a vector.

    Formula: x in spherical coordinates is (|x|, theta_1, ..., theta_{d-1}). The first d - 2 angles are clipped to
    [(1 - beta) pi, pi], the last to [-beta pi, beta pi]. The report is (|x| + N(0, s^2), theta + N(0, t^2 I)) with
    s = sqrt(2) C / (B m), t = sqrt(2 (d + 2)) beta pi / m, m the mu of (epsilon, delta).
    `decode` turns a report into a vector. ``batch`` is the number B of clipped gradients that x is the mean of.

    *Guarantee*: (epsilon, delta)-DP; two releases that share the squared mu. With ``batch=1`` for any two vectors, in
    the local model; above that for one of the B examples, added or removed, in the central model. That changes the
    magnitude of the mean by C / B, but it can turn the mean around: the noise on the angles is not divided by B.
    Magnitude and angles are rounded to a lattice of 2^-36 standard deviations, and noise is added there by an exact
    sampler; rounding is inside epsilon. ``as_published=True`` divides the noise on the angles by B too, and gives
    either release the whole budget, as Theorem 7 claims. What holds is sqrt(1 + B^2) times the mu. Lemma 7's delta, up
    to 1 - beta, is not claimed here.
    *Utility*: unbiased for `target`, the magnitude and the clipped angles. Clipping is the price of a small beta: at
    beta = 1/2 or less no direction is kept of which one of the first d - 2 entries is positive. The noise of an angle
    grows with sqrt(d), and at the same guarantee plain noise (`TensorGaussian`) keeps directions better: for random
    unit vectors in 10 dimensions at (8, 1e-5) its expected cosine is 0.25, here 0.08 at beta = 0.1 and 0 at beta = 1.
    `noisette.sgd.theory.steps` predicts both.
    Duan 2024, Algorithm 5, Theorem 7; calibration by Balle, Wang 2018, Theorem 8.

    >>> m = AngleGaussian(epsilon=8.0, domain=L2Ball(3, 0.1), delta=1e-5, beta=0.5)
    >>> m.decode(m.privatize([[0.01, -0.02, 0.03]], rng=7)).shape, [round(float(s), 3) for s in m.sigmas[:2]]
    ((1, 3), [0.085, 2.982])
    """

    epsilon: float
    dims: int = None  # type: ignore[assignment]  # taken from the domain
    _: KW_ONLY
    domain: L2Ball = None  # type: ignore[assignment]  # __post_init__ puts L2Ball(dims)
    delta: float = 1e-6
    beta: float = 1.0
    batch: int = 1
    as_published: bool = False
    name: ClassVar[str] = "angle-gaussian"
    capabilities: ClassVar[Capabilities] = replace(
        AngleMechanism.capabilities, delta="needed", gaussian=True, unbounded=True
    )
    citation: ClassVar[str] = "duan2024benchmarking"
    uncertified: ClassVar[str] = (
        "as published it does not hold, and of a mean of examples the verifier does not know how far one moves it"
    )

    def __post_init__(self) -> None:
        self._settle_angles()
        object.__setattr__(self, "delta", _validate.delta(self.delta, positive=True))
        object.__setattr__(self, "batch", _validate.integer(self.batch, "batch", low=1))
        if self._whole_mu <= 2 * self._lattice_mu:
            raise ValueError(
                f"Expected epsilon={self.epsilon!r} and delta={self.delta!r} to be larger for {self.dims:,} entries: "
                "rounding to the lattice would use up half of them."
            )
        if not self.guarantee.claim_holds:
            warn_unsound(f"{type(self).__name__}(as_published=True)", self.guarantee)

    @cached_property
    def _whole_mu(self) -> float:
        return gaussian_mu(self.epsilon, self.delta) * (1 - 1e-12)

    @property
    def _lattice_mu(self) -> float:
        """What rounding to the lattice adds to mu."""
        return math.sqrt(self.dims) / STEPS

    @property
    def _moves(self) -> tuple[float, float]:
        """How far neighbours' magnitudes and angles are apart at most."""
        return self.domain.radius / self.batch, self.diameter

    @cached_property
    def sigmas(self) -> FloatArray:
        """Standard deviation of the noise on the magnitude and on each angle."""
        magnitude, angles = self._moves
        if self.as_published:
            scale, angles = 1 / gaussian_mu(self.epsilon, self.delta), angles / self.batch
        else:
            scale = math.sqrt(2) / (self._whole_mu - self._lattice_mu)
        return np.asarray([scale * magnitude] + [scale * angles] * (self.dims - 1))

    @property
    def mu(self) -> float:
        """One release is mu-GDP, rounding included."""
        magnitude, angles = self._moves
        white = math.hypot(magnitude / self.sigmas[0], angles / self.sigmas[1])
        return float((white + self._lattice_mu) * (1 + 1e-12))

    def privacy_event(self) -> GaussianEvent:
        """Return what accounting composes."""
        return GaussianEvent(self.mu)

    @property
    def rho(self) -> float:
        """One release is rho-zCDP: its Renyi divergence at order a is a mu^2 / 2."""
        return self.mu**2 / 2

    @cached_property
    def guarantee(self) -> Guarantee:
        """Return what holds for one vector, or for one of the examples that it is the mean of."""
        true = gaussian_epsilon(self.mu, self.delta) if self.as_published else self.epsilon
        if self.batch == 1:
            claim = Claim(
                self.epsilon,
                self.delta,
                source=self.citation,
                reading=conceded(self.beta, as_published=self.as_published),
            )
            return Guarantee(true, self.delta, claim=claim)
        fails = gaussian_delta(self.mu, self.epsilon) > self.delta + 1 - self.beta
        reading = conceded(self.beta, as_published=self.as_published, fails=fails)
        claim = Claim(self.epsilon, self.delta, "example", self.citation, reading)
        return Guarantee(true, self.delta, "example", "central", "add-remove", claim)

    @cached_property
    def support(self) -> SphericalLattice:
        """Rows on a public lattice, a power of two far below the noise."""
        low, high = self._ends
        middle = (low + high) / 2
        spread = [power_of_two(float(sigma)) / _FINENESS for sigma in self.sigmas[:2]]
        steps = np.asarray([spread[0]] + [spread[1]] * (self.dims - 1))
        steps = np.maximum(steps, np.exp2(np.floor(np.log2(np.maximum(np.abs(middle), 1e-300))) - 46))
        endless = np.full(self.dims, math.inf)
        return SphericalLattice(steps * np.rint(middle / steps), steps, -endless, endless)

    def _perturb(self, rows: FloatArray, rng: np.random.Generator, reports: npt.NDArray[Any]) -> None:
        lattice = self.support
        centred = self._clipped(rows, self._ends)
        centred -= lattice.origins
        for columns, place in ((slice(1), 0), (slice(1, None), 1)):
            work = np.ascontiguousarray(centred[:, columns])
            add_noise(work.reshape(-1), rng, sigma=float(self.sigmas[place]), unit=float(lattice.steps[place]))
            reports[:, columns] = np.rint(work, out=work)
        reports *= lattice.steps
        reports += lattice.origins

    def written_law(self) -> dict[str, Any] | None:
        """Return the noise on the length and on the angles, and the ranges they are clipped to; None for a mean."""
        if self.as_published or self.batch > 1:
            return None
        low, high = (end[[0, 1, -1]] for end in self._ends)
        width = [Fraction(float(last)) - Fraction(float(first)) for first, last in zip(low, high, strict=True)]
        parts = zip((1, self.dims - 2, 1), width, self.sigmas[[0, 1, -1]].tolist(), strict=True)
        many, far, sigma = zip(*(law for law in parts if law[0]), strict=True)
        return {"kind": "ranges", "many": many, "width": far, "sigma": sigma}

    def _codes(self, rows: npt.NDArray[Any]) -> FloatArray:
        return self.support.index(rows)

    def _released(self, x: Any) -> FloatArray:
        """Return what noise is added to: the target, rounded to the lattice of the noise."""
        origins, cell = self.support.origins, self.sigmas / STEPS
        return np.asarray(origins + cell * np.rint((self.target(x) - origins) / cell))

    def moments(self, x: Any) -> Moments:
        """Return the moments of normal noise; rounding to the lattice moves them by less than 2^-20 of a deviation."""
        shape = self.target(x).shape
        variance = np.broadcast_to(self.sigmas**2, shape).copy()
        return Moments(np.zeros(shape), variance, 2 * math.sqrt(2 / math.pi) * variance**1.5)

    def log_prob(self, report: Any, x: Any) -> FloatArray:
        """Return the log density of a report."""
        white = (np.asarray(report, dtype=float) - self._released(x)) / self.sigmas
        return np.asarray(-np.square(white).sum(axis=-1) / 2 - self.dims / 2 * math.log(2 * math.pi) - self._log_volume)

    @property
    def _log_volume(self) -> float:
        return math.log(self.sigmas[0]) + (self.dims - 1) * math.log(self.sigmas[1])

    @property
    def _pair(self) -> tuple[FloatArray, FloatArray]:
        """Two neighbours as far apart as any: one example turns the mean around, and moves it by C / B.

        On a sphere all inputs have one length, and only the noise on the angles tells them apart.
        """
        if isinstance(self.domain, Sphere):
            return self._extremes(self.domain.radius, self.domain.radius)
        longest = self.domain.radius / self.batch
        return self._extremes(TINY * longest, longest)

    def witnesses(self) -> tuple[FloatArray, FloatArray]:
        """Return two neighbours as far apart as any, and reports near them."""
        inputs = np.stack(self._pair)
        targets = self.target(inputs)
        beyond = 2 * targets - targets.mean(axis=0)
        return inputs, self.support.nearest(np.concatenate([targets, beyond]))

    def dissect(self) -> Iterator[Cells]:
        """Cut the space of reports across the line through the worst neighbours.

        Only the distance in standard deviations matters, and delta grows with it. Rounding to the lattice is monotone,
        so what two rounded inputs differ by is largest between the ends of the range, where these neighbours are.
        """
        yield self._cells(*self._pair)

    def cut(self, first: Any, second: Any) -> Cells | None:
        """Cut the space of reports across the line through any two vectors' magnitudes and angles."""
        return None if np.array_equal(self._released(first), self._released(second)) else self._cells(first, second)

    def _cells(self, *pair: Any) -> Cells:
        first, second = self._released(np.stack(pair))
        white = (first - second) / self.sigmas
        unit = self.sigmas * white / np.linalg.norm(white)
        return Cells.normal((pair[0], pair[1]), (first + second) / 2, unit, self._log_volume, self.dims)

    @cached_property
    def readout(self) -> Readout:
        """The plain mean of the reports: a magnitude and angles, which `decode` turns into a vector."""
        low, high = self._ends
        lattice, half = self.support, (high - low) / 2
        spread = np.maximum(self.sigmas, half) / lattice.steps
        coarse = np.ones(self.dims)
        for size in np.unique(spread):
            coarse[spread == size] = coarseness(float(size))
        return Readout(
            offset=lattice.origins,
            scale=lattice.steps,
            low=low,
            high=high,
            tail=Tail(self.sigmas**2 + (half + lattice.steps) ** 2, 0.0),
            coarse=coarse,
        )
