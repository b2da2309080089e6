"""What the demonstration found, beside the truth that only a simulation knows."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from scipy.special import ndtri

from noisette._terminal import HALF_WIDTH_95
from noisette._validate import FloatArray
from noisette.demo.devices import Reported
from noisette.demo.population import PORTRAIT, SIGNALS, SPORT, SPORTS, Devices
from noisette.domains import Categorical, Interval
from noisette.prediction import Plan, plan
from noisette.survey.campaigns import Campaign
from noisette.survey.estimation.distributions import mechanisms

LEVEL = 0.95
BINS = 32
_PEOPLE = 65  # by whom what is known before is described


@dataclass(frozen=True, eq=False)
class Outcome:
    """A collection from the question to the enhanced estimates.

    Quantities are the means of the signals, then the shares of the sports, as the campaign orders them.
    """

    campaign: Campaign
    devices: Devices = field(repr=False)
    seed: int
    reported: Reported = field(repr=False)
    found: dict[str, Any] = field(repr=False)
    enhanced: dict[str, Any] = field(repr=False)
    clean: bool

    @property
    def users(self) -> int:
        """How many devices reported."""
        return int(self.found["users"])

    @cached_property
    def truth(self) -> FloatArray:
        """The true means and shares."""
        return self.devices.truth

    def column(self, name: str, *, enhanced: bool = False) -> FloatArray:
        """Return one field of all estimates."""
        rows = (self.enhanced if enhanced else self.found)["dimensions"]
        return np.asarray([np.nan if row[name] is None else row[name] for row in rows], dtype=np.float64)

    @cached_property
    def covered(self) -> Any:
        """Which intervals hold the truth."""
        return (self.column("low") <= self.truth) & (self.truth <= self.column("high"))

    @property
    def portrait(self) -> tuple[FloatArray, FloatArray, FloatArray] | None:
        """Edges, true shares and reconstructed shares of one signal's distribution, where the reports tell it."""
        shape = next(one for one in self.found["attributes"] if one["name"] == PORTRAIT)["distribution"]
        if shape is None:
            return None
        edges = np.asarray(shape["edges"])
        place = [signal.name for signal in SIGNALS].index(PORTRAIT)
        counts = np.histogram(self.devices.numbers[:, place], edges)[0]
        return edges, counts / counts.sum(), np.asarray(shape["probabilities"])

    @property
    def half_width(self) -> float:
        """The ± of a mean that was seen, in % of its range: half of a 95 % interval."""
        return HALF_WIDTH_95 * root_mean_square((100 * self.column("std_error") / widths())[: len(SIGNALS)])

    def errors(self, values: FloatArray) -> FloatArray:
        """Return differences from the truth in % of the range; shares have a range of one."""
        return 100 * (values - self.truth) / widths()


def widths() -> FloatArray:
    """Return the range of each quantity."""
    return np.concatenate([[signal.width for signal in SIGNALS], np.ones(len(SPORTS))])


def root_mean_square(errors: FloatArray) -> float:
    """Return the size of errors."""
    return float(np.sqrt(np.mean(np.square(errors))))


def plans(campaign: Campaign) -> tuple[Plan, Plan]:
    """Return the errors of every mechanism for one number on [-1, 1] and for the sport, with the reports each gets.

    What is known of people before is taken to be where a signal usually lies, and that people differ by an eighth of
    its range; it counts that only some of them report it. So what is planned is the error of an estimate, the quantity
    that is seen in the end.
    """
    mechanism, sports, count = campaign.mechanism, Categorical(labels=tuple(SPORTS)), len(SIGNALS)
    reports = max(1, campaign.users * mechanism.report // mechanism.dims)
    epsilon = campaign.epsilon / mechanism.report
    usual = np.asarray([signal.usual for signal in SIGNALS])
    spread = ndtri((np.arange(_PEOPLE) + 0.5) / _PEOPLE) / 8
    values = 2 * np.clip(usual + spread[:, None], 0, 1) - 1
    one = plan(users=reports * count, epsilon=epsilon, dims=count, report=1, domain=Interval(), values=values)
    return one, plan(users=reports, epsilon=epsilon, domain=sports)


def planned_half_width(campaign: Campaign, planned: tuple[Plan, Plan]) -> float:
    """Return the planned ± of a mean with the mechanism that was taken, in % of the range: half of a 95 % interval."""
    name = chosen(campaign, SIGNALS[0].name)
    own = next(one for one in planned[0].candidates if one.mechanism == name)
    return float(HALF_WIDTH_95 * 50 * float(own.mse) ** 0.5)


def chosen(campaign: Campaign, attribute: str) -> str:
    """Return the name of the mechanism that answers a question."""
    return mechanisms(campaign.survey)[attribute]


def summary(outcome: Outcome, planned: tuple[Plan, Plan]) -> dict[str, Any]:
    """Return the outcome as JSON would have it."""
    names = ("name", "value", "std_error", "low", "high", "predicted_std_error")
    rows = [
        {name: row[name] for name in names} | {"truth": truth, "enhanced": better["value"]}
        for row, better, truth in zip(
            outcome.found["dimensions"], outcome.enhanced["dimensions"], outcome.truth, strict=True
        )
    ]
    return {
        "users": outcome.users,
        "accepted": outcome.reported.accepted,
        "seed": outcome.seed,
        "guarantee": outcome.found["guarantee"],
        "mechanisms": {"numbers": chosen(outcome.campaign, SIGNALS[0].name), SPORT: chosen(outcome.campaign, SPORT)},
        "dimensions": rows,
        "planned_half_width": planned_half_width(outcome.campaign, planned),
        "seen_half_width": outcome.half_width,
        "covered": int(outcome.covered.sum()),
        "error": root_mean_square(outcome.errors(outcome.column("value"))),
        "enhanced_error": root_mean_square(outcome.errors(outcome.column("value", enhanced=True))),
        "enhanced_by": outcome.enhanced["enhance"],
        "looks": [{"users": one["users"]} for one in outcome.reported.looks],
        "collection_seconds": outcome.reported.seconds,
        "stopped_cleanly": outcome.clean,
    }
