"""Training loops that people have: precision, schedules, workers, augmentation, adapters, other people's trainers."""

from __future__ import annotations

import copy
import inspect
import os
from dataclasses import dataclass
from types import MethodType

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset, TensorDataset

from noisette import sgd

os.environ.setdefault("HF_HUB_OFFLINE", "1")
pytestmark = pytest.mark.slow


class Places(Dataset):
    """Examples that are made one at a time."""

    def __len__(self):
        return 40

    def __getitem__(self, place):
        return torch.full((4,), place / 40), place % 2


def data(*shape, **options):
    torch.manual_seed(1)
    return DataLoader(TensorDataset(torch.randn(40, *shape), torch.arange(40) % 2), batch_size=8, **options)


def start(model=None, loader=None, optimizer=torch.optim.SGD, **options):
    torch.manual_seed(2)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2)) if model is None else model
    made = optimizer([value for value in model.parameters() if value.requires_grad], lr=0.1)
    options = {"target": (8.0, 1e-5), "epochs": 2, "rng": 1} | options
    return sgd.make_private(model, made, data(4) if loader is None else loader, **options)


def train(private, answer=None):
    model, optimizer, loader = private
    for _ in range(2):
        for inputs, targets in loader:
            optimizer.zero_grad()
            functional.cross_entropy((answer or model)(inputs), targets).backward()
            optimizer.step()
    assert optimizer.steps == 10
    return weights(private)


def weights(private):
    return torch.cat([value.detach().flatten() for value in private.model.parameters()])


def test_autocast_and_a_scaler_that_does_nothing():
    model, optimizer, loader = start(
        nn.Sequential(nn.Unflatten(1, (2, 2)), nn.TransformerEncoderLayer(2, 1, 4, batch_first=True), nn.Flatten())
    )
    scaler = torch.amp.GradScaler("cpu", enabled=False)
    for inputs, targets in loader:
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = functional.cross_entropy(model(inputs), targets)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    assert optimizer.steps == 5
    with pytest.raises(ValueError, match=r"GradScaler is made with enabled=False"):
        torch.amp.GradScaler("cpu").scale(functional.cross_entropy(model(inputs), targets))


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")  # of the tracer
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])  # the second as inductor, which needs a compiler of C++
def test_a_model_compiled_afterwards_trains_as_it_would(backend):
    torch.compiler.reset()
    private = start()
    compiled = torch.compile(private.model, backend=backend)
    torch.testing.assert_close(train(private, compiled), train(start()))


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")  # of the tracer
def test_a_compiled_model_may_return_a_data_class():
    """As those of Hugging Face do: the tracer went round in circles."""
    utils = pytest.importorskip("transformers.utils")

    @dataclass
    class Output(utils.ModelOutput):
        logits: torch.Tensor | None = None

    class Named(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Linear(4, 2)

        def forward(self, x):
            return Output(logits=self.inner(x))

    torch.compiler.reset()
    private, other = start(Named()), start(Named())
    other.model.load_state_dict(private.model.state_dict())
    compiled = torch.compile(private.model, backend="eager")
    found = train(private, lambda inputs: compiled(inputs).logits)
    torch.testing.assert_close(found, train(other, lambda inputs: other.model(inputs).logits))


def test_bytes_and_reshaped_inputs():
    images = DataLoader(TensorDataset(torch.randint(0, 256, (40, 2, 2), dtype=torch.uint8), torch.arange(40) % 2), 8)
    private = start(loader=images)
    train(private, lambda inputs: private.model(inputs.to("cpu").float().reshape(len(inputs), -1) / 255))


def test_workers_change_nothing():
    alone, shared = (train(start(loader=DataLoader(Places(), 8, num_workers=count))) for count in (0, 2))
    assert torch.equal(alone, shared)


def test_gradients_of_two_batches_are_refused_and_pieces_do_instead():
    private = start()
    (inputs, targets), *_ = private.loader
    for _ in range(2):
        functional.cross_entropy(private.model(inputs), targets).backward()
    with pytest.raises(RuntimeError, match="pieces of physical_batch: step on each"):
        private.optimizer.step()
    model, optimizer, loader = start(physical_batch=2)
    for inputs, targets in loader:
        optimizer.zero_grad()
        functional.cross_entropy(model(inputs), targets).backward()
        optimizer.step()
    whole = start()
    for inputs, targets in whole.loader:
        whole.optimizer.zero_grad()
        functional.cross_entropy(whole.model(inputs), targets).backward()
        whole.optimizer.step()
    for mine, theirs in zip(model.parameters(), whole.model.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-4)


def test_a_penalty_on_weights_in_the_loss_is_refused_and_weight_decay_does_instead():
    x, y = torch.randn(20, 3), torch.randint(0, 2, (20,))
    model = nn.Linear(3, 2)
    private = sgd.make_private(
        model,
        torch.optim.SGD(model.parameters(), lr=0.1, weight_decay=0.1),
        DataLoader(TensorDataset(x, y), batch_size=10),
        target=(8.0, 1e-5),
        epochs=2,
        rng=1,
    )
    optimizer = private.optimizer
    for place, (inputs, targets) in enumerate(private.loader):
        before = model.weight.detach().clone()
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(inputs), targets)
        (loss + model.weight.square().sum() if place == 0 else loss).backward()
        if place == 0:
            with pytest.raises(RuntimeError, match=r"'weight' got a gradient outside of its layer.*weight_decay"):
                optimizer.step()
            assert torch.equal(model.weight, before)
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(inputs), targets).backward()
        optimizer.step()
        assert not torch.equal(model.weight, before)
    model.eval()
    nn.functional.cross_entropy(model(x), y).backward()  # for something else, and forgotten
    inputs, targets = next(iter(private.loader))
    model.train()
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(inputs), targets).backward()
    optimizer.step()
    assert optimizer.steps == 3


