"""Private sums of clients' updates, round after round, by a server that is trusted with the updates.

Why the noise is exact. An update is clipped to the unit ball, divided by the noise and rounded towards zero to
multiples of 2^-24: no longer than before. Sums over clients, and sums of the last rounds by whole coefficients, are
sums of integers. These sums are multiples of 2^-36 of the noise. A normal variable that is rounded down to the same
lattice is added to them, which is as private as adding the real variable. What one client adds has length at most 1 /
noise multiplier, in exact arithmetic.

Who is sampled. Clients are cut into as many groups as there are bands, by their numbers alone; round t asks group t,
each of its clients by its own coin. One band is Poisson sampling of all clients. A client then takes part in rounds
that are as far apart as there are bands, so that a block of this many rounds is one sampled Gaussian release
(Choquette-Choo et al. 2023, Theorem 4).
"""

from __future__ import annotations

import hashlib
import math
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Literal

import numpy as np

from noisette import _random, _validate
from noisette._random import Rng
from noisette._validate import FloatArray, IntArray
from noisette.accounting import noise_multiplier, sampled_gaussian
from noisette.federated.central.correlated import DENOMINATOR, BandedStrategy
from noisette.federated.clipping import Norm
from noisette.federated.layout import ModelLayout
from noisette.federated.theory import Prospect
from noisette.guarantees import Guarantee
from noisette.mechanisms.tensor.gaussian._normal import STEPS, add_noise

_FINE = STEPS / DENOMINATOR  # steps of an update in a unit of the noise
_FARTHEST = 1 << 52  # steps of the sum: farther, a float64 is no longer exact
_MOST_BANDS = 64  # that are tried: each keeps a model in memory


@dataclass(frozen=True)
class AdaptiveNorm:
    """A clipping norm that follows a quantile of the updates' lengths, privately (Andrew et al. 2021).

    After each round the norm is multiplied by exp(-rate (share - quantile)), where share is a noisy share of the
    clients whose updates were no longer than it. ``count_share`` of the budget, as a share of mu^2, goes to that count.
    """

    start: float
    quantile: float = 0.5
    rate: float = 0.2
    count_share: float = 0.01

    def __post_init__(self) -> None:
        _validate.positive(self.start, "start")
        _validate.positive(self.rate, "rate")
        for name in ("quantile", "count_share"):
            if not 0 < getattr(self, name) < 1:
                raise ValueError(f"Expected {name}={getattr(self, name)!r} between 0 and 1.")


