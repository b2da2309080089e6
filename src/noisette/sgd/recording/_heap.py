"""What the C library does with freed memory: it keeps that of steps, and gives back that of copies of a model."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # names of settings in malloc.h
_KEPT = 1 << 28  # bytes that are kept at the end of the heap
_LARGEST = 1 << 25  # bytes up to which a tensor lies in the heap, the most that can be set
_BESIDE = 1 << 20  # bytes from which one lies beside it while a model is verified


def _function(name: str) -> Any:
    """Return a function of the GNU C library, None in others."""
    return getattr(ctypes.CDLL(None), name, None) if sys.platform == "linux" else None


@cache
def _option() -> Any:
    """Return the function that changes the library's settings, None where the environment has settings of its own."""
    own = any(name.startswith("MALLOC_") for name in os.environ) or "malloc" in os.environ.get("GLIBC_TUNABLES", "")
    return None if own else _function("mallopt")


@cache
def keep_freed() -> None:
    """Let what the tensors of a step free stay in the process, for those of the next.

    The library would give it back to the system and ask for it again, page by page, step after step. It is a setting of
    the whole process: one that the environment has is left as it is.
    """
    option = _option()
    if option is not None:
        option(_TRIM_THRESHOLD, _KEPT)
        option(_MMAP_THRESHOLD, _LARGEST)


@contextmanager
def beside_heap() -> Iterator[None]:
    """Let large tensors lie beside the heap meanwhile: what copies of a model free leaves no gaps there.

    What was freed before goes back to the system, so that both do not take memory at a time; and what is freed here.
    """
    option = _option()
    if option is not None:
        option(_MMAP_THRESHOLD, _BESIDE)
    give_back()
    try:
        yield
    finally:
        if option is not None:
            option(_MMAP_THRESHOLD, _LARGEST)
        give_back()


def give_back() -> None:
    """Let the system have memory that was freed: copies of a model would else stay with the process for good."""
    trim = _function("malloc_trim")
    if trim is not None:
        trim(0)
