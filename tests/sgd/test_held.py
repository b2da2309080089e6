"""What private training computes, digit by digit: rules, margins for rounding, scales of noise, seeded runs.

Margins are held to the last bit: they are on the safe side of a bound. python -m tests.sgd.test_held writes all anew.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from tests.held import Held
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from noisette import sgd
from noisette.datasets import Images
from noisette.sgd.adam import AdamBC
from noisette.sgd.advice import _crossing
from noisette.sgd.budget import Budget
from noisette.sgd.clipping import CLIPS, Clip, LInf, PerLayer
from noisette.sgd.noise._lattice import on_lattice, widened
from noisette.sgd.noise.geodp import Geo
from noisette.sgd.noise.perturbation import GaussianPerturbation, Layered, noisy_means
from noisette.sgd.noise.tensor import TensorPerturbation
from noisette.sgd.observer import Observer
from noisette.sgd.recording import _rows
from noisette.sgd.recording.layers import Formed, Looked, Outer, Tied, _compared_squares
from noisette.sgd.sampling import PoissonLoader
from noisette.sgd.training import fit, losses, tensors
from noisette.sgd.zoo import ZOO

HELD = Held(__file__)
SINGLE = 1e-4  # what another library may change of weights in single precision, after noise and all


def waves(*shape: int, tilt: float = 0.7) -> torch.Tensor:
    """Return numbers without a random one among them."""
    return torch.sin(tilt * torch.arange(1, math.prod(shape) + 1, dtype=torch.float64)).reshape(shape)


def parts() -> dict[str, Any]:
    """Two layers' gradients of five examples; the fourth is not finite."""
    first, second = waves(5, 2, 3), 3 * waves(5, 4, tilt=0.3)
    first[3, 1, 1] = math.inf
    return {"a": Formed({"weight": first}), "b": Formed({"weight": second, "bias": waves(5, 2, tilt=1.1)})}


def started(rule: Clip) -> Clip:
    rule.start({"a": 6, "b": 6})
    rule.leave_room(5000, 100)
    return rule


def plainly(sums: Any) -> Any:
    return {layer: {name: value.tolist() for name, value in own.items()} for layer, own in sums.items()}


def rules() -> dict[str, Any]:
    found = {}
    for name, kind in CLIPS.items():
        rule = started(kind())
        _, factors, squares = rule.apart(parts(), 1.5)
        told = [plainly(rule.total(parts(), 1.5)), plainly(rule.each(parts(), 0.5)), factors.tolist(), squares.tolist()]
        found[name] = [*told, rule.bound, rule.share, rule.state()]
    return found


def margins() -> dict[str, Any]:
    """Numbers that keep a bound in spite of rounding, as exact text."""
    clip, found = Clip(), dict[str, Any]()
    for examples, piece, processes in ((5, 1024, 1), (60_000, 1024, 1), (10**8, 4096, 3), (7 * 10**7, 5000, 1)):
        clip.leave_room(examples, piece, processes)
        found[f"kept {examples}"] = clip.kept.hex()
    box, layered = LInf(0.3), PerLayer(2.0, (1.0, 3.0, 4.0))
    box.start({"a": 11, "b": 2})
    layered.start({"a": 1, "b": 1, "c": 1})
    found["box"] = box.bound.hex()
    found["thresholds"] = [one.hex() for one in layered.thresholds]
    for columns, kind in ((1, torch.float32), (1000, torch.float32), (77, torch.float64)):
        found[f"squares {columns} {kind}"] = [one.hex() for one in _rows._margins(columns, kind)]
    found["gamma"] = [_rows.gamma(terms, unit).hex() for terms, unit in ((3, 2.0**-24), (1000, 2.0**-53), (9, 0.05))]
    found["no bound"] = [_rows.gamma(10, 0.05), _rows.gamma(8, 0.0625)]
    found["widened"] = [widened(m, n, room).hex() for m, n, room in ((0.8, 1, 0.0), (3.0, 10**6, 1e-9), (40.0, 7, 0.1))]
    found["room"] = [GaussianPerturbation().room(60_000).hex(), Geo(beta=0.2).room(60_000).hex()]
    return found


