"""Domains: what belongs, what is clipped, what is refused."""

from __future__ import annotations

import json
import math
import pickle
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import noisette as nz
from noisette import domains
from noisette.domains.categories import Labels, prefixed

EXAMPLES: list[Any] = [
    nz.Interval(),
    nz.Interval(0, 100),
    nz.Grid(0, 10),
    nz.Grid(-1, 1, 0.1),
    nz.Box(3),
    nz.Box(2, low=(0, -5), high=(1, 5)),
    nz.L2Ball(4, 2.5),
    nz.Sphere(4),
    nz.Categorical(7),
    nz.Categorical(labels=("no", "yes", "perhaps")),
    nz.Selection(7, 3),
    nz.Selection(5),
    nz.Selection(most=2, labels=("phone", "tablet", "watch")),
    nz.TensorDomain((2, 3), 0, 1),
    nz.TensorBall((2, 3), 2.0),
    nz.TensorBall((2, 3, 1), 0.5, mode=0),
]


@pytest.mark.parametrize("domain", EXAMPLES, ids=str)
def test_specs_round_trip_through_json(domain: Any) -> None:
    assert isinstance(domain, domains.Domain)
    again = domains.from_spec(json.loads(json.dumps(domain.spec())))
    assert again == domain
    assert hash(again) == hash(domain)
    assert again.spec() == domain.spec()


@pytest.mark.parametrize("domain", EXAMPLES, ids=str)
def test_diameter_is_the_largest_distance(domain: Any) -> None:
    """No two elements of a sample are farther apart, and some are nearly so far."""
    if isinstance(domain, nz.Categorical):
        points = np.eye(domain.size)
    elif isinstance(domain, nz.Selection):
        every = [row for row in product((0.0, 1.0), repeat=domain.size) if sum(row) <= domain.most]
        points = np.asarray(every)
    else:
        raw = 1e6 * np.random.default_rng(1).standard_normal((200, *domain.shape))
        elements = domain.clip(np.concatenate([raw, -raw]))
        assert domain.contains(elements).all()
        points = elements.reshape(400, -1)
    distances = np.linalg.norm(points[:, None] - points[None, :], axis=2)
    assert distances.max() <= domain.diameter * (1 + 1e-12)
    assert distances.max() >= 0.95 * domain.diameter


@pytest.mark.slow
@given(st.floats(-1e6, 1e6), st.floats(1e-3, 1e6), st.floats(0, 1))
def test_interval_maps_there_and_back(low: float, width: float, share: float) -> None:
    interval = nz.Interval(low, low + width)
    x = min(max(low + share * width, interval.low), interval.high)
    canonical = interval.to_canonical(x)
    assert abs(canonical) <= 1 + 1e-6
    scale = max(abs(interval.low), abs(interval.high))
    assert math.isclose(float(interval.from_canonical(canonical)), x, rel_tol=1e-12, abs_tol=1e-12 * scale)


def test_interval_contains() -> None:
    interval = nz.Interval(-2, 3)
    assert interval.contains([-2, 3, 0, -2.000001, 3.1, math.nan, math.inf]).tolist() == [True] * 3 + [False] * 4
    assert interval.clip([-9, 0.5, 9]).tolist() == [-2, 0.5, 3]
    assert interval.low == -2.0
    assert isinstance(interval.low, float)


@pytest.mark.parametrize(
    ("low", "high"), [(1, 1), (2, 1), (math.nan, 1), (0, math.inf), (-math.inf, 0), (-1.7e308, 1.7e308)]
)
def test_bad_bounds_are_refused(low: float, high: float) -> None:
    with pytest.raises(ValueError, match="Expected finite low < high, got low="):
        nz.Interval(low, high)
    with pytest.raises(ValueError, match="Expected finite low < high, got low="):
        nz.TensorDomain((2,), low, high)


@pytest.mark.parametrize("bad", ["0", None, True, [0], 1j])
def test_bounds_of_the_wrong_type_are_refused(bad: Any) -> None:
    with pytest.raises(TypeError, match=r"Expected low=.* to be a number, got"):
        nz.Interval(bad, 1)


