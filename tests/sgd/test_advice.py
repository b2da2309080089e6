"""A norm to clip to: near the quantile that was asked for, as private as a step, and paid for as one."""

import io
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

from noisette import sgd
from noisette.sgd.advice import _EDGES

FALSE_ALARM = 1e-6
DEVIATIONS = 4.9  # a normal variable is farther out with probability 1e-6
NORMS = np.exp(np.linspace(math.log(0.02), math.log(30), 4000))


def answer(made, _):
    """A loss whose gradient is the input."""
    return made.mean()


def start(*, batch=1000, clip="l2", norms=NORMS, advice_steps=1, rng=1, target=(3.0, 1e-5), epochs=2, **options):
    directions = functional.normalize(torch.randn(len(norms), 4, generator=torch.Generator().manual_seed(1)))
    dataset = TensorDataset(directions * torch.tensor(norms)[:, None].float(), torch.zeros(len(norms)))
    torch.manual_seed(1)
    model = nn.Linear(4, 1, bias=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = DataLoader(dataset, batch_size=batch)
    options = {"target": target, "epochs": epochs, "advice_steps": advice_steps} | options
    return sgd.make_private(model, optimizer, loader, clip=clip, rng=rng, **options)


def train(private, epochs):
    for _ in range(epochs):
        for inputs, _ in private.loader:
            private.optimizer.zero_grad()
            answer(private.model(inputs), None).backward()
            private.optimizer.step()


@pytest.mark.long
@pytest.mark.parametrize("quantile", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("rounds", [1, 3])
def test_the_norm_is_near_the_quantile(quantile, rounds):
    """Errors: that of the noise, which is stated, and that of a sample of a quarter of the examples."""
    private = start(advice_steps=rounds, physical_batch=300)
    advice = sgd.advise_clip(private, answer, quantile=quantile, rounds=rounds)
    below = float((advice.l2_clip_norm >= NORMS).mean())
    sampled = math.sqrt(quantile * (1 - quantile) / (1000 * rounds))
    assert abs(below - quantile) < DEVIATIONS * math.hypot(advice.rank_error, sampled)
    assert advice.rank_error < 0.02
    assert private.optimizer.clip.bound == advice.l2_clip_norm == advice.quantiles[quantile]
    assert list(advice.quantiles.values()) == sorted(advice.quantiles.values())


@pytest.mark.long
def test_the_error_of_the_rank_is_as_stated():
    ranks = []
    for seed in range(60):
        advice = sgd.advise_clip(start(batch=4000, rng=seed, target=(0.5, 1e-5)), answer)  # all: noise alone
        ranks.append(float((advice.l2_clip_norm >= NORMS).mean()) - 0.5)
    # an isotonic fit lowers the noise a little; the chi-square interval is for no fit
    low, high = (math.sqrt(stats.chi2.ppf(p, 60) / 60) for p in (FALSE_ALARM / 2, 1 - FALSE_ALARM / 2))
    assert 0.5 * low * advice.rank_error < np.std(ranks) < high * advice.rank_error


def test_counts_have_the_noise_of_a_step():
    private = start(advice_steps=300, epochs=1)
    draws = [private.optimizer.release_counts(lambda: np.zeros(0), _EDGES) for _ in range(300)]
    noise = np.concatenate(draws) / private.optimizer.budget.multiplier
    assert stats.kstest(noise, "norm").pvalue > FALSE_ALARM
    assert stats.kstest(0.9 * noise, "norm").pvalue < FALSE_ALARM


def test_counts_are_divided_by_noise_that_makes_up_for_their_lattice(monkeypatch):
    private, seen = start(advice_steps=10), []
    monkeypatch.setattr("noisette.sgd.optimizer.add_exactly", lambda white, rng: seen.append(white.max()))
    private.optimizer.budget = replace(private.optimizer.budget, multiplier=2.0**15)  # so that a step of it shows
    private.optimizer.release_counts(lambda: np.full(6, 0.3), _EDGES)
    lattice = 2.0**15 * math.sqrt(len(_EDGES) + 1) / 2**36
    assert 6 / seen[0] == pytest.approx(2.0**15 * (1 + 1 / 1048576) / (1 - lattice), rel=1e-12)


def test_an_example_adds_one_to_one_count():
    private = start(advice_steps=10)
    drawn = {"integers": lambda self, low, high, size, dtype: np.zeros(size, dtype)}  # the word zero is the noise zero
    private.optimizer._rng = type("Silent", (), drawn | {"bit_generator": None})()
    without = private.optimizer.release_counts(lambda: np.array([0.5, 3.0]), _EDGES)
    for norm in (0.0, 1e-9, 1.0, 1e9):
        added = private.optimizer.release_counts(lambda norm=norm: np.array([0.5, norm, 3.0]), _EDGES) - without
        assert sorted(added)[-1] == pytest.approx(1, abs=2.0**-20 * private.optimizer.budget.multiplier)
        assert added.sum() == sorted(added)[-1]


@pytest.mark.long
def test_advice_is_paid_for_and_all_epochs_can_be_made():
    private = start(advice_steps=2)
    sgd.advise_clip(private, answer, rounds=2)
    assert private.optimizer.steps == 2
    assert private.optimizer.guarantee == private.optimizer.budget.spent(2)
    train(private, 2)
    assert private.optimizer.steps == 10
    assert 2.9 < private.optimizer.guarantee.epsilon <= 3.0
    assert private.optimizer.budget.multiplier > start(advice_steps=0).optimizer.budget.multiplier
    with pytest.raises(sgd.BudgetSpent):
        sgd.advise_clip(private, answer)


def test_advice_that_was_not_planned_takes_a_step_of_training():
    private = start(advice_steps=0)
    sgd.advise_clip(private, answer)
    with pytest.raises(sgd.BudgetSpent, match="All 8 steps"):
        train(private, 2)


def test_the_norm_is_saved_with_the_run():
    whole = start()
    sgd.advise_clip(whole, answer)
    train(whole, 2)
    first = start()
    advice = sgd.advise_clip(first, answer)
    train(first, 1)
    file = io.BytesIO()
    torch.save({"model": first.model.state_dict(), "optimizer": first.optimizer.state_dict()}, file)
    second = start(rng=5)
    saved = torch.load(io.BytesIO(file.getvalue()), weights_only=True)
    second.model.load_state_dict(saved["model"])
    second.optimizer.load_state_dict(saved["optimizer"])
    train(second, 1)
    assert second.optimizer.clip.bound == advice.l2_clip_norm
    assert second.optimizer.steps == whole.optimizer.steps == 9
    assert torch.equal(second.model.weight, whole.model.weight)


def test_the_public_edges_are_the_documented_ones():
    """Two to a doubling, from 2^-14 to 2^14: the doctest's norm of 1 is an edge, and a clip is off by 41 % at most."""
    np.testing.assert_allclose(_EDGES, [math.sqrt(2) ** k for k in range(-28, 29)], rtol=1e-12)


@pytest.mark.parametrize(("norm", "end"), [(1e-7, _EDGES[0]), (1e7, _EDGES[-1])], ids=["tiny", "huge"])
def test_norms_beyond_the_public_edges_give_an_edge(norm, end):
    advice = sgd.advise_clip(start(norms=np.full(4000, norm)), answer)
    assert advice.l2_clip_norm == pytest.approx(end, rel=0.5)


def test_the_model_is_left_in_its_mode_and_without_gradients():
    private = start()
    private.model.eval()
    sgd.advise_clip(private, answer)
    assert not private.model.training
    assert private.optimizer.recorder.examples == 0
    assert private.model.weight.grad is None


@pytest.mark.parametrize(
    ("options", "asked", "message"),
    [
        ({"clip": "auto-s"}, {}, "The rule AutoS has no norm to advise on"),
        ({}, {"quantile": 1.0}, "quantile=1.0 between 0 and 1"),
        ({}, {"rounds": 0}, "rounds=0"),
        ({"advice_steps": -1}, {}, "advice_steps=-1"),
    ],
    ids=["no norm", "quantile", "rounds", "steps"],
)
def test_bad_options_are_named(options, asked, message):
    with pytest.raises(ValueError, match=message):
        sgd.advise_clip(start(**options), answer, **asked)


def test_a_gradient_that_is_not_finite_counts_as_a_long_one():
    norms = NORMS.copy()
    norms[7] = math.inf
    advice = sgd.advise_clip(start(norms=norms, batch=4000), answer)
    assert math.isfinite(advice.l2_clip_norm)


@pytest.mark.parametrize(
    ("loss", "refusal"),
    [
        (lambda made, _: made.sum() / (made.detach() > 0).sum(), "that other examples may decide"),
        (lambda made, _: (made - made.mean(0)).square().mean(), "no gradient is one example's own"),
    ],
)
def test_losses_that_mix_examples_are_refused_as_in_a_step(loss, refusal):
    private = start()
    with pytest.raises(ValueError, match=refusal):
        sgd.advise_clip(private, loss)
    assert private.optimizer.steps == 0


def test_a_loss_that_is_divided_otherwise_than_before_is_refused():
    private = start(advice_steps=2)
    sgd.advise_clip(private, answer)
    with pytest.raises(ValueError, match="not divided by the same as before"):
        sgd.advise_clip(private, lambda made, _: made.sum())
    assert private.optimizer.steps == 1


def test_rows_that_are_not_the_sample_are_refused():
    """A model that is called with half of the sample would let one example stand for two."""
    private = start()
    whole = private.model

    class Half(nn.Module):
        def forward(self, inputs):
            return whole(inputs[: len(inputs) // 2])

    with pytest.raises(RuntimeError, match="another number of rows"):
        sgd.advise_clip(replace(private, model=Half()), answer)
    assert private.optimizer.steps == 0
