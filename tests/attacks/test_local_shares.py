"""What people have tried against the matrix mechanism in the local model: shares of cells that rounding inflates.

A user may hold shares of several cells that sum to 1. They are rounded before the strategy is asked; each rounded on
its own, two users could lie farther apart than two records, which is what the noise follows. A domain up to 10^8
rounded 0.5 to 1, and prefixes of 512 cells moved 1.8 times as far as was paid for.
"""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pytest

import noisette as nz


def shares(mechanism: Any, rng: np.random.Generator) -> np.ndarray:
    """Return shares just above and below the middle between two places, and others, in both orders of the cells."""
    size, rows = mechanism.size, []
    for place in (1.0, 2.0**-13, mechanism._place):
        for many in {1, 2, max(1, size // 2)}:
            whole = max(np.floor(1 / many / place - 0.5), 0.0)
            for part in (0.5, 0.4999):
                row = np.zeros(size)
                share = (whole + part) * place
                row[: min(many, int(1 / share))] = share
                row[0] += 1 - row.sum()
                rows += [row, row[::-1]] if row.min() >= 0 else []
    rows += [*np.eye(size)[[0, -1]], *rng.dirichlet(np.full(size, 0.05), 4)]
    return np.stack(rows)


@pytest.mark.parametrize("high", [1.0, 1e4, 1e8])
@pytest.mark.parametrize("workload", ["identity", "prefix"])
@pytest.mark.parametrize("size", [2, 5, 64])
def test_no_two_users_are_farther_apart_than_the_noise_is_for(high: float, workload: str, size: int) -> None:
    domain = nz.TensorDomain((size,), 0.0, high)
    mechanism = nz.MatrixMechanism(1.0, 1e-6, domain=domain, workload=workload, relation="any-pair")
    _, noise = mechanism._lattice
    asked = mechanism._rounded(shares(mechanism, np.random.default_rng(3))).reshape(-1, size)
    apart = max(float(np.linalg.norm(one - other)) for one, other in combinations(asked, 2))
    assert apart / noise <= mechanism.mu
    assert apart / noise > 0.99 * mechanism.mu  # two records are that far apart


class EachOnItsOwn(nz.MatrixMechanism):
    """Entries are rounded to whole numbers one by one, as they once were under a domain up to 10^8."""

    def _rounded(self, rows: Any) -> Any:
        step, _ = self._lattice
        return np.rint(self._strategy.ask(np.floor(rows.reshape(-1, *self.domain.dims) + 0.5)) / step)


@pytest.mark.slow
def test_check_mechanism_tries_shares() -> None:
    """Half in each of two cells, against half in each of two others: one is twice the other, after rounding."""
    broken = EachOnItsOwn(3.0, 1e-3, domain=nz.TensorDomain((4,), 0, 1), relation="any-pair")
    with pytest.raises(AssertionError, match=r"exact epsilon at least 3\.8"):
        nz.testing.check_mechanism(broken, samples=2000)
    sound = nz.MatrixMechanism(3.0, 1e-3, domain=nz.TensorDomain((4,), 0, 1), relation="any-pair")
    nz.testing.check_mechanism(sound, samples=2000)


def test_rounded_shares_are_shares() -> None:
    """Every entry moves by less than a place, and the sum is 1 to the last bit, also of sums a little off 1."""
    from noisette.mechanisms.tensor.matrix.mechanism import _shares

    rng = np.random.default_rng(5)
    rows = rng.dirichlet(np.full(50, 0.3), 2000) * (1 + rng.uniform(-1e-9, 1e-9, (2000, 1)))
    total = 1 << 26
    rounded = _shares(rows * total, total)
    assert np.all(rounded.sum(axis=1) == total)
    assert rounded.min() >= 0
    assert np.all(np.abs(rounded - rows * total) < 1)
