"""The largest value of s' P s over signs s: how far a box reaches in whitened coordinates, found or bounded."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from noisette._validate import FloatArray

_ENUMERATED = 16  # signs: half of all their choices are tried
_RELAXED = 1024  # signs up to which a bound is optimised
_SWEEPS = 500
_CONVERGED = 1e-6  # relative: what is left costs the bound 0.03 %


@dataclass(frozen=True)
class Reach:
    """``upper`` bounds a supremum that ``signs`` show to be at least ``lower``; they agree where it is known."""

    upper: float
    lower: float
    signs: FloatArray

    @property
    def exact(self) -> bool:
        """Whether the supremum is known, up to rounding."""
        return self.upper <= self.lower * (1 + 1e-9)


def largest_form(matrix: FloatArray) -> Reach:
    """Return max s' P s over s in {-1, 1}^n for a positive definite P, with a certified bound from above.

    Exact if signs can be flipped so that P has no negative entry, and for n up to 16. Beyond, the bound is the least
    sum(d) with diag(d) - P positive semidefinite, at most pi/2 times the maximum (Nesterov 1998); its dual is solved by
    coordinates, and the d found is raised by the largest eigenvalue of P - diag(d).
    From n = 1,025 on the bound is n times the largest eigenvalue, or the sum of all absolute entries.
    """
    size = len(matrix)
    total = float(np.abs(matrix).sum())
    signs = _consistent(matrix)
    if signs is not None:
        return Reach(total * (1 + size * 2.0**-50), float(signs @ matrix @ signs), signs)
    if size <= _ENUMERATED:
        signs = _enumerated(matrix)
        value = float(signs @ matrix @ signs)
        return Reach(value * (1 + 2.0**-40), value, signs)
    bound, vectors = _relaxed(matrix) if size <= _RELAXED else _spectral(matrix)
    signs = _improved(matrix, vectors)
    return Reach(min(bound, total * (1 + size * 2.0**-50)), float(signs @ matrix @ signs), signs)


def _consistent(matrix: FloatArray) -> FloatArray | None:
    """Return signs that make every entry of diag(s) P diag(s) non-negative, if there are any."""
    size = len(matrix)
    linked = np.abs(matrix) > 0
    signs, waiting = np.zeros(size), list(range(size))
    while waiting:
        start = waiting.pop()
        if signs[start]:
            continue
        signs[start], frontier = 1.0, [start]
        while frontier:
            row = frontier.pop()
            new = np.flatnonzero(linked[row] & (signs == 0))
            signs[new] = signs[row] * np.sign(matrix[row, new])
            frontier.extend(new.tolist())
    return signs if np.all(signs[:, None] * matrix * signs >= 0) else None


def _enumerated(matrix: FloatArray) -> FloatArray:
    """Try all signs, the last one fixed."""
    size = len(matrix)
    best, found = -math.inf, np.ones(size)
    for start in range(0, 1 << (size - 1), 1 << 12):
        codes = np.arange(start, min(start + (1 << 12), 1 << (size - 1)))
        signs = 1.0 - 2.0 * ((codes[:, None] >> np.arange(size)) & 1)
        values = np.einsum("ij,ij->i", signs @ matrix, signs)
        top = int(values.argmax())
        if values[top] > best:
            best, found = float(values[top]), signs[top]
    return found


def _relaxed(matrix: FloatArray) -> tuple[float, FloatArray]:
    """Return a certified bound and the unit vectors v_i that maximise sum P_ij <v_i, v_j>, one coordinate at a time."""
    size = len(matrix)
    rank = math.ceil(math.sqrt(2 * size)) + 1
    vectors = np.random.default_rng(0).standard_normal((size, rank))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    off = matrix - np.diag(np.diagonal(matrix))
    before = -math.inf
    for _ in range(_SWEEPS):
        lengths = np.empty(size)
        for row in range(size):
            pull = off[row] @ vectors
            lengths[row] = np.linalg.norm(pull)
            if lengths[row] > 0:
                vectors[row] = pull / lengths[row]
        value = float(lengths.sum())
        if value - before <= _CONVERGED * abs(value):
            break
        before = value
    slopes = np.linalg.norm(off @ vectors, axis=1) + np.diagonal(matrix)
    excess = float(np.linalg.eigvalsh(matrix - np.diag(slopes))[-1])
    rounding = size * 2.0**-50 * float(np.abs(matrix).sum(axis=1).max() + slopes.max())
    return float(slopes.sum()) + size * (max(excess, 0.0) + rounding), vectors


def _spectral(matrix: FloatArray) -> tuple[float, FloatArray]:
    """Return n times the largest eigenvalue, and its eigenvector."""
    values, vectors = np.linalg.eigh(matrix)
    largest = float(values[-1]) + len(matrix) * 2.0**-50 * float(np.trace(matrix))
    return len(matrix) * largest, vectors[:, -1:]


def _improved(matrix: FloatArray, vectors: FloatArray) -> FloatArray:
    """Round the vectors to signs by random planes, and flip single signs while that helps."""
    planes = np.random.default_rng(1).standard_normal((vectors.shape[1], 64))
    candidates = np.where(vectors @ planes >= 0, 1.0, -1.0)
    signs = candidates[:, int(np.einsum("ij,ij->j", candidates, matrix @ candidates).argmax())]
    diagonal = np.diagonal(matrix)
    while True:
        gain = diagonal - signs * (matrix @ signs)
        top = int(gain.argmax())
        if gain[top] <= 1e-12 * diagonal[top]:
            return signs
        signs[top] = -signs[top]
