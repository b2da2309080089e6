"""A model from the rows of a file, each one person: those who teach it, and those who judge it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from noisette import _validate
from noisette._random import Rng, generator
from noisette.domains import Categorical, Interval
from noisette.guarantees import Guarantee
from noisette.regression.designs import BadValue, Design, coding_for
from noisette.regression.inference import Inference
from noisette.regression.judging import judge
from noisette.regression.moments import OneShot
from noisette.regression.pairs import PAIRS, ClassPairs
from noisette.regression.rows import DesignRows
from noisette.regression.training import Training

USUAL_JUDGES = 0.1  # share of the people who judge a model of two classes


class BadRow(ValueError):
    """A value of the file is not what was declared of its column."""


@dataclass(frozen=True)
class FileTraining:
    """What is learnt from a file, and how.

    ``kinds`` is what is declared of each column, [-1, 1] where nothing is; a target with categories makes the model
    logistic. ``given`` are options of `Training` alone.
    """

    path: Path
    features: tuple[str, ...]
    target: str
    kinds: Mapping[str, Any]
    epsilon: float
    mechanism: str = "auto"
    coding: Any = "auto"
    ridge: float = 1e-4
    one_shot: bool = False
    error_bars: bool = False
    given: Mapping[str, Any] | None = None
    judges: float = 0.0
    clip: bool = False
    header: bool = True

    @property
    def goal(self) -> Any:
        """The domain of the target."""
        return self.kinds.get(self.target, Interval())

    @property
    def logistic(self) -> bool:
        """Whether the target is one of two classes."""
        return isinstance(self.goal, Categorical)

    @property
    def pairs(self) -> bool:
        """Whether people report one attribute and their class."""
        return self.mechanism == PAIRS

    @property
    def design(self) -> Design:
        """How rows become the numbers that a model multiplies."""
        coding = self.coding
        if coding == "auto" or self.pairs:
            whole = self.pairs or self.one_shot or self.error_bars
            coding = "unit" if whole else coding_for(_validate.epsilon(self.epsilon))
        domains = tuple(self.kinds.get(name, Interval()) for name in self.features)
        return Design(domains, names=self.features, coding=coding)

    @property
    def trainer(self) -> Any:
        """The protocol between devices and server."""
        if self.error_bars:
            return Inference(self.design, self.goal, self.epsilon, mechanism=self.mechanism)
        if self.pairs:
            return ClassPairs(self.design, self.epsilon)
        made = OneShot if self.one_shot else Training
        options: dict[str, Any] = {"mechanism": self.mechanism, "ridge": self.ridge} | dict(self.given or {})
        return made(self.design, self.goal, self.epsilon, **options)

    def expected_errors(self, users: int) -> list[dict[str, Any]]:
        """Return what error bars this many users would give."""
        return Inference(self.design, self.goal, self.epsilon, mechanism=self.mechanism).expected(users)

    def run(
        self, *, test: Path | None = None, rng: Rng = None, on_progress: Callable[[float], None] = lambda share: None
    ) -> tuple[dict[str, Any], Guarantee]:
        """Train in one pass over the file, and return a record of the model and its guarantee.

        ``test`` is a file whose errors are computed without noise: they are not private.
        """
        started, randomness, trainer, design = time.monotonic(), generator(rng), self.trainer, self.design
        declared = dict(zip(self.features, design.attributes, strict=True)) | {self.target: self.goal}
        source = DesignRows(self.path, self.features, self.target, declared, self.header)
        people = _People(source, self.judges, int(randomness.integers(2**63)))  # who is asked to judge is no secret
        wrapped = self.one_shot or self.error_bars
        protocol = trainer.protocol if wrapped else trainer
        protocol = Training(design, self.goal, self.epsilon) if self.pairs else protocol
        judgement = None
        try:
            if self.error_bars or self.pairs:
                rows, values = people.teachers(on_progress)
                values = protocol.encode_target(values, clip=self.clip) if self.pairs else values
                result = trainer.run(rows, values, clip=self.clip, rng=randomness)
            else:
                result = trainer.run(people.teaching(on_progress), clip=self.clip, rng=randomness)
            fitted = result.model if wrapped else result
            if self.judges:
                judgement = people.judgement(protocol, fitted, clip=self.clip, rng=randomness)
        except BadValue as error:
            row = f"{self.path}, row {people.number(error.row):,}"
            raise BadRow(error.text.replace("[row]", row).replace("'target'", repr(self.target))) from None
        seconds = time.monotonic() - started
        slopes, intercept = protocol.coefficients(fitted)
        named = zip(design.columns[1:], slopes.tolist(), strict=True)
        plain = [{"name": name, "value": value} for name, value in named]
        first, *others = result.table() if self.error_bars else (None, *plain)
        record = {
            "model": "logistic" if self.logistic else "linear",
            "target": self.target,
            "users": fitted.users,
            "rounds": fitted.rounds,
            "intercept": intercept,
            "coefficients": others,
            "intercept_error": first,
            "verdict": result.verdict() if self.error_bars else None,
            "mechanism": {"mechanism": PAIRS} if self.pairs else trainer.channel.spec(),
            "guarantee": trainer.guarantee.spec(),
            "training": protocol.spec() | {"one_shot": self.one_shot},
            "seconds": seconds,
            "judgement": judgement,
            "test": None if test is None else replace(source, path=test).errors(protocol, fitted, clip=self.clip),
        }
        return record, trainer.guarantee


class _People:
    """The rows of a file in two parts, by a coin for each: those that teach a model, and those that judge it."""

    def __init__(self, source: DesignRows, judges: float, coins: int) -> None:
        self.source, self.judges, self.coins = source, judges, coins
        self.places: list[Any] = []  # in the file, of the rows that are at work

    def number(self, row: int) -> int:
        """Return where in the file a row is, counted from 1."""
        return int(np.concatenate(self.places)[row]) + 1

    def batches(self, *, judging: bool) -> Iterator[tuple[Any, Any, float]]:
        """Yield rows, values and the share of the file that was read."""
        tosses, done = np.random.default_rng(self.coins), 0
        for rows, values, read in self.source.batches():
            kept = np.flatnonzero((tosses.random(len(values)) < self.judges) == judging)
            self.places = [done + kept]
            done += len(values)
            if len(kept):
                yield rows[kept], values[kept], read

    def teaching(self, advance: Callable[[float], None]) -> Iterator[tuple[Any, Any]]:
        """Yield the rows that teach."""
        for rows, values, read in self.batches(judging=False):
            yield rows, values
            advance(read)

    def teachers(self, advance: Callable[[float], None]) -> tuple[Any, Any]:
        """Return all rows that teach."""
        found, places = [], []
        for one in self.teaching(advance):
            found.append(one)
            places += self.places
        if not found:
            raise ValueError("Expected at least one user to learn from, got an empty stream.")
        self.places = places
        rows, values = map(np.concatenate, zip(*found, strict=True))
        return rows, values

    def judgement(self, protocol: Training, model: Any, *, clip: bool, rng: Rng) -> dict[str, Any] | None:
        """Return how often the model is right, as the people who did not teach it report privately."""
        named, own = [], []
        for rows, values, _ in self.batches(judging=True):
            own.append(protocol.encode_target(values, clip=clip))
            _ = protocol.design.encode(rows, outside="clip" if clip else "refuse")
            named.append(protocol.predict(model, rows) > 0.5)
        if not own:
            return None
        found = judge(np.concatenate(named), np.concatenate(own), protocol.epsilon, rng=rng)
        return asdict(found) | {"verdict": found.verdict}
