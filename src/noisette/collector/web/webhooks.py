"""Calls to an address of the owner's when something happens: the target is reached, reports stop, liars are noticed.

Calls are made by a thread of their own, so that nobody waits for a slow receiver; each is tried several times with
growing pauses. What was sent is in the log of changes, so that a restart does not send it again. The address comes from
a person: only https leaves, to a public address, which is looked up once and then called by its number, so that a name
cannot be turned to another machine in between; redirects are not followed and the answer's body is not read.
"""

from __future__ import annotations

import ipaddress
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from noisette._terminal import to_json
from noisette.collector.repeated import Repeated
from noisette.collector.storage.tracks import arrivals
from noisette.collector.telemetry import log
from noisette.survey.campaigns import Campaign
from noisette.survey.periods import period_at

if TYPE_CHECKING:
    from noisette.collector.web.service import Service


_SECONDS_BETWEEN = 5.0  # seconds between two looks
_PAUSES = (0.0, 2.0, 10.0, 60.0)  # seconds before each attempt
_TIMEOUT = 10.0
_QUIET = timedelta(days=1)  # without a report, after which they have stopped
_DONE = "told-webhook"
_TRANSLATED = ipaddress.ip_network("64:ff9b::/96")  # numbers of IPv4, the private ones too, behind NAT64


def check_address(text: Any, local: bool = False) -> str:
    """Return an address that may be called, or say why not; ``local`` admits http and machines of the own network."""
    parts = urlsplit(text) if isinstance(text, str) else urlsplit("")
    if parts.scheme not in (("http", "https") if local else ("https",)) or not parts.hostname or parts.username:
        raise ValueError(f"Expected webhook={text!r:.80} to be an address such as https://example.org/noisette.")
    number = None
    with suppress(ValueError):  # a name is looked up when it is called
        number = ipaddress.ip_address(parts.hostname)
    if number is not None and not local and not _public(number):
        raise ValueError(f"{parts.hostname} is no public address. Allow it with --local-webhooks.")
    return str(text)


def _public(number: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    """Tell whether a number is that of a machine in the internet, and no way to another number."""
    if not number.is_global or number.is_multicast:
        return False
    if isinstance(number, ipaddress.IPv4Address):
        return True
    return not (number.ipv4_mapped or number.sixtofour or number.teredo or number in _TRANSLATED)


def resolved(host: str, port: int, *, local: bool) -> str:
    """Return the number of a machine that may be called."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    numbers = list(dict.fromkeys(str(one[4][0]) for one in found))
    if not local and (bad := [one for one in numbers if not _public(ipaddress.ip_address(one.partition("%")[0]))]):
        raise ValueError(f"{host} is {bad[0]}, which is no public address. Allow it with --local-webhooks.")
    return numbers[0]


def post(address: str, body: bytes, *, local: bool) -> int:
    """Send one call and return the status of the answer."""
    import httpx

    parts = urlsplit(check_address(address, local=local))
    host, port = str(parts.hostname), parts.port or (443 if parts.scheme == "https" else 80)
    number = resolved(host, port, local=local)
    url = httpx.URL(address).copy_with(host=number, port=port)
    headers = {"Host": parts.netloc, "Content-Type": "application/json", "User-Agent": "noisette"}
    with httpx.Client(timeout=_TIMEOUT, follow_redirects=False, trust_env=False) as client:
        request = client.build_request("POST", url, content=body, headers=headers, extensions={"sni_hostname": host})
        answer = client.send(request, stream=True)
        answer.close()
    return answer.status_code


class Webhooks(Repeated):
    """Looks what has happened to campaigns with an address, and calls it."""

    def __init__(
        self, service: Service, *, local: bool = False, every: float = _SECONDS_BETWEEN, quiet: timedelta = _QUIET
    ) -> None:
        super().__init__("webhooks", every)
        self._service, self._local, self._quiet = service, local, quiet
        self._sent: set[tuple[str, str]] | None = None
        self._seen: dict[tuple[str, str], tuple[int, float]] = {}
        self._waiting: list[tuple[float, int, str, dict[str, Any]]] = []

    def look(self) -> None:
        """Find what has happened since, and make the calls that are due."""
        self._find()
        self._call()

    def _find(self) -> None:
        roster = self._service.roster
        for name, campaign in list(roster.campaigns.items()):
            life = roster.life(name)
            if life.webhook is None or life.state != "open":
                continue
            for event, facts in self._happened(campaign):
                key = (name, f"{event}/{facts['period']}")
                if key not in self._known():
                    self._known().add(key)
                    moment = datetime.now(UTC).isoformat(timespec="seconds")
                    call = {"event": event, "campaign": name, "title": campaign.title, "moment": moment} | facts
                    self._waiting.append((time.monotonic(), 0, life.webhook, call))

    def _known(self) -> set[tuple[str, str]]:
        """Return what was sent, by this process or one before it."""
        if self._sent is None:
            self._sent, last = set(), 0
            while rows := self._service.store.registry.log(last):
                self._sent |= {(one["who"].partition(":")[2], one["subject"]) for one in rows if one["action"] == _DONE}
                last = rows[-1]["number"]
        return self._sent

    def _happened(self, campaign: Campaign) -> Iterator[tuple[str, dict[str, Any]]]:
        period = period_at(campaign.period)
        users, now = self._service.store.periods(campaign).get(period, 0), time.monotonic()
        before, since = self._seen.get((campaign.id, period), (-1, now))
        if users != before:
            since = now
            self._seen[campaign.id, period] = (users, now)
        facts = {"period": period, "users": users, "target_users": campaign.wanted}
        if users >= campaign.wanted:
            yield "target-reached", facts
        elif users and self._quiet_for(campaign, period, users, now - since) >= self._quiet.total_seconds():
            yield "reports-stopped", facts
        if users and users != before:
            failed = self._service.estimates(campaign, period, 0.95, "none")["suspicions"]["failed"]
            if failed:
                yield "liars-suspected", facts | {"failed": [f"{one['about']}: {one['test']}" for one in failed[:3]]}

    def _quiet_for(self, campaign: Campaign, period: str, users: int, here: float) -> float:
        """Return for how many seconds no user has come: as seen by this process, or by one that ran before it."""
        came = arrivals(self._service.store, campaign, period)
        return max(here, time.time() - came[-1][0]) if came and came[-1][1] == users else here

    def _call(self) -> None:
        """Make the calls whose time has come, and note those that are done or given up."""
        due = [one for one in self._waiting if one[0] <= time.monotonic()]
        self._waiting = [one for one in self._waiting if one not in due]
        for _, attempt, address, call in due:
            if self._ended.is_set():
                return
            why = attempted(lambda: post(address, to_json(call).encode(), local=self._local))  # noqa: B023 - called at once
            note = {"event": call["event"], "campaign": call["campaign"], "attempt": attempt + 1, "outcome": why}
            log.info("webhook", extra={"fields": note})
            if why != "taken" and attempt + 1 < len(_PAUSES):
                self._waiting.append((time.monotonic() + _PAUSES[attempt + 1], attempt + 1, address, call))
            else:
                subject = f"{call['event']}/{call['period']}"
                self._service.store.registry.note(f"webhook:{call['campaign']}", _DONE, subject)


def attempted(call: Callable[[], int]) -> str:
    """Return "taken", or why a call failed."""
    import httpx

    try:
        status = call()
    except (httpx.HTTPError, OSError, ValueError) as error:
        return type(error).__name__
    return "taken" if 200 <= status < 300 else f"status {status}"
