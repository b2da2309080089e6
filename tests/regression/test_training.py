"""Devices and server: unbiased gradients, the ridge solution as noise vanishes, one report a user, extremes."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.special import ndtri

import noisette as nz
from noisette import Categorical, Interval
from noisette.mechanisms.build import fits
from noisette.regression import Design, Model, Training
from noisette.regression.channels import WholeVector, candidates, channel_of

DESIGN = Design((Interval(0, 10), Interval(), Categorical(labels=("a", "b", "c"))))
TARGET = Interval(-50, 150)
MECHANISMS = ("harmony", "duchi", "piecewise", "hybrid", "laplace", "duchi-box", "privunit", "privunit-g", "auto")


def _people(users: int, seed: int = 0) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    rows = np.empty((users, 3), dtype=object)
    rows[:, 0], rows[:, 1] = rng.uniform(0, 10, users), rng.uniform(-1, 1, users)
    rows[:, 2] = rng.choice(list("abc"), users)
    target = 5 * rows[:, 0].astype(float) - 30 * rows[:, 1].astype(float) + 20 * (rows[:, 2] == "b")
    return rows, np.clip(target + rng.normal(0, 5, users), -50, 150)


def _deviation(training: Training, channel: Any, seed: int) -> float:
    """Return the largest z-score of the mean reported gradient of three users, reporting again and again."""
    rows, target = _people(3, seed)
    model = Model(*(np.random.default_rng(seed).normal(0, 0.4, DESIGN.width) for _ in range(2)))
    exact = training.gradients(model, DESIGN.encode(rows), training.encode_target(target)).mean(axis=0)
    means = []
    for batch in range(150):
        reports = training.report(model, np.repeat(rows, 250, axis=0), np.repeat(target, 250), rng=1000 * seed + batch)
        means.append(channel.mean(training.channel.gather(reports)))
    error = np.std(means, axis=0, ddof=1) / np.sqrt(len(means))
    return float(np.abs((np.mean(means, axis=0) - exact) / error).max())


@pytest.mark.slow
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_reported_gradients_are_unbiased(mechanism: str) -> None:
    """False alarm 1e-6 for each mechanism: the largest of six z-scores, nearly normal over 150 means of 750 reports."""
    training = Training(DESIGN, TARGET, 1.5, mechanism=mechanism)
    limit = float(-ndtri(1e-6 / 2 / DESIGN.width)) * 1.1  # Student's t with 149 degrees is wider by less than a tenth
    assert _deviation(training, training.channel, seed=1) < limit


@pytest.mark.slow
def test_a_forgotten_sampling_rate_is_seen() -> None:
    """The twin: not dividing by the chance that an entry is reported biases the mean."""

    class Forgetful(WholeVector):
        _share = 1.0

    training = Training(DESIGN, TARGET, 1.5, mechanism="harmony")
    assert _deviation(training, Forgetful(training.channel.mechanism), seed=1) > 5.5


@pytest.mark.long
@pytest.mark.parametrize("name", ["harmony", "hybrid", "duchi-box", "privunit", "privunit-g"])
def test_stated_noise_is_the_noise(name: str) -> None:
    """Of vectors near zero, within what 1,500 users tell; harmony's is that of its worst entries, which zero is."""
    channel = channel_of(name, 1.0, dims=6, bound=0.5, radius=0.5 * np.sqrt(4), report=1 if name == "hybrid" else None)
    vectors = np.zeros((1, 6))
    errors = [channel.mean(channel.gather(channel.privatize(vectors, vectors, rng=seed))) for seed in range(1500)]
    squares = np.square(errors).sum(axis=1)
    measured, error = squares.mean(), squares.std() / np.sqrt(len(squares))
    low = 0.8 if name == "hybrid" else 1.0  # whose worst second moment is at the ends, not at zero
    assert low * channel.noise * (1 - 1e-9) - 5 * error <= measured <= channel.noise * (1 + 1e-9) + 5 * error


def test_auto_chooses_among_unbiased_mechanisms_that_are_quick_to_build() -> None:
    able = {one.name: one.able for one in fits(nz.Box(30)) if one}
    chosen = [able[name] for name in candidates(30)]
    assert chosen
    assert all(one.unbiased and not one.slow_start for one in chosen)
    assert not all(one.unbiased for one in able.values())
    assert any(one.slow_start for one in able.values())


@pytest.mark.slow
def test_auto_takes_the_least_noise() -> None:
    for epsilon in (0.1, 1.0, 8.0):
        noises = {n: channel_of(n, epsilon, dims=30, bound=1, radius=3, report=None).noise for n in candidates(30)}
        chosen = channel_of("auto", epsilon, dims=30, bound=1, radius=3, report=None)
        assert chosen.noise == min(noises.values())


