"""The pieces of the accountants, each against sums written out, rationals or fifty digits; quick and tight."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np
import pytest

import noisette as nz
from noisette.accounting import _numbers, _runs, _sums, composition, curves, likelihoods, sampling, shuffling
from noisette.accounting._runs import PairLosses, _along, _last, _peak, _polynomials
from noisette.accounting._sums import LossSum, _convolved, _on_lattice, _Term, _tilt, cumulants, expected_excess, saddle
from noisette.accounting.curves import Curve, _delta, _interpolate, _reach
from noisette.accounting.events import gdp
from noisette.accounting.sampling import Losses, Pair, _log_mixture, _log_sum, counted
from noisette.accounting.shuffling import Blanket, blankets, shuffled, shuffled_closed_form, shuffled_delta
from noisette.guarantees import Guarantee, gaussian_delta

mpmath.mp.dps = 40


# Searches: they end on the safe side, and soon.


def watched(holds: Callable[[float], Any]) -> tuple[Callable[[float], Any], list[float]]:
    """Return a function that notes where it was asked."""
    asked: list[float] = []

    def noting(at: float) -> Any:
        asked.append(at)
        return holds(at)

    return noting, asked


@pytest.mark.parametrize("root", [0.3, 1.0, 7.3])
@pytest.mark.parametrize("off", [0.96, 0.999, 1.0, 1.001, 1.04, 3.0, 0.2])
def test_a_good_guess_saves_evaluations(root: float, off: float) -> None:
    holds, asked = watched(lambda x: x >= root)
    found = _numbers.least_above(holds, 0.0, 100.0, tolerance=1e-3, guess=off * root)
    assert root <= found <= root * (1 + 1e-3) + 1e-12
    assert found in asked
    # a step of 5 % each way and then halves of it: log2(50) bisections; a bad guess squares its factor
    assert len(asked) <= (9 if abs(off - 1) < 0.05 else 19)


def test_without_a_guess_an_interval_is_halved() -> None:
    holds, asked = watched(lambda x: x >= 3.0)
    found = _numbers.least_above(holds, 0.0, 8.0, tolerance=1e-6)
    assert 3.0 <= found <= 3.0 * (1 + 1e-6)
    assert asked[:3] == [0.0, 4.0, 2.0]
    assert len(asked) <= 2 + math.log2(8 / 3e-6)
    assert _numbers.least_above(lambda x: x >= -1, 0.0, 8.0) == 0.0
    assert _numbers.least_above(lambda x: x >= 0.5, 0.0, 8.0, guess=9.0) == pytest.approx(0.5, rel=1e-8)


@pytest.mark.parametrize("root", [1e-6, 0.3, 5.0])
def test_the_largest_that_holds_is_found_from_below(root: float) -> None:
    holds, asked = watched(lambda x: x <= root)
    found = _numbers.largest_below(holds, 1e-9, 10.0, tolerance=1e-9)
    assert root * (1 - 1e-9) - 1e-300 <= found <= root
    assert len(asked) <= 45
    assert _numbers.largest_below(lambda x: True, 1e-9, 10.0) == 10.0


@pytest.mark.parametrize("power", [1.0, 2.0, 6.0])
@pytest.mark.parametrize("guess", [0.2, 1.0, 1.9, 2.1, 30.0])
def test_secants_meet_a_power_in_a_few_steps(power: float, guess: float) -> None:
    """x^-power = 2^-power at 2: a secant of logarithms is exact, so the third evaluation is within the tolerance."""
    function, asked = watched(lambda x: x**-power)
    found = _numbers.least_meeting(function, 2.0**-power, 1e3, guess=guess, tolerance=1e-3)
    assert 2 * (1 - 1e-12) <= found <= 2 * (1 + 2e-3)
    assert len(asked) <= 4


def test_secants_go_round_infinities() -> None:
    function, asked = watched(lambda x: math.inf if x < 1 else 0.0 if x > 4 else 4 / x - 1)
    found = _numbers.least_meeting(function, 1.0, 64.0, guess=0.5, tolerance=1e-4)
    assert 2 <= found <= 2 * (1 + 3e-4)
    assert len(asked) <= 16


# Binomial laws.


@pytest.mark.parametrize(("trials", "p"), [(1, 0.3), (20, 0.5), (31, 0.01), (32, 0.9), (33, 0.2), (100, 0.37)])
def test_binomial_logarithms_are_those_of_fifty_digits(trials: int, p: float) -> None:
    k = np.arange(trials + 1)
    true = [float(mpmath.log(mpmath.binomial(trials, int(i)) * mpmath.mpf(p) ** int(i) * (1 - mpmath.mpf(p)) ** int(trials - i))) for i in k]  # noqa: E501  # fmt: skip
    found = _numbers.log_binomial(k, trials, p, 1 - p)
    assert np.max(np.abs(found - true)) < 3e-14 * (1 + np.max(np.abs(true)))


def test_windows_are_as_wide_as_bernstein_asks() -> None:
    assert _numbers.binomial_window(10_000, 0.5, deviations=3.0) == (math.floor(5000 - 159), math.ceil(5000 + 159))
    assert _numbers.binomial_window(100, 0.5) == (0, 100)
    assert _numbers.binomial_window(10**6, 0.25, deviations=2.0) == (249129, 250871)


# The positive part of a random sum.


def excess(values: list[float], weights: list[float], share: float, users: int) -> float:
    """E(L_1 + ... + L_M)_+ by adding up every outcome of every user."""
    total = mpmath.mpf(0)
    outcomes = [(0.0, 1 - share), *((value, share * weight) for value, weight in zip(values, weights, strict=True))]
    for drawn in itertools.combinations_with_replacement(range(len(outcomes)), users):
        counts = [drawn.count(one) for one in range(len(outcomes))]
        ways = math.factorial(users) // math.prod(math.factorial(count) for count in counts)
        chance = mpmath.mpf(ways)
        for (_, mass), count in zip(outcomes, counts, strict=True):
            chance *= mpmath.mpf(mass) ** count
        total += chance * max(sum(outcomes[one][0] for one in drawn), 0.0)
    return float(total)


LAWS = [
    ([1.0, -0.5], [0.4, 0.6], 0.5),
    ([0.7, -1.3, 0.1], [0.3, 0.5, 0.2], 0.9),
    ([2.0, -3.0], [0.2, 0.8], 0.05),
    ([1.0, -0.1, -2.0], [0.5, 0.25, 0.25], 0.4),
]


@pytest.mark.parametrize("users", [1, 2, 5, 12])
@pytest.mark.parametrize(("values", "weights", "share"), LAWS)
def test_a_random_sum_is_bounded_from_above_and_closely(
    values: list[float], weights: list[float], share: float, users: int
) -> None:
    found = expected_excess(np.asarray(values), np.asarray(weights), share, users)
    true = excess(values, weights, share, users)
    assert true * (1 - 1e-12) <= found <= true * (1 + 2e-4)


def test_a_sum_that_is_never_positive_has_no_positive_part() -> None:
    assert expected_excess(np.asarray([-1.0, 0.0]), np.asarray([0.5, 0.5]), 0.5, 10) == 0.0


@pytest.mark.parametrize(("values", "weights", "share"), LAWS)
@pytest.mark.parametrize("step", [0.05, 0.3])
def test_a_term_on_a_lattice_keeps_mass_and_mean(
    values: list[float], weights: list[float], share: float, step: float
) -> None:
    first, law = _on_lattice(np.asarray(values) / step, np.asarray(weights), share)
    k = np.arange(first, first + law.size)
    assert law.sum() == pytest.approx(1, rel=1e-14)
    assert step * law @ k == pytest.approx(share * np.dot(values, weights), rel=1e-12)
    assert k[0] == min(0, math.floor(min(values) / step))
    assert {-1, 0, 1} >= {int(math.copysign(1, k[-1] - max(values) / step))}
    term = _Term.build(np.asarray(values), np.asarray(weights), share, step)
    assert term.tilted.sum() == pytest.approx(1, rel=1e-12)
    mean = float(law @ k)
    assert term.tilt == 0 if mean >= 0 else abs(float(term.tilted @ k)) < 1e-9
    assert math.exp(term.log_mean) == pytest.approx(float(law @ np.exp(term.tilt * k)), rel=1e-12)
    assert term.still == pytest.approx((1 - share) / float(law @ np.exp(term.tilt * k)), rel=1e-12)
    with np.errstate(divide="ignore"):
        assert _tilt(k.astype(float), np.log(law)) == term.tilt


@pytest.mark.parametrize("positions", [[1.2, 3.7], [2.0, 2.5], [0.5, 4.0], [-2.5, -1.5]])
def test_a_lattice_holds_zero_for_those_outside_the_blanket(positions: list[float]) -> None:
    """Losses that all lie on one side of zero: whoever is outside the blanket adds zero all the same."""
    first, law = _on_lattice(np.asarray(positions), np.asarray([0.25, 0.75]), 0.6)
    wanted = {0: 0.4}
    for position, weight in zip(positions, (0.25, 0.75), strict=True):
        below = math.floor(position)
        for place, part in ((below, 1 - (position - below)), (below + 1, position - below)):
            wanted[place] = wanted.get(place, 0.0) + 0.6 * weight * part
    found = {first + place: float(mass) for place, mass in enumerate(law) if mass}
    assert found == pytest.approx({place: mass for place, mass in wanted.items() if mass})


@pytest.mark.parametrize(
    ("epsilon", "times", "total"), [(0.01, 10**6, 300.0), (0.01, 10**6, 55.0), (0.1, 10**4, 130.0), (1.0, 30, 29.5)]
)
def test_far_out_the_delta_of_responses_is_not_lost(epsilon: float, times: int, total: float) -> None:
    """Term by term from the first one that counts, with forty digits: a tail of 1e-137 is not zero."""
    e, small = mpmath.mpf(epsilon), mpmath.exp(-mpmath.mpf(epsilon))
    first = math.floor((times + total / epsilon) / 2) + 1
    term = mpmath.binomial(times, first) * (1 / (1 + small)) ** first * (small / (1 + small)) ** (times - first)
    wanted = mpmath.mpf(0)
    for j in range(first, min(times, first + 6000) + 1):
        wanted += term * (1 - mpmath.exp(mpmath.mpf(total) - (2 * j - times) * e))
        term *= mpmath.mpf(times - j) / (j + 1) / small
    found = composition.randomized_response_delta(epsilon, times, total)
    assert wanted > 0
    assert found == pytest.approx(float(wanted), rel=1e-7)


@pytest.mark.parametrize("epsilon", [1e-4, 0.01, 2.0])
def test_a_tail_ends_where_its_chance_is_negligible_however_wide_the_noise(epsilon: float) -> None:
    made = nz.DiscreteLaplace(epsilon=epsilon, domain=nz.Grid(0, 4))
    inputs = np.asarray([0.0, 4.0])
    support: Any = made.support
    first, last = likelihoods._ends(made, support, np.asarray([0.0, 4.0]), inputs)
    scale = 4 / epsilon  # steps in which the chance falls by e
    assert first < -likelihoods._NEGLIGIBLE * scale
    assert last > 4 + likelihoods._NEGLIGIBLE * scale
    assert max(-first, last) < 2 * likelihoods._NEGLIGIBLE * scale + 8 + 2 * scale


@pytest.mark.parametrize("users", [3, 40])
@pytest.mark.parametrize("share", [0.02, 0.9])
def test_a_transform_adds_up_as_convolutions_do(users: int, share: float) -> None:
    """Few terms that are not zero, and many: both branches."""
    term = _Term.build(np.asarray([0.5, -0.75]), np.asarray([0.45, 0.55]), share, 0.25)
    law = np.ones(1)
    for _ in range(users):
        law = np.convolve(law, term.tilted)
    zero = -term.first * users
    half = term.reach(users)
    wanted = np.zeros(half)
    right = law[zero + 1 : zero + 1 + half]
    wanted[: right.size] = right
    assert np.max(np.abs(_convolved(term, users, half) - wanted)) < 1e-14
    assert law[zero + 1 + half :].sum() + law[: max(zero - half, 0)].sum() < 2 * math.exp(-40)


def test_users_outside_the_blanket_are_split_off_where_they_are_most(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a chance of 1e-9 for any term the sum is one term: a transform alone would lose it in its rounding."""
    values, weights = np.asarray([1.0, -1.0]), np.asarray([0.5, 0.5])
    found = expected_excess(values, weights, 1e-9, 3)
    assert found == pytest.approx(3 * 1e-9 * 0.5, rel=1e-6)
    assert _sums._FEW_TERMS >= 1


