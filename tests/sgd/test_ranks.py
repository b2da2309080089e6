"""What one process of several does, told by hand what the others said; `test_processes` runs two real ones."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from noisette.sgd import _ranks
from noisette.sgd._ranks import Ranks, _divided, _shapes


class Others:
    """torch.distributed as one of several processes sees it; the others are in step with it."""

    def __init__(self, size=1, own=0, said=None, added=0.0):
        self.size, self.own, self.said, self.added, self.calls = size, own, said, added, []

    def is_available(self):
        return True

    def is_initialized(self):
        return self.size > 0

    def get_world_size(self):
        return self.size

    def get_rank(self):
        return self.own

    def all_gather_object(self, every, mine):
        every[:] = [mine if said is None else said for said in self.said]

    def broadcast_object_list(self, said, source):
        self.calls.append(("told", source))
        said[0] = self.said if self.own else said[0]

    def broadcast(self, row, source):
        self.calls.append(("row", source))
        if self.own:
            row.copy_(self.said_row)

    def all_reduce(self, row):
        row += self.added

    def reduce(self, row, to):
        self.calls.append(("reduced", to))
        row += self.added


def ranks(monkeypatch, *values, **named):
    others = Others(*values, **named)
    monkeypatch.setattr(_ranks, "_spread", others)
    return Ranks(), others


def test_one_process_is_alone(monkeypatch):
    monkeypatch.setattr(_ranks, "_spread", SimpleNamespace(is_available=lambda: False))
    alone = Ranks()
    assert (alone.size, alone.own) == (1, 0)
    found, _ = ranks(monkeypatch, 0)  # available, and not begun
    assert (found.size, found.own) == (1, 0)


@pytest.mark.parametrize(("size", "own"), [(2, 0), (2, 1), (1, 0), (3, 0)])
def test_a_run_goes_on_among_the_processes_that_it_began_with(monkeypatch, size, own):
    """Each of several processes that began alone would state the whole budget, and all of them would spend it."""
    began, others = ranks(monkeypatch, 3, 1)
    assert (began.size, began.own) == (3, 1)
    began.check()
    others.size, others.own = size, own
    with pytest.raises(RuntimeError, match=f"in process 1 of 3, and this is process {own} of {size}"):
        began.check()


@pytest.mark.parametrize("place", [0, 1, 2])
def test_one_process_with_other_settings_is_named_in_all_of_them(monkeypatch, place):
    terms = {"clip": 1.0, "rng": 7, "examples": 60}
    said = [None, None, None]
    found, _ = ranks(monkeypatch, 3, 1, said=said)
    found.agree(terms)
    if place != 1:
        said[place] = terms | {"examples": 59}
        with pytest.raises(ValueError, match=f"Process {max(place, 1)} has examples=(59|60), the first one has"):
            found.agree(terms)
    alone, _ = ranks(monkeypatch, 1)
    alone.agree(terms)


def test_processes_share_a_batch_without_overlap(monkeypatch):
    chosen = np.arange(10, 21)
    parts = [ranks(monkeypatch, 3, own)[0].share(chosen).tolist() for own in range(3)]
    assert parts == [[10, 13, 16, 19], [11, 14, 17, 20], [12, 15, 18]]
    assert ranks(monkeypatch, 1)[0].share(chosen).tolist() == chosen.tolist()


def test_the_first_process_speaks_for_all(monkeypatch):
    first, _ = ranks(monkeypatch, 2, 0)
    assert first.from_first(lambda: "noise") == "noise"
    second, others = ranks(monkeypatch, 2, 1, said="noise of the first")
    assert second.from_first(lambda: pytest.fail("it draws noise of its own")) == "noise of the first"
    assert others.calls == [("told", 0)]
    alone, others = ranks(monkeypatch, 1)
    assert alone.from_first(lambda: 3) == 3
    assert others.calls == []


def test_counts_are_those_of_all_processes(monkeypatch):
    own = np.asarray([1.0, 2.0])
    assert ranks(monkeypatch, 2, 0, added=5.0)[0].counts(own).tolist() == [6.0, 7.0]
    assert own.tolist() == [1.0, 2.0]
    assert ranks(monkeypatch, 1, 0, added=5.0)[0].counts(own).tolist() == [1.0, 2.0]


def test_noise_is_put_on_the_sum_of_all_once(monkeypatch):
    sums = {"a": {"w": torch.ones(2, 3, dtype=torch.float64)}, "b": {"w": torch.zeros(2, dtype=torch.float64)}}
    seen = []

    def release(total):
        seen.append({layer: {name: value.clone() for name, value in own.items()} for layer, own in total.items()})
        return {layer: {name: value * 10 for name, value in own.items()} for layer, own in total.items()}

    first, others = ranks(monkeypatch, 2, 0, added=0.5)
    made = first.released(sums, release)
    assert others.calls == [("reduced", 0), ("told", 0), ("row", 0)]
    assert (seen[0]["a"]["w"] == 1.5).all()
    assert (seen[0]["b"]["w"] == 0.5).all()
    assert (made["a"]["w"] == 15).all()
    assert made["a"]["w"].shape == (2, 3)
    assert made["b"]["w"].tolist() == [5.0, 5.0]
    second, others = ranks(monkeypatch, 2, 1, said={layer: _shapes(own) for layer, own in sums.items()})
    others.said_row = torch.arange(8, dtype=torch.float64)
    taken = second.released(sums, lambda total: pytest.fail("it draws noise of its own"))
    assert taken["a"]["w"].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert taken["b"]["w"].tolist() == [6, 7]
    alone, others = ranks(monkeypatch, 1)
    assert (alone.released(sums, release)["a"]["w"] == 10).all()
    assert others.calls == []


def test_weights_are_those_of_the_first(monkeypatch):
    model = torch.nn.Sequential(torch.nn.Linear(2, 1), torch.nn.BatchNorm1d(1))
    found, others = ranks(monkeypatch, 2, 0)
    found.alike(model)
    assert others.calls == [("row", 0)] * 7  # weight and bias of both, and the three buffers of the second
    alone, others = ranks(monkeypatch, 1)
    alone.alike(model)
    assert others.calls == []


def test_a_row_is_divided_as_it_was_joined():
    shapes = {"a": {"w": torch.Size([2, 2]), "b": torch.Size([1])}, "c": {"w": torch.Size([])}}
    found = _divided(torch.arange(6.0), shapes)
    assert {layer: _shapes(own) for layer, own in found.items()} == shapes
    assert found["c"]["w"].item() == 5


def test_an_observer_of_several_processes_is_refused(monkeypatch):
    from noisette.sgd.observer import Observer

    private = SimpleNamespace(loader=SimpleNamespace(ranks=SimpleNamespace(size=2)))
    with pytest.raises(ValueError, match="Expected one process"):
        Observer(private)
