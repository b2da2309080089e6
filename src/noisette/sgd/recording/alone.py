"""Batches whose examples take different ways through a model: each example is computed among copies of itself.

An expert that a gate sends some of the examples to sees rows of which nobody knows whose they are. In most models this
shows in the three examples that `make_private` looks at, and the module that divides them is taken whole, in every
step. In others it shows in a step that one person's data caused. That step must not stop, and must not lose what the
others add: leaving out the batch would change the sum by all of them. So the model is called again, once for each
example, with as many copies of this example as the batch has, and the same chance. Of everything that is recorded only
the example's own row is kept. If a layer sees another number of rows even so, or the model does not take the copies,
the example adds nothing.

What is proved: let phi(x, i, n, r) be what is recorded of row i in a batch of n copies of x, with the chance r. Under
the supposition of `clipping`, that what an example brings is a function of itself and the parameters (and of n, of its
place and of chance, as for any batch), phi(x, i, n, r) is what x brings to every batch in which layers see all rows,
since a batch of copies is one. Here it is what x brings to the others too. So the sum over a batch with a person whose
data divide it and the sum without that person have the same terms but for that person's own, which is clipped to the
bound. The joint law of chance is the same, drawn once for a call: a mask of dropout differs from row to row, and a
layer that is left out is left out for all. Shapes are the same, so numbers are, to the bit, where a kernel computes
rows alike; gradients are formed from the kept rows by the same rules as for a batch (`layers`).

What a call leaves on the model's modules is as one call leaves it: buffers, attributes with what is in their
containers, and generators are put back before each, so that no counter tells. An attribute with a gradient, such as a
loss of the gate, is put together of the examples' own rows like what is returned. Along which axis a tensor holds the
examples is seen by one copy more.

Nobody is told. The step takes as many calls as the batch has examples. Neither the time that it takes is covered by
the guarantee nor what the model does outside of its modules: hooks, prints and warnings come with every call.

An exception of the model's own, on a value that it does not take, is an example that adds nothing: see `refused`.
"""

from __future__ import annotations

import copy
import inspect
import random
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from enum import Enum
from types import MethodType
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten

from noisette.sgd.recording.layers import Gradients, Part, Use
from noisette.sgd.recording.refused import constant, refused

if TYPE_CHECKING:
    from noisette.sgd.recording.gradients import Recorder


class Uneven(BaseException):
    """A layer was called with rows for some of the examples. No `except Exception` of a model's own catches it."""


class _NoneTaken(Exception):
    """The model refuses copies of every example; its argument is the last exception."""


class Own:
    """What was recorded of one example: uses of the layers, and gradients that were formed; nothing once it is void."""

    def __init__(self) -> None:
        self.uses: dict[str, list[Use]] = {}
        self.formed: dict[str, Gradients] = {}
        self.void = False

    def add(self, name: str, gradients: Gradients) -> None:
        """Add gradients in a layer."""
        kept = self.formed.setdefault(name, {})
        for own, gradient in gradients.items():
            kept[own] = kept[own] + gradient if own in kept else gradient


class Nothing(Part):
    """Examples that add nothing."""

    def __init__(self, examples: int, shapes: dict[str, torch.Size], like: Tensor) -> None:
        self._examples, self._shapes, self._like = examples, shapes, like

    def squares(self) -> Tensor:
        return torch.zeros(self._examples, dtype=torch.float64, device=self._like.device)

    def total(self, weights: Tensor) -> Gradients:
        return {name: weights.new_zeros(shape) for name, shape in self._shapes.items()}

    def each(self) -> Gradients:
        return {name: self._like.new_zeros(()).expand(self._examples, *shape) for name, shape in self._shapes.items()}


class Filled(Part):
    """A part in which some parameters had no use: their gradients are zero."""

    def __init__(self, part: Part, nothing: Nothing) -> None:
        self._part, self._nothing = part, nothing

    def squares(self) -> Tensor:
        return self._part.squares()

    def total(self, weights: Tensor) -> Gradients:
        return {**self._nothing.total(weights), **self._part.total(weights)}

    def each(self) -> Gradients:
        return {**self._nothing.each(), **self._part.each()}


