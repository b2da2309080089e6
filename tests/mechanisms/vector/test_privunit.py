"""PrivUnit and PrivUnitG against numerical integration of their definition, and against the laws they should draw."""

import dataclasses
import json
import math
from collections.abc import Callable
from functools import cached_property

import mpmath
import numpy as np
import numpy.typing as npt
import pytest
from scipy.integrate import cumulative_simpson, dblquad, quad, simpson
from scipy.optimize import minimize_scalar
from scipy.special import betaincc, hyp0f1, ndtr, ndtri
from scipy.stats import kstest

import noisette as nz
from noisette.mechanisms._reals import Beyond, _settle, decided, draw_normals, ends, floors, interval_arithmetic
from noisette.mechanisms.tensor.gaussian._normal import build_table
from noisette.mechanisms.vector.caps.exact import Drawn, ExactRow
from noisette.mechanisms.vector.caps.laws import Cap, NormalProjection, SphereProjection

FALSE_ALARM = 1e-6
BUDGETS = [1e-6, 1e-3, 0.1, 1.0, 4.0, 8.0, 30.0, 50.0, 200.0, 1e3]
BOTH = pytest.mark.parametrize("cls", [nz.PrivUnit, nz.PrivUnitG])
FloatArray = npt.NDArray[np.float64]


Density = Callable[[FloatArray], FloatArray]


def integral(function: Density, low: float, high: float) -> float:
    """Integrate a smooth function by Simpson's rule."""
    grid = np.linspace(low, high, 4001)
    return float(simpson(function(grid), x=grid))


def angle_density(dims: int) -> Density:
    """Return the density of the angle between u and v on the sphere, without its normaliser."""
    return lambda angle: np.sin(angle) ** (dims - 2)


def normal_density(t: FloatArray) -> FloatArray:
    """Return the standard normal density, without its normaliser."""
    return np.exp(-np.square(t) / 2)


def largest_mean(epsilon: float, density: Density, reach: Density, inside: tuple[float, float], far: float) -> float:
    """Return the largest E[T] over all caps from their definition: p inside, 1 - p outside, density ratio exp(epsilon).

    The cap goes from the first end of ``inside`` to a point before the second, its complement from there to ``far``.
    """

    def mean(edge: float) -> float:
        masses, parts = [], []
        for low, high in ((inside[0], edge), (edge, far)):
            masses.append(integral(density, low, high))
            parts.append(integral(lambda s: density(s) * reach(s), low, high))
        odds = math.exp(epsilon) * masses[0] / masses[1]
        return (odds * parts[0] / masses[0] + parts[1] / masses[1]) / (1 + odds)

    return -float(minimize_scalar(lambda edge: -mean(edge), bounds=sorted(inside), options={"xatol": 1e-9}).fun)


@pytest.mark.parametrize(("epsilon", "second_moment"), [(1.0, 6.33), (4.0, 0.436), (8.0, 0.133)])
def test_reference_second_moment_in_a_thousand_dimensions(epsilon: float, second_moment: float) -> None:
    """The specification's table is E||report||^2 = 1/m^2 in units of d; a box holds vectors of length up to sqrt(d)."""
    mechanism = nz.PrivUnit(epsilon=epsilon, dims=1000)
    assert float(f"{1 / mechanism.cap.mean**2 / 1000:.3g}") == second_moment
    box = nz.PrivUnit(epsilon=epsilon, domain=nz.L2Ball(1000, math.sqrt(1000)))
    x = np.random.default_rng(0).uniform(-1, 1, 1000)
    assert box.moments(x).variance.mean() / 1000 == pytest.approx(second_moment, rel=0.005)


@pytest.mark.parametrize("dims", [3, 4, 10, 50])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0])
def test_mean_is_the_largest_of_all_caps(epsilon: float, dims: int) -> None:
    expected = largest_mean(epsilon, angle_density(dims), np.cos, (0.0, math.pi / 2), math.pi)
    assert nz.PrivUnit(epsilon=epsilon, dims=dims).cap.mean == pytest.approx(expected, rel=1e-8)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0, 8.0])
def test_normal_mean_is_the_largest_of_all_caps(epsilon: float) -> None:
    expected = largest_mean(epsilon, normal_density, lambda t: t, (14.0, 0.0), -14.0)
    assert nz.PrivUnitG(epsilon=epsilon, dims=5).cap.mean == pytest.approx(expected, rel=1e-8)


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", BUDGETS)
def test_the_best_cap_ends_where_its_mean_is(epsilon: float) -> None:
    """gamma = m at the optimum; the twin, a cap one percent further out, has a smaller mean."""
    for projection in (NormalProjection(), SphereProjection(100), SphereProjection(10**6)):
        cap = Cap.build(projection, epsilon)
        if cap.gamma < 0.99 * projection.limit:
            assert cap.gamma == pytest.approx(cap.mean, rel=1e-8)
            if epsilon < 0.1:  # the mean hardly depends on gamma
                continue
            further = 1.01 * cap.gamma
            log_floor = -epsilon - math.log(-math.expm1(-epsilon))
            log_mean = projection.log_part(further) - np.logaddexp(log_floor, projection.log_mass(further))
            assert log_mean < math.log(cap.mean)


