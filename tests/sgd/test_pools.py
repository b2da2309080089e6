"""The largest of two by two pixels: torch's numbers, forward and back, at the ends and with what is not a number."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from torch import nn

from noisette.sgd.recording import _pools
from noisette.sgd.recording.gradients import Recorder


def pooled(entered, gradient, forward):
    """Return what a pool makes of its input, and the gradient there."""
    entered = entered.clone().requires_grad_()
    made = forward(entered)
    made.backward(gradient)
    return made.detach(), entered.grad


@pytest.mark.parametrize("kind", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("shape", [(2, 3, 4, 6), (3, 2, 5, 7), (2, 2, 2, 2), (5, 2, 33, 70)], ids=str)
def test_numbers_are_those_of_torch(shape, kind):
    torch.manual_seed(1)
    layer = nn.MaxPool2d(2)
    entered = torch.randint(-3, 4, shape).to(kind)  # many are equal
    special = torch.tensor([torch.nan, torch.inf, -torch.inf, -0.0], dtype=kind)
    places = torch.randint(0, 12, shape)
    entered = torch.where(places < 4, special[places.clamp(max=3)], entered)
    gradient = torch.randn_like(layer(entered))
    for mine, theirs in zip(
        pooled(entered, gradient, _pools.Pool(layer)), pooled(entered, gradient, layer), strict=True
    ):
        torch.testing.assert_close(mine, theirs, rtol=0, atol=0, equal_nan=True)


def test_a_wrong_place_is_noticed(monkeypatch):
    monkeypatch.setattr(_pools, "_choosing", lambda given, out, at, **_: (out.fill(1.0), at.fill(3)))
    entered, gradient = torch.eye(4).reshape(1, 1, 4, 4).expand(2, 2, 4, 4).contiguous(), torch.ones(2, 2, 2, 2)
    mine, theirs = (pooled(entered, gradient, way)[1] for way in (_pools.Pool(nn.MaxPool2d(2)), nn.MaxPool2d(2)))
    assert not torch.equal(mine, theirs)


@pytest.mark.parametrize(
    "layer",
    [
        nn.MaxPool2d(3),
        nn.MaxPool2d(2, 1),
        nn.MaxPool2d(2, padding=1),
        nn.MaxPool2d(2, dilation=2),
        nn.MaxPool2d(2, ceil_mode=True),
        nn.MaxPool2d(2, return_indices=True),
        nn.AvgPool2d(2),
    ],
    ids=str,
)
def test_other_pools_stay_torchs(layer):
    assert not _pools.is_quick(layer)
    assert _pools.is_quick(nn.MaxPool2d((2, 2), (2, 2)))


def test_a_gradient_can_be_differentiated_again():
    torch.manual_seed(1)
    entered = torch.randn(2, 3, 5, 6, dtype=torch.float64, requires_grad=True)
    layer = nn.MaxPool2d(2)

    def curved(forward):
        (slope,) = torch.autograd.grad(forward(entered).pow(3).sum(), entered, create_graph=True)
        return torch.autograd.grad(slope.square().sum(), entered)[0]

    torch.testing.assert_close(curved(_pools.Pool(layer)), curved(layer))


def test_a_copy_and_a_model_that_is_given_back_pool_by_torch():
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.MaxPool2d(2))
    recorder = Recorder(model)
    assert isinstance(model[1].forward, _pools.Pool)
    for copied in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert copied[1].forward.__self__ is copied[1]
    recorder.remove()
    assert "forward" not in model[1].__dict__


def test_what_is_pooled_here_and_what_is_left_to_torch(monkeypatch):
    """One thing is wrong at a time: each condition alone sends the input to torch's own pool."""
    taken = []
    monkeypatch.setattr(_pools._Pooled, "apply", lambda entered: taken.append(entered) or torch.zeros(()))
    pool = _pools.Pool(nn.MaxPool2d(2))

    def takes(entered):
        taken.clear()
        pool(entered)
        return len(taken) == 1

    def wanted(*shape, **kind):
        return torch.zeros(shape, requires_grad=True, **kind)

    usual = wanted(2, 2, 2, 2)
    assert takes(usual * 1.0)
    assert not takes(torch.zeros(2, 2, 2, 2))  # nobody asks for its gradient
    assert not takes(wanted(2, 2, 2)[:])
    assert not takes(wanted(1, 2, 2, 2) * 1.0)
    assert not takes(wanted(2, 2, 2, 2, dtype=torch.bfloat16) * 1.0)
    assert not takes((wanted(2, 2, 2, 3) * 1.0).transpose(2, 3))
    assert not takes(nn.Parameter(torch.zeros(2, 2, 2, 2)))  # a kind of its own
    with torch.no_grad():
        assert not takes(usual)
    taken.clear()
    torch.func.vmap(lambda one: pool(one).sum())(wanted(3, 2, 2, 2, 2) * 1.0)
    assert not taken
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    assert not takes(usual * 1.0)
