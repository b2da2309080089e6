"""Reports about entries that are kept or get noise, cut into runs that the exact calculator sums."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from noisette._validate import FloatArray
from noisette.cells import Cells, up
from noisette.mechanisms.scalar._additive import GaussianNoise, LaplaceNoise
from noisette.mechanisms.tensor.retain.laws import AddedNoise, RoundedLaplace
from noisette.mechanisms.tensor.retain.published import RealLaplace

_LISTED = 1 << 16  # combinations of cells of single entries that are listed one by one
_PLACES_ONE_BY_ONE = 64  # places between two values that are listed one by one
_DISTINCT = 256  # chances to keep that are looked at in exact arithmetic


def spiked(noise: AddedNoise, away: FloatArray, kept: FloatArray) -> FloatArray:
    """Return the log mass of a whole number of steps, the spike at zero included."""
    mass = np.log1p(-kept) + noise.log_mass(away)
    with np.errstate(divide="ignore"):
        return np.where(away == 0, np.logaddexp(np.log(kept), mass), mass)


@dataclass(frozen=True)
class Cutter:
    """Cuts the reports about two tensors that differ by ``steps`` in the entry ``worst``, or in all.

    ``kept`` are the chances to keep each entry; ``tensors`` turns rows of positions on the grid into reports, the
    first tensor being at position 0.
    """

    noise: AddedNoise
    kept: FloatArray
    steps: int
    worst: int
    tensors: Callable[[FloatArray], Any]

    def cells(self, pair: tuple[Any, Any], *, whole: bool, real: bool) -> Cells:
        """Return all reports where they fall into few runs, else those with the largest likelihood ratios."""
        size, straight = self.kept.size, isinstance(self.noise, LaplaceNoise | RoundedLaplace)
        if real and (np.any(self.kept > 0) or isinstance(self.noise, RealLaplace)):
            return self._telling(pair, whole=whole)
        if not straight and (not isinstance(self.noise, GaussianNoise) or (whole and np.any(self.kept > 0))):
            return self._endless(pair, whole=whole)
        if whole and not straight:
            return self._summed(pair)
        if not whole:
            return self._entry(pair, straight=straight)
        return self._listed(pair) if (self.steps + 3) ** size <= _LISTED else self._telling(pair, whole=True)

    def _rows(self, *, whole: bool, positions: FloatArray) -> FloatArray:
        """Return one row of positions each: the same for every entry, or zero but for the worst."""
        if whole:
            return np.broadcast_to(positions[:, None], (positions.size, self.kept.size))
        rows = np.zeros((positions.size, self.kept.size))
        rows[:, self.worst] = positions
        return rows

    def _telling(self, pair: tuple[Any, Any], *, whole: bool) -> Cells:
        """Return the two inputs as reports, each entry kept or just outside, whichever has the larger ratio."""
        rows = self._rows(whole=whole, positions=np.asarray([0.0, self.steps]))
        if isinstance(self.noise, RoundedLaplace):
            # rounding gives zero less than its share of the noise: where little is kept, a tail has the larger ratio
            own, far, beside, beyond = (
                spiked(self.noise, np.asarray(float(away)), self.kept) for away in (0, self.steps, 1, self.steps + 1)
            )
            chosen = np.where(own - far > beside - beyond, 0.0, -1.0)
            rows = np.vstack([rows, np.where(rows[1] > 0, chosen, 0.0)])
        ones, zeros = np.ones(len(rows)), np.zeros(len(rows))
        return Cells(pair, (self.tensors(rows),), zeros, ones, ones, zeros, self._bound(whole=whole), complete=False)

    def _endless(self, pair: tuple[Any, Any], *, whole: bool) -> Cells:
        """Return some of the reports, a tail along which the ratio grows without end."""
        span = math.ceil(2 * math.sqrt(self.noise.absolute[1]))
        nodes = [self.tensors(self._rows(whole=whole, positions=np.asarray([-1.0 - n * span]))) for n in range(3)]
        endless, spans, zero = np.asarray([math.inf]), np.asarray([float(span)]), np.zeros(1)
        return Cells(pair, tuple(nodes), zero, endless, spans, zero, complete=False)

    def _entry(self, pair: tuple[Any, Any], *, straight: bool) -> Cells:
        """Return the runs of one entry at, between and beyond the two values, the other entries held where they are."""
        short = self.steps - 1 <= _PLACES_ONE_BY_ONE
        inner = np.arange(1.0, self.steps) if short else np.ones(1)
        starts = np.concatenate([[0.0, float(self.steps), -1.0, self.steps + 1.0], inner])
        places = np.concatenate([[1.0, 1.0, math.inf, math.inf], np.ones(inner.size)])
        if not short:
            places[-1] = self.steps - 1
        span = np.where(np.isinf(places), float(self._tail_span), max((self.steps - 2) // 2, 1))
        move = np.where(places > 1, span, 0.0)
        move[2] *= -1
        nodes = [
            self.tensors(self._rows(whole=False, positions=starts + number * move))
            for number in range(2 if straight else 3)
        ]
        still = spiked(self.noise, np.zeros(1), np.delete(self.kept, self.worst)).sum()
        weight = np.full(starts.size, -float(still))
        return Cells(pair, tuple(nodes), weight, places, span, np.zeros(starts.size), self._bound(whole=False))

    @property
    def _tail_span(self) -> int:
        """Steps over which the slope of a tail shows clearly."""
        noise = LaplaceNoise(self.noise.rate) if isinstance(self.noise, RoundedLaplace) else self.noise
        assert isinstance(noise, LaplaceNoise | GaussianNoise)
        return noise.tail_span

    def _listed(self, pair: tuple[Any, Any]) -> Cells:
        """Return all combinations of what entries can say; along a tail of an entry the ratio is constant."""
        assert isinstance(self.noise, LaplaceNoise | RoundedLaplace)
        positions = np.arange(-1.0, self.steps + 2.0)
        tail = -math.log(-math.expm1(-self.noise.rate))  # ln(1 + a + a^2 + ...)
        weight = np.where((positions < 0) | (positions > self.steps), tail, 0.0)
        rows = np.asarray(list(itertools.product(range(positions.size), repeat=self.kept.size)))
        return Cells.constant(pair, self.tensors(positions[rows]), weight[rows].sum(axis=1), self._bound(whole=True))

    def _summed(self, pair: tuple[Any, Any]) -> Cells:
        """Return a place for each sum of the entries: where nothing is kept, the ratio depends on the sum alone.

        The sum of discrete Gaussians is one, of sqrt(I) sigma. Reports whose sums are s leave the same rest when s is
        divided by I have log masses on one parabola in s: that of the sum, less the rest's r (1 - r/I) / (2 sigma^2).
        """
        assert isinstance(self.noise, GaussianNoise)
        size, sigma = self.kept.size, self.noise.sigma
        far = math.ceil(8 * sigma / math.sqrt(size))
        nodes = []
        for number in range(3):
            rows = np.repeat(number * far * np.asarray([[1.0], [-1.0]]), size, axis=1)
            rows[1, 0] -= 1
            nodes.append(self.tensors(rows))
        single, joint = (
            -float(GaussianNoise(scale).log_mass(np.asarray(0.0))) for scale in (sigma, math.sqrt(size) * sigma)
        )
        rest = np.asarray([0.0, (1 - 1 / size) / (2 * sigma**2)])
        endless, span = np.full(2, math.inf), np.full(2, float(size * far))
        return Cells(pair, tuple(nodes), size * single - joint + rest, endless, span, np.zeros(2))

    def _bound(self, *, whole: bool) -> float | None:
        """Return the epsilon of the worst entry, or of all, in exact arithmetic and rounded up."""
        import mpmath

        if not isinstance(self.noise, LaplaceNoise):
            return None
        values, counts = np.unique(self.kept if whole else self.kept[[self.worst]], return_counts=True)
        if values.size > _DISTINCT:
            return None
        with mpmath.workprec(160):
            rate, total = mpmath.mpf(self.noise.rate), mpmath.mpf(0)
            centre = mpmath.tanh(rate / 2)
            for p_keep, count in zip(values.tolist(), counts.tolist(), strict=True):
                chance = mpmath.mpf(p_keep)
                total += count * (self.steps * rate + mpmath.log1p(chance / ((1 - chance) * centre)))
            return up(total * (1 + mpmath.ldexp(1, -150)))
