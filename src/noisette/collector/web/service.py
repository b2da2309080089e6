"""The HTTP service: reports in, estimates out."""

from __future__ import annotations

import base64
import math
from collections.abc import AsyncIterator, Collection, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Annotated, Any, Literal

from fastapi import Depends, FastAPI, Path, Request, Response
from fastapi import Query as Parameter
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse
from starlette.concurrency import run_in_threadpool

from noisette._service import Observed, Problem, answers
from noisette._terminal import to_json
from noisette.collector.campaigns.issuing import Issuer, add_tokens
from noisette.collector.campaigns.life import EARLY, LATE, OVER, Life
from noisette.collector.campaigns.roster import Roster, Watch, lived
from noisette.collector.intake.reception import Reception, Writer, add_reception
from noisette.collector.intake.shuffled import Shuffled, add_shuffled, closed
from noisette.collector.results import exports
from noisette.collector.results.estimates import Query, estimates
from noisette.collector.storage.database import DatabaseFailure
from noisette.collector.storage.mixed import MixedBatches
from noisette.collector.storage.store import Refusal, Refused, Store
from noisette.collector.storage.tracks import Tracker
from noisette.collector.telemetry import CollectorMetrics, log
from noisette.collector.web.access import VIEWER, Keys, KnownKey, RateLimit
from noisette.collector.web.console import add_console
from noisette.collector.web.forms import FORM, add_forms
from noisette.collector.web.operation import add_operation
from noisette.collector.web.pages import add_pages
from noisette.collector.web.planpage import HEADERS, plan_page
from noisette.collector.web.webhooks import Webhooks
from noisette.enhancement import METHODS
from noisette.survey.campaigns import Campaign
from noisette.survey.estimation.distributions import Shapes
from noisette.survey.periods import check_period, period_at

LARGEST_BODY = 4 * 2**20
RATE = 2000.0  # requests a second from one address

_STATUS = {"key-reused": 409, "already-answered": 409, "malformed": 400} | {EARLY: 425, LATE: 410, OVER: 410}
_PERIODS = 8  # whose users the counters show
_SENDING = frozenset({"reports", "tokens", "shuffled"})  # what a refusal of is a refused report: a wrong login is none
_LISTED_REFUSALS = 100  # refusals of a batch that the answer lists

CampaignId = Annotated[str, Path(max_length=63, description="The campaign's id.")]
Period = Annotated[str | None, Parameter(max_length=16, description="The current period by default.")]
Level = Annotated[float, Parameter(gt=0, lt=1, description="Confidence of the intervals.")]
Method = Annotated[str, Parameter(alias="enhance", description="Free post-processing, e.g. auto.")]
Liars = Annotated[
    float | None, Parameter(ge=0, lt=0.5, description="Share of made-up reports that intervals allow for.")
]
Format = Annotated[Literal["json", "csv", "parquet"], Parameter(description="CSV and Parquet hold the estimates only.")]


