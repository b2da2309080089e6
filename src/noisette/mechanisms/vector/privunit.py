"""PrivUnit and PrivUnitG: a random direction that prefers the cap around the user's vector."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from noisette._random import ULP
from noisette._special import log_ndtr
from noisette._validate import FloatArray
from noisette.cells import Cells
from noisette.core import Capabilities, Moments, Readout, Tail
from noisette.domains import BoolArray, L2Ball, Sphere
from noisette.mechanisms._base import coarseness, power_of_two
from noisette.mechanisms._reals import draw_normals
from noisette.mechanisms.vector._vectors import VectorMechanism
from noisette.mechanisms.vector.caps.draws import Reaches
from noisette.mechanisms.vector.caps.exact import RUN, Drawn, ExactRow, left_open
from noisette.mechanisms.vector.caps.laws import Cap, NormalProjection, Projection, SphereProjection

_FINENESS = 2.0**16  # lattice steps a standard deviation of an entry
_BEYOND = 40.0  # a standard normal variable exceeds it with a chance of 1e-350


@dataclass(frozen=True)
class Shell:
    """Vectors on the lattice of ``step`` whose length lies between two radii."""

    step: float
    shortest: float
    longest: float

    def __str__(self) -> str:
        return f"vectors of multiples of {self.step:g}, length in [{self.shortest:g}, {self.longest:g}]"

    def contains(self, reports: npt.NDArray[Any]) -> BoolArray:
        """Tell which vectors are on the lattice and of a possible length."""
        values = np.asarray(reports, dtype=float)
        with np.errstate(invalid="ignore", over="ignore"):
            position = values / self.step
            whole = (position == np.rint(position)).all(axis=-1)
        return np.asarray(whole & self.spans(values))

    def spans(self, reports: FloatArray) -> BoolArray:
        """Tell which vectors are of a possible length."""
        with np.errstate(invalid="ignore", over="ignore"):
            length = np.sqrt(np.einsum("...i,...i->...", reports, reports))
        return np.asarray((length >= self.shortest) & (length <= self.longest))


class CapMechanism(VectorMechanism):
    """Draw u from the cap {<u, v> >= gamma} more often than from its complement, v the user's direction; report u / m.

    A vector shorter than the radius gets one coordinate more, which makes up its length, and the report leaves it out.
    """

    capabilities: ClassVar[Capabilities] = Capabilities((Sphere, L2Ball))
    dtype: ClassVar[type[Any]] = np.float64
    domain: L2Ball

    def __post_init__(self) -> None:
        self._settle()
        if not 1e-100 <= self.domain.radius <= 1e100:
            raise ValueError(f"Expected radius={self.domain.radius} in [1e-100, 1e100]. Rescale the vectors first.")
        _ = self.cap  # an epsilon that float64 cannot hold is refused now

    @property
    def _lifted(self) -> bool:
        return not isinstance(self.domain, Sphere)

    @property
    def _ambient(self) -> int:
        """Dimensions of the sphere that vectors are put on."""
        return self.dims + self._lifted

    @property
    def _on_sphere(self) -> bool:
        """Whether u has length one."""
        return isinstance(self._projection, SphereProjection)

    @property
    @abstractmethod
    def _projection(self) -> Projection:
        """Law of <u, v> for u without a preferred direction."""

    @property
    @abstractmethod
    def _lengths(self) -> tuple[float, float]:
        """Least and largest length of u."""

    @abstractmethod
    def _gain(self, totals: FloatArray, reaches: Reaches) -> tuple[FloatArray, ...]:
        """Return the factors of g in the cap and without one, and bounds on the share that each is off by."""

    @abstractmethod
    def _gain_within(self, context: Any, square: Any, across: Any, rest: Any) -> tuple[Any, Any]:
        """Return intervals of both factors, from |g|^2, the part of it orthogonal to v, and 1 - T^2."""

    @abstractmethod
    def _log_density(self, report: FloatArray, reach: FloatArray, lift: FloatArray) -> FloatArray:
        """Return the log density at u = ``report`` of visible <u, v> = ``reach``; ``lift`` is v's hidden coordinate."""

    @cached_property
    def cap(self) -> Cap:
        """The cap in use: gamma, its probability, and m, by which reports are divided."""
        return Cap.build(self._projection, self.epsilon)

    @property
    def coupling(self) -> float:
        """The c for which two entries of the report of x have covariance c x_j x_k: zero where gamma = m.

        Around v all directions are alike, so the covariance is a I + b v v', and the variances show b.
        """
        return (self.cap.gamma - self.cap.mean) / self.cap.mean

    @property
    def _reach(self) -> float:
        """Length of the report of a u of length one."""
        return self.domain.radius / self.cap.mean

    @property
    def _noise(self) -> float:
        """Standard deviation of an entry, at the input where it is least."""
        return self._reach * math.sqrt(self.cap.least_variance)

    @cached_property
    def _step(self) -> float:
        """Step of the public lattice: a power of two far below the noise of an entry."""
        return power_of_two(self._noise) / _FINENESS

    @cached_property
    def support(self) -> Shell:
        """Vectors on the lattice, of the lengths that rounding leaves possible."""
        shortest, longest = (self._reach * length for length in self._lengths)
        slack = self._step * math.sqrt(self.dims)
        return Shell(self._step, 0.0 if self._lifted else max(0.0, shortest - slack), longest + slack)

    def _unit(self, rows: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return 1/length, the factors that put vectors on the lifted sphere, and the coordinate they are lifted by."""
        length = np.sqrt(np.einsum("...i,...i->...", rows, rows))
        if not self._lifted:
            return 1 / length, np.zeros_like(length)
        share = np.minimum(length / self.domain.radius, 1.0)
        return 1 / np.maximum(length, self.domain.radius), np.sqrt((1 - share) * (1 + share))

    def _perturb(self, rows: FloatArray, rng: np.random.Generator, reports: npt.NDArray[Any]) -> None:
        """Draw u as real numbers, add one uniform number to all entries, and round them down to the lattice.

        The uniform number makes an entry go up with the probability of its remainder: none is biased. Both kinds of u
        are drawn and computed for everybody, with one bound on the errors, so that the time taken does not show which
        one is sent.
        """
        people = len(rows)
        drawn = Drawn(
            normals=draw_normals(rng, people, self._ambient),
            reaches=self.cap.proposal.draw(rng, people),
            plain=rng.random(people) < self.cap.plain,
            uniform=rng.random(people),
        )
        self._round(rows, drawn, reports)

    def _round(self, rows: FloatArray, drawn: Drawn, reports: npt.NDArray[Any]) -> None:
        """Write the lattice points that follow from what was drawn."""
        from noisette.mechanisms._compiled import plain
        from noisette.mechanisms.vector.caps.loops import finish, sums

        rows = plain(rows)
        lift = self.domain.radius * self._unit(rows)[1]
        totals, open_rows = np.ones((len(rows), 4)), np.zeros(len(rows), dtype=bool)
        near = drawn.normals.near
        sums(near, rows, lift, self._on_sphere, totals)
        mixture = self._mix(totals, drawn.reaches, drawn.plain)
        finish(near, rows, *mixture, drawn.uniform, self._step, reports, open_rows)
        for row in np.flatnonzero(open_rows).tolist():
            own, others, share, most, reach, slope = (float(array[row]) for array in mixture)
            noisy, moved, entries = own * near[row, : self.dims], others * rows[row], reports[row] / self._step
            error = share * np.minimum(most, np.abs(entries) + 2 + reach * np.abs(rows[row]))
            error += slope * np.abs(rows[row]) + abs(own) * 2.0**-67
            columns = left_open(noisy, moved, float(drawn.uniform[row]), entries, error)
            reports[row, columns] = self._exactly(rows[row], float(lift[row]), drawn.row(row), columns)

    def _exactly(self, values: FloatArray, lift: float, drawn: ExactRow, columns: list[int]) -> FloatArray:
        """Return some entries of a report, with further digits of what was drawn until their rounding is certain."""
        vector = [*values.tolist(), *([lift] if self._lifted else [])]
        codes = drawn.floors(vector, columns, self._scale, self._gain_within)
        return np.asarray(codes, dtype=float) * self._step

    def _mix(self, totals: FloatArray, reaches: Reaches, plain: BoolArray) -> tuple[FloatArray, ...]:
        """Return the factors of g and of w in u, in steps of the lattice, and what bounds the errors of its entries.

        u = gain (g - <g, w>/|w|^2 w) + T w/|w| for a standard normal vector g and a vector w in the direction v, and
        gain g where it is ``plain``. The error of an entry is a share of the first term, plus its part of w times the
        errors of <g, w>, |w| and T; `_size` defines z.
        """
        own, product, square, _ = totals.T
        length, size = np.sqrt(own), self._size(square)
        gain, plain_gain, share, plain_share = self._gain(totals, reaches)
        factor = (reaches.t * length - gain * product) / own
        slope = (reaches.t_error + 3 * self._rounding * (np.abs(reaches.t) + gain * size)) / length
        most = np.where(plain, 1.0, np.sqrt(reaches.rest)) if self._on_sphere else np.full_like(own, np.inf)
        scale = self._scale
        return (
            scale * np.where(plain, plain_gain, gain),
            scale * np.where(plain, 0.0, factor),
            np.where(plain, plain_share, share),
            scale * most,
            scale * np.where(plain, 0.0, np.abs(reaches.t) / length),
            scale * slope,
        )

    @property
    def _rounding(self) -> float:
        """The k for which the sums <g, w>, |g|^2, |w|^2 are off by at most k |w| z, k z^2, k |w|^2; `_size` defines z.

        Each term of a run is rounded once; a few more roundings are for the products, the sums of runs, and g itself.
        """
        return (min(self._ambient, RUN) + 16) * ULP

    def _size(self, square: FloatArray) -> FloatArray:
        """Return z, |g| and what the digits of g that are not drawn yet, 2^-68 an entry, may add to the errors."""
        return np.asarray(np.sqrt(square) + math.sqrt(self._ambient) * 2.0**-14)

    @property
    def _scale(self) -> float:
        """Steps of the lattice in the report of a u of length one."""
        return self._reach / self._step

    def _codes(self, rows: npt.NDArray[Any]) -> FloatArray:
        return np.asarray(rows / self._step)

    def moments(self, x: Any) -> Moments:
        """Return the moments of each entry of a report.

        Bias and variance are exact: variance (base + (gamma - m) m v_i^2) / m^2, the same for every entry as gamma = m
        where float64 lets it be. The third moment is integrated and errs by less than 1e-8 of itself. Rounding to the
        lattice adds at most a quarter of a squared step, 2^-34 of the variance, and is left out.
        """
        values = self._inputs(x)
        share = values * self._unit(values)[0][..., None]
        cap = self.cap
        variance = self._reach**2 * (cap.base + (cap.gamma - cap.mean) * cap.mean * share**2)
        third = self._reach**3 * cap.third(np.arcsin(np.minimum(np.abs(share), 1.0)))
        return Moments(np.zeros_like(values), np.asarray(variance), np.asarray(third))

    def log_prob(self, report: Any, x: Any) -> FloatArray:
        """Return the log density relative to the law of a report without a preferred direction, -inf if impossible.

        It takes two values on a sphere: ln(p/q) where <u, v> >= gamma, ln((1-p)/(1-q)) elsewhere, q the cap's mass. It
        is evaluated at the lattice point itself; the mass of one whose cell the edge of the cap crosses lies
        between the two, so no ratio of masses is larger. A vector shorter than the radius mixes the two.
        """
        reports, values = np.asarray(report, dtype=float), self._inputs(x)
        possible = self.support.contains(reports)
        directions = np.where(possible[..., None], reports, 0.0) / self._reach
        factor, lift = self._unit(values)
        product = np.einsum("...i,...i->...", directions, values) * factor
        return np.where(possible, self._log_density(directions, product, lift), -np.inf)

    def _log_weight(self, reach: FloatArray) -> FloatArray:
        """Return the log density of u given <u, v>."""
        inside, outside = self.cap.log_weights
        return np.where(reach >= self.cap.gamma, inside, outside)

    def written_law(self) -> dict[str, Any]:
        """Return the cap and the chance of a preferred direction, by which reports are drawn."""
        kind = "sphere-cap" if self._on_sphere else "normal-cap"
        preferred = 1 - Fraction(self.cap.plain)
        return {"kind": kind, "dims": self._ambient, "gamma": self.cap.gamma, "preferred": preferred}

    def witnesses(self) -> tuple[FloatArray, FloatArray]:
        """Return opposite vectors and one between, and reports in the cap of each of the first two."""
        ends = np.zeros((3, self.dims))
        ends[:, 0] = [1, -1, 0]
        ends[2] = 1 / math.sqrt(self.dims)
        length = min(self.cap.gamma + 1, self._lengths[1])
        codes = np.rint(self._reach * length / self._step * ends[:2])
        return self.domain.radius * ends, codes * self._step

    def dissect(self) -> Iterator[Cells]:
        """Return the caps of two opposite vectors of full length, and what is in neither.

        No pair is worse: two inputs differ in the part of each cap outside the other one, and opposite caps have
        nothing in common. The law of a shorter vector is that of a vector on the lifted sphere with one entry left out,
        and leaving out an entry is post-processing.
        """
        inputs, reports = self.witnesses()
        log_mass, both = self.cap.log_mass, 2 * math.exp(self.cap.log_mass)
        weights = [log_mass, log_mass]
        if both < 1:
            neither = np.zeros((1, self.dims))
            if self.dims > 1:
                neither[0, 1] = self._step * np.rint(self._reach / self._step)
            reports = np.concatenate([reports, neither])
            weights.append(math.log1p(-both))
        yield Cells.constant((inputs[0], inputs[1]), reports, weights, self.cap.ratio_above)

    @cached_property
    def readout(self) -> Readout:
        """The plain mean of the reports."""
        radius, step = self.domain.radius, self._step
        return Readout(
            offset=0.0,
            scale=step,
            low=-radius,
            high=radius,
            tail=Tail(self._reach**2 * self.cap.proxy + step**2 / 4, 0.0),
            coarse=coarseness(max(self._noise, radius / 2**10) / step),
        )


@dataclass(frozen=True)
class PrivUnit(CapMechanism):
    """Report a direction that lies in the cap around the user's vector more often than chance would have it.

    Formula, on the unit sphere with E = exp(e): u is uniform on the cap {<u, v> >= g} with probability
    p = qE/(1-q+qE), else on its complement, which is: uniform on the whole sphere with probability 1/(1+q(E-1)), else
    on the cap. The report is u/m, m = c(E-1)/(1+q(E-1)), and g makes m largest, which is where g = m.
    q = I_{1-g^2}((d-1)/2, 1/2)/2, c = (1-g^2)^((d-1)/2) / ((d-1) B(1/2, (d-1)/2)).

    *Guarantee*: epsilon-LDP for the whole vector, to the last bit. The entries of u are real numbers whose digits are
    drawn until the rounding of u/m to a public lattice, of steps of 2^-16 of the noise, is certain; p follows from a
    proved lower limit of q. So a report is a function of a real vector of exactly this law.
    *Utility*: unbiased; E||error||^2 = 1/m^2 - 1, the least of any unbiased epsilon-LDP report of a unit vector, as
    Asi, Feldman and Talwar prove; however large epsilon, errors stay above some 2^-10 of the radius. For a box, Sampled
    with Duchi is better below epsilon 1.5 to 1.9. ``domain=L2Ball(d, r)`` takes vectors of any length up to r.
    Bhowmick, Duchi, Freudiger, Kapoor, Rogers 2018, Algorithm 1; p and g optimised as in Asi, Feldman, Talwar 2022.

    >>> m = PrivUnit(epsilon=8.0, dims=1000)
    >>> round(1 / m.cap.mean**2 - 1, 1)
    132.3
    """

    epsilon: float
    dims: int = None  # type: ignore[assignment]  # taken from the domain
    _: KW_ONLY
    domain: L2Ball = None  # type: ignore[assignment]  # __post_init__ puts Sphere(dims)
    name: ClassVar[str] = "privunit"
    citation: ClassVar[str] = "bhowmick2018protection"

    @property
    def _projection(self) -> SphereProjection:
        return SphereProjection(self._ambient)

    @property
    def _lengths(self) -> tuple[float, float]:
        return 1.0, 1.0

    def _gain(self, totals: FloatArray, reaches: Reaches) -> tuple[FloatArray, ...]:
        """Return sqrt(1 - T^2)/|g - <g, v> v| and 1/|g|; the vectors are off by less than 3 k z and k z in length."""
        square, across = totals[:, 2], totals[:, 3]
        error = self._rounding * self._size(square)
        with np.errstate(divide="ignore", invalid="ignore"):
            plain_gain, plain_share = 1 / np.sqrt(square), 2 * error / np.sqrt(square)
            plain_share = np.where(plain_share < 0.25, plain_share, np.inf)
            if self._ambient == 1:
                none = np.zeros_like(square)
                return none, plain_gain, none, plain_share
            share = 6 * error / np.sqrt(across) + reaches.rest_error / reaches.rest
            gain = np.sqrt(reaches.rest / across)
        return gain, plain_gain, np.where(share < 0.25, 2 * share, np.inf), plain_share

    def _gain_within(self, context: Any, square: Any, across: Any, rest: Any) -> tuple[Any, Any]:
        plain = 1 / context.sqrt(square)
        return (context.mpf(0) if self._ambient == 1 else context.sqrt(rest / across)), plain

    def _log_density(self, report: FloatArray, reach: FloatArray, lift: FloatArray) -> FloatArray:
        """Average over both signs of the hidden coordinate: the report's length shows its size and not its sign."""
        if not self._lifted:
            return self._log_weight(reach)
        hidden = lift * np.sqrt(np.maximum(1 - np.einsum("...i,...i->...", report, report), 0.0))
        either = np.logaddexp(self._log_weight(reach + hidden), self._log_weight(reach - hidden))
        return np.asarray(either - math.log(2))


@dataclass(frozen=True)
class PrivUnitG(CapMechanism):
    """Report a normal vector whose part along the user's own is large more often than chance would have it.

    Formula, for a unit vector v with E = exp(e): q = 1 - Phi(g); T is standard normal given T >= g with probability
    p = qE/(1-q+qE), else given T < g; the report is (G + (T - <G, v>) v)/m for a standard normal vector G,
    m = phi(g)(E-1)/(1+q(E-1)), and g makes m largest, which is where g = m.

    *Guarantee*: epsilon-LDP for the whole vector; rounding as for PrivUnit.
    *Utility*: unbiased; variance 1/m^2 for every entry, so E||error||^2 = d/m^2: for large d PrivUnit's, at less work;
    in few dimensions PrivUnit's is lower. For a box, Sampled with Duchi is better below epsilon 1.9 or so.
    ``domain=L2Ball(d, r)`` takes vectors of any length up to r.
    Asi, Feldman, Talwar 2022, the Gaussian variant of PrivUnit.

    >>> m = PrivUnitG(epsilon=8.0, dims=1000)
    >>> round(float(m.moments(np.eye(1, 1000)).variance.mean()), 4)
    0.1329
    """

    epsilon: float
    dims: int = None  # type: ignore[assignment]  # taken from the domain
    _: KW_ONLY
    domain: L2Ball = None  # type: ignore[assignment]  # __post_init__ puts Sphere(dims)
    name: ClassVar[str] = "privunit-g"
    citation: ClassVar[str] = "asi2022optimal"

    @property
    def _projection(self) -> NormalProjection:
        return NormalProjection()

    @property
    def _lengths(self) -> tuple[float, float]:
        return 0.0, math.sqrt(self._ambient) + self.cap.gamma + 2 * _BEYOND

    def _gain(self, totals: FloatArray, reaches: Reaches) -> tuple[FloatArray, ...]:
        one, none = np.ones(len(totals)), np.zeros(len(totals))
        return one, one, none, none

    def _gain_within(self, context: Any, square: Any, across: Any, rest: Any) -> tuple[Any, Any]:
        return context.mpf(1), context.mpf(1)

    def _log_density(self, report: FloatArray, reach: FloatArray, lift: FloatArray) -> FloatArray:
        """Average over the hidden coordinate, a standard normal variable times v's."""
        if not self._lifted:
            return self._log_weight(reach)
        inside, outside = self.cap.log_weights
        beyond = reach - self.cap.gamma
        score = np.where(lift > 0, beyond / np.where(lift > 0, lift, 1.0), np.where(beyond >= 0, np.inf, -np.inf))
        return np.asarray(np.logaddexp(inside + log_ndtr(score), outside + log_ndtr(-score)))
