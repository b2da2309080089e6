"""Sampled Gaussian sums: against many digits for one release, quadrature for a few, other accountants for many."""

from __future__ import annotations

import math
from typing import Any

import dp_accounting
import mpmath
import numpy as np
import numpy.typing as npt
import pytest
from dp_accounting import rdp as renyi
from dp_accounting.pld.privacy_loss_distribution import from_gaussian_mechanism
from scipy.special import erfc

import noisette as nz
from noisette.accounting import gdp_epsilon, noise_multiplier, sampled_gaussian
from noisette.accounting.sampling import Pair, counted, sampled_epsilon

WAYS = ("remove", "add", "replace")


def exact_delta(epsilon: float, multiplier: float, sampling_prob: float, way: str) -> Any:
    """Return the delta of one release in 60 digits: the two laws' chances of the half-line where the loss is larger.

    The place where the loss is epsilon is found by halving, not by the formulas of the library.
    """
    with mpmath.workdps(60):
        m, q, e = 1 / mpmath.mpf(multiplier), mpmath.mpf(sampling_prob), mpmath.mpf(epsilon)

        def mixed(y: Any, shift: Any) -> Any:
            return 1 - q + q * mpmath.exp(shift * y - shift**2 / 2)

        def loss(y: Any) -> Any:
            if way == "replace":
                return mpmath.log(mixed(y, m) / mixed(y, -m))
            return mpmath.log(mixed(y, m)) * (1 if way == "remove" else -1)

        def tail(y: Any, shift: Any = 0) -> Any:
            return mpmath.erfc((y - shift) / mpmath.sqrt(2)) / 2

        sign = -1 if way == "add" else 1
        low, high = mpmath.mpf(-2000) - m, mpmath.mpf(2000) + m
        if way == "add" and e >= -mpmath.log(1 - q):
            return mpmath.mpf(0)
        for _ in range(230):
            middle = (low + high) / 2
            low, high = (middle, high) if sign * (loss(middle) - e) < 0 else (low, middle)
        if way == "remove":
            return (1 - q) * tail(low) + q * tail(low, m) - mpmath.exp(e) * tail(low)
        if way == "add":
            below, shifted = tail(-low), tail(-low, -m)
            return below - mpmath.exp(e) * ((1 - q) * below + q * shifted)
        return (1 - q) * tail(low) + q * tail(low, m) - mpmath.exp(e) * ((1 - q) * tail(low) + q * tail(low, -m))


def worst_delta(epsilon: float, multiplier: float, sampling_prob: float, relation: str) -> Any:
    ways = ("replace",) if relation == "replace" else ("remove", "add")
    return max(exact_delta(epsilon, multiplier, sampling_prob, way) for way in ways)


@pytest.mark.slow
@pytest.mark.parametrize("relation", ["add-remove", "replace"])
@pytest.mark.parametrize("delta", [1e-5, 1e-12, 1e-15, 1e-20, 1e-30, 1e-300])
def test_one_release_is_exact_to_the_safe_side(delta: float, relation: Any) -> None:
    """Never below the truth, and not a millionth of epsilon above it."""
    usual = ((0.3, 0.01), (1.0, 0.1), (2.0, 0.5), (10.0, 0.9), (1.0, 1e-3))
    for multiplier, sampling_prob in (*usual, (9e5, 0.44), (1.7e5, 1e-5)):  # tiny losses
        found = sampled_gaussian(multiplier, delta, sampling_prob=sampling_prob, relation=relation).epsilon
        assert worst_delta(found, multiplier, sampling_prob, relation) <= delta
        if found > 0:
            assert worst_delta(found * (1 - 1e-6), multiplier, sampling_prob, relation) > delta


