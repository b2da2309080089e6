"""What an operator of the collector sees: counters and a log. They hold no value, no key and no token."""

from __future__ import annotations

import logging

from prometheus_client import Counter, Gauge

from noisette import _service

log = logging.getLogger("noisette.collector")


class CollectorMetrics(_service.Metrics):
    """Counters of one collector."""

    def __init__(self) -> None:
        super().__init__()
        self.accepted = self.make(Counter, "reports_accepted", "Reports stored.", "campaign")
        self.repeated = self.make(Counter, "reports_repeated", "Reports that had been stored before.", "campaign")
        self.rejected = self.make(Counter, "reports_rejected", "Reports refused, and requests to send one.", "reason")
        self.batches = self.make(
            Counter, "batches", "Batches that a shuffler brought, by what became of them.", "state"
        )
        self.users = self.make(Gauge, "users", "Users in the sums of a period.", "campaign", "period")
