"""Examples made to slip through the clipping of private SGD: none may add more than the bound that epsilon rests on.

Whoever chooses an example chooses what enters a layer and, through the loss, the gradient of what leaves it. Each test
hands a layer such numbers (the loss is the sum of outputs times a gradient of the attacker's choice) and measures what
the clipped sum really receives.
"""

import itertools
import os
from fractions import Fraction

import numpy as np
import pytest
import torch
from torch import nn

from noisette import sgd

# for each of 264 layers, precisions and rules, a sixth of them for each kind of attack; NOISETTE_FULL=1 makes 105,600
EXAMPLES = 400 if os.environ.get("NOISETTE_FULL") else 96


class Scale(nn.Module):
    """A layer that nobody foresaw."""

    def __init__(self):
        super().__init__()
        self.factor = nn.Parameter(torch.full((6,), 0.7))

    def forward(self, x):
        return x * self.factor + torch.sin(self.factor)


class States(nn.Module):
    """Every state of a recurrent layer."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x):
        return self.layer(x)[0]


_LONG = (
    "linear on tokens, compared",
    "linear on tokens, formed",
    "convolution, formed",
    "grouped convolution",
    "layer norm",
    "group norm",
)
LAYERS = {  # the layer, what enters for one example, and what leaves
    "linear": (lambda: nn.Linear(6, 5), (6,), (5,)),
    "linear on tokens, compared": (lambda: nn.Linear(24, 20), (4, 24), (4, 20)),
    "linear on tokens, formed": (lambda: nn.Linear(3, 2), (6, 3), (6, 2)),
    "convolution, compared": (lambda: nn.Conv1d(8, 40, 3), (8, 5), (40, 3)),
    "convolution, formed": (lambda: nn.Conv2d(2, 3, 3), (2, 6, 5), (3, 4, 3)),
    "grouped convolution": (lambda: nn.Conv1d(4, 6, 3, groups=2), (4, 6), (6, 4)),
    "embedding": (lambda: nn.Embedding(3, 4), None, (6, 4)),
    "layer norm": (lambda: nn.LayerNorm(6), (4, 6), (4, 6)),
    "group norm": (lambda: nn.GroupNorm(2, 4), (4, 5), (4, 5)),
    "own layer": (Scale, (4, 6), (4, 6)),
    "recurrence": (lambda: sgd.with_open_recurrence(States(nn.LSTM(3, 4, batch_first=True))), (5, 3), (5, 4)),
}
RULES = {
    "l2": lambda: sgd.L2(1.0),
    "l2 of a small norm": lambda: sgd.L2(1e-3),
    "auto-s": lambda: sgd.AutoS(),
    "psac": lambda: sgd.Psac(0.5),
    "linf": lambda: sgd.LInf(0.01),
    "quantile": lambda: sgd.Quantile(0.3),
    "per layer": lambda: sgd.PerLayer(1.0),
    "curvature": lambda: sgd.Curvature(2.0),
}
DTYPES = (torch.float32, torch.float64, torch.bfloat16)


def crafted(rng, inside, outside, dtype):
    """Return what enters and the gradients of what leaves: a sixth of the examples for each kind of attack."""
    entering = rng.standard_normal((EXAMPLES, *inside))
    leaving = rng.standard_normal((EXAMPLES, *outside))
    kind = np.arange(EXAMPLES) % 6
    size = 10 ** rng.uniform(2, 12, EXAMPLES)

    def of(which, like):
        return (kind == which).reshape(-1, *[1] * (like.ndim - 1))

    def grown(by, like):
        return by.reshape(-1, *[1] * (like.ndim - 1))

    axis = 1 if entering.ndim == 3 else -1  # positions of tokens; along a width they are the last
    near = 1 + 10.0 ** rng.uniform(-9, -2, EXAMPLES)
    twin = entering.copy()  # two near-equal tokens, then their opposite gradients
    np.copyto(twin, np.roll(entering, 1, axis=axis) * grown(near, entering), where=rng.random(entering.shape) < 0.5)
    pairs = entering if entering.shape[axis] < 2 else np.repeat(np.take(twin, [0], axis), entering.shape[axis], axis)
    pairs = pairs * (1 + grown(10.0 ** rng.uniform(-9, -4, EXAMPLES), pairs) * rng.standard_normal(pairs.shape))
    out_axis = 1 if leaving.ndim == 3 and outside[0] == inside[0] else -1
    signs = np.where(np.arange(leaving.shape[out_axis]) % 2, -1.0, 1.0)
    shape = [1] * leaving.ndim
    shape[out_axis] = -1
    opposed = np.take(leaving, [0], out_axis) * signs.reshape(shape)
    big_in, big_out = grown(size, entering), grown(size, leaving)
    denormal = 10.0 ** rng.uniform(-45, -37, EXAMPLES)
    entering = np.where(of(0, entering), pairs, entering)
    leaving = np.where(of(0, leaving), opposed * big_out, leaving)
    entering = np.where(of(1, entering), pairs * big_in, entering)
    leaving = np.where(of(1, leaving), opposed * big_out, leaving)
    leaving = np.where(of(2, leaving), leaving * big_out, leaving)
    entering = np.where(of(3, entering), entering * grown(denormal, entering), entering)
    leaving = np.where(of(3, leaving), leaving * grown(denormal * size, leaving), leaving)
    entering = np.where(of(4, entering), entering * 1e25, entering)  # products overflow, the gradient does not
    leaving = np.where(of(4, leaving), leaving * 1e-12, leaving)
    return torch.from_numpy(entering).to(dtype), torch.from_numpy(leaving).to(dtype)


def recorded(layer, entering, leaving):
    """Return the parts of a batch in which the gradient of every output is the attacker's."""
    recorder = sgd.Recorder(layer)
    (layer(entering) * leaving).sum().backward()
    parts = recorder.parts()
    recorder.remove()
    return parts


