"""What an attack on a trained model found, from a file of losses or of scores, beside what is claimed of the model."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from noisette._random import Rng
from noisette.aggregation import Table
from noisette.auditing.membership import evaluate, loss_scores
from noisette.auditing.one_run import one_run_bounds


def attack_on_losses(path: Path, *, confidence: float = 0.999, rng: Rng = 7) -> dict[str, Any]:
    """Return how well the loss distinguishes members from others, beside what the accountant allows.

    ``path`` is what `noisette train --attack` wrote.
    """
    record = json.loads(path.read_text(encoding="utf-8"))
    if not record.get("attack"):
        raise ValueError(f"{path} holds no losses to attack with. Train again with --attack.")
    members, others = (loss_scores(record["attack"][side]) for side in ("members", "others"))
    spent = record["spent"]
    found = evaluate(members, others, delta=spent["delta"], confidence=confidence, rng=rng)
    return _record(found, "loss threshold", record["guarantee"]["epsilon"], spent["epsilon"])


def attack_by_scores(
    path: Path,
    *,
    claimed: float | None = None,
    delta: float = 0.0,
    one_run: bool = False,
    confidence: float = 0.999,
    rng: Rng = 7,
) -> dict[str, Any]:
    """Return how well somebody's scores tell members from others: a table with the columns score and member.

    With ``one_run`` the examples are canaries of one run, each in it by the toss of a coin.
    """
    rows = np.concatenate([np.zeros((0, 2)), *Table.open(path, ["score", "member"]).numbers()])
    values, members = rows.T
    if not np.isin(members, (0, 1)).all():
        raise ValueError(f"Expected the column member of {path} to be 1 for members and 0 for others.")
    inside = members == 1
    if one_run:
        return _record(one_run_bounds(values, inside, delta=delta, confidence=confidence), "canaries", claimed, claimed)
    found = evaluate(values[inside], values[~inside], delta=delta, confidence=confidence, rng=rng)
    return _record(found, "scores", claimed, claimed)


def _record(found: Any, attack: str, claimed: float | None, accountant: float | None) -> dict[str, Any]:
    """Return what was found: its numbers, its verdict and a sentence about it."""
    verdict = None if accountant is None else "violated" if found.epsilon > accountant else "holds"
    return asdict(found) | {
        "attack": attack,
        "claimed": claimed,
        "accountant": accountant,
        "lower_bound": found.epsilon,
        "verdict": verdict,
        "words": found.words(accountant),
    }
