"""A thread of a service that looks at something every few seconds, for as long as the service runs."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from noisette.collector.telemetry import log


class Repeated(ABC):
    """Calls `look` at intervals of ``every`` seconds; a look that fails is logged, and looks go on."""

    def __init__(self, name: str, every: float) -> None:
        self._name, self._every = name, every
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"noisette-{name}", daemon=True)

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def close(self) -> None:
        """End, after a look that has begun."""
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ended.wait(self._every):
            self._try(self.look)

    def _try(self, job: Callable[..., None], *args: Any) -> None:
        """Do something that may fail: the database may be away, and the next look will find it."""
        try:
            job(*args)
        except Exception as error:
            log.warning(self._name, extra={"fields": {"error": type(error).__name__}})

    @abstractmethod
    def look(self) -> None:
        """Look once."""
