"""What the sums say: distributions, quantiles, groups, drift, and the same as files; against truth and by twins."""

from __future__ import annotations

import csv
import io
import math
from typing import Any

import numpy as np
import pytest
from scipy.stats import norm

from noisette.collector.results.estimates import Query, drift, estimates, homogeneity
from noisette.collector.results.exports import rows, to_csv, to_parquet
from noisette.survey.campaigns import Campaign
from noisette.survey.estimation.distributions import Shapes
from noisette.survey.sums import Layout, Sums

NUMBER = {"name": "minutes", "range": [0, 120]}
LABELS = {"name": "by", "categories": ["car", "bike", "bus"]}
ALARM = 1e-6


def _made(**changes: Any) -> Campaign:
    base: dict[str, Any] = {"id": "c", "epsilon": 4.0, "users": 1000, "attributes": [NUMBER, LABELS]}
    return Campaign.from_dict(base | changes)


def _people(count: int, seed: int) -> dict[str, Any]:
    """Drivers travel 20 minutes on average, cyclists 40, bus riders 80."""
    rng = np.random.default_rng(seed)
    codes = rng.choice(3, count, p=[0.5, 0.3, 0.2])
    minutes = np.asarray([20.0, 40.0, 80.0])[codes] + rng.uniform(-15, 15, count)
    return {"minutes": minutes, "by": codes}


def _told(campaign: Campaign, parts: dict[str, dict[int, Sums]], layout: Layout, **query: Any) -> dict[str, Any]:
    return estimates(campaign, layout, parts, Query("once", **query), Shapes())


@pytest.mark.parametrize("name", ["piecewise", "laplace", "hybrid"])
def test_a_distribution_is_near_the_truth(name: str) -> None:
    """The most likely distribution of 200,000 reports is within 0.12 of the truth in every cumulative share, where a
    flat one, which uses no report, is not (the twin)."""
    campaign = _made(attributes=[NUMBER], mechanism=name)
    layout = campaign.layout
    minutes = np.random.default_rng(2).gamma(4, 8, 200_000).clip(0, 120)
    sums = layout.tally(campaign.privatize_coded({"minutes": minutes}, rng=9))
    (told,) = _told(campaign, {"once": {0: sums}}, layout)["attributes"]
    shape = told["distribution"]
    truth = np.mean(minutes[:, None] <= shape["edges"][1:], axis=0)
    assert np.abs(np.cumsum(shape["probabilities"]) - truth).max() < 0.12
    assert np.abs(shape["edges"][1:] / 120 - truth).max() > 0.3
    middle = told["quantiles"][2]
    assert abs(middle["value"] - np.median(minutes)) < 6
    assert shape["low"] is shape["high"] is middle["low"] is None
    assert "no interval holds for it" in told["note"]


def test_two_points_tell_no_distribution() -> None:
    campaign = _made(attributes=[NUMBER], mechanism="duchi")
    layout = campaign.layout
    sums = layout.tally(campaign.privatize_coded({"minutes": np.full(50, 30.0)}, rng=1))
    (told,) = _told(campaign, {"once": {0: sums}}, layout)["attributes"]
    assert told["distribution"] is None
    assert "two kinds" in told["reason"]


