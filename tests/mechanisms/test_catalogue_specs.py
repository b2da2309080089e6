"""Every entry of the catalogue: its name, its description in JSON, and what a foreign description meets."""

from __future__ import annotations

import dataclasses
import json
import re
from typing import Any

import numpy as np
import pytest
from tests.mechanisms.scalar.helpers import BUILD

import noisette as nz

EPSILONS = (0.5, 1.0, 4.0)


def test_names_are_kebab_case_and_unique() -> None:
    for name, cls in nz.CATALOGUE.items():
        assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name)
        assert cls.name == name
    assert len(set(nz.CATALOGUE.values())) == len(nz.CATALOGUE)


def test_the_scalar_mechanisms_are_there() -> None:
    expected = {name: build for name, build in BUILD.items() if isinstance(build, type)}
    expected |= {"discrete-laplace": nz.DiscreteLaplace, "discrete-gaussian": nz.DiscreteGaussian}
    assert len(expected) == 11
    assert {name: nz.CATALOGUE[name] for name in expected} == expected


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("name", sorted(nz.CATALOGUE))
def test_specs_round_trip(name: str, epsilon: float) -> None:
    mechanism = nz.CATALOGUE[name].example(epsilon)
    text = json.dumps(mechanism.spec())
    again = nz.from_spec(text)
    assert type(again) is type(mechanism)
    assert again == mechanism
    assert again.spec() == mechanism.spec() == nz.from_spec(json.loads(text)).spec()
    assert mechanism.spec()["mechanism"] == name
    assert mechanism.guarantee.epsilon <= epsilon * (1 + 1e-12)
    assert mechanism.guarantee.claim_holds


@pytest.mark.parametrize("name", sorted(nz.CATALOGUE))
def test_entries_are_frozen_dataclasses_with_a_kind_and_a_citation(name: str) -> None:
    cls = nz.CATALOGUE[name]
    assert dataclasses.is_dataclass(cls)
    mechanism = cls.example(1.0)
    with pytest.raises(dataclasses.FrozenInstanceError):
        mechanism.epsilon = 2.0
    kinds = {"mean", "frequency", "vector-mean", "attributes", "covariance", "direction", "texts", "selection"}
    assert cls.kind in kinds
    assert cls.citation
    for heading in ("*Guarantee*", "*Utility*", ">>>"):
        assert heading in (cls.__doc__ or ""), f"{name}: no {heading} in its docstring"


@pytest.mark.parametrize(
    "mechanism",
    [
        nz.Piecewise(1.5, domain=nz.Interval(0, 100)),
        nz.SquareWave(2.0, domain=nz.Interval(5, 5.1), debiased=True),
        nz.Gaussian(0.3, 1e-9),
        nz.DiscreteLaplace(0.1, domain=nz.Grid(0, 1, 0.1)),
    ],
)
def test_options_survive(mechanism: Any) -> None:
    again = nz.from_spec(json.dumps(mechanism.spec()))
    assert again == mechanism
    x = mechanism.domain.low
    assert np.array_equal(again.privatize(np.full(10, x), rng=3), mechanism.privatize(np.full(10, x), rng=3))


def test_defaults_may_be_left_out() -> None:
    assert nz.from_spec({"mechanism": "duchi", "epsilon": 1.0}) == nz.Duchi(1.0)


@pytest.mark.parametrize("bad", [None, "duchy", "DUCHI", 3, ["duchi"], "os.system", "noisette.Duchi"])
def test_unknown_mechanisms_are_refused(bad: Any) -> None:
    with pytest.raises(ValueError, match=r"Unknown mechanism .*; expected one of .*duchi"):
        nz.from_spec({"mechanism": bad, "epsilon": 1.0})


def test_unknown_fields_are_refused() -> None:
    with pytest.raises(ValueError, match=r"Unknown fields \['sensitivity'\] for 'laplace'; expected"):
        nz.from_spec({"mechanism": "laplace", "epsilon": 1.0, "sensitivity": 1})
    with pytest.raises(ValueError, match="Unknown domain kind 'pickle'"):
        nz.from_spec({"mechanism": "laplace", "epsilon": 1.0, "domain": {"kind": "pickle"}})


def test_bad_values_in_a_spec_are_refused() -> None:
    with pytest.raises(ValueError, match=r"Expected epsilon=-1\.0 > 0"):
        nz.from_spec({"mechanism": "laplace", "epsilon": -1.0})
    with pytest.raises(TypeError, match="Expected epsilon='1' to be a number"):
        nz.from_spec({"mechanism": "laplace", "epsilon": "1"})
    with pytest.raises(ValueError, match=r"Expected epsilon in the spec of 'duchi', got {}"):
        nz.from_spec({"mechanism": "duchi"})
    with pytest.raises(ValueError, match="Expected domain in the spec of 'grr'"):
        nz.from_spec({"mechanism": "grr", "epsilon": 1.0})


@pytest.mark.parametrize("text", ["", "{", "[]", "3", "null"])
def test_texts_that_are_no_spec_are_refused(text: str) -> None:
    with pytest.raises((ValueError, TypeError)):
        nz.from_spec(text)
