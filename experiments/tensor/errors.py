"""The covariance of CTG, and Table IV: errors by formula, as measured, and how they grow."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
from scipy.stats import chi2

import noisette as nz
from experiments.frame import Advance, Chart, Series, Study
from experiments.tensor.learning import SEED
from experiments.tensor.ways import DELTA, Way, ways
from noisette import datasets
from noisette._validate import FloatArray
from noisette.accounting import gdp_epsilon
from noisette.mechanisms.tensor.gaussian.jl import jl_delta, rss
from noisette.mechanisms.tensor.matrix.optimum import optimum

_ALARM = 1e-6
_COLUMNS = [
    "LB",
    "AC",
    "FM",
    "UC",
    "DL",
    "DS",
    "DP",
    "ASTV",
    "MSTV",
    "ALTV",
    "MLTV",
    "Width",
    "Min",
    "Max",
    "Nmax",
    "Nzeros",
    "Mode",
    "Mean",
    "Median",
    "Variance",
    "Tendency",
]


def cardiotocograms() -> FloatArray:
    """Return the 2,126 x 21 table of CTG, each column from its least to its largest value mapped to [-1, 1]."""
    table = datasets.table("ctg", _COLUMNS)
    values = np.stack([table[name].to_numpy().astype(float) for name in _COLUMNS], axis=1)
    low, high = values.min(axis=0), values.max(axis=0)
    return np.asarray(np.clip(2 * (values - low) / (high - low) - 1, -1, 1))


def ctg(full: bool, advance: Advance) -> Study:
    """Covariance estimation, judged by the residual sum of squares."""
    table = cardiotocograms()
    people, columns = table.shape
    truth = table.T @ table / people
    repeats, claims = (40, (0.01, 0.1, 1.0, 10.0)) if full else (6, (0.1, 1.0))
    box = nz.TensorDomain((columns, columns), -1, 1)
    step, rows = 2 / people, []
    for place, claimed in enumerate(claims):
        options: dict[str, Any] = {"relation": f"box:{step!r}"}
        made: list[tuple[str, Any]] = [
            (name.upper(), nz.TensorGaussian(box, claimed, DELTA, calibration=name, **options))
            for name in ("mvg", "udn", "idn")
        ]
        # noise for each element, epsilon divided among them, as the paper's Gaussian and matrix mechanism have it
        narrow, size = nz.TensorDomain((columns, columns), -step / 2, step / 2), columns**2
        for label, covariances in (("Gaussian", None), ("MM", (None, _workload_noise(columns)))):
            composed = nz.TensorGaussian(
                narrow,
                claimed / size,
                DELTA / size,
                relation="element",
                calibration="classical",
                covariances=covariances,
            )
            made.append((label, composed))
        for label, mechanism in made:
            centre = truth if mechanism.domain == box else np.zeros_like(truth)
            found = [
                rss(truth + mechanism.privatize(centre, rng=np.random.default_rng([SEED, k])) - centre, truth)
                for k in range(repeats)
            ]
            # two persons differ by xx' - yy', of Frobenius norm sqrt(2) 21 at most
            true = gdp_epsilon(math.sqrt(2) * columns / people / mechanism.sigma, DELTA)
            rows.append((label, claimed, true, mechanism.sigma, *_spread(found)))
        found = [rss(printed_sketch(table, claimed, np.random.default_rng([SEED, k])), truth) for k in range(repeats)]
        rows.append(("JL", claimed, printed_sketch_epsilon(columns, claimed), None, *_spread(found)))
        for label, method in (("JL, exact", "jl"), ("ours", "gaussian")):
            domain = nz.TensorDomain(table.shape, -1, 1)
            own = [
                nz.release_covariance(table, domain, claimed, DELTA, method=method, rng=SEED + k)
                for k in range(repeats)
            ]
            found = [rss(release.value, truth) for release in own]
            rows.append((label, claimed, claimed, None if method == "jl" else own[0].std, *_spread(found)))
        fewer = nz.TensorGaussian(
            nz.TensorBall((columns, columns), columns),
            claimed,
            DELTA,
            relation=f"l2:{columns / people!r}",
            symmetry=((0, 1),),
        )
        found = [rss(fewer.privatize(truth, rng=np.random.default_rng([SEED, k])), truth) for k in range(repeats)]
        std = math.sqrt(float(fewer.variances.mean()))
        rows.append(("ours, add-remove", claimed, claimed, std, *_spread(found)))
        advance((place + 1) / len(claims))
    by = {row[:2]: row for row in rows}
    ratios = [by["IDN", claimed][4] / by["ours", claimed][4] for claimed in claims]
    beside = [by["ours, add-remove", claimed][4] / by["JL, exact", claimed][4] for claimed in claims]
    printed = [by["JL", claimed][4] / by["IDN", claimed][4] for claimed in claims]
    lines = {}
    for column, axis, end in ((1, "claimed epsilon", "claimed"), (2, "true epsilon", "true")):
        shown = [row for row in rows if row[column] > 0]  # JL as printed has a true epsilon of 0: it is not drawn there
        lines[end] = Chart(
            f"ctg-{end}",
            f"CTG, residual sum of squares, delta = {DELTA:g}",
            axis,
            "RSS",
            [
                Series(label, [r[column] for r in shown if r[0] == label], [r[4] for r in shown if r[0] == label])
                for label in dict.fromkeys(row[0] for row in shown)
            ],
            log_x=True,
            log_y=True,
        )
    return Study(
        "CTG covariance: residual sum of squares (Figure 5, last part)",
        "IDN and UDN are better than JL and MM at all levels of privacy.",
        f"IDN's RSS is {min(ratios):,.0f} to {max(ratios):,.0f} times ours at the same claimed epsilon: its noise is "
        "that of a far smaller epsilon, it is not symmetric, and it takes 2 x 21 / n for a sensitivity of "
        f"sqrt(2) x 21 / n. JL as its authors print it has {min(printed):,.0f} times IDN's RSS or more, so that the "
        "claim holds of it; its ridge w is a thousand times what its promise needs. With the exact "
        "delta and many projections, which is ours, JL is better than IDN and UDN. It protects a person who joins or "
        "leaves, ours and the others one who is replaced, for which the "
        f"sensitivity is sqrt(2) times as large: at its own relation our RSS is {min(beside):.2f} to {max(beside):.2f} "
        "times that of JL. MM with every entry for workload is Gaussian noise; both divide epsilon among the entries. "
        "The table has the 21 columns of the paper's Table III, where its text has 26.",
        ("mechanism", "claimed epsilon", "true epsilon", "noise std", "mean RSS", "sd of RSS"),
        rows,
        {"repeats": repeats, "table": "2,126 x 21", "delta": DELTA, "seed": SEED},
        list(lines.values()),
    )


def printed_ridge(projections: int, epsilon: float) -> float:
    """Return w that Algorithm 3 of Blocki et al. 2012 prints, for rows that change by a length of one."""
    return 16 * math.sqrt(projections * math.log(2 / DELTA)) / epsilon * math.log(16 * projections / DELTA)


def printed_sketch(table: FloatArray, epsilon: float, rng: np.random.Generator) -> FloatArray:
    """Return X'X / n by that algorithm: as many projections as columns, fewer having the less noise; w is public.

    Rows are as long as the root of the number of columns at most, and one is added or removed.
    """
    people, columns = table.shape
    ridge = columns * printed_ridge(columns, epsilon) ** 2
    root = np.linalg.cholesky(table.T @ table + ridge * np.eye(columns))
    drawn = root @ rng.standard_normal((columns, columns))
    return np.asarray((drawn @ drawn.T / columns - ridge * np.eye(columns)) / people)


def printed_sketch_epsilon(projections: int, epsilon: float) -> float:
    """Return the epsilon that holds at delta = 1e-5 for that ridge, by the exact delta."""
    leverage = 1 / (1 + printed_ridge(projections, epsilon) ** 2)
    low, high = 0.0, epsilon
    while high - low > 1e-6 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if jl_delta(projections, leverage, middle) <= DELTA else (middle, high)
    return high


def _workload_noise(columns: int) -> FloatArray:
    """Return the covariance of the matrix mechanism whose workload is every entry: the optimal strategy's."""
    strategy = optimum(np.eye(columns)).strategy
    return np.asarray(np.linalg.inv(strategy.T @ strategy))


