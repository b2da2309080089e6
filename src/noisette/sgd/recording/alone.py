"""Batches whose examples take different ways through a model: each example is computed among copies of itself.

An expert that a gate sends some of the examples to sees rows of which nobody knows whose they are. In most models this
shows in the three examples that `make_private` looks at, and the module that divides them is taken whole, in every
step. In others it shows in a step that one person's data caused. That step must not stop, and must not lose what the
others add: leaving out the batch would change the sum by all of them. So the model is called again, once for each
example, with as many copies of this example as the batch has, and the same chance. Of everything that is recorded only
the example's own row is kept. If a layer sees another number of rows even so, the example adds nothing.

What is proved: let phi(x, i, n, r) be what is recorded of row i in a batch of n copies of x, with the chance r. Under
the supposition of `clipping`, that what an example brings is a function of itself and the parameters (and of n, of its
place and of chance, as for any batch), phi(x, i, n, r) is what x brings to every batch in which layers see all rows,
since a batch of copies is one. Here it is what x brings to the others too. So the sum over a batch with a person whose
data divide it and the sum without that person have the same terms but for that person's own, which is clipped to the
bound. The joint law of chance is the same, drawn once for a call: a mask of dropout differs from row to row, and a
layer that is left out is left out for all. Shapes are the same, so numbers are, to the bit, where a kernel computes
rows alike; gradients are formed from the kept rows by the same rules as for a batch (`layers`).

Nobody is told. The step takes as many calls as the batch has examples, and the time that a step takes is not covered by
the guarantee. An exception of the model's own, on a value that it does not take, still stops the loop.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import MethodType
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten

from noisette.sgd.recording.layers import Gradients, Part, Use

if TYPE_CHECKING:
    from noisette.sgd.recording.gradients import Recorder


class Uneven(BaseException):
    """A layer was called with rows for some of the examples. No `except Exception` of a model's own catches it."""


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


class Chance:
    """The state of the generators that a model may draw from; with ``all_kinds`` those beside torch too, slowly."""

    def __init__(self, *, all_kinds: bool) -> None:
        self._torch = torch.get_rng_state()
        self._devices = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []
        self._others = (random.getstate(), np.random.get_state()) if all_kinds else None  # noqa: NPY002

    def restore(self) -> None:
        """Let chance be as it was."""
        torch.set_rng_state(self._torch)
        if self._devices:
            torch.cuda.set_rng_state_all(self._devices)
        if self._others is not None:
            random.setstate(self._others[0])
            np.random.set_state(self._others[1])  # noqa: NPY002


class GuardedForward:
    """A model's forward pass, and what is done where its layers see some of the examples; in a copy its plain one."""

    def __init__(self, recorder: Recorder, model: nn.Module) -> None:
        self._recorder, self._model = recorder, model
        self.before = model.__dict__.get("forward")

    def __call__(self, *given: Any, **named: Any) -> Any:
        recorder, model = self._recorder, self._model
        if (
            torch.compiler.is_compiling()
            or recorder.plain
            or recorder.watching
            or not (model.training and torch.is_grad_enabled())
        ):
            return self._once(given, named)
        # a model that reads no values is divided by no one's data
        chance, calls = Chance(all_kinds=recorder.looks.divides), dict(recorder.calls)
        recorder.watching = True
        try:
            return self._once(given, named)
        except Uneven:
            pass
        finally:
            recorder.watching = False
        recorder.calls = calls
        return _Alone(recorder, self._once, given, named, chance).answer()

    def _once(self, given: tuple[Any, ...], named: dict[str, Any]) -> Any:
        if self.before is not None:
            return self.before(*given, **named)
        return type(self._model).forward(self._model, *given, **named)

    def remove(self) -> None:
        """Give the model its own forward pass back."""
        if self._model.__dict__.get("forward") is self:
            if self.before is None:
                del self._model.__dict__["forward"]
            else:
                self._model.__dict__["forward"] = self.before

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        if self.before is not None:
            return copy.deepcopy(self.before, memo)
        return _plain(memo.get(id(self._model), self._model))

    def __reduce__(self) -> Any:
        return (_as_it_is, (self.before,)) if self.before is not None else (_plain, (self._model,))


