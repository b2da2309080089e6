"""The whole profile of a mechanism, epsilon against delta, is the one that its own reports show.

Between any two categories, and between the ends of an interval, the exact delta is the mean of (1 - exp(epsilon -
loss))_+ over reports: seen and computed may differ by 5.5 standard errors, a false alarm below 4e-8 each.
"""

from __future__ import annotations

import numpy as np
import pytest

import noisette as nz

CATEGORICAL = [name for name, cls in sorted(nz.CATALOGUE.items()) if nz.Categorical in cls.capabilities.domains]
SCALAR = ["discrete-gaussian", "discrete-laplace", "duchi", "gaussian", "laplace", "piecewise", "square-wave"]
REPORTS = 100_000


def excess(mechanism: nz.Mechanism, first: float, second: float, epsilon: float) -> np.ndarray:
    """Return (1 - exp(epsilon - loss))_+ of reports about the first value beside the second."""
    reports = mechanism.privatize(np.full(REPORTS, first), rng=11)
    loss = mechanism.log_prob(reports, np.asarray([first])) - mechanism.log_prob(reports, np.asarray([second]))
    return -np.expm1(np.minimum(epsilon - loss, 0.0))


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.0, 0.4, 0.8])
@pytest.mark.parametrize("name", CATEGORICAL + SCALAR)
def test_delta_is_what_reports_show(name: str, share: float) -> None:
    mechanism = nz.CATALOGUE[name].example(2.0)
    epsilon = share * mechanism.guarantee.epsilon
    ends = (0, 1) if name in CATEGORICAL else (mechanism.domain.low, mechanism.domain.high)
    exact = nz.exact_delta(mechanism, epsilon)
    seen = [excess(mechanism, *pair, epsilon) for pair in (ends, ends[::-1])]
    means = [float(one.mean()) for one in seen]
    error = max(float(one.std()) for one in seen) / np.sqrt(REPORTS)
    assert abs(max(means) - exact) < 5.5 * error + 1e-9
    assert exact > 0


def test_all_mechanisms_for_categories_are_looked_at() -> None:
    assert len(CATEGORICAL) >= 8
