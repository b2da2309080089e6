"""Every mechanism by its name: a line here gives it checks, plots, a plan, a command and a page in the docs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import Any

from noisette import domains
from noisette.mechanisms.categorical.grr import GeneralizedRandomizedResponse
from noisette.mechanisms.categorical.hadamard import HadamardResponse
from noisette.mechanisms.categorical.hashing import LocalHashing
from noisette.mechanisms.categorical.histogram import HistogramEncoding
from noisette.mechanisms.categorical.projective import ProjectiveGeometryResponse
from noisette.mechanisms.categorical.selections.one_option import DrawnOption
from noisette.mechanisms.categorical.selections.privset import PrivSet
from noisette.mechanisms.categorical.selections.wheel import Wheel
from noisette.mechanisms.categorical.subset import SubsetSelection
from noisette.mechanisms.categorical.texts.prefixes import PrefixExtending
from noisette.mechanisms.categorical.unary import SymmetricUnaryEncoding, UnaryEncoding
from noisette.mechanisms.geometric.angle_gaussian import AngleGaussian
from noisette.mechanisms.geometric.angle_noise import AngleNoise
from noisette.mechanisms.graded.laplace import GradedLaplace
from noisette.mechanisms.graded.levelled import LevelledResponse
from noisette.mechanisms.graded.optimal import OptimalGraded
from noisette.mechanisms.scalar.duchi import Duchi
from noisette.mechanisms.scalar.gaussian import DiscreteGaussian, Gaussian
from noisette.mechanisms.scalar.hybrid import Hybrid
from noisette.mechanisms.scalar.laplace import DiscreteLaplace, Laplace
from noisette.mechanisms.scalar.lp_optimal import LpOptimal
from noisette.mechanisms.scalar.piecewise import Piecewise, PiecewiseOptimal, SquareWave
from noisette.mechanisms.scalar.sliding import SlidingHalf
from noisette.mechanisms.scalar.staircase import Scdf, Staircase
from noisette.mechanisms.tensor.gaussian.jl import JohnsonLindenstrauss
from noisette.mechanisms.tensor.gaussian.mechanism import TensorGaussian
from noisette.mechanisms.tensor.matrix.mechanism import MatrixMechanism
from noisette.mechanisms.tensor.retain.mechanism import RetainOrNoise
from noisette.mechanisms.vector.adaptive_duchi import AdaptiveDuchi
from noisette.mechanisms.vector.attributes import SampledAttributes
from noisette.mechanisms.vector.duchi_box import DuchiBox
from noisette.mechanisms.vector.fast_projunit import FastProjUnit
from noisette.mechanisms.vector.privunit import PrivUnit, PrivUnitG
from noisette.mechanisms.vector.sampled import Sampled

CATALOGUE: dict[str, type[Any]] = {
    cls.name: cls
    for cls in (
        Laplace,
        Staircase,
        Scdf,
        Duchi,
        Piecewise,
        PiecewiseOptimal,
        Hybrid,
        SquareWave,
        Gaussian,
        LpOptimal,
        SlidingHalf,
        DiscreteLaplace,
        DiscreteGaussian,
        GeneralizedRandomizedResponse,
        SymmetricUnaryEncoding,
        UnaryEncoding,
        LocalHashing,
        SubsetSelection,
        HadamardResponse,
        ProjectiveGeometryResponse,
        HistogramEncoding,
        PrivSet,
        DrawnOption,
        Wheel,
        PrefixExtending,
        Sampled,
        SampledAttributes,
        DuchiBox,
        PrivUnit,
        PrivUnitG,
        FastProjUnit,
        TensorGaussian,
        JohnsonLindenstrauss,
        MatrixMechanism,
        RetainOrNoise,
        LevelledResponse,
        GradedLaplace,
        OptimalGraded,
        AngleGaussian,
        AngleNoise,
        AdaptiveDuchi,
    )
}


def from_spec(spec: str | Mapping[str, Any]) -> Any:
    """Rebuild a mechanism from the JSON description that its ``spec()`` gave.

    >>> from_spec({"mechanism": "duchi", "epsilon": 1.0}).epsilon
    1.0
    """
    options = dict(json.loads(spec) if isinstance(spec, str) else spec)
    name = options.pop("mechanism", None)
    cls = by_name(name)
    known = {f.name for f in fields(cls) if f.init}
    if not set(options) <= known:
        raise ValueError(f"Unknown fields {sorted(set(options) - known)} for {name!r}; expected {sorted(known)}.")
    required = {f.name for f in fields(cls) if f.init and f.default is MISSING and f.default_factory is MISSING}
    if not required <= set(options):
        lacking = ", ".join(sorted(required - set(options)))
        raise ValueError(
            f"Expected {lacking} in the spec of {name!r}, got {options}. `spec()` writes all that it needs."
        )
    if isinstance(options.get("domain"), Mapping):
        options["domain"] = domains.from_spec(options["domain"])
    return cls(**{key: tuple(value) if isinstance(value, list) else value for key, value in options.items()})


def by_name(name: Any) -> type[Any]:
    """Return the class of a catalogue name."""
    if not isinstance(name, str) or name not in CATALOGUE:
        raise ValueError(f"Unknown mechanism {name!r}; expected one of {', '.join(sorted(CATALOGUE))}.")
    return CATALOGUE[name]
