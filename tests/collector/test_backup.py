"""A backup while the service writes, a database made from it, and what `noisette collector` says and does."""

from __future__ import annotations

import json
import sqlite3
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.collector.helpers import COMMUTE, accept, entries, reconcile
from tests.collector.postgres import Postgres

from noisette.cli import verbs
from noisette.collector import Store
from noisette.collector.campaigns.life import Life, Untimely, taking
from noisette.collector.storage.backup import backup, restore, verify
from noisette.collector.storage.store import Refused
from noisette.survey.campaigns import Campaign
from noisette.survey.periods import period_at


def _run(*words: str, status: int = 0) -> Any:
    done = CliRunner().invoke(verbs, ["collector", *words, "--json"])
    assert done.exit_code == status, done.output
    return json.loads(done.output) if done.output.startswith("{") else done.output


def _there_and_back(first: str, second: str, folder: Path) -> None:
    """Fill a database, back it up, go on, restore it elsewhere, and look at both."""
    campaign = Campaign.from_dict(COMMUTE)
    store = Store(first)
    store.register(campaign)
    before = entries(campaign, 30, seed=1)
    for start in range(0, 30, 10):
        accept(store, campaign, *before[start : start + 10])
    made = backup(first, folder / "backup.db")
    after = entries(campaign, 5, seed=2)
    accept(store, campaign, *after)
    done = restore(folder / "backup.db", second, taking)
    other = Store(second)
    assert reconcile(other, campaign) == 30
    assert reconcile(store, campaign) == 35
    assert done["moment"] == made["moment"]
    assert done["unknown"] == ["commute/once"]  # what came after the backup is not known, and it is said
    assert accept(other, campaign, *before).repeated == 30  # what was spent before is
    with pytest.raises(Refused):
        accept(other, campaign, *[one | {"key": "another-key-of-the-same-user"} for one in before[:1]])
    assert [one["action"] for one in other.registry.log()] == ["open-campaign", "backup", "restore"]
    other.registry.add_key("later", "device", b"x" * 32, None, "test")  # numbers of the log go on
    with pytest.raises(ValueError, match="Expected an empty database"):
        restore(folder / "backup.db", second, taking)
    store.close()
    other.close()


def test_a_backup_of_sqlite(tmp_path: Path) -> None:
    _there_and_back(f"sqlite:///{tmp_path / 'one.db'}", f"sqlite:///{tmp_path / 'two.db'}", tmp_path)
    assert (tmp_path / "backup.db").stat().st_mode & 0o077 == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["backup.db", "one.db", "two.db"]
    with pytest.raises(FileExistsError, match="Choose another name"):
        backup(f"sqlite:///{tmp_path / 'one.db'}", tmp_path / "backup.db")
    with pytest.raises(ValueError, match="is no backup"):
        restore(tmp_path / "one.db", f"sqlite:///{tmp_path / 'three.db'}", taking)


@pytest.mark.long
def test_a_backup_of_postgresql(postgres: Postgres, tmp_path: Path) -> None:
    _there_and_back(postgres.new_database(), postgres.new_database(), tmp_path)


def test_what_does_not_agree_is_found(tmp_path: Path) -> None:
    path = tmp_path / "one.db"
    url = f"sqlite:///{path}"
    store, campaign = Store(url), Campaign.from_dict(COMMUTE)
    store.register(campaign)
    accept(store, campaign, *entries(campaign, 20))
    store.mix()
    store.close()
    assert [(one.users, one.reports, one.wrong) for one in verify(url)] == [(20, 20, "")]
    assert _run("verify", "--database", url)["rows"][0]["wrong"] == ""
    with sqlite3.connect(path) as database:
        kept = database.execute("SELECT vector FROM sums").fetchone()[0]
        changed = bytes([kept[0] ^ 1]) + kept[1:]
        database.execute("UPDATE sums SET vector = ?", (changed,))
        database.execute("DELETE FROM seen WHERE digest = (SELECT min(digest) FROM seen)")
    database.close()
    found = _run("verify", "--database", url, status=1)["rows"][0]
    assert "add up to others" in found["wrong"]
    with sqlite3.connect(path) as database:
        database.execute("UPDATE sums SET vector = ?", (kept,))
        database.execute("DELETE FROM seen")
    database.close()
    assert "20 tokens are not known" in next(iter(verify(url))).wrong


