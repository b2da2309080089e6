"""Attacks of a loop and a model that mix examples where three examples at make_private do not show it.

A loop may mix a batch before the model sees it, weigh a loss by the targets of all, or rank the examples; a model may
mix large batches only, or begin later. Each of these moved the clipped sum by several times the bound of the noise.
"""

import pickle

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

from noisette import sgd
from noisette.sgd.recording.tape import Tape

OWN = "no gradient is one example's own"


def start(model=None, *, batch=20, **options):
    torch.manual_seed(0)
    model = nn.Linear(4, 3) if model is None else model
    inputs = torch.randn(40, 4, generator=torch.Generator().manual_seed(1))
    dataset = TensorDataset(inputs, torch.arange(40) % 3)
    options = {"target": (3.0, 1e-5), "epochs": 60, "rng": 1} | options
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return sgd.make_private(model, optimizer, DataLoader(dataset, batch_size=batch), **options)


def steps(private, loop, count=5):
    made = 0
    while made < count:
        for inputs, targets in private.loader:
            private.optimizer.zero_grad()
            loop(private.model, inputs, targets).backward()
            private.optimizer.step()
            made += 1


def each(outputs, targets):
    return functional.cross_entropy(outputs, targets, reduction="none")


def mixup(model, inputs, targets):
    return functional.cross_entropy(model(0.5 * inputs + 0.5 * inputs[torch.randperm(len(inputs))]), targets)


def a_second_call_in_another_order(model, inputs, targets):
    order = torch.randperm(len(inputs))
    return each(model(inputs), targets).mean() + each(model(inputs[order]), targets[order]).mean()


def standardised(model, inputs, targets):
    return functional.cross_entropy(model((inputs - inputs.mean(0)) / inputs.std(0)), targets)


def class_weights(model, inputs, targets):
    weights = 1 / torch.bincount(targets, minlength=3)  # before the model is called
    return (weights[targets] * each(model(inputs), targets)).mean()


def in_place(model, inputs, targets):
    weights = torch.zeros(len(targets))
    weights[:] = targets.float()
    inputs -= inputs.mean(0)
    return functional.cross_entropy(model(inputs), targets)


def all_alike(model, inputs, targets):
    """Leave rows in the batch that nobody can tell apart: only what was there before shows that others decided them."""
    inputs[:] = inputs.mean(0)
    return functional.cross_entropy(model(inputs), targets)


def all_alike_by_a_view(model, inputs, targets):
    inputs.T.copy_(inputs.mean(0)[:, None].expand(4, len(inputs)))
    return functional.cross_entropy(model(inputs), targets)


ALIKE = [all_alike, all_alike_by_a_view]
LOOPS = [mixup, a_second_call_in_another_order, standardised, class_weights, in_place, *ALIKE]


@pytest.mark.parametrize("loop", ALIKE, ids=lambda loop: loop.__name__)
def test_only_what_a_batch_held_before_shows_that_its_rows_were_made_alike(loop, monkeypatch):
    """The twin of the test below: without it, the loop would pass."""
    monkeypatch.setattr(Tape, "keep", lambda tape: None)
    steps(start(), loop)


def test_what_nothing_is_written_to_is_not_copied_and_what_nobody_holds_is_let_go(monkeypatch):
    private, copies = start(), []
    keep = Tape.keep
    monkeypatch.setattr(Tape, "keep", lambda tape: copies.append(tape) or keep(tape))
    batches = iter(private.loader)
    inputs, targets = next(batches)
    tape = inputs.tape
    functional.cross_entropy(private.model(inputs), targets).backward()
    assert len(tape._held()) == 2
    assert not copies
    private.optimizer.step()
    inputs, targets = next(batches)
    tape = inputs.tape
    assert len(tape._held()) == 2
    del inputs, targets
    assert not tape._held()


@pytest.mark.parametrize("loop", LOOPS, ids=lambda loop: loop.__name__)
def test_a_loop_that_mixes_a_batch_is_refused(loop):
    with pytest.raises(ValueError, match=OWN):
        steps(start(), loop)


LOSSES = {
    "hinge of pairs": lambda o, t: functional.relu(1 - o[:, None, 0] + o[None, :, 0]).sum(),
    "distances of pairs": lambda o, t: (o[:, None] - o[None]).abs().sum(),
    "ranking of neighbours": lambda o, t: functional.margin_ranking_loss(
        o[:, 0], o[:, 0].roll(1), torch.ones(len(o)), margin=1.0, reduction="sum"
    ),
    "the hardest": lambda o, t: each(o, t).amax(),
    "the five hardest": lambda o, t: each(o, t).topk(min(len(o), 5)).values.sum(),
    "the five easiest by their places": lambda o, t: each(o, t).gather(0, each(o, t).argsort()[:5]).sum(),
    "the median": lambda o, t: each(o, t).median(),
    "harder than the mean": lambda o, t: (each(o, t) * (each(o, t) > each(o, t).detach().mean())).sum(),
    "weights that are not differentiated": lambda o, t: (each(o, t) * each(o, t).detach().softmax(0)).sum(),
    "less a mean that is not differentiated": lambda o, t: (o - o.detach().mean(0)).square().sum(),
    "larger than the neighbour": lambda o, t: torch.maximum(o, o.roll(1, 0)).sum(),
    "the sign of all": lambda o, t: o.sum().abs(),
}


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
def test_a_loss_without_a_second_derivative_in_which_examples_meet_is_refused(loss):
    """A second derivative was looked at, which is zero along straight pieces and where nothing is differentiated."""
    with pytest.raises(ValueError, match=OWN):
        steps(start(loss_reduction="sum"), lambda model, inputs, targets: loss(model(inputs), targets))


