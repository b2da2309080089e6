"""What accountants refuse to count: chances below the floats, and a file that is not what it was."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from noisette.accounting import Ledger, LedgerError, ledger, rdp_epsilon, sampled_gaussian
from noisette.accounting.sampling import LEAST_DELTA


def test_deltas_below_the_floats_are_refused() -> None:
    assert LEAST_DELTA == 1e-300
    assert sampled_gaussian(1.0, 1e-300, releases=10, sampling_prob=0.01).epsilon > 0
    with pytest.raises(ValueError, match="floats do not hold smaller chances"):
        sampled_gaussian(1.0, 0.99e-300, releases=10, sampling_prob=0.01)
    for wrong in (0.0, -0.1, 1.0000001):
        with pytest.raises(ValueError, match="sampling_prob"):
            sampled_gaussian(1.0, 1e-6, releases=10, sampling_prob=wrong)


def filled(path: Path, debits: int) -> bytes:
    """Return the bytes of a ledger with some debits, all of them in the file."""
    with Ledger(path) as own:
        own.open_account("one", 1000.0, 0.5, model="local", relation="any-pair")
        for number in range(debits):
            own.debit("one", 0.5, note=f"{number}: " + 900 * "a note ")
        own.verify()
    assert not path.with_name(f"{path.name}-wal").exists()
    return path.read_bytes()


def test_a_damaged_page_is_found_at_the_first_look_or_when_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "budget.db"
    whole = bytearray(filled(path, 12))
    page = 4096
    assert len(whole) > 8 * page
    for start in range(4 * page, 6 * page, page):
        whole[start : start + 64] = bytes(64)
    path.write_bytes(whole)
    with pytest.raises(LedgerError, match="damaged or not a ledger"):
        Ledger(path)
    monkeypatch.setattr(ledger, "_CHECKED_BYTES", 0)  # as a large file is opened
    with Ledger(path) as own, pytest.raises(LedgerError, match="damaged or not a ledger"):
        own.verify()


def moved(path: Path, to: str, column: str) -> None:
    """Change a column of all accounts behind the ledger's back."""
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("PRAGMA ignore_check_constraints = 1")
        connection.execute(f"UPDATE accounts SET {column} = {to}")


def test_sums_that_are_not_those_of_the_debits_are_found(tmp_path: Path) -> None:
    path = tmp_path / "budget.db"
    filled(path, 3)
    for column in ("epsilon", "delta", "debits"):
        moved(path, f"{column} + 1", column)
        with Ledger(path) as own, pytest.raises(LedgerError):
            own.verify()
        moved(path, f"{column} - 1", column)
        with Ledger(path) as own:
            own.verify()


def test_one_wrong_order_or_divergence_among_many_is_refused() -> None:
    assert rdp_epsilon([2.0, 4.0, 8.0], [0.1, 0.0, 0.4], 1e-6) == 0.0
    for orders, divergences in (([2.0, 1.0, 8.0], [0.1] * 3), ([0.5, 4.0, 8.0], [0.1] * 3), ([2.0, 4.0], [0.1, -0.1])):
        with pytest.raises(ValueError, match="orders above 1 and divergences of 0 or more"):
            rdp_epsilon(orders, divergences, 1e-6)
