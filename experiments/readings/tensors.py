"""Statements of Yuan, Tang, Huang, Wu, Wang 2025 and of Yang, Xiang, Chen, Li, Li 2021."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
from scipy.stats import chi2

import noisette as nz
from experiments.frame import Advance, Study
from experiments.readings.statements import Statement, study
from noisette.accounting import gdp_epsilon
from noisette.mechanisms.tensor.gaussian.calibration import zeta
from noisette.mechanisms.tensor.retain.published import published_law

_LEVELS, _SIDE, _DELTA = 256, 28, 1e-5


def yuan2025local(full: bool, advance: Advance) -> Study:
    """TLDP: keep an entry or add noise to it."""
    e, size = 1.0, _SIDE * _SIDE
    b, sigma = _LEVELS / e, _LEVELS / math.sqrt(2 * e)
    keep = math.exp(e - _LEVELS / b) / (2 * b + math.exp(e - _LEVELS / b))
    square = math.exp(-(_LEVELS**2) / (2 * sigma**2))
    keep_gaussian = square / (sigma * math.sqrt(2 * math.pi) + square)
    weight, proof = 0.25, math.exp(e - size * _LEVELS / b)
    keep_weighted = (1 - weight) * proof / (2 * b + proof)
    laplace, gaussian = (
        published_law(noise, "algorithm-1", epsilon=e, levels=_LEVELS, size=size) for noise in ("laplace", "gaussian")
    )
    in_proofs = published_law("laplace", "proof", epsilon=e, levels=_LEVELS, size=size)
    record, entry = _published(e, (_SIDE, _SIDE)), _published(e, (1,))
    weighted = _published(e, (_SIDE, _SIDE), weights=np.full((_SIDE, _SIDE), weight))
    noise = math.sqrt(2 * (1 - keep) * size) * b  # root of E|Z|^2 of Algorithm 1
    whole = np.zeros((_SIDE, _SIDE))
    spread, spread_gaussian = (
        math.sqrt(np.asarray(_published(e, whole.shape, noise=own, rounded=False).moments(whole).variance).sum())
        for own in ("laplace", "gaussian")
    )
    return study(
        "Yuan et al. 2025: TLDP",
        [
            Statement(
                "Algorithm 1",
                "TLDP keeps an entry with chance p and adds noise to it otherwise.",
                "p of Laplace noise, Δ = 256, ε = 1",
                keep,
                laplace.p_keep,
                None,
                "Built as printed",
            ),
            Statement(
                "Algorithm 1, Gaussian",
                "The same with Gaussian noise.",
                "p, Δ = 256, ε = 1",
                keep_gaussian,
                gaussian.p_keep,
                None,
                "Built as printed",
            ),
            Statement(
                "Algorithm 2",
                "Weighted TLDP keeps an entry of weight w with chance (1 - w) p.",
                "p of weight 0.25, I Δ in the exponent",
                keep_weighted,
                (1 - weight) * in_proofs.p_keep,
                None,
                "Keeps nothing: p is 1e-343" if keep_weighted == 0 else "Built as printed",
            ),
            Statement(
                "Theorem 1",
                "TLDP is ε-LDP for the whole tensor.",
                "ε of a 28 x 28 image, ε = 1 claimed; reports rounded to whole numbers, for unrounded ones have none",
                e,
                None,
                record.guarantee.epsilon,
                "False: entries add up",
                privacy=True,
            ),
            Statement(
                "Theorem 1, one entry",
                "The same for a tensor of one entry.",
                "ε of one entry, rounded reports",
                e,
                None,
                entry.guarantee.epsilon,
                "False, even for one entry",
                privacy=True,
            ),
            Statement(
                "Theorem 2",
                "TLDP has I times less Laplace noise than noise on every entry.",
                "root of E|Z|² for 28 x 28, ε = 1",
                noise,
                spread,
                f"{size * math.sqrt(2 * size) * b:.4g} on every entry, which protects the record",
                "True of unlike guarantees",
            ),
            Statement(
                "Theorem 2, Gaussian",
                "TLDP has I times less variance of Gaussian noise.",
                "root of E|Z|² for 28 x 28, ε = 1",
                math.sqrt((1 - keep_gaussian) * size) * sigma,
                spread_gaussian,
                f"{size * sigma:.4g} on every entry; no pure ε holds for Gaussian noise",
                "True, at no pure epsilon",
            ),
            Statement(
                "Theorem 3",
                "Weighted TLDP is ε-LDP for the whole tensor.",
                "ε of a 28 x 28 image, all weights 0.25, p as in Algorithm 1",
                e,
                None,
                weighted.guarantee.epsilon,
                "False: entries add up",
                privacy=True,
            ),
        ],
    )


def _published(
    epsilon: float, dims: tuple[int, ...], weights: Any = None, *, noise: str = "laplace", rounded: bool = True
) -> nz.RetainOrNoise:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", nz.PrivacyWarning)  # the table says what holds
        return nz.RetainOrNoise(
            epsilon,
            domain=nz.TensorDomain(dims, 0, _LEVELS - 1),
            levels=_LEVELS,
            noise=noise,
            weights=weights,
            weights_epsilon=None if weights is None else 0.0,
            as_published=True,
            rounded=rounded,
        )


def yang2021differential(full: bool, advance: Advance) -> Study:
    """Tensor-variate Gaussian noise."""
    rng = np.random.default_rng(1)
    dims, e = (4, 3, 2), 1.0
    size, s = math.prod(dims), 2 * math.sqrt(math.prod(dims))  # entries in [-1, 1]
    norm = math.sqrt(-2 * math.log(_DELTA) + 2 * math.sqrt(-size * math.log(_DELTA)) + size)
    alpha, beta = s**2, 2 * norm * s
    bound = (-beta + math.sqrt(beta**2 + 8 * alpha * e)) ** 2 / (4 * alpha**2)
    roots = [np.tril(rng.uniform(0.2, 1.0, (n, n))) + np.eye(n) for n in dims]
    domain = nz.TensorDomain(dims, -1, 1)
    # the conditions with equality: the factor on the roots of the covariances
    inverse = [float((np.linalg.inv(root) ** 2).sum()) for root in roots]
    made = {
        "tvg": nz.TensorGaussian(domain, e, _DELTA, covariances=tuple(r @ r.T for r in roots), calibration="tvg"),
        "udn": nz.TensorGaussian(domain, e, _DELTA, covariances=(roots[0] @ roots[0].T, None, None), calibration="udn"),
        "idn": nz.TensorGaussian(domain, e, _DELTA, covariances=(np.arange(1.0, 5.0), None, None), calibration="idn"),
        "mvg": nz.TensorGaussian(nz.TensorDomain((4, 6), -1, 1), e, _DELTA, calibration="mvg"),
    }
    idn_bound = 4 * bound  # with s for the misprinted s / I
    harmonic, half = (sum(k**power for k in range(1, 5)) for power in (-1.0, -0.5))
    alpha_0, beta_0 = (
        (harmonic + half) * size + 2 * harmonic * math.sqrt(size) * s,
        2 * size**0.25 * harmonic * norm * s,
    )
    limit = (-beta_0 + math.sqrt(beta_0**2 + 8 * alpha_0 * e)) ** 2 / (4 * alpha_0**2)
    sigmas = {
        "tvg": math.sqrt(math.prod(inverse) / bound),
        "udn": math.sqrt(inverse[0] / bound),
        "idn": math.sqrt(sum(1 / v for v in (1.0, 2.0, 3.0, 4.0)) / idn_bound),
        "mvg": math.sqrt(math.sqrt(4) * math.sqrt(6) / limit),
    }
    truth = {name: gdp_epsilon(own.mu, _DELTA) for name, own in made.items()}
    y = rng.standard_normal(dims)
    x = np.einsum("abc,ia,jb,kc->ijk", y, *roots)
    unfolded = roots[0] @ np.transpose(y, (0, 2, 1)).reshape(4, -1) @ np.kron(roots[2], roots[1]).T
    ratio = max(_stretch(rng, dims) for _ in range(200))
    reshaped = made["udn"].reshape((4, 6))
    w = rng.standard_normal((5, 4))
    costs, least = _algorithm_1(w, bound)
    subspace = nz.TensorGaussian(domain, e, _DELTA, subspaces=(w, None, None), calibration="idn")
    flat = nz.TensorGaussian(nz.TensorDomain((4, 6), -1, 1), e, _DELTA, subspaces=(w, None), calibration="idn")
    seen = float(sum((w**2).sum(axis=0) * np.asarray(subspace.variances)[:, 0, 0]))
    return study(
        "Yang et al. 2021: tensor-valued queries",
        [
            Statement(
                "Lemma 1",
                "A product along modes is a Kronecker product.",
                "largest difference of both sides",
                0.0,
                None,
                float(np.abs(np.transpose(x, (0, 2, 1)).reshape(4, -1) - unfolded).max()),
                "Holds",
            ),
            Statement(
                "Lemma 2",
                "|Y x U_1 ... x U_N| is at most |Y| times the product of |U_k|_F.",
                "largest ratio of both sides, 200 draws",
                1.0,
                None,
                ratio,
                "Holds, and is loose",
            ),
            Statement(
                "Lemma 3",
                "|N|² exceeds ζ² with chance δ at most.",
                "ζ for 4 x 3 x 2; chance for δ = 1e-5",
                norm,
                zeta(_DELTA, size),
                float(chi2.sf(norm**2, size)),
                "Holds, and is loose",
            ),
            Statement(
                "Theorem 1",
                "Noise with the product of |U_k⁻¹|² within B is (ε, δ)-DP.",
                "factor on the deviations; ε that holds, 1 claimed",
                sigmas["tvg"],
                made["tvg"].sigma,
                truth["tvg"],
                "Holds, and is loose",
                privacy=True,
            ),
            Statement(
                "Corollary 1",
                "Reshaped noise has the same guarantee.",
                "ε of 4 x 3 x 2 as 4 x 6",
                truth["udn"],
                gdp_epsilon(reshaped.mu, _DELTA),
                truth["udn"],
                "Holds",
                privacy=True,
            ),
            Statement(
                "Theorem 2",
                "UDN: |U_1⁻¹|² within B is enough.",
                "factor on the deviations; ε that holds, 1 claimed",
                sigmas["udn"],
                made["udn"].sigma,
                truth["udn"],
                "Holds, and is loose",
                privacy=True,
            ),
            Statement(
                "Theorem 3",
                "IDN: I_1 B is enough; its s is printed as (b - a)/√I for (b - a)√I.",
                "factor on the deviations with √I; ε that holds, 1 claimed",
                sigmas["idn"],
                made["idn"].sigma,
                truth["idn"],
                "Misprinted; mended it holds",
                privacy=True,
            ),
            Statement(
                "Theorem 3, as printed",
                "The same with (b - a)/√I.",
                "factor on the deviations; ε that holds, 1 claimed",
                sigmas["idn"] / size,
                None,
                gdp_epsilon(made["idn"].mu * size, _DELTA),
                "False as printed",
                privacy=True,
            ),
            Statement(
                "Algorithm 1",
                "Noise for a workload W: σ_i² = Σ√P_j / (√P_i B).",
                "error (Σ√P_i)²/B of eq. 29 with IDN's bound; that of the noise made",
                least / 4,
                seen,
                float(sum(costs) / 4),
                "Built as printed",
            ),
            Statement(
                "Corollary 2",
                "Reshaping changes no error.",
                "error of eq. 29 as 4 x 3 x 2 and as 4 x 6",
                least / 4,
                float(sum((w**2).sum(axis=0) * np.asarray(flat.variances)[:, 0])),
                least / 4,
                "Holds",
            ),
            Statement(
                "Theorem 4",
                "MVG's condition, by Chanyaswad et al. 2018.",
                "factor on the deviations, 4 x 6; ε that holds, 1 claimed",
                sigmas["mvg"],
                made["mvg"].sigma,
                truth["mvg"],
                "Holds, and is very loose",
                privacy=True,
            ),
        ],
    )


def _stretch(rng: np.random.Generator, dims: tuple[int, ...]) -> float:
    """Return the ratio of both sides of Lemma 2 at random matrices."""
    y, factors = rng.standard_normal(dims), [rng.standard_normal((n, n)) for n in dims]
    x = np.einsum("abc,ia,jb,kc->ijk", y, *factors)
    return float(np.linalg.norm(x) / np.linalg.norm(y) / math.prod(float(np.linalg.norm(own)) for own in factors))


def _algorithm_1(w: Any, bound: float) -> tuple[list[float], float]:
    """Return P_i sigma_i^2 by lines 3 to 6, with identity directions, and the least error of eq. 29."""
    costs = []
    weight = [sum(float(w[j, i]) ** 2 for j in range(len(w))) for i in range(w.shape[1])]
    total = sum(math.sqrt(p) for p in weight)
    for p in weight:
        costs.append(p * total / (math.sqrt(p) * bound))
    return costs, total**2 / bound
