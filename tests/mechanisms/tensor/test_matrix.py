"""MatrixMechanism against Kronecker products that are formed, another optimiser, and simulation."""

import json
import math
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from scipy.optimize import minimize
from scipy.special import chdtri, ndtri

import noisette as nz
from noisette import datasets
from noisette.guarantees import gaussian_delta, gaussian_mu
from noisette.mechanisms.tensor.matrix.mechanism import MatrixMechanism
from noisette.mechanisms.tensor.matrix.optimum import optimum
from noisette.mechanisms.tensor.matrix.strategies import Marginals
from noisette.mechanisms.tensor.matrix.workloads import Given, workload_of

FALSE_ALARM = 1e-6
Array = npt.NDArray[np.float64]


def matrix_of(entry: Any, size: int) -> Array:
    """Return a workload along one mode, written out row by row."""
    if not isinstance(entry, str):
        return np.asarray(entry, dtype=float)
    if entry == "range":
        rows = [[float(i <= k <= j) for k in range(size)] for i in range(size) for j in range(i, size)]
        return np.asarray(rows)
    return {"identity": np.eye(size), "total": np.ones((1, size)), "prefix": np.tri(size)}[entry]


def formed(entries: tuple[Any, ...], dims: tuple[int, ...]) -> Array:
    """Return the Kronecker product that the mechanism never forms."""
    result = np.ones((1, 1))
    for entry, size in zip(entries, dims, strict=True):
        result = np.kron(result, matrix_of(entry, size))
    return result


def marginals(dims: tuple[int, ...], order: int) -> Array:
    """Return all marginal tables as rows of zeros and ones."""
    rows = []
    for table in Marginals(dims, order).tables:
        for place in np.ndindex(*(dims[mode] for mode in table)):
            cells = np.ones(dims)
            for mode, value in zip(table, place, strict=True):
                shape = [1] * len(dims)
                shape[mode] = dims[mode]
                cells = cells * (np.arange(dims[mode]) == value).reshape(shape)
            rows.append(cells.reshape(-1))
    return np.asarray(rows)


def strategy_matrix(mechanism: MatrixMechanism) -> Array:
    """Return A as a matrix, a column for each cell."""
    units = np.eye(mechanism.size).reshape(-1, *mechanism.domain.dims)
    return mechanism._strategy.ask(units).reshape(mechanism.size, -1).T


def build(workload: Any, dims: tuple[int, ...], **options: Any) -> MatrixMechanism:
    return MatrixMechanism(1.0, 1e-6, domain=nz.TensorDomain(dims, 0, 1000), workload=workload, **options)


CASES = [
    ("prefix", (6,)),
    ("range", (5,)),
    ("total", (4,)),
    (np.random.default_rng(1).standard_normal((3, 5)), (5,)),
    (("prefix", "range"), (3, 4)),
    (("total", "identity", [[1, 1, 0], [0, 1, 1]]), (2, 3, 3)),
    ("marginal-0", (2, 3)),
    ("marginal-1", (2, 3, 2)),
    ("marginal-2", (2, 3, 2)),
]


def workload_matrix(workload: Any, dims: tuple[int, ...]) -> Array:
    if isinstance(workload, str) and workload.startswith("marginal-"):
        return marginals(dims, int(workload[-1]))
    if isinstance(workload, str):
        return formed((workload,) * len(dims), dims)
    return formed(workload if isinstance(workload, tuple) else (workload,), dims)