def started(rule, layer):
    """Return a rule that knows the layers."""
    made = RULES[rule]()
    sizes = {name: sum(p.numel() for p in own.parameters(recurse=False)) for name, own in layer.named_modules()}
    made.start({name: size for name, size in sizes.items() if size})
    return made


def flat(sums):
    """Return gradients as rows of one float64 array, with examples first where there are any."""
    return np.concatenate(
        [value.double().reshape(len(value), -1).numpy() for own in sums.values() for value in own.values()], axis=1
    )


def row(sums):
    return np.concatenate([value.double().flatten().numpy() for own in sums.values() for value in own.values()])


def norms(rows):
    """Return norms in extended precision."""
    return np.sqrt(np.square(rows.astype(np.longdouble)).sum(axis=-1))


@pytest.mark.parametrize("name", LAYERS)
def test_no_crafted_example_adds_more_than_the_bound(name):
    """Cancelling tokens, residuals of 1e2 to 1e12, denormals and overflowing products, by every rule of clipping."""
    build, inside, outside = LAYERS[name]
    rng = np.random.default_rng(sum(map(ord, name)))
    for dtype, rule in itertools.product(DTYPES, RULES):
        torch.manual_seed(1)
        layer = build().to(dtype)
        entering, leaving = crafted(rng, inside or (6,), outside, dtype)
        if inside is None:
            entering = torch.from_numpy(rng.integers(0, 3, (EXAMPLES, 6)))
        parts, clip, scale = recorded(layer, entering, leaving), started(rule, layer), rng.choice([1.0, 400.0])
        total, each = row(clip.total(parts, scale)), flat(clip.each(parts, scale))
        assert np.isfinite(each).all(), (name, dtype, rule)
        assert np.isfinite(total).all(), (name, dtype, rule)
        assert float(norms(each).max()) <= clip.bound, (name, dtype, rule)
        # what was measured is what is summed: to a part of the bound that is left to rounding
        assert float(norms(total - each.sum(0))) <= (1 - clip.kept) * clip.bound, (name, dtype, rule)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.long] if name in _LONG else []) for name in LAYERS]
)
def test_the_sums_with_and_without_a_crafted_example_differ_by_no_more_than_the_bound(name):
    """Rounding of everybody else's terms included, which an example's presence changes too."""
    build, inside, outside = LAYERS[name]
    rng = np.random.default_rng(1 + sum(map(ord, name)))
    for dtype, rule in itertools.product(DTYPES, ("l2", "linf")):
        torch.manual_seed(1)
        layer = build().to(dtype)
        entering, leaving = crafted(rng, inside or (6,), outside, dtype)
        if inside is None:
            entering = torch.from_numpy(rng.integers(0, 3, (EXAMPLES, 6)))
        clip = started(rule, layer)
        some = slice(0, 30)
        whole = row(clip.total(recorded(layer, entering[some], leaving[some]), 1.0))
        for left_out in range(0, 30, 2):
            rest = [place for place in range(30) if place != left_out]
            less = row(clip.total(recorded(layer, entering[rest], leaving[rest]), 1.0))
            assert float(norms(whole - less)) <= clip.bound, (name, dtype, rule, left_out)


def float32_gram_norms(entering, leaving):
    """Return norms as they were computed before: products of positions in single precision."""
    alike = torch.bmm(entering, entering.transpose(1, 2))
    return (alike * torch.bmm(leaving, leaving.transpose(1, 2))).flatten(1).sum(1).sqrt()


