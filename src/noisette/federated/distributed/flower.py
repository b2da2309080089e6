"""Both sides on Flower: the mod that runs Flower's secure aggregation on a client, and the server's workflow.

Flower has SecAgg+ as a mod of its older interface, `secaggplus_mod`, and a workflow. It protects clients from a server
that follows the protocol and from clients in league with it, fewer than the threshold. A server that breaks the
protocol, by answering with keys of its own in place of the clients' or by showing them different lists of survivors, is
outside of what it withstands; `DistributedPrivacy` refuses the lies that a client can see by itself.

A client that breaks the protocol learns nothing by it, and can spoil a sum: whoever adds numbers that nobody sees can
add any. What is not a reply at all counts as none, and a sum that cannot be one moves no model, so that no client ends
the run of the others.

Masks are ours. Flower's come from a generator with 32 bits of seed, to which it folds the 256 bits of a key. One such
mask is all that hides the vector of a client that is given up after the vector has come, and 2^32 seeds are tried in
hours. Both sides here draw masks from the whole key, by SHAKE-128, in copies of Flower's two modules: Flower's own stay
as they are, and do not understand the masks of these.
"""

from __future__ import annotations

import hashlib
import importlib.util
import logging
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from flwr.app import Context, Error, Message, MessageType
from flwr.common import (
    Code,
    FitRes,
    Parameters,
    Status,
    bytes_to_ndarray,
    ndarrays_to_parameters,
    parameters_to_ndarrays,
)
from flwr.common.secure_aggregation.secaggplus_constants import RECORD_KEY_CONFIGS, RECORD_KEY_STATE, Key, Stage
from flwr.compat.common import recorddict_compat
from flwr.server.strategy import FedAvg
from flwr.server.workflow import DefaultWorkflow

from noisette import _validate
from noisette.accounting import AlreadyDebited, BudgetExceeded, Ledger
from noisette.federated.client.budget import RoundLog
from noisette.federated.distributed.noise import MODULUS, DistributedPlan
from noisette.federated.layout import ModelLayout

_log = logging.getLogger("flwr")
_WEIGHT = 1000  # of every client, for Flower: the same, so that its mean is a plain one
_FAILED_PRECONDITION = 9

NOT_UNDER_AGGREGATION = "the request is not one of a secure aggregation that this client agreed to"
NOT_AFFORDED = "the budget does not allow this round"
NOT_READY = "the report could not be made"


def masks(seed: bytes, modulus: int, shapes: list[tuple[int, ...]]) -> list[npt.NDArray[np.int64]]:
    """Return arrays of numbers below 2^32 that follow from all bits of a key; without it they look uniform."""
    if modulus != MODULUS:
        raise ValueError(f"Expected numbers modulo 2^32, got {modulus}.")
    sizes = [math.prod(shape) for shape in shapes]
    whole = np.frombuffer(hashlib.shake_128(seed).digest(4 * sum(sizes)), dtype="<u4").astype(np.int64)
    parts = np.split(whole, np.cumsum(sizes)[:-1])
    return [layer.reshape(shape) for layer, shape in zip(parts, shapes, strict=True)]


def _with_our_masks(name: str) -> Any:
    """Return a copy of a module of Flower that draws masks by `masks`."""
    spec = importlib.util.find_spec(name)
    assert spec is not None, f"Flower has no {name}"
    assert spec.loader is not None, f"Flower's {name} has no source"
    module: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert callable(module.pseudo_rand_gen), f"Flower's {name} draws its masks elsewhere now"
    module.pseudo_rand_gen = masks
    return module


_CLIENT = _with_our_masks("flwr.client.mod.secure_aggregation.secaggplus_mod")
_SERVER = _with_our_masks("flwr.server.workflow.secure_aggregation.secaggplus_workflow")