@pytest.mark.parametrize(("workload", "dims"), CASES)
def test_answers_and_errors_are_those_of_the_formed_matrices(workload: Any, dims: tuple[int, ...]) -> None:
    mechanism, w = build(workload, dims), workload_matrix(workload, dims)
    a = strategy_matrix(mechanism)
    inverse = np.linalg.pinv(a)
    np.testing.assert_allclose(w @ inverse @ a, w, atol=1e-9)  # the strategy supports the workload
    x = np.random.default_rng(2).integers(0, 100, dims)
    np.testing.assert_allclose(mechanism.true_answers(x), w @ x.reshape(-1))
    y = np.random.default_rng(3).standard_normal((2, *mechanism._strategy.shape))
    rebuilt = mechanism._strategy.reconstruct(y).reshape(2, -1)
    np.testing.assert_allclose(rebuilt, y.reshape(2, -1) @ inverse.T, atol=1e-9)
    variances = np.diagonal(w @ inverse @ inverse.T @ w.T)
    np.testing.assert_allclose(mechanism._strategy.answer_variances(), variances, rtol=1e-9)
    np.testing.assert_allclose(
        mechanism._strategy.cell_variances().reshape(-1), np.diagonal(inverse @ inverse.T), rtol=1e-9
    )
    assert mechanism._strategy.rank == np.linalg.matrix_rank(a)
    estimate = mechanism.answers(mechanism.privatize(x, rng=1))
    np.testing.assert_allclose(estimate.std_error, mechanism.sigma * np.sqrt(variances), rtol=1e-9)
    assert mechanism.error == pytest.approx(mechanism.sigma**2 * variances.sum(), rel=1e-9)


@pytest.mark.parametrize(("workload", "dims"), CASES)
@pytest.mark.parametrize("replaced", [False, True])
def test_change_by_one_record(workload: Any, dims: tuple[int, ...], replaced: bool) -> None:
    mechanism = build(workload, dims)
    a = strategy_matrix(mechanism)
    gram = a.T @ a
    lengths = np.diagonal(gram)
    expected = np.sqrt(np.max(np.add.outer(lengths, lengths) - 2 * gram if replaced else lengths))
    change, cells = mechanism._strategy.change(replaced=replaced)
    if not replaced or len(dims) == 1 or isinstance(workload, str) or np.ptp(lengths) < 1e-6:
        assert change == pytest.approx(expected, rel=1e-6, abs=1e-7)
    assert change >= expected * (1 - 1e-12)
    first, second = (int(np.ravel_multi_index(cell, dims)) for cell in cells)
    between = a[:, first] - a[:, second] if replaced else a[:, first]
    assert np.linalg.norm(between) <= change * (1 + 1e-12)


def general_optimum(w: Array) -> float:
    """Minimise tr(W'W X^-1) over correlation-like X = A'A, columns of A of length 1, by a general optimiser."""
    n = w.shape[1]
    gram = w.T @ w

    def error(flat: Array) -> float:
        a = flat.reshape(n, n)
        a = a / np.linalg.norm(a, axis=0)
        return float(np.trace(gram @ np.linalg.inv(a.T @ a)))

    rng = np.random.default_rng(0)
    starts = (np.eye(n) + 0.1 * rng.standard_normal((n, n)) for _ in range(3))
    return min(float(minimize(error, start.reshape(-1), method="BFGS", options={"gtol": 1e-9}).fun) for start in starts)


@pytest.mark.slow
@pytest.mark.parametrize("workload", ["prefix", "range", np.random.default_rng(4).random((6, 4))])
def test_no_strategy_is_better_says_another_optimiser(workload: Any) -> None:
    mechanism = build(workload, (4,))
    w = workload_matrix(workload, (4,))
    found = general_optimum(w)
    assert mechanism.gap < 1e-6
    assert mechanism._strategy.bound <= found * (1 + 1e-6)
    assert mechanism.error / mechanism.sigma**2 == pytest.approx(found, rel=2e-6)
    assert found < 0.99 * float(np.trace(w.T @ w)), "the identity is worse"


def test_the_bound_holds_for_any_strategy() -> None:
    rng, n = np.random.default_rng(6), 6
    w = rng.standard_normal((9, n))
    best = optimum(Given(w).root)
    assert best.bound <= best.error <= best.bound * (1 + 1e-6)
    for _ in range(200):
        a = rng.standard_normal((n, n)) + 2 * np.eye(n) * rng.random()
        a /= np.linalg.norm(a, axis=0).max()
        assert np.square(w @ np.linalg.inv(a)).sum() >= best.bound


