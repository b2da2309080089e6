"""Rows of a table for a model: numbers and text side by side."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from noisette.domains import Categorical


@dataclass
class DesignRows:
    """Rows of a table for a design: numbers in one pass, each column of text in one beside it."""

    path: Path
    features: tuple[str, ...]
    target: str
    kinds: Mapping[str, Any]
    header: bool
    done: int = 0

    def batches(self) -> Iterator[tuple[Any, Any, float]]:
        """Yield rows, targets and the share of the file that was read."""
        from noisette.aggregation import Table

        self.done = 0
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
        if any(part is None for part in held):
            return
        rows = min(map(len, held))
        yield [part[:rows] for part in held]
        held = [part[rows:] for part in held]
