"""GeoDP: what is averaged, the noise on magnitude and angles, and what truly holds of the published form."""

import math
import warnings

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

from noisette import sgd
from noisette.accounting import gdp_epsilon
from noisette.guarantees import PrivacyWarning
from noisette.mechanisms.geometric.spherical import from_spherical, to_spherical
from noisette.sgd.noise._angles import WeightedRows, clipped_angle_sums
from noisette.sgd.noise._lattice import add_exactly

# most steps here are on batches of our own making, so that what comes of them is known
pytestmark = pytest.mark.filterwarnings("ignore:This step is not on a batch")

FALSE_ALARM = 1e-6
BATCH = 50


def start(perturb, clip=1.0, **options):
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(6, 4), nn.Tanh(), nn.Linear(4, 3))
    dataset = TensorDataset(torch.randn(500, 6), torch.randint(0, 3, (500,)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    loader = DataLoader(dataset, batch_size=BATCH)
    options = {"target": (3.0, 1e-5), "epochs": 40, "rng": 2} | options
    return sgd.make_private(model, optimizer, loader, clip=clip, perturb=perturb, **options)


def flat(model):
    return torch.cat([parameter.grad.flatten() for parameter in model.parameters()]).double()


def step(private, inputs, targets):
    private.optimizer.zero_grad()
    functional.cross_entropy(private.model(inputs), targets).backward()
    private.loader.complete = True
    private.optimizer.step()
    return flat(private.model)


class Silent(np.random.Generator):
    """Draws no noise."""

    def integers(self, low, high=None, size=None, dtype=np.int64, endpoint=False):
        return np.zeros(size, dtype)  # of the word zero comes the noise zero


def each_clipped(private, inputs, targets, beta):
    """Return every example's clipped magnitude and angles, by the definition."""
    made = []
    model = private.model
    for example, label in zip(inputs, targets, strict=True):
        model.eval()
        model.zero_grad()
        functional.cross_entropy(model(example[None]), label[None]).backward()
        gradient = flat(model)
        magnitude, angles = to_spherical((gradient * min(1.0, 1.0 / float(gradient.norm()))).numpy())
        angles[:-1] = np.clip(angles[:-1], (1 - beta) * math.pi, math.pi)
        angles[-1] = np.clip(angles[-1], -beta * math.pi, beta * math.pi)
        made.append((magnitude, angles))
    model.train()
    return np.array([m for m, _ in made]), np.array([a for _, a in made])


@pytest.mark.parametrize("beta", [0.3, 1.0])
def test_angles_of_every_example_are_averaged(beta):
    private = start(sgd.Geo(beta, "angles"))
    private.optimizer._rng = Silent(np.random.PCG64(1))
    inputs, targets = (tensor[:BATCH] for tensor in private.loader.dataset.tensors)
    magnitudes, angles = each_clipped(private, inputs, targets, beta)
    seen = step(private, inputs, targets)
    expected = from_spherical(magnitudes.mean(), angles.mean(0))
    np.testing.assert_allclose(seen.numpy(), expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("widths", [(2,), (1, 1), (40, 3, 33, 1), (500, 1, 64), (31,)], ids=str)
@pytest.mark.parametrize("low", [0.0, 0.51 * math.pi, 0.9 * math.pi])
def test_angles_in_single_precision_are_those_of_the_definition(widths, low):
    rng = np.random.default_rng(len(widths))
    rows = np.where(rng.random((70, sum(widths))) < 0.7, rng.normal(size=(70, sum(widths))), 0.0)
    rows[:3] *= 1e-25  # too small for squares in single precision, were they not made of length one
    rows[3] = 0.0
    rows[4, -20:] = 0.0
    lengths = np.linalg.norm(rows, axis=1)
    weights = np.divide(1.0, lengths, out=np.zeros(70), where=lengths > 0).astype(np.float32)
    cut = np.split(rows.astype(np.float32), np.cumsum(widths)[:-1], axis=1)
    found = np.concatenate(clipped_angle_sums([WeightedRows(np.ascontiguousarray(part), weights) for part in cut], low))
    expected = np.maximum(to_spherical(rows)[1], low).sum(0)
    np.testing.assert_allclose(found[:-2], expected[:-1], rtol=0, atol=70 * 3e-6)
    none = clipped_angle_sums([WeightedRows(np.zeros((0, 5), np.float32), np.zeros(0, np.float32))], low)
    assert [part.tolist() for part in none] == [[0.0] * 5]


@pytest.mark.parametrize("angle", [0.52, 0.89, 0.899, 0.901, 0.91, 1.0])
@pytest.mark.parametrize("apart", [True, False], ids=["outer", "plain"])
def test_one_example_whose_angle_is_above_the_limit_is_not_passed_over(angle, apart):
    """Of 70 examples one has a wide angle in front of what outweighs the others' entries."""
    rng = np.random.default_rng(2)
    left, right = rng.normal(size=(70, 2)), rng.normal(size=(70, 3))
    left[:, 1] = 0.0  # the entry of the last column of the first half has nothing behind it but the last part
    left[:, 0], right[:, 2] = 0.01, 0.01
    right[7] = 0.0, 0.0, -100.0 / math.tan(math.pi * (1 - angle)) if angle < 1 else -1e9
    formed = np.einsum("ri,rj->rij", left, right).reshape(70, -1)
    rows = np.concatenate([formed, np.ones((70, 1))], axis=1)
    weights = (1 / np.linalg.norm(rows, axis=1)).astype(np.float32)
    singles = [part.astype(np.float32) for part in (left, right, formed)]
    front = WeightedRows(singles[0], weights, singles[1]) if apart else WeightedRows(singles[2], weights)
    found = np.concatenate(
        clipped_angle_sums([front, WeightedRows(np.ones((70, 1), np.float32), weights)], 0.9 * math.pi)
    )
    expected = np.full(6, 70 * 0.9 * math.pi)
    expected[2] += max(angle - 0.9, 0) * math.pi
    np.testing.assert_allclose(found[:-1], expected, rtol=0, atol=2e-5)


@pytest.mark.parametrize("low", [0.5, 0.51 * math.pi, 0.9 * math.pi])
@pytest.mark.parametrize("widths", [(4, 6), (1, 5), (7, 1), (40, 3)], ids=str)
def test_angles_of_outer_products_are_those_of_the_products(widths, low):
    rng = np.random.default_rng(1)
    left, right = (rng.normal(size=(50, width)).astype(np.float32) for width in widths)
    formed = np.einsum("ri,rj->rij", left, right).reshape(50, -1)
    weights = (1 / np.linalg.norm(formed, axis=1)).astype(np.float32)
    apart, whole = WeightedRows(left, weights, right), WeightedRows(formed, weights)
    for seen, expected in zip(clipped_angle_sums([apart], low), clipped_angle_sums([whole], low), strict=True):
        np.testing.assert_allclose(seen, expected, rtol=0, atol=50 * 3e-6)
    np.testing.assert_allclose(apart.last(), whole.last(), rtol=1e-5)


def test_columns_may_lie_in_another_order():
    rng = np.random.default_rng(1)
    rows, order = rng.normal(size=(50, 21)).astype(np.float32), rng.permutation(21)
    weights = (1 / np.linalg.norm(rows, axis=1)).astype(np.float32)
    laid, plain = WeightedRows(rows, weights, order=order), WeightedRows(np.ascontiguousarray(rows[:, order]), weights)
    np.testing.assert_array_equal(clipped_angle_sums([laid], 0.5), clipped_angle_sums([plain], 0.5))
    np.testing.assert_array_equal(laid.last(), plain.last())


@pytest.mark.parametrize("clip", [0.3, "auto-s", "linf", "per-layer"])
def test_both_precisions_sum_the_same_angles(clip):
    sums = []
    for dtype in (torch.float32, torch.float64):
        torch.manual_seed(3)
        model = nn.Sequential(nn.Conv2d(2, 3, (3, 2)), nn.Flatten(), nn.Linear(24, 2)).to(dtype)
        inputs, targets = torch.randn(BATCH, 2, 6, 3).to(dtype), torch.randint(0, 2, (BATCH,))
        loader = DataLoader(TensorDataset(inputs, targets), batch_size=BATCH)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        private = sgd.make_private(
            model, optimizer, loader, target=(3.0, 1e-5), epochs=1, clip=clip, perturb=sgd.Geo(0.4, "angles")
        )
        functional.cross_entropy(private.model(inputs), targets).backward()
        sums.append(
            private.optimizer.perturb.collect(private.optimizer.clip, private.optimizer.recorder.parts(), 1.0)[""]
        )
    torch.testing.assert_close(sums[0]["angles"], sums[1]["angles"], rtol=0, atol=BATCH * 1e-5)
    torch.testing.assert_close(sums[0]["magnitude"], sums[1]["magnitude"], rtol=1e-5, atol=0)


def test_the_mean_gradient_is_converted():
    private = start(sgd.Geo(1.0, "gradient"))
    private.optimizer._rng = Silent(np.random.PCG64(1))
    inputs, targets = (tensor[:BATCH] for tensor in private.loader.dataset.tensors)
    plain = start("gaussian")
    plain.optimizer._rng = Silent(np.random.PCG64(1))
    expected = step(plain, inputs, targets)
    magnitude, angles = to_spherical(expected)
    angles[-1] = angles[-1].clamp(-math.pi, math.pi)
    torch.testing.assert_close(step(private, inputs, targets), from_spherical(magnitude, angles), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("average", ["angles", "gradient"])
def test_one_example_moves_what_is_summed_by_no_more_than_the_noise_follows(average):
    """Adding an example to any batch: here to many batches, and to one where it turns the mean around."""
    geo = sgd.Geo(0.4, average)
    private = start(geo)
    geo = private.optimizer.perturb
    bound = geo.diameter / 2 if average == "angles" else geo.diameter
    tensors = private.loader.dataset.tensors
    reach = 0.0
    for first in range(0, 40):
        batch = [tensor[first : first + 3] for tensor in tensors]
        sums = []
        for size in (2, 3):
            functional.cross_entropy(private.model(batch[0][:size]), batch[1][:size]).backward()
            sums.append(geo.collect(private.optimizer.clip, private.optimizer.recorder.parts(), 1.0))
            private.optimizer.recorder.clear()
        if average == "angles":
            moved = (sums[1][""]["angles"] - sums[0][""]["angles"]).norm()
            assert abs(float(sums[1][""]["magnitude"] - sums[0][""]["magnitude"])) <= 1
        else:
            ends = [geo._clipped(to_spherical(geo._flat(total))[1]) for total in sums]
            moved = (ends[1] - ends[0]).norm()
        reach = max(reach, float(moved))
    assert 0.2 * bound < reach <= bound * (1 + 1e-6)  # the two that stay differ by single-precision rounding


def test_an_average_can_be_turned_around_by_one_example():
    """Duan 2024, chapter 5: 100 examples in three dimensions that nearly cancel; the claim allows 0.0702."""
    rows = np.zeros((100, 3))
    rows[::2, 1], rows[1::2, 1] = 1.0, -1.0
    rows[0] = [0.0, 1.0, 1e-3]
    other = rows.copy()
    other[0] = [0.0, -1.0, 1e-3]
    rows[1], other[1] = [0.0, 0.0, 0.0], [0.0, 0.0, 0.0]
    turned = abs(to_spherical(rows.mean(0))[1][-1] - to_spherical(other.mean(0))[1][-1])
    allowed = math.sqrt(3 + 2) * math.pi / 100
    assert allowed == pytest.approx(0.0702, abs=1e-4)
    assert turned > 3.1


@pytest.mark.parametrize("perturb", [sgd.Geo(0.2, "angles"), sgd.Geo(0.2, "gradient")], ids=["angles", "gradient"])
def test_two_releases_share_the_budget(perturb):
    """Of batches without examples only noise is left; its scale over what one example moves is the multiplier."""
    private = start(perturb)
    perturb = private.optimizer.perturb
    magnitudes, angles = [], []
    for _ in range(300):
        drawn = private.optimizer._rng.bit_generator.state
        step(private, torch.zeros(0, 6), torch.zeros(0).long())
        replay = np.random.default_rng()
        replay.bit_generator.state = drawn
        noise = np.zeros(perturb._dims)
        add_exactly(noise, replay)
        magnitudes.append(noise[0])
        angles.append(noise[1:])
    multiplier = private.optimizer._widened(0.0)  # by what rounding may cost
    assert 1 < multiplier / private.optimizer.budget.multiplier < 1 + 1e-5
    reach = perturb.diameter / (2 * BATCH) if perturb.average == "angles" else perturb.diameter
    moved = 1.0 / BATCH
    spread = multiplier * math.sqrt(2)
    middle = perturb._middle(torch.zeros(perturb._dims - 1)).numpy()
    base = middle if perturb.average == "angles" else perturb._clipped(torch.zeros(1, perturb._dims - 1))[0].numpy()
    expected = from_spherical(magnitudes[-1] * spread * moved, base + angles[-1] * spread * reach)
    np.testing.assert_allclose(flat(private.model).numpy(), expected, rtol=1e-4, atol=1e-7)
    assert stats.kstest(np.concatenate(angles), "norm").pvalue > FALSE_ALARM
    assert 1 / math.sqrt(2 / spread**2) == pytest.approx(multiplier)


def test_the_published_form_says_what_holds():
    with pytest.warns(PrivacyWarning, match="does not hold"):
        private = start(sgd.Geo(0.1, "gradient", as_published=True))
    assert private.guarantee.claim.epsilon == 3.0
    assert not private.guarantee.claim_holds
    multiplier = private.optimizer.budget.multiplier / math.sqrt(1 + BATCH**2)
    # of 400 samples an example is in 40 on average, and in more than 68 with a chance of 1e-5; each is laid bare
    assert stats.binom.isf(1e-5, 400, 0.1) == 68
    few, many = (gdp_epsilon(math.sqrt(count) / multiplier, 1e-5) for count in (60, 75))
    assert few < private.guarantee.epsilon < many


def test_the_published_form_needs_its_name():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert start(sgd.Geo(0.1, "gradient"), rng=None).guarantee.claim is None
        assert start("geodp", clip="auto-s", rng=None).guarantee.epsilon == 3.0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"beta": 0.0}, r"beta=0.0 in \(0, 1\]"),
        ({"beta": 1.5}, "beta=1.5"),
        ({"average": "both"}, "average='both'"),
        ({"as_published": True}, "give average='gradient'"),
    ],
)
def test_bad_options_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        sgd.Geo(**options)


def test_one_parameter_has_no_direction():
    model = nn.Linear(1, 1, bias=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = DataLoader(TensorDataset(torch.randn(20, 1), torch.randn(20, 1)), batch_size=20)
    with pytest.raises(ValueError, match="no direction"):
        sgd.make_private(model, optimizer, loader, target=(1.0, 1e-5), epochs=1, perturb="geodp")
