"""The gradient of one example in one layer, from what went in and from the gradient of what came out.

For one example a layer is a sum over positions t (pixels, time steps, uses of the layer) of outer products: its
gradient is sum_t g_t a_t^T, with a_t what the weights were multiplied with and g_t the gradient of what came out.
Norms and weighted sums follow from both without keeping every example's gradient where that is cheaper (Bu, Wang, Zha,
Karypis 2023: mixed ghost norms and book-keeping).

What one example contributes is a matrix of numbers f, computed in the precision of the layer (single precision for
half precisions), whatever those numbers are worth: where tokens cancel they are mostly rounding errors. `Part.squares`
is proved to be at least |f|^2, and `Part.total` adds the weighted f in double precision (`Part.quick_total` in single
precision, see `clipping`):

* a gradient that is formed: the squares of the very numbers that are summed later, added up in double precision. Where
  they are formed twice, one loop with a fixed order of sums forms them both times, to the same bits;
* one position: |f| = |g| |a|, both in double precision, and so are the products that are summed;
* several positions, not kept: with A = sum_t |g_t| |a_t|, the true gradient G has |G|^2 = sum_ts <a_t, a_s> <g_t, g_s>,
  of which single precision computes all but (gamma_in + gamma_out + gamma_in gamma_out) A^2, and |f - G| is at most
  gamma_T A (gamma_n = n u / (1 - n u), u the unit roundoff; Higham 2002, section 3.1). Both are added. What underflow
  and flushing to zero can hide is added too, and where a product overflows A itself bounds |G|. So an example that
  cancels is clipped harder, and never trusted;
* rows of a table: the sums of an example's gradients at each row, in double precision.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from noisette.sgd.recording import _kernels, _rows

_CACHED = 1 << 18  # numbers that stay in a core's cache
_PIECE = 1 << 17  # numbers of gradients in a piece
_LARGE = 1 << 16  # weights of a layer from which the precision of its sums is felt in a step
_FORMED = 1 << 26  # numbers of tied parameters, for all examples, that are formed
Gradients = dict[str, Tensor]
Use = tuple[Tensor, Tensor]  # what went into a layer, and the gradient of what came out


@dataclass(frozen=True)
class Laid:
    """Rows of numbers, one for each example; or with ``right`` the two rows of which each is the outer product.

    ``order`` says where in a row each entry of the parameter lies; by default in its own place.
    """

    left: Tensor
    right: Tensor | None = None
    order: Tensor | None = None


class Part(ABC):
    """The share of one layer in the gradients of a batch, by the names of its parameters."""

    @abstractmethod
    def squares(self) -> Tensor:
        """Return an upper bound of the squared norm of each example's share, not finite where a number is not."""

    @abstractmethod
    def total(self, weights: Tensor) -> Gradients:
        """Return the sum of the examples' gradients, with a weight each; in double precision, as the weights are.

        An example of weight 0 adds nothing, whatever its numbers are.
        """

    def quick_total(self, weights: Tensor) -> Gradients:
        """Do as `total`, in single precision where that is quicker; `clipping` says when it may be taken."""
        return self.total(weights)

    @abstractmethod
    def each(self) -> Gradients:
        """Return every example's gradient, with examples along the first axis."""

    def laid(self) -> dict[str, Laid]:
        """Return every example's gradient as it lies in memory, without a copy where that can be."""
        return {name: Laid(_rows.flat(gradient)) for name, gradient in self.each().items()}


class Formed(Part):
    """Gradients that are small enough, or unusual enough, to be formed for every example."""

    def __init__(self, gradients: Gradients) -> None:
        self._gradients = gradients

    def squares(self) -> Tensor:
        return _rows.squares(*self._gradients.values())

    def total(self, weights: Tensor) -> Gradients:
        return {
            name: _rows.weighted(gradient, weights).reshape(gradient.shape[1:])
            for name, gradient in self._gradients.items()
        }

    def each(self) -> Gradients:
        return self._gradients


