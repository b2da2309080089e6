"""The largest value of s' P s over signs s: how far a box reaches in whitened coordinates, found or bounded.

Bounds are proved in float64. Privacy depends on P = W'W for the whitener W that is used; what is given is P^, the
product as BLAS computes it: |P - P^|_ij <= g sqrt(P_ii P_jj), g = n u / (1 - n u), u = 2^-53, by Cauchy and Schwarz
(Higham 2002, section 3.5), so that P - P^ <= g n diag(P) as quadratic forms. A Cholesky factorisation of a computed A
that runs to its end proves A + h n diag(A) positive semidefinite, h = g' / (1 - g'), g' = (n + 1) u / (1 - (n + 1) u)
(Higham 2002, Theorems 10.3 and 10.5), in whatever order its sums are taken. With A = diag(d) - P^ both errors are
multiples of n diag(d), and `_room` of d covers them and the rounding of sum(d).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import chain, combinations

import numpy as np

from noisette._validate import FloatArray

ENUMERATED = 16  # signs: half of all their choices are tried
_RELAXED = 1024  # signs up to which a bound is optimised
_SWEEPS = 500
_CONVERGED = 1e-6  # relative: what is left costs the bound 0.03 %
_SEARCHED = 1 << 12  # entries of sign tensors that are searched
_RAISES = tuple(2.0**power for power in range(-44, 64, 2))  # relative, of weights until a factorisation confirms them
_EXACT = 1e-9  # relative


@dataclass(frozen=True)
class Reach:
    """``upper`` bounds a supremum, ``signs`` show that it is at least ``lower``; both are equal where it is known.

    ``weight`` is the sum of some d for which diag(d) - P is proved to be positive semidefinite, so it is a bound too.
    """

    upper: float
    lower: float
    signs: FloatArray
    weight: float

    @property
    def exact(self) -> bool:
        """Whether the supremum is known, up to rounding."""
        return self.upper <= self.lower * (1 + _EXACT)


def largest_form(matrix: FloatArray) -> Reach:
    """Return max s' P s over s in {-1, 1}^n for a positive definite P, with a certified bound from above.

    Exact if signs can be flipped so that P has no negative entry, and for n up to 16. Beyond, the bound is the least
    sum(d) with diag(d) - P positive semidefinite, at most pi/2 times the maximum (Nesterov 1998); its dual is solved by
    coordinates, and the d found is raised until a Cholesky factorisation confirms it.
    From n = 1,025 on d has equal entries, or is the sum of absolute entries in each row.
    """
    size = len(matrix)
    total = float(np.abs(matrix).sum()) * (1 + _room(size))  # rows that their diagonal dominates
    signs = _consistent(matrix)
    if signs is not None:
        return Reach(total, float(signs @ matrix @ signs), signs, total)
    weights, vectors = _relaxed(matrix) if size <= _RELAXED else _spectral(matrix)
    weight = min(dominating(matrix, weights), total)
    if size <= ENUMERATED:
        signs, value = _enumerated(matrix)
        return Reach(min(value, weight), float(signs @ matrix @ signs), signs, weight)
    signs = climbed(_rounded(matrix, vectors), [matrix])
    return Reach(weight, float(signs @ matrix @ signs), signs, weight)


def largest_joint_form(matrices: Sequence[FloatArray], reaches: Sequence[Reach]) -> Reach:
    """Return max s' (P_1 x ... x P_N) s over all sign tensors s, bounded from above, and the best signs found.

    The maximum is not the product of the modes' maxima, as signs need not be a product. Three facts bound it.

    1. If diag(d_k) - P_k is positive semidefinite for every k, so is the product of the diag(d_k) less that of the P_k:
       A x C - B x D = (A - B) x C + B x (C - D) for A >= B >= 0 and C >= D >= 0. As signs have squares of 1, the
       product of the sums of the d_k is a bound.
    2. One mode, or several taken as one, may keep its exact maximum M: with Q, the product of the others, at most
       diag(d), s' (P x Q) s <= s' (P x diag(d)) s = sum_j d_j s_j' P s_j <= M sum(d), s_j the signs at index j of the
       others.
    3. Up to 16 entries all signs are tried. Modes whose sum(d) is their maximum need not be among them: by 2 they
       multiply exactly. All modes of size 2 are such, so at most two others fit into 16 entries.

    ``upper`` is the least bound that these allow. A search for the best signs starts from the best signs along each
    mode, from those of each pair that was enumerated, and from random ones, and flips single signs. Tensors of more
    than 4,096 entries are not searched.
    """
    weight = math.prod(reach.weight for reach in reaches)
    hard = [k for k, reach in enumerate(reaches) if reach.weight > reach.lower * (1 + _EXACT)]
    searched = len(hard) > 1 and math.prod(len(matrix) for matrix in matrices) <= _SEARCHED
    shares = [reach.upper / reach.weight for reach in reaches]
    starts = [_outer([reach.signs for reach in reaches])] if searched else []
    for i, j in combinations(hard, 2):
        sizes = len(matrices[i]), len(matrices[j])
        if math.prod(sizes) > ENUMERATED:
            continue
        signs, value = _enumerated(np.asarray(np.kron(matrices[i], matrices[j]), dtype=np.float64))
        shares.append(value / (reaches[i].weight * reaches[j].weight))
        if searched:
            rest = [reach.signs for k, reach in enumerate(reaches) if k not in (i, j)]
            starts.append(np.moveaxis(_outer([signs.reshape(sizes), *rest]), (0, 1), (i, j)))
    upper = weight * min(shares)
    if not searched:
        signs = _outer([reach.signs for reach in reaches])
        return Reach(upper, math.prod(reach.lower for reach in reaches), signs, weight)
    best = Reach(upper, 0.0, starts[0], weight)
    for start in chain(starts, _random_signs(starts[0].shape)):
        signs = climbed(start, matrices)
        best = max(best, Reach(upper, form(signs, matrices), signs, weight), key=lambda reach: reach.lower)
        if best.exact:
            break
    return best


def _random_signs(shape: tuple[int, ...]) -> Iterator[FloatArray]:
    """Yield up to 64 random sign tensors, fewer of large ones."""
    rng = np.random.default_rng(2)
    for _ in range(min(64, (1 << 14) // math.prod(shape))):
        yield rng.choice([-1.0, 1.0], size=shape)


def form(signs: FloatArray, matrices: Sequence[FloatArray]) -> float:
    """Return s' (P_1 x ... x P_N) s."""
    return float(np.vdot(signs, _applied(signs, matrices)))


