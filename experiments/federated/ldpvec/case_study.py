"""The case study of Duan 2024, section 6.1.4: what it prints, and what follows from its own formulas."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from noisette.federated.theory import aggregated_noise
from noisette.mechanisms import CATALOGUE


@dataclass(frozen=True)
class CaseStudy:
    """A row of the case study of Duan 2024: variance of an entry and cost of a round, printed and computed."""

    mechanism: str
    printed_variance: float
    variance: float
    printed_difference: float
    by_its_formula: float
    difference: float


def case_study(clip_norm: float = 1.8) -> list[CaseStudy]:
    """Return the case study of Duan 2024, section 6.1.4: logistic regression on MNIST, 500 devices, 785 weights.

    Each entry gets epsilon = 0.1 (delta = 1e-7 for Gaussian noise), the rate is 0.1. ``by_its_formula`` puts the
    printed variance in equation 6.12, with the printed C' = 157 for Laplace and Piecewise and C for Gaussian noise; the
    printed differences follow from no C that the text names. ``difference`` is Corollary 3 with the true moments and
    entries in [-C / sqrt(d), C / sqrt(d)], ``clip_norm`` being 1.8 in one sentence of the text and 0.1 in another.
    """
    devices, dims, rate = 500, 785, 0.1
    made: Sequence[tuple[str, dict[str, float], float, float, float]] = (
        ("laplace", {"epsilon": 0.1}, 400.0, 25_521_315.0, 157.0),
        ("piecewise", {"epsilon": 0.1}, 256.7, 10_542_640.0, 157.0),
        ("gaussian", {"epsilon": 0.1, "delta": 1e-7}, 4_694.5, 170_859.0, clip_norm),
    )
    rows = []
    for name, terms, variance, difference, reach in made:
        mechanism = CATALOGUE[name](**terms)
        noise = aggregated_noise(mechanism, np.ones(devices), dims=dims, clip_norm=clip_norm)
        own = float(np.max(mechanism.moments(np.zeros(1)).variance))
        formula = reach**2 * rate**2 / devices * dims * variance
        rows.append(CaseStudy(name, variance, own, difference, formula, noise.difference(rate)))
    return rows