@dataclass(frozen=True)
class CentralPlan:
    """What a run with a trusted server promises, and the noise that keeps the promise.

    ``clients`` take part in all, ``clients_per_round`` in a round, on average: each round tosses a coin for every
    client of its group. ``bands="auto"`` takes the number of bands with the least predicted error.

    *Guarantee*: (epsilon, delta) for everything that a client has, under adding or removing the client, for whoever
    sees all models. The server sees updates in the clear, and must be trusted with them.

    >>> plan = CentralPlan(epsilon=4.0, delta=1e-6, rounds=100, clients=10_000, clients_per_round=200)
    >>> print(plan.guarantee)
    (4, 1e-06)-DP, unit record, model central, relation add-remove
    >>> plan.strategy.bands, round(plan.multiplier, 2)
    (8, 1.18)
    """

    epsilon: float
    delta: float
    rounds: int
    clients: int
    clients_per_round: float
    bands: int | Literal["auto"] = "auto"

    def __post_init__(self) -> None:
        _validate.epsilon(self.epsilon)
        _validate.delta(self.delta, positive=True)
        _validate.integer(self.rounds, "rounds", low=1)
        _validate.integer(self.clients, "clients", low=1)
        per_round = _validate.positive(self.clients_per_round, "clients_per_round")
        if per_round > self.clients:
            raise ValueError(f"Expected clients_per_round={per_round:g} to be at most clients={self.clients}.")
        if self.bands != "auto" and _validate.integer(self.bands, "bands", low=1) > self._most_bands:
            raise ValueError(
                f"Expected bands={self.bands} to be at most {self._most_bands}: a group of 1 / {self.bands} of "
                f"{self.clients} clients is to bring {per_round:g} a round, in {self.rounds} rounds."
            )

    @property
    def _most_bands(self) -> int:
        return max(1, min(self.rounds, int(self.clients / self.clients_per_round)))

    @cached_property
    def strategy(self) -> BandedStrategy:
        """How noise is correlated over rounds."""
        if self.bands != "auto":
            return BandedStrategy.optimal(self.rounds, self.bands)
        tried = [1 << power for power in range(_MOST_BANDS.bit_length()) if 1 << power <= self._most_bands]
        errors = {bands: BandedStrategy.optimal(self.rounds, bands).error(self.rounds) for bands in tried}
        best = min(tried, key=lambda bands: self._multiplier(bands) ** 2 * errors[bands])
        return BandedStrategy.optimal(self.rounds, best)

    @property
    def sampling_prob(self) -> float:
        """Chance of a client of the group of a round to be asked."""
        return self._sampling(self.strategy.bands)

    def _sampling(self, bands: int) -> float:
        return min(1.0, self.clients_per_round * bands / self.clients)

    @property
    def multiplier(self) -> float:
        """Deviation of the noise over the largest length of an update along a column of the strategy."""
        return self._multiplier(self.strategy.bands)

    def _multiplier(self, bands: int) -> float:
        return _least_noise(self.epsilon, self.delta, -(-self.rounds // bands), self._sampling(bands))

    @property
    def guarantee(self) -> Guarantee:
        """What a client is promised over the whole run."""
        return Guarantee(self.epsilon, self.delta, unit="record", model="central", relation="add-remove")

    def spent(self, rounds: int) -> Guarantee:
        """Return what holds after this many rounds."""
        blocks = -(-min(rounds, self.rounds) // self.strategy.bands)
        if blocks == 0:
            return Guarantee(0.0, unit="record", model="central", relation="add-remove")
        found = sampled_gaussian(self.multiplier, self.delta, releases=blocks, sampling_prob=self.sampling_prob)
        return Guarantee(found.epsilon, self.delta, unit="record", model="central", relation="add-remove")

    def noise(self, clip: float) -> float:
        """Return an upper bound of the deviation that the noise alone gives an entry of the mean of one round."""
        spread = float(np.linalg.norm(self.strategy.filtered(self.rounds)))
        return self.multiplier * self.strategy.norm * spread * clip / self.clients_per_round

    def prospect(self, dims: int) -> Prospect:
        """Return whether a model of this many weights can learn: updates as long as the clip, all in one direction."""
        last = float(np.linalg.norm(np.cumsum(self.strategy.filtered(self.rounds))))  # noise of the last model
        noise = self.multiplier * self.strategy.norm * last / self.clients_per_round
        return Prospect.of(noise / math.sqrt(self.rounds), dims=dims, reach=1.0, rounds=self.rounds)

    def group(self, client: int) -> int:
        """Return the group of a client, which depends on its number and on nothing that it has."""
        digest = hashlib.sha256(f"{client}".encode()).digest()
        return int.from_bytes(digest[:8], "big") % self.strategy.bands

    def sample(self, available: Iterable[int], number: int, *, rng: Rng = None) -> list[int]:
        """Return the clients that round ``number``, from 1 on, asks: each of its group by a coin of its own."""
        turn = number % self.strategy.bands
        fit = sorted({client for client in available if self.group(client) == turn})
        # random() has 53 bits and is below a chance with no more than that chance, rounded up to 2^-53
        heads = _random.generator(rng).random(len(fit)) < self.sampling_prob - 2.0**-53 * (self.sampling_prob < 1)
        return [client for client, asked in zip(fit, heads.tolist(), strict=True) if asked]


@lru_cache(maxsize=256)
def _least_noise(epsilon: float, delta: float, releases: int, sampling_prob: float) -> float:
    return noise_multiplier(epsilon, delta, releases=releases, sampling_prob=sampling_prob)


class PrivateRounds:
    """The server's sums: clip and add the updates of a round, then release their noisy mean.

    A round is released however many updates came, so that nothing shows whether a client answered. The mean is over the
    expected number of clients, not over those that answered. An update that is missing or not finite adds nothing.

    >>> plan = CentralPlan(epsilon=1e4, delta=1e-6, rounds=2, clients=4, clients_per_round=4)
    >>> rounds = PrivateRounds(plan, ModelLayout.of(np.zeros(3)), Norm(1.0), rng=7)
    >>> for _ in range(4):
    ...     rounds.add(np.asarray([0.3, 0.0, -0.3]))
    >>> rounds.release().round(1).tolist()
    [0.3, -0.0, -0.3]
    """

    def __init__(self, plan: CentralPlan, layout: ModelLayout, clip: Norm | AdaptiveNorm, *, rng: Rng = None) -> None:
        self.plan, self.layout = plan, layout
        self.adaptive = clip if isinstance(clip, AdaptiveNorm) else None
        self.norm = clip.start if isinstance(clip, AdaptiveNorm) else clip.norm
        self.done = 0
        self._rng = _random.generator(rng)
        # shares of the unit ball for the update and for the count: their squares add up to no more than 1
        self._count = math.sqrt(self.adaptive.count_share) if self.adaptive else 0.0
        self._update = math.sqrt(1 - self._count**2) * (1 - 2.0**-50) if self.adaptive else 1.0
        self._unit = plan.multiplier * plan.strategy.norm * (1 + 2.0**-50)  # the noise, in lengths of an update
        most = 8 * plan.clients_per_round * math.sqrt(plan.strategy.bands) * STEPS / self._unit
        if most > _FARTHEST:
            raise ValueError(
                f"{plan.clients_per_round:g} clients a round with a noise multiplier of {plan.multiplier:g} are beyond "
                "the lattice of the noise. Ask for a smaller epsilon, or for fewer clients a round."
            )
        size = layout.dims + (self.adaptive is not None)
        bands = plan.strategy.bands
        self._sums: deque[IntArray] = deque([np.zeros(size, dtype=np.int64)], maxlen=bands)
        self._released: deque[FloatArray] = deque(maxlen=max(1, bands - 1))

    def add(self, update: FloatArray) -> None:
        """Add the update of one client, a vector of the layout; one that is not finite adds nothing."""
        vector = np.array(update, dtype=np.float64)
        if vector.shape != (self.layout.dims,):
            raise ValueError(f"Expected an update of {self.layout.dims} weights, got shape {vector.shape}.")
        if not np.isfinite(vector).all():
            return
        clipped = Norm(self.norm).inward(vector, self.layout)
        vector *= self._update * _FINE / self._unit * (1 - 2.0**-50)
        whole = self._sums[-1]
        whole[: self.layout.dims] += np.trunc(vector, out=vector).astype(np.int64)
        if self.adaptive is not None:
            whole[-1] += (1 if clipped == 0.0 else -1) * math.floor(self._count * _FINE / self._unit * (1 - 2.0**-50))

    def release(self) -> FloatArray:
        """Return the noisy mean of the round's updates, and begin the next round."""
        if self.done >= self.plan.rounds:
            raise RuntimeError(
                f"All {self.plan.rounds} rounds that {self.plan.guarantee} allows are released. Plan more of them."
            )
        strategy = self.plan.strategy
        mixed = np.zeros_like(self._sums[-1])
        for numerator, whole in zip(strategy.numerators, reversed(self._sums), strict=False):
            mixed += numerator * whole
        noisy = np.clip(mixed, -_FARTHEST, _FARTHEST) / STEPS
        add_noise(noisy, self._rng)
        noisy *= self._unit
        # from here on everything follows from what is released
        for coefficient, earlier in zip(strategy.column[1:], reversed(self._released), strict=False):
            noisy -= coefficient * earlier
        noisy /= strategy.column[0]
        self._released.append(noisy)
        self._sums.append(np.zeros_like(mixed))
        self.done += 1
        mean = noisy[: self.layout.dims] * (self.norm / (self._update * self.plan.clients_per_round))
        if self.adaptive is not None:
            share = 0.5 + float(noisy[-1]) / (2 * self._count * self.plan.clients_per_round)
            self.norm *= math.exp(-self.adaptive.rate * (min(1.0, max(0.0, share)) - self.adaptive.quantile))
        return mean
