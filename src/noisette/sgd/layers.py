"""The gradient of one example in one layer, from what went in and from the gradient of what came out.

For one example a layer is a sum over positions t (pixels, time steps, uses of the layer) of outer products: its
gradient is sum_t g_t a_t^T, with a_t what the weights were multiplied with and g_t the gradient of what came out.
Norms and weighted sums follow from both without forming every example's gradient where that is cheaper (Bu, Wang, Zha,
Karypis 2023: mixed ghost norms and book-keeping).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

_CACHED = 1 << 18  # numbers that stay in a core's cache
Gradients = dict[str, Tensor]
Use = tuple[Tensor, Tensor]  # what went into a layer, and the gradient of what came out


@dataclass(frozen=True)
class Laid:
    """Rows of numbers, one for each example; or with ``right`` the two rows of which each is the outer product.

    ``order`` tells where in a row each entry of the parameter lies; as they are, by default.
    """

    left: Tensor
    right: Tensor | None = None
    order: Tensor | None = None


class Part(ABC):
    """The share of one layer in the gradients of a batch, by the names of its parameters."""

    @abstractmethod
    def squares(self) -> Tensor:
        """Return the squared norm of each example's share."""

    @abstractmethod
    def total(self, weights: Tensor) -> Gradients:
        """Return the sum of the examples' gradients, with a weight each."""

    @abstractmethod
    def each(self) -> Gradients:
        """Return every example's gradient, with examples along the first axis."""

    def laid(self) -> dict[str, Laid]:
        """Return every example's gradient as it lies in memory, without a copy where that can be."""
        return {name: Laid(gradient.flatten(1)) for name, gradient in self.each().items()}


class Formed(Part):
    """Gradients that are small enough, or unusual enough, to be formed for every example."""

    def __init__(self, gradients: Gradients) -> None:
        self._gradients = gradients

    def squares(self) -> Tensor:
        return torch.stack([_squares(gradient) for gradient in self._gradients.values()]).sum(0)

    def total(self, weights: Tensor) -> Gradients:
        return {
            name: (weights @ gradient.flatten(1)).reshape(gradient.shape[1:])
            for name, gradient in self._gradients.items()
        }

    def each(self) -> Gradients:
        return self._gradients


class Outer(Part):
    """Outer products of inputs (examples, positions, fan in) and output gradients (examples, positions, fan out).

    ``place`` brings what was flattened, as (..., fan out, fan in), into the shape of the weights.
    """

    def __init__(
        self,
        inputs: Tensor,
        outputs: Tensor,
        place: Callable[[Tensor], Tensor],
        *,
        bias: bool,
        formed: Tensor | None = None,
    ) -> None:
        self._inputs, self._outputs, self._place, self._formed = inputs, outputs, place, formed
        self._bias = (outputs[:, 0] if outputs.shape[1] == 1 else outputs.sum(1)) if bias else None

    def _form(self) -> Tensor:
        """Return every example's gradient of the weights as (examples, fan out, fan in), and keep it."""
        if self._formed is None:
            self._formed = torch.bmm(self._outputs.transpose(1, 2), self._inputs)
        return self._formed

    def squares(self) -> Tensor:
        positions, fan_in, fan_out = *self._inputs.shape[1:], self._outputs.shape[2]
        if self._formed is not None:
            squares = _squares(self._formed)
        elif positions == 1:
            squares = _squares(self._inputs) * _squares(self._outputs)
        elif _formed_sooner(positions, fan_in, fan_out):
            squares = _squares(self._form())
        else:
            alike = torch.bmm(self._inputs, self._inputs.transpose(1, 2))
            squares = (alike * torch.bmm(self._outputs, self._outputs.transpose(1, 2))).flatten(1).sum(1)
        return squares if self._bias is None else squares + _squares(self._bias)

    def total(self, weights: Tensor) -> Gradients:
        if self._formed is not None:
            weight = (weights @ self._formed.flatten(1)).reshape(self._formed.shape[1:])
        else:
            scaled = (self._outputs * weights[:, None, None]).flatten(0, 1)
            weight = scaled.T @ self._inputs.flatten(0, 1)
        made = {"weight": self._place(weight)}
        return made if self._bias is None else made | {"bias": weights @ self._bias}

    def each(self) -> Gradients:
        made = {"weight": self._place(self._form())}
        return made if self._bias is None else made | {"bias": self._bias}

    def laid(self) -> dict[str, Laid]:
        if self._formed is None and self._inputs.shape[1] == 1:
            made = {"weight": Laid(self._outputs[:, 0], right=self._inputs[:, 0])}
        else:
            formed = self._form()
            places = torch.arange(math.prod(formed.shape[1:])).reshape(formed.shape[1:])
            made = {"weight": Laid(formed.flatten(1), order=self._place(places).flatten())}
        return made if self._bias is None else made | {"bias": Laid(self._bias)}


