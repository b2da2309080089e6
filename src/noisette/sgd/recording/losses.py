"""What the loss divides by: outputs of a model that notice how they are normalised on the way to the loss.

Clipping rests on the gradient of one example's own loss. A mean over the examples is that, divided by their number,
which is public to the run and multiplied back. A mean over anything that other examples' data decide is not: class
weights, targets that are ignored, the sum of a mask. What is refused here is the setting, before it matters.

The default of `cross_entropy` and `nll_loss` ignores the target -100 and divides by the number of others. Here they
divide by the number of all targets, which is the same where none is ignored, and a public number where some are.

A mean over n examples is differentiated from n on, so that n / n = 1 goes back to each of them and no rounding depends
on how many there are: in half precision, where 1 / n has eight bits, one example more would else move the gradients of
all others in one direction. So losses are divided in single precision at least, and after they are computed.

A label beyond the classes raises an error in most losses, which tells of one example; in `ctc_loss` it reads and writes
what belongs to another one. Here `cross_entropy` and `nll_loss` ignore it, `ctc_loss` takes the nearest class, and of
what another loss of torch's refuses, the rows that it takes are left (`refused`).
"""

from __future__ import annotations

import copy
import inspect
import math
from dataclasses import dataclass, field, fields, is_dataclass
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import functional

from noisette.sgd.recording.layers import wide
from noisette.sgd.recording.refused import by_rows, reduced
from noisette.sgd.recording.tape import Followed, Tape, keep_before, tape_of, written

_END = "noisette: the end of a model"
_IGNORED = -100  # torch's default
_NO_TARGET = -(2**40)  # that nobody has
_LIKELIHOODS = {function: inspect.signature(function) for function in (functional.cross_entropy, functional.nll_loss)}
_DEFAULTS = {
    function: {name: option.default for name, option in list(signature.parameters.items())[2:]}
    for function, signature in _LIKELIHOODS.items()
}  # of all but input and target
_MEANS = {Tensor.mean, torch.mean}
_QUOTIENTS = {Tensor.div, Tensor.div_, Tensor.__truediv__, Tensor.true_divide, torch.div, torch.true_divide}
_PRODUCTS = {Tensor.mul, Tensor.mul_, Tensor.__mul__, Tensor.__rmul__, Tensor.multiply, torch.mul, torch.multiply}
_DIVIDING = (_MEANS | _QUOTIENTS | _PRODUCTS) - {Tensor.div_, Tensor.mul_}  # and return something new
_CTC = {functional.ctc_loss, torch.ctc_loss}
_GATHERS = {Tensor.gather, torch.gather}
_CHOICES = {Tensor.__getitem__, Tensor.masked_select, torch.masked_select, Tensor.index_select, torch.index_select}
_HALVES = (torch.float16, torch.bfloat16)
_REMEDY = (
    "Take the loss of each example by itself and divide by their number, e.g. "
    "loss = (losses * mask).flatten(1).mean(1).mean(), with losses made by reduction='none'."
)


