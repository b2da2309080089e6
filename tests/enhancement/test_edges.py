"""Edges of enhancement: what is just refused and just taken, sharp peaks in a bin at the end, and files of reports."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.held import Held, refusal

import noisette as nz
from noisette.aggregation.files import ReportFile, write_reports
from noisette.core import Estimate
from noisette.enhancement import channel, enhance, hdr4me, problem, reconstruction, shrinkage, simplex

HELD = Held(__file__)
MEANS = Estimate(np.asarray([0.4, -0.1, 0.2]), np.full(3, 0.5), np.full(3, 100), low=-1.0, high=1.0)
SHARES = Estimate(np.asarray([0.4, 0.1, 0.5]), np.full(3, 0.1), np.full(3, 100), low=0.0, high=1.0, kind="frequency")
GRR = nz.GeneralizedRandomizedResponse(1.0, nz.Categorical(3))
TABLE = [[0.75, 0.25], [0.25, 0.75]]


def confidence(level: float) -> Any:
    return hdr4me.supremum(np.ones(2), np.zeros(2), confidence=level)


def fitted(table: Any = TABLE, counts: Any = (600.0, 400.0), **options: Any) -> Any:
    return reconstruction.expectation_maximization(table, counts, **options)


# What is asked with a value that is just refused, and with one that is just taken.
EDGES: dict[str, tuple[Callable[[Any], Any], Any, Any]] = {
    "no estimate": (enhance, np.ones(3), MEANS),
    "a method": (lambda m: enhance(MEANS, m), "boxes", "box"),
    "another's option": (lambda o: enhance(MEANS, "hdr4me-l1", **o), {"significance": 0.1}, {"confidence": 0.9}),
    "a method that needs the range": (lambda e: enhance(e, "box"), replace(MEANS, low=None, high=None), MEANS),
    "shares that start at 0": (lambda e: enhance(e, "simplex"), replace(SHARES, low=-0.1), SHARES),
    "a confidence from below": (confidence, 0.0, 1e-9),
    "a confidence from above": (confidence, 1.0, 1 - 1e-9),
    "a significance from below": (lambda s: simplex.base_cut(np.ones(2), np.ones(2), significance=s), 0.0, 1e-9),
    "a significance from above": (lambda s: simplex.base_cut(np.ones(2), np.ones(2), significance=s), 1.0, 1 - 1e-9),
    "a target": (lambda t: shrinkage.james_stein(np.ones(4), np.ones(4), target=t), "mean", "grand-mean"),
    "a bias": (lambda b: problem.NormalMeans.of(MEANS, b), [0.1, np.inf, 0.1], [0.1, 1e9, 0.1]),
    "a range of one dimension": (
        lambda high: problem.NormalMeans.of(replace(MEANS, low=0.5, high=high), 0.0),
        [1.0, 0.5, 1.0],
        [1.0, math.nextafter(0.5, 1), 1.0],
    ),
    "an error below none": (
        lambda error: problem.NormalMeans.of(replace(MEANS, std_error=np.asarray([0.5, error, 0.5])), 0.0),
        -1e-300,
        0.0,
    ),
    "a value that is none": (
        lambda value: problem.NormalMeans.of(replace(MEANS, value=np.asarray([0.5, value, 0.5])), 0.0),
        math.inf,
        1e300,
    ),
    "groups of too few": (lambda g: problem.run_lengths(replace(SHARES, groups=g)), (1, 1), (1, 2)),
    "groups of too many": (lambda g: problem.run_lengths(replace(SHARES, groups=g)), (2, 2), (3,)),
    "an empty group": (lambda g: problem.run_lengths(replace(SHARES, groups=g)), (3, 0), (2, 1)),
    "a table too large": (channel.check_size, channel._LARGEST_TABLE + 1.0, float(channel._LARGEST_TABLE)),
    "smoothing from below": (lambda s: fitted(smoothing=s), -1e-9, 0.0),
    "smoothing from above": (lambda s: fitted(smoothing=s), 0.5, 0.4999),
    "no round": (lambda n: fitted(max_iterations=n), 0, 1),
    "no tolerance": (lambda t: fitted(tolerance=t), 0.0, 1e-12),
    "a count too few": (lambda c: fitted(counts=c), [1.0], [1.0, 0.0]),
    "counts of nobody": (lambda c: fitted(counts=c), [0.0, 0.0], [0.0, 1e-9]),
    "a count below none": (lambda c: fitted(counts=c), [0.0, -1e-9], [2.0, 0.0]),
    "a count that is no number": (lambda c: fitted(counts=c), [2.0, np.nan], [2.0, 3.0]),
    "a chance below none": (lambda t: fitted(table=t), [[1.0, 0.0], [0.0, -1e-9]], [[1.0, 0.5], [0.0, 0.5]]),
    "a table of one row": (lambda t: fitted(table=t, counts=[1.0]), [0.5, 0.5], [[0.5, 0.5]]),
    "neither reports nor counts": (lambda r: reconstruction.reconstruct(GRR, r), None, [0, 1]),
    "both reports and counts": (lambda c: reconstruction.reconstruct(GRR, [0, 1], counts=c), [1.0, 1.0, 1.0], None),
    "one draw": (lambda n: fitted().estimate(resamples=n, rng=1), 1, 2),
    "what holds no reports": (lambda f: f.estimate(resamples=2, rng=1), replace(fitted(), source=None), fitted()),
    "one bin": (lambda n: channel.BinnedChannel.of(nz.Duchi(1.0), bins=n), 1, 2),
    "a report of no selection": (
        lambda r: reconstruction.reconstruct(nz.SubsetSelection(0.5, nz.Categorical(6)), r),
        [[0, 6], [0, 1]],
        [[0, 5], [0, 1]],
    ),
    "no report of a set": (
        lambda r: reconstruction.reconstruct(nz.SubsetSelection(0.5, nz.Categorical(6)), r),
        np.zeros((0, 2), dtype=np.int64),
        np.asarray([[0, 1]]),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", EDGES)
def test_what_is_just_refused_and_just_taken(name: str) -> None:
    asked, refused, taken = EDGES[name]
    HELD.check(name, refusal(lambda: asked(refused)))
    asked(taken)


@pytest.mark.parametrize("name", ["laplace", "staircase", "piecewise", "square-wave"])
@pytest.mark.parametrize("epsilon", [2.0, 8.0])
def test_a_sharp_peak_is_not_missed_in_any_bin(name: str, epsilon: float) -> None:
    """All chances of a value's reports add up to one, and of a sharp peak they are where the value is."""
    mechanism = nz.CATALOGUE[name](epsilon)
    inputs = np.asarray([-1.0, -0.97, -0.34, 0.31, 0.7, 0.971, 0.999])
    chances = channel.chances_at(mechanism, inputs, bins=3)
    assert chances.sum(axis=0) == pytest.approx(1, abs=1e-5)
    edges = channel.report_edges(mechanism, bins=3)
    if epsilon > 5 and edges is not None:
        place = np.clip(np.searchsorted(edges, inputs, side="right") - 1, 0, len(edges) - 2)
        assert np.all(chances[place, np.arange(inputs.size)] > 0.25)


