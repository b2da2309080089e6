"""One person's whole answer to a survey: no more than its epsilon, whatever is asked and however it is split."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
import pytest
from scipy.stats import chi2

import noisette as nz
from noisette.survey.choosing import Allowance
from noisette.survey.coding.sections import Together
from noisette.survey.draws import PublicDraws


@pytest.mark.slow
def test_shares_of_a_survey_never_add_up_to_more_than_its_budget() -> None:
    """Shares were rounded to the nearest float: 35 % of such splits spent more than epsilon, by one in 2^52."""
    draw = random.Random(1)
    for _ in range(2000):
        budget = Allowance(draw.choice([round(draw.uniform(0.1, 10), 1), draw.uniform(0.1, 10)]), draw.random(), 1)
        weights = [draw.randint(1, 6) for _ in range(draw.randint(2, 6))]
        parts = [budget.share(own, sum(weights)) for own in weights]
        for name in ("epsilon", "delta"):
            each = [getattr(part, name) for part in parts]
            spent = sum(map(Fraction, each))
            assert spent <= Fraction(getattr(budget, name))
            stated = Together(()).total(each)
            assert spent <= Fraction(stated) <= Fraction(getattr(budget, name))


@pytest.mark.long
def test_a_survey_that_is_split_in_three() -> None:
    """2.2 three times is more than 6.6: the survey stated, and spent, 6.6000000000000005."""
    asked = [nz.Number("age", 0, 10), nz.Vector("week", 3, 0, 1), nz.Choices("has", ["car", "bike", "bus"], most=2)]
    survey = nz.Survey(asked, epsilon=6.6)
    assert not survey.draw
    assert sum(Fraction(one.mechanism.guarantee.epsilon) for one in survey.sections) <= Fraction(6.6)
    assert 6.59 < survey.guarantee.epsilon <= 6.6


ABC = ["a", "b", "c"]
SOME: list[list[str]] = [[], ["a"], ["b", "c"], ["a", "c"]]
CHOICE, OTHER = nz.Choice("one", ABC), nz.Choice("two", ABC[:2])
NUMBER, SEVERAL = nz.Number("size", 0, 4), nz.Choices("some", ABC, most=2)
# answers at ends of ranges: any other number is a mixture of these before noise is added
WHOLE: dict[str, Callable[[], tuple[nz.Survey, list[dict[str, Any]]]]] = {
    "a number or none": lambda: (
        nz.Survey([nz.Number("size", 0, 4, optional=True)], epsilon=1.0),
        [{"size": value} for value in (None, 0, 4)],
    ),
    "answers or none, of two questions": lambda: (
        nz.Survey([nz.Choice("one", ABC, optional=True), nz.Number("size", 0, 4, optional=True)], epsilon=2.0),
        [{"one": one, "size": size} for one in (None, "a", "c") for size in (None, 0, 4)],
    ),
    "two choices as one": lambda: (
        nz.Survey([CHOICE, OTHER], epsilon=1.0, joint=[("one", "two")]),
        [{"one": one, "two": two} for one in ABC for two in ABC[:2]],
    ),
    "a choice and a number as one": lambda: (
        nz.Survey([CHOICE, NUMBER], epsilon=1.0, joint=[("one", "size")]),
        [{"one": one, "size": size} for one in ABC for size in (0, 4)],
    ),
    "a choice and several as one": lambda: (
        nz.Survey([CHOICE, SEVERAL], epsilon=1.0, joint=[("one", "some")]),
        [{"one": one, "some": some} for one in ABC for some in SOME],
    ),
    "several and several as one": lambda: (
        nz.Survey([SEVERAL, nz.Choices("more", ABC, most=1)], epsilon=1.0, joint=[("some", "more")]),
        [{"some": some, "more": more} for some in SOME for more in SOME[:2]],
    ),
    "a question in three pairs": lambda: (
        nz.Survey([CHOICE, OTHER, NUMBER], epsilon=3.0, joint=[("one", "two"), ("one", "size"), ("two", "size")]),
        [{"one": one, "two": two, "size": size} for one in ABC[:2] for two in ABC[:2] for size in (0, 4)],
    ),
    "several, by sets": lambda: (
        nz.Survey([SEVERAL], epsilon=1.0, mechanism="privset"),
        [{"some": some} for some in SOME],
    ),
    "several, one drawn": lambda: (
        nz.Survey([SEVERAL], epsilon=1.0, mechanism="drawn-option"),
        [{"some": some} for some in SOME],
    ),
    "mean and variance": lambda: (
        nz.Survey([nz.Number("size", 0, 4, want="variance")], epsilon=1.0),
        [{"size": size} for size in (0, 2, 4)],
    ),
    "one of three sections": lambda: (
        nz.Survey([CHOICE, SEVERAL, nz.Number("size", 0, 3, want="quantiles", whole=True)], epsilon=0.5),
        [{"one": one, "some": some, "size": size} for one in ABC[:2] for some in SOME[::2] for size in (0, 3)],
    ),
    "two sections that share the budget": lambda: (
        nz.Survey([CHOICE, SEVERAL], epsilon=6.0),
        [{"one": one, "some": some} for one in ABC for some in SOME],
    ),
}


@cache
def _asked(name: str) -> tuple[nz.Survey, list[dict[str, Any]]]:
    return WHOLE[name]()


def _coded(survey: nz.Survey, answer: dict[str, Any], many: int) -> dict[str, Any]:
    return {name: np.repeat(value[None], many, axis=0) for name, value in survey.encode(answer).items()}


def _logs(survey: nz.Survey, rows: Any, answer: dict[str, Any]) -> Any:
    """Return the log chances of whole rows, of all sections or of the one that was drawn, from the mechanisms' laws."""
    found = np.zeros(len(rows))
    for place, section in enumerate(survey.sections):
        own = rows["drawn"] == place if survey.draw else np.ones(len(rows), dtype=bool)
        if own.any():
            coded = [item.coded(_coded(survey, answer, 1), np.random.default_rng(0)) for item in section.items]
            value = coded[0] if len(coded) == 1 else np.stack(coded, axis=1)
            log = section.mechanism.log_prob(section.reports(rows[f"part{place}"][own]), value)
            found[own] += np.asarray(log) + (math.log(survey.draw[place] / sum(survey.draw)) if survey.draw else 0.0)
    return found


