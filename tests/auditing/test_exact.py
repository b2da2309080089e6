"""The exact epsilon and delta: right on every mechanism, held against sums over all reports, and not blind."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from itertools import pairwise, permutations, product
from typing import Any

import mpmath
import numpy as np
import pytest

import noisette as nz
from noisette.auditing.exact import NotALaw, _visible, worst_pair
from noisette.auditing.pairs import turned
from noisette.cells import Cells, Dissected, log_above
from noisette.guarantees import gaussian_delta
from noisette.mechanisms._base import Lattice, Points
from noisette.mechanisms.categorical.hashing import AffineHash
from noisette.mechanisms.scalar._additive import LaplaceNoise
from noisette.mechanisms.scalar._lp_table import POSITIONS
from noisette.mechanisms.scalar._window import Window

LEVELS = (0.0, 0.3, 0.9)  # of the mechanism's epsilon, at which deltas are compared


def divergence(first: np.ndarray, second: np.ndarray, epsilon: float) -> float:
    """Sum (p - exp(epsilon) q)_+ over reports listed one by one."""
    return math.fsum(np.maximum(first - math.exp(epsilon) * second, 0.0).tolist())


def largest(laws: list[np.ndarray], epsilon: float) -> float:
    """Return the largest divergence of any two of the laws."""
    return max(divergence(first, second, epsilon) for first, second in permutations(laws, 2))


def agree(mechanism: Any, logs: list[np.ndarray]) -> None:
    """Check epsilon and delta against log masses over one list of reports, which hold all of the mass."""
    laws = [np.exp(log) for log in logs]
    assert all(abs(law.sum() - 1) < 1e-9 for law in laws)
    ratio = max(float((first - second).max()) for first, second in permutations(logs, 2))
    assert nz.exact_epsilon(mechanism) == pytest.approx(ratio, rel=1e-9)
    for share in LEVELS:
        epsilon = share * mechanism.epsilon
        assert nz.exact_delta(mechanism, epsilon) == pytest.approx(largest(laws, epsilon), rel=1e-9, abs=1e-13)


# every mechanism of the catalogue


def summed(mechanism: Any) -> bool:
    """Tell whether all reports are summed over; else the cells hold the worst one only, and no delta may be told."""
    if not isinstance(mechanism, Dissected) or all(cells.complete for cells in mechanism.dissect()):
        return True
    with pytest.raises(ValueError, match="too many to sum over"):
        nz.exact_delta(mechanism, 0.0)
    return False


@pytest.mark.long
def test_all_reports_are_summed_over_but_the_maps_of_a_wheel() -> None:
    """Its arcs overlap in as many ways as there are maps."""
    assert [name for name in nz.CATALOGUE if not summed(nz.CATALOGUE[name].example(1.0))] == ["wheel"]


@pytest.mark.long
@pytest.mark.parametrize("epsilon", [1e-6, 1.0, 12.0])
@pytest.mark.parametrize("name", sorted(nz.CATALOGUE))
def test_no_mechanism_exceeds_what_it_states(name: str, epsilon: float) -> None:
    if name == "optimal-graded" and epsilon < 0.01:
        with pytest.raises(ValueError, match=r"Expected budgets of at least 0.01"):
            nz.CATALOGUE[name].example(epsilon)
        return
    mechanism = nz.CATALOGUE[name].example(epsilon)
    exact, stated = nz.exact_epsilon(mechanism), mechanism.guarantee
    if stated.delta > 0:
        assert exact == math.inf
        assert nz.exact_delta(mechanism, stated.epsilon) <= stated.delta * (1 + 1e-8)
        assert nz.exact_epsilon(mechanism, delta=stated.delta) <= stated.epsilon * (1 + 1e-6)
        return
    assert exact <= stated.epsilon  # not a rounding error more: the result is rounded up, the mechanism down
    assert exact >= 0.99 * epsilon, "the budget asked for is not used"
    if not summed(mechanism):
        return
    assert nz.exact_delta(mechanism, exact) == 0
    assert 0 < nz.exact_delta(mechanism, 0.99 * exact) <= nz.exact_delta(mechanism, 0.0) < 1


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [60.0, 1000.0])
@pytest.mark.parametrize("name", sorted(nz.CATALOGUE))
def test_huge_budgets_stay_below_and_finite(name: str, epsilon: float) -> None:
    mechanism = nz.CATALOGUE[name].example(epsilon)
    if mechanism.guarantee.delta == 0:
        assert 0 < nz.exact_epsilon(mechanism) <= epsilon
    if summed(mechanism):
        assert 0 < nz.exact_delta(mechanism, 0.0) <= 1


# sums over all reports, of mechanisms coarse enough to be enumerated


class CoarseLaplace(nz.Laplace):
    """Laplace on quarters."""

    @cached_property
    def _step(self) -> float:
        return 0.25


class CoarseStaircase(nz.Staircase):
    """Staircase on eighths."""

    @cached_property
    def _step(self) -> float:
        return 0.125


class CoarseGaussian(nz.Gaussian):
    """Gaussian on quarters."""

    @cached_property
    def _step(self) -> float:
        return 0.25


ADDITIVE = [
    CoarseLaplace(1.0),
    CoarseLaplace(3.0, domain=nz.Interval(-0.3, 0.4)),
    CoarseStaircase(1.0),
    CoarseStaircase(0.4, domain=nz.Interval(-0.3, 0.55)),
    CoarseStaircase(4.0, domain=nz.Interval(0.1, 1.0)),
    nz.DiscreteLaplace(2.0, domain=nz.Grid(0, 5)),
    nz.DiscreteLaplace(0.5, domain=nz.Grid(0, 1)),
]


def lattice_laws(mechanism: Any, inputs: np.ndarray, reach: float) -> list[np.ndarray]:
    """Return the laws of inputs over all points of the lattice as far as ``reach`` steps from the domain."""
    k = np.arange(-reach, reach + 1)
    volume = mechanism.support.step if mechanism.fine else 1.0
    return [mechanism.log_prob(mechanism.support.value(k), x) + math.log(volume) for x in inputs]


def admissible(mechanism: Any) -> np.ndarray:
    """Return the ends, every point of the lattice and points between, for a small domain."""
    domain = mechanism.domain
    if isinstance(domain, nz.Grid):
        return domain.low + domain.step * np.arange(domain.size)
    fine = np.arange(domain.low, domain.high, mechanism.support.step / 4)
    return np.unique(np.concatenate([fine, np.round(fine * 8) / 8, [domain.low, domain.high]]).clip(*_ends(domain)))


def _ends(domain: Any) -> tuple[float, float]:
    return domain.low, domain.high


@pytest.mark.long
@pytest.mark.parametrize("mechanism", ADDITIVE, ids=lambda m: f"{m.name}-{m.epsilon}-{m.domain.low}")
def test_additive_noise_against_sums(mechanism: Any) -> None:
    agree(mechanism, lattice_laws(mechanism, admissible(mechanism), 800))


@pytest.mark.slow
def test_gaussian_noise_against_sums() -> None:
    mechanism = CoarseGaussian(1.0, 1e-3)
    laws = [np.exp(log) for log in lattice_laws(mechanism, admissible(mechanism), 400)]
    for epsilon in (0.0, 0.4, 1.0):
        assert nz.exact_delta(mechanism, epsilon) == pytest.approx(largest(laws, epsilon), rel=1e-8)


@pytest.mark.parametrize("epsilon", [0.0, 0.4, 1.0])
def test_a_domain_that_ends_between_two_points_of_the_lattice(epsilon: float) -> None:
    """On a fine lattice the two points that an end is rounded to are as good as the end itself."""
    laplace, gaussian = (cls(1.0, domain=nz.Interval(0.1, 0.7)) for cls in (nz.Laplace, nz.Gaussian))
    assert nz.exact_delta(laplace, epsilon) == pytest.approx(-math.expm1((epsilon - 1) / 2), rel=1e-3, abs=1e-5)
    assert nz.exact_epsilon(laplace) == pytest.approx(1.0, rel=1e-4)
    formula = float(gaussian_delta(0.6 / gaussian.sigma, epsilon))
    assert nz.exact_delta(gaussian, epsilon) == pytest.approx(formula, rel=1e-7)


@pytest.mark.slow
@pytest.mark.parametrize(("sigma", "low"), [(0.6, 0.0), (30.0, 0.0), (3000.0, -7.0)])
def test_discrete_gaussian_against_sums_in_many_digits(sigma: float, low: float) -> None:
    """Up to a sigma at which a million reports are summed, and beyond it by quadrature, which is not this sum."""
    mechanism = nz.DiscreteGaussian(1.0, 1e-6, domain=nz.Grid(low, low + max(1, round(sigma / 3))))
    steps, own = mechanism.domain.size - 1, mechanism._noise.sigma
    for epsilon in (0.0, 0.3, 1.0):
        with mpmath.workdps(30):
            k = range(-math.ceil(12 * own), math.ceil(12 * own) + 1)
            mass = [mpmath.exp(-(mpmath.mpf(i) ** 2) / (2 * mpmath.mpf(own) ** 2)) for i in k] if own < 500 else None
        if mass is None:
            direct = float(gaussian_delta(steps / own, epsilon))
            assert nz.exact_delta(mechanism, epsilon) == pytest.approx(direct, rel=20 / own**2)
            continue
        total, factor = sum(mass), mpmath.exp(epsilon)
        shifted = [mpmath.mpf(0)] * steps + mass[: len(mass) - steps]
        exact = sum(max(p - factor * q, mpmath.mpf(0)) for p, q in zip(mass, shifted, strict=True)) / total
        assert nz.exact_delta(mechanism, epsilon) == pytest.approx(float(exact), rel=1e-9, abs=1e-14)


@pytest.mark.parametrize("share", [0.0, 0.25, 0.8])
def test_fine_lattices_come_near_the_closed_forms_on_the_line(share: float) -> None:
    epsilon = 2.0
    laplace = nz.exact_delta(nz.Laplace(epsilon), share * epsilon)
    assert laplace == pytest.approx(-math.expm1((share - 1) * epsilon / 2), rel=1e-9)
    gaussian = nz.Gaussian(epsilon, 1e-5)
    formula = float(gaussian_delta(2 / gaussian.sigma, share * epsilon))
    assert nz.exact_delta(gaussian, share * epsilon) == pytest.approx(formula, rel=1e-9)
    s = math.exp(epsilon / 2)
    piecewise = s / (s + 1) - math.exp(share * epsilon) * 2 / (s + 1) * (1 - 1 / 2) / s
    assert nz.exact_delta(nz.Piecewise(epsilon), share * epsilon) == pytest.approx(piecewise, rel=1e-6)


@dataclass(frozen=True)
class SmallWindow(nz.Piecewise):
    """Piecewise on a table of twenty outputs."""

    width: int = 6

    @cached_property
    def _window(self) -> Window:
        moves = 20 - self.width
        odds = math.exp(self.epsilon) * self.width / moves
        return Window(self.domain, 0.125, -1.0, self.width, moves, math.floor(odds / (1 + odds) * 2**53) / 2**53)

    @property
    def _map(self) -> tuple[float, float]:
        return self._window.centred_map


@pytest.mark.slow
@pytest.mark.parametrize("width", [1, 6, 13])  # the windows of the ends are apart, or overlap
def test_windows_against_sums(width: int) -> None:
    mechanism = SmallWindow(1.5, width=width)
    reports = mechanism.support.value(np.arange(20) - 9)
    inputs = np.linspace(-1, 1, 4 * 20 + 1)
    agree(mechanism, [mechanism.log_prob(reports, x) + math.log(0.125) for x in inputs])


class SmallHybrid(nz.Hybrid):
    """Hybrid on a lattice of some hundred outputs."""

    @cached_property
    def _window(self) -> Window:
        fine = super()._window
        step = 2.0**-5
        width, moves = round(fine.width * fine.step / step), round(fine.moves * fine.step / step)
        odds = math.exp(self.epsilon) * width / moves
        first = step * round(fine.first / step)
        return Window(self.domain, step, first, width, moves, math.floor(odds / (1 + odds) * 2**53) / 2**53)


@pytest.mark.parametrize("epsilon", [0.4, 0.8, 2.0])
def test_hybrid_against_sums(epsilon: float) -> None:
    mechanism = SmallHybrid(epsilon)
    support = mechanism.support
    if isinstance(support, Lattice):
        size = round((support.high - support.low) / support.step) + 1
        reports, volume = support.low + support.step * np.arange(size), support.step
    else:
        reports, volume = np.asarray(support.values), 1.0
    agree(mechanism, [mechanism.log_prob(reports, x) + math.log(volume) for x in np.linspace(-1, 1, 33)])


class SmallHashing(nz.LocalHashing):
    """Local hashing with few maps."""

    @cached_property
    def _hash(self) -> AffineHash:
        return AffineHash(11, self.buckets)


class CoarseHistogram(nz.HistogramEncoding):
    """Histogram encoding in quarters."""

    @cached_property
    def _step(self) -> float:
        return 0.25


def categorical_reports(mechanism: Any) -> np.ndarray:
    """List every report of a small mechanism for categories."""
    size = mechanism.domain.size
    if isinstance(mechanism, nz.UnaryEncoding):
        return np.asarray(list(product((0, 1), repeat=size)), dtype=np.uint8)
    if isinstance(mechanism, nz.SubsetSelection):
        every = product(range(size), repeat=mechanism.length)
        return np.asarray([s for s in every if all(a < b for a, b in pairwise(s))])
    if isinstance(mechanism, nz.LocalHashing):
        return np.asarray(list(product(range(mechanism._hash.seeds), range(mechanism.buckets))))
    if isinstance(mechanism, nz.HistogramEncoding):
        return np.asarray(list(product(np.arange(-60, 65) * 0.25, repeat=size)))
    return np.arange(getattr(mechanism, "order", size))


CATEGORICAL: list[Callable[..., Any]] = [
    nz.GeneralizedRandomizedResponse,
    nz.SymmetricUnaryEncoding,
    nz.UnaryEncoding,
    nz.SubsetSelection,
    nz.HadamardResponse,
    SmallHashing,
]


@pytest.mark.parametrize("size", [2, 3, 6])
@pytest.mark.parametrize("cls", CATEGORICAL, ids=lambda cls: cls.__name__)
@pytest.mark.parametrize("epsilon", [0.3, 1.5])
def test_categories_against_sums(cls: type[Any], size: int, epsilon: float) -> None:
    mechanism = cls(epsilon, nz.Categorical(size))
    reports = categorical_reports(mechanism)
    agree(mechanism, [mechanism.log_prob(reports, np.asarray([x])) for x in range(size)])


@pytest.mark.parametrize("epsilon", [3.0, 8.0])
def test_histograms_against_sums(epsilon: float) -> None:
    mechanism = CoarseHistogram(epsilon, nz.Categorical(2))
    reports = categorical_reports(mechanism)
    agree(mechanism, [mechanism.log_prob(reports, np.asarray([x])) + 2 * math.log(0.25) for x in range(2)])


@pytest.mark.filterwarnings("ignore::noisette.PrivacyWarning")
@pytest.mark.parametrize("as_published", [False, True])
@pytest.mark.parametrize("dims", [1, 2, 3, 4, 5])
def test_duchi_box_against_sums(dims: int, as_published: bool) -> None:
    mechanism = nz.DuchiBox(0.8, dims, as_published=as_published)
    cube = np.asarray(list(product((-1.0, 1.0), repeat=dims)))
    inside = np.random.default_rng(0).uniform(-1, 1, (6, dims))
    agree(mechanism, [mechanism.log_prob(cube, x) for x in np.concatenate([cube, inside])])


def test_duchi_box_in_many_dimensions() -> None:
    """Opposite corners: the half of the cube on either side, ties apart."""
    mechanism = nz.DuchiBox(1.0, 1001)
    assert nz.exact_delta(mechanism, 0.0) == pytest.approx(math.tanh(0.5), rel=1e-9)
    assert nz.exact_epsilon(nz.DuchiBox(1.0, 5000)) == pytest.approx(1.0, rel=1e-12)


@pytest.mark.parametrize("domain", [nz.Sphere(2), nz.L2Ball(1)], ids=str)
def test_privunit_against_caps_of_a_circle(domain: Any) -> None:
    """On a circle the mass of a cap is its angle; on a ball of one dimension the circle is its lifted sphere."""
    mechanism = nz.PrivUnit(1.5, domain=domain)
    q = math.acos(mechanism.cap.gamma) / math.pi
    p = q * math.exp(1.5) / (1 - q + q * math.exp(1.5))
    assert mechanism.cap.p_cap == pytest.approx(p, rel=1e-9)
    for epsilon in (0.0, 0.5, 1.2):
        opposite = p - math.exp(epsilon) * q * (1 - p) / (1 - q)
        assert nz.exact_delta(mechanism, epsilon) == pytest.approx(opposite, rel=1e-9)


@pytest.mark.parametrize(("inner", "report"), [("duchi", 1), ("duchi", 3), ("piecewise", 2), ("hybrid", 2)])
def test_sampled_against_products(inner: str, report: int) -> None:
    """Given the dimensions, laws multiply; merge what an inner report says to its log ratio."""
    mechanism = nz.Sampled(inner, 2.4, 3, report=report)
    cells = next(mechanism.inner_mechanism.dissect())
    first, second = (
        np.exp(mechanism.inner_mechanism.log_prob(cells.nodes[0], x) + cells.log_weight) for x in cells.pair
    )
    laws = [np.ones(1), np.ones(1)]
    for _ in range(report):
        laws = [np.outer(law, one).reshape(-1) for law, one in zip(laws, (first, second), strict=True)]
    assert nz.exact_epsilon(mechanism) == pytest.approx(report * nz.exact_epsilon(mechanism.inner_mechanism), rel=1e-9)
    for epsilon in (0.0, 0.7, 2.0):
        assert nz.exact_delta(mechanism, epsilon) == pytest.approx(largest(laws, epsilon), rel=1e-9)


def test_sampled_with_noise_that_is_not_constant() -> None:
    one = nz.Sampled("laplace", 1.0, 4, report=1)
    assert nz.exact_delta(one, 0.5) == pytest.approx(nz.exact_delta(nz.Laplace(1.0), 0.5), rel=1e-9)
    two = nz.Sampled("laplace", 1.0, 4, report=2)
    assert nz.exact_epsilon(two) == pytest.approx(1.0, rel=1e-9)
    with pytest.raises(ValueError, match="ask the accountant"):
        nz.exact_delta(two, 0.5)
    assert nz.exact_epsilon(nz.Sampled("gaussian", 1.0, 4, report=2, delta=1e-6)) == math.inf


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [0.3, 0.75, 9.0, 14.0, 20.0])
def test_lp_optimal_is_as_near_as_said_to_reporting_positions(epsilon: float) -> None:
    """The window's positions themselves would betray so much; what is reported betrays no more, and little less."""
    mechanism = nz.LpOptimal(epsilon)
    table = mechanism._table
    share = table.width / POSITIONS
    for level in (0.0, 0.3, 0.9):
        positions = table.p_window - math.expm1(level * epsilon) * (1 - table.p_window) * share
        exact = nz.exact_delta(mechanism, level * epsilon)
        assert (1 - 1e-3) * positions <= exact <= positions * (1 + 1e-9)


