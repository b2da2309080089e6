"""Conformance vectors of sealed reports: every step from a report to a signed post, which a web page must make too.

The one-time keys are given, so each step has one result; the longer ones are told by their SHA-256. Run as a script it
writes sealed.json anew.
"""

from __future__ import annotations

import base64
import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from tests.collector.helpers import COMMUTE, PERSON
from tests.shuffler.by_hand import seal_by_hand

from noisette.device.sealed import label, pad
from noisette.shuffler import ServerKey
from noisette.shuffler.clients import sign
from noisette.shuffler.sender import PATH
from noisette.shuffler.wire import Frame
from noisette.survey.campaigns import Campaign

FILE = Path(__file__).parent / "sealed.json"
NUMBER = {"attributes": COMMUTE["attributes"][:1], "report": None}
CATEGORY = {"attributes": COMMUTE["attributes"][1:], "report": None}
CHANGES: list[dict[str, Any]] = [
    {},
    {"report": 2, "public_group": {"name": "town", "values": ["Zürich 🚲", "north"]}},
    {"id": "x" * 63, "tokens": "blind"},
    NUMBER | {"period": "week", "mechanism": "laplace"},
    *(CATEGORY | {"mechanism": name} for name in ("grr", "oue", "olh", "subset-selection", "hadamard")),
]


def _bytes(name: str, number: int) -> bytes:
    return hashlib.sha256(f"{name} {number}".encode()).digest()


def server(number: int) -> ServerKey:
    """Return the key that a vector is sealed for."""
    return ServerKey(X25519PrivateKey.from_private_bytes(_bytes("server", number)))


def body(campaign: Campaign, number: int) -> dict[str, Any]:
    """Return a report as it is sent."""
    values = {one.name: PERSON[one.name] for one in campaign.attributes}
    report = campaign.privatize(values, rng=np.random.default_rng(number))
    period = "2026-W47" if campaign.period == "week" else "once"
    more: dict[str, Any] = {} if campaign.public_group is None else {"group": campaign.public_group.values[0]}
    more |= {"signature": base64.b64encode(bytes(256)).decode()} if campaign.tokens == "blind" else {}
    named = {"key": _bytes("key", number).hex(), "period": period, "token": _bytes("token", number).hex()}
    return {"version": 1} | named | more | {"report": report}


def steps(number: int, changes: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
    """Return a vector, and the sealed report."""
    campaign = Campaign.from_dict(COMMUTE | changes)
    sent, key = body(campaign, number), server(number)
    own = X25519PrivateKey.from_private_bytes(_bytes("once", number))
    place, padded = label(campaign, sent["period"]), pad(campaign, sent)
    sealed = seal_by_hand(own, base64.b64decode(key.public.text), padded, place.label(0))
    frame = Frame(place, [(0, sealed)]).encode()
    signed = sign(_bytes("secret", number).hex(), PATH, f"device-{number}", "post", frame)
    halves = {"d": own.private_bytes_raw(), "x": own.public_key().public_bytes_raw()}
    compact = {"separators": (",", ":"), "ensure_ascii": False}
    given = {
        "campaign": campaign.id,
        "period": sent["period"],
        "report": json.dumps(sent["report"], **compact),
        "body": json.dumps(sent, **compact),
        "key": key.public.text,
        "once": {name: base64.urlsafe_b64encode(half).decode().rstrip("=") for name, half in halves.items()},
        "client": f"device-{number}",
        "secret": _bytes("secret", number).hex(),
    }
    told = {name: hashlib.sha256(part).hexdigest() for name, part in (("sealed", sealed), ("frame", frame))}
    found = {"label": place.label(0).hex(), "length": len(padded)} | told | {"headers": signed}
    return {"given": given, "found": found}, sealed


def vectors() -> list[dict[str, Any]]:
    """Return all vectors."""
    return [steps(number, changes)[0] for number, changes in enumerate(CHANGES)]


if __name__ == "__main__":
    FILE.write_text(json.dumps(vectors(), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
