"""The text of an aggregate is refused if one thing in it cannot be, for every mechanism."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import numpy as np
import pytest

import noisette as nz
from noisette.aggregation import load
from noisette.auditing.inputs import admitted, drawn

NAMES = sorted(set(nz.CATALOGUE) - {"sampled"})


def aggregate(name: str) -> Any:
    mechanism = nz.CATALOGUE[name].example(1.0)
    found = [x for x in drawn(mechanism.domain, np.random.default_rng(0), 4) if admitted(mechanism, x)]
    return mechanism.aggregate(mechanism.privatize(np.stack([np.asarray(x) for x in found]), rng=1))


def changed(array: np.ndarray, place: int, value: int) -> np.ndarray:
    made = array.copy()
    made[place] = value
    return made


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_sums_that_no_reports_have_are_refused(name: str) -> None:
    whole = aggregate(name)
    assert load(whole.to_json()) == whole
    last = whole.count.size - 1
    wrong = [{"count": whole.count[:-1]}, {"total": np.append(whole.total, 0)}, {"squares": whole.squares[:-1]}]
    for place in {0, last}:
        for count in (-1, whole.users + 1):
            wrong.append({"count": changed(whole.count, place, count)})
        wrong.append({"squares": changed(whole.squares, place, -1)})
    for change in wrong:
        with pytest.raises(ValueError, match="Expected"):
            load(dataclasses.replace(whole, **change).to_json())
    most = dataclasses.replace(whole, count=changed(whole.count, last, whole.users))
    assert load(most.to_json()).count[last] == whole.users


def test_one_field_that_cannot_be() -> None:
    fields = json.loads(aggregate("duchi").to_json())
    for field, values in {
        "users": (-1, True, 1.5, "6", None),
        "format": ("noisette", None),
        "version": (0, 2, None),
        "mechanism": ({}, None, {"mechanism": "nothing"}),
        "count": ("", "%%%", None, 3),
    }.items():
        for value in values:
            with pytest.raises(ValueError, match=r"Expected|damaged"):
                load(json.dumps(fields | {field: value}))
    for field in fields.keys() - {"names"}:
        with pytest.raises(ValueError, match=r"Expected|damaged"):
            load(json.dumps({key: value for key, value in fields.items() if key != field}))
