"""What the noise does to training, step by step: its efficiency, and the errors of direction and magnitude.

All of it is computed from gradients without noise. It is for analysis, and no guarantee covers it.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import nn

from noisette import _random, _validate
from noisette._random import Rng
from noisette._validate import FloatArray
from noisette.sgd.clipping import Sums, added_up, copied
from noisette.sgd.noise.perturbation import full_name
from noisette.sgd.private import Private
from noisette.sgd.recording.layers import Part
from noisette.sgd.theory.steps import (
    EfficiencyDifference,
    GradientErrors,
    Noise,
    efficiency_difference,
    expected_efficiency_difference,
    measured,
    predicted,
)


@dataclass(frozen=True)
class Step:
    """The efficiency difference of a step (Theorem 6): of the one that was made, and over all noise.

    Without an optimum item B is NaN.
    """

    step: int
    made: EfficiencyDifference
    expected: EfficiencyDifference


@dataclass(frozen=True)
class Comparison:
    """Errors of the noise at one step, from its law and from draws of it; the same of the efficiency difference."""

    step: int
    predicted: GradientErrors
    measured: GradientErrors
    expected: EfficiencyDifference
    efficiency: EfficiencyDifference
    efficiency_errors: tuple[float, float]


class Observer:
    """Watches a private run and analyses its noise against the clipped mean gradient of each batch.

    At every step it notes the efficiency difference that the noise made, eta^2 (|g~|^2 - |g|^2) + 2 eta <g~ - g, w* -
    w>, beside its expectation; ``optimum`` is a model of the same shape whose weights are w*. At every ``every``-th
    step it predicts the errors of direction and magnitude from the law of the noise, and measures them on ``draws``
    releases of the same sum with noise of its own; the noise of the training stays as it was. For noise that is
    correlated within a tensor the error of the angles is predicted by draws, and has a standard error. Where GeoDP's
    entries are too small for a float, as in models of thousands of weights with a small beta, it is NaN.

    Duan 2024, Theorem 6, Corollaries 1 and 2. The results are not private.

    >>> from torch.utils.data import DataLoader, TensorDataset
    >>> from noisette import sgd
    >>> model = torch.nn.Linear(4, 1)
    >>> loader = DataLoader(TensorDataset(torch.randn(100, 4), torch.randn(100, 1)), batch_size=50)
    >>> private = sgd.make_private(
    ...     model, torch.optim.SGD(model.parameters(), lr=0.1), loader, target=(3.0, 1e-5), epochs=1, rng=1
    ... )
    >>> observer = Observer(private, optimum=torch.nn.Linear(4, 1), rng=2)
    >>> for inputs, targets in private.loader:
    ...     private.optimizer.zero_grad()
    ...     torch.nn.functional.mse_loss(model(inputs), targets).backward()
    ...     private.optimizer.step()
    >>> [step.step for step in observer.steps], len(observer.comparisons)
    ([1, 2], 2)
    """

    def __init__(
        self, private: Private, *, optimum: nn.Module | None = None, every: int = 1, draws: int = 30, rng: Rng = None
    ) -> None:
        self.every = _validate.integer(every, "every", low=1)
        self.draws = _validate.integer(draws, "draws", low=2)
        if private.loader.ranks.size > 1:
            raise ValueError("Expected one process: no process of several has seen all gradients of a batch.")
        self.steps: list[Step] = []
        self.comparisons: list[Comparison] = []
        self._optimizer, self._rng = private.optimizer, _random.generator(rng)
        self._clean: Sums | None = None
        self._optimum = None if optimum is None else self._weights(dict(optimum.named_parameters()))
        self._optimizer.watcher = self

    def remove(self) -> None:
        """Watch no longer."""
        self._optimizer.watcher = None

    def collect(self, parts: Mapping[str, Part], scale: float) -> None:
        """Add up clipped gradients where the run itself adds up something else."""
        if self._optimizer.perturb.sums_gradients:
            return
        rule = copy.copy(self._optimizer.clip)  # one that counts must not count twice
        self._clean = added_up(self._clean, rule.total(parts, scale))

    def release(self, sums: Sums, released: Sums, multiplier: float) -> None:
        """Analyse the step that is about to be made."""
        run, expected = self._optimizer, self._optimizer.loader.expected_batch
        gradient = self._flat(sums if self._clean is None else self._clean) / expected
        self._clean = None
        law = run.perturb.law(sums, run.clip, multiplier, expected)
        step, rate = run.steps, float(run.param_groups[0]["lr"])
        made, mean = self._made(self._flat(released), gradient, rate), self._mean(law, gradient, rate)
        self.steps.append(Step(step, made, mean))
        if (len(self.steps) - 1) % self.every == 0:
            rows = np.stack(
                [
                    self._flat(run.perturb.release(copied(sums), run.clip, multiplier, expected, self._rng))
                    for _ in range(self.draws)
                ]
            )
            self.comparisons.append(self._compared(step, law, rows, gradient, rate))

    def _compared(self, step: int, law: Noise, rows: FloatArray, gradient: FloatArray, rate: float) -> Comparison:
        """Compare draws of the noise with its law."""
        moved = rows - gradient
        gap = np.full_like(gradient, math.nan) if self._optimum is None else self._optimum - self._weights()
        # as in `efficiency_difference`, for all rows at once
        longer = np.einsum("rd,rd->r", moved, rows + gradient)
        items = np.stack([rate**2 * longer, 2 * rate * moved @ gap], axis=1)
        errors = items.std(axis=0, ddof=1) / math.sqrt(len(items))
        said, found = predicted(law, gradient), measured(rows, gradient)
        if not rows[:, -1].all():  # products of sines that no float can hold: the angles behind them are gone
            said, found = replace(said, direction=math.nan), replace(found, direction=math.nan)
        return Comparison(
            step,
            said,
            found,
            self._mean(law, gradient, rate),
            EfficiencyDifference(*map(float, items.mean(axis=0))),
            (float(errors[0]), float(errors[1])),
        )

    def _made(self, noisy: FloatArray, gradient: FloatArray, rate: float) -> EfficiencyDifference:
        return self._known(rate and efficiency_difference(noisy, gradient, *self._ends(), learning_rate=rate))

    def _mean(self, law: Noise, gradient: FloatArray, rate: float) -> EfficiencyDifference:
        return self._known(rate and expected_efficiency_difference(law, gradient, *self._ends(), learning_rate=rate))

    def _ends(self) -> tuple[FloatArray, FloatArray]:
        """Return the weights and the optimum, or the weights again where there is none."""
        weights = self._weights()
        return weights, weights if self._optimum is None else self._optimum

    def _known(self, difference: EfficiencyDifference | float) -> EfficiencyDifference:
        """Return a difference, none for a learning rate of 0, without item B where there is no optimum."""
        made = difference if isinstance(difference, EfficiencyDifference) else EfficiencyDifference(0.0, 0.0)
        return made if self._optimum is not None else EfficiencyDifference(made.item_a, math.nan)

    def _flat(self, sums: Sums) -> FloatArray:
        """Return gradients as one row."""
        rows = [sums[layer][own].flatten().double() for layer, own, _ in self._optimizer.recorder.parameters()]
        return np.asarray(torch.cat(rows).numpy())

    def _weights(self, others: Mapping[str, nn.Parameter] | None = None) -> FloatArray:
        """Return the trained parameters as one row, or those of the same names among others."""
        rows = []
        for layer, own, parameter in self._optimizer.recorder.parameters():
            name = full_name(layer, own)
            if others is not None and (name not in others or others[name].shape != parameter.shape):
                raise ValueError(f"Expected optimum to be a model like the one in training; it has no such {name!r}.")
            rows.append((parameter if others is None else others[name]).detach().flatten().double())
        return np.asarray(torch.cat(rows).numpy())

    def record(self) -> dict[str, Any]:
        """Return everything that was seen, in plain numbers for JSON."""
        return {
            "private": False,
            "every": self.every,
            "draws": self.draws,
            "steps": [_plain(asdict(step)) for step in self.steps],
            "comparisons": [_plain(asdict(comparison)) for comparison in self.comparisons],
        }


def _plain(value: Any) -> Any:
    """Return None for what is not a number, which JSON does not know."""
    if isinstance(value, dict):
        return {key: _plain(entry) for key, entry in value.items()}
    if isinstance(value, tuple):
        return [_plain(entry) for entry in value]
    return None if isinstance(value, float) and math.isnan(value) else value
