"""Pairs of inputs that the exact calculator chooses itself, and how far a mechanism's own word about pairs reaches.

`dissect` names the pairs of inputs among which the worst one is. Of a class of this library a proof says so, in its
docstring; of any other class it is a claim. So inputs are drawn from the domain, and pairs of them are compared with
those that were named: exactly where the reports can be cut for any two inputs, and by reports that are drawn where they
cannot.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt

from noisette._validate import FloatArray
from noisette.auditing.inputs import admitted, groups
from noisette.cells import Cells, CutAnywhere
from noisette.core import Mechanism
from noisette.domains import Categorical
from noisette.mechanisms._base import BaseMechanism, Points
from noisette.mechanisms.categorical._base import Codes

_HOUSE = "noisette"
_MOST = 256  # numbers in an input up to which inputs are drawn
_DRAWN = 4  # inputs from anywhere in a domain
_PAIRS = 28  # of inputs of one group that are cut
_ENUMERATED = 24  # categories of which all pairs are cut
_OUTPUTS = 1 << 14  # reports up to which all are listed
_REPORTS = 2048  # about each input
_RISK = 1e-12  # that reports about a pair show more than is true


class AtLeast(float):
    """A number that the truth is not below: what was looked at shows it, and nothing shows that it is the worst.

    It is the float that it holds, and says so in its `repr`.

    >>> AtLeast(0.5), round(AtLeast(0.5) + 1, 1)
    (at least 0.5, 1.5)
    """

    __slots__ = ()

    def __repr__(self) -> str:
        return f"at least {float(self)!r}"

    def __reduce__(self) -> tuple[type[AtLeast], tuple[float]]:
        return AtLeast, (float(self),)


def said(mechanism: Mechanism, value: float) -> float:
    """Return an epsilon or delta as what it is: exact where the worst pair is proved, else `AtLeast` that much.

    Infinity is exact whoever shows it.
    """
    return value if value == math.inf or proved(mechanism) else AtLeast(value)


def proved(mechanism: Any) -> bool:
    """Tell whether the worst pair is among those that were cut: by a proof in this library, or since all pairs were.

    A class from elsewhere may have inherited what it does from the library, but which pair is worst rests on all of it.
    """
    if isinstance(mechanism.domain, Categorical) and mechanism.domain.size <= _ENUMERATED and _listed(mechanism):
        return True
    inner = [getattr(mechanism, field.name) for field in fields(mechanism)] if is_dataclass(mechanism) else []
    inner += [getattr(mechanism, "inner_mechanism", None), *getattr(mechanism, "inner_mechanisms", ())]
    if not all(proved(own) for own in inner if isinstance(own, BaseMechanism)):
        return False
    return all(_library(part) for part in type(mechanism).__mro__)


def _library(part: type) -> bool:
    """Tell whether a class is this library's, or of the language: it is found where it says that it is from."""
    home = sys.modules.get(part.__module__)
    known = part.__module__.split(".")[0] in (_HOUSE, "abc", "typing")
    return part is object or (known and getattr(home, part.__name__, None) is part)


def _listed(mechanism: Any) -> bool:
    """Tell whether all reports can be listed."""
    return _every(mechanism) is not None


def _every(mechanism: Any) -> npt.NDArray[Any] | None:
    """Return all reports of a mechanism that has few, each a number."""
    support = mechanism.support
    if isinstance(support, Points) and len(support.values) <= _OUTPUTS:
        return np.asarray(support.values)
    return np.arange(support.size) if isinstance(support, Codes) and support.size <= _OUTPUTS else None


def inputs(mechanism: Mechanism) -> Iterator[list[Any]]:
    """Yield lists of inputs of the domain, any two of one list neighbours; at levels also the ends of each level."""
    if math.prod(mechanism.domain.shape) > _MOST:
        return
    edges = getattr(mechanism, "edges", None)
    for group in groups(mechanism, np.random.default_rng(1), _DRAWN):
        if edges is not None and not mechanism.domain.shape:
            ends = np.asarray(edges, dtype=float)
            yield [*(np.asarray(x) for x in np.unique([ends[:-1], np.nextafter(ends[1:], -math.inf)])), *group]
        else:
            yield group


def cut(mechanism: Mechanism) -> Iterator[Cells]:
    """Yield all reports in cells for pairs of inputs of the domain, where the mechanism's reports can be so cut."""
    listed = _listed(mechanism)
    if not listed and not isinstance(mechanism, CutAnywhere):
        return
    for group in inputs(mechanism):
        pairs = list(combinations(group, 2))
        if not isinstance(mechanism.domain, Categorical) and len(pairs) > _PAIRS:
            pairs = pairs[:: math.ceil(len(pairs) / _PAIRS)] if getattr(mechanism, "edges", None) is None else pairs
        for pair in pairs:
            cells = between(mechanism, *pair)
            if cells is not None:
                yield cells


def between(mechanism: Mechanism, first: Any, second: Any) -> Cells | None:
    """Return all reports in cells for two inputs, or None where they cannot be cut or the inputs are alike.

    Nothing but the reports and their number is taken from the mechanism: the pair is the one that was asked for, and no
    bound of the mechanism's own is believed.
    """
    every = _every(mechanism)
    if every is not None:
        return Cells.constant((first, second), every, np.zeros(every.size))
    try:
        cells = mechanism.cut(first, second)  # type: ignore[attr-defined]
    except (ValueError, ArithmeticError):
        return None
    return None if cells is None else replace(cells, pair=(first, second), bound=None)


def turned(mechanism: Mechanism, pair: tuple[Any, Any]) -> Iterator[tuple[Any, Any]]:
    """Yield pairs of inputs that differ from a pair of vectors in one place, where the two exchange their entries."""
    first, second = (np.asarray(x) for x in pair)
    if first.ndim == 0 or first.dtype.kind != "f":
        return
    for place in np.ndindex(*first.shape):
        if first[place] != second[place]:
            own, other = first.copy(), second.copy()
            own[place], other[place] = second[place], first[place]
            if admitted(mechanism, own) and admitted(mechanism, other):
                yield own, other


def shown(mechanism: Mechanism, epsilons: FloatArray) -> Iterator[tuple[Any, Any, FloatArray]]:
    """Yield pairs of inputs, and lower limits of their divergence at each epsilon that reports about them show.

    All of them hold at once with a chance of a false one below 10^-9 (Maurer, Pontil 2009, Theorem 4).
    """
    if _listed(mechanism):  # and compared
        return
    source = np.random.default_rng(2)
    risk = math.log(2 / _RISK)
    for group in inputs(mechanism):
        many = np.repeat(np.stack(group), _REPORTS, axis=0)
        reports = mechanism.privatize(many, rng=source)
        for row, first in enumerate(group):
            own = reports[row * _REPORTS : (row + 1) * _REPORTS]
            logs = np.asarray(mechanism.log_prob(own, np.asarray(first)[None]))
            for column, second in enumerate(group):
                if column == row:
                    continue
                rival = np.asarray(mechanism.log_prob(own, np.asarray(second)[None]))
                with np.errstate(invalid="ignore", over="ignore"):
                    excess = -np.expm1(np.minimum(epsilons[:, None] + rival - logs, 0.0))
                mean, spread = excess.mean(axis=1), excess.var(axis=1)
                seen = mean - np.sqrt(2 * spread * risk / _REPORTS) - 7 * risk / (3 * _REPORTS)
                yield first, second, seen
