"""The best Gaussian strategy for a workload, with a proof of how good it is: the gap to a dual bound."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from noisette._validate import FloatArray
from noisette.mechanisms.tensor.matrix.workloads import workload_of

GAP = 1e-6
_MEMORY = 8  # earlier steps that Anderson's extrapolation looks at
_STEPS = 2000
_PHASE = 100  # steps after which the other way to count cells has its turn
_LONGEST_STEP = 3.0  # largest step of a log weight
_FAINT = 1e-4  # share below which a cell follows the plain fixed point
_VANISHED = 60.0  # natural logs below the largest weight, where a cell's weight stays
_PRUNINGS, _SLACK, _CUT = (25, 75, 175, 375, 775), 1e-3, 8.0  # when log weights of cells that stay slack are cut
_UNSURE = 1e-10  # condition above which squares of singular values are too coarse


@dataclass(frozen=True, eq=False)
class Optimum:
    """A strategy A whose columns have length at most 1, its error, and a bound that no strategy can beat.

    ``error`` is the sum over the queries of their variances when each strategy query gets noise of variance 1.
    """

    strategy: FloatArray
    error: float
    bound: float
    steps: int

    @property
    def gap(self) -> float:
        """How much the error exceeds the bound, relatively: at most so much could be gained by another strategy."""
        return self.error / self.bound - 1


def optimum(root: FloatArray, *, gap: float = GAP) -> Optimum:
    """Minimise tr(W'W X^-1) over X = A'A with diag(X) <= 1, for W'W = R'R.

    For weights v of the cells, X = R' (R D_v R')^-1/2 R minimises the Lagrangian, T = tr (R D_v R')^1/2 gives the dual
    bound T^2 / sum v, and X scaled to its largest diagonal entry has error T max diag X. The fixed point v <- v diag X
    is extrapolated (Anderson 1965) until the two meet. The weight of a cell whose constraint is slack goes to zero,
    which does no harm, as v is never inverted.

    >>> round(optimum(np.tri(64)).error, 1)
    282.2
    """
    weight = np.maximum(np.sqrt(np.square(root).sum(axis=0)), 1e-300)
    current = np.log(weight)
    best_error, best_bound, strategy = np.inf, 0.0, root
    anchor = (current, np.zeros_like(current))
    places: list[FloatArray] = []
    moves: list[FloatArray] = []
    bold = False
    for step in range(_STEPS):
        current = np.maximum(current, current.max() - _VANISHED)
        weight = np.exp(current)
        half, total = _half(root, weight)
        diagonal = np.square(half).sum(axis=0)
        bound, error = total**2 / float(weight.sum()), total * float(diagonal.max())
        if error < best_error:
            best_error, strategy = error, half / np.sqrt(diagonal.max())
        best_bound = max(best_bound, bound)
        if best_error <= best_bound * (1 + gap):
            return Optimum(symmetric(strategy), best_error, min(best_bound, best_error), step + 1)
        move = np.log(np.maximum(diagonal, 1e-300))
        if bold and best_bound - bound > best_error - best_bound:  # it went astray: back, and a plain step
            current, places, moves, bold = anchor[0] + anchor[1], [], [], False
            continue
        if bound >= best_bound:
            anchor = (current, move)
        bold = True
        places, moves = [*places[-_MEMORY:], current], [*moves[-_MEMORY:], move]
        slack = np.max(moves, axis=0) < -_SLACK
        if step in _PRUNINGS and slack.any():  # the weights of slack cells fade slowly: try without them
            current, places, moves = np.where(slack, current - _CUT, current + move), [], []
        else:
            current = current + _extrapolated(places, moves, weight, even=step // _PHASE % 2 == 0)
    raise ArithmeticError(
        f"After {_STEPS} steps the best strategy may still be {best_error / best_bound - 1:.2g} from the optimum. "
        "Give a strategy of your own, or rescale queries so that their weights are less unlike."
    )


@lru_cache(maxsize=16)
def named_optimum(name: str, size: int, gap: float = GAP) -> Optimum:
    """Return the optimum of a workload that has a name; it is worth remembering."""
    return optimum(workload_of(name, size).root, gap=gap)


def symmetric(strategy: FloatArray) -> FloatArray:
    """Return the symmetric root of A'A where A is square: as good, with smaller entries off the diagonal."""
    if strategy.shape[0] != strategy.shape[1]:
        return strategy
    _, values, right = np.linalg.svd(strategy)
    return np.asarray((right.T * values) @ right)


def _half(root: FloatArray, weight: FloatArray) -> tuple[FloatArray, float]:
    """Return a root of X = R' (R D R')^-1/2 R, and tr (R D R')^1/2."""
    squares, vectors = np.linalg.eigh((root * weight) @ root.T)
    if squares[0] > _UNSURE * squares[-1]:
        values = np.sqrt(squares)
    else:
        vectors, values, _ = np.linalg.svd(root * np.sqrt(weight), full_matrices=False)
    return np.asarray((vectors / np.sqrt(values)).T @ root), float(values.sum())


def _extrapolated(places: list[FloatArray], moves: list[FloatArray], weight: FloatArray, *, even: bool) -> FloatArray:
    """Return the extrapolated step from the last ones; cells of very small weight take the plain step.

    Cells are weighted by their weights; if ``even``, all cells at their constraint are weighted equally, however small
    theirs are.
    """
    move = moves[-1]
    if len(moves) == 1:
        return move
    change, shift = (np.diff(np.asarray(steps), axis=0).T for steps in (moves, places))
    share = np.sqrt(weight / weight.max())
    if even:
        share[move > -_SLACK] = 1.0
    mixed, *_ = np.linalg.lstsq(change * share[:, None], move * share, rcond=1e-8)
    bold = np.clip(move - (shift + change) @ mixed, -_LONGEST_STEP, _LONGEST_STEP)
    return np.where(share > _FAINT, bold, move)
