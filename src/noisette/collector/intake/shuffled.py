"""A shuffler in front of the collector: reports arrive sealed and mixed, and it cannot tell whose they are.

A batch of the shuffler is looked at when all of it is here. A packet counts if it opens, holds one sound report, and
neither its token nor its key came before. Below the minimum nothing of a batch is stored: one that lacks no more than
the declared number of colluding clients is held until others of its period make up for it; all else is refused.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

from fastapi import FastAPI, Request, Response

from noisette import _validate
from noisette._service import Problem, answers, off_loop, read_body
from noisette._terminal import to_json
from noisette.accounting import shuffled as amplified
from noisette.collector.intake.reading import outside
from noisette.collector.intake.reception import Writer
from noisette.collector.storage.mixed import MixedBatch, MixedBatches, OtherTerms
from noisette.collector.storage.store import Accepted, Refusal, Refused
from noisette.collector.telemetry import CollectorMetrics, log
from noisette.guarantees import Guarantee
from noisette.shuffler.clients import Clients, Forged
from noisette.shuffler.receipt import part_of
from noisette.shuffler.receiver import PATH
from noisette.shuffler.sealing import CannotOpen, ServerKey
from noisette.shuffler.wire import Frame, Malformed, Round
from noisette.survey.batches import Batch, pieces
from noisette.survey.campaigns import Campaign

Read = Callable[[Campaign, bytes], tuple[Batch, ...]]

_DECLARED = 10  # one client in this many of a batch is taken to collude, unless something else is declared


@dataclass(frozen=True)
class Shuffled:
    """The collector's keys, the shufflers that may bring reports, and what they have to bring.

    A batch has at least ``minimum`` accepted reports. ``colluding`` of them, a tenth and at least one by default, are
    taken to be the collector's own or to hide nobody for another reason; what is stated holds for the rest.
    """

    key: ServerKey
    shufflers: Clients
    minimum: int
    delta: float = 1e-6
    colluding: int | None = None

    def __post_init__(self) -> None:
        _validate.integer(self.minimum, "minimum", low=2)
        _validate.delta(self.delta, positive=True)
        _validate.integer(self.colluders, "colluding", low=0, high=self.minimum - 1)

    @property
    def colluders(self) -> int:
        """How many reports of a batch are taken to hide nobody."""
        return max(1, self.minimum // _DECLARED) if self.colluding is None else self.colluding

    @property
    def hidden(self) -> int:
        """How many reports of a smallest batch hide each other: those of the minimum that do not collude."""
        return self.minimum - self.colluders

    def guarantee(self, campaign: Campaign, accepted: int = 0) -> Guarantee | None:
        """Return what holds against the collector for a user's report of one period, or None if no more than locally.

        The report is one of ``accepted``, and of at least ``minimum``, that came in random order, less those who
        collude. Nothing is gained where the local guarantee has a delta, or where a public group comes with the
        report: few may share it.
        """
        return _amplified(campaign, max(self.minimum, accepted) - self.colluders, self.delta)

    def statement(self, campaign: Campaign, released: list[MixedBatch] | None = None) -> dict[str, Any]:
        """Return as JSON what a device needs to know before it answers through the shuffler, and what has arrived."""
        found, batches = self.guarantee(campaign), released or []
        smallest = min((one.accepted for one in batches), default=0)
        stated = self.guarantee(campaign, smallest) if batches else None
        return {
            "public_key": self.key.public.text,
            "public_keys": [one.text for one in self.key.publics],
            "minimum": self.minimum,
            "colluding": self.colluders,
            "local": campaign.mechanism.guarantee.spec(),
            "shuffled": None if found is None else found.spec(),
            "arrived": {
                "batches": len(batches),
                "smallest": smallest,
                "shuffled": None if stated is None else stated.spec(),
            },
            "scope": "one period; over several periods, and if shuffler and collector collude, the local one holds",
        }


@lru_cache(maxsize=256)
def _amplified(campaign: Campaign, users: int, delta: float) -> Guarantee | None:
    """Compute `Shuffled.guarantee`, which takes a second where a great many are mixed."""
    own: Guarantee = campaign.mechanism.guarantee
    if own.delta > 0 or own.matrix is not None or campaign.public_group is not None or users < 2:
        return None
    found = amplified(campaign.mechanism, users, delta)
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
    read: Read,
    writer: Writer,
    metrics: CollectorMetrics,
    largest_body: int,
    batches: MixedBatches,
    changing: Callable[[Request, str], None],
) -> None:
    """Add the door for the shuffler, and the statement of what it gains; ``changing`` admits and notes an operator."""

    @app.get("/campaigns/{campaign_id}/shuffler", dependencies=[readers], responses=answers(401, 403, 404, 422, 429))
    def show_shuffler(campaign_id: str) -> Response:
        """Return the key to seal for, what a shuffler has to mix, the guarantee that follows, and what has arrived."""
        campaign = find(campaign_id)
        body = shuffled.statement(campaign, batches.released(campaign))
        return Response(to_json(body), media_type="application/json")

    @app.post("/server-key/{action}", responses=answers(401, 403, 422, 429))
    def change_key(action: Literal["rotate", "retire"], request: Request) -> Response:
        """Put a new key before those that reports are sealed for, or drop all but the first."""
        changing(request, f"{action}-server-key")
        body = {"public_keys": [one.text for one in shuffled.key.change(action)]}
        return Response(to_json(body), media_type="application/json")

    door = _Door(shuffled, read, writer, metrics, batches)

    @app.post(PATH, responses=answers(400, 401, 404, 413, 503))
    async def receive_shuffled(request: Request) -> Response:
        """Keep a part of a batch; with the last one the batch is judged, and the answer comes when it is stored."""
        try:
            shuffled.shufflers.admit(request.headers)  # nobody else can make the collector hold a body
            body = await read_body(request, largest_body)
            by = shuffled.shufflers.verify(request.url.path, request.headers, body)
            frame = Frame.decode(body)
            name, sequence, total = part_of(by.post)
        except Forged as error:
            raise Problem(401, "forged", str(error)) from error
        except Malformed as error:
            raise Problem(400, "malformed", str(error)) from error
        campaign_id, _, period = frame.round.context.partition("/")
        campaign = find(campaign_id)
        if frame.round != Round(f"{campaign.id}/{period}", 0, 1) or len(period) > 16:
            raise Problem(400, "malformed", "Expected packets of a campaign's period, one block of round 0.")
        try:
            batch = await off_loop(batches.add, campaign, period, name, sequence, total, body)
        except OtherTerms as error:
            raise Problem(400, "malformed", str(error)) from error
        whole = batch.state != "coming" or await off_loop(batches.whole, batch)
        verdict = await door.judge(campaign, batch) if whole else {"state": "coming"}
        request.state.logged = {"campaign": campaign.id, "parts": total} | verdict
        return Response(to_json(verdict), 201 if verdict.get("accepted") else 200, media_type="application/json")


@dataclass(frozen=True)
class _Door:
    """Judges whole batches and has their reports stored."""

    shuffled: Shuffled
    read: Read
    writer: Writer
    metrics: CollectorMetrics
    batches: MixedBatches

    async def judge(self, campaign: Campaign, batch: MixedBatch) -> dict[str, Any]:
        """Release a whole batch with those that are held beside it, or hold it, or refuse it; tell which.

        What is decided is on the disk before the first report is stored, so that a process that dies in between
        stores the rest when the shuffler sends the last part again; each report counts once by its token and key.
        """
        if batch.state in ("held", "refused"):
            return {"state": batch.state, "accepted": 0, "repeated": 0, "rejected": 0}
        verdict: dict[str, Any] = {"state": "released", "accepted": 0, "repeated": 0, "rejected": 0}
        if batch.state == "coming":
            held = await off_loop(self.batches.held, batch)
            accepted, packets, reasons = await off_loop(self._counted, campaign, batch, held)
            state = self._decided(packets, accepted, held)
            await off_loop(self.batches.settle, batch, state, packets, accepted, held)
            self.metrics.batches.labels(state).inc()
            for reason in reasons:
                self.metrics.rejected.labels(reason).inc()
            counts = {"campaign": campaign.id, "state": state, "packets": packets, "sound": accepted}
            log.info("batch of a shuffler", extra={"fields": counts})
            verdict["rejected"] = packets - accepted
            if state != "released":
                return verdict | {"state": state, "rejected": packets}
        for one in await off_loop(self.batches.unfinished, batch):
            await self._store(campaign, one, verdict)
            await off_loop(self.batches.erase, one.name)
        self.metrics.accepted.labels(campaign.id).inc(verdict["accepted"])
        self.metrics.repeated.labels(campaign.id).inc(verdict["repeated"])
        return verdict

    def _decided(self, packets: int, accepted: int, held: list[MixedBatch]) -> str:
        """Return what becomes of a batch."""
        if packets < self.shuffled.minimum or accepted < self.shuffled.hidden:
            return "refused"
        enough = accepted + sum(one.accepted for one in held) >= self.shuffled.minimum
        return "released" if enough else "held"

    def _counted(self, campaign: Campaign, batch: MixedBatch, held: list[MixedBatch]) -> tuple[int, int, list[str]]:
        """Return how many reports of a batch count, how many different packets it has, and why others do not.

        Reports of a batch that is held count as known, although they are not stored yet.
        """
        before = [digests for one in held for digests in self._sound(campaign, one, set(), [])]
        seen: set[bytes] = set()
        reasons: list[str] = []
        new = self.batches.new(before + self._sound(campaign, batch, seen, reasons))[len(before) :]
        return sum(new), len(seen), reasons + ["already-answered"] * new.count(False)

    def _sound(self, campaign: Campaign, batch: MixedBatch, seen: set[bytes], reasons: list[str]) -> list[list[bytes]]:
        """Return the digests of token and key of each sound report, and note what packets there are and what is not."""
        digests = []
        for sequence in range(batch.total):
            for one in self._opened(campaign, batch, sequence, seen):
                refusals = one.refusals if isinstance(one, Refused) else outside(one)
                reasons += [refusal.reason for refusal in refusals]
                if not refusals and not isinstance(one, Refused):
                    keys = one[0].keys
                    digests.append([*pieces(one[0].token_digests), *([] if keys is None else pieces(keys))])
        return digests

    async def _store(self, campaign: Campaign, batch: MixedBatch, verdict: dict[str, Any]) -> None:
        """Store the reports of a batch that was released, part by part."""
        for sequence in range(batch.total):
            bodies = await off_loop(self._opened, campaign, batch, sequence, set())
            writes = [self.writer.write(one) for one in bodies if not isinstance(one, Refused)]
            for outcome in await asyncio.gather(*writes, return_exceptions=True):
                if isinstance(outcome, Accepted):
                    verdict["accepted"] += outcome.accepted
                    verdict["repeated"] += outcome.repeated
                elif not isinstance(outcome, Refused):  # what is refused was counted when the batch was judged
                    raise outcome

    def _opened(
        self, campaign: Campaign, batch: MixedBatch, sequence: int, seen: set[bytes]
    ) -> list[tuple[Batch, ...] | Refused]:
        """Return what the packets of a part hold, and note which packets there are."""
        body = self.batches.frame(batch.name, sequence)
        if body is None:
            return []
        frame = Frame.decode(body)
        seen.update(hashlib.sha256(sealed).digest() for _, sealed in frame.packets)
        return opened(self.shuffled.key, campaign, frame, self.read)


def opened(key: ServerKey, campaign: Campaign, frame: Frame, read: Read) -> list[tuple[Batch, ...] | Refused]:
    """Return the report in each packet, or why there is none."""
    found: list[tuple[Batch, ...] | Refused] = []
    for block, sealed in frame.packets:
        try:
            batches = read(campaign, key.open(sealed, frame.round.label(block)).rstrip())
            if sum(map(len, batches)) != 1:
                raise Refused(
                    [
                        Refusal(
                            0,
                            "several-reports",
                            "A sealed packet holds one report, and no more. Seal each report by itself.",
                        )
                    ]
                )
            if f"{campaign.id}/{batches[0].period}" != frame.round.context:
                raise Refused(
                    [
                        Refusal(
                            0,
                            "wrong-period",
                            "This report is for another period than it was sealed for. Seal it for its own.",
                        )
                    ]
                )
            found.append(batches)
        except CannotOpen as error:
            found.append(Refused([Refusal(0, "cannot-open", str(error))]))
        except Refused as refused:
            found.append(refused)
    return found
