"""The discrete Gaussian law cut into strips."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace

import mpmath
import numpy as np
import pytest
from scipy import stats

from noisette import _random, _strips

FALSE_ALARM = 1e-6


def parts(law: _strips.Strips) -> list[int]:
    """Return the mass of each part, added up from the columns of the table."""
    capacity = 1 << 26
    found = [0] * 1024
    for column, (threshold, other) in enumerate(zip(law.thresholds.tolist(), law.alias.tolist(), strict=True)):
        found[column] += threshold
        found[other] += capacity - threshold
    return found


@pytest.mark.parametrize("sigma", [0.05, 0.7, 3.0, 16.0, 31.9, 1000.5, 2.0**24 * 1.3, 2.0**31 * 0.999])
def test_the_table_is_the_law(sigma: float) -> None:
    """The masses are those of rectangles, wedges and tail to the unit, and all chances to keep are chances."""
    law = _strips.strips(sigma)
    many, width = law.low.size, 1 << law.shift
    assert law.shift <= 27
    assert 2 * many + 2 <= 1024
    found = parts(law)
    assert sum(found) == 1 << 36
    assert found[:many] == law.low.astype(int).tolist()
    assert found[many : 2 * many] == law.gap.astype(int).tolist()
    assert found[2 * many] == law.tail
    assert not any(found[2 * many + 2 :])
    assert found[2 * many + 1] < 2**36 / 1000  # drawn anew
    rng = np.random.default_rng(1)
    with mpmath.workprec(400):
        for strip in range(many):
            inside = {0, width - 1, *rng.integers(0, width, 3).tolist()}
            kept = [law.left_by_wedge(mpmath, strip, strip * width + place) for place in inside]
            assert min(kept) >= 0
            assert max(kept) <= 1
        beyond = [law.left_by_tail(mpmath, place) for place in (0, 1, width, 3 * width, int(5 * sigma))]
        assert max(beyond) <= 1
        assert min(beyond) > 0


@pytest.mark.parametrize(("sigma", "edge"), [(2.0, 1.0), (40.0, 0.5), (40.0, 8.0)])
def test_every_value_has_its_chance(sigma: float, edge: float) -> None:
    """Rectangle, wedge and tail add up to f(k) for each k, from formulas in the other direction."""
    law = _strips.strips(sigma, edge)
    with mpmath.workprec(300):
        for k in range(0, int(9 * sigma), 7):
            strip = k >> law.shift
            if k < law.edge:
                mass = law.low[strip] + law.gap[strip] * law.left_by_wedge(mpmath, strip, k)
            else:
                rate = mpmath.mpf(law.tail_rate)
                chance = (1 - mpmath.exp(-rate)) * mpmath.exp(-rate * (k - law.edge))
                mass = law.tail * 2**law.shift * chance * law.left_by_tail(mpmath, k - law.edge)
            assert mpmath.almosteq(
                mass / law.scale, mpmath.exp(-(mpmath.mpf(k) ** 2) / (2 * mpmath.mpf(sigma) ** 2)), 1e-60
            )


def chi_square(draws: np.ndarray, sigma: float) -> float:
    """Return the p-value of draws against the law of a small sigma."""
    cells = np.arange(-int(4 * sigma), int(4 * sigma) + 1)
    mass = np.exp(-0.5 * (cells / sigma) ** 2)
    mass /= np.exp(-0.5 * (np.arange(-400, 401) / sigma) ** 2).sum()
    seen = np.asarray([(draws == cell).sum() for cell in cells])
    observed = np.append(seen, draws.size - seen.sum())
    return float(stats.chisquare(observed, np.append(mass, 1 - mass.sum()) * draws.size).pvalue)


@pytest.mark.long
def test_draws_from_the_tail_follow_the_law() -> None:
    """With strips up to half a sigma most draws come from the tail; the twin has a sigma 4 % off."""
    law = _strips.strips(6.0, 0.5)
    draws = _random._stripped_gaussian(np.random.default_rng(3), law, 6000)
    assert chi_square(draws, 6.0) > FALSE_ALARM
    assert chi_square(_random.discrete_gaussian(np.random.default_rng(3), 6.4, 200_000), 6.0) < FALSE_ALARM
    assert chi_square(_random.discrete_gaussian(np.random.default_rng(3), 6.0, 200_000), 6.0) > FALSE_ALARM


def test_the_exact_path_decides_as_the_quick_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nothing is certain every draw from a wedge is settled in many digits: to the same value, or replaced."""
    law = _strips.strips(500.0)
    words = np.random.default_rng(2).integers(0, 2**64, 4000, dtype=np.uint64)
    given = words, (law.shift, float(law.scale), 0.5 / law.sigma**2), law.low, law.gap, law.thresholds, law.alias
    quick, pending = np.empty(3000), np.empty((4000, 5))
    done, left = _strips._fill(quick, *given, pending)
    assert (done, left) == (3000, 0)
    monkeypatch.setattr(_strips, "_UNSURE", 1.0)
    slow = np.empty(3200)
    done, left = _strips._fill(slow, *given, pending)
    assert left > 50
    rejected = []
    for place, strip, k, uniform, _ in pending[:left].tolist():
        never = SimpleNamespace(integers=lambda *a, **b: pytest.fail("more bits were needed"))
        if not _random._Bits(never, uniform).below(partial(law.left_by_wedge, strip=int(strip), k=int(k))):
            rejected.append(int(place))
    assert rejected
    assert np.array_equal(np.delete(slow[:done], rejected)[:2900], quick[:2900])


