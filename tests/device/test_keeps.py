"""Devices lose nothing: what can be mended later is kept and sent later, what cannot is told before it is spent."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from tests.collector.helpers import COMMUTE, KEYS, PERSON, known_keys, running

from noisette.collector import Store, create_app
from noisette.device import Client
from noisette.device.gateway import Gateway
from noisette.device.state import Sent, check_time
from noisette.survey.campaigns import Campaign

pytestmark = pytest.mark.slow

DAILY = COMMUTE | {"id": "daily", "period": "day"}


def own(folder: Path, key: str = KEYS["device"], **more: Any) -> dict[str, Any]:
    """Return how a device is built."""
    return {"state": folder / "device", "api_key": key, "epsilon": 4.0, "attempts": 1} | more


@contextmanager
def serving(folder: Path, *campaigns: dict[str, Any]) -> Iterator[str]:
    """Serve campaigns from a database that stays."""
    store = Store(f"sqlite:///{folder / 'reports.db'}")
    with running(create_app([Campaign.from_dict(one) for one in campaigns], store, known_keys())) as url:
        yield url


@contextmanager
def clock(monkeypatch: pytest.MonkeyPatch, *modules: str, ahead: timedelta) -> Iterator[None]:
    """Set the clocks of modules ahead."""

    class Ahead(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> datetime:
            return datetime.now(tz) + ahead

    with monkeypatch.context() as patched:
        for module in modules:
            patched.setattr(f"{module}.datetime", Ahead)
        yield


def test_a_key_that_is_being_changed(tmp_path: Path) -> None:
    """A report that meets 401 is kept, and is sent under the next key; its budget is spent once."""
    with serving(tmp_path, COMMUTE) as url:
        with Client(url, **own(tmp_path)) as client:
            assert client.answer("commute", PERSON)
        with Client(url, **own(tmp_path, "a-key-that-ended-today")) as client:
            assert client.send() == Sent(0, 0, 1)
            assert client.refusals() == []
            ((campaign, period, reason),) = client.delayed()
            assert (campaign, period) == ("commute", "once")
            assert "known key" in reason
        with Client(url, **own(tmp_path)) as client:
            assert client.left["epsilon"] == 2.0
            assert client.send() == Sent(1, 0, 0)
            assert client.delayed() == []


def test_a_campaign_that_is_away_hinders_no_other(tmp_path: Path) -> None:
    other = COMMUTE | {"id": "other"}
    with serving(tmp_path, COMMUTE, other) as url, Client(url, **own(tmp_path)) as client:
        client.answer("commute", PERSON)
        client.answer("other", PERSON)
    (tmp_path / "two").mkdir()
    with serving(tmp_path / "two", other) as url, Client(url, **own(tmp_path)) as client:
        assert client.send() == Sent(1, 0, 1)
        assert client.delayed()[0][0] == "commute"


def test_a_clock_that_is_ahead_across_midnight(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A report of a day that has not begun is kept, and taken on that day."""
    day = timedelta(days=2)  # one day ahead is taken in the last minutes before midnight, when the test may run
    with serving(tmp_path, DAILY) as url, Client(url, **own(tmp_path)) as client:
        client.campaign("daily")
        with clock(monkeypatch, "noisette.survey.periods", ahead=day):
            client._device.answer(client._device.recall("daily"), PERSON, group=None, clip=False, rng=None)
        assert client.send() == Sent(0, 0, 1)
        assert client.refusals() == []
        modules = ["noisette.survey.periods", "noisette.collector.campaigns.life"]
        with clock(monkeypatch, *[one for one in modules if _has_clock(one)], ahead=day):
            assert client.send() == Sent(1, 0, 0)


def _has_clock(module: str) -> bool:
    from importlib import import_module
    from importlib.util import find_spec

    return find_spec(module) is not None and hasattr(import_module(module), "datetime")


def test_a_clock_that_is_far_off_spends_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(tmp_path, DAILY, COMMUTE) as url, Client(url, **own(tmp_path)) as client:
        modules = ("noisette.device.conversation", "noisette.device.state")
        with clock(monkeypatch, *modules, ahead=timedelta(days=3)):
            with pytest.raises(ValueError, match=r"4,320 minutes ahead of the collector's.*nothing was spent"):
                client.answer("daily", PERSON)
            assert client.left["epsilon"] == 4.0
            assert client.answer("commute", PERSON)  # which has one period for ever
        with clock(monkeypatch, *modules, ahead=timedelta(days=-3)), pytest.raises(ValueError, match="minutes behind"):
            client.answer("daily", PERSON)
        assert client.answer("daily", PERSON)


def test_what_is_over_is_told_before_it_is_spent() -> None:
    campaign, now = Campaign.from_dict(DAILY), datetime(2026, 11, 17, 12, tzinfo=UTC)
    for life, said in (
        ({"state": "closed"}, "is closed, and takes no reports"),
        ({"state": "open", "closes": "2026-11-17T12:00:00+00:00"}, "closes at"),
        ({"opens": "2026-11-17T12:00:01"}, "opens at"),
    ):
        with pytest.raises(ValueError, match=said):
            check_time(campaign, life, 0.0, now)
    for fine in ({}, {"state": "open", "opens": "2026-11-17T12:00:00", "closes": "2026-11-17T12:00:01"}):
        check_time(campaign, fine, 0.0, now)
    check_time(campaign, {"closes": "2026-11-17T12:00:00"}, 60.0, now)  # by the collector's clock it is open
    midnight = datetime(2026, 11, 17, 0, 5, tzinfo=UTC)
    check_time(campaign, {}, 599.0, midnight)  # some minutes are no harm: the report is kept until the day begins
    with pytest.raises(ValueError, match="ahead of"):
        check_time(campaign, {}, 601.0, midnight)


def test_a_gateway_sends_what_waits_of_yesterday(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that was cut short at midnight goes on: late reports are taken for some time."""
    with serving(tmp_path, DAILY) as url:
        options: dict[str, Any] = {"state": tmp_path / "gateway", "api_key": KEYS["device"], "epsilon": 9.0}
        coded = {"minutes": np.array([35.0, 36.0]), "by": np.array([1, 2])}
        with (
            clock(monkeypatch, "noisette.survey.periods", ahead=timedelta(days=-1)),
            Gateway(url, "daily", **options) as late,
        ):
            assert late.answer([b"anna", b"ben"], coded) == 2
        with Gateway(url, "daily", **options) as today:
            assert today.answer([b"anna", b"ben"], coded) == 2
            assert today.send() == Sent(2, 0, 0)
            assert today.tally(late.period) == Sent(2, 0, 0)
        headers = {"Authorization": f"Bearer {KEYS['analyst']}"}
        told = httpx.get(f"{url}/metrics", headers=headers).text
        assert 'noisette_reports_accepted_total{campaign="daily"} 4.0' in told
