"""Attack: get a gradient that no noise protects into the model, or a budget that is not the true one.

Each attempt is what somebody does without bad intent: unfreeze a layer for a second phase, go on with a saved run, keep
the old loader, start the script on two machines. It must be right, or refused with what to do instead.
"""

import copy
import io
import os
import pickle
import subprocess
import sys
import textwrap
import warnings

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import (
    BatchSampler,
    ConcatDataset,
    DataLoader,
    DistributedSampler,
    RandomSampler,
    SequentialSampler,
    Subset,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
)

import noisette as nz
from noisette import sgd


def data(size=40):
    torch.manual_seed(1)
    return TensorDataset(torch.randn(size, 4), torch.randn(size, 1))


def small():
    torch.manual_seed(2)
    return nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 1))


def start(model=None, loader=None, inner=None, **options):
    model = small() if model is None else model
    inner = torch.optim.SGD(model.parameters(), lr=0.1) if inner is None else inner
    loader = DataLoader(data(), batch_size=10) if loader is None else loader
    return sgd.make_private(model, inner, loader, **{"target": (2.0, 1e-5), "epochs": 2} | options)


def step(private, batch=None, loader=None):
    inputs, targets = next(iter(loader or private.loader)) if batch is None else batch
    private.optimizer.zero_grad()
    functional.mse_loss(private.model(inputs), targets).backward()
    private.optimizer.step()


def unmoved(model, job, message, error=RuntimeError):
    """Assert that a job is refused and that no weight has moved."""
    before = copy.deepcopy({name: value.detach().clone() for name, value in model.named_parameters()})
    with pytest.raises(error, match=message):
        job()
    assert all(torch.equal(before[name], value) for name, value in model.named_parameters() if name in before)


def frozen_first():
    model = small()
    model[0].requires_grad_(False)
    return model


def test_a_layer_is_unfrozen_for_a_second_phase():
    private = start(frozen_first())
    step(private)
    private.model[0].requires_grad_(True)
    unmoved(private.model, lambda: step(private), "unfrozen or added after make_private.*call make_private")
    private.model[0].requires_grad_(False)
    private.model[0].weight.grad = private.model[0].bias.grad = None
    step(private)
    assert private.optimizer.steps == 2


def exchange_a_layer(model):
    model[2] = nn.Linear(*model[2].weight.shape[::-1])


def exchange_a_parameter(model):
    model[2].weight = nn.Parameter(torch.zeros_like(model[2].weight))


def load_new_parameters(model):
    model.load_state_dict({name: value.clone() for name, value in model.state_dict().items()}, assign=True)


def parametrise(model):
    nn.utils.parametrizations.weight_norm(model[2])


@pytest.mark.parametrize("change", [exchange_a_layer, exchange_a_parameter, load_new_parameters, parametrise])
def test_what_is_trained_is_exchanged(change):
    """The run went on, spent its budget, and moved parameters that the model had no more."""
    private = start()
    step(private)
    change(private.model)
    unmoved(private.model, lambda: step(private), "something else in place of")
    assert private.optimizer.steps == 1


def test_a_group_of_parameters_is_added():
    private = start()
    head = nn.Linear(1, 1)
    with pytest.raises(ValueError, match="trained when make_private was called"):
        private.optimizer.add_param_group({"params": head.parameters(), "lr": 0.1})
    with pytest.raises(ValueError, match="trained when make_private was called"):
        private.optimizer.add_param_group({"params": head.weight})
    assert len(private.optimizer.param_groups) == 1
    model = small()
    partly = start(model, inner=torch.optim.SGD(model[0].parameters(), lr=0.1))
    with pytest.raises(ValueError, match="trained when make_private was called"):  # one of two is enough
        partly.optimizer.add_param_group({"params": [model[2].weight, head.weight]})
    assert len(partly.optimizer.param_groups) == 1


def test_a_group_of_parameters_is_added_behind_the_back():
    private = start()
    head = nn.Linear(1, 1)
    private.optimizer.inner.add_param_group({"params": head.parameters()})
    unmoved(private.model, lambda: step(private), "unfrozen or added")
    other = start()
    other.optimizer.param_groups[0]["params"].append(head.weight)
    unmoved(other.model, lambda: step(other), "unfrozen or added")


def test_a_gradient_is_set_by_hand():
    private = start(frozen_first())
    private.model[0].weight.grad = torch.ones(3, 4)
    inputs, targets = next(iter(private.loader))
    functional.mse_loss(private.model(inputs), targets).backward()
    unmoved(private.model, private.optimizer.step, "unfrozen or added")


