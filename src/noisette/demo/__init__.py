"""A whole collection, simulated: plan, privatise, aggregate, enhance, and an HTML report to show."""

from __future__ import annotations

import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from noisette._terminal import progress
from noisette.aggregation import whole_file
from noisette.demo import story
from noisette.demo.collection import collect
from noisette.demo.page import page
from noisette.demo.summary import summary

__all__ = ["run"]


def run(*, users: int, epsilon: float, seed: int, output: Path, quiet: bool = False) -> dict[str, Any]:
    """Run the demonstration, write the report to ``output`` and return what it found."""
    if find_spec("plotly") is None:
        raise ModuleNotFoundError("The report's charts need plotly, which is missing. Install noisette[plot].")
    started = time.perf_counter()
    with whole_file(output) as stream:
        if not quiet:
            story.opening(users, epsilon)
        with progress(f"{users:,} devices report") as advance:
            outcome = collect(users, epsilon, seed, on_progress=advance)
        if not quiet:
            story.tell(outcome)
        stream.write(page(outcome).encode())
    found = summary(outcome) | {"report": str(output.resolve()), "seconds": time.perf_counter() - started}
    if not quiet:
        story.closing(output, found["seconds"])
    return found
