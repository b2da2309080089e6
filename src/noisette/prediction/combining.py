"""A mechanism of its own for every attribute, and where it pays a share of the budget of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from noisette import _validate
from noisette._search import narrowed
from noisette._validate import FloatArray, IntArray
from noisette.domains import Attributes, Domain
from noisette.mechanisms import CATALOGUE, by_name
from noisette.mechanisms.build import build, collecting
from noisette.mechanisms.vector.attributes import SampledAttributes
from noisette.prediction.model.records import Errors, Group, groups, record_curve
from noisette.prediction.offers import best_report

_BUDGETS = 40  # shares of the budget that are tried for each attribute
_LEAST_SHARE = 1e-3
_MOST_SPLIT = 64  # attributes among which a budget is split unevenly


@dataclass(frozen=True, eq=False)
class Combination:
    """The best mechanism for each attribute, ready to collect, and its mean squared error over all quantities.

    ``errors`` are those of the attributes, each averaged over its categories.
    """

    mechanism: SampledAttributes
    mse: float
    errors: FloatArray

    @property
    def names(self) -> tuple[str, ...]:
        """Catalogue name of each attribute's mechanism."""
        return tuple(inner.name for inner in self.mechanism.inner_mechanisms)

    @property
    def report(self) -> int:
        """Attributes that each user reports."""
        return self.mechanism.report


@dataclass(frozen=True, eq=False)
class _Menu:
    """Predicted errors of every mechanism that fits a group, at budgets as they are asked for."""

    group: Group
    names: tuple[str, ...]
    users: int
    delta: float

    @classmethod
    def of(cls, group: Group, names: Sequence[str] | None, users: int, delta: float) -> _Menu:
        """List the mechanisms for a group's kind of attribute: those named, or all that are quick to build."""
        offered = [collecting(name, group.domain, delta=delta) for name in (CATALOGUE if names is None else names)]
        found = [
            one.name for one in offered if one and not one.able.levels and not (names is None and one.able.slow_start)
        ]
        if not found:
            raise ValueError(
                f"No mechanism for {group.domain} among {list(names or CATALOGUE)}: leave the names out, or add one."
            )
        return cls(group, tuple(found), users, delta)

    def errors(self, epsilon: float, delta: float, share: float) -> FloatArray:
        """Return the mean squared errors, one row a mechanism and one column an attribute."""
        rows = []
        for name in self.names:
            needed = by_name(name).capabilities.delta == "needed"
            inner = build(name, self.group.domain, epsilon=epsilon, delta=delta if needed else 0.0)
            found = self.group.curves(inner, share)
            one = found.at(self.users)
            rows.append(one if isinstance(found, Errors) else np.full(self.group.members.size, one))
        return np.asarray(rows)


def combine(
    domain: Attributes | Sequence[Domain],
    *,
    users: int,
    epsilon: float,
    delta: float = 0.0,
    report: int | None = None,
    mechanisms: Sequence[str] | Sequence[Sequence[str]] | None = None,
    values: Any = None,
    probs: Any = None,
    distribution: str | None = None,
) -> Combination:
    """Choose the best mechanism for each attribute, and how many of them each user should report.

    Every attribute gets the mechanism of least predicted error at epsilon / m. When all of at most 64 attributes may be
    reported, ``report`` equal to their number or None, the budget is also split unevenly, so that what is hard to
    estimate gets more of it, wherever that lowers the predicted error. ``mechanisms`` lists those to choose from, for
    all attributes, or in a list for each attribute.

    *Utility*: of plain averages of reports, see `deviation`; compared by the sum of the squared errors of all means and
    frequencies, each in its own unit.
    Duan 2024, section 4.1.2, the optimal combination.

    >>> from noisette import Interval
    >>> best = combine(Attributes((2, 50, Interval())), users=10_000, epsilon=1.0)
    >>> best.names[:2], best.report
    (('grr', 'subset-selection'), 1)
    """
    record = domain if isinstance(domain, Attributes) else Attributes(tuple(domain))
    users = _validate.integer(users, "users", low=1)
    epsilon, delta = _validate.epsilon(epsilon), _validate.delta(delta)
    if report is not None:
        report = _validate.integer(report, "report", low=1, high=record.dims)
    known = groups(record, values, probs, distribution)
    return combination(record, users, epsilon, delta, report, mechanisms, known)


