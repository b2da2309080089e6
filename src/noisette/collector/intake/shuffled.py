"""A shuffler in front of the collector: reports arrive sealed and mixed, and it cannot tell whose they are."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from fastapi import FastAPI, Request, Response
from starlette.concurrency import run_in_threadpool

from noisette import _validate
from noisette._service import Problem, answers, read_body
from noisette._terminal import to_json
from noisette.accounting import shuffled as amplified
from noisette.collector.intake.reception import Writer
from noisette.collector.storage.store import Accepted, Refusal, Refused
from noisette.collector.telemetry import CollectorMetrics
from noisette.guarantees import Guarantee
from noisette.shuffler.clients import Clients, Forged
from noisette.shuffler.receiver import PATH
from noisette.shuffler.sealing import CannotOpen, ServerKey
from noisette.shuffler.wire import Frame, Malformed
from noisette.survey.batches import Batch
from noisette.survey.campaigns import Campaign


@dataclass(frozen=True)
class Shuffled:
    """The collector's key, the shufflers that may bring reports, and the least number of users that they mix."""

    key: ServerKey
    shufflers: Clients
    minimum: int
    delta: float = 1e-6

    def __post_init__(self) -> None:
        _validate.integer(self.minimum, "minimum", low=2)
        _validate.delta(self.delta, positive=True)

    def guarantee(self, campaign: Campaign) -> Guarantee | None:
        """Return what holds against the collector for a user's report of one period, or None if no more than locally.

        The report is one of at least ``minimum`` that came in random order. Nothing is gained where the local
        guarantee has a delta, or where a public group is told with the report: few may share it.
        """
        return _amplified(campaign, self.minimum, self.delta)

    def statement(self, campaign: Campaign) -> dict[str, Any]:
        """Return as JSON what a device needs to know before it answers through the shuffler."""
        found = self.guarantee(campaign)
        return {
            "public_key": self.key.public.text,
            "minimum": self.minimum,
            "local": campaign.mechanism.guarantee.spec(),
            "shuffled": None if found is None else found.spec(),
            "scope": "one period; over several periods, and if shuffler and collector collude, the local one holds",
        }


@lru_cache(maxsize=256)
def _amplified(campaign: Campaign, minimum: int, delta: float) -> Guarantee | None:
    """Compute `Shuffled.guarantee`, which takes a second where a great many are mixed."""
    own: Guarantee = campaign.mechanism.guarantee
    if own.delta > 0 or own.matrix is not None or campaign.public_group is not None:
        return None
    found = amplified(campaign.mechanism, minimum, delta)
    return found if found.epsilon < own.epsilon else None


def closed(_: Request) -> None:
    """Refuse a report that comes to the collector itself."""
    detail = "Reports of this collector come through its shuffler: tell the client where that is."
    raise Problem(403, "shuffler-only", detail)


def add_shuffled(
    app: FastAPI,
    shuffled: Shuffled,
    find: Callable[[str], Campaign],
    readers: Any,
    read: Callable[[Campaign, bytes], tuple[Batch, ...]],
    writer: Writer,
    metrics: CollectorMetrics,
    largest_body: int,
) -> None:
    """Add the door for the shuffler, and the statement of what it gains."""

    @app.get("/campaigns/{campaign_id}/shuffler", dependencies=[readers], responses=answers(401, 403, 404, 422, 429))
    def show_shuffler(campaign_id: str) -> Response:
        """Return the key to seal for, the least number of users that are mixed, and the guarantee that follows."""
        return Response(to_json(shuffled.statement(find(campaign_id))), media_type="application/json")

    @app.post(PATH, responses=answers(400, 401, 404, 413, 503))
    async def receive_shuffled(request: Request) -> Response:
        """Store the reports of a batch that a shuffler brings; the answer comes when they are on the disk."""
        body = await read_body(request, largest_body)
        try:
            shuffled.shufflers.verify(request.url.path, request.headers, body)
            frame = Frame.decode(body)
        except Forged as error:
            raise Problem(401, "forged", str(error)) from error
        except Malformed as error:
            raise Problem(400, "malformed", str(error)) from error
        campaign = find(frame.round.context.partition("/")[0])
        opened = await run_in_threadpool(_opened, shuffled.key, campaign, frame, read)
        writes = [writer.write(one) for one in opened if not isinstance(one, Refused)]
        outcomes = await asyncio.gather(*writes, return_exceptions=True)
        told = {"accepted": 0, "repeated": 0, "rejected": 0}
        for outcome in [*outcomes, *(one for one in opened if isinstance(one, Refused))]:
            if isinstance(outcome, Refused):  # nobody is there to be told, and the shuffler could not mend it
                told["rejected"] += 1
                for one in outcome.refusals:
                    metrics.rejected.labels(one.reason).inc()
            elif isinstance(outcome, Accepted):
                told["accepted"] += outcome.accepted
                told["repeated"] += outcome.repeated
            else:
                raise outcome
        metrics.accepted.labels(campaign.id).inc(told["accepted"])
        metrics.repeated.labels(campaign.id).inc(told["repeated"])
        request.state.told = {"campaign": campaign.id} | told
        return Response(to_json(told), 201 if told["accepted"] else 200, media_type="application/json")


def _opened(
    key: ServerKey, campaign: Campaign, frame: Frame, read: Callable[[Campaign, bytes], tuple[Batch, ...]]
) -> list[tuple[Batch, ...] | Refused]:
    """Return the report in each packet, or why there is none."""
    found: list[tuple[Batch, ...] | Refused] = []
    for block, sealed in frame.packets:
        try:
            batches = read(campaign, key.open(sealed, frame.round.label(block)).rstrip())
            if sum(map(len, batches)) != 1:
                raise Refused([Refusal(0, "several-reports", "A sealed packet holds one report, and no more.")])
            found.append(batches)
        except CannotOpen as error:
            found.append(Refused([Refusal(0, "cannot-open", str(error))]))
        except Refused as refused:
            found.append(refused)
    return found