@pytest.mark.parametrize("mechanism", ["levelled", "optimal-graded"])
def test_graded_numbers(mechanism: str) -> None:
    levels = [[0, 50, 2.0], [50, 100, 1.0]]
    campaign = _made(attributes=[{"name": "income", "levels": levels}], mechanism=mechanism)
    assert campaign.mechanism.guarantee.epsilon <= 4.0
    layout = campaign.layout
    income = np.random.default_rng(3).choice([20.0, 80.0], 100_000, p=[0.7, 0.3])
    sums = layout.tally(campaign.privatize_coded({"income": income}, rng=9))
    found = _told(campaign, {"once": {0: sums}}, layout)
    (row,), (told,) = found["dimensions"], found["attributes"]
    assert abs(row["value"] - income.mean()) < norm.isf(ALARM / 2) * row["std_error"]
    shares = np.asarray(told["distribution"]["probabilities"])
    assert shares[: shares.size // 2].sum() == pytest.approx(0.7, abs=0.05)
    assert told["quantiles"][0]["value"] < 50 < told["quantiles"][-1]["value"]


@pytest.mark.long
def test_vectors_and_tensors() -> None:
    attributes = [
        {"name": "v", "vector": 3, "range": [-1, 1]},
        {"name": "t", "tensor": [2, 2], "range": [0, 1]},
        {"name": "way", "vector": 4, "length": 1.0},
        NUMBER,
    ]
    campaign = _made(attributes=attributes, epsilon=12.0)
    assert campaign.quantities[:5] == ("minutes", "v[0]", "v[1]", "v[2]", "t[0,0]")
    assert campaign.mechanism.guarantee.epsilon <= 12.0 * (1 + 1e-12)
    layout = campaign.layout
    truth = {
        "minutes": np.asarray(60.0),
        "v": np.asarray([0.5, -0.5, 0.0]),
        "t": np.asarray([[0.0, 1.0], [0.5, 0.25]]),
        "way": np.asarray([0.6, 0.8, 0.0, 0.0]),
    }
    people = {name: np.broadcast_to(value, (30_000, *value.shape)).copy() for name, value in truth.items()}
    found = _told(campaign, {"once": {0: layout.tally(campaign.privatize_coded(people, rng=4))}}, layout)
    wanted = np.concatenate([truth[name].ravel() for name in ("minutes", "v", "t", "way")])
    scores = [
        abs(row["value"] - value) / row["std_error"] for row, value in zip(found["dimensions"], wanted, strict=True)
    ]
    assert max(scores) < norm.isf(ALARM / 2 / len(scores))
    assert [one["kind"] for one in found["attributes"]] == ["number", "vector", "tensor", "vector"]


def test_public_groups_add_up_to_everybody() -> None:
    campaign = _made(public_group={"name": "region", "values": ["north", "south"]})
    layout = campaign.layout
    parts = {
        group: layout.tally(campaign.privatize_coded(_people(300 + group, group), rng=9 + group)) for group in (0, 1)
    }
    found = _told(campaign, {"once": parts}, layout)
    (region,) = found["groups"]
    assert [(one["value"], one["users"]) for one in region["values"]] == [("north", 300), ("south", 301)]
    assert found["users"] == 601
    both = sum(row["value"] * row["reports"] for row in (one["dimensions"][0] for one in region["values"]))
    assert both / found["dimensions"][0]["reports"] == pytest.approx(found["dimensions"][0]["value"], rel=1e-12)


def test_sums_are_the_same_bits_in_any_order() -> None:
    campaign = _made(joint=[["by", "minutes"]])
    layout = campaign.layout
    sent = campaign.privatize_coded(_people(900, 1), rng=2)
    whole = layout.tally(sent)
    parts = [layout.tally(sent[start : start + 300]) for start in (600, 0, 300)]
    assert sum(parts, start=layout.nothing()) == whole
    assert parts[0] + parts[1] != whole


def test_drift_is_seen_and_no_drift_is_not() -> None:
    """P-values of 200 collections without change are uniform by Kolmogorov's test; a shift of one period is found."""
    from scipy.stats import kstest

    campaign = _made(attributes=[NUMBER], mechanism="piecewise", period="week")
    layout = campaign.layout

    def weeks(seed: int, shift: float) -> dict[str, Any]:
        rng = np.random.default_rng(seed)
        sums = {
            f"2026-W0{week}": {
                0: layout.tally(
                    campaign.privatize_coded({"minutes": rng.uniform(0, 60, 400) + shift * (week == 3)}, rng=rng)
                )
            }
            for week in range(1, 5)
        }
        return drift(campaign, layout, sums)["quantities"][0]

    chances = [weeks(seed, 0.0)["p_value"] for seed in range(200)]
    assert kstest(chances, "uniform").pvalue > ALARM
    changed = weeks(1, 40.0)
    assert changed["degrees"] == 3
    assert changed["adjusted"] < ALARM


def test_homogeneity_against_its_definition() -> None:
    values, errors = np.asarray([1.0, 2.0, 4.0, np.nan]), np.asarray([1.0, 0.5, 2.0, np.inf])
    mean = np.average(values[:3], weights=errors[:3] ** -2)
    wanted = sum(((v - mean) / e) ** 2 for v, e in zip(values[:3], errors[:3], strict=True))
    statistic, degrees, chance = homogeneity(values, errors)
    assert (statistic, degrees) == (pytest.approx(wanted), 2)
    assert chance == pytest.approx(math.exp(-wanted / 2))  # chi-square of two degrees is exponential
    assert homogeneity(values[:1], errors[:1]) == (None, 0, None)


EVIL = ["=1+1", "+x", "-x", "@sum", '"; DROP TABLE x', "<script>", "a,b", "\u00e9"]


def test_files_are_the_same_rows_and_run_nothing() -> None:
    campaign = _made(
        attributes=[{"name": "=cmd", "range": [-1, 0]}, {"name": "by", "categories": EVIL}],
        public_group={"name": "@region", "values": ["=north", "south"]},
    )
    layout = campaign.layout
    people = {"=cmd": np.full(60, -0.5), "by": np.arange(60) % len(EVIL)}
    found = _told(campaign, {"once": {0: layout.tally(campaign.privatize_coded(people, rng=1))}}, layout)
    listed = list(rows(found))
    assert len(listed) == 3 * len(campaign.quantities)
    text = to_csv(found).decode()
    read = list(csv.DictReader(io.StringIO(text, newline="")))
    assert len(read) == len(listed)
    for row, wanted in zip(read, listed, strict=True):
        for name in ("group", "member", "name"):
            assert not row[name].lstrip().startswith(("=", "+", "-", "@"))
            assert row[name].removeprefix("'") == wanted[name]
        value = wanted["value"]
        assert row["value"] == ("" if not math.isfinite(value) else repr(float(value)))
    import pyarrow.parquet as parquet

    table = parquet.read_table(io.BytesIO(to_parquet(found))).to_pylist()
    assert [one["name"] for one in table] == [one["name"] for one in listed]  # Parquet runs nothing: texts as they are
    assert table[0]["value"] == pytest.approx(listed[0]["value"], rel=1e-15)
    assert table[-1]["value"] is None
