"""Plans and sums of a trusted server against exact arithmetic, and clips against fractions, both sides of every end."""

from __future__ import annotations

import hashlib
import math
from fractions import Fraction

import numpy as np
import pytest

from noisette.accounting import sampled_gaussian
from noisette.federated.central import correlated, rounds
from noisette.federated.central.correlated import BandedStrategy
from noisette.federated.central.rounds import AdaptiveNorm, CentralPlan, PrivateRounds
from noisette.federated.clipping import Length, Norm, Ranges, clip_from
from noisette.federated.layout import ModelLayout
from noisette.federated.theory import Prospect

PLAN = {"epsilon": 3.0, "delta": 1e-5, "rounds": 10, "clients": 60, "clients_per_round": 12, "bands": 3}


def plan(**changes):
    return CentralPlan(**(PLAN | changes))


def matrix(strategy, size):
    """C itself, a lower triangular Toeplitz matrix."""
    column = [Fraction(number, 4096) for number in strategy.numerators] + [Fraction(0)] * size
    return np.asarray([[float(column[i - j]) if i >= j else 0.0 for j in range(size)] for i in range(size)])


@pytest.mark.slow
def test_ends_of_what_can_be_planned():
    assert plan(bands=5).strategy.bands == 5  # 60 / 12
    with pytest.raises(ValueError, match="bands=6 to be at most 5"):
        plan(bands=6)
    assert plan(rounds=2, bands=2).strategy.bands == 2
    with pytest.raises(ValueError, match="bands=3 to be at most 2"):
        plan(rounds=2)
    everybody = plan(clients_per_round=60.0, bands=1)
    assert (everybody.sampling_prob, everybody._most_bands) == (1.0, 1)
    with pytest.raises(ValueError, match="to be at most clients=60"):
        plan(clients_per_round=60.1, bands=1)
    assert plan(clients_per_round=40.0, bands="auto").strategy.bands == 1  # no group has 40 of 60
    assert plan().sampling_prob == pytest.approx(12 * 3 / 60)
    for wrong in ({"rounds": 0}, {"clients": 0}, {"bands": 0}, {"clients_per_round": 0}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            plan(**wrong)
    assert plan(rounds=1, clients=1, clients_per_round=1, bands=1).sampling_prob == 1.0


def test_bands_are_tried_by_powers_of_two(monkeypatch):
    tried = []
    usual = BandedStrategy.optimal.__func__
    monkeypatch.setattr(
        BandedStrategy, "optimal", classmethod(lambda cls, n, bands: tried.append(bands) or usual(cls, 3, 1))
    )
    monkeypatch.setattr(CentralPlan, "_multiplier", lambda self, bands: 9.0 / bands)
    for clients, most in ((12 * 4, [1, 2, 4]), (12 * 8 - 1, [1, 2, 4]), (12 * 500, [1, 2, 4, 8, 16, 32, 64])):
        tried.clear()
        assert plan(clients=clients, rounds=900, bands="auto").strategy
        assert tried[:-1] == most
        assert tried[-1] == most[-1]  # the least noise


@pytest.mark.slow
def test_what_is_spent_is_by_blocks_of_bands():
    own = plan()
    for done, blocks in ((1, 1), (3, 1), (4, 2), (9, 3), (10, 4), (11, 4), (99, 4)):
        told = sampled_gaussian(own.multiplier, 1e-5, releases=blocks, sampling_prob=0.6)
        assert own.spent(done).epsilon == told.epsilon
        assert own.spent(done).delta == 1e-5
    assert own.spent(0).epsilon == own.spent(0).delta == 0.0
    assert own.spent(10).epsilon <= 3.0
    assert sampled_gaussian(own.multiplier * 0.98, 1e-5, releases=4, sampling_prob=0.6).epsilon > 3.0


def test_noise_of_a_mean_and_of_the_last_model_are_those_of_the_matrices():
    own = plan()
    inverse = np.linalg.inv(matrix(own.strategy, 10))
    column = math.sqrt(sum(number**2 for number in own.strategy.numerators)) / 4096
    assert own.strategy.norm == pytest.approx(column, rel=1e-12)
    wanted = own.multiplier * column * np.linalg.norm(inverse[9]) * 0.7 / 12
    assert own.noise(0.7) == pytest.approx(wanted, rel=1e-9)
    models = np.tril(np.ones((10, 10))) @ inverse
    noise = own.multiplier * column * np.linalg.norm(models[9]) / 12
    found, by_hand = own.prospect(77), Prospect.of(noise / math.sqrt(10), dims=77, reach=1.0, rounds=10)
    assert [vars(found)[name] for name in vars(found)] == [pytest.approx(one) for one in vars(by_hand).values()]


def test_a_group_is_a_client_s_number_and_a_round_asks_one():
    own = plan()
    groups = {client: int(hashlib.sha256(str(client).encode()).hexdigest()[:16], 16) % 3 for client in range(200)}
    assert {client: own.group(client) for client in range(200)} == groups
    sure = plan(clients_per_round=20)  # all of a group
    assert sure.sampling_prob == 1.0
    for number in (1, 2, 3, 7):
        drawn = sure.sample([7, 7, *range(60)], number, rng=1)
        assert drawn == [client for client in range(60) if groups[client] == number % 3]


def test_a_coin_falls_with_no_more_than_its_chance(monkeypatch):
    own = plan(clients_per_round=10)  # a chance of a half
    assert own.sampling_prob == 0.5
    fit = [client for client in range(60) if own.group(client) == 1][:4]
    drawn = np.asarray([0.5 - 2.0**-53, 0.5 - 2.0**-52, 0.0, 0.5])

    class Coins:
        def random(self, size):
            return drawn[:size]

    monkeypatch.setattr(rounds._random, "generator", lambda _: Coins())
    assert own.sample(fit, 1) == fit[1:3]
    sure = plan(clients_per_round=20)
    drawn[0] = 1 - 2.0**-53  # the largest number that is drawn
    assert sure.sample(fit[:1], 1) == fit[:1]


def test_ends_of_a_norm_that_adapts():
    told = AdaptiveNorm(2.0)
    assert (told.quantile, told.rate, told.count_share) == (0.5, 0.2, 0.01)
    assert AdaptiveNorm(2.0, quantile=0.999, count_share=0.001).quantile == 0.999
    for wrong in ({"quantile": 0.0}, {"quantile": 1.0}, {"count_share": 0.0}, {"count_share": 1.0}, {"rate": 0.0}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            AdaptiveNorm(2.0, **wrong)
    with pytest.raises(ValueError, match="start"):
        AdaptiveNorm(0.0)


@pytest.mark.parametrize("clip", [Norm(0.5), AdaptiveNorm(0.5, quantile=0.3, rate=0.4, count_share=0.04)])
def test_sums_are_those_of_exact_arithmetic(monkeypatch, clip):
    """Without noise: whole numbers by hand, mixed by the bands and unmixed again, over more rounds than bands."""
    monkeypatch.setattr(rounds, "add_noise", lambda *_: None)
    own, layout = plan(), ModelLayout.of(np.zeros(3))
    server = PrivateRounds(own, layout, clip, rng=1)
    adaptive = isinstance(clip, AdaptiveNorm)
    unit = own.multiplier * own.strategy.norm * (1 + math.ldexp(1, -50))
    share = math.sqrt(1 - math.sqrt(0.04) ** 2) * (1 - math.ldexp(1, -50)) if adaptive else 1.0
    assert (server._unit, server._update) == (unit, share)
    norm, rng = 0.5, np.random.default_rng(2)
    for _ in range(5):
        whole = [0, 0, 0, 0]
        for update in rng.normal(0, 0.4, (12, 3)):
            server.add(update)
            length = math.sqrt(float(update @ update))
            scaled = update * (1 - 2.0**-50) / max(length * (1 + 11 * 2.0**-53), norm)
            entries = [int(value * share * 2**24 / unit) for value in scaled.tolist()]
            whole = [a + b for a, b in zip(whole, [*entries, 0], strict=True)]
            whole[3] += (1 if length <= norm else -1) * int(0.2 * 2**24 / unit)
        got = server._sums[-1].tolist()
        assert got[:3] == pytest.approx(whole[:3], abs=12)  # a step of an update each
        assert len(got) == 3 + adaptive
        if adaptive:
            assert got[3] == whole[3]
        mean = server.release()
        assert mean == pytest.approx(np.asarray(whole[:3]) / 2**24 * unit * norm / share / 12, abs=1e-6)
        if adaptive:
            told = 0.5 + whole[3] / 2**24 * unit / (2 * 0.2 * 12)
            norm *= math.exp(-0.4 * (min(1.0, max(0.0, told)) - 0.3))
        assert server.norm == pytest.approx(norm, rel=1e-6)
    assert server.done == 5
    assert len(server._sums) == own.strategy.bands


@pytest.mark.parametrize(("updates", "share"), [(1e-9, 1.0), (9.0, 0.0)])
def test_a_share_beyond_its_range_counts_as_its_end(monkeypatch, updates, share):
    """Twelve clients are expected and thirty came: a share of 1.75, or of -0.75."""
    monkeypatch.setattr(rounds, "add_noise", lambda *_: None)
    server = PrivateRounds(plan(), ModelLayout.of(np.zeros(2)), AdaptiveNorm(1.0, quantile=0.3, rate=0.5), rng=1)
    for _ in range(30):
        server.add(np.full(2, updates))
    server.release()
    assert server.norm == pytest.approx(math.exp(-0.5 * (share - 0.3)), rel=1e-12)


@pytest.mark.slow
def test_what_is_farther_than_the_lattice_is_refused(monkeypatch):
    own = plan(bands=1)
    limit = 8 * 12 * 2.0**36 / (own.multiplier * own.strategy.norm * (1 + 2.0**-50))
    layout = ModelLayout.of(np.zeros(1))
    for most, fits in ((limit, True), (math.nextafter(limit, 0), False)):
        monkeypatch.setattr(rounds, "_FARTHEST", most)
        if fits:
            assert PrivateRounds(own, layout, Norm(1.0)).done == 0
        else:
            with pytest.raises(ValueError, match="beyond the lattice"):
                PrivateRounds(own, layout, Norm(1.0))
    three = plan(bands=3)
    limit = 8 * 12 * math.sqrt(3) * 2.0**36 / (three.multiplier * three.strategy.norm * (1 + 2.0**-50))
    monkeypatch.setattr(rounds, "_FARTHEST", math.nextafter(limit, math.inf))
    assert PrivateRounds(three, layout, Norm(1.0)).done == 0
    monkeypatch.setattr(rounds, "_FARTHEST", limit * (1 - 1e-12))
    with pytest.raises(ValueError, match="beyond the lattice"):
        PrivateRounds(three, layout, Norm(1.0))


def test_sums_that_are_too_far_are_cut_on_both_sides(monkeypatch):
    monkeypatch.setattr(rounds, "add_noise", lambda *_: None)
    server = PrivateRounds(plan(bands=1), ModelLayout.of(np.zeros(2)), Norm(1.0))
    server._sums[-1][:] = [2**45, -(2**45)]
    farthest = 2.0**52 / 2**36 * server._unit / 12
    assert server.release().tolist() == pytest.approx([farthest, -farthest], rel=1e-12)


def test_a_column_is_never_shorter_than_it_is():
    for numerators in ((3, 4), (4096,), (1, 1), (4096, 2048, 17), (1 << 20, 1)):
        strategy = BandedStrategy(numerators)
        square = Fraction(sum(number**2 for number in numerators), 4096**2)
        assert Fraction(strategy.norm) ** 2 >= square * (1 - Fraction(1, 2**100))
        assert strategy.norm <= math.sqrt(square) * (1 + 2.0**-50)
    assert BandedStrategy((3, 4)).norm == 5 / 4096
    for wrong in ((), (0, 1), (-1,)):
        with pytest.raises(ValueError, match="begin above 0"):
            BandedStrategy(wrong)
    assert BandedStrategy((1,)).bands == 1
    for rounds_, bands in ((0, 1), (1, 0)):
        with pytest.raises(ValueError, match="=0"):
            BandedStrategy.optimal(rounds_, bands)
    assert BandedStrategy.optimal(2, 9).bands == 2


@pytest.mark.parametrize(("many", "bands"), [(7, 3), (9, 9)])
def test_the_error_and_its_gradient_are_those_of_the_matrices(many, bands):
    column = 1 / np.arange(1.0, bands + 1) ** 0.8

    def by_hand(own):
        full = np.zeros((many, many))
        for place, value in enumerate(own):
            full += value * np.eye(many, k=-place)
        return float(own @ own) * np.sum((np.tril(np.ones((many, many))) @ np.linalg.inv(full)) ** 2)

    error, gradient = correlated._error(column, many)
    assert error == pytest.approx(by_hand(column), rel=1e-10)
    for place in range(bands):
        step = np.zeros(bands)
        step[place] = 1e-5
        slope = (by_hand(column + step) - by_hand(column - step)) / 2e-5
        assert gradient[place] == pytest.approx(slope, rel=1e-6)
    strategy = BandedStrategy.optimal(many, bands)
    assert strategy.error(many) == pytest.approx(by_hand(strategy.column) / many, rel=1e-10)
    best = min(by_hand(strategy.column + step) for step in 1e-3 * np.random.default_rng(1).normal(size=(40, bands)))
    assert by_hand(strategy.column) < best * (1 + 1e-7)


LAYOUT = ModelLayout.of({"a": np.zeros((2, 2)), "b": np.zeros(3)})


def exact(vector):
    return sum(Fraction(value) ** 2 for value in vector.tolist())


@pytest.mark.parametrize("scale", [1e-300, 1e-130, 1e-121, 1e-120, 1e-3, 1.0, 1e5, 1e120, 1e121, 1e300])
def test_a_clipped_update_is_never_longer_than_one(scale):
    rng = np.random.default_rng(5)
    for size in (1, 2, 7, 40):
        layout = ModelLayout.of(np.zeros(size))
        for norm in (scale, 3.0 * scale, scale / 1e3, 1.0):
            vector = scale * rng.normal(size=size)
            truth, length = vector.copy(), math.sqrt(float(exact(vector) / Fraction(scale) ** 2)) * scale
            taken = Norm(norm).inward(vector, layout)
            assert exact(vector) <= 1
            wanted = truth / max(length, norm)
            assert vector == pytest.approx(wanted, rel=1e-13, abs=1e-300)
            assert taken == pytest.approx(max(0.0, 1 - norm / length), rel=1e-9, abs=1e-13)
            if size > 1:  # a direction alone
                turned = truth.copy()
                taken = Length(norm).inward(turned, layout)
                assert turned == pytest.approx(truth / length, rel=1e-13)
                assert taken == pytest.approx(max(0.0, 1 - norm / length), rel=1e-9, abs=1e-13)


def test_the_margin_of_a_clip_is_eight_roundings():
    for dims in (1, 5, 33):
        layout, vector = ModelLayout.of(np.zeros(dims)), np.full(dims, 2.0)
        Norm(1.0).inward(vector, layout)
        length = math.sqrt(4.0 * dims) * (1 + (dims + 8) * 2.0**-53)
        assert vector.tolist() == [2.0 * ((1 - 8 * 2.0**-53) / length)] * dims
    still = np.zeros(4)
    assert Norm(2.0).inward(still, ModelLayout.of(np.zeros(4))) == 0.0
    assert not still.any()
    assert Length(2.0).inward(still, ModelLayout.of(np.zeros(4))) == 0.0
    assert still.tolist() == [0.5] * 4


@pytest.mark.parametrize("norm", [None, 2.5])
def test_ranges_of_each_layer(norm):
    clip = Ranges((0.5, -1.0), (0.25, 2.0), norm)
    vector = np.asarray([0.6, 0.7, 1.5, -3.0, 0.0, 4.0, -2.0])
    cut = vector * min(1.0, (norm or math.inf) / np.linalg.norm(vector))
    units = np.concatenate([(cut[:4] - 0.5) / 0.25, (cut[4:] + 1.0) / 2.0])
    beyond = np.maximum(np.abs(units) - 1, 0) * np.repeat([0.25, 2.0], [4, 3])
    lost = (np.abs(vector).sum() - np.abs(cut).sum() + beyond.sum()) / np.abs(vector).sum()
    own = vector.copy()
    assert clip.inward(own, LAYOUT) == pytest.approx(lost, rel=1e-12)
    assert own == pytest.approx(np.clip(units, -1, 1))
    back = clip.outward(own.copy(), LAYOUT)
    assert back == pytest.approx(np.clip(cut, [0.25] * 4 + [-3.0] * 3, [0.75] * 4 + [1.0] * 3))
    assert clip.scale(LAYOUT).tolist() == [0.25, 2.0]
    corner = math.sqrt(4 * 0.25**2 + 3 * 2.0**2)
    assert clip.reach(LAYOUT) == pytest.approx(corner if norm is None else 2.5)
    assert clip_from(clip.spec()) == clip


def test_ends_of_ranges_and_what_is_no_number():
    clip = Ranges(0.0, 2.0)
    inside = np.asarray([2.0, -2.0, 0.0, 1.0, 0, 0, 0])
    assert clip.inward(inside, LAYOUT) == 0.0
    assert inside[:4].tolist() == [1.0, -1.0, 0.0, 0.5]
    for strange, wanted in ((math.nan, 0.0), (math.inf, 1.0), (-math.inf, -1.0)):
        vector = np.asarray([0.0, strange, 0, 1, 0, 0, 0])
        clip.inward(vector, LAYOUT)
        assert vector.tolist() == [0.0, wanted, 0, 0.5, 0, 0, 0]
    exactly = np.asarray([3.0, 4.0, 0, 0, 0, 0, 0])
    assert Ranges(0.0, 9.0, 5.0).inward(exactly, LAYOUT) == 0.0  # as long as it may be
    assert exactly[:2].tolist() == [3.0 / 9, 4.0 / 9]
    assert Ranges(0.0, 1.0).inward(np.zeros(7), LAYOUT) == 0.0
    wide = Ranges((0.0, 0.0, 0.0), (1.0, 1.0, 1.0))
    for call in (wide.scale, wide.reach):
        with pytest.raises(ValueError, match="one for each of 2 layers, got 3"):
            call(LAYOUT)
    for wrong, message in (
        (((0.0, 1.0), (1.0,)), "as many centres as radii, got 2 and 1"),
        (((0.0, math.nan), (1.0, 1.0)), "centre"),
        (((0.0, math.inf), (1.0, 1.0)), "centre"),
        (((0.0,), (0.0,)), "radius"),
        ((0.0, 1.0, 0.0), "norm"),
    ):
        with pytest.raises(ValueError, match=message):
            Ranges(*wrong)
    with pytest.raises(ValueError, match="dims=0"):
        Ranges.around_zero(norm=1.0, dims=0)
    assert Ranges.around_zero(norm=3.0, dims=1) == Ranges(0.0, 3.0, 3.0)


def test_ranges_adapt_to_what_a_layer_spans():
    noisy = np.asarray([1.0, 2.0, 5.0, 4.0, 7.0, 7.0, 7.0])
    last = Ranges((0.1, 0.2), (0.3, 0.4), 6.0)
    found = Ranges.adapted(LAYOUT, noisy, last, margin=1.5)
    middle, half = found.centre[0], found.radius[0]
    assert (middle - half / 1.5, middle + half / 1.5) == pytest.approx((1.0, 5.0), rel=0.05)
    assert (found.centre[1], found.radius[1], found.norm) == (0.2, 0.4, 6.0)  # all equal: as before
    assert Ranges.adapted(LAYOUT, noisy, last).radius[0] == pytest.approx(half / 1.5)
    narrow = Ranges.adapted(LAYOUT, noisy, last, margin=1.5, widest=0.35)
    assert narrow.radius == (0.35, 0.4)
    assert narrow.centre == found.centre
