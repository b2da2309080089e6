"""Which texts recur: the server's search through the counters of `PrefixExtending`, and the shares of what it finds."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from noisette import _validate
from noisette._special import betainc, betaincinv
from noisette._validate import FloatArray, IntArray
from noisette.core import Estimate
from noisette.domains import Texts
from noisette.domains.texts import ENDED, OPEN, Symbols
from noisette.mechanisms.categorical.texts.prefixes import PrefixExtending

SURVIVORS = 2  # prefixes that are kept from one length to the next, for each text that is asked for
ALARM = 0.05  # chance that a text that nobody has is shown at all
MOST_TEXTS = 1000
BLOCK = 512  # words whose support is found at a time: their buckets under all maps stay in a core's cache
_COLLISIONS = 0.1  # share of the noise's variance, above which support by collision with frequent prefixes is taken off
_NEGLIGIBLE = 1e-12  # a weight, of a group that nobody is in
_SPARSE = 0.15  # reports a counter, up to which they are gone through one by one
_COUNTERS_A_PREFIX = 4  # counters that are free, for each prefix, from which on their shares can be solved for
_FREQUENT = 2.0  # deviations of the noise from which a prefix counts as frequent there
_BLOCK = 1 << 12  # counters that are gone through together
_ROUNDS = 2  # of solving for texts that may be frequent
_SOLVED = 200  # texts among which the frequent ones are, at least, where all texts are looked at
_HALVINGS = 50  # of the range of a chance, in which the end of an interval is found


@dataclass(frozen=True, eq=False)
class Chosen:
    """Supports of texts that the same reports chose: each is binomial, from its ``least`` count on.

    Formula: of n ``users`` S support a text, each with chance h = ``others`` + ``gap`` f, f its share. It was chosen as
    S >= c. The interval keeps the f for which neither P(S >= s | S >= c) nor P(S <= s | S >= c) is below (1 - level) /
    2, half of P(S = s) taken off each (mid-P): so it holds for the texts that were chosen (Fithian, Sun, Taylor 2014).
    Its lower end is no lower than the f of which s is exceeded with a chance of ``alarm`` (1 - level) / 0.05: all texts
    taken together, chosen or not, that end is too high for some text with a chance of 1 - level at most. So it is above
    zero for every text that is shown. ``users`` are fewer than there are where texts that nobody solved for lend others
    support (`_Group.effective`), so counts need not be whole.
    """

    users: FloatArray
    gap: float
    alarm: float
    seen: FloatArray
    others: FloatArray
    least: FloatArray

    def interval(self, level: float) -> tuple[FloatArray, FloatArray]:
        """Return both ends of the interval of each share, NaN where a text was not chosen."""
        own = self.seen >= self.least
        low, high = np.full(own.shape, np.nan), np.full(own.shape, np.nan)
        users, seen, least, others = (one[own] for one in (self.users, self.seen, self.least, self.others))
        chance = (1 - level) / 2

        def above(rate: FloatArray) -> FloatArray:
            """P(S > s) + P(S = s) / 2, given that the text was chosen."""
            chosen = _at_least(least, users, rate)
            return (_at_least(seen, users, rate) + _at_least(seen + 1, users, rate)) / 2 / chosen

        bottom = _crossed(lambda rate: above(rate) < chance, others)
        top = _crossed(lambda rate: above(rate) < 1 - chance, others)
        sure = betaincinv(seen, users - seen + 1, self.alarm * (1 - level) / ALARM)
        low[own] = (np.maximum(bottom, sure) - others) / self.gap
        high[own] = (top - others) / self.gap
        return low, high


@dataclass(frozen=True, eq=False)
class Found:
    """Texts that passed the search, largest share first, as those who did not measure saw it.

    ``checked`` is the share among the users who check, ``shown`` whether it is above ``threshold``, which by chance
    a text that nobody has passes with probability ``ALARM`` at most, all survivors taken together, and whether its 95 %
    interval leaves out zero. ``made`` comes from the ``users`` who measure, who had no part in the choice. Where all
    reports chose and measured, ``chosen`` says from which counts on. ``asked`` is how many texts were asked for,
    ``reports`` how many people reported.
    """

    texts: tuple[str, ...]
    made: Estimate
    checked: FloatArray
    shown: npt.NDArray[np.bool_]
    threshold: float
    users: int
    asked: int
    reports: int
    chosen: Chosen | None = None

    def interval(self, level: float = 0.95) -> tuple[FloatArray, FloatArray]:
        """Return both ends of the interval of each share: it holds although the text was chosen for its share."""
        return self.made.interval(level) if self.chosen is None else self.chosen.interval(level)

    @property
    def share(self) -> FloatArray:
        """The share of each text."""
        return self.made.value

    @property
    def std_error(self) -> FloatArray:
        """The standard error of each share."""
        return self.made.std_error


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
        self.least = mechanism.p_own * math.exp(-mechanism.epsilon)  # chance of a support where nobody else's collides
        self.excess = np.asarray(counts - self.users / counts.size, dtype=np.float64)
        # standard deviation of the share of a prefix that nobody has
        self.noise = math.sqrt(self.chance * (1 - self.chance) / self.users) / self.gap if self.users else math.inf

    def buckets(self, symbols: Symbols) -> IntArray:
        """Return the bucket of each prefix under each map: a row for each map."""
        rows = np.pad(symbols, ((0, 0), (0, max(0, self.length - symbols.shape[1]))))[:, : self.length]
        return self.mechanism.hash.every_bucket(rows, 0)

    def shares(self, symbols: Symbols) -> FloatArray:
        """Return the share of each of a few prefixes, without the support that collisions of the maps give it."""
        own = self.buckets(symbols)
        support = self.excess[np.arange(len(own))[:, None], own].sum(axis=0)
        return np.asarray(_untangled(own, self.chance) @ support) / (max(self.users, 1) * self.gap)

    def shares_alone(self, symbols: Symbols, excess: FloatArray) -> FloatArray:
        """Return the share of each prefix by its own support in counters, whatever collisions give it."""
        own = self.buckets(symbols)
        return np.asarray(excess[np.arange(len(own))[:, None], own].sum(axis=0)) / (max(self.users, 1) * self.gap)

    def measured(self, symbols: Symbols) -> Estimate:
        """Return the shares of a few prefixes: the mean of what each report says."""
        own = self.buckets(symbols)
        solved = _untangled(own, self.chance)
        sums, squares = np.zeros(len(solved)), np.zeros(len(solved))
        seeds, buckets = np.nonzero(self.counts)
        for start in range(0, seeds.size, _BLOCK):
            block = seeds[start : start + _BLOCK], buckets[start : start + _BLOCK]
            says = (own[block[0]] == block[1][:, None]) @ solved.T - self.chance * solved.sum(axis=1)
            sums += self.counts[block] @ says
            squares += self.counts[block] @ says**2
        count = np.full(len(solved), self.users, dtype=np.int64)
        if self.users < 2:
            return Estimate(np.full(len(solved), np.nan), np.full(len(solved), np.inf), count, 0.0, 1.0)
        variance = (squares / self.users - (sums / self.users) ** 2) / (self.users - 1)
        shares = sums / self.users / self.gap
        variance += self.lent(self.without(symbols, shares)) / self.users
        error = np.sqrt(np.maximum(variance, 0.0)) / self.gap
        rest = self.chance * solved.sum(axis=1)
        low, high = ((side.sum(axis=1) - rest) / self.gap for side in (np.minimum(solved, 0), np.maximum(solved, 0)))
        return Estimate(shares, error, count, 0.0, 1.0, ends=(low, high))

    def supports(self, symbols: Symbols, shares: FloatArray) -> tuple[IntArray, FloatArray]:
        """Return how many users support each prefix, and the chance with which one does who has another.

        A prefix is supported by chance, and by the users whose prefix some maps send to its bucket. That support is
        taken off the ``shares`` on average, and varies as much as any: of this many users it is binomial. The search
        goes by the same maps, so it finds the very texts that collide most.
        """
        own = self.buckets(symbols)
        support = np.asarray(self.counts[np.arange(len(own))[:, None], own].sum(axis=0))
        return support, np.clip(support / max(self.users, 1) - self.gap * shares, self.least, 1.0)

    def passing(self, symbols: Symbols, shares: FloatArray, alarm: float) -> npt.NDArray[np.bool_]:
        """Tell which prefixes have more support than one that nobody has gets with a chance of ``alarm``."""
        support, others = self.supports(symbols, shares)
        rates = np.maximum(others, self.chance)
        users = self.effective(rates, self.without(symbols, shares))
        return np.asarray((support > 0) & (_at_least(support / max(self.users, 1) * users, users, rates) <= alarm))

    def effective(self, rates: FloatArray, rest: FloatArray) -> FloatArray:
        """Return the number of users whose supports, at these rates, vary as much as those of all users do."""
        own = rates * (1 - rates)
        return np.asarray(self.users * own / (own + self.lent(rest)))

    def lent(self, rest: FloatArray) -> float:
        """Return the variance that collisions of texts not solved for add to the support of a text, a user.

        Users with one text and one map have one bucket more often than chance. So the ``rest`` of the counters, less
        the texts solved for, varies more than that of as many users with texts of their own would: by
        n gap^2 sum f^2 / (K (1 - q)), q the chance of a support and K the number of maps. The support that these texts
        lend others, which no number of users evens out, varies by q times that.
        """
        varies = float(np.square(rest - rest.mean(axis=1, keepdims=True)).sum()) / max(self.users, 1)
        return max(varies - (1 - self.chance), 0.0) * self.chance

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
    alike = len(own) * np.eye(own.shape[1], dtype=np.int64)
    _loops()[2](own, alike)
    solved = (alike / len(own) - chance) / (1 - chance)
    if len(own) * (1 / chance - 1) < _COUNTERS_A_PREFIX * len(alike):  # so few maps may not tell all prefixes apart
        return np.asarray(np.linalg.pinv(solved, hermitian=True))
    return np.asarray(np.linalg.inv(solved))


def search(mechanism: PrefixExtending, total: IntArray, texts: int = 20, *, apart: bool = False) -> Found:
    """Return the texts with most support in the counters ``total`` of `PrefixExtending.tally`.

    From one length to the next the ``SURVIVORS * texts`` prefixes with most support are kept. A text that has ended is
    judged by all groups that report about the whole of it. Where all do, all texts there are are looked at, by all
    reports. ``apart`` leaves those who measure out of the choice altogether, also out of what is shown.

    >>> m = PrefixExtending(epsilon=6.0, domain=Texts(4))
    >>> reports = m.privatize(np.repeat(["yes", "no"], [3000, 2000]), rng=7)
    >>> found = search(m, m.tally(reports).total, texts=2)
    >>> [text for text, shown in zip(found.texts, found.shown) if shown]
    ['yes', 'no']
    """
    kept = SURVIVORS * _validate.integer(texts, "texts", low=1, high=MOST_TEXTS)
    if mechanism.at_once and not apart:
        return _listed(mechanism, total, texts)
    *searching, checking, measuring = _groups(mechanism, total)
    people: dict[str, Any] = {"users": measuring.users, "asked": texts, "reports": int(total.sum())}
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
        return _nothing(people)
    symbols = np.asarray([row for text, row in named if text is not None])
    order = np.argsort(-_pooled(mechanism.domain, [*searching, checking], symbols)[0], kind="stable")
    symbols = symbols[order]
    threshold = (check_level(checking.users, kept, checking.chance) - checking.chance) / checking.gap
    checked = checking.shares(symbols)
    made = measuring.measured(symbols)
    shown = (checked > threshold) & np.isfinite(made.std_error)
    shown[shown] = checking.passing(symbols, checked, ALARM / kept)[shown]
    if not apart:
        shown &= made.interval()[0] > 0
    return Found(tuple(names[row] for row in order), made, checked, shown, threshold, **people)


def _nothing(people: dict[str, Any]) -> Found:
    none = np.zeros(0)
    return Found((), Estimate(none, none, none.astype(np.int64)), none, none > 0, math.inf, **people)


def _listed(mechanism: PrefixExtending, total: IntArray, texts: int) -> Found:
    """Return the texts with most support among all there are, by all reports.

    A text is shown that has more support than one that nobody has gets with a chance of ``ALARM``, all texts there are
    taken together, and more than the first text that is too many.
    """
    domain, width = mechanism.domain, mechanism.domain.width
    group = _Group(mechanism, width, np.sum([one.counts for one in _groups(mechanism, total)], axis=0))
    people: dict[str, Any] = {"users": group.users, "asked": texts, "reports": group.users}
    heads, kept = _Prefixes(*extensions(domain, OPEN, 0, width // 2)), max(SURVIVORS * texts, _SOLVED)
    rows = _freed(domain, heads, group, [_best(domain, heads, group, group.excess, kept)], kept).symbols
    named = [(text, row) for row in rows if (text := domain.text(row)) is not None]
    if not named or group.users < 2:
        return _nothing(people)
    symbols, many = np.asarray([row for _, row in named]), group.users
    threshold = (listed_level(mechanism, many) - group.chance) / group.gap
    share, rest = _freely(group, symbols, threshold)
    order = np.argsort(-share, kind="stable")
    symbols, share = symbols[order], share[order]
    alarm = ALARM / many_texts(mechanism)
    support, others = group.supports(symbols, share)
    users = group.effective((support + 1) / (many + 2), rest)
    seen, least = support * (users / many), least_count(users, others, alarm)
    if len(order) > texts:  # the first text that is too many decides, too
        last = np.floor(many * (others[:texts] + group.gap * share[texts])) + 1
        least[:texts] = np.maximum(least[:texts], last * (users[:texts] / many))
        least[texts:] = many + 1
    chosen = Chosen(users, group.gap, alarm, seen, others, least)
    error = np.sqrt(seen / users * (1 - seen / users) / users) / group.gap
    made = Estimate(share, error, np.full(len(order), many, dtype=np.int64), 0.0, 1.0)
    names = tuple(named[row][0] for row in order)
    return Found(names, made, share, seen >= least, threshold, **people, chosen=chosen)


def _freely(group: _Group, symbols: Symbols, threshold: float) -> tuple[FloatArray, FloatArray]:
    """Return the shares of texts without the support that those above a threshold lend them, and the rest of counters.

    Only these are solved for together: what looks frequent by chance would take from others what it does not lend.
    """
    share = group.shares_alone(symbols, group.excess)
    frequent = share > threshold
    for _ in range(_ROUNDS):
        share[frequent] = group.shares(symbols[frequent])
        frequent &= share > threshold
    share[frequent] = group.shares(symbols[frequent])
    rest = group.without(symbols[frequent], share[frequent])
    share[~frequent] = group.shares_alone(symbols[~frequent], rest)
    return share, rest


def listed_level(mechanism: PrefixExtending, users: float) -> float:
    """Return the share of support from which on a text is shown where all there are are looked at."""
    size, chance = np.asarray([max(int(users), 1)]), np.asarray([mechanism.p_other])
    return float((least_count(size, chance, ALARM / many_texts(mechanism))[0] - 0.5) / size[0])


def many_texts(mechanism: PrefixExtending) -> int:
    """Return how many codes of whole texts there are, where they are looked at all at once."""
    return len(extensions(mechanism.domain, OPEN, 0, mechanism.domain.width)[0])


def least_count(users: Any, chance: FloatArray, alarm: float) -> FloatArray:
    """Return the least counts that are reached with a chance of ``alarm`` at most, each of ``users`` with a chance."""
    low, high = np.floor(users * chance), users + np.ones(chance.shape)  # reached more often; not so often
    while np.any(high - low > 1):
        middle = np.floor((low + high) / 2)
        often = _at_least(middle, users, chance) > alarm
        low, high = np.where(often, middle, low), np.where(often, high, middle)
    return np.asarray(high)


def _at_least(count: Any, users: Any, chance: Any) -> FloatArray:
    """Return the chance that so many of ``users`` or more are counted, each with a chance."""
    inside = np.clip(count, 1, users)
    found = betainc(inside, users - inside + 1, chance)
    return np.asarray(np.where(np.asarray(count) > users, 0.0, np.where(np.asarray(count) < 1, 1.0, found)))


def _crossed(below: Callable[[FloatArray], npt.NDArray[np.bool_]], start: FloatArray) -> FloatArray:
    """Return for each row the rate up to which ``below`` is true, between ``start`` and 1."""
    low, high = start.copy(), np.ones_like(start)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        true = below(middle)
        low, high = np.where(true, middle, low), np.where(true, high, middle)
    return (low + high) / 2


def measured(mechanism: PrefixExtending, total: IntArray, texts: Sequence[str]) -> Estimate:
    """Return the shares of texts that were not chosen by the users who measure."""
    return _groups(mechanism, total)[-1].measured(mechanism.domain.symbols(texts))


def share_of_ended(mechanism: PrefixExtending, total: IntArray, text: str) -> Estimate:
    """Return the share of a text that was not chosen and is no prefix of another one, by all reports.

    The counters of each group are turned so that the bucket of the text comes first under every map: then all groups
    count as one, for texts that collide in one of them do in all that report about the whole of them.
    """
    symbols = mechanism.domain.symbols([text])
    turned = []
    for group in _groups(mechanism, total):
        places = group.buckets(symbols) + np.arange(mechanism.buckets)
        turned.append(np.take_along_axis(group.counts, places % mechanism.buckets, axis=1))
    group = _Turned(mechanism, mechanism.domain.width, np.sum(turned, axis=0))
    made = group.measured(symbols)
    if group.users != 1:
        return made
    ends = (-group.chance / group.gap, (1 - group.chance) / group.gap)
    return replace(made, value=group.shares_alone(symbols, group.excess), ends=ends)


class _Turned(_Group):
    """Counters in which the bucket of every prefix that is asked about comes first."""

    def buckets(self, symbols: Symbols) -> IntArray:
        """Return the first bucket."""
        return np.zeros((self.mechanism.seeds, len(symbols)), dtype=np.int64)


def _groups(mechanism: PrefixExtending, total: IntArray) -> list[_Group]:
    """Return the counters of all groups: those that search, the one that checks and the one that measures."""
    counters = np.asarray(total).reshape(len(mechanism.lengths), mechanism.seeds, mechanism.buckets)
    return [_Group(mechanism, length, counts) for length, counts in zip(mechanism.lengths, counters, strict=True)]


def check_level(users: float, kept: int, chance: float) -> float:
    """Return the share of support above which a text passes the check.

    The support of a text that nobody has is binomial: of so many survivors one or more pass with ``ALARM`` at most. It
    is a count, from which collisions are taken off, so that the level lies half a user above the last count to fail.
    """
    size = max(int(users), 1)
    count = int(size * chance)
    while count < size and betainc(count + 1, size - count, chance) > ALARM / kept:  # P(support > count)
        count += 1
    return (count + 0.5) / size


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
    return _freed(domain, running, group, [ended, _best(domain, running, group, group.excess, kept)], kept)


def _freed(domain: Texts, prefixes: _Prefixes, group: _Group, parts: list[_Prefixes], kept: int) -> _Prefixes:
    """Return what was found of some prefixes, and what is found without the support that frequent ones lend others."""
    found = _Prefixes.joined(parts, group.length)
    shares = group.shares(found.symbols)
    collisions = np.square(shares).sum() / (group.mechanism.seeds * (group.mechanism.buckets - 1))
    if collisions <= _COLLISIONS * group.noise**2:
        return found
    frequent = shares > _FREQUENT * group.noise
    rest = group.without(found.symbols[frequent], shares[frequent])
    return _Prefixes.joined([found, _best(domain, prefixes, group, rest, kept)], group.length)


def _best(domain: Texts, prefixes: _Prefixes, group: _Group, excess: FloatArray, kept: int) -> _Prefixes:
    """Return the extensions of prefixes that have most support."""
    hashes, start = group.mechanism.hash, prefixes.symbols.shape[1]
    offsets = hashes.every_bucket(prefixes.symbols, 0)
    parts, best = [_Prefixes(np.zeros((0, group.length), dtype=np.uint8), np.zeros(0, dtype=np.int8))], [np.zeros(0)]
    for state in np.unique(prefixes.states).tolist():
        own = np.flatnonzero(prefixes.states == state)
        words, after = extensions(domain, state, start, group.length)
        support = np.zeros((own.size, len(words)), dtype=np.float32)
        places = np.ascontiguousarray(offsets[:, own])
        _add_support(group, (domain, state, start, group.length), excess, places, support)
        flat = support.reshape(-1)
        rows = np.argpartition(-flat, kept)[:kept] if kept < flat.size else np.arange(flat.size)
        prefix, word = np.divmod(rows, max(len(words), 1))
        parts.append(_Prefixes(np.concatenate([prefixes.symbols[own[prefix]], words[word]], axis=1), after[word]))
        best.append(flat[rows].astype(np.float64))
    order = np.argsort(-np.concatenate(best), kind="stable")[:kept]
    return _Prefixes(
        np.concatenate([one.symbols for one in parts]), np.concatenate([one.states for one in parts])
    ).take(order)


def _add_support(group: _Group, step: tuple[Texts, int, int, int], excess: Any, offsets: Any, out: Any) -> None:
    """Add to ``out`` the support of every prefix, of which the buckets are given, followed by every word of a step."""
    many, few, _ = _loops()
    hashes, (start, stop) = group.mechanism.hash, step[2:]
    if excess is group.excess and group.users <= _SPARSE * excess.size:  # counts do as well: no order changes
        reports = np.repeat(np.asarray(np.nonzero(group.counts)), group.counts[group.counts > 0], axis=1)
        (heads, head_of), (tails, tail_of) = _halves(*step)
        sums = (hashes.every_bucket(heads, start), hashes.every_bucket(tails, start + heads.shape[1]))
        few(reports, offsets, *sums, hashes.buckets, head_of, tail_of, out)
        return
    numbers = np.ascontiguousarray([hashes.numbers(place).T for place in range(start, stop)])
    twice = np.concatenate([excess, excess], axis=1).astype(np.float32)  # so that sums need no remainder
    many(twice, offsets, numbers, extensions(*step)[0], hashes.buckets, out)


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


@lru_cache(maxsize=64)
def _halves(domain: Texts, state: int, start: int, stop: int) -> tuple[tuple[Symbols, IntArray], ...]:
    """Return the different first halves of all extensions, and which one each has; then the second halves."""
    words, half = extensions(domain, state, start, stop)[0], (stop - start) // 2
    found = []
    for half_words in (words[:, :half], words[:, half:]):  # of eight symbols at most: a number of 64 bits
        number = np.pad(half_words, ((0, 0), (0, 8 - half_words.shape[1]))).view(np.uint64).reshape(-1)
        _, first, own = np.unique(number, return_index=True, return_inverse=True)
        found.append((half_words[first], own))
    return tuple(found)


@lru_cache(maxsize=1)
def _loops() -> tuple[Any, Any, Any]:
    """Return the loops below as machine code."""
    from noisette.mechanisms._compiled import compiled

    return compiled(_support_of_many, fastmath=True), compiled(_support_of_few), compiled(_alike)


def _support_of_many(table: Any, offsets: Any, numbers: Any, words: Any, buckets: int, out: Any) -> None:
    """Add up, under all maps, the counters of every prefix followed by every word."""
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
            for seed in range(maps):
                row = table[seed, offsets[seed, prefix] :]
                for word in range(size):
                    line[word] += row[own[seed, word]]


def _support_of_few(
    reports: Any, offsets: Any, heads: Any, tails: Any, buckets: int, head_of: Any, tail_of: Any, out: Any
) -> None:
    """Add up the same from few reports: ``reports`` has the seed and the bucket of each.

    A word is a head and a tail. Under each map every bucket has a row that marks the tails that it holds: a report adds
    one such row for each head. Rows are of bytes and a multiple of 32, so that a processor adds 32 at a time; they are
    added to ``out`` before one overflows.
    """
    size, many, last = tails.shape[1], heads.shape[1], -1
    width = -(-size // 32) * 32
    holds, grid = np.empty((buckets, width), dtype=np.uint8), np.empty((len(out), many, width), dtype=np.uint8)
    for start in range(0, reports.shape[1], 255):
        grid[:] = 0
        for report in range(start, min(start + 255, reports.shape[1])):
            seed, bucket = reports[0, report], reports[1, report]
            if seed != last:
                last = seed
                holds[:] = 0
                for tail in range(size):
                    holds[tails[seed, tail], tail] = 1
            for prefix in range(len(out)):
                rest = bucket - offsets[seed, prefix]
                rest += buckets * (rest < 0)
                for head in range(many):
                    own = rest - heads[seed, head]
                    line, row = grid[prefix, head], holds[own + buckets * (own < 0)]
                    for tail in range(width):
                        line[tail] += row[tail]
        for prefix in range(len(out)):
            for word in range(out.shape[1]):
                out[prefix, word] += grid[prefix, head_of[word], tail_of[word]]


def _alike(own: Any, out: Any) -> None:
    """Count the maps that send two prefixes to one bucket."""
    for row in own:
        for first in range(len(row)):
            for second in range(first):
                same = np.int64(row[first] == row[second])
                out[first, second] += same
                out[second, first] += same