class Beside(Part):
    """Parts of one example each, one beside the other."""

    def __init__(self, parts: Sequence[Part]) -> None:
        self._parts = parts

    def squares(self) -> Tensor:
        return torch.cat([part.squares() for part in self._parts])

    def total(self, weights: Tensor) -> Gradients:
        made: Gradients = {}
        for place, part in enumerate(self._parts):
            for name, gradient in part.total(weights[place : place + 1]).items():
                if name in made:
                    made[name] += gradient
                else:
                    made[name] = gradient.clone()
        return made

    def each(self) -> Gradients:
        rows = [part.each() for part in self._parts]
        return {name: torch.cat([row[name] for row in rows]) for name in rows[0]}


class Outset:
    """The state before a call: torch's generators, what modules hold, and with ``others`` Python's and numpy's."""

    def __init__(self, modules: Sequence[nn.Module], *, others: bool) -> None:
        self._torch = torch.get_rng_state()
        self._devices = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []
        self._others = (random.getstate(), np.random.get_state()) if others else None  # noqa: NPY002
        self._buffers = [(module, dict(module._buffers)) for module in modules]
        self._values = [
            (buffer, buffer.detach().clone(), buffer._version)
            for _, buffers in self._buffers
            for buffer in buffers.values()
            if buffer is not None
        ]
        self._own = [(module, _rebuilt(_attributes(module))) for module in modules]
        held = [value for _, own in self._own for value in _held(own)]
        self._values += [(v, v.detach().clone(), v._version) for v in held if isinstance(v, Tensor)]
        self._sources = [(source, _state(source)) for source in held if not isinstance(source, Tensor)]

    def restore(self) -> None:
        """Let all of it be as it was."""
        torch.set_rng_state(self._torch)
        if self._devices:
            torch.cuda.set_rng_state_all(self._devices)
        if self._others is not None:
            random.setstate(self._others[0])
            np.random.set_state(self._others[1])  # noqa: NPY002
        for module, buffers in self._buffers:
            module._buffers.update(buffers)
        for place, (buffer, value, version) in enumerate(self._values):
            if buffer._version != version:
                with torch.no_grad():
                    buffer.copy_(value)
                self._values[place] = buffer, value, buffer._version
        for source, state in self._sources:
            if isinstance(source, torch.Generator):
                source.set_state(state)
            elif isinstance(source, random.Random):
                source.setstate(state)
            else:
                source.bit_generator.state = state
        for module, own in self._own:
            for name in _attributes(module).keys() - own.keys():
                del module.__dict__[name]
            module.__dict__.update(_rebuilt(own))


_SOURCES = (torch.Generator, random.Random, np.random.Generator)
_DICTS = (dict, OrderedDict, defaultdict, Counter)
_TORCHS = {*nn.Module().__dict__, "forward"}
_PLAIN = {bool, int, float, str, type(None)}


def _attributes(module: nn.Module) -> dict[str, Any]:
    """Return the attributes of a module that torch does not manage."""
    return {name: value for name, value in module.__dict__.items() if name not in _TORCHS}


def _rebuilt(value: Any) -> Any:
    """Return containers and arrays of their own, with the same in them."""
    if type(value) in _DICTS:
        made = copy.copy(value)
        made.update((key, _rebuilt(entry)) for key, entry in value.items())
        return made
    if type(value) is deque:
        return deque(map(_rebuilt, value), value.maxlen)
    if type(value) is list:
        return [_rebuilt(entry) for entry in value]
    return value.copy() if type(value) in (set, bytearray, np.ndarray) else value


def _held(value: Any) -> Iterator[Any]:
    """Yield the tensors without a gradient, and the generators, in what a module keeps."""
    if type(value) in _DICTS:
        for entry in value.values():
            yield from _held(entry)
    elif type(value) in (list, tuple, deque):
        for entry in value:
            yield from _held(entry)
    elif isinstance(value, _SOURCES) or (type(value) is Tensor and not value.requires_grad):
        yield value


