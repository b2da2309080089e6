"""Membership attacks: their measures against known curves, their bounds against the truth."""

import math

import numpy as np
import pytest
from scipy.stats import binom, norm

from noisette.auditing import membership
from noisette.auditing.membership import (
    evaluate,
    learned_scores,
    likelihood_ratio_scores,
    loss_scores,
    one_run,
    one_run_epsilon,
)

FALSE_ALARM = 1e-6


@pytest.mark.parametrize("mu", [0.0, 0.5, 2.0])
def test_measures_agree_with_two_normal_laws(mu):
    rng = np.random.default_rng(1)
    attack = evaluate(rng.normal(mu, 1, 20_000), rng.normal(0, 1, 20_000), confidence=1 - FALSE_ALARM)
    assert attack.auc.low <= norm.cdf(mu / math.sqrt(2)) <= attack.auc.high
    assert attack.balanced_accuracy.low <= norm.cdf(mu / 2) + 2e-3
    assert attack.balanced_accuracy.high >= norm.cdf(mu / 2) - 2e-3
    # the threshold at 1 % is itself estimated from 10,000: between 0.6 and 1.5 %
    low, high = (norm.sf(norm.isf(rate) - mu) for rate in (0.006, 0.015))
    assert low <= attack.hits_at_rare.high
    assert high >= attack.hits_at_rare.low
    assert attack.auc.high - attack.auc.low < 0.07


@pytest.mark.long
def test_intervals_cover():
    """Four hundred times 95 %, or a little less or more: a false alarm in a million at most on either side."""
    rng = np.random.default_rng(2)
    truth = norm.cdf(1 / math.sqrt(2))
    covered = 0
    for _ in range(400):
        rate = evaluate(rng.normal(1, 1, 60), rng.normal(0, 1, 60), rng=rng).auc
        covered += rate.low <= truth <= rate.high
    assert binom.ppf(FALSE_ALARM, 400, 0.94) <= covered <= binom.ppf(1 - FALSE_ALARM, 400, 0.965)


@pytest.mark.slow
@pytest.mark.parametrize(("size", "runs"), [(4, 50), (40, 100)])
def test_the_report_sees_no_members_in_noise(size, runs):
    """The area errs on the upper side in 2.5 % of runs, or some 6 where scores are few, and the bound in 5 %."""
    rng = np.random.default_rng(4)
    said = [evaluate(*rng.normal(size=(2, size)), rng=rng).words() for _ in range(runs)]
    assert sum("tells members" in text for text in said) <= binom.ppf(1 - FALSE_ALARM, runs, 0.11)
    assert all("show no false alarms of 1 %" in text for text in said)
    told = evaluate(np.arange(200.0), np.arange(-200.0, 0.0)).words()
    assert "tells members" in told
    assert "with 1 % of false alarms it finds 100.0 %" in told


@pytest.mark.long
@pytest.mark.parametrize("epsilon", [0.5, 3.0])
def test_the_bound_stays_below_the_truth_and_comes_near(epsilon):
    """Randomised response: scores are 0 or 1, the truth is known."""
    keep = math.exp(epsilon) / (1 + math.exp(epsilon))
    rng = np.random.default_rng(3)
    above, bounds = 0, []
    for _ in range(100):
        members = (rng.random(4000) < keep).astype(float)
        others = (rng.random(4000) > keep).astype(float)
        bound = evaluate(members, others, rng=rng).epsilon
        above += bound > epsilon
        bounds.append(bound)
    assert above <= binom.ppf(1 - FALSE_ALARM, 100, 0.05)
    assert np.median(bounds) > 0.75 * epsilon


def test_one_run_agrees_with_the_exact_tail_of_randomised_response():
    for epsilon in (0.3, 1.0, 2.5):
        right = math.exp(epsilon) / (1 + math.exp(epsilon))
        correct = int(binom.ppf(0.5, 400, right))
        bound = one_run_epsilon(correct, 400, 400)
        keep = math.exp(bound) / (1 + math.exp(bound))
        assert binom.sf(correct - 1, 400, keep) == pytest.approx(0.05, rel=1e-6)
        assert bound < epsilon


