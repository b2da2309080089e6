"""James-Stein and SURE against textbook formulas, numerical optimisers and the spec's measured errors."""

import numpy as np
import pytest
from scipy.optimize import brentq, minimize

import noisette as nz
from noisette.enhancement.shrinkage import _pull, james_stein, sure, truth_spread

Z = 4.9


def test_james_stein_with_equal_errors_is_the_classical_rule():
    rng = np.random.default_rng(1)
    y = rng.normal(0.2, 1.0, 40)
    s = 0.5
    middle = y.mean()
    keep = max(0.0, 1 - (40 - 3) * s**2 / np.sum((y - middle) ** 2))
    assert james_stein(y, np.full(40, s)).value == pytest.approx(middle + keep * (y - middle))
    keep = max(0.0, 1 - (40 - 2) * s**2 / np.sum(y**2))
    assert james_stein(y, np.full(40, s), target="zero").value == pytest.approx(keep * y)


@pytest.mark.parametrize(("target", "size"), [("grand-mean", 3), ("grand-mean", 1), ("zero", 2), ("zero", 1)])
def test_james_stein_leaves_too_few_dimensions_alone(target, size):
    y = np.array([0.3, -1.2, 4.0])[:size]
    assert james_stein(y, np.ones(size), target=target).value == pytest.approx(y)


def test_unknown_target():
    with pytest.raises(ValueError, match=r"'median'.*grand-mean"):
        james_stein(np.zeros(4), np.ones(4), target="median")


@pytest.mark.long
@pytest.mark.parametrize(
    ("size", "noise", "target"),  # any two of the three meet
    [
        (4, "equal", "grand-mean"),
        (12, "equal", "zero"),
        (4, "spread", "zero"),
        (12, "spread", "grand-mean"),
        (4, "one-huge", "grand-mean"),
        (12, "one-huge", "zero"),
        (4, "tied", "zero"),
        (12, "tied", "grand-mean"),
    ],
)
def test_james_stein_is_never_above_raw(size, noise, target):
    """Mean loss less raw loss over 500 draws, not above zero by 4.9 standard errors, at several truths."""
    rng = np.random.default_rng(size)
    s = {
        "equal": np.full(size, 0.5),
        "spread": np.geomspace(0.1, 2.0, size),
        "one-huge": np.where(np.arange(size) == 0, 20.0, 0.3),
        "tied": np.geomspace(0.1, 2.0, size),
    }[noise]
    for scale in (0.0, 0.5, 1.5, 4.0):
        truth = scale * s if noise == "tied" else scale * 0.5 * rng.choice([-1.0, 1.0], size)
        gaps = []
        for _ in range(500):
            y = truth + s * rng.standard_normal(size)
            gaps.append(np.sum((james_stein(y, s, target=target).value - truth) ** 2 - (y - truth) ** 2))
        gaps = np.asarray(gaps)
        assert gaps.mean() <= Z * gaps.std() / np.sqrt(gaps.size) + 0.01 * np.sum(s**2)


@pytest.mark.slow
def test_shrinking_each_by_its_bayes_weight_alone_is_above_raw():
    """The twin: without the cap that the largest error needs, a tied truth loses to raw."""
    rng = np.random.default_rng(5)
    s = np.where(np.arange(6) == 0, 3.0, 0.3)
    truth = np.where(np.arange(6) == 0, 4.0, 0.0)
    gaps = []
    for _ in range(2_000):
        y = truth + s * rng.standard_normal(6)
        spread = truth_spread(y, s**2, target="zero")
        gaps.append(np.sum((spread / (s**2 + spread) * y - truth) ** 2 - (y - truth) ** 2))
    gaps = np.asarray(gaps)
    assert gaps.mean() > Z * gaps.std() / np.sqrt(gaps.size)


@pytest.mark.slow
@pytest.mark.parametrize("spread", [0.0, 0.2, 5.0])
@pytest.mark.parametrize("seed", range(2))
def test_weights_maximise_the_guaranteed_gain(seed, spread):
    """(sum b - 2 max b)^2 / sum b^2 (s^2 + g) / s^4 over b = s^2 a >= 0, by a general optimiser."""
    rng = np.random.default_rng(seed)
    variance = rng.lognormal(0, 1, 7) ** 2
    cost = (variance + spread) / variance**2

    def gain(b):
        return (np.sum(b) - 2 * np.max(b)) ** 2 / np.sum(b**2 * cost) if np.sum(b) > 2 * np.max(b) else 0.0

    found = gain(variance * _pull(variance, spread))
    for start in range(4):
        guess = np.random.default_rng(start).uniform(0.5, 1.0, 7)
        other = minimize(lambda b: -gain(np.abs(b)), guess, method="Nelder-Mead", options={"maxfev": 20_000})
        assert found >= -other.fun * (1 - 1e-6)


