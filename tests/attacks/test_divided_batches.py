"""One person's data send some of a batch another way through the model: the step is like any other, and so is its sum.

A step raised "Layers saw batches of [1, 7] examples" where one example reached an expert of its own, and "Layer 'rare'
got no gradient" where nobody did: a deterministic sign that somebody is in the batch. Without an exception, the others
must bring what they bring without that person.
"""

import copy
import pickle
import random
import warnings
from collections import Counter, defaultdict, deque

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset

from noisette import sgd
from noisette.sgd.noise.perturbation import full_name
from noisette.sgd.recording import alone

pytestmark = pytest.mark.filterwarnings("ignore:This step is not on a batch")
RARE = 9.0  # in the first feature; the examples that `make_private` draws have less than 1


class Routed(nn.Module):
    """Two experts, a gate that the forward pass of the attacker's choice makes, and layers around them."""

    def __init__(self, route, *, dropout=0.0, usual=None, rare=None):
        super().__init__()
        torch.manual_seed(2)
        self.route, self.dropout = route, dropout
        self.first, self.last = nn.Linear(4, 4), nn.Linear(4, 3)
        self.usual = usual or nn.Linear(4, 4)
        self.rare = rare or nn.Linear(4, 4)

    def forward(self, x):
        h = functional.dropout(torch.tanh(self.first(x)), self.dropout)
        return self.last(h + self.route(self, x, h))


def if_any(self, x, h):
    """By a mask, where it holds for anybody."""
    made = torch.zeros_like(h)
    for mask, expert in ((x[:, 0] > 5, self.rare), (x[:, 0] <= 5, self.usual)):
        if mask.any():
            made[mask] = expert(h[mask])
    return made


def always(self, x, h):
    """By a mask, of all layers with rows for some or none."""
    made = torch.zeros_like(h)
    for mask, expert in ((x[:, 0] > 5, self.rare), (x[:, 0] <= 5, self.usual)):
        made[mask] = expert(h[mask])
    return made


def by_places(self, x, h):
    """As in mixtures of experts: places by nonzero, and sums by index."""
    made = torch.zeros_like(h)
    for which, expert in enumerate((self.usual, self.rare)):
        (places,) = torch.where((x[:, 0] > 5).long() == which)
        if len(places):
            made = made.index_add(0, places, expert(h[places]) * torch.sigmoid(h[places, :1]))
    return made


def by_the_best(self, x, h):
    """To the best of the experts' scores, one at a time in Python."""
    scores = torch.stack([torch.zeros(len(x)), x[:, 0] - 5], 1)
    chosen = scores.topk(1, dim=1).indices[:, 0].tolist()
    places = [[place for place, one in enumerate(chosen) if one == which] for which in (0, 1)]
    made = torch.zeros_like(h)
    for expert, own in zip((self.usual, self.rare), places, strict=True):
        if own:
            made = made.index_copy(0, torch.tensor(own), expert(h[own]))
    return made


def corrected(self, x, h):
    """Only outliers go through the second expert, after all went through the first."""
    made = self.usual(h)
    outliers = (x[:, 0] > 5).nonzero()[:, 0]
    if outliers.numel():
        made = made.index_add(0, outliers, self.rare(made[outliers]))
    return made


def by_arrays(self, x, h):
    """A gate outside of torch."""
    rare = x.detach().numpy()[:, 0] > 5
    made = torch.zeros_like(h)
    for mask, expert in ((rare, self.rare), (~rare, self.usual)):
        if mask.any():
            made[torch.from_numpy(mask)] = expert(h[torch.from_numpy(mask)])
    return made


ROUTES = {route.__name__: route for route in (if_any, always, by_places, by_the_best, corrected, by_arrays)}


def start(model, dtype=torch.float64, **options):
    data = TensorDataset(torch.randn(40, 4, dtype=dtype), torch.zeros(40, dtype=torch.long))
    return sgd.make_private(
        model.to(dtype),
        torch.optim.SGD(model.parameters(), lr=0.1),
        DataLoader(data, batch_size=8),
        **{"target": (3.0, 1e-5), "epochs": 9, "rng": 1} | options,
    )