def _state(source: Any) -> Any:
    """Return the state of a generator."""
    if isinstance(source, torch.Generator):
        return source.get_state()
    return source.getstate() if isinstance(source, random.Random) else source.bit_generator.state


def kept(model: nn.Module) -> list[tuple[nn.Module, str]]:
    """Return where modules keep a tensor that has a gradient: it may reach the loss beside what is returned."""
    return [
        (module, name)
        for module in model.modules()
        for name, value in module.__dict__.items()
        if type(value) not in _PLAIN and name not in _TORCHS and _has_gradient(value)
    ]


def _has_gradient(value: Any) -> bool:
    """Tell whether a tensor that was computed with a gradient is in a value."""
    if isinstance(value, Tensor):
        return value.grad_fn is not None
    if isinstance(value, dict):
        return any(map(_has_gradient, value.values()))
    return isinstance(value, list | tuple) and any(map(_has_gradient, value))


def copied(model: nn.Module) -> nn.Module:
    """Return a copy of a model, in which what it keeps of a call has no gradient: torch copies no such tensor."""
    leaves = (leaf for module, name in kept(model) for leaf in tree_leaves(module.__dict__[name]))
    return copy.deepcopy(model, {id(leaf): leaf.detach() for leaf in leaves if isinstance(leaf, Tensor)})


class Forward:
    """A forward pass with the arguments of its module's, which others may wrap and bind to it, as accelerate does."""

    _layer: nn.Module

    @property
    def __signature__(self) -> inspect.Signature:
        return inspect.signature(MethodType(type(self._layer).forward, self._layer))

    @property
    def __func__(self) -> Callable[..., Any]:
        """A function of the module. Its wrapper is bound to a copy of the module too, whose forward pass is plain."""

        def bound(module: nn.Module, *given: Any, **named: Any) -> Any:
            own: Any = self if module is self._layer else copy.deepcopy(self, {id(self._layer): module})
            return own(*given, **named)

        bound.__signature__ = inspect.signature(type(self._layer).forward)  # type: ignore[attr-defined]
        return bound


