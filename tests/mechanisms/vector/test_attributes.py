"""Records of categories and numbers, some attributes of which each user reports."""

from __future__ import annotations

import json
import math
from itertools import combinations, product
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy.special import ndtri

import noisette as nz
from noisette.aggregation import load
from noisette.aggregation.files import ReportFile, write_reports
from noisette.mechanisms.vector._attribute_cells import dissect
from noisette.mechanisms.vector.attributes import by_attribute

CATEGORIES = ("grr", "oue", "sue", "olh", "subset-selection", "hadamard", "histogram")
RECORD = nz.Attributes((2, 5, nz.Categorical(labels=("red", "green", "blue"))), names=("smokes", "region", "colour"))
MIXED = nz.Attributes((nz.Interval(0, 120), 4, nz.Interval()), names=("age", "region", "score"))


def people(users: int, seed: int = 3) -> np.ndarray:
    """Attributes that depend on each other: the colour follows the region."""
    rng = np.random.default_rng(seed)
    region = rng.choice(5, users, p=[0.5, 0.2, 0.15, 0.1, 0.05])
    return np.column_stack([rng.random(users) < 0.3, region, np.minimum(region, 2)]).astype(np.int64)


@pytest.mark.long
@pytest.mark.parametrize(
    ("inner", "report"),
    [
        *((inner, 2) for inner in ("oue", "olh", "subset-selection", "histogram")),
        (("grr", "oue", "olh"), 1),
        (("histogram", "grr", "subset-selection"), 3),
    ],
)
def test_contract(inner: Any, report: int) -> None:
    nz.testing.check_mechanism(
        nz.SampledAttributes(inner, epsilon=1.5, domain=RECORD, report=report), samples=8_000, rng=report
    )


@pytest.mark.long
@pytest.mark.parametrize(
    ("inner", "options"),
    [
        (("piecewise", "oue", "laplace"), {"report": 1}),
        (("duchi", "grr", "hybrid"), {"report": 2}),
        (("piecewise-optimal", "subset-selection", "duchi"), {"shares": (0.5, 0.3, 0.2)}),
    ],
)
def test_contract_with_numbers(inner: tuple[str, ...], options: dict[str, Any]) -> None:
    nz.testing.check_mechanism(nz.SampledAttributes(inner, epsilon=2.0, domain=MIXED, **options), samples=8_000)


def test_the_budget_is_split_as_the_thesis_says() -> None:
    """Noise of budget epsilon / (2 m) on each entry: Lap(2 m / epsilon), of variance 8 m^2 / epsilon^2."""
    mechanism = nz.SampledAttributes("histogram", epsilon=1.0, domain=RECORD, report=2)
    assert [inner.epsilon for inner in mechanism.inner_mechanisms] == [0.5] * 3
    assert mechanism.moments([0, 0, 0]).variance == pytest.approx(np.full(10, 8 * 2**2), rel=1e-6)


@pytest.mark.parametrize("report", [1, 2])
def test_probabilities_add_up_over_all_reports(report: int) -> None:
    """By enumeration, and no report is likelier by more than exp(epsilon) for one record than for another."""
    domain = nz.Attributes((2, 3, 2))
    mechanism = nz.SampledAttributes("grr", epsilon=1.2, domain=domain, report=report)
    records = np.asarray(list(product(range(2), range(3), range(2))))
    reports = [
        [[j, value] for j, value in zip(subset, values, strict=True)]
        for subset in combinations(range(3), report)
        for values in product(*(range(domain.groups[j]) for j in subset))
    ]
    logs = np.stack([mechanism.log_prob(np.asarray(reports), record[None]) for record in records])
    assert np.exp(logs).sum(axis=1) == pytest.approx(np.ones(len(records)), rel=1e-12)
    worst = float((logs.max(axis=0) - logs.min(axis=0)).max())
    assert worst == pytest.approx(1.2, rel=1e-9)
    assert worst * (1 - 1e-12) <= nz.exact_epsilon(mechanism) <= 1.2