def combination(
    record: Attributes,
    users: int,
    epsilon: float,
    delta: float,
    report: int | None,
    names: Sequence[str] | Sequence[Sequence[str]] | None,
    known: list[Group],
) -> Combination:
    """Do what `combine` says from what is known about each attribute."""
    menus = [_Menu.of(group, own, users, delta) for whole in known for group, own in _allowed(whole, names)]
    sizes = np.asarray(record.groups, dtype=float)

    @cache
    def choose(count: int) -> tuple[tuple[str, ...], tuple[float, ...]]:
        chosen, errors = _choice(menus, record.dims, epsilon / count, delta / count, count / record.dims)
        return tuple(chosen), tuple(errors.tolist())

    def cost(count: int) -> float:
        return float(sizes @ choose(count)[1])

    best = best_report(cost, record.dims) if report is None else report
    chosen, errors = choose(best)
    made = [
        _made(SampledAttributes(chosen, epsilon, record, report=best, delta=delta), np.asarray(errors), users, known)
    ]
    if report in (None, record.dims) and 1 < record.dims <= _MOST_SPLIT:
        uneven = _split(menus, record, epsilon, delta, sizes)
        if uneven is not None:
            split, shares, spent = uneven
            mechanism = SampledAttributes(split, epsilon, record, report=record.dims, shares=shares, delta=delta)
            made.append(_made(mechanism, spent, users, known))
    return min(made, key=lambda one: one.mse)


def _allowed(
    group: Group, names: Sequence[str] | Sequence[Sequence[str]] | None
) -> list[tuple[Group, Sequence[str] | None]]:
    """Cut a group by the mechanisms that its attributes may have."""
    if names is None or all(isinstance(name, str) for name in names):
        return [(group, names)]  # type: ignore[list-item]  # texts, as was just seen
    owners: dict[tuple[str, ...], list[int]] = {}
    for place, member in enumerate(group.members.tolist()):
        owners.setdefault(tuple(names[member]), []).append(place)
    return [(group.only(np.asarray(places)), own) for own, places in owners.items()]


def _made(mechanism: SampledAttributes, errors: FloatArray, users: int, known: list[Group]) -> Combination:
    return Combination(mechanism, record_curve(mechanism, known).at(users), errors)


def _choice(menus: list[_Menu], dims: int, epsilon: float, delta: float, share: float) -> tuple[list[str], FloatArray]:
    """Return the best mechanism for each attribute and its error."""
    names, errors = [""] * dims, np.zeros(dims)
    for menu in menus:
        table = menu.errors(epsilon, delta, share)
        best: IntArray = np.argmin(table, axis=0)
        errors[menu.group.members] = table.min(axis=0)
        for j, place in zip(menu.group.members.tolist(), best.tolist(), strict=True):
            names[j] = menu.names[place]
    return names, errors


def _split(
    menus: list[_Menu], record: Attributes, epsilon: float, delta: float, sizes: FloatArray
) -> tuple[tuple[str, ...], tuple[float, ...], FloatArray] | None:
    """Split the budget among all attributes by Lagrange: one price of budget for all.

    At each price every attribute takes the share of a list that is cheapest for it, error and price together.
    """
    tried = np.geomspace(max(_LEAST_SHARE, 1e-6 / epsilon), 1.0, _BUDGETS)
    table = np.stack([_choice(menus, record.dims, epsilon * s, delta * s, 1.0)[1] for s in tried.tolist()], axis=1)
    costs = table * sizes[:, None]

    def demand(price: float) -> FloatArray:
        return np.asarray(tried[np.argmin(costs + price * tried, axis=1)])

    highest = float(costs.max()) / float(tried[0]) + 1.0
    if demand(highest).sum() > 1:
        return None  # more attributes than the least shares allow
    shares = demand(narrowed(lambda price: bool(demand(price).sum() > 1), 0.0, highest, absolute=1e-60)[1])
    shares /= shares.sum()
    names, errors = [""] * record.dims, np.zeros(record.dims)
    for share in np.unique(shares).tolist():
        chosen, found = _choice(menus, record.dims, epsilon * share, delta * share, 1.0)
        for j in np.flatnonzero(shares == share).tolist():
            names[j], errors[j] = chosen[j], found[j]
    return tuple(names), tuple(shares.tolist()), errors
