"""Per-example gradients against the plain way: one backward pass for each example."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional

from noisette.sgd import Recorder, check_model, make_private, with_open_recurrence, without_batch_norm
from noisette.sgd.recording.gradients import _masks


class Twice(nn.Module):
    """Uses one layer twice, at different depths."""

    def __init__(self):
        super().__init__()
        self.shared, self.out = nn.Linear(6, 6), nn.Linear(6, 2)

    def forward(self, x):
        return self.out(torch.tanh(self.shared(torch.tanh(self.shared(x)))))


class Scale(nn.Module):
    """A layer of the user's own."""

    def __init__(self):
        super().__init__()
        self.factor = nn.Parameter(torch.randn(6))

    def forward(self, x):
        return x * self.factor + torch.sin(self.factor)


class Last(nn.Module):
    """The last state of a recurrent layer, through a linear one."""

    def __init__(self, layer, width):
        super().__init__()
        self.layer, self.out = layer, nn.Linear(width, 2)

    def forward(self, x):
        return self.out(self.layer(x)[0][:, -1])


class TwiceConvolved(nn.Module):
    """Uses one convolution and one table twice."""

    def __init__(self):
        super().__init__()
        self.table, self.shared = nn.Embedding(7, 4), nn.Conv1d(4, 4, 3, padding=1)

    def forward(self, x):
        return self.shared(torch.tanh(self.shared(self.table(x).mT + self.table(6 - x).mT)))


def twice(layer):
    """Return a model that uses one layer twice."""
    return nn.Sequential(layer, nn.Tanh(), layer)


def frozen(layer):
    """Return a layer of which only the bias is trained."""
    layer.weight.requires_grad_(False)
    return layer


def numbers(*shape):
    return lambda: torch.randn(5, *shape)


