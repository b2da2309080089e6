"""Attacks with a table where one value a person belongs: two columns would spend twice what the guarantee says.

A mechanism takes one person's value, of its domain's shape, or people along one axis before it. Whatever else is given
is refused before anything is drawn, by every mechanism of the catalogue, and the error names what to use instead.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest

import noisette as nz
from noisette.core import PubliclyDrawn

pytestmark = pytest.mark.slow

MECHANISMS = sorted(nz.CATALOGUE)
AGES = pd.DataFrame({"age": [31.0, 47.0, 25.0], "hours": [40.0, 38.0, 12.0]})


def example(name: str) -> tuple[Any, np.ndarray]:
    """Return a mechanism of the catalogue and one admissible value."""
    mechanism = nz.CATALOGUE[name].example(1.0)
    value = np.asarray(mechanism.witnesses()[0])[0]
    assert value.shape == mechanism.domain.shape
    return mechanism, value


def spread(value: np.ndarray, lead: tuple[int, ...]) -> np.ndarray:
    """Return the value at every index of some axes before its own."""
    return np.broadcast_to(value, lead + value.shape).copy()


class Watched(np.random.Generator):
    """A generator that is not to be asked for anything."""

    def __init__(self) -> None:
        super().__init__(np.random.PCG64(1))
        self.before = self.bit_generator.state["state"]["state"]

    @property
    def untouched(self) -> bool:
        """Whether nothing was drawn."""
        return bool(self.bit_generator.state["state"]["state"] == self.before)


def test_attack_two_columns_of_a_data_frame() -> None:
    """The call that was reported: both columns went into one mean, at twice the epsilon of the guarantee."""
    hybrid = nz.Hybrid(epsilon=1.0, domain=nz.Interval(0, 100))
    with pytest.raises(ValueError, match=r"one value a person.*got \(3, 2\).*nz\.Sampled.*nz\.SampledAttributes"):
        hybrid.privatize(AGES[["age", "hours"]])
    grr = nz.GeneralizedRandomizedResponse(epsilon=1.0, domain=nz.Categorical(5))
    with pytest.raises(ValueError, match=r"one value a person.*got \(3, 2\).*part of epsilon"):
        grr.privatize(pd.DataFrame({"diet": [0, 1, 2], "region": [3, 4, 0]}))
    both = nz.Sampled("hybrid", epsilon=1.0, dims=2, domain=nz.Box(2, 0, 100))
    assert both.aggregate(both.privatize(AGES, rng=1)).users == 3  # what the error names takes the same table


@pytest.mark.parametrize("name", MECHANISMS)
def test_attack_more_axes_than_people(name: str) -> None:
    """Tables, stacks of tables and single columns as tables, for each mechanism; nothing is drawn before the error."""
    mechanism, value = example(name)
    for lead in [(3, 1), (3, 2), (1, 1), (2, 3, 4), (0, 2)]:
        for kind in (np.asarray, np.ndarray.tolist, np.ma.asarray):
            if 0 in lead and kind is np.ndarray.tolist:
                continue  # a list cannot say how wide its empty rows are
            rng = Watched()
            with pytest.raises(ValueError, match=r"Expected one (value|array of shape .*) a person"):
                mechanism.privatize(kind(spread(value, lead)), clip=True, rng=rng)
            assert rng.untouched


@pytest.mark.long
@pytest.mark.parametrize("name", MECHANISMS)
def test_one_value_and_one_axis_of_people_are_taken(name: str) -> None:
    """The twin: what the contract promises works, however it is handed over, and costs one report a person."""
    mechanism, value = example(name)
    people = spread(value, (5,))
    alone = mechanism.privatize(value, rng=3)
    assert mechanism.aggregate(alone).users == 1
    first = mechanism.privatize(people, rng=3)
    for same in (people.tolist(), np.ma.asarray(people), people.astype(people.dtype.newbyteorder())):
        again = mechanism.privatize(same, rng=3)
        if isinstance(first, nz.Reports):
            assert np.array_equal(first.values, again.values)
        else:
            assert np.array_equal(first, again)
    assert len(first.values if isinstance(first, nz.Reports) else first) == 5
    frame = pd.DataFrame(people) if people.ndim == 2 else pd.Series(people) if people.ndim == 1 else None
    if frame is not None:
        told = mechanism.privatize(frame, rng=3)
        assert type(told) is type(first)


@pytest.mark.parametrize("name", MECHANISMS)
def test_attack_masked_and_ragged_values(name: str) -> None:
    """What a mask hides is not reported in the clear under it, and rows of different lengths are no people."""
    mechanism, value = example(name)
    people = np.ma.masked_array(spread(value, (3,)))
    people[(0,) * people.ndim] = np.ma.masked
    with pytest.raises(ValueError, match="without masked values"):
        mechanism.privatize(people, rng=1)
    with pytest.raises(ValueError, match="rows of different lengths"):
        mechanism.privatize([[0, 1], [0]], rng=1)


@pytest.mark.parametrize("bad", [None, "a", {}, [None], np.asarray([object()]), pd.Series(["1", "2"])])
@pytest.mark.parametrize("name", ["hybrid", "laplace", "grr", "olh", "graded-laplace", "levelled"])
def test_attack_what_is_no_number(name: str, bad: Any) -> None:
    """Objects, texts and nothing at all are refused by type."""
    mechanism, _ = example(name)
    with pytest.raises(TypeError, match=r"Expected (x to hold real numbers|categories as integers)"):
        mechanism.privatize(bad, rng=1)


@pytest.mark.parametrize("name", MECHANISMS)
def test_laws_and_moments_still_take_any_axes(name: str) -> None:
    """``moments`` and ``log_prob`` are formulas, not releases: they go on working elementwise."""
    mechanism, value = example(name)
    table = spread(value, (2, 3))
    assert np.shape(mechanism.moments(table).variance)[:2] == (2, 3)
    assert np.array_equal(mechanism.moments(table).variance[1, 2], mechanism.moments(value).variance)
    reports = mechanism.witnesses()[1]
    if not isinstance(reports, nz.Reports):
        report = np.asarray(reports)[0]
        masses = np.reshape(mechanism.log_prob(report, table), (2, 3))
        assert np.all(masses == np.reshape(mechanism.log_prob(report, value), ()))


def test_published_forms_are_no_way_around() -> None:
    """The unsound published versions take one value a person too."""
    for cls in nz.CATALOGUE.values():
        if not hasattr(cls, "published_forms"):
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            forms = cls.published_forms(1.0)
        for mechanism in forms:
            with pytest.raises(ValueError, match="a person"):
                mechanism.privatize(np.zeros((3, 2, *mechanism.domain.shape)), clip=True, rng=1)


class Disguised(np.ndarray):
    """Values of two columns that say they were one."""

    @property
    def shape(self) -> tuple[int, ...]:  # type: ignore[override]
        return (3,)


class Column:
    """The same, of what is no array yet."""

    shape = (3,)

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        return np.zeros((3, 2))


class Detachable(Column):
    """The same, with what tensors of torch have, which were believed."""

    def __init__(self, table: np.ndarray, shape: tuple[int, ...]) -> None:
        self.table, self.shape = table, shape

    def detach(self) -> Detachable:
        return self

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        return self.table


@pytest.mark.parametrize("name", ["hybrid", "laplace", "grr", "olh", "levelled"])
def test_attack_a_shape_that_is_not_that_of_the_values(name: str) -> None:
    """The shape that an object stated was believed, and its values were then taken as they are: two of each person."""
    mechanism, value = example(name)
    for table in (spread(value, (3, 2)).view(Disguised), Column()):
        assert table.shape == (3,)
        with pytest.raises(ValueError, match=r"one value a person.*got \(3, 2\)"):
            mechanism.privatize(table, clip=True, rng=Watched())


@pytest.mark.parametrize("name", MECHANISMS)
def test_attack_what_says_it_is_a_tensor(name: str) -> None:
    """An object that can be detached, as tensors can, stated one value and held two."""
    mechanism, value = example(name)
    table = spread(value, (3, 2))
    for form in (Detachable(table, (3, *value.shape)), Detachable(table, value.shape)):
        rng = Watched()
        with pytest.raises(ValueError, match=r"Expected one (value|array of shape .*) a person"):
            mechanism.privatize(form, clip=True, rng=rng)
        assert rng.untouched


@pytest.mark.parametrize("name", [name for name in MECHANISMS if issubclass(nz.CATALOGUE[name], PubliclyDrawn)])
def test_attack_a_table_with_what_was_drawn(name: str) -> None:
    """Where a token draws the seed or the dimension, a table was flattened, and each value of a person was answered."""
    mechanism, value = example(name)
    drawn = mechanism.draw(6, np.random.default_rng(1))
    assert mechanism.aggregate(mechanism.privatize_drawn(spread(value, (6,)), drawn, rng=1)).users == 6
    with pytest.raises(ValueError, match=r"Expected one (value|array of shape .*) a person"):
        mechanism.privatize_drawn(spread(value, (3, 2)), drawn, rng=Watched())


@pytest.mark.parametrize("name", ["hybrid", "grr", "sampled", "tensor-gaussian", "matrix"])
def test_attack_a_tensor_of_somebodys_own_class(name: str) -> None:
    """Its shape, or what it is once it is detached, is what the class says."""
    torch = pytest.importorskip("torch")
    mechanism, value = example(name)
    table, stated = spread(value, (3, 2)), (3, *value.shape)
    for own in ({"shape": stated}, {"detach": lambda self: Detachable(table, stated)}):
        tensor = torch.as_tensor(table).as_subclass(type("Own", (torch.Tensor,), own))
        with pytest.raises(ValueError, match=r"Expected one (value|array of shape .*) a person"):
            mechanism.privatize(tensor, clip=True, rng=Watched())


def test_tensors_with_a_gradient_are_taken_by_their_values() -> None:
    """Torch's own error was raised, and named no mechanism."""
    torch = pytest.importorskip("torch")
    hybrid = nz.Hybrid(epsilon=1.0)
    ages = torch.tensor([0.5, -0.5], requires_grad=True)
    assert np.array_equal(hybrid.privatize(ages, rng=1), hybrid.privatize([0.5, -0.5], rng=1))
