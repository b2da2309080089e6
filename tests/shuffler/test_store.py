"""The shuffler and the receipt without a network: company, order, replays, batches, bounds."""

from __future__ import annotations

import math
import sqlite3
from collections import Counter
from contextlib import suppress
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import chi2
from tests.shuffler.helpers import KEY, LAYOUT, fresh, post_of, values_of

from noisette.shuffler import InProcess, PacketLayout, Receipt, Round, ServerKey, Shuffler
from noisette.shuffler._database import Full
from noisette.shuffler.forwarding import Undelivered, forward
from noisette.shuffler.store import BatchPart, PostRefused
from noisette.shuffler.wire import Frame, Malformed


def _bags(receipt: Receipt, number: int = 1, layout: PacketLayout = LAYOUT) -> dict[int, list[float]]:
    """Return for each position the sorted values that arrived."""
    found: dict[int, list[float]] = {}
    for one in receipt.read("run", number, layout, KEY):
        assert one.rejected == 0
        for offset in range(one.values.shape[1]):
            found.setdefault(one.position + offset, []).extend(one.values[:, offset].tolist())
    return {position: sorted(values) for position, values in found.items()}


def _expected(clients: list[int], layout: PacketLayout = LAYOUT) -> dict[int, list[float]]:
    return {p: sorted(1000.0 * client + p for client in clients) for p in range(layout.dims)}


def test_a_round_below_the_minimum_is_not_released(tmp_path: Path) -> None:
    shuffler, receipt = Shuffler(tmp_path / "s.db", minimum=3), Receipt(tmp_path / "r.db")

    def deliver() -> int:
        return forward(shuffler, lambda batch: receipt.accept(batch.post, batch.frame.encode()))

    for client in (1, 2):
        shuffler.accept(f"c{client}", fresh(), post_of(client))
    shuffler.accept("c3", fresh(), post_of(3, blocks=[0, 1]))
    assert deliver() == 0  # two blocks have company, the third has not
    assert receipt.batches("run", 1) == 0
    assert not _bags(receipt)
    shuffler.accept("c4", fresh(), post_of(4, number=2))
    assert deliver() == 0
    shuffler.accept("c3", fresh(), post_of(3, blocks=[2]))
    assert deliver() == 9
    assert _bags(receipt) == _expected([1, 2, 3])
    assert receipt.batches("run", 1) == 1
    for client in (5, 6):  # who comes later waits for a batch of its own
        shuffler.accept(f"c{client}", fresh(), post_of(client))
        assert deliver() == 0
    shuffler.accept("c7", fresh(), post_of(7))
    assert deliver() == 9
    assert _bags(receipt) == _expected([1, 2, 3, 5, 6, 7])
    assert shuffler.waiting() == {"waiting": 3, "released": 0, "aside": 0}
    shuffler.close()
    receipt.close()


def test_patience() -> None:
    now = 100.0
    shuffler = Shuffler(":memory:", minimum=2, patience=5, clock=lambda: now)
    shuffler.accept("a", fresh(), post_of(1))
    shuffler.accept("b", fresh(), post_of(2))
    assert shuffler.release() == []
    now = 104.9
    shuffler.accept("c", fresh(), post_of(3))
    assert shuffler.release() == []
    now = 105.0
    assert shuffler.release() == [(Round("run", 1, 3), 3)]
    shuffler.close()


def test_replays_are_refused(tmp_path: Path) -> None:
    shuffler = Shuffler(tmp_path / "s.db", minimum=2)
    body, number = post_of(1, blocks=[0, 2]), fresh()
    assert shuffler.accept("a", number, body).accepted == 2
    shuffler.close()
    shuffler = Shuffler(tmp_path / "s.db", minimum=2)  # it remembers over a restart
    again = shuffler.accept("a", number, body)
    assert (again.accepted, again.repeated) == (0, 2)
    for post, content, reason, blocks in (
        (number, post_of(1, blocks=[1]), "post-reused", []),
        (fresh(), body, "already-sent", [0, 2]),
        (fresh(), post_of(1, blocks=[1, 2]), "already-sent", [2]),
        (fresh(), post_of(1, blocks=[1, 1]), "already-sent", [1]),
    ):
        with pytest.raises(PostRefused) as caught:
            shuffler.accept("a", post, content)
        assert (caught.value.reason, caught.value.blocks) == (reason, blocks)
    assert shuffler.waiting() == {"waiting": 2, "released": 0, "aside": 0}
    shuffler.accept("a", fresh(), post_of(1, number=2))  # another round is no replay
    shuffler.accept("b", number, post_of(2, blocks=[0, 2]))  # nor another client's post of the same number
    shuffler.accept("b", fresh(), post_of(2, blocks=[1]))
    shuffler.accept("a", fresh(), post_of(1, blocks=[1]))
    forward(shuffler, lambda _: None)
    with pytest.raises(PostRefused):  # nor is one forgotten that has been forwarded
        shuffler.accept("a", fresh(), body)
    shuffler.close()


