"""The whole story, simulated: plan, collect over the network, estimate while it arrives, hold it against the truth."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from noisette._files import need_packages, posix_module, whole_file

if TYPE_CHECKING:
    from noisette.demo.devices import Collector

__all__ = ["run"]

_PACKAGES = ("fastapi", "httpx", "prometheus_client", "sqlalchemy", "uvicorn", "yaml")


def run(
    *, users: int, epsilon: float, seed: int, output: Path, keep: bool = False, quiet: bool = False
) -> dict[str, Any]:
    """Run the demonstration, write the report to ``output`` and return what it found."""
    need_packages("The demonstration", _PACKAGES, "collector")
    posix_module("resource", "The demonstration, which starts a collector,")
    import httpx
    import numpy as np

    from noisette import _random, _validate
    from noisette.demo import devices, population, story
    from noisette.demo.devices import serving
    from noisette.demo.outcome import Outcome, plans, summary
    from noisette.demo.page import page
    from noisette.survey.campaigns import Campaign

    started = time.perf_counter()
    asked = population.campaign(users, _validate.epsilon(epsilon))
    tell = story.Story(quiet=quiet)
    with whole_file(output) as stream:
        tell.opening(users, epsilon)
        with serving(asked) as collector:
            own = httpx.get(f"{collector.url}/campaigns/{asked['id']}", headers=collector.header("device"), timeout=60)
            campaign = Campaign.from_wire(own.raise_for_status().json())
            planned = plans(campaign)
            tell.plan(campaign, planned)
            tell.address(collector, campaign)
            people = population.simulate(users, np.random.default_rng(seed))
            with tell.live(campaign) as watch:
                reported = devices.report(campaign, collector, people, _random.generator(seed + 1), watch)
            raw, enhanced = (_estimates(collector, campaign.id, method) for method in ("none", "auto"))
            outcome = Outcome(campaign, people, seed, reported, raw, enhanced, clean=False)
            tell.results(outcome, planned)
            stream.write(page(outcome, planned).encode())
            if keep:
                _wait(tell, collector)
        outcome = Outcome(campaign, people, seed, reported, raw, enhanced, clean=collector.process.returncode == 0)
    found = summary(outcome, planned) | {"report": str(output.resolve()), "seconds": time.perf_counter() - started}
    tell.closing(output, outcome.clean, found["seconds"])
    return found


def _estimates(collector: Collector, campaign_id: str, method: str) -> dict[str, Any]:
    import httpx

    address = f"{collector.url}/campaigns/{campaign_id}/estimates"
    answer = httpx.get(address, params={"enhance": method}, headers=collector.header("analyst"), timeout=120)
    found: dict[str, Any] = answer.raise_for_status().json()
    return found


def _wait(tell: Any, collector: Collector) -> None:
    """Keep the collector up until somebody has seen enough."""
    with suppress(KeyboardInterrupt):  # from the line on that mentions Ctrl-C
        tell.keeping(collector)
        while collector.process.poll() is None:
            time.sleep(1.0)
