"""Gaussian noise for tensors: a covariance along each mode, and the least scale that the guarantee allows."""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass, fields, replace
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np

from noisette import _validate
from noisette._validate import FloatArray
from noisette.core import Capabilities
from noisette.domains import TensorBall, TensorDomain
from noisette.guarantees import Claim, Guarantee, gaussian_epsilon, gaussian_mu, warn_unsound
from noisette.mechanisms._base import check_width
from noisette.mechanisms.tensor._tensors import groups, regroup
from noisette.mechanisms.tensor.gaussian import calibration as rules
from noisette.mechanisms.tensor.gaussian._noise import TensorNoise
from noisette.mechanisms.tensor.gaussian._normal import STEPS
from noisette.mechanisms.tensor.gaussian.calibration import CALIBRATIONS, Calibration
from noisette.mechanisms.tensor.gaussian.modes import Mode, per_mode
from noisette.mechanisms.tensor.gaussian.neighbours import Neighbours

_SOURCES: dict[Calibration, str] = {
    "exact": "balle2018improving",
    "tvg": "yang2021differential",
    "udn": "yang2021differential",
    "idn": "yang2021differential",
    "mvg": "chanyaswad2018mvg",
    "classical": "dwork2014algorithmic",
}

_BELOW_ONE = (
    "Theorem A.1 is stated for epsilon below 1, where it holds: the row above. Its authors claim nothing at 20. "
    "The row is here because programs use the formula at every epsilon."
)


