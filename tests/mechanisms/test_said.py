"""All that a mechanism of the catalogue says of itself, digit by digit, to plans, surveys, certificates and devices.

Independent tests of these numbers are elsewhere; here nothing may move. python -m tests.mechanisms.test_said writes
anew.
"""

from __future__ import annotations

import dataclasses
import warnings
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import pytest
from tests.held import Held, plain
from tests.mechanisms.test_held import short, summary

import noisette as nz
from noisette.auditing.inputs import admitted, drawn
from noisette.core import PubliclyDrawn

HELD = Held(__file__)
EPSILON = 1.3
PLAIN = (bool, int, float, str, Fraction, tuple, list, dict, np.ndarray, np.generic, type(None))
LEFT = {"domain", "epsilon"}  # what it was asked for


def members(thing: Any) -> dict[str, Any]:
    """Return what is public of an object and no method: numbers, texts, arrays, and what is made of them."""
    found = {}
    for name in sorted(set(dir(thing)) - LEFT):
        if name.startswith("_"):
            continue
        try:
            value = getattr(thing, name)
        except NotImplementedError:
            value = "not known"
        if isinstance(value, PLAIN):
            found[name] = short(plain(value))
        elif dataclasses.is_dataclass(value) and not isinstance(value, type):
            found[name] = short(value)
    return found


def said(name: str) -> list[Any]:
    """Return members, laws, and what is done with values and with what is drawn for each user."""
    mechanism: Any = nz.CATALOGUE[name].example(EPSILON)
    found = [x for x in drawn(mechanism.domain, np.random.default_rng(0), 4) if admitted(mechanism, x)]
    inputs = np.stack([np.asarray(x) for x in found])[:4]
    told: list[Any] = [members(mechanism), short(mechanism.spec()), short(mechanism.guarantee.spec())]
    told += [short(mechanism.written_law()), short(mechanism.table()), short(mechanism.declared())]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # claims that do not hold
        told.append([[type(form).__name__, short(form.spec())] for form in mechanism.published_forms(EPSILON)])
    if callable(getattr(mechanism, "law", None)):
        law = mechanism.law()
        told += [
            str(law.total),
            short([[str(part) for part in kind] for kind in law.kinds(mechanism.place(inputs[0]))]),
        ]
    if isinstance(mechanism, PubliclyDrawn):
        known = mechanism.draw(len(inputs), np.random.default_rng(1))
        reports = mechanism.privatize_drawn(inputs, known, rng=2)
        told += [summary(known), short(reports), summary(mechanism.drawn(reports))]
    else:
        reports = mechanism.privatize(inputs, rng=2)
    if name != "sampled":  # its reports are pairs of arrays
        told.append(summary(mechanism.readable(reports, inputs[:2])))
    if mechanism.kind not in ("frequency", "selection", "texts", "attributes"):
        told.append(mechanism.worst_variance())
    if hasattr(mechanism, "number_variance"):
        told.append(mechanism.number_variance())
    return told


def widened(domain: Any) -> Any:
    """Return a domain of the same kind whose size is no power of anything: units that go missing show there."""
    if isinstance(domain, nz.L2Ball):  # spheres among them
        return dataclasses.replace(domain, radius=2.3)
    if isinstance(domain, nz.Interval):
        return nz.Interval(-0.7, 4.3)
    if isinstance(domain, nz.Box):
        return nz.Box(domain.dims, -0.7, 4.3)
    if isinstance(domain, nz.TensorDomain):
        return nz.TensorDomain(domain.dims, -0.7, 4.3)
    return None


def wide(name: str) -> list[Any] | None:
    """Return what a mechanism says on a wider domain, or None if it is on another kind."""
    mechanism: Any = nz.CATALOGUE[name].example(EPSILON)
    fields = {one.name for one in dataclasses.fields(mechanism)}
    domain = widened(mechanism.domain)
    if domain is None or "domain" not in fields or name == "matrix":
        return None
    made = dataclasses.replace(mechanism, domain=domain)
    return [members(made), made.worst_variance(), made.number_variance() if hasattr(made, "number_variance") else 0]


WIDE = [name for name in nz.CATALOGUE if wide(name)]
STORIES = {name: partial(said, name) for name in nz.CATALOGUE} | {f"wide {name}": partial(wide, name) for name in WIDE}


@pytest.mark.parametrize("name", STORIES)
def test_digits_are_the_ones_that_were_kept(name: str) -> None:
    HELD.check(name, STORIES[name]())


if __name__ == "__main__":
    HELD.write({name: story() for name, story in STORIES.items()})
