"""TLDP at equal unit beside its rivals, and the paper's table of errors against formulas and measurements."""

import math

import numpy as np
import pytest
from experiments.tldp.errors import equal_unit_errors, error_table, published_errors
from scipy.special import ndtri

import noisette as nz
from noisette.guarantees import gaussian_mu

FALSE_ALARM = 1e-6
IMAGE = nz.TensorDomain((28, 28), 0, 255)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("epsilon", "winner"),
    [
        (0.5, "duchi"),
        (1.0, "hybrid"),
        (4.0, "piecewise-optimal"),
        (20.0, "piecewise-optimal"),
        (50.0, "retain-or-noise"),
    ],
)
def test_who_wins_for_an_element(epsilon: float, winner: str) -> None:
    """What the docstring of RetainOrNoise says."""
    errors = equal_unit_errors(epsilon, 1e-5, domain=IMAGE, unit="element")
    assert min(errors, key=lambda name: errors[name]) == winner
    assert errors["retain-or-noise"] <= errors["discrete-laplace"] * (1 + 1e-9)
    assert errors["retain-or-noise-gaussian"] <= errors["discrete-gaussian"] * (1 + 1e-9)


@pytest.mark.long
@pytest.mark.parametrize("epsilon", [0.5, 4.0, 200.0])
def test_who_wins_for_a_record(epsilon: float) -> None:
    errors = equal_unit_errors(epsilon, 1e-5, domain=IMAGE)
    assert min(errors, key=lambda name: errors[name]) == "privunit-g"
    assert errors["gaussian-record"] < errors["retain-or-noise-composed"] < errors["retain-or-noise"]


def test_errors_by_other_formulas() -> None:
    errors = equal_unit_errors(2.0, 1e-5, domain=IMAGE)
    rate = 2 / 784 / 255
    assert errors["retain-or-noise"] == pytest.approx(1 / (2 * math.sinh(rate / 2) ** 2), rel=1e-9)
    assert errors["gaussian-record"] == pytest.approx(784 * (255 / gaussian_mu(2.0, 1e-5)) ** 2)
    assert errors["retain-or-noise-gaussian"] == pytest.approx(errors["gaussian-record"], rel=1e-6)
    entry = equal_unit_errors(1.0, domain=nz.TensorDomain((1,)), unit="element")
    assert entry["hybrid"] == pytest.approx(4.289, abs=1e-3)
    assert entry["duchi"] == pytest.approx(4.683, abs=1e-3)
    assert entry["retain-or-noise"] == pytest.approx(8.0, rel=1e-3)


def test_sampled_errors_agree() -> None:
    """The error that the table states is the one that reports have."""
    domain = nz.TensorDomain((4, 4), -1, 1)
    stated = equal_unit_errors(30.0, domain=domain, levels=5)["retain-or-noise"]
    mechanism = nz.RetainOrNoise(30.0, domain=domain, levels=5)
    x = np.zeros((20_000, 4, 4))
    squares = np.square(mechanism.privatize(x, rng=1))
    slack = float(ndtri(1 - FALSE_ALARM / 2)) * squares.std() / math.sqrt(squares.size)
    assert abs(squares.mean() - stated) < slack
    assert abs(squares.mean() - 1.05 * stated) > slack


@pytest.mark.parametrize("epsilon", [1.0, 2.0])
def test_the_paper_s_table(epsilon: float) -> None:
    """Measured errors are those that follow from the noise; for Gaussian noise the printed ones are neither."""
    runs, size = 400, 64
    rows = {row.method: row for row in error_table(epsilon, levels=16, dims=(8, 8), samples=runs, rng=4)}
    for row in rows.values():
        # kurtosis of noise that is kept or Laplace: at most 6 / (1-p)
        slack = float(ndtri(1 - FALSE_ALARM / 16)) * math.sqrt(12 / (runs * size)) / 2
        assert row.measured == pytest.approx(row.expected, rel=slack)
        assert abs(row.measured / (1.3 * row.expected) - 1) > slack
    for method in ("laplace", "tldp-laplace"):
        assert rows[method].printed == pytest.approx(rows[method].expected, rel=1e-9)
    for method in ("gaussian", "tldp-gaussian"):
        assert abs(rows[method].printed / rows[method].expected - 1) > 0.01
    kept = 1 / (2 * 16 / epsilon + 1)
    assert rows["tldp-laplace"].expected == pytest.approx(16 / epsilon * math.sqrt(2 * (1 - kept) * size))
    assert "inf" in rows["tldp-laplace"].guarantee


def test_printed_formulas() -> None:
    """Table 5, term by term, at Delta = 256 and a 28x28 image."""
    printed = published_errors(2.0, levels=256, dims=(28, 28))
    size, ratio = 784, 128.0
    assert printed["laplace"] == pytest.approx(ratio * size * math.sqrt(2 * size))
    assert printed["gaussian"] == pytest.approx(ratio / 2 * size * math.sqrt(size))
    assert printed["idn"] == pytest.approx(ratio * size * math.sqrt(size / 2))
    assert printed["mvg"] == pytest.approx(printed["idn"] * size * math.log(29) ** 2)
    assert printed["dphsgd"] == printed["laplace"]
    assert printed["laplace"] / printed["tldp-laplace"] == pytest.approx(size, rel=2e-3)
