"""The owner's console: a page on which surveys are written beside their plan, opened, shared and closed.

It calls what `noisette collector` calls as well. A link with a key that works once opens it: the key is ended before
others are given for it.
"""

from __future__ import annotations

import asyncio
import io
import secrets
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from itertools import cycle
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI, Request, Response
from starlette.concurrency import run_in_threadpool

from noisette._service import Problem, answers, read_body
from noisette._terminal import to_json
from noisette.collector.web.forms import obstacle, rehearsed
from noisette.collector.web.operation import give_key, read_campaign
from noisette.collector.web.pages import CampaignId, static

if TYPE_CHECKING:
    from noisette.collector.web.service import Service

ONCE = "once-"  # how the names of keys begin that work once

_WAITING_PLANS = 8  # plans that are asked for at a time
_LONGEST_HOST = 255  # of a name in DNS
_KEY_DAYS = 30  # after which the keys of a console end
_LARGEST_SURVEY = 1 << 18  # bytes of a survey


def once_key(registry: Any) -> str:
    """Return a new key that opens the console once, within a day."""
    made: str = give_key(registry, f"{ONCE}{secrets.token_hex(4)}", "operator", 1, "serve")["key"]
    return made


def add_console(app: FastAPI, service: Service) -> None:
    """Add the page, and what it needs beside the routes of operators."""
    planner = ThreadPoolExecutor(1, thread_name_prefix="noisette-planner")  # a large plan takes its time from no other
    waiting: set[int] = set()

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
            return {role: give_key(registry, f"{name}-{role}", role, _KEY_DAYS, who)["key"] for role in roles}

        try:
            made = await run_in_threadpool(exchange)
        except ValueError as error:
            raise Problem(
                401,
                "unauthorised",
                "This link has been used. Start the collector again for another, or use an operator's key.",
            ) from error
        await run_in_threadpool(service.reload)
        return Response(to_json(made), 201, media_type="application/json")

    @app.post("/plan", responses=answers(400, 401, 403, 413, 422, 429, 503))
    async def plan(request: Request) -> Response:
        """Return the error of every answer of a survey before anybody is asked, and a verdict; nothing is stored."""
        service.admit(request, ("operator", "analyst"))
        body = await read_body(request, _LARGEST_SURVEY)

        def planned() -> dict[str, Any]:
            campaign, _ = read_campaign(body)
            survey = campaign.survey
            made: dict[str, Any] = campaign.plan().to_dict()
            each = [(one.tells, span) for one in survey.topics for span in one.spans.tolist()]  # in every group again
            for row, (tells, span) in zip(made["rows"], cycle(each), strict=False):
                row |= {"tells": tells, "span": span}
            made["obstacle"] = obstacle(campaign, service.mixed > 0)
            return made

        if len(waiting) >= _WAITING_PLANS:
            raise Problem(503, "busy", "Other plans are being made. Try again.")
        waiting.add(id(request))
        try:
            answer = await asyncio.get_running_loop().run_in_executor(planner, planned)
        except (TypeError, ValueError) as error:
            raise Problem(422, "bad-survey", str(error)) from error
        finally:
            waiting.discard(id(request))
        return Response(to_json(answer), media_type="application/json")

    @app.post("/preview", responses=answers(400, 401, 403, 413, 422, 429))
    async def preview(request: Request) -> Response:
        """Return a survey as its page would be shown it; nothing is stored, and nothing can be sent."""
        service.admit(request, ("operator", "analyst"))
        body = await read_body(request, _LARGEST_SURVEY)

        def shown() -> dict[str, Any]:
            return rehearsed(*read_campaign(body), service.mixed > 0)

        try:
            answer = await run_in_threadpool(shown)
        except (TypeError, ValueError) as error:
            raise Problem(422, "bad-survey", str(error)) from error
        return Response(to_json(answer), media_type="application/json")

    @app.get("/c/{campaign_id}/qr.svg", include_in_schema=False)
    def code(campaign_id: CampaignId, request: Request) -> Response:
        """Return the address of a campaign's page as a QR code."""
        service.hold_back(request)
        service.find(campaign_id)
        if len(request.url.netloc) > _LONGEST_HOST:
            raise Problem(400, "bad-host", f"Expected a Host of at most {_LONGEST_HOST} letters.")
        drawn = qr_code(f"{request.url.scheme}://{request.url.netloc}/c/{campaign_id}", "svg")
        return Response(drawn, media_type="image/svg+xml", headers={"Cache-Control": "no-store"})


@lru_cache(maxsize=256)
def qr_code(address: str, kind: str) -> bytes:
    """Return an address as a QR code: an svg, a png, or txt, which a terminal shows."""
    import segno

    made, out = segno.make(address, error="m"), io.BytesIO()
    if kind == "txt":
        text = io.StringIO()
        made.terminal(text, border=2, compact=True)
        return text.getvalue().encode()
    made.save(out, kind=kind, scale=6, border=4, light="white")
    return out.getvalue()
