"""The estimators keep scikit-learn's contract, and what they cannot keep is listed with its reason."""

import pickle
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import check_estimator

import noisette as nz
from noisette import Categorical, Interval
from noisette.regression import PrivateLinearRegression, PrivateLogisticRegression

_UNDECLARED = "classes are declared beforehand, never read off the data, and this check trains on others than 0 and 1"
EXPECTED_FAILURES = {
    "PrivateLinearRegression": {},
    "PrivateLogisticRegression": {
        "check_estimators_dtypes": _UNDECLARED,
        "check_classifier_data_not_an_array": _UNDECLARED,
        "check_classifiers_classes": _UNDECLARED,
        "check_fit2d_1feature": _UNDECLARED,
    },
}
WIDE = Interval(-1e3, 1e3)


@pytest.mark.long
@pytest.mark.parametrize(
    "estimator",
    [
        PrivateLinearRegression(features=WIDE, target=Interval(-1e4, 1e4), clip=True, random_state=0),
        PrivateLogisticRegression(features=WIDE, clip=True, random_state=0),
    ],
    ids=lambda estimator: type(estimator).__name__,
)
def test_scikit_learn_s_own_checks(estimator: Any) -> None:
    """What is expected to fail does fail, so the list stays short and true."""
    expected = EXPECTED_FAILURES[type(estimator).__name__]
    results = check_estimator(estimator, expected_failed_checks=expected, on_skip=None, on_fail="raise")
    failed = {result["check_name"] for result in results if result["status"] == "xfail"}
    assert failed == set(expected)
    assert sum(result["status"] == "passed" for result in results) > 40


def _data(users: int = 30_000) -> tuple[Any, Any]:
    rng = np.random.default_rng(1)
    X = rng.uniform(0, 10, (users, 2))
    return X, np.clip(3 * X[:, 0] - 2 * X[:, 1] + rng.normal(0, 1, users), -25, 35)


def _linear(**options: Any) -> PrivateLinearRegression:
    return PrivateLinearRegression(
        **({"epsilon": 4.0, "features": Interval(0, 10), "target": Interval(-25, 35), "random_state": 3} | options)
    )


def test_learns_in_the_data_s_own_units() -> None:
    X, y = _data()
    model = _linear().fit(X, y)
    assert model.coef_ == pytest.approx([3, -2], abs=0.3)
    assert model.score(X, y) > 0.9
    assert model.predict([[5.0, 5.0]]) == pytest.approx(model.intercept_ + 5 * model.coef_.sum())
    assert model.guarantee_ == nz.Guarantee(4.0, claim=model.guarantee_.claim)
    assert model.n_iter_ == model.model_.rounds


def test_streams_give_what_arrays_give() -> None:
    X, y = _data(3000)
    whole = _linear(batch=500).fit(X, y)
    stream = _linear(batch=500).fit_batches((X[i : i + 500], y[i : i + 500]) for i in range(0, 3000, 500))
    partial = _linear(batch=500)
    for start in range(0, 3000, 500):
        partial.partial_fit(X[start : start + 500], y[start : start + 500])
    assert whole.coef_.tolist() == stream.coef_.tolist() == partial.coef_.tolist()
    with pytest.raises(ValueError, match="empty stream"):
        _linear().fit_batches([])


def test_partial_fit_waits_for_a_full_batch() -> None:
    X, y = _data(150)
    model = _linear(batch=100).partial_fit(X[:60], y[:60])
    assert model.n_iter_ == 0
    assert model.partial_fit(X[60:], y[60:]).n_iter_ == 1
    assert _linear(batch=100).fit(X, y).n_iter_ == 2


def test_nothing_is_read_off_the_data() -> None:
    X, y = _data(100)
    with pytest.raises(ValueError, match=r"'x0' in \[-1, 1\], got"):
        PrivateLinearRegression().fit(X, y)
    with pytest.raises(ValueError, match=r"'target' in \[-1, 1\], got"):
        PrivateLinearRegression(features=Interval(0, 10)).fit(X, y)
    one, two = (_linear(clip=True).fit(X * scale, y) for scale in (1.0, 1e-3))
    assert one.training_ == two.training_  # the public protocol is the same whatever the data are


