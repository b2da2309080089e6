"""What private training refuses, each with the reason."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from noisette import sgd
from noisette.sgd.clipping import L2
from noisette.sgd.theory.steps import measured

DATA = TensorDataset(torch.randn(40, 4), torch.zeros(40, 2))


def start(model=None, loader=None, **options):
    model = nn.Linear(4, 2) if model is None else model
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = DataLoader(DATA, batch_size=10) if loader is None else loader
    return sgd.make_private(model, optimizer, loader, **({"target": (3.0, 1e-5), "epochs": 1, "rng": 1} | options))


REFUSED = {
    "a share of nothing": (lambda: sgd.PerLayer(1.0, shares=(1.0, 0.0)), "> 0, one for each layer"),
    "an infinite share": (lambda: sgd.PerLayer(1.0, shares=(1.0, math.inf)), "> 0, one for each layer"),
    "more shares than layers": (
        lambda: start(clip=sgd.PerLayer(1.0, shares=(1.0, 2.0, 3.0))),
        r"Expected \d shares, one for each of .*; got 3",
    ),
    "more budgets than layers": (
        lambda: sgd.Layered((1.0, 2.0, 3.0)).scales({"a": 0, "b": 0}, sgd.PerLayer(1.0), 1.0),
        "Expected 2 shares, one for each of a, b; got 3",
    ),
    "a budget of nothing": (lambda: sgd.Layered((1.0, 0.0)), "> 0, one for each layer"),
    "an infinite budget": (lambda: sgd.Layered((math.inf, 1.0)), "> 0, one for each layer"),
    "budgets without clipping by layer": (lambda: start(perturb=sgd.Layered()), "need clipping by layer"),
    "a quantile of 0": (lambda: sgd.Quantile(1.0, quantile=0.0), "quantile=0.0 between 0 and 1"),
    "a quantile of 1": (lambda: sgd.Quantile(1.0, quantile=1.0), "quantile=1.0 between 0 and 1"),
    "a count that takes all": (lambda: sgd.Quantile(1.0, share=1.0), "share=1.0 between 0 and 1"),
    "a count that takes nothing": (lambda: sgd.Quantile(1.0, share=0.0), "share=0.0 between 0 and 1"),
    "several devices": (lambda: start(nn.DataParallel(nn.Linear(4, 2))), "give model.module"),
    "no loader": (lambda: start(loader=[1, 2]), "a torch DataLoader"),
    "a loader without batches": (lambda: start(loader=DataLoader(DATA, batch_size=None)), "with a batch_size"),
    "an empty batch of texts": (
        lambda: sgd.PoissonLoader(
            [1, 2], 0.5, steps=1, collate=lambda rows: "text", rng=np.random.default_rng(1)
        ).fetch([]),
        "tensors, lists and dicts, got str",
    ),
    "a single row": (lambda: measured(np.ones((1, 3)), np.ones(3)), "two rows or more"),
    "rows of one entry": (lambda: measured(np.ones((3, 1)), np.ones(1)), "two entries or more"),
}


@pytest.mark.parametrize(("made", "words"), REFUSED.values(), ids=REFUSED)
def test_refused(made, words):
    with pytest.raises((ValueError, TypeError), match=words):
        made()


@pytest.mark.parametrize("entered", [torch.randn(5, 3), [torch.randn(5, 3)]], ids=["one sequence", "a list"])
def test_a_recurrence_takes_batches_of_sequences_only(entered):
    with pytest.raises(TypeError, match="three axes"):
        sgd.with_open_recurrence(nn.GRU(3, 4))(entered)


def test_packed_sequences_are_refused_with_a_remedy_that_works():
    net, sequences, lengths = nn.GRU(3, 4, batch_first=True), torch.randn(3, 5, 3), torch.tensor([5, 2, 4])
    opened = sgd.with_open_recurrence(net)
    packed = nn.utils.rnn.pack_padded_sequence(sequences, lengths, batch_first=True, enforce_sorted=False)
    with pytest.raises(TypeError, match=r"not a packed one\. Pad them to one length .* at its own length"):
        opened(packed)
    last = opened(sequences)[0][torch.arange(3), lengths - 1]
    torch.testing.assert_close(last, net(packed)[1][-1])


def test_budgets_for_another_number_of_layers_are_refused():
    model = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2))
    private = start(model, clip=sgd.PerLayer(1.0), perturb=sgd.Layered((1.0, 2.0, 3.0)))
    inputs, targets = next(iter(private.loader))
    nn.functional.mse_loss(private.model(inputs), targets).backward()
    with pytest.raises(ValueError, match="Expected 2 shares"):
        private.optimizer.step()


class Blurred(nn.Module):
    """Owns a parameter and draws one random number for all examples."""

    def __init__(self):
        super().__init__()
        self.factor = nn.Parameter(torch.ones(4))

    def forward(self, x):
        return torch.rand(()) * x * self.factor


def test_a_layer_that_learns_and_draws_for_all_examples_at_once_is_refused():
    with pytest.raises((TypeError, ValueError), match="draws random numbers"):
        start(nn.Sequential(Blurred(), nn.Linear(4, 2)))


def test_just_so_much_room_is_left_to_rounding() -> None:
    """4 x 2^28 x 2^17 units of 2^-53 are a sixty-fourth; 2^17 roundings are pieces, examples of a piece and more."""
    processes, clip = 2**17 - 2 * 2**14 - 7, L2(1.0)
    clip.leave_room(2**28, 2**14, processes)
    assert clip.kept == 1 - 2.0**-6
    with pytest.raises(ValueError, match="take physical_batch nearer to 16384"):
        clip.leave_room(2**28, 2**14, processes + 1)
