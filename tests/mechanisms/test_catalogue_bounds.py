"""What every mechanism of the catalogue states beside its law: its worst inputs and reports, and its tails."""

import math
from typing import Any

import numpy as np
import pytest

import noisette as nz

# How far the variance of a tail may be above that of the worst reports of people at both ends of the range, where it is
# not tight: Hoeffding's and others' bounds know no more than between which numbers reports lie.
LOOSE = {
    "wheel": 18.5,
    "square-wave": 3.75,
    "privunit": 3.55,
    "fast-projunit": 3.55,
    "staircase": 1.82,
    "scdf": 1.82,
    "optimal-graded": 1.54,
    "retain-or-noise": 1.54,
    "privunit-g": 1.44,
    "jl": 1.34,
    "levelled": 1.26,
}
CASES = [
    pytest.param(name, epsilon, marks=[pytest.mark.slow] if name == "angle-gaussian" else [])
    for name in nz.CATALOGUE
    for epsilon in (1.0, 4.0)
]


@pytest.mark.parametrize(("name", "epsilon"), CASES)
def test_witnesses_are_reports_that_give_most_away(name: str, epsilon: float) -> None:
    """Of a pure mechanism some witness is exp(epsilon) times as likely about one witness's value as about another's."""
    mechanism: Any = nz.CATALOGUE[name].example(epsilon)
    inputs, reports = mechanism.witnesses()
    assert np.all(mechanism.domain.contains(inputs))
    assert np.all(mechanism.support.contains(reports))
    logs = np.asarray([mechanism.log_prob(reports, np.broadcast_to(x, (len(reports), *np.shape(x)))) for x in inputs])
    with np.errstate(invalid="ignore"):
        gaps = logs[:, None] - logs[None]
    most = float(np.max(gaps[np.isfinite(gaps)]))
    if mechanism.guarantee.delta == 0:
        assert most == pytest.approx(mechanism.guarantee.epsilon, rel=1e-4)
    else:
        assert 0 < most < math.inf


@pytest.mark.parametrize(("name", "epsilon"), CASES)
def test_tails_are_no_wider_than_they_must_be(name: str, epsilon: float) -> None:
    mechanism: Any = nz.CATALOGUE[name].example(epsilon)
    worst = float(np.max(mechanism.moments(np.asarray(mechanism.witnesses()[0])).variance))
    readout = mechanism.readout
    ends = np.max((np.asarray(readout.high, dtype=float) - np.asarray(readout.low, dtype=float)) ** 2) / 4
    assert worst * (1 - 1e-9) <= np.max(readout.tail.variance) <= LOOSE.get(name, 1.06) * (worst + ends)


@pytest.mark.parametrize("name", [name for name, cls in nz.CATALOGUE.items() if ".scalar." in cls.__module__])
def test_witnesses_move_with_the_domain(name: str) -> None:
    """On 10 to 30, or the whole numbers there, they are where they are on -1 to 1."""
    whole = name.startswith("discrete")
    kind = (lambda low, high: nz.Grid(low, high, (high - low) / 20)) if whole else nz.Interval
    options: Any = {"delta": 1e-6} if "gaussian" in name else {}
    for epsilon in (0.5, 1.0, 4.0):
        plain, moved = (nz.build(name, kind(*ends), epsilon=epsilon, **options) for ends in ((-1, 1), (10, 30)))
        np.testing.assert_allclose(moved.witnesses()[0], 20 + 10 * np.asarray(plain.witnesses()[0]), rtol=1e-12)
