"""Per-example gradients of a model, verified once: against a loop over examples, before anything is trained.

A copy of the model, in double precision, sees three examples with the shapes of the data (numbers with a fraction are
drawn afresh, so that nothing depends on anyone's values). What is recorded must

* have as many rows in every layer as there are examples;
* add up to the gradient that plain backpropagation gives, dropout included;
* be the gradient of each example in a batch of its own;
* stay as it is for one example when another is exchanged, dropout included.

Buffers must not depend on what the model sees: they are saved with the weights, and no noise is added to them.

The loss is a sum over all outputs, so that no axis of the output is taken for that of the examples.
"""

from __future__ import annotations

import copy
import inspect
import random
import warnings
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields, is_dataclass
from functools import lru_cache, partial
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.data import default_collate

from noisette.sgd.recording._heap import beside_heap, give_back
from noisette.sgd.recording.alone import copied, kept
from noisette.sgd.recording.gradients import Looks, NotApart, Recorder, whole_numbers
from noisette.sgd.recording.layers import Part
from noisette.sgd.recording.models import calling_parent
from noisette.sgd.recording.tape import differ

_EXAMPLES = 3
_LARGE = 1 << 18  # numbers of a parameter whose gradients are felt in memory
_MIXED = (
    "a layer mixes the examples of a batch, or takes another axis for theirs, so no gradient is one example's own. "
    "Take that layer out, or let it work on each example, with examples along the first axis."
)
_KEPT = (
    "The {kind} {name!r} changes with the data that the model sees, and no noise protects it. Leave it out, or compute "
    "it from public data before and keep it as it is."
)
Found = TypeVar("Found")
Call = Callable[[Any], tuple[tuple[Any, ...], dict[str, Any]]]
Shared = dict[str, set[int]]  # arguments that all examples have in common, by layer


class NotSeparate(ValueError):
    """What was recorded in a layer is not the gradient of single examples."""

    def __init__(self, layer: str, message: str) -> None:
        super().__init__(message)
        self.layer = layer


class Divided(NotSeparate):
    """A layer saw rows for some of the examples, or for more."""


def check_gradients(model: nn.Module, loader: Any) -> tuple[set[str], Shared, list[Tensor], Looks]:
    """Refuse a model whose recorded gradients are not those of single examples; the model stays as it is.

    Return the modules whose examples are to be computed apart, found by trying: where a layer fails, the nearest module
    above it is taken whole, up to the model itself. A model that takes something else than the first entries of a
    batch, or the whole batch, is looked at when it is called in training: `check_call`. Return the whole numbers of an
    example, too, which stand in for a batch without one; and what was seen of the calls.
    """
    whole: set[str] = set()
    shared: Shared = {}
    looks = Looks()
    with _own_randomness(), beside_heap():
        items = [_drawn(loader.example(place % loader.size), place) for place in range(_EXAMPLES)]
        _check_collated(loader, items)
        batches = [loader.collate(items), *(loader.collate([item]) for item in items)]
        alike = loader.collate([items[0]] * _EXAMPLES)
        other = loader.collate([*items[:-1], _drawn(loader.example(_EXAMPLES % loader.size), _EXAMPLES)])
        if [t.shape for t in _tensors(other)] != [t.shape for t in _tensors(batches[0])]:  # dropout would differ
            other = loader.collate([*items[:-1], _drawn(loader.example((_EXAMPLES - 1) % loader.size), _EXAMPLES)])
        called = _call(model, batches[0])
        if called is None or not _runs(model, called, batches[0]):
            return whole, shared, whole_numbers(batches[1]), looks
        again = called(loader.collate(items))
        if not all(map(_same, _tensors(called(batches[0])), _tensors(again))):
            raise ValueError(
                "The loader's collate_fn draws at random, so what it makes of an example cannot be compared with what "
                "it makes of that example by itself. Draw in the data set, where an example is fetched (__getitem__)."
            )
        first: NotApart | NotSeparate | None = None
        while True:
            try:
                twin = copy.deepcopy(model)
            except RuntimeError as error:
                raise ValueError(
                    "The model cannot be copied, so that its gradients cannot be verified: a tensor of it is not a "
                    "parameter. Replace what computes it, such as an old weight_norm, by "
                    f"torch.nn.utils.parametrizations.weight_norm. ({error})"
                ) from error
            shared.clear()
            looks = Looks()
            try:
                _check_copy(model, twin, called, batches, other, alike, whole, shared, looks)
                del twin
                return whole, shared, whole_numbers(batches[1]), looks
            except (NotApart, NotSeparate) as error:
                first = first or error
                wider: str | None = error.layer
                while wider is not None and wider in whole:
                    wider = calling_parent(model, wider)
                if wider is None:
                    raise first from None
                whole.add(wider)


