"""What people look at: the dashboard, the device for web pages, and the JSON that both read."""

from __future__ import annotations

import gzip
import re
import threading
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from fastapi import FastAPI, Request, Response
from fastapi import Path as InPath
from fastapi.responses import RedirectResponse

from noisette._look import style
from noisette._service import Problem, admit_pages, answers
from noisette._terminal import to_json
from noisette.auditing import exact_epsilon
from noisette.certificates import CertificateError, certify
from noisette.collector.results.estimates import total
from noisette.collector.results.found import TextSearch
from noisette.collector.results.known import known_so_far
from noisette.collector.results.pace import guessed
from noisette.collector.storage.tracks import QUANTITIES, arrivals, follow
from noisette.survey.campaigns import Campaign
from noisette.survey.periods import period_at

if TYPE_CHECKING:
    from noisette.collector.web.service import Service

_STATIC = files("noisette.collector.web").joinpath("static")
_WHEEL = files("noisette.collector.web").joinpath("client")  # clients/js/src, where it was built into a wheel
CLIENT = _WHEEL if _WHEEL.is_dir() else Path(__file__).resolve().parents[4] / "clients" / "js" / "src"
_TYPES = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_GUARDS = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
    "Vary": "Accept-Encoding",
}
_COMMENTS = re.compile(r"^[ \t]*(//[^\n]*|/\*\*.*?\*/[ \t]*)\n", re.MULTILINE | re.DOTALL)  # on lines of their own
_EPSILON_ROUNDING = 1 + 1e-9
_CURVE = 9  # populations at which the plan is drawn

CampaignId = Annotated[str, InPath(max_length=63, description="The campaign's id.")]


def add_pages(app: FastAPI, service: Service, origins: Sequence[str]) -> None:
    """Add the dashboard and what web pages need to a service; pages of ``origins`` may answer campaigns."""
    admit_pages(app, origins, ["Authorization", "Content-Type"])
    readers = service.needs("analyst", "auditor", "viewer")
    search = TextSearch()
    watched: dict[str, Watched] = {}

    @app.get("/", include_in_schema=False)
    def root() -> Response:
        return RedirectResponse("/dashboard")

    @app.get("/dashboard", include_in_schema=False)
    def dashboard(request: Request) -> Response:
        return static("dashboard.html", request)

    @app.get("/static/{name}", include_in_schema=False)
    def asset(name: str, request: Request) -> Response:
        return static(name, request)

    @app.get(
        "/campaigns/{campaign_id}/table",
        dependencies=[service.needs("device", "analyst", "auditor")],
        responses=answers(401, 403, 404, 422, 429),
    )
    def table(campaign_id: CampaignId, request: Request) -> Response:
        """Return what a campaign asks and its mechanism's law in numbers, null where it has no such table."""
        campaign = service.find(campaign_id)
        shown = to_json(service.shown(campaign, table=campaign.mechanism.table())).encode()
        headers = {"Cache-Control": "no-store", "Vary": "Accept-Encoding"}
        if _takes_gzip(request):  # a law is long, and a form is to weigh little
            shown, headers = gzip.compress(shown, mtime=0), headers | {"Content-Encoding": "gzip"}
        return Response(shown, media_type="application/json", headers=headers)

    @app.get(
        "/campaigns/{campaign_id}/certificate",
        dependencies=[service.needs("device", "analyst", "auditor", "viewer")],
        responses=answers(401, 403, 404, 422, 429),
    )
    def certificate(campaign_id: CampaignId) -> Response:
        """Return the certificate that noisette-verify proves; 404 where the campaign's law cannot be certified yet."""
        try:
            return Response(certify(service.find(campaign_id)).text, media_type="application/json")
        except CertificateError as error:
            raise Problem(404, "not-certified", str(error)) from None

    @app.get("/dashboard/overview", dependencies=[readers], include_in_schema=False)
    def overview(request: Request) -> Response:
        """List the campaigns with their counts, and what was refused since the service started."""
        listed = [_listed(one, service.store.periods(one)) for one in service.visible(request)]
        whole = service.roles(request) & {"analyst", "auditor"}  # a link to one campaign shows no others
        return _json({"campaigns": listed, "rejected": _rejected(service) if whole else None})

    @app.get("/dashboard/campaigns/{campaign_id}", dependencies=[readers], include_in_schema=False)
    def detail(campaign_id: CampaignId, period: str | None = None, enhance: str = "none") -> Response:
        """Return all that the dashboard draws about a campaign."""
        campaign = service.find(campaign_id)
        whole = service.estimates(campaign, period, 0.95, enhance)
        found = shortened(whole)
        track = follow(service.store, campaign, found, grow=enhance == "none")
        if campaign_id not in watched:
            watched[campaign_id] = Watched(campaign)
        body = watched[campaign_id].beside(found) | {"track": track, "budget": _budget(campaign, found)}
        sums = service.store.sums(campaign).get(found["period"], {})
        texts = search.found(campaign, found["period"], total(service.store.layout(campaign), sums.values()))
        if whole["withheld"]:
            texts = {}
        life, came = service.roster.life(campaign_id), arrivals(service.store, campaign, found["period"])
        when = guessed(campaign, life, found["period"], came, found["users"])
        known = known_so_far(campaign, whole, texts, wanted=life.wanted, when=when)
        shown = {"state": life.state, "wanted": life.wanted}
        return _json(body | {"estimates": found, "texts": texts, "known": known, "life": shown})