def test_reference_number_of_the_specification() -> None:
    """Reference table: prefix sums of 64 cells have 282, the identity 2,080."""
    mechanism = build("prefix", (64,))
    assert round(mechanism.error / mechanism.sigma**2) == 282
    assert mechanism.gap < 1e-6
    plain = build("prefix", (64,), strategy="identity")
    assert plain.error / plain.sigma**2 == pytest.approx(2080)
    assert plain.gap == pytest.approx(2080 / 282.2014 - 1, rel=1e-5)
    assert mechanism.lower_bound <= mechanism.error <= mechanism.lower_bound * 1.001
    assert plain.error > 7 * plain.lower_bound


@pytest.mark.parametrize("seed", range(6))
def test_the_gap_is_certified_for_odd_workloads(seed: int) -> None:
    """Low rank, slack cells, unused cells, unlike scales: error and bound are recomputed from the strategy."""
    rng = np.random.default_rng(seed)
    w = {
        0: rng.standard_normal((3, 40)),
        1: rng.standard_normal((20, 40)) * np.exp(2 * rng.standard_normal((20, 1))),
        2: np.asarray([[1.0, 0.99]]),
        3: np.hstack([np.tri(10), np.zeros((10, 3))]),
        4: np.vander(np.linspace(0, 1, 12), 12),
        5: (rng.random((50, 30)) < 0.2) * 1.0,
    }[seed]
    found = optimum(Given(w).root)
    lengths = np.square(found.strategy).sum(axis=0)
    assert lengths.max() == pytest.approx(1, rel=1e-9)
    inverse = np.linalg.pinv(found.strategy)
    np.testing.assert_allclose(w @ inverse @ found.strategy, w, atol=1e-7 * np.abs(w).max())
    assert np.square(w @ inverse).sum() == pytest.approx(found.error, rel=1e-8)
    assert found.gap < 1e-6


def test_products_of_optima_are_optimal() -> None:
    """The optimum of the formed Kronecker product is no better than the product of the modes' optima."""
    mechanism = build(("prefix", "range"), (4, 3))
    whole = optimum(Given(formed(("prefix", "range"), (4, 3))).root)
    assert mechanism.error / mechanism.sigma**2 == pytest.approx(whole.error, rel=3e-6)
    assert mechanism._strategy.bound == pytest.approx(whole.bound, rel=3e-6)


@pytest.mark.parametrize(("dims", "order"), [((2, 3), 1), ((2, 3, 2), 2), ((4,), 0), ((3, 3), 2)])
def test_marginals_in_closed_form_are_optimal(dims: tuple[int, ...], order: int) -> None:
    strategy = Marginals(dims, order)
    found = optimum(Given(marginals(dims, order)).root)
    assert strategy.answer_variances().sum() == pytest.approx(found.error, rel=2e-6)
    assert strategy.bound == pytest.approx(found.bound, rel=2e-6)


@pytest.mark.parametrize("name", ["identity", "prefix", "range", "total"])
def test_named_workloads_are_the_written_ones(name: str) -> None:
    workload, written = workload_of(name, 5), matrix_of(name, 5)
    assert (workload.size, workload.rows) == (5, len(written))
    np.testing.assert_allclose(workload.root.T @ workload.root, written.T @ written, atol=1e-9)
    cells = np.random.default_rng(1).standard_normal((2, 5, 3))
    np.testing.assert_allclose(workload.answer(cells, 1), np.einsum("qc,ucd->uqd", written, cells), atol=1e-12)
    root = np.random.default_rng(2).standard_normal((5, 5))
    np.testing.assert_allclose(
        workload.variances(root @ root.T), np.diagonal(written @ root @ root.T @ written.T), atol=1e-9
    )


# -- privacy


