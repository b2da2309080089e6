"""What leaves a client: clipped, private, packed, and unbiased once unpacked."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.special import ndtri

from noisette.federated import Channel, Length, ModelLayout, Norm, Ranges, RejectedReport, channel_from, wire
from noisette.federated.families import family, names

DIMS = 6
LAYOUT = ModelLayout(("weight", "bias"), ((2, 2), (2,)))
UPDATE = np.asarray([0.3, -0.2, 0.1, 0.4, 0.05, -0.35])
RANGES = Ranges((0.0, 0.1), (0.5, 0.6))
REPORTS = 1500
FALSE_ALARM = 1e-6

BOX = [name for name in names() if "box" in family(name).shapes]
CASES = [(name, RANGES, 2.0) for name in BOX] + [
    ("privunit", Norm(0.5), 4.0),
    ("privunit-g", Norm(0.5), 4.0),
    ("privunit-g", Length(1.5), 4.0),
    ("fast-projunit", Norm(0.5), 4.0),
    ("tensor-gaussian", Norm(0.5), 2.0),
]


def clipped(clip, update=UPDATE):
    vector = update.copy()
    clip.inward(vector, LAYOUT)
    return clip.outward(vector, LAYOUT)


def worst_score(estimates, truth, deviation):
    """Return the largest deviation of the means, in standard errors, and what it stays below."""
    score = np.abs(np.mean(estimates, axis=0) - truth) / (deviation / math.sqrt(len(estimates)))
    return score.max(), -ndtri(FALSE_ALARM / (2 * DIMS * len(CASES)))


@pytest.mark.long
@pytest.mark.parametrize(("name", "clip", "budget"), CASES)
def test_estimates_are_unbiased_and_noise_is_as_stated(name, clip, budget):
    channel = Channel(name, LAYOUT, clip, **{family(name).price: budget})
    rng = np.random.default_rng(7)
    estimates = np.stack([channel.estimate(channel.privatize(UPDATE, rng=rng).payload) for _ in range(REPORTS)])
    noise = LAYOUT.spread(channel.noise())
    score, allowed = worst_score(estimates, clipped(clip), noise)
    assert score < allowed
    assert np.all(estimates.std(axis=0) < noise * 1.2)
    wrong, _ = worst_score(estimates * 1.6 + 0.12, clipped(clip), noise)  # the test sees a wrong scale
    assert wrong > allowed or noise.min() > 2


def test_every_listed_mechanism_is_there():
    wanted = {"laplace", "piecewise", "gaussian", "privunit", "privunit-g", "angle-noise", "adaptive-duchi"}
    assert wanted | {"tensor-gaussian", "retain-or-noise"} <= set(names())
    assert "square-wave" not in names()  # biased as published


@pytest.mark.parametrize("clip", [Norm(0.5), Length(0.7)])
def test_gaussian_noise_on_angles_travels_and_is_decoded(clip):
    channel = Channel("angle-gaussian", LAYOUT, clip, mu=3.0, options={"beta": 0.5})
    assert channel.whole.privacy_event().mu == pytest.approx(3.0, rel=1e-6)
    estimate = channel.estimate(channel.privatize(UPDATE, rng=7).payload)
    assert estimate.shape == (DIMS,)
    assert 0 < np.linalg.norm(estimate) <= 0.7 * (1 + 1e-9)


def test_angles_come_back_as_vectors_of_the_clipped_length():
    channel = Channel("angle-noise", LAYOUT, Length(0.7), epsilon=20.0)
    estimate = channel.estimate(channel.privatize(UPDATE, rng=1).payload)
    assert np.linalg.norm(estimate) == pytest.approx(0.7)


def test_one_of_two_numbers_travels_as_a_bit_noise_in_16_bits_and_the_rest_as_floats():
    layout = ModelLayout.of(np.zeros(1001))
    update = np.zeros(1001)
    bits = Channel("adaptive-duchi", layout, Ranges(0.0, 1.0), epsilon=1.0).privatize(update).payload
    assert (bits.dtype, bits.size) == (np.uint8, 126)
    for name in ("privunit", "privunit-g", "tensor-gaussian"):
        assert Channel(name, layout, Norm(1.0), **{family(name).price: 1.0}).privatize(update).payload.dtype == np.int16
    for name, kind in {"laplace": np.int16, "gaussian": np.int16, "piecewise": np.float64}.items():
        assert (
            Channel(name, layout, Ranges(0.0, 1.0), **{family(name).price: 1.0}).privatize(update).payload.dtype == kind
        )


def test_what_16_bits_do_not_hold_travels_in_32_and_the_rest_as_floats():
    for budget, kind in ((1e4, np.int32), (1e6, np.float64)):  # noise of 2^-12 and 2^-19
        channel = Channel("laplace", LAYOUT, RANGES, epsilon=budget)
        release = channel.privatize(np.full(DIMS, 0.4), rng=1)
        assert release.payload.dtype == kind
        assert channel.estimate(release.payload) == pytest.approx(np.full(DIMS, 0.4), abs=1e-2)


@pytest.mark.parametrize(("name", "clip", "budget"), CASES)
@pytest.mark.parametrize("factor", [0.02, 1.0, 5.0])
def test_reports_of_a_channel_have_one_type_and_length(name, clip, budget, factor):
    """Whatever they are about: also far outside the clip, and where an entry's noise is far out."""
    channel = Channel(name, LAYOUT, clip, **{family(name).price: budget * factor})
    updates = [UPDATE * scale for scale in (0.0, 1e-310, 1.0, -1.0, 1e6, 1e300)]
    found = {(p.dtype, p.shape) for update in updates for p in [channel.privatize(update).payload for _ in range(20)]}
    assert len(found) == 1