class Looked(Part):
    """Rows of a table: positions (examples, positions) and the gradients of what was looked up there."""

    def __init__(self, rows: Tensor, outputs: Tensor, shape: torch.Size) -> None:
        self._rows, self._outputs, self._shape = rows, outputs, shape

    def squares(self) -> Tensor:
        same = self._rows[:, :, None] == self._rows[:, None, :]
        return (same * torch.bmm(self._outputs, self._outputs.transpose(1, 2))).flatten(1).sum(1)

    def total(self, weights: Tensor) -> Gradients:
        table = self._outputs.new_zeros(self._shape)
        scaled = self._outputs * weights[:, None, None]
        return {"weight": table.index_add_(0, self._rows.flatten(), scaled.flatten(0, 1))}

    def each(self) -> Gradients:
        examples, rows = self._rows.shape[0], self._shape[0]
        table = self._outputs.new_zeros((examples * rows, self._shape[1]))
        offsets = torch.arange(examples, device=self._rows.device)[:, None] * rows
        table.index_add_(0, (self._rows + offsets).flatten(), self._outputs.flatten(0, 1))
        return {"weight": table.reshape(examples, *self._shape)}


def _formed_sooner(positions: int, fan_in: int, fan_out: int) -> bool:
    """Tell whether forming a gradient takes fewer operations than comparing its positions with each other."""
    return positions > 1 and positions * (fan_in + fan_out) > fan_in * fan_out


def _squares(gradients: Tensor) -> Tensor:
    """Return the squared norm of each example's numbers."""
    norms: Tensor = torch.linalg.vector_norm(gradients.flatten(1), dim=1)
    return norms.square()


def _joined(tensors: list[Tensor], axis: int) -> Tensor:
    """Return tensors one behind the other, without a copy where there is one."""
    return tensors[0] if len(tensors) == 1 else torch.cat(tensors, axis)


def _positions(tensor: Tensor) -> Tensor:
    """Return (examples, ..., features) as (examples, positions, features)."""
    return tensor.flatten(1, -2) if tensor.ndim > 2 else tensor[:, None]


def _linear(layer: nn.Linear, uses: Sequence[Use]) -> Part:
    inputs = _joined([_positions(entered) for entered, _ in uses], 1)
    outputs = _joined([_positions(gradient) for _, gradient in uses], 1)
    return Outer(inputs, outputs, lambda weight: weight, bias=layer.bias is not None)


