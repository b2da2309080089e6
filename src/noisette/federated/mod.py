"""The client's side on Flower: a mod that lets nothing out but private reports, within the client's own budget."""

from __future__ import annotations

import logging
import os
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Error, Message, MessageType, MetricRecord, RecordDict

from noisette import _validate
from noisette.accounting import AlreadyDebited, BudgetExceeded, LedgerError
from noisette.federated.budget import Desk, NodeBudget
from noisette.federated.layout import Layout
from noisette.federated.lines import TrustModel
from noisette.federated.terms import Placement, Terms
from noisette.guarantees import PrivacyWarning
from noisette.shuffler import Layout as Packets

TERMS = "noisette"  # key of the terms in the server's config
REPORT = "report"  # name of the array that holds a report
BEFORE_LAST_STEP = "before-last-step"  # record with the weights that the last local step started from

_OF_THE_NODE = ("ledger", "epsilon", "delta")  # keys of a node's own config
_FAILED_PRECONDITION = 6  # Flower's code for a mod that cannot go on
_log = logging.getLogger("flwr")


class LocalPrivacy:
    """A Flower mod that replaces what a client has learnt by a private report about it.

    The server's `PrivateFedAvg` sends terms: mechanism, budget, clip, rounds. This mod computes what they come to and
    debits it from the client's own ledger; if the budget does not allow it, nothing is sent. The update is clipped and
    privatised with cryptographic randomness, and everything else is taken off the reply: metrics are about private
    data too, and only those named in ``public_metrics`` stay. Replies to anything but training are withheld.

    ``ledger`` is a file on the client's disk; next to it the last report is kept, so that a server that asks again gets
    the same report and not a second release. On Flower the app comes from whoever starts the run: who operates a node
    has the last word by ``flower-supernode --node-config 'ledger="..." epsilon=8.0 delta=1e-6'``, which names the file
    and can only lower epsilon and delta. With ``shuffler``, a function from the node's `Context` to a
    `noisette.shuffler.Sender`, the report goes there and the server gets a receipt only; a client that trusts the
    shuffler says ``model="shuffled"`` and the least number of clients that it mixes, ``minimum_set``.
    ``placement="last-step"`` is the noise of Duan 2024, chapter 6: the app must return its weights before the last
    local step as well, in a record named "before-last-step". Nothing is guaranteed then, and it warns.

    Adding it to an app is one line: ``ClientApp(mods=[LocalPrivacy(8.0, 1e-6, ledger="budget.db")])``.
    """

    def __init__(
        self,
        epsilon: float,
        delta: float = 0.0,
        *,
        ledger: str | os.PathLike[str],
        model: TrustModel = "local",
        minimum_set: int = 1,
        account: str | None = None,
        public_metrics: Sequence[str] = (),
        placement: Placement = "whole-update",
        shuffler: Callable[[Context], Any] | None = None,
    ) -> None:
        self.budget = NodeBudget(ledger, epsilon, delta, model, minimum_set)
        self.account = account
        self.public_metrics = tuple(public_metrics)
        self.placement = placement
        self.shuffler = shuffler
        if model == "shuffled" and shuffler is None:
            raise ValueError(
                "Expected shuffler with model='shuffled': without one the server sees whose report it is, and only the "
                "local guarantee holds. In a simulation say model='local' on the client."
            )
        if placement not in ("whole-update", "last-step"):
            raise ValueError(f"Expected placement={placement!r} to be 'whole-update' or 'last-step'.")
        if placement == "last-step":
            warnings.warn(
                "placement='last-step' privatises the last local step only; the steps before it leave the client in "
                "the clear, and no finite epsilon holds. Use 'whole-update' unless you reproduce Duan 2024, chapter 6.",
                PrivacyWarning,
                stacklevel=2,
            )

    def __call__(self, message: Message, context: Context, call_next: Callable[[Message, Context], Message]) -> Message:
        """Answer a message of the server, training being the only thing that is answered."""
        if message.metadata.message_type.split(".")[0] != MessageType.TRAIN:
            return _refused(message, "only training is answered: other replies would tell of private data unprotected")
        try:
            return self._answer(message, context, call_next)
        except (BudgetExceeded, AlreadyDebited, LedgerError, ValueError, TypeError, OSError) as error:
            return _refused(message, str(error))

    def _answer(self, message: Message, context: Context, call_next: Callable[[Message, Context], Message]) -> Message:
        """Return the private reply, from what was kept or from training."""
        terms, number = _terms(message)
        if terms.placement != self.placement:
            raise ValueError(f"The server asks for placement={terms.placement!r}, this client for {self.placement!r}.")
        budget = self._budget(context)
        if terms.model == "shuffled" and budget.model == "shuffled" and terms.clients < budget.minimum_set:
            raise ValueError(f"The server mixes {terms.clients} reports, this client wants {budget.minimum_set}.")
        start = _arrays(message)
        desk = budget.desk(self._account(context), terms, Layout.of(start))
        payload = desk.kept(number)
        public: dict[str, Any] = {}
        began = time.monotonic()
        if payload is None:
            reply = call_next(message, context)
            if reply.has_error():
                return reply
            public = self._public(reply)
            payload = self._release(desk, number, start, reply)
            desk.keep(number, payload)
        if self.shuffler is not None:
            self._post(desk, number, payload, context, message, time.monotonic() - began)
            payload = np.zeros(0, dtype=np.uint8)
        content = RecordDict({"arrays": ArrayRecord({REPORT: Array(payload)})})
        content["noisette"] = ConfigRecord({"round": number, "run": desk.run})
        content["metrics"] = MetricRecord(public)
        return Message(content, reply_to=message)

    def _release(self, desk: Desk, number: int, start: dict[str, Any], reply: Message) -> Any:
        """Debit the budget, and then make the report."""
        terms, layout = desk.terms, desk.layout
        records = dict(reply.content.array_records)
        last_step = terms.placement == "last-step"
        before = records.pop(BEFORE_LAST_STEP, None)
        if len(records) != 1 or (before is None) == last_step:
            wanted = f"'arrays' and {BEFORE_LAST_STEP!r}" if last_step else "one"
            raise ValueError(f"Expected the app to return {wanted} as records of arrays, got {list(records)}.")
        vector = layout.flatten(_named(next(iter(records.values()))))
        channel = desk.channel
        if before is not None:
            clean = layout.flatten(_named(before))
            # the clean part is sent as it is: that is the flaw of this placement
            return clean + channel.estimate(channel.privatize(vector - clean).payload) - layout.flatten(start)
        if terms.sends == "update":
            for name, part in layout.parts():
                vector[part] -= start[name].reshape(-1)
        desk.spend(number)
        release = channel.release(vector)
        if release.clipped > 0:
            _log.info("noisette: clipping took %.1f %% of the update of round %d", 100 * release.clipped, number)
        return release.payload

    def _post(self, desk: Desk, number: int, payload: Any, context: Context, message: Message, elapsed: float) -> None:
        """Send a report through the shuffler."""
        assert self.shuffler is not None
        config = _config(message)
        channel, dims = desk.channel, desk.layout.dims
        with self.shuffler(context) as sender:
            sender.send(
                channel.unpack(payload),
                Packets(dims, min(desk.terms.batch, dims) if channel.answers > 1 else dims),
                context=desk.run,
                number=number,
                spread=float(config.get("noisette-spread", 0.0)),
                slowest=float(config.get("noisette-slowest", 0.0)),
                elapsed=elapsed,
            )

    def _budget(self, context: Context) -> NodeBudget:
        """Return the budget of this node: its own file where it names one, and no more than it allows."""
        own: dict[str, Any] = {key: value for key, value in context.node_config.items() if key in _OF_THE_NODE}
        for key in ("epsilon", "delta"):
            if key in own:
                own[key] = min(_validate.number(own[key], f"{key} of the node"), getattr(self.budget, key))
        return replace(self.budget, **own) if own else self.budget

    def _account(self, context: Context) -> str:
        """Return the name of this client in its ledger: simulated clients share a file and have a number each."""
        if self.account is not None:
            return self.account
        part = context.node_config.get("partition-id")
        return "node" if part is None else f"node-{part}"

    def _public(self, reply: Message) -> dict[str, Any]:
        """Return the metrics that were declared public."""
        found = {key: value for record in reply.content.metric_records.values() for key, value in record.items()}
        return {key: value for key, value in found.items() if key in self.public_metrics}