def _plain(model: nn.Module) -> MethodType:
    return MethodType(type(model).forward, model)


def _as_it_is(forward: Any) -> Any:
    return forward


class _Alone:
    """One call of a model in which every example is computed among copies of itself, forward and back."""

    def __init__(
        self,
        recorder: Recorder,
        once: Callable[[tuple[Any, ...], dict[str, Any]], Any],
        given: tuple[Any, ...],
        named: dict[str, Any],
        chance: Chance,
    ) -> None:
        self._recorder, self._once, self._chance = recorder, once, chance
        self._leaves, self._form = tree_flatten((given, named))
        self._size = recorder.size or 0
        self._rows = recorder.following(self._leaves, self._form, self._size)
        self._moved = [place for place in self._rows if self._leaves[place].requires_grad]
        self._fast = [(kind, torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)) for kind in _KINDS]
        self._number = recorder.turn()

    def answer(self) -> Any:
        """Return what the model answers, a row for each example."""
        rows: list[list[Any]] = []
        form: Any = None
        with self._recorder.aside(self._size):
            for place in range(self._size):
                found, form = tree_flatten(self._call(place)[0])
                rows.append([leaf.detach() if isinstance(leaf, Tensor) else leaf for leaf in found])
                rows[-1] = [leaf[place] if self._is_rows(leaf) else leaf for leaf in rows[-1]]
                own = [self._is_rows(leaf) for leaf in found]
        last = rows[-1]
        joined = {at: torch.stack([row[at] for row in rows]) for at in range(len(last)) if own[at]}
        self._own = list(joined)
        answers: tuple[Tensor, ...] = _Joined.apply(  # type: ignore[no-untyped-call]
            self, self._recorder.anchor, tuple(joined.values()), *(self._leaves[place] for place in self._moved)
        )
        for at, tensor in zip(self._own, answers, strict=True):
            last[at] = tensor
        self._recorder.divided(self._size)
        return tree_unflatten(last, form)

    def back(self, gradients: tuple[Tensor | None, ...]) -> list[Tensor]:
        """Record what each example brings, and return the gradients of what the model was called with."""
        recorder, now = self._recorder, Chance(all_kinds=True)
        made = [torch.zeros_like(self._leaves[place]) for place in self._moved]
        owns = recorder.divided(self._size)
        recorder.passed(self._number)
        try:
            for place, own in enumerate(owns):
                with recorder.aside(self._size), torch.enable_grad():
                    answer, entered = self._call(place)
                    found = tree_leaves(answer)
                    pairs = [
                        (found[at], _row(found[at], gradient, place))
                        for at, gradient in zip(self._own, gradients, strict=True)
                        if gradient is not None and found[at].requires_grad
                    ]
                    if pairs:
                        ends, starts = zip(*pairs, strict=True)
                        _, *back = torch.autograd.grad(ends, (recorder.anchor, *entered), starts, allow_unused=True)
                        for to, gradient in zip(made, back, strict=True):
                            if gradient is not None:
                                to[place] = gradient.sum(0)
                    recorder.keep(own, place, self._size)
        finally:
            now.restore()
        return made

    def _is_rows(self, leaf: Any) -> bool:
        return isinstance(leaf, Tensor) and leaf.ndim > 0 and len(leaf) == self._size

    def _call(self, place: int) -> tuple[Any, list[Tensor]]:
        """Call the model with copies of one example, and return the answer and the copies that have a gradient."""
        leaves = list(self._leaves)
        for row in self._rows:
            leaf = self._leaves[row].detach()
            leaves[row] = leaf[place : place + 1].expand_as(leaf).clone(memory_format=torch.contiguous_format)
        entered = [leaves[row].requires_grad_() for row in self._moved]
        given, named = tree_unflatten(leaves, self._form)
        self._chance.restore()
        with _fast(self._fast):
            return self._once(given, named), entered


_KINDS = ("cpu", "cuda")


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


def _row(answer: Tensor, gradient: Tensor, place: int) -> Tensor:
    """Return the gradient of one row of an answer, and zeros for the others."""
    made = torch.zeros_like(answer)
    made[place] = gradient[place]
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
