"""One person's data that a model, a loss or a data set refuses: the step goes on, and the others' sum stays as it is.

A token beyond the vocabulary raised "index out of range in self", a label beyond the classes "Target 9 is out of
bounds", and either told with certainty that somebody is in the batch. `ctc_loss` raised nothing: it wrote the gradient
of a label beyond the classes into the rows of another example.
"""

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset, TensorDataset

from noisette import sgd

pytestmark = pytest.mark.filterwarnings("ignore:This step is not on a batch")
WORDS, CLASSES, OUT = 12, 3, 77


def start(model, dataset, **options):
    return sgd.make_private(
        model,
        torch.optim.SGD(model.parameters(), lr=0.1),
        DataLoader(dataset, batch_size=8),
        **{"target": (3.0, 1e-5), "epochs": 9, "rng": 1} | options,
    )


class Reader(nn.Module):
    """Looks words up, and keeps count of its calls, by which a schedule inside of a model may go."""

    def __init__(self, form):
        super().__init__()
        torch.manual_seed(2)
        self.form, self.calls, self.kept = form, 0, []
        self.words, self.last = nn.Embedding(WORDS, 6), nn.Linear(6, CLASSES)
        self.frozen = nn.Embedding(WORDS, 6).requires_grad_(False)

    def forward(self, words):
        self.calls += 1
        self.kept.append(len(words))
        return self.form(self, words)


def looked_up(self, words):
    return self.last(torch.tanh(self.words(words)).mean(1))


def frozen_too(self, words):
    return self.last((self.words(words.clamp(max=WORDS - 1)) * self.frozen(words)).mean(1))


def one_hot(self, words):
    return self.last(functional.one_hot(words, WORDS).float().mean(1) @ self.words(torch.arange(WORDS)))


def asserted(self, words):
    assert bool((words < WORDS).all()), "a word beyond the vocabulary"
    return self.last(self.words(words).mean(1))


def of_a_law(self, words):
    law = torch.distributions.Normal(0.0, 1.0 + (WORDS - words[:, :1].float()).clamp(max=0.0), validate_args=True)
    return self.last(self.words(words.clamp(max=WORDS - 1)).mean(1)) + law.log_prob(torch.ones(()))


def divided(self, words):
    """With an expert that only some examples reach."""
    found = self.words(words).mean(1)
    rare = words[:, 1] > 9
    if rare.any():
        found = found.index_put((rare.nonzero()[:, 0],), torch.tanh(found[rare]))
    return self.last(found)


def time_first(self, words):
    """What it answers holds the examples along the second axis."""
    return self.last(torch.tanh(self.words(words))).transpose(0, 1)


FORMS = {f.__name__: f for f in (looked_up, frozen_too, asserted, of_a_law, divided, time_first)}


def summed(form, words, labels, **options):
    torch.manual_seed(3)
    private = start(Reader(form), TensorDataset(torch.randint(0, 9, (40, 5)), torch.zeros(40, dtype=torch.long)))
    for _ in range(2):
        made = private.model(words)
        private.optimizer.zero_grad()  # between the calls, as many loops do
        losses = made.flatten(1) if made.ndim == 2 else made.mean(0)
        functional.cross_entropy(losses, labels).backward()
        parts, scale = private.optimizer.recorded()
        sums = private.optimizer.clip.total(parts, scale)
    return private, sums


def apart(one, other):
    return max(float((one[layer][name] - other[layer][name]).abs().max()) for layer in one for name in one[layer])


def batch():
    torch.manual_seed(1)
    return torch.randint(0, 9, (6, 5)), torch.randint(0, CLASSES, (6,))


@pytest.mark.parametrize("bad", [[0], [3], [5, 0], [1, 2, 3, 4]], ids=str)
@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_what_a_model_refuses_adds_nothing(form, bad):
    """The model's own counters included."""
    words, labels = batch()
    words[bad, 0] = OUT
    left = [place for place in range(6) if place not in bad]
    one, sums = summed(form, words, labels)
    other, without = summed(form, words[left], labels[left])
    assert one.optimizer.recorder.refused == len(bad)
    assert (one.model.calls, len(one.model.kept)) == (other.model.calls, len(other.model.kept)) == (2, 2)
    assert apart(sums, without) < 1e-6
    assert max(float(v.abs().max()) for own in without.values() for v in own.values()) > 1e-2


