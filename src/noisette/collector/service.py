"""The HTTP service: reports in, estimates out."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Annotated, Any

from fastapi import Depends, FastAPI, Path, Query, Request, Response
from fastapi.responses import JSONResponse
from sqlalchemy.exc import SQLAlchemyError
from starlette.concurrency import run_in_threadpool

from noisette._service import Observed, Problem, read_body
from noisette._terminal import to_json
from noisette.collector import intake
from noisette.collector.campaigns import Campaign
from noisette.collector.keys import Keys
from noisette.collector.periods import check_period, period_at
from noisette.collector.store import Refusal, Refused, Store
from noisette.collector.telemetry import Metrics, log
from noisette.enhancement import METHODS, enhance

LARGEST_BODY = 4 * 2**20

_STATUS = {"key-reused": 409, "already-answered": 409, "malformed": 400}
_SHOWN = 100  # refusals of a batch that the answer lists

CampaignId = Annotated[str, Path(max_length=63, description="The campaign's id.")]


def create_app(campaigns: Iterable[Campaign], store: Store, keys: Keys, *, largest_body: int = LARGEST_BODY) -> FastAPI:
    """Return the service for some campaigns; it closes the store when it ends."""
    known = {campaign.id: store.register(campaign) for campaign in campaigns}
    metrics = Metrics()

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        log.info("started", extra={"told": {"campaigns": sorted(known)}})
        yield
        store.close()
        log.info("stopped")

    app = FastAPI(title="Noisette collector", version="1", lifespan=lifespan, docs_url=None, redoc_url=None)
    app.add_middleware(Observed, metrics=metrics, log=log)
    _handle_errors(app, metrics)

    def find(campaign_id: str) -> Campaign:
        if campaign_id not in known:
            raise Problem(404, "unknown-campaign", "There is no such campaign here.")
        return known[campaign_id]

    readers, all_roles = _needs(keys, "analyst", "auditor"), _needs(keys, "device", "analyst", "auditor")

    @app.get("/health")
    async def health() -> dict[str, str]:
        """Tell that the process answers."""
        return {"status": "ok"}

    @app.get("/ready")
    def ready() -> dict[str, str]:
        """Tell that reports can be stored now."""
        store.ping()
        return {"status": "ready"}

    @app.get("/metrics", dependencies=[readers])
    def prometheus() -> Response:
        """Return the counters in Prometheus' text format."""
        for campaign in known.values():
            for period, users in store.periods(campaign).items():
                metrics.users.labels(campaign.id, period).set(users)
        return Response(metrics.text(), media_type="text/plain; version=0.0.4")

    @app.get("/campaigns", dependencies=[readers])
    def list_campaigns() -> Response:
        """List the campaigns."""
        return _json({"campaigns": [{"id": one.id, "title": one.title} for one in known.values()]})

    @app.get("/campaigns/{campaign_id}", dependencies=[all_roles])
    def show_campaign(campaign_id: CampaignId) -> Response:
        """Return what a campaign asks, its mechanism and guarantee, and the error predicted for its target."""
        campaign = find(campaign_id)
        predicted = dict(zip(campaign.quantities, campaign.predict(), strict=True))
        return _json(campaign.to_wire() | {"predicted": predicted})

    @app.get("/campaigns/{campaign_id}/estimates", dependencies=[readers])
    def show_estimates(
        campaign_id: CampaignId,
        period: Annotated[str | None, Query(max_length=16, description="The current period by default.")] = None,
        level: Annotated[float, Query(gt=0, lt=1, description="Confidence of the intervals.")] = 0.95,
        method: Annotated[str, Query(alias="enhance", description="Free post-processing, e.g. auto.")] = "none",
    ) -> Response:
        """Return what the reports of a period say so far, with intervals."""
        campaign = find(campaign_id)
        if method not in METHODS:
            raise Problem(422, "bad-query", f"Expected enhance to be one of {', '.join(sorted(METHODS))}.")
        return _json(_estimates(campaign, store, period, level, method))

    @app.post(
        "/campaigns/{campaign_id}/reports",
        dependencies=[_needs(keys, "device")],
        openapi_extra={"requestBody": intake.body_schema()},
    )
    async def receive(campaign_id: CampaignId, request: Request) -> Response:
        """Store one report or a batch; the answer comes when they are on the disk."""
        campaign = find(campaign_id)
        body = await read_body(request, largest_body)
        done = await run_in_threadpool(_take, campaign, store, body)
        metrics.accepted.labels(campaign.id).inc(done.accepted)
        metrics.repeated.labels(campaign.id).inc(done.repeated)
        told = {"accepted": done.accepted, "repeated": done.repeated}
        request.state.told = {"campaign": campaign.id} | told
        return _json(told, 201 if done.accepted else 200)

    return app


