"""What regression refuses, each with the reason."""

from __future__ import annotations

import numpy as np
import pytest

import noisette as nz
from noisette.regression.designs import Design

DESIGN = Design((nz.Interval(0, 10), nz.Interval(-1, 1)))


def test_masked_values_are_refused_and_a_mask_of_nothing_is_not() -> None:
    rows = np.asarray([[1.0, 0.5], [2.0, 0.0]])
    with pytest.raises(ValueError, match="without masked values"):
        DESIGN.encode(np.ma.array(rows, mask=[[False, False], [False, True]]))
    plain = DESIGN.encode(rows)
    assert np.array_equal(DESIGN.encode(np.ma.array(rows, mask=False)), plain)


@pytest.mark.needs("sklearn")
def test_a_target_that_is_no_interval_is_refused() -> None:
    from noisette.regression.estimators import PrivateLinearRegression

    model = PrivateLinearRegression(epsilon=1.0, target=(0, 10))
    with pytest.raises(TypeError, match="to be an Interval"):
        model.fit(np.zeros((50, 2)), np.zeros(50))
