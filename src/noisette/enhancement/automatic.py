"""The default: the method with the least estimated risk among those that are safe for the number of dimensions."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from noisette._validate import FloatArray, IntArray
from noisette.domains import BoolArray
from noisette.enhancement import averaging, bounds, shrinkage
from noisette.enhancement.problem import NormalMeans
from noisette.enhancement.simplex import on_simplex, simplex
from noisette.enhancement.stein import Enhanced, clipped, unbiased_risk

_ENOUGH_DIMS = 30  # dimensions from which averaged priors were never measured above the raw error
_NOISY = 0.8  # noise, in radii of the domain, from which the domain says more than the other dimensions
_WORTHWHILE = 0.01  # of the raw risk: a smaller gain is not worth the chance of a loss


def automatic(problem: NormalMeans) -> Enhanced:
    """Return the enhancement that suits the problem.

    With thirty dimensions or more: averaged priors, unless their estimated risk is above that of the flat prior (raw,
    without a domain) by two standard errors; and where it is not 1 % below the raw one the projection on the domain,
    which no truth can make worse than raw. With fewer, the choice does not look at the values, so that nothing is
    lost to chance: the flat prior for dimensions whose noise exceeds 0.8 of the domain's radius; for the others
    James-Stein, or halfway between flat prior and projection when fewer than four are left. Each of these is at most
    at the raw risk for every truth. Frequencies are projected on the simplex, from thirty categories on after
    averaged priors if their estimated risk allows.
    """
    if problem.frequency and problem.bounded:
        return _frequencies(problem)
    if problem.observed.size < _ENOUGH_DIMS:
        return _few(problem)
    best = _average(problem)
    if problem.bounded:
        plain = replace(bounds.uniform_prior(problem.debiased, problem.std_error), name="uniform-prior")
    else:
        plain = raw(problem)
    chosen = plain if _worse(problem.std_error, best.risk, plain.risk) else best
    if np.sum(chosen.risk) <= (1 - _WORTHWHILE) * np.sum(problem.std_error**2):
        return chosen
    # Of a dimension that nobody reported the others still tell.
    return replace(_projected(problem), blank_value=best.blank_value, blank_error=best.blank_error)


def _average(problem: NormalMeans) -> Enhanced:
    result = averaging.bayes(problem.debiased, problem.std_error, origin=problem.origin, bounded=problem.bounded)
    return replace(problem.inside(result), name="bayes")


def raw(problem: NormalMeans) -> Enhanced:
    """Return the values as they are; nothing is known of those that nobody reported."""
    slope = np.ones_like(problem.observed)
    return Enhanced(problem.debiased, problem.std_error, slope, problem.std_error**2, blank_value=math.nan, name="none")


def _projected(problem: NormalMeans) -> Enhanced:
    """Return the raw values, moved into the domain where there is one."""
    if not problem.bounded:
        return raw(problem)
    return replace(bounds.box(problem.debiased, problem.std_error), name="box")


def _few(problem: NormalMeans) -> Enhanced:
    """Return methods whose risk is at most the raw one at every truth, chosen by the noise alone."""
    observed, std_error = problem.debiased, problem.std_error
    if not problem.bounded:
        if observed.size < 4:
            return raw(problem)
        return replace(shrinkage.james_stein(observed, std_error), name="james-stein")
    precise = std_error < _NOISY
    flat = replace(bounds.uniform_prior(observed[~precise], std_error[~precise]), name="uniform-prior")
    if not np.any(precise):
        return flat
    few = np.count_nonzero(precise) < 4
    sharp = (_halfway if few else _shrunk)(observed[precise], std_error[precise])
    if np.all(precise):
        return sharp
    return Enhanced(
        _merge(precise, sharp.value, flat.value),
        _merge(precise, sharp.std_error, flat.std_error),
        _merge(precise, sharp.slope, flat.slope),
        _merge(precise, sharp.risk, flat.risk),
        flat.blank_value if few else sharp.blank_value,
        flat.blank_error if few else sharp.blank_error,
        f"{sharp.name}, {flat.name}",
    )


def _shrunk(observed: FloatArray, std_error: FloatArray) -> Enhanced:
    result = shrinkage.james_stein(observed, std_error)
    return replace(clipped(observed, std_error, result), name="james-stein")


def _halfway(observed: FloatArray, std_error: FloatArray) -> Enhanced:
    """Average of projection and flat prior: near an end the one makes up for the other."""
    near, flat = bounds.box(observed, std_error), bounds.uniform_prior(observed, std_error)
    value, slope = (near.value + flat.value) / 2, (near.slope + flat.slope) / 2
    error = np.sqrt((near.std_error**2 + flat.std_error**2) / 2)
    risk = unbiased_risk(observed, std_error, value, slope)
    return Enhanced(value, error, slope, risk, flat.blank_value, flat.blank_error, "box and uniform-prior")


def _merge(first: BoolArray, inside: FloatArray, outside: FloatArray) -> FloatArray:
    """Put the entries of two arrays where the mask and its complement say."""
    result = np.empty(first.size)
    result[first], result[~first] = inside, outside
    return result


def _frequencies(problem: NormalMeans) -> Enhanced:
    """Return points of the simplex, worked out on the scale of frequencies: twice as fine as [-1, 1]."""
    observed, std_error = (problem.debiased + 1) / 2, problem.std_error / 2

    def plain(here: IntArray, blanks: int, total: float) -> Enhanced:
        return simplex(observed[here], std_error[here], blanks=blanks, total=total)

    best = replace(problem.each_attribute(plain), name="simplex")
    if observed.size >= _ENOUGH_DIMS:
        average = _average(problem)

        def projected(here: IntArray, blanks: int, total: float) -> Enhanced:
            value, slope = (average.value[here] + 1) / 2, average.slope[here]
            return on_simplex(observed[here], std_error[here], value, slope, blanks=blanks, total=total)

        other = problem.each_attribute(projected)
        if not _worse(std_error, other.risk, best.risk):
            best = replace(other, std_error=average.std_error / 2, name="bayes, simplex")
    return replace(
        best,
        value=2 * best.value - 1,
        std_error=2 * best.std_error,
        risk=4 * best.risk,
        blank_value=2 * best.blank_value - 1,
        blank_error=2 * best.blank_error,
    )


def _worse(std_error: FloatArray, risk: FloatArray, other: FloatArray) -> bool:
    """Tell whether a risk is above another by two standard errors, in all or relative to the noise.

    The noisiest coordinates dominate the sum. In units of its own noise every coordinate counts the same, so that
    truths that depend on the noise show.
    """
    for difference in (risk - other, (risk - other) / std_error**2):
        error = math.sqrt(float(np.sum((difference - np.mean(difference)) ** 2)))
        if float(np.sum(difference)) > 2 * error:
            return True
    return False
