"""Audit a way of training from the outside: canaries that each have a weight to themselves.

A linear model without bias has one weight for each canary, and canary i is the i-th unit vector, ``size`` times as
long. The loss is minus the output, so that the gradient of a canary is always minus its own vector. A coin decides
which canaries take part. What training then does to weight i depends on canary i and on noise alone, so no score tells
more about canary i than the value of this weight.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from noisette import _random, _validate
from noisette._random import Rng
from noisette.auditing.membership import Attack, evaluate
from noisette.auditing.one_run import OneRun, one_run_bounds


@dataclass(frozen=True)
class TrainingAudit:
    """What canaries showed: a lower bound on epsilon, beside what was claimed."""

    lower_bound: float
    claimed: float
    delta: float
    confidence: float
    canaries: int
    attack: Attack
    found: OneRun

    def __str__(self) -> str:
        """Say what was measured, what follows, and what does not."""
        return self.found.words(self.claimed)

    @property
    def verdict(self) -> str:
        """Tell "violated" if the bound is above the claim, else "holds"."""
        return "violated" if self.lower_bound > self.claimed else "holds"


def audit_training(
    train: Callable[..., Any],
    *,
    claimed: float,
    delta: float,
    epochs: int,
    canaries: int = 2000,
    batch: int | None = None,
    size: float = 10.0,
    confidence: float = 0.99,
    rng: Rng = 0,
) -> TrainingAudit:
    """Return what one run of a training method lets an adversary know, as a lower bound on epsilon.

    ``train(model, optimizer, loader)`` returns the three that the usual loop then uses, for ``epochs`` epochs over
    batches of ``batch`` (all that take part, by default). Give your own to audit other people's code.

    *Guarantee*: for a method that is (claimed, delta)-private the verdict is "violated" with probability at most
    1 - confidence (Steinke, Nasr, Jagielski 2023).

    >>> from functools import partial
    >>> from noisette.sgd import make_private
    >>> private = partial(make_private, target=(3.0, 1e-5), epochs=4, rng=1)
    >>> audit_training(private, claimed=3.0, delta=1e-5, epochs=4, canaries=300).verdict
    'holds'
    """
    canaries = _validate.integer(canaries, "canaries", low=10)
    source = _random.generator(rng)
    inside = source.random(canaries) < 0.5
    vectors = size * torch.eye(canaries)[torch.from_numpy(np.flatnonzero(inside))]
    model = nn.Linear(canaries, 1, bias=False)
    nn.init.zeros_(model.weight)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    loader = DataLoader(TensorDataset(vectors), batch_size=batch or len(vectors))
    trained, stepping, batches = train(model, optimizer, loader)
    for _ in range(epochs):
        for (inputs,) in batches:
            stepping.zero_grad()
            (-trained(inputs)).mean().backward()
            stepping.step()
    scores = model.weight.detach().double().numpy()[0]
    found = one_run_bounds(scores, inside, delta=delta, confidence=confidence)
    attack = evaluate(scores[inside], scores[~inside], delta=delta, confidence=confidence)
    return TrainingAudit(found.epsilon, claimed, delta, confidence, canaries, attack, found)