def test_a_report_beyond_16_bits_is_moved_to_their_end():
    assert wire.packed(np.asarray([-1e9, 3.0, 32768.0]), np.int16).tolist() == [-32767, 3, 32767]


def test_packing_moves_a_report_by_less_than_a_step_far_below_its_noise():
    for name, clip, budget in CASES:
        channel = Channel(name, LAYOUT, clip, **{family(name).price: budget})
        vector = UPDATE.copy()
        clip.inward(vector, LAYOUT)
        report = channel.whole.privatize(vector, rng=3)
        payload = channel.privatize(UPDATE, rng=3).payload
        arrived = channel.unpack(payload)
        if channel.support == channel.whole.support:
            assert np.array_equal(arrived, report)
            continue
        step = channel.support.step
        finest = 3 if payload.dtype == np.int8 else 8
        assert 2**finest <= channel.deviation / step < 2**12
        assert np.all(np.abs(arrived - report) < step)
        assert np.all(
            channel.whole.support.contains(arrived) | (name in ("privunit", "fast-projunit"))
        )  # its length may change a little


def test_rounding_to_travel_is_unbiased_where_rounding_down_is_not():
    step, report = 0.5, np.asarray([0.1, 0.3, -0.7])
    rng = np.random.default_rng(5)
    mean = np.mean([step * wire.rounded(report.copy(), step, rng) for _ in range(4000)], axis=0)
    allowed = -ndtri(FALSE_ALARM / 6) * step / 2 / math.sqrt(4000)
    assert np.abs(mean - report).max() < allowed
    assert np.abs(step * np.floor(report / step) - report).max() > allowed