@pytest.mark.slow
def test_the_former_way_is_unsound_for_one_release() -> None:
    """The twin: at a delta of 1e-20 the composed distribution states an epsilon at which the true delta is larger."""
    one = from_gaussian_mechanism(1.0, value_discretization_interval=1e-3, sampling_prob=0.1)
    stated = float(one.self_compose(1, tail_mass_truncation=1e-27).get_epsilon_for_delta(1e-20))
    assert worst_delta(stated, 1.0, 0.1, "add-remove") > 100 * 1e-20  # on any machine: transforms round by 1e-17
    assert worst_delta(sampled_epsilon(1.0, 1e-20, 1, 0.1, "add-remove"), 1.0, 0.1, "add-remove") <= 1e-20


FloatArray = npt.NDArray[np.float64]


def one_delta(epsilon: FloatArray, m: float, q: float, way: str) -> FloatArray:
    """Return delta of one release at any epsilon, below zero too, add-remove."""

    def tail(y: FloatArray) -> FloatArray:
        return np.asarray(erfc(y / math.sqrt(2)) / 2)

    grown = np.exp(epsilon)
    if way == "remove":  # the loss exceeds epsilon above this place
        inner = (grown - 1 + q) / q
        place = np.where(inner > 0, np.log(np.where(inner > 0, inner, 1.0)) / m + m / 2, -np.inf)
        return np.asarray((1 - q) * tail(place) + q * tail(place - m) - grown * tail(place))
    inner = (1 / grown - 1 + q) / q
    place = np.where(inner > 0, np.log(np.where(inner > 0, inner, 1.0)) / m + m / 2, -np.inf)
    return np.asarray(tail(-place) - grown * ((1 - q) * tail(-place) + q * tail(m - place)))


def composed_delta(epsilon: float, m: float, q: float, way: str, releases: int) -> float:
    """Return delta of two or three releases by quadrature: the mean of delta_1(epsilon - losses of the others)."""
    y, width = np.linspace(-11.0, 11.0 + m, 4000 if releases == 2 else 800, retstep=True)  # trapezia: ends vanish
    first = np.exp(-(y**2) / 2) / math.sqrt(2 * math.pi)
    ratio = 1 - q + q * np.exp(m * y - m * m / 2)
    mass, loss = (first * ratio, np.log(ratio)) if way == "remove" else (first, -np.log(ratio))
    mass = mass * width
    if releases == 2:
        return float((mass * one_delta(epsilon - loss, m, q, way)).sum())
    pairs = mass[:, None] * mass
    return float((pairs * one_delta(epsilon - loss[:, None] - loss, m, q, way)).sum())


@pytest.mark.long
@pytest.mark.parametrize(
    ("multiplier", "sampling_prob", "releases"),
    [(1.0, 0.1, 2), (0.6, 0.5, 2), (2.0, 0.02, 2), (0.8, 0.003, 2), (1.0, 0.1, 3), (0.8, 0.003, 3)],
)
def test_a_few_releases_against_quadrature(multiplier: float, sampling_prob: float, releases: int) -> None:
    """Never below the truth, either way; and with two thousandths less epsilon below it, when one is removed."""
    for delta in (1e-3, 1e-5, 1e-9, 1e-15, 1e-20) if releases == 2 else (1e-5, 1e-14):
        found = sampled_gaussian(multiplier, delta, releases=releases, sampling_prob=sampling_prob).epsilon
        truth = [composed_delta(found, 1 / multiplier, sampling_prob, way, releases) for way in ("remove", "add")]
        assert max(truth) <= delta * (1 + 1e-9), (delta, truth)
        if found > 0:
            less = composed_delta(found * (1 - 2e-3), 1 / multiplier, sampling_prob, "remove", releases)
            assert less > delta, (delta, less)