def test_auto_answers_for_a_category_that_nobody_was_asked_about_as_the_simplex_does() -> None:
    """On few categories it is the simplex on another scale; errors so small that no limit of the domain hides it."""
    value, error = np.asarray([0.3, 0.0, 0.25, 0.35, 0.0]), np.asarray([1e-3, np.inf, 2e-3, 1e-3, np.inf])
    shares = Estimate(value, error, np.full(5, 9000), low=0.0, high=1.0, kind="frequency")
    own, auto = enhance(shares, "simplex"), enhance(shares, "auto")
    assert auto.value == pytest.approx(own.value, rel=1e-12)
    assert auto.std_error == pytest.approx(own.std_error, rel=1e-12)
    assert own.value[1] == pytest.approx((1 - own.value[[0, 2, 3]].sum()) / 2)
    assert 0 < own.std_error[1] < 0.3  # the limit is 0.95


@pytest.mark.slow
@pytest.mark.parametrize("sampled", [False, True])
def test_files_hold_the_distribution_that_their_reports_hold(sampled: bool, tmp_path: Path) -> None:
    """Each dimension by itself, as from the reports in memory; nothing is known of one that nobody reported."""
    if sampled:
        box = nz.Box(3, (2, -4, 0), (12, 6, 10))
        mechanism: Any = nz.Sampled("square-wave", epsilon=2.0, domain=box, report=1)
        reports = [mechanism.privatize(np.full((400, 3), 5.0), rng=seed) for seed in (1, 2)]
    else:
        mechanism = nz.SquareWave(2.0)
        reports = [mechanism.privatize(np.full(400, 0.3), rng=seed) for seed in (1, 2)]
    write_reports(tmp_path / "reports.parquet", mechanism, iter(reports))
    seen: list[int] = []
    found = reconstruction.distributions([ReportFile.open(tmp_path / "reports.parquet")], on_progress=seen.append)
    assert sum(seen) == 800
    assert len(found) == (3 if sampled else 1)
    inner = mechanism.inner_mechanism if sampled else mechanism
    for dimension, (edges, chances) in enumerate(found):
        own = reports
        if sampled:
            own = [part.values[part.indices == dimension] for part in reports]
        alone = reconstruction.reconstruct(
            inner, np.concatenate([np.ravel(part) for part in own]), bins=reconstruction.FILE_BINS
        )
        assert chances == pytest.approx(alone.probabilities, abs=1e-9)
        assert edges.size == chances.size + 1
        assert (edges[0], edges[-1]) == ((box.lows[dimension], box.highs[dimension]) if sampled else (-1.0, 1.0))


if __name__ == "__main__":
    HELD.write({name: refusal(partial(asked, refused)) for name, (asked, refused, _) in EDGES.items()})
