"""Per-example gradients of a model, recorded while it is trained in the usual way.

While a `Recorder` is attached, each layer computes with detached weights, so that the backward pass spends nothing on
gradients that no one may use; it keeps what went in and the gradient of what came out, and `parts` turns them into
norms and weighted sums. Hooks of the user's own run once, as they would. A copy of the model, by deepcopy or pickle,
is a plain model with weights of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import MethodType
from typing import Any

import torch
from torch import Tensor, nn

from noisette.sgd import layers
from noisette.sgd.layers import Part, Use
from noisette.sgd.losses import Notes, traced
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


class _Tapped:
    """A layer's forward pass with detached weights and a tap behind it; in a copy of the layer, its plain one."""

    def __init__(self, recorder: Recorder, name: str, layer: nn.Module) -> None:
        self._recorder, self._name, self._layer = recorder, name, layer
        self._inside = False

    def __call__(self, *given: Any, **named: Any) -> Any:
        layer, recorder = self._layer, self._recorder
        plain = type(layer).forward
        if self._inside or recorder.plain or not (layer.training and torch.is_grad_enabled()):
            return plain(layer, *given, **named)
        if named or len(given) != 1 or not isinstance(given[0], Tensor):
            raise TypeError(
                f"Layer {self._name!r}, {type(layer).__name__}, has parameters and was called with other things than "
                "one tensor of examples, so that no gradient is known to be one example's. Build it from layers that "
                "take one tensor, such as nn.Linear, or leave it out of training by requires_grad_(False)."
            )
        entered = given[0]
        before = torch.get_rng_state() if layers.runs_again(layer) else None
        frozen = {key: value.detach() for key, value in layer._parameters.items() if value is not None}
        self._inside = True
        try:
            with layers.swapped(layer, frozen):
                output = plain(layer, entered)
        finally:
            self._inside = False
        if before is not None and not torch.equal(before, torch.get_rng_state()):
            raise TypeError(
                f"Layer {self._name!r}, {type(layer).__name__}, owns a parameter and draws random numbers, so that its "
                "gradient cannot be computed a second time. Keep the parameter in a layer of its own, without the "
                "dropout, or leave it out of training by requires_grad_(False)."
            )
        kept, number = entered.detach(), recorder.begin()
        return _Tap.apply(output, recorder.anchor, lambda gradient: recorder.note(self._name, kept, gradient, number))  # type: ignore[no-untyped-call]

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return _plain_forward(memo.get(id(self._layer), self._layer))

    def __reduce__(self) -> Any:
        return _plain_forward, (self._layer,)


def _plain_forward(layer: nn.Module) -> MethodType:
    return MethodType(type(layer).forward, layer)


class _Outlet:
    """Behind the whole model: outputs that tell how the loss is normalised. In a copy of the model it does nothing."""

    def __init__(self, recorder: Recorder | None = None) -> None:
        self._recorder = recorder

    def __call__(self, model: nn.Module, given: Any, named: Any, output: Any) -> Any:
        recorder = self._recorder
        if recorder is None or recorder.plain or not (model.training and torch.is_grad_enabled()):
            return None
        if recorder.unverified is not None and recorder.unverified(given, named):
            recorder.unverified = None
        return traced(output, recorder.notes)

    def __deepcopy__(self, memo: dict[int, Any]) -> _Outlet:
        return _Outlet()

    def __reduce__(self) -> Any:
        return _Outlet, ()


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
        self._passes: set[int] = set()
        self._number = 0
        self.plain = False
        self.unverified: Callable[[tuple[Any, ...], dict[str, Any]], bool] | None = None  # looks at a first call
        self.anchor = torch.ones((), requires_grad=True)
        self.notes = Notes()
        for name, layer in self.layers.items():
            layer.forward = _Tapped(self, name, layer)
        self._outlet = model.register_forward_hook(_Outlet(self), with_kwargs=True)

    def begin(self) -> int:
        """Return a number for a forward pass: another one once a backward pass is recorded.

        What runs again inside of a backward pass, to save memory, belongs to the pass before it.
        """
        if self._passes and torch._C._current_graph_task_id() == -1:
            self._number = max(self._passes) + 1
        return self._number

    def note(self, name: str, entered: Tensor, gradient: Tensor, number: int) -> None:
        """Keep one use of a layer, in the forward pass of that number."""
        self._uses[name].append((entered, gradient))
        self._passes.add(number)

    def parameters(self) -> Iterator[tuple[str, str, nn.Parameter]]:
        """Yield every trained parameter with its layer's name and its own."""
        for name, layer in self.layers.items():
            for own, parameter in layer.named_parameters(recurse=False):
                if parameter.requires_grad:
                    yield name, own, parameter

    def parts(self, *, every: bool = True) -> dict[str, Part]:
        """Return each layer's share in the gradients since `clear`, or an error where a layer saw no backward pass.

        With ``every=False`` a layer that saw none has no share.
        """
        unused = [name for name, uses in self._uses.items() if not uses]
        if len(unused) == len(self._uses):
            raise RuntimeError("No gradients were recorded. Call loss.backward() in training mode before the step.")
        if unused and every:
            raise RuntimeError(
                f"Layer {unused[0]!r} got no gradient, so what it would add is not known. Use it in every step, or "
                "leave it out of training by requires_grad_(False) before the run is made private."
            )
        counts = set().union(*self.rows().values())
        if len(counts) > 1:
            raise RuntimeError(
                f"Layers saw batches of {sorted(counts)} examples. The first axis of every layer's input must be that "
                "of the examples: keep it first, and do one backward pass a step."
            )
        if len(self._passes) > 1:
            raise RuntimeError(
                "Gradients of several batches are recorded, one behind the other, and would count as one example's. Do "
                "one backward pass a step, and call optimizer.zero_grad() where a backward pass was for something "
                "else. Large batches arrive in pieces of physical_batch: step on each."
            )
        self.plain = True  # layers that are formed by torch.func run once more, as they were
        try:
            with torch.no_grad():
                return {name: layers.part(self.layers[name], uses) for name, uses in self._uses.items() if uses}
        finally:
            self.plain = False

    def rows(self) -> dict[str, set[int]]:
        """Return how many rows each layer saw, in each of its uses."""
        return {name: {gradient.shape[0] for _, gradient in uses} for name, uses in self._uses.items()}

    @property
    def examples(self) -> int:
        """How many examples the recorded batch has."""
        return max((gradient.shape[0] for uses in self._uses.values() for _, gradient in uses), default=0)

    def clear(self) -> None:
        """Forget what was recorded."""
        self.notes.clear()
        self._passes.clear()
        for uses in self._uses.values():
            uses.clear()

    def remove(self) -> None:
        """Give the model its own layers back."""
        self.clear()
        self._outlet.remove()
        for layer in self.layers.values():
            layer.__dict__.pop("forward", None)
