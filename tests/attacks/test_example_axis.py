"""Models and losses in which no gradient is one example's own: each is right, or refused before it is trained.

Where a layer sees rows that are not examples, or a loss is divided by something that other examples decide, one example
moved the clipped sum by up to fifty times the bound that the noise is made for.
"""

import copy
import io
import random

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.optim.swa_utils import AveragedModel
from torch.utils.data import DataLoader, Dataset, TensorDataset, default_collate

from noisette import sgd

pytestmark = pytest.mark.filterwarnings("ignore:This step is not on a batch")


def make(model, dataset, **options):
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
    loader = DataLoader(dataset, batch_size=8)
    return sgd.make_private(model, optimizer, loader, **{"target": (3.0, 1e-5), "epochs": 9, "rng": 1} | options)


def numbers(*shape, size=40):
    torch.manual_seed(1)
    return TensorDataset(torch.randn(size, *shape), torch.randint(0, 3, (size,)))


class Function(nn.Module):
    """A model whose forward pass is a function of the attacker's choice."""

    def __init__(self, forward, **layers):
        super().__init__()
        self._forward = forward
        for name, layer in layers.items():
            setattr(self, name, layer)

    def forward(self, x):
        return self._forward(self, x)


def linear(fan_in=4, fan_out=3):
    torch.manual_seed(2)
    return nn.Linear(fan_in, fan_out)


def check_apart(model, dataset):
    """Check what is recorded in training against a loop, for as many examples as there are steps and for others."""
    plain = copy.deepcopy(model).double()
    private = make(model.double(), dataset, loss_reduction="sum")
    for size in (1, 3, 5, 8):
        inputs = dataset.tensors[0][:size]
        inputs = inputs.double() if inputs.is_floating_point() else inputs
        private.optimizer.zero_grad()
        private.model(inputs).square().sum().backward()
        parts = private.optimizer.recorder.parts()
        for place in range(size):
            plain.zero_grad()
            plain(inputs[place : place + 1]).square().sum().backward()
            for layer, part in parts.items():
                for own, rows in part.each().items():
                    expected = plain.get_parameter(f"{layer}.{own}" if layer else own).grad
                    torch.testing.assert_close(rows[place], expected, rtol=1e-9, atol=1e-12)


STEPS = pytest.mark.parametrize("steps", [5, 3], ids=["five steps", "as many steps as examples are tried"])


@STEPS
def test_tokens_flattened_into_the_axis_of_the_examples_are_one_examples(steps):
    """(B T, d): one example would be clipped T times, in T pieces, if rows were taken for examples."""

    def forward(self, x):
        return self.layer(x.reshape(-1, 4)).reshape(len(x), steps, 3).mean(1)

    check_apart(Function(forward, layer=linear()), numbers(steps, 4))


@STEPS
def test_time_before_examples_inside_of_a_model_is_right(steps):
    """(T, B, d): what is clipped would be a time step of everybody, if it were taken for an example."""

    def forward(self, x):
        return self.layer(x.transpose(0, 1)).mean(0)

    check_apart(Function(forward, layer=linear()), numbers(steps, 4))


def test_a_collate_function_that_puts_time_first_is_refused():
    class Series(Dataset):
        def __len__(self):
            return 40

        def __getitem__(self, place):
            return torch.randn(6, 4)

    model = Function(lambda self, x: self.layer(x).mean(0), layer=linear())
    loader = DataLoader(Series(), batch_size=8, collate_fn=lambda items: torch.stack(items, 1))
    with pytest.raises(ValueError, match="rows for 1 example: a layer mixes"):
        sgd.make_private(model, torch.optim.SGD(model.parameters(), lr=0.1), loader, target=(1.0, 1e-5), epochs=1)


@STEPS
def test_positions_that_have_no_axis_of_examples_are_right(steps):
    def forward(self, x):
        return (self.layer(x) + self.place(torch.arange(steps))).mean(1)

    check_apart(Function(forward, layer=linear(), place=nn.Embedding(5, 3)), numbers(steps, 4))


@STEPS
def test_a_mask_that_all_examples_share_is_no_example(steps):
    """A causal mask has as many rows as there are steps, which may be the number of examples."""
    torch.manual_seed(2)
    mask = torch.triu(torch.full((steps, steps), -torch.inf), 1).double()
    attention = nn.MultiheadAttention(4, 2, batch_first=True)
    model = Function(lambda self, x: self.attention(x, x, x, attn_mask=mask)[0], attention=attention).double()
    inputs = numbers(steps, 4)
    check_apart(model, TensorDataset(inputs.tensors[0].double(), inputs.tensors[1]))


