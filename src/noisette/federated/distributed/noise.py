"""Noise in shares: each client adds a little noise to integers, and the noise of enough clients makes the sum private.

An update is clipped to a ball and rounded towards zero to whole numbers of length at most S; each client adds discrete
Gaussian noise of deviation s to them. Secure aggregation opens the sum over all clients that stayed. If n of them are
honest, the sum has the noise of n shares, and is epsilon^2 / 2 concentrated differentially private with

    epsilon = D / (sqrt(n) s) + t sqrt(d),    t = 10 sum_{k < n} exp(-2 pi^2 s^2 k / (k + 1)),

D = 2 S the distance that replacing a client's update moves the sum (Kairouz, Liu, Steinke 2021, Theorem 1). t is there
because a sum of discrete Gaussian variables is not quite a discrete Gaussian variable; at s >= 64 it is below 1e-17000.
No float64 holds that: what is left to rounding, 2^-40 of epsilon, is far more.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from noisette import _random, _validate
from noisette._random import Rng
from noisette._validate import FloatArray, IntArray
from noisette.accounting import zcdp_epsilon, zcdp_rho
from noisette.federated.clipping import Norm
from noisette.federated.layout import ModelLayout
from noisette.guarantees import Guarantee

_LEAST_SHARE = 64.0  # deviation of a client's noise: coarser integers would round the update visibly
_FINE = 4096  # least number of steps in the length of an update
_REACH = 40.0  # deviations that noise goes at most: farther with a chance below exp(-800)
MODULUS = 1 << 32  # of Flower's secure aggregation


@dataclass(frozen=True)
class DistributedPlan:
    """What a run under secure aggregation promises, and the noise of each client that keeps the promise.

    ``rounds`` is how often one client takes part at the most. ``survivors`` is the least number of honest clients in a
    sum that is opened: the threshold of the aggregation less those who may be in league with the server. More
    survivors make for more noise than was promised, never for less.

    *Guarantee*: (epsilon, delta) for everything that a client has, whatever its updates are replaced by, against the
    server and everybody who sees the sums. It rests on the secure aggregation: that no sum of fewer clients is opened.

    >>> plan = DistributedPlan(epsilon=4.0, delta=1e-6, rounds=20, survivors=80, dims=1000, clip=Norm(1.0))
    >>> print(plan.guarantee)
    (4, 1e-06)-DP, unit record, model distributed, relation replace
    >>> numbers = sum(plan.encode(np.full(1000, 0.01), rng=client) for client in range(100))
    >>> abs(float(plan.mean(numbers, 100).mean()) - 0.01) < 0.02
    True
    """

    epsilon: float
    delta: float
    rounds: int
    survivors: int
    dims: int
    clip: Norm

    def __post_init__(self) -> None:
        _validate.epsilon(self.epsilon)
        _validate.delta(self.delta, positive=True)
        for name in ("rounds", "survivors", "dims"):
            _validate.integer(getattr(self, name), name, low=1)
        if self.clip.shape != "ball":
            raise ValueError(
                f"Expected clip={self.clip} to be Norm(...): the length of an update bounds what it tells."
            )

    @cached_property
    def _distance(self) -> float:
        """How far one client may move the sum, in deviations of the noise of a share."""
        rho = zcdp_rho(self.epsilon, self.delta * (1 - 2.0**-40)) / self.rounds
        return math.sqrt(2 * rho) * (1 - 2.0**-40) * math.sqrt(self.survivors)  # t is far below what this leaves

    @cached_property
    def share(self) -> float:
        """Deviation of the noise that each client adds: a power of two."""
        needed = max(_LEAST_SHARE, 2 * _FINE / self._distance)
        return 2.0 ** math.ceil(math.log2(needed))

    @cached_property
    def length(self) -> int:
        """Largest length of an update in whole numbers, S."""
        return math.floor(self._distance * self.share / 2 * (1 - 2.0**-40))

    @property
    def reach(self) -> int:
        """Largest whole number that a client sends."""
        return self.length + math.ceil(_REACH * self.share)

    def check(self, clients: int) -> None:
        """Refuse more clients than sums modulo 2^32 have room for."""
        if clients * (2 * self.reach + 1) >= MODULUS:
            raise ValueError(
                f"The sum of {clients} clients, of up to {self.reach} each, does not fit into 32 bits. Ask fewer "
                "clients a round, or for a smaller epsilon."
            )

    @property
    def guarantee(self) -> Guarantee:
        """What a client is promised over the whole run."""
        return Guarantee(self.epsilon, self.delta, unit="record", model="distributed", relation="replace")

    @property
    def spent(self) -> float:
        """The epsilon that the whole run spends, from lengths and noise as they are."""
        moved = 2 * self.length / (math.sqrt(self.survivors) * self.share)
        return zcdp_epsilon(self.rounds * moved**2 / 2, self.delta)

    def noise(self, clients: int) -> float:
        """Return the deviation of an entry of the mean of this many clients."""
        return self.share * self.clip.norm / (self.length * math.sqrt(clients))

    def encode(self, update: FloatArray, *, rng: Rng = None) -> IntArray:
        """Return what a client hands to the secure aggregation; an update that is not finite counts as zero."""
        vector = np.array(update, dtype=np.float64)
        if vector.shape != (self.dims,):
            raise ValueError(f"Expected an update of {self.dims} weights, got shape {vector.shape}.")
        if not np.isfinite(vector).all():
            vector[:] = 0.0
        self.clip.inward(vector, ModelLayout.of(vector))
        vector *= self.length * (1 - 2.0**-50)
        whole = np.trunc(vector, out=vector)
        whole += _random.discrete_gaussian(_random.generator(rng), self.share, self.dims)
        return np.clip(whole, -self.reach, self.reach).astype(np.int64)

    def mean(self, total: IntArray | FloatArray, clients: int) -> FloatArray:
        """Return the noisy mean of the updates of ``clients``, from the sum that was opened."""
        return np.asarray(total, dtype=np.float64) * (self.clip.norm / (self.length * clients))
