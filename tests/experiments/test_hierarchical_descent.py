"""The paper's regression against a transcription of its steps, user by user."""

from __future__ import annotations

import math

import numpy as np
import pytest
from experiments.hierarchical import descent
from experiments.hierarchical.descent import Table, descend, group_size, hierarchical, plain

import noisette as nz
from noisette.mechanisms.graded.estimation import pool_signs

EDGES = (-1.0, -0.6, -0.2, 0.2, 0.6, 1.0)


class Exact:
    """A mechanism without noise that remembers what it was told."""

    def __init__(self):
        self.told = []

    def privatize(self, values, rng):
        self.told.append(np.array(values))
        return values


def users(count, width=3, seed=1):
    rng = np.random.default_rng(seed)
    rows = rng.uniform(-1, 1, (count, width)).astype(np.float32)
    rows[:, 0] = 1.0
    levels = rng.integers(0, 5, (count, width)).astype(np.int8)
    return Table(rows, levels, rng.uniform(-1, 1, count))


def test_steps_of_the_paper():
    e = 0.5
    group = math.ceil(3 * math.log(3) / e**2)
    assert group_size(3, e) == group == 14
    table = users(3 * group + 5)
    found = descend(table, plain(Exact()), e, np.random.default_rng(7))
    rng, weights = np.random.default_rng(7), np.zeros(3)
    for t in (1, 2, 3):  # the five users who are left over do not make a group
        chosen = rng.integers(0, 3, group)
        reported = {0: [], 1: [], 2: []}
        for place in range(group):
            user = (t - 1) * group + place
            x, y = table.rows[user].astype(float), table.target[user]
            gradient = 2 * (weights @ x - y) * x + 1e-4 * weights
            reported[int(chosen[place])].append(min(1.0, max(-1.0, gradient[chosen[place]])))
        mean = np.asarray([np.mean(own) if own else 0.0 for own in reported.values()])
        weights = weights - mean / math.sqrt(t)
    assert found == pytest.approx(weights, abs=1e-6)
    assert np.abs(weights).max() > 0.1


def test_components_are_clipped_not_the_residual():
    table = users(200)
    far = Table(table.rows, table.levels, np.full(200, -1.0))
    mechanism = Exact()
    descend(far, plain(mechanism), 0.5, np.random.default_rng(1))
    told = np.concatenate(mechanism.told)
    assert np.abs(told).max() == 1.0
    # 2 * (0 + 1) * x with x uniform: half of the components are cut, where a residual clipped to 1 would leave none
    first = mechanism.told[0]
    assert (np.abs(first) == 1.0).mean() > 0.4


def pooled_by_hand(signs, p, mu, rng):
    """Algorithm 5, steps 3 to 6, with each sign flipped on its own; levels have falling budgets."""
    k = len(p)
    merged = [[] for _ in range(k)]
    for i in range(k):
        copies = 1
        for j in range(i + 1, min(k, i + mu)):
            stay = (p[i] + p[j] - 1) / (2 * p[i] - 1)
            merged[j] += [s if rng.random() < stay else -s for s in signs[i]]
            copies += 1
        merged[i] += signs[i] * (1 + mu - copies)
    total = 0.0
    for own, keep in zip(merged, p, strict=True):
        n = len(own)
        n1, n2 = own.count(1), own.count(-1)
        plus, minus = (keep * n - n2) / (2 * keep - 1), (keep * n - n1) / (2 * keep - 1)
        total += min(max(plus, 0), n) - min(max(minus, 0), n)
    return total


@pytest.mark.slow
def test_pools_of_algorithm_5():
    p = np.exp([2.5, 2.0, 1.5, 1.0, 0.5]) / (1 + np.exp([2.5, 2.0, 1.5, 1.0, 0.5]))
    rng = np.random.default_rng(3)
    signs = [rng.choice([-1, 1], size).tolist() for size in (9, 4, 0, 12, 6)]
    counts = np.asarray([[own.count(-1), own.count(1)] for own in signs])
    for mu in (1, 2, 4):
        runs = 4000
        ours = pool_signs(np.broadcast_to(counts, (runs, 5, 2)), p, mu, rng=4).sum(axis=1)
        by_hand = np.asarray([pooled_by_hand(signs, p, mu, rng) for _ in range(runs if mu > 1 else 1)])
        gap = abs(ours.mean() - by_hand.mean())
        assert gap <= 5 * math.sqrt(ours.var() / runs + by_hand.var() / len(by_hand)) + 1e-12  # false alarm 1e-6
        if mu == 1:
            assert ours.std() < 1e-12
        else:
            assert ours.std() == pytest.approx(by_hand.std(), rel=0.1)


def test_hierarchical_means_are_hiera_of_each_component():
    budgets = (2.5, 2.0, 1.5, 1.0, 0.5)
    mechanism = nz.LevelledResponse(EDGES, budgets, personalised=True)
    rng = np.random.default_rng(5)
    chosen, levels = rng.integers(0, 2, 60_000), rng.integers(0, 5, 60_000)
    values = np.where(chosen == 0, 0.5, -0.25)
    for reuse in (1, 2):
        found = hierarchical(mechanism, reuse)(chosen, values, levels, 3, rng)
        assert found == pytest.approx([0.5, -0.25, 0.0], abs=0.12)
        assert found[2] == 0.0  # nobody reported it


def test_a_table_is_encoded_with_the_levels_of_its_attributes():
    from experiments.hierarchical.regression_data import design

    signed = design("signed")
    attributes = np.asarray([[0, 24, 99, 1, 2, 1, 1, 0, 0, 0], [100, 0, 50, 2, 0, 2, 9, 5, 6, 9]], dtype=float)
    table = descent.table_of(signed, EDGES, attributes, np.asarray([-1.0, 0.9]))
    assert table.levels[:, 0].tolist() == [0, 4]  # the constant has the target's level
    assert table.levels[:, 1].tolist() == [0, 4]  # age, from its lowest to its highest fifth
    assert set(np.unique(table.levels[:, 6:])) == {0, 4}  # categories are there or not