def test_the_command_line_does_what_the_console_does(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'one.db'}"
    file = tmp_path / "commute.yaml"
    file.write_text(json.dumps(COMMUTE | {"late": "2 days"}), encoding="utf-8")
    on = ("--database", url)
    assert _run("open", str(file), *on)["rows"] == [{"id": "commute", "state": "open"}]
    assert "There is a campaign 'commute' already" in _run("open", str(file), *on, status=2)
    edited = _run("edit", "commute", "closes=2999-12-31", "least=50", "title=Ways to work", "keep=90 days", *on)
    assert edited["rows"][0]["closes"] == "3000-01-01T00:00:00+00:00"
    assert edited["rows"][0]["keep"] == "7776000 seconds"
    assert _run("edit", "commute", "closes=", "--as", "ann", *on)["rows"][0]["closes"] is None
    assert "Cannot change 'epsilon'" in _run("edit", "commute", "epsilon=9", *on, status=2)
    assert "no campaign 'other' here. It has commute" in _run("close", "other", *on, status=2)
    assert _run("campaigns", *on)["rows"][0] | {"closes": 0} == {
        "id": "commute",
        "title": "Ways to work",
        "state": "open",
        "closes": 0,
        "reports": 0,
    }
    made = _run("add-key", "phones", "device", "--days", "30", *on)["rows"][0]
    assert len(made["key"]) >= 24
    assert "one of device, analyst, auditor, operator" in _run("add-key", "x", "chief", *on, status=2)
    assert [one["name"] for one in _run("keys", *on)["rows"]] == ["phones"]
    _run("end-key", "phones", *on)
    assert "There is no key 'phones'" in _run("end-key", "phones", *on, status=2)
    assert "is open. Close or archive it first" in _run("delete", "commute", "--yes", *on, status=2)
    _run("close", "commute", *on)
    _run("reopen", "commute", *on)
    _run("archive", "commute", *on)
    assert _run("prune", *on)["rows"] == [{"deleted": 0}]
    assert _run("delete", "commute", "--yes", *on)["rows"] == [{"id": "commute", "deleted": 0}]
    log = _run("audit", *on)["rows"]
    assert [one["action"] for one in log] == [
        "open-campaign",
        "edit-campaign",
        "edit-campaign",
        "add-key",
        "end-key",
        "close-campaign",
        "reopen-campaign",
        "archive-campaign",
        "delete-campaign",
    ]
    assert [one["who"] for one in log][2] == "ann"


def test_late_reports_are_not_known_either(tmp_path: Path) -> None:
    """A day takes reports for seven more: of each of these some may have come after the backup, and all are named."""
    store, campaign = Store(f"sqlite:///{tmp_path / 'one.db'}"), Campaign.from_dict(COMMUTE | {"period": "day"})
    store.register(campaign)
    store.close()
    backup(f"sqlite:///{tmp_path / 'one.db'}", tmp_path / "backup.db")
    done = restore(tmp_path / "backup.db", f"sqlite:///{tmp_path / 'two.db'}", taking)
    made = datetime.fromisoformat(done["moment"])
    days = [made - timedelta(days=back) for back in range(7, -1, -1)]
    assert done["unknown"][:8] == [f"commute/{day:%Y-%m-%d}" for day in days]
    assert len(done["unknown"]) <= 9  # and tomorrow, where the test runs just before midnight


@pytest.mark.long
def test_periods_that_took_reports_between_two_moments() -> None:
    """Against the rule itself: a period is named if and only if its reports are taken at some minute in between."""
    campaign = Campaign.from_dict(COMMUTE | {"period": "week"})
    since, until = datetime(2026, 3, 10, 12, tzinfo=UTC), datetime(2026, 3, 15, 23, 55, tzinfo=UTC)
    lives: list[dict[str, str]] = [
        {},
        {"late": "30 days"},
        {"opens": "2026-03-11"},
        {"closes": "2026-03-01", "late": "9 days"},
        {"closes": "2026-03-01", "late": "8 days"},
        {"opens": "2026-04-01"},
        {"skew": "4 minutes"},
    ]
    weeks = [period_at("week", since + timedelta(days=7 * step)) for step in range(-8, 4)]
    minutes = [since + timedelta(minutes=step) for step in range(0, int((until - since).total_seconds() // 60) + 1, 5)]
    for told in lives:
        wanted = [week for week in weeks if any(_taken(campaign, told, week, now) for now in minutes)]
        assert list(taking(campaign, told, since, until)) == wanted
        assert not list(taking(campaign, told | {"state": "closed"}, since, until))


def _taken(campaign: Campaign, told: dict[str, str], period: str, now: datetime) -> bool:
    try:
        Life.read(told).check(campaign, period, now)
    except Untimely:
        return False
    return True
