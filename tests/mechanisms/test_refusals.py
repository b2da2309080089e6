"""What mechanisms, aggregates and seeds refuse, each with the reason."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tests.held import Held, refusal

import noisette as nz
from noisette.core import add_sums
from noisette.enhancement.reconstruction import expectation_maximization
from noisette.mechanisms.geometric.spherical import from_spherical, to_spherical
from noisette.mechanisms.tensor import _whole
from noisette.mechanisms.tensor.gaussian.release import release_data
from noisette.mechanisms.vector.sampled import Reports

HELD = Held(__file__)
_SAMPLED = nz.Sampled("duchi", epsilon=1.0, dims=3, report=1)


def _projected(radius: float) -> Any:
    return nz.CATALOGUE["fast-projunit"](4.0, domain=nz.L2Ball(64, radius=radius))


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "a negative seed": (lambda: nz.Laplace(1.0).privatize(0.0, rng=-1), "rng=-1 >= 0"),
    "an interval as wide as all numbers": (lambda: nz.Laplace(1.0, domain=nz.Interval(-1e305, 1e305)), "rescale"),
    "an interval of no width to speak of": (lambda: nz.Laplace(1.0, domain=nz.Interval(0, 1e-305)), "rescale"),
    "categories from an interval": (
        lambda: nz.GeneralizedRandomizedResponse(1.0, domain=nz.Interval()),
        "to be Categorical",
    ),
    "a ball for a box": (lambda: nz.DuchiBox(1.0, domain=nz.L2Ball(3)), "to be a"),
    "a huge ball": (lambda: nz.PrivUnitG(1.0, domain=nz.L2Ball(3, radius=1e120)), r"radius=1e\+120 in"),
    "a tiny ball": (lambda: nz.PrivUnitG(1.0, domain=nz.L2Ball(3, radius=1e-120)), "radius=1e-120 in"),
    "angles in a huge ball": (lambda: nz.AngleNoise(1.0, domain=nz.L2Ball(3, radius=1e120)), r"radius=1e\+120 in"),
    "angles in a tiny ball": (lambda: nz.AngleNoise(1.0, domain=nz.L2Ball(3, radius=1e-120)), "radius=1e-120 in"),
    "an angle that is not finite": (lambda: from_spherical(1.0, [0.5, math.nan]), "finite angles"),
    "sums of other lengths": (lambda: add_sums(np.zeros(2, int), np.zeros(3, int)), "sums of shape"),
    "sums that overflow": (lambda: add_sums(np.array([2**62]), np.array([2**62])), "no longer fit 64 bits"),
    "angles of no vector": (lambda: to_spherical(3.0), "along the last axis"),
    "angles of an empty vector": (lambda: to_spherical(np.zeros((2, 0))), "along the last axis"),
    "a vector that is not finite": (lambda: to_spherical([*np.ones(5000), math.inf]), "finite numbers"),
    "one magnitude for two rows of angles": (lambda: from_spherical(1.0, np.zeros((2, 3))), "one magnitude"),
    "an angle that is no row": (lambda: from_spherical(1.0, 0.5), "one magnitude"),
    "more items than a subset can have": (
        lambda: nz.CATALOGUE["subset-selection"](1.0, domain=nz.Categorical(2**31 + 1)),
        "at most 2,147,483,648",
    ),
    "more options than a ring has points": (
        lambda: nz.CATALOGUE["wheel"](1.0, domain=nz.Selection(2**31 - 1, 2)),
        "fewer than 2,147,483,647",
    ),
    "no selection": (
        lambda: nz.CATALOGUE["privset"](1.0, domain=nz.Selection(5, 2)).privatize(np.zeros((0, 2), int)),
        "at least one",
    ),
    "a text longer than its only letter allows": (lambda: nz.Texts(longest=2, alphabet="\u20ac"), "of 3 bytes"),
    "no text": (lambda: nz.Texts().symbols([]), "at least one text"),
    "masked values": (
        lambda: nz.Laplace(1.0).privatize(np.ma.masked_array([0.1, 0.2], [False, True])),
        "without masked values",
    ),
    "no value": (lambda: nz.Laplace(1.0).privatize([]), "at least one value"),
    "no category": (
        lambda: nz.GeneralizedRandomizedResponse(1.0, domain=nz.Categorical(3)).privatize(np.zeros(0, int)),
        "at least one category",
    ),
    "a likelihood inside too many dimensions": (
        lambda: nz.DuchiBox(1.0, dims=4097).log_prob(np.ones(4097), np.zeros(4097)),
        "dims=4097 <= 4096",
    ),
    "projections in a huge ball": (lambda: _projected(1e101), "radius=1e\\+101 in"),
    "projections in a tiny ball": (lambda: _projected(1e-101), "radius=1e-101 in"),
    "no projection": (lambda: _projected(1.0).tally(np.zeros((0, *_projected(1.0).report_shape))), "at least one"),
    "a lattice that would use up the budget": (
        lambda: nz.CATALOGUE["angle-gaussian"](1e-9, dims=100_000, delta=1e-9),
        "use up half",
    ),
    "a sample of unknown length": (lambda: nz.Sampled("laplace", epsilon=1.0), "how long are the vectors"),
    "a sample of a mechanism that is on no interval": (
        lambda: nz.Sampled("discrete-laplace", epsilon=1.0, dims=3, options={"domain": nz.Grid(0, 5)}),
        "Expected a mechanism",
    ),
    "samples of unlike shapes": (
        lambda: Reports(np.zeros((2, 1), np.int32), np.zeros((2, 2))),
        "one shape",
    ),
    "samples along one axis": (lambda: Reports(np.zeros(2, np.int32), np.zeros(2)), "one shape"),
    "samples of another size": (lambda: _SAMPLED.tally(Reports(np.zeros((2, 2), np.int32), np.zeros((2, 2)))), "1 rep"),
    "no sample": (lambda: _SAMPLED.tally(Reports(np.zeros((0, 1), np.int32), np.zeros((0, 1)))), "at least one"),
    "sums that overflow downwards": (lambda: add_sums(np.array([-(2**63)]), np.array([-1])), "no longer fit 64 bits"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    made, words = REFUSED[name]
    found = refusal(made)
    assert re.search(words, found)
    HELD.check(name, found)


def test_sums_just_within_64_bits_are_added() -> None:
    assert add_sums(np.array([2**62, -(2**62)]), np.array([2**62 - 1, -(2**62)])).tolist() == [2**63 - 1, -(2**63)]


def test_aggregates_that_do_not_belong_together() -> None:
    one = nz.Laplace(1.0).aggregate(np.asarray(nz.Laplace(1.0).privatize(np.zeros(4), rng=1)))
    with pytest.raises(TypeError, match="Expected an Aggregate"):
        one.merge(3)
    with pytest.raises(ValueError, match="same dimension names"):
        one.merge(dataclasses.replace(one, names=("age",)))
    other = nz.Laplace(2.0).aggregate(np.asarray(nz.Laplace(2.0).privatize(np.zeros(4), rng=1)))
    with pytest.raises(ValueError, match="Expected"):
        one.merge(other)


GRADED: dict[str, tuple[Callable[[], Any], str]] = {
    "an unknown rule": (lambda: nz.OptimalGraded((0, 0.5, 1), (1.0, 2.0), rule="worst"), "rule='worst'"),
    "a budget too small for the programme": (lambda: nz.OptimalGraded((0, 0.5, 1), (1e-6, 2.0)), "of at least"),
    "too many levels": (lambda: nz.LevelledResponse(np.linspace(0, 1, 3000), [1.0] * 2999), "at most"),
    "levels as wide as all numbers": (lambda: nz.LevelledResponse((-1e305, 0, 1e305), (1.0, 2.0)), "rescale"),
    "more points than a programme may have": (
        lambda: nz.OptimalGraded(points=np.linspace(0, 1, 257).tolist(), epsilons=[1.0] * 257),
        "at most 256 points, got 257",
    ),
    "budgets between chosen levels that are too small": (
        lambda: nz.OptimalGraded.by_level(0.0174, [(-1, 0, 2.0), (0, 1, 1.0)]),
        "of at least 0.01 between levels",
    ),
    "a target without a positive entry": (
        lambda: nz.OptimalGraded((0, 0.5, 1), (1.0, 2.0)).calibrate(matrix=np.zeros((2, 2))),
        "Expected",
    ),
    "levelled reports that are no pairs": (
        lambda: nz.LevelledResponse((0, 0.5, 1), (1.0, 2.0)).support.contains(np.zeros((4, 3))),
        "pairs of a level and a sign",
    ),
    "a levelled report that is a number": (
        lambda: nz.LevelledResponse((0, 0.5, 1), (1.0, 2.0)).support.contains(np.asarray(1)),
        "pairs of a level and a sign",
    ),
    "a negative budget": (lambda: nz.LevelledResponse((0, 0.5, 1), (1.0, -2.0)), "epsilon"),
}


@pytest.mark.parametrize("name", GRADED)
def test_levels_that_are_refused(name: str) -> None:
    made, words = GRADED[name]
    found = refusal(made)
    assert re.search(words, found)
    HELD.check(name, found)


@pytest.mark.parametrize("level", [-1.0, 2.0, 0.5, math.nan])
def test_a_level_that_is_none_is_refused_among_others(level: float) -> None:
    mechanism = nz.LevelledResponse((0, 0.5, 1), (1.0, 2.0), personalised=True)
    rows = np.asarray([[0.2, 0.0], [0.9, 1.0], [0.4, 1.0]])
    mechanism.privatize(rows, rng=1)
    rows[1, 1] = level
    with pytest.raises(ValueError, match="Expected"):
        mechanism.privatize(rows, rng=1)


@pytest.mark.parametrize("row", [[0.5, 0.0, 0.0], [1.0, 1.0, 0.0], [1.5, -0.5, 0.0], [0.0, 0.0, 0.0]])
def test_a_user_who_holds_more_or_less_than_one_record_is_refused_among_others(row: list[float]) -> None:
    """Noise of the local model covers one record that moves; two records would move the answers twice as far."""
    mechanism = nz.CATALOGUE["matrix"](
        1.0, 1e-6, domain=nz.TensorDomain((3,), -1, 2), workload="prefix", relation="any-pair"
    )
    rows = np.asarray([[1.0, 0.0, 0.0], [0.2, 0.3, 0.5], [0.0, 0.0, 1.0]])
    assert mechanism.privatize(rows, rng=1).shape == (3, 3)
    rows[1] = row
    with pytest.raises(ValueError, match=r"1 in one cell and 0 elsewhere.*sums to"):
        mechanism.privatize(rows, rng=1)


@pytest.mark.parametrize(("code", "coarse"), [(2.0**48, 2.0**48), (-(2.0**48), 2.0**48), (2.0**24, 1.0)])
def test_a_sum_beyond_64_bits_is_refused(monkeypatch: pytest.MonkeyPatch, code: float, coarse: float) -> None:
    """Of codes, either way, or of their squares: 2^14 reports that are as far out as a code may be come to 2^62."""
    mechanism = nz.Laplace(1.0)
    monkeypatch.setitem(mechanism.__dict__, "readout", dataclasses.replace(mechanism.readout, coarse=coarse))
    monkeypatch.setattr(nz.Laplace, "codes", lambda self, reports: np.full(reports.size, code))
    assert mechanism.tally(np.zeros(2**14)).total[0] == 2**14 * int(code)
    with pytest.raises(OverflowError, match="64 bits"):
        mechanism.tally(np.zeros(2**15))


def test_a_sum_of_tensors_beyond_its_limit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    mechanism = nz.TensorGaussian(nz.TensorDomain((2,)), 1.0)
    report = np.asarray(mechanism.privatize(np.zeros(2), rng=1))
    total = np.abs(mechanism.tally(report).total)
    squares = mechanism.tally(report).squares
    limit = max(int(total.max()), int(squares.max()))
    monkeypatch.setattr(_whole, "_LARGEST_SUM", limit)
    mechanism.tally(report)
    monkeypatch.setattr(_whole, "_LARGEST_SUM", limit - 1)
    with pytest.raises(OverflowError, match="64 bits"):
        mechanism.tally(report)


def test_a_report_that_no_output_equals_is_refused_among_others() -> None:
    mechanism = nz.OptimalGraded.by_level(2.0, [(-1, 0, 2.0), (0, 1, 1.0)])
    rows = np.asarray([[0.1, 0.0], [-0.4, 1.0], [0.9, 0.0]])
    reports = np.asarray(mechanism.privatize(rows, rng=1))
    assert mechanism.tally(reports).users == 3
    for wrong in (float(reports[1]) + 1e-9, 1e9, -1e9):
        changed = reports.copy()
        changed[1] = wrong
        with pytest.raises(ValueError, match="outside the support of optimal-graded"):
            mechanism.tally(changed)


def test_the_error_of_a_sketch_is_not_promised() -> None:
    noisy = release_data(np.zeros((2, 3)), nz.TensorDomain((2, 3)), 1.0)
    assert noisy.std == pytest.approx(math.sqrt(float(np.mean(noisy.mechanism.variances))))
    sketch: Any = nz.CATALOGUE["jl"].example(1.0)
    with pytest.raises(ValueError, match="depends on the data"):
        _ = dataclasses.replace(noisy, mechanism=sketch).std


# Values of which one is refused, beside those at either edge, and how the message shows that one.
NAMED: dict[str, tuple[Callable[[], Any], str]] = {
    "a number": (lambda: nz.Laplace(1.0).privatize([-1.0, 1.0, 1.5, 0.0]), "got 1.5"),
    "a number that is none": (lambda: nz.Laplace(1.0).privatize([-1.0, 1.0, math.nan, 0.0]), "got nan"),
    "a category from above": (
        lambda: nz.GeneralizedRandomizedResponse(1.0, nz.Categorical(3)).privatize([0, 2, 7, 1]),
        "7",
    ),
    "a category from below": (
        lambda: nz.GeneralizedRandomizedResponse(1.0, nz.Categorical(3)).privatize([0, 2, -4, 1]),
        "-4",
    ),
    "an option": (lambda: nz.PrivSet(1.0, nz.Selection(5, 2)).target([[0, 4], [-1, -1], [0, 9]]), "9"),
    "a report": (lambda: nz.GeneralizedRandomizedResponse(1.0, nz.Categorical(3)).tally([0, 2, 8, 1]), "8"),
    "a weight from above": (
        lambda: nz.RetainOrNoise(2.0, domain=nz.TensorDomain((3, 2)), weights=[0.0, 1.0, 1.5], weights_epsilon=0.0),
        "got 1.5",
    ),
    "a weight from below": (
        lambda: nz.RetainOrNoise(2.0, domain=nz.TensorDomain((3, 2)), weights=[0.0, 1.0, -0.5], weights_epsilon=0.0),
        "got -0.5",
    ),
    "a value of a population": (lambda: nz.deviation(nz.Laplace(1.0), users=9, values=[-1.0, 1.0, 1.25]), "1.25"),
    "a count": (
        lambda: expectation_maximization(np.eye(3), [0.0, 5.0, -2.0]),
        "got -2",
    ),
    "a count that is none": (lambda: expectation_maximization(np.eye(3), [0.0, 5.0, math.inf]), "got inf"),
}


@pytest.mark.parametrize(("asked", "shown"), NAMED.values(), ids=NAMED)
def test_a_message_shows_what_is_refused_and_not_what_is_beside_it(asked: Callable[[], Any], shown: str) -> None:
    with pytest.raises(ValueError, match=rf"(?<![\d.]){re.escape(shown)}(?![\d])"):
        asked()


if __name__ == "__main__":
    HELD.write({name: refusal(made) for name, (made, _) in (REFUSED | GRADED).items()})