def test_grid() -> None:
    grid = nz.Grid(0, 1, 0.1)
    assert grid.size == 11
    points = 0.1 * np.arange(11)
    assert grid.contains(points).all()
    assert grid.contains([0.05, -0.1, 1.1, 0.3001, math.nan]).tolist() == [False] * 5
    np.testing.assert_allclose(grid.clip([0.16, -3, 7]), [0.2, 0, 1])
    assert grid.index([0.3, 1.0]).tolist() == [3, 10]


def test_large_grids_keep_their_points_apart() -> None:
    """A tolerance that grows with the grid would take 0.5 for a point of a thousand million."""
    grid = nz.Grid(0, 1e9)
    assert grid.contains([0, 1, 999_999_999, 1e9]).all()
    assert not grid.contains([0.5, 1.001, 999_999_999.5]).any()
    with pytest.raises(ValueError, match="to divide high - low"):
        nz.Grid(0, 1e9 + 0.4)
    far = nz.Grid(1e6, 1e6 + 1, 0.1)
    assert far.contains(1e6 + 0.1 * np.arange(11)).all()


@pytest.mark.parametrize("step", [0.3, 2.0, 1e-300])
def test_steps_that_do_not_divide_are_refused(step: float) -> None:
    with pytest.raises(ValueError, match=r"Expected step=.* to divide high - low = 1\.0"):
        nz.Grid(0, 1, step)


@pytest.mark.parametrize("step", [0, -1, math.nan, math.inf])
def test_steps_are_positive(step: float) -> None:
    with pytest.raises(ValueError, match=r"Expected step=.* > 0 and finite"):
        nz.Grid(0, 1, step)


def test_box() -> None:
    box = nz.Box(2, low=(0, -5), high=(1, 5))
    assert box.contains([[0.5, 5], [0.5, 5.1], [-0.1, 0]]).tolist() == [True, False, False]
    assert box.clip([[-1, 9]]).tolist() == [[0, 5]]
    assert box.to_canonical([[0.5, 5]]).tolist() == [[0, 1]]
    assert box.from_canonical([[0, 1]]).tolist() == [[0.5, 5]]
    assert math.isclose(box.diameter, math.hypot(1, 10))
    assert box.lows.tolist() == [0, -5]
    with pytest.raises(ValueError, match=r"Expected x of shape \(\.\.\., 2\), got \(3,\)"):
        box.contains([1, 2, 3])
    with pytest.raises(ValueError, match="Expected one bound or 2 of them, got 3"):
        nz.Box(2, low=(0, 0, 0))
    with pytest.raises(ValueError, match="Expected finite low < high in every dimension"):
        nz.Box(2, low=(0, 0), high=(1, 0))
    with pytest.raises(ValueError, match="Expected 1 <= dims, got dims=0"):
        nz.Box(0)


def test_balls_and_spheres() -> None:
    ball, sphere = nz.L2Ball(2, 5), nz.Sphere(2, 5)
    assert ball.contains([[3, 4], [3, 4.1], [0, 0]]).tolist() == [True, False, True]
    assert sphere.contains([[3, 4], [0, 0], [5, 0]]).tolist() == [True, False, True]
    np.testing.assert_allclose(ball.clip([[30, 40], [1, 0]]), [[3, 4], [1, 0]])
    np.testing.assert_allclose(sphere.clip([[30, 40], [1, 0]]), [[3, 4], [5, 0]])
    assert not ball.contains([[math.nan, 0]]).any()
    with pytest.raises(ValueError, match="a zero vector has no direction"):
        sphere.clip([[0.0, 0.0]])
    with pytest.raises(ValueError, match="Expected radius=0 > 0"):
        nz.L2Ball(2, 0)


