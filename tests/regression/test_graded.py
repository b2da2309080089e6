"""Graded gradients: the level is the attribute's, the matrix is exact, the mean unbiased."""

from typing import Any

import numpy as np
import pytest
from scipy.special import ndtri

from noisette import Categorical, Interval, LevelledResponse
from noisette.mechanisms.graded.chosen import ChosenLevelLaplace, ChosenLevelOptimal
from noisette.regression import Design, Model, Training
from noisette.regression.channels import FIVE_LEVELS, EntryReports, OneEntry

GRADED = ("levelled", "graded-laplace", "optimal-graded")
DESIGN = Design((Interval(0, 10), Categorical(3)))
TWO = ((-1.0, 0.0, 2.0), (0.0, 1.0, 1.0))


def _training(mechanism: Any, epsilon: float = 2.0, **options: Any) -> Training:
    return Training(DESIGN, Interval(), epsilon, mechanism=mechanism, levels=TWO, **options)


def _score(training: Training, mean: Any) -> float:
    """Return the largest z-score of the mean reported gradient of two users, who report again and again."""
    rows, target = np.asarray([[9.0, 2.0], [1.0, 0.0]]), np.asarray([-0.5, 0.25])
    model = Model(*(np.full(DESIGN.width, 0.3) for _ in range(2)))
    exact = training.gradients(model, DESIGN.encode(rows), target).mean(axis=0)
    means = []
    for seed in range(120):
        reports = training.report(model, np.repeat(rows, 500, axis=0), np.repeat(target, 500), rng=seed)
        means.append(mean(training.channel.gather(reports)))
    error = np.std(means, axis=0, ddof=1) / np.sqrt(len(means))
    return float(np.abs((np.mean(means, axis=0) - exact) / error).max())


@pytest.mark.slow
@pytest.mark.parametrize("mechanism", GRADED)
def test_reported_gradients_are_unbiased(mechanism: str) -> None:
    """False alarm 1e-6: the largest of five z-scores, nearly normal over 120 means of 1,000 reports."""
    training = _training(mechanism)
    limit = float(-ndtri(1e-6 / 2 / DESIGN.width)) * 1.1  # Student's t with 119 degrees is wider by less than a tenth
    assert _score(training, training.channel.mean) < limit


@pytest.mark.slow
def test_a_forgotten_sampling_rate_is_seen() -> None:
    training = _training("levelled")
    assert _score(training, lambda gathered: training.channel.mean(gathered) / DESIGN.width) > 6


@pytest.mark.parametrize("mechanism", GRADED)
def test_the_total_holds_and_the_record_is_the_unit(mechanism: str) -> None:
    guarantee = _training(mechanism, 1.5).guarantee
    assert guarantee.epsilon <= 1.5 * (1 + 1e-9)
    assert (guarantee.unit, guarantee.model) == ("record", "local")
    assert guarantee.delta == (1e-6 if mechanism == "graded-laplace" else 0.0)
    assert guarantee.matrix is not None
    assert max(map(max, guarantee.matrix)) == guarantee.epsilon


@pytest.mark.slow
def test_optimal_keeps_the_matrix_of_levelled_and_is_less_noisy() -> None:
    for epsilon in (0.5, 2.0, 6.0):
        published, ours = _training("levelled", epsilon), _training("optimal-graded", epsilon)
        assert np.all(np.asarray(ours.guarantee.matrix) <= np.asarray(published.guarantee.matrix))
        assert ours.channel.noise < 0.9 * published.channel.noise


def _matrix(mechanism: Any, reports: Any, masses: Any) -> Any:
    """Return the largest log ratio between levels over a grid of values, by enumeration of all reports."""
    values = np.linspace(-1, 1, 21)
    size = len(mechanism.edges) - 1
    logs = np.log([[masses(mechanism, reports, x, t) for x in values] for t in range(size)])
    return [[np.max(logs[i][:, None] - logs[j][None]) for j in range(size)] for i in range(size)]


