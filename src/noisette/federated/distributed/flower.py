"""Both sides on Flower: the mod that a client runs inside Flower's secure aggregation, and the server's workflow.

Flower has SecAgg+ as a mod of its older interface, `secaggplus_mod`, and a workflow. It protects clients from a server
that follows the protocol and from clients in league with it, fewer than the threshold; a server that breaks the
protocol, and shows different clients different lists of survivors, is outside of what it withstands.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Context, Error, Message
from flwr.client.mod import secaggplus_mod
from flwr.common import Code, FitRes, Parameters, Status, ndarrays_to_parameters, parameters_to_ndarrays
from flwr.common.secure_aggregation.secaggplus_constants import RECORD_KEY_STATE
from flwr.compat.common import recorddict_compat
from flwr.server.strategy import FedAvg
from flwr.server.workflow import DefaultWorkflow, SecAggPlusWorkflow

from noisette import _validate
from noisette.accounting import AlreadyDebited, BudgetExceeded, Ledger
from noisette.federated.budget import RoundLog
from noisette.federated.distributed.noise import DistributedPlan
from noisette.federated.layout import ModelLayout

_log = logging.getLogger("flwr")
_WEIGHT = 1000  # of every client, for Flower: the same, so that its mean is a plain one
_FAILED_PRECONDITION = 9

NOT_UNDER_AGGREGATION = "the request is not one of a secure aggregation that this client agreed to"
NOT_AFFORDED = "the budget does not allow this round"
NOT_READY = "the report could not be made"


class DistributedPrivacy:
    """A Flower mod: lets integers with a share of noise out, and only into a secure aggregation.

    ``ClientApp(client_fn=..., mods=[secaggplus_mod, DistributedPrivacy(plan, ledger="budget.db", colluding=5)])``

    The whole run is debited from the ledger before the first update is computed, and no more than ``plan.rounds``
    rounds are answered. The client looks at the parameters of the aggregation: every client is everybody's neighbour,
    and no sum of fewer than ``plan.survivors`` honest clients is opened if at most ``colluding`` work for the server.
    An app that raises, or returns numbers that are not finite, is answered for by a zero update.
    """

    def __init__(self, plan: DistributedPlan, *, ledger: str | os.PathLike[str], colluding: int) -> None:
        self.plan = plan
        self.ledger = Path(ledger).absolute()
        self.colluding = _validate.integer(colluding, "colluding", low=0)

    def __call__(self, message: Message, context: Context, call_next: Callable[[Message, Context], Message]) -> Message:
        """Answer the one request of a secure aggregation that asks for an update; refuse everything else."""
        try:
            return self._answer(message, context, call_next)
        except (AlreadyDebited, BudgetExceeded):
            reason = NOT_AFFORDED
        except _NotAgreed:
            reason = NOT_UNDER_AGGREGATION
        except Exception:
            _log.exception("noisette: nothing was sent")
            reason = NOT_READY
        return Message(Error(_FAILED_PRECONDITION, f"noisette: {reason}"), reply_to=message)

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
        """Return the weights to start from, of a request whose aggregation keeps what the plan rests on."""
        try:
            state = dict(context.state.config_records[RECORD_KEY_STATE])
            fit = recorddict_compat.recorddict_to_fitins(message.content, keep_input=True)
            start = parameters_to_ndarrays(fit.parameters)
            clients, reach = int(state["sample_num"]), self.plan.reach  # type: ignore[arg-type]
            agreed = (
                state["share_num"] == clients
                and int(state["threshold"]) >= self.plan.survivors + self.colluding  # type: ignore[arg-type]
                and state["clipping_range"] == float(reach)
                and state["target_range"] == 2 * reach
                and state["mod_range"] == 1 << 32
                and state["max_weight"] == float(_WEIGHT)
                and ModelLayout.of(start).dims == self.plan.dims
            )
            self.plan.check(clients)
        except Exception as error:
            raise _NotAgreed from error
        if not agreed:
            raise _NotAgreed
        return start

    def _debit(self, context: Context, message: Message) -> None:
        """Debit the run once and note the round, on the disk, before the update is computed."""
        part = context.node_config.get("partition-id")
        account = "node" if part is None else f"node-{part}"
        run, promise = f"distributed-{context.run_id}", self.plan.guarantee
        terms = {"model": promise.model, "relation": promise.relation}
        with Ledger(self.ledger) as ledger:
            ledger.open_account(account, promise.epsilon, promise.delta, **terms)  # type: ignore[arg-type]
            ledger.debit(account, promise, note=run, idempotency_key=run)
        log = RoundLog(f"{self.ledger}-reports/{account}-{run}.log")
        if not log.note(int(message.metadata.group_id), self.plan.rounds):
            raise AlreadyDebited("This round was answered: a second report would be a second release.")


class _NotAgreed(Exception):
    """The request is not one that the client agreed to."""


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
        self.weights = self.weights + self.plan.mean(numbers, 1)
        layers = self.layout.unflatten(self.weights).values()
        moved = [layer.astype(kind) for layer, kind in zip(layers, self.kinds, strict=True)]
        return ndarrays_to_parameters(moved), {}


def workflow(plan: DistributedPlan, *, colluding: int, timeout: float | None = None) -> DefaultWorkflow:
    """Return Flower's workflow with the parameters that the mod insists on."""
    fit = SecAggPlusWorkflow(
        num_shares=1.0,
        reconstruction_threshold=plan.survivors + colluding,
        max_weight=float(_WEIGHT),
        clipping_range=float(plan.reach),
        quantization_range=2 * plan.reach,
        timeout=timeout,
    )
    return DefaultWorkflow(fit_workflow=fit)


__all__ = ["DistributedFedAvg", "DistributedPrivacy", "secaggplus_mod", "workflow"]