@pytest.mark.parametrize(
    "mix",
    [
        lambda x: x - x.mean(0),
        lambda x: x.flip(0),
        lambda x: x / x.norm(),
        lambda x: x + x.sort(0).values,
        lambda x: x * len(x),  # exchanging one example shows nothing of it
        lambda x: x + 1e-3 * x.flip(0),
        lambda x: x + 1e-5 * x.mean(0),
        lambda x: x * torch.linspace(1, 1 + 1e-4 * len(x), len(x)).reshape(-1, 1),
    ],
    ids=["centred", "reversed", "normalised", "sorted", "counted", "a little", "very little", "by place"],
)
def test_examples_that_see_each_other_are_refused(mix):
    with pytest.raises(ValueError, match="mixes the examples of a batch"):
        make(Function(lambda self, x: self.layer(mix(x)), layer=linear()), numbers(4))


def test_examples_that_see_each_other_under_dropout_are_refused():
    def forward(self, x):
        return self.layer(functional.dropout(x - x.mean(0), 0.5, training=self.training))

    with pytest.raises(ValueError, match="mixes the examples of a batch"):
        make(Function(forward, layer=linear()), numbers(4))


def test_a_loss_over_all_labels_inside_of_a_model_under_dropout_is_refused():
    """Whole numbers were not exchanged, and with dropout nothing else is compared: the model was taken."""

    class Own(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Embedding(7, 3)

        def forward(self, ids, labels):
            logits = functional.dropout(self.table(ids).mean(1), 0.1, training=self.training)
            return functional.cross_entropy(logits, labels).square()

    torch.manual_seed(1)
    data = TensorDataset(torch.randint(0, 7, (40, 5)), torch.arange(40) % 3)
    with pytest.raises(ValueError, match=r"changed with the other examples.*called without them"):
        make(Own(), data)


def test_padding_to_the_longest_of_a_batch_is_refused_where_it_is_not_masked():
    """The mean over positions would tell each example how long the longest other one is."""

    class Texts(Dataset):
        def __len__(self):
            return 40

        def __getitem__(self, place):
            return torch.arange(1, 3 + place % 7)

    def collate(items):
        return nn.utils.rnn.pad_sequence(items, batch_first=True)

    model = Function(lambda self, x: self.layer(x).mean(1), layer=nn.Embedding(12, 3))
    loader = DataLoader(Texts(), batch_size=8, collate_fn=collate)
    with pytest.raises(ValueError, match="One example's gradient changed with the other examples"):
        sgd.make_private(model, torch.optim.SGD(model.parameters(), lr=0.1), loader, target=(1.0, 1e-5), epochs=1)


def words(size=40):
    torch.manual_seed(1)
    return TensorDataset(torch.randint(0, 7, (size, 5)), torch.randint(0, 3, (size,)))


def test_weights_tied_by_a_function_are_right():
    """The use in `functional.linear` is not that of a layer, so that half of the gradient would be missing."""

    def forward(self, x):
        return functional.linear(torch.tanh(self.words(x).mean(1)), self.words.weight)

    torch.manual_seed(2)
    check_apart(Function(forward, words=nn.Embedding(7, 4)), words())


@pytest.mark.parametrize(
    ("options", "message"),
    [({"scale_grad_by_freq": True}, "how often a word is in the batch"), ({"max_norm": 1.0}, "in place, and no noise")],
    ids=["frequency", "norm"],
)
def test_embeddings_that_look_at_the_batch_are_refused(options, message):
    model = nn.Sequential(nn.Embedding(7, 4, **options), nn.Flatten(), linear(20, 3))
    with pytest.raises(ValueError, match=message):
        make(model, words())


class Raw(nn.Module):
    """A parameter that is nobody's layer, beside dropout."""

    def __init__(self, dropout):
        super().__init__()
        self.layer, self.scale, self.dropout = linear(), nn.Parameter(torch.ones(3)), dropout

    def forward(self, x):
        return self.dropout(self.layer(x)) * self.scale


def test_a_raw_parameter_is_right_under_dropout_too():
    """Its gradient is not computed a second time, when the coins of the dropout have fallen otherwise."""
    check_apart(Raw(nn.Identity()), numbers(4))
    model = Raw(nn.Dropout(0.5))
    private, plain = make(model, numbers(4), loss_reduction="sum"), copy.deepcopy(model)
    inputs, _ = numbers(4)[:8]
    for one in (private.model, plain):
        torch.manual_seed(5)
        one(inputs).square().sum().backward()
    (part,) = private.optimizer.recorder.parts().values()
    for own, rows in part.each().items():
        torch.testing.assert_close(rows.sum(0), plain.get_parameter(own).grad, rtol=1e-5, atol=1e-5)


def gradients(model, inputs, recorder):
    """Return the recorded gradients of single examples, and those of a loop."""
    torch.manual_seed(4)
    model(inputs).square().sum().backward()
    parts = recorder.parts()
    recorder.remove()
    mine = torch.cat([part.each()[own].flatten(1) for part in parts.values() for own in part.each()], 1)
    rows = []
    for example in inputs:
        model.zero_grad()
        model(example[None]).square().sum().backward()
        rows.append(torch.cat([p.grad.flatten() for p in model.parameters() if p.requires_grad]))
    return mine, torch.stack(rows)


@pytest.mark.parametrize("kind", [nn.Linear, nn.Bilinear], ids=["known", "by torch.func"])
def test_hooks_of_the_users_own_run_once(kind):
    """They ran twice: what a hook adds was added twice, and what it counts was counted twice."""
    torch.manual_seed(2)
    layer = linear() if kind is nn.Linear else Raw(nn.Identity())
    calls = []
    layer.register_forward_pre_hook(lambda module, given: (given[0] + 1,))
    layer.register_forward_hook(lambda module, given, output: calls.append(1) or output * 2)
    inputs = torch.randn(5, 4)
    expected = layer(inputs).detach()
    recorder = sgd.Recorder(layer)
    calls.clear()
    torch.testing.assert_close(layer(inputs).detach().as_subclass(torch.Tensor), expected)
    assert calls == [1]
    recorder.clear()
    layer.register_forward_pre_hook(lambda module, given: (given[0] * 3,))  # after the recorder
    mine, loop = gradients(layer, inputs, recorder)
    torch.testing.assert_close(mine, loop)


@pytest.mark.parametrize("frozen", ["weight", "bias"])
@pytest.mark.parametrize(
    ("layer", "shape"),
    [(linear(), (4,)), (nn.Conv1d(2, 3, 2), (2, 5)), (nn.LayerNorm(4), (4,)), (nn.GroupNorm(2, 4), (4, 3))],
    ids=["linear", "convolution", "layer norm", "group norm"],
)
def test_what_is_frozen_in_a_layer_is_not_counted(layer, shape, frozen):
    """A frozen weight made the norm longer, and its gradient part of the sum."""
    layer = copy.deepcopy(layer)
    getattr(layer, frozen).requires_grad_(False)
    torch.manual_seed(3)
    recorder = sgd.Recorder(layer)
    inputs = torch.randn(5, *shape)
    layer(inputs).square().sum().backward()
    part = recorder.parts()[""]
    assert frozen not in part.total(torch.ones(5, dtype=torch.float64))
    recorder.clear()
    mine, loop = gradients(layer, inputs, recorder)
    torch.testing.assert_close(mine, loop)
    torch.testing.assert_close(part.squares(), loop.double().square().sum(1), rtol=1e-5, atol=1e-6)


def test_copies_of_a_model_answer_with_weights_of_their_own():
    """A deep copy, an average and a pickle answered with the weights that are being trained."""
    private = make(nn.Sequential(linear(), nn.Tanh(), linear(3, 3)), numbers(4))
    model, inputs = private.model, torch.randn(6, 4)
    file = io.BytesIO()
    torch.save(model, file)
    copies = [
        copy.deepcopy(model),
        AveragedModel(model),
        torch.load(io.BytesIO(file.getvalue()), weights_only=False),
    ]
    before = model(inputs).detach().clone()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(1.0)
    assert not torch.allclose(model(inputs), before)
    for made in copies:
        made.train()
        seen = made(inputs)
        assert type(seen) is torch.Tensor
        torch.testing.assert_close(seen.detach(), before.as_subclass(torch.Tensor))
        seen.sum().backward()
        assert all(parameter.grad is not None for parameter in made.parameters())
    averaged = AveragedModel(model, avg_fn=lambda old, new, count: (old + new) / 2)
    averaged.update_parameters(model)
    for mine, theirs in zip(averaged.parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs)


def test_verification_leaves_everything_as_it_was():
    """Weights, buffers, gradients, mode and chance."""
    model = nn.Sequential(linear(), nn.Dropout(0.5), linear(3, 3))
    model.register_buffer("seen", torch.zeros(()))
    model.register_forward_hook(lambda module, given, output: module.seen.add_(1) and None)
    model.eval()
    dataset, weights = numbers(4), copy.deepcopy(model.state_dict())
    state = torch.get_rng_state()
    make(model, dataset)
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(value, weights[name]) for name, value in model.state_dict().items())
    assert not model.training
    assert all(parameter.grad is None for parameter in model.parameters())


