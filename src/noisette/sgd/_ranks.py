"""The processes of torch.distributed that train one model together, as if they were one.

The first process draws the sample of every batch and sends it to the others; each takes its share of the examples, and
adds up their clipped gradients. The first one alone holds the sum of all sums, adds the noise, once, and tells what it
released: all make the same step. So there is one sample, one noise and one budget, and what holds for one process holds
for all of them together. Each process has all the data, as with a `DistributedSampler`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from noisette._validate import FloatArray
from noisette.sgd.clipping import Sums

_spread = torch.distributed


class Ranks:
    """How many processes there are, and which of them this one is."""

    def __init__(self) -> None:
        there = _spread.is_available() and _spread.is_initialized()
        self.size = _spread.get_world_size() if there else 1
        self.own = _spread.get_rank() if there else 0

    def check(self) -> None:
        """Refuse to go on among other processes than the run began with."""
        now = Ranks()
        if (now.size, now.own) != (self.size, self.own):
            raise RuntimeError(
                f"The run was made private in process {self.own} of {self.size}, and this is process {now.own} of "
                f"{now.size}: each would state the whole budget. Call make_private after init_process_group."
            )

    def agree(self, terms: dict[str, Any]) -> None:
        """Refuse, in all processes, that one was given other data or settings than the first."""
        if self.size == 1:
            return
        every: list[Any] = [None] * self.size
        _spread.all_gather_object(every, terms)
        for place, theirs in enumerate(every):
            wrong = next((name for name, value in every[0].items() if theirs[name] != value), None)
            if wrong is not None:
                raise ValueError(
                    f"Process {place} has {wrong}={theirs[wrong]!r}, the first one has {every[0][wrong]!r}. Give every "
                    "process the same data and settings: together they make one run."
                )

    def alike(self, model: nn.Module) -> None:
        """Give every process the weights and buffers of the first."""
        if self.size > 1:
            with torch.no_grad():
                for value in (*model.parameters(), *model.buffers()):
                    _spread.broadcast(value.data, 0)

    def from_first(self, say: Callable[[], Any]) -> Any:
        """Return what the first process computes, in all of them; the others do not compute it."""
        if self.size == 1:
            return say()
        said = [say() if self.own == 0 else None]
        _spread.broadcast_object_list(said, 0)
        return said[0]

    def share(self, chosen: npt.NDArray[np.intp]) -> npt.NDArray[np.intp]:
        """Return this process's share of the examples of a batch."""
        return chosen[self.own :: self.size]

    def counts(self, counts: FloatArray) -> FloatArray:
        """Return the sum of all processes' counts."""
        if self.size > 1:
            made = torch.from_numpy(np.array(counts, dtype=np.float64))
            _spread.all_reduce(made)
            return np.asarray(made.numpy())
        return counts

    def released(self, sums: Sums, release: Callable[[Sums], Sums]) -> Sums:
        """Return what the first process makes of the sums of all, in all of them."""
        if self.size == 1:
            return release(sums)
        row = torch.cat([value.reshape(-1) for entries in sums.values() for value in entries.values()])
        _spread.reduce(row, 0)
        if self.own == 0:
            made = release(_divided(row, {layer: _shapes(entries) for layer, entries in sums.items()}))
            shapes = {layer: _shapes(entries) for layer, entries in made.items()}
            row = torch.cat([value.double().reshape(-1) for entries in made.values() for value in entries.values()])
        shapes = self.from_first(lambda: shapes)
        if self.own:
            row = row.new_empty(sum(shape.numel() for own in shapes.values() for shape in own.values()))
        _spread.broadcast(row, 0)
        return _divided(row, shapes)


def _shapes(entries: dict[str, Tensor]) -> dict[str, torch.Size]:
    return {name: value.shape for name, value in entries.items()}


def _divided(row: Tensor, shapes: dict[str, dict[str, torch.Size]]) -> Sums:
    """Return one row as tensors of these shapes, by layer and parameter."""
    pieces = iter(torch.split(row, [shape.numel() for own in shapes.values() for shape in own.values()]))
    return {layer: {name: next(pieces).reshape(shape) for name, shape in own.items()} for layer, own in shapes.items()}
