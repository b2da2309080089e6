"""The largest of every two by two pixels, and the way back: torch's own loop takes longer than a convolution does.

The numbers are torch's: the first of equal ones counts, and what is not a number wins. A byte for each says which of
the four it was, where torch keeps a place of eight bytes.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch._C._functorch import peek_interpreter_stack
from torch.nn import functional

from noisette.mechanisms._compiled import compiled
from noisette.mechanisms._team import Loop, in_parts
from noisette.sgd.recording import _rows


def _fill_largest(entered: Any, out: Any, places: Any, low: int, high: int) -> None:
    """Fill the largest of every four pixels, of images (planes, height, width), and which one it is."""
    for plane in range(low, high):
        for row in range(out.shape[1]):
            one, two = entered[plane, 2 * row], entered[plane, 2 * row + 1]
            to, at = out[plane, row], places[plane, row]
            for column in range(to.size):
                a, b = one[2 * column], one[2 * column + 1]
                c, d = two[2 * column], two[2 * column + 1]
                first = (b > a) | (b != b)
                upper = b if first else a
                second = (c > upper) | (c != c)
                upper = c if second else upper
                third = (d > upper) | (d != d)
                to[column] = d if third else upper
                at[column] = 3 if third else (2 if second else (1 if first else 0))


def _fill_back(gradient: Any, places: Any, out: Any, low: int, high: int) -> None:
    """Lay every gradient where the largest pixel was, and zeros beside it."""
    for plane in range(low, high):
        for row in range(gradient.shape[1]):
            one, two = out[plane, 2 * row], out[plane, 2 * row + 1]
            back, at = gradient[plane, row], places[plane, row]
            for column in range(back.size):
                place, value = at[column], back[column]
                one[2 * column] = value if place == 0 else 0
                one[2 * column + 1] = value if place == 1 else 0
                two[2 * column] = value if place == 2 else 0
                two[2 * column + 1] = value if place == 3 else 0
            one[2 * back.size :] = 0
            two[2 * back.size :] = 0
        out[plane, 2 * gradient.shape[1] :] = 0


_largest, _back = compiled(_fill_largest), compiled(_fill_back)
_choosing = Loop(_largest, compiled(lambda given, team: in_parts(_largest, given, team)))
_returning = Loop(_back, compiled(lambda given, team: in_parts(_back, given, team)))


class _Pooled(torch.autograd.Function):
    """The largest of every four pixels."""

    @staticmethod
    def forward(ctx: Any, entered: Tensor) -> Tensor:
        *outer, height, width = entered.shape
        made = entered.new_empty(*outer, height // 2, width // 2)
        places = torch.empty_like(made, dtype=torch.uint8)
        given, out, at = (tensor.flatten(0, -3).detach().numpy() for tensor in (entered, made, places))
        _rows.shared(_choosing, given, out, at, places=len(out), size=given.size)
        ctx.save_for_backward(places)
        ctx.shape = entered.shape
        return made

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        (gradient,), (places,), shape = gradients, ctx.saved_tensors, ctx.shape
        if torch.is_grad_enabled():  # the gradient is to be differentiated again
            rows, columns = (torch.arange(0, 2 * count, 2) for count in places.shape[-2:])
            index = (rows[:, None] + places // 2) * shape[-1] + columns + places % 2
            return functional.max_unpool2d(gradient, index, [2, 2], output_size=list(shape[-2:]))
        made = gradient.new_empty(shape)
        back, at, out = (tensor.flatten(0, -3).detach().numpy() for tensor in (gradient.contiguous(), places, made))
        _rows.shared(_returning, back, at, out, places=len(out), size=out.size)
        return made


def is_quick(layer: nn.Module) -> bool:
    """Tell whether a layer pools two by two pixels that no other output sees."""
    if type(layer) is not nn.MaxPool2d or "forward" in layer.__dict__:
        return False
    pairs = (2, (2, 2)), (2, (2, 2)), (0, (0, 0)), (1, (1, 1))
    rules = layer.kernel_size, layer.stride, layer.padding, layer.dilation
    plain = all(rule in allowed for rule, allowed in zip(rules, pairs, strict=True))
    return plain and not layer.return_indices and not layer.ceil_mode


class Pool:
    """The forward pass of such a layer; in a copy of the layer, its plain one."""

    def __init__(self, layer: nn.Module) -> None:
        self._layer = layer

    def __call__(self, entered: Tensor) -> Any:
        if (
            not torch.compiler.is_compiling()
            and type(entered) is Tensor
            and entered.requires_grad
            and entered.ndim == 4
            and min(entered.shape) > 1
            and _rows.compilable(entered)
            and entered.is_contiguous()
            and torch.is_grad_enabled()
            and peek_interpreter_stack() is None
        ):
            return _Pooled.apply(entered)  # type: ignore[no-untyped-call]
        return type(self._layer).forward(self._layer, entered)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return _plain(memo.get(id(self._layer), self._layer))

    def __reduce__(self) -> Any:
        return _plain, (self._layer,)


def _plain(layer: nn.Module) -> Any:
    """Return the layer's own forward pass."""
    return type(layer).forward.__get__(layer)