def test_schedules_move_the_rate():
    model, optimizer, loader = start()
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10)
    for inputs, targets in loader:
        optimizer.zero_grad()
        functional.cross_entropy(model(inputs), targets).backward()
        optimizer.step()
        schedule.step()
    assert optimizer.inner.param_groups[0]["lr"] == pytest.approx(0.05)


def test_an_epoch_that_was_left_after_its_last_batch_is_over():
    """Other people's trainers take as many batches as there are, and do not ask for one more."""
    loader = start().loader
    for _ in range(2):
        batches = iter(loader)
        assert len([next(batches) for _ in range(len(loader))]) == 5


class Augmented(nn.Module):
    """Views of an example beside each other: (examples, views, ...)."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 2))

    def forward(self, views):
        return self.inner(views)


def test_views_of_one_example_are_one_example():
    """Augmentation multiplicity: the gradient of an example is the mean over its views, clipped once."""
    private = start(Augmented().double(), DataLoader(TensorDataset(data(3, 4).dataset.tensors[0].double()), 8))
    views = private.loader.dataset.tensors[0][:5]
    targets = torch.arange(5) % 2
    private.model(views)
    private.optimizer.zero_grad()
    losses = functional.cross_entropy(private.model(views).mT, targets[:, None].expand(-1, 3), reduction="none")
    losses.mean(1).mean().backward()
    parts = private.optimizer.recorder.parts()
    seen = parts["inner.2"].each()["weight"]
    torch.manual_seed(2)
    plain = Augmented().double()
    plain.load_state_dict(private.model.state_dict())
    for place in range(5):
        gradients = []
        for view in views[place]:
            plain.zero_grad()
            functional.cross_entropy(plain(view[None]), targets[place : place + 1]).backward()
            gradients.append(plain.inner[2].weight.grad.clone())
        torch.testing.assert_close(seen[place], torch.stack(gradients).mean(0), rtol=1e-9, atol=1e-12)


def test_only_biases_by_name():
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name.endswith("bias") or name.startswith("2."))
    before = model[0].weight.detach().clone()
    private = start(model)
    train(private)
    assert {f"{layer}.{own}" for layer, own, _ in private.optimizer.recorder.parameters()} == {
        "0.bias",
        "2.weight",
        "2.bias",
    }
    assert torch.equal(model[0].weight, before)


class LowRank(nn.Module):
    """A change of low rank to a weight: LoRA, as in the docs."""

    def __init__(self, weight, rank):
        super().__init__()
        self.down = nn.Parameter(torch.randn(rank, weight.shape[1]) / rank)
        self.up = nn.Parameter(torch.zeros(weight.shape[0], rank))

    def forward(self, weight):
        return weight + self.up @ self.down


def test_low_rank_changes_by_name():
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2)).requires_grad_(False)
    for name in ("0", "2"):
        layer = model.get_submodule(name)
        nn.utils.parametrize.register_parametrization(layer, "weight", LowRank(layer.weight, 2))
    private = start(model)
    train(private)
    assert {own for _, own, _ in private.optimizer.recorder.parameters()} == {
        "parametrizations.weight.0.down",
        "parametrizations.weight.0.up",
    }
    nn.utils.parametrize.remove_parametrizations(model[0], "weight")
    assert type(model[0]) is nn.Linear


class Whole(nn.Module):
    """A model that uses the weight of its layer past it, so that all of it computes its examples apart."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(4, 2)

    def forward(self, x):
        return self.inner(x) + functional.linear(x, self.inner.weight)


