"""What "auto" sends about long updates: a kilobyte or a word, added up without decoding each report."""

from __future__ import annotations

import math

import numpy as np
import pytest

from noisette.federated import Aggregator, Channel, Length, ModelLayout, Norm, RejectedReport
from noisette.federated.families import chosen

LAYOUT = ModelLayout.of(np.zeros(3000))
UPDATE = np.random.default_rng(7).standard_normal(3000) / math.sqrt(3000)


@pytest.mark.long
@pytest.mark.parametrize(
    ("options", "clip", "size"),
    [({}, Norm(1.0), 1028), ({"rows": 128}, Length(2.0), 132), ({"bits": 9}, Norm(1.0), 6)],
)
def test_reports_are_short_and_their_sum_is_that_of_the_estimates(options, clip, size):
    channel = Channel("fast-projunit", LAYOUT, clip, epsilon=6.0, options=options)
    rng = np.random.default_rng(3)
    payloads = [channel.privatize(UPDATE.copy(), rng=rng).payload for _ in range(40)]
    assert {payload.nbytes for payload in payloads} == {size}
    one, mixed = Aggregator(channel), Aggregator(channel)
    for client, payload in enumerate(payloads):
        one.add(payload, sender=client, weight=1 + client % 2)
    assert mixed.add_block(0, np.stack(payloads)) == 0
    weights = 1 + np.arange(40) % 2
    estimates = np.stack([channel.estimate(payload) for payload in payloads])
    np.testing.assert_allclose(one.estimate().value, weights @ estimates / weights.sum(), atol=1e-12)
    np.testing.assert_allclose(mixed.estimate().value, estimates.mean(axis=0), atol=1e-12)
    # the squared error is a sum of 3,000 squares or so, and few users see the same rows: within 8 of its deviations
    target = UPDATE.copy()
    clip.inward(target, LAYOUT)
    gap = estimates.mean(axis=0) - clip.outward(target, LAYOUT)
    assert np.square(gap).sum() / np.square(mixed.estimate().std_error).sum() == pytest.approx(1, abs=0.25)


def test_what_was_not_sent_is_refused():
    channel = Channel("fast-projunit", LAYOUT, Norm(1.0), epsilon=6.0)
    payload = channel.privatize(UPDATE.copy(), rng=1).payload
    for wrong in (payload[:-1], payload.astype(np.int16), np.zeros_like(payload), np.full_like(payload, 127)):
        with pytest.raises(RejectedReport):
            channel.unpack(wrong)
    words = Channel("fast-projunit", LAYOUT, Norm(1.0), epsilon=6.0, options={"bits": 4})
    with pytest.raises(RejectedReport):
        words.unpack(np.asarray([0, 0, 16], dtype=np.int16))


def test_a_large_budget_travels_in_two_bytes():
    """Where the noise is small beside the vector itself, a byte would round too much."""
    channel = Channel("fast-projunit", LAYOUT, Length(1.0), epsilon=200.0)
    payload = channel.privatize(UPDATE.copy(), rng=1).payload
    assert payload.dtype == np.int16
    assert channel.deviation**2 < 1.001 * channel.whole.worst_variance()


def test_auto_looks_at_the_length_and_at_the_clip():
    assert [chosen("auto", dims, "ball") for dims in (10, 2048, 2049)] == ["privunit", "privunit", "fast-projunit"]
    assert chosen("auto", 10**6, "box") == "duchi-box"
    assert chosen("laplace", 10**6, "box") == "laplace"
