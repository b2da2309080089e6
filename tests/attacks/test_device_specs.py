"""A collector sends Python's device a mechanism that protects less than the campaign promises.

The device builds the mechanism itself, through the catalogue, and compares what is proved of it with the promise. What
it accepts is enumerated here from the mechanism's law.
"""

from __future__ import annotations

import copy
import json
import random
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import noisette as nz
from noisette.device.state import Device
from noisette.domains import Attributes, Categorical, Interval
from noisette.survey.campaigns import Campaign

NUMBER: dict[str, Any] = {"name": "x", "range": [-1.0, 1.0]}
TENSOR: dict[str, Any] = {"name": "x", "tensor": [2, 3], "range": [-1.0, 1.0]}
VECTOR: dict[str, Any] = {"name": "x", "vector": 3, "range": [-1.0, 1.0]}
GAUSSIAN = {
    "mechanism": "tensor-gaussian",
    "domain": {"kind": "tensor", "dims": [2, 3], "low": -1.0, "high": 1.0},
    "epsilon": 1.0,
    "delta": 1e-6,
}
RETAIN = {"mechanism": "retain-or-noise", "epsilon": 1.0, "domain": GAUSSIAN["domain"], "levels": 5}


def _shown(attributes: list[dict[str, Any]], spec: Any, **changes: Any) -> dict[str, Any]:
    told = {"version": 1, "id": "q", "epsilon": 1.0, "users": 100, "attributes": attributes, "spec": spec}
    return told | changes


NARROWER = {
    "noise for tensors that differ in one entry": (TENSOR, GAUSSIAN | {"relation": "element"}),
    "noise for tensors that differ in one row": (TENSOR, GAUSSIAN | {"relation": "slice:0"}),
    "noise for tensors that differ by a thousandth": (TENSOR, GAUSSIAN | {"relation": "l2:0.001"}),
    "noise for entries that differ by a thousandth": (TENSOR, GAUSSIAN | {"relation": "box:0.001"}),
    "the whole budget for each entry": (TENSOR, RETAIN | {"unit": "element"}),
}


@pytest.mark.parametrize("attack", NARROWER)
def test_a_guarantee_about_something_less(attack: str) -> None:
    """The epsilon is right, for neighbours that are closer than two people are: the tensor could be read nearly."""
    attribute, spec = NARROWER[attack]
    with pytest.raises(ValueError, match="promises record local any-pair privacy"):
        Campaign.from_wire(_shown([attribute], spec, delta=1e-6))
    whole = {key: value for key, value in spec.items() if key not in ("relation", "unit")}
    assert Campaign.from_wire(_shown([attribute], whole, delta=1e-6)).mechanism.guarantee.epsilon == 1


def test_one_part_of_several_that_protects_less() -> None:
    """Beside an honest part: the sum of the budgets says nothing of what each is about."""
    good = GAUSSIAN | {"epsilon": 0.5, "delta": 5e-7}
    second = TENSOR | {"name": "y"}
    for relation, refused in (("any-pair", False), ("l2:0.001", True)):
        spec = {"mechanism": "together", "parts": [good, good | {"relation": relation}]}
        if refused:
            with pytest.raises(ValueError, match="promises record local any-pair privacy"):
                Campaign.from_wire(_shown([TENSOR, second], spec, delta=1e-6))
        else:
            Campaign.from_wire(_shown([TENSOR, second], spec, delta=1e-6))


def test_an_unsound_form_is_taken_at_what_it_costs() -> None:
    """As published this one spends three times its name: at the price that it really has it may be answered."""
    spec = {"mechanism": "adaptive-duchi", "epsilon": 1.0, "dims": 3, "as_published": True}
    with pytest.warns(nz.PrivacyWarning), pytest.raises(ValueError, match=r"promises epsilon=1, .* spends 3-DP"):
        Campaign.from_wire(_shown([VECTOR], spec))


def test_a_promise_that_is_short_by_a_thousand_millionth() -> None:
    with pytest.raises(ValueError, match="Do not answer it"):
        Campaign.from_wire(_shown([NUMBER], {"mechanism": "laplace", "epsilon": 1.0 + 1e-10}))


# ---- mutations -------------------------------------------------------------------------------------------------------

_NASTY: tuple[Any, ...] = (
    *(0, -1, 1, 2, 0.5, 1.5, 1e-12, 1e12, 1e308, 5e-324, 2**53, 2**64, -0.0, float("nan"), float("inf")),
    *("", "1", "laplace", "grr", "together", None, True, False, [], {}, [0.5, 0.5], [1, 2, 3], {"kind": "interval"}),
    *({"mechanism": "grr"}, [["x"]], "element", "slice:0"),
)


