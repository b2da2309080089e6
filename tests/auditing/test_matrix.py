"""The exact matrix of graded mechanisms: what inputs of each level give away against each other level."""

from __future__ import annotations

import math
from itertools import pairwise, product
from typing import Any

import numpy as np
import pytest

import noisette as nz

EDGES, EPSILONS = (-1.0, -0.6, 0.0, 1.0), (3.0, 2.0, 1.0)
GRADED = [name for name, cls in nz.CATALOGUE.items() if cls.capabilities.levels]


def by_formula() -> np.ndarray:
    """Enumerate the pairs (level, sign) of LevelledResponse as the paper prints their chances."""
    ends = list(pairwise(EDGES))
    size = len(EPSILONS)

    def chance(level: int, x: float, told: int, sign: int) -> float:
        grown = math.exp(EPSILONS[level])
        kept = (grown if told == level else 1.0) / (grown + size - 1)
        return kept * (1 + sign * x * math.tanh(EPSILONS[told] / 2)) / 2

    matrix = np.zeros((size, size))
    for i, j in product(range(size), repeat=2):
        for x, y, told, sign in product(ends[i], ends[j], range(size), (-1, 1)):
            ratio = chance(i, x, told, sign) / chance(j, y, told, sign)
            matrix[i, j] = max(matrix[i, j], math.log(ratio))
    return matrix


def test_pairs_of_level_and_sign_against_the_formula() -> None:
    matrix = nz.exact_matrix(nz.LevelledResponse(EDGES, EPSILONS))
    assert np.asarray(matrix) == pytest.approx(by_formula(), rel=1e-9)
    assert matrix[0][2] != pytest.approx(matrix[2][0], rel=0.01), "the two directions differ"


def test_the_published_claim_would_be_refuted() -> None:
    """The twin: max(e_i, e_j), which counts the level but not the sign, is below the truth."""
    matrix = nz.exact_matrix(nz.LevelledResponse(EDGES, EPSILONS))
    assert all(matrix[i][j] > 1.1 * max(EPSILONS[i], EPSILONS[j]) for i, j in ((0, 2), (2, 0), (2, 2)))


def test_users_who_choose_their_level_may_pair_it_with_any_value() -> None:
    chosen = nz.exact_matrix(nz.LevelledResponse(EDGES, EPSILONS, personalised=True))
    cut = nz.exact_matrix(nz.LevelledResponse(EDGES, EPSILONS))
    assert np.all(np.asarray(chosen) >= np.asarray(cut))
    assert chosen[0][0] > cut[0][0] + 0.1


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [0.5, 3.0])
@pytest.mark.parametrize("name", GRADED)
def test_every_graded_mechanism_states_its_exact_matrix(name: str, epsilon: float) -> None:
    mechanism = nz.CATALOGUE[name].example(epsilon)
    stated, delta = mechanism.guarantee.matrix, mechanism.guarantee.delta
    found = nz.exact_matrix(mechanism, delta=delta)
    assert np.asarray(found) == pytest.approx(np.asarray(stated), rel=1e-5, abs=1e-9)
    assert max(map(max, found)) == pytest.approx(nz.exact_epsilon(mechanism, delta=delta), rel=1e-9)


def test_a_delta_lowers_the_entries() -> None:
    mechanism = nz.LevelledResponse(EDGES, EPSILONS)
    pure, loose = (np.asarray(nz.exact_matrix(mechanism, delta=delta)) for delta in (0.0, 0.05))
    assert np.all(loose < pure)


class Leaking(nz.LevelledResponse):
    """Reports of the first level always name it: what the other levels send besides, it never sends."""

    def log_prob(self, report: Any, x: Any) -> np.ndarray:
        level = np.searchsorted(self.edges[1:-1], np.asarray(x), side="right")
        surely = np.where(np.asarray(report)[..., 0] == 0, -np.log(self._chances[0, 0]), -np.inf)
        return super().log_prob(report, x) + np.where(level == 0, surely, 0.0)


def test_what_only_one_level_sends_is_infinite_in_one_direction() -> None:
    mechanism = Leaking(EDGES, EPSILONS)
    matrix = nz.exact_matrix(mechanism)
    assert [entry == math.inf for entry in matrix[0]] == [False, False, False]
    assert [row[0] == math.inf for row in matrix] == [False, True, True]
    assert np.asarray(mechanism.guarantee.matrix).max() < math.inf


def test_a_mechanism_without_levels_is_refused() -> None:
    with pytest.raises(TypeError, match="Expected a mechanism with levels, got Duchi"):
        nz.exact_matrix(nz.Duchi(1.0))
