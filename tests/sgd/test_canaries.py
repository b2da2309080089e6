"""Training that is as private as it says passes; training that is broken is caught, each way it has been broken."""

import math
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from noisette import sgd
from noisette.accounting import gdp_mu

TARGET = (2.0, 1e-5)


def private(**options):
    return partial(sgd.make_private, target=TARGET, epochs=5, rng=1, **options)


def examine(train, **options):
    return sgd.audit_training(train, claimed=2.0, delta=1e-5, epochs=5, **{"canaries": 1000, "rng": 3} | options)


class Unbounded(sgd.L2):
    """Clips nothing, and says that it does."""

    def weights(self, squares):
        return squares.new_ones(squares.shape[1])


class TwiceDivided(sgd.GaussianPerturbation):
    """Divides the noise by the batch size, and then the sum with it."""

    def release(self, sums, clip, multiplier, expected, rng):
        return super().release(sums, clip, multiplier / expected, expected, rng)


def misjudged(model, optimizer, loader):
    """Calibrate for a batch size of a tenth of what is drawn, as an expected batch size misused would."""
    made = sgd.make_private(model, optimizer, loader, target=TARGET, epochs=5, rng=1)
    sampled = sgd.Budget.for_target(*TARGET, steps=5, sampling_prob=0.1)
    made.optimizer.budget = replace(sampled, sampling_prob=1.0)
    return made


@pytest.mark.parametrize("clip", [1.0, "auto-s", "psac"])
@pytest.mark.parametrize("perturb", ["gaussian", sgd.Geo(0.5, "gradient")], ids=["gaussian", "geodp"])
def test_what_is_private_passes(clip, perturb):
    found = examine(private(clip=clip, perturb=perturb), canaries=400)
    assert found.verdict == "holds"
    assert found.lower_bound <= 2.0


def test_the_bound_comes_near_the_claim():
    """(2, 1e-5) in five steps is mu = 0.48 in all: that is what canaries can show; they show most of it."""
    found = examine(private(), canaries=6000)
    mu = gdp_mu(*TARGET)
    assert 0.6 * mu < found.attack.mu <= mu
    assert 0.4 < found.lower_bound <= 2.0


def test_samples_pass_too():
    found = examine(private(), batch=50)
    assert found.lower_bound <= 2.0


@pytest.mark.parametrize(
    "broken",
    [private(clip=Unbounded()), private(perturb=TwiceDivided()), misjudged],
    ids=["no clipping", "noise divided twice", "wrong batch size"],
)
def test_what_is_broken_is_caught(broken):
    found = examine(broken)
    assert found.verdict == "violated"
    assert found.lower_bound > 2.5


def test_an_audit_of_one_seed_is_reproducible():
    first, second = (examine(private(), canaries=200) for _ in range(2))
    assert first == second


def test_the_published_geodp_is_not_caught_by_canaries_alone_but_says_its_truth():
    """Canaries of equal direction in every step do not cancel: the audit is a lower bound, no proof of privacy."""
    made = private(perturb=sgd.Geo(0.5, "gradient", as_published=True))
    with pytest.warns(Warning, match="does not hold"):
        found = examine(made, canaries=100)
    assert np.isfinite(found.lower_bound)
    assert not math.isnan(found.attack.auc.value)