@pytest.mark.parametrize("inner", CATEGORIES)
def test_estimates_are_near_the_truth(inner: str) -> None:
    """All ten frequencies within a normal bound, once in a million runs of all not."""
    rows = people(20_000)
    mechanism = nz.SampledAttributes(inner, epsilon=3.0, domain=RECORD, report=2)
    reports = mechanism.privatize(rows, rng=5)
    halves = mechanism.aggregate(reports[:7000]) + mechanism.aggregate(reports[7000:])
    assert halves == mechanism.aggregate(reports)
    estimate = halves.estimate()
    truth = RECORD.expand(rows).mean(axis=0)
    level = float(ndtri(1 - 1e-6 / 2 / 70))
    assert np.all(np.abs(estimate.value - truth) < level * estimate.std_error)
    assert estimate.groups == (2, 5, 3)
    assert estimate.kind == "attributes"
    assert list(estimate.names or ()) == [
        *("smokes=0", "smokes=1", "region=0", "region=1", "region=2", "region=3", "region=4"),
        *("colour=red", "colour=green", "colour=blue"),
    ]
    # each user's frequencies of one attribute add up to one: so do estimates, but for noise in encodings
    if inner in ("grr", "subset-selection"):
        assert [part.sum() for part in np.split(estimate.value, [2, 7])] == pytest.approx([1, 1, 1], abs=1e-9)


def test_each_user_reports_distinct_attributes_uniformly() -> None:
    mechanism = nz.SampledAttributes("grr", epsilon=1.0, domain=nz.Attributes((2,) * 6), report=3)
    index = mechanism.privatize(np.zeros((20_000, 6), dtype=int), rng=1)[..., 0]
    assert np.all(np.diff(index, axis=1) > 0)
    counts = np.bincount(index.ravel(), minlength=6)
    spread = math.sqrt(20_000 * 0.25)
    assert np.all(np.abs(counts - 10_000) < ndtri(1 - 1e-6 / 12) * spread)


def test_json_and_files(tmp_path: Any) -> None:
    mechanism = nz.SampledAttributes(("grr", "oue", "grr"), epsilon=2.0, domain=RECORD, report=2)
    again = nz.from_spec(json.dumps(mechanism.spec()))
    assert again == mechanism
    assert again.domain.parts[2].labels == ("red", "green", "blue")
    reports = mechanism.privatize(people(500), rng=1)
    aggregate = mechanism.aggregate(reports)
    assert load(aggregate.to_json()) == aggregate
    write_reports(tmp_path / "r.parquet", mechanism, [reports[:200], reports[200:]])
    assert ReportFile.open(tmp_path / "r.parquet").aggregate() == aggregate


def test_report_is_chosen() -> None:
    """Against all numbers of attributes, by the worst variance of an average, with the spread of who reports."""
    domain = nz.Attributes((2, 4) * 5)
    chosen = nz.SampledAttributes("subset-selection", epsilon=9.0, domain=domain).report
    costs = []
    for report in range(1, 11):
        mechanism = nz.SampledAttributes("subset-selection", epsilon=9.0, domain=domain, report=report)
        variance = mechanism.moments(np.zeros(10)).variance
        means = [part.mean() + 1 / part.size for part in np.split(variance, np.cumsum(domain.groups)[:-1])]
        costs.append(np.mean(means) / report)
    assert costs[chosen - 1] == pytest.approx(min(costs))
    assert nz.SampledAttributes("grr", epsilon=0.5, domain=domain).report == 1


def test_few_reports_leave_attributes_empty() -> None:
    mechanism = nz.SampledAttributes("grr", epsilon=1.0, domain=nz.Attributes((2, 2, 2)), report=1)
    estimate = mechanism.aggregate(mechanism.privatize([[0, 1, 0]], rng=1)).estimate()
    assert np.isnan(estimate.value).sum() == 4
    assert np.all(np.isinf(estimate.std_error))