def test_a_copy_of_another_clients_packet_is_no_company() -> None:
    """It is refused while the packet waits, and is stored once at the server when it comes later."""
    with InProcess(minimum=2, key=KEY) as simulated:
        simulated.shuffler.accept("a", fresh(), post_of(1))
        copy = _copy_of(simulated.shuffler)
        with pytest.raises(PostRefused) as caught:
            simulated.shuffler.accept("thief", fresh(), copy)
        assert caught.value.reason == "copied"
        assert simulated.deliver() == 0
        simulated.shuffler.accept("b", fresh(), post_of(2))
        assert simulated.deliver() == 6
        simulated.shuffler.accept("thief", fresh(), copy)  # a refusal leaves no trace, and a new batch has begun
        simulated.shuffler.accept("c", fresh(), post_of(3))
        simulated.deliver()
        assert _bags(simulated.receipt) == _expected([1, 2, 3])


def test_a_client_asks_for_more_company(tmp_path: Path) -> None:
    """Who asks for four waits for four who ask so; who asks for less than the minimum is with all others."""
    shuffler, receipt = Shuffler(tmp_path / "s.db", minimum=2), Receipt(tmp_path / "r.db")

    def deliver() -> int:
        return forward(shuffler, lambda part: receipt.accept(part.post, part.frame.encode()))

    for client in (1, 2, 3):
        shuffler.accept(f"c{client}", fresh(), post_of(client), minimum=4)
        assert deliver() == 0
    shuffler.accept("c4", fresh(), post_of(4), minimum=1)
    shuffler.accept("c5", fresh(), post_of(5))
    assert deliver() == 6
    with pytest.raises(PostRefused):  # another wish makes no other round
        shuffler.accept("c1", fresh(), post_of(1))
    shuffler.accept("c6", fresh(), post_of(6), minimum=4)
    assert deliver() == 12
    assert _bags(receipt) == _expected([1, 2, 3, 4, 5, 6])
    shuffler.accept("c7", fresh(), post_of(7), minimum=3)
    shuffler.accept("c8", fresh(), post_of(8), minimum=3)
    shuffler.close()
    shuffler = Shuffler(tmp_path / "s.db", minimum=4)  # a restart with more: what waits has to wait for as many
    shuffler.accept("c9", fresh(), post_of(9))
    assert deliver() == 0
    shuffler.close()
    receipt.close()


def test_a_batch_that_is_refused_is_set_aside_and_hinders_no_other() -> None:
    """What the server refuses for good waits for an operator, what it fails over is tried again by itself."""
    now = [0.0]
    shuffler = Shuffler(":memory:", minimum=2, clock=lambda: now[0])
    for number in (1, 2, 3):
        for client in ("a", "b"):
            shuffler.accept(client, fresh(), post_of(ord(client), number=number))
    errors = {1: Undelivered("404 no such campaign", final=True), 2: Undelivered("500 bug", fault=True)}
    taken: list[int] = []

    def deliver(part: BatchPart) -> None:
        if (number := part.frame.round.number) in errors:
            raise errors[number]
        taken.append(number)

    assert forward(shuffler, deliver) == 6
    assert taken == [3]
    states = {one["round"]: (one["state"], one["reason"], one["packets"]) for one in shuffler.batches()}
    assert states == {1: ("aside", "404 no such campaign", 6), 2: ("released", "500 bug", 6)}
    for _ in range(30):  # a fault that stays is set aside as well
        now[0] += 100.0
        forward(shuffler, deliver)
    assert shuffler.waiting() == {"waiting": 0, "released": 0, "aside": 12}
    first, second = (one["name"] for one in shuffler.batches())
    errors.clear()
    shuffler.operate(second, "retry")
    shuffler.operate(first, "drop")
    assert forward(shuffler, deliver) == 6
    assert taken == [3, 2]
    assert shuffler.batches() == []
    with pytest.raises(PostRefused):  # what was dropped does not come again
        shuffler.accept("a", fresh(), post_of(1, number=1))
    shuffler.accept("a", fresh(), post_of(1, number=4))
    (waiting,) = (one["name"] for one in shuffler.batches())
    for action in ("retry", "skip"):
        with pytest.raises(ValueError, match="has not reached its minimum"):
            shuffler.operate(waiting, action)
    with pytest.raises(LookupError):
        shuffler.operate("nothing", "drop")
    shuffler.operate(waiting, "drop")
    shuffler.close()


