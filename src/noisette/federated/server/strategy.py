"""The server's side on Flower: a strategy that asks within a budget, adds up reports as they come, and accounts."""

from __future__ import annotations

import logging
import math
import os
import secrets
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg, Result
from flwr.serverapp.strategy.strategy_utils import sample_nodes

from noisette import _validate
from noisette._validate import FloatArray
from noisette.federated.channel import RejectedReport
from noisette.federated.client.mod import REPORT, TERMS
from noisette.federated.clipping import Length, Norm, Ranges
from noisette.federated.families import AUTO, chosen
from noisette.federated.layout import ModelLayout, as_dtype
from noisette.federated.lines import Lines, PrivateUnit, TrustModel
from noisette.federated.server.aggregator import SHRINKAGES, Aggregator, TooFew, enhanced
from noisette.federated.server.history import History
from noisette.federated.server.mixing import Mixer
from noisette.federated.server.sampling import draw
from noisette.federated.server.streaming import StreamingGrid
from noisette.federated.terms import Placement, Sends, Terms
from noisette.federated.theory import Prospect
from noisette.shuffler import PacketLayout

_log = logging.getLogger("flwr")
_MOST_REASONS = 3
_LONGEST_REASON = 200  # characters that are kept of why a report was left out
_MOST_WEIGHT = 2.0**53  # of a client: above it a float64 no longer counts those of others