# certified: not below the truth, and not above it by more than the last bit


@pytest.mark.parametrize("epsilon", [1e-6, 0.37, 1.0, 5.0, 30.0])
def test_epsilon_is_the_log_of_fractions_rounded_up(epsilon: float) -> None:
    duchi = nz.Duchi(epsilon)
    high = [Fraction(float(duchi._pair.masses(np.asarray([x]))[1][0])) for x in (-1.0, 1.0)]
    window = nz.Piecewise(epsilon)._window
    p_window = Fraction(window.p_window)
    laplace = nz.Laplace(epsilon)
    response = nz.GeneralizedRandomizedResponse(epsilon, nz.Categorical(9))._response
    for mechanism, ratio in (
        (duchi, max(high[1] / high[0], (1 - high[0]) / (1 - high[1]))),
        (nz.Piecewise(epsilon), p_window / window.width * window.moves / (1 - p_window)),
        (nz.GeneralizedRandomizedResponse(epsilon, nz.Categorical(9)), response.p_same / response.p_different),
    ):
        exact = nz.exact_epsilon(mechanism)
        with mpmath.workdps(60):
            true = mpmath.log(mpmath.mpf(ratio.numerator) / ratio.denominator)
            assert exact >= true > math.nextafter(exact, 0.0)
    assert Fraction(nz.exact_epsilon(laplace)) >= Fraction(laplace._noise.rate) * laplace._steps