@pytest.mark.slow
@pytest.mark.parametrize("dims", [2, 3, 5, 1000, 10**6])
def test_mass_of_a_cap_far_out(dims: int) -> None:
    """ln q in sixty digits, across the switch from the incomplete beta function to the integral against exp(-t)."""
    projection = SphereProjection(dims)
    for target in (0.5, 5.0, 100.0, 500.0, 600.0, 1000.0):
        gamma = min(math.sqrt(-math.expm1(-2 * target / dims)), 1 - 2.0**-21)
        with mpmath.workdps(60):
            a = mpmath.mpf(dims - 1) / 2
            s = 1 - mpmath.mpf(gamma) ** 2
            # I_s(a, 1/2) by its series, all of whose terms are positive
            expected = mpmath.log(mpmath.hyp2f1(a + 0.5, 1, a + 1, s) * s**a * gamma / (2 * a * mpmath.beta(a, 0.5)))
            part = a * mpmath.log(s) - mpmath.log(2 * a * mpmath.beta(a, 0.5))
        assert projection.log_mass(gamma) == pytest.approx(float(expected), rel=1e-11, abs=1e-12)
        assert projection.log_part(gamma) == pytest.approx(float(part), rel=1e-12, abs=1e-12)


def test_few_dimensions_and_one() -> None:
    """In one dimension the sphere is {-1, 1} and PrivUnit is randomised response."""
    for epsilon in (0.1, 1.0, 5.0):
        mechanism = nz.PrivUnit(epsilon=epsilon, dims=1)
        assert mechanism.cap.mean == pytest.approx(math.tanh(epsilon / 2), rel=1e-12)
        assert mechanism.cap.p_cap == pytest.approx(1 / (1 + math.exp(-epsilon)), rel=1e-12)
        x = np.repeat([[1.0], [-1.0]], 50_000, axis=0)
        reports = mechanism.privatize(x, rng=1)
        np.testing.assert_allclose(np.abs(reports), 1 / math.tanh(epsilon / 2), atol=2 * mechanism.support.step)
        agreeing = int((np.sign(reports) == x).sum())
        expected = len(x) * mechanism.cap.p_cap
        spread = math.sqrt(expected * (1 - mechanism.cap.p_cap))
        assert abs(agreeing - expected) < -ndtri(FALSE_ALARM / 2) * spread


@pytest.mark.long
@BOTH
@pytest.mark.parametrize(
    ("dims", "epsilon"),  # most of a million dimensions is to store them: the least budget, the largest and two between
    [(dims, epsilon) for dims in (1, 2, 3, 1000) for epsilon in BUDGETS]
    + [(10**6, epsilon) for epsilon in (1e-6, 1.0, 30.0, 1e3)],
)
def test_exact_epsilon(cls: type[nz.PrivUnit], epsilon: float, dims: int) -> None:
    for domain in (nz.Sphere(dims, 3.0), nz.L2Ball(dims, 0.2)):
        mechanism = cls(epsilon=epsilon, domain=domain)
        exact = nz.exact_epsilon(mechanism)
        assert exact <= epsilon
        capped = mechanism.cap.plain == 2.0**-36
        assert capped or exact == pytest.approx(epsilon, rel=1e-5)
        if capped:
            assert exact > 24.9


@pytest.mark.long
@BOTH
@pytest.mark.parametrize("epsilon", BUDGETS[::3])  # the ends, 1 and 30
def test_extreme_budgets_and_dimensions(cls: type[nz.PrivUnit], epsilon: float) -> None:
    for dims in (1, 2, 1000, 10**5):
        for domain in (nz.Sphere(dims), nz.L2Ball(dims)):
            mechanism = cls(epsilon=epsilon, domain=domain)
            inputs = mechanism.witnesses()[0]
            reports = mechanism.privatize(inputs, rng=3)
            assert np.all(mechanism.support.contains(reports))
            assert np.all(np.isfinite(mechanism.log_prob(reports, inputs)))
            moments = mechanism.moments(inputs[:1])
            assert np.all(moments.variance > 0)
            assert np.all(np.isfinite(moments.third))
            assert mechanism.support.step <= math.sqrt(float(moments.variance.min())) / 2**15
            assert np.all(np.isfinite(mechanism.aggregate(reports).estimate().value))


@pytest.mark.long
@BOTH
def test_contract_on_balls_and_spheres(cls: type[nz.PrivUnit]) -> None:
    for domain in (nz.Sphere(2, 0.5), nz.L2Ball(3, 7.0)):
        nz.testing.check_mechanism(cls(epsilon=2.0, domain=domain), samples=30_000)


@BOTH
def test_a_cap_drawn_too_often_is_rejected(cls: type[nz.PrivUnit]) -> None:
    """The twin: a larger p has a smaller error and a larger epsilon; stating it or not, it fails."""

    class Eager(cls):
        @cached_property
        def cap(self) -> Cap:
            cap: Cap = super().cap
            return dataclasses.replace(cap, plain=cap.plain - 0.02)

    assert nz.exact_epsilon(Eager(epsilon=1.0, dims=4)) > 1.01
    with pytest.raises(AssertionError, match="exact epsilon"):
        nz.testing.check_mechanism(Eager(epsilon=1.0, dims=4), samples=10_000)


@pytest.mark.slow
@BOTH
def test_a_wrong_scale_is_rejected(cls: type[nz.PrivUnit]) -> None:
    class Shrunk(cls):
        @cached_property
        def cap(self) -> Cap:
            cap: Cap = super().cap
            return dataclasses.replace(cap, mean=0.9 * cap.mean)

    with pytest.raises(AssertionError, match="biased"):
        nz.testing.check_mechanism(Shrunk(epsilon=6.0, dims=4))


