"""DuchiBox against sums over the whole cube, which know nothing of its formulas."""

import itertools
import json
import math
import warnings
from fractions import Fraction
from functools import cached_property

import mpmath
import numpy as np
import numpy.typing as npt
import pytest
from scipy.special import chdtri, ndtri

import noisette as nz
from noisette.guarantees import Guarantee

FALSE_ALARM = 1e-6
BUDGETS = [1e-6, 1e-3, 0.1, 0.5, 1.0, 2.0, 5.0, 20.0, 36.0, 100.0, 1e3]


def cube(dims: int) -> npt.NDArray[np.float64]:
    """Return all vectors of signs."""
    return np.asarray(list(itertools.product((-1.0, 1.0), repeat=dims)))


def two_step_law(epsilon: float, dims: int, *, ties_twice: bool = False) -> npt.NDArray[np.float64]:
    """Return P(z | v), rows v and columns z, from the two steps of the specification: a half, then uniform in it."""
    products = cube(dims) @ cube(dims).T
    upper = products >= 0
    lower = products <= 0 if ties_twice else products < 0
    share = upper[0].mean()
    grown = math.exp(epsilon)
    p_upper = grown / (1 + grown) if ties_twice else grown * share / (1 + share * (grown - 1))
    return p_upper * upper / upper.sum(axis=1)[:, None] + (1 - p_upper) * lower / lower.sum(axis=1)[:, None]