def _starts() -> Iterator[dict[str, Any]]:
    for name in ("duchi", "piecewise", "hybrid", "laplace", "square-wave", "staircase", "scdf"):
        yield _shown([NUMBER], nz.CATALOGUE[name](epsilon=1.0, domain=Interval(-1.0, 1.0)).spec())
    labels = ("a", "b", "c", "d")
    for name in ("grr", "sue", "oue", "olh", "subset-selection", "hadamard"):
        domain = Categorical(labels=labels)
        yield _shown([{"name": "x", "categories": list(labels)}], nz.CATALOGUE[name](epsilon=1.0, domain=domain).spec())
    record = Attributes((Interval(-1.0, 1.0), Categorical(labels=labels)), names=("x", "y"))
    both = nz.CATALOGUE["sampled-attributes"](("hybrid", "grr"), epsilon=1.0, domain=record, report=1)
    yield _shown([NUMBER, {"name": "y", "categories": list(labels)}], both.spec())
    yield _shown([VECTOR], {"mechanism": "duchi-box", "epsilon": 1.0, "dims": 3})


def _paths(thing: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if path:
        yield path
    if isinstance(thing, dict | list):
        for key in thing if isinstance(thing, dict) else range(len(thing)):
            yield from _paths(thing[key], (*path, key))


def _mutate(told: dict[str, Any], source: random.Random) -> None:
    """Change, drop, move or add one thing anywhere."""
    path = source.choice(list(_paths(told)))
    holder = told
    for key in path[:-1]:
        holder = holder[key]
    old = holder[path[-1]]
    choice = source.random()
    if choice < 0.3 and isinstance(old, float):
        holder[path[-1]] = old * source.choice([1 + 1e-12, 1 - 1e-12, 0.5, 1.01, 2.0, -1.0])
    elif choice < 0.4:
        holder.pop(path[-1])
    elif choice < 0.5 and isinstance(holder, dict):
        holder[source.choice(["unit", "relation", "shares", "as_published", "options", "delta", "dims"])] = old
    else:
        holder[path[-1]] = copy.deepcopy(source.choice(_NASTY))


@pytest.mark.long
def test_mutated_specs() -> None:
    """Of 10,000 mutated campaigns each is refused with a reason, or its law spends no more than was promised."""
    source = random.Random("specs")
    starts = list(_starts())
    taken = 0
    for _ in range(10_000):
        told = json.loads(json.dumps(source.choice(starts)))
        for _ in range(source.choice([1, 1, 2])):
            _mutate(told, source)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", nz.PrivacyWarning)  # of budgets that protect nobody
            try:
                campaign = Campaign.from_wire(told)
            except (TypeError, ValueError):
                continue
            taken += 1
            assert nz.exact_epsilon(campaign.mechanism) <= told["epsilon"] * (1 + 1e-12), told
    assert 300 < taken < 5000, "some are taken, most are refused"


def test_honest_specs_are_answered() -> None:
    for told in _starts():
        assert Campaign.from_wire(json.loads(json.dumps(told))).mechanism.guarantee.epsilon <= 1


def test_a_question_that_changes_under_its_id(tmp_path: Path) -> None:
    """A collector that tries one range after the other would learn from the silence where the value is not."""
    device = Device(tmp_path, epsilon=10.0, delta=0.0)

    def show(low: float, high: float) -> None:
        spec = nz.Laplace(epsilon=1.0, domain=Interval(low, high)).spec()
        told = _shown([{"name": "x", "range": [low, high]}], spec)
        device.remember(Campaign.from_wire(told), json.dumps(told))

    show(0.0, 100.0)
    show(0.0, 100.0)
    with pytest.raises(ValueError, match="another attributes than before"):
        show(70.0, 80.0)
    device.close()


def test_a_program_that_changes_its_folder_is_still_the_same_device(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was answered is on the disk: looked for elsewhere, it would be drawn a second time, or not at all."""
    monkeypatch.chdir(tmp_path)
    device = Device("state", epsilon=1.5, delta=0.0)
    told = _shown([NUMBER], nz.Laplace(epsilon=1.0).spec())
    campaign = Campaign.from_wire(told)
    device.remember(campaign, json.dumps(told))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    new = [device.answer(campaign, {"x": 0.5}, group=None, clip=False, rng=None) for _ in range(2)]
    device.close()
    assert new == [True, False]
    assert not list((tmp_path / "elsewhere").iterdir())
