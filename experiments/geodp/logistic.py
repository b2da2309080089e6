"""Figure 5.5: logistic regression with DP and with GeoDP, and the guarantee that truly holds for each line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from experiments.frame import Advance, Chart, Series, Study
from experiments.geodp.training import DELTA, Around, Row, Run, Task, Trials, images
from noisette import sgd
from noisette.sgd import zoo

NO_NOISE = 1e-9
COLUMNS = (
    "panel",
    "method",
    "σ",
    "B",
    "test loss",
    "accuracy, %",
    "stride",
    "ε claimed",
    "ε that holds",
    "plain DP-SGD at that ε, loss",
    "its accuracy, %",
)


def panels(large: int, middle: int, little: int, other: int) -> dict[str, list[Row]]:
    """Return the lines of each panel, at four sizes of a batch."""
    printed = {beta: sgd.Geo(beta, "gradient", as_published=True) for beta in (1.0, 0.5)}
    sound = sgd.Geo(1.0, "gradient")
    made = {
        "a": [
            *(Row("DP", 1.0, size, 0.1) for size in (middle, large)),
            *(Row("GeoDP as printed, β = 1", 1.0, size, 0.1, printed[1.0]) for size in (middle, large)),
            Row("GeoDP sound, β = 1", 1.0, large, 0.1, sound),
        ],
        "b": [
            Row("DP", 10.0, large, 0.1),
            *(Row(f"GeoDP as printed, β = {beta:g}", 10.0, large, 0.1, own) for beta, own in printed.items()),
            Row("GeoDP, range around π/2, β = 0.5", 10.0, large, 0.1, Around(0.5, "gradient", as_published=True)),
        ],
    }
    for letter, size in (("c", little), ("d", other)):
        made[letter] = [
            row
            for sigma in (0.01, 0.1)
            for row in (
                Row("DP", sigma, size, 0.1),
                Row("GeoDP as printed, β = 1", sigma, size, 0.1, printed[1.0]),
                Row("GeoDP sound, β = 1", sigma, size, 0.1, sound),
            )
        ]
    return made


def fig_5_5(full: bool, advance: Advance) -> Study:
    """Logistic regression on MNIST."""
    data, test = images("mnist", 60_000, 10_000) if full else images("mnist", 256, 200)
    sizes, steps, strides = ((4096, 2048, 256, 1024), 350, (0.5, 2.0)) if full else ((64,) * 4, 10, (1.0,))
    lines = panels(*sizes) if full else {letter: own for letter, own in panels(*sizes).items() if letter in "ac"}
    rows = [(letter, row) for letter, own in lines.items() for row in own]
    trials = Trials(Task(zoo.softmax, data, test, steps), strides, marks=10)
    clear = trials.best(Row("no noise", NO_NOISE, sizes[0], 0.1))[1]
    found = []
    for place, (_, row) in enumerate(rows):
        found.append(trials.best(row))
        advance(0.6 * (place + 1) / len(rows))
    most = max(run.budget.multiplier * run.budget.truth for _, run in found if run.budget.truth < 1)
    made: list[tuple[Any, ...]] = [("", "no noise", 0.0, sizes[0], _end(clear), clear.accuracy, *[None] * 5)]
    for place, ((letter, row), (best, run)) in enumerate(zip(rows, found, strict=True)):
        other = trials.plain(row, run, most)[1]
        own = (letter, row.name, row.sigma, row.batch, _end(run), run.accuracy, best.stride, run.claimed, run.holds)
        made.append((*own, _end(other), other.accuracy))
        advance(0.6 + 0.4 * (place + 1) / len(rows))
    charts = []
    for letter in lines:
        drawn = [
            _line(f"{row.name}, σ = {row.sigma:g}, B = {row.batch:,}", run)
            for (panel, row), (_, run) in zip(rows, found, strict=True)
            if panel == letter
        ]
        charts.append(
            Chart(
                f"fig-5-5-{letter}",
                f"Figure 5.5({letter})",
                "step",
                "test loss (nats)",
                [_line("no noise", clear), *drawn],
                log_y=True,
            )
        )
    return Study(
        "Figure 5.5: logistic regression on MNIST",
        "GeoDP almost reaches training without noise, where DP stays behind, and less noise does not help DP.",
        finding(made),
        COLUMNS,
        made,
        {
            "steps": steps,
            "test images": len(test),
            "strides": f"the best of {' and '.join(map(str, strides))} by accuracy on training images; a stride is the "
            "learning rate times the clipping norm",
            "delta": DELTA,
            "differs": "the thesis plots the loss of training. Its text says neither the σ of panels (a) and (b) nor "
            f"what differs between (d) and (c): here they are 1, 10 and B = {sizes[3]:,}",
        },
        charts,
    )


def finding(made: Sequence[tuple[Any, ...]]) -> str:
    """Say how the forms of GeoDP end against DP at one noise multiplier and at one guarantee."""
    clear, rows = made[0], made[1:]
    plain = {(row[0], row[2], row[3]): row for row in rows if row[1] == "DP"}
    geo = [row for row in rows if "sound" not in row[1] and row[1] != "DP"]
    sound = [row for row in rows if "sound" in row[1]]
    ahead = sum(row[4] < plain[row[0], row[2], row[3]][4] for row in geo)
    behind = sum(row[4] > plain[row[0], row[2], row[3]][4] for row in sound)
    same = sum(row[9] <= row[4] for row in geo)
    little = [row for row in plain.values() if row[2] == 0.01]
    return (
        f"At one σ the unsound forms end with a smaller loss than DP in {ahead} of {len(geo)} settings, the sound form "
        f"with a larger one in {behind} of {len(sound)}. At the guarantee that truly holds for the unsound forms plain "
        f"DP-SGD ends with a loss no larger in {same} of {len(geo)}. At σ = 0.01 DP ends at a loss of "
        + " and ".join(f"{row[4]:.3f} (B = {row[3]:,})" for row in little)
        + f", training without noise at B = {clear[3]:,} at {clear[4]:.3f}."
    )


def _end(run: Run) -> float:
    return run.curve[-1][1]


def _line(label: str, run: Run) -> Series:
    return Series(label, [step for step, _ in run.curve], [loss for _, loss in run.curve])
