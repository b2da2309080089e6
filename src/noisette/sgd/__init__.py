"""Private learning in PyTorch: bounded gradients, noise, Poisson samples and a budget that is kept."""

from noisette.sgd.advice import Advice, advise_clip
from noisette.sgd.budget import Budget, BudgetSpent
from noisette.sgd.canaries import TrainingAudit, audit_training
from noisette.sgd.clipping import CLIPS, L2, AutoS, Clip, Curvature, LInf, PerLayer, Psac, Quantile
from noisette.sgd.geodp import Geo
from noisette.sgd.gradients import Recorder
from noisette.sgd.models import check_model, without_batch_norm
from noisette.sgd.observer import Comparison, Observer, Step
from noisette.sgd.optimizer import PrivateOptimizer
from noisette.sgd.perturbation import Gaussian, Layered, Perturbation
from noisette.sgd.private import PERTURBATIONS, Private, make_private
from noisette.sgd.recurrence import with_open_recurrence
from noisette.sgd.sampling import PoissonLoader
from noisette.sgd.tensor import TensorGaussian

__all__ = [
    "CLIPS",
    "L2",
    "PERTURBATIONS",
    "Advice",
    "AutoS",
    "Budget",
    "BudgetSpent",
    "Clip",
    "Comparison",
    "Curvature",
    "Gaussian",
    "Geo",
    "LInf",
    "Layered",
    "Observer",
    "PerLayer",
    "Perturbation",
    "PoissonLoader",
    "Private",
    "PrivateOptimizer",
    "Psac",
    "Quantile",
    "Recorder",
    "Step",
    "TensorGaussian",
    "TrainingAudit",
    "advise_clip",
    "audit_training",
    "check_model",
    "make_private",
    "with_open_recurrence",
    "without_batch_norm",
]
