"""A campaign's stored reports in partitions, of SQLite and PostgreSQL: to the bits of the sums that the store keeps."""

import json
import pickle
import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sqlalchemy as sa
from click.testing import CliRunner
from tests.collector.helpers import COMMUTE, accept, entry

from noisette.aggregation import aggregate_partitions
from noisette.aggregation.partitions import summed
from noisette.cli import verbs
from noisette.collector import Store
from noisette.collector.storage.partitions import BlockPartition, split_campaign
from noisette.survey.campaigns import Campaign

MOOD: dict[str, Any] = {
    "id": "mood",
    "epsilon": 2.0,
    "users": 1000,
    "period": "month",
    "attributes": [
        {"name": "mood", "categories": ["good", "fair", "bad"]},
        {"name": "week", "vector": 7, "range": [0, 10]},
    ],
    "public_group": {"name": "country", "values": ["es", "fr"]},
}
CAMPAIGNS = {fields["id"]: Campaign.from_dict(fields) for fields in (COMMUTE, MOOD)}
PERIODS = [("commute", "once"), ("mood", "2026-01"), ("mood", "2026-02")]


def _send(store: Store, name: str, period: str, users: int, seed: int) -> None:
    """Store the reports of some people."""
    rng, campaign = np.random.default_rng(seed), CAMPAIGNS[name]
    batch = []
    for number in range(users):
        if name == "commute":
            batch.append(entry(campaign.privatize({"minutes": 35, "by": "bike"}, rng=rng), period=period))
        else:
            person = {"mood": ["good", "bad"][number % 2], "week": [number % 10] * 7}
            group = ["es", "fr"][number % 2]
            batch.append(entry(campaign.privatize(person, rng=rng), period=period, group=group))
    accept(store, campaign, *batch)