def test_categories() -> None:
    rng = np.random.default_rng(2)
    X = np.column_stack([rng.uniform(0, 1, 60_000), rng.integers(0, 3, 60_000)])
    y = 0.2 * X[:, 0] + np.asarray([-0.5, 0.0, 0.5])[X[:, 1].astype(int)]
    features = [Interval(0, 1), Categorical(3)]
    model = PrivateLinearRegression(8.0, features=features, random_state=1).fit(X, y)
    assert model.coef_.shape == (4,)
    assert model.predict([[0.5, 0.0], [0.5, 2.0]]) == pytest.approx([-0.4, 0.6], abs=0.1)
    with pytest.raises(ValueError, match="X has 2 features, but 1 are declared"):
        PrivateLinearRegression(features=[Interval(0, 1)]).fit(X, y)


def test_graded_estimator() -> None:
    X, y = _data(3000)
    model = _linear(mechanism="levelled", levels=[(-1, 0, 2.0), (0, 1, 1.0)]).fit(X, y)
    assert model.guarantee_.matrix is not None
    assert len(model.guarantee_.matrix) == 2
    assert len(_linear(mechanism="levelled").fit(X, y).guarantee_.matrix) == 5


def test_coding_follows_the_budget() -> None:
    X = np.column_stack([np.zeros(10), np.arange(10) % 3])
    features = [Interval(0, 1), Categorical(3)]
    for epsilon, coding in ((0.5, "signed"), (4.0, "unit")):
        model = PrivateLinearRegression(epsilon, features=features).fit(X, np.zeros(10))
        assert model.training_.design.coding == coding
    assert PrivateLinearRegression(0.5, features=features, coding="unit").fit(X, np.zeros(10)).coef_.shape == (4,)


def test_logistic_names_its_classes() -> None:
    X, y = _data(40_000)
    labels = np.where(y > 5, "high", "low")
    model = PrivateLogisticRegression(4.0, features=Interval(0, 10), classes=("low", "high"), random_state=1)
    model.fit(X, labels)
    assert model.score(X, labels) > 0.85
    assert model.classes_.tolist() == ["low", "high"]
    proba = model.predict_proba(X[:5])
    assert proba.sum(axis=1) == pytest.approx(1)
    assert (proba[:, 1] > 0.5).tolist() == (model.decision_function(X[:5]) > 0).tolist()
    with pytest.raises(ValueError, match="'medium' in row 0 is not declared"):
        model.fit(X[:1], np.asarray(["medium"]))
    with pytest.raises(ValueError, match="two classes"):
        clone(model).set_params(classes=("a", "b", "c")).fit(X, labels)
    with pytest.raises(ValueError, match="those declared"):
        clone(model).partial_fit(X, labels, classes=["low", "middle"])


@pytest.mark.long
def test_works_within_scikit_learn() -> None:
    X, y = _data(4000)
    model = _linear()
    assert cross_val_score(make_pipeline(FunctionTransformer(), model), X, y, cv=3).shape == (3,)
    assert GridSearchCV(model, {"epsilon": [0.01, 8.0]}, cv=2).fit(X, y).best_params_ == {"epsilon": 8.0}
    copy = pickle.loads(pickle.dumps(model.fit(X, y)))
    assert copy.predict(X).tolist() == model.predict(X).tolist()
    with pytest.raises(NotFittedError):
        _ = clone(model).guarantee_


def test_seed_decides_and_its_absence_does_not() -> None:
    X, y = _data(2000)
    assert _linear().fit(X, y).coef_.tolist() == _linear().fit(X, y).coef_.tolist()
    assert _linear(random_state=None).fit(X, y).coef_.tolist() != _linear(random_state=None).fit(X, y).coef_.tolist()
