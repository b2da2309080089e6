"""Yuan et al. 2025: the epsilon that holds, errors by formula and as measured, ours at the same truth."""

import math

import numpy as np
import pytest
from experiments.tldp import data, features, parameters, tables
from experiments.tldp.ways import DELTA, OURS, TLDP, published, tldp_epsilon, ways
from scipy.optimize import brentq
from scipy.special import ndtr

from experiments import tldp
from noisette.accounting import compose

pytestmark = pytest.mark.long

PAPER = tldp


def test_what_is_committed_has_both_epsilons(committed):
    """TLDP's claim is false for a record in every row, those of MVG and IDN hold, ours is as it says."""
    for name in ("type-1", "type-2", "type-3"):
        rows = committed[name]["rows"]
        assert committed[name]["columns"] == list(features.COLUMNS if name == "type-2" else data.COLUMNS)
        assert {"MNIST", "CIFAR-10"} < {row[0] for row in rows}
        for _, label, claimed, record, *_, score in rows:
            assert 0 <= score <= 1
            if label.startswith("TLDP"):
                assert record > 20 * claimed
            elif label in ("MVG", "IDN") and name != "type-3":
                assert record < claimed
            elif label == OURS[0] and name != "type-3":  # there it is composed over the epochs
                assert record == pytest.approx(claimed, rel=1e-6)
        by = {(row[0], row[1], row[2]): row for row in rows}
        for (place, label, claimed), row in by.items():
            if label == OURS[1]:
                assert row[3] == pytest.approx(by[place, TLDP[0], claimed][3], rel=1e-6)
    assert {row[0] for row in committed["type-3"]["rows"]} >= {"IMDB", "Darknet"}
    assert {"LLAGP", "DPHSGD"} < {row[1] for row in committed["type-3"]["rows"]}


def test_the_truth_about_tldp_is_that_of_the_spec(run, committed):
    for record in (run("guarantee"), committed["guarantee"]):
        one = next(row for row in record["rows"] if row[:2] == ["TLDP-L", 1.0])
        assert one[3] == pytest.approx(0.78, abs=0.005)
        assert one[4] == pytest.approx(1.689, abs=5e-4)
        assert one[5] == pytest.approx(1324, abs=0.5)
        assert all(row[4] is None for row in record["rows"] if row[0] == "TLDP-G")
        assert all(max(row[1], row[6]) < row[7] for row in record["rows"])
        assert all(row[1] < row[6] for row in record["rows"] if row[1] <= 64)


@pytest.mark.parametrize("entries", [1, 50, 784])
@pytest.mark.parametrize("epsilon", [0.5, 4.0])
def test_composition_agrees_with_that_of_the_library(epsilon, entries):
    other = compose(published(epsilon, "laplace", (1,)), times=entries, delta=DELTA).epsilon
    assert tldp_epsilon(epsilon, "laplace", entries) == pytest.approx(other, rel=5e-3)


def test_one_entry_with_gaussian_noise_by_an_independent_sum():
    """Masses of rounded normal noise by its distribution function, and the epsilon at which their excess is delta."""
    epsilon, sigma = 2.0, 256 / 2.0
    q = math.exp(-epsilon)
    kept = q / (sigma * math.sqrt(2 * math.pi) + q)
    reports = np.arange(-3000, 3256)

    def law(x):
        masses = (1 - kept) * (ndtr((reports - x + 0.5) / sigma) - ndtr((reports - x - 0.5) / sigma))
        masses[reports == x] += kept
        return masses

    first, second = law(0), law(255)
    found = brentq(lambda e: np.maximum(first - math.exp(e) * second, 0).sum() - DELTA, 0.1, 50)
    assert tldp_epsilon(epsilon, "gaussian", 1) == pytest.approx(found, rel=2e-3)
    sigma *= 1.02  # the twin: a little more noise is told apart
    first, second = law(0), law(255)
    other = brentq(lambda e: np.maximum(first - math.exp(e) * second, 0).sum() - DELTA, 0.1, 50)
    assert abs(other / found - 1) > 1e-2


