"""Quantiles, ranges and variances of numbers, whole numbers, dates and times: against independent computations."""

from __future__ import annotations

import datetime as dt
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import brentq
from scipy.special import ndtr, ndtri

import noisette as nz
from noisette.collector.results.estimates import Query, estimates
from noisette.survey.campaigns import Campaign
from noisette.survey.estimation.distributions import Shapes
from noisette.survey.estimation.hierarchy import CdfEstimate, agreed, tree
from noisette.survey.estimation.ratios import CellShares, Supports
from noisette.survey.reports import SurveyReports

FALSE_ALARM = 1e-6


def _asked(**given: Any) -> nz.Number:
    return nz.Number("x", **({"low": 0, "high": 1, "want": "quantiles"} | given))


@pytest.mark.parametrize(
    ("epsilon", "cells", "error"), [(1.0, 64, 4.35), (2.0, 64, 1.83), (1.0, 256, 5.79), (2.0, 256, 2.48)]
)
def test_the_error_of_the_distribution_function(epsilon: float, cells: int, error: float) -> None:
    """The specification's numbers: square root of n times the largest standard error, of empty cells taken as
    independent. Subset selection or randomised response, whichever has less variance at a level."""
    levels = []
    for size in tree(cells):
        made = [
            kind(epsilon=epsilon, domain=nz.Categorical(size))
            for kind in (nz.GeneralizedRandomizedResponse, nz.SubsetSelection)
        ]
        best = min(made, key=lambda one: one.moments(0).variance[1])
        variance = float(best.moments(0).variance[1])
        spread = np.full(size, variance / 1000)
        levels.append((best, CellShares(1000, np.zeros(size), spread, 0.0, 0.0, Supports.of(best))))
    _, spread, _ = agreed(levels, size)
    found = math.sqrt(np.diag(spread).max() * 1000 * len(levels))
    assert found == pytest.approx(error, rel=0.02)


def test_finer_and_coarser_cells_are_asked_for(tmp_path: Path) -> None:
    x = np.random.default_rng(4).beta(2, 5, 40_000)
    widths = {}
    for cells in (16, 64, 256):
        survey = nz.Survey([_asked(cells=cells)], epsilon=8.0)
        survey.save(tmp_path / "s.yaml")
        assert nz.Survey.read(tmp_path / "s.yaml") == survey
        answer = survey.estimate(survey.privatize({"x": x}, rng=5))["x"]
        low, high = answer.quantile_interval(0.5)
        assert low <= np.median(x) <= high
        assert (low * cells).is_integer()
        widths[cells] = high - low
    assert widths[16] >= 1 / 16 > widths[64] >= 1 / 64 > widths[256]
    assert "cells" not in _asked(cells=64).written()
    with pytest.raises(ValueError, match="cells=100 of 'x' to be one of 16, 64, 256"):
        _asked(cells=100)
    with pytest.raises(ValueError, match="want='quantiles' of 'x', which has cells, got 'mean'"):
        _asked(cells=256, want="mean")
    for bad in ("256", 256.0, True):
        with pytest.raises(TypeError, match="cells of x"):
            _asked(cells=bad)


def test_levels_agree_as_least_squares_says() -> None:
    """The shares of the finest cells from scipy's solution of the same problem with its constraint."""
    from scipy.optimize import minimize

    rng = np.random.default_rng(3)
    levels = []
    for size in (4, 16):
        mechanism = nz.GeneralizedRandomizedResponse(epsilon=1.0, domain=nz.Categorical(size))
        reports = mechanism.privatize(rng.integers(0, size, 500), rng=rng)
        made = mechanism.aggregate(reports)
        levels.append((mechanism, CellShares.of(mechanism, np.stack([made.count, made.total, made.squares]))))
    cdf, _, _ = agreed(levels, 16)

    def loss(shares: Any) -> float:
        total = 0.0
        for mechanism, cells in levels:
            own, other = mechanism.moments(0).variance[:2]
            size = cells.value.size
            weight = cells.users / (own / size + other * (1 - 1 / size))
            total += weight * np.sum((shares.reshape(size, -1).sum(axis=1) - cells.value) ** 2)
        return float(total)

    best = minimize(
        loss, np.full(16, 1 / 16), constraints={"type": "eq", "fun": lambda shares: shares.sum() - 1}, tol=1e-14
    )
    assert np.diff(cdf) == pytest.approx(best.x, abs=1e-4)
    assert cdf[0] == 0
    assert cdf[-1] == 1