@pytest.mark.slow
@pytest.mark.parametrize("relation", ["add-remove", "replace", "any-pair"])
@pytest.mark.parametrize(
    ("workload", "dims"), [("prefix", (6,)), (("prefix", "total"), (3, 2)), ("marginal-1", (3, 2))]
)
def test_guarantee(workload: Any, dims: tuple[int, ...], relation: str) -> None:
    """mu is what a record moves A x by over the noise; delta is that of normal noise, rounding paid for."""
    mechanism = build(workload, dims, relation=relation)
    guarantee = mechanism.guarantee
    assert (guarantee.epsilon, guarantee.delta, guarantee.unit) == (1.0, 1e-6, "record")
    model = "local" if relation == "any-pair" else "central"
    assert (guarantee.model, guarantee.relation) == (model, relation)
    a = strategy_matrix(mechanism)
    lengths = np.square(a).sum(axis=0)
    moved = np.sqrt((np.add.outer(lengths, lengths) - 2 * a.T @ a).max() if relation != "add-remove" else lengths.max())
    assert moved / mechanism.sigma <= mechanism.mu
    assert mechanism.mu == pytest.approx(gaussian_mu(1.0, 1e-6), rel=1e-9)
    assert moved / mechanism.sigma == pytest.approx(mechanism.mu, rel=1e-4)
    exact = nz.exact_epsilon(mechanism, delta=1e-6)
    assert 0.999 < exact <= 1.0
    assert nz.exact_epsilon(mechanism) == math.inf
    assert nz.exact_delta(mechanism, 0.5) == pytest.approx(
        float(gaussian_delta(moved / mechanism.sigma, 0.5)), rel=1e-4
    )
    wrong = float(gaussian_delta(1.02 * moved / mechanism.sigma, 0.5))
    assert abs(nz.exact_delta(mechanism, 0.5) / wrong - 1) > 1e-3, "the twin: two per cent more would show"
    replaced = 2 if relation == "add-remove" else 1  # a record goes and another comes
    assert nz.accounting.event(mechanism).noise_multiplier == pytest.approx(1 / (replaced * mechanism.mu))


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [1e-6, 1e-2, 1.0, 30.0, 1e3])
@pytest.mark.parametrize("dims", [(1,), (8,)])
def test_extreme_budgets(epsilon: float, dims: tuple[int, ...]) -> None:
    mechanism = MatrixMechanism(epsilon, 1e-6, domain=nz.TensorDomain(dims, 0, 1000), workload="prefix")
    assert nz.exact_epsilon(mechanism, delta=1e-6) <= epsilon * (1 + 1e-6)
    assert mechanism.sigma * gaussian_mu(epsilon, 1e-6) == pytest.approx(1, rel=1e-3)
    assert np.isfinite(mechanism.privatize(np.zeros(dims), rng=1)).all()


@pytest.mark.slow
def test_the_black_box_finds_nothing_and_half_the_noise_is_found() -> None:
    domain = nz.TensorDomain((3,), 0, 10)
    mechanism = MatrixMechanism(2.0, 1e-3, domain=domain, workload="range")
    found = nz.audit(mechanism, samples=40_000, confidence=1 - FALSE_ALARM, rng=1)
    assert found.verdict == "holds"
    assert 0.8 * mechanism.mu < found.mu_lower_bound < mechanism.mu
    louder = MatrixMechanism(6.0, 1e-3, domain=domain, workload="range")
    assert nz.audit(louder, claimed=2.0, samples=40_000, confidence=1 - FALSE_ALARM, rng=1).verdict == "violated"


@pytest.mark.long
@pytest.mark.parametrize(
    "mechanism",
    [
        build("range", (3,), relation="replace"),
        build(("prefix", "identity"), (2, 2)),
        MatrixMechanism(2.0, 1e-5, domain=nz.TensorDomain((3,), 0, 1), workload="prefix", relation="any-pair"),
    ],
    ids=["replace", "two-modes", "local"],
)
def test_contract(mechanism: MatrixMechanism) -> None:
    nz.testing.check_mechanism(mechanism, samples=20_000)