@dataclass(frozen=True, eq=False)
class Service:
    """What the routes share: the campaigns, where reports are kept, who may come in, and what is counted."""

    roster: Roster
    store: Store
    keys: Keys
    limit: RateLimit | None
    metrics: CollectorMetrics
    shapes: Shapes
    mixed: int  # users that a shuffler mixes at least, 0 where there is none
    local_webhooks: bool = False  # whether webhooks may call http, and machines of the own network

    def shown(self, campaign: Campaign, **more: Any) -> dict[str, Any]:
        """Return a campaign as a device fetches it, and whether its report must come sealed through a shuffler."""
        life = {name: value for name, value in self.roster.life(campaign.id).written().items() if name != "webhook"}
        return campaign.to_wire() | more | {"sealed": self.mixed > 0, "minimum": self.mixed, "life": life}

    def find(self, campaign_id: str) -> Campaign:
        """Return a campaign, or say that there is none."""
        if campaign_id not in self.roster:
            raise Problem(
                404,
                "unknown-campaign",
                "There is no such campaign here. Look at the address again, or ask its operator.",
            )
        return self.roster.campaign(campaign_id)

    @property
    def campaigns(self) -> dict[str, Campaign]:
        """The campaigns by id."""
        return self.roster.campaigns

    def reload(self) -> None:
        """Read anew what an operator, or another process, may have changed."""
        self.roster.reload()
        named = self.store.registry.api_keys()
        self.keys.name_keys([KnownKey(one["name"], one["role"], bytes(one["digest"]), _ends(one)) for one in named])

    def needs(self, *roles: str) -> Any:
        """Return a dependency that lets only these roles through, and none too often."""

        async def check(request: Request) -> None:
            self.admit(request, roles)

        return Depends(check)

    def admit(self, request: Request, roles: Collection[str], *, basic: bool = False) -> str:
        """Return the name of the key; refuse who comes too often, or without a key of one of these roles.

        ``basic`` takes the key as a password too.
        """
        self.hold_back(request)
        if request.scope.get(FORM) and "device" in roles:  # of a campaign's own page, to which no key was given
            return "form"
        scheme, _, key = request.headers.get("authorization", "").partition(" ")
        if basic and scheme.lower() == "basic":
            scheme, key = "bearer", _password(key)
        name, own = self.keys.known(key.strip()) if scheme.lower() == "bearer" else ("", frozenset())
        if not own:
            detail = "Expected a header 'Authorization: Bearer KEY' with a known key."
            raise Problem(401, "unauthorised-page" if basic else "unauthorised", detail)
        if own.isdisjoint(roles) and not ("viewer" in roles and self._views(own, request)):
            raise Problem(
                403,
                "forbidden",
                f"This key does not have the role of {' or '.join(roles)}. Ask an operator for one that has.",
            )
        return name

    def hold_back(self, request: Request) -> None:
        """Refuse who comes too often."""
        if self.limit is not None:
            pause = self.limit.wait(request.client.host if request.client else "")
            if pause > 0:
                raise Problem(429, "too-many", f"Too many requests. Wait {math.ceil(pause)} s.")

    def _views(self, own: Collection[str], request: Request) -> bool:
        """Tell whether a key is that of a link to the campaign that is asked for, or to any where none is."""
        asked, seen = request.path_params.get("campaign_id"), viewed(own)
        return bool(seen) and (asked is None or asked in seen)

    def roles(self, request: Request) -> frozenset[str]:
        """Return the roles of a request's key."""
        return self.keys.roles(request.headers.get("authorization", "").partition(" ")[2].strip())

    def visible(self, request: Request) -> list[Campaign]:
        """Return the campaigns that the key of a request may read: those of its links, unless its role is for all."""
        own = self.roles(request)
        seen = viewed(own)
        return [one for one in self.campaigns.values() if own & {"analyst", "auditor"} or one.id in seen]

    def estimates(
        self, campaign: Campaign, period: str | None, level: float, method: str, liars: float | None = None
    ) -> dict[str, Any]:
        """Return what the reports of a period say; ``liars`` is the share that the campaign declares by default."""
        chosen = period_at(campaign.period) if period is None else period
        try:
            check_period(campaign.period, chosen)
            if method not in METHODS:
                raise ValueError(f"Expected enhance to be one of {', '.join(sorted(METHODS))}.")
            life = self.roster.life(campaign.id)
            query = Query(chosen, level, method, life.least, life.liars if liars is None else liars)
            return estimates(campaign, self.store.layout(campaign), self.store.sums(campaign), query, self.shapes)
        except ValueError as error:
            raise Problem(422, "bad-query", str(error)) from error


