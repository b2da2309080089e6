"""Which texts recur: the server's search through the counters of `PrefixExtending`, and the shares of what it finds."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from noisette import _validate
from noisette._special import betainc
from noisette._validate import FloatArray, IntArray
from noisette.domains import Texts
from noisette.domains.texts import ENDED, Symbols
from noisette.mechanisms.categorical.prefixes import PrefixExtending

SURVIVORS = 2  # prefixes that are kept from one length to the next, for each text that is asked for
ALARM = 0.05  # chance that a text that nobody has is shown at all
MOST_TEXTS = 1000
BLOCK = 512  # words whose support is found at a time: their buckets under all maps stay in a core's cache
_COLLISIONS = 0.1  # of the variance of the noise: above it the support that frequent prefixes lend others is taken off
_NEGLIGIBLE = 1e-12  # a weight, of a group that nobody is in
_FREQUENT = 2.0  # deviations of the noise from which a prefix counts as frequent there


@dataclass(frozen=True, eq=False)
class Found:
    """Texts that passed the search, by their share among those who searched and checked, largest first.

    ``checked`` is the share among the users who check, ``shown`` whether it is above ``threshold``, which by chance
    a text that nobody has passes with probability ``ALARM`` at most, all survivors taken together. ``share`` and
    ``std_error`` come from the users who measure, who had no part in the choice.
    """

    texts: tuple[str, ...]
    share: FloatArray
    std_error: FloatArray
    checked: FloatArray
    shown: npt.NDArray[np.bool_]
    threshold: float
    users: int


@dataclass(frozen=True, eq=False)
class _Prefixes:
    """Prefixes of one length, and the state of the grammar that each ends in."""

    symbols: Symbols
    states: npt.NDArray[np.int8]

    @classmethod
    def joined(cls, parts: list[_Prefixes], length: int) -> _Prefixes:
        """Return all different prefixes, those that have ended filled up to one length."""
        rows = [np.pad(one.symbols, ((0, 0), (0, length - one.symbols.shape[1]))) for one in parts]
        symbols, first = np.unique(np.concatenate(rows), axis=0, return_index=True)
        return cls(symbols, np.concatenate([one.states for one in parts])[first])

    def take(self, rows: Any) -> _Prefixes:
        return _Prefixes(self.symbols[rows], self.states[rows])


class _Group:
    """The counters of users who report about prefixes of one length, less what chance puts into each."""

    def __init__(self, mechanism: PrefixExtending, length: int, counts: IntArray) -> None:
        self.mechanism, self.length, self.counts = mechanism, length, counts
        self.users = int(counts.sum())
        self.chance = mechanism.p_other
        self.gap = mechanism.p_own - self.chance  # what one user more adds to the support of her prefix
        self.excess = np.asarray(counts - self.users / counts.size, dtype=np.float64)
        # standard deviation of the share of a prefix that nobody has
        self.noise = math.sqrt(self.chance * (1 - self.chance) / self.users) / self.gap if self.users else math.inf

    def buckets(self, symbols: Symbols) -> IntArray:
        """Return the bucket of each prefix under each map: a row for each map."""
        seeds = np.arange(self.mechanism.seeds)[:, None]
        rows = np.pad(symbols, ((0, 0), (0, max(0, self.length - symbols.shape[1]))))[:, : self.length]
        return self.mechanism.hash.bucket(seeds, rows[None], self.length)

    def shares(self, symbols: Symbols) -> FloatArray:
        """Return the share of each of a few prefixes, without what collisions of the public maps lend it."""
        own = self.buckets(symbols)
        support = self.excess[np.arange(len(own))[:, None], own].sum(axis=0)
        return np.asarray(_untangled(own, self.chance) @ support) / (max(self.users, 1) * self.gap)

    def measured(self, symbols: Symbols) -> tuple[FloatArray, FloatArray]:
        """Return the shares of a few prefixes with their standard errors: the mean of what each report says."""
        own = self.buckets(symbols)
        solved = _untangled(own, self.chance)
        sums, squares = np.zeros(len(solved)), np.zeros(len(solved))
        for seed, row in enumerate(self.counts):
            says = solved @ (own[seed][:, None] == np.flatnonzero(row)) - solved.sum(axis=1)[:, None] * self.chance
            sums += says @ row[row > 0]
            squares += says**2 @ row[row > 0]
        if self.users < 2:
            return np.full(len(solved), np.nan), np.full(len(solved), np.inf)
        variance = (squares / self.users - (sums / self.users) ** 2) / (self.users - 1)
        return sums / self.users / self.gap, np.sqrt(np.maximum(variance, 0.0)) / self.gap

    def without(self, symbols: Symbols, shares: FloatArray) -> FloatArray:
        """Return the excess of the counters without what some prefixes of known shares put into them."""
        rest = self.excess.copy()
        added = self.users / len(rest) * self.gap / (1 - self.chance) * shares
        np.subtract.at(rest, (np.arange(len(rest))[:, None], self.buckets(symbols)), added)
        return np.asarray(rest + added.sum() * self.chance)


def _untangled(own: IntArray, chance: float) -> FloatArray:
    """Return the matrix that turns the supports of prefixes, less chance, into shares.

    Prefix v has the support of its own users and of those whose prefix u the maps send to the bucket of v: of a known
    part of all maps. Over random maps that part is ``chance``; of these maps it is counted, and solved for.
    """
    alike = np.asarray([(own == own[:, [column]]).mean(axis=0) for column in range(own.shape[1])])
    return np.asarray(np.linalg.pinv((alike - chance) / (1 - chance)))


def search(mechanism: PrefixExtending, total: IntArray, texts: int = 20) -> Found:
    """Return the texts with most support in the counters ``total`` of `PrefixExtending.tally`.

    From one length to the next the ``SURVIVORS * texts`` prefixes with most support are kept. A text that has ended is
    judged by all groups that report about the whole of it.

    >>> m = PrefixExtending(epsilon=6.0, domain=Texts(4))
    >>> reports = m.privatize(np.repeat(["yes", "no"], [3000, 2000]), rng=7)
    >>> found = search(m, m.tally(reports).total, texts=2)
    >>> [text for text, shown in zip(found.texts, found.shown) if shown]
    ['yes', 'no']
    """
    kept = SURVIVORS * _validate.integer(texts, "texts", low=1, high=MOST_TEXTS)
    counters = np.asarray(total).reshape(len(mechanism.lengths), mechanism.seeds, mechanism.buckets)
    *searching, checking, measuring = (
        _Group(mechanism, length, counts) for length, counts in zip(mechanism.lengths, counters, strict=True)
    )
    survivors, past = _Prefixes(np.zeros((1, 0), dtype=np.uint8), np.zeros(1, dtype=np.int8)), 0
    for length in sorted({group.length for group in searching}):
        alike = [group.counts for group in searching if group.length == length]
        group = _Group(mechanism, length, np.sum(alike, axis=0))
        found = _extended(mechanism.domain, survivors, group, kept)
        scores = group.shares(found.symbols) / group.noise
        past += len(alike)
        ended = found.states == ENDED
        share, noise = _pooled(mechanism.domain, searching[:past], found.symbols[ended])
        scores[ended] = share / noise
        survivors = found.take(np.argsort(-scores, kind="stable")[:kept])
    named = [(mechanism.domain.text(row), row) for row in survivors.symbols]
    names = tuple(text for text, _ in named if text is not None)
    if not names:
        none = np.zeros(0)
        return Found((), none, none, none, none > 0, math.inf, measuring.users)
    symbols = np.asarray([row for text, row in named if text is not None])
    order = np.argsort(-_pooled(mechanism.domain, [*searching, checking], symbols)[0], kind="stable")
    symbols = symbols[order]
    threshold = (check_level(checking.users, kept, checking.chance) - checking.chance) / checking.gap
    checked = checking.shares(symbols)
    share, error = measuring.measured(symbols)
    shown = (checked > threshold) & np.isfinite(error)
    return Found(tuple(names[row] for row in order), share, error, checked, shown, threshold, measuring.users)


def check_level(users: float, kept: int, chance: float) -> float:
    """Return the share of support above which a text passes the check.

    The support of a text that nobody has is binomial: of so many survivors one or more pass with ``ALARM`` at most.
    """
    size = max(int(users), 1)
    count = int(size * chance)
    while count < size and betainc(count + 1, size - count, chance) > ALARM / kept:  # P(support > count)
        count += 1
    return count / size


def _pooled(domain: Texts, groups: list[_Group], symbols: Symbols) -> tuple[FloatArray, FloatArray]:
    """Return shares of whole texts, from all groups that report about the whole of them, and the noise of these."""
    sizes = (symbols != 0).sum(axis=1)
    mean, weight = np.zeros(len(symbols)), np.full(len(symbols), _NEGLIGIBLE)
    for group in groups:
        rows = (sizes < group.length) | (group.length == domain.width)
        if group.users and np.any(rows):
            mean[rows] += group.shares(symbols[rows]) / group.noise**2
            weight[rows] += 1 / group.noise**2
    return mean / weight, 1 / np.sqrt(weight)


def _extended(domain: Texts, prefixes: _Prefixes, group: _Group, kept: int) -> _Prefixes:
    """Return the texts that have ended, and the extensions of the other prefixes that have most support.

    Where a few prefixes are so frequent that what collisions lend others is no longer small beside the noise, they are
    taken off the counters and the rest is searched again.
    """
    ended, running = (prefixes.take((prefixes.states == ENDED) == done) for done in (True, False))
    found = _Prefixes.joined([ended, _best(domain, running, group, group.excess, kept)], group.length)
    shares = group.shares(found.symbols)
    collisions = np.square(shares).sum() / (group.mechanism.seeds * (group.mechanism.buckets - 1))
    if collisions <= _COLLISIONS * group.noise**2:
        return found
    frequent = shares > _FREQUENT * group.noise
    rest = group.without(found.symbols[frequent], shares[frequent])
    return _Prefixes.joined([found, _best(domain, running, group, rest, kept)], group.length)


def _best(domain: Texts, prefixes: _Prefixes, group: _Group, excess: FloatArray, kept: int) -> _Prefixes:
    """Return the extensions of prefixes that have most support."""
    hashes, seeds, start = group.mechanism.hash, np.arange(len(excess))[:, None], prefixes.symbols.shape[1]
    table = np.concatenate([excess, excess], axis=1).astype(np.float32)  # twice, so that sums need no remainder
    places = range(start, group.length)
    numbers = np.stack([hashes.table(seeds, place, np.arange(256)) for place in places]).astype(np.uint16)
    offsets = hashes.bucket(seeds, prefixes.symbols[None], start)
    parts, best = [_Prefixes(np.zeros((0, group.length), dtype=np.uint8), np.zeros(0, dtype=np.int8))], [np.zeros(0)]
    for state in np.unique(prefixes.states).tolist():
        own = np.flatnonzero(prefixes.states == state)
        words, after = extensions(domain, state, start, group.length)
        support = np.empty((own.size, len(words)), dtype=np.float32)
        _support()(table, offsets[:, own], numbers, words, group.mechanism.buckets, support)
        flat = support.reshape(-1)
        rows = np.argpartition(-flat, kept)[:kept] if kept < flat.size else np.arange(flat.size)
        prefix, word = np.divmod(rows, max(len(words), 1))
        parts.append(_Prefixes(np.concatenate([prefixes.symbols[own[prefix]], words[word]], axis=1), after[word]))
        best.append(flat[rows].astype(np.float64))
    order = np.argsort(-np.concatenate(best), kind="stable")[:kept]
    return _Prefixes(
        np.concatenate([one.symbols for one in parts]), np.concatenate([one.states for one in parts])
    ).take(order)


@lru_cache(maxsize=64)
def extensions(domain: Texts, state: int, start: int, stop: int) -> tuple[Symbols, npt.NDArray[np.int8]]:
    """Return all symbols that can follow on a state from one length to another, and the states that they end in."""
    words, states = np.zeros((1, 0), dtype=np.uint8), np.asarray([state], dtype=np.int8)
    for place in range(start, stop):
        after = domain.grammar[states]
        if place == 0:
            after[:, 0] = -1  # no text is empty
        if place == domain.width - 1:
            after[after > ENDED] = -1  # a character without its last byte
        row, symbol = np.nonzero(after >= 0)
        words = np.concatenate([words[row], symbol[:, None].astype(np.uint8)], axis=1)
        states = after[row, symbol]
    return words, states


@lru_cache(maxsize=1)
def _support() -> Any:
    """Return the loop that adds up, under all maps, the counters of every prefix followed by every word."""
    from noisette.mechanisms._compiled import compiled

    def support(table: Any, offsets: Any, numbers: Any, words: Any, buckets: int, out: Any) -> None:
        maps, places = table.shape[0], words.shape[1]
        own = np.empty((maps, BLOCK), dtype=np.uint16)
        for start in range(0, words.shape[0], BLOCK):
            size = min(BLOCK, words.shape[0] - start)
            for seed in range(maps):
                for word in range(size):
                    total = 0
                    for place in range(places):
                        total += numbers[place, seed, words[start + word, place]]
                    own[seed, word] = total % buckets
            for prefix in range(out.shape[0]):
                line = out[prefix, start : start + size]
                line[:] = 0
                for seed in range(maps):
                    row = table[seed, offsets[seed, prefix] :]
                    for word in range(size):
                        line[word] += row[own[seed, word]]

    return compiled(support, fastmath=True)
