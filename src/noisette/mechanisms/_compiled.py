"""Loops as machine code."""

from __future__ import annotations

from typing import Any

from numba import njit


def compiled(function: Any, **options: Any) -> Any:
    """Return a loop as machine code, kept on disk where some directory can be written."""
    try:
        return njit(cache=True, nogil=True, **options)(function)
    except RuntimeError:
        return njit(nogil=True, **options)(function)
