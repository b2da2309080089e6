"""The client's side on Flower: a mod that lets nothing out but private reports, within the client's own budget.

The sender of a request may try to learn something about the client, so an answer is made in an order that gives nothing
away. The request is judged, and the budget is debited, before the app runs: whether a request is refused, and for
which reason, depends on the requests alone. After that nothing is refused. Whatever the app does, the answer is a
private report of the same kind; an update that is missing or cannot be used is reported as a zero update.
"""

from __future__ import annotations

import logging
import math
import os
import threading
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Error, Message, MessageType, MetricRecord, RecordDict

from noisette import _validate
from noisette._validate import FloatArray
from noisette.accounting import AlreadyDebited, BudgetExceeded
from noisette.federated.client.budget import Desk, NodeBudget
from noisette.federated.layout import ModelLayout
from noisette.federated.lines import TrustModel
from noisette.federated.terms import Placement, Terms
from noisette.guarantees import PrivacyWarning

TERMS = "noisette"  # key of the terms in the server's config
REPORT = "report"  # name of the array that holds a report
BEFORE_LAST_STEP = "before-last-step"  # record with the weights that the last local step started from

# the reasons that a server may get instead of a report; details are in the node's own log
NOT_TRAINING = "only training is answered, as other replies would tell of private data: evaluate on the server"
NOT_UNDERSTOOD = "the request holds no model and terms that a client can answer: use PrivateFedAvg of the same version"
NOT_AGREED = (
    "the client does not accept the placement, options or number of mixed reports: ask for those it was set up with"
)
NOT_AFFORDED = "the client's budget does not cover these terms: lower epsilon or the number of rounds"
ANSWERED = "the client has answered this round, or all rounds of this run that were paid for: ask other clients"
NOT_READY = "the client cannot keep its budget, or its settings are wrong: ask its operator to look at its log"
NOT_SENT = "the shuffler did not take the report"
REFUSALS = (NOT_TRAINING, NOT_UNDERSTOOD, NOT_AGREED, NOT_AFFORDED, ANSWERED, NOT_READY, NOT_SENT)

_OF_THE_NODE = ("ledger", "epsilon", "delta")  # keys of a node's own config
_FAILED_PRECONDITION = 6  # Flower's code for a mod that cannot go on
_log = logging.getLogger("flwr")

PublicMetrics = Mapping[str, float] | Callable[[Mapping[str, Any]], Mapping[str, float]]


class _Refused(Exception):
    """A request that is not answered, for one of the reasons above."""


