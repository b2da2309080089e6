"""Other libraries, as their documentation says to use them. Runs in .venv-peers and answers jobs, a line of JSON each.

A job reads an array of people's values and writes an array: reports of numbers, or estimates of repeated collections.
It tells the CPU seconds of one user, both sides, and the bytes of one report.
"""

from __future__ import annotations

import importlib
import json
import logging
import sys
import time
import warnings
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np

warnings.simplefilter("ignore")
LONGEST = 2.0  # seconds of repeating
JOBS: dict[str, Callable[..., tuple[Any, float, float]]] = {}


def job(name: str) -> Callable[[Any], Any]:
    """Enter a function of (values, options) that returns an array, seconds of one user, bytes of a report."""

    def entered(work: Any) -> Any:
        JOBS[name] = work
        return work

    return entered


def timed(work: Callable[[], Any], users: int) -> tuple[Any, float]:
    """Return what work returns and the CPU seconds of one user."""
    began = time.process_time()
    found = work()
    return found, (time.process_time() - began) / users


def opendp_noise(kind: str, values: Any, told: dict[str, Any]) -> tuple[Any, float, float]:
    """Noise on a clamped number, as large as OpenDP's own map says that it must be."""
    dp = importlib.import_module("opendp.prelude")
    dp.enable_features("contrib")
    domain, width = dp.vector_domain(dp.atom_domain(T=float, nan=False)), told["high"] - told["low"]
    if kind == "laplace":
        noise = dp.binary_search_chain(
            lambda scale: dp.m.make_laplace(domain, dp.l1_distance(T=float), scale), d_in=width, d_out=told["epsilon"]
        )
    else:
        noise = dp.binary_search_chain(
            lambda scale: dp.c.make_fix_delta(
                dp.c.make_zCDP_to_approxDP(dp.m.make_gaussian(domain, dp.l2_distance(T=float), scale)), told["delta"]
            ),
            d_in=width,
            d_out=(told["epsilon"], told["delta"]),
            bounds=(width / told["epsilon"], 100 * width / told["epsilon"]),
        )
    reports, seconds = timed(lambda: noise(values.tolist()), len(values))
    return np.asarray(reports), seconds, 8.0


for _kind in ("laplace", "gaussian"):
    JOBS[f"number opendp make_{_kind}"] = lambda values, told, kind=_kind: opendp_noise(kind, values, told)


def diffprivlib_noise(name: str, values: Any, told: dict[str, Any]) -> tuple[Any, float, float]:
    """One of diffprivlib's mechanisms for a number in a range."""
    made = getattr(importlib.import_module("diffprivlib.mechanisms"), name)
    options: dict[str, Any] = {"epsilon": told["epsilon"], "sensitivity": told["high"] - told["low"]}
    if name in ("LaplaceTruncated", "LaplaceBoundedDomain", "Snapping"):
        options |= {"lower": told["low"], "upper": told["high"]}
    if name == "GaussianAnalytic":
        options["delta"] = told["delta"]
    noise = made(**options)
    reports, seconds = timed(lambda: [noise.randomise(value) for value in values.tolist()], len(values))
    return np.asarray(reports), seconds, 8.0


for _name in ("Laplace", "LaplaceTruncated", "LaplaceBoundedDomain", "Staircase", "Snapping", "GaussianAnalytic"):
    JOBS[f"number diffprivlib {_name}"] = lambda values, told, name=_name: diffprivlib_noise(name, values, told)


def collections(
    values: Any, told: dict[str, Any], once: Callable[[list[int]], tuple[Any, float]]
) -> tuple[Any, float, float]:
    """Repeat a collection: ``once`` returns estimated shares and the bytes of a report."""
    found, began, size, people = [], time.process_time(), 0.0, values.tolist()
    while len(found) < told["most"] and (len(found) < 2 or time.process_time() - began < LONGEST):
        shares, size = once(people)
        found.append(shares)
    return np.asarray(found, dtype=float), (time.process_time() - began) / len(found) / len(values), size


