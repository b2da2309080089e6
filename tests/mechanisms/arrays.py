"""All that a mechanism for arrays computes, as plain values: for the files that keep its digits."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from tests.held import plain

from noisette import cells

# What is no number of the mechanism's own: words, types, and what is asked for by name below.
_WORDS = {
    "gap",
    "lower_bound",
    "table",
    "report_dtype",
    "dtype",
    "report",
    "support",
    "guarantee",
    "readout",
    "two_numbers",
    "fitted",
}


def summary(values: Any) -> Any:
    """Return the shape of an array, its sum, a sum with weights, and some entries."""
    array = np.asarray(values)
    if array.dtype.names:
        return {name: summary(array[name]) for name in array.dtype.names}
    if array.dtype.kind not in "biuf":
        return str(values)[:80]
    if array.dtype.kind in "iu" and array.size and int(np.abs(array.astype(float)).max()) > 2**20:
        whole_numbers = array.reshape(-1).tolist()  # thresholds of draws: float64 would round them
        return [list(array.shape), sum(whole_numbers), whole_numbers[:: max(1, len(whole_numbers) // 5)][:6]]
    flat = np.asarray(array, dtype=float).reshape(-1)
    flat = np.where(np.isfinite(flat), flat, -1.0)
    weights = np.cos(np.arange(flat.size))
    return [list(array.shape), float(flat.sum()), float(flat @ weights), flat[:: max(1, flat.size // 5)][:6]]


def brief(thing: Any) -> Any:
    """Return a value without long lists and without what names a place in memory."""
    if isinstance(thing, np.ndarray):
        return summary(thing)
    if isinstance(thing, list | tuple):
        return [brief(one) for one in thing[:8]]
    if isinstance(thing, dict):
        return {str(name): brief(one) for name, one in list(thing.items())[:8]}
    if hasattr(thing, "__dataclass_fields__"):
        return {name: brief(getattr(thing, name)) for name in thing.__dataclass_fields__ if hasattr(thing, name)}
    made = plain(thing)
    return "" if isinstance(made, str) and " at 0x" in made else made


def exact(thing: Any) -> Any:
    """Return a law as a certificate has it, fractions as text."""
    if isinstance(thing, dict):
        return {name: exact(one) for name, one in thing.items()}
    if isinstance(thing, list | tuple):
        return [exact(one) for one in thing[:40]]
    return str(thing) if isinstance(thing, Fraction) else brief(thing)


def facts(made: Any) -> dict[str, Any]:
    """Return every quantity that an object computes of itself, private ones too: margins are among them."""
    found = dict[str, Any]()
    for name in sorted(dir(type(made))):
        if name in _WORDS or name.startswith("__"):
            continue
        if isinstance(getattr(type(made), name, None), property | cached_property):
            try:
                found[name] = brief(getattr(made, name))
            except (NotImplementedError, AttributeError, ValueError, AssertionError) as error:
                found[name] = type(error).__name__
    return found


def whole(build: Callable[[], Any], inputs: Any, *, cut: int = 3) -> list[Any]:
    """Return all that a mechanism says of itself, and reports of a known seed with what they add up to."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = build()
        reports = made.privatize(inputs, rng=7)
        found: list[Any] = [facts(made), brief(made.guarantee.spec()), brief(made.readout), brief(made.two_numbers)]
        found += [brief(part) for part in (reports if isinstance(reports, tuple) else (reports,))]
        found.append(exact(made.written_law()) if hasattr(made, "written_law") else None)
        for ask in (made.moments, lambda x: made.log_prob(reports, x)):
            try:
                told = ask(inputs)
            except NotImplementedError as error:
                told = str(error)[:60]
            found.append(brief(told))
        estimate = made.aggregate(reports).estimate()
        found += [brief(estimate.value), brief(estimate.std_error)]
        try:
            found += [brief(part) for part in made.witnesses()]
        except NotImplementedError:
            found.append("no witnesses")
        if isinstance(made, cells.Dissected):
            for one in list(made.dissect())[:cut]:
                found.append([brief(one.pair), [brief(node) for node in one.nodes], brief(one.log_weight)])
                found.append([brief(one.places), brief(one.span), brief(one.tilt), one.bound, one.complete])
    return found
