"""Rows of a file as the answers of users to a campaign."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np


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
    """A table whose columns are a campaign's questions."""

    path: Path
    campaign: Any
    user_column: str | None
    clip: bool

    def blocks(self) -> Iterator[Block]:
        """Yield the rows of the file, checked."""
        from noisette.survey.coding.columns import columns_of_file

        survey, also = self.campaign.survey, [] if self.user_column is None else [self.user_column]
        for columns in columns_of_file(self.path, survey.questions, survey.groups, also):
            coded = {one.name: one.column(columns, clip=self.clip) for one in survey.questions}
            first = columns.before
            users = range(first, first + columns.rows) if self.user_column is None else columns.texts(self.user_column)
            yield Block([str(user).encode() for user in users], coded, survey.cells_of(columns), columns.share)
