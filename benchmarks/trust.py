"""One task, one guarantee, four models of trust: what accuracy costs where more or fewer people are trusted.

python benchmarks/trust.py             writes the table of docs/whom-do-you-trust.md (about two minutes)
python benchmarks/trust.py --small     what the tests run: few clients, prints the table

MNIST in images of 7x7 pixels, logistic regression of 500 weights, clients of 60 images each that take four steps of
gradient descent a round. Every way gives each client the same (epsilon, delta) over the whole run. Rounds and clients a
round are those that suit a way, fixed beforehand: where reports are few and noisy everybody takes part once, where they
are cheap often.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from noisette import datasets
from noisette._files import whole_file
from noisette.federated import Aggregator, CentralPlan, ModelLayout, Norm, PrivateRounds, calibrate, enhanced
from noisette.federated.distributed.noise import DistributedPlan

PAGE = Path(__file__).resolve().parent.parent / "docs" / "whom-do-you-trust.md"
BEGIN, END = "<!-- accuracy: begin -->", "<!-- accuracy: end -->"
DELTA, EPSILONS = 1e-6, (1.0, 4.0, 8.0)
STEPS, RATE, CLIP = 4, 1.0, 1.0
_PIXELS = 49


@dataclass(frozen=True)
class Devices:
    """Images in the hands of so many clients, and what training with all of them at once does."""

    clients: int
    images: int = 60

    @cached_property
    def data(self) -> tuple[Any, Any, Any, Any]:
        """Pixels and labels by client, then of the test images."""
        mnist = datasets.images("mnist")

        def pooled(pixels: Any) -> Any:
            means = pixels.reshape(-1, 7, 4, 7, 4).mean(axis=(2, 4)).reshape(-1, _PIXELS) / 255
            return np.hstack([means, np.ones((len(means), 1))]).astype(np.float32)

        own = np.random.default_rng(0).permutation(60_000)[: self.clients * self.images]
        shape = (self.clients, self.images)
        labels = np.eye(10, dtype=np.float32)
        train = pooled(mnist.train[own]).reshape(*shape, -1), labels[mnist.train_labels[own]].reshape(*shape, 10)
        return *train, pooled(mnist.test), mnist.test_labels

    def updates(self, weights: Any, chosen: Any) -> Any:
        """Return what each chosen client would add to the model, a row each: one computation for all of them."""
        pixels, labels = self.data[0][chosen], self.data[1][chosen]
        own = np.repeat(weights[None].astype(np.float32), len(pixels), axis=0)
        for _ in range(STEPS):
            scores = pixels @ own
            chances = np.exp(scores - scores.max(axis=2, keepdims=True))
            chances /= chances.sum(axis=2, keepdims=True)
            own -= RATE * pixels.transpose(0, 2, 1) @ (chances - labels) / self.images
        return (own - weights).reshape(len(pixels), -1).astype(np.float64)

    def accuracy(self, weights: Any) -> float:
        """Return the share of test images that are classified right."""
        return float(((self.data[2] @ weights).argmax(axis=1) == self.data[3]).mean())


LAYOUT = ModelLayout.of(np.zeros((_PIXELS + 1, 10)))
Round = Callable[[Any, int], Any]  # the updates of a round's clients to the step of the model


def local(devices: Devices, epsilon: float, seed: int) -> float:
    """Nobody is trusted: every client reports once."""
    channel = calibrate("privunit-g", LAYOUT, Norm(CLIP), target_epsilon=epsilon, target_delta=DELTA, rounds=1)
    return _reported(devices, channel, rounds=5, seed=seed)


def shuffled(devices: Devices, epsilon: float, seed: int) -> float:
    """A shuffler is trusted to mix the reports of a round; whoever takes part does so once."""
    terms = {"target_epsilon": epsilon, "target_delta": DELTA, "rounds": 1, "model": "shuffled"}
    channel = calibrate("privunit-g", LAYOUT, Norm(CLIP), clients=devices.clients, **terms)
    return _reported(devices, channel, rounds=1, seed=seed)


def _reported(devices: Devices, channel: Any, rounds: int, seed: int) -> float:
    rng = np.random.default_rng(seed)
    weights = np.zeros((_PIXELS + 1, 10))
    for chosen in np.array_split(rng.permutation(devices.clients), rounds):
        server = Aggregator(channel, minimum=2)
        for update in devices.updates(weights, chosen):
            server.add(channel.privatize(update, rng=rng).payload)
        weights = weights + enhanced(server.estimate(), channel).reshape(weights.shape)
    return devices.accuracy(weights)


def distributed(devices: Devices, epsilon: float, seed: int) -> float:
    """Secure aggregation is trusted to open sums of nine tenths of the clients only; all take part in every round."""
    rounds = 10
    plan = DistributedPlan(epsilon, DELTA, rounds, int(0.9 * devices.clients), LAYOUT.dims, Norm(CLIP))
    rng = np.random.default_rng(seed)
    weights = np.zeros((_PIXELS + 1, 10))
    for _ in range(rounds):
        updates = devices.updates(weights, slice(None))
        total = sum(plan.encode(update, rng=rng) for update in updates)
        weights = weights + plan.mean(np.asarray(total), devices.clients).reshape(weights.shape)
    return devices.accuracy(weights)


def central(devices: Devices, epsilon: float, seed: int) -> float:
    """The server is trusted with the updates, and draws a fifth of the clients a round."""
    rounds = 20
    plan = CentralPlan(epsilon, DELTA, rounds, devices.clients, devices.clients / 5)
    rng = np.random.default_rng(seed)
    server = PrivateRounds(plan, LAYOUT, Norm(CLIP), rng=rng)
    weights = np.zeros((_PIXELS + 1, 10))
    for number in range(1, rounds + 1):
        chosen = plan.sample(range(devices.clients), number, rng=rng)
        for update in devices.updates(weights, chosen) if chosen else ():
            server.add(update)
        weights = weights + server.release().reshape(weights.shape)
    return devices.accuracy(weights)


def unprotected(devices: Devices, epsilon: float, seed: int) -> float:
    """Every update in the clear, in as many rounds as the most of the others have."""
    weights = np.zeros((_PIXELS + 1, 10))
    for _ in range(20):
        weights = weights + devices.updates(weights, slice(None)).mean(axis=0).reshape(weights.shape)
    return devices.accuracy(weights)


WAYS = {
    "local": (local, "nobody", "its noisy update, once"),
    "shuffled": (shuffled, "a shuffler that does not talk to the server", "its noisy update, once, without its name"),
    "distributed": (distributed, "secure aggregation, and nine of ten clients", "a share of a noisy sum, ten times"),
    "central": (central, "the server", "its update in the clear, four times on average"),
    "no privacy": (unprotected, "everybody who sees a model", "its update in the clear, twenty times"),
}


def table(devices: Devices, seeds: int) -> str:
    """Return the rows: who is trusted, what a client gives away, accuracy at each epsilon."""
    heads = " | ".join(f"ε = {epsilon:g}" for epsilon in EPSILONS)
    rows = [
        f"{devices.clients:,} clients, (ε, 10⁻⁶) for everything that a client has, over the whole run; accuracy in %, "
        f"median of {seeds} runs:\n",
        f"| model | who is trusted | what leaves a client | {heads} |",
        "| :-- | :-- | :-- |" + " --: |" * len(EPSILONS),
    ]
    for name, (way, trusted, leaves) in WAYS.items():
        found = [statistics.median(way(devices, epsilon, seed) for seed in range(seeds)) for epsilon in EPSILONS]
        rows.append(f"| {name} | {trusted} | {leaves} | {' | '.join(f'{100 * value:.1f}' for value in found)} |")
    return "\n".join(rows) + "\n"


def main() -> None:
    """Write the table into the page, or print a small one."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true")
    asked = parser.parse_args()
    if asked.small:
        print(table(Devices(clients=40), seeds=1))
        return
    text = PAGE.read_text(encoding="utf-8")
    before, after = text.partition(BEGIN)[0], text.partition(END)[2]
    with whole_file(PAGE) as stream:
        stream.write(f"{before}{BEGIN}\n{table(Devices(clients=1000), seeds=3)}{END}{after}".encode())


if __name__ == "__main__":
    main()