def create_app(
    campaigns: Iterable[Campaign | tuple[Campaign, Life]],
    store: Store,
    keys: Keys,
    *,
    largest_body: int = LARGEST_BODY,
    rate: float | None = RATE,
    origins: Sequence[str] = (),
    shuffled: Shuffled | None = None,
    forms: bool = True,
    local_webhooks: bool = False,
) -> FastAPI:
    """Return the service for all campaigns of a store, to which these are added; it closes the store when it ends.

    ``rate`` is how many requests a second one address may make, None for any number. ``origins`` are the sites whose
    pages may answer campaigns, such as https://example.org. With ``shuffled`` reports come through a shuffler only.
    With ``forms`` every campaign has a page at /c/ID, on which whoever opens it may answer without a key.
    Webhooks go to public addresses over https alone, unless ``local_webhooks``.
    """
    roster = lived(store, (one if isinstance(one, tuple) else (one, Life()) for one in campaigns))
    check_secrets(roster, keys)
    limit = None if rate is None else RateLimit(rate)
    minimum = 0 if shuffled is None else shuffled.minimum
    service = Service(roster, store, keys, limit, CollectorMetrics(), Shapes(), minimum, local_webhooks)
    service.reload()
    issuer = Issuer(store, lambda: keys.enrolment, roster.life)
    writer, tracker = Writer(store), Tracker(store, lambda: roster.campaigns.values())

    def reload() -> None:
        service.reload()
        issuer.forget()

    def keep_house() -> None:
        roster.expire()
        store.mix()

    watch, hooks = Watch(store, keys.refresh, reload, keep_house), Webhooks(service, local=local_webhooks)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        log.info("started", extra={"fields": {"campaigns": sorted(roster.campaigns)}})
        tracker.start()
        watch.start()
        hooks.start()
        yield
        await run_in_threadpool(hooks.close)
        await run_in_threadpool(watch.close)
        await run_in_threadpool(tracker.close)
        await run_in_threadpool(writer.close)
        store.close()
        log.info("stopped")

    app = FastAPI(title="Noisette collector", version="1", lifespan=lifespan, docs_url=None, redoc_url=None)
    _handle_errors(app, service.metrics)

    reception = Reception(
        service.find,
        closed if shuffled is not None else lambda request: service.admit(request, ("device",)),
        issuer.check,
        writer,
        service.metrics,
        largest_body,
        roster.life,
    )
    unhurried = (reception.path, "/campaigns/{campaign_id}/tokens")
    observe = partial(Observed, metrics=service.metrics, log=log, unhurried=unhurried)
    add_reception(app, reception, observe, answers(400, 401, 403, 404, 409, 413, 422, 429, 503))
    app.add_middleware(observe)
    add_tokens(app, service.find, service.needs, issuer, answers)
    if shuffled is not None:
        readers = service.needs("device", "analyst", "auditor")
        doors = (service.find, readers, reception.read, writer, service.metrics, largest_body)

        def changing(request: Request, action: str) -> None:
            store.registry.note(service.admit(request, ("operator",)), action, "server-key")

        add_shuffled(app, shuffled, *doors, MixedBatches(store), changing)
    _add_state(app, service)
    _add_campaigns(app, service)
    add_operation(app, service, issuer)
    add_pages(app, service, origins)
    add_console(app, service)
    if forms:
        add_forms(app, service)
    return app


def check_secrets(roster: Roster, keys: Keys) -> None:
    """Refuse to serve blind tokens without the secret behind enrolment codes."""
    if not keys.enrolment and any(one.signed for one in roster.campaigns.values()):
        raise ValueError("Expected a secret under 'enrolment' among the keys: tokens are signed for its codes only.")


def _add_state(app: FastAPI, service: Service) -> None:
    """Add what operators and their programs look at."""

    @app.get("/health")
    async def health() -> dict[str, str]:
        """Tell that the process answers."""
        return {"status": "ok"}

    @app.get("/ready", responses=answers(429, 503))
    def ready(request: Request) -> dict[str, str]:
        """Tell that reports can be stored now."""
        service.hold_back(request)
        service.store.ping()
        return {"status": "ready"}

    @app.get("/metrics", dependencies=[service.needs("analyst", "auditor")], responses=answers(401, 403, 429))
    def prometheus() -> Response:
        """Return the counters in Prometheus' text format; of users those of the last periods of each campaign."""
        service.metrics.users.clear()
        for campaign in service.campaigns.values():
            for period, users in list(service.store.periods(campaign).items())[-_PERIODS:]:
                service.metrics.users.labels(campaign.id, period).set(users)
        return Response(service.metrics.text(), media_type="text/plain; version=0.0.4")


