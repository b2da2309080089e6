"""How a mechanism answers at given true values: what a prediction averages over the population."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from noisette._validate import FloatArray, IntArray
from noisette.core import Mechanism, Moments
from noisette.domains import (
    Attributes,
    Box,
    Domain,
    Grid,
    Interval,
    L2Ball,
    Selection,
    TensorBall,
    TensorDomain,
    Texts,
)
from noisette.mechanisms._base import blocks
from noisette.mechanisms.categorical._base import CategoricalMechanism
from noisette.mechanisms.vector.attributes import SampledAttributes
from noisette.mechanisms.vector.sampled import Sampled

ROUNDING = 1e-8  # of the domain's length: a smaller bias is the rounding of reports to their lattice
_ENTRIES = 1 << 16  # values whose moments are evaluated at a time


@dataclass(frozen=True, eq=False)
class Response:
    """Moments of one report at each true value (first axis), for each estimated quantity (second axis, if any).

    ``truth`` is the quantity itself, ``share`` the reports about it that one user sends on average, ``scale`` the
    length by which a bias is large or small. Where a mechanism treats all categories alike, the first row is for users
    of another category, the second for those of the own one, and ``codes`` are the categories that weights are about.
    """

    truth: FloatArray
    bias: FloatArray
    variance: FloatArray
    third: FloatArray
    share: float
    scale: float
    codes: IntArray | None = None

    @property
    def unbiased(self) -> bool:
        """Whether every bias is but the rounding of reports to their lattice."""
        rows = self.bias if self.codes is None else self.bias[:, :1]
        return bool(np.abs(rows).max() <= ROUNDING * self.scale)

    @cached_property
    def centred(self) -> FloatArray:
        """Mean report at each value, measured from a fixed one so that no digits are lost."""
        return np.asarray((self.truth - self.truth[:1]) + self.bias)

    def weigh(self, weights: FloatArray) -> FloatArray:
        """Turn weights of the values that were asked about into weights of the rows."""
        if self.codes is None:
            return weights
        frequency = np.bincount(self.codes, weights, minlength=self.truth.shape[1])
        return np.stack([1 - frequency, frequency])

    def error_range(self) -> tuple[float, float]:
        """Return the least and the largest variance that one user leaves in a frequency, averaged over categories.

        Summed over the categories, variances of reports are the same for all distributions if all categories are
        alike; what the choice of who reports adds is zero if all users are of one category, and largest if all
        categories are equally frequent.
        """
        pure, size = self.pure_variances(), self.truth.shape[1]
        spread = (1 - self.share) * (1 - 1 / size) / size
        return float(pure.min()) / self.share, (float(pure.max()) + spread) / self.share

    def pure_variances(self) -> FloatArray:
        """Return the variance averaged over all categories, for users who are all of one category, for each of them."""
        if self.codes is None:
            return np.asarray(self.variance.mean(axis=1))
        size = self.truth.shape[1]
        return np.asarray([((size - 1) * self.variance[0, 0] + self.variance[1, 0]) / size])

    def column(self, quantity: int) -> Response:
        """Return the response of one quantity out of many."""
        arrays = {name: getattr(self, name)[:, quantity] for name in ("truth", "bias", "variance", "third")}
        return replace(self, **arrays)


def respond(mechanism: Mechanism, values: FloatArray) -> Response:
    """Return the response of ``mechanism`` to ``values``: scalars, categories, or rows that are whole vectors.

    For a mechanism on vectors a list of scalars stands for vectors whose entries are all alike, and the response is
    averaged over the entries: exact when the error is a sum of functions of one entry each, as it is for ours.
    """
    if isinstance(mechanism, SampledAttributes):
        return _records(mechanism, values)
    if isinstance(mechanism, Sampled):
        return _sampled(mechanism, values)
    if mechanism.domain.shape == ():
        return _single(mechanism, values)
    shape = mechanism.domain.shape
    if values.ndim > 1:
        moments = _evaluate(mechanism, values)
        if moments.bias.ndim == 1:  # only the first number of a row is estimated; the others steer, like a user's level
            return Response(values[:, 0], moments.bias, moments.variance, moments.third, 1.0, _scale(mechanism.domain))
        flat = len(values), -1
        bias, variance, third = (array.reshape(flat) for array in (moments.bias, moments.variance, moments.third))
        return Response(values.reshape(flat), bias, variance, third, 1.0, _scale(mechanism.domain))
    alike = [_evaluate(mechanism, np.full((1, *shape), value)) for value in values.tolist()]
    bias, variance, third = (
        np.asarray([float(getattr(m, name).mean()) for m in alike]) for name in ("bias", "variance", "third")
    )
    return Response(values, bias, variance, third, 1.0, _scale(mechanism.domain))


def scalar_domain(mechanism: Mechanism) -> Domain:
    """Return the domain of one entry of what a mechanism takes, see `entry_domain`."""
    return entry_domain(mechanism.domain)


def entry_domain(domain: Domain) -> Domain:
    """Return the domain of one entry, which is the same for all: where all entries are alike, how large they may be."""
    if domain.shape == () or isinstance(domain, Selection):
        return domain
    if isinstance(domain, Box):
        if np.ptp(domain.lows) > 0 or np.ptp(domain.highs) > 0:
            raise ValueError(
                "Expected the same bounds in every dimension. Give values as rows of whole vectors instead."
            )
        return Interval(float(domain.lows[0]), float(domain.highs[0]))
    if isinstance(domain, L2Ball):
        reach = domain.radius / math.sqrt(domain.dims)
        return Interval(-reach, reach)
    if isinstance(domain, TensorDomain):
        return Interval(domain.low, domain.high)
    if isinstance(domain, TensorBall):
        reach = domain.diameter / 2 / math.sqrt(math.prod(domain.shape))
        return Interval(-reach, reach)
    if isinstance(domain, Attributes | Texts):
        raise ValueError(f"Expected a mechanism on numbers, categories or vectors, got one on {domain}.")
    reach = float(np.min(domain.clip(np.full(domain.shape, domain.diameter))))  # a kind of ball that was registered
    return Interval(-reach, reach)


def _single(mechanism: Mechanism, values: FloatArray) -> Response:
    """Respond to numbers, or to categories: then the quantities are the frequencies of all categories."""
    if mechanism.kind != "frequency":
        moments = _evaluate(mechanism, values)
        return Response(values, moments.bias, moments.variance, moments.third, 1.0, _scale(mechanism.domain))
    codes = values.astype(np.int64)
    alike = _alike(mechanism)
    if alike is not None:
        truth = np.broadcast_to([[0.0], [1.0]], alike.bias.shape)
        return Response(truth, alike.bias, alike.variance, alike.third, 1.0, 1.0, codes)
    moments = _evaluate(mechanism, codes)
    truth = (codes[:, None] == np.arange(moments.variance.shape[1])).astype(np.float64)
    return Response(truth, moments.bias, moments.variance, moments.third, 1.0, 1.0)


def _alike(mechanism: Any) -> Moments | None:
    """Return the moments for users of another category and of the own one, if they are the same for all categories."""
    size = mechanism.domain.size
    known = mechanism.moments_alike if isinstance(mechanism, CategoricalMechanism) else None
    if known is not None:
        rows = (np.broadcast_to(row[:, None], (2, size)) for row in (known.bias, known.variance, known.third))
        return Moments(*rows)
    codes = np.unique([0, 1, size - 1])
    own = codes[:, None] == np.arange(size)
    moments = mechanism.moments(codes)
    found = {}
    for name in ("bias", "variance", "third"):
        array = getattr(moments, name)
        if np.ptp(array[own]) > 0 or np.ptp(array[~own]) > 0:
            return None
        found[name] = np.repeat([[array[~own][0]], [array[own][0]]], size, axis=1)
    return Moments(**found)


def _sampled(mechanism: Any, values: FloatArray) -> Response:
    """Respond by the inner mechanism, on the scale of the outer domain."""
    share = mechanism.report / mechanism.dims
    if values.ndim == 2:
        moments = _evaluate(mechanism, values)
        half: Any = (mechanism.domain.highs - mechanism.domain.lows) / 2
        return Response(values, moments.bias, moments.variance, moments.third, share, 2 * float(half.max()))
    domain = scalar_domain(mechanism)
    assert isinstance(domain, Interval)
    half = domain.diameter / 2
    inner = _evaluate(mechanism.inner_mechanism, np.clip(domain.to_canonical(values), -1, 1))
    return Response(values, half * inner.bias, half**2 * inner.variance, half**3 * inner.third, share, 2 * half)


def _records(mechanism: Any, values: FloatArray) -> Response:
    """Respond to whole records: every quantity has the share of reports that its attribute has."""
    moments = _evaluate(mechanism, values)
    share, scale = mechanism.report / mechanism.dims, max(inner.domain.diameter for inner in mechanism.inner_mechanisms)
    return Response(mechanism.domain.expand(values), moments.bias, moments.variance, moments.third, share, scale)


def _evaluate(mechanism: Any, values: Any) -> Moments:
    """Evaluate the moments in blocks along the first axis."""
    length = max(1, _ENTRIES // max(1, math.prod(values.shape[1:])))
    each = [mechanism.moments(values[span]) for span in blocks(len(values), length)]
    return Moments(*(np.concatenate([getattr(one, name) for one in each]) for name in ("bias", "variance", "third")))


def _scale(domain: Domain) -> float:
    """Return the length of the domain in one dimension."""
    return (
        domain.diameter if isinstance(domain, Interval | Grid) else domain.diameter / math.sqrt(math.prod(domain.shape))
    )