def test_log_above_is_not_below() -> None:
    assert log_above(Fraction(1)) == 0.0  # to the last digit: equal laws tell nothing
    rng = np.random.default_rng(0)
    for _ in range(200):
        top, bottom = (int(n) for n in rng.integers(1, 2**53, 2))
        with mpmath.workdps(60):
            true = mpmath.log(mpmath.mpf(top) / bottom)
            got = log_above(Fraction(top, bottom))
            assert got >= true > math.nextafter(got, -math.inf)


@pytest.mark.slow
def test_epsilon_at_a_delta_inverts_delta_at_an_epsilon() -> None:
    for mechanism in (nz.Laplace(1.0), nz.Gaussian(1.0, 1e-6), nz.UnaryEncoding(1.0, nz.Categorical(9))):
        for delta in (1e-4, 1e-2, 0.2):
            epsilon = nz.exact_epsilon(mechanism, delta=delta)
            assert nz.exact_delta(mechanism, epsilon) <= delta * (1 + 1e-9)
            assert epsilon == 0 or nz.exact_delta(mechanism, epsilon * (1 - 1e-6)) > delta


# what is wrong is seen


def test_ties_in_both_halves_cost_what_the_specification_says() -> None:
    with pytest.warns(nz.PrivacyWarning):
        published = nz.DuchiBox(0.5, 4, as_published=True)
    assert round(nz.exact_epsilon(published), 3) == 0.974
    assert nz.exact_epsilon(published) == pytest.approx(math.log1p(math.exp(0.5)), rel=1e-12)
    assert nz.exact_epsilon(nz.DuchiBox(0.5, 4)) == pytest.approx(0.5, rel=1e-12)


