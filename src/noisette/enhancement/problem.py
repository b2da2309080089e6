"""From an Estimate to the plain problem y ~ N(theta, s^2) on a common scale, and back; a record kind by kind."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from noisette._validate import FloatArray, IntArray
from noisette.core import Estimate
from noisette.domains import BoolArray
from noisette.enhancement.stein import Enhanced, clipped

Scale = Literal["common", "canonical", "own"]
_FEW_REPORTS = 10  # up to which equal reports are chance, and no proof of a standard error of zero


@dataclass(frozen=True)
class NormalMeans:
    """Coordinates with a finite, positive standard error, where the domain is [-1, 1].

    ``origin`` is the value that shrinkage may take for nothing: the middle of a domain, zero for frequencies and
    where no domain is known. ``runs`` numbers the attribute that each coordinate of the estimate belongs to.
    """

    estimate: Estimate
    observed: FloatArray
    std_error: FloatArray
    bias: FloatArray
    centre: FloatArray
    radius: FloatArray
    active: BoolArray
    blank: BoolArray
    origin: float
    bounded: bool
    runs: IntArray

    @property
    def debiased(self) -> FloatArray:
        """Observations less their predicted bias."""
        return self.observed - self.bias

    @property
    def frequency(self) -> bool:
        """Whether the quantities are frequencies of categories."""
        return self.estimate.kind == "frequency"

    @classmethod
    def of(cls, estimate: Estimate, bias: Any, *, scale: Scale = "common") -> NormalMeans:
        """Check an estimate and put it on a scale.

        ``"common"`` maps every dimension's domain on [-1, 1], and without a domain the data's reach. ``"canonical"``
        does so for means with a domain and leaves other quantities as they are, ``"own"`` leaves all as they are.
        """
        value = np.ravel(np.asarray(estimate.value, dtype=np.float64))
        low, high = _bounds(estimate)
        error = np.ravel(np.asarray(estimate.std_error, dtype=np.float64))
        error = _steady(error, np.ravel(estimate.count), (value < low) | (value > high))
        _check(value, error)
        shift = np.broadcast_to(np.asarray(bias, dtype=np.float64), np.shape(estimate.value)).ravel()
        if not np.all(np.isfinite(shift)):
            raise ValueError(f"Expected finite bias, got {shift[~np.isfinite(shift)][0]}.")
        groups = run_lengths(estimate)
        active = np.isfinite(error) & (error > 0)
        bounded = bool(np.all(np.isfinite(low)) and np.all(np.isfinite(high)))
        frequency = estimate.kind == "frequency"
        if bounded and (scale == "common" or (scale == "canonical" and not frequency)):
            centre, radius = (low + high) / 2, (high - low) / 2
        else:
            reach = np.abs(value[active] - shift[active]) + 3 * error[active]
            unit = float(np.max(reach)) if scale == "common" and reach.size else 1.0
            centre, radius = np.zeros_like(value), np.full_like(value, unit)
        return cls(
            estimate,
            (value[active] - centre[active]) / radius[active],
            error[active] / radius[active],
            shift[active] / radius[active],
            centre,
            radius,
            active,
            ~np.isfinite(error),
            -1.0 if bounded and frequency and scale == "common" else 0.0,
            bounded,
            np.repeat(np.arange(len(groups)), groups),
        )

    def each_attribute(self, rule: Callable[[IntArray, int, float], Enhanced]) -> Enhanced:
        """Run a rule on the categories of each attribute.

        It gets the places of those that were reported, how many were not, and what known frequencies leave of one.
        """
        shape = self.observed.shape
        value, error, slope, risk = (np.empty(shape) for _ in range(4))
        blanks, blank_errors = (np.empty(np.count_nonzero(self.blank)) for _ in range(2))
        known = ~(self.active | self.blank)
        reported, missing, certain = (_places(self.runs, mask) for mask in (self.active, self.blank, known))
        sure = np.ravel(np.asarray(self.estimate.value, dtype=np.float64))[known]
        for here, absent, fixed in zip(reported, missing, certain, strict=True):
            found = rule(here, absent.size, max(0.0, 1.0 - float(np.sum(sure[fixed]))))
            value[here], error[here], slope[here], risk[here] = found.value, found.std_error, found.slope, found.risk
            blanks[absent], blank_errors[absent] = found.blank_value, found.blank_error
        return Enhanced(value, error, slope, risk, blanks, blank_errors)

    def inside(self, result: Enhanced) -> Enhanced:
        """Project a result on the domain where there is one."""
        return clipped(self.debiased, self.std_error, result) if self.bounded else result

    def about_origin(self, rule: Callable[[FloatArray, FloatArray], Enhanced]) -> Enhanced:
        """Run a rule that shrinks toward zero with the origin in its place, then project on the domain."""
        result = rule(self.debiased - self.origin, self.std_error)
        value, blank_value = result.value + self.origin, result.blank_value + self.origin
        return self.inside(replace(result, value=value, blank_value=blank_value))

    def solve(self, result: Enhanced, method: str) -> Estimate:
        """Return the estimate that holds a result, with the gain that it promises on the estimate's own scale."""
        value = np.ravel(np.asarray(self.estimate.value, dtype=np.float64)).copy()
        error = np.ravel(np.asarray(self.estimate.std_error, dtype=np.float64)).copy()
        answer, doubt = result.value, result.std_error
        blank_value, blank_error = result.blank_value, result.blank_error
        if self.bounded:  # a truth inside is no farther than the far end
            doubt = np.minimum(doubt, 1 + np.abs(answer))
            blank_error = np.minimum(blank_error, 1 + np.abs(blank_value))
        value[self.active] = self.centre[self.active] + self.radius[self.active] * answer
        error[self.active] = self.radius[self.active] * doubt
        known = np.isfinite(blank_value) & np.isfinite(blank_error)
        value[self.blank] = np.where(
            known, self.centre[self.blank] + self.radius[self.blank] * blank_value, value[self.blank]
        )
        error[self.blank] = np.where(known, self.radius[self.blank] * blank_error, error[self.blank])
        raw = self.std_error**2 + self.bias**2
        size = max(1, int(np.count_nonzero(~self.blank)))
        gain = float(np.sum(self.radius[self.active] ** 2 * (raw - result.risk))) / size
        shape = np.shape(self.estimate.value)
        return replace(
            self.estimate,
            value=value.reshape(shape),
            std_error=error.reshape(shape),
            tail=None,
            ends=None,
            noise=None,
            method=method,
            expected_gain=gain,
        )