def _spread(found: list[float]) -> tuple[float, float]:
    """Return mean and standard deviation."""
    return float(np.mean(found)), float(np.std(found, ddof=1))


def table_iv(full: bool, advance: Advance) -> Study:
    """Expected squared errors at one unit, the whole tensor: formula, measurement, order of growth."""
    claimed, samples = 1.0, 400 if full else 40
    shapes = [(16, 4, 4), (16, 8, 8), (16, 16, 16), (16, 32, 32)] if full else [(8, 4, 4), (8, 16, 16)]
    printed = {"Gaussian": 3, "MVG": 3, "UDN": 3, "IDN": 3, "Optimized": 2, "ours, batch": 2}
    formulas: dict[str, list[float]] = {label: [] for label in printed}
    rows = []
    for place, shape in enumerate(shapes):
        size = math.prod(shape)
        exact = 0.0
        own = []
        for way in (*ways(claimed, shape), _optimized(claimed, shape)):
            if way.label not in printed:
                continue
            formula = way.mechanism.expected_error()
            zero = np.zeros((samples, *shape))
            noise = np.square(way.release(zero, SEED + place)).sum(axis=(1, 2, 3))
            measured = float(noise.mean())
            # |Z|^2 / s^2 of all samples together is chi-square with samples x I degrees
            degrees = samples * size
            low, high = (float(chi2.ppf(p, degrees)) / degrees for p in (_ALARM / 2, 1 - _ALARM / 2))
            formulas[way.label].append(formula)
            own.append((way.label, shape, formula, measured, low <= measured / formula <= high))
            exact = formula if way.label == "ours, batch" else exact
        for label, dims, formula, measured, agrees in own:
            times = "x".join(map(str, dims))
            rows.append((label, times, size, formula, measured, agrees, formula / exact))
        advance((place + 1) / len(shapes))
    slopes = {label: _slope([math.prod(s) for s in shapes], values) for label, values in formulas.items()}
    return Study(
        "Table IV: expected squared error of the noise, and how it grows",
        "With I entries and I_1 fixed: Gaussian I^3, MVG I^3 ln^2(I_1 + 1), UDN I_1 I^3, IDN I^3, Optimized I^2.",
        "Formula and measurement agree within what chance allows once in a million runs, row by row"
        + ("" if all(row[5] for row in rows) else ", **except where the table says no**")
        + ". Between the smallest and the largest tensor the errors grow like I to the power "
        + ", ".join(f"{slope:.2f} ({label})" for label, slope in slopes.items())
        + ". The guarantee is the same in all rows of a shape: (1, 1e-5) for the whole tensor. A power of I is lost in "
        "the proofs, not in the noise: the exact calibration has I^2. MVG grows faster than the paper's order says. "
        "Gaussian's I^3 comes of protecting an element "
        "and dividing epsilon among them. Optimized is Gaussian noise on the whole tensor, here of one lot without "
        "sampling, by the classical formula: as small as ours but for the slack of that formula.",
        (
            "mechanism",
            "shape",
            "I",
            "formula",
            "measured",
            "agrees",
            "times ours",
        ),
        rows,
        {"claimed epsilon": claimed, "samples": samples, "delta": DELTA, "seed": SEED},
        [
            Chart(
                "table-iv",
                "Squared error of noise at (1, 1e-5) for the whole tensor",
                "entries I",
                "E |Z|^2",
                [
                    Series(
                        label, [row[2] for row in rows if row[0] == label], [row[4] for row in rows if row[0] == label]
                    )
                    for label in printed
                ],
                log_x=True,
                log_y=True,
            )
        ],
    )


def _optimized(claimed: float, shape: tuple[int, ...]) -> Way:
    """Return what the paper calls Optimized, for one lot: the noise of Abadi et al. 2016 on all entries together."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", nz.PrivacyWarning)  # the classical formula at epsilon 1
        return Way(
            "Optimized",
            claimed,
            nz.TensorGaussian(nz.TensorDomain(shape, -1, 1), claimed, DELTA, calibration="classical"),
        )


def _slope(sizes: list[int], errors: list[float]) -> float:
    """Return the order of growth between the ends."""
    return math.log(errors[-1] / errors[0]) / math.log(sizes[-1] / sizes[0])
