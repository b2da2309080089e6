"""One example that tries to be noticed: it stops no run, changes no message, and adds no more than its bound.

An exception that depends on one example tells, with certainty, that the example was in the batch.
"""

import math
import warnings

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

from noisette import sgd

pytestmark = pytest.mark.filterwarnings("ignore:This step is not on a batch")

LOUD = {"nan": math.nan, "infinite": math.inf, "1e10": 1e10, "1e30": 1e30, "1e38": 1e38, "denormal": 1e-42}


def network():
    torch.manual_seed(2)
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.LayerNorm(8), nn.Unflatten(1, (2, 4)), nn.Conv1d(2, 3, 2))


def tokens():
    torch.manual_seed(2)
    return nn.Sequential(nn.Linear(4, 24), nn.ReLU(), nn.Linear(24, 20))


def run(model, dataset, **options):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = DataLoader(dataset, batch_size=20)
    return sgd.make_private(model, optimizer, loader, target=(3.0, 1e-5), epochs=3, rng=1, **options)


def step(private, inputs):
    """Make a step on a batch, and return the parameters after it."""
    private.optimizer.zero_grad()
    made = private.model(inputs).flatten(1)
    (made.square().sum(1) + made[:, 0]).mean().backward()
    private.optimizer.step()
    return torch.cat([parameter.detach().flatten() for parameter in private.model.parameters()])


def batch(shape, value, size=20):
    """Return a batch whose first example holds a number of the attacker's choice."""
    torch.manual_seed(1)
    made = torch.randn(size, *shape)
    made[0, ..., 0] = value
    return made


@pytest.mark.parametrize("value", LOUD.values(), ids=LOUD)
@pytest.mark.parametrize(("build", "shape"), [(network, (4,)), (tokens, (3, 4))], ids=["network", "tokens"])
@pytest.mark.parametrize("clip", sgd.CLIPS)
def test_a_loud_example_is_a_step_like_any_other(build, shape, clip, value):
    """A feature of 1e10, an infinity or a NaN raised "gradients of 1 of 20 examples are not finite"."""
    inputs = batch(shape, value)
    private = run(build(), TensorDataset(torch.randn(40, *shape)), clip=clip)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", category=RuntimeWarning)
        after = step(private, inputs)
    assert bool(torch.isfinite(after).all())


@pytest.mark.parametrize("value", [math.nan, math.inf], ids=["nan", "infinite"])
@pytest.mark.parametrize("perturb", ["gaussian", "tensor", "geodp", sgd.Geo(0.5, "gradient"), sgd.Geo(1.0)], ids=str)
def test_no_kind_of_noise_is_stopped_either(perturb, value):
    private = run(network(), TensorDataset(torch.randn(40, 4)), perturb=perturb)
    assert bool(torch.isfinite(step(private, batch((4,), value))).all())


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf], ids=str)
@pytest.mark.parametrize(("build", "shape"), [(network, (4,)), (tokens, (3, 4))], ids=["network", "tokens"])
@pytest.mark.parametrize("rule", sgd.CLIPS.values(), ids=sgd.CLIPS)
def test_an_example_that_is_not_finite_adds_nothing(rule, build, shape, value):
    """The clipped sum is that of the others."""
    model, inputs = build(), batch(shape, value)
    clip = rule()
    clip.start({name: 1 for name, layer in model.named_modules() if list(layer.parameters(recurse=False))})
    sums = []
    for examples in (inputs, inputs[1:]):
        recorder = sgd.Recorder(model)
        model(examples).square().sum().backward()
        sums.append(clip.total(recorder.parts(), 1.0))
        recorder.remove()
    for layer, entries in sums[0].items():
        for name, value_there in entries.items():
            torch.testing.assert_close(value_there, sums[1][layer][name], rtol=1e-5, atol=1e-7)


def test_angles_are_not_moved_by_an_example_that_is_not_finite():
    """Of all its angles only what every example adds is left: the clipped angles of a gradient of zero."""
    model = network()
    noise, clip = sgd.Geo(0.5), sgd.L2(1.0)
    shapes = {
        name: {own: value.shape for own, value in layer.named_parameters(recurse=False)}
        for name, layer in model.named_modules()
        if list(layer.parameters(recurse=False))
    }
    noise.start(clip, shapes)
    inputs, sums = batch((4,), math.nan), []
    for examples in (inputs, inputs[1:]):
        recorder = sgd.Recorder(model)
        model(examples).square().sum().backward()
        sums.append(noise.collect(clip, recorder.parts(), 1.0)[""])
        recorder.remove()
    assert float(sums[0]["magnitude"]) == pytest.approx(float(sums[1]["magnitude"]))
    moved = (sums[0]["angles"] - sums[1]["angles"]).numpy()
    assert np.isfinite(moved).all()
    assert float(np.linalg.norm(moved)) <= noise.diameter / 2 * (1 + 1e-6)


def test_the_quantile_counts_an_infinite_norm_once():
    """The noisy share of norms within the threshold changes by one half with any example."""
    rule = sgd.Quantile(1.0)
    counts = []
    for squares in ([0.25, 4.0], [0.25, 4.0, math.inf]):
        rule._within = 0.0
        rule.weights(torch.tensor([squares], dtype=torch.float64))
        counts.append(rule._within)
    assert abs(counts[1] - counts[0]) == 0.5


def test_advice_on_the_norm_is_not_stopped():
    """`advise_clip` counts norms; a norm that is not finite is in the last count."""
    torch.manual_seed(1)
    inputs = torch.randn(40, 4)
    inputs[3, 0] = math.nan
    private = run(nn.Linear(4, 2), TensorDataset(inputs, torch.zeros(40, dtype=torch.long)), advice_steps=2)
    advice = sgd.advise_clip(private, functional.cross_entropy, rounds=2)
    assert math.isfinite(advice.l2_clip_norm)


def test_an_observer_is_not_stopped():
    private = run(network(), TensorDataset(torch.randn(40, 4)))
    observer = sgd.Observer(private, draws=2, rng=2)
    step(private, batch((4,), math.inf))
    assert math.isfinite(observer.steps[0].made.item_a)


@pytest.mark.parametrize("value", [math.nan, math.inf], ids=str)
def test_a_loss_of_chances_is_not_stopped(value):
    """`binary_cross_entropy` raises "all elements of input should be between 0 and 1" where one is no number."""
    torch.manual_seed(2)
    inputs, sums = batch((4,), value), []
    inputs[0, 1] = -value
    private = run(nn.Sequential(nn.Linear(4, 1), nn.Sigmoid()), TensorDataset(torch.randn(40, 4)))
    for examples in (inputs, inputs[1:]):
        private.optimizer.zero_grad()
        nn.BCELoss()(private.model(examples), torch.ones(len(examples), 1)).backward()
        sums.append(private.optimizer.clip.total(*private.optimizer.recorded())["0"]["weight"])
    torch.testing.assert_close(sums[0], sums[1], rtol=1e-6, atol=0.0)


def test_anomaly_detection_is_refused_whatever_the_examples_are():
    """It stops the loop at the first gradient that is no number, with the name of the function."""
    private = run(network(), TensorDataset(torch.randn(40, 4)))
    with torch.autograd.set_detect_anomaly(True), pytest.raises(RuntimeError, match="check_nan=False"):
        step(private, batch((4,), 0.5))
    with torch.autograd.set_detect_anomaly(True, check_nan=False):
        assert bool(torch.isfinite(step(private, batch((4,), math.nan))).all())
