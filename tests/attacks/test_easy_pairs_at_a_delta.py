"""What people have tried to hide the worst pair of inputs at a delta: `dissect` shows two that are hard to tell apart.

The likelihood is honest, the noise too little, and the pair that the mechanism names spends no more than is stated. The
exact calculator looks for pairs of its own, or says in the type of its answer that nobody knows the worst one.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import numpy as np
import pytest

import noisette as nz
from noisette.auditing.exact import NotWorst
from noisette.auditing.pairs import AtLeast
from noisette.cells import Cells
from noisette.mechanisms.categorical.grr import GeneralizedRandomizedResponse
from noisette.mechanisms.scalar._additive import GaussianNoise

DELTA = 1e-6


class EasyGaussian(nz.Gaussian):
    """Half of the noise; two values that are a quarter of the domain apart are shown."""

    @cached_property
    def _noise(self) -> GaussianNoise:
        return GaussianNoise(super()._noise.sigma / 2)

    def dissect(self) -> Iterator[Cells]:
        yield self._cells(np.asarray([self._origin, self._origin + self._step * (self._steps // 4)]))


class EasyGrid(nz.DiscreteGaussian):
    """The same on a grid."""

    @cached_property
    def _noise(self) -> GaussianNoise:
        return GaussianNoise(super()._noise.sigma / 2)

    def dissect(self) -> Iterator[Cells]:
        yield self._cells(np.asarray([0.0, 2.0]))


class EasyTensor(nz.TensorGaussian):
    """Half of the noise; two tensors that are half as far apart as any are shown."""

    @cached_property
    def sigma(self) -> float:
        return super().sigma / 2

    def dissect(self) -> Iterator[Cells]:
        gap, _ = self._worst
        cells = self.cut(self._middle + gap / 4, self._middle - gap / 4)
        assert cells is not None
        yield cells


class EasySigns(nz.TensorGaussian):
    """0.7 of the noise, correlated; the tensors shown differ along its longest axis, where it hides the most."""

    @cached_property
    def sigma(self) -> float:
        return 0.7 * super().sigma

    def dissect(self) -> Iterator[Cells]:
        assert isinstance(self.domain, nz.TensorDomain)
        ends = np.full((2, *self.domain.dims), self.domain.low)
        ends[1] = self.domain.high
        cells = self.cut(*ends)
        assert cells is not None
        yield cells


class EasyAngles(nz.AngleGaussian):
    """Half of the noise on magnitude and angles; neighbours that differ little are shown."""

    @cached_property
    def sigmas(self) -> Any:
        return super().sigmas / 2

    def dissect(self) -> Iterator[Cells]:
        second = self._pair[1]
        yield self._cells(second / 2, second)


class EasyPiecewise(nz.Piecewise):
    """Twice the budget; two values near the middle are shown."""

    @cached_property
    def _window(self) -> Any:
        return nz.Piecewise(2 * self.epsilon)._window

    def dissect(self) -> Iterator[Cells]:
        yield self.cut(-0.05, 0.05)


class EasyTwoPoints(nz.Duchi):
    """Twice the budget; two values near the middle are shown."""

    @cached_property
    def _pair(self) -> Any:
        return nz.Duchi(2 * self.epsilon)._pair

    def dissect(self) -> Iterator[Cells]:
        yield Cells.constant((-0.1, 0.1), np.asarray(self.support.values), np.zeros(2))


class EasyCategories(GeneralizedRandomizedResponse):
    """The last category is kept too often and the likelihood says so; the first two are shown."""

    def log_prob(self, report: Any, x: Any) -> Any:
        reports, codes = np.broadcast_arrays(np.asarray(report), np.asarray(x))
        last = self.domain.size - 1
        kept = np.where(reports == last, 0.9, 0.1 / last)
        return np.where(codes == last, np.log(kept), super().log_prob(reports, codes))


class EasyBox(nz.DuchiBox):
    """Twice the budget; corners that differ in one sign are shown, with all reports."""

    def _chance(self, product: Any) -> Any:
        return nz.DuchiBox(2 * self.epsilon, self.dims)._chance(product)

    def dissect(self) -> Iterator[Cells]:
        yield self._cells(1, complete=True)


class EasyLevels(nz.GradedLaplace):
    """Rates of twice what the budgets ask for; the guarantee is that of before, and values of one level are shown."""

    @cached_property
    def _noises(self) -> Any:
        return [type(noise)(2 * noise.rate) for noise in super()._noises]

    @cached_property
    def guarantee(self) -> nz.Guarantee:
        return nz.GradedLaplace(self.edges, self.epsilons, delta=self.delta).guarantee

    def dissect(self) -> Iterator[Cells]:
        yield replace(self._cells(np.asarray([-0.01, 0.0])), bound=None)


class EasyShares(nz.MatrixMechanism):
    """Half of the noise; two users are shown whose answers differ a little."""

    @cached_property
    def _lattice(self) -> tuple[float, float]:
        step, noise = super()._lattice
        return step, noise / 2

    def dissect(self) -> Iterator[Cells]:
        even = np.full(self.domain.dims, 1 / self.size)
        one = np.zeros(self.size)
        one[0] = 1.0
        cells = self.cut(even, 0.75 * even + 0.25 * one.reshape(self.domain.dims))
        assert cells is not None
        yield cells


EQUAL = np.full((2, 2), 0.9) + 0.1 * np.eye(2)
BROKEN = [
    pytest.param(EasyGaussian(1.0, DELTA), DELTA, id="gaussian"),
    pytest.param(EasyGrid(1.0, DELTA, domain=nz.Grid(0, 10, 1)), DELTA, id="discrete-gaussian"),
    pytest.param(EasyTensor(nz.TensorDomain((2, 3)), 1.0, DELTA), DELTA, id="tensor-gaussian"),
    pytest.param(EasyTensor(nz.TensorDomain((2, 3)), 1.0, DELTA, relation="element"), DELTA, id="tensor-element"),
    pytest.param(EasyTensor(nz.TensorBall((2, 3), 1.0), 1.0, DELTA), DELTA, id="tensor-ball"),
    pytest.param(
        EasySigns(nz.TensorDomain((2, 2)), 1.0, DELTA, covariances=(EQUAL, EQUAL)), DELTA, id="tensor-correlated"
    ),
    pytest.param(EasyAngles(1.0, 3, delta=DELTA), DELTA, id="angle-gaussian"),
    pytest.param(EasyPiecewise(1.0), 1e-4, id="piecewise"),
    pytest.param(EasyTwoPoints(1.0), 1e-4, id="duchi"),
    pytest.param(EasyCategories(1.0, nz.Categorical(5)), 1e-4, id="grr"),
    pytest.param(EasyBox(1.0, 4), 1e-4, id="duchi-box"),
    pytest.param(EasyLevels((-1, 0, 1), (1.0, 2.0), delta=DELTA), DELTA, id="graded-laplace"),
    pytest.param(
        EasyShares(1.0, DELTA, domain=nz.TensorDomain((4,), 0, 1), workload="prefix", relation="any-pair"),
        DELTA,
        id="matrix",
    ),
]


def found(mechanism: Any, delta: float) -> float:
    """Return the epsilon that the calculator gives, infinity where it refuses to give one."""
    try:
        return nz.exact_epsilon(mechanism, delta=delta)
    except NotWorst:
        return np.inf


@pytest.mark.parametrize(("mechanism", "delta"), BROKEN)
def test_an_easy_pair_at_a_delta_hides_nothing(mechanism: Any, delta: float) -> None:
    assert found(mechanism, delta) > 1.05 * mechanism.guarantee.epsilon


@pytest.mark.parametrize(("mechanism", "delta"), BROKEN)
def test_nor_in_the_delta_of_an_epsilon(mechanism: Any, delta: float) -> None:
    stated = mechanism.guarantee
    try:
        shown = nz.exact_delta(mechanism, stated.epsilon)
    except NotWorst:
        return
    assert shown > 2 * stated.delta + 1e-6


@pytest.mark.parametrize(("mechanism", "delta"), BROKEN)
def test_their_sound_twins_keep_what_they_state(mechanism: Any, delta: float) -> None:
    sound = type(mechanism).__mro__[1]
    twin = sound(**{field.name: getattr(mechanism, field.name) for field in fields(mechanism) if field.init})
    exact = nz.exact_epsilon(twin, delta=delta)
    assert exact <= twin.guarantee.epsilon * (1 + 1e-6)
    assert type(exact) is float


class SlightlyEasy(nz.TensorGaussian):
    """Noise for neighbours of which nobody here knows the worst: signs are tried one at a time."""


class Inner(nz.Duchi):
    """A scalar mechanism of somebody else."""


def test_the_type_says_that_a_class_from_elsewhere_was_searched_only() -> None:
    """No proof of this library is about it: what it inherits may rest on what it changed."""
    for foreign in (SlightlyEasy(nz.TensorDomain((2, 3)), 1.0, DELTA), Inner(1.0)):
        for value in (
            nz.exact_epsilon(foreign, delta=DELTA),
            nz.exact_epsilon(foreign) if foreign.guarantee.delta == 0 else AtLeast(1.0),
            nz.exact_delta(foreign, 0.5),
        ):
            assert isinstance(value, AtLeast)
            assert repr(value).startswith("at least ")
            assert json.loads(json.dumps(value)) == value
            assert isinstance(pickle.loads(pickle.dumps(value)), AtLeast)
    assert type(nz.exact_epsilon(nz.TensorGaussian(nz.TensorDomain((2, 3)), 1.0, DELTA), delta=DELTA)) is float
    assert type(nz.exact_epsilon(nz.Duchi(1.0))) is float


class Foreign(nz.GeneralizedRandomizedResponse):
    """Somebody else's randomised response over few categories."""


