"""Per-example gradients of a model, recorded while it is trained in the usual way.

While a `Recorder` is attached, each layer computes with detached weights, so that the backward pass spends nothing on
gradients that no one may use; it keeps what went in and the gradient of what came out, and `parts` turns them into
norms and weighted sums. Modules that use their weights in another way (attention that reads the weights of a layer
inside, parametrised weights, cells that take a state) compute their examples apart: torch.func.vmap gives each example
weights of its own, so that the gradient of those is the example's, whatever the module does. Hooks of the user's own
run once, as they would. A copy of the model, by deepcopy or pickle, is a plain model with weights of its own.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from types import MethodType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._pytree import TreeSpec, tree_flatten, tree_leaves, tree_map, tree_unflatten

from noisette.sgd.recording import _pools, _products, layers
from noisette.sgd.recording.alone import Beside, Filled, Forward, GuardedForward, Nothing, Own, Uneven, kept
from noisette.sgd.recording.layers import Gradients, Part, Use
from noisette.sgd.recording.losses import Notes, traced
from noisette.sgd.recording.models import check_model, needs_whole, trained_layers
from noisette.sgd.recording.tape import plain


class NotApart(TypeError):
    """The examples of a layer cannot be separated; its parent, with all that is below, may do better."""

    def __init__(self, layer: str, message: str) -> None:
        super().__init__(message)
        self.layer = layer


_RECORDED = ("_uses", "_early", "_counted", "calls", "_formed", "_counts")
_SEVERAL = (
    "Gradients of several batches are recorded, one behind the other, and would count as one example's. Do one "
    "backward pass a step, and call optimizer.zero_grad() where a backward pass was for something else. Large batches "
    "arrive in pieces of physical_batch: step on each."
)
_PLANNED = 64  # examples that memory is planned for where nobody says how many come
Keep = Callable[[Any, tuple[Tensor, ...]], None]  # takes what was saved, and gradients


class _Tap(torch.autograd.Function):
    """Pass tensors on; hand ``saved`` and their gradients to ``keep`` on the way back, and let go of it there."""

    @staticmethod
    def forward(ctx: Any, keep: Keep, anchor: Tensor, saved: Tensor | None, *outputs: Tensor) -> Any:
        ctx.keep = keep
        ctx.save_for_backward(saved)
        return tuple(output.data for output in outputs)  # no views, so that what follows may work in place

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        ctx.keep(*ctx.saved_tensors, gradients)
        return (None, None, None, *gradients)


class _Linear(torch.autograd.Function):
    """Do as a linear layer with fixed weights, and hand the gradient of what comes out to ``keep`` on the way back."""

    @staticmethod
    def forward(
        ctx: Any,
        keep: Keep,
        anchor: Tensor,
        entered: Tensor,
        weight: Tensor,
        bias: Tensor | None,
    ) -> Tensor:
        ctx.keep = keep
        ctx.save_for_backward(entered, weight)  # which tells if they were changed in between
        made = _products.linear(entered, weight, bias)
        return made.data if made._is_view() else made  # torch lets nobody change a view in place

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        entered, weight = ctx.saved_tensors
        ctx.keep(entered.detach(), (gradient,))
        if not ctx.needs_input_grad[2]:
            return None, None, None, None, None
        if torch.is_grad_enabled():  # the gradient is to be differentiated again
            return None, None, gradient @ weight, None, None
        return None, None, _products.linear(gradient, weight.T, None), None, None


class _Tapped(Forward):
    """A layer's forward pass with detached weights and a tap behind it; in a copy of the layer, its plain one.

    With ``whole`` the module and all below it compute their examples apart.
    """

    def __init__(self, recorder: Recorder, name: str, layer: nn.Module, *, whole: bool) -> None:
        self._recorder, self._name, self._layer, self.whole = recorder, name, layer, whole
        self._inside = False
        self.owned, self._holders = _owned(layer, whole=whole)

    def __call__(self, *given: Any, **named: Any) -> Any:
        layer, recorder = self._layer, self._recorder
        if self._inside or recorder.plain or not (layer.training and torch.is_grad_enabled()):
            if layer.training and not (self._inside or recorder.plain or self.whole):
                recorder.glance(self._name, (*given, *named.values()))
            return type(layer).forward(layer, *given, **named)
        only = next(iter((*given, *named.values())), None) if len(given) + len(named) == 1 else None
        if isinstance(only, Tensor) and only.is_nested:
            raise ValueError(
                f"Layer {self._name!r} was given a nested tensor, which has no axis of examples that can be recorded. "
                "Pad the examples to one length, and mask what was added."
            )
        self._inside = True
        try:
            again = not (named and layers.runs_again(layer)) or _takes_first(layer, *named)
            if isinstance(only, Tensor) and only.ndim and not self.whole and again:
                return self._together(only, named)
            if not self.whole and any(value.requires_grad for value in _below(layer)):
                raise NotApart(
                    self._name,
                    f"Layer {self._name!r}, {type(layer).__name__}, has layers and parameters of its own, "
                    f"{', '.join(map(repr, self.owned))}, and was called with other things than one tensor of "
                    "examples. Keep these parameters in a layer of their own, or leave them out of training by "
                    "requires_grad_(False).",
                )
            return self._apart(given, named)
        finally:
            self._inside = False

    def _together(self, entered: Tensor, named: dict[str, Any]) -> Tensor:
        """Compute all examples at once, and keep what entered."""
        layer, recorder, name = self._layer, self._recorder, self._name
        if recorder.size is not None and entered.shape[0] != recorder.size:
            entered = recorder.admit(name, entered, recorder.size)
        recorder.formed_as(name, entered.ndim)
        if type(layer) is nn.Linear:
            weight, bias = layer._parameters["weight"], layer._parameters["bias"]
            if weight is not None and _products.takes(entered, weight, bias):
                return self._multiplied(entered, weight.detach(), None if bias is None else bias.detach())
        before = torch.get_rng_state() if layers.runs_again(layer) else None
        frozen = {key: value.detach() for key, value in layer._parameters.items() if value is not None}
        with layers.swapped(layer, frozen):
            output = type(layer).forward(layer, *(() if named else (entered,)), **dict.fromkeys(named, entered))
        if before is not None and (not isinstance(output, Tensor) or not torch.equal(before, torch.get_rng_state())):
            raise NotApart(
                name,
                f"Layer {name!r}, {type(layer).__name__}, owns a parameter and draws random numbers or returns several "
                "things, so that its gradient cannot be computed a second time. Keep the parameter in a layer of its "
                "own, or leave it out of training by requires_grad_(False).",
            )
        number = recorder.begin(name)
        made: tuple[Tensor, ...] = _Tap.apply(  # type: ignore[no-untyped-call]
            lambda kept, gradients: recorder.note(name, kept, gradients[0], number),
            recorder.anchor,
            entered.detach(),
            output,
        )
        return made[0]

    def _multiplied(self, entered: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """Do as `_together` for a linear layer."""
        recorder, name = self._recorder, self._name
        number = recorder.begin(name)
        made: Tensor = _Linear.apply(  # type: ignore[no-untyped-call]
            lambda kept, gradients: recorder.note(name, kept, gradients[0], number),
            recorder.anchor,
            entered,
            weight,
            bias,
        )
        return made

    def _apart(self, given: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """Compute each example by itself, with weights of its own, whose gradients are then the example's."""
        layer, recorder, name = self._layer, self._recorder, self._name
        asked = given, named
        given, named, loose = _masks(layer, given, named, recorder.size)
        leaves, form = tree_flatten((given, named))
        tensors = [place for place, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]
        size = recorder.size
        if size is None:
            size = next((len(leaves[place]) for place in tensors if leaves[place].ndim), 1)
        shared = recorder.shared.setdefault(name, set())
        new = {place for place in tensors if not leaves[place].ndim or len(leaves[place]) != size} - shared
        if new and recorder.guarded and recorder.looks.known and not recorder.takes_divided():
            with self._swapped({name: value.detach() for name, value in self.owned.items()}):
                return type(layer).forward(layer, *asked[0], **asked[1])
        shared |= new
        rows = [place for place in tensors if place not in shared]
        recorder.formed_as(name, tuple(leaves[place].ndim for place in rows))
        number = recorder.begin(name)
        weights: tuple[Tensor, ...] = _Tap.apply(  # type: ignore[no-untyped-call]
            lambda _, gradients: recorder.add(name, dict(zip(self.owned, gradients, strict=True)), number),
            recorder.anchor,
            None,
            *(value.detach().expand(size, *value.shape) for value in self.owned.values()),
        )
        others: list[Any] = []

        def one(weights: tuple[Tensor, ...], entered: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
            for place, row in zip(rows, entered, strict=True):
                leaves[place] = row if row.ndim == loose else row[None]
            own, other = tree_unflatten(leaves, form)
            with self._swapped(dict(zip(self.owned, weights, strict=True))):
                made, shape = tree_flatten(type(layer).forward(layer, *own, **other))
            others[:] = [shape, made]
            found = [value for value in made if isinstance(value, Tensor)]
            if any(not value.ndim or len(value) != 1 for value in found):
                raise RuntimeError("an output has no axis of examples in front")
            return tuple(value[0] for value in found)

        try:
            answers = _mapped(one, weights, tuple(leaves[place] for place in rows), size)
        except RuntimeError as error:
            raise NotApart(
                name,
                f"Layer {name!r}, {type(layer).__name__}, cannot compute one example by itself: {error}. Build it from "
                "layers such as nn.Linear, or leave it out of training by requires_grad_(False).",
            ) from error
        shape, made = others
        answer = iter(_laid(layer, answers))
        return tree_unflatten([next(answer) if isinstance(value, Tensor) else value for value in made], shape)

    def homes(self) -> Iterator[tuple[dict[str, Any], str, Any, str]]:
        """Yield where each parameter was found, with its name in the model."""
        for module, names in self._holders:
            for own, name in names.items():
                yield module._parameters, own, self.owned[name], f"{self._name}.{name}".strip(".")

    def _swapped(self, values: dict[str, Tensor]) -> ExitStack:
        """Let the module, and all below it where it computes whole, use other values of the weights."""
        stack = ExitStack()
        for module, names in self._holders:
            stack.enter_context(layers.swapped(module, {own: values[name] for own, name in names.items()}))
        return stack

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return _plain_forward(memo.get(id(self._layer), self._layer))

    def __reduce__(self) -> Any:
        return _plain_forward, (self._layer,)


def _mapped(
    one: Callable[..., tuple[Tensor, ...]], weights: tuple[Tensor, ...], entered: tuple[Tensor, ...], size: int
) -> tuple[Tensor, ...]:
    """Return what a function of one example makes of each: all at once, or one by one where torch cannot map it."""
    state = torch.get_rng_state()
    try:
        with sdpa_kernel(SDPBackend.MATH), warnings.catch_warnings():  # other kernels are not mapped
            warnings.filterwarnings("ignore", "There is a performance drop")
            made: tuple[Tensor, ...] = torch.func.vmap(one, randomness="different")(weights, entered)
        return made
    except RuntimeError:
        torch.set_rng_state(state)
    each = [one(tuple(w[i] for w in weights), tuple(r[i] for r in entered)) for i in range(size)]
    return tuple(torch.stack(rows) for rows in zip(*each, strict=True))


def _below(layer: nn.Module) -> Iterator[nn.Parameter]:
    """Yield the parameters of the layers inside of one."""
    for child in layer.children():
        yield from child.parameters()


def _owned(layer: nn.Module, *, whole: bool) -> tuple[dict[str, nn.Parameter], list[tuple[nn.Module, dict[str, str]]]]:
    """Return the trained parameters of a module by name, and the modules that hold them, each with its own names."""
    owned: dict[str, nn.Parameter] = {}
    first: dict[int, str] = {}
    holders = []
    for inner, module in layer.named_modules() if whole else [("", layer)]:
        names = {}
        for own, parameter in module._parameters.items():
            if parameter is not None and parameter.requires_grad:
                name = first.setdefault(id(parameter), f"{inner}.{own}" if inner else own)
                owned[name], names[own] = parameter, name
        holders.append((module, names))
    return owned, holders


def _masks(
    layer: nn.Module, given: tuple[Any, ...], named: dict[str, Any], size: int | None
) -> tuple[tuple[Any, ...], dict[str, Any], int]:
    """Return the arguments of attention with one mask for each example, and how many axes such a mask has, or -1.

    torch lays the masks of all examples and heads along one axis.
    """
    if not isinstance(layer, nn.MultiheadAttention) or not size:
        return given, named, -1
    names = ("query", "key", "value", "key_padding_mask", "need_weights", "attn_mask")
    named = {**dict(zip(names, given, strict=False)), **named}
    mask = named.get("attn_mask")
    if not isinstance(mask, Tensor) or mask.ndim != 3:
        return (), named, -1
    return (), {**named, "attn_mask": mask.reshape(size, layer.num_heads, *mask.shape[1:])}, mask.ndim


def _laid(layer: nn.Module, answers: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Return what attention answers as it lies in memory without a recorder: dropout behind it draws in that order."""
    if not isinstance(layer, nn.MultiheadAttention) or not layer.batch_first or answers[0].ndim != 3:
        return answers
    return answers[0].transpose(0, 1).contiguous().transpose(0, 1), *answers[1:]


def _plain_forward(layer: nn.Module) -> MethodType:
    return MethodType(type(layer).forward, layer)


def _takes_first(layer: nn.Module, *names: str) -> bool:
    """Tell whether an argument that was given by its name may be given as the first one, without it."""
    first = list(inspect.signature(type(layer).forward).parameters.values())[1:2]
    return any(one.kind is one.POSITIONAL_OR_KEYWORD and names == (one.name,) for one in first)


@torch.compiler.disable  # type: ignore[untyped-decorator]  # compiled code takes plain tensors alone
def _unfollowed(given: Any, named: Any) -> Any:
    """Return arguments without tensors that write down what is done with them."""
    return tree_map(plain, (given, named))


class _Inlet:
    """Before the whole model: how many examples it is called with. In a copy of the model it does nothing.

    Many models fail on a batch without examples. They get one example instead: zeros, or where numbers are whole, such
    as words of which one has to end the text, the first that they were called with. `_Outlet` takes it out again.
    """

    def __init__(self, recorder: Recorder | None = None) -> None:
        self._recorder = recorder

    def __call__(self, model: nn.Module, given: Any, named: Any) -> Any:
        recorder = self._recorder
        if recorder is None or recorder.plain:
            return None
        usual = len(given) == 1 and type(given[0]) is Tensor and not named  # to look through a tree takes longer
        if not usual:
            given, named = _unfollowed(given, named)
        if not (model.training and torch.is_grad_enabled()):
            return given, named
        leaves = given if usual else tree_leaves((given, named))
        found = (leaf for leaf in leaves if isinstance(leaf, Tensor) and leaf.ndim)
        recorder.refused = 0
        recorder.given = recorder.size = next((tensor.shape[0] for tensor in found), None)
        if recorder.notes.called(recorder.given):
            recorder.look(given, named)
            recorder.following(*tree_flatten((given, named)), recorder.given)
        if not recorder.verified:
            recorder.verify(given, named)
        if not torch.compiler.is_compiling():
            recorder.renew()
        if recorder.given != 0:
            if not recorder.called:
                recorder.first_numbers = recorder.whole_numbers
                recorder.called, recorder.whole_numbers = True, whole_numbers((given, named))
            return given, named
        recorder.size, kept = 1, [*recorder.whole_numbers]
        return tree_map(lambda leaf: _stand_in(leaf, kept), (given, named))

    def __deepcopy__(self, memo: dict[int, Any]) -> _Inlet:
        return _Inlet()

    def __reduce__(self) -> Any:
        return _Inlet, ()


def whole_numbers(batch: Any) -> list[Tensor]:
    """Return the first rows of the tensors of whole numbers in a batch, as they are in an example."""
    tensors = (leaf for leaf in tree_leaves(batch) if isinstance(leaf, Tensor) and leaf.ndim and len(leaf))
    return [tensor[:1].clone() for tensor in tensors if not (tensor.is_floating_point() or tensor.is_complex())]


def _stand_in(leaf: Any, kept: list[Tensor]) -> Any:
    """Return one example for a tensor without any: the next row of ``kept`` that fits, which is removed, or zeros."""
    if not isinstance(leaf, Tensor) or not leaf.ndim or len(leaf):
        return leaf
    for place, row in enumerate(kept):
        if row.shape[1:] == leaf.shape[1:] and row.dtype == leaf.dtype:
            return kept.pop(place).to(leaf.device)
    return leaf.new_zeros(1, *leaf.shape[1:])


class _Outlet:
    """Behind the whole model: outputs that tell how the loss is normalised. In a copy of the model it does nothing."""

    def __init__(self, recorder: Recorder | None = None) -> None:
        self._recorder = recorder

    def __call__(self, model: nn.Module, given: Any, named: Any, output: Any) -> Any:
        recorder = self._recorder
        if recorder is None or recorder.plain or not (model.training and torch.is_grad_enabled()):
            return None
        if recorder.given == 0:
            output = tree_map(lambda leaf: leaf[:0] if isinstance(leaf, Tensor) and leaf.ndim else leaf, output)
        for module, name in kept(model):
            module.__dict__[name] = traced(module.__dict__[name], recorder.notes)
        return traced(recorder.anchored(output), recorder.notes)

    def __deepcopy__(self, memo: dict[int, Any]) -> _Outlet:
        return _Outlet()

    def __reduce__(self) -> Any:
        return _Outlet, ()


def _nothing_to_see(given: tuple[Any, ...], named: dict[str, Any]) -> None:
    """Look at a call where nobody asked for it."""


def _nothing_to_do() -> None:
    """Leave chance as it is."""


@dataclass
class Looks:
    """What the verification of a model has seen of its calls; numbers with a fraction were drawn: no one's data."""

    single: set[str] = field(default_factory=set)  # layers that were called with one row for all examples
    other: set[str] = field(default_factory=set)  # with other rows than the examples', of which nothing is trained
    axes: dict[str, set[Any]] = field(default_factory=dict)  # how many axes what entered a layer had
    known: bool = False  # whether a call was seen
    reads: bool = False  # whether it reads values, so that the next may go another way; else all data go this one

    def join(self, other: Looks) -> None:
        """Add what another call showed."""
        self.single |= other.single
        self.other |= other.other
        for name, axes in other.axes.items():
            self.axes.setdefault(name, set()).update(axes)
        self.known, self.reads = self.known or other.known, self.reads or other.reads

    @property
    def divides(self) -> bool:
        """Whether layers may be left out by what the examples are."""
        return self.reads or not self.known


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

    def __init__(self, model: nn.Module, whole: Collection[str] = ()) -> None:
        check_model(model)
        self._uses: dict[str, list[Use]] = {}
        self._early: dict[str, Part] = {}  # uses whose gradients are formed already
        self._counted: dict[str, set[int]] = {}  # and their examples
        self.calls: dict[str, int] = {}  # of a layer's forward pass
        self._formed: dict[str, Gradients] = {}
        self._counts: dict[str, set[int]] = {}
        self._passes: set[int] = set()
        self._number = 0
        self.plain = False
        self.given: int | None = None  # examples that the model was last called with in training
        self.size: int | None = None  # and that its layers see
        self.whole_numbers: list[Tensor] = []  # of an example, in the order of the arguments
        self.first_numbers: list[Tensor] = []  # of the example that make_private looked at
        self.refused = 0  # examples of the last call that the model did not take
        self.called = False  # with examples, in training
        self.latest: str | None = None  # the layer that was called last
        self.shared: dict[str, set[int]] = {}  # arguments, by their places, that all examples have in common
        self.guarded: GuardedForward | None = None  # the model's forward pass, once `guard` was called
        self.watching = False  # whether it waits for a layer that sees some of the examples
        self.copying = False  # whether the model is called with copies of one example
        self.spoilt = False  # whether a layer saw some of those copies
        self.looks: Looks = Looks()  # what was seen when the model was verified
        self._owns: list[Own] | None = None  # of a batch whose examples were computed among copies of themselves
        self._places: dict[TreeSpec, set[int]] = {}  # arguments that had a row for each example in all calls
        self.verified = True  # whether there is no more to look at
        self.verify: Callable[[tuple[Any, ...], dict[str, Any]], None] = _nothing_to_see  # looks at a first call
        self.look: Callable[[tuple[Any, ...], dict[str, Any]], None] = _nothing_to_see  # and at some later ones
        self.renew: Callable[[], None] = _nothing_to_do  # what is done before each call
        self.anchor = torch.ones((), requires_grad=True)
        self.notes = Notes(anchor=self.anchor)
        self.planned = _PLANNED  # examples of a call that memory is planned for, a public number
        self.layers: dict[str, nn.Module] = {}
        self._owned: dict[str, dict[str, nn.Parameter]] = {}
        self._homes: list[tuple[dict[str, Any], str, Any, str]] = []  # where layers and parameters were found
        for name, layer, apart in trained_layers(model, {*whole, *needs_whole(model)}):
            layer.forward = tapped = _Tapped(self, name, layer, whole=apart)
            self.layers[name], self._uses[name], self._owned[name] = layer, [], tapped.owned
            above, _, last = name.rpartition(".")
            self._homes += [(model.get_submodule(above)._modules, last, layer, name)] if name else []
            self._homes += tapped.homes()
        self._pools = [layer for layer in model.modules() if _pools.is_quick(layer)]
        for layer in self._pools:
            layer.forward = _pools.Pool(layer)
        self._groups = _grouped(model, self._owned)
        self._inlet = model.register_forward_pre_hook(_Inlet(self), with_kwargs=True)
        self._outlet = model.register_forward_hook(_Outlet(self), with_kwargs=True)

    def replaced(self) -> str | None:
        """Return the name of a layer or parameter in whose place there is another one, None where there is none."""
        return next((name for home, key, own, name in self._homes if home.get(key) is not own), None)

    def guard(self, model: nn.Module) -> None:
        """Compute examples alone from now on where a layer sees some of them: `alone` says how, and why."""
        tapped = self.layers.get("")
        if tapped is None or not tapped.__dict__["forward"].whole:
            self.guarded = model.forward = GuardedForward(self, model)

    def admit(self, name: str, entered: Tensor, size: int) -> Tensor:
        """Return what enters a layer, whose rows are not those of the examples; one row for all may be repeated."""
        single = entered.shape[0] == 1
        if self.guarded is None:
            (self.looks.single if single else self.looks.other).add(name)
        elif self.looks.known and not (single and name in self.looks.single) and name not in self.looks.other:
            self.takes_divided()
            return entered
        return entered.expand(size, *entered.shape[1:]) if single else entered  # as in a table of positions

    def glance(self, name: str, given: tuple[Any, ...]) -> None:
        """Look at the rows of a layer without a gradient: its inside may be computed again in the backward pass."""
        rows = {len(value) for value in given if isinstance(value, Tensor) and value.ndim}
        if self.size is None or not rows or self.size in rows:
            return
        if self.guarded is None:
            self.looks.other.add(name)
        elif self.watching and self.looks.known and name not in self.looks.other:
            self.takes_divided()

    def formed_as(self, name: str, axes: Any) -> None:
        """Note how many axes the input of a layer has; where that differs, its rows are those of some examples.

        A mask may choose as many tokens as there are examples, so the number of rows alone does not show it.
        """
        if self.guarded is None:
            self.looks.axes.setdefault(name, set()).add(axes)
        elif self.looks.reads and not self.copying and axes not in self.looks.axes.get(name, {axes}):
            self.takes_divided()

    def takes_divided(self) -> bool:
        """Stop a call in which a layer sees some of the examples; if all are copies of one example, it adds nothing.

        Return whether gradients are recorded all the same.
        """
        if self.watching:
            self.watching = False  # which tells a model that catches what is not its own
            raise Uneven
        self.spoilt = True
        return not self.copying

    def following(self, leaves: list[Any], form: TreeSpec, size: int | None) -> set[int]:
        """Return which arguments have a row for each example: those that had as many in all calls of this form."""
        found = {place for place, leaf in enumerate(leaves) if isinstance(leaf, Tensor) and leaf.ndim}
        found = {place for place in found if len(leaves[place]) == size}
        self._places[form] = self._places.get(form, found) & found
        return self._places[form]

    def stand_ins(self, rows: list[Tensor]) -> list[list[Tensor]]:
        """Return examples that may stand in for others, as rows of these tensors: as in an empty batch, or zeros."""
        made = []
        for numbers in (self.first_numbers, self.whole_numbers, []):
            left = [*numbers]
            made.append([_stand_in(row.detach()[:0], left) for row in rows])
        return made

    @contextmanager
    def aside(self, size: int) -> Iterator[None]:
        """Record beside what is recorded, while the model is called with copies of one example."""
        before = {name: getattr(self, name) for name in _RECORDED}
        sizes = self.size, self.copying, self.spoilt
        for name in _RECORDED:
            setattr(self, name, {})
        self._uses = {name: [] for name in self.layers}
        self.size, self.copying, self.spoilt = size, True, False
        try:
            yield
        finally:
            self.size, self.copying, self.spoilt = sizes
            for name, value in before.items():
                setattr(self, name, value)

    def divided(self, size: int) -> list[Own]:
        """Return where the examples of a batch are recorded that are computed among copies of themselves."""
        if self._owns is None:
            self._owns = [Own() for _ in range(size)]
        if len(self._owns) != size:
            raise RuntimeError(_SEVERAL)
        return self._owns

    def keep(self, own: Own, place: int, size: int) -> None:
        """Keep the row of one example, of what was recorded `aside`."""
        if self.spoilt or set().union(*self.rows().values()) - {size}:
            own.void = True
            return
        for name, uses in self._uses.items():
            rows = [
                (entered[place : place + 1].clone(), gradient[place : place + 1].clone()) for entered, gradient in uses
            ]
            own.uses.setdefault(name, []).extend(rows)
        for name, gradients in self._formed.items():
            own.add(name, {to: gradient[place : place + 1].clone() for to, gradient in gradients.items()})

    def anchored(self, output: Any) -> Any:
        """Return an output that has a gradient, though no example may have reached a layer that is trained."""
        if self.guarded is None or (isinstance(output, Tensor) and output.requires_grad):
            return output
        leaves, form = tree_flatten(output)
        if any(isinstance(leaf, Tensor) and leaf.requires_grad for leaf in leaves):
            return output
        number = self.turn()
        for place, leaf in enumerate(leaves):
            if isinstance(leaf, Tensor) and leaf.is_floating_point():
                made = _Tap.apply(lambda *_: self.passed(number), self.anchor, None, leaf)  # type: ignore[no-untyped-call]
                leaves[place] = made[0]
        return tree_unflatten(leaves, form)

    def passed(self, number: int) -> None:
        """Note a backward pass through the forward pass of that number, and whether it is one of a loss."""
        self._passes.add(number)
        self.notes.beside |= not self.notes.running

    def begin(self, name: str) -> int:
        """Count a layer's forward pass, and return its number."""
        self.calls[name], self.latest = self.calls.get(name, 0) + 1, name
        return self.turn()

    def turn(self) -> int:
        """Return the number of a forward pass: another one once a backward pass is recorded.

        What runs again inside of a backward pass, to save memory, belongs to the pass before it.
        """
        if self._passes and torch._C._current_graph_task_id() == -1:
            self._number = max(self._passes) + 1
        return self._number

    def note(self, name: str, entered: Tensor, gradient: Tensor, number: int) -> None:
        """Keep one use of a layer, in the forward pass of that number.

        Where it is the only one, and gradients are formed anyway, that is done now: what they are formed from is in
        the caches, and need not be kept until the step.
        """
        self.passed(number)
        early = None
        if self.calls.get(name) == 1 and name not in self._early and not self.copying and self._owns is None:
            with torch.no_grad():
                early = layers.formed_early(self.layers[name], (entered, gradient))
        if early is None:
            self._uses[name].append((entered, gradient))
        else:
            self._early[name] = early
            self._counted[name] = {len(gradient)}

    def add(self, name: str, gradients: Gradients, number: int) -> None:
        """Keep every example's gradients in a layer, or add them to those of its other uses."""
        kept = self._formed.setdefault(name, {})
        for own, gradient in gradients.items():
            wide, before = layers.wide(gradient), kept.get(own)
            self._counts.setdefault(name, set()).add(len(wide))
            if before is None or len(before) == len(wide):
                kept[own] = wide if before is None else before + wide
        self.passed(number)

    def parameters(self) -> Iterator[tuple[str, str, nn.Parameter]]:
        """Yield every trained parameter once, with the name of its part and its own there."""
        for group, members in self._groups.items():
            seen = set()
            for names in members.values():
                for name, parameter in names.values():
                    if name not in seen:
                        seen.add(name)
                        yield group, name, parameter

    def parts(self, *, every: bool = True) -> dict[str, Part]:
        """Return each layer's share in the gradients since `clear`, or an error where a layer saw no backward pass.

        Layers that hold a parameter together have one share. With ``every=False`` a layer that saw none has no share.
        """
        used = self._used()
        if self._owns is not None:
            used |= {name for own in self._owns for name in (*own.formed, *(n for n, uses in own.uses.items() if uses))}
        lenient = self.guarded is not None and (self.looks.divides or self._owns is not None)
        if not used and not (lenient and self._passes):
            raise RuntimeError("No gradients were recorded. Call loss.backward() in training mode before the step.")
        unseen = self._unseen(used) if every and not lenient and len(used) < len(self.layers) else None
        if unseen is not None:
            raise RuntimeError(
                f"Layer {unseen!r} got no gradient, so what it would add is not known. Use it in every step, or "
                "leave it out of training by requires_grad_(False) before the run is made private."
            )
        if self.given == 0 and every:
            return self._nothing()
        if len(self._passes) > 1:
            raise RuntimeError(_SEVERAL)
        counts = set().union(*self.rows().values(), set() if self._owns is None else {len(self._owns)})
        if len(counts) > 1:
            raise RuntimeError(
                f"Layers saw batches of {sorted(counts)} examples. The first axis of every layer's input must be that "
                "of the examples: keep it first, do one backward pass a step, and let a layer that is for some of the "
                "examples, such as one of several experts, see all of them and weigh what it returns by 0 or 1."
            )
        self.plain = True  # layers that are formed by torch.func run once more, as they were
        try:
            with torch.no_grad():
                made = self._joined(used) if self._owns is None else self._beside(self._owns)
        finally:
            self.plain = False
        return self._filled(made, self.examples) if lenient else made

    def _used(self) -> set[str]:
        """Return the layers of which something is recorded."""
        return {name for name, uses in self._uses.items() if uses or name in self._formed or name in self._early}

    def _unseen(self, used: set[str]) -> str | None:
        """Return a layer with a parameter that none of these layers holds, None where there is none."""
        seen = {id(parameter) for name in used for parameter in self._owned[name].values()}
        every = self._owned.items()
        return next((name for name, own in every if any(id(value) not in seen for value in own.values())), None)

    def _beside(self, owns: list[Own]) -> dict[str, Part]:
        """Return the share of each layer where examples were computed among copies of themselves, one by one.

        What was recorded of other calls of the model, with all examples, is divided among them.
        """
        uses, formed = self._uses, self._formed
        for name, part in self._early.items():
            formed = {**formed, name: part.each()}
        rows: list[dict[str, Part]] = []
        with self.aside(1):
            for place, own in enumerate(owns):
                self._uses = {
                    name: [(e[place : place + 1], g[place : place + 1]) for e, g in uses[name]] for name in uses
                }
                self._formed = {name: {k: v[place : place + 1] for k, v in of.items()} for name, of in formed.items()}
                for name, more in own.uses.items():
                    self._uses[name] += more
                for name, gradients in own.formed.items():
                    both = Own()
                    both.add(name, self._formed.get(name, {}))
                    both.add(name, gradients)
                    self._formed[name] = both.formed[name]
                rows.append(self._filled({} if own.void else self._joined(self._used()), 1))
        return {group: Beside([row[group] for row in rows]) for group in rows[0]}

    def _filled(self, made: dict[str, Part], examples: int) -> dict[str, Part]:
        """Return the shares of all layers, of zeros where examples took other ways."""
        shapes: dict[str, dict[str, nn.Parameter]] = {}
        for group, own, parameter in self.parameters():
            shapes.setdefault(group, {})[own] = parameter
        found: dict[str, Part] = {}
        for group, own_ones in shapes.items():
            like = layers.wide(next(iter(own_ones.values())).detach())
            nothing = Nothing(examples, {name: value.shape for name, value in own_ones.items()}, like)
            if group not in made:
                found[group] = nothing
            else:
                found[group] = Filled(made[group], nothing) if len(self._groups[group]) > 1 else made[group]
        return found

    def _joined(self, used: set[str]) -> dict[str, Part]:
        """Return the share of each layer in what is recorded."""
        single = {name: self._part(name) for name in self.layers if name in used}
        made: dict[str, Part] = {}
        for group, members in self._groups.items():
            if len(members) == 1:
                (only,) = members
                if only in single:
                    made[group] = single[only]
                continue
            found = {
                name: {own: to for own, (to, _) in names.items()} for name, names in members.items() if name in single
            }
            if found:
                made[group] = layers.Tied(
                    [(single[name], names) for name, names in found.items()], self._numbers(group)
                )
        return made

    def _numbers(self, group: str) -> int:
        """Return how many numbers the gradients of a part have, for as many examples as are planned for."""
        return self.planned * sum(parameter.numel() for own, _, parameter in self.parameters() if own == group)

    def _nothing(self) -> dict[str, Part]:
        """Return the gradients of no example."""
        made: dict[str, Gradients] = {}
        for group, own, parameter in self.parameters():
            made.setdefault(group, {})[own] = layers.wide(parameter.detach()).new_zeros(0, *parameter.shape)
        return {group: layers.Formed(gradients) for group, gradients in made.items()}

    def _part(self, name: str) -> Part:
        """Return the share of one layer, of its uses together and apart."""
        uses, formed = self._uses[name], self._formed.get(name)
        found: list[Part] = [] if formed is None else [layers.Formed(formed)]
        found += [self._early[name]] if name in self._early else []
        found += [layers.part(self.layers[name], uses)] if uses else []
        if len(found) == 1:
            return found[0]
        own = self._owned[name]
        names = {key: key for key in own}
        return layers.Tied([(one, names) for one in found], self.planned * sum(value.numel() for value in own.values()))

    def rows(self) -> dict[str, set[int]]:
        """Return how many rows each layer saw, in each of its uses."""
        found = {name: {gradient.shape[0] for _, gradient in uses} for name, uses in self._uses.items()}
        for more in (self._counts, self._counted):
            for name, counts in more.items():
                found[name] |= counts
        return found

    @property
    def apart(self) -> list[str]:
        """Names of the layers whose examples were computed apart since `clear`."""
        return list(self._counts)

    @property
    def examples(self) -> int:
        """How many examples the recorded batch has."""
        if self.given == 0:
            return 0
        sizes = [size for sizes in self.rows().values() for size in sizes]
        sizes += [] if self._owns is None else [len(self._owns)]
        nothing = self.size or 0 if self.guarded is not None and self._passes else 0  # examples that reach no layer
        return max(sizes, default=nothing)

    def clear(self) -> None:
        """Forget what was recorded."""
        self.notes.clear()
        self._passes.clear()
        self._owns = None
        for held in (self._formed, self._counts, self._early, self._counted, self.calls):
            held.clear()
        for uses in self._uses.values():
            uses.clear()

    def remove(self) -> None:
        """Give the model its own layers back."""
        self.clear()
        self.notes.finish()  # a tape that is open holds outputs, and they hold this: no one else would let go of it
        if self.guarded is not None:
            self.guarded.remove()
        self._inlet.remove()
        self._outlet.remove()
        for layer in (*self.layers.values(), *self._pools):
            layer.__dict__.pop("forward", None)


def _grouped(
    model: nn.Module, owned: dict[str, dict[str, nn.Parameter]]
) -> dict[str, dict[str, dict[str, tuple[str, nn.Parameter]]]]:
    """Return the layers by parts: those that hold a parameter together make one, named by what is above them all.

    Each layer's names for its parameters lead to those in the part, and to the parameters.
    """
    groups: list[set[str]] = []
    for name, own in owned.items():
        known = {id(parameter) for parameter in own.values()}
        joined = {name}
        for group in [g for g in groups if any(id(p) in known for other in g for p in owned[other].values())]:
            groups.remove(group)
            joined |= group
        groups.append(joined)
    if any(len(group) > 1 for group in groups):  # one part for all that are tied, below the module above them all
        tied = set().union(*(group for group in groups if len(group) > 1))
        above = _above(sorted(tied))
        tied |= {above} & owned.keys()
        groups = [tied, *(group for group in groups if not group & tied)]
    order = {name: place for place, name in enumerate(owned)}
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    made = {}
    for group in sorted(groups, key=lambda group: min(order[name] for name in group)):
        if len(group) == 1:
            (name,) = group
            made[name] = {name: {own: (own, parameter) for own, parameter in owned[name].items()}}
            continue
        above = _above(sorted(group))
        made[above] = {
            name: {
                own: (names[id(parameter)][len(above) + 1 if above else 0 :], parameter)
                for own, parameter in owned[name].items()
            }
            for name in sorted(group, key=order.__getitem__)
        }
    return made


def _above(names: list[str]) -> str:
    """Return the name of the module that is above all of these."""
    split = [name.split(".") for name in names]
    common = []
    for parts in zip(*split, strict=False):
        if len(set(parts)) > 1:
            break
        common.append(parts[0])
    return ".".join(common)
