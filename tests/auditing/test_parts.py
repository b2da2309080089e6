"""The parts of audits by hand: what is guessed and counted, chances in fractions, scores and their limits."""

from __future__ import annotations

import dataclasses
import json
import math
from fractions import Fraction
from pathlib import Path
from statistics import NormalDist
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import noisette as nz
from noisette.auditing import blackbox, claims, independence, membership, one_run
from noisette.auditing.attacks import attack_by_scores, attack_on_losses
from noisette.auditing.blackbox import Audit, _distinct, _draw, _Event, _surest, claim_of
from noisette.auditing.exact import _level
from noisette.auditing.features import _members
from noisette.auditing.inputs import groups, written
from noisette.auditing.intervals import _bounds, lower_bounds, promised_bounds, rate_above, rate_below
from noisette.auditing.membership import (
    Rate,
    learned_scores,
    likelihood_ratio_scores,
    loss_scores,
    relative_scores,
    scaled_logits,
)
from noisette.auditing.one_run import OneRun, _chance, _largest, _least_error, _tried, against
from noisette.guarantees import gaussian_epsilon

NORMAL = NormalDist()


# One run.


def test_the_highest_and_the_lowest_scores_are_guessed() -> None:
    scores = np.arange(20.0)
    inside = scores >= 12  # the highest eight took part
    assert _tried(scores, inside, 8) == [(8, 8, 20)]
    assert _tried(scores, inside, 9) == [(8, 8, 20)]  # as many on both sides
    assert _tried(scores, inside, 20) == [(18, 20, 20)]
    assert _tried(scores, ~inside, 4) == [(0, 4, 20)]
    # 5, 20, 50 and 100 % of twenty canaries, half of them on each side
    assert [guesses for _, guesses, _ in _tried(scores, inside, None)] == [2, 4, 10, 20]
    for wrong in (np.zeros((2, 2)), np.asarray([1.0, math.nan])):
        with pytest.raises(ValueError, match="one row of finite numbers"):
            _tried(wrong, np.ones(np.shape(wrong)), None)
    for flags in (np.ones(3), np.ones(1)):
        with pytest.raises(ValueError, match="one flag for each score"):
            _tried(np.zeros(4), flags, None)
    with pytest.raises(ValueError, match="one flag for each score"):
        _tried(np.zeros(1), np.ones(1), None)


def tail(least: int, trials: int, p: Fraction) -> Fraction:
    return sum(
        (math.comb(trials, k) * p**k * (1 - p) ** (trials - k) for k in range(max(least, 0), trials + 1)), Fraction(0)
    )


@pytest.mark.parametrize("delta", [0.0, 1e-4, 0.01])
def test_the_chance_of_right_guesses_is_the_theorems(delta: float) -> None:
    """beta + 2 m delta max_i (P[B >= v - i] - beta) / i, in fractions (Steinke, Nasr, Jagielski 2023)."""
    correct, guesses, canaries = 9, 12, 30
    right = Fraction(3, 4)  # epsilon ln 3
    beta = tail(correct, guesses, right)
    gain = max((tail(correct - i, guesses, right) - beta) / i for i in range(1, correct + 1))
    wanted = min(beta + 2 * canaries * Fraction(delta) * gain, Fraction(1))
    assert _chance(correct, guesses, canaries, math.log(3), delta) == pytest.approx(float(wanted), rel=1e-9)
    assert _chance(0, guesses, canaries, 1.0, 0.01) == 1.0


def test_the_least_error_is_on_the_tradeoff_curve() -> None:
    """max(0, 1 - delta - E (1 - x), (x - delta) / E), E = exp(epsilon)."""
    for power in (0.0, 0.05, 0.3, 0.9, 1.0):
        wanted = max(0.0, 1 - 0.1 - 2 * (1 - power), (power - 0.1) / 2)
        assert _least_error(power, math.log(2), 0.1) == pytest.approx(wanted, abs=1e-12)


def test_the_largest_that_is_refuted_is_rounded_down() -> None:
    assert _largest(lambda x: False, 1e-9) == 0.0
    found = _largest(lambda x: x < 5.3, 1e-9)
    assert 5.3 * (1 - 1e-8) <= found < 5.3
    assert _largest(lambda x: True, 1e-9) == pytest.approx(64, rel=1e-8)


