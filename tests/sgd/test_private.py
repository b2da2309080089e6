"""Private training: what is summed, the noise that is added, the budget, saving and going on."""

import gc
import io
import math
import weakref
from fractions import Fraction
from functools import partial
from types import SimpleNamespace

import dp_accounting
import numpy as np
import pytest
import torch
from dp_accounting.rdp import RdpAccountant
from scipy import stats
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from noisette import sgd
from noisette.accounting import sampled_gaussian
from noisette.guarantees import PrivacyWarning
from noisette.sgd.recording.gradients import Recorder

# most steps here are on batches of our own making, so that what comes of them is known
pytestmark = pytest.mark.filterwarnings("ignore:This step is not on a batch")

FALSE_ALARM = 1e-6


def data(size=64, seed=1):
    torch.manual_seed(seed)
    return TensorDataset(torch.randn(size, 4), torch.randint(0, 3, (size,)))


def small(dropout=0.0):
    torch.manual_seed(2)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Dropout(dropout), nn.Linear(8, 3))


def start(*, dataset=None, batch=16, model=None, epochs=2, target=(3.0, 1e-5), lr=0.5, momentum=0.9, **options):
    model = small() if model is None else model
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=momentum)
    loader = DataLoader(data() if dataset is None else dataset, batch_size=batch)
    return sgd.make_private(model, optimizer, loader, target=target, epochs=epochs, **options)


def train(private, epochs, stop=None):
    model, optimizer, loader = private
    for _ in range(epochs):
        for inputs, targets in loader:
            optimizer.zero_grad()
            functional.cross_entropy(model(inputs), targets).backward()
            optimizer.step()
            if stop is not None and optimizer.steps == stop:
                return


def bounded(rule, gradient):
    """Return one example's contribution, by the rule's definition."""
    norm = gradient.norm()
    if isinstance(rule, sgd.AutoS):
        return gradient / (norm + rule.gamma)
    if isinstance(rule, sgd.Psac):
        return rule.l2_clip_norm * gradient / (norm + rule.r / (norm + rule.r))
    if isinstance(rule, sgd.LInf):
        return gradient.clamp(-rule.linf_clip_norm, rule.linf_clip_norm)
    return gradient * min(1.0, rule.l2_clip_norm / float(norm))


