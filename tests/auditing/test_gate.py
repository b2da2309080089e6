"""The gate: every entry of the catalogue, exactly and from the outside, at several budgets; what is broken stays out.

A sound mechanism fails the black box with probability 1e-6 at most, and with these seeds it does not.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest

import noisette as nz
from noisette.auditing.claims import Finding, examine, form_of, forms, published_form
from noisette.mechanisms.scalar._additive import LaplaceNoise

CONFIDENCE = 1 - 1e-6
EPSILONS = (2.0, pytest.param(9.0, marks=pytest.mark.long))  # test_blackbox looks at all of them at 0.7
SAMPLES = 50_000


def gate(mechanism: Any) -> Finding:
    """Examine a mechanism as the gate does."""
    return examine(mechanism, samples=SAMPLES, confidence=CONFIDENCE, rng=11)


FORMS = [
    pytest.param(cls, published, id=f"{name}{'-as-published' * published}")
    for name, cls in nz.CATALOGUE.items()
    for published in (False, True)
    if not published or "as_published" in {field.name for field in fields(cls)}
]


@pytest.mark.long
@pytest.mark.parametrize(
    ("cls", "published", "epsilon"),  # test_blackbox has what is not as published at 0.7
    [
        pytest.param(*form.values, epsilon, id=f"{form.id}-{epsilon}")
        for form in FORMS
        for epsilon in ((2.0, 9.0) if form.values[1] else (9.0,))
    ],
)
def test_the_catalogue_is_as_private_as_it_says(cls: type[Any], published: bool, epsilon: float) -> None:
    mechanism = published_form(cls.example(epsilon)) if published else cls.example(epsilon)
    guarantee, finding = mechanism.guarantee, gate(mechanism)
    assert finding.verdict == ("holds" if guarantee.claim_holds else "violated")
    assert finding.exact_epsilon <= guarantee.epsilon * (1 + 1e-6)
    assert finding.lower_bound <= finding.exact_epsilon
    if guarantee.delta == 0 and math.isfinite(finding.exact_epsilon):  # what no epsilon bounds may hide in rare reports
        assert finding.lower_bound >= 0.5 * min(finding.exact_epsilon, 5.0), "the auditor saw next to nothing"
    if not published:
        assert finding.verdict == "holds", "an unsound form must not be what one gets without asking"


CALIBRATIONS = ("tvg", "udn", "idn", "mvg", "classical", "classical beyond 1")


def calibrated(epsilon: float) -> dict[str, nz.TensorGaussian]:
    """Return tensor noise by each published calibration."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", nz.PrivacyWarning)
        return dict(zip(CALIBRATIONS, nz.TensorGaussian.published_forms(epsilon), strict=True))


@pytest.mark.long
@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("name", CALIBRATIONS)
def test_black_box_audit_of_each_calibration(name: str, epsilon: float) -> None:
    """What was published of noise for tensors: never above what holds, and as much of mu as so many reports show."""
    mechanism = calibrated(epsilon)[name]
    finding = gate(mechanism)
    assert (finding.form, finding.claimed) == (f"by {name.split()[0]}", mechanism.epsilon)
    assert finding.verdict == ("holds" if mechanism.guarantee.claim_holds else "violated")
    assert finding.verdict == ("violated" if name == "classical beyond 1" else "holds")
    assert finding.exact_epsilon == pytest.approx(mechanism.guarantee.epsilon, rel=1e-3)
    assert finding.lower_bound <= finding.exact_epsilon
    assert finding.mu_lower_bound <= mechanism.mu
    if mechanism.mu > 0.2:
        assert finding.mu_lower_bound > 0.5 * min(mechanism.mu, 8.0), "the auditor saw next to nothing"


class MisprintedRange(nz.TensorGaussian):
    """The sensitivity of Theorem 3 as printed, (b - a) / sqrt(I): noise that is I times too small."""

    @property
    def sigma(self) -> float:
        return replace(nz.TensorGaussian(self.domain, self.epsilon), calibration="idn").sigma / self.size

    @property
    def guarantee(self) -> nz.Guarantee:
        return nz.Guarantee(self.epsilon, self.delta)


@pytest.mark.slow
def test_the_misprinted_sensitivity_is_caught() -> None:
    """The twin of the audit above: 6 entries, epsilon 2."""
    finding = gate(MisprintedRange(nz.TensorDomain((2, 3)), 2.0, calibration="idn"))
    assert finding.verdict == "violated"
    assert finding.lower_bound > 2.0


def test_every_form_is_examined() -> None:
    examined = [(m.name, form_of(m)) for m in forms(1.0)]
    expected = [(param.values[0].name, "as published" * param.values[1]) for param in FORMS]
    own = expected.index(("tensor-gaussian", "")) + 1
    expected[own:own] = [("tensor-gaussian", f"by {name.split()[0]}") for name in CALIBRATIONS]
    assert examined == expected


class HalvedNoise(nz.Laplace):
    """Half the noise that epsilon asks for, in law and in reports."""

    @property
    def _noise(self) -> LaplaceNoise:
        return LaplaceNoise(2 * self.epsilon / self._steps)


class SecretlyHalvedNoise(nz.Laplace):
    """Half the noise in the reports; its law says otherwise."""

    def _perturb(self, x: Any, rng: np.random.Generator) -> Any:
        return HalvedNoise(self.epsilon, domain=self.domain)._perturb(x, rng)


class Atom(nz.Laplace):
    """One report in fifty is the value itself."""

    def _perturb(self, x: Any, rng: np.random.Generator) -> Any:
        return np.where(rng.random(x.size) < 0.02, x, super()._perturb(x, rng))

    def log_prob(self, report: Any, x: Any) -> np.ndarray:
        reports, values = np.broadcast_arrays(np.asarray(report, float), np.asarray(x, float))
        own = np.where(reports == values, math.log(0.02) - math.log(self._step), -np.inf)
        return np.logaddexp(math.log(0.98) + super().log_prob(report, x), own)


class ToldCategory(nz.GeneralizedRandomizedResponse):
    """A budget of twice what is stated."""

    @property
    def guarantee(self) -> nz.Guarantee:
        return nz.Guarantee(self.epsilon / 2)


BROKEN = [
    # mechanism, whether its law says so, whether its reports show it
    pytest.param(HalvedNoise(1.0), True, True, id="half-the-noise"),
    pytest.param(SecretlyHalvedNoise(1.0), False, True, id="half-the-noise-in-secret"),
    pytest.param(Atom(1.0), True, True, id="an-atom"),
    pytest.param(ToldCategory(1.0, nz.Categorical(4)), True, True, id="half-the-epsilon-stated"),
    pytest.param(published_form(nz.DuchiBox(0.5, 4)), True, True, id="ties-in-both-halves"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("mechanism", "in_law", "in_reports"), BROKEN)
def test_what_is_broken_is_caught(mechanism: Any, in_law: bool, in_reports: bool) -> None:
    finding = gate(mechanism)
    assert finding.verdict == "violated"
    assert (finding.exact_epsilon > finding.claimed * (1 + 1e-9)) == in_law
    assert (finding.lower_bound > finding.claimed) == in_reports
    assert finding.lower_bound <= {HalvedNoise: 2.0, SecretlyHalvedNoise: 2.0}.get(
        type(mechanism), finding.exact_epsilon
    )


@pytest.mark.slow
def test_the_published_box_stands_in_the_table_with_its_true_epsilon() -> None:
    finding = gate(published_form(nz.DuchiBox(0.5, 4)))
    assert (finding.claimed, round(finding.exact_epsilon, 3)) == (0.5, 0.974)
