"""Per-example gradients of a model, recorded while it is trained in the usual way.

While a `Recorder` is attached, each layer computes with detached weights, so that the backward pass spends nothing on
gradients that no one may use; it keeps what went in and the gradient of what came out, and `parts` turns them into
norms and weighted sums.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from noisette.sgd import layers
from noisette.sgd.layers import Part, Use
from noisette.sgd.models import check_model, trained_layers


class _Tap(torch.autograd.Function):
    """Pass a tensor on; hand its gradient to ``keep`` on the way back."""

    @staticmethod
    def forward(ctx: Any, output: Tensor, anchor: Tensor, keep: Callable[[Tensor], None]) -> Tensor:
        ctx.keep = keep
        return output.view_as(output)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        ctx.keep(gradients[0])
        return gradients[0], None, None


class Recorder:
    """Per-example gradients of ``model``, by its layers' names.

    Examples lie along the first axis of every layer's input. In evaluation mode and without gradients the model is as
    it was.

    >>> import torch
    >>> model = torch.nn.Linear(3, 1)
    >>> recorder = Recorder(model)
    >>> model(torch.tensor([[3.0, 0.0, 4.0], [0.0, 0.0, 0.0]])).sum().backward()
    >>> recorder.parts()[""].squares().round(decimals=6).tolist()  # weights and bias: 3^2 + 4^2 + 1, and 1
    [26.0, 1.0]
    >>> recorder.remove()
    """

    def __init__(self, model: nn.Module) -> None:
        check_model(model)
        self.layers = dict(trained_layers(model))
        self._uses: dict[str, list[Use]] = {name: [] for name in self.layers}
        self._plain = False
        self._anchor = torch.ones((), requires_grad=True)
        for name, layer in self.layers.items():
            layer.forward = self._tapped(name, layer)

    def parameters(self) -> Iterator[tuple[str, str, nn.Parameter]]:
        """Yield every trained parameter with its layer's name and its own."""
        for name, layer in self.layers.items():
            for own, parameter in layer.named_parameters(recurse=False):
                if parameter.requires_grad:
                    yield name, own, parameter

    def parts(self) -> dict[str, Part]:
        """Return each layer's share in the gradients since `clear`, or an error where a layer saw no backward pass."""
        unused = [name for name, uses in self._uses.items() if not uses]
        if len(unused) == len(self._uses):
            raise RuntimeError("No gradients were recorded. Call loss.backward() in training mode before the step.")
        if unused:
            raise RuntimeError(
                f"Layer {unused[0]!r} got no gradient, so what it would add is not known. Use it in every step, or "
                "leave it out of training by requires_grad_(False) before the run is made private."
            )
        counts = {gradient.shape[0] for uses in self._uses.values() for _, gradient in uses}
        if len(counts) > 1:
            raise RuntimeError(
                f"Layers saw batches of {sorted(counts)} examples. The first axis of every layer's input must be that "
                "of the examples: keep it first, and do one backward pass a step."
            )
        self._plain = True  # layers that are formed by torch.func run once more, as they were
        try:
            with torch.no_grad():
                return {name: layers.part(self.layers[name], uses) for name, uses in self._uses.items() if uses}
        finally:
            self._plain = False

    @property
    def examples(self) -> int:
        """How many examples the recorded batch has."""
        return max((gradient.shape[0] for uses in self._uses.values() for _, gradient in uses), default=0)

    def clear(self) -> None:
        """Forget what was recorded."""
        for uses in self._uses.values():
            uses.clear()

    def remove(self) -> None:
        """Give the model its own layers back."""
        self.clear()
        for layer in self.layers.values():
            layer.__dict__.pop("forward", None)

    def _tapped(self, name: str, layer: nn.Module) -> Callable[..., Tensor]:
        """Return the layer's forward pass with detached weights and a tap behind it."""
        plain = type(layer).forward
        inside = False

        def forward(*given: Any, **named: Any) -> Tensor:
            nonlocal inside
            if inside or self._plain or not (layer.training and torch.is_grad_enabled()):
                return plain(layer, *given, **named)  # type: ignore[no-any-return]
            if named or len(given) != 1 or not isinstance(given[0], Tensor):
                raise TypeError(
                    f"Layer {name!r}, {type(layer).__name__}, has parameters and was called with other things than one "
                    "tensor of examples, so that no gradient is known to be one example's. Build it from layers that "
                    "take one tensor, such as nn.Linear, or leave it out of training by requires_grad_(False)."
                )
            entered = given[0]
            inside = True
            try:
                frozen = {key: value.detach() for key, value in layer.named_parameters(recurse=False)}
                output = torch.func.functional_call(layer, frozen, (entered,))
            finally:
                inside = False
            kept = entered.detach()
            return _Tap.apply(output, self._anchor, lambda gradient: self._uses[name].append((kept, gradient)))  # type: ignore[no-any-return, no-untyped-call]

        return forward
