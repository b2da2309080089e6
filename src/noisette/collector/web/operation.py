"""What an operator does over HTTP: open, edit, close, archive and delete campaigns, give out keys, read the log.

Every change is noted with the name of the key that made it, in one transaction. Other processes see it in a second.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import FastAPI, Request, Response
from fastapi import Path as InPath
from fastapi import Query as Parameter
from pydantic import BaseModel, ConfigDict, Field
from starlette.concurrency import run_in_threadpool

from noisette._service import Problem, answers, body_of, read_body, read_model
from noisette._terminal import to_json
from noisette.collector.campaigns.issuing import Issuer
from noisette.collector.campaigns.life import OWN, Life
from noisette.collector.web.access import ROLES, VIEWER, digest
from noisette.collector.web.webhooks import check_address
from noisette.survey.campaigns import Campaign

if TYPE_CHECKING:
    from noisette.collector.web.service import Service

CampaignId = Annotated[str, InPath(max_length=63, description="The campaign's id.")]
KeyName = Annotated[str, InPath(max_length=64, description="The key's name.")]

_LARGEST_CAMPAIGN = 1 << 18  # bytes of a campaign
_DEEPEST, _MOST_PARTS = 20, 100_000  # lists in lists, and values, of a campaign
_REFUSED = answers(400, 401, 403, 404, 409, 413, 422, 429, 503)


class Change(BaseModel):
    """What may be changed of a campaign; lengths of time as in "7 days", moments of UTC, null for no end."""

    model_config = ConfigDict(extra="forbid", strict=True)

    title: str | None = None
    users: int | None = None
    opens: str | None = None
    closes: str | None = None
    late: str | None = None
    skew: str | None = None
    least: int | None = None
    keep: str | None = None
    liars: float | None = None
    wanted: float | None = None
    webhook: str | None = None


class NewKey(BaseModel):
    """A key to give out: its name, its role, and the days after which it ends; without days it stays valid."""

    model_config = ConfigDict(extra="forbid", strict=True)

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
    role: str
    days: Annotated[int | None, Field(gt=0, le=36500)] = None


class NewLink(BaseModel):
    """A link to read a campaign's results: the days after which it ends; without days it stays valid."""

    model_config = ConfigDict(extra="forbid", strict=True)

    days: Annotated[int | None, Field(gt=0, le=36500)] = None


def add_operation(app: FastAPI, service: Service, issuer: Issuer) -> None:
    """Add the routes of operators; auditors may read what they did."""

    def operator(request: Request) -> str:
        return service.admit(request, ("operator",))

    async def done(work: Callable[..., Any], *given: Any) -> Any:
        """Return what a change returns, or say what is wrong with it."""
        try:
            return await run_in_threadpool(work, *given)
        except (TypeError, ValueError) as error:
            raise Problem(422, "bad-change", str(error)) from error

    def life_of(campaign_id: str, status: int = 200) -> Response:
        life = service.roster.life(campaign_id).written()
        return Response(to_json({"id": campaign_id, "life": life}), status, media_type="application/json")

    @app.post("/campaigns", responses=_REFUSED, status_code=201, openapi_extra=_ANY_OBJECT)
    async def open_campaign(request: Request) -> Response:
        """Open a campaign: the fields of its file, in JSON or YAML, with its life beside them."""
        who = operator(request)
        body = await read_body(request, _LARGEST_CAMPAIGN)
        campaign, life = await done(read_campaign, body)
        if campaign.signed and not service.keys.enrolment:
            raise Problem(422, "bad-change", "Expected a secret under 'enrolment' among the keys: tokens are signed.")
        if life.webhook is not None:
            await done(check_address, life.webhook, service.local_webhooks)
        await done(service.roster.open, campaign, life, who)
        return life_of(campaign.id, 201)

    @app.patch("/campaigns/{campaign_id}", responses=_REFUSED, openapi_extra=body_of(Change))
    async def edit_campaign(campaign_id: CampaignId, request: Request) -> Response:
        """Change what nothing private depends on: title, target, opening, closing, what is shown and kept."""
        who = operator(request)
        service.find(campaign_id)
        asked = await read_model(request, Change, 1 << 14)
        if asked.webhook is not None:
            await done(check_address, asked.webhook, service.local_webhooks)
        await done(service.roster.change, campaign_id, asked.model_dump(exclude_unset=True), who)
        return life_of(campaign_id)

    def state(word: str, state: str) -> None:
        @app.post(f"/campaigns/{{campaign_id}}/{word}", responses=_REFUSED, name=f"{word}_campaign")
        async def change_state(campaign_id: CampaignId, request: Request) -> Response:
            who = operator(request)
            service.find(campaign_id)
            await done(service.roster.change, campaign_id, {"state": state}, who, f"{word}-campaign")
            return life_of(campaign_id)

        change_state.__doc__ = f"Let a campaign be {state}."

    for word, named in (("close", "closed"), ("reopen", "open"), ("archive", "archived")):
        state(word, named)

    @app.post("/campaigns/{campaign_id}/rotate", responses=_REFUSED)
    async def rotate_signing(campaign_id: CampaignId, request: Request) -> Response:
        """Sign the tokens of the current period with a new key; those that were signed before stay valid."""
        who = operator(request)
        await done(issuer.rotate, service.find(campaign_id))
        await done(service.roster.change, campaign_id, {}, who, "rotate-signing")
        return life_of(campaign_id)

    @app.post("/campaigns/{campaign_id}/links", responses=_REFUSED, status_code=201, openapi_extra=body_of(NewLink))
    async def give_link(campaign_id: CampaignId, request: Request) -> Response:
        """Make a link by which its holder sees the results of this one campaign, and changes nothing."""
        who = operator(request)
        service.find(campaign_id)
        asked = await read_model(request, NewLink, 1 << 12)
        made = await done(viewing_link, service.store.registry, campaign_id, asked.days, who)
        await run_in_threadpool(service.reload)
        address = f"{request.url.scheme}://{request.url.netloc}{made.pop('path')}"
        return Response(to_json(made | {"link": address}), 201, media_type="application/json")

    @app.delete("/campaigns/{campaign_id}", responses=_REFUSED, status_code=204)
    async def delete_campaign(campaign_id: CampaignId, request: Request) -> Response:
        """Delete a closed or archived campaign with its reports and sums; its id is not given again."""
        who = operator(request)
        service.find(campaign_id)
        await done(service.roster.delete, campaign_id, who)
        return Response(status_code=204)

    @app.get("/keys", responses=_REFUSED, dependencies=[service.needs("operator", "auditor")])
    def list_keys() -> Response:
        """List the keys that were given out by name, without the keys."""
        rows = [
            {"name": one["name"], "role": one["role"], "ends": one["ends"]} for one in service.store.registry.api_keys()
        ]
        return Response(to_json({"keys": rows}), media_type="application/json")

    @app.post("/keys", responses=_REFUSED, status_code=201, openapi_extra=body_of(NewKey))
    async def add_key(request: Request) -> Response:
        """Give out a key, which is shown this once."""
        who = operator(request)
        asked = await read_model(request, NewKey, 1 << 12)
        made = await done(give_key, service.store.registry, asked.name, asked.role, asked.days, who)
        await run_in_threadpool(service.reload)
        return Response(to_json(made), 201, media_type="application/json")

    @app.delete("/keys/{name}", responses=_REFUSED, status_code=204)
    async def end_key(name: KeyName, request: Request) -> Response:
        """End a key."""
        who = operator(request)
        await done(service.store.registry.end_key, name, who)
        await run_in_threadpool(service.reload)
        return Response(status_code=204)

    @app.get("/audit", responses=_REFUSED, dependencies=[service.needs("operator", "auditor")])
    def show_audit(after: Annotated[int, Parameter(ge=0, lt=2**53)] = 0) -> Response:
        """Return who changed what, the first thousand changes after a number."""
        return Response(to_json({"changes": service.store.registry.log(after)}), media_type="application/json")