def _check_collated(loader: Any, items: list[Any]) -> None:
    """Refuse a function that lays examples together if what it makes of some changes with another one.

    The last example is exchanged for others, with the same chance. What differs in two calls for the same examples is
    not compared, nor where shapes differ, as chance is then another one.
    """
    if loader.collate is default_collate:
        return

    def laid(last: Any) -> list[Tensor]:
        torch.manual_seed(0)
        random.seed(0)
        np.random.seed(0)  # noqa: NPY002  # a function of the user's own may draw from it
        return [tensor for tensor in _tensors(loader.collate([*items[:-1], last])) if tensor.ndim]

    others = [_drawn(loader.example(place % loader.size), place) for place in range(_EXAMPLES, 2 * _EXAMPLES)]
    usual, again = laid(items[-1]), laid(items[-1])
    for made in map(laid, (*items[:-1], *others)):
        if [tensor.shape for tensor in made] != [tensor.shape for tensor in usual]:
            continue
        for one, same, other in zip(usual, again, made, strict=True):
            if len(one) == _EXAMPLES and _same(one, same) and not _same(one[:-1], other[:-1]):
                raise ValueError(
                    "The loader's collate_fn makes something else of an example when another one of its batch is "
                    "exchanged, so no gradient is one example's own. Leave out what mixes them, such as mixup, ranks, "
                    "or weights by how many examples of a class are in the batch."
                )


def check_call(
    model: nn.Module,
    given: tuple[Any, ...],
    named: dict[str, Any],
    examples: int,
    whole: set[str],
    shared: Shared,
    looks: Looks,
) -> bool:
    """Refuse a model whose recorded gradients, called as it is in training, are not those of single examples.

    Tell whether it could be looked at: there was an example, along the first axis of an argument. A model that divides
    these examples among its layers is not refused, since others may not be divided: gradients are then compared with
    all of it taken whole, and `alone` does the rest.
    """
    batch = [list(given), named]
    if not examples or not any(len(tensor) == examples for tensor in _tensors(batch) if tensor.ndim):
        return False
    with _own_randomness(), beside_heap(), torch.no_grad():
        rows = _taken_rows(model, batch, examples)
        if not rows:
            return False
        rows = [rows[place % len(rows)] for place in range(_EXAMPLES + 1)]

        def chosen(places: list[int], salts: list[int]) -> Any:
            return _chosen(batch, examples, [rows[place] for place in places], salts, _drawn)

        every = list(range(_EXAMPLES))
        batches = [chosen(every, every), *(chosen([place], [place]) for place in every)]
        exchanged = [*every[:-1], _EXAMPLES]
        other, alike = chosen(exchanged, exchanged), chosen([0] * _EXAMPLES, [0] * _EXAMPLES)
        try:
            twin = _twin(model)
        except RuntimeError:
            return True  # it keeps something of this call; what make_private looked at was as it should be
        found, seen = copy.deepcopy(shared), Looks()
        rest = lambda batch: (tuple(batch[0]), batch[1]), batches, other, alike
        try:
            _check_copy(model, twin, *rest, whole, found, seen)
            shared.update(found)
        except (Divided, NotApart):  # one row of three is taken for a row for all, and the model cannot go on
            _check_copy(model, _twin(model), *rest, {""}, {}, Looks())
            seen = Looks(known=True, reads=True)
            with suppress(Divided, NotApart):  # which layers see one row for all, if copies of an example go one way
                _recorded(_twin(model).train(), rest[0], alike, torch.get_rng_state(), whole, found, looks=seen)
        looks.join(seen)
        del twin, batches, other, alike, rest
    return True


