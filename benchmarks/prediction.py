"""How much faster a prediction is than the experiment it replaces.

Fifteen mechanisms collect the means of d dimensions from n users; those that report single dimensions report m each.
One and the same run predicts the error of each and then simulates the whole collection once: it draws the users'
values, privatises, aggregates and estimates. Times are of the processor; the simulated error stands beside the
predicted one.

Run `python benchmarks/prediction.py` for n = 200,000, d = 5,000, m = 50, minutes long, or `--small` for seconds.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from typing import Any

import numpy as np

import noisette as nz
from noisette.prediction import compare

SCALARS = tuple(
    name
    for name, cls in nz.CATALOGUE.items()
    if ".scalar." in cls.__module__ and cls.example(1.0).guarantee.delta == 0 and name != "discrete-laplace"
)
ENTRIES = 10_000_000  # values drawn at a time


def build(dims: int, report: int) -> dict[str, Any]:
    """Return fifteen mechanisms for the same collection at a budget of one."""
    common: dict[str, Any] = {"epsilon": 1.0, "dims": dims, "report": report}
    made: dict[str, Any] = {name: nz.Sampled(name, **common) for name in [*SCALARS, "lp-optimal"]}
    made["square-wave, debiased"] = nz.Sampled("square-wave", **common, options={"debiased": True})
    made["gaussian"] = nz.Sampled("gaussian", **common, delta=1e-6)
    made["duchi-box"] = nz.DuchiBox(epsilon=1.0, dims=dims)
    ball = nz.L2Ball(dims, dims**0.5)
    made["privunit"] = nz.PrivUnit(epsilon=1.0, domain=ball)
    made["privunit-g"] = nz.PrivUnitG(epsilon=1.0, domain=ball)
    record = nz.Attributes((nz.Interval(),) * dims)
    made["sampled-attributes"] = nz.SampledAttributes("duchi", epsilon=1.0, domain=record, report=report)
    return made


def predict(users: int, dims: int, report: int, repeats: int) -> tuple[float, dict[str, float]]:
    """Return the least processor time of a prediction of all fifteen, and the predicted root mean squared errors."""
    seconds = []
    for _ in range(repeats):
        start = time.process_time()
        mechanisms = build(dims, report)
        found = {name: compare([one], users=users, distribution="uniform")[0] for name, one in mechanisms.items()}
        seconds.append(time.process_time() - start)
    return min(seconds), {name: candidate.mse**0.5 for name, candidate in found.items()}


def simulate(users: int, dims: int, report: int) -> tuple[dict[str, float], dict[str, float]]:
    """Return the processor time of one simulated collection by each mechanism, and its root mean squared error.

    All of them see the same values, whose drawing counts once, under the name "values".
    """
    mechanisms = build(dims, report)
    rng = np.random.default_rng(1)
    seconds = dict.fromkeys(["values", *mechanisms], 0.0)
    sums, totals = np.zeros(dims), dict.fromkeys(mechanisms)
    warm = rng.uniform(-1, 1, (10, dims))
    for mechanism in mechanisms.values():
        mechanism.aggregate(mechanism.privatize(warm, rng=rng))
    block = max(1, ENTRIES // dims)
    for begin in range(0, users, block):
        start = time.process_time()
        rows = rng.uniform(-1, 1, (min(block, users - begin), dims))
        seconds["values"] += time.process_time() - start
        sums += rows.sum(axis=0)
        for name, mechanism in mechanisms.items():
            start = time.process_time()
            part = mechanism.aggregate(mechanism.privatize(rows, rng=rng))
            totals[name] = part if totals[name] is None else totals[name] + part
            seconds[name] += time.process_time() - start
        print(f"{begin + len(rows):,} of {users:,} users", end="\r", file=sys.stderr, flush=True)
    errors = {}
    for name, total in totals.items():
        estimate = total.estimate().value
        if name == "square-wave":  # its aggregate undoes the bias of the plain average that is predicted
            inner = mechanisms[name].inner_mechanism
            ends = inner.moments(np.asarray([-1.0, 1.0])).bias
            estimate = estimate * (1 + (ends[1] - ends[0]) / 2) + (ends[0] + ends[1]) / 2
        errors[name] = float(np.sqrt(np.mean((estimate - sums / users) ** 2)))
    return seconds, errors


def main() -> None:
    """Measure, and print a table or JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="a setting for the tests: seconds, not minutes")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    users, dims, report = (4000, 200, 5) if options.small else (200_000, 5000, 50)
    spent, predicted = predict(users, dims, report, repeats=3)
    seconds, found = simulate(users, dims, report)
    ratio = sum(seconds.values()) / spent
    if options.json:
        rows = [
            {"mechanism": n, "predicted": predicted[n], "simulated": found[n], "seconds": seconds[n]} for n in found
        ]
        told = {"users": users, "dims": dims, "report": report, "prediction": spent, "ratio": ratio}
        print(json.dumps(told | {"values": seconds["values"], "mechanisms": rows}))
        return
    print(f"{users:,} users, {dims:,} dimensions, {report} reported; {len(found)} mechanisms\n")
    print("| mechanism | predicted RMSE | simulated RMSE | simulation, s |\n| --- | ---: | ---: | ---: |")
    for name in found:
        print(f"| {name} | {predicted[name]:.4g} | {found[name]:.4g} | {seconds[name]:.1f} |")
    print(f"| drawing the values | | | {seconds['values']:.1f} |")
    whole = sum(seconds.values())
    print(f"\nPrediction of all: {spent:.3f} s. Simulation of all, once: {whole:.0f} s. Ratio {ratio:,.0f}.")


if __name__ == "__main__":
    main()