@dataclass
class Notes:
    """By what the losses of a batch were multiplied on the way to the one that was differentiated.

    ``factor`` is 1 for a sum, 1 / examples for a mean, None where it is unknown. ``batches`` counts the batches of two
    examples and more. ``tape`` is the record of the current batch, if it is checked; ``seen`` says whether its loss was
    checked. ``seed`` is the gradient that backpropagation starts from: the number of examples where ``mean`` says
    that the loss is a mean. ``running`` says whether such a loss is being differentiated, ``beside`` whether layers saw
    another backward pass. Every layer leads to ``anchor``.
    """

    mean: bool = False
    seed: float = 1.0
    anchor: Tensor | None = None
    running: bool = False
    beside: bool = False
    compiled: bool = False  # whether the model's end was compiled, where no graph can be marked
    factor: float | None = None
    usual: float | None = None
    batches: int = 0
    seen: bool = False
    tape: Tape | None = None
    _begun: bool = field(default=False, init=False)
    _examples: int | None = field(default=None, init=False)  # of the last call

    def begin(self, batch: Any, examples: int) -> Any:
        """Return a batch; the first, the second, the fourth, the eighth and so on is followed to its loss."""
        self.finish()
        self._begun = True
        if examples < 2:
            return batch
        looked = self.batches & (self.batches + 1) == 0
        self.batches += 1
        if not looked:
            return batch
        self.tape = Tape(examples, self.batches.bit_length())
        return self.tape.begin(batch)

    def called(self, examples: int | None) -> bool:
        """Note a call of the model, and tell whether it is the first one in a batch that is looked at."""
        self._examples = examples
        if not self._begun:  # with what is not from the loader
            self.begin((), examples or 0)
        if self.tape is None or self.tape.called:
            return False
        self.tape.called = True
        return True

    def finish(self) -> None:
        """Let go of the batch."""
        self.clear()
        self._begun = False
        if self.tape is not None:
            self.tape.close()
            self.tape = None

    def clear(self) -> None:
        """Forget the loss, not what is usual, nor the batch: many loops forget old gradients after the forward pass."""
        self.factor, self.seen, self.seed, self.beside = None, False, 1.0, False

    def follow(self, loss: Tensor) -> None:
        """Refuse a loss that leads into the model past what the model returned.

        What a hook or an object of its own took from inside of the model, or a layer that was called again, is followed
        by nobody: examples may meet in it.
        """
        seen: set[Any] = set()
        left: list[Any] = [] if self.compiled else [loss.grad_fn]
        while left:
            node = left.pop()
            if node is None or node in seen or _END in node.metadata:
                continue
            if self.anchor is not None and getattr(node, "variable", None) is self.anchor:
                raise ValueError(
                    "A part of the loss is computed from inside of the model, past what the model returned, so that "
                    "nobody knows whether examples mix in it. Return it from the model, or keep it in an attribute of "
                    "a module: not in a hook's list or an object, and not from a layer that is called by itself."
                )
            seen.add(node)
            left += [before for before, _ in node.next_functions]

    def begun_from(self, loss: Tensor, gradient: Tensor | None) -> Tensor | None:
        """Return what to differentiate a loss from: the number of examples for a mean."""
        if not self.mean or not self._examples:
            return gradient
        if loss.dtype in _HALVES:
            raise ValueError(
                "The mean loss is in half precision, in which each gradient would depend on how many examples there "
                "are. Compute the loss in single precision, e.g. loss = criterion(model(inputs).float(), targets)."
            )
        self.seed = float(self._examples) if self.seed == 1.0 else self.seed
        if gradient is None:
            return loss.new_full(loss.shape, self.seed, requires_grad=False)
        return gradient.as_subclass(Tensor) * self.seed

    def check(self, examples: int, reduction: Literal["mean", "sum"]) -> None:
        """Refuse a loss that is divided by something else than the number of examples, or by nothing, or was not seen.

        A layer that is called past the model, a loss made by an autograd function of the user's own, and
        torch.autograd.backward show nothing of how the examples enter the loss.
        """
        if not self.seen:
            raise RuntimeError(
                "The loss was not seen on its way from the model's output, so it is not known that examples do not mix "
                "in it. Call the model itself, let it return tensors, compute the loss by torch's functions and call "
                "loss.backward()."
            )
        if self.beside:
            raise RuntimeError(
                "The model was differentiated in another way than by loss.backward(), as torch.autograd.grad does for "
                "a gradient penalty: what examples bring to that is not recorded. No step was made. Do without it, or "
                "call optimizer.zero_grad() behind it and the model anew where it is for something else."
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


class ModelOutput(Followed):
    """An output of a model in training, or what was computed from it."""

    notes: Notes | None = None
    factor: float | None = None

    def backward(self, gradient: Any = None, *args: Any, **kwargs: Any) -> None:
        """Tell by what the losses were multiplied, look at the loop where that is due, and differentiate."""
        _check_pass(*args, **kwargs)
        if self.notes is not None:
            self.notes.factor, self.notes.seen = self.factor, True
        if self.tape is not None and self.tape.open:
            self.tape.check(self, gradient)
        with torch._C.DisableTorchFunctionSubclass():
            if self.notes is None:
                super().backward(gradient, *args, **kwargs)  # type: ignore[no-untyped-call]
                return
            if self.ndim == 0 or gradient is not None:  # else torch says what is wrong
                gradient = self.notes.begun_from(self, gradient)
            self.notes.follow(self)
            self.notes.running = True
            try:
                super().backward(gradient, *args, **kwargs)  # type: ignore[no-untyped-call]
            finally:
                self.notes.running = False

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in _LIKELIHOODS:
            return _likelihood(func, args, kwargs)
        if func is functional.binary_cross_entropy:
            args, kwargs = _chances(args, kwargs)
        if func in _CTC:
            args, kwargs = _labels(args, kwargs)
        if func is Tensor.backward and isinstance(args[0], ModelOutput):
            return args[0].backward(*args[1:], **kwargs)
        _check_divisor(func, args)
        _check_choice(func, args, kwargs)
        call = partial(_averaged_at_last, func) if _is_divided(func, args, kwargs) else func
        if func in _GATHERS or reduced(func):
            call = partial(_taken, func, call)
        elif func is Tensor.__getitem__ and _by_places(args[1]):
            call = _picked
        keep_before(func, args, kwargs)
        with torch._C.DisableTorchFunctionSubclass():
            made = call(*args, **kwargs)
        return written(call, args, kwargs, made, lambda value: _noted(value, func, args, kwargs))


def traced(output: Any, notes: Notes) -> Any:
    """Return a model's output, whose tensors notice what is done to them."""
    if isinstance(output, Tensor) and output.requires_grad and output.is_floating_point():
        if torch.compiler.is_compiling():
            notes.compiled = True
        else:
            output = output.clone()  # a node that is behind no tensor of the model's own
            last: Any = output.grad_fn
            last.metadata[_END] = True
        made = output.as_subclass(ModelOutput)
        made.notes, made.factor = notes, 1.0
        if notes.tape is not None:
            made.tape = notes.tape
            notes.tape.leave(made, output)
        return made
    if type(output) in (tuple, list):
        return type(output)(traced(entry, notes) for entry in output)
    if isinstance(output, tuple):  # one with names
        return type(output)(*(traced(entry, notes) for entry in output))
    if isinstance(output, dict | list) or (is_dataclass(output) and not isinstance(output, type)):
        return _traced_inside(output, notes)
    return output


def _check_pass(retain_graph: Any = None, create_graph: bool = False, inputs: Any = None) -> None:
    """Refuse ways to differentiate in which one example stops the loop, or brings more than is recorded."""
    if torch.is_anomaly_enabled() and torch.is_anomaly_check_nan_enabled():
        raise RuntimeError(
            "Anomaly detection stops the loop where one example's gradient is not finite, which tells that it is "
            "there. Train without it, or give torch.autograd.set_detect_anomaly(True, check_nan=False)."
        )
    if create_graph:
        raise RuntimeError(
            "backward(create_graph=True) is for a loss that holds gradients, and what examples bring to those is not "
            "recorded. Call loss.backward()."
        )


def _chances(args: Any, kwargs: Any) -> tuple[Any, Any]:
    """Return the arguments of `binary_cross_entropy` with one half for what is no number.

    It raises an error there, which tells of one example. That one's gradient is no number in the model, and adds
    nothing.
    """
    given = {"input": args[0], **kwargs} if args else dict(kwargs)
    if isinstance(given["input"], ModelOutput):
        given["input"] = torch.where(given["input"].isnan(), 0.5, given["input"])
    return (given.pop("input"), *args[1:]), given


def _labels(args: Any, kwargs: Any) -> tuple[Any, Any]:
    """Return the arguments of `ctc_loss` with labels among the classes, and lengths of texts among those there are.

    Elsewhere it reads, and writes gradients, beyond the example: into what belongs to others.
    """
    names = "log_probs", "targets", "input_lengths", "target_lengths"
    given = {**dict(zip(names, args, strict=False)), **kwargs}
    scores, targets = given["log_probs"], given["targets"]
    given["targets"] = targets.clamp(0, scores.shape[-1] - 1)
    most = {"input_lengths": scores.shape[0], "target_lengths": targets.shape[-1]}
    for name, length in most.items():
        own = given[name]
        given[name] = own.clamp(0, length) if isinstance(own, Tensor) else [min(max(one, 0), length) for one in own]
    return tuple(given.pop(name) for name in names) + tuple(args[4:]), given


def _taken(func: Any, call: Any, *args: Any, **kwargs: Any) -> Any:
    """Return a loss, or a choice by place, of the rows that torch takes."""
    try:
        return call(*args, **kwargs)
    except (IndexError, RuntimeError, ValueError) as error:
        return by_rows(func, args, kwargs, error)


def _by_places(index: Any) -> bool:
    """Tell whether an index names one place after the other, as in ``scores[torch.arange(n), labels]``."""
    return type(index) is tuple and all(
        isinstance(part, Tensor) and not part.is_floating_point() and part.dtype != torch.bool for part in index
    )


def _picked(scores: Tensor, places: tuple[Tensor, ...]) -> Tensor:
    """Return what lies at these places, and zeros for places that there are not."""
    try:
        return scores[places]
    except IndexError:
        within, ends = torch.ones((), dtype=torch.bool), scores.shape[: len(places)]
        for part, end in zip(places, ends, strict=True):
            within = within & (part >= -end) & (part < end)
        made = scores[tuple(part.clamp(-end, end - 1) for part, end in zip(places, ends, strict=True))]
        return made.where(within.reshape(*within.shape, *[1] * (made.ndim - within.ndim)), 0.0)


@torch.compiler.disable  # type: ignore[untyped-decorator]  # of a data class dynamo goes round in circles
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


def _noted(made: Tensor, func: Any, args: Any, kwargs: Any) -> Tensor:
    """Let what was computed know by what its losses were multiplied, where it has a gradient."""
    entered = _answers(args, kwargs)
    if not made.requires_grad or not entered:
        return made
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


def _is_divided(func: Any, args: Any, kwargs: Any) -> bool:
    """Tell whether a function divides losses by their number in a way that is to be done after them, or finer."""
    if getattr(func, "__module__", "") == functional.__name__ and kwargs.get("reduction") in ("mean", "batchmean"):
        old = kwargs.get("size_average") is not None or kwargs.get("reduce") is not None
        return not old and func is not functional.ctc_loss  # which divides by lengths besides
    if func not in _DIVIDING or not isinstance(args[0], ModelOutput) or args[0].dtype not in _HALVES:
        return False
    return (func in _MEANS or args[0].ndim < 2) and _changed(func, args, kwargs, args[0]) != 1.0


def _averaged_at_last(func: Any, *args: Any, **kwargs: Any) -> Any:
    """Return a mean, a quotient or a product, in single precision at least."""
    reduction = kwargs.get("reduction") if func not in _DIVIDING else None
    if reduction is None:
        return func(args[0].float(), *args[1:], **kwargs)
    losses = wide(func(*args, **{**kwargs, "reduction": "none"}))
    return losses.mean() if reduction == "mean" else losses.sum() / losses.shape[0]


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
    call = _averaged if averaged else _called
    with torch._C.DisableTorchFunctionSubclass():
        made = call(func, options, count)

    def known(made: Tensor) -> Tensor:
        if not isinstance(entered, ModelOutput) or not made.requires_grad:
            return made
        made.__class__ = ModelOutput  # nobody else holds it, and `as_subclass` would be one more node to differentiate
        answer: Any = made
        answer.notes, answer.factor = entered.notes, None if entered.factor is None else entered.factor / count
        return made

    if tape_of((entered, target, options["weight"])) is None:  # as in most steps
        return known(made)
    return written(call, (func, options, count), {}, made, known)


def _called(func: Any, options: dict[str, Any], count: int) -> Any:
    """Return a loss that divides by nothing but public numbers."""
    if options["reduction"] == "mean" and options["input"].dtype in _HALVES:
        return wide(func(**{**options, "reduction": "none"})).sum() / count
    return _of_classes(func, options)


def _of_classes(func: Any, options: dict[str, Any]) -> Any:
    """Return a loss that ignores targets beyond the classes."""
    target = options["target"]
    if target.is_cpu and not torch.compiler.is_compiling():
        try:
            return func(**options)
        except IndexError:
            pass
    if not target.is_floating_point():
        classes = options["input"].shape[min(options["input"].ndim - 1, 1)]
        options = {**options, "target": target.where((target >= 0) & (target < classes), options["ignore_index"])}
    return func(**options)


def _averaged(func: Any, options: dict[str, Any], count: int) -> Any:
    """Return the mean over all targets, those that are ignored included, whose losses are 0."""
    target = options["target"]
    if target.is_cpu and target.numel() and options["input"].dtype not in _HALVES:
        try:  # one function instead of two; a target that is to be ignored is no class, and an error then
            return func(**{**options, "ignore_index": _NO_TARGET})
        except IndexError:
            pass
    return wide(_of_classes(func, {**options, "reduction": "none"})).sum() / count


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
