"""The samplers draw from the integer tables they state: draw by draw where that can be followed, else by chi-square."""

from __future__ import annotations

import itertools
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import pytest
from scipy.linalg import hadamard
from scipy.stats import chi2

import noisette as nz
from noisette.mechanisms.categorical._base import KeepOrReplace, keep_weight
from noisette.mechanisms.categorical._octet import Octet
from noisette.mechanisms.categorical.hadamard import walsh_hadamard

FALSE_ALARM = 1e-6


class Scripted:
    """A generator whose draws are written down beforehand."""

    def __init__(self, draws: Any) -> None:
        self.draws = [np.asarray(draw) for draw in draws]

    def random(self, size: int) -> np.ndarray:
        draw = self.draws.pop(0)
        assert draw.size == size
        return draw.astype(float)

    def integers(self, low: int, high: int, size: Any, **_: Any) -> np.ndarray:
        draw = self.draws.pop(0)
        assert draw.size == np.prod(size)
        return draw.reshape(size)


def fits(counts: np.ndarray, probabilities: np.ndarray) -> bool:
    """Tell whether counts pass a chi-square test at the false-alarm rate; rare cells are pooled."""
    expected = probabilities * counts.sum()
    rare = expected < 20
    cells = np.append(counts[~rare], counts[rare].sum()), np.append(expected[~rare], expected[rare].sum())
    seen, wanted = (cell[cells[1] > 0] for cell in cells)
    statistic = float(((seen - wanted) ** 2 / wanted).sum())
    return statistic <= chi2.isf(FALSE_ALARM, seen.size - 1)


