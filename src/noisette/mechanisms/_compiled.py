"""Loops as machine code."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit


def compiled(function: Any, **options: Any) -> Any:
    """Return a loop as machine code, kept on disk where some directory can be written."""
    try:
        return njit(cache=True, nogil=True, **options)(function)
    except RuntimeError:
        return njit(nogil=True, **options)(function)


def plain(array: Any) -> Any:
    """Return an array for a loop, in C order and writable: for any other kind it would be compiled again, for seconds.

    The array itself where it is of that kind, else a copy.
    """
    return np.require(array, requirements=["C", "W"])
