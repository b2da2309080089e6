"""One check that every mechanism must pass, yours included."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
from scipy.special import ndtri

from noisette import _random
from noisette._validate import FloatArray
from noisette.auditing import exact_epsilon
from noisette.core import Aggregate, Estimating
from noisette.mechanisms import CATALOGUE, from_spec

_BATCHES = 2000
_RARE = 3.0  # a Lyapunov ratio below it means that some 2000 / 9 of the reports that carry the variance were seen


def check_mechanism(mechanism: Estimating, *, samples: int = 100_000, false_alarm: float = 1e-6, rng: int = 0) -> None:
    """Raise AssertionError unless ``mechanism`` keeps the contract.

    It need not be in the catalogue; one that is must also survive its JSON description. Checked: reports lie in
    the support; the input is left alone; a seed repeats the reports; aggregates merge in any order to the same
    bits; the exact epsilon is at most the stated one and no random report or input beats it; the likelihoods belong
    to the sampler; the estimate is unbiased; the variance is the stated one. A sound mechanism fails with
    probability at most ``false_alarm``.

    >>> from noisette import Duchi
    >>> check_mechanism(Duchi(epsilon=1.0), samples=10_000)
    """
    inputs = _inputs(mechanism, rng)
    tests = 4 * len(inputs) * max(1, np.size(mechanism.readout.scale), inputs[0].size)
    level = float(ndtri(1 - false_alarm / tests / 2))
    _check_description(mechanism, inputs, rng)
    _check_budget(mechanism, inputs)
    for number, x in enumerate(inputs):
        many = np.broadcast_to(x, (samples, *x.shape)).copy()
        reports = mechanism.privatize(many, rng=rng + number)
        assert np.all(mechanism.support.contains(reports)), (
            f"{mechanism.name} sent a report outside {mechanism.support}"
        )
        _check_likelihood(mechanism, reports, x, inputs[number - 1], level)
        _check_moments(mechanism, reports, x, level)


def _inputs(mechanism: Estimating, seed: int) -> list[Any]:
    """Return the worst inputs and, where the domain is convex, points between them."""
    worst = [np.asarray(x) for x in mechanism.witnesses()[0]]
    if worst[0].dtype.kind in "iu" or mechanism.domain.kind in ("sphere", "grid", "attributes"):
        return worst
    shares = np.random.default_rng(seed).dirichlet(np.ones(len(worst)), size=2)
    return worst + [np.asarray(np.tensordot(share, np.asarray(worst), axes=1)) for share in shares]


def _check_description(mechanism: Estimating, inputs: list[Any], seed: int) -> None:
    """Check determinism, purity, JSON and merging on a small batch."""
    x = np.asarray(inputs)[np.arange(60) % len(inputs)]
    before = x.copy()
    rows = [slice(row, row + 1) for row in range(60)]
    reports = mechanism.privatize(x, rng=seed)
    assert np.array_equal(x, before), f"{mechanism.name} changed its input"
    whole = _aggregate(mechanism, reports)
    same = [mechanism]
    if CATALOGUE.get(mechanism.name) is type(mechanism):
        restored = from_spec(json.dumps(mechanism.spec()))
        assert restored.spec() == mechanism.spec(), f"{mechanism.name} does not survive JSON"
        same.append(restored)
    for twin in same:
        again = twin.privatize(x, rng=_random.generator(seed))
        # one by one: sums of sixty other reports may well be the same
        alike = (_aggregate(mechanism, reports[row]) == _aggregate(twin, again[row]) for row in rows)
        assert all(alike), f"{mechanism.name} gives other reports for the same seed"
    assert _aggregate(mechanism, mechanism.privatize(x)).users == 60
    first, second, third = (_aggregate(mechanism, reports[part]) for part in (slice(9), slice(9, 40), slice(40, 60)))
    for merged in (first + second + third, third + (first + second), second + third + first):
        assert merged == whole, f"aggregates of {mechanism.name} depend on the order of merging"


def _check_budget(mechanism: Estimating, inputs: list[Any]) -> None:
    """Check the exact epsilon against the stated one, and that the witnesses were the worst."""
    exact, stated = exact_epsilon(mechanism), mechanism.guarantee
    if stated.delta == 0:
        slack = 1e-9 * stated.epsilon + 1e-11
        assert exact <= stated.epsilon + slack, f"{mechanism.name} has exact epsilon {exact}, above {stated.epsilon}"
    x = np.asarray(inputs)
    reports = mechanism.privatize(x[np.arange(200) % len(x)], rng=1)
    for row in range(200):
        likelihood = mechanism.log_prob(reports[row : row + 1], x)
        gap = float(np.max(likelihood) - np.min(likelihood))
        assert gap <= exact + 1e-9 * max(1.0, abs(exact)), f"{mechanism.name}: a report has ratio {gap}, above {exact}"


def _check_likelihood(mechanism: Estimating, reports: Any, x: Any, other: Any, level: float) -> None:
    """Check that E[p(Y | other) / p(Y | x)] = 1 under x, which holds only if the sampler has this likelihood."""
    rows = slice(0, 20_000)
    own = mechanism.log_prob(reports[rows], x[None])
    assert np.all(np.isfinite(own)), f"{mechanism.name} sent a report that log_prob calls impossible"
    ratio = np.exp(np.minimum(mechanism.log_prob(reports[rows], other[None]) - own, 700.0))
    if mechanism.guarantee.delta > 0:
        # beyond exp(epsilon) at most delta of the mass lies, so cap there and lose no more than that
        ratio = np.minimum(ratio, math.exp(min(mechanism.guarantee.epsilon, 700.0)))
    error = level * float(ratio.std()) / math.sqrt(ratio.size) + mechanism.guarantee.delta
    error += 1e-9 + math.exp(min(2 * mechanism.guarantee.epsilon, 50.0)) * level / ratio.size
    assert abs(float(ratio.mean()) - 1) <= error, (
        f"{mechanism.name}: the mean likelihood ratio is {float(ratio.mean())}, not 1 within {error}: "
        "log_prob and privatize disagree"
    )


def _check_moments(mechanism: Estimating, reports: Any, x: Any, level: float) -> None:
    """Check that the estimate is unbiased and has the stated variance, on means of batches."""
    truth, stated = _truth(mechanism, x), _stated_variance(mechanism, x).reshape(-1)
    whole = _aggregate(mechanism, reports).estimate()
    # reports on a lattice may miss the truth by a hundred-millionth of the domain
    error = level * np.sqrt(stated / whole.count) + 1e-7 * np.abs(truth) + 1e-8 * mechanism.domain.diameter
    assert np.all(np.abs(whole.value - truth) <= error), (
        f"{mechanism.name} is biased at {x}: estimate {whole.value}, truth {truth}"
    )
    size = len(reports) // _BATCHES
    batches = [
        _aggregate(mechanism, reports[start : start + size]).estimate() for start in range(0, size * _BATCHES, size)
    ]
    scores = np.stack([(batch.value - truth) * np.sqrt(batch.count) for batch in batches])
    # at a large epsilon the variance may hang on reports too rare to be in the sample: then it cannot be judged
    moments = mechanism.moments(x)
    third, spread = moments.third.reshape(-1), moments.variance.reshape(-1)
    rare = third > _RARE * spread**1.5 * np.sqrt(whole.count / _BATCHES)
    seen = np.isfinite(scores).all(axis=0) & (stated > 1e-16) & ~rare
    squares = (scores[:, seen] - scores[:, seen].mean(axis=0)) ** 2 / stated[seen]
    ratio = squares.mean(axis=0) * _BATCHES / (_BATCHES - 1)
    spread = level * np.maximum(squares.std(axis=0), math.sqrt(2)) / math.sqrt(_BATCHES)
    assert np.all(np.abs(ratio - 1) <= spread), f"{mechanism.name} has {ratio} times its stated variance at {x}"


def _truth(mechanism: Estimating, x: Any) -> FloatArray:
    """Return what is estimated when everybody holds x: for most mechanisms x itself."""
    if hasattr(mechanism, "target"):
        return np.asarray(mechanism.target(x)).reshape(-1)
    if mechanism.kind == "attributes":
        return np.asarray(mechanism.domain.expand(x))  # type: ignore[attr-defined]
    if mechanism.kind == "frequency":
        return np.asarray(np.eye(mechanism.domain.size)[int(x)])  # type: ignore[attr-defined]
    return np.asarray(x, dtype=float).reshape(-1)


def _stated_variance(mechanism: Estimating, x: Any) -> FloatArray:
    """Return the variance of the estimate from one report, which undoes an affine bias where there is one."""
    variance = mechanism.moments(x).variance
    if mechanism.kind != "mean":
        return variance
    worst = mechanism.witnesses()[0]
    bias = mechanism.moments(np.asarray([worst[0], worst[-1]])).bias
    slope = 1 + (bias[1] - bias[0]) / (worst[-1] - worst[0])
    return np.asarray(variance / slope**2)


def _aggregate(mechanism: Any, reports: Any) -> Aggregate:
    aggregate: Aggregate = mechanism.aggregate(reports)
    return aggregate