@pytest.mark.parametrize("share", [1e-15, 1e-18, 1e-30, 1e-100, 1e-300])
def test_a_blanket_that_hardly_anybody_shares_is_not_lost(share: float) -> None:
    """The sum is one term, or none: what a transform finds of it is rounding."""
    for users in (1, 3, 1000):
        found = expected_excess(np.asarray([-1.0, 0.5, 2.0]), np.asarray([0.6, 0.3, 0.1]), share, users)
        true = users * share * (0.3 * 0.5 + 0.1 * 2.0)
        assert true <= found <= true * (4 if share > 1e-17 else 1 + 1e-6)


# Runs of reports.


def test_polynomials_go_through_their_nodes() -> None:
    """At places 0, span, 2 span of a + b s + c s^2, for two inputs and two runs."""
    span = np.asarray([3.0, 0.5])
    a, b, c = np.asarray([[1.0, 2.0], [3.0, -1.0]]), np.asarray([[0.5, -2.0], [1.5, 0.25]]), np.full((2, 2), -0.125)
    nodes = np.stack([a + b * s * span + c * (s * span) ** 2 for s in range(3)], axis=1)
    found = _polynomials(nodes, span)
    assert np.allclose(found, np.stack([a, b, c], axis=1), rtol=1e-13)
    lines = np.stack([a, a + b * span], axis=1)
    assert np.allclose(_polynomials(lines, span), np.stack([a, b, 0 * c], axis=1), rtol=1e-13)
    assert np.allclose(_polynomials(a[:, None], span), np.stack([a, 0 * b, 0 * c], axis=1))


