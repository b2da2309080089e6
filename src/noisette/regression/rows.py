"""Rows of a file for a model: numbers and text side by side, in constant memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from noisette.domains import Categorical, Interval
from noisette.regression.training import Model, Training


@dataclass
class DesignRows:
    """Rows of a table for a design."""

    path: Path
    features: tuple[str, ...]
    target: str
    kinds: Mapping[str, Any]
    header: bool

    def batches(self) -> Iterator[tuple[Any, Any, float]]:
        """Yield rows, targets and the share of the file that was read."""
        from noisette.aggregation import Table

        names = (*self.features, self.target)
        text = [name for name in names if _is_text(self.kinds[name])]
        table = Table.open(self.path, names, header=self.header)
        for values, texts in table.records(text):
            columns = dict(zip(names, values.T, strict=True)) | texts
            rows = values[:, :-1].astype(object) if text else values[:, :-1]
            for name in texts.keys() & set(self.features):
                rows[:, self.features.index(name)] = texts[name]
            yield rows, columns[self.target], table.share_read

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