def test_foreign_reports_are_refused() -> None:
    mechanism = nz.SampledAttributes(("grr", "oue", "grr"), epsilon=2.0, domain=RECORD, report=2)
    good = mechanism.privatize(people(50), rng=1)
    for place, value in (((0, 0, 0), 9), ((0, 1, 0), good[0, 0, 0]), ((0, 0, 1), 77)):
        bad = good.copy()
        bad[place] = value
        with pytest.raises(ValueError, match="outside the support"):
            mechanism.aggregate(bad)
    hidden = good.copy()
    rows = np.flatnonzero(hidden[:, 0, 0] == 0)  # a report of one number in a row that has room for five
    hidden[rows[0], 0, 5] = 1
    with pytest.raises(ValueError, match="outside the support"):
        mechanism.aggregate(hidden)


BAD = [
    ({"inner": "laplace"}, "for another kind of values"),
    ({"inner": "nothing"}, "Unknown mechanism"),
    ({"inner": ("grr",)}, "one an attribute, got 1"),
    ({"report": 4}, "report <= 3"),
    ({"report": 0}, "1 <= report"),
    ({"epsilon": -1.0}, r"epsilon=-1\.0 > 0"),
    ({"domain": nz.Categorical(3)}, "to be Attributes"),
    ({"shares": (0.5, 0.5)}, "3 shares"),
    ({"shares": (0.5, 0.4, 0.2)}, "add up to 1"),
    ({"shares": (0.5, 0.3, 0.2), "report": 2}, "only whole records"),
]


