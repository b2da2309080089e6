"""The exact epsilon: right on every mechanism of the catalogue, and able to see what is wrong."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pytest

import noisette as nz
from noisette.mechanisms.scalar._additive import LaplaceNoise

EPSILONS = (1e-6, 1e-3, 0.5, 1.0, 4.0, 12.0)


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("name", sorted(nz.CATALOGUE))
def test_no_mechanism_exceeds_what_it_states(name: str, epsilon: float) -> None:
    mechanism = nz.CATALOGUE[name].example(epsilon)
    exact = nz.exact_epsilon(mechanism)
    if mechanism.guarantee.delta > 0:
        assert exact == math.inf
        return
    assert exact <= mechanism.guarantee.epsilon * (1 + 1e-9) + 2e-14  # log-likelihoods near -40 have ulps of 7e-15
    assert exact >= 0.99 * epsilon, "the budget asked for is not used"


@pytest.mark.parametrize("epsilon", [60.0, 1000.0])
@pytest.mark.parametrize("name", sorted(nz.CATALOGUE))
def test_huge_budgets_stay_below_and_finite(name: str, epsilon: float) -> None:
    mechanism = nz.CATALOGUE[name].example(epsilon)
    exact = nz.exact_epsilon(mechanism)
    if mechanism.guarantee.delta == 0:
        assert 0 < exact <= epsilon * (1 + 1e-9)


def test_noise_of_half_the_scale_is_seen() -> None:
    @dataclass(frozen=True)
    class Halved(nz.Laplace):
        @property
        def _noise(self) -> LaplaceNoise:  # type: ignore[override]
            return LaplaceNoise(2 * self.epsilon / self._steps)

    assert nz.exact_epsilon(Halved(epsilon=1.0)) == pytest.approx(2.0, rel=1e-9)


def test_an_atom_is_seen() -> None:
    @dataclass(frozen=True)
    class Atom(nz.Laplace):
        def log_prob(self, report: object, x: object) -> np.ndarray:  # type: ignore[override]
            reports, values = np.broadcast_arrays(np.asarray(report, float), np.asarray(x, float))
            return np.where(reports == values, 0.0, -np.inf)

    assert nz.exact_epsilon(Atom(epsilon=1.0)) == math.inf