def _taken_rows(model: nn.Module, batch: Any, examples: int) -> list[int]:
    """Return the places of the first examples that the model takes: one that it refuses must not be noticed.

    Where it takes none, its own call tells what is wrong, if anything is.
    """
    own = next((parameter.dtype for parameter in model.parameters() if parameter.is_floating_point()), torch.float32)

    def takes(rows: list[int]) -> bool:
        given, named = _converted(_chosen(batch, examples, rows, rows, _drawn), own)
        state = torch.get_rng_state()
        try:
            _twin(model).train()(*given, **named)
        except Exception:
            return False
        finally:
            torch.set_rng_state(state)
        return True

    first = [*range(min(examples, _EXAMPLES + 1))]
    if takes((first * _EXAMPLES)[: max(len(first), _EXAMPLES)]):
        return first
    found: list[int] = []
    for place in range(examples):
        if len(found) <= _EXAMPLES and takes([place] * _EXAMPLES):
            found.append(place)
    return found


def check_batch(
    model: nn.Module,
    given: tuple[Any, ...],
    named: dict[str, Any],
    examples: int,
    whole: Collection[str],
    looks: Looks,
    *,
    wide: bool,
) -> None:
    """Refuse a model whose calls with as many examples as in training let them see each other, or keep them.

    Half of the examples are exchanged, and no layer may see or return anything else for the other half: in the same
    shapes the same numbers come out, to the bit. Numbers with a fraction are drawn, as in `check_call`; with ``wide``
    from -4 to 4, and from 0 to 8 for those that are exchanged. A model that mixes large batches, or begins to mix
    later, is found by this where it is called from time to time. What lies inside of a module that is taken ``whole``
    sees the examples one by one.
    """
    batch = [list(given), named]
    if examples < 2 or not any(len(tensor) == examples for tensor in _tensors(batch) if tensor.ndim):
        return
    with _own_randomness(), beside_heap(), torch.no_grad():
        room: dict[int, Tensor] = {}
        try:
            first, second = (
                _seen(model, examples, whole, looks, *_exchanged(batch, examples, room, wide=wide, other=other))
                for other in (False, True)
            )
        except Exception:
            return  # the call itself tells what is wrong, if anything is
        finally:
            room.clear()
    kept = torch.arange(examples) % 2 == 1
    for place in first.rows.keys() & second.rows.keys():  # an axis is that of the examples if along it nothing changed
        if all(differ(*pair, 0, kept) for pair in zip(first.rows[place], second.rows[place], strict=True)):
            raise ValueError(
                f"In a batch of {examples}, what a layer saw of one example changed with the other examples: {_MIXED}"
            )
    for name in {**first.held, **second.held}:
        if not _same(first.held.get(name), second.held.get(name)):
            kind = "parameter" if name in dict(model.named_parameters()) else "buffer"
            raise ValueError(_KEPT.format(kind=kind, name=name))


@dataclass(frozen=True)
class _Seen:
    """What entered and left the layers of a model, as a few numbers for each example, and what the call changed.

    A tensor has rows for each way in which it may hold the examples: along an axis, or several rows each in front.
    """

    rows: dict[tuple[Any, ...], list[Tensor]]  # by layer, call, tensor and shape
    held: dict[str, Tensor]


def _exchanged(batch: Any, examples: int, room: dict[int, Tensor], *, wide: bool, other: bool) -> Any:
    """Return the arguments of a call with numbers that are drawn, and with ``other`` every second example exchanged.

    The numbers are in memory that ``room`` keeps: those of an earlier call are gone.
    """
    if isinstance(batch, dict):
        return {key: _exchanged(value, examples, room, wide=wide, other=other) for key, value in batch.items()}
    if type(batch) in (list, tuple):
        return [_exchanged(value, examples, room, wide=wide, other=other) for value in batch]
    if not isinstance(batch, Tensor) or not batch.ndim or len(batch) != examples:
        return batch
    if not batch.is_floating_point():
        made = batch.clone()
        if other:
            made[0::2] = batch[[(place + 1) % examples for place in range(0, examples, 2)]]
        return made
    source = torch.Generator().manual_seed(0)
    low, high = (-4.0, 4.0) if wide else (0.1, 0.9)
    kind = torch.float64 if batch.dtype == torch.float64 else torch.float32
    if id(batch) not in room:
        room[id(batch)] = torch.empty(batch.shape, dtype=kind)
    made = room[id(batch)].uniform_(low, high, generator=source)
    if other:
        made[0::2].uniform_(*((0.0, 8.0) if wide else (low, high)), generator=source)
    return made.to(batch)


