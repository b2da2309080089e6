"""The errors of a model on a file, from predictions that are known, against sums over its rows."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from noisette import Categorical, Interval
from noisette.regression import Design, Model, Training
from noisette.regression.rows import DesignRows

DESIGN = Design((Interval(0, 10),), names=("age",))


def _errors(path: Path, target: Any, weights: list[float], values: Any, ages: Any, **options: Any) -> dict[str, Any]:
    lines = [f"{age},{value}" for age, value in zip(ages, values, strict=True)]
    path.write_text("\n".join(["age,it", *lines]) + "\n", encoding="utf-8")
    rows = DesignRows(path, ("age",), "it", {"age": DESIGN.attributes[0], "it": target}, header=True)
    model = Model(np.zeros(2), np.asarray(weights))
    return rows.errors(Training(DESIGN, target, 1.0), model, **{"clip": False} | options)


def _spread(error: float, count: int) -> tuple[Any, Any, list[float]]:
    """Return ages, targets between 0 and 20 and the model that is off by an error everywhere."""
    ages = np.linspace(0, 10, count)
    return ages, np.round(2 * ages * 0.9 + 1, 6), [error / 10, 0.9]


def test_numbers(tmp_path: Path) -> None:
    ages, values, weights = _spread(0.5, 400)
    found = _errors(tmp_path / "a.csv", Interval(0, 20), weights, values, ages)
    assert found["mse"] == pytest.approx(0.25, rel=1e-4)
    assert found["rmse"] == pytest.approx(0.5, rel=1e-4)
    assert found["r2"] == pytest.approx(1 - 0.25 / np.var(values), rel=1e-4)
    assert (found["rows"], found["private"], found["file"]) == (400, False, str(tmp_path / "a.csv"))
    assert found["verdict"] == "better than always the mean"


@pytest.mark.parametrize(("share", "better"), [(0.78, True), (0.82, False), (1.5, False)])
def test_numbers_are_better_beyond_what_chance_explains(tmp_path: Path, share: float, better: bool) -> None:
    """Of 400 rows an error of four fifths of the variance may be chance."""
    ages, values, _ = _spread(0.0, 400)
    error = math.sqrt(share * np.var(values))
    found = _errors(tmp_path / "a.csv", Interval(0, 20), [error / 10, 0.9], values, ages)
    assert found["verdict"] == ("better than always the mean" if better else "no better than always the mean")
    assert found["r2"] == pytest.approx(1 - share, abs=1e-3)


def test_a_constant_has_no_share_explained(tmp_path: Path) -> None:
    found = _errors(tmp_path / "a.csv", Interval(0, 20), [0.0, 0.0], [8.0] * 4, [1, 2, 3, 4])
    assert math.isnan(found["r2"])
    assert found["mse"] == pytest.approx(4.0)
    assert found["verdict"] == "no better than always the mean"


def test_what_lies_outside_is_refused_or_clipped(tmp_path: Path) -> None:
    options: Any = {"values": [8.0, 25.0], "ages": [1, 2]}
    with pytest.raises(ValueError, match="25"):
        _errors(tmp_path / "a.csv", Interval(0, 20), [0.0, 0.0], **options)
    assert _errors(tmp_path / "a.csv", Interval(0, 20), [0.0, 0.0], **options, clip=True)["mse"] == 52.0


@pytest.mark.parametrize(
    ("right", "better"),
    [(71, True), (69, False), (40, False)],
)
def test_classes(tmp_path: Path, right: int, better: bool) -> None:
    """Half of 100 rows are of each class: accuracy must be above 1/2 by 2 sqrt(1 / 100)."""
    classes = np.repeat([0, 1], 50)
    ages = np.where(classes == 1, 9.0, 1.0)
    wrong = np.concatenate([np.arange(100 - right)[::2] // 2, 99 - np.arange(100 - right)[1::2] // 2])
    ages[wrong] = 10 - ages[wrong]
    found = _errors(tmp_path / "a.csv", Categorical(2), [0.0, 1.0], classes, ages)
    assert found["accuracy"] == right / 100
    assert found["largest_class"] == 0.5
    chance = 1 / (1 + np.exp(-(ages / 5 - 1)))
    assert found["brier"] == pytest.approx(np.mean((chance - classes) ** 2))
    words = "better than always the larger class"
    assert found["verdict"] == (words if better else f"no {words}")


def test_the_larger_class_is_either(tmp_path: Path) -> None:
    for classes in ([0, 0, 0, 1], [0, 1, 1, 1]):
        found = _errors(tmp_path / "a.csv", Categorical(2), [0.0, 1.0], classes, [1, 1, 9, 9])
        assert found["largest_class"] == 0.75
