"""Expected errors of the angles of a vector with normal noise, whose entries may have variances of their own."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np
from scipy.special import ndtr

from noisette._special import gauss_legendre
from noisette._validate import FloatArray

_ENTRIES_ONE_BY_ONE = 64  # entries at the end that are added one by one
_OWN_NODES, _OTHER_NODES = 24, 8  # nodes for what lies behind an angle: for those entries, and for the others
_HALF, _REACH = 40, 9.0  # nodes of a normal variable on one side of zero, and how far it goes, in deviations
_ENTRY = 24  # nodes for the entry that an angle belongs to
_INTEGRATED_SPREAD = (
    0.5  # spread of that entry, over its distance from the origin, above which its angle is integrated instead
)
_LEVELS, _STEP = 24, 0.14  # of a quadrature that crowds at both ends (Takahasi, Mori 1974)
_AT_A_TIME = 1000  # angles of a block
_PANELS, _NODES = 64, 10
_SMALLEST_SPREAD = 1e-8  # a spread below this share of the largest counts as that share

Rule = tuple[FloatArray, FloatArray]  # nodes and weights


def normal_turns(gradient: FloatArray, variances: FloatArray) -> FloatArray:
    """Return the mean squared errors of the angles of gradient + N(0, diag(variances)).

    Angle z is atan2(sqrt(Q), x_z) with Q the sum of the squares behind x_z, which is independent of it. In a stretch of
    equal variances Q is the square of a normal variable, along the stretch's mean, and a chi-square one, across; what
    lies behind the stretch adds to it. Each sum is brought to a few nodes that keep its first moments (Gauss
    quadrature by the method of Lanczos), and the angle is integrated over them and x_z. The last angle has a density
    in closed form.

    >>> normal_turns(np.asarray([1.0, 0.0, 0.0]), np.full(3, 1e-6)).round(9)
    array([2.00e-06, 3.29e+00])
    """
    dims = gradient.size
    if dims < 2:
        raise ValueError("Expected a gradient of two entries or more: one number has no direction.")
    largest = max(float(np.abs(gradient).max()), math.sqrt(float(variances.max())), 1e-300)
    scaled = gradient / largest
    stds = np.maximum(np.sqrt(variances) / largest, _SMALLEST_SPREAD)
    clean = np.sqrt(np.cumsum(np.square(scaled)[::-1])[::-1])
    angles = np.stack([scaled[:-1], stds[:-1], np.arctan2(clean[1:], scaled[:-1])])[:, :, None]
    turns = np.empty(dims - 1)
    rest: Rule = np.zeros(1), np.ones(1)
    edge = max(0, dims - _ENTRIES_ONE_BY_ONE)
    for place in range(dims - 1, edge - 1, -1):
        if place < dims - 2:
            turns[place] = _turns(angles[:, [place]], (rest[0][None], rest[1][None]))[0]
        rest = _one_more(float(scaled[place]), float(stds[place]), rest)
    cuts = [0, *(np.flatnonzero(np.diff(variances[:edge])) + 1).tolist(), edge]
    for start, stop in reversed([*pairwise(cuts)] if edge else []):
        for first in range(start, stop, _AT_A_TIME):
            block = slice(first, min(first + _AT_A_TIME, stop))
            behind = _squares(scaled[first:stop], float(stds[start]), block.stop - first, rest, skipped=1)
            turns[block] = _turns(angles[:, block], behind)
        nodes, weights = _squares(scaled[start:stop], float(stds[start]), 1, rest)
        rest = nodes[0], weights[0]
    turns[-1] = _last_turn(*scaled[-2:], *stds[-2:])
    return turns


def _one_more(entry: float, std: float, rest: Rule) -> Rule:
    """Return nodes for a sum of squares with the square of one more noisy entry.

    The size of an entry near 0 has no smooth density: it is integrated on each side.
    """
    low, high = max(abs(entry) - _REACH * std, 0.0), abs(entry) + _REACH * std
    node, weight = gauss_legendre(_HALF)
    sizes = low + (high - low) / 2 * (node + 1)
    facing, turned = (np.exp(-(((sizes - sign * abs(entry)) / std) ** 2) / 2) for sign in (1, -1))
    chances = weight * (facing + turned)
    squares = np.add.outer(np.square(sizes), rest[0]).reshape(1, -1)
    nodes, weights = _fewer(squares, np.outer(chances / chances.sum(), rest[1]).reshape(1, -1), _OWN_NODES)
    return nodes[0], weights[0]


def _squares(stretch: FloatArray, std: float, count: int, rest: Rule, *, skipped: int = 0) -> Rule:
    """Return nodes for the sum of the squares of a stretch's noisy entries and of what is behind it.

    One row for each of the first ``count`` entries: of those from it on, or after it if one is ``skipped``.
    """
    lengths = np.sqrt(np.append(np.cumsum(np.square(stretch)[::-1])[::-1], 0.0))[skipped : skipped + count]
    sizes = stretch.size - skipped - np.arange(count)
    normal, across = _hermite(_OTHER_NODES), _chi_squares(np.maximum(sizes - 1, 1), _OTHER_NODES)
    along = np.square(lengths[:, None] + std * normal[0]) * (sizes > 0)[:, None]
    beside = std**2 * across[0] * (sizes > 1)[:, None]
    return _added(_added((along, normal[1][None]), (beside, across[1])), (rest[0][None], rest[1][None]))


def _added(first: Rule, second: Rule) -> Rule:
    """Return nodes for the sums of independent variables, row by row."""
    points, weights = first[0][:, :, None] + second[0][:, None], first[1][:, :, None] * second[1][:, None]
    return _fewer(points.reshape(len(points), -1), weights.reshape(len(points), -1), _OTHER_NODES)


def _fewer(squares: FloatArray, weights: FloatArray, count: int) -> Rule:
    """Return, for each row, ``count`` nodes whose roots have the same first moments (Golub, Welsch 1969).

    Of roots, because the angle is a smooth function of the root of a sum of squares and not of the sum.
    """
    points = np.sqrt(squares)
    middle = np.einsum("zn,zn->z", weights, points)[:, None]
    spread = np.sqrt(np.einsum("zn,zn->z", weights, (points - middle) ** 2))[:, None]
    standard = (points - middle) / np.where(spread > 0, spread, 1.0)
    basis = np.zeros((points.shape[0], count, points.shape[1]))
    basis[:, 0] = np.sqrt(weights)
    jacobi = np.zeros((points.shape[0], count, count))
    for k in range(count):
        ahead = standard * basis[:, k]
        jacobi[:, k, k] = np.einsum("zn,zn->z", ahead, basis[:, k])
        if k + 1 == count:
            break
        for _ in range(2):  # twice is enough for orthogonality
            shares = np.einsum("zkn,zn->zk", basis[:, : k + 1], ahead)
            ahead -= np.einsum("zk,zkn->zn", shares, basis[:, : k + 1])
        length = np.sqrt(np.einsum("zn,zn->z", ahead, ahead))
        length[length < 1e-9] = 0.0  # no more points than nodes
        jacobi[:, k, k + 1] = jacobi[:, k + 1, k] = length
        basis[:, k + 1] = ahead / np.where(length > 0, length, np.inf)[:, None]
    values, vectors = np.linalg.eigh(jacobi)
    return np.square(np.maximum(middle + spread * values, 0.0)), np.square(vectors[:, 0])


def _turns(angles: FloatArray, behind: Rule) -> FloatArray:
    """Return mean squared errors, of angles by their entry, its spread and what they are without noise.

    ``behind`` has nodes for the sum of the noisy squares behind each.
    """
    lengths = np.sqrt(behind[0])
    entries, spreads, own = (np.broadcast_to(row, lengths.shape) for row in angles)
    found = np.empty(lengths.shape)
    wide = spreads > _INTEGRATED_SPREAD * np.hypot(entries, lengths)
    for chosen, mean in ((~wide, _over_entry), (wide, _over_angle)):
        if chosen.any():
            found[chosen] = mean(lengths[chosen], entries[chosen], spreads[chosen], own[chosen])
    return np.asarray(np.einsum("zm,zm->z", found, behind[1]))


def _over_entry(length: FloatArray, entry: FloatArray, std: FloatArray, own: FloatArray) -> FloatArray:
    """Return E (u - own)^2 for u = atan2(length, entry + N(0, std^2)) where noise hardly reaches the origin."""
    nodes, weights = _hermite(_ENTRY)
    found = np.zeros(length.shape)
    for node, weight in zip(nodes, weights, strict=True):
        found += weight * np.square(np.arctan2(length, entry + std * node) - own)
    return found


def _over_angle(length: FloatArray, entry: FloatArray, std: FloatArray, own: FloatArray) -> FloatArray:
    """Return the same as int_0^pi 2 |u - own| P[the angle is beyond u, seen from own] du."""
    found = np.zeros(length.shape)
    for k in range(-_LEVELS, _LEVELS + 1):
        near = 1 / (1 + math.exp(math.pi * math.sinh(k * _STEP)))  # from the end of the range; 1 - near from own
        weight = _STEP * math.pi * math.cosh(k * _STEP) * near * (1 - near)
        for end, sign in ((own, 1.0), (math.pi - own, -1.0)):
            angle = np.maximum(end * near, 1e-300)  # from 0, or from pi
            beyond = ndtr(-(length / np.tan(angle) - sign * entry) / std)
            found += weight * end * 2 * (end - angle) * beyond
    return found


def _hermite(count: int) -> tuple[FloatArray, FloatArray]:
    """Return nodes and weights for a standard normal variable."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(count)
    return nodes, weights / math.sqrt(2 * math.pi)