@pytest.mark.parametrize("tilt", [0.0, 0.5])
def test_a_run_is_summed_place_by_place(tilt: float) -> None:
    lines = np.asarray([[-1.0, -0.3, 0.0], [-1.2, -0.25, 0.0]])
    first, second, low, high = _along(lines, 12.0, tilt, 0.1)
    s = np.arange(12)
    for found, line in ((first, lines[0]), (second, lines[1])):
        assert np.allclose(found, (1 + tilt * s) * np.exp(line[0] + line[1] * s + 0.1), rtol=1e-13)
    assert np.allclose(low, 0.2 - 0.05 * s)
    assert np.array_equal(low, high)


@pytest.mark.parametrize(("bend", "tilt", "close"), [(0.0, 0.0, 1e-12), (-1e-9, 0.0, 2e-10), (-1e-9, 1e-5, 1e-9)])
def test_a_long_run_is_integrated_as_it_would_be_summed(
    monkeypatch: pytest.MonkeyPatch, bend: float, tilt: float, close: float
) -> None:
    lines = np.asarray([[-12.0, -2e-4, bend], [-12.1, -1.8e-4, bend]])
    monkeypatch.setattr(_runs, "_LISTED", 1 << 17)
    whole = _along(lines, 1e5, tilt, 0.0)
    monkeypatch.setattr(_runs, "_LISTED", 1 << 10)
    parts = _along(lines, 1e5, tilt, 0.0)
    assert whole[0].size == 10**5
    assert parts[0].size == _runs._PIECES
    for found, true in zip(parts[:2], whole[:2], strict=True):
        assert found.sum() == pytest.approx(true.sum(), rel=close, abs=0)
    assert parts[2].min() == pytest.approx(whole[2].min(), abs=1e-12)
    assert parts[3].max() == pytest.approx(whole[3].max(), abs=1e-12)
    assert np.all(parts[2] <= parts[3])


