"""A recurrence run through time without a graph of its steps, and back through time by its own derivatives.

Torch would record some ten operations a step and visit each again, which takes longer than to compute them. Here the
states are computed first. Then the layer that multiplies the state is called once, on the states before each step, so
that whoever looks at its inputs and at the gradients of its outputs sees all steps in one piece; `run_through` passes
the states on, and gives that layer and the one that takes the inputs their gradients at every step.

Inside, time is the first axis. What enters a step is e, what the last state adds is s = W h + b.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

Pair = tuple[Tensor, Tensor]  # gradients of what enters and of what the last state adds


class Run:
    """One run through time: states (time, examples, hidden), the last cell, and the way back."""

    states: Tensor
    cell: Tensor

    def back(self, states: Tensor, cell: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return the gradients of e and s at all times, of the first state and of the first cell."""
        raise NotImplementedError


class Lstm(Run):
    """i, f, o = sigmoid, g = tanh of e + s; c = f c + i g; h = o tanh(c) (Hochreiter and Schmidhuber 1997)."""

    def __init__(self, entering: Tensor, weight: Tensor, bias: Tensor | None, state: Tensor, cell: Tensor) -> None:
        self._weight, self._first, hidden = weight, cell, state.shape[1]
        gates = entering.clone() if bias is None else entering + bias
        self.states = gates.new_empty(*gates.shape[:2], hidden)
        self._cells, self._bent = torch.empty_like(self.states), torch.empty_like(self.states)
        across = weight.T
        for gate, new, kept, bent in zip(gates, self.states, self._cells, self._bent, strict=True):
            gate.addmm_(state, across)
            entry, change, out = gate[:, : 2 * hidden], gate[:, 2 * hidden : 3 * hidden], gate[:, 3 * hidden :]
            entry.sigmoid_()
            out.sigmoid_()
            change.tanh_()
            torch.mul(gate[:, hidden : 2 * hidden], cell, out=kept)
            kept.addcmul_(gate[:, :hidden], change)
            torch.tanh(kept, out=bent)
            state, cell = torch.mul(out, bent, out=new), kept
        self._gates, self.cell = gates, cell

    def back(self, states: Tensor, cell: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        entry, forget, change, out = self._gates.chunk(4, 2)
        before = torch.cat([self._first[None], self._cells[:-1]])
        slopes = torch.stack(  # of the cell in e: entry, forget and change
            [change * entry * (1 - entry), before * forget * (1 - forget), entry * (1 - change.square())], 2
        )
        outer, inner = self._bent * out * (1 - out), out * (1 - self._bent.square())
        made = torch.empty_like(self._gates)
        split = made.view(*made.shape[:2], 4, -1)
        state, weight = torch.zeros_like(self._first), self._weight
        for time in range(len(made) - 1, -1, -1):
            state = state + states[time]
            cell = torch.addcmul(cell, state, inner[time])
            torch.mul(cell[:, None], slopes[time], out=split[time, :, :3])
            torch.mul(state, outer[time], out=split[time, :, 3])
            state, cell = made[time] @ weight, cell * forget[time]
        return made, made, state, cell


class Gru(Run):
    """r, u = sigmoid of e + s; n = tanh(e + r s); h = (1 - u) n + u h (Cho et al. 2014, as torch has it)."""

    def __init__(self, entering: Tensor, weight: Tensor, bias: Tensor | None, state: Tensor, cell: Tensor) -> None:
        self._weight, self._first, self.cell, hidden = weight, state, cell, state.shape[1]
        self._gates = entering.clone()
        self.states = entering.new_empty(*entering.shape[:2], hidden)
        self._staying = torch.empty_like(self.states)
        across = weight.T
        for gate, new, kept in zip(self._gates, self.states, self._staying, strict=True):
            staying = state @ across if bias is None else torch.addmm(bias, state, across)
            chosen, change = gate[:, : 2 * hidden], gate[:, 2 * hidden :]
            chosen.add_(staying[:, : 2 * hidden]).sigmoid_()
            kept.copy_(staying[:, 2 * hidden :])
            change.addcmul_(gate[:, :hidden], kept).tanh_()
            state = torch.lerp(change, state, gate[:, hidden : 2 * hidden], out=new)

    def back(self, states: Tensor, cell: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        reset, update, change = self._gates.chunk(3, 2)
        before = torch.cat([self._first[None], self.states[:-1]])
        into = (1 - update) * (1 - change.square())
        slopes = torch.stack(
            [into * self._staying * reset * (1 - reset), (before - change) * update * (1 - update), into], 2
        )
        made, added = torch.empty_like(self._gates), torch.empty_like(self._gates)
        split, hidden = made.view(*made.shape[:2], 3, -1), self._first.shape[1]
        state = torch.zeros_like(self._first)
        for time in range(len(made) - 1, -1, -1):
            state = state + states[time]
            torch.mul(state[:, None], slopes[time], out=split[time])
            added[time] = made[time]
            added[time, :, 2 * hidden :] *= reset[time]
            state = torch.addmm(state * update[time], added[time], self._weight)
        return made, added, state, cell


class Plain(Run):
    """h = f(e + s), with f the hyperbolic tangent or the positive part (Elman 1990)."""

    def __init__(
        self, entering: Tensor, weight: Tensor, bias: Tensor | None, state: Tensor, cell: Tensor, *, bent: bool
    ) -> None:
        self._weight, self._bent, self._first, self.cell = weight, bent, state, cell
        self.states = entering.clone() if bias is None else entering + bias
        across = weight.T
        for new in self.states:
            new.addmm_(state, across)
            state = new.tanh_() if bent else new.relu_()

    def back(self, states: Tensor, cell: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        slopes = 1 - self.states.square() if self._bent else (self.states > 0).to(self.states)
        made = torch.empty_like(self.states)
        state = torch.zeros_like(self._first)
        for time in range(len(made) - 1, -1, -1):
            torch.mul(state + states[time], slopes[time], out=made[time])
            state = made[time] @ self._weight
        return made, made, state, cell


class _Through(torch.autograd.Function):
    """Pass on what a run has computed, with its derivatives."""

    @staticmethod
    def forward(ctx: Any, run: Run, entering: Tensor, staying: Tensor, state: Tensor, cell: Tensor) -> Any:
        ctx.run = run
        ctx.kinds = tuple(value.dtype for value in (entering, staying, state, cell))
        return run.states.transpose(0, 1).contiguous(), run.cell.clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, states: Tensor, cell: Tensor) -> Any:
        entering, staying, first, start = ctx.run.back(states.transpose(0, 1).contiguous(), cell)
        made = entering.transpose(0, 1), staying.transpose(0, 1), first, start
        return (None, *(value.to(kind) for value, kind in zip(made, ctx.kinds, strict=True)))


def run_through(
    make: Callable[..., Run], staying: torch.nn.Linear, entering: Tensor, state: Tensor, cell: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return every state (examples, time, hidden), the last one and the last cell, from what enters each step."""
    kind, grows = torch.promote_types(entering.dtype, torch.float32), torch.is_grad_enabled()
    with torch.no_grad():
        bias = None if staying.bias is None else staying.bias.to(kind)
        given = entering.transpose(0, 1).to(kind).contiguous(), staying.weight.to(kind), bias
        run = make(*given, state.to(kind), cell.to(kind))
        if not grows:
            made = run.states.transpose(0, 1).to(entering.dtype).contiguous()
            return made, made[:, -1], run.cell.to(entering.dtype)
        before = torch.cat([state.to(kind)[:, None], run.states[:-1].transpose(0, 1)], 1)
    held = staying(before.to(staying.weight.dtype))  # a layer of bfloat16 takes nothing else
    states, last = _Through.apply(run, entering, held, state, cell)  # type: ignore[no-untyped-call]
    return states.to(entering.dtype), states[:, -1].to(entering.dtype), last.to(entering.dtype)