def multi_freq(name: str, values: Any, told: dict[str, Any]) -> tuple[Any, float, float]:
    """A client for each person and the aggregator that inverts the matrix."""
    size, epsilon = told["size"], told["epsilon"]
    file, options = {
        "GRR": ("GRR", ()),
        "SUE": ("UE", (False,)),
        "OUE": ("UE", (True,)),
        "OLH": ("LH", (True,)),
        "BLH": ("LH", (False,)),
        "SS": ("SS", ()),
        "THE": ("HE", ()),
        "ADP": ("ADP", (True,)),
    }[name]
    module = importlib.import_module(f"multi_freq_ldpy.pure_frequency_oracles.{file}")
    client, server = getattr(module, f"{file}_Client"), getattr(module, f"{file}_Aggregator_MI")
    bits = {"GRR": 32, "SUE": size, "OUE": size, "OLH": 64, "BLH": 33, "THE": 64 * size, "ADP": size}
    bits["SS"] = 32 * max(1, round(size / (np.exp(epsilon) + 1)))

    def once(people: list[int]) -> tuple[Any, float]:
        reports = [client(value, size, epsilon, *options) for value in people]
        given = () if file == "UE" else (size,)
        return server(reports, *given, epsilon, *options), bits[name] / 8

    return collections(values, told, once)


for _name in ("GRR", "SUE", "OUE", "OLH", "BLH", "SS", "THE", "ADP"):
    JOBS[f"shares multi-freq-ldpy {_name}"] = lambda values, told, name=_name: multi_freq(name, values, told)


def pure_ldp(name: str, values: Any, told: dict[str, Any]) -> tuple[Any, float, float]:
    """A client and a server; items are numbered from one."""
    size, epsilon, folder = told["size"], told["epsilon"], "pure_ldp.frequency_oracles."

    def part(module: str, *names: str) -> list[Any]:
        return [getattr(importlib.import_module(folder + module), one) for one in names]

    def pair() -> tuple[Any, Any, float]:
        if name == "DE":
            client, server = part("direct_encoding", "DEClient", "DEServer")
            return client(epsilon, size), server(epsilon, size), 32
        if name in ("SUE", "OUE"):
            client, server = part("unary_encoding", "UEClient", "UEServer")
            own = {"use_oue": name == "OUE"}
            return client(epsilon, size, **own), server(epsilon, size, **own), size
        if name in ("OLH", "BLH"):
            client, server = part("local_hashing", "LHClient", "LHServer")
            own = {"use_olh": name == "OLH"}
            return client(epsilon, size, **own), server(epsilon, size, **own), 64
        if name == "FLH":
            client, server = part("local_hashing", "FastLHClient", "FastLHServer")
            return client(epsilon, size, k=500, use_olh=True), server(epsilon, size, k=500, use_olh=True), 41
        if name == "THE":
            client, server = part("histogram_encoding", "HEClient", "HEServer")
            return client(epsilon, size), server(epsilon, size, use_the=True), 64 * size
        if name == "HR":
            client, server = part("hadamard_response", "HadamardResponseClient", "HadamardResponseServer")
            made = server(epsilon, size)
            return client(epsilon, size, hash_funcs=made.get_hash_funcs()), made, 32
        if name == "HM":
            client, server = part("hadamard_mechanism", "HadamardMechClient", "HadamardMechServer")
            return client(epsilon, size, t=1, use_optimal_t=True), server(epsilon, size, t=1, use_optimal_t=True), 33
        raise ValueError(f"pure-ldp has no {name}")

    def once(people: list[int]) -> tuple[Any, float]:
        client, server, bits = pair()
        for value in people:
            server.aggregate(client.privatise(value + 1))
        counts = server.estimate_all(range(1, size + 1), suppress_warnings=True)
        return np.asarray(counts) / len(people), bits / 8

    return collections(values, told, once)


for _name in ("DE", "SUE", "OUE", "OLH", "BLH", "FLH", "THE", "HR", "HM"):
    JOBS[f"shares pure-ldp {_name}"] = lambda values, told, name=_name: pure_ldp(name, values, told)


