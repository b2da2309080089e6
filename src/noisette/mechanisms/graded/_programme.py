"""The linear programme of `OptimalGraded`: the unbiased channel of least variance under a matrix of budgets.

Inputs are points x of [-1, 1], each in a level; outputs y are given. The chances P(y|x) minimise the largest, or an
average, of sum_y y^2 P(y|x) - x^2 subject to sum_y P(y|x) = 1, sum_y y P(y|x) = x and, for points of levels i and j,
P(y|x) <= exp(r[i, j]) P(y|x'). A level of several points has its largest and its least chance of each output as
variables of its own, which leaves one constraint for each two levels, not for each two points. Constraints that two
others imply are left out.

The dual is what is solved: it has a row for each chance, and its prices for them are the chances. Its solution also
proves how far from the optimum they can be.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from noisette._validate import FloatArray, IntArray

_ATTEMPTS = (("highs-ipm", 1e-10), ("highs-ds", 1e-9), ("highs-ipm", 1e-7))  # the next where one gives up
_INNER, _COARSE = 1.2, 8  # half of the first outputs lie evenly within the first number, eight on each side
_REFINEMENTS, _QUICK, _WORTHWHILE = 3, 10_000, 1e-4  # _QUICK constraints take some seconds
_USED = 1e-9  # a chance that is not rounding


@dataclass(frozen=True, eq=False)
class ChannelSolution:
    """Chances by point (row) and output (column), their objective, and what no channel with these outputs is below."""

    outputs: FloatArray
    chances: FloatArray
    value: float
    bound: float


def solve(
    points: FloatArray, levels: IntArray, matrix: FloatArray, outputs: FloatArray, weights: FloatArray | None
) -> ChannelSolution:
    """Solve the programme; ``weights`` of the points make it minimise their average variance, not the largest."""
    from scipy.optimize import linprog
    from scipy.sparse import bmat, csr_array, identity, kron

    size, count = points.size, outputs.size
    rays = _rays(levels, matrix)
    variables = rays.shape[1]  # for each output: chances of the points, then largest and least ones of levels
    unit = float(np.abs(outputs).max())  # outputs are measured in it, the objective in its square
    scaled, places = outputs / unit, points / unit
    pick = csr_array((np.ones(size), (np.arange(size), np.arange(size))), (variables, size))
    alike = identity(count, format="csr")
    moments = [kron(pick, csr_array(scaled[:, None] ** power)) for power in (0, 1, 2)]
    privacy = kron(csr_array(rays.T), alike)
    rows: Any = bmat([[moments[0], moments[1], -moments[2], -privacy]], format="csc")
    priced = rays.shape[0] * count
    gain = np.concatenate([np.ones(size), places, -(places**2), np.zeros(priced)])
    low = np.concatenate([np.full(2 * size, -np.inf), np.zeros(size + priced)])
    high = np.full(low.size, np.inf)
    if weights is not None:
        low[2 * size : 3 * size] = high[2 * size : 3 * size] = weights
    shares = np.zeros((1, low.size))
    shares[0, 2 * size : 3 * size] = 1.0
    for method, tolerance in _ATTEMPTS:
        found = linprog(
            -gain,
            A_ub=rows,
            b_ub=np.zeros(rows.shape[0]),
            A_eq=shares,
            b_eq=[1.0],
            bounds=np.stack([low, high], axis=1),
            method=method,
            options={"primal_feasibility_tolerance": tolerance, "dual_feasibility_tolerance": tolerance},
        )
        if found.status == 0:
            break
    else:
        raise RuntimeError(f"The linear programme of {size} points and {count} outputs was not solved.")
    chances = np.maximum(-found.ineqlin.marginals.reshape(variables, count)[:size], 0.0)
    chances /= chances.sum(axis=1, keepdims=True)
    excess = np.maximum((rows @ found.x).reshape(variables, count), 0.0)
    bound = float(gain @ found.x) - _repair(excess, size)
    return ChannelSolution(outputs, chances, objective(chances, points, outputs, weights), bound * unit**2)


def best(points: FloatArray, levels: IntArray, matrix: FloatArray, weights: FloatArray | None) -> ChannelSolution:
    """Solve for outputs of our choice: a coarse grid, then finer ones about the outputs in use while that is quick."""
    apart = points[:, None] != points
    least = float(matrix[np.ix_(levels, levels)][apart].min())
    solution = solve(points, levels, matrix, _first_outputs(least), weights)
    constraints = _rays(levels, matrix).shape[0]
    for _ in range(_REFINEMENTS):
        used = np.flatnonzero(solution.chances.max(axis=0) > _USED)
        near = np.unique(np.clip(np.concatenate([used - 1, used]), 0, solution.outputs.size - 2))
        middles = (solution.outputs[near] + solution.outputs[near + 1]) / 2
        outputs = np.unique(np.concatenate([solution.outputs[used], middles]))
        if constraints * outputs.size > _QUICK:
            break
        finer = solve(points, levels, matrix, outputs, weights)
        gained = solution.value - finer.value
        solution = finer
        if gained <= _WORTHWHILE * finer.value:
            break
    return solution


def _first_outputs(least: float) -> FloatArray:
    """Return outputs that lie densely in the interval and reach as far as the least budget may need.

    LpOptimal's outputs at a budget e reach to 1 + coth(tanh(e / 2)).
    """
    reach = max(1 + 1 / np.tanh(np.tanh(least / 2)), 2 * _INNER)
    inner = np.linspace(0, _INNER, _COARSE + 1)[1:]
    outer = np.geomspace(_INNER, reach, _COARSE + 1)[1:]
    positive = np.concatenate([inner, outer])
    return np.concatenate([-positive[::-1], [0.0], positive])


def objective(chances: FloatArray, points: FloatArray, outputs: FloatArray, weights: FloatArray | None) -> float:
    """Return the largest or the average variance of a report."""
    spread = chances @ outputs**2 - points**2
    return float(spread.max() if weights is None else weights @ spread)


def _repair(excess: FloatArray, size: int) -> float:
    """Return what it costs at most to make prices feasible whose rows exceed zero by ``excess``.

    The row of a chance has a free price, which all outputs share. That of a level's largest or least chance is mended
    by lowering the prices of constraints, which moves what it exceeds by to rows of chances, never more than once each.
    """
    return float(excess[:size].max(axis=1).sum() + excess[size:].sum())


def _rays(levels: IntArray, matrix: FloatArray) -> FloatArray:
    """Return the constraints of one output, a row each, as coefficients of a combination that must not exceed zero."""
    size, kinds = levels.size, matrix.shape[0]
    members = [np.flatnonzero(levels == kind) for kind in range(kinds)]
    top, least = np.empty(kinds, dtype=np.int64), np.empty(kinds, dtype=np.int64)
    width = size
    for kind, own in enumerate(members):
        if own.size == 1:
            top[kind] = least[kind] = own[0]
        else:
            top[kind], least[kind] = width, width + 1
            width += 2
    rows = []
    for kind, own in enumerate(members):
        if own.size > 1:
            for point in own:
                rows += [(point, 1.0, top[kind], -1.0), (least[kind], 1.0, point, -1.0)]
    for i in range(kinds):
        for j in range(kinds):
            if top[i] != least[j] and not _implied(matrix, i, j):
                rows.append((top[i], float(np.exp(-matrix[i, j])), least[j], -1.0))
    result = np.zeros((len(rows), width))
    for place, (first, one, second, other) in enumerate(rows):
        result[place, first], result[place, second] = one, other
    return result


def _implied(matrix: FloatArray, i: int, j: int) -> bool:
    """Tell whether two other budgets in a row already give this one; of equal ones, all but one could be left out."""
    if i == j:
        return False
    through = matrix[i] + matrix[:, j]
    others = np.ones(matrix.shape[0], dtype=bool)
    others[[i, j]] = False
    return bool(np.any(through[others] < matrix[i, j]))
