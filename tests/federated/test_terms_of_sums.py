"""What a client looks at before its numbers go into a secure aggregation, one term changed at a time."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("flwr", reason="needs the extra federated")

from flwr.app import Message, MessageType, RecordDict
from flwr.common import FitIns, ndarrays_to_parameters, parameters_to_ndarrays
from flwr.common.secure_aggregation.secaggplus_constants import RECORD_KEY_CONFIGS, RECORD_KEY_STATE, Key, Stage
from flwr.compat.common import recorddict_compat as compat

from noisette.accounting import AlreadyDebited, BudgetExceeded, Ledger
from noisette.federated import Norm
from noisette.federated.distributed.flower import (
    NOT_UNDER_AGGREGATION,
    DistributedFedAvg,
    DistributedPrivacy,
    _NotAgreed,
    workflow,
)
from noisette.federated.distributed.noise import DistributedPlan

PLAN = DistributedPlan(epsilon=4.0, delta=1e-6, rounds=2, survivors=3, dims=5, clip=Norm(1.0))
FAIR = {
    "sample_num": 6,
    "share_num": 6,
    "threshold": 4,
    "clipping_range": float(PLAN.reach),
    "target_range": 2 * PLAN.reach,
    "mod_range": 2**32,
    "max_weight": 1000.0,
}


def mod(folder, colluding=1, plan=PLAN):
    return DistributedPrivacy(plan, ledger=folder / "budget.db", colluding=colluding)


def asked(mod, terms, dims=5, **config):
    """Ask a client to take part under some terms, and return the weights that it would start from."""
    content = compat.fitins_to_recorddict(FitIns(ndarrays_to_parameters([np.zeros(dims)]), {}), True)
    state = SimpleNamespace(config_records={RECORD_KEY_STATE: terms})
    return mod._asked(SimpleNamespace(content=content), SimpleNamespace(state=state, node_config=config))


def test_fair_terms_are_agreed_to(tmp_path):
    assert [array.shape for array in asked(mod(tmp_path), FAIR)] == [(5,)]


@pytest.mark.parametrize(
    "wrong",
    [
        {"share_num": 5},  # somebody is no neighbour of somebody
        {"share_num": 7},
        {"threshold": 3},  # three may be opened, one of whom works for the server
        {"sample_num": 7, "share_num": 7},  # two sets of four among seven, one colluding, may differ in one client
        {"clipping_range": PLAN.reach + 1.0},
        {"clipping_range": PLAN.reach - 1.0},
        {"target_range": 2 * PLAN.reach + 1},
        {"target_range": 2 * PLAN.reach - 1},
        {"mod_range": 2**31},
        {"mod_range": 2**33},
        {"max_weight": 999.0},
        {"max_weight": 1001.0},
    ],
    ids=str,
)
def test_one_term_that_is_not_fair_is_refused(tmp_path, wrong):
    with pytest.raises(_NotAgreed):
        asked(mod(tmp_path), FAIR | wrong)


def test_a_model_of_another_length_is_refused(tmp_path):
    for dims in (4, 6):
        with pytest.raises(_NotAgreed):
            asked(mod(tmp_path), FAIR, dims)


def test_the_threshold_counts_those_who_work_for_the_server(tmp_path):
    """Of 6 clients and c colluding: a threshold of at least survivors + c, and twice it above 6 + c."""
    fair = {0: 4, 1: 4, 2: 5, 3: 6}  # least threshold by who colludes: max(3 + c, 4 + c // 2)
    for colluding, least in fair.items():
        asked(mod(tmp_path, colluding), FAIR | {"threshold": least})
        with pytest.raises(_NotAgreed):
            asked(mod(tmp_path, colluding), FAIR | {"threshold": least - 1})


def test_an_app_does_not_lower_how_many_its_node_takes_for_the_servers(tmp_path):
    """An app of the server's says that nobody colludes; the node knows better, and asks for as high a threshold."""
    hostile, careful = mod(tmp_path, 0), mod(tmp_path, 2)
    asked(hostile, FAIR)
    for client, own in ((hostile, 2), (careful, 0)):
        asked(client, FAIR | {"threshold": 5}, colluding=own)
        with pytest.raises(_NotAgreed):
            asked(client, FAIR, colluding=own)
    with pytest.raises(ValueError, match="colluding of the node"):
        asked(hostile, FAIR, colluding=-1)


@pytest.mark.parametrize(
    ("sources", "fair"),
    [([], True), ([2, 3], True), ([2, 2], False), ([2, 3, 2], False), ([1], False), ([2, 1], False)],
)
def test_a_client_is_masked_towards_each_of_some_others(tmp_path, sources, fair):
    request = {Key.STAGE: Stage.COLLECT_MASKED_VECTORS, Key.SOURCE_LIST: sources}
    content = SimpleNamespace(config_records={RECORD_KEY_CONFIGS: request})
    own = SimpleNamespace(node_id=1, state=SimpleNamespace(config_records={}), node_config={})
    with nullcontext() if fair else pytest.raises(_NotAgreed):
        mod(tmp_path)._check_lists(SimpleNamespace(content=content), own)


