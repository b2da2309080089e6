"""Attack: move a sum that is taken in single precision by more than one example may.

A sum in single precision errs by a part of every example's bound, for each example of a batch, and an example that
comes or goes changes all of these errors. The attacker chooses examples whose errors all point one way, huge and tiny
factors, numbers that a processor may read as 0, and batches at the limit where the precision changes.
"""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

from noisette import sgd
from noisette.sgd.recording import _rows

FEW = 300
WIDE, LONG = 96, 131  # of a layer's input and output, no multiples of a tile


def uneven(size, seed):
    """Return numbers of a few last bits each, so that a growing sum is rounded the same way many times."""
    rng = np.random.default_rng(seed)
    return torch.from_numpy((1 + rng.choice([1, 3, 5, 7], size) * 2.0**-23).astype(np.float32))


def errors(examples):
    """Return the norm of the error of a sum of equal outer products, squared, and that of one of them."""
    left, right = uneven(WIDE, 1).repeat(examples, 1), uneven(LONG, 2).repeat(examples, 1)
    made = _rows.outer(left, right, torch.ones(examples, dtype=torch.float64), quick=True)
    assert made.dtype == torch.float32
    error = size = Fraction(0)
    sides = [[Fraction(number) for number in side[0].tolist()] for side in (left, right)]
    for (one, other), found in zip(itertools.product(*sides), made.flatten().tolist(), strict=True):
        error += (Fraction(found) - examples * one * other) ** 2
        size += (one * other) ** 2
    return error, size


def allowed(examples, roundings):
    """Return the square of that many half units of single precision, for each of the examples."""
    return (Fraction(examples) * Fraction(roundings) / 2 / 2**24) ** 2


@pytest.mark.parametrize("examples", [1, 2, 31, 32, 33, 100, 257, 300, 580])
def test_the_error_of_a_sum_is_within_its_bound_in_exact_numbers(examples):
    """32 examples in a chain, all chains in another, and eight; a bound without either chain is passed."""
    error, size = errors(examples)
    chains = math.ceil(examples / 32)
    assert error <= allowed(examples, 32 + chains + 8) * size
    assert _rows.quick_roundings(examples) == 32 + chains + 8
    if examples > 256:
        assert error > allowed(examples, 4) * size  # what a bound that forgot the chains would allow


def test_the_room_is_that_of_two_sums():
    rule = sgd.L2(1.0)
    rule.leave_room(60_000, 1024, few=FEW)
    room = Fraction(FEW * (32 + 10 + 8), 2**24)
    assert rule.few == FEW
    assert room * Fraction(1 + 2.0**-11) + Fraction(2.0**-17) < 1 - Fraction(rule.kept) < room + Fraction(2.0**-15)
    for many in (600, 10**6):  # more than 2^-9 of the norm
        rule.leave_room(60_000, 1024, few=many)
        assert (rule.few, rule.kept) == (0, 1 - 2.0**-16)


def test_the_room_is_exact_and_ends_where_it_takes_too_much():
    def quick(few):
        return Fraction(few * (32 + math.ceil(few / 32) + 8), 2**24) * Fraction(1025, 1024) + Fraction(1, 2**16)

    most = max(few for few in range(1, 1000) if quick(few) <= Fraction(1, 512))
    rule = sgd.L2(1.0)
    for few, kept in ((most, most), (1, 1), (most + 1, 0)):
        rule.leave_room(60_000, 1024, few=few)
        assert rule.few == kept
        assert rule.kept == pytest.approx(float(1 - (quick(few) if kept else Fraction(1, 2**16))), abs=2.0**-50)
    many, pieces = 10**8, math.ceil(10**8 / 1024)  # double precision takes more room than a few in single precision
    rule.leave_room(many, 1024, few=1)
    assert rule.few == 1
    assert rule.kept == pytest.approx(1 - 4 * many * (1024 + pieces + 8) / 2.0**53, abs=2.0**-50)


def parts_of(entering, leaving):
    """Return what a batch adds in a layer without a bias, whose gradient would be clipped with that of the weights."""
    layer = nn.Linear(WIDE, LONG, bias=False)
    recorder = sgd.Recorder(layer)
    (layer(entering) * leaving).sum().backward()
    parts = recorder.parts()
    recorder.remove()
    return parts


def summed(entering, leaving, clip):
    """Return the sum, as one row in extended precision, and the precision of its weights."""
    ((_, made),) = clip.totals(parts_of(entering, leaving), 1.0, quick=True)
    assert all(bool(torch.isfinite(value).all()) for value in made.values())
    row = np.concatenate([value.double().flatten().numpy() for value in made.values()]).astype(np.longdouble)
    return row, made["weight"].dtype


def crafted(kind, examples):
    """Return a batch whose gradients are far above the bound, or tiny, or both."""
    rng = np.random.default_rng(len(kind) + examples)
    entering, leaving = uneven(WIDE, 3).repeat(examples, 1), uneven(LONG, 4).repeat(examples, 1)
    if kind == "random":
        entering, leaving = (
            torch.from_numpy(rng.normal(size=side.shape).astype(np.float32)) for side in (entering, leaving)
        )
    scale = {"huge": 2.0**100, "large": 2.0**20, "tiny": 2.0**-60, "denormal": 2.0**-135}.get(kind, 1.0)
    entering = entering * scale
    if kind == "opposite scales":
        entering, leaving = entering * 2.0**-100, leaving * 2.0**100
    if kind == "mixed":
        sizes = torch.from_numpy(2.0 ** rng.integers(-140, 20, (examples, 1)).astype(np.float64))
        entering, leaving = (entering.double() * sizes).float(), (leaving.double() / sizes.clamp(min=2.0**-20)).float()
    if kind == "not finite":
        entering[::7] = math.inf
        leaving[::11] = math.nan
    return entering, leaving