def test_the_old_optimiser_is_stepped():
    """It would apply whatever lies in .grad, as a gradient that somebody has added to the private one."""
    model = small()
    inner = torch.optim.SGD(model.parameters(), lr=0.1)
    private = start(model, inner=inner)
    step(private)
    model[0].weight.grad = torch.ones(3, 4)
    unmoved(model, inner.step, "belongs to a private run")
    step(private)


def test_groups_of_what_is_recorded_may_be_added_and_optimisers_reused():
    model = small()
    inner = torch.optim.SGD(model[0].parameters(), lr=0.1)
    private = start(model, inner=inner)
    private.optimizer.add_param_group({"params": model[2].parameters(), "lr": 0.01})
    before = model[2].weight.detach().clone()
    step(private)
    assert not torch.equal(before, model[2].weight)
    private.optimizer.recorder.remove()
    again = start(model, inner=inner)
    step(again)
    assert again.optimizer.steps == 1


def saved(private):
    """Return a state as it comes back from a file."""
    file = io.BytesIO()
    torch.save(private.optimizer.state_dict(), file)
    return torch.load(io.BytesIO(file.getvalue()), weights_only=True)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"target": (50.0, 1e-5)}, "multiplier"),
        ({"epochs": 3}, "multiplier"),
        ({"clip": 5.0}, r"clip='L2\(l2_clip_norm=1.0\)', this one has 'L2\(l2_clip_norm=5.0\)'"),
        ({"clip": "auto-s"}, "AutoS"),
        ({"clip": sgd.Psac(1.0, r=0.2)}, "Psac"),
        ({"perturb": "geodp"}, "Geo"),
        ({"perturb": sgd.TensorPerturbation({"0.bias": (np.ones(3),)})}, "TensorPerturbation"),
        ({"loss_reduction": "sum"}, "loss_reduction='mean'"),
        ({"loader": DataLoader(data(20), batch_size=5)}, "examples=40"),
        ({"loader": DataLoader(data(), batch_size=20)}, "sampling_prob=0.25"),
        ({"target": (2.0, 1e-6)}, "delta=1e-05"),
    ],
    ids=[
        *("epsilon", "epochs", "norm", "rule", "setting of a rule", "noise", "covariances", "loss", "examples"),
        *("batch", "delta"),
    ],
)
def test_a_saved_run_goes_on_under_other_terms(options, message):
    private = start()
    step(private)
    state = saved(private)
    other = start(**options)
    with pytest.raises(ValueError, match=f"(?s){message}.*Build it with the same"):
        other.optimizer.load_state_dict(state)
    assert other.optimizer.steps == 0


def test_a_spent_run_is_stated_under_a_small_epsilon():
    """At a target of 50 a run spends most of it; under a target of 1 it can neither go on nor be stated."""
    rich = start(target=(50.0, 1e-5), epochs=1)
    for _ in range(4):
        step(rich)
    poor = start(target=(1.0, 1e-5), epochs=1)
    with pytest.raises(ValueError, match="Build it with the same"):
        poor.optimizer.load_state_dict(saved(rich))
    same = start(target=(50.0, 1e-5), epochs=1)
    same.optimizer.load_state_dict(saved(rich))
    assert 1 < same.optimizer.guarantee.epsilon <= same.guarantee.epsilon == 50
    with pytest.raises(sgd.BudgetSpent):
        step(same)


def test_an_old_state_is_loaded_to_forget_what_was_spent():
    private = start()
    early = saved(private)
    for _ in range(3):
        step(private)
    private.optimizer.load_state_dict(early)
    assert private.optimizer.steps == 3
    step(private)
    assert private.optimizer.steps == 4


def test_two_runs_go_on_from_one_and_meet_again():
    first = start()
    step(first)
    second, third = start(), start()
    for other, more in ((second, 2), (third, 3)):
        other.optimizer.load_state_dict(saved(first))
        for _ in range(more):
            step(other)
        assert other.optimizer.steps == 1 + more
    second.optimizer.load_state_dict(saved(third))
    assert second.optimizer.steps == 6
    second.optimizer.load_state_dict(saved(third))
    assert second.optimizer.steps == 6


def test_the_state_of_the_inner_optimiser_alone_is_loaded():
    private = start()
    step(private)
    inner = private.optimizer.inner.state_dict()
    with pytest.raises(ValueError, match="says what was spent"):
        private.optimizer.load_state_dict(inner)
    private.optimizer.inner.load_state_dict(inner)
    assert private.optimizer.steps == 1