def test_while_the_server_is_away_nothing_is_set_aside() -> None:
    shuffler = Shuffler(":memory:", minimum=2)
    for client in ("a", "b"):
        shuffler.accept(client, fresh(), post_of(ord(client)))

    def away(_: BatchPart) -> None:
        raise Undelivered("no answer")

    for _ in range(40):
        with pytest.raises(Undelivered):
            forward(shuffler, away)
    assert shuffler.waiting() == {"waiting": 0, "released": 6, "aside": 0}
    shuffler.close()


def test_a_round_is_over_after_a_time() -> None:
    """Who sent to it is forgotten then, and nothing comes twice: the round takes nothing more."""
    now = [0.0]
    shuffler = Shuffler(":memory:", minimum=2, keep=10, clock=lambda: now[0])
    for client in ("a", "b"):
        shuffler.accept(client, fresh(), post_of(ord(client)))
    shuffler.accept("a", fresh(), post_of(1, number=2))  # waits for company, and is not forgotten
    forward(shuffler, lambda _: None)
    now[0] = 9 * 86_400.0
    assert shuffler.forget() == 0
    now[0] = 11 * 86_400.0
    assert shuffler.forget() == 1
    with pytest.raises(PostRefused) as caught:
        shuffler.accept("a", fresh(), post_of(1))
    assert caught.value.reason == "round-over"
    with shuffler._database.transaction() as connection:
        assert connection.execute("SELECT count(*) FROM seen").fetchone() == (1,)
        assert connection.execute("SELECT count(*) FROM posts").fetchone() == (1,)
    shuffler.close()


def _copy_of(shuffler: Shuffler) -> bytes:
    """Return a post with one stored packet of each block, as someone would who listens on the line."""
    with shuffler._database.transaction() as connection:
        rows = connection.execute("SELECT block, sealed FROM packets GROUP BY block").fetchall()
    return Frame(Round("run", 1, 3), rows).encode()


def test_another_shape_waits_for_its_own_company() -> None:
    with InProcess(minimum=2, key=KEY) as simulated:
        simulated.shuffler.accept("rogue", fresh(), post_of(9, layout=PacketLayout(10, 5)))
        simulated.shuffler.accept("a", fresh(), post_of(1))
        assert simulated.deliver() == 0
        simulated.shuffler.accept("b", fresh(), post_of(2))
        assert simulated.deliver() == 6
        assert _bags(simulated.receipt) == _expected([1, 2])
        simulated.shuffler.accept("other rogue", fresh(), post_of(8, layout=PacketLayout(10, 5)))
        assert simulated.deliver() == 4  # it is delivered, and passed over by whoever reads the other shape
        assert _bags(simulated.receipt) == _expected([1, 2])


