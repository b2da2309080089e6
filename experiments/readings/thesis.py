"""Statements of Duan 2024."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
from scipy.integrate import quad
from scipy.stats import kstest, norm

import noisette as nz
from experiments.frame import Advance, Study
from experiments.readings.statements import Statement, study
from noisette.accounting import gdp_epsilon, gdp_mu
from noisette.enhancement.hdr4me import l1, l2, star
from noisette.federated.theory import aggregated_noise
from noisette.mechanisms.geometric.spherical import from_spherical, to_spherical
from noisette.sgd.theory.steps import (
    SphericalNoise,
    VectorNoise,
    efficiency_difference,
    expected_efficiency_difference,
    predicted,
)

_DELTA = 1e-5


def duan2024benchmarking(full: bool, advance: Advance) -> Study:
    """The thesis: LDPTube, GeoDP, LDPVec."""
    found = [*_tube(), *_geodp(), *_federated()]
    return study("Duan 2024: LDPTube, GeoDP and LDPVec", found)


def _tube() -> list[Statement]:
    """Chapter 4."""
    laplace, piecewise = nz.Laplace(1.0), nz.Piecewise(1.0)
    # Hybrid reports by Piecewise with this chance, else by Duchi's two numbers (Wang et al. 2019)
    chance, bits = 1 - math.exp(-0.5), ((math.e + 1) / (math.e - 1)) ** 2
    at_0, at_9 = (chance * _piecewise(t) + (1 - chance) * (bits - t**2) for t in (0.0, 0.9))
    users, values, probs = 10_000, np.asarray([-0.5, 0.5]), np.asarray([0.25, 0.75])
    variance = sum(p * _piecewise(t) for p, t in zip(probs, values, strict=True)) / users
    dev = nz.deviation(piecewise, users=users, values=values, probs=probs)
    lap = nz.deviation(laplace, users=users, values=values, probs=probs)
    # the proof of Theorem 2 has (r sigma)^2 for the variance of one report, Lemma 2 has r sigma^2: the proof's is meant
    rho, sigma = 6 * 2.0**3, 2.0 * math.sqrt(2) / users
    berry = 0.33554 * (rho + 0.415 * (users * sigma) ** 3) / (users**3.5 * sigma**3)
    y, se, true = np.asarray([3.0]), np.asarray([1.0]), 0.3
    wide = norm.ppf(0.975)
    soft, ridge = max(3.0 - wide, 0.0), 3.0 / (wide + 1)
    none, some = (norm.cdf(k) - norm.cdf(-k) for k in (1.0, 2.0))
    mixture = none * 3.0 + (some - none) * soft + (1 - some) * ridge
    pair = (named(1.0, domain=nz.Interval(0, 1)) for named in (nz.SquareWave, nz.Piecewise))
    crossing = nz.break_even(*pair, values=[0.2, 0.9])
    pair_at_500 = {
        label: float(nz.deviation(named(1.0, domain=nz.Interval(0, 1)), users=500, values=[0.2, 0.9]).mse)
        for label, named in (("Square wave", nz.SquareWave), ("Piecewise", nz.Piecewise))
    }
    groups = [(6000, 0.5), (4000, 2.0)]  # users and epsilon of two groups
    mixed = sum(n * 8 / e**2 for n, e in groups) / 10_000**2
    return [
        Statement(
            "Lemma 1",
            "The variance depends on the value only for bounded mechanisms, and for all of them.",
            "ratio of the variances at 0.9 and 0: Laplace, Piecewise, Hybrid",
            "1, not 1, not 1",
            ", ".join(map(_bent, (laplace, piecewise, nz.Hybrid(1.0)))),
            f"1.000, {_piecewise(0.9) / _piecewise(0.0):.3f}, {at_9 / at_0:.3f}",
            "True but for Hybrid",
        ),
        Statement(
            "Lemma 2",
            "Unbounded: the deviation is N(E N, Var N / r).",
            "its standard deviation, Laplace, 10,000 reports",
            math.sqrt(8 / users),
            float(lap.std),
            math.sqrt(8 / users),
            "Holds",
        ),
        Statement(
            "Lemma 3",
            "Bounded: it is N(E δ, E Var / r), over the values.",
            "its standard deviation, Piecewise, two values",
            math.sqrt(variance),
            float(dev.std),
            math.sqrt(variance),
            "Holds without sampled dimensions",
        ),
        Statement(
            "Theorem 1",
            "Deviations of d dimensions are independent normal ones.",
            "correlation of two dimensions, one of two reported by each user",
            0.0,
            None,
            _correlation(),
            "Not with sampled dimensions",
        ),
        Statement(
            "Theorem 2",
            "The normal law is as near as Berry and Esseen say, with (r σ)² for the variance of a report.",
            "bound, Laplace, 10,000 reports",
            berry,
            float(lap.berry_esseen),
            berry,
            "Holds as its proof reads",
        ),
        Statement(
            "Theorem 2, its example",
            "The error at 1,000 Laplace reports is 1.57 % at most: with E|x|³ = 3λ³ (eq. 4.15), which is 6λ³.",
            "bound, Laplace, 1,000 reports",
            _berry(3.0, 1_000),
            float(nz.deviation(laplace, users=1_000, values=values, probs=probs).berry_esseen),
            _berry(6.0, 1_000),
            "Third moment halved: 2.7 %",
            mended=True,
        ),
        Statement(
            "Algorithm 3",
            "The population from which on one mechanism beats another.",
            "users, Square wave against Piecewise, both on [0, 1], ε = 1, values 0.2 and 0.9",
            _crossing_by_hand(),
            crossing,
            _crossing_by_hand(),
            "Holds; its example is misprinted",
        ),
        Statement(
            "Algorithm 3, swapped",
            "Below that population the mechanism that is given first wins.",
            "who wins with 500 users, Piecewise given first, as for Algorithm 3",
            "Piecewise",
            min(pair_at_500, key=pair_at_500.__getitem__),
            "Square wave" if _crossing_by_hand() > 500 else "Piecewise",
            "Only with the biased first",
        ),
        Statement(
            "Theorem 3",
            "Personalised: variances of the groups, weighted by their users.",
            "standard deviation, Laplace, 6,000 users of ε 0.5 and 4,000 of 2",
            math.sqrt(mixed),
            None,
            "{:.4f} ± {:.4f}".format(*_mixed_measured(groups)),
            "Holds",
        ),
        Statement(
            "Lemma 4",
            "L1 improves a dimension whose deviation exceeds 1.",
            "soft threshold of 3 at standard error 1",
            soft,
            float(l1(y, se).value[0]),
            f"error {3.0 - true:.2f} becomes {abs(soft - true):.2f} for a mean of 0.3",
            "Holds",
        ),
        Statement(
            "Lemma 5",
            "L2 improves a dimension whose deviation exceeds 2.",
            "ridge of 3 at standard error 1, 1 in place of the unknown mean",
            ridge,
            float(l2(y, se).value[0]),
            f"error {3.0 - true:.2f} becomes {abs(ridge - true):.2f} for a mean of 0.3",
            "Needs the unknown mean",
        ),
        Statement(
            "Algorithm 4",
            "HDR4ME*: raw, L1 and L2 by the chances of the deviation.",
            "its value of 3 at standard error 1",
            mixture,
            float(star(y, se).value[0]),
            mixture,
            "Built as printed",
        ),
    ]


def _bent(mechanism: Any) -> str:
    """Return by which factor the variance at 0.9 exceeds that at 0."""
    middle, end = np.asarray(mechanism.moments(np.asarray([0.0, 0.9])).variance)
    return f"{end / middle:.3f}"


def _piecewise(value: float) -> float:
    """Return Piecewise's variance at a value in [-1, 1], mended, at ε = 1."""
    half = math.exp(0.5)
    return value**2 / (half - 1) + (half + 3) / (3 * (half - 1) ** 2)


