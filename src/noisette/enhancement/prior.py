"""A discrete distribution of the truths, and what observations say under it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from noisette._validate import FloatArray, IntArray

FOLDS = 5
_BLOCK = 1 << 12  # observations worked out together; more are put in order first, so that few atoms concern a block
_STEPS = 4  # atoms to a deviation of the observations are enough
_NEGLIGIBLE = -30.0  # log of the share below which an atom is left out: 1e-13


@dataclass(frozen=True)
class Posterior:
    """Mean and variance of each truth, and the log density of its observation."""

    mean: FloatArray
    variance: FloatArray
    log_density: FloatArray

    @classmethod
    def empty(cls, size: int) -> Posterior:
        """Return room for answers about ``size`` truths."""
        return cls(*(np.empty(size) for _ in range(3)))

    def put(self, where: slice | IntArray, answer: Posterior) -> None:
        """Write down an answer about some of the truths."""
        self.mean[where] = answer.mean
        self.variance[where] = answer.variance
        self.log_density[where] = answer.log_density


@dataclass(frozen=True)
class Prior:
    """Atoms in rising order and their weights; each atom is blurred by ``width``."""

    atoms: FloatArray
    weights: FloatArray
    width: float

    @property
    def mean(self) -> float:
        """Mean of the truths."""
        return float(self.weights @ self.atoms)

    @property
    def variance(self) -> float:
        """Variance of the truths."""
        return float(self.weights @ (self.atoms - self.mean) ** 2) + self.width**2

    def posterior(self, observed: FloatArray, std_error: FloatArray) -> Posterior:
        """Return what each observation says about its truth; many are answered with merged atoms, block by block."""
        if observed.size <= _BLOCK:
            return self._answer(observed, std_error)
        result = Posterior.empty(observed.size)
        for block, prior in self._pieces(observed, std_error):
            y, s = observed[block], std_error[block]
            result.put(block, prior.relevant(y, s)._answer(y, s))
        return result

    def merged(self, step: float) -> Prior:
        """Put atoms that lie within one ``step`` together: their mean, and their mean scatter in the blur."""
        group = np.floor((self.atoms - self.atoms[0]) / step)
        starts = np.flatnonzero(np.diff(group, prepend=-1.0))
        if starts.size == self.atoms.size:
            return self
        weights = np.add.reduceat(self.weights, starts)
        atoms = np.add.reduceat(self.weights * self.atoms, starts) / weights
        scatter = float(self.weights @ self.atoms**2 - weights @ atoms**2)
        return Prior(atoms, weights, math.sqrt(self.width**2 + max(0.0, scatter)))

    def relevant(self, observed: FloatArray, std_error: FloatArray) -> Prior:
        """Drop the atoms that are negligible beside one other atom for all these observations.

        The log of two atoms' odds is linear in the observation and in its precision: largest at a corner.
        """
        places = np.array([observed.min(), observed.max()])
        precisions = 1 / (np.array([std_error.min(), std_error.max()]) ** 2 + self.width**2)
        log_weights = np.log(self.weights)
        best = np.argmax(log_weights - (self.atoms - places.mean()) ** 2 * precisions.mean() / 2)
        distance, middle = self.atoms - self.atoms[best], (self.atoms + self.atoms[best]) / 2
        odds = distance * (places[:, None, None] - middle) * precisions[:, None]
        kept = (log_weights - log_weights[best] + odds).max(axis=(0, 1)) > _NEGLIGIBLE
        return Prior(self.atoms[kept], self.weights[kept], self.width)

    def _pieces(self, observed: FloatArray, std_error: FloatArray) -> Iterator[tuple[IntArray, Prior]]:
        """Yield observations of like deviation and place, and the atoms merged as far as that deviation allows."""
        octave = np.floor(np.log2(np.hypot(std_error, self.width)))
        order = np.lexsort((observed, octave))
        levels, starts = np.unique(octave[order], return_index=True)
        for level, own in zip(levels, np.split(order, starts[1:]), strict=True):
            prior = self.merged(2.0**level / _STEPS)
            for start in range(0, own.size, _BLOCK):
                yield own[start : start + _BLOCK], prior

    def _answer(self, observed: FloatArray, std_error: FloatArray) -> Posterior:
        noise = std_error**2
        marginal = noise + self.width**2
        home = self.mean
        share = observed[:, None] - self.atoms
        share *= share
        share *= (-0.5 / marginal)[:, None]
        share += np.log(self.weights)
        top = share.max(axis=1)
        share -= top[:, None]
        np.exp(share, out=share)
        offset = self.atoms - home
        mass, first, second = (share @ np.column_stack([np.ones_like(offset), offset, offset**2])).T
        centre = first / mass
        scatter = np.maximum(second / mass - centre**2, 0.0)
        reliance = noise / marginal
        return Posterior(
            reliance * (home + centre) + (1 - reliance) * observed,
            reliance**2 * scatter + reliance * self.width**2,
            top + np.log(mass) - np.log(2 * math.pi * marginal) / 2,
        )


def by_fold(size: int, answer: Callable[[int, slice], Posterior]) -> Posterior:
    """Gather answers about coordinates 0, 5, 10, ..., then 1, 6, ...: ``answer(fold, its coordinates)``."""
    result = Posterior.empty(size)
    for fold in range(min(FOLDS, size)):
        own = slice(fold, None, FOLDS)
        result.put(own, answer(fold, own))
    return result
