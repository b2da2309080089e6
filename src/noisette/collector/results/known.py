"""What is known so far of each question: a sentence, whether it is enough, and how many users are still needed.

± is the half-width of a 95 % interval. The error that is wanted is the one that was planned for the target.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from noisette.survey.campaigns import Campaign
from noisette.survey.coding.items import Told

STATES = ("too early", "usable", "done")

_Z = 1.959963984540054  # the half-width of a 95 % interval, in standard errors
_TOLD = 3  # labels that a sentence names, the most frequent ones
_EARLY = 0.5  # of how far a quantity can be from a guess: an error above it tells hardly more than the guess


def known_so_far(
    campaign: Campaign, found: dict[str, Any], texts: Mapping[str, dict[str, Any]] | None = None
) -> list[dict[str, Any]]:
    """Return for each question the sentence, the state and the users still needed, from `estimates`.

    ``texts`` has the texts that were found, for each question of texts.
    """
    rows = {row["name"]: row for row in found["dimensions"]}
    users, target = found["users"], campaign.users
    wanted = dict(zip(campaign.quantities, (_Z * campaign.predict(target)).tolist(), strict=True))
    told = []
    for question in campaign.survey.told:
        own = [rows[name] for name in question.quantities if name in rows]
        errors = [row["std_error"] for row in own]
        if not users or not own or not all(error is not None and math.isfinite(error) for error in errors):
            told.append(
                {
                    "question": question.name,
                    "state": STATES[0],
                    "needed": max(target - users, 0),
                    "sentence": f"{_asked(campaign, question)} {_NOTHING}",
                }
            )
            continue
        if question.tells == "texts":
            told.append(_texts(campaign, question, users, (texts or {}).get(question.name, {"rows": []})["rows"]))
            continue
        ratio = max(_Z * row["std_error"] / wanted[row["name"]] for row in own)
        more = math.ceil(users * (ratio**2 - 1)) if ratio > 1 and users < target else 0
        early = np.any(np.asarray(errors) > _EARLY * question.signals[: len(own)])
        needed = min(more, target - users) if users < target else 0
        state = STATES[0] if early else STATES[2] if needed == 0 else STATES[1]
        told.append(
            {
                "question": question.name,
                "state": state,
                "needed": needed,
                "sentence": _sentence(campaign, question, own),
            }
        )
    return told


def _texts(campaign: Campaign, question: Told, users: int, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Say which texts are the most frequent: usable once one was found, done at the target."""
    named = ", ".join(f"{_percent(row | {'value': row['share']})} {row['text']!r}" for row in rows[:_TOLD])
    rest = f", and {len(rows) - _TOLD} more" if len(rows) > _TOLD else ""
    needed = max(campaign.users - users, 0)
    state = STATES[0] if not rows else STATES[2] if needed == 0 else STATES[1]
    sentence = f"{_asked(campaign, question)} {named or 'no text is frequent enough yet'}{rest}."
    return {"question": question.name, "state": state, "needed": needed, "sentence": sentence}


_NOTHING = "nothing can be said yet."


def _asked(campaign: Campaign, question: Told) -> str:
    """Return how a question is put, to write an answer after."""
    told: str = campaign.form.get("questions", {}).get(question.name, {}).get("ask", question.name)
    return told if told.endswith(("?", "？", ":", ".", "!")) else f"{told}:"


def _sentence(campaign: Campaign, question: Told, rows: list[dict[str, Any]]) -> str:
    """Say what the answers are, with the half-width of a 95 % interval."""
    asked = _asked(campaign, question)
    unit = campaign.form.get("questions", {}).get(question.name, {}).get("unit", "")
    if question.tells == "shares":
        named = sorted(zip(question.estimated, rows, strict=False), key=lambda pair: -pair[1]["value"])[:_TOLD]
        parts = [f"{_percent(row)} {label}" for label, row in named]
        rest = len(rows) - len(named)
        return f"{asked} {', '.join(parts)}{f', and {rest} more' if rest else ''}."
    parts = []
    for label, row in zip(question.estimated, rows, strict=False):
        low, high = _range(question)
        value = min(max(row["value"], low), high)
        figure = f"{_rounded(value, row['std_error'])} ± {_rounded(_Z * row['std_error'], row['std_error'])}"
        words = "on average" if label == "mean" else label
        parts.append(f"{figure}{f' {unit}' if unit else ''} {words}")
    return f"{asked} {', '.join(parts[:_TOLD])}."


def _range(question: Told) -> tuple[float, float]:
    """Return between what ends a mean can lie."""
    low, high = np.asarray(question.domain.low, dtype=float), np.asarray(question.domain.high, dtype=float)
    return float(low.min()), float(high.max())


def _percent(row: dict[str, Any]) -> str:
    """Return a share in percent with its half-width."""
    value, error = 100 * min(max(row["value"], 0.0), 1.0), 100 * row["std_error"]
    return f"{_rounded(value, error)} % ± {_rounded(_Z * error, error)}"


def _rounded(value: float, error: float) -> str:
    """Write a number with two digits of its error."""
    places = 0 if error <= 0 else min(max(1 - math.floor(math.log10(error)), 0), 9)
    return f"{value:,.{places}f}"
