"""The linear programme behind `LpOptimal`, with every input at once.

Minimise tau over p(y|x) with m_y <= p(y|x) <= E m_y, sum_y p = 1, sum_y y p = x, sum_y y^2 p - x^2 <= tau. For given m
the best p(.|x) is E m on a window of outputs and m elsewhere, so p can be eliminated: by duality, m >= 0 does it for
every x in [-1, 1] if and only if for every window with edges a < b, centre c, radius r and x the point of [-1, 1]
nearest to c

    r^2 - (x - c)^2 + sum_y m_y k(y) (y - a)(y - b) <= tau,    k = E inside the window and 1 outside,

and, the limit of windows without right edge, sum_y m_y k(y) (y - a) >= 1 - a. These are cutting planes in m alone: a
few hundred unknowns instead of inputs times outputs, and no grid of inputs. Only y >= 0 is kept, by symmetry.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from noisette._validate import FloatArray

_ROUNDS = 60


class Cuts(NamedTuple):
    """Rows of const + coefficient m <= weight tau."""

    coefficient: FloatArray
    const: FloatArray
    weight: FloatArray


@dataclass(frozen=True)
class WindowResponse:
    """What the best windows make of given masses: the worst variance, and the windows that decide it."""

    worst: float
    left: FloatArray
    right: FloatArray
    last: float


@dataclass(frozen=True)
class MassSolution:
    """Masses of the outputs y >= 0 (those of -y are equal), their worst variance, and the programme's lower bound."""

    masses: FloatArray
    worst: float
    bound: float


def solve(epsilon: float, outputs: FloatArray, *, gap: float = 1e-6) -> MassSolution:
    """Return masses on ``outputs`` (0, h, 2h, ...) whose worst variance is within ``gap`` of the programme's optimum.

    Kelley's cutting planes; each round also cuts halfway to the best masses so far, which saves most of the rounds.
    """
    from scipy.optimize import linprog

    ratio, reach = math.exp(epsilon), float(outputs[-1])
    unit = 2 * ratio ** (-2 / 3)  # of a mass, and of tau: the solver's tolerances are absolute
    objective = np.append(np.zeros(outputs.size), 1.0)
    total = np.append(np.full(outputs.size, 2 * unit), 0.0)
    cuts = _first_cuts(outputs, ratio, reach)
    best, worst, bound = np.zeros(outputs.size), math.inf, 0.0
    for _ in range(_ROUNDS):
        rows = np.vstack([np.hstack([cuts.coefficient, -cuts.weight[:, None]]) * unit, total, -ratio * total])
        limits = np.concatenate([-cuts.const, [1.0, -1.0]])
        size = np.abs(rows).max(axis=1)
        result = linprog(
            objective,
            A_ub=rows / size[:, None],
            b_ub=limits / size,
            bounds=(0, None),
            method="highs-ds",
            options={"primal_feasibility_tolerance": 1e-9, "dual_feasibility_tolerance": 1e-9},
        )
        if result.x is None:
            raise RuntimeError(f"The linear programme at epsilon={epsilon} was not solved: {result.message}")
        masses, bound = result.x[:-1] * unit, float(result.x[-1]) * unit
        trials = [masses] if worst == math.inf else [(best + masses) / 2, masses]
        added = []
        for trial in trials:
            response = respond(outputs, trial, ratio)
            added += [window_cuts(outputs, response.left, response.right, ratio)]
            added += [_tail_cuts(outputs, np.asarray([response.last]), ratio)]
            if response.worst < worst:
                best, worst = trial, response.worst
        if worst - bound <= gap * bound:
            return MassSolution(best, worst, bound)
        near = result.slack[:-2] <= np.quantile(result.slack[:-2], 0.6)
        cuts = _stack([Cuts(*(column[near] for column in cuts)), *added])
    raise RuntimeError(f"The linear programme at epsilon={epsilon} did not converge: gap {worst / bound - 1:.1e}.")


def respond(outputs: FloatArray, masses: FloatArray, ratio: float) -> WindowResponse:
    """Return the worst variance over [0, 1] for these masses, each input taking its best window."""
    used = masses > 0
    atoms = np.concatenate([-outputs[used][::-1], outputs[used]])
    weights = np.concatenate([masses[used][::-1], masses[used]])
    ends = np.concatenate([[0.0], np.cumsum(weights)])
    first = np.concatenate([[0.0], np.cumsum(weights * atoms)])
    second = np.concatenate([[0.0], np.cumsum(weights * atoms**2)])
    width = min((1 - ends[-1]) / (ratio - 1), ends[-1])
    middle, top = (ends[-1] - width) / 2, ends[-1] - width  # the window of x = 0, and the last one
    places = np.concatenate([ends, ends - width, [middle, top]])
    places = np.unique(places[(places >= middle) & (places <= top)])

    def inside(sums: FloatArray) -> FloatArray:
        return np.asarray((ratio - 1) * (np.interp(places + width, ends, sums) - np.interp(places, ends, sums)))

    means, squares = inside(first), second[-1] + inside(second)
    halfway = (places[1:] + places[:-1]) / 2
    left, right = (
        atoms[np.clip(np.searchsorted(ends, edge, side="right") - 1, 0, atoms.size - 1)]
        for edge in (halfway, halfway + width)
    )
    # between two places the second moment is linear in x with slope left + right
    where = np.clip((left + right) / 2, np.maximum(means[:-1], 0), np.minimum(means[1:], 1))
    variance = squares[:-1] + (left + right) * (where - means[:-1]) - where**2
    reached = means[-1] >= 1 - 1e-12
    worst = float(variance[means[:-1] <= 1].max()) if reached else math.inf
    last = atoms[min(int(np.searchsorted(ends, top, side="right")) - 1, atoms.size - 1)]
    return WindowResponse(worst, left, right, float(last))


def window_cuts(outputs: FloatArray, left: FloatArray, right: FloatArray, ratio: float) -> Cuts:
    """Return the planes of windows with these edges."""
    centre, radius = (left + right) / 2, (right - left) / 2
    offset = np.clip(centre, -1, 1) - centre

    def weighted(y: FloatArray) -> FloatArray:
        product = (y - left[:, None]) * (y - right[:, None])
        return np.asarray(np.where(product < 0, ratio * product, product))

    return Cuts(weighted(outputs) + weighted(-outputs), radius**2 - offset**2, np.ones(left.size))


def _tail_cuts(outputs: FloatArray, left: FloatArray, ratio: float) -> Cuts:
    """Return the planes of windows without right edge: the largest mean must reach 1."""

    def weighted(y: FloatArray) -> FloatArray:
        excess = left[:, None] - y
        return np.asarray(np.where(excess < 0, ratio * excess, excess))

    return Cuts(weighted(outputs) + weighted(-outputs), 1 - left, np.zeros(left.size))


def _first_cuts(outputs: FloatArray, ratio: float, reach: float) -> Cuts:
    """Return a coarse set of windows to start from."""
    centres = np.linspace(0, 1, 17)
    radii = np.geomspace(reach / 100, 2 * reach, 10)
    windows = [window_cuts(outputs, centres - radius, centres + radius, ratio) for radius in radii]
    return _stack([*windows, _tail_cuts(outputs, np.linspace(-reach, reach, 40), ratio)])


def _stack(parts: list[Cuts]) -> Cuts:
    return Cuts(*(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))
