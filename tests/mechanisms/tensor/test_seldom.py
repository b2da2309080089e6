"""Branches of mechanisms for tensors that a draw or a search enters once in millions, entered on purpose."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import mpmath
import numpy as np
import pytest

import noisette as nz
from noisette.mechanisms._reals import Digits
from noisette.mechanisms.tensor.gaussian import _signs, _sketches, jl
from noisette.mechanisms.tensor.gaussian.modes import Mode


@pytest.mark.parametrize("degrees", [2, 3, 12])
@pytest.mark.parametrize("x", [-3.9, -0.8, 0.0, 1e-3, 0.9, 3.0])
def test_a_proposal_is_kept_as_marsaglia_and_tsang_say(degrees: int, x: float) -> None:
    """v = (1 + c x)^3 is kept if it is positive and ln u < x^2 / 2 + d (1 - v + ln v); d = k/2 - 1/3, c = 1/sqrt(9 d).

    Uniform numbers on either side of the limit, by one part in 10^9, get either answer.
    """
    d = mpmath.mpf(degrees) / 2 - mpmath.mpf(1) / 3
    v = (1 + mpmath.mpf(x) / mpmath.sqrt(9 * d)) ** 3
    chosen: Any = SimpleNamespace(within=lambda context: context.mpf(x))

    def kept(uniform: float) -> bool:
        rng = np.random.default_rng(1)
        return _sketches._kept(chosen, Digits.of_float(rng, uniform), degrees)

    if v <= 0:
        assert not kept(2.0**-53)
        return
    limit = float(mpmath.exp(mpmath.mpf(x) ** 2 / 2 + d * (1 - v + mpmath.log(v))))
    assert kept(min(limit, 1 - 2.0**-40) * (1 - 1e-9))
    if limit < 1 - 1e-8:
        assert not kept(limit * (1 + 1e-9))


@pytest.mark.parametrize("excess", [1e-9, 1e-6, 1e-3])
def test_a_leverage_that_is_not_proved_is_lowered_until_it_is(monkeypatch: pytest.MonkeyPatch, excess: float) -> None:
    sound = jl.largest_leverage(9, 1.25, 1e-3)
    assert jl.delta_above(9, sound, 1.25) <= 1e-3 < jl.delta_above(9, sound * (1 + 1e-6), 1.25)
    monkeypatch.setattr(jl, "_bisected", lambda *_: sound * (1 + excess))
    found = jl.largest_leverage.__wrapped__(9, 1.25, 1e-3)
    assert jl.delta_above(9, found, 1.25) <= 1e-3
    assert sound * (1 - 16 * excess) < found <= sound * (1 + excess)


def simplex(size: int) -> np.ndarray:
    """Return the Gram matrix of vectors to the corners of a simplex: signs of one mode cannot please all of it."""
    return np.asarray(np.eye(size) * (1 + 1 / (size - 1)) - 1 / (size - 1) + 1e-3 * np.eye(size))


def test_two_modes_together_beat_the_best_signs_of_each() -> None:
    """The best signs of a product are no product here: all signs of nine entries show it."""
    matrices = [simplex(3), simplex(3)]
    reaches = [_signs.largest_form(matrix) for matrix in matrices]
    found = _signs.largest_joint_form(matrices, reaches)
    signs = 1.0 - 2.0 * ((np.arange(1 << 9)[:, None] >> np.arange(9)) & 1)
    best = float(np.einsum("ij,jk,ik->i", signs, np.kron(*matrices), signs).max())
    assert best > 1.1 * math.prod(reach.lower for reach in reaches)
    assert found.lower == pytest.approx(best, rel=1e-9)
    assert best * (1 - 1e-12) <= found.upper <= best * (1 + 1e-9)
    assert _signs.form(found.signs, matrices) == pytest.approx(best, rel=1e-9)


@pytest.mark.parametrize("size", [5, 7])
def test_two_wide_modes_are_searched_together(size: int) -> None:
    """Beyond what is enumerated, a search goes on from the best signs of each mode and ends above them."""
    matrices = [simplex(size), simplex(size)]
    reaches = [_signs.largest_form(matrix) for matrix in matrices]
    found = _signs.largest_joint_form(matrices, reaches)
    assert found.lower > 1.01 * math.prod(reach.lower for reach in reaches)
    assert found.lower == pytest.approx(_signs.form(found.signs, matrices), rel=1e-12)
    assert found.upper >= found.lower


def test_a_covariance_is_kept_as_it_was_given() -> None:
    given = np.asarray([[2.0, 0.5], [0.5, 1.0]])
    mode = Mode.read(2, given, 0)
    given[0, 0] = 9.0
    assert mode.covariance is not None
    assert mode.covariance[0, 0] == 2.0
    for array in (mode.covariance, Mode.read(2, [1.0, 2.0], 0).covariance):
        assert array is not None
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1.0


def test_a_covariance_of_zeros_is_not_positive_definite() -> None:
    with pytest.raises(ValueError, match="to be positive definite"):
        Mode.read(2, np.zeros((2, 2)), 0)


@pytest.mark.parametrize(("share", "taken"), [(0.99, True), (1.01, False)])
def test_domains_reach_so_many_deviations_of_the_noise(share: float, taken: bool) -> None:
    """The noise of a single relation stays while the domain widens, until it is 2^26 deviations from its middle."""
    sigma = nz.TensorGaussian(nz.TensorDomain((1, 2), -1, 1), 1.0, 1e-5, relation="box:0.5").sigma
    for middle in (0.0, 3.0):
        wide = share * 2.0**26 * sigma
        domains: list[Any] = [nz.TensorDomain((1, 2), middle - wide, middle + wide)]
        for domain in domains:
            if taken:
                nz.TensorGaussian(domain, 1.0, 1e-5, relation="box:0.5")
            else:
                with pytest.raises(ValueError, match=r"at most 2\^26 standard deviations"):
                    nz.TensorGaussian(domain, 1.0, 1e-5, relation="box:0.5")
    sigma = nz.TensorGaussian(nz.TensorBall((1, 2), 1.0), 1.0, 1e-5, relation="l2:0.5").sigma
    ball = nz.TensorBall((1, 2), share * 2.0**26 * sigma)
    if taken:
        nz.TensorGaussian(ball, 1.0, 1e-5, relation="l2:0.5")
    else:
        with pytest.raises(ValueError, match=r"at most 2\^26 standard deviations"):
            nz.TensorGaussian(ball, 1.0, 1e-5, relation="l2:0.5")


def test_a_query_that_replacing_hardly_moves_is_refused() -> None:
    """Two cells whose columns differ by a share of what one of them adds: a millionth is the limit."""
    domain = nz.TensorDomain((2,), 0, 9)
    for share, refused in ((1e-8, True), (1e-4, False)):
        workload = [[1.0, 1.0 + share]]
        if refused:
            with pytest.raises(ValueError, match="no answer changes"):
                nz.MatrixMechanism(1.0, 1e-5, domain=domain, workload=workload, relation="replace")
        else:
            nz.MatrixMechanism(1.0, 1e-5, domain=domain, workload=workload, relation="replace")
