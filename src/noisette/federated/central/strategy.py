"""The server's side on Flower with a trusted server: any strategy, made private for whoever sees the models."""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Iterable
from typing import Any, Literal

from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy
from flwr.serverapp.strategy.strategy_utils import sample_nodes

from noisette import _validate
from noisette._random import Rng, generator
from noisette._validate import FloatArray
from noisette.federated.central.rounds import AdaptiveNorm, CentralPlan, PrivateRounds
from noisette.federated.clipping import Norm
from noisette.federated.layout import ModelLayout, as_dtype
from noisette.guarantees import Guarantee

_log = logging.getLogger("flwr")
_MANY_ROUNDS = 1 << 20  # more than any run has: only what no number of rounds could mend is refused at once


class CentralPrivacy(Strategy):
    """Wraps a Flower strategy so that its models are private, for clients that trust the server with their updates.

    Each round asks clients by Poisson sampling, clips their updates to ``clip``, adds them up exactly, adds exact
    Gaussian noise, and hands the wrapped strategy one reply: the model that the noisy mean leads to. FedAvg, FedAdam
    and the like take their step from there; strategies that compare replies (Krum, FedMedian) have nothing to compare,
    and those that make no model of one reply (Bulyan, QFedAvg, trees) are refused before anybody is asked.
    ``clients`` is how many take part in all and ``clients_per_round`` how many a round asks on average. With more than
    one of ``bands`` the noise is correlated over rounds (DP-FTRL by matrix factorisation), which "auto" weighs by the
    predicted error.

    *Guarantee*: `CentralPlan`, for a client with everything that it has, against whoever sees all models, not against
    the server. Metrics of clients are not released, and clients are not asked to evaluate: both would be outside of the
    guarantee. Evaluate on the server, with ``evaluate_fn``.

    ``strategy = CentralPrivacy(FedAdam(), target_epsilon=4, target_delta=1e-6, clip=Norm(1.0), clients=10_000,
    clients_per_round=200)``
    """

    def __init__(
        self,
        strategy: Strategy,
        *,
        target_epsilon: float,
        target_delta: float,
        clip: Norm | AdaptiveNorm,
        clients: int,
        clients_per_round: float,
        bands: int | Literal["auto"] = "auto",
        minimum_connected: int = 2,
        rng: Rng = None,
    ) -> None:
        self.strategy = strategy
        self.asked: dict[str, Any] = {
            "epsilon": target_epsilon,
            "delta": target_delta,
            "clients": clients,
            "clients_per_round": clients_per_round,
            "bands": bands,
        }
        self.clip = clip
        self.minimum_connected = _validate.integer(minimum_connected, "minimum_connected", low=1)
        self._rng = generator(rng)
        self._rounds: PrivateRounds | None = None
        self._model: FloatArray | None = None
        self._dtypes: dict[str, Any] = {}
        self._asked: set[int] = set()
        CentralPlan(rounds=_MANY_ROUNDS, **self.asked)  # what can never be kept is refused now
        # who is asked is decided here: the wrapped strategy asks everybody whom it is shown
        for name, value in (("fraction_train", 1.0), ("min_train_nodes", 1), ("min_available_nodes", 1)):
            if hasattr(strategy, name):
                setattr(strategy, name, value)

    @property
    def rounds(self) -> PrivateRounds:
        """The sums of the run, its plan and its clipping norm."""
        if self._rounds is None:
            raise RuntimeError("The run has not begun: call start().")
        return self._rounds

    def guarantee(self) -> Guarantee:
        """Return what holds for the models released so far."""
        return self.rounds.plan.spent(self.rounds.done)

    def summary(self) -> None:
        """Log what is promised, and the summary of the wrapped strategy."""
        plan = self.rounds.plan
        _log.info("\tnoisette: %s, for all %d rounds", plan.guarantee, plan.rounds)
        _log.info("\tnoisette: noise multiplier %.4g, %d bands", plan.multiplier, plan.strategy.bands)
        self.strategy.summary()

    def begin(self, initial_arrays: ArrayRecord, num_rounds: int) -> None:
        """Fix the plan of the run. For those who call the steps of a round themselves; `start` calls it."""
        if self._rounds is not None and self._rounds.done:
            raise RuntimeError(
                f"This strategy has released {self._rounds.done} rounds under {self.guarantee()}. A second run would "
                "spend as much again beside it: build another strategy for it, and add up what both guarantee."
            )
        layout = ModelLayout.of({name: array.numpy() for name, array in initial_arrays.items()})
        self._try(initial_arrays)
        plan = CentralPlan(rounds=num_rounds, **self.asked)
        self._rounds = PrivateRounds(plan, layout, self.clip, rng=self._rng)
        prospect = plan.prospect(layout.dims)
        if prospect.hopeless:
            _log.warning("noisette: this run is %s", prospect.verdict)

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
        """Run the federation: this many rounds, and no more, are what the guarantee covers."""
        self.begin(initial_arrays, num_rounds)
        return super().start(grid, initial_arrays, num_rounds, timeout, train_config, evaluate_config, evaluate_fn)

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Ask each client of the round's group with its chance; the wrapped strategy writes the messages."""
        rounds = self.rounds
        self._model = rounds.layout.flatten({name: array.numpy() for name, array in arrays.items()})
        self._dtypes = {name: array.numpy().dtype for name, array in arrays.items()}
        _, available = sample_nodes(grid, self.minimum_connected, 1)
        # by its own count of rounds: clients that were asked too soon again would add to one release twice
        chosen = rounds.plan.sample(available, rounds.done + 1, rng=self._rng)
        self._asked = set(chosen)
        if not chosen:
            return []
        shown: Any = _Shown(chosen)
        messages = list(self.strategy.configure_train(server_round, arrays, config, shown))
        self._check_asked(messages, chosen)
        return messages

    def _check_asked(self, messages: list[Message], chosen: list[int]) -> None:
        """Refuse a strategy that leaves out clients that were drawn."""
        asked = sorted(message.metadata.dst_node_id for message in messages)
        if asked != sorted(chosen):
            raise ValueError(
                f"{type(self.strategy).__name__} asked {len(asked)} of the {len(chosen)} clients that were drawn. The "
                "guarantee needs all of them: wrap a strategy that asks every client it is shown (fraction_train=1)."
            )

    def _try(self, arrays: ArrayRecord) -> None:
        """Refuse, before anybody is asked, a strategy that makes no model of one reply, such as Bulyan or QFedAvg."""
        try:
            tried = copy.deepcopy(self.strategy)
        except Exception:  # it holds what cannot be copied: the first round will tell
            return
        shown: Any = _Shown([1, 2])
        silent, _log.disabled = _log.disabled, True
        why = "it returns no model"
        try:
            messages = list(tried.configure_train(1, copy.deepcopy(arrays), ConfigRecord({}), shown))
            made, _ = tried.aggregate_train(1, [self._reply(copy.deepcopy(arrays))])
        except Exception as error:  # of whatever it looks for
            messages, made, why = [], None, str(error)
        finally:
            _log.disabled = silent
        if messages:
            self._check_asked(messages, shown.get_node_ids())
        if made is None:
            raise ValueError(
                f"{type(self.strategy).__name__} cannot take its step from one reply, the private mean, and nothing "
                f"else is released: {why}. Wrap a strategy that averages, such as FedAvg or FedAdam."
            )

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Add up the clipped updates, release their noisy mean, and let the wrapped strategy take its step."""
        rounds, model = self.rounds, self._model
        assert model is not None, "configure_train comes first"
        for reply in replies:
            node = reply.metadata.src_node_id
            if node not in self._asked:  # not drawn, or counted already: the accounts cover what was drawn, once
                continue
            self._asked.remove(node)
            try:
                if reply.has_error():
                    raise ValueError(str(reply.error.reason))
                [record] = reply.content.array_records.values()
                rounds.add(rounds.layout.flatten({name: array.numpy() for name, array in record.items()}) - model)
            except Exception as error:  # whatever it is: a client that could stop a run would be seen in it
                _log.warning("noisette: client %d adds nothing: %s", node, error)
        moved = rounds.layout.unflatten(model + rounds.release())
        record = ArrayRecord({name: Array(as_dtype(array, self._dtypes[name])) for name, array in moved.items()})
        arrays, _ = self.strategy.aggregate_train(server_round, [self._reply(record)])
        _log.info("noisette: round %d released; so far %s", server_round, self.guarantee())
        return arrays, None

    def _reply(self, record: ArrayRecord) -> Message:
        """Return the one reply that the wrapped strategy gets."""
        key = getattr(self.strategy, "weighted_by_key", "num-examples")
        content = RecordDict({"arrays": record, "metrics": MetricRecord({key: 1})})
        return Message(content, dst_node_id=0, message_type=MessageType.TRAIN)

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Ask nobody: what clients would answer is not covered by the guarantee."""
        return []

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """Return nothing, as nobody was asked."""
        return None


class _Shown:
    """What the wrapped strategy sees of the grid: the clients that were drawn."""

    def __init__(self, nodes: list[int]) -> None:
        self._nodes = nodes

    def get_node_ids(self) -> list[int]:
        """Return the clients that were drawn."""
        return list(self._nodes)