@pytest.mark.slow
@BOTH
def test_a_likelihood_of_another_cap_is_rejected(cls: type[nz.PrivUnit]) -> None:
    """The density integrates to one over reports without a preferred direction; with another cap's mass it does not."""
    rng = np.random.default_rng(8)
    size = 200_000
    for domain in (nz.Sphere(3), nz.L2Ball(3)):
        mechanism = cls(epsilon=2.0, domain=domain)
        base = rng.standard_normal((size, 4 if domain.kind == "l2-ball" else 3))
        if cls is nz.PrivUnit:
            base /= np.linalg.norm(base, axis=1, keepdims=True)
        step = mechanism.support.step
        reports = np.floor(base[:, :3] / mechanism.cap.mean / step + rng.random((size, 1))) * step
        for x in (np.asarray([0.6, 0.0, -0.8]), np.asarray([0.1, 0.2, 0.3]), np.zeros(3)):
            if domain.kind == "sphere" and abs(np.linalg.norm(x) - 1) > 1e-9:
                continue
            density = np.exp(mechanism.log_prob(reports, x))
            error = -ndtri(FALSE_ALARM / 2) * density.std() / math.sqrt(size) + 1e-12
            assert abs(density.mean() - 1) < error
            if np.ptp(density) > 0.5:
                assert abs(np.where(density > 1, 1.1 * density, density).mean() - 1) > error


@pytest.mark.long
@BOTH
def test_a_short_vector_mixes_what_its_lifts_would_give(cls: type[nz.PrivUnit]) -> None:
    """The density of a report given x in the ball is the mean of the sphere's over the coordinate that is left out."""
    ball = cls(epsilon=3.0, domain=nz.L2Ball(2))
    x = np.asarray([0.3, -0.5])
    lifted = np.append(x, math.sqrt(1 - x @ x))
    reports = ball.privatize(np.broadcast_to(x, (200, 2)), rng=5)
    inside, outside = np.exp(ball.cap.log_weights)
    hidden = np.random.default_rng(1).standard_normal(100_000)
    for report in reports[:20]:
        visible = report * ball.cap.mean
        if cls is nz.PrivUnit:
            height = math.sqrt(max(0.0, 1 - visible @ visible))
            reach = np.asarray([visible @ x + height * lifted[2], visible @ x - height * lifted[2]])
            error = 1e-9
        else:
            reach = visible @ x + hidden * lifted[2]
            error = -ndtri(FALSE_ALARM / 40) * inside / 2 / math.sqrt(hidden.size)
        expected = np.where(reach >= ball.cap.gamma, inside, outside).mean()
        assert math.exp(ball.log_prob(report, x)) == pytest.approx(expected, abs=error)


def conditional_cdf(projection: SphereProjection | NormalProjection, gamma: float, t: FloatArray) -> FloatArray:
    """Return P(T <= t | T >= gamma) by Simpson's rule on the density."""
    if isinstance(projection, SphereProjection):
        grid = np.linspace(math.acos(gamma), 0.0, 200_001)
        density = (np.sin(grid) / math.sin(math.acos(gamma))) ** (projection.dims - 2)
        points, along = np.cos(grid), -grid
    else:
        points = along = np.linspace(gamma, gamma + 12, 200_001)
        density = np.exp((gamma**2 - points**2) / 2)
    mass = np.abs(cumulative_simpson(density, x=along, initial=0))
    return np.interp(t, points, mass / mass[-1])


@pytest.mark.slow
@pytest.mark.parametrize("dims", [0, 2, 3, 4, 5, 10, 1000, 10**6])
@pytest.mark.parametrize("epsilon", [0.01, 0.5, 4.0, 60.0])
def test_reaches_follow_their_law(epsilon: float, dims: int) -> None:
    """Kolmogorov and Smirnov's test with Massart's bound; ``dims`` 0 is the normal law. The twin draws another cap."""
    projection = SphereProjection(dims) if dims else NormalProjection()
    gamma = Cap.build(projection, epsilon).gamma
    size = 50_000
    limit = math.sqrt(math.log(2 / FALSE_ALARM) / 2 / size)
    rng, ranks = np.random.default_rng(17), np.arange(1, size + 1) / size
    drawn = projection.proposal(gamma).draw(rng, size)
    assert np.all(drawn.t >= gamma)
    if dims:
        np.testing.assert_allclose(drawn.t**2 + drawn.rest, 1, atol=1e-12)
    assert np.abs(conditional_cdf(projection, gamma, np.sort(drawn.t)) - ranks).max() < limit
    wrong = np.sort(projection.proposal(0.5 * gamma).draw(rng, size).t)
    if epsilon > 0.01:
        assert np.abs(conditional_cdf(projection, gamma, wrong) - ranks).max() > limit


