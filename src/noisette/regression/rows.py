"""Rows of a file for a model: numbers and text side by side, in constant memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from noisette.domains import Categorical, Interval
from noisette.regression.training import Model, Training


@dataclass
class DesignRows:
    """Rows of a table for a design: numbers in one pass, each column of text in one beside it."""

    path: Path
    features: tuple[str, ...]
    target: str
    kinds: Mapping[str, Any]
    header: bool

    def batches(self) -> Iterator[tuple[Any, Any, float]]:
        """Yield rows, targets and the share of the file that was read."""
        from noisette.aggregation import Table

        names = [*self.features, self.target]
        text = [name for name in names if _is_text(self.kinds[name])]
        plain = [name for name in names if name not in text]
        tables = [Table.open(self.path, group, header=self.header) for group in ([plain] if plain else [])]
        streams: list[Iterable[Any]] = [table.numbers() for table in tables]
        for name in text:
            tables.append(Table.open(self.path, [name], header=self.header))
            streams.append(tables[-1].labels())
        for parts in aligned(streams):
            columns = dict(zip(plain, parts[0].T, strict=True)) if plain else {}
            columns |= dict(zip(text, parts[len(parts) - len(text) :], strict=True))
            rows = np.empty((len(parts[0]), len(self.features)), dtype=object if text else np.float64)
            for place, name in enumerate(self.features):
                rows[:, place] = columns[name]
            yield rows, columns[self.target], tables[0].share_read

    def errors(self, trainer: Training, model: Model, *, clip: bool) -> dict[str, Any]:
        """Return the errors of a model on the file: they are computed without noise, and are not private."""
        count, squares, total, spread, right = 0, 0.0, 0.0, 0.0, 0
        numeric = isinstance(trainer.target, Interval)
        for rows, values, _ in self.batches():
            exact = trainer.encode_target(values, clip=clip)
            exact = trainer.target.from_canonical(exact) if isinstance(trainer.target, Interval) else exact
            predicted = trainer.predict(model, rows)
            count += len(exact)
            squares += float(np.square(predicted - exact).sum())
            total += float(exact.sum())
            spread += float(np.square(exact).sum())
            right += int(((predicted > 0.5) == (exact > 0.5)).sum())
        mean = total / count
        variance = spread / count - mean**2
        common = {"file": str(self.path), "rows": count, "private": False}
        if not numeric:
            accuracy, largest = right / count, max(mean, 1 - mean)
            # a paired difference of two right answers has a variance of at most 1
            better = accuracy - largest > 2 * (min(1.0, 2 * (1 - largest)) / count) ** 0.5
            verdict = "better than always the larger class" if better else "no better than always the larger class"
            own = {"accuracy": accuracy, "largest_class": largest, "brier": squares / count}
            return common | own | {"verdict": verdict}
        error = squares / count
        better = error < variance * (1 - 4 / count**0.5)  # beyond what a sample of this many rows explains
        verdict = "better than always the mean" if better else "no better than always the mean"
        r2 = 1 - error / variance if variance > 0 else float("nan")
        return common | {"mse": error, "rmse": error**0.5, "r2": r2, "verdict": verdict}


def _is_text(domain: Any) -> bool:
    """Tell whether a column must be read as text: it has a category that is no number."""
    if not isinstance(domain, Categorical) or domain.labels is None:
        return False
    try:
        _ = [float(label) for label in domain.labels]
    except ValueError:
        return True
    return False


def aligned(streams: Sequence[Iterable[Any]]) -> Iterator[list[Any]]:
    """Cut streams of arrays into pieces that have the same rows in each."""
    sources = [iter(stream) for stream in streams]
    held: list[Any] = [None] * len(sources)
    while True:
        for place, source in enumerate(sources):
            if held[place] is None or len(held[place]) == 0:
                held[place] = next(source, None)
        if any(rows_held is None for rows_held in held):
            return
        rows = min(map(len, held))
        yield [rows_held[:rows] for rows_held in held]
        held = [rows_held[rows:] for rows_held in held]
