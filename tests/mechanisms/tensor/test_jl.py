"""The Johnson-Lindenstrauss sketch: its delta against integrals and samples, its law, its limit, what is refused."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import pairwise
from typing import Any

import mpmath
import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import ndtri
from scipy.stats import chi2, kstest, wishart

import noisette as nz
from noisette.guarantees import gaussian_mu
from noisette.mechanisms._reals import Digits, ends, interval_arithmetic
from noisette.mechanisms.tensor.gaussian import _sketches
from noisette.mechanisms.tensor.gaussian._sketches import Roots, rounded_sketches
from noisette.mechanisms.tensor.gaussian.jl import (
    _SHORTER,
    _tails,
    delta_above,
    jl_delta,
    largest_leverage,
    rss,
)

ROWS = nz.TensorBall((4, 2), 1.0, mode=0)


def integrated(r: int, h: float, epsilon: float) -> float:
    """Integrate the positive part of the difference of two scaled chi-square densities, both ways."""
    small = 1 - h
    top = chi2.isf(1e-15, r)

    def density(t: float, scale: float) -> float:
        logs = (r / 2 - 1) * math.log(t / scale) - t / scale / 2 - r / 2 * math.log(2) - math.lgamma(r / 2)
        return math.exp(logs) / scale

    def excess(t: float, own: float, other: float) -> float:
        return max(density(t, own) - math.exp(epsilon) * density(t, other), 0.0)

    cuts = np.linspace(0, top, 100)
    sums = [
        math.fsum(quad(excess, a, b, args=pair, epsabs=1e-14)[0] for a, b in pairwise(cuts))
        for pair in ((1.0, small), (small, 1.0))
    ]
    return max(sums)


@pytest.mark.parametrize(
    ("r", "h", "epsilon"), [(8, 0.1, 0.2), (20, 0.05, 0.5), (3, 0.5, 0.3), (1, 0.3, 1.0), (50, 0.02, 0.1)]
)
def test_delta_is_the_integral(r: int, h: float, epsilon: float) -> None:
    assert jl_delta(r, h, epsilon) == pytest.approx(integrated(r, h, epsilon), rel=1e-6, abs=1e-12)
    assert jl_delta(r, 1.1 * h, epsilon) > 1.01 * integrated(r, h, epsilon)  # a twin


def test_delta_grows_with_the_leverage() -> None:
    deltas = [jl_delta(12, h, 0.7) for h in np.linspace(0.01, 0.9, 60)]
    assert np.all(np.diff(deltas) > 0)


@pytest.mark.parametrize("epsilon", [1e-3, 0.5, 8.0, 100.0])
@pytest.mark.parametrize("r", [1, 30, 100_000])
def test_the_largest_leverage_uses_all_of_delta(epsilon: float, r: int) -> None:
    h = largest_leverage(r, epsilon, 1e-6)
    assert 0 < h < 1
    assert jl_delta(r, h, epsilon) <= 1e-6
    assert jl_delta(r, min(h * 1.001, 1 - (1 - h) * 0.999), epsilon) > 1e-6 * (1 - 1e-9)


def test_a_row_of_any_table_has_less_leverage() -> None:
    m = nz.JohnsonLindenstrauss(nz.TensorBall((9, 3), 2.0, mode=0), 1.0, 1e-5, projections=40)
    for seed in range(20):
        x = m.domain.clip(np.random.default_rng(seed).normal(size=(9, 3)) * 3)
        spread = x.T @ x + m.ridge * np.eye(3)
        assert max(row @ np.linalg.solve(spread, row) for row in x) <= m.leverage * (1 + 1e-12)
    worst = m.witnesses()[0][0]
    spread = worst.T @ worst + m.ridge * np.eye(3)
    assert worst[0] @ np.linalg.solve(spread, worst[0]) == pytest.approx(m.leverage)


def test_many_projections_are_symmetric_gaussian_noise() -> None:
    m = nz.JohnsonLindenstrauss(ROWS, 1.0, 1e-5, projections=1 << 22)
    deviation = math.sqrt(float(m.moments(np.zeros((4, 2))).variance[0, 1])) * 4
    assert deviation == pytest.approx(1 / gaussian_mu(1.0, 1e-5) / math.sqrt(2), rel=2e-3)


@pytest.mark.long
@pytest.mark.parametrize("projections", [2, 5, 40])
def test_the_law_is_wisharts(projections: int) -> None:
    m = nz.JohnsonLindenstrauss(ROWS, 4.0, 1e-3, projections=projections)
    x = np.random.default_rng(0).uniform(-0.5, 0.5, (4, 2))
    reports = m.privatize(np.broadcast_to(x, (60_000, 4, 2)), rng=3)
    assert np.array_equal(reports, reports.transpose(0, 2, 1))
    moments, limit = m.moments(x), -ndtri(1e-6 / 16)
    score = (reports - x.T @ x / 4).mean(axis=0) / np.sqrt(moments.variance / 60_000)
    assert np.abs(score).max() < limit
    squares = (reports - x.T @ x / 4) ** 2 / moments.variance
    assert np.all(np.abs(squares.mean(axis=0) - 1) < limit * squares.std(axis=0) / math.sqrt(60_000))
    third = np.abs(reports - x.T @ x / 4) ** 3
    assert np.all(third.mean(axis=0) <= moments.third * 1.02)
    law = wishart(projections, x.T @ x + m.ridge * np.eye(2))
    sums = (reports[0] * 4 + m.ridge * np.eye(2)) * projections
    assert m.log_prob(reports[0], x) == pytest.approx(law.logpdf(sums) + 3 * math.log(4 * projections))
    assert (
        abs(float(((reports[:, 0, 0] - x[:, 0] @ x[:, 0] / 4) ** 2 / moments.variance[0, 0] / 1.1).mean()) - 1) > 0.03
    )


@pytest.mark.slow
def test_fewer_projections_than_columns() -> None:
    m = nz.JohnsonLindenstrauss(nz.TensorBall((6, 4), 1.0, mode=0), 1.0, 1e-4, projections=2)
    x = m.domain.clip(np.random.default_rng(0).normal(size=(6, 4)))
    reports = m.privatize(np.broadcast_to(x, (20_000, 6, 4)), rng=1)
    rank = np.linalg.matrix_rank(reports[0] * 6 + m.ridge * np.eye(4), tol=1e-3 * m.ridge)
    assert rank == 2
    score = (reports.mean(axis=0) - m.target(x)) / np.sqrt(m.moments(x).variance / 20_000)
    assert np.abs(score).max() < -ndtri(1e-6 / 32)


@pytest.mark.parametrize("epsilon", [0.3, 2.0])
def test_exact_delta_is_what_was_asked(epsilon: float) -> None:
    m = nz.JohnsonLindenstrauss(nz.TensorBall((5, 3), 1.5, mode=0), epsilon, 1e-4, projections=25)
    assert nz.exact_delta(m, epsilon) == pytest.approx(1e-4, rel=1e-6)
    for other in (0.5 * epsilon, 1.3 * epsilon):
        assert nz.exact_delta(m, other) == pytest.approx(jl_delta(25, m.leverage, other), rel=1e-3)
    assert nz.exact_epsilon(m) == math.inf
    assert str(m.guarantee) == f"({epsilon:g}, 0.0001)-DP, unit record, model central, relation add-remove"


@pytest.mark.long
def test_samples_agree_with_delta() -> None:
    m = nz.JohnsonLindenstrauss(ROWS, 0.5, 0.02, projections=6)
    first, second = m.witnesses()[0]
    reports = m.privatize(np.broadcast_to(first, (200_000, 4, 2)), rng=9)
    loss = m.log_prob(reports, first) - m.log_prob(reports, second)
    sample = -np.expm1(np.minimum(0.5 - loss, 0.0))
    assert abs(sample.mean() - 0.02) < 4.9 * sample.std() / math.sqrt(200_000)


def test_rss_by_hand() -> None:
    truth = np.asarray([[2.0, 1.0], [1.0, 3.0]])
    assert rss(truth, truth) == pytest.approx(0.0, abs=1e-20)
    angle = 0.3
    turn = np.asarray([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]])
    estimate = turn @ np.diag([5.0, 1.0]) @ turn.T
    expected = sum((value - turn[:, i] @ truth @ turn[:, i]) ** 2 for i, value in enumerate((5.0, 1.0)))
    assert rss(estimate, truth) == pytest.approx(expected)
    with pytest.raises(ValueError, match="two square matrices of one size"):
        rss(np.eye(2), np.eye(3))


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"domain": nz.TensorDomain((4, 2))}, TypeError, "rows have a public bound"),
        ({"domain": nz.TensorBall((4, 2), 1.0)}, TypeError, "rows have a public bound"),
        ({"delta": 0.0}, ValueError, r"Expected delta=0\.0 > 0"),
        ({"projections": 0}, ValueError, "Expected 1 <= projections"),
        ({"epsilon": 0.0}, ValueError, r"Expected epsilon=0\.0 > 0"),
    ],
)
def test_bad_options(options: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        nz.JohnsonLindenstrauss(**{"domain": ROWS, "epsilon": 1.0, "delta": 1e-5} | options)


def test_bad_tables() -> None:
    m = nz.JohnsonLindenstrauss(ROWS, 1.0)
    with pytest.raises(ValueError, match="Expected rows of length at most 1, got 2"):
        m.privatize(np.asarray([[2.0, 0.0]] * 4))
    assert m.privatize(np.asarray([[2.0, 0.0]] * 4), clip=True).shape == (2, 2)
    with pytest.raises(ValueError, match=r"Expected x of shape \(\.\.\., 4, 2\)"):
        m.privatize(np.zeros((2, 4)))
    with pytest.raises(ValueError, match="Expected finite values, got nan"):
        m.privatize(np.full((4, 2), np.nan))


class TestToTheLastBit:
    """A report is a function of a sketch of real numbers that was rounded exactly, of a matrix of whole numbers."""

    MATRIX = np.asarray([[50, -30, 7], [-30, 90, 2], [7, 2, 41]], dtype=object)

    @pytest.mark.slow
    @pytest.mark.parametrize("projections", [2, 7, 1 << 22])
    def test_entries_are_those_of_more_digits(self, projections: int) -> None:
        """On lattices on which float64 often cannot tell, and on one on which it can, of the same numbers."""
        many = np.broadcast_to(self.MATRIX, (40, 3, 3))
        found = [rounded_sketches(many, projections, 2.0**power, np.random.default_rng(5)) for power in (-56, -20)]
        assert np.abs(found[0] - found[1]).max() <= 2.0**-21 * (1 + 1e-9)
        assert np.array_equal(found[1], np.floor(found[0] * 2.0**20 + 0.5) / 2.0**20)

    @pytest.mark.parametrize("degrees", [1, 2, 3, 40, 1 << 23])
    def test_roots_are_those_of_chi_square_variables(self, degrees: int) -> None:
        found = Roots.draw(np.random.default_rng(degrees), 20_000, degrees)
        assert kstest(found.near**2, chi2(degrees).cdf).pvalue > 1e-6
        assert kstest(found.near**2, chi2(degrees * 1.04 + 1).cdf).pvalue < 1e-6  # a twin
        context = interval_arithmetic(256)
        for number in range(20):
            low, high = (float(end) for end in ends(found.within(context, number)))
            assert low - found.error[number] <= found.near[number] <= high + found.error[number]

    @pytest.mark.slow
    def test_decisions_with_more_digits_are_those_of_float64(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Where float64 can tell, intervals say the same: here they decide everything, of the same numbers."""
        quick = Roots.draw(np.random.default_rng(3), 300, 5)
        monkeypatch.setattr(_sketches, "_LOOSE", 1e9)
        drawn = _sketches.draw_normals
        exact = np.random.default_rng(3)
        words = np.random.default_rng(4)  # digits beyond the first come from elsewhere, so that the first are the same

        def apart(rng: np.random.Generator, rows: int, columns: int) -> Any:
            block = drawn(rng, rows, columns)
            block.rng = words
            return block

        monkeypatch.setattr(_sketches, "draw_normals", apart)
        monkeypatch.setattr(
            Digits, "of_float", classmethod(lambda cls, _, uniform: cls(words, int(uniform * 2**53), 53))
        )
        slow = Roots.draw(exact, 300, 5)
        assert np.array_equal(quick.near, slow.near)
        assert len(slow.looked_at) == 300

    def test_tables_become_whole_numbers_with_short_rows(self) -> None:
        m = nz.JohnsonLindenstrauss(nz.TensorBall((3000, 3), 1.7, mode=0), 1.0, 1e-5, projections=20)
        x = np.random.default_rng(0).normal(size=(3000, 3))
        x *= 1.7 / np.linalg.norm(x, axis=1, keepdims=True)
        codes = [[int(entry * _SHORTER / m._unit) for entry in row] for row in m.domain.clip(x).tolist()]
        bound = (Fraction(1.7) / Fraction(m._unit)) ** 2
        assert all(sum(entry**2 for entry in row) <= bound for row in codes)
        (found,) = m._whole_spread(m.domain.clip(x)[None])
        wanted = [[sum(row[i] * row[j] for row in codes) for j in range(3)] for i in range(3)]
        ridge = m._whole_ridge
        assert [[int(n) - ridge * (i == j) for j, n in enumerate(row)] for i, row in enumerate(found)] == wanted
        leverage = Fraction(m.leverage)
        assert bound / (bound + ridge) <= leverage
        assert m.ridge == float(ridge) * m._unit**2

    @pytest.mark.parametrize("degrees", [1, 2, 3, 8, 51, 1000])
    def test_tails_are_those_of_mpmath(self, degrees: int) -> None:
        with mpmath.workprec(300):
            for share in (0.1, 0.8, 1.0, 1.2, 3.0):
                place = mpmath.mpf(share * degrees)
                half = mpmath.mpf(degrees) / 2
                for found, ends_ in zip(_tails(degrees, place), ((0, place / 2), (place / 2, mpmath.inf)), strict=True):
                    wanted = mpmath.gammainc(half, *ends_, regularized=True)
                    assert abs(found / wanted - 1) < mpmath.mpf(2) ** -200

    @pytest.mark.parametrize(("r", "h", "epsilon"), [(8, 0.1, 0.2), (1, 0.3, 1.0), (50, 0.02, 0.1), (30, 0.23, 8.0)])
    def test_delta_is_rounded_up(self, r: int, h: float, epsilon: float) -> None:
        assert float(delta_above(r, h, epsilon)) == pytest.approx(jl_delta(r, h, epsilon), rel=1e-9)
        found = largest_leverage(r, epsilon, 1e-6)
        assert delta_above(r, found, epsilon) <= 1e-6
        assert delta_above(r, found * (1 + 1e-6), epsilon) > 1e-6  # a twin


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_one_entry_that_is_not_finite_is_refused(bad: float) -> None:
    m = nz.JohnsonLindenstrauss(nz.TensorBall((6, 4), 1.0, mode=0), 1.0, 1e-4, projections=2)
    table = np.zeros((6, 4))
    for clip in (False, True):
        m.privatize(table, clip=clip, rng=1)
        with pytest.raises(ValueError, match="Expected finite values"):
            m.privatize(np.where(np.arange(24).reshape(6, 4) == 13, bad, table), clip=clip, rng=1)
