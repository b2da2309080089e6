"""Parts of mechanisms by hand: binomial laws, weights of hashed reports, and solutions that are kept."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

import noisette as nz
from noisette.mechanisms import _solved
from noisette.mechanisms.categorical import unary
from noisette.mechanisms.categorical.selections.wheel import _binomial
from noisette.mechanisms.categorical.texts.prefixes import PrefixExtending


@pytest.mark.parametrize(("many", "chance"), [(1, 0.3), (7, 0.9), (400, 0.03), (90_000, 0.5)])
def test_a_binomial_law_near_its_mean(many: int, chance: float) -> None:
    low, mass = _binomial(many, chance)
    exact = stats.binom.pmf(np.arange(low, low + mass.size), many, chance)
    assert mass == pytest.approx(exact, rel=1e-8, abs=1e-15)
    assert stats.binom.cdf(low - 1, many, chance) + stats.binom.sf(low + mass.size - 1, many, chance) < 1e-12
    assert low + mass.size <= many + 1


def test_a_page_is_told_no_number_that_it_would_round() -> None:
    """Numbers of JavaScript are exact below 2^53: a device that rounds one would draw from another law."""
    m: Any = nz.CATALOGUE["wheel"](1.0, domain=nz.Selection(9, 3))
    for own, told in ((m._law.own, True), (2**53 - 1, True), (2**53, False), (2**53 + 1, False)):
        m.__dict__["_law"] = replace(m._law, own=own)
        table = m.table()
        assert (table is not None) == told
        assert m.written_law()["own"] == own
        assert table is None or float(table["own"]) == own


def test_weights_of_hashed_reports_add_up() -> None:
    law = PrefixExtending(epsilon=1.3, domain=nz.Texts(4)).law()
    kinds = law.kinds(0)
    assert sum(count * weight for count, weight in kinds) == law.total
    own, other = (weight for _, weight in kinds)
    assert own / other <= np.exp(1.3)
    assert [count for count, _ in kinds] == [law.cells, law.cells * (law.response.size - 1)]


def test_a_solution_is_kept_where_there_was_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_solved, "_path", lambda key: tmp_path / "a" / "b" / key)
    for masses, plausible in (
        ([0.1, 0.2], True),
        ([0.0, 0.0], False),
        ([0.25, 0.25], False),
        ([0.3, -0.1], False),
        ([0.1, np.nan], False),
    ):
        _solved.store("key", np.asarray(masses))
        found = _solved.load("key", 2)
        assert (found is not None) == plausible
        assert not plausible or found.tolist() == masses  # type: ignore[union-attr]
        assert _solved.load("key", 3) is None


def test_a_rare_bit_has_a_chance_that_53_bits_hold() -> None:
    """1 / (exp(x) + 1) in units of 2^-61, rounded up, and never below 2^-53."""
    for odds in (0.0, 0.5, 3.0, 20.0):
        wanted = Fraction(2**61) / (Fraction(math.exp(odds)) + 1)
        assert 0 <= unary._rare_weight(odds) - wanted <= 1 + wanted / 2**50
    assert unary._rare_weight(37.0) == unary._rare_weight(800.0) == 2**8
    assert unary._rare_weight(36.0) > 2**8


@pytest.mark.parametrize("seed", range(3))
def test_a_point_of_a_ring_is_read_as_the_law_says(seed: int) -> None:
    """A report speaks for a selection where it is the more likely for it."""
    mechanism: Any = nz.CATALOGUE["wheel"](1.0, domain=nz.Selection(7, 2))
    rows = np.asarray([[0, 1], [2, 5], [6, 3], [4, 1]])
    reports = mechanism.privatize(rows, rng=seed)
    found = mechanism.readable(reports, rows)
    logs = np.asarray([[float(mechanism.log_prob(report, row)) for row in rows] for report in reports])
    assert np.array_equal(found, logs > (logs.min() + logs.max()) / 2)
    assert found.any()
    assert not found.all()