def test_bounds_of_one_run_are_the_best_of_those_tried() -> None:
    rng = np.random.default_rng(2)
    inside = rng.random(200) < 0.5
    scores = inside + rng.normal(0, 0.3, 200)
    found = one_run.one_run_bounds(scores, inside, delta=1e-5)
    tried = _tried(scores, inside, None)
    each = [one_run.one_run_epsilon(*counts, delta=1e-5, confidence=1 - 0.05 / len(tried)) for counts in tried]
    assert found.epsilon == max(each)
    assert (found.correct, found.guesses, found.canaries) == tried[int(np.argmax(each))]
    assert found.mu == max(one_run.one_run_mu(*counts, confidence=1 - 0.05 / len(tried)) for counts in tried)
    assert one_run.one_run(scores, inside, delta=1e-5) == found.epsilon
    assert found.gaussian_epsilon == gaussian_epsilon(found.mu, 1e-5)
    plain = OneRun(1.0, 0.5, 0.0, 0.95, 100, 10, 9)
    assert plain.gaussian_epsilon == math.inf
    assert OneRun(0.0, 0.0, 0.0, 0.95, 100, 10, 5).gaussian_epsilon == 0.0
    for wrong in (0.0, 1.0):
        with pytest.raises(ValueError, match="confidence"):
            one_run.one_run_epsilon(3, 4, 10, confidence=wrong)


def test_words_say_what_follows() -> None:
    assert "THE CLAIM IS FALSE" in against(1.1, 1.0)
    assert "nothing here contradicts" in against(1.0, 1.0)
    assert "Claimed" not in against(1.0, None)
    said = OneRun(1.5, 0.5, 1e-5, 0.95, 1000, 100, 95).words(1.0)
    assert "95 were right; 50 would be" in said
    assert "mu is at least 0.50" in said
    assert "no bound follows" in OneRun(0.0, 0.0, 0.0, 0.95, 1000, 100, 50).words()
    assert "mu is at least" not in OneRun(1.5, 0.5, 0.0, 0.95, 1000, 100, 95).words()


# Limits.


def test_limits_at_the_ends() -> None:
    assert rate_below(0, 10, 0.05) == 0.0
    assert rate_above(10, 10, 0.05) == 1.0
    assert float(rate_below(10, 10, 0.05)) == pytest.approx(0.05 ** (1 / 10))
    assert float(rate_above(0, 10, 0.05)) == pytest.approx(1 - 0.05 ** (1 / 10))
    low = float(rate_below(3, 10, 0.05))
    assert float(tail(3, 10, Fraction(low))) == pytest.approx(0.05, rel=1e-6)


def test_what_limits_of_rates_say() -> None:
    own, other = (np.asarray([0.5]), np.asarray([0.5])), (np.asarray([0.1]), np.asarray([0.9]))
    epsilon, mu = _bounds(own, other, 0.05)
    assert epsilon[0] == pytest.approx(max(math.log(0.45 / 0.1), math.log(0.85 / 0.5)))
    assert mu[0] == pytest.approx(-NORMAL.inv_cdf(0.1))
    nothing = _bounds(other, own, 0.05)
    assert nothing[1][0] == 0.0
    assert nothing[0][0] == 0.0
    never = _bounds((np.asarray([0.0]), np.asarray([1.0])), (np.asarray([0.0]), np.asarray([1.0])), 0.0)
    assert (never[0][0], never[1][0]) == (0.0, 0.0)


def test_a_bound_of_counts_lies_below_that_of_their_rates() -> None:
    epsilon, mu = lower_bounds(900, 100, 1000, delta=0.0, confidence=0.95)
    assert 0.8 * math.log(9) < epsilon < math.log(9)
    assert 0.8 * 2 * NORMAL.inv_cdf(0.9) < mu < 2 * NORMAL.inv_cdf(0.9)
    surer = lower_bounds(900, 100, 1000, delta=0.0, confidence=0.9999)
    assert surer[0] < epsilon
    assert lower_bounds(900, 100, 1000, delta=0.1, confidence=0.95)[0] < epsilon
    promised = promised_bounds(np.asarray([900]), np.asarray([100]), 1000, delta=0.0, deviations=1.65)
    assert promised[0][0] == pytest.approx(epsilon, rel=0.15)
    less = promised_bounds(np.asarray([900]), np.asarray([100]), 1000, delta=0.0, deviations=4.0)
    assert less[0][0] < promised[0][0]


# Membership.