class GuardedForward(Forward):
    """A model's forward pass, and what is done where its layers see some of the examples; in a copy its plain one."""

    def __init__(self, recorder: Recorder, model: nn.Module) -> None:
        self._recorder, self._layer = recorder, model
        self.before = model.__dict__.get("forward")
        self._own = [module for module in model.modules() if not type(module).__module__.startswith("torch.nn.")]

    def __call__(self, *given: Any, **named: Any) -> Any:
        recorder, model = self._recorder, self._layer
        if (
            torch.compiler.is_compiling()
            or recorder.plain
            or recorder.watching
            or not (model.training and torch.is_grad_enabled())
        ):
            return self._once(given, named)
        # a model that reads no values is divided by no one's data, and torch's own modules keep nothing of a call
        divides = recorder.looks.divides
        before, calls = Outset([*model.modules()] if divides else self._own, others=divides), dict(recorder.calls)
        leaves, form = [*given], None
        if divides or len(given) != 1 or type(given[0]) is not Tensor or named:  # to look through a tree takes longer
            leaves, form = tree_flatten((given, named))
        values = _values(leaves) if divides else leaves
        versions = [leaf._version for leaf in leaves if isinstance(leaf, Tensor)]
        gone: list[int] = []
        while True:
            recorder.watching = True
            try:
                answer = self._once(given, named)
                if not recorder.watching:  # the model went on after an exception that was not its own
                    break
                if not gone or self._lies_in_front(answer):
                    return constant(answer, gone)
                break
            except Uneven:
                break
            except Exception:
                if gone or not recorder.size:
                    raise
                recorder.watching = False
                if form is None:
                    form = tree_flatten((given, named))[1]
                if not divides and versions != [leaf._version for leaf in leaves if isinstance(leaf, Tensor)]:
                    raise  # what it was called with is no longer known
                values, gone = self._without_refused(values, leaves, form, before)
                given, named = tree_unflatten(_like(values, leaves), form)
                recorder.calls = dict(calls)
                before.restore()
            finally:
                recorder.watching = False
        recorder.calls = calls
        rest = (given, named), values, before, gone
        try:
            return _Alone(recorder, model, self._once, *rest).answer()
        except _NoneTaken as error:
            if gone or not recorder.size:
                raise error.args[0] from None
        form = tree_flatten((given, named))[1]
        values, gone = self._without_refused(values, leaves, form, before, every=True)
        return _Alone(
            recorder, model, self._once, tree_unflatten(_like(values, leaves), form), values, before, gone
        ).answer()

    def _without_refused(
        self, values: list[Any], leaves: list[Any], form: Any, before: Outset, *, every: bool = False
    ) -> tuple[list[Any], list[int]]:
        """Return what the model is called with, one that stands in for each example that it refuses, and their places.

        With ``every`` these are all examples.
        """
        recorder = self._recorder
        size = recorder.size or 0
        rows = recorder.following(leaves, form, size)
        others = recorder.stand_ins([values[row] for row in rows])

        def mixed(places: Sequence[int], other: list[Tensor]) -> list[Any]:
            made = list(values)
            for row, alike in zip(rows, other, strict=True):
                made[row] = alike.expand_as(values[row]).clone()
                made[row][list(places)] = values[row][list(places)].detach()
            return made

        def attempt(places: Sequence[int], other: list[Tensor]) -> Exception | None:
            given, named = tree_unflatten(_like(mixed(places, other), leaves), form)
            before.restore()
            try:
                with recorder.aside(size), torch.enable_grad():
                    self._once(given, named)
            except Exception as error:
                return error
            return None

        other = next((one for one in others if attempt((), one) is None), others[0])
        gone = [*range(size)] if every else refused(lambda places: attempt(places, other), size)
        recorder.refused = len(gone)
        return mixed([place for place in range(size) if place not in gone], other), gone

    def _lies_in_front(self, answer: Any) -> bool:
        """Tell whether all that has a gradient holds the examples along the first axis, and along no other."""
        size = self._recorder.size
        found = [leaf for leaf in tree_leaves(answer) if _has_gradient(leaf)]
        return not kept(self._layer) and all(
            leaf.ndim > 0 and len(leaf) == size and size not in leaf.shape[1:] for leaf in found
        )

    def _once(self, given: tuple[Any, ...], named: dict[str, Any]) -> Any:
        if self.before is not None:
            return self.before(*given, **named)
        return type(self._layer).forward(self._layer, *given, **named)

    def remove(self) -> None:
        """Give the model its own forward pass back."""
        if self._layer.__dict__.get("forward") is self:
            if self.before is None:
                del self._layer.__dict__["forward"]
            else:
                self._layer.__dict__["forward"] = self.before

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        if self.before is not None:
            return copy.deepcopy(self.before, memo)
        return _plain(memo.get(id(self._layer), self._layer))

    def __reduce__(self) -> Any:
        return (_as_it_is, (self.before,)) if self.before is not None else (_plain, (self._layer,))


def _plain(model: nn.Module) -> MethodType:
    return MethodType(type(model).forward, model)


def _as_it_is(forward: Any) -> Any:
    return forward


def _like(values: list[Any], leaves: list[Any]) -> list[Any]:
    """Return copies of values, of which those have a gradient whose leaves have one."""
    return [
        value.detach().clone().requires_grad_(leaf.requires_grad) if isinstance(leaf, Tensor) else value
        for value, leaf in zip(values, leaves, strict=True)
    ]


def _values(leaves: list[Any]) -> list[Any]:
    """Return what a model is called with, tensors as they are before it changes them; refuse what hides examples."""
    for leaf in leaves:
        if not (leaf is None or isinstance(leaf, (Tensor, *_ALIKE))):
            raise TypeError(
                "Call this model with tensors, in lists, tuples and dicts, beside numbers and texts that all examples "
                f"have alike: it may take other ways for some examples, and those in a {type(leaf).__name__} cannot be "
                "told apart. Let the loader give tensors."
            )
    return [leaf.detach().clone() if isinstance(leaf, Tensor) else leaf for leaf in leaves]


