"""FastProjUnit: a random projection of a long vector, reported by PrivUnit or by one word of a public codebook."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from noisette import _random, _validate
from noisette._random import Rng
from noisette._validate import FloatArray, IntArray
from noisette.cells import Cells, log_above
from noisette.core import Capabilities, Moments, PubliclyDrawn, Readout, Sketched, Tail, Tally
from noisette.domains import BoolArray, L2Ball, Sphere
from noisette.mechanisms._base import coarseness
from noisette.mechanisms.vector._vectors import VectorMechanism, row_blocks
from noisette.mechanisms.vector.privunit import PrivUnit, Shell
from noisette.mechanisms.vector.projections.codebook import Codebook, lattice
from noisette.mechanisms.vector.projections.hadamard import SEEDS, HadamardRows

_FEWEST_ROWS = 64  # a projection to fewer would be biased by more than a fortieth of the vector
_MOST_BITS = 12


@dataclass(frozen=True)
class Seeded:
    """Reports of a seed and of what was drawn with it: a vector on a lattice, or the number of a word."""

    drawn: Shell | None
    numbers: int = 1
    words: int = 0

    @property
    def step(self) -> float | None:
        """Step of the lattice, if there is one."""
        return None if self.drawn is None else self.drawn.step

    def __str__(self) -> str:
        what = f"a word below {self.words}" if self.drawn is None else str(self.drawn)
        return f"a seed below {SEEDS} and {what}"

    def contains(self, reports: npt.NDArray[Any]) -> BoolArray:
        """Tell which rows hold a seed, and what can be drawn under it."""
        values = np.asarray(reports, dtype=float)
        seed, rest = values[..., 0], values[..., 1:]
        named = (seed >= 0) & (seed < SEEDS) & (seed == np.floor(seed))
        if self.drawn is not None:
            return np.asarray(named & self.drawn.contains(rest))
        word = rest[..., 0]
        return np.asarray(named & (word >= 0) & (word < self.words) & (word == np.floor(word)))


@dataclass(frozen=True)
class FastProjUnit(VectorMechanism, PubliclyDrawn, Sketched):
    """Project the vector at random to ``rows`` dimensions, and report its direction there with PrivUnit.

    Formula: W = sqrt(d/k) S H D, D signs that all users share (``rotation`` names them), H Hadamard's matrix over
    sqrt(d), S k rows that a public seed names. u = Wv/|Wv| is reported by PrivUnit in k dimensions as z; the estimate
    is W'z/C, C = E|Wv| = sqrt(d/k) G((k+1)/2) G(d/2) / (G(k/2) G((d+1)/2)). d is a power of two, and a vector shorter
    than the radius gets one coordinate more first. Up to ``rows`` dimensions nothing is projected. With ``bits`` the
    report is one of 2^bits words, k normal numbers each, which the seed names: the w nearest to u have E times the
    chance of the others.

    *Guarantee*: epsilon-LDP for the whole vector: the seed is drawn without looking at it, and PrivUnit, or the choice
    of a word, is epsilon-LDP for every u, whatever rounding made of it. Both are exact.
    *Utility*: E||error||^2 = (d/k) / (C m)^2 - 1, m that of PrivUnit in k dimensions: at k = 1024 within 1.0033 of
    PrivUnit's at epsilon 8. A report has k numbers whatever d is; a server adds k numbers for each report, and
    transforms once at the end.
    Rows of H are not uniform directions, which has two effects: along v the estimate is off by at most 1/(4k), and, as
    all users share D, an error of length up to 1.6/k does not average out. Both are far below the noise of fewer than d
    k^2 / (2.5 m^2) users, and `moments` leaves them out. PrivUnit is as good in few dimensions and needs no seed.
    Asi, Feldman, Nelson, Nguyen, Talwar 2023, Algorithm 1, with Hadamard's matrix (section 4); the codebook is that of
    Isik et al. 2023, with independent normal words.

    >>> m = FastProjUnit(epsilon=8.0, dims=100_000)
    >>> m.report_shape, round(float(m.worst_variance()), 4)
    ((1025,), 0.1333)
    >>> FastProjUnit(epsilon=8.0, dims=100_000, bits=12).report_shape
    (2,)
    """

    epsilon: float
    dims: int = None  # type: ignore[assignment]  # taken from the domain
    _: KW_ONLY
    domain: L2Ball = None  # type: ignore[assignment]  # __post_init__ puts Sphere(dims)
    rows: int = 1024
    bits: int | None = None
    rotation: int = 0
    name: ClassVar[str] = "fast-projunit"
    citation: ClassVar[str] = "asi2023fast"
    capabilities: ClassVar[Capabilities] = Capabilities(
        (Sphere, L2Ball), decoded=True, adjustable=frozenset({"rows", "bits", "rotation"})
    )
    dtype: ClassVar[type[Any]] = np.float64
    uncertified: ClassVar[str] = "the verifier does not know the laws of codebooks yet"

    def __post_init__(self) -> None:
        self._settle()
        _validate.integer(self.rows, "rows", low=_FEWEST_ROWS)
        _validate.integer(self.rotation, "rotation", low=0)
        if not 1e-100 <= self.domain.radius <= 1e100:
            raise ValueError(f"Expected radius={self.domain.radius} in [1e-100, 1e100]. Rescale the vectors first.")
        if self.bits is not None and not 1 <= _validate.integer(self.bits, "bits", low=1) <= _MOST_BITS:
            raise ValueError(
                f"Expected bits={self.bits} <= {_MOST_BITS}: a user draws 2^bits words to find the nearest."
            )
        _ = self._inner  # an epsilon that float64 cannot hold is refused now

    @property
    def _lifted(self) -> bool:
        return not isinstance(self.domain, Sphere)

    @cached_property
    def _projection(self) -> HadamardRows:
        return HadamardRows(self.dims + self._lifted, self.rows, self.rotation)

    @cached_property
    def _inner(self) -> PrivUnit | Codebook:
        """What answers about the direction of the projected vector."""
        width = self._projection.width
        if self.bits is None:
            return PrivUnit(self.epsilon, width)
        return Codebook.build(width, self.bits, self.epsilon)

    @property
    def report_shape(self) -> tuple[int, ...]:
        """The seed, and a number for each row or that of a word."""
        return (1 + (self._projection.width if self.bits is None else 1),)

    @cached_property
    def support(self) -> Seeded:
        """Seeds with the vectors of PrivUnit, or with the numbers of words."""
        inner = self._inner
        return (
            Seeded(None, words=inner.size)
            if isinstance(inner, Codebook)
            else Seeded(inner.support, self._projection.width)
        )

    def _spectrum(self, vectors: FloatArray) -> FloatArray:
        """Return sqrt(d) H D v of vectors of the domain, with the coordinate that makes up their length."""
        unit = vectors / self.domain.radius
        if self._lifted:
            missing = np.maximum(1 - np.einsum("...i,...i->...", unit, unit), 0.0)
            unit = np.concatenate([unit, np.sqrt(missing)[..., None]], axis=-1)
        return self._projection.spectrum(unit)

    def _answer(self, x: Any, *, clip: bool, rng: Rng) -> Any:
        values = self._vectors(x)
        source = _random.generator(rng)
        rows = values.reshape(-1, self.dims)
        reports = np.empty((len(rows), *self.report_shape))
        for block in row_blocks(len(rows), self.dims):
            reports[block, 0] = self.draw(block.stop - block.start, source)
            self._perturb(self._admit(rows[block], clip=clip), source, reports[block])
        return reports.reshape(*values.shape[:-1], *self.report_shape)

    def _perturb(self, rows: FloatArray, rng: np.random.Generator, reports: npt.NDArray[Any]) -> None:
        """Write what is drawn under the seeds that stand in the first column."""
        seeds, inner = reports[:, 0].astype(np.int64), self._inner
        directions = self._projection.directions(self._spectrum(rows), seeds)
        if isinstance(inner, Codebook):
            reports[:, 1] = inner.draw(seeds, directions, rng)
        else:
            reports[:, 1:] = inner.privatize(directions, rng=rng)

    def draw(self, users: int, rng: np.random.Generator) -> IntArray:
        """Draw a seed for each user."""
        return np.asarray(rng.integers(0, SEEDS, users))

    def drawn(self, reports: Any) -> IntArray:
        """Return the seed of each report."""
        return np.asarray(reports)[:, 0].astype(np.int64)

    def privatize_drawn(self, x: Any, drawn: IntArray, *, rng: Rng = None) -> Any:
        """Return one report for each vector, with this seed."""
        rows = self._inputs(_validate.people(x, self.domain.shape)).reshape(-1, self.dims)
        reports = np.empty((len(rows), *self.report_shape))
        reports[:, 0] = drawn
        self._perturb(rows, _random.generator(rng), reports)
        return reports

    @property
    def _unit(self) -> float:
        """Step of the lattice that estimates of u are added up on."""
        inner = self._inner
        return lattice(inner.mean) if isinstance(inner, Codebook) else inner.support.step

    def _codes(self, rows: npt.NDArray[Any]) -> FloatArray:
        """Return estimates of u in steps of the lattice."""
        inner = self._inner
        if not isinstance(inner, Codebook):
            return np.asarray(rows[:, 1:] / self._unit)
        words = inner.words(rows[:, 0].astype(np.int64), rows[:, 1].astype(np.int64))
        return np.rint(words / (inner.mean * self._unit))

    def _spread(self, rows: npt.NDArray[Any]) -> FloatArray:
        """Return what each report adds to the sums, in whole numbers."""
        spectra = np.zeros((len(rows), self._projection.padded))
        places = self._projection.chosen(rows[:, 0].astype(np.int64))
        np.put_along_axis(spectra, places, self._codes(rows), axis=1)
        return np.asarray(self._projection.back(spectra)[:, : self.dims])

    def decode(self, reports: Any) -> FloatArray:
        """Return the vectors W'z/C that reports estimate."""
        rows = _validate.reals(reports, "reports")
        _validate.trailing(rows, self.report_shape, "reports")
        flat = rows.reshape(-1, *self.report_shape)
        return (self._spread(flat) * self._scale).reshape(*rows.shape[:-1], self.dims)

    def readable(self, reports: Any, inputs: Any) -> FloatArray:
        """Return the estimates that reports stand for."""
        return self.decode(reports)

    def sketch(self) -> FloatArray:
        """Return an empty sum of reports, in the basis in which a report has few numbers."""
        return np.zeros(self._projection.padded)

    def add_to(self, sketch: FloatArray, report: FloatArray, weight: float = 1.0) -> None:
        row = np.asarray(report)[None]
        places = self._projection.chosen(row[0, 0].astype(np.int64))
        sketch[places] += weight * self._codes(row)[0]  # a seed's places are distinct

    def unfold(self, sketch: FloatArray) -> FloatArray:
        return np.asarray(self._projection.back(sketch.copy())[: self.dims] * self._scale)

    def tally(self, reports: Any) -> Tally:
        """Reduce a batch of reports to integer sums; for one of long vectors, `sketch` is quicker."""
        rows = _validate.reals(reports, "reports")
        _validate.trailing(rows, self.report_shape, "reports")
        rows = rows.reshape(-1, *self.report_shape)
        if len(rows) == 0:
            raise ValueError(f"Expected at least one report, got an array of shape {np.shape(reports)}.")
        total, squares = np.zeros((2, self.dims), dtype=np.int64)
        for block in row_blocks(len(rows), self._projection.padded):
            self.check_support(rows[block])
            codes = self._spread(rows[block])
            total += codes.astype(np.int64).sum(axis=0)
            codes /= self.readout.coarse
            squares += np.rint(np.square(codes, out=codes)).astype(np.int64).sum(axis=0)
        return Tally(len(rows), np.full(self.dims, len(rows), dtype=np.int64), total, squares)

    @cached_property
    def _covariance(self) -> tuple[float, float]:
        """Return a and b: the estimate of a unit vector v has covariance a I + b v v'.

        With rows that are uniform directions: E|W'z|^2 = (d/k) E|z|^2, and <W'z, v> is |Wv| <z, u>, E|Wv|^2 = 1.
        """
        inner, width, padded = self._inner, self._projection.width, self._projection.padded
        if isinstance(inner, Codebook):
            along = inner.square / inner.mean**2
            square = (width - 1) / inner.mean**2 + along
        else:
            along = (inner.cap.base + inner.cap.gamma * inner.cap.mean) / inner.cap.mean**2
            square = 1 / inner.cap.mean**2
        shrink = self._projection.length**2
        along, whole = along / shrink, padded / width * square / shrink
        across = (whole - along) / (padded - 1) if padded > 1 else 0.0
        return across, along - across - 1

    @property
    def coupling(self) -> float:
        return self._covariance[1]

    def moments(self, x: Any) -> Moments:
        """Return the moments of each entry of what a report estimates, as of rows that are uniform directions.

        They are exact where nothing is projected, except for the third moment of a codebook. The third moment of a
        projected entry is that of a normal law, to about 1/k; its bias, which the class docstring bounds, is left out.
        """
        values = self._inputs(x)
        share = values / self.domain.radius
        a, b = self._covariance
        variance = self.domain.radius**2 * (a + b * share**2)
        third = math.sqrt(8 / math.pi) * variance**1.5
        if self._projection.idle and isinstance(self._inner, PrivUnit):
            cap = self._inner.cap
            third = (self.domain.radius / cap.mean) ** 3 * cap.third(np.arcsin(np.minimum(np.abs(share), 1.0)))
        return Moments(np.zeros_like(values), np.asarray(variance), np.asarray(third))

    def worst_variance(self) -> float:
        """Return the largest variance of an entry: at an end of an axis, or anywhere else."""
        a, b = self._covariance
        return self.domain.radius**2 * (a + max(0.0, b))

    def log_prob(self, report: Any, x: Any) -> FloatArray:
        """Return the log likelihood of a report, -inf if impossible.

        Of a word it is its log mass; of a vector the log density relative to that of a vector without a preferred
        direction, as for PrivUnit, and to the seeds.
        """
        reports, values = np.asarray(report, dtype=float), self._inputs(x)
        _validate.trailing(reports, self.report_shape, "report")
        possible = self.support.contains(reports)
        seeds = np.where(possible, reports[..., 0], 0.0).astype(np.int64)
        directions = self._projection.directions(self._spectrum(values), seeds)
        inner = self._inner
        if not isinstance(inner, Codebook):
            own = np.where(possible[..., None], reports[..., 1:], inner.witnesses()[1][0])
            return np.where(possible, inner.log_prob(own, directions), -np.inf)
        shape = directions.shape[:-1]
        words = np.broadcast_to(np.where(possible, reports[..., 1], 0.0), shape).astype(np.int64)
        named = np.broadcast_to(seeds, shape)
        near = np.empty(shape, dtype=bool)
        for place in np.ndindex(shape):
            near[place] = words[place] in inner.nearest(int(named[place]), directions[place])[: inner.near]
        weight = np.where(near, math.log(inner.own), math.log(inner.other)) - math.log(inner.total) - math.log(SEEDS)
        return np.where(possible, weight, -np.inf)

    def written_law(self) -> dict[str, Any] | None:
        """Return the cap of PrivUnit in the dimensions that vectors are projected to; none of a codebook."""
        return None if isinstance(self._inner, Codebook) else self._inner.written_law()

    def witnesses(self) -> tuple[FloatArray, FloatArray]:
        """Return opposite vectors and one between, and reports under seed 0 that each of the first two prefers."""
        inputs = np.zeros((3, self.dims))
        inputs[:, 0] = [1, -1, 0]
        inputs[2] = 1 / math.sqrt(self.dims)
        own = self._preferred(inputs[0])
        return self.domain.radius * inputs, self._under_first_seed(own[:2])

    def _under_first_seed(self, drawn: FloatArray) -> FloatArray:
        return np.concatenate([np.zeros((len(drawn), 1)), drawn], axis=1)

    def _preferred(self, vector: FloatArray) -> FloatArray:
        """Return reports under seed 0 that favour a unit vector, its opposite, and neither of them."""
        direction = self._projection.directions(self._spectrum(self.domain.radius * vector), np.asarray(0))
        inner = self._inner
        if isinstance(inner, Codebook):
            order = inner.nearest(0, direction)
            return np.asarray([order[0], order[-1], order[order.size // 2]], dtype=float)[:, None]
        reports = inner.witnesses()[1]
        length, step = float(np.linalg.norm(reports[0])), inner.support.step
        across = np.eye(1, direction.size, int(np.argmin(np.abs(direction))))[0]
        across = across - (across @ direction) * direction
        across /= np.linalg.norm(across)  # not zero: the least of 64 entries or more is at most an eighth
        return np.asarray(np.rint(length * np.stack([direction, -direction, across]) / step) * step)

    def dissect(self) -> Iterator[Cells]:
        """Return reports that prefer one of two opposite vectors, and the others; every seed gives the same law."""
        inputs, inner = self.witnesses()[0], self._inner
        reports = self._under_first_seed(self._preferred(inputs[0] / self.domain.radius))
        if not isinstance(inner, Codebook):
            (cells,) = inner.dissect()
            pair, many = (inputs[0], inputs[1]), cells.log_weight.size
            yield replace(cells, pair=pair, nodes=(reports[:many],))
            return
        both = max(0, 2 * inner.near - inner.size)
        counts = [inner.near - both, inner.near - both, max(both, inner.size - 2 * inner.near)]
        kept = [number for number, count in enumerate(counts) if count]
        weights = [math.log(counts[number]) + math.log(SEEDS) for number in kept]
        bound = log_above(Fraction(inner.own, inner.other))
        yield Cells.constant((inputs[0], inputs[1]), reports[kept], weights, bound)

    @property
    def _scale(self) -> float:
        """What one step in the sums of reports is worth in an entry of the estimate."""
        return self.domain.radius * self._unit * self._projection.share

    @cached_property
    def readout(self) -> Readout:
        """The plain mean of the estimates.

        Given the seed an entry is a product of z with a vector of length 1/C, whose mean varies within 1/C.
        """
        inner, length, radius = self._inner, self._projection.length, self.domain.radius
        proxy = inner.proxy / inner.mean**2 if isinstance(inner, Codebook) else inner.readout.tail.variance
        varied = 0.0 if self._projection.idle else 1.0
        a, b = self._covariance
        noise = radius * math.sqrt(a + min(0.0, b))
        return Readout(
            offset=0.0,
            scale=self._scale,
            low=-radius,
            high=radius,
            tail=Tail(radius**2 * (float(proxy) + varied) / length**2, 0.0),
            coarse=coarseness(max(noise, radius / 2**10) / self._scale),
        )
