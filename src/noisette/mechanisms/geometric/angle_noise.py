"""LDPVec's perturbation of a vector: a mechanism for numbers on its magnitude and on each of its angles."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from noisette import _validate
from noisette._validate import FloatArray
from noisette.cells import Cells
from noisette.core import Capabilities, Moments, Readout, Tail
from noisette.domains import BoolArray, L2Ball, Sphere
from noisette.guarantees import Claim, Guarantee, gaussian_delta, gaussian_epsilon, gaussian_mu, warn_unsound
from noisette.mechanisms._base import ScalarMechanism, power_of_two
from noisette.mechanisms.geometric._angles import TINY, AngleMechanism, SphericalLattice, conceded, ranges
from noisette.mechanisms.geometric.spherical import from_spherical
from noisette.mechanisms.vector.sampled import Sampled

_PUBLISHED = ("laplace", "piecewise", "gaussian")
_FINENESS = 2.0**40  # steps in a range, of what is published without noise or on no lattice of the noise


@dataclass(frozen=True)
class AngleRows:
    """Rows whose angles, and magnitude unless it is on a lattice of its own, a mechanism for numbers has sent."""

    channel: ScalarMechanism
    middle: FloatArray
    gain: FloatArray
    magnitude: SphericalLattice | None

    def __str__(self) -> str:
        return f"rows of a magnitude and angles, each a report of {self.channel.name}: {self.channel.support}"

    def index(self, reports: npt.NDArray[Any]) -> FloatArray:
        """Return the integers that stand for the nearest reports."""
        rows = np.asarray(reports, dtype=float)
        first = rows.shape[-1] - self.gain.size
        index = np.empty(rows.shape)
        index[..., first:] = self.channel.support.index((rows[..., first:] - self.middle) / self.gain)
        if self.magnitude is not None:
            index[..., :1] = self.magnitude.index(rows[..., :1])
        return index

    def contains(self, reports: npt.NDArray[Any]) -> BoolArray:
        """Tell which rows could have been sent."""
        rows = np.asarray(reports, dtype=float)
        finite = np.isfinite(rows).all(axis=-1)
        rows = np.where(finite[..., None], rows, 0.0)
        first = rows.shape[-1] - self.gain.size
        sent = self.channel.support.value(self.index(rows)[..., first:])
        same = (self.middle + self.gain * sent == rows[..., first:]) & self.channel.support.contains(sent)
        kept = True if self.magnitude is None else self.magnitude.contains(rows[..., :1])
        return np.asarray(finite & same.all(axis=-1) & kept)


@dataclass(frozen=True)
class AngleNoise(AngleMechanism):
    """Send the magnitude and each angle of a vector through a mechanism for one number.

    Formula: x in spherical coordinates is (|x|, theta_1, ..., theta_{d-1}). The first d - 2 angles are clipped to
    [(1 - beta) pi, pi], the last to [-beta pi, beta pi]; each of them, and |x| in [0, C], goes through ``noise`` with
    the budget epsilon / d. On a `Sphere` the length is public: it is not sent, and angles get epsilon / (d - 1).

    *Guarantee*: epsilon-LDP for the vector, by composition. ``noise="gaussian"`` takes a ``delta``, and its parts share
    the squared mu. ``as_published=True`` is Algorithm 6: it keeps the magnitude as it is, clips no angle, and adds to
    each the noise of a number in [-1, 1] times half of beta d pi, or with Gaussian noise half of beta sqrt(d + 2) pi.
    On a ball nothing holds, epsilon is infinite: the magnitude distinguishes inputs. On a sphere Laplace and Gaussian
    noise keep epsilon / beta and mu / beta, and Piecewise nothing, since its reports then move with the angle.
    *Utility*: unbiased for `target`, the magnitude and the clipped angles, if ``noise`` is. Budgets fall as 1 / d, and
    soon the noise of an angle goes around the circle. For random unit vectors at epsilon = 8 the mean cosine between
    report and truth is 0.80 in 3 dimensions and 0.05 in 10 (Piecewise, beta = 1); PrivUnitG has 0.83 and 0.66.
    Duan 2024, Algorithm 6, Theorem 14.

    >>> m = AngleNoise(epsilon=6.0, domain=Sphere(3), noise="laplace")
    >>> m.channel.epsilon, m.decode(m.privatize([[0.6, 0.0, 0.8]], rng=7)).shape
    (3.0, (1, 3))
    """

    epsilon: float
    dims: int = None  # type: ignore[assignment]  # taken from the domain
    _: KW_ONLY
    domain: L2Ball = None  # type: ignore[assignment]  # __post_init__ puts L2Ball(dims)
    noise: str = "piecewise"
    delta: float = 0.0
    beta: float = 1.0
    as_published: bool = False
    name: ClassVar[str] = "angle-noise"
    capabilities: ClassVar[Capabilities] = replace(
        AngleMechanism.capabilities, delta="optional", adjustable=frozenset({"noise", "beta"})
    )
    citation: ClassVar[str] = "duan2024benchmarking"
    uncertified: ClassVar[str] = "as published it keeps no finite epsilon, or keeps the length as it is"

    @classmethod
    def declared(cls, **options: Any) -> Capabilities:
        """Return what the mechanism can do: with Gaussian noise it takes a mu."""
        gaussian = options.get("noise") == "gaussian"
        return replace(cls.capabilities, delta="needed" if gaussian else "none", gaussian=gaussian)

    def __post_init__(self) -> None:
        self._settle_angles()
        object.__setattr__(self, "delta", _validate.delta(self.delta))
        if self.delta > 0 and self.noise != "gaussian":
            raise ValueError(f"Expected delta=0 for noise={self.noise!r}, got {self.delta}: only 'gaussian' takes one.")
        if self.as_published and self.noise not in _PUBLISHED:
            raise ValueError(f"Expected noise={self.noise!r} to be one of {_PUBLISHED}: others were not published.")
        _ = self.channel  # a wrong mechanism is refused now, not at the first report
        if not self.guarantee.claim_holds:
            warn_unsound(f"{type(self).__name__}(as_published=True)", self.guarantee)

    @property
    def _fixed(self) -> bool:
        """Tell whether the length of the vectors is public."""
        return isinstance(self.domain, Sphere)

    @property
    def _sent(self) -> slice:
        """The coordinates that get noise."""
        return slice(1 if self._fixed or self.as_published else 0, None)

    @cached_property
    def _joint(self) -> Sampled:
        """The mechanism for all coordinates that get noise, on [-1, 1] each."""
        count = self.dims - int(self._sent.start)
        budget, delta = self.epsilon, 0.0
        if self.noise == "gaussian" and self.delta > 0:
            mu = gaussian_mu(self.epsilon, self.delta) * (1 - 1e-8)
            mu *= 2 / (self.beta * math.sqrt(self.dims + 2)) if self.as_published else 1 / math.sqrt(count)
            point = mu * (6 + mu / 2)  # of its curve, where delta is below 1e-9 for any mu
            budget, delta = count * point, count * float(gaussian_delta(mu, point))
        elif self.as_published:
            budget = count * self.epsilon * (1 if self.noise == "piecewise" else 2 / (self.beta * self.dims))
        return Sampled(self.noise, budget, count, report=count, delta=delta)

    @property
    def channel(self) -> ScalarMechanism:
        """The mechanism that each coordinate goes through, on [-1, 1]."""
        return self._joint.inner_mechanism

    @cached_property
    def guarantee(self) -> Guarantee:
        """Return what holds for the vector, beside what was published."""
        claim = Claim(
            self.epsilon, self.delta, source=self.citation, reading=conceded(self.beta, as_published=self.as_published)
        )
        return Guarantee(self._true_epsilon if self.as_published else self.epsilon, self.delta, claim=claim)

    @property
    def _true_epsilon(self) -> float:
        """What Algorithm 6 keeps."""
        if not self._fixed or (self._slides and (self.dims > 2 or self.beta < 1)):
            return math.inf
        if self.delta > 0:
            return gaussian_epsilon(gaussian_mu(self.epsilon, self.delta) / self.beta, self.delta)
        return self.epsilon / self.beta

    @property
    def _slides(self) -> bool:
        """Tell whether reports are the angle plus noise of its own: additive noise is so anyway."""
        return self.as_published and self.noise == "piecewise"

    @cached_property
    def _kept_ends(self) -> tuple[FloatArray, FloatArray]:
        """Least and largest magnitude and angles before noise: Algorithm 6 clips none."""
        return ranges(self.dims, self.domain.radius, 1.0) if self.as_published else self._ends

    @cached_property
    def _maps(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Middle and half-width that take coordinates to [-1, 1], and what noise is multiplied by."""
        low, high = (end[self._sent] for end in self._kept_ends)
        if self.as_published and not self._slides:
            low, high = np.full((2, low.size), [[-math.pi], [math.pi]])
        middle, half = low + (high - low) / 2, (high - low) / 2
        return middle, half, np.full(half.size, self.beta * self.dims * math.pi / 2) if self._slides else half

    @cached_property
    def support(self) -> AngleRows | SphericalLattice:
        """Rows of reports of the channel, or on a lattice where they move with the angle."""
        middle, half, gain = self._maps
        if not self._slides:
            return AngleRows(self.channel, middle, gain, self._magnitude)
        reach = np.abs(half - gain) + gain * max(map(abs, (self.channel.support.low, self.channel.support.high)))
        kept, step = self._magnitude, power_of_two(float(gain[0])) / _FINENESS
        assert kept is not None  # as published the magnitude is kept
        return SphericalLattice(
            np.append(kept.origins, np.zeros(gain.size)),
            np.append(kept.steps, np.full(gain.size, step)),
            np.append(kept.least, middle - reach - step),
            np.append(kept.most, middle + reach + step),
        )

    @cached_property
    def _magnitude(self) -> SphericalLattice | None:
        """Magnitudes that are sent without noise, if they are: a public one, or those of Algorithm 6."""
        radius = np.full(1, self.domain.radius)
        if self._fixed:
            return SphericalLattice(radius, radius, radius, radius)
        step = np.full(1, power_of_two(self.domain.radius) / _FINENESS)
        return SphericalLattice(np.zeros(1), step, np.zeros(1), radius) if self.as_published else None

    def _canonical(self, targets: FloatArray) -> FloatArray:
        """Return the coordinates that get noise, on [-1, 1]."""
        middle, half, _ = self._maps
        return np.clip((targets[..., self._sent] - middle) / half, -1.0, 1.0)

    def _rows(self, targets: FloatArray, canonical: FloatArray, sent: FloatArray) -> FloatArray:
        """Return reports from what the channel sent about coordinates."""
        middle, half, gain = self._maps
        rows = np.empty(np.broadcast_shapes(targets.shape, (*sent.shape[:-1], self.dims)))
        angles = middle + gain * sent
        rows[..., self._sent] = angles + (half - gain) * canonical if self._slides else angles
        if self._magnitude is not None:
            nearest = self._magnitude.nearest(targets[..., :1])
            rows[..., :1] = np.minimum(nearest, self._magnitude.most)
        return self.support.nearest(rows) if isinstance(self.support, SphericalLattice) else rows

    def written_law(self) -> dict[str, Any] | None:
        """Return the law of the channel, by which each coordinate that is sent is drawn."""
        law = None if self.as_published else self.channel.written_law()
        if law is None:
            return None
        return {"kind": "coordinates", "dims": self.dims, "report": self.dims - int(self._sent.start), "part": law}

    def target(self, x: Any) -> FloatArray:
        """Return what is estimated: the magnitude and the angles of each vector, clipped unless as published."""
        return self._clipped(self._inputs(x), self._kept_ends)

    def _perturb(self, rows: FloatArray, rng: np.random.Generator, reports: npt.NDArray[Any]) -> None:
        targets = self._clipped(rows, self._kept_ends)
        canonical = self._canonical(targets)
        sent = self.channel.privatize(canonical.reshape(-1), rng=rng)  # each has its own share of the budget
        reports[...] = self._rows(targets, canonical, sent.reshape(canonical.shape))

    def _codes(self, rows: npt.NDArray[Any]) -> FloatArray:
        return self.support.index(rows)

    def moments(self, x: Any) -> Moments:
        """Return the exact moments of magnitude and angles."""
        targets, gain = self.target(x), self._maps[2]
        inner = self.channel.moments(self._canonical(targets))
        made = [np.zeros(targets.shape) for _ in range(3)]
        for power, (whole, sent) in enumerate(zip(made, (inner.bias, inner.variance, inner.third), strict=True)):
            whole[..., self._sent] = sent * gain ** (power + 1)
        return Moments(*made)

    def log_prob(self, report: Any, x: Any) -> FloatArray:
        """Return the log mass of a report, per unit of length on [-1, 1] where the channel's is."""
        rows, targets = np.asarray(report, dtype=float), self.target(x)
        canonical = self._canonical(targets)
        middle, half, gain = self._maps
        support = self.channel.support
        sent = support.value(support.index((rows[..., self._sent] - middle - (half - gain) * canonical) / gain))
        result = np.where(self.support.contains(rows), self.channel.log_prob(sent, canonical).sum(axis=-1), -np.inf)
        if self._magnitude is None:
            return result
        kept = np.minimum(self._magnitude.nearest(targets[..., :1]), self._magnitude.most)
        return np.where((rows[..., :1] == kept)[..., 0], result, -np.inf)

    def _ends_as_vectors(self) -> tuple[FloatArray, FloatArray]:
        radius = self.domain.radius
        return self._extremes(radius if self._fixed else TINY * radius, radius)

    def witnesses(self) -> tuple[FloatArray, FloatArray]:
        """Return vectors whose coordinates are at either end of the range, and reports that repeat the channel's."""
        inputs = np.stack(self._ends_as_vectors())
        targets = self.target(inputs)[:, None]
        sent = np.asarray(self.channel.witnesses()[1], dtype=float)[:, None]
        repeated = np.broadcast_to(sent, (sent.size, self._maps[2].size))
        return inputs, self._rows(targets, self._canonical(targets), repeated).reshape(-1, self.dims)

    def dissect(self) -> Iterator[Cells]:
        """Combine the cells of the channel, for vectors whose coordinates are all at one of two places.

        The coordinates are answered independently, and product laws are farthest apart where all factors are. As
        published only reports that show a tail without bound are returned.
        """
        if self.as_published and not (self._fixed and self.noise == "gaussian"):
            return
        for cells in self._joint.dissect():
            pair = self._vector(float(cells.pair[0][0])), self._vector(float(cells.pair[1][0]))
            nodes = tuple(self._rows(self.target(pair[0]), np.zeros(1), node.values) for node in cells.nodes)
            complete = cells.complete and not self.as_published
            yield replace(cells, pair=pair, nodes=nodes, complete=complete)

    def _vector(self, place: float) -> FloatArray:
        """Return the vector whose coordinates that get noise are all at this place of [-1, 1]."""
        if abs(place) == 1:
            return self._ends_as_vectors()[int(place > 0)]
        middle, half, _ = self._maps
        row = np.full(self.dims, self.domain.radius)
        row[self._sent] = middle + half * place
        return np.asarray(from_spherical(row[0], row[1:]))

    @cached_property
    def readout(self) -> Readout:
        """The mean of the reports of each coordinate: a magnitude and angles, which `decode` turns into a vector."""
        inner, (low, high), (middle, _, gain) = self.channel.readout, self._kept_ends, self._maps
        offset, scale, variance, tail, coarse = (np.zeros(self.dims) for _ in range(5))
        coarse += 1.0
        sent = self._sent
        if isinstance(self.support, SphericalLattice):
            offset[sent], scale[sent] = 0.0, self.support.steps[1:]
            variance[sent] = (self.support.most - self.support.least)[1:] ** 2 / 4  # Hoeffding
            coarse[sent] = _FINENESS / 2**6
        else:
            offset[sent], scale[sent] = middle + gain * inner.offset, gain * inner.scale
            variance[sent], tail[sent] = inner.tail.variance * gain**2, inner.tail.scale * gain
            coarse[sent] = inner.coarse
        if self._magnitude is not None:
            offset[:1], scale[:1] = self._magnitude.origins, self._magnitude.steps
            variance[:1] = (self._magnitude.most - self._magnitude.least) ** 2 / 4
            coarse[:1] = 1.0 if self._fixed else _FINENESS / 2**6
        return Readout(offset=offset, scale=scale, low=low, high=high, tail=Tail(variance, tail), coarse=coarse)
