"""A private step of training beside Opacus and beside plain SGD: examples a second, in one run.

python benchmarks/sgd.py             five models; writes the table into docs/benchmarks-sgd.md
python benchmarks/sgd.py --small     what the tests run: two models, few steps, prints the table

Every job does the same: forward and backward pass of one batch, gradients of each example clipped to norm 1, noise, and
a step of SGD. Opacus runs in each of its modes and counts with its fastest. Jobs take turns, medians are compared.
"""

from __future__ import annotations

import argparse
import statistics
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

from noisette import sgd
from noisette.sgd import zoo

PAGE = Path(__file__).resolve().parent.parent / "docs" / "benchmarks-sgd.md"
OPACUS = ("hooks", "functorch", "ew", "ghost")


@dataclass(frozen=True)
class Row:
    """Examples a second of each way to train one model."""

    model: str
    parameters: int
    plain: float
    ours: float
    opacus: dict[str, float]

    @property
    def best(self) -> str:
        """Opacus's fastest mode."""
        return max(self.opacus, key=lambda mode: self.opacus[mode])

    @property
    def ratio(self) -> float:
        """Ours over Opacus's best."""
        return self.ours / self.opacus[self.best]


class Last(nn.Module):
    """A text classifier: embedding, recurrence in both directions, linear layer on the last state."""

    def __init__(self, recurrence: nn.Module) -> None:
        super().__init__()
        self.embedding, self.recurrence, self.out = nn.Embedding(2000, 32), recurrence, nn.Linear(64, 2)

    def forward(self, words: Tensor) -> Tensor:
        states = self.recurrence(self.embedding(words))[0]
        return self.out(states.mean(1))


def images(*shape: int) -> Callable[[int], Tensor]:
    """Return a function that draws a batch of images."""
    return lambda batch: torch.randn(batch, *shape)


def words(batch: int) -> Tensor:
    """Return a batch of texts of 40 words."""
    return torch.randint(0, 2000, (batch, 40))


MODELS: dict[str, tuple[Callable[[], nn.Module], Callable[[int], Tensor], int]] = {
    "logistic": (zoo.softmax, images(1, 28, 28), 256),
    "cnn": (zoo.cnn, images(1, 28, 28), 256),
    "lenet": (zoo.lenet, images(1, 28, 28), 256),
    "resnet": (lambda: zoo.resnet(3, 32), images(3, 32, 32), 64),
    "bilstm": (lambda: Last(nn.LSTM(32, 32, batch_first=True, bidirectional=True)), words, 64),
}


def measure(name: str, repeats: int) -> Row:
    """Time one model in every way, in turn."""
    build, draw, batch = MODELS[name]
    torch.manual_seed(1)
    inputs, targets = draw(batch), torch.randint(0, 2, (batch,))
    jobs = {"plain": plain(build(), inputs, targets), "ours": ours(build(), inputs, targets)}
    for mode in OPACUS:
        job = opacus(build, mode, inputs, targets)
        if job is not None:
            jobs[mode] = job
    for job in jobs.values():
        job()
    times: dict[str, list[float]] = {key: [] for key in jobs}
    for _ in range(repeats):
        for key, job in jobs.items():
            start = time.perf_counter()
            job()
            times[key].append(time.perf_counter() - start)
    speed = {key: batch / statistics.median(values) for key, values in times.items()}
    size = sum(parameter.numel() for parameter in build().parameters())
    return Row(name, size, speed.pop("plain"), speed.pop("ours"), speed)


def plain(model: nn.Module, inputs: Tensor, targets: Tensor) -> Callable[[], None]:
    """Return a step of SGD."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def step() -> None:
        optimizer.zero_grad()
        functional.cross_entropy(model(inputs), targets).backward()
        optimizer.step()

    return step


def ours(model: nn.Module, inputs: Tensor, targets: Tensor) -> Callable[[], None]:
    """Return a private step of ours."""
    model = sgd.with_open_recurrence(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loader = DataLoader(TensorDataset(inputs, targets), batch_size=len(inputs))
    private = sgd.make_private(model, optimizer, loader, target=(1e3, 1e-5), epochs=10**6)

    def step() -> None:
        private.optimizer.zero_grad()
        functional.cross_entropy(model(inputs), targets).backward()
        private.optimizer.step()

    return step


def opacus(build: Callable[[], nn.Module], mode: str, inputs: Tensor, targets: Tensor) -> Callable[[], None] | None:
    """Return a private step of Opacus in one of its modes, None where the mode does not take the model."""
    from opacus import PrivacyEngine
    from opacus.layers import DPLSTM

    model = build()
    if isinstance(model, Last):
        model = Last(DPLSTM(32, 32, batch_first=True, bidirectional=True))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loader = DataLoader(TensorDataset(inputs, targets), batch_size=len(inputs))
    options: dict[str, Any] = {"noise_multiplier": 1.0, "max_grad_norm": 1.0, "poisson_sampling": False}
    if mode == "ghost":
        options["criterion"] = nn.CrossEntropyLoss()
    try:
        made = PrivacyEngine().make_private(
            module=model, optimizer=optimizer, data_loader=loader, grad_sample_mode=mode, **options
        )
        private, private_optimizer = made[0], made[1]
        criterion = made[2] if mode == "ghost" else nn.CrossEntropyLoss()

        def step() -> None:
            private_optimizer.zero_grad()
            criterion(private(inputs), targets).backward()
            private_optimizer.step()

        step()
    except Exception as error:  # a mode that cannot train this model is no competitor
        print(f"opacus {mode} does not train this model: {type(error).__name__}: {str(error)[:90]}")
        return None
    return step


def table(rows: list[Row]) -> str:
    """Write the rows as Markdown."""
    lines = [
        "| model | parameters | plain SGD | Noisette | Opacus's best | mode | Noisette / Opacus | plain / Noisette |"
    ]
    lines.append("| :-- | --: | --: | --: | --: | :-- | --: | --: |")
    for row in rows:
        lines.append(
            f"| {row.model} | {row.parameters:,} | {row.plain:,.0f} | {row.ours:,.0f} | {row.opacus[row.best]:,.0f} | "
            f"{row.best} | {row.ratio:.2f} | {row.plain / row.ours:.2f} |"
        )
    return "\n".join(lines)


def page(rows: list[Row], threads: int) -> str:
    """Write the page of the documentation."""
    return (
        "# Speed of private training\n\n"
        "Examples a second of one training step: forward and backward pass, gradients of each example clipped\n"
        "to norm 1, noise, and a step of SGD. Opacus 1.6 counts with the fastest of its modes. Medians of 41 steps\n"
        f"in turn, {threads} threads, by `python benchmarks/sgd.py`.\n\n{table(rows)}\n"
    )


def main() -> None:
    """Measure and print, and write the page in the full setting."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--small", action="store_true", help="two models, few steps; writes nothing")
    parser.add_argument("--models", nargs="*", choices=MODELS, help="only these; writes nothing")
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(options.threads)
    names = options.models or (["logistic", "cnn"] if options.small else list(MODELS))
    rows = [measure(name, 3 if options.small else 41) for name in names]
    print(table(rows))
    if not (options.small or options.models):
        PAGE.write_text(page(rows, options.threads), encoding="utf-8")


if __name__ == "__main__":
    main()
