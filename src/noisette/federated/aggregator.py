"""The server's side of one round: reports are added as they come and forgotten."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from noisette import _validate
from noisette._validate import FloatArray
from noisette.core import Estimate
from noisette.enhancement import enhance
from noisette.federated.channel import Channel, RejectedReport


class TooFew(RuntimeError):
    """A round has fewer reports than may be released."""


@dataclass(eq=False)
class Aggregator:
    """Adds up the reports of a round: its memory is that of two models, however many clients send.

    Beside the sums it keeps one number for each client that sent, to refuse a second report.

    >>> from noisette.federated.clipping import Ranges
    >>> from noisette.federated.layout import Layout
    >>> channel = Channel("laplace", Layout.of(np.zeros(3)), Ranges(0.0, 1.0), budget=50.0)
    >>> aggregator = Aggregator(channel, minimum=2)
    >>> for client in range(2):
    ...     aggregator.add(channel.privatize(np.full(3, 0.5), rng=client).payload, sender=client)
    >>> aggregator.estimate().value.round(1).tolist()
    [0.5, 0.5, 0.5]
    """

    channel: Channel
    minimum: int = 1
    clients: int = 0
    weight: float = 0.0
    squared_weight: float = 0.0
    senders: set[Any] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.minimum = _validate.integer(self.minimum, "minimum", low=1)
        self._total = np.zeros(self.channel.layout.dims)
        self._counts: FloatArray | None = None

    def add(self, payload: Any, *, sender: Any = None, weight: float = 1.0) -> None:
        """Add one client's report; raise `RejectedReport` and change nothing if it is not one, or a second one."""
        share = _validate.positive(weight, "weight")
        if sender is not None and sender in self.senders:
            raise RejectedReport(f"Client {sender} has sent a report in this round already: only the first counts.")
        estimate = self.channel.estimate(payload)
        if sender is not None:
            self.senders.add(sender)
        if share != 1:
            estimate *= share
        self._total += estimate
        self.clients += 1
        self.weight += share
        self.squared_weight += share**2

    def add_fragments(self, positions: Any, values: Any) -> None:
        """Add answers without origin: which weight, and the number reported for it on the clip's domain.

        Only for mechanisms that answer about each weight on its own.
        """
        if self.channel.answers != self.channel.layout.dims:
            raise ValueError(f"{self.channel.mechanism} answers about the update at once: it has no fragments.")
        places, numbers = _validate.integers(positions, "positions"), _validate.reals(values, "values")
        dims = self.channel.layout.dims
        if places.shape != numbers.shape or places.min() < 0 or places.max() >= dims:
            raise RejectedReport(f"Expected as many values as positions below {dims}, got {numbers.shape}.")
        inside = self.channel.answer.support.contains(numbers.reshape(-1, *self._answer_shape))
        if not np.all(inside):
            bad = numbers.reshape(-1)[~np.asarray(inside).reshape(-1)][0]
            raise RejectedReport(f"Value {bad} is outside the support of {self.channel.mechanism}.")
        if self._counts is None:
            self._counts = np.zeros(dims)
        self._total += np.bincount(places, numbers, minlength=dims)
        self._counts += np.bincount(places, minlength=dims)

    @property
    def _answer_shape(self) -> tuple[int, ...]:
        return tuple(self.channel.answer.domain.shape)

    def estimate(self) -> Estimate:
        """Return the weighted mean of the clipped updates with the standard error that the noise gives it.

        Formula: sum of p_k y_k, variance at most sigma^2 sum of p_k^2, p_k the weights divided by their sum.
        """
        layout = self.channel.layout
        if self._counts is not None:
            return self._of_fragments(self._counts)
        if self.clients < self.minimum:
            raise TooFew(
                f"{self.clients} reports came, and {self.minimum} are the least that may be released. "
                "The round is not released; ask again, or wait for more clients."
            )
        error = layout.spread(self.channel.noise()) * math.sqrt(self.squared_weight) / self.weight
        return self._made(self._total / self.weight, error, np.full(layout.dims, self.clients))

    def _of_fragments(self, counts: FloatArray) -> Estimate:
        """Return the mean of the answers about each weight."""
        least = int(counts.min())
        if least < self.minimum:
            raise TooFew(
                f"Some weight has {least} answers, and {self.minimum} are the least that may be released. "
                "The round is not released; ask again, or wait for more clients."
            )
        layout = self.channel.layout
        mean = self.channel.clip.outward(self._total / counts, layout)
        error = layout.spread(self.channel.noise()) / np.sqrt(counts)
        return self._made(mean, error, counts)

    def _made(self, value: FloatArray, error: FloatArray, count: Any) -> Estimate:
        return Estimate(value, error, np.asarray(count, dtype=np.int64), kind="vector-mean")


def enhanced(estimate: Estimate, channel: Channel, method: str = "james-stein") -> FloatArray:
    """Return the estimate shrunk layer by layer: free, as it looks at nothing but the reports.

    A layer too small for the method keeps its plain estimate.
    """
    value = estimate.value.copy()
    if method == "none":
        return value
    for _, part in channel.layout.parts():
        if part.stop - part.start < _LEAST_SHRUNK:
            continue
        layer = Estimate(estimate.value[part], estimate.std_error[part], estimate.count[part])
        value[part] = enhance(layer, method=method).value
    return value


_LEAST_SHRUNK = 4  # James and Stein need more than three
