"""Aggregates from batches in memory, and their portable text."""

import base64
import json

import numpy as np
import pytest

import noisette as nz
from noisette.aggregation import aggregate_stream, load

MECHANISM = nz.Sampled("piecewise", epsilon=2.0, dims=5, report=2)
REPORTS = MECHANISM.privatize(np.random.default_rng(1).uniform(-1, 1, (1000, 5)), rng=2)


def _inputs(mechanism: nz.core.Mechanism, users: int) -> np.ndarray:
    worst = np.asarray(mechanism.witnesses()[0])
    return worst[np.arange(users) % len(worst)]


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(nz.CATALOGUE))
def test_batches_and_text_change_no_bit(name: str) -> None:
    mechanism = nz.CATALOGUE[name].example(1.0)
    reports = mechanism.privatize(_inputs(mechanism, 60), rng=3)
    whole = mechanism.aggregate(reports)
    cut = aggregate_stream(mechanism, (reports[start : start + 7] for start in range(0, 60, 7)))
    assert cut == whole
    again = load(whole.to_json())
    assert again == whole
    assert again.mechanism.spec() == mechanism.spec()
    np.testing.assert_array_equal(again.estimate().value, whole.estimate().value)


def test_other_reports_give_another_aggregate() -> None:
    """The twin: the comparison above sees one report too many."""
    assert aggregate_stream(MECHANISM, [REPORTS, REPORTS[:1]]) != MECHANISM.aggregate(REPORTS)


def test_names_travel() -> None:
    aggregate = aggregate_stream(MECHANISM, [REPORTS], names=list("abcde"))
    assert load(aggregate.to_json()).names == tuple("abcde")
    assert aggregate.estimate().names == tuple("abcde")
    with pytest.raises(ValueError, match="Expected 5 names of dimensions, got 2"):
        aggregate_stream(MECHANISM, [REPORTS], names=["a", "b"])


def test_no_batch_is_an_error() -> None:
    with pytest.raises(ValueError, match="at least one batch"):
        aggregate_stream(MECHANISM, [])


def test_any_truncation_is_refused() -> None:
    text = MECHANISM.aggregate(REPORTS).to_json()
    for end in range(len(text)):
        with pytest.raises(ValueError, match=r"Aggregate\.to_json"):
            load(text[:end])


def _edited(**changes: object) -> str:
    fields = json.loads(MECHANISM.aggregate(REPORTS).to_json())
    fields |= changes
    return json.dumps({key: value for key, value in fields.items() if value is not ...})


def _coded(numbers: list[int]) -> str:
    return base64.b64encode(np.asarray(numbers, dtype="<i8").tobytes()).decode()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[1, 2]", "format='noisette-aggregate', got other JSON"),
        ('{"a": 1}', "format='noisette-aggregate', got other JSON"),
        (_edited(version=2), "Expected version 1 of an aggregate's text, got 2"),
        (_edited(users=...), "Expected a field 'users'"),
        (_edited(users=-1), "Expected users=-1"),
        (_edited(users=True), "Expected users=True"),
        (_edited(users=3), "Expected counts from 0 to users=3"),
        (_edited(count=_coded([1, 2])), r"Expected 5 sums of each kind, got \[2, 5, 5\]"),
        (_edited(count="AAA"), "damaged"),
        (_edited(count=_coded([1, 2, 3, 4, 5])[:-4]), "damaged"),
        (_edited(squares=_coded([-1] * 5)), "squares >= 0"),
        (_edited(mechanism={"mechanism": "nonsense"}), "Unknown mechanism 'nonsense'"),
        (_edited(mechanism={"mechanism": "duchi", "epsilon": -1.0}), "Expected epsilon=-1.0 > 0"),
        (_edited(names=["a"]), "Expected 5 names"),
    ],
)
def test_impossible_text_is_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        load(text)


def test_the_unedited_text_is_read() -> None:
    """The twin of the refusals above: editing alone is not what they see."""
    assert load(_edited()) == MECHANISM.aggregate(REPORTS)