@pytest.mark.parametrize("form", [looked_up, asserted, divided], ids=lambda form: form.__name__)
def test_a_batch_of_refused_examples_alone_is_a_step(form):
    words, labels = batch()
    words[:, 0] = OUT
    private, sums = summed(form, words[:1], labels[:1])
    assert all(float(value.abs().max()) == 0 for own in sums.values() for value in own.values())
    words, labels = batch()
    words[:, 0] = OUT
    private.optimizer.zero_grad()
    functional.cross_entropy(private.model(words), labels).backward()
    private.optimizer.step()
    assert private.optimizer.steps == 1


def test_without_the_exchange_the_step_stops(monkeypatch):
    """The twin: what this library did before."""
    from noisette.sgd.recording import alone

    def as_before(attempt, examples):
        raise attempt(range(examples))

    monkeypatch.setattr(alone, "refused", as_before)
    words, labels = batch()
    words[0, 0] = OUT
    with pytest.raises(IndexError):
        summed(looked_up, words, labels)


def test_a_fault_of_the_code_is_told_whatever_the_examples_are():
    class Wrong(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.broken = nn.Linear(4, 4), False

        def forward(self, x):
            return self.first(x) if not self.broken else self.first(x[:, :3])

    private = start(Wrong(), TensorDataset(torch.randn(40, 4), torch.zeros(40)))
    private.model(torch.randn(6, 4))
    private.model.broken = True
    with pytest.raises(RuntimeError, match="cannot be multiplied"):
        private.model(torch.randn(6, 4))


def test_what_examples_are_refused_for_together_is_told():
    """It is no example's own: leaving any out would change what the others bring."""

    class Bounded(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.on = nn.Linear(4, 2), False

        def forward(self, x):
            if self.on and float(x.sum()) > 100:
                raise ValueError("too much in all")
            return self.first(x)

    private = start(Bounded(), TensorDataset(torch.randn(40, 4), torch.zeros(40)))
    private.model(torch.randn(6, 4))
    private.model.on = True
    with pytest.raises(ValueError, match="too much"):
        private.model(torch.full((6, 4), 5.0))


BEYOND = CLASSES + 6
LOSSES = {
    "cross_entropy": lambda out, y: functional.cross_entropy(out, y),
    "a sum": lambda out, y: functional.cross_entropy(out, y, reduction="sum") / len(y),
    "smoothed": lambda out, y: nn.CrossEntropyLoss(label_smoothing=0.1)(out, y),
    "nll_loss": lambda out, y: functional.nll_loss(out.log_softmax(1), y),
    "below 0": lambda out, y: functional.nll_loss(out.log_softmax(1), torch.where(y == BEYOND, -7, y)),
    "multi_margin_loss": lambda out, y: nn.MultiMarginLoss()(out, y),
    "gather": lambda out, y: -out.log_softmax(1).gather(1, y[:, None]).mean(),
    "an index": lambda out, y: -out.log_softmax(1)[torch.arange(len(y)), y].mean(),
    "chances": lambda out, y: functional.binary_cross_entropy(out.sigmoid(), y[:, None].expand(-1, 3).double() / 2),
    "a variance": lambda out, y: functional.gaussian_nll_loss(
        out[:, 0], out[:, 1], torch.where(y == BEYOND, -1.0, 1.0)
    ),
}


def clipped(loss, inputs, labels):
    torch.manual_seed(2)
    model = nn.Linear(4, CLASSES).double()
    private = start(model, TensorDataset(torch.randn(40, 4), torch.zeros(40, dtype=torch.long)))
    loss(private.model(inputs), labels).backward()
    return private.optimizer.clip.total(*private.optimizer.recorded())


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
def test_what_a_loss_refuses_adds_nothing(loss):
    torch.manual_seed(1)
    inputs, labels = torch.randn(6, 4, dtype=torch.float64), torch.randint(0, CLASSES, (6,))
    labels[0] = BEYOND
    with_it, without = clipped(loss, inputs, labels), clipped(loss, inputs[1:], labels[1:])
    assert apart(with_it, without) < 1e-12
    assert float(without[""]["weight"].abs().max()) > 0.1
    alone = clipped(loss, inputs[:1], labels[:1])
    assert float(alone[""]["weight"].abs().max()) == 0


def test_a_fault_in_how_a_loss_is_called_is_told():
    with pytest.raises(RuntimeError, match="Expected target size"):
        clipped(lambda out, y: nn.MultiMarginLoss()(out, y[:-1]), torch.randn(6, 4).double(), torch.zeros(6).long())


@pytest.mark.parametrize("label", [5, 9, 900, -4])
@pytest.mark.parametrize("lengths", [(3, 2), (9, 2), (3, 7), (-1, 2)], ids=str)
def test_a_label_of_ctc_moves_its_own_example_alone(label, lengths):
    """torch reads and writes beyond the classes, in the rows of other examples; and raises for a length beyond."""
    torch.manual_seed(1)
    inputs = torch.randn(6, 4, dtype=torch.float64)

    def loss(out, labels):
        scores = torch.stack([out, 2 * out, out.sin()]).log_softmax(2)
        size = torch.full((len(labels),), 3), torch.full((len(labels),), 2)
        odd = labels[:, 1] == label
        size = (torch.where(odd, length, usual) for length, usual in zip(lengths, size, strict=True))
        return functional.ctc_loss(scores, labels, *size, reduction="none").mean()

    usual = torch.tensor([[1, 2]] * 6)
    odd = usual.clone()
    odd[0, 1] = label
    with_it, without = clipped(loss, inputs, odd), clipped(loss, inputs[1:], usual[1:])
    moved = sum(float((with_it[""][name] - without[""][name]).square().sum()) for name in with_it[""])
    assert moved <= 1 + 1e-9  # the bound of one example, and no other has moved


class Damaged(Dataset):
    """Examples of which some cannot be read, and some have a label beyond the classes."""

    def __len__(self):
        return 40

    def __getitem__(self, place):
        if place in (0, 7):
            raise OSError(f"image {place} is damaged")
        return torch.full((4,), float(place)), place % 4


def is_valid(example):
    return 0 <= example[1] < CLASSES


def test_examples_that_are_not_valid_are_not_seen_and_nobody_is_told():
    private = start(nn.Linear(4, CLASSES), Damaged(), valid=is_valid, epochs=1)
    assert (private.loader.size, len(private.loader), private.loader.sampling_prob) == (40, 5, 0.2)
    seen = set()
    for inputs, labels in private.loader:
        seen |= set(inputs[:, 0].int().tolist())
        private.optimizer.zero_grad()
        hot = functional.one_hot(labels, CLASSES)  # which refuses other labels
        loss = -(private.model(inputs).log_softmax(1) * hot).sum(1).mean()
        loss.backward()
        private.optimizer.step()
    assert private.optimizer.steps == 5
    assert seen
    assert not seen & {0, 7}
    assert all(place % 4 < CLASSES for place in seen)


def test_a_batch_without_a_valid_example_is_empty():
    loader = start(nn.Linear(4, CLASSES), Damaged(), valid=is_valid).loader
    fetched, examples = loader.fetch([0, 3, 7])
    assert examples == 0
    assert [len(tensor) for tensor in fetched] == [0, 0]
    assert loader.fetch([0, 1, 2, 3])[1] == 2


def test_a_rule_that_no_example_meets_is_told():
    with pytest.raises(ValueError, match="None of the 40 examples is valid"):
        start(nn.Linear(4, CLASSES), Damaged(), valid=lambda example: example.nothing)


def test_without_a_rule_the_data_set_stops_the_loop():
    """The twin: what a data set of the user's own raises is its own."""
    with pytest.raises(OSError, match="damaged"):
        start(nn.Linear(4, CLASSES), Damaged())
