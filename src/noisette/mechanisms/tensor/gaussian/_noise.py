"""Releasing a tensor with Gaussian noise, and what the report says: its law, its moments, its place on a lattice."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from noisette import _random, _validate
from noisette._random import Rng
from noisette._validate import FloatArray
from noisette.cells import Cells
from noisette.core import EventDeclared, GaussianEvent, Moments, Readout, Tail
from noisette.domains import TensorBall, TensorDomain
from noisette.mechanisms._base import coarseness, power_of_two
from noisette.mechanisms.tensor._tensors import TensorLattice, average, opened, permutations_of
from noisette.mechanisms.tensor._whole import TensorReports
from noisette.mechanisms.tensor.gaussian._farthest import farthest
from noisette.mechanisms.tensor.gaussian._normal import STEPS, add_noise
from noisette.mechanisms.tensor.gaussian.modes import Mode, multiply
from noisette.mechanisms.tensor.gaussian.neighbours import Neighbours

SLICES = 1 << 20  # entries of the slices that are worked on at a time; one slice may be larger
_FINENESS = 2.0**20  # output steps in the least standard deviation of an entry
_FARTHEST = 2.0**26  # standard deviations: beyond, a value leaves the integers of the noise's lattice
_UNIT = 1 << 16  # entries worked on at a time where modes let the tensor be cut


class TensorNoise(TensorReports, EventDeclared):
    """x + sigma N x_1 U_1 ... x_N U_N: whitened, rounded to a lattice, noise added, and coloured again."""

    domain: TensorDomain | TensorBall
    relation: str
    symmetry: tuple[tuple[int, ...], ...]

    @property
    @abstractmethod
    def modes(self) -> Sequence[Mode]:
        """The covariance along each mode."""

    @property
    @abstractmethod
    def neighbours(self) -> Neighbours:
        """Which tensors are neighbours."""

    @property
    @abstractmethod
    def sigma(self) -> float:
        """Scale of the noise."""

    @property
    @abstractmethod
    def mu(self) -> float:
        """One release is mu-GDP."""

    def privacy_event(self) -> GaussianEvent:
        """Return what accounting composes."""
        return GaussianEvent(self.mu)

    @property
    def _middle(self) -> float:
        return (self.domain.low + self.domain.high) / 2 if isinstance(self.domain, TensorDomain) else 0.0

    @property
    def _radius(self) -> float:
        """Largest distance of a tensor from the centre of the domain."""
        return self.domain.diameter / 2

    @property
    def _largest_norm(self) -> float:
        """Largest Frobenius norm of a tensor of the domain."""
        if isinstance(self.domain, TensorBall):
            return self._radius
        return max(abs(self.domain.low), abs(self.domain.high)) * math.sqrt(self.size)

    def _check_range(self) -> None:
        """Refuse a domain that is too wide for the noise, or too far from zero for its width."""
        half = (
            self.domain.diameter / 2
            if isinstance(self.domain, TensorBall)
            else (self.domain.high - self.domain.low) / 2
        )
        half += abs(self._middle - self._centre)
        farthest = math.prod(mode.row_sum for mode in self.modes) * half / self.sigma
        if farthest > _FARTHEST:
            raise ValueError(
                f"Expected {self.domain} to reach at most 2^26 standard deviations of the noise, got {farthest:.3g}. "
                "Narrow the domain to what values can be."
            )
        if self._step > self.sigma * self._least_deviation / 2**8:
            raise ValueError(f"{self.domain} is too far from zero for its noise: subtract a public offset first.")

    @property
    def _least_deviation(self) -> float:
        return math.sqrt(math.prod(float(mode.variances.min()) for mode in self.modes))

    @cached_property
    def _step(self) -> float:
        """Step of the public lattice that reports lie on: a power of two far below the noise."""
        fine = power_of_two(self.sigma * self._least_deviation) / _FINENESS
        return fine if self._middle == 0 else max(fine, power_of_two(abs(self._middle)) / 2**46)

    @cached_property
    def _centre(self) -> float:
        """A point of the lattice near the middle of the domain."""
        return self._step * round(self._middle / self._step)

    @cached_property
    def support(self) -> TensorLattice:
        """Tensors on the lattice."""
        return TensorLattice(self.domain.dims, self._centre, self._step)

    def privatize(self, x: Any, *, clip: bool = False, out: Any = None, rng: Rng = None) -> Any:
        """Return one report for each person's tensor, as an array or a torch tensor like ``x``.

        ``out`` takes the reports, and may be ``x`` itself or a memory map. Besides the reports one block is held in
        memory. Of a tensor that is not float64 and has covariances along its first and last modes it is some slices, or
        with a symmetry a float64 copy.
        """
        return self._answer(_validate.people(x, self.domain.dims), clip=clip, out=out, rng=rng)

    def _answer(self, x: Any, *, clip: bool, rng: Rng, out: Any = None) -> Any:
        values, target, restore = opened(x, out)
        if not clip:
            self._check_inside(values)
        else:
            self._check_finite(values)
            if isinstance(self.domain, TensorBall):
                values = self.domain.clip(values, out=target)
        source = _random.generator(rng)
        first, last = self._tied
        tied, free = self.domain.dims[first:last], math.prod(self.domain.dims[last:])
        inputs, outputs = (array.reshape(-1, *tied, free) for array in (values, target))
        factors = [*(mode if mode.covariance is not None else None for mode in self.modes[first:last]), None]
        bounds = (self.domain.low, self.domain.high) if clip and isinstance(self.domain, TensorDomain) else None
        for place in _blocks(len(inputs), math.prod(tied), free, whole=target.dtype == np.float64):
            report_block = outputs[place]
            if report_block.dtype != np.float64 and report_block.size > SLICES and not self.symmetry:
                for tensor, report in zip(inputs[place], report_block, strict=True):
                    self._release_slices(tensor, report, factors, bounds, source)
                continue
            work = report_block if report_block.dtype == np.float64 else np.empty(report_block.shape)
            self._centred(inputs[place], bounds, work)
            self._release(work, factors, source)
            if work is not report_block:
                report_block[...] = work
        return restore(target)

    def _centred(self, source: npt.NDArray[Any], bounds: tuple[float, float] | None, out: FloatArray) -> FloatArray:
        """Put values, moved within the bounds if there are any, into ``out`` as distances from the centre."""
        np.subtract(source, self._centre, out=out, dtype=np.float64)
        if bounds is not None:
            np.clip(out, bounds[0] - self._centre, bounds[1] - self._centre, out=out)
        return out

    def _release_slices(
        self,
        values: npt.NDArray[Any],
        target: npt.NDArray[Any],
        factors: Sequence[Mode | None],
        bounds: tuple[float, float] | None,
        rng: np.random.Generator,
    ) -> None:
        """Turn one tensor into its report, some slices at a time."""

        def add(white: FloatArray) -> None:
            add_noise(white, rng, sigma=self.sigma, unit=self._step)
            white *= self._step

        release_slices(values, target, factors, lambda block: self._centred(block, bounds, np.empty(block.shape)), add)
        flat = target.reshape(-1)
        for start in range(0, flat.size, SLICES):
            block = flat[start : start + SLICES]
            block[...] = np.rint(block.astype(np.float64) / self._step) * self._step + self._centre

    @cached_property
    def _tied(self) -> tuple[int, int]:
        """The first mode with a covariance, and one more than the last such mode; with a symmetry, all modes."""
        if self.symmetry:
            return 0, len(self.modes)
        own = [number for number, mode in enumerate(self.modes) if mode.covariance is not None]
        return (own[0], own[-1] + 1) if own else (len(self.modes), len(self.modes))

    def _release(self, work: FloatArray, modes: Sequence[Mode | None], rng: np.random.Generator) -> None:
        """Turn centred tensors into reports, in place; the last axes are these modes, None for identities."""
        multiply(work, [None if mode is None else mode.whitener for mode in modes])
        add_noise(work.reshape(-1), rng, sigma=self.sigma, unit=self._step)
        multiply(work, [None if mode is None else mode.root for mode in modes])
        np.rint(work, out=work)
        if self.symmetry:
            average(work[..., 0], self.symmetry, len(self.modes))
            np.rint(work, out=work)
        work *= self._step
        work += self._centre  # of 0.0 as well: -0.0 is no other report than 0.0

    def _check_finite(self, values: npt.NDArray[Any]) -> None:
        """Refuse what is no number."""
        if not (math.isfinite(values.min()) and math.isfinite(values.max())):  # NaN spreads to both
            rows = values.reshape(-1, self.size)
            bad = self._first(rows, ~np.isfinite(rows))
            raise ValueError(f"Expected finite values, got {bad}. Remove or impute missing values before privatising.")

    def _check_inside(self, values: npt.NDArray[Any]) -> None:
        """Refuse what is no number, lies outside the domain, or lacks a declared symmetry."""
        rows = values.reshape(-1, self.size)
        if isinstance(self.domain, TensorDomain):
            self._admit(rows, clip=False)
        else:
            self._check_finite(values)
            norms = self.domain.norms(values)
            if not (norms <= self.domain.radius * (1 + 1e-12)).all():
                which = "tensors" if self.domain.mode is None else f"slices along mode {self.domain.mode}"
                raise ValueError(
                    f"Expected {which} of norm at most {self.domain.radius:g}, got {float(norms.max()):g}. Give the "
                    "public bound in the domain, or pass clip=True to shorten what is longer."
                )
        if self.symmetry:
            mean = np.array(values, dtype=np.float64)
            average(mean, self.symmetry, len(self.modes))
            gap = float(np.abs(mean - values).max())
            if gap > 1e-6 * (self._radius + abs(self._middle)):
                raise ValueError(
                    f"Expected tensors that stay the same when modes {self.symmetry} are permuted, got one that is off "
                    f"by {gap:.3g}. Symmetrise it first, or declare no symmetry."
                )

    def _codes(self, rows: FloatArray) -> FloatArray:
        return np.asarray(np.rint((rows - self._centre) / self._step))

    @cached_property
    def variances(self) -> FloatArray:
        """Variance of the noise in each entry."""
        if self.symmetry:
            return self.sigma**2 * symmetric_variances(self.modes, self.symmetry)
        result = np.full((), self.sigma**2)
        for mode in self.modes:
            result = np.multiply.outer(result, mode.variances)
        return result

    def moments(self, x: Any) -> Moments:
        """Return the moments of normal noise; rounding to the lattice moves them by less than 2^-20 of a deviation."""
        values = self._inputs(x)
        variance = np.broadcast_to(self.variances, values.shape).copy()
        return Moments(np.zeros_like(values), variance, 2 * math.sqrt(2 / math.pi) * variance**1.5)

    def _inputs(self, x: Any) -> FloatArray:
        """Return admissible tensors."""
        values = _validate.reals(x)
        _validate.trailing(values, self.domain.dims, "x")
        self._check_inside(values)
        return values

    @cached_property
    def _free(self) -> int:
        """Dimensions of the noise: the entries, each set of entries that a symmetry makes equal counted once."""
        return (
            self.size
            if not self.symmetry
            else round(symmetric_variances([Mode(s) for s in self.domain.dims], self.symmetry).sum())
        )

    @cached_property
    def _log_volume(self) -> float:
        """Log of the volume that one unit of whitened volume takes up."""
        stretch = sum(self.size / mode.size * mode.log_det for mode in self.modes if mode.covariance is not None)
        return self._free * math.log(self.sigma) + (0.0 if self.symmetry else stretch)

    def log_prob(self, report: Any, x: Any) -> FloatArray:
        """Return the log density of a report; with a symmetry, per unit of volume of the symmetric tensors whitened."""
        gap = np.asarray(report, dtype=float) - np.asarray(x, dtype=float)
        _validate.trailing(gap, self.domain.dims, "report")
        white = np.ascontiguousarray(gap) / self.sigma
        multiply(white, [None if mode.covariance is None else mode.whitener for mode in self.modes])
        square = np.square(white).sum(axis=tuple(range(-len(self.modes), 0)))
        return np.asarray(-square / 2 - self._free / 2 * math.log(2 * math.pi) - self._log_volume)

    @cached_property
    def _worst(self) -> tuple[FloatArray, float]:
        """Return the difference of neighbours that reaches farthest, and its length in standard deviations."""
        gap, length = farthest(self.domain, self.relation, self._whiteners, self.symmetry)
        known = self.neighbours.worst(self.modes)  # of the signs that the bound was compared with
        white = known.copy()
        multiply(white, self._whiteners)
        reached = 0.0 if self.symmetry else float(np.linalg.norm(white))
        return (known, reached / self.sigma) if reached > length else (gap, length / self.sigma)

    @property
    def _whiteners(self) -> list[FloatArray | None]:
        return [None if mode.covariance is None else mode.whitener for mode in self.modes]

    def witnesses(self) -> tuple[FloatArray, FloatArray]:
        """Return two neighbours as far apart as any known, and reports near them."""
        gap, _ = self._worst
        inputs = self.domain.clip(self._middle + np.stack([gap / 2, -gap / 2]))
        around = np.concatenate([inputs, 2 * inputs - self._middle])
        return inputs, self.support.nearest(around)

    def dissect(self) -> Iterator[Cells]:
        """Cut the space of reports across the line through the worst neighbours.

        Only the distance of two whitened inputs matters, and delta grows with it. The distance follows from the domain,
        the relation and the noise: it is what `Neighbours.white` allows or what `farthest` finds, whichever is larger,
        plus a cell of the lattice in every entry. Where the best signs of a box are not found but bounded, perhaps no
        neighbours are that far apart. What the mechanism states about itself, ``mu`` and ``sensitivity``, is not used.
        """
        gap, found = self._worst
        unit = gap / found
        touched = np.asarray(unit / self.sigma)
        multiply(touched, self._whiteners)
        allowed = Neighbours.read(self.relation, self.domain).white(self.modes)[0] / self.sigma
        length = max(found, allowed) + math.sqrt(np.count_nonzero(touched)) / STEPS
        ends = tuple(self._middle + sign * length / 2 * unit for sign in (1.0, -1.0))
        yield Cells.normal((ends[0], ends[1]), np.asarray(self._middle), unit, self._log_volume, self._free)

    def cut(self, first: Any, second: Any) -> Cells | None:
        """Cut the space of reports across the line through any two tensors."""
        gap = np.asarray(first, dtype=float) - np.asarray(second, dtype=float)
        white = gap / self.sigma
        multiply(white, self._whiteners)
        length = float(np.linalg.norm(white))
        if self.symmetry or length == 0:
            return None
        middle = np.asarray(second, dtype=float) + gap / 2
        return Cells.normal((first, second), middle, gap / length, self._log_volume, self._free)

    @cached_property
    def readout(self) -> Readout:
        """The plain mean of the reports."""
        low, high = (
            (self.domain.low, self.domain.high)
            if isinstance(self.domain, TensorDomain)
            else (-self.domain.radius, self.domain.radius)
        )
        noise, half = np.sqrt(self.variances).reshape(-1), (high - low) / 2
        coarse = [coarseness(max(float(spread), half) / self._step) for spread in np.unique(noise)]
        return Readout(
            offset=self._centre,
            scale=self._step,
            low=low,
            high=high,
            tail=Tail(noise**2 + (half + self._step) ** 2, 0.0),
            coarse=coarse[0] if len(set(coarse)) == 1 else np.asarray(coarse)[np.unique(noise, return_inverse=True)[1]],
            noise=noise**2,
        )


def _blocks(tensors: int, tied: int, free: int, *, whole: bool) -> Iterator[tuple[Any, ...]]:
    """Yield the places of some tensors at a time, or of some entries of each along the free modes unless ``whole``."""
    rows = max(1, _UNIT // (tied * free))
    columns = free if whole or rows > 1 else min(free, max(1, _UNIT // tied))
    for row in range(0, tensors, rows):
        for column in range(0, free, columns):
            yield slice(row, row + rows), Ellipsis, slice(column, column + columns)


def symmetric_variances(modes: Any, symmetry: tuple[tuple[int, ...], ...]) -> FloatArray:
    """Return the variances of noise averaged over all permutations of each group of modes."""
    order = len(modes)
    total, count = np.zeros(tuple(mode.size for mode in modes)), 0
    for turn in permutations_of(symmetry, order):
        term = np.ones((1,) * order)
        for number, mode in enumerate(modes):
            term = term * mode.between(number, turn[number], order)
        total += term
        count += 1
    return total / count


def release_slices(
    source: npt.NDArray[Any],
    target: npt.NDArray[Any],
    modes: Sequence[Mode | None],
    centre: Callable[[npt.NDArray[Any]], FloatArray],
    add_noise: Callable[[FloatArray], None],
) -> None:
    """Put into ``target``, which may be ``source``, x + N x_1 U_1 ... x_N U_N for a tensor x with one axis a mode.

    ``centre`` turns a part of the source into float64. Slices along the longest mode are whitened, get their noise and
    are coloured, some at a time, from the last to the first. Whitening by the triangle U^-1 needs the slices before
    them, which have not been changed yet; colouring by U adds to the slices after them, which are coloured already.
    These sums are as exact as the type of ``target`` allows: they come after the noise, so privacy does not depend on
    them.
    """
    axis = max(range(len(modes)), key=lambda number: source.shape[number])
    mode, others = modes[axis], [*modes[:axis], *modes[axis + 1 :]]
    source, target = (np.moveaxis(array, axis, 0) for array in (source, target))
    size, entries = len(source), source[0].size
    width = max(1, SLICES // entries)
    places = [slice(start, min(start + width, size)) for start in range(0, size, width)]
    for number, own in reversed(list(enumerate(places))):
        white = np.zeros((own.stop - own.start, *source.shape[1:]))
        for before in places[: number + 1]:
            _mix(white, None if mode is None else mode.whitener, own, before, centre(source[before]))
        multiply(white, [None if other is None else other.whitener for other in others])
        add_noise(white.reshape(-1))
        multiply(white, [None if other is None else other.root for other in others])
        target[own] = 0
        for after in places[number:]:
            _mix(target[after], None if mode is None else mode.root, after, own, white)


def _mix(total: npt.NDArray[Any], factor: FloatArray | None, rows: slice, columns: slice, product: FloatArray) -> None:
    """Add to the slices ``rows`` the slices ``columns`` times a block of a factor, the identity if None."""
    if factor is not None and factor.ndim == 2:
        total += np.tensordot(factor[rows, columns], product, axes=1)
    elif rows == columns:
        total += product if factor is None else product * factor[rows].reshape(-1, *(1,) * (product.ndim - 1))
