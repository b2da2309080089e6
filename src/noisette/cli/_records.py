"""A mechanism for rows that hold categories beside other categories or numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from noisette.cli._options import Ranges, find
from noisette.domains import Attributes, Categorical, Interval
from noisette.mechanisms.vector.attributes import SampledAttributes

_HOLDS = {"categorical": "categories", "interval": "numbers"}
_EXAMPLES = {"categorical": "oue", "interval": "hybrid"}


def build_record(
    names: Sequence[str],
    columns: Sequence[str],
    *,
    epsilon: float,
    delta: float,
    report: int | None,
    ranges: Ranges,
    categories: Mapping[str, Categorical],
) -> Any:
    """Return the mechanism for records: of the named ones each column has the one that takes what it holds."""
    for name in sorted(set(categories) & set(ranges)):
        if len(ranges) < len(columns):  # a range for all columns is meant for those that hold numbers
            raise ValueError(f"Column {name!r} has --categories and a --range: leave one of them out.")
    parts = tuple(
        categories[name] if name in categories else Interval(*ranges.get(name, (-1.0, 1.0))) for name in columns
    )
    firsts: dict[str, str] = {}
    for name, part in zip(columns, parts, strict=True):
        firsts.setdefault(part.kind, name)
    chosen = _by_kind(names, firsts)
    for name in names:
        if delta and find(name).capabilities.delta == "none":
            raise ValueError(f"{name} has a pure guarantee: leave --delta {delta:g} out, or another mechanism.")
    inner = tuple(chosen[part.kind] for part in parts)
    return SampledAttributes(
        inner[0] if len(set(inner)) == 1 else inner,
        epsilon=epsilon,
        delta=delta,
        domain=Attributes(parts, names=tuple(columns)),
        report=report,  # type: ignore[arg-type]  # None chooses
    )


def _by_kind(names: Sequence[str], kinds: Mapping[str, str]) -> dict[str, str]:
    """Return the mechanism for each kind of column; ``kinds`` has a column of each."""
    chosen: dict[str, str] = {}
    for name in names:
        able = find(name).capabilities
        kind = next((own.kind for own in able.domains if own.kind in kinds), None)
        if kind is None or able.levels:
            held = " and ".join(_HOLDS[kind] for kind in kinds)
            raise ValueError(
                f"{name} does not go with columns of {held} in one row. Name a mechanism for each kind, e.g. "
                + " ".join(f"--mechanism {_EXAMPLES[kind]}" for kind in kinds)
                + "."
            )
        if kind in chosen:
            raise ValueError(f"{chosen[kind]} and {name} are both for {_HOLDS[kind]}: leave one of them out.")
        chosen[kind] = name
    for kind, column in kinds.items():
        if kind not in chosen:
            raise ValueError(
                f"Column {column!r} holds {_HOLDS[kind]}, which {' and '.join(names)} does not take. Add a mechanism "
                f"for it, e.g. --mechanism {_EXAMPLES[kind]}, or leave it out with --columns."
            )
    return chosen