MODELS = {
    "linear": (lambda: nn.Linear(6, 3), numbers(6)),
    "no bias": (lambda: nn.Linear(6, 3, bias=False), numbers(6)),
    "sequence": (lambda: nn.Sequential(nn.Linear(6, 40), nn.Tanh(), nn.Linear(40, 3)), numbers(2, 6)),
    "long sequence": (lambda: nn.Linear(3, 2), numbers(4, 9, 3)),
    "convolution": (lambda: nn.Sequential(nn.Conv2d(2, 3, 3), nn.ReLU(), nn.Conv2d(3, 4, (3, 2))), numbers(2, 8, 7)),
    "stride, padding, dilation": (
        lambda: nn.Conv2d(2, 3, (3, 2), stride=(2, 3), padding=(2, 1), dilation=(1, 2)),
        numbers(2, 9, 8),
    ),
    "same padding": (lambda: nn.Conv2d(2, 3, (3, 5), padding="same"), numbers(2, 6, 5)),
    "reflected": (lambda: nn.Conv2d(2, 3, 3, padding=2, padding_mode="reflect"), numbers(2, 6, 5)),
    "large image": (lambda: nn.Conv2d(2, 5, (3, 4), padding=(2, 1), dilation=(1, 2)), numbers(2, 24, 22)),
    "large image, reflected": (lambda: nn.Conv2d(1, 3, 5, padding=2, padding_mode="reflect"), numbers(1, 23, 23)),
    "large image, same padding": (lambda: nn.Conv2d(1, 4, (3, 5), padding="same", bias=False), numbers(1, 23, 24)),
    "long line": (lambda: nn.Conv1d(2, 3, 7, padding=3, dilation=2), numbers(2, 530)),
    "large image, twice": (lambda: twice(nn.Conv2d(2, 2, 3, padding=1)), numbers(2, 23, 23)),
    "wide kernel": (lambda: nn.Conv2d(3, 40, 5), numbers(3, 6, 6)),
    "one axis": (lambda: nn.Conv1d(2, 3, 3, stride=2, padding=1), numbers(2, 9)),
    "three axes": (lambda: nn.Conv3d(2, 3, (2, 3, 2), stride=(1, 2, 1)), numbers(2, 4, 7, 5)),
    "groups": (lambda: nn.Conv2d(4, 6, 3, groups=2), numbers(4, 5, 5)),
    "embedding": (
        lambda: nn.Sequential(nn.Embedding(7, 4, padding_idx=0), nn.Flatten(), nn.Linear(24, 2)),
        lambda: torch.randint(0, 7, (5, 6)),
    ),
    "normalised": (
        lambda: nn.Sequential(nn.Conv2d(2, 4, 3), nn.GroupNorm(2, 4), nn.Flatten(), nn.LayerNorm(36)),
        numbers(2, 5, 5),
    ),
    "groups of a sequence": (lambda: nn.GroupNorm(2, 4), numbers(4, 5)),
    "groups of features": (lambda: nn.GroupNorm(2, 4), numbers(4)),
    "normalised over time": (lambda: nn.LayerNorm(4), numbers(3, 2, 4)),
    "normalised over two axes": (lambda: nn.LayerNorm((3, 4)), numbers(2, 3, 4)),
    "normalised whole": (lambda: nn.LayerNorm((3, 4), bias=False), numbers(3, 4)),
    "only biases": (
        lambda: nn.Sequential(frozen(nn.Conv1d(2, 3, 2)), nn.Tanh(), frozen(nn.Linear(4, 3))),
        numbers(2, 5),
    ),
    "one index": (lambda: nn.Embedding(7, 4), lambda: torch.randint(0, 7, (5,))),
    "shared convolution": (TwiceConvolved, lambda: torch.randint(0, 7, (5, 6))),
    "instances": (lambda: nn.InstanceNorm2d(2, affine=True), numbers(2, 4, 4)),
    "own layer": (lambda: nn.Sequential(nn.Linear(6, 6), Scale()), numbers(6)),
    "shared": (Twice, numbers(6)),
    "transposed": (lambda: nn.ConvTranspose2d(2, 3, 3, stride=2), numbers(2, 4, 4)),
    "lstm": (
        lambda: with_open_recurrence(Last(nn.LSTM(3, 4, num_layers=2, batch_first=True, bidirectional=True), 8)),
        numbers(5, 3),
    ),
    "gru": (lambda: with_open_recurrence(Last(nn.GRU(3, 4, batch_first=True, bias=False), 4)), numbers(5, 3)),
    "lstm with projections": (
        lambda: with_open_recurrence(Last(nn.LSTM(3, 4, batch_first=True, bidirectional=True, proj_size=2), 4)),
        numbers(5, 3),
    ),
    "cell without a state": (lambda: nn.Sequential(nn.GRUCell(3, 4), nn.Linear(4, 2)), numbers(3)),
    "rnn": (lambda: with_open_recurrence(Last(nn.RNN(3, 4, batch_first=True), 4)), numbers(5, 3)),
}


def build(name):
    torch.manual_seed(3)
    make, draw = MODELS[name]
    inputs = draw()
    return make().double(), inputs.double() if inputs.is_floating_point() else inputs


def loss_of(model, inputs):
    made = model(inputs)
    target = torch.linspace(-1, 1, made[0].numel(), dtype=made.dtype).reshape(made[0].shape)
    return ((made - target) ** 3).flatten(1).sum(1)


