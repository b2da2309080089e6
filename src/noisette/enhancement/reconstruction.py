"""Reconstruct the whole distribution of the inputs: EM, and EM with smoothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from noisette import _random, _validate
from noisette._random import Rng
from noisette._validate import FloatArray, IntArray
from noisette.core import Estimate, Mechanism
from noisette.domains import Categorical
from noisette.enhancement.channel import BinnedChannel, check_size
from noisette.mechanisms.categorical._base import CategoricalMechanism
from noisette.mechanisms.vector.sampled import Reports, Sampled

if TYPE_CHECKING:
    from noisette.aggregation import ReportFile

_TWO_NEIGHBOURS = 0.25  # weight of either one
_WEIGHTS = (0.25, 2.0**-4, 2.0**-6, 2.0**-8, 0.0)
_GAINED_BY_NOISE = 0.25  # of the log-likelihood, for each bin: more than noise was seen to gain
FILE_BINS = 64  # of the range of each dimension in report files


@dataclass(frozen=True, eq=False)
class Counted:
    """Reports by kind, what leads to them, and how the distribution behind them is sought.

    ``transition`` and ``counts`` are as in `expectation_maximization`; rows may be scaled, which changes no answer.
    """

    transition: FloatArray
    counts: FloatArray
    smoothing: float
    tolerance: float
    max_iterations: int

    def again(self, counts: FloatArray, *, smoothing: float) -> FloatArray:
        """Return the distribution that other counts give."""
        found = expectation_maximization(
            self.transition,
            counts,
            smoothing=smoothing,
            tolerance=self.tolerance,
            max_iterations=self.max_iterations,
        )
        return found.probabilities

    @property
    def inverted(self) -> FloatArray:
        """Variance of each share when the reports' shares are multiplied by the table's pseudo-inverse, at most one."""
        total = self.counts.sum()
        shares = self.counts / total
        inverse = np.linalg.pinv(self.transition)
        variance = (inverse**2 @ shares - (inverse @ shares) ** 2) / total
        return np.asarray(np.clip(variance, 0.0, 1.0))


@dataclass(frozen=True)
class Reconstruction:
    """A distribution of the inputs, and how it was found; ``values`` are the middles of the bins, or codes.

    ``source`` holds the counted reports; ``raw`` is the variance of each share in the plain estimate, without
    reconstruction.
    """

    probabilities: FloatArray
    log_likelihood: float
    iterations: int
    converged: bool
    values: FloatArray | None = None
    source: Counted | None = field(default=None, repr=False, compare=False)
    raw: FloatArray | None = field(default=None, repr=False, compare=False)

    def estimate(self, *, resamples: int = 20, rng: Rng = None) -> Estimate:
        """Return the shares as an Estimate, with errors from reconstructing resampled reports.

        std_error^2 is the variance over resamples of the counts, and with smoothing the square of its bias as well: the
        mean square by which it moves the shares away from those without smoothing, beyond what noise explains.
        ``expected_gain`` is the fall in mean squared error from the plain estimate: the mechanism's own for
        categories, the pseudo-inverse of the table for numbers.

        *Utility*: of the distribution that the users come from. Efron and Tibshirani 1993, chapters 6 and 10.

        >>> found = expectation_maximization([[0.75, 0.25], [0.25, 0.75]], [600, 400])
        >>> shares = found.estimate(rng=1)
        >>> shares.value.round(2), shares.std_error.round(2)
        (array([0.7, 0.3]), array([0.03, 0.03]))
        """
        if self.source is None:
            raise ValueError(
                "This reconstruction holds no reports. Take it from reconstruct or expectation_maximization."
            )
        resamples = _validate.integer(resamples, "resamples", low=2)
        counts, generator = self.source.counts, _random.generator(rng)
        total = round(float(counts.sum()))
        drawn = generator.multinomial(total, counts / counts.sum(), size=resamples)
        found = self._resampled(drawn, self.source.smoothing)
        square = found.var(axis=0, ddof=1)
        if self.source.smoothing:
            moved = self.probabilities - self.source.again(counts, smoothing=False)
            scatter = (found - self._resampled(drawn, False)).var(axis=0, ddof=1)
            square = square + max(0.0, float(np.mean(moved**2 - scatter)))
        raw = self.source.inverted if self.raw is None else self.raw
        return Estimate(
            value=self.probabilities,
            std_error=np.sqrt(square),
            count=np.full(self.probabilities.size, total),
            low=0.0,
            high=1.0,
            method="ems" if self.source.smoothing else "em",
            expected_gain=float(np.mean(raw - square)),
            kind="frequency",
        )

    def _resampled(self, drawn: IntArray, smoothing: float) -> FloatArray:
        """Return the distributions behind drawn counts, a row each."""
        assert self.source is not None
        return np.stack([self.source.again(row.astype(np.float64), smoothing=smoothing) for row in drawn])


def expectation_maximization(
    transition: Any,
    counts: Any,
    *,
    smoothing: float = False,
    tolerance: float = 1e-8,
    max_iterations: int = 10_000,
) -> Reconstruction:
    """Return the input distribution that makes the counted reports most likely.

    p_i <- p_i sum_o c_o T_oi / (T p)_o / sum c, from the uniform distribution, with T = ``transition``: the chance of
    report bin o given input bin i. With ``smoothing`` each step is followed by averaging neighbours with weights
    1, 2, 1 over 4 (at the ends the bin itself stands in for the missing neighbour); a number below 1/2 is the weight
    of either neighbour, and True stands for 1/4. Stops when the log-likelihood
    changes by less than ``tolerance`` of itself. ``estimate()`` on the result gives an Estimate with errors and gain.

    *Guarantee.* Post-processing: the privacy of the reports is untouched. Counts of batches add up, so it works on
    streams.

    *Utility.* Without smoothing the likelihood rises with every step and the result, run to its end, follows the
    noise; smoothing trades that for a distribution without sharp peaks. It needs an order of the bins: use it for
    numbers, not for categories.

    Li, Wang, Lopuhaa-Zwakenberg, Li, Skoric 2020, Estimating numerical distributions under local differential
    privacy, algorithm 1.

    >>> expectation_maximization([[0.75, 0.25], [0.25, 0.75]], [600, 400]).probabilities.round(2)
    array([0.7, 0.3])
    """
    table, reports = _checked(transition, counts)
    _validate.positive(tolerance, "tolerance")
    _validate.integer(max_iterations, "max_iterations", low=1)
    weight = _TWO_NEIGHBOURS if smoothing is True else _validate.number(float(smoothing), "smoothing")
    if not 0 <= weight < 0.5:
        raise ValueError(f"Expected smoothing={smoothing!r} to be true, false, or a weight in [0, 0.5).")
    source = Counted(table, reports, weight, tolerance, max_iterations)
    seen = reports > 0
    table, reports = table[seen], reports[seen]
    total = reports.sum()
    p = np.full(table.shape[1], 1 / table.shape[1])
    fitted = table @ p
    if np.any(fitted == 0):
        bad = int(np.flatnonzero(seen)[np.argmax(fitted == 0)])
        raise ValueError(
            f"Report bin {bad} was counted {reports[np.argmax(fitted == 0)]:g} times, but no input leads there. "
            "Give reports of this very mechanism."
        )
    likelihood = float(reports @ np.log(fitted))
    for step in range(1, max_iterations + 1):
        p = p * ((reports / fitted) @ table) / total
        if weight:
            padded = np.concatenate([p[:1], p, p[-1:]])
            p = weight * (padded[:-2] + padded[2:]) + (1 - 2 * weight) * p
        p /= p.sum()
        fitted = table @ p
        before, likelihood = likelihood, float(reports @ np.log(fitted))
        if abs(likelihood - before) <= tolerance * abs(likelihood):
            return Reconstruction(p, likelihood, step, converged=True, source=source)
    return Reconstruction(p, likelihood, max_iterations, converged=False, source=source)


def smoothed_as_needed(transition: Any, counts: Any) -> Reconstruction:
    """Return the reconstruction of `expectation_maximization` with as much smoothing as the reports allow.

    Neighbours weigh 1/4, 1/16, 1/64, 1/256 or nothing: the first is taken whose log-likelihood is within a quarter of
    the number of bins of the largest, that without smoothing. So much is gained by following the noise alone, and a
    peak that people really have, such as forty hours a week, gains hundreds.

    >>> exact = np.eye(8) * 0.93 + 0.01
    >>> smoothed_as_needed(exact, exact @ [0, 0, 0, 900, 0, 0, 100, 0]).probabilities.round(2).tolist()
    [0.0, 0.0, 0.0, 0.9, 0.0, 0.0, 0.1, 0.0]
    """
    found = [expectation_maximization(transition, counts, smoothing=weight) for weight in _WEIGHTS]
    best = max(one.log_likelihood for one in found)
    allowed = found[0].probabilities.size * _GAINED_BY_NOISE
    return next(one for one in found if one.log_likelihood >= best - allowed)


def reconstruct(
    mechanism: Mechanism,
    reports: Any = None,
    *,
    counts: Any = None,
    bins: int = 64,
    smoothing: bool | None = None,
    tolerance: float = 1e-8,
    max_iterations: int = 10_000,
) -> Reconstruction:
    """Return the distribution of the inputs behind reports, or behind their ``counts`` by bin.

    Works for every mechanism of one number, by the chances of its report bins, and of one category, by the likelihood
    of the distinct reports. ``smoothing=None`` smooths numbers and leaves categories alone. For a stream, keep
    ``channel = BinnedChannel.of(mechanism, bins=bins)``, add up ``channel.count(batch)``, give the sum as ``counts``.

    >>> import noisette as nz
    >>> m = nz.SquareWave(epsilon=2.0)
    >>> reports = m.privatize(np.full(20_000, 0.5), rng=1)
    >>> found = reconstruct(m, reports, bins=16)
    >>> round(float(found.values @ found.probabilities), 1)
    0.5
    """
    if (reports is None) == (counts is None):
        raise ValueError("Expected either reports or counts.")
    domain = mechanism.domain
    ordered = not isinstance(domain, Categorical)
    if reports is not None and isinstance(mechanism, CategoricalMechanism) and mechanism.report_shape != ():
        values = np.arange(mechanism.domain.size, dtype=np.float64)
        table, tally = _distinct(mechanism, np.asarray(reports), values.size)
    else:
        channel = BinnedChannel.of(mechanism, bins=bins)
        values, table = channel.values, channel.matrix
        tally = np.asarray(channel.count(reports) if counts is None else counts, dtype=np.float64)
    found = expectation_maximization(
        table,
        tally,
        smoothing=ordered if smoothing is None else smoothing,
        tolerance=tolerance,
        max_iterations=max_iterations,
    )
    raw = None
    if not ordered:
        moments = mechanism.moments(values.astype(np.int64))
        raw = found.probabilities @ moments.variance / np.sum(tally)
    return replace(found, values=values, raw=raw)


def _distinct(mechanism: Mechanism, reports: Any, size: int) -> tuple[FloatArray, FloatArray]:
    """Return the likelihood of each distinct report for each category, rows scaled to one, and how often it came."""
    rows = reports.reshape(-1, reports.shape[-1])
    if rows.size == 0:
        raise ValueError(f"Expected at least one report, got an array of shape {reports.shape}.")
    distinct, counts = np.unique(rows, axis=0, return_counts=True)
    check_size(distinct.shape[0] * size)
    inside = mechanism.support.contains(distinct)
    if not np.all(inside):
        raise ValueError(
            f"Report {distinct[np.argmin(inside)]} is outside the support of {mechanism.name}. "
            "Give reports of this very mechanism."
        )
    log_table = np.stack([mechanism.log_prob(distinct, np.asarray(code)) for code in range(size)], axis=1)
    return np.exp(log_table - log_table.max(axis=1, keepdims=True)), counts.astype(np.float64)


def _checked(transition: Any, counts: Any) -> tuple[FloatArray, FloatArray]:
    """Check shapes and signs."""
    table = _validate.reals(transition, "transition")
    reports = _validate.reals(counts, "counts")
    if table.ndim != 2 or reports.shape != (table.shape[0],):
        raise ValueError(
            f"Expected transition of shape (report bins, input bins) and one count for each report bin, "
            f"got {table.shape} and {reports.shape}."
        )
    for name, array in (("transition", table), ("counts", reports)):
        if not (np.all(np.isfinite(array)) and np.all(array >= 0)):
            bad = array[~(np.isfinite(array) & (array >= 0))].flat[0]
            raise ValueError(f"Expected {name} >= 0 and finite, got {bad}.")
    if reports.sum() == 0:
        raise ValueError("Expected at least one report, got counts that are all zero.")
    return table, reports


def distributions(
    files: Sequence[ReportFile], *, on_progress: Callable[[int], None]
) -> list[tuple[FloatArray, FloatArray]]:
    """Return for each dimension of report files the edges of bins, and how likely a true value is in each.

    The files are read once, in constant memory.
    """
    mechanism = files[0].mechanism
    sampled = isinstance(mechanism, Sampled)
    inner = mechanism.inner_mechanism if sampled else mechanism
    if inner.domain.kind not in ("interval", "grid"):
        raise ValueError(
            f"A distribution needs a mechanism for numbers one by one; {mechanism.name} {_why(mechanism)}."
        )
    channel = BinnedChannel.of(inner, bins=FILE_BINS)
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
            made = expectation_maximization(channel.matrix, counts[dimension], smoothing=True)  # as reconstruct does
            found.append((own, made.probabilities))
        else:
            found.append((own, np.full(edges.size - 1, np.nan)))
    return found


def _why(mechanism: Any) -> str:
    if mechanism.kind in ("frequency", "attributes"):
        return "gives the frequencies of categories, which are the distribution: enhance them by simplex"
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