def rounding_law(x: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return the chance of each corner that x is rounded to."""
    return np.asarray([math.prod((1 + s * t) / 2 for s, t in zip(v, x, strict=True)) for v in cube(x.size)])


@pytest.mark.parametrize("dims", [1, 2, 3, 4, 5, 6])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0])
def test_law_is_the_specified_one(epsilon: float, dims: int) -> None:
    mechanism = nz.DuchiBox(epsilon=epsilon, dims=dims)
    corners = cube(dims)
    law = np.exp(mechanism.log_prob(corners[None, :, :], corners[:, None, :]))
    np.testing.assert_allclose(law, two_step_law(epsilon, dims), rtol=1e-12)
    np.testing.assert_allclose(law.sum(axis=1), 1, rtol=1e-12)


@pytest.mark.parametrize("dims", [2, 3, 4])
def test_law_inside_the_box_mixes_the_corners(dims: int) -> None:
    mechanism = nz.DuchiBox(epsilon=1.3, dims=dims)
    x = np.linspace(-0.7, 0.9, dims)
    law = np.exp(mechanism.log_prob(cube(dims), x))
    np.testing.assert_allclose(law, rounding_law(x) @ two_step_law(1.3, dims), rtol=1e-12)
    wrong = rounding_law(x) @ two_step_law(1.3, dims, ties_twice=True)
    assert np.allclose(law, wrong, rtol=1e-6) == (dims % 2 == 1)


@pytest.mark.parametrize("dims", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("as_published", [False, True])
@pytest.mark.filterwarnings("ignore::noisette.PrivacyWarning")
def test_moments_are_those_of_the_law(dims: int, as_published: bool) -> None:
    mechanism = nz.DuchiBox(epsilon=0.8, dims=dims, as_published=as_published)
    x = np.linspace(-1, 0.6, dims)
    law = rounding_law(x) @ two_step_law(0.8, dims, ties_twice=as_published)
    estimates = cube(dims) / mechanism.kappa
    np.testing.assert_allclose(law @ estimates, x, atol=1e-12)
    moments = mechanism.moments(x)
    assert np.all(moments.bias == 0)
    np.testing.assert_allclose(moments.variance, law @ (estimates - x) ** 2, rtol=1e-12)
    np.testing.assert_allclose(moments.third, law @ np.abs(estimates - x) ** 3, rtol=1e-12)


def test_kappa_where_ties_count_twice_is_rejected() -> None:
    """The twin: the scale of the published form makes the fixed one biased."""
    grown, p_tie = math.e, 3 / 8
    published = p_tie / 2 * (grown - 1) / (grown + 1) / (1 / 2 + p_tie / 2)
    law = two_step_law(1.0, 4)[-1]
    assert abs(law @ cube(4)[:, 0] / nz.DuchiBox(epsilon=1.0, dims=4).kappa - 1) < 1e-12
    assert abs(law @ cube(4)[:, 0] / published - 1) > 0.01


@pytest.mark.parametrize("dims", [7, 100, 101, 4095, 10**6, 10**6 + 1, 10**7])
def test_kappa_in_many_dimensions(dims: int) -> None:
    """h = d C(d, d/2) / 2^d or d C(d-1, (d-1)/2) / 2^(d-1), in fifty digits."""
    with mpmath.workdps(50):
        even = dims - dims % 2
        lean = mpmath.binomial(even, even // 2) / mpmath.mpf(2) ** even
        share = mpmath.mpf(1) / 2 + (lean / 2 if dims % 2 == 0 else 0)
        less = mpmath.e - 1
        expected = float(lean / 2 * less / (1 + share * less))
    assert nz.DuchiBox(epsilon=1.0, dims=dims).kappa == pytest.approx(expected, rel=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("dims", "epsilon"),  # a million dimensions at the ends and in the middle: they take their time, and change nothing
    [(dims, epsilon) for dims in (1, 2, 3, 8, 1001) for epsilon in BUDGETS]
    + [(10**6, epsilon) for epsilon in (1e-6, 1.0, 36.0, 1e3)],
)
def test_exact_epsilon(epsilon: float, dims: int) -> None:
    exact = nz.exact_epsilon(nz.DuchiBox(epsilon=epsilon, dims=dims))
    assert exact <= epsilon
    if epsilon <= 20:  # beyond 53 bits the rarer half keeps its 2^-53
        assert exact == pytest.approx(epsilon, rel=1e-8, abs=2 * float(np.spacing(dims * math.log(2))))
    else:
        assert exact >= 35.5


def test_no_pair_of_inputs_is_worse_than_the_witnesses() -> None:
    mechanism = nz.DuchiBox(epsilon=0.7, dims=4)
    inputs = np.concatenate([cube(4), np.random.default_rng(3).uniform(-1, 1, (50, 4))])
    likelihood = mechanism.log_prob(cube(4)[:, None, :], inputs[None, :, :])
    assert np.ptp(likelihood, axis=1).max() == pytest.approx(nz.exact_epsilon(mechanism), abs=1e-12)


@pytest.mark.parametrize("dims", [2, 4, 6, 1000])
def test_published_form_is_ln_one_plus_exp(dims: int) -> None:
    with pytest.warns(nz.PrivacyWarning, match=r"epsilon=0\.5 per record does not hold; what holds is 0\.974077"):
        mechanism = nz.DuchiBox(epsilon=0.5, dims=dims, as_published=True)
    assert nz.exact_epsilon(mechanism) == pytest.approx(math.log(1 + math.exp(0.5)), rel=1e-12)
    assert round(mechanism.guarantee.epsilon, 3) == 0.974
    assert mechanism.guarantee.claim is not None
    assert mechanism.guarantee.claim.epsilon == 0.5
    assert not mechanism.guarantee.claim_holds
    if dims <= 6:
        law = two_step_law(0.5, dims, ties_twice=True)
        np.testing.assert_allclose(np.exp(mechanism.log_prob(cube(dims)[None], cube(dims)[:, None])), law, rtol=1e-12)
        assert np.ptp(np.log(law), axis=0).max() == pytest.approx(mechanism.guarantee.epsilon, rel=1e-12)


@pytest.mark.parametrize("dims", [1, 3, 101])
def test_published_form_holds_in_odd_dimensions(dims: int) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        published = nz.DuchiBox(epsilon=0.5, dims=dims, as_published=True)
    assert published.guarantee.claim_holds
    assert nz.exact_epsilon(published) <= 0.5
    assert published.kappa == nz.DuchiBox(epsilon=0.5, dims=dims).kappa


@pytest.mark.slow
@pytest.mark.parametrize(("dims", "low", "high"), [(1, -1.0, 1.0), (3, 0.0, 10.0), (4, (0, 1, 2, 3), (1, 3, 5, 7))])
def test_contract(dims: int, low: float, high: float) -> None:
    nz.testing.check_mechanism(nz.DuchiBox(epsilon=1.0, domain=nz.Box(dims, low, high)), samples=50_000)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::noisette.PrivacyWarning")
def test_ties_in_both_halves_are_detected() -> None:
    """The twin: the published form that claims its epsilon fails the contract, and states the truth passes it."""

    class Claiming(nz.DuchiBox):
        @property
        def guarantee(self) -> Guarantee:
            return Guarantee(self.epsilon)

    nz.testing.check_mechanism(nz.DuchiBox(epsilon=0.5, dims=4, as_published=True), samples=20_000)
    with pytest.raises(AssertionError, match=r"exact epsilon at least 0\.97"):
        nz.testing.check_mechanism(Claiming(epsilon=0.5, dims=4, as_published=True), samples=20_000)


def test_a_wrong_scale_is_detected() -> None:
    class Shrunk(nz.DuchiBox):
        @cached_property
        def kappa(self) -> float:
            return 1.2 * super().kappa

    with pytest.raises(AssertionError, match="biased"):
        nz.testing.check_mechanism(Shrunk(epsilon=4.0, dims=4))


def chi_square(reports: npt.NDArray[np.int8], law: npt.NDArray[np.float64]) -> float:
    """Return Pearson's statistic of vectors of signs against their law."""
    dims = reports.shape[1]
    cells = (reports > 0) @ (1 << np.arange(dims)[::-1])
    expected = law * len(reports)
    return float(((np.bincount(cells, minlength=law.size) - expected) ** 2 / expected).sum())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("dims", "as_published"), [(2, False), (3, False), (4, False), (4, True), (9, False), (10, False)]
)
@pytest.mark.filterwarnings("ignore::noisette.PrivacyWarning")
def test_sampler_draws_the_law(dims: int, as_published: bool) -> None:
    """Pearson's test on all 2^d reports; the twin has the law of a slightly different vector."""
    x = np.linspace(-0.9, 1.0, dims)
    mechanism = nz.DuchiBox(epsilon=1.0, dims=dims, as_published=as_published)
    reports = mechanism.privatize(np.broadcast_to(x, (300_000, dims)), rng=11)
    limit = float(chdtri(2**dims - 1, FALSE_ALARM))
    assert chi_square(reports, np.exp(mechanism.log_prob(cube(dims), x))) < limit
    assert chi_square(reports, np.exp(mechanism.log_prob(cube(dims), 0.8 * x))) > limit


