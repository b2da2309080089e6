"""The rules of clipping against their formulas, number by number, and what those that learn remember."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
import torch

from noisette import sgd
from noisette.sgd.clipping import total_squares
from noisette.sgd.recording.layers import Formed

NORMS = torch.tensor([0.0, 1e-3, 0.2, 0.5, 1.0, 7.0], dtype=torch.float64)
SHARES = torch.tensor([0.36, 0.64], dtype=torch.float64)  # of the squared norms in two layers
SQUARES = SHARES[:, None] * NORMS.square()

FORMULAS = {
    "l2": (sgd.L2(0.5), lambda norm: min(1.0, 0.5 / max(norm, 1e-300))),
    "l2 by default": (sgd.L2(), lambda norm: min(1.0, 1.0 / max(norm, 1e-300))),
    "auto-s": (sgd.AutoS(), lambda norm: 1 / (norm + 0.01)),
    "auto-s, gamma": (sgd.AutoS(gamma=0.3), lambda norm: 1 / (norm + 0.3)),
    "psac": (sgd.Psac(0.5), lambda norm: 0.5 / (norm + 0.1 / (norm + 0.1))),
    "psac, r": (sgd.Psac(2.0, r=0.7), lambda norm: 2.0 / (norm + 0.7 / (norm + 0.7))),
    "quantile": (sgd.Quantile(0.5), lambda norm: min(1.0, 0.5 / max(norm, 1e-300))),
}


@pytest.mark.parametrize(("rule", "formula"), FORMULAS.values(), ids=FORMULAS)
def test_weights_are_those_of_the_formula_and_keep_the_bound(rule, formula):
    found = rule.weights(SQUARES)
    assert found.tolist() == pytest.approx([formula(norm) for norm in NORMS.tolist()], rel=1e-12)
    assert float((found * NORMS).max()) <= rule.bound * (1 + 1e-12)
    assert float((found * NORMS).max()) > 0.8 * rule.bound  # the bound is no wider than it need be


def test_every_number_has_a_limit_of_its_own():
    rule = sgd.LInf()
    rule.start({"a": 6, "b": 10})
    assert rule.linf_clip_norm == 0.01
    assert 0.04 <= rule.bound < 0.04 * (1 + 1e-14)
    assert rule.weights(SQUARES).tolist() == [1.0] * len(NORMS)


@pytest.mark.parametrize(("shares", "split"), [(None, (0.5, 0.5)), ((1.0, 3.0), (0.25, 0.75))])
def test_layers_share_the_squared_norm(shares, split):
    rule = sgd.PerLayer(0.3, shares=shares)
    rule.start({"a": 6, "b": 10})
    assert rule.thresholds == pytest.approx([0.3 * math.sqrt(part) for part in split], rel=1e-11)
    assert math.fsum(threshold**2 for threshold in rule.thresholds) <= 0.09
    limits = torch.tensor(rule.thresholds, dtype=torch.float64)[:, None]
    lengths = SQUARES.sqrt()
    assert torch.allclose(rule.weights(SQUARES) * lengths, torch.minimum(lengths, limits), rtol=1e-12, atol=0)


@pytest.mark.parametrize("scale", [1.0, 0.37, 12.0])
def test_norms_are_bounded_from_above_with_room_for_the_roundings_of_their_scale(scale):
    made = {
        name: Formed({"weight": torch.sin(torch.arange(1.0, 13.0)).reshape(3, 4) + tilt})
        for name, tilt in zip("ab", (0, 2), strict=True)
    }
    found = total_squares(made, scale)
    for place in range(3):
        exact = sum(Fraction(number) ** 2 for part in made.values() for number in part.each()["weight"][place].tolist())
        told = Fraction(float(found[place])) / Fraction(scale) ** 2
        assert exact * (1 + Fraction(1, 2**41)) < told  # more than the roundings of a product can take
    for name, part in made.items():
        alone, plain = total_squares({name: part}, scale), part.squares()
        assert (alone / (plain * scale**2) - 1).tolist() == pytest.approx([2.0**-40] * 3, abs=2.0**-50)


def released(*lengths):
    """Return a released gradient with these norms in its layers, some of it in a bias."""
    return {
        name: {"weight": torch.full((2, 2), 0.4 * length), "bias": torch.tensor([0.6 * length])}
        for name, length in zip("ab", lengths, strict=True)
    }


def test_thresholds_follow_the_average_square_of_what_was_released():
    """Twice, so that the weight of the past shows; a tenth is spread evenly, and the noise is taken off."""
    rule = sgd.Curvature(2.0)
    rule.start({"a": 5, "b": 5})
    assert rule.decay == 0.9
    before = rule.thresholds
    noise = 0.1
    seen = [
        [(4 * 0.16 + 0.36) * length**2 - 5 * noise**2 for length in lengths] for lengths in ((1.0, 2.0), (3.0, 1.0))
    ]
    average = [0.0, 0.0]
    for lengths, squares in zip(((1.0, 2.0), (3.0, 1.0)), seen, strict=True):
        rule.learn(released(*lengths), noise)
        average = [0.9 * old + 0.1 * new for old, new in zip(average, squares, strict=True)]
        assert rule.state()["curvature"] == pytest.approx(average, rel=1e-6)
        split = [0.9 * own / sum(average) + 0.1 / 2 for own in average]
        assert rule.thresholds == pytest.approx([2.0 * math.sqrt(part) for part in split], rel=1e-6)
    assert rule.thresholds != pytest.approx(before)
    again = sgd.Curvature(2.0)
    again.start({"a": 5, "b": 5})
    again.restore(rule.state())
    assert again.thresholds == rule.thresholds


def test_less_than_the_noise_is_no_curvature():
    rule = sgd.Curvature(2.0, decay=0.5)
    rule.start({"a": 5, "b": 5})
    rule.learn(released(0.1, 0.1), 10.0)
    assert rule.state() == {"curvature": [0.0, 0.0]}
    assert rule.thresholds == pytest.approx([math.sqrt(2.0)] * 2, rel=1e-11)


def asked(rule, noise, expected=8.0):
    """Return the count that a rule releases and by how much an example changes it, and answer with noise."""
    heard = []

    def release(count, reach):
        heard.append((count, reach))
        return count + noise

    rule.ask(expected, release)
    return heard


@pytest.mark.parametrize("noise", [0.0, 1.0, -1.5])
def test_a_quantile_moves_by_its_formula(noise):
    """Andrew et al. 2021: C exp(-rate (share within - quantile)); an example changes the count by one half."""
    rule = sgd.Quantile(0.5, quantile=0.3, rate=0.7)
    rule.weights(SQUARES)  # four of six are within 0.5, the edge included
    rule.weights(SQUARES[:, :3])
    assert asked(rule, noise) == [(4 + 3 - 0.5 * 9, 0.5)]
    assert rule.l2_clip_norm == pytest.approx(0.5 * math.exp(-0.7 * ((2.5 + noise) / 8 + 0.5 - 0.3)), rel=1e-12)
    before = rule.l2_clip_norm
    rule.weights(SQUARES)
    rule.forget()  # a batch that was left: nothing of it is counted
    assert asked(rule, 0.0) == [(0.0, 0.5)]
    assert rule.l2_clip_norm == pytest.approx(before * math.exp(-0.7 * (0.5 - 0.3)), rel=1e-12)


@pytest.mark.parametrize(("noise", "share"), [(1e9, 1.0), (-1e9, 0.0)])
def test_noise_cannot_move_a_quantile_farther_than_all_or_none(noise, share):
    rule = sgd.Quantile(0.5)
    assert (rule.quantile, rule.rate, rule.share) == (0.5, 0.2, 0.01)
    rule.weights(SQUARES)
    asked(rule, noise)
    assert rule.l2_clip_norm == pytest.approx(0.5 * math.exp(-0.2 * (share - 0.5)), rel=1e-12)
