"""Guarantees as values, and the exact delta of Gaussian noise."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import mpmath
import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_mechanism

import noisette as nz
from noisette.guarantees import gaussian_delta, gaussian_mu, warn_unsound


def exact_delta(mu: float, epsilon: float) -> Any:
    """Return Phi(mu/2 - e/mu) - exp(e) Phi(-mu/2 - e/mu) in 120 digits."""
    with mpmath.workdps(120):
        m, e = mpmath.mpf(mu), mpmath.mpf(epsilon)
        return mpmath.ncdf(m / 2 - e / m) - mpmath.exp(e) * mpmath.ncdf(-m / 2 - e / m)


@pytest.mark.parametrize("delta", [1e-300, 1e-100, 1e-30, 1e-10, 1e-5, 0.1, 0.9])
@pytest.mark.parametrize("epsilon", [1e-6, 1e-3, 0.1, 1.0, 10.0, 100.0, 1000.0])
def test_gaussian_delta_and_mu_in_many_digits(epsilon: float, delta: float) -> None:
    mu = gaussian_mu(epsilon, delta)
    exact = exact_delta(mu, epsilon)
    assert abs(gaussian_delta(mu, epsilon) / exact - 1) < 1e-12
    assert exact <= delta * (1 + 1e-12)
    assert exact_delta(mu * (1 + 1e-9), epsilon) > delta


def test_gaussian_delta_across_its_branches() -> None:
    """Small mu is a series, large mu a difference of chances: no seam between them."""
    for epsilon in (1e-6, 1e-3, 0.05, 1.0, 30.0):
        seams = np.asarray([0.00999, 0.00999999, 0.01, 0.0100001, 0.0101])
        likely = 2 * (5 + np.sqrt(25 + 2 * epsilon)) / 2 * np.asarray([0.999, 1.0, 1.001])  # e/mu - mu/2 = -5
        for mu in (*seams, *likely):
            exact = exact_delta(float(mu), epsilon)
            if exact > 1e-300:
                assert abs(float(gaussian_delta(mu, epsilon)) / exact - 1) < 1e-11


def test_gaussian_delta_at_the_ends() -> None:
    assert gaussian_delta(0.0, 1.0) == 0
    assert gaussian_delta(1e-300, 1.0) == 0
    assert gaussian_delta(1e4, 1.0) == 1
    np.testing.assert_array_less(np.diff(-gaussian_delta(np.geomspace(1e-2, 100, 50), 1.0)), 1e-300)


@pytest.mark.parametrize(("epsilon", "delta"), [(0.1, 1e-5), (1.0, 1e-6), (4.0, 1e-10), (20.0, 1e-3)])
def test_gaussian_mu_agrees_with_dp_accounting(epsilon: float, delta: float) -> None:
    mu = gaussian_mu(epsilon, delta)
    peer = privacy_loss_mechanism.GaussianPrivacyLoss(1 / mu, sensitivity=1)
    assert math.isclose(peer.get_delta_for_epsilon(epsilon), delta, rel_tol=1e-6)
    assert math.isclose(
        float(gaussian_delta(mu, 0.5 * epsilon)), peer.get_delta_for_epsilon(0.5 * epsilon), rel_tol=1e-6
    )


def test_classic_calibration_is_told_apart() -> None:
    """sqrt(2 ln(1.25 / delta)) / epsilon is not the analytic scale: wasteful at 1, broken above."""
    assert 1 / gaussian_mu(1.0, 1e-5) < 0.8 * math.sqrt(2 * math.log(1.25e5))
    classic = math.sqrt(2 * math.log(1.25e5)) / 20
    assert float(gaussian_delta(1 / classic, 20.0)) > 1e-5


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"epsilon": -1.0}, r"Expected epsilon=-1\.0 >= 0"),
        ({"epsilon": math.nan}, "Expected epsilon=nan >= 0"),
        ({"epsilon": 1.0, "delta": -0.1}, r"Expected delta=-0\.1 in \[0, 1\]"),
        ({"epsilon": 1.0, "delta": 1.5}, r"Expected delta=1\.5 in \[0, 1\]"),
        ({"epsilon": 1.0, "unit": "user"}, "Expected unit='user' to be one of"),
        ({"epsilon": 1.0, "model": "global"}, "Expected model='global' to be one of"),
        ({"epsilon": 1.0, "relation": "swap"}, "Expected relation='swap' to be one of"),
    ],
)
def test_bad_guarantees_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        nz.Guarantee(**options)


def test_the_ends_are_guarantees_too() -> None:
    assert nz.Guarantee(0.0).epsilon == 0.0
    assert nz.Guarantee(math.inf, 1.0).delta == 1.0


def test_text() -> None:
    assert str(nz.Guarantee(1.0)) == "1-DP, unit record, model local, relation any-pair"
    central = nz.Guarantee(0.5, 1e-6, unit="example", model="central", relation="add-remove")
    assert str(central) == "(0.5, 1e-06)-DP, unit example, model central, relation add-remove"


@pytest.mark.parametrize(
    ("claim", "holds"),
    [
        (None, True),
        (nz.Claim(2.0), True),
        (nz.Claim(3.0), True),
        (nz.Claim(1.9), False),
        (nz.Claim(2.0, unit="element"), False),
    ],
)
def test_claims(claim: nz.Claim | None, holds: bool) -> None:
    guarantee = nz.Guarantee(2.0, claim=claim)
    assert guarantee.claim_holds is holds
    assert guarantee.spec()["claim_holds"] is holds
    json.dumps(guarantee.spec())


def test_delta_of_a_claim_counts() -> None:
    assert not nz.Guarantee(1.0, 1e-5, claim=nz.Claim(1.0, 1e-6)).claim_holds
    assert nz.Guarantee(1.0, 1e-6, claim=nz.Claim(1.0, 1e-6)).claim_holds


def test_repeat_adds_up() -> None:
    once = nz.Guarantee(0.5, 0.4, claim=nz.Claim(0.5, 0.4), matrix=((0.0, 0.5), (0.5, 0.0)))
    thrice = once.repeat(3)
    assert (thrice.epsilon, thrice.delta, thrice.claim) == (1.5, 1.0, None)
    assert thrice.matrix == ((0.0, 1.5), (1.5, 0.0))
    assert once.repeat(1).epsilon == once.epsilon
    for bad, error in ((0, ValueError), (2.5, TypeError), (True, TypeError)):
        with pytest.raises(error, match="times"):
            once.repeat(bad)


def test_zcdp() -> None:
    assert nz.Guarantee(2.0).zcdp() == 2.0
    with pytest.raises(ValueError, match="Expected a pure guarantee, got delta=1e-06"):
        nz.Guarantee(2.0, 1e-6).zcdp()


def test_unsound_claims_warn() -> None:
    guarantee = nz.Guarantee(math.inf, claim=nz.Claim(1.0, unit="element"))
    with pytest.warns(nz.PrivacyWarning, match="bad: its published claim of epsilon=1 per element does not hold; what"):
        warn_unsound("bad", guarantee)


def test_a_claim_is_broken_by_each_of_its_parts_alone() -> None:
    own = nz.Guarantee(1.0, 1e-6)
    claims = {
        True: [(1.0, 1e-6, "record"), (2.0, 1e-5, "record"), (1.0 - 5e-10, 1e-6 * (1 - 5e-10), "record")],
        False: [(0.999, 1e-6, "record"), (1.0, 9e-7, "record"), (1.0, 1e-6, "element"), (1.0 - 2e-9, 1e-6, "record")],
    }
    for holds, found in claims.items():
        for epsilon, delta, unit in found:
            claim = nz.Claim(epsilon, delta, unit=unit)
            assert replace(own, claim=claim).claim_holds is holds, claim
    assert own.claim_holds


def test_repeated_guarantees_add_up_entry_by_entry() -> None:
    own = nz.Guarantee(1.0, 0.4, matrix=((0.0, 1.0), (0.5, 0.0)))
    found = own.repeat(3)
    assert (found.epsilon, found.delta, found.matrix) == (3.0, 1.0, ((0.0, 3.0), (1.5, 0.0)))
    assert own.repeat(2).delta == 0.8
    assert own.repeat(1) == own


def test_a_replaced_record_is_two_changes() -> None:
    """Dwork, Roth 2014, Theorem 2.2: 2 epsilon and (1 + exp(epsilon)) delta, which is a chance."""
    terms = {"unit": "record", "model": "central", "relation": "replace"}
    for epsilon, delta in ((0.5, 1e-6), (3.0, 1e-3), (2.0, 0.0), (800.0, 0.0)):
        found = nz.Guarantee(epsilon, delta, model="central", relation="add-remove").implied(**terms)
        assert found.epsilon == 2 * epsilon
        assert found.delta == pytest.approx((1 + math.exp(epsilon)) * delta if delta else 0.0, rel=1e-12)
    for epsilon in (6.0, 699.0, 701.0):
        assert nz.Guarantee(epsilon, 0.1, model="central", relation="add-remove").implied(**terms).delta == 1.0


def test_what_is_implied_is_never_rounded_below_the_theorem() -> None:
    rng = np.random.default_rng(4)
    with mpmath.workdps(60):
        for epsilon, delta in zip(rng.uniform(0, 30, 300), 10 ** rng.uniform(-30, -14, 300), strict=True):
            own = nz.Guarantee(float(epsilon), float(delta), model="central", relation="add-remove")
            found = own.implied(unit="record", model="central", relation="replace")
            exact = (1 + mpmath.exp(mpmath.mpf(float(epsilon)))) * mpmath.mpf(float(delta))
            assert exact <= mpmath.mpf(found.delta) <= exact * (1 + mpmath.mpf(2) ** -48)


@pytest.mark.parametrize("epsilon", [1e-6, 0.01, 1.0, 30.0, 700.0])
@pytest.mark.parametrize("delta", [1e-300, 1e-20, 1e-6, 0.3, 0.5, 0.9, 1 - 1e-9, 1 - 2.0**-53])
def test_a_mu_has_no_more_delta_than_was_asked_for(epsilon: float, delta: float) -> None:
    """With 100 digits; near one delta loses digits that 1 - delta would need."""
    with mpmath.workdps(100):
        mu, e = mpmath.mpf(gaussian_mu(epsilon, delta) * (1 - 1e-12)), mpmath.mpf(epsilon)
        found = mpmath.ncdf(mu / 2 - e / mu) - mpmath.exp(e) * mpmath.ncdf(-mu / 2 - e / mu)
        assert 0 < found <= delta
        assert 1 - found < (1 - mpmath.mpf(delta)) * (1 + 1e-5) + mpmath.ldexp(1, -49)
