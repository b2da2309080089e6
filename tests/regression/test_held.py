"""What private regression computes, digit by digit: designs, steps, channels, solutions, error bars and judgements.

Reports are drawn from seeds; everything else has no chance in it. python -m tests.regression.test_held writes anew.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.special import expit
from tests.held import Held

from noisette import Categorical, Interval
from noisette.regression import Design, Inference, Training
from noisette.regression.channels import channel_of
from noisette.regression.inference import Coefficients
from noisette.regression.judging import Judgement, judge
from noisette.regression.losses import Logistic, Squared
from noisette.regression.moments import OneShot
from noisette.regression.pairs import ClassPairs
from noisette.regression.rows import DesignRows
from noisette.regression.training import Model

HELD = Held(__file__)
MIXED = (Interval(0, 10), Categorical(3), Interval(-1, 4))
NAMES = ("a", "k", "b")
TARGET = Interval(2, 8)


def design(coding: Any = "unit") -> Design:
    return Design(MIXED, names=NAMES, coding=coding)


def people(count: int) -> np.ndarray:
    """Return rows without a random number in them."""
    n = np.arange(count)
    return np.column_stack([5 + 5 * np.sin(n), n % 3, 1.5 + 2.5 * np.cos(0.7 * n)])


def numbers(rows: np.ndarray) -> np.ndarray:
    return np.clip(3 + 0.3 * rows[:, 0] + 0.5 * (rows[:, 1] == 2) - 0.2 * rows[:, 2], 2, 8)


def classes(rows: np.ndarray) -> np.ndarray:
    chance = expit(0.4 * rows[:, 0] - 2 + (rows[:, 1] == 1))
    return (chance > (np.arange(len(rows)) * 0.618) % 1).astype(int)


def designs() -> dict[str, Any]:
    found: dict[str, Any] = {}
    for coding in ("unit", "signed"):
        one = design(coding)
        rows = one.encode(people(5))
        weights = np.linspace(-1, 2, one.width)
        found[coding] = [rows, one.levels(rows, np.linspace(-1, 1, 5)), one.plain(weights), one.radius, one.owners]
        found[coding] += [one.columns, one.categorical, one.spec()]
        far = [[12.0, 1, -3.0], [-4.0, 2, 9.0]]
        found[coding] += [one.encode(far, outside="clip"), one.encode(far, outside="keep")]
    return found


def trained(target: Any, values: Callable[[np.ndarray], np.ndarray], **options: Any) -> Any:
    rows = people(900)
    training = Training(design(options.pop("coding", "unit")), target, 3.0, **options)
    seen: list[Any] = []
    stream = [(rows[:500], values(rows)[:500]), (rows[500:], values(rows)[500:])]
    model = training.run(stream, rng=4, watch=lambda one: seen.append(one.weights))
    steps = [training.step_size(number) for number in (1, 2, 9, 400)]
    told = training.predict(model, people(4)), training.coefficients(model), training.spec()
    return [model, seen, steps, training.batch_users, training.channel.noise, *told]


def inferred(target: Any, values: Callable[[np.ndarray], np.ndarray], epsilon: float) -> Any:
    rows = people(3000)
    inference = Inference(design(), target, epsilon)
    found = inference.run(rows, values(rows), rng=4)
    told = [found.interval(0.8), found.table(), found.verdict(), found.freedom, found.model]
    return [*told, inference.kept, inference.pairs, inference.channel.noise, inference.expected(500)]


def verdicts() -> Any:
    model = Model(np.zeros(3), np.zeros(3))
    value = np.asarray([1.0, -2.0, 0.5])
    told = Coefficients(("(intercept)", "a", "b"), value, np.asarray([0.1, 0.2, 0.4]), 59, model, value)
    judged = [
        Judgement(100, 0.8, gain, low, high).verdict
        for gain, low, high in ((0.1, 0.0, 0.2), (0.1, 0.01, 0.2), (-0.1, -0.2, 0.0), (-0.1, -0.2, 0.01))
    ]
    return [told.table(0.99), told.verdict(0.99), told.verdict(0.5), judged]


def solved(epsilon: float, **options: Any) -> Any:
    rows = people(6000)
    shot = OneShot(design(), TARGET, epsilon, **options)
    found = shot.run([(rows[:5000], numbers(rows)[:5000]), (rows[5000:], numbers(rows)[5000:])], rng=4)
    return [found, shot.predict(found, people(3)), shot.pairs, shot.radius, shot.channel.noise]


def channels() -> dict[str, Any]:
    found: dict[str, Any] = {}
    vectors = np.sin(np.arange(40)).reshape(8, 5)
    for name in ("duchi", "harmony", "piecewise", "privunit", "hybrid", "auto"):
        channel = channel_of(name, 3.0, dims=5, bound=1.0, radius=2.0)
        reports = channel.privatize(vectors, vectors, rng=3)
        found[name] = [channel.spec(), channel.noise, channel.mean(channel.gather(reports))]
    graded = Training(design(), TARGET, 3.0, mechanism="levelled", bound=1.5).channel
    reports = graded.privatize(np.tile(vectors, 2)[:, :6], np.tile(vectors, 2)[:, 1:7], rng=3)
    found["graded"] = [graded.noise, graded.spec(), graded.mean(graded.gather(reports))]
    return found


def errors(folder: Path) -> Any:
    rows = people(60)
    found = []
    for target, values in ((TARGET, numbers(rows)), (Categorical(2), classes(rows))):
        training = Training(design(), target, 3.0)
        lines = [
            "a,k,b,y",
            *(",".join(map(str, (*row, y))) for row, y in zip(rows.tolist(), values.tolist(), strict=True)),
        ]
        path = folder / "rows.csv"
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        kinds = dict(zip(NAMES, MIXED, strict=True)) | {"y": target}
        table = DesignRows(path, NAMES, "y", kinds, header=True)
        for scale in (0.0, 0.4, 2.0):
            weights = scale * np.asarray([0.1, 0.5, -0.3, 0.2, 0.4, -0.1])
            told = table.errors(training, Model(weights, weights), clip=False)
            found.append({name: value for name, value in told.items() if name != "file"})
    return found


STORIES: dict[str, Callable[[], Any]] = {
    "designs": designs,
    "numbers": lambda: trained(TARGET, numbers),
    "numbers, fixed steps": lambda: trained(TARGET, numbers, step=0.5, average=False, batch=200, ridge=0.1, bound=0.6),
    "numbers, signed": lambda: trained(TARGET, numbers, coding="signed", mechanism="harmony"),
    "classes": lambda: trained(Categorical(2), classes),
    "inference of numbers": lambda: inferred(TARGET, numbers, 12.0),
    "inference of classes": lambda: inferred(Categorical(2), classes, 12.0),
    "inference that is blind": lambda: inferred(TARGET, numbers, 0.5),
    "verdicts": verdicts,
    "one shot": lambda: [solved(4.0), solved(0.4, ridge=0.5, entries=2)],
    "pairs": lambda: [
        ClassPairs(design(), epsilon).run(people(3000), classes(people(3000)), rng=4) for epsilon in (6.0, 0.1)
    ],
    "judged": lambda: [judge(classes(people(500)), (people(500)[:, 0] > 5).astype(int), e, rng=3) for e in (1.0, 5.0)],
    "channels": channels,
    "losses": lambda: [
        [
            one.value(np.linspace(-3, 3, 7), np.ones(7)),
            one.slope(np.linspace(-3, 3, 7), np.ones(7)),
            one.mean(np.ones(1)),
        ]
        for one in (Squared(), Squared(0.5), Logistic())
    ],
}


@pytest.mark.parametrize("name", STORIES)
def test_digits_are_the_ones_that_were_kept(name: str) -> None:
    HELD.check(name, STORIES[name]())


def test_errors_of_a_file(tmp_path: Path) -> None:
    HELD.check("errors", errors(tmp_path))


if __name__ == "__main__":
    import tempfile

    with tempfile.TemporaryDirectory() as home:
        HELD.write({name: story() for name, story in STORIES.items()} | {"errors": errors(Path(home))})
