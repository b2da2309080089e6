"""The page of a campaign, /c/ID, on which a person answers without a key, and the door through which her report comes.

Whoever can open the page can answer: once in a period for each browser, which keeps a secret of its own, or, where
tokens are blind or drawn, once for each enrolment code. Drawn ones are signed before anything is asked, since their
signature draws what is asked and, of a tracked user, when. The page asks under /c/ID for what devices with a key ask
for under /campaigns/ID; the door leads there. It takes single reports, and none that a page of another site sends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse

from noisette.collector.campaigns.life import Life
from noisette.collector.web.pages import static
from noisette.survey.campaigns import Campaign

if TYPE_CHECKING:
    from noisette.collector.web.service import Service

FORM = "noisette.form"  # in the scope of a request that came through the door

_LARGEST_BODY = 1 << 16  # bytes of one report, or of a request for a token
_PLACES = frozenset({"table", "certificate", "reports", "tokens"})


def obstacle(campaign: Campaign, sealed: bool = False) -> str | None:
    """Return why a campaign cannot be answered on its page, and what to do; None where it can."""
    name = f"Campaign {campaign.id!r}"
    whole = [one.name for one in campaign.attributes if one.kind in ("vector", "tensor")]
    if whole:
        return f"{name} asks for {', '.join(map(repr, whole))}, which no form can ask for: answer from a program."
    if sealed:
        return f"{name} takes sealed reports from a shuffler alone: answer from a program."
    if campaign.mechanism.table() is None:
        lacking = [one.mechanism.name for one in campaign.sections if one.mechanism.table() is None]
        return f"{name} has {', '.join(lacking)}, whose law the page cannot draw by: take mechanism 'auto', delta 0."
    return None


def rehearsed(campaign: Campaign, life: Life, sealed: bool = False) -> dict[str, Any]:
    """Return a campaign as its page would be shown it, before it is opened, or say why it cannot be a page."""
    if (why := obstacle(campaign, sealed)) is not None:
        raise ValueError(why)
    wire: dict[str, Any] = campaign.to_wire()
    return wire | {"table": campaign.mechanism.table(), "sealed": False, "minimum": 0, "life": life.written()}


def add_forms(app: FastAPI, service: Service) -> None:
    """Add the pages, the worker that keeps them for when there is no network, and the door."""
    app.add_middleware(Door)

    @app.get("/c/worker.js", include_in_schema=False)
    def worker(request: Request) -> Response:
        return static("worker.js", request)

    @app.get("/c/{campaign_id}", include_in_schema=False)
    def form(campaign_id: str, request: Request) -> Response:
        return static("form.html", request, 200 if campaign_id in service.campaigns else 404)


class Door:
    """ASGI middleware that leads /c/ID/reports to /campaigns/ID/reports, and likewise for the law and for tokens."""

    def __init__(self, app: Any) -> None:
        self._app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Admit or refuse a request of a form; pass any other request on."""
        if scope["type"] == "http" and scope["path"].startswith("/c/"):
            name, _, rest = scope["path"][len("/c/") :].partition("/")
            if rest.partition("/")[0] in _PLACES:
                if (refusal := _refused(Request(scope))) is not None:
                    await refusal(scope, receive, send)
                    return
                path = f"/campaigns/{name}/{rest}"
                scope = scope | {"path": path, "raw_path": path.encode(), FORM: True}
        await self._app(scope, receive, send)


def _refused(request: Request) -> Response | None:
    """Return why a request is none of the campaign's own page, if it is none."""
    if request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        body = {"reason": "forbidden", "detail": "Expected a request of the campaign's own page."}
        return JSONResponse(body, 403)
    size = request.headers.get("content-length", "")
    if request.method == "POST" and not (size.isdecimal() and len(size) < 8 and int(size) <= _LARGEST_BODY):
        body = {
            "reason": "too-large",
            "detail": f"Expected a body of at most {_LARGEST_BODY} bytes, of a stated length.",
        }
        return JSONResponse(body, 413)
    return None