@pytest.mark.slow
@pytest.mark.parametrize("dims", [0, 2, 3, 4, 1000])
@pytest.mark.parametrize("epsilon", [8.0, *(pytest.param(e, marks=pytest.mark.slow) for e in (0.5, 60.0))])
def test_reaches_are_within_their_error_bounds(epsilon: float, dims: int) -> None:
    """T and 1 - T^2 in many digits of the same uniform number; bounds a thousand times smaller would not hold."""
    projection = SphereProjection(dims) if dims else NormalProjection()
    drawn = Cap.build(projection, epsilon).proposal.draw(np.random.default_rng(3), 200)
    too_small = 0
    for place in range(200):
        context = interval_arithmetic(256)
        digits = drawn.digits(place)
        digits.reach(192)
        exact = drawn.proposal.within(context, digits.within(context))
        for value, near, error in zip(exact, (drawn.t, drawn.rest), (drawn.t_error, drawn.rest_error), strict=True):
            gap = max(abs(end - mpmath.mpf(float(near[place]))) for end in ends(value))
            if dims or value is exact[0]:
                assert gap <= error[place]
                too_small += gap > error[place] / 1000
    assert too_small > 50


@pytest.mark.parametrize("dims", [1, 2, 3, 4, 50, 1000, 10**5])
@pytest.mark.parametrize("gamma", [1e-9, 0.003, 0.09, 0.5, 0.8, 0.9999])
def test_limits_of_the_mass_of_a_cap(dims: int, gamma: float) -> None:
    """Against another series, of terms of both signs: P(0 <= T <= gamma) = gamma 2F1(1/2, 1 - a; 3/2; gamma^2) / B."""
    projection = SphereProjection(dims)
    low, high = projection.mass_within(gamma)
    with mpmath.workprec(700 + int(-4 * projection.log_mass(gamma))):
        assert low <= high <= low * (1 + mpmath.ldexp(1, -100))
        a, g = mpmath.mpf(dims - 1) / 2, mpmath.mpf(gamma)
        if dims == 1:
            expected = mpmath.mpf(0.5)
        elif dims <= 50 or gamma < 0.2:
            expected = mpmath.mpf(0.5) - g * mpmath.hyp2f1(0.5, 1 - a, 1.5, g**2) / mpmath.beta(a, 0.5)
        else:
            return
        assert low <= expected <= high
        if dims > 1:
            assert projection.mass_within(gamma * (1 + 1e-12))[1] < low


def test_limits_of_the_tail_of_a_normal_law() -> None:
    """Against the sum of gamma^(2n+1)/(2n+1)!!, and far out between two convergents of Laplace's continued fraction."""
    for gamma in (0.0, 1e-3, 2.7, 12.0, 60.0):
        low, high = NormalProjection().mass_within(gamma)
        with mpmath.workprec(900):
            g = mpmath.mpf(gamma)
            density = mpmath.exp(-(g**2) / 2) / mpmath.sqrt(2 * mpmath.pi)
            if gamma < 20:
                term = total = g
                for n in range(1, 2000):
                    term *= g**2 / (2 * n + 1)
                    total += term
                assert low <= mpmath.mpf(0.5) - density * total <= high
            else:
                first, second = (_convergent(g, n) for n in (199, 200))
                assert low <= density * max(first, second)
                assert density * min(first, second) <= high


def _convergent(g: mpmath.mpf, terms: int) -> mpmath.mpf:
    """Return 1/(g + 1/(g + 2/(g + ... terms/g)))."""
    value = g
    for n in range(terms, 0, -1):
        value = g + n / value
    return 1 / value


class Fine:
    """A lattice so fine that float64 is often wrong about it."""

    @cached_property
    def _step(self) -> float:
        step: float = super()._step  # type: ignore[misc]
        return step * 2.0**-32


class Finer(Fine, nz.PrivUnit):
    """PrivUnit on it."""


class FinerG(Fine, nz.PrivUnitG):
    """PrivUnitG on it."""


@dataclasses.dataclass
class Kept(Drawn):
    """What was drawn, and the digits that were drawn later."""

    rows: dict[int, ExactRow] = dataclasses.field(default_factory=dict)

    def row(self, number: int) -> ExactRow:
        return self.rows.setdefault(number, super().row(number))


@pytest.mark.slow
@pytest.mark.parametrize("cls", [Finer, FinerG])
@pytest.mark.parametrize(("epsilon", "dims"), [(8.0, 1), (0.5, 2), (8.0, 3), (40.0, 4), (8.0, 70)])
@pytest.mark.parametrize("lifted", [False, True])
def test_every_entry_is_the_real_number_rounded(cls: type[Finer], epsilon: float, dims: int, lifted: bool) -> None:
    """The reports follow from the digits that were drawn, whatever float64 makes of them.

    Each entry of some reports is computed again with 192 digits or more. On this lattice plain float64 gives another
    point for many of them, which is the twin.
    """
    rng = np.random.default_rng(5)
    people = 20 if dims < 70 else 3
    rows = rng.standard_normal((people, dims))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    if lifted:
        rows *= np.append(rng.random(people - 2), [1.0, 0.0])[:, None]
    mechanism = cls(epsilon=epsilon, domain=(nz.L2Ball if lifted else nz.Sphere)(dims))
    step, ambient = mechanism.support.step, dims + lifted
    drawn = Kept(
        draw_normals(rng, people, ambient),
        mechanism.cap.proposal.draw(rng, people),
        rng.random(people) < 0.3,
        rng.random(people),
    )
    reports = np.empty_like(rows)
    mechanism._round(rows, drawn, reports)
    lifts = mechanism._unit(rows)[1]
    wrong = 0
    for row in range(people):
        exact = mechanism._exactly(rows[row], float(lifts[row]), drawn.row(row), list(range(dims)))
        assert np.array_equal(reports[row], exact)
        w = np.append(rows[row], lifts[row])[:ambient]
        g, t = drawn.normals.near[row], drawn.reaches.t[row]
        v = w / np.linalg.norm(w)
        u, across = g, g - (g @ v) * v
        if cls is Finer:
            u = g / np.linalg.norm(g)
            across *= math.sqrt(max(0.0, 1 - t**2)) / np.linalg.norm(across) if ambient > 1 else 0.0
        near = u if drawn.plain[row] else t * v + across
        plain_float = np.floor(near[:dims] * mechanism._scale + drawn.uniform[row]) * step
        np.testing.assert_allclose(plain_float, reports[row], atol=2.0**-36 * np.abs(reports).max())
        wrong += int((plain_float != reports[row]).sum())
    assert wrong > 0 or dims < 4


