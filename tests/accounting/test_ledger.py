"""The ledger: exact sums, no overspending from many processes at once, and nothing forgotten under kill -9."""

from __future__ import annotations

import contextlib
import functools
import math
import multiprocessing
import operator
import os
import pickle
import signal
import sqlite3
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import noisette as nz
from noisette.accounting import (
    AlreadyDebited,
    BudgetExceeded,
    Ledger,
    LedgerError,
    UnknownAccount,
    zcdp,
    zcdp_epsilon,
    zcdp_rho,
)
from noisette.accounting.budgets import PLACES, in_units


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "budget.db"


@pytest.fixture
def ledger(path: Path) -> Iterator[Ledger]:
    with Ledger(path) as opened:
        opened.open_account("user", epsilon=1.0, delta=1e-6)
        yield opened


def test_ten_tenths_are_one(ledger: Ledger) -> None:
    """Floats would drift: 0.1 added ten times, one after the other, is 0.9999999999999999."""
    assert functools.reduce(operator.add, [0.1] * 10) != 1.0
    for _ in range(10):
        ledger.debit("user", 0.1)
    assert ledger.balance("user").epsilon == 1
    assert ledger.balance("user").left == {"epsilon": 0, "delta": Decimal("1E-6")}
    with pytest.raises(BudgetExceeded):
        ledger.debit("user", 1e-12)


def test_sums_are_those_of_fractions(path: Path) -> None:
    with Ledger(path) as ledger:
        ledger.open_account("user", epsilon=1e6)
        rng = np.random.default_rng(1)
        spent = [float(value) for value in rng.uniform(0, 3, 40)] + [1 / 3, 1e-13, 2**-40]
        exact = Fraction(0)
        for value in spent:
            ledger.debit("user", value)
            exact += Fraction(Decimal(repr(value)))
        kept = Fraction(ledger.balance("user").epsilon)
        assert exact <= kept <= exact + len(spent) * Fraction(1, 10**12)
        ledger.verify()


def test_debits_round_up_and_limits_down(path: Path) -> None:
    with Ledger(path) as ledger:
        ledger.open_account("user", epsilon=1 / 3, delta=1e-19)
        balance = ledger.balance("user")
        assert balance.limit_epsilon == Decimal("0.333333333333")
        assert balance.limit_delta == 0
        receipt = ledger.debit("user", 1e-15)
        assert receipt.epsilon == Decimal("1E-12")
        with pytest.raises(BudgetExceeded):
            ledger.debit("user", nz.Guarantee(0.1, 1e-30))


def test_amounts_of_every_kind(ledger: Ledger) -> None:
    kinds = (0.1, Decimal("0.1"), Fraction(1, 10), np.float64(0.1), nz.Guarantee(0.1), nz.Duchi(epsilon=0.1))
    for amount in kinds:
        assert ledger.debit("user", amount).epsilon == Decimal("0.1")
    assert ledger.balance("user").epsilon == Decimal("0.6")


def test_refusal_shows_the_numbers_and_takes_nothing(ledger: Ledger) -> None:
    ledger.debit("user", nz.Guarantee(0.7, 4e-7), note="monday")
    with pytest.raises(
        BudgetExceeded, match=r"epsilon=0\.3, delta=0\.0000006 left, .* epsilon=0\.5, delta=0"
    ) as refused:
        ledger.debit("user", 0.5)
    assert refused.value.left == {"epsilon": Decimal("0.3"), "delta": Decimal("6E-7")}
    assert refused.value.asked == {"epsilon": Decimal("0.5"), "delta": 0}
    assert refused.value.key == "user"
    again = pickle.loads(pickle.dumps(refused.value))
    assert (str(again), again.left) == (str(refused.value), refused.value.left)
    assert ledger.balance("user").debits == 1
    with pytest.raises(BudgetExceeded):
        ledger.debit("user", nz.Guarantee(0.1, 7e-7))
    ledger.debit("user", nz.Guarantee(0.3, 6e-7))
    assert [receipt.note for receipt in ledger.history("user")] == ["monday", ""]


