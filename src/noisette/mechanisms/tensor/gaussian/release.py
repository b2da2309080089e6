"""A feature batch, a covariance matrix or a data tensor, released in one call with its guarantee."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from noisette._random import Rng
from noisette.domains import TensorBall, TensorDomain
from noisette.guarantees import Guarantee
from noisette.mechanisms.tensor.gaussian.jl import JohnsonLindenstrauss
from noisette.mechanisms.tensor.gaussian.mechanism import TensorGaussian


@dataclass(frozen=True)
class Release:
    """What may be published, and how it was made."""

    value: Any
    mechanism: TensorGaussian | JohnsonLindenstrauss

    @property
    def guarantee(self) -> Guarantee:
        """What is protected, with its unit, model and relation."""
        return self.mechanism.guarantee

    @property
    def std(self) -> float:
        """Root mean square of the noise of an entry, where it does not depend on the data."""
        if isinstance(self.mechanism, JohnsonLindenstrauss):
            raise ValueError("The error of a sketch depends on the data: ask mechanism.moments with data of your own.")
        return math.sqrt(float(self.mechanism.variances.mean()))


def release_data(
    x: Any,
    domain: TensorDomain | TensorBall,
    epsilon: float,
    delta: float = 1e-6,
    *,
    subspaces: Sequence[Any] | None = None,
    clip: bool = False,
    rng: Rng = None,
) -> Release:
    """Release a tensor that is all about one person: any two tensors of the domain are neighbours.

    Formula: that of `TensorGaussian` with relation ``"any-pair"``. Leading axes are further people.

    *Guarantee*: (epsilon, delta)-DP, unit record, in the local model.
    *Utility*: the noise of an entry grows with the square root of the number of entries; public matrices in
    ``subspaces`` say which part of the tensor will be used.
    Private testing data in Yang 2021; Balle, Wang 2018, Theorem 8.

    >>> image = np.full((28, 28), 0.5)
    >>> release = release_data(image, TensorDomain((28, 28), 0, 1), epsilon=8.0, delta=1e-5, rng=7)
    >>> print(release.guarantee)
    (8, 1e-05)-DP, unit record, model local, relation any-pair
    """
    mechanism = TensorGaussian(domain, epsilon, delta, subspaces=_listed(subspaces))
    return Release(mechanism.privatize(x, clip=clip, rng=rng), mechanism)


def release_features(
    features: Any,
    domain: TensorDomain | TensorBall,
    epsilon: float,
    delta: float = 1e-6,
    *,
    mode: int = 0,
    subspaces: Sequence[Any] | None = None,
    clip: bool = False,
    rng: Rng = None,
) -> Release:
    """Release a batch of features in which each index of ``mode`` is one person.

    Formula: that of `TensorGaussian` with relation ``"slice:mode"``: only one slice differs between neighbours, so the
    size of the batch costs nothing.

    *Guarantee*: (epsilon, delta)-DP, unit record, in the central model: replacing one slice.
    *Utility*: the noise of an entry grows with the square root of one person's features; a public bound on their
    length, ``TensorBall(shape, radius, mode=0)``, often is far below that of a box.
    Private training features in Yang 2021, there with the whole batch as the unit; Balle, Wang 2018, Theorem 8.

    >>> batch = np.zeros((256, 16, 5, 5))
    >>> release = release_features(batch, TensorDomain(batch.shape), epsilon=1.0, delta=1e-5, rng=7)
    >>> print(release.guarantee, round(release.std, 1))
    (1, 1e-05)-DP, unit record, model central, relation replace 149.2
    """
    mechanism = TensorGaussian(domain, epsilon, delta, relation=f"slice:{mode}", subspaces=_listed(subspaces))
    return Release(mechanism.privatize(features, clip=clip, rng=rng), mechanism)


def release_covariance(
    x: Any,
    domain: TensorDomain | TensorBall,
    epsilon: float,
    delta: float = 1e-6,
    *,
    method: Literal["gaussian", "jl"] = "gaussian",
    clip: bool = False,
    rng: Rng = None,
) -> Release:
    """Release the second-moment matrix X'X / n of a table whose rows are people.

    Formula: S + noise, symmetric Gaussian of Frobenius sensitivity sqrt(2) B^2 / n, B the largest length of a row; or a
    sketch, see `JohnsonLindenstrauss`. For a covariance subtract public means first.

    *Guarantee*: (epsilon, delta)-DP, unit record, in the central model: replacing a row; with ``method="jl"`` adding
    or removing one.
    *Utility*: the default is the better one. Yang 2021 takes 2 B^2 / n for the sensitivity, and noise that is not
    symmetric: four times the power, and twice that off the diagonal.
    Dwork, Talwar, Thakurta, Zhang 2014, Algorithm 1; Balle, Wang 2018, Theorem 8.

    >>> rows = np.random.default_rng(0).uniform(-1, 1, (2000, 3))
    >>> release = release_covariance(rows, TensorDomain(rows.shape), epsilon=1.0, delta=1e-5, rng=7)
    >>> print(release.guarantee)
    (1, 1e-05)-DP, unit record, model central, relation replace
    >>> bool(np.array_equal(release.value, release.value.T))
    True
    """
    if method not in ("gaussian", "jl"):
        raise ValueError(f"Expected method={method!r} to be 'gaussian' or 'jl'.")
    rows = _row_ball(domain)
    if method == "jl":
        sketch = JohnsonLindenstrauss(rows, epsilon, delta)
        return Release(sketch.privatize(_inside(x, domain, clip), rng=rng), sketch)
    count, columns = rows.dims
    bound = rows.radius**2
    mechanism = TensorGaussian(
        TensorBall((columns, columns), bound),
        epsilon,
        delta,
        relation=f"l2:{math.sqrt(2) * bound / count!r}",
        symmetry=((0, 1),) if columns > 1 else (),
    )
    values = _inside(x, domain, clip)
    torch_like = type(x).__module__.partition(".")[0] == "torch"
    second = values.T @ values / count
    report = mechanism.privatize(second, clip=True, rng=rng)
    return Release(x.new_tensor(report) if torch_like else report, mechanism)


def _row_ball(domain: TensorDomain | TensorBall) -> TensorBall:
    """Return the tables whose rows are at most as long as those of the domain."""
    if len(domain.dims) != 2:
        raise ValueError(f"Expected a table with people as rows, got a domain of shape {domain.dims}.")
    if isinstance(domain, TensorBall):
        if domain.mode != 0:
            raise ValueError(f"Expected a bound on each row, TensorBall(..., mode=0), got mode={domain.mode}.")
        return domain
    largest = max(abs(domain.low), abs(domain.high))
    return TensorBall(domain.dims, largest * math.sqrt(domain.dims[1]), mode=0)


def _inside(x: Any, domain: TensorDomain | TensorBall, clip: bool) -> Any:
    """Return the table as float64, refused or clipped where it leaves the domain."""
    values = np.asarray(x.detach().cpu() if hasattr(x, "detach") else x, dtype=float)
    if values.shape != domain.dims:
        raise ValueError(f"Expected a table of shape {domain.dims}, like its domain, got {values.shape}.")
    if not np.isfinite(values).all():
        raise ValueError(f"Expected finite values, got {values[~np.isfinite(values)][0]}. Remove or impute them first.")
    if clip:
        return domain.clip(values)
    if not bool(domain.contains(values)):
        worst = float(np.abs(values).max())
        raise ValueError(
            f"Expected a table of {domain}, got one that leaves it; its largest entry is {worst:g}. Give the public "
            "range in the domain, or pass clip=True."
        )
    return values


def _listed(subspaces: Sequence[Any] | None) -> tuple[Any, ...] | None:
    return None if subspaces is None else tuple(subspaces)