@pytest.mark.parametrize(("options", "message"), BAD)
def test_bad_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        nz.SampledAttributes(**({"inner": "grr", "epsilon": 1.0, "domain": RECORD} | options))


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([[0, 5, 0]], r"code 0 \.\.\. 4 in attribute 1, got 5"),
        ([[0, -1, 0]], "attribute 1, got -1"),
        ([[0, 0.5, 0]], r"attribute 1, got 0\.5"),
        ([[0, math.nan, 0]], "finite values, got nan in attribute 1"),
        ([[0, 1]], r"shape \(\.\.\., 3\)"),
        (np.empty((0, 3)), "at least one value"),
        ([["a", "b", "c"]], "real numbers"),
    ],
)
def test_bad_records(rows: Any, message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        nz.SampledAttributes("grr", epsilon=1.0, domain=RECORD).privatize(rows, rng=1)


def test_clip_moves_numbers_and_no_categories() -> None:
    mechanism = nz.SampledAttributes(("duchi", "grr", "duchi"), epsilon=1.0, domain=MIXED)
    assert mechanism.privatize([[130.0, 1, 0.5]], clip=True, rng=1).shape[0] == 1
    with pytest.raises(ValueError, match="a number in"):
        mechanism.privatize([[130.0, 1, 0.5]], rng=1)
    with pytest.raises(ValueError, match="code of a category in attribute 1"):
        mechanism.privatize([[13.0, 9, 0.5]], clip=True, rng=1)


def test_hashing_is_kept_exact() -> None:
    """Seeds of 62 bits do not fit a real number."""
    with pytest.raises(ValueError, match="no 'olh' beside"):
        nz.SampledAttributes(("duchi", "olh", "duchi"), epsilon=1.0, domain=MIXED)


@pytest.mark.parametrize("epsilon", [1e-6, 1e3])
def test_extreme_budgets(epsilon: float) -> None:
    mechanism = nz.SampledAttributes("oue", epsilon=epsilon, domain=nz.Attributes((3,) * 200), report=2)
    assert nz.exact_epsilon(mechanism) <= epsilon
    assert mechanism.aggregate(mechanism.privatize(np.zeros((10, 200), dtype=int), rng=1)).users == 10


def test_attributes_domain() -> None:
    assert MIXED.groups == (1, 4, 1)
    assert MIXED.quantities == ("age", "region=0", "region=1", "region=2", "region=3", "score")
    assert MIXED.expand([[30.0, 2, 0.5]]).tolist() == [[30.0, 0, 0, 1, 0, 0.5]]
    assert MIXED.contains([[30.0, 2, 0.5], [30.0, 2.5, 0.5], [121.0, 2, 0.5]]).tolist() == [True, False, False]
    assert nz.domains.from_spec(json.loads(json.dumps(MIXED.spec()))) == MIXED
    for parts, message in (((), "at least one"), ((1,), "2 <= size"), (("a",), "got 'a'"), ((True,), "got True")):
        with pytest.raises((ValueError, TypeError), match=message):
            nz.Attributes(parts)
    with pytest.raises(ValueError, match="distinct names"):
        nz.Attributes((2, 3), names=("a", "a"))


def _cells(**options: Any) -> list[Any]:
    return list(dissect(nz.SampledAttributes(epsilon=2.0, **options)))


def test_cells_of_all_attributes_together_are_complete_only_where_all_are_told_apart() -> None:
    """Few cells: all of them. Laws with several nodes, reported together, or too many cells: the worst alone."""
    mixed = nz.Attributes((nz.Interval(), 3))
    assert [cells.complete for cells in _cells(inner=("duchi", "grr"), domain=mixed, report=2)] == [True]
    assert [cells.complete for cells in _cells(inner=("piecewise", "grr"), domain=mixed, report=1)] == [True]
    many = nz.Attributes((2,) * 16)
    assert math.comb(16, 8) * 2**8 > 1 << 14
    assert [cells.complete for cells in _cells(inner="grr", domain=many, report=8)] == [False]
    assert [cells.complete for cells in _cells(inner="grr", domain=many, report=1)] == [True]


def test_what_has_no_cells_or_several_kinds_of_them_has_none_together() -> None:
    levelled = nz.LevelledResponse.example(1.0)
    assert len(list(levelled.dissect())) > 1
    for inner in (object(), levelled):
        assert list(dissect(SimpleNamespace(distinct=[inner], inner_mechanisms=[inner]))) == []


@pytest.mark.parametrize("index", [[0, 2, 1], [1, 1, 2], [0, 2, 2], [2, 1, 0], [0, 1, 1]])
def test_one_user_s_attributes_come_once_and_in_order(index: list[int]) -> None:
    """A report that names an attribute twice would count twice; one such among sound ones is refused."""
    made = nz.SampledAttributes("grr", epsilon=1.0, domain=nz.Attributes((2, 2, 2, 2)), report=3)
    reports = made.privatize(np.zeros((5, 4), dtype=np.int64), rng=1)
    made.aggregate(reports)
    wrong = reports.copy()
    wrong[3, :, 0] = index
    with pytest.raises(ValueError, match=r"[Rr]eport|increasing"):
        made.aggregate(wrong)
    assert not made.support.contains(wrong)[3]
    assert made.support.contains(wrong)[[0, 1, 2, 4]].all()


@pytest.mark.parametrize("dims", [1, 2, 5])
def test_reports_are_put_in_order_of_their_attributes(dims: int) -> None:
    index = np.arange(7) * 3 % dims
    order, ends = by_attribute(index, dims)
    assert ends.tolist() == [0, *np.cumsum([np.sum(index == one) for one in range(dims)])]
    for one in range(dims):
        assert order[ends[one] : ends[one + 1]].tolist() == np.flatnonzero(index == one).tolist()
    assert by_attribute(np.zeros(0), dims)[1].tolist() == [0] * (dims + 1)
    for wrong in (dims, -1, 0.5, np.nan, 256.0):
        with pytest.raises(ValueError, match=f"attributes below {dims}"):
            by_attribute(np.asarray([0, wrong]), dims)
