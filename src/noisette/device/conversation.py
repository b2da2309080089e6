"""What a device and a collector say to each other: written once, and held with or without asyncio."""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import cache
from typing import Any, TypeVar

import httpx

from noisette._retry import decided, pauses
from noisette.device.state import SENT, Device, Sent, Verdict
from noisette.device.tokens import Wallet, written
from noisette.survey.batches import MEDIA_TYPE
from noisette.survey.campaigns import Campaign
from noisette.survey.periods import period_at

Result = TypeVar("Result")


@dataclass(frozen=True)
class HttpRequest:
    """What to ask the collector, or the shuffler before it, after a pause."""

    method: str
    path: str
    body: Mapping[str, Any] | bytes | None = None
    pause: float = 0.0
    to: str = "collector"
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def content(self) -> dict[str, Any]:
        """Headers and body as httpx takes them: JSON, or the bytes of a batch."""
        if isinstance(self.body, bytes):
            return {"content": self.body, "headers": {"Content-Type": MEDIA_TYPE, **self.headers}}
        return {"json": self.body, "headers": self.headers}


# It yields requests, is sent responses or thrown `httpx.TransportError`, and returns a result.
Conversation = Generator[HttpRequest, httpx.Response, Result]
# Brings a report of a device to where it is taken; returns what becomes of it, or None if nobody answers.
Carry = Callable[[Device, str, Mapping[str, Any]], Conversation[Verdict | None]]

_TOO_EARLY = 425
# What an operator or time can mend: a key that is being changed, a campaign that is not there now, a clock that is
# ahead. Whatever else is refused stays so, however often it is sent.
_MENDABLE = frozenset({401, 403, 404, _TOO_EARLY})
_MENDABLE_REASONS = frozenset({"wrong-period", "post-reused", "copied"})


def fetch(device: Device, campaign_id: str, *, sealed: bool) -> Conversation[Campaign]:
    """Fetch a campaign; while the collector does not answer, return it as it was last seen."""
    try:
        answer = yield HttpRequest("GET", f"/campaigns/{campaign_id}")
        if answer.is_server_error:
            answer.raise_for_status()
    except httpx.HTTPError:
        seen = device.recall(campaign_id)
        if seen is None:
            raise
        return seen
    found = shown(answer, campaign_id, sealed=sealed)
    device.remember(found, answer.text, ahead=ahead_of(answer))
    return found


def ahead_of(answer: httpx.Response) -> float:
    """Return by how many seconds this clock is ahead of the collector's, as far as its answer shows."""
    try:
        return (datetime.now(UTC) - parsedate_to_datetime(answer.headers["date"])).total_seconds()
    except (KeyError, TypeError, ValueError):
        return 0.0


class CollectorError(RuntimeError):
    """What a collector says instead of doing what it was asked."""


def shown(answer: httpx.Response, campaign_id: str, *, sealed: bool) -> Campaign:
    """Return the campaign that an answer shows, or say why it cannot be answered in this way."""
    if answer.status_code == 401:
        raise CollectorError(
            f"The collector does not know the key that campaign {campaign_id!r} was asked for with. "
            "Give the key of a device as api_key."
        )
    if answer.status_code != 200:
        raise CollectorError(f"The collector does not show campaign {campaign_id!r}: {reason_of(answer)}")
    body = answer.json()
    found = Campaign.from_wire(body)
    if found.id != campaign_id:
        raise ValueError(f"Expected campaign {campaign_id!r}, the collector sent {found.id!r}.")
    if body.get("sealed", False) and not sealed:
        raise ValueError(
            f"Campaign {campaign_id!r} takes reports from its shuffler alone: answer with ShuffledClient, or with "
            "`noisette report --shuffler`."
        )
    if sealed and not body.get("sealed", False):
        raise ValueError(f"Campaign {campaign_id!r} has no shuffler in front of it: answer with Client.")
    return found


def deliver(device: Device, code: str | None, carry: Carry, attempts: int) -> Conversation[Sent]:
    """Send what waits; what cannot be taken now stays in the queue."""
    for campaign, body in device.waiting():
        verdict: Verdict | None = SENT
        if "token" not in body:
            when = device.signing_period(campaign, body["period"])
            verdict = yield from admit(device.wallet, campaign, when, code or "", attempts)
            body |= written(*(device.wallet.signed(campaign, when) or (b"", b"")))
        if verdict == SENT:
            verdict = yield from carry(device, campaign, body)
        if verdict is None:
            break
        device.settle(body["key"], verdict)
    return device.counts()