def test_table_5_agrees_and_a_wrong_formula_does_not(run, committed):
    for record in (run("table-5"), committed["table-5"]):
        rows = record["rows"]
        assert all(row[5] for row in rows)
        columns = ["laplace", "gaussian", "mvg", "idn", "dphsgd", "tldp-laplace", "tldp-gaussian"]
        assert [row[0] for row in rows if row[1] == 1.0] == columns
        laplace = next(row for row in rows if row[:2] == ["laplace", 1.0])
        kept = next(row for row in rows if row[:2] == ["tldp-laplace", 1.0])
        assert laplace[3] / kept[3] == pytest.approx(784.8, abs=0.5)
        gaussian = next(row for row in rows if row[:2] == ["tldp-gaussian", 1.0])
        low, high = tables.band("gaussian", 0.0, 50 * 784)
        assert not low <= (gaussian[4] / gaussian[2]) ** 2 <= high  # eq. 23 as printed is no formula of this noise


@pytest.mark.parametrize("kind", ["laplace", "gaussian"])
def test_the_band_is_passed_seldom_and_tells_a_bias_apart(kind):
    rng, count, kept = np.random.default_rng(5), 40_000, 0.3
    low, high = tables.band(kind, kept, count)
    means = []
    for _ in range(300):
        noise = rng.laplace(size=count) / math.sqrt(2) if kind == "laplace" else rng.standard_normal(count)
        means.append(np.square(noise * (rng.random(count) >= kept)).mean() / (1 - kept))
    assert low < min(means) < 1 < max(means) < high
    centre = (np.asarray(means) - 1) / np.std(means)
    width = (high - low) / 2 / np.std(means)
    assert width == pytest.approx(4.89, rel=0.15)  # of normal quantiles at 1e-6
    assert np.abs(centre).max() < width
    assert not low <= 1.15 <= high


def test_errors_at_one_unit(run, committed):
    for record in (run("equal-unit"), committed["equal-unit"]):
        assert all(row[6] >= 1 and row[5] is not False for row in record["rows"])
        assert sum(row[5] is True for row in record["rows"]) >= 5
        best = [row for row in record["rows"] if row[6] == 1]
        assert all("retain" not in row[0] for row in best if row[2] <= 8)


def test_gaussian_noise_at_tldp_s_truth_is_less_where_epsilon_is_small():
    for claimed in (0.5, 1.0):
        by = {way.label: way for way in ways(claimed, (28, 28))}
        assert by[OURS[1]].record == pytest.approx(by["TLDP-L"].record, rel=1e-6)
        assert by[OURS[1]].std < 0.95 * by["TLDP-L"].std
        assert by[OURS[2]].element == pytest.approx(published(claimed, "laplace", (1,)).guarantee.epsilon)
        assert by[OURS[2]].std < by["TLDP-L"].std
        assert by["Gaussian"].record > claimed  # the variance of Theorem 2 does not hold


def test_noise_is_what_a_way_says():
    x = np.resize(np.linspace(0, 255, 33), (40, 28, 28))
    low, high = tables.band("laplace", 0.02, x.size)  # of what is drawn here Laplace noise varies most
    for way in ways(4.0, (28, 28), weights=tuple((0.5,) * 28 for _ in range(28))):
        found = float(np.square(way.release(x, 3) - x).mean())
        assert low <= found / way.std**2 <= high, way.label


@pytest.mark.needs_data
def test_features_of_mnist_and_parameters_of_darknet():
    """At a claimed epsilon TLDP seems better than what protects the record."""
    rows = features.rows_of("mnist", [features.scores(False, (16.0,), ("mnist", seed)) for seed in (1, 2)])
    scores = {row[1]: row[-1] for row in rows}
    assert all(row[-2] >= 0 for row in rows)
    assert scores["TLDP-L"] > scores["IDN"]
    assert scores[OURS[2]] > scores["MVG"]
    darknet = parameters.darknet(False)
    clean = parameters.federated(darknet, None)
    tldp_l = next(way for way in ways(1e3, (10, 42)) if way.label == "TLDP-L")
    mvg = next(way for way in ways(1e3, (10, 42)) if way.label == "MVG")
    assert parameters.federated(darknet, tldp_l) == pytest.approx(clean, abs=0.1)
    assert parameters.federated(darknet, mvg) < clean
    assert len(darknet.parts) == parameters.USERS