def test_an_endless_run_ends_where_it_is_negligible() -> None:
    falling = np.asarray([[0.0, -1.0, 0.0], [0.0, -0.5, 0.0]])
    assert _last(falling, 7.0) == 6.0
    assert _last(falling, math.inf) == 128.0  # exp(-0.5 s) has fallen by exp(-60) beyond 120: the next power of two
    hump = np.asarray([[0.0, 2.0, -0.01], [0.0, 2.0, -0.01]])  # it peaks at 100, at a height of 100
    assert _peak(hump[0], 1000.0) == pytest.approx(100.0)
    assert _peak(hump[0], 50.0) == pytest.approx(75.0)
    assert _last(hump, math.inf) == 256.0  # 100 + sqrt(6000) = 178
    assert _last(np.asarray([[0.0, 0.0, 0.0]] * 2), math.inf) == 2.0**52


def test_atoms_keep_both_chances() -> None:
    """A part on which the loss varies becomes two atoms, of the same mass under either input."""
    low, high = np.asarray([-1.0, 0.2, 0.5]), np.asarray([-0.5, 0.2, 0.9])
    second = np.asarray([0.5, 0.3, 0.2])
    first = second * np.exp((low + high) / 2)
    pair = PairLosses(first, second, low, high)
    losses, chances = pair.atoms()
    assert chances.sum() == pytest.approx(second.sum(), rel=1e-14)
    assert chances @ np.exp(losses) == pytest.approx(first.sum(), rel=1e-12)
    assert sorted(losses) == sorted([-1.0, -0.5, 0.2, 0.5, 0.9])
    swapped = pair.swapped()
    assert np.array_equal(swapped.first, second)
    assert np.array_equal(swapped.low, -high)
    assert np.array_equal(swapped.high, -low)
    kept, missing = pair.below(0.5)
    assert kept.high.tolist() == [-0.5, 0.2]
    assert missing == pytest.approx(first[2])
    assert pair.below(0.9)[1] == 0


# Curves.


def test_the_delta_of_atoms_is_the_sum_over_losses_above() -> None:
    losses, chances = np.asarray([0.5, -0.5, 0.0, 1.5]), np.asarray([0.2, 0.3, 0.4, 0.1])
    epsilons = np.asarray([0.0, 0.25, 0.5, 1.0, 1.5, 2.0])
    true = [(chances * np.maximum(np.exp(losses) - math.exp(e), 0)).sum() for e in epsilons]
    assert np.allclose(_delta((losses, chances), epsilons), true, rtol=1e-13, atol=1e-16)


def test_the_reach_of_atoms_is_where_delta_vanishes() -> None:
    losses, chances = np.asarray([0.0, 1.0, 40.0]), np.asarray([0.5, 0.2, 1e-40])
    found = _reach([(losses, chances)])
    assert float(_delta((losses, chances), np.asarray([found]))[0]) < 1e-18
    assert found < 1.02 * 2.2
    assert float(_delta((losses, chances), np.asarray([found * 0.97]))[0]) > 0


def test_dots_are_joined_by_lines_in_the_exponential() -> None:
    dots, deltas = np.asarray([0.0, 1.0, 2.0]), np.asarray([0.5, 0.2, 0.1])
    for at in (0.0, 0.3, 1.0, 1.7, 2.0):
        place = min(int(at), 1)
        share = (math.exp(at) - math.exp(place)) / (math.exp(place + 1) - math.exp(place))
        true = deltas[place] + share * (deltas[place + 1] - deltas[place])
        assert float(_interpolate(np.asarray(at), dots, deltas)) == pytest.approx(true, rel=1e-13)
    assert float(_interpolate(np.asarray(5.0), dots, deltas)) == 0.1