@pytest.mark.parametrize("how", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_copy_spends_the_budget_a_second_time(how):
    private = start()
    for made in (private.optimizer, private):
        if made is private and how is copy.copy:
            continue  # shares its optimiser, and so its budget
        with pytest.raises(Exception, match=r"budget would be spent twice|pickle|deepcopy") as refused:
            how(made)
        assert made is private or "budget would be spent twice" in str(refused.value)


SPREAD = textwrap.dedent(
    """
    import os, sys
    import torch
    from torch import nn
    from torch.utils.data import DataLoader, TensorDataset
    from noisette import sgd

    torch.set_num_threads(1)
    loader = DataLoader(TensorDataset(torch.randn(40, 4), torch.randn(40, 1)), batch_size=10)

    def private(model):
        inner = torch.optim.SGD(model.parameters(), lr=0.1)
        return sgd.make_private(model, inner, loader, target=(2.0, 1e-5), epochs=2)

    def refused(job):
        try:
            job()
        except (RuntimeError, ValueError) as error:
            return str(error)
        return "made"

    model, optimizer, batches = private(nn.Linear(4, 1))
    rank = 0 if os.fork() else 1
    torch.distributed.init_process_group("gloo", init_method=f"file://{sys.argv[1]}", rank=rank, world_size=2)
    inputs, targets = next(iter(batches))
    nn.functional.mse_loss(model(inputs), targets).backward()
    told = [refused(optimizer.step)]
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()
    if rank == 0:
        os.wait()
        for line in told:
            print(line)
    """
)


@pytest.mark.long
def test_a_run_of_one_process_goes_on_in_two(tmp_path):
    """Each would draw its own samples and state the whole budget. `tests/sgd/test_processes.py` has runs of two."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", SPREAD, str(tmp_path / "meeting")],
        capture_output=True,
        text=True,
        timeout=600,
        check=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    told = done.stdout.splitlines()
    assert len(told) == 1
    assert told[0].startswith("The run was made private in process 0 of 1, and this is process 0 of 2")


def test_a_model_comes_wrapped_for_several_processors():
    with pytest.raises(ValueError, match=r"got DataParallel: give model\.module"):
        start(nn.DataParallel(small()))


def seen(loader, epochs=60):
    return {int(value) for _ in range(epochs) for (batch,) in loader for value in batch}


def numbered(sampler=None, **options):
    model = nn.Linear(1, 1)
    dataset = TensorDataset(torch.arange(40))
    loader = DataLoader(dataset, sampler=sampler, **{"batch_size": 10} | options)
    return sgd.PoissonLoader.like(loader, rng=np.random.default_rng(1)), model


def test_a_sampler_chooses_the_training_rows():
    """Rows that are kept for validation are never drawn, and n is the number of the others."""
    loader, _ = numbered(SubsetRandomSampler(range(5, 35)))
    assert loader.size == 30
    assert loader.sampling_prob == 1 / 3
    assert seen(loader) == set(range(5, 35))
    assert loader.fetch([])[1] == 0


def test_all_rows_are_drawn_by_default_and_shuffled():
    for options in ({}, {"shuffle": True}, {"drop_last": True}, {"sampler": SequentialSampler(range(40))}):
        loader, _ = numbered(**options)
        assert loader.size == 40
        assert seen(loader) == set(range(40))


class Odd(SequentialSampler):
    def __iter__(self):
        return iter(range(1, 40, 2))


@pytest.mark.parametrize(
    "sampler",
    [
        WeightedRandomSampler([1.0] * 40, 40),
        RandomSampler(range(40), replacement=True),
        RandomSampler(range(40), num_samples=10),
        RandomSampler(range(30)),
        SequentialSampler(range(10)),
        DistributedSampler(data(), num_replicas=2, rank=0),
        Odd(range(40)),
        list(range(20)),
    ],
    ids=["weighted", "with replacement", "a part", "of fewer", "first rows", "distributed", "odd", "list"],
)
def test_a_sampler_draws_otherwise(sampler):
    with pytest.raises(ValueError, match=r"does not draw every example once.*Subset\(dataset, indices\)"):
        numbered(sampler)


def forty():
    return TensorDataset(torch.arange(40))


TWICE = {  # data sets and samplers in which one example is there twice
    "from behind in a sampler": lambda one: (one, SubsetRandomSampler([0, 1, -1, 39])),
    "from behind in a subset": lambda one: (Subset(one, [0, -1, 39]), None),
    "in a subset of a subset": lambda one: (Subset(Subset(one, [0, 0, 1]), [0, 1, 2]), None),
    "from behind in a subset of a subset": lambda one: (Subset(Subset(one, [0, 1]), [0, 1, -1]), None),
    "one data set twice": lambda one: (ConcatDataset([one, one]), None),
    "one data set twice, and a subset": lambda one: (Subset(ConcatDataset([one, one]), [3, 43]), None),
    "one data set twice, and a sampler": lambda one: (ConcatDataset([one, one]), SubsetRandomSampler([3, 43])),
    "two subsets that overlap": lambda one: (ConcatDataset([Subset(one, [0, 1]), Subset(one, [1, 2])]), None),
}


@pytest.mark.parametrize("twice", TWICE.values(), ids=TWICE)
def test_an_example_is_there_twice_by_another_place(twice):
    """It would be in a batch twice, and count double where the budget is for one."""
    dataset, sampler = twice(forty())
    with pytest.raises(ValueError, match="without repetitions"):
        sgd.PoissonLoader.like(DataLoader(dataset, batch_size=1, sampler=sampler), rng=np.random.default_rng(1))


@pytest.mark.parametrize("places", [[0, 40], [-41], [0.5, 1.0]])
def test_places_that_are_none(places):
    for dataset, sampler in ((forty(), SubsetRandomSampler(places)), (Subset(forty(), places), None)):
        with pytest.raises(ValueError, match="Expected places from 0 to 39"):
            sgd.PoissonLoader.like(DataLoader(dataset, batch_size=1, sampler=sampler), rng=np.random.default_rng(1))


def test_data_sets_of_parts_are_taken():
    one = forty()
    parts = ConcatDataset([Subset(one, [0, 1]), Subset(one, [-1, 2]), forty()])
    loader = sgd.PoissonLoader.like(DataLoader(parts, batch_size=44), rng=np.random.default_rng(1))
    ((found,),) = list(loader)
    assert sorted(found.tolist()) == sorted([0, 1, 39, 2, *range(40)])


def test_a_sampler_draws_a_row_twice_or_whole_batches():
    with pytest.raises(ValueError, match="without repetitions"):
        numbered(SubsetRandomSampler([1, 2, 2]))
    batches = BatchSampler(SequentialSampler(range(40)), 10, drop_last=False)
    loader = DataLoader(TensorDataset(torch.arange(40)), batch_sampler=batches)
    with pytest.raises(TypeError, match="without a batch_sampler"):
        sgd.PoissonLoader.like(loader, rng=np.random.default_rng(1))
    with pytest.raises(TypeError, match="got list"):
        sgd.PoissonLoader.like([1, 2], rng=np.random.default_rng(1))


def test_the_old_loader_is_used_after_the_private_one():
    """First an epoch of the private loader, then the old one: every step on it is warned of."""
    old = DataLoader(data(), batch_size=10)
    private = start(epochs=4)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for batch in private.loader:
            step(private, batch)
        for batch in list(private.loader):  # drawn ahead
            step(private, batch)
    for batch in old:
        with pytest.warns(nz.PrivacyWarning, match="not on a batch of the private loader"):
            step(private, batch)


def test_rows_are_left_out_of_a_private_batch():
    private = start(epochs=4)
    for inputs, targets in private.loader:
        if len(inputs) > 1:
            reason = f"the private loader gave last has {len(inputs)} examples"
            if len(inputs) == inputs.shape[1]:  # the columns may be taken for the examples, and are refused sooner
                reason += "|Examples of a batch meet"
            with pytest.raises((RuntimeError, ValueError), match=reason):
                step(private, (inputs[1:], targets[1:]))
    assert private.optimizer.steps == 0


@pytest.mark.filterwarnings("default")
def test_a_run_is_seeded_on_the_way_to_a_release():
    for rng in (7, np.random.default_rng()):
        with pytest.warns(nz.PrivacyWarning, match="Noise from a known seed"):
            start(rng=rng)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        start()
        start(rng=nz._random.generator(None))


@pytest.mark.long
def test_delta_is_far_above_one_over_the_number_of_examples():
    for delta in (1 / 40, 0.5):
        with pytest.warns(nz.PrivacyWarning, match=r"not below 1/40, one over the number of examples"):
            start(target=(1.0, delta))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        start(target=(1.0, 1 / 41))
