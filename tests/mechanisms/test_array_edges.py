"""Guards of mechanisms for vectors, tensors, levels and angles: what is just refused, and what is just taken."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import noisette as nz
from noisette.mechanisms.geometric.spherical import from_spherical, to_spherical
from noisette.mechanisms.graded import _levels
from noisette.mechanisms.graded.estimation import convert_signs, maximum_likelihood
from noisette.mechanisms.graded.estimation import hiera as hiera_of
from noisette.mechanisms.tensor.gaussian import release
from noisette.mechanisms.tensor.gaussian.calibration import read_subspace
from noisette.mechanisms.tensor.gaussian.modes import Mode
from noisette.mechanisms.tensor.matrix import workloads
from noisette.mechanisms.tensor.matrix.workloads import read_modes
from noisette.mechanisms.vector.adaptive_duchi import adaptive_range

SQUARE = nz.TensorDomain((2, 2))
BOX = nz.TensorDomain((2, 3), -1, 1)
ROWS = nz.TensorBall((4, 2), 1.0, mode=0)
SIGNS = nz.LevelledResponse((0, 1, 2), (1.0, 2.0))
CHOSEN = nz.LevelledResponse((0, 1, 2), (1.0, 2.0), personalised=True)
COUNTED = SIGNS.aggregate(SIGNS.privatize([0.5, 1.5], rng=1))
RECORD = nz.Attributes((nz.Categorical(3), nz.Interval()))
PAIR = nz.Sampled("duchi", epsilon=1.0, dims=3, report=1)
GRID: Callable[..., Any] = lambda **given: nz.RetainOrNoise(2.0, **{"domain": SQUARE, "levels": 4} | given)  # noqa: E731
UNIT2 = np.eye(2)
CORNER = nz.DuchiBox(1.0, dims=2)
RECORDED = nz.SampledAttributes(("grr", "duchi"), 2.0, RECORD, report=1)
REPORTED = RECORDED.privatize([[0, 0.5]], rng=1)


def gaussian(**given: Any) -> Any:
    return nz.TensorGaussian(**{"domain": BOX, "epsilon": 1.0, "delta": 1e-5} | given)


def matrix(**given: Any) -> Any:
    return nz.MatrixMechanism(**{"epsilon": 1.0, "delta": 1e-5, "domain": nz.TensorDomain((3,), 0, 9)} | given)


def levelled(levels: Any) -> Any:
    return nz.LevelledResponse.by_level(1.0, levels)


def optimal(**given: Any) -> Any:
    return nz.OptimalGraded(**{"edges": (0, 0.5, 1), "epsilons": (1.0, 2.0), "points": 4} | given)


def record(**given: Any) -> Any:
    return nz.SampledAttributes(**{"inner": ("grr", "duchi"), "epsilon": 1.0, "domain": RECORD} | given)


def near_one(excess: float) -> tuple[float, float]:
    return 0.25, 0.75 + excess


EDGES: dict[str, tuple[Callable[[Any], Any], Any, Any]] = {
    # angles
    "a share of the range from below": (lambda b: nz.AngleNoise(1.0, 3, beta=b), 0.0, 1e-6),
    "a share of the range from above": (lambda b: nz.AngleNoise(1.0, 3, beta=b), 1.0000001, 1.0),
    "a direction of one number": (lambda d: nz.AngleNoise(1.0, d), 1, 2),
    "a small ball of angles": (lambda r: nz.AngleNoise(1.0, domain=nz.L2Ball(3, r)), math.nextafter(1e-100, 0), 1e-100),
    "a large ball of angles": (lambda r: nz.AngleNoise(1.0, domain=nz.L2Ball(3, r)), 1.0000001e100, 1e100),
    "a delta for pure noise": (lambda d: nz.AngleNoise(1.0, 3, noise="laplace", delta=d), 1e-6, 0.0),
    "noise that was not published": (
        lambda n: nz.AngleNoise(1.0, 3, noise=n, as_published=True),
        "hybrid",
        "laplace",
    ),
    "a vector without an axis": (to_spherical, 3.0, [3.0]),
    "a vector of nothing": (to_spherical, np.zeros((2, 0)), np.zeros((2, 1))),
    "one magnitude too few": (lambda size: from_spherical(size, np.zeros((2, 3))), [1.0], [1.0, 1.0]),
    "an angle that is infinite": (lambda angle: from_spherical(1.0, [0.5, angle]), math.inf, 0.5),
    # levels
    "one edge": (lambda e: nz.LevelledResponse(e, [1.0] * (len(e) - 1)), (0.0,), (0.0, 1.0)),
    "a record outside of its domain, by the attributes drawn": (
        lambda x: RECORDED.privatize_drawn([[0, x]], np.zeros((1, 1), dtype=np.int64), rng=1),
        1.5,
        1.0,
    ),
    "the likelihood of a record outside of its domain": (lambda x: RECORDED.log_prob(REPORTED, [[0, x]]), 1.5, 1.0),
    "an edge twice": (lambda e: nz.LevelledResponse(e, (1.0, 1.0)), (0, 1, 1), (0, 1, 2)),
    "an edge that is infinite": (lambda e: nz.LevelledResponse(e, (1.0, 1.0)), (0, 1, math.inf), (0, 1, 2)),
    "levels": (lambda n: _levels.Levels.build(np.arange(n + 1.0)), 1025, 1024),
    "levels of two numbers": (levelled, [(0, 1, 1.0), (1, 2)], [(0, 1, 1.0), (1, 2, 1.0)]),
    "no level": (levelled, [], [(0, 1, 1.0)]),
    "levels with a gap": (levelled, [(0, 1, 1.0), (1.5, 2, 1.0)], [(1, 2, 1.0), (0, 1, 1.0)]),
    "levels that overlap": (levelled, [(0, 1, 1.0), (0.5, 2, 1.0)], [(0, 0.5, 1.0), (0.5, 2, 1.0)]),
    "a budget too few": (lambda e: nz.LevelledResponse((0, 1, 2), e), (1.0,), (1.0, 1.0)),
    "a budget too many": (lambda e: nz.LevelledResponse((0, 1, 2), e), (1.0,) * 3, (1.0, 1.0)),
    "a budget from below": (lambda e: _levels.budgets([1.0, e], 2), math.nextafter(1e-7, 0), 1e-7),
    "a budget from above": (lambda e: _levels.budgets([1.0, e], 2), math.nextafter(1e6, 1e7), 1e6),
    "a matrix of other levels": (lambda m: _levels.square(m, 2), np.ones((2, 3)), np.ones((2, 2))),
    "a matrix with a debt": (lambda m: _levels.square(m, 2), [[1, 1], [1, -1e-9]], [[1, 1], [1, 0]]),
    "neither target": (lambda t: _levels.one_target(t, None, 2), None, 1.0),
    "both targets": (lambda m: _levels.one_target(1.0, m, 2), np.ones((2, 2)), None),
    "edges as text": (lambda e: nz.LevelledResponse(e, (1.0,)), "01", [0, 1]),
    "counts of three signs": (lambda c: convert_signs(c, 0.75, 0.75), [1, 2, 3], [1, 2]),
    "a count below none": (lambda c: convert_signs(c, 0.75, 0.75), [-1, 2], [0, 2]),
    "signs that become surer": (lambda p: convert_signs([1, 2], 0.75, p), 0.76, 0.75),
    "signs that say nothing": (lambda p: convert_signs([1, 2], 0.75, p), 0.5, 0.51),
    "signs that are kept too often": (lambda p: convert_signs([1, 2], p, 0.75), 1.0001, 1.0),
    "a quantile from above": (maximum_likelihood(COUNTED).quantile, 1.0000001, 1.0),
    "a quantile from below": (maximum_likelihood(COUNTED).quantile, -1e-9, 0.0),
    "counts about chosen levels": (
        maximum_likelihood,
        CHOSEN.aggregate(CHOSEN.privatize([[0.5, 0.0]], rng=1)),
        COUNTED,
    ),
    "counts of no levels": (hiera_of, nz.Duchi(1.0).aggregate(nz.Duchi(1.0).privatize([0.5], rng=1)), COUNTED),
    "a sign of three": (SIGNS.support.contains, np.zeros((4, 3)), np.zeros((4, 2))),
    "a level that nobody has": (
        lambda level: CHOSEN.privatize([[0.2, 0.0], [0.5, level]], rng=1),
        2.0,
        1.0,
    ),
    "points without edges": (lambda e: optimal(edges=e), None, (0, 0.5, 1)),
    "a list of points beside edges": (lambda e: optimal(edges=e, points=[0.0, 1.0]), (0, 0.5, 1), None),
    "points": (lambda n: optimal(points=n), 3, 4),
    "an objective": (lambda o: optimal(objective=o), "least", "average"),
    "a rule": (lambda r: optimal(rule=r), "worst", "max"),
    "both kinds of budgets": (lambda m: optimal(matrix=m), np.ones((2, 2)), None),
    "a budget of a programme": (lambda e: optimal(epsilons=(1.0, e)), 0.0099999, 0.01),
    "a budget between chosen levels": (
        lambda m: nz.OptimalGraded.by_level(m, [(-1, 0, 1.0), (0, 1, 1.0)]),
        0.0199,
        0.0202,
    ),
    "a target of nothing": (lambda m: optimal().calibrate(matrix=m), np.zeros((2, 2)), np.full((2, 2), 1.0)),
    # tensors
    "a relation that is no text": (lambda r: gaussian(relation=r), 3, "any-pair"),
    "a relation": (lambda r: gaussian(relation=r), "row", "element"),
    "a mode of a slice": (lambda r: gaussian(relation=r), "slice:2", "slice:1"),
    "a mode that is no number": (lambda r: gaussian(relation=r), "slice:-1", "slice:0"),
    "a distance of nothing": (lambda r: gaussian(relation=r), "l2:0", "l2:0.1"),
    "a distance without end": (lambda r: gaussian(relation=r), "l2:inf", "l2:9"),
    "no width": (lambda r: gaussian(relation=r), "box:", "box:1"),
    "a calibration": (lambda c: gaussian(calibration=c), "best", "exact"),
    "covariances of a text": (lambda c: gaussian(covariances=c), "identity", ("identity", None)),
    "a covariance too few": (lambda c: gaussian(covariances=c), (None,), (None, None)),
    "a covariance of another name": (lambda c: gaussian(covariances=(c, None)), "unit", "identity"),
    "variances of another mode": (lambda c: gaussian(covariances=(c, None)), [1.0, 2.0, 3.0], [1.0, 2.0]),
    "variances in three axes": (lambda c: Mode.read(2, c, 0), np.ones((2, 2, 2)), UNIT2),
    "a variance that is no number": (lambda c: Mode.read(2, c, 0), [1.0, math.nan], [1.0, 2.0]),
    "a variance of nothing": (lambda c: Mode.read(2, c, 0), [1.0, 0.0], [1.0, 1e-99]),
    "a variance of almost nothing": (lambda c: Mode.read(2, c, 0), [1.0, 0.9e-100], [1.0, 1e-100]),
    "a variance of too much": (lambda c: Mode.read(2, c, 0), [1.0, 1.1e100], [1.0, 1e100]),
    "a covariance that is not symmetric": (
        lambda off: Mode.read(2, [[1.0, 0.5 + off], [0.5, 2.0]], 0),
        2.2e-9,
        1.8e-9,
    ),
    "a covariance that misses a direction": (
        lambda least: Mode.read(2, [[1.0, 1e-20], [1e-20, least]], 0),
        0.9e-12,
        1.1e-12,
    ),
    "a covariance beside a subspace": (
        lambda c: gaussian(subspaces=(None, np.eye(3)), covariances=(None, c)),
        [1.0, 2.0, 3.0],
        None,
    ),
    "a subspace of another mode": (lambda m: read_subspace(m, 3, 0), np.ones((2, 2)), np.ones((2, 3))),
    "a subspace in one axis": (lambda m: read_subspace(m, 3, 0), np.ones(3), np.ones((1, 3))),
    "a subspace of nothing": (lambda m: read_subspace(m, 3, 0), np.zeros((1, 3)), np.eye(3)[:1]),
    "a subspace with infinity": (lambda m: read_subspace(m, 2, 0), [[1.0, math.inf]], [[1.0, 0.0]]),
    "a mode twice": (lambda g: gaussian(domain=nz.TensorDomain((2, 2)), symmetry=g), ((0, 1, 1),), ((0, 1),)),
    "a group of one mode": (lambda g: gaussian(domain=nz.TensorDomain((2, 2)), symmetry=g), ((0,),), ((0, 1),)),
    "a group of unlike modes": (
        lambda d: gaussian(domain=nz.TensorDomain(d), symmetry=((0, 1),)),
        (2, 3),
        (3, 3),
    ),
    "a slice of a symmetric tensor": (
        lambda r: gaussian(domain=nz.TensorDomain((2, 2)), symmetry=((0, 1),), relation=r),
        "slice:0",
        "l2:1",
    ),
    "two covariances by a theorem of one": (
        lambda c: gaussian(covariances=([1.0, 2.0], c), calibration="udn"),
        [1.0, 2.0, 3.0],
        None,
    ),
    "a full covariance by a theorem of variances": (
        lambda c: gaussian(covariances=(c, None), calibration="idn"),
        [[2.0, 0.5], [0.5, 1.0]],
        [2.0, 1.0],
    ),
    "a slice by a theorem of ranges": (
        lambda r: gaussian(covariances=([1.0, 2.0], None), calibration="idn", relation=r),
        "slice:0",
        "any-pair",
    ),
    "a vector by a theorem of matrices": (
        lambda d: gaussian(domain=nz.TensorDomain(d), calibration="mvg"),
        (6,),
        (2, 3),
    ),
    "a table of rows": (lambda d: nz.JohnsonLindenstrauss(d, 1.0, 1e-4), nz.TensorBall((4, 2), 1.0, mode=1), ROWS),
    "a table in three axes": (lambda d: nz.JohnsonLindenstrauss(d, 1.0, 1e-4), nz.TensorBall((4, 2, 2), mode=0), ROWS),
    "projections": (lambda n: nz.JohnsonLindenstrauss(ROWS, 1.0, 1e-4, projections=n), 2**24 + 1, 2**24),
    "a row that is too long": (
        lambda length: nz.JohnsonLindenstrauss(ROWS, 1.0, 1e-4, projections=3).privatize(
            [[0.6 * length, 0.8 * length]] + [[0.0, 0.0]] * 3, rng=1
        ),
        1 + 1e-10,
        1.0,
    ),
    "a row that is no number": (
        lambda one: nz.JohnsonLindenstrauss(ROWS, 1.0, 1e-4, projections=3).privatize(
            [[one, 0.0]] + [[0.0, 0.0]] * 3, rng=1
        ),
        math.nan,
        0.5,
    ),
    "a released table in three axes": (release._row_ball, nz.TensorDomain((2, 2, 2)), SQUARE),
    "a released table of bounded columns": (release._row_ball, nz.TensorBall((4, 2), mode=1), ROWS),
    "a released table of another shape": (
        lambda x: release._inside(x, SQUARE, False),
        np.zeros((2, 3)),
        np.zeros((2, 2)),
    ),
    "a released table with infinity": (
        lambda one: release._inside([[one, 0], [0, 0]], SQUARE, True),
        math.inf,
        9.0,
    ),
    # matrices of queries
    "a relation of cells": (lambda r: matrix(workload="prefix", relation=r), "element", "replace"),
    "replacing in one cell": (
        lambda n: matrix(domain=nz.TensorDomain((n,), 0, 9), workload="prefix", relation="replace"),
        1,
        2,
    ),
    "a user's cell above the domain": (
        lambda high: matrix(domain=nz.TensorDomain((3,), 0, high), workload="prefix", relation="any-pair"),
        0.999,
        1.0,
    ),
    "a user's cell below the domain": (
        lambda low: matrix(domain=nz.TensorDomain((3,), low, 2), workload="prefix", relation="any-pair"),
        0.001,
        0.0,
    ),
    "marginals of more modes": (
        lambda n: matrix(domain=nz.TensorDomain((2, 3), 0, 9), workload=f"marginal-{n}"),
        3,
        2,
    ),
    "marginals of no number": (
        lambda n: matrix(domain=nz.TensorDomain((2, 3), 0, 9), workload=f"marginal-{n}"),
        "one",
        1,
    ),
    "a strategy for marginals": (
        lambda s: matrix(domain=nz.TensorDomain((2, 3), 0, 9), workload="marginal-1", strategy=s),
        "identity",
        None,
    ),
    "queries that no replacement changes": (
        lambda rows: matrix(workload=rows, strategy=rows, relation="replace"),
        [[1.0, 1.0, 1.0]],
        [[1.0, 1.0, 0.0]],
    ),
    "a workload too few": (lambda w: read_modes(w, (2, 3), "workload"), ("prefix",), ("prefix", "identity")),
    "a workload of another name": (lambda w: read_modes(w, (2,), "workload"), "prefixes", "prefix"),
    "queries of other cells": (lambda w: read_modes((w,), (2,), "workload"), [[1.0] * 3], [[1.0] * 2]),
    "queries in one axis": (lambda w: workloads._read(w, 2, "workload"), [1.0, 1.0], [[1.0, 1.0]]),
    "queries of infinity": (lambda w: read_modes((w,), (2,), "workload"), [[math.inf, 1.0]], [[2.0, 1.0]]),
    "queries of nothing": (lambda w: read_modes((w,), (2,), "workload"), [[0.0, 0.0]], [[0.0, 1e-9]]),
    # kept or noised entries
    "levels of entries from below": (lambda n: GRID(levels=n), 1, 2),
    "a kind of noise": (lambda n: GRID(noise=n, delta=1e-4), "normal", "gaussian"),
    "a unit": (lambda u: GRID(unit=u), "entry", "element"),
    "a retention of the sound form": (lambda r: GRID(retention=r), "proof", None),
    "rounding of the sound form": (lambda r: GRID(rounded=r), True, False),
    "a delta of the published form": (lambda d: GRID(as_published=True, delta=d), 1e-6, 0.0),
    "gaussian noise without a delta": (lambda d: GRID(noise="gaussian", delta=d), 0.0, 1e-6),
    "a delta of one entry": (lambda d: GRID(unit="element", delta=d), 1e-6, 0.0),
    "a delta of one entry of several": (lambda u: GRID(unit=u, delta=1e-6), "element", "record"),
    "a price of no weights": (lambda p: GRID(weights_epsilon=p), 0.0, None),
    "weights of another mode": (lambda w: GRID(weights=w, weights_epsilon=0.0), [0.1] * 3, [0.1] * 2),
    "a weight from above": (lambda w: GRID(weights=[0.1, w], weights_epsilon=0.0), 1.0000001, 1.0),
    "a weight from below": (lambda w: GRID(weights=[0.1, w], weights_epsilon=0.0), -1e-9, 0.0),
    "weights of no price": (lambda p: GRID(weights=[0.1, 0.2], weights_epsilon=p), None, 0.0),
    "weights of a price below none": (lambda p: GRID(weights=[0.1, 0.2], weights_epsilon=p), -1e-9, 0.0),
    "weights that cost all": (lambda p: GRID(weights=[0.1, 0.2], weights_epsilon=p), 2.0, 1.9),
    "what the published form chooses": (lambda p: GRID(as_published=p).choice, True, False),
    # vectors and records
    "vectors of no length": (lambda d: nz.DuchiBox(1.0, dims=d), None, 3),
    "a ball for a box": (lambda d: nz.DuchiBox(1.0, domain=d), nz.L2Ball(3), nz.Box(3)),
    "dimensions beside those of the domain": (lambda d: nz.DuchiBox(1.0, dims=d, domain=nz.Box(3)), 2, 3),
    "reports as text": (CORNER.tally, np.asarray([["1", "1"]]), CORNER.privatize([[0.5, 0.5]], rng=1)),
    "no vector": (CORNER.tally, np.zeros((0, 2), dtype=np.int8), CORNER.privatize([[0.5, 0.5]], rng=1)),
    "a likelihood inside many dimensions": (
        lambda n: nz.DuchiBox(1.0, dims=n).log_prob(np.ones(n), np.zeros(n)),
        4097,
        4096,
    ),
    "weights that do not differ": (adaptive_range, [0.5, 0.5], [0.5, math.nextafter(0.5, 1)]),
    "a weight that is infinite": (adaptive_range, [0.5, math.inf], [0.5, 1.0]),
    "a delta of the published weights": (
        lambda d: nz.AdaptiveDuchi(1.0, dims=3, delta=d, as_published=True),
        1e-6,
        0.0,
    ),
    "a small ball of caps": (lambda r: nz.PrivUnit(1.0, domain=nz.L2Ball(3, r)), math.nextafter(1e-100, 0), 1e-100),
    "a large ball of caps": (lambda r: nz.PrivUnit(1.0, domain=nz.L2Ball(3, r)), math.nextafter(1e100, 1e101), 1e100),
    "a small ball of projections": (
        lambda r: nz.FastProjUnit(4.0, domain=nz.L2Ball(70, r)),
        math.nextafter(1e-100, 0),
        1e-100,
    ),
    "a large ball of projections": (
        lambda r: nz.FastProjUnit(4.0, domain=nz.L2Ball(70, r)),
        math.nextafter(1e100, 1e101),
        1e100,
    ),
    "a record of no attributes": (lambda d: record(domain=d), nz.Box(2), RECORD),
    "mechanisms of an attribute too few": (lambda i: record(inner=i), ("grr",), ("grr", "duchi")),
    "a mechanism of another kind": (lambda i: record(inner=i), ("duchi", "duchi"), ("oue", "duchi")),
    "an attribute's noise without a delta": (lambda d: record(inner=("grr", "gaussian"), delta=d), 0.0, 1e-6),
    "shares of an attribute too few": (lambda s: record(shares=s), (1.0,), (0.5, 0.5)),
    "shares of all": (lambda s: record(shares=s), (1.0, 0.0), (0.9, 0.1)),
    "shares of too much": (lambda e: record(shares=near_one(e)), 1.1e-9, 0.9e-9),
    "shares of too little": (lambda e: record(shares=near_one(e)), -1.1e-9, -0.9e-9),
    "shares of parts": (lambda n: record(shares=(0.5, 0.5), report=n), 1, 2),
    "hashed categories beside real numbers": (lambda i: record(inner=i), ("olh", "laplace"), ("oue", "laplace")),
    "samples of no length": (lambda d: nz.Sampled("duchi", epsilon=1.0, dims=d), None, 2),
    "samples beside a domain": (lambda d: nz.Sampled("duchi", epsilon=1.0, dims=d, domain=nz.Box(3)), 2, 3),
    "samples of a ball": (lambda d: nz.Sampled("duchi", epsilon=1.0, domain=d), nz.L2Ball(3), nz.Box(3)),
    "samples of categories": (lambda i: nz.Sampled(i, epsilon=1.0, dims=2), "grr", "duchi"),
    "samples of levels": (lambda i: nz.Sampled(i, epsilon=1.0, dims=2), "levelled", "piecewise"),
    "samples of noise without a delta": (
        lambda d: nz.Sampled("gaussian", epsilon=1.0, dims=2, delta=d),
        0.0,
        1e-6,
    ),
    "samples that are no samples": (PAIR.tally, np.zeros((2, 1)), PAIR.privatize(np.zeros((2, 3)), rng=1)),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", EDGES)
def test_what_is_just_refused_and_just_taken(name: str) -> None:
    asked, refused, taken = EDGES[name]
    with pytest.raises((ValueError, TypeError, OverflowError)):
        asked(refused)
    asked(taken)


def test_a_report_of_single_precision_lies_on_the_lattice() -> None:
    """To a millionth of its size and of a step, and no farther."""
    support = GRID(domain=nz.TensorDomain((2,))).support
    for whole in (3.0, 2.0**12):
        value = support.origin + support.step * whole
        slack = 1e-6 * (abs(value) + support.step)
        assert support.contains(np.asarray([value, value + 0.99 * slack]))
        assert not support.contains(np.asarray([value, value + 1.01 * slack]))


def test_a_level_that_nobody_has_is_said_to_be_in_its_middle() -> None:
    mechanism = nz.LevelledResponse((0.0, 1.0, 3.0), (4.0, 4.0))
    found = maximum_likelihood(mechanism.aggregate(mechanism.privatize(np.full(400, 0.2), rng=1)))
    assert found.shares.tolist() == [1.0, 0.0]
    assert found.means[1] == 2.0
