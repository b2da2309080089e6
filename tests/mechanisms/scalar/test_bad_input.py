"""Bad input is an error that shows the value and the remedy, for every scalar mechanism."""

from __future__ import annotations

import dataclasses
import math
import re
from decimal import Decimal
from typing import Any

import numpy as np
import pytest

import noisette as nz

NAMES = [name for name, cls in nz.CATALOGUE.items() if ".scalar." in cls.__module__ and name != "lp-optimal"]
ON_GRIDS = ("discrete-laplace", "discrete-gaussian")


def build(name: str, epsilon: Any = 1.0, **options: Any) -> Any:
    return nz.CATALOGUE[name](epsilon, **options)


@pytest.mark.parametrize("epsilon", [0, 0.0, -1.0, math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("name", NAMES)
def test_epsilon_out_of_range(name: str, epsilon: float) -> None:
    with pytest.raises(ValueError, match=rf"Expected epsilon={epsilon!r} > 0 and finite\. Typical budgets"):
        build(name, epsilon)


@pytest.mark.parametrize("epsilon", [1e-300, 9e-8, 1.1e6, 1e300])
@pytest.mark.parametrize("name", NAMES)
def test_epsilon_beyond_what_53_bits_can_promise(name: str, epsilon: float) -> None:
    with pytest.raises(ValueError, match=rf"Expected epsilon={re.escape(repr(epsilon))} in \[1e-07, 1e\+06\]"):
        build(name, epsilon)


@pytest.mark.parametrize("name", NAMES)
def test_epsilon_too_large_for_a_float(name: str) -> None:
    with pytest.raises(ValueError, match=r"Expected epsilon=1000.* > 0 and finite"):
        build(name, 10**400)


@pytest.mark.parametrize("width", [5e-324, 1e-310, 1e-91, 1e91, 1e308])
@pytest.mark.parametrize("name", sorted(set(NAMES) - set(ON_GRIDS)))
def test_domains_beyond_float64(name: str, width: float) -> None:
    with pytest.raises(ValueError, match=r"Expected Interval.* to be 1e-90 to 1e\+90 wide: rescale the values first"):
        build(name, 1.0, domain=nz.Interval(0, width))


@pytest.mark.parametrize("epsilon", ["1", None, True, [1.0], 1j, np.ones(2), Decimal(1)])
@pytest.mark.parametrize("name", NAMES)
def test_epsilon_of_the_wrong_type(name: str, epsilon: Any) -> None:
    with pytest.raises(TypeError, match=r"Expected epsilon=.* to be a number, got"):
        build(name, epsilon)


@pytest.mark.parametrize("epsilon", [1, np.float32(1), np.int64(1), np.float64(1)])
@pytest.mark.parametrize("name", NAMES)
def test_numbers_of_any_width_are_epsilons(name: str, epsilon: Any) -> None:
    mechanism = build(name, epsilon)
    assert mechanism == build(name, 1.0)
    assert type(mechanism.epsilon) is float


@pytest.mark.parametrize("delta", [0, 1, 1.5, -1e-6, math.nan, math.inf])
@pytest.mark.parametrize("name", ["gaussian", "discrete-gaussian"])
def test_delta_out_of_range(name: str, delta: float) -> None:
    with pytest.raises(ValueError, match=rf"Expected delta={delta!r} (in \[0, 1\)|> 0)"):
        build(name, 1.0, delta=delta)


@pytest.mark.parametrize("delta", ["1e-6", None, True])
@pytest.mark.parametrize("name", ["gaussian", "discrete-gaussian"])
def test_delta_of_the_wrong_type(name: str, delta: Any) -> None:
    with pytest.raises(TypeError, match=r"Expected delta=.* to be a number"):
        build(name, 1.0, delta=delta)


@pytest.mark.parametrize("domain", [(0, 1), None, "interval", nz.Box(2), nz.Categorical(3)])
@pytest.mark.parametrize("name", NAMES)
def test_domain_of_the_wrong_kind(name: str, domain: Any) -> None:
    kind = "Grid" if name in ON_GRIDS else "Interval"
    with pytest.raises(
        TypeError, match=rf"Expected domain=.* to be of type {kind}\. Give one, e\.g\. {kind}\(0, 100\)"
    ):
        build(name, 1.0, domain=domain)


@pytest.mark.parametrize("name", NAMES)
def test_mechanisms_are_frozen(name: str) -> None:
    mechanism = build(name)
    with pytest.raises(dataclasses.FrozenInstanceError):
        mechanism.epsilon = 2.0
    assert hash(mechanism) == hash(build(name))


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("clip", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_values_that_are_no_numbers(name: str, clip: bool, bad: float) -> None:
    x = np.zeros(40_000)
    x[33_333] = bad  # far beyond the first block
    with pytest.raises(ValueError, match=rf"Expected finite values, got {bad}\. Remove or impute"):
        build(name).privatize(x, clip=clip, rng=1)


@pytest.mark.parametrize("name", NAMES)
def test_values_outside(name: str) -> None:
    x = np.zeros(40_000)
    x[33_333] = 1.25
    mechanism = build(name)
    with pytest.raises(ValueError, match=r"Expected values in .*, got 1\.25\. Pass clip=True"):
        mechanism.privatize(x, rng=1)
    for method in (mechanism.moments, lambda value: mechanism.log_prob(0.0, value)):
        with pytest.raises(ValueError, match=r"Expected values in .*, got 1\.25"):
            method(1.25)


@pytest.mark.parametrize("name", ON_GRIDS)
def test_values_off_the_grid(name: str) -> None:
    mechanism = build(name, 1.0, domain=nz.Grid(0, 10))
    with pytest.raises(ValueError, match=r"got 2\.5\. Pass clip=True"):
        mechanism.privatize([1, 2.5], rng=1)
    clipped = mechanism.privatize([1, 2.75], clip=True, rng=1)
    assert np.array_equal(clipped, mechanism.privatize([1, 3], rng=1))


@pytest.mark.parametrize("bad", [["a"], [True, False], [1j], [None], [object()], np.asarray(["2020"], dtype="M8[Y]")])
@pytest.mark.parametrize("name", NAMES)
def test_values_of_the_wrong_type(name: str, bad: Any) -> None:
    with pytest.raises(TypeError, match=r"Expected x to hold real numbers, got dtype .*astype\(float\)"):
        build(name).privatize(bad, rng=1)
    with pytest.raises(TypeError, match=r"Expected reports to hold real numbers, got dtype"):
        build(name).aggregate(bad)


@pytest.mark.parametrize("name", NAMES)
def test_masked_values(name: str) -> None:
    """What is masked is missing: its stale content must not be sent."""
    masked = np.ma.masked_array([0.0, 0.5], mask=[False, True])
    with pytest.raises(ValueError, match=r"Expected x without masked values\. Remove or impute"):
        build(name).privatize(masked, rng=1)
    assert build(name).privatize(np.ma.masked_array([0.0, 0.5]), rng=1).shape == (2,)


@pytest.mark.parametrize("name", NAMES)
def test_empty_input(name: str) -> None:
    with pytest.raises(ValueError, match="Expected at least one value in x, got an empty array"):
        build(name).privatize(np.empty(0), rng=1)
    for shape in ((0,), (3, 0)):
        with pytest.raises(ValueError, match="Expected at least one value in reports, got an empty array"):
            build(name).aggregate(np.empty(shape))


@pytest.mark.parametrize("rng", ["7", 1.5, True, object()])
def test_bad_generators(rng: Any) -> None:
    with pytest.raises(TypeError, match="Expected rng to be None, an int seed or a numpy Generator"):
        nz.Duchi(1.0).privatize([0.1], rng=rng)


@pytest.mark.parametrize("bad", [0.123456789, math.pi, math.nan, math.inf, -math.inf, 1e300, -1e308])
@pytest.mark.parametrize("name", NAMES)
def test_reports_off_the_support(name: str, bad: float) -> None:
    mechanism = build(name)
    reports = mechanism.privatize(np.zeros(40_000), rng=1)
    reports[33_333] = bad
    with pytest.raises(ValueError, match=r"Report .* (is outside the support|is farther from)"):
        mechanism.aggregate(reports)


@pytest.mark.parametrize("name", NAMES)
def test_reports_of_another_domain(name: str) -> None:
    domain = nz.Grid(0, 1, 1 / 3) if name in ON_GRIDS else nz.Interval(0, 1 / 3)
    reports = build(name, 1.0, domain=domain).privatize(np.zeros(2000), rng=1)
    with pytest.raises(ValueError, match=r"Report .* is outside the support of .*Compare the specs"):
        build(name).aggregate(reports)


@pytest.mark.parametrize("epsilon", [0.3, 0.7])
@pytest.mark.parametrize("name", ["duchi", "piecewise", "piecewise-optimal", "hybrid", "square-wave"])
def test_reports_of_another_budget(name: str, epsilon: float) -> None:
    """Bounded reports tell their budget; on an unbounded lattice they cannot, and only the spec does."""
    reports = build(name, epsilon).privatize(np.zeros(2000), rng=1)
    with pytest.raises(ValueError, match=r"Report .* is outside the support of .*Compare the specs"):
        build(name).aggregate(reports)


@pytest.mark.parametrize("name", ["laplace", "gaussian", "staircase", "scdf", "discrete-laplace", "discrete-gaussian"])
def test_reports_farther_than_noise_goes(name: str) -> None:
    """On the lattice, but impossibly far: one such report would own the mean."""
    mechanism = build(name)
    far = mechanism.support.value(2.0**60)
    assert mechanism.support.contains(np.asarray([far])).all()
    with pytest.raises(ValueError, match=r"Report .* is farther from .* than noise ever goes"):
        mechanism.aggregate([0.0 + mechanism.support.value(0.0), far])
    # and what noise does reach is taken
    reach = float(mechanism.support.value(np.rint(60 * math.sqrt(mechanism.moments(0.0).variance) / mechanism._step)))
    assert mechanism.aggregate([reach, -reach + 2 * mechanism.support.origin]).users == 2


def test_hybrid_below_061_knows_its_two_reports() -> None:
    mechanism = nz.Hybrid(0.5)
    two = mechanism.support.values
    assert len(two) == 2
    assert mechanism.aggregate(list(two)).users == 2
    with pytest.raises(ValueError, match="outside the support of hybrid"):
        mechanism.aggregate([0.0])
    assert mechanism.log_prob(0.0, 0.3) == -math.inf


def test_errors_show_plain_numbers() -> None:
    with pytest.raises(ValueError, match=r"^Report 0\.5 is outside the support of duchi: \{-2\.16395, 2\.16395\}\."):
        nz.Duchi(1.0).aggregate([0.5])
    with pytest.raises(ValueError, match=r"^Expected values in Interval\(low=-1\.0, high=1\.0\), got 3\.0\."):
        nz.Duchi(1.0).privatize(3.0)


@pytest.mark.parametrize("epsilon", [1.0, 1e-7])
def test_a_report_is_as_far_as_noise_ever_goes_and_no_farther(epsilon: float) -> None:
    """So many scales of the noise, and no more than an integer of 48 bits."""
    mechanism = nz.Laplace(epsilon)
    limit = min(2.0**20 * mechanism.readout.coarse, 2.0**48)
    assert (limit == 2.0**48) == (epsilon < 1)
    for sign in (1, -1):
        mechanism.codes(mechanism.support.value(np.asarray([0.0, sign * limit])))
        with pytest.raises(ValueError, match="than noise ever goes"):
            mechanism.codes(mechanism.support.value(np.asarray([0.0, sign * (limit + 1)])))