def test_noise_of_half_the_scale_is_seen() -> None:
    @dataclass(frozen=True)
    class Halved(nz.Laplace):
        @property
        def _noise(self) -> LaplaceNoise:
            return LaplaceNoise(2 * self.epsilon / self._steps)

    assert nz.exact_epsilon(Halved(epsilon=1.0)) == pytest.approx(2.0, rel=1e-9)
    assert nz.exact_delta(Halved(epsilon=1.0), 1.0) == pytest.approx(-math.expm1(-0.5), rel=1e-9)


def test_an_atom_is_seen() -> None:
    @dataclass(frozen=True)
    class Atom(nz.Laplace):
        def log_prob(self, report: object, x: object) -> np.ndarray:
            reports, values = np.broadcast_arrays(np.asarray(report, float), np.asarray(x, float))
            return np.where(reports == values, 0.0, -np.inf)

    assert nz.exact_epsilon(Atom(epsilon=1.0)) == math.inf


def test_a_report_that_only_one_input_sends_adds_its_mass_to_delta() -> None:
    @dataclass(frozen=True)
    class Telling(nz.GeneralizedRandomizedResponse):
        """One time in a hundred, category 0 is reported as no other is."""

        def log_prob(self, report: Any, x: Any) -> np.ndarray:
            masses = np.asarray([[0.79, 0.2, 0.01], [0.2, 0.8, 0.0], [0.2, 0.8, 0.0]])
            with np.errstate(divide="ignore"):
                return np.log(masses[np.asarray(x), np.asarray(report)])

        def dissect(self) -> Iterator[Cells]:
            yield Cells.constant((0, 1), np.arange(3), np.zeros(3))

    telling = Telling(1.0, nz.Categorical(3))
    assert nz.exact_epsilon(telling) == math.inf
    assert nz.exact_delta(telling, 0.5) == pytest.approx(0.01 + 0.79 - math.exp(0.5) * 0.2, rel=1e-12)
    assert nz.exact_delta(telling, 5.0) == pytest.approx(0.01, rel=1e-12)


