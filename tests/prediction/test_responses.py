"""What one report says at each value, by each kind of mechanism, on ranges that are not of length two."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import noisette as nz
from noisette.core import Moments
from noisette.prediction.model import deviations, responses

UNIT = np.asarray([-1.0, -0.25, 0.5, 1.0])
PARTS = ("bias", "variance", "third")


class Uneven:
    """Categories whose reports differ from category to category."""

    domain = nz.Categorical(4)
    kind = "frequency"

    def moments(self, codes: Any) -> Moments:
        own = np.asarray(codes)[:, None] == np.arange(4)
        variance = np.where(own, 2.0, 1.0) + np.asarray(codes)[:, None] / 8
        return Moments(0.125 * own, variance, 3 * variance)


def test_a_number() -> None:
    for domain, scale in ((nz.Interval(2, 12), 10.0), (nz.Interval(0, 0.5), 0.5)):
        made, values = nz.SquareWave(1.0, domain=domain), domain.low + (UNIT + 1) / 2 * scale
        found, moments = responses.respond(made, values), made.moments(values)
        assert (found.share, found.scale, found.codes) == (1.0, scale, None)
        assert np.array_equal(found.truth, values)
        assert all(np.array_equal(getattr(found, name), getattr(moments, name)) for name in PARTS)


def test_categories_that_are_alike_or_not() -> None:
    codes = np.asarray([0.0, 2.0, 3.0])
    uneven = responses._single(Uneven(), codes)  # type: ignore[arg-type]
    assert np.array_equal(uneven.truth, np.eye(4)[[0, 2, 3]])
    assert (uneven.share, uneven.scale, uneven.codes) == (1.0, 1.0, None)
    wanted = Uneven().moments([0, 2, 3])
    assert all(np.array_equal(getattr(uneven, name), getattr(wanted, name)) for name in PARTS)
    even = responses.respond(nz.GeneralizedRandomizedResponse(1.0, nz.Categorical(4)), codes)
    assert even.codes is not None
    assert even.codes.tolist() == [0, 2, 3]
    assert even.truth.tolist() == [[0.0] * 4, [1.0] * 4]
    assert (even.share, even.scale) == (1.0, 1.0)


@pytest.mark.parametrize(("low", "high"), [(2.0, 12.0), (-1.0, 1.0), (0.0, 0.5)])
def test_a_sample_of_numbers(low: float, high: float) -> None:
    """Of one column by the mechanism inside, stretched to the range; of whole rows by the mechanism itself."""
    made: Any = nz.Sampled("square-wave", epsilon=3.0, domain=nz.Box(4, low, high), report=3)
    half, inner = (high - low) / 2, made.inner_mechanism.moments(UNIT)
    values = (low + high) / 2 + half * UNIT
    found = responses.respond(made, values)
    assert (found.share, found.scale) == (0.75, pytest.approx(high - low))
    for name, power in (("bias", 1), ("variance", 2), ("third", 3)):
        assert getattr(found, name) == pytest.approx(getattr(inner, name) * half**power, rel=1e-9), name
    rows = np.stack([values, values[::-1], values, values])
    found, moments = responses.respond(made, rows), made.moments(rows)
    assert (found.share, found.scale) == (0.75, pytest.approx(high - low))
    assert all(np.array_equal(getattr(found, name), getattr(moments, name)) for name in PARTS)


@pytest.mark.parametrize(
    ("none", "every", "share", "peak"),
    [(1.0, 1.0, 0.5, 0.5), (1.0, 1.5, 0.25, None), (2.0, 1.0, 0.25, None), (1.0, 9.0, 0.5, 0.9), (9.0, 1.0, 0.5, 0.0)],
)
def test_the_share_of_the_largest_variance_is_among_those_that_are_tried(
    none: float, every: float, share: float, peak: float | None
) -> None:
    """Against a fine grid of shares, up to the nine tenths that can be chosen; 0 and 0.9 are beside the parabola's."""
    made: Any = SimpleNamespace(domain=nz.Selection(10, most=9), spread=(none, every), share=share)
    grid = deviations.selected_variance(made, np.linspace(0, 0.9, 9001))
    tried = deviations.extreme_shares(made)
    found = deviations.selected_variance(made, tried)
    assert tried[[0, -1]].tolist() == [0.0, 0.9]
    assert found.max() == pytest.approx(grid.max(), rel=1e-7)
    assert found.min() == pytest.approx(grid.min(), rel=1e-7)
    assert peak is None or tried[1] == pytest.approx(peak)


def test_the_largest_variance_of_real_selections_is_among_them_too() -> None:
    for name in ("privset", "drawn-option"):
        made: Any = nz.CATALOGUE[name](2.0, domain=nz.Selection(6, most=5))
        grid = deviations.selected_variance(made, np.linspace(0, 5 / 6, 2001))
        found = deviations.selected_variance(made, deviations.extreme_shares(made))
        assert found.max() >= grid.max() * (1 - 1e-12)
        assert found.min() <= grid.min() * (1 + 1e-12)
