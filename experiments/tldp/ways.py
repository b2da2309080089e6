"""Ways to perturb a tensor of levels 0 to 255: as published, the baselines, ours; each with what really holds."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from dp_accounting.pld import privacy_loss_distribution

import noisette as nz
from noisette._validate import FloatArray
from noisette.accounting import compose, gdp_epsilon, gdp_mu
from noisette.accounting._numbers import least_above

DELTA = 1e-5
LEVELS = 256
TLDP = ("TLDP-L", "TLDP-G")
OURS = ("ours", "ours at TLDP-L's truth", "ours, element")
_LEAST_UP_TO = 20.0  # epsilon of an entry up to which PiecewiseOptimal has the least error


@dataclass(frozen=True)
class Way:
    """A perturbation with its claimed epsilon and those that hold at delta = 1e-5, for an entry and for the record."""

    label: str
    claimed: float
    element: float
    record: float
    std: float
    release: Callable[[FloatArray, int], FloatArray]


@cache
def published(epsilon: float, noise: str, dims: tuple[int, ...], weights: Any = None) -> nz.RetainOrNoise:
    """Return TLDP as Algorithm 1 prints it, reports rounded to whole numbers: unrounded, nothing finite holds."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", nz.PrivacyWarning)  # the tables say what holds
        return nz.RetainOrNoise(
            epsilon,
            domain=nz.TensorDomain(dims, 0, LEVELS - 1),
            levels=LEVELS,
            noise=noise,
            weights=weights,
            weights_epsilon=None if weights is None else 0.0,
            as_published=True,
            rounded=True,
        )


def _composed(distribution: Any, times: int, truncated: float = 1e-15) -> Any:
    """Compose losses with themselves, a thousand at a time: dp-accounting then keeps fewer of them."""
    if times <= 1000:
        return distribution.self_compose(times, tail_mass_truncation=truncated)
    rounds, rest = divmod(times, 1000)
    whole = _composed(distribution.self_compose(1000, tail_mass_truncation=truncated), rounds, truncated)
    return whole.compose(_composed(distribution, rest, truncated), truncated) if rest else whole


def _epsilon_of(distribution: Any, delta: float) -> float:
    """Return the epsilon of composed losses; a millionth of delta covers the rounding of Fourier transforms.

    dp-accounting's own inversion adds up exp(-loss), which float64 cannot hold for losses above 700.
    """
    usable = delta * (1 - 1e-6)
    found = float(distribution.get_epsilon_for_delta(usable))
    if found < 500 or math.isinf(found):
        return found
    return least_above(
        lambda e: float(distribution.get_delta_for_epsilon(e)) <= usable, 0.0, found, guess=found * 0.999, trust=1e-3
    )


@cache
def tldp_epsilon(epsilon: float, noise: str, entries: int) -> float:
    """Return the epsilon that holds at delta = 1e-5 for so many entries of TLDP that change from one end to the other.

    Reports of one entry are whole numbers, so that the two laws are compared number by number; the losses of all
    entries are composed. Rounding of the losses is upwards and below a thousandth of their mean.
    """
    mechanism = published(epsilon, noise, (1,))
    spread = math.sqrt(float(mechanism.moments(np.zeros(1)).variance.max()))
    far = math.ceil((35 if noise == "laplace" else 9) * spread) + 2
    reports = np.arange(-far, LEVELS + far, dtype=float)
    logs = [mechanism.log_prob(reports[:, None], np.full((len(reports), 1), end)) for end in (0.0, LEVELS - 1.0)]
    with np.errstate(invalid="ignore"):
        mean = float(np.nansum(np.exp(logs[0]) * (logs[0] - logs[1])))
    lower, upper = (dict(enumerate(own.tolist())) for own in logs)
    with np.errstate(over="ignore"):  # of dp-accounting's sums, at losses that no delta sees
        one = privacy_loss_distribution.from_two_probability_mass_functions(
            lower, upper, value_discretization_interval=mean / 1000, symmetric=True
        )
        found = _epsilon_of(_composed(one, entries), DELTA)
    return min(found, entries * mechanism.guarantee.epsilon)


def _tldp(label: str, claimed: float, dims: tuple[int, ...], times: int, weights: Any = None) -> Way:
    noise = "laplace" if "-L" in label else "gaussian"
    mechanism = published(claimed, noise, dims, weights)
    size = math.prod(dims)
    std = math.sqrt(float(mechanism.moments(np.zeros(dims)).variance.mean()))
    truth = [tldp_epsilon(claimed, noise, entries) for entries in (1, size * times)]
    return Way(label, claimed, *truth, std, lambda x, seed: mechanism.privatize(np.rint(x), rng=seed))


