"""Attack: settle from the last bits of one noisy gradient whether an example took part.

The attacker knows the model, all other examples, the clipped gradient of the one in question, the noise's scale: all
but a coin, and the noise. Noise in floating point gives the coin away. total + noise is rounded to the grid of floats
around the larger of both, so where they nearly cancel the sum has fewer bits than a float of its size. A gradient with
200,000 entries has hundreds of such places, and a total that is not the true one fails to explain them.

A guess is right by chance in half of the worlds. With 60 worlds an honest release has fewer than 50 right, but for a
false alarm of 1e-7; the twin, float noise, has all of them.
"""

import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

from noisette import sgd
from noisette.sgd.noise._angles import WeightedRows, clipped_angle_sums
from noisette.sgd.noise._lattice import noisy_count
from noisette.sgd.sampling import PoissonLoader

FALSE_ALARM = 1e-6
ENTRIES = 200_000
WORLDS = 60
EXPECTED = 16.0  # a power of two: to divide by it loses no bit, which is kind to the attacker


def contribution():
    """Return the clipped gradient of the example in question: of norm one, spread over all entries."""
    signs = torch.where(torch.arange(ENTRIES) % 3 == 0, -1.0, 1.0)
    return signs / math.sqrt(ENTRIES)


def possible(released, total):
    """Tell where some float32 noise, added to this total in float32, gives what was released."""
    y, t = (released * EXPECTED).numpy(), total.numpy()
    near = (y.astype(np.float64) - t).astype(np.float32)
    found = np.zeros(y.shape, dtype=bool)
    for noise in (near, np.nextafter(near, np.float32(np.inf)), np.nextafter(near, np.float32(-np.inf))):
        found |= (noise + t).astype(np.float32) == y
    return found


def in_floats(total, rng):
    """The twin: noise as it was drawn before, in single precision."""
    noise = torch.from_numpy(rng.standard_normal(total.shape, dtype=np.float32))
    return noise.add_(total).div_(EXPECTED)


def exactly(perturb):
    """Return the release of a perturbation, as a parameter of single precision gets it."""
    clip = sgd.PerLayer(1.0) if isinstance(perturb, sgd.Layered) else sgd.L2(1.0)
    clip.start({"": ENTRIES})
    perturb.start(clip, {"": {"weight": torch.Size([ENTRIES])}})

    def release(total, rng):
        return perturb.release({"": {"weight": total.clone()}}, clip, 1.0, EXPECTED, rng)[""]["weight"].float()

    return release


def rightly_guessed(release):
    """Return how often the attacker is right: the example took part where its total explains every entry."""
    rng = np.random.default_rng(1)
    own = contribution()
    right = 0
    for inside in rng.random(WORLDS) < 0.5:
        released = release(own if inside else torch.zeros(ENTRIES), rng)
        right += bool(possible(released, own).all()) == inside
    return right


PERTURBATIONS = {
    "gaussian": sgd.GaussianPerturbation(),
    "layered": sgd.Layered(),
    "tensor": sgd.TensorPerturbation(),
    "tensor with variances": sgd.TensorPerturbation(covariances={"weight": (np.linspace(1, 2, ENTRIES),)}),
}


@pytest.mark.long
@pytest.mark.parametrize("name", PERTURBATIONS)
def test_which_noise_explains_every_entry(name):
    assert rightly_guessed(exactly(PERTURBATIONS[name])) < 50


def test_float_noise_is_caught_in_every_world():
    assert rightly_guessed(in_floats) == WORLDS


def codes(release, total, size):
    """Return a release in steps of the public lattice, and tell whether it lies there."""
    step = 2.0 ** math.floor(math.log2(size)) * 2.0**-20
    scaled = release(total, np.random.default_rng(2)).double().numpy() / step
    return np.rint(scaled).astype(np.int64), bool((scaled == np.rint(scaled)).all())


