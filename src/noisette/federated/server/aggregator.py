"""The server's side of one round: reports are added as they come and forgotten."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from noisette import _validate
from noisette._validate import FloatArray
from noisette.core import Estimate, Sketched
from noisette.enhancement import METHODS, enhance
from noisette.federated.channel import Channel, RejectedReport


class TooFew(RuntimeError):
    """A round has fewer reports than may be released."""


@dataclass(eq=False)
class Aggregator:
    """Adds up the reports of a round, in the memory of two models however many clients send.

    Beside the sums it keeps one number for each client that sent, to refuse a second report.

    >>> from noisette.federated.clipping import Ranges
    >>> from noisette.federated.layout import ModelLayout
    >>> channel = Channel("laplace", ModelLayout.of(np.zeros(3)), Ranges(0.0, 1.0), epsilon=50.0)
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
        whole = self.channel.whole
        self._sketch = whole.sketch() if isinstance(whole, Sketched) else None

    def add(self, payload: Any, *, sender: Any = None, weight: float = 1.0) -> None:
        """Add one client's report; raise `RejectedReport` and change nothing if it is not one, or a second one."""
        self._check_sender(sender)
        share = _validate.positive(weight, "weight")
        if self._sketch is None:
            self._add(self.channel.estimate(payload), sender, share)
            return
        self.channel.whole.add_to(self._sketch, self.channel.unpack(payload), share)
        self._count(sender, share)

    def add_plain(self, update: Any, *, sender: Any = None, weight: float = 1.0) -> None:
        """Add an update in which only the last step is private: any finite vector could be one."""
        self._check_sender(sender)
        vector = np.array(update, dtype=np.float64)
        if vector.shape != self._total.shape or not np.isfinite(vector).all():
            raise RejectedReport(f"Expected {self._total.size} finite numbers, got shape {vector.shape}.")
        self._add(vector, sender, _validate.positive(weight, "weight"))

    def _check_sender(self, sender: Any) -> None:
        if sender is not None and sender in self.senders:
            raise RejectedReport(
                f"Client {sender} has sent a report in this round already. Send one report a round: "
                "only the first counts."
            )

    def _add(self, estimate: FloatArray, sender: Any, share: float) -> None:
        """Add an estimate of one client's update."""
        if share != 1:
            estimate *= share
        self._total += estimate
        self._count(sender, share)

    def _count(self, sender: Any, share: float) -> None:
        """Count one client's report."""
        if sender is not None:
            self.senders.add(sender)
        self.clients += 1
        self.weight += share
        self.squared_weight += share**2

    def add_block(self, start: int, rows: Any) -> int:
        """Add answers without origin, as a shuffler forwards them, and return how many rows were refused.

        A row holds what one client reports about the weights from ``start`` on, in the type that it travels in or as
        numbers on the clip's domain; a mechanism that answers about the update at once has rows of the whole length.
        The mean counts each weight's own answers.
        """
        values, dims = self.channel.values(np.asarray(rows)), self.channel.layout.dims
        whole = self._whole
        length = self.channel.whole.report_shape[0] if whole else dims
        if values.ndim != 2 or start < 0 or start + values.shape[1] > length or (whole and values.shape[1] != length):
            wanted = f"rows of {length}" if whole else f"rows that end before {dims}"
            raise RejectedReport(f"Expected {wanted}, got shape {values.shape} from {start} on.")
        inside = np.asarray(self._possible(values))
        kept = values[inside]
        if self._counts is None:
            self._counts = np.zeros(dims)
        block = slice(0, dims) if whole else slice(start, start + values.shape[1])
        self._counts[block] += len(kept)
        if self._sketch is not None:
            for report in kept:
                self.channel.whole.add_to(self._sketch, report)
        elif len(kept):
            self._total[block] += (self.channel.whole.decode(kept) if whole else kept).sum(axis=0)
        return int(len(values) - len(kept))

    def _unfolded(self) -> FloatArray | float:
        """Return the sum of the sketched reports on the clip's domain."""
        return 0.0 if self._sketch is None else self.channel.whole.unfold(self._sketch)

    @property
    def _whole(self) -> bool:
        """Whether a client answers about the update at once."""
        return self._sketch is not None or self.channel.answers != self.channel.layout.dims

    def _possible(self, rows: FloatArray) -> Any:
        """Tell which rows hold nothing but reports of the mechanism."""
        if self._whole:
            return self.channel.support.contains(rows)
        shape = (*rows.shape, *self.channel.answer.domain.shape)
        return np.asarray(self.channel.answer.support.contains(rows.reshape(shape))).reshape(rows.shape).all(axis=1)

    @property
    def counted(self) -> int:
        """How many reports the mean is made of; in a mixed round, the least number of answers about a weight."""
        return self.clients if self._counts is None else int(self._counts.min())

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
        total = self._total
        if self._sketch is not None:  # its clips have no offset, so that a sum is moved outward as each update is
            total = total + self.channel.clip.outward(np.asarray(self._unfolded()), layout)
        return self._made(total / self.weight, error, np.full(layout.dims, self.clients))

    def _of_fragments(self, counts: FloatArray) -> Estimate:
        """Return the mean of the answers about each weight."""
        least = int(counts.min())
        if least < self.minimum:
            raise TooFew(
                f"Some weight has {least} answers, and {self.minimum} are the least that may be released. "
                "The round is not released; ask again, or wait for more clients."
            )
        layout = self.channel.layout
        mean = self.channel.clip.outward((self._total + self._unfolded()) / counts, layout)
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
    for _, entries in channel.layout.parts():
        if entries.stop - entries.start < _LEAST_SHRUNK:
            continue
        layer = Estimate(estimate.value[entries], estimate.std_error[entries], estimate.count[entries])
        value[entries] = enhance(layer, method=method).value
    return value


_LEAST_SHRUNK = 4  # James and Stein need more than three
# what shrinks weights, which have neither ends nor a sum as frequencies have
SHRINKAGES = tuple(name for name, method in METHODS.items() if not method.needs_domain and method.scale != "own")