@pytest.mark.parametrize(
    ("name", "clip", "spoil", "words"),
    [
        ("adaptive-duchi", RANGES, lambda p: p[:0], "report of 1 uint8"),
        ("adaptive-duchi", RANGES, lambda p: p.astype(float), "report of 1 uint8"),
        ("adaptive-duchi", RANGES, lambda p: p | 1, "zeros behind the last of 6 bits"),
        ("privunit-g", Norm(1.0), lambda p: np.append(p, p), "report of 6 int16"),
        ("privunit", Length(1.0), lambda p: 0 * p, "outside the support"),
        ("privunit-g", Norm(1.0), lambda p: p.astype(np.int32), "got shape .* of int32"),
        ("privunit-g", Norm(1.0), lambda p: p.astype(float), "got shape .* of float64"),
        ("piecewise", RANGES, lambda p: np.where(np.arange(6) == 2, np.nan, p), "finite"),
        ("piecewise", RANGES, lambda p: p * 0 + 1e9, "farther than noise ever goes"),
        ("retain-or-noise", RANGES, lambda p: p * 0 + 1e-12, "outside the support"),
        ("piecewise", RANGES, lambda p: p * 0 + 50, "support|farther"),
        ("laplace", RANGES, lambda p: p.astype(complex), "report of 6 int16"),
    ],
)
def test_what_the_mechanism_cannot_have_sent_is_refused(name, clip, spoil, words):
    channel = Channel(name, LAYOUT, clip, **{family(name).price: 2.0})
    payload = channel.privatize(UPDATE, rng=5).payload
    channel.unpack(payload)
    with pytest.raises(RejectedReport, match=words):
        channel.unpack(spoil(payload))


def test_an_integer_of_32_bits_that_is_too_large_is_refused():
    channel = Channel("laplace", LAYOUT, RANGES, epsilon=1e4)
    payload = channel.privatize(UPDATE).payload
    with pytest.raises(RejectedReport, match="farther than noise ever goes"):
        channel.unpack(payload * 0 + 2**30)


def test_clipping_bounds_what_the_mechanism_sees_and_says_how_much_it_took():
    vector = 10 * UPDATE
    taken = Norm(0.5).inward(vector, LAYOUT)
    assert np.linalg.norm(vector) <= 1 < np.linalg.norm(vector) * (1 + 1e-9)
    assert taken == pytest.approx(1 - 0.5 / np.linalg.norm(10 * UPDATE))
    vector = 10 * UPDATE
    taken = RANGES.inward(vector, LAYOUT)
    assert np.abs(vector).max() == 1
    inside = np.clip(10 * UPDATE, [-0.5] * 4 + [-0.5] * 2, [0.5] * 4 + [0.7] * 2)
    assert taken == pytest.approx(np.abs(10 * UPDATE - inside).sum() / np.abs(10 * UPDATE).sum())


@pytest.mark.parametrize("place", range(6))
def test_one_entry_that_is_no_number_is_in_the_middle_and_the_others_stay(place):
    vector = 0.1 * UPDATE
    usual = vector.copy()
    RANGES.inward(usual, LAYOUT)
    vector[place] = np.nan
    RANGES.inward(vector, LAYOUT)
    assert vector[place] == 0.0
    assert np.delete(vector, place).tolist() == np.delete(usual, place).tolist()


def test_a_short_update_with_one_large_entry_is_clipped_in_that_entry():
    layout = ModelLayout.of(np.zeros(100))
    spike = np.zeros(100)
    spike[3] = 1.0
    clip = Ranges.around_zero(norm=1.0, dims=100)
    vector = spike.copy()
    assert clip.inward(vector, layout) == pytest.approx(0.9)
    assert vector[3] == 1.0
    assert clip.outward(vector, layout)[3] == pytest.approx(0.1)


def test_an_update_is_shortened_before_its_entries_are_moved_into_their_range():
    layout, update = ModelLayout.of(np.zeros(4)), np.asarray([3.0, 4.0, 0.0, 0.0])
    for norm, expected in ((None, [1.0, 1.0, 0.0, 0.0]), (50.0, [1.0, 1.0, 0.0, 0.0]), (2.0, [1.0, 1.0, 0.0, 0.0])):
        vector = update.copy()
        Ranges(0.0, 0.5, norm).inward(vector, layout)
        assert vector.tolist() == expected
    vector = update.copy()
    taken = Ranges(0.0, 0.5, 0.75).inward(vector, layout)  # 0.45 and 0.6, of which 0.1 is outside
    assert vector == pytest.approx([0.9, 1.0, 0.0, 0.0])
    assert taken == pytest.approx((7.0 - 0.45 - 0.5) / 7.0)


