"""Attacks on the accountant: releases taken for less than they are, and accounts that mix what does not add up."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import dp_accounting
import pytest

import noisette as nz
from noisette.accounting import compose, event, gdp, loss_distribution, privacy_curve, rdp, sampled_gaussian, zcdp
from noisette.core import EventDeclared, GaussianEvent
from noisette.utility.graded import Reused

DELTA = 1e-6
DECOYS = ("mu", "sigma", "rho", "epsilon", "noise_multiplier", "report", "inner_mechanism", "gaussian", "event")


@dataclass(frozen=True)
class Decoy:
    """States a guarantee, and has one attribute that would promise far more if it were taken for a noise level."""

    guarantee: nz.Guarantee
    named: dict[str, Any] = field(default_factory=dict)

    def __getattr__(self, name: str) -> Any:
        if name in self.__dict__.get("named", {}):
            return self.named[name]
        raise AttributeError(name)


def test_hieras_reuse_count_is_no_noise_level() -> None:
    """HierA reads each report ``mu`` times; the accountant took that count for the mu of Gaussian noise."""
    levelled = nz.LevelledResponse(edges=[-1, -0.6, 0, 1], epsilons=[3.0, 2.0, 1.0])
    reused = Reused(levelled, 2)
    assert reused.mu == 2
    assert gdp(reused) is None


@pytest.mark.parametrize("name", DECOYS)
def test_an_attribute_by_a_telling_name_is_not_taken_for_noise(name: str) -> None:
    """A mechanism of epsilon 3 has an attribute 0.01 by the name of a noise level: its guarantee alone counts."""
    stated = nz.Guarantee(3.0)
    decoy: Any = Decoy(stated, {name: nz.Duchi(epsilon=0.01) if name == "inner_mechanism" else 0.01})
    assert getattr(decoy, name) is not None
    assert gdp(decoy) is None
    assert event(decoy) == event(stated)
    assert isinstance(event(decoy), dp_accounting.RandomizedResponseDpEvent)
    assert compose(decoy, 10, delta=DELTA).epsilon == compose(stated, 10, delta=DELTA).epsilon
    assert zcdp(decoy) == zcdp(stated)
    assert rdp(decoy, [2.0]) == rdp(stated, [2.0])
    assert (privacy_curve(decoy).deltas == privacy_curve(stated).deltas).all()
    found = loss_distribution(decoy).get_delta_for_epsilon(1.0)
    assert found == loss_distribution(stated).get_delta_for_epsilon(1.0)


def test_all_decoys_at_once_and_a_method_by_the_right_name() -> None:
    """A class that does not inherit the declaration declares nothing, whatever its methods are called."""
    stated = nz.Guarantee(3.0)
    named: dict[str, Any] = dict.fromkeys(DECOYS, 1)
    named |= {"inner_mechanism": nz.Duchi(epsilon=0.01), "privacy_event": lambda: GaussianEvent(0.01)}
    decoy: Any = Decoy(stated, named)
    assert gdp(decoy) is None
    assert compose(decoy, 10, delta=DELTA).epsilon == compose(stated, 10, delta=DELTA).epsilon


def test_the_twin_a_declared_event_is_used() -> None:
    """What inherits the declaration is composed by it: the test above would pass if no event were ever used."""

    class Noisy(Decoy, EventDeclared):
        def privacy_event(self) -> GaussianEvent:
            return GaussianEvent(0.01)

    noisy: Any = Noisy(nz.Guarantee(3.0, 1e-9))
    assert gdp(noisy) == 0.01
    assert event(noisy) == dp_accounting.GaussianDpEvent(100.0)
    assert compose(noisy, 10, delta=DELTA).epsilon < 0.2


@pytest.mark.parametrize("name", sorted(nz.CATALOGUE))
def test_repetitions_are_never_told_by_a_count_that_is_ignored(name: str) -> None:
    """dp-accounting counts repeated randomised responses once: each repetition is an event of its own."""
    mechanism = nz.CATALOGUE[name].example(1.0)
    three = event(mechanism, times=3)
    one = three.events[0]
    assert three.events == [one] * 3
    accountant = dp_accounting.rdp.RdpAccountant(neighboring_relation=dp_accounting.NeighboringRelation.REPLACE_ONE)
    unrolled = dp_accounting.rdp.RdpAccountant(neighboring_relation=dp_accounting.NeighboringRelation.REPLACE_ONE)
    for _ in range(3):
        unrolled.compose(one)
    spent = accountant.compose(three).get_epsilon(DELTA)
    assert spent == pytest.approx(unrolled.get_epsilon(DELTA), rel=1e-9)
    alone = dp_accounting.rdp.RdpAccountant(neighboring_relation=dp_accounting.NeighboringRelation.REPLACE_ONE)
    assert spent > alone.compose(one).get_epsilon(DELTA) * 1.2 or math.isinf(spent)


def test_a_delta_too_small_for_a_fourier_transform() -> None:
    """One sampled release at a delta of 1e-16: the stated epsilon was below the true one."""
    q, delta = 0.1, 1e-16
    epsilon = sampled_gaussian(1.0, delta, sampling_prob=q).epsilon
    inner = math.log1p(math.expm1(epsilon) / q)  # removing an example: exp(inner) = (exp(epsilon) - 1 + q) / q
    near, far = (math.erfc((inner + sign * 0.5) / math.sqrt(2)) / 2 for sign in (-1, 1))
    assert q * (near - math.exp(inner) * far) <= delta * (1 + 1e-9)


def test_a_thousand_steps_at_a_small_delta_are_not_priced_three_times_too_high() -> None:
    """12.4 was stated where Renyi divergences give 4.98: whoever believes it adds noise for nothing."""
    assert sampled_gaussian(1.0, 1e-14, releases=1000, sampling_prob=0.01).epsilon < 4.98


def test_little_noise_does_not_undo_sampling() -> None:
    """Table 5.3's plain run was printed with 3.28e8; its example is drawn 0.5 times on average in 400 steps."""
    assert sampled_gaussian(0.05 / 64, 1e-5, releases=400, sampling_prob=64 / 50_000).epsilon < 5.8e6