@dataclass(frozen=True, eq=False)
class TensorGaussian(TensorNoise):
    """Add Gaussian noise to a tensor of any order, with a covariance along each mode.

    Formula: report = x + s N x_1 U_1 ... x_N U_N, N standard normal, U_k U_k' = covariances[k]; s is the least with
    Phi(m/2 - e/m) - exp(e) Phi(-m/2 - e/m) <= delta, m = sup |(x - x') x_1 U_1^-1 ... x_N U_N^-1| / s over neighbours.

    ``relation`` says who are neighbours: ``"any-pair"`` of the domain, the local model; tensors that differ in one
    index of a mode, ``"slice:0"``; in one fibre along a mode, ``"fibre:1"``; in one ``"element"``; or by at most
    ``"l2:1.0"`` in norm or ``"box:0.5"`` in every entry, whatever the domain. A covariance is None, variances or a
    matrix, and only its shape counts. ``subspaces``, a matrix W_k for each mode or None, ask for the covariances that
    are least in what is used of the tensor, x_1 W_1 ... x_N W_N; they must be public. ``symmetry`` names groups of
    modes under whose permutation the tensors stay the same; the noise is then averaged over these permutations, which
    costs no privacy and lowers it.

    ``calibration``: ``"exact"``, or as published ``"tvg"``, ``"udn"``, ``"idn"`` and ``"mvg"``, which hold but add far
    more noise, and ``"classical"``, sqrt(2 ln(1.25/delta)) / epsilon, which does not hold at large epsilon. With
    subspaces the last is the baseline that Yang et al. 2021 call Optimized.

    *Guarantee*: (epsilon, delta)-DP for the unit, model and relation in ``guarantee``; of a published calibration the
    epsilon there is the true one and ``claim`` what its source states. The tensor is whitened, rounded to a lattice of
    2^-36 standard deviations, and noise is added to it there by an exact sampler: that is the release. Rounding and the
    errors of float64 before it are inside epsilon; all that follows is post-processing.
    *Utility*: unbiased; the variance of an entry is s^2 times the product of its variances along the modes. On an l2
    ball no covariance beats the identity. On a box diagonal covariances are within pi/2 of the best Gaussian noise.
    Noise correlated along several modes is exact for a box of up to 16 entries; beyond, s follows a proved bound, 0 to
    5 % above the farthest neighbours that a search found.
    Yang, Xiang, Chen, Li, Li 2021; calibration by Balle, Wang 2018, Theorem 8.

    >>> m = TensorGaussian(TensorDomain((28, 28), 0, 1), epsilon=1.0, delta=1e-5)
    >>> round(m.sigma / 28, 3)  # the diameter is 28
    3.731
    >>> round(replace(m, calibration="idn").sigma / 28, 2)
    31.59
    """

    domain: TensorDomain | TensorBall
    epsilon: float
    delta: float = 1e-6
    _: KW_ONLY
    relation: str = "any-pair"
    covariances: tuple[Any, ...] | None = None
    subspaces: tuple[Any, ...] | None = None
    calibration: Calibration = "exact"
    symmetry: tuple[tuple[int, ...], ...] = ()
    name: ClassVar[str] = "tensor-gaussian"
    capabilities: ClassVar[Capabilities] = Capabilities(
        (TensorDomain, TensorBall), delta="needed", gaussian=True, unbounded=True
    )
    citation: ClassVar[str] = "yang2021differential"
    uncertified: ClassVar[str] = (
        "the verifier knows noise that is alike in all entries, and any two tensors as neighbours"
    )

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", _validate.epsilon(self.epsilon))
        object.__setattr__(self, "delta", _validate.delta(self.delta, positive=True))
        if not isinstance(self.domain, TensorDomain | TensorBall):
            raise TypeError(
                f"Expected domain={self.domain!r} to be a TensorDomain or a TensorBall, "
                "e.g. TensorDomain((28, 28), 0, 1)."
            )
        check_width(self.domain)
        if self.calibration not in CALIBRATIONS:
            raise ValueError(f"Expected calibration={self.calibration!r} to be one of {', '.join(CALIBRATIONS)}.")
        dims = self.domain.dims
        given, wanted = (
            per_mode(entries, len(dims), name)
            for entries, name in ((self.covariances, "covariances"), (self.subspaces, "subspaces"))
        )
        for number, (covariance, subspace) in enumerate(zip(given, wanted, strict=True)):
            if covariance is not None and subspace is not None:
                raise ValueError(f"Expected covariances[{number}] or subspaces[{number}], got both. Give one of them.")
        shapes = tuple(Mode.read(size, entry, k) for k, (size, entry) in enumerate(zip(dims, given, strict=True)))
        spaces = tuple(
            rules.read_subspace(entry, size, k) for k, (size, entry) in enumerate(zip(dims, wanted, strict=True))
        )
        object.__setattr__(
            self, "covariances", None if self.covariances is None else tuple(m.covariance for m in shapes)
        )
        object.__setattr__(self, "subspaces", None if self.subspaces is None else spaces)
        object.__setattr__(self, "symmetry", groups(self.symmetry, self.modes, self.neighbours))
        rules.check_published(self.calibration, self.modes, self.neighbours)
        self._check_range()
        if self.calibration == "classical" and not self.guarantee.claim_holds:
            warn_unsound(f"{self.name} with calibration='classical'", self.guarantee)

    @classmethod
    def example(cls, epsilon: float) -> Self:
        """Return the mechanism on small matrices."""
        return cls(TensorDomain((2, 3)), epsilon)

    @classmethod
    def declared(cls, **options: Any) -> Capabilities:
        """Return what the mechanism can do: it is local where any two tensors are neighbours."""
        local = options.get("relation", "any-pair") == "any-pair"
        return replace(cls.capabilities, model="local" if local else "central")

    @classmethod
    def published_forms(cls, epsilon: float) -> list[Self]:
        """Return the mechanism with each published calibration; the classical one below epsilon 1 and at 20 times
        epsilon.

        Covariances are of the kind that each theorem covers.
        """
        domain, rows, columns = TensorDomain((2, 3)), np.diag([2.0, 2.0]) + 1, np.diag([1.0, 2.0, 3.0]) + 0.5
        shapes: dict[Calibration, tuple[Any, ...]] = {
            "tvg": (rows, columns),
            "udn": (rows, None),
            "idn": (np.array([1.0, 3.0]), None),
            "mvg": (rows, columns),
        }
        found = [cls(domain, epsilon, covariances=shape, calibration=name) for name, shape in shapes.items()]
        return [*found, *(cls(domain, own, calibration="classical") for own in (min(epsilon, 0.999), 20 * epsilon))]

    @property
    def form(self) -> str:
        """How tables name this calibration."""
        return "" if self.calibration == "exact" else f"by {self.calibration}"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TensorGaussian):
            return NotImplemented
        return self._plain() == other._plain() and all(
            len(own or ()) == len(its or ()) and all(map(np.array_equal, own or (), its or ()))
            for own, its in ((self.covariances, other.covariances), (self.subspaces, other.subspaces))
        )

    def __hash__(self) -> int:
        return hash(self._plain())

    def _plain(self) -> tuple[Any, ...]:
        """Return what is no array."""
        return (self.domain, self.epsilon, self.delta, self.relation, self.calibration, self.symmetry)

    def spec(self) -> dict[str, Any]:
        plain = {f.name: getattr(self, f.name) for f in fields(self)}
        for name in ("covariances", "subspaces"):
            if plain[name] is not None:
                plain[name] = [None if entry is None else entry.tolist() for entry in plain[name]]
        plain["symmetry"] = [list(group) for group in self.symmetry]
        return {"mechanism": self.name} | plain | {"domain": self.domain.spec()}

    @cached_property
    def neighbours(self) -> Neighbours:
        return Neighbours.read(self.relation, self.domain)

    @cached_property
    def modes(self) -> tuple[Mode, ...]:
        """The covariance along each mode: as given, or as its subspace asks for."""
        order = len(self.domain.dims)
        given, spaces = (entries or (None,) * order for entries in (self.covariances, self.subspaces))
        return tuple(
            Mode(size, covariance) if space is None else self._optimal(k, size, space)
            for k, (size, covariance, space) in enumerate(zip(self.domain.dims, given, spaces, strict=True))
        )

    def _optimal(self, number: int, size: int, subspace: FloatArray) -> Mode:
        return rules.optimal_mode(self.calibration, self.neighbours, number, size, subspace)

    @cached_property
    def sensitivity(self) -> tuple[float, bool]:
        """Largest whitened distance of neighbours for s = 1, from above, and whether some neighbours attain it."""
        return self.neighbours.white(self.modes)

    @cached_property
    def _reach(self) -> tuple[float, float]:
        """Return bounds for s = 1: the whitened distance with float64's errors, and the lattice's rounding."""
        operations = 8 + sum(mode.size + 4 for mode in self.modes if mode.full)
        norms = math.prod(mode.rounding for mode in self.modes)
        error = 2 * operations * 2.0**-53 * norms * (self._radius + abs(self._middle) * math.sqrt(self.size))
        touched = self.neighbours.entries * math.prod(
            self.modes[k].size for k in self.neighbours.fixed if self.modes[k].full
        )
        return self.sensitivity[0] + error, math.sqrt(touched) / STEPS

    @cached_property
    def sigma(self) -> float:
        """The scale s; of noise with identity covariances the standard deviation of every entry."""
        if self.calibration != "exact":
            return rules.published_scale(
                self.calibration, self.modes, self.neighbours, self.epsilon, self.delta, self._largest_norm
            )
        white, lattice = self._reach
        mu = gaussian_mu(self.epsilon, self.delta) * (1 - 1e-12)
        if mu <= 2 * lattice:
            raise ValueError(
                f"Expected epsilon={self.epsilon!r} and delta={self.delta!r} to be larger for {self.size:,} entries: "
                "rounding to the lattice would use up half of them."
            )
        return white / (mu - lattice)

    @property
    def mu(self) -> float:
        """One release is mu-GDP, rounding included."""
        white, lattice = self._reach
        return (white / self.sigma + lattice) * (1 + 1e-12)

    @property
    def rho(self) -> float:
        """One release is rho-zCDP: its Renyi divergence at order a is a mu^2 / 2."""
        return self.mu**2 / 2

    @cached_property
    def guarantee(self) -> Guarantee:
        """Return the guarantee for the declared neighbours, and the published claim."""
        relation = self.neighbours
        true = self.epsilon if self.calibration == "exact" else gaussian_epsilon(self.mu, self.delta)
        source, beyond = _SOURCES[self.calibration], self.calibration == "classical" and self.epsilon >= 1
        claim = Claim(self.epsilon, self.delta, relation.unit, source, _BELOW_ONE if beyond else "")
        return Guarantee(true, self.delta, relation.unit, relation.model, relation.relation, claim)

    def written_law(self) -> dict[str, Any] | None:
        """Return the one deviation of the noise, which is the whole law; None for other noise or neighbours."""
        plain = all(mode.covariance is None for mode in self.modes) and not self.symmetry
        if not plain or self.neighbours.relation != "any-pair":
            return None
        return {"kind": "normal", "sigma": self.sigma}

    def expected_error(self) -> float:
        """Return E|noise x_1 W_1 ... x_N W_N|^2, with the identity for a mode without a subspace."""
        spaces = self.subspaces or (None,) * len(self.modes)
        return self.sigma**2 * math.prod(mode.weighted(w) for mode, w in zip(self.modes, spaces, strict=True))

    def explain(self) -> str:
        """Say in plain words what is protected, how much noise that needs, and what directions can gain."""
        bound, attained = self.sensitivity
        lines = [
            f"{self.guarantee}.",
            f"Neighbours are at most {self.neighbours.l2:.6g} apart, {bound:.6g} once the noise is white"
            + (
                ", and some are that far apart."
                if attained
                else "; that is a bound, and the noise may be more than needed."
            ),
            f"Scale of the noise {self.sigma:.6g}, so mu = {self.mu:.6g}.",
        ]
        if self.calibration != "exact":
            exact = replace(self, calibration="exact").sigma if self.subspaces is None else None
            lines.append(
                f"Published calibration {self.calibration}: it claims ({self.epsilon:g}, {self.delta:g}), the truth is "
                f"({self.guarantee.epsilon:.4g}, {self.delta:g})."
                + ("" if exact is None else f" calibration='exact' needs a scale of {exact:.6g} only.")
            )
        for number, space in enumerate(self.subspaces or ()):
            if space is not None:
                lines.append(rules.words_on_direction(self.calibration, self.neighbours, number))
        return "\n".join(lines)

    def reshape(self, dims: tuple[int, ...]) -> TensorGaussian:
        """Return the same mechanism for the tensor in another shape, entries in row-major order.

        Modes may be merged, and split where their covariance is the identity (Yang et al. 2021, Corollary 1).
        """
        if self.relation.partition(":")[0] in ("slice", "fibre") or (
            isinstance(self.domain, TensorBall) and self.domain.mode is not None
        ):
            raise ValueError(
                f"relation={self.relation!r} names a mode of {self.domain.dims}: build it for {dims} instead."
            )
        if self.subspaces is not None or self.symmetry:
            raise ValueError("Subspaces and symmetries belong to modes: give covariances to a mechanism to reshape.")
        domain = replace(self.domain, dims=dims)
        covariances = regroup(self.modes, domain.dims)
        return replace(
            self, domain=domain, covariances=covariances if any(c is not None for c in covariances) else None
        )