@pytest.mark.parametrize(
    ("workload", "dims", "high"), [("prefix", (40,), 1e8), ("range", (5, 4), 1e4), ("marginal-1", (4, 5), 1e4)]
)
def test_float64_errs_by_less_than_half_a_step(workload: Any, dims: tuple[int, ...], high: float) -> None:
    """Against sums of fractions; and a record more moves the rounded sums by no more than is paid for."""
    mechanism = MatrixMechanism(1.0, 1e-6, domain=nz.TensorDomain(dims, 0, high), workload=workload)
    step, noise = mechanism._lattice
    rng = np.random.default_rng(3)
    x = rng.integers(0, int(high), mechanism.size) + rng.integers(0, 2, mechanism.size) / 2
    x[-1] = high - 1
    whole = np.floor(x / mechanism._place + 0.5) * mechanism._place
    asked = mechanism._strategy.ask(whole.reshape(dims)).reshape(-1)
    assert len(strategy_matrix(mechanism)) == asked.size
    for row, found in zip(strategy_matrix(mechanism), asked.tolist(), strict=True):
        exact = sum(Fraction(float(a)) * Fraction(float(b)) for a, b in zip(row, whole, strict=True))
        if len(dims) == 1:  # else the matrix that is formed is itself rounded
            assert abs(exact - Fraction(found)) <= Fraction(mechanism._strategy.slip(high))
    assert mechanism._strategy.slip(high) <= step / 2
    paid = mechanism.mu * noise
    for cell in range(mechanism.size):
        more = x.copy()
        more[cell] += 1 if x[cell] < high - 1 else -1
        moved = mechanism._rounded(more[None]) - mechanism._rounded(x[None])
        assert np.linalg.norm(moved) <= paid


# -- error as predicted


@pytest.mark.slow
@pytest.mark.parametrize(
    ("workload", "dims", "options"),
    [
        ("prefix", (30,), {}),
        ("range", (12,), {"relation": "replace"}),
        (("prefix", "range"), (6, 5), {}),
        ("marginal-2", (4, 3, 2), {}),
        (np.random.default_rng(3).random((4, 9)), (9,), {}),
        ("prefix", (16,), {"strategy": "identity"}),
    ],
)
def test_errors_are_as_predicted(workload: Any, dims: tuple[int, ...], options: dict[str, Any]) -> None:
    mechanism = build(workload, dims, **options)
    rng, runs = np.random.default_rng(8), 1500
    x = rng.integers(0, 1000, dims)
    reports = mechanism.privatize(np.broadcast_to(x, (runs, *dims)).copy(), rng=9)
    errors = mechanism._strategy.answer(reports) - mechanism.true_answers(x)
    stated = mechanism.answers(reports[0]).std_error
    scores = errors / stated
    tests = 4 * scores.shape[1]
    assert np.all(np.abs(scores.mean(axis=0)) * math.sqrt(runs) < ndtri(1 - FALSE_ALARM / tests))
    squares = np.square(scores).sum(axis=0)
    low, high = chdtri(runs, 1 - FALSE_ALARM / tests), chdtri(runs, FALSE_ALARM / tests)
    assert np.all((low < squares) & (squares < high))
    assert np.any((low > 1.3 * squares) | (1.3 * squares > high)), "the twin: errors 14 per cent larger are noticed"
    averaged = mechanism.answers(reports)
    np.testing.assert_allclose(averaged.std_error, stated / math.sqrt(runs), rtol=1e-12)
    np.testing.assert_allclose(averaged.value, mechanism._strategy.answer(reports.mean(axis=0)), rtol=1e-9, atol=1e-9)
    low_end, high_end = averaged.interval(1 - FALSE_ALARM / tests)
    assert np.all((low_end < mechanism.true_answers(x)) & (mechanism.true_answers(x) < high_end))


@pytest.mark.slow
def test_local_users_add_up_to_frequencies() -> None:
    domain = nz.TensorDomain((8,), 0, 1)
    mechanism = MatrixMechanism(2.0, 1e-6, domain=domain, workload="prefix", relation="any-pair")
    cells = np.random.default_rng(1).integers(0, 8, 20_000)
    estimate = mechanism.answers(mechanism.privatize(np.eye(8)[cells], rng=2))
    truth = np.cumsum(np.bincount(cells, minlength=8)) / cells.size
    assert np.all(np.abs(estimate.value - truth) < ndtri(1 - FALSE_ALARM / 16) * estimate.std_error)
    with pytest.raises(ValueError, match=r"to be 1 in one cell and 0 elsewhere.*sums to 2"):
        mechanism.privatize([1.0, 1, 0, 0, 0, 0, 0, 0])