def _filled(url: str) -> str:
    store = Store(url)
    for campaign in CAMPAIGNS.values():
        store.register(campaign)
    for turn in range(6):
        _send(store, "commute", "once", 60, turn)
        _send(store, "mood", f"2026-0{1 + turn // 3}", 40, turn)
    store.close()
    return url


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A database in which two campaigns took turns."""
    if request.param == "sqlite":
        return _filled(f"sqlite:///{tmp_path_factory.mktemp('database') / 'reports.db'}")
    return _filled(request.getfixturevalue("postgres").new_database())


def _first(url: str) -> BlockPartition:
    partition = split_campaign(url, "commute", users=100).partitions[0]
    assert isinstance(partition, BlockPartition)
    return partition


@pytest.mark.long
@pytest.mark.parametrize("users", [1, 100, 10**6])
@pytest.mark.parametrize(("name", "period"), PERIODS)
def test_the_bits_of_the_collectors_own_sums(url: str, name: str, period: str, users: int) -> None:
    store = Store(url)
    kept = store.aggregate(CAMPAIGNS[name], period)
    store.close()
    reports = split_campaign(url, name, period=period, users=users)
    sums = aggregate_partitions(reports)
    assert sums == kept
    assert sums.vector.any()
    assert kept.users == {"once": 360, "2026-01": 120, "2026-02": 120}[period]
    assert len(reports.partitions) == {1: kept.users // (60 if name == "commute" else 40), 10**6: 1}.get(
        users, 3 if name == "commute" else 1
    )


def test_partitions_and_sums_travel(url: str) -> None:
    reports = split_campaign(url, "mood", period="2026-01")
    summing, partition = pickle.loads(pickle.dumps((reports.summing, reports.partitions[0])))
    assert pickle.loads(pickle.dumps(summed(summing, partition))) == aggregate_partitions(reports)


def test_reports_that_come_later_are_left_out(tmp_path: Path) -> None:
    url = _filled(f"sqlite:///{tmp_path / 'r.db'}")
    reports = split_campaign(url, "commute")
    before = aggregate_partitions(reports)
    store = Store(url)
    _send(store, "commute", "once", 10, 99)
    assert aggregate_partitions(reports) == before
    later = aggregate_partitions(split_campaign(url, "commute"))
    assert later == store.aggregate(CAMPAIGNS["commute"], "once")
    assert later.users == before.users + 10
    store.close()


def test_a_partition_is_read_by_its_numbers(url: str) -> None:
    """Through the index on campaigns every partition would read the whole campaign."""
    engine = sa.create_engine(_first(url).url.replace("postgresql://", "postgresql+psycopg://"))
    text = str(_first(url).query((1, 2, 3)).compile(engine, compile_kwargs={"literal_binds": True})).replace("%%", "%")
    with engine.connect() as connection:
        if engine.dialect.name == "postgresql":  # whose planner reads a table of few pages as a whole
            connection.exec_driver_sql("SET enable_seqscan = off")
            text = f"EXPLAIN {text}"
        else:
            text = f"EXPLAIN QUERY PLAN {text}"
        plan = " ".join(str(row) for row in connection.exec_driver_sql(text))
    engine.dispose()
    assert "blocks_pkey" in plan or "INTEGER PRIMARY KEY (rowid=?)" in plan


def test_lost_and_damaged_blocks_are_seen(tmp_path: Path) -> None:
    path = tmp_path / "r.db"
    url = _filled(f"sqlite:///{path}")
    reports = split_campaign(url, "commute", users=100)
    connection = sqlite3.connect(path, isolation_level=None)
    number = reports.partitions[0].numbers[-1]
    (raw,) = connection.execute("SELECT rows FROM blocks WHERE number = ?", (number,)).fetchone()
    for damaged, why in (
        (raw[:-1], f"block {number:,} is damaged"),
        (bytes([7]) * len(raw), ""),  # no mechanism sends that
    ):
        connection.execute("UPDATE blocks SET rows = ? WHERE number = ?", (damaged, number))
        with pytest.raises(ValueError, match=f"2 blocks of campaign 'commute': .*{why}"):
            aggregate_partitions(reports)
    connection.execute("DELETE FROM blocks WHERE number = ?", (number,))
    with pytest.raises(ValueError, match=r"2 blocks of campaign 'commute' are no longer there.*Split it once more"):
        aggregate_partitions(reports)
    with pytest.raises(ValueError, match="Expected 360 reports, read 300"):
        aggregate_partitions(split_campaign(url, "commute"))
    connection.execute("UPDATE noisette_collector SET version = 1")
    with pytest.raises(ValueError, match="`noisette serve` of this version brings older ones up to date"):
        split_campaign(url, "commute")
    connection.close()


def test_what_cannot_be_read_is_said(url: str, tmp_path: Path) -> None:
    for name, period, why in (
        ("other", None, "no campaign 'other' in this database. Name one that it has: commute, mood"),
        ("mood", None, "2 periods, the last 2026-01, 2026-02. Name one"),
        ("mood", "2027-01", "no reports of period '2027-01'. Name one that has: 2026-01, 2026-02"),
    ):
        with pytest.raises(ValueError, match=why):
            split_campaign(url, name, period=period)
    with pytest.raises(FileNotFoundError, match="There is no file"):
        split_campaign(f"sqlite:///{tmp_path}/none.db", "commute")
    assert not list(tmp_path.iterdir())
    (tmp_path / "text.db").write_text("not a database" * 100, encoding="utf-8")
    sqlite3.connect(tmp_path / "empty.db").close()
    Store(f"sqlite:///{tmp_path}/new.db").close()
    for address, why in (
        (f"sqlite:///{tmp_path}/text.db", "file is not a database"),
        (f"sqlite:///{tmp_path}/empty.db", "There is no file|no such table"),
        (f"sqlite:///{tmp_path}/new.db", "It has none"),
        ("sqlite://", "sqlite:///FILE or postgresql://USER@HOST/NAME"),
        ("mysql://host/name", "sqlite:///FILE or postgresql://USER@HOST/NAME"),
        ("nonsense", "sqlite:///FILE or postgresql://USER@HOST/NAME"),
    ):
        with pytest.raises((ValueError, FileNotFoundError), match=why):
            split_campaign(address, "commute")


def test_a_password_is_never_shown() -> None:
    with pytest.raises(ValueError, match="cannot be read") as caught:
        split_campaign("postgresql://me:secret@127.0.0.1:1/name", "commute")
    assert "secret" not in str(caught.value)
    assert "me:***@127.0.0.1:1" in str(caught.value)
    partition = BlockPartition("postgresql://me:secret@host/name", "commute", "once", (1, 2), 3, np.dtype("f8"))
    assert "secret" not in f"{partition} {partition!r}"


def test_the_spec_in_the_database_is_what_sums(url: str) -> None:
    """The mechanism was chosen once: it is read from the stored definition, never chosen again."""
    reports = split_campaign(url, "commute")
    layout = aggregate_partitions(reports).layout
    assert layout.survey == CAMPAIGNS["commute"].survey


def test_the_command_estimates_a_campaign(url: str) -> None:
    one = _command(url, "--campaign", "commute", "--json")
    assert one["users"] == 360
    names = [entry["name"] for entry in one["dimensions"]]
    assert names == ["minutes", "by=car", "by=bike", "by=bus", "by=foot"]
    several = _command(url, "--campaign", "mood", "--period", "2026-02", "--json")["parts"]
    assert [part["users"] for part in several] == [120, 120]
    assert [len(part["dimensions"]) for part in several] == [3, 7]
    store = Store(url)
    for part, kept in zip(several, store.aggregate(CAMPAIGNS["mood"], "2026-02").estimates(), strict=True):
        assert [entry["value"] for entry in part["dimensions"]] == kept.value.tolist()
    store.close()
    shown = CliRunner().invoke(verbs, ["estimate", url, "--campaign", "commute"])
    assert "by=bike" in shown.output


def test_the_command_compares_periods(url: str) -> None:
    """Every period that has reports is an arm."""
    told = _command(url, "--campaign", "mood", "--compare", "periods", "--json")
    store = Store(url)
    campaign = CAMPAIGNS["mood"]
    periods = sorted(store.periods(campaign))
    pairs = {(row["a"], row["b"]) for row in told["differences"]}
    assert pairs == {(a, b) for place, a in enumerate(periods) for b in periods[place + 1 :]}
    assert told["users"] == sum(store.periods(campaign).values())
    first, second = (store.aggregate(campaign, period).by_question() for period in periods[:2])
    for row in told["differences"]:
        if (row["a"], row["b"]) == tuple(periods[:2]) and row["quantity"] == "mean":
            expected = second[row["question"]].value[0] - first[row["question"]].value[0]
            assert row["difference"] == pytest.approx(expected)
    store.close()
    alone = CliRunner().invoke(verbs, ["estimate", url, "--campaign", "commute", "--compare", "periods"])
    assert alone.exit_code == 2
    assert "at least two periods" in alone.output


def _command(*arguments: str) -> Any:
    done = CliRunner().invoke(verbs, ["estimate", *arguments])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def test_the_command_says_what_is_missing() -> None:
    for arguments, why in (
        (["sqlite:///r.db"], "Name one: --campaign ID"),
        (["r.parquet", "--period", "once"], "Name one: --campaign ID"),
        (["sqlite:///r.db", "sqlite:///s.db", "--campaign", "mood"], "Expected one database"),
        (["sqlite:///r.db", "--campaign", "mood"], "There is no file"),
        (["sqlite:///r.db", "--campaign", "mood", "--distribution"], "Leave out --ray and --campaign"),
    ):
        refused = CliRunner().invoke(verbs, ["estimate", *arguments])
        assert refused.exit_code == 2
        assert why in refused.output
