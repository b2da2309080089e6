"""Pictures and table of *What epsilon?*: run this file to write the first to docs/figures and print the other."""

import math
from collections.abc import Iterator
from pathlib import Path

FIGURES = Path(__file__).resolve().parent / "figures"
NUT, SOFT, PALE = "#a8713a", "#8a7a6a", "#d9c3a5"  # read on light and on dark pages
TEXT = f'font-family="system-ui, sans-serif" fill="{SOFT}"'
BEFORE = ((0.5, "1 in 2"), (0.1, "1 in 10"), (0.01, "1 in 100"))
SHOWN = (0.5, 1.0, 2.0, 4.0)


def surest(before: float, epsilon: float) -> float:
    """Return the chance that an outsider may give to a guess after one report, at most."""
    odds = before / (1 - before) * math.exp(epsilon)
    return odds / (1 + odds)


def drawn(width: int, height: int, title: str, parts: Iterator[str]) -> str:
    """Return a picture with a title for those who do not see it."""
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">'
    return "\n".join([head, f"<title>{title}</title>", *parts, "</svg>", ""])


def text(x: float, y: float, words: str, anchor: str = "middle", size: int = 13) -> str:
    """Return a line of text."""
    return f'<text x="{x:.0f}" y="{y:.0f}" font-size="{size}" text-anchor="{anchor}" {TEXT}>{words}</text>'


def curves() -> Iterator[str]:
    """Yield how sure an outsider may become, against epsilon, from three beginnings."""
    left, top, width, height = 50, 34, 470, 250

    def place(epsilon: float, chance: float) -> tuple[float, float]:
        return left + width * epsilon / 8, top + height * (1 - chance)

    for chance in (0.0, 0.25, 0.5, 0.75, 1.0):
        y = place(0, chance)[1]
        yield f'<line x1="{left}" y1="{y:.0f}" x2="{left + width}" y2="{y:.0f}" stroke="{PALE}" stroke-width="0.7"/>'
        yield text(left - 8, y + 4, f"{chance:.0%}", "end")
    for epsilon in range(9):
        yield text(place(epsilon, 0)[0], top + height + 20, str(epsilon))
    yield text(left + width / 2, top + height + 42, "ε of one report")
    yield text(left - 40, 16, "how sure an outsider can be at most", "start")
    for before, words in BEFORE:
        line = " ".join("{:.1f},{:.1f}".format(*place(k / 10, surest(before, k / 10))) for k in range(81))
        yield f'<polyline points="{line}" fill="none" stroke="{NUT}" stroke-width="2.5"/>'
        x, y = place(math.log(0.6 / 0.4 * (1 - before) / before), 0.6)  # beside the curve, where it is at 60 %
        yield text(x + 12, y + 6, f"from {words}", "start")


def dots() -> Iterator[str]:
    """Yield of a hundred reports to a yes or no how many are the true answer, at four budgets."""
    for panel, epsilon in enumerate(SHOWN):
        left, true = 10 + 150 * panel, round(100 * surest(0.5, epsilon))
        yield text(left + 60, 18, f"ε = {epsilon:g}", size=15)
        for k in range(100):
            x, y = left + 12 * (k % 10) + 6, 34 + 12 * (k // 10)
            look = f'fill="{NUT}"' if k < true else f'fill="none" stroke="{SOFT}"'
            yield f'<circle cx="{x}" cy="{y}" r="4" {look}/>'
        yield text(left + 60, 172, f"{true} true, {100 - true} false")


def table() -> str:
    """Return how sure an outsider can be at most, for several budgets and beginnings."""
    lines = [f"| ε of one report | odds times at most | {' | '.join(f'{words} becomes' for _, words in BEFORE)} |"]
    lines.append("| ---: |" + " ---: |" * (1 + len(BEFORE)))
    for epsilon in (0.1, 0.5, 1, 2, 4, 8):
        sure = [100 * surest(before, epsilon) for before, _ in BEFORE]
        chances = " | ".join(f"{one:.3g} %" if one < 99.95 else f"{one:.4g} %" for one in sure)  # nobody is certain
        lines.append(f"| {epsilon:g} | {math.exp(epsilon):,.1f} | {chances} |")
    return "\n".join(lines)


PICTURES = {
    "odds.svg": drawn(540, 335, "How sure an outsider can be at most, against the epsilon of one report", curves()),
    "true-reports.svg": drawn(600, 182, "Of 100 reports to a yes or no, how many are true at four budgets", dots()),
}

if __name__ == "__main__":
    for name, picture in PICTURES.items():
        (FIGURES / name).write_text(picture, encoding="utf-8")
    print(table())