@pytest.mark.needs_data
def test_real_histograms() -> None:
    """DPBench's incomes: errors as predicted, and what the best strategy is worth."""
    histograms = datasets.histograms()
    income = np.asarray(histograms["d1_INCOME"]).reshape(128, -1).sum(axis=1)
    domain = nz.TensorDomain((128,), 0, 1e8)  # a public bound, far above the largest count
    best, plain = (MatrixMechanism(1.0, 1e-6, domain=domain, workload="range", strategy=s) for s in (None, "identity"))
    assert plain.error / best.error > 3
    estimate = best.answers(best.privatize(income, rng=3))
    scores = (estimate.value - best.true_answers(income)) / estimate.std_error
    assert np.abs(scores).max() < ndtri(1 - FALSE_ALARM / 2 / scores.size)


# -- input


def test_specs_round_trip() -> None:
    for mechanism in (
        build("prefix", (5,)),
        build(("total", [[1.0, 2.0], [0.0, 1.0]]), (3, 2)),
        build([[1, 1, 0], [0, 1, 1]], (3,), relation="replace"),
        build("marginal-1", (2, 2)),
        build("range", (3,), strategy=np.eye(3)),
    ):
        again = nz.from_spec(json.dumps(mechanism.spec()))
        assert again == mechanism
        assert hash(again) == hash(mechanism)
        assert again.spec() == mechanism.spec()
        x = np.zeros(mechanism.domain.dims)
        assert np.array_equal(again.privatize(x, rng=1), mechanism.privatize(x, rng=1))
    assert build("prefix", (5,)) != build("range", (5,))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"workload": "suffix"}, r"Expected workload\[0\]='suffix' to be one of"),
        (
            {"workload": [[1.0, 2.0]]},
            r"Expected workload\[0\] to be a matrix with 3 columns, one a cell, got shape \(1, 2\)",
        ),
        ({"workload": np.zeros((2, 3))}, "to ask for something"),
        ({"workload": np.full((2, 3), np.nan)}, "Expected finite numbers in"),
        ({"workload": ("prefix", "prefix")}, r"for the 1 modes of \(3,\), got 2"),
        ({"workload": "marginal-2"}, "marginal-0 to marginal-1"),
        ({"workload": "marginal-1", "strategy": "identity"}, "the best one is known"),
        (
            {"workload": "prefix", "strategy": [[1, 1, 1]]},
            r"strategy\[0\] to support the workload: it is singular, of rank 1",
        ),
        ({"workload": "prefix", "strategy": np.diag([1.0, 1.0, 0.0])}, "singular, of rank 2"),
        ({"relation": "swap"}, "Expected relation='swap' to be one of"),
        ({"delta": 0.0}, r"Expected delta=0\.0 > 0: Gaussian noise has no pure guarantee"),
        ({"epsilon": 0.0}, r"Expected epsilon=0\.0 > 0"),
        ({"relation": "replace", "domain": nz.TensorDomain((1,), 0, 9)}, "at least two cells"),
        ({"relation": "replace", "workload": "total"}, "no answer changes when a record is replaced"),
        ({"relation": "any-pair", "domain": nz.TensorDomain((3,), 0, 0.5)}, "holds 0 and 1"),
        ({"domain": nz.TensorDomain((3,), 0, 1e15)}, r"Expected entries up to 1e\+15 to be below 2\^27"),
    ],
)
def test_bad_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        MatrixMechanism(**({"epsilon": 1.0, "domain": nz.TensorDomain((3,), 0, 9)} | options))


def test_bad_kinds_are_refused() -> None:
    with pytest.raises(TypeError, match="to be one of"):
        build(3, (3,))
    with pytest.raises(TypeError, match="to be a TensorDomain"):
        MatrixMechanism(1.0, domain=nz.Box(3))


def test_bad_data_are_refused() -> None:
    mechanism = build("prefix", (3,))
    with pytest.raises(ValueError, match=r"Expected entries in \[0, 1000\], got -1\.0 at \(1,\)"):
        mechanism.privatize([0, -1.0, 0])
    with pytest.raises(ValueError, match=r"Expected x of shape \(\.\.\., 3\), got \(4,\)"):
        mechanism.privatize(np.zeros(4))
    with pytest.raises(ValueError, match="outside the support"):
        mechanism.answers([1e12, 0, 0])
    with pytest.raises(ValueError, match="outside the support"):
        mechanism.answers([math.nan, 0, 0])
    assert mechanism.log_prob(np.full(3, math.nan), np.zeros(3)) == -math.inf


