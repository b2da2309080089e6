"""The readings: each formula transcribed from the text agrees with the published form that the library has."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from experiments.readings.thesis import _known_range
from scipy.stats import chi2

from experiments import frame, readings

PAPER = readings
ITEM, PRINTED, OURS, VERDICT = 0, 3, 4, 6


NAMES = [
    pytest.param(name, marks=pytest.mark.long if name.startswith("duan") else pytest.mark.slow)
    for name in frame.studies(readings)
]


@pytest.fixture(scope="module", params=NAMES)
def computed(request):
    """The statements of one paper, computed now, and those where the library departs from the printed formula."""
    study = frame.studies(readings)[request.param](False, lambda _: None)
    return request.param, study, study.setting["departs from the printed formula"].split("; ")


def numbers(rows):
    return [row for row in rows if isinstance(row[PRINTED], float) and isinstance(row[OURS], float)]


def test_the_library_has_the_formula_of_the_text(computed):
    _, study, mended = computed
    compared = [row for row in numbers(study.rows) if row[ITEM] not in mended]
    assert len(compared) >= 3
    for row in compared:
        assert row[OURS] == pytest.approx(row[PRINTED], rel=1e-6, abs=1e-9), row[ITEM]


def test_where_the_library_departs_the_formula_of_the_text_is_another(computed):
    _, study, mended = computed
    for row in numbers(study.rows):
        if row[ITEM] in mended:
            assert row[OURS] != pytest.approx(row[PRINTED], rel=1e-3), row[ITEM]
            assert row[OURS] == pytest.approx(row[5], rel=1e-6), row[ITEM]  # and the library has the truth


def test_verdicts_have_five_words_at_most(computed):
    _, study, _ = computed
    assert all(1 <= len(row[VERDICT].split()) <= 5 for row in study.rows)


def test_what_is_committed_is_what_the_code_computes(computed):
    name, study, _ = computed
    record = json.loads((Path(readings.__file__).parent / "results.json").read_text("utf-8"))
    kept = next(own for own in record["studies"] if own["name"] == name)
    for row, old in zip(study.rows, kept["rows"], strict=True):
        for cell, before in zip(row, old, strict=True):
            if isinstance(cell, float):
                same = before is None if not math.isfinite(cell) else before == pytest.approx(cell, rel=1e-6, abs=1e-9)
                assert same, row[ITEM]
            else:
                assert cell == before, row[ITEM]


def test_noise_on_angles_whose_range_is_known_has_the_size_of_algorithm_5():
    unit = np.full(20, 20**-0.5)
    (turned, cosine), (plain, other) = _known_range(unit)
    degrees = 2000 * 19
    low, high = chi2.ppf([5e-7, 1 - 5e-7], degrees) / degrees  # one false alarm in a million
    assert low < turned / (math.sqrt(22) * 0.01 * math.pi / 100) ** 2 < high
    assert not low < turned / (math.sqrt(20) * 0.01 * math.pi / 100) ** 2 < high  # the twin: d for d + 2
    assert turned < plain
    assert cosine > other
