"""Statements of Sun, Qian, Chen 2021."""

from __future__ import annotations

import math
import warnings

import numpy as np

import noisette as nz
from experiments.frame import Advance, Study
from experiments.readings.statements import Statement, study
from noisette.federated import Channel, ModelLayout, Ranges, lines


def sun2021ldpfl(full: bool, advance: Advance) -> Study:
    """LDP-FL: one of two numbers for every weight."""
    e, c, r, w, weights, clients = 1.0, 0.1, 0.05, 0.12, 5_994, 100
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", nz.PrivacyWarning)  # the table says what holds
        shuffled = Channel("adaptive-duchi", ModelLayout.of(np.zeros(weights)), Ranges(c, r), epsilon=e)
        one = nz.AdaptiveDuchi(e, domain=nz.Box(1, c - r, c + r), as_published=True)
    grow = math.exp(e)
    far = r * (grow + 1) / (grow - 1)
    plus = ((w - c) * (grow - 1) + r * (grow + 1)) / (2 * r * (grow + 1))
    high = float(np.exp(one.log_prob(np.asarray([float(one.support.high)]), np.asarray([w]))))
    moments = one.moments(np.asarray([w]))
    variance = float(np.asarray(moments.variance)[0])
    ends = [float(np.asarray(one.moments(np.asarray([x])).variance)[0]) / clients for x in (c + r, c)]
    radii = np.asarray([0.01, 0.05, 0.2])
    upper = (grow + 1) ** 2 * float((radii**2).sum()) / ((grow - 1) ** 2 * 9)
    worst = sum(_variance(e, radius, radius) for radius in radii) / 9
    quantile, beta = 1.96, 0.05  # of a normal mean, beta = 0.05
    ratios = [
        quantile * math.sqrt(_variance(own, 1.0, 1.0)) / (math.sqrt(-math.log(beta)) / own) for own in (1.0, 10.0)
    ]
    return study(
        "Sun, Qian, Chen 2021: LDP-FL",
        [
            Statement(
                "Algorithm 2",
                "A weight is reported as c ± r (exp(ε) + 1)/(exp(ε) - 1).",
                "chance of the upper number, w = 0.12 in 0.1 ± 0.05, ε = 1",
                plus,
                high,
                plus,
                "Built as printed",
            ),
            Statement(
                "Theorem 1",
                "One weight is ε-LDP.",
                "exact ε of one weight, ε = 1",
                e,
                nz.exact_epsilon(one),
                e,
                "Holds",
                privacy=True,
            ),
            Statement(
                "Theorem 1, the model",
                "By shuffling, ε for a weight is enough for a model.",
                "ε of a round of 5,994 weights behind a perfect shuffler of 100 clients, ε = 1, δ = 1e-5",
                e,
                None,
                lines(shuffled, rounds=1, clients=clients, delta=1e-5).shuffled.epsilon,
                "False: weights add up",
                privacy=True,
            ),
            Statement(
                "Lemma 1",
                "The mean weight is unbiased.",
                "bias at w = 0.12",
                abs(round(far * (2 * plus - 1) + c - w, 12)),
                float(np.asarray(moments.bias)[0]),
                0.0,
                "Holds",
            ),
            Statement(
                "Lemma 2",
                "The variance is r² ((exp(ε) + 1)/(exp(ε) - 1))².",
                "variance at w = 0.12",
                far**2,
                variance,
                far**2 - (w - c) ** 2,
                "Forgets minus (w - c)²",
                mended=True,
            ),
            Statement(
                "Lemma 3",
                "The variance of the mean lies between that less r²/n and that.",
                "both ends, n = 100",
                f"{(far**2 - r**2) / clients:.4g} to {far**2 / clients:.4g}",
                f"{ends[0]:.4g} to {ends[1]:.4g}",
                f"{ends[0]:.4g} to {ends[1]:.4g}",
                "Holds",
            ),
            Statement(
                "Theorem 2",
                "The mean errs by O(r √(-ln β)/(ε √n)) at most.",
                "ratio of the error at β = 0.05 to that, ε = 1 and 10",
                "bounded",
                None,
                f"{ratios[0]:.3g} and {ratios[1]:.3g}",
                "True of bounded epsilon only",
            ),
            Statement(
                "Corollary 1",
                "With radii r_u the sum of r_u² takes the place of n r².",
                "upper end for 0.01, 0.05, 0.2",
                upper,
                worst,
                worst,
                "Holds",
            ),
        ],
    )


def _variance(epsilon: float, radius: float, below: float) -> float:
    """Return the library's variance of a report on [-radius, radius] in the middle, where it is largest."""
    entry = nz.Duchi(epsilon, domain=nz.Interval(-radius, below))
    return float(np.asarray(entry.moments(np.zeros(1)).variance)[0])
