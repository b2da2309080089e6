"""The server's side of a round: right sums, flat memory, refused reports."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from noisette.federated import Aggregator, Channel, ModelLayout, Norm, Ranges, RejectedReport, TooFew, enhanced
from noisette.federated.families import family
from noisette.shuffler import InProcess
from noisette.shuffler.sealing import OVERHEAD

LAYOUT = ModelLayout.of(np.zeros(40))
CHANNEL = Channel("adaptive-duchi", LAYOUT, Ranges(0.0, 0.5), epsilon=2.0)


def payloads(number, channel=CHANNEL, seed=0):
    rng = np.random.default_rng(seed)
    return [channel.privatize(np.full(LAYOUT.dims, 0.1), rng=rng).payload for _ in range(number)]


def test_the_mean_is_weighted_and_its_error_follows_unequal_weights():
    aggregator = Aggregator(CHANNEL)
    sent, weights = payloads(5), [1.0, 2.0, 3.0, 4.0, 10.0]
    for payload, weight in zip(sent, weights, strict=True):
        aggregator.add(payload, weight=weight)
    shares = np.asarray(weights) / 20
    estimate = aggregator.estimate()
    assert estimate.value == pytest.approx(shares @ np.stack([CHANNEL.estimate(p) for p in sent]))
    assert estimate.std_error == pytest.approx(CHANNEL.noise()[0] * np.sqrt((shares**2).sum()))


def test_stated_error_covers_the_spread_of_many_rounds():
    errors = []
    for seed in range(200):
        aggregator = Aggregator(CHANNEL)
        for payload, weight in zip(payloads(4, seed=seed), (1.0, 1.0, 1.0, 5.0), strict=True):
            aggregator.add(payload, weight=weight)
        errors.append(aggregator.estimate().value - 0.1)
    spread, stated = np.std(errors), aggregator.estimate().std_error[0]
    assert 0.93 < spread / stated < 1.03  # 8,000 values: the standard deviation errs by 0.8 %; the bound is at zero


def test_a_second_report_and_wrong_ones_change_nothing():
    aggregator = Aggregator(CHANNEL)
    first, second = payloads(2)
    aggregator.add(first, sender=7)
    before = aggregator.estimate().value
    for bad, words in ((second, "already"), (second[:-1], "uint8"), (np.full(40, np.nan), "uint8")):
        with pytest.raises(RejectedReport, match=words):
            aggregator.add(bad, sender=7 if words == "already" else 8)
    assert np.array_equal(aggregator.estimate().value, before)
    assert aggregator.clients == 1
    aggregator.add(second, sender=8)  # a wrong report does not bar the right one
    assert aggregator.clients == 2
    with pytest.raises(ValueError, match="weight=-1"):
        aggregator.add(first, weight=-1.0)


def test_a_round_below_the_minimum_is_not_released():
    aggregator = Aggregator(CHANNEL, minimum=3)
    for payload in payloads(2):
        aggregator.add(payload)
    with pytest.raises(TooFew, match="2 reports came, and 3"):
        aggregator.estimate()
    aggregator.add(payloads(1)[0])  # as many as it takes
    assert aggregator.estimate().count.tolist() == [3] * CHANNEL.layout.dims


def test_blocks_without_origin_give_the_same_mean():
    sent = payloads(6)
    whole, bags = Aggregator(CHANNEL), Aggregator(CHANNEL, minimum=6)
    for payload in sent:
        whole.add(payload)
    reports = np.stack([CHANNEL.unpack(payload) for payload in sent])
    rng = np.random.default_rng(1)
    for start in (0, 15):
        assert bags.add_block(start, rng.permutation(reports[:, start : start + 15])) == 0
    with pytest.raises(TooFew, match="Some weight has 0 answers"):
        bags.estimate()
    bags.add_block(30, rng.permutation(reports[:, 30:]))
    assert bags.estimate().value == pytest.approx(whole.estimate().value)
    assert bags.estimate().std_error == pytest.approx(whole.estimate().std_error)


@pytest.mark.parametrize(
    ("name", "clip", "size"),
    [
        ("adaptive-duchi", Ranges(0.0, 0.5), 2),  # bits: twelve weights in two bytes
        ("laplace", Ranges(0.0, 0.5), 24),  # integers of 16 bits
        ("privunit-g", Norm(1.0), 80),  # one answer about all 40 weights
    ],
)
def test_reports_keep_their_compact_form_through_a_shuffler(name, clip, size):
    """What a shuffler stores is as small as what a client sends, and the server reads the same numbers to the bit."""
    channel = Channel(name, LAYOUT, clip, **{family(name).price: 2.0})
    packets = channel.packets(12)
    assert packets.packet_bytes == size
    sent = [channel.privatize(np.zeros(40), rng=k).payload for k in range(4)]
    reports = np.stack([channel.unpack(payload) for payload in sent])
    aggregator = Aggregator(channel)
    with InProcess(minimum=4) as process:
        for client, payload in enumerate(sent):
            process.sender(str(client)).send(channel.codes(payload), packets, context="run", number=1)
        stored = process.shuffler.next_part() if process.shuffler.release() else None
        assert stored.frame.packet_bytes == size + OVERHEAD
        process.deliver()
        for one in process.receipt.read("run", 1, packets, process.key):
            assert one.values.dtype.itemsize == (1 if packets.kind == "bit" else 2)
            assert one.rejected + aggregator.add_block(one.position, one.values) == 0
            own = reports[:, one.position : one.position + one.values.shape[1]]
            assert np.array_equal(np.sort(channel.values(one.values), axis=0), np.sort(own, axis=0))
    assert aggregator.counted == 4


@pytest.mark.parametrize(
    ("name", "clip"),
    [("adaptive-duchi", Ranges(0.0, 0.5)), ("retain-or-noise", Ranges(0.0, 0.5)), ("privunit-g", Norm(1.0))],
)
def test_rows_that_nobody_can_have_sent_are_left_out(name, clip):
    channel = Channel(name, LAYOUT, clip, **{family(name).price: 2.0})
    rows = np.stack([channel.unpack(channel.privatize(np.zeros(40), rng=k).payload) for k in range(4)])
    spoiled = np.concatenate([rows, rows[:1] * 1.37, np.full((1, 40), np.nan)])
    clean, dirty = Aggregator(channel), Aggregator(channel)
    assert clean.add_block(0, rows) == 0
    assert dirty.add_block(0, spoiled) == 2
    assert np.array_equal(clean.estimate().value, dirty.estimate().value)


WHOLE = {"privunit-g": Norm(1.0), "tensor-gaussian": Norm(1.0)}
EACH = dict.fromkeys(("adaptive-duchi", "laplace", "piecewise", "gaussian", "retain-or-noise"), Ranges(0.0, 0.5))


@pytest.mark.parametrize("place", [0, 17, 39])
@pytest.mark.parametrize(("name", "clip"), (WHOLE | EACH).items())
def test_a_row_with_one_entry_that_nobody_can_have_sent_is_left_out(name, clip, place):
    channel = Channel(name, LAYOUT, clip, **{family(name).price: 2.0})
    rows = np.stack([channel.unpack(channel.privatize(np.zeros(40), rng=k).payload) for k in range(4)])
    clean, dirty = Aggregator(channel), Aggregator(channel)
    assert clean.add_block(0, rows[[0, 1, 3]]) == 0
    for value in (np.nan, np.inf, -np.inf):
        spoiled = rows.copy()
        spoiled[2, place] = value
        dirty = Aggregator(channel)
        assert dirty.add_block(0, spoiled) == 1
        assert np.array_equal(clean.estimate().value, dirty.estimate().value)
        with pytest.raises(RejectedReport):
            dirty.add_plain(spoiled[2])


@pytest.mark.parametrize(
    ("name", "clip", "start", "width"),
    [
        ("adaptive-duchi", Ranges(0.0, 0.5), 35, 6),
        ("adaptive-duchi", Ranges(0.0, 0.5), -1, 3),
        ("privunit-g", Norm(1.0), 0, 39),
    ],
)
def test_blocks_of_another_model_are_refused(name, clip, start, width):
    aggregator = Aggregator(Channel(name, LAYOUT, clip, **{family(name).price: 2.0}))
    with pytest.raises(RejectedReport, match="Expected rows"):
        aggregator.add_block(start, np.ones((2, width)))


def test_memory_does_not_grow_with_clients():
    layout = ModelLayout.of(np.zeros(20_000))
    channel = Channel("privunit-g", layout, Norm(1.0), epsilon=8.0)
    update = np.zeros(layout.dims)

    def peak(clients):
        aggregator = Aggregator(channel)
        tracemalloc.start()
        for client in range(clients):
            aggregator.add(channel.privatize(update, rng=client).payload, sender=client)
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return most

    few = peak(5)
    assert peak(100) < few + 50_000  # a report is 80,000 bytes, and 95 more of them came


def test_shrinking_lowers_the_error_of_a_quiet_layer_and_leaves_small_layers_alone():
    layout = ModelLayout(("large", "tiny"), ((2000,), (3,)))
    channel = Channel("privunit-g", layout, Norm(1.0), epsilon=4.0)
    aggregator = Aggregator(channel)
    update = np.zeros(layout.dims)
    update[:50] = 0.1
    for client in range(30):
        aggregator.add(channel.privatize(update, rng=client).payload)
    estimate = aggregator.estimate()
    shrunk = enhanced(estimate, channel)
    assert np.sum((shrunk - update) ** 2) < 0.5 * np.sum((estimate.value - update) ** 2)
    assert np.array_equal(shrunk[2000:], estimate.value[2000:])
    assert np.array_equal(enhanced(estimate, channel, "none"), estimate.value)
