"""A campaign's stored reports in partitions, which processes of any number sum without the service.

The collector writes blocks of one campaign one after the other, in the order of their numbers, and in one transaction
with their sums. So what is stored when a campaign is split lies within its ranges of numbers, what comes later outside.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import sqlalchemy as sa

from noisette.aggregation import Partitioned
from noisette.collector.storage import tables
from noisette.collector.storage.database import located, snapshot
from noisette.survey.campaigns import Campaign, Rows
from noisette.survey.sums import Sums

_USERS = 200_000  # reports in a partition
_BYTES = 1 << 23  # in a batch


@dataclass(frozen=True)
class BlockPartition:
    """The reports of a campaign's period in the blocks whose numbers are in a range, both ends included."""

    url: str = field(repr=False)  # it may hold a password
    campaign: str
    period: str
    first: int
    last: int
    users: int
    row: np.dtype[Any]

    def __str__(self) -> str:
        return f"blocks {self.first:,} to {self.last:,} of campaign {self.campaign!r}"

    def batches(self) -> Iterator[Rows]:
        """Yield the reports, some 8 MB at a time."""
        kept: list[Rows] = []
        with snapshot(self.url) as connection:
            for number, users, raw in connection.execute(self.query().execution_options(yield_per=1)):
                if len(raw) != users * self.row.itemsize:
                    raise ValueError(f"block {number:,} is damaged: {len(raw):,} bytes for {users:,} reports.")
                kept.append(np.frombuffer(raw, dtype=self.row))
                if sum(one.nbytes for one in kept) >= _BYTES:
                    yield np.concatenate(kept)
                    kept = []
        if kept:
            yield np.concatenate(kept)

    def query(self) -> sa.Select[Any]:
        """Return the query for the blocks."""
        block = tables.blocks.c
        # An empty text is added, so that the planner takes the range of numbers and not the index of campaigns.
        own = (block.campaign.concat("") == self.campaign) & (block.period.concat("") == self.period)
        query = sa.select(block.number, block.users, block.rows)
        return query.where(block.number.between(self.first, self.last), own)


def split_campaign(url: str, campaign: str, *, period: str | None = None, users: int = _USERS) -> Partitioned[Sums]:
    """Cut the stored reports of a campaign's period, the only one by default, into partitions of about ``users``.

    They add up, over all public groups, to the bits of the sums that the collector keeps; of these only the number of
    users is taken, which must come out. SQLite is read by processes of one machine, PostgreSQL by those of any number.
    """
    url = located(url)
    with snapshot(url) as connection:
        asked = _campaign(connection, campaign)
        period, total = _chosen(connection, campaign, period)
        block = tables.blocks.c
        query = sa.select(block.number, block.users).where(block.campaign == campaign, block.period == period)
        found = connection.execute(query.order_by(block.number).execution_options(yield_per=10_000))
        ranges = list(_ranges(((number, count) for number, count in found), users))
    partitions = tuple(BlockPartition(url, campaign, period, *each, asked.row) for each in ranges)
    return Partitioned(asked.layout.tally, total, partitions)


def _ranges(blocks: Iterator[tuple[int, int]], least: int) -> Iterator[tuple[int, int, int]]:
    """Yield first and last number of consecutive blocks with together so many reports, and how many they have."""
    first, last, total = 0, 0, 0
    for number, users in blocks:
        first, last, total = first if total else number, number, total + users
        if total >= least:
            yield first, last, total
            total = 0
    if total:
        yield first, last, total


def _campaign(connection: sa.Connection, name: str) -> Campaign:
    """Return a stored campaign."""
    versions = list(connection.execute(sa.select(tables.meta.c.version)).scalars())
    if versions != [tables.SCHEMA]:
        raise ValueError(
            f"Expected version {tables.SCHEMA} of the collector's tables, got {versions}. "
            "`noisette serve` of this version brings older ones up to date."
        )
    stored = tables.campaigns.c
    text = connection.execute(sa.select(stored.definition).where(stored.id == name)).scalar_one_or_none()
    if text is None:
        known = ", ".join(connection.execute(sa.select(stored.id).order_by(stored.id)).scalars())
        raise ValueError(f"There is no campaign {name!r} in this database, which has {known or 'none'}.")
    return Campaign.from_wire(json.loads(text))


def _chosen(connection: sa.Connection, campaign: str, period: str | None) -> tuple[str, int]:
    """Return a period and how many users answered in it."""
    name, users = tables.sums.c.period, sa.func.sum(tables.sums.c.users)
    query = sa.select(name, users).where(tables.sums.c.campaign == campaign).group_by(name).order_by(name)
    counts = {each: int(count) for each, count in connection.execute(query)}
    if not counts:
        raise ValueError(f"Campaign {campaign!r} has no reports yet.")
    listed = ", ".join(list(counts)[-8:])
    if period is None and len(counts) > 1:
        raise ValueError(f"Campaign {campaign!r} has reports of {len(counts)} periods, the last {listed}. Name one.")
    chosen = next(iter(counts)) if period is None else period
    if chosen not in counts:
        raise ValueError(f"Campaign {campaign!r} has no reports of period {chosen!r}, but of {listed}.")
    return chosen, counts[chosen]