KINDS = {  # and in which precision they are summed
    "equal": torch.float32,
    "random": torch.float32,
    "large": torch.float32,
    "huge": torch.float64,
    "tiny": torch.float32,
    "denormal": torch.float32,
    "opposite scales": torch.float64,
    "mixed": torch.float32,
    "not finite": torch.float32,
}


@pytest.mark.parametrize("flush", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_no_example_moves_a_sum_by_more_than_the_bound(kind, flush):
    """At the limit, below it and above it, where precision changes between the two sums."""
    clip = sgd.L2(0.7)
    clip.leave_room(60_000, 1024, few=FEW)
    torch.set_flush_denormal(flush)
    try:
        for examples in (2, 33, 257, FEW, FEW + 1):
            entering, leaving = crafted(kind, examples)
            whole, precision = summed(entering, leaving, clip)
            assert precision == (KINDS[kind] if examples <= FEW else torch.float64)
            for left_out in (0, examples // 2, examples - 1):
                rest = torch.arange(examples) != left_out
                less, _ = summed(entering[rest], leaving[rest], clip)
                assert float(np.sqrt(np.square(whole - less).sum())) <= clip.bound, (kind, examples, left_out)
    finally:
        torch.set_flush_denormal(False)


def test_without_room_an_example_moves_a_sum_by_more_than_the_bound():
    """The twin: where all numbers are equal all errors point one way, and double precision's room is too small."""
    moved = []
    entering, leaving = torch.ones(257, WIDE), torch.ones(257, LONG)
    for bound in np.linspace(0.5, 1.0, 20):
        clip = sgd.L2(float(bound))
        clip.leave_room(60_000, 1024, few=FEW)
        for kept in (clip.kept, 1 - 2.0**-16):
            clip.kept = kept
            whole, less = (summed(entering[start:], leaving[start:], clip)[0] for start in (0, 1))
            moved.append(float(np.sqrt(np.square(whole - less).sum())) / clip.bound)
    assert max(moved[::2]) <= 1
    assert max(moved[1::2]) > 1


@pytest.mark.parametrize("bound", [2.0**-29, 2.0**-30, math.nextafter(2.0**-30, 0)])
def test_a_bound_that_underflow_could_matter_to_takes_double_precision(bound):
    clip = sgd.L2(bound)
    clip.leave_room(60_000, 1024, few=FEW)
    assert summed(*crafted("equal", 5), clip)[1] == (torch.float32 if bound >= 2.0**-30 else torch.float64)


def test_an_example_of_weight_nothing_adds_nothing():
    clip = sgd.L2(1.0)
    clip.leave_room(1000, 1024, few=FEW)
    entering, leaving = crafted("random", 40)
    entering[5], leaving[9] = math.inf, math.nan
    rest = [place for place in range(40) if place not in (5, 9)]
    assert np.array_equal(summed(entering, leaving, clip)[0], summed(entering[rest], leaving[rest], clip)[0])
    entering[:] = math.inf
    assert not summed(entering, leaving, clip)[0].any()


def trained(*, examples=200, batch=60, watched=False, **settings):
    """Return a private run of a model with a large layer, and the gradient of its first batch."""
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(300, 256), nn.ReLU(), nn.Linear(256, 4))
    data = TensorDataset(torch.randn(examples, 300), torch.randint(0, 4, (examples,)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    private = sgd.make_private(
        model, optimizer, DataLoader(data, batch_size=batch), target=(3.0, 1e-3), epochs=1, rng=1, **settings
    )
    if watched:
        private.optimizer.watcher = Nobody()
    for inputs, targets in private.loader:
        private.optimizer.zero_grad()
        functional.cross_entropy(model(inputs), targets).backward()
        private.optimizer.step()
        if private.optimizer.stepped:
            break
    return private, torch.cat([parameter.grad.flatten() for parameter in model.parameters()])


class Nobody:
    """A watcher that looks at nothing: with it all sums are in double precision."""

    def collect(self, parts, scale):
        pass

    def release(self, sums, released, multiplier):
        pass


@pytest.mark.filterwarnings("ignore::noisette.PrivacyWarning")
def test_a_run_in_single_precision_releases_what_one_in_double_precision_does():
    private, quick = trained()
    other, slow = trained(watched=True)
    assert private.optimizer.clip.few == other.optimizer.clip.few == math.ceil(60 + 8 * math.sqrt(60) + 16)
    for physical_batch, few in ((60, 138), (59, 0)):  # batches of one piece alone
        private.loader.physical_batch = physical_batch
        assert private.optimizer._few() == few
    private.loader.size, private.loader.sampling_prob, private.loader.physical_batch = 100, 0.6, 60
    assert private.optimizer._few() == 100  # no batch has more than all
    assert quick.dtype == slow.dtype == torch.float32
    gap = (quick.double() - slow.double()) * 60
    assert 0 < float(gap.norm()) < 1 - private.optimizer.clip.kept


@pytest.mark.filterwarnings("ignore::noisette.PrivacyWarning")
@pytest.mark.parametrize(
    "settings",
    [
        {"physical_batch": 50},
        {"clip": sgd.LInf(0.01)},
        {"perturb": sgd.TensorPerturbation()},
        {"batch": 600, "examples": 3000},
    ],
    ids=str,
)
def test_other_runs_keep_double_precision_and_its_room(settings):
    private, _ = trained(**settings)
    assert private.optimizer.clip.few == 0
    assert private.optimizer.clip.kept == 1 - 2.0**-16