def test_every_report_of_one_half_is_equally_likely() -> None:
    """Exactly, not to a rounding error: two values of the mass, and an integer number of reports with each."""
    mechanism = nz.DuchiBox(epsilon=1.0, dims=6)
    mass = np.exp(mechanism.log_prob(cube(6), np.ones(6)) + 6 * math.log(2))
    values, counts = np.unique(np.round(mass, 12), return_counts=True)
    assert counts.tolist() == [22, 42]  # P+ = 1/2 + C(6,3)/2^7 of 64
    assert Fraction(42, 64) == Fraction(1, 2) + Fraction(math.comb(6, 3), 2**7)
    assert values[1] / values[0] == pytest.approx(math.e, rel=1e-9)


def test_estimate_maps_back_to_the_box_with_valid_errors() -> None:
    """A z-test of every dimension; finite-sample intervals cover at least as often as they say."""
    domain = nz.Box(12, tuple(range(12)), tuple(range(5, 17)))
    truth = domain.lows + np.linspace(0, 5, 12)
    mechanism = nz.DuchiBox(epsilon=2.0, domain=domain)
    reports = mechanism.privatize(np.broadcast_to(truth, (100_000, 12)), rng=5)
    assert reports.dtype == np.int8
    estimate = mechanism.aggregate(reports).estimate()
    level = ndtri(1 - FALSE_ALARM / 24)
    stated = np.sqrt(mechanism.moments(truth).variance / 100_000)
    assert np.all(np.abs(estimate.value - truth) < level * stated)
    np.testing.assert_allclose(estimate.std_error, stated, rtol=0.02)
    low, high = estimate.interval(1 - FALSE_ALARM / 12, method="finite")
    assert np.all((low <= truth) & (truth <= high))
    assert np.all(high - low < 3 * 2 * level * stated)


def test_sums_are_exact_and_split_anyhow() -> None:
    mechanism = nz.DuchiBox(epsilon=1.0, dims=70_001)
    reports = mechanism.privatize(np.zeros((9, 70_001)), rng=1)
    whole = mechanism.aggregate(reports)
    assert np.array_equal(whole.total, reports.sum(axis=0, dtype=np.int64))
    assert np.all(whole.squares == 9)
    assert np.all(whole.count == 9)
    assert mechanism.aggregate(reports[:2]) + mechanism.aggregate(reports[2:]) == whole


@pytest.mark.parametrize("epsilon", BUDGETS)
def test_extreme_budgets(epsilon: float) -> None:
    for dims in (1, 2, 5, 1000):
        mechanism = nz.DuchiBox(epsilon=epsilon, dims=dims)
        reports = mechanism.privatize(np.full((20, dims), 0.25), rng=2)
        assert np.all(np.abs(reports) == 1)
        moments = mechanism.moments(np.full(dims, 0.25))
        assert np.all(np.isfinite(moments.variance))
        assert np.all(np.isfinite(moments.third))
        assert np.all(np.isfinite(mechanism.log_prob(reports, np.full(dims, 0.25))))


@pytest.mark.slow
def test_a_million_dimensions() -> None:
    mechanism = nz.DuchiBox(epsilon=1.0, dims=10**6)
    reports = mechanism.privatize(np.ones((3, 10**6)), rng=4)
    assert reports.shape == (3, 10**6)
    assert np.all(np.isfinite(mechanism.log_prob(reports, np.ones(10**6))))
    with pytest.raises(ValueError, match=r"dims=1000000 <= 4096 .* Corners of the box"):
        mechanism.log_prob(reports, np.zeros(10**6))


