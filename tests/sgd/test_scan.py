"""Recurrences run and differentiated by hand, beside torch's own graph of the same steps."""

from __future__ import annotations

import pytest
import torch

from noisette.sgd.recording._scan import Gru, Lstm, Plain

TIME, EXAMPLES, HIDDEN = 4, 3, 2


def lstm(entering, weight, bias, state, cell):
    states = []
    for enters in entering:
        gates = enters + state @ weight.T + (0 if bias is None else bias)
        i, f, g, o = gates.chunk(4, 1)
        cell = f.sigmoid() * cell + i.sigmoid() * g.tanh()
        state = o.sigmoid() * cell.tanh()
        states.append(state)
    return torch.stack(states), cell


def gru(entering, weight, bias, state, cell):
    states = []
    for enters in entering:
        added = state @ weight.T + (0 if bias is None else bias)
        (r, u, n), (sr, su, sn) = enters.chunk(3, 1), added.chunk(3, 1)
        reset, update = (r + sr).sigmoid(), (u + su).sigmoid()
        state = (1 - update) * (n + reset * sn).tanh() + update * state
        states.append(state)
    return torch.stack(states), cell


def plain(bent):
    def run(entering, weight, bias, state, cell):
        states = []
        for enters in entering:
            made = enters + state @ weight.T + (0 if bias is None else bias)
            state = made.tanh() if bent else made.relu()
            states.append(state)
        return torch.stack(states), cell

    return run


KINDS = {
    "lstm": (lstm, Lstm, 4),
    "gru": (gru, Gru, 3),
    "tanh": (plain(True), lambda *given: Plain(*given, bent=True), 1),
    "relu": (plain(False), lambda *given: Plain(*given, bent=False), 1),
}


@pytest.mark.parametrize("biased", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_states_and_gradients_are_those_of_a_graph(kind, biased):
    by_graph, by_hand, gates = KINDS[kind]
    source = torch.Generator().manual_seed(3)

    def drawn(*shape):
        return torch.randn(*shape, dtype=torch.float64, generator=source, requires_grad=True)

    entering, weight = drawn(TIME, EXAMPLES, gates * HIDDEN), drawn(gates * HIDDEN, HIDDEN)
    bias = drawn(gates * HIDDEN) if biased else None
    state, cell = drawn(EXAMPLES, HIDDEN), drawn(EXAMPLES, HIDDEN)
    states, last = by_graph(entering, weight, bias, state, cell)
    onto_states, onto_cell = drawn(*states.shape).detach(), drawn(*last.shape).detach()
    if kind != "lstm":
        onto_cell = torch.zeros_like(onto_cell)
    loss = (states * onto_states).sum() + (last * onto_cell).sum()
    wanted = torch.autograd.grad(loss, [entering, state, cell], allow_unused=True)
    with torch.no_grad():
        run = by_hand(*(None if one is None else one.detach().clone() for one in (entering, weight, bias, state, cell)))
        entered, _, first_state, first_cell = run.back(onto_states, onto_cell)
    assert torch.allclose(run.states, states, rtol=1e-12, atol=1e-13)
    assert torch.allclose(run.cell, last, rtol=1e-12, atol=1e-13)
    assert torch.allclose(entered, wanted[0], rtol=1e-10, atol=1e-12)
    assert torch.allclose(first_state, wanted[1], rtol=1e-10, atol=1e-12)
    if kind == "lstm":
        assert torch.allclose(first_cell, wanted[2], rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_what_the_last_state_adds_has_its_own_gradients(kind):
    """The gradient of the bias is the sum over time of those of s, and that of the weight its product with states."""
    by_graph, by_hand, gates = KINDS[kind]
    source = torch.Generator().manual_seed(4)

    def drawn(*shape):
        return torch.randn(*shape, dtype=torch.float64, generator=source, requires_grad=True)

    entering, weight, bias = drawn(TIME, EXAMPLES, gates * HIDDEN), drawn(gates * HIDDEN, HIDDEN), drawn(gates * HIDDEN)
    state, cell = drawn(EXAMPLES, HIDDEN), drawn(EXAMPLES, HIDDEN)
    states, _ = by_graph(entering, weight, bias, state, cell)
    onto = drawn(*states.shape).detach()
    by_weight, by_bias = torch.autograd.grad((states * onto).sum(), [weight, bias])
    with torch.no_grad():
        run = by_hand(*(one.detach().clone() for one in (entering, weight, bias, state, cell)))
        _, added, _, _ = run.back(onto, torch.zeros_like(cell))
        before = torch.cat([state[None], run.states[:-1]])
    assert torch.allclose(added.sum((0, 1)), by_bias, rtol=1e-10, atol=1e-12)
    assert torch.allclose(torch.einsum("tbg,tbh->gh", added, before), by_weight, rtol=1e-10, atol=1e-12)
