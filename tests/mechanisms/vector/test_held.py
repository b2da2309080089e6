"""What mechanisms for vectors and records compute and draw, digit by digit: laws, margins, reports of a known seed.

Laws and samplers have independent tests of their own; here nothing may move.
python -m tests.mechanisms.vector.test_held writes anew.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from tests.held import Held
from tests.mechanisms.arrays import whole

import noisette as nz

HELD = Held(__file__)
BOX = nz.Box(5, -1, 3)
RECORD = nz.Attributes((2, 5, nz.Categorical(3)))
MIXED = nz.Attributes((nz.Interval(0, 120), 4, nz.Interval()))
BUILD: dict[str, Callable[[], Any]] = {
    **{
        f"{make.name} at {epsilon}": partial(make, epsilon, domain=domain)
        for make, domains in (
            (nz.DuchiBox, (BOX, nz.Box(4))),
            (nz.AdaptiveDuchi, (BOX,)),
            (nz.PrivUnit, (nz.Sphere(6, 2.0),)),
            (nz.PrivUnitG, (nz.Sphere(6, 2.0), nz.L2Ball(3, 0.5))),
        )
        for epsilon in (0.3, 2.0, 7.0)
        for domain in domains
    },
    "duchi-box as published of many": partial(nz.DuchiBox, 3.0, 7, as_published=True),
    "adaptive-duchi of many": partial(nz.AdaptiveDuchi, 6.0, domain=nz.Box(40)),
    "fast-projunit at a low budget": partial(nz.FastProjUnit, 0.2, domain=nz.Sphere(9), rows=64),
    "fast-projunit in a ball in bits": partial(nz.FastProjUnit, 2.0, domain=nz.L2Ball(20, 2.0), rows=64, bits=3),
    "privunit at a high budget": partial(nz.PrivUnit, 30.0, domain=nz.Sphere(5)),
    "privunit-g at a high budget": partial(nz.PrivUnitG, 30.0, domain=nz.Sphere(5)),
    "duchi-box of one": partial(nz.DuchiBox, 1.0, domain=nz.Box(1)),
    "duchi-box of many": partial(nz.DuchiBox, 2.0, domain=nz.Box(300)),
    "duchi-box as published": partial(nz.DuchiBox, 1.0, 4, as_published=True),
    "adaptive-duchi with a delta": partial(nz.AdaptiveDuchi, 2.0, domain=BOX, delta=1e-5),
    "adaptive-duchi as published": partial(nz.AdaptiveDuchi, 2.0, domain=BOX, as_published=True),
    "privunit of two": partial(nz.PrivUnit, 1.0, domain=nz.Sphere(2)),
    "privunit-g of many": partial(nz.PrivUnitG, 4.0, domain=nz.Sphere(200)),
    "fast-projunit": partial(nz.FastProjUnit, 3.0, domain=nz.Sphere(40), rows=64),
    "fast-projunit in a ball": partial(nz.FastProjUnit, 5.0, domain=nz.L2Ball(70, 2.0), rows=100, rotation=3),
    "fast-projunit in bits": partial(nz.FastProjUnit, 6.0, domain=nz.Sphere(70), rows=64, bits=4),
    **{
        f"sampled {inner} {report}": partial(nz.Sampled, inner, epsilon=3.0, domain=BOX, report=report)
        for inner in ("duchi", "piecewise", "hybrid", "laplace")
        for report in (1, 2)
    },
    "sampled as it chooses": partial(nz.Sampled, "duchi", epsilon=9.0, dims=12),
    "sampled with a delta": partial(nz.Sampled, "gaussian", epsilon=1.0, dims=3, report=2, delta=1e-5),
    **{
        f"attributes {inner} {report}": partial(
            nz.SampledAttributes, inner, epsilon=2.0, domain=RECORD, report=report, **options
        )
        for inner, report, options in (
            ("grr", 1, {}),
            ("oue", 2, {}),
            ("histogram", 3, {}),
            ("hadamard", 2, {}),
            ("grr", 3, {"shares": (0.5, 0.3, 0.2)}),
        )
    },
    "attributes of two kinds": partial(
        nz.SampledAttributes, ("piecewise", "oue", "laplace"), epsilon=3.0, domain=MIXED
    ),
}


def inputs(made: Any) -> Any:
    """Return a few vectors, or records, of a domain."""
    domain = made.domain
    if isinstance(domain, nz.Attributes):
        columns = [
            np.arange(9) % part.size if isinstance(part, nz.Categorical) else np.linspace(part.low, part.high, 9)
            for part in domain.parts
        ]
        return np.stack(columns, axis=-1)
    share = np.modf(np.arange(1.0, 1 + 9 * domain.dims) * 0.618034)[0].reshape(9, domain.dims)
    if isinstance(domain, nz.Box):
        return domain.low + (domain.high - domain.low) * share
    return domain.radius * (share - 0.5) / np.linalg.norm(share - 0.5, axis=-1, keepdims=True)


def story(name: str) -> list[Any]:
    return whole(BUILD[name], inputs(BUILD[name]()))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", BUILD)
def test_digits_are_the_ones_that_were_kept(name: str) -> None:
    HELD.check(name, story(name))


if __name__ == "__main__":
    HELD.write({name: story(name) for name in BUILD})
