"""Counts, sums and squares of sampled reports in one pass, as machine code.

Three weighted calls of `np.bincount` take three times as long. numba is imported with this module only, when the first
reports are aggregated, and keeps what it compiles on disk.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from noisette._validate import FloatArray, IntArray
from noisette.mechanisms._compiled import compiled


def _add(indices: npt.NDArray[np.int32], codes: FloatArray, shrink: float, sums: IntArray) -> int:
    """Add each user's reports to ``sums[dimension]`` = (count, sum, sum of rounded squares of shrunken codes).

    Returns the first user whose dimensions are not increasing or do not exist, or -1.
    """
    users, count = indices.shape
    dims = sums.shape[0]
    for user in range(users):
        last = -1
        for place in range(count):
            index = indices[user, place]
            if index <= last or index >= dims:
                return user
            last = index
            code = codes[user, place]
            small = code * shrink
            sums[index, 0] += 1
            sums[index, 1] += np.int64(code)
            sums[index, 2] += np.int64(np.rint(small * small))
    return -1


add = compiled(_add)
