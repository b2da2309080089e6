"""Every public name of `noisette.survey`, once."""

from .campaigns import Campaign as Campaign
from .questions import Choice as Choice
from .questions import Choices as Choices
from .questions import Graded as Graded
from .questions import Number as Number
from .questions import Question as Question
from .questions import Tensor as Tensor
from .questions import Text as Text
from .questions import Vector as Vector
from .reports import SurveyReports as SurveyReports
from .results import Results as Results
from .results import SurveyAggregate as SurveyAggregate
from .survey import Survey as Survey
