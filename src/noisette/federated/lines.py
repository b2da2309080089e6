"""What a federated run guarantees, in three lines: what is claimed, what holds, what holds behind a shuffler.

One client's update is reported in many answers, round after round, all of them about the same person. Per weight
and round means nothing to that person: the answers of all weights and rounds compose.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal, get_args

from noisette import _validate
from noisette.accounting import calibrate as calibrate_answer
from noisette.accounting import compose, gdp_mu, shuffled
from noisette.federated.channel import Channel
from noisette.federated.clipping import UpdateClip
from noisette.federated.families import family
from noisette.federated.layout import ModelLayout
from noisette.guarantees import Claim, Guarantee
from noisette.shuffler import PacketLayout, shuffled_blocks

_LARGEST_EPSILON = 30.0  # an epsilon of an answer above it hides nothing

TrustModel = Literal["local", "shuffled"]
PrivateUnit = Literal["record", "element"]


@dataclass(frozen=True)
class Lines:
    """The three lines of a run: for one client, over the rounds in which it takes part.

    The unit "record" is everything that a client says in the run; "element" is one weight over all rounds.
    ``claims_run`` says whether the claim is for the whole run or for a round.
    """

    claimed: Claim
    local: Guarantee
    shuffled: Guarantee
    rounds: int
    clients: int
    claims_run: bool = False

    @property
    def claim_holds(self) -> bool:
        """Tell whether what is claimed is true of a client with nobody trusted: for a run, or for one round of it."""
        if not math.isfinite(self.local.epsilon):
            return False
        return not self.claims_run or self.local.epsilon <= self.claimed.epsilon

    def __str__(self) -> str:
        scope = "the whole run" if self.claims_run else "a round"
        remark = "" if self.claim_holds else ", which is not what holds"
        mixed = "" if self.shuffled.epsilon < self.local.epsilon else " (a shuffler adds nothing here)"
        rounds = f"{self.rounds} round{'s' * (self.rounds > 1)}"
        return "\n".join(
            [
                f"claimed   {_budget(self.claimed)} for {scope} of a client ({self.claimed.source}){remark}",
                f"local     {self.local}: {rounds} of a client, nobody trusted",
                f"shuffled  {self.shuffled}: reports of {self.clients:,} "
                f"client{'s' * (self.clients != 1)} a round mixed{mixed}",
            ]
        )

    def spec(self) -> dict[str, Any]:
        """Return a JSON description."""
        own = {"claimed": vars(self.claimed).copy(), "rounds": self.rounds, "clients": self.clients}
        own |= {"claims_run": self.claims_run, "claim_holds": self.claim_holds}
        return own | {"local": self.local.spec(), "shuffled": self.shuffled.spec()}


def lines(
    channel: Channel,
    *,
    rounds: int,
    clients: int,
    delta: float,
    unit: PrivateUnit = "record",
    batch: int = 1,
    last_step: bool = False,
) -> Lines:
    """Return the three lines of a run through ``channel``.

    ``rounds`` are those in which one client takes part, ``clients`` those whose reports are mixed in each of them, and
    ``batch`` how many weights travel in one packet, which stay linked (`noisette.shuffler.shuffled_blocks`).
    ``last_step`` says that only the last local step was privatised: then no finite epsilon holds for the client.

    *Guarantee*: answers of all rounds are composed as they are: exactly for randomised response and Gaussian noise,
    by privacy loss distributions elsewhere. Behind a shuffler each answer is mixed with those of the other clients to
    the same question; Gaussian noise has no pure guarantee that the bounds could amplify, and keeps its local one.

    >>> from noisette.federated.clipping import Ranges
    >>> import numpy as np
    >>> channel = Channel("adaptive-duchi", ModelLayout.of(np.zeros(1000)), Ranges(0.0, 0.1), epsilon=1.0)
    >>> print(lines(channel, rounds=1, clients=1000, delta=1e-6))
    claimed   1-DP for the whole run of a client (sun2021ldpfl), which is not what holds
    local     (591.08, 1e-06)-DP, unit record, model local, relation any-pair: 1 round of a client, nobody trusted
    shuffled  (6.37336, 1e-06)-DP, unit record, model shuffled, relation replace: reports of 1,000 clients a round mixed
    """
    rounds, clients = _validate.integer(rounds, "rounds", low=1), _validate.integer(clients, "clients", low=1)
    delta = _validate.delta(delta)
    _check(unit, PrivateUnit, "unit")
    times = rounds * (channel.answers if unit == "record" else 1)
    claims_run = channel.family.able.claims_entry
    claim = channel.family.claim(channel.answer.guarantee, _local(channel.answer, channel.answers, delta))
    if last_step:
        nothing = Guarantee(math.inf, unit=unit)
        return Lines(
            claim, nothing, replace(nothing, model="shuffled"), rounds, clients, channel.family.able.claims_entry
        )
    local = replace(_local(channel.answer, times, delta), unit=unit)
    mixed = replace(_mixed(channel, times, clients, delta, local, batch if unit == "record" else 1), unit=unit)
    return Lines(claim, local, mixed, rounds, clients, claims_run)


def calibrate(
    mechanism: str,
    layout: ModelLayout,
    clip: UpdateClip,
    *,
    target_epsilon: float,
    target_delta: float = 0.0,
    unit: PrivateUnit = "record",
    model: TrustModel = "local",
    rounds: int = 1,
    clients: int = 1,
    batch: int = 1,
    options: Mapping[str, Any] | None = None,
) -> Channel:
    """Return the channel with the largest epsilon, or mu, of an answer at which a whole run meets the target.

    *Guarantee*: the line of the chosen ``model`` for ``unit`` was computed and is at most (target_epsilon,
    target_delta) over ``rounds`` rounds of one client, its reports mixed with those of ``clients`` a round if the model
    is "shuffled".

    >>> from noisette.federated.clipping import Ranges
    >>> import numpy as np
    >>> layout = ModelLayout.of(np.zeros(1000))
    >>> found = calibrate("adaptive-duchi", layout, Ranges(0.0, 0.1), target_epsilon=8.0, target_delta=1e-6)
    >>> round(found.epsilon, 4)
    0.0485
    """
    target_epsilon, target_delta = _validate.epsilon(target_epsilon, "target_epsilon"), _validate.delta(target_delta)
    _check(unit, PrivateUnit, "unit")
    _check(model, TrustModel, "model")
    rounds, clients = _validate.integer(rounds, "rounds", low=1), _validate.integer(clients, "clients", low=1)
    asked = dict(options or {})
    own = family(mechanism, asked)
    times = rounds * (own.count(layout.dims) if unit == "record" else 1)
    if own.leaves_delta:  # half of what may fail is for the answers, half for their composition
        asked.setdefault("delta", target_delta / (2 * times))
    probe = Channel(mechanism, layout, clip, options=asked, **{own.price: 1.0})
    if own.able.gaussian:  # mixing adds nothing
        target_delta = _validate.delta(target_delta, positive=True)
        mu = gdp_mu(target_epsilon, target_delta) / math.sqrt(times)
        return replace(probe, mu=mu * (1 - 1e-6))  # rounding to a lattice costs less than that
    if model == "shuffled" and unit == "record" and batch > 1 and probe.answers > 1:
        return _calibrated_by_packets(probe, target_epsilon, target_delta, rounds, clients, batch)
    found = calibrate_answer(
        lambda epsilon: probe.family.answer(clip.domain(layout), epsilon=epsilon),
        target_epsilon,
        target_delta,
        times=times,
        users=clients if model == "shuffled" else None,
    )
    return replace(probe, epsilon=float(found.epsilon))


def _calibrated_by_packets(
    probe: Channel, epsilon: float, delta: float, rounds: int, clients: int, batch: int
) -> Channel:
    """Return the channel with the largest epsilon, found by halving, at which linked packets meet the target."""
    low, high = epsilon / (probe.answers * rounds), min(epsilon, _LARGEST_EPSILON)

    def holds(answer: float) -> bool:
        found = lines(replace(probe, epsilon=answer), rounds=rounds, clients=clients, delta=delta, batch=batch)
        return found.shuffled.epsilon <= epsilon

    while high / low > 1.01:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if holds(middle) else (low, middle)
    return replace(probe, epsilon=low * (1 - 1e-9))


@lru_cache(maxsize=64)
def _local(answer: Any, times: int, delta: float) -> Guarantee:
    return compose(answer, times, delta=delta)


def _mixed(channel: Channel, times: int, clients: int, delta: float, local: Guarantee, batch: int) -> Guarantee:
    """Return what holds behind a shuffler, never more than what holds without."""
    if delta == 0 or channel.answer.guarantee.delta > 0:
        return replace(local, model="shuffled", relation="replace")
    if batch == 1 or channel.answers == 1:
        return _shuffled(channel.answer, clients, delta, times)
    packets = PacketLayout(channel.layout.dims, min(batch, channel.layout.dims))
    return shuffled_blocks(channel.answer, packets, clients=clients, delta=delta, rounds=times // channel.layout.dims)


@lru_cache(maxsize=64)
def _shuffled(answer: Any, clients: int, delta: float, times: int) -> Guarantee:
    return shuffled(answer, clients, delta, times=times)


def _budget(claim: Claim) -> str:
    return f"{claim.epsilon:g}-DP" if claim.delta == 0 else f"({claim.epsilon:g}, {claim.delta:g})-DP"


def _check(value: str, allowed: Any, name: str) -> None:
    if value not in get_args(allowed):
        raise ValueError(f"Expected {name}={value!r} to be one of {get_args(allowed)}.")