@pytest.mark.parametrize(
    "rule",
    [sgd.L2(0.3), sgd.AutoS(), sgd.Psac(0.5), sgd.LInf(0.02), sgd.Quantile(0.4)],
    ids=lambda rule: type(rule).__name__,
)
@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_the_sum_is_that_of_bounded_gradients(rule, reduction):
    dataset = data(12)
    model, optimizer, _ = private = start(dataset=dataset, batch=12, clip=rule, loss_reduction=reduction, rng=1)
    rule = optimizer.clip
    inputs, targets = dataset.tensors
    functional.cross_entropy(model(inputs), targets, reduction=reduction).backward()
    seen = rule.total(optimizer.recorder.parts(), optimizer.scale)
    flat = torch.cat([value.flatten() for layer in seen.values() for value in layer.values()])
    private.optimizer.recorder.remove()
    expected = torch.zeros_like(flat)
    for example, label in zip(inputs, targets, strict=True):
        model.zero_grad()
        functional.cross_entropy(model(example[None]), label[None]).backward()
        gradient = torch.cat([parameter.grad.flatten() for parameter in model.parameters()])
        contribution = bounded(rule, gradient)
        assert float(contribution.norm()) <= rule.bound * (1 + 1e-6)
        expected += contribution
    torch.testing.assert_close(flat, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("rule", [sgd.PerLayer(0.3, shares=(1, 3)), sgd.Curvature(0.3)], ids=["per layer", "curvature"])
def test_layers_are_bounded_on_their_own_and_together(rule):
    dataset = data(12)
    model, optimizer, _ = start(dataset=dataset, batch=12, clip=rule, rng=1)
    rule = optimizer.clip
    inputs, targets = dataset.tensors
    functional.cross_entropy(model(inputs), targets).backward()
    each = rule.each(optimizer.recorder.parts(), optimizer.scale)
    norms = [torch.cat([v.flatten(1) for v in layer.values()], 1).norm(dim=1) for layer in each.values()]
    for norm, threshold in zip(norms, rule.thresholds, strict=True):
        assert float(norm.max()) <= threshold * (1 + 1e-6)
    assert math.hypot(*rule.thresholds) == pytest.approx(rule.bound)
    assert rule.bound == 0.3


def released(perturb, clip, steps=60):
    """Return the noise of several steps in which no example takes part, in units of what was promised."""
    model = nn.Linear(50, 40)
    dataset = TensorDataset(torch.zeros(1000, 50), torch.zeros(1000, 40))
    private = start(dataset=dataset, batch=100, model=model, clip=clip, perturb=perturb, rng=3, lr=0.0, epochs=20)
    draws = []
    for _ in range(steps):
        private.optimizer.zero_grad()
        functional.mse_loss(model(torch.zeros(0, 50)), torch.zeros(0, 40)).backward()
        private.optimizer.step()
        draws.append(torch.cat([parameter.grad.flatten() for parameter in model.parameters()]).numpy())
    return np.concatenate(draws) * 100 / (private.optimizer.budget.multiplier * private.optimizer.clip.bound)


@pytest.mark.parametrize("clip", [sgd.L2(0.7), sgd.AutoS(), sgd.LInf(0.01)], ids=["l2", "auto-s", "linf"])
def test_the_noise_that_is_added_is_the_noise_that_is_accounted_for(clip):
    noise = released("gaussian", clip)
    assert stats.kstest(noise, "norm").pvalue > FALSE_ALARM


def test_noise_that_is_a_little_too_small_would_be_seen():
    assert stats.kstest(0.97 * released("gaussian", sgd.L2(0.7)), "norm").pvalue < FALSE_ALARM


@pytest.mark.long
def test_a_quantile_pays_for_itself():
    model = nn.Linear(50, 40)
    dataset = TensorDataset(torch.zeros(1000, 50), torch.zeros(1000, 40))
    rule = sgd.Quantile(1.0, rate=1.0, share=0.2)
    private = start(dataset=dataset, batch=100, model=model, clip=rule, rng=3, lr=0.0, epochs=100)
    rule = private.optimizer.clip
    gradients, counts = [], []
    for _ in range(400):
        before = rule.l2_clip_norm = 1.0
        private.optimizer.zero_grad()
        functional.mse_loss(model(torch.zeros(0, 50)), torch.zeros(0, 40)).backward()
        private.optimizer.step()
        gradients.append(model.bias.grad.numpy() * 100 / before)
        counts.append(-math.log(rule.l2_clip_norm) * 100 / 0.5)  # of no example: noise, in units of what one changes
    gradient, count = np.std(gradients), np.std(counts)
    together = 1 / math.sqrt(gradient**-2 + count**-2)
    # the relative error of a standard deviation of 400 draws is 3.5 %, here of a fifth of the squared mu
    assert together == pytest.approx(private.optimizer.budget.multiplier, rel=0.04)
    assert abs(together / private.optimizer.budget.multiplier * math.sqrt(0.8) - 1) > 0.04


@pytest.mark.parametrize("share", [0.01, 0.2])
def test_the_count_and_the_sum_share_the_squared_mu_exactly(monkeypatch, share):
    private, seen = start(clip=sgd.Quantile(1.0, share=share), rng=3), {}
    usual = sgd.GaussianPerturbation.release

    def release(self, sums, clip, multiplier, *rest):
        seen["sum"] = multiplier
        return usual(self, sums, clip, multiplier, *rest)

    def count(number, reach, multiplier, rng):
        seen["count"], seen["reach"] = multiplier, reach
        return number

    monkeypatch.setattr(sgd.GaussianPerturbation, "release", release)
    monkeypatch.setattr("noisette.sgd.optimizer.noisy_count", count)
    inputs, targets = next(iter(private.loader))
    functional.cross_entropy(private.model(inputs), targets).backward()
    private.optimizer.step()
    whole = private.optimizer.budget.multiplier**-2
    assert seen["reach"] == 0.5
    assert seen["count"] ** -2 == pytest.approx(share * whole, rel=1e-12)
    assert seen["sum"] ** -2 == pytest.approx((1 - share) * whole, rel=1e-8)  # of which rounding takes a little
    assert seen["sum"] ** -2 < (1 - share) * whole


def test_the_threshold_finds_the_quantile():
    dataset = TensorDataset(torch.linspace(0.1, 2.0, 2000)[:, None], torch.zeros(2000, 1))
    model = nn.Linear(1, 1, bias=False)
    torch.nn.init.constant_(model.weight, 1.0)
    rule = sgd.Quantile(5.0, quantile=0.25, share=0.5)
    private = start(dataset=dataset, batch=500, model=model, clip=rule, rng=4, lr=0.0, epochs=20, target=(50.0, 1e-5))
    rule = private.optimizer.clip
    for _ in range(20):
        for inputs, targets in private.loader:
            private.optimizer.zero_grad()
            ((private.model(inputs) - targets) * inputs.detach() / inputs).mean().backward()
            private.optimizer.step()
    assert rule.l2_clip_norm == pytest.approx(np.quantile(np.linspace(0.1, 2.0, 2000), 0.25), rel=0.05)


@pytest.mark.long
def test_budgets_by_layer_are_as_private_as_one_budget():
    torch.manual_seed(1)
    model = small()
    private = start(model=model, clip=sgd.PerLayer(0.5), perturb=sgd.Layered((3.0, 1.0)), rng=5, lr=0.0, epochs=100)
    draws = {name: [] for name in private.optimizer.recorder.layers}
    for _ in range(300):
        private.optimizer.zero_grad()
        functional.cross_entropy(model(torch.zeros(0, 4)), torch.zeros(0).long()).backward()
        private.optimizer.step()
        for name, _, parameter in private.optimizer.recorder.parameters():
            draws[name].append(parameter.grad.flatten().numpy() * private.loader.expected_batch)
    seen = []
    for threshold, share, values in zip(private.optimizer.clip.thresholds, (0.75, 0.25), draws.values(), strict=True):
        scale = private.optimizer.budget.multiplier * threshold / math.sqrt(share)
        assert stats.kstest(np.concatenate(values) / scale, "norm").pvalue > FALSE_ALARM
        seen.append((threshold / scale) ** 2)
    assert sum(seen) == pytest.approx(private.optimizer.budget.multiplier**-2)
    with pytest.raises(ValueError, match="clip='per-layer'"):
        start(perturb="layered")


def test_the_target_is_met_and_no_step_is_made_beyond_it():
    private = start(epochs=3, rng=1)
    train(private, 3)
    assert private.optimizer.steps == 12
    spent = private.optimizer.guarantee
    assert 2.9 < spent.epsilon <= 3.0
    assert (spent.delta, spent.unit, spent.model, spent.relation) == (1e-5, "example", "central", "add-remove")
    independent = sampled_gaussian(private.optimizer.budget.multiplier, 1e-5, releases=12, sampling_prob=0.25)
    assert spent.epsilon == independent.epsilon
    before = [parameter.clone() for parameter in private.model.parameters()]
    with pytest.raises(sgd.BudgetSpent, match="All 12 steps"):
        train(private, 1)
    assert all(torch.equal(old, new) for old, new in zip(before, private.model.parameters(), strict=True))


def by_renyi_divergences(budget, steps):
    """Return the epsilon of steps by dp-accounting's Renyi divergences."""
    noise = dp_accounting.GaussianDpEvent(budget.multiplier * budget.truth)
    accountant = RdpAccountant()
    accountant.compose(dp_accounting.PoissonSampledDpEvent(budget.sampling_prob, noise), steps)
    return accountant.get_epsilon(budget.delta)


def test_renyi_divergences_agree_and_are_looser():
    budget = sgd.Budget.for_target(3.0, 1e-5, steps=500, sampling_prob=0.02)
    assert budget.spent(500).epsilon < by_renyi_divergences(budget, 500) < 1.25 * budget.spent(500).epsilon
    assert budget.spent(0).epsilon == 0


def test_a_known_run_has_its_known_budget():
    """Abadi et al. 2016, section 3.2: q = 0.01, sigma = 4, 10,000 steps give (1.26, 1e-5) by moments."""
    budget = sgd.Budget(4.0, 0.01, 1e-5)
    assert 0.9 < budget.spent(10_000).epsilon < by_renyi_divergences(budget, 10_000) < 1.26


@pytest.mark.parametrize("stop", [3, 4, 6])
@pytest.mark.parametrize("clip", [sgd.L2, sgd.Quantile, sgd.Curvature], ids=["l2", "quantile", "curvature"])
def test_a_run_that_was_stopped_goes_on_bit_for_bit(stop, clip):
    torch.manual_seed(9)
    whole = start(clip=clip(), rng=6, model=small(0.3), physical_batch=7)
    train(whole, 2)

    torch.manual_seed(9)
    first = start(clip=clip(), rng=6, model=small(0.3), physical_batch=7)
    train(first, 2, stop=stop)
    file = io.BytesIO()
    torch.save({"model": first.model.state_dict(), "optimizer": first.optimizer.state_dict()}, file)
    torch.manual_seed(12345)
    second = start(clip=clip(), rng=8, model=small(0.3), physical_batch=7)
    saved = torch.load(io.BytesIO(file.getvalue()), weights_only=True)
    second.model.load_state_dict(saved["model"])
    second.optimizer.load_state_dict(saved["optimizer"])
    train(second, 2 - stop // 4)
    assert second.optimizer.steps == whole.optimizer.steps == 8
    for mine, theirs in zip(second.model.parameters(), whole.model.parameters(), strict=True):
        assert torch.equal(mine, theirs)


def test_secret_noise_is_not_saved_and_the_budget_is():
    private = start()
    train(private, 1)
    saved = private.optimizer.state_dict()
    assert "generators" not in saved["private"]
    other = start()
    other.optimizer.load_state_dict(saved)
    assert other.optimizer.steps == 4
    assert other.optimizer.guarantee == private.optimizer.guarantee
    with pytest.raises(sgd.BudgetSpent):
        train(other, 2)


def test_a_saved_run_does_not_fit_other_data():
    saved = start().optimizer.state_dict()
    with pytest.raises(ValueError, match=r"sampling_prob=0.25, this one has 0.125"):
        start(batch=8).optimizer.load_state_dict(saved)


def test_a_saved_run_does_not_go_on_with_noise_that_holds_less():
    saved = start().optimizer.state_dict()
    with pytest.warns(PrivacyWarning, match="does not hold"):
        published = start(perturb=sgd.Geo(0.1, "gradient", as_published=True))
    with pytest.raises(ValueError, match=r"truth=1.0, this one has 0.06.*Build it with the same .* perturbation"):
        published.optimizer.load_state_dict(saved)


OPTIMISERS = [torch.optim.Adam, torch.optim.AdamW, torch.optim.RMSprop, torch.optim.SGD]
OPTIMISERS.append(partial(torch.optim.LBFGS, max_iter=1))


@pytest.mark.parametrize("optimizer", OPTIMISERS)
def test_any_optimiser_and_scheduler_work(optimizer):
    model = small()
    inner = optimizer(model.parameters(), lr=0.01)
    private = sgd.make_private(model, inner, DataLoader(data(), batch_size=16), target=(3.0, 1e-5), epochs=1, rng=1)
    schedule = torch.optim.lr_scheduler.StepLR(private.optimizer, step_size=1, gamma=0.5)
    before = [parameter.clone() for parameter in model.parameters()]
    train(private, 1)
    schedule.step()
    assert inner.param_groups[0]["lr"] == pytest.approx(0.005)
    assert not any(torch.equal(old, new) for old, new in zip(before, model.parameters(), strict=True))


def test_an_optimiser_that_takes_several_gradients_a_step_is_refused():
    model, loader = small(), DataLoader(data(), batch_size=16)
    for options in ({}, {"max_iter": 1, "line_search_fn": "strong_wolfe"}):
        inner = torch.optim.LBFGS(model.parameters(), **options)
        with pytest.raises(ValueError, match=r"LBFGS with max_iter=\d+ .*Build it with max_iter=1"):
            sgd.make_private(model, inner, loader, target=(3.0, 1e-5), epochs=1)


def test_data_that_only_comes_in_a_row_is_refused():
    class Stream(IterableDataset):
        def __iter__(self):
            return iter(data())

    model = small()
    inner = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(TypeError, match=r"a data set with a length.* Give list\(dataset\)"):
        sgd.make_private(model, inner, DataLoader(Stream(), batch_size=16), target=(3.0, 1e-5), epochs=1)
    listed = DataLoader(list(Stream()), batch_size=16)  # the remedy
    assert sgd.make_private(model, inner, listed, target=(3.0, 1e-5), epochs=1).loader.size == len(data())


def test_pieces_of_a_batch_make_the_same_step():
    runs = [start(rng=7, physical_batch=size, momentum=0.0) for size in (1000, 5)]
    for run in runs:
        train(run, 2)
    for mine, theirs in zip(runs[0].model.parameters(), runs[1].model.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("chance", [0.1, 1 / 3, 0.25, 2.0**-60])
def test_an_example_is_drawn_with_no_more_than_its_chance(chance):
    """A generator has 2^53 numbers; of them k are below k 2^-53, so that k is at most the chance times 2^53."""
    below = int(Fraction(chance) * 2**53)
    drawn = [0.0, max(below - 1, 0) / 2**53, below / 2**53, (below + 1) / 2**53]
    coins = SimpleNamespace(random=lambda size: np.asarray(drawn[:size]))
    loader = sgd.PoissonLoader(TensorDataset(torch.arange(4)), chance, steps=1, rng=coins)
    assert np.concatenate(loader._pieces()).tolist() == ([0, 1] if below else [])


def test_a_half_summed_batch_is_neither_saved_nor_counted():
    private = start(batch=60, physical_batch=10, rng=1)
    inputs, targets = next(iter(private.loader))
    functional.cross_entropy(private.model(inputs), targets).backward()
    private.optimizer.step()
    assert not private.optimizer.stepped
    with pytest.raises(RuntimeError, match="half summed"):
        private.optimizer.state_dict()
    steps = private.optimizer.steps
    with pytest.raises(RuntimeError, match="half summed"):
        private.optimizer.release_counts(lambda: np.ones(3), np.ones(1))
    assert private.optimizer.steps == steps


@pytest.mark.parametrize(
    ("clip", "perturb"),
    [
        *(
            (clip, perturb)
            for clip in sgd.CLIPS
            for perturb in ("gaussian", "tensor", "geodp", sgd.Geo(0.5, "gradient"))
        ),
        ("per-layer", "layered"),
        ("curvature", "layered"),
    ],
    ids=str,
)
def test_gradients_that_are_zero_are_no_trouble(clip, perturb):
    dataset = TensorDataset(torch.zeros(64, 4), torch.zeros(64, 3))
    model = small()
    torch.nn.init.zeros_(model[3].weight)
    torch.nn.init.zeros_(model[3].bias)
    private = start(dataset=dataset, model=model, clip=clip, perturb=perturb, rng=1)
    inputs, targets = next(iter(private.loader))
    functional.mse_loss(model(inputs), targets).backward()
    private.optimizer.step()
    assert all(bool(torch.isfinite(parameter).all()) for parameter in model.parameters())


class Idle(nn.Module):
    def __init__(self):
        super().__init__()
        self.used, self.idle = nn.Linear(4, 3), nn.Linear(4, 3)

    def forward(self, x):
        return self.used(x)


def test_a_layer_that_is_not_used_is_told():
    private = start(model=Idle(), rng=1)
    with pytest.raises(RuntimeError, match=r"Layer 'idle' got no gradient.*requires_grad_\(False\)"):
        train(private, 1)


@pytest.mark.parametrize("epsilon", [1e-6, 0.01, 100.0, 1e3])
def test_any_target_is_met_and_what_is_spent_says_so(epsilon):
    private = start(target=(epsilon, 1e-5), epochs=3)
    assert private.optimizer.budget.spent(12).epsilon <= epsilon * (1 + 1e-12)
    assert private.guarantee.epsilon == epsilon


class Mixed(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, x):
        return self.layer(x - x.mean(0))


def make(model=None, loader=None, optimizer=None, **options):
    model = small() if model is None else model
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1) if optimizer is None else optimizer
    loader = DataLoader(data(), batch_size=16) if loader is None else loader
    return sgd.make_private(model, optimizer, loader, **{"target": (1.0, 1e-5), "epochs": 1} | options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"model": Mixed()}, "mixes the examples of a batch"),
        ({"model": nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3))}, "without_batch_norm"),
        ({"loader": DataLoader(data(10), batch_size=16)}, "batches of 16 from 10 examples"),
        ({"target": (1.0, 0.0)}, r"delta=0\.0 > 0"),
        ({"target": (0.0, 1e-5)}, r"epsilon=0\.0 > 0"),
        ({"target": (math.nan, 1e-5)}, "epsilon=nan > 0 and finite"),
        ({"target": (1.0, 1.5)}, r"delta=1\.5 in"),
        ({"target": 3.0}, r"target=3\.0 to be a pair \(epsilon, delta\)"),
        ({"epochs": 0}, "epochs=0"),
        ({"clip": "l3"}, "Unknown clip='l3'; expected one of l2, linf"),
        ({"clip": -1.0}, "l2_clip_norm=-1.0 > 0"),
        ({"perturb": "uniform"}, "Unknown perturb='uniform'"),
        ({"optimizer": torch.optim.SGD([nn.Parameter(torch.zeros(2))], lr=0.1)}, "not the model's"),
        ({"loss_reduction": "none"}, "loss_reduction='none'"),
        ({"clip": sgd.PerLayer(1.0, shares=(1.0,))}, "Expected 2 shares"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_cannot_be_private_is_refused_and_the_model_left_alone(options, message):
    model = options.get("model") or small()
    with pytest.raises(ValueError, match=message):
        make(**options | {"model": model})
    assert all("forward" not in layer.__dict__ for layer in model.modules())


def test_samples_are_poisson():
    rng = np.random.default_rng(1)
    loader = sgd.PoissonLoader(TensorDataset(torch.arange(200)), 0.05, steps=4000, rng=rng)
    sizes, seen = [], np.zeros(200)
    for (batch,) in loader:
        sizes.append(len(batch))
        seen[batch.numpy()] += 1
    counts = np.bincount(sizes, minlength=31)
    chances = stats.binom.pmf(np.arange(len(counts)), 200, 0.05) * 4000
    tail = chances < 5
    observed = np.append(counts[~tail], counts[tail].sum())
    expected = np.append(chances[~tail], 4000 - chances[~tail].sum())
    assert stats.chisquare(observed, expected).pvalue > FALSE_ALARM
    assert stats.kstest((seen - 200) / math.sqrt(4000 * 0.05 * 0.95), "norm").pvalue > FALSE_ALARM
    assert len(loader) == 4000


@pytest.mark.parametrize(("batch", "physical"), [(10, 1024), (10, 3), (10, 10), (150, 64), (200, 64), (1, 1)])
def test_an_epoch_has_no_more_pieces_than_its_length(batch, physical):
    """Trainers end an epoch after `len` pieces: batches behind them would never be trained on."""
    steps = 200 // batch
    loader = sgd.PoissonLoader(
        TensorDataset(torch.arange(200)),
        batch / 200,
        steps=steps,
        physical_batch=physical,
        rng=np.random.default_rng(1),
    )
    pieces = [len(list(loader)) for _ in range(20)]
    assert max(pieces) <= len(loader) <= steps + max(pieces) + 200 // physical
    if physical == 1024 or batch == 200:
        assert set(pieces) == {len(loader)}  # nothing is left to chance
    assert steps <= len(loader)


def test_an_empty_batch_is_a_step_of_pure_noise():
    dataset = data(4)
    private = start(dataset=dataset, batch=1, rng=3, epochs=5)
    sizes = []
    for inputs, targets in private.loader:
        sizes.append(len(inputs))
        private.optimizer.zero_grad()
        functional.cross_entropy(private.model(inputs), targets).backward()
        private.optimizer.step()
    assert 0 in sizes
    assert private.optimizer.steps == len(sizes) == 4
    assert all(bool(torch.isfinite(parameter).all()) for parameter in private.model.parameters())


def test_any_data_set_with_a_length_can_be_sampled():
    items = [{"x": torch.full((3,), float(i)), "y": i} for i in range(20)]
    loader = sgd.PoissonLoader(items, 0.01, steps=40, rng=np.random.default_rng(2))
    sizes = {batch["x"].shape for batch in loader}
    assert (0, 3) in sizes
    with pytest.raises(TypeError, match="with a length"):
        sgd.PoissonLoader(iter(items), 0.1, steps=1, rng=np.random.default_rng(2))
    with pytest.raises(ValueError, match="it is empty"):
        sgd.PoissonLoader([], 0.1, steps=1, rng=np.random.default_rng(2))


@pytest.mark.filterwarnings("error")
def test_a_loop_that_goes_on_with_the_old_loader_is_warned_at_every_step():
    """Pieces of a batch and batches that were drawn ahead are the private loader's own."""
    private = start(physical_batch=5)
    train(private, 1)
    ahead = start()
    for inputs, targets in list(ahead.loader):
        ahead.optimizer.zero_grad()
        functional.cross_entropy(ahead.model(inputs), targets).backward()
        ahead.optimizer.step()
    old = DataLoader(data(), batch_size=16)
    private = start()
    with pytest.warns(PrivacyWarning, match="not on a batch of the private loader") as seen:
        train((private.model, private.optimizer, old), 1)
    assert len(seen) == private.optimizer.steps == 4


def released_of(monkeypatch, together, inputs, epsilon):
    """Return the model's private gradients of one step, with sums given noise ``together`` entries at a time."""
    monkeypatch.setattr("noisette.sgd.optimizer._TOGETHER", together)
    targets = torch.arange(len(inputs)) % 3
    model, optimizer, loader = start(
        dataset=TensorDataset(inputs, targets), batch=len(inputs), model=small(), target=(epsilon, 1e-5), rng=5
    )
    ((inputs, targets),) = list(loader)
    functional.cross_entropy(model(inputs), targets).backward()
    optimizer.step()
    return [parameter.grad for parameter in model.parameters()], optimizer


def test_sums_that_get_noise_layer_by_layer_are_those_of_the_whole_model(monkeypatch):
    torch.manual_seed(3)
    inputs = torch.randn(12, 4)
    (apart, one), (whole, other) = (released_of(monkeypatch, together, inputs, 1e7) for together in (1, 1 << 18))
    assert one.budget.multiplier == other.budget.multiplier < 1e-3  # so that the sums show
    for left, right in zip(apart, whole, strict=True):
        assert float(right.abs().max()) > 1e-3
        torch.testing.assert_close(left, right, rtol=0, atol=20 * one.budget.multiplier / 12)


def test_every_layer_has_noise_of_its_own_where_it_is_given_layer_by_layer(monkeypatch):
    model_noise, optimizer = released_of(monkeypatch, 1, torch.zeros(12, 4), 1.0)
    first = model_noise[0]  # no input, so no gradient but noise
    size = optimizer.budget.multiplier / 12
    squares = float(first.double().square().sum()) / size**2
    assert FALSE_ALARM < stats.chi2(first.numel()).cdf(squares) < 1 - FALSE_ALARM
    assert len({float(value) for grad in model_noise for value in grad.flatten()}) == sum(
        g.numel() for g in model_noise
    )


alive = weakref.WeakSet()


class Counted(nn.Linear):
    """A layer whose copies are known as long as they live."""

    def __new__(cls, *_, **__):
        made = super().__new__(cls)
        alive.add(made)
        return made


def test_copies_that_are_looked_at_are_let_go():
    """Their memory is free when the look is over, without a run of the garbage collector, which may be far away."""
    alive.clear()
    gc.collect()
    gc.disable()
    try:
        model = nn.Sequential(Counted(4, 8), nn.Tanh(), Counted(8, 3))
        private = start(model=model)
        assert len(alive) == 2
        train(private, 1)
        assert private.optimizer.steps > 3  # three batches were looked at
        assert len(alive) == 2
    finally:
        gc.enable()


def test_a_recorder_that_is_removed_is_let_go_in_the_middle_of_a_batch():
    model = small()
    recorder = Recorder(model)
    known = weakref.ref(recorder)
    model(torch.randn(3, 4)).sum().backward()
    recorder.remove()
    del recorder
    gc.collect()  # which sees no cycle that leads through the graph of a backward pass
    assert known() is None
