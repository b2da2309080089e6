"""The campaign that tests of surveys and of the collector ask; it needs no extra."""

from __future__ import annotations

from typing import Any

COMMUTE: dict[str, Any] = {
    "id": "commute",
    "title": "How people get to work",
    "epsilon": 2.0,
    "users": 1000,
    "attributes": [
        {"name": "minutes", "range": [0, 120]},
        {"name": "by", "categories": ["car", "bike", "bus", "foot"]},
    ],
    "mechanism": {"minutes": "piecewise", "by": "grr"},
    "report": 1,
}
