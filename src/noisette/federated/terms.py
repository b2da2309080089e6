"""The terms of a run: what the server asks of every client, as a client reads them before it answers."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any, Literal, get_args

from noisette import _validate
from noisette.federated.channel import Channel
from noisette.federated.clipping import Length, Norm, Ranges, clip_from
from noisette.federated.families import family, with_old_budget
from noisette.federated.layout import ModelLayout
from noisette.federated.lines import Lines, PrivateUnit, TrustModel, calibrate, lines
from noisette.guarantees import Guarantee

Sends = Literal["update", "weights"]
Placement = Literal["whole-update", "last-step"]

_LONGEST_NAME = 64  # characters of the name of a run


@with_old_budget("run", "mechanism", "budget", "clip", "rounds", "clients", "delta")
@dataclass(frozen=True)
class Terms:
    """What one run asks of a client, and the guarantee it comes to.

    ``epsilon`` is that of one answer, and so is the ``mu`` of Gaussian noise.
    ``rounds`` is the number of rounds in which one client takes part at most, ``clients`` the least number of reports
    that are mixed in a round. ``sends`` says whether clients report their change of the model or their weights.
    ``placement`` "last-step" puts noise on the last local step only, as in Duan 2024, chapter 6: nothing holds then.
    """

    run: str
    mechanism: str
    _: KW_ONLY
    clip: Norm | Length | Ranges
    rounds: int
    epsilon: float | None = None
    mu: float | None = None
    clients: int = 1
    delta: float = 0.0
    unit: PrivateUnit = "record"
    model: TrustModel = "local"
    sends: Sends = "update"
    placement: Placement = "whole-update"
    batch: int = 1
    options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.run, str) or not 0 < len(self.run) <= _LONGEST_NAME or not self.run.isascii():
            raise ValueError(f"Expected run={self.run!r} to be a name of at most {_LONGEST_NAME} plain characters.")
        for name, low in (("rounds", 1), ("clients", 1), ("batch", 1)):
            _validate.integer(getattr(self, name), name, low=low)
        family(self.mechanism).spent(self.epsilon, self.mu)  # a channel looks at the options
        _validate.delta(self.delta)
        choices = (("unit", PrivateUnit), ("model", TrustModel), ("sends", Sends), ("placement", Placement))
        for name, allowed in choices:
            if getattr(self, name) not in get_args(allowed):
                raise ValueError(f"Expected {name}={getattr(self, name)!r} to be one of {get_args(allowed)}.")

    @classmethod
    def for_target(
        cls, run: str, mechanism: str, layout: ModelLayout, *, target_epsilon: float, target_delta: float, **others: Any
    ) -> Terms:
        """Return the terms with the largest epsilon or mu an answer at which the whole run meets the target."""
        others |= {"delta": target_delta, family(mechanism).price: 1.0}
        draft = cls(run, mechanism, **others)
        found = calibrate(
            mechanism,
            layout,
            draft.clip,
            target_epsilon=target_epsilon,
            target_delta=target_delta,
            unit=draft.unit,
            model=draft.model,
            rounds=draft.rounds,
            clients=draft.clients,
            batch=draft.batch,
            options=draft.options,
        )
        return replace(draft, epsilon=found.epsilon, mu=found.mu, options=found.options)

    def channel(self, layout: ModelLayout) -> Channel:
        """Return the channel of the run's current round."""
        return Channel(self.mechanism, layout, self.clip, epsilon=self.epsilon, mu=self.mu, options=self.options)

    def lines(self, layout: ModelLayout, *, rounds: int | None = None, clients: int | None = None) -> Lines:
        """Return the three lines, of the whole run or of what has happened so far."""
        return lines(
            self.channel(layout),
            rounds=self.rounds if rounds is None else rounds,
            clients=self.clients if clients is None else clients,
            delta=self.delta,
            unit=self.unit,
            batch=self.batch,
            last_step=self.placement == "last-step",
        )

    def promise(self, layout: ModelLayout, *, model: TrustModel, clients: int) -> Guarantee:
        """Return the guarantee of the whole run for a client who trusts the shuffler, or for one who trusts nobody."""
        found = lines(
            self.channel(layout),
            rounds=self.rounds,
            clients=clients,
            delta=self.delta,
            batch=self.batch,
            last_step=self.placement == "last-step",
        )
        return found.shuffled if model == "shuffled" else found.local

    def leaves_options_fixed(self) -> bool:
        """Tell whether a client lets a server choose these options of the mechanism: none that weaken its guarantee."""
        own = family(self.mechanism)
        return set(self.options) <= own.able.adjustable | ({"delta"} if own.leaves_delta else set())

    def key(self, layout: ModelLayout) -> str:
        """Return a name for what a client agrees to: other terms, another name. Clips may change from round to round.

        The clip is not part of it: whatever its numbers, reports about the domain it maps on are as private.
        """
        fixed = {name: value for name, value in self.spec().items() if name != "clip"}
        text = json.dumps([fixed, self.clip.shape, layout.shapes], sort_keys=True)
        return f"{self.run}-{hashlib.sha256(text.encode()).hexdigest()}"

    def spec(self) -> dict[str, Any]:
        """Return a JSON description that `Terms.read` reads."""
        own = {name: value for name, value in vars(self).items() if value is not None}
        return own | {"clip": self.clip.spec(), "options": dict(self.options)}

    def to_json(self) -> str:
        """Return the terms as text."""
        return json.dumps(self.spec(), sort_keys=True)

    @classmethod
    def read(cls, text: str) -> Terms:
        """Read terms that a server sent, refusing what it should not contain."""
        try:
            found = json.loads(text)
            return cls(**(found | {"clip": clip_from(found["clip"])}))
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise ValueError(f"The server's terms cannot be read: {error}. Are both sides of one version?") from error
