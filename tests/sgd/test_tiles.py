"""Products by tiles, and kernels' gradients by each of their ways: against plain products and backpropagation."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from noisette.sgd.recording import _kernels, _rows, _tiles, layers
from noisette.sgd.recording.gradients import Recorder

KINDS = {torch.float32: 1e-5, torch.float64: 1e-13}


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize(
    "shape", [(3, 5, 8, 16), (2, 1, 9, 17), (4, 40, 19, 49), (2, 7, 16, 100), (1, 3, 8, 33)], ids=str
)
def test_each_product_is_the_plain_one(shape, kind):
    examples, rows, height, width = shape
    torch.manual_seed(1)
    left, right = torch.randn(examples, rows, height, dtype=kind), torch.randn(examples, rows, width, dtype=kind)
    assert _tiles.vectors_of(height, width, left.element_size())
    made = _tiles.each_product(left, right, _rows.shared)
    expected = left.double().transpose(1, 2) @ right.double()
    torch.testing.assert_close(made.double(), expected, rtol=0, atol=KINDS[kind] * rows)


@pytest.mark.parametrize("shape", [(1, 80, 80), (5, 81, 97), (64, 100, 83), (7, 200, 80)], ids=str)
def test_weighted_products_are_in_double_precision(shape):
    examples, height, width = shape
    torch.manual_seed(1)
    left, right = torch.randn(examples, height), torch.randn(examples, width)
    weights = torch.rand(examples, dtype=torch.float64)
    made = _tiles.product(left, right, weights, _rows.shared)
    expected = (left.double() * weights[:, None]).T @ right.double()
    torch.testing.assert_close(made, expected, rtol=0, atol=1e-14 * examples)


def test_what_no_tile_fits_is_multiplied_by_torch():
    assert not _tiles.vectors_of(_tiles.ROWS - 1, 100, 4)
    assert not _tiles.vectors_of(100, 3, 8)
    left, right = torch.randn(3, 4, 2), torch.randn(3, 4, 5)
    torch.testing.assert_close(_rows.each_product(left, right), left.transpose(1, 2) @ right)
    assert _rows.each_product(torch.randn(3, 0, 8), torch.randn(3, 0, 16)).abs().sum() == 0


CONVOLUTIONS = {
    "rows of the kernel": (lambda: nn.Conv2d(17, 9, 3, padding=1), (7, 6)),
    "strides": (lambda: nn.Conv2d(16, 8, (3, 2), stride=(2, 3), padding=(2, 1)), (11, 13)),
    "holes": (lambda: nn.Conv2d(17, 9, (3, 2), stride=(1, 2), padding=(0, 1), dilation=(2, 2)), (11, 13)),
    "holes between rows": (lambda: nn.Conv2d(5, 9, (2, 5), dilation=(3, 1)), (9, 8)),
    "around": (lambda: nn.Conv2d(16, 8, 3, padding=1, padding_mode="circular"), (6, 7)),
    "one pixel": (lambda: nn.Conv2d(33, 12, 1, stride=2), (6, 7)),
    "line": (lambda: nn.Conv1d(17, 9, 4, stride=3, padding=2, dilation=2), (40,)),
    "uneven": (lambda: nn.Conv1d(5, 9, 5, padding="same"), (12,)),
}


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_every_way_gives_the_kernels_gradient(name, kind):
    torch.manual_seed(1)
    make, size = CONVOLUTIONS[name]
    layer = make().to(kind)
    entered = torch.randn(3, layer.in_channels, *size, dtype=kind)
    out = layer(entered)
    gradient = torch.randn_like(out)
    expected = torch.stack(
        [torch.autograd.grad(layer(x[None]), layer.weight, g[None])[0] for x, g in zip(entered, gradient, strict=True)]
    )
    ways = ["windows"]
    if _kernels._registers(layer, entered):
        ways.append("tiles")
    if all(stride == 1 for stride in layer.stride):
        ways.append("direct")
    assert name != "rows of the kernel" or _kernels.way_of(layer, [entered]) == "tiles"
    for way in ways:
        made = _kernels.placed(layer, _kernels.each_kernel(layer, entered, gradient, way), way)
        torch.testing.assert_close(made, expected, rtol=0, atol=100 * KINDS[kind])


class Twice(nn.Module):
    """A convolution and normalisation that are used twice, or once."""

    def __init__(self, uses: int) -> None:
        super().__init__()
        self.uses, self.layer, self.norm = uses, nn.Conv2d(16, 16, 3, padding=1), nn.GroupNorm(4, 16)

    def forward(self, x):
        for _ in range(self.uses):
            x = torch.tanh(self.norm(self.layer(x)))
        return x.flatten(1).sum(1)


@pytest.mark.parametrize("passes", [1, 2])
@pytest.mark.parametrize("uses", [1, 2])
def test_uses_add_up_whether_they_are_formed_early_or_not(uses, passes):
    torch.manual_seed(1)
    model = Twice(uses).double()
    inputs = torch.randn(3, 16, 5, 6, dtype=torch.float64)
    expected = []
    for example in inputs:
        model.zero_grad()
        (passes * model(example[None]).sum()).backward()
        expected.append({name: value.grad.clone() for name, value in model.named_parameters()})
    model.zero_grad()
    recorder = Recorder(model)
    loss = model(inputs).sum()
    for _ in range(passes):
        loss.backward(retain_graph=True)
    parts = recorder.parts()
    assert recorder.examples == 3
    for layer, part in parts.items():
        for own, gradients in part.each().items():
            theirs = torch.stack([one[f"{layer}.{own}"] for one in expected])
            torch.testing.assert_close(gradients, theirs, rtol=1e-9, atol=1e-12)
        squares = torch.stack(
            [sum(one[f"{layer}.{own}"].square().sum() for own in ("weight", "bias")) for one in expected]
        )
        torch.testing.assert_close(part.squares(), squares, rtol=1e-9, atol=0)
    recorder.remove()


def test_what_gradients_were_formed_from_is_let_go():
    model = nn.Sequential(nn.Conv2d(16, 16, 3, padding=1), nn.Flatten(), nn.Linear(16 * 64, 4))
    recorder = Recorder(model)
    model(torch.randn(3, 16, 8, 8)).sum().backward()
    assert not recorder._uses["0"]
    assert "0" in recorder._early
    assert len(recorder._uses["2"]) == 1, "the product of two rows is not formed"
    assert recorder.rows() == {"0": {3}, "2": {3}}
    recorder.clear()
    assert not recorder._early
    assert not any(recorder.rows().values())
    recorder.remove()


def test_the_tile_that_covers_a_row_with_the_fewest_registers_is_taken():
    lanes = _tiles._REGISTER // 4
    wanted = {
        lanes - 1: 0,
        lanes: 1,
        2 * lanes: 2,
        3 * lanes - 1: 1,
        3 * lanes: 3,
        4 * lanes: 2,
        5 * lanes: 1,
        6 * lanes: 3,
    }
    assert {width: _tiles.vectors_of(_tiles.ROWS, width, 4) for width in wanted} == wanted
    assert not any(_tiles.vectors_of(_tiles.ROWS - 1, width, 4) for width in wanted)
    assert _tiles.vectors_of(_tiles.ROWS, lanes, 8) == 2  # half as many numbers in a register


def test_a_kernel_takes_the_way_that_its_size_and_stride_allow():
    """No tile fits two channels; then long lines of outputs without a stride are summed directly."""
    long, short = torch.zeros(1, 1, 1, _kernels._LONG), torch.zeros(1, 1, 1, _kernels._LONG - 1)
    layer, leap = nn.Conv2d(1, 2, (1, 3)), nn.Conv2d(1, 2, (1, 3), stride=(1, 2))
    assert _kernels.way_of(layer, [long]) == "direct"
    assert _kernels.way_of(layer, [long, long]) == "direct"
    assert _kernels.way_of(layer, [long, short]) == "windows"
    assert _kernels.way_of(layer, [short]) == "windows"
    assert _kernels.way_of(leap, [long]) == "windows"
    assert _kernels.way_of(layer, [long, long.to(torch.float16)]) == "windows"
    assert _kernels.way_of(nn.Conv3d(1, 2, 1), [torch.zeros(1, 1, 1, 1, _kernels._LONG)]) == "windows"


def test_only_large_linear_layers_are_summed_in_single_precision():
    def quickly(layer):
        return layers.sums_quickly(layer)

    class Own(nn.Linear):
        pass

    assert quickly(nn.Linear(256, 256))  # 2^16 weights
    assert quickly(nn.Linear(80, 820))
    assert quickly(nn.Linear(820, 80, bias=False))
    assert not quickly(nn.Linear(255, 257))
    assert not quickly(nn.Linear(79, 900))
    assert not quickly(nn.Linear(900, 79))
    assert not quickly(nn.Linear(256, 256, dtype=torch.float64))
    assert not quickly(nn.Linear(256, 256, device="meta"))
    assert not quickly(Own(256, 256))
    assert not quickly(nn.Linear(256, 256).requires_grad_(False))
    assert not quickly(nn.ReLU())


def test_what_is_formed_and_what_is_compared():
    """Formed while a gradient is at most twice as long as its factors; long where it takes more than twice theirs."""
    assert [layers._formed_sooner(*case) for case in ((2, 4, 4), (2, 8, 8), (3, 8, 8), (2, 8, 7), (1, 1, 1))] == [
        *(True, False, True, True, False)
    ]
    uses = [(torch.zeros(5, 2, 3), torch.zeros(5, 4)), (torch.zeros(5, 1), torch.zeros(5, 2))]
    assert [layers._is_long(uses, formed) for formed in (25, 26, 27)] == [False, False, True]


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_a_tile_covers_a_row_of_a_kernel_or_a_pixel_of_one_with_holes(kind):
    """A register that reaches beyond it would sum what is beside it."""
    lanes = _tiles._REGISTER // kind.itemsize
    for channels, kernel, holes, fits in (
        (lanes - 1, (3, 3), (1, 2), 0),
        (lanes, (3, 3), (1, 2), 1),
        (-(-lanes // 3) - 1, (2, 3), (2, 1), 0),
        (-(-lanes // 3), (2, 3), (2, 1), 1),
    ):
        layer = nn.Conv2d(channels, _tiles.ROWS, kernel, dilation=holes).to(kind)
        assert bool(_kernels._registers(layer, torch.zeros(1, channels, 9, 9, dtype=kind))) == fits
