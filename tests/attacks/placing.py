"""What broken mechanisms of the tests do right: put reports where they are asked for."""

from __future__ import annotations

from typing import Any


def put(reports: Any, out: Any) -> Any:
    """Return reports, in ``out`` if it is given."""
    if out is None:
        return reports
    out[...] = reports
    return out