def run_lengths(estimate: Estimate) -> tuple[int, ...]:
    """Return the lengths of the runs of quantities that belong together."""
    size = int(np.size(estimate.value))
    if estimate.groups is None:
        return (size,)
    if sum(estimate.groups) != size or min(estimate.groups, default=1) < 1:
        raise ValueError(
            f"Expected groups={estimate.groups} to be the numbers of quantities of each attribute, {size} in all."
        )
    return tuple(estimate.groups)


def _places(runs: IntArray, mask: BoolArray) -> list[IntArray]:
    """Return for each run the places, among the coordinates of the mask, of its own ones."""
    own = runs[mask]
    number = int(runs[-1]) + 1 if runs.size else 0
    return np.split(np.arange(own.size), np.searchsorted(own, np.arange(1, number)))


def _check(value: FloatArray, error: FloatArray) -> None:
    """Refuse numbers that no collection gives."""
    wrong = np.isnan(error) | (error < 0)
    if np.any(wrong):
        place = int(np.argmax(wrong))
        raise ValueError(
            f"Expected std_error >= 0, got {error[place]} in dimension {place}. "
            "Use infinity where nothing was reported."
        )
    wrong = ~np.isfinite(value) & np.isfinite(error)
    if np.any(wrong):
        place = int(np.argmax(wrong))
        raise ValueError(
            f"Expected a finite value in dimension {place}, got {value[place]} with std_error={error[place]}. "
            "Drop the dimension, or set its std_error to infinity to mark it as not reported."
        )


def _bounds(estimate: Estimate) -> tuple[FloatArray, FloatArray]:
    """Return the domain's ends for each coordinate, infinite where unknown."""
    shape = np.shape(estimate.value)
    low = np.broadcast_to(-np.inf if estimate.low is None else np.asarray(estimate.low, dtype=float), shape).ravel()
    high = np.broadcast_to(np.inf if estimate.high is None else np.asarray(estimate.high, dtype=float), shape).ravel()
    if not np.all(low < high):
        place = int(np.argmin(low < high))
        raise ValueError(f"Expected low < high in every dimension, got [{low[place]}, {high[place]}] in {place}.")
    return low, high


def _steady(error: FloatArray, count: Any, impossible: BoolArray) -> FloatArray:
    """Replace a standard error that is zero by chance by what the other coordinates show.

    A handful of equal reports is chance, and so is a value outside its domain: a category that no report named.
    """
    by_chance = (error == 0) & (count > 1) & ((count <= _FEW_REPORTS) | impossible)
    seen = np.isfinite(error) & (error > 0) & (count > 1)
    if not (np.any(by_chance) and np.any(seen)):
        return error
    one_report = float(np.mean(error[seen] ** 2 * count[seen]))
    return np.where(by_chance, np.sqrt(one_report / np.maximum(count, 1)), error)


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
