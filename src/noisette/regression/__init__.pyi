"""Every public name of `noisette.regression`, once."""

from .designs import BadValue as BadValue
from .designs import Design as Design
from .designs import coding_for as coding_for
from .estimators import PrivateLinearRegression as PrivateLinearRegression
from .estimators import PrivateLogisticRegression as PrivateLogisticRegression
from .inference import Coefficients as Coefficients
from .inference import Inference as Inference
from .moments import OneShot as OneShot
from .moments import Solution as Solution
from .pairs import ClassPairs as ClassPairs
from .training import Model as Model
from .training import State as State
from .training import Training as Training
