"""Break-even populations as curves: how they move with the budget, the dimensions reported or the dimensions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from noisette import _validate
from noisette.domains import Domain, Interval
from noisette.prediction.curves import crossing
from noisette.prediction.model import populations
from noisette.prediction.model.records import groups
from noisette.prediction.offers import Setting
from noisette.prediction.planning import errors_of

Parameter = Literal["epsilon", "report", "dims"]


@dataclass(frozen=True)
class BreakEvenCurve:
    """Break-even populations of two mechanisms at each of some ``points`` of a parameter.

    ``populations`` has None where one mechanism always wins; ``winners`` names the one of the two that has the smaller
    error for the asked number of users, at each point.
    """

    a: str
    b: str
    over: str
    points: tuple[float, ...]
    populations: tuple[float | None, ...]
    winners: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON description."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in vars(self).items()}


def break_even_curve(
    a: str,
    b: str,
    *,
    over: Parameter,
    points: Sequence[float],
    users: int,
    epsilon: float = 1.0,
    delta: float = 0.0,
    dims: int = 1,
    report: int | None = None,
    domain: Domain | None = None,
    values: Any = None,
    probs: Any = None,
    distribution: str | None = None,
) -> BreakEvenCurve:
    """Return the population at which two mechanisms of the catalogue break even, along a parameter of the collection.

    ``over`` is "epsilon", "report" (dimensions each user reports) or "dims"; the others stay as given, and without
    ``report`` both mechanisms report as many dimensions as the rule for the budget says. The true values are given as
    for `plan`.

    >>> tenths = [i / 10 for i in range(1, 11)]
    >>> curve = break_even_curve("square-wave", "piecewise", over="epsilon", points=[1, 2, 4], users=100, values=tenths)
    >>> [None if n is None else round(n, 1) for n in curve.populations]
    [30.4, 9.4, None]
    """
    if over not in ("epsilon", "report", "dims"):
        raise ValueError(f"Expected over={over!r} to be 'epsilon', 'report' or 'dims'.")
    if not len(points):
        raise ValueError("Expected at least one point of the curve, got none.")
    users = _validate.integer(users, "users", low=1)
    start = Setting(
        users, _validate.integer(dims, "dims", low=1), epsilon, _validate.delta(delta), report, domain or Interval()
    )
    found: list[float | None] = []
    winners = []
    for point in points:
        changed: dict[str, Any] = {over: _point(point, over)}
        setting = replace(start, **changed)
        _validate.epsilon(setting.epsilon)
        if setting.report is not None:
            _validate.integer(setting.report, "report", low=1, high=setting.dims)
        record = setting.record
        known: Any
        if record is not None:
            known = groups(record, values, probs, distribution)
        else:
            known = populations.known(values, probs, distribution, setting.domain, dims=setting.dims)
        built = [offer.build(setting.usual_report) for offer in setting.offers([a, b])]
        first, second = (errors_of(mechanism, known) for mechanism in (built[0], built[-1]))
        found.append(crossing(first, second))
        winners.append(a if first.at(users) <= second.at(users) else b)
    return BreakEvenCurve(a, b, over, tuple(map(float, points)), tuple(found), tuple(winners))


def _point(point: float, over: str) -> float | int:
    """Return a point of the curve as the kind of number it is."""
    number = _validate.number(point, over)
    if over == "epsilon":
        return number
    if number != int(number):
        raise ValueError(f"Expected whole numbers for {over}, got {point!r}.")
    return int(number)