def static(name: str, request: Request, status: int = 200) -> Response:
    """Return a file of the pages, guarded so that it loads nothing from elsewhere, and compressed where it may be."""
    kind = _TYPES.get(name.rpartition(".")[2])
    if kind is None or name not in _places():
        raise Problem(404, "unknown-page", "There is no such page here. Look at the address again.")
    headers = _GUARDS | ({"Access-Control-Allow-Origin": "*"} if name.endswith(".js") else {})
    plain, small = _contents(name)
    if not _takes_gzip(request):
        return Response(plain, status, media_type=kind, headers=headers)
    return Response(small, status, media_type=kind, headers=headers | {"Content-Encoding": "gzip"})


def _takes_gzip(request: Request) -> bool:
    """Tell whether a browser takes what is compressed."""
    return "gzip" in request.headers.get("accept-encoding", "")


@cache
def _places() -> dict[str, Any]:
    """Return the files of the pages and of the device by name."""
    return {one.name: one for folder in (CLIENT, _STATIC) for one in folder.iterdir()}


@cache
def _contents(name: str) -> tuple[bytes, bytes]:
    """Return a file as it is, and compressed."""
    own = _places()[name].read_text(encoding="utf-8")
    text = (
        f"{style()}{own}" if name.endswith(".css") else _COMMENTS.sub("", own) if name.endswith(".js") else own
    ).encode()
    return text, gzip.compress(text, mtime=0)


def shortened(found: dict[str, Any]) -> dict[str, Any]:
    """Return estimates with the first quantities of each attribute alone: nobody looks at a million bars."""
    kept: list[int] = []
    attributes = []
    for one in found["attributes"]:
        size = min(one["size"], QUANTITIES)
        attributes.append(one | {"first": len(kept), "size": size, "left_out": one["size"] - size})
        kept += range(one["first"], one["first"] + size)
    rows = [found["dimensions"][place] for place in kept]
    drift = found["drift"] | {"quantities": [found["drift"]["quantities"][place] for place in kept]}
    names = {row["name"] for row in rows}
    groups = [
        group | {"values": [one | {"dimensions": _named(one["dimensions"], names)} for one in group["values"]]}
        for group in found["groups"]
    ]
    return found | {"attributes": attributes, "dimensions": rows, "drift": drift, "groups": groups}


def _named(rows: list[dict[str, Any]], names: set[str]) -> list[dict[str, Any]]:
    return [row for row in rows if row["name"] in names]


class Watched:
    """A campaign as the dashboard shows it: what was planned, and what an audit found.

    The audit runs in a thread when somebody first looks.
    """

    def __init__(self, campaign: Campaign) -> None:
        self._campaign = campaign
        self._plan: list[dict[str, Any]] | None = None
        self._audit: dict[str, Any] | None = None
        self._lock = threading.Lock()

    def beside(self, found: dict[str, Any]) -> dict[str, Any]:
        """Return what is drawn beside the estimates of a period."""
        campaign = self._campaign
        with self._lock:
            if self._plan is None:
                populations = np.unique(np.geomspace(10, campaign.wanted * 4, _CURVE).astype(int)).tolist()
                names = [row["name"] for row in found["dimensions"]]
                places = [campaign.quantities.index(name) for name in names]
                self._plan = [
                    {"users": users, "std_errors": campaign.survey.predict(users)[places]} for users in populations
                ]
            if self._audit is None:
                self._audit = {"verdict": "computing"}
                threading.Thread(target=self._examine, daemon=True).start()
            return {"terms": campaign.terms(), "plan": self._plan, "audit": self._audit}

    def _examine(self) -> None:
        """Compute the exact epsilon of each section's mechanism and hold it against what is promised."""
        stated, sections = self._campaign.mechanism.guarantee, self._campaign.sections
        found: dict[str, Any] = {"promised": self._campaign.epsilon, "stated": stated.epsilon, "delta": stated.delta}
        try:
            each = [exact_epsilon(one.mechanism, delta=one.mechanism.guarantee.delta) for one in sections]
        except Exception as error:  # whatever it is, it is no reason to show nothing else
            self._audit = found | {"verdict": "unknown", "reason": f"{type(error).__name__}: {error}"}
            return
        exact = self._campaign.survey.answering.total(each)
        self._audit = found | {
            "exact": exact,
            "verdict": "holds" if exact <= stated.epsilon * _EPSILON_ROUNDING else "violated",
        }


def _listed(campaign: Campaign, periods: dict[str, int]) -> dict[str, Any]:
    current = period_at(campaign.period)
    return {
        "id": campaign.id,
        "title": campaign.title,
        "period": current,
        "users": periods.get(current, 0),
        "target_users": campaign.wanted,
        "epsilon": campaign.epsilon,
        "reports": sum(periods.values()),
    }


def _rejected(service: Service) -> dict[str, int]:
    """Return how many reports and requests were refused, by reason."""
    samples = [sample for family in service.metrics.rejected.collect() for sample in family.samples]
    return {one.labels["reason"]: int(one.value) for one in samples if one.name.endswith("_total")}


def _budget(campaign: Campaign, found: dict[str, Any]) -> dict[str, Any]:
    """Return what one user who has answered in every period so far has spent."""
    periods = len(found["periods"])
    paid = min(periods, 1) if campaign.answers != "fresh" else periods
    return {"each": campaign.epsilon, "periods": periods, "spent": paid * campaign.epsilon, "answers": campaign.answers}


def _json(payload: dict[str, Any]) -> Response:
    return Response(to_json(payload), media_type="application/json", headers={"Cache-Control": "no-store"})