@pytest.mark.long
@pytest.mark.parametrize(
    ("multiplier", "releases", "sampling_prob"),
    [(1.0, 1000, 0.01), (4.0, 200, 0.5)],  # few in many sums, and many in few
)
def test_many_releases_beside_other_accountants(multiplier: float, releases: int, sampling_prob: float) -> None:
    """A finer lattice of dp-accounting's, where its transforms have digits enough; Renyi divergences everywhere."""
    one = from_gaussian_mechanism(multiplier, value_discretization_interval=1e-4, sampling_prob=sampling_prob)
    other = float(one.self_compose(releases).get_epsilon_for_delta(1e-6))
    found = sampled_gaussian(multiplier, 1e-6, releases=releases, sampling_prob=sampling_prob).epsilon
    assert found == pytest.approx(other, rel=1e-3)
    step = dp_accounting.PoissonSampledDpEvent(sampling_prob, dp_accounting.GaussianDpEvent(multiplier))
    accountant = renyi.RdpAccountant(orders=[1 + x / 4 for x in range(4, 400)]).compose(step, releases)
    for delta in (1e-5, 1e-10, 1e-14, 1e-20, 1e-50, 1e-150):
        found = sampled_gaussian(multiplier, delta, releases=releases, sampling_prob=sampling_prob).epsilon
        bound = accountant.get_epsilon(delta)
        assert 0.8 * bound <= found <= bound


def test_the_former_way_was_far_too_high_for_a_thousand() -> None:
    """12.4 was stated at a delta of 1e-14, where Renyi divergences give 4.98."""
    found = sampled_gaussian(1.0, 1e-14, releases=1000, sampling_prob=0.01).epsilon
    assert 4.5 < found < 4.98


@pytest.mark.long
def test_replacing_is_composed_too() -> None:
    """Between adding or removing once and twice; beside dp-accounting's own law of a replaced example."""
    neighbours = dp_accounting.NeighboringRelation.REPLACE_ONE
    multiplier = 2.0
    options: dict[str, Any] = {"releases": 20, "sampling_prob": 0.3}
    one = from_gaussian_mechanism(
        multiplier, value_discretization_interval=1e-4, sampling_prob=0.3, neighboring_relation=neighbours
    )
    found = sampled_gaussian(multiplier, 1e-6, relation="replace", **options).epsilon
    assert found == pytest.approx(float(one.self_compose(20).get_epsilon_for_delta(1e-6)), rel=1e-3)
    assert found > sampled_gaussian(multiplier, 1e-6, **options).epsilon


@pytest.mark.slow
@pytest.mark.parametrize("relation", ["add-remove", "replace"])
def test_counting_inclusions_is_never_below_the_truth(relation: Any) -> None:
    """One release in many digits; more beside the composed law, which is tight."""
    for multiplier, sampling_prob, delta in ((0.02, 0.1, 1e-5), (0.1, 0.01, 1e-12), (0.5, 0.5, 1e-6)):
        alone = counted(multiplier, delta, 1, sampling_prob, relation)
        assert worst_delta(alone, multiplier, sampling_prob, relation) <= delta
        law = max(law.epsilon(30, delta) for law in Pair(1 / multiplier, sampling_prob, relation).laws)
        assert counted(multiplier, delta, 30, sampling_prob, relation) >= law * (1 - 5e-4)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("multiplier", "releases", "delta", "sampling_prob", "most"),
    [
        (0.67, 251_222, 2.7e-6, 5.3e-12, 0.0),
        (0.67, 251_222, 2.7e-6, 4e-10, 0.02),
        (6342.0, 47_492, 1.1e-20, 1.5e-11, 1e-8),
    ],
)
def test_an_example_that_is_hardly_ever_drawn_costs_hardly_anything(
    multiplier: float, releases: int, delta: float, sampling_prob: float, most: float
) -> None:
    """It is drawn with a chance of 1.3e-6, 1e-4 and 7e-7 in all; 4,428, more than 3 and 0.297 were stated."""
    assert sampled_epsilon(multiplier, delta, releases, sampling_prob, "add-remove") <= most


def test_sampling_counts_with_very_little_noise() -> None:
    """It was ignored below a multiplier of 0.1: a thousand releases of a hundredth are about ten, not a thousand."""
    for multiplier in (1e-3, 1e-2, 0.09):
        found = sampled_gaussian(multiplier, 1e-5, releases=1000, sampling_prob=0.01).epsilon
        most = 30  # draws of an example, but for a chance of 1e-7
        assert gdp_epsilon(10**0.5 / multiplier, 1e-5) < found < gdp_epsilon(most**0.5 / multiplier, 1e-6)