@pytest.mark.parametrize("name", MODELS)
def test_norms_sums_and_gradients_are_those_of_one_example_at_a_time(name):
    model, inputs = build(name)
    plain = copy.deepcopy(model)
    expected = []
    for example in inputs:
        plain.zero_grad()
        loss_of(plain, example[None]).sum().backward()
        expected.append(
            {key: parameter.grad.clone() for key, parameter in plain.named_parameters() if parameter.requires_grad}
        )

    recorder = Recorder(model)
    loss_of(model, inputs).mean().backward()
    parts = recorder.parts()
    weights = torch.linspace(0.5, 2.0, 5, dtype=torch.float64)
    for layer, part in parts.items():
        keys = [key for key in expected[0] if key.rpartition(".")[0] == layer]
        squares = torch.stack([sum(gradients[key].square().sum() for key in keys) for gradients in expected])
        torch.testing.assert_close(part.squares() * 25, squares, rtol=1e-9, atol=1e-12)
        total, each = part.total(weights * 5), part.each()
        for key in keys:
            own = key.rpartition(".")[2]
            gradients = torch.stack([one[key] for one in expected])
            torch.testing.assert_close(each[own] * 5, gradients, rtol=1e-9, atol=1e-12)
            torch.testing.assert_close(total[own], torch.tensordot(weights, gradients, 1), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", ["sequence", "convolution", "large image", "wide kernel"])
def test_gradients_that_are_formed_one_by_one_are_the_same(name, monkeypatch):
    monkeypatch.setattr("noisette.sgd.recording.layers._PIECE", 1)
    test_norms_sums_and_gradients_are_those_of_one_example_at_a_time(name)


@pytest.mark.parametrize("name", MODELS)
def test_a_batch_without_examples_adds_nothing(name):
    model, inputs = build(name)
    recorder = Recorder(model)
    model(inputs[:0]).sum().backward()
    for layer, part in recorder.parts().items():
        assert part.squares().shape == (0,)
        own_parameters = model.get_submodule(layer).named_parameters(recurse=False)
        shapes = {own: value.shape for own, value in own_parameters if value.requires_grad}
        total = part.total(torch.zeros(0, dtype=torch.float64))
        assert {own: value.shape for own, value in total.items()} == shapes
        assert not any(value.any() for value in total.values())
        assert {own: value.shape[1:] for own, value in part.each().items()} == shapes
        assert {own: laid.left.shape[0] for own, laid in part.laid().items()} == dict.fromkeys(shapes, 0)


def test_a_sum_before_any_norm_is_the_same():
    model, inputs = build("convolution")
    recorder = Recorder(model)
    loss_of(model, inputs).sum().backward()
    first, second = recorder.parts(), recorder.parts()
    ones = torch.ones(5, dtype=torch.float64)
    for name, part in first.items():
        part.squares()
        for key, value in part.total(ones).items():
            torch.testing.assert_close(value, second[name].total(ones)[key], rtol=1e-9, atol=1e-12)


def test_attention_answers_as_it_did():
    attention = nn.MultiheadAttention(4, 2, batch_first=True)
    x = torch.randn(3, 5, 4)
    expected = attention(x, x, x)[0].detach()
    Recorder(attention)
    with torch.no_grad():
        torch.testing.assert_close(attention(x, x, x)[0], expected)
    torch.testing.assert_close(attention(x, x, x)[0].detach().as_subclass(torch.Tensor), expected)


def test_a_module_of_parameters_and_layers_that_takes_more_is_told_whole():
    class Gate(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale, self.inner = nn.Parameter(torch.ones(4)), nn.Linear(4, 4)

        def forward(self, x, y):
            return self.inner(x * self.scale) * y

    gate, x = Gate(), torch.randn(3, 4)
    recorder = Recorder(gate)
    with pytest.raises(
        TypeError, match=r"Gate, has layers and parameters of its own, .scale., and was called with other things"
    ):
        gate(x, x)
    recorder.remove()
    recorder = Recorder(gate, whole=[""])
    gate(x, x).sum().backward()
    assert recorder.parts()[""].each()["inner.weight"].shape == (3, 4, 4)


def test_no_gradient_of_the_batch_is_computed_or_left_behind():
    model, inputs = build("convolution")
    Recorder(model)
    loss_of(model, inputs).sum().backward()
    assert all(parameter.grad is None for parameter in model.parameters())


def test_the_model_is_as_before_in_evaluation_and_after_removal():
    model, inputs = build("convolution")
    expected = model(inputs)
    recorder = Recorder(model)
    torch.testing.assert_close(model(inputs), expected)
    model.eval()
    loss_of(model, inputs).sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
    model.train()
    recorder.remove()
    model.zero_grad()
    loss_of(model, inputs).sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
    with pytest.raises(RuntimeError, match="No gradients were recorded"):
        recorder.parts()


def test_two_backward_passes_of_different_batches_are_refused():
    model, inputs = build("linear")
    recorder = Recorder(model)
    loss_of(model, inputs).sum().backward()
    loss_of(model, inputs[:2]).sum().backward()
    with pytest.raises(RuntimeError, match="Gradients of several batches are recorded"):
        recorder.parts()


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("hidden", [1, 4, 7])  # four gates of 7 cannot be cut in five by mistake, those of 4 can
def test_open_recurrence_answers_as_the_layer_it_replaces(kind, batch_first, hidden):
    torch.manual_seed(5)
    layer = kind(3, hidden, num_layers=2, bidirectional=True, batch_first=batch_first)
    opened = with_open_recurrence(layer)
    inputs = torch.randn(6, 5, 3)
    for start in (None, layer(inputs)[1]):
        expected, state = layer(inputs, start)
        seen, last = opened(inputs, start)
        torch.testing.assert_close(seen, expected)
        torch.testing.assert_close(last, state)


@pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN")
@pytest.mark.parametrize("options", [{"num_layers": 2, "bidirectional": True}, {"bias": False}], ids=str)
def test_open_recurrence_projects_states_as_the_layer_it_replaces(options):
    torch.manual_seed(5)
    layer = nn.LSTM(3, 5, proj_size=2, batch_first=True, **options)
    opened = with_open_recurrence(layer)
    inputs = torch.randn(6, 4, 3)
    for start in (None, layer(inputs)[1]):
        torch.testing.assert_close(opened(inputs, start), layer(inputs, start))


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3)), "'1' is BatchNorm1d: it mixes the examples"),
        (nn.InstanceNorm1d(3, affine=True, track_running_stats=True), "running statistics"),
        (nn.LSTM(3, 3), "with_open_recurrence"),
        (nn.ReLU(), "parameters to train; it has none"),
    ],
    ids=["batch norm", "running statistics", "recurrence", "nothing to train"],
)
def test_a_model_that_cannot_be_private_says_why_and_what_to_do(model, message):
    with pytest.raises(ValueError, match=message):
        check_model(model)


