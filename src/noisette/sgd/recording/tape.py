"""A record of what a training loop does with a batch, done again with other examples to see whether examples meet.

In some batches, which a public rule chooses, the loader's tensors and the model's outputs write down every torch
function that is called with them. At `loss.backward()` all of it is done again twice, as it was and with half of the
examples replaced, in the batch and in the outputs, by others of the batch. What belongs to the other half must stay as
it is: the rows that the model was called with, and the gradient of the loss in its rows of the output. So mixup in the
loop, weights that were computed from all targets, ranking losses and the hardest examples of a batch are seen.

What leaves torch (``item()``, numpy, a condition in Python) is a number like any other, and is not done again.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

_NEAR = 1e-6  # of a row's largest number; what is done again in the same shapes is the same to the bit
_IN_PLACE = {Tensor.__setitem__, Tensor.__iadd__, Tensor.__isub__, Tensor.__imul__, Tensor.__itruediv__}
_KEPT = {*_IN_PLACE, Tensor.register_hook}  # of which more than the result is to be done again
_CUSTOM = (torch._ops.OpOverload, torch._ops.OpOverloadPacket)  # whose names do not tell what they write to
_CONSTANTS = {Tensor.grad.__get__}  # type: ignore[union-attr]  # that a backward pass left
_WAYS = ("others", "largest", "smallest")  # to replace examples
_MIXED = (
    "Examples of a batch meet between the loader and the loss: {what} of some changed when others were replaced, so no "
    "gradient is one example's own. Do without what mixes them, such as mixup, statistics or weights over a batch, a "
    "ranking, or a choice of the hardest."
)
Root = tuple[Tensor, Tensor, int | None, bool]  # what is followed, its value, the axis of examples, if it is an output


@dataclass
class Tape:
    """What torch functions made of the tensors of a batch, in their order."""

    examples: int
    look: int = 0
    open: bool = True
    called: bool = False  # whether the model was, in this batch
    _batch: list[weakref.ref[Tensor]] = field(default_factory=list, init=False)  # a loop may use some of it, or none
    _before: dict[int, Tensor] = field(default_factory=dict, init=False)  # what these held before they were written to
    _roots: list[Root] = field(default_factory=list, init=False)  # the model's outputs
    _entries: list[tuple[Any, Any, Any, Any, torch.dtype | None]] = field(default_factory=list, init=False)
    _entered: list[Tensor] = field(default_factory=list, init=False)  # what the model was called with

    def begin(self, batch: Any) -> Any:
        """Return a batch whose tensors are followed."""

        def followed(leaf: Any) -> Any:
            if type(leaf) is not Tensor or not leaf.ndim or len(leaf) != self.examples:
                return leaf
            made = leaf.as_subclass(Followed)
            made.tape = self
            self._batch.append(weakref.ref(made))
            return made

        return tree_map(followed, batch)

    def keep(self) -> None:
        """Keep what the tensors of the batch hold: something is about to be written to one of them."""
        for tensor in self._held():
            if id(tensor) not in self._before:
                self._before[id(tensor)] = tensor.detach().as_subclass(Tensor).clone()

    def _held(self) -> list[Tensor]:
        """Return the tensors of the batch that somebody holds."""
        return [tensor for tensor in (one() for one in self._batch) if tensor is not None]

    def close(self) -> None:
        """Write no more, and let go of everything: tensors of this batch may live on in sums of losses."""
        self.open = False
        self._batch, self._before, self._roots, self._entries, self._entered = [], {}, [], [], []

    def enter(self, tensor: Tensor) -> None:
        """Write down that the model was called with a tensor."""
        self._entered.append(tensor)

    def leave(self, answer: Tensor, output: Tensor) -> None:
        """Write down what is followed of what the model returned."""
        self._roots.append((answer, output.detach(), self._axis(output), True))

    def write(self, func: Any, args: Any, kwargs: Any, made: Any) -> None:
        """Write down a call."""
        fast = torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else None
        self._entries.append((func, args, kwargs, made, fast))

    def check(self, loss: Tensor, gradient: Tensor | None) -> None:
        """Refuse a loop in which examples meet on the way to this loss, or to what the model was called with."""
        touched = {id(leaf) for _, args, kwargs, _, _ in self._entries for leaf in tree_leaves((args, kwargs))} | {
            id(loss),
            id(gradient),
        }
        # what goes into the model as the loader gave it, untouched, has the same rows by itself
        batch = ((one, self._before.get(id(one), one.detach().as_subclass(Tensor)), 0, False) for one in self._held())
        roots = [root for root in (*batch, *self._roots) if id(root[0]) in touched]
        places = torch.arange(self.examples)
        halves = places % 2 == self.look % 2, (places < self.examples // 2) == bool(self.look % 2)
        before = self._tried(roots, loss, gradient, None)
        for moved, way in itertools.product(halves, _WAYS):
            after = None if before is None else self._tried(roots, loss, gradient, (moved, way, self.look))
            if before is None or after is None:
                continue
            for what, ours, theirs in zip(("what the model sees", "the gradients"), before, after, strict=True):
                for one, other in zip(ours, theirs, strict=True):
                    axis = None if one is None or other is None else self._axis(one)
                    if axis is not None and differ(one, other, axis, ~moved):
                        raise ValueError(_MIXED.format(what=what))

    def _tried(
        self, roots: list[Root], loss: Tensor, gradient: Tensor | None, other: Any
    ) -> tuple[list[Any], list[Any]] | None:
        """Return what `_play` does, None where a function cannot be called again, or not with these."""
        try:
            return self._play(roots, loss, gradient, other)
        except Exception:
            return None

    def _axis(self, tensor: Tensor) -> int | None:
        """Return the axis of the examples, None where it is not known."""
        found = [axis for axis, length in enumerate(tensor.shape) if length == self.examples]
        return found[0] if len(found) == 1 else None

    def _play(
        self, roots: list[Root], loss: Tensor, gradient: Tensor | None, other: Any
    ) -> tuple[list[Any], list[Any]]:
        """Return what the model was called with, and the gradients in its outputs, with other examples or these."""
        now: dict[int, Any] = {}
        leaves: list[Tensor] = []
        with _played():
            for root, kept, axis, output in roots:
                value = kept.clone() if other is None or axis is None else _replaced(kept, axis, output, *other)
                if output:
                    leaves.append(value.requires_grad_())
                    value = value * 1  # what follows may work in place
                now[id(root)] = value
            for func, args, kwargs, made, fast in self._entries:
                _again(func, args, kwargs, made, fast, now)
            entered = [now.get(id(tensor)) for tensor in self._entered]
            end, along = now[id(loss)], now.get(id(gradient), gradient)
            if isinstance(along, Tensor):
                along = along.as_subclass(Tensor)
            found = torch.autograd.grad(end, leaves, along, allow_unused=True) if leaves else ()
        return entered, list(found)


class Followed(Tensor):
    """A tensor of a batch, or what was computed from it, that writes down what is done with it."""

    tape: Tape | None = None

    @property
    def open(self) -> bool:
        """Whether what is done with this is written down."""
        return self.tape is not None and self.tape.open

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self.as_subclass(Tensor).__reduce_ex__(protocol)  # type: ignore[no-untyped-call]

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        keep_before(func, args, kwargs)
        with torch._C.DisableTorchFunctionSubclass():
            made = func(*args, **kwargs)
        if torch.compiler.is_compiling():  # a compiled model; nothing is written down while it is traced
            return made
        return written(func, args, kwargs, made, lambda value: value)


def keep_before(func: Any, args: Any, kwargs: Any) -> None:
    """Keep what is in the batch where a function may write to it."""
    name = getattr(func, "__name__", "")
    if (
        (name.endswith("_") and (not name.endswith("__") or name.startswith(("__i", "__set"))))
        or (kwargs and (kwargs.get("inplace") or "out" in kwargs))
        or isinstance(func, _CUSTOM)
    ):
        tape = tape_of((*args, *kwargs.values()))
        if tape is not None:
            tape.keep()


def written(func: Any, args: Any, kwargs: Any, made: Any, known: Callable[[Tensor], Tensor]) -> Any:
    """Return what a function made, with its tensors followed, and write the call down.

    ``known`` may make some of the tensors something else. Where nobody writes, other tensors stay as they are.
    """
    if torch.compiler.is_compiling():  # of a compiled model nothing is written down
        return known(made) if isinstance(made, Tensor) else made
    tape = None if func in _CONSTANTS else tape_of((*args, *kwargs.values()))

    def marked(leaf: Any) -> Any:
        if not isinstance(leaf, Tensor) or isinstance(leaf, Followed):
            return leaf
        found = known(leaf)
        if tape is None:
            return found
        found = found if isinstance(found, Followed) else found.as_subclass(Followed)
        found.tape = tape
        return found

    if isinstance(made, Tensor):
        made = marked(made)
    elif isinstance(made, tuple | list):
        made = tree_map(marked, made)
    if tape is not None and (func in _KEPT or any(isinstance(leaf, Tensor) for leaf in tree_leaves(made))):
        tape.write(func, args, kwargs, made)
    return made


def tape_of(given: Any) -> Tape | None:
    """Return the tape of what entered a function; a list or a dict is looked into."""
    for value in given:
        if isinstance(value, Followed):
            if value.open:
                return value.tape
        elif isinstance(value, list | tuple | dict):
            found = tape_of(value.values() if isinstance(value, dict) else value)
            if found is not None:
                return found
    return None


def plain(tensor: Any) -> Any:
    """Return a tensor that nobody follows any more; its tape learns that the model was called with it."""
    if not isinstance(tensor, Followed):
        return tensor
    if tensor.tape is not None and tensor.tape.open:
        tensor.tape.enter(tensor)
    return tensor.as_subclass(Tensor)


@contextmanager
def _played() -> Iterator[None]:
    """Let nothing be written down, and chance be the same each time."""
    with torch.random.fork_rng(devices=[]), torch.enable_grad(), torch._C.DisableTorchFunctionSubclass():
        torch.manual_seed(0)
        yield


def _again(func: Any, args: Any, kwargs: Any, made: Any, fast: torch.dtype | None, now: dict[int, Any]) -> None:
    """Call a function again with what its arguments are now."""
    first = args[0] if args else None
    name = getattr(func, "__name__", "")
    in_place = func in _IN_PLACE or (name.endswith("_") and not name.endswith("__"))
    if in_place and isinstance(first, Tensor) and id(first) not in now:
        now[id(first)] = first.detach().as_subclass(Tensor).clone()

    def current(leaf: Any) -> Any:
        return now.get(id(leaf), leaf) if isinstance(leaf, Tensor) else leaf

    given, named = tree_map(current, (args, kwargs))
    with torch.autocast("cpu", fast or torch.bfloat16, enabled=fast is not None):
        result = func(*given, **named)
    for old, new in zip(tree_leaves(made), tree_leaves(result), strict=True):
        if isinstance(old, Tensor) and isinstance(new, Tensor):
            now[id(old)] = new


def _replaced(kept: Tensor, axis: int, output: bool, moved: Tensor, way: str, look: int) -> Tensor:
    """Return a tensor in which some examples are replaced: each by another, or all by the largest or the smallest.

    Outputs change in size too, so that a limit that examples decide together is crossed.
    """
    rows = kept.movedim(axis, 0).clone()
    source = torch.Generator().manual_seed(look)
    count = int(moved.sum())
    if way == "others":
        places, scale = (
            torch.randint(len(rows), (count,), generator=source),
            0.5 + 0.4 * torch.rand(count, generator=source),
        )
    else:
        means = _rows(kept, axis).mean(1).nan_to_num()
        places = (means.argmax() if way == "largest" else means.argmin()).expand(count)
        scale = torch.full((count,), 8.0)
    found = rows[places]
    rows[moved] = found * scale.to(found).reshape(-1, *[1] * (found.ndim - 1)) if output else found
    return rows.movedim(0, axis)


def _rows(tensor: Tensor, axis: int) -> Tensor:
    """Return a row of numbers for each example."""
    values = torch.view_as_real(tensor.detach()) if tensor.is_complex() else tensor.detach()
    return values.movedim(axis, 0).reshape(tensor.shape[axis], -1).double()


def differ(one: Tensor, other: Tensor, axis: int, kept: Tensor) -> bool:
    """Tell whether the rows of some examples are not the same; what is not finite is not compared."""
    if one.shape != other.shape:
        return False
    first, second = (_rows(tensor, axis)[kept] for tensor in (one, other))
    finite = first.isfinite() & second.isfinite()
    apart = torch.where(finite, (first - second).abs(), 0.0)
    size = torch.where(finite, torch.maximum(first.abs(), second.abs()), 0.0)
    if not apart.numel():
        return False
    return bool((apart.amax(1) > _NEAR * size.amax(1)).any())
