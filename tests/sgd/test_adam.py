"""Adam with the noise taken off its second moment, against the formula and against torch's Adam."""

import math

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from noisette import sgd


def run(optimizer, weight, gradients, noises):
    for gradient, noise in zip(gradients, noises, strict=True):
        weight.grad = gradient.clone()
        optimizer.noise = noise
        optimizer.step()
    return weight.detach()


def test_steps_are_those_of_the_formula():
    rng = np.random.default_rng(1)
    gradients, noises = rng.normal(size=(6, 5)), [0.3, 0.3, 0.2, 0.5, 0.5, 0.1]
    weight = nn.Parameter(torch.zeros(5, dtype=torch.float64))
    optimizer = sgd.AdamBC([weight], lr=0.1, betas=(0.8, 0.9), floor=1e-3)
    seen = run(optimizer, weight, torch.from_numpy(gradients), noises)
    place = np.zeros(5)
    for step in range(1, 7):
        ages = np.arange(step)[::-1]
        mean = (0.2 * 0.8**ages) @ gradients[:step] / (1 - 0.8**step)
        above = (0.1 * 0.9**ages) @ (gradients[:step] ** 2 - np.square(noises[:step])[:, None]) / (1 - 0.9**step)
        place -= 0.1 * mean / np.sqrt(np.maximum(above, 1e-3))
    np.testing.assert_allclose(seen.numpy(), place, rtol=1e-12)
    other = nn.Parameter(torch.zeros(5, dtype=torch.float64))
    raw = run(sgd.AdamBC([other], lr=0.1, betas=(0.8, 0.9), floor=1e-3), other, torch.from_numpy(gradients), [0.0] * 6)
    assert not np.allclose(raw.numpy(), place, rtol=1e-3)  # a twin that forgets the noise is told apart


def test_without_noise_it_is_adam():
    gradients = torch.randn(5, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    one, other = (nn.Parameter(torch.zeros(4, dtype=torch.float64)) for _ in range(2))
    mine = run(sgd.AdamBC([one], lr=0.1, floor=1e-300), one, gradients, [0.0] * 5)
    theirs = run(torch.optim.Adam([other], lr=0.1, eps=0.0), other, gradients, [0.0] * 5)
    torch.testing.assert_close(mine, theirs, rtol=1e-12, atol=0.0)


@pytest.mark.slow
def test_a_private_run_tells_the_noise_and_resumes():
    def start(**options):
        model = nn.Linear(4, 2)
        data = DataLoader(TensorDataset(torch.randn(40, 4), torch.zeros(40, 2)), batch_size=8)
        options = {"target": (3.0, 1e-5), "epochs": 2, "clip": 0.5, "rng": 1} | options
        return sgd.make_private(model, sgd.AdamBC(model.parameters(), lr=0.1), data, **options)

    private = start()
    model, optimizer, loader = private
    for inputs, targets in loader:
        optimizer.zero_grad()
        nn.functional.mse_loss(model(inputs), targets).backward()
        optimizer.step()
    assert optimizer.inner.noise == pytest.approx(optimizer.budget.multiplier * 0.5 / 8, rel=1e-3)
    again = start()
    again.optimizer.load_state_dict(optimizer.state_dict())
    seen = [state["noise"] for state in again.optimizer.inner.state.values()]
    assert seen == [pytest.approx((1 - 0.999**5) * optimizer.inner.noise**2, rel=1e-6)] * 2
    with pytest.raises(ValueError, match="AdamBC needs noise of one size"):
        start(clip="per-layer", perturb="layered")


def test_settings_that_make_no_sense_are_refused():
    weight = [nn.Parameter(torch.zeros(1))]
    with pytest.raises(ValueError, match=r"betas=\(0.9, 1.0\)"):
        sgd.AdamBC(weight, betas=(0.9, 1.0))
    with pytest.raises(ValueError, match="floor"):
        sgd.AdamBC(weight, floor=-math.inf)
