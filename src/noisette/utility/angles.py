"""Expected errors of angles under normal noise: on the angle itself, or on the vector that it belongs to."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy.special import ndtr

from noisette._validate import FloatArray

_NARROW = 0.2  # deviation below which noise reaches one end of an angle's range only: the other is 7 of them away
_SMALL = 64  # entries behind an angle up to which it takes a fine quadrature
_FINE, _COARSE = (40, 24, 24), (16, 8, 8)  # nodes: the entry, the length behind it along its mean, and across
_AT_A_TIME = 1 << 21  # points of the quadrature
_PANELS, _NODES = 64, 10


def folded(angles: FloatArray, std: float) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return E u, E u^2 and E sign(sin v) for v = angle + N(0, std^2), u in [0, pi] with cos u = cos v."""
    if std < _NARROW:
        near = np.minimum(angles, math.pi - angles)  # distance of the nearer end, at which v is reflected
        beyond = ndtr(-near / std)
        length = std * math.sqrt(2 / math.pi) * np.exp(-((near / std) ** 2) / 2) + near * (1 - 2 * beyond)
        low = angles <= math.pi / 2
        first = np.where(low, length, math.pi - length)
        square = near**2 + std**2
        return first, np.where(low, square, math.pi**2 - 2 * math.pi * length + square), 1 - 2 * beyond
    first, square, sign = np.full(angles.shape, math.pi / 2), wrapped(angles, std), np.zeros(angles.shape)
    for n in range(1, _terms(std) + 1, 2):
        damped = math.exp(-((n * std) ** 2) / 2)
        first -= 4 / math.pi * damped / n**2 * np.cos(n * angles)
        sign += 4 / math.pi * damped / n * np.sin(n * angles)
    return first, square, sign


def wrapped(apart: Any, std: float) -> Any:
    """Return E w^2 for w in (-pi, pi] equal to apart + N(0, std^2) up to whole turns."""
    away = np.abs((np.asarray(apart) + math.pi) % (2 * math.pi) - math.pi)
    if std < _NARROW:
        # a turn is lost where the sum passes pi: (v - 2 pi)^2 - v^2 = 4 pi (pi - v)
        room = math.pi - away
        passed = room * ndtr(-room / std) - std / math.sqrt(2 * math.pi) * np.exp(-((room / std) ** 2) / 2)
        return (away**2 + std**2 + 4 * math.pi * passed)[()]
    square = np.full(np.shape(away), math.pi**2 / 3)
    for n in range(1, _terms(std) + 1):
        square += 4 * (-1) ** n / n**2 * math.exp(-((n * std) ** 2) / 2) * np.cos(n * away)
    return square[()]


def _terms(std: float) -> int:
    """Terms of a Fourier series after which normal noise leaves nothing."""
    return math.ceil(9 / std)


def normal_turns(gradient: FloatArray, std: float) -> FloatArray:
    """Return the mean squared errors of the angles of gradient + N(0, std^2 I).

    The entry x_z, the part of the rest along its mean, and the rest across it are independent: two normal variables and
    the root of a chi-square one, of which the angle is a function. Gauss quadrature over the three.
    """
    scaled = gradient / std
    dims = scaled.size
    if dims < 2:
        raise ValueError("Expected a gradient of two entries or more: one number has no direction.")
    behind = np.sqrt(np.cumsum(np.square(scaled)[::-1])[::-1])
    turns = np.empty(dims - 1)
    for start, stop, nodes in _tiers(dims - 2, dims):
        entry, along = _hermite(nodes[0]), _hermite(nodes[1])
        across = _chi_squares(dims - 2 - np.arange(start, stop), nodes[2])
        x = scaled[start:stop, None, None, None] + entry[0][:, None, None]
        y = behind[start + 1 : stop + 1, None, None, None] + along[0][:, None]
        angle = np.arctan2(np.sqrt(y**2 + across[0][:, None, None, :]), x)
        angle -= np.arctan2(behind[start + 1 : stop + 1], scaled[start:stop])[:, None, None, None]
        turns[start:stop] = np.einsum("zijk,i,j,zk->z", np.square(angle), entry[1], along[1], across[1], optimize=True)
    turns[-1] = _last_turn(float(behind[-2]))
    return turns


def _tiers(count: int, dims: int) -> list[tuple[int, int, tuple[int, int, int]]]:
    """Cut the first angles in blocks, those with many entries behind them in coarser quadrature."""
    made = []
    edge = max(0, min(count, dims - _SMALL))
    for first, last, nodes in ((0, edge, _COARSE), (edge, count, _FINE)):
        size = max(1, _AT_A_TIME // math.prod(nodes))
        made += [(start, min(start + size, last), nodes) for start in range(first, last, size)]
    return made


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


def _last_turn(reach: float) -> float:
    """Return E w^2, w the angle between a plane vector of this length and the same with N(0, I) added.

    Its density is exp(-r^2/2) / (2 pi) + h Phi(h) exp((h^2 - r^2)/2) / sqrt(2 pi), h = r cos w.
    """
    node, weight = np.polynomial.legendre.leggauss(_NODES)
    near = min(math.pi, 12 / max(reach, 1e-300))
    edges = np.append(np.linspace(0, near, _PANELS), np.linspace(near, math.pi, _PANELS)[1:] if near < math.pi else [])
    half = np.diff(edges)[:, None] / 2
    w = edges[:-1, None] + half * (node + 1)
    h = reach * np.cos(w)
    density = math.exp(-(reach**2) / 2) / (2 * math.pi)
    density = density + h * ndtr(h) * np.exp(-((reach * np.sin(w)) ** 2) / 2) / math.sqrt(2 * math.pi)
    return float(2 * (w**2 * density * weight * half).sum())