def bounds() -> dict[str, Any]:
    """Upper bounds of squared norms, in which a margin is a small share."""
    inputs, outputs = waves(3, 4, 5), waves(3, 4, 2, tilt=0.4)
    looked = Looked(torch.tensor([[0, 1, 1], [2, 2, 2]]), waves(2, 3, 2), torch.Size([3, 2]))
    one = Formed({"weight": waves(2, 3)})
    tied = Tied([(one, {"weight": "x"}), (Formed({"weight": waves(2, 3, tilt=0.2)}), {"weight": "x"})], 3)
    wide = Tied([(one, {"weight": "x"}), (one, {"weight": "x"})], 1 << 40)
    outer = Outer(inputs, outputs, lambda weight: weight, bias=True)
    weights = torch.tensor([0.5, 0.0, 2.0], dtype=torch.float64)
    return {
        "compared": _compared_squares(inputs, outputs),
        "compared single": _compared_squares(inputs.float(), outputs.float()) / _compared_squares(inputs, outputs) - 1,
        "looked": [looked.squares(), looked.total(weights[:2])["weight"], looked.each()["weight"]],
        "tied": [tied.squares(), tied.each()["x"], wide.squares(), wide.total(weights[:2])["x"]],
        "outer": [outer.squares(), *(entry for entry in outer.total(weights).values())],
        "clamped": _rows.clamped(waves(3, 6), weights, 0.4),
        "weighted": _rows.weighted(waves(7, 9), waves(7, tilt=0.9)),
        "products": [
            _rows.outer(waves(9, 3), waves(9, 6, tilt=0.2), waves(9, tilt=0.9)),
            _rows.outer(waves(9, 7), waves(9, 4, tilt=0.2), waves(9, tilt=0.9)),
            _rows.outer_squares(waves(4, 3), waves(4, 5), own=True),
            _rows.outer_squares(waves(4, 3), waves(4, 5), own=False),
        ],
        "moments": list(_rows.moments(waves(2, 3, 4), waves(2, 3, 4, tilt=0.2))),
    }


def scales() -> dict[str, Any]:
    found: dict[str, Any] = {}
    shapes = {"a": {"weight": torch.Size([2, 3]), "bias": torch.Size([2])}, "b": {"weight": torch.Size([3])}}
    sums = {"a": {"weight": waves(2, 3), "bias": waves(2)}, "b": {"weight": waves(3)}}
    matrix = np.asarray([[2.0, 0.3], [0.3, 1.0]])
    box = LInf(0.2)
    box.start({"a": 8, "b": 3})
    for name, given in (("ball", sgd.L2(1.5)), ("box", box)):
        made = TensorPerturbation(covariances={"a.weight": [matrix, None], "b.weight": [[1.0, 2.0, 3.0]]})
        made.start(given, shapes)
        law: Any = made.law(sums, given, 1.2, 8.0)
        turned = law.turn.there(waves(2, 11).numpy())
        found[name] = [made.scales(given, 1.2), made.room(60_000), law.variances, turned, law.turn.back(turned)]
    wanted = TensorPerturbation(subspaces={"a.weight": [np.asarray([[1.0, 0.5]]), None]})
    wanted.start(box, shapes)
    found["subspace"] = wanted.scales(box, 0.7)
    layered = started(PerLayer(2.0))
    assert isinstance(layered, PerLayer)
    for shares in (None, (1.0, 5.0)):
        own = Layered(shares)
        found[f"layered {shares}"] = [own.scales(sums, layered, 0.9), own.law(sums, layered, 0.9, 8.0)]
    for options in ({}, {"average": "gradient"}, {"average": "gradient", "as_published": True}, {"beta": 0.7}):
        geo = Geo(**options)
        geo.start(sgd.L2(1.5), shapes)
        given = {"": {"magnitude": torch.tensor(9.0), "angles": waves(10)}} if geo.average == "angles" else sums
        law = geo.law(given, sgd.L2(1.5), 1.2, 8.0)
        found[f"geo {options}"] = [law, geo.diameter, geo.truth(8.0), geo.sums_gradients]
    plain = GaussianPerturbation()
    found["plain"] = [plain.noise(sgd.L2(1.5), 1.2, 8.0), plain.law(sums, sgd.L2(1.5), 1.2, 8.0)]
    found["lattice"] = on_lattice(waves(5).numpy().copy() / 1000, 0.3, 0.1)
    return found


def geo_angles() -> Any:
    """Sums of clipped angles, of outer products in single precision and of other layers in double."""
    found = []
    for kind in (torch.float32, torch.float64):
        for beta in (0.1, 0.45, 1.0):
            geo = Geo(beta=beta)
            layers = {
                "a": Outer(waves(3, 1, 4).to(kind), waves(3, 1, 2, tilt=0.3).to(kind), lambda w: w, bias=True),
                "b": Formed({"weight": waves(3, 5, tilt=0.2).to(kind)}),
            }
            geo.start(sgd.L2(), {"a": {"w": torch.Size([10])}, "b": {"w": torch.Size([5])}})
            found.append({name: value.tolist() for name, value in geo.collect(sgd.L2(), layers, 2.0)[""].items()})
    return found


