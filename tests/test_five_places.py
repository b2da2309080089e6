"""A mechanism that nobody has heard of is found everywhere, because it is registered: no other file is touched.

Three toys, written from the base classes alone: for a number, for a category and for a vector.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pytest
from click.testing import CliRunner

import noisette as nz
from noisette.cli import verbs
from noisette.core import Capabilities, Moments, Readout, Tail, Tally
from noisette.domains._base import Described
from noisette.mechanisms._base import Points, ScalarMechanism
from noisette.mechanisms.build import fits, registered
from noisette.mechanisms.categorical._base import CategoricalMechanism
from noisette.mechanisms.vector._vectors import VectorMechanism
from noisette.prediction import plan

Floats = npt.NDArray[np.float64]


def _two_valued(p_high: Floats, span: Any) -> Moments:
    """Return the moments of a number that takes two values so far apart."""
    variance = span**2 * p_high * (1 - p_high)
    return Moments(np.zeros_like(variance), variance, span * variance * (p_high**2 + (1 - p_high) ** 2))


@dataclass(frozen=True)
class ToyNumber(ScalarMechanism):
    """One of two numbers, the higher one more often the higher the value is."""

    epsilon: float
    _: KW_ONLY
    domain: nz.Interval = nz.Interval()  # noqa: RUF009
    name: ClassVar[str] = "toy-number"
    citation: ClassVar[str] = "duchi2018minimax"

    @property
    def support(self) -> Points:
        middle = (self.domain.low + self.domain.high) / 2
        reach = self.domain.diameter / 2 / math.tanh(self.epsilon / 2) * (1 + 1e-12)
        return Points((middle - reach, middle + reach))

    def _p_high(self, x: Any) -> Floats:
        return (self._inputs(x) - self.support.low) / (self.support.high - self.support.low)

    def _perturb(self, x: Floats, rng: np.random.Generator) -> Floats:
        return np.where(rng.random(x.shape) < self._p_high(x), self.support.high, self.support.low)

    def moments(self, x: Any) -> Moments:
        return _two_valued(self._p_high(x), self.support.high - self.support.low)

    def log_prob(self, report: Any, x: Any) -> Floats:
        p_high = self._p_high(x)
        mass = np.where(np.asarray(report) == self.support.high, np.log(p_high), np.log1p(-p_high))
        return np.where(self.support.contains(np.asarray(report)), mass, -np.inf)

    def witnesses(self) -> tuple[Floats, Floats]:
        return np.asarray([self.domain.low, self.domain.high]), np.asarray(self.support.values)

    @property
    def readout(self) -> Readout:
        span = self.support.high - self.support.low
        return Readout(self.support.low, span, self.domain.low, self.domain.high, Tail(span**2 / 4, 0.0))


@dataclass(frozen=True)
class Numbers:
    """Whole numbers below a limit."""

    limit: int

    def contains(self, reports: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
        return (reports >= 0) & (reports < self.limit) & (reports == np.floor(reports))


@dataclass(frozen=True)
class ToyCategory(CategoricalMechanism):
    """The own category, or any other one."""

    epsilon: float
    domain: nz.Categorical
    name: ClassVar[str] = "toy-category"
    citation: ClassVar[str] = "kairouz2016discrete"

    @property
    def _chances(self) -> tuple[float, float]:
        other = 1 / (math.exp(self.epsilon * (1 - 1e-12)) + self.domain.size - 1)
        return 1 - (self.domain.size - 1) * other, other

    @property
    def support(self) -> Numbers:
        return Numbers(self.domain.size)

    def _fill(self, codes: Any, reports: npt.NDArray[Any], rng: np.random.Generator) -> None:
        moved = rng.integers(1, self.domain.size, codes.shape)
        kept = rng.random(codes.shape) < self._chances[0]
        reports[...] = np.where(kept, codes, (codes + moved) % self.domain.size)

    def moments(self, x: Any) -> Moments:
        own, other = self._chances
        supported = self._inputs(x)[..., None] == np.arange(self.domain.size)
        return _two_valued(np.where(supported, own, other), 1 / (own - other))

    def log_prob(self, report: Any, x: Any) -> Floats:
        own, other = np.log(self._chances)
        mass = np.where(np.asarray(report) == self._inputs(x), own, other)
        return np.where(self.support.contains(np.asarray(report)), mass, -np.inf)

    def witnesses(self) -> tuple[Any, Any]:
        return np.arange(2), np.arange(2)

    @property
    def readout(self) -> Readout:
        own, other = self._chances
        gap = own - other
        return Readout(-other / gap, 1 / gap, 0.0, 1.0, Tail(0.25 / gap**2, 0.0))

    def tally(self, reports: Any) -> Tally:
        flat = self._reports(reports)
        self.check_support(flat)
        total = np.bincount(flat, minlength=self.domain.size)
        return Tally(len(flat), np.full(self.domain.size, len(flat)), total, total)


@dataclass(frozen=True)
class Ends:
    """Vectors of two numbers."""

    low: Floats
    high: Floats

    def contains(self, reports: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
        return np.asarray(((reports == self.low) | (reports == self.high)).all(axis=-1))


@dataclass(frozen=True)
class ToyVector(VectorMechanism):
    """One of two numbers for each entry, with an even share of the budget."""

    epsilon: float
    dims: int = None  # type: ignore[assignment]  # taken from the domain
    _: KW_ONLY
    domain: nz.Box = None  # type: ignore[assignment]  # __post_init__ puts Box(dims)
    name: ClassVar[str] = "toy-vector"
    citation: ClassVar[str] = "duchi2018minimax"
    dtype: ClassVar[type[Any]] = np.float64

    def __post_init__(self) -> None:
        self._settle()

    @property
    def support(self) -> Ends:
        middle = (self.domain.lows + self.domain.highs) / 2
        half = (self.domain.highs - self.domain.lows) / 2
        reach = half / math.tanh(self.epsilon / self.dims / 2) * (1 + 1e-12)
        return Ends(middle - reach, middle + reach)

    def _p_high(self, x: Any) -> Floats:
        return (self._inputs(x) - self.support.low) / (self.support.high - self.support.low)

    def _perturb(self, rows: Floats, rng: np.random.Generator, reports: npt.NDArray[Any]) -> None:
        reports[...] = np.where(rng.random(rows.shape) < self._p_high(rows), self.support.high, self.support.low)

    def _codes(self, rows: npt.NDArray[Any]) -> Floats:
        return (rows == self.support.high).astype(float)

    def moments(self, x: Any) -> Moments:
        return _two_valued(self._p_high(x), self.support.high - self.support.low)

    def log_prob(self, report: Any, x: Any) -> Floats:
        p_high = self._p_high(x)
        mass = np.where(np.asarray(report) == self.support.high, np.log(p_high), np.log1p(-p_high)).sum(axis=-1)
        return np.where(self.support.contains(np.asarray(report)), mass, -np.inf)

    def witnesses(self) -> tuple[Floats, Floats]:
        return np.stack([self.domain.lows, self.domain.highs]), np.stack([self.support.low, self.support.high])

    @property
    def readout(self) -> Readout:
        span = self.support.high - self.support.low
        return Readout(self.support.low, span, self.domain.lows, self.domain.highs, Tail(span**2 / 4, 0.0))


@dataclass(frozen=True)
class ToyWithDelta(ToyNumber):
    """The first toy once more, with a promise that may fail."""

    _: KW_ONLY
    delta: float = 0.0
    name: ClassVar[str] = "toy-with-delta"
    capabilities: ClassVar[Capabilities] = Capabilities((nz.Interval,), delta="needed")

    @property
    def guarantee(self) -> nz.Guarantee:
        return nz.Guarantee(self.epsilon, self.delta)


@dataclass(frozen=True)
class ToyOfTwoDomains(ToyNumber):
    """The first toy for whole numbers as well."""

    _: KW_ONLY
    domain: Any = nz.Interval()  # noqa: RUF009
    name: ClassVar[str] = "toy-of-two-domains"
    capabilities: ClassVar[Capabilities] = Capabilities((nz.Interval, nz.Grid))


@dataclass(frozen=True)
class Months(Described):
    """The months, of a kind of their own."""

    kind: ClassVar[str] = "toy-months"
    size: ClassVar[int] = 12
    diameter: ClassVar[float] = 1.0

    def contains(self, x: Any) -> npt.NDArray[np.bool_]:
        return np.isin(x, np.arange(12))

    def clip(self, x: Any) -> npt.NDArray[Any]:
        return np.clip(x, 0, 11)


@dataclass(frozen=True)
class ToyMonth(ToyCategory):
    """The second toy for months alone."""

    domain: Any = Months()
    name: ClassVar[str] = "toy-month"
    capabilities: ClassVar[Capabilities] = Capabilities((Months,))

    @classmethod
    def example(cls, epsilon: float) -> ToyMonth:
        return cls(epsilon)


TOYS = (ToyNumber, ToyCategory, ToyVector)
NAMES = [cls.name for cls in TOYS]


@pytest.fixture(autouse=True)
def catalogue() -> Iterator[None]:
    with registered(*TOYS, ToyWithDelta, ToyOfTwoDomains, ToyMonth):
        yield


@pytest.mark.long
@pytest.mark.parametrize("cls", TOYS)
def test_the_toys_keep_the_contract(cls: Any) -> None:
    nz.testing.check_mechanism(cls.example(1.0), samples=20_000)


@pytest.mark.slow
def test_plan() -> None:
    found = {one.mechanism for one in plan(users=1000, epsilon=1.0).candidates}
    assert "toy-number" in found
    found = {one.mechanism for one in plan(users=1000, epsilon=1.0, domain=nz.Categorical(4)).candidates}
    assert "toy-category" in found
    found = {one.mechanism for one in plan(users=1000, epsilon=1.0, dims=3).candidates}
    assert {"toy-number", "toy-vector"} <= found


def test_a_domain_of_its_own() -> None:
    made = ToyMonth(1.0)
    assert nz.from_spec(json.loads(json.dumps(made.spec()))) == made
    assert nz.build("toy-month", Months(), epsilon=1.0) == made
    assert [one.name for one in fits(Months()) if one] == ["toy-month"]
    assert nz.exact_epsilon(made) == pytest.approx(1.0, abs=1e-9)
    assert nz.audit(made, samples=20_000, rng=7).verdict == "holds"
    with pytest.raises(TypeError, match="to be Months"):
        ToyMonth(1.0, nz.Categorical(12))


def test_a_delta_that_cannot_be_summed_says_why() -> None:
    with pytest.raises(ValueError, match=r"reports of toy-category are not listed by it\. .* a method dissect"):
        nz.exact_delta(ToyCategory(1.0, nz.Categorical(3)), 0.5)


def test_what_fits() -> None:
    for domain, name in ((nz.Interval(), "toy-number"), (nz.Categorical(3), "toy-category"), (nz.Box(2), "toy-vector")):
        assert name in {one.name for one in fits(domain) if one}


def _run(*arguments: Any) -> dict[str, Any]:
    result = CliRunner().invoke(verbs, [str(one) for one in arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    told: dict[str, Any] = json.loads(result.stdout)
    return told


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("toy-number", ("--columns", "a,b")),
        ("toy-of-two-domains", ("--columns", "a,b")),
        ("toy-category", ("--columns", "c", "--categories", "x,y,z")),
        ("toy-vector", ("--columns", "a,b")),
    ],
)
def test_command_line(name: str, options: tuple[str, ...], tmp_path: Path) -> None:
    table, output = tmp_path / "people.csv", tmp_path / "reports.parquet"
    table.write_text("a,b,c\n" + "0.5,-0.25,y\n" * 4000)
    told = _run("privatize", table, "-m", name, "-e", 6, *options, "--seed", 7, "-o", output, "--json")
    assert name in (told["mechanism"]["mechanism"], told["mechanism"].get("inner"))
    found = [row["value"] for row in _run("estimate", output, "--json")["dimensions"]]
    assert np.allclose(found, [0, 1, 0] if name == "toy-category" else [0.5, -0.25], atol=0.15)
    assert _run("audit", name, "-e", 1, "--samples", 20_000, "--json")["verdict"] == "holds"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("toy-number", ()),
        ("toy-category", ("--categories", "4")),
        ("toy-vector", ("--dims", 3)),
    ],
)
def test_plan_of_the_command_line(name: str, options: tuple[Any, ...]) -> None:
    told = _run("plan", "--users", 1000, "-e", 1, *options, "--json")
    assert name in {one["mechanism"] for one in told["candidates"]}


CAMPAIGN: dict[str, Any] = {"id": "toys", "title": "Toys", "epsilon": 8.0, "users": 500}
ASKED = {
    "toy-number": {"name": "toy", "range": [0, 10]},
    "toy-category": {"name": "toy", "categories": ["x", "y", "z"]},
    "toy-vector": {"name": "toy", "vector": 2, "range": [0, 10]},
}
WANTED = {"toy-number": [4.0], "toy-category": [0.0, 1.0, 0.0], "toy-vector": [4.0, 9.0]}
TOLD: dict[str, Any] = {"toy-number": 4.0, "toy-category": "y", "toy-vector": [4.0, 9.0]}


@pytest.mark.parametrize("name", NAMES)
def test_survey(name: str) -> None:
    asked = {
        "toy-number": nz.Number("toy", 0, 10),
        "toy-category": nz.Choice("toy", ["x", "y", "z"]),
        "toy-vector": nz.Vector("toy", 2, 0, 10),
    }[name]
    survey = nz.Survey([asked], epsilon=8.0, mechanism=name)
    told = survey.privatize([{"toy": TOLD[name]}] * 500, rng=7)
    found = survey.estimate(told).table()
    assert np.all(np.abs(found["value"] - WANTED[name]) <= 6 * found["std_error"] + 0.01)


@pytest.mark.needs("fastapi")
@pytest.mark.parametrize("name", NAMES)
def test_collector(name: str, tmp_path: Path) -> None:
    from tests.collector.helpers import accept, entry

    from noisette.collector import Store
    from noisette.survey.campaigns import Campaign

    campaign = Campaign.from_dict(CAMPAIGN | {"attributes": [ASKED[name]], "mechanism": name})
    campaign = Campaign.from_wire(campaign.to_wire())  # as a device reads it
    rng = np.random.default_rng(7)
    batch = [entry(campaign.privatize({"toy": TOLD[name]}, rng=rng)) for _ in range(500)]
    store = Store(f"sqlite:///{tmp_path / 'reports.db'}")
    store.register(campaign)
    assert accept(store, campaign, *batch).accepted == 500
    (estimate,) = store.aggregate(campaign, "once").estimates()
    store.close()
    assert np.all(np.abs(estimate.value - WANTED[name]) <= 6 * estimate.std_error + 0.01)


def test_listed() -> None:
    assert set(NAMES) <= {entry["name"] for entry in _run("mechanisms", "--json")["mechanisms"]}


def test_regression() -> None:
    from noisette.regression import Design, Training
    from noisette.regression.channels import candidates

    assert {"toy-number", "toy-vector"} <= set(candidates(3))
    rng = np.random.default_rng(0)
    rows = rng.uniform(-1, 1, (4000, 2))
    for name in ("toy-number", "toy-vector"):
        training = Training(Design((nz.Interval(), nz.Interval())), nz.Interval(-2, 2), 200.0, mechanism=name)
        model = training.run([(rows, rows[:, 0] - 0.5 * rows[:, 1])], rng=1)
        assert np.corrcoef(training.predict(model, rows), rows[:, 0] - 0.5 * rows[:, 1])[0, 1] > 0.9
    with pytest.raises(ValueError, match=r"toy-category does not take gradients.*it takes categories"):
        Training(Design((nz.Interval(),)), nz.Interval(), 1.0, mechanism="toy-category")


@pytest.mark.needs("flwr")
@pytest.mark.parametrize("name", ["toy-number", "toy-vector", "toy-with-delta"])
def test_federated_run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from flwr.supercore.task_identity import TaskIdentity
    from tests.federated.flower import DIMS, LocalGrid, model, moving_app

    from noisette.federated import Ranges
    from noisette.federated.client.mod import LocalPrivacy
    from noisette.federated.families import names
    from noisette.federated.server.strategy import PrivateFedAvg

    for own in ("_run_id", "_node_id", "_task_id"):
        monkeypatch.setattr(TaskIdentity, own, 1)
    assert set(NAMES) & set(names()) == {"toy-number", "toy-vector"}
    terms: dict[str, Any] = {"target_epsilon": 1e4, "target_delta": 1e-6, "clip": Ranges(0.0, 0.1), "enhance": "none"}
    strategy = PrivateFedAvg(name, **terms)
    app = moving_app([LocalPrivacy(epsilon=1e6, delta=1e-3, ledger=tmp_path / "budget.db")], step=0.1)
    result = strategy.start(LocalGrid(app, range(1, 5)), model(), num_rounds=2, timeout=600.0)
    weights = np.concatenate([array.numpy().reshape(-1) for array in result.arrays.values()])
    assert np.allclose(weights, np.full(DIMS, 0.2), atol=1e-3)  # the end of the range, where two numbers have no noise
    assert [entry["counted"] for entry in strategy.run.rounds] == [4, 4]
