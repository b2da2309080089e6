"""The default: the method with the least estimated risk among those that are safe for the number of dimensions."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from noisette._validate import FloatArray
from noisette.domains import BoolArray
from noisette.enhancement import averaging, bounds, shrinkage
from noisette.enhancement.problem import Problem
from noisette.enhancement.simplex import on_simplex, simplex
from noisette.enhancement.stein import Enhanced, clipped

_MANY = 30  # dimensions from which averaged priors were never measured above the raw error
_NOISY = 0.5  # noise, in radii of the domain, from which the domain tells more than the other dimensions


def automatic(problem: Problem) -> Enhanced:
    """Return the enhancement that suits the problem.

    With thirty dimensions or more: averaged priors, unless their estimated risk is above that of the flat prior (raw,
    without a domain) by two standard errors. With fewer, the choice does not look at the values, so that nothing is
    lost to chance: the flat prior for dimensions whose noise exceeds half of the domain's radius or when fewer than
    four are below, James-Stein for the others; neither is ever above the raw risk. Frequencies are projected on the
    simplex, from thirty categories on after averaged priors if their estimated risk allows.
    """
    if problem.frequency and problem.bounded:
        return _frequencies(problem)
    if problem.observed.size < _MANY:
        return _few(problem)
    best = _average(problem)
    if problem.bounded:
        plain = replace(bounds.uniform_prior(problem.debiased, problem.std_error), name="uniform-prior")
    else:
        plain = _raw(problem)
    return plain if _worse(best.risk, plain.risk) else best


def _average(problem: Problem) -> Enhanced:
    result = averaging.bayes(problem.debiased, problem.std_error, origin=problem.origin, bounded=problem.bounded)
    return replace(problem.inside(result), name="bayes")


def _raw(problem: Problem) -> Enhanced:
    return Enhanced(
        problem.debiased, problem.std_error, np.ones_like(problem.observed), problem.std_error**2, name="none"
    )


def _few(problem: Problem) -> Enhanced:
    """Return methods whose risk is at most the raw one at every truth, chosen by the noise alone."""
    observed, std_error = problem.debiased, problem.std_error
    precise = std_error < _NOISY if problem.bounded else np.ones(observed.size, dtype=bool)
    if np.count_nonzero(precise) < 4:
        if not problem.bounded:
            return _raw(problem)
        return replace(bounds.uniform_prior(observed, std_error), name="uniform-prior")
    shrunk = shrinkage.james_stein(observed[precise], std_error[precise])
    if problem.bounded:
        shrunk = clipped(observed[precise], std_error[precise], shrunk)
    if np.all(precise):
        return replace(shrunk, name="james-stein")
    flat = bounds.uniform_prior(observed[~precise], std_error[~precise])
    return Enhanced(
        _merge(precise, shrunk.value, flat.value),
        _merge(precise, shrunk.std_error, flat.std_error),
        _merge(precise, shrunk.slope, flat.slope),
        _merge(precise, shrunk.risk, flat.risk),
        shrunk.blank_value,
        shrunk.blank_error,
        "james-stein and uniform-prior",
    )


def _merge(first: BoolArray, inside: FloatArray, outside: FloatArray) -> FloatArray:
    """Put the entries of two arrays where the mask and its complement say."""
    result = np.empty(first.size)
    result[first], result[~first] = inside, outside
    return result


def _frequencies(problem: Problem) -> Enhanced:
    """Return a point of the simplex, worked out on the scale of frequencies: twice as fine as [-1, 1]."""
    blanks = int(np.count_nonzero(problem.blank))
    observed, std_error = (problem.debiased + 1) / 2, problem.std_error / 2
    best = replace(simplex(observed, std_error, blanks=blanks), name="simplex")
    if observed.size >= _MANY:
        average = _average(problem)
        projected = on_simplex(observed, std_error, (average.value + 1) / 2, average.slope, blanks=blanks)
        if not _worse(projected.risk, best.risk):
            best = replace(projected, std_error=average.std_error / 2, name="bayes, simplex")
    return replace(
        best,
        value=2 * best.value - 1,
        std_error=2 * best.std_error,
        risk=4 * best.risk,
        blank_value=2 * best.blank_value - 1,
        blank_error=2 * best.blank_error,
    )


def _worse(risk: FloatArray, other: FloatArray) -> bool:
    """Tell whether a risk is above another by more than two standard errors of the difference."""
    difference = risk - other
    error = math.sqrt(float(np.sum((difference - np.mean(difference)) ** 2)))
    return float(np.sum(difference)) > 2 * error
