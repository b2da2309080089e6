"""Attacks through what make_private cannot see: losses in which examples meet, passes that pile up, and buffers."""

from dataclasses import dataclass

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset

from noisette import sgd


def start(model=None, *, batch=20, **options):
    model = nn.Linear(4, 3) if model is None else model
    inputs = torch.randn(40, 4, generator=torch.Generator().manual_seed(1))
    dataset = TensorDataset(inputs, torch.arange(40) % 3)
    options = {"target": (3.0, 1e-5), "epochs": 20, "rng": 1} | options
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return sgd.make_private(model, optimizer, DataLoader(dataset, batch_size=batch), **options)


def contrastive(outputs, targets):
    """Tell every example from all others of its batch."""
    return functional.cross_entropy(outputs @ outputs.T, torch.arange(len(outputs)))


MIXING = {
    "contrastive": contrastive,
    "cosines": lambda outputs, targets: functional.cross_entropy(
        functional.normalize(outputs) @ functional.normalize(outputs).T, torch.arange(len(outputs))
    ),
    "less the mean": lambda outputs, targets: (outputs - outputs.mean(0)).square().mean(),
    "softmax over examples": lambda outputs, targets: outputs.softmax(0).square().mean(),
    "variance": lambda outputs, targets: functional.cross_entropy(outputs, targets) + outputs.var(0).mean(),
    "neighbours in the batch": lambda outputs, targets: (outputs - outputs.roll(1, 0)).square().mean(),
    "two places apart": lambda outputs, targets: (outputs - outputs.roll(2, 0)).square().mean(),
    "the square of a mean": lambda outputs, targets: functional.cross_entropy(outputs, targets).square(),
    "the hardest only": lambda outputs, targets: functional.cross_entropy(outputs, targets, reduction="none").logsumexp(
        0
    ),
}
APART = {
    "cross entropy": functional.cross_entropy,
    "squares": lambda outputs, targets: (outputs - 1).square().mean(),
    "a sum over classes": lambda outputs, targets: outputs.softmax(1).square().sum(1).mean(),
    "linear": lambda outputs, targets: outputs.mean(),
    "absolute": lambda outputs, targets: functional.l1_loss(outputs, torch.zeros_like(outputs)),
    "smooth": lambda outputs, targets: functional.smooth_l1_loss(outputs, torch.zeros_like(outputs)),
    "binary": lambda outputs, targets: functional.binary_cross_entropy_with_logits(
        outputs, torch.ones(len(outputs), 3)
    ),
    "soft targets": lambda outputs, targets: functional.cross_entropy(outputs, functional.one_hot(targets, 3).float()),
    "likelihood": lambda outputs, targets: functional.nll_loss(outputs.log_softmax(1), targets),
    "margin": lambda outputs, targets: functional.multi_margin_loss(outputs, targets),
}


def steps(private, loss, count=6):
    made = 0
    while made < count:
        for inputs, targets in private.loader:
            private.optimizer.zero_grad()
            loss(private.model(inputs), targets).backward()
            private.optimizer.step()
            made += 1


@pytest.mark.parametrize("loss", MIXING.values(), ids=MIXING)
def test_a_loss_in_which_examples_meet_is_refused(loss):
    """Every example's gradient is clipped, and every one of them changes when one example leaves."""
    with pytest.raises(ValueError, match="no gradient is one example's own"):
        steps(start(), loss)


AT_ONCE = {
    "the largest": lambda losses: losses.max(),
    "a quantile": lambda losses: losses.quantile(0.7),
    "the other end of the batch": lambda losses: (losses - losses.flip(0)).square().mean(),
}


@pytest.mark.parametrize("reduce", AT_ONCE.values(), ids=AT_ONCE)
@pytest.mark.parametrize("batch", [20, 21])
def test_no_step_is_made_before_examples_are_seen_to_meet(reduce, batch):
    """Examples at even places alone were replaced in a first look: where they meet in pairs it took a second one."""
    private = start(batch=batch)
    with pytest.raises(ValueError, match="no gradient is one example's own"):
        steps(private, lambda outputs, targets: reduce(functional.cross_entropy(outputs, targets, reduction="none")))
    assert private.optimizer.steps == 0