def test_weights_given_to_backward_are_looked_at():
    private = start(loss_reduction="sum")
    inputs, targets = next(iter(private.loader))
    losses = each(private.model(inputs), targets)
    with pytest.raises(ValueError, match=OWN):
        losses.backward(losses.detach().softmax(0))


def augmented(model, inputs, targets):
    """Do to each example by itself what loops do: cast, noise, masks, soft targets, a limit for each, in place too."""
    noisy = (inputs.double() + 0.1 * torch.rand_like(inputs)).float()
    noisy[:, 0] *= torch.randint(0, 2, (len(inputs),))
    soft = torch.zeros(len(inputs), 3).scatter_(1, targets[:, None], 1.0) * 0.9 + 0.05
    outputs = model(noisy)
    best = outputs.max(1).values - outputs.gather(1, targets[:, None])[:, 0]
    losses = (soft * -outputs.log_softmax(1)).sum(1) + functional.relu(best) + outputs.sort(1).values[:, 0].clamp(max=3)
    return (losses * (losses.detach() < 5)).mean()


def test_a_loop_that_changes_each_example_by_itself_is_taken():
    steps(start(), augmented, count=20)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1e30, 1e-40])
def test_no_value_of_one_example_makes_a_loop_look_as_if_it_mixed(value):
    private = start()
    private.loader.dataset.tensors[0][::3] = value
    steps(private, augmented, count=10)


def test_sums_of_losses_that_live_on_hold_no_batch():
    """A batch that is followed lets go when its step is made, and what was computed from it is stored as a tensor."""
    private, sums = start(), torch.zeros(())
    for inputs, targets in private.loader:
        loss = functional.cross_entropy(private.model(inputs), targets)
        loss.backward()
        sums = sums + loss.detach()
        tape = sums.tape if type(sums) is not torch.Tensor else None
        private.optimizer.step()
        assert tape is None or not (tape.open or tape._entries or tape._roots or tape._batch)
    assert type(pickle.loads(pickle.dumps(inputs))) is torch.Tensor


class Function(nn.Module):
    """A model whose forward pass is a function of the attacker's choice."""

    def __init__(self, forward):
        super().__init__()
        self.linear, self._forward, self.calls = nn.Linear(4, 3), forward, 0
        self.register_buffer("kept", torch.zeros(4))

    def forward(self, x):
        self.calls += 1
        return self._forward(self, x)


def large(model, x):
    made = model.linear(x)
    return made - made.mean(0) if len(x) > 5 else made


def later(model, x):
    made = model.linear(x)
    return made - made.detach().mean(0) if model.calls > 12 else made


def storing(model, x):
    if model.calls > 12:
        model.kept.copy_(x[0].detach())
    return model.linear(x)


def overwriting(model, x):
    if model.calls > 12:
        model.linear.bias.data[0] = x.detach().mean()
    return model.linear(x)


@pytest.mark.parametrize("forward", [large, later, storing, overwriting], ids=lambda forward: forward.__name__)
def test_a_model_that_mixes_or_keeps_only_sometimes_is_refused(forward):
    with pytest.raises(ValueError, match=f"{OWN}|changes with the data"):
        steps(start(Function(forward)), lambda model, x, y: functional.cross_entropy(model(x), y), count=40)


def test_a_hook_that_mixes_gradients_is_seen_though_it_comes_late():
    """Later batches were looked at in the forward pass alone."""
    private = start(nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)))
    steps(private, lambda model, x, y: functional.cross_entropy(model(x), y), count=2)
    private.model[1].register_full_backward_hook(lambda layer, found, _: (found[0] / found[0].norm(),))
    with pytest.raises(ValueError, match=OWN):
        steps(private, lambda model, x, y: functional.cross_entropy(model(x), y), count=4)
    assert private.optimizer.steps < 4


def test_looking_again_leaves_a_model_as_it_was():
    model = nn.Sequential(nn.Linear(4, 5), nn.Dropout(0.5), nn.Linear(5, 3))
    private = start(model)
    inputs, _ = next(iter(private.loader))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    torch.manual_seed(7)
    private.model(inputs)
    torch.testing.assert_close(model.state_dict(), before, rtol=0, atol=0)
    drawn = torch.rand(3)
    torch.manual_seed(7)
    with torch.no_grad():
        private.model(torch.randn(len(inputs), 4, generator=torch.Generator()))
    assert torch.equal(drawn, torch.rand(3))


def test_the_norm_is_lowered_between_two_pieces_of_a_batch():
    """The first piece was clipped to 1, and the noise of all would be that of the last norm."""
    private = start(batch=40, physical_batch=10)

    def loop(model, inputs, targets):
        private.optimizer.clip.l2_clip_norm /= 10
        return functional.cross_entropy(model(inputs), targets)

    with pytest.raises(RuntimeError, match="changed between two pieces"):
        steps(private, loop)
    assert private.optimizer.steps == 0


@pytest.mark.parametrize("name", ["clip", "perturb"])
def test_another_rule_is_put_in_place_of_the_first(name):
    """A rule that has not learnt the size of the model has a bound of 0, and noise of 0."""
    private = start()
    with pytest.raises(AttributeError):
        setattr(private.optimizer, name, sgd.LInf(0.01))


def test_a_layer_is_frozen_midway():
    private = start(nn.Sequential(nn.Linear(4, 5), nn.Linear(5, 3)))
    inputs, targets = next(iter(private.loader))
    private.model[0].requires_grad_(False)
    functional.cross_entropy(private.model(inputs), targets).backward()
    with pytest.raises(RuntimeError, match=r"'0.weight' was frozen after make_private.*lr to 0"):
        private.optimizer.step()
    assert private.optimizer.steps == 0