def test_a_concentrated_account_begins_at_nothing(path: Path) -> None:
    with Ledger(path) as ledger:
        ledger.open_account("user", 6.0, 1e-6, composition="zcdp")
        balance = ledger.balance("user")
        assert (balance.epsilon, balance.delta, balance.rho) == (0, 0, 0)
        assert float(balance.left["rho"]) == pytest.approx(zcdp_rho(6.0, 1e-6), rel=1e-9)
        ledger.debit("user", 0.1)
        balance = ledger.balance("user")
        rho = 0.1 * math.tanh(0.05)
        assert float(balance.rho) == pytest.approx(rho, rel=1e-9)
        assert float(balance.epsilon) == pytest.approx(zcdp_epsilon(rho, 1e-6), rel=1e-9)
        assert balance.delta == Decimal("1E-6")


@pytest.mark.slow
def test_concentrated_accounts_last_longer(path: Path) -> None:
    """A hundred reports of epsilon 0.1 fit a limit of (6, 1e-6), to which only sixty would add up."""
    with Ledger(path) as ledger:
        ledger.open_account("user", 6.0, 1e-6, composition="zcdp")
        mechanism = nz.Duchi(epsilon=0.1)
        for _ in range(100):
            ledger.debit("user", mechanism)
        balance = ledger.balance("user")
        rho = 100 * zcdp(mechanism)
        assert float(balance.rho) == pytest.approx(rho, rel=1e-9)
        assert float(balance.rho) >= rho * (1 - 1e-15)
        assert float(balance.epsilon) == pytest.approx(zcdp_epsilon(rho, 1e-6), rel=1e-9)
        assert balance.delta == Decimal("1E-6")
        assert float(balance.left["rho"]) == pytest.approx(zcdp_rho(6.0, 1e-6) - rho, rel=1e-9)
        with pytest.raises(BudgetExceeded, match="rho="):
            ledger.debit("user", 3.0)
        ledger.debit("user", nz.Gaussian(epsilon=0.5, delta=1e-6))
        with pytest.raises(ValueError, match="zCDP allows no delta"):
            ledger.debit("user", nz.Guarantee(0.1, 1e-9))
        ledger.verify()


def test_a_key_is_debited_once(ledger: Ledger) -> None:
    first = ledger.debit("user", 0.4, idempotency_key="report-1")
    again = ledger.debit("user", 0.4, idempotency_key="report-1")
    assert (first.replayed, again.replayed) == (False, True)
    assert again.number == first.number
    assert ledger.balance("user").epsilon == Decimal("0.4")
    with pytest.raises(ValueError, match=r"used for another amount: epsilon=0\.4"):
        ledger.debit("user", 0.5, idempotency_key="report-1")
    ledger.open_account("other", 1.0)
    assert not ledger.debit("other", 0.4, idempotency_key="report-1").replayed, "keys belong to an account"


def test_spend_debits_before_it_releases_and_never_releases_twice(ledger: Ledger) -> None:
    with ledger.spend("user", 0.4, idempotency_key="report-1") as receipt:
        assert ledger.balance("user").epsilon == Decimal("0.4") == receipt.epsilon
    released = False
    with (
        pytest.raises(AlreadyDebited, match="send the stored report"),
        ledger.spend("user", 0.4, idempotency_key="report-1"),
    ):
        released = True
    assert not released
    with pytest.raises(ZeroDivisionError), ledger.spend("user", 0.1):
        _ = 1 / 0
    assert ledger.balance("user").epsilon == Decimal("0.5"), "what was debited stays so"
    with pytest.raises(BudgetExceeded), ledger.spend("user", 0.9):
        released = True
    assert not released


def test_units_must_agree(ledger: Ledger) -> None:
    with pytest.raises(ValueError, match=r"unit element, .* cannot be counted as unit record"):
        ledger.debit("user", nz.Guarantee(0.1, unit="element"))


