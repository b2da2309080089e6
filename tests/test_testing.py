"""check_mechanism passes the catalogue and rejects every kind of wrong mechanism."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import noisette as nz
from noisette.auditing import goodness
from noisette.core import Moments, Readout
from noisette.mechanisms._base import TableMechanism
from noisette.mechanisms.categorical._base import CountingMechanism, KeepOrReplace
from noisette.mechanisms.scalar.duchi import TwoPoint


@pytest.mark.long
@pytest.mark.parametrize("epsilon", [0.2, 5.0])
@pytest.mark.parametrize("name", sorted(nz.CATALOGUE))
def test_catalogue(name: str, epsilon: float) -> None:
    """A small budget and a large one; the tests of single mechanisms have those between."""
    nz.testing.check_mechanism(nz.CATALOGUE[name].example(epsilon), samples=20_000)


@dataclass(frozen=True)
class TooSharp(nz.Duchi):
    """Flips less than it says, and its likelihood tells."""

    @property
    def _pair(self) -> TwoPoint:
        return TwoPoint.build(self.domain, 1.1 * self.epsilon)


@dataclass(frozen=True)
class Liar(nz.Laplace):
    """Sends values stretched by a tenth, and its likelihood does not tell."""

    def _perturb(self, x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        return super()._perturb(np.clip(1.1 * x, -1, 1), rng)


@dataclass(frozen=True)
class OwnSampler(nz.Duchi):
    """Has a table, and draws from another one."""

    def _perturb(self, x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        return TwoPoint(self._pair.low, self._pair.high).sample(np.clip(1.3 * x, -1, 1), rng)


@dataclass(frozen=True)
class OwnLikelihood(nz.Piecewise):
    """Has a table, and a likelihood that is not its own."""

    def log_prob(self, report: Any, x: Any) -> np.ndarray:
        return super().log_prob(report, 0.9 * np.asarray(x))


@dataclass(frozen=True)
class OwnPrivatize(nz.GeneralizedRandomizedResponse):
    """Has a table, and sends something else now and then."""

    def privatize(self, x: Any, *, clip: bool = False, rng: Any = None) -> Any:
        return super().privatize(x, clip=clip, rng=rng)


@dataclass(frozen=True)
class LeakyTable(KeepOrReplace):
    """Weights that add up to more than their total says."""

    @property
    def total(self) -> int:
        return super().total - 1


@dataclass(frozen=True)
class OwnTable(nz.GeneralizedRandomizedResponse):
    """Draws from a table of a kind that is not the library's."""

    def law(self) -> LeakyTable:
        return LeakyTable(self._response.size, self._response.keep, self._response.other)


@dataclass(frozen=True)
class WrongVariance(nz.Duchi):
    def moments(self, x: Any) -> Moments:
        right = super().moments(x)
        return Moments(right.bias, 1.3 * right.variance, right.third)


@dataclass(frozen=True)
class Biased(nz.Duchi):
    @property
    def readout(self) -> Readout:
        right = super().readout
        return Readout(right.offset, 1.03 * float(right.scale), right.low, right.high, right.tail)


@dataclass(frozen=True)
class Mutating(nz.Laplace):
    def privatize(self, x: Any, *, clip: bool = False, rng: Any = None) -> Any:
        reports = super().privatize(x, clip=clip, rng=rng)
        x *= 0.5
        return reports


@dataclass(frozen=True)
class Unseeded(nz.Laplace):
    def privatize(self, x: Any, *, clip: bool = False, rng: Any = None) -> Any:
        return super().privatize(x, clip=clip)