@pytest.mark.parametrize("value", [0.5, float("nan"), float("inf"), -float("inf")])
def test_a_small_loss_in_which_examples_meet_is_refused_beside_a_loud_example(value):
    """What is compared is relative: neither a small factor nor one example that is not finite hides the others."""
    private = start(batch=40)
    private.loader.dataset.tensors[0][0] = value
    with pytest.raises(ValueError, match="no gradient is one example's own"):
        steps(private, lambda outputs, targets: 1e-9 * (outputs - outputs.roll(2, 0)).pow(4).mean())


def test_another_way_to_call_backward_is_looked_at_too():
    private = start()
    inputs, targets = next(iter(private.loader))
    with pytest.raises(ValueError, match="no gradient is one example's own"):
        torch.Tensor.backward(contrastive(private.model(inputs), targets))


@pytest.mark.parametrize("loss", APART.values(), ids=APART)
def test_a_loss_that_is_a_mean_over_examples_is_taken(loss):
    steps(start(), loss)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1e30, 1e-40])
def test_one_loud_example_is_not_taken_for_a_loss_that_mixes(value):
    private = start()
    private.loader.dataset.tensors[0][::3] = value
    steps(private, functional.cross_entropy)


def test_two_batches_are_added_up_before_a_step():
    """Pieces as long as each other look like one batch whose examples were seen twice."""
    private = start(batch=40, physical_batch=20)
    loader = iter(private.loader)
    for _ in range(2):
        inputs, targets = next(loader)
        functional.cross_entropy(private.model(inputs), targets).backward()
    with pytest.raises(RuntimeError, match="several batches are recorded"):
        private.optimizer.step()
    assert private.optimizer.steps == 0


def test_a_gradient_for_the_inputs_is_not_a_step():
    """An attack on the inputs first, then training: the first pass is refused, or forgotten by zero_grad."""
    private = start(batch=40)
    inputs, targets = next(iter(private.loader))
    moving = inputs.clone().requires_grad_()
    functional.cross_entropy(private.model(moving), targets).backward()
    functional.cross_entropy(private.model(inputs + moving.grad.sign()), targets).backward()
    with pytest.raises(RuntimeError, match="several batches are recorded"):
        private.optimizer.step()


def test_two_losses_of_one_pass_and_a_pass_that_runs_again_are_taken():
    """Two backward passes through one forward pass are one example's; so is a forward pass that saves memory."""

    class Saving(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.last = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4)), nn.Linear(4, 3)

        def forward(self, inputs):
            return self.last(checkpoint(self.first, inputs, use_reentrant=False))

    private = start(Saving(), batch=40)
    inputs, targets = next(iter(private.loader))
    outputs = private.model(inputs)
    functional.cross_entropy(outputs, targets).backward()
    private.optimizer.step()
    private = start(batch=40)
    outputs = private.model(inputs)
    functional.cross_entropy(outputs, targets).backward(retain_graph=True)
    outputs.square().mean().backward()
    with pytest.warns(UserWarning, match="not on a batch"):
        private.optimizer.step()
    assert private.optimizer.steps == 1


class Remembering(nn.Module):
    """Keeps the mean of what it saw, as a normalisation does."""

    def __init__(self, *, keep):
        super().__init__()
        self.linear, self.keep = nn.Linear(4, 3), keep
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, inputs):
        if self.training:
            self.seen += inputs.detach().mean() if self.keep else 1
        return self.linear(inputs)


def test_a_buffer_that_keeps_the_data_is_refused():
    """It is saved with the weights, and no noise protects it; a buffer that counts steps is none of that."""
    with pytest.raises(ValueError, match="buffer 'seen' changes with the data"):
        start(Remembering(keep=True))
    model = Remembering(keep=False)
    start(model)
    assert float(model.seen) == 0