def _terms(message: Message) -> tuple[Terms, int]:
    """Return what the server asks for, and the number of the round."""
    config = _config(message)
    text, number = config.get(TERMS), config.get("server-round")
    if not isinstance(text, str) or not isinstance(number, int) or isinstance(number, bool) or number < 1:
        raise ValueError("The server sent no terms. Use noisette's PrivateFedAvg as its strategy.")
    return _read(text), number


_read = lru_cache(maxsize=8)(Terms.read)  # all clients of a round that share a process get the same terms


def _config(message: Message) -> dict[str, Any]:
    return {key: value for record in message.content.config_records.values() for key, value in record.items()}


def _arrays(message: Message) -> dict[str, Any]:
    """Return the model that the server sent."""
    records = list(message.content.array_records.values())
    if len(records) != 1:
        raise ValueError(f"Expected one record of arrays from the server, got {len(records)}.")
    return _named(records[0])


def _named(record: ArrayRecord) -> dict[str, Any]:
    return {name: array.numpy() for name, array in record.items()}


def _refused(message: Message, reason: str) -> Message:
    """Return an answer that holds a reason and nothing else."""
    _log.warning("noisette: nothing was sent: %s", reason)
    return Message(Error(_FAILED_PRECONDITION, f"noisette: {reason}"), reply_to=message)
