"""What people have tried with the files of a budget: delete one of two, put an older copy back, give one two names.

A ledger remembers what was paid for, another file what was answered. Without the second a device would make a second
report of what it has paid for once; a ledger that is written to after it was moved away forgets what it is told.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.attacks.test_malicious_server import IMAGE, Client, request, softmax_step, terms
from tests.collector.helpers import COMMUTE, KEYS, PERSON, known_keys, running
from tests.federated.conftest import flower_identity  # noqa: F401  # a fixture

import noisette as nz
from noisette.accounting import AlreadyDebited, BudgetExceeded, Ledger, LedgerError
from noisette.collector import Store, create_app
from noisette.device.gateway import Gateway
from noisette.device.state import Device
from noisette.federated.client.budget import RoundLog
from noisette.federated.client.mod import ANSWERED
from noisette.survey.campaigns import Campaign

CAMPAIGN = Campaign.from_dict(COMMUTE)


# the ledger itself


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with Ledger(tmp_path / "budget.db") as ledger:
        ledger.open_account("u", 1.0)
    return tmp_path / "budget.db"


def away(path: Path) -> None:
    path.rename(path.with_name("moved.db"))


def gone(path: Path) -> None:
    for file in path.parent.glob("budget.db*"):
        file.unlink()


def replaced(path: Path) -> None:
    os.replace(path.with_name("backup.db"), path)


@pytest.mark.parametrize("change", [away, gone, replaced])
def test_a_ledger_that_is_no_longer_at_its_place_takes_no_debit(path: Path, change: Any) -> None:
    shutil.copy(path, path.with_name("backup.db"))
    ledger = Ledger(path)
    ledger.debit("u", 0.4)
    change(path)
    with pytest.raises(LedgerError, match="moved, replaced or deleted"):
        ledger.debit("u", 0.1)
    with pytest.raises(LedgerError, match="moved, replaced or deleted"), ledger.spend("u", 0.1):
        pytest.fail("released")
    ledger.close()


def test_a_ledger_with_two_names_is_refused(path: Path) -> None:
    os.link(path, path.with_name("other.db"))
    for name in (path, path.with_name("other.db")):
        with pytest.raises(LedgerError, match="2 hard links"):
            Ledger(name)
    path.with_name("other.db").unlink()
    with Ledger(path) as ledger:
        ledger.debit("u", 0.1)
        os.link(path, path.with_name("other.db"))
        with pytest.raises(LedgerError, match="2 hard links"):
            ledger.debit("u", 0.1)


def test_one_ledger_by_three_paths_has_one_budget(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path.with_name("link.db").symlink_to(path)
    monkeypatch.chdir(path.parent)
    ledgers = [Ledger(name) for name in (path, "budget.db", path.with_name("link.db"))]
    monkeypatch.chdir("/")
    spent = 0
    for _ in range(5):
        for ledger in ledgers:
            try:
                ledger.debit("u", 0.1)
                spent += 1
            except BudgetExceeded:
                pass
    assert spent == 10
    for ledger in ledgers:
        ledger.close()


# a device, whose ledger says what was paid for and whose other file what was answered


def answered(folder: Path) -> tuple[bool, list[Any]]:
    """Answer with one budget for one report; return whether the report is new, and what would be sent."""
    device = Device(folder, epsilon=2.0, delta=0.0)
    try:
        return device.answer(CAMPAIGN, PERSON, group=None, clip=False, rng=None), device.waiting()
    finally:
        device.close()


@pytest.mark.parametrize("older", [False, True])
def test_a_device_without_its_answers_makes_no_second_report(tmp_path: Path, older: bool) -> None:
    Device(tmp_path, epsilon=2.0, delta=0.0).close()
    shutil.copy(tmp_path / "answers.db", tmp_path / "older.db")
    assert answered(tmp_path)[0]
    (tmp_path / "answers.db").unlink()
    if older:
        shutil.copy(tmp_path / "older.db", tmp_path / "answers.db")
    for _ in range(2):
        with pytest.raises(LedgerError, match="second release"):
            answered(tmp_path)


def test_a_device_that_died_after_the_debit_makes_its_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The report was never written, so it was never sent: the budget is not lost."""
    with monkeypatch.context() as patch:
        patch.setattr(type(CAMPAIGN.survey), "answer", lambda *_, **__: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            answered(tmp_path)
    is_new, waiting = answered(tmp_path)
    assert is_new
    assert len(waiting) == 1
    assert not answered(tmp_path)[0]


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    store = Store(f"sqlite:///{tmp_path / 'reports.db'}")
    with running(create_app([CAMPAIGN], store, known_keys())) as address:
        yield address


@pytest.mark.slow
def test_a_gateway_without_its_reports_makes_no_others(url: str, tmp_path: Path) -> None:
    options: dict[str, Any] = {"state": tmp_path / "gateway", "api_key": KEYS["device"], "epsilon": 2.0}
    coded = {"minutes": np.array([35.0, 36.0]), "by": np.array([1, 2])}
    with Gateway(url, "commute", **options) as gateway:
        assert gateway.answer([b"anna"], {name: values[:1] for name, values in coded.items()}) == 1
    with Gateway(url, "commute", **options) as gateway:  # a run that was cut short goes on
        assert gateway.answer([b"anna", b"ben"], coded) == 1
    (tmp_path / "gateway" / "reports.db").unlink()
    with Gateway(url, "commute", **options) as gateway, pytest.raises(LedgerError, match="second release"):
        gateway.answer([b"anna", b"ben"], coded)


# a federated client, whose ledger holds the run and whose log the rounds that were answered


def test_a_federated_client_without_its_log_answers_no_round_again(tmp_path: Path) -> None:
    client, asked = Client(tmp_path, softmax_step(IMAGE)), terms(rounds=3)
    assert not client.ask(request(asked, 1)).has_error()
    assert not client.ask(request(asked, 2)).has_error()
    shutil.rmtree(tmp_path / "budget.db-reports")
    for number in (1, 2, 3):
        reply = client.ask(request(asked, number))
        assert reply.has_error()
        assert ANSWERED in reply.error.reason
    assert client.calls == 2


def test_a_log_that_a_crash_left_empty_is_no_sign_of_payment(tmp_path: Path) -> None:
    """The log is made before the debit: where it is there and empty, the run is debited, once."""
    log, promise = RoundLog(tmp_path / "reports" / "run.log"), nz.Guarantee(1.0)
    with Ledger(tmp_path / "budget.db") as ledger:
        ledger.open_account("node", 1.5)
        log.path.parent.mkdir()
        log.path.touch()
        assert not log.begun
        for _ in range(3):
            log.pay(ledger, "node", promise, "run")
        assert ledger.balance("node").debits == 1
        assert log.note(1, 5)
        assert log.begun
        log.path.unlink()
        with pytest.raises(AlreadyDebited, match="is gone"):
            log.pay(ledger, "node", promise, "run")
        with pytest.raises(BudgetExceeded):
            RoundLog(tmp_path / "reports" / "other.log").pay(ledger, "node", promise, "other")
