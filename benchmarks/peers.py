"""Times the peers. Runs in .venv-peers, prints one JSON object: seconds a value for each job that run.py names."""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np


def seconds(job: Callable[[], Any], repeats: int) -> float:
    """Return the median time of a job after one run to warm up."""
    job()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        job()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def opendp(values: list[float], repeats: int) -> dict[str, float]:
    """OpenDP's floating-point safe noise, on the same vector and with the same scales as ours."""
    import opendp.prelude as dp

    dp.enable_features("contrib")
    domain = dp.vector_domain(dp.atom_domain(T=float, nan=False))
    laplace = dp.m.make_laplace(domain, dp.l1_distance(T=float), scale=2.0)
    gaussian = dp.m.make_gaussian(domain, dp.l2_distance(T=float), scale=8.45)
    return {
        "opendp laplace": seconds(lambda: laplace(values), repeats) / len(values),
        "opendp gaussian": seconds(lambda: gaussian(values), repeats) / len(values),
    }


def multi_freq(values: list[int], size: int, epsilon: float, repeats: int) -> dict[str, float]:
    """multi-freq-ldpy's clients and aggregators."""
    from multi_freq_ldpy.pure_frequency_oracles.GRR import GRR_Aggregator_MI, GRR_Client
    from multi_freq_ldpy.pure_frequency_oracles.LH import LH_Aggregator_MI, LH_Client
    from multi_freq_ldpy.pure_frequency_oracles.UE import UE_Aggregator_MI, UE_Client

    def grr() -> None:
        GRR_Aggregator_MI([GRR_Client(value, size, epsilon) for value in values], size, epsilon)

    def oue() -> None:
        UE_Aggregator_MI([UE_Client(value, size, epsilon, True) for value in values], epsilon, True)

    def olh() -> None:
        LH_Aggregator_MI([LH_Client(value, size, epsilon, True) for value in values], size, epsilon, True)

    jobs = {"grr": grr, "oue": oue, "olh": olh}
    return {f"multi-freq-ldpy {name}": seconds(job, repeats) / len(values) for name, job in jobs.items()}


def pure_ldp(values: list[int], size: int, epsilon: float, repeats: int) -> dict[str, float]:
    """pure-ldp's clients and servers."""
    from pure_ldp.frequency_oracles.direct_encoding import DEClient, DEServer
    from pure_ldp.frequency_oracles.local_hashing import LHClient, LHServer
    from pure_ldp.frequency_oracles.unary_encoding import UEClient, UEServer

    def run(client: Any, server: Any) -> None:
        for value in values:
            server.aggregate(client.privatise(value + 1))
        server.estimate_all(range(1, size + 1), suppress_warnings=True)

    pairs = {
        "grr": lambda: (DEClient(epsilon, size), DEServer(epsilon, size)),
        "oue": lambda: (UEClient(epsilon, size, use_oue=True), UEServer(epsilon, size, use_oue=True)),
        "olh": lambda: (LHClient(epsilon, size, use_olh=True), LHServer(epsilon, size, use_olh=True)),
    }
    return {
        f"pure-ldp {name}": seconds(lambda pair=pair: run(*pair()), repeats) / len(values)
        for name, pair in pairs.items()
    }


def diffprivlib(values: list[float], repeats: int) -> dict[str, float]:
    """diffprivlib's Laplace, one value at a time as it is made."""
    from diffprivlib.mechanisms import Laplace

    mechanism = Laplace(epsilon=1.0, sensitivity=2.0)
    return {"diffprivlib laplace": seconds(lambda: [mechanism.randomise(v) for v in values], repeats) / len(values)}


def main() -> None:
    """Read the setting from standard input and print the times."""
    setting = json.load(sys.stdin)
    rng = np.random.default_rng(0)
    reals = rng.uniform(-1, 1, setting["reals"]).tolist()
    codes = rng.integers(0, setting["size"], setting["codes"]).tolist()
    repeats = setting["repeats"]
    times = opendp(reals, repeats) | diffprivlib(reals[:20_000], repeats)
    times |= multi_freq(codes, setting["size"], setting["epsilon"], repeats)
    times |= pure_ldp(codes, setting["size"], setting["epsilon"], repeats)
    json.dump(times, sys.stdout)


if __name__ == "__main__":
    main()