class Tied(Part):
    """Shares of several layers in parameters that they hold together: sums, by the names that each one's lead to.

    What is formed has the norm of the sum. What would be too long has at most the sum of the norms. Which of the two is
    decided by ``numbers``, of as many examples as are planned for, and not by how many there are: one example more
    would change the norms of all others.
    """

    def __init__(self, members: Sequence[tuple[Part, dict[str, str]]], numbers: int) -> None:
        self._members, self._numbers = members, numbers
        self._formed: Formed | None = None

    def _sums(self, gradients: Sequence[Gradients]) -> Gradients:
        made: Gradients = {}
        for (_, names), own in zip(self._members, gradients, strict=True):
            for name, gradient in own.items():
                to = names[name]
                made[to] = made[to] + gradient if to in made else gradient
        return made

    def squares(self) -> Tensor:
        separate = [part.squares() for part, _ in self._members]
        if self._numbers <= _FORMED:
            self._formed = Formed(self.each())
            return self._formed.squares()
        return torch.stack(separate).sqrt().sum(0).square() * (1 + 2.0**-40)

    def total(self, weights: Tensor) -> Gradients:
        if self._formed is not None:
            return self._formed.total(weights)
        return self._sums([part.total(weights) for part, _ in self._members])

    def each(self) -> Gradients:
        return self._sums([part.each() for part, _ in self._members])


