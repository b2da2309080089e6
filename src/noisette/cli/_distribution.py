"""Distributions of the true values from report files, in one pass and constant memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from noisette._validate import FloatArray
from noisette.aggregation import ReportFile
from noisette.mechanisms.vector.sampled import Reports, Sampled

BINS = 64


def distributions(
    files: Sequence[ReportFile], *, on_progress: Callable[[int], None]
) -> list[tuple[FloatArray, FloatArray]]:
    """Return for each dimension the edges of bins in its own range, and how likely a true value is in each."""
    from noisette.enhancement import reconstruct
    from noisette.enhancement.channel import BinnedChannel

    mechanism = files[0].mechanism
    sampled = isinstance(mechanism, Sampled)
    inner = mechanism.inner_mechanism if sampled else mechanism
    if inner.domain.kind not in ("interval", "grid"):
        raise ValueError(
            f"--distribution needs a mechanism for numbers one by one; {mechanism.name} {_why(mechanism)}."
        )
    channel = BinnedChannel.of(inner, bins=BINS)
    dims = mechanism.dims if sampled else 1
    counts = np.zeros((dims, channel.matrix.shape[0]), dtype=np.int64)
    for file in files:
        for batch in file.batches():
            for dimension, reports in _by_dimension(batch):
                counts[dimension] += channel.count(reports)
            on_progress(len(batch))
    edges, found = _edges(channel), []
    for dimension in range(dims):
        own = edges if inner is mechanism else _in_own_range(edges, mechanism.domain, dimension)
        if counts[dimension].any():
            found.append((own, reconstruct(inner, counts=counts[dimension], bins=BINS).probabilities))
        else:
            found.append((own, np.full(edges.size - 1, np.nan)))
    return found


def _why(mechanism: Any) -> str:
    if mechanism.kind in ("frequency", "attributes"):
        return "gives the frequencies of categories, which are the distribution: use --enhance simplex"
    return "mixes all dimensions in a report"


def _by_dimension(batch: Any) -> Iterator[tuple[int, Any]]:
    """Yield the reports about each dimension that a batch has any of."""
    if not isinstance(batch, Reports):
        yield 0, batch
        return
    flat = batch.indices.reshape(-1)
    order = np.argsort(flat, kind="stable")
    present, starts = np.unique(flat[order], return_index=True)
    yield from zip(present.tolist(), np.split(batch.values.reshape(-1)[order], starts[1:]), strict=True)


def _edges(channel: Any) -> FloatArray:
    """Return the ends of the bins of inputs; separate inputs get a bin each."""
    inputs: FloatArray = channel.inputs
    if inputs.size > channel.matrix.shape[1]:
        return inputs
    half = np.diff(inputs) / 2
    return np.concatenate([inputs[:1] - half[:1], inputs[:-1] + half, inputs[-1:] + half[-1:]])


def _in_own_range(edges: FloatArray, box: Any, dimension: int) -> FloatArray:
    low, high = box.lows[dimension], box.highs[dimension]
    return np.asarray(low + (edges + 1) / 2 * (high - low))