def test_the_law_of_a_curve_has_its_deltas() -> None:
    """Losses and their chances by Algorithm 1: sums of (1 - exp(e - loss))_+ give back every dot."""
    curve = Curve(0.5, np.asarray([float(gaussian_delta(1.0, 0.5 * dot)) for dot in range(4)]))
    values, masses, infinite = curve.losses
    assert infinite == curve.deltas[-1]
    assert masses.sum() + infinite == pytest.approx(1, rel=1e-13)
    assert np.all(masses >= 0)
    for epsilon, delta in zip(curve.epsilons, curve.deltas, strict=True):
        found = float((masses * np.maximum(-np.expm1(epsilon - values), 0)).sum()) + infinite
        assert found == pytest.approx(delta, rel=1e-12)
    back = curve.distribution()
    assert float(back.get_delta_for_epsilon(0.5)) == pytest.approx(curve.deltas[1], rel=1e-9)


def test_the_hull_leaves_no_dot_above_it_and_none_out() -> None:
    dots = np.asarray([0.5, 0.45, 0.1, 0.09, 0.0])
    found = Curve.through(0.3, dots).deltas
    x = np.exp(0.3 * np.arange(5))
    assert np.all(found <= dots + 1e-15)
    assert np.all(np.diff(np.diff(found) / np.diff(x)) >= -1e-15)
    best = [max(0.0, max(min((dots[i] * (x[j] - x[k]) + dots[j] * (x[k] - x[i])) / (x[j] - x[i]) for i in range(k + 1) for j in range(k, 5) if i < j), 0.0)) if k not in (0, 4) else dots[k] for k in range(5)]  # noqa: E501  # fmt: skip
    assert np.allclose(found, best, rtol=1e-12, atol=1e-15)


def test_two_gaussian_parts_have_lattices_fine_for_both() -> None:
    """A two-hundredth of the spread of a loss, unless so many points would be too many."""
    parts: list[Any] = [nz.Gaussian(epsilon=1.0, delta=1e-6), nz.Gaussian(epsilon=0.1, delta=1e-6)]
    mus = [gdp(part) for part in parts]
    spread = math.sqrt(sum(mu**2 for mu in mus if mu) / 2)
    found = composition._common_interval(parts, [None, None], 1)
    assert found == pytest.approx(min(spread / 200, 10 * max(mus) / 100), rel=1e-12)  # type: ignore[type-var, operator]
    many = composition._common_interval(parts, [None, None], 10**8)
    assert many == pytest.approx(30 * 1e4 * 10 * max(mus) * 2 / 2**22, rel=1e-12)  # type: ignore[type-var, operator]


@pytest.mark.parametrize("times", [1, 999, 1000, 1001, 2500])
def test_a_loss_is_added_up_as_often_as_it_should(times: int) -> None:
    """Of randomised response, whose sum is known."""
    found = composition.summed_epsilon([Curve.randomized_response(1e-3)], times, 1e-5)
    true = composition.randomized_response_epsilon(1e-3, times, 1e-5)
    assert true <= found <= true * (1 + 1e-6)


# Sampled Gaussian noise.


X = np.linspace(-14, 18, 400_001)


def hockey(density: Any, other: Any, epsilon: float) -> float:
    """The integral of (p - exp(epsilon) q)_+ by the trapezoidal rule, whose one kink costs less than 1e-9."""
    return float(np.maximum(density - math.exp(epsilon) * other, 0).sum() * (X[1] - X[0]))


def normal(centre: float = 0.0) -> Any:
    return np.exp(-((X - centre) ** 2) / 2) / math.sqrt(2 * math.pi)


@pytest.mark.parametrize(("shift", "q"), [(1.0, 0.3), (2.5, 0.05), (0.4, 0.8)])
@pytest.mark.parametrize("epsilon", [0.0, 0.1, 0.7])
def test_the_delta_of_one_sampled_release_by_quadrature(shift: float, q: float, epsilon: float) -> None:
    up, down = ((1 - q) * normal() + q * normal(side * shift) for side in (1, -1))
    either = max(hockey(up, normal(), epsilon), hockey(normal(), up, epsilon))
    assert Pair(shift, q, "add-remove").delta(epsilon) == pytest.approx(either, rel=1e-6, abs=1e-10)
    assert Pair(shift, q, "replace").delta(epsilon) == pytest.approx(hockey(up, down, epsilon), rel=1e-6, abs=1e-10)