def _berry(third: float, reports: int) -> float:
    """Return Theorem 2's bound for Laplace reports of scale 1, whose third absolute moment is given."""
    return 0.33554 * (third + 0.415 * 2**1.5) / (2**1.5 * math.sqrt(reports))


def _correlation(users: int = 100, runs: int = 200) -> float:
    """Return the measured correlation of the deviations of two dimensions of which every user reports one."""
    rng = np.random.default_rng(3)
    sampled = nz.Sampled("duchi", epsilon=6.0, dims=2, report=1)
    x = np.tile([[-1.0, -1.0], [1.0, 1.0]], (users // 2, 1))  # a user who has much of one has much of the other
    errors = np.asarray([sampled.aggregate(sampled.privatize(x, rng=rng)).estimate().value for _ in range(runs)])
    return round(float(np.corrcoef(errors.T)[0, 1]), 3)


def _crossing_by_hand(values: tuple[float, ...] = (0.2, 0.9)) -> float:
    """Return the population at which the squared bias of Square wave makes up for its smaller variance, at ε = 1.

    Square wave: density p within b of a value, p/e elsewhere in [-b, 1 + b]. Piecewise's variance, mended, is for
    [-1, 1].
    """
    e = math.e
    b = 1 / (2 * e * (e - 2))
    p = e / (2 * b * e + 1)
    means, variances = [], []
    for value in values:
        first, second = (
            (p - p / e) * ((value + b) ** k - (value - b) ** k) / k + p / e * ((1 + b) ** k - (-b) ** k) / k
            for k in (2, 3)
        )
        means.append(first - value)
        variances.append(second - first**2)
    piecewise = [_piecewise(2 * v - 1) for v in values]
    return float((np.mean(piecewise) / 4 - np.mean(variances)) / np.mean(means) ** 2)


def _mixed_measured(groups: list[tuple[int, float]], runs: int = 500) -> tuple[float, float]:
    """Return the measured standard deviation of the plain mean of Laplace reports of both groups, and its error."""
    rng = np.random.default_rng(4)
    total = np.zeros(runs)
    for users, epsilon in groups:
        scale = 2 / epsilon
        total += np.asarray([rng.laplace(scale=scale, size=users).sum() for _ in range(runs)])
    found = float(total.std() / sum(users for users, _ in groups))
    return found, found / math.sqrt(2 * runs)


def _turned(clips: tuple[float, ...]) -> list[float]:
    """Return the cosines between means of 16 clipped gradients with and without the same noise, by clipping norm."""
    rng = np.random.default_rng(9)
    gradients, noise = rng.normal(size=50) + 0.5 * rng.normal(size=(16, 50)), rng.normal(size=50)
    found = []
    for clip in clips:
        lengths = np.linalg.norm(gradients, axis=1, keepdims=True)
        clean = (gradients / np.maximum(lengths / clip, 1)).mean(axis=0)
        noisy = clean + clip * noise / 16
        found.append(float(clean @ noisy / np.linalg.norm(clean) / np.linalg.norm(noisy)))
    return found


def _geodp() -> list[Statement]:
    """Chapter 5."""
    rng = np.random.default_rng(5)
    g, w, best, n = rng.normal(size=(4, 50))
    eta, clip, batch = 0.3, 0.7, 16
    item_a = eta**2 * (2 * clip / batch * n @ g + clip**2 / batch**2 * n @ n)
    item_b = 2 * eta * clip / batch * n @ (best - w)
    noisy = g + clip * n / batch
    step = efficiency_difference(noisy, g, w, best, learning_rate=eta)
    after = float(np.sum((w - eta * noisy - best) ** 2) - np.sum((w - eta * g - best) ** 2))
    there = expected_efficiency_difference(VectorNoise(clip / batch), g, best, best, learning_rate=eta)
    spread = [2 * rate * std * float(np.linalg.norm(best - w)) for rate, std in ((0.3, 0.1), (0.15, 0.1), (0.3, 0.05))]
    m, e, dims, b, beta = _angles(as_published=True), 1.0, 3, 100, 0.1
    sigma = 1 / gdp_mu(e, _DELTA)
    # gradients that cancel but for one let that one take the angles from one end of their range to the other
    turn, conceded = b / sigma, _DELTA + 1 - beta
    unit = rng.normal(size=20)
    unit /= np.linalg.norm(unit)
    mu = gdp_mu(8.0, _DELTA)
    geos = []
    for own in (1e-4, 1e-3, 0.01, 0.03, 0.1, 0.3, 1.0):
        sound = nz.AngleGaussian(8.0, 20, delta=_DELTA, beta=own).sigmas
        geos.append(predicted(SphericalNoise(float(sound[0]), float(sound[1]), own), unit))
    plain = VectorNoise(2 / mu)
    # Theorem 7: the budgets of magnitude and angles, averaged; they add up
    rdp = 0.5 / sigma**2
    means, directions, apart = _averaged()
    known = _known_range(unit)
    size, angles = to_spherical(g)
    return [
        Statement(
            "Algorithm 1",
            "DP-SGD: clip, add noise, step.",
            "noise on a mean of 16, C = 0.7, σ = 1",
            clip / batch,
            clip / batch,
            clip / batch,
            "Holds, with an accountant",
        ),
        Statement(
            "Theorem 6",
            "Item A and item B make up the efficiency difference.",
            "their sum; the distance itself",
            float(item_a + item_b),
            step.total,
            after,
            "Holds",
        ),
        Statement(
            "Corollary 1",
            "At the optimum item A remains.",
            "item A and item B there, expected",
            "A > 0, B = 0",
            f"{there.item_a:.4g}, {there.item_b:.4g}",
            f"{eta**2 * 50 * (clip / batch) ** 2:.4g}, 0",
            "Holds",
        ),
        Statement(
            "Corollary 2",
            "Clipping and learning rate cannot lessen the noise on a gradient's direction.",
            "cosine of the noisy and the clean mean, gradients of lengths 7.5 to 9.2: C = 2, C = 1; C = 40, C = 20",
            "unchanged",
            None,
            "{:.3f}, {:.3f}; {:.3f}, {:.3f}".format(*_turned((2.0, 1.0, 40.0, 20.0))),
            "True if all are clipped",
        ),
        Statement(
            "Corollary 2, item B",
            "So clipping and learning rate cannot lower item B.",
            "spread of item B; half the rate; half the clip",
            "unchanged",
            None,
            f"{spread[0]:.3g}, {spread[1]:.3g}, {spread[2]:.3g}",
            "False: both halve it",
        ),
        Statement(
            "Algorithm 5",
            "GeoDP: noise C σ/B on the magnitude, √(d + 2) β π σ/B on the angles.",
            "noise on an angle, d = 3, B = 100, β = 0.1, ε = 1",
            math.sqrt(dims + 2) * beta * math.pi * sigma / b,
            float(m.sigmas[1]),
            None,
            "Built as printed",
        ),
        Statement(
            "Theorem 7",
            "The Rényi budgets of magnitude and angles average.",
            "ρ of both releases, each 1/(2σ²)",
            rdp,
            None,
            2 * rdp,
            "False: budgets add up",
            privacy=True,
        ),
        Statement(
            "Theorem 8",
            "A mean of B clipped gradients is N(E, var/B); its density has B² for B.",
            "mass of the printed density, B = 256; p-value of the mended law, 2,000 batches",
            f"mass {_printed_mass(256):.4g}",
            None,
            f"mass 1; p-value {means:.2g}",
            "Misprinted; mended it holds",
        ),
        Statement(
            "Theorem 9",
            "So is the mean of B directions.",
            "p-value, 2,000 batches; largest gap of the mean direction and the direction of the mean, in radians",
            "gap 0",
            None,
            f"p-value {directions:.2g}; gap {apart:.2g}",
            "Holds, of another direction",
        ),
        Statement(
            "Lemma 6",
            "Some β makes GeoDP's angles better than DP's.",
            "error of an angle at one true (8, 1e-5), d = 20: GeoDP with the best of seven β from 1e-4 to 1; DP",
            "smaller",
            None,
            f"GeoDP {min(own.direction for own in geos):.3g}, DP {predicted(plain, unit).direction:.3g}",
            "Not at one guarantee",
        ),
        Statement(
            "Theorem 10",
            "GeoDP's step ends nearer to the optimum.",
            "cosine to the clean gradient at one true (8, 1e-5), d = 20: GeoDP with the best of these β; DP",
            "larger",
            None,
            f"GeoDP {max(own.cosine for own in geos):.3g}, DP {predicted(plain, unit).cosine:.3g}",
            "Not at one guarantee",
        ),
        Statement(
            "Lemma 6, at one σ",
            "The same in the thesis's terms: one σ, and a range that has the true angles in its middle.",
            "error of an angle, d = 20, B = 100, σ = 1, a mean gradient of half the clipping norm: GeoDP, β = 0.01; DP",
            "smaller",
            None,
            f"GeoDP {known[0][0]:.3g}, DP {known[1][0]:.3g}",
            "Holds if range is known",
        ),
        Statement(
            "Theorem 10, at one σ",
            "The same in the thesis's terms: one σ, and a range that has the true angles in its middle.",
            "cosine to the clean gradient, as for Lemma 6: GeoDP; DP",
            "larger",
            None,
            f"GeoDP {known[0][1]:.4f}, DP {known[1][1]:.4f}",
            "Holds if range is known",
        ),
        Statement(
            "Lemma 7",
            "With β < 1 the direction is (ε, δ + δ')-DP, δ' up to 1 - β.",
            "δ + δ' at ε = 1, d = 3, B = 100, β = 0.1, noise as in Algorithm 5",
            conceded,
            None,
            f"δ = {float(norm.cdf(turn / 2 - e / turn) - math.exp(e + norm.logcdf(-turn / 2 - e / turn))):.4f}",
            "False: B divides the noise",
            privacy=True,
        ),
        Statement(
            "Theorem 11",
            "The gradient is (ε, δ + δ')-DP.",
            "ε that holds at δ = 1e-5 and at δ + δ', as for Lemma 7, 1 claimed",
            e,
            None,
            f"{m.guarantee.epsilon:.4g}; {gdp_epsilon(math.hypot(1 / sigma, turn), conceded):.4g}",
            "False, even with the concession",
            privacy=True,
        ),
        Statement(
            "Figure 5.2",
            "Spherical coordinates and back.",
            "largest error of 50 entries there and back",
            0.0,
            float(np.abs(from_spherical(size, angles) - g).max()),
            0.0,
            "Holds",
        ),
    ]


def _angles(*, as_published: bool) -> nz.AngleGaussian:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", nz.PrivacyWarning)  # the table says what holds
        return nz.AngleGaussian(
            1.0, domain=nz.L2Ball(3, 0.1), delta=_DELTA, beta=0.1, batch=100, as_published=as_published
        )


def _known_range(
    unit: np.ndarray, *, beta: float = 0.01, batch: int = 100, runs: int = 2000
) -> tuple[tuple[float, float], tuple[float, float]]:
    """Return the mean squared error of an angle and the mean cosine, of GeoDP and of DP, at σ = 1 and C = 1.

    The mean gradient is half of a unit vector. GeoDP's range lies around its angles, so that clipping moves none.
    """
    rng = np.random.default_rng(10)
    clean = unit / 2
    length, angles = to_spherical(clean)
    wide = math.sqrt(unit.size + 2) * beta * math.pi / batch
    turned = angles + wide * rng.normal(size=(runs, angles.size))
    geo = from_spherical(length + rng.normal(size=runs) / batch, turned)
    plain = clean + rng.normal(size=(runs, unit.size)) / batch
    found = []
    for vectors, seen in ((geo, turned), (plain, to_spherical(plain)[1])):
        apart = seen - angles
        apart[:, -1] = (apart[:, -1] + math.pi) % (2 * math.pi) - math.pi
        cosines = vectors @ unit / np.linalg.norm(vectors, axis=1)
        found.append((float(np.square(apart).mean()), float(cosines.mean())))
    return found[0], found[1]


def _averaged(batch: int = 256, runs: int = 2000) -> tuple[float, float, float]:
    """Return p-values of the normal law of mean gradients and mean angles, and how far two directions are apart.

    Gradients of a logistic loss, clipped to length 0.5; the first entry and the first angle are held against the
    normal law with the expectation and variance of one gradient.
    """
    rng = np.random.default_rng(6)
    x = rng.exponential(1.0, (200_000, 4))
    gradients = (1 / (1 + np.exp(-x @ np.asarray([0.5, -1.0, 0.2, 0.3]))) - (rng.random(len(x)) < 0.3))[:, None] * x
    gradients /= np.maximum(1.0, np.linalg.norm(gradients, axis=1, keepdims=True) / 0.5)
    angles = to_spherical(gradients)[1]
    chosen = rng.integers(0, len(x), (runs, batch))
    found = []
    for values in (gradients[:, 0], angles[:, 0]):
        standard = (values[chosen].mean(axis=1) - values.mean()) / (values.std() / math.sqrt(batch))
        found.append(float(kstest(standard, norm.cdf).pvalue))
    gap = np.abs(to_spherical(gradients.mean(axis=0))[1] - angles.mean(axis=0))
    return found[0], found[1], float(gap.max())


def _printed_mass(batch: int, variance: float = 0.3) -> float:
    """Return the integral of the density of eq. 5.21, which should be 1."""
    height = math.sqrt(batch / (2 * math.pi * variance))
    return float(quad(lambda x: height * math.exp(-(batch**2) * x**2 / (2 * variance)), -1, 1, points=[0.0])[0])


def _federated() -> list[Statement]:
    """Chapter 6."""
    mechanism: Any = nz.Laplace(1.0)
    weights = np.asarray([10.0, *np.ones(9)])
    p = weights / weights.sum()
    dims, clip, rate = 4, 2.0, 0.2
    unit = (clip / math.sqrt(dims)) ** 2 * 8.0
    lemma_8, right = np.mean(p) ** 2 * len(p) * unit, float((p**2).sum()) * unit
    ours = aggregated_noise(mechanism, weights, dims=dims, clip_norm=clip)
    limit = rate**2 * dims * right
    beta, e, size = 0.5, 2.0, 5
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", nz.PrivacyWarning)  # the table says what holds
        sphere = nz.AngleNoise(e, domain=nz.Sphere(size), noise="laplace", beta=beta, as_published=True)
        ball = nz.AngleNoise(e, dims=size, noise="laplace", beta=beta, as_published=True)
    variance = float(np.asarray(sphere.moments(np.asarray([[0.6, 0.0, 0.0, 0.0, 0.8]])).variance)[0, 1])
    biased = nz.SquareWave(1.0)
    told = np.full((10, dims), 0.9)
    noise = aggregated_noise(biased, np.ones(10), dims=dims, clip_norm=clip, updates=told)
    before, optimum = np.linspace(-1, 1, dims), np.zeros(dims) + 0.3
    square = rate**2 * float(noise.mean @ noise.mean + noise.variance.sum())
    linear = -2 * float((before - optimum) @ noise.mean)
    return [
        Statement(
            "Algorithm 2",
            "Federated LDP-SGD: E local steps, the last one noisy.",
            "what gets noise; Figure 6.2 has what holds of each",
            "the last gradient",
            "the last gradient, or the whole update",
            None,
            "Built, both readings",
        ),
        Statement(
            "Lemma 8",
            "Noise with weights p_k is noise with their mean.",
            "variance of an entry, weights 10 and nine 1",
            float(lemma_8),
            float(ours.variance[0]),
            right,
            "True of equal weights only",
            mended=True,
        ),
        Statement(
            "Lemma 9",
            "A linear map before an LDP mechanism keeps its guarantee.",
            "exact ε of Duchi on [-1, 1] and on [-3, 3]",
            1.0,
            nz.exact_epsilon(nz.Duchi(1.0, domain=nz.Interval(-3, 3))),
            1.0,
            "Holds",
            privacy=True,
        ),
        Statement(
            "Theorem 12",
            "The aggregated noise is N(C p̄ N μ, C² p̄² N σ²).",
            "standard deviation of an entry, weights 10 and nine 1",
            math.sqrt(lemma_8),
            math.sqrt(float(ours.variance[0])),
            math.sqrt(right),
            "True of equal weights only",
            mended=True,
        ),
        Statement(
            "Theorem 13",
            "The efficiency difference of a round; its linear terms lack the rate.",
            "difference, Square wave, rate 0.2",
            square + linear,
            noise.difference(rate, before=before, optimum=optimum),
            square + rate * linear,
            "A rate is missing",
            mended=True,
        ),
        Statement(
            "Corollary 3",
            "In the limit the squared terms remain.",
            "difference, Laplace, equal weights",
            rate**2 * dims * float(np.mean(p) ** 2 * len(p)) * unit,
            aggregated_noise(mechanism, np.ones(10), dims=dims, clip_norm=clip).difference(rate),
            rate**2 * dims * unit / 10,
            "Holds for equal weights",
        ),
        Statement(
            "Corollary 3, unequal weights",
            "The same with weights 10 and nine 1.",
            "difference, Laplace",
            rate**2 * dims * float(lemma_8),
            ours.difference(rate),
            limit,
            "True of equal weights only",
            mended=True,
        ),
        Statement(
            "Algorithm 6",
            "LDPVec: noise of scale β d π/ε on every angle, the magnitude kept.",
            "variance of an angle, d = 5, β = 0.5, ε = 2",
            2 * (beta * size * math.pi / e) ** 2,
            variance,
            None,
            "Built as printed",
        ),
        Statement(
            "Theorem 14",
            "LDPVec is ε-LDP if its angles are.",
            "ε that holds, 2 claimed: magnitude told; magnitude 1",
            e,
            None,
            f"{ball.guarantee.epsilon:g}; {sphere.guarantee.epsilon:g}",
            "False: the magnitude leaks",
            privacy=True,
        ),
    ]