def test_what_was_not_sealed_to_the_server_is_counted() -> None:
    other = ServerKey.generate()
    found = Round("run", 1, LAYOUT.blocks)
    payloads = LAYOUT.split(values_of(5))
    wrong = [(b, other.public.seal(payloads[b], found.label(b))) for b in range(2)]
    moved = [(2, KEY.public.seal(payloads[2], found.label(1)))]
    with InProcess(minimum=2, key=KEY) as simulated:
        simulated.shuffler.accept("bad", fresh(), Frame(found, wrong + moved).encode())
        simulated.shuffler.accept("a", fresh(), post_of(1))
        simulated.deliver()
        seen = [(one.values.shape, one.rejected) for one in simulated.receipt.read("run", 1, LAYOUT, KEY)]
        assert seen == [((1, 4), 1), ((1, 4), 1), ((1, 2), 1)]
        nobody = ServerKey.generate()
        none = [(one.values.shape, one.rejected) for one in simulated.receipt.read("run", 1, LAYOUT, nobody)]
        assert none == [((0, 4), 2), ((0, 4), 2), ((0, 2), 2)]


@pytest.mark.long
def test_the_order_is_uniform() -> None:
    """Each of the 24 orders of four clients' packets is forwarded equally often.

    False alarm 1e-6: chi-square with 23 degrees of freedom. The keys come from the operating system, so the draws
    differ from run to run and the rate holds over runs.
    """
    layout, runs = PacketLayout(1, 1), 960
    key = ServerKey.generate()
    found = Round("run", 1, 1)
    posts = [Frame(found, [(0, key.public.seal(layout.split([c])[0], found.label(0)))]).encode() for c in range(4)]
    sealed = [Frame.decode(post).packets[0][1] for post in posts]
    counts: Counter[tuple[int, ...]] = Counter()
    shuffler = Shuffler(":memory:", minimum=4)
    for run in range(runs):
        own = Round("run", run, 1)
        for client in range(4):  # always in the same order
            shuffler.accept(f"c{client}", f"{run}", Frame(own, [(0, sealed[client])]).encode())
        order: list[int] = []
        forward(shuffler, lambda batch, to=order: to.extend(sealed.index(one) for _, one in batch.frame.packets))
        counts[tuple(order)] += 1
    shuffler.close()
    assert set(counts) <= set(permutations(range(4)))
    limit = float(chi2.isf(1e-6, 23))
    assert _distance(counts) < limit
    # the twin: a shuffler that leaves one pack in four in the order of arrival
    lazy = Counter(dict.fromkeys(permutations(range(4)), 3 * runs // 96))
    lazy[0, 1, 2, 3] += runs // 4
    assert _distance(lazy) > limit


def _distance(counts: Counter[tuple[int, ...]]) -> float:
    """Return the chi-square statistic of counts of orders against equal ones."""
    expected = counts.total() / 24
    return sum((counts[order] - expected) ** 2 for order in permutations(range(4))) / expected


def test_nothing_on_the_disk_joins_a_packet_to_its_client(tmp_path: Path) -> None:
    shuffler = Shuffler(tmp_path / "s.db", minimum=3)
    for client in (1, 2):
        shuffler.accept(f"client-{client}", fresh(), post_of(client))
    shuffler.close()
    connection = sqlite3.connect(tmp_path / "s.db")
    columns = [row[1] for row in connection.execute("PRAGMA table_info(packets)")]
    assert columns == ["batch", "key", "block", "sealed"]
    keys = [row[0] for row in connection.execute("SELECT key FROM packets")]
    assert keys == sorted(keys)  # stored by random key, not in the order of arrival
    assert {len(one) for one in keys} == {16}
    connection.close()


class _Died(Exception):
    pass


@pytest.mark.parametrize("after", range(7))
def test_a_batch_that_is_interrupted_arrives_once(tmp_path: Path, after: int) -> None:
    """Stop at each step between releasing, delivering and erasing; go on with other settings: the same values."""
    shuffler, receipt = Shuffler(tmp_path / "s.db", minimum=3, forward_bytes=300), Receipt(tmp_path / "r.db")
    for client in (1, 2, 3):
        shuffler.accept(f"c{client}", fresh(), post_of(client))
    steps = 0

    def deliver(batch: BatchPart) -> None:
        nonlocal steps
        for act in (lambda: None, lambda: receipt.accept(batch.post, batch.frame.encode())):
            act()
            steps += 1
            if steps == after:
                raise _Died

    if after:
        with pytest.raises(_Died):
            forward(shuffler, deliver)
        assert shuffler.waiting() == {"waiting": 0, "released": 9 - 3 * ((after - 1) // 2), "aside": 0}
        whole = after == 6  # the third and last batch was stored, and not yet erased
        assert receipt.batches("run", 1) == whole
        assert _bags(receipt) == (_expected([1, 2, 3]) if whole else {})  # nothing of a batch that is not whole
    shuffler.close()
    shuffler = Shuffler(tmp_path / "s.db", minimum=9 if after else 3, forward_bytes=10_000)
    forward(shuffler, deliver)
    assert _bags(receipt) == _expected([1, 2, 3])
    assert shuffler.next_part() is None
    assert shuffler.waiting() == {"waiting": 0, "released": 0, "aside": 0}
    shuffler.close()
    receipt.close()


@pytest.mark.parametrize("post", ["", "x", "0" * 32, "0" * 32 + ".1.1", "0" * 32 + ".0.0", "0" * 32 + ".-1.2"])
def test_bad_numbers_of_batches(post: str) -> None:
    receipt = Receipt(":memory:")
    with pytest.raises(Malformed):
        receipt.accept(post, post_of(1))
    receipt.close()


def test_a_batch_keeps_its_terms() -> None:
    receipt = Receipt(":memory:")
    batch = "a" * 32
    assert receipt.accept(f"{batch}.0.2", post_of(1)).accepted == 3
    assert receipt.accept(f"{batch}.0.2", post_of(1)).repeated == 3
    for post, body in ((f"{batch}.1.3", post_of(2)), (f"{batch}.1.2", post_of(2, number=2))):
        with pytest.raises(Malformed, match="another round"):
            receipt.accept(post, body)
    assert not receipt.wait("run", 1, timeout=0)
    receipt.accept(f"{batch}.1.2", post_of(2))
    assert receipt.wait("run", 1, timeout=0)
    assert _bags(receipt) == _expected([1, 2])
    receipt.forget("run", 2)
    assert not _bags(receipt)
    assert receipt.accept(f"{batch}.0.2", post_of(1)).repeated == 3
    receipt.close()


def test_a_full_store_refuses_and_keeps_what_it_has(tmp_path: Path) -> None:
    shuffler = Shuffler(tmp_path / "s.db", minimum=2, largest=2**17)
    layout, accepted = PacketLayout(500, 500), []
    with suppress(Full):
        for client in range(100):
            shuffler.accept(f"c{client}", fresh(), post_of(client, layout=layout))
            accepted.append(client)
    assert 5 < len(accepted) < 40
    receipt = Receipt(tmp_path / "r.db")
    forward(shuffler, lambda batch: receipt.accept(batch.post, batch.frame.encode()))
    assert _bags(receipt, layout=layout) == _expected(accepted, layout)
    shuffler.accept("late", fresh(), post_of(99, layout=layout))  # there is room again
    shuffler.close()
    receipt.close()


@pytest.mark.parametrize(
    "wrong", [{"minimum": 1}, {"minimum": 2.5}, {"patience": -1.0}, {"patience": math.nan}, {"keep": 0}]
)
def test_bad_settings(wrong: dict[str, Any]) -> None:
    with pytest.raises((TypeError, ValueError), match="Expected"):
        Shuffler(":memory:", **({"minimum": 2} | wrong))


def test_files_of_something_else_are_left_alone(tmp_path: Path) -> None:
    Shuffler(tmp_path / "s.db", minimum=2).close()
    with pytest.raises(ValueError, match="something else"):
        Receipt(tmp_path / "s.db")


def test_means_are_those_of_the_values() -> None:
    """In process, with a mechanism: the bags hold exactly what was privatised."""
    import noisette as nz

    layout, rng = PacketLayout(50, 8), np.random.default_rng(3)
    reports = nz.Duchi(epsilon=1.0).privatize(rng.uniform(-1, 1, 1000), rng=rng).reshape(20, 50)
    with InProcess(minimum=20) as simulated:
        for client, row in enumerate(reports):
            sent = simulated.sender(f"c{client}").send(row, layout, context="run", number=0)
            assert (sent.packets, sent.known, sent.posts) == (7, 0, 1)
        assert simulated.deliver() == 140
        total = np.zeros(50)
        for one in simulated.receipt.read("run", 0, layout, simulated.key):
            total[one.position : one.position + one.values.shape[1]] += one.values.sum(axis=0)
    assert total == pytest.approx(reports.sum(axis=0), rel=1e-12)
