"""Examples that the model or a loss refuses: they add nothing, and the step goes on as for any other batch.

A token beyond the vocabulary, an assertion in the model's code, an index beyond the classes: whatever the exception
is, it would tell that somebody is in the batch. So where a call fails, examples are exchanged for one that stands in
(zeros, and whole numbers as the first example has them), which is asked first. If the model refuses that one, the fault
is in the code, the shapes or the machine, and is told. Else halves of the batch are tried among such examples until
those are found that are refused. The call is then made with the stand-in in their places, and what it answers there is
a constant: no gradient comes back.

What is proved: suppose that whether the model takes an example is a function of that example and the parameters. Then
the others' gradients are those that they have without the refused ones (the supposition of `clipping`), a refused one
adds zero, and an exception that is told is told whatever it holds. A batch that the model refuses though it takes each
of its examples is an exception as before: examples meet in the decision.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.utils._pytree import tree_map

Attempt = Callable[[Sequence[int]], Exception | None]


def refused(attempt: Attempt, examples: int) -> list[int]:
    """Return the places of the examples that are refused, in few attempts where they are few.

    ``attempt`` is told which examples to keep among those that stand in for the others, and returns what was raised.
    """
    fault = attempt(())
    if fault is not None:
        raise fault from None

    def among(places: Sequence[int]) -> list[int]:
        error = attempt(places)
        if error is None:
            return []
        if len(places) == 1:
            return [*places]
        half = len(places) // 2
        found = among(places[:half]) + among(places[half:])
        if not found:
            raise error from None
        return found

    return among(range(examples))


def constant(answer: Any, places: Sequence[int]) -> Any:
    """Return what a model answers, whose rows at these places lead nowhere."""
    if not places:
        return answer

    def row_by_row(leaf: Any) -> Any:
        if not isinstance(leaf, Tensor) or not leaf.requires_grad:
            return leaf
        gone = torch.zeros(len(leaf), dtype=torch.bool, device=leaf.device)
        gone[list(places)] = True
        return torch.where(gone.reshape(-1, *[1] * (leaf.ndim - 1)), leaf.detach(), leaf)

    return tree_map(row_by_row, answer)


def by_rows(func: Any, args: Any, kwargs: Any, error: Exception) -> Tensor:
    """Return what a loss or a choice makes of the rows that it takes, and zeros for the others.

    It is asked first about no rows: what it refuses then is a fault in the code, and told.
    """
    given = {**kwargs, "reduction": "none"} if reduced(func) else kwargs
    rows = next((len(value) for value in args if isinstance(value, Tensor) and value.ndim), 0)

    def call(part: slice) -> Any:
        return func(*(_row(value, rows, part) for value in args), **{k: _row(v, rows, part) for k, v in given.items()})

    try:
        none = call(slice(0, 0))
    except Exception:
        raise error from None
    if not isinstance(none, Tensor) or not none.ndim or len(none):
        raise error from None
    made = [none]  # which has a gradient, even where no row is taken
    for place in range(rows):
        try:
            made.append(call(slice(place, place + 1)))
        except Exception:
            made.append(none.new_zeros(1, *none.shape[1:]))
    answer = torch.cat(made)
    how = reduced(func) and _bound(func, args, kwargs)["reduction"]
    if how == "batchmean":
        return answer.sum() / max(rows, 1)
    return answer.mean() if how == "mean" else answer.sum() if how == "sum" else answer


def reduced(func: Any) -> bool:
    """Tell whether a function is a loss of torch's that says how it is to be added up."""
    if getattr(func, "__module__", "") != functional.__name__:
        return False
    try:
        return "reduction" in inspect.signature(func).parameters
    except ValueError:  # built in
        return False


def _bound(func: Any, args: Any, kwargs: Any) -> dict[str, Any]:
    call = inspect.signature(func).bind(*args, **kwargs)
    call.apply_defaults()
    return call.arguments


def _row(value: Any, rows: int, part: slice) -> Any:
    return value[part] if isinstance(value, Tensor) and value.ndim and len(value) == rows else value
