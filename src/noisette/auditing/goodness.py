"""Do reports follow the law that a mechanism states? Tests of goodness of fit, each at a stated false-alarm rate.

Every function returns a complaint, or None. A sound mechanism gets one with probability ``share`` at most, up to the
approximation of a chi-square tail with a hundred reports expected in each cell.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations, pairwise
from typing import Any

import numpy as np
from scipy.special import bdtrc, chdtrc

from noisette._validate import FloatArray, IntArray
from noisette.auditing.features import row_keys, table
from noisette.mechanisms._base import Lattice
from noisette.mechanisms.vector.sampled import Reports

_FEWEST_EXPECTED = 100.0  # reports expected in a cell of a chi-square test
_LISTED = 4096  # different reports up to which each is a cell
_COVERED = 0.99  # of the mass that these must hold
_RESOLUTIONS = (8, 32, 128)  # cells of a lattice: few see a small difference, many a narrow one
_ATOM = 20  # times that a report is sent before it may be a cell of its own
_STEPS_NEARBY = 128  # steps from a value within which a smooth law hardly changes
_STANDS_OUT = 8.0  # times as likely as the places beside it
_PLACES_ONE_BY_ONE = 32  # places of a stretch that are summed one by one
_PARTS = 16  # of a cell, to begin with
_PRECISION = 1e-4  # to which masses of cells are integrated
_HALVINGS = 60
_RESIDUES = (2, 16, 256)
_UNREPORTED = -1e12  # stands for an entry that a compact report leaves out
_SIDES = 4  # quantiles by which independence is looked at
_OUTERMOST = 1 / 128  # of the reports lie so far out on one side that they are looked at by themselves
_FAR_OUT = 8.0  # times the range of almost all reports: nothing lies beyond
_COLUMNS = 4  # of a vector that are looked at one by one
_ENTRIES = 16  # of a vector that are held against each other
_EXCHANGED = 128  # reports that exchange an entry
_SAME_LOGS = 1e-9  # relative
_ELSEWHERE = 0.01  # of the mass of a law, which reports about many values are within


def fit(mechanism: Any, x: Any, calls: Sequence[Any], share: float) -> str | None:
    """Hold reports of several calls about one input against ``log_prob``.

    Where there are few different reports each is counted; on a lattice cells between quantiles are, with the mass that
    ``log_prob`` gives them, and reports that repeat too often. The last bits of places on a fine lattice must be
    uniform in every cell.
    """
    rows = np.concatenate(_same_width([table(reports) for reports in calls]))
    keys, first, counts = np.unique(row_keys(rows), return_index=True, return_counts=True)
    whole = joined(calls)
    logs, single = _log_prob(mechanism, whole[first], x), getattr(whole, "ndim", 2) == 1
    if np.any(logs == -np.inf):
        return "privatize sent a report that log_prob calls impossible"
    unit = _unit(mechanism, logs, None if single else rows.shape[1])
    if unit is None:
        return None
    masses, total = np.exp(np.minimum(logs + unit, 0.0)), len(rows)
    found = _repeats(masses, counts, total, share / 3)
    if found is None and keys.size <= _LISTED and masses.sum() >= _COVERED:
        return _counted(masses, counts, total, share / 3)
    if found is None and _is_lattice(mechanism.support) and single:
        atoms = _Atoms.find(mechanism, x, _Atoms(rows[first, 0], counts, masses, total))
        # which of the units is the right one shows in the fit: a wrong one is a factor off
        complaints = []
        for tried in units(mechanism.support):
            complaint = _on_lattice(mechanism, x, rows[:, 0], atoms, tried, share / 3)
            if complaint is None:
                return None
            complaints.append(complaint)
        return complaints[0]
    return found


def last_bits(support: Any, reports: Any, others: Any, share: float) -> str | None:
    """Check that the last bits of places on a lattice are the same in law for vectors about two inputs.

    They need not be uniform, but on a lattice far below the noise they can tell nothing of the value, nor of the noise:
    those above the median have the same as those below.
    """
    found, one, two = lattice(support), table(reports), table(others)
    if found is None or one.shape[1] < 2:
        return None
    step, origin = found
    for column in range(min(one.shape[1], 4)):
        places = [np.rint((rows[:, column] - origin) / step) for rows in (one, two)]
        if any(np.unique(place).size < place.size / 2 for place in places):
            continue
        above = places[1] > np.median(places[1])
        compared: list[tuple[FloatArray, FloatArray, str]] = [
            (places[0], places[1], "tell inputs apart"),
            (places[1][above], places[1][~above], "tell which way the noise went"),
        ]
        for one_side, other, what in compared:
            if _unlike_bits(one_side, other, share / 24):
                return f"the last bits of entry {column} {what}"
    return None


def other_bits(support: Any, reports: Any, others: Any, share: float) -> str | None:
    """Check that the last bits of numbers on a fine lattice are the same in law where values differ and where not."""
    found, numbers = lattice(support), [np.asarray(one, dtype=float) for one in (reports, others)]
    if found is None:
        return None
    step, origin = found
    places = [np.rint((one - origin) / step) for one in numbers]
    if any(np.unique(place).size < place.size / 2 for place in places):
        return None
    differ = _unlike_bits(places[0], places[1], share / len(_RESIDUES))
    return "the last bits of the reports tell that other values of the call differ" if differ else None


def _unlike_bits(one: FloatArray, other: FloatArray, share: float) -> bool:
    for residues in _RESIDUES:
        sides = [np.mod(place, residues).astype(np.int64) for place in (one, other)]
        if _dependence(np.stack([np.bincount(side, minlength=residues) for side in sides])) < share:
            return True
    return False


def independence(calls: Sequence[Any], share: float) -> str | None:
    """Check that reports of one call, and those at one place of several calls, have nothing to do with each other."""
    rows = np.nan_to_num(np.stack(_same_width([table(reports) for reports in calls])), nan=_UNREPORTED)
    column = int(np.argmax(rows[0].std(axis=0)))
    values = rows[:, :, column]
    cuts = np.unique(np.quantile(values, np.arange(1, _SIDES) / _SIDES, method="inverted_cdf"))
    sides = np.searchsorted(cuts, values, side="left")
    even = sides.shape[1] // 2 * 2
    pairs = {
        "reports of one call": (sides[:, 0:even:2], sides[:, 1:even:2]),
        "reports at one place of two calls": (sides[:-1:2], sides[1::2]),
    }
    for name, (one, two) in pairs.items():
        seen = np.bincount((one * _SIDES + two).reshape(-1), minlength=_SIDES**2).reshape(_SIDES, _SIDES)
        seen = seen[seen.sum(axis=1) > 0][:, seen.sum(axis=0) > 0]
        if _dependence(seen) < share / 4:
            return f"{name} depend on each other"
    apart = _repeated_distance(sides, share / 4)
    if apart is not None:
        return f"reports of one call that are {apart} apart depend on each other"
    for width in (1, _SIDES // 2):  # quarters, and halves
        for side in range(_SIDES // width):
            here = sides // width == side
            often, always = float(np.mean(here)), int(np.count_nonzero(here.all(axis=0)))
            chance = min(1.0, 1.1 * often ** len(sides))  # the rate is estimated, from all calls
            if always and often < 1 and float(bdtrc(always - 1, sides.shape[1], chance)) < share / 4 / (2 * _SIDES):
                return f"{always} of {sides.shape[1]} places send the same in each of {len(sides)} calls"
    return None


def _repeated_distance(sides: Any, share: float) -> int | None:
    """Return a distance at which codes of several calls have a correlation, None where they have none.

    Of each distance the sum of products is nearly normal, with at least half of the products; the largest of so many is
    judged with a tenth more than a normal law needs.
    """
    size = sides.shape[1]
    spread = sides - sides.mean(axis=1, keepdims=True)
    variance = float(np.mean(spread**2))
    if variance == 0 or size * len(sides) < _FEWEST_EXPECTED**2:
        return None
    waves = np.abs(np.fft.rfft(spread, 2 * size)) ** 2
    products = np.fft.irfft(waves.sum(axis=0), 2 * size)[1 : size // 2 + 1]
    scores = np.abs(products) / (variance * np.sqrt(len(sides) * (size - np.arange(1, size // 2 + 1))))
    limit = 1.1 * math.sqrt(2 * math.log(2 * size / share))
    return int(np.argmax(scores)) + 1 if scores.max() > limit else None


def shown(mechanism: Any, x: Any, calls: Iterable[Any], share: float) -> str | None:
    """Check that the value itself, as the places of the lattice nearest to it, is not sent more often than its mass."""
    support = mechanism.support
    if not _is_lattice(support):
        return None
    near = np.unique(support.value(support.index(np.asarray(x, dtype=float)) + np.arange(-1.0, 2.0)))
    count, total, unit = 0, 0, None
    for reports in calls:
        if unit is None:
            unit = _unit(mechanism, _log_prob(mechanism, np.unique(reports), x)) or 0.0
        count, total = count + int(np.isin(reports, near).sum()), total + len(reports)
    expected = total * float(np.exp(_log_prob(mechanism, near, x) + (unit or 0.0)).sum())
    if _poisson_tail(count, expected) < share:
        return f"{count} of {total} reports are the value itself, where {expected:.3g} are expected"
    return None


def shown_whole(mechanism: Any, x: Any, calls: Iterable[Any], share: float) -> str | None:
    """Check that reports on a fine lattice of vectors are not the value itself more often than near it.

    A smooth law gives the 3^d places next to the value as much as other places within some hundred steps.
    """
    found = lattice(mechanism.support)
    if found is None or mechanism.report_shape != np.shape(x):
        return None
    step, origin = found
    own = np.rint((np.ravel(x) - origin) / step)
    near = (origin + step * (own + np.asarray([0.0, _STEPS_NEARBY])[:, None])).reshape(2, *np.shape(x))
    logs = _log_prob(mechanism, near, x)
    if logs[0] > logs[1] + math.log(_STANDS_OUT):  # the law itself sends it more often
        return None
    count, around, total = 0, 0, 0
    for reports in calls:
        away = np.abs(table(reports) - (origin + step * own)).max(axis=1)
        count, around = (
            count + int((away <= 1.5 * step).sum()),
            around + int((away <= (_STEPS_NEARBY + 0.5) * step).sum()),
        )
        total += len(away)
    expected = _STANDS_OUT * (around - count) * (3 / (2 * _STEPS_NEARBY + 1)) ** own.size + _STANDS_OUT / _STEPS_NEARBY
    if _poisson_tail(count, expected) < share:
        return f"{count} of {total} reports are the value itself, where {expected:.3g} are expected"
    return None


def shown_in_part(mechanism: Any, x: Any, calls: Iterable[Any], share: float) -> str | None:
    """Check that vectors on a fine lattice hold neither an entry of the value, nor its direction, more often than near.

    An entry is compared with places within some hundred steps, a direction with a tube around it that is four times
    as wide.
    """
    found, size = lattice(mechanism.support), int(np.size(x))
    if found is None or mechanism.report_shape != np.shape(x):
        return None
    (step, origin), value = found, np.ravel(np.asarray(x, dtype=float))
    own = origin + step * np.rint((value - origin) / step)
    columns = range(min(size, _COLUMNS))
    moved = own + step * _STEPS_NEARBY * np.concatenate([np.zeros((1, size)), np.eye(size)[: len(columns)]])
    logs = _log_prob(mechanism, moved.reshape(-1, *np.shape(x)), x)
    smooth = [column for column in columns if logs[0] <= logs[1 + column] + math.log(_STANDS_OUT)]
    length, wide = float(np.linalg.norm(value)), 1.5 * step * math.sqrt(size)
    directed = size > 1 and length > 0 and hasattr(mechanism.domain, "radius")
    near, around = np.zeros((2, size + 1))
    total = 0
    for reports in calls:
        rows = table(reports)
        away = np.abs(rows - own)
        near[:size] += (away <= 1.5 * step).sum(axis=0)
        around[:size] += (away <= (_STEPS_NEARBY + 0.5) * step).sum(axis=0)
        if directed:
            across = np.linalg.norm(rows - np.outer(rows @ value / length**2, value), axis=1)
            near[size], around[size] = near[size] + (across <= wide).sum(), around[size] + (across <= 4 * wide).sum()
        total += len(rows)
    shares = {column: (f"entry {column} of the value", 3 / (2 * _STEPS_NEARBY + 1)) for column in smooth}
    shares |= {size: ("the direction of the value", 1 / (4.0 ** (size - 1) - 1))} if directed else {}
    for place, (what, part) in shares.items():
        expected = _STANDS_OUT * (float(around[place] - near[place]) * part + 1 / _STEPS_NEARBY)
        if _poisson_tail(int(near[place]), expected) < share / (_COLUMNS + 1):
            return f"{int(near[place])} of {total} reports hold {what}, where {expected:.3g} are expected"
    return None


@dataclass(frozen=True, eq=False)
class _Entry:
    """One entry of a vector whose law is the product of those of its entries, as a law of single numbers."""

    whole: Any
    template: Any  # a report, of which the entry is replaced
    column: int
    support: Lattice
    total: float = 0.0

    def log_prob(self, values: Any, x: Any) -> FloatArray:
        """Return the log mass of the entry."""
        numbers = np.asarray(values, dtype=float)
        if numbers.size == 0:
            return numbers
        rows = np.tile(np.ravel(self.template), (numbers.size, 1))
        rows[:, self.column] = numbers.ravel()
        logs = _log_prob(self.whole, rows.reshape(-1, *np.shape(self.template)), x[0])
        return np.asarray(logs.reshape(numbers.shape) - self.total)


def entries(mechanism: Any, x: Any, reports: Any, share: float) -> str | None:
    """Hold single entries of vectors on a lattice against their law, and against each other.

    Where an entry may be exchanged between any two reports and ``log_prob`` of both together stays the same, the entry
    is independent of the others by that law, which as a function of it alone is its own law up to a factor. A law that
    would lie elsewhere than the reports is none: ``log_prob`` is then relative to another one.
    """
    known, rows = lattice(mechanism.support), table(reports)
    if known is None or rows.shape[1] < 2 or isinstance(reports, Reports):
        return None
    source = np.random.default_rng(0)
    chosen = np.sort(source.choice(rows.shape[1], min(rows.shape[1], _ENTRIES), replace=False)).tolist()
    some = {column: _own_law(mechanism, x, rows, column, Lattice(known[1], known[0])) for column in chosen}
    laws = {column: law for column, law in some.items() if law is not None}
    codes = []
    for column in laws:
        side = np.searchsorted(np.unique(np.quantile(rows[:, column], (0.25, 0.5, 0.75))), rows[:, column])
        codes += [(side - side.mean()) / max(side.std(), 1e-9) for side in (side, np.isin(side, (0, 3)))]
    # sums of products are nearly normal; a tenth more than a normal law needs is allowed
    limit = 1.1 * math.sqrt(2 * math.log(4 * max(len(codes), 1) ** 2 / share) * len(rows))
    for (one, first), (two, second) in combinations(enumerate(codes), 2):
        if one // 2 != two // 2 and len(rows) >= _FEWEST_EXPECTED**2 and abs(float(first @ second)) > limit:
            names = [list(laws)[place // 2] for place in (one, two)]
            return f"entries {names[0]} and {names[1]} of a report depend on each other"
    for column in source.permutation(list(laws))[:_COLUMNS].tolist():
        complaint = fit(laws[column], x, [rows[:, column]], share / (2 * _COLUMNS))
        if complaint is not None:
            return f"entry {column}: {complaint}"
    return None


def _own_law(mechanism: Any, x: Any, rows: FloatArray, column: int, support: Lattice) -> _Entry | None:
    """Return the law of an entry, None where it depends on the others or ``log_prob`` does not say it."""
    if not _exchangeable(mechanism, x, rows, column):
        return None
    law = _Entry(mechanism, rows[0].reshape(mechanism.report_shape), column, support)
    values = rows[:, column]
    spread = np.ptp(values) + support.step
    edges = np.concatenate(
        [[values.min() - spread], np.quantile(values, np.linspace(0, 1, 65)), [values.max() + spread]]
    )
    places = np.unique(support.index(edges))
    if places.size < _SIDES:
        return None
    top = float(law.log_prob(support.value(places[places.size // 2]), np.asarray(x)[None]))
    masses = integrate(partial(_relative, law, x, top), places)
    total = float(masses.sum())
    if not 0 < total < math.inf or float(masses[0] + masses[-1]) > _ELSEWHERE * total:
        return None
    return replace(law, total=top + math.log(total))


def _relative(law: _Entry, x: Any, top: float, index: FloatArray) -> FloatArray:
    """Return masses of places, relative to one of them."""
    return np.asarray(np.exp(law.log_prob(law.support.value(index), np.asarray(x)[None]) - top))


def _exchangeable(mechanism: Any, x: Any, rows: FloatArray, column: int) -> bool:
    """Tell whether reports that exchange an entry have the same likelihood together, whatever they are."""
    pair = rows[: len(rows) // 2 * 2][:_EXCHANGED].reshape(2, -1, rows.shape[1])
    other = pair.copy()
    other[:, :, column] = pair[::-1, :, column]
    before, after = (
        _log_prob(mechanism, both.reshape(-1, *mechanism.report_shape), x).reshape(2, -1) for both in (pair, other)
    )
    if not (np.isfinite(before).all() and np.isfinite(after).all()):
        return False
    return bool(np.all(np.abs(before.sum(axis=0) - after.sum(axis=0)) <= _SAME_LOGS * np.abs(before).max()))


def unlike(first: Any, second: Any, share: float) -> str | None:
    """Check that what was drawn for reports about two inputs has the same law: it is drawn without looking at them."""
    both = [row_keys(np.asarray(drawn, dtype=float).reshape(len(drawn), -1)) for drawn in (first, second)]
    kinds, codes = np.unique(np.concatenate(both), return_inverse=True)
    seen = np.stack([np.bincount(part, minlength=kinds.size) for part in np.split(codes, [len(both[0])])])
    often = seen.sum(axis=0) >= 2 * _FEWEST_EXPECTED
    seen = np.column_stack([seen[:, often], seen[:, ~often].sum(axis=1)])
    seen = seen[:, seen.sum(axis=0) >= 2 * _FEWEST_EXPECTED]
    return "what is drawn for a report depends on the value" if _dependence(seen, fewest=0.0) < share else None


def frozen(mechanism: Any, inputs: Any, reports: Any, copies: int, share: float) -> str | None:
    """Check that reports about one vector are not all the same, where its law does not say so.

    Each vector is there ``copies`` times, one after the other. Where ``log_prob`` is a density, and may be large, a law
    that hardly ever repeats a report about other vectors has to be that far above its own values there.
    """
    keys = row_keys(np.nan_to_num(table(reports), nan=_UNREPORTED)).reshape(-1, copies)
    kinds = np.asarray([np.unique(row).size for row in keys])
    places = np.arange(0, len(inputs), copies)
    logs = np.asarray(mechanism.log_prob(reports[places], inputs[places]), dtype=float)
    usual = float(np.median(logs)) + math.log(_STANDS_OUT) if np.median(kinds) == copies else -np.inf
    rare = (copies * np.minimum(logs, 0.0) < math.log(share / len(places))) | (logs <= usual)
    bad = np.flatnonzero((kinds == 1) & rare)
    return f"all {copies} reports about {inputs[places[bad[0]]]} are the same" if bad.size else None


def _same_width(tables: list[FloatArray]) -> list[FloatArray]:
    """Return tables with as many columns each: a compact report may leave out the last ones."""
    width = max(rows.shape[1] for rows in tables)
    return [np.pad(rows, ((0, 0), (0, width - rows.shape[1])), constant_values=np.nan) for rows in tables]


def in_the_clear(mechanism: Any, inputs: Any, reports: Any, copies: int, share: float) -> str | None:
    """Check that reports about many different inputs do not keep one distance from them, nor repeat.

    Each input is there ``copies`` times, one after the other.
    """
    support = mechanism.support
    y, x = np.asarray(reports), np.asarray(inputs)
    logs = np.asarray(mechanism.log_prob(y, x))
    if np.any(logs == -np.inf):
        return f"privatize sent a report about {x[int(np.argmin(logs))]} that log_prob calls impossible"
    sample = np.unique(y[:copies])  # reports about one value
    unit = _unit(mechanism, _log_prob(mechanism, sample, x[0])) or 0.0
    single = y.size // copies
    same = (y.reshape(single, copies) == y.reshape(single, copies)[:, :1]).all(axis=1)
    surprise = copies * (logs + unit).reshape(single, copies)[:, 0]
    if np.any(same & (surprise < math.log(share / 2 / single))):
        bad = x.reshape(single, copies)[int(np.argmax(same & (surprise < math.log(share / 2 / single)))), 0]
        return f"all {copies} reports about {bad} are the same"
    if not _is_lattice(support):
        return None
    away, counts = np.unique(np.rint((y - x) / support.step), return_counts=True)
    for place in np.argsort(-counts)[:4]:
        if _poisson_tail(int(counts[place]), 1e-3) * away.size >= share / 8:
            break  # so few are no surprise, whatever is expected
        # values lie between places, so up to three of these round to one distance; it was chosen among so many
        near = support.index(x + away[place] * support.step)
        expected = sum(
            float(np.exp(np.minimum(np.asarray(mechanism.log_prob(support.value(near + side), x)) + unit, 0.0)).sum())
            for side in (-1, 0, 1)
        )
        if _poisson_tail(int(counts[place]), expected + 1e-3) * away.size < share / 8:
            return f"{counts[place]} of {y.size} reports are {away[place]:g} steps from their values"
    return None


def collisions(support: Any, reports: Any, share: float) -> str | None:
    """Check that the entries of reports on a fine lattice do not repeat more often than a smooth law lets them."""
    found = lattice(support)
    if found is None:
        return None
    step, rows = found[0], table(reports)
    for column in range(min(rows.shape[1], 4)):
        values = np.sort(rows[:, column])
        size = values.size
        _, counts = np.unique(values, return_counts=True)
        edges = values[:: max(1, size // 64)]
        widths = np.maximum(np.diff(edges) / step, 1.0)
        expected = float(size / 2 * (size / 64) * (1 / widths).sum() / 64)
        seen = float((counts * (counts - 1) / 2).sum())
        limit = 4 * expected + 40 + 10 * math.sqrt(expected) - math.log(share)
        if counts.max() < size / 1000 and expected < size / 2 and seen > limit:
            return f"entry {column} repeats {seen:g} times among {size} reports, where {expected:.3g} are expected"
    return None


@dataclass(frozen=True)
class _Atoms:
    """Reports that stand out of the law of a lattice: how often they were sent, of how many, and their masses."""

    values: FloatArray
    counts: IntArray
    masses: FloatArray
    total: int

    @classmethod
    def find(cls, mechanism: Any, x: Any, seen: _Atoms) -> _Atoms:
        """Return those that are sent again and again and are far likelier than places near them.

        A mass between two places of the lattice is split among both, so the next but one counts.
        """
        often = np.flatnonzero(seen.counts >= _ATOM)
        values, support = seen.values[often], mechanism.support
        own = _log_prob(mechanism, values, x)
        beside = [_log_prob(mechanism, support.value(support.index(values) + side), x) for side in (-2, 2)]
        chosen = often[own > np.maximum(*beside) + math.log(_STANDS_OUT)]
        return cls(seen.values[chosen], seen.counts[chosen], seen.masses[chosen], seen.total)


def _on_lattice(mechanism: Any, x: Any, values: FloatArray, atoms: _Atoms, unit: float, share: float) -> str | None:
    """Count reports between quantiles, and the residues of their places there."""
    support = mechanism.support
    known = np.sort(atoms.values)
    alone = np.isin(values, known) if known.size else np.zeros(values.size, dtype=bool)
    place = support.index(values[~alone])
    spikes = support.index(known)
    if place.size < 10 * _FEWEST_EXPECTED:
        return _counted(atoms.masses, atoms.counts, atoms.total, share)
    cut = place.size // 10  # edges are chosen on some of the reports, and the others are counted

    def density(index: FloatArray) -> FloatArray:
        """Return masses of places, spikes left out."""
        beside = index + np.isin(index, spikes)
        beside = beside + np.isin(beside, spikes)
        return np.exp(_log_prob(mechanism, support.value(beside), x) + unit)

    diffuse = np.unique(place).size > place.size / 2
    kept = place.size - cut
    trials = atoms.total * kept / place.size
    for cells in _RESOLUTIONS:
        edges = np.unique(np.floor(np.quantile(place[:cut], np.arange(1, cells) / cells)))
        if edges.size < 2:
            continue
        inner = integrate(density, edges)
        cell = np.searchsorted(edges, place[cut:], side="right")
        seen = np.bincount(cell, minlength=edges.size + 1)
        # both tails, and what is alone, are one cell: their mass is what is left
        expected = trials * np.append(inner, max(1 - float(inner.sum()), 0.0))
        rest = seen[0] + seen[-1] + trials - kept
        if _chi_square(np.append(seen[1:-1], rest), expected) < share / (4 * len(_RESOLUTIONS)):
            return "reports do not follow log_prob: privatize and it disagree"
        if diffuse and kept / seen.size / 2 >= _FEWEST_EXPECTED:
            odd = np.bincount(cell[np.mod(place[cut:], 2) == 1], minlength=seen.size)
            if _chi_square(np.concatenate([odd, seen - odd]), np.tile(seen / 2, 2)) < share / (4 * len(_RESOLUTIONS)):
                return "the parity of places on the lattice is not uniform: it carries something"
    complaint = _tails(support, density, place, trials, share / 4)
    if complaint is not None:
        return complaint
    for residues in _RESIDUES if diffuse else ():
        seen = np.bincount(np.mod(place, residues).astype(np.int64), minlength=residues)
        if _chi_square(seen, np.full(residues, place.size / residues)) < share / (4 * len(_RESIDUES)):
            return f"the places of reports on the lattice, divided by {residues}, leave unlike rests"
    return _counted(atoms.masses, atoms.counts, atoms.total, share / 4) if known.size else None


def _tails(support: Any, density: Any, place: FloatArray, trials: float, share: float) -> str | None:
    """Count reports far out on either side by itself: cells of ever smaller chances, down to some twenty reports."""
    cut = place.size // 10
    shares = _OUTERMOST / 2.0 ** np.arange(max(0.0, math.log2(max(cut * _OUTERMOST / _ATOM, 1.0))) + 1)
    if cut * shares[0] < _ATOM:
        return None
    chosen, counted = place[:cut], place[cut:]
    between = np.arange(_OUTERMOST, 1.0, _OUTERMOST)  # no narrow peak is lost in a wide cell
    inner = np.unique(np.floor(np.quantile(chosen, np.concatenate([shares, between, 1 - shares]))))
    reach = _FAR_OUT * (inner[-1] - inner[0])
    ends = [float(end) if math.isinf(end) else float(support.index(end)) for end in (support.low, support.high)]
    edges = np.unique(np.concatenate([[max(inner[0] - reach, ends[0])], inner, [min(inner[-1] + reach, ends[1] + 1)]]))
    if edges.size < _SIDES:
        return None
    masses = integrate(density, edges)
    seen = np.bincount(np.searchsorted(edges, counted, side="right"), minlength=edges.size + 1)
    expected = trials * np.append(masses, max(1 - float(masses.sum()), 0.0))
    rest = seen[0] + seen[-1] + trials - counted.size
    if _chi_square(np.append(seen[1:-1], rest), expected) < share:
        return "reports far from their value do not follow log_prob: privatize and it disagree"
    return None


def integrate(density: Any, edges: FloatArray) -> FloatArray:
    """Sum a function of whole numbers from each edge to the next, halving stretches until jumps are isolated.

    >>> integrate(lambda k: (k >= 1e6) * 1.0, np.asarray([0.0, 2e6])).round(6)
    array([1000000.])
    >>> integrate(lambda k: (k > 1e9) * 1e3 + 1e-6, np.asarray([0.0, 1e9 + 10])).round(3)  # a peak at the end
    array([10000.])
    """
    parts = np.unique(np.floor(np.concatenate([np.linspace(a, b, _PARTS + 1) for a, b in pairwise(edges)])))
    low, high = parts[:-1], parts[1:] - 1
    total = np.zeros(edges.size - 1)
    for _ in range(_HALVINGS):
        owner = np.searchsorted(edges, low, side="right") - 1
        small = high - low < _PLACES_ONE_BY_ONE
        if small.any():
            index = low[small][:, None] + np.arange(_PLACES_ONE_BY_ONE)
            inside = index <= high[small][:, None]
            values = np.where(inside, density(np.where(inside, index, low[small][:, None])), 0.0)
            np.add.at(total, owner[small], values.sum(axis=1))
        low, high, owner = low[~small], high[~small], owner[~small]
        if low.size == 0:
            break
        size, middle = high - low + 1, np.floor((low + high) / 2)
        first, centre, last = density(low), density(middle), density(high)
        coarse, fine = size * (first + last) / 2, size * (first + 2 * centre + last) / 4
        # anew each time: where a long stretch ends in a narrow peak, the first guess is far too large
        scale = np.maximum(np.bincount(owner, fine, minlength=total.size) + total, 1e-300)
        done = np.abs(fine - coarse) <= _PRECISION / _PARTS * scale[owner]
        np.add.at(total, owner[done], (fine + (fine - coarse) / 3)[done])
        low, middle, high = low[~done], middle[~done], high[~done]
        low, high = np.concatenate([low, middle + 1]), np.concatenate([middle, high])
    return total


def _counted(masses: FloatArray, counts: IntArray, total: int, share: float) -> str | None:
    """Compare how often each report was sent with how often it should have been."""
    expected = total * masses
    large = expected >= _FEWEST_EXPECTED
    rest, left = float(total - counts[large].sum()), float(total - expected[large].sum())
    seen, wanted = np.append(counts[large], rest), np.append(expected[large], max(left, 0.0))
    if _chi_square(seen, wanted) < share:
        worst = int(np.argmax(np.abs(seen - wanted) / np.sqrt(np.maximum(wanted, 1.0))))
        return f"a report was sent {seen[worst]:g} times where log_prob expects {wanted[worst]:.6g}: they disagree"
    return None


def _repeats(masses: FloatArray, counts: IntArray, total: int, share: float) -> str | None:
    """Look for a report that is sent far more often than its mass allows, and for too many that are sent twice."""
    tail = bdtrc(counts - 1.0, total, np.minimum(masses * (1 + 1e-9), 1.0))
    # a tail is below share times the mass with that chance at most, which adds up to share over all possible reports
    surprise = np.where(counts > 1, tail * np.maximum(total, 1 / np.maximum(masses, 1e-300)), np.inf)
    worst = int(np.argmin(surprise))
    if surprise[worst] < share / 2:
        return f"one report was sent {counts[worst]} times of {total}, where {total * masses[worst]:.3g} are expected"
    second, third = (float((counts * masses**power).sum() / total) for power in (1, 2))
    pairs, expected = float((counts * (counts - 1.0)).sum() / 2), total * (total - 1.0) / 2 * second
    spread = math.sqrt(expected + float(total) ** 3 * max(third - second**2, 0.0))
    if total * masses.max() < 1 and pairs > 1.1 * expected + 10 * spread + 20 - math.log(share):
        return f"reports repeat {pairs:g} times among {total}, where {expected:.3g} are expected: too few random bits"
    return None


def _chi_square(seen: Any, expected: Any) -> float:
    """Return the chance of a larger chi-square statistic, small cells put together; fixed by the number of reports."""
    counts, wanted = np.asarray(seen, dtype=float), np.asarray(expected, dtype=float)
    large = wanted >= _FEWEST_EXPECTED
    counts = np.append(counts[large], counts[~large].sum())
    wanted = np.append(wanted[large], wanted[~large].sum())
    if wanted[-1] < _FEWEST_EXPECTED:
        if _poisson_tail(int(counts[-1]), wanted[-1] + 1.0) < 1e-15:
            return 0.0
        counts, wanted = counts[:-1], wanted[:-1]
    if wanted.size < 2:
        return 1.0
    return float(chdtrc(wanted.size - 1, float(((counts - wanted) ** 2 / wanted).sum())))


def _dependence(seen: Any, fewest: float = _FEWEST_EXPECTED) -> float:
    """Return the chance of a larger chi-square statistic of a table if rows and columns are independent.

    It is infinite, so that nothing is said, where a cell is expected to hold fewer than it takes.
    """
    expected = np.outer(seen.sum(axis=1), seen.sum(axis=0)) / max(seen.sum(), 1)
    freedom = (seen.shape[0] - 1) * (seen.shape[1] - 1)
    if freedom < 1 or expected.min() < fewest:
        return math.inf
    return float(chdtrc(freedom, float(((seen - expected) ** 2 / expected).sum())))


def _poisson_tail(count: int, mean: float) -> float:
    """Return an upper limit of the chance of this many events, by Chernoff."""
    return 1.0 if count <= mean else math.exp(count - mean - count * math.log(count / mean))


def units(support: Any) -> list[float]:
    """Return the logs of lengths that the likelihood of a number may be per unit of: a step of the support, and 1."""
    step = getattr(support, "step", None)
    return [math.log(step), 0.0] if isinstance(step, float) else [0.0]


def _unit(mechanism: Any, logs: FloatArray, width: int | None = None) -> float | None:
    """Return the log of the volume that ``log_prob`` of different reports is per unit of: 0 for masses.

    Masses of different reports add up to 1 at most, which a density on a fine lattice breaks; the largest unit that
    does not is no smaller than the true one. None where ``log_prob`` is relative to some other law, which it may be
    where a report is a vector, of this many entries.
    """
    step = units(mechanism.support)
    candidates = step if width is None else sorted({0.0, max(0.0, width * step[0])})
    for unit in sorted(candidates, reverse=True):
        if float(np.exp(np.minimum(logs + unit, 50.0)).sum()) <= 1 + 1e-6:
            return unit
    return min(candidates) if width is None else None


def places(support: Any, reports: Any) -> Any:
    """Return the places of the lattice that are nearest to reports, None where there is no lattice."""
    if hasattr(support, "nearest"):
        return support.nearest(reports)
    on_lattice = hasattr(support, "index") and hasattr(support, "value")
    return support.value(support.index(reports)) if on_lattice else None


def lattice(support: Any) -> tuple[float, float] | None:
    """Return the step and the origin of a lattice, None where reports lie on none or are real numbers."""
    step = getattr(support, "step", None)
    if not isinstance(step, float) or getattr(support, "real", False):
        return None
    return step, float(getattr(support, "origin", 0.0))


def _is_lattice(support: Any) -> bool:
    return isinstance(getattr(support, "step", None), float) and hasattr(support, "value") and hasattr(support, "index")


def _log_prob(mechanism: Any, reports: Any, x: Any) -> FloatArray:
    return np.asarray(mechanism.log_prob(reports, np.asarray(x)[None]), dtype=float)


def joined(calls: Sequence[Any]) -> Any:
    """Return the reports of several calls as those of one."""
    if isinstance(calls[0], Reports):
        parts = ([getattr(part, name) for part in calls] for name in ("indices", "values"))
        return type(calls[0])(*map(np.concatenate, parts))
    return np.concatenate([np.asarray(part) for part in calls])