@lru_cache(maxsize=64)
def _ways(numbers: int, kind: torch.dtype) -> Tensor:
    """Return two directions along which rows of this many numbers are looked at."""
    return torch.sin(torch.arange(2 * numbers)).to(kind).reshape(-1, 2)


def _seen(
    model: nn.Module, examples: int, whole: Collection[str], looks: Looks, given: list[Any], named: dict[str, Any]
) -> _Seen:
    """Call a copy of a model in training, and return what it saw, with what it holds that the model does not."""
    made: dict[tuple[Any, ...], list[Tensor]] = {}
    calls: Counter[nn.Module] = Counter()
    twin = copied(model)

    def keep(layer: nn.Module, given: Any, named: Any, out: Any) -> None:
        calls[layer] += 1
        for place, tensor in enumerate(_tensors([given, named, out])):
            axes = [axis for axis, length in enumerate(tensor.shape) if length == examples]
            if len(axes) == 1:
                ways = [tensor.detach().movedim(axes[0], 0).reshape(examples, -1)]
                if axes[0] and len(tensor) and len(tensor) % examples == 0:  # as windows of images, or tokens, lie
                    ways.append(tensor.detach().reshape(examples, -1))
                ways = [rows if rows.dtype == torch.float64 else rows.float() for rows in ways]
                made[names[layer], calls[layer], place, tensor.shape] = [
                    rows @ _ways(rows.shape[1], rows.dtype).to(rows.device) for rows in ways
                ]

    names = {layer: name for name, layer in twin.named_modules()}
    twin.train()
    twin.requires_grad_(False)  # nothing is kept for a backward pass
    handles = [
        layer.register_forward_hook(keep, with_kwargs=True)
        for name, layer in twin.named_modules()
        if not any(name != top and (not top or name.startswith(f"{top}.")) for top in whole)
    ]
    torch.manual_seed(0)
    random.seed(0)
    np.random.seed(0)  # noqa: NPY002  # a model may draw from it
    try:
        with torch.enable_grad(), warnings.catch_warnings(), _followed(looks):
            warnings.simplefilter("ignore")
            twin(*given, **named)
    finally:  # what holds itself would keep the copy's memory until Python collects garbage, some looks later
        for handle in handles:
            handle.remove()
        for layer in twin.modules():
            layer.__dict__.pop("forward", None)
    before = dict((*model.named_buffers(), *model.named_parameters()))
    held = {name: value.detach() for name, value in (*twin.named_buffers(), *twin.named_parameters())}
    moved = {name: value.clone() for name, value in held.items() if not _same(value, before.get(name))}
    return _Seen(made, moved)  # and nothing of it lies where the next call's numbers are drawn


def _check_copy(
    model: nn.Module,
    twin: nn.Module,
    called: Call,
    batches: list[Any],
    other: Any,
    alike: Any,
    whole: set[str],
    shared: Shared,
    looks: Looks,
) -> None:
    """Check a copy of the model, in double precision where it can compute in that."""
    _check_kept(twin, called, batches[0], alike)
    exact = True
    try:
        with torch.autocast("cpu", enabled=False):  # its rounding would be taken for differences
            _compare(twin.double(), called, batches, other, torch.float64, whole, shared, looks)
    except (RuntimeError, NotImplementedError):
        exact = False  # a model may insist on the precision that it has
    if not exact:
        own = next(parameter.dtype for parameter in model.parameters() if parameter.is_floating_point())
        _compare(_twin(model), called, batches, other, own, whole, shared, looks)
    _follow_values(_twin(model), called, batches[0], looks)


