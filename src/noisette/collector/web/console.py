"""The owner's console: a page on which surveys are written beside their plan, opened, shared and closed.

It calls what `noisette collector` calls as well. A link with a key that works once opens it: the key is ended before
others are given for it.
"""

from __future__ import annotations

import io
import secrets
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI, Request, Response
from starlette.concurrency import run_in_threadpool

from noisette._service import Problem, answers, read_body
from noisette._terminal import to_json
from noisette.collector.web.operation import give_key, read_campaign
from noisette.collector.web.pages import CampaignId, static

if TYPE_CHECKING:
    from noisette.collector.web.service import Service

ONCE = "once-"  # how the names of keys begin that work once

_DAYS = 30  # after which the keys of a console end
_LARGEST = 1 << 18  # bytes of a survey


def once_key(registry: Any) -> str:
    """Return a new key that opens the console once, within a day."""
    made: str = give_key(registry, f"{ONCE}{secrets.token_hex(4)}", "operator", 1, "serve")["key"]
    return made


def add_console(app: FastAPI, service: Service) -> None:
    """Add the page, and what it needs beside the routes of operators."""

    @app.get("/console", include_in_schema=False)
    def console(request: Request) -> Response:
        return static("console.html", request)

    @app.post("/console/keys", responses=answers(401, 403, 422, 429), status_code=201)
    async def enter(request: Request) -> Response:
        """Give the keys of an operator and of an analyst for a key that works once, which ends now."""
        who = service.admit(request, ("operator",))
        if not who.startswith(ONCE):
            raise Problem(403, "forbidden", "Expected the key of a console's link, which works once.")

        def exchange() -> dict[str, str]:
            registry, name = service.store.registry, f"console-{secrets.token_hex(4)}"
            registry.end_key(who, who)  # of two who come with it one is refused here
            roles = ("operator", "analyst")
            return {role: give_key(registry, f"{name}-{role}", role, _DAYS, who)["key"] for role in roles}

        try:
            made = await run_in_threadpool(exchange)
        except ValueError as error:
            raise Problem(401, "unauthorised", "This link has been used.") from error
        await run_in_threadpool(service.reload)
        return Response(to_json(made), 201, media_type="application/json")

    @app.post("/plan", responses=answers(400, 401, 403, 413, 422, 429))
    async def plan(request: Request) -> Response:
        """Return the error of every answer of a survey before anybody is asked, and a verdict; nothing is stored."""
        service.admit(request, ("operator", "analyst"))
        body = await read_body(request, _LARGEST)

        def planned() -> dict[str, Any]:
            campaign, _ = read_campaign(body)
            made: dict[str, Any] = campaign.survey.plan(users=campaign.users).to_dict()
            return made

        try:
            told = await run_in_threadpool(planned)
        except (TypeError, ValueError) as error:
            raise Problem(422, "bad-survey", str(error)) from error
        return Response(to_json(told), media_type="application/json")

    @app.get("/c/{campaign_id}/qr.svg", include_in_schema=False)
    def code(campaign_id: CampaignId, request: Request) -> Response:
        """Return the address of a campaign's page as a QR code."""
        import segno

        service.find(campaign_id)
        out = io.BytesIO()
        address = f"{request.url.scheme}://{request.url.netloc}/c/{campaign_id}"
        segno.make(address, error="m").save(out, kind="svg", scale=6, border=4, light="white")
        return Response(out.getvalue(), media_type="image/svg+xml", headers={"Cache-Control": "no-store"})
