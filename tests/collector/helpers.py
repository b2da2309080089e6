"""The campaign that tests ask, and what a device sends."""

from __future__ import annotations

import secrets
from typing import Any

KEYS = {role: f"key-of-the-{role}-in-tests" for role in ("device", "analyst", "auditor")}
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
PERSON = {"minutes": 35, "by": "bike"}


def auth(role: str) -> dict[str, str]:
    """Return the header of a role."""
    return {"Authorization": f"Bearer {KEYS[role]}"}


def entry(report: Any, **changes: Any) -> dict[str, Any]:
    """Return a report as it is sent in a batch, with a key and a token of its own."""
    return {"key": secrets.token_hex(16), "period": "once", "token": secrets.token_hex(32), "report": report} | changes