class _Alone:
    """One call of a model in which every example is computed among copies of itself, forward and back."""

    def __init__(
        self,
        recorder: Recorder,
        model: nn.Module,
        once: Callable[[tuple[Any, ...], dict[str, Any]], Any],
        called: tuple[tuple[Any, ...], dict[str, Any]],
        values: list[Any],
        before: Outset,
        gone: Sequence[int] = (),
    ) -> None:
        self._recorder, self._model, self._once, self._before = recorder, model, once, before
        self._gone = {*gone}  # places that somebody else stands in for
        self._leaves, self._form = tree_flatten(called)
        self._values = values
        self._size = recorder.size or 0
        self._rows = recorder.following(self._leaves, self._form, self._size)
        self._moved = [place for place in self._rows if self._leaves[place].requires_grad]
        self._fast = [(kind, torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)) for kind in _KINDS]
        self._number = recorder.turn()

    def answer(self) -> Any:
        """Return what the model answers, with each example's own rows; so with what it keeps that has a gradient.

        An example whose copies the model does not take answers zeros, and adds nothing.
        """
        self._axes = self._along()
        known: dict[int, dict[Place, Tensor]] = {}
        error: Exception = RuntimeError("The model was called without an example.")
        with self._recorder.aside(self._size):
            for place in range(self._size):
                try:
                    answer, found, _ = self._call(place)
                except Exception as raised:
                    error = raised
                    continue
                known[place] = {
                    at: leaf.detach().select(axis, place)
                    for at, leaf in found.items()
                    if (axis := self._axes.get(at)) is not None and leaf.shape[axis] == self._size
                }
            if not known:
                raise _NoneTaken(error)
            if len(known) < self._size:  # let the model be as a call leaves it that it takes
                answer, *_ = self._call(next(iter(known)))
        usual = next(iter(known.values()))
        nothing = {at: torch.zeros_like(row) for at, row in usual.items()}
        rows = [known.get(place, nothing) for place in range(self._size)]
        self._gone |= {*range(self._size)} - known.keys()
        self._own = [at for at in rows[0] if all(at in row for row in rows)]
        joined = tuple(torch.stack([row[at] for row in rows], self._axes[at]) for at in self._own)
        answers: tuple[Tensor, ...] = _Joined.apply(  # type: ignore[no-untyped-call]
            self, self._recorder.anchor, joined, *(self._leaves[place] for place in self._moved)
        )
        made = dict(zip(self._own, answers, strict=True))
        for module, name in kept(self._model):
            module.__dict__[name] = _filled(module.__dict__[name], (module, name), made)
        return _filled(answer, None, made)

    def back(self, gradients: tuple[Tensor | None, ...]) -> list[Tensor]:
        """Record what each example brings, and return the gradients of what the model was called with."""
        recorder, now = self._recorder, Outset([*self._model.modules()], others=True)
        made = [torch.zeros_like(self._leaves[place]) for place in self._moved]
        owns = recorder.divided(self._size)
        recorder.passed(self._number)
        try:
            for place, own in enumerate(owns):
                own.void |= place in self._gone  # here, as some loops forget old gradients after the forward pass
                if own.void:
                    continue
                with recorder.aside(self._size), torch.enable_grad():
                    _, found, entered = self._call(place)
                    pairs = [
                        (found[at], _row(found[at], gradient, self._axes[at], place))
                        for at, gradient in zip(self._own, gradients, strict=True)
                        if gradient is not None and found[at].requires_grad
                    ]
                    if pairs:  # not by torch.autograd.grad, for which no layer is computed again to save memory
                        torch.autograd.backward(*zip(*pairs, strict=True))  # type: ignore[arg-type]
                        recorder.anchor.grad = None
                    for to, copies in zip(made, entered, strict=True):
                        if copies.grad is not None:
                            to[place] = copies.grad.sum(0)
                    recorder.keep(own, place, self._size)
        finally:
            now.restore()
        return made

    def _along(self) -> dict[Place, int]:
        """Return the axes of the examples in what the model answers: those that one copy more makes longer."""
        error: Exception = RuntimeError("The model was called without an example.")
        for place in range(self._size):
            try:
                with self._recorder.aside(self._size):
                    _, usual, _ = self._call(place)
                break
            except Exception as raised:
                error = raised
        else:
            raise _NoneTaken(error)
        try:
            with self._recorder.aside(self._size + 1):
                _, longer, _ = self._call(place, more=1)
        except Exception:  # a model for batches of this size alone
            return {at: 0 for at, leaf in usual.items() if leaf.ndim and len(leaf) == self._size}
        found = {}
        for at in usual.keys() & longer.keys():
            pairs = zip(usual[at].shape, longer[at].shape, strict=False)
            axes = [axis for axis, (few, more) in enumerate(pairs) if few != more]
            if len(axes) == 1:
                found[at] = axes[0]
        return found

    def _call(self, place: int, more: int = 0) -> tuple[Any, dict[Place, Tensor], list[Tensor]]:
        """Call the model with copies of one example.

        Return the answer, its tensors with those that are kept, and the copies that have a gradient.
        """
        leaves = list(self._values)
        for row in self._rows:
            leaf = leaves[row].detach()
            copies = leaf[place : place + 1].expand(self._size + more, *leaf.shape[1:])
            leaves[row] = copies.clone(memory_format=torch.contiguous_format)
        entered = [leaves[row].requires_grad_() for row in self._moved]
        given, named = tree_unflatten(leaves, self._form)
        self._before.restore()
        with _fast(self._fast):
            answer = self._once(given, named)
        found = _places(answer, None)
        for module, name in kept(self._model):
            found |= _places(module.__dict__[name], (module, name))
        return answer, found, entered


