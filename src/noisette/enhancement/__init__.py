"""Free post-processing of an estimate: nobody reports again, no privacy is spent, the error falls."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from noisette._validate import FloatArray
from noisette.core import Estimate
from noisette.enhancement import averaging, bounds, hdr4me, shrinkage, simplex
from noisette.enhancement import npmle as nonparametric
from noisette.enhancement.automatic import automatic, raw
from noisette.enhancement.problem import NormalMeans, Scale, by_kind
from noisette.enhancement.reconstruction import Reconstruction, expectation_maximization, reconstruct
from noisette.enhancement.shrinkage import Target
from noisette.enhancement.stein import Enhanced

__all__ = ["METHODS", "Method", "Reconstruction", "enhance", "expectation_maximization", "reconstruct", "relative_gain"]


@dataclass(frozen=True)
class Method:
    """An enhancement: how it is run on a problem, and what it needs to know."""

    run: Callable[..., Enhanced]
    scale: Scale = "common"
    needs_domain: bool = False

    @property
    def options(self) -> tuple[str, ...]:
        """Names of the keyword arguments it takes."""
        return tuple(inspect.signature(self.run).parameters)[1:]


def enhance(estimate: Estimate, method: str = "auto", *, bias: float | FloatArray = 0.0, **options: Any) -> Estimate:
    """Return a better estimate from the same reports.

    ``method`` is one of `METHODS`; ``"auto"`` takes the one with the least estimated risk among those that are safe
    for the number of dimensions. Every method works with a standard error of its own in each dimension. A standard
    error of zero leaves its value alone; where nothing was reported (infinite standard error) the answer is what the
    method says of an unseen dimension. Dimensions with different domains are put on one scale first. ``bias`` is the
    predicted bias of each value, as `noisette.deviation` gives it for a biased mechanism; it is taken off, but for
    HDR4ME, which widens its thresholds by it as printed. Of a record with several attributes (kind "attributes") the
    means are enhanced together and the frequencies together, and each attribute's frequencies are made to add up.

    *Guarantee.* Post-processing: the privacy of the reports is untouched.

    *Utility.* ``expected_gain`` on the result is the estimated fall in mean squared error per reported dimension, from
    the data alone; ``std_error`` is the root of the estimated squared error of each value, as the method's page says.

    >>> import noisette as nz
    >>> raw = nz.Estimate(np.array([1.6, -0.1, 0.2]), np.full(3, 0.5), np.full(3, 100), low=-1.0, high=1.0)
    >>> enhance(raw, "box").value
    array([ 1. , -0.1,  0.2])
    >>> enhance(raw, "hdr4me-l1", confidence=0.9).value.round(2)
    array([0.78, 0.  , 0.  ])
    """
    if not isinstance(estimate, Estimate):
        raise TypeError(
            f"Expected an Estimate, got {type(estimate).__name__}. Aggregate the reports and call estimate() first."
        )
    if method not in METHODS:
        raise ValueError(f"Unknown method {method!r}; expected one of {sorted(METHODS)}.")
    chosen = METHODS[method]
    unknown = sorted(set(options) - set(chosen.options))
    if unknown:
        takes = ", ".join(chosen.options) or "none"
        raise TypeError(f"Method {method!r} takes no option {unknown[0]!r}; its options: {takes}.")
    if estimate.kind == "attributes":
        return by_kind(estimate, bias, lambda own, shift: _by_kind(own, method, shift, options))
    problem = NormalMeans.of(estimate, bias, scale=chosen.scale)
    if chosen.needs_domain and not problem.bounded:
        raise ValueError(f"Method {method!r} needs the domain. Give the Estimate finite low and high, or use 'auto'.")
    if method == "none" and not np.any(bias):
        return replace(estimate, method="none", expected_gain=0.0)
    result = chosen.run(problem, **options)
    return problem.solve(result, f"{method}: {result.name}" if result.name else method)


def relative_gain(raw: Estimate, enhanced: Estimate) -> float:
    """Return the expected fall in mean squared error, as a share of that of the raw estimate; 0 if it is unknown."""
    seen = np.isfinite(raw.std_error)
    before = float(np.mean(raw.std_error[seen] ** 2)) if seen.any() else 0.0
    return 0.0 if enhanced.expected_gain is None or before == 0 else enhanced.expected_gain / before


def _by_kind(own: Estimate, method: str, bias: FloatArray, options: dict[str, Any]) -> Estimate:
    """Enhance the means or the frequencies of a record; methods for frequencies leave means alone."""
    if METHODS[method].scale == "own" and own.kind != "frequency":
        return enhance(own, "none", bias=bias)
    return enhance(own, method, bias=bias, **options)


def _bounded(rule: Callable[..., Enhanced]) -> Callable[..., Enhanced]:
    return lambda problem: rule(problem.debiased, problem.std_error)


def _hdr4me(rule: Callable[..., Enhanced]) -> Callable[..., Enhanced]:
    def run(problem: NormalMeans, confidence: float = 0.95) -> Enhanced:
        return rule(problem.observed, problem.std_error, bias=problem.bias, confidence=confidence)

    return run


def _james_stein(problem: NormalMeans, target: Target = "grand-mean") -> Enhanced:
    return problem.about_origin(lambda y, s: shrinkage.james_stein(y, s, target=target))


def _npmle(problem: NormalMeans) -> Enhanced:
    return problem.inside(nonparametric.npmle(problem.debiased, problem.std_error, bounded=problem.bounded))


def _bayes(problem: NormalMeans) -> Enhanced:
    return problem.inside(
        averaging.bayes(problem.debiased, problem.std_error, origin=problem.origin, bounded=problem.bounded)
    )


def _simplex(problem: NormalMeans) -> Enhanced:
    _check_frequencies(problem)
    y, s = problem.debiased, problem.std_error
    return problem.each_attribute(
        lambda here, blanks, total: simplex.simplex(y[here], s[here], blanks=blanks, total=total)
    )


def _base_cut(problem: NormalMeans, significance: float = 0.05) -> Enhanced:
    _check_frequencies(problem)
    y, s = problem.debiased, problem.std_error
    return problem.each_attribute(lambda here, *_: simplex.base_cut(y[here], s[here], significance=significance))


def _check_frequencies(problem: NormalMeans) -> None:
    """Refuse quantities that can be negative."""
    low = problem.estimate.low
    if low is not None and np.any(np.asarray(low) != 0):
        raise ValueError(f"Expected frequencies, which start at 0; this Estimate has low={low}. Use 'auto' for means.")


METHODS: dict[str, Method] = {
    "auto": Method(automatic),
    "none": Method(lambda problem: replace(raw(problem), name="")),
    "box": Method(_bounded(bounds.box), needs_domain=True),
    "uniform-prior": Method(_bounded(bounds.uniform_prior), needs_domain=True),
    "hdr4me-l1": Method(_hdr4me(hdr4me.l1), "canonical"),
    "hdr4me-l2": Method(_hdr4me(hdr4me.l2), "canonical"),
    "hdr4me-star": Method(_hdr4me(hdr4me.star), "canonical"),
    "james-stein": Method(_james_stein),
    "sure": Method(lambda problem: problem.about_origin(shrinkage.sure)),
    "npmle": Method(_npmle),
    "bayes": Method(_bayes),
    "simplex": Method(_simplex, "own"),
    "norm-sub": Method(_simplex, "own"),
    "base-cut": Method(_base_cut, "own"),
}