@pytest.mark.long
def test_one_run_never_shows_more_than_there_is():
    epsilon, rng, above = 1.0, np.random.default_rng(4), 0
    keep = math.exp(epsilon) / (1 + math.exp(epsilon))
    for _ in range(150):
        inside = rng.random(500) < 0.5
        scores = np.where(rng.random(500) < keep, inside, ~inside) + rng.normal(0, 1e-3, 500)
        above += one_run(scores, inside) > epsilon
    assert above <= binom.ppf(1 - FALSE_ALARM, 150, 0.05)


def test_one_run_would_show_twice_the_noise_missing():
    rng = np.random.default_rng(5)
    inside = rng.random(2000) < 0.5
    keep = math.exp(2.0) / (1 + math.exp(2.0))
    scores = np.where(rng.random(2000) < keep, inside, ~inside).astype(float)
    assert 1.5 < one_run(scores, inside, guesses=2000) <= 2.0


def test_delta_lowers_the_bound():
    bounds = [one_run_epsilon(98, 100, 1000, delta=delta) for delta in (0.0, 1e-6, 1e-4, 1e-3)]
    assert bounds == sorted(bounds, reverse=True)
    assert bounds[0] > bounds[-1] + 0.05


def test_nothing_guessed_shows_nothing():
    assert one_run_epsilon(0, 0, 10) == 0
    assert one_run_epsilon(5, 10, 10) == 0


def test_the_likelihood_ratio_finds_members_that_a_loss_does_not():
    """Examples differ in how hard they are; each model moves its members by less than that."""
    rng = np.random.default_rng(6)
    hard = rng.normal(0, 3, 2000)

    def logits(inside):
        return hard + 1.5 * inside + rng.normal(0, 1, inside.shape)

    shadow_in = rng.random((64, 2000)) < 0.5
    target = rng.random(2000) < 0.5
    shadow, own = logits(shadow_in), logits(target[None])[0]

    def confidence(z):
        return 1 / (1 + np.exp(-z))

    ratio = likelihood_ratio_scores(confidence(own), confidence(shadow), shadow_in)
    losses = loss_scores(np.log1p(np.exp(-own)))
    by_ratio = evaluate(ratio[target], ratio[~target])
    by_loss = evaluate(losses[target], losses[~target])
    assert by_ratio.auc.value == pytest.approx(norm.cdf(1.5 / math.sqrt(2)), abs=0.03)
    assert by_ratio.auc.low > by_loss.auc.high


def test_a_learned_attack_finds_a_rule():
    rng = np.random.default_rng(7)
    features, candidates = rng.normal(size=(1500, 4)), rng.normal(size=(1000, 4))
    inside, truth = features[:, 1] * features[:, 2] > 0, candidates[:, 1] * candidates[:, 2] > 0
    scores = learned_scores(features, inside, candidates)
    assert evaluate(scores[truth], scores[~truth]).auc.low > 0.9


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: evaluate([1.0, 2.0], [1.0] * 9), "at least 4 scores"),
        (lambda: evaluate([1.0, math.nan, 2, 3], [1.0] * 9), "finite"),
        (lambda: evaluate([1.0] * 9, [1.0] * 9, confidence=1.0), "confidence=1.0"),
        (lambda: one_run([1.0, 2.0], [True]), "one flag for each score"),
        (lambda: one_run_epsilon(11, 10, 10), "correct=11"),
        (lambda: likelihood_ratio_scores([0.5], [[0.5, 0.5]], [[True, False]]), "Expected confidences of shape"),
        (lambda: likelihood_ratio_scores([0.5], [[0.5], [0.4]], [[True], [True]]), "inside of one shadow model"),
        (lambda: learned_scores([[1.0]], [True, False], [[1.0]]), "Expected features"),
    ],
    ids=["few", "nan", "confidence", "flags", "more than guessed", "shapes", "one side", "learned shapes"],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_logits_tell_what_confidences_in_single_precision_do_not():
    rng = np.random.default_rng(1)
    logits = np.zeros((2, 400, 3), dtype=np.float32)
    logits[..., 1] = rng.normal(22.0, 1.0, (2, 400))
    labels = np.ones(400, dtype=int)
    phi = membership.scaled_logits(logits, labels)
    expected = [[z[1] - math.log(math.exp(z[0]) + math.exp(z[2])) for z in model] for model in logits.astype(float)]
    np.testing.assert_allclose(phi, expected, rtol=1e-12)
    exponentials = np.exp(logits - logits.max(-1, keepdims=True))
    confidences = (exponentials / exponentials.sum(-1, keepdims=True))[..., 1]
    assert len(np.unique(confidences)) == 1  # the twin: nothing is left to tell them apart by
    with pytest.raises(ValueError, match="whole numbers from 0 to 2"):
        membership.scaled_logits(logits, labels + 2)
    with pytest.raises(ValueError, match="scale='odds'"):
        membership.likelihood_ratio_scores(phi[0], phi, scale="odds")


