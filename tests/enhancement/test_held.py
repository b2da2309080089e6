"""What enhancement computes, digit by digit: every method on estimates of every kind, and the parts of methods.

Formulas have their own tests beside this one; here nothing may move. python -m tests.enhancement.test_held writes anew.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from tests.held import Held

import noisette as nz
from noisette.core import Estimate
from noisette.enhancement import (
    METHODS,
    averaging,
    bounds,
    channel,
    enhance,
    hdr4me,
    npmle,
    prior,
    problem,
    reconstruction,
    shrinkage,
    simplex,
    stein,
)
from noisette.enhancement.automatic import _worse
from noisette.enhancement.averaging import Bell, Ridge
from noisette.mechanisms.vector.sampled import Reports

HELD = Held(__file__)
CLOSE = 1e-7
_SHARES = ("shares", "groups", "unseen")


def waves(size: int, turn: float = 0.0) -> np.ndarray:
    """Return numbers between -1 and 1 without a random number in them."""
    return np.sin(1.7 * np.arange(size) + turn) * np.cos(0.3 * np.arange(size) ** 1.5)


def errors(size: int, scale: float) -> np.ndarray:
    return scale * (1.3 + waves(size, 0.7))


def estimate(kind: str, size: int, scale: float) -> Estimate:
    value, error, count = 0.9 * waves(size) + scale * waves(size, 2.0), errors(size, scale), np.full(size, 50)
    low: Any = -1.0
    high: Any = 1.0
    groups = None
    if kind == "open":
        low = high = None
    elif kind == "mixed":
        low, high = -1.0 - np.arange(size) % 3, 2.0 + np.arange(size) % 2
    elif kind in _SHARES:
        value = np.abs(waves(size)) / np.abs(waves(size)).sum() + 0.1 * scale * waves(size, 1.0)
        error, low, high = errors(size, 0.1 * scale), 0.0, 1.0
        groups = None if kind == "shares" else (4, size - 4)
        error[1] = math.inf if kind == "unseen" else error[1]
    elif kind == "holes":
        error[1], error[2], error[3] = math.inf, 0.0, 0.0
        count[3], value[3] = 3, 0.4
    name = "frequency" if kind in _SHARES else "mean"
    return Estimate(value, error, count, low=low, high=high, kind=name, groups=groups)


def told(made: Any) -> Any:
    return {one.name: getattr(made, one.name) for one in dataclasses.fields(made) if one.name not in ("count",)}


def by_method(name: str) -> list[Any]:
    found: list[Any] = []
    for kind in ("plain", "open", "mixed", "shares", "groups", "holes", "unseen"):
        for size, scale in ((9, 0.3), (9, 2.0), (40, 0.25)):
            given = estimate(kind, size, scale)
            try:
                made = enhance(given, name)
            except ValueError as error:
                found.append(str(error)[:80])
                continue
            found.append([made.value, made.std_error, made.expected_gain, made.method])
            if kind in ("plain", "holes") and size == 9:
                found.append(enhance(given, name, bias=0.05 * waves(size)).value)
    return found


def rules() -> list[Any]:
    """Return what rules make of few observations, none, and those that scatter less than their noise."""
    found: list[Any] = []
    for size in (0, 1, 2, 3, 4, 12):
        y, s = 1.4 * waves(size, 0.4), errors(size, 0.4)
        for rule in (
            shrinkage.james_stein,
            partial(shrinkage.james_stein, target="zero"),
            shrinkage.sure,
            bounds.box,
            bounds.uniform_prior,
            hdr4me.l1,
            hdr4me.l2,
            hdr4me.star,
            partial(hdr4me.star, bias=0.2, confidence=0.8),
            simplex.simplex,
            partial(simplex.simplex, blanks=2, total=0.9),
            partial(simplex.simplex, blanks=2, total=9.0),
            simplex.base_cut,
            partial(simplex.base_cut, significance=0.4),
        ):
            if size or rule is not hdr4me.star:
                found.append(told(rule(y, s)))  # type: ignore[operator]
        found.append([shrinkage.truth_spread(y, s**2), shrinkage.truth_spread(3 * y, s**2, target="zero")])
        found.append([stein.pooled_square(y, s), stein.pooled_square(3 * y, s)])
        found.append([shrinkage._spread_error(s**2, 0.3), shrinkage._mean_error(s**2, 0.3, "grand-mean")])
        found.append(shrinkage._pull(s**2, 0.2))
    far, sharp = np.asarray([-9.0, 3.0, 0.2, 1.0]), np.asarray([0.01, 5.0, 1e-3, 0.5])
    found.append(bounds.flat_posterior(far, sharp))
    found.append(hdr4me.supremum(np.asarray([0.3, 2.0, 1.0]), np.asarray([0.1, -3.0, 0.0]), confidence=0.9))
    found += [
        simplex.project(np.asarray(v), total=t)
        for v in ([0.9, 0.4, -0.2], [-3.0, -2.0], [9.0, 0.1])
        for t in (1.0, 0.3)
    ]
    found.append(
        [
            simplex._correlation(np.asarray([0.5, 0.4]), np.asarray([0.1, 0.2]), 1.0),
            simplex._correlation(np.ones(1), np.ones(1), 1.0),
        ]
    )
    return found


def averages() -> list[Any]:
    found: list[Any] = []
    for size, scale, origin in ((1, 0.3, 0.0), (6, 0.3, -1.0), (30, 0.5, 0.0), (30, 0.05, 0.3)):
        y, s = waves(size) * (np.arange(size) % 3 == 0) + origin + scale * waves(size, 1.0), errors(size, scale)
        for bounded in (True, False):
            found.append(told(averaging.bayes(y, s, origin=origin, bounded=bounded)))
        family = averaging._Family(origin, averaging._deviations(s))
        found += [family.deviations, family.flats, family.log_prior, family.scores(y, s), family.spike(y, s)]
        found += [part[:2] for part in family.slabs(y, s)]
    for tied in (False, True):
        made = Bell.fit(waves(11), errors(11, 0.4), origin=0.2, tied=tied)
        found += [made.parts, made.moments, made.slack(errors(4, 0.3)), vars(made.held_out(waves(11), errors(11, 0.4)))]
    ridge = Ridge(0.3, 0.8)
    found += [
        ridge.moments,
        Ridge(0.3, 9.0).moments,
        vars(ridge.posterior(waves(4), errors(4, 3.0))),
        ridge.slack(np.ones(2)),
    ]
    return found


def priors() -> list[Any]:
    found: list[Any] = []
    for size, bounded, blur in ((1, True, 0.0), (7, False, 0.0), (60, True, 0.3), (60, False, 0.0)):
        y, s = 1.3 * waves(size), errors(size, 0.3)
        made = npmle.fit(y, s, bounded=bounded, blur=blur)
        found += [made.moments, made.slack(s)[:5], vars(made.held_out(y, s)), npmle._grid(y, s, bounded, blur)[[0, -1]]]
        found.append(npmle._grid(y, s, bounded, blur).size)
        found.append(told(npmle.npmle(y, s, bounded=bounded)))
    size = 4500
    cells = npmle._cells(waves(size), errors(size, 0.3), np.arange(size) % 5)
    found += [cells.observed[:9], cells.std_error[:9], cells.counts[:9], cells.counts.sum(axis=0), cells.observed.size]
    found += [npmle._cells(waves(n), errors(n, 0.3), np.arange(n) % 5).observed.size for n in (4096, 4097)]
    made = prior.Prior(
        np.asarray([-1.0, -0.9, -0.2, 0.4, 0.45, 2.0]), np.asarray([0.1, 0.2, 0.3, 0.2, 0.15, 0.05]), 0.07
    )
    found += [made.mean, made.variance, vars(made.merged(0.2)), vars(made.merged(0.01)), vars(made.merged(0.5))]
    found.append(vars(made.relevant(np.asarray([0.3, 0.5]), np.asarray([0.05, 0.06]))))
    found.append(vars(made.posterior(waves(5), errors(5, 0.3))))
    long = made.posterior(waves(4100), errors(4100, 0.3))
    found += [long.mean[::500], long.variance[::500], long.log_density[::500]]
    kernel = npmle.likelihood(waves(12), errors(12, 0.2), np.linspace(-1, 1, 9))
    found += [
        kernel[:3],
        npmle.maximise(kernel, np.ones(12)),
        npmle._support(np.asarray([0.5, 0, 0, 1e-13]), np.asarray([-1.0, 2, 1, 1])),
    ]
    return found


def channels(name: str) -> list[Any]:
    made: Any = {
        "duchi": lambda: nz.Duchi(1.0),
        "laplace": lambda: nz.Laplace(1.5),
        "piecewise": lambda: nz.Piecewise(2.0, domain=nz.Interval(-1, 1)),
        "wave": lambda: nz.SquareWave(1.0),
        "counts": lambda: nz.DiscreteLaplace(0.8, domain=nz.Grid(0, 12)),
        "response": lambda: nz.GeneralizedRandomizedResponse(1.0, nz.Categorical(4)),
    }[name]()
    own = channel.BinnedChannel.of(made, bins=5)
    found: list[Any] = [own.matrix, own.inputs, own.edges, own.values]
    if name != "response":
        found.append(channel.report_edges(made, bins=3))
        low, high = made.domain.low, made.domain.high
        found.append(
            channel.chances_at(made, np.asarray([low, low + (high - low) / 4 * (name != "counts"), high]), bins=3)
        )
    size = own.matrix.shape[0]
    tally = 100 + 60 * waves(size) + 40 * (np.arange(size) % 2)
    for smoothing in (None, True, False):
        got = reconstruction.reconstruct(made, counts=tally, bins=5, smoothing=smoothing, max_iterations=400)
        found.append([got.probabilities, got.log_likelihood, got.iterations, got.converged, got.values, got.raw])
    found.append(told(got.estimate(resamples=3, rng=4)))
    found.append(reconstruction._edges(own))
    return found


def reconstructed() -> list[Any]:
    table, counts = np.asarray([[0.6, 0.2, 0.1], [0.3, 0.5, 0.2], [0.1, 0.3, 0.7], [0, 0, 0]]), [70.0, 90.0, 240.0, 0.0]
    found: list[Any] = [
        reconstruction.Counted(np.asarray([[0.51, 0.4], [0.49, 0.6]]), np.asarray(c), 0.1, 1e-3, 9).inverted
        for c in ([9.0, 4.0], [2.0, 1.0])
    ]
    for given in ({}, {"smoothing": True}, {"smoothing": 0.1}, {"tolerance": 1e-3}, {"max_iterations": 3}):
        got = reconstruction.expectation_maximization(table, counts, **given)  # type: ignore[arg-type]
        found.append([got.probabilities, got.log_likelihood, got.iterations, got.converged])
        found.append(told(got.estimate(resamples=4, rng=1)))
    wide = np.eye(16) * 0.6 + 0.025
    for sharp in (np.arange(16) == 4, np.ones(16), np.exp(-((np.arange(16) - 7) ** 2) / 9)):
        found.append(reconstruction.smoothed_as_needed(wide, 400 * (wide @ (sharp / sharp.sum()))).probabilities)
    batch = Reports(np.asarray([[0, 2], [1, 2]]), np.asarray([[0.5, 1.5], [2.5, 3.5]]))
    found += [list(reconstruction._by_dimension(batch)), list(reconstruction._by_dimension(np.ones(2)))]
    found.append(reconstruction._in_own_range(np.linspace(-1, 1, 4), nz.Box(2, (-3, 0), (5, 2)), 1))
    edges = np.cumsum(1 + 0.5 * np.cos(np.arange(30.0)))
    for size in (999, 1000, 5000):
        found.append(np.bincount(channel.places_of(edges, 40 * waves(size)), minlength=29))
    found.append(channel.places_of(edges, np.tile(edges, 40))[:30])
    found.append(channel.places_of(np.asarray([0.0, 1.0, 2.0]), 2 * waves(1200))[:20])
    rough = channel._averaged(lambda x: np.stack([(x > 0.37) * 1.0, np.exp(x)]), np.linspace(0, 1, 4))
    found.append(rough)
    made: Any = nz.SubsetSelection(1.0, nz.Categorical(5))
    reports = made.privatize(np.arange(60) % 5, rng=1)
    got = reconstruction.reconstruct(made, reports)
    found.append([got.probabilities, got.raw, got.log_likelihood])
    return found


def problems() -> list[Any]:
    found: list[Any] = []
    for kind in ("plain", "open", "mixed", "shares", "groups", "holes"):
        for scale in ("common", "canonical", "own"):
            made = problem.NormalMeans.of(estimate(kind, 9, 0.4), 0.03, scale=scale)  # type: ignore[arg-type]
            found += [made.observed, made.std_error, made.bias, made.centre, made.radius, made.origin, made.bounded]
            found += [made.active, made.blank, made.runs, made.debiased, made.frequency]
    for error, count in (
        ([0.0, 0.5, 0.7], [3, 4, 9]),
        ([0.0, 0.5, 0.7], [10, 4, 1]),
        ([0.0, 0.5, 0.7], [11, 4, 9]),
        ([0.0, 0.0], [3, 3]),
    ):
        for impossible in (False, True):
            given = np.asarray([impossible, *[False] * (len(error) - 1)])
            found.append(problem._steady(np.asarray(error), np.asarray(count), given))
    found.append(_worse(np.ones(4), np.asarray([1.0, 2, 1, 2]), np.asarray([0.9, 1.9, 0.9, 1.9])))
    found.append(_worse(np.asarray([1.0, 2, 3, 4]), np.asarray([1.0, 2, 1, 2]), np.asarray([0.0, 3, 0.5, 0])))
    return found


STORIES: dict[str, Callable[[], Any]] = {
    **{f"method {name}": partial(by_method, name) for name in METHODS},
    "rules": rules,
    "averages": averages,
    "priors": priors,
    **{
        f"channel {name}": partial(channels, name)
        for name in ("duchi", "laplace", "piecewise", "wave", "counts", "response")
    },
    "reconstructed": reconstructed,
    "problems": problems,
}


@pytest.mark.parametrize("name", STORIES)
def test_digits_are_the_ones_that_were_kept(name: str) -> None:
    HELD.check(name, STORIES[name](), close=CLOSE)


if __name__ == "__main__":
    HELD.write({name: story() for name, story in STORIES.items()})
