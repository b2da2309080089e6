"""Signing blinded tokens, one for each enrolment code in a period, and checking them when they come back."""

from __future__ import annotations

import base64
import binascii
import hashlib
import threading
from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import FastAPI, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.concurrency import run_in_threadpool

from noisette._service import Problem, body_of, read_model
from noisette.collector.storage.store import Refusal, Refused, Store
from noisette.device import blind
from noisette.device.blind import SigningKey, VerifyingKey
from noisette.survey.batches import Batch
from noisette.survey.campaigns import Campaign
from noisette.survey.periods import check_period

_LARGEST = 4096  # bytes of a request for a signature


class Asked(BaseModel):
    """A request for a signature: the user's enrolment code, the period, and the blinded token in base64."""

    model_config = ConfigDict(extra="forbid", strict=True)

    code: Annotated[str, Field(max_length=64)]
    period: Annotated[str, Field(max_length=16)]
    blinded: Annotated[str, Field(max_length=400)]


class Issuer:
    """The signing keys of campaigns and periods, made when they are first asked for and kept in the database."""

    def __init__(self, store: Store, secret: str | None) -> None:
        self._store, self._secret = store, secret
        self._keys: dict[tuple[str, str], SigningKey] = {}
        self._lock = threading.Lock()

    def key(self, campaign: Campaign, period: str) -> SigningKey:
        """Return the key of a period that has begun."""
        check_period(campaign.period, period)
        with self._lock:
            if (campaign.id, period) not in self._keys:
                self._keys[campaign.id, period] = self._stored(campaign, period)
            return self._keys[campaign.id, period]

    def _stored(self, campaign: Campaign, period: str) -> SigningKey:
        return SigningKey(self._store.signing_key(campaign, period, lambda: SigningKey.new().pem))

    def sign(self, campaign: Campaign, asked: Asked) -> bytes:
        """Sign a blinded token, once for each code and period; the same one again gets the same signature."""
        number = None if self._secret is None else blind.checked_code(self._secret, asked.code)
        if number is None:
            raise Problem(403, "unknown-code", "This enrolment code is none that was given out here.")
        try:
            blinded = base64.b64decode(asked.blinded, validate=True)
            key = self.key(campaign, asked.period)
            signed = key.sign(blinded)
        except (ValueError, binascii.Error) as error:
            raise Problem(422, "bad-token", str(error)) from error
        user = hashlib.sha256(f"issued\n{campaign.id}\n{asked.period}\n{number}".encode()).digest()[:16]
        shown = hashlib.sha256(blinded).digest()[:16]
        if self._store.issue(user, shown) != shown:
            detail = f"This code has had its token for period {asked.period}. Show the same blinded token again."
            raise Problem(409, "token-issued", detail)
        return signed

    def check(self, body: Sequence[Batch]) -> None:
        """Raise `Refused` with every report whose token is not signed by us for its period."""
        refusals = []
        for batch in body:
            if batch.campaign.tokens != "blind":
                continue
            public = self.key(batch.campaign, batch.period).public
            signed = batch.signed or ((b"", b""),) * len(batch)  # a binary batch may come without signatures
            for index, (token, signature) in zip(batch.index.tolist(), signed, strict=True):
                if not public.verifies(token, signature):
                    detail = "The token has no signature of ours for this campaign and period. Get one from /tokens."
                    refusals.append(Refusal(index, "forged", detail))
        if refusals:
            raise Refused(sorted(refusals, key=lambda one: one.index))


def add_tokens(app: FastAPI, find: Any, needs: Any, issuer: Issuer, answers: Any) -> None:
    """Add the routes by which a device gets a signature."""

    def blinding(campaign_id: str) -> Campaign:
        campaign: Campaign = find(campaign_id)
        if campaign.tokens != "blind":
            raise Problem(404, "no-tokens", "The tokens of this campaign are not signed.")
        return campaign

    @app.get(
        "/campaigns/{campaign_id}/tokens/{period}",
        dependencies=[needs("device", "analyst", "auditor")],
        responses=answers(401, 403, 404, 422, 429),
    )
    def show_key(campaign_id: str, period: str) -> dict[str, str]:
        """Return the modulus that tokens of a period are verified with, for devices to compare with each other's."""
        campaign = blinding(campaign_id)
        try:
            public: VerifyingKey = issuer.key(campaign, period).public
        except ValueError as error:
            raise Problem(422, "bad-query", str(error)) from error
        return {"modulus": format(public.modulus, "x"), "exponent": "10001"}

    @app.post(
        "/campaigns/{campaign_id}/tokens",
        dependencies=[needs("device")],
        openapi_extra=body_of(Asked),
        responses=answers(400, 401, 403, 404, 409, 413, 422, 429, 503),
    )
    async def sign(campaign_id: str, request: Request) -> dict[str, str]:
        """Sign a blinded token for a user who has not had one in this period."""
        campaign = blinding(campaign_id)
        asked = await read_model(request, Asked, _LARGEST)
        signed = await run_in_threadpool(issuer.sign, campaign, asked)
        request.state.told = {"campaign": campaign_id}
        return {"signed": base64.b64encode(signed).decode("ascii")}