@pytest.mark.parametrize("terms", [{}, {"model": "shuffled"}, {"model": "central"}, {"relation": "replace"}])
def test_a_debit_says_what_was_converted_if_any_of_its_terms_differ(ledger: Ledger, terms: dict[str, Any]) -> None:
    own = {"model": "local", "relation": "any-pair"} | terms
    ledger.open_account("converted", 1.0, **own)
    receipt = ledger.debit("converted", nz.Guarantee(0.1))
    assert receipt.converted == (f"{nz.Guarantee(0.1)}, counted as {nz.Guarantee(0.1, **own)}" if terms else "")


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE accounts SET epsilon = epsilon + 1 WHERE key = 'user'",
        "UPDATE accounts SET delta = delta - 1 WHERE key = 'user'",
        "UPDATE accounts SET rho = rho + 1 WHERE key = 'user'",
        "UPDATE accounts SET debits = debits + 1 WHERE key = 'user'",
        "UPDATE debits SET epsilon = epsilon - 1 WHERE number = (SELECT min(number) FROM debits)",
        "DELETE FROM debits WHERE number = (SELECT min(number) FROM debits)",
        "DELETE FROM accounts WHERE key = 'user'",
    ],
)
def test_sums_that_are_off_by_one_unit_are_found(tmp_path: Path, damage: str) -> None:
    """In one account of two, in one column; a file that is whole is taken."""
    path = tmp_path / "ledger.db"
    with Ledger(path) as ledger:
        for key in ("user", "other"):
            ledger.open_account(key, 1.0, 1e-6)
            ledger.debit(key, nz.Guarantee(0.1, 1e-7))
            ledger.debit(key, 0.2)
        ledger.verify()
    with contextlib.closing(sqlite3.connect(path)) as database, database:
        database.execute("PRAGMA ignore_check_constraints = ON")
        for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            database.execute(f'DROP TRIGGER "{name}"')
        database.execute(damage)
    wanted = r"the sums of 'user'[^o]* are not those of its debits|CHECK constraint failed in accounts"
    with pytest.raises(LedgerError, match=wanted), Ledger(path) as again:
        again.verify()


def test_limits_do_not_change(ledger: Ledger) -> None:
    ledger.open_account("user", 1.0, 1e-6)
    with pytest.raises(ValueError, match="exists with other terms: epsilon=1, delta="):
        ledger.open_account("user", 2.0, 1e-6)
    assert [balance.key for balance in ledger.accounts()] == ["user"]


