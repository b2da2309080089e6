"""A private verdict on a model of two classes: its limits hold, and a model that says nothing is not praised."""

import numpy as np
import pytest
from scipy.stats import binom

from noisette.regression.judging import judge

FALSE_ALARM = 1e-6


def _people(rng, users, share, accuracy):
    """Return classes, and what a model says that is right so often of both."""
    own = (rng.random(users) < share).astype(int)
    return own, np.where(rng.random(users) < accuracy, own, 1 - own)


@pytest.mark.slow
def test_accuracy_and_gain_are_unbiased_and_their_limits_hold():
    """In 97.5 % of 400 judgements the truth is above the lower limit; a model without gain is praised as seldom."""
    rng, above, praised, seen = np.random.default_rng(1), 0, 0, []
    for _ in range(400):
        own, named = _people(rng, 1500, 0.3, 0.85)
        found = judge(named, own, 1.0, rng=rng)
        seen.append((found.accuracy, found.gain))
        above += found.low > 0.15  # 0.85 - 0.7
        own, named = _people(rng, 1500, 0.3, 0.7)  # as good as always the larger class
        praised += judge(named, own, 1.0, rng=rng).low > 0
    accuracy, gain = np.array(seen).T
    for values, truth in ((accuracy, 0.85), (gain, 0.15)):
        assert abs(values.mean() - truth) < 5 * values.std() / 20
    assert max(above, praised) <= binom.ppf(1 - FALSE_ALARM, 400, 0.025)


def test_verdicts():
    rng = np.random.default_rng(2)
    own, named = _people(rng, 20_000, 0.24, 0.95)
    assert judge(named, own, 2.0, rng=1).verdict == "better than always the larger class"
    assert judge(0 * named, own, 2.0, rng=1).verdict.startswith("no better than always the larger class")
    assert judge(1 - named, own, 2.0, rng=1).verdict == "worse than always the larger class"


def test_bad_input_is_named():
    for named, own in (([0, 1], [0]), ([], []), ([2], [0])):
        with pytest.raises(ValueError, match="as 0 and 1, and some people"):
            judge(named, own, 1.0)
