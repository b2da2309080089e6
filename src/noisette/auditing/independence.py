"""Tests that a report depends on its own value alone: on no other report or value, and that it leaves no other trace.

Functions return a complaint, or None; a sound mechanism gets one with probability ``share`` at most.
"""

from __future__ import annotations

import contextlib
import inspect
import io
import logging
import math
import os
import pickle
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.special import chdtr

from noisette._validate import FloatArray
from noisette.auditing import goodness
from noisette.auditing.features import table

_FEWEST_REPORTS = 100  # reports of a call whose mean is nearly normal
_HEAVY = 5.0  # E[|z|^3] of z with variance 1; a Gaussian law has 1.6, a Laplace law 2.1
_UNREPORTED = -1e12  # stands for an entry that a compact report leaves out
_COLUMNS = 4  # of a vector that are looked at one by one
_STRETCHES = (8, 32, 128)  # values next to each other whose reports are looked at together


def balanced(calls: Sequence[Any], share: float) -> str | None:
    """Check that the means of calls differ as much as independent reports make them.

    Noise that adds up to nothing in a call gives the sum of the values away.
    """
    tables = [table(reports) for reports in calls]
    size = min(len(rows) for rows in tables)
    if size < _FEWEST_REPORTS:
        return None
    for column in range(min(min(rows.shape[1] for rows in tables), _COLUMNS)):
        values = np.stack([rows[:size, column] for rows in tables])
        variance = float(values.var())
        if not 0 < variance < math.inf:  # one report, or entries that are not reported
            continue
        means = values.mean(axis=1)
        scores = float(np.square(means - means.mean()).sum()) * size / variance
        if float(chdtr(len(tables) - 1, scores)) < share / _COLUMNS:
            return "the noise of a call adds up to less than independent noise does"
    return None


def both_ends(calls: Sequence[Any], share: float) -> str | None:
    """Check that the first report of a call has nothing to do with the last one, and so on to the middle.

    Of codes from 0 to 3 the sum of products is nearly normal; a tenth more than a normal law needs is allowed.
    """
    rows = np.nan_to_num(np.stack([table(reports)[:, 0] for reports in calls]), nan=_UNREPORTED)
    cuts = np.unique(np.quantile(rows, (0.25, 0.5, 0.75), method="inverted_cdf"))
    codes = np.searchsorted(cuts, rows, side="left").astype(float)
    codes -= codes.mean()
    half = codes.shape[1] // 2
    products = codes[:, :half] * codes[:, ::-1][:, :half]
    spread = float(np.square(codes).mean()) * math.sqrt(max(products.size, 1))
    if products.size < _FEWEST_REPORTS**2 or spread == 0:
        return None
    limit = 1.1 * math.sqrt(2 * math.log(2 / share))
    return "reports at both ends of a call depend on each other" if abs(products.sum()) > limit * spread else None


def mirrored(support: Any, x: Any, reports: Any, share: float) -> str | None:
    """Check that no two reports about a value are as far from it on either side more often than by chance.

    Noise that two people share, with the other sign, gives the sum of their values away, wherever they stand. Of
    independent reports folding at a point makes at most twice as many pairs alike: (p + q)^2 <= 2 (p^2 + q^2).
    """
    lattice, value, rows = goodness.lattice(support), np.ravel(np.asarray(x)), table(reports)
    if lattice is None or value.dtype.kind not in "iuf" or rows.shape[1] != value.size:
        return None
    step, origin = lattice
    for column in range(min(value.size, _COLUMNS)):
        places = np.rint(2 * (rows[:, column] - origin) / step)
        if not np.isfinite(places).all():
            continue
        alike = _pairs(places)
        limit = 4 * alike + 20 * math.sqrt(alike) + 40 - math.log(share)
        below = 2 * math.floor((float(value[column]) - origin) / step)
        for middle in (below, below + 1, below + 2):
            seen = _pairs(np.abs(places - middle))
            if seen > limit:
                return (
                    f"{seen:g} pairs of reports about a value lie as far from it on either side, where chance is less"
                )
    return None


def _pairs(values: FloatArray) -> float:
    """Return how many pairs of numbers are equal."""
    _, counts = np.unique(values, return_counts=True)
    return float((counts * (counts - 1.0)).sum() / 2)


