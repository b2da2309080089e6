"""Values of several blocks, and tables of whole numbers, for every mechanism of the catalogue.

Reports are drawn in blocks that fit a core's cache: a slip at their edges shows only where there are several.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import noisette as nz
from noisette.auditing import goodness
from noisette.auditing.inputs import admitted, drawn
from noisette.mechanisms._base import BLOCK

# pem and sampled draw groups and dimensions; the estimate of square-wave is not the mean of its reports
NAMES = sorted(set(nz.CATALOGUE) - {"pem", "sampled", "square-wave"})
TABLED = sorted(name for name, cls in nz.CATALOGUE.items() if callable(getattr(cls, "law", None)))


@pytest.mark.parametrize("name", NAMES)
def test_every_block_has_the_law_of_its_values(name: str) -> None:
    """The first values are one input, the last ones another: the means of both parts are where moments say."""
    mechanism: Any = nz.CATALOGUE[name].example(2.0)
    found = [x for x in drawn(mechanism.domain, np.random.default_rng(0), 4) if admitted(mechanism, x)]
    first, last = np.asarray(found[0]), np.asarray(found[-1])
    early, late = BLOCK + 5, BLOCK + 2
    values = np.stack([first] * early + [last] * late)
    reports = mechanism.privatize(values, rng=3)
    assert reports.shape == (early + late, *mechanism.report_shape)
    for x, part in ((first, reports[:early]), (last, reports[early:])):
        moments, found = mechanism.moments(x), mechanism.aggregate(part).estimate()
        counts = np.broadcast_to(found.count, np.shape(found.value))  # fewer than reports where an attribute is drawn
        off = found.value - np.ravel(mechanism.target(x)) - np.ravel(moments.bias)
        assert np.all(np.abs(off) <= 6 * np.sqrt(np.ravel(moments.variance) / counts) + 1e-9), (name, off)


@pytest.mark.parametrize("name", TABLED)
@pytest.mark.parametrize("epsilon", [0.4, 3.0])
def test_the_weights_of_a_table_add_up_and_are_likelihoods(name: str, epsilon: float) -> None:
    mechanism: Any = nz.CATALOGUE[name].example(epsilon)
    law = mechanism.law()
    for x in drawn(mechanism.domain, np.random.default_rng(1), 3):
        kinds = [(count, weight) for count, weight in law.kinds(mechanism.place(x)) if count]
        assert sum(count * weight for count, weight in kinds) == law.total
        assert all(count > 0 <= weight for count, weight in kinds)
        reports = mechanism.privatize(np.repeat(np.asarray(x)[None], 50, axis=0), rng=2)
        stated = np.asarray(mechanism.log_prob(reports, np.asarray(x)[None]))
        logs = np.asarray([math.log(weight) - math.log(law.total) for _, weight in kinds if weight])
        units = goodness.units(mechanism.support)
        assert min(np.abs(stated[:, None] + unit - logs).min(axis=1).max() for unit in units) < 1e-9


@pytest.mark.parametrize("name", sorted(set(nz.CATALOGUE) - {"sampled", "sampled-attributes"}))  # reports of parts
def test_likelihoods_and_targets_of_many_values_are_those_of_each(name: str) -> None:
    """One report beside many values, many beside one, all beside all, and values in rows and columns."""
    mechanism: Any = nz.CATALOGUE[name].example(2.0)
    found = [x for x in drawn(mechanism.domain, np.random.default_rng(5), 4) if admitted(mechanism, x)][-3:]
    inputs = np.stack([np.asarray(x) for x in found])
    reports = np.asarray(mechanism.privatize(inputs[:2], rng=6))
    each = np.asarray([[mechanism.log_prob(report, x) for x in inputs] for report in reports])
    assert each.shape == (len(reports), len(inputs))
    close = {"rtol": 1e-9, "atol": 1e-12}
    np.testing.assert_allclose(mechanism.log_prob(reports[0], inputs), each[0], **close)
    np.testing.assert_allclose(mechanism.log_prob(reports, inputs[1]), each[:, 1], **close)
    np.testing.assert_allclose(mechanism.log_prob(reports[:, None], inputs), each, **close)
    square = np.stack([inputs[:2], inputs[1:]])
    np.testing.assert_allclose(mechanism.log_prob(reports[0], square), [each[0, :2], each[0, 1:]], **close)
    for found in (lambda x: mechanism.target(x), lambda x: mechanism.moments(x).variance):
        one = np.stack([np.asarray(found(x)) for x in inputs])
        np.testing.assert_allclose(np.broadcast_to(found(inputs), one.shape), one, **close)
        np.testing.assert_allclose(np.broadcast_to(found(square), (2, 2, *one.shape[1:])), [one[:2], one[1:]], **close)
