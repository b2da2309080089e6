"""Which norm to clip to: a private histogram of the gradients' norms, paid for like steps of training."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from noisette import _validate
from noisette._validate import FloatArray
from noisette.sgd.clipping import Normed, total_squares
from noisette.sgd.private import Private

_EDGES = 2.0 ** (np.arange(-28, 29) / 2)  # public: from 6e-5 to 16384, two to a doubling
_SHOWN = (0.1, 0.25, 0.5, 0.75, 0.9)


@dataclass(frozen=True)
class Advice:
    """A norm to clip to, and what was learnt of the norms; ``rank_error`` is the standard error of the share below."""

    l2_clip_norm: float
    quantile: float
    quantiles: dict[float, float]
    rank_error: float
    steps: int


def advise_clip(
    private: Private, loss: Callable[[Any, Any], Tensor], *, quantile: float = 0.5, rounds: int = 1
) -> Advice:
    """Set the norm that gradients are clipped to, from a private quantile of the norms that they have now.

    In each of ``rounds`` rounds a Poisson sample is drawn as for a step, ``loss(model(inputs), targets)`` is
    differentiated, and the norms of the examples' gradients are counted between public edges 2^(k/2). An example adds
    one to one count, so counts with noise N(0, z^2) are as private as a step with multiplier z. The quantile is where
    an isotonic fit of (1 - quantile) x (examples below) - quantile x (examples above) crosses zero.

    *Guarantee*: each round is a step of the run's budget, in its accountant and in what is saved. Keep as many beyond
    the epochs by ``make_private(..., advice_steps=rounds)``.
    *Utility*: the share of examples below the norm errs by about z sqrt(58 / rounds) / 2 over the expected batch size,
    here ``rank_error``; within a pair of edges, a factor of 1.41 apart, norms are taken to lie evenly.

    >>> import torch
    >>> from noisette import sgd
    >>> model = torch.nn.Linear(4, 1, bias=False)
    >>> data = torch.utils.data.TensorDataset(torch.full((3000, 4), 0.5), torch.zeros(3000, 1))
    >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    >>> loader = torch.utils.data.DataLoader(data, batch_size=1000)
    >>> private = sgd.make_private(model, optimizer, loader, target=(3.0, 1e-5), epochs=1, advice_steps=1, rng=1)
    >>> advice = sgd.advise_clip(private, lambda made, _: made.mean())  # every gradient is as long as its input: 1
    >>> 0.7 < advice.l2_clip_norm < 1.5, private.optimizer.steps
    (True, 1)
    """
    quantile = _validate.number(quantile, "quantile")
    if not 0 < quantile < 1:
        raise ValueError(f"Expected quantile={quantile!r} between 0 and 1: the share of examples that keep their norm.")
    rounds = _validate.integer(rounds, "rounds", low=1)
    optimizer = private.optimizer
    rule = optimizer.clip
    if not isinstance(rule, Normed):
        raise ValueError(
            f"The rule {type(rule).__name__} has no norm to advise on. Train with clip='l2', 'psac' or 'quantile'."
        )
    counts = np.zeros(len(_EDGES) + 1)
    for _ in range(rounds):
        counts += optimizer.release_counts(lambda: _norms(private, loss), _EDGES)
    spread = optimizer.budget.multiplier * math.sqrt(rounds)
    found = {share: _crossing(counts, share) for share in sorted({*_SHOWN, quantile})}
    rule.l2_clip_norm = found[quantile]
    below = int(np.searchsorted(_EDGES, found[quantile])) + 1
    noise = spread * math.hypot(math.sqrt(below) * (1 - quantile), math.sqrt(len(counts) - below) * quantile)
    return Advice(found[quantile], quantile, found, noise / (rounds * private.loader.expected_batch), rounds)


def _norms(private: Private, loss: Callable[[Any, Any], Tensor]) -> FloatArray:
    """Return the norms of the gradients of a sample that is drawn as for a step."""
    recorder = private.optimizer.recorder
    found = []
    training = private.model.training
    private.model.train()
    for examples, (inputs, targets) in private.loader.draw():
        recorder.clear()
        with torch.enable_grad():
            loss(private.model(inputs), targets).backward()  # type: ignore[no-untyped-call]
        if recorder.examples != examples:
            raise RuntimeError(
                "Layers saw another number of rows than the sample has examples, so that a norm is not one example's. "
                "Give model and loss the batch as it is, with examples along the first axis."
            )
        found.append(total_squares(*private.optimizer.recorded()).sqrt().double().cpu().numpy())
    recorder.clear()
    private.model.train(training)
    return np.concatenate(found)


def _crossing(counts: FloatArray, quantile: float) -> float:
    """Return the norm at which noisy counts below and above are in the quantile's proportion."""
    from scipy.optimize import isotonic_regression

    below = np.cumsum(counts)[:-1]
    above = counts.sum() - below
    balance = isotonic_regression((1 - quantile) * below - quantile * above).x
    place = int(np.searchsorted(balance, 0.0))
    if place in (0, len(_EDGES)):
        return float(_EDGES[min(place, len(_EDGES) - 1)])
    low, high = balance[place - 1], balance[place]
    return float(_EDGES[place - 1] * (_EDGES[place] / _EDGES[place - 1]) ** (-low / (high - low)))