class LocalPrivacy:
    """A Flower mod that replaces what a client has learnt by a private report about it.

    The server's `PrivateFedAvg` sends terms: mechanism, budget, clip, rounds. This mod computes what they come to and
    debits it from the client's own ledger before the app runs; if the budget does not allow it, nothing is sent. The
    update is clipped and privatised with cryptographic randomness, and everything else is taken off the reply: metrics
    are about private data too. Replies to anything but training are withheld.

    *Guarantee*: against a server that sends whatever requests it likes. A refusal is one of `REFUSALS` and depends on
    the requests alone. An app that raises, returns an error, nothing, other layers or numbers that are not finite is
    answered for by a private report of a zero update, and what it raised goes to the node's log only. Not covered is
    what this mod cannot see: the time that an answer takes unless ``deadline`` is given, an app that ends its own
    process, code of the app outside the mod (its import and its lifespan function), and an app that is itself hostile.

    ``ledger`` is a file on the client's disk; next to it the last report is kept, so that a server that asks again gets
    the same report and not a second release. On Flower the app comes from whoever starts the run: who operates a node
    has the last word by ``flower-supernode --node-config 'ledger="..." epsilon=8.0 delta=1e-6'``, which names the file
    and can only lower epsilon and delta. ``public_metrics`` are numbers that are sent with every report, such as
    ``{"num-examples": 600}``, or a function that returns them from the node's config; they are fixed before a request
    is looked at, as a number that the app computes would depend on the data. With ``deadline`` every report leaves
    that many seconds after its request came, and an app that has not finished by then has given no update. With
    ``shuffler``, a function from the node's `Context` to a `noisette.shuffler.Sender`, the report goes there and the
    server gets a receipt only; a client that trusts the shuffler says ``model="shuffled"`` and the least number of
    clients that it mixes, ``minimum_set``. ``placement="last-step"`` is the noise of Duan 2024, chapter 6: the app must
    return its weights before the last local step as well, in a record named "before-last-step". Nothing is guaranteed
    then, and it warns.

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
        public_metrics: PublicMetrics | None = None,
        deadline: float | None = None,
        placement: Placement = "whole-update",
        shuffler: Callable[[Context], Any] | None = None,
    ) -> None:
        self.budget, self._home = NodeBudget(ledger, epsilon, delta, model, minimum_set), Path.cwd()
        self.account = account
        self.public_metrics = public_metrics if callable(public_metrics) else _public(public_metrics or {})
        self.deadline = None if deadline is None else _validate.positive(deadline, "deadline")
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
        try:
            return self._answer(message, context, call_next)
        except _Refused as refused:
            _log.warning("noisette: nothing was sent: %s", refused.__cause__ or refused)
            reason = str(refused)
        except Exception:
            _log.exception("noisette: nothing was sent")
            reason = NOT_READY
        return Message(Error(_FAILED_PRECONDITION, f"noisette: {reason}"), reply_to=message)

    def _answer(self, message: Message, context: Context, call_next: Callable[[Message, Context], Message]) -> Message:
        """Return the private reply, from what was kept or from training."""
        began = time.monotonic()
        asked, public = _Request.of(message), self._stated(context)
        desk, is_new = self._debited(asked, context)
        payload = None if is_new else desk.kept(asked.number)
        if payload is None:
            payload = self._made(asked, desk, is_new, lambda: call_next(message, context))
        if self.shuffler is not None:
            self._post(asked, desk, payload, context, time.monotonic() - began)
            payload = np.zeros(0, dtype=np.uint8)
        content = RecordDict({"arrays": ArrayRecord({REPORT: Array(payload)})})
        content["noisette"] = ConfigRecord({"round": asked.number, "run": desk.run})
        content["metrics"] = MetricRecord({**public})
        return Message(content, reply_to=message)

    def _debited(self, asked: _Request, context: Context) -> tuple[Desk, bool]:
        """Debit the round, and tell whether it is asked for the first time; refuse what the client did not agree to."""
        terms, budget = asked.terms, self._budget(context)
        too_few = "shuffled" == terms.model == budget.model and terms.clients < budget.minimum_set
        with _Otherwise(NOT_UNDERSTOOD):
            if terms.placement != self.placement or too_few or not terms.leaves_options_fixed():
                raise _Refused(NOT_AGREED)
            desk = budget.desk(self._account(context), terms, asked.layout)
        if terms.placement == "last-step":  # no budget could hold it
            return desk, desk.kept(asked.number) is None
        try:
            return desk, desk.spend(asked.number)
        except AlreadyDebited as error:
            raise _Refused(ANSWERED) from error
        except (BudgetExceeded, ValueError) as error:
            raise _Refused(NOT_AFFORDED) from error
        except Exception as error:
            raise _Refused(NOT_READY) from error

    def _made(self, asked: _Request, desk: Desk, is_new: bool, run_app: Callable[[], Message]) -> Any:
        """Return the report of a round that was debited.

        A report of a zero update is made and kept first, before anything private is looked at. It is the answer for a
        round whose report was lost, and for a second request while the app runs: it costs nothing, as it is about
        nothing. If the app gives no update, a second report of zero is made: a server that has seen the first would
        recognise it, and learn that the app failed.
        """
        nothing = np.zeros(desk.layout.dims)
        with _Otherwise(NOT_READY):
            payload = self._reported(desk, asked, nothing, None)
            desk.keep(asked.number, payload)
        if not is_new:
            return payload
        found = self._in_time(lambda: _learnt(asked, desk, run_app)) or (nothing, None)
        with _Otherwise(NOT_READY):
            try:
                payload = self._reported(desk, asked, *found)
            except Exception:
                _log.exception("noisette: the report could not be made: a zero update is reported instead")
                payload = self._reported(desk, asked, nothing, None)
        try:
            desk.keep(asked.number, payload)
        except Exception:
            _log.exception("noisette: the report could not be kept")
        return payload

    def _reported(self, desk: Desk, asked: _Request, vector: FloatArray, clean: FloatArray | None) -> Any:
        """Return what is sent about an update, of which ``clean`` is the part before the last step."""
        channel = desk.channel
        release = channel.release(vector)
        if release.clipped > 0:
            _log.info("noisette: clipping took %.1f %% of the update of round %d", 100 * release.clipped, asked.number)
        if asked.terms.placement == "last-step":  # the clean part is sent as it is: that is the flaw of this placement
            return channel.estimate(release.payload) + (0.0 if clean is None else clean)
        return release.payload

    def _in_time(self, learn: Callable[[], Any]) -> Any:
        """Return what the app gives; with a deadline not before it, and nothing if the app has not finished then."""
        if self.deadline is None:
            return learn()
        until, found = time.monotonic() + self.deadline, []
        threading.Thread(target=lambda: found.append(learn()), daemon=True).start()
        while (left := until - time.monotonic()) > 0:
            time.sleep(left)
        if not found:
            _log.error("noisette: the app had not finished after %g seconds: a zero update is reported", self.deadline)
        return found[0] if found else None

    def _post(self, asked: _Request, desk: Desk, payload: Any, context: Context, elapsed: float) -> None:
        """Send a report through the shuffler."""
        assert self.shuffler is not None
        channel = desk.channel
        with _Otherwise(NOT_SENT), self.shuffler(context) as sender:
            sender.send(
                channel.codes(payload),
                channel.packets(desk.terms.batch),
                context=desk.run,
                number=asked.number,
                spread=asked.spread,
                slowest=asked.slowest,
                elapsed=elapsed,
                minimum=self._budget(context).minimum_set,
            )

    def _budget(self, context: Context) -> NodeBudget:
        """Return the budget of this node: its own file where it names one, and no more than it allows."""
        own: dict[str, Any] = {key: value for key, value in context.node_config.items() if key in _OF_THE_NODE}
        with _Otherwise(NOT_READY):
            for key in ("epsilon", "delta"):
                if key in own:
                    own[key] = min(_validate.number(own[key], f"{key} of the node"), getattr(self.budget, key))
            if "ledger" in own:
                own["ledger"] = self._home / str(own["ledger"])
            return replace(self.budget, **own) if own else self.budget

    def _account(self, context: Context) -> str:
        """Return the name of this client in its ledger: simulated clients share a file and have a number each."""
        if self.account is not None:
            return self.account
        number = context.node_config.get("partition-id")
        return "node" if number is None else f"node-{number}"

    def _stated(self, context: Context) -> dict[str, float]:
        """Return the metrics that this node has declared public, whatever is asked."""
        if not callable(self.public_metrics):
            return dict(self.public_metrics)
        with _Otherwise(NOT_READY):
            return _public(self.public_metrics(dict(context.node_config)))


@dataclass(frozen=True)
class _Request:
    """What a server asks for: everything in a message that an answer depends on."""

    terms: Terms
    number: int
    layout: ModelLayout
    start: FloatArray
    spread: float
    slowest: float

    @classmethod
    def of(cls, message: Message) -> _Request:
        """Read a message, or refuse it."""
        if message.metadata.message_type.split(".")[0] != MessageType.TRAIN:
            raise _Refused(NOT_TRAINING)
        with _Otherwise(NOT_UNDERSTOOD):
            records = message.content.config_records.values()
            config: dict[str, Any] = {key: value for record in records for key, value in record.items()}
            text, number = config.get(TERMS), config.get("server-round")
            if not isinstance(text, str) or not isinstance(number, int) or isinstance(number, bool) or number < 1:
                raise ValueError("The server sent no terms. Use PrivateFedAvg as its strategy.")
            [record] = message.content.array_records.values()
            arrays = _named(record)
            layout = ModelLayout.of(arrays)
            delays = [float(config.get(f"noisette-{name}", 0.0)) for name in ("spread", "slowest")]
            if not all(0 <= delay < math.inf for delay in delays):
                raise ValueError(f"Expected delays={delays} of no less than 0 seconds.")
            return cls(_read(text), number, layout, layout.flatten(arrays), *delays)


class _Otherwise:
    """A context manager that refuses with a fixed reason if anything goes wrong in it."""

    def __init__(self, reason: str) -> None:
        self.reason = reason

    def __enter__(self) -> None:
        """Do nothing."""

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        """Turn an error into the refusal."""
        if isinstance(error, Exception) and not isinstance(error, _Refused):
            raise _Refused(self.reason) from error


def _learnt(asked: _Request, desk: Desk, run_app: Callable[[], Message]) -> tuple[FloatArray, FloatArray | None] | None:
    """Run the app and return its update; None, with a line in the node's log, if it gives none that can be used.

    With the placement "last-step" the second vector is the part of the update before the last step.
    """
    try:
        records = dict(run_app().content.array_records)
        with np.errstate(all="ignore"):
            before = records.pop(BEFORE_LAST_STEP, None)
            last_step = asked.terms.placement == "last-step"
            if len(records) != 1 or (before is None) == last_step:
                wanted = f"'arrays' and {BEFORE_LAST_STEP!r}" if last_step else "one"
                raise ValueError(f"Expected the app to return {wanted} as records of arrays, got {list(records)}.")
            vector, clean = desk.layout.flatten(_named(next(iter(records.values())))), None
            if before is not None:
                clean = desk.layout.flatten(_named(before))
                vector, clean = vector - clean, clean - asked.start
            elif asked.terms.sends == "update":
                vector -= asked.start
            if not (np.isfinite(vector).all() and (clean is None or np.isfinite(clean).all())):
                raise ValueError("Expected an update of finite numbers.")
            return vector, clean
    except KeyboardInterrupt:  # the node's operator stops it
        raise
    except BaseException:  # whatever else: nothing that an app raises may be seen outside
        _log.exception("noisette: the app gave no update that can be reported: a zero update is reported instead")
        return None


_read = lru_cache(maxsize=8)(Terms.read)  # all clients of a round that share a process get the same terms


def _named(record: ArrayRecord) -> dict[str, Any]:
    return {name: array.numpy() for name, array in record.items()}


def _public(metrics: Any) -> dict[str, float]:
    """Check the numbers that a node declares public."""
    if not isinstance(metrics, Mapping):
        raise TypeError(
            f"Expected public_metrics={metrics!r} to hold numbers by name, e.g. {{'num-examples': 600}}: a metric that "
            "the app computes would tell the server of private data."
        )
    return {str(key): _validate.number(value, f"public metric {key!r}") for key, value in metrics.items()}