LOSSES = {  # each divides by a number that other examples decide
    "class weights": lambda out, y: functional.cross_entropy(out, y, weight=torch.tensor([1.0, 9.0, 0.1])),
    "an ignored class": lambda out, y: nn.CrossEntropyLoss(ignore_index=0)(out, y),
    "negative likelihood, class weights": lambda out, y: functional.nll_loss(
        out.log_softmax(1), y, weight=torch.ones(3)
    ),
    "a masked mean": lambda out, y: (
        (functional.cross_entropy(out, y, reduction="none") * (y > 0)).sum() / (y > 0).sum()
    ),
    "a masked mean, inside": lambda out, y: (functional.cross_entropy(out, y, reduction="none") / (y > 0).sum()).sum(),
    "chosen rows": lambda out, y: functional.cross_entropy(out[y > 0], y[y > 0]),
    "chosen losses": lambda out, y: functional.cross_entropy(out, y, reduction="none").masked_select(y > 0).mean(),
}


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
def test_a_loss_divided_by_what_other_examples_decide_is_refused(loss):
    """On the first batch, and also where nothing in it is ignored: what is refused is the setting."""
    private = make(linear(), numbers(4))
    with pytest.raises(ValueError, match="loss = "):
        loss(private.model(torch.randn(6, 4)), torch.ones(6, dtype=torch.long)).backward()