def batch(rare, size=6, dtype=torch.float64):
    """Return examples of which some have what sends them to the other expert."""
    torch.manual_seed(1)
    made = torch.randn(size, 4, dtype=dtype)
    made[list(rare), 0] = RARE
    return made


def recorded(private, inputs, seed=5):
    """Return the gradient of each example, by the parameters' names."""
    private.optimizer.zero_grad()
    torch.manual_seed(seed)
    private.model(inputs).square().sum(1).mean().backward()
    parts, scale = private.optimizer.recorded()
    return {full_name(layer, own): rows * scale for layer, part in parts.items() for own, rows in part.each().items()}


def check_each(private, inputs):
    """Compare recorded gradients with a loop over examples."""
    plain = copy.deepcopy(private.model)
    found = recorded(private, inputs)
    assert found.keys() == dict(plain.named_parameters()).keys()
    for place in range(len(inputs)):
        plain.zero_grad()
        loss = plain(inputs[place : place + 1]).square().sum()
        if loss.requires_grad:  # else no layer that is trained saw this example
            loss.backward()
        for name, parameter in plain.named_parameters():
            expected = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
            torch.testing.assert_close(found[name][place], expected, rtol=1e-9, atol=1e-12)


def attention():
    """An expert that computes its examples apart."""

    class Attending(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.MultiheadAttention(4, 2, batch_first=True)

        def forward(self, h):
            rows = h[:, None]
            return self.inner(rows, rows, rows, need_weights=False)[0][:, 0]

    return Attending()


WAYS = {"nobody": [], "one": [0], "the last": [5], "some": [1, 4], "all but one": [0, 1, 2, 3, 5], "all": range(6)}


@pytest.mark.parametrize("rare", WAYS.values(), ids=WAYS)
@pytest.mark.parametrize("route", ROUTES.values(), ids=ROUTES)
def test_each_examples_gradient_is_its_own_whichever_way_it_takes(route, rare):
    check_each(start(Routed(route)), batch(rare))


@pytest.mark.parametrize("rare", WAYS.values(), ids=WAYS)
def test_experts_that_attend_are_right_too(rare):
    check_each(start(Routed(if_any, usual=attention(), rare=attention())), batch(rare))


def test_a_batch_of_one():
    private = start(Routed(if_any))
    for rare in ([], [0]):
        check_each(private, batch(rare, size=1))


def test_a_batch_of_nobody():
    for route in ROUTES.values():
        private = start(Routed(route))
        private.model(batch([], size=0)).sum().backward()
        private.optimizer.step()
        assert private.optimizer.steps == 1
        assert all(bool(torch.isfinite(value).all()) for value in private.model.parameters())


@pytest.mark.parametrize("route", ROUTES.values(), ids=ROUTES)
@pytest.mark.parametrize("clip", ["l2", "quantile", "per-layer", "linf"])
def test_a_whole_run_is_silent(route, clip):
    """With Poisson batches, empty ones too, where one in ten examples is divided from the rest."""
    torch.manual_seed(3)
    inputs = torch.randn(60, 4)
    inputs[::10, 0] = RARE
    model = Routed(route, dropout=0.5)
    private = sgd.make_private(
        model,
        torch.optim.SGD(model.parameters(), lr=0.1),
        DataLoader(TensorDataset(inputs, torch.arange(60) % 3), batch_size=3),
        target=(3.0, 1e-5),
        epochs=1,
        clip=clip,
        rng=7,
    )
    sizes = []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for x, y in private.loader:
            private.optimizer.zero_grad()
            functional.cross_entropy(private.model(x), y).backward()
            private.optimizer.step()
            sizes.append(len(x))
    assert private.optimizer.steps == 20
    assert 0 in sizes


class Sums:
    """Keeps what a step summed up."""

    def collect(self, parts, scale):
        pass

    def release(self, sums, released, multiplier):
        self.last = torch.cat([value.flatten() for own in sums.values() for value in own.values()]).clone()


def layers_left_out(self, x, h):
    """A coin for the whole batch, as in LayerDrop, beside a gate."""
    made = if_any(self, x, h)
    return made if random.random() < 0.5 or torch.rand(()) < 0.5 else made + torch.rand_like(h)


def squares(model, inputs):
    return model(inputs).square().sum(1).mean()


def moved(private, person, seed=0, *, loss=squares, inputs=None):
    """Return by how much one person's features, instead of usual ones, move the clipped sum, with the same chance."""
    private.optimizer.watcher = seen = Sums()
    found = []
    for value in (0.5, person):
        inputs = batch([]) if inputs is None else inputs
        inputs[2, 0] = value
        private.optimizer.zero_grad()
        torch.manual_seed(seed)
        random.seed(seed)
        loss(private.model, inputs).backward()
        with torch.no_grad():
            before = [parameter.clone() for parameter in private.model.parameters()]
        private.optimizer.step()
        with torch.no_grad():
            for parameter, value_before in zip(private.model.parameters(), before, strict=True):
                parameter.copy_(value_before)
        found.append(seen.last)
    return float((found[1] - found[0]).norm())


@pytest.mark.parametrize("route", [*ROUTES.values(), layers_left_out], ids=lambda route: route.__name__)
@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_the_others_bring_what_they_bring_without_that_person(route, dropout):
    """Two examples take each other's place, so the sum moves by twice the bound at most; the others keep theirs."""
    private = start(Routed(route, dropout=dropout), clip=0.01)
    for seed in range(5):
        assert moved(private, RARE, seed) <= 2 * 0.01 * (1 + 1e-9)


def test_the_others_keep_theirs_to_the_bit():
    """What is kept of a batch of copies is what a batch without that person has, dropout included."""
    private = start(Routed(if_any, dropout=0.5))
    usual, divided = recorded(private, batch([])), recorded(private, batch([2]))
    others = [0, 1, 3, 4, 5]
    for name, rows in usual.items():
        torch.testing.assert_close(divided[name][others], rows[others], rtol=1e-14, atol=0.0)


@pytest.mark.parametrize("broken", ["drops the batch", "draws again", "no copies"])
def test_a_broken_twin_is_seen(broken, monkeypatch):
    """To add nothing of a divided batch, or to draw other coins for it, moves the others."""
    if broken == "drops the batch":
        monkeypatch.setattr(alone.Own, "void", property(lambda own: True, lambda own, value: None), raising=False)
    elif broken == "draws again":
        monkeypatch.setattr(alone.Outset, "restore", lambda self: torch.manual_seed(random.getrandbits(60)))
    else:
        monkeypatch.setattr(alone._Alone, "_call", _with_the_others)
    private = start(Routed(if_any, dropout=0.5), clip=0.01)
    assert max(moved(private, RARE, seed) for seed in range(5)) > 0.021


def _with_the_others(run, place, more=0):
    answer = run._once(*torch.utils._pytree.tree_unflatten(run._leaves, run._form))
    return answer, {(None, 0): answer}, []


def test_a_divided_batch_of_pieces_and_of_two_calls():
    """A call with all and a divided one count together, each for its own examples."""
    private = start(Routed(if_any))
    plain = copy.deepcopy(private.model)
    one, two = batch([]), batch([3])
    private.optimizer.zero_grad()
    (private.model(one) + private.model(two)).square().sum(1).mean().backward()
    parts, scale = private.optimizer.recorded()
    for place in range(6):
        plain.zero_grad()
        (plain(one[place : place + 1]) + plain(two[place : place + 1])).square().sum().backward()
        for layer, part in parts.items():
            for own, rows in part.each().items():
                expected = plain.get_parameter(full_name(layer, own)).grad
                expected = torch.zeros_like(rows[place]) if expected is None else expected
                torch.testing.assert_close(rows[place] * scale, expected, rtol=1e-9, atol=1e-12)


def test_gradients_that_are_forgotten_late_are_kept():
    """Many loops call zero_grad between the forward pass and the backward one."""
    private = start(Routed(if_any))
    expected = recorded(private, batch([2]))
    torch.manual_seed(5)
    loss = private.model(batch([2])).square().sum(1).mean()
    private.optimizer.zero_grad()
    loss.backward()
    parts, scale = private.optimizer.recorded()
    for layer, part in parts.items():
        for own, rows in part.each().items():
            torch.testing.assert_close(rows * scale, expected[full_name(layer, own)], rtol=0.0, atol=0.0)


class Sparse(nn.Module):
    """Examples that no expert takes leave as they came."""

    def __init__(self):
        super().__init__()
        self.expert = nn.Linear(4, 4)

    def forward(self, x):
        mask = x[:, 0] < 5
        made = x.clone()
        if mask.any():
            made[mask] = self.expert(x[mask])
        return made


@pytest.mark.parametrize("rare", WAYS.values(), ids=WAYS)
def test_examples_that_no_trained_layer_sees(rare):
    private = start(Sparse())
    check_each(private, batch(rare))
    private.model(batch(rare)).square().sum(1).mean().backward()
    private.optimizer.step()


class Placed(nn.Module):
    """A model that divides copies of one example too, by its place in the batch, where the first feature is large."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(2)
        self.one, self.other = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x):
        odd = (x[:, 0] > 5) & (torch.arange(len(x)) % 2 == 1)
        made = torch.zeros_like(x)
        for mask, expert in ((odd, self.one), (~odd, self.other)):
            if mask.any():
                made[mask] = expert(x[mask])
        return made


def test_an_example_whose_copies_are_divided_adds_nothing():
    private = start(Placed())
    usual, divided = recorded(private, batch([])), recorded(private, batch([3]))
    for name, rows in divided.items():
        assert not rows[3].any()
        torch.testing.assert_close(rows[[0, 1, 2, 4, 5]], usual[name][[0, 1, 2, 4, 5]], rtol=1e-14, atol=0.0)


class Once(nn.Module):
    """Computes equal rows once, where the first feature is large: copies of one example are one row, and one more."""

    def __init__(self, layer):
        super().__init__()
        torch.manual_seed(2)
        self.first, self.layer = nn.Linear(4, 4), layer

    def forward(self, x):
        h, rare = self.first(x), x[:, 0] > 5
        if not rare.any():
            return h + self.layer(h)
        rows, places = torch.unique(x[rare], dim=0, return_inverse=True)
        return h.index_add(0, rare.nonzero().flatten(), self.layer(torch.cat([rows, rows[:1]]))[places])


WHOLE = {
    "plain": lambda: nn.Linear(4, 4),
    "weight norm": lambda: nn.utils.parametrizations.weight_norm(nn.Linear(4, 4)),
}


@pytest.mark.parametrize("layer", WHOLE.values(), ids=WHOLE)
def test_layers_whose_examples_are_computed_apart_get_no_raw_gradient(layer):
    """A parametrised layer among copies took its gradient itself, and the step was refused: somebody was there."""
    inputs = torch.randn(40, 4, generator=torch.Generator().manual_seed(1))
    model = Once(layer())
    loader = DataLoader(TensorDataset(inputs), batch_size=40)
    private = sgd.make_private(
        model, torch.optim.SGD(model.parameters(), lr=0.1), loader, target=(3.0, 1e-5), epochs=2, rng=1
    )
    inputs[3, 0] = RARE
    for (examples,) in private.loader:
        private.optimizer.zero_grad()
        private.model(examples).square().sum(1).mean().backward()
        assert all(parameter.grad is None for parameter in model.parameters())
        private.optimizer.step()
    assert private.optimizer.steps == 1


def test_a_gradient_of_the_inputs_is_there():
    private = start(Routed(if_any))
    inputs, plain = batch([2]).requires_grad_(), copy.deepcopy(private.model)
    private.model(inputs).square().sum().backward()
    expected = batch([2]).requires_grad_()
    plain(expected).square().sum().backward()
    rows = inputs.grad / 6  # a mean is differentiated from the number of examples on
    torch.testing.assert_close(rows, expected.grad, rtol=1e-9, atol=1e-12)


def test_copies_of_a_guarded_model_are_plain():
    private = start(Routed(if_any))
    inputs = batch([2])
    for made in (copy.deepcopy(private.model), pickle.loads(pickle.dumps(private.model))):
        torch.testing.assert_close(made(inputs), private.model.eval()(inputs))
        made(inputs).sum().backward()
        assert all(parameter.grad is not None for parameter in made.parameters())
    private.optimizer.recorder.remove()
    assert "forward" not in private.model.__dict__


def test_a_layer_that_is_never_used_is_told_where_no_data_decide_it():
    class Idle(nn.Module):
        def __init__(self):
            super().__init__()
            self.used, self.idle = nn.Linear(4, 3), nn.Linear(4, 3)

        def forward(self, x):
            return self.used(x)

    private = start(Idle())
    private.model(batch([])).sum(1).mean().backward()
    with pytest.raises(RuntimeError, match="Layer 'idle' got no gradient"):
        private.optimizer.step()


class TimeFirst(Routed):
    """Answers whose second axis is that of the examples, as the CTC loss takes them."""

    def forward(self, x):
        return torch.stack([super().forward(x), self.last(torch.tanh(self.first(x)))])


def over_time(model, inputs):
    return model(inputs).square().sum((0, 2)).mean()


class Keeping(Routed):
    """A loss of the gate, for each example, that the model keeps instead of returning it."""

    def forward(self, x):
        self.extra = {"gate": [self.usual(x).square().sum(1)]}
        return super().forward(x)


def with_what_is_kept(model, inputs):
    return (model(inputs).square().sum(1) + model.extra["gate"][0]).mean()


class Catching(Routed):
    """Experts that may fail."""

    def forward(self, x):
        h = torch.tanh(self.first(x))
        made = torch.zeros_like(h)
        for mask, expert in ((x[:, 0] > 5, self.rare), (x[:, 0] <= 5, self.usual)):
            try:
                if mask.any():
                    made[mask] = expert(h[mask])
            except:  # noqa: E722
                pass
        return self.last(h + made)


class Saving(Routed):
    """Experts that are computed again in the backward pass, to save memory."""

    def __init__(self, route, *, reentrant):
        super().__init__(route)
        self.reentrant = reentrant

    def forward(self, x):
        h = torch.tanh(self.first(x))
        return self.last(checkpoint(lambda h: h + self.route(self, x, h), h, use_reentrant=self.reentrant))


BESIDE = {
    "time first": (lambda: TimeFirst(if_any), over_time),
    "a loss that is kept": (lambda: Keeping(if_any), with_what_is_kept),
    "a model that catches everything": (lambda: Catching(if_any), squares),
    "computed again": (lambda: Saving(if_any, reentrant=False), squares),
    "computed again, without a graph": (lambda: Saving(if_any, reentrant=True), squares),
}


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")
@pytest.mark.parametrize(("model", "loss"), BESIDE.values(), ids=BESIDE)
def test_the_others_bring_the_same_beside_what_is_returned(model, loss):
    private = start(model(), clip=0.01)
    assert moved(private, RARE, loss=loss) <= 2 * 0.01 * (1 + 1e-9)


class Counting(Routed):
    """Counts its calls in a buffer, in attributes, and in whatever holds several."""

    def __init__(self, route):
        super().__init__(route)
        self.register_buffer("calls", torch.zeros(()))
        self.count, self.list, self.set, self.tensor, self.array = 0, [], set(), torch.zeros(1), np.zeros(1)
        self.held = {"deques": [deque(maxlen=99)], "counter": Counter(), "kept": defaultdict(list)}

    def forward(self, x):
        self.calls += 1
        self.count += 1
        self.tensor += 1
        self.array += 1
        self.set.add(len(self.set))
        self.held["counter"]["calls"] += 1
        for kept in (self.list, self.held["deques"][0], self.held["kept"]["calls"]):
            kept.append(self.count)
        return super().forward(x)

    def told(self):
        several = self.list, self.set, self.held["deques"][0], self.held["kept"]["calls"]
        numbers = self.calls, self.count, self.tensor, self.array, self.held["counter"]["calls"]
        return {*map(len, several), *(int(np.asarray(number).sum()) for number in numbers)}


def test_no_counter_tells_that_a_batch_was_divided():
    private = start(Counting(if_any))
    model = private.model
    for call, rare in enumerate(([], [2], range(6), [0, 1]), model.count + 1):
        recorded(private, batch(rare))
        assert model.told() == {call}


class Alert(Keeping):
    """Does not take a batch in which everybody goes the second way, as where an expert has a capacity."""

    def forward(self, x):
        if (x[:, 0] > 5).all():
            raise ValueError("too many for an expert")
        return super().forward(x)


@pytest.mark.parametrize("place", [0, 2, 5])
def test_copies_that_a_model_does_not_take_stop_nothing(place):
    """The copies are ours, and nobody else is called with them: the example adds nothing, and the others the same."""
    private = start(Alert(if_any))
    usual, divided = recorded(private, batch([])), recorded(private, batch([place]))
    assert private.model.extra["gate"][0].shape == (6,)
    for name, rows in divided.items():
        assert not rows[place].any()
        others = [other for other in range(6) if other != place]
        torch.testing.assert_close(rows[others], usual[name][others], rtol=1e-14, atol=0.0)
    assert moved(start(Alert(if_any), clip=0.01), RARE, loss=with_what_is_kept) <= 2 * 0.01 * (1 + 1e-9)
    with pytest.raises(ValueError, match="too many"):  # the loop's own model and data, as without privacy
        private.model(batch(range(6)))


class Enclosed:
    """Examples in an object that nobody can look into."""

    def __init__(self, x):
        self.x = x


class Opening(Routed):
    def forward(self, x):
        return super().forward(x.x if isinstance(x, Enclosed) else torch.as_tensor(x))


@pytest.mark.parametrize("enclose", [Enclosed, torch.Tensor.numpy])
def test_a_model_with_gates_takes_examples_as_tensors(enclose):
    """Copies of one example cannot be made of others: a step stopped where one person's data divided it. Now all do."""
    private = start(Opening(if_any))
    for rare in ([], [2]):
        with pytest.raises(TypeError, match=r"ways for some examples, and those in a (Enclosed|ndarray) cannot"):
            private.model(enclose(batch(rare)))


class Tokens(nn.Module):
    """Two tokens of an example, each with an expert of its own; where all take the usual one, none is chosen."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(2)
        self.wide, self.usual, self.rare = nn.Linear(4, 8), nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x):
        h = torch.tanh(self.wide(x)).reshape(len(x), 2, 4)
        rare = x[:, :2] > 5
        if not rare.any():
            return self.usual(h).flatten(1)
        made = torch.zeros_like(h)
        made[rare], made[~rare] = self.rare(h[rare]), self.usual(h[~rare])
        return made.flatten(1)


def test_as_many_tokens_as_examples_are_not_taken_for_them():
    """Both experts see six tokens of six examples, and nobody's row is his own."""
    inputs = batch([])
    inputs[:, :2] = 0.5
    inputs[0, :2] = inputs[1, :2] = inputs[3, 1] = RARE
    assert moved(start(Tokens(), clip=0.01), RARE, inputs=inputs) <= 2 * 0.01 * (1 + 1e-9)


class Called(nn.Module):
    """A gate, and one row for all examples, in a model that is called with more than the loader's batch."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(2)
        self.bias, self.usual, self.rare = nn.Embedding(1, 4), nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x, *, scale):
        h = x * scale + self.bias(torch.zeros(1, dtype=torch.long))
        made = torch.zeros_like(h)
        for mask, expert in ((x[:, 0] > 0.5, self.rare), (x[:, 0] <= 0.5, self.usual)):
            if mask.any():
                made[mask] = expert(h[mask])
        return made


def test_a_first_call_that_is_divided_stops_nothing_and_leaves_examples_their_gradients():
    private = start(Called())
    x = next(x for x, _ in private.loader if len(x) > 2)
    private.model(x, scale=1.0).square().sum(1).mean().backward()
    private.optimizer.step()
    plain, inputs = copy.deepcopy(private.model), batch([1])
    private.optimizer.zero_grad()
    private.model(inputs, scale=1.0).square().sum(1).mean().backward()
    parts, scale = private.optimizer.recorded()
    for place in range(6):
        plain.zero_grad()
        plain(inputs[place : place + 1], scale=1.0).square().sum().backward()
        for layer, part in parts.items():
            for own, rows in part.each().items():
                expected = plain.get_parameter(full_name(layer, own)).grad
                expected = torch.zeros_like(rows[place]) if expected is None else expected
                torch.testing.assert_close(rows[place] * scale, expected, rtol=1e-9, atol=1e-12)


class Balanced(nn.Module):
    """Keeps a loss of all examples together, which is added to theirs."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, x):
        made = self.layer(x)
        self.balance = made.mean(0).square().sum()
        return made


def test_a_loss_of_all_examples_that_a_model_keeps_is_refused():
    with pytest.raises(ValueError, match="changed with the other examples"):
        start(Balanced())
