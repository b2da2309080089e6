"""Table IV of the paper on tensor-variate Gaussian noise: what it prints, what follows, what is measured."""

from __future__ import annotations

import math
import warnings

import numpy as np

from experiments.tldp.errors import ErrorRow
from noisette import _random
from noisette._random import Rng
from noisette.domains import TensorDomain
from noisette.guarantees import PrivacyWarning
from noisette.mechanisms.tensor.gaussian.calibration import Calibration, mvg_bound, tvg_bound
from noisette.mechanisms.tensor.gaussian.mechanism import TensorGaussian

_METHODS: tuple[Calibration, ...] = ("classical", "mvg", "udn", "idn", "exact")


def printed_errors(epsilon: float, delta: float, *, dims: tuple[int, ...]) -> dict[str, float]:
    """Return E||Z||^2 as Table IV prints it for private features in (-1, 1), without directions (Type II).

    Gaussian: I s^2, s = c 2 sqrt(I) / e, c^2 = 2 ln(1.25 / delta). MVG and UDN: I_1 I / B; IDN: I_1 I / B with its I_1
    inside B, so I over the B of TVG.
    Yang, Xiang, Chen, Li, Li 2021, Table IV.

    >>> printed = printed_errors(1.0, 1e-5, dims=(16, 5, 5))
    >>> round(printed["udn"] / printed["idn"])
    16
    """
    size, first = math.prod(dims), dims[0]
    distance = 2 * math.sqrt(size)
    bound = tvg_bound(epsilon, delta, size, distance)
    return {
        "classical": size * 2 * math.log(1.25 / delta) * (distance / epsilon) ** 2,
        "mvg": first * size / mvg_bound(epsilon, delta, first, size // first, distance, distance / 2),
        "udn": first * size / bound,
        "idn": size / bound,
    }


def gaussian_error_table(
    epsilon: float, delta: float = 1e-5, *, dims: tuple[int, ...], samples: int = 100, rng: Rng = None
) -> list[ErrorRow]:
    """Return Table IV, Type II, as formula and as measurement, with the exact calibration below it.

    All figures are E||Z||^2; every entry may change. What is printed for MVG is its order of growth: with the identity
    along the columns its noise is sqrt(I) / B an entry, so I sqrt(I) / B in all.
    """
    source, printed = _random.generator(rng), printed_errors(epsilon, delta, dims=dims)
    rows = []
    for method in _METHODS:
        # MVG speaks of matrices: the first mode against all others
        shape = (dims[0], math.prod(dims[1:])) if method == "mvg" else dims
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PrivacyWarning)  # the row says what holds
            mechanism = TensorGaussian(TensorDomain(shape), epsilon, delta, calibration=method)
        zeros = np.zeros((samples, *shape))
        measured = float(np.square(mechanism.privatize(zeros, rng=source)).sum()) / samples
        expected = mechanism.expected_error()
        rows.append(ErrorRow(method, printed.get(method, math.nan), expected, measured, str(mechanism.guarantee)))
    return rows
