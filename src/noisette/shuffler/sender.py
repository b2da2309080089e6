"""The client's side: seal, wait a random time, post; again and again until the shuffler has it."""

from __future__ import annotations

import math
import secrets
import ssl
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, Self

import httpx
import numpy as np

from noisette import _validate
from noisette._random import Rng, generator
from noisette._retry import decided, pauses
from noisette._validate import FloatArray
from noisette.shuffler.clients import check_secret, sign
from noisette.shuffler.layout import PacketLayout
from noisette.shuffler.sealing import OVERHEAD, PublicKey
from noisette.shuffler.store import PostRefused
from noisette.shuffler.wire import MEDIA_TYPE, Frame, Round, record_bytes

PATH = "/posts"
POST_BYTES = 2**20

_SLOTS = 16


class NotSent(OSError):
    """The shuffler did not answer, or refused with ``status``; the message says what it said."""

    def __init__(self, text: str, status: int | None = None) -> None:
        super().__init__(text)
        self.status = status


class Carrier(Protocol):
    """What brings a post to the shuffler; it returns when the post is on the shuffler's disk."""

    def post(self, number: str, body: bytes, *, minimum: int) -> None:
        """Deliver a post that asks for so many senders, or raise `NotSent` or `noisette.shuffler.store.PostRefused`."""

    def close(self) -> None:
        """Close whatever is open."""


class Http:
    """Signed posts over HTTP or HTTPS; ``authority`` is the file of the certificate that signed the other side's."""

    def __init__(
        self,
        url: str,
        *,
        client: str,
        secret: str,
        path: str = PATH,
        attempts: int = 6,
        timeout: float = 30.0,
        authority: Path | None = None,
        transport: httpx.BaseTransport | None = None,
        sleep: Callable[[float], Any] = time.sleep,
    ) -> None:
        self._client, self._secret = check_secret(client, secret)
        self._path = path
        self._attempts, self._sleep = _validate.integer(attempts, "attempts", low=1), sleep
        verify = ssl.create_default_context(cafile=str(authority)) if authority else True
        self._http = httpx.Client(base_url=url, timeout=timeout, verify=verify, transport=transport)

    def close(self) -> None:
        """Close the connection."""
        self._http.close()

    def post(self, number: str, body: bytes, *, minimum: int = 0) -> None:
        """Send a post until it is decided, with growing pauses; the same number every time, so it counts once."""
        signed = sign(self._secret, self._path, self._client, number, body, minimum=minimum)
        headers = signed | {"Content-Type": MEDIA_TYPE}
        said, status = "no answer", None
        for pause in pauses(self._attempts):
            if pause:
                self._sleep(pause)
            try:
                answer = self._http.post(self._path, content=body, headers=headers)
            except httpx.TransportError as error:
                said, status = type(error).__name__, None
                continue
            if answer.is_success:
                return
            said, status = f"{answer.status_code} {answer.text[:300]}", answer.status_code
            if decided(status):
                raise _refusal(answer) or NotSent(
                    f"{self._http.base_url} refused a post: {said}. Correct that before you send again.", status
                )
        raise NotSent(
            f"{self._http.base_url} took no post in {self._attempts} attempts: {said}. Send again later: "
            "what was stored counts once.",
            status,
        )


def _refusal(answer: httpx.Response) -> PostRefused | None:
    """Return the refusal of blocks sent before that an answer reports, None where it reports none."""
    if answer.status_code != 409:
        return None
    try:
        body = answer.json()
        return PostRefused(str(body["reason"]), str(body["detail"]), list(map(int, body["blocks"])))
    except (ValueError, KeyError, TypeError):
        return None


@dataclass(frozen=True)
class PacketsSent:
    """How many packets the shuffler accepted, how many it had before from this client, and how many posts it took."""

    packets: int
    known: int
    posts: int