@job("shares opendp make_randomized_response")
def opendp_response(values: Any, told: dict[str, Any]) -> tuple[Any, float, float]:
    """Randomised response of OpenDP, and the usual inversion of its chances."""
    dp = importlib.import_module("opendp.prelude")
    dp.enable_features("contrib")
    size, growth = told["size"], np.exp(told["epsilon"])
    keep = float(growth / (growth + size - 1))
    response = dp.m.make_randomized_response(list(range(size)), prob=keep)
    while response.map(1) > told["epsilon"]:
        keep = float(np.nextafter(keep, 0))
        response = dp.m.make_randomized_response(list(range(size)), prob=keep)
    other = (1 - keep) / (size - 1)

    def once(people: list[int]) -> tuple[Any, float]:
        seen = np.bincount([response(value) for value in people], minlength=size) / len(people)
        return (seen - other) / (keep - other), 4.0

    return collections(values, told, once)


def longitudinal(name: str, values: Any, told: dict[str, Any]) -> tuple[Any, float, float]:
    """One period of a protocol that keeps an answer for each value: its first report."""
    module = importlib.import_module(f"multi_freq_ldpy.long_freq_est.{name}")
    client, server = getattr(module, f"{name}_Client"), getattr(module, f"{name}_Aggregator_MI")
    size, kept, once_budget = told["size"], told["kept"], told["once"]

    def once(people: list[int]) -> tuple[Any, float]:
        reports = [client(value, size, kept, once_budget) for value in people]
        given = (size,) if name in ("L_GRR", "L_LH", "L_ADP") else ()
        return server(reports, *given, kept, once_budget), (32 if name in ("L_GRR", "L_LH") else size) / 8

    return collections(values, told, once)


for _name in ("L_GRR", "L_OSUE", "L_SUE", "L_OUE", "L_SOUE", "L_LH"):
    JOBS[f"changing multi-freq-ldpy {_name}"] = lambda values, told, name=_name: longitudinal(name, values, told)


def opendp_vector(kind: str, values: Any, told: dict[str, Any]) -> tuple[Any, float, float]:
    """Noise on each person's whole vector, for the norm by which two of them differ at most."""
    dp = importlib.import_module("opendp.prelude")
    dp.enable_features("contrib")
    domain = dp.vector_domain(dp.atom_domain(T=float, nan=False))
    if kind == "laplace":
        noise = dp.binary_search_chain(
            lambda scale: dp.m.make_laplace(domain, dp.l1_distance(T=float), scale),
            d_in=told["l1"],
            d_out=told["epsilon"],
        )
    else:
        noise = dp.binary_search_chain(
            lambda scale: dp.c.make_fix_delta(
                dp.c.make_zCDP_to_approxDP(dp.m.make_gaussian(domain, dp.l2_distance(T=float), scale)), told["delta"]
            ),
            d_in=told["l2"],
            d_out=(told["epsilon"], told["delta"]),
            bounds=(told["l2"] / told["epsilon"], 100 * told["l2"] / told["epsilon"]),
        )
    reports, seconds = timed(lambda: [noise(row) for row in values.tolist()], len(values))
    return np.asarray(reports), seconds, 8.0 * values.shape[1]


for _kind in ("laplace", "gaussian"):
    JOBS[f"vector opendp make_{_kind}"] = lambda values, told, kind=_kind: opendp_vector(kind, values, told)


@job("vector flwr LocalDpMod")
def flower(values: Any, told: dict[str, Any]) -> tuple[Any, float, float]:
    """Flower's mod on each client's update, with the clipping norm and sensitivity that a reader would give it."""
    mods, app = importlib.import_module("flwr.clientapp.mod"), importlib.import_module("flwr.app")
    logging.getLogger("flwr").setLevel(logging.ERROR)

    def message(weights: Any) -> Any:
        record = app.ArrayRecord([np.asarray(weights, dtype=float)])
        return SimpleNamespace(content=app.RecordDict({"weights": record}), has_error=lambda: False)

    mod = mods.LocalDpMod(told["norm"], told["sensitivity"], told["epsilon"], told["delta"])
    start = np.zeros(values.shape[1])

    def draw(update: Any) -> Any:
        sent = mod(message(start), None, lambda *_: message(update))
        return sent.content["weights"].to_numpy_ndarrays()[0]

    reports, seconds = timed(lambda: [draw(row) for row in values], len(values))
    return np.asarray(reports), seconds, 4.0 * values.shape[1]