def test_few_and_wide_are_drawn_by_rejection(monkeypatch: pytest.MonkeyPatch) -> None:
    """A device that draws one value builds no table, and neither does noise too wide for a word."""
    monkeypatch.setattr(_random, "_stripped_gaussian", lambda *given: pytest.fail("a table was built"))
    assert _random.discrete_gaussian(np.random.default_rng(1), 1000.0, 1).shape == (1,)
    assert _random.discrete_gaussian(np.random.default_rng(1), 2.0**33, 5000).std() > 2.0**32


def test_a_draw_of_the_tail_is_as_far_beyond_as_it_is_kept_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a number just below its chance it is kept, with one just above it is replaced by a draw of another way."""
    law = _strips.strips(2.0**20)
    monkeypatch.setattr(_random, "_rejected_gaussian", lambda _rng, sigma, size: np.full(size, sigma + 0.5))
    for beyond in (0, 3, 40_000):
        monkeypatch.setattr(_random, "geometric", lambda _rng, rate, size, k=beyond: np.full(size, float(k)))
        with mpmath.workprec(200):
            chance = float(law.left_by_tail(mpmath, beyond))
        for uniform, kept in ((chance * (1 - 1e-12), True), (chance * (1 + 1e-12), False)):
            if uniform >= 1:
                continue
            for negative in (False, True):
                found = _random._settled(np.random.default_rng(1), law, -1, 7, uniform, negative)
                own = law.edge + beyond
                assert found == ((-own if negative else own) if kept else 2.0**20 + 0.5)


@pytest.mark.parametrize("strip", [0, 1, 40])
def test_a_draw_of_a_wedge_is_kept_with_the_chance_of_its_strip(strip: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first strip is one as well: -1 alone stands for the tail."""
    law = _strips.strips(2.0**20)
    monkeypatch.setattr(_random, "_rejected_gaussian", lambda _rng, sigma, size: np.full(size, sigma + 0.5))
    monkeypatch.setattr(_random, "geometric", lambda *_: pytest.fail("a draw of the tail"))
    k = (strip << law.shift) + (1 << law.shift) // 3
    with mpmath.workprec(200):
        chance = float(law.left_by_wedge(mpmath, strip, k))
    assert 0.1 < chance < 0.9
    for uniform, kept in ((chance * (1 - 1e-9), True), (chance * (1 + 1e-9), False)):
        for negative in (False, True):
            found = _random._settled(np.random.default_rng(1), law, strip, k, uniform, negative)
            assert found == ((-k if negative else k) if kept else 2.0**20 + 0.5)