def test_reports_left_out_are_missed() -> None:
    @dataclass(frozen=True)
    class Forgetful(nz.Piecewise):
        def dissect(self) -> Iterator[Cells]:
            for cells in super().dissect():
                kept = np.arange(cells.log_weight.size) != np.argmin(cells.log_weight[1:-1]) + 1
                yield Cells.constant(cells.pair, cells.nodes[0][kept], cells.log_weight[kept], cells.bound)

    with pytest.raises(NotALaw, match="not to 1"):
        nz.exact_epsilon(Forgetful(1.0))


def test_a_likelihood_that_is_none_is_refused() -> None:
    @dataclass(frozen=True)
    class Inflated(nz.Duchi):
        def log_prob(self, report: Any, x: Any) -> np.ndarray:
            return super().log_prob(report, x) + 0.01

    with pytest.raises(NotALaw, match=r"add up to 1\.01"):
        nz.exact_epsilon(Inflated(1.0))


def test_evidence_beats_a_bound_that_is_too_low() -> None:
    """The twin of the certificate: what log_prob shows counts, whatever is said to be proved."""

    @dataclass(frozen=True)
    class Boastful(nz.Piecewise):
        def dissect(self) -> Iterator[Cells]:
            for cells in super().dissect():
                yield replace(cells, bound=0.5)

    assert nz.exact_epsilon(Boastful(1.0)) == pytest.approx(1.0, rel=1e-9)


