"""What a person sees: tables that fit 80 columns, JSON without NaN, a bar when work takes over a second."""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from noisette._files import whole_file

if TYPE_CHECKING:  # what prints a help text needs none of it
    from rich.console import Console
    from rich.table import Table

    from noisette._validate import FloatArray
    from noisette.guarantees import Guarantee

HALF_WIDTH_95 = 1.959963984540054  # standard errors in half of a 95 % interval
_PATIENCE = 1.0  # seconds before a progress bar is worth showing
_SPARKS = "▁▂▃▄▅▆▇█"


def console(*, stderr: bool = False) -> Console:
    """Return a console; what is not a terminal gets 80 columns and no colours."""
    from rich.console import Console

    return Console(stderr=stderr, highlight=False, soft_wrap=False)


def table(*headers: str) -> Table:
    """Return an empty table; a header that starts with ">" aligns its column to the right."""
    from rich import box
    from rich.table import Table

    made = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    for header in headers:
        right = header.startswith(">")
        made.add_column(header.removeprefix(">"), justify="right" if right else "left", no_wrap=right)
    return made


def literal(text: object) -> str:
    """Return text of the user's, such as the name of a column, that is no mark-up even where it has brackets."""
    from rich.markup import escape

    return escape(str(text))


def number(value: float, error: float = math.nan) -> str:
    """Write a number with two digits of its error, or with four digits where there is none."""
    if not math.isfinite(value):
        return "-"
    if not (math.isfinite(error) and error > 0):
        return f"{value:.4g}"
    places = 1 - math.floor(math.log10(error))
    if places > 8:
        return f"{value:.3e}"
    return f"{value:,.{max(places, 0)}f}"


def sparks(shares: FloatArray) -> str:
    """Draw a distribution in sixteen characters, from the low end of the range to the high one."""
    import numpy as np

    if not np.isfinite(shares).all():
        return "-"
    groups = np.asarray([group.sum() for group in np.array_split(shares, min(16, shares.size))])
    heights = np.rint(groups / groups.max() * (len(_SPARKS) - 1)).astype(int)
    return "".join(_SPARKS[height] for height in heights.tolist())


def describe(guarantee: Guarantee) -> str:
    """Write a guarantee in one line."""
    budget = f"ε = {guarantee.epsilon:g}" + (f", δ = {guarantee.delta:g}" if guarantee.delta > 0 else "")
    return f"{budget} per {guarantee.unit}, {guarantee.model} model, relation {guarantee.relation}"


def inner_name(mechanism: Any) -> str:
    """Name a mechanism, or those that it applies to parts of a record."""
    inner = mechanism.inner if mechanism.capabilities.composite else mechanism.name
    return inner if isinstance(inner, str) else " and ".join(dict.fromkeys(inner))


def to_json(payload: Mapping[str, Any]) -> str:
    """Return JSON that any reader takes: numbers that are not finite become null."""
    return json.dumps(_plain(payload), indent=2, ensure_ascii=False, allow_nan=False)


def save_json(payload: Mapping[str, Any], path: Path) -> None:
    """Write the same JSON into a file, which appears whole or not at all."""
    with whole_file(path) as stream:
        stream.write((to_json(payload) + "\n").encode())


def _plain(value: Any) -> Any:
    import numpy as np

    if isinstance(value, Mapping):
        return {str(key): _plain(entry) for key, entry in value.items()}
    if isinstance(value, np.ndarray | list | tuple):
        return [_plain(entry) for entry in value]
    if isinstance(value, np.generic):
        return _plain(value.item())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


@contextmanager
def progress(title: str) -> Iterator[Callable[[float], None]]:
    """Give a function to call with the share that is done; a bar appears on a terminal after a second."""
    started, bar, task = time.monotonic(), None, None

    def advance(share: float) -> None:
        nonlocal bar, task
        if bar is None and sys.stderr.isatty() and time.monotonic() - started > _PATIENCE:
            from rich.progress import Progress

            bar = Progress(console=console(stderr=True), transient=True)
            bar.start()
            task = bar.add_task(title, total=1.0)
        if bar is not None and task is not None:
            bar.update(task, completed=share)

    try:
        yield advance
    finally:
        if bar is not None:
            bar.stop()