class Noting(nn.Module):
    """Writes the mean of what it saw into a parameter that is not trained, as codebooks and memories do."""

    def __init__(self, *, keep):
        super().__init__()
        self.linear, self.keep = nn.Linear(4, 3), keep
        self.note = nn.Parameter(torch.zeros(3), requires_grad=False)

    def forward(self, inputs):
        if self.training:
            self.note.data.add_(inputs.detach().mean() if self.keep else 1)
        return self.linear(inputs)


def test_a_parameter_that_keeps_the_data_is_refused():
    """Buffers were looked at and parameters were not: the data stood in the weights as it is."""
    with pytest.raises(ValueError, match="parameter 'note' changes with the data"):
        start(Noting(keep=True))
    model = Noting(keep=False)
    start(model)
    assert not model.note.any()


@pytest.mark.parametrize("option", ["size_average", "reduce"])
@pytest.mark.parametrize("loss", [functional.cross_entropy, functional.nll_loss])
def test_old_options_that_override_the_reduction_are_refused(loss, option):
    """torch lets size_average and reduce win over reduction, so the divisor would be torch's again."""
    private = start()
    inputs, targets = next(iter(private.loader))
    with pytest.raises(ValueError, match="override reduction"):
        loss(private.model(inputs), targets, **{option: True})


def forget_after_the_forward_pass(private, loss):
    for inputs, targets in private.loader:
        outputs = private.model(inputs)
        private.optimizer.zero_grad()  # many loops forget old gradients only now
        loss(outputs, targets).backward()
        private.optimizer.step()


def test_a_loss_that_mixes_is_seen_though_gradients_are_forgotten_late():
    """Forgetting them used to forget the outputs as well, and no batch was looked at."""
    with pytest.raises(ValueError, match="no gradient is one example's own"):
        forget_after_the_forward_pass(start(), MIXING["less the mean"])
    forget_after_the_forward_pass(start(), functional.cross_entropy)


@pytest.mark.parametrize("first", [2, 5, 12])
def test_a_loss_that_begins_to_mix_later_is_seen_before_twice_as_many_batches(first):
    private, made = start(), []

    def later(outputs, targets):
        made.append(len(outputs))
        chosen = functional.cross_entropy if len(made) <= first else MIXING["less the mean"]
        return chosen(outputs, targets)

    with pytest.raises(ValueError, match="no gradient is one example's own"):
        steps(private, later, count=2 * first + 2)
    assert first < len(made) <= 2 * first + 2


class Doubled(torch.autograd.Function):
    """A step of the loss that no tensor class of ours follows."""

    @staticmethod
    def forward(ctx, value):
        return 2 * value

    @staticmethod
    def backward(ctx, gradient):
        return 2 * gradient


UNSEEN = {
    "torch.autograd.backward": lambda model, x, y: torch.autograd.backward(functional.cross_entropy(model(x), y)),
    "a function of one's own": lambda model, x, y: functional.cross_entropy(Doubled.apply(model(x)), y).backward(),
    "a layer past the model": lambda model, x, y: functional.cross_entropy(model[0](x), y).backward(),
}


@pytest.mark.parametrize("backward", UNSEEN.values(), ids=UNSEEN)
def test_a_loss_that_is_not_seen_is_refused(backward):
    private = start(nn.Sequential(nn.Linear(4, 3)))
    inputs, targets = next(iter(private.loader))
    backward(private.model, inputs, targets)
    with pytest.raises(RuntimeError, match="The loss was not seen"):
        private.optimizer.step()
    assert private.optimizer.steps == 0


def inside(take):
    """Return a model of which something inside is kept in a place that nobody follows, and that place."""
    model, place = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)), []
    model[take].register_forward_hook(lambda layer, given, made: place.append(made))
    return model, place


@pytest.mark.parametrize("take", [0, 1, 2], ids=["a layer", "an activation", "the last layer"])
def test_a_part_of_a_loss_from_inside_of_the_model_is_refused(take):
    """The part that the model returns was followed, and stood for the other one, in which all examples meet."""
    model, place = inside(take)
    private = start(model)
    inputs, targets = next(iter(private.loader))
    made = functional.cross_entropy(private.model(inputs), targets)
    with pytest.raises(ValueError, match="from inside of the model"):
        (made + contrastive(place[-1], targets)).backward()


