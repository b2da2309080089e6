"""Gradients against finite differences of the losses they claim to belong to."""

from typing import Any

import numpy as np
import pytest

from noisette import Categorical, Interval
from noisette.regression import Design, Model, Training
from noisette.regression.losses import Logistic, Squared

DESIGN = Design((Interval(), Interval(), Categorical(3)))
ROWS = DESIGN.encode(
    np.column_stack([np.random.default_rng(0).uniform(-1, 1, (40, 2)), np.random.default_rng(1).integers(0, 3, 40)])
)


def _finite_differences(loss: Any, weights: Any, rows: Any, target: Any, width: float = 1e-6) -> Any:
    """Return the gradient of each user's loss by central differences."""
    result = np.empty(rows.shape)
    for column in range(rows.shape[1]):
        step = np.zeros(rows.shape[1])
        step[column] = width
        ahead, behind = (loss.value(rows @ (weights + sign * step), target) for sign in (1, -1))
        result[:, column] = (ahead - behind) / (2 * width)
    return result


@pytest.mark.parametrize("scale", [0.1, 1.0, 10.0])
@pytest.mark.parametrize("kind", ["squared", "logistic"])
def test_gradients_are_those_of_the_loss(kind: str, scale: float) -> None:
    rng = np.random.default_rng(2)
    weights = rng.normal(0, scale, DESIGN.width)
    target = rng.uniform(-1, 1, 40) if kind == "squared" else rng.integers(0, 2, 40).astype(float)
    training = Training(DESIGN, Interval() if kind == "squared" else Categorical(2), 1.0)
    gradients = training.gradients(Model(weights, weights), ROWS, target)
    expected = _finite_differences(training.loss, weights, ROWS, target)
    assert gradients == pytest.approx(expected, abs=1e-8)
    assert np.abs(gradients).max() <= training.loss.bound * (1 + 1e-12)
    assert np.linalg.norm(gradients, axis=1).max() <= training.loss.bound * DESIGN.radius * (1 + 1e-12)


def test_a_gradient_clipped_entry_by_entry_is_told_apart() -> None:
    """The twin: clipping entries of the squared loss's gradient, as the paper does, is no gradient of Huber's loss."""
    rng = np.random.default_rng(2)
    weights, target = rng.normal(0, 10, DESIGN.width), rng.uniform(-1, 1, 40)
    entrywise = np.clip((ROWS @ weights - target)[:, None] * ROWS, -1, 1)
    assert np.abs(entrywise - _finite_differences(Squared(), weights, ROWS, target)).max() > 0.1


def test_huber_is_squared_within_the_bound() -> None:
    score, target = np.linspace(-1, 1, 9), np.zeros(9)
    assert Squared(1.0).value(score, target) == pytest.approx(score**2 / 2)
    assert Squared(0.5).value(np.asarray([2.0]), np.zeros(1)) == pytest.approx(0.5 * 2 - 0.125)


def test_logistic_at_extreme_scores() -> None:
    score = np.asarray([-1e3, 1e3])
    assert Logistic().slope(score, np.asarray([0.0, 0.0])).tolist() == [0.0, 1.0]
    assert Logistic().value(score, np.asarray([1.0, 1.0])).tolist() == [1e3, 0.0]
    assert Logistic().value(np.asarray([0.0, 0.5]), np.asarray([1.0, 0.0])) == pytest.approx(
        [np.log(2), np.log(1 + np.exp(0.5))]
    )


@pytest.mark.parametrize("bound", [0.0, -1.0, np.inf, np.nan])
def test_bad_bound(bound: float) -> None:
    with pytest.raises(ValueError, match="bound"):
        Training(DESIGN, Interval(), 1.0, bound=bound)
