"""Requests drawn from the OpenAPI document, sound and unsound ones: none may end in an error of the server's."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from tests.collector.helpers import KEYS

from noisette.collector import Store
from noisette.survey.campaigns import Campaign

EXAMPLES = int(os.environ.get("NOISETTE_SCHEMA_EXAMPLES", "8"))  # of each operation and mode, with a fixed seed


BOUNDS = settings(
    max_examples=EXAMPLES,
    deadline=None,
    database=None,
    derandomize=True,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)


def _call_all(service: httpx.Client, operation: Any, mode: GenerationMode) -> set[int]:
    """Call one operation with everything that is drawn for it, and return the statuses of the answers."""
    statuses = set()
    key = KEYS["device" if operation.method.upper() == "POST" else "analyst"]

    @BOUNDS
    @given(case=operation.as_strategy(generation_mode=mode))
    def call(case: Any) -> None:
        if mode is GenerationMode.POSITIVE and "campaign_id" in (case.path_parameters or {}):
            case.path_parameters["campaign_id"] = "commute"
        answer = case.call(base_url=str(service.base_url), headers={"Authorization": f"Bearer {key}"})
        statuses.add(answer.status_code)
        assert answer.status_code < 500, answer.text

    with suppress(Unsatisfiable):  # where nothing can be given, nothing wrong can be
        call()
    return statuses


@pytest.mark.long
@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE])
def test_no_request_breaks_the_service(
    service: httpx.Client, campaign: Campaign, store: Store, mode: GenerationMode
) -> None:
    """Every operation of the document is called; nothing that is drawn from it ends with 500 or more."""
    schema = schemathesis.openapi.from_dict(service.get("/openapi.json").json())
    operations = [result.ok() for result in schema.get_all_operations()]
    statuses = {operation.label: _call_all(service, operation, mode) for operation in operations}
    assert len(statuses) >= 9
    if mode is GenerationMode.POSITIVE:
        assert statuses["POST /campaigns/{campaign_id}/reports"] & {400, 422}, "no body came as far as being read"
        assert 200 in statuses["GET /campaigns/{campaign_id}"]
        assert 200 in statuses["GET /campaigns/{campaign_id}/plan"]
    else:
        assert statuses["POST /campaigns/{campaign_id}/reports"]
        assert statuses["GET /campaigns/{campaign_id}/estimates"]
    assert store.periods(campaign) == {}


@pytest.mark.long
def test_an_error_of_the_server_would_be_seen(
    service: httpx.Client, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The twin: with a route that breaks, the same calls fail."""

    def broken(*_: Any) -> None:
        raise RuntimeError("broken")

    monkeypatch.setattr(store, "ping", broken)
    schema = schemathesis.openapi.from_dict(service.get("/openapi.json").json())
    with pytest.raises(AssertionError):
        _call_all(service, schema["/ready"]["GET"], GenerationMode.POSITIVE)
