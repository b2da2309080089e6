"""Edges of mechanisms for vectors: draws known badly, short vectors, records whose laws are cut in several ways."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import noisette as nz
from noisette.mechanisms.vector.attributes import _second_moment
from noisette.mechanisms.vector.caps.draws import LowSphere, Near, NormalTail, SphereTail


@pytest.mark.parametrize(
    "own", [NormalTail(1.3, 1.9), SphereTail(0.3, 2.0, 4), SphereTail(0.1, 60.0, 400), LowSphere(0.2, 2)]
)
@pytest.mark.parametrize("error", [1e-9, 1e-3, 0.05])
def test_a_chance_is_within_its_error_however_badly_the_draw_is_known(own: Any, error: float) -> None:
    """Wherever T and 1 - T^2 are, as far off as is said, or at both ends."""
    for t in (0.3, 0.45, 0.8) + ((2.5,) if isinstance(own, NormalTail) else ()):
        rest, rest_error = 1 - t * t, 2 * error * t + error * error
        near = Near(*(np.asarray([part]) for part in (t, error, rest, rest_error)))
        (middle,), (bound,) = own.log_chance(near)
        for share in (-1.0, -0.5, 0.5, 1.0):
            moved = t + share * error
            exact = Near(*(np.asarray([part]) for part in (moved, 0.0, 1 - moved * moved, 0.0)))
            assert abs(own.log_chance(exact)[0][0] - middle) <= bound * (1 + 1e-9) + 1e-14


@pytest.mark.parametrize("own", [SphereTail(0.3, 2.0, 4), SphereTail(0.9, 20.0, 5), SphereTail(0.01, 60.0, 400)])
@pytest.mark.parametrize("error", [1e-9, 1e-3, 0.05])
def test_what_is_left_is_within_its_error_however_badly_the_excess_is_known(own: Any, error: float) -> None:
    for excess in (0.0, 0.01, 0.3):
        (rest,), (bound,) = own._rest(np.asarray([excess]), np.asarray([error]))
        worst = max(abs(1 - (own.gamma + excess + sign * error) ** 2 - rest) for sign in (-1, 1))
        assert worst <= bound * (1 + 1e-9)
        assert bound <= 2 * worst + 1e-14  # and no farther than it must be


@pytest.mark.parametrize("length", [0.0, 0.4, 0.93, 1.0])
def test_the_likelihood_of_a_short_vectors_report_is_the_mean_over_both_sides(length: float) -> None:
    """The vector is lifted to a sphere of one dimension more; the report is what is seen of a unit vector there."""
    mechanism: Any = nz.PrivUnit(3.0, domain=nz.L2Ball(3, 2.0))
    direction = np.asarray([2.0, -1.0, 2.0]) / 3
    reports = mechanism.privatize(np.tile(direction, (60, 1)), rng=1)
    inside, outside = (math.exp(log) for log in mechanism.cap.log_weights)
    seen = reports / mechanism._reach
    lift = math.sqrt(1 - length**2)
    hidden = np.sqrt(np.maximum(1 - (seen**2).sum(axis=1), 0))
    reaches = [length * seen @ direction + side * lift * hidden for side in (1, -1)]
    wanted = np.mean([np.where(reach >= mechanism.cap.gamma, inside, outside) for reach in reaches], axis=0)
    found = np.exp(mechanism.log_prob(reports, np.tile(2.0 * length * direction, (60, 1))))
    assert found == pytest.approx(wanted, rel=1e-9)
    assert len(set(wanted.round(9))) > 1 or length == 0.0


@pytest.mark.parametrize("inner", [("duchi", "grr"), ("laplace", "grr"), ("laplace", "laplace"), ("piecewise", "grr")])
def test_a_record_is_cut_where_all_its_attributes_are(inner: tuple[str, str]) -> None:
    """Laplace noise about a number that is on no lattice has four worst pairs: a record of it is not cut at all."""
    second: Any = nz.Categorical(3) if inner[1] == "grr" else nz.Interval(0.3, 1.1)
    made = nz.SampledAttributes(inner, 1.0, nz.Attributes((nz.Interval(0.3, 1.1), second)))
    several = [len(list(one.dissect())) != 1 for one in made.inner_mechanisms]
    assert any(several) == ("laplace" in inner)
    assert len(list(made.dissect())) == (0 if any(several) else 1)


@pytest.mark.parametrize("low", [-1.0, 2.0])
@pytest.mark.parametrize("name", ["duchi", "piecewise", "square-wave", "laplace", "grr", "oue"])
def test_the_second_moment_of_an_attributes_estimate(name: str, low: float) -> None:
    """Of a number about the middle of its range, in half-widths; of categories the mean over all of them."""
    if name in ("grr", "oue"):
        mechanism: Any = nz.CATALOGUE[name](1.0, domain=nz.Categorical(4))
        moments = mechanism.moments(np.arange(4))
        wanted = max(float(np.mean(row)) + 1 / 4 for row in moments.variance)
    else:
        mechanism = nz.CATALOGUE[name](1.0, domain=nz.Interval(low, low + 7))
        x = np.asarray(mechanism.witnesses()[0])
        moments = mechanism.moments(x)
        away = (x + moments.bias - (low + 3.5)) / 3.5
        wanted = float((moments.variance / 3.5**2 + away**2).max())
    assert _second_moment(mechanism) == pytest.approx(wanted, rel=1e-12)
    if name == "square-wave":  # whose reports lean toward the middle
        assert abs(away).max() < 0.9
