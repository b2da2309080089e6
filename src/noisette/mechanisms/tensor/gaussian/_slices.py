"""Releasing a tensor that is too large for a float64 copy and has noise correlated along its first and last modes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from noisette._validate import FloatArray
from noisette.mechanisms.tensor.gaussian.modes import Mode, multiply

SLICES = 1 << 20  # entries of the slices that are worked on at a time; one slice may be larger


def release_slices(
    source: npt.NDArray[Any],
    target: npt.NDArray[Any],
    modes: Sequence[Mode | None],
    centre: Callable[[npt.NDArray[Any]], FloatArray],
    add_noise: Callable[[FloatArray], None],
) -> None:
    """Put into ``target``, which may be ``source``, x + N x_1 U_1 ... x_N U_N for a tensor x with one axis a mode.

    ``centre`` turns a part of the source into float64. Slices along the longest mode are whitened together, get their
    noise and are coloured, from the last to the first. The triangle U^-1 needs the slices before them, which are still
    as they were; U adds to those after them, which are coloured already. Those sums are as exact as ``target`` holds
    them: they follow the noise, so privacy is not about them.
    """
    axis = max(range(len(modes)), key=lambda number: source.shape[number])
    mode, others = modes[axis], [*modes[:axis], *modes[axis + 1 :]]
    source, target = (np.moveaxis(array, axis, 0) for array in (source, target))
    size, entries = len(source), source[0].size
    width = max(1, SLICES // entries)
    places = [slice(start, min(start + width, size)) for start in range(0, size, width)]
    for number, own in reversed(list(enumerate(places))):
        white = np.zeros((own.stop - own.start, *source.shape[1:]))
        for before in places[: number + 1]:
            _mix(white, None if mode is None else mode.whitener, own, before, centre(source[before]))
        multiply(white, [None if other is None else other.whitener for other in others])
        add_noise(white.reshape(-1))
        multiply(white, [None if other is None else other.root for other in others])
        target[own] = 0
        for after in places[number:]:
            _mix(target[after], None if mode is None else mode.root, after, own, white)


def _mix(total: npt.NDArray[Any], factor: FloatArray | None, rows: slice, columns: slice, part: FloatArray) -> None:
    """Add what a block of a factor, the identity if None, makes of the slices ``columns`` to the slices ``rows``."""
    if factor is not None and factor.ndim == 2:
        total += np.tensordot(factor[rows, columns], part, axes=1)
    elif rows == columns:
        total += part if factor is None else part * factor[rows].reshape(-1, *(1,) * (part.ndim - 1))
