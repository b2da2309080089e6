"""What the loss divides by: outputs of a model that notice how they are normalised on the way to the loss.

Clipping rests on the gradient of one example's own loss. A mean over the examples is that, divided by their number,
which is public to the run and multiplied back. A mean over anything that other examples' data decide is not: class
weights, targets that are ignored, the sum of a mask. What is refused here is the setting, before it matters.

The default of `cross_entropy` and `nll_loss` ignores the target -100 and divides by the number of others. Here they
divide by the number of all targets, which is the same where none is ignored, and a public number where some are.
"""

from __future__ import annotations

import copy
import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import functional

_IGNORED = -100  # torch's default
_NO_TARGET = -(2**40)  # that nobody has
_KEPT = 64  # outputs of earlier calls of the model, which the loss may have to do with
_LIKELIHOODS = {function: inspect.signature(function) for function in (functional.cross_entropy, functional.nll_loss)}
_DEFAULTS = {
    function: {name: option.default for name, option in list(signature.parameters.items())[2:]}
    for function, signature in _LIKELIHOODS.items()
}  # of all but input and target
_MEANS = {Tensor.mean, torch.mean}
_QUOTIENTS = {Tensor.div, Tensor.div_, Tensor.__truediv__, Tensor.true_divide, torch.div, torch.true_divide}
_PRODUCTS = {Tensor.mul, Tensor.mul_, Tensor.__mul__, Tensor.__rmul__, Tensor.multiply, torch.mul, torch.multiply}
_CHOICES = {Tensor.__getitem__, Tensor.masked_select, torch.masked_select, Tensor.index_select, torch.index_select}
# two ways to part the places of a batch in halves; a loss that lets examples see each other is looked at in both
_HALVES: tuple[Callable[[Tensor], Tensor], ...] = (
    lambda places: places % 2 == 0,
    lambda places: places < (len(places) + 1) // 2,
)
_REMEDY = (
    "Take the loss of each example by itself and divide by their number, e.g. "
    "loss = (losses * mask).flatten(1).mean(1).mean(), with losses made by reduction='none'."
)


@dataclass
class Notes:
    """By what the losses of a batch were multiplied on the way to the one that was differentiated.

    ``factor`` is 1 for a sum, 1 / examples for a mean, and None where it is not known. ``batches`` counts the losses
    that were differentiated; ``told`` says whether that of this batch was one of them.
    """

    factor: float | None = None
    usual: float | None = None
    batches: int = 0
    told: bool = False
    outputs: list[Tensor] = field(default_factory=list)

    @property
    def looks(self) -> bool:
        """Whether the loss of the next batch is looked at: the first, the second, the fourth, the eighth and so on."""
        return self.batches & (self.batches + 1) == 0

    def clear(self) -> None:
        """Forget the batch, not what is usual, nor outputs: many loops forget old gradients after the forward pass."""
        self.factor, self.told = None, False

    def check(self, examples: int, reduction: Literal["mean", "sum"]) -> None:
        """Refuse a loss that is divided by something else than the number of examples, or by nothing, or was not seen.

        A layer that is called past the model, a loss made by an autograd function of the user's own, and
        torch.autograd.backward show nothing of how the examples enter the loss.
        """
        if not self.told:
            raise RuntimeError(
                "The loss was not seen on its way from the model's output, so it is not known that examples do not mix "
                "in it. Call the model itself, let it return tensors, compute the loss by torch's functions and call "
                "loss.backward()."
            )
        if self.factor is None or not examples:
            return
        own = self.factor * (examples if reduction == "mean" else 1)
        if self.usual is None:
            self.usual = own
        elif not math.isclose(own, self.usual, rel_tol=1e-6):
            raise ValueError(
                f"With loss_reduction={reduction!r} the loss is not divided by the same as before: by a number that is "
                f"not proportional to the examples of the batch, or by none. {_REMEDY}"
            )


class ModelOutput(Tensor):
    """An output of a model in training, or what was computed from it."""

    notes: Notes | None = None
    factor: float | None = None

    def backward(self, *args: Any, **kwargs: Any) -> None:
        """Tell by what the losses were multiplied, and differentiate."""
        if self.notes is not None:
            self.notes.factor, self.notes.told = self.factor, True
            _check_apart(self)
            self.notes.batches += 1
        with torch._C.DisableTorchFunctionSubclass():
            super().backward(*args, **kwargs)  # type: ignore[no-untyped-call]

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in _LIKELIHOODS:
            return _likelihood(func, args, kwargs)
        if func is Tensor.backward and isinstance(args[0], ModelOutput):
            return args[0].backward(*args[1:], **kwargs)
        _check_divisor(func, args)
        _check_choice(func, args, kwargs)
        with torch._C.DisableTorchFunctionSubclass():
            made = func(*args, **kwargs)
        if isinstance(made, Tensor):
            return _noted(made, func, args, kwargs)
        if type(made) in (tuple, list):
            return type(made)(_noted(value, func, args, kwargs) for value in made)
        return made