def _convolution(layer: Any, uses: Sequence[Use]) -> Part:
    if layer.groups > 1:
        return _any(layer, uses)
    outputs = _joined([gradient.flatten(2) for _, gradient in uses], 2).transpose(1, 2)
    channels, *kernel = layer.weight.shape[1:]
    examples, positions, fan_out = outputs.shape
    fan_in = channels * math.prod(kernel)

    def place(weight: Tensor) -> Tensor:
        """Put the kernel's last axis, which `_windows` lays first, behind the others."""
        return weight.reshape(*weight.shape[:-1], channels, kernel[-1], *kernel[:-1]).movedim(-len(kernel), -1)

    def windows(part: slice) -> Tensor:
        return _joined([_windows(layer, entered[part]) for entered, _ in uses], 2).transpose(1, 2)

    bias = layer.bias is not None
    if not _formed_sooner(positions, fan_in, fan_out):
        return Outer(windows(slice(None)), outputs, place, bias=bias)
    formed = outputs.new_empty(examples, fan_out, fan_in)
    some = max(_CACHED // (positions * fan_in), 1)
    for start in range(0, examples, some):  # windows are many times the image: make them where a cache holds them
        part = slice(start, start + some)
        torch.bmm(outputs[part].transpose(1, 2), windows(part), out=formed[part])
    return Outer(windows(slice(0)), outputs, place, bias=bias, formed=formed)


def _windows(layer: Any, entered: Tensor) -> Tensor:
    """Return what the kernel sees, as (examples, channels x kernel, positions).

    Two copies: first along the last axis, then along the others, in runs as long as the output is wide or longer.
    """
    around = layer._reversed_padding_repeated_twice
    if any(around):
        mode = "constant" if layer.padding_mode == "zeros" else layer.padding_mode
        entered = functional.pad(entered, around, mode=mode)
    rules = list(zip(layer.kernel_size, layer.dilation, layer.stride, strict=True))
    counts = [(n - d * (k - 1) - 1) // s + 1 for n, (k, d, s) in zip(entered.shape[2:], rules, strict=True)]
    (width, apart, stride), step = rules[-1], entered.stride()
    rows = entered.as_strided(
        (*entered.shape[:2], width, *entered.shape[2:-1], counts[-1]),
        (*step[:2], apart * step[-1], *step[2:-1], stride * step[-1]),
        entered.storage_offset(),
    ).contiguous()
    step = rows.stride()
    windows = rows.as_strided(
        (*rows.shape[:3], *(k for k, _, _ in rules[:-1]), *counts),
        (
            *step[:3],
            *(d * along for along, (_, d, _) in zip(step[3:], rules[:-1], strict=False)),
            *(s * along for along, (_, _, s) in zip(step[3:], rules[:-1], strict=False)),
            step[-1],
        ),
    )
    return windows.flatten(-len(counts)).flatten(1, -2)


def _embedding(layer: nn.Embedding, uses: Sequence[Use]) -> Part:
    rows = _joined([entered.flatten(1) if entered.ndim > 1 else entered[:, None] for entered, _ in uses], 1)
    outputs = _joined([_positions(gradient) for _, gradient in uses], 1)
    if layer.padding_idx is not None:
        outputs = outputs * (rows != layer.padding_idx)[..., None]
    return Looked(rows, outputs, layer.weight.shape)


def _group_norm(layer: nn.GroupNorm, uses: Sequence[Use]) -> Part:
    """Scale and shift of each channel: sums over positions of the gradient with and without what was normalised."""
    scales, shifts = [], []
    for entered, gradient in uses:
        plain = functional.group_norm(entered, layer.num_groups, eps=layer.eps)
        scales.append((gradient * plain).flatten(2).sum(2) if gradient.ndim > 2 else gradient * plain)
        shifts.append(gradient.flatten(2).sum(2) if gradient.ndim > 2 else gradient)
    return Formed({"weight": torch.stack(scales).sum(0), "bias": torch.stack(shifts).sum(0)})


def _any(layer: nn.Module, uses: Sequence[Use]) -> Part:
    """Form the gradients of any layer that treats examples one by one, by torch.func."""
    names = {name: parameter.detach() for name, parameter in layer.named_parameters(recurse=False)}
    if not uses[0][0].shape[0]:  # some layers cannot be mapped over no example
        return Formed({name: parameter.new_zeros(0, *parameter.shape) for name, parameter in names.items()})

    def response(parameters: dict[str, Tensor], entered: Tensor, gradient: Tensor) -> Tensor:
        made: Tensor = torch.func.functional_call(layer, parameters, (entered[None],))
        return (made * gradient[None]).sum()

    each = torch.func.vmap(torch.func.grad(response), in_dims=(None, 0, 0), randomness="different")
    formed = [each(names, entered, gradient) for entered, gradient in uses]
    return Formed({name: torch.stack([gradients[name] for gradients in formed]).sum(0) for name in names})


_PARTS: dict[type[nn.Module], Callable[[Any, Sequence[Use]], Part]] = {
    nn.Linear: _linear,
    nn.Conv1d: _convolution,
    nn.Conv2d: _convolution,
    nn.Conv3d: _convolution,
    nn.Embedding: _embedding,
    nn.GroupNorm: _group_norm,
}


def part(layer: nn.Module, uses: Sequence[Use]) -> Part:
    """Return a layer's share in the gradients, from its uses in one batch; other layers are formed by torch.func."""
    return _PARTS.get(type(layer), _any)(layer, uses)
