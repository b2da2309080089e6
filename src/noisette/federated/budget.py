"""A client's own budget: no run begins that it cannot afford, no round is answered twice, whatever the server asks."""

from __future__ import annotations

import hashlib
import math
import os
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from noisette import _validate
from noisette.accounting import AlreadyDebited, Ledger, LedgerError, UnknownAccount
from noisette.federated.layout import Layout
from noisette.federated.lines import TrustModel
from noisette.federated.terms import Terms


@dataclass(frozen=True)
class NodeBudget:
    """What a client is willing to give away over all runs, in a ledger file on the client's disk.

    The first round of a run debits the guarantee of the whole run, computed here from the server's terms; it stays
    debited if the run stops early. Then each round is answered once, and no more rounds than the terms say. A second
    run adds its guarantee to the first one's.
    """

    ledger: str | os.PathLike[str]
    epsilon: float
    delta: float = 0.0
    model: TrustModel = "local"
    minimum_set: int = 1

    def __post_init__(self) -> None:
        _validate.epsilon(self.epsilon)
        _validate.delta(self.delta)
        if self.model not in ("local", "shuffled"):
            raise ValueError(f"Expected model={self.model!r} to be 'local' or 'shuffled'.")
        _validate.integer(self.minimum_set, "minimum_set", low=2 if self.model == "shuffled" else 1)

    @property
    def _ledger(self) -> Ledger:
        return _opened(Path(self.ledger).absolute())

    def spend(self, account: str, terms: Terms, layout: Layout, number: int) -> None:
        """Debit one round, or raise: `BudgetExceeded` if it is too much, `AlreadyDebited` if it was answered before."""
        run = terms.key(layout)
        releases = f"{account}: releases of {run}"
        try:
            receipt = self._ledger.debit(releases, 1, note=f"round {number}", idempotency_key=str(number))
        except UnknownAccount:
            self._begin(account, terms, layout, run, releases)
            receipt = self._ledger.debit(releases, 1, note=f"round {number}", idempotency_key=str(number))
        if receipt.replayed:
            raise AlreadyDebited(
                f"Round {number} of run {run} was answered before, and that report is gone. A new one would be a "
                "second release: leave this client out of the round."
            )

    def _begin(self, account: str, terms: Terms, layout: Layout, run: str, releases: str) -> None:
        """Debit a whole run, and open the account that counts its releases."""
        promise = terms.promise(layout, model=self.model, clients=self.minimum_set)
        if not math.isfinite(promise.epsilon):
            raise LedgerError(
                "These terms promise nothing that a budget could hold: no finite epsilon is true of them."
            )
        self._ledger.open_account(account, self.epsilon, self.delta)
        self._ledger.debit(account, promise, note=f"run {run}", idempotency_key=run)
        self._ledger.open_account(releases, terms.rounds)

    def kept(self, account: str, terms: Terms, layout: Layout, number: int) -> npt.NDArray[Any] | None:
        """Return the report that was made for a round, if the round was answered and this client still has it."""
        try:
            stored: npt.NDArray[Any] = np.load(self._file(account, terms, layout, number), allow_pickle=False)
        except (OSError, ValueError, EOFError):
            return None
        return stored

    def keep(self, account: str, terms: Terms, layout: Layout, number: int, payload: npt.NDArray[Any]) -> None:
        """Keep the report of a round, in place of the one before it: asked again, the client sends the same one."""
        target = self._file(account, terms, layout, number)
        target.parent.mkdir(parents=True, exist_ok=True)
        part = target.with_suffix(f".{os.getpid()}.part")
        with part.open("wb") as file:
            np.save(file, payload, allow_pickle=False)
        part.replace(target)
        for older in target.parent.glob("*.npy"):
            if older != target:
                older.unlink(missing_ok=True)

    def _file(self, account: str, terms: Terms, layout: Layout, number: int) -> Path:
        name = hashlib.sha256(f"{account} {terms.key(layout)}".encode()).hexdigest()[:32]
        return Path(f"{os.fspath(self.ledger)}-reports") / name / f"{number}.npy"


@lru_cache(maxsize=8)
def _opened(path: Path) -> Ledger:
    """Open a ledger once a process: opening checks the whole file."""
    return Ledger(path)
