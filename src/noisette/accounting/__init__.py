"""What releases give away together: events, composition, calibration, shuffling, and a ledger of budgets."""

from noisette._moved import names_of
from noisette.accounting.budgets import (
    AlreadyDebited,
    Balance,
    BudgetExceeded,
    DebitReceipt,
    LedgerError,
    UnknownAccount,
)
from noisette.accounting.calibration import calibrate, noise_multiplier, report_epsilon, sampled_gaussian
from noisette.accounting.composition import (
    compose,
    randomized_response_delta,
    randomized_response_epsilon,
    rdp,
    zcdp,
)
from noisette.accounting.conversions import (
    gdp_delta,
    gdp_epsilon,
    gdp_from_pure,
    gdp_mu,
    rdp_epsilon,
    zcdp_delta,
    zcdp_epsilon,
    zcdp_from_pure,
    zcdp_rho,
)
from noisette.accounting.curves import Curve, privacy_curve
from noisette.accounting.events import event, gdp, loss_distribution
from noisette.accounting.ledger import Ledger
from noisette.accounting.shuffling import Blanket, blankets, shuffled, shuffled_closed_form, shuffled_delta

__all__ = [
    "AlreadyDebited",
    "Balance",
    "Blanket",
    "BudgetExceeded",
    "Curve",
    "DebitReceipt",
    "Ledger",
    "LedgerError",
    "UnknownAccount",
    "blankets",
    "calibrate",
    "compose",
    "event",
    "gdp",
    "gdp_delta",
    "gdp_epsilon",
    "gdp_from_pure",
    "gdp_mu",
    "loss_distribution",
    "noise_multiplier",
    "privacy_curve",
    "randomized_response_delta",
    "randomized_response_epsilon",
    "rdp",
    "rdp_epsilon",
    "report_epsilon",
    "sampled_gaussian",
    "shuffled",
    "shuffled_closed_form",
    "shuffled_delta",
    "zcdp",
    "zcdp_delta",
    "zcdp_epsilon",
    "zcdp_from_pure",
    "zcdp_rho",
]

__getattr__ = names_of(__name__, renamed={"Receipt": "DebitReceipt"})