@pytest.mark.parametrize("build", [None, Whole, lambda: nn.Linear(4, 2)], ids=["guarded", "apart", "one layer"])
def test_a_forward_pass_that_others_wrap_and_bind(build):
    """Accelerate does this for bfloat16. What it bound to a copy still called the model: steps stopped by an error."""
    model = build and build()
    private = start(model, physical_batch=64)
    model, twin = private.model, copy.deepcopy(private.model)
    assert inspect.signature(model.forward) == inspect.signature(twin.forward)  # the trainer drops what is not there
    model.forward = MethodType(torch.autocast("cpu", dtype=torch.bfloat16)(model.forward.__func__), model)
    assert inspect.signature(model.forward) == inspect.signature(twin.forward)
    found = train(private)
    other = start(build and build(), physical_batch=64)

    def cast(inputs):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return other.model(inputs)

    other.model.load_state_dict(twin.state_dict())
    assert torch.equal(found, train(other, cast))
    copied = copy.deepcopy(model)
    copied(torch.ones(3, 4)).float().sum().backward()
    assert all(value.grad is not None for value in copied.parameters())
    assert all(value.grad is None for value in twin.parameters())


@pytest.mark.long
@pytest.mark.parametrize("physical_batch", [64, 3])
def test_hugging_face_trainer(tmp_path, physical_batch):
    """The trainer makes the steps of a plain loop, in pieces too; in whole batches it goes on from a checkpoint."""
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    config = transformers.BertConfig(
        vocab_size=11,
        hidden_size=8,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=8,
        max_position_embeddings=8,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    torch.manual_seed(1)
    items = [{"input_ids": torch.randint(0, 11, (5,)), "labels": torch.tensor(place % 2)} for place in range(40)]

    def begun():
        torch.manual_seed(2)
        model = transformers.BertForSequenceClassification(config).train()
        return start(model, DataLoader(items, batch_size=8), physical_batch=physical_batch)

    def trained(private, folder, *, resume=None, **options):
        class PrivateTrainer(transformers.Trainer):
            def get_train_dataloader(self):
                return private.loader

        trainer = PrivateTrainer(
            private.model,
            transformers.TrainingArguments(
                str(folder),
                num_train_epochs=2,
                max_grad_norm=0.0,
                use_cpu=True,
                report_to=[],
                disable_tqdm=True,
                ignore_data_skip=True,
                **options,
            ),
            optimizers=(private.optimizer, torch.optim.lr_scheduler.ConstantLR(private.optimizer, 1.0)),
            compute_loss_func=lambda made, labels, **_: functional.cross_entropy(made.logits, labels),
        )
        trainer.train(resume_from_checkpoint=resume)
        assert trainer.evaluate(items)["eval_loss"] > 0
        return weights(private)

    plain = begun()
    for _ in range(2):
        for batch in plain.loader:
            plain.optimizer.zero_grad()
            functional.cross_entropy(plain.model(input_ids=batch["input_ids"]).logits, batch["labels"]).backward()
            plain.optimizer.step()
    private = begun()
    found = trained(private, tmp_path, save_strategy="epoch")
    assert private.optimizer.steps == plain.optimizer.steps == 10
    assert private.optimizer.guarantee.epsilon <= 8.0
    assert torch.equal(found, weights(plain))
    rounded = trained(begun(), tmp_path / "bfloat16", bf16=True, save_strategy="no")
    torch.testing.assert_close(rounded, found, rtol=0.02, atol=0.02)
    if physical_batch == 3:
        return  # its checkpoint counts epochs by pieces, whose number is left to chance
    saved = sorted(tmp_path.glob("checkpoint-*"), key=lambda path: int(path.name.split("-")[1]))
    again = begun()
    assert torch.equal(trained(again, tmp_path, resume=str(saved[0]), save_strategy="no"), weights(plain))
    assert again.optimizer.steps == 10


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("physical_batch", [64, 3])
def test_lightning(tmp_path, physical_batch):
    lightning = pytest.importorskip("lightning")

    def trained(private, *, epochs=2, resume=None, save=None):
        class Lit(lightning.LightningModule):
            def __init__(self):
                super().__init__()
                self.model = private.model

            def training_step(self, batch, _):
                return functional.cross_entropy(self.model(batch[0]), batch[1])

            def configure_optimizers(self):
                return private.optimizer

        quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
        trainer = lightning.Trainer(max_epochs=epochs, accelerator="cpu", enable_model_summary=False, **quiet)
        trainer.fit(Lit(), private.loader, ckpt_path=resume)
        if save:
            trainer.save_checkpoint(save)
        return weights(private)

    plain = train(start(physical_batch=physical_batch))
    private = start(physical_batch=physical_batch)
    assert torch.equal(trained(private), plain)
    assert private.optimizer.steps == 10
    kept = tmp_path / "kept.ckpt"
    trained(start(physical_batch=physical_batch), epochs=1, save=kept)
    again = start(physical_batch=physical_batch)
    assert torch.equal(trained(again, resume=kept), plain)
    assert again.optimizer.steps == 10
