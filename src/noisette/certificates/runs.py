"""What a certificate needs of a run of many releases: training steps of one machine, rounds of a federation."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

from noisette import _validate
from noisette.accounting import compose
from noisette.core import EventDeclared, GaussianEvent
from noisette.guarantees import Guarantee, gaussian_epsilon

_ORDERS = (*range(2, 33), 40, 48, 64, 96, 128, 192, 256)  # of Renyi divergences that are tried
_NARROWEST = 2.5  # steps of discrete noise that the verifier takes for real noise; it asks for more than 2


@dataclass(frozen=True)
class Examples:
    """Any examples, each clipped before it is summed."""

    def spec(self) -> dict[str, Any]:
        """Return a JSON description."""
        return {"kind": "examples"}


@dataclass(frozen=True)
class TrainingRun:
    """Steps of private SGD: every step sums clipped examples that are drawn by chance, and adds Gaussian noise.

    ``multiplier`` is the noise in clipping norms, as the accountant of the run has it, the cost of rounding included.

    *Guarantee*: (epsilon, delta) for one example, central model, relation add-remove, by Renyi divergences of whole
    orders, which the verifier recomputes with fractions. It is a little above what privacy loss distributions give.
    Mironov, Talwar, Zhang 2019, Section 3.3; Canonne, Kamath, Steinke 2020, Proposition 12.

    >>> run = TrainingRun(multiplier=1.0, sampling_prob=0.01, steps=1000, delta=1e-5)
    >>> round(run.guarantee.epsilon, 2)
    2.11
    """

    multiplier: float
    sampling_prob: float
    steps: int
    delta: float
    name = "the training run"
    uncertified = ""

    def __post_init__(self) -> None:
        _validate.positive(self.multiplier, "multiplier")
        _validate.integer(self.steps, "steps", low=1)
        _validate.delta(self.delta, positive=True)
        if not 0 < self.sampling_prob <= 1:
            raise ValueError(f"Expected 0 < sampling_prob={self.sampling_prob!r} <= 1.")

    @property
    def domain(self) -> Examples:
        """What is trained on."""
        return Examples()

    @cached_property
    def _best(self) -> tuple[float, int]:
        return min((self._epsilon(order), order) for order in _ORDERS)

    def _epsilon(self, order: int) -> float:
        """Return epsilon at delta by the divergence of one order."""
        q = self.sampling_prob
        logs = [
            math.lgamma(order + 1) - math.lgamma(k + 1) - math.lgamma(order - k + 1) + k * math.log(q)
            + ((order - k) * math.log1p(-q) if k < order else 0.0) + k * (k - 1) / (2 * self.multiplier**2)
            for k in range(order + 1)
            if q < 1 or k == order
        ]  # fmt: skip
        top = max(logs)
        growth = top + math.log(math.fsum(math.exp(log - top) for log in logs))
        slack = order * math.log1p(-1 / order) - math.log(order - 1) - math.log(self.delta)
        return (self.steps * growth + slack) / (order - 1)

    @property
    def guarantee(self) -> Guarantee:
        """Return what the verifier proves, a little above the float."""
        epsilon = max(self._best[0], 1e-9) * (1 + 1e-9) + 1e-9
        return Guarantee(epsilon, self.delta, unit="example", model="central", relation="add-remove")

    def written_law(self) -> dict[str, Any]:
        """Return the steps, and the order at which they are proved."""
        sampled = {"sampling": float(self.sampling_prob), "noise": float(self.multiplier), "order": self._best[1]}
        return {"kind": "steps", "times": self.steps} | sampled

    def spec(self) -> dict[str, Any]:
        """Return a JSON description."""
        own = {"multiplier": self.multiplier, "sampling_prob": self.sampling_prob, "steps": self.steps}
        return {"run": "training"} | own | {"delta": self.delta, "domain": self.domain.spec()}


@dataclass(frozen=True)
class FederatedRun:
    """Rounds in which a client answers by the same mechanism, about her own update each time.

    *Guarantee*: for all rounds together: epsilons add up, and so do the squares of the mu of Gaussian noise.
    Dwork, Roth 2014, Theorem 3.16; Dong, Roth, Su 2022, Corollary 3.3.

    >>> from noisette import DuchiBox
    >>> FederatedRun(DuchiBox(epsilon=0.5, dims=4), rounds=8).guarantee.epsilon
    4.0
    """

    mechanism: Any
    rounds: int
    delta: float = 0.0
    name = "the federated run"

    def __post_init__(self) -> None:
        _validate.integer(self.rounds, "rounds", low=1)

    @property
    def domain(self) -> Any:
        """What one update is."""
        return self.mechanism.domain

    @property
    def uncertified(self) -> str:
        """Why there is no certificate."""
        if self.mechanism.written_law() is None:
            return str(self.mechanism.uncertified)
        return f"with a delta the verifier adds up Gaussian noise above {_NARROWEST:g} steps of its lattice only"

    @cached_property
    def guarantee(self) -> Guarantee:
        """Return what all rounds cost a client."""
        stated: Guarantee = self.mechanism.guarantee
        if stated.delta == 0:
            total = Fraction(stated.epsilon) * self.rounds
            epsilon = float(total)
            return Guarantee(epsilon if Fraction(epsilon) >= total else math.nextafter(epsilon, math.inf))
        delta = self.delta or stated.delta
        mu = self._mu
        if mu is None:  # no Gaussian law: no certificate, and what the accountant says
            return compose(self.mechanism, times=self.rounds, delta=delta)
        return Guarantee(gaussian_epsilon(mu * math.sqrt(self.rounds), delta) * (1 + 1e-9) + 1e-12, delta)

    @property
    def _mu(self) -> float | None:
        """The mu of one answer, as the verifier has it; None for noise that it does not take for Gaussian."""
        event = self.mechanism.privacy_event() if isinstance(self.mechanism, EventDeclared) else None
        return float(event.mu) if isinstance(event, GaussianEvent) else _discrete_mu(self.mechanism.written_law() or {})

    def written_law(self) -> dict[str, Any] | None:
        """Return the mechanism's law, and how often it answers."""
        law = self.mechanism.written_law()
        if law is None or (self.mechanism.guarantee.delta > 0 and self._mu is None):
            return None
        return {"kind": "rounds", "times": self.rounds, "part": law}

    def spec(self) -> dict[str, Any]:
        """Return a JSON description."""
        own = {"mechanism": self.mechanism.spec(), "rounds": self.rounds, "delta": self.delta}
        return {"run": "federated"} | own | {"domain": self.domain.spec()}


def _discrete_mu(law: dict[str, Any]) -> float | None:
    """Return the mu of discrete Gaussian noise on one number, or on several of them that are answered.

    Noise of variance s^2 is real noise of s^2 - 4 rounded at random, but for a chance of 2^-100 (Peikert 2010,
    Theorem 3.1).
    """
    if law.get("kind") == "sampled":
        one = _discrete_mu(law["part"])
        return None if one is None else one * math.sqrt(law["report"])
    sigma = law.get("noise", {}).get("sigma", 0.0)
    return law["steps"] / math.sqrt(sigma**2 - 4) if sigma > _NARROWEST else None


def run_from_spec(spec: dict[str, Any]) -> TrainingRun | FederatedRun:
    """Return the run that a certificate describes."""
    from noisette.mechanisms import from_spec

    if spec["run"] == "federated":
        return FederatedRun(from_spec(spec["mechanism"]), spec["rounds"], spec["delta"])
    return TrainingRun(spec["multiplier"], spec["sampling_prob"], spec["steps"], spec["delta"])
