"""Nonparametric empirical Bayes: learn the distribution of the truths, then answer with the posterior mean."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from noisette._validate import FloatArray, IntArray
from noisette.enhancement.prior import FOLDS, Posterior, Prior, by_fold
from noisette.enhancement.stein import Enhanced, unbiased_risk

_WARM_UP, _ITERATIONS = 10, 200
_SMALLEST_WEIGHT = 1e-12  # weight below which an atom is none
# Observations beyond this number are put in cells before the fit: this part of a deviation wide, with deviations alike
# to this ratio.
_EXACT = 4096
_CELL_WIDTH, _CELL_RATIO = 0.4, 0.2
_BLUR = 0.2  # deviations within which atoms stand for a spread of truths


@dataclass(frozen=True)
class PriorFit:
    """The fitted distribution, and one for each fold that was fitted without it."""

    prior: Prior
    others: tuple[Prior, ...]

    @property
    def moments(self) -> tuple[float, float]:
        """Mean and variance of a truth about which nothing was reported."""
        return self.prior.mean, self.prior.variance

    def slack(self, std_error: FloatArray) -> FloatArray:
        """Return what a fit of few atoms, which cannot tell near truths apart, adds to the squared error of each."""
        return np.asarray(np.maximum(_BLUR * std_error - self.prior.width, 0.0) ** 2)

    def posterior(self, observed: FloatArray, std_error: FloatArray) -> Posterior:
        """Return posteriors under the distribution that everyone shaped."""
        return self.prior.posterior(observed, std_error)

    def held_out(self, observed: FloatArray, std_error: FloatArray) -> Posterior:
        """Return posteriors under distributions that did not see the observation."""
        return by_fold(observed.size, lambda fold, own: self.others[fold].posterior(observed[own], std_error[own]))


def npmle(observed: FloatArray, std_error: FloatArray, *, bounded: bool = True) -> Enhanced:
    """Return posterior means under the maximum-likelihood distribution of the truths.

    G maximises sum_j log int N(y_j; t, s_j^2) dG(t) over distributions on the domain, or on the range of the data when
    there is none; value_j = E_G[theta_j | y_j]. The deviations s_j may differ; the truths are taken to be unrelated
    to them.

    *Utility.* Approaches the best rule that treats every coordinate alike as their number grows, whatever the truths:
    sparse, clustered or spread. With fewer than some fifty it follows the noise. The risk is Stein's, with G fitted on
    the other folds, hence unbiased for that slightly worse rule. The standard error is the posterior deviation,
    widened by a fifth of the noise, because a fit of few atoms cannot tell truths apart that lie nearer, and so that
    its mean square is not below the estimated risk.

    Kiefer and Wolfowitz 1956; Jiang and Zhang 2009, General maximum likelihood empirical Bayes estimation of normal
    means; fitted as by Wang 2007, On fast computation of the non-parametric maximum likelihood estimate.

    >>> npmle(np.array([0.9, 1.1, -1.1, -0.9]), np.full(4, 0.2), bounded=False).value.round(1)
    array([ 1.,  1., -1., -1.])
    """
    if observed.size == 0:
        return Enhanced(observed, std_error, observed, observed)
    fitted = fit(observed, std_error, bounded=bounded)
    result, honest = fitted.posterior(observed, std_error), fitted.held_out(observed, std_error)
    if observed.size == 1:  # nobody else to learn from
        risk = std_error**2
    else:
        risk = unbiased_risk(observed, std_error, honest.mean, honest.variance / std_error**2)
    shortfall = max(0.0, float(np.mean(risk) - np.mean(result.variance)))
    return Enhanced(
        result.mean,
        np.sqrt(result.variance + shortfall + fitted.slack(std_error)),
        result.variance / std_error**2,
        risk,
        fitted.prior.mean,
        math.sqrt(fitted.prior.variance + shortfall),
    )


def fit(observed: FloatArray, std_error: FloatArray, *, bounded: bool = True, blur: float = 0.0) -> PriorFit:
    """Fit the distribution of the truths, and again without each fold: coordinates 0, 5, 10, ..., then 1, 6, ...

    With ``blur`` it is a mixture of normals with at least this deviation.
    """
    folds = np.arange(observed.size) % min(FOLDS, observed.size)
    grid = _grid(observed, std_error, bounded, blur)
    width = max(blur, (grid[1] - grid[0]) / 2 if grid.size > 1 else 0.0)
    cells = _cells(observed, np.hypot(std_error, width), folds)
    kernel = likelihood(cells.observed, cells.std_error, grid)
    everyone = cells.counts.sum(axis=1)
    weights = maximise(kernel, everyone)
    others = [weights]
    if observed.size > 1:
        others = [maximise(kernel, everyone - fold, start=weights) for fold in cells.counts.T]
    priors = [_prior(grid, masses, width) for masses in (weights, *others)]
    return PriorFit(priors[0], tuple(priors[1:]))


def likelihood(observed: FloatArray, std_error: FloatArray, grid: FloatArray) -> FloatArray:
    """Return N(y_i; t_k, s_i^2) up to a factor for each row, which is scaled to a largest entry of one."""
    log_density = -((observed[:, None] - grid) ** 2) / (2 * (std_error**2)[:, None])
    return np.asarray(np.exp(log_density - log_density.max(axis=1, keepdims=True)))


def maximise(
    kernel: FloatArray, counts: FloatArray, *, start: FloatArray | None = None, tolerance: float = 1e-6
) -> FloatArray:
    """Return the weights w on the grid that maximise sum_i counts_i log (kernel w)_i.

    Stops when no grid point's directional derivative D_k = sum_i counts_i kernel_ik / (kernel w)_i - sum counts exceeds
    1e-3 plus ``tolerance`` for each observation: the log-likelihood is then that near to its maximum.
    """
    from scipy.optimize import nnls  # heavy: imported where used

    used = counts > 0
    kernel, counts = kernel[used], counts[used]
    size = kernel.shape[1]
    weights = np.ones(size) if start is None else start  # the first step divides by their sum
    fitted = kernel @ weights
    for _ in range(_WARM_UP):
        weights = weights * (kernel.T @ (counts / fitted)) / counts.sum()
        fitted = kernel @ weights
    likelihood = float(counts @ np.log(fitted))
    root = np.sqrt(counts)
    for _ in range(_ITERATIONS):
        gradient = kernel.T @ (counts / fitted) - counts.sum()
        if gradient.max() <= 1e-3 + tolerance * counts.sum():
            break
        support = _support(weights, gradient)
        # Newton's quadratic model is |root (kernel w / fitted - 2)|^2 on the simplex; scaling solves the constraint.
        model = root[:, None] * (kernel[:, support] / fitted[:, None] - 2)
        triangle: FloatArray = np.asarray(np.linalg.qr(model, mode="r"))
        scale = math.sqrt(counts.sum())
        stacked = np.vstack([triangle / scale, np.ones(support.size)])
        target = np.append(np.zeros(triangle.shape[0]), 1.0)
        solution = nnls(stacked, target)[0]
        proposal = np.zeros(size)
        proposal[support] = solution / solution.sum()
        ahead = kernel @ proposal
        slope = float(gradient @ (proposal - weights))
        # No observation may become ten times less likely at once: the quadratic model says nothing about that.
        step = min(1.0, 0.9 / max(0.9, 1 - float(np.min(ahead / fitted))))
        while step > 1e-10:
            candidate = (1 - step) * fitted + step * ahead
            with np.errstate(divide="ignore"):
                gained = float(counts @ np.log(candidate)) - likelihood
            if gained >= step * slope / 3:
                break
            step /= 2
        else:
            break
        weights = (1 - step) * weights + step * proposal
        fitted, likelihood = candidate, likelihood + gained
    return weights


def _support(weights: FloatArray, gradient: FloatArray) -> IntArray:
    """Atoms worth a weight: all that have one, so that no observation is left without an atom, and local maxima."""
    padded = np.concatenate([[-np.inf], gradient, [-np.inf]])
    peak = (gradient > 0) & (gradient >= padded[:-2]) & (gradient >= padded[2:])
    return np.flatnonzero(peak | (weights > _SMALLEST_WEIGHT))


def _prior(grid: FloatArray, weights: FloatArray, width: float) -> Prior:
    """Keep the atoms that carry weight."""
    kept = weights > _SMALLEST_WEIGHT
    return Prior(grid[kept], weights[kept] / weights[kept].sum(), width)


def _grid(observed: FloatArray, std_error: FloatArray, bounded: bool, blur: float = 0.0) -> FloatArray:
    """Spread points over the data's range inside the domain, 400 at most.

    They are an eighth of a typical deviation apart, or half of the blur.
    """
    low, high = float(observed.min()), float(observed.max())
    if bounded:
        low, high = (min(max(end, -1.0), 1.0) for end in (low, high))
    step = max(float(np.quantile(std_error, 0.1)) / 8, blur / 2)
    count = int(min(400, max(2, math.ceil((high - low) / step) + 1))) if high > low else 1
    return np.linspace(low, high, count)


@dataclass(frozen=True)
class _Cells:
    """Observations gathered in cells: mean position, deviation, and how many of each fold."""

    observed: FloatArray
    std_error: FloatArray
    counts: FloatArray


def _cells(observed: FloatArray, std_error: FloatArray, folds: IntArray) -> _Cells:
    """Gather observations of like deviation and position; few are kept one by one."""
    parts = int(folds.max()) + 1
    if observed.size <= _EXACT:
        return _Cells(observed, std_error, np.eye(parts)[folds])
    level = np.rint(np.log(std_error) / _CELL_RATIO)
    place = np.rint(observed / (_CELL_WIDTH * np.exp(level * _CELL_RATIO)))
    place -= place.min()
    key = (level - level.min()) * (place.max() + 1) + place
    _, cell = np.unique(key, return_inverse=True)
    number = int(cell.max()) + 1
    total = np.bincount(cell, minlength=number)
    mean = np.bincount(cell, weights=observed, minlength=number) / total
    # The mean of a cell has lost the scatter within it: its noise is as much smaller.
    scatter = np.bincount(cell, weights=(observed - mean[cell]) ** 2, minlength=number)
    noise = np.bincount(cell, weights=std_error**2, minlength=number)
    deviation = np.sqrt((noise - scatter) / total)
    counts = np.bincount(cell * parts + folds, minlength=number * parts).reshape(number, parts)
    return _Cells(mean, deviation, counts.astype(np.float64))