@pytest.mark.parametrize(
    ("loss", "reduction"),
    [
        (lambda out, y: out.square().sum() / int((y > 0).sum()), "mean"),
        (lambda out, y: out.square().sum(), "mean"),
        (lambda out, y: out.square().sum() / 8, "mean"),
        (lambda out, y: functional.cross_entropy(out, y, reduction="sum"), "mean"),
        (lambda out, y: functional.cross_entropy(out, y), "sum"),
        (lambda out, y: out.square().mean(), "sum"),
    ],
    ids=["a count", "a sum", "a constant", "a sum of entropies", "a mean of entropies", "a mean"],
)
def test_a_loss_that_is_not_the_mean_or_the_sum_that_it_is_said_to_be_is_refused(loss, reduction):
    """Seen when batches of two sizes have passed: the divisor is not proportional to the examples."""
    private = make(linear(), numbers(4), loss_reduction=reduction)

    def step(size):
        private.optimizer.zero_grad()
        loss(private.model(torch.randn(size, 4)), torch.arange(size) % 3).backward()
        private.optimizer.step()

    step(6)
    with pytest.raises(ValueError, match="not divided by the same as before"):
        step(7)


def test_targets_that_are_ignored_by_default_change_no_one_elses_gradient():
    """Target -100 is ignored by default, and the mean was over the others: 21 times the bound in the worst case."""
    model = linear()
    private = make(model, numbers(4), clip=1.0)
    inputs, targets, clip = torch.randn(30, 4) * 0.01, torch.zeros(30, dtype=torch.long), private.optimizer.clip
    targets[:28] = -100
    sums = []
    for chosen in (range(30), range(29)):  # the last one counts, and is left out
        private.optimizer.zero_grad()
        functional.cross_entropy(model(inputs[list(chosen)]), targets[list(chosen)]).backward()
        made = clip.total(private.optimizer.recorder.parts(), private.optimizer.scale)
        sums.append(np.concatenate([value.flatten().numpy() for own in made.values() for value in own.values()]))
    assert np.linalg.norm(sums[0] - sums[1]) <= clip.bound


