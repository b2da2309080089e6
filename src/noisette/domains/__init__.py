"""Where private values live: every sensitivity in the library is derived from one of these."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from noisette.domains._base import BoolArray, Domain, read
from noisette.domains.categories import Categorical, Selection
from noisette.domains.records import Attributes
from noisette.domains.scalars import Grid, Interval
from noisette.domains.tensors import TensorBall, TensorDomain
from noisette.domains.texts import Texts
from noisette.domains.vectors import Box, L2Ball, Sphere

__all__ = [
    "DOMAINS",
    "Attributes",
    "BoolArray",
    "Box",
    "Categorical",
    "Domain",
    "Grid",
    "Interval",
    "L2Ball",
    "Selection",
    "Sphere",
    "TensorBall",
    "TensorDomain",
    "Texts",
    "from_spec",
]

DOMAINS: dict[str, type[Any]] = {
    cls.kind: cls
    for cls in (
        Interval,
        Grid,
        Box,
        L2Ball,
        Sphere,
        Categorical,
        Selection,
        TensorDomain,
        TensorBall,
        Texts,
        Attributes,
    )
}


def from_spec(spec: Mapping[str, Any]) -> Any:
    """Rebuild a domain from its JSON description."""
    return read(spec, DOMAINS)
