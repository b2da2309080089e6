"""What keeping entries is worth: errors at equal unit and budget, and the paper's table of errors held to account."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np

from noisette import _random
from noisette._random import Rng
from noisette._validate import FloatArray
from noisette.accounting import gdp_epsilon
from noisette.domains import Grid, Interval, L2Ball, TensorDomain
from noisette.guarantees import PrivacyWarning, gaussian_mu
from noisette.mechanisms.scalar.duchi import Duchi
from noisette.mechanisms.scalar.gaussian import DiscreteGaussian
from noisette.mechanisms.scalar.hybrid import Hybrid
from noisette.mechanisms.scalar.laplace import DiscreteLaplace
from noisette.mechanisms.scalar.piecewise import Piecewise, PiecewiseOptimal
from noisette.mechanisms.tensor.gaussian.mechanism import TensorGaussian
from noisette.mechanisms.tensor.retain.mechanism import RetainOrNoise
from noisette.mechanisms.vector.privunit import PrivUnitG

_SCALARS = (Duchi, Piecewise, PiecewiseOptimal, Hybrid)
_DELTA = 1e-5  # of what MVG and IDN promise
_CAPPED = 300.0  # beyond this epsilon an entry's noise is below what is compared


def equal_unit_errors(
    epsilon: float, delta: float = 0.0, *, domain: TensorDomain, levels: int = 256, unit: str = "record"
) -> dict[str, float]:
    """Return the mean squared error an entry, at the worst input, of TLDP made sound and of its rivals.

    All protect the same unit with the same epsilon and, those that need one, ``delta``. For a record the scalar
    mechanisms answer every entry with epsilon / I, "gaussian-record" adds Gaussian noise to the tensor as a whole and
    "privunit-g" treats it as one vector. Mechanisms on real numbers answer without rounding to the levels.

    >>> errors = equal_unit_errors(1.0, domain=TensorDomain((28, 28), 0, 255), unit="element")
    >>> min(errors, key=errors.get)
    'hybrid'
    """
    size = math.prod(domain.dims)
    entries = 1 if unit == "element" else size
    options: dict[str, Any] = {"domain": domain, "levels": levels, "unit": unit}
    kept = {"retain-or-noise": RetainOrNoise(epsilon, **options)}
    if delta > 0:
        kept["retain-or-noise-gaussian"] = RetainOrNoise(epsilon, delta, noise="gaussian", **options)
        if unit == "record":
            kept["retain-or-noise-composed"] = RetainOrNoise(epsilon, delta, **options)
    step = (domain.high - domain.low) / (levels - 1)
    errors = {name: mechanism.choice.error * step**2 for name, mechanism in kept.items()}
    grid, interval = Grid(0.0, levels - 1.0), Interval(domain.low, domain.high)
    own = epsilon / entries
    errors["discrete-laplace"] = _worst(DiscreteLaplace(own, domain=grid)) * step**2
    if own <= _CAPPED:
        errors |= {cls.name: _worst(cls(own, domain=interval)) for cls in _SCALARS}
    if delta > 0:
        errors["discrete-gaussian"] = _worst(DiscreteGaussian(own, delta / entries, domain=grid)) * step**2
    half = (domain.high - domain.low) / 2
    if unit == "record":
        whole = PrivUnitG(epsilon, domain=L2Ball(size, half * math.sqrt(size)))
        errors["privunit-g"] = float(whole.moments(np.full(size, half)).variance.max())
        if delta > 0:
            errors["gaussian-record"] = (2 * half * math.sqrt(size) / gaussian_mu(epsilon, delta)) ** 2
    return errors


def _worst(mechanism: Any) -> float:
    """Return the largest mean squared error over the ends, the middle and some values between."""
    domain = mechanism.domain
    x = domain.clip(np.linspace(domain.low, domain.high, 33))
    moments = mechanism.moments(x)
    return float((moments.variance + moments.bias**2).max())


@dataclass(frozen=True)
class ErrorRow:
    """One method of a paper's table of errors: what is printed, what follows from its noise, what was measured.

    Of Table 5 all are sqrt(E||Z||^2) of the noise of a whole tensor, in steps of the grid. ``guarantee`` is what really
    holds.
    """

    method: str
    printed: float
    expected: float
    measured: float
    guarantee: str


def published_errors(epsilon: float, *, levels: int, dims: tuple[int, ...]) -> dict[str, float]:
    """Return Table 5 as printed, with Delta = ``levels``; DPHSGD's finite constant C is left at 1.

    >>> printed = published_errors(1.0, levels=256, dims=(28, 28))
    >>> round(printed["laplace"] / printed["tldp-laplace"])
    785
    """
    size, first = math.prod(dims), dims[0]
    kept = {name: _published(epsilon, name, levels, dims).p_keep for name in ("laplace", "gaussian")}
    ratio = levels / epsilon
    return {
        "laplace": ratio * size * math.sqrt(2 * size),
        "gaussian": ratio / 2 * size * math.sqrt(size),
        "mvg": ratio / math.sqrt(2) * size * size * math.sqrt(size) * math.log(first + 1) ** 2,
        "idn": ratio / math.sqrt(2) * size * math.sqrt(size),
        "dphsgd": ratio * size * math.sqrt(2 * size),
        "tldp-laplace": ratio * math.sqrt(2 * (1 - float(kept["laplace"])) * size),
        "tldp-gaussian": ratio / 2 * math.sqrt((1 - float(kept["gaussian"])) * size),
    }


def error_table(
    epsilon: float, *, levels: int = 256, dims: tuple[int, ...] = (28, 28), samples: int = 200, rng: Rng = None
) -> list[ErrorRow]:
    """Return the rows of Table 5, as formula and as measurement.

    The rows of the two additive baselines draw the noise that Theorem 2 gives them, b = I Delta / e and
    s^2 = I Delta^2 / (2e); at Gaussian noise the printed formula belongs to neither (its eq. 23 does not follow).
    MVG and IDN draw the noise of their own theorems; what is printed for them leaves delta out. DPHSGD is printed as
    Laplace noise times a finite C, which is 1 here.
    """
    source, size = _random.generator(rng), math.prod(dims)
    printed, scale = published_errors(epsilon, levels=levels, dims=dims), levels * size / epsilon
    sigma = levels * math.sqrt(size / (2 * epsilon))
    pure = f"{size * (levels - 1) / scale:.4g} per record"
    laplace = source.laplace(scale=scale, size=(samples, size))
    rows = [
        ErrorRow("laplace", printed["laplace"], scale * math.sqrt(2 * size), _root(laplace), pure),
        ErrorRow(
            "gaussian",
            printed["gaussian"],
            sigma * math.sqrt(size),
            _root(source.normal(scale=sigma, size=(samples, size))),
            "no pure guarantee",
        ),
    ]
    for name in ("mvg", "idn"):
        own = TensorGaussian(TensorDomain(dims, 0, levels - 1), epsilon, _DELTA, calibration=name)
        drawn = own.privatize(np.zeros((samples, *dims)), rng=source).reshape(samples, -1)
        held = f"{gdp_epsilon(own.mu, _DELTA):.3g} per record at {_DELTA:g}"
        rows.append(ErrorRow(name, printed[name], math.sqrt(own.expected_error()), _root(drawn), held))
    clipped = source.laplace(scale=scale, size=(samples, size))
    rows.append(ErrorRow("dphsgd", printed["dphsgd"], scale * math.sqrt(2 * size), _root(clipped), pure))
    for noise in ("laplace", "gaussian"):
        mechanism = _published(epsilon, noise, levels, dims)
        zero = np.zeros((samples, *dims))
        expected = math.sqrt(size * float(mechanism.moments(zero[0]).variance.flat[0]))
        measured = _root((mechanism.privatize(zero, rng=source) - zero).reshape(samples, -1))
        rows.append(ErrorRow(f"tldp-{noise}", printed[f"tldp-{noise}"], expected, measured, str(mechanism.guarantee)))
    return rows


def _published(epsilon: float, noise: str, levels: int, dims: tuple[int, ...]) -> RetainOrNoise:
    """Return TLDP as published on whole numbers, without the warning: the table says what holds."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyWarning)
        domain = TensorDomain(dims, 0, levels - 1)
        return RetainOrNoise(epsilon, domain=domain, levels=levels, noise=noise, as_published=True)


def _root(noise: FloatArray) -> float:
    """Return the root of the mean squared length of the rows."""
    return float(np.sqrt(np.square(noise).sum(axis=1).mean()))