@pytest.mark.long
def test_the_covariance_is_that_of_collections() -> None:
    """400 collections: the variance of F at each end of a cell is within chi-square bounds of what is stated, and half
    of what is stated is not."""
    from scipy.stats import chi2

    survey = nz.Survey([_asked()], epsilon=2.0)
    rng = np.random.default_rng(5)
    found, stated = [], []
    for _ in range(400):
        people = {"x": rng.beta(2, 5, 2000)}
        (one,) = survey.layout.tally(survey.privatize_coded(people, rng=rng)).by_question().values()
        assert isinstance(one, CdfEstimate)
        found.append(one.cdf[[8, 16, 32, 48]])
        stated.append(one.error[[8, 16, 32, 48]] ** 2)
    ratio = np.var(found, axis=0, ddof=1) / np.mean(stated, axis=0)
    low, high = chi2.ppf([FALSE_ALARM / 8, 1 - FALSE_ALARM / 8], 399) / 399
    assert np.all((low < ratio) & (ratio < high))
    assert np.all(2 * ratio > high)


def test_a_quantile_interval_is_the_set_of_cells_that_are_not_rejected() -> None:
    survey = nz.Survey([_asked()], epsilon=2.0)
    x = np.random.default_rng(2).beta(2, 5, 5000)
    answer = survey.estimate(survey.privatize({"x": x}, rng=3))["x"]
    found: Any = answer.estimate
    jump = found._jump(np.zeros(65, dtype=int), np.arange(65))
    error = np.hypot(found.error, jump)  # at which the chance that a cell of its share is kept is just 95 %, by scipy
    scores = []
    for cell, estimated in enumerate(np.diff(found.cdf)):
        spread = found.covariance[cell : cell + 2, cell : cell + 2]
        share = max(estimated - 1.5 * math.sqrt(spread[0, 0] + spread[1, 1] - 2 * spread[0, 1]), 0.0)
        wide = share / max(error[cell], error[cell + 1])
        scores.append(brentq(lambda z, wide=wide: ndtr(z + wide) - ndtr(-z) - 0.95, 1.6, 2.0))
    assert min(scores) < 1.85 < 1.95 < max(scores)
    for chance in (0.0, 0.05, 0.5, 0.95, 1.0):
        ends = [(found.band(z)[0][cell], found.band(z)[1][cell + 1]) for cell, z in enumerate(scores)]
        kept = [cell for cell, (least, most) in enumerate(ends) if least < chance <= most]
        low, high = answer.quantile_interval(chance, level=0.95)
        assert (low, high) == pytest.approx((min(kept) / 64, (max(kept) + 1) / 64) if kept else (0, 1))
        assert 0 <= answer.quantile(chance) <= 1
    low, high = answer.quantile_interval(0.5)
    assert low <= np.median(x) <= high
    assert high - low < 0.2
    value, least, most = answer.share_between(0.25, 0.5)
    assert least < np.mean((x >= 0.25) & (x < 0.5)) < most
    assert value == pytest.approx((least + most) / 2, abs=0.02)
    # between the ends of cells nothing is assumed: the interval has those of the cells inside and around
    inside, around = answer.share_between(17 / 64, 31 / 64), answer.share_between(16 / 64, 32 / 64)
    cut = answer.share_between(16.5 / 64, 31.5 / 64)
    assert (cut[1], cut[2]) == pytest.approx((inside[1], around[2]))
    first = answer.share_between(0, 1 / 64)  # the first cell, whole
    assert first[0] == pytest.approx(found.cdf[1])
    reach = ndtri(0.975) * found.error[1]  # the normal interval: 5,000 people make it a little wider
    assert first[1] == max(found.band(ndtri(0.975))[0][1], 0.0)
    assert found.cdf[1] + reach < first[2] < found.cdf[1] + 1.1 * reach
    with pytest.raises(ValueError, match="< high"):
        answer.share_between(0.5, 0.5)