def _twin(model: nn.Module) -> nn.Module:
    """Return a plain copy of a model, which does not hold itself: its memory is free when nobody holds it."""
    twin = copied(model)
    for layer in twin.modules():
        own = layer.__dict__.get("forward")
        if getattr(own, "__self__", None) is layer and getattr(own, "__func__", None) is type(layer).forward:
            del layer.__dict__["forward"]
    return twin


def _runs(model: nn.Module, called: Call, batch: Any) -> bool:
    """Tell whether the model takes a batch in this way; the user's loop may well call it in another."""
    state = torch.get_rng_state()
    own = next((parameter.dtype for parameter in model.parameters() if parameter.is_floating_point()), torch.float32)
    try:
        given, named = called(_converted(batch, own))
        with torch.no_grad():
            copied(model)(*given, **named)  # what cannot be copied with its gradients is refused, and told
    except (TypeError, ValueError, RuntimeError, LookupError, AttributeError):
        return False
    finally:
        torch.set_rng_state(state)
    return True


def _chosen(batch: Any, examples: int, rows: list[int], salts: list[int], drawn: Callable[[Any, int], Any]) -> Any:
    """Return some examples of the arguments of a call; numbers with a fraction are drawn."""
    if isinstance(batch, Tensor):
        if not batch.ndim or len(batch) != examples:
            return batch
        if not batch.is_floating_point():
            return batch[rows]
        return torch.stack([drawn(batch[row].detach(), salt) for row, salt in zip(rows, salts, strict=True)])
    if isinstance(batch, dict):
        return {key: _chosen(value, examples, rows, salts, drawn) for key, value in batch.items()}
    if type(batch) in (list, tuple):
        return [_chosen(value, examples, rows, salts, drawn) for value in batch]
    return batch


def _tensors(batch: Any) -> Iterator[Tensor]:
    """Yield the tensors among the arguments of a call."""
    if isinstance(batch, Tensor):
        yield batch
    elif isinstance(batch, dict | list | tuple):
        for entry in batch.values() if isinstance(batch, dict) else batch:
            yield from _tensors(entry)


def _compare(
    model: nn.Module,
    called: Call,
    batches: list[Any],
    other: Any,
    precision: torch.dtype,
    whole: set[str],
    shared: Shared,
    looks: Looks,
) -> None:
    """Compare recorded gradients with plain ones, and those of single examples with those of batches of one."""
    near = 1e-6 if precision == torch.float64 else 1e-2
    model.train()
    give_back()
    batches, other = [_converted(batch, precision) for batch in batches], _converted(other, precision)
    state = torch.get_rng_state()
    sizes = _plain(model, called, batches[0], state, lambda _, gradient: _largest(gradient))
    _recorded(model, called, batches[1], state, whole, shared, 1)  # tells which arguments do not follow the examples
    recorded = _recorded(model, called, batches[0], state, whole, shared, looks=looks)
    # a gradient that is zero but for rounding, as that of a bias before a softmax, is small beside the others
    small = near**2 * max(sizes.values())

    def seen(name: str, gradient: Tensor) -> bool:
        return _alike(recorded.total(name), gradient, near, small)

    for name, right in _plain(model, called, batches[0], state, seen).items():
        if not right:
            raise NotSeparate(
                name.rpartition(".")[0],
                f"The recorded gradients of {name!r} do not add up to its gradient: it is used outside of its layer, "
                "as in functional.linear(x, layer.weight), or hooks and parametrisations with a state, such as "
                "spectral_norm, change it. Call the layer itself, take weight_norm, or leave it out of training by "
                "requires_grad_(False).",
            )
    give_back()
    exchanged = _recorded(model, called, other, state, whole, shared)
    before = recorded

    def unmoved(name: str, place: int) -> bool:
        same = _alike(exchanged.total(name, place), before.total(name, place), near, small)
        _let_go(before.parameters[name])
        return same

    still = all(unmoved(name, place) for name in sizes for place in range(_EXAMPLES - 1))
    for layer in model.modules():
        if isinstance(layer, nn.modules.dropout._DropoutNd):
            layer.eval()
    recorded = _recorded(model, called, batches[0], state, whole, shared)
    apart = True
    for place, batch in enumerate(batches[1:]):

        def alone(name: str, gradient: Tensor, place: int = place) -> bool:
            return _alike(recorded.total(name, place), gradient, near, small)

        found = _plain(model, called, batch, state, alone)
        if not torch.equal(torch.get_rng_state(), state):
            apart = True  # chance beyond nn.Dropout: one example's share of it is not that of a batch of one
            break
        apart = apart and all(found.values())
    if not (still and apart):
        raise ValueError(
            f"One example's gradient changed with the other examples of its batch: {_MIXED} A model that makes its "
            "loss itself, of labels=..., is called without them, and the loss is taken of what it returns."
        )


