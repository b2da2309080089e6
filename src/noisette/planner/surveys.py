"""The planner page of a survey: numbers, categories, whatever a survey asks, and its groups.

Python plans the survey at each budget of a list; the page scales what was planned to other numbers of people, since
every error here falls with the root of the number of reports.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib.resources import files
from string import Template
from typing import Any

import numpy as np

from noisette._look import style
from noisette.survey.coding.items import Topic
from noisette.survey.estimation.distributions import mechanisms
from noisette.survey.questions import Number
from noisette.survey.survey import Survey

EPSILONS = (0.5, 1.0, 2.0, 4.0, 8.0)


def survey_page(
    survey: Survey,
    users: int | None = None,
    *,
    command: str = "noisette plan survey.yaml",
    on_progress: Callable[[float], None] = lambda share: None,
) -> str:
    """Return a web page on which people, budget and the error that is wanted can be changed for a survey.

    *Utility*: what the page shows at ``users`` people is what `Survey.plan` says there. For other numbers it divides by
    the root of their ratio; `Survey.plan` rounds how many people answer each part to whole ones.

    >>> survey = Survey.from_dict({"questions": [{"name": "by", "categories": ["car", "bus"]}], "epsilon": 1.0})
    >>> "http:" in survey_page(survey, 1000)
    False
    """
    count = survey.users if users is None else users
    budgets = sorted({*EPSILONS, survey.epsilon})
    plans = {}
    for done, epsilon in enumerate(budgets):
        on_progress(done / len(budgets))
        own = survey if epsilon == survey.epsilon else at_budget(survey, epsilon)
        plans[epsilon] = (own.plan(count), mechanisms(own))
    first = plans[survey.epsilon][0]
    topics = {one.name: one for one in survey.topics}
    per = len(first.rows) // len(first.sizes)
    reach = np.concatenate([one.spans for one in survey.topics]).tolist()
    signals = np.concatenate([one.signals for one in survey.topics]).tolist()
    data: dict[str, Any] = {
        "users": first.users,
        "epsilon": survey.epsilon,
        "budgets": budgets,
        "wanted": 5.0,
        "command": command,
        "groups": {name: size / first.users for name, size in first.sizes.items()},
        "rows": [
            {"question": row.question, "quantity": row.quantity, "group": row.group}
            | {"span": reach[place % per], "signal": signals[place % per]}
            | _written_as(topics[row.question], row.quantity)
            for place, row in enumerate(first.rows)
        ],
        "errors": {
            f"{epsilon:g}": [_finite(row.std_error) for row in plan.rows] for epsilon, (plan, _) in plans.items()
        },
        "mechanisms": {f"{epsilon:g}": used for epsilon, (_, used) in plans.items()},
    }
    return Template(_asset("survey.html")).substitute(
        style=style() + _asset("planner.css"),
        script=_asset("survey.js"),
        data=json.dumps(data, allow_nan=False).replace("<", "\\u003c"),
    )


def at_budget(survey: Survey, epsilon: float) -> Survey:
    """Return the same questions at another budget, with mechanisms chosen anew."""
    return Survey.from_dict(survey.terms() | {"epsilon": epsilon})


def _written_as(topic: Topic, quantity: str) -> dict[str, str]:
    """Return whether a quantity is a mean or a share, and the axis that it lies on."""
    axis = topic.axis if isinstance(topic, Number) and quantity != "variance" else "number"
    return {"tells": "shares" if topic.kind == "rate" else topic.tells, "axis": axis}


def _finite(value: float) -> float | None:
    return value if np.isfinite(value) else None


def _asset(name: str) -> str:
    return files("noisette.planner").joinpath(name).read_text(encoding="utf-8")
