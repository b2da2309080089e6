"""Tensor-Gaussian noise on gradients: its law, and that no example is farther away in it than the budget says."""

import itertools
import warnings

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

from noisette import sgd

# most steps here are on batches of our own making, so that what comes of them is known
pytestmark = pytest.mark.filterwarnings("ignore:This step is not on a batch")

FALSE_ALARM = 1e-6
BATCH = 20
SHAPES = {"0.weight": (3, 2, 2), "0.bias": (3,), "1.weight": (2, 3), "1.bias": (2,)}


class Narrow(nn.Module):
    """A convolution and a linear layer with few weights: some of their sums over signs can be listed."""

    def __init__(self):
        super().__init__()
        self.add_module("0", nn.Conv1d(2, 3, 2))
        self.add_module("1", nn.Linear(3, 2))

    def forward(self, x):
        layers = dict(self.named_children())
        return layers["1"](torch.tanh(layers["0"](x)).mean(2))


def spread(size, seed):
    """Return a covariance whose largest eigenvalue is far from its least."""
    factor = np.random.default_rng(seed).normal(size=(size, size))
    return factor @ factor.T + 0.1 * np.eye(size)


def covariances():
    return {
        "0.weight": (spread(3, 1), None, np.array([0.5, 2.0])),
        "1.weight": (np.array([1.0, 4.0]), spread(3, 2)),
        "1.bias": (np.array([9.0, 0.1]),),
    }