class DistributedPrivacy:
    """A Flower mod: runs secure aggregation, and lets integers with a share of noise into it and nowhere else.

    ``ClientApp(client_fn=..., mods=[DistributedPrivacy(plan, ledger="budget.db", colluding=5)])``

    The whole run is debited from the ledger before the first update is computed, and no more than ``plan.rounds``
    rounds are answered. The client looks at the parameters of the aggregation: every client is everybody's neighbour,
    and no sum of fewer than ``plan.survivors`` honest clients is opened if at most ``colluding`` work for the server.
    Where an app raises, or returns numbers that are not finite, a zero update is sent in its place. All that is ever
    sent is part of an aggregation: whatever else is asked for is refused, in words that depend on the request alone.

    On Flower the app, and its plan, come from whoever starts the run. The operator of a node has the last word, by
    ``flower-supernode --node-config 'ledger="..." epsilon=8.0 delta=1e-6 colluding=100'``: it names the file, what all
    runs together may spend, and how many clients may work for the server, which an app can raise and not lower. A node
    that says nothing takes part in one run.
    """

    def __init__(self, plan: DistributedPlan, *, ledger: str | os.PathLike[str], colluding: int) -> None:
        self.plan = plan
        self.ledger, self._home = Path(ledger).absolute(), Path.cwd()
        self.colluding = _validate.integer(colluding, "colluding", low=0)

    def __call__(self, message: Message, context: Context, call_next: Callable[[Message, Context], Message]) -> Message:
        """Take the next step of a secure aggregation; refuse every other request."""
        try:
            if message.metadata.message_type != MessageType.TRAIN:
                raise _NotAgreed
            self._check_lists(message, context)
            made: Message = _CLIENT.secaggplus_mod(
                message, context, lambda asked, own: self._answer(asked, own, call_next)
            )
            return made
        except (AlreadyDebited, BudgetExceeded):
            reason = NOT_AFFORDED
        except _NotReady:
            reason = NOT_READY
        except Exception:  # Flower's own, of a request that is out of place
            _log.exception("noisette: nothing was sent")
            reason = NOT_UNDER_AGGREGATION
        return Message(Error(_FAILED_PRECONDITION, f"noisette: {reason}"), reply_to=message)

    def _check_lists(self, message: Message, context: Context) -> None:
        """Refuse lists that name a client twice, or not all of them, and to give shares of keys twice.

        Flower counts the names alone. A server that repeats a name would have a client masked towards few others; one
        that calls a client both active and dead would get both halves of its keys. Who is left and who is not are
        together those that this client is masked towards, and itself, which is left.
        """
        asked: Any = message.content.config_records[RECORD_KEY_CONFIGS]
        stage, named = asked[Key.STAGE], list[Any]()
        if stage == Stage.COLLECT_MASKED_VECTORS:
            named = [context.node_id, *asked[Key.SOURCE_LIST]]
        elif stage == Stage.UNMASK:
            named = [*asked[Key.ACTIVE_NODE_ID_LIST], *asked[Key.DEAD_NODE_ID_LIST]]
        if len(set(named)) < len(named):
            raise _NotAgreed
        if stage == Stage.UNMASK:
            state: Any = context.state.config_records[RECORD_KEY_STATE]
            known = set(state["rd_seed_share_dict:K"])  # whose shares this client holds
            if set(named) != known or context.node_id not in asked[Key.ACTIVE_NODE_ID_LIST]:
                raise _NotAgreed
            seed: Any = state["rd_seed"]
            number = int.from_bytes(hashlib.sha256(b"opened" + seed).digest()[:8], "big")
            if not self._log(context, "opened").note(number, self.plan.rounds):
                raise AlreadyDebited("The shares of this aggregation were given. Begin a new round.")

    def _answer(self, message: Message, context: Context, call_next: Callable[[Message, Context], Message]) -> Message:
        """Debit, train, and return integers in place of the weights."""
        start = self._asked(message, context)
        self._debit(context, message)
        update = np.zeros(self.plan.dims)
        try:
            found = recorddict_compat.recorddict_to_fitres(call_next(message, context).content, keep_input=True)
            layout = ModelLayout.of(start)
            with np.errstate(all="ignore"):
                update = layout.flatten(parameters_to_ndarrays(found.parameters)) - layout.flatten(start)
        except KeyboardInterrupt:
            raise
        except BaseException:  # nothing that an app raises may be seen outside
            _log.exception("noisette: the app gave no update: a zero update is reported instead")
        numbers = self.plan.encode(update).astype(np.float64)
        sent = FitRes(Status(Code.OK, ""), ndarrays_to_parameters([numbers]), _WEIGHT, {})
        return Message(recorddict_compat.fitres_to_recorddict(sent, keep_input=False), reply_to=message)

    def _asked(self, message: Message, context: Context) -> list[Any]:
        """Return the weights to start from, of a request whose aggregation keeps what the plan rests on.

        Of two openings that differ in one client, each needs a threshold of shares of that client's keys. Together they
        are more than there are, even if those who work for the server give both.
        """
        state = dict(context.state.config_records[RECORD_KEY_STATE])
        fit = recorddict_compat.recorddict_to_fitins(message.content, keep_input=True)
        start = parameters_to_ndarrays(fit.parameters)
        clients, threshold, reach = int(state["sample_num"]), int(state["threshold"]), self.plan.reach  # type: ignore[arg-type]
        given: Any = context.node_config.get("colluding", 0)  # is checked to be a whole number
        own = _validate.integer(given, "colluding of the node", low=0)
        colluding = max(self.colluding, own)
        agreed = (
            state["share_num"] == clients
            and threshold >= self.plan.survivors + colluding
            and 2 * threshold > clients + colluding
            and state["clipping_range"] == float(reach)
            and state["target_range"] == 2 * reach
            and state["mod_range"] == MODULUS
            and state["max_weight"] == float(_WEIGHT)
            and ModelLayout.of(start).dims == self.plan.dims
        )
        if not agreed:
            raise _NotAgreed
        self.plan.check(clients)
        return start

    def _debit(self, context: Context, message: Message) -> None:
        """Debit the run once and note the round, on the disk, before the update is computed."""
        promise = self.plan.guarantee
        try:
            account, run, (path, epsilon, delta) = *self._names(context), self._limits(context)
            terms, log = {"model": promise.model, "relation": promise.relation}, self._log(context, "answered")
            with Ledger(path) as ledger:
                ledger.open_account(account, epsilon, delta, **terms)  # type: ignore[arg-type]
                log.pay(ledger, account, promise, run)
            new = log.note(int(message.metadata.group_id), self.plan.rounds)
        except (AlreadyDebited, BudgetExceeded):
            raise
        except Exception as error:
            raise _NotReady from error
        if not new:
            raise AlreadyDebited("This round was answered. Begin a new one: a second report would be a second release.")

    def _limits(self, context: Context) -> tuple[Path, float, float]:
        """Return the ledger of this node and what it may spend in all: its own where it says so, else one run."""
        own: dict[str, Any] = dict(context.node_config)
        epsilon = _validate.number(own.get("epsilon", self.plan.epsilon), "epsilon of the node")
        delta = _validate.number(own.get("delta", self.plan.delta), "delta of the node")
        return self._home / str(own.get("ledger", self.ledger)), epsilon, delta

    @staticmethod
    def _names(context: Context) -> tuple[str, str]:
        """Return the names of this client's account and of the run: simulated clients share a file."""
        number = context.node_config.get("partition-id")
        return "node" if number is None else f"node-{number}", f"distributed-{context.run_id}"

    def _log(self, context: Context, kind: str) -> RoundLog:
        """Return the list of the rounds of this run that were answered, or opened."""
        return RoundLog(f"{self._limits(context)[0]}-reports/{'-'.join(self._names(context))}-{kind}.log")


