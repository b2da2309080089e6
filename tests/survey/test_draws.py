"""What is drawn for a person, of every kind of question, follows from the signature of her token."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import noisette as nz

FEW = [str(place) for place in range(6)]
LONG = [str(place) for place in range(70_000)]
KINDS: dict[str, tuple[list[Any], dict[str, Any]]] = {
    "level of a hierarchy": ([nz.Number("a", 0, 1, want="quantiles")], {"a": 0.5}),
    "number or its square": ([nz.Number("a", 0, 1, want="variance")], {"a": 0.5}),
    "option": ([nz.Choices("a", FEW)], {"a": ["1", "2"]}),
    "map of a wheel": ([nz.Choices("a", LONG, most=2)], {"a": ["1", "2"]}),
    "level and seed of a text": ([nz.Text("a", longest=4)], {"a": "tea"}),
    "attribute": ([nz.Number("a", 0, 1), nz.Choice("b", FEW), nz.Number("c", 0, 1)], {"a": 0.5, "b": "1", "c": 0.2}),
    "dimensions": ([nz.Vector("a", 40, 0, 1)], {"a": [0.5] * 40}),
    "section": ([nz.Number("a", 0, 1), nz.Text("b", longest=3)], {"a": 0.5, "b": "tea"}),
}


@pytest.mark.parametrize("kind", KINDS)
def test_it_follows_from_the_signature(kind: str) -> None:
    """Her own report passes; under signatures of others nearly none does, as what they draw differs."""
    asked, answers = KINDS[kind]
    survey = nz.Survey(asked, epsilon=1.0)
    coded = {one.name: np.asarray(one.code(answers[one.name]))[None] for one in asked}
    (row,) = survey.privatize_coded(coded, rng=1, signature=b"s" * 32)
    assert survey.follows(row, b"s" * 32)
    others = [survey.follows(row, bytes([place]) * 32) for place in range(60)]
    assert sum(others) < 50


@pytest.mark.parametrize("asked", [nz.Choices("a", FEW, most=2), nz.Choice("a", FEW), nz.Number("a", 0, 1)])
def test_where_nothing_is_drawn_there_is_nothing_to_check(asked: Any) -> None:
    survey = nz.Survey([asked], epsilon=1.0)
    value = asked.code({"choices": ["1"], "category": "1", "number": 0.5}[asked.kind])
    (row,) = survey.privatize_coded({"a": np.asarray(value)[None]}, rng=1, signature=b"s" * 32)
    assert survey.follows(row, b"t" * 32)


def test_who_drew_a_section_adds_the_scatter_of_a_sample() -> None:
    """Of n people a share f without replacement: the mean of their numbers varies by S^2 (1 - f) / (n f)."""
    survey = nz.Survey([nz.Number("a", 0, 10), nz.Text("b", longest=3)], epsilon=1.0)
    assert survey.draw
    users, place = 4000, next(k for k, own in enumerate(survey.sections) if own.questions[0].name == "a")
    share = survey.draw[place] / sum(survey.draw)
    noise = survey.sections[place].predict(round(users * share))
    sample = 5.0**2 * (1 - share) / (users * share)
    at = sum(len(own.predict(100)) for own in survey.sections[:place])
    assert survey.predict(users)[at] == pytest.approx(float(np.sqrt(noise[0] ** 2 + sample)), rel=1e-9)