@pytest.mark.slow
def test_bars_have_intervals_or_say_that_they_have_none() -> None:
    pytest.importorskip("plotly")
    x = np.random.default_rng(2).beta(2, 5, 5000)
    survey = nz.Survey([_asked(), nz.Number("y", 0, 1, want="distribution")], epsilon=4.0)
    results = survey.estimate(survey.privatize({"x": x, "y": x}, rng=3))
    held, smooth = results["x"].histogram(bins=16), results["y"].histogram(bins=16)
    assert np.all((held["share_low"] <= held["share"] + 1e-9) & (held["share"] <= held["share_high"] + 1e-9))
    assert "holds by itself" in held.attrs["note"]
    assert "share_low" not in smooth
    assert "no interval holds for it" in smooth.attrs["note"]
    assert results["x"].plot().data[0].error_y.array is not None
    assert "no interval" in results["y"].plot().layout.yaxis.title.text
    with pytest.raises(ValueError, match='ask it with want="quantiles"'):
        results["y"].share_between(0, 0.5)
    with pytest.raises(AttributeError, match=r"has no mean: take what it was asked for, quantile 0\.05"):
        _ = results["x"].mean


@pytest.mark.slow
def test_few_people_know_little() -> None:
    survey = nz.Survey([_asked(), nz.Number("y", 0, 1, want="variance")], epsilon=1.0)
    nothing = survey.aggregate([]).results()
    assert nothing["x"].quantile_interval(0.5) == (0.0, 1.0)
    assert nothing["x"].share_between(0, 0.5)[1:] == (0.0, 1.0)
    assert math.isnan(nothing.table()["value"].iloc[0])
    one = survey.estimate(survey.privatize({"x": [0.3], "y": [0.1]}, rng=3))
    assert one["x"].quantile_interval(0.5) == (0.0, 1.0)
    assert len(one.table()) == 7


# --- whole numbers, dates, times of day


def test_whole_numbers_have_cells_of_as_many() -> None:
    for low, high, cells, width in ((0, 9, 16, 1), (17, 90, 64, 2), (0, 3, 4, 1), (0, 1, 4, 1), (1, 64, 64, 1)):
        item: Any = _asked(low=low, high=high, whole=True).item
        assert item.edges.size == cells + 1
        assert np.all(np.diff(item.edges) == width)
    survey = nz.Survey([_asked(low=17, high=90, whole=True)], epsilon=4.0)
    ages = np.random.default_rng(1).integers(17, 91, 20_000)
    answer = survey.estimate(survey.privatize({"x": ages}, rng=3))["x"]
    low, high = answer.quantile_interval(0.5)
    assert low <= np.median(ages) <= high
    assert float(low).is_integer()
    with pytest.raises(ValueError, match=r"row 2, column 'x': expected a whole number, got 20\.5"):
        survey.privatize({"x": [20, 20.5]})
    with pytest.raises(ValueError, match="to be a whole number"):
        survey.answer({"x": 20.5})
    with pytest.raises(ValueError, match="whole numbers as ends"):
        _asked(low=0.5, high=3, whole=True)