class FormedInPieces(Part):
    """Gradients of weights that are formed some examples at a time, as (examples, fan out, fan in), and of a bias.

    ``form`` returns those of some examples, the same to the bit each time. Their norms are taken while a cache holds
    them. Then they are kept for the sum, in pieces for which there is room where activations were; or, with
    ``kept=False``, formed again: those that take far more memory than what they are formed from. ``place`` brings what
    was flattened, as (..., fan out, fan in), into the shape of the weights.
    """

    def __init__(
        self,
        form: Callable[[slice], Tensor],
        shape: tuple[int, int, int],
        place: Callable[[Tensor], Tensor],
        bias: Tensor | None,
        *,
        kept: bool,
    ) -> None:
        self._shape, self._place, self._bias = shape, place, bias
        some = max(_PIECE // max(math.prod(shape[1:]), 1), 1)
        some = some if some < 4 else some // 4 * 4  # as many as are added up together
        self._slices = [slice(start, start + some) for start in range(0, shape[0], some)] or [slice(0)]
        self._kept: list[Tensor] = []
        squares = []
        for part in self._slices:
            formed = form(part)
            squares.append(_rows.squares(formed))
            if kept:
                self._kept.append(formed)
        self._squares = squares[0] if len(squares) == 1 else torch.cat(squares)
        self._form = None if kept else form  # which holds what they are formed from

    def squares(self) -> Tensor:
        return self._squares if self._bias is None else self._squares + _rows.squares(self._bias)

    def total(self, weights: Tensor) -> Gradients:
        total = torch.zeros(math.prod(self._shape[1:]), dtype=torch.float64, device=weights.device)
        for place, part in enumerate(self._slices):
            formed = self._kept[place] if self._form is None else self._form(part)
            total = _rows.weighted(formed, weights[part], total)
        made = {"weight": self._place(total.reshape(self._shape[1:]))}
        return made if self._bias is None else made | {"bias": _rows.weighted(self._bias, weights)}

    def _whole(self) -> Tensor:
        if self._form is not None:
            return self._form(slice(None))
        if len(self._kept) > 1:
            self._kept, self._slices = [torch.cat(self._kept)], [slice(None)]
        return self._kept[0]

    def each(self) -> Gradients:
        made = {"weight": self._place(self._whole())}
        return made if self._bias is None else made | {"bias": self._bias}

    def laid(self) -> dict[str, Laid]:
        places = torch.arange(math.prod(self._shape[1:])).reshape(self._shape[1:])
        made = {"weight": Laid(self._whole().flatten(1), order=self._place(places).flatten())}
        return made if self._bias is None else made | {"bias": Laid(self._bias)}


class Outer(Part):
    """Outer products of inputs (examples, positions, fan in) and output gradients (examples, positions, fan out)."""

    def __init__(self, inputs: Tensor, outputs: Tensor, place: Callable[[Tensor], Tensor], *, bias: bool) -> None:
        self._inputs, self._outputs, self._place = inputs, outputs, place
        self._bias = _summed(outputs) if bias else None
        self._formed: FormedInPieces | None = None

    def form(self) -> FormedInPieces:
        """Return every example's gradient, and keep it."""
        if self._formed is None:
            shape = len(self._outputs), self._outputs.shape[2], self._inputs.shape[2]
            self._formed = FormedInPieces(self._product, shape, self._place, self._bias, kept=True)
        return self._formed

    def _product(self, some: slice) -> Tensor:
        return _rows.each_product(self._outputs[some], self._inputs[some])

    def squares(self) -> Tensor:
        positions, fan_in, fan_out = *self._inputs.shape[1:], self._outputs.shape[2]
        if self._formed is None and positions == 1:  # the gradient of the bias is that of the output
            return _rows.outer_squares(self._outputs[:, 0], self._inputs[:, 0], own=self._bias is not None)
        if self._formed is not None or _formed_sooner(positions, fan_in, fan_out) or not _known_precision(self._inputs):
            return self.form().squares()
        squares = _compared_squares(self._inputs, self._outputs)
        return squares if self._bias is None else squares + _rows.squares(self._bias)

    def total(self, weights: Tensor) -> Gradients:
        return self._total(weights, quick=False)

    def quick_total(self, weights: Tensor) -> Gradients:
        return self._total(weights, quick=True)

    def _total(self, weights: Tensor, *, quick: bool) -> Gradients:
        if self._formed is not None:
            return self._formed.total(weights)
        if self._inputs.shape[1] == 1:
            weight = _rows.outer(self._outputs[:, 0], self._inputs[:, 0], weights, quick=quick)
        else:
            weight = self._total_of_some(weights)
        made = {"weight": self._place(weight)}
        return made if self._bias is None else made | {"bias": _rows.weighted(self._bias, weights)}

    def _total_of_some(self, weights: Tensor) -> Tensor:
        """Form the gradients of as many examples as a cache holds, add them, and go on with the next."""
        shape = self._outputs.shape[2], self._inputs.shape[2]
        total = torch.zeros(math.prod(shape), dtype=torch.float64, device=weights.device)
        some = max(_CACHED // math.prod(shape), 1)
        for outputs, inputs, part in zip(
            *(torch.split(tensor, some) for tensor in (self._outputs, self._inputs, weights)), strict=True
        ):
            total = _rows.weighted(_rows.each_product(outputs, inputs), part, total)
        return total.reshape(shape)

    def each(self) -> Gradients:
        return self.form().each()

    def laid(self) -> dict[str, Laid]:
        if self._formed is not None or self._inputs.shape[1] > 1:
            return self.form().laid()
        made = {"weight": Laid(self._outputs[:, 0], right=self._inputs[:, 0])}
        return made if self._bias is None else made | {"bias": Laid(self._bias)}


class Looked(Part):
    """Rows of a table: positions (examples, positions) and the gradients of what was looked up there."""

    def __init__(self, rows: Tensor, outputs: Tensor, shape: torch.Size) -> None:
        self._shape, self._dtype, self._examples = shape, outputs.dtype, rows.shape[0]
        examples = torch.arange(self._examples, device=rows.device)[:, None]
        places, which = torch.unique((rows + examples * shape[0]).flatten(), return_inverse=True)
        summed = torch.zeros(len(places), shape[1], dtype=torch.float64, device=outputs.device)
        self._summed = summed.index_add_(0, which, outputs.flatten(0, 1).double())
        self._owners, self._rows = places // shape[0], places % shape[0]

    def squares(self) -> Tensor:
        each = _rows.squares(self._summed)
        made = torch.zeros(self._examples, dtype=torch.float64, device=each.device).index_add_(0, self._owners, each)
        return made * (1 + 2 * len(each) * _rows.UNIT)

    def total(self, weights: Tensor) -> Gradients:
        factors = weights[self._owners]
        table = torch.zeros(self._shape, dtype=torch.float64, device=factors.device)
        scaled = _rows.widened(self._summed, factors) * factors[:, None]
        return {"weight": table.index_add_(0, self._rows, scaled)}

    def each(self) -> Gradients:
        table = torch.zeros((self._examples, *self._shape), dtype=torch.float64, device=self._summed.device)
        table[self._owners, self._rows] = self._summed
        return {"weight": table.to(self._dtype)}


def sums_quickly(layer: nn.Module) -> bool:
    """Tell whether sums in single precision save enough time to be worth their rounding: in large linear layers."""
    weight = layer.weight if type(layer) is nn.Linear else None
    return (
        weight is not None
        and weight.requires_grad
        and weight.is_cpu
        and weight.dtype == torch.float32
        and weight.numel() >= _LARGE
        and min(weight.shape) >= _rows.WIDE
    )


def _formed_sooner(positions: int, fan_in: int, fan_out: int) -> bool:
    """Tell whether a gradient is formed and kept: where it is no longer than twice what it is formed from.

    To form it takes fewer operations than to compare positions and form it later, and more memory.
    """
    return positions > 1 and 2 * positions * (fan_in + fan_out) > fan_in * fan_out


def _is_long(uses: Sequence[Use], formed: int) -> bool:
    """Tell whether the gradients of a layer take more than twice the memory of what they are formed from."""
    return formed > 2 * sum(math.prod(tensor.shape[1:]) for use in uses for tensor in use)


def _known_precision(tensor: Tensor) -> bool:
    """Tell whether matrix products keep the precision of their factors: fast modes of single precision do not."""
    if tensor.dtype == torch.float64:
        return True
    backend: Any = torch.backends.mkldnn if tensor.device.type == "cpu" else torch.backends.cuda
    try:  # torch has an older way to say it, which shows here too, and does not answer once this one was used
        return str(backend.matmul.fp32_precision) in ("none", "ieee")
    except (AttributeError, RuntimeError):
        return False


def _compared_squares(inputs: Tensor, outputs: Tensor) -> Tensor:
    """Return an upper bound of the squared norm of sum_t g_t a_t^T as it will be formed, by comparing positions.

    See the head of this module: the computed sum, what rounding and underflow can have hidden, and what forming adds.
    """
    positions, fan_in, fan_out = *inputs.shape[1:], outputs.shape[2]
    unit, tiny = torch.finfo(inputs.dtype).eps / 2, torch.finfo(inputs.dtype).tiny
    long, wide = (_rows.squares(x.flatten(0, 1)).reshape(x.shape[:2]).sqrt() for x in (inputs, outputs))
    reach = (long * wide).sum(1) * (1 + 2.0**-40)
    seen = torch.bmm(inputs, inputs.transpose(1, 2)).double() * torch.bmm(outputs, outputs.transpose(1, 2)).double()
    computed = seen.flatten(1).sum(1)
    one, other = _rows.gamma(fan_in + 1, unit), _rows.gamma(fan_out + 1, unit)
    rounding = one + other + one * other + 2 * (positions**2 + 4) * _rows.UNIT
    # a product of two numbers that underflows is off by `tiny` at most, and so is a number that is read as 0
    flushed = (
        2
        * tiny
        * (fan_in * wide.sum(1).square() + fan_out * long.sum(1).square() + 2 * tiny * fan_in * fan_out * positions**2)
    )
    unread = tiny * (math.sqrt(fan_in) * wide + math.sqrt(fan_out) * long).sum(1)
    unread = unread + 2 * tiny * positions * math.sqrt(fan_in * fan_out)
    squares = (computed + rounding * reach.square() + flushed).clamp(min=0.0)
    whole = reach.square()
    norms = torch.where(torch.isfinite(computed) & (squares < whole), squares, whole).sqrt()
    norms = (norms + _rows.gamma(positions + 1, unit) * reach + unread) * (1 + 2.0**-40)
    overflows = ~(reach < torch.finfo(inputs.dtype).max / 2)  # what is formed may then be infinite
    return torch.where(overflows, math.inf, norms.square() * (1 + 2.0**-40))


def _summed(outputs: Tensor) -> Tensor:
    """Return the gradients of a bias: those of the outputs, summed over positions."""
    return outputs[:, 0] if outputs.shape[1] == 1 else outputs.sum(1)


def _added(tensors: list[Tensor]) -> Tensor:
    """Return the sum of tensors, without a copy where there is one."""
    return tensors[0] if len(tensors) == 1 else torch.stack(tensors).sum(0)


def _joined(tensors: list[Tensor], axis: int) -> Tensor:
    """Return tensors one behind the other, without a copy where there is one."""
    return tensors[0] if len(tensors) == 1 else torch.cat(tensors, axis)


def _positions(tensor: Tensor) -> Tensor:
    """Return (examples, ..., features) as (examples, positions, features)."""
    return tensor.flatten(1, -2) if tensor.ndim > 2 else tensor[:, None]


def _trains(parameter: Tensor | None) -> bool:
    return parameter is not None and parameter.requires_grad


def _linear(layer: nn.Linear, uses: Sequence[Use]) -> Part:
    outputs = _joined([_positions(gradient) for _, gradient in uses], 1)
    if not layer.weight.requires_grad:
        return Formed({"bias": _summed(outputs)})
    inputs = _joined([_positions(entered) for entered, _ in uses], 1)
    return Outer(inputs, outputs, lambda weight: weight, bias=_trains(layer.bias))


def _convolution(layer: Any, uses: Sequence[Use]) -> Part:
    if layer.groups > 1:
        return _any(layer, uses)
    outputs = _joined([gradient.flatten(2) for _, gradient in uses], 2).transpose(1, 2)
    if not layer.weight.requires_grad:
        return Formed({"bias": _summed(outputs)})
    fan_out, fan_in = len(layer.weight), math.prod(layer.weight.shape[1:])
    bias = _trains(layer.bias)
    if not _formed_sooner(outputs.shape[1], fan_in, fan_out):
        inputs = _joined([_kernels.windows(layer, entered) for entered, _ in uses], 2).transpose(1, 2)
        return Outer(inputs, outputs, partial(_kernels.placed, layer), bias=bias)
    way = _kernels.way_of(layer, [entered for entered, _ in uses])
    place, own = partial(_kernels.placed, layer, way=way), _summed(outputs) if bias else None

    def form(some: slice) -> Tensor:
        return _added([_kernels.each_kernel(layer, entered[some], gradient[some], way) for entered, gradient in uses])

    again = way == "tiles" and _is_long(uses, fan_out * fan_in)
    return FormedInPieces(form, (len(outputs), fan_out, fan_in), place, own, kept=not again)


def _embedding(layer: nn.Embedding, uses: Sequence[Use]) -> Part:
    rows = _joined([entered.flatten(1) if entered.ndim > 1 else entered[:, None] for entered, _ in uses], 1)
    outputs = _joined([_positions(gradient) for _, gradient in uses], 1)
    if layer.padding_idx is not None:
        outputs = outputs.masked_fill((rows == layer.padding_idx)[..., None], 0.0)
    return Looked(rows, outputs, layer.weight.shape)


def _group_norm(layer: nn.GroupNorm, uses: Sequence[Use]) -> Part:
    """Scale and shift of each channel: sums over positions of the gradient with and without what was normalised.

    What was normalised, z = (x - mean) / deviation, is not made again: the sum of g z follows from those of x, x^2, g
    and g x.
    """
    scales, shifts = [], []
    for entered, gradient in uses:
        plain, square, slope, product = _rows.moments(entered, gradient)
        each = entered.shape[1] // layer.num_groups
        share = layer.num_groups / max(math.prod(entered.shape[1:]), 1)
        mean, above = (
            (rows.reshape(len(rows), layer.num_groups, each).sum(2) * share).repeat_interleave(each, 1)
            for rows in (plain, square)
        )
        deviation = ((above - mean.square()).clamp(min=0.0) + layer.eps).sqrt()
        scales.append(((product - mean * slope) / deviation).to(gradient.dtype))
        shifts.append(slope.to(gradient.dtype))
    return _scaled(layer, scales, shifts)


def _layer_norm(layer: nn.LayerNorm, uses: Sequence[Use]) -> Part:
    """Scale and shift of each feature: sums over positions of the gradient with and without what was normalised."""
    own = len(layer.normalized_shape)

    def laid(tensor: Tensor) -> Tensor:
        behind = tensor.flatten(tensor.ndim - own)
        return behind.flatten(1, -2) if behind.ndim > 2 else behind[:, None]

    scales, shifts = [], []
    for entered, gradient in uses:
        if _rows.compilable(entered) and _rows.compilable(gradient):
            scale, shift = _rows.normalised(laid(entered), laid(gradient), layer.eps)
        else:
            plain = functional.layer_norm(entered, layer.normalized_shape, eps=layer.eps)
            scale, shift = laid(gradient * plain).sum(1), laid(gradient).sum(1)
        scales.append(scale.reshape(-1, *layer.normalized_shape))
        shifts.append(shift.reshape(-1, *layer.normalized_shape))
    return _scaled(layer, scales, shifts)


def _scaled(layer: Any, scales: Sequence[Tensor], shifts: Sequence[Tensor]) -> Part:
    """Return the gradients of a scale and a shift after normalising, from those of each use."""
    made = {"weight": scales, "bias": shifts}
    return Formed({name: _added(list(of)) for name, of in made.items() if _trains(getattr(layer, name))})


@contextmanager
def swapped(layer: nn.Module, values: dict[str, Tensor]) -> Iterator[None]:
    """Let a layer compute with other values of its own parameters and buffers."""
    kept: list[tuple[dict[str, Any], str, Any]] = []
    try:
        for name, value in values.items():
            home: dict[str, Any] = layer._parameters if name in layer._parameters else layer._buffers
            kept.append((home, name, home[name]))
            home[name] = value
        yield
    finally:
        for home, name, value in kept:
            home[name] = value


def runs_again(layer: nn.Module) -> bool:
    """Tell whether a layer's forward pass is run once more to form its gradients."""
    return type(layer) not in _PARTS or getattr(layer, "groups", 1) > 1


def _any(layer: nn.Module, uses: Sequence[Use]) -> Part:
    """Form the gradients of any layer that treats examples one by one, by torch.func.

    Where torch cannot map the layer, such as an `nn.GRUCell` without a state, examples follow one another.
    """
    names = {
        name: wide(parameter.detach())
        for name, parameter in layer.named_parameters(recurse=False)
        if parameter.requires_grad
    }
    others = {
        name: wide(value.detach())
        for name, value in (*layer.named_parameters(recurse=False), *layer.named_buffers(recurse=False))
        if name not in names
    }

    def response(parameters: dict[str, Tensor], entered: Tensor, gradient: Tensor) -> Tensor:
        with swapped(layer, parameters | others):
            made: Tensor = type(layer).forward(layer, entered[None])
        return (made * gradient[None]).sum()

    one = torch.func.grad(response)
    together = torch.func.vmap(one, in_dims=(None, 0, 0), randomness="different")

    def each(entered: Tensor, gradient: Tensor) -> dict[str, Tensor]:
        try:
            made: dict[str, Tensor] = together(names, entered, gradient)
            return made
        except RuntimeError:
            if not len(entered):
                return {name: value.new_zeros(0, *value.shape) for name, value in names.items()}
            rows = [one(names, *row) for row in zip(entered, gradient, strict=True)]
            return {name: torch.stack([row[name] for row in rows]) for name in names}

    formed = [each(entered, gradient) for entered, gradient in uses]
    return Formed({name: _added([gradients[name] for gradients in formed]) for name in names})


def wide(tensor: Tensor) -> Tensor:
    """Return numbers of half precision in single precision, and others as they are."""
    return tensor.float() if tensor.dtype in (torch.float16, torch.bfloat16) else tensor


_PARTS: dict[type[nn.Module], Callable[[Any, Sequence[Use]], Part]] = {
    nn.Linear: _linear,
    nn.Conv1d: _convolution,
    nn.Conv2d: _convolution,
    nn.Conv3d: _convolution,
    nn.Embedding: _embedding,
    nn.GroupNorm: _group_norm,
    nn.LayerNorm: _layer_norm,
}


def formed_early(layer: nn.Module, use: Use) -> Part | None:
    """Return the share of a layer that is used once, where every example's gradient is formed and kept; else None."""
    shape = use[1].shape
    if type(layer) is nn.Linear:
        positions = math.prod(shape[1:-1])
    elif type(layer) in (nn.Conv1d, nn.Conv2d, nn.Conv3d) and layer.groups == 1:
        positions = math.prod(shape[2:])
    else:
        return part(layer, [use]) if type(layer) in (nn.GroupNorm, nn.LayerNorm) else None
    weight: Any = layer.weight
    fan_out, fan_in = len(weight), math.prod(weight.shape[1:])
    if not weight.requires_grad or not _formed_sooner(positions, fan_in, fan_out):
        return None
    if type(layer) is not nn.Linear and _is_long([use], fan_in * fan_out):
        return None
    made = part(layer, [use])
    return made.form() if isinstance(made, Outer) else made


def part(layer: nn.Module, uses: Sequence[Use]) -> Part:
    """Return a layer's share in the gradients, from its uses in one batch; other layers are formed by torch.func."""
    return _PARTS.get(type(layer), _any)(layer, [(wide(entered), wide(gradient)) for entered, gradient in uses])
