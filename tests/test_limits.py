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
    "collector/campaigns/issuing.py": {"_LARGEST_REQUEST": 4 * KIB},
    "collector/campaigns/life.py": {
        "_UNITS": {"second": 1, "minute": 60, "hour": 60 * 60, "day": 24 * 60 * 60, "week": 7 * 24 * 60 * 60},
        "_LONGEST_SPAN": timedelta(days=100 * 365),
    },
    "collector/campaigns/roster.py": {"_SECONDS_BETWEEN": 1.0, "_KEEPING": 600},
    "collector/intake/reading.py": {"LARGEST_BATCH": 10_000, "_HARMLESS_BYTES": 4 * KIB, "_NAMED_REFUSALS": 100},
    "collector/intake/shuffled.py": {"_DECLARED": 10},
    "collector/results/estimates.py": {"_DRIFTING": 64},
    "collector/results/found.py": {"_SHOWN_TEXTS": 20, "_GROWTH": 1.05},
    "collector/results/known.py": {"_NAMED_LABELS": 3, "_EARLY": 0.5},
    "collector/results/liars.py": {"FALSE_ALARM": 1e-4},
    "collector/storage/filters.py": {"_FIRST_LEVEL": MIB, "_EACH": 24, "_SET": 5},
    "collector/storage/postgres.py": {
        ("_CONNECTING", "_POOLED"): (10, 30),
        "_UNANSWERED": 30 * 1000,
        "_LOCK": int.from_bytes(b"NZCO"),
        "_WRITERS": 256,
        "_IDLE": 1.0,
        "_FULL": 52 * MIB,
        "_BUSY_BYTES": 7 * MIB,
        "_COPY_HEAD": bytes.fromhex("5047434f50590aff0d0a00") + bytes(4) + bytes(4),
    },
    "collector/storage/registry.py": {"_LOG_LINES": 1000},
    "collector/storage/sqlite.py": {
        "_LOCKED": 30,
        "MOST_DIGESTS": MIB,
        "_BUSY_DIGESTS": 128 * KIB,
        "_FREE_DISK_BYTES": 16 * MIB,
    },
    "collector/storage/store.py": {"_TRIES": 8},
    "collector/storage/tables.py": {"SCHEMA": 9},
    "collector/storage/tracks.py": {"QUANTITIES": 50, "_SECONDS_BETWEEN": 5.0, "_GROWTH": 1.02, "_MOST_POINTS": 500},
    "collector/web/access.py": {"_SHORTEST_KEY": 16, "_KEPT_ADDRESSES": 10_000},
    "collector/web/console.py": {
        "_WAITING_PLANS": 8,
        "_LONGEST_HOST": 255,
        "_KEY_DAYS": 30,
        "_LARGEST_SURVEY": 256 * KIB,
    },
    "collector/web/forms.py": {"_LARGEST_BODY": 64 * KIB},
    "collector/web/operation.py": {"_LARGEST_CAMPAIGN": 256 * KIB, ("_DEEPEST", "_MOST_PARTS"): (20, 100_000)},
    "collector/web/pages.py": {"_EPSILON_ROUNDING": 1.000000001, "_CURVE": 9},
    "collector/web/planpage.py": {"_LISTED_QUANTITIES": 60, "_FACTORS": (1 / 100, 1 / 10, 1.0, 10.0, 100.0)},
    "collector/web/service.py": {"LARGEST_BODY": 4 * MIB, "RATE": 2000.0, "_PERIODS": 8, "_LISTED_REFUSALS": 100},
    "collector/web/webhooks.py": {
        "_SECONDS_BETWEEN": 5.0,
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
    "shuffler/_http.py": {"LARGEST_BODY": 4 * MIB, "_SHORTEST_KEY": 16},
    "shuffler/clients.py": {"_NOBODY": 64 * "0" + ":" + 64 * "0"},
    "shuffler/forwarding.py": {"_FORGET_EVERY": 60 * 60.0},
    "shuffler/receipt.py": {"_APPLICATION": int.from_bytes(b"NZR\x02")},
    "shuffler/sealing.py": {"OVERHEAD": 48},
    "shuffler/sender.py": {"POST_BYTES": MIB, "_SLOTS": 16},
    "shuffler/service.py": {"_SECONDS_BETWEEN": 1.0, "_LARGEST_LIST": MIB},
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
    "survey/charts.py": {"_NOTEBOOK_ROWS": 200, "_BARS": 40, "_HELD_BARS": 16, "_HEIGHT": 220},
    "survey/choosing.py": {
        "_SHORT_REPORT": 64,
        "_NEARLY_BEST": 1.1,
        "_POINTS": 16,
        ("_WAVES", "_PLACES"): (4, 64),
    },
    "survey/coding/axes.py": {"_EPOCH": date(1970, 1, 1), "DAY": 24 * 60 * 60},
    "survey/coding/chosen_pairs.py": {"MOST_PAIRS": 16 * KIB},
    "survey/coding/columns.py": {"_NAMED_LABELS": 8},
    "survey/coding/joints.py": {"MOST_CELLS": 64 * 64, "ANSWER": 0.8, "_CLEAR": 3.0},
    "survey/estimation/comparing.py": {"_MOST_COMPARED": 2_000_000, "_MOST_LOOKS": 1000},
    "survey/estimation/distributions.py": {"_BARS": 16, "_KEPT": 256},
    "survey/estimation/hierarchy.py": {
        "QUANTILES": (0.05, 0.25, 0.5, 0.75, 0.95),
        "BRANCHES": 4,
        "CELLS": (16, 64, 256),
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
    "federated/lines.py": {"_LARGEST_EPSILON": 30.0},
    "federated/client/mod.py": {"_FAILED_PRECONDITION": 6},
    "federated/server/strategy.py": {"_MOST_REASONS": 3},
    "federated/server/streaming.py": {("_SHORTEST", "_LONGEST"): (0.02, 1.0), "_FIRST_MESSAGES": 16},
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
    "regression/training.py": {"_SMALLEST_BATCH": 256},
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
        "_ENOUGH_USERS": 30,
        "_FEWEST_USERS": 3,
        "_BINS": 12,
        ("_FINE", "_COARSE"): (1800.0, 3600.0),
        "_UNITS": ((86400.0, "days", 2.0), (3600.0, "h", 2.0), (60.0, "min", 0.0)),
    },
    "collector/storage/tracks.py": {
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
    "survey/estimation/comparing.py": {
        "_GRID": 201,
        "_FARTHEST_BOUNDARY": 9.0,
    },
    "survey/estimation/distributions.py": {
        "_POINTS": 5,
        "_TRIALS": 60,
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

# How fine grids and sums are, from which size another computation is taken, and margins, where laws, predictions,
# bounds and audits are computed: results hang on them by less than tests of results can see.
COMPUTING: dict[str, dict[Any, Any]] = {
    "_random.py": {
        "ULP": 2.0 ** (-53),
        "_LOG_ERROR": 2.0 ** (-49),
        "_SMALLEST_RATE": 2.0 ** (-45),
        "_SPLIT_RATE": 2.0 ** (-26),
    },
    "cells.py": {
        "_SLICES": 2.0**20,
    },
    "core.py": {
        "_NEAR": 2.0,
        "STRAY": 2.0 ** (-20),
    },
    "mechanisms/_base.py": {
        "_BUDGETS": (1e-07, 1000000.0),
        "_WIDTHS": (1e-90, 1e90),
        "_FARTHEST": 2.0**20,
        "_LARGEST_CODE": 2.0**48,
    },
    "mechanisms/categorical/_base.py": {
        "_SHORT_REPORT": 16,
        "UNIT": 1 << 53,
        "_LEAST_EPSILON": 1e-09,
        "_EPSILON_MARGIN": 2.0 ** (-46),
    },
    "mechanisms/categorical/_bits.py": {
        "BITS": 8,
        "FINE": 61,
        ("_FIRST_BITS", "_NEXT_BITS"): (16, 48),
    },
    "mechanisms/categorical/_singer.py": {
        "_DOUBT": 1 / 8,
    },
    "mechanisms/categorical/_subsets.py": {
        "LARGEST": 1 << 31,
        "_WORD": 64,
        "_SIXTEENTHS": 16,
        "_TRIES": 8,
        "_DE_BRUIJN": 285870213051386505,
        "_SIXTEEN_BITS_SUFFICE": 1 << 12,
        "_THIRTY_TWO_BITS_SUFFICE": 1 << 26,
    },
    "mechanisms/categorical/hashing.py": {
        "PRIME": 2**31 - 1,
        "_MOST_BUCKETS": 1 << 20,
    },
    "mechanisms/categorical/memoised.py": {
        "_MOST_PERIODS": 1000,
    },
    "mechanisms/categorical/projective.py": {
        "MOST_CATEGORIES": 1 << 25,
        "_LARGEST_ORDER": 1 << 24,
        "_NEARLY_LEAST": 1.01,
    },
    "mechanisms/categorical/selections/privset.py": {
        "_MOST_OPTIONS": 1 << 16,
    },
    "mechanisms/categorical/selections/wheel.py": {
        "RING": 2**31 - 1,
        "_DRAWS": 1 << 62,
        "_MOST_CHOSEN": 16,
        "_SPREAD": 12.0,
    },
    "mechanisms/categorical/texts/prefixes.py": {
        "SEEDS": 2048,
        "COUNTERS": 1 << 16,
        "_MOST_BUCKETS": 1 << 12,
        "_WORDS": 1 << 15,
        "_WORDS_OF_BYTES": 2,
    },
    "mechanisms/categorical/texts/search.py": {
        "SURVIVORS": 2,
        "ALARM": 0.05,
        "MOST_TEXTS": 1000,
        "_COLLISIONS": 0.1,
        "_NEGLIGIBLE": 1e-12,
        "_COUNTERS_A_PREFIX": 4,
        "_FREQUENT": 2.0,
        "_ROUNDS": 2,
        "_SOLVED": 200,
        "_HALVINGS": 50,
    },
    "mechanisms/categorical/unary.py": {
        "_LANE": 255,
    },
    "mechanisms/scalar/_lp_solve.py": {
        "_ROUNDS": 60,
    },
    "mechanisms/scalar/_lp_table.py": {
        "PROGRAMME_ABOVE": 0.75,
        "PROGRAMME_BELOW": 8.0,
        "LARGEST": 20.0,
        "_PAIR_BELOW": 0.001,
        "_CELLS": 200,
        "_FINE": 128,
        "_WINDOW_CELLS": 24,
        "POSITIONS": 1 << 48,
    },
    "mechanisms/scalar/duchi.py": {
        "_UNIT": 1 << 53,
    },
    "mechanisms/scalar/gaussian.py": {
        "_WIDER": 1 + 2.0 ** (-40),
        "_CLOSED": 1000.0,
        "_SUMMED": 2.0**10,
    },
    "mechanisms/scalar/hybrid.py": {
        "_DUCHI_ALONE": 0.61,
    },
    "mechanisms/scalar/laplace.py": {
        "_ROUNDED_DOWN": 1 - 2.0 ** (-50),
    },
    "mechanisms/scalar/lp_optimal.py": {
        "_WITNESSES": 257,
    },
    "mechanisms/scalar/sliding.py": {
        "_HALF": 8,
        "_UNIT": 1 << 53,
        "_LARGEST_CODE": 1 << 10,
    },
    "mechanisms/scalar/staircase.py": {
        "_ROUNDED_DOWN": 1 - 2.0 ** (-50),
    },
    "enhancement/automatic.py": {
        "_ENOUGH_DIMS": 30,
        "_NOISY": 0.8,
    },
    "enhancement/averaging.py": {
        "_NEGLIGIBLE": 1e-12,
        ("_AT_ORIGIN", "_FLAT", "_ONE_SIDE", "_NORMAL", "_RIDGE"): (0.16, 0.18, 0.004, 0.116, 0.085),
        ("_SPIKE_SHARES", "_SPARSE"): ((0.5, 0.8, 0.9, 0.95, 0.98), (0.013, 0.032, 0.097, 0.097, 0.083)),
        ("_SLAB_FLAT", "_SLAB_ONE_SIDE", "_SLAB_NORMAL"): (0.1, 0.65, 0.25),
        ("_BELL", "_TIED"): (0.004, 0.004),
        ("_BLURS", "_SMOOTH"): ((0.0, 2.0, 4.0, 8.0), (0.0002, 0.0013, 0.0035, 0.12)),
    },
    "enhancement/channel.py": {
        ("_HALVINGS", "_AGREED"): (14, 2e-06),
        ("_LISTED", "_SEPARATE"): (1 << 16, 1 << 10),
        ("_REACH", "_COUNTED_REACH"): (6.0, 25.0),
        "_LARGEST_TABLE": 50000000,
        "_WORTH_A_GRID": 1000,
    },
    "enhancement/hdr4me.py": {
        "_BISECTIONS": 60,
    },
    "enhancement/npmle.py": {
        ("_WARM_UP", "_ITERATIONS"): (10, 200),
        "_SMALLEST_WEIGHT": 1e-12,
        "_EXACT": 4096,
        ("_CELL_WIDTH", "_CELL_RATIO"): (0.4, 0.2),
        "_BLUR": 0.2,
    },
    "enhancement/prior.py": {
        "FOLDS": 5,
        "_STEPS": 4,
        "_NEGLIGIBLE": -30.0,
    },
    "enhancement/problem.py": {
        "_FEW_REPORTS": 10,
    },
    "enhancement/reconstruction.py": {
        "_TWO_NEIGHBOURS": 0.25,
        "_WEIGHTS": (0.25, 2.0 ** (-4), 2.0 ** (-6), 2.0 ** (-8), 0.0),
        "_GAINED_BY_NOISE": 0.25,
        "FILE_BINS": 64,
    },
    "enhancement/shrinkage.py": {
        "_STEPS": 200,
    },
    "planner/page.py": {
        ("LEAST", "LARGEST"): (0.001, 20.0),
        "_SLIDER": 0.05,
        "_DIMS": 10000,
    },
    "planner/surveys.py": {
        "EPSILONS": (0.5, 1.0, 2.0, 4.0, 8.0),
    },
    "planner/tables.py": {
        "LEAST": 1e-06,
        "_DEGREE": 9,
        "_JUMP_WIDTH": 1e-12,
        "_PANEL_RATIO": 32.0,
        "_QUADRATIC": 0.001,
    },
    "prediction/combining.py": {
        "_BUDGETS": 40,
        "_LEAST_SHARE": 0.001,
        "_MOST_SPLIT": 64,
    },
    "prediction/curves.py": {
        "_WHOLE": 9,
        "_LARGEST_POPULATION": 1000000000000.0,
    },
    "prediction/graded.py": {
        "_DRAWS": 400,
        "_POINTS": 512,
        "_MOST_FLIPS": 12,
        "_LEAST_OPTIMAL": 0.01,
    },
    "prediction/joint.py": {
        "_POINTS": 8192,
        "_SHIFTS": 4,
        "_RIDGE": 1e-10,
        "_NODES": 400,
    },
    "prediction/model/correlations.py": {
        "MOST_QUANTITIES": 4096,
    },
    "prediction/model/extremes.py": {
        "_QUADRATIC": 1e-06,
        "_FINE": 1025,
    },
    "prediction/model/populations.py": {
        "NODES": 257,
        "_POISSON_TAIL": 2.0 ** (-20),
    },
    "prediction/model/responses.py": {
        "ROUNDING": 1e-08,
    },
    "prediction/offers.py": {
        "_BALANCE": 2.1773189849653,
    },
    "prediction/personalised.py": {
        "_UNLIKE": 0.56 / 0.33554,
    },
    "prediction/planning.py": {
        "_MOST_DIMS": 10000000,
        "_NEARLY_BEST": 1.07,
    },
    "prediction/targets.py": {
        "_CLEAR": 2.0,
        "_LARGEST_POPULATION": 1e18,
        "_ROUNDING": 1 + 1e-09,
    },
    "prediction/texts.py": {
        "_CHANCE": 0.9,
    },
    "accounting/_sums.py": {
        "MOST_POINTS": 2.0**21,
        "ULP": 2.0 ** (-52),
        "_NEGLIGIBLE_EXPONENT": 60.0,
        "_STEPS": (100.0, 4000.0),
        "_POINTS": (2.0**16, 2.0**19),
        "_DEVIATIONS": 9.0,
        "_FEW_TERMS": 50.0,
        "_ROUNDED_UP": 1 + 1e-07,
    },
    "accounting/_numbers.py": {
        "_SERIES_FROM": 32.0,
        ("_SLOPE", "_STEEPEST"): (1.0, 50.0),
        "_STIRLING": (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188),
    },
    "accounting/_runs.py": {
        "_PIECES": 2048,
        "_NEGLIGIBLE": 60.0,
        "_TOLERANCE": 1e-07,
    },
    "accounting/budgets.py": {
        "PLACES": {"epsilon": 12, "delta": 18, "rho": 15},
        "_LARGEST_INTEGER": 2**62,
        "_DIGITS": 30,
    },
    "accounting/calibration.py": {
        "_SMALLEST_BUDGET": 1e-06,
        "_LEAST_NOISE": 1e-06,
    },
    "accounting/composition.py": {
        "_NEGLIGIBLE": 1e-09,
        "_MASSES": 1e-12,
        "_POINTS": 2.0**22,
        "_LEAST_LOG": -750.0,
        "_ORDERS": 1.002,
        "_STEPS": 200.0,
    },
    "accounting/curves.py": {
        "DOTS": 1000,
        "_LARGEST_EPSILON": 30.0,
        "_ROUNDED_UP": 1 + 1e-09,
        "_LOST": 1e-13,
        "_FLOATS": 700.0,
        "_SMALLEST_DELTA": 1e-18,
    },
    "accounting/events.py": {
        "_LARGEST_EPSILON": 700.0,
    },
    "accounting/ledger.py": {
        "_APPLICATION": 1314540615,
        "_VERSION": 2,
        "_CHECKED_BYTES": 2**26,
    },
    "accounting/likelihoods.py": {
        "_MOST_SPACED": 1 << 18,
        "_MOST_PAIRS": 1 << 23,
        "_MESH": 33,
        "_CATEGORIES": 6,
        "_NEGLIGIBLE": 60.0,
        "_TOLERANCE": 1e-07,
        "_ROUNDING": 2.0 ** (-40),
    },
    "accounting/sampling.py": {
        "LEAST_DELTA": 1e-300,
        "_REACH": 40.0,
        "_PIECES": 60.0,
        "_MOST_PIECES": 2.0**15,
        "_STEPS": (20.0, 2000.0),
        "_POINTS": 2.0**17,
        "_LEAST_CONVOLVED_NOISE": 1 / 400,
        "_MOST_COUNTED_NOISE": 0.3,
        "_LEAST_CHANCE": 1e-100,
        "_ROUNDED_DOWN": 1 - 1e-09,
    },
    "accounting/shuffling.py": {
        "_LARGEST_EPSILON": 30.0,
        "_DOTS": 200,
        "_BINARY_DOTS": 400,
        "_MISSED": 1e-25,
        "_SMALLEST_EPSILON": 1e-05,
        "_SAME": 2.0 ** (-42),
        "_SAME_MASS": 2.0 ** (-46),
        "_ROUNDING": 2.0 ** (-40),
        "_TERMS": 1e-12,
        "_TOLERANCE": 1e-06,
    },
    "auditing/blackbox.py": {
        "_TRAINING": 0.2,
        "_PROBE": 64,
        "_PILOT": 20000,
        "_LEVELS": 1000,
        "_CAUTION": ((3.0, 1.5, 0.5), (4.0, 2.0, 0.5)),
    },
    "auditing/claims.py": {
        "_ROUNDING": 1e-09,
        "_SUMMED": 1e-06,
    },
    "auditing/independence.py": {
        "_FEWEST_REPORTS": 100,
        "_HEAVY": 5.0,
        "_UNREPORTED": -1000000000000.0,
        "_STRETCHES": (8, 32, 128),
    },
    "auditing/exact.py": {
        "_DOUBLINGS": 48,
        "_NEGLIGIBLE": 750.0,
        ("_PANELS", "_NODES"): (64, 20),
        ("_SEEN", "_UNSEEN"): (1e-06, 1e-13),
        "_SHARES": (0.0, 0.5, 1.0),
        "_MISSING": (1e-09, 1e-06),
        "_ULPS": 4,
        "_TOLERANCE": 1e-09,
        "_SEARCHED": 256,
        "_REPORTS": 16,
        "_USUAL": 32.0,
    },
    "auditing/features.py": {
        "_BINS": (16, 64, 256),
        "_PLANE_BINS": 24,
        "_FEW_COLUMNS": 32,
        "_MOST_COLUMNS": 1024,
        "_CLEAR": 4.0,
        "_FARTHEST": 1e300,
    },
    "auditing/goodness.py": {
        "_FEWEST_EXPECTED": 100.0,
        "_LISTED": 4096,
        "_COVERED": 0.99,
        "_RESOLUTIONS": (8, 32, 128),
        "_ATOM": 20,
        "_STEPS_NEARBY": 128,
        "_STANDS_OUT": 8.0,
        "_PARTS": 16,
        "_PRECISION": 0.0001,
        "_RESIDUES": (2, 16, 256),
        "_UNREPORTED": -1000000000000.0,
        "_SIDES": 4,
        "_OUTERMOST": 1 / 128,
        "_FAR_OUT": 8.0,
    },
    "auditing/inputs.py": {
        "_PAIR": 2,
        "_WRITTEN": 4096,
        "_CATEGORIES": 24,
    },
    "auditing/intervals.py": {
        "_ROUGH_SHARES": 40,
        "_WEIGHTS": (0.5, 0.3, 0.15, 0.7, 0.85),
    },
    "auditing/membership.py": {
        "_FALSE_ALARMS": 0.01,
        "_SMALLEST_CHANCE": 1e-12,
    },
    "auditing/one_run.py": {
        "_SHARES": (0.05, 0.2, 0.5, 1.0),
        "_ROUNDING": 1e-09,
        "_LARGEST_BUDGET": 64.0,
    },
    "auditing/pairs.py": {
        "_MOST": 256,
        "_DRAWN": 4,
        "_PAIRS": 28,
        "_ENUMERATED": 24,
        "_OUTPUTS": 1 << 14,
        "_REPORTS": 2048,
        "_RISK": 1e-12,
    },
    "guarantees.py": {
        "_ROUNDED": 2.0 ** (-50),
        "_SERIES_BELOW": 0.005,
    },
    "aggregation/tables.py": {
        "_LINES": 1 << 28,
    },
    "mechanisms/graded/laplace.py": {
        "_ROUNDING": 2.0 ** (-42),
        "_COMPARED": 32,
    },
    "mechanisms/tensor/_tensors.py": {
        "_MERGED": 4096,
    },
    "mechanisms/tensor/gaussian/_farthest.py": {
        "_STARTS": 24,
        "_ROUNDS": 60,
    },
    "mechanisms/tensor/gaussian/_signs.py": {
        "_SWEEPS": 500,
        "_SEARCHED": 1 << 12,
    },
    "mechanisms/tensor/matrix/optimum.py": {
        "_MEMORY": 8,
        "_STEPS": 2000,
        "_PHASE": 100,
        "_LONGEST_STEP": 3.0,
        "_FAINT": 0.0001,
        "_VANISHED": 60.0,
        ("_PRUNINGS", "_SLACK", "_CUT"): ((25, 75, 175, 375, 775), 0.001, 8.0),
    },
    "mechanisms/tensor/retain/calibration.py": {
        ("_SCANNED", "_WIDEST"): (43, 64.0),
        "_WORTHWHILE": 1e-06,
    },
    "mechanisms/tensor/retain/cells.py": {
        "_DISTINCT": 256,
    },
    "mechanisms/vector/adaptive_duchi.py": {
        "_ENUMERATED": 1024,
    },
    "mechanisms/vector/caps/exact.py": {
        "RUN": 64,
    },
    "mechanisms/vector/duchi_box.py": {
        "_CONVOLVED": 4096,
        "_COMPARED": 256,
    },
    "mechanisms/vector/projections/codebook.py": {
        "_CELLS": 1 << 16,
    },
    "mechanisms/vector/projections/hadamard.py": {
        "_SORTED_ROWS": 8,
    },
    "mechanisms/vector/sampled.py": {
        "_PARABOLA": 3,
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


@pytest.mark.parametrize(
    ("module", "limits"), [*SERVICES.items(), *LEARNING.items(), *MARGINS.items(), *COMPUTING.items()]
)
def test_limits_are_the_ones_that_are_promised(module: str, limits: dict[Any, Any]) -> None:
    assert {names: _value(_module(module), names) for names in limits} == limits


def test_another_limit_would_show() -> None:
    """The twin: a limit that is off by one is not the one that is promised."""
    changed = ast.parse(
        (SOURCE / "collector/intake/reading.py").read_text(encoding="utf-8").replace("10_000", "10_001")
    )
    assert _value(changed, "LARGEST_BATCH") == SERVICES["collector/intake/reading.py"]["LARGEST_BATCH"] + 1
