"""The shuffler's store and its frames at each limit and one beyond it, by a clock that the test sets."""

from __future__ import annotations

import hashlib
import hmac
import math
from typing import Any

import numpy as np
import pytest
from tests.shuffler.helpers import fresh, post_of

from noisette.shuffler import Round, Shuffler
from noisette.shuffler.store import PostRefused, _name, _place
from noisette.shuffler.wire import LARGEST_BLOCKS, Frame, Malformed, record_bytes

DAY = 86_400.0


def filled(now: list[float], clients: str = "abc", **given: Any) -> Shuffler:
    """Three blocks from each of some clients, who are enough."""
    found = Shuffler(":memory:", minimum=len(clients), clock=lambda: now[0], **given)
    for client in clients:
        found.accept(client, fresh(), post_of(ord(client)))
    return found


def part_of(shuffler: Shuffler) -> Any:
    found = shuffler.next_part()
    assert found is not None
    return found


def test_a_fault_is_tried_again_after_pauses_that_double() -> None:
    now = [1000.0]
    shuffler = filled(now)
    assert shuffler.next_part() is None  # nothing is released
    assert shuffler.release() == [(Round("run", 1, 3), 3)]
    for attempt in range(1, 21):
        shuffler.failed(part_of(shuffler), "bug", final=False, fault=True)
        (told,) = shuffler.batches()
        assert (told["state"], told["reason"]) == ("released" if attempt < 20 else "aside", "bug")
        pause = min(60.0, 0.2 * 2**attempt)
        now[0] += pause * (1 - 1e-9)
        assert shuffler.next_part() is None
        now[0] += pause * 2e-9
        if attempt == 3:
            assert part_of(shuffler).sequence == 0
    assert shuffler.next_part() is None
    (name,) = (one["name"] for one in shuffler.batches())
    shuffler.operate(name, "retry")
    part = part_of(shuffler)
    shuffler.failed(part, "bug", final=False, fault=True)
    assert shuffler.batches()[0]["state"] == "released"  # counted anew
    shuffler.operate(name, "retry")
    shuffler.failed(part, "away", final=False, fault=False)
    assert part_of(shuffler) == part  # at once
    shuffler.failed(part, "no", final=True, fault=False)
    assert shuffler.batches()[0]["state"] == "aside"
    shuffler.operate(name, "retry")
    shuffler.operate(name, "skip")
    assert (shuffler.batches()[0]["state"], shuffler.next_part()) == ("aside", None)
    shuffler.operate(name, "drop")
    shuffler.failed(part, "gone", final=False, fault=True)  # nothing to note it on
    assert shuffler.batches() == []
    shuffler.close()


@pytest.mark.parametrize(("packets", "per_part", "total"), [(1, 1, 9), (2, 2, 5), (3, 3, 3), (8, 8, 2), (9, 9, 1)])
def test_parts_of_a_batch_have_as_many_packets_as_fit(packets: int, per_part: int, total: int) -> None:
    now = [0.0]
    size = len(Frame.decode(post_of(1)).packets[0][1])
    for bytes_, each in ((packets * (size + 4), per_part), (packets * (size + 4) - 1, max(1, per_part - 1))):
        shuffler = filled(now, forward_bytes=bytes_)
        shuffler.release()
        seen, keys = list[int](), list[bytes]()
        for sequence in range(math.ceil(9 / each)):
            assert shuffler.waiting() == {"waiting": 0, "released": 9 - sequence * each, "aside": 0}
            part = part_of(shuffler)
            assert (part.sequence, part.total) == (sequence, math.ceil(9 / each))
            assert part.post == f"{part.name}.{sequence}.{part.total}"
            assert len(part.frame.packets) == min(each, 9 - sequence * each)
            keys.append(part.last)
            seen += [block for block, _ in part.frame.packets]
            shuffler.done(part)
            shuffler.done(part)  # once
        assert sorted(seen) == [0, 0, 0, 1, 1, 1, 2, 2, 2]
        assert keys == sorted(keys)
        assert (shuffler.batches(), shuffler.next_part()) == ([], None)
        shuffler.close()
    assert (record_bytes(size), math.ceil(9 / per_part)) == (size + 4, total)


def test_the_oldest_that_is_due_goes_first() -> None:
    now = [50.0]
    shuffler = filled(now)
    for client in "abc":
        shuffler.accept(client, fresh(), post_of(ord(client), number=2))
    assert [own.number for own, _ in shuffler.release()] == [1, 2]
    first = part_of(shuffler)
    assert first.frame.round.number == 1
    shuffler.failed(first, "bug", final=False, fault=True)
    assert part_of(shuffler).frame.round.number == 2
    now[0] += 1.0
    assert part_of(shuffler).frame.round.number == 2  # due since the beginning
    shuffler.close()


def test_a_minimum_that_was_raised_holds_back_the_least_block() -> None:
    """Three packets of one block do not make up for two of another."""
    now = [1000.0]
    shuffler = filled(now, "ab")
    shuffler.accept("c", fresh(), post_of(9, blocks=[0]), minimum=2)
    shuffler.minimum = 3
    assert shuffler.release() == []
    shuffler.minimum = 2
    assert shuffler.release() == [(Round("run", 1, 3), 2)]


