"""Linear layers by oneDNN: the same numbers as by torch's own function, forward and back, and once more."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from noisette.sgd.recording import _products
from noisette.sgd.recording.gradients import Recorder
from noisette.sgd.recording.verification import _chosen


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


def test_what_is_taken_and_what_is_left_to_torch(monkeypatch):
    """One thing is wrong at a time."""
    entered, weight, bias = torch.zeros(2, 5, 3), torch.zeros(4, 3), torch.zeros(4)
    assert _products.takes(entered, weight, bias)
    assert _products.takes(entered, weight, None)
    assert _products.takes(torch.zeros(3), weight, None)
    assert not _products.takes(torch.zeros(2, 3, 5), weight, None)  # the last axis counts
    assert not _products.takes(entered, torch.zeros(3, 4), None)
    assert not _products.takes(entered.double(), weight, bias)
    assert not _products.takes(entered, weight.double(), bias.double())
    assert not _products.takes(entered, weight, bias.double())
    assert not _products.takes(nn.Parameter(entered), weight, bias)
    with torch.autocast("cpu"):
        assert not _products.takes(entered, weight, bias)
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    assert not _products.takes(entered, weight, bias)


@pytest.mark.parametrize("examples", [0, 1, 2, 7, 300])
@pytest.mark.parametrize("outputs", [1, 5, 11, 16])
@pytest.mark.parametrize("biased", [True, False])
def test_few_outputs_are_those_of_the_layer(examples, outputs, biased):
    torch.manual_seed(1)
    entered, weight = torch.randn(examples, 4097, requires_grad=True), torch.randn(outputs, 4097)
    bias = torch.randn(outputs) if biased else None
    made = _products.linear(entered, weight, bias)
    assert made.dtype == torch.float32
    torch.testing.assert_close(made.double(), exact(entered, weight, bias), rtol=1e-3, atol=1e-3)


def test_an_examples_few_outputs_have_the_same_bits_in_any_batch_and_with_any_number_of_threads():
    torch.manual_seed(1)
    entered, weight, bias = torch.randn(301, 784), torch.randn(12, 784), torch.randn(12)
    whole = _products.linear(entered, weight, bias)
    for start, stop in ((0, 1), (300, 301), (0, 2), (1, 4), (0, 300), (17, 250)):
        assert torch.equal(_products.linear(entered[start:stop], weight, bias), whole[start:stop])
    threads = torch.get_num_threads()
    try:
        for count in (1, 2, 3):
            torch.set_num_threads(count)
            assert torch.equal(_products.linear(entered, weight, bias), whole)
    finally:
        torch.set_num_threads(threads)


def test_the_loop_is_for_few_outputs_of_many_numbers_in_rows(monkeypatch):
    """One thing is wrong at a time."""
    called = []
    monkeypatch.setattr(_products, "_filling", lambda *given, **named: called.append(given))

    def calls(entered, weight, bias=None):
        called.clear()
        _products.linear(entered, weight, bias)
        return len(called) == 1

    assert calls(torch.zeros(3, 256), torch.zeros(16, 256))
    assert not calls(torch.zeros(3, 256), torch.zeros(17, 256))
    assert not calls(torch.zeros(3, 255), torch.zeros(16, 255))
    assert not calls(torch.zeros(3, 2, 256), torch.zeros(16, 256))
    assert not calls(torch.zeros(256), torch.zeros(16, 256))
    assert not calls(torch.zeros(256, 3).T, torch.zeros(16, 256))
    assert not calls(torch.zeros(3, 256), torch.zeros(256, 16).T)
    assert not calls(torch.zeros(3, 256).double(), torch.zeros(16, 256).double())


def test_examples_are_chosen_where_there_is_one_for_each():
    drawn = lambda row, salt: row + salt  # noqa: E731

    def chosen(batch):
        return _chosen(batch, 3, [2, 0], [10, 20], drawn)

    number, other = torch.tensor(5.0), torch.arange(4.0)
    assert chosen(number) is number
    assert chosen(other) is other
    assert chosen(torch.tensor([7, 8, 9])).tolist() == [9, 7]
    assert chosen(torch.tensor([7.0, 8.0, 9.0])).tolist() == [19.0, 27.0]
    nested = chosen({"a": [torch.tensor([7, 8, 9]), "text"], "b": (other,)})
    assert (nested["a"][0].tolist(), nested["a"][1], nested["b"][0] is other) == ([9, 7], "text", True)


def test_onednn_is_called_for_large_products_of_single_precision_alone(monkeypatch):
    called = []
    monkeypatch.setattr(_products, "_call", lambda *given: called.append(given) or torch.ones(1))

    def calls(entered, weight):
        called.clear()
        _products.linear(entered, weight, None)
        return len(called) == 1

    weight = torch.zeros(512, 8)
    assert calls(torch.zeros(128, 8), weight)  # 2^19 multiplications
    assert not calls(torch.zeros(127, 8), weight)
    assert not calls(torch.zeros(128, 8, dtype=torch.float64), weight.double())
    monkeypatch.setattr(_products, "_backend", SimpleNamespace(enabled=False))
    assert not calls(torch.zeros(128, 8), weight)
    monkeypatch.setattr(_products, "_backend", SimpleNamespace(enabled=True))
    monkeypatch.setattr(_products, "_call", None)
    assert _products.linear(torch.zeros(128, 8), weight, None).shape == (128, 512)