@pytest.mark.parametrize("relation", ["add-remove", "replace"])
@pytest.mark.parametrize("step", [0.01, 0.3])
def test_pieces_on_a_lattice_keep_both_masses(relation: Any, step: float) -> None:
    """The masses under the first law add up to one, and so do those under the second, exp(-loss) times as large."""
    pieces = Pair(1.0, 0.25, relation)._pieces
    assert float(np.exp(pieces.log_mass).sum()) == pytest.approx(1, rel=1e-11)
    points, logs = pieces.on_lattice(step)
    first, second = np.exp(logs), np.exp(logs - points * step)
    assert first.sum() == pytest.approx(1, rel=1e-11)
    # what is rounded moves toward the point above, where the second law has less: never more than 1
    assert 1 - 1e-7 < second.sum() <= 1 + 1e-11
    assert np.all(pieces.low <= pieces.middle + 1e-12)
    assert np.all(pieces.middle <= pieces.high + 1e-12)
    assert pieces.error == 8 * 2.0**-52 * 81**2


def test_the_loss_of_a_mixture_is_its_density_ratio() -> None:
    turn = (30 + 1.3**2 / 2) / 1.3  # where one formula follows another
    places = np.asarray([-40.0, -3.0, 0.0, 0.5, 3.0, turn - 1e-9, turn + 1e-9, turn + 0.1, 29.0, 35.0, 41.0])
    for share in (1e-6, 0.3, 0.999):
        for x, found in zip(places, _log_mixture(places, 1.3, share), strict=True):
            true = mpmath.log(
                1 - mpmath.mpf(share) + share * mpmath.exp(1.3 * mpmath.mpf(x) - mpmath.mpf(1.3) ** 2 / 2)
            )
            assert found == pytest.approx(float(true), rel=1e-13 if x < 3 else 2e-15, abs=1e-16)


def test_sums_of_exponentials() -> None:
    rows = np.asarray([[0.0, 1.0, -700.0], [-2000.0, -2001.0, -2000.0], [-np.inf, -np.inf, -np.inf]])
    found = _log_sum(rows)
    assert found[0] == pytest.approx(math.log(1 + math.e), rel=1e-14)
    assert found[1] == pytest.approx(-2000 + math.log(2 + math.exp(-1)), rel=1e-14)
    assert found[2] == -np.inf
    losses, logs = np.asarray([-1.0, 0.5, 2.0]), np.log([0.2, 0.5, 0.3])
    weights = np.exp(logs + 0.7 * losses)
    top, mean, variance = cumulants(losses, logs, 0.7)
    assert top == pytest.approx(math.log(weights.sum()), rel=1e-13)
    assert mean == pytest.approx(weights @ losses / weights.sum(), rel=1e-13)
    assert variance == pytest.approx(weights @ losses**2 / weights.sum() - mean**2, rel=1e-12)
    for epsilon in (1.0, 31.0, 800.0):
        true = mpmath.log((mpmath.exp(epsilon) - 1 + mpmath.mpf(0.2)) / mpmath.mpf(0.2))
        assert sampling._log_above(epsilon, 0.2) == pytest.approx(float(true), rel=1e-14)


@pytest.mark.parametrize("releases", [1, 3])
@pytest.mark.parametrize("way", [1, -1])
def test_a_tilted_lattice_agrees_with_plain_convolution(releases: int, way: int) -> None:
    """The least epsilon of a law on a lattice, by convolving it and adding up (1 - exp(e - loss))_+."""
    points, step = np.asarray([-2, 0, 1, 3]) * way, 0.25
    law = np.asarray([0.2, 0.4, 0.3, 0.1])
    dense = np.zeros(11)
    dense[points + 5] = law
    total = np.ones(1)
    for _ in range(releases):
        total = np.convolve(total, dense)
    losses = (np.arange(total.size) - 5 * releases) * step
    for delta in (1e-3, 0.05):
        low, high = 0.0, 10.0
        while high - low > 1e-13:
            middle = (low + high) / 2
            spent = float((total * np.maximum(-np.expm1(middle - losses), 0)).sum())
            low, high = (low, middle) if spent <= delta else (middle, high)
        found = LossSum.repeated(points, np.log(law), step, 2.0, releases, 0.0).epsilon(math.log(delta))
        assert high * (1 - 1e-9) <= found <= high * (1 + 1e-6)
        assert LossSum.repeated(points, np.log(law), step, 2.0, releases, 0.0).bound(math.log(delta)) >= high


def test_chernoffs_bound_is_that_of_the_paper() -> None:
    """Canonne, Kamath, Steinke 2020, Proposition 12, with a = 1 + t: (n K(t) + ln(1/delta) + ...) / t."""
    losses, law, t, n, delta = np.asarray([-0.5, 0.25, 0.75]), np.asarray([0.3, 0.5, 0.2]), 1.7, 9, 1e-5
    lattice = LossSum.repeated(np.asarray([-2, 1, 3]), np.log(law), 0.25, t, n, 0.0)
    moment = n * math.log(float(law @ np.exp(t * losses)))
    alpha = t + 1
    true = moment / t + math.log(1 / delta) / t + math.log(1 - 1 / alpha) - math.log(alpha) / (alpha - 1)
    assert lattice.bound(math.log(delta)) == pytest.approx(true, rel=1e-8)
    assert lattice.bound(math.log(delta)) >= true


