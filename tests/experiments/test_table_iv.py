"""Table IV of the tensor-variate Gaussian paper against its own conditions and against measured noise."""

import math

import numpy as np
import pytest
from experiments.tensor.table_iv import gaussian_error_table, printed_errors
from scipy.special import ndtri

from noisette.guarantees import gaussian_mu

FALSE_ALARM = 1e-6


def test_measured_errors_are_those_of_the_noise() -> None:
    samples, size = 200, 60
    rows = {row.method: row for row in gaussian_error_table(1.0, dims=(5, 4, 3), samples=samples, rng=3)}
    for row in rows.values():
        slack = float(ndtri(1 - FALSE_ALARM / 10)) * math.sqrt(2 / (samples * size))
        assert row.measured == pytest.approx(row.expected, rel=slack)
        assert abs(row.measured / (1.5 * row.expected) - 1) > slack
    for method in ("classical", "udn", "idn"):
        assert rows[method].printed == pytest.approx(rows[method].expected, rel=1e-9)
    assert rows["mvg"].expected / rows["mvg"].printed == pytest.approx(math.sqrt(size) / 5)
    assert rows["exact"].expected == pytest.approx(size * (2 * math.sqrt(size) / gaussian_mu(1.0, 1e-5)) ** 2, rel=1e-6)
    assert rows["exact"].expected < rows["classical"].expected < rows["idn"].expected < rows["udn"].expected


def test_printed_formulas_by_their_conditions() -> None:
    """B from the specification: (sqrt(zeta^2 + 2e) - zeta)^2 / s^2, s = 2 sqrt(I)."""
    size, first, delta, epsilon = 400, 16, 1e-5, 0.7
    zeta = math.sqrt(-2 * math.log(delta) + 2 * math.sqrt(-size * math.log(delta)) + size)
    bound = (math.sqrt(zeta**2 + 2 * epsilon) - zeta) ** 2 / (4 * size)
    printed = printed_errors(epsilon, delta, dims=(16, 5, 5))
    assert printed["idn"] == pytest.approx(size / bound, rel=1e-9)
    assert printed["udn"] == pytest.approx(first * size / bound, rel=1e-9)


@pytest.mark.parametrize(("method", "order"), [("classical", 2), ("idn", 3), ("udn", 3)])
def test_orders_of_growth(method: str, order: int) -> None:
    """At a fixed first mode IDN and UDN grow with I^3 as printed; the Gaussian row says I^3 and grows with I^2."""
    sizes = np.asarray([10**5, 10**6, 10**7])
    errors = np.log([printed_errors(1.0, 1e-5, dims=(10, int(size) // 10))[method] for size in sizes])
    slopes = np.diff(errors) / np.diff(np.log(sizes))
    np.testing.assert_allclose(slopes, order, atol=0.05)
