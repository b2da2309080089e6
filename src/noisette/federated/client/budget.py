"""A client's own budget: no run begins that it cannot afford, no round is answered twice, whatever the server asks."""

from __future__ import annotations

import hashlib
import io
import json
import math
import os
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from noisette import _validate
from noisette._files import posix_module
from noisette.accounting import AlreadyDebited, Ledger
from noisette.federated.channel import Channel
from noisette.federated.layout import ModelLayout
from noisette.federated.lines import TrustModel
from noisette.federated.terms import Terms
from noisette.guarantees import Guarantee, Relation

fcntl = posix_module("fcntl", "A client of a federation")


@dataclass(frozen=True)
class NodeBudget:
    """What a client is willing to give away over all runs, in a ledger file on the client's disk.

    The first round of a run debits the guarantee of the whole run, computed here from the server's terms; it stays
    debited if the run stops early. Then each round is answered once, and no more rounds than the terms say: a log next
    to the ledger, on the disk before a client looks at its data, counts them. A second run adds its guarantee to the
    first one's.
    """

    ledger: str | os.PathLike[str]
    epsilon: float
    delta: float = 0.0
    model: TrustModel = "local"
    minimum_set: int = 1

    def __post_init__(self) -> None:
        # an app may change the folder of the process, and a new ledger there would have the whole budget
        object.__setattr__(self, "ledger", Path(self.ledger).absolute())
        _validate.epsilon(self.epsilon)
        _validate.delta(self.delta)
        if self.model not in ("local", "shuffled"):
            raise ValueError(f"Expected model={self.model!r} to be 'local' or 'shuffled'.")
        _validate.integer(self.minimum_set, "minimum_set", low=2 if self.model == "shuffled" else 1)

    def desk(self, account: str, terms: Terms, layout: ModelLayout) -> Desk:
        """Return where the rounds of one run are answered."""
        channel, run = _prepared(terms.to_json(), layout)
        return Desk(self, account, terms, layout, channel, run)

    def begin(self, account: str, terms: Terms, layout: ModelLayout, run: str, log: RoundLog) -> None:
        """Debit a whole run, once however often this is called; raise `BudgetExceeded` where the run costs too much."""
        promise = terms.promise(layout, model=self.model, clients=self.minimum_set)
        if not math.isfinite(promise.epsilon):
            raise ValueError(
                "These terms promise nothing that a budget could hold: no finite epsilon is true of them. "
                "Choose others."
            )
        ledger = _opened(Path(self.ledger))
        relation: Relation = "replace" if self.model == "shuffled" else "any-pair"
        ledger.open_account(account, self.epsilon, self.delta, model=self.model, relation=relation)
        log.pay(ledger, account, promise, run)


@dataclass(frozen=True)
class Desk:
    """Where a client answers the rounds of one run: what it has answered, and the last report."""

    budget: NodeBudget
    account: str
    terms: Terms
    layout: ModelLayout
    channel: Channel
    run: str

    @cached_property
    def _file(self) -> str:
        name = hashlib.sha256(json.dumps([self.account, self.run]).encode()).hexdigest()
        return f"{os.fspath(self.budget.ledger)}-reports/{name}"

    def spend(self, number: int) -> bool:
        """Debit a round; False if it is the one that was debited last, so that its report must be sent again.

        It raises if the client cannot afford the run, if a later round was answered, or if all rounds that were paid
        for have been answered.
        """
        log = RoundLog(f"{self._file}.log")
        if not log.begun:
            self.budget.begin(self.account, self.terms, self.layout, self.run, log)
        return log.note(number, self.terms.rounds)

    def kept(self, number: int) -> npt.NDArray[Any] | None:
        """Return the report that was made for a round, if the round was the last one answered."""
        try:
            with Path(f"{self._file}.npy").open("rb") as file:
                if file.readline() != b"%d\n" % number:
                    return None
                stored: npt.NDArray[Any] = np.load(io.BytesIO(file.read()), allow_pickle=False)
        except (OSError, ValueError, EOFError):
            return None
        return stored

    def keep(self, number: int, payload: npt.NDArray[Any]) -> None:
        """Keep the report of a round, in place of the one before it: asked again, the client sends the same one."""
        target = Path(f"{self._file}.npy")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.unlink(missing_ok=True)  # a new file, as replacing one waits for the disk; cut short it is not read
        with target.open("wb") as file:
            file.write(b"%d\n" % number)
            np.save(file, payload, allow_pickle=False)


class RoundLog:
    """The rounds of one run that a client has answered, in a file."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)

    @property
    def begun(self) -> bool:
        """Whether a round was answered."""
        try:
            return self.path.stat().st_size > 0
        except FileNotFoundError:
            return False

    def pay(self, ledger: Ledger, account: str, promise: Guarantee, run: str) -> None:
        """Debit a run, once however often it is called, and refuse one whose log was there and is gone.

        The file is made before the run is paid for. So a run that is paid for and has none may have been answered, in
        rounds that nobody can count any more.
        """
        paid = ledger.receipt(account, run)  # first: whoever pays meanwhile has made the file before
        if paid is not None and not self.path.exists():
            raise AlreadyDebited(
                f"The run is paid for, and the list of its rounds, {self.path}, is gone: which of them were answered "
                "is not known. Put the file back, or leave this client out of the run."
            )
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("ab") as file:
            os.fsync(file.fileno())
        ledger.debit(account, promise, note=f"run {run}", idempotency_key=run)

    def note(self, number: int, most: int) -> bool:
        """Note a round; False if it is the one noted last. Raise if it is an earlier one, or beyond ``most``.

        The note is on the disk when this returns. One that a crash cut short counts as a release.
        """
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.seek(0)
            text = file.read()
            noted = text.split()
            if noted and noted[-1] == b"%d" % number:
                return False
            if b"%d" % number in noted:
                raise AlreadyDebited(
                    f"Round {number} was answered, and others after it. A new report would be a second release: leave "
                    "this client out of the round."
                )
            if len(noted) >= most:
                raise AlreadyDebited(
                    f"All {most} rounds that were paid for are answered. Ask other clients, or begin a run of more "
                    "rounds."
                )
            cut_short = bool(text) and not text.endswith(b"\n")
            file.write(b"\n" * cut_short + b"%d\n" % number)
            file.flush()
            os.fsync(file.fileno())
        return True


@lru_cache(maxsize=8)
def _prepared(terms: str, layout: ModelLayout) -> tuple[Channel, str]:
    """Return the channel and the name of a run once a process: they are the same for all its clients."""
    read = Terms.read(terms)
    return read.channel(layout), read.key(layout)


@lru_cache(maxsize=8)
def _opened(path: Path) -> Ledger:
    """Open a ledger once a process: opening checks the whole file."""
    return Ledger(path)
