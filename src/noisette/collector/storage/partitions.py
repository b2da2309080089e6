"""A campaign's stored reports in partitions, which processes of any number sum without the service.

A partition lists the numbers of its blocks, which are random: reports that come after the campaign was split are in no
partition. From time to time the collector puts small blocks together and mixes them. Reading a partition whose blocks
are gone is an error that says to split the campaign once more.
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

_PARTITION_REPORTS = 200_000  # reports in a partition
_BATCH_BYTES = 1 << 23  # in a batch
_BLOCKS_AT_ONCE = 500  # blocks in one query


@dataclass(frozen=True)
class BlockPartition:
    """The reports of a campaign's period in some blocks."""

    url: str = field(repr=False)  # it may hold a password
    campaign: str
    period: str
    numbers: tuple[int, ...]
    users: int
    row: np.dtype[Any]

    def __str__(self) -> str:
        return f"{len(self.numbers):,} blocks of campaign {self.campaign!r}"

    def batches(self) -> Iterator[Rows]:
        """Yield the reports, some 8 MB at a time."""
        kept: list[Rows] = []
        found = 0
        with snapshot(self.url) as connection:
            for number, users, raw in self._blocks(connection):
                if len(raw) != users * self.row.itemsize:
                    raise ValueError(
                        f"block {number:,} is damaged: {len(raw):,} bytes for {users:,} reports. Restore a backup."
                    )
                found += 1
                kept.append(np.frombuffer(raw, dtype=self.row))
                if sum(one.nbytes for one in kept) >= _BATCH_BYTES:
                    yield np.concatenate(kept)
                    kept = []
        if found != len(self.numbers):
            raise ValueError(f"{self} are no longer there: the collector has put some together. Split it once more.")
        if kept:
            yield np.concatenate(kept)

    def _blocks(self, connection: sa.Connection) -> Iterator[Any]:
        """Yield number, users and rows of each block."""
        for start in range(0, len(self.numbers), _BLOCKS_AT_ONCE):
            yield from connection.execute(
                self.query(self.numbers[start : start + _BLOCKS_AT_ONCE]).execution_options(yield_per=1)
            )

    def query(self, numbers: tuple[int, ...]) -> sa.Select[Any]:
        """Return the query for some blocks."""
        block = tables.blocks.c
        return sa.select(block.number, block.users, block.rows).where(block.number.in_(numbers))


def split_campaign(
    url: str, campaign: str, *, period: str | None = None, users: int = _PARTITION_REPORTS
) -> Partitioned[Sums]:
    """Cut the stored reports of a campaign's period, the only one by default, into partitions of about ``users``.

    Summed over all public groups the partitions give the very sums that the collector keeps, of which only the number
    of users is read: it must come out the same. SQLite is read by processes of one machine, PostgreSQL by those of
    any number.
    """
    url = located(url)
    with snapshot(url) as connection:
        asked = _campaign(connection, campaign)
        period, total = _chosen(connection, campaign, period)
        block = tables.blocks.c
        query = sa.select(block.number, block.users).where(block.campaign == campaign, block.period == period)
        found = connection.execute(query.order_by(block.number).execution_options(yield_per=10_000))
        parts = list(_parts(((number, count) for number, count in found), users))
    partitions = tuple(BlockPartition(url, campaign, period, *each, asked.row) for each in parts)
    return Partitioned(asked.layout.tally, total, partitions)


def campaign_periods(url: str, campaign: str) -> tuple[Campaign, tuple[str, ...]]:
    """Return a stored campaign, and its periods with reports in order."""
    with snapshot(located(url)) as connection:
        asked, own = _campaign(connection, campaign), tables.sums.c
        query = sa.select(own.period).where(own.campaign == campaign, own.users > 0).distinct()
        return asked, tuple(sorted(connection.execute(query).scalars()))


def _parts(blocks: Iterator[tuple[int, int]], least: int) -> Iterator[tuple[tuple[int, ...], int]]:
    """Yield the numbers of blocks with together this many reports, and how many they have."""
    numbers: list[int] = []
    total = 0
    for number, users in blocks:
        numbers.append(number)
        total += users
        if total >= least:
            yield tuple(numbers), total
            numbers, total = [], 0
    if total:
        yield tuple(numbers), total


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
        others = f"Name one that it has: {known}." if known else "It has none: give the URL of another one."
        raise ValueError(f"There is no campaign {name!r} in this database. {others}")
    return Campaign.from_wire(json.loads(text))


def _chosen(connection: sa.Connection, campaign: str, period: str | None) -> tuple[str, int]:
    """Return a period and how many users answered in it."""
    name, users = tables.sums.c.period, sa.func.sum(tables.sums.c.users)
    query = sa.select(name, users).where(tables.sums.c.campaign == campaign).group_by(name).order_by(name)
    counts = {each: int(count) for each, count in connection.execute(query)}
    if not counts:
        raise ValueError(f"Campaign {campaign!r} has no reports yet. Wait for some.")
    listed = ", ".join(list(counts)[-8:])
    if period is None and len(counts) > 1:
        raise ValueError(f"Campaign {campaign!r} has reports of {len(counts)} periods, the last {listed}. Name one.")
    chosen = next(iter(counts)) if period is None else period
    if chosen not in counts:
        raise ValueError(f"Campaign {campaign!r} has no reports of period {chosen!r}. Name one that has: {listed}.")
    return chosen, counts[chosen]
