"""Speed of private regression on the census table: one pass over 3.4 million persons, one-hot categories.

NOISETTE_DATA=... python benchmarks/regression.py             every row of the ACS; the promise is two minutes
NOISETTE_DATA=... python benchmarks/regression.py --small     20,000 of them
NOISETTE_DATA=... python benchmarks/regression.py --compare   error of gradients beside one report of second moments
NOISETTE_DATA=... python benchmarks/regression.py --adult     AUC on all attributes of Adult, naive oracles beside ours
python benchmarks/regression.py --coverage                    how often intervals of 95 % hold the truth, in 2,000 runs
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np
from experiments.hierarchical.regression_data import ATTRIBUTES, TARGET, design, people

from noisette import Categorical, Interval, datasets
from noisette.enhancement.simplex import project
from noisette.mechanisms.build import build
from noisette.regression import ClassPairs, Design, Inference, OneShot, Training, coding_for

PROMISE = 120.0  # seconds, on two cores; this uses one
CASES = (
    ("auto", 1.0),
    ("auto", 4.0),
    ("harmony", 1.0),
    ("piecewise", 1.0),
    ("hybrid", 1.0),
    ("privunit", 1.0),
    ("privunit-g", 1.0),
    ("levelled", 1.0),
    ("graded-laplace", 1.0),
    ("optimal-graded", 1.0),
)


def measure(mechanism: str, epsilon: float, rows: Any, income: Any) -> dict[str, Any]:
    """Return the time of a training by devices with noise of the operating system."""
    training = Training(design(coding_for(epsilon)), TARGET, epsilon, mechanism=mechanism)
    _ = training.channel.noise  # a linear programme is solved once and kept
    started, busy = time.perf_counter(), time.process_time()
    model = training.run([(rows, income)], clip=True)
    return {
        "mechanism": mechanism,
        "epsilon": epsilon,
        "users": model.users,
        "columns": training.design.width,
        "rounds": model.rounds,
        "seconds": time.perf_counter() - started,
        "cpu_seconds": time.process_time() - busy,
    }


def compare(seeds: int = 3) -> None:
    """Print the errors of gradients and of second moments on 50,000 other persons, as a table for the docs."""
    rows, income = people()
    order = np.random.default_rng(0).permutation(len(rows))
    rows, income = rows[order], np.clip(income[order], TARGET.low, TARGET.high)
    test, truth = rows[-50_000:], TARGET.to_canonical(income[-50_000:])
    print("| columns | users | epsilon | gradients | second moments | predicted for them | least squares |")
    print("| ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    for chosen in (["AGEP", "SCHL"], ["AGEP", "SCHL", "WKHP", "SEX"], list(ATTRIBUTES)):
        places = [list(ATTRIBUTES).index(name) for name in chosen]
        attributes = tuple(ATTRIBUTES[name] for name in chosen)
        exact = _least_squares(Design(attributes), rows[:200_000, places], income[:200_000], test[:, places], truth)
        for users in (20_000, 100_000) if len(chosen) < 5 else (20_000,):  # wide products take minutes
            for epsilon in (1.0, 4.0):
                training = Training(Design(attributes, coding=coding_for(epsilon)), TARGET, epsilon)
                shot = OneShot(Design(attributes), TARGET, epsilon)
                found: list[tuple[float, float, float]] = []
                for seed in range(seeds):
                    part = slice(seed * users, (seed + 1) * users)
                    stream = [(rows[part][:, places], income[part])]
                    model = training.run(stream, rng=seed)
                    solution = shot.run(stream, rng=seed)
                    predictions = training.predict(model, test[:, places]), shot.predict(solution, test[:, places])
                    errors = (float(np.mean(np.square(TARGET.to_canonical(p) - truth))) for p in predictions)
                    found.append((*errors, exact + solution.excess))
                means = " | ".join(f"{mean:.3f}" for mean in np.mean(found, axis=0))
                print(f"| {shot.design.width} | {users:,} | {epsilon:g} | {means} | {exact:.3f} |", flush=True)


def _least_squares(columns: Design, rows: Any, income: Any, test: Any, truth: Any) -> float:
    """Return the error of least squares without privacy."""
    weights = np.linalg.lstsq(columns.encode(rows), TARGET.to_canonical(income))[0]
    return float(np.mean(np.square(columns.encode(test) @ weights - truth)))


ADULT = {
    "age": Interval(17, 90),
    "education_num": Interval(1, 16),
    "hours_per_week": Interval(1, 99),
    "capital_gain": Interval(0, 99_999),
    "capital_loss": Interval(0, 4356),
}
ADULT_CATEGORIES = ("sex", "marital_status", "relationship", "race", "workclass", "occupation", "native_country")
SEVEN = ("age", "education_num", "hours_per_week", *ADULT_CATEGORIES[:4])


def adult(chosen: tuple[str, ...]) -> tuple[tuple[Interval | Categorical, ...], Any, Any, Any]:
    """Return attributes, rows, who earns above 50,000, and who is tested."""
    table = datasets.table("adult")
    attributes, columns = [], []
    for name in chosen:
        values = np.asarray(table[name].to_pylist())
        if name in ADULT:
            attributes.append(ADULT[name])
            columns.append(values.astype(np.float64))
        else:
            labels, codes = np.unique(values.astype(str), return_inverse=True)
            attributes.append(Categorical(len(labels)))
            columns.append(codes.astype(np.float64))
    rich = np.asarray([">50K" in value for value in table["income"].to_pylist()]).astype(np.int64)
    return tuple(attributes), np.column_stack(columns), rich, np.asarray(table["split"].to_pylist()) != "train"


def above(score: Any, classes: Any) -> float:
    """Return the area under the ROC curve: the chance that one of the second class is put above one of the first."""
    _, place, counts = np.unique(score, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[place]
    second = int(classes.sum())
    return float((ranks[classes == 1].sum() - second * (second + 1) / 2) / (second * (len(classes) - second)))


def naive_bayes(pairs: ClassPairs, rows: Any, classes: Any, rng: np.random.Generator) -> Any:
    """Return log-odds of each part of each attribute, from one report a user of the pair by randomised response."""
    matrix = pairs.design.encode(rows)
    drawn, odds = rng.integers(0, len(pairs.design.attributes), len(rows)), []
    for place in range(len(pairs.design.attributes)):
        own = drawn == place
        cells = 2 * pairs._part(matrix[own], place) + classes[own]
        oracle = build("grr", pairs._mechanisms[place].domain, epsilon=pairs.epsilon)
        shares = project(oracle.aggregate(oracle.privatize(cells, rng=rng)).estimate().value).reshape(-1, 2)
        odds.append(np.diff(np.log(shares + 1 / own.sum())).ravel())
    return odds


def areas(seeds: int = 41) -> None:
    """Print the AUC on Adult at epsilon 0.5: medians over runs, with two naive oracles in the same runs."""
    print("| attributes | epsilon | pairs | one gradient at zero | naive Bayes of randomised response |")
    print("| ---: | ---: | ---: | ---: | ---: |")
    for chosen in ((*ADULT, *ADULT_CATEGORIES), SEVEN):
        attributes, rows, rich, test = adult(chosen)
        own = Design(attributes)
        tested = own.encode(rows[test])
        for epsilon in (0.5, 1.0, 2.0, 4.0):
            pairs, found = ClassPairs(own, epsilon), []
            parts = [pairs._part(tested, place) for place in range(len(attributes))]
            for seed in range(seeds):
                rng = np.random.default_rng(seed)
                train = rng.permutation(np.flatnonzero(~test))
                known = rows[train], rich[train]
                once = Training(own, Categorical(2), epsilon, batch=len(train)).run([known], rng=rng)
                odds = naive_bayes(pairs, *known, rng)
                scores = (
                    tested @ pairs.run(*known, rng=rng).average,
                    tested @ once.weights,
                    np.sum([table[part] for table, part in zip(odds, parts, strict=True)], axis=0),
                )
                found.append([above(score, rich[test]) for score in scores])
            cells = [
                f"{np.median(column):.3f} ({min(column):.3f} to {max(column):.3f})"
                for column in zip(*found, strict=True)
            ]
            print(f"| {len(chosen)} | {epsilon:g} | {' | '.join(cells)} |", flush=True)


COVERED = (
    *(("linear", "even", 8.0, 6000), ("logistic", "even", 8.0, 12_000), ("linear", "uneven", 8.0, 4000)),
    # near the limit of what noise hides
    *(("linear", "even", 4.0, 700), ("linear", "uneven", 8.0, 1000), ("linear", "uneven", 4.0, 5000)),
    *(("logistic", "even", 4.0, 2000), ("logistic", "uneven", 8.0, 3000)),
)
TRUTH = {"linear": (-0.3, 0.06, 0.2), "logistic": (-1.0, 0.25, 0.8)}


def drawn(columns: str, users: int, rng: np.random.Generator) -> Any:
    """Return a number and a category of some users: even and independent, or skewed, rare and dependent."""
    if columns == "even":
        return np.column_stack([rng.uniform(0, 10, users), rng.integers(0, 2, users)])
    number = 10 * rng.beta(2, 5, users)
    return np.column_stack([number, rng.random(users) < 0.05 + 0.05 * number])


def coverage(runs: int = 2000) -> None:
    """Print how often intervals of 95 % that are given hold intercept, slope and the effect of a category."""
    own = Design((Interval(0, 10), Categorical(2)))
    rng = np.random.default_rng(5)
    for model, columns, epsilon, users in COVERED:
        inference = Inference(own, Interval() if model == "linear" else Categorical(2), epsilon)
        truth, held, blind = np.asarray(TRUTH[model]), np.zeros(3), 0
        for _ in range(runs):
            rows = drawn(columns, users, rng)
            score = truth[0] + rows @ truth[1:]
            noisy = score + rng.uniform(-0.3, 0.3, users)
            target = noisy if model == "linear" else (rng.random(users) < 1 / (1 + np.exp(-score))).astype(int)
            found = inference.run(rows, target, rng=rng)
            low, high = found.interval()
            told = np.isfinite(found.std_error[0])
            held += told & (low <= truth) & (truth <= high)
            blind += not told
        shares = " | ".join(f"{100 * share:.1f}" for share in held / max(runs - blind, 1))
        print(f"| {model} | {columns} | {epsilon:g} | {users:,} | {shares} | {blind} |", flush=True)


def main() -> None:
    """Measure all cases and print a table, or JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--compare", action="store_true")
    parser.add_argument("--adult", action="store_true")
    parser.add_argument("--coverage", action="store_true")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--only", action="append", help="a mechanism; again for another")
    options = parser.parse_args()
    if options.coverage:
        coverage()
        return
    if options.adult:
        areas()
        return
    if options.compare:
        compare()
        return
    rows, income = people(every=True)  # a missing income counts as 0 here: time is measured, not error
    if options.small:
        rows, income = rows[:20_000], income[:20_000]
    found = []
    for mechanism, epsilon in CASES:
        if options.only and mechanism not in options.only:
            continue
        found.append(measure(mechanism, epsilon, rows, income))
        if not options.json:
            last = found[-1]
            kept = "kept" if last["seconds"] <= PROMISE else "broken"
            what = f"{last['users']:>9,} users {last['columns']} columns {last['rounds']:>6,} rounds"
            spent = f"{last['seconds']:6.1f} s ({last['cpu_seconds']:.1f} s of one core)"
            print(f"{mechanism:15} epsilon {epsilon:<4g} {what} {spent}: {kept}", flush=True)
    if options.json:
        print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