def test_categories() -> None:
    answers = nz.Categorical(labels=("no", "yes"))
    assert answers.size == 2
    assert answers.encode(["yes", "no", "yes"]).tolist() == [1, 0, 1]
    assert answers.contains([0, 1, 2, -1]).tolist() == [True, True, False, False]
    with pytest.raises(ValueError, match="Unknown category 'maybe'; expected one of"):
        answers.encode(["maybe"])
    with pytest.raises(ValueError, match="Categories cannot be clipped"):
        answers.clip([3])
    with pytest.raises(TypeError, match=r"Expected x to hold integers, got dtype .*Encode labels"):
        answers.contains([0.5])
    with pytest.raises(ValueError, match="Expected labels to encode by name"):
        nz.Categorical(3).encode(["a"])
    with pytest.raises(ValueError, match="Expected distinct labels"):
        nz.Categorical(labels=("a", "a"))
    with pytest.raises(ValueError, match="Expected size=3 to equal the number of labels, 2"):
        nz.Categorical(3, labels=("a", "b"))
    with pytest.raises(ValueError, match="Expected 2 <= size, got size=1"):
        nz.Categorical(1)
    with pytest.raises(TypeError, match=r"Expected size=2\.5 to be an integer"):
        nz.Categorical(2.5)


def test_tensors() -> None:
    domain = nz.TensorDomain((2, 2), 0, 1)
    assert domain.contains(np.zeros((5, 2, 2))).tolist() == [True] * 5
    assert domain.contains([[0, 2], [0, 0]]).tolist() is False
    assert domain.clip([[0, 2], [-1, 0]]).tolist() == [[0, 1], [0, 0]]
    assert domain.diameter == 2
    with pytest.raises(ValueError, match="Expected at least one mode in dims"):
        nz.TensorDomain(())
    with pytest.raises(ValueError, match=r"Expected x of shape \(\.\.\., 2, 2\)"):
        domain.contains([1, 2])


def test_balls_of_tensors() -> None:
    whole, rows = nz.TensorBall((2, 3), 1.0), nz.TensorBall((2, 3), 1.0, mode=0)
    x = np.asarray([[0.6, 0.0, 0.8], [3.0, 0.0, 4.0]])
    assert rows.norms(x).tolist() == [[1.0], [5.0]]
    assert nz.TensorBall((2, 3), 1.0, mode=1).norms(x).shape == (1, 3)
    assert rows.clip(x) == pytest.approx(np.asarray([[0.6, 0, 0.8], [0.6, 0, 0.8]]))
    assert np.linalg.norm(whole.clip(x)) == pytest.approx(1.0)
    assert rows.contains(np.stack([x, rows.clip(x)])).tolist() == [False, True]
    assert whole.clip(np.full((2, 3), 1e300)) == pytest.approx(np.full((2, 3), 6**-0.5))
    assert (whole.diameter, rows.diameter) == (2.0, pytest.approx(2 * math.sqrt(2)))
    with pytest.raises(ValueError, match=r"Expected radius=0\.0 > 0"):
        nz.TensorBall((2, 3), 0.0)
    with pytest.raises(ValueError, match="Expected 0 <= mode <= 1, got mode=2"):
        nz.TensorBall((2, 3), 1.0, mode=2)
    with pytest.raises(TypeError, match=r"Expected dims=3 to be a tuple, e\.g\. dims=\(3,\)"):
        nz.TensorBall(3)


def test_unknown_specs_are_refused() -> None:
    with pytest.raises(ValueError, match="Unknown domain kind 'simplex'; expected one of"):
        domains.from_spec({"kind": "simplex"})
    with pytest.raises(ValueError, match=r"Unknown fields \['middle'\] for domain 'interval'; expected"):
        domains.from_spec({"kind": "interval", "middle": 0})


def test_empty_and_foreign_arrays_are_refused() -> None:
    for domain in (nz.Interval(), nz.Grid(0, 1)):
        with pytest.raises(ValueError, match=r"Expected at least one value in x, got an empty array of shape \(0,\)"):
            domain.contains([])
        with pytest.raises(TypeError, match="Expected x to hold real numbers, got dtype"):
            domain.contains(["a"])


