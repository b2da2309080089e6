"""Signing blinded tokens, one for each enrolment code in a period, and checking them when they come back."""

from __future__ import annotations

import base64
import hashlib
import hmac
import threading
from collections.abc import Callable, Sequence
from typing import Annotated, Any

from fastapi import FastAPI, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.concurrency import run_in_threadpool

from noisette._service import Problem, body_of, read_model
from noisette.collector.campaigns.life import EARLY, Life, Untimely
from noisette.collector.storage.store import Refusal, Refused, Store
from noisette.device import blind
from noisette.device.blind import SigningKey, VerifyingKey
from noisette.survey.batches import Batch
from noisette.survey.campaigns import Campaign
from noisette.survey.periods import period_at

_LARGEST_REQUEST = 4096  # bytes of a request for a signature


class Asked(BaseModel):
    """A request for a signature: the user's enrolment code, the period, and the blinded token in base64."""

    model_config = ConfigDict(extra="forbid", strict=True)

    code: Annotated[str, Field(max_length=64)]
    period: Annotated[str, Field(max_length=16)]
    blinded: Annotated[str, Field(max_length=400)]


class Issuer:
    """The signing keys of campaigns and periods, made when they are first asked for and kept in the database.

    A key is made for a period that takes reports now, never because a report names a period: without a key a period has
    no valid token. ``secrets`` gives the secrets behind enrolment codes, all of which are valid. Who has had a token is
    noted under each of these secrets, which the database does not have: whoever steals it cannot tell who that was.
    """

    def __init__(self, store: Store, secrets: Callable[[], Sequence[str]], life: Callable[[str], Life]) -> None:
        self._store, self._secrets, self._life = store, secrets, life
        self._keys: dict[tuple[str, str], list[SigningKey]] = {}
        self._lock = threading.Lock()

    def forget(self) -> None:
        """Read the keys anew: another process may have added some."""
        with self._lock:
            self._keys = {}

    def keys(self, campaign: Campaign, period: str) -> list[SigningKey]:
        """Return the keys of a period, the newest first; none where nobody has asked for a token yet."""
        with self._lock:
            return self._known(campaign, period)

    def _known(self, campaign: Campaign, period: str) -> list[SigningKey]:
        return self._keys.get((campaign.id, period)) or self._anew(campaign, period)

    def key(self, campaign: Campaign, period: str) -> SigningKey:
        """Return the key that signs in a period that takes reports now, or for all periods of a tracked user."""
        tracked = campaign.answers == "tracked" and period == campaign.begins
        self._life(campaign.id).check(campaign, period_at(campaign.period) if tracked else period)
        with self._lock:
            if not self._known(campaign, period):
                self._store.add_signing_key(campaign, period, 0, SigningKey.new().pem)
            return self._known(campaign, period)[0]

    def rotate(self, campaign: Campaign) -> None:
        """Sign with a new key from now on; tokens that older keys of the current period signed stay valid."""
        if not campaign.signed:
            raise ValueError(
                f"The tokens of campaign {campaign.id!r} are not signed. Ask for tokens: blind in a new campaign."
            )
        if campaign.tokens == "drawn":
            raise ValueError(
                f"What is drawn for a user of {campaign.id!r} follows from the signature of her token: a second key "
                "would give her a second draw. Close the campaign and open another one."
            )
        period = period_at(campaign.period)
        self._life(campaign.id).check(campaign, period)
        with self._lock:
            known = self._anew(campaign, period)
            self._store.add_signing_key(campaign, period, len(known), SigningKey.new().pem)
            self._anew(campaign, period)

    def _anew(self, campaign: Campaign, period: str) -> list[SigningKey]:
        """Return the keys that are stored now, whoever added them; those that were read before are not read again."""
        known = {one.pem: one for one in self._keys.get((campaign.id, period), ())}
        found = [known.get(pem) or SigningKey(pem) for pem in self._store.signing_keys(campaign, period)]
        if found:
            self._keys[campaign.id, period] = found
        return found

    def sign(self, campaign: Campaign, asked: Asked) -> bytes:
        """Sign a blinded token, once for each code and period; the same one again gets the same signature."""
        numbers = [blind.checked_code(secret, asked.code) for secret in self._secrets()]
        number = next((one for one in numbers if one is not None), None)
        if number is None:
            raise Problem(
                403,
                "unknown-code",
                "This enrolment code is none that was given out here. Ask whoever invited you for yours.",
            )
        try:
            blinded = base64.b64decode(asked.blinded, validate=True)
            key = self.key(campaign, asked.period)
            signed = key.sign(blinded)
        except Untimely as error:
            raise Problem(425 if error.reason == EARLY else 410, error.reason, str(error)) from error
        except ValueError as error:
            raise Problem(422, "bad-token", str(error)) from error
        shown = hashlib.sha256(blinded).digest()[:16]
        named = f"issued\n{campaign.id}\n{asked.period}\n{number}".encode()
        users = [hmac.new(secret.encode(), named, hashlib.sha256).digest()[:16] for secret in self._secrets()]
        older = hashlib.sha256(named).digest()[:16]  # as versions up to schema 5 wrote it
        if self._store.issue(users, older, shown) != shown:
            detail = f"This code has had its token for period {asked.period}. Show the same blinded token again."
            raise Problem(409, "token-issued", detail)
        return signed

    def _verified(self, campaign: Campaign, period: str, signed: Sequence[tuple[bytes, bytes]]) -> list[bool]:
        """Tell of each token whether a key of ours signed it, one of a second ago in another process included."""
        keys = self.keys(campaign, period)
        found = [any(one.public.verifies(*pair) for one in keys) for pair in signed]
        if all(found):
            return found
        with self._lock:
            more = self._anew(campaign, period)[: -len(keys) or None]
        return [
            good or any(one.public.verifies(*pair) for one in more) for good, pair in zip(found, signed, strict=True)
        ]

    def check(self, body: Sequence[Batch]) -> None:
        """Raise `Refused` with every report whose token is not signed by us for its period."""
        refusals = []
        for batch in body:
            if not batch.campaign.signed:
                continue
            campaign = batch.campaign
            signed = batch.signed or ((b"", b""),) * len(batch)  # a binary batch may come without signatures
            verified = self._verified(campaign, campaign.signing_period(batch.period), signed)
            reports = zip(batch.rows, batch.index.tolist(), signed, verified, strict=True)
            for row, index, (_, signature), good in reports:
                if not good:
                    detail = "The token has no signature of ours for this campaign and period. Get one from /tokens."
                    refusals.append(Refusal(index, "forged", detail))
                elif campaign.tokens == "drawn" and not _follows(campaign, batch.period, row, signature):
                    detail = (
                        "What is drawn for a user follows from her token's signature, and this report does not. "
                        "Answer by Client or the web page."
                    )
                    refusals.append(Refusal(index, "not-drawn", detail))
        if refusals:
            raise Refused(sorted(refusals, key=lambda one: one.index))


def _follows(campaign: Campaign, period: str, row: Any, signature: bytes) -> bool:
    """Tell whether period and report are those that the signature draws."""
    own = campaign.drawn_period(signature)
    return own in (None, period) and campaign.survey.follows(row, signature)


def add_tokens(app: FastAPI, find: Any, needs: Any, issuer: Issuer, answers: Any) -> None:
    """Add the routes by which a device gets a signature."""

    def blinding(campaign_id: str) -> Campaign:
        campaign: Campaign = find(campaign_id)
        if not campaign.signed:
            raise Problem(404, "no-tokens", "The tokens of this campaign are not signed. Answer without a code.")
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
        asked = await read_model(request, Asked, _LARGEST_REQUEST)
        signed = await run_in_threadpool(issuer.sign, campaign, asked)
        request.state.logged = {"campaign": campaign_id}
        return {"signed": base64.b64encode(signed).decode("ascii")}