def trained(**options: Any) -> tuple[Any, nn.Module, Any]:
    """Train a small model on 40 examples for two steps."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    with torch.no_grad():
        for place, value in enumerate(model.parameters()):
            value.copy_(waves(*value.shape, tilt=0.3 + place))
    data = TensorDataset(waves(40, 3).float(), (torch.arange(40) % 2))
    inner = options.pop("inner", torch.optim.SGD)(model.parameters(), lr=0.1)
    loader = DataLoader(data, batch_size=20)
    given = {"target": (8.0, 1e-5), "epochs": 1, "rng": 3} | options
    return sgd.make_private(model, inner, loader, **given), model, data


def ran(**options: Any) -> Any:
    private, model, _ = trained(**options)
    for inputs, targets in private.loader:
        private.optimizer.zero_grad()
        nn.functional.cross_entropy(private.model(inputs), targets).backward()
        private.optimizer.step()
    spent = private.optimizer.guarantee.epsilon
    return [*(value.detach().tolist() for value in model.parameters()), spent, private.optimizer.clip.state()]


def runs() -> dict[str, Any]:
    found = {f"clip {name}": ran(clip=name) for name in CLIPS}
    found |= {f"noise {name}": ran(perturb=name) for name in ("geodp", "tensor")}
    found["layered"] = ran(clip="per-layer", perturb="layered")
    found["geodp of the mean"] = ran(perturb=Geo(beta=0.5, average="gradient"))
    found["adam"] = ran(inner=AdamBC)
    found["pieces"] = ran(physical_batch=7)
    return found


def watched() -> Any:
    found = {}
    for name in ("gaussian", "geodp", "tensor"):
        private, _, _ = trained(perturb=name, epochs=1)
        best = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
        with torch.no_grad():
            for value in best.parameters():
                value.fill_(0.25)
        observer = Observer(private, optimum=best, every=2, draws=4, rng=5)
        for inputs, targets in private.loader:
            private.optimizer.zero_grad()
            nn.functional.cross_entropy(private.model(inputs), targets).backward()
            private.optimizer.step()
        found[name] = observer.record()
    return found


def sampled() -> Any:
    loader = PoissonLoader(
        TensorDataset(torch.arange(30)), 0.4, steps=3, physical_batch=5, rng=np.random.default_rng(4)
    )
    rounds = [[piece[0].tolist(), loader.complete, loader.given, loader.position] for (piece) in loader]
    apart = [[size, piece[0].tolist()] for size, piece in loader.draw()]
    return [rounds, apart, loader.expected_batch, len(loader)]


def advised() -> Any:
    counts = np.maximum(0.0, 40 - 3 * np.abs(np.arange(58) - 30.0)) + np.cos(np.arange(58))
    found: list[Any] = [_crossing(counts, quantile) for quantile in (0.01, 0.3, 0.5, 0.99)]
    found += [_crossing(np.eye(58)[place], 0.5) for place in (0, 1, 40, 57)]
    private, _, _ = trained(advice_steps=2)
    advice = sgd.advise_clip(private, nn.functional.cross_entropy, quantile=0.6, rounds=2)
    return [*found, advice, private.optimizer.steps]


def judged() -> Any:
    pixels = (np.arange(20 * 16) * 37 % 256).astype(np.uint8).reshape(20, 4, 4)
    images = Images(pixels, np.arange(20, dtype=np.uint8) % 3, pixels[:6], np.arange(6, dtype=np.uint8) % 3)
    train, test = tensors(images, limit=12)
    coloured = Images(
        np.stack([pixels] * 3, axis=-1),
        images.train_labels,
        np.stack([pixels[:2]] * 3, axis=-1),
        images.test_labels[:2],
    )
    model = nn.Sequential(nn.Flatten(), nn.Linear(16, 3))
    with torch.no_grad():
        for value in model.parameters():
            value.copy_(waves(*value.shape))
    loader = DataLoader(train, batch_size=6)
    inner = torch.optim.SGD(model.parameters(), lr=0.1)
    private = sgd.make_private(model, inner, loader, target=(5.0, 1e-3), epochs=2, rng=4)
    seen: list[float] = []
    curve = fit(private, test, epochs=2, advance=seen.append)
    return [
        [one.tensors[0].flatten()[:20] for one in (train, test)],
        [list(one.tensors[0].shape) for one in (train, test, *tensors(coloured))],
        curve,
        seen,
        losses(model, test),
    ]


STORIES: dict[str, Callable[[], Any]] = {
    "zoo": lambda: {
        name: [[list(value.shape) for value in make(*size).parameters()] for size in ((1, 28), (3, 32))]
        for name, make in ZOO.items()
    },
    "outputs": lambda: {name: [list(make(1, 28)(torch.zeros(2, 1, 28, 28)).shape)] for name, make in ZOO.items()},
    "rules": rules,
    "margins": margins,
    "bounds": bounds,
    "scales": scales,
    "noise": lambda: plainly(noisy_means({"a": {"w": waves(3)}}, 2.0, 4.0, np.random.default_rng(2))),
    "angles": geo_angles,
    "runs": runs,
    "watched": watched,
    "sampled": sampled,
    "advised": advised,
    "judged": judged,
    "budget": lambda: [
        (made := Budget.for_target(2.0, 1e-5, steps=50, sampling_prob=0.05)).multiplier,
        [made.spent(steps).epsilon for steps in (0, 1, 50)],
        Budget(2.0, 0.1, 1e-5, None, 0.5).spent(3).epsilon,
    ],
}
IN_SINGLE_PRECISION = {"angles", "runs", "watched", "advised", "judged"}


@pytest.mark.parametrize("name", STORIES)
@pytest.mark.filterwarnings("ignore::noisette.guarantees.PrivacyWarning")
def test_digits_are_the_ones_that_were_kept(name: str) -> None:
    HELD.check(name, STORIES[name](), close=SINGLE if name in IN_SINGLE_PRECISION else 1e-7)


if __name__ == "__main__":
    import warnings

    warnings.simplefilter("ignore")
    HELD.write({name: story() for name, story in STORIES.items()})