def climbed(signs: FloatArray, matrices: Sequence[FloatArray]) -> FloatArray:
    """Flip single signs while that raises s' (P_1 x ... x P_N) s."""
    signs, diagonal = signs.copy(), _outer([np.diagonal(matrix) for matrix in matrices])
    image = _applied(signs, matrices)
    while True:
        gain = diagonal - signs * image
        top = np.unravel_index(int(gain.argmax()), gain.shape)
        if gain[top] <= 1e-12 * diagonal[top]:
            return signs
        image -= 2 * signs[top] * _outer([matrix[:, k] for matrix, k in zip(matrices, top, strict=True)])
        signs[top] = -signs[top]


def dominating(matrix: FloatArray, weights: FloatArray, multiple: float | None = None) -> float:
    """Return sum(d), rounded up, of a multiple d of the weights with diag(d) - P positive semidefinite, as proved.

    ``multiple`` is about the least one, if it is known.
    """
    if multiple is None:
        root = np.sqrt(weights)
        multiple = float(np.linalg.eigvalsh(matrix / np.multiply.outer(root, root))[-1])
    for raised in _RAISES:
        trial = weights * (multiple * (1 + raised))
        try:
            np.linalg.cholesky(np.diag(trial) - matrix)
        except np.linalg.LinAlgError:
            continue
        return float(trial.sum()) * (1 + _room(len(matrix)))
    raise ArithmeticError("No multiple of the weights dominates the matrix: it is not finite.")


def _room(size: int) -> float:
    """Return what errors of float64 may add to the bound from n weights, relatively: see the head of this module.

    They are at most n (n + 1) from the factorisation, n^2 from P, n from the sum and less than 6 from the rest, in
    units of 2^-53, each within a factor of 1 + 4 n 2^-53; sums of n^2 absolute entries are summed with less than n^2.
    """
    return 4 * size * (size + 2) * 2.0**-53


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


def _enumerated(matrix: FloatArray) -> tuple[FloatArray, float]:
    """Try all signs, the last one fixed; return the best and their value, rounded up.

    For a product of up to two modes, n <= 16, all errors together are below 16 (16 + 16 + 32 + 3) units of 2^-53,
    relative to the trace, and the trace is the mean of the values over all signs.
    """
    size = len(matrix)
    best, found = -math.inf, np.ones(size)
    for start in range(0, 1 << (size - 1), 1 << 12):
        codes = np.arange(start, min(start + (1 << 12), 1 << (size - 1)))
        signs = 1.0 - 2.0 * ((codes[:, None] >> np.arange(size)) & 1)
        values = np.einsum("ij,ij->i", signs @ matrix, signs)
        top = int(values.argmax())
        if values[top] > best:
            best, found = float(values[top]), signs[top]
    return found, best * (1 + 2.0**-40)


def _relaxed(matrix: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return weights near the least that dominate P, and unit vectors v_i that maximise sum P_ij <v_i, v_j>."""
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
    return np.linalg.norm(off @ vectors, axis=1) + np.diagonal(matrix), vectors


def _spectral(matrix: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return equal weights, and the eigenvector of the largest eigenvalue."""
    return np.ones(len(matrix)), np.linalg.eigh(matrix)[1][:, -1:]


def _rounded(matrix: FloatArray, vectors: FloatArray) -> FloatArray:
    """Round the vectors to signs by random planes, and return the best of 64."""
    planes = np.random.default_rng(1).standard_normal((vectors.shape[1], 64))
    candidates = np.where(vectors @ planes >= 0, 1.0, -1.0)
    return np.asarray(candidates[:, int(np.einsum("ij,ij->j", candidates, matrix @ candidates).argmax())])


def _applied(signs: FloatArray, matrices: Sequence[FloatArray]) -> FloatArray:
    """Return the tensor multiplied by a matrix along every mode."""
    for axis, matrix in enumerate(matrices):
        signs = np.moveaxis(np.tensordot(matrix, signs, axes=(1, axis)), 0, axis)
    return np.ascontiguousarray(signs)


def _outer(vectors: Sequence[FloatArray]) -> FloatArray:
    """Return the outer product."""
    return np.asarray(reduce(np.multiply.outer, vectors))
