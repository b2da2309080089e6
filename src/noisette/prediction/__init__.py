"""Prediction: the error of a collection, the mechanism to choose and break-even populations, before any report."""

from noisette.prediction.combining import Combination, combine
from noisette.prediction.curves import break_even, share_error
from noisette.prediction.graded import Reused, plan_levels, predicted_hiera, simulated
from noisette.prediction.joint import JointDeviation, joint
from noisette.prediction.model.deviations import Deviation, deviation
from noisette.prediction.model.populations import named
from noisette.prediction.offers import best_report, report_rules
from noisette.prediction.personalised import Personalised, PersonalisedAggregate
from noisette.prediction.planning import BreakEven, Candidate, Plan, compare, plan
from noisette.prediction.sweeps import BreakEvenCurve, break_even_curve
from noisette.prediction.targets import population_needed, power, verdict

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
    "share_error",
    "simulated",
    "verdict",
]