def test_digits_behind_those_of_float64_count() -> None:
    """Ends of intervals are compared with all their digits: 2 - 2^-100 is below 2."""
    context = interval_arithmetic(192)
    below = context.mpf(2) - context.mpf(2) ** -100
    assert floors(below) == (1, 1)
    assert ends(below)[1] < 2
    assert decided(below - 2) is False


@pytest.mark.slow
def test_normal_draws_and_their_digits() -> None:
    """Near values agree with the digits; rare draws, of ties, wedges and the tail, follow the law of their part."""
    rng = np.random.default_rng(11)
    block = draw_normals(rng, 300, 300)
    assert kstest(block.near.reshape(-1), "norm").pvalue > FALSE_ALARM
    row = block.row(7)
    low, high, digits = row.sizes(interval_arithmetic(256))
    for size, above, sign, near in zip(low, high, row.signs, block.near[7], strict=True):
        assert size < above
        gap = abs(sign * mpmath.ldexp(size, -digits) - mpmath.mpf(float(near)))
        assert gap <= abs(near) * 2.0**-52 + 2.0**-68
    context = interval_arithmetic(192)
    beyond = [float(ends(Beyond(rng).within(context))[0]) for _ in range(150)]
    assert kstest(beyond, lambda z: 1 - ndtr(-z) / ndtr(-8.0)).pvalue > FALSE_ALARM
    assert kstest(beyond, lambda z: 1 - np.exp(-4 * (z - 8))).pvalue < FALSE_ALARM


@pytest.mark.slow
def test_rare_draws_are_as_likely_as_their_parts() -> None:
    """With words that the loop leaves open, all of them, the same law comes out of the exact part alone."""
    rng = np.random.default_rng(2)
    table, block = build_table(), draw_normals(rng, 1, 800)
    words = rng.integers(0, 2**64, 800, dtype=np.uint64).tolist()
    for place, word in enumerate(words):
        column, chance = word >> 32 & 511, word >> 42
        shown = int(table.shown[column])
        part = 512 if chance == shown else column if chance < shown else int(table.alias[column])
        _settle(block, table, place, part, word, [])
    assert len(block.rare) == 800
    assert kstest(block.near[0], "norm").pvalue > FALSE_ALARM
    assert kstest(block.near[0], "norm", args=(0, 1.6)).pvalue < FALSE_ALARM


@pytest.mark.slow
@BOTH
@pytest.mark.parametrize("epsilon", [0.5, 3.0, 9.0])
def test_covariance_of_reports(cls: type[nz.PrivUnit], epsilon: float) -> None:
    """base I + (gamma m - m^2) v v', so diagonal where gamma = m: the rest of u has no direction of its own."""
    size, v = 200_000, np.asarray([0.5, -0.5, 0.1, 0.7])
    mechanism = cls(epsilon=epsilon, dims=4)
    reports = mechanism.privatize(np.broadcast_to(v, (size, 4)), rng=6) - v
    level = -ndtri(FALSE_ALARM / 20)
    for i in range(4):
        for j in range(i + 1):
            product = reports[:, i] * reports[:, j]
            expected = mechanism.moments(v).variance[i] if i == j else 0.0
            assert abs(product.mean() - expected) < level * product.std() / math.sqrt(size)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 6.0, 60.0])
@pytest.mark.parametrize("dims", [2, 3, 10, 300])
def test_variance_is_that_of_the_law(epsilon: float, dims: int) -> None:
    """E[u_i^2] = v^2 E[T^2] + (1 - v^2) E[1 - T^2] / (d - 1), integrated; and in total 1/m^2 - 1."""
    mechanism = nz.PrivUnit(epsilon=epsilon, dims=dims)
    cap = mechanism.cap
    density, second, edge = angle_density(dims), 0.0, math.acos(cap.gamma)
    for p_side, low, high in ((cap.p_cap, 0.0, edge), (1 - cap.p_cap, edge, math.pi)):
        sine_squared = integral(lambda a: density(a) * np.sin(a) ** 2, low, high) / integral(density, low, high)
        second += p_side * (1 - sine_squared)
    x = np.zeros(dims)
    x[:2] = [0.6, -0.8]
    expected = (x**2 * second + (1 - x**2) * (1 - second) / (dims - 1)) / cap.mean**2 - x**2
    np.testing.assert_allclose(mechanism.moments(x).variance, expected, rtol=1e-6, atol=1e-12)
    assert mechanism.moments(x).variance.sum() == pytest.approx(1 / cap.mean**2 - 1, rel=1e-6)


