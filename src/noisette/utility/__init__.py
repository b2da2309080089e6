"""Prediction: the error of a collection, the mechanism to choose and break-even populations, before any report."""

from noisette.utility.combining import Combination, combine
from noisette.utility.curves import break_even
from noisette.utility.deviations import Deviation, deviation
from noisette.utility.graded import Reused, plan_levels, predicted_hiera, simulated
from noisette.utility.joint import JointDeviation, joint
from noisette.utility.personalised import Personalised, PersonalisedAggregate
from noisette.utility.planning import BreakEven, Candidate, Plan, compare, plan
from noisette.utility.populations import named
from noisette.utility.reporting import best_report, report_rules
from noisette.utility.sweeps import BreakEvenCurve, break_even_curve
from noisette.utility.targets import population_needed, power, verdict

__all__ = [
    "BreakEven",
    "BreakEvenCurve",
    "Candidate",
    "Combination",
    "Deviation",
    "JointDeviation",
    "Personalised",
    "PersonalisedAggregate",
    "Plan",
    "Reused",
    "best_report",
    "break_even",
    "break_even_curve",
    "combine",
    "compare",
    "deviation",
    "joint",
    "named",
    "plan",
    "plan_levels",
    "population_needed",
    "power",
    "predicted_hiera",
    "report_rules",
    "simulated",
    "verdict",
]
