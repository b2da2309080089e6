"""How errors shrank is kept with the reports: through a restart, by several processes, and never too long."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest
import sqlalchemy as sa
from tests.collector.helpers import COMMUTE, accept, auth, entries, entry, known_keys, running, until

from noisette.collector import Store, create_app
from noisette.collector.storage import tables, tracks
from noisette.collector.storage.tracks import Tracker, follow
from noisette.collector.web import pages
from noisette.survey.campaigns import Campaign


def _found(users: int, quantities: int = 2) -> dict[str, Any]:
    """Return estimates after so many users, as far as a track looks at them."""
    return {
        "period": "once",
        "users": users,
        "dimensions": [{"std_error": (users + 1) ** -0.5 + k} for k in range(quantities)],
    }


def test_a_restart_loses_no_point(tmp_path: Path) -> None:
    plain = {"attributes": COMMUTE["attributes"][1:], "mechanism": "grr", "report": None}  # no distribution to find
    campaign = Campaign.from_dict(COMMUTE | plain)
    url = f"sqlite:///{tmp_path / 'reports.db'}"
    shown = []
    for users in (40, 100):
        store = Store(url)
        store.register(campaign)
        accept(store, campaign, *(entry(place % 4) for place in range(users)))
        with running(create_app([campaign], store, known_keys())) as address:
            path = f"{address}/dashboard/campaigns/{campaign.id}"
            told = httpx.get(path, headers=auth("analyst")).json()
            improved = httpx.get(path, headers=auth("auditor"), params={"enhance": "auto"}).json()
        assert improved["track"] == told["track"]
        shown.append(told["track"])
    assert [[point["users"] for point in track] for track in shown] == [[40], [40, 140]]
    assert shown[1][:1] == shown[0]
    assert [len(point["std_errors"]) for point in shown[1]] == [4, 4]


def test_errors_are_followed_though_nobody_looks(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """The points of the service's own thread are those that the dashboard would have added."""
    monkeypatch.setattr(tracks, "QUANTITIES", 3)  # of four
    monkeypatch.setattr(tracks, "_SECONDS_BETWEEN", 0.01)
    monkeypatch.setattr(pages, "QUANTITIES", 3)
    campaign = store.register(Campaign.from_dict(COMMUTE))
    app = create_app([campaign], store, known_keys())
    with running(app) as address:
        path = f"{address}/dashboard/campaigns/{campaign.id}"
        for users in (40, 80):
            accept(store, campaign, *entries(campaign, 40, seed=users))
            until(lambda users=users: _counts(store)[-1:] == [users])  # type: ignore[misc]  # bound now
            told = httpx.get(path, headers=auth("analyst")).json()
            assert told["track"][-1]["users"] == users
            shown = [row["std_error"] for row in told["estimates"]["dimensions"]]
            assert told["track"][-1]["std_errors"] == shown
            assert len(shown) == 4  # a mean and three of four shares
    assert _counts(store) == [40, 80]


def test_a_database_that_is_away_does_not_end_the_tracker(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    campaign = store.register(Campaign.from_dict(COMMUTE))
    accept(store, campaign, *entries(campaign, 5))
    asked: list[int] = []

    def away(*_: Any) -> dict[str, int]:
        asked.append(1)
        raise sa.exc.OperationalError("SELECT", {}, Exception("gone"))

    monkeypatch.setattr(tracks, "_SECONDS_BETWEEN", 0.01)
    with monkeypatch.context() as patch:
        patch.setattr(store, "periods", away)
        tracker = Tracker(store, lambda: [campaign])
        tracker.start()
        until(lambda: len(asked) > 2)
    until(lambda: _counts(store) == [5])
    tracker.close()


def _counts(store: Store) -> list[int]:
    with store.reading() as connection:
        return list(connection.execute(sa.select(tables.tracks.c.users).order_by(tables.tracks.c.users)).scalars())


def test_a_long_track_is_thinned(store: Store, campaign: Campaign, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracks, "_MOST_POINTS", 8)
    store.register(campaign)
    counts = [round(100 * 1.1**step) for step in range(60)]
    for users in counts:
        track = follow(store, campaign, _found(users), grow=True)
        assert track[-1] == {"users": users, "std_errors": [row["std_error"] for row in _found(users)["dimensions"]]}
        assert track[0]["users"] == counts[0]
        assert len(track) <= 9
        assert follow(store, campaign, _found(users), grow=True) == track  # nothing new
        assert follow(store, campaign, _found(users * 2), grow=False) == track
    assert len({point["users"] for point in track}) == len(track) >= 5
    assert follow(store, campaign, _found(0), grow=True) == track
    assert follow(store, campaign, _found(counts[-1], quantities=3), grow=True) == []  # another version's quantities


def test_a_database_without_tracks_is_brought_along(tmp_path: Path, campaign: Campaign) -> None:
    url = f"sqlite:///{tmp_path / 'reports.db'}"
    store = Store(url)
    store.register(campaign)
    accept(store, campaign, *entries(campaign, 3))
    with store.writing() as connection:  # as the second version left it
        tables.tracks.drop(connection)
        connection.execute(sa.update(tables.meta).values(version=2))
    store.close()
    store = Store(url)
    assert follow(store, campaign, _found(3), grow=True)[-1]["users"] == 3
    assert store.periods(campaign) == {"once": 3}
    with store.reading() as connection:
        assert connection.execute(sa.select(tables.meta.c.version)).scalar_one() == tables.SCHEMA
    store.close()
