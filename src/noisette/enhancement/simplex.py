"""Frequencies: what is known is that none is negative and that they add up to one."""

from __future__ import annotations

import math

import numpy as np
from scipy.special import ndtri

from noisette._validate import FloatArray
from noisette.enhancement.stein import Enhanced, pooled_square, unbiased_risk


def project(values: FloatArray, *, total: float = 1.0) -> FloatArray:
    """Return the nearest point with entries >= 0 that add up to ``total``.

    x = (v - t)_+ with t such that sum x = total: subtracting one number and cutting at zero, known as norm-sub.

    Wang, Lopuhaa-Zwakenberg, Li, Skoric, Li 2020, Locally differentially private frequency estimation with
    consistency, section IV; Duchi, Shalev-Shwartz, Singer, Chandra 2008, figure 1.

    >>> project(np.array([0.9, 0.4, -0.2]))
    array([0.75, 0.25, 0.  ])
    """
    falling = np.sort(values)[::-1]
    shift = (np.cumsum(falling) - total) / np.arange(1, values.size + 1)
    kept = int(np.count_nonzero(falling > shift))
    return np.maximum(values - shift[kept - 1], 0.0) if kept else np.full_like(values, total / max(1, values.size))


def simplex(observed: FloatArray, std_error: FloatArray, *, blanks: int = 0, total: float = 1.0) -> Enhanced:
    """Project on the frequencies that are possible; categories that nobody could report share what is left.

    *Utility.* Never farther from the truth in all, whatever the noise, because the projection on a convex set is a
    contraction. Little is gained where the observations add up to one by themselves, as with randomised response: risk
    and standard errors count the correlation of the noise that the observed sum shows. For frequencies set to zero the
    standard error is the root of the mean square that they have together beyond noise.

    >>> simplex(np.array([0.9, 0.4, -0.2]), np.full(3, 0.1)).value
    array([0.75, 0.25, 0.  ])
    """
    return on_simplex(observed, std_error, observed, np.ones_like(observed), blanks=blanks, total=total)


def on_simplex(
    observed: FloatArray,
    std_error: FloatArray,
    value: FloatArray,
    slope: FloatArray,
    *,
    blanks: int = 0,
    total: float = 1.0,
) -> Enhanced:
    """Project ``value``, a function of the observations with this slope, and return it with its errors.

    On the k frequencies that are kept the projection takes off their mean surplus: the noise that stays in x_j has
    variance C_jj - 2 C_j / k + C / k^2, with the covariance's sums C_j = sum_i C_ij and C = sum_j C_j over them.
    """
    left = max(0.0, total - float(np.sum(np.maximum(value, 0.0)))) if blanks else 0.0
    if left > 0:
        result, kept = np.maximum(value, 0.0), value > 0
        shared = 0.0
    else:
        result = project(value, total=total)
        kept = result > 0
        shared = 1 / max(1, int(np.count_nonzero(kept)))
    tied = _correlation(observed, std_error, total) if not blanks else 0.0
    # Rows of the covariance, summed over what is kept, in units of the row's own variance.
    rows = 1 + tied * (np.sum(std_error[kept]) - std_error) / std_error
    risk = unbiased_risk(observed, std_error, result, np.where(kept, slope * (1 - shared * rows), 0.0))
    noise = slope * std_error
    calm = min(0.0, max(tied, -1 / max(1, observed.size - 1)))  # no mechanism's categories rise together
    mutual = calm * (np.sum(noise[kept]) - noise)
    whole = float(np.sum(noise[kept] * (noise + mutual)[kept]))
    linear = noise**2 - 2 * shared * noise * (noise + mutual) + shared**2 * whole
    cut = math.sqrt(pooled_square(observed[~kept], std_error[~kept]))
    error = np.where(kept, np.sqrt(np.maximum(linear, 0.0)), cut)
    doubt = left + math.sqrt(float(np.sum(std_error**2)))
    slopes = np.where(kept, (1 - shared) * slope, 0.0)
    return Enhanced(result, error, slopes, risk, left / max(1, blanks), min(1.0, doubt))


def _correlation(observed: FloatArray, std_error: FloatArray, total: float) -> float:
    """Return the common correlation of the noise that makes the observed surplus what was to be expected.

    E (sum y - total)^2 = sum s^2 + correlation ((sum s)^2 - sum s^2): linear in it, hence without bias.
    """
    alone = float(np.sum(std_error**2))
    together = float(np.sum(std_error)) ** 2 - alone
    return ((float(np.sum(observed)) - total) ** 2 - alone) / together if together > 0 else 0.0


def base_cut(observed: FloatArray, std_error: FloatArray, *, significance: float = 0.05) -> Enhanced:
    """Set to zero what noise alone could explain.

    x_j = y_j if y_j >= s_j z, else 0, with z the normal quantile of 1 - significance / k for k categories: with
    probability 1 - significance no absent category is kept.

    *Utility.* For lists of frequent categories; it leaves the sum free and loses to the projection for sums over many
    rare ones. A rule that jumps has no unbiased risk estimate: here it is s^2 for what is kept and y^2 - s^2 for what
    is cut, which ignores the jump.

    Wang et al. 2020, section IV (Base-Cut).

    >>> base_cut(np.array([0.5, 0.05]), np.array([0.1, 0.1])).value
    array([0.5, 0. ])
    """
    if not 0 < significance < 1:
        raise ValueError(f"Expected significance={significance!r} in (0, 1), e.g. 0.05.")
    quantile = float(ndtri(1 - significance / max(1, observed.size)))
    kept = observed >= quantile * std_error
    value = np.where(kept, observed, 0.0)
    risk = np.where(kept, std_error**2, observed**2 - std_error**2)
    cut = math.sqrt(pooled_square(observed[~kept], std_error[~kept]))
    return Enhanced(value, np.where(kept, std_error, cut), np.where(kept, 1.0, 0.0), risk, 0.0, 1.0)
