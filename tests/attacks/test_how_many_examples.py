"""One example more moves no other example's gradient: not in half precision either, where 1 / n has eight bits.

With a loss divided by n in bfloat16, the gradients of a thousand equal examples were rounded in one direction for n and
in another for n + 1: the clipped sum moved by 3.5 times the bound that the noise is made for.
"""

import contextlib
import itertools
import math

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

from noisette import _random, sgd
from noisette.sgd.sampling import renew_chance

pytestmark = pytest.mark.filterwarnings("ignore:This step is not on a batch")
MOST = 1000


class Sums:
    """Keeps what a step summed up."""

    def collect(self, parts, scale):
        pass

    def release(self, sums, released, multiplier):
        self.last = torch.cat([value.flatten() for own in sums.values() for value in own.values()]).clone()


def mean_of_squares(made, targets):
    return made.square().sum(1).mean()


LOSSES = {
    "cross entropy": functional.cross_entropy,
    "squares": lambda made, targets: functional.mse_loss(made, torch.ones_like(made)),
    "binary": lambda made, targets: functional.binary_cross_entropy_with_logits(made, torch.ones_like(made)),
    "divergence": lambda made, targets: functional.kl_div(
        made.log_softmax(1), torch.ones_like(made) / 3, reduction="batchmean"
    ),
    "smooth": lambda made, targets: functional.smooth_l1_loss(made, torch.zeros_like(made)),
    "mean": mean_of_squares,
    "quotient": lambda made, targets: made.square().sum(1).sum() / len(made),
    "soft targets": lambda made, targets: functional.cross_entropy(made, torch.full_like(made, 1 / 3)),
}
KINDS = {
    "float32": (torch.float32, contextlib.nullcontext),
    "bfloat16": (torch.bfloat16, contextlib.nullcontext),
    "float16": (torch.float16, contextlib.nullcontext),
    "autocast": (torch.float32, lambda: torch.autocast("cpu", dtype=torch.bfloat16)),
}


def network(kind):
    torch.manual_seed(2)
    return nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)).to(kind)


def run(model, inputs, targets, **options):
    loader = DataLoader(TensorDataset(inputs, targets), batch_size=8)
    optimizer = options.pop("optimizer", torch.optim.SGD)(model.parameters(), lr=0.1)
    return sgd.make_private(model, optimizer, loader, target=(3.0, 1e-5), epochs=9, rng=1, **options)


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
@pytest.mark.parametrize(("kind", "context"), KINDS.values(), ids=KINDS)
def test_an_example_more_moves_the_sum_by_its_bound_at_most(kind, context, loss):
    torch.manual_seed(0)
    inputs = torch.randn(1, 4).expand(MOST, 4).clone().to(kind)
    targets = torch.zeros(MOST, dtype=torch.long)
    model = network(kind)
    private = run(model, inputs, targets)
    private.optimizer.watcher = seen = Sums()
    start = {name: value.clone() for name, value in model.state_dict().items()}
    sums = []
    for size in range(MOST - 4, MOST + 1):
        model.load_state_dict(start)
        private.optimizer.zero_grad()
        with context():
            made = private.model(inputs[:size])
        loss(made, targets[:size]).backward()
        private.optimizer.step()
        sums.append(seen.last)
    apart = [float((one - other).norm()) for one, other in itertools.pairwise(sums)]
    assert max(apart) <= private.optimizer.clip.bound
    assert min(apart) > 0  # the example that came is seen


def test_a_mean_that_was_taken_in_half_precision_is_refused():
    """Inside of a model nobody sees the division."""

    class Own(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 3).bfloat16()

        def forward(self, x):
            return self.layer(x).square().sum(1)

    inputs = torch.randn(40, 4).bfloat16()
    private = run(Own(), inputs, torch.zeros(40))
    private.optimizer.zero_grad()
    loss = private.model(inputs).sum()  # in bfloat16, and not divided at all
    with pytest.raises(ValueError, match="mean loss is in half precision"):
        loss.backward()


def test_two_losses_of_one_batch_have_one_scale():
    torch.manual_seed(0)
    inputs, targets = torch.randn(6, 4), torch.zeros(6, dtype=torch.long)
    found = []
    for parts in (1, 2):
        private = run(network(torch.float32), inputs.repeat(8, 1), targets.repeat(8), clip=1e6)
        private.optimizer.watcher = seen = Sums()
        made = private.model(inputs)
        for _ in range(parts):
            (functional.cross_entropy(made, targets) / parts).backward(retain_graph=True)
        private.optimizer.step()
        found.append(seen.last)
    torch.testing.assert_close(found[0], found[1])
    plain = network(torch.float32)
    functional.cross_entropy(plain(inputs), targets, reduction="sum").backward()
    expected = torch.cat([value.grad.flatten() for value in plain.parameters()]).double()
    assert math.isclose(float(found[0].norm()), float(expected.norm()), rel_tol=1e-4)


