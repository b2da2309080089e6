"""How far apart neighbours are once the noise is white, against brute force; delta against independent computations."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm

import noisette as nz
from noisette.mechanisms.tensor.gaussian._normal import STEPS
from noisette.mechanisms.tensor.gaussian._signs import largest_form
from noisette.mechanisms.tensor.gaussian.modes import multiply
from noisette.mechanisms.tensor.gaussian.release import _inside

RELATIONS = ("any-pair", "slice:0", "slice:1", "fibre:0", "fibre:1", "element", "box:0.3")


def spd(size: int, seed: int) -> np.ndarray:
    """Return a random covariance."""
    root = np.random.default_rng(seed).normal(size=(size, size))
    return root @ root.T + 0.3 * np.eye(size)


def changed(relation: str, shape: tuple[int, ...]) -> list[np.ndarray]:
    """Return masks of the entries in which neighbours may differ, written down from the words."""
    word, _, detail = relation.partition(":")
    masks = []
    for index in np.ndindex(shape):
        mask = np.ones(shape, dtype=bool)
        places = np.indices(shape)
        for mode, place in enumerate(index):
            held = word == "element" or (word == "slice" and mode == int(detail))
            held |= word == "fibre" and mode != int(detail)
            if held:
                mask &= places[mode] == place
        masks.append(mask)
    return masks


def brute(relation: str, shape: tuple[int, ...], width: float, precision: np.ndarray) -> float:
    """Return the largest whitened distance over all signs of all blocks."""
    worst = 0.0
    for mask in {mask.tobytes(): mask for mask in changed(relation, shape)}.values():
        free = np.flatnonzero(mask.reshape(-1))
        signs = np.asarray(list(product([-1.0, 1.0], repeat=free.size)))
        inner = precision[np.ix_(free, free)]
        worst = max(worst, float(np.einsum("ij,jk,ik->i", signs, inner, signs).max()))
    return width * math.sqrt(worst)


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("kinds", ["identity", "diagonal", "one-full", "full"])
def test_boxes_against_all_vertices(relation: str, kinds: str) -> None:
    shape, width = (3, 4), 0.3 if relation.startswith("box") else 2.0
    rng = np.random.default_rng(4)
    rows = {"identity": None, "diagonal": rng.uniform(0.5, 3, 3), "one-full": rng.uniform(0.5, 3, 3)}.get(
        kinds, spd(3, 0)
    )
    columns = {"identity": None, "diagonal": rng.uniform(0.5, 3, 4)}.get(kinds, spd(4, 1))
    m = nz.TensorGaussian(nz.TensorDomain(shape), 1.0, 1e-5, relation=relation, covariances=(rows, columns))
    full = [
        np.eye(n) if c is None else np.diag(c) if np.ndim(c) == 1 else c
        for n, c in zip(shape, (rows, columns), strict=True)
    ]
    truth = brute(relation, shape, width, np.linalg.inv(np.kron(*full)))
    bound, attained = m.sensitivity
    assert bound >= truth * (1 - 1e-12)
    if attained:
        assert bound == pytest.approx(truth, rel=1e-6)
    else:
        assert kinds == "full"
        assert bound <= truth * math.pi / 2
        assert "that is a bound" in m.explain()
    if kinds != "full":
        assert attained


@pytest.mark.parametrize("seed", range(3))
def test_balls_reach_as_far_as_the_spectral_norm(seed: int) -> None:
    rows, columns = spd(3, seed), spd(4, seed + 10)
    precision = np.linalg.inv(np.kron(rows, columns))
    whole = nz.TensorGaussian(nz.TensorBall((3, 4), 0.7), 1.0, 1e-5, covariances=(rows, columns))
    assert whole.sensitivity == (pytest.approx(1.4 * math.sqrt(np.linalg.eigvalsh(precision)[-1]), rel=1e-9), True)
    l2 = nz.TensorGaussian(nz.TensorDomain((3, 4)), 1.0, 1e-5, covariances=(rows, columns), relation="l2:0.2")
    assert l2.sensitivity[0] == pytest.approx(0.2 * math.sqrt(np.linalg.eigvalsh(precision)[-1]), rel=1e-9)
    per_row = nz.TensorGaussian(
        nz.TensorBall((3, 4), 0.7, mode=0), 1.0, 1e-5, covariances=(rows, columns), relation="slice:0"
    )
    truth = max(np.linalg.eigvalsh(precision.reshape(3, 4, 3, 4)[i, :, i])[-1] for i in range(3))
    assert per_row.sensitivity[0] == pytest.approx(1.4 * math.sqrt(truth), rel=1e-9)


@pytest.mark.parametrize("size", [17, 18])
def test_bounds_over_many_signs_hold_and_are_near(size: int) -> None:
    matrix = np.linalg.inv(spd(size, size))
    found = largest_form(matrix)
    codes = np.arange(1 << (size - 1))
    worst = 0.0
    for start in range(0, codes.size, 1 << 14):
        signs = 1.0 - 2.0 * ((codes[start : start + (1 << 14), None] >> np.arange(size)) & 1)
        worst = max(worst, float(np.einsum("ij,ij->i", signs @ matrix, signs).max()))
    assert found.lower <= worst * (1 + 1e-9)
    assert worst <= found.upper <= worst * math.pi / 2
    assert found.signs @ matrix @ found.signs == pytest.approx(found.lower)


def test_inverses_without_negative_entries_are_summed() -> None:
    matrix = np.full((40, 40), 0.2) + np.eye(40)
    flips = np.where(np.random.default_rng(0).random(40) < 0.5, -1.0, 1.0)
    found = largest_form(flips[:, None] * matrix * flips)
    assert found.exact
    assert found.upper == pytest.approx(matrix.sum())


def test_a_neighbour_count_that_forgets_a_mode_is_caught() -> None:
    """A twin: one row's sensitivity is not that of the whole, nor of one entry."""
    shape, precision = (3, 4), np.linalg.inv(np.kron(spd(3, 0), np.diag([1.0, 2, 3, 4])))
    m = nz.TensorGaussian(
        nz.TensorDomain(shape), 1.0, 1e-5, relation="slice:0", covariances=(spd(3, 0), [1.0, 2, 3, 4])
    )
    for wrong in ("any-pair", "slice:1", "element"):
        assert abs(m.sensitivity[0] / brute(wrong, shape, 2.0, precision) - 1) > 0.01