def test_the_tilt_puts_the_sum_where_its_epsilon_is() -> None:
    pieces = Pair(0.5, 0.2, "add-remove")._pieces
    for delta in (1e-5, 1e-12):
        tilt, spread = saddle([(pieces.middle, pieces.log_mass, 100)], math.log(delta))
        _, mean, variance = cumulants(pieces.middle, pieces.log_mass, tilt)
        assert spread == pytest.approx(math.sqrt(variance), rel=1e-9)
        sought = Losses(pieces, 1).epsilon(100, delta)
        assert abs(100 * mean - sought) < 3 * math.sqrt(100 * variance)


@pytest.mark.parametrize(("releases", "q"), [(20, 0.1), (7, 0.5)])
@pytest.mark.parametrize("relation", ["add-remove", "replace"])
def test_counting_draws_is_the_binomial_mean_from_above(releases: int, q: float, relation: Any) -> None:
    delta, multiplier = 1e-4, 0.2
    reach = (1 if relation == "add-remove" else 2) / multiplier
    found = counted(multiplier, delta, releases, q, relation)

    def spent(epsilon: float) -> float:
        counts = range(1, releases + 1)
        chances = [math.comb(releases, k) * q**k * (1 - q) ** (releases - k) for k in counts]
        return sum(
            c * float(gaussian_delta(reach * math.sqrt(k), epsilon)) for c, k in zip(chances, counts, strict=True)
        )

    assert spent(found) <= delta
    assert spent(found * (1 - 1e-7)) > delta
    assert counted(multiplier, 0.99, releases, 1e-3, relation) == 0.0


# Shuffling.


def test_the_closed_form_is_the_theorems() -> None:
    """Feldman, McMillan, Talwar 2021, Theorem 3.1, written out."""
    epsilon, users, delta = 0.7, 5000, 1e-6
    grown = math.exp(epsilon)
    inner = 8 * math.sqrt(grown * math.log(4 / delta) / users) + 8 * grown / users
    true = math.log(1 + (grown - 1) / (grown + 1) * inner)
    assert shuffled_closed_form(epsilon, users, delta) == pytest.approx(true, rel=1e-13)
    last = math.log(users / (16 * math.log(2 / delta)))  # beyond, the theorem says nothing
    assert shuffled_closed_form(last * (1 + 1e-9), users, delta) == last * (1 + 1e-9)
    assert shuffled_closed_form(last * (1 - 1e-9), users, delta) < last
    assert shuffled_closed_form(8.0, 10**9, 1e-9) < 8.0
    one = Guarantee(shuffled_closed_form(epsilon, users, delta / 6), delta / 6)
    many = composition.compose(one, 3, delta=delta).epsilon
    assert shuffled(Guarantee(epsilon), users, delta, times=3, method="closed-form").epsilon == pytest.approx(many)


@pytest.mark.parametrize("epsilon0", [0.4, 1.5])
@pytest.mark.parametrize("users", [1, 2, 7])
def test_the_clones_delta_is_the_sum_over_all_counts(epsilon0: float, users: int) -> None:
    """E(L_1 + ... + L_M)_+ / (share users): every number of clones, every number of ones among them."""
    share, small = math.exp(-epsilon0), math.exp(-epsilon0)
    ratio = (2 / (1 + small), 2 * small / (1 + small))
    for epsilon in (0.0, 0.1, 0.3):
        values = [ratio[0] - math.exp(epsilon) * ratio[1], ratio[1] - math.exp(epsilon) * ratio[0]]
        true = excess(values, [0.5, 0.5], share, users) / (share * users)
        found = float(Blanket.clones(epsilon0).delta(users, epsilon)[0])
        assert true * (1 - 1e-9) <= found <= min(1.0, true * (1 + 1e-8) + 1e-20)
    blanket = Blanket.clones(epsilon0)
    assert blanket.is_binary
    gap = ratio[0] - ratio[1]
    assert blanket.mu(users) == pytest.approx(gap / math.sqrt(share * users), rel=1e-13)


@pytest.mark.parametrize("users", [2, 6])
def test_a_blanket_with_parts_that_vary_takes_their_extremes(users: int) -> None:
    """A part on which L runs from low to high becomes both ends, with the mean kept."""
    weights = np.asarray([0.3, 0.5, 0.2])
    first = np.asarray([[1.2, 1.3, 1.5], [0.9, 0.9, 0.9], [0.7, 0.8, 0.9]])
    second = np.asarray([[0.6, 0.7, 0.8], [1.0, 1.0, 1.0], [1.2, 1.45, 1.5]])
    blanket = Blanket(0.6, weights, first, second)
    assert not blanket.is_binary
    for epsilon in (0.0, 0.2):
        grow = math.exp(epsilon)
        values, chances = list[float](), list[float]()
        for weight, own, other in zip(weights, first, second, strict=True):
            low, mean, high = own[0] - grow * other[2], own[1] - grow * other[1], own[2] - grow * other[0]
            upper = (mean - low) / (high - low) if high > low else 1.0
            values += [low, high]
            chances += [weight * (1 - upper), weight * upper]
        true = excess(values, chances, 0.6, users) / (0.6 * users)
        found = float(blanket.delta(users, epsilon)[0])
        assert true * (1 - 1e-9) <= found <= true * (1 + 3e-4)


