"""Audits in one run: the bounds against a linear programme, exact fractions and the truth; what is said of them."""

from __future__ import annotations

import json
import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from scipy.optimize import linprog
from scipy.stats import binom, norm

from noisette.auditing.membership import evaluate
from noisette.auditing.one_run import (
    one_run_bounds,
    one_run_epsilon,
    one_run_mu,
    refuted_by_curve,
)
from noisette.cli import verbs
from noisette.guarantees import gaussian_mu

FALSE_ALARM = 1e-6


def _largest_chance(correct: int, guesses: int, canaries: int, lines: list[tuple[float, float]]) -> float:
    """Return the largest P[T >= correct] over all laws of the number of right guesses that a run allows.

    For a canary drawn at random: P[wrong, T >= i] >= slope P[right, T >= i + 1] + height, for all i and lines.
    """
    counts = np.arange(guesses + 1)
    rows, limits = [], []
    for i in range(guesses):
        right, wrong = np.where(counts > i, counts, 0) / canaries, np.where(counts >= i, guesses - counts, 0) / canaries
        for slope, height in lines:
            rows.append(slope * right - wrong)
            limits.append(-height)
    found = linprog(-(counts >= correct).astype(float), A_ub=rows, b_ub=limits, A_eq=[np.ones(guesses + 1)], b_eq=[1.0])
    assert found.success
    return -float(found.fun)


@pytest.mark.parametrize(("correct", "guesses", "canaries"), [(11, 12, 30), (9, 12, 12), (5, 5, 40)])
@pytest.mark.parametrize(("epsilon", "delta"), [(0.7, 0.0), (1.5, 1e-3), (0.5, 0.02)])
def test_the_curve_allows_what_a_linear_programme_does(
    correct: int, guesses: int, canaries: int, epsilon: float, delta: float
) -> None:
    factor = math.exp(epsilon)
    lines = [(1 / factor, -delta / factor), (factor, 1 - delta - factor)]
    exact = _largest_chance(correct, guesses, canaries, lines)

    def least_error(power: float) -> float:
        return max(0.0, *(slope * power + height for slope, height in lines))

    assert 1e-6 < exact < 1
    assert refuted_by_curve(correct, guesses, canaries, exact * 1.001, least_error)
    assert not refuted_by_curve(correct, guesses, canaries, exact * 0.999, least_error)


@pytest.mark.parametrize("mu", [0.3, 1.5])
def test_a_gaussian_curve_allows_what_its_tangents_do(mu: float) -> None:
    """A convex curve is the highest of its tangents; four hundred of them leave a gap of some thousandths."""
    powers = norm.cdf(np.linspace(-6, 6, 401))
    values = norm.cdf(norm.ppf(powers) - mu)
    slopes = np.exp(mu * norm.ppf(powers) - mu**2 / 2)
    lines = [(float(s), float(v - s * p)) for s, v, p in zip(slopes, values, powers, strict=True)]
    exact = _largest_chance(9, 12, 20, lines)

    def least_error(power: float) -> float:
        return float(norm.cdf(norm.ppf(power) - mu))

    assert refuted_by_curve(9, 12, 20, exact * 1.001, least_error)
    assert not refuted_by_curve(9, 12, 20, exact * 0.99, least_error)


@pytest.mark.parametrize("delta", [Fraction(0), Fraction(1, 10**5), Fraction(1, 10**3)])
def test_the_bound_is_that_of_the_published_theorem_in_exact_fractions(delta: Fraction) -> None:
    """Where randomised response bounds the chance: at the bound it is the risk, above and below it is not."""
    correct, guesses, canaries, risk = 46, 50, 400, 0.05
    bound = one_run_epsilon(correct, guesses, canaries, delta=float(delta), confidence=1 - risk)

    def chance(epsilon: float) -> float:
        keep = Fraction(math.exp(epsilon)) / (1 + Fraction(math.exp(epsilon)))
        law = [math.comb(guesses, t) * keep**t * (1 - keep) ** (guesses - t) for t in range(guesses + 1)]
        tail = [sum(law[t:], Fraction(0)) for t in range(guesses + 1)]
        gain = max((tail[correct - i] - tail[correct]) / i for i in range(1, correct + 1))
        return float(tail[correct] + 2 * canaries * delta * gain)

    if delta < Fraction(1, 10**4):
        assert chance(bound * (1 - 1e-6)) < risk < chance(bound * (1 + 1e-6))
    else:  # the other bound is better here, and refutes more
        assert chance(bound * (1 - 1e-6)) > risk


@pytest.mark.long
def test_neither_bound_shows_more_than_there_is() -> None:
    """Gaussian noise: mu is known, and so is the epsilon at each delta."""
    epsilon, delta, rng = 2.0, 1e-3, np.random.default_rng(1)
    mu, above, found = gaussian_mu(epsilon, delta), [0, 0], []
    for _ in range(40):
        inside = rng.random(300) < 0.5
        found.append(one_run_bounds(mu * inside + rng.normal(size=300), inside, delta=delta))
        above[0] += found[-1].epsilon > epsilon
        above[1] += found[-1].mu > mu
    assert max(above) <= binom.ppf(1 - FALSE_ALARM, 40, 0.05)
    assert np.median([one.gaussian_epsilon for one in found]) > np.median([one.epsilon for one in found]) > 0.2