def test_witnesses_beat_cells_that_miss_the_worst_report() -> None:
    @dataclass(frozen=True)
    class Blind(nz.Piecewise):
        def dissect(self) -> Iterator[Cells]:
            middle = (-0.01, 0.01)
            yield replace(next(super().dissect()), pair=middle, complete=False)

    assert nz.exact_epsilon(Blind(1.0)) == pytest.approx(1.0, rel=1e-9)


# other people's mechanisms, and bad input


class Plain:
    """A mechanism that has no more than the contract asks for."""

    name, kind = "plain", "mean"
    domain, guarantee = nz.Interval(), nz.Guarantee(1.0)

    def __init__(self, support: Any) -> None:
        self.support = support

    def privatize(self, x: Any, *, clip: bool = False, rng: Any = None) -> Any:
        raise NotImplementedError

    moments = spec = privatize

    @classmethod
    def example(cls, epsilon: float) -> Any:
        raise NotImplementedError

    def log_prob(self, report: Any, x: Any) -> np.ndarray:
        reports, values = np.broadcast_arrays(np.asarray(report, float), np.asarray(x, float))
        return np.log(np.where(reports == np.sign(values), 0.7, 0.3))

    def witnesses(self) -> tuple[np.ndarray, np.ndarray]:
        return np.asarray([-1.0, 1.0]), np.asarray([-1.0, 1.0])


