"""The one place that turns a name, a domain and a budget into a mechanism, and that knows which mechanism fits what.

Nothing here names a mechanism: what each can do is declared on its class, see `noisette.core.Capabilities`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import numpy as np

from noisette import _validate
from noisette.core import Capabilities
from noisette.domains import (
    DOMAINS,
    Attributes,
    Box,
    Categorical,
    Grid,
    Interval,
    L2Ball,
    Selection,
    Sphere,
    TensorBall,
    TensorDomain,
    Texts,
)
from noisette.guarantees import gaussian_delta
from noisette.mechanisms import CATALOGUE, by_name
from noisette.mechanisms.vector.attributes import SampledAttributes
from noisette.mechanisms.vector.sampled import Sampled

Registered = TypeVar("Registered", bound=type[Any])

MEANS = (
    "mean",
    "frequency",
    "selection",
    "vector-mean",
    "attributes",
)  # kinds whose reports add up to what a survey asks for
_LOSSES = 6.0  # standard deviations of the privacy loss above its mean, where a point of a Gaussian curve is taken
_WORDS = {
    Interval: "numbers of an interval",
    Grid: "numbers of a grid",
    Categorical: "categories",
    Selection: "selections of several options",
    Attributes: "records of attributes",
    Box: "vectors of a box",
    L2Ball: "vectors of a ball",
    Sphere: "vectors of a sphere",
    TensorDomain: "tensors",
    TensorBall: "tensors of bounded length",
    Texts: "texts",
}


@dataclass(frozen=True)
class Fit:
    """How a mechanism takes values of a domain, or why it does not.

    It is built on ``domain``, which holds all values of the one asked for. Where it is ``sampled`` each user reports
    some entries or attributes, with the budget split among them. One that is not ``usual`` fits, and is made for other
    values: it is compared only where it is asked for. ``obstacle`` is empty where the mechanism fits.
    """

    name: str
    able: Capabilities
    domain: Any = None
    sampled: bool = False
    usual: bool = True
    obstacle: str = ""

    def __bool__(self) -> bool:
        return not self.obstacle


def build(
    name: str,
    domain: Any,
    *,
    epsilon: float | None = None,
    delta: float = 0.0,
    mu: float | None = None,
    report: int | None = None,
    unit: Literal["record", "element"] = "record",
    **options: Any,
) -> Any:
    """Return the mechanism of a catalogue name for values of ``domain`` at a budget.

    A mechanism for one number serves a `Box` by `Sampled`, one for numbers or categories serves `Attributes` by
    `SampledAttributes`; there ``report`` is how many entries each user reports, None for the best number. One for
    vectors of a ball serves a box about zero by the smallest ball around it, one for tensors serves a box as a tensor
    of one mode. A mechanism with levels is stretched to the interval and scaled until ``epsilon`` holds in total; with
    ``edges`` and ``epsilons`` it has these levels.

    The budget is ``epsilon``, with a ``delta`` where the mechanism takes one, or the ``mu`` of Gaussian noise. It is
    that of a user's whole value, or with ``unit="element"`` of each entry, of mechanisms that answer entry by entry.
    ``options`` are the mechanism's own.

    >>> build("privunit-g", L2Ball(1000, 1.0), epsilon=4.0).guarantee.epsilon
    4.0
    >>> sampled = build("piecewise", Box(50, 0, 10), epsilon=2.0)
    >>> sampled.name, sampled.report, sampled.inner_mechanism.epsilon
    ('sampled', 1, 2.0)
    >>> build("grr", Interval(0, 10), epsilon=1.0)
    Traceback (most recent call last):
    ValueError: grr does not take Interval(...): it takes categories. Choose one that does, such as laplace or ...
    """
    cls = by_name(name)
    found = fit(name, domain, **options)
    if found.obstacle:
        raise ValueError(f"{name} does not take {domain}: {found.obstacle}{_instead(domain)}")
    budget: dict[str, Any] = _budget(found, epsilon, delta, mu)
    if report is not None and not (found.sampled or found.able.composite):
        raise ValueError(f"{name} reports its input as a whole: leave report={report} out.")
    if unit == "element":
        if not found.able.entrywise:
            raise ValueError(f"{name} answers about the whole of {domain}: leave unit='element' out.")
        return cls.by_entry(found.domain, **budget, **options)
    if found.able.levels:
        return _levelled(cls, domain, budget, options)
    if found.able.composite:
        return cls(domain=domain, report=report, **budget, **options)
    if not found.sampled:
        return cls(domain=found.domain, **budget, **options)
    if isinstance(domain, Box):
        return Sampled(name, domain=domain, report=report, options=options, **budget)
    return SampledAttributes(name, domain=domain, report=report, **budget, **options)  # type: ignore[arg-type]  # None chooses


def build_record(
    names: Sequence[str], domain: Attributes, *, epsilon: float, delta: float = 0.0, report: int | None = None
) -> Any:
    """Return the mechanism for records whose attributes are each answered by the one of ``names`` that takes them.

    >>> record = Attributes((Categorical(3), Interval(0, 10)), names=("colour", "size"))
    >>> build_record(["oue", "hybrid"], record, epsilon=2.0).inner
    ('oue', 'hybrid')
    """
    columns = domain.names or tuple(map(str, range(domain.dims)))
    held = " and ".join(dict.fromkeys(map(_held, domain.parts)))
    inner: dict[str, str] = {}
    for name in names:
        able = by_name(name).capabilities
        own = [
            (column, attribute)
            for column, attribute in zip(columns, domain.parts, strict=True)
            if able.takes(attribute)
        ]
        if not own or able.levels:
            raise ValueError(f"{name} does not go with columns of {held} in one row. Name a mechanism for each kind.")
        for column, attribute in own:
            if column in inner:
                raise ValueError(f"{inner[column]} and {name} are both for {_held(attribute)}: leave one of them out.")
            inner[column] = name
        if delta and able.delta == "none":
            raise ValueError(f"{name} has a pure guarantee: leave the delta of {delta:g} out, or another mechanism.")
    for column, attribute in zip(columns, domain.parts, strict=True):
        if column not in inner:
            raise ValueError(
                f"Column {column!r} holds {_held(attribute)}, which {' and '.join(names)} does not take. "
                f"Leave it out, or add a mechanism for it.{_instead(attribute)}"
            )
    chosen = tuple(inner[column] for column in columns)
    return SampledAttributes(
        chosen[0] if len(set(chosen)) == 1 else chosen,
        epsilon=epsilon,
        delta=delta,
        domain=domain,
        report=report,  # type: ignore[arg-type]  # None chooses
    )


def _held(attribute: Any) -> str:
    """Say what a column holds."""
    return "numbers" if isinstance(attribute, Interval) else _WORDS.get(type(attribute), attribute.kind)


def fits(domain: Any, *, delta: float = 0.0) -> list[Fit]:
    """Return for every mechanism of the catalogue how it collects values of ``domain``, or what is in the way.

    >>> found = {one.name: one for one in fits(Categorical(7))}
    >>> bool(found["oue"]), found["laplace"].obstacle
    (True, 'it takes numbers of an interval.')
    """
    return [collecting(name, domain, delta=delta) for name in CATALOGUE]


def collecting(name: str, domain: Any, *, delta: float = 0.0) -> Fit:
    """Return how a mechanism collects means or frequencies, each user answering for herself, or what is in the way."""
    cls = by_name(name)
    able: Capabilities = cls.capabilities
    obstacle = ""
    if able.model != "local":
        obstacle = "it answers for a curator who holds the whole table, not for each user."
    elif cls.kind not in MEANS:
        how = "answers with a magnitude and angles" if cls.kind == "direction" else f"is of kind {cls.kind!r}"
        obstacle = f"it {how} and estimates no mean and no frequency."
    elif able.delta == "needed" and delta == 0:
        obstacle = "it has no pure guarantee. Give a delta, e.g. 1e-6."
    return Fit(name, able, obstacle=obstacle) if obstacle else fit(name, domain)


def fit(name: str, domain: Any, **options: Any) -> Fit:
    """Return how a mechanism takes values of ``domain``, whatever it estimates, or why it does not."""
    able = by_name(name).declared(**options)
    if able.composite and "inner" not in options:
        return Fit(name, able, obstacle="it is built from others. Name one of those, or give them as inner.")
    if able.takes(domain):
        return Fit(name, able, domain)
    if able.levels:
        return Fit(name, able, obstacle="its levels are those of one number.")
    takes = tuple(able.domains)
    if isinstance(domain, Attributes) and (Interval in takes or Categorical in takes):
        unlike = [attribute for attribute in domain.parts if not able.takes(attribute)]
        obstacle = f"it takes {_words(able)}, got an attribute of {unlike[0]}." if unlike else ""
        return Fit(name, able, domain, sampled=True, obstacle=obstacle)
    if isinstance(domain, Box):
        return _boxed(name, able, domain)
    if isinstance(domain, L2Ball) and TensorBall in takes:
        return Fit(name, able, TensorBall(domain.shape, domain.radius), usual=False)
    return Fit(name, able, obstacle=f"it takes {_words(able)}.")


def _boxed(name: str, able: Capabilities, box: Box) -> Fit:
    """Return how a mechanism for something else takes vectors of a box."""
    if Interval in able.domains:
        return Fit(name, able, box, sampled=True)
    alike = len({*box.lows.tolist()}) == len({*box.highs.tolist()}) == 1
    low, high = float(box.lows[0]), float(box.highs[0])
    if L2Ball in able.domains:
        if not alike or low != -high:
            return Fit(name, able, obstacle="it takes vectors about zero: give one range -R,R for all entries.")
        return Fit(name, able, L2Ball(box.dims, high * math.sqrt(box.dims)))
    if TensorDomain in able.domains:
        if not alike:
            return Fit(name, able, obstacle="it takes entries of one range: give one range LOW,HIGH for all of them.")
        return Fit(name, able, TensorDomain((box.dims,), low, high), usual=False)
    return Fit(name, able, obstacle=f"it takes {_words(able)}.")


def _words(able: Capabilities) -> str:
    return " or ".join(_WORDS.get(kind, kind.kind) for kind in able.domains)


def _instead(domain: Any) -> str:
    """Name some mechanisms that fit, pure or not."""
    names = [one.name for one in fits(domain, delta=1e-6) if one and one.usual][:2]
    return f" Choose one that does, such as {' or '.join(names)}." if names else ""


def _budget(found: Fit, epsilon: float | None, delta: float, mu: float | None) -> dict[str, float]:
    """Return the budget by the mechanism's own names."""
    name, able = found.name, found.able
    if mu is not None:
        if epsilon is not None or delta:
            raise ValueError(f"Expected mu={mu} or epsilon and delta, got both.")
        if not able.gaussian:
            raise ValueError(f"{name} is not Gaussian and has no mu: give epsilon.")
        return gaussian_point(mu)
    if epsilon is None:
        raise TypeError("Expected epsilon, or the mu of Gaussian noise.")
    spent = {"epsilon": _validate.epsilon(epsilon)}
    if _validate.delta(delta) > 0:
        if able.delta == "none":
            raise ValueError(f"{name} has a pure guarantee: leave the delta of {delta:g} out.")
        spent["delta"] = delta
    elif able.delta == "needed":
        raise ValueError(
            f"{name} has no pure guarantee: give a delta far below one in the number of users, such as 1e-6."
        )
    return spent