@pytest.mark.parametrize("formed", [True, False])
def test_a_parameter_in_two_layers_has_one_gradient(formed, monkeypatch):
    monkeypatch.setattr("noisette.sgd.recording.layers._FORMED", 1 << 26 if formed else 0)
    model = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 3, bias=False)).double()
    model[2].weight = model[0].weight
    plain, inputs = copy.deepcopy(model), torch.randn(5, 3, dtype=torch.float64)
    assert plain[2].weight is plain[0].weight
    recorder = Recorder(model)
    assert [(layer, own) for layer, own, _ in recorder.parameters()] == [("", "0.weight"), ("", "0.bias")]
    loss_of(model, inputs).sum().backward()
    part, weights = recorder.parts()[""], torch.linspace(0.5, 2.0, 5, dtype=torch.float64)
    expected = []
    for example in inputs:
        plain.zero_grad()
        loss_of(plain, example[None]).sum().backward()
        expected.append({key: value.grad.clone() for key, value in plain.named_parameters()})
    truth = torch.stack([sum(value.square().sum() for value in one.values()) for one in expected])
    seen, total = part.squares(), part.total(weights)
    assert (seen >= truth).all()
    assert (seen <= truth * (1 + 1e-9 if formed else 4)).all()  # two norms, each at most that of the sum here
    for key in expected[0]:
        rows = torch.stack([one[key] for one in expected])
        torch.testing.assert_close(part.each()[key], rows, rtol=1e-9, atol=1e-12)
        torch.testing.assert_close(total[key], torch.tensordot(weights, rows, 1), rtol=1e-9, atol=1e-12)


def test_batch_norm_gives_way_to_group_norm():
    model = without_batch_norm(
        nn.Sequential(nn.Conv2d(1, 48, 3), nn.BatchNorm2d(48), nn.Sequential(nn.BatchNorm2d(7), nn.BatchNorm1d(8)))
    )
    check_model(model)
    assert (model[1].num_groups, model[2][0].num_groups, model[2][1].num_groups) == (24, 1, 1)
    assert without_batch_norm(nn.BatchNorm1d(4))(torch.randn(1, 4)).abs().min() > 0  # one value in a group would be 0