def test_selections_name_each_option_once() -> None:
    domain = nz.Selection(4, 3)
    rows = [[0, 1, 2], [3, -1, -1], [-1, -1, -1], [2, -1, 0], [1, 1, -1], [4, -1, -1], [-2, 0, 1]]
    assert domain.contains(rows).tolist() == [True] * 4 + [False] * 3
    assert domain.clip(rows[:4]).tolist() == rows[:4]
    with pytest.raises(ValueError, match="Selections cannot be clipped"):
        domain.clip(rows)
    with pytest.raises(ValueError, match=r"Expected x of shape \(..., 3\), got \(2,\)"):
        domain.contains([0, 1])
    assert domain.members(rows[:4]).astype(int).tolist() == [[1, 1, 1, 0], [0, 0, 0, 1], [0, 0, 0, 0], [1, 0, 1, 0]]
    assert domain.members(rows[1]).tolist() == [False, False, False, True]


def test_labels_of_selections_are_read() -> None:
    domain = nz.Selection(most=2, labels=("phone", "tablet", "watch"))
    assert domain.shape == (2,)
    assert nz.Selection(5).most == 5
    assert domain.encode([["watch", "phone"], "tablet", ()]).tolist() == [[0, 2], [1, -1], [-1, -1]]
    assert domain.encode([]).shape == (0, 2)
    with pytest.raises(ValueError, match=r"Expected at most 2 options, got \['phone', 'tablet', 'watch'\]"):
        domain.encode([["phone"], ["phone", "tablet", "watch"]])
    with pytest.raises(ValueError, match=r"Expected each option once, got \['watch', 'watch'\]"):
        domain.encode([["phone"], ["watch", "watch"]])
    with pytest.raises(ValueError, match="Unknown category 'radio'"):
        domain.encode([["radio"]])
    with pytest.raises(ValueError, match="Expected labels to encode by name"):
        nz.Selection(3).encode([["0"]])


@pytest.mark.parametrize("most", [-1, 4])
def test_more_options_than_there_are_cannot_be_chosen(most: int) -> None:
    with pytest.raises(ValueError, match=f"Expected 0 <= most <= 3, got most={most}"):
        nz.Selection(3, most)


@pytest.mark.parametrize("size", [3, 70_000])
def test_labels_find_their_places(size: int) -> None:
    """By a dictionary, or by sorted hashes where there are many; the same after a trip through a pickle."""
    labels = Labels.of(f"label {place}" for place in range(size))
    wanted = ["label 2", "nothing", f"label {size - 1}", "label 0", ""]
    for own in (labels, pickle.loads(pickle.dumps(labels))):  # our own
        assert own.find(wanted).tolist() == [2, -1, size - 1, 0, -1]
        assert own.find([]).tolist() == []
        assert own == labels
    labels.find(wanted)
    assert set(pickle.loads(pickle.dumps(labels)).__dict__) <= {"_all_hashes_differ"}
    with pytest.raises(ValueError, match="'label 1' twice"):
        Labels.of([*labels, "label 1"])


def test_labels_whose_hashes_agree_are_found_by_a_dictionary(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two of many labels may have one hash, by chance or by design."""
    labels = Labels.of(f"label {place}" for place in range(70_000))
    hashes, order = labels._sorted_hashes
    same = hashes.copy()
    same[1] = same[0]
    monkeypatch.setitem(labels.__dict__, "_sorted_hashes", (same, order))
    labels.__dict__.pop("_all_hashes_differ")
    assert not labels._all_hashes_differ
    assert labels.find(["label 69999", "x"]).tolist() == [69_999, -1]


def test_labels_with_a_text_before_each() -> None:
    labels = tuple(map(str, range(70_000)))
    named = prefixed("c=", labels)
    assert (len(named), named[0], named[-1], list(named[2:4])) == (70_000, "c=0", "c=69999", ["c=2", "c=3"])
    assert named == tuple(f"c={label}" for label in labels)
    assert named == prefixed("c=", labels)
    assert named != prefixed("d=", labels)
    assert named.index("c=17") == 17
    assert prefixed("c=", ("a", "b")) == ("c=a", "c=b")