def test_likelihood_in_thousands_of_dimensions() -> None:
    """At x = 0 every corner is equally likely, so every report is."""
    mechanism = nz.DuchiBox(epsilon=1.0, dims=2000)
    reports = mechanism.privatize(np.zeros((2, 2000)), rng=4)
    np.testing.assert_allclose(mechanism.log_prob(reports, np.zeros(2000)), -2000 * math.log(2), rtol=1e-12)


def test_shapes() -> None:
    mechanism = nz.DuchiBox(epsilon=1.0, dims=3)
    assert mechanism.privatize([0.1, 0.2, 0.3], rng=1).shape == (3,)
    assert mechanism.privatize(np.zeros((5, 3)), rng=1).shape == (5, 3)
    assert mechanism.moments(np.zeros((2, 5, 3))).variance.shape == (2, 5, 3)
    assert mechanism.log_prob(np.ones((2, 5, 3)), np.zeros(3)).shape == (2, 5)
    assert str(mechanism.support) == "{-1, 1}^3"


def test_description_survives_json() -> None:
    for mechanism in (nz.DuchiBox(epsilon=2.0, dims=3), nz.DuchiBox(2.0, domain=nz.Box(2, (0, 1), 5.0))):
        assert nz.from_spec(json.dumps(mechanism.spec())) == mechanism


@pytest.mark.parametrize(
    ("x", "message"),
    [
        ([0.0, 0.0, 1.5, 0.0], r"Expected values in \[-1, 1\] in dimension 2, got 1\.5\. Pass clip=True"),
        ([0.0, math.nan, 0.0, 0.0], "Expected finite values, got nan in dimension 1"),
        ([0.0, 0.0, 0.0, -math.inf], "Expected finite values, got -inf in dimension 3"),
        ([0.0, 0.0, 0.0], r"Expected x of shape \(\.\.\., 4\), got \(3,\)"),
        (0.5, r"Expected x of shape \(\.\.\., 4\), got \(\)"),
        (np.zeros((0, 4)), "Expected at least one value"),
    ],
)
def test_bad_values(x: object, message: str) -> None:
    mechanism = nz.DuchiBox(epsilon=1.0, dims=4)
    with pytest.raises(ValueError, match=message):
        mechanism.privatize(x)
    with pytest.raises(ValueError, match=message):
        mechanism.moments(x)


def test_clip_moves_entries_to_the_box() -> None:
    mechanism = nz.DuchiBox(epsilon=1.0, dims=4)
    inside, outside = np.asarray([1.0, -1.0, 1.0, 0.2]), np.asarray([3.0, -7.0, 1.0, 0.2])
    many = np.broadcast_to(outside, (100, 4))
    clipped = mechanism.privatize(many, clip=True, rng=3)
    assert np.array_equal(clipped, mechanism.privatize(np.broadcast_to(inside, (100, 4)), rng=3))


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"epsilon": -1.0, "dims": 4}, ValueError, r"Expected epsilon=-1\.0 > 0"),
        ({"epsilon": 1e-17, "dims": 4}, ValueError, "Expected epsilon=1e-17 >= 1e-15"),
        ({"epsilon": 1.0}, TypeError, r"Expected dims or domain: how long are the vectors\?"),
        ({"epsilon": 1.0, "dims": 0}, ValueError, "Expected 1 <= dims, got dims=0"),
        ({"epsilon": 1.0, "dims": 2.5}, TypeError, r"Expected dims=2\.5 to be an integer"),
        ({"epsilon": 1.0, "dims": 3, "domain": nz.Box(4)}, ValueError, "Expected dims=3 to be that of the domain, 4"),
        ({"epsilon": 1.0, "domain": nz.L2Ball(4)}, TypeError, "to be a Box"),
    ],
)
def test_bad_options(options: dict[str, object], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        nz.DuchiBox(**options)


def test_foreign_reports_are_refused() -> None:
    mechanism = nz.DuchiBox(epsilon=1.0, dims=4)
    for bad in ([1, 1, 0, 1], [1, 1, 2, 1], [1.0, 1.0, math.nan, 1.0], [1.0, 1.0, 0.5, 1.0]):
        with pytest.raises(ValueError, match=r"outside the support of duchi-box: \{-1, 1\}\^4"):
            mechanism.aggregate(np.asarray([[1, -1, 1, 1], bad]))
        assert mechanism.log_prob(bad, np.zeros(4)) == -math.inf
    with pytest.raises(ValueError, match=r"Expected reports of shape \(\.\.\., 4\), got \(2, 3\)"):
        mechanism.aggregate(np.ones((2, 3)))
    with pytest.raises(ValueError, match="Expected at least one report"):
        mechanism.aggregate(np.ones((0, 4)))
    with pytest.raises(TypeError, match="Expected reports to hold numbers"):
        mechanism.aggregate(np.asarray([["1", "1", "1", "1"]]))
