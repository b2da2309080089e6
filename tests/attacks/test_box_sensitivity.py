"""Attacks on noise that is correlated along several modes: sign tensors that reach farther than it allows for.

Neighbours in a box differ most at signs, and these range over all sign tensors, not only over products of sign vectors.
Each attack looks for two neighbours that the noise holds closer together than they are.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import reduce
from typing import Any

import numpy as np
import pytest
from scipy.stats import norm

import noisette as nz
from noisette.mechanisms.tensor.gaussian._signs import dominating, largest_form

pytestmark = pytest.mark.slow


def equal_correlation(size: int, correlation: float) -> np.ndarray:
    """Return a covariance with ones on its diagonal."""
    return np.full((size, size), correlation) + (1 - correlation) * np.eye(size)


def random_covariance(size: int, rng: np.random.Generator) -> np.ndarray:
    """Return a covariance from mild to nearly singular, with variances that differ."""
    root = rng.normal(size=(size, size)) * np.exp(rng.uniform(-2, 2, size=size))
    matrix = root @ root.T
    return matrix + 10 ** rng.uniform(-9, 0) * np.trace(matrix) * np.eye(size)


def all_signs(size: int) -> np.ndarray:
    """Return one of each pair of opposite sign vectors."""
    codes = np.arange(1 << (size - 1))
    return 1.0 - 2.0 * ((codes[:, None] >> np.arange(size)) & 1)


def farthest(covariances: list[np.ndarray], width: float = 2.0) -> float:
    """Try every sign tensor, in the whole Kronecker product."""
    precision = np.linalg.inv(reduce(np.kron, covariances))
    signs = all_signs(len(precision))
    return width * math.sqrt(float(np.einsum("ij,ij->i", signs @ precision, signs).max()))


def climb(covariances: list[np.ndarray], starts: int, rng: np.random.Generator, width: float = 2.0) -> float:
    """Flip single signs of many random sign tensors at once, as long as that moves neighbours apart."""
    precision = reduce(np.kron, [np.linalg.inv(c) for c in covariances])
    signs = rng.choice([-1.0, 1.0], size=(starts, len(precision)))
    image = signs @ precision
    rows, diagonal = np.arange(starts), np.diagonal(precision)
    while True:
        gain = diagonal - signs * image
        best = gain.argmax(axis=1)
        better = rows[gain[rows, best] > 1e-9 * diagonal[best]]
        if not better.size:
            return width * math.sqrt(float(np.einsum("ij,ij->i", image, signs).max()))
        flipped = best[better]
        image[better] -= 2 * signs[better, flipped][:, None] * precision[flipped]
        signs[better, flipped] *= -1


def product_of_maxima(covariances: list[np.ndarray], width: float = 2.0) -> float:
    """Return what multiplying the maxima of the modes gives: too little, which is what the attacks exploit."""
    return width * math.prod(farthest([c], 1.0) for c in covariances)


def delta_between(distance: float, epsilon: float) -> float:
    """Return delta for two means that are so many standard deviations apart (Balle, Wang 2018, Theorem 8)."""
    upper, lower = norm.cdf(distance / 2 - epsilon / distance), norm.logcdf(-distance / 2 - epsilon / distance)
    return float(upper - math.exp(epsilon + lower))


def test_attack_signs_that_are_no_product_on_three_by_three() -> None:
    """Equal correlation 0.95: the sensitivity is 113.14; the maxima of the modes make it 106.90, and delta 3.0e-6."""
    covariances = [equal_correlation(3, 0.95)] * 2
    m = nz.TensorGaussian(nz.TensorDomain((3, 3)), 1.0, 1e-6, covariances=tuple(covariances))
    truth = farthest(covariances)
    assert truth == pytest.approx(113.14, abs=0.005)
    assert product_of_maxima(covariances) == pytest.approx(106.90, abs=0.005)
    assert m.sensitivity == (pytest.approx(truth, rel=1e-9), True)
    assert delta_between(truth / m.sigma, 1.0) <= 1e-6
    fooled = m.sigma * product_of_maxima(covariances) / truth  # the noise that the maxima of the modes ask for
    assert delta_between(truth / fooled, 1.0) == pytest.approx(3.0e-6, rel=0.02)


def test_attack_signs_that_are_no_product_on_four_modes() -> None:
    """3x3x3x3, found by flipping signs: the noise of the maxima of the modes has an epsilon of 1.20 or more for 1."""
    covariances = [equal_correlation(3, 0.95)] * 4
    m = nz.TensorGaussian(nz.TensorDomain((3,) * 4), 1.0, 1e-6, covariances=tuple(covariances))
    found = climb(covariances, 300, np.random.default_rng(0))
    assert delta_between(found / m.sigma, 1.0) <= 1e-6
    fooled = m.sigma * product_of_maxima(covariances) / m.sensitivity[0]
    assert delta_between(found / fooled, 1.20) > 1e-6
    assert m.sensitivity[0] <= 1.001 * found  # the bound costs next to nothing here


@pytest.mark.parametrize("shape", [(2, 2), (3, 3), (2, 2, 2), (2, 3, 2), (3, 4), (3, 5), (4, 4), (2, 2, 2, 2)])
def test_attack_by_trying_every_sign_tensor(shape: tuple[int, ...]) -> None:
    """Up to 16 entries the bound is the truth, with whatever correlations along the modes."""
    rng = np.random.default_rng(1)
    fooled = 0
    for trial in range(40 if math.prod(shape) < 13 else 6):
        make = equal_correlation if trial % 3 == 0 else None
        covariances = [make(n, rng.uniform(0.2, 0.97)) if make else random_covariance(n, rng) for n in shape]
        m = nz.TensorGaussian(nz.TensorDomain(shape), 1.0, 1e-5, covariances=tuple(covariances))
        truth = farthest(covariances)
        assert truth * (1 - 1e-5) <= m.sensitivity[0] <= truth * (1 + 1e-5)  # inverses of ill-conditioned products
        assert m.sensitivity[1]
        fooled += truth > product_of_maxima(covariances) * 1.0001
    if shape in ((3, 3), (3, 5)):
        assert fooled > 0  # the maxima of the modes do not multiply
    if sum(size > 2 for size in shape) <= 1:
        assert fooled == 0  # here they do


@pytest.mark.parametrize("relation", ["any-pair", "slice:1", "fibre:0", "box:0.3"])
def test_attack_by_trying_every_sign_of_a_block(relation: str) -> None:
    """Modes in which neighbours agree contribute one index, the rest all of their signs together."""
    rng = np.random.default_rng(2)
    for _ in range(10):
        covariances = [random_covariance(n, rng) for n in (3, 2, 2)]
        m = nz.TensorGaussian(nz.TensorDomain((3, 2, 2)), 1.0, 1e-5, relation=relation, covariances=tuple(covariances))
        whole = np.linalg.inv(reduce(np.kron, covariances)).reshape(3, 2, 2, 3, 2, 2)
        inner = {
            "slice:1": [whole[:, j, :, :, j, :].reshape(6, 6) for j in range(2)],
            "fibre:0": [whole[:, j, k, :, j, k] for j in range(2) for k in range(2)],
        }.get(relation, [whole.reshape(12, 12)])
        width = 0.3 if relation.startswith("box") else 2.0
        truth = max(width * math.sqrt(float((s @ p * s).sum(axis=1).max())) for p in inner for s in [all_signs(len(p))])
        assert truth * (1 - 1e-6) <= m.sensitivity[0] <= truth * (1 + 1e-6)


@pytest.mark.parametrize("shape", [(5, 5), (3, 3, 3), (6, 7), (3, 4, 5), (10, 10), (3, 3, 3, 3), (4, 18), (20, 20)])
def test_attack_by_flipping_signs_of_larger_tensors(shape: tuple[int, ...]) -> None:
    """No sign tensor that a search finds is beyond the bound, and the bound is at most 10 % above the best found."""
    rng = np.random.default_rng(3)
    for trial in range(8):
        correlation = rng.uniform(0.2, 0.97)
        covariances = [equal_correlation(n, correlation) if trial % 2 else random_covariance(n, rng) for n in shape]
        m = nz.TensorGaussian(nz.TensorDomain(shape), 1.0, 1e-5, covariances=tuple(covariances))
        found = climb(covariances, 40, rng)
        assert found <= m.sensitivity[0] * (1 + 1e-6)
        gap = m.neighbours.worst(m.modes).reshape(-1)
        assert np.abs(gap) == pytest.approx(2.0)
        known = math.sqrt(float(gap @ reduce(np.kron, [np.linalg.inv(c) for c in covariances]) @ gap))
        assert m.sensitivity[0] <= 1.1 * max(found, known)
        if m.sensitivity[1]:
            assert known == pytest.approx(m.sensitivity[0], rel=1e-6)


@pytest.mark.long
def test_attack_on_the_last_bits() -> None:
    """In exact fractions, with the very whiteners that are used: rounding never takes the bound below the truth."""
    rng = np.random.default_rng(4)
    for trial in range(60):
        shape = [(3, 3), (2, 3), (3,), (2, 2, 2)][trial % 4]
        covariances = [random_covariance(n, rng) for n in shape]
        low, high = sorted(rng.normal(size=2))
        m = nz.TensorGaussian(nz.TensorDomain(shape, low, high), 1.0, 1e-5, covariances=tuple(covariances))
        exact = [[[Fraction(x) for x in row] for row in mode.whitener.tolist()] for mode in m.modes]
        precisions = [
            [[sum(row[i] * row[j] for row in w) for j in range(len(w))] for i in range(len(w))] for w in exact
        ]
        places = list(np.ndindex(*shape))
        whole = [[math.prod(p[i][j] for p, i, j in zip(precisions, a, b, strict=True)) for b in places] for a in places]
        best = max(
            float(x) for x in (all_signs(len(places)) @ np.array(whole, dtype=float) * all_signs(len(places))).sum(1)
        )
        near = [
            signs
            for signs in all_signs(len(places)).astype(int).tolist()
            if float(np.array(signs) @ np.array(whole, dtype=float) @ np.array(signs)) >= best * (1 - 1e-6)
        ]
        truth = max(
            sum(a * b * whole[i][j] for i, a in enumerate(signs) for j, b in enumerate(signs)) for signs in near
        )
        truth *= (Fraction(high) - Fraction(low)) ** 2
        assert Fraction(m.sensitivity[0]) ** 2 >= truth
        assert m.sensitivity[0] ** 2 <= float(truth) * (1 + 1e-9)


def positive_semidefinite(matrix: list[list[Fraction]]) -> bool:
    """Eliminate in exact fractions: all pivots of a positive definite matrix are positive."""
    rows = [list(row) for row in matrix]
    for k in range(len(rows)):
        if rows[k][k] <= 0:
            return False
        for i in range(k + 1, len(rows)):
            factor = rows[i][k] / rows[k][k]
            rows[i] = [a - factor * b for a, b in zip(rows[i], rows[k], strict=True)]
    return True


def test_attack_on_the_certificate() -> None:
    """Weights that a factorisation confirmed dominate the matrix in exact fractions; a little less do not."""
    rng = np.random.default_rng(5)
    refused = 0
    for _ in range(60):
        size = int(rng.integers(2, 8))
        root = np.tril(rng.normal(size=(size, size)) * 10 ** rng.uniform(-4, 4, size=size))
        matrix = root.T @ root
        exact = [
            [sum(Fraction(r[i]) * Fraction(r[j]) for r in root.tolist()) for j in range(size)] for i in range(size)
        ]
        weights = rng.uniform(0.5, 2, size) * np.diagonal(matrix)
        multiple = Fraction(dominating(matrix, weights)) / sum(Fraction(w) for w in weights.tolist())
        for scale, holds in ((multiple, True), (multiple * Fraction(1 - 1e-7), False)):
            gap = [
                [(scale * Fraction(float(weights[i])) if i == j else 0) - exact[i][j] for j in range(size)]
                for i in range(size)
            ]
            assert positive_semidefinite(gap) >= holds
            refused += not holds and not positive_semidefinite(gap)
    assert refused == 60  # so the certificate is as sharp as it is sound


def test_attack_with_many_random_modes() -> None:
    """A thousand matrices: the maximum over signs, by trying them all, is never above either bound of a mode."""
    rng = np.random.default_rng(6)
    for _ in range(1000):
        size = int(rng.integers(2, 9))
        matrix = np.linalg.inv(random_covariance(size, rng))
        matrix = (matrix + matrix.T) / 2
        signs = all_signs(size)
        truth = float((signs @ matrix * signs).sum(axis=1).max())
        reach = largest_form(matrix)
        assert truth <= reach.upper <= truth * (1 + 1e-9)
        assert truth <= reach.weight <= truth * math.pi / 2 * (1 + 1e-4)


def test_attack_through_private_training() -> None:
    """`sgd.TensorPerturbation`, entries of at most c: the farthest contribution, by trying all signs, is 1 / z long."""
    torch = pytest.importorskip("torch")
    from noisette import sgd
    from noisette.sgd.clipping import LInf

    covariances = [equal_correlation(3, 0.95)] * 2
    clip, multiplier = LInf(0.01), 1.3
    clip.start({"0": 9})
    perturb = sgd.TensorPerturbation({"0.weight": tuple(covariances)})
    perturb.start(clip, {"0": {"weight": torch.Size((3, 3))}})
    scale = perturb.scales(clip, multiplier)["0"]["weight"]
    assert farthest(covariances, width=0.01) / scale <= 1 / multiplier * (1 + 1e-9)
    assert farthest(covariances, width=0.01) / scale >= 1 / multiplier * (1 - 1e-9)


def test_attack_on_tables_with_short_rows() -> None:
    """Each row is bounded: rows that all point one way, with the worst signs, are no farther apart than stated."""
    rng = np.random.default_rng(7)
    for _ in range(20):
        covariances = [random_covariance(4, rng), random_covariance(3, rng)]
        m = nz.TensorGaussian(nz.TensorBall((4, 3), 0.5, mode=0), 1.0, 1e-5, covariances=tuple(covariances))
        inverses = [np.linalg.inv(c) for c in covariances]
        inner = inverses[0] * np.linalg.eigvalsh(inverses[1])[-1]
        found = math.sqrt(float((all_signs(4) @ inner * all_signs(4)).sum(axis=1).max()))
        assert found * (1 - 1e-6) <= m.sensitivity[0] <= 2 * np.sqrt(np.linalg.eigvalsh(inner)[-1]) * (1 + 1e-6)
        first, second = m.witnesses()[0]
        assert (np.linalg.norm(first - second, axis=1) <= 1 + 1e-9).all()


def test_attack_on_a_strategy_by_trying_every_pair_of_records() -> None:
    """How far A x moves when a record comes, goes or moves, over all cells; sums of rounding told 2 - 2 (1 + 2^-52)."""
    rng = np.random.default_rng(8)
    for trial in range(60):
        dims = [(5,), (3, 4), (2, 5, 2), (1, 4)][trial % 4]
        relation = ("add-remove", "replace", "any-pair")[trial % 3]
        workload: Any = ["prefix", "identity", f"marginal-{trial % 2}", ("prefix", "identity", "total")][trial // 4 % 4]
        workload = workload[: len(dims)] if isinstance(workload, tuple) else workload
        strategy = None
        if isinstance(workload, tuple) or workload in ("prefix", "identity"):
            strategy = tuple(np.vstack([np.eye(n), rng.normal(size=(2, n))]) for n in dims) if trial % 5 == 0 else None
        domain = nz.TensorDomain(dims, 0, 1 if relation == "any-pair" else 100)
        options: dict[str, Any] = {"workload": workload, "strategy": strategy, "relation": relation}
        if workload == "marginal-0" and relation != "add-remove":
            with pytest.raises(ValueError, match="there is nothing to protect"):
                nz.MatrixMechanism(1.0, 1e-6, domain=domain, **options)
            continue
        m = nz.MatrixMechanism(1.0, 1e-6, domain=domain, **options)
        size = math.prod(dims)
        columns = m._strategy.ask(np.eye(size).reshape(size, *dims)).reshape(size, -1)
        others = np.zeros((1, columns.shape[1])) if relation == "add-remove" else columns
        farthest = max(float(np.linalg.norm(columns - one, axis=1).max()) for one in others)
        assert delta_between(farthest / m.sigma, 1.0) <= 1e-6
