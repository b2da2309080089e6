"""The demonstration as a web page: one file, with its script inside, that loads nothing from anywhere."""

from __future__ import annotations

from html import escape
from importlib.resources import files
from string import Template

import numpy as np

from noisette._terminal import number
from noisette.demo import charts
from noisette.demo.collection import LEVEL, PILOT, PORTRAIT, REPEATS, SHARDS, Outcome, Part, covered, root_mean_square
from noisette.demo.population import ATTRIBUTES


def page(outcome: Outcome) -> str:
    """Return the whole page."""
    from plotly.offline import get_plotlyjs

    numbers, sport = outcome.numbers, outcome.sport
    total = numbers.mechanism.guarantee.epsilon + sport.mechanism.guarantee.epsilon
    template = Template(files("noisette.demo").joinpath("template.html").read_text(encoding="utf-8"))
    return template.substitute(
        users=f"{outcome.users:,}",
        plain_users=outcome.users,
        epsilon=f"{outcome.epsilon:g}",
        epsilon_numbers=f"{numbers.plan.epsilon:g}",
        epsilon_sport=f"{sport.plan.epsilon:g}",
        seed=outcome.seed,
        count=len(ATTRIBUTES),
        pilot=f"{PILOT:,}",
        repeats=REPEATS,
        shards=SHARDS,
        total=f"{total:g}",
        odds=f"{np.exp(total):,.0f}",
        digest=numbers.digests[0],
        cards=_cards(outcome),
        plan=charts.plans(outcome),
        population=charts.populations(numbers),
        numbers_coverage=f"By {numbers.chosen.mechanism}. {numbers.coverage}",
        scatter=charts.scatter(numbers),
        errors=charts.errors(numbers),
        table=_table(numbers),
        sport_coverage=f"By {sport.chosen.mechanism}. {sport.coverage}{_rare(sport)}",
        sport=charts.frequencies(sport),
        portrait=_portrait(outcome),
        budgets=charts.budgets(outcome),
        guarantee=_guarantee(outcome),
        plotly=get_plotlyjs(),
    )


def _cards(outcome: Outcome) -> str:
    part = outcome.numbers
    hits, total = part.shard_coverage
    measured = charts.percent(part, root_mean_square(part.raw.value - part.truth))
    facts = (
        (f"{outcome.users:,}", "devices, none of which showed its data"),
        (f"ε = {outcome.epsilon:g}", "per device, over all its answers, in the local model"),
        (
            f"{measured:.2f} %",
            f"of its range: error of a mean, predicted {charts.percent(part, part.chosen.mse**0.5):.2f} %",
        ),
        (f"{hits / total:.1%}", f"of {total:,} intervals at {LEVEL:.0%} hold the truth"),
    )
    return "".join(
        f'<div class="card"><b>{escape(value)}</b><span>{escape(label)}</span></div>' for value, label in facts
    )


def _rare(part: Part) -> str:
    low, _ = part.raw.interval(LEVEL)
    lost = [name for name, value in zip(part.names, low, strict=True) if value <= 0]
    return f" Too rare to tell from zero at this budget: {', '.join(lost)}." if lost else ""


def _table(part: Part) -> str:
    low, high = part.raw.interval(LEVEL)
    inside = covered(part.raw, part.truth)
    heads = ("attribute", "unit", "truth", "estimate", f"{LEVEL:.0%} from", "to", "enhanced")
    rows = []
    for place, attribute in enumerate(ATTRIBUTES):
        error = attribute.from_length(float(part.raw.std_error[place]))
        values = (part.truth, part.raw.value, low, high, part.enhanced.value)
        cells = [number(float(attribute.from_canonical(v[place])), error) for v in values]
        style = "" if inside[place] else ' class="out"'
        body = "".join(f"<td{style}>{cell}</td>" for cell in cells)
        rows.append(f"<tr><td>{escape(attribute.name)}</td><td>{escape(attribute.unit)}</td>{body}</tr>")
    head = "".join(f"<th>{escape(text)}</th>" for text in heads)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"


def _portrait(outcome: Outcome) -> str:
    if outcome.portrait is None:
        return ""
    attribute = ATTRIBUTES[PORTRAIT]
    return (
        f"<section><h2>The distribution of one attribute: {escape(attribute.name)}</h2>"
        f"<p>The same reports hold more than means: expectation maximisation reconstructs how the true values are "
        f"distributed, here from {outcome.portrait.reports:,} noisy reports about this attribute.</p>"
        f"{charts.distribution(outcome.portrait, attribute)}</section>"
    )


def _guarantee(outcome: Outcome) -> str:
    rows = []
    for name, part in (("the numbers", outcome.numbers), ("the sport", outcome.sport)):
        g = part.mechanism.guarantee
        cells = (name, part.chosen.mechanism, f"{g.epsilon:g}", g.unit, g.model, g.relation)
        rows.append("".join(f"<td>{escape(cell)}</td>" for cell in cells))
    total = sum(part.mechanism.guarantee.epsilon for part in (outcome.numbers, outcome.sport))
    rows.append(f"<td><b>a device, in all</b></td><td></td><td><b>{total:g}</b></td><td colspan=3>budgets add up</td>")
    head = "".join(f"<th>{text}</th>" for text in ("answer", "mechanism", "ε", "unit", "model", "relation"))
    body = "".join(f"<tr>{row}</tr>" for row in rows)
    return f'<table class="words"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'
