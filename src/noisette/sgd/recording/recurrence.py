"""Recurrent layers whose gradients of one example can be seen: LSTM, GRU and RNN from plain linear layers."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch._C._functorch import peek_interpreter_stack

from noisette.sgd.recording._scan import Gru, Lstm, Plain, Run, run_through

_RUNS: dict[str, Callable[..., Run]] = {
    "LSTM": Lstm,
    "GRU": Gru,
    "RNN_TANH": partial(Plain, bent=True),
    "RNN_RELU": partial(Plain, bent=False),
}
_GATES = {"LSTM": 4, "GRU": 3, "RNN_TANH": 1, "RNN_RELU": 1}


class _Direction(nn.Module):
    """One layer in one direction: all inputs in one product, then step by step."""

    def __init__(self, mode: str, inputs: int, hidden: int, projected: int, *, bias: bool, backwards: bool) -> None:
        super().__init__()
        self.mode, self.width, self.backwards = mode, projected or hidden, backwards
        self.entering = nn.Linear(inputs, _GATES[mode] * hidden, bias=bias)
        self.staying = nn.Linear(self.width, _GATES[mode] * hidden, bias=bias)
        self.projecting = nn.Linear(hidden, projected, bias=False) if projected else None

    def forward(self, sequence: Tensor, state: Tensor, cell: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return every state (examples, time, hidden), the last one and the last cell."""
        entering = self.entering(sequence)
        plain = self.projecting is not None or peek_interpreter_stack() is not None  # torch.func maps plain steps
        if sequence.shape[1] and not plain:
            ordered = entering.flip(1) if self.backwards else entering
            made, state, cell = run_through(_RUNS[self.mode], self.staying, ordered, state, cell)
            return made.flip(1) if self.backwards else made, state, cell
        order = range(sequence.shape[1])
        states: list[Tensor] = []
        for time in reversed(order) if self.backwards else order:
            state, cell = self._advance(entering[:, time], state, cell)
            states.append(state)
        made = (
            torch.stack(states[::-1] if self.backwards else states, 1)
            if states
            else sequence.new_zeros(sequence.shape[0], 0, self.width)
        )
        return made, state, cell

    def _advance(self, entering: Tensor, state: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
        staying = self.staying(state)
        if self.mode == "LSTM":
            entry, forget, change, out = (entering + staying).chunk(4, 1)
            cell = torch.sigmoid(forget) * cell + torch.sigmoid(entry) * torch.tanh(change)
            state = torch.sigmoid(out) * torch.tanh(cell)
            return state if self.projecting is None else self.projecting(state), cell
        if self.mode == "GRU":
            reset, update, change = entering.chunk(3, 1)
            stay_reset, stay_update, stay_change = staying.chunk(3, 1)
            kept = torch.sigmoid(update + stay_update)
            proposed = torch.tanh(change + torch.sigmoid(reset + stay_reset) * stay_change)
            return (1 - kept) * proposed + kept * state, cell
        activation = torch.tanh if self.mode == "RNN_TANH" else torch.relu
        return activation(entering + staying), cell


class OpenRecurrence(nn.Module):
    """Does what a torch LSTM, GRU or RNN does, with the same weights, so that each example's gradient can be seen."""

    def __init__(self, layer: nn.RNNBase) -> None:
        super().__init__()
        self.mode, self.layers, self.batch_first = layer.mode, layer.num_layers, layer.batch_first
        self.hidden, self.ways = layer.hidden_size, 2 if layer.bidirectional else 1
        self.width = layer.proj_size or layer.hidden_size  # of a state
        self.dropout = nn.Dropout(layer.dropout)
        self.directions = nn.ModuleList()
        for depth in range(self.layers):
            for way in range(self.ways):
                inputs = layer.input_size if depth == 0 else self.ways * self.width
                made = _Direction(self.mode, inputs, self.hidden, layer.proj_size, bias=layer.bias, backwards=way == 1)
                suffix = f"l{depth}{'_reverse' if way else ''}"
                with torch.no_grad():
                    for own, linear in (("ih", made.entering), ("hh", made.staying)):
                        linear.weight.copy_(getattr(layer, f"weight_{own}_{suffix}"))
                        if layer.bias:
                            linear.bias.copy_(getattr(layer, f"bias_{own}_{suffix}"))
                    if made.projecting is not None:
                        made.projecting.weight.copy_(getattr(layer, f"weight_hr_{suffix}"))
                self.directions.append(made)

    def forward(self, sequence: Tensor, start: Any = None) -> tuple[Tensor, Any]:
        """Return the last layer's states at every time, and every layer's last state (and cell, for an LSTM)."""
        if not isinstance(sequence, Tensor) or sequence.ndim != 3:
            raise TypeError(
                "Expected a batch of sequences as one tensor with three axes, not a packed one. Pad them to one length "
                "and read the last state of each from the output, at its own length."
            )
        current = sequence if self.batch_first else sequence.transpose(0, 1)
        states, cells = (
            current.new_zeros(self.layers * self.ways, current.shape[0], width) for width in (self.width, self.hidden)
        )
        if start is not None:
            states, cells = start if self.mode == "LSTM" else (start, cells)
        last_states, last_cells = [], []
        for depth in range(self.layers):
            made = []
            for way in range(self.ways):
                place = depth * self.ways + way
                every, state, cell = self.directions[place](current, states[place], cells[place])
                made.append(every)
                last_states.append(state)
                last_cells.append(cell)
            current = torch.cat(made, 2) if self.ways > 1 else made[0]
            if depth < self.layers - 1:
                current = self.dropout(current)
        output = current if self.batch_first else current.transpose(0, 1)
        state = torch.stack(last_states)
        return output, (state, torch.stack(last_cells)) if self.mode == "LSTM" else state


def with_open_recurrence(model: nn.Module) -> nn.Module:
    """Return a copy of a model in which LSTM, GRU and RNN layers are open ones, with the same weights.

    >>> model = with_open_recurrence(nn.Sequential(nn.LSTM(3, 5, batch_first=True)))
    >>> type(model[0]).__name__
    'OpenRecurrence'
    """
    model = copy.deepcopy(model)
    if isinstance(model, nn.RNNBase):
        return OpenRecurrence(model)
    for _, parent in list(model.named_modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, nn.RNNBase):
                setattr(parent, name, OpenRecurrence(child))
    return model