class Sender:
    """Seals a client's privatised values to the server's key and posts them after random delays.

    Values must be privatised before: the seal hides them from the shuffler, the shuffler hides the client from the
    server, and what the server opens is protected by the mechanism alone.
    """

    def __init__(
        self,
        carrier: Carrier,
        server: PublicKey,
        *,
        post_bytes: int = POST_BYTES,
        sleep: Callable[[float], Any] = time.sleep,
    ) -> None:
        self._carrier, self._server, self._sleep = carrier, server, sleep
        self._post_bytes = _validate.integer(post_bytes, "post_bytes", low=1)

    @classmethod
    def over_http(cls, url: str, *, client: str, secret: str, server: str, **options: Any) -> Self:
        """Return a sender to the shuffler at a URL; ``server`` is the text of the server's public key."""
        return cls(Http(url, client=client, secret=secret, **options), PublicKey(server))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection to the shuffler."""
        self._carrier.close()

    def send(
        self,
        values: Any,
        layout: PacketLayout,
        *,
        context: str,
        number: int,
        spread: float = 0.0,
        slowest: float = 0.0,
        elapsed: float = 0.0,
        slots: int | None = _SLOTS,
        minimum: int = 0,
        rng: Rng = None,
    ) -> PacketsSent:
        """Send one client's values of a round, and return when the shuffler has them all.

        They are forwarded among those of at least ``minimum`` clients, or of as many as the shuffler waits for if that
        is more.

        Each packet waits max(0, slowest - elapsed) + U(0, spread) seconds: ``slowest`` is the time that the slowest
        client of the round needs for training and sending, ``elapsed`` what this one has needed, so that all clients
        send over the same interval (LDP-FL, "Parameter Shuffling"). ``spread`` is cut into ``slots``, and the packets
        of a slot travel at its end in one post; with ``slots=None`` each packet travels alone at its own time. If this
        client has sent some blocks of the round before, say before it was restarted, those stand and the others are
        sent.
        """
        round_ = Round(context, number, layout.blocks)
        packets = [
            (block, self._server.seal(payload, round_.label(block)))
            for block, payload in enumerate(layout.split(values))
        ]
        started, posts, known = time.monotonic(), 0, 0
        for due, chosen in self._schedule(layout, _waits(layout.blocks, spread, slowest, elapsed, slots, rng)):
            left = due - (time.monotonic() - started)
            if left > 0:
                self._sleep(left)
            again = self._post(round_, [packets[block] for block in chosen], minimum)
            posts, known = posts + 1, known + again
        return PacketsSent(layout.blocks - known, known, posts)

    def _schedule(self, layout: PacketLayout, waits: FloatArray) -> Iterator[tuple[float, list[int]]]:
        """Yield when to send and which blocks, in the order of time, no post larger than allowed."""
        per_post = max(1, self._post_bytes // record_bytes(layout.packet_bytes + OVERHEAD))
        for due in np.unique(waits):
            chosen = np.flatnonzero(waits == due).tolist()
            for start in range(0, len(chosen), per_post):
                yield float(due), chosen[start : start + per_post]

    def _post(self, round_: Round, packets: list[tuple[int, bytes]], minimum: int) -> int:
        """Post packets and return how many of their blocks the shuffler had before."""
        try:
            self._carrier.post(secrets.token_hex(16), Frame(round_, packets).encode(), minimum=minimum)
        except PostRefused as refused:
            if refused.reason != "already-sent":
                raise NotSent(str(refused)) from refused
            rest = [one for one in packets if one[0] not in set(refused.blocks)]
            if len(rest) == len(packets):
                raise NotSent(str(refused)) from refused
            return len(packets) - len(rest) + (self._post(round_, rest, minimum) if rest else 0)
        return 0


def _waits(blocks: int, spread: float, slowest: float, elapsed: float, slots: int | None, rng: Rng) -> FloatArray:
    """Return for each packet in how many seconds it is sent: the end of its slot, or a time of its own."""
    for name, value in (("spread", spread), ("slowest", slowest), ("elapsed", elapsed)):
        if not 0 <= _validate.number(value, name) < math.inf:
            raise ValueError(f"Expected {name}={value!r} >= 0 seconds and finite.")
    drawn = generator(rng).random(blocks)
    if slots is not None:
        drawn = (np.floor(drawn * _validate.integer(slots, "slots", low=1)) + 1) / slots
    return np.asarray(max(0.0, slowest - elapsed) + drawn * spread, dtype=np.float64)