class _NotAgreed(Exception):
    """The request is not one that the client agreed to."""


class _NotReady(Exception):
    """The client cannot keep its budget."""


class DistributedFedAvg(FedAvg):
    """Federated averaging of sums that secure aggregation opened; a strategy of Flower's older interface.

    ``ServerApp(server_fn=...)`` runs it with `workflow`. Clients are not asked to evaluate.
    """

    def __init__(self, plan: DistributedPlan, initial: list[Any], *, clients_per_round: int, **fedavg: Any) -> None:
        self.plan, self.layout = plan, ModelLayout.of(initial)
        self.weights = self.layout.flatten(initial)
        self.kinds = [np.asarray(array).dtype for array in initial]
        plan.check(clients_per_round)
        super().__init__(
            fraction_fit=1e-9,
            min_fit_clients=clients_per_round,
            min_available_clients=clients_per_round,
            fraction_evaluate=0.0,
            initial_parameters=ndarrays_to_parameters(list(initial)),
            **fedavg,
        )

    def aggregate_fit(self, server_round: int, results: Any, failures: Any) -> tuple[Parameters | None, dict[str, Any]]:
        """Move the model by the noisy mean, which every result holds."""
        if not results:
            return None, {}
        [numbers] = parameters_to_ndarrays(results[0][1].parameters)
        total = numbers * len(results)
        with np.errstate(invalid="ignore"):
            whole = np.abs(total - np.rint(total)) < 1e-3  # false where it is not finite
        if not (whole & (np.abs(numbers) <= self.plan.reach)).all():
            _log.error(
                "noisette: a client broke the protocol: the sum of round %s is none, and is left out", server_round
            )
            return None, {}
        self.weights = self.weights + self.plan.mean(numbers, 1)
        layers = self.layout.unflatten(self.weights).values()
        moved = [layer.astype(kind) for layer, kind in zip(layers, self.kinds, strict=True)]
        return ndarrays_to_parameters(moved), {}