def judged(answer: httpx.Response | None) -> Verdict | None:
    """Return what an answer means for a report: sent, refused for good, or to be kept until something is mended."""
    if answer is None:
        return None
    if answer.is_success:
        return SENT
    word = _word_of(answer)
    mendable = (answer.status_code in _MENDABLE and word != "unknown-code") or word in _MENDABLE_REASONS
    return Verdict("waiting" if mendable else "refused", reason_of(answer))


def submit(campaign: str, body: Mapping[str, Any], attempts: int) -> Conversation[Verdict | None]:
    """Post a report; return what becomes of it, or None if nobody answers."""
    return judged((yield from post(campaign, body, attempts)))


def post(campaign: str, body: Mapping[str, Any] | bytes, attempts: int) -> Conversation[httpx.Response | None]:
    """Post reports until the collector has decided about them, or return None when all attempts failed."""
    return (yield from ask(HttpRequest("POST", f"/campaigns/{campaign}/reports", body), attempts))


def admit(wallet: Wallet, campaign: str, period: str, code: str, attempts: int) -> Conversation[Verdict | None]:
    """Have a token signed without showing it; return `SENT`, why it is not signed, or None if nobody answers."""
    if wallet.signed(campaign, period) is not None:
        return SENT
    shown = yield from ask(HttpRequest("GET", f"/campaigns/{campaign}/tokens/{period}"), attempts)
    if shown is None or not shown.is_success:
        return judged(shown)
    blinded = wallet.blind(campaign, period, shown.json()["modulus"])
    asked = {"code": code, "period": period, "blinded": blinded}
    answer = yield from ask(HttpRequest("POST", f"/campaigns/{campaign}/tokens", asked), attempts)
    if answer is None or not answer.is_success:
        return judged(answer)
    wallet.unblind(campaign, period, answer.json()["signed"])
    return SENT


def signature_of(device: Device, campaign: Campaign, code: str | None, attempts: int) -> Conversation[bytes | None]:
    """Have this period's token signed before there is an answer, where what is drawn follows from the signature."""
    if campaign.tokens != "drawn":
        return None
    when = campaign.signing_period(period_at(campaign.period))
    verdict = yield from admit(device.wallet, campaign.id, when, code or "", attempts)
    if verdict != SENT:
        why = "it does not answer" if verdict is None else verdict.reason
        raise CollectorError(
            f"The collector has not signed the token that draws for this user: {why}. Try again later."
        )
    signed = device.wallet.signed(campaign.id, when)
    return None if signed is None else signed[1]


def ask(request: HttpRequest, attempts: int) -> Conversation[httpx.Response | None]:
    """Ask until there is a decision, with growing pauses, or return None when all attempts failed."""
    for pause in pauses(attempts):
        try:
            answer = yield replace(request, pause=pause)
        except httpx.TransportError:
            continue
        if decided(answer.status_code) or answer.status_code == _TOO_EARLY:  # which no pause of seconds mends
            return answer
    return None


def hold(lines: Mapping[str, httpx.Client], conversation: Conversation[Result]) -> Result:
    """Hold a conversation over the connections to the collector and, where there is one, the shuffler."""
    wanted, result = step(conversation, None)
    while wanted is not None:
        if wanted.pause:
            time.sleep(wanted.pause)
        try:
            line = lines[wanted.to]
            answer: httpx.Response | httpx.TransportError = line.request(wanted.method, wanted.path, **wanted.content)
        except httpx.TransportError as error:
            answer = error
        wanted, result = step(conversation, answer)
    done: Result = result
    return done


def step(conversation: Conversation[Result], answer: Any) -> tuple[HttpRequest | None, Any]:
    """Go on with a conversation; return what it asks next, or None and its result."""
    try:
        if isinstance(answer, httpx.TransportError):
            return conversation.throw(answer), None
        return conversation.send(answer), None
    except StopIteration as end:  # which no future may carry
        return None, end.value


@cache
def trusted() -> ssl.SSLContext:
    """Return how certificates are checked, made once: to read all authorities takes longer than most conversations."""
    return httpx.create_ssl_context()


def bearer(api_key: str) -> dict[str, str]:
    """Return the header that carries an API key."""
    return {"Authorization": f"Bearer {api_key}"}


def _word_of(answer: httpx.Response) -> str:
    """Return the collector's reason in one word."""
    try:
        return str(answer.json()["reason"])
    except (ValueError, KeyError, TypeError):
        return ""


def reason_of(answer: httpx.Response) -> str:
    """Return the collector's words."""
    try:
        return str(answer.json()["detail"])
    except (ValueError, KeyError, TypeError):
        return f"status {answer.status_code}"