def test_torch_in_torch_out() -> None:
    torch = pytest.importorskip("torch")
    mechanism = build(("prefix", "total"), (3, 2))
    x = torch.arange(6.0).reshape(3, 2)
    report = mechanism.privatize(x, rng=7)
    assert isinstance(report, torch.Tensor)
    assert (report.dtype, report.shape) == (torch.float32, (3, 2))
    np.testing.assert_allclose(report.numpy(), mechanism.privatize(x.numpy(), rng=7), rtol=1e-5)
    assert mechanism.answers(report).value.shape == (3,)


def test_a_large_table_in_many_modes() -> None:
    """Nothing of the size of the product of a formed matrix is held: 64^3 cells, 64^3 prefix queries."""
    mechanism = MatrixMechanism(1.0, 1e-6, domain=nz.TensorDomain((64, 64, 64), 0, 100), workload="prefix")
    assert mechanism.error / mechanism.sigma**2 == pytest.approx(282.2014**3, rel=1e-6)
    assert mechanism.gap < 1e-6
    report = mechanism.privatize(np.ones((64, 64, 64)), rng=1)
    last = float(mechanism.answers(report).value[-1])
    assert abs(last - 64**3) < ndtri(1 - FALSE_ALARM / 2) * mechanism.answers(report).std_error[-1]


@pytest.mark.parametrize("order", [2, 3, 5])
def test_the_gap_of_a_whole_product_is_certified(order: int) -> None:
    """Error and bound of the product, formed and inverted outright where it is small; the twin has a gap a mode.

    Optima that are each within 1e-6 are together within five millionths only.
    """
    names = ("prefix", "range", "prefix", "identity", "range")[:order]
    mechanism = build(names, (8, 6, 5, 3, 4)[:order])
    assert mechanism.gap < 1e-6
    workloads = [workload_of(name, size) for name, size in zip(names, mechanism.domain.dims, strict=True)]
    if order == 2:
        root, strategy = np.kron(*(w.root for w in workloads)), np.kron(*mechanism._strategy.matrices)
        strategy = strategy / np.sqrt(np.square(strategy).sum(axis=0).max())
        error = np.trace(root.T @ root @ np.linalg.inv(strategy.T @ strategy))
        assert error / optimum(root, gap=1e-9).error - 1 < 1e-6
        assert error / mechanism._strategy.bound - 1 == pytest.approx(mechanism.gap, abs=1e-9)
    loose = [optimum(w.root, gap=4e-6) for w in workloads]
    assert math.prod(one.error for one in loose) / math.prod(one.bound for one in loose) - 1 > 1e-6


def test_more_queries_than_fit_in_memory_have_a_total() -> None:
    names = ("prefix", "range", "identity", "prefix", "range")
    mechanism = build(names, (32,) * 5)
    assert mechanism.gap < 1e-6
    parts = [build((name,), (32,)) for name in names]
    totals = math.prod(part.error / part.sigma**2 for part in parts)
    assert mechanism.error / mechanism.sigma**2 == pytest.approx(totals, rel=5e-6)


@pytest.mark.long
def test_a_thousand_cells() -> None:
    """How long that takes is measured in benchmarks/sizes.py."""
    found = optimum(workload_of("prefix", 1024).root)
    assert found.gap < 1e-6
    assert found.error == pytest.approx(8944.33, rel=1e-5)


@pytest.mark.parametrize("cells", [1, 2, 5])
def test_a_workload_says_how_many_cells_and_queries_it_has(cells: int) -> None:
    for entry, rows in (("identity", cells), ("total", 1), ("prefix", cells), ("range", cells * (cells + 1) // 2)):
        one = workload_of(entry, cells)
        assert (one.size, one.rows) == (cells, rows)
    given = workload_of(np.ones((3, cells)), cells)
    assert (given.size, given.rows) == (cells, 3)
