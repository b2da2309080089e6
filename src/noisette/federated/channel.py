"""From an update to the bytes that leave the client, and from those bytes to an unbiased estimate of the update."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from noisette import _random, _validate
from noisette._random import Rng
from noisette._validate import FloatArray
from noisette.certificates import Certificate, FederatedRun, certify
from noisette.domains import Domain
from noisette.federated import wire
from noisette.federated.clipping import UpdateClip, clip_from
from noisette.federated.families import Family, family, with_old_budget
from noisette.federated.layout import Arrays, ModelLayout
from noisette.mechanisms.vector.fast_projunit import Seeded
from noisette.shuffler import PacketLayout


class RejectedReport(ValueError):
    """A report that the channel cannot have sent."""


class ClientRelease(NamedTuple):
    """The report that leaves a client, and what stays on the client: the share of the update that clipping removed."""

    payload: npt.NDArray[Any]
    clipped: float


@with_old_budget("mechanism", "layout", "clip", "budget", "options")
@dataclass(frozen=True, eq=False)
class Channel:
    """Clips an update, privatises it with one mechanism, and packs the report; unpacks and checks it on the server.

    ``epsilon`` is that of one answer, and so is the ``mu`` of Gaussian noise; `answers` of them make up an update.
    Reports that hold one of two numbers travel as bits; those on a lattice without ends are rounded to 2^-8 of their
    noise or finer, which costs no privacy, and travel as integers of 16 bits, or of 32 where there is little noise;
    projected vectors as a seed and a byte a row, or the number of a word; others as float64. All reports of a channel
    have the same type and length.

    >>> layout = ModelLayout.of({"weight": np.zeros((4, 5)), "bias": np.zeros(4)})
    >>> from noisette.federated.clipping import Ranges
    >>> channel = Channel("adaptive-duchi", layout, Ranges(0.0, 0.1), epsilon=1.0)
    >>> payload = channel.privatize(np.zeros(24), rng=7).payload
    >>> payload.nbytes, channel.estimate(payload).shape
    (3, (24,))
    """

    mechanism: str
    layout: ModelLayout
    clip: UpdateClip
    _: KW_ONLY
    epsilon: float | None = None
    mu: float | None = None
    options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, value in self.family.spent(self.epsilon, self.mu).items():
            object.__setattr__(self, name, value)
        if self.clip.shape not in self.family.shapes:
            wanted = " or ".join(_RULES[shape] for shape in self.family.shapes)
            raise ValueError(f"{self.mechanism} answers about another domain than {self.clip}. Clip with {wanted}.")
        stated = self.whole.guarantee  # a budget that cannot be kept is refused now
        if stated.model != "local" or stated.relation != "any-pair":
            raise ValueError(f"Expected options that protect a client from everybody, got {stated}.")

    @cached_property
    def family(self) -> Family:
        """How the mechanism answers about updates."""
        return family(self.mechanism, self.options)

    @cached_property
    def whole(self) -> Any:
        """The mechanism for vectors of the domain that the clip maps on."""
        domain: Any = self.clip.domain(self.layout)
        return _whole(self.mechanism, _text(self.options), self.epsilon, self.mu, domain)

    @cached_property
    def answer(self) -> Any:
        """The mechanism of one answer."""
        return self.family.answer(self.clip.domain(self.layout), epsilon=self.epsilon, mu=self.mu)

    @property
    def spent(self) -> dict[str, float]:
        """What one answer costs, by its name: epsilon or mu."""
        return self.family.spent(self.epsilon, self.mu)

    @property
    def answers(self) -> int:
        """How many answers make up one update."""
        return self.family.count(self.layout.dims)

    @cached_property
    def _ends(self) -> tuple[float, float] | None:
        """The two numbers that reports hold, if there are two."""
        pair: tuple[float, float] | None = self.whole.two_numbers
        return pair

    @cached_property
    def _variance(self) -> float:
        """Largest variance of an entry of the estimate, before the report is rounded to travel."""
        return self.family.variance(self.whole, self.answer)

    @cached_property
    def _arriving(self) -> tuple[Any, np.dtype[Any]]:
        """The reports that may arrive, and the type in which they travel."""
        if self._ends is not None:
            return self.whole.support, np.dtype(np.uint8)
        return wire.coarse(self.whole.support, math.sqrt(self._variance), self.layout.dims)

    @property
    def support(self) -> Any:
        """The reports that may arrive."""
        return self._arriving[0]

    @cached_property
    def deviation(self) -> float:
        """Standard deviation of the noise of an entry on the domain, at most."""
        support, kind = self._arriving
        rounded = kind.kind == "i" and support.step is not None
        return math.sqrt(self._variance + (support.step**2 / 4 if rounded else 0))

    @property
    def _seeded(self) -> bool:
        """Whether a report is a seed and what was drawn under it."""
        return isinstance(self.whole.support, Seeded)

    @property
    def length(self) -> int:
        """How many numbers a payload has."""
        dims = self.layout.dims
        if self._seeded:
            return int(self.whole.report_shape[0]) - 1 + wire.seed_numbers(self._arriving[1])
        return dims if self._ends is None else (dims + 7) // 8

    def certificate(self, rounds: int, delta: float = 0.0) -> Certificate:
        """Return a certificate of this many updates of a client, which `noisette-verify` proves."""
        return certify(FederatedRun(self.whole, rounds, delta))

    def noise(self) -> FloatArray:
        """Return the standard deviation of the noise in the estimate of a weight of each layer, at most."""
        return self.deviation * self.clip.scale(self.layout)

    def privatize(self, update: Arrays, *, rng: Rng = None) -> ClientRelease:
        """Return what leaves the client about an update: arrays by name, a list of them, or one vector."""
        flat = isinstance(update, np.ndarray) and update.shape == (self.layout.dims,)
        return self.release(ModelLayout.of(update).flatten(update) if flat else self.layout.flatten(update), rng=rng)

    def release(self, vector: FloatArray, *, rng: Rng = None) -> ClientRelease:
        """Return what leaves the client about a vector of finite weights, which is overwritten by its clipped form."""
        clipped = self.clip.inward(vector, self.layout)
        source = _random.generator(rng)
        report = self.whole.privatize(vector, rng=source)
        support, kind = self._arriving
        if self._seeded:
            return ClientRelease(wire.seeded(report, support, kind, source), clipped)
        if self._ends is not None:
            return ClientRelease(wire.bits(report, self._ends), clipped)
        if kind.kind == "f":
            return ClientRelease(np.asarray(report, dtype=np.float64), clipped)
        return ClientRelease(wire.packed(wire.rounded(report, support.step, source), kind), clipped)

    def unpack(self, payload: Any) -> FloatArray:
        """Return the report in a payload, or refuse it: wrong length or type, no numbers, outside the support."""
        packed, dims = np.asarray(payload), self.layout.dims
        support, kind = self._arriving
        if packed.shape != (self.length,) or packed.dtype != kind:
            raise RejectedReport(
                f"Expected a report of {self.length} {kind} for {dims} weights, got shape {packed.shape} of "
                f"{packed.dtype}. Do client and server have the same model and mechanism?"
            )
        if self._ends is not None:
            if dims % 8 and packed[-1] & (255 >> dims % 8):
                raise RejectedReport(f"Expected zeros behind the last of {dims} bits, got {packed[-1]:08b}.")
            return wire.from_bits(packed, self._ends, dims)
        if kind.kind == "f" or self._seeded:
            return self._checked(np.array(packed) if kind.kind == "f" else wire.from_seeded(packed, support))
        report = np.asarray(packed * support.step, dtype=np.float64)
        sure = kind == np.int16 and wire.possible(report, support)
        return report if sure else self._checked(report)

    def packets(self, batch: int) -> PacketLayout:
        """Return how reports are cut for a shuffler: each weight as it travels, a mechanism's whole answer in one."""
        dims = self.length if self._seeded else self.layout.dims
        kind = "bit" if self._ends is not None else self._arriving[1].name
        return PacketLayout(dims, min(batch, dims) if self.answers > 1 else dims, kind)

    def codes(self, payload: Any) -> npt.NDArray[Any]:
        """Return what travels about each weight, which a payload of this channel holds: a bit, or a number as it is."""
        packed = np.asarray(payload)
        return packed if self._ends is None else np.unpackbits(packed, count=self.layout.dims)

    def values(self, codes: npt.NDArray[Any]) -> FloatArray:
        """Return the numbers that codes of any shape stand for; they are not checked against the support."""
        support, kind = self._arriving
        if codes.dtype != kind or kind.kind == "f":
            return _validate.reals(codes, "rows")
        if self._seeded:
            return wire.from_seeded(codes, support)
        if self._ends is not None:
            return np.asarray(self._ends).take(codes, mode="clip")
        return np.asarray(codes * support.step, dtype=np.float64)

    def _checked(self, report: FloatArray) -> FloatArray:
        """Refuse a report that the mechanism cannot have sent."""
        least, most = float(report.min()), float(report.max())  # NaN spreads to both
        if not (math.isfinite(least) and math.isfinite(most)):
            raise RejectedReport(f"Expected finite numbers, got {report[~np.isfinite(report)][0]}.")
        reach = self.family.reach(self.deviation)
        if max(-least, most) > reach:
            raise RejectedReport(
                f"Expected a report within {reach:g}, got {max(-least, most):g}: farther than noise ever goes."
            )
        if not np.all(self.support.contains(report)):
            raise RejectedReport(
                f"The report is outside the support of {self.mechanism}: {self.support}. Was it made by another "
                "mechanism, budget or domain?"
            )
        return report

    def estimate(self, payload: Any) -> FloatArray:
        """Return the estimate of the clipped update that a payload gives, unbiased if the mechanism declares so."""
        return self.clip.outward(self.whole.decode(self.unpack(payload)), self.layout)

    def spec(self) -> dict[str, Any]:
        """Return a JSON description; with the layout of the model `channel_from` makes the channel of it again."""
        own = {"mechanism": self.mechanism, "options": dict(self.options)}
        return own | self.spent | {"clip": self.clip.spec()}


_RULES = {"ball": "Norm(...)", "sphere": "Length(...)", "box": "Ranges(...)"}


def channel_from(spec: Mapping[str, Any], layout: ModelLayout) -> Channel:
    """Return the channel that a description asks for."""
    return Channel(layout=layout, **(dict(spec) | {"clip": clip_from(spec["clip"])}))


def _text(options: Mapping[str, Any]) -> str:
    return json.dumps(dict(options), sort_keys=True)


@lru_cache(maxsize=16)
def _whole(name: str, options: str, epsilon: float | None, mu: float | None, domain: Domain) -> Any:
    """Build a mechanism once a process: it is the same for every client and round."""
    return family(name, json.loads(options)).mechanism(domain, epsilon=epsilon, mu=mu)