@pytest.mark.parametrize(
    "loss",
    [
        functional.cross_entropy,
        lambda out, y: functional.cross_entropy(out, y, reduction="none").mean(),
        lambda out, y: functional.cross_entropy(out, y, reduction="sum") / len(out),
        lambda out, y: 0.5 * functional.mse_loss(out, functional.one_hot(y, 3).to(out.dtype)),
        lambda out, y: (functional.cross_entropy(out, y, reduction="none") * (y > 0)).mean(),
        lambda out, y: functional.cross_entropy(out, y) + 0.1 * out.square().mean(),
        lambda out, y: -out.log_softmax(1)[torch.arange(len(out)), y].mean(),
        lambda out, y: nn.BCEWithLogitsLoss(pos_weight=torch.ones(3))(out, functional.one_hot(y, 3).to(out.dtype)),
    ],
    ids=["entropy", "mean", "sum over count", "half squares", "masked", "two terms", "by places", "binary"],
)
def test_losses_that_are_means_over_examples_are_taken_as_they_are(loss):
    private = make(linear(), numbers(4))
    for size in (6, 0, 7, 1):
        private.optimizer.zero_grad()
        loss(private.model(torch.randn(size, 4)), torch.arange(size) % 3).backward()
        private.optimizer.step()
    assert all(bool(torch.isfinite(parameter).all()) for parameter in private.model.parameters())


def test_cross_entropy_of_a_private_model_is_what_it_was():
    model = linear()
    inputs, targets = torch.randn(9, 4), torch.arange(9) % 3
    expected = functional.cross_entropy(model(inputs), targets, label_smoothing=0.1)
    sgd.Recorder(model)
    torch.testing.assert_close(
        functional.cross_entropy(model(inputs), targets, label_smoothing=0.1).detach().as_subclass(torch.Tensor),
        expected.detach(),
    )