def double_integral(
    cap: Cap,
    v: float,
    law: Callable[[float], float],
    rest: Callable[[float], float],
    length: Callable[[float], float],
    ends: tuple[float, float, float],
) -> float:
    """Return E|u_i - m v|^3 for T of density ``law`` and w of density ``rest`` on [-end, end] times ``length(T)``."""
    low, high, end = ends
    other, total = math.sqrt(1 - v * v), 0.0

    def cubed(w: float, t: float) -> float:
        return law(t) * rest(w) * abs(v * (t - cap.mean) + other * length(t) * w) ** 3

    for p_side, first, last in ((cap.p_cap, cap.gamma, high), (1 - cap.p_cap, low, cap.gamma)):
        mass = quad(law, first, last)[0] * quad(rest, -end, end)[0]
        total += p_side * dblquad(cubed, first, last, -end, end, epsabs=1e-10, epsrel=1e-9)[0] / mass
    return total / cap.mean**3


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [0.5, 3.0, 8.0])
def test_third_moment_on_the_sphere(epsilon: float) -> None:
    """In four dimensions T has density sqrt(1 - t^2) and the rest is uniform on [-1, 1] times its length."""
    mechanism = nz.PrivUnit(epsilon=epsilon, dims=4)
    for v in (0.0, 0.3, 0.8, 1.0):
        half_circle = lambda t: math.sqrt(1 - t * t)  # noqa: E731
        expected = double_integral(mechanism.cap, v, half_circle, lambda w: 1.0, half_circle, (-1.0, 1.0, 1.0))
        third = mechanism.moments([v, math.sqrt(1 - v * v), 0.0, 0.0]).third[0]
        assert third == pytest.approx(expected, rel=1e-7)
        assert third != pytest.approx(
            mechanism.moments([v, math.sqrt(1 - v * v), 0.0, 0.0]).variance[0] ** 1.5, rel=0.01
        )


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [0.5, 3.0, 8.0])
def test_third_moment_of_the_normal_variant(epsilon: float) -> None:
    mechanism = nz.PrivUnitG(epsilon=epsilon, dims=2)
    for v in (0.0, 0.3, 0.8, 1 - 1e-9):
        bell = lambda t: math.exp(-t * t / 2)  # noqa: E731
        ends = (-9.0, mechanism.cap.gamma + 9, 9.0)
        expected = double_integral(mechanism.cap, v, bell, bell, lambda t: 1.0, ends)
        assert mechanism.moments([v, math.sqrt(1 - v * v)]).third[0] == pytest.approx(expected, rel=1e-7)


@pytest.mark.slow
@pytest.mark.parametrize("dims", [2, 3, 5, 40])
def test_third_moment_in_other_dimensions(dims: int) -> None:
    """Against the mean over half a million draws of an entry, with its own error."""
    cap = nz.PrivUnit(epsilon=3.0, dims=dims).cap
    rng = np.random.default_rng(2)
    size = 500_000
    plain = rng.random(size) < cap.plain
    anywhere = rng.standard_normal(size)
    anywhere /= np.sqrt(anywhere**2 + 2 * rng.standard_gamma((dims - 1) / 2, size))
    drawn = cap.proposal.draw(rng, size)
    t = np.where(plain, anywhere, drawn.t)
    length = np.sqrt(np.where(plain, 1 - anywhere**2, drawn.rest))
    w = rng.standard_normal(t.size) if dims > 2 else np.sign(rng.standard_normal(t.size))
    if dims > 2:
        w /= np.sqrt(w**2 + 2 * rng.standard_gamma((dims - 2) / 2, t.size))
    for v in (0.0, 0.5, 0.95):
        cubed = np.abs(v * (t - cap.mean) + math.sqrt(1 - v * v) * length * w) ** 3
        error = -ndtri(FALSE_ALARM / 6) * cubed.std() / math.sqrt(cubed.size)
        third = float(cap.third(math.asin(v)))
        assert abs(third - cubed.mean()) < error
        assert error < 0.03 * third


def log_mgf(cap: Cap, v: float, rate: float) -> float:
    """Return ln E exp(rate (u_i - m v)), with the rest of u integrated in closed form."""
    total = 0.0
    for p_side, above in ((cap.p_cap, True), (1 - cap.p_cap, False)):
        t, length, weight = cap.projection.nodes(cap.gamma, above)
        scale = rate * math.sqrt(1 - v * v) * length
        if isinstance(cap.projection, SphereProjection):
            rest = hyp0f1((cap.projection.dims - 1) / 2, scale**2 / 4)
        else:
            rest = np.exp(scale**2 / 2)
        total += p_side * float((weight * rest * np.exp(rate * v * (t - cap.mean))).sum())
    return math.log(total)


@pytest.mark.slow
@pytest.mark.parametrize("dims", [0, 2, 3, 4, 6, 50, 10**5])
@pytest.mark.parametrize("epsilon", [1e-3, 1.0, 5.0, 12.0])
def test_tail_bound_holds(epsilon: float, dims: int) -> None:
    """The log moment generating function stays under that of the normal law; ``dims`` 0 is PrivUnitG."""
    cap = Cap.build(SphereProjection(dims) if dims else NormalProjection(), epsilon)
    for v in (0.0, 0.1, 0.5, 0.9, 1.0):
        for rate in np.concatenate([-np.geomspace(0.01, 12, 6), np.geomspace(0.01, 12, 6)]) / math.sqrt(cap.proxy):
            assert log_mgf(cap, v, float(rate)) <= cap.proxy * rate**2 / 2 * (1 + 1e-9) + 1e-13


