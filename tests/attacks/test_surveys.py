"""One person's whole answer to a survey: no more than its epsilon, whatever is asked and however it is split."""

from __future__ import annotations

import random
from fractions import Fraction

import noisette as nz
from noisette.survey.choosing import Allowance
from noisette.survey.coding.sections import Together


def test_shares_of_a_survey_never_add_up_to_more_than_its_budget() -> None:
    """Shares were rounded to the nearest float: 35 % of such splits spent more than epsilon, by one in 2^52."""
    draw = random.Random(1)
    for _ in range(2000):
        budget = Allowance(draw.choice([round(draw.uniform(0.1, 10), 1), draw.uniform(0.1, 10)]), draw.random(), 1)
        weights = [draw.randint(1, 6) for _ in range(draw.randint(2, 6))]
        parts = [budget.share(own, sum(weights)) for own in weights]
        for name in ("epsilon", "delta"):
            each = [getattr(part, name) for part in parts]
            spent = sum(map(Fraction, each))
            assert spent <= Fraction(getattr(budget, name))
            stated = Together(()).total(each)
            assert spent <= Fraction(stated) <= Fraction(getattr(budget, name))


def test_a_survey_that_is_split_in_three() -> None:
    """2.2 three times is more than 6.6: the survey stated, and spent, 6.6000000000000005."""
    asked = [nz.Number("age", 0, 10), nz.Vector("week", 3, 0, 1), nz.Choices("has", ["car", "bike", "bus"], most=2)]
    survey = nz.Survey(asked, epsilon=6.6)
    assert not survey.draw
    assert sum(Fraction(one.mechanism.guarantee.epsilon) for one in survey.sections) <= Fraction(6.6)
    assert 6.59 < survey.guarantee.epsilon <= 6.6
