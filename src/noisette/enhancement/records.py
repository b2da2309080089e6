"""Records of several attributes: the means among them, and the frequencies, apart and back in their places."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from noisette._validate import FloatArray
from noisette.core import Estimate
from noisette.domains import BoolArray
from noisette.enhancement.problem import run_lengths

Step = Callable[[Estimate, FloatArray], Estimate]


def by_kind(estimate: Estimate, bias: Any, step: Step) -> Estimate:
    """Take one ``step`` with the means of a record and one with its frequencies, and put the answers in their places.

    The step gets the estimate of one kind and the predicted bias of its values.
    """
    groups = np.asarray(run_lengths(estimate), dtype=np.int64)
    size = int(groups.sum())
    single = np.repeat(groups == 1, groups)
    shift = np.broadcast_to(np.asarray(bias, dtype=np.float64), (size,))
    value, error = np.empty(size), np.empty(size)
    gains, methods = 0.0, []
    reported = np.isfinite(np.asarray(estimate.std_error))
    for here, kind, lengths in ((single, "mean", None), (~single, "frequency", tuple(groups[groups > 1].tolist()))):
        if not np.any(here):
            continue
        found = step(_part(estimate, here, kind, lengths), shift[here])
        value[here], error[here] = found.value, found.std_error
        gains += (found.expected_gain or 0.0) * np.count_nonzero(reported & here)
        methods.append(found.method)
    name = " and ".join(dict.fromkeys(methods)) or "none"
    gain = gains / max(1, int(np.count_nonzero(reported)))
    found = replace(estimate, value=value, std_error=error, tail=None, method=name, expected_gain=gain)
    return found if name == "none" else replace(found, ends=None, noise=None)


def _part(estimate: Estimate, here: BoolArray, kind: str, groups: tuple[int, ...] | None) -> Estimate:
    """Return some of the quantities, of one kind."""

    def taken(bound: Any) -> Any:
        return bound if bound is None else np.broadcast_to(bound, here.shape)[here]

    return replace(
        estimate,
        value=np.asarray(estimate.value)[here],
        std_error=np.asarray(estimate.std_error)[here],
        count=np.broadcast_to(estimate.count, here.shape)[here],
        low=taken(estimate.low),
        high=taken(estimate.high),
        tail=None,
        ends=None,
        noise=None,
        names=None if estimate.names is None else tuple(np.asarray(estimate.names)[here]),
        kind=kind,
        groups=groups,
    )