def _add_campaigns(app: FastAPI, service: Service) -> None:
    """Add what analysts read, and devices before they answer."""
    readers = service.needs("analyst", "auditor", "viewer")

    @app.get("/campaigns", responses=answers(401, 403, 429))
    def list_campaigns(request: Request) -> Response:
        """List the campaigns; who operates them sees where they call as well."""
        service.admit(request, ("analyst", "auditor", "operator"))
        shown = ("state", "wanted", "closes", *(("webhook",) if "operator" in service.roles(request) else ()))
        listed = []
        for one in service.campaigns.values():
            life = service.roster.life(one.id).written()
            listed.append({"id": one.id, "title": one.title, "users": one.users} | {name: life[name] for name in shown})
        return _json({"campaigns": listed})

    @app.get(
        "/campaigns/{campaign_id}",
        dependencies=[service.needs("device", "analyst", "auditor")],
        responses=answers(401, 403, 404, 422, 429),
    )
    def show_campaign(campaign_id: CampaignId) -> Response:
        """Return what a campaign asks, its mechanism and guarantee, and the error predicted for its target."""
        campaign = service.find(campaign_id)
        predicted = dict(zip(campaign.quantities, campaign.predict(), strict=True))
        return _json(service.shown(campaign, predicted=predicted))

    @app.get("/campaigns/{campaign_id}/plan", responses=answers(401, 403, 404, 422, 429))
    def show_plan(campaign_id: CampaignId, request: Request) -> Response:
        """Return a page with the predicted errors; a browser asks for the key as a password."""
        service.admit(request, ("analyst", "auditor"), basic=True)
        return HTMLResponse(plan_page(service.find(campaign_id)), headers=HEADERS)

    @app.get(
        "/campaigns/{campaign_id}/estimates",
        dependencies=[readers],
        responses=answers(401, 403, 404, 422, 429, 503),
    )
    def show_estimates(
        campaign_id: CampaignId,
        period: Period = None,
        level: Level = 0.95,
        method: Method = "none",
        liars: Liars = None,
        shape: Annotated[Format, Parameter(alias="format")] = "json",
    ) -> Response:
        """Return what the reports of a period say so far: estimates, distributions, groups, drift."""
        campaign = service.find(campaign_id)
        found = service.estimates(campaign, period, level, method, liars)
        if shape == "json":
            return _json(found)
        content = exports.to_csv(found) if shape == "csv" else exports.to_parquet(found)
        headers = {"Content-Disposition": f'attachment; filename="{campaign.id}.{shape}"'}
        return Response(content, media_type=exports.FORMATS[shape], headers=headers)


def _handle_errors(app: FastAPI, metrics: CollectorMetrics) -> None:
    """Turn what goes wrong into answers with a reason, and count it."""

    @app.exception_handler(Problem)
    async def problem(request: Request, error: Problem) -> Response:
        if request.method == "POST" and request.url.path.rpartition("/")[2] in _SENDING:
            metrics.rejected.labels(error.reason).inc()
        asks = 'Basic realm="The key of an analyst or auditor, as password", charset="UTF-8"'
        scheme = asks if error.reason == "unauthorised-page" else "Bearer"
        headers = {401: {"WWW-Authenticate": scheme}, 429: {"Retry-After": "1"}}.get(error.status)
        return JSONResponse({"reason": error.reason, "detail": str(error)}, error.status, headers)

    @app.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        detail = f"{'.'.join(map(str, first['loc']))}: {first['msg']}."
        return JSONResponse({"reason": "bad-query", "detail": detail}, 422)

    @app.exception_handler(Refused)
    async def refused(_: Request, error: Refused) -> Response:
        for one in error.refusals:
            metrics.rejected.labels(one.reason).inc()
        return _refusals(error.refusals)

    @app.exception_handler(DatabaseFailure)
    async def database(_: Request, error: DatabaseFailure) -> Response:
        log.error("database", extra={"fields": {"error": type(error).__name__}})
        metrics.rejected.labels("unavailable").inc()
        body = {"reason": "unavailable", "detail": "The database does not answer. Nothing was stored; try again."}
        return JSONResponse(body, 503, {"Retry-After": "1"})


def viewed(roles: Collection[str]) -> set[str]:
    """Return the campaigns that links show."""
    return {role.removeprefix(VIEWER) for role in roles if role.startswith(VIEWER)}


def _ends(row: dict[str, Any]) -> datetime | None:
    return None if row["ends"] is None else datetime.fromisoformat(row["ends"])


def _password(credentials: str) -> str:
    """Return the password of basic authentication, empty where it is none."""
    try:
        return base64.b64decode(credentials, validate=True).decode("utf-8").partition(":")[2]
    except ValueError:
        return ""


def _refusals(refusals: tuple[Refusal, ...]) -> Response:
    first = refusals[0]
    rows = [vars(one) for one in refusals[:_LISTED_REFUSALS]]
    body = {"reason": first.reason, "detail": first.detail, "refused": len(refusals), "reports": rows}
    return JSONResponse(body, _STATUS.get(first.reason, 422))


def _json(payload: dict[str, Any], status: int = 200) -> Response:
    """Return JSON in which numbers that are not finite are null."""
    return Response(to_json(payload), status, media_type="application/json")
