"""A page for each kind of question: the words are written here, errors and mechanisms are those of the plan.

Each page asks one question of made-up people, so that its example can be run and compared with the truth.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
from collections.abc import Callable, Iterator
from typing import Any

import yaml

import noisette as nz

FOLDER = "kinds"
BUDGETS = (0.5, 1.0, 2.0, 4.0)
USERS = (1_000, 10_000, 100_000, 1_000_000)
_PEOPLE = """\
>>> import numpy as np, noisette as nz
>>> world = np.random.default_rng(1)
"""


@dataclasses.dataclass(frozen=True)
class Kind:
    """What to ask for, when, and how: a survey of one question at any budget, and an example of it."""

    title: str
    what: str  # is asked and told, and when to take another kind
    make: Callable[[float], nz.Survey]
    example: str
    sent: str  # by a device
    more: str  # where to read on


def pages() -> Iterator[tuple[str, str, str]]:
    """Name each page, its title and its text."""
    yield "index", "All kinds", index()
    for name, kind in KINDS.items():
        yield name, kind.title, page(kind)


def index() -> str:
    """Return the table of all kinds."""
    lines = [
        "# Kinds of questions",
        "",
        "A [survey](../survey.md) is a list of questions and one budget for a person's answers to all of them. "
        "± is half of a 95 % interval at ε = 2, with 10,000 people.",
        "",
        "| you want to know | ask | ± |",
        "| --- | --- | ---: |",
    ]
    for name, kind in KINDS.items():
        row = kind.make(2.0).plan(users=10_000).rows[-1]
        lines.append(
            f"| [{kind.title}]({name}.md) | `{_written(kind)}` | {1.96 * row.std_error:.2g} ({row.quantity}) |"
        )
    closing = (
        "Public groups, such as regions or arms of an experiment, are not questions: everything is estimated [within "
        "each](../survey.md#groups). A question that is asked again and again is a [campaign with "
        "periods](../collector.md); [answers that change](../questions.md#answers-that-change) cost one epsilon in all."
    )
    return "\n".join([*lines, "", closing, ""])


def page(kind: Kind) -> str:
    """Return the page of one kind."""
    survey = kind.make(2.0)
    told = {name: value for name, value in survey.terms().items() if value not in (None, [], {}, 0.0)}
    return "\n".join(
        [
            f"# {kind.title}",
            "",
            inspect.cleandoc(kind.what),
            "",
            "```pycon",
            _PEOPLE + inspect.cleandoc(kind.example),
            "",
            "```",
            "",
            "In a file, for `noisette plan`, `privatize` and `serve`:",
            "",
            "```yaml",
            yaml.safe_dump(told, sort_keys=False, allow_unicode=True, default_flow_style=None).rstrip(),
            "```",
            "",
            "## What to expect",
            "",
            *expected(kind),
            "",
            "## What leaves the device",
            "",
            inspect.cleandoc(kind.sent),
            "",
            *drawn_by(kind),
            "",
            inspect.cleandoc(kind.more),
            "",
        ]
    )


def expected(kind: Kind) -> Iterator[str]:
    """Yield the table of what the plan predicts."""
    last = kind.make(1.0).plan(users=USERS[0]).rows[-1]
    moves = "a text of" in last.quantity
    what = "the least share of a text that is found" if moves else f"± of *{last.quantity}* ({last.question})"
    yield f"By budget and number of people: {what}" + ("." if moves else ", half of a 95 % interval.")
    yield ""
    yield f"| ε | {' | '.join(f'{users:,} people' for users in USERS)} |"
    yield "| ---: |" + " ---: |" * len(USERS)
    for epsilon in BUDGETS:
        cells = [_cell(kind.make(epsilon).plan(users=users).rows[-1], moves) for users in USERS]
        yield f"| {epsilon:g} | {' | '.join(cells)} |"
    yield ""
    yield "In italics: the plan calls it *not worth collecting*."


def drawn_by(kind: Kind) -> Iterator[str]:
    """Yield which mechanisms the survey takes at each budget."""
    yield "| ε | drawn by |"
    yield "| ---: | --- |"
    for epsilon in BUDGETS:
        survey = kind.make(epsilon)
        names = dict.fromkeys(_named(json.loads(json.dumps(survey.spec()["spec"], default=str))))
        yield f"| {epsilon:g} | {', '.join(f'[{name}](../mechanisms/{name}.md)' for name in names)} |"


def _cell(row: Any, moves: bool) -> str:
    """Return one prediction: how far off it is, or which text is found."""
    told = row.quantity.removeprefix("a text of ").removesuffix(" or more") if moves else f"{1.96 * row.std_error:.2g}"
    return told if row.verdict == "worth collecting" else f"*{told}*"


def _named(spec: Any) -> Iterator[str]:
    """Name the mechanisms of a specification, the innermost ones: what draws, and not what chooses whom to ask."""
    inner = spec.get("inner") if isinstance(spec, dict) else None
    if isinstance(spec, str):
        yield spec
    elif inner:
        for one in inner if isinstance(inner, list) else [inner]:
            yield from _named(one)
    elif isinstance(spec, dict) and "mechanism" in spec:
        yield spec["mechanism"]


def _written(kind: Kind) -> str:
    """Return the call of the question, as it stands in the example."""
    start = kind.example.index("nz.Survey([") + len("nz.Survey([")
    return kind.example[start : kind.example.index("], epsilon", start)].replace("\n...", "").replace("    ", " ")


KINDS = {
    "mean": Kind(
        "The mean of a number",
        """A number of a range that you state beforehand, and its mean. The range decides the error: ± grows in
        proportion to it, so ask for hours of sleep between 0 and 16, not between 0 and 1,000. `whole=True` says that
        answers are integers; dates (`"1950-01-01"`) and times of day (`"08:30"`) are numbers too.""",
        lambda epsilon: nz.Survey([nz.Number("sleep", 0, 16)], epsilon=epsilon),
        """>>> people = {"sleep": np.clip(world.normal(7, 1.5, 20_000), 0, 16)}
        >>> survey = nz.Survey([nz.Number("sleep", 0, 16)], epsilon=2.0)
        >>> sleep = survey.estimate(survey.privatize(people, rng=7))["sleep"]
        >>> low, high = sleep.interval()
        >>> print(f"{low:.1f} to {high:.1f} hours, in truth {people['sleep'].mean():.1f}")
        6.9 to 7.1 hours, in truth 7.0""",
        "One number that is right on average: the answer with noise, rounded at random to a public grid.",
        "The whole distribution is [another kind](distribution.md), and so are [medians and tails](quantiles.md).",
    ),
    "quantiles": Kind(
        "Medians, tails and ranges of a number",
        """Quantiles, and the share of people between two values, with intervals that hold whatever the distribution
        is like. Take this where the mean misleads: incomes, waiting times, ages at which something happened.""",
        lambda epsilon: nz.Survey([nz.Number("wait", 0, 120, want="quantiles")], epsilon=epsilon),
        """>>> people = {"wait": np.minimum(world.exponential(20, 20_000), 120)}
        >>> survey = nz.Survey([nz.Number("wait", 0, 120, want="quantiles")], epsilon=2.0)
        >>> wait = survey.estimate(survey.privatize(people, rng=7))["wait"]
        >>> low, high = wait.quantile_interval(0.5)
        >>> print(f"half of them {low:.1f} to {high:.1f} minutes or less, in truth {np.median(people['wait']):.1f}")
        half of them 11.2 to 15.0 minutes or less, in truth 13.8
        >>> share, low, high = wait.share_between(60, 120)
        >>> print(f"{low:.3f} to {high:.3f} wait an hour, in truth {(people['wait'] >= 60).mean():.3f}")
        0.028 to 0.058 wait an hour, in truth 0.050""",
        "In which cell of the range the number lies, of a few large or of many small cells, with a stated chance of a "
        "lie.",
        "More in [More kinds of questions](../questions.md#medians-tails-and-ranges).",
    ),
    "distribution": Kind(
        "The distribution of a number",
        """A picture of how answers spread over the range, smoothed, and the mean. No interval holds for a smoothed
        picture: where you decide by a share or a quantile, [ask for quantiles](quantiles.md).""",
        lambda epsilon: nz.Survey([nz.Number("age", 18, 99, want="distribution")], epsilon=epsilon),
        """>>> people = {"age": np.clip(world.normal(45, 12, 20_000), 18, 99)}
        >>> survey = nz.Survey([nz.Number("age", 18, 99, want="distribution")], epsilon=2.0)
        >>> age = survey.estimate(survey.privatize(people, rng=7))["age"]
        >>> print(f"half are under {age.quantile(0.5):.0f}, in truth {np.median(people['age']):.0f}")
        half are under 45, in truth 45""",
        "One number near the answer, or anywhere in a slightly larger range with a stated chance.",
        "`age.histogram(bins=16)` and `age.plot()` show it.",
    ),
    "variance": Kind(
        "The variance of a number",
        """Mean and variance together: how much people differ. Some are asked for the number, others for its square.""",
        lambda epsilon: nz.Survey([nz.Number("steps", 0, 20, want="variance")], epsilon=epsilon),
        """>>> people = {"steps": np.clip(world.normal(8, 3, 20_000), 0, 20)}
        >>> survey = nz.Survey([nz.Number("steps", 0, 20, want="variance")], epsilon=2.0)
        >>> steps = survey.estimate(survey.privatize(people, rng=7))["steps"]
        >>> table = steps.table().set_index("quantity")
        >>> low, high = table.loc["variance", ["low", "high"]]
        >>> print(bool(low < people["steps"].var() < high))
        True""",
        "One number with noise: the answer, or its square.",
        "It costs more than a mean: compare the table above with [that of a mean](mean.md).",
    ),
    "choice": Kind(
        "One choice of a list",
        """The share of each label. A list may have millions of labels; what matters is how large the shares are that
        you want to see: one of 1 % needs a ± below 0.01. A list that you cannot write down is [a text](text.md).""",
        lambda epsilon: nz.Survey([nz.Choice("diet", ["none", "vegan", "halal"])], epsilon=epsilon),
        """>>> people = {"diet": world.choice(["none", "vegan", "halal"], 20_000, p=[0.6, 0.3, 0.1])}
        >>> survey = nz.Survey([nz.Choice("diet", ["none", "vegan", "halal"])], epsilon=2.0)
        >>> diet = survey.estimate(survey.privatize(people, rng=7))["diet"]
        >>> table = diet.table().set_index("quantity")
        >>> [bool(low < truth < high) for low, high, truth in zip(table["low"], table["high"], (0.6, 0.3, 0.1))]
        [True, True, True]""",
        "A label that is the true one with a stated chance, or for longer lists a short code of a set of labels.",
        "`diet.shares` has the shares alone; `results.compare` tells whether they differ between groups.",
    ),
    "several-choices": Kind(
        "Several choices of a list",
        """Everything that applies: the share of people who chose each option, and the mean number of options. `most`
        bounds how many one person may choose; the smaller it is, the smaller the error.""",
        lambda epsilon: nz.Survey([nz.Choices("devices", ["phone", "tablet", "watch"], most=2)], epsilon=epsilon),
        """>>> chosen = [["phone"], ["phone", "watch"], ["tablet"], []]
        >>> people = {"devices": [chosen[i] for i in world.choice(4, 20_000, p=[0.5, 0.2, 0.2, 0.1])]}
        >>> survey = nz.Survey([nz.Choices("devices", ["phone", "tablet", "watch"], most=2)], epsilon=2.0)
        >>> devices = survey.estimate(survey.privatize(people, rng=7))["devices"]
        >>> print(abs(devices.shares - [0.7, 0.2, 0.2]).max().round(1))
        0.0""",
        "One small set of options, drawn so that no choice can be told from another; how many were chosen is hidden "
        "too.",
        "With another question asked jointly it gives a crosstab: see [two answers together](two-together.md).",
    ),
    "text": Kind(
        "A text that nobody listed",
        """The most frequent answers to an open question, such as a site, a word or a product, with their shares.
        Rare texts are never found, and that is part of the promise: the plan says how frequent one must be.""",
        lambda epsilon: nz.Survey(
            [nz.Text("site", longest=8, alphabet="abcdefghijklmnopqrstuvwxyz.")], epsilon=epsilon
        ),
        """>>> people = {"site": world.choice(["news.org", "maps.net", "chat.io"], 60_000, p=[0.5, 0.3, 0.2])}
        >>> survey = nz.Survey([nz.Text("site", longest=8, alphabet="abcdefghijklmnopqrstuvwxyz.")], epsilon=4.0)
        >>> found = survey.estimate(survey.privatize(people, rng=7))["site"].top(3)
        >>> found["text"].tolist()
        ['news.org', 'maps.net', 'chat.io']""",
        "A short code of the beginning of the text, of one length that is drawn for the person, with noise.",
        "How the search works, and what it costs: [Texts that nobody listed](../texts.md).",
    ),
    "vector": Kind(
        "The mean of several numbers",
        """Numbers that belong together and have one range, such as hours by weekday, or a vector of a bounded length,
        `nz.Vector("update", 100, length=1.0)`; their means.""",
        lambda epsilon: nz.Survey([nz.Vector("hours", 7, 0, 24)], epsilon=epsilon),
        """>>> people = {"hours": world.uniform(4, 10, (20_000, 7))}
        >>> survey = nz.Survey([nz.Vector("hours", 7, 0, 24)], epsilon=2.0)
        >>> table = survey.estimate(survey.privatize(people, rng=7))["hours"].table()
        >>> len(table), bool(abs(table["value"] - 7).max() < 2)
        (7, True)""",
        "One of the numbers, drawn at random, with noise at the whole budget; or one vector with noise on all of it, "
        "whichever errs less.",
        "The error grows with the root of the number of entries.",
    ),
    "tensor": Kind(
        "The mean of a tensor",
        """Tables or images of numbers, of which the mean over people is wanted, entry by entry.""",
        lambda epsilon: nz.Survey([nz.Tensor("photo", (4, 4), 0, 1)], epsilon=epsilon),
        """>>> people = {"photo": world.uniform(0, 0.5, (20_000, 4, 4))}
        >>> survey = nz.Survey([nz.Tensor("photo", (4, 4), 0, 1)], epsilon=2.0)
        >>> table = survey.estimate(survey.privatize(people, rng=7))["photo"].table()
        >>> len(table), bool(abs(table["value"] - 0.25).max() < 0.2)
        (16, True)""",
        "A few entries with noise, or noise on the whole tensor, whichever errs less.",
        "To release one tensor instead of asking many people for one each: [Releasing a "
        "tensor](../releasing-a-tensor.md).",
    ),
    "graded": Kind(
        "A number whose ranges need different protection",
        """Some answers are more delicate than others: an illness, a very low or very high income. Each level of the
        range has a budget of its own, and the matrix of what an observer can learn between levels is stated.""",
        lambda epsilon: nz.Survey([nz.Graded("income", [(0, 50, 2.0), (50, 100, 1.0)])], epsilon=epsilon),
        """>>> people = {"income": np.clip(world.normal(40, 15, 20_000), 0, 100)}
        >>> survey = nz.Survey([nz.Graded("income", [(0, 50, 2.0), (50, 100, 1.0)])], epsilon=2.0)
        >>> low, high = survey.estimate(survey.privatize(people, rng=7))["income"].interval()
        >>> print(bool(low < people["income"].mean() < high))
        True""",
        "A number from a table of chances that is solved for these levels.",
        "[Protect the tails more](../protect-the-tails.md) leads through such a collection.",
    ),
    "two-together": Kind(
        "Two answers together",
        """How two answers go together, at one budget: a crosstab of two choices, means of a number within a private
        choice, or the correlation of two numbers. Asking both apart would not tell it.""",
        lambda epsilon: nz.Survey(
            [nz.Choice("diet", ["none", "vegan"]), nz.Number("age", 18, 99)], epsilon=epsilon, joint=[("diet", "age")]
        ),
        """>>> diet = world.choice(["none", "vegan"], 20_000, p=[0.7, 0.3])
        >>> people = {"diet": diet, "age": np.where(diet == "vegan", 35, 50) + world.uniform(-10, 10, 20_000)}
        >>> survey = nz.Survey([nz.Choice("diet", ["none", "vegan"]), nz.Number("age", 18, 99)], epsilon=2.0,
        ...     joint=[("diet", "age")])
        >>> results = survey.estimate(survey.privatize(people, rng=7))
        >>> table = results.by("diet").table().set_index("group")
        >>> [bool(low < truth < high) for low, high, truth in zip(table["low"], table["high"], (50, 35))]
        [True, True]""",
        "One report of the pair: both answers are randomised as one, at the whole budget.",
        "Every kind of pair is in [More kinds of questions](../questions.md#two-answers-together).",
    ),
    "no-answer": Kind(
        "A question that may be left out",
        """Whether somebody answers can be as telling as the answer. With `optional=True` everybody sends a report, and
        who gave no answer stays private; the response rate is estimated, and the mean or the shares among those who
        answered.""",
        lambda epsilon: nz.Survey([nz.Number("income", 0, 10, optional=True)], epsilon=epsilon),
        """>>> people = {"income": np.where(world.random(20_000) < 0.7, world.uniform(2, 6, 20_000), np.nan)}
        >>> survey = nz.Survey([nz.Number("income", 0, 10, optional=True)], epsilon=2.0)
        >>> income = survey.estimate(survey.privatize(people, rng=7))["income"]
        >>> low, high = income.interval()
        >>> print(f"{income.response_rate:.0%} answered; truth inside: {bool(low < 4 < high)}")
        70% answered; truth inside: True""",
        "One report in either case: which answer, or none, is randomised together.",
        "Works for the mean of a number, for one choice or several, and for texts. The plan assumes that 80 % answer.",
    ),
}