# -- delta


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("relation", ["any-pair", "slice:0"])
def test_exact_delta_against_the_whole_normal_law(seed: int, relation: str) -> None:
    """The dense law of the noise, integrated along the line between two inputs, and sampled; no mode products."""
    rows, columns = spd(2, seed), spd(3, seed + 7)
    m = nz.TensorGaussian(nz.TensorDomain((2, 3)), 1.0, 1e-2, relation=relation, covariances=(rows, columns))
    covariance = m.sigma**2 * np.kron(rows, columns)
    first, second = (x.reshape(-1) for x in m.witnesses()[0])
    gap = first - second
    direction = np.linalg.solve(covariance, gap)
    mean, spread = float(direction @ gap), math.sqrt(float(direction @ covariance @ direction))
    for epsilon in (0.2, 1.0):
        # the loss is direction . (y - (first + second) / 2), normal around +- mean / 2

        def excess(loss: float, epsilon: float = epsilon) -> float:
            return norm.pdf(loss, mean / 2, spread) * -math.expm1(min(epsilon - loss, 0.0))

        integral = quad(excess, epsilon, mean / 2 + 12 * spread, epsabs=1e-13, epsrel=1e-11, limit=200)[0]
        exact = nz.exact_delta(m, epsilon)
        if m.sensitivity[1]:
            assert exact == pytest.approx(integral, rel=1e-6)
        else:
            assert exact >= integral
        noise = np.random.default_rng(seed).multivariate_normal(np.zeros(6), covariance, 400_000)
        losses = np.maximum(noise @ direction + mean / 2 - epsilon, 0.0)
        sample = -np.expm1(-losses)
        error = 4.9 * sample.std() / math.sqrt(sample.size)  # passed by chance with probability 1e-6
        assert abs(sample.mean() - integral) < error
        halved = np.maximum(noise @ direction / 2 + mean / 2 - epsilon, 0.0)
        assert abs(-np.expm1(-halved).mean() - integral) > error  # a twin with half the noise is told apart


@pytest.mark.parametrize("epsilon", [1e-6, 0.01, 1.0, 10.0, 1e3])
@pytest.mark.parametrize("delta", [1e-12, 1e-5, 0.1])
def test_asked_is_given(epsilon: float, delta: float) -> None:
    m = nz.TensorGaussian(nz.TensorDomain((2, 3)), epsilon, delta, covariances=(spd(2, 0), [1.0, 2.0, 3.0]))
    assert nz.exact_delta(m, epsilon) == pytest.approx(delta, rel=1e-5)
    assert nz.exact_delta(m, epsilon) <= delta * (1 + 1e-9) + 1e-17
    assert nz.exact_epsilon(m) == math.inf


def whole_numbers(m: nz.TensorGaussian, x: np.ndarray) -> np.ndarray:
    """Return what the noise is added to."""
    work = x - m._centre
    multiply(work, [None if mode.covariance is None else mode.whitener for mode in m.modes])
    return np.rint(work * (STEPS / m.sigma))


@pytest.mark.slow
def test_rounding_to_the_lattice_is_paid_for() -> None:
    """Rounded neighbours may be farther apart than neighbours are, but never farther than mu says."""
    above = 0
    for number, epsilon in enumerate(np.linspace(0.5, 2.0, 60)):
        covariances = None if number % 2 else (spd(3, number), None)
        m = nz.TensorGaussian(nz.TensorDomain((3, 2)), float(epsilon), 1e-5, covariances=covariances)
        first, second = m.witnesses()[0]
        gap = math.sqrt(float(np.square(whole_numbers(m, first) - whole_numbers(m, second)).sum()))
        assert gap <= m.mu * STEPS
        above += gap > m.sensitivity[0] / m.sigma * STEPS * (1 + 1e-15)
    assert above > 5  # so an allowance is needed


