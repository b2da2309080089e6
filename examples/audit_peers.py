"""Audit other people's code from the outside: OpenDP, diffprivlib, multi-freq-ldpy, pure-LDP and Flower's LocalDpMod.

make audit-peers                               all of them, in their own environment (.venv-peers); some minutes
python examples/audit_peers.py --small         fewer reports; libraries that are not installed are left out

`nz.audit` is given a function f(x, n, rng) that returns n reports of somebody's mechanism about x, two inputs or more,
and the claim; it looks at nothing else. A sound mechanism is called violated with probability 1e-6 at most. These
libraries draw from generators of their own, so the figures change a little from run to run.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import logging
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

import noisette as nz

Sampler = Callable[[Any, int, np.random.Generator], Any]

CONFIDENCE = 1 - 1e-6
DELTA = 1e-5
OLD_PURE_LDP = Path(sys.prefix) / "pure-ldp-1.1.2/pure_ldp/frequency_oracles/unary_encoding/ue_client.py"


@dataclass(frozen=True)
class Case:
    """One mechanism of a library, what it claims, and how to draw reports; ``share`` of the reports if it is slow."""

    library: str
    method: str
    claimed: float
    inputs: tuple[Any, ...]
    sampler: Sampler
    delta: float = 0.0
    gaussian: bool = False
    share: float = 1.0


@dataclass(frozen=True)
class Found:
    """What the reports show: epsilon at least, and for Gaussian noise the epsilon that its mu implies at delta."""

    library: str
    method: str
    claimed: float
    delta: float
    lower_bound: float
    gaussian_bound: float | None

    @property
    def verdict(self) -> str:
        """Whether either bound is above the claim."""
        return "violated" if max(self.lower_bound, self.gaussian_bound or 0.0) > self.claimed else "holds"


def one_by_one(draw: Callable[[Any], Any]) -> Sampler:
    """Return a sampler that calls a function for every report."""
    return lambda x, n, rng: [draw(x) for _ in range(n)]


def opendp() -> Iterator[Case]:
    """Laplace and Gaussian noise on vectors, and randomised response; OpenDP says itself what each is worth."""
    dp = importlib.import_module("opendp.prelude")
    dp.enable_features("contrib")
    numbers = dp.vector_domain(dp.atom_domain(T=float, nan=False))
    laplace = dp.m.make_laplace(numbers, dp.l1_distance(T=float), scale=2.0)
    gaussian = dp.m.make_gaussian(numbers, dp.l2_distance(T=float), scale=2.0)
    approximate = dp.c.make_zCDP_to_approxDP(gaussian)
    response = dp.m.make_randomized_response([0, 1, 2, 3], prob=0.5)

    def many(mechanism: Any) -> Sampler:
        return lambda x, n, rng: mechanism([x] * n)

    yield Case("opendp", "make_laplace", laplace.map(2.0), (-1.0, 1.0), many(laplace))
    stated = approximate.map(2.0).epsilon(DELTA)
    yield Case("opendp", "make_gaussian", stated, (-1.0, 1.0), many(gaussian), DELTA, gaussian=True, share=0.5)
    yield Case("opendp", "make_randomized_response", response.map(1), (0, 1, 2, 3), one_by_one(response), share=0.5)


def diffprivlib() -> Iterator[Case]:
    """Mechanisms for a number in [-1, 1], or for a count that changes by one, at epsilon 1."""
    made = importlib.import_module("diffprivlib.mechanisms")
    bounds = {"lower": -1.0, "upper": 1.0}
    for name, options in {"Laplace": {}, "LaplaceTruncated": bounds, "Staircase": {}, "Snapping": bounds}.items():
        mechanism = getattr(made, name)(epsilon=1.0, sensitivity=2.0, **options)
        yield Case("diffprivlib", name, 1.0, (-1.0, 1.0), one_by_one(mechanism.randomise))
    slow = made.LaplaceBoundedDomain(epsilon=1.0, sensitivity=2.0, **bounds)
    yield Case("diffprivlib", "LaplaceBoundedDomain", 1.0, (-1.0, 1.0), one_by_one(slow.randomise), share=0.5)
    geometric = made.Geometric(epsilon=1.0, sensitivity=1)
    yield Case("diffprivlib", "Geometric", 1.0, (0, 1), one_by_one(geometric.randomise))
    for name in ("Gaussian", "GaussianAnalytic"):
        mechanism = getattr(made, name)(epsilon=1.0, delta=DELTA, sensitivity=2.0)
        yield Case("diffprivlib", name, 1.0, (-1.0, 1.0), one_by_one(mechanism.randomise), DELTA, gaussian=True)


def multi_freq_ldpy() -> Iterator[Case]:
    """Frequency oracles at epsilon 1; subset selection in the order in which it returns its categories, and sorted."""
    library, folder = "multi-freq-ldpy", "multi_freq_ldpy.pure_frequency_oracles"
    grr, unary, subset, hashing, histogram = (
        importlib.import_module(f"{folder}.{name}") for name in ("GRR", "UE", "SS", "LH", "HE")
    )
    pair, size, buckets = (0, 1), 20, round(np.e) + 1
    xxhash = importlib.import_module("xxhash")

    def supported(x: int, optimal: bool = True) -> list[bool]:
        value, seed = hashing.LH_Client(x, size, 1.0, optimal)
        codes = buckets if optimal else 2
        return [xxhash.xxh32(str(category), seed=seed).intdigest() % codes == value for category in pair]

    yield Case(library, "GRR", 1.0, (0, 1, 2, 3), one_by_one(lambda x: grr.GRR_Client(x, 4, 1.0)))
    yield Case(library, "SUE", 1.0, pair, one_by_one(lambda x: unary.UE_Client(x, 4, 1.0, False)))
    yield Case(library, "OUE", 1.0, pair, one_by_one(lambda x: unary.UE_Client(x, 4, 1.0, True)))
    yield Case(library, "OLH", 1.0, pair, one_by_one(supported))
    yield Case(library, "BLH", 1.0, pair, one_by_one(lambda x: supported(x, False)))
    adaptive = importlib.import_module(f"{folder}.ADP")
    yield Case(library, "ADP", 1.0, pair, one_by_one(lambda x: adaptive.ADP_Client(x, size, 1.0, True)), share=0.5)
    yield Case(library, "HE", 1.0, pair, one_by_one(lambda x: histogram.HE_Client(x, 4, 1.0)))
    yield Case(library, "SS, as returned", 1.0, pair, one_by_one(lambda x: subset.SS_Client(x, size, 1.0)))
    yield Case(library, "SS, sorted", 1.0, pair, one_by_one(lambda x: np.sort(subset.SS_Client(x, size, 1.0))))


def pure_ldp() -> Iterator[Case]:
    """Unary and direct encoding at epsilon 1: as they are, and unary encoding as it was until version 1.1.2."""
    oracles = "pure_ldp.frequency_oracles"
    direct = importlib.import_module(f"{oracles}.direct_encoding").DEClient(1.0, 4)
    yield Case("pure-ldp 1.2.0", "DE", 1.0, (1, 2, 3, 4), one_by_one(direct.privatise))
    yield from _pure_ldp_sketches(oracles)
    clients = {"1.2.0": importlib.import_module(f"{oracles}.unary_encoding").UEClient}
    if OLD_PURE_LDP.exists():
        spec: Any = importlib.util.spec_from_file_location("old_ue_client", OLD_PURE_LDP)
        old = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(old)
        clients["1.1.2"] = old.UEClient
    for version, client in clients.items():
        for optimised, name in ((False, "SUE"), (True, "OUE")):
            mechanism = client(1.0, 4, use_oue=optimised)
            yield Case(f"pure-ldp {version}", name, 1.0, (1, 2), one_by_one(mechanism.privatise), share=0.5)


def _pure_ldp_sketches(oracles: str) -> Iterator[Case]:
    """Return local hashing and Hadamard's, with few hashes so that all reports are seen; Apple's fail with numpy 2."""
    library, pair, size = "pure-ldp 1.2.0", (1, 2), 4
    xxhash = importlib.import_module("xxhash")
    hashing = importlib.import_module(f"{oracles}.local_hashing")

    def supported(client: Any) -> Sampler:
        def draw(x: int) -> list[bool]:
            value, seed = client.privatise(x)
            return [xxhash.xxh32(str(item - 1), seed=seed).intdigest() % client.g == value for item in pair]

        return one_by_one(draw)

    for name, optimal in (("OLH", True), ("BLH", False)):
        yield Case(library, name, 1.0, pair, supported(hashing.LHClient(1.0, 20, use_olh=optimal)), share=0.5)
    fast = hashing.FastLHClient(1.0, 20, k=4, use_olh=True)
    yield Case(library, "FLH", 1.0, pair, one_by_one(fast.privatise), share=0.5)
    histogram = importlib.import_module(f"{oracles}.histogram_encoding").HEClient(1.0, size)
    yield Case(library, "THE", 1.0, pair, one_by_one(histogram.privatise), share=0.5)
    response = importlib.import_module(f"{oracles}.hadamard_response")
    for epsilon in (1.0, 2.0):  # other code runs above 1
        server = response.HadamardResponseServer(epsilon, size)
        client = response.HadamardResponseClient(epsilon, size, hash_funcs=server.get_hash_funcs())
        name = "HR" if epsilon == 1.0 else "HR, epsilon 2"
        yield Case(library, name, epsilon, (1, 2, 3, 4), one_by_one(client.privatise), share=0.5)
    bit = importlib.import_module(f"{oracles}.hadamard_mechanism").HadamardMechClient(1.0, size, t=1)
    yield Case(library, "HM", 1.0, (1, 2, 3, 4), one_by_one(lambda x: np.ravel(list(bit.privatise(x)))), share=0.5)


def flower() -> Iterator[Case]:
    """LocalDpMod on updates of three weights, clipped to norm 1: two of them differ by 2 at most.

    The mod runs as it is; of the messages around it only what it reads is there.
    """
    mods, app = importlib.import_module("flwr.clientapp.mod"), importlib.import_module("flwr.app")
    logging.getLogger("flwr").setLevel(logging.ERROR)

    def message(weights: Any) -> Any:
        record = app.ArrayRecord([np.asarray(weights, dtype=float)])
        return SimpleNamespace(content=app.RecordDict({"weights": record}), has_error=lambda: False)

    def sampler(mod: Any) -> Sampler:
        def draw(update: tuple[float, ...]) -> Any:
            sent = mod(message(np.zeros(3)), None, lambda *_: message(update))
            return sent.content["weights"].to_numpy_ndarrays()[0]

        return one_by_one(draw)

    updates = ((-5.0, 0.0, 0.0), (5.0, 0.0, 0.0))
    for epsilon, sensitivity in ((1.0, 2.0), (1.0, 1.0), (1.0, 1e-4), (16.0, 2.0)):
        mod = mods.LocalDpMod(clipping_norm=1.0, sensitivity=sensitivity, epsilon=epsilon, delta=DELTA)
        method = f"LocalDpMod, epsilon {epsilon:g}, sensitivity {sensitivity:g}"
        yield Case("flwr", method, epsilon, updates, sampler(mod), DELTA, gaussian=True, share=0.1)


LIBRARIES: dict[str, Callable[[], Iterator[Case]]] = {
    "opendp": opendp,
    "diffprivlib": diffprivlib,
    "multi_freq_ldpy": multi_freq_ldpy,
    "pure_ldp": pure_ldp,
    "flwr": flower,
}


def examine(case: Case, samples: int) -> Found:
    """Audit one mechanism."""
    from noisette.accounting import gdp_epsilon

    audit = nz.audit(
        case.sampler,
        inputs=case.inputs,
        claimed=case.claimed,
        delta=case.delta,
        samples=max(int(case.share * samples), 1000),
        confidence=CONFIDENCE,
        rng=7,
    )
    mu = audit.mu_lower_bound
    implied = gdp_epsilon(mu, case.delta) if case.gaussian and 0 < mu < np.inf else None
    return Found(case.library, case.method, case.claimed, case.delta, audit.lower_bound, implied)


def show(found: list[Found]) -> None:
    """Print the table."""
    table = Table("mechanism", title="Epsilon that reports show at least, at confidence 1 - 1e-6")
    for title in ("claimed", "shown", "if Gaussian"):
        table.add_column(title, justify="right")
    table.add_column("verdict")
    for row in found:
        claimed = f"{row.claimed:.3g}" + (f", δ={row.delta:g}" if row.delta else "")
        implied = "" if row.gaussian_bound is None else f"{row.gaussian_bound:.3g}"
        verdict = f"[red]{row.verdict}[/]" if row.verdict == "violated" else row.verdict
        table.add_row(f"{row.library}: {row.method}", claimed, f"{row.lower_bound:.3f}", implied, verdict)
    Console().print(table)


def main() -> None:
    """Audit what is installed."""
    parser = argparse.ArgumentParser(description="Audit other libraries from the outside.")
    parser.add_argument("--small", action="store_true", help="10,000 reports about each input instead of 200,000")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    missing = [name for name in LIBRARIES if importlib.util.find_spec(name) is None]
    if missing:
        print(f"Not installed here, left out: {', '.join(missing)}. `make audit-peers` has all.", file=sys.stderr)
    cases = [case for name, build in LIBRARIES.items() if name not in missing for case in build()]
    console = Console(stderr=True)
    samples = 10_000 if options.small else 200_000
    queue = track(cases, "Auditing", console=console, disable=not console.is_terminal)
    found = [examine(case, samples) for case in queue]
    if options.json:
        print(json.dumps([asdict(row) | {"verdict": row.verdict} for row in found]))
    else:
        show(found)


if __name__ == "__main__":
    main()