def test_a_mechanism_without_cells_is_enumerated_where_its_reports_are_few() -> None:
    few = Plain(Points((-1.0, 1.0)))
    assert nz.exact_epsilon(few) == pytest.approx(math.log(7 / 3), rel=1e-12)
    assert nz.exact_delta(few, 0.2) == pytest.approx(0.7 - math.exp(0.2) * 0.3, rel=1e-12)
    many = Plain(Lattice(0.0, 2.0, -1.0, 1.0))
    assert nz.exact_epsilon(many) == pytest.approx(math.log(7 / 3), rel=1e-12)
    with pytest.raises(ValueError, match="method dissect"):
        nz.exact_delta(many, 0.2)


class Leaning(Plain, Dissected):
    """Says yes with one chance for no, and with another for yes."""

    first, second = 0.5, 0.9

    def log_prob(self, report: Any, x: Any) -> np.ndarray:
        reports, values = np.broadcast_arrays(np.asarray(report, float), np.asarray(x, float))
        chance = np.where(values < 0, self.first, self.second)
        return np.asarray(np.log(np.where(reports > 0, chance, 1 - chance)))

    def dissect(self) -> Any:
        yield Cells.constant((-1.0, 1.0), np.asarray([-1.0, 1.0]), np.zeros(2))


@pytest.mark.parametrize("turned", [False, True])
def test_the_worst_of_two_ways_between_two_inputs_is_named(turned: bool) -> None:
    """ln(0.5 / 0.1) one way and ln(0.9 / 0.5) the other: at 0.7 only the first has a delta, 0.5 - 0.1 exp(0.7)."""
    leaning = Leaning(Points((-1.0, 1.0)))
    if turned:
        leaning.first, leaning.second = 0.9, 0.5
    delta, first, second = worst_pair(leaning, 0.7)
    assert delta == pytest.approx(0.5 - 0.1 * math.exp(0.7), rel=1e-9)
    assert (first, second) == ((1.0, -1.0) if turned else (-1.0, 1.0))


@pytest.mark.parametrize("epsilon", [-0.1, math.nan])
def test_bad_epsilon_is_refused(epsilon: float) -> None:
    with pytest.raises(ValueError, match="Expected epsilon="):
        nz.exact_delta(nz.Duchi(1.0), epsilon)