def _rises(values: list[float]) -> bool:
    return all(math.isfinite(v) and v >= 0 for v in values) and bool(np.all(np.diff(values) >= -1e-9 * max(values)))


@pytest.mark.long
@pytest.mark.parametrize("relation", ["add-remove", "replace"])
def test_it_is_monotone_in_every_argument(relation: Any) -> None:
    def found(multiplier: float = 0.9, delta: float = 1e-6, releases: int = 100, sampling_prob: float = 0.05) -> float:
        return sampled_epsilon(multiplier, delta, releases, sampling_prob, relation)

    assert _rises(
        [found(multiplier=z) for z in (1e3, 30.0, 4.0, 1.0, 0.5, 0.31, 0.29, 0.1, 0.01, 0.0026, 0.0024, 1e-3)]
    )
    assert _rises([found(delta=d) for d in (0.3, 1e-2, 1e-5, 1e-9, 1e-15, 1e-16, 1e-30, 1e-100, 1e-300)])
    assert _rises([found(releases=n) for n in (1, 2, 3, 10, 100, 1000, 10**4)])
    assert _rises([found(sampling_prob=q) for q in (1e-6, 1e-4, 1e-2, 0.1, 0.5, 0.9, 0.999, 1 - 1e-9, 1.0)])


@pytest.mark.long
def test_extremes_are_sensible() -> None:
    """Finite, and at most what holds without sampling."""
    for multiplier in (1e-3, 0.03, 1.0, 1e3):
        for sampling_prob in (1e-6, 0.01, 0.9):
            for releases, delta in ((1, 1e-300), (1000, 1e-5), (10**6, 1e-300)):
                found = sampled_epsilon(multiplier, delta, releases, sampling_prob, "add-remove")
                assert 0 <= found <= gdp_epsilon(math.sqrt(releases) / multiplier, delta) * (1 + 1e-11)
    # losses that are all but constant, and lattice steps beyond what exp holds
    assert sampled_epsilon(0.0076, 0.02, 4276, 4e-6, "add-remove") == 0.0
    assert 8.6e8 < sampled_epsilon(0.00276, 1e-158, 93926, 0.14, "replace") < 4.3e9
    with pytest.raises(ValueError, match=r"delta=1e-301 >= 1e-300"):
        sampled_gaussian(1.0, 1e-301, sampling_prob=0.5)


@pytest.mark.long
@pytest.mark.parametrize(
    ("epsilon", "delta", "releases", "sampling_prob"),
    [
        (3.0, 1e-5, 1000, 0.01),
        (1.0, 1e-14, 1000, 0.01),
        (1.0, 1e-15, 1, 0.1),
        (0.1, 1e-30, 50, 0.3),
        (1e5, 1e-5, 1000, 0.01),
        (1e-3, 1e-6, 10, 0.5),
        (2.0, 1e-6, 100, 1.0),
        (40.0, 1e-300, 100, 0.1),
    ],
)
def test_noise_is_fed_back(epsilon: float, delta: float, releases: int, sampling_prob: float) -> None:
    """The noise found spends no more than was asked for, and a little less noise would."""
    options: dict[str, Any] = {"releases": releases, "sampling_prob": sampling_prob}
    found = noise_multiplier(epsilon, delta, **options)
    assert sampled_gaussian(found, delta, **options).epsilon <= epsilon
    assert sampled_gaussian(found * 0.997, delta, **options).epsilon > epsilon


def test_what_it_says() -> None:
    found = sampled_gaussian(1.0, 1e-6, releases=10, sampling_prob=0.1, relation="replace")
    assert found == nz.Guarantee(found.epsilon, 1e-6, unit="example", model="central", relation="replace")
