"""When enough users will have come: against simulated arrivals, and as the collector keeps them."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import sqlalchemy as sa
from scipy.stats import f as f_law
from tests.collector.helpers import accept, entries
from tests.collector.postgres import Postgres

from noisette.collector import Store
from noisette.collector.campaigns.life import Life
from noisette.collector.results import pace
from noisette.collector.results.pace import Pace, guessed, in_words, pace_of
from noisette.collector.storage import tables, tracks
from noisette.collector.storage.tracks import Tracker, arrivals, note_arrivals
from noisette.survey.campaigns import Campaign

NOW, DAY, TRIALS = 1_800_000_000.0, 86400.0, 4000


@pytest.mark.parametrize(("came", "needed"), [(5, 3), (40, 400), (400, 40)])
def test_the_interval_holds_as_often_as_it_says(came: int, needed: int) -> None:
    """Arrivals at one rate: 95 % of the intervals hold the time of the last one that is needed.

    The share of TRIALS that hold is within 4.9 standard deviations of 95 %, a false alarm of 1e-6. The twin takes the
    time that the pace says, give or take nothing of the chance that it was a lucky hour, and holds far less often.
    """
    rng = np.random.default_rng(5)
    holds = naive = 0
    for _ in range(TRIALS):
        waited = rng.gamma(came)  # the seconds in which so many came, at one a second
        takes = rng.gamma(needed)
        low, high = Pace(came, waited).until(needed)
        holds += low <= takes <= high
        middle = waited * needed / came
        naive += abs(takes - middle) <= 1.96 * middle / np.sqrt(needed)
    slack = 4.9 * np.sqrt(TRIALS * 0.95 * 0.05)
    assert abs(holds - 0.95 * TRIALS) < slack
    if came < needed:
        assert abs(naive - 0.95 * TRIALS) > slack


def test_the_shortest_window_that_tells_a_pace_is_taken() -> None:
    hourly = [(NOW - hour * 3600.0, 1000 - 10 * hour) for hour in range(60, 0, -1)]
    found = pace_of(hourly, 1000, NOW)
    assert found is not None
    assert (found.users, found.seconds) == (240, DAY)
    slow = [(NOW - day * DAY, 100 - 2 * day) for day in range(20, 0, -1)]
    found = pace_of(slow, 100, NOW)
    assert found is not None
    assert (found.users, found.seconds) == (38 + 2, 20 * DAY)  # in a week only 14 came
    young = [(NOW - 20.0, 0), (NOW - 10.0, 50)]
    found = pace_of(young, 100, NOW)
    assert found is not None
    assert (found.users, found.seconds) == (100, 20.0)
    assert pace_of([], 0, NOW) is None
    assert pace_of([(NOW - 50 * DAY, 100)], 101, NOW) is None  # one user in fifty days


def test_who_comes_in_bursts_is_guessed_with_care() -> None:
    """Three hundred came in one hour of a day, after a mail, say: a second mail may come or not."""
    even = [(NOW - hour * 3600.0, 300 - round(12.5 * hour)) for hour in range(24, 0, -1)]
    burst = [(NOW - 24 * 3600.0, 0), (NOW - 13 * 3600.0, 0), (NOW - 12 * 3600.0, 300), (NOW - 3600.0, 300)]
    calm, wild = pace_of(even, 300, NOW), pace_of(burst, 300, NOW)
    assert calm is not None
    assert wild is not None
    assert calm.users == wild.users == 300
    assert calm.unevenness < 2 < 100 < wild.unevenness
    (low, high), (lower, higher) = calm.until(300), wild.until(300)
    assert higher / lower > 10 * high / low


def test_it_is_said_in_words(campaign: Campaign) -> None:
    steady = [(NOW - hour * 3600.0, 2400 - 100 * hour) for hour in range(24, 0, -1)]
    assert guessed(campaign, Life(), "once", steady, 2400, NOW)(100) == "in 48 to 73 min at the pace of the last day"
    assert guessed(campaign, Life(), "once", steady, 2400, NOW)(24_000) == "in 9 to 11 days at the pace of the last day"
    assert guessed(campaign, Life(), "once", steady, 2400, NOW)(0) == ""
    assert guessed(campaign, Life(state="closed"), "once", steady, 2400, NOW)(100) == ""
    soon = datetime.fromtimestamp(NOW, UTC) + timedelta(hours=2)
    ends = guessed(campaign, Life(closes=soon), "once", steady, 2400, NOW)
    assert ends(100).startswith("in 48 to")
    assert ends(2400) == "not before it ends, at the pace of the last day"
    assert guessed(campaign, Life(closes=soon), "once", steady, 2400, NOW + DAY)(100) == ""
    assert in_words(None, 100) == "too few came lately to guess when"
    assert in_words(Pace(3, 7 * DAY), 3_000_000) == "not within ten years at the pace of the last week"
    assert in_words(Pace(4, DAY, 4.0), 40).endswith("days at the pace of the last day")
    assert in_words(Pace(300, 40.0), 10) == "in about 1 min at the pace of the last minute"


def test_the_tracker_keeps_when_users_came(store: Store, campaign: Campaign, monkeypatch: pytest.MonkeyPatch) -> None:
    store.register(campaign)
    tracker, clock = Tracker(store, lambda: [campaign]), [NOW]
    monkeypatch.setattr(tracks.time, "time", lambda: clock[0])
    for _ in range(3):
        tracker.look()
        accept(store, campaign, *entries(campaign, 4, seed=int(clock[0]) % 97))
        clock[0] += 30
    tracker.look()
    assert arrivals(store, campaign, "once")[-1] == (NOW + 90, 12)
    assert (NOW + 30, 4) in arrivals(store, campaign, "once")
    found = pace_of(arrivals(store, campaign, "once"), 12, clock[0])
    assert found is not None
    assert (found.users, found.seconds) == (12, 90.0)
    store.registry.change(campaign.id, {"state": "closed"}, "test", "close-campaign", {})
    store.registry.delete(campaign.id, "test")  # what belongs to it goes with it
    with store.reading() as connection:
        assert connection.execute(sa.select(sa.func.count()).select_from(tables.arrivals)).scalar_one() == 0


def test_long_histories_are_short(store: Store, campaign: Campaign) -> None:
    store.register(campaign)
    for minute in range(0, 40 * 24 * 60, 30):
        note_arrivals(store, campaign, "once", [(NOW + 60.0 * minute, minute)])
    kept = arrivals(store, campaign, "once")
    assert len(kept) < 28 * 24 + 10
    assert kept[-1][0] - kept[0][0] == pytest.approx(28 * DAY, abs=7200)


def test_a_database_of_before_is_brought_along(tmp_path: Path, campaign: Campaign) -> None:
    _brought_along(f"sqlite:///{tmp_path / 'reports.db'}", campaign)


@pytest.mark.long
def test_a_postgresql_of_before_is_brought_along(postgres: Postgres, campaign: Campaign) -> None:
    """It holds texts to their length: links to campaigns with long names could not be made."""
    _brought_along(postgres.new_database(), campaign)


def _brought_along(url: str, campaign: Campaign) -> None:
    before = Store(url)
    with before.writing() as connection:
        tables.arrivals.drop(connection)
        connection.execute(sa.update(tables.meta).values(version=7))
        if connection.dialect.name == "postgresql":
            connection.execute(sa.text("ALTER TABLE keys ALTER COLUMN role TYPE VARCHAR(16)"))
    before.close()
    store = Store(url)
    store.register(campaign)
    note_arrivals(store, campaign, "once", [(NOW, 3)])
    assert arrivals(store, campaign, "once") == [(NOW, 3)]
    store.registry.add_key("link-x", f"viewer/{'a' * 63}", b"1" * 32, None, "test")
    assert "viewer/" + "a" * 63 in {one["role"] for one in store.registry.api_keys()}
    store.close()


def test_the_interval_is_that_of_an_f_law() -> None:
    for users, seconds, uneven, needed, level in ((40, 500.0, 1.0, 7, 0.95), (90, 3600.0, 2.5, 300, 0.8)):
        law = f_law(2 * needed / uneven, 2 * users / uneven)
        low, high = Pace(users, seconds, uneven).until(needed, level)
        middle = seconds * needed / users
        assert low == pytest.approx(middle * law.ppf((1 - level) / 2), rel=1e-9)
        assert high == pytest.approx(middle * law.ppf((1 + level) / 2), rel=1e-9)
    assert Pace(10, 5.0).unevenness == 1.0
    assert Pace(40, 500.0).until(7) == Pace(40, 500.0).until(7, 0.95)


@pytest.mark.parametrize(
    ("day", "week", "ever", "users", "seconds"),
    [
        (30, 100, 500, 30, DAY),  # enough in a day
        (29, 100, 500, 100, 7 * DAY),
        (29, 30, 500, 30, 7 * DAY),
        (29, 29, 500, 500, 20 * DAY),
        (3, 3, 3, 3, 20 * DAY),
        (0, 0, 3, 3, 20 * DAY),
        (0, 0, 2, None, None),  # two are too few
    ],
)
def test_windows_and_how_many_have_to_come_in_them(
    day: int, week: int, ever: int, users: int | None, seconds: float | None
) -> None:
    points = [(NOW - 20 * DAY, 1000 - ever), (NOW - 7 * DAY, 1000 - week), (NOW - DAY, 1000 - day)]
    found = pace_of(points, 1000, NOW)
    assert (found and found.users, found and found.seconds) == (users, seconds)


def test_a_history_that_begins_within_a_window_ends_it() -> None:
    young = [(NOW - 1000.0, 0), (NOW - 500.0, 2)]
    found = pace_of(young, 5, NOW)
    assert found is not None
    assert (found.users, found.seconds) == (5, 1000.0)
    assert pace_of(young, 2, NOW) is None
    assert pace_of([(NOW, 0)], 50, NOW) is None  # in no time at all
    exactly = [(NOW - DAY, 0)]
    found = pace_of(exactly, 10, NOW)
    assert found is not None
    assert (found.users, found.seconds) == (10, DAY)


@pytest.mark.parametrize(
    ("window", "bins"),
    [(120.0, 12), (1800.0, 12), (1801.0, 0), (2 * 3600.0, 0), (3 * 3600.0, 3), (11.5 * 3600.0, 11), (30 * 3600.0, 12)],
)
def test_unevenness_is_the_variance_of_parts_over_their_mean(window: float, bins: int) -> None:
    moments = NOW - window + window * np.asarray([0.0, 0.1, 0.15, 0.5, 0.85, 1.0])
    counts = np.asarray([0.0, 300.0, 310.0, 400.0, 800.0, 900.0])
    found = pace._unevenness(moments, counts, NOW - window, NOW)
    if not bins:
        assert found == 1.0
        return
    ends = [NOW - window + window * place / bins for place in range(bins + 1)]
    at = [float(np.interp(end, moments, counts)) for end in ends]
    each = [after - before for before, after in pairwise(at)]
    mean = sum(each) / bins
    variance = sum((one - mean) ** 2 for one in each) / (bins - 1)
    assert found == pytest.approx(max(1.0, variance / mean), rel=1e-9)
    assert found > 1
    even = np.asarray([0.0, 90.0, 135.0, 450.0, 765.0, 900.0])
    assert pace._unevenness(moments, even, NOW - window, NOW) == 1.0


@pytest.mark.parametrize(
    ("low", "high", "text"),
    [
        (0.0, 30.0, "about 1 min"),
        (30.0, 61.0, "1 to 2 min"),
        (61.0, 119.0, "1 to 2 min"),
        (130.0, 7199.0, "2 to 120 min"),
        (130.0, 7200.0, "2 min to 2 h"),
        (3700.0, 7200.0, "1 to 2 h"),
        (7300.0, 172799.0, "2 to 48 h"),
        (7300.0, 172800.0, "2 h to 2 days"),
        (90000.0, 172800.0, "1 to 2 days"),
        (30.0, 172800.0, "1 min to 2 days"),
        (200 * DAY, 1500 * DAY, "200 to 1,500 days"),
        (200 * DAY, 3650 * DAY, "200 days or much later"),
        (200 * DAY, float("inf"), "200 days or much later"),
        (30.0, float("inf"), "1 min or much later"),
        (7199.0, float("inf"), "119 min or much later"),
    ],
)
def test_intervals_are_written_in_units_that_suit_them(low: float, high: float, text: str) -> None:
    assert pace._between(low, high) == text


def test_windows_by_name() -> None:
    for seconds, name in (
        (DAY, "last day"),
        (DAY * 1.0099, "last day"),
        (DAY * 1.02, "last 24 h"),
        (7 * DAY, "last week"),
        (7 * DAY * 0.98, "last 7 days"),
        (3600.0, "last hour"),
        (3500.0, "last 58 min"),
        (60.0, "last minute"),
        (5.0, "last minute"),
        (89.9, "last minute"),
        (90.1, "last 2 min"),
        (5000 * DAY, "last 5,000 days"),
    ):
        assert pace._window(seconds) == name


def test_words_at_their_ends() -> None:
    steady = Pace(1000, 1000.0)
    low, _ = steady.until(500)
    assert in_words(steady, 500, low).startswith("in ")
    assert in_words(steady, 500, low * (1 - 1e-9)).startswith("not before it ends")
    assert in_words(steady, 0) == in_words(steady, -1) == ""
    assert in_words(steady, 1).startswith("in about 1 min")
    rare = Pace(100, 3650 * DAY)
    needed = next(count for count in range(80, 200) if rare.until(count)[0] > 3650 * DAY)
    assert in_words(rare, needed).startswith("not within ten years")
    assert "or much later" in in_words(rare, needed - 1)


def test_a_period_ends_with_its_late_reports_or_with_the_campaign(campaign: Campaign) -> None:
    daily = replace(campaign, period="day")
    began = datetime(2027, 1, 15, tzinfo=UTC)
    steady = [(began.timestamp() - 7200.0, 0), (began.timestamp() - 3600.0, 3600)]
    end = (began + timedelta(days=1, hours=6)).timestamp()
    life = Life(late=timedelta(hours=6))
    for now, open_ in ((end - 1, True), (end, False), (end + 1, False)):
        told = guessed(daily, life, "2027-01-15", steady, 7200, now)(10)
        assert bool(told) is open_
    for closes, kept in ((end + 9, True), (end - 10, False)):
        ending = replace(life, closes=datetime.fromtimestamp(closes, UTC))
        assert bool(guessed(daily, ending, "2027-01-15", steady, 7200, end - 5)(10)) is kept
    assert guessed(campaign, Life(), "once", steady, 7200, end)(10) != ""  # no end at all