def test_a_layer_that_is_called_once_more_beside_the_model_is_refused():
    private = start(nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)))
    inputs, targets = next(iter(private.loader))
    made = functional.cross_entropy(private.model(inputs), targets)
    with pytest.raises(ValueError, match="from inside of the model"):
        (made + contrastive(private.model[0](inputs), targets)).backward()


BESIDE = {
    "torch.autograd.backward": lambda made, hidden, targets: torch.autograd.backward(contrastive(made, targets)),
    "a plain tensor": lambda made, hidden, targets: contrastive(hidden, targets).backward(),
    "torch.autograd.grad": lambda made, hidden, targets: torch.autograd.grad(contrastive(made, targets), hidden),
}


@pytest.mark.parametrize("again", BESIDE.values(), ids=BESIDE)
def test_a_second_backward_pass_that_is_not_seen_is_refused(again):
    """One loss was seen, so that a second one through the same forward pass was taken for a part of it."""
    model, place = inside(0)
    private = start(model)
    inputs, targets = next(iter(private.loader))
    made = private.model(inputs)
    functional.cross_entropy(made, targets).backward(retain_graph=True)
    again(made, place[-1], targets)
    with pytest.raises(RuntimeError, match="differentiated in another way"):
        private.optimizer.step()
    assert private.optimizer.steps == 0


def test_a_penalty_on_gradients_is_refused():
    """What an example brings through a gradient is not recorded, and the gradient itself was taken for its own."""
    private = start(nn.Sequential(nn.Linear(4, 3)))
    inputs, targets = next(iter(private.loader))
    inputs = inputs.clone().requires_grad_()
    made = private.model(inputs)
    (slope,) = torch.autograd.grad(made.sum(), inputs, create_graph=True)
    (functional.cross_entropy(made, targets) + slope.square().sum(1).mean()).backward()
    with pytest.raises(RuntimeError, match="gradient penalty"):
        private.optimizer.step()
    private.optimizer.zero_grad()
    with pytest.raises(RuntimeError, match="create_graph"):
        functional.cross_entropy(private.model(inputs), targets).backward(create_graph=True)


def test_outputs_that_are_changed_in_place_and_models_in_a_row_are_taken():
    private = start(nn.Sequential(nn.Linear(4, 4), nn.Sigmoid()))
    inputs, _ = next(iter(private.loader))
    made = private.model(inputs)
    made[:, 0] = 0.0
    made.mul_(2.0)
    other = private.model(made)
    (made.square().sum(1) + other.square().sum(1)).mean().backward()
    private.optimizer.step()
    assert private.optimizer.steps == 1


def test_a_weight_of_one_number_with_an_axis_is_refused():
    private = start()
    inputs, targets = next(iter(private.loader))
    losses = functional.cross_entropy(private.model(inputs), targets, reduction="none")
    with pytest.raises(ValueError, match="tensor of one number"):
        losses / (targets == 1).sum(0, keepdim=True)
    one = functional.cross_entropy(private.model(inputs[:1]), targets[:1], reduction="none")
    (one * torch.ones(1)).sum().backward()  # a batch of one example has weights of its own


@dataclass
class Answer:
    """An output with names, as many models give."""

    logits: torch.Tensor
    note: str = ""


class Answering(nn.Sequential):
    def forward(self, inputs):
        return Answer(super().forward(inputs))


def test_outputs_with_names_are_followed():
    steps(
        start(Answering(nn.Linear(4, 3))),
        lambda outputs, targets: functional.cross_entropy(outputs.logits, targets),
        count=3,
    )
    with pytest.raises(ValueError, match="no gradient is one example's own"):
        steps(start(Answering(nn.Linear(4, 3))), lambda outputs, targets: contrastive(outputs.logits, targets))