def _check_kept(model: nn.Module, called: Call, *batches: Any) -> None:
    """Refuse a model whose calls keep something of the data where no noise protects it.

    That is a buffer, or a parameter that is not trained. A trained one that a call changes is found only where some
    gradient depends on its value.
    """

    def held() -> dict[str, Tensor]:
        frozen = {name: value for name, value in model.named_parameters() if not value.requires_grad}
        return {**dict(model.named_buffers()), **frozen}

    before = {name: value.detach().clone() for name, value in held().items()}
    if not before:
        return
    state, moved = torch.get_rng_state(), []
    own = next(parameter.dtype for parameter in model.parameters() if parameter.is_floating_point())
    model.train()
    for batch in batches:
        torch.set_rng_state(state)
        given, named = called(_converted(batch, own))
        model(*given, **named)
        now = {name: value.detach() for name, value in held().items()}
        moved.append({name: now[name].clone() for name in now if not _same(now[name], before.get(name))})
        with torch.no_grad():
            for name in moved[-1]:
                if name in before and now[name].shape == before[name].shape:
                    now[name].copy_(before[name])
    for name in {**moved[0], **moved[1]}:
        if not _same(*(one.get(name, before.get(name)) for one in moved)):
            kind = "parameter" if name in dict(model.named_parameters()) else "buffer"
            raise ValueError(_KEPT.format(kind=kind, name=name))