def _take(campaign: Campaign, store: Store, body: bytes) -> Any:
    """Check a body and store what it holds."""
    batch = intake.parse(body)
    intake.check(campaign, batch)
    return store.accept(campaign, batch)


def _estimates(campaign: Campaign, store: Store, period: str | None, level: float, method: str) -> dict[str, Any]:
    """Return the estimates of a period as JSON."""
    counts = store.periods(campaign)
    chosen = period_at(campaign.period) if period is None else period
    try:
        check_period(campaign.period, chosen)
    except ValueError as error:
        raise Problem(422, "bad-query", str(error)) from error
    aggregate = store.aggregate(campaign, chosen)
    found = aggregate.estimate()
    if method != "none" and aggregate.users:
        try:
            found = enhance(found, method=method)
        except ValueError as error:
            raise Problem(422, "bad-query", str(error)) from error
    low, high = found.interval(level)
    expected = campaign.predict(aggregate.users) if aggregate.users else [None] * len(campaign.quantities)
    rows = zip(campaign.quantities, found.value, found.std_error, low, high, found.count, expected, strict=True)
    keys = ("name", "value", "std_error", "low", "high", "reports", "predicted_std_error")
    return {
        "campaign": campaign.id,
        "period": chosen,
        "periods": counts,
        "users": aggregate.users,
        "target_users": campaign.users,
        "level": level,
        "enhance": found.method,
        "expected_gain": found.expected_gain,
        "guarantee": campaign.mechanism.guarantee.spec(),
        "dimensions": [dict(zip(keys, row, strict=True)) for row in rows],
    }


def _needs(keys: Keys, *roles: str) -> Any:
    """Return a dependency that lets only these roles through."""

    def check(request: Request) -> None:
        scheme, _, key = request.headers.get("authorization", "").partition(" ")
        own = keys.roles(key.strip()) if scheme.lower() == "bearer" else frozenset()
        if not own:
            raise Problem(401, "unauthorised", "Expected a header 'Authorization: Bearer KEY' with a known key.")
        if not own & set(roles):
            raise Problem(403, "forbidden", f"This key has not the role of {' or '.join(roles)}.")

    return Depends(check)


def _handle_errors(app: FastAPI, metrics: Metrics) -> None:
    """Turn what goes wrong into answers with a reason, and count it."""

    @app.exception_handler(Problem)
    async def problem(_: Request, error: Problem) -> Response:
        metrics.rejected.labels(error.reason).inc()
        headers = {"WWW-Authenticate": "Bearer"} if error.status == 401 else None
        return JSONResponse({"reason": error.reason, "detail": str(error)}, error.status, headers)

    @app.exception_handler(Refused)
    async def refused(_: Request, error: Refused) -> Response:
        for one in error.refusals:
            metrics.rejected.labels(one.reason).inc()
        return _refusals(error.refusals)

    @app.exception_handler(SQLAlchemyError)
    async def database(_: Request, error: SQLAlchemyError) -> Response:
        log.error("database", extra={"told": {"error": type(error).__name__}})
        told = {"reason": "unavailable", "detail": "The database does not answer. Nothing was stored; try again."}
        return JSONResponse(told, 503, {"Retry-After": "1"})


def _refusals(refusals: tuple[Refusal, ...]) -> Response:
    first = refusals[0]
    rows = [vars(one) for one in refusals[:_SHOWN]]
    told = {"reason": first.reason, "detail": first.detail, "refused": len(refusals), "reports": rows}
    return JSONResponse(told, _STATUS.get(first.reason, 422))


def _json(payload: dict[str, Any], status: int = 200) -> Response:
    """Return JSON in which numbers that are not finite are null."""
    return Response(to_json(payload), status, media_type="application/json")