def _additive(label: str, claimed: float, size: int, times: int) -> Way:
    """Return the two baselines with the noise that Theorem 2 gives them: b = I Delta / e, s^2 = I Delta^2 / (2 e)."""
    if label == "Laplace":
        scale = size * LEVELS / claimed
        own = nz.Laplace(epsilon=(LEVELS - 1) / scale, domain=nz.Interval(0, LEVELS - 1))
        record = compose(own, times=size * times, delta=DELTA).epsilon

        def draw(x: FloatArray, seed: int) -> FloatArray:
            return np.asarray(x + np.random.default_rng(seed).laplace(scale=scale, size=x.shape))

        return Way(label, claimed, (LEVELS - 1) / scale, record, math.sqrt(2) * scale, draw)
    sigma = LEVELS * math.sqrt(size / (2 * claimed))
    mu = (LEVELS - 1) / sigma
    truth = gdp_epsilon(mu, DELTA), gdp_epsilon(mu * math.sqrt(size * times), DELTA)
    return Way(label, claimed, *truth, sigma, lambda x, seed: x + np.random.default_rng(seed).normal(0, sigma, x.shape))


def _gaussian(label: str, claimed: float, dims: tuple[int, ...], times: int, epsilon: float, **options: Any) -> Way:
    """Return tensor-variate Gaussian noise at an epsilon of one release."""
    domain = nz.TensorDomain(dims, 0, LEVELS - 1)
    mechanism = nz.TensorGaussian(domain, epsilon, DELTA, **options)
    size = math.prod(dims)
    truth = gdp_epsilon(mechanism.mu / math.sqrt(size), DELTA), gdp_epsilon(mechanism.mu * math.sqrt(times), DELTA)
    return Way(label, claimed, *truth, mechanism.sigma, lambda x, seed: mechanism.privatize(x, clip=True, rng=seed))


def _element(claimed: float, dims: tuple[int, ...], times: int) -> Way:
    """Return what is best for an entry at the pure epsilon that TLDP-L really gives it."""
    size, pure = math.prod(dims), published(claimed, "laplace", (1,)).guarantee.epsilon
    mechanism: Any
    if pure <= _LEAST_UP_TO:
        mechanism = nz.PiecewiseOptimal(pure, domain=nz.Interval(0, LEVELS - 1))
        std = math.sqrt(float(mechanism.moments(np.linspace(0, LEVELS - 1, 33)).variance.mean()))
    else:
        domain = nz.TensorDomain(dims, 0, LEVELS - 1)
        mechanism = nz.RetainOrNoise(pure, domain=domain, levels=LEVELS, unit="element")
        std = math.sqrt(mechanism.choice.error)

    def draw(x: FloatArray, seed: int) -> FloatArray:
        inside = np.clip(x, 0, 255)
        values = inside if mechanism.domain.shape else inside.reshape(-1)  # noise for one entry: one by one
        return np.asarray(mechanism.privatize(values, rng=seed)).reshape(x.shape)

    return Way(OURS[2], claimed, pure, pure * size * times, std, draw)


def ways(claimed: float, dims: tuple[int, ...], *, times: int = 1, weights: Any = None) -> Iterator[Way]:
    """Yield all ways at a claimed epsilon of one release; what holds is for ``times`` of them.

    ``weights``, public ones for each position, add the weighted forms, whose guarantee is at most that of the others.
    """
    size = math.prod(dims)
    for label in TLDP:
        yield _tldp(label, claimed, dims, times)
    if weights is not None:
        for label in TLDP:
            yield _tldp(f"{label}-w", claimed, dims, times, weights)
    for label in ("Laplace", "Gaussian"):
        yield _additive(label, claimed, size, times)
    for calibration in ("mvg", "idn"):
        yield _gaussian(calibration.upper(), claimed, dims, times, claimed, calibration=calibration)
    yield _gaussian(OURS[0], claimed, dims, times, claimed)
    mu = gdp_mu(tldp_epsilon(claimed, "laplace", size * times), DELTA) / math.sqrt(times)
    yield _gaussian(OURS[1], claimed, dims, times, gdp_epsilon(mu, DELTA))
    yield _element(claimed, dims, times)