def test_the_area_is_the_share_of_pairs_in_order() -> None:
    inside, outside = np.asarray([3.0, 1.0, 2.0, 2.0]), np.asarray([0.0, 2.0, 1.5])
    pairs = [(a > b) + 0.5 * (a == b) for a in inside for b in outside]
    found = membership._auc(inside, outside, 0.9)
    assert found.value == pytest.approx(sum(pairs) / 12)
    table = np.asarray(pairs).reshape(4, 3)
    spread = math.sqrt(table.mean(axis=1).var(ddof=1) / 4 + table.mean(axis=0).var(ddof=1) / 3)
    reach = NORMAL.inv_cdf(0.95) * spread
    assert (found.low, found.high) == pytest.approx((max(found.value - reach, 0), min(found.value + reach, 1)))
    assert str(Rate(0.5, 0.25, 0.75)) == "0.500 [0.250, 0.750]"


def test_the_best_threshold_is_tried_on_the_other_half() -> None:
    learn_in, learn_out = np.asarray([2.0, 3.0, 4.0]), np.asarray([0.0, 1.0, 1.5])
    test_in, test_out = np.asarray([1.0, 2.0, 3.0, 4.0]), np.asarray([0.0, 3.0])
    found = membership._accuracy(learn_in, learn_out, test_in, test_out, 0.95)
    # at 2 all members are hit and nobody else; of the others 3 of 4 are hit there, and 1 of 2 is quiet
    assert found.value == pytest.approx((0.75 + 0.5) / 2)
    spread = math.sqrt(0.75 * 0.25 / 4 + 0.5 * 0.5 / 2) / 2
    assert found.high == pytest.approx(min(1.0, found.value + 1.959964 * spread), rel=1e-6)
    sure = membership._accuracy(learn_in, np.zeros(3), np.full(4, 9.0), np.zeros(2), 0.95)
    assert sure.value == 1.0
    assert sure.low == pytest.approx(1 - 1.959964 * math.sqrt(0.25 / 16 + 0.25 / 4) / 2, rel=1e-6)


def test_counts_at_and_above_thresholds() -> None:
    assert membership._above(np.asarray([1.0, 2.0, 2.0, 3.0]), np.asarray([0.0, 2.0, 2.5, 4.0])).tolist() == [
        4,
        3,
        1,
        0,
    ]
    found = membership._rate(3, 10, 0.9)
    assert found.value == 0.3
    assert found.low == pytest.approx(float(rate_below(3, 10, 0.05)))
    assert found.high == pytest.approx(float(rate_above(3, 10, 0.05)))
    first, second = membership._halves(np.arange(5.0), np.random.default_rng(1))
    assert (first.size, second.size) == (2, 3)
    assert sorted([*first, *second]) == [0, 1, 2, 3, 4]
    with pytest.raises(ValueError, match="at least 4 scores"):
        membership._halves(np.arange(3.0), np.random.default_rng(1))
    assert loss_scores([1.0, -2.0]).tolist() == [-1.0, 2.0]


@pytest.mark.parametrize("models", [10, 200])
def test_likelihood_ratios_by_hand(models: int) -> None:
    """One variance for all examples with few models on a side, one for each with 64 or more."""
    rng = np.random.default_rng(3)
    seen = np.arange(models)[:, None] % 2 == np.arange(3) % 2
    shadow = rng.normal(seen * 1.0, [0.5, 1.0, 2.0], (models, 3))
    own = np.asarray([0.3, 1.2, -0.4])
    wanted = np.zeros(3)
    for side, sign in ((seen, 1), (~seen, -1)):
        groups = [shadow[side[:, k], k] for k in range(3)]
        if models < 128:
            pooled = sum(((g - g.mean()) ** 2).sum() for g in groups) / sum(g.size - 1 for g in groups)
            variances = [pooled] * 3
        else:
            variances = [g.var(ddof=1) for g in groups]
        for k in range(3):
            density = NormalDist(groups[k].mean(), math.sqrt(variances[k])).pdf(own[k])
            wanted[k] += sign * math.log(density)
    assert likelihood_ratio_scores(own, shadow, seen, scale="logit") == pytest.approx(wanted, rel=1e-9)
    offline = likelihood_ratio_scores(own, shadow, scale="logit")
    if models == 200:
        assert offline == pytest.approx((own - shadow.mean(axis=0)) / shadow.std(axis=0, ddof=1), rel=1e-9)


