"""How cost and error grow with users, categories, dimensions and weights, up to what this machine holds.

A curve ends where one point takes more than `LONGEST` CPU seconds or more memory than there is; beside ours run the
libraries that do the same, until they take that long.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import noisette as nz
from benchmarks.board import alone
from benchmarks.board.frame import RESULTS, Unavailable

LONGEST = 10.0
SCALED = 100  # times as many users as a library runs that takes them one at a time
DELTA = 1e-6
MEMORY = 4e9  # bytes of the largest array of a point

Point = tuple[float, float]  # CPU seconds, root mean square error
AXES = {
    "users": ("users", "of a choice among 32 categories, or of a number, ε = 1; error in percent of a share or range"),
    "categories": (
        "categories",
        "of 100,000 users (others: 1,000, scaled), ε = 4; error of a share, percent",
    ),
    "dimensions": ("dimensions of a vector of length 1", "a user, ε = 4; error of the mean of 1,000 users"),
    "weights": ("weights of a model", "a client's update of length 1, ε = 8; error of one report, length of the noise"),
}


def _timed(work: Callable[[], Any]) -> tuple[Any, float]:
    began = time.process_time()
    found = work()
    return found, time.process_time() - began


def _users_choice(users: int, name: str) -> Point:
    codes = np.arange(users) % 32
    mechanism = nz.CATALOGUE[name](1.0, nz.Categorical(32))
    mechanism.aggregate(mechanism.privatize(codes[:100], rng=1))
    estimate, seconds = _timed(lambda: mechanism.aggregate(mechanism.privatize(codes, rng=1)).estimate().value)
    truth = np.bincount(codes, minlength=32) / users
    return seconds, 100 * float(np.sqrt(np.mean(np.square(estimate - truth))))


def _users_number(users: int, name: str) -> Point:
    values = np.linspace(-1, 1, users)
    mechanism = nz.CATALOGUE[name](epsilon=1.0)
    mechanism.privatize(values[:100], rng=1)
    reports, seconds = _timed(lambda: mechanism.privatize(values, rng=1))
    return seconds, 50 * float(np.std(reports - values)) / users**0.5


def _peer_choice(users: int, job: str) -> Point:
    codes = np.arange(users) % 32
    found, told = alone.ask(f"shares {job}", codes, {"epsilon": 1.0, "size": 32, "most": 1})
    truth = np.bincount(codes, minlength=32) / users
    return told["seconds"] * users, 100 * float(np.sqrt(np.mean(np.square(found - truth))))


def _peer_number(users: int, job: str) -> Point:
    values = np.linspace(-1, 1, users)
    found, told = alone.ask(f"number {job}", values, {"epsilon": 1.0, "delta": 0.0, "low": -1.0, "high": 1.0})
    return told["seconds"] * users, 50 * float(np.std(found - values)) / users**0.5


def _categories(size: int, name: str) -> Point:
    users = 100_000
    codes = np.random.default_rng(1).integers(0, size, users)
    mechanism = nz.CATALOGUE[name](4.0, nz.Categorical(size))
    mechanism.aggregate(mechanism.privatize(codes[:100], rng=1))
    estimate, seconds = _timed(lambda: mechanism.aggregate(mechanism.privatize(codes, rng=1)).estimate().value)
    truth = np.bincount(codes, minlength=size) / users
    return seconds, 100 * float(np.sqrt(np.mean(np.square(estimate - truth))))


def _peer_categories(size: int, job: str) -> Point:
    users = 100_000 // SCALED
    codes = np.random.default_rng(1).integers(0, size, users)
    options = {"epsilon": 4.0, "size": size, "most": 1}
    alone.ask(f"shares {job}", codes[:10], options)  # some compile themselves when they are first called
    found, told = alone.ask(f"shares {job}", codes, options)
    truth = np.bincount(codes, minlength=size) / users
    return told["seconds"] * 100_000, 100 * float(np.sqrt(np.mean(np.square(found - truth)) * users / 100_000))


def _dimensions(dims: int, name: str, delta: float = 0.0) -> Point:
    users = max(1, min(200, int(2e7) // dims))
    rows = np.zeros((users, dims))
    rows[:, 0] = 1.0
    mechanism = nz.build(name, nz.L2Ball(dims, 1.0), epsilon=4.0, delta=delta)
    mechanism.privatize(rows[:1], rng=1)
    reports, seconds = _timed(lambda: mechanism.privatize(rows, rng=1))
    noise = float(np.mean(np.sum(np.square(reports - rows), axis=1)))
    return seconds / users, (noise / 1000) ** 0.5


def _peer_dimensions(dims: int) -> Point:
    users = max(1, min(20, 100_000 // dims))
    rows = np.zeros((users, dims))
    options = {"epsilon": 4.0, "delta": 1e-6, "l1": 2 * dims**0.5, "l2": 2.0}
    reports, told = alone.ask("vector opendp make_gaussian", rows, options)
    return told["seconds"], (float(np.mean(np.sum(np.square(reports - rows), axis=1))) / 1000) ** 0.5


def _weights(weights: int, name: str) -> Point:
    from noisette.accounting import gdp_mu
    from noisette.federated import Channel, ModelLayout, Norm

    spent: dict[str, float] = {"mu": gdp_mu(8.0, 1e-6)} if name == "tensor-gaussian" else {"epsilon": 8.0}
    channel = Channel(name, ModelLayout.of(np.zeros(weights)), Norm(1.0), **spent)
    update = np.full(weights, weights**-0.5)
    release, seconds = _timed(lambda: channel.privatize(update, rng=1))
    estimate, more = _timed(lambda: channel.estimate(release.payload))
    return seconds + more, float(np.linalg.norm(estimate - update))


def _peer_weights(weights: int) -> Point:
    update = np.full((1, weights), weights**-0.5)
    options = {"epsilon": 8.0, "delta": 1e-6, "norm": 1.0, "sensitivity": 2.0}
    reports, told = alone.ask("vector flwr LocalDpMod", update, options)
    return told["seconds"], float(np.linalg.norm(reports - update))


def _decades(first: int, last: int) -> list[int]:
    return [round(10 ** (power / 2)) for power in range(2 * first, 2 * last + 1)]


_SIZES = [2, 10, 100, 1000, 10_000, 100_000, 1_000_000, 10_000_000]
CURVES: dict[tuple[str, str, str], tuple[list[int], Callable[[int], Point]]] = {
    ("users", "noisette", "subset-selection"): (_decades(3, 7), partial(_users_choice, name="subset-selection")),
    ("users", "noisette", "oue"): (_decades(3, 7), partial(_users_choice, name="oue")),
    ("users", "noisette", "pgr"): (_decades(3, 8), partial(_users_choice, name="pgr")),
    ("users", "noisette", "piecewise"): (_decades(3, 8), partial(_users_number, name="piecewise")),
    ("users", "noisette", "laplace"): (_decades(3, 8), partial(_users_number, name="laplace")),
    ("users", "multi-freq-ldpy", "OUE"): (_decades(3, 6), partial(_peer_choice, job="multi-freq-ldpy OUE")),
    ("users", "multi-freq-ldpy", "OLH"): (_decades(3, 6), partial(_peer_choice, job="multi-freq-ldpy OLH")),
    ("users", "pure-ldp", "OUE"): (_decades(3, 6), partial(_peer_choice, job="pure-ldp OUE")),
    ("users", "opendp", "make_laplace"): (_decades(3, 7), partial(_peer_number, job="opendp make_laplace")),
    ("users", "diffprivlib", "Laplace"): (_decades(3, 6), partial(_peer_number, job="diffprivlib Laplace")),
    ("categories", "noisette", "pgr"): (_SIZES, partial(_categories, name="pgr")),
    ("categories", "noisette", "grr"): (_SIZES, partial(_categories, name="grr")),
    ("categories", "noisette", "hadamard"): (_SIZES, partial(_categories, name="hadamard")),
    ("categories", "noisette", "subset-selection"): (_SIZES[:4], partial(_categories, name="subset-selection")),
    ("categories", "noisette", "olh"): (_SIZES[:5], partial(_categories, name="olh")),
    ("categories", "multi-freq-ldpy", "OUE"): (_SIZES[:6], partial(_peer_categories, job="multi-freq-ldpy OUE")),
    ("categories", "multi-freq-ldpy", "OLH"): (_SIZES[:5], partial(_peer_categories, job="multi-freq-ldpy OLH")),
    ("categories", "pure-ldp", "HR"): (_SIZES[:5], partial(_peer_categories, job="pure-ldp HR")),
    ("dimensions", "noisette", "privunit"): (_decades(1, 6), partial(_dimensions, name="privunit")),
    ("dimensions", "noisette", "privunit-g"): (_decades(1, 7), partial(_dimensions, name="privunit-g")),
    ("dimensions", "noisette", "tensor-gaussian"): (
        _decades(1, 7),
        partial(_dimensions, name="tensor-gaussian", delta=DELTA),
    ),
    ("dimensions", "opendp", "make_gaussian"): (_decades(1, 6), _peer_dimensions),
    ("weights", "noisette", "privunit-g"): (_decades(3, 8), partial(_weights, name="privunit-g")),
    ("weights", "noisette", "tensor-gaussian"): (_decades(3, 8), partial(_weights, name="tensor-gaussian")),
    ("weights", "flwr", "LocalDpMod"): (_decades(3, 8), _peer_weights),
}  # fmt: skip


def stored(folder: Path = RESULTS) -> list[dict[str, Any]]:
    """Return the curves that were measured."""
    path = folder / "curves.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else []


def run(
    only: tuple[str, ...] = (),
    *,
    small: bool = False,
    again: bool = False,
    folder: Path = RESULTS,
    tell: Callable[[str], Any] = print,
) -> list[str]:
    """Measure the curves that are asked for ("curves" or "curves/users") and were not measured."""
    failed = []
    for (axis, by, name), (places, measure) in CURVES.items():
        if only and not any(one == "curves" or one == f"curves/{axis}" for one in only):
            continue
        known = {(row["axis"], row["by"], row["method"]): row for row in stored(folder)}
        if (axis, by, name) in known and not again:
            continue
        points, ended = [], "the last place"
        for place in places[:2] if small else places:
            if 16 * place > MEMORY:
                ended = "the memory of this machine"
                break
            try:
                seconds, error = measure(place)
            except Unavailable as error:
                tell(f"curves: {axis}: {by} {name}: left out: {error}")
                break
            except Exception as error:
                failed.append(f"curves: {axis}: {by} {name} at {place}: {type(error).__name__}: {error}")
                tell(failed[-1])
                ended = "a failure"
                break
            points.append([place, float(f"{seconds:.4g}"), float(f"{error:.4g}")])
            if seconds > LONGEST * (SCALED if axis == "categories" and by != "noisette" else 1):
                ended = f"{LONGEST:g} seconds"
                break
        if points:
            known[axis, by, name] = {"axis": axis, "by": by, "method": name, "points": points, "ended": ended}
            folder.mkdir(parents=True, exist_ok=True)
            lines = [json.dumps(known[key], sort_keys=True) for key in sorted(known)]
            (folder / "curves.json").write_text("[\n" + ",\n".join(lines) + "\n]\n", encoding="utf-8")
            tell(f"curves: {axis}: {by} {name}: {len(points)} points, ended by {ended}")
    return failed