class TestKeepOrReplace:
    @pytest.mark.parametrize("size", [2, 3, 100, 10**6])
    @pytest.mark.parametrize("epsilon", [1e-6, 1e-3, 1.0, 5.0, 20.0, 36.0, 1000.0])
    def test_weights_keep_the_budget_exactly(self, size: int, epsilon: float) -> None:
        response = KeepOrReplace.build(size, epsilon)
        assert response.total <= 2**53
        with mpmath.workdps(60):
            ratio = mpmath.mpf(response.keep + response.other) / response.other
            assert ratio <= mpmath.exp(mpmath.mpf(epsilon))
            if epsilon < 30 and size < 1000:
                assert mpmath.log(ratio) >= epsilon * (1 - 1e-7)
        assert response.p_same + (size - 1) * response.p_different == 1

    def test_a_budget_that_no_draw_can_spend_is_refused(self) -> None:
        with pytest.raises(ValueError, match=r"larger epsilon than 1e-09 for 1000000000 categories"):
            KeepOrReplace.build(10**9, 1e-9)

    @pytest.mark.parametrize("size", [2, 7, 1000, 10**6])
    @pytest.mark.parametrize("epsilon", [1e-6, 1.0, 30.0])
    def test_each_draw_gives_what_integer_division_gives(self, size: int, epsilon: float) -> None:
        """Draws around every edge between two reports, where a rounded quotient would be wrong first."""
        response = KeepOrReplace.build(size, epsilon)
        edges = np.unique(np.linspace(0, size, 500).astype(np.int64)) * response.other
        draws = np.unique(np.concatenate([edges - 1, edges, edges + 1, [response.total - 1]]))
        draws = draws[(draws >= 0) & (draws < response.total)]
        values, reports = np.full(draws.size, -7), np.empty(draws.size, dtype=np.int64)
        response.sample(values, reports, Scripted([draws * 2.0**-53]))  # type: ignore[arg-type]
        expected = [d // response.other if d < size * response.other else -7 for d in draws.tolist()]
        assert reports.tolist() == expected

    def test_draws_beyond_the_total_are_drawn_again(self) -> None:
        response = KeepOrReplace(size=2, keep=2, other=3)
        reports = np.empty(3, dtype=np.int64)
        script = Scripted([np.asarray([8, 3, 9]) * 2.0**-53, np.asarray([7, 8]) * 2.0**-53, np.asarray([0]) * 2.0**-53])
        response.sample(np.asarray([5, 5, 5]), reports, script)  # type: ignore[arg-type]
        assert reports.tolist() == [5, 1, 0]


@pytest.mark.parametrize("log_odds", [-40.0, -3.0, -1e-9, 0.0, 1e-6, 2.0, 30.0, 700.0])
def test_keep_weight_rounds_to_the_private_side(log_odds: float) -> None:
    weight = keep_weight(log_odds)
    assert 0 < weight < 2**53
    with mpmath.workdps(60):
        exact = 2**53 / (1 + mpmath.exp(-mpmath.mpf(log_odds)))
        error = abs(weight - exact)
    assert error <= 1.5 or (log_odds < -30 and weight == 1)


class TestOctet:
    @pytest.mark.parametrize("epsilon", [1e-6, 0.1, 1.0, 5.0, 20.0, 43.0, 1000.0])
    def test_ratios_never_fall_below_the_odds_of_one_bit(self, epsilon: float) -> None:
        octet = Octet.build(-epsilon)
        odds = Fraction(octet.weights[1], octet.weights[0])
        with mpmath.workdps(40):
            assert mpmath.mpf(odds.numerator) / odds.denominator >= mpmath.exp(-mpmath.mpf(epsilon)) * (1 - 1e-15)
        assert all(Fraction(more, less) >= odds for less, more in itertools.pairwise(octet.weights))
        assert octet.total < 2**64
        for bits in range(1, 9):
            marginal = octet.marginal(bits)
            assert all(Fraction(more, less) >= odds for less, more in itertools.pairwise(marginal))

    @pytest.mark.parametrize("epsilon", [1e-6, 0.5, 1.0, 4.0])
    def test_bits_are_independent_to_fifteen_digits(self, epsilon: float) -> None:
        octet = Octet.build(-epsilon)
        q = float(octet.p_on)
        assert q == pytest.approx(1 / (1 + np.exp(epsilon)), rel=1e-12)
        for ones, weight in enumerate(octet.weights):
            assert weight / octet.total == pytest.approx(q**ones * (1 - q) ** (8 - ones), rel=1e-9)

    def test_marginals_are_sums_over_the_other_bits(self) -> None:
        octet = Octet.build(-1.3)
        masses = {pattern: octet.weights[sum(pattern)] for pattern in itertools.product((0, 1), repeat=8)}
        assert sum(masses.values()) == octet.total
        for bits in (1, 3, 7):
            for start in itertools.product((0, 1), repeat=bits):
                total = sum(mass for pattern, mass in masses.items() if pattern[:bits] == start)
                assert octet.marginal(bits)[sum(start)] == total
        assert octet.p_on == Fraction(sum(m for pattern, m in masses.items() if pattern[4]), octet.total)

    def test_sixteen_bits_and_the_rest_share_out_the_weights_exactly(self) -> None:
        """A pattern's weight is 2^48 for each short draw that decides on it, and the rest of it is left for later."""
        octet = Octet.build(-1.0)
        decided, sums = octet._split
        left = np.diff(sums, prepend=0)
        words = octet._patterns[:-1]
        for pattern in range(256):
            whole = int(np.count_nonzero(decided == words[pattern]))
            assert (whole << 48) + int(left[pattern]) == octet.weights[pattern.bit_count()]
            assert words[pattern : pattern + 1].view(np.uint8).sum() == pattern.bit_count()

    def test_each_late_draw_gives_the_pattern_that_owns_it(self) -> None:
        """Draws at the edges between patterns; the one past the last edge is drawn again from the start."""
        octet = Octet.build(-1.0)
        decided, sums = octet._split
        late = [0, sums[0] - 1, sums[0], sums[1] - 1, sums[1], sums[255] - 1, sums[255], sums[41]]
        script = [np.full(2, 2**64 - 1, dtype=np.uint64), late, np.zeros(1, dtype=np.uint64), []]
        words = np.empty(8, dtype=np.uint64)
        octet.sample(words, np.empty(8, dtype=np.intp), Scripted(script))  # type: ignore[arg-type]
        owners = octet._patterns[[0, 0, 1, 1, 2, 255, 0, 42]]
        owners[6] = decided[0]
        assert words.tolist() == owners.tolist()

    @pytest.mark.parametrize(
        "octet",
        [
            Octet.build(-1.0),
            Octet.build(-0.01),
            Octet((2**62, *[2**55] * 8)),
        ],  # the last redraws a quarter of its draws
        ids=["usual", "even", "redrawn"],
    )
    def test_patterns_have_the_stated_law(self, octet: Octet) -> None:
        words, scratch = np.empty(400_003, dtype=np.uint64), np.empty(400_003, dtype=np.intp)
        octet.sample(words, scratch, np.random.default_rng(11))
        patterns = np.packbits(words.view(np.uint8).reshape(-1, 8), axis=1)[:, 0]
        counts = np.bincount(patterns, minlength=256)
        weights = np.asarray([octet.weights[p.bit_count()] for p in range(256)], dtype=float)
        assert fits(counts, weights / weights.sum())
        wrong = np.asarray([octet.weights[p.bit_count()] * 1.02 ** p.bit_count() for p in range(256)])
        assert not fits(counts, wrong / wrong.sum())


class TestSubsets:
    def test_ties_at_the_edge_are_drawn_again(self) -> None:
        """Keys 5, 5, 1, 9 of the categories 0 ... 3: two smallest of the others are 2 and a tie of 0 with 1."""
        mechanism = nz.SubsetSelection(0.1, nz.Categorical(4))
        assert mechanism.length == 2
        keys = np.asarray([5, 5, 1, 9], dtype=np.uint64) << np.uint64(10)
        apart = np.asarray([5, 6, 1, 9], dtype=np.uint64) << np.uint64(10)
        draw = mechanism._draw
        chosen, sound = draw(np.asarray([3]), np.asarray([False]), Scripted([keys]))  # type: ignore[arg-type]
        assert not sound[0]
        chosen, sound = draw(np.asarray([3]), np.asarray([False]), Scripted([apart]))  # type: ignore[arg-type]
        assert sound[0]
        assert chosen.tolist() == [[0, 2]]
        # with the own category inside, only one other is needed and nothing ties
        chosen, sound = draw(np.asarray([3]), np.asarray([True]), Scripted([keys]))  # type: ignore[arg-type]
        assert sound[0]
        assert chosen.tolist() == [[2, 3]]

    def test_a_tied_draw_reaches_no_report(self) -> None:
        mechanism = nz.SubsetSelection(0.1, nz.Categorical(4))
        keys = [np.asarray(k, dtype=np.uint64) << np.uint64(10) for k in ([5, 5, 1, 9], [7, 3, 4, 9])]
        reports = np.empty((1, 2), dtype=np.int64)
        mechanism._fill(np.asarray([3]), reports, Scripted([[0.99], *keys]))  # type: ignore[arg-type]
        assert reports.tolist() == [[1, 2]]


@pytest.mark.parametrize("order", [1, 2, 4, 64, 256])
def test_fast_transform_is_the_matrix_product(order: int) -> None:
    values = np.random.default_rng(order).integers(-(2**40), 2**40, order)
    assert np.array_equal(walsh_hadamard(values), hadamard(order).astype(np.int64) @ values)


def test_hadamard_columns_come_from_the_own_row() -> None:
    """All columns with either sign of the category's row of scipy's matrix, and the counts of their +1 entries."""
    mechanism = nz.HadamardResponse(1.0, nz.Categorical(6))
    matrix = hadamard(8)
    masses = np.exp(mechanism.log_prob(np.arange(8)[:, None], np.arange(6)))
    p = mechanism.p_own
    assert np.allclose(masses, np.where(matrix[:, 1:7] == 1, p / 4, (1 - p) / 4))
    reports = mechanism.privatize(np.tile(np.arange(6), 50), rng=4)
    assert np.array_equal(mechanism.tally(reports).total, (matrix[1:7][:, reports] == 1).sum(axis=1))


def _listed(mechanism: Any) -> np.ndarray:
    size = mechanism.domain.size
    if mechanism.name in ("sue", "oue"):
        return np.asarray(list(itertools.product((0, 1), repeat=size)), dtype=np.uint8)
    if mechanism.name == "subset-selection":
        return np.asarray(list(itertools.combinations(range(size), mechanism.length)))
    return np.arange(mechanism.order if mechanism.name == "hadamard" else size)


@pytest.mark.parametrize("size", [2, 5, 9])
@pytest.mark.parametrize("name", ["grr", "sue", "oue", "subset-selection", "hadamard"])
def test_reports_have_the_law_of_log_prob(name: str, size: int) -> None:
    """Chi-square over all reports, for two categories; the twin of a budget 10 % larger is rejected."""
    mechanism, wrong = (nz.CATALOGUE[name](epsilon, nz.Categorical(size)) for epsilon in (1.0, 1.1))
    every = _listed(mechanism)
    order = np.argsort(_coded(every, size))
    for x in (0, size - 1):
        reports = mechanism.privatize(np.full(200_000, x), rng=100 + x)
        index = order[np.searchsorted(_coded(every, size)[order], _coded(reports, size))]
        assert np.array_equal(every[index], reports)
        counts = np.bincount(index, minlength=len(every))
        assert fits(counts, np.exp(mechanism.log_prob(every, x)))
        assert not fits(counts, np.exp(wrong.log_prob(every, x)))


def _coded(reports: np.ndarray, size: int) -> np.ndarray:
    """Return one integer for each report."""
    if reports.ndim == 1:
        return reports
    return reports.astype(np.int64) @ size ** np.arange(reports.shape[1])


def test_local_hashing_reports_have_the_law_of_log_prob() -> None:
    """Seeds are uniform (leading bits of slope and shift) and buckets, seen from the own one, follow the response."""
    mechanism = nz.LocalHashing(1.0, nz.Categorical(50))
    x = np.random.default_rng(0).integers(0, 50, 200_000)
    seeds, values = mechanism.privatize(x, rng=9).T
    own = mechanism._hash.bucket(seeds, x)
    turned = np.bincount((values - own) % mechanism.buckets, minlength=4)
    p = mechanism.p_own
    assert fits(turned, np.asarray([p, *[(1 - p) / 3] * 3]))
    assert not fits(turned, np.asarray([p * 1.02, *[(1 - 1.02 * p) / 3] * 3]))
    prime = mechanism._hash.prime
    cells = (seeds // prime * 8 // prime) * 8 + seeds % prime * 8 // prime
    assert fits(np.bincount(cells, minlength=64), np.full(64, 1 / 64))
    assert fits(np.bincount(own, minlength=4), np.full(4, 1 / 4))


def test_histogram_noise_is_laplace_with_half_the_budget() -> None:
    mechanism = nz.HistogramEncoding(1.5, nz.Categorical(4))
    x = np.arange(50_000) % 4
    noise = (mechanism.privatize(x, rng=2) - np.eye(4)[x]).reshape(-1)
    edges = np.linspace(-6, 6, 41)

    def cdf(scale: float) -> np.ndarray:
        half = np.exp(-np.abs(edges) / scale) / 2
        return np.diff(np.concatenate([[0], np.where(edges < 0, half, 1 - half), [1]]))

    counts = np.bincount(np.searchsorted(edges, noise), minlength=edges.size + 1)
    assert fits(counts, cdf(2 / 1.5))
    assert not fits(counts, cdf(2 / 1.5 * 1.02))
    assert not fits(counts, cdf(1 / 1.5))
