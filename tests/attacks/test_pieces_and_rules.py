"""Attacks on what a step sums and on the rules that bound it: pieces of two batches, rules shared by two runs."""

import math
import subprocess
import sys
import warnings

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Subset, TensorDataset

from noisette import sgd


def start(model=None, dataset=None, *, batch=20, **options):
    model = nn.Linear(4, 1, bias=False) if model is None else model
    dataset = TensorDataset(torch.ones(40, 4), torch.zeros(40, 1)) if dataset is None else dataset
    options = {"target": (3.0, 1e-5), "epochs": 20, "rng": 1} | options
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    return sgd.make_private(model, optimizer, DataLoader(dataset, batch_size=batch), **options)


def add(private, batch):
    private.optimizer.zero_grad()
    private.model(batch[0]).mean().backward()
    private.optimizer.step()


def summed(private):
    """Return the length of what is summed so far: the ones above all point one way, so that lengths add up."""
    return math.sqrt(sum(float(v.square().sum()) for own in private.optimizer._sums.values() for v in own.values()))


def test_a_loop_is_left_in_the_middle_of_a_batch_again_and_again():
    """Every loop adds the first piece of a new batch. One example is in many batches, and counted once for each."""
    private = start(physical_batch=3)
    for _ in range(30):
        for batch in private.loader:
            add(private, batch)
            break
        assert private.optimizer.steps == 0
        assert summed(private) <= 3.0


def test_the_last_piece_of_every_batch_is_passed_over():
    private = start(physical_batch=3)
    for _ in range(3):
        for batch in private.loader:
            if not private.loader.complete:
                add(private, batch)
                assert summed(private) <= 40.0  # of 40 examples, each is in it at most once
    assert private.optimizer.steps == 0


def test_the_same_piece_is_stepped_on_until_the_sum_is_large():
    """What the loader did not give is a batch of its own, and costs a step each time."""
    private = start(physical_batch=3)
    batch = next(iter(private.loader))
    add(private, batch)
    for made in range(1, 4):
        with pytest.warns(UserWarning, match="not on a batch"):
            add(private, batch)
        assert private.optimizer.steps == made
        assert private.optimizer._sums is None


def test_the_pieces_of_a_batch_do_not_tell_how_many_examples_it_has():
    """A schedule that moves with every piece gave away, by the learning rate, how many there had been."""
    private = start(batch=12, physical_batch=7)
    for _ in range(10):
        ends = []
        for _ in private.loader:
            ends.append(private.loader.complete)
        assert len(ends) == len(private.loader)
        assert ends == [False] * 5 + [True] + [False] * 5 + [True] + [False] * 5 + [True]
    assert private.loader.pieces == 6  # for all 40 examples, of which some 12 come


def test_a_batch_that_is_left_has_counted_nobody():
    private = start(physical_batch=3, clip="quantile")
    for _ in range(30):
        for batch in private.loader:
            add(private, batch)
            break
    assert abs(private.optimizer.clip._within) <= 1.5


@pytest.mark.parametrize("kind", sgd.CLIPS)
def test_a_rule_serves_a_second_run_with_a_smaller_model(kind):
    """The noise of the first run would follow the second model."""
    rule = sgd.CLIPS[kind]()
    first = start(nn.Sequential(nn.Linear(4, 50), nn.Linear(50, 1)), clip=rule)
    bound, kept = first.optimizer.clip.bound, first.optimizer.clip.kept
    start(nn.Linear(4, 1), clip=rule)
    assert (first.optimizer.clip.bound, first.optimizer.clip.kept) == (bound, kept)
    add(first, next(iter(first.loader)))


def test_noise_serves_a_second_run_with_a_smaller_model():
    noise = sgd.Geo(0.3)
    first = start(nn.Sequential(nn.Linear(4, 50), nn.Linear(50, 1)), perturb=noise)
    diameter = first.optimizer.perturb.diameter
    start(nn.Linear(4, 1), perturb=noise)
    assert first.optimizer.perturb.diameter == diameter


@pytest.mark.parametrize("kind", ["per-layer", "curvature"])
def test_the_norm_is_lowered_while_thresholds_stay(kind):
    """Noise follows the norm, so that thresholds must."""
    private = start(nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 1)), clip=kind)
    private.optimizer.clip.l2_clip_norm = 0.01
    assert math.hypot(*private.optimizer.clip.thresholds) <= private.optimizer.clip.bound == 0.01


class Hidden(TensorDataset):
    """Shows zeros, whatever it holds."""

    def __getitem__(self, index):
        return tuple(torch.zeros_like(tensor[index]) for tensor in self.tensors)


def test_a_data_set_that_shows_less_than_it_holds():
    """Its tensors are not read past it."""
    private = start(dataset=Hidden(torch.ones(40, 4), torch.ones(40, 1)))
    assert not any(float(tensor.abs().sum()) for batch in private.loader for tensor in batch)


def test_a_collate_function_of_tensors_is_called():
    model = nn.Linear(4, 1)
    loader = DataLoader(
        TensorDataset(torch.ones(40, 4)), batch_size=20, collate_fn=lambda rows: [0 * torch.stack([r[0] for r in rows])]
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    private = sgd.make_private(model, optimizer, loader, target=(3.0, 1e-5), epochs=1, rng=1)
    assert not any(float(tensor.abs().sum()) for batch in private.loader for tensor in batch)


def test_a_subset_repeats_an_example():
    whole = TensorDataset(torch.ones(40, 4), torch.zeros(40, 1))
    with pytest.raises(ValueError, match="without repetitions"):
        start(dataset=Subset(whole, [0] * 40))


@pytest.mark.parametrize("weight", [0.0, 1e-12, 1e-42, 1e25])
@pytest.mark.parametrize("feature", [0.0, 1e-30, 1e-40])
def test_an_example_without_a_direction_warns_of_nothing_in_geodp(feature, weight):
    """A gradient of zeros, or one that single precision cannot scale, is no reason for a warning or for NaN."""
    inputs, weights = torch.randn(20, 4, generator=torch.Generator().manual_seed(1)), torch.ones(20, 1)
    inputs[0], weights[0] = feature, weight
    model = nn.Linear(4, 1, bias=False)
    private = start(model, TensorDataset(inputs, weights), perturb=sgd.Geo(0.3))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for inputs, weights in private.loader:
            private.optimizer.zero_grad()
            (model(inputs) * weights).mean().backward()
            private.optimizer.step()
            assert model.weight.grad.isfinite().all()


@pytest.mark.long
def test_fast_products_are_asked_for_in_torchs_new_way():
    """Norms that rest on the rounding of single precision are then not used; in a process of its own."""
    program = """
import torch
from noisette.sgd.recording.layers import _known_precision
assert _known_precision(torch.zeros(1))
torch.backends.mkldnn.matmul.fp32_precision = "bf16"
assert not _known_precision(torch.zeros(1))
torch.backends.mkldnn.matmul.fp32_precision = "none"
torch.backends.fp32_precision = "tf32"
assert not _known_precision(torch.zeros(1))
assert _known_precision(torch.zeros(1, dtype=torch.float64))
"""
    subprocess.run([sys.executable, "-c", program], check=True)