@pytest.mark.long
@pytest.mark.parametrize("name", WHOLE)
def test_everything_that_leaves_for_all_pairs_of_answers(name: str) -> None:
    """The joint law of the whole row: chances add up to one, no pair tells more than epsilon, samples follow it."""
    survey, answers = _asked(name)
    many = 20_000
    sent = [survey.privatize_coded(_coded(survey, answer, many), rng=seed) for seed, answer in enumerate(answers)]
    rows = np.unique(np.concatenate(sent))
    logs = np.stack([_logs(survey, rows, answer) for answer in answers])
    assert np.exp(logs).sum(axis=1) == pytest.approx(np.ones(len(answers)), abs=1e-3)  # all rows but the rarest came
    assert np.exp(logs).sum(axis=1).max() <= 1 + 1e-9
    told = max(float((logs[i] - logs[j]).max()) for i, j in itertools.permutations(range(len(answers)), 2))
    assert 0.8 * survey.epsilon < told <= survey.epsilon * (1 + 1e-12)
    for reports, log in zip(sent, logs, strict=True):
        places, count = np.unique(np.searchsorted(rows, reports), return_counts=True)
        seen = np.bincount(places, count, len(rows))
        expected = many * np.exp(log)
        large = expected >= 10
        pooled = np.append(seen[large], seen[~large].sum()), np.append(expected[large], expected[~large].sum() + 1e-9)
        score = float(((pooled[0] - pooled[1]) ** 2 / np.maximum(pooled[1], 1.0)).sum())
        assert score < chi2.isf(1e-6 / 200, max(1, int(large.sum())))


@pytest.mark.slow
@pytest.mark.parametrize("name", WHOLE)
def test_what_a_signature_draws_tells_nothing(name: str) -> None:
    """With tokens that draw, a collector knows section, level, seed and option beforehand: the rest is what counts."""
    survey, answers = _asked(name)
    for signature in (b"one", b"two", b"three"):
        drawn = []
        for answer in answers:
            row = survey.privatize_coded(_coded(survey, answer, 1), signature=signature, rng=1)
            assert survey.follows(row, signature)
            parts = [place for place in range(len(survey.sections)) if not survey.draw or row["drawn"][0] == place]
            own = [survey.sections[place].draw(1, PublicDraws(signature, f"part{place}")) for place in parts]
            drawn.append([parts, [None if one is None else one.tolist() for one in own]])
        assert all(one == drawn[0] for one in drawn)


@pytest.mark.long
def test_an_answer_that_is_none_is_refused_before_anything_is_drawn() -> None:
    """Nothing leaves a device about a value outside of the question; whether it was none or another is not told."""

    class Silent(np.random.Generator):
        def random(self, *args: Any, **kwargs: Any) -> Any:
            raise AssertionError("noise was drawn")

        integers = random

    survey = nz.Survey([NUMBER, CHOICE, SEVERAL], epsilon=1.0)
    for wrong in (math.nan, math.inf, -1, 5, "much", None, [1], True):
        with pytest.raises((TypeError, ValueError)):
            survey.answer({"size": wrong, "one": "a", "some": []}, rng=Silent(np.random.PCG64(1)))
    for wrong in (math.nan, 0, "d", "", None, ["a"]):
        with pytest.raises((TypeError, ValueError)):
            survey.answer({"size": 0, "one": wrong, "some": []}, rng=Silent(np.random.PCG64(1)))
    for wrong in (math.nan, 0, "d", None, ["a", "b", "c"], ["a", "a"], [None]):
        with pytest.raises((TypeError, ValueError)):
            survey.answer({"size": 0, "one": "a", "some": wrong}, rng=Silent(np.random.PCG64(1)))
