"""From an Estimate to the plain problem y ~ N(theta, s^2) on a common scale, and back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from noisette._validate import FloatArray
from noisette.core import Estimate
from noisette.domains import BoolArray
from noisette.enhancement.stein import Enhanced, clipped

Scale = Literal["common", "thesis", "own"]
_FEW = 10  # reports: equal ones are luck, not certainty


@dataclass(frozen=True)
class Problem:
    """Coordinates with a finite, positive standard error, where the domain is [-1, 1].

    ``origin`` is the value that shrinkage may take for nothing: the middle of a domain, zero for frequencies and
    where no domain is known.
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

    @property
    def debiased(self) -> FloatArray:
        """Observations less their predicted bias."""
        return self.observed - self.bias

    @property
    def frequency(self) -> bool:
        """Whether the quantities are frequencies of one attribute's categories."""
        return self.estimate.kind == "frequency"

    @classmethod
    def of(cls, estimate: Estimate, bias: Any, *, scale: Scale = "common") -> Problem:
        """Check an estimate and put it on a scale.

        ``"common"`` maps every dimension's domain on [-1, 1], and without a domain the data's reach. ``"thesis"`` does
        so for means with a domain and leaves other quantities as they are, ``"own"`` leaves all as they are.
        """
        value = np.ravel(np.asarray(estimate.value, dtype=np.float64))
        error = _steady(np.ravel(np.asarray(estimate.std_error, dtype=np.float64)), np.ravel(estimate.count))
        _check(value, error)
        shift = np.broadcast_to(np.asarray(bias, dtype=np.float64), np.shape(estimate.value)).ravel()
        if not np.all(np.isfinite(shift)):
            raise ValueError(f"Expected finite bias, got {shift[~np.isfinite(shift)][0]}.")
        low, high = _bounds(estimate)
        active = np.isfinite(error) & (error > 0)
        bounded = bool(np.all(np.isfinite(low)) and np.all(np.isfinite(high)))
        frequency = estimate.kind == "frequency"
        if bounded and (scale == "common" or (scale == "thesis" and not frequency)):
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
        )

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
            blank_error = min(blank_error, 1 + abs(blank_value))
        value[self.active] = self.centre[self.active] + self.radius[self.active] * answer
        error[self.active] = self.radius[self.active] * doubt
        if np.isfinite(blank_value) and np.isfinite(blank_error):
            value[self.blank] = self.centre[self.blank] + self.radius[self.blank] * blank_value
            error[self.blank] = self.radius[self.blank] * blank_error
        raw = self.std_error**2 + self.bias**2
        size = max(1, int(np.count_nonzero(~self.blank)))
        gain = float(np.sum(self.radius[self.active] ** 2 * (raw - result.risk))) / size
        shape = np.shape(self.estimate.value)
        return replace(
            self.estimate,
            value=value.reshape(shape),
            std_error=error.reshape(shape),
            tail=None,
            method=method,
            expected_gain=gain,
        )


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


def _steady(error: FloatArray, count: Any) -> FloatArray:
    """Replace a standard error of zero from a handful of equal reports by what the other coordinates show."""
    lucky = (error == 0) & (count > 1) & (count <= _FEW)
    seen = np.isfinite(error) & (error > 0) & (count > 1)
    if not (np.any(lucky) and np.any(seen)):
        return error
    one_report = float(np.mean(error[seen] ** 2 * count[seen]))
    return np.where(lucky, np.sqrt(one_report / np.maximum(count, 1)), error)
