"""The plan of a campaign as a page: what it will cost and tell, before anything is collected. It has no script."""

from __future__ import annotations

import base64
import hashlib
import math
from html import escape
from typing import Any

from noisette._look import style
from noisette._terminal import HALF_WIDTH_95, describe, number
from noisette.survey.campaigns import Campaign
from noisette.survey.choosing import unit_plan

_LISTED_QUANTITIES = 60  # quantities that are listed
_FACTORS = (0.01, 0.1, 1.0, 10.0, 100.0)  # of the target population, in the second table
_STYLE = style()
_HASH = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
_POLICY = f"default-src 'none'; style-src 'sha256-{_HASH}'; base-uri 'none'; frame-ancestors 'none'"
HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}


def plan_page(campaign: Campaign) -> str:
    """Return the page; whatever an analyst wrote is text on it.

    >>> made = Campaign.from_dict(
    ...     {
    ...         "id": "a",
    ...         "title": "<b>",
    ...         "epsilon": 1,
    ...         "users": 9,
    ...         "mechanism": "duchi",
    ...         "attributes": [{"name": "x", "range": [0, 1]}],
    ...     }
    ... )
    >>> "<b>" in plan_page(made), "&lt;b&gt;" in plan_page(made)
    (False, True)
    """
    top = f'<p class="brand">Plan</p><h1>{escape(campaign.title)}</h1><p>{escape(_sentence(campaign))}</p>'
    tables = (_errors(campaign), _populations(campaign), _rivals(campaign))
    parts = [
        *(f"<section>{one}</section>" for one in tables if one),
        '<p class="hint">± is half of a 95 % interval, for the distribution of values that is worst on average. It '
        "holds for honest devices. While reports arrive, the dashboard shows it beside what is seen.</p>",
    ]
    head = f"<title>Plan of {escape(campaign.title)}</title><style>{_STYLE}</style>"
    view = '<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
    body = f"<header><div>{top}</div></header><main>{''.join(parts)}</main>"
    return f'<!doctype html><html lang="en"><head>{view}{head}</head><body>{body}</body></html>'


def _sentence(campaign: Campaign) -> str:
    """Say what one user spends, and how often."""
    ways = {
        "permanent": "the same report in every period",
        "fresh": "a fresh report in every period",
        "tracked": f"in one of {campaign.periods} periods that is drawn for her",
    }
    again = ways[campaign.answers]
    often = "once" if campaign.period == "once" else f"every {campaign.period}, {again}"
    spent = describe(campaign.mechanism.guarantee)
    return f"{campaign.users:,} users are hoped for. Each answers {often}, at {spent}. Mechanism: {named(campaign)}."


def named(campaign: Campaign) -> str:
    """Return the names of the mechanisms, those of a record's attributes one by one."""
    found: list[str] = []
    for section in campaign.sections:
        own = section.mechanism
        inner = own.inner if own.capabilities.composite else own.name
        found += [inner] if isinstance(inner, str) else list(inner)
    return ", ".join(found)


def _ranges(campaign: Campaign) -> list[float]:
    """Return how far each quantity can go."""
    return [span for section in campaign.sections for one in section.questions for span in one.spans.tolist()]


def verdicts(campaign: Campaign) -> dict[str, str]:
    """Return for each quantity whether it is worth collecting from the users that are hoped for."""
    names = [name for question in campaign.survey.topics for name in question.quantities]
    rows = campaign.plan().rows
    return {name: row.verdict for name, row in zip(names, rows, strict=False)}  # those of everybody come first


def _errors(campaign: Campaign) -> str:
    """List the error of each quantity at the target population."""
    rows, judged = [], verdicts(campaign)
    listed = list(zip(campaign.quantities, campaign.predict().tolist(), _ranges(campaign), strict=True))
    for name, error, span in listed[:_LISTED_QUANTITIES]:
        half = HALF_WIDTH_95 * error
        rows.append([name, f"± {number(half, error)}", f"± {half / span:.2%}", judged[name]])
    more = f" The first {_LISTED_QUANTITIES} of {len(listed):,} quantities." if len(listed) > _LISTED_QUANTITIES else ""
    part = " of a period, by those who drew it" if campaign.answers == "tracked" else ""
    caption = f"What {campaign.users:,} users tell{part}.{more}"
    return _table(caption, ["Quantity", "±", "Of its range", "Verdict"], rows)


def _populations(campaign: Campaign) -> str:
    """List the errors of a few quantities for smaller and larger populations."""
    counts = sorted({max(1, round(campaign.users * factor)) for factor in _FACTORS})
    picked = campaign.quantities[:6]
    errors = {count: campaign.predict(count)[: len(picked)].tolist() for count in counts}
    rows = [[f"{count:,}", *(f"± {number(HALF_WIDTH_95 * one, one)}" for one in errors[count])] for count in counts]
    return _table("If more or fewer users answer", ["Users", *picked], rows)


def _rivals(campaign: Campaign) -> str:
    """Compare with other mechanisms, where one plain attribute is asked for."""
    if len(campaign.attributes) > 1 or not campaign.attributes[0].plain:
        return ""
    only = campaign.attributes[0]
    made = unit_plan(only, campaign.epsilon, campaign.delta, campaign.wanted)
    domain: Any = only.domain
    span = 1.0 if only.kind == "category" else float(domain.high - domain.low)
    rows = [
        [one.mechanism, f"± {number(HALF_WIDTH_95 * error, error)}", "yes" if one.unbiased else "no"]
        for one, error in ((one, math.sqrt(one.mse) * span) for one in made.candidates)
    ]
    return _table("What other mechanisms would tell, at the same budget", ["Mechanism", "±", "Unbiased"], rows)


def _table(caption: str, header: list[str], rows: list[list[str]]) -> str:
    heads = "".join(f'<th scope="col">{escape(one)}</th>' for one in header)
    lines = "".join(
        f'<tr><th scope="row">{escape(first)}</th>{"".join(f"<td>{escape(cell)}</td>" for cell in rest)}</tr>'
        for first, *rest in rows
    )
    top = f"<caption>{escape(caption)}</caption><thead><tr>{heads}</tr></thead>"
    return f'<div class="wide"><table>{top}<tbody>{lines}</tbody></table></div>'
