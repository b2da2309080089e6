"""Where one mechanism overtakes another."""

import math
from types import SimpleNamespace

import numpy as np
import pytest

import noisette as nz
from noisette.prediction import break_even, deviation
from noisette.prediction.curves import _search

TENTHS = np.arange(1, 11) / 10


@pytest.mark.parametrize("epsilon", [0.2, 1.0, 2.0])
def test_errors_are_equal_there_and_change_order(epsilon: float) -> None:
    wave, other = nz.SquareWave(epsilon), nz.Laplace(epsilon)
    population = break_even(wave, other, values=TENTHS)
    assert population is not None

    def errors(users: float) -> list[float]:
        one_user = [deviation(m, users=1, values=TENTHS) for m in (wave, other)]
        return [dev.bias**2 + dev.std**2 / users for dev in one_user]

    assert errors(population)[0] == pytest.approx(errors(population)[1], rel=1e-6)
    assert errors(population / 2)[0] < errors(population / 2)[1]
    assert errors(population * 2)[0] > errors(population * 2)[1]


def test_sampling_counts_users_not_reports() -> None:
    """n' = r' d / m when both report m of d; the same budgets on all dimensions cross at r'."""
    alone = break_even(nz.SquareWave(1.0), nz.Piecewise(1.0), values=[0.5])
    sampled = [nz.Sampled(inner, epsilon=2.0, dims=10, report=2) for inner in ("square-wave", "piecewise")]
    assert alone is not None
    assert break_even(*sampled, values=[0.5]) == pytest.approx(5 * alone, rel=1e-6)


def test_sampling_different_numbers_of_dimensions() -> None:
    """Mechanisms need not report alike: the error of each is noise / users + bias^2."""
    one = nz.Sampled("square-wave", epsilon=2.0, dims=10, report=5)
    other = nz.Sampled("piecewise", epsilon=2.0, dims=10, report=1)
    population = break_even(one, other, values=TENTHS)
    assert population is not None
    devs = [deviation(m, users=1000, values=TENTHS) for m in (one, other)]
    errors = [dev.bias**2 + dev.std**2 * 1000 / population for dev in devs]
    assert errors[0] == pytest.approx(errors[1], rel=1e-6)


UNBIASED = [
    n
    for n, cls in nz.CATALOGUE.items()
    if cls.kind == "mean" and nz.Interval in cls.capabilities.domains
    if n != "square-wave"
]


@pytest.mark.long
@pytest.mark.parametrize("epsilon", [0.05, 1.0, 8.0, 100.0])
def test_unbiased_mechanisms_never_cross(epsilon: float) -> None:
    """Rounding to a lattice leaves tiny biases: they are no reason to cross at absurd populations."""
    mechanisms = [nz.CATALOGUE[name].example(epsilon) for name in UNBIASED]
    for first in mechanisms:
        for second in mechanisms:
            assert break_even(first, second, values=TENTHS) is None
            assert break_even(first, second) is None


def test_unknown_distributions_cross_by_their_worst_cases() -> None:
    wave, piecewise = nz.SquareWave(1.0), nz.Piecewise(1.0)
    population = break_even(wave, piecewise)
    assert population is not None
    worst = [deviation(m, users=10**6).range[1] for m in (wave, piecewise)]
    assert worst[0] > worst[1]

    def error(mechanism: nz.core.Mechanism, users: float, values: list[float]) -> float:
        dev = deviation(mechanism, users=1, values=values)
        return float(dev.bias**2 + dev.std**2 / users)

    # both are at their worst at the ends of the domain
    assert error(wave, population, [1.0]) == pytest.approx(error(piecewise, population, [1.0]), rel=1e-6)


def test_named_distributions() -> None:
    population = break_even(nz.SquareWave(1.0), nz.Laplace(1.0), distribution="beta:5,1")
    a, b = 5.0, 1.0
    mean, spread = 2 * a / (a + b) - 1, 4 * a * b / ((a + b) ** 2 * (a + b + 1))
    two = [mean - math.sqrt(spread), mean + math.sqrt(spread)]  # errors know the values by mean and variance alone
    assert max(two) <= 1
    assert population == pytest.approx(break_even(nz.SquareWave(1.0), nz.Laplace(1.0), values=two), rel=1e-6)
    with pytest.raises(ValueError, match="on one domain"):
        break_even(nz.SquareWave(1.0, domain=nz.Interval(0, 1)), nz.Laplace(1.0), distribution="uniform")


def test_values_must_suit_both() -> None:
    with pytest.raises(ValueError, match=r"got -0\.5"):
        break_even(nz.Piecewise(1.0), nz.SquareWave(1.0, domain=nz.Interval(0, 1)), values=[-0.5])


@pytest.mark.parametrize(
    "crossings", [(2.0,), (1.0001,), (9e11,), (2.0, 5.0), (2.0, 5.0, 15.0), (3e5, 4e11), (), (0.5,), (2e12,)], ids=str
)
@pytest.mark.parametrize("leads", [True, False])
def test_the_last_crossing_of_two_curves_is_found_between_any_two_populations(
    crossings: tuple[float, ...], leads: bool
) -> None:
    """Looked at are 25 populations from 1 to 10^12, about 3.2 times as large as the one before."""

    def first(users: float) -> float:
        return float((sum(users > one for one in crossings) % 2 == 0) != leads)

    found = _search(SimpleNamespace(at=first), SimpleNamespace(at=lambda _: 0.5))  # type: ignore[arg-type]
    inside = [one for one in crossings if 1 < one < 1e12]
    assert found == (pytest.approx(inside[-1], rel=1e-7) if inside else None)
