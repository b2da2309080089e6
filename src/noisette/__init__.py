"""Noisette: collect, estimate and learn from sensitive tensors under local differential privacy."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from noisette import accounting, testing
    from noisette.auditing import audit, exact_delta, exact_epsilon, exact_matrix
    from noisette.core import Aggregate, Estimate, Moments
    from noisette.domains import Attributes, Box, Categorical, Grid, Interval, L2Ball, Sphere, TensorBall, TensorDomain
    from noisette.enhancement import enhance
    from noisette.guarantees import Claim, Guarantee, PrivacyWarning
    from noisette.mechanisms import CATALOGUE, from_spec
    from noisette.mechanisms.categorical.grr import GeneralizedRandomizedResponse
    from noisette.mechanisms.categorical.hadamard import HadamardResponse
    from noisette.mechanisms.categorical.hashing import LocalHashing
    from noisette.mechanisms.categorical.histogram import HistogramEncoding
    from noisette.mechanisms.categorical.subset import SubsetSelection
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
    from noisette.mechanisms.scalar.staircase import Scdf, Staircase
    from noisette.mechanisms.tensor.gaussian import TensorGaussian
    from noisette.mechanisms.tensor.jl import JohnsonLindenstrauss
    from noisette.mechanisms.tensor.matrix import MatrixMechanism
    from noisette.mechanisms.tensor.release import release_covariance, release_data, release_features
    from noisette.mechanisms.tensor.retain import RetainOrNoise
    from noisette.mechanisms.vector.adaptive_duchi import AdaptiveDuchi
    from noisette.mechanisms.vector.attributes import SampledAttributes
    from noisette.mechanisms.vector.duchi_box import DuchiBox
    from noisette.mechanisms.vector.privunit import PrivUnit, PrivUnitG
    from noisette.mechanisms.vector.sampled import Reports, Sampled
    from noisette.utility import break_even, deviation

# What each module gives; it is imported when the first of its names is used.
_MODULES = {
    "noisette.accounting": ("accounting",),
    "noisette.auditing": (
        "audit",
        "exact_delta",
        "exact_epsilon",
        "exact_matrix",
    ),
    "noisette.core": (
        "Aggregate",
        "Estimate",
        "Moments",
    ),
    "noisette.domains": (
        "Attributes",
        "Box",
        "Categorical",
        "Grid",
        "Interval",
        "L2Ball",
        "Sphere",
        "TensorBall",
        "TensorDomain",
    ),
    "noisette.enhancement": ("enhance",),
    "noisette.guarantees": (
        "Claim",
        "Guarantee",
        "PrivacyWarning",
    ),
    "noisette.mechanisms": (
        "CATALOGUE",
        "from_spec",
    ),
    "noisette.mechanisms.categorical.grr": ("GeneralizedRandomizedResponse",),
    "noisette.mechanisms.categorical.hadamard": ("HadamardResponse",),
    "noisette.mechanisms.categorical.hashing": ("LocalHashing",),
    "noisette.mechanisms.categorical.histogram": ("HistogramEncoding",),
    "noisette.mechanisms.categorical.subset": ("SubsetSelection",),
    "noisette.mechanisms.categorical.unary": (
        "SymmetricUnaryEncoding",
        "UnaryEncoding",
    ),
    "noisette.mechanisms.geometric.angle_gaussian": ("AngleGaussian",),
    "noisette.mechanisms.geometric.angle_noise": ("AngleNoise",),
    "noisette.mechanisms.graded.laplace": ("GradedLaplace",),
    "noisette.mechanisms.graded.levelled": ("LevelledResponse",),
    "noisette.mechanisms.graded.optimal": ("OptimalGraded",),
    "noisette.mechanisms.scalar.duchi": ("Duchi",),
    "noisette.mechanisms.scalar.gaussian": (
        "DiscreteGaussian",
        "Gaussian",
    ),
    "noisette.mechanisms.scalar.hybrid": ("Hybrid",),
    "noisette.mechanisms.scalar.laplace": (
        "DiscreteLaplace",
        "Laplace",
    ),
    "noisette.mechanisms.scalar.lp_optimal": ("LpOptimal",),
    "noisette.mechanisms.scalar.piecewise": (
        "Piecewise",
        "PiecewiseOptimal",
        "SquareWave",
    ),
    "noisette.mechanisms.scalar.staircase": (
        "Scdf",
        "Staircase",
    ),
    "noisette.mechanisms.tensor.gaussian": ("TensorGaussian",),
    "noisette.mechanisms.tensor.jl": ("JohnsonLindenstrauss",),
    "noisette.mechanisms.tensor.matrix": ("MatrixMechanism",),
    "noisette.mechanisms.tensor.release": (
        "release_covariance",
        "release_data",
        "release_features",
    ),
    "noisette.mechanisms.tensor.retain": ("RetainOrNoise",),
    "noisette.mechanisms.vector.adaptive_duchi": ("AdaptiveDuchi",),
    "noisette.mechanisms.vector.attributes": ("SampledAttributes",),
    "noisette.mechanisms.vector.duchi_box": ("DuchiBox",),
    "noisette.mechanisms.vector.privunit": (
        "PrivUnit",
        "PrivUnitG",
    ),
    "noisette.mechanisms.vector.sampled": (
        "Reports",
        "Sampled",
    ),
    "noisette.sgd": ("sgd",),  # needs torch, so it is not in __all__
    "noisette.testing": ("testing",),
    "noisette.utility": (
        "break_even",
        "deviation",
    ),
}
_LAZY = {name: module for module, names in _MODULES.items() for name in names}

__all__ = [
    "CATALOGUE",
    "AdaptiveDuchi",
    "Aggregate",
    "AngleGaussian",
    "AngleNoise",
    "Attributes",
    "Box",
    "Categorical",
    "Claim",
    "DiscreteGaussian",
    "DiscreteLaplace",
    "Duchi",
    "DuchiBox",
    "Estimate",
    "Gaussian",
    "GeneralizedRandomizedResponse",
    "GradedLaplace",
    "Grid",
    "Guarantee",
    "HadamardResponse",
    "HistogramEncoding",
    "Hybrid",
    "Interval",
    "JohnsonLindenstrauss",
    "L2Ball",
    "Laplace",
    "LevelledResponse",
    "LocalHashing",
    "LpOptimal",
    "MatrixMechanism",
    "Moments",
    "OptimalGraded",
    "Piecewise",
    "PiecewiseOptimal",
    "PrivUnit",
    "PrivUnitG",
    "PrivacyWarning",
    "Reports",
    "RetainOrNoise",
    "Sampled",
    "SampledAttributes",
    "Scdf",
    "Sphere",
    "SquareWave",
    "Staircase",
    "SubsetSelection",
    "SymmetricUnaryEncoding",
    "TensorBall",
    "TensorDomain",
    "TensorGaussian",
    "UnaryEncoding",
    "accounting",
    "audit",
    "break_even",
    "deviation",
    "enhance",
    "exact_delta",
    "exact_epsilon",
    "exact_matrix",
    "from_spec",
    "release_covariance",
    "release_data",
    "release_features",
    "testing",
]


def __getattr__(name: str) -> Any:
    """Import a name's module when it is first used: `import noisette` itself imports nothing, not even numpy."""
    if name not in _LAZY:
        raise AttributeError(f"module 'noisette' has no attribute {name!r}")
    module = importlib.import_module(_LAZY[name])
    found = module if _LAZY[name].endswith(f".{name}") else getattr(module, name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    """Show every name to who asks for them, as completion does, also those whose module is not imported yet."""
    return sorted({*globals(), *__all__})