@pytest.mark.parametrize(
    ("terms", "message"),
    [
        ({"key": "", "epsilon": 1.0}, "key=''"),
        ({"key": "a", "epsilon": 0.0}, r"epsilon=0\.0"),
        ({"key": "a", "epsilon": -1.0}, r"epsilon=-1\.0"),
        ({"key": "a", "epsilon": float("nan")}, "epsilon=nan"),
        ({"key": "a", "epsilon": 1e9}, r"epsilon=1000000000\.0"),
        ({"key": "a", "epsilon": 1.0, "delta": 2.0}, r"delta=2\.0"),
        ({"key": "a", "epsilon": 1.0, "unit": "house"}, "unit='house'"),
        ({"key": "a", "epsilon": 1.0, "composition": "magic"}, "composition='magic'"),
        ({"key": "a", "epsilon": 1.0, "composition": "zcdp"}, "zCDP has no pure epsilon"),
    ],
)
def test_bad_accounts(ledger: Ledger, terms: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ledger.open_account(**terms)


@pytest.mark.parametrize("amount", [0.0, -0.1, float("inf")])
def test_bad_amounts(ledger: Ledger, amount: float) -> None:
    with pytest.raises(ValueError, match=r"Expected"):
        ledger.debit("user", amount)
    with pytest.raises(TypeError, match="to be a number"):
        ledger.debit("user", "0.1")
    assert ledger.balance("user").debits == 0


def test_an_unknown_account_is_named(ledger: Ledger) -> None:
    for call in (
        lambda: ledger.debit("nobody", 0.1),
        lambda: ledger.balance("nobody"),
        lambda: list(ledger.history("nobody")),
    ):
        with pytest.raises(UnknownAccount, match="no account 'nobody'"):
            call()


def test_it_is_there_when_opened_again(ledger: Ledger, path: Path) -> None:
    ledger.debit("user", 0.4, note="first")
    ledger.close()
    with Ledger(path, create=False) as again:
        assert again.balance("user").epsilon == Decimal("0.4")
        again.verify()
    assert ledger.balance("user").epsilon == Decimal("0.4"), "a closed one opens itself again"


def test_a_missing_file_is_not_made_where_it_should_exist(path: Path, tmp_path: Path) -> None:
    with pytest.raises(LedgerError, match="a new one would forget what was spent"):
        Ledger(path, create=False)
    assert not path.exists()
    with pytest.raises(LedgerError, match="no folder"):
        Ledger(tmp_path / "nowhere" / "budget.db")
    with pytest.raises(ValueError, match="in memory forgets"):
        Ledger(":memory:")


def test_damaged_files_are_refused_with_a_remedy(path: Path) -> None:
    path.write_bytes(b"this is not a ledger" * 100)
    with pytest.raises(LedgerError, match=r"damaged or not a ledger.*Restore it from a backup"):
        Ledger(path)


@pytest.mark.slow
def test_a_page_overwritten_is_seen(path: Path) -> None:
    with Ledger(path) as ledger:
        for user in range(300):
            ledger.open_account(f"user-{user}", 1.0)
    content = bytearray(path.read_bytes())
    size = 4096
    for page in range(2, len(content) // size):
        content[page * size + 100 : page * size + 200] = os.urandom(100)
        content[page * size : page * size + 8] = b"\xff" * 8
    path.write_bytes(bytes(content))
    with pytest.raises(LedgerError, match="damaged"):
        Ledger(path)


@pytest.mark.slow
def test_a_truncated_file_is_seen(path: Path) -> None:
    with Ledger(path) as ledger:
        for user in range(300):
            ledger.open_account(f"user-{user}", 1.0)
    path.write_bytes(path.read_bytes()[: 3 * 4096])
    with pytest.raises(LedgerError, match="damaged"):
        Ledger(path)


def test_sums_that_do_not_add_up_are_seen(ledger: Ledger, path: Path) -> None:
    ledger.debit("user", 0.5)
    ledger.verify()
    with sqlite3.connect(path) as other:
        other.execute("UPDATE accounts SET epsilon = epsilon - 1")
    other.close()
    with pytest.raises(LedgerError, match="sums of 'user' are not those of its debits"):
        ledger.verify()


def test_the_file_itself_refuses_to_overspend(ledger: Ledger, path: Path) -> None:
    """Whatever writes to it: the limit is a constraint of the table."""
    other = sqlite3.connect(path)
    with pytest.raises(sqlite3.IntegrityError):
        other.execute("UPDATE accounts SET epsilon = limit_epsilon + 1")
    other.close()
    assert ledger.balance("user").epsilon == 0


def test_a_database_of_something_else_is_left_alone(path: Path) -> None:
    with sqlite3.connect(path) as other:
        other.execute("CREATE TABLE recipes (name TEXT)")
    other.close()
    with pytest.raises(LedgerError, match="of something else"):
        Ledger(path)


def test_a_lock_held_too_long_is_said_and_nothing_is_debited(ledger: Ledger, path: Path) -> None:
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    impatient = Ledger.__new__(Ledger)
    impatient._path, impatient._timeout, impatient._local = path, 0.1, threading.local()
    with pytest.raises(LedgerError, match=r"locked.*Nothing was debited"):
        impatient.debit("user", 0.1)
    impatient.close()
    other.execute("ROLLBACK")
    other.close()
    assert ledger.balance("user").debits == 0


def test_threads_share_a_ledger(ledger: Ledger) -> None:
    refused = []

    def work() -> None:
        for _ in range(5):
            try:
                ledger.debit("user", 0.05)
            except BudgetExceeded:
                refused.append(1)
        ledger.close()

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert ledger.balance("user").epsilon == 1
    assert len(refused) == 10
    ledger.verify()


def _compete(path: Path, rounds: int, results: multiprocessing.queues.Queue[tuple[int, int]]) -> None:
    """Open the ledger, which may not exist yet, and spend as much as it lets us."""
    taken = refused = 0
    with Ledger(path) as ledger:
        ledger.open_account("campaign", 1.0)
        for _ in range(rounds):
            try:
                with ledger.spend("campaign", 0.01):
                    taken += 1
            except BudgetExceeded:
                refused += 1
    results.put((taken, refused))


@pytest.mark.long
def test_many_processes_at_once_spend_the_limit_exactly(path: Path) -> None:
    """Four processes make the same file and want 160 shares of a hundred."""
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    workers = [context.Process(target=_compete, args=(path, 40, results)) for _ in range(4)]
    for worker in workers:
        worker.start()
    counts = [results.get(timeout=600) for _ in workers]
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers] == [0] * 4
    assert sum(taken for taken, _ in counts) == 100
    assert sum(refused for _, refused in counts) == 60
    with Ledger(path) as ledger:
        ledger.verify()
        assert ledger.balance("campaign").left["epsilon"] == 0


def test_a_connection_is_not_used_across_a_fork(ledger: Ledger) -> None:
    ledger.debit("user", 0.1)
    child = os.fork()
    if child == 0:
        try:
            ledger.debit("user", 0.2)
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    ledger.debit("user", 0.3)
    assert ledger.balance("user").epsilon == Decimal("0.6")
    ledger.verify()


SPENDER = textwrap.dedent(
    """
    import os, sys
    from noisette.accounting import BudgetExceeded, Ledger

    ledger = Ledger(sys.argv[1])
    released = os.open(sys.argv[2], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(1, b"ready")
    while True:
        try:
            with ledger.spend("device", 0.001):
                os.write(released, b"r")  # one byte is one report that has left the device
        except BudgetExceeded:
            sys.exit(0)
    """
)


def _run(code: str, *arguments: object) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", code, *map(str, arguments)], stdout=subprocess.PIPE)


@pytest.mark.long
def test_kill_9_never_leaves_a_release_without_its_debit(path: Path, tmp_path: Path) -> None:
    """Processes that spend as fast as they can are killed at random moments, twice two at once."""
    releases = tmp_path / "released"
    releases.touch()
    rng = np.random.default_rng(7)
    kills = 0
    with Ledger(path) as ledger:
        ledger.open_account("device", 1000.0)
        for _ in range(2):
            spenders = [_run(SPENDER, path, releases) for _ in range(2)]
            for spender in spenders:
                assert spender.stdout is not None
                assert spender.stdout.read(5) == b"ready"
            before, deadline = releases.stat().st_size, time.monotonic() + 300
            while releases.stat().st_size < before + 5 and time.monotonic() < deadline:
                time.sleep(0.001)
            time.sleep(float(rng.uniform(0.0, 0.05)))
            for spender in spenders:
                spender.send_signal(signal.SIGKILL)
                assert spender.wait() == -signal.SIGKILL
                assert spender.stdout is not None
                spender.stdout.close()
                kills += 1
            debits, out = ledger.balance("device").debits, releases.stat().st_size
            assert out <= debits <= out + kills, "a debit may be lost for each kill, a release never"
        ledger.verify()
        assert out >= 10, "they did release"
        assert ledger.balance("device").epsilon == Decimal("0.001") * debits


@pytest.mark.long
def test_killed_between_debit_and_release_the_budget_is_gone(path: Path) -> None:
    code = """
        import os, signal, sys
        from noisette.accounting import Ledger

        with Ledger(sys.argv[1]).spend("device", 0.25):
            os.kill(os.getpid(), signal.SIGKILL)
    """
    with Ledger(path) as ledger:
        ledger.open_account("device", 1.0)
        killed = _run(textwrap.dedent(code), path)
        assert killed.wait() == -signal.SIGKILL
        assert killed.stdout is not None
        killed.stdout.close()
        assert ledger.balance("device").epsilon == Decimal("0.25")
        ledger.verify()


@pytest.mark.long
def test_a_ledger_that_debits_afterwards_would_be_caught(path: Path, tmp_path: Path) -> None:
    """The twin: release first, debit then, and a kill between the two leaves a release that nobody counts."""
    code = """
        import os, signal, sys
        from noisette.accounting import Ledger

        open(sys.argv[2], "ab").write(b"r")
        os.kill(os.getpid(), signal.SIGKILL)
        Ledger(sys.argv[1]).debit("device", 0.25)
    """
    releases = tmp_path / "released"
    with Ledger(path) as ledger:
        ledger.open_account("device", 1.0)
        killed = _run(textwrap.dedent(code).replace('"ab")', '"ab", 0)'), path, releases)
        killed.wait()
        assert killed.stdout is not None
        killed.stdout.close()
        assert releases.stat().st_size > ledger.balance("device").debits


def test_commits_reach_the_disk(ledger: Ledger) -> None:
    """Write-ahead log, and a flush at every commit: a power cut forgets nothing that was promised."""
    connection = ledger._connect()
    assert connection.execute("PRAGMA journal_mode").fetchone()[0] == "wal"
    assert connection.execute("PRAGMA synchronous").fetchone()[0] == 2


@pytest.mark.parametrize("rounding", [ROUND_CEILING, ROUND_FLOOR])
@pytest.mark.parametrize("name", ["epsilon", "delta", "rho"])
def test_costs_are_rounded_to_the_safe_side_exactly(name: str, rounding: str) -> None:
    """Debits up, limits down, by rationals; texts of floats count as what Python prints."""
    scale = 10 ** PLACES[name]
    toward = math.ceil if rounding == ROUND_CEILING else math.floor
    for value in (0, 1, 3, 0.1, 1e-30, 2.5e-13, Decimal("0.1234567890123456789"), Fraction(1, 3), 1 / 3, 5e-19):
        exact = Fraction(repr(value)) if isinstance(value, float) else Fraction(value)
        assert in_units(value, name, rounding) == toward(exact * scale)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (math.inf, "finite, and small enough"),
        (-math.inf, "finite, and small enough"),
        (math.nan, "finite, and small enough"),
        (1e31, "finite, and small enough"),
        (Decimal("1e1000000"), "finite, and small enough"),
        (1e30, "the largest that a ledger holds"),
        (10**7, "the largest that a ledger holds"),
        (-1e-3, ">= 0"),
        (Fraction(-1, 3), ">= 0"),
    ],
)
def test_costs_that_no_ledger_holds_are_refused(value: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        in_units(value, "epsilon", ROUND_CEILING)


def test_a_receipt_is_found_under_its_key_alone(ledger: Ledger) -> None:
    ledger.open_account("receipts", 1.0)
    assert ledger.receipt("receipts", "first") is None
    made = ledger.debit("receipts", 0.25, idempotency_key="first")
    found = ledger.receipt("receipts", "first")
    assert found is not None
    assert (found.number, found.epsilon, found.replayed, made.replayed) == (made.number, made.epsilon, True, False)
    assert ledger.receipt("receipts", "second") is None


def test_the_smallest_limits_and_a_replaced_record_in_a_concentrated_account(ledger: Ledger) -> None:
    """A release under add-remove costs an account of replacements the rho of two changes: group privacy."""
    ledger.open_account("least", 1e-12, 1)
    ledger.open_account("least of rho", 1.0, 1e-18, composition="zcdp")
    with pytest.raises(ValueError, match="zCDP has no pure epsilon"):
        ledger.open_account("none of rho", 1.0, 0, composition="zcdp")
    ledger.open_account("replaced", 9.0, 1e-6, model="central", relation="replace", composition="zcdp")
    ledger.debit("replaced", nz.Guarantee(0.5, model="central", relation="add-remove"))
    # epsilon tanh(epsilon / 2) of rho, at the doubled epsilon: less than four times that of the single one
    assert float(ledger.balance("replaced").rho) == pytest.approx(math.tanh(0.5), rel=1e-13)
    assert math.tanh(0.5) < 4 * 0.5 * math.tanh(0.25)
    ledger.debit("replaced", nz.Guarantee(0.5, model="central", relation="replace"))
    assert float(ledger.balance("replaced").rho) == pytest.approx(math.tanh(0.5) + 0.5 * math.tanh(0.25), rel=1e-13)
