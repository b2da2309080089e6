"""The ways to add noise to a batch of features: as published, as printed by mistake, and tight; and what holds."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

import noisette as nz
from noisette._validate import FloatArray
from noisette.accounting import gdp_epsilon
from noisette.mechanisms.tensor.gaussian.neighbours import Neighbours
from noisette.mechanisms.tensor.matrix.optimum import optimum

DELTA = 1e-5
OURS = ("ours, batch", "ours, person")


@dataclass(frozen=True)
class Way:
    """Noise for a tensor of features whose first mode is people, and the epsilon that is claimed for it.

    ``factor`` multiplies the noise of the mechanism: below 1 for a misprint.
    """

    label: str
    claimed: float
    mechanism: nz.TensorGaussian
    factor: float = 1.0

    def epsilon(self, relation: str) -> float:
        """Return the least epsilon that holds at delta = 1e-5 for neighbours of this kind: any-pair, slice:0."""
        reach, _ = Neighbours.read(relation, self.mechanism.domain).white(self.mechanism.modes)
        return float(gdp_epsilon(reach / (self.mechanism.sigma * self.factor), DELTA))

    @property
    def std(self) -> float:
        """Root mean square of an entry's noise."""
        return self.factor * math.sqrt(float(self.mechanism.variances.mean()))

    def release(self, batches: FloatArray, seed: int) -> FloatArray:
        """Return the batches with noise."""
        reports = self.mechanism.privatize(batches, clip=True, rng=seed)
        return np.asarray(batches + self.factor * (reports - batches))


def ways(
    claimed: float, dims: tuple[int, ...], subspace: FloatArray | None = None, *, matrix: bool = False
) -> Iterator[Way]:
    """Yield the paper's mechanisms at a claimed epsilon, and ours, for features in [-1, 1] of this shape.

    ``subspace`` is what the model makes of one person's features, which then are one mode. ``matrix`` adds the matrix
    mechanism of the paper, which protects an element and divides epsilon among the elements, as its Gaussian does; its
    workload is the subspace, or every element where there is none.
    """
    domain, size = nz.TensorDomain(dims, -1, 1), math.prod(dims)
    spaces: Any = None if subspace is None else (None, subspace)

    def made(label: str, factor: float = 1.0, **options: Any) -> Way:
        given: dict[str, Any] = {"epsilon": claimed, "delta": DELTA} | options
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", nz.PrivacyWarning)  # the table says what holds
            return Way(label, claimed, nz.TensorGaussian(domain, **given), factor)

    composed: dict[str, Any] = {
        "epsilon": claimed / size, "delta": DELTA / size, "relation": "element", "calibration": "classical"
    }  # fmt: skip
    yield made("Gaussian", **composed)
    if matrix and subspace is not None:
        strategy = optimum(subspace).strategy
        gram = strategy.T @ strategy
        covariance = np.linalg.inv(gram + 1e-4 * float(np.trace(gram)) / len(gram) * np.eye(len(gram)))
        yield made("MM", covariances=(None, (covariance + covariance.T) / 2), **composed)
    for calibration in ("mvg", "udn", "idn"):
        yield made(calibration.upper(), calibration=calibration, subspaces=spaces)
    yield made("IDN as printed", 1 / size, calibration="idn", subspaces=spaces)
    yield made(OURS[0], subspaces=spaces)
    yield made(OURS[1], subspaces=spaces, relation="slice:0")
    if matrix and subspace is None:  # every element for workload: the best strategy asks for each, as Gaussian does
        yield made("MM", **composed)
