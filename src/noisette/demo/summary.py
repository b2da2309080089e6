"""What the demonstration found, in numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from noisette.demo.collection import LEVEL, Outcome, Part, covered, root_mean_square


def summary(outcome: Outcome) -> dict[str, Any]:
    """Return the outcome as JSON would have it."""
    numbers, sport = outcome.numbers.mechanism.guarantee, outcome.sport.mechanism.guarantee
    return {
        "users": outcome.users,
        "seed": outcome.seed,
        "guarantee": {
            "epsilon": numbers.epsilon + sport.epsilon,
            "unit": numbers.unit,
            "model": numbers.model,
            "relation": numbers.relation,
            "parts": {"numbers": numbers.spec(), "sport": sport.spec()},
        },
        "numbers": _part(outcome.numbers),
        "sport": _part(outcome.sport),
    }


def _part(part: Part) -> dict[str, Any]:
    hits, total = part.shard_coverage
    low, high = part.raw.interval(LEVEL)
    columns = (part.names, part.truth, part.raw.value, low, high, part.enhanced.value)
    keys = ("name", "truth", "value", "low", "high", "enhanced")
    return {
        "mechanism": part.mechanism.spec(),
        "plan": part.plan.to_dict(),
        "predicted_rmse": part.chosen.mse**0.5,
        "measured_rmse": root_mean_square(part.raw.value - part.truth),
        "enhanced_rmse": root_mean_square(part.enhanced.value - part.truth),
        "enhanced_by": part.enhanced.method,
        "coverage": float(np.mean(covered(part.raw, part.truth))),
        "enhanced_coverage": float(np.mean(covered(part.enhanced, part.truth))),
        "shard_coverage": hits / total,
        "shard_intervals": total,
        "same_bits_in_any_order": len(set(part.digests)) == 1,
        "dimensions": [dict(zip(keys, row, strict=True)) for row in zip(*columns, strict=True)],
    }