def opened(mod, active, dead, seed=b"seed"):
    """Ask a client that holds shares of 1, 2 and 3, and is 1, for those of some who are there and some who are not."""
    request = {Key.STAGE: Stage.UNMASK, Key.ACTIVE_NODE_ID_LIST: active, Key.DEAD_NODE_ID_LIST: dead}
    content = SimpleNamespace(config_records={RECORD_KEY_CONFIGS: request})
    state = {"rd_seed_share_dict:K": [1, 2, 3], "rd_seed": seed}
    state = SimpleNamespace(config_records={RECORD_KEY_STATE: state})
    mod._check_lists(
        SimpleNamespace(content=content), SimpleNamespace(run_id=1, node_id=1, state=state, node_config={})
    )


@pytest.mark.parametrize(
    ("active", "dead"),
    [
        ([1, 2], []),  # not all of them
        ([1, 2, 3, 4], []),
        ([1, 2, 4], []),
        ([1, 2, 3, 3], []),
        ([1, 2, 3], [3]),  # both halves of a key
        ([2, 3], [1]),  # this client is there
        ([2], [1, 3]),
    ],
)
def test_shares_are_given_of_every_client_once(tmp_path, active, dead):
    with pytest.raises(_NotAgreed):
        opened(mod(tmp_path), active, dead)


def test_shares_of_one_aggregation_are_given_once_and_of_as_many_as_there_are_rounds(tmp_path):
    client = mod(tmp_path)
    opened(client, [1, 2], [3])
    with pytest.raises(AlreadyDebited):
        opened(client, [1, 2, 3], [])
    opened(client, [3, 1, 2], [], b"another")
    with pytest.raises(AlreadyDebited):
        opened(client, [1, 2, 3], [])
    with pytest.raises(AlreadyDebited, match="All 2 rounds"):
        opened(client, [1, 2, 3], [], b"a third")


def message(number):
    return SimpleNamespace(metadata=SimpleNamespace(group_id=str(number)))


def context(run=1, **config):
    return SimpleNamespace(run_id=run, node_config=config)


def test_a_round_is_answered_once_and_the_run_is_paid_for_once(tmp_path):
    client = mod(tmp_path)
    client._debit(context(), message(1))
    with pytest.raises(AlreadyDebited, match="second release"):
        client._debit(context(), message(1))
    client._debit(context(), message(2))
    with pytest.raises(AlreadyDebited, match="All 2 rounds"):
        client._debit(context(), message(3))
    with Ledger(tmp_path / "budget.db") as ledger:
        balance = ledger.balance("node")
        assert (float(balance.epsilon), balance.debits, balance.model, balance.relation) == (
            4.0,
            1,
            "distributed",
            "replace",
        )


def test_who_operates_a_node_has_the_last_word(tmp_path):
    client = mod(tmp_path)
    with pytest.raises(BudgetExceeded):
        client._debit(context(epsilon=3.9, ledger=str(tmp_path / "small.db")), message(1))
    roomy = context(epsilon=8.0, delta=2e-6, ledger=str(tmp_path / "roomy.db"))
    client._debit(roomy, message(1))
    client._debit(SimpleNamespace(run_id=2, node_config=roomy.node_config), message(1))
    with pytest.raises(BudgetExceeded):
        client._debit(SimpleNamespace(run_id=3, node_config=roomy.node_config), message(1))
    apart = {"partition-id": 3, "ledger": str(tmp_path / "apart.db")}  # simulated clients share a file
    client._debit(SimpleNamespace(run_id=1, node_config=apart), message(1))
    with Ledger(tmp_path / "apart.db") as ledger:
        assert ledger.balance("node-3").debits == 1


def test_the_servers_workflow_asks_for_what_clients_agree_to(tmp_path):
    fit = workflow(PLAN, colluding=1).fit_workflow
    assert (fit.num_shares, fit.reconstruction_threshold, fit.max_weight) == (1.0, 4, 1000.0)
    assert (fit.clipping_range, fit.quantization_range) == (float(PLAN.reach), 2 * PLAN.reach)


def test_a_mean_moves_the_model():
    """Every result holds the same noisy mean; weights keep their types."""
    start = [np.ones((2, 2), dtype=np.float32), np.zeros(1)]
    server = DistributedFedAvg(PLAN, start, clients_per_round=6)
    assert server.aggregate_fit(1, [], []) == (None, {})
    numbers = np.arange(5.0) * PLAN.length
    result = SimpleNamespace(parameters=ndarrays_to_parameters([numbers]))
    found, _ = server.aggregate_fit(1, [(None, result)], [])
    first, second = parameters_to_ndarrays(found)
    assert (first.dtype, second.dtype) == (np.float32, np.float64)
    # norm 1 of the clip is `length` of the whole numbers
    assert np.allclose(np.concatenate([first.ravel(), second]), [1, 2, 3, 4, 4], rtol=1e-6)


@pytest.mark.parametrize("shape", [(4,), (6,), (5, 1), (1, 5)])
def test_an_update_of_another_shape_is_not_encoded(shape):
    assert PLAN.encode(np.zeros(5), rng=1).shape == (5,)
    with pytest.raises(ValueError, match="an update of 5 weights"):
        PLAN.encode(np.zeros(shape), rng=1)


@pytest.mark.parametrize("kind", [MessageType.EVALUATE, MessageType.QUERY])
def test_no_other_request_than_to_train_is_looked_at(tmp_path, monkeypatch, kind):
    own = mod(tmp_path)
    monkeypatch.setattr(own, "_check_lists", lambda *_: pytest.fail("the lists of another request"))
    made = own(
        Message(RecordDict(), dst_node_id=3, message_type=kind), SimpleNamespace(), lambda *_: pytest.fail("the app")
    )
    assert NOT_UNDER_AGGREGATION in made.error.reason