@pytest.mark.parametrize("delta", [-0.1, 1.0])
def test_bad_delta_is_refused(delta: float) -> None:
    with pytest.raises(ValueError, match="Expected delta="):
        nz.exact_epsilon(nz.Duchi(1.0), delta=delta)


def test_words_are_refused() -> None:
    with pytest.raises(TypeError, match="epsilon='much'"):
        nz.exact_delta(nz.Duchi(1.0), "much")


@pytest.mark.parametrize("low", [0.0, 300.0])
@pytest.mark.parametrize(
    "line",
    [
        [-3.0, 0.0],
        [-3.0, 0.5],
        [-3.0, -2.5],
        [-3.0, 0.5, 0.0],
        [-3.0, -2.5, 0.0],
        [1.0, 0.0, -0.01],
        [1.0, 20.0, -0.02],
        [1.0, -20.0, -0.02],
        [1.0, 900.0, -0.5],
    ],
    ids=str,
)
def test_what_is_visible_of_a_run_holds_all_that_float64_sees(line: list[float], low: float) -> None:
    """No place beyond is within e^-750 of the largest mass, and few more are kept."""
    places = np.arange(low, 2001.0)
    logs = np.polynomial.polynomial.polyval(places, np.asarray(line))
    seen = places[logs >= logs.max() - 750]
    found = _visible(np.asarray(line), low, 2000.0)
    assert found[0] <= seen[0]
    assert found[1] >= seen[-1]
    assert seen[0] - found[0] <= 1
    assert found[1] - seen[-1] <= 1


def test_an_empty_run_and_one_that_never_falls() -> None:
    assert _visible(np.asarray([0.0, 1.0]), 3.0, 2.0) == (3.0, 2.0)
    assert _visible(np.asarray([0.0, -1.0]), 3.0, math.inf) == (3.0, 753.0)
    for line in ([0.0, 0.0], [0.0, 0.5]):
        with pytest.raises(NotALaw, match="does not fall"):
            _visible(np.asarray(line), 0.0, math.inf)


def test_pairs_are_turned_where_vectors_of_numbers_differ() -> None:
    """Two values exchange one entry; one that the domain does not hold is left out, and nothing else has entries."""
    box = nz.DuchiBox(1.0, dims=3)
    first, second = np.asarray([1.0, -1.0, 0.5]), np.asarray([1.0, 1.0, -0.5])
    found = [(own.tolist(), other.tolist()) for own, other in turned(box, (first, second))]
    assert found == [([1.0, 1.0, 0.5], [1.0, -1.0, -0.5]), ([1.0, -1.0, -0.5], [1.0, 1.0, 0.5])]
    assert (first.tolist(), second.tolist()) == ([1.0, -1.0, 0.5], [1.0, 1.0, -0.5])
    ball = nz.PrivUnitG(1.0, dims=2)
    assert list(turned(ball, (np.asarray([0.9, 0.1]), np.asarray([-0.1, 0.9])))) == []  # one of them is too long
    assert list(turned(nz.Laplace(1.0), (0.5, -0.5))) == []
    assert list(turned(nz.Laplace(1.0), (np.asarray(0.5), np.asarray(-0.5)))) == []
    chosen = nz.PrivSet(1.0, nz.Selection(5, 2))
    assert list(turned(chosen, (np.asarray([0, 1]), np.asarray([2, 3])))) == []


@pytest.mark.parametrize("width", [1, 2, 3])
def test_delta_of_noise_in_whole_steps_between_near_values_is_the_sum_of_its_terms(width: int) -> None:
    """Stretches of one step and of two, which lie between the two values alone, as well."""
    mechanism = nz.DiscreteLaplace(0.5, domain=nz.Grid(0, width))
    reports = np.arange(-300.0, 300.0 + width)
    own, other = (np.exp(mechanism.log_prob(reports, np.full(reports.size, end))) for end in (0.0, float(width)))
    for epsilon in (0.0, 0.15, 0.45):
        wanted = np.maximum(own - math.exp(epsilon) * other, 0).sum()
        assert nz.exact_delta(mechanism, epsilon) == pytest.approx(wanted, rel=1e-12)
