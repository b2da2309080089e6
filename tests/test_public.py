"""The public surface: few names, sorted, all there, and as the design fixes them."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import version

import numpy as np
import pytest

import noisette as nz

CLASSES = {
    "laplace": "Laplace",
    "staircase": "Staircase",
    "scdf": "Scdf",
    "duchi": "Duchi",
    "piecewise": "Piecewise",
    "piecewise-optimal": "PiecewiseOptimal",
    "hybrid": "Hybrid",
    "square-wave": "SquareWave",
    "gaussian": "Gaussian",
    "lp-optimal": "LpOptimal",
    "sliding-half": "SlidingHalf",
    "discrete-laplace": "DiscreteLaplace",
    "discrete-gaussian": "DiscreteGaussian",
    "grr": "GeneralizedRandomizedResponse",
    "oue": "UnaryEncoding",
    "olh": "LocalHashing",
    "subset-selection": "SubsetSelection",
    "hadamard": "HadamardResponse",
    "pgr": "ProjectiveGeometryResponse",
    "privset": "PrivSet",
    "drawn-option": "DrawnOption",
    "wheel": "Wheel",
    "histogram": "HistogramEncoding",
    "pem": "PrefixExtending",
    "sampled": "Sampled",
    "duchi-box": "DuchiBox",
    "privunit": "PrivUnit",
    "privunit-g": "PrivUnitG",
    "levelled": "LevelledResponse",
    "graded-laplace": "GradedLaplace",
    "optimal-graded": "OptimalGraded",
    "tensor-gaussian": "TensorGaussian",
    "jl": "JohnsonLindenstrauss",
    "matrix": "MatrixMechanism",
    "retain-or-noise": "RetainOrNoise",
    "angle-gaussian": "AngleGaussian",
    "angle-noise": "AngleNoise",
    "adaptive-duchi": "AdaptiveDuchi",
}


def test_names_are_sorted_and_there() -> None:
    assert nz.__all__ == sorted(set(nz.__all__))
    assert dir(nz) == nz.__all__
    for name in nz.__all__:
        assert getattr(nz, name) is not None
    with pytest.raises(AttributeError, match="attribute nothing"):
        _ = nz.nothing


@pytest.mark.long
@pytest.mark.needs("torch")
def test_private_learning_is_a_name_that_no_star_import_loads() -> None:
    code = "import sys, noisette as nz; from noisette import *; assert 'torch' not in sys.modules; nz.sgd.make_private"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_every_class_has_its_catalogue_name() -> None:
    for name, cls in CLASSES.items():
        assert nz.CATALOGUE[name] is getattr(nz, cls)
        assert nz.CATALOGUE[name].name == name
    assert nz.CATALOGUE["sue"].name == "sue"


def test_the_design_s_own_lines() -> None:
    x = np.linspace(-1, 1, 11)
    m = nz.Piecewise(epsilon=1.0)
    y = m.privatize(x, rng=7)
    assert y.shape == x.shape
    g = m.guarantee
    assert (g.epsilon, g.delta, g.unit, g.model, g.relation) == (1.0, 0.0, "record", "local", "any-pair")
    assert m.moments(x).bias.shape == m.moments(x).variance.shape == m.moments(x).third.shape == x.shape
    assert np.isfinite(m.log_prob(y, x)).all()
    assert nz.Piecewise(epsilon=1.0, domain=nz.Interval(0, 100)).privatize(50.0) is not None
    c = nz.Sampled("piecewise", epsilon=1.0, dims=5000, report=50)
    agg = c.aggregate(c.privatize(np.zeros((20, 5000)), rng=7))
    est = (agg + agg).estimate()
    assert est.value.shape == est.std_error.shape == (5000,)
    assert len(est.interval(0.95)) == 2
    assert agg.merge(agg) == agg + agg
    for method in ("auto", "none", "box", "hdr4me-l1", "hdr4me-l2", "hdr4me-star", "james-stein", "sure", "npmle"):
        assert nz.enhance(est, method=method).value.shape == (5000,)
    values, probs = np.arange(1, 11) / 10, np.full(10, 0.1)
    dev = nz.deviation(m, users=10_000, values=values, probs=probs)
    assert dev.mse == pytest.approx(dev.bias**2 + dev.std**2)
    assert 0 < dev.probability_within(0.05) < 1
    assert dev.supremum(0.95) > 0
    assert 0 < dev.berry_esseen < 1
    assert nz.break_even(nz.SquareWave(epsilon=1.0), m, values=values, probs=probs) is not None
    assert nz.exact_epsilon(m) == pytest.approx(1.0, rel=1e-9)
    nz.GeneralizedRandomizedResponse(epsilon=1.0, domain=nz.Categorical(7))
    nz.DuchiBox(epsilon=1.0, dims=4)
    nz.PrivUnitG(epsilon=8.0, dims=1000)
    nz.LevelledResponse(edges=[-1, -0.6, 0, 1], epsilons=[3.0, 2.0, 1.0])


@pytest.mark.long
def test_star_import_works_in_a_fresh_interpreter() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "from noisette import *; print(Duchi)"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_the_version_is_that_of_the_installed_package() -> None:
    assert nz.__version__ == version("noisette")
    assert "__version__" not in dir(nz)