_ANY_OBJECT = {"requestBody": {"required": True, "content": {"application/json": {"schema": {"type": "object"}}}}}


def read_campaign(body: bytes) -> tuple[Campaign, Life]:
    """Return a campaign and its life from JSON or YAML."""
    fields = _plain(body)
    if not isinstance(fields, dict):
        raise ValueError("Expected the fields of a campaign, e.g. id, questions, epsilon.")
    return Campaign.from_dict(fields), Life.read({name: fields[name] for name in OWN & fields.keys()})


def _plain(body: bytes) -> Any:
    """Return what JSON or YAML says; aliases are refused, by which a few bytes say a billion things."""
    import yaml

    with suppress(ValueError, RecursionError):
        return json.loads(body)
    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    depth = 0
    try:
        for count, event in enumerate(yaml.parse(body, Loader=loader)):
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if isinstance(event, yaml.AliasEvent) or depth > _DEEPEST or count > _MOST_PARTS:
                raise ValueError(
                    f"Expected a campaign of {_DEEPEST} levels and {_MOST_PARTS:,} parts, without aliases."
                )
        return yaml.load(body, Loader=loader)
    except (yaml.YAMLError, RecursionError, UnicodeDecodeError) as error:
        raise ValueError("Expected a campaign in JSON or YAML.") from error


def viewing_link(registry: Any, campaign_id: str, days: int | None, who: str) -> dict[str, Any]:
    """Make a key that reads one campaign's results, and the path of the dashboard that takes it."""
    key, name = secrets.token_urlsafe(24), f"link-{campaign_id[:40]}-{secrets.token_hex(4)}"
    ends = None if days is None else (datetime.now(UTC) + timedelta(days=days)).isoformat(timespec="seconds")
    registry.add_key(name, f"{VIEWER}{campaign_id}", digest(key), ends, who)
    return {"name": name, "ends": ends, "path": f"/dashboard#{campaign_id}?key={key}"}


def give_key(registry: Any, name: str, role: str, days: int | None, who: str) -> dict[str, Any]:
    """Make a key, note it, and return it."""
    if role not in ROLES:
        raise ValueError(f"Expected role={role!r} to be one of {', '.join(ROLES)}.")
    key = secrets.token_urlsafe(24)
    ends = None if days is None else (datetime.now(UTC) + timedelta(days=days)).isoformat(timespec="seconds")
    registry.add_key(name, role, digest(key), ends, who)
    return {"name": name, "role": role, "ends": ends, "key": key}
