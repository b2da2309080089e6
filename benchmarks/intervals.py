"""How often intervals hold the truth: for each kind of question, collections of new people drawn and estimated anew.

    python benchmarks/intervals.py [--runs 2000] [--only KIND ...] [--write]

Each collection draws people from a known population, privatises their answers through the survey's own mechanism, sums
and estimates. A row says for one quantity how many of the 95 % intervals held the population's value, how the errors
that were seen compare with the mean standard error (their ratio), and with the one that the plan predicted.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import noisette as nz

RESULTS = Path(__file__).with_suffix(".json")
LEVEL = 0.95
Draw = Callable[[np.random.Generator, int], dict[str, Any]]


@dataclass(frozen=True)
class Study:
    """A survey, how its people are drawn (answers coded), and the true value of some of its quantities."""

    survey: nz.Survey
    people: int
    draw: Draw
    truth: dict[str, float]


def _crosstab() -> Study:
    shares = np.asarray([[0.3, 0.1, 0.1], [0.05, 0.25, 0.2]])
    one, two = nz.Choice("a", ["p", "q"]), nz.Choice("b", ["x", "y", "z"])

    def draw(rng: np.random.Generator, people: int) -> dict[str, Any]:
        cells = rng.choice(6, people, p=shares.ravel())
        return {"a": cells // 3, "b": cells % 3}

    survey = nz.Survey([one, two], epsilon=1.0, joint=[("a", "b")])
    cells = {f"a × b: {a}, {b}": shares[i, j] for i, a in enumerate("pq") for j, b in enumerate("xyz")}
    return Study(survey, 5000, draw, cells | {"a=p": 0.5, "b=x": 0.35, "b=z": 0.3})


def _within(rare: bool = False) -> Study:
    shares = np.asarray([0.6, 0.38, 0.02] if rare else [0.5, 0.3, 0.2])
    means = np.asarray([20.0, 40.0, 80.0])

    def draw(rng: np.random.Generator, people: int) -> dict[str, Any]:
        codes = rng.choice(3, people, p=shares)
        return {"by": codes, "minutes": means[codes] + rng.uniform(-15, 15, people)}

    asked = [nz.Choice("by", ["car", "bike", "bus"]), nz.Number("minutes", 0, 100)]
    survey = nz.Survey(asked, epsilon=2.0, joint=[("by", "minutes")])
    truth = {f"by × minutes: mean where by={label}": mean for label, mean in zip(asked[0].labels, means, strict=True)}
    return Study(survey, 5000, draw, truth | {"minutes": float(shares @ means), "by=bus": float(shares[2])})


def _correlation(alike: float = 0.5, epsilon: float = 2.0) -> Study:
    def draw(rng: np.random.Generator, people: int) -> dict[str, Any]:
        first, second = rng.beta(0.6, 0.6, people), rng.beta(0.6, 0.6, people)
        same = rng.random(people) < alike
        return {"x": first, "y": np.where(same, first, second)}

    asked = [nz.Number("x", 0, 1), nz.Number("y", 0, 1)]
    survey = nz.Survey(asked, epsilon=epsilon, joint=[("x", "y")])
    spread = 0.25 / 2.2
    truth = {"x × y: correlation": alike, "x × y: covariance": spread * alike, "x": 0.5}
    return Study(survey, 10_000, draw, truth)


def _optional_number(rate: float = 0.8) -> Study:
    def draw(rng: np.random.Generator, people: int) -> dict[str, Any]:
        values = np.clip(rng.normal(0.65, 0.15, people), 0.3, 1.0)
        return {"x": np.where(rng.random(people) < rate, values, np.nan)}

    survey = nz.Survey([nz.Number("x", 0, 1, optional=True)], epsilon=1.0)
    # the mean of the normal law cut to [0.3, 1]
    low, high = (0.3 - 0.65) / 0.15, (1.0 - 0.65) / 0.15

    def density(t: float) -> float:
        return math.exp(-t * t / 2) / math.sqrt(2 * math.pi)

    def below(t: float) -> float:
        return (1 + math.erf(t / math.sqrt(2))) / 2

    mean = 0.3 * below(low) + 1.0 * (1 - below(high)) + 0.65 * (below(high) - below(low))
    mean += 0.15 * (density(low) - density(high))
    return Study(survey, 5000, draw, {"x": mean, "x answered": rate})


def _optional_choice() -> Study:
    def draw(rng: np.random.Generator, people: int) -> dict[str, Any]:
        return {"c": rng.choice(4, people, p=[0.4, 0.2, 0.1, 0.3])}

    survey = nz.Survey([nz.Choice("c", ["a", "b", "d"], optional=True)], epsilon=1.0)
    return Study(survey, 5000, draw, {"c=a": 4 / 7, "c=b": 2 / 7, "c=d": 1 / 7, "c answered": 0.7})


def _quantiles(name: str, epsilon: float = 1.0, cells: int = 64) -> Study:
    ages = {"low": 17, "high": 90, "whole": True}
    asked = nz.Number("x", want="quantiles", cells=cells, **(ages if name == "ages" else {"low": 0, "high": 1}))

    def draw(rng: np.random.Generator, people: int) -> dict[str, Any]:
        if name == "beta":
            return {"x": rng.beta(2, 5, people)}
        if name == "ages":
            return {"x": np.clip(np.rint(17 + 40 * rng.gamma(2.0, 0.3, people)), 17, 90)}
        left = rng.random(people) < 0.5
        return {"x": np.clip(np.where(left, rng.normal(0.25, 0.05, people), rng.normal(0.7, 0.1, people)), 0, 1)}

    survey = nz.Survey([asked], epsilon=epsilon)
    many = np.sort(draw(np.random.default_rng(99), 4_000_000)["x"])
    chances = (0.05, 0.25, 0.5, 0.75, 0.95)
    truth = {q: float(many[int(chance * many.size)]) for q, chance in zip(survey.quantities, chances, strict=True)}
    return Study(survey, 6000, draw, truth)


def _ranges() -> Study:
    """The distribution function at ends of cells, and a share between two of them: linear, so just 95 %."""
    study = _quantiles("beta")
    return Study(study.survey, study.people, study.draw, {"share below 0.25": 0.46606, "share in 0.25 to 0.5": 0.42456})


def _variance() -> Study:
    def draw(rng: np.random.Generator, people: int) -> dict[str, Any]:
        return {"x": 10 * rng.beta(2, 5, people)}

    survey = nz.Survey([nz.Number("x", 0, 10, want="variance")], epsilon=1.0)
    return Study(survey, 5000, draw, {"x": 20 / 7, "x: variance": 100 * 10 / (49 * 8)})


def _several() -> Study:
    """Up to two of four options: the share of each, and the mean number."""
    chances = np.asarray([0.5, 0.3, 0.15, 0.05])
    asked = nz.Choices("c", list("pqrs"), most=2)

    def draw(rng: np.random.Generator, people: int) -> dict[str, Any]:
        first = rng.choice(4, people, p=chances)
        second = (first + rng.integers(1, 4, people)) % 4
        return {"c": np.stack([first, np.where(rng.random(people) < 0.4, second, -1)], axis=1)}

    shares = chances + 0.4 * (1 - chances) / 3
    truth = {f"c={label}": share for label, share in zip("pqrs", shares, strict=True)}
    return Study(nz.Survey([asked], epsilon=1.0), 5000, draw, truth | {"c chosen": 1.4})


def _several_within() -> Study:
    """A choice and several choices together: pairs, labels, options and the mean number."""
    labels = np.asarray([0.5, 0.3, 0.2])
    chance = np.asarray([[0.6, 0.2], [0.3, 0.3], [0.1, 0.7]])
    asked = [nz.Choice("a", ["p", "q", "r"]), nz.Choices("b", ["x", "y"])]

    def draw(rng: np.random.Generator, people: int) -> dict[str, Any]:
        codes = rng.choice(3, people, p=labels)
        has = rng.random((people, 2)) < chance[codes]
        return {"a": codes, "b": np.where(has, np.arange(2), -1)}

    cells = labels[:, None] * chance
    truth = {f"a × b: {a}, {b}": cells[i, j] for i, a in enumerate("pqr") for j, b in enumerate("xy")}
    sums = {"a=q": 0.3, "b=x": cells[:, 0].sum(), "b=y": cells[:, 1].sum(), "b chosen": cells.sum()}
    return Study(nz.Survey(asked, epsilon=2.0, joint=[("a", "b")]), 5000, draw, truth | sums)


def _mean_where_chosen() -> Study:
    """A number among those who chose each option."""
    asked = [nz.Number("x", 0, 100), nz.Choices("b", ["p", "q"])]

    def draw(rng: np.random.Generator, people: int) -> dict[str, Any]:
        has = rng.random((people, 2)) < [0.6, 0.4]
        return {"x": 20 + 40 * has[:, 0] + rng.uniform(-10, 10, people), "b": np.where(has, np.arange(2), -1)}

    truth = {"x × b: mean where b has p": 60.0, "x × b: mean where b has q": 44.0, "x": 44.0, "b=q": 0.4}
    return Study(nz.Survey(asked, epsilon=2.0, joint=[("x", "b")]), 5000, draw, truth)


def _optional_several(most: int, epsilon: float) -> Study:
    """Up to two of four options, or any of them, that 65 % answer: shares and mean number among these."""
    chances = np.asarray([0.5, 0.3, 0.15, 0.05])

    def draw(rng: np.random.Generator, people: int) -> dict[str, Any]:
        first = rng.choice(4, people, p=chances)
        second = np.where(rng.random(people) < 0.4, (first + rng.integers(1, 4, people)) % 4, -1)
        silent = rng.random(people) < 0.35
        chosen = np.full((people, most or 4), -1)
        chosen[:, 0], chosen[:, 1] = np.where(silent, 4, first), np.where(silent, -1, second)
        return {"c": chosen}

    shares = chances + 0.4 * (1 - chances) / 3
    truth = {f"c={label}": share for label, share in zip("pqrs", shares, strict=True)}
    survey = nz.Survey([nz.Choices("c", list("pqrs"), most=most, optional=True)], epsilon=epsilon)
    return Study(survey, 5000, draw, truth | {"c chosen": 1.4, "c answered": 0.65})


def _optional_texts(alphabet: str | None) -> Looked:
    """The two most frequent texts among the 70 % who answer, where they are found, and the response rate."""
    words = ["ab", "ba"] + [a + b for a in "abcd" for b in "cdef"]
    shares, people = np.asarray([0.3, 0.2] + [0.5 / 16] * 16), 15_000
    survey = nz.Survey([nz.Text("t", longest=2, alphabet=alphabet, optional=True)], epsilon=2.0)

    def look(rng: np.random.Generator) -> list[Row]:
        told = np.asarray(words)[rng.choice(18, people, p=shares)]
        answers = np.where(rng.random(people) < 0.3, None, told)
        results = survey.estimate(survey.privatize({"t": answers}, rng=rng))
        table, rate = results["t"].top(5).set_index("text"), results["t answered"]
        found = [
            _seen(table.loc[word, ["share", "std_error", "low", "high"]]) if word in table.index else _UNKNOWN
            for word in words[:2]
        ]
        return [*found, _seen((rate.mean, rate.std_error, *rate.interval()))]

    truth = {"share of ab where found": 0.3, "share of ba where found": 0.2, "t answered": 0.7}
    return Looked(survey, people, look, truth)


def _listed() -> Study:
    """A choice of a long list, by the projective geometry response."""
    shares = np.asarray([0.2, 0.1, 0.05] + [0.65 / 1997] * 1997)

    def draw(rng: np.random.Generator, people: int) -> dict[str, Any]:
        return {"c": rng.choice(2000, people, p=shares)}

    survey = nz.Survey([nz.Choice("c", [str(place) for place in range(2000)])], epsilon=2.0)
    return Study(survey, 5000, draw, {"c=0": 0.2, "c=1": 0.1, "c=2": 0.05, "c=1999": float(shares[-1])})


def _few_choice(epsilon: float, people: int, shares: tuple[float, ...] = (1.0, 0.0, 0.0)) -> Study:
    """A choice of three labels: hardly any report is false at a large budget, or nearly all labels are empty."""

    def draw(rng: np.random.Generator, people: int) -> dict[str, Any]:
        return {"c": rng.choice(3, people, p=shares)}

    truth = {f"c={label}": share for label, share in zip("abd", shares, strict=True)}
    return Study(nz.Survey([nz.Choice("c", list("abd"))], epsilon=epsilon), people, draw, truth)


def _few_numbers(epsilon: float, people: int, value: float = 0.0, far: float = 0.0) -> Study:
    """A number that is the same for everybody, an end of the range by default, but for a share who have the other."""

    def draw(rng: np.random.Generator, people: int) -> dict[str, Any]:
        return {"x": np.where(rng.random(people) < far, 10.0, value)}

    survey = nz.Survey([nz.Number("x", 0, 10)], epsilon=epsilon)
    return Study(survey, people, draw, {"x": value + far * (10.0 - value)})


def _few_cells(epsilon: float, people: int) -> Study:
    """Two pairs: cells of two choices, most of them empty, and means within a choice at ends of the range."""
    cells = np.asarray([0.9, 0.0, 0.02, 0.08])
    asked = [nz.Choice("a", ["p", "q"]), nz.Choice("b", ["x", "y"]), nz.Number("n", 0, 10)]

    def draw(rng: np.random.Generator, people: int) -> dict[str, Any]:
        own = rng.choice(4, people, p=cells)
        return {"a": own // 2, "b": own % 2, "n": np.where(own < 2, 0.0, 10.0)}

    truth = {"a × b: p, x": 0.9, "a × b: p, y": 0.0, "a=p": 0.9, "b=y": 0.08, "n": 1.0}
    means = {"a × n: mean where a=p": 0.0, "a × n: mean where a=q": 10.0}
    survey = nz.Survey(asked, epsilon=epsilon, joint=[("a", "b"), ("a", "n")])
    return Study(survey, people, draw, truth | means)


def _few_answers(epsilon: float, people: int) -> Study:
    """Optional questions: a number that nearly everybody leaves at an end, a choice that a third answers."""
    asked = [nz.Number("n", 0, 10, optional=True), nz.Choice("c", ["a", "b"], optional=True)]

    def draw(rng: np.random.Generator, people: int) -> dict[str, Any]:
        silent = rng.random(people) < 0.1
        return {"n": np.where(silent, np.nan, 10.0), "c": rng.choice(3, people, p=[0.3, 0.03, 0.67])}

    truth = {"n": 10.0, "n answered": 0.9, "c=a": 10 / 11, "c=b": 1 / 11, "c answered": 0.33}
    return Study(nz.Survey(asked, epsilon=epsilon), people, draw, truth)


def _few_several(epsilon: float, people: int) -> Study:
    """Several choices: everybody has the first option, hardly anybody the last."""

    def draw(rng: np.random.Generator, people: int) -> dict[str, Any]:
        last = np.where(rng.random(people) < 0.02, 3, -1)
        return {"c": np.stack([np.zeros(people, dtype=np.int64), last], axis=1)}

    truth = {"c=p": 1.0, "c=q": 0.0, "c=s": 0.02, "c chosen": 1.02}
    return Study(nz.Survey([nz.Choices("c", list("pqrs"), most=2)], epsilon=epsilon), people, draw, truth)


def _few_spread(epsilon: float, people: int) -> Study:
    """Quantiles, and mean and variance, of numbers of which 92 % are near one end."""
    asked = [nz.Number("q", 0, 1, want="quantiles"), nz.Number("v", 0, 1, want="variance")]

    def draw(rng: np.random.Generator, people: int) -> dict[str, Any]:
        values = np.where(rng.random(people) < 0.92, 0.1, 0.9)
        return {"q": values, "v": values}

    survey = nz.Survey(asked, epsilon=epsilon)
    quantiles = dict(zip(survey.questions[0].quantities, (0.1, 0.1, 0.1, 0.1, 0.9), strict=True))
    return Study(survey, people, draw, quantiles | {"v": 0.164, "v: variance": 0.64 * 0.92 * 0.08})


def _few_compared(epsilon: float, people: int) -> Looked:
    """A share that nobody has in one group and 3 % in the other; and a share that nobody has in either."""
    survey = nz.Survey([nz.Choice("c", ["a", "b", "d"])], epsilon=epsilon, groups={"region": ["north", "south"]})

    def look(rng: np.random.Generator) -> list[Row]:
        south = rng.random(people) > 0.5

        def answers(own: np.random.Generator, people: int) -> dict[str, Any]:
            return {"c": (south & (own.random(people) < 0.03)).astype(np.int64)}

        table = _grouped(rng, survey, people, answers, south.astype(np.uint16)).compare("region", correct="none")
        return [_seen(table[["difference", "std_error", "low", "high"]].iloc[row]) for row in (1, 2)]

    return Looked(survey, people, look, {"c=b, 3 % in one group": 0.03, "c=d, nobody": 0.0})


Row = tuple[float, float, float, float]  # a value, its error, and the ends of its interval
_UNKNOWN: Row = (math.nan, math.nan, math.nan, math.nan)


def _seen(values: Any) -> Row:
    """Return the four columns of a row of a table."""
    value, error, low, high = map(float, values)
    return value, error, low, high


@dataclass(frozen=True)
class Looked:
    """Collections that are looked at in another way: each gives for each name a value, an error and an interval."""

    survey: nz.Survey
    people: int
    look: Callable[[np.random.Generator], list[Row]]
    truth: dict[str, float]


_SHARES, _MEANS = np.asarray([0.7, 0.3]), np.asarray([30.0, 60.0])
_KNOWN = {"north": 0.4, "south": 0.6}


def _grouped(rng: np.random.Generator, survey: nz.Survey, people: int, answers: Draw, groups: Any) -> Any:
    """Return the results of people in public groups."""
    from noisette.survey.reports import SurveyReports

    return survey.estimate(SurveyReports(survey, survey.privatize_coded(answers(rng, people), rng=rng), groups))


def _weighted(several: bool = False) -> Looked:
    """Post-stratified to one public group, or raked to two."""
    groups = {"region": ["north", "south"]} | ({"sex": ["f", "m"]} if several else {})
    survey = nz.Survey([nz.Number("x", 0, 100), nz.Choice("c", ["a", "b"])], epsilon=2.0, groups=groups)
    margins = {"region": _KNOWN} | ({"sex": {"f": 0.5, "m": 0.5}} if several else {})

    def look(rng: np.random.Generator) -> list[Row]:
        region, sex = rng.random(4000) > 0.7, rng.random(4000) > 0.6

        def answers(own: np.random.Generator, people: int) -> dict[str, Any]:
            mean = np.where(region, 60.0, 30.0) + (10.0 * sex if several else 0.0)
            return {
                "x": mean + own.uniform(-20, 20, people),
                "c": (own.random(people) < np.where(region, 0.8, 0.3)).astype(int),
            }

        cells = (2 * region + sex if several else region).astype(np.uint16)
        results = _grouped(rng, survey, 4000, answers, cells).weighted(margins)
        return [_row(results["x"].estimate, 0), _row(results["c"].estimate, 1)]

    mean = 0.4 * 30 + 0.6 * 60 + (5 if several else 0)
    return Looked(survey, 4000, look, {"x": mean, "c=b": 0.4 * 0.3 + 0.6 * 0.8})


def _row(estimate: Any, place: int) -> Row:
    low, high = estimate.interval(LEVEL)
    return float(estimate.value[place]), float(estimate.std_error[place]), float(low[place]), float(high[place])


def _difference(budgets: tuple[float, float] | None = None) -> Looked:
    """The mean of one public group less that of another, or of two arms at budgets of their own."""
    groups = {} if budgets else {"region": ["north", "south"]}
    surveys = [nz.Survey([nz.Number("x", 0, 100)], epsilon=e, groups=groups) for e in budgets or (1.0,)]

    def look(rng: np.random.Generator) -> list[Row]:
        region = rng.random(6000) > 0.4

        def answers(own: np.random.Generator, people: int) -> dict[str, Any]:
            high = region if not budgets else people == 3001
            return {"x": np.where(high, 60.0, 50.0) + own.uniform(-20, 20, people)}

        if budgets:
            first, second = (
                _grouped(rng, survey, people, answers, None)
                for survey, people in zip(surveys, (3000, 3001), strict=True)
            )
            table = first.compare(second)
        else:
            results = _grouped(rng, surveys[0], 6000, answers, region.astype(np.uint16))
            table = results.compare("region")
        row = table.iloc[0]
        return [(float(row["difference"]), float(row["std_error"]), float(row["low"]), float(row["high"]))]

    return Looked(surveys[0], 6000, look, {"x, second less first": 10.0})


def _no_difference() -> Looked:
    """Two groups that do not differ: the share of p-values above 5 % is the coverage of the test."""
    survey = nz.Survey([nz.Choice("c", ["a", "b"])], epsilon=1.0, groups={"region": ["north", "south"]})

    def look(rng: np.random.Generator) -> list[Row]:
        def answers(own: np.random.Generator, people: int) -> dict[str, Any]:
            return {"c": (own.random(people) < 0.3).astype(int)}

        results = _grouped(rng, survey, 5000, answers, (rng.random(5000) > 0.4).astype(np.uint16))
        row = results.compare("region", correct="none").iloc[1]
        chance = float(row["p_value"])
        return [(float(row["difference"]), float(row["std_error"]), chance - 0.05, math.inf)]

    return Looked(survey, 5000, look, {"p-value above 0.05": 0.0})


def _difference_of_quantiles(whole: bool = False) -> Looked:
    """Quantiles of one public group less those of another: of a smooth number, or of a score from 0 to 9."""
    asked = nz.Number("x", 0, 9 if whole else 1, want="quantiles", whole=whole)
    survey = nz.Survey([asked], epsilon=2.0, groups={"region": ["north", "south"]})

    def drawn(own: np.random.Generator, south: Any) -> Any:
        x = np.where(south, own.beta(3, 4, south.size), own.beta(2, 5, south.size))
        return np.floor(10 * x) if whole else x

    def look(rng: np.random.Generator) -> list[Row]:
        south = rng.random(6000) > 0.4
        results = _grouped(rng, survey, 6000, lambda own, people: {"x": drawn(own, south)}, south.astype(np.uint16))
        table = results.compare("region", correct="none").iloc[[0, 2, 3]]
        return list(table[["difference", "std_error", "low", "high"]].itertuples(index=False, name=None))

    many = [np.sort(drawn(np.random.default_rng(99), np.full(2_000_000, south))) for south in (False, True)]
    truth = {
        f"quantile {q:g}": float(np.subtract(*(one[int(q * one.size)] for one in many[::-1])))
        for q in (0.05, 0.5, 0.75)
    }
    return Looked(survey, 6000, look, truth)


def _difference_of_texts() -> Looked:
    """A text that both groups use, and one that is frequent in one of them alone: both are measured in both."""
    words = np.asarray(["ab", "ba", *(a + b for a in "cdef" for b in "cdef")])
    shares = np.asarray([[0.4, 0.3, *[0.3 / 16] * 16], [0.3, 0.05, *[0.65 / 16] * 16]])
    survey = nz.Survey([nz.Text("t", longest=2, alphabet="abcdef")], epsilon=3.0, groups={"region": ["north", "south"]})

    def look(rng: np.random.Generator) -> list[Row]:
        south = rng.random(6000) > 0.5
        places = np.where(south, rng.choice(18, 6000, p=shares[1]), rng.choice(18, 6000, p=shares[0]))
        people = {"t": words[places], "region": np.where(south, "south", "north")}
        table = survey.estimate(survey.privatize(people, rng=rng)).compare("region", correct="none")
        table = table.set_index("quantity")[["difference", "std_error", "low", "high"]]
        return [_seen(table.loc[word]) if word in table.index else _UNKNOWN for word in words[:2]]

    return Looked(survey, 6000, look, {"share of ab where found": -0.1, "share of ba where found": -0.25})


def _daily() -> Looked:
    """Two groups that differ, looked at on five days: an interval counts as holding if it holds on every day."""
    survey = nz.Survey([nz.Choice("c", ["a", "b"])], epsilon=2.0, groups={"region": ["north", "south"]})
    days = [0.2, 0.4, 0.6, 0.8, 1.0]

    def look(rng: np.random.Generator) -> list[Row]:
        from noisette.survey.results import SurveyAggregate

        told, row = SurveyAggregate.nothing(survey), _UNKNOWN
        for day in range(len(days)):
            south = rng.random(1000) > 0.4

            def answers(own: np.random.Generator, people: int, south: Any = south) -> dict[str, Any]:
                return {"c": (own.random(people) < np.where(south, 0.5, 0.3)).astype(int)}

            told += _grouped(rng, survey, 1000, answers, south.astype(np.uint16)).aggregate
            table = told.results().compare("region", correct="none", looks=days[: day + 1])
            row = _seen(table[["difference", "std_error", "low", "high"]].iloc[1])
            if not row[2] <= 0.2 <= row[3]:
                break
        return [row]

    return Looked(survey, 5000, look, {"c=b, on every day": 0.2})


def _texts() -> Looked:
    """Texts that nobody listed: the two that are frequent enough to be found nearly always."""
    words = ["ab", "ba", *(a + b for a in "cdef" for b in "cdef")]
    shares = np.asarray([0.3, 0.2] + [0.5 / 16] * 16)
    survey = nz.Survey([nz.Text("t", longest=2, alphabet="abcdef")], epsilon=2.0)

    def look(rng: np.random.Generator) -> list[Row]:
        answers = np.asarray(words)[rng.choice(18, 6000, p=shares)]
        results = survey.estimate(survey.privatize({"t": answers}, rng=rng))
        table = results["t"].top(5).set_index("text")
        found = []
        for word in words[:2]:
            if word not in table.index:
                found.append(_UNKNOWN)
                continue
            row = table.loc[word]
            found.append((float(row["share"]), float(row["std_error"]), float(row["low"]), float(row["high"])))
        return found

    return Looked(survey, 6000, look, {"share of ab where found": 0.3, "share of ba where found": 0.2})


def _short_texts() -> Looked:
    """Words of three letters: one of those shown, drawn anew in every collection, and whether nobody has one of them.

    The difference of a text drawn from its true share is a row of truth 0, and so is the number of false texts.
    """
    letters, people = list("abcdefghijklmnopqrstuvwxyz"), 10_000
    words = ["".join(one) for one in np.random.default_rng(5).choice(letters, (1500, 3))]
    words = list(dict.fromkeys(words))
    shares = np.arange(1, len(words) + 1) ** -1.2
    shares /= shares.sum()
    known = dict(zip(words, shares.tolist(), strict=True))
    survey = nz.Survey([nz.Text("t", longest=3, alphabet="".join(letters))], epsilon=4.0)

    def look(rng: np.random.Generator) -> list[Row]:
        answers = np.asarray(words)[rng.choice(len(words), people, p=shares)]
        table = survey.estimate(survey.privatize({"t": answers}, rng=rng))["t"].top(20)
        row = table.iloc[int(rng.integers(len(table)))]
        truth, false = known.get(row["text"], 0.0), float((~table["text"].isin(words)).sum())
        own = (row["share"] - truth, row["std_error"], row["low"] - truth, row["high"] - truth)
        return [_seen(own), (false, 1.0, false, false)]

    return Looked(survey, people, look, {"share of a text shown": 0.0, "no false text": 0.0})


STUDIES: dict[str, Callable[[], Study | Looked]] = {
    "crosstab": _crosstab,
    "mean within a choice": _within,
    "mean within a rare choice": lambda: _within(rare=True),
    "correlation": _correlation,
    "correlation of 0 at epsilon 1": lambda: _correlation(0.0, 1.0),
    "optional number": _optional_number,
    "optional number, 5 % answer": lambda: _optional_number(rate=0.05),
    "optional choice": _optional_choice,
    "optional several choices": lambda: _optional_several(2, 1.0),
    "optional several choices, any number": lambda: _optional_several(0, 0.5),
    "optional texts": lambda: _optional_texts(None),
    "optional texts, looked at all at once": lambda: _optional_texts("abcdef"),
    "quantiles, beta": lambda: _quantiles("beta"),
    "quantiles, bimodal": lambda: _quantiles("bimodal"),
    "quantiles, beta, 256 cells": lambda: _quantiles("beta", 2.0, 256),
    "quantiles, whole ages": lambda: _quantiles("ages"),
    "ranges": _ranges,
    "variance": _variance,
    "several choices": _several,
    "a choice with several": _several_within,
    "mean where chosen": _mean_where_chosen,
    "choice of 2,000": _listed,
    "weighted to a group": _weighted,
    "raked to two groups": lambda: _weighted(several=True),
    "difference of groups": _difference,
    "difference of arms at epsilon 1 and 2": lambda: _difference((1.0, 2.0)),
    "test of no difference": _no_difference,
    "difference of quantiles": _difference_of_quantiles,
    "difference of quantiles, a score": lambda: _difference_of_quantiles(whole=True),
    "difference of texts": _difference_of_texts,
    "difference looked at daily": _daily,
    "texts": _texts,
    "texts of three letters": _short_texts,
    "few people: one label": lambda: _few_choice(4.0, 300),
    "few people: one label at epsilon 8": lambda: _few_choice(8.0, 300),
    "few people: rare labels at epsilon 12": lambda: _few_choice(12.0, 100, (0.96, 0.03, 0.01)),
    "ten people: three labels": lambda: _few_choice(2.0, 10, (0.5, 0.3, 0.2)),
    "one person: a label": lambda: _few_choice(8.0, 1, (0.5, 0.3, 0.2)),
    "few people: a number at an end": lambda: _few_numbers(8.0, 200),
    "few people: a number, 2 % at the other end": lambda: _few_numbers(12.0, 100, far=0.02),
    "ten people: a number in the middle": lambda: _few_numbers(1.0, 10, value=5.0),
    "few people: pairs": lambda: _few_cells(8.0, 300),
    "few people: optional answers": lambda: _few_answers(8.0, 100),
    "few people: several choices": lambda: _few_several(6.0, 200),
    "few people: quantiles and variance": lambda: _few_spread(12.0, 100),
    "few people: difference of groups": lambda: _few_compared(8.0, 200),
}
OF_FEW_PEOPLE = tuple(name for name in STUDIES if name.startswith(("few people", "ten people", "one person")))


def _run_looked(study: Looked, runs: int, rng: np.random.Generator) -> list[dict[str, Any]]:
    """Return a row for each quantity; collections in which one was not found do not count for it."""
    found = np.asarray([study.look(rng) for _ in range(runs)])
    rows = []
    for column, (name, truth) in enumerate(study.truth.items()):
        value, error, low, high = found[~np.isnan(found[:, column, 0]), column].T
        seen, stated = math.sqrt(np.mean((value - truth) ** 2)), math.sqrt(np.mean(error**2))
        held = (high == math.inf) & (low > 0) if "p-value" in name else (low <= truth) & (truth <= high)
        row = {"quantity": name, "coverage": round(float(held.mean()), 4), "seen_over_stated": _ratio(seen, stated)}
        rows.append(row | {"seen_over_planned": None})
    return rows


def run(study: Study | Looked, runs: int, seed: int = 1) -> list[dict[str, Any]]:
    """Return a row for each quantity."""
    rng = np.random.default_rng(seed)
    if isinstance(study, Looked):
        return _run_looked(study, runs, rng)
    survey = study.survey
    names = list(study.truth)
    truth = np.asarray(list(study.truth.values()))
    ranges = names[0].startswith("share")
    places = [0, 1] if ranges else [survey.quantities.index(name) for name in names]
    values, errors, held = (np.empty((runs, len(names))) for _ in range(3))
    for place in range(runs):
        sums = survey.layout.tally(survey.privatize_coded(study.draw(rng, study.people), rng=rng))
        found = [_as_estimate(sums.by_question()["x"])] if ranges else list(sums.by_question().values())
        low, high = (np.concatenate(ends)[places] for ends in zip(*(one.interval(LEVEL) for one in found), strict=True))
        values[place] = np.concatenate([one.value for one in found])[places]
        errors[place] = np.concatenate([one.std_error for one in found])[places]
        held[place] = (low <= truth) & (truth <= high)
    predicted = np.full(2, np.inf) if ranges else survey.predict(study.people)[places]
    with np.errstate(invalid="ignore"):
        seen = np.sqrt(np.nanmean(np.where(np.isfinite(values), values - truth, np.nan) ** 2, axis=0))
        stated = np.sqrt(np.mean(errors**2, axis=0))
    rows = []
    for column, name in enumerate(names):
        rows.append(
            {
                "quantity": name,
                "coverage": round(float(held[:, column].mean()), 4),
                "seen_over_stated": _ratio(seen[column], stated[column]),
                "seen_over_planned": _ratio(seen[column], predicted[column]),
            }
        )
    return rows


def _as_estimate(cdf: Any) -> Any:
    """Return two shares of ranges as an estimate: with their standard errors, from intervals of the level itself."""
    from noisette.core import Estimate

    z = 1.959963984540054
    rows = np.asarray([cdf.between(0.0, 0.25, LEVEL), cdf.between(0.25, 0.5, LEVEL)])
    return Estimate((rows[:, 1] + rows[:, 2]) / 2, (rows[:, 2] - rows[:, 1]) / 2 / z, np.zeros(2, dtype=np.int64))


def _ratio(first: float, second: float) -> float | None:
    return round(float(first / second), 3) if math.isfinite(second) and second > 0 else None


def main() -> None:
    """Run the studies and print them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=2000)
    parser.add_argument("--only", nargs="*", default=list(STUDIES))
    parser.add_argument("--write", action="store_true", help="keep the figures in intervals.json")
    asked = parser.parse_args()
    told = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for name in asked.only:
        start = time.perf_counter()
        study = STUDIES[name]()
        rows = run(study, asked.runs)
        told[name] = {"runs": asked.runs, "people": study.people, "epsilon": study.survey.epsilon, "rows": rows}
        print(f"{name}: {study.people:,} people, epsilon {study.survey.epsilon:g}, {time.perf_counter() - start:.0f} s")
        for row in rows:
            print(f"  {row['quantity']:40} {row['coverage']:.4f} {row['seen_over_stated']} {row['seen_over_planned']}")
        if asked.write:
            RESULTS.write_text(json.dumps(told, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