def _ridge(matrix: Any, target: Any, ridge: float) -> Any:
    """Return the minimiser of the mean squared loss with a ridge on all weights but the constant's."""
    penalty = ridge * np.eye(matrix.shape[1])
    penalty[0, 0] = 0.0
    gram = matrix.T @ matrix / len(matrix)
    return np.linalg.solve(gram + penalty, matrix.T @ target / len(target))


@pytest.mark.long
@pytest.mark.parametrize("ridge", [1e-2, 1.0])
def test_approaches_the_ridge_solution_as_epsilon_grows(ridge: float) -> None:
    design = Design((Interval(), Interval()))
    rng = np.random.default_rng(4)
    rows = rng.uniform(-1, 1, (200_000, 2))
    target = np.clip(0.2 + 0.5 * rows[:, 0] - 0.2 * rows[:, 1] + rng.normal(0, 0.05, len(rows)), -1, 1)
    solution = _ridge(design.encode(rows), target, ridge)
    distances = []
    for epsilon in (0.03, 3.0, 300.0):
        training = Training(design, Interval(), epsilon, ridge=ridge)
        model = training.run([(rows, target)], rng=5)
        distances.append(float(np.linalg.norm(model.average - solution)))
    assert distances[0] > distances[1] > distances[2]
    assert distances[2] < 0.01
    assert np.linalg.norm(_ridge(design.encode(rows), target, 2 * ridge + 0.1) - solution) > 0.02  # it would be seen


@pytest.mark.long
def test_logistic_approaches_the_likelihood_s_maximum() -> None:
    from sklearn.linear_model import LogisticRegression

    design = Design((Interval(), Interval()))
    rng = np.random.default_rng(6)
    rows = rng.uniform(-1, 1, (200_000, 2))
    odds = 1 / (1 + np.exp(-(0.3 + 1.5 * rows[:, 0] - rows[:, 1])))
    target = (rng.random(len(rows)) < odds).astype(int)
    exact = LogisticRegression(C=np.inf).fit(rows, target)
    model = Training(design, Categorical(2), 30.0, ridge=0.0).run([(rows, target)], rng=7)
    wanted = [*exact.intercept_, *exact.coef_[0]]
    assert model.average == pytest.approx(wanted, abs=0.05)


def test_single_devices_give_what_fit_gives() -> None:
    """Each user alone, with the model as it comes over the wire, is the same protocol as the vectorised run."""
    training = Training(DESIGN, TARGET, 2.0, batch=20, mechanism="harmony")
    rows, target = _people(60)
    model = training.start()
    for start in range(0, 60, 20):
        text = model.to_json()
        sums = None
        for user in range(start, start + 20):
            received = Model.from_json(text)
            report = training.report(received, rows[user : user + 1], target[user : user + 1], rng=user)
            gathered = training.channel.gather(report)
            sums = gathered if sums is None else sums.merge(gathered)
        assert sums is not None
        assert sums.users == 20
        model = training.update(model, sums)
    assert (model.rounds, model.users) == (3, 60)
    again = training.start()
    for start in range(0, 60, 20):
        reports = [training.report(again, rows[u : u + 1], target[u : u + 1], rng=u) for u in range(start, start + 20)]
        joined = nz.Reports(*(np.concatenate([getattr(r, n) for r in reports]) for n in ("indices", "values")))
        again = training.receive(again, joined)
    assert again.average.tolist() == model.average.tolist()


def test_each_user_reports_once() -> None:
    training = Training(DESIGN, TARGET, 1.0, batch=7)
    rows, target = _people(50)
    model = training.run(((rows[i : i + 9], target[i : i + 9]) for i in range(0, 50, 9)), rng=1)
    assert model.users == 50
    assert model.rounds == 8  # seven full batches and the one user who is left


def test_chunks_do_not_matter() -> None:
    training = Training(DESIGN, TARGET, 1.0, batch=10, mechanism="privunit")
    rows, target = _people(40)
    whole = training.run([(rows, target)], rng=3)
    parts = training.run([(rows[:10], target[:10]), (rows[10:30], target[10:30]), (rows[30:], target[30:])], rng=3)
    assert whole.average.tolist() == parts.average.tolist()


def test_guarantee_is_the_whole_record_s() -> None:
    for mechanism in MECHANISMS:
        guarantee = Training(DESIGN, TARGET, 0.7, mechanism=mechanism).guarantee
        assert guarantee.epsilon == pytest.approx(0.7, rel=1e-9)
        assert guarantee.epsilon <= 0.7
        assert (guarantee.delta, guarantee.unit, guarantee.model) == (0.0, "record", "local")


