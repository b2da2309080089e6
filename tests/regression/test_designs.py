"""Design rows: what they are, how long they can be, and what is refused."""

import itertools
from typing import Any

import numpy as np
import pytest

from noisette import Categorical, Interval
from noisette.regression import Design

AGE, SEX, CODE = Interval(0, 100), Categorical(labels=("f", "m", "x")), Categorical(labels=("10", "2", "30"))


def test_columns_and_rows() -> None:
    design = Design((AGE, SEX, CODE), names=("age", "sex", "code"))
    assert design.columns == ("constant", "age", "sex=f", "sex=m", "sex=x", "code=10", "code=2", "code=30")
    assert design.encode([[25, "m", 30]]).tolist() == [[1.0, -0.5, 0, 1, 0, 0, 0, 1]]
    signed = Design((AGE, SEX, CODE), coding="signed")
    assert signed.encode([[25, "m", 30]]).tolist() == [[1.0, -0.5, -1, 1, -1, -1, -1, 1]]


def test_numeric_labels_match_by_value_in_any_type() -> None:
    design = Design((CODE, Categorical(3)))
    wanted = [[1, 0, 1, 0, 0, 0, 1], [1, 1, 0, 0, 1, 0, 0]]
    for rows in (np.asarray([[2.0, 2.0], [10.0, 0.0]]), np.asarray([[2, 2], [10, 0]], dtype=np.int8)):
        assert design.encode(rows).tolist() == wanted
    assert design.encode(np.asarray([["2", "2"], ["10", "0"]])).tolist() == wanted


@pytest.mark.parametrize("coding", ["unit", "signed"])
def test_radius_is_the_largest_length(coding: Any) -> None:
    """Enumerate all corners: the bound is attained and never exceeded."""
    design = Design((AGE, SEX, Interval(-3, 5)), coding=coding)
    rows = [list(row) for row in itertools.product((0, 100), "fmx", (-3, 5))]
    lengths = np.linalg.norm(design.encode(rows), axis=1)
    assert lengths.max() == pytest.approx(design.radius, rel=1e-12)


@pytest.mark.parametrize("coding", ["unit", "signed"])
def test_plain_coefficients_predict_the_same(coding: Any) -> None:
    design = Design((AGE, SEX), coding=coding)
    weights = np.random.default_rng(3).normal(size=design.width)
    slopes, intercept = design.plain(weights)
    rows = [[17.0, "m"], [250.0, "f"]]
    by_hand = [intercept + slopes[0] * 17 + slopes[2], intercept + slopes[0] * 250 + slopes[1]]
    assert design.encode(rows, outside="keep") @ weights == pytest.approx(by_hand)


def test_levels_follow_the_attribute() -> None:
    design = Design((AGE, SEX))
    levels = design.levels(design.encode([[25, "m"]]), np.asarray([0.75]))
    assert levels.tolist() == [[0.75, -0.5, -1, 1, -1]]
    signed = Design((AGE, SEX), coding="signed")
    assert signed.levels(signed.encode([[25, "m"]]), np.asarray([0.75])).tolist() == levels.tolist()


def test_outside_is_refused_clipped_or_kept() -> None:
    design = Design((AGE,), names=("age",))
    with pytest.raises(ValueError, match=r"'age' in \[0, 100\], got 120 in row 1"):
        design.encode([[50], [120]])
    assert design.encode([[120]], outside="clip").tolist() == [[1, 1]]
    assert design.encode([[150]], outside="keep").tolist() == [[1, 2]]


@pytest.mark.parametrize("outside", ["refuse", "clip", "keep"])
@pytest.mark.parametrize(
    ("row", "message"),
    [
        ([np.nan, "f"], "finite number in attribute 'x0', got nan in row 0"),
        ([np.inf, "f"], "finite number in attribute 'x0', got inf"),
        (["old", "f"], "Expected a number in attribute 'x0', got 'old'"),
        ([1.0, "z"], r"'z' in row 0 is not among the categories of attribute 'x1': f, m, x"),
        ([1.0], r"shape \(users, 2\)"),
    ],
)
def test_bad_rows(outside: Any, row: list[Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Design((AGE, SEX)).encode([row], outside=outside)


def test_bad_designs() -> None:
    with pytest.raises(ValueError, match="at least one attribute"):
        Design(())
    with pytest.raises(TypeError, match="Declare what values are possible"):
        Design(((0, 100),))
    with pytest.raises(ValueError, match="coding='dummy'"):
        Design((AGE,), coding="dummy")
    with pytest.raises(ValueError, match="Expected 1 names"):
        Design((AGE,), names=("a", "b"))


def test_spec_survives_json() -> None:
    design = Design((AGE, SEX), names=("age", "sex"), coding="signed")
    assert Design.from_spec(design.spec()) == design
