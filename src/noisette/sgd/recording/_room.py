"""Memory for gradients of single examples that a step uses and the next one uses again.

The C library gives freed memory back to the system, which hands it out again page by page, each filled with zeros
first. A recorder keeps a room for what it forms while a backward pass runs, and lends it out again once nobody holds
any of it: no tensor, no view and no array.
"""

from __future__ import annotations

import math
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

MOST = 1 << 25  # bytes that a room keeps
_ALIGNED = 64
_SPARE = 1.5  # for samples with more examples; pages that nobody has written to take no memory
_Bytes = npt.NDArray[np.uint8]
_now = threading.local()


class Room:
    """Buffers by the shape of an example's share in them."""

    def __init__(self) -> None:
        self._kept: dict[tuple[Any, ...], list[_Bytes]] = {}
        self._size = 0

    def empty(self, shape: Sequence[int], like: Tensor) -> Tensor:
        """Return memory of a shape, examples first, on the processor; its numbers are whatever was there."""
        size = math.prod(shape) * like.element_size()
        key = (like.dtype, *shape[1:])
        kept = self._kept.setdefault(key, [])
        for place in range(len(kept)):
            if _holders(kept, place) > _NOBODY:
                continue
            if len(kept[place]) >= size + _ALIGNED:
                return _tensor(kept[place], size, shape, like)
            self._size -= len(kept.pop(place))
            break
        large = int(_SPARE * size) + _ALIGNED
        if not size or self._size + large > _SPARE * MOST:
            return like.new_empty(shape)
        kept.append(np.empty(large, dtype=np.uint8))
        self._size += large
        return _tensor(kept[-1], size, shape, like)

    def clear(self) -> None:
        """Give back what nobody holds, and the rest when it is let go of."""
        self._kept.clear()
        self._size = 0


def _holders(kept: list[_Bytes], place: int) -> int:
    """Return how many hold a buffer."""
    return sys.getrefcount(kept[place])


_NOBODY = _holders([np.empty(1, dtype=np.uint8)], 0)  # but the list


def _tensor(buffer: _Bytes, size: int, shape: Sequence[int], like: Tensor) -> Tensor:
    """Return a tensor in a buffer, which every view of it holds."""
    start = -buffer.ctypes.data % _ALIGNED
    return torch.from_numpy(buffer[start : start + size]).view(like.dtype).reshape(*shape)


@contextmanager
def lent(room: Room) -> Iterator[None]:
    """Let what this thread forms lie in a room."""
    before, _now.room = getattr(_now, "room", None), room
    try:
        yield
    finally:
        _now.room = before


def empty(shape: Sequence[int], like: Tensor) -> Tensor:
    """Return memory of a shape, in the room that is lent to this thread if there is one."""
    room: Room | None = getattr(_now, "room", None)
    return like.new_empty(shape) if room is None else room.empty(shape, like)