@pytest.mark.parametrize("mechanism", ["harmony", "hybrid", "privunit"])
def test_exact_epsilon_of_what_a_device_sends(mechanism: str) -> None:
    """The auditor's exact calculator, on the very mechanism that gradients go through."""
    design = Design((Interval(), Interval()))
    channel: Any = Training(design, Interval(), 0.7, mechanism=mechanism).channel
    assert nz.exact_epsilon(channel.mechanism) == pytest.approx(0.7, rel=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [1e-6, 1e-3, 1e2, 1e3])
@pytest.mark.parametrize("target", [TARGET, Categorical(2)])
def test_extreme_budgets(epsilon: float, target: Any) -> None:
    rows, values = _people(3000)
    labels = values if isinstance(target, Interval) else (values > 20).astype(int)
    training = Training(DESIGN, target, epsilon)
    model = training.run([(rows, labels)], rng=1)
    assert np.isfinite(model.average).all()
    predicted = training.predict(model, rows)
    assert np.isfinite(predicted).all()
    if epsilon <= 1e-3:  # too little is learnt to move away from the middle
        middle = 50 if isinstance(target, Interval) else 0.5
        assert predicted == pytest.approx(np.full(3000, middle), abs=1.0 if isinstance(target, Interval) else 0.01)


@pytest.mark.slow
def test_many_columns_and_one() -> None:
    wide = Design((Categorical(100_000),))
    training = Training(wide, Interval(), 1.0, mechanism="harmony", batch=10)
    model = training.run([(np.arange(20)[:, None], np.zeros(20))], rng=1)
    assert model.average.shape == (100_001,)
    narrow = Training(Design((Interval(),)), Interval(), 1.0, batch=1)
    assert narrow.run([(np.zeros((1, 1)), np.zeros(1))], rng=1).users == 1


@pytest.mark.slow
def test_steps_and_batches() -> None:
    published = Training(DESIGN, TARGET, 0.5, step=1.0, average=False)
    assert published.step_size(4) == 0.5
    assert published.batch_users == max(256, int(np.ceil(6 * np.log(6) / 0.25)))
    ours = Training(DESIGN, TARGET, 0.5, batch=10)
    assert ours.step_size(1) == pytest.approx(1 / np.sqrt(ours.channel.noise / 10) / DESIGN.radius)
    assert Training(DESIGN, TARGET, 1000.0, ridge=0).step_size(1) == pytest.approx(1 / DESIGN.radius**2)


@pytest.mark.slow
def test_predictions_and_coefficients_agree() -> None:
    training = Training(DESIGN, TARGET, 8.0)
    rows, target = _people(5000)
    model = training.run([(rows, target)], rng=1)
    slopes, intercept = training.coefficients(model)
    row = np.asarray([[3.0, 0.5, "c"]], dtype=object)
    assert training.predict(model, row)[0] == pytest.approx(intercept + 3 * slopes[0] + 0.5 * slopes[1] + slopes[4])


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"epsilon": 0.0}, ValueError, "Expected epsilon=0.0 > 0"),
        ({"epsilon": -1.0}, ValueError, "Expected epsilon=-1.0 > 0"),
        ({"target": Categorical(3)}, ValueError, "a target of two classes, got 3"),
        ({"target": (0, 1)}, TypeError, "Interval of numbers or a Categorical"),
        ({"ridge": -1e-9}, ValueError, "ridge"),
        ({"ridge": np.nan}, ValueError, "ridge"),
        ({"step": 0.0}, ValueError, "step"),
        ({"batch": 0}, ValueError, "batch"),
        ({"mechanism": "nothing"}, ValueError, "Unknown mechanism 'nothing'"),
        ({"mechanism": "grr"}, ValueError, "does not take gradients"),
        ({"mechanism": "sampled"}, ValueError, "does not take gradients"),
        ({"mechanism": "gaussian"}, ValueError, "delta"),
        ({"entries": 7}, ValueError, "report"),
    ],
)
def test_bad_options(options: dict[str, Any], error: type[Exception], message: str) -> None:
    good = Training(DESIGN, TARGET, 1.0, mechanism="hybrid")
    with pytest.raises(error, match=message):
        replace(good, **options)


def test_bad_records() -> None:
    training = Training(DESIGN, TARGET, 1.0)
    rows, target = _people(3)
    model = training.start()
    with pytest.raises(ValueError, match=r"'target' in \[-50, 150\], got 151"):
        training.report(model, rows, np.asarray([0.0, 151.0, 0.0]))
    with pytest.raises(ValueError, match="as many targets as rows, got 2 and 3"):
        training.report(model, rows, target[:2])
    with pytest.raises(ValueError, match="one target for each user"):
        training.report(model, rows, target[:, None])
    with pytest.raises(ValueError, match="empty stream"):
        training.run([])
    forged = nz.Reports(np.zeros((1, 1), dtype=np.int32), np.full((1, 1), 1e9))
    with pytest.raises(ValueError, match="outside the support"):
        Training(DESIGN, TARGET, 1.0, mechanism="harmony").receive(model, forged)