@pytest.mark.parametrize("name", ["laplace", "piecewise", "square-wave"])
def test_stretches_say_what_a_list_of_all_reports_says(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same lattice, report by report and integrated along stretches: one blanket, one delta."""
    mechanism: Any = nz.CATALOGUE[name](epsilon=1.0, domain=nz.Interval(0, 1))
    integrated = likelihoods.likelihoods(mechanism)
    assert integrated is not None
    assert np.allclose(integrated.mass.sum(axis=0), 1, rtol=1e-9)
    share = float(integrated.floor_mass.sum())
    finer: Any = nz.CATALOGUE[name](epsilon=1.0, domain=nz.Interval(0, 1))
    monkeypatch.setattr(likelihoods, "_CELLS", 4096)
    again = likelihoods.likelihoods(finer)
    assert again is not None
    assert float(again.floor_mass.sum()) == pytest.approx(share, rel=1e-4)
    truth = {"laplace": math.exp(-0.5), "piecewise": None, "square-wave": None}[name]
    if truth is not None:  # min over x of exp(-|y - x|) / 2 at the far end: exp(-1/2 - |y - 1/2|), of mass exp(-1/2)
        assert share == pytest.approx(truth, rel=1e-4)


def test_the_least_delta_of_shuffled_reports() -> None:
    one = nz.Duchi(epsilon=1.0)
    found = shuffled_delta(one, 50, 0.3)
    groups = [[Blanket.clones(1.0)], blankets(one)]
    assert found == min(max(float(b.delta(50, 0.3)[0]) for b in group) for group in groups)
    assert shuffled_delta(one, 1, 0.3) == float(Curve.randomized_response(1.0).delta(0.3))
    assert shuffled_delta(one, 50, 1.0) == 0.0
    assert shuffled_delta(one.guarantee, 50, 0.3) == float(Blanket.clones(1.0).delta(50, 0.3)[0])
    with pytest.raises(TypeError, match="Expected a mechanism or a Guarantee, got int"):
        shuffled_delta(3, 50, 0.3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"epsilon=-0\.1 >= 0"):
        shuffled_delta(one, 50, -0.1)


def test_blankets_are_alike_only_where_all_their_parts_are() -> None:
    one = Blanket.clones(1.0)
    other = Blanket(one.share, one.weights[::-1], one.first[::-1], one.second[::-1])
    assert shuffling._alike(one, other)
    moved = one.first.copy()
    moved[1, 2] *= 1 + 1e-5
    assert not shuffling._alike(one, Blanket(one.share, one.weights, moved, one.second))
    assert not shuffling._alike(one, Blanket(one.share, np.ones(1), one.first[:1], one.second[:1]))


def test_a_curve_needs_two_dots() -> None:
    with pytest.raises(ValueError, match="dots"):
        curves.privacy_curve(nz.Laplace(1.0), dots=1)


@pytest.mark.parametrize("name", ["oue", "sue", "subset-selection"])
def test_the_blanket_of_reports_that_are_sets(name: str) -> None:
    """All reports about two of four categories are listed: 1 / E of the larger likelihood of each is the blanket's."""
    mechanism: Any = nz.build(name, nz.Categorical(4), epsilon=1.3)
    if name == "subset-selection":
        reports = np.asarray(list(itertools.combinations(range(4), mechanism.report_shape[0])))
    else:
        reports = np.asarray(list(itertools.product((0, 1), repeat=4)))
    first, second = (np.exp(mechanism.log_prob(reports, category)) for category in (0, 1))
    assert first.sum() == pytest.approx(1)
    floor = np.maximum(first, second) / math.exp(1.3)
    (found,) = blankets(mechanism)
    assert found.share == pytest.approx(floor.sum(), rel=1e-9)
    for side, law in ((found.first, first), (found.second, second)):
        assert (side[:, 0] == side[:, 2]).all()
        assert (found.weights * side[:, 1]).sum() == pytest.approx(1, rel=1e-9)
        for power in (2, 3):
            expected = ((law / floor * floor.sum()) ** power * floor).sum() / floor.sum()
            assert (found.weights * side[:, 1] ** power).sum() == pytest.approx(expected, rel=1e-9)


def test_a_tilt_that_is_far_from_none() -> None:
    """A term that is hardly ever above zero: its rate is log of the odds, over what it moves by."""
    for small in (1e-2, 1e-9, 1e-200):
        found = _tilt(np.asarray([-1.0, 1.0]), np.log([1 - small, small]))
        assert found == pytest.approx(math.log((1 - small) / small) / 2, rel=1e-12)
