"""Limits are promises: how much, how long and how many, as operators, users and other implementations rely on them.

A limit that changes is written here too, by hand, with a changelog fragment. Sizes that only say how much is worked on
at a time are not here: they promise nothing. Modules are read and not imported, so that no extra is needed.
"""

from __future__ import annotations

import ast
import functools
import math
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

SOURCE = Path(__file__).resolve().parents[1] / "src" / "noisette"
KIB, MIB, GIB = 1024, 1024**2, 1024**3

SERVICES: dict[str, dict[str, Any]] = {
    "_service.py": {
        "_PATIENCE": 10,
        "_OTHERS": 256,
        "_PIPELINED": 16,
        "_SPAN": 600,
        "_LINGER": 2.0,
        "_FREE": 16 * KIB,
        "_held": 0,
    },
    "collector/campaigns/issuing.py": {"_LARGEST": 4 * KIB},
    "collector/campaigns/life.py": {
        "_UNITS": {"second": 1, "minute": 60, "hour": 60 * 60, "day": 24 * 60 * 60, "week": 7 * 24 * 60 * 60},
        "_LONGEST": timedelta(days=100 * 365),
    },
    "collector/campaigns/roster.py": {"_EVERY": 1.0, "_KEEPING": 600},
    "collector/intake/reading.py": {"LARGEST_BATCH": 10_000, "_HARMLESS_BYTES": 4 * KIB, "_TOLD": 100},
    "collector/intake/shuffled.py": {"_DECLARED": 10},
    "collector/results/estimates.py": {"_DRIFTING": 64},
    "collector/results/found.py": {"_SHOWN": 20, "_GROWTH": 1.05},
    "collector/results/known.py": {"_TOLD": 3, "_EARLY": 0.5},
    "collector/results/liars.py": {"FALSE_ALARM": 1e-4},
    "collector/storage/filters.py": {"_FIRST": MIB, "_EACH": 24, "_SET": 5},
    "collector/storage/postgres.py": {
        ("_CONNECTING", "_POOLED"): (10, 30),
        "_UNANSWERED": 30 * 1000,
        "_LOCK": int.from_bytes(b"NZCO"),
        "_WRITERS": 256,
        "_IDLE": 1.0,
        "_FULL": 52 * MIB,
        "_BUSY": 7 * MIB,
        "_COPY_HEAD": bytes.fromhex("5047434f50590aff0d0a00") + bytes(4) + bytes(4),
    },
    "collector/storage/registry.py": {"_LOG_LINES": 1000},
    "collector/storage/sqlite.py": {"_LOCKED": 30, "MOST": MIB, "_BUSY": 128 * KIB, "_FREE_DISK_BYTES": 16 * MIB},
    "collector/storage/store.py": {"_TRIES": 8},
    "collector/storage/tables.py": {"SCHEMA": 9},
    "collector/storage/tracks.py": {"QUANTITIES": 50, "_EVERY": 5.0, "_GROWTH": 1.02, "_LONGEST": 500},
    "collector/web/access.py": {"_SHORTEST": 16, "_KEPT": 10_000},
    "collector/web/console.py": {"_WAITING": 8, "_LONGEST_HOST": 255, "_DAYS": 30, "_LARGEST": 256 * KIB},
    "collector/web/forms.py": {"_LARGEST": 64 * KIB},
    "collector/web/operation.py": {"_LARGEST": 256 * KIB, ("_DEEPEST", "_MOST_PARTS"): (20, 100_000)},
    "collector/web/pages.py": {"_EPSILON_ROUNDING": 1.000000001, "_CURVE": 9},
    "collector/web/planpage.py": {"_ROWS": 60, "_FACTORS": (1 / 100, 1 / 10, 1.0, 10.0, 100.0)},
    "collector/web/service.py": {"LARGEST_BODY": 4 * MIB, "RATE": 2000.0, "_PERIODS": 8, "_SHOWN": 100},
    "collector/web/webhooks.py": {
        "_EVERY": 5.0,
        "_PAUSES": (0.0, 2.0, 10.0, 60.0),
        "_TIMEOUT": 10.0,
        "_QUIET": timedelta(hours=24),
    },
    "device/blind.py": {"BITS": 2048, "_EXPONENT": 65537},
    "device/conversation.py": {"_TOO_EARLY": 425},
    "device/gateway.py": {"_LARGEST_BATCH": 10_000, "_LARGEST_BODY": 3 * MIB, "_ONE_BY_ONE": 100},
    "device/sealed.py": {"_NAMES": 2560, "_NUMBER": 32},
    "device/state.py": {"_OFF": 600.0},
    "device/tokens.py": {"SECRET_BYTES": 256 // 8},
    "shuffler/_http.py": {"LARGEST_BODY": 4 * MIB, "_SHORTEST": 16},
    "shuffler/clients.py": {"_NOBODY": 64 * "0" + ":" + 64 * "0"},
    "shuffler/forwarding.py": {"_FORGET_EVERY": 60 * 60.0},
    "shuffler/receipt.py": {"_APPLICATION": int.from_bytes(b"NZR\x02")},
    "shuffler/sealing.py": {"OVERHEAD": 48},
    "shuffler/sender.py": {"POST_BYTES": MIB, "_SLOTS": 16},
    "shuffler/service.py": {"_LOOK": 1.0, "_LARGEST_LIST": MIB},
    "shuffler/store.py": {
        "LARGEST_STORE": 16 * GIB,
        "FORWARD_BYTES": MIB,
        "KEPT_DAYS": 400.0,
        "_APPLICATION": int.from_bytes(b"NZS\x02"),
        "_DAY": 24 * 60 * 60.0,
        "_TRIES_OF_A_FAULT": 20,
        "_LONGEST_PAUSE": 60.0,
    },
    "shuffler/wire.py": {"VERSION": 2, "LARGEST_BLOCKS": MIB, "_LONGEST_CONTEXT": 200},
    "survey/batches.py": {"VERSION": 2, "TOKEN_BYTES": 32, "DIGEST_BYTES": 16},
    "survey/campaigns.py": {
        "VERSION": 1,
        "_MOST_PERIODS": 10_000,
        "_SPLIT_ROUNDING": math.nextafter(1, 2) + 3 * math.ulp(1),
        "_HOPED": 10_000,
    },
    "survey/charts.py": {"_ROWS": 200, "_BARS": 40, "_HELD_BARS": 16, "_HEIGHT": 220},
    "survey/choosing.py": {
        "_SHORT_REPORT": 64,
        "_NEARLY_BEST": 1.1,
        "_POINTS": 16,
        ("_WAVES", "_PLACES"): (4, 64),
    },
    "survey/coding/axes.py": {"_EPOCH": date(1970, 1, 1), "DAY": 24 * 60 * 60},
    "survey/coding/chosen_pairs.py": {"MOST_PAIRS": 16 * KIB},
    "survey/coding/columns.py": {"_SHOWN": 8},
    "survey/coding/joints.py": {"MOST_CELLS": 64 * 64, "_ANSWER": 0.8, "_CLEAR": 3.0},
    "survey/estimation/comparing.py": {"_MOST_COMPARED": 2_000_000, "_MOST_LOOKS": 1000},
    "survey/estimation/distributions.py": {"_BARS": 16, "_KEPT": 256},
    "survey/estimation/hierarchy.py": {
        "QUANTILES": (0.05, 0.25, 0.5, 0.75, 0.95),
        ("BRANCHES", "HEIGHT"): (4, 3),
        "_ONE_ERROR": round(math.erf(math.sqrt(0.5)), 4),
    },
    "survey/estimation/weighting.py": {"_NEAR_ONE": 1e-6, ("_ROUNDS", "_SETTLED"): (1000, 1e-10)},
    "survey/plans.py": {"_NEAR_ONE": 1e-6},
    "survey/questions.py": {"LONGEST_NAME": 200, "_MOST_ENTRIES": 1_000_000},
    "survey/sums.py": {"BINS": 64, "_LEAST_BINS": 3},
    "survey/survey.py": {"MOST_CELLS": 1000, "_USUAL_USERS": 10_000},
}

LEARNING: dict[str, dict[str, Any]] = {
    "federated/server/aggregator.py": {"_LEAST_SHRUNK": 4},
    "federated/central/correlated.py": {"DENOMINATOR": 4096},
    "federated/central/rounds.py": {"_FARTHEST": 2**52, "_MOST_BANDS": 64},
    "federated/central/strategy.py": {"_MANY_ROUNDS": MIB},
    "federated/clipping.py": {"_UNIT": math.ulp(1) / 2},
    "federated/distributed/flower.py": {"_WEIGHT": 1000, "_FAILED_PRECONDITION": 9},
    "federated/distributed/noise.py": {"_LEAST_SHARE": 64.0, "_FINE": 4096, "_REACH": 40.0, "MODULUS": 2**32},
    "federated/families.py": {"_SHORT_UPDATE": 2048, "_FARTHEST": 64.0},
    "federated/server/history.py": {"_FORMAT": 1},
    "federated/lines.py": {"_LARGEST": 30.0},
    "federated/client/mod.py": {"_FAILED_PRECONDITION": 6},
    "federated/server/strategy.py": {"_MOST_REASONS": 3},
    "federated/server/streaming.py": {("_SHORTEST", "_LONGEST"): (0.02, 1.0), "_FIRST": 16},
    "federated/terms.py": {"_LONGEST_NAME": 64},
    "federated/theory.py": {("_HOPELESS", "_HELPFUL"): (1.5, 0.5), "_BERRY_ESSEEN": 0.5606},
    "federated/wire.py": {"_SHORT_FINENESS": 256.0, "_FINENESS": 2048.0, "_ALONG": 5.0, "_REACH": 30.0},
    "regression/designs.py": {"_WHOLE_ROWS": 1.5},
    "regression/inference.py": {
        "_GROUPS": 60,
        "_PHASES": (1 / 4, 1 / 4, 1 / 2),
        "_LEAST_SIGNAL": 0.5,
        "_POWER": 2.8,
    },
    "regression/pairs.py": {"_PARTS": 3, "_SCALING": 0.05, "_LEAST_SCALE": 1e-3},
    "regression/training.py": {"_FEWEST": 256},
    "sgd/advice.py": {"_SHOWN": (0.1, 0.25, 0.5, 0.75, 0.9)},
    "sgd/clipping.py": {
        "_LEAST_ROOM": 1 / 65536,
        "_MOST_ROOM": 1 / 64,
        "_QUICK_ROOM": 1 / 512,
        "_QUICK_BOUND": 1 / 2**30,
        "_FARTHEST": 200.0,
    },
    "sgd/noise/_lattice.py": {"_FINENESS": 1 / 1048576},
    "sgd/noise/geodp.py": {"_LARGEST": 1e30},
    "sgd/recording/_rows.py": {
        "UNIT": math.ulp(1) / 2,
        "QUICK_UNIT": 1 / 2**24,
        "_QUICK_SIZE": 2.0**24,
        "_SMALLEST": 1e-300,
        "_SPARE": 1 / 2**40,
    },
    "sgd/recording/losses.py": {"_IGNORED": -100, "_NO_TARGET": -(2**40)},
    "sgd/recording/models.py": {"_GROUPS": 32},
    "sgd/recording/recurrence.py": {"_GATES": {"LSTM": 4, "GRU": 3, "RNN_TANH": 1, "RNN_RELU": 1}},
    "sgd/recording/verification.py": {"_EXAMPLES": 3},
}

# Margins that bounds rest on, how fine lattices and grids are, tolerances, and what is kept in files: a digit that
# slips is below what most tests can see, and what is private or right may hang on it.
MARGINS: dict[str, dict[Any, Any]] = {
    "_service.py": {
        "SMALL": 1 << 16,
    },
    "collector/results/estimates.py": {
        "_LEVEL": 0.95,
    },
    "collector/results/liars.py": {
        ("_SLACK_LOW", "_SLACK_HIGH"): (1 - 1e-09, 1 + 1e-09),
    },
    "collector/results/pace.py": {
        "_DAY": 86400.0,
        "_ENOUGH": 30,
        "_FEWEST": 3,
        "_BINS": 12,
        ("_FINE", "_COARSE"): (1800.0, 3600.0),
        "_UNITS": ((86400.0, "days", 2.0), (3600.0, "h", 2.0), (60.0, "min", 0.0)),
    },
    "collector/storage/arrivals.py": {
        "KEPT": {10: 1800, 3600: 28 * 86400},
    },
    "collector/storage/postgres.py": {
        "_INSERTED_DIGESTS": 2000,
        "_PAUSE": 0.05,
    },
    "collector/storage/sqlite.py": {
        "_GULP": 1 / 64,
        "_UNSORTED_DIGESTS": 1 << 14,
        "_BITS": 12,
    },
    "collector/storage/store.py": {
        "_MIXED_BLOCKS": 200,
        "_MIXED_REPORTS": 10000,
    },
    "shuffler/_database.py": {
        "_PAGE": 4096,
    },
    "survey/batches.py": {
        "_MIXER": np.uint64(11400714819323198485),
    },
    "survey/coding/chosen_pairs.py": {
        "_PLANNED": 10000000,
    },
    "survey/coding/joints.py": {
        "_PLANNED": 10000000,
    },
    "survey/estimation/comparing.py": {
        "_GRID": 201,
        "_FARTHEST_BOUNDARY": 9.0,
    },
    "survey/estimation/distributions.py": {
        "_POINTS": 5,
        "_TRIALS": 60,
    },
    "survey/estimation/hierarchy.py": {
        "_PLANNED": 10000000,
    },
    "survey/questions.py": {
        ("_NARROWEST", "_WIDEST"): (1e-90, 1e90),
    },
    "federated/clipping.py": {
        "_MODERATE": (2.0 ** (-400), 2.0**400),
    },
    "federated/runs/run.py": {
        "_UNLIMITED": 4000000.0,
    },
    "regression/files.py": {
        "USUAL_JUDGES": 0.1,
    },
    "regression/pairs.py": {
        ("_CATEGORY", "_SLOPE"): (0.4, 0.8),
        "_LOG_ODDS": 2.0,
        "_LEAST_VARIANCE": 0.05,
    },
    "sgd/noise/_angles.py": {
        "_SHORTEST": np.float32(1e-30),
    },
    "sgd/recording/tape.py": {
        "_NEAR": 1e-06,
    },
    "sgd/theory/angles.py": {
        "_ONE_ENDED_DEVIATION": 0.2,
    },
    "sgd/theory/lengths.py": {
        ("_REACH", "_STEP"): (60.0, 0.25),
    },
    "sgd/theory/turns.py": {
        "_ENTRIES_ONE_BY_ONE": 64,
        ("_OWN_NODES", "_OTHER_NODES"): (24, 8),
        ("_HALF", "_REACH"): (40, 9.0),
        "_ENTRY": 24,
        "_INTEGRATED_SPREAD": 0.5,
        ("_LEVELS", "_STEP"): (24, 0.14),
        ("_PANELS", "_NODES"): (64, 10),
        "_SMALLEST_SPREAD": 1e-08,
    },
    "aggregation/files.py": {
        ("_FORMAT", "_VERSION"): ("noisette-reports", 1),
        "_USUAL_METADATA_BYTES": 100000000,
    },
    "aggregation/streams.py": {
        ("_FORMAT", "_VERSION"): ("noisette-aggregate", 1),
    },
    "mechanisms/geometric/_angles.py": {
        "TINY": 1e-200,
    },
    "mechanisms/geometric/_scans.py": {
        "LARGEST": 100000.0,
        ("LEAST", "MOST"): (1e-200, 1e200),
        ("_HALF_1", "_HALF_2", "_HALF_3"): (1.5707963267341256, 6.07710049817245e-11, 8.333742918520879e-20),
    },
    "mechanisms/geometric/angle_gaussian.py": {
        "_FINENESS": 2.0**20,
    },
    "mechanisms/geometric/angle_noise.py": {
        "_FINENESS": 2.0**40,
    },
    "mechanisms/graded/_levels.py": {
        "TIES": 1e-11,
        "BUDGETS": (1e-07, 1000000.0),
        "_MOST_LEVELS": 1 << 10,
        "_COMPARED": 16,
    },
    "mechanisms/graded/_programme.py": {
        "_ATTEMPTS": (("highs-ipm", 1e-10), ("highs-ds", 1e-09), ("highs-ipm", 1e-07)),
        ("_INNER", "_COARSE"): (1.2, 8),
        ("_REFINEMENTS", "_QUICK", "_WORTHWHILE"): (3, 10000, 0.0001),
        "_USED": 1e-09,
    },
    "mechanisms/graded/_table.py": {
        "_UNIT": 1 << 53,
        ("_LEAST_SHARE", "_LARGEST_SHARE"): (2.0 ** (-46), 2.0 ** (-8)),
        "_VERSION": 1,
    },
    "mechanisms/graded/estimation.py": {
        "_TOLERANCE": 1e-10,
        "_STEPS": 200,
    },
    "mechanisms/graded/laplace.py": {
        "_FINE": 2.0 ** (-20),
    },
    "mechanisms/graded/levelled.py": {
        "_UNIT": 1 << 53,
    },
    "mechanisms/graded/optimal.py": {
        ("_LEAST", "_LARGEST"): (0.01, 20.0),
        "_MOST_POINTS": 256,
        "_SLOW": 24,
    },
    "mechanisms/tensor/_whole.py": {
        "_LARGEST_SUM": 2**61,
    },
    "mechanisms/tensor/gaussian/_farthest.py": {
        "_ENUMERATED": 14,
    },
    "mechanisms/tensor/gaussian/_loops.py": {
        "_UNSURE": 2.0 ** (-40),
    },
    "mechanisms/tensor/gaussian/_noise.py": {
        "_FINENESS": 2.0**20,
        "_FARTHEST": 2.0**26,
    },
    "mechanisms/tensor/gaussian/_normal.py": {
        "STEPS": 2.0**36,
        "_POSITION": 32,
        "_STRIPS": 128,
        "_EDGE": 8,
        "_COLUMNS": 512,
        "_BITS": 256,
        "_SHOWN": 22,
        "FARTHEST": 2.0**62,
    },
    "mechanisms/tensor/gaussian/_signs.py": {
        "ENUMERATED": 16,
        "_RELAXED": 1024,
        "_CONVERGED": 1e-06,
        "_EXACT": 1e-09,
    },
    "mechanisms/tensor/gaussian/_sketches.py": {
        "_LOOSE": 2.0 ** (-44),
        "_TIGHT": 2.0 ** (-48),
        "_NARROW": 2.0 ** (-20),
    },
    "mechanisms/tensor/gaussian/calibration.py": {
        "_LEAST_WEIGHT": 0.001,
    },
    "mechanisms/tensor/gaussian/jl.py": {
        "_MOST_PROJECTIONS": 1 << 24,
        "_FINENESS": 2.0**20,
        "_HALF": 2.0**21,
        "_SHORTER": 1 - 2.0 ** (-38),
        "_ROOT": 2.0**24,
        ("_BITS", "_SLACK"): (256, -150),
        ("_PANELS", "_NODES"): (2000, 5),
    },
    "mechanisms/tensor/gaussian/modes.py": {
        "_ASYMMETRY": 1e-09,
        "_SINGULAR": 1e-12,
        "_SCALES": (1e-100, 1e100),
    },
    "mechanisms/tensor/gaussian/neighbours.py": {
        ("_LEAST", "_MOST"): (1e-100, 1e100),
    },
    "mechanisms/tensor/matrix/mechanism.py": {
        "_FINENESS": 2.0**20,
        ("_COARSEST", "_FINEST"): (2.0**14, 2.0**42),
        "_FARTHEST": 2.0**13,
        "_UNMOVED": 1e-06,
        "_SHARES": 1e-09,
        "_COMPARED": 1 << 10,
        "_WRITTEN": 1 << 14,
        "_GDP": 1 + 1e-08,
    },
    "mechanisms/tensor/matrix/optimum.py": {
        "GAP": 1e-06,
        "_UNSURE": 1e-10,
    },
    "mechanisms/tensor/matrix/strategies.py": {
        "BITS": 28,
        "_UNSUPPORTED": 1e-08,
    },
    "mechanisms/tensor/matrix/workloads.py": {
        "_NULL": 1e-12,
    },
    "mechanisms/tensor/retain/calibration.py": {
        "_CALIBRATED": 64,
        "_LEAST_RATE": 2.0 ** (-44),
        "SMOOTH": 64.0,
        "_FINE": 2.0,
        "_ROUNDED_DOWN": 1 - 2.0 ** (-40),
    },
    "mechanisms/tensor/retain/mechanism.py": {
        "_MOST_LEVELS": 1 << 24,
        "_FARTHEST": 2.0**13,
    },
    "mechanisms/vector/_attribute_cells.py": {
        "_MOST_CELLS": 1 << 14,
    },
    "mechanisms/vector/caps/draws.py": {
        "_ERROR": 2.0 ** (-49),
    },
    "mechanisms/vector/caps/masses.py": {
        "_BITS": 256,
        "_LIMIT_EXPONENT": -150,
        "_LARGEST_LOG_MASS": 5000.0,
    },
    "mechanisms/vector/caps/laws.py": {
        "_LEAST_SINE": 2.0 ** (-10),
        "_LEAST_PLAIN": 2.0 ** (-36),
        ("_BITS", "_ODDS_ERROR"): (256, 2.0 ** (-128)),
        "_NEGLIGIBLE": 60.0,
    },
    "mechanisms/vector/projections/codebook.py": {
        "_FAR": 9.0,
        "_FINENESS": 2.0**16,
    },
    "mechanisms/vector/projections/hadamard.py": {
        "SEEDS": 1 << 32,
        "_SALT": 11400714819323198485,
    },
    "mechanisms/vector/adaptive_duchi.py": {
        "_SMALLEST_BUDGET": 9e-13,
    },
    "mechanisms/vector/attributes.py": {
        "_EXACT_INTEGERS": 2.0**53,
        "_NEAR_ONE": 1e-09,
    },
    "mechanisms/vector/fast_projunit.py": {
        "_FEWEST_ROWS": 64,
        "_MOST_BITS": 12,
    },
    "mechanisms/vector/privunit.py": {
        "_FINENESS": 2.0**16,
        "_BEYOND": 40.0,
    },
    "mechanisms/vector/sampled.py": {
        "_MOST_CELLS": 1 << 16,
    },
}

# What the right-hand side of a limit may name.
_KNOWN = {"timedelta": timedelta, "dt": __import__("datetime"), "np": np, "bytes": bytes, "int": int}


@functools.cache
def _module(name: str) -> ast.Module:
    return ast.parse((SOURCE / name).read_text(encoding="utf-8"))


def _value(module: ast.Module, names: str | tuple[str, ...]) -> Any:
    """Return what a module sets one name to, or several names at once."""
    text = names if isinstance(names, str) else ", ".join(names)
    for node in module.body:
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        if node_value := next((node.value for one in targets if ast.unparse(one).strip("()") == text), None):
            return eval(compile(ast.Expression(node_value), "<limit>", "eval"), {"__builtins__": {}} | _KNOWN)
    raise AssertionError(f"There is no {text} any more: take it out of this table.")


@pytest.mark.parametrize(("module", "limits"), [*SERVICES.items(), *LEARNING.items(), *MARGINS.items()])
def test_limits_are_the_ones_that_are_promised(module: str, limits: dict[Any, Any]) -> None:
    assert {names: _value(_module(module), names) for names in limits} == limits


def test_another_limit_would_show() -> None:
    """The twin: a limit that is off by one is not the one that is promised."""
    changed = ast.parse(
        (SOURCE / "collector/intake/reading.py").read_text(encoding="utf-8").replace("10_000", "10_001")
    )
    assert _value(changed, "LARGEST_BATCH") == SERVICES["collector/intake/reading.py"]["LARGEST_BATCH"] + 1