def test_one_block_below_the_minimum_holds_all_back() -> None:
    now = [0.0]
    shuffler = filled(now, "ab")
    shuffler.minimum = 3  # a restart has raised it
    assert shuffler.release() == []
    shuffler.minimum = 2
    assert len(shuffler.release()) == 1
    shuffler.accept("c", fresh(), post_of(3, number=2), minimum=3)
    shuffler.accept("d", fresh(), post_of(4, number=2), minimum=3)
    assert shuffler.release() == []  # they ask for more
    shuffler.accept("e", fresh(), post_of(5, number=2, blocks=[0, 2]), minimum=3)
    assert shuffler.release() == []
    shuffler.accept("e", fresh(), post_of(5, number=2, blocks=[1]), minimum=3)
    assert shuffler.release() == [(Round("run", 2, 3), 3)]
    shuffler.close()


def test_a_round_is_over_after_whole_days() -> None:
    now = [100.5 * DAY]
    shuffler = filled(now, keep=2.0)
    shuffler.release()
    shuffler.done(part_of(shuffler))
    now[0] = 102.0 * DAY  # the day of the round is 100, and 102 - 2 is not after it
    assert shuffler.forget() == 0
    now[0] = 101.9 * DAY
    shuffler.accept("z", fresh(), post_of(9))
    now[0] = 103.5 * DAY
    assert shuffler.forget() == 0  # one waits for company
    (name,) = (one["name"] for one in shuffler.batches())
    shuffler.operate(name, "drop")
    now[0] = 103.0 * DAY
    assert shuffler.forget() == 0  # something came on day 101
    now[0] = 103.001 * DAY
    assert (shuffler.forget(), shuffler.forget()) == (1, 0)
    with pytest.raises(PostRefused, match="This round is over"):
        shuffler.accept("y", fresh(), post_of(8))
    shuffler.close()


def test_names_are_made_by_who_has_the_secret() -> None:
    assert _name("me", b"post 7") == hmac.digest(b"me", b"post 7", hashlib.sha256)[:16]
    assert _place(b"s" * 32, 258, b"sealed") == hmac.digest(b"s" * 32, b"\x00\x00\x01\x02sealed", hashlib.sha256)[:16]


@pytest.mark.parametrize("blocks", [1, 7, 8, 9, 17])
def test_each_block_of_a_round_is_sent_once(blocks: int) -> None:
    def body(chosen: list[int], mark: int) -> bytes:
        packets = [(block, bytes([mark, block]) * 20) for block in chosen]
        return Frame(Round("run", 1, blocks), packets).encode()

    shuffler = Shuffler(":memory:", minimum=2)
    order = np.random.default_rng(blocks).permutation(blocks).tolist()
    for place, block in enumerate(order):
        shuffler.accept("a", fresh(), body([block], place))
        with pytest.raises(PostRefused) as caught:
            shuffler.accept("a", fresh(), body(sorted(order[: place + 1]), 100 + place))
        assert caught.value.blocks == sorted(order[: place + 1])
    assert shuffler.waiting()["waiting"] == blocks
    shuffler.close()


def test_settings_at_their_ends() -> None:
    for good in ({"minimum": 2}, {"minimum": 2, "patience": 0.0}, {"minimum": 2, "keep": 1.0, "forward_bytes": 1}):
        Shuffler(":memory:", **good).close()  # type: ignore[arg-type]
    for wrong in (
        {"minimum": 1},
        {"minimum": 2, "patience": -0.1},
        {"minimum": 2, "patience": math.inf},
        {"minimum": 2, "keep": 0.99},
        {"minimum": 2, "keep": math.nan},
        {"minimum": 2, "forward_bytes": 0},
    ):
        with pytest.raises(ValueError, match=[*wrong][-1]):
            Shuffler(":memory:", **wrong)  # type: ignore[arg-type]


def test_ends_of_a_round_and_of_a_frame() -> None:
    for context, number, blocks in (("c" * 200, 0, 1), ("é" * 100, 2**32 - 1, LARGEST_BLOCKS)):
        own = Round(context, number, blocks)
        assert Frame.decode(Frame(own, [(blocks - 1, b"x")]).encode()).round == own
    wrong: list[Any] = [("", 0, 1), ("c" * 201, 0, 1), ("é" * 101, 0, 1), (5, 0, 1), ("c", -1, 1), ("c", 2**32, 1)]
    for given in (*wrong, ("c", 0, 0), ("c", 0, LARGEST_BLOCKS + 1)):
        with pytest.raises(ValueError, match=r"context|number|blocks"):
            Round(*given)
    good = Frame(Round("run", 5, 3), [(0, b"abc"), (2, b"def")]).encode()
    assert Frame.decode(good).packets == [(0, b"abc"), (2, b"def")]
    head = 22
    for body in (
        good[: head - 1],
        good[:head],
        good[:-1],
        good + b"x",
        b"X" + good[1:],
        good[:4] + bytes([1]) + good[5:],
        good[:4] + bytes([3]) + good[5:],
        good[:21] + bytes([0]) + good[22:25],  # no packet at all
        good[: head + 3] + (3).to_bytes(4, "big") + good[head + 7 :],  # a block beyond the last
        good[:head] + b"\xff" + good[head + 1 :],  # no UTF-8
    ):
        with pytest.raises(Malformed):
            Frame.decode(body)
    assert Frame.decode(good[: head + 3] + (2).to_bytes(4, "big") + good[head + 7 :]).packets[0][0] == 2


def test_who_changed_what_is_written_down() -> None:
    now = [7.0]
    shuffler = Shuffler(":memory:", minimum=2, clock=lambda: now[0])
    shuffler.note("ada", "drop x")
    now[0] = 9.0
    shuffler.note("bob", "retry y")
    assert [tuple(one.values()) for one in shuffler.changes()] == [(7.0, "ada", "drop x"), (9.0, "bob", "retry y")]
    shuffler.ping()
    shuffler.close()
