"""Linear layers by oneDNN: the same numbers as by torch's own function, forward and back, and once more."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from noisette.sgd.recording import _products
from noisette.sgd.recording.gradients import Recorder


def exact(entered, weight, bias):
    """Return the product in double precision."""
    made = entered.double() @ weight.double().T
    return made if bias is None else made + bias.double()


@pytest.mark.parametrize("shape", [(3, 4), (200, 100), (9, 40, 100), (0, 100), (100,)], ids=str)
@pytest.mark.parametrize("biased", [True, False])
def test_products_are_those_of_the_layer(shape, biased):
    torch.manual_seed(1)
    entered, weight = torch.randn(shape), torch.randn(64, shape[-1])
    bias = torch.randn(64) if biased else None
    made = _products.linear(entered, weight, bias)
    assert made.dtype == torch.float32
    torch.testing.assert_close(made.double(), exact(entered, weight, bias), rtol=1e-4, atol=1e-4)


def test_what_is_not_laid_in_a_row_is_multiplied_too():
    torch.manual_seed(1)
    entered, weight = torch.randn(100, 300).T, torch.randn(100, 64).T
    torch.testing.assert_close(
        _products.linear(entered, weight, None).double(), exact(entered, weight, None), rtol=1e-4, atol=1e-4
    )


@pytest.mark.parametrize("found", [True, False])
def test_layers_learn_the_same_with_and_without_onednn(found, monkeypatch):
    if not found:
        monkeypatch.setattr(_products, "_call", None)
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(100, 80), nn.Tanh(), nn.Linear(80, 70))
    inputs = torch.randn(128, 100, requires_grad=True)
    expected = torch.autograd.grad(model(inputs).square().sum(), [inputs, *model.parameters()])
    recorder = Recorder(model)
    answer = model(inputs)
    answer.square().sum().backward()
    totals = [recorder.parts()[name].total(torch.ones(128, dtype=torch.float64)) for name in ("0", "2")]
    made = [inputs.grad, *(total[own] for total in totals for own in ("weight", "bias"))]
    for mine, theirs in zip(made, expected, strict=True):
        torch.testing.assert_close(mine.double(), theirs.double(), rtol=1e-3, atol=1e-3)
    recorder.remove()


def test_a_gradient_can_be_differentiated_again():
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(100, 80), nn.Tanh(), nn.Linear(80, 70)).double()
    inputs = torch.randn(6, 100, dtype=torch.float64, requires_grad=True)

    def curved():
        size = model(inputs).square().sum().as_subclass(torch.Tensor)
        (slope,) = torch.autograd.grad(size, inputs, create_graph=True)
        return torch.autograd.grad(slope.square().sum(), inputs)[0]

    expected = curved()
    recorder = Recorder(model)
    torch.testing.assert_close(curved(), expected)
    recorder.remove()


def test_weights_that_change_before_the_way_back_are_refused():
    model = nn.Linear(100, 80)
    inputs = torch.randn(128, 100, requires_grad=True)
    recorder = Recorder(model)
    answer = model(inputs)
    with torch.no_grad():
        model.weight.add_(1.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        answer.sum().backward()
    recorder.remove()
