"""What mechanisms for angles compute and draw, digit by digit: laws, margins for rounding, reports of a known seed.

Laws and samplers have independent tests of their own; here nothing may move.
python -m tests.mechanisms.geometric.test_held writes anew.
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
BUILD: dict[str, Callable[[], Any]] = {
    **{
        f"angle-noise {noise} in {domain}": partial(nz.AngleNoise, 4.0, domain=domain, noise=noise, beta=0.4)
        for noise in ("piecewise", "laplace", "duchi", "hybrid")
        for domain in (nz.L2Ball(3, 2.0), nz.Sphere(4))
    },
    "angle-noise gaussian": partial(nz.AngleNoise, 2.0, domain=nz.L2Ball(4), noise="gaussian", delta=1e-5),
    "angle-noise as published": partial(
        nz.AngleNoise, 2.0, domain=nz.Sphere(3), noise="laplace", beta=0.5, as_published=True
    ),
    **{
        f"angle-noise {noise} as published in {domain}": partial(
            nz.AngleNoise, 3.0, domain=domain, noise=noise, beta=beta, as_published=True
        )
        for noise in ("piecewise", "laplace")
        for domain, beta in ((nz.L2Ball(3, 2.0), 0.4), (nz.L2Ball(2, 0.3), 1.0), (nz.Sphere(3, 2.0), 0.2))
    },
    "angle-noise gaussian as published": partial(
        nz.AngleNoise, 2.0, domain=nz.L2Ball(3, 2.0), noise="gaussian", delta=1e-5, as_published=True
    ),
    "angle-noise of two": partial(nz.AngleNoise, 4.0, domain=nz.Sphere(2), noise="laplace", beta=0.4),
    "angle-noise of a wide range": partial(nz.AngleNoise, 4.0, domain=nz.L2Ball(3, 2.0), noise="duchi", beta=1.0),
    "angle-gaussian of a batch as published": partial(
        nz.AngleGaussian, 2.0, domain=nz.L2Ball(3, 0.1), delta=1e-4, beta=0.3, batch=20, as_published=True
    ),
    "angle-gaussian": partial(nz.AngleGaussian, 1.0, 4, beta=0.7),
    "angle-gaussian of two": partial(nz.AngleGaussian, 3.0, 2),
    "angle-gaussian of a batch": partial(
        nz.AngleGaussian, 2.0, domain=nz.L2Ball(5, 0.1), delta=1e-5, beta=0.3, batch=20
    ),
    "angle-gaussian on a sphere": partial(nz.AngleGaussian, 2.0, domain=nz.Sphere(5), delta=1e-5),
    "angle-gaussian as published": partial(nz.AngleGaussian, 2.0, 4, beta=0.3, as_published=True),
}


def inputs(made: Any) -> Any:
    """Return vectors of several lengths and directions."""
    domain = made.domain
    share = np.modf(np.arange(1.0, 1 + 9 * domain.dims) * 0.618034)[0].reshape(9, domain.dims) - 0.5
    unit = share / np.linalg.norm(share, axis=-1, keepdims=True)
    length = domain.radius * np.ones(9) if isinstance(domain, nz.Sphere) else domain.radius * np.linspace(0.1, 1, 9)
    return unit * length[:, None]


def story(name: str) -> list[Any]:
    return whole(BUILD[name], inputs(BUILD[name]()))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", BUILD)
def test_digits_are_the_ones_that_were_kept(name: str) -> None:
    HELD.check(name, story(name))


if __name__ == "__main__":
    HELD.write({name: story(name) for name in BUILD})