Place = tuple[tuple[nn.Module, str] | None, int]  # the attribute, None for what is returned, and the leaf there


def _places(value: Any, attribute: tuple[nn.Module, str] | None) -> dict[Place, Tensor]:
    """Return the tensors in an answer, or in an attribute."""
    return {(attribute, at): leaf for at, leaf in enumerate(tree_leaves(value)) if isinstance(leaf, Tensor)}


def _filled(value: Any, attribute: tuple[nn.Module, str] | None, made: dict[Place, Tensor]) -> Any:
    """Return an answer, or an attribute, with its tensors replaced; everything else in it has no gradient."""
    leaves, form = tree_flatten(value)
    leaves = [leaf.detach() if isinstance(leaf, Tensor) else leaf for leaf in leaves]
    return tree_unflatten([made.get((attribute, at), leaf) for at, leaf in enumerate(leaves)], form)


_KINDS = ("cpu", "cuda")
_ALIKE = (bool, int, float, complex, str, bytes, np.generic, Enum, torch.dtype, torch.device)  # for all examples


@contextmanager
def _fast(kinds: Sequence[tuple[str, bool, torch.dtype]]) -> Iterator[None]:
    """Compute in the precisions that the loop asked for."""
    (kind, on, dtype), *others = kinds
    with torch.autocast(kind, dtype, enabled=on):
        if others and others[0][1]:
            with _fast(others):
                yield
        else:
            yield


def _row(answer: Tensor, gradient: Tensor, axis: int, place: int) -> Tensor:
    """Return the gradient of one row of an answer, and zeros for the others."""
    made = torch.zeros_like(answer)
    made.select(axis, place).copy_(gradient.select(axis, place))
    return made


class _Joined(torch.autograd.Function):
    """Answers that were computed one after the other."""

    @staticmethod
    def forward(ctx: Any, run: _Alone, anchor: Tensor, answers: tuple[Tensor, ...], *entered: Tensor) -> Any:
        ctx.run = run
        ctx.mark_non_differentiable(
            *(answer for answer in answers if not (answer.is_floating_point() or answer.is_complex()))
        )
        ctx.set_materialize_grads(False)
        return answers

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *gradients: Any) -> Any:
        return (None, None, None, *ctx.run.back(gradients))