def test_the_plain_variance_is_no_tail_bound() -> None:
    """The twin: with the variance of a report in place of the proxy the bound fails."""
    cap = Cap.build(NormalProjection(), 8.0)
    rates = np.linspace(-3, -0.1, 30)
    assert any(log_mgf(cap, 1.0, float(rate)) > cap.base * rate**2 / 2 for rate in rates)


@pytest.mark.slow
@BOTH
def test_estimate_and_intervals(cls: type[nz.PrivUnit]) -> None:
    size, radius = 40_000, 5.0
    mechanism = cls(epsilon=4.0, domain=nz.L2Ball(30, radius))
    rng = np.random.default_rng(9)
    x = rng.standard_normal((size, 30)) + 0.5
    x *= radius * rng.random((size, 1)) / np.linalg.norm(x, axis=1, keepdims=True)
    x[0] = 0.0
    estimate = mechanism.aggregate(mechanism.privatize(x, rng=10)).estimate()
    level = -ndtri(FALSE_ALARM / 60)
    stated = np.sqrt(mechanism.moments(x[:50]).variance.mean(axis=0) / size)
    assert np.all(np.abs(estimate.value - x.mean(axis=0)) < level * stated)
    assert np.all(estimate.std_error > 0.97 * stated)
    low, high = estimate.interval(1 - FALSE_ALARM / 30, method="finite")
    assert np.all((low <= x.mean(axis=0)) & (x.mean(axis=0) <= high))
    assert np.all(high - low < 6 * level * stated)
    assert (estimate.low, estimate.high) == (-radius, radius)


def test_rounding_to_the_lattice_is_unbiased() -> None:
    """PrivUnit in one dimension reports 1/m rounded: both neighbours appear, in the right proportion."""
    mechanism = nz.PrivUnit(epsilon=1.0, dims=1)
    size, step = 200_000, mechanism.support.step
    size_of_report = np.abs(mechanism.privatize(np.ones((size, 1)), rng=4))
    exact = 1 / mechanism.cap.mean
    assert math.log2(step) % 1 == 0
    assert np.all(np.abs(size_of_report - exact) < step)
    assert len(np.unique(size_of_report)) == 2
    assert abs(size_of_report.mean() - exact) < -ndtri(FALSE_ALARM / 2) * step / 2 / math.sqrt(size)


def test_sums_are_exact_and_split_anyhow() -> None:
    mechanism = nz.PrivUnitG(epsilon=2.0, dims=70_001)
    x = np.full((5, 70_001), 1 / math.sqrt(70_001))
    reports = mechanism.privatize(x, rng=1)
    whole = mechanism.aggregate(reports)
    codes = (reports / mechanism.support.step).astype(np.int64)
    assert np.array_equal(whole.total, codes.sum(axis=0))
    assert mechanism.aggregate(reports[:2]) + mechanism.aggregate(reports[2:]) == whole


def test_both_agree_in_many_dimensions() -> None:
    sphere, normal = nz.PrivUnit(epsilon=8.0, dims=10**6), nz.PrivUnitG(epsilon=8.0, dims=10**6)
    assert sphere.cap.mean * 1000 == pytest.approx(normal.cap.mean, rel=1e-5)
    x = np.full((1, 10**6), 1e-3)
    for mechanism in (sphere, normal):
        report = mechanism.privatize(x, rng=2)
        assert np.linalg.norm(report) == pytest.approx(1000 / normal.cap.mean, rel=0.01)


@BOTH
def test_almost_unit_vectors_are_taken_as_unit_vectors(cls: type[nz.PrivUnit]) -> None:
    mechanism = cls(epsilon=1.0, dims=3)
    x = np.asarray([[0.6, 0.0, -0.8]])
    assert np.array_equal(mechanism.privatize(x, rng=1), mechanism.privatize(x * (1 + 2.0**-30), rng=1))
    assert mechanism.privatize(x.astype(np.float32), rng=1).dtype == np.float64


@BOTH
def test_shapes_and_json(cls: type[nz.PrivUnit]) -> None:
    mechanism = cls(epsilon=1.0, domain=nz.L2Ball(3, 2.0))
    assert mechanism.dims == 3
    assert mechanism.privatize([0.1, 0.2, 0.3], rng=1).shape == (3,)
    assert mechanism.privatize(np.zeros((5, 3)), rng=1).shape == (5, 3)
    assert mechanism.moments(np.zeros((2, 5, 3))).third.shape == (2, 5, 3)
    assert mechanism.log_prob(np.zeros((2, 5, 3)), np.zeros(3)).shape == (2, 5)
    for each in (mechanism, cls(epsilon=2.0, dims=4), cls(epsilon=2.0, domain=nz.Sphere(4, 0.1))):
        assert nz.from_spec(json.dumps(each.spec())) == each
    assert isinstance(cls(epsilon=1.0, dims=4).domain, nz.Sphere)