@dataclass(frozen=True)
class OffSupport(nz.Laplace):
    def _perturb(self, x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        return super()._perturb(x, rng) * (1 + 2.0**-40)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (TooSharp, "exact epsilon"),
        (Liar, "disagree|biased"),
        (OwnSampler, "OwnSampler._perturb is its own"),
        (OwnLikelihood, "OwnLikelihood.log_prob is its own"),
        (WrongVariance, "stated variance"),
        (Biased, "biased|variance"),
        (Mutating, "changed its input"),
        (Unseeded, "same seed"),
        (OffSupport, "outside"),
    ],
)
def test_wrong_mechanisms_are_rejected(wrong: type[Any], message: str) -> None:
    with pytest.raises((AssertionError, ValueError), match=message):
        nz.testing.check_mechanism(wrong(epsilon=1.0))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [(OwnPrivatize, "OwnPrivatize.privatize is its own"), (OwnTable, "LeakyTable is its own")],
)
def test_a_table_that_is_not_drawn_from_is_rejected(wrong: type[Any], message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        nz.testing.check_mechanism(wrong(epsilon=1.0, domain=nz.Categorical(4)))


def test_a_table_that_does_not_add_up_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(KeepOrReplace, "kinds", lambda self, place: ((1, self.keep), (self.size - 1, self.other)))
    with pytest.raises(AssertionError, match="adds up to"):
        nz.testing.check_mechanism(nz.GeneralizedRandomizedResponse(1.0, nz.Categorical(4)))


TABLES = sorted(name for name, cls in nz.CATALOGUE.items() if issubclass(cls, CountingMechanism | TableMechanism))


@pytest.mark.parametrize("epsilon", [0.3, 1.0, 7.0])
@pytest.mark.parametrize("name", TABLES)
def test_the_whole_numbers_of_a_table_keep_the_budget(name: str, epsilon: float) -> None:
    """Where reports are of two kinds, as in most tables, their weights alone show the exact epsilon."""
    mechanism = nz.CATALOGUE[name].example(epsilon)
    law, worst = mechanism.law(), mechanism.witnesses()[0]
    each = [[kind for kind in law.kinds(mechanism.place(x)) if kind[0]] for x in (worst[0], worst[-1])]
    assert all(sum(count * weight for count, weight in kinds) == law.total for kinds in each)
    if max(map(len, each)) == 2:
        weights = [weight for kinds in each for _, weight in kinds]
        ratio = Fraction(max(weights), min(weights))
        assert ratio <= Fraction(math.exp(mechanism.guarantee.epsilon)) * (1 + Fraction(1, 1 << 50))
        assert nz.exact_epsilon(mechanism) == pytest.approx(math.log(ratio), abs=1e-12)


# declarations


def _declaring(cls: type[Any], **wrong: Any) -> type[Any]:
    """Return the class with a declaration that is not true."""
    return type(cls.__name__, (cls,), {"capabilities": replace(cls.capabilities, **wrong)})


@pytest.mark.slow
@pytest.mark.parametrize(
    ("cls", "wrong", "message"),
    [
        (nz.Duchi, {"tabled": False}, "declares tabled=False"),
        (nz.Laplace, {"tabled": True}, "declares tabled=True"),
        (nz.Laplace, {"delta": "needed"}, "declares delta='needed'"),
        (nz.Gaussian, {"delta": "none"}, "declares delta='none'"),
        (nz.Gaussian, {"gaussian": False}, "declares gaussian=False"),
        (nz.DiscreteGaussian, {"gaussian": True}, "declares gaussian=True"),
        (nz.Laplace, {"model": "central"}, "declares model='central'"),
        (nz.Laplace, {"unbiased": False}, "declares unbiased=False"),
        (nz.Laplace, {"levels": True}, "declares levels=True"),
        (nz.LevelledResponse, {"levels": False}, "declares levels=False"),
        (nz.Sampled, {"composite": False}, "declares composite=False"),
        (nz.DuchiBox, {"decoded": False}, "declares decoded=False"),
        (nz.PrivUnit, {"domains": (nz.Sphere, nz.Box)}, "declares a domain of type Box"),
        (nz.DuchiBox, {"domains": (nz.Box, nz.L2Ball)}, "declares a domain of type L2Ball"),
        (nz.AngleNoise, {"unbiased": True}, "declares unbiased=True"),
    ],
)
def test_a_wrong_declaration_is_caught(cls: type[Any], wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        nz.testing.check_mechanism(_declaring(cls, **wrong).example(2.0), samples=5000)


class SlowPairs(nz.Duchi):
    """Takes seconds, and does not say so."""

    slow_start = True


class NarrowBox(nz.DuchiBox):
    """Says that its estimates vary less than they do."""

    def worst_variance(self) -> float:
        return 0.9 * super().worst_variance()


class HalvedBox(nz.DuchiBox):
    """Decodes its signs to half of what they estimate."""

    def decode(self, reports: Any) -> np.ndarray:
        return super().decode(reports) / 2


class ThreeNumbers(nz.Piecewise):
    """Says that its reports are one of two numbers."""

    two_numbers = (-1.0, 1.0)


class LooseEntries(nz.AdaptiveDuchi):
    """Says that a weight has half of the budget that it has."""

    @classmethod
    def by_entry(cls, domain: nz.Box, *, epsilon: float) -> Any:
        return cls(epsilon=2 * epsilon * domain.dims, domain=domain)


class JointEntries(nz.DuchiBox):
    """Says that it answers entry by entry, and answers about all at once."""

    capabilities = replace(nz.DuchiBox.capabilities, entrywise=True)
    entry = nz.Duchi(0.5)

    @classmethod
    def by_entry(cls, domain: nz.Box, *, epsilon: float) -> Any:
        return cls(epsilon=epsilon * domain.dims, domain=domain)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("cls", "message"),
    [
        (SlowPairs, "declares slow_start=False"),
        (NarrowBox, r"declares worst_variance\(\)"),
        (HalvedBox, "declares decoded=True, which is not so: means are off"),
        (ThreeNumbers, "declares two_numbers"),
        (LooseEntries, "declares entrywise=True"),
        (JointEntries, "declares entrywise=True, which is not so: log_prob is off"),
    ],
)
def test_behaviour_that_is_not_declared_is_caught(cls: type[Any], message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        nz.testing.check_mechanism(cls.example(2.0), samples=5000)


def test_last_bits_are_compared_only_where_both_lattices_are_far_below_the_noise() -> None:
    rng, support = np.random.default_rng(1), SimpleNamespace(step=1.0, origin=0.0)
    fine = rng.integers(0, 1 << 40, (20_000, 2)).astype(np.float64)
    told = 4.0 * rng.integers(0, 1 << 38, (20_000, 2))
    coarse = 4.0 * rng.integers(0, 10, (20_000, 2))  # whose places repeat: their last bits may well differ
    assert goodness.last_bits(support, fine, told, 1e-6) is not None
    assert goodness.last_bits(support, fine, fine[::-1], 1e-6) is None
    assert goodness.last_bits(support, fine, coarse, 1e-6) is None
    assert goodness.last_bits(support, coarse, fine, 1e-6) is None
