"""How a reach into a cap is drawn, part by part: errors are bounds, closely, and a close call is decided by digits."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import pytest

import noisette as nz
from noisette.mechanisms._reals import Digits
from noisette.mechanisms.vector.caps import loops
from noisette.mechanisms.vector.caps.draws import LowSphere, NormalTail, OnePoint, Proposal, SphereTail
from noisette.mechanisms.vector.caps.exact import left_open

ULP = 2.0**-53
PROPOSALS: dict[str, Proposal] = {
    "normal": NormalTail(1.3, 1.9),
    "sphere of 4": SphereTail(0.3, 2.0, 4),
    "sphere of 5": SphereTail(0.9, 20.0, 5),
    "sphere of 400": SphereTail(0.1, 60.0, 400),
    "circle": LowSphere(0.2, 2),
    "sphere of 3": LowSphere(-0.4, 3),
    "point": OnePoint(),
}
UNIFORM = np.asarray([2.0**-53, 2.0**-40, 1e-9, 0.003, 0.2, 0.5, 0.77, 1 - 2.0**-30, 1 - 2.0**-53])


def by_hand(own: Any, u: Any) -> tuple[Any, Any, Any]:
    """Return T, 1 - T^2 and the log chance to keep T, with 100 digits, from the formulas in words."""
    if isinstance(own, OnePoint):
        return mpmath.mpf(1), mpmath.mpf(0), mpmath.mpf(1)  # always: no height is above e
    gamma = mpmath.mpf(own.gamma)  # type: ignore[attr-defined]
    if isinstance(own, LowSphere):
        t = 1 - (1 - gamma) * (u * u if own.dims == 2 else u)
        return t, 1 - t * t, mpmath.log((1 + gamma) / (1 + t)) / 2 if own.dims == 2 else mpmath.mpf(0)
    assert isinstance(own, NormalTail | SphereTail)
    rate = mpmath.mpf(own.rate)
    t = gamma - mpmath.log(u) / rate
    if isinstance(own, NormalTail):
        return t, mpmath.mpf(1), -(t**2) / 2 + rate * t - rate**2 / 2
    if t >= 1:
        return t, 1 - t * t, -mpmath.inf
    return t, 1 - t * t, mpmath.mpf(own.dims - 3) / 2 * mpmath.log(1 - t * t) + rate * t - mpmath.mpf(own.top)


@pytest.mark.parametrize("name", PROPOSALS)
def test_errors_are_bounds_and_no_farther_than_roundings_are(name: str) -> None:
    own = PROPOSALS[name]
    near = own.near(UNIFORM)
    with np.errstate(divide="ignore", invalid="ignore"):
        log_chance, error = own.log_chance(near)
    with mpmath.workdps(100):
        for place, first in enumerate(UNIFORM.tolist()):
            steep = 1 + 1 / first  # what the digits that are not drawn yet may move, in the last place of a float
            for u in (mpmath.mpf(first), mpmath.mpf(first) + mpmath.mpf(ULP)):
                t, rest, chance = by_hand(own, u)
                assert abs(t - mpmath.mpf(float(near.t[place]))) <= near.t_error[place]
                if own.bounded:
                    assert abs(rest - mpmath.mpf(float(near.rest[place]))) <= near.rest_error[place]
                if math.isfinite(error[place]) and chance > -mpmath.inf and log_chance[place] > -math.inf:
                    assert abs(chance - mpmath.mpf(float(log_chance[place]))) <= error[place] + 1e-300
            assert near.t_error[place] <= 64 * ULP * steep
            assert near.rest_error[place] <= 256 * ULP * steep * (1 + abs(near.t[place]))


def test_the_normal_law_alone_has_no_end() -> None:
    assert [own.bounded for own in PROPOSALS.values()] == [False] + [True] * 6


@pytest.mark.parametrize("name", [name for name in PROPOSALS if name != "point"])
def test_whether_a_draw_is_kept_is_decided_by_as_many_digits_as_it_takes(name: str) -> None:
    """Heights that agree with the chance in all digits of a float; the digits behind them, once drawn, decide."""
    own, rng = PROPOSALS[name], np.random.default_rng(5)
    seen = set[bool]()
    for first in [*UNIFORM.tolist(), *rng.random(4).tolist()]:
        with mpmath.workdps(100):
            exact = mpmath.exp(by_hand(own, mpmath.mpf(first) + mpmath.mpf(ULP) / 2)[2])
            close = min(math.floor(exact * 2**53), 2**53 - 1) * ULP
        for height in (close, max(close - 0.01, 0.0), min(close + 0.01, 1 - ULP)):
            u, h = Digits.of_float(rng, first), Digits.of_float(rng, height)
            kept = own._kept(u, h)
            with mpmath.workdps(100):
                value, level = (mpmath.mpf(one.digits) / mpmath.mpf(2) ** one.count for one in (u, h))
                chance = mpmath.exp(by_hand(own, value)[2])
                if abs(chance - level) > mpmath.mpf(2) ** -100:
                    assert kept == (level < chance), (first, height)
            seen.add(kept)
    assert True in seen
    assert (False in seen) == (name != "sphere of 3")  # where all are kept


def test_beyond_the_sphere_nothing_is_kept() -> None:
    own, rng = PROPOSALS["sphere of 4"], np.random.default_rng(1)
    for first in (2.0**-53, 1e-9, 0.2):  # 0.3 - ln(u) / 2 is above 1
        assert not own._kept(Digits.of_float(rng, first), Digits.of_float(rng, 0.0))
    assert own._kept(Digits.of_float(rng, 0.9), Digits.of_float(rng, 0.0))
    assert np.all(own.draw(rng, 200).t < 1)


def test_an_entry_is_open_where_an_error_may_move_its_floor() -> None:
    rng = np.random.default_rng(2)
    noisy, own = rng.normal(0, 9, 300), rng.normal(0, 3, 300)
    noisy[::3] = np.rint(noisy[::3]) - own[::3] + rng.choice([-3e-5, -4e-6, 4e-6, 3e-5], 100)
    error, uniform = np.full(300, 5e-6), 0.0
    entries = np.floor(noisy + own + uniform)
    found = left_open(noisy, own, uniform, entries, error)
    wanted = []
    for place in range(300):
        part = Fraction(noisy[place]) + Fraction(own[place]) - Fraction(entries[place])
        if min(part, 1 - part) <= Fraction(1, 10**5):  # twice the error
            wanted.append(place)
    assert found == wanted
    assert 20 < len(found) < 80
    assert left_open(noisy[:1] * 0, own[:1] * 0, 0.0, np.zeros(1), np.zeros(1)) == [0]  # the sum's own rounding
    assert left_open(np.asarray([0.2]), np.asarray([0.1]), 0.6, np.zeros(1), np.full(1, 0.04)) == []
    assert left_open(np.asarray([0.2]), np.asarray([0.1]), 0.6, np.zeros(1), np.full(1, 0.06)) == [0]


@pytest.mark.parametrize("dims", [2, 30, 5000])
@pytest.mark.parametrize("cls", [nz.PrivUnit, nz.PrivUnitG])
def test_digits_that_are_not_drawn_yet_are_far_below_the_error_that_is_allowed_for(cls: Any, dims: int) -> None:
    """Each entry of g may grow by 2^-68, the norm by sqrt(d) times that; the bound k z allows for 32 times as much."""
    made: Any = cls(4.0, domain=nz.Sphere(dims))
    for square in (0.0, float(dims)):
        z = float(made._size(np.asarray(square)))
        assert made._rounding * (z - math.sqrt(square)) >= 32 * math.sqrt(made._ambient) * 2.0**-68
        assert z <= (math.sqrt(square) + math.sqrt(made._ambient) / 1000) * (1 + 1e-12)
    assert made._rounding >= 17 * ULP


def test_a_sum_within_its_error_of_a_whole_number_is_open() -> None:
    """Each part of the error by itself, a hair inside and a hair outside of it, on both sides of a whole number."""

    def is_open(
        place: float, *, a: float = 0.0, c: float = 0.0, g: float = 0.0, w: float = 0.0, **margins: float
    ) -> bool:
        rows = {name: np.asarray([margins.get(name, 0.0)]) for name in ("share", "most", "reach", "slope")}
        report, left = np.empty((1, 1)), np.empty(1, dtype=np.bool_)
        shift = np.asarray([place])
        loops.finish(
            np.asarray([[g]]),
            np.asarray([[w]]),
            np.asarray([a]),
            np.asarray([c]),
            *rows.values(),
            shift,
            0.5,
            report,
            left,
        )
        assert report[0, 0] == 0.5 * math.floor(a * g + c * w + place)
        return bool(left[0])

    cases: list[tuple[float, dict[str, float]]] = [
        (2.0**-50, {}),  # roundings of what is near zero
        (2.0**-50 + 2.0**-47, {"a": 2.0**20}),  # of a long part across
        (2.0**-50 + 2.0**-30 * 0.75, {"share": 2.0**-30, "most": 0.75}),  # at most so much is across
        (2.0**-50 + 2.0**-30, {"share": 2.0**-30, "most": 9.0}),  # or one more than the sum, which is next to nothing
        (2.0**-50 + 2.0**-30 * 4, {"share": 2.0**-30, "most": 9.0, "reach": 1.5, "w": -2.0}),
        (2.0**-50 + 2.0**-30 * 2, {"slope": 2.0**-30, "w": -2.0}),
    ]
    for error, given in cases:
        for side in (1, -1):
            hair = 0.25 if side < 0 and error < 2.0**-40 else 1e-6  # below one, float64 has steps of 2^-53
            assert is_open(side * error * (1 - hair), **given), (error, given)
            assert not is_open(side * error * (1 + hair), **given), (error, given)
    for product in (
        {"a": 1.0, "g": 64.0},
        {"c": 2.0, "w": 32.0},
    ):  # it is off by its last places: 65 times 2^-50 in all
        assert is_open(64 * 2.0**-50, **product)
        assert not is_open(80 * 2.0**-50, **product)