def traced(output: Any, notes: Notes) -> Any:
    """Return a model's output, whose tensors notice what is done to them."""
    if isinstance(output, Tensor) and output.requires_grad and output.is_floating_point():
        made = output.as_subclass(ModelOutput)
        made.notes, made.factor = notes, 1.0
        if notes.looks:
            notes.outputs = [*notes.outputs[-_KEPT:], made]
        return made
    if type(output) in (tuple, list):
        return type(output)(traced(entry, notes) for entry in output)
    if isinstance(output, tuple):  # one with names
        return type(output)(*(traced(entry, notes) for entry in output))
    if isinstance(output, dict | list) or (is_dataclass(output) and not isinstance(output, type)):
        return _traced_inside(output, notes)
    return output


def _traced_inside(output: Any, notes: Notes) -> Any:
    """Return a copy of a dict, a list or a dataclass, of a kind of their own too, whose tensors notice it."""
    made = copy.copy(output)
    if isinstance(output, dict | list):
        for key, entry in list(output.items() if isinstance(output, dict) else enumerate(output)):
            made[key] = traced(entry, notes)
    else:
        for own in fields(output):
            object.__setattr__(made, own.name, traced(getattr(output, own.name), notes))
    return made


def _answers(args: Any, kwargs: Any) -> list[ModelOutput]:
    """Return the traced tensors among the arguments of a function."""
    found = []
    for value in (*args, *kwargs.values()):
        for entry in value if isinstance(value, list | tuple) else (value,):
            if isinstance(entry, ModelOutput):
                found.append(entry)
    return found


def _noted(made: Any, func: Any, args: Any, kwargs: Any) -> Any:
    """Let what was computed know by what its losses were multiplied, where it has a gradient."""
    if not isinstance(made, Tensor) or not made.requires_grad:
        return made
    entered = _answers(args, kwargs)
    known = {answer.factor for answer in entered}
    factor = known.pop() if len(known) == 1 else None
    answer: ModelOutput = made.as_subclass(ModelOutput)
    answer.notes = next((one.notes for one in entered if one.notes is not None), None)
    answer.factor = None if factor is None else factor * _changed(func, args, kwargs, entered[0])
    return answer


def _changed(func: Any, args: Any, kwargs: Any, entered: ModelOutput) -> float:
    """Return by what a function multiplies the losses of the examples."""
    whole = max(entered.numel(), 1)
    if func in _MEANS:
        axes = args[1] if len(args) > 1 else kwargs.get("dim")
        if axes is None:
            return 1 / whole
        first = {axis % max(entered.ndim, 1) for axis in ((axes,) if isinstance(axes, int) else axes)}
        return 1 / max(entered.shape[0], 1) if 0 in first and entered.ndim else 1.0
    reduction = kwargs.get("reduction") if getattr(func, "__module__", "") == functional.__name__ else None
    if reduction in ("mean", "batchmean"):
        return 1 / (whole if reduction == "mean" else max(entered.shape[0], 1))
    if func in _QUOTIENTS or func in _PRODUCTS:
        other = next((value for value in args[1:] if isinstance(value, int | float)), None)
        if isinstance(args[0], ModelOutput) and other:
            return 1 / other if func in _QUOTIENTS else float(other)
    return 1.0