class _Aggregation(_SERVER.SecAggPlusWorkflow):  # type: ignore[misc, name-defined]
    """Flower's secure aggregation, which goes on without clients that leave at any stage or send what is no reply."""

    def __init__(self, plan: DistributedPlan, **settings: Any) -> None:
        super().__init__(**settings)
        self.plan = plan

    def __call__(self, grid: Any, context: Any) -> None:
        super().__call__(_Screen(grid, self.plan), context)

    def share_keys_stage(self, grid: Any, context: Any, state: Any) -> bool:
        """Go on with the clients that gave shares of their keys: Flower asks for shares of the others' too."""
        enough = bool(super().share_keys_stage(grid, context, state))
        left = state.sampled_node_ids = set(state.active_node_ids)
        state.nid_to_neighbours = {node: state.nid_to_neighbours[node] & left for node in left}
        return enough

    def unmask_stage(self, grid: Any, context: Any, state: Any) -> bool:
        """Lose the round, and not the run, where shares of a key are none."""
        try:
            return bool(super().unmask_stage(grid, context, state))
        except ValueError as error:  # of shares, or of the key that they make
            _log.error("noisette: a client broke the protocol: %s", error)
            return False


class _Screen:
    """The grid of an aggregation, on which a reply that none is counts as a client that left."""

    def __init__(self, grid: Any, plan: DistributedPlan) -> None:
        self.grid, self.plan = grid, plan

    def __getattr__(self, name: str) -> Any:
        return getattr(self.grid, name)

    def send_and_receive(self, messages: Any, *, timeout: float | None = None) -> list[Message]:
        """Send requests; return the replies, errors in place of those that are none."""
        asked = {message.metadata.dst_node_id: message for message in messages}
        kept, keys = list[Message](), set[bytes]()
        for reply in self.grid.send_and_receive(messages, timeout=timeout):
            request = asked.pop(reply.metadata.src_node_id, None)
            if request is None:
                continue  # nobody was asked, or it is a second answer
            if not reply.has_error():
                try:
                    self._check(request, reply, keys)
                except Exception:  # it came from outside: whatever is wrong with it
                    _log.exception("noisette: client %s sent what is no reply", reply.metadata.src_node_id)
                    kept.append(Message(Error(_FAILED_PRECONDITION, "noisette: no reply"), reply_to=request))
                    continue
            kept.append(reply)
        return kept

    def _check(self, request: Message, reply: Message, keys: set[bytes]) -> None:
        """Raise an error where a reply has not the form of its stage, or a key that somebody has."""
        asked: Any = request.content.config_records[RECORD_KEY_CONFIGS]
        given: Any = reply.content.config_records[RECORD_KEY_CONFIGS]
        stage = asked[Key.STAGE]
        if stage == Stage.SETUP:
            own = {given[Key.PUBLIC_KEY_1], given[Key.PUBLIC_KEY_2]}
            for key in own:
                _SERVER.bytes_to_public_key(key)
            good = len(own) == 2 and not own & keys
            keys |= own
        elif stage == Stage.SHARE_KEYS:
            others = {int(name) for name in asked if name != Key.STAGE} - {request.metadata.dst_node_id}
            good = len(given[Key.CIPHERTEXT_LIST]) == len(others) and _same(given[Key.DESTINATION_LIST], others)
        elif stage == Stage.COLLECT_MASKED_VECTORS:
            vectors = [bytes_to_ndarray(one) for one in given[Key.MASKED_PARAMETERS]]
            good = [vector.shape for vector in vectors] == [(1,), (self.plan.dims,)] and all(
                vector.dtype == np.int64 and vector.min() >= 0 and vector.max() < MODULUS for vector in vectors
            )
            fit = recorddict_compat.recorddict_to_fitres(reply.content, keep_input=True)
            good = good and fit.num_examples == _WEIGHT
        else:
            named = {*asked[Key.ACTIVE_NODE_ID_LIST], *asked[Key.DEAD_NODE_ID_LIST]}
            shares = given[Key.SHARE_LIST]
            # an index of four bytes, then sixteen for each block of a key
            sound = all(isinstance(share, bytes) and len(share) > 4 and len(share) % 16 == 4 for share in shares)
            good = sound and len(shares) == len(named) and _same(given[Key.NODE_ID_LIST], named)
        if not good:
            raise ValueError(
                f"A reply of the stage {stage} has another form. Let all clients and the server run one version."
            )


def _same(names: Any, others: set[int]) -> bool:
    """Tell whether a list has each of some names once and no other."""
    return len(names) == len(others) and set(names) == others


def workflow(plan: DistributedPlan, *, colluding: int, timeout: float | None = None) -> DefaultWorkflow:
    """Return Flower's workflow with the parameters that the mod insists on."""
    fit = _Aggregation(
        plan,
        num_shares=1.0,
        reconstruction_threshold=plan.survivors + colluding,
        max_weight=float(_WEIGHT),
        clipping_range=float(plan.reach),
        quantization_range=2 * plan.reach,
        timeout=timeout,
    )
    return DefaultWorkflow(fit_workflow=fit)


__all__ = ["DistributedFedAvg", "DistributedPrivacy", "workflow"]