def test_an_empty_batch_has_parts_that_add_nothing():
    model, _ = build("convolution")
    recorder = Recorder(model)
    functional.mse_loss(
        made := model(torch.zeros(0, 2, 8, 7, dtype=torch.float64)), made.detach(), reduction="sum"
    ).backward()
    for part in recorder.parts().values():
        assert part.squares().shape == (0,)
        assert all(not value.any() for value in part.total(torch.zeros(0, dtype=torch.float64)).values())


class Placed(nn.Module):
    """Adds a table of positions, which is called on one row for all examples."""

    def __init__(self):
        super().__init__()
        self.places, self.scale = nn.Embedding(5, 4), nn.Linear(4, 4)

    def forward(self, x):
        rows = self.scale(self.places(torch.arange(5)[None]))
        return (x * rows).tanh().sum((1, 2))


@pytest.mark.parametrize("examples", [1, 2, 6])
def test_a_layer_that_sees_one_row_for_all_examples_has_a_gradient_for_each(examples):
    torch.manual_seed(3)
    model, inputs = Placed(), torch.randn(examples, 5, 4)
    expected = []
    for example in inputs:
        model.zero_grad()
        model(example[None]).sum().backward()
        expected.append({name: value.grad.clone() for name, value in model.named_parameters()})
    model.zero_grad()
    recorder = Recorder(model)
    model(inputs).sum().backward()
    parts = recorder.parts()
    assert recorder.examples == examples
    for layer, part in parts.items():
        for own, gradients in part.each().items():
            torch.testing.assert_close(gradients, torch.stack([one[f"{layer}.{own}"] for one in expected]))
    recorder.remove()


@pytest.mark.parametrize("weights", [True, False])
def test_attention_answers_as_it_lies_in_memory_so_that_dropout_behind_it_draws_the_same(weights):
    """A transformer's layer with dropout was refused: its coins fell in another order."""
    torch.manual_seed(2)
    layer = nn.TransformerEncoderLayer(8, 2, 8, dropout=0.5, batch_first=True).double()
    attention, inputs = layer.self_attn, torch.randn(3, 5, 8).double()
    torch.manual_seed(3)
    plain = layer(inputs)
    strides = attention(inputs, inputs, inputs, need_weights=weights)[0].stride()
    recorder = Recorder(layer)
    torch.manual_seed(3)
    torch.testing.assert_close(layer(inputs).as_subclass(torch.Tensor), plain)
    assert attention(inputs, inputs, inputs, need_weights=weights)[0].stride() == strides
    recorder.remove()
    check = torch.utils.data.TensorDataset(torch.randn(20, 5, 8), torch.zeros(20))
    loader = torch.utils.data.DataLoader(check, batch_size=4)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    make_private(layer.float(), optimizer, loader, target=(3.0, 1e-5), epochs=1)


def test_masks_of_attention_are_laid_out_by_example_and_head():
    layer, x = nn.MultiheadAttention(8, 2, batch_first=True), torch.zeros(3, 5, 8)
    mask = torch.arange(6 * 25.0).reshape(6, 5, 5)
    for given, named in (((x, x, x), {"attn_mask": mask}), ((x, x, x, None, False, mask), {})):
        left, found, axes = _masks(layer, given, named, 3)
        assert (left, axes) == ((), 3)
        assert all(found[name] is x for name in ("query", "key", "value"))
        for example in range(3):
            for head in range(2):
                assert torch.equal(found["attn_mask"][example, head], mask[2 * example + head])
    left, found, axes = _masks(layer, (x, x, x), {"attn_mask": mask[0]}, 3)
    assert (left, axes) == ((), -1)
    assert torch.equal(found["attn_mask"], mask[0])  # one for all
    for other, size in ((layer, None), (layer, 0), (nn.Linear(8, 8), 3)):
        assert _masks(other, (x,), {"attn_mask": mask}, size) == ((x,), {"attn_mask": mask}, -1)
