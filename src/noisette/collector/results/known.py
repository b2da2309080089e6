"""What is known so far of each question: a sentence, whether it is enough, and how many users are still needed.

± is the half-width of a 95 % interval. The error that is wanted is what the owner said, or the one that was planned for
the target.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from datetime import date, timedelta
from typing import Any

import numpy as np

from noisette._terminal import HALF_WIDTH_95
from noisette.survey.campaigns import Campaign
from noisette.survey.coding.choices import number_name
from noisette.survey.coding.items import Topic
from noisette.survey.coding.joints import Joint, rate_name
from noisette.survey.questions import Number

STATES = ("too early", "usable", "done")

_NAMED_LABELS = 3  # labels that a sentence names, the most frequent ones
_EARLY = 0.5  # of how far a quantity can be from a guess: a half-width above it says hardly more than the guess


def known_so_far(
    campaign: Campaign,
    found: dict[str, Any],
    texts: Mapping[str, dict[str, Any]] | None = None,
    *,
    wanted: float | None = None,
    when: Callable[[int], str] = lambda needed: "",
) -> list[dict[str, Any]]:
    """Return for each question the sentence, the state, the users still needed and a guess when, from `estimates`.

    ``texts`` has the texts that were found, for each question of texts. ``wanted`` is the half-width that is wanted, in
    percent of the range of an answer, and ``when`` says when this many more users will have come.
    """
    rows = {row["name"]: row | {"std_error": _error(row)} for row in found["dimensions"]}
    users, target = found["users"], campaign.wanted
    planned = dict(zip(campaign.quantities, (HALF_WIDTH_95 * campaign.predict()).tolist(), strict=True))
    known = []
    for question in campaign.survey.topics:
        own = [rows[name] for name in question.quantities if name in rows]
        errors = np.asarray([row["std_error"] for row in own], dtype=np.float64)
        aims = np.asarray([planned[name] for name in question.quantities], dtype=np.float64)
        if wanted is not None and question.tells != "texts":
            most = float(np.max((aims / (question.spans * wanted / 100)) ** 2))  # of the target: as many as it takes
            needed = max(math.ceil(target * most) - users, 0) if math.isfinite(most) else max(target - users, 0)
        else:
            needed = max(target - users, 0)
        if not users or not own or not np.all(np.isfinite(errors)):
            state, sentence = STATES[0], f"{_asked(campaign, question)} {_NOTHING}"
        elif question.tells == "texts":
            listed = (texts or {}).get(question.name, {"rows": []})["rows"]
            state = STATES[0] if not listed else STATES[2] if needed == 0 else STATES[1]
            sentence = _texts(campaign, question, listed)
        else:
            sentence = _sentence(campaign, question, own)
            tells = _EARLY * question.signals[: len(own)]
            early = float(np.max(HALF_WIDTH_95 * errors / tells))
            if wanted is not None:
                aims = question.spans * wanted / 100
            ratio = float(np.max(HALF_WIDTH_95 * errors / aims[: len(own)]))
            enough = ratio <= 1 or (wanted is None and users >= target)
            if early > 1:
                state, ratio = STATES[0], max(early, 0.0 if enough else ratio)
            else:
                state = STATES[2] if enough else STATES[1]
            more = math.ceil(users * (ratio**2 - 1))
            capped = more if wanted is not None or users >= target else min(more, target - users)
            needed = 0 if state == STATES[2] else max(capped, 1)
        known.append(
            {
                "question": question.name,
                "state": state,
                "needed": needed,
                "when": when(needed) if needed else "",
                "sentence": sentence,
            }
        )
    return known


def _error(row: dict[str, Any]) -> float | None:
    """Return the standard error whose ± is half of the interval, where there is one: it need not be symmetric."""
    ends = [row.get("low"), row.get("high")]
    if all(end is not None and math.isfinite(end) for end in ends):
        return float(np.diff(np.asarray(ends, dtype=np.float64))[0]) / 2 / HALF_WIDTH_95
    error: float | None = row["std_error"]
    return error


def _texts(campaign: Campaign, question: Topic, rows: list[dict[str, Any]]) -> str:
    """Say which texts are the most frequent."""
    told = [(row | {"value": row["share"], "std_error": _error(row)}, row["text"]) for row in rows[:_NAMED_LABELS]]
    named = ", ".join(f"{_percent(row)} {text!r}" for row, text in told)
    rest = f", and {len(rows) - _NAMED_LABELS} more" if len(rows) > _NAMED_LABELS else ""
    return f"{_asked(campaign, question)} {named or 'no text is frequent enough yet'}{rest}."


_NOTHING = "nothing can be said yet."
_BELOW = {"median": "half are below", "quantile 0.25": "a quarter below", "quantile 0.75": "three quarters below"}
_AFTER = {"mean": "on average", "mean number": "of them on average"}


def asked_of(question: Topic) -> tuple[str, ...]:
    """Return the names of the questions that results show: its own, or those that it follows from."""
    if isinstance(question, Joint):
        return question.pair
    suffix = {"rate": rate_name(""), "number of choices": number_name("")}.get(question.kind, "")
    return (question.name.removesuffix(suffix),)


def _asked(campaign: Campaign, question: Topic) -> str:
    """Return how a question is put, to write an answer after."""
    words = campaign.form.get("questions", {})
    wording = " × ".join(words.get(name, {}).get("ask", name) for name in asked_of(question))
    return wording if wording.endswith(("?", "？", ":", ".", "!")) else f"{wording}:"


def _sentence(campaign: Campaign, question: Topic, rows: list[dict[str, Any]]) -> str:
    """Say what the answers are, with the half-width of a 95 % interval."""
    asked = _asked(campaign, question)
    if question.tells == "shares":
        named = sorted(zip(question.estimated, rows, strict=False), key=lambda pair: -pair[1]["value"])[:_NAMED_LABELS]
        parts = [f"{_percent(row)} {label}" for label, row in named]
        rest = len(rows) - len(named)
        return f"{asked} {', '.join(parts)}{f', and {rest} more' if rest else ''}."
    if question.kind == "rate":
        return f"{asked} {_percent(rows[0])} answered."
    by_label = dict(zip(question.estimated, rows, strict=False))
    if "median" in by_label:
        parts = [f"{text} {_figure(campaign, question, label, by_label[label])}" for label, text in _BELOW.items()]
        return f"{asked} {', '.join(parts)}."
    parts = []
    for label, row in by_label.items():
        place, where, value = label.partition(" where ")
        after = _AFTER.get(place, place) + (f" for {value.partition('=')[2]}" if where else "")
        parts.append(f"{_figure(campaign, question, label, row)} {after}")
    return f"{asked} {', '.join(parts[:_NAMED_LABELS])}."


def _figure(campaign: Campaign, question: Topic, label: str, row: dict[str, Any]) -> str:
    """Write a value and its half-width as people of its axis write them: a date and days, a time and minutes."""
    low, high = {"variance": (0.0, math.inf), "covariance": (-math.inf, math.inf)}.get(label) or _range(question)
    value, error = min(max(row["value"], low), high), row["std_error"]
    axis = question.axis if isinstance(question, Number) and label != "variance" else "number"
    if axis == "date":
        return f"{date_of(value)} ± {_rounded(HALF_WIDTH_95 * error, error)} days"
    if axis == "time":
        return f"{time_of(value)} ± {_rounded(HALF_WIDTH_95 * error / 60, error / 60)} min"
    plain = label not in ("variance", "covariance", "correlation")
    words = campaign.form.get("questions", {}).get(asked_of(question)[-1], {}) if plain else {}
    unit = words.get("unit", "") if question.kind != "number of choices" else ""
    return f"{_rounded(value, error)} ± {_rounded(HALF_WIDTH_95 * error, error)}{f' {unit}' if unit else ''}"


def date_of(days: float) -> str:
    """Return the day that is this many days after the first of 1970.

    >>> date_of(2814.4)
    '1977-09-15'
    """
    return (date(1970, 1, 1) + timedelta(days=round(days))).isoformat()


def time_of(seconds: float) -> str:
    """Return the time of day that is this many seconds after midnight, to the minute.

    >>> time_of(26201.0)
    '07:17'
    """
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours:02d}:{minutes:02d}"


def _range(question: Topic) -> tuple[float, float]:
    """Return between what ends a mean can lie."""
    low, high = np.asarray(question.domain.low, dtype=float), np.asarray(question.domain.high, dtype=float)
    return float(low.min()), float(high.max())


def _percent(row: dict[str, Any]) -> str:
    """Return a share in percent with its half-width."""
    value, error = 100 * min(max(row["value"], 0.0), 1.0), 100 * row["std_error"]
    return f"{_rounded(value, error)} % ± {_rounded(HALF_WIDTH_95 * error, error)}"


def _rounded(value: float, error: float) -> str:
    """Write a number with two digits of its error."""
    places = 0 if error <= 0 else min(max(1 - math.floor(math.log10(error)), 0), 9)
    return f"{value * (1 + 1e-12):,.{places}f}"  # halves away from zero, as browsers round