def _chi_squares(degrees: Any, count: int) -> tuple[FloatArray, FloatArray]:
    """Return nodes and weights for chi-square variables, a row for each number of degrees (Golub, Welsch 1969)."""
    order = np.arange(count)
    shape = np.asarray(degrees, dtype=float)[:, None] / 2 - 1
    jacobi = np.zeros((shape.size, count, count))
    jacobi[:, order, order] = 2 * order + shape + 1
    beside = np.sqrt(order[1:] * (order[1:] + shape))
    jacobi[:, order[1:], order[:-1]] = jacobi[:, order[:-1], order[1:]] = beside
    nodes, vectors = np.linalg.eigh(jacobi)
    return 2 * np.maximum(nodes, 0.0), np.square(vectors[:, 0, :])


def _last_turn(x: float, y: float, s: float, t: float) -> float:
    """Return E w^2, w the angle in (-pi, pi] between (x, y) and the same with N(0, s^2) and N(0, t^2) added.

    Where both spreads are one, the density of the angle v is exp(-r^2/2) / (2 pi) + h Phi(h) exp((h^2 - r^2)/2) /
    sqrt(2 pi), r the vector's length and h = r cos v. Other spreads stretch the axes.
    """
    reach, start = math.hypot(x / s, y / t), math.atan2(y / t, x / s)
    near = min(math.pi, 12 / max(reach, 1e-300))
    steep = np.outer([-1, 1], 0.5 ** np.arange(34)).reshape(-1) + np.outer(
        np.arange(-4, 5) * math.pi / 2 - start, [1.0]
    )
    edges = np.unique(
        np.clip(
            np.concatenate(
                [np.linspace(-near, near, _PANELS), np.linspace(-math.pi, math.pi, _PANELS), steep.reshape(-1)]
            ),
            -math.pi,
            math.pi,
        )
    )
    node, weight = gauss_legendre(_NODES)
    half = np.diff(edges)[:, None] / 2
    v = edges[:-1, None] + half * (node + 1)
    h = reach * np.cos(v)
    density = math.exp(-(reach**2) / 2) / (2 * math.pi)
    density = density + h * ndtr(h) * np.exp(-((reach * np.sin(v)) ** 2) / 2) / math.sqrt(2 * math.pi)
    apart = np.arctan2(t * np.sin(start + v), s * np.cos(start + v)) - math.atan2(y, x)
    apart = (apart + math.pi) % (2 * math.pi) - math.pi
    return float((apart**2 * density * weight * half).sum())