def test_lira_of_logits_is_that_of_their_confidences_and_offline_needs_outsiders_alone():
    rng = np.random.default_rng(2)
    inside = rng.random((9, 30)) < 0.5
    inside[0], inside[1] = True, False
    phi, own = rng.normal(size=(9, 30)) + inside, rng.normal(size=30)
    expected = membership.likelihood_ratio_scores(1 / (1 + np.exp(-own)), 1 / (1 + np.exp(-phi)), inside)
    np.testing.assert_allclose(membership.likelihood_ratio_scores(own, phi, inside, scale="logit"), expected, rtol=1e-9)
    many = rng.normal(size=(80, 30)) * np.linspace(0.5, 2, 30)
    offline = membership.likelihood_ratio_scores(own, many, scale="logit")
    np.testing.assert_allclose(offline, [(x - y.mean()) / y.std(ddof=1) for x, y in zip(own, many.T, strict=True)])
    with pytest.raises(ValueError, match="two shadow models or more"):
        membership.likelihood_ratio_scores(own, many[:1], scale="logit")
    with pytest.raises(ValueError, match="leave inside out"):
        membership.likelihood_ratio_scores(own, many, np.zeros((80, 30)), scale="logit")


@pytest.mark.parametrize("online", [True, False])
@pytest.mark.parametrize("gamma", [1.0, 1.5])
def test_rmia_is_a_count_over_pairs(online, gamma):
    rng = np.random.default_rng(3)
    own, shadow, near, far = (rng.random(shape) for shape in (12, (6, 12), 20, (6, 20)))
    inside = np.arange(6)[:, None] % 2 == np.arange(12) % 2 if online else None
    seen = membership.relative_scores(own, shadow, near, far, inside=inside, gamma=gamma)

    def prior(column, members):
        if members is None:
            return (1.3 * column.mean() + 0.7) / 2
        return (column[members].mean() + column[~members].mean()) / 2

    for place in range(12):
        ratio = own[place] / prior(shadow[:, place], inside[:, place] if online else None)
        others = [z / (column.mean() if online else prior(column, None)) for z, column in zip(near, far.T, strict=True)]
        assert seen[place] == pytest.approx(np.mean([ratio / other >= gamma for other in others]))
    with pytest.raises(ValueError, match="chances from 0 to 1"):
        membership.relative_scores(own + 1, shadow, near, far)
    with pytest.raises(ValueError, match="slope=2"):
        membership.relative_scores(own, shadow, near, far, slope=2)


def test_the_interval_of_the_area_is_delongs():
    """Counted pair by pair, with few scores: the sums of squares are divided by one less than there are."""
    inside, outside = np.asarray([0.9, 0.4, 0.7, 0.2]), np.asarray([0.1, 0.5, 0.3])
    pairs = np.asarray([[float(a > b) for b in outside] for a in inside])
    above, below = pairs.mean(axis=1), pairs.mean(axis=0)
    squares = ((above - above.mean()) ** 2).sum() / 3 / 4 + ((below - below.mean()) ** 2).sum() / 2 / 3
    found = membership._auc(inside, outside, 0.5)
    assert found.value == pytest.approx(pairs.mean())
    assert found.low == pytest.approx(pairs.mean() - norm.ppf(0.75) * math.sqrt(squares))
    assert found.high == pytest.approx(pairs.mean() + norm.ppf(0.75) * math.sqrt(squares))
