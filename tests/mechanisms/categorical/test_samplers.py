"""The samplers draw from the integer tables they state: draw by draw where that can be followed, else by chi-square."""

from __future__ import annotations

import itertools
from bisect import bisect_right
from typing import Any

import mpmath
import numpy as np
import pytest
from scipy.linalg import hadamard
from scipy.stats import binom, chi2

import noisette as nz
from noisette.mechanisms.categorical._base import KeepOrReplace, keep_weight
from noisette.mechanisms.categorical._bits import IndependentBits
from noisette.mechanisms.categorical.hadamard import walsh_hadamard

FALSE_ALARM = 1e-6


class Scripted:
    """A generator whose draws are written down beforehand."""

    def __init__(self, draws: Any) -> None:
        self.draws = list(draws)

    def random(self, size: int) -> np.ndarray:
        draw = np.asarray(self.draws.pop(0), dtype=float)
        assert draw.size == size
        return draw.copy()

    def integers(self, low: int, high: int, size: Any, **_: Any) -> np.ndarray:
        draw = np.asarray(self.draws.pop(0))
        assert draw.size == np.prod(size)
        return draw.reshape(size).copy()

    def bytes(self, length: int) -> bytes:
        draw: bytes = self.draws.pop(0)
        assert len(draw) == length
        return draw


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
        response.sample(values, reports, Scripted([draws * 2.0**-53]))
        expected = [d // response.other if d < size * response.other else -7 for d in draws.tolist()]
        assert reports.tolist() == expected

    def test_draws_beyond_the_total_are_drawn_again(self) -> None:
        response = KeepOrReplace(size=2, keep=2, other=3)
        reports = np.empty(3, dtype=np.int64)
        script = Scripted([np.asarray([8, 3, 9]) * 2.0**-53, np.asarray([7, 8]) * 2.0**-53, np.asarray([0]) * 2.0**-53])
        response.sample(np.asarray([5, 5, 5]), reports, script)
        assert reports.tolist() == [5, 1, 0]


@pytest.mark.parametrize("log_odds", [-40.0, -3.0, -1e-9, 0.0, 1e-6, 2.0, 30.0, 700.0])
def test_keep_weight_rounds_to_the_private_side(log_odds: float) -> None:
    weight = keep_weight(log_odds)
    assert 0 < weight < 2**53
    with mpmath.workdps(60):
        exact = 2**53 / (1 + mpmath.exp(-mpmath.mpf(log_odds)))
        error = abs(weight - exact)
    assert error <= 1.5 or (log_odds < -30 and weight == 1)


class TestIndependentBits:
    WEIGHTS = (1 << 8, 12345678901, 620142894729274301, 1 << 60, (1 << 61) - 3)

    @pytest.mark.parametrize("weight", WEIGHTS)
    def test_short_and_late_draws_share_out_the_product_law_exactly(self, weight: int) -> None:
        """A pattern's chance times 2^488 is 2^472 for each short draw it owns, plus its step of the running sums."""
        bits = IndependentBits(weight)
        decided, sums = bits._shares
        words = bits._patterns
        for pattern in range(256):
            ones = pattern.bit_count()
            assert words[pattern : pattern + 1].view(np.uint8).tolist() == [int(b) for b in f"{pattern:08b}"]
            owned = int(np.count_nonzero(decided == words[pattern]))
            late = sums[pattern] - (sums[pattern - 1] if pattern else 0)
            assert owned * 2**472 + late == weight**ones * (2**61 - weight) ** (8 - ones)
        assert sums[-1] == (2**16 - decided.size) * 2**472

    @pytest.mark.parametrize("weight", WEIGHTS[:3])
    def test_each_late_draw_gives_the_pattern_that_owns_it(self, weight: int) -> None:
        """Draws beside and on the edges; on an edge 424 bits more decide, against the sums without rounding."""
        bits = IndependentBits(weight)
        _, sums = bits._shares
        edges = bits._edges.tolist()
        for number in (0, 1, 2, 17, 254):
            if number == 0 or edges[number] > edges[number - 1] + 1:
                assert bits._settle(np.asarray([edges[number] - 1]), Scripted([])).tolist() == [number]
            rest = sums[number] & (2**424 - 1)
            owner = bisect_right(sums, sums[number])  # the next pattern whose share is not empty
            at, below = ((rest + shift).to_bytes(53, "little") for shift in (0, -1))
            assert bits._settle(np.asarray([edges[number]]), Scripted([at])).tolist() == [owner]
            if rest:
                found = bits._settle(np.asarray([edges[number]]), Scripted([below])).tolist()
                assert found == [bisect_right(sums, sums[number] - 1)]
                assert found[0] <= number

    def test_a_late_draw_replaces_what_the_short_one_left(self) -> None:
        bits = IndependentBits(620142894729274301)
        late = [0, int(bits._edges[0]) + 1, int(bits._edges[41]) + 1]
        short = np.asarray([0, 65535, 65535, 65535], dtype=np.uint16).view(np.uint64)
        out = np.empty(32, dtype=np.uint8)
        bits.fill(out, np.empty(4, dtype=np.intp), Scripted([short, late]))
        assert out.reshape(4, 8).tolist() == [[int(b) for b in f"{p:08b}"] for p in (0, 0, 1, 42)]

    @pytest.mark.parametrize("chance", [0.5, 0.27, 0.01])
    def test_patterns_have_the_product_law(self, chance: float) -> None:
        bits = IndependentBits(round(chance * 2**61))
        out, scratch = np.empty(8 * 400_000, dtype=np.uint8), np.empty(400_000, dtype=np.intp)
        bits.fill(out, scratch, np.random.default_rng(11))
        counts = np.bincount(np.packbits(out), minlength=256)
        ones = np.asarray([p.bit_count() for p in range(256)])
        assert fits(counts, chance**ones * (1 - chance) ** (8 - ones))
        wrong = chance * 1.05
        assert not fits(counts, wrong**ones * (1 - wrong) ** (8 - ones))

    @pytest.mark.long
    @pytest.mark.parametrize("size", [1, 8, 13])
    def test_any_length_is_filled(self, size: int) -> None:
        bits, rng = IndependentBits(round(0.3 * 2**61)), np.random.default_rng(size)
        out, scratch = np.empty((10_000, size), dtype=np.uint8), np.empty(size // 8 + 1, dtype=np.intp)
        for row in out:
            bits.fill(row, scratch, rng)
        ones = out.sum(axis=1)
        assert fits(np.bincount(ones, minlength=size + 1), binom.pmf(np.arange(size + 1), size, 0.3))
        assert not fits(np.bincount(ones, minlength=size + 1), binom.pmf(np.arange(size + 1), size, 0.33))

    @pytest.mark.parametrize("epsilon", [1e-6, 0.5, 5.0, 30.0, 60.0, 1000.0])
    def test_chances_keep_the_budget(self, epsilon: float) -> None:
        """Odds of the own bit over odds of another, as fractions, against exp(epsilon) in sixty digits."""
        for name in ("oue", "sue"):
            own, other = nz.CATALOGUE[name](epsilon, nz.Categorical(3))._support_law
            ratio = own * (1 - other) / (other * (1 - own))
            with mpmath.workdps(60):
                loss = mpmath.log(mpmath.mpf(ratio.numerator) / ratio.denominator)
                assert loss <= epsilon
                assert loss >= min(epsilon * (1 - 1e-6), 36)


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


@pytest.mark.slow
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