REFUSED: dict[str, tuple[Any, str]] = {
    "logits of one class": (lambda: scaled_logits(np.zeros((3, 1)), [0, 0, 0]), "two classes or more"),
    "logits without examples": (lambda: scaled_logits(np.zeros(3), [0]), "two classes or more"),
    "a label too few": (lambda: scaled_logits(np.zeros((3, 2)), [0, 1]), "two classes or more"),
    "a label that is no class": (lambda: scaled_logits(np.zeros((2, 2)), [0, 2]), "from 0 to 1"),
    "a negative label": (lambda: scaled_logits(np.zeros((2, 2)), [0, -1]), "from 0 to 1"),
    "labels with fractions": (lambda: scaled_logits(np.zeros((2, 2)), [0.0, 1.0]), "from 0 to 1"),
    "shadow models of other examples": (
        lambda: relative_scores([0.5, 0.5], np.full((2, 3), 0.5), [0.5], np.full((2, 1), 0.5)),
        "with shadow",
    ),
    "another population": (
        lambda: relative_scores([0.5, 0.5], np.full((2, 2), 0.5), [0.5], np.full((2, 2), 0.5)),
        "with shadow",
    ),
    "a row of shadow models": (
        lambda: relative_scores([0.5, 0.5], np.full(2, 0.5), [0.5], np.full((2, 1), 0.5)),
        "with shadow",
    ),
    "an example that all models saw": (
        lambda: relative_scores(
            [0.5, 0.5], np.full((2, 2), 0.5), [0.5], np.full((2, 1), 0.5), inside=[[True, True], [False, True]]
        ),
        "a model on each side",
    ),
    "a slope above one": (
        lambda: relative_scores([0.5], np.full((2, 1), 0.5), [0.5], np.full((2, 1), 0.5), slope=1.1),
        "slope=1.1",
    ),
    "a chance above one": (
        lambda: relative_scores([1.5], np.full((2, 1), 0.5), [0.5], np.full((2, 1), 0.5)),
        "as chances from 0 to 1",
    ),
    "a function without inputs": (lambda: nz.audit(lambda x, n, rng: x, claimed=1.0), "Expected inputs="),
    "a number for a mechanism": (lambda: nz.audit(3, inputs=(0, 1), claimed=1.0), "Expected a mechanism"),  # type: ignore[arg-type]
    "an audit of one input": (lambda: nz.audit(nz.Duchi(1.0), inputs=(0.5, 0.5)), "two different inputs"),
    "an audit with certainty": (lambda: nz.audit(nz.Duchi(1.0), confidence=1.0), "confidence=1.0"),
    "an audit of few samples": (lambda: nz.audit(nz.Duchi(1.0), samples=999), "1000 <= samples"),
}


@pytest.mark.parametrize(("made", "words"), REFUSED.values(), ids=REFUSED)
def test_refused(made: Any, words: str) -> None:
    with pytest.raises((ValueError, TypeError), match=words):
        made()


def test_features_that_do_not_fit_are_refused() -> None:
    pytest.importorskip("sklearn", reason="needs scikit-learn")
    known, inside, wanted = np.zeros((4, 2)), [1, 0, 1, 0], np.zeros((1, 2))
    for wrong in ((known, inside, np.zeros((1, 3))), (known, inside[:3], wanted), (np.zeros(4), inside, wanted)):
        with pytest.raises(ValueError, match="Expected features"):
            learned_scores(*wrong)


# From the outside.


def test_reports_are_rows_of_one_width() -> None:
    rng = np.random.default_rng(1)
    assert np.isnan(_draw(lambda x, n, rng: np.ones((n, 2)), 0, 3, 4, rng)[:, 2:]).all()
    assert _draw(lambda x, n, rng: np.arange(4.0 * n).reshape(n, 4), 0, 2, 3, rng).tolist() == [[0, 1, 2], [4, 5, 6]]
    with pytest.raises(ValueError, match=r"Expected 3 reports about 0, got 2"):
        _draw(lambda x, n, rng: np.ones((2, 1)), 0, 3, 1, rng)


def test_inputs_are_told_apart_once() -> None:
    kept = _distinct([np.asarray([1.0, 2.0]), np.asarray([1.0, 2.0]), np.asarray([1.0, 3.0])])
    assert [one.tolist() for one in kept] == [[1.0, 2.0], [1.0, 3.0]]