def _likelihood(func: Any, args: Any, kwargs: Any) -> Any:
    """Divide by the number of targets, and refuse settings that ask for another divisor."""
    options = _options(func, args, kwargs)
    target = options["target"]
    entered, reduction = options["input"], options["reduction"]
    if options.get("size_average") is not None or options.get("reduce") is not None:
        raise ValueError(f"{func.__name__}: size_average and reduce override reduction. Say reduction='mean' or 'sum'.")
    soft = target.is_floating_point()  # chances of the classes: none is ignored, so torch divides by all there are
    averaged = reduction == "mean" and not soft
    if averaged and (options["weight"] is not None or options["ignore_index"] != _IGNORED):
        setting = "weight" if options["weight"] is not None else "ignore_index"
        raise ValueError(
            f"{func.__name__} with {setting}=... and reduction='mean' divides by a number that other examples' targets "
            f"decide, so no gradient is one example's own. {_REMEDY}"
        )
    classes = entered.shape[min(entered.ndim - 1, 1)] if soft else 1
    count = max(target.numel() // max(classes, 1), 1) if reduction == "mean" else 1
    with torch._C.DisableTorchFunctionSubclass():
        made = _averaged(func, options, count) if averaged else func(**options)
    made.__class__ = ModelOutput  # nobody else holds it, and `as_subclass` would be one more node to differentiate
    if isinstance(entered, ModelOutput):
        made.notes, made.factor = entered.notes, None if entered.factor is None else entered.factor / count
    return made


def _averaged(func: Any, options: dict[str, Any], count: int) -> Any:
    """Return the mean over all targets, those that are ignored included, whose losses are 0."""
    target = options["target"]
    if target.is_cpu and target.numel():
        try:  # one function instead of two; a target that is to be ignored is no class, and an error then
            return func(**{**options, "ignore_index": _NO_TARGET})
        except IndexError:
            pass
    return func(**{**options, "reduction": "sum"}) / count


def _options(func: Any, args: Any, kwargs: Any) -> dict[str, Any]:
    """Return all arguments of a call by their names; the usual two are recognised without inspect, which is slow."""
    usual = _DEFAULTS[func]
    if len(args) == 2 and kwargs.keys() <= usual.keys():
        return {**usual, **kwargs, "input": args[0], "target": args[1]}
    call = _LIKELIHOODS[func].bind(*args, **kwargs)
    call.apply_defaults()
    return call.arguments


def _check_divisor(func: Any, args: Any) -> None:
    """Refuse to multiply or divide a loss by a tensor of one number, which other examples may have decided."""
    if func not in _QUOTIENTS and func not in _PRODUCTS:
        return
    others = [value for value in args if isinstance(value, Tensor) and not isinstance(value, ModelOutput)]
    several = any(isinstance(value, ModelOutput) and value.ndim and value.shape[0] > 1 for value in args)
    if any(value.numel() == 1 and (value.ndim == 0 or several) and not value.requires_grad for value in others):
        raise ValueError(
            "The loss is multiplied or divided by a tensor of one number, such as the sum of a mask, that other "
            f"examples may decide. {_REMEDY} A constant is given as a Python number. A torch.amp.GradScaler is made "
            "with enabled=False: gradients are clipped from their norms, and bfloat16 needs no scale."
        )


def _check_choice(func: Any, args: Any, kwargs: Any) -> None:
    """Refuse to choose rows of the output by their data: a mean over them divides by how many there are."""
    if func not in _CHOICES:
        return
    index = args[1] if len(args) > 1 else next(iter(kwargs.values()), None)
    parts = index if isinstance(index, tuple | list) else (index,)
    if func is not Tensor.__getitem__ or any(isinstance(p, Tensor) and p.dtype == torch.bool for p in parts):
        raise ValueError(
            "Outputs are chosen by a mask, or by a list of places, so that the loss is divided by a number that other "
            f"examples decide. {_REMEDY}"
        )


def _check_apart(loss: ModelOutput) -> None:
    """Refuse a loss in which outputs of different examples meet, such as a contrastive one.

    The gradient of a sum over examples does not change for one half of them when the outputs of the other half move:
    its derivative is zero there. That is looked at in the batches that `Notes.looks` names, along the first axis of
    outputs that have no other axis as long. A function that cannot be differentiated twice is not looked at.
    """
    notes = loss.notes
    if notes is None or not notes.outputs or loss.numel() != 1:
        return
    outputs, notes.outputs = notes.outputs, []
    try:
        with torch._C.DisableTorchFunctionSubclass(), torch.enable_grad():
            half, moved = _moved(loss, outputs, _HALVES[notes.batches.bit_length() % len(_HALVES)])
    except (RuntimeError, NotImplementedError):
        return
    for rows in moved:
        still, most = rows[~half].abs(), float(rows.abs().nan_to_num(0.0, 0.0, 0.0).max())
        if bool((still.isfinite() & (still > 1e-6 * most)).any()):
            raise ValueError(
                "The loss lets the outputs of one example change the gradient of another, as a contrastive loss or a "
                f"mean that is taken off does, so no gradient is one example's own. {_REMEDY}"
            )


def _moved(loss: Tensor, outputs: list[Tensor], choose: Callable[[Tensor], Tensor]) -> tuple[Tensor, list[Tensor]]:
    """Return half of the examples, and how the gradient in every output moves when the outputs of that half move."""
    gradients = torch.autograd.grad(loss, outputs, create_graph=True, allow_unused=True)
    used = [(output, own) for output, own in zip(outputs, gradients, strict=True) if own is not None and own.ndim]
    examples = {len(output) for output, _ in used}
    used = [(output, own) for output, own in used if list(output.shape).count(len(output)) == 1]
    half = choose(torch.arange(max(examples, default=0), device=loss.device))
    seen = [own for _, own in used if own.requires_grad]
    if not seen or len(examples) != 1 or len(half) < len(_HALVES):
        return half, []
    ways = [torch.sin(1.0 + torch.arange(g.numel(), device=g.device)).to(g.dtype).reshape(g.shape) for g in seen]
    for way in ways:
        way[~half] = 0.0
    found = torch.autograd.grad(seen, [output for output, _ in used], ways, retain_graph=True, allow_unused=True)
    return half, [rows for rows in found if rows is not None]
