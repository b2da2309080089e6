"""Prediction: the error of a collection, the mechanism to choose and break-even populations, before any report."""

from noisette.utility.curves import break_even
from noisette.utility.deviations import Deviation, deviation
from noisette.utility.joint import JointDeviation, joint
from noisette.utility.personalised import Personalised, PersonalisedAggregate
from noisette.utility.planning import BreakEven, Candidate, Plan, compare, plan
from noisette.utility.populations import named
from noisette.utility.reporting import best_report, report_rules

__all__ = [
    "BreakEven",
    "Candidate",
    "Deviation",
    "JointDeviation",
    "Personalised",
    "PersonalisedAggregate",
    "Plan",
    "best_report",
    "break_even",
    "compare",
    "deviation",
    "joint",
    "named",
    "plan",
    "report_rules",
]