@BOTH
@pytest.mark.parametrize(
    ("x", "message"),
    [
        (
            [0.6, 0.6, 0.0],
            r"Expected vectors of length 1, got one of length 0\.848528\. For shorter ones take domain=L2Ball\(3, 1\)",
        ),
        ([0.0, 0.0, 0.0], "Expected vectors of length 1, got one of length 0"),
        ([0.6, math.nan, 0.8], "Expected finite values, got nan in dimension 1"),
        ([math.inf, 0.0, 0.0], "Expected finite values, got inf in dimension 0"),
        ([0.6, 0.8], r"Expected x of shape \(\.\.\., 3\), got \(2,\)"),
        (np.zeros((0, 3)), "Expected at least one value"),
    ],
)
def test_bad_values(cls: type[nz.PrivUnit], x: object, message: str) -> None:
    mechanism = cls(epsilon=1.0, dims=3)
    with pytest.raises(ValueError, match=message):
        mechanism.privatize(x)
    with pytest.raises(ValueError, match=message):
        mechanism.moments(x)
    with pytest.raises(ValueError, match=message):
        mechanism.log_prob(np.zeros(3), x)


@BOTH
def test_clip(cls: type[nz.PrivUnit]) -> None:
    sphere, ball = cls(epsilon=1.0, dims=2), cls(epsilon=1.0, domain=nz.L2Ball(2, 5.0))
    assert np.array_equal(sphere.privatize([[3.0, 4.0]], clip=True, rng=1), sphere.privatize([[0.6, 0.8]], rng=1))
    assert np.array_equal(ball.privatize([[30.0, 40.0]], clip=True, rng=1), ball.privatize([[3.0, 4.0]], rng=1))
    with pytest.raises(ValueError, match="a zero vector has no direction"):
        sphere.privatize([[0.0, 0.0]], clip=True)
    with pytest.raises(ValueError, match="Expected vectors of length at most 5, got one of length 50"):
        ball.privatize([[30.0, 40.0]])


@BOTH
@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"epsilon": 0.0, "dims": 4}, ValueError, r"Expected epsilon=0\.0 > 0"),
        ({"epsilon": 1e-17, "dims": 4}, ValueError, "Expected epsilon=1e-17 >= 1e-14"),
        ({"epsilon": 1.0}, TypeError, "Expected dims or domain"),
        ({"epsilon": 1.0, "dims": -3}, ValueError, "Expected 1 <= dims, got dims=-3"),
        (
            {"epsilon": 1.0, "dims": 3, "domain": nz.Sphere(4)},
            ValueError,
            "Expected dims=3 to be that of the domain, 4",
        ),
        ({"epsilon": 1.0, "domain": nz.Box(4)}, TypeError, "to be a L2Ball"),
        ({"epsilon": 1.0, "domain": nz.L2Ball(4, 1e-200)}, ValueError, r"Expected radius=1e-200 in \[1e-100, 1e100\]"),
    ],
)
def test_bad_options(cls: type[nz.PrivUnit], options: dict[str, object], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        cls(**options)


@BOTH
def test_foreign_reports_are_refused(cls: type[nz.PrivUnit]) -> None:
    mechanism = cls(epsilon=1.0, dims=3)
    x = np.asarray([0.6, 0.0, -0.8])
    report = mechanism.privatize(x, rng=1)
    step = mechanism.support.step
    for bad in (report + step / 2, report * 1e6, np.full(3, math.nan), np.full(3, math.inf)):
        with pytest.raises(ValueError, match=f"outside the support of {mechanism.name}: vectors of multiples of"):
            mechanism.aggregate(np.stack([report, bad]))
        assert mechanism.log_prob(bad, x) == -math.inf
    with pytest.raises(ValueError, match=r"Expected reports of shape \(\.\.\., 3\), got \(4,\)"):
        mechanism.aggregate(np.zeros(4))
    with pytest.raises(ValueError, match="Expected at least one report"):
        mechanism.aggregate(np.zeros((0, 3)))


def test_reports_of_a_wrong_length_are_refused() -> None:
    """PrivUnit's reports lie on a sphere, so one of another budget is seen."""
    mechanism, other = nz.PrivUnit(epsilon=1.0, dims=3), nz.PrivUnit(epsilon=1.5, dims=3)
    with pytest.raises(ValueError, match="Compare the specs"):
        mechanism.aggregate(other.privatize([[0.6, 0.0, -0.8]], rng=1))


def test_proxy_of_a_sphere_is_its_curvature() -> None:
    """The tail of one coordinate, an incomplete beta function, is below that of the normal law of variance 1/(d-3)."""
    for dims in (4, 10, 100):
        t = np.linspace(0.01, 0.99, 50)
        tail = betaincc(0.5, (dims - 1) / 2, t**2) / 2
        assert np.all(tail <= np.exp(-(t**2) / 2 / SphereProjection(dims).proxy))


@pytest.mark.parametrize("cls", [nz.PrivUnit, nz.PrivUnitG])
def test_a_vector_that_needs_no_lift_has_the_law_of_one_that_hardly_does(cls: type[nz.PrivUnit]) -> None:
    made = cls(2.0, domain=nz.L2Ball(4, 2.0))
    x = np.eye(4)[0] * 2.0
    reports = made.privatize(np.tile(x, (60, 1)), rng=1)
    assert made._unit(x[None])[1] == 0
    whole, nearly = made.log_prob(reports, x), made.log_prob(reports, x * (1 - 1e-12))
    assert np.unique(whole.round(6)).size >= 2  # in the cap and beside it
    np.testing.assert_allclose(whole, nearly, rtol=0, atol=1e-3)