def test_the_surest_event_that_promises_something() -> None:
    events = [_Event(None, 0.0, promise, (0.5, 0.5)) for promise in (0.0, 0.2, 0.9)]  # type: ignore[arg-type]
    assert _surest(events).promise == 0.2
    assert _surest(events[:1]).promise == 0.0


def test_a_verdict_and_what_is_claimed() -> None:
    made = Audit(1.0, 1.0, 0.0, 0.999, 1000, (0, 1), (0.5, 0.5), 0.0)
    assert made.verdict == "holds"
    assert Audit(1.0001, 1.0, 0.0, 0.999, 1000, (0, 1), (0.5, 0.5), 0.0).verdict == "violated"
    plain = nz.Duchi(1.0)
    assert claim_of(plain) == plain.guarantee.claim
    other = dataclasses.replace(plain.guarantee, claim=dataclasses.replace(plain.guarantee.claim, unit="element"))
    for stated in (other, dataclasses.replace(plain.guarantee, claim=None)):
        only: Any = SimpleNamespace(guarantee=stated)
        assert claim_of(only) == stated


def test_blocks_of_reports_count_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """With little memory the reports come in blocks: rates are those of all of them."""
    whole = nz.audit(nz.Duchi(1.0), samples=4000, rng=7)
    monkeypatch.setattr(blackbox, "_ENTRIES", 1000)
    parts = nz.audit(nz.Duchi(1.0), samples=4000, rng=7)
    assert parts.event_rates == pytest.approx(whole.event_rates, abs=0.06)
    assert 0.3 < parts.lower_bound < 1.0


def test_the_level_of_an_input() -> None:
    """By its place among the edges, of which one belongs to the level above it; or as it is chosen."""
    own = nz.LevelledResponse((-1.0, -0.2, 0.5, 2.0), (3.0, 1.0, 2.0))
    assert [_level(own, x) for x in (-1.0, -0.21, -0.2, 0.49, 0.5, 2.0)] == [0, 0, 1, 1, 2, 2]
    assert [_level(own, np.asarray([0.3, level])) for level in (0.0, 1.0, 2.0)] == [0, 1, 2]


def test_one_number_with_a_fraction_is_no_member_of_a_set() -> None:
    """Reports that hold whole numbers are scored by which they hold; one other number in either part ends that."""
    first, second = (np.random.default_rng(seed).integers(0, 9, (40, 2)).astype(float) for seed in (1, 2))
    assert len(list(_members(first, second))) == 1
    for part in (first, second):
        part[7, 1] += 0.5
        assert not list(_members(first, second))
        part[7, 1] -= 0.5


def test_two_inputs_are_a_group() -> None:
    response = nz.GeneralizedRandomizedResponse(1.0, nz.Categorical(2))
    assert [sorted(int(x) for x in group) for group in groups(response, np.random.default_rng(0))] == [[0, 1]]


def test_constant_vectors_that_people_write_down_are_tried() -> None:
    """All twentieths and eighths from -1 to 1, as vectors of a box and as shares of another one."""
    wanted = sorted({Fraction(k, 20) for k in range(-20, 21)} | {Fraction(k, 8) for k in range(-8, 9)})
    for box in (nz.Box(3), nz.Box(3, 2, 6)):
        rows = np.asarray(written(box))
        constant = rows[(rows == rows[:, :1]).all(axis=1)][:, 0]
        shares = (constant - box.low) / (box.high - box.low) * 2 - 1
        for share in wanted:
            assert np.min(np.abs(shares - float(share))) < 1e-12, share
        assert len(shares) <= len(wanted) + 4


def test_an_examination_tells_how_much_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claims, "forms", lambda epsilon: ["a", "b", "c", "d"])
    monkeypatch.setattr(claims, "examine", lambda mechanism, **options: (mechanism, options))
    told = list[float]()
    found = claims.examine_all(2.0, samples=5, confidence=0.9, advance=told.append, rng=3)
    assert told == [0.25, 0.5, 0.75, 1.0]
    assert found == [(name, {"samples": 5, "confidence": 0.9, "rng": 3}) for name in "abcd"]  # type: ignore[comparison-overlap]


