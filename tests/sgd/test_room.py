"""Memory that steps use again: never while anybody holds a part of it."""

import gc

import pytest
import torch
from torch import nn

from noisette.sgd.recording import _room
from noisette.sgd.recording.gradients import Recorder


def place(tensor):
    return tensor.untyped_storage().data_ptr()


@pytest.mark.parametrize("like", [torch.zeros(1), torch.zeros(1, dtype=torch.float64)])
def test_memory_is_used_again_once_nobody_holds_it(like):
    room = _room.Room()
    made = room.empty((4, 3, 5), like)
    assert made.shape == (4, 3, 5)
    assert made.dtype == like.dtype
    assert made.data_ptr() % 64 == 0
    first = made.data_ptr()
    made.zero_()
    del made
    again = room.empty((5, 3, 5), like)  # one example more, and the same memory
    assert again.data_ptr() == first
    assert room.empty((5, 3, 5), like).data_ptr() != first
    assert room.empty((5, 5, 3), like).data_ptr() != first


@pytest.mark.parametrize(
    "part",
    [lambda made: made[1:], lambda made: made.numpy()[2], lambda made: made.flatten(1).T, lambda made: made.detach()],
    ids=["view", "array", "transposed", "detached"],
)
def test_memory_is_not_used_again_while_a_part_of_it_is_held(part):
    room = _room.Room()
    made = room.empty((4, 3, 5), torch.zeros(1)).fill_(1.0)
    first, kept = place(made), part(made)
    del made
    other = room.empty((4, 3, 5), torch.zeros(1)).fill_(2.0)
    assert place(other) != first
    assert (kept == 1.0).all()
    del kept
    assert place(room.empty((4, 3, 5), torch.zeros(1))) == first


def test_a_room_grows_for_larger_batches_and_ends_at_its_limit(monkeypatch):
    monkeypatch.setattr(_room, "MOST", 4000)
    room, like = _room.Room(), torch.zeros(1)
    small = place(room.empty((4, 100), like))
    assert place(room.empty((6, 100), like)) == small
    assert room.empty((7, 100), like).shape == (7, 100)  # too large for that buffer, which goes
    assert [len(kept) for kept in room._kept.values()] == [1]
    held = [room.empty((1, 400), like) for _ in range(3)]
    assert room._size <= 1.5 * 4000
    assert len({place(tensor) for tensor in held}) == 3  # the others come from the C library
    assert sum(map(len, room._kept.values())) < 4
    assert room.empty((0, 100), like).shape == (0, 100)


def test_gradients_that_are_kept_stay_as_they_are():
    """What a watcher holds of one batch is not written over by the next ones."""
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 16))
    recorder = Recorder(model)

    def gradients():
        inputs = torch.randn(5, 12, 16)
        recorder.clear()
        model(inputs).square().sum().backward()
        return {name: part.each()["weight"] for name, part in recorder.parts().items()}

    kept = gradients()
    before = {name: value.clone() for name, value in kept.items()}
    others = [gradients() for _ in range(3)]
    for name, value in kept.items():
        assert torch.equal(value, before[name])
        assert all(not torch.equal(value, other[name]) for other in others)
    places = {place(value) for value in kept.values()}
    del kept, others, value
    gc.collect()
    assert {place(value) for value in gradients().values()} & places  # and is free for later ones now
    recorder.remove()