class _ValuesFollowed(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes whether something is computed whose shape or value in Python depends on values, or whose code is unknown.

    Where nothing is, a call does the same operations on all data of these shapes: the first one that differs would
    follow a value that was read, and up to there nothing differed.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.read = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.namespace not in ("aten", "prim", "prims") or _reads_values(func, args):
            self.read = True
        return func(*args, **(kwargs or {}))


def _reads_values(func: Any, args: Any) -> bool:
    """Tell whether the shape or the value in Python of what a function returns depends on values."""
    if func.overloadpacket is torch.ops.aten.index:
        places = [place for place in args[1] if place is not None]
        return any(place.dtype in (torch.bool, torch.uint8) for place in places)
    return torch.Tag.data_dependent_output in func.tags or torch.Tag.dynamic_output_shape in func.tags


class _MemoryFollowed(TorchFunctionMode):
    """Notes whether values leave torch, as arrays or lists."""

    def __init__(self) -> None:
        super().__init__()
        self.read = False

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if getattr(func, "__name__", "") in _LEAVING:
            self.read = True
        return func(*args, **(kwargs or {}))


_LEAVING = {"numpy", "tolist", "__array__", "__dlpack__", "data_ptr", "untyped_storage", "storage", "__reduce_ex__"}


@contextmanager
def _followed(looks: Looks) -> Iterator[None]:
    """Note whether what is called meanwhile reads values."""
    with _ValuesFollowed() as values, _MemoryFollowed() as memory:
        yield
    looks.known, looks.reads = True, looks.reads or values.read or memory.read


def _follow_values(twin: nn.Module, called: Call, batch: Any, looks: Looks) -> None:
    """Call a copy of the model, and note whether it reads values."""
    own = next((parameter.dtype for parameter in twin.parameters() if parameter.is_floating_point()), torch.float32)
    given, named = called(_converted(batch, own))
    twin.train()
    with _followed(looks), torch.enable_grad():
        twin(*given, **named)


def _same(one: Tensor | None, other: Tensor | None) -> bool:
    """Tell whether two tensors hold the same, what is not a number included."""
    if one is None or other is None:
        return False
    return one.shape == other.shape and torch.equal(one.nan_to_num(), other.nan_to_num())


def _plain(
    model: nn.Module, called: Call, batch: Any, state: Tensor, see: Callable[[str, Tensor], Found]
) -> dict[str, Found]:
    """Return what is seen in the gradients of a batch by backpropagation, one after the other: none is kept."""
    torch.set_rng_state(state)
    model.zero_grad()
    trained = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    found: dict[str, Found] = {}

    def take(name: str, parameter: Tensor) -> None:
        gradient, parameter.grad = parameter.grad, None
        with torch.no_grad():
            found[name] = see(name, torch.zeros_like(parameter) if gradient is None else gradient)
        gradient = None
        _let_go(parameter)

    handles = [
        parameter.register_post_accumulate_grad_hook(partial(take, name))  # type: ignore[no-untyped-call]
        for name, parameter in trained.items()
    ]
    try:
        with torch.enable_grad():
            torch.autograd.backward(_loss(model, *called(batch)))
    finally:
        for handle in handles:
            handle.remove()
    for name, parameter in trained.items():
        if name not in found:
            take(name, parameter)
    return {name: found[name] for name in trained}


@dataclass(frozen=True)
class _Gradients:
    """Recorded gradients of single examples, of which one parameter's is formed at a time: models may be large."""

    parts: dict[str, Part]
    places: dict[str, tuple[str, str]]  # a parameter's layer and its name there
    parameters: dict[str, nn.Parameter]
    examples: int

    def total(self, name: str, example: int | None = None) -> Tensor:
        """Return the gradient of one example, or of all, as training sums it up."""
        layer, own = self.places[name]
        parameter = self.parameters[name]
        weights = torch.zeros(self.examples, dtype=torch.float64, device=parameter.device)
        weights[slice(None) if example is None else example] = 1.0
        with torch.no_grad():
            found = self.parts[layer].total(weights).get(own) if layer in self.parts else None
        return torch.zeros_like(parameter, requires_grad=False) if found is None else found


def _recorded(
    model: nn.Module,
    called: Call,
    batch: Any,
    state: Tensor,
    whole: set[str],
    shared: Shared,
    examples: int = _EXAMPLES,
    looks: Looks | None = None,
) -> _Gradients:
    """Return the recorded gradients of single examples, by the parameters' names."""
    torch.set_rng_state(state)
    recorder = Recorder(model, whole)
    recorder.shared = shared
    try:
        with torch.enable_grad():
            try:
                loss = _loss(model, *called(batch))
            except RuntimeError as error:
                if recorder.latest is None:
                    raise
                # the plain model can do it: what a layer returns has rows for all examples, and one was wanted
                raise NotApart(
                    recorder.latest,
                    f"After layer {recorder.latest!r} the model cannot go on: {error}. A layer that is called with one "
                    "row for all examples returns one for each: do not repeat it, or leave the layer out of training "
                    "by requires_grad_(False).",
                ) from error
            torch.autograd.backward(loss)
        rows = recorder.rows()
        wrong = next((name for name, counts in rows.items() if counts - {examples}), None)
        if wrong is not None:
            raise Divided(
                wrong,
                f"Layer {wrong!r} saw {sorted(rows[wrong])} rows for {examples} example{'s' * (examples > 1)}: "
                f"{_MIXED} Positions of one example belong on the axes behind: (examples, positions, features).",
            )
        if looks is not None:
            looks.join(recorder.looks)
        parts = recorder.parts(every=False) if any(rows.values()) else {}
        places, parameters = {}, {}
        for layer, own, parameter in recorder.parameters():
            name = f"{layer}.{own}" if layer else own
            places[name], parameters[name] = (layer, own), parameter
        return _Gradients(parts, places, parameters, examples)
    finally:
        recorder.remove()
        model.zero_grad()


def _loss(model: nn.Module, given: tuple[Any, ...], named: dict[str, Any]) -> Tensor:
    """Return a sum over all outputs in which no value cancels another by symmetry."""
    outputs = list(_floats(model(*given, **named)))
    outputs += [tensor for module, name in kept(model) for tensor in _floats(module.__dict__[name])]
    if not outputs:
        raise ValueError(
            "The model's output has no gradient, so there is nothing to train. Unfreeze some parameters first."
        )
    return torch.stack([torch.sin(tensor.as_subclass(Tensor) + 0.5).sum() for tensor in outputs]).sum()


def _floats(output: Any) -> Iterator[Tensor]:
    """Yield the tensors of an output that have a gradient."""
    if isinstance(output, Tensor):
        if output.requires_grad:
            yield output
    elif isinstance(output, dict):
        for entry in output.values():
            yield from _floats(entry)
    elif isinstance(output, list | tuple):
        for entry in output:
            yield from _floats(entry)
    elif is_dataclass(output) and not isinstance(output, type):
        for own in fields(output):
            yield from _floats(getattr(output, own.name))


def _call(model: nn.Module, batch: Any) -> Call | None:
    """Return how a batch becomes arguments of the model, None where that is not known."""
    signature = inspect.signature(type(model).forward)
    ways: list[Call] = [lambda batch: ((batch,), {})]
    if isinstance(batch, dict):  # without the labels, of which a model may make a loss over all examples
        ways.insert(0, lambda batch: ((), {key: value for key, value in batch.items() if key != "labels"}))
    elif isinstance(batch, list | tuple):
        ways = [partial(_first, count=count) for count in range(1, len(batch) + 1)]
    for way in ways:
        given, named = way(batch)
        try:
            signature.bind(model, *given, **named)
        except TypeError:
            continue
        return way if named or isinstance(given[0], Tensor | dict) else None
    return None


def _first(batch: Any, count: int) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return tuple(batch[:count]), {}


def _drawn(item: Any, place: int) -> Any:
    """Return an example of the same form; numbers with a fraction are drawn, from 0.1 to 0.9."""
    if isinstance(item, Tensor) and item.is_floating_point():
        source = torch.Generator().manual_seed(place)
        return (0.1 + 0.8 * torch.rand(item.shape, generator=source, dtype=torch.float64)).to(item)
    if isinstance(item, dict):
        return {key: _drawn(value, place) for key, value in item.items()}
    if type(item) in (list, tuple):
        return type(item)(_drawn(value, place + 1000 * number) for number, value in enumerate(item))
    return item


def _converted(batch: Any, precision: torch.dtype) -> Any:
    """Return a batch whose numbers with a fraction have the precision of the copy."""
    if isinstance(batch, Tensor):
        return batch.to(precision) if batch.is_floating_point() else batch
    if isinstance(batch, dict):
        return {key: _converted(value, precision) for key, value in batch.items()}
    if isinstance(batch, list | tuple):
        return [_converted(value, precision) for value in batch]
    return batch


def _alike(mine: Tensor, theirs: Tensor, near: float, small: float) -> bool:
    """Tell whether two gradients agree, to a part of the largest number in either, or to a number that is small.

    The caller uses neither of them again: the difference is written into the memory of one.
    """
    mine, theirs = mine.double(), theirs.double()
    size = max(_largest(mine), _largest(theirs))
    return not _largest(mine.sub_(theirs)) > max(near * size, small)


def _let_go(parameter: Tensor) -> None:
    """Give back the memory of gradients that were compared, where it is large: others would come to lie beside it."""
    if parameter.numel() >= _LARGE:
        give_back()


def _largest(values: Tensor) -> float:
    """Return the size of the largest number, 0 where there is none."""
    if not values.numel():
        return 0.0
    low, high = values.aminmax()
    return max(-float(low), float(high))


@contextmanager
def _own_randomness() -> Iterator[None]:
    """Leave all generators as they were."""
    plain, arrays = random.getstate(), np.random.get_state()  # noqa: NPY002
    try:
        with torch.random.fork_rng():
            yield
    finally:
        random.setstate(plain)
        np.random.set_state(arrays)  # noqa: NPY002