def test_matrix_of_levelled_by_enumeration() -> None:
    mechanism: Any = _training("levelled").channel.mechanism

    def masses(m: Any, reports: Any, x: float, t: int) -> Any:
        share = np.asarray([np.exp(m.epsilons[t]) if r == t else 1.0 for r, _ in reports])
        share /= np.exp(m.epsilons[t]) + len(m.epsilons) - 1
        lean = [np.tanh(m.epsilons[r] / 2) * s for r, s in reports]
        return share * (1 + np.asarray(lean) * x) / 2

    found = _matrix(mechanism, [(r, s) for r in (0, 1) for s in (-1, 1)], masses)
    assert np.asarray(mechanism.guarantee.matrix) == pytest.approx(np.asarray(found), rel=1e-9)


def test_matrix_of_optimal_by_enumeration() -> None:
    mechanism: Any = _training("optimal-graded").channel.mechanism
    solved = mechanism._solved

    def masses(m: Any, reports: Any, x: float, t: int) -> Any:
        return solved.chances(*m._place(np.asarray([[x, t]])))[0]

    found = _matrix(mechanism, None, masses)
    assert np.asarray(mechanism.guarantee.matrix) == pytest.approx(np.asarray(found), rel=1e-9)


def test_laplace_of_chosen_levels_costs_the_whole_interval() -> None:
    """Any value may have any level: the exact delta by summation of both laws on the lattice, and at less epsilon."""
    mechanism = ChosenLevelLaplace((-1.0, 0.0, 1.0), (1.1, 1.0), delta=1e-4)
    steps, rates = mechanism._steps, [noise.rate for noise in mechanism._noises]
    scale = 1 << 16  # every so many steps; the laws are smooth there
    places = np.arange(-60 * steps, 60 * steps, scale, dtype=float)

    def delta(i: int, j: int, epsilon: float) -> float:
        own, other = (
            np.tanh(rate / 2) * np.exp(-rate * np.abs(places - centre))
            for rate, centre in ((rates[i], 0), (rates[j], steps))
        )
        return float(np.maximum(own - np.exp(epsilon) * other, 0).sum() * scale)

    matrix = mechanism.guarantee.matrix
    assert matrix is not None
    for i in (0, 1):
        for j in (0, 1):
            assert delta(i, j, matrix[i][j]) == pytest.approx(1e-4, rel=0.05)
            assert delta(i, j, 0.99 * matrix[i][j]) > 1.1e-4


def test_levels_are_the_attribute_s_not_the_gradient_s() -> None:
    """At budgets so large that levels are reported truly, they tell where the attribute lies."""
    truthful = LevelledResponse((-1.0, 0.0, 1.0), (60.0, 60.0), personalised=True)
    training = Training(Design((Interval(0, 10),)), Interval(), 60.0, mechanism=truthful, batch=10)
    rows, target = np.asarray([[9.0], [1.0]]), np.asarray([-0.5, 0.5])
    reports = training.report(training.start(), np.repeat(rows, 100, axis=0), np.repeat(target, 100), rng=1)
    first = np.repeat([True, False], 100)
    of_attribute = reports.indices == 1
    assert np.all(reports.reports[first & of_attribute, 0] == 1)
    assert np.all(reports.reports[~first & of_attribute, 0] == 0)
    assert np.all(reports.reports[first & ~of_attribute, 0] == 0)  # the constant's is the target's
    assert np.all(reports.reports[~first & ~of_attribute, 0] == 1)


@pytest.mark.slow
@pytest.mark.parametrize("mechanism", GRADED)
def test_learns(mechanism: str) -> None:
    rng = np.random.default_rng(5)
    rows = rng.uniform(-1, 1, (60_000, 1))
    training = Training(Design((Interval(),)), Interval(), 8.0, mechanism=mechanism)
    model = training.run([(rows, 0.6 * rows[:, 0])], rng=1)
    assert model.average == pytest.approx([0, 0.6], abs=0.15)


def test_sums_merge_in_any_order() -> None:
    training = _training("levelled")
    rows, target = np.asarray([[9.0, 2.0]] * 50), np.zeros(50)
    parts = [training.channel.gather(training.report(training.start(), rows, target, rng=seed)) for seed in range(3)]
    one = parts[0].merge(parts[1]).merge(parts[2])
    two = parts[2].merge(parts[0].merge(parts[1]))
    assert one.users == two.users == 150
    assert training.channel.mean(one).tolist() == training.channel.mean(two).tolist()