@job("texts pure-ldp PEM")
def prefixes(values: Any, told: dict[str, Any]) -> tuple[Any, float, float]:
    """PEM with fast local hashing; returns the found texts."""
    client_class, server_class = (
        getattr(importlib.import_module("pure_ldp.heavy_hitters"), name) for name in ("PEMClient", "PEMServer")
    )
    hashing = importlib.import_module("pure_ldp.frequency_oracles.local_hashing")
    epsilon, longest = told["epsilon"], told["longest"]
    alphabet = [*"abcdefghijklmnopqrstuvwxyz", "*"]
    oracle_server = hashing.FastLHServer(epsilon, 27**2, k=200, use_olh=True)
    oracle_client = hashing.FastLHClient(epsilon, 27**2, k=200, use_olh=True)
    server = server_class(epsilon, 2, longest, 1, alphabet=alphabet, fo_server=oracle_server)
    client = client_class(epsilon, 2, longest, 1, alphabet=alphabet, fo_client=oracle_client)

    def collected() -> list[str]:
        for word in values.tolist():
            server.aggregate(client.privatise(word))
        return [str(word).strip("*") for word in server.find_heavy_hitters(k=told["texts"])[0]]

    found, seconds = timed(collected, len(values))
    return np.asarray(found), seconds, 6.0


@job("central diffprivlib LogisticRegression")
def logistic(values: Any, told: dict[str, Any]) -> tuple[Any, float, float]:
    """Objective perturbation; the last column is the label; returns the share of right answers on the test rows."""
    models = importlib.import_module("diffprivlib.models")
    rows, labels, split = values[:, :-1], values[:, -1].astype(int), told["train"]
    found, began = [], time.process_time()
    for seed in range(told["most"]):
        model = models.LogisticRegression(
            epsilon=told["epsilon"], data_norm=told["norm"], random_state=seed, max_iter=300
        )
        model.fit(rows[:split], labels[:split])
        found.append(float(model.score(rows[split:], labels[split:])))
    return np.asarray(found), (time.process_time() - began) / len(found) / split, 0.0


@job("central diffprivlib GaussianNB")
def bayes(values: Any, told: dict[str, Any]) -> tuple[Any, float, float]:
    """Naive Bayes with given bounds."""
    models = importlib.import_module("diffprivlib.models")
    rows, labels, split = values[:, :-1], values[:, -1].astype(int), told["train"]
    found, began = [], time.process_time()
    for seed in range(told["most"]):
        model = models.GaussianNB(epsilon=told["epsilon"], bounds=(told["low"], told["high"]), random_state=seed)
        model.fit(rows[:split], labels[:split])
        found.append(float(model.score(rows[split:], labels[split:])))
    return np.asarray(found), (time.process_time() - began) / len(found) / split, 0.0


@job("central diffprivlib LinearRegression")
def linear(values: Any, told: dict[str, Any]) -> tuple[Any, float, float]:
    """Functional mechanism on bounded rows; the last column is the target; returns mean squared errors."""
    models = importlib.import_module("diffprivlib.models")
    rows, target, split = values[:, :-1], values[:, -1], told["train"]
    found, began = [], time.process_time()
    for seed in range(told["most"]):
        model = models.LinearRegression(
            epsilon=told["epsilon"], bounds_X=(told["low"], told["high"]), bounds_y=(-1.0, 1.0), random_state=seed
        )
        model.fit(rows[:split], target[:split])
        found.append(float(np.mean(np.square(model.predict(rows[split:]) - target[split:]))))
    return np.asarray(found), (time.process_time() - began) / len(found) / split, 0.0


def main() -> None:
    """Answer jobs until there are no more."""
    answers, sys.stdout = sys.stdout, sys.stderr  # libraries print
    for line in sys.stdin:
        told = json.loads(line)
        try:
            made, seconds, size = JOBS[told["job"]](np.load(told["given"]), told)
            np.save(told["made"], made)
            answer = {"seconds": seconds, "bytes": size}
        except ImportError as error:
            answer = {"missing": str(error)}
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"[:400]}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