def quiet_stretch(mechanism: Any, inputs: Any, reports: Any, copies: int, share: float) -> str | None:
    """Check that nowhere, for values next to each other, there is less noise than is stated.

    Each value is there ``copies`` times, one after the other. A mean of n squares z^2 with expectation 1 is below
    1 - t with chance exp(-n t^2 / (2 E[z^4])) at most; the fourth moment is taken from where it is largest, twice.
    Where the variance is that of rare reports, a sample says nothing of it: E[|z|^3], as stated, must be moderate.
    """
    moments = mechanism.moments(inputs)
    variance = np.asarray(moments.variance, dtype=float)
    with np.errstate(divide="ignore", invalid="ignore"):
        squares = (np.asarray(reports, dtype=float) - inputs - moments.bias) ** 2 / variance
    if not np.isfinite(squares).all() or variance.min() <= 1e-9 * variance.max():
        return None
    if float(np.max(np.asarray(moments.third, dtype=float) / variance**1.5)) > _HEAVY:
        return None
    order = np.argsort(inputs[::copies], kind="stable")
    values, squares = inputs[::copies][order], squares.reshape(-1, copies)[order]
    widths = [width for width in _STRETCHES if width <= len(values)]
    tests = sum(len(values) // width for width in widths)
    fourth = 2 * max((float((part**2).mean()) for part in _parts(squares, widths[-1:])), default=math.inf)
    for width in widths:
        for place, part in enumerate(_parts(squares, [width])):
            room = math.sqrt(2 * fourth * math.log(tests / share) / part.size)
            if part.mean() < 1 - room:
                ends = values[place * width], values[(place + 1) * width - 1]
                return f"values from {ends[0]:.6g} to {ends[1]:.6g} have {part.mean():.2g} times the stated variance"
    return None


def _parts(rows: FloatArray, widths: Sequence[int]) -> Iterator[FloatArray]:
    for width in widths:
        for start in range(0, len(rows) - width + 1, width):
            yield rows[start : start + width]


def told_apart(
    mechanism: Any, inputs: Any, reports: Any, copies: int, other: Any, limits: Mapping[float, float], share: float
) -> str | None:
    """Check that reports about no values tell them from ``other`` better than the worst pair is said to be told apart.

    ``limits`` are deltas by epsilon; a delta of 0 bounds each ratio. Each value is there ``copies`` times, one after
    the other. The mean excess over values next to each other is judged by the empirical Bernstein bound (Maurer, Pontil
    2009, Theorem 4).
    """
    own, its = (np.asarray(mechanism.log_prob(reports, x)) for x in (inputs, np.full(len(inputs), other)))
    if np.isnan(own).any() or np.isnan(its).any():
        return "log_prob is no number for some reports"
    with np.errstate(invalid="ignore"):
        gap = np.where(own == its, 0.0, own - its)
    places = np.argsort(inputs[::copies], kind="stable")
    values, gaps = inputs[::copies][places], gap.reshape(-1, copies)[places]
    widths = [width for width in _STRETCHES if width <= len(values)]
    tests = len(limits) * sum(len(values) // width for width in widths)
    for epsilon, limit in limits.items():
        if limit == 0:
            far = np.abs(gaps).max(axis=1)
            if far.max() > epsilon * (1 + 1e-9) + 1e-11:
                bad = int(np.argmax(far))
                return f"a report about {values[bad]:.6g} has a ratio of {far[bad]:.6g} against {other:.6g}"
            continue
        excess = -np.expm1(np.minimum(epsilon - gaps, 0.0))
        for width in widths:
            for place, part in enumerate(_parts(excess, [width])):
                risk = math.log(2 * tests / share)
                room = math.sqrt(2 * float(part.var()) * risk / part.size) + 7 * risk / (3 * (part.size - 1))
                if part.mean() - room > limit + 1e-9:
                    ends = values[place * width], values[(place + 1) * width - 1]
                    return (
                        f"values from {ends[0]:.6g} to {ends[1]:.6g} and {other:.6g} have a delta of "
                        f"{part.mean() - room:.3g} or more at epsilon {epsilon:.3g}, where the worst inputs were said "
                        f"to have {limit:.3g}"
                    )
    return None


@dataclass
class World:
    """What a call may leave behind beside its reports: texts, environment, global generators, its own attributes."""

    said: list[str] = field(default_factory=list)

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """Note what is printed or logged, and whether the environment or a global generator is changed."""
        told = _Told()
        root = logging.getLogger()
        level, printed = root.level, io.StringIO()
        before = _surroundings()
        root.addHandler(told)
        root.setLevel(logging.DEBUG)
        try:
            with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
                yield
        finally:
            root.removeHandler(told)
            root.setLevel(level)
        after = _surroundings()
        self.said += [f"logs {record!r}" for record in told.records[:1]]
        self.said += [f"prints {printed.getvalue()[:60]!r}"] if printed.getvalue() else []
        self.said += [f"changes {name}" for name in before if before[name] != after[name]]


class _Told(logging.Handler):
    """Keeps what the library, or a mechanism, logs."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.records: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record.getMessage()[:60])


def _surroundings() -> dict[str, Any]:
    kind, keys, *rest = np.random.get_state()  # noqa: NPY002  # that of the whole process
    return {
        "the environment": dict(os.environ),
        "numpy's global generator": (kind, np.asarray(keys).tobytes(), *rest),
        "Python's global generator": random.getstate(),
        "the working directory": os.getcwd(),
    }


def _named(method: Any, module: str, seen: set[Any]) -> dict[str, Any]:
    """Return what a function names, and what those name that it calls, of the same package."""
    function = inspect.unwrap(method) if callable(method) else method
    function = getattr(function, "__func__", function)
    package = module.partition(".")[0]
    if not inspect.isfunction(function) or function in seen or function.__module__.partition(".")[0] != package:
        return {}
    seen.add(function)
    named = inspect.getclosurevars(function)
    found = {**named.globals, **named.nonlocals}
    given = (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values())
    held = {**found, **{f"a default of {function.__qualname__}, {place}": value for place, value in enumerate(given)}}
    for value in found.values():
        held |= _named(value, module, seen)
    return held


def attributes(mechanism: Any) -> dict[str, bytes]:
    """Return what an object holds, as far as it can be written down.

    Of classes from elsewhere also what they hold, and what their methods, and the functions of their modules that these
    call, name in their modules, in functions around them and as defaults: values may be kept there, and a generator
    that every fork would repeat.
    """
    held: dict[str, Any] = dict(vars(mechanism))
    for kind in type(mechanism).__mro__:
        if kind.__module__.partition(".")[0] in ("noisette", "builtins", "abc", "typing"):
            continue
        held |= {f"{kind.__name__}.{name}": value for name, value in vars(kind).items() if name[:2] != "__"}
        seen: set[Any] = set()
        for method in vars(kind).values():
            held |= _named(getattr(method, "fget", getattr(method, "func", method)), kind.__module__, seen)
    written = {}
    for name, value in held.items():
        if not (callable(value) or inspect.ismodule(value)):
            with contextlib.suppress(Exception):
                written[name] = pickle.dumps(value)
    return written
