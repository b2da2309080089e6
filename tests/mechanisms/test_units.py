"""A mechanism does not care for the unit of its values: on a domain eight times as large it says eight times as much.

Eight is a power of two, so that nothing is rounded: budgets, chances and reports are the same to the last bits.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

import noisette as nz
from noisette.auditing.inputs import admitted, drawn

FACTOR = 8.0
_LENGTHS = ("low", "high", "radius", "step")


def lengths(domain: Any) -> list[str]:
    """Return the fields of a domain that are in the unit of its values."""
    return [field.name for field in dataclasses.fields(domain) if field.name in _LENGTHS]


def enlarged(mechanism: Any) -> Any:
    """Return the same mechanism on a domain that is eight times as large."""
    domain = mechanism.domain
    wide = dataclasses.replace(domain, **{name: FACTOR * getattr(domain, name) for name in lengths(domain)})
    return dataclasses.replace(mechanism, domain=wide)


# Angles and counts have no unit, what is estimated from projections is squared, and a report by seeded rows has none
# before it is decoded.
_OTHERS = {"angle-gaussian", "angle-noise", "fast-projunit", "jl", "matrix"}
NAMES = [
    name
    for name, cls in sorted(nz.CATALOGUE.items())
    if name not in _OTHERS
    and any(map(lengths, cls.capabilities.domains))
    and "domain" in {field.name for field in dataclasses.fields(cls)}
]


@pytest.mark.parametrize("name", NAMES)
def test_the_same_in_another_unit(name: str) -> None:
    plain = nz.CATALOGUE[name].example(1.0)
    wide = enlarged(plain)
    found = [x for x in drawn(plain.domain, np.random.default_rng(0), 4) if admitted(plain, x)]
    inputs = np.stack([np.asarray(x, dtype=float) for x in found])
    assert wide.guarantee == plain.guarantee
    assert wide.domain.diameter == pytest.approx(FACTOR * plain.domain.diameter)
    small, large = plain.moments(inputs), wide.moments(FACTOR * inputs)
    off = np.abs(large.bias - FACTOR * small.bias)
    assert (off <= 1e-7 * np.sqrt(large.variance)).all()
    np.testing.assert_allclose(large.variance, FACTOR**2 * small.variance, rtol=1e-9)
    np.testing.assert_allclose(large.third, FACTOR**3 * small.third, rtol=1e-8)
    many = np.repeat(inputs, 20, axis=0)
    reports, others = (one.privatize(x, rng=5) for one, x in ((plain, many), (wide, FACTOR * many)))
    coded = not isinstance(reports, np.ndarray) or reports.dtype.kind != "f"
    if isinstance(reports, np.ndarray):
        np.testing.assert_allclose(others, reports if coded else FACTOR * reports, rtol=1e-12, atol=1e-12)
        losses = [
            one.log_prob(sent, factor * many) - one.log_prob(sent, factor * np.roll(many, 20, axis=0))
            for one, sent, factor in ((plain, reports, 1.0), (wide, others, FACTOR))
        ]
        np.testing.assert_allclose(losses[1], losses[0], rtol=1e-9, atol=1e-9)
    one, other = plain.aggregate(reports).estimate(), wide.aggregate(others).estimate()
    np.testing.assert_allclose(other.value, FACTOR * one.value, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(other.std_error, FACTOR * one.std_error, rtol=1e-9)
    if not coded:
        for end, far in zip(plain.witnesses(), wide.witnesses(), strict=True):
            np.testing.assert_allclose(far, FACTOR * np.asarray(end), rtol=1e-12)