@pytest.mark.parametrize("target", ["grand-mean", "zero"])
def test_truth_spread_solves_its_equation(target):
    rng = np.random.default_rng(3)
    variance = rng.uniform(0.1, 2.0, 30)
    y = rng.normal(1.0, np.sqrt(variance + 0.7))

    def excess(g):
        weight = 1 / (variance + g)
        middle = np.average(y, weights=weight) if target == "grand-mean" else 0.0
        return np.sum(weight * (y - middle) ** 2) - (29 if target == "grand-mean" else 30)

    assert truth_spread(y, variance, target=target) == pytest.approx(brentq(excess, 0, 100), rel=1e-9)


def test_truth_spread_is_zero_when_the_data_scatter_less_than_their_noise():
    assert truth_spread(np.array([0.1, 0.0, -0.1]), np.ones(3)) == 0.0
    assert truth_spread(np.array([2.0]), np.ones(1)) == 0.0


def test_truth_spread_from_tiny_to_huge():
    for scale in (1e-6, 1.0, 1e6):
        y = scale * np.array([-1.0, 0.0, 1.0])
        assert truth_spread(y, np.full(3, (1e-3 * scale) ** 2)) == pytest.approx(scale**2 * (1 - 1e-6), rel=1e-9)


@pytest.mark.long
@pytest.mark.parametrize("unequal", [False, True])
def test_sure_has_the_least_estimated_risk_of_all_thresholds(unequal):
    rng = np.random.default_rng(4)
    for _ in range(10):
        s = rng.uniform(0.2, 2.0, 50) if unequal else np.full(50, 0.7)
        y = np.where(rng.random(50) < 0.2, 3.0, 0.0) + s * rng.standard_normal(50)

        def risk(level, y=y, s=s):
            size = np.abs(y) / s
            return np.sum(s**2 * (1 - 2 * (size <= level) + np.minimum(size**2, level**2)))

        least = min(risk(level) for level in np.linspace(0, 10, 4_001))
        assert np.sum(sure(y, s).risk) <= least + 1e-9


# Reference numbers, computed independently: d = 1,000, s = 0.3, one run each: the spread over seeds is the tolerance.
SETTINGS = {
    "uniform": lambda rng: rng.uniform(-1, 1, 1_000),
    "clustered": lambda rng: 0.5 + 0.1 * rng.standard_normal(1_000),
    "sparse": lambda rng: np.where(np.arange(1_000) < 50, 0.8, 0.0),
}


@pytest.mark.parametrize(
    ("rule", "setting", "reference"),
    [
        (james_stein, "uniform", 0.070),
        (sure, "uniform", 0.083),
        (james_stein, "clustered", 0.0094),
        (sure, "clustered", 0.086),
        (james_stein, "sparse", 0.023),
        (sure, "sparse", 0.017),
    ],
)
def test_measured_errors_of_the_spec(rule, setting, reference):
    rng = np.random.default_rng(21)
    squares = []
    for _ in range(100):
        truth = SETTINGS[setting](rng)
        y = truth + 0.3 * rng.standard_normal(1_000)
        squares.append(np.mean((rule(y, np.full(1_000, 0.3)).value - truth) ** 2))
    assert abs(np.mean(squares) - reference) < Z * np.std(squares) + 0.0005  # printed with two digits


@pytest.mark.parametrize(
    ("method", "truth", "budget", "reference"),
    [
        ("box", np.where(np.arange(100) < 10, 0.9, 0.0), 0.4, 0.80),
        ("sure", np.where(np.arange(100) < 10, 0.9, 0.0), 0.4, 0.113),
        ("sure", np.zeros(500), 0.4, 0.0245),
    ],
)
def test_measured_errors_under_laplace_noise(method, truth, budget, reference):
    """Duan 2024, section 4.3, n = 100,000: after the projection on the domain."""
    rng = np.random.default_rng(22)
    error = np.full(truth.size, np.sqrt(8 * truth.size**2 / budget**2 / 1e5))
    squares = []
    for _ in range(200):
        y = truth + error * rng.standard_normal(truth.size)
        raw = nz.Estimate(y, error, np.full(truth.size, 100_000), low=-1.0, high=1.0)
        squares.append(np.mean((nz.enhance(raw, method).value - truth) ** 2))
    assert abs(np.mean(squares) - reference) < Z * np.std(squares)