def start(perturb, clip=0.7, *, rng=4, **options):
    torch.manual_seed(1)
    model = Narrow()
    dataset = TensorDataset(torch.randn(200, 2, 5), torch.randint(0, 2, (200,)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    options = {"target": (3.0, 1e-5), "epochs": 400} | options
    loader = DataLoader(dataset, batch_size=BATCH)
    return sgd.make_private(model, optimizer, loader, clip=clip, perturb=perturb, rng=rng, **options)


def drawn(private, steps):
    """Return the noise on the sum, of steps in which no example takes part, by parameter."""
    draws = {name: [] for name, _ in private.model.named_parameters()}
    for _ in range(steps):
        private.optimizer.zero_grad()
        functional.cross_entropy(private.model(torch.zeros(0, 2, 5)), torch.zeros(0).long()).backward()
        private.optimizer.step()
        for name, parameter in private.model.named_parameters():
            draws[name].append(parameter.grad.double().flatten().numpy() * BATCH)
    return {name: np.array(rows) for name, rows in draws.items()}


def whole(given, name):
    """Return the covariance of a parameter's entries in row-major order, as a Kronecker product."""
    made = np.ones((1, 1))
    for size, entry in zip(SHAPES[name], given.get(name, (None,) * 4), strict=False):
        entry = np.eye(size) if entry is None else np.asarray(entry)
        made = np.kron(made, np.diag(entry) if entry.ndim == 1 else entry)
    return made


@pytest.fixture(scope="module")
def noise():
    """A run whose noise has covariances, and what it drew in a thousand steps."""
    private = start(sgd.TensorPerturbation(covariances()))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return private, drawn(private, 1000)


def whitened(noise, given):
    """Return noise that is standard normal if its covariance is the given one."""
    private, draws = noise
    scales = private.optimizer.perturb.scales(private.optimizer.clip, private.optimizer.budget.multiplier)
    rows = []
    for name, own in draws.items():
        layer, _, last = name.rpartition(".")
        root = np.linalg.cholesky(whole(given, name)) * scales[layer][last]
        rows.append(np.linalg.solve(root, own.T).flatten())
    return np.concatenate(rows)


@pytest.mark.long
def test_the_noise_has_the_covariances_that_were_asked_for(noise):
    found = whitened(noise, covariances())
    assert stats.kstest(found, "norm").pvalue > FALSE_ALARM
    assert stats.kstest(0.9 * found, "norm").pvalue < FALSE_ALARM  # other noise would be seen
    turned = covariances() | {"1.weight": (np.array([9.0, 1.0]), spread(3, 2))}
    assert stats.kstest(whitened(noise, turned), "norm").pvalue < FALSE_ALARM


def farthest(private, given):
    """Return the largest squared length of a contribution once the noise is white, by listing or by eigenvalues."""
    clip, multiplier = private.optimizer.clip, private.optimizer.budget.multiplier
    scales = private.optimizer.perturb.scales(clip, multiplier)
    precisions = {}
    for name in SHAPES:
        layer, _, own = name.rpartition(".")
        precisions[name] = np.linalg.inv(whole(given, name)) / scales[layer][own] ** 2
    if not isinstance(clip, sgd.LInf):  # all of the norm in the direction of least noise
        return clip.bound**2 * max(float(np.linalg.eigvalsh(p)[-1]) for p in precisions.values())
    reach = 0.0
    for precision in precisions.values():
        signs = np.array(list(itertools.product((-1, 1), repeat=len(precision))))
        reach += clip.linf_clip_norm**2 * float(np.einsum("si,ij,sj->s", signs, precision, signs).max())
    return reach


@pytest.mark.parametrize(
    "clip", [0.7, "auto-s", "per-layer", sgd.LInf(0.02)], ids=["l2", "auto-s", "per-layer", "linf"]
)
def test_no_example_is_farther_away_than_the_budget_says(clip):
    private = start(sgd.TensorPerturbation(covariances()), clip)
    allowed = private.optimizer.budget.multiplier**-2
    assert farthest(private, covariances()) == pytest.approx(allowed, rel=1e-6)
    assert farthest(private, covariances()) <= allowed * (1 + 1e-9)
    other = covariances() | {"1.bias": (np.array([9.0, 0.01]),)}  # noise that the calibration did not know
    assert farthest(private, other) > allowed * 1.01


def test_without_covariances_it_is_plain_noise():
    plain, tensor = (drawn(start(perturb), 3) for perturb in ("gaussian", "tensor"))
    for name, draws in plain.items():
        np.testing.assert_allclose(tensor[name], draws, rtol=1e-5)


def test_directions_help_in_a_box_and_not_in_a_ball():
    """Of a layer of which one output is used, the noise there falls if entries are clipped, and not if norms are."""
    used = {"1.weight": (np.array([[1.0, 0.05]]), None)}
    seen = {}
    for label, clip in (("ball", 0.7), ("box", sgd.LInf(0.02))):
        for perturb in (sgd.TensorPerturbation(), sgd.TensorPerturbation(subspaces=used)):
            private = start(perturb, clip)
            noise = private.optimizer.perturb
            scale = noise.scales(private.optimizer.clip, 1.0)["1"]["weight"]
            seen[label, bool(perturb.subspaces)] = scale**2 * noise._noises["1"]["weight"].modes[0].variances[0]
    assert seen["ball", True] == pytest.approx(seen["ball", False], rel=1e-9)
    assert seen["box", True] < 0.9 * seen["box", False]


def test_the_guarantee_is_that_of_plain_noise_and_training_stops_with_it():
    plain, tensor = (start(perturb, epochs=1) for perturb in ("gaussian", sgd.TensorPerturbation(covariances())))
    assert plain.guarantee == tensor.guarantee
    assert plain.optimizer.budget == tensor.optimizer.budget


def test_a_run_goes_on_bit_for_bit():
    def step(private, count):
        for _ in range(count):
            inputs, targets = private.loader.fetch(np.arange(30))[0]
            private.optimizer.zero_grad()
            functional.cross_entropy(private.model(inputs), targets).backward()
            private.optimizer.step()
        return [parameter.grad.clone() for parameter in private.model.parameters()]

    expected = step(start(sgd.TensorPerturbation(covariances())), 4)
    first = start(sgd.TensorPerturbation(covariances()))
    step(first, 2)
    second = start(sgd.TensorPerturbation(covariances()), rng=9)
    second.optimizer.load_state_dict(first.optimizer.state_dict())
    assert all(torch.equal(one, two) for one, two in zip(step(second, 2), expected, strict=True))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"covariances": {"2.weight": (None, None)}},
            r"Unknown parameter '2.weight' in covariances. Name one that the model trains",
        ),
        ({"covariances": {"1.weight": (None,)}}, r"covariances\['1.weight'\] for 2 modes, got 1"),
        ({"covariances": {"1.bias": (np.array([1.0, 0.0]),)}}, "an entry without noise has no privacy"),
        ({"subspaces": {"1.bias": (np.eye(3),)}}, r"of shape \(any, 2\)"),
        (
            {"covariances": {"1.bias": (np.ones(2),)}, "subspaces": {"1.bias": (np.eye(2),)}},
            "a covariance or a subspace for mode 0 of '1.bias', got both",
        ),
    ],
    ids=["unknown", "modes", "no noise", "subspace", "both"],
)
def test_bad_options_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        start(sgd.TensorPerturbation(**options))