@pytest.mark.slow
def test_less_noise_than_claimed_is_found_by_mu_before_epsilon() -> None:
    """At (1, 1e-5) claimed and noise for (8, 1e-5): the curve of Gaussian noise shows more of it."""
    rng = np.random.default_rng(2)
    inside = rng.random(1000) < 0.5
    found = one_run_bounds(gaussian_mu(8.0, 1e-5) * inside + rng.normal(size=1000), inside, delta=1e-5)
    assert 1.0 < found.epsilon < found.gaussian_epsilon < 8.0
    assert "THE CLAIM IS FALSE" in found.words(1.0)
    assert "nothing here contradicts it" in found.words(8.0)


def test_bad_counts_are_named() -> None:
    with pytest.raises(ValueError, match="confidence=1"):
        one_run_mu(3, 4, 10, confidence=1.0)
    with pytest.raises(ValueError, match="guesses=11"):
        one_run_mu(3, 11, 10)
    with pytest.raises(ValueError, match="one row of finite numbers"):
        one_run_bounds([1.0, math.inf], [True, False])
    assert one_run_mu(0, 0, 10) == one_run_mu(5, 10, 10) == 0


def test_the_order_of_a_table_is_no_score() -> None:
    """Rows sorted by who took part, all with the same score, were guessed right without exception."""
    inside = np.arange(600) >= 300
    for scores in (np.zeros(600), np.arange(600) % 2):
        for flags in (inside, ~inside):
            found = one_run_bounds(scores, flags, confidence=1 - FALSE_ALARM, guesses=600)
            assert binom.ppf(FALSE_ALARM, 600, 0.5) < found.correct < binom.isf(FALSE_ALARM, 600, 0.5)
            assert found.epsilon == 0


@pytest.fixture
def table(tmp_path: Path) -> Path:
    rng = np.random.default_rng(1)
    members = (rng.random(600) < 0.5).astype(int)
    rows = [f"{score},{member}" for score, member in zip(2 * members + rng.normal(size=600), members, strict=True)]
    (tmp_path / "scores.csv").write_text("\n".join(["score,member", *rows]) + "\n")
    return tmp_path / "scores.csv"


def _run(*arguments: Any) -> Result:
    return CliRunner().invoke(verbs, ["audit", *map(str, arguments)])


@pytest.mark.slow
def test_scores_of_any_attack_are_judged_in_words(table: Path) -> None:
    shown = _run("--scores", table, "-e", 0.1, "--delta", 1e-5, "--confidence", 0.95)
    said = " ".join(shown.stdout.split())
    assert shown.exit_code == 1, shown.output
    assert "The attack tells members from others." in said
    assert "if every score comes from a run of its own, THE CLAIM IS FALSE" in said
    assert max(map(len, shown.stdout.splitlines())) <= 80
    assert _run("--scores", table, "-e", 50, "--delta", 1e-5).exit_code == 0
    unclaimed = _run("--scores", table, "--confidence", 0.95, "--json")
    found = json.loads(unclaimed.stdout)
    assert found["verdict"] is found["claimed"] is None
    assert unclaimed.exit_code == 0
    rows = np.loadtxt(table, delimiter=",", skiprows=1)
    same = evaluate(rows[rows[:, 1] == 1, 0], rows[rows[:, 1] == 0, 0], rng=7)
    assert (found["lower_bound"], found["auc"]["value"]) == (same.epsilon, same.auc.value)
    assert found["words"] == same.words()


@pytest.mark.slow
def test_canaries_of_one_run_are_judged_in_words(table: Path) -> None:
    found = json.loads(
        _run("--scores", table, "--one-run", "-e", 8, "--delta", 1e-5, "--confidence", 0.95, "--json").stdout
    )
    rows = np.loadtxt(table, delimiter=",", skiprows=1)
    same = one_run_bounds(rows[:, 0], rows[:, 1] == 1, delta=1e-5)
    assert (found["epsilon"], found["mu"], found["correct"]) == (same.epsilon, same.mu, same.correct)
    assert (found["verdict"], found["words"]) == ("holds", same.words(8.0))
    shown = _run("--scores", table, "--one-run", "-e", 0.2)
    assert "violated" in shown.stdout
    assert shown.exit_code == _run("--scores", table, "--one-run", "-e", 0.2, "--json").exit_code == 1
    assert "600 canaries, each of which took part in one run" in " ".join(shown.stdout.split())


def test_bad_tables_and_options_end_with_a_reason(table: Path, tmp_path: Path) -> None:
    (tmp_path / "bad.csv").write_text("score,member\n1.0,2\n0.5,1\n")
    for arguments, message in (
        (("--scores", tmp_path / "bad.csv"), "1 for members and 0 for others"),
        (("--scores", table, "--model", table), "give one of them"),
        (("--scores", table, "duchi"), "without NAME"),
        (("duchi", "-e", 1, "--one-run"), "are about --scores FILE"),
        (("--scores", tmp_path / "none.csv"), "There is no file"),
    ):
        result = _run(*arguments)
        assert result.exit_code == 2, result.output
        assert message in " ".join(result.stderr.split())
