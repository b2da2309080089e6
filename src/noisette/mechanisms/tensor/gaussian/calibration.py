"""How much noise: the exact condition, the published ones, and the noise that a utility subspace asks for.

I is the number of entries, I_k the size of mode k, s the largest Frobenius distance of neighbours, Sigma_k = U_k U_k'
the covariance along mode k, W_k the utility subspace of mode k.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from noisette import _validate
from noisette._validate import FloatArray
from noisette.mechanisms.tensor.gaussian.modes import Mode
from noisette.mechanisms.tensor.gaussian.neighbours import Neighbours

Calibration = Literal["exact", "tvg", "udn", "idn", "mvg", "classical"]
CALIBRATIONS: tuple[Calibration, ...] = ("exact", "tvg", "udn", "idn", "mvg", "classical")

_LEAST_WEIGHT = 1e-3  # of the mean: what a subspace ignores gets finite noise, at 0.1 % of the error


def zeta(delta: float, size: int) -> float:
    """Return a bound that the norm of a standard normal tensor exceeds with probability at most delta.

    zeta^2 = -2 ln delta + 2 sqrt(-I ln delta) + I  (Yang et al. 2021, Lemma 3)

    >>> round(zeta(1e-5, 784), 2)
    31.58
    """
    surprise = -math.log(delta)
    return math.sqrt(2 * surprise + 2 * math.sqrt(size * surprise) + size)


def tvg_bound(epsilon: float, delta: float, size: int, distance: float) -> float:
    """Return B = (sqrt(zeta^2 + 2 epsilon) - zeta)^2 / s^2 (Yang et al. 2021, Theorem 1)."""
    norm = zeta(delta, size)
    return (2 * epsilon / (math.sqrt(norm**2 + 2 * epsilon) + norm) / distance) ** 2


def mvg_bound(epsilon: float, delta: float, rows: int, columns: int, distance: float, largest: float) -> float:
    """Return the right-hand side of MVG's condition, ``largest`` the largest norm of the query (Theorem 4, eq. 30)."""
    rank = np.arange(1.0, min(rows, columns) + 1)
    harmonic, half = float((1 / rank).sum()), float((1 / np.sqrt(rank)).sum())
    alpha = (harmonic + half) * largest**2 + 2 * harmonic * largest * distance
    beta = 2 * (rows * columns) ** 0.25 * harmonic * zeta(delta, rows * columns) * distance
    return float((4 * epsilon / (math.sqrt(beta**2 + 8 * alpha * epsilon) + beta)) ** 2)


def published_scale(
    calibration: Calibration,
    modes: Sequence[Mode],
    neighbours: Neighbours,
    epsilon: float,
    delta: float,
    largest: float,
) -> float:
    """Return the factor on the standard deviations at which a published condition holds with equality."""
    size, distance = math.prod(mode.size for mode in modes), neighbours.l2
    if calibration == "classical":  # Dwork, Roth 2014, Theorem A.1, on the whitened query
        return neighbours.white(modes)[0] * math.sqrt(2 * math.log(1.25 / delta)) / epsilon
    bound = tvg_bound(epsilon, delta, size, distance)
    if calibration == "tvg":
        return math.sqrt(math.prod(mode.trace for mode in modes) / bound)
    if calibration in ("udn", "idn"):
        mode = modes[directional(calibration, modes)]
        return math.sqrt(mode.trace / bound / (mode.size if calibration == "idn" else 1))
    rows, columns = modes[0].size, size // modes[0].size
    limit = mvg_bound(epsilon, delta, rows, columns, distance, largest)
    return math.sqrt(math.prod(mode.frobenius for mode in modes) / limit)


def check_published(calibration: Calibration, modes: Sequence[Mode], neighbours: Neighbours) -> None:
    """Refuse covariances and neighbours that a published theorem does not cover."""
    if calibration == "udn":
        directional(calibration, modes)
    if calibration == "idn":
        if modes[directional(calibration, modes)].full:
            raise ValueError(
                "Expected a diagonal covariance for calibration='idn', got a full matrix. Give its variances, or take "
                "calibration='udn' or 'exact'."
            )
        if neighbours.width is None or neighbours.fixed:
            raise ValueError(
                "Expected a TensorDomain and neighbours that may differ everywhere for calibration='idn': its theorem "
                "is about entries of one range. Take calibration='exact', which holds for every relation."
            )
    if calibration == "mvg" and len(modes) < 2:
        raise ValueError("Expected a matrix or a tensor of higher order for calibration='mvg', got a vector.")


