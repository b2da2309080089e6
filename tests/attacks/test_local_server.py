"""The server of local reports: clients that send what is no report, made to stop the run of the others."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr", reason="needs the extra federated")

from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from tests.federated.flower import DIMS, LocalGrid, model, moving_app

from noisette.federated import LocalPrivacy, PrivateFedAvg, Ranges

pytestmark = pytest.mark.slow

TERMS = {"target_epsilon": 1e5, "clip": Ranges(0.0, 2.0), "clients_per_round": 4, "weighted": True}


@pytest.fixture(autouse=True)
def flower_identity(monkeypatch: pytest.MonkeyPatch) -> None:
    from flwr.supercore.task_identity import TaskIdentity

    for name in ("_run_id", "_node_id", "_task_id"):
        monkeypatch.setattr(TaskIdentity, name, 1)


def written(shape: Any, kind: str, body: bytes) -> bytes:
    """Return an array as numpy writes it, with a shape that its bytes need not have."""
    head = io.BytesIO()
    np.lib.format.write_array_header_1_0(head, {"descr": kind, "fortran_order": False, "shape": shape})
    return head.getvalue() + body


BYTES = {
    "nothing": b"",
    "half": None,
    "a broken archive": b"PK\x03\x04" + b"\x00" * 40,
    "an archive": None,
    "a pickle": None,
    "a terabyte": written((1 << 37,), "<f8", b"\x00" * 8),
    "more than there is": written((1 << 62,), "<f8", b""),
    "a shape below 0": written((-3,), "<f8", b"\x00" * 24),
    "a head that is no dict": b"\x93NUMPY\x01\x00\x10\x00" + b"((((((((((((((((",
    "a head without an end": b"\x93NUMPY\x01\x00\xff\xff" + b"{",
    "another version": b"\x93NUMPY\x09\x09" + b"\x00" * 64,
    "dates": written((DIMS,), "<M8[s]", b"\x00" * 8 * DIMS),
    "records": written((DIMS,), [("a", "<f8")], b"\x00" * 8 * DIMS),
    "texts": written((DIMS,), "<U3", b"\x00" * 12 * DIMS),
    "texts beyond": written((DIMS,), "<U1", b"\xff" * 4 * DIMS),
    "bits": written((DIMS,), "|b1", b"\x07" * DIMS),
    "no numbers": written((DIMS,), "<f8", np.full(DIMS, np.nan).tobytes()),
    "largest": written((DIMS,), "<f8", np.full(DIMS, 1.7e308).tobytes()),
    "halves": written((DIMS,), "<f2", b"\xff" * 2 * DIMS),
    "long": written((DIMS,), "<f16", b"\xff" * 16 * DIMS),
    "a number": written((), "<f8", b"\x00" * 8),
    "none": written((0,), "<f8", b""),
    "axes": written((1,) * 32 + (DIMS,), "<f8", b"\x00" * 8 * DIMS),
}


def data_of(name: str) -> bytes:
    made = io.BytesIO()
    if name == "an archive":
        np.savez(made, a=np.zeros(DIMS))
    elif name == "a pickle":
        np.save(made, np.asarray([print] * DIMS, dtype=object), allow_pickle=True)
    elif name == "half":
        np.save(made, np.zeros(DIMS))
        return made.getvalue()[:-9]
    else:
        return BYTES[name]  # type: ignore[return-value]
    return made.getvalue()


def with_data(reply: Message, data: bytes, stype: str = "numpy.ndarray") -> Message:
    content = RecordDict(dict(reply.content))
    [(name, record)] = content.array_records.items()
    [(key, array)] = record.items()
    content[name] = ArrayRecord({key: Array(dtype=array.dtype, shape=array.shape, stype=stype, data=data)})
    return Message(content, reply_to=reply)


def other(change: Any) -> Any:
    def made(reply: Message) -> Message:
        content = RecordDict(dict(reply.content))
        change(content)
        return Message(content, reply_to=reply)

    return made


def config(**given: Any) -> Any:
    def change(content: RecordDict) -> None:
        content["noisette"] = ConfigRecord({**dict(content["noisette"]), **given})

    return other(change)


def metric(value: Any) -> Any:
    def change(content: RecordDict) -> None:
        [name] = content.metric_records
        content[name] = MetricRecord({"num-examples": value})

    return other(change)


REPLIES = {name: (lambda reply, name=name: with_data(reply, data_of(name))) for name in BYTES} | {
    "another kind of array": lambda reply: with_data(reply, b"", "torch.tensor"),
    "a list for a round": config(round=[1, 2]),
    "a text for a round": config(round="1"),
    "a number for a run": config(run=1.5),
    "a list for a weight": metric([1, 2]),
    "a weight below 0": metric(-1.0),
    "no number for a weight": metric(float("nan")),
    "an infinite weight": metric(float("inf")),
    "the largest weight": metric(1.7e308),
    "a weight of 400 bits": metric(1 << 60),
    "no records": lambda reply: Message(RecordDict(), reply_to=reply),
    "records of the model": lambda reply: Message(RecordDict({"arrays": model()}), reply_to=reply),
}


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.filterwarnings("ignore::numpy.exceptions.ComplexWarning")
@pytest.mark.parametrize("change", REPLIES.values(), ids=REPLIES)
def test_no_reply_of_a_client_stops_a_run(change: Any, tmp_path: Any) -> None:
    """Bytes that are no array, an array of a terabyte, and a weight of 1e308 ended the run of all."""

    def tamper(given: Message, node: int) -> Message:
        return change(given) if node == 1 else given

    mod = LocalPrivacy(epsilon=1e6, delta=1e-3, ledger=tmp_path / "budget.db", public_metrics={"num-examples": 10})
    strategy = PrivateFedAvg("laplace", **TERMS)
    found = strategy.start(LocalGrid(moving_app([mod]), range(1, 5), tamper), model(), num_rounds=2)
    flat = np.concatenate([array.numpy().reshape(-1) for array in found.arrays.values()])
    assert strategy.run.done == 2
    assert all(entry["counted"] >= 3 for entry in strategy.run.rounds)
    assert np.isfinite(flat).all()