def gaussian_point(mu: float) -> dict[str, float]:
    """Return an epsilon and delta on the curve of mu-GDP."""
    mu = _validate.positive(mu, "mu")
    epsilon = mu**2 / 2 + _LOSSES * mu  # the mean of the loss, and this many of its deviations
    return {"epsilon": epsilon, "delta": float(gaussian_delta(mu, epsilon))}


def _levelled(cls: Any, domain: Interval, budget: dict[str, float], options: dict[str, Any]) -> Any:
    """Return a mechanism with levels: its own or those given, of which only the proportions count."""
    if "edges" not in options:
        return cls.example(1.0).fitted(domain=domain, **budget)
    total = budget.pop("epsilon")
    made = cls(**options, **budget)
    if not np.array_equal([made.edges[0], made.edges[-1]], [domain.low, domain.high]):
        raise ValueError(f"Expected levels from end to end of {domain}, got edges={list(made.edges)}.")
    return made.calibrate(total=total)


def register(cls: Registered) -> Registered:
    """Add a class to the catalogue: `build`, plans, surveys, collectors and the command line then know its name.

    It returns the class, so it may be used as a decorator. `registered` removes it again. A kind of domain of your own
    that the class declares is known to `noisette.domains.from_spec` from then on.
    """
    for own, kind in (("name", str), ("kind", str), ("citation", str), ("capabilities", Capabilities)):
        if not isinstance(getattr(cls, own, None), kind):
            raise TypeError(
                f"Expected {cls.__name__}.{own} to be a {kind.__name__}. Inherit ScalarMechanism, CategoricalMechanism "
                "or VectorMechanism, and declare it as a class attribute."
            )
    if CATALOGUE.get(cls.name, cls) is not cls:
        raise ValueError(f"The catalogue has another mechanism {cls.name!r}: choose another name.")
    for domain in cls.capabilities.domains:
        if DOMAINS.setdefault(domain.kind, domain) is not domain:
            raise ValueError(f"There is another kind of domain {domain.kind!r}: choose another kind for {domain}.")
    CATALOGUE[cls.name] = cls
    return cls


@contextmanager
def registered(*classes: type[Any]) -> Iterator[None]:
    """Have classes in the catalogue for a while, as tests do."""
    domains = DOMAINS.copy()
    for cls in classes:
        register(cls)
    try:
        yield
    finally:
        for cls in classes:
            del CATALOGUE[cls.name]
        for kind in DOMAINS.keys() - domains.keys():
            del DOMAINS[kind]
