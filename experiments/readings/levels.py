"""Statements of Hao, Wu, Wan 2023."""

from __future__ import annotations

import math

import numpy as np

import noisette as nz
from experiments.frame import Advance, Study
from experiments.readings.statements import Statement, study
from noisette.accounting import compose
from noisette.mechanisms.graded.estimation import pool_signs

_EDGES = (-1.0, -0.6, -0.2, 0.2, 0.6, 1.0)


def hao2023hierarchical(full: bool, advance: Advance) -> Study:
    """Levels of protection for a number."""
    e, x = 1.0, 0.3
    grow = math.exp(e)
    harmony = nz.Duchi(e)
    # Algorithm 1: +-(e^e + 1)/(e^e - 1), the sign of a value rounded to +-1 kept with e^e / (e^e + 1)
    reach = (grow + 1) / (grow - 1)
    plus = (1 + x) / 2 * grow / (grow + 1) + (1 - x) / 2 / (grow + 1)
    harmony_mean = reach * (2 * plus - 1)
    harmony_variance = reach**2 - harmony_mean**2
    # Algorithm 2, with C = (e^(e/2) + 1)/(e^(e/2) - 1), which is printed as 1
    half = math.exp(e / 2)
    c = (half + 1) / (half - 1)
    low = (c + 1) / 2 * x - (c - 1) / 2
    high = low + c - 1
    inside, outside = half / (half + 1) / (high - low), 1 / (half + 1) / (2 * c - (high - low))
    square = (inside * (high**3 - low**3) + outside * (2 * c**3 - high**3 + low**3)) / 3
    mean = (inside * (high**2 - low**2) + outside * (low**2 - high**2)) / 2
    budgets = (5.0, 4.0, 3.0, 2.0, 1.0)
    lhp = nz.LevelledResponse(_EDGES, budgets)
    law = _law(x, 3, budgets)
    ours = np.exp(lhp.log_prob(np.asarray([(t, s) for t in range(5) for s in (-1, 1)]), np.full(10, x)))
    p = [math.exp(own) / (math.exp(own) + 1) for own in budgets]
    stay = (p[0] + p[3] - 1) / (2 * p[0] - 1)
    bias, spread = _small_hiera(p)
    return study(
        "Hao, Wu, Wan 2023: hierarchical aggregation",
        [
            Statement(
                "Theorem 1",
                "Budgets of several reports add up.",
                "ε of budgets 1, 2 and 0.5",
                3.5,
                compose([nz.Duchi(1.0), nz.Duchi(2.0), nz.Duchi(0.5)]).epsilon,
                3.5,
                "Holds",
                privacy=True,
            ),
            Statement(
                "Algorithm 1",
                "Harmony for one number.",
                "variance at 0.3, ε = 1",
                harmony_variance,
                float(np.asarray(harmony.moments(np.asarray([x])).variance)[0]),
                harmony_variance,
                "Holds",
            ),
            Statement(
                "Algorithm 2",
                "Piecewise; its C is printed with + for -, which is 1.",
                "variance at 0.3, ε = 1, with the right C",
                square - mean**2,
                float(np.asarray(nz.Piecewise(e).moments(np.asarray([x])).variance)[0]),
                square - mean**2,
                "Misprinted; mended it holds",
            ),
            Statement(
                "Algorithm 3",
                "LHP; the second case of step 2 is printed as the first.",
                "chance of (t*, s) = (4, +) at 0.3, budgets 5 to 1, with 1/(exp(e_t) + k - 1)",
                law[7],
                float(ours[7]),
                law[7] if np.allclose(law, ours, rtol=1e-12) else None,
                "Misprinted; built as mended",
            ),
            Statement(
                "Algorithm 4",
                "PLC flips level i to level j > i, keeping with q.",
                "chance that a sign is the true one, level 1 flipped to 4",
                p[0] * stay + (1 - p[0]) * (1 - stay),
                p[3],
                p[3],
                "Holds",
            ),
            Statement(
                "Algorithm 5",
                "HierA pools own, converted and compensating reports.",
                "mean of ten reports of +1 a level, μ = 2, unclipped",
                _pooled_mean(p),
                _pooled_ours(p),
                1.0,
                "Holds",
            ),
            Statement(
                "Theorem 2",
                "LHP is graded LDP, the larger budget bounding the ratio.",
                "largest ε of the pair, budgets 5 to 1",
                max(budgets),
                None,
                lhp.guarantee.epsilon,
                "False: both parts add up",
                privacy=True,
            ),
            Statement(
                "Theorem 3",
                "HierA's mean is unbiased.",
                "bias of the mean of 50 users with value 0.9, μ = 1, budgets 0.5 to 0.1, and its standard error",
                0.0,
                None,
                f"{bias:.3f} ± {spread:.3f}",
                "False: step 6 clips",
            ),
        ],
    )


def _law(x: float, level: int, budgets: tuple[float, ...]) -> np.ndarray:
    """Chances of all pairs by Algorithm 3, the misprint of its step 2 mended; levels count from 0."""
    size, own = len(budgets), math.exp(budgets[level])
    law = []
    for told in range(size):
        chance = (own if told == level else 1.0) / (own + size - 1)
        p = math.exp(budgets[told]) / (math.exp(budgets[told]) + 1)
        plus = (1 + x) / 2 * p + (1 - x) / 2 * (1 - p)
        law += [chance * (1 - plus), chance * plus]
    return np.asarray(law)


def _pooled_mean(p: list[float]) -> float:
    """Return the expected mean of Algorithm 5 with mu = 2, ten signs +1 a level that were kept as they are told."""
    total = 0.0
    for i in range(5):
        # V_i* of expected plus signs; each of ten true +1 is told as +1 with p_i
        plus = 10 * p[i] * (2 if i == 4 else 1) + (10 * p[i] if i > 0 else 0.0)
        signs = 10 * ((2 if i == 4 else 1) + (1 if i > 0 else 0))
        total += (p[i] * signs - (signs - plus)) / (2 * p[i] - 1) - (p[i] * signs - plus) / (2 * p[i] - 1)
    return total / (2 * 50)


def _pooled_ours(p: list[float]) -> float:
    """Return the same from the library, from counts that are large and in proportion."""
    many = 10_000_000
    counts = np.asarray([[round(many * (1 - own)), round(many * own)] for own in p])
    return round(float(pool_signs(counts, np.asarray(p), 2, clip=False, rng=1).sum()) / (2 * 5 * many), 3)


def _small_hiera(p: list[float], users: int = 50, runs: int = 4000) -> tuple[float, float]:
    """Return the bias of HierA's mean for few users of one value near the end, and the standard error of that."""
    small = nz.LevelledResponse(_EDGES, (0.5, 0.4, 0.3, 0.2, 0.1))
    rng = np.random.default_rng(2)
    told = small.privatize(np.full(users * runs, 0.9), rng=rng).reshape(runs, users, 2)
    cells = told[..., 0] * 2 + (told[..., 1] > 0) + 10 * np.arange(runs)[:, None]
    counts = np.bincount(cells.ravel(), minlength=10 * runs).reshape(runs, 5, 2)
    means = pool_signs(counts, small.p_keep, 1, rng=rng).sum(axis=1) / users
    return float(means.mean() - 0.9), float(means.std() / math.sqrt(runs))