def test_the_state_of_lbfgs_keeps_no_loss():
    """Its checkpoint held the loss of the last batch as it was, which no noise protects."""
    torch.manual_seed(0)
    inputs, targets = torch.randn(40, 4), torch.zeros(40, dtype=torch.long)

    def lbfgs(parameters, lr):
        return torch.optim.LBFGS(parameters, lr=lr, max_iter=1)

    private = run(network(torch.float32), inputs, targets, optimizer=lbfgs)

    def closure():
        private.optimizer.zero_grad()
        loss = functional.cross_entropy(private.model(inputs), targets)
        loss.backward()
        return loss

    loss = private.optimizer.step(closure)
    (state,) = private.optimizer.state_dict()["inner"]["state"].values()
    assert "prev_loss" in state
    assert float(state["prev_loss"]) != float(loss.detach())


class Tied(nn.Module):
    """A weight that two layers hold, whose two gradients nearly cancel."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(2)
        self.one, self.other = nn.Linear(4, 3, bias=False), nn.Linear(4, 3, bias=False)
        self.other.weight = self.one.weight

    def forward(self, x):
        return self.one(x) - 0.9 * self.other(x)


@pytest.mark.parametrize("most", [20, 1000])
def test_an_example_more_does_not_change_how_tied_weights_are_measured(most, monkeypatch):
    """Up to so many examples had the norm of their sum, and one more gave all of them the sum of two norms."""
    monkeypatch.setattr("noisette.sgd.recording.layers._FORMED", 12 * most)
    inputs = 30 * torch.ones(most + 1, 4) if most < 100 else 30 * torch.ones(60, 4)
    private = run(Tied(), inputs, torch.zeros(len(inputs)), loss_reduction="sum")
    private.optimizer.watcher = sums = Sums()
    found = []
    for size in (len(inputs) - 1, len(inputs)):
        private.optimizer.zero_grad()
        private.model(inputs[:size]).sum().backward()
        private.optimizer.step()
        found.append(sums.last)
    assert float((found[1] - found[0]).norm()) <= 1.0


def masks(rng, again):
    """Return what dropout leaves of ones, in a batch of a run and in a second call, from a seed that everybody knows.

    ``again`` sets it before the second call, too.
    """
    model = nn.Sequential(nn.Linear(32, 32), nn.Dropout(0.5))
    dataset = TensorDataset(torch.ones(8, 32))
    loader = DataLoader(dataset, batch_size=8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    private = sgd.make_private(model, optimizer, loader, target=(3.0, 1e-2), epochs=2, rng=rng)
    nn.init.constant_(model[0].weight, 1.0)
    torch.manual_seed(0)
    (inputs,) = next(iter(private.loader))
    drawn = [torch.rand(8)]
    if again:
        torch.manual_seed(0)
    drawn += [private.model(inputs).detach() > 0, private.model(inputs).detach() > 0]
    return [part.numpy().tobytes() for part in drawn]


@pytest.mark.parametrize("again", [False, True], ids=["before the loop", "before each call"])
def test_nobody_knows_the_masks_of_dropout(again):
    """With one example more all behind it have other masks: from a known seed it moved a sum by 5.5 bounds."""
    first, second = masks(None, again), masks(None, again)
    assert len({*first, *second}) == 6
    with pytest.warns(UserWarning, match="known seed"):
        assert masks(1, again) == masks(1, again)


def test_chance_is_renewed_in_all_its_bits():
    """The words that are set are those that torch draws from: 624 of 32 bits, and no number that was kept back."""
    secret, seen = _random.generator(None), []
    for _ in range(2):
        torch.randn(1)  # which keeps a second number back
        renew_chance(secret)
        seen.append(torch.get_rng_state())
    words = [state.numpy()[24 : 24 + 8 * 624].view(np.uint64) for state in seen]
    assert (words[0] < 2**32).all()
    assert np.count_nonzero(words[0] == words[1]) <= 3  # a false alarm in 10^28
    plain = torch.Generator().manual_seed(5).get_state()
    assert int(plain.numpy()[24:32].view(np.uint64)[0]) == 5
    rest = slice(24 + 8 * 624, None)
    assert torch.equal(seen[0][rest], plain[rest])
    assert torch.equal(seen[0][8:24], plain[8:24])
    renew_chance(secret, always=False)
    assert torch.equal(torch.get_rng_state(), seen[1])  # nobody has seeded it since