@pytest.mark.parametrize("record", [{}, {"attack": None}, {"attack": {}}])
def test_a_training_run_without_losses_is_not_attacked(record: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text(json.dumps(record), encoding="utf-8")
    with pytest.raises(ValueError, match=r"run\.json holds no losses to attack with\. Train again with --attack\."):
        attack_on_losses(tmp_path / "run.json")


def test_losses_of_a_run_are_attacked_and_held_against_both_claims(tmp_path: Path) -> None:
    """Losses of members that are all below those of others tell more than an epsilon of 0.1, and less than of 50."""
    sides = {"members": [0.1 + k / 1000 for k in range(400)], "others": [2 + k / 1000 for k in range(400)]}
    for epsilon, verdict in ((0.1, "violated"), (50.0, "holds")):
        record = {"attack": sides, "spent": {"epsilon": epsilon, "delta": 0.0}, "guarantee": {"epsilon": 7.0}}
        (tmp_path / "run.json").write_text(json.dumps(record), encoding="utf-8")
        found = attack_on_losses(tmp_path / "run.json", rng=1)
        assert (found["attack"], found["verdict"]) == ("loss threshold", verdict)
        members, others = (loss_scores(sides[side]) for side in ("members", "others"))
        assert (found["claimed"], found["accountant"]) == (7.0, epsilon)
        assert found["lower_bound"] == membership.evaluate(members, others, confidence=0.999, rng=1).epsilon > 3


def test_a_table_of_scores_is_judged_as_its_two_columns_are(tmp_path: Path) -> None:
    """Of 7 members and 5 others, 31 of 35 pairs in the order that the attack claims; canaries one by one."""
    inside, outside = [9.0, 8.0, 7.0, 6.0, 5.0, 4.0, 1.0], [2.5, 2.0, 1.5, 0.5, 3.0]
    rows = [f"{score},{member}" for member, scores in ((1, inside), (0, outside)) for score in scores]
    path = tmp_path / "scores.csv"
    path.write_text("\n".join(["score,member", *rows]), encoding="utf-8")
    found = attack_by_scores(path, claimed=1.0, delta=1e-5)
    assert (found["members"], found["others"], found["delta"], found["confidence"]) == (7, 5, 1e-5, 0.999)
    assert found["auc"]["value"] == pytest.approx(31 / 35, rel=1e-12)
    told = membership.evaluate(np.asarray(inside), np.asarray(outside), delta=1e-5, confidence=0.999, rng=7)
    assert {name: found[name] for name in dataclasses.asdict(told)} == dataclasses.asdict(told)
    canaries = attack_by_scores(path, one_run=True)
    run = one_run.one_run_bounds(np.asarray(inside + outside), np.arange(12) < 7, confidence=0.999)
    assert {name: canaries[name] for name in dataclasses.asdict(run)} == dataclasses.asdict(run)
    path.write_text("\n".join(["score,member", *rows, "1,2"]), encoding="utf-8")
    with pytest.raises(ValueError, match="1 for members and 0 for others"):
        attack_by_scores(path)


@pytest.mark.parametrize("size", [150, 400])
def test_values_told_apart_are_judged_by_as_many_tests_as_are_made(size: int) -> None:
    """Excesses that do not vary are told from a limit by 7 ln(2 tests / share) / (3 (n - 1)) alone."""
    limits, share = {0.5: 0.2, 1.0: 0.1}, 1e-6
    widths = [width for width in independence._STRETCHES if width <= size]
    risk = math.log(2 * len(limits) * sum(size // width for width in widths) / share)
    room = 7 * risk / (3 * (max(widths) - 1))

    def told(excess: float) -> str | None:
        gap = 0.5 - math.log1p(-excess)  # above an epsilon of 1/2
        laws = SimpleNamespace(log_prob=lambda _, x: np.where(np.asarray(x) == 9.0, -gap, 0.0))
        return independence.told_apart(laws, np.arange(size) / size, np.zeros(size), 1, 9.0, limits, share)

    assert told(0.2 + 0.999 * room) is None
    assert told(0.2 + 1.001 * room) is not None


def test_decimals_are_written_in_domains_of_any_width() -> None:
    """Multiples of a thousandth, of a hundredth ... or of a million million: the finest of which there is room for."""
    sizes = {-2: 163, -1: 233, 0: 1313, 8: 1113, 15: 1057, 16: 161}  # beyond, parts of the width alone
    assert {power: len(written(nz.Interval(0, 10.0**power))) for power in sizes} == sizes
    assert np.isin([3e14, 7e14], written(nz.Interval(0, 1e15))).all()