def directional(calibration: str, modes: Sequence[Mode]) -> int:
    """Return the one mode whose variances differ by direction, the first if none has such variances."""
    found = [number for number, mode in enumerate(modes) if mode.covariance is not None]
    if len(found) > 1:
        raise ValueError(
            f"Expected one mode with a covariance of its own for calibration={calibration!r}, got modes {found}. Take "
            "calibration='tvg' or 'exact' for several."
        )
    return found[0] if found else 0


def optimal_mode(
    calibration: Calibration, neighbours: Neighbours, number: int, size: int, subspace: FloatArray | None
) -> Mode:
    """Return the covariance along a mode, up to scale, whose noise is least within a subspace W at the same guarantee.

    Each condition bounds a sum of powers of the variances v, and tr(W Sigma W') = sum_i P_i v_i:

    - exact, a box along this mode: sum 1/v_i, so v_i = 1 / sqrt(P_i), P_i = |W e_i|^2; idn too;
    - tvg, udn: sum 1/v_i in any orthogonal basis; the right singular vectors of W give the least, P_i their squares;
    - mvg: sum 1/v_i^2, so v_i = P_i^(-1/3) in the same basis;
    - exact, an l2 ball along this mode, or one index of it: max 1/v_i, so all v_i alike.
    """
    if subspace is None or not helps(calibration, neighbours, number):
        return Mode(size)
    if calibration in ("tvg", "udn", "mvg"):
        _, values, basis = np.linalg.svd(subspace, full_matrices=False)
        power = -2 / 3 if calibration == "mvg" else -1.0
        variances = _raised(np.pad(values, (0, size - values.size))) ** power
        known, rest = variances[: values.size], float(variances[-1])  # the directions that W ignores are all alike
        if values.size == size:
            rest = 0.0
        covariance = rest * np.eye(size) + (basis.T * (known - rest)) @ basis
        return Mode(size, (covariance + covariance.T) / 2, variances)
    return Mode.read(size, 1 / _raised(np.linalg.norm(subspace, axis=0)), number)


def helps(calibration: Calibration, neighbours: Neighbours, number: int) -> bool:
    """Tell whether uncorrelated noise with directions along a mode can lower the error."""
    if calibration in ("exact", "classical"):
        return neighbours.width is not None and number not in neighbours.fixed
    return True


def words_on_direction(calibration: Calibration, neighbours: Neighbours, number: int) -> str:
    """Say in plain words what directional noise can do along a mode."""
    name = f"Mode {number}"
    if helps(calibration, neighbours, number):
        return f"{name}: less noise where the subspace looks, more elsewhere, lowers the error."
    if number in neighbours.fixed:
        return (
            f"{name}: directional noise cannot help. Neighbours differ in one index of it, any of them, so each needs "
            "the same noise. Only noise correlated between the indices can help: see MatrixMechanism."
        )
    return (
        f"{name}: directional noise cannot help. The whole difference of two neighbours may point in the direction of "
        "the least noise, so that direction sets the guarantee and more noise elsewhere buys nothing."
    )


def read_subspace(given: Any, size: int, number: int) -> FloatArray | None:
    """Check a utility subspace of one mode: a matrix with a column for each index."""
    if given is None:
        return None
    matrix = np.array(_validate.reals(given, f"subspaces[{number}]"), dtype=np.float64)
    if matrix.ndim != 2 or matrix.shape[1] != size:
        raise ValueError(
            f"Expected subspaces[{number}] of shape (any, {size}) for a mode of size {size}, got {matrix.shape}."
        )
    if not np.isfinite(matrix).all() or not matrix.any():
        raise ValueError(f"Expected subspaces[{number}] to hold finite numbers, not all of them zero.")
    matrix.flags.writeable = False
    return matrix


def _raised(weights: FloatArray) -> FloatArray:
    """Return weights of the directions, none of them zero."""
    return np.maximum(weights, _LEAST_WEIGHT * float(weights.mean()))
