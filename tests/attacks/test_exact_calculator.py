"""What people have tried to get a false certificate out of exact_epsilon and exact_delta.

Exactness must follow from the domain, the neighbours and the law. Each attack leaves the law honest, takes noise away,
and bends some number that the mechanism states of itself: its sensitivity, its mu, the pair of inputs that it shows.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import fields, replace
from functools import cached_property
from typing import Any

import numpy as np
import pytest

import noisette as nz
from noisette.auditing.exact import NotALaw
from noisette.cells import Cells
from noisette.mechanisms.graded.laplace import LaplaceNoise
from noisette.mechanisms.scalar._additive import GaussianNoise
from noisette.mechanisms.tensor.gaussian.modes import Mode
from noisette.mechanisms.tensor.gaussian.neighbours import Neighbours

EPSILON, DELTA = 1.0, 1e-6
MATRIX = nz.TensorDomain((2, 3))
CORRELATED = (np.full((3, 3), 0.9) + 0.1 * np.eye(3), None)


class HalvedSensitivity(nz.TensorGaussian):
    """Neighbours are said to be half as far apart: half of the noise, and mu as before."""

    @cached_property
    def sensitivity(self) -> tuple[float, bool]:
        bound, attained = super().sensitivity
        return bound / 2, attained


class TooLittleTensorNoise(nz.TensorGaussian):
    """Noise of 0.85 of what it takes; the likelihood says so, mu does not."""

    @cached_property
    def sigma(self) -> float:
        return 0.85 * super().sigma

    @property
    def mu(self) -> float:
        return 0.85 * super().mu


class NearerNeighbours(nz.TensorGaussian):
    """The relation is read wrongly: boxes half as wide."""

    @cached_property
    def neighbours(self) -> Neighbours:
        right = super().neighbours
        return replace(right, width=right.width / 2)


class TooLittleGaussian(nz.Gaussian):
    """0.85 of the noise, with an honest likelihood."""

    @cached_property
    def _noise(self) -> GaussianNoise:
        return GaussianNoise(0.85 * super()._noise.sigma)


class ShorterDomain(nz.Gaussian):
    """Calibrated to half of the domain's diameter."""

    @cached_property
    def _noise(self) -> GaussianNoise:
        return GaussianNoise(nz.Gaussian(self.epsilon, self.delta)._noise.sigma / 2)


class TooLittleDiscrete(nz.DiscreteGaussian):
    """0.85 of the noise on a grid."""

    @cached_property
    def _noise(self) -> GaussianNoise:
        return GaussianNoise(0.85 * super()._noise.sigma)


class TooLittleMatrix(nz.MatrixMechanism):
    """0.85 of the noise of a strategy."""

    @cached_property
    def _lattice(self) -> tuple[float, float]:
        step, noise = super()._lattice
        return step, 0.85 * noise


class ShorterChange(nz.MatrixMechanism):
    """A record is said to move the strategy half as far, and the wrong cells are named."""

    @cached_property
    def _change(self) -> Any:
        change, _ = super()._change
        return change / 2, ((3,), (3,))


class TooLittleAngles(nz.AngleGaussian):
    """0.85 of the noise on magnitude and angles."""

    @cached_property
    def sigmas(self) -> Any:
        return 0.85 * super().sigmas


class ShorterMoves(nz.AngleGaussian):
    """Neighbours are said to differ half as much in their magnitude."""

    @property
    def _moves(self) -> tuple[float, float]:
        magnitude, angles = super()._moves
        return magnitude / 4, angles


class TooLittleRidge(nz.JohnsonLindenstrauss):
    """A ridge of 0.7 of what the leverage of a row asks for."""

    @property
    def ridge(self) -> float:
        return 0.7 * super().ridge


class TooLittleKept(nz.RetainOrNoise):
    """0.85 of the noise on entries."""

    @cached_property
    def _noise(self) -> Any:
        return GaussianNoise(0.85 * super()._noise.sigma)