@pytest.mark.parametrize("place", [0, 1, 2])
@pytest.mark.parametrize("strange", [-1, 5])
def test_one_report_of_an_entry_that_there_is_not_is_refused(place: int, strange: int) -> None:
    channel: Any = _training("levelled").channel
    said = np.asarray([[0, 1]] * 3)
    entries = np.asarray([0, 4, 2])  # both ends are entries
    gathered = channel.gather(EntryReports(entries, said))
    assert (gathered.users, gathered.count.tolist()) == (3, [1, 0, 1, 0, 1])
    entries[place] = strange
    with pytest.raises(ValueError, match="entries from 0 to 4"):
        channel.gather(EntryReports(entries, said))


def test_what_is_no_report_or_of_nobody_is_refused() -> None:
    channel: Any = _training("levelled").channel
    for wrong in (EntryReports(np.zeros(0, int), np.zeros((0, 2), int)), np.asarray([[0, 1]])):
        with pytest.raises(ValueError, match="EntryReports of at least one user"):
            channel.gather(wrong)


def test_a_gradient_beyond_its_bound_is_reported_as_one_at_it() -> None:
    """Whatever a device computes: the mechanism sees nothing outside of [-1, 1], and the middle as it is."""
    channel, seen = _training("levelled").channel, []

    class Mechanism:
        def privatize(self, rows: Any, rng: Any) -> Any:
            seen.append(rows)
            return rows

    own = OneEntry(Mechanism(), channel.levels, 3, 0.5)  # type: ignore[attr-defined]
    vectors = np.repeat([[-9.0, 0.25, 1e300]], 60, axis=0)
    made = own.privatize(vectors, np.repeat([[-1.0, 0.5, 1.0]], 60, axis=0), rng=1)
    assert set(made.indices.tolist()) == {0, 1, 2}
    assert seen[0][:, 0].tolist() == np.asarray([-1.0, 0.5, 1.0])[made.indices].tolist()
    assert seen[0][:, 1].tolist() == np.asarray([0, 1, 1])[made.indices].tolist()


@pytest.mark.slow
def test_bad_levels_and_reports() -> None:
    with pytest.raises(ValueError, match="overlap"):
        Training(DESIGN, Interval(), 1.0, mechanism="levelled", levels=((-1, 0.5, 1), (0, 1, 2)))
    with pytest.raises(ValueError, match="leave a gap"):
        Training(DESIGN, Interval(), 1.0, mechanism="levelled", levels=((-1, -0.5, 1), (0, 1, 2)))
    with pytest.raises(ValueError, match="from -1 to 1"):
        Training(DESIGN, Interval(), 1.0, mechanism="levelled", levels=((0, 0.5, 1), (0.5, 1, 2)))
    with pytest.raises(ValueError, match=r"at least 0\.01 between levels"):
        Training(DESIGN, Interval(), 0.01, mechanism="optimal-graded")
    channel: OneEntry = _training("levelled").channel
    with pytest.raises(ValueError, match="entries from 0 to 4"):
        channel.gather(EntryReports(np.asarray([5]), np.asarray([[0, 1]])))
    with pytest.raises(ValueError, match="outside the support"):
        channel.gather(EntryReports(np.asarray([1]), np.asarray([[7, 1]])))
    with pytest.raises(ValueError, match="outside the support"):
        ChosenLevelOptimal((-1.0, 1.0), ((1.0,),)).tally([1e9])


@pytest.mark.slow
def test_five_levels_are_the_paper_s() -> None:
    assert [level[2] for level in FIVE_LEVELS] == [5, 4, 3, 2, 1]
    assert [round(level[0], 9) for level in FIVE_LEVELS] == [-1, -0.6, -0.2, 0.2, 0.6]
    _ = Training(DESIGN, Interval(), 1.0, mechanism="levelled")  # without a gap in the last bits