@pytest.mark.parametrize("total", [torch.zeros(ENTRIES), contribution(), torch.full((ENTRIES,), 1 / 3)], ids=str)
def test_the_last_bits_are_uniform_whatever_the_sum_is(total):
    """The eight last bits, over 200,000 entries, are as good as drawn; of a rounded multiple of ten they are not."""
    found, inside = codes(exactly(sgd.GaussianPerturbation()), total, 1 / EXPECTED)
    small = found[np.abs(found) < 2**24]  # what single precision has not rounded further
    assert inside
    assert small.size > 0.999 * found.size
    assert stats.chisquare(np.bincount(small & 255, minlength=256)).pvalue > FALSE_ALARM
    assert stats.chisquare(np.bincount(10 * (small // 10) & 255, minlength=256)).pvalue < FALSE_ALARM
    assert not codes(in_floats, total, 1 / EXPECTED)[1]


@pytest.mark.filterwarnings("ignore::noisette.PrivacyWarning")
def test_the_gradient_that_an_optimiser_sees_lies_on_the_lattice():
    """From make_private to .grad, with all that lies between."""
    model = nn.Linear(500, 3)
    data = TensorDataset(torch.randn(100, 500), torch.randn(100, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = DataLoader(data, batch_size=30)
    private = sgd.make_private(model, optimizer, loader, target=(3.0, 1e-3), epochs=1, clip=0.7, rng=1)
    for inputs, targets in private.loader:
        private.optimizer.zero_grad()
        functional.mse_loss(model(inputs), targets).backward()
        private.optimizer.step()
        step = 2.0 ** math.floor(math.log2(private.optimizer.budget.multiplier * 0.7 / 30)) * 2.0**-20
        for parameter in model.parameters():
            scaled = parameter.grad.double() / step
            assert torch.equal(scaled, scaled.round())


def test_the_count_behind_a_quantile_lies_on_the_lattice():
    """The noisy share of examples within the norm moves the norm, which everybody sees."""
    rng, seen = np.random.default_rng(3), []
    rule = sgd.Quantile(1.0, rate=1.0)
    for _ in range(50):
        rule.ask(100.0, lambda count, reach: seen.append(noisy_count(count, reach, 3.0, rng)) or seen[-1])
    scaled = np.array(seen) / 2.0**-20  # noise of deviation 1.5
    assert np.array_equal(scaled, np.rint(scaled))
    assert len(set(seen)) == 50


@pytest.mark.filterwarnings("ignore::noisette.PrivacyWarning")
def test_the_counts_of_advise_clip_lie_on_the_lattice():
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = DataLoader(TensorDataset(torch.randn(60, 4), torch.randn(60, 1)), batch_size=20)
    private = sgd.make_private(model, optimizer, loader, target=(3.0, 1e-3), epochs=1, rng=1)
    counts = private.optimizer.release_counts(lambda: np.full(20, 0.3), np.array([0.1, 1.0]))
    step = 2.0 ** math.floor(math.log2(private.optimizer.budget.multiplier)) * 2.0**-20
    assert np.array_equal(counts / step, np.rint(counts / step))
    assert counts[1] - counts[0] > 20 - 12 * private.optimizer.budget.multiplier


@pytest.mark.parametrize("low", [0.4 * math.pi, 0.7 * math.pi, 0.97 * math.pi])
@pytest.mark.parametrize("outer", [True, False])
def test_an_example_changes_the_angles_of_others_by_nothing(low, outer):
    """What an example adds to sums of angles is the same in any company, but for double precision's rounding."""
    rng = np.random.default_rng(4)
    left = (rng.normal(size=(150, 30)) * rng.exponential(size=(150, 1)) ** 4).astype(np.float32)
    right = rng.normal(size=(150, 7)).astype(np.float32) if outer else None
    whole = left if right is None else left[:, :, None] * right[:, None, :]
    weights = (1 / np.linalg.norm(whole.reshape(150, -1), axis=1)).astype(np.float32)

    def sums(chosen):
        part = WeightedRows(left[chosen], weights[chosen], None if right is None else right[chosen])
        return clipped_angle_sums([part], low)[0][:-1]

    together = sums(np.arange(150))
    alone = np.sum([sums(np.array([row])) for row in range(150)], axis=0)
    np.testing.assert_allclose(together, alone, rtol=0, atol=1e-11)


class OneNumber:
    """A generator that always gives the same of its 2^53 numbers."""

    def __init__(self, number):
        self.number = number

    def random(self, size):
        return np.full(size, self.number / 2.0**53)


@pytest.mark.parametrize("expected", [1, 3, 7, 19])
def test_no_example_is_drawn_with_more_than_the_stated_chance(expected):
    """Of 2^53 numbers at most q 2^53 draw an example: one more would be a chance above the one accounted for."""
    dataset = TensorDataset(torch.arange(30.0))
    chance = expected / 30
    most = Fraction(chance) * 2**53
    for number in (math.floor(most) - 1, math.floor(most)):
        loader = PoissonLoader(dataset, chance, steps=1, rng=OneNumber(number))
        drawn = sum(len(batch[0]) for batch in loader)
        assert drawn == (30 if number + 1 <= most else 0)
    assert len(next(iter(PoissonLoader(dataset, 1.0, steps=1, rng=OneNumber(2**53 - 1))))[0]) == 30