def test_a_zero_update_has_a_fixed_direction_and_extremes_do_not_overflow():
    vector = np.zeros(DIMS)
    Length(1.0).inward(vector, LAYOUT)
    assert np.linalg.norm(vector) == pytest.approx(1)
    for scale in (1e-300, 1e300):
        vector = UPDATE * scale
        Norm(1.0).inward(vector, LAYOUT)
        assert np.isfinite(vector).all()
        assert np.linalg.norm(vector) <= 1


def test_ranges_follow_noisy_weights_layer_by_layer():
    noisy = np.asarray([0.0, 1.0, 0.5, 0.2, 3.0, 3.0])
    found = Ranges.adapted(LAYOUT, noisy, RANGES)
    assert found.centre == (0.5, 0.1)
    assert found.radius == (0.5, 0.6)  # a layer of equal weights keeps its range
    assert Ranges.adapted(LAYOUT, noisy, RANGES, widest=0.2).radius[0] == 0.2


def test_a_channel_is_rebuilt_from_its_description():
    for name, clip, budget in CASES:
        channel = Channel(name, LAYOUT, clip, **{family(name).price: budget})
        again = channel_from(channel.spec(), LAYOUT)
        assert np.array_equal(channel.privatize(UPDATE, rng=9).payload, again.privatize(UPDATE, rng=9).payload)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Channel("privunit-g", LAYOUT, RANGES, epsilon=1.0), r"Norm\(...\) or Length"),
        (lambda: Channel("laplace", LAYOUT, Norm(1.0), epsilon=1.0), r"Clip with Ranges"),
        (lambda: Channel("laplace", LAYOUT, RANGES, epsilon=-1.0), "epsilon=-1.0 > 0"),
        (lambda: Channel("grr", LAYOUT, RANGES, epsilon=1.0), "mechanism='grr'"),
        (lambda: Norm(math.nan), "norm=nan"),
        (lambda: Ranges(0.0, 0.0), "radius=0.0 > 0"),
        (
            lambda: Channel("laplace", LAYOUT, Ranges((0, 0, 0), (1, 1, 1)), epsilon=1.0).privatize(UPDATE),
            "each of 2 layers",
        ),
    ],
)
def test_bad_terms_are_refused_with_the_remedy(make, words):
    with pytest.raises(ValueError, match=words):
        make()


@pytest.mark.parametrize(
    ("update", "words"),
    [
        ({"weight": np.zeros((2, 2))}, "layers weight, bias"),
        ({"weight": np.zeros((4, 1)), "bias": np.zeros(2)}, r"shape \(2, 2\)"),
        ({"weight": np.full((2, 2), np.nan), "bias": np.zeros(2)}, "nan in layer 'weight'"),
        ({"weight": np.zeros((2, 2)), "bias": np.asarray([0.0, np.inf])}, "inf in layer 'bias'"),
        (np.zeros(7), "layers weight, bias"),
    ],
)
def test_an_update_of_another_model_is_refused(update, words):
    channel = Channel("laplace", LAYOUT, RANGES, epsilon=1.0)
    with pytest.raises(ValueError, match=words):
        channel.privatize(update)


def test_layers_and_a_flat_vector_are_the_same_update_and_input_is_left_alone():
    channel = Channel("privunit-g", LAYOUT, Norm(1.0), epsilon=3.0)
    layers = LAYOUT.unflatten(UPDATE)
    kept = UPDATE.copy()
    assert np.array_equal(channel.privatize(layers, rng=2).payload, channel.privatize(UPDATE, rng=2).payload)
    assert np.array_equal(UPDATE, kept)
    assert np.array_equal(layers["weight"].reshape(-1), kept[:4])