def test_all_pairs_of_a_few_categories_need_no_proof() -> None:
    assert type(nz.exact_epsilon(Foreign(1.0, nz.Categorical(5)), delta=1e-3)) is float
    assert type(nz.exact_epsilon(Foreign(1.0, nz.Categorical(500)), delta=1e-3)) is AtLeast


def test_a_class_does_not_become_the_librarys_by_saying_so() -> None:
    for module in ("noisette.mechanisms.scalar.duchi", "builtins", "abc"):
        Claimed = type("Duchi", (nz.Duchi,), {"__module__": module})
        assert type(nz.exact_epsilon(Claimed(1.0))) is AtLeast


def test_infinity_needs_no_proof() -> None:
    class Gaussian(nz.Gaussian):
        """Noise for which no epsilon holds without a delta."""

    assert type(nz.exact_epsilon(Gaussian(1.0, DELTA))) is float


@dataclass(frozen=True)
class Leaky(nz.SymmetricUnaryEncoding):
    """The last category's bit is kept more often, and the likelihood says so."""

    def log_prob(self, report: Any, x: Any) -> Any:
        logs = super().log_prob(report, x)
        last = self.domain.size - 1
        bits, codes = np.broadcast_arrays(np.asarray(report)[..., last], np.asarray(x))
        usual = np.where(bits > 0, self.p_own, 1 - self.p_own)
        return np.where(codes == last, logs - np.log(usual) + np.log(np.where(bits > 0, 0.99, 0.01)), logs)


def test_reports_show_what_cannot_be_cut() -> None:
    with pytest.raises(NotWorst, match="show a delta of"):
        nz.exact_epsilon(Leaky(1.0, nz.Categorical(6)), delta=1e-3)
