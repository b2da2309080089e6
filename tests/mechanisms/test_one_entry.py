"""One bad entry among many good ones is noticed by every mechanism, in what is privatised and in what is reported."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import noisette as nz
from noisette.auditing.inputs import admitted, drawn

NAMES = sorted(set(nz.CATALOGUE) - {"sampled"})  # its reports are pairs of arrays: tests/mechanisms/vector


def batch(name: str) -> tuple[Any, np.ndarray]:
    """Return a mechanism and several inputs from the whole domain."""
    mechanism = nz.CATALOGUE[name].example(1.0)
    found = [x for x in drawn(mechanism.domain, np.random.default_rng(0), 4) if admitted(mechanism, x)]
    return mechanism, np.stack([np.asarray(x) for x in found])


def places(shape: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """Yield the first and the last entry of the first, a middle and the last row."""
    rest = shape[1:]
    for row in (0, shape[0] // 2, shape[0] - 1):
        for entry in {tuple(0 for _ in rest), tuple(size - 1 for size in rest)}:
            yield (row, *entry)


def spoilt(values: np.ndarray, place: tuple[int, ...], value: float) -> np.ndarray:
    """Return a copy with one other entry."""
    made = values.copy()
    made[place] = value
    return made


def beyond(entries: np.ndarray) -> list[float]:
    """Return what none of these entries can be; where some are large, they name a map, and only the largest is none."""
    if entries.dtype.kind == "f":
        return [np.nan, np.inf, -np.inf]
    small, large = {"i": (-7, 2**7 - 1), "u": (7, 2**8 - 1)}[entries.dtype.kind]
    return [small, large if entries.max() < large else int(np.iinfo(entries.dtype).max)]


@pytest.mark.parametrize("name", NAMES)
def test_one_value_outside_the_domain_is_refused(name: str) -> None:
    mechanism, inputs = batch(name)
    below = -2 if isinstance(mechanism.domain, nz.Selection) else -1  # where -1 is no option
    bad = [below, 10**6] if inputs.dtype.kind in "iu" else [np.nan, np.inf, -np.inf, 1e6, -1e6]
    for place in places(inputs.shape):
        for value in bad:
            with pytest.raises(ValueError, match="Expected"):
                mechanism.privatize(spoilt(inputs, place, value), rng=1)
    mechanism.privatize(inputs, rng=1)


@pytest.mark.parametrize("name", NAMES)
def test_one_report_outside_the_support_is_told_from_the_others(name: str) -> None:
    mechanism, inputs = batch(name)
    reports = np.asarray(mechanism.privatize(inputs, rng=1))
    assert mechanism.support.contains(reports).all()
    for place in places(reports.shape):
        for value in beyond(reports[:, *place[1:]]):
            mixed = spoilt(reports, place, value)
            good = np.asarray(mechanism.support.contains(mixed))
            assert np.flatnonzero(~good).tolist() == [place[0]], (place, value)
            with pytest.raises(ValueError, match="outside the support"):
                mechanism.aggregate(mixed)
    mechanism.aggregate(reports)


@pytest.mark.parametrize("name", sorted(set(NAMES) - {"pem"}))  # takes words
def test_words_and_objects_are_no_numbers(name: str) -> None:
    """Neither in values nor in reports, even where each of them reads like a number."""
    mechanism, inputs = batch(name)
    reports = np.asarray(mechanism.privatize(inputs, rng=1))
    for kind in (str, complex):
        with pytest.raises((ValueError, TypeError), match="Expected"):
            mechanism.privatize(inputs.astype(kind), rng=1)
        with pytest.raises((ValueError, TypeError), match="Expected"):
            mechanism.aggregate(reports.astype(kind))


@pytest.mark.parametrize("name", NAMES)
def test_arrays_of_another_shape_are_refused(name: str) -> None:
    """One entry more or fewer in the last axis, or one axis too few."""
    mechanism, inputs = batch(name)
    reports = np.asarray(mechanism.privatize(inputs, rng=1))
    for values, use in ((inputs, lambda x: mechanism.privatize(x, rng=1)), (reports, mechanism.aggregate)):
        if values.ndim > 1:
            longer = np.concatenate([values, values[..., :1]], axis=-1)
            for other in (values[..., :-1], longer, values.ravel()[: values.shape[-1] - 1]):
                with pytest.raises(ValueError, match=r"[Ee]xpected|shape"):
                    use(other)


@pytest.mark.parametrize("name", NAMES)
def test_tables_of_rows_are_looked_at_row_by_row(name: str) -> None:
    """Laws, moments and supports of a table of inputs are those of its rows: no sum runs along another axis."""
    mechanism, inputs = batch(name)
    inputs = inputs[[0, 1, 1, 0, 1, 0]]
    reports = np.asarray(mechanism.privatize(inputs, rng=2))
    tables = [array.reshape(2, 3, *array.shape[1:]) for array in (inputs, reports)]
    assert mechanism.support.contains(tables[1]).all()
    try:
        rows = np.stack([np.asarray(mechanism.log_prob(y, x)) for x, y in zip(inputs, reports, strict=True)])
    except NotImplementedError:
        return
    found = np.asarray(mechanism.log_prob(tables[1], tables[0]))
    assert found.reshape(rows.shape) == pytest.approx(rows, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_a_report_outside_the_support_has_no_likelihood(name: str) -> None:
    """Among others, which keep theirs."""
    mechanism, inputs = batch(name)
    reports = np.asarray(mechanism.privatize(inputs, rng=1))
    try:
        plain = np.asarray(mechanism.log_prob(reports, inputs))
    except NotImplementedError:
        return
    assert np.all(np.isfinite(plain))
    for place in places(reports.shape):
        for value in set(beyond(reports[:, *place[1:]])) - {np.nan}:
            with np.errstate(invalid="ignore", over="ignore"):
                found = np.asarray(mechanism.log_prob(spoilt(reports, place, value), inputs))
            others = np.arange(len(reports)) != place[0]
            assert not np.any(found[place[0]] > -np.inf), (place, value)
            assert np.array_equal(found[others], plain[others])


PARTWAY = ("lp-optimal", "sliding-half")  # their worst pairs have one value in between, too
SCALAR = sorted(name for name in NAMES if ".scalar." in nz.CATALOGUE[name].__module__ and "discrete" not in name)


@pytest.mark.parametrize("name", SCALAR)
def test_cells_are_of_inputs_at_the_ends_of_the_domain(name: str) -> None:
    """A pair outside of it says nothing of the guarantee; one well inside, too little. Its ends are on no lattice."""
    options: Any = {"delta": 1e-6} if "gaussian" in name else {}
    mechanism: Any = nz.build(name, nz.Interval(-0.3, 1.1), epsilon=1.0, **options)
    pairs = np.asarray([cells.pair for cells in mechanism.dissect()])
    assert np.all(mechanism.domain.contains(pairs))
    assert pairs.min() == -0.3
    assert pairs.max() == 1.1
    assert name in PARTWAY or np.ptp(pairs, axis=1).min() > 1.399