def test_norms_from_single_precision_would_be_caught():
    """The same check on the clipping that this suite was written against: it fails, by far."""
    rng = np.random.default_rng(5)
    entering, leaving = crafted(rng, (4, 24), (4, 20), torch.float32)
    weights = (1.0 / float32_gram_norms(entering, leaving)).clamp(max=1.0).double()
    each = torch.einsum("bto,bti->boi", leaving.double(), entering.double()) * weights[:, None, None]
    rows = each.flatten(1).numpy()
    seen = norms(rows[np.isfinite(rows).all(1)])
    assert float(seen.max()) > 1000
    assert int((seen > 1.01).sum()) + int((~np.isfinite(rows).all(1)).sum()) > EXAMPLES // 20


def test_two_tokens_that_cancel_are_clipped_as_what_they_are_not_as_what_they_seem():
    """The example that was reported: a computed norm of 0, a true one of thousands."""
    torch.manual_seed(1)
    layer = nn.Linear(64, 64)
    token, gradient = torch.randn(64), torch.randn(64)
    entering = torch.stack([token, token * (1 + 2.0**-12)])[None]
    leaving = torch.stack([gradient, -gradient])[None] * 2500.0
    clip = started("l2", layer)
    added = row(clip.total(recorded(layer, entering, leaving), 1.0))
    assert 0 < float(norms(added)) <= 1.0


@pytest.mark.parametrize("precision", ["high", "medium"])
def test_fast_matrix_products_do_not_loosen_the_norm(precision):
    """A user may allow products in bfloat16; norms then rest on the numbers that are summed."""
    before = torch.get_float32_matmul_precision()
    layer = nn.Linear(24, 20)
    entering, leaving = crafted(np.random.default_rng(6), (4, 24), (4, 20), torch.float32)
    torch.set_float32_matmul_precision(precision)
    try:
        parts, clip = recorded(layer, entering, leaving), started("l2", layer)
        assert float(norms(flat(clip.each(parts, 1.0))).max()) <= clip.bound
    finally:
        torch.set_float32_matmul_precision(before)


def test_denormals_that_a_processor_reads_as_zero_are_counted():
    """Flushing to zero is switched on in one thread: what is not read there may be read elsewhere."""
    if not torch.set_flush_denormal(True):
        pytest.skip("this processor has no such mode")
    try:
        layer = nn.Linear(24, 20)
        entering, leaving = torch.full((3, 4, 24), 1e-40), torch.full((3, 4, 20), 1e30)
        squares = recorded(layer, entering, leaving)[""].squares()
    finally:
        torch.set_flush_denormal(False)
    true = torch.einsum("bto,bti->boi", leaving.double(), entering.double()).flatten(1).square().sum(1)
    assert bool((squares >= true).all())


def test_the_norm_of_a_gradient_that_does_not_cancel_is_near_the_truth():
    """A bound that is proved must not be a bound that is useless: honest examples lose less than a thousandth."""
    torch.manual_seed(3)
    layer = nn.Linear(64, 256)
    entering, leaving = torch.randn(50, 16, 64), torch.randn(50, 16, 256)
    squares = recorded(layer, entering, leaving)[""].squares()
    true = torch.einsum("bto,bti->boi", leaving.double(), entering.double()).flatten(1).square().sum(1)
    true += leaving.double().sum(1).square().sum(1)
    assert bool((squares >= true).all())
    assert float((squares / true).sqrt().max()) < 1.001


def test_thresholds_of_layers_add_up_to_no_more_than_the_norm():
    """Rounded up, seven equal shares of the squared norm would be more than the whole."""
    for count in range(1, 60):
        rule = sgd.PerLayer(0.1 * count)
        rule.start({str(place): 3 for place in range(count)})
        whole = sum(np.longdouble(threshold) ** 2 for threshold in rule.thresholds)
        assert whole <= np.longdouble(rule.bound) ** 2


def test_more_examples_leave_more_room_to_rounding_and_too_many_are_refused():
    rule = sgd.L2(1.0)
    rule.leave_room(60_000, 1024)
    assert rule.kept == 1 - 2.0**-16
    rule.leave_room(10**8, 1024)
    assert 0.99 < rule.kept < 1 - 2.0**-16
    for examples, piece in ((10**8, 1024), (10**8 + 1, 1000), (10**7, 10**5), (10**7 + 1, 10**5)):
        rule.leave_room(examples, piece)
        # twice two ulps of each rounding: within pieces, of their sums, and eight more
        sums = piece + (examples + piece - 1) // piece + 8
        assert Fraction(rule.kept) == Fraction(float(1 - Fraction(4 * examples * sums, 2**53)))
    with pytest.raises(ValueError, match="physical_batch"):
        rule.leave_room(10**12, 16)