@pytest.mark.long
def test_dates_are_shown_as_dates(tmp_path: Path) -> None:
    born = nz.Number("born", "1950-01-01", dt.date(2009, 12, 31), want="quantiles")
    rises = nz.Number("rises", dt.time(5), "10:00")
    survey = nz.Survey([born, rises], epsilon=6.0)
    rng = np.random.default_rng(1)
    days = pd.to_datetime("1950-01-01") + pd.to_timedelta(rng.integers(0, 21_900, 20_000), unit="D")
    clock = [dt.time(5 + int(m) // 60, int(m) % 60) for m in rng.integers(0, 300, 20_000)]
    people = pd.DataFrame({"born": days, "rises": clock})
    made = survey.privatize(people, rng=3)
    few = people.head(200)  # one batch of a file
    few.to_csv(tmp_path / "p.csv", index=False)
    few.to_parquet(tmp_path / "p.parquet")
    for name in ("p.csv", "p.parquet"):
        survey.privatize_file(tmp_path / name, tmp_path / "r.parquet", rng=3)
        assert SurveyReports.read(tmp_path / "r.parquet") == survey.privatize(few, rng=3)
    as_text = [{"born": str(day.date()), "rises": at.isoformat()} for day, at in zip(days, clock, strict=True)]
    assert survey.privatize(as_text, rng=3) == made
    results = survey.estimate(made)
    low, high = results["born"].quantile_interval(0.5)
    assert isinstance(low, dt.date)
    assert low <= days.to_series().median().date() <= high
    assert dt.time(7, 15) < results["rises"].mean < dt.time(7, 45)
    assert results["born"].share_between("1950-01-01", "1980-01-01")[0] == pytest.approx(0.5, abs=0.1)
    survey.save(tmp_path / "s.yaml")
    assert nz.Survey.read(tmp_path / "s.yaml") == survey
    assert nz.Survey.from_spec(json.loads(json.dumps(survey.spec()))) == survey
    assert survey.decode([survey.answer({"born": "1990-05-05", "rises": "06:30"}, rng=3)]).shape == (1,)


@pytest.mark.parametrize(
    ("value", "message"),
    [("1890-01-01", "outside"), ("yesterday", "row 2, column 'born': Expected born='yesterday' to be a date")],
)
def test_wrong_dates_are_named(value: str, message: str) -> None:
    survey = nz.Survey([nz.Number("born", "1950-01-01", "2009-12-31")], epsilon=1.0)
    with pytest.raises(ValueError, match=message):
        survey.privatize({"born": ["1990-01-01", value]})
    with pytest.raises(ValueError, match="born"):
        survey.answer({"born": value})


def test_wrong_ranges_are_named() -> None:
    with pytest.raises(ValueError, match="both ends of 'x' to be numbers, dates or times"):
        nz.Number("x", 0, "2000-01-01")
    with pytest.raises(ValueError, match="to be a date, such as 1990-12-31"):
        nz.Number("x", "1950-13-01", "2000-01-01")
    with pytest.raises(ValueError, match="to be one of mean, distribution, quantiles, variance"):
        nz.Number("x", 0, 1, want="mode")


def test_mean_and_variance() -> None:
    survey = nz.Survey([nz.Number("x", 0, 10, want="variance")], epsilon=2.0)
    x = 10 * np.random.default_rng(1).beta(2, 5, 40_000)
    answer = survey.estimate(survey.privatize({"x": x}, rng=3))["x"]
    limit = -ndtri(FALSE_ALARM / 4)
    assert abs(answer.mean - x.mean()) < limit * answer.estimate.std_error[0]
    assert abs(answer.variance - x.var()) < limit * answer.estimate.std_error[1]
    assert answer.interval()[0] < answer.mean < answer.interval()[1]


def test_the_collector_tells_intervals_that_hold() -> None:
    campaign = Campaign.from_dict(
        {"id": "c", "users": 1000, "epsilon": 4, "attributes": [{"name": "x", "range": [0, 1], "want": "quantiles"}]}
    )
    assert Campaign.from_wire(json.loads(json.dumps(campaign.to_wire()))).to_wire() == campaign.to_wire()
    x = np.random.default_rng(1).beta(2, 5, 20_000)
    sums = campaign.layout.tally(campaign.privatize_coded({"x": x}, rng=4))
    told = estimates(campaign, campaign.layout, {"once": {0: sums}}, Query("once"), Shapes())
    (shape,) = told["attributes"]
    truth = np.histogram(x, shape["distribution"]["edges"])[0] / x.size
    inside = (shape["distribution"]["low"] <= truth) & (truth <= shape["distribution"]["high"])
    assert inside.sum() >= 13
    middle = shape["quantiles"][2]
    assert middle["low"] <= np.median(x) <= middle["high"]
    assert [row["name"] for row in told["dimensions"]] == list(campaign.quantities)


def test_a_graded_number_beside_a_text_has_its_own_distribution() -> None:
    """Texts are counted apart: the sums of the section after them were once read as those of the one before."""
    survey = nz.Survey.from_dict(
        {
            "epsilon": 4.0,
            "questions": [
                {"name": "by", "categories": ["car", "bus"]},
                {"name": "site", "text": 4},
                {"name": "drinks", "levels": [[0, 50, 4.0], [50, 100, 2.0]]},
            ],
        }
    )
    people = [{"by": "car", "site": "a", "drinks": 10.0}] * 400
    answer = survey.estimate(survey.privatize(people, rng=3))["drinks"]
    edges, shares = answer.histogram(bins=2)["low"], answer.histogram(bins=2)["share"]
    assert edges.tolist() == [0.0, 50.0]
    assert shares.iloc[0] > 0.6  # everybody is below 50


@pytest.mark.slow
def test_the_variance_of_few_people_may_be_anything() -> None:
    """Where noise is larger than the range, its square is taken off the estimate: the interval is still the range."""
    survey = nz.Survey([_asked(want="variance")], epsilon=0.05)
    for seed in range(20):
        for people in (1, 2, 5):
            table = survey.estimate(survey.privatize({"x": np.full(people, 0.5)}, rng=seed)).table()
            row = table[table["quantity"] == "variance"].iloc[0]
            assert row["low"] == 0.0
            assert row["high"] > 0.0
            assert not math.isinf(row["value"])
