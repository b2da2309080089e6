"""Digits that must not move: what a computation gave when independent tests had found it right, kept in a file.

Tests against independent computations often allow for chance, and a slip in a formula can hide there. What is kept
here hides nothing: any change of a digit fails. It is a second lock, not the first: a formula has a test of its own.
"""

from __future__ import annotations

import dataclasses
import json
import math
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

CLOSE = 1e-7  # relative: what another library of linear algebra may change


def plain(value: Any, digits: int = 10) -> Any:
    """Return arrays, tables and objects as JSON has them, numbers with so many digits, large whole ones with all."""
    if hasattr(value, "to_plotly_json"):
        return plain(value.to_plotly_json(), digits)
    if hasattr(value, "to_dict") and hasattr(value, "columns"):
        return {str(name): plain(value[name].tolist(), digits) for name in value.columns}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return plain({one.name: getattr(value, one.name) for one in dataclasses.fields(value)}, digits)
    if isinstance(value, Mapping):
        return {str(name): plain(one, digits) for name, one in value.items()}
    if hasattr(value, "tolist"):
        return plain(value.tolist(), digits)
    if isinstance(value, set | frozenset):
        return [plain(one, digits) for one in sorted(value, key=str)]
    if isinstance(value, list | tuple):
        return [plain(one, digits) for one in value]
    if isinstance(value, bool | int | str) or value is None:
        return value
    if isinstance(value, float):
        if 1e6 < abs(value) <= 2.0**53 and value.is_integer():
            return int(value)
        return float(f"{value:.{digits}g}") if math.isfinite(value) else str(value)
    return str(value)


def refusal(asked: Callable[[], Any]) -> str:
    """Return the error that a call raises: its kind and, where it is one of ours, its words.

    Where a guard is gone, another line often raises an error of the same kind a little later.
    """
    try:
        asked()
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)
        ours = any(part in frames[-1].filename for part in ("/src/noisette/", "/site-packages/noisette/"))
        return f"{type(error).__name__}: {error if ours else 'in the words of a library'}"
    raise AssertionError("Expected an error, and nothing was refused.")


def differences(found: Any, kept: Any, where: str = "", close: float = CLOSE, *, exact: bool = True) -> list[str]:
    """Return where two plain values differ; whole numbers, thresholds of draws among them, by one if they are exact."""
    if exact and isinstance(found, int) and isinstance(kept, int):
        return [] if found == kept else [f"{where}: {found!r}, and {kept!r} was kept"]
    if isinstance(found, float | int) and isinstance(kept, float | int) and not isinstance(found, bool):
        near = np.isclose(found, kept, rtol=close, atol=1e-5 * close)
        return [] if near else [f"{where}: {found!r}, and {kept!r} was kept"]
    if isinstance(found, dict) and isinstance(kept, dict) and list(found) == list(kept):
        return [
            text
            for name in found
            for text in differences(found[name], kept[name], f"{where}/{name}", close, exact=exact)
        ]
    if isinstance(found, list) and isinstance(kept, list) and len(found) == len(kept):
        pairs = enumerate(zip(found, kept, strict=True))
        return [text for place, (a, b) in pairs for text in differences(a, b, f"{where}/{place}", close, exact=exact)]
    return [] if found == kept else [f"{where}: {found!r:.200}, and {kept!r:.200} was kept"]


class Held:
    """The digits of one file of tests, beside it."""

    def __init__(self, test: str, *, digits: int = 10) -> None:
        self.digits = digits
        self.path = Path(test).resolve().with_suffix(".json")
        self.kept: dict[str, Any] = json.loads(self.path.read_text(encoding="utf-8")) if self.path.is_file() else {}

    def check(self, name: str, found: Any, *, close: float = CLOSE, exact: bool = True) -> None:
        """Compare with what was kept, digit by digit; whole numbers that a solver has found are not exact."""
        told = differences(plain(found, self.digits), self.kept[name], name, close, exact=exact)
        own = ".".join(self.path.with_suffix("").parts[self.path.parts.index("tests") :])
        assert not told, "\n".join([*told[:8], f"If that is meant: python -m {own} writes it anew."])

    def write(self, stories: Mapping[str, Any]) -> None:
        """Keep what stories tell now: after a change that is meant, once its independent test agrees."""
        texts = [f"{json.dumps(name)}: {json.dumps(plain(found, self.digits))}" for name, found in stories.items()]
        self.path.write_text("{\n" + ",\n".join(texts) + "\n}\n", encoding="utf-8")
