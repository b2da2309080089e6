"""A campaign that tests share."""

from __future__ import annotations

import pytest
from tests.commute import COMMUTE

from noisette.survey.campaigns import Campaign


@pytest.fixture(scope="session")
def campaign() -> Campaign:
    return Campaign.from_dict(COMMUTE)
