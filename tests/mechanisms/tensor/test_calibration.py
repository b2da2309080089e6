"""How much noise: the spec's numbers, the papers' conditions written another way, and the optima."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.stats import norm

import noisette as nz
from noisette.guarantees import gaussian_mu
from noisette.mechanisms.tensor.gaussian.calibration import mvg_bound, optimal_mode, tvg_bound, zeta
from noisette.mechanisms.tensor.gaussian.modes import Mode
from noisette.mechanisms.tensor.gaussian.neighbours import Neighbours

RELATIONS = ("any-pair", "slice:0", "fibre:1", "element", "l2:0.7", "box:0.3")


def spd(size: int, seed: int) -> np.ndarray:
    """Return a random covariance."""
    root = np.random.default_rng(seed).normal(size=(size, size))
    return root @ root.T + 0.3 * np.eye(size)


@pytest.mark.parametrize(
    ("shape", "epsilon", "published", "tight"),
    [  # Yang et al. 2021, delta = 1e-5
        ((28, 28), 1.0, 31.59, 3.731),
        ((32, 32, 3), 1.0, 58.92, 3.731),
        ((256, 16, 5, 5), 1.0, 323.4, 3.731),
        ((5, 5), 0.1, 90.59, 30.75),
    ],
)
def test_noise_in_units_of_the_sensitivity(
    shape: tuple[int, ...], epsilon: float, published: float, tight: float
) -> None:
    domain = nz.TensorDomain(shape)
    exact = nz.TensorGaussian(domain, epsilon, 1e-5)
    idn = nz.TensorGaussian(domain, epsilon, 1e-5, calibration="idn")
    assert exact.sigma / domain.diameter == pytest.approx(tight, rel=3e-4)
    assert idn.sigma / domain.diameter == pytest.approx(published, rel=3e-4)


def test_the_papers_noise_is_72_and_7500_times_the_power_that_is_needed() -> None:
    ratios = []
    for shape in ((28, 28), (256, 16, 5, 5)):
        exact, idn = (nz.TensorGaussian(nz.TensorDomain(shape), 1.0, 1e-5, calibration=c) for c in ("exact", "idn"))
        ratios.append((idn.sigma / exact.sigma) ** 2)
    assert ratios == pytest.approx([71.7, 7513], rel=5e-3)


def test_zeta_bounds_the_norm() -> None:
    squares = np.random.default_rng(0).chisquare(50, 400_000)
    assert (squares > zeta(0.01, 50) ** 2).mean() < 0.01


def test_bounds_as_the_papers_print_them() -> None:
    epsilon, delta, m, n, s, gamma = 0.7, 1e-5, 6, 4, 0.3, 2.0
    z = zeta(delta, m * n)
    alpha, beta = s**2, 2 * z * s
    printed = (-beta + math.sqrt(beta**2 + 8 * alpha * epsilon)) ** 2 / (4 * alpha**2)
    assert tvg_bound(epsilon, delta, m * n, s) == pytest.approx(printed, rel=1e-9)
    harmonic, half = sum(1 / i for i in range(1, 5)), sum(i**-0.5 for i in range(1, 5))
    alpha = (harmonic + half) * gamma**2 + 2 * harmonic * gamma * s
    beta = 2 * (m * n) ** 0.25 * harmonic * z * s
    printed = (-beta + math.sqrt(beta**2 + 8 * alpha * epsilon)) ** 2 / (4 * alpha**2)
    assert mvg_bound(epsilon, delta, m, n, s, gamma) == pytest.approx(printed, rel=1e-9)


def test_published_conditions_hold_with_equality() -> None:
    domain, epsilon, delta = nz.TensorDomain((3, 4), -1, 2), 0.8, 1e-5
    rows, columns = spd(3, 1), spd(4, 2)
    s = 3 * math.sqrt(12)
    bound = tvg_bound(epsilon, delta, 12, s)

    def inverse_roots(m: nz.TensorGaussian) -> list[np.ndarray]:
        return [np.linalg.inv(np.linalg.cholesky(c)) for c in m.covariances or ()]

    tvg = nz.TensorGaussian(domain, epsilon, delta, covariances=(rows, columns), calibration="tvg")
    first, second = inverse_roots(tvg)
    assert (first**2).sum() * (second**2).sum() / tvg.sigma**2 == pytest.approx(bound, rel=1e-9)
    udn = nz.TensorGaussian(domain, epsilon, delta, covariances=(rows, None), calibration="udn")
    assert np.trace(np.linalg.inv(rows)) / udn.sigma**2 == pytest.approx(bound, rel=1e-9)
    variances = np.asarray([1.0, 2.0, 5.0, 0.5])
    idn = nz.TensorGaussian(domain, epsilon, delta, covariances=(None, variances), calibration="idn")
    assert (1 / variances).sum() / idn.sigma**2 == pytest.approx(4 * bound, rel=1e-9)
    mvg = nz.TensorGaussian(domain, epsilon, delta, covariances=(rows, columns), calibration="mvg")
    left = np.linalg.norm(np.linalg.inv(rows * mvg.sigma**2)) * np.linalg.norm(np.linalg.inv(columns))
    assert left == pytest.approx(mvg_bound(epsilon, delta, 3, 4, s, 2 * math.sqrt(12)), rel=1e-9)


def test_a_misprint_of_theorem_3_would_not_be_private() -> None:
    """(b - a) / sqrt(I) in place of (b - a) sqrt(I) divides the noise by I: delta is then near one."""
    idn = nz.TensorGaussian(nz.TensorDomain((28, 28)), 1.0, 1e-5, calibration="idn")
    mu = idn.mu * 784
    assert norm.cdf(mu / 2 - 1 / mu) - math.e * norm.cdf(-mu / 2 - 1 / mu) > 0.99


def test_classical_noise_warns_where_it_does_not_hold() -> None:
    domain = nz.TensorDomain((2, 2))
    assert nz.TensorGaussian(domain, 0.9, 1e-5, calibration="classical").guarantee.claim_holds
    with pytest.warns(nz.PrivacyWarning, match="does not hold"):
        wrong = nz.TensorGaussian(domain, 20.0, 1e-5, calibration="classical")
    assert wrong.guarantee.epsilon > 20.0
    assert wrong.sigma == pytest.approx(domain.diameter * math.sqrt(2 * math.log(1.25e5)) / 20)


def test_the_baseline_called_optimized() -> None:
    """Least sum of w_i^2 s_i^2 at a sum of d^2 / s_i^2 of epsilon^2 / (2 ln(1.25 / delta)), the classical condition."""
    weights, epsilon, delta = np.asarray([4.0, 1.0, 0.25]), 0.5, 1e-5
    m = nz.TensorGaussian(nz.TensorDomain((3,)), epsilon, delta, subspaces=(np.diag(weights),), calibration="classical")
    condition = epsilon**2 / (2 * math.log(1.25 / delta))
    assert (4 / m.variances).sum() == pytest.approx(condition)
    assert m.expected_error() == pytest.approx(4 * weights.sum() ** 2 / condition)
    assert m.guarantee.claim_holds


@pytest.mark.parametrize("calibration", ["tvg", "udn", "idn", "mvg"])
@pytest.mark.parametrize("epsilon", [1e-3, 1.0, 30.0])
def test_published_calibrations_claim_nothing_false(calibration: str, epsilon: float) -> None:
    m = nz.TensorGaussian(nz.TensorDomain((4, 3), 0, 1), epsilon, 1e-5, calibration=calibration)
    assert m.guarantee.claim is not None
    assert (m.guarantee.claim.epsilon, m.guarantee.claim.delta) == (epsilon, 1e-5)
    assert m.guarantee.claim_holds
    assert m.guarantee.epsilon < epsilon
    delta = norm.cdf(m.mu / 2 - m.guarantee.epsilon / m.mu)
    delta -= math.exp(m.guarantee.epsilon) * norm.cdf(-m.mu / 2 - m.guarantee.epsilon / m.mu)
    assert delta <= 1e-5 * (1 + 1e-6)


# -- optimal noise for a subspace, against an optimiser that knows only the condition


def least_error(weights: np.ndarray, power: float) -> float:
    """Minimise sum P_i v_i subject to sum v_i^-power <= 1 numerically, over the logs of v."""

    def error(logs: np.ndarray) -> float:
        variances = np.exp(logs)
        return float(np.log((weights * variances).sum()) + np.log((variances**-power).sum()) / power)

    found = [
        minimize(error, start, method="BFGS", options={"gtol": 1e-9}) for start in (np.zeros(weights.size), weights)
    ]
    return math.exp(min(result.fun for result in found))


@pytest.mark.parametrize(
    ("calibration", "relation", "power", "rotated"),
    [
        ("exact", "any-pair", 1.0, False),
        ("exact", "box:0.5", 1.0, False),
        ("exact", "slice:1", 1.0, False),
        ("exact", "fibre:0", 1.0, False),
        ("idn", "any-pair", 1.0, False),
        ("udn", "any-pair", 1.0, True),
        ("tvg", "any-pair", 1.0, True),
        ("mvg", "any-pair", 2.0, True),
    ],
)
def test_subspaces_get_the_optimal_noise(calibration: str, relation: str, power: float, rotated: bool) -> None:
    subspace = np.random.default_rng(7).normal(size=(6, 5)) * [3.0, 1.0, 0.3, 1.0, 0.1]
    m = nz.TensorGaussian(
        nz.TensorDomain((5, 3)), 1.0, 1e-5, relation=relation, subspaces=(subspace, None), calibration=calibration
    )
    weights = np.linalg.svd(subspace, compute_uv=False) ** 2 if rotated else (subspace**2).sum(axis=0)
    covariance = np.diag(m.modes[0].variances) if not rotated else np.asarray(m.modes[0].covariance)
    spread = np.linalg.eigvalsh(covariance)
    error = np.trace(subspace @ covariance @ subspace.T) * (spread**-power).sum() ** (1 / power)
    assert error == pytest.approx(least_error(weights, power), rel=1e-6)
    plain = nz.TensorGaussian(nz.TensorDomain((5, 3)), 1.0, 1e-5, relation=relation, calibration=calibration)
    assert m.expected_error() < 0.9 * plain.sigma**2 * (subspace**2).sum() * 3
    wrong = np.diag(1 / weights) if not rotated else covariance @ covariance
    worse = np.trace(subspace @ wrong @ subspace.T) * (np.linalg.eigvalsh(wrong) ** -power).sum() ** (1 / power)
    assert worse > error * 1.01


def test_several_modes_are_optimal_together() -> None:
    spaces = [np.random.default_rng(k).normal(size=(4, n)) ** 3 for k, n in enumerate((3, 4, 2))]
    m = nz.TensorGaussian(nz.TensorDomain((3, 4, 2)), 1.0, 1e-5, subspaces=tuple(spaces))
    roots = math.prod(np.linalg.norm(w, axis=0).sum() for w in spaces)
    assert m.expected_error() == pytest.approx((2 * roots / gaussian_mu(1.0, 1e-5)) ** 2, rel=1e-6)


@pytest.mark.parametrize(("relation", "domain"), [("l2:1.0", "box"), ("any-pair", "ball"), ("slice:0", "ball")])
def test_on_an_l2_ball_no_direction_helps(relation: str, domain: str) -> None:
    space = np.diag([5.0, 1.0, 0.2])
    where = nz.TensorDomain((2, 3)) if domain == "box" else nz.TensorBall((2, 3), 1.0)
    m = nz.TensorGaussian(where, 1.0, 1e-5, relation=relation, subspaces=(None, space))
    assert all(mode.covariance is None for mode in m.modes)
    assert "directional noise cannot help" in m.explain().lower()
    for seed in range(20):
        other = nz.TensorGaussian(where, 1.0, 1e-5, relation=relation, covariances=(None, spd(3, seed)))
        error = other.sigma**2 * 2 * np.trace(space @ np.asarray(other.modes[1].covariance) @ space.T)
        assert error > m.expected_error()


def test_along_a_fixed_mode_no_variances_help() -> None:
    space = np.diag([5.0, 1.0, 0.2])
    m = nz.TensorGaussian(nz.TensorDomain((3, 2)), 1.0, 1e-5, relation="slice:0", subspaces=(space, None))
    assert m.modes[0].covariance is None
    assert "MatrixMechanism" in m.explain()
    box = nz.TensorGaussian(nz.TensorDomain((3, 2)), 1.0, 1e-5, subspaces=(space, None))
    assert "lowers the error" in box.explain()


def test_what_a_subspace_ignores_costs_a_thousandth() -> None:
    space = np.asarray([[1.0, 2.0, 0.0, 0.0]])
    mode = optimal_mode("exact", Neighbours.read("any-pair", nz.TensorDomain((4,))), 0, 4, space)
    assert np.isfinite(mode.variances).all()
    assert mode.weighted(space) * mode.trace == pytest.approx(9.0, rel=1e-3)


@pytest.mark.parametrize("relation", RELATIONS)
def test_guarantees_name_unit_model_and_relation(relation: str) -> None:
    g = nz.TensorGaussian(nz.TensorDomain((4, 3)), 1.0, 1e-5, relation=relation).guarantee
    local = relation == "any-pair"
    assert g.unit == ("element" if relation == "element" else "record")
    assert (g.model, g.relation) == (("local", "any-pair") if local else ("central", "replace"))
    assert (g.epsilon, g.delta, g.claim_holds) == (1.0, 1e-5, True)


@pytest.mark.parametrize("distance", [0.5, 3.0])
def test_the_farthest_neighbours_are_as_far_as_they_may_be(distance: float) -> None:
    rng = np.random.default_rng(2)
    modes = tuple(Mode.read(size, np.cov(rng.normal(size=(size, 40))), 0) for size in (3, 4))
    found = Neighbours((3, 4), distance=distance).worst(modes)
    assert np.linalg.norm(found) == pytest.approx(distance, rel=1e-12)