class TooLittleGraded(nz.GradedLaplace):
    """Rates of noise 1.2 times what the budgets ask for, and the guarantee of before."""

    @cached_property
    def _noises(self) -> list[LaplaceNoise]:
        return [LaplaceNoise(1.2 * noise.rate) for noise in super()._noises]

    @cached_property
    def guarantee(self) -> nz.Guarantee:
        return nz.GradedLaplace(self.edges, self.epsilons, delta=self.delta).guarantee


class SharperWeights(nz.AdaptiveDuchi):
    """Each weight answers with 1.2 times its budget."""

    @cached_property
    def weight_epsilon(self) -> float:
        return 1.2 * super().weight_epsilon


class ForgottenComposition(nz.AngleNoise):
    """Every coordinate gets the mu of all of them."""

    @cached_property
    def _joint(self) -> Any:
        right = super()._joint
        return nz.Sampled("gaussian", 1.7 * right.epsilon, right.dims, report=right.dims, delta=right.delta)


class EasyGaussian(nz.Gaussian):
    """Too little noise, and the exact calculator is shown two inputs that are close together."""

    @cached_property
    def _noise(self) -> GaussianNoise:
        return GaussianNoise(0.5 * super()._noise.sigma)

    def dissect(self) -> Iterator[Cells]:
        yield self._cells(np.asarray([self._origin, self._origin + self._step * (self._steps // 4)]))


class EasyDuchi(nz.Duchi):
    """Twice the budget, and both witnesses and dissect show inputs near the middle."""

    @cached_property
    def _pair(self) -> Any:
        return nz.Duchi(2 * self.epsilon)._pair

    def witnesses(self) -> Any:
        return np.asarray([-0.1, 0.1]), np.asarray(self.support.values)

    def dissect(self) -> Iterator[Cells]:
        yield Cells.constant((-0.1, 0.1), np.asarray(self.support.values), np.zeros(2))


class EasyCategories(nz.GeneralizedRandomizedResponse):
    """The last category is kept too often and the likelihood says so; the witnesses are the first two."""

    def log_prob(self, report: Any, x: Any) -> Any:
        reports, codes = np.broadcast_arrays(np.asarray(report), np.asarray(x))
        last = self.domain.size - 1
        kept = np.where(reports == last, 0.8, 0.2 / last)
        return np.where(codes == last, np.log(kept), super().log_prob(reports, codes))


def tensor(cls: type[nz.TensorGaussian], **options: Any) -> nz.TensorGaussian:
    """Build tensor noise at the budget of this file."""
    return cls(MATRIX, EPSILON, DELTA, **options)


AT_A_DELTA = [
    pytest.param(tensor(HalvedSensitivity), 1.9, id="tensor-gaussian-sensitivity-halved"),
    pytest.param(
        HalvedSensitivity(nz.TensorDomain((3, 3)), EPSILON, DELTA, covariances=CORRELATED),
        1.9,
        id="tensor-gaussian-correlated-sensitivity-halved",
    ),
    pytest.param(
        HalvedSensitivity(nz.TensorBall((2, 3), 1.0), EPSILON, DELTA), 1.9, id="tensor-gaussian-ball-sensitivity-halved"
    ),
    *(
        pytest.param(tensor(HalvedSensitivity, relation=relation), 1.9, id=f"tensor-gaussian-{relation}-halved")
        for relation in ("slice:0", "fibre:1", "element", "l2:1.5", "box:0.5")
    ),
    pytest.param(tensor(TooLittleTensorNoise), 1.1, id="tensor-gaussian-085-sigma"),
    pytest.param(tensor(NearerNeighbours), 1.9, id="tensor-gaussian-relation-misread"),
    pytest.param(TooLittleGaussian(EPSILON, DELTA), 1.1, id="gaussian-085-sigma"),
    pytest.param(ShorterDomain(EPSILON, DELTA), 1.9, id="gaussian-half-the-diameter"),
    pytest.param(TooLittleDiscrete(EPSILON, DELTA), 1.1, id="discrete-gaussian-085-sigma"),
    pytest.param(
        TooLittleMatrix(EPSILON, DELTA, domain=nz.TensorDomain((4,), 0, 9), workload="prefix"),
        1.1,
        id="matrix-085-sigma",
    ),
    *(
        pytest.param(
            ShorterChange(EPSILON, DELTA, domain=nz.TensorDomain((4,), 0, 9), workload="prefix", relation=relation),
            1.9,
            id=f"matrix-change-halved-{relation}",
        )
        for relation in ("add-remove", "replace", "any-pair")
    ),
    pytest.param(TooLittleAngles(EPSILON, 3, delta=DELTA), 1.1, id="angle-gaussian-085-sigma"),
    pytest.param(ShorterMoves(EPSILON, 3, delta=DELTA), 1.9, id="angle-gaussian-shorter-moves"),
    pytest.param(ShorterMoves(EPSILON, 3, delta=DELTA, batch=8), 1.9, id="angle-gaussian-shorter-moves-of-a-batch"),
    pytest.param(
        TooLittleRidge(nz.TensorBall((4, 2), 1.0, 0), EPSILON, DELTA, projections=12), 1.1, id="jl-ridge-too-small"
    ),
    pytest.param(
        TooLittleKept(EPSILON, DELTA, domain=nz.TensorDomain((2, 2)), levels=5, noise="gaussian", unit="element"),
        1.05,
        id="retain-or-noise-085-sigma",
    ),
    pytest.param(TooLittleGraded((-1, 0, 1), (1.0, 2.0), delta=DELTA), 1.02, id="graded-laplace-sharper"),
    pytest.param(SharperWeights(4.0, 6, delta=1e-3), 1.1, id="adaptive-duchi-sharper-weights"),
    pytest.param(
        ForgottenComposition(4.0, 3, noise="gaussian", delta=DELTA), 1.1, id="angle-noise-without-composition"
    ),
]


@pytest.mark.slow
@pytest.mark.parametrize(("mechanism", "factor"), AT_A_DELTA)
def test_too_little_noise_at_a_delta_is_not_certified(mechanism: Any, factor: float) -> None:
    stated = mechanism.guarantee
    assert nz.exact_epsilon(mechanism, delta=stated.delta) > factor * stated.epsilon
    assert nz.exact_delta(mechanism, stated.epsilon) > 1.2 * stated.delta


@pytest.mark.slow
@pytest.mark.parametrize(("mechanism", "factor"), AT_A_DELTA)
def test_their_sound_twins_are_certified(mechanism: Any, factor: float) -> None:
    """The same domain, relation and budget, without the attack."""
    sound = type(mechanism).__mro__[1]
    twin = sound(**{field.name: getattr(mechanism, field.name) for field in fields(mechanism) if field.init})
    stated = twin.guarantee
    assert nz.exact_epsilon(twin, delta=stated.delta) <= stated.epsilon * (1 + 1e-9)
    assert nz.exact_delta(twin, stated.epsilon) <= stated.delta * (1 + 1e-6)


def test_an_easy_pair_in_witnesses_and_dissect_does_not_hide_a_ratio() -> None:
    assert nz.exact_epsilon(EasyDuchi(EPSILON)) == pytest.approx(2 * EPSILON, abs=1e-9)
    assert nz.exact_epsilon(EasyCategories(EPSILON, nz.Categorical(5))) > 1.5 * EPSILON


def hiding(base: Any, hidden: float) -> Any:
    """Return a class that tells its value, by a place next to it, with a chance that `dissect` does not know of.

    Its likelihood does.
    """

    class Hiding(base):  # type: ignore[misc]
        def log_prob(self, report: Any, x: Any) -> Any:
            reports, values = np.broadcast_arrays(np.asarray(report, dtype=float), np.asarray(x, dtype=float))
            usual = super().log_prob(reports, values)
            own = self.support.index(reports) == self.support.index(values) + 12345
            told = np.where(own, math.log(hidden / self.support.step), -np.inf)
            return np.logaddexp(usual + math.log1p(-hidden), told)

    return Hiding


@pytest.mark.parametrize("hidden", [3e-7, 5e-9])
def test_reports_that_the_cells_leave_out_are_missed(hidden: float) -> None:
    """They held 3 in 10 million of the mass, and what was left was taken for all of it."""
    with pytest.raises(NotALaw, match="add up to"):
        nz.exact_epsilon(hiding(nz.Laplace, hidden)(EPSILON))
    with pytest.raises(NotALaw, match="add up to"):
        nz.exact_epsilon(hiding(nz.Gaussian, hidden)(EPSILON, 1e-10), delta=1e-10)


@pytest.mark.slow
def test_rounding_of_many_entries_is_not_taken_for_missing_mass() -> None:
    for size in (10, 10_000, 300_000):
        mechanism = nz.TensorGaussian(nz.TensorDomain((size,)), EPSILON, DELTA)
        assert nz.exact_epsilon(mechanism, delta=DELTA) == pytest.approx(EPSILON, rel=1e-3)


@pytest.mark.slow
def test_a_bound_on_neighbours_that_is_too_small_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Calibration and the calculator share `Neighbours.white`; what the search finds does not come from it."""
    honest = Neighbours.white

    def half(self: Neighbours, modes: Any) -> tuple[float, bool]:
        bound, attained = honest(self, modes)
        return bound / 2, attained

    monkeypatch.setattr(Neighbours, "white", half)
    for covariances in (None, CORRELATED):
        broken = nz.TensorGaussian(nz.TensorDomain((3, 3)), EPSILON, DELTA, covariances=covariances)
        assert nz.exact_epsilon(broken, delta=DELTA) > 1.9 * EPSILON


@pytest.mark.parametrize("shape", [(3, 3), (2, 2, 3), (4, 3)])
def test_the_search_finds_what_enumeration_finds(shape: tuple[int, ...]) -> None:
    """All sign tensors, by brute force, under noise correlated along every mode."""
    from noisette.mechanisms.tensor.gaussian._farthest import farthest

    rng = np.random.default_rng(3)
    modes = []
    for size in shape:
        root = rng.standard_normal((size, size + 2))
        modes.append(Mode(size, root @ root.T))
    whole = np.ones((1, 1))
    for mode in modes:
        whole = np.kron(whole, mode.precision)
    size = math.prod(shape)
    signs = 1.0 - 2.0 * ((np.arange(1 << (size - 1))[:, None] >> np.arange(size)) & 1)
    longest = math.sqrt(float(np.einsum("ij,jk,ik->i", signs, whole, signs, optimize=True).max()))
    gap, length = farthest(nz.TensorDomain(shape, 0, 1), "any-pair", [mode.whitener for mode in modes])
    assert length == pytest.approx(longest, rel=1e-12)
    assert np.all(np.abs(gap) == 1)


class NoNumber(nz.Laplace):
    """Half of the noise; its likelihood is no number for one report in many, which hid all others from the search."""

    @property
    def _noise(self) -> Any:
        plain = super()._noise
        return replace(plain, rate=2 * plain.rate)

    def log_prob(self, report: Any, x: Any) -> Any:
        logs = super().log_prob(report, x)
        return np.where((np.asarray(report) > 0.5) & (np.asarray(report) < 0.6), np.nan, logs)

    def dissect(self) -> Any:
        return iter(())

    def witnesses(self) -> Any:
        return np.asarray([0.0, 0.2]), np.asarray([-1.0, 2.0])


def test_a_likelihood_that_is_no_number_hides_nothing() -> None:
    with pytest.raises(NotALaw, match="is no number"):
        nz.exact_epsilon(NoNumber(1.0))