def test_symmetric_noise_has_the_same_delta() -> None:
    covariance = spd(3, 2)
    m = nz.TensorGaussian(nz.TensorDomain((3, 3)), 1.0, 1e-5, covariances=(covariance, covariance), symmetry=((0, 1),))
    assert nz.exact_delta(m, 1.0) == pytest.approx(1e-5, rel=1e-5)


def test_accounting_sees_a_gaussian() -> None:
    import dp_accounting

    m = nz.TensorGaussian(nz.TensorDomain((4, 3)), 1.0, 1e-5, relation="slice:0")
    assert nz.accounting.gdp(m) == m.mu
    assert nz.accounting.event(m) == dp_accounting.GaussianDpEvent(1 / m.mu)
    assert nz.accounting.compose(m, 1, delta=1e-5).epsilon == pytest.approx(1.0, rel=1e-6)
    four = nz.accounting.compose(m, 4, delta=1e-5)
    assert four.epsilon == pytest.approx(nz.accounting.gdp_epsilon(2 * m.mu, 1e-5), rel=1e-9)
    assert nz.accounting.rdp(m, [2.0, 7.0]) == pytest.approx(np.asarray([2.0, 7.0]) * m.mu**2 / 2)
    accountant = dp_accounting.rdp.RdpAccountant()
    accountant.compose(dp_accounting.PoissonSampledDpEvent(0.01, nz.accounting.event(m)))
    assert accountant.get_epsilon(1e-5) < 0.1


@pytest.mark.slow
@pytest.mark.parametrize("calibration", ["exact", "tvg", "udn", "idn", "mvg", "classical"])
def test_the_auditor_finds_no_fault(calibration: str) -> None:
    m = nz.TensorGaussian(nz.TensorDomain((2, 2)), 0.9, 1e-3, calibration=calibration)
    seen = nz.audit(m, samples=20_000, confidence=1 - 1e-6, rng=3)
    assert seen.verdict == "holds"
    assert seen.mu_lower_bound <= m.mu
    if calibration in ("exact", "classical"):
        assert seen.mu_lower_bound > 0.5 * m.mu


@pytest.mark.slow
def test_the_auditor_finds_noise_that_is_too_small() -> None:
    m = nz.TensorGaussian(nz.TensorDomain((2, 2)), 0.9, 1e-3)
    m.__dict__["sigma"] = m.sigma / 4
    assert nz.audit(m, samples=20_000, confidence=1 - 1e-6, rng=3).verdict == "violated"


def test_an_entry_that_has_to_do_with_no_other_adds_its_own() -> None:
    """Beside thirty entries whose signs cannot all agree: too many to enumerate, and bounded from both sides."""
    factor = np.random.default_rng(3).normal(size=(30, 30))
    part = factor @ factor.T
    whole = np.zeros((31, 31))
    whole[:30, :30], whole[30, 30] = part, 2.0
    alone, beside = largest_form(part), largest_form(whole)
    assert np.isfinite(beside.upper)
    assert beside.lower <= beside.upper
    assert beside.upper == pytest.approx(alone.upper + 2.0, rel=1e-3)
    assert beside.lower == pytest.approx(alone.lower + 2.0, rel=1e-2)


def test_what_float64_may_add_makes_neighbours_farther_apart() -> None:
    """Each operation is off by 2^-53 of what it handles, in both tables; rounding to the lattice adds to that."""
    low, high, shape = -1.0, 5.0, (3, 4)
    m = nz.TensorGaussian(nz.TensorDomain(shape, low, high), 1.0, 1e-5, covariances=(spd(3, 0), None))
    apart, rounding = m._reach
    operations = 8 + 3 + 4  # of one full mode of three
    norms = math.prod(mode.rounding for mode in m.modes)
    largest = 3.0 * math.sqrt(12) + 2.0 * math.sqrt(12)  # half the range in every entry, about the middle
    error = 2 * operations * 2.0**-53 * norms * largest
    assert apart > m.sensitivity[0]
    assert apart - m.sensitivity[0] == pytest.approx(error, rel=0.05)  # of numbers that differ in their last digits
    assert rounding * STEPS == pytest.approx(math.sqrt(12))


@pytest.mark.parametrize("strange", [math.nan, math.inf])
def test_a_table_with_one_entry_that_is_no_number_is_refused(strange: float) -> None:
    domain = nz.TensorDomain((2, 3), -1.0, 1.0)
    table = np.zeros((2, 3))
    assert _inside(table, domain, clip=False).tolist() == table.tolist()
    table[1, 2] = strange
    for clip in (False, True):
        with pytest.raises(ValueError, match="Expected finite values"):
            _inside(table, domain, clip=clip)
    table[1, 2] = 1.5
    assert _inside(table, domain, clip=True)[1, 2] == 1.0
    with pytest.raises(ValueError, match=r"one that leaves it; its largest entry is 1\.5"):
        _inside(table, domain, clip=False)
    with pytest.raises(ValueError, match="a table of shape"):
        _inside(table.T, domain, clip=True)
