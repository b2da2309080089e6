"""Rows of a file as the answers of users to a campaign."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from noisette.cli._rows import aligned


@dataclass(frozen=True, eq=False)
class Block:
    """Some users: who they are, their values as mechanisms take them, and how far the file was read."""

    users: list[bytes]
    coded: dict[str, Any]
    groups: Any
    share: float

    @property
    def digest(self) -> bytes:
        """A digest of all values, by which another file is recognised."""
        found = hashlib.sha256()
        for values in (*self.coded.values(), *([] if self.groups is None else [self.groups])):
            found.update(np.ascontiguousarray(values).tobytes())
        return found.digest()


@dataclass(frozen=True)
class Source:
    """A table whose columns are a campaign's attributes."""

    path: Path
    campaign: Any
    user_column: str | None
    clip: bool

    def blocks(self) -> Iterator[Block]:
        """Yield the rows of the file, checked."""
        from noisette.aggregation import Table

        public = self.campaign.public_group
        numeric = [one for one in self.campaign.attributes if one.kind != "category"]
        text = [one.name for one in self.campaign.attributes if one.kind == "category"]
        text += [public.name] if public is not None else []
        text += [self.user_column] if self.user_column is not None else []
        columns = [name for one in numeric for name in one.quantities]
        tables = [Table.open(self.path, group) for group in ([columns] if columns else []) + [[name] for name in text]]
        streams = [table.numbers() if place < bool(columns) else table.labels() for place, table in enumerate(tables)]
        rows = 0
        for parts in aligned(streams):
            labels = dict(zip(text, parts[bool(columns) :], strict=True))
            coded = {}
            for one in self.campaign.attributes:
                if one.kind == "category":
                    coded[one.name] = self._codes(labels[one.name], one.domain.labels, one.name, rows)
                else:
                    start = columns.index(one.quantities[0])
                    coded[one.name] = self._numbers(parts[0][:, start : start + len(one.quantities)], one, rows)
            groups = None
            if public is not None:
                groups = self._codes(labels[public.name], public.values, public.name, rows).astype(np.uint16)
            count = len(parts[0])
            named = range(rows, rows + count) if self.user_column is None else labels[self.user_column].tolist()
            yield Block([str(user).encode() for user in named], coded, groups, tables[0].share_read)
            rows += count

    def _codes(self, labels: Any, known: tuple[str, ...], name: str, before: int) -> Any:
        codes = {label: code for code, label in enumerate(known)}
        found = np.asarray([codes.get(label, -1) for label in labels.tolist()], dtype=np.int64)
        if (found < 0).any():
            place = int(np.argmin(found))
            raise ValueError(
                f"{self.path}, row {before + place + 1}: expected {name}={str(labels[place])!r} to be one of "
                f"{', '.join(known)}."
            )
        return found

    def _numbers(self, values: Any, attribute: Any, before: int) -> Any:
        domain = attribute.domain
        shaped = values.reshape(len(values), *domain.shape)
        if self.clip:
            return domain.clip(shaped)
        inside = np.asarray(domain.contains(shaped))
        if not inside.all():
            place = int(np.argmin(inside))
            shown = f"={values[place, 0]:g}" if domain.shape == () else ""
            raise ValueError(
                f"{self.path}, row {before + place + 1}: expected {attribute.name}{shown} in {domain}. "
                "Add --clip to move numbers to the nearest end."
            )
        return shaped