class Called(nn.Module):
    """A model that the loop calls in a way that the data set does not tell."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, x, scale, *, centred):
        return self.layer(scale * (x - x.mean(0) if centred else x))


class Switched(Called):
    """The same, and what make_private looks at is another path than what is trained."""

    def forward(self, x, scale=1.0, *, centred=False):
        return super().forward(x, scale, centred=centred)


@pytest.mark.parametrize("model", [Called, Switched])
def test_the_call_that_is_made_is_verified_whatever_it_is(model):
    for centred in (False, True):
        private = make(model(), numbers(4))
        inputs, targets = next(batch for batch in private.loader if len(batch[0]) > 1)
        if centred:
            with pytest.raises(ValueError, match="changed with the other examples"):
                private.model(inputs, 2.0, centred=True)
        else:
            functional.cross_entropy(private.model(inputs, 2.0, centred=False), targets).backward()
            private.optimizer.step()
            assert private.optimizer.steps == 1


class Words(nn.Module):
    def __init__(self, *, mixing):
        super().__init__()
        self.table, self.layer, self.mixing = nn.Embedding(20, 4), nn.Linear(4, 3), mixing

    def forward(self, codes, mask):
        counts = mask.sum() if self.mixing else mask.sum(1, keepdim=True)
        return self.layer((self.table(codes) * mask[..., None]).sum(1) / counts)


@pytest.mark.parametrize("mixing", [False, True])
def test_entries_of_a_batch_that_the_loop_picks_are_verified_with_it(mixing):
    """The mask is the last entry, which make_private cannot know."""
    torch.manual_seed(3)
    dataset = TensorDataset(torch.randint(0, 20, (40, 7)), torch.arange(40) % 3, torch.ones(40, 7))
    private = make(Words(mixing=mixing), dataset)
    codes, targets, mask = next(batch for batch in private.loader if len(batch[0]) > 1)
    if mixing:
        with pytest.raises(ValueError, match="changed with the other examples"):
            private.model(codes, mask)
    else:
        functional.cross_entropy(private.model(codes, mask), targets).backward()
        private.optimizer.step()


def test_an_axis_that_is_exchanged_in_the_loop_is_refused():
    """(T, B, d) is made outside of the model: each layer sees T rows, and every example is in all of them."""
    private = make(linear(), numbers(7, 4))
    inputs, _ = next(batch for batch in private.loader if len(batch[0]) not in (0, 7))
    private.model(inputs.transpose(0, 1)).square().mean().backward()
    with pytest.raises(RuntimeError, match="Layers saw 7 rows"):
        private.optimizer.step()
    assert private.optimizer.steps == 0


class Hidden:
    """A batch in an object of its own."""

    def __init__(self, batch):
        self.batch = batch


class Centred(nn.Module):
    """Subtracts the mean of the batch, wherever it takes the batch from."""

    def __init__(self):
        super().__init__()
        self.layer, self.batch = nn.Linear(4, 3), None

    def forward(self, given=None):
        batch = self.batch if given is None else given.batch
        return self.layer(batch["a"] - batch["a"].mean(0))


class Named(Dataset):
    def __len__(self):
        return 40

    def __getitem__(self, place):
        return {"a": torch.full((4,), float(place)), "label": torch.tensor(0)}


@pytest.mark.parametrize("hide", ["in an object", "in the model"])
def test_a_model_that_nobody_could_verify_is_not_trained(hide):
    """Without a tensor in its arguments a model was never verified: one that mixes its examples trained in silence."""
    model = Centred()
    model, optimizer, loader = sgd.make_private(
        model,
        torch.optim.SGD(model.parameters(), lr=0.1),
        DataLoader(Named(), batch_size=8),
        target=(3.0, 1e-5),
        epochs=1,
        rng=1,
    )
    batch = next(batch for batch in loader if len(batch["a"]) > 1)
    before = model.layer.weight.clone()
    with pytest.raises((TypeError, RuntimeError), match=r"cannot be told apart|could not be verified"):  # noqa: PT012
        if hide == "in the model":
            model.batch = batch
        out = model() if hide == "in the model" else model(Hidden(batch))
        nn.functional.cross_entropy(out, batch["label"]).backward()
        optimizer.step()
    assert torch.equal(before, model.layer.weight)


def weighed(items):
    """Weigh examples by how many of their class are in the batch, as a remedy for rare classes."""
    inputs, targets = default_collate(items)
    return inputs, targets, 1 / torch.bincount(targets)[targets].float()


def ranked(items):
    inputs, targets = default_collate(items)
    return inputs, targets, targets.argsort().argsort()


def centred(items):
    inputs, targets = default_collate(items)
    return inputs - inputs.mean(), targets, torch.ones(len(targets))


def mixed_up(items):
    inputs, targets = default_collate(items)
    return inputs, targets, targets[torch.randperm(len(targets))]


def by_chance(items):
    """Weigh each example by chance of its own."""
    inputs, targets = default_collate(items)
    return inputs, targets, torch.rand(len(targets)) + random.random()


def padded(items):
    longest = max(int(targets) for _, targets in items) + 1
    inputs, targets = default_collate(items)
    return inputs, targets, torch.rand(len(items), longest)


def start_with(collate):
    inputs = torch.randn(40, 4, generator=torch.Generator().manual_seed(1))
    loader = DataLoader(TensorDataset(inputs, torch.arange(40) % 3), batch_size=20, collate_fn=collate)
    model = nn.Linear(4, 3)
    sgd.make_private(model, torch.optim.SGD(model.parameters(), lr=0.1), loader, target=(1.0, 1e-5), epochs=1)


@pytest.mark.parametrize("collate", [weighed, ranked, centred, mixed_up])
def test_examples_that_meet_where_they_are_laid_together_are_refused(collate):
    """Only what the model is called with was looked at: weights and labels are not, and the loss takes them."""
    with pytest.raises(ValueError, match="collate_fn"):
        start_with(collate)


@pytest.mark.parametrize("collate", [by_chance, padded, lambda items: default_collate([*items])])
def test_a_function_that_lays_each_example_by_itself_is_taken(collate):
    start_with(collate)


def test_inputs_that_are_drawn_where_examples_are_laid_together_are_refused_with_the_remedy():
    def noisy(items):
        inputs, targets = default_collate(items)
        return inputs + torch.rand_like(inputs), targets

    with pytest.raises(ValueError, match=r"collate_fn draws at random.*__getitem__"):
        start_with(noisy)

    class Augmented(Dataset):
        def __len__(self):
            return 40

        def __getitem__(self, place):
            return torch.rand(4), place % 3

    model = nn.Linear(4, 3)
    loader = DataLoader(Augmented(), batch_size=20)
    sgd.make_private(model, torch.optim.SGD(model.parameters(), lr=0.1), loader, target=(1.0, 1e-5), epochs=1)