class PrivateFedAvg(FedAvg):
    """Federated averaging of private reports: FedAvg for clients that run the mod `LocalPrivacy`.

    The budget of an answer is computed from the target, for the whole run: ``target_epsilon``, ``target_delta``,
    ``unit`` and ``model`` say what one client is guaranteed over all rounds in which it takes part, at most
    ``rounds_per_client`` (all, unless given). The mechanism "auto" is PrivUnit for up to 2,048 weights and for more
    FastProjUnit, a kilobyte a report; with `Ranges` it is Duchi's for boxes. Reports are debiased and added up as they
    come, then shrunk layer by layer (``enhance``), which is free. ``clients_per_round`` of the n clients are asked,
    those first that were asked least often. A round with fewer than ``minimum`` reports changes nothing. Reports that
    the mechanism cannot have sent are left out and logged. ``weighted`` weights clients by the public metric
    ``weighted_by_key``.

    ``adapt_ranges`` recomputes the clip of each layer from the noisy model of the last round, ``range_margin`` times as
    wide as its weights span and no wider than ``widest``; with ``sends="weights"`` and "adaptive-duchi" that is LDP-FL.
    ``state`` is a file from which a restarted server goes on. With ``model="shuffled"`` a `mixer` brings the reports
    without their senders, ``batch`` weights a packet.

    Everything else is FedAvg's: ``strategy.start(grid, arrays, num_rounds=...)``. Clients are not asked to evaluate
    unless ``fraction_evaluate`` says so, and their mod refuses: evaluate on the server, with ``evaluate_fn``.
    """

    def __init__(
        self,
        mechanism: str = AUTO,
        *,
        target_epsilon: float,
        target_delta: float = 0.0,
        clip: Norm | Length | Ranges,
        unit: PrivateUnit = "record",
        model: TrustModel = "local",
        options: Mapping[str, Any] | None = None,
        sends: Sends = "update",
        placement: Placement = "whole-update",
        clients_per_round: int | None = None,
        rounds_per_client: int | None = None,
        minimum: int = 2,
        weighted: bool = False,
        enhance: str = "james-stein",
        adapt_ranges: bool = False,
        range_margin: float = 1.0,
        widest: float | None = None,
        server_rate: float = 1.0,
        mixer: Mixer | None = None,
        batch: int = 1,
        spread: float = 0.0,
        slowest: float = 0.0,
        state: str | os.PathLike[str] | None = None,
        in_flight: int = 64,
        fraction_evaluate: float = 0.0,
        **fedavg: Any,
    ) -> None:
        super().__init__(fraction_evaluate=fraction_evaluate, **fedavg)
        if adapt_ranges and not isinstance(clip, Ranges):
            raise ValueError(f"Expected clip={clip} to be Ranges with adapt_ranges=True: other clips have no ranges.")
        if (model == "shuffled") != (mixer is not None):
            raise ValueError("Expected a mixer with model='shuffled', and only then: it mixes the reports.")
        if model == "shuffled" and weighted:
            raise ValueError("Mixed reports have no sender, hence no weight: leave weighted=True out.")
        if enhance not in SHRINKAGES:
            raise ValueError(f"Expected enhance={enhance!r} to be one of {', '.join(SHRINKAGES)}.")
        if clients_per_round is not None and minimum > clients_per_round:
            raise ValueError(
                f"Expected minimum={minimum} to be at most clients_per_round={clients_per_round}: no round would ever "
                "be released."
            )
        self.target = {"target_epsilon": target_epsilon, "target_delta": target_delta}
        self.asked_terms: dict[str, Any] = {
            "clip": clip,
            "unit": unit,
            "model": model,
            "options": dict(options or {}),
            "sends": sends,
            "placement": placement,
            "batch": _validate.integer(batch, "batch", low=1),
        }
        self.mechanism = mechanism
        self.clients_per_round = clients_per_round
        self.rounds_per_client = rounds_per_client
        self.minimum = _validate.integer(minimum, "minimum", low=1)
        self.weighted = weighted
        self.enhance = enhance
        self.adapt_ranges = adapt_ranges
        self.range_margin, self.widest = _validate.positive(range_margin, "range_margin"), widest
        self.server_rate = _validate.positive(server_rate, "server_rate")
        self.mixer = mixer
        self.delays = {"noisette-spread": float(spread), "noisette-slowest": float(slowest)}
        self.state = None if state is None else Path(state)
        self.in_flight = _validate.integer(in_flight, "in_flight", low=1)
        self.history: History | None = None
        self.timeout = 3600.0
        self._dtypes: dict[str, Any] = {}
        self._asked: list[int] = []
        self._offset: int  # set by `begin`
        self._context: str

    @property
    def run(self) -> History:
        """What has happened so far."""
        if self.history is None:
            raise RuntimeError("The run has not begun: call start().")
        return self.history

    def prospect(self, rounds: int) -> Prospect | None:
        """Return whether this many rounds can learn; None where nobody has said how many clients a round has."""
        if self.clients_per_round is None:
            return None
        terms, layout = self.run.terms, self.run.layout
        noise = layout.spread(terms.channel(layout).noise()) / math.sqrt(self.clients_per_round)
        steps = 1 if terms.sends == "weights" else rounds  # weights are sent anew in every round
        return Prospect.of(noise, dims=layout.dims, reach=terms.clip.reach(layout), rounds=steps)

    def guarantee(self) -> Lines:
        """Return the three lines of what clients were asked so far; of the whole run as planned before it begins."""
        run = self.run
        if run.largest_part == 0:
            return run.terms.lines(run.layout)
        return run.terms.lines(run.layout, rounds=run.largest_part, clients=max(1, run.smallest_round))

    def start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord,
        num_rounds: int = 3,
        timeout: float = 3600,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: Callable[[int, ArrayRecord], MetricRecord | None] | None = None,
    ) -> Result:
        """Run the federation, from where the file ``state`` says it stopped."""
        self.timeout = timeout
        arrays = self.begin(initial_arrays, num_rounds)
        left = num_rounds - self.run.done
        for line in str(self.run.terms.lines(self.run.layout)).splitlines():
            _log.info("\t%s", line)
        prospect = self.prospect(num_rounds)
        if prospect is not None and prospect.hopeless:
            _log.warning("noisette: this run is %s", prospect.verdict)
        if left <= 0:
            _log.info("noisette: all %d rounds are done; nothing is asked", num_rounds)
            result = Result()
            result.arrays = arrays
            return result
        shifted = None if evaluate_fn is None else lambda number, model: evaluate_fn(number + self._offset, model)
        streaming = StreamingGrid(grid, self.in_flight)
        return super().start(streaming, arrays, left, timeout, train_config, evaluate_config, shifted)

    def begin(self, initial_arrays: ArrayRecord, num_rounds: int) -> ArrayRecord:
        """Fix the terms of the run, or take them from the file of a run that stopped; return the model to go on with.

        For those who call `configure_train` and `aggregate_train` themselves; `start` calls it.
        """
        named = {name: array.numpy() for name, array in initial_arrays.items()}
        layout = ModelLayout.of(named)
        self._dtypes = {name: array.dtype for name, array in named.items()}
        rounds = min(num_rounds, self.rounds_per_client or num_rounds)
        stored = History.load(self.state) if self.state is not None and self.state.exists() else None
        run = secrets.token_hex(8) if stored is None else stored.terms.run
        # locally the number of clients counts only for what a shuffler would add
        clients = self.minimum if self.mixer is not None else self.clients_per_round or self.minimum
        mechanism = chosen(self.mechanism, layout.dims, self.asked_terms["clip"].shape)
        terms = Terms.for_target(
            run, mechanism, layout, rounds=rounds, clients=clients, **self.target, **self.asked_terms
        )
        if stored is None:
            self.history = History(terms, layout, weights=layout.flatten(named))
        else:
            if stored.terms.key(stored.layout) != terms.key(layout):
                raise ValueError(
                    f"{self.state} holds a run with other terms or another model: {stored.terms.spec()}. "
                    "Start again with the same terms, or choose another file."
                )
            self.history = stored
            _log.info("noisette: going on after round %d", stored.done)
        self._offset, self._context = self.run.done, self.run.terms.key(layout)
        return self._record(self.run.weights)

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Ask some clients: those first that were asked least often."""
        number, run = server_round + self._offset, self.run
        self._asked = self._sample(grid, number)
        again = set(run.pending)
        for node in self._asked:
            run.taken_part[node] = run.taken_part.get(node, 0) + (node not in again)
        run.pending = list(self._asked)
        self._save()
        config["server-round"], config[TERMS] = number, run.terms.to_json()
        config.update(self.delays)
        record = RecordDict({self.arrayrecord_key: arrays, self.configrecord_key: config})
        return self._construct_messages(record, self._asked, MessageType.TRAIN)

    def _sample(self, grid: Grid, number: int) -> list[int]:
        """Return the clients of a round; those of a round that was interrupted are asked again."""
        run = self.run
        # who is there is counted after the wait for enough of them, not before
        _, available = sample_nodes(grid, max(self.min_available_nodes, self.minimum), 1)
        wanted = self.clients_per_round or max(int(len(available) * self.fraction_train), 1)
        there = set(available)
        known = [node for node in run.pending if node in there]
        if known:
            return known
        chosen = draw(available, run.taken_part, number=wanted, most=run.terms.rounds)
        _log.info("configure_train: sampled %d clients (out of %d)", len(chosen), len(available))
        if len(chosen) < wanted:
            _log.warning(
                "noisette: round %d asks %d clients, not %d: the others have taken part %d times, the most that was "
                "promised them",
                *(number, len(chosen), wanted, run.terms.rounds),
            )
        return chosen

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Add up the reports of a round as they come, and release their mean if there are enough."""
        number, run = server_round + self._offset, self.run
        channel, asked = run.terms.channel(run.layout), set(self._asked)
        aggregator = Aggregator(channel, minimum=self.minimum)
        rejected: list[dict[str, Any]] = []
        failed = answered = 0
        reasons: list[str] = []  # why clients sent nothing: the first few that differ
        for reply in replies:
            node = reply.metadata.src_node_id
            if reply.has_error():
                failed += 1
                reason = str(reply.error.reason)
                if reason not in reasons and len(reasons) < _MOST_REASONS:
                    reasons.append(reason)
                _log.info("noisette: client %d sent no report: %s", node, reason)
                continue
            answered += 1
            try:
                if node not in asked:
                    raise RejectedReport("it was not asked in this round: leave it out")
                self._take(reply, number, aggregator)
            except Exception as error:  # whatever a client sends must not end the run of the others
                rejected.append({"client": node, "reason": str(error)[:_LONGEST_REASON]})
                _log.warning("noisette: report of client %d left out: %s", node, error)
        strange = self._mixed(number, aggregator)
        missing = len(self._asked) - answered - failed
        if missing > 0:
            _log.warning("noisette: %d clients never answered; the round goes on without them", missing)
        released = self._release(number, aggregator)
        entry: dict[str, Any] = {
            "round": number,
            "asked": len(self._asked),
            "counted": aggregator.counted,
            "failed": failed,
            "reasons": reasons,
            "missing": missing,
            "rejected": rejected,
            "rejected_mixed": strange,
            "released": released,
            "clip": run.terms.clip.spec(),
        }
        run.rounds.append(entry)
        run.pending = []
        entry["lines"] = self.guarantee().spec()
        if released and self.adapt_ranges:
            self._adapt(channel.layout)
        self._save()
        _log.info("noisette: round %d, %d of %d reports counted", number, aggregator.counted, len(self._asked))
        for line in str(self.guarantee()).splitlines():
            _log.info("\t%s", line)
        metrics = MetricRecord({"reports": aggregator.counted, "rejected": len(rejected) + strange})
        return (self._record(run.weights) if released else None), metrics

    def _take(self, reply: Message, number: int, aggregator: Aggregator) -> None:
        """Add one client's reply to the round."""
        node, run = reply.metadata.src_node_id, self.run
        arrays = list(reply.content.array_records.values())
        about: dict[str, Any] = dict(reply.content.config_records.get("noisette", {}))
        if len(arrays) != 1 or list(arrays[0]) != [REPORT]:
            raise RejectedReport("it holds no private report: add LocalPrivacy to the mods of the client app")
        if about.get("round") != number or about.get("run") != self._context:
            raise RejectedReport(f"it belongs to round {about.get('round')} of run {about.get('run')}: leave it out")
        payload = arrays[0][REPORT].numpy()
        if self.mixer is not None:
            if node in aggregator.senders:
                raise RejectedReport(
                    f"Client {node} has sent a report in this round already. Send one report a round: "
                    "only the first counts."
                )
            self.mixer.offer(node, payload, aggregator.channel, self._packets, self._context, number)
            aggregator.senders.add(node)
            return
        weight = 1.0
        if self.weighted:
            metrics: dict[str, Any] = dict(next(iter(reply.content.metric_records.values()), {}))
            weight = _weight(metrics, self.weighted_by_key)
        if run.terms.placement == "last-step":
            aggregator.add_plain(payload, sender=node, weight=weight)
        else:
            aggregator.add(payload, sender=node, weight=weight)

    @property
    def _packets(self) -> PacketLayout:
        return self.run.terms.channel(self.run.layout).packets(self.run.terms.batch)

    def _mixed(self, number: int, aggregator: Aggregator) -> int:
        """Add what the shuffler brings; return how many packets nobody can have sent."""
        if self.mixer is None:
            return 0
        refused = 0
        for fragments in self.mixer.collect(self._packets, self._context, number, timeout=self.timeout):
            refused += fragments.rejected + aggregator.add_block(fragments.position, fragments.values)
        if refused:
            _log.warning("noisette: %d packets from the shuffler left out: nobody can have sent them", refused)
        return refused

    def _release(self, number: int, aggregator: Aggregator) -> bool:
        """Move the model by the mean of the round, if there are reports enough."""
        run = self.run
        try:
            estimate = aggregator.estimate()
        except TooFew as error:
            _log.warning("noisette: round %d is not released: %s", number, error)
            return False
        mean = enhanced(estimate, aggregator.channel, self.enhance)
        assert run.weights is not None
        goal = mean if run.terms.sends == "weights" else run.weights + mean
        run.weights = run.weights + self.server_rate * (goal - run.weights)
        return True

    def _adapt(self, layout: ModelLayout) -> None:
        """Compute the ranges of the next round from the noisy model."""
        run = self.run
        assert isinstance(run.terms.clip, Ranges)
        assert run.weights is not None
        clip = Ranges.adapted(layout, run.weights, run.terms.clip, margin=self.range_margin, widest=self.widest)
        run.terms = replace(run.terms, clip=clip)

    def _record(self, weights: FloatArray | None) -> ArrayRecord:
        """Return the model as Flower sends it, every layer in its own type."""
        assert weights is not None
        layers = self.run.layout.unflatten(weights)
        cast = {name: as_dtype(layer, self._dtypes.get(name, np.float32)) for name, layer in layers.items()}
        return ArrayRecord({name: Array(layer) for name, layer in cast.items()})

    def _save(self) -> None:
        if self.state is not None:
            self.run.save(self.state)

    def summary(self) -> None:
        """Log the terms, after what FedAvg logs."""
        super().summary()
        _log.info("\t└──> Privacy: %s, %s", self.mechanism, self.target)


def _weight(metrics: Mapping[str, Any], key: str) -> float:
    """Return the weight that a client published."""
    if key not in metrics:
        raise RejectedReport(f"it has no weight: state {key!r} in public_metrics of the client's LocalPrivacy")
    weight = _validate.positive(metrics[key], key)
    if weight > _MOST_WEIGHT:
        raise RejectedReport(
            f"Expected a weight of at most {_MOST_WEIGHT:g}, got {weight:g}: it would outweigh all others."
        )
    return weight
