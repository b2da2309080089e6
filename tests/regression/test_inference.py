"""Error bars that hold: coverage by simulation, what is expected beforehand, and when nothing can be told."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from scipy.special import expit

from noisette import Categorical, Interval
from noisette.cli import verbs
from noisette.regression import Design, Inference, PrivateLinearRegression, PrivateLogisticRegression

FALSE_ALARM = 1e-6
LINEAR = np.asarray([-0.3, 0.06, 0.2])
LOGISTIC = np.asarray([-1.0, 0.25, 0.8])
DESIGN = Design((Interval(0, 10), Categorical(2)), names=("a", "b"))


def people(count, rng, *, classes=False):
    rows = np.column_stack([rng.uniform(0, 10, count), rng.integers(0, 2, count)])
    if classes:
        return rows, (rng.random(count) < expit(LOGISTIC[0] + rows @ LOGISTIC[1:])).astype(int)
    return rows, LINEAR[0] + rows @ LINEAR[1:] + rng.uniform(-0.3, 0.3, count)


@pytest.mark.long
@pytest.mark.parametrize(
    ("target", "truth", "epsilon", "users"),
    [(Interval(), LINEAR, 4.0, 2500), (Categorical(2), LOGISTIC, 6.0, 5000)],
)
def test_intervals_cover(target, truth, epsilon, users):
    """Three intervals of 95 % in each of 60 runs; `benchmarks/regression.py --coverage` makes more of them.

    Misses are binomial, one in twenty: with 60 runs at most 14 are seen but for a chance of 1e-6 each.
    """
    inference, rng, runs = Inference(DESIGN, target, epsilon), np.random.default_rng(5), 60
    missed, errors = np.zeros(3), []
    for _ in range(runs):
        found = inference.run(*people(users, rng, classes=isinstance(target, Categorical)), rng=rng)
        low, high = found.interval()
        missed += (low > truth) | (high < truth)
        errors.append(found.std_error)
    assert missed.max() <= 14
    expected = [row["std_error"] for row in inference.expected(users)]
    assert np.all(np.abs(np.log(np.median(errors, axis=0) / expected)) < 0.6)  # that of other columns than these


def test_errors_are_those_of_the_true_step_where_reports_are_noisy():
    """With the true step u, A u + g has a known covariance C, and the error of a step is A^-1 times that.

    Group means are drawn as normal numbers with the covariance of reports. Where noise makes the step uncertain, errors
    must not count that a second time: the jackknife's own are 5 to 7 % above those that C gives. They are errors of the
    step, which intervals are around: what is left once its bias is taken off is nearer to the truth than they say.
    """
    inference, rng = Inference(Design((Interval(),) * 4), Interval(), 4.0), np.random.default_rng(6)
    ratios, middles, values = [], [], []
    rows = np.column_stack([np.ones(20_000), rng.uniform(-1, 1, (20_000, 4))])
    joined = np.column_stack([rows, -(rows @ np.asarray([0.1, 0.3, -0.15, 0.05, 0.1])) - rng.normal(0, 0.15, 20_000)])
    products = joined[:, inference.pairs[:, 0]] * joined[:, inference.pairs[:, 1]]
    covariance = np.cov(products.T) + inference.channel.noise / len(inference.pairs) * np.eye(len(inference.pairs))
    gram, slope = inference._moments(products.mean(0))
    truth = -np.linalg.solve(gram, slope)

    def left(means):
        gram, slope = inference._moments(means)
        return gram @ truth + slope

    moves = np.stack([left(one) - left(np.zeros(len(covariance))) for one in np.eye(len(covariance))], axis=1)
    scale = np.stack([inference._units(one) - inference._units(np.zeros(5)) for one in np.eye(5)], axis=1)
    spread = np.linalg.cholesky(covariance / 66)
    for _ in range(200):
        means = products.mean(0) + rng.normal(size=(60, len(spread))) @ spread.T
        found = inference._solved(np.zeros(5), means, np.full(60, 66), 60 * 66)
        back = scale @ np.linalg.inv(inference._moments(means.mean(0))[0]) @ moves
        ratios.append(found.std_error / np.sqrt(np.diag(back @ covariance @ back.T) / (60 * 66)))
        middles.append((found.solution - inference._units(truth)) / found.std_error)
        values.append((found.value - inference._units(truth)) / found.std_error)
    assert np.isfinite(ratios).mean() > 0.98  # else the noise hides how the columns go together
    told = np.asarray(ratios)[np.isfinite(ratios).all(1)]
    np.testing.assert_allclose(np.sqrt(np.square(told).mean(0)), 1.0, atol=0.04)
    given = np.isfinite(ratios).all(1)
    around, without_bias = (np.sqrt(np.square(np.asarray(own)[given]).mean()) for own in (middles, values))
    assert around == pytest.approx(1.0, abs=0.06)  # of 1,000 ratios, five of each run alike: 0.03 is seen by chance
    assert without_bias < 0.95


def test_few_people_are_told_that_nothing_can_be_told():
    rows, target = people(400, np.random.default_rng(1))
    found = Inference(DESIGN, Interval(), 0.5).run(rows, target, rng=2)
    assert np.isinf(found.std_error).all()
    assert {row["verdict"] for row in found.table()} == {"cannot tell"}
    assert found.verdict().startswith("cannot tell")


def test_the_first_category_is_what_others_are_compared_with():
    inference = Inference(Design((Categorical(3), Interval()), names=("c", "x")), Categorical(2), 2.0)
    assert [row["name"] for row in inference.expected(1000)] == ["(intercept)", "c=1", "c=2", "x"]
    # (0,0), (0,c1), (0,c2), (0,x), (c1,x), (c2,x), (x,x) and four entries of the gradient
    assert len(inference.pairs) == 11


def test_four_times_the_people_halve_the_error():
    inference = Inference(DESIGN, Interval(0, 50), 1.0)
    few, many = (np.asarray([row["std_error"] for row in inference.expected(n)]) for n in (20_000, 80_000))
    np.testing.assert_allclose(few, 2 * many)


@pytest.mark.parametrize("goal", [Interval(), Categorical(2)])
def test_a_plan_for_rows_that_are_known_is_what_people_like_them_give(goal):
    """Columns that fill a part of their range tell less: errors for even ones are three times too small."""
    rng, users = np.random.default_rng(3), 20_000
    rows = np.column_stack([rng.beta(2, 5, users) * 10, rng.random(users) < 0.2])
    target = rng.integers(0, 2, users) * (1 if isinstance(goal, Categorical) else 2)
    inference = Inference(DESIGN, goal, 8.0)
    found = inference.run(rows, target - isinstance(goal, Interval), rng=rng).std_error
    told, even = ([row["std_error"] for row in inference.expected(users, like)] for like in (rows[:500], None))
    np.testing.assert_allclose(told, found, rtol=0.5)  # errors of errors are 10 % of them, and of 500 rows as much
    assert even[1] < 0.5 * told[1]


def test_a_plan_says_where_nothing_could_be_told():
    """The plan for 400 people had errors, and the run of as many gives none, above."""
    inference = Inference(DESIGN, Interval(), 0.5)
    assert all(math.isinf(row["std_error"]) and math.isinf(row["least_effect"]) for row in inference.expected(400))
    assert all(math.isfinite(row["std_error"]) for row in inference.expected(400_000))
    assert all(math.isinf(row["std_error"]) for row in inference.expected(10**9, [[1.0, 0]] * 3))  # nothing varies


def test_the_moments_are_those_of_a_table():
    """Without noise the step is least squares on the columns that are kept."""
    rows, target = people(500, np.random.default_rng(3))
    inference = Inference(DESIGN, Interval(), 2.0)
    x = DESIGN.encode(rows)[:, inference.kept]
    joined = np.column_stack([x, -target])
    means = (joined[:, inference.pairs[:, 0]] * joined[:, inference.pairs[:, 1]]).mean(axis=0)
    exact = np.linalg.lstsq(x, target, rcond=None)[0]
    np.testing.assert_allclose(-inference._step(means, 500), exact, atol=1e-10)
    plain = np.column_stack([np.ones(500), rows])
    np.testing.assert_allclose(inference._units(exact), np.linalg.lstsq(plain, target, rcond=None)[0], atol=1e-10)


@pytest.mark.slow
def test_the_estimators_have_them():
    rng = np.random.default_rng(4)
    rows, target = people(20_000, rng)
    features = [Interval(0, 10), Categorical(2)]
    model = PrivateLinearRegression(4.0, features=features, error_bars=True, clip=True, random_state=1).fit(
        rows, target
    )
    assert [row["verdict"] for row in model.coefficients_.table()][1:] == ["above zero", "above zero"]
    np.testing.assert_allclose(model.coef_[[0, 2]], model.coefficients_.value[1:])
    assert model.predict(rows[:5]).shape == (5,)
    with pytest.raises(ValueError, match="call fit"):
        model.partial_fit(rows, target)
    rows, classes = people(20_000, rng, classes=True)
    model = PrivateLogisticRegression(4.0, features=features, error_bars=True, random_state=1).fit(rows, classes)
    assert model.coefficients_.model.rounds == 3
    assert model.predict_proba(rows[:5]).shape == (5, 2)


@pytest.mark.long
def test_the_command_prints_them(tmp_path: Path):
    rows, target = people(6000, np.random.default_rng(4))
    file = tmp_path / "people.csv"
    lines = [f"{a:.6f},{int(b)},{y:.6f}" for (a, b), y in zip(rows, target, strict=True)]
    file.write_text("\n".join(["a,b,y", *lines]) + "\n")
    words = ["train", str(file), "--model", "linear", "--target", "y", "-e", "4", "--range", "a=0,10"]
    words += ["--categories", "b=2", "--clip", "--seed", "1"]
    run = CliRunner()
    shown = run.invoke(verbs, [*words, "--error-bars", "--test", str(file)]).output
    assert "standard error" in shown
    assert "effects differ from zero at 95 %" in shown
    assert "better than always the mean" in " ".join(shown.split())
    record = json.loads(run.invoke(verbs, [*words, "--error-bars", "--json"], catch_exceptions=False).stdout)
    assert set(record["coefficients"][0]) == {"name", "value", "std_error", "low", "high", "verdict"}
    plan = json.loads(run.invoke(verbs, [*words, "--plan", "6000", "--json"]).stdout)
    seen, expected = record["coefficients"][0]["std_error"], plan["coefficients"][1]["std_error"]
    assert abs(math.log(seen / expected)) < 0.6
    assert "least effect" in run.invoke(verbs, [*words, "--plan", "6000"]).output
    assert "cannot tell" not in run.invoke(verbs, [*words, "--plan", "6000"]).output
    assert "cannot tell: the noise hides" in run.invoke(verbs, [*words, "--plan", "9"]).output
    assert "leave --one-shot" in run.invoke(verbs, [*words, "--error-bars", "--one-shot"]).output


def test_bad_options():
    with pytest.raises(ValueError, match="coding='unit'"):
        Inference(Design((Interval(),), coding="signed"), Interval(), 1.0)
    with pytest.raises(ValueError, match="at least 240 users"):
        Inference(DESIGN, Interval(), 1.0).run(*people(100, np.random.default_rng(0)))
    with pytest.raises(ValueError, match="as many targets"):
        Inference(DESIGN, Interval(), 1.0).run(people(300, np.random.default_rng(0))[0], np.zeros(2))
