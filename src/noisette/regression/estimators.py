"""Private linear and logistic regression as scikit-learn estimators."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from noisette import _random, _validate
from noisette._random import Rng
from noisette._validate import FloatArray
from noisette.domains import Categorical, Interval
from noisette.guarantees import Guarantee
from noisette.regression.channels import FIVE_LEVELS
from noisette.regression.designs import Attribute, Design, coding_for
from noisette.regression.inference import Inference
from noisette.regression.pairs import PAIRS, ClassPairs
from noisette.regression.training import State, Training

try:
    from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import check_is_fitted, validate_data
except ImportError as error:  # pragma: no cover  # the tests need scikit-learn themselves
    raise ImportError(
        "The estimators need scikit-learn, which is not installed: pip install 'noisette[regression]'. "
        "noisette.regression.Training works without it."
    ) from error


class _PrivateLinearModel(BaseEstimator):  # type: ignore[misc]
    """What both estimators share: one pass over a stream of users, each of whom reports one private gradient."""

    _state: State
    _source: np.random.Generator

    def _keep(self, given: Mapping[str, Any]) -> None:
        """Keep the arguments under their own names and as they are: scikit-learn clones an estimator by them."""
        for name in self._get_param_names():
            setattr(self, name, given[name])

    @abstractmethod
    def _declared_target(self) -> Interval | Categorical:
        """Return what targets are possible."""

    def _training(self, columns: int, names: Any) -> Training:
        """Return the protocol for this many features."""
        features = Interval() if self.features is None else self.features
        attributes = (features,) * columns if isinstance(features, Interval | Categorical) else tuple(features)
        if len(attributes) != columns:
            raise ValueError(
                f"X has {columns} features, but {len(attributes)} are declared in features. "
                "Declare each, or one Interval for all of them."
            )
        coding: Any = coding_for(_validate.epsilon(self.epsilon)) if self.coding == "auto" else self.coding
        coding = "unit" if self.error_bars or self.mechanism == PAIRS else coding
        return Training(
            Design(attributes, names=None if names is None else tuple(names), coding=coding),
            self._declared_target(),
            self.epsilon,
            mechanism="auto" if self.mechanism == PAIRS else self.mechanism,
            ridge=self.ridge,
            batch=self.batch,
            step=self.step,
            average=self.average,
            levels=FIVE_LEVELS if self.levels is None else tuple(self.levels),
            **self._loss_options(),
        )

    def _loss_options(self) -> dict[str, Any]:
        return {}

    @abstractmethod
    def _checked(self, X: Any, y: Any, *, reset: bool) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        """Return what scikit-learn accepts as rows and targets."""

    def fit(self, X: Any, y: Any) -> Self:
        """Train from nothing on users, each one row; the rows' order is the order in which they report."""
        if self.error_bars or self.mechanism == PAIRS:
            return self._learn_at_once(X, y)
        return self._learn(X, y, restart=True)._end()

    def _learn_at_once(self, X: Any, y: Any) -> Self:
        """Let each user report what `ClassPairs` or `Inference` asks for, which sets ``coefficients_`` as well."""
        rows, target = self._checked(X, y, reset=True)
        self._begin()
        own = self.training_
        if not self.error_bars:
            pairs = ClassPairs(own.design, own.epsilon)
            self._state = State(pairs.run(rows, target, clip=self.clip, rng=self._source))
            return self._publish()
        inference = Inference(own.design, own.target, own.epsilon, mechanism=self.mechanism)
        self.coefficients_ = inference.run(rows, target, clip=self.clip, rng=self._source)
        self._state = State(self.coefficients_.model)
        return self._publish()

    def fit_batches(self, batches: Iterable[tuple[Any, Any]]) -> Self:
        """Train from nothing on a stream of (X, y), in constant memory."""
        restart = True
        for X, y in batches:
            self._learn(X, y, restart=restart)
            restart = False
        if restart:
            raise ValueError("Expected at least one batch to learn from, got an empty stream.")
        return self._end()

    def _learn(self, X: Any, y: Any, *, restart: bool) -> Self:
        """Let users report to a new model or to the present one."""
        if self.error_bars:
            raise ValueError("Error bars need all users at once: call fit, or leave error_bars=True out.")
        if self.mechanism == PAIRS:
            raise ValueError("mechanism='pairs' needs all users at once: call fit, or leave it out.")
        rows, target = self._checked(X, y, reset=restart)
        if restart:
            self._begin()
        self._state = self.training_.advance(self._state, rows, target, clip=self.clip, rng=self._source)
        return self._publish()

    def _begin(self) -> None:
        self.training_ = self._training(self.n_features_in_, getattr(self, "feature_names_in_", None))
        self._state = State(self.training_.start())
        self._source = _random.generator(self.random_state)

    def _end(self) -> Self:
        """Take the step of the last batch, which may not be full."""
        self._state = State(self.training_.finish(self._state))
        return self._publish()

    def _publish(self) -> Self:
        """Set what scikit-learn's users look at."""
        self.model_ = self._state.model
        self.coef_, self.intercept_ = self.training_.coefficients(self.model_)
        self.n_iter_ = self.model_.rounds
        return self

    @property
    def guarantee_(self) -> Guarantee:
        """What each user's one report protects: her whole record, in the local model."""
        check_is_fitted(self, "training_")
        return self.training_.guarantee

    def _predictions(self, X: Any) -> FloatArray:
        check_is_fitted(self, "model_")
        return self.training_.predict(self.model_, self._rows(X))

    def _rows(self, X: Any) -> npt.NDArray[Any]:
        return np.asarray(validate_data(self, X, reset=False, dtype=None, ensure_all_finite=True))


class PrivateLinearRegression(RegressorMixin, _PrivateLinearModel):  # type: ignore[misc]
    """Linear regression from one private gradient of each user.

    ``features`` and ``target`` declare what values are possible, one Interval for all features or an Interval or a
    Categorical for each, [-1, 1] by default; they are never read off the data. Values outside are an error, or moved
    with ``clip=True``.
    ``bound`` is the largest residual that counts in full, in halves of the target's width; ``levels`` are those of a
    graded mechanism. ``error_bars=True`` fits by `Inference` instead: ``coefficients_`` then has standard errors,
    intervals and a verdict. See `Training` for the rest.

    *Guarantee*: epsilon-LDP for a user's whole record, features and target, in the local model; a row is a user.
    *Utility*: see docs/regression.md. ``random_state`` is for tests: noise from a known seed protects nobody.
    Wang et al. 2019, section 5, with steps and averages of our own.

    >>> rng = np.random.default_rng(1)
    >>> X = rng.uniform(-1, 1, (50_000, 2))
    >>> y = 0.5 * X[:, 0] - 0.25 * X[:, 1]
    >>> model = PrivateLinearRegression(epsilon=2.0, random_state=7).fit(X, y)
    >>> model.coef_.round(1)
    array([ 0.5, -0.3])
    >>> print(model.guarantee_)
    2-DP, unit record, model local, relation any-pair
    """

    def __init__(
        self,
        epsilon: float = 1.0,
        *,
        features: Attribute | Sequence[Attribute] | None = None,
        target: Interval | None = None,
        mechanism: str = "auto",
        coding: str = "auto",
        levels: Sequence[tuple[float, float, float]] | None = None,
        bound: float = 1.0,
        ridge: float = 1e-4,
        batch: int | None = None,
        step: float | None = None,
        average: bool = True,
        clip: bool = False,
        error_bars: bool = False,
        random_state: Rng = None,
    ) -> None:
        self._keep(locals())

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = True  # a hundred users cannot teach a private model anything
        tags.non_deterministic = self.random_state is None
        return tags

    def partial_fit(self, X: Any, y: Any) -> Self:
        """Let further users report; the model moves whenever a batch is full, while `fit` uses the rest too."""
        return self._learn(X, y, restart=not hasattr(self, "_state"))

    def _declared_target(self) -> Interval:
        if self.mechanism == PAIRS:
            raise ValueError("mechanism='pairs' is for two classes: take PrivateLogisticRegression, or leave it out.")
        if self.target is None:
            return Interval()
        if not isinstance(self.target, Interval):
            raise TypeError(f"Expected target={self.target!r} to be an Interval, e.g. Interval(0, 200_000).")
        return self.target

    def _loss_options(self) -> dict[str, Any]:
        return {"bound": self.bound}

    def _checked(self, X: Any, y: Any, *, reset: bool) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        rows, target = validate_data(self, X, y, reset=reset, dtype=None, y_numeric=True)
        return rows, target

    def predict(self, X: Any) -> FloatArray:
        """Return the predicted target of each row."""
        return self._predictions(X)


class PrivateLogisticRegression(ClassifierMixin, _PrivateLinearModel):  # type: ignore[misc]
    """Logistic regression of two classes from one private gradient of each user.

    ``classes`` declares both classes, the second one the one whose probability is modelled; they are never read off the
    data. The rest is as for PrivateLinearRegression; a logistic gradient is bounded by itself, so nothing is clipped.
    ``mechanism="pairs"`` asks each user for one attribute and her class instead of a gradient: see `ClassPairs`.

    *Guarantee*: epsilon-LDP for a user's whole record, features and class, in the local model; a row is a user.
    *Utility*: see docs/regression.md. ``random_state`` is for tests: noise from a known seed protects nobody.
    Wang et al. 2019, section 5, with steps and averages of our own.

    >>> rng = np.random.default_rng(1)
    >>> X = rng.uniform(-1, 1, (50_000, 2))
    >>> y = np.where(X[:, 0] > rng.normal(0, 0.3, 50_000), "yes", "no")
    >>> model = PrivateLogisticRegression(epsilon=2.0, classes=("no", "yes"), random_state=7).fit(X, y)
    >>> model.predict([[0.9, 0.0], [-0.9, 0.0]])
    array(['yes', 'no'], dtype='<U3')
    """

    def __init__(
        self,
        epsilon: float = 1.0,
        *,
        features: Attribute | Sequence[Attribute] | None = None,
        classes: tuple[Any, Any] = (0, 1),
        mechanism: str = "auto",
        coding: str = "auto",
        levels: Sequence[tuple[float, float, float]] | None = None,
        ridge: float = 1e-4,
        batch: int | None = None,
        step: float | None = None,
        average: bool = True,
        clip: bool = False,
        error_bars: bool = False,
        random_state: Rng = None,
    ) -> None:
        self._keep(locals())

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.poor_score = True  # a hundred users cannot teach a private model anything
        tags.classifier_tags.multi_class = False
        tags.non_deterministic = self.random_state is None
        return tags

    def partial_fit(self, X: Any, y: Any, classes: Any = None) -> Self:
        """Let further users report; the model moves whenever a batch is full, while `fit` uses the rest too.

        scikit-learn's ``classes`` may be given; they must be those declared.
        """
        if classes is not None and set(np.asarray(classes).tolist()) != set(self.classes):
            raise ValueError(f"Expected classes={classes!r} to be those declared, {self.classes!r}.")
        return self._learn(X, y, restart=not hasattr(self, "_state"))

    @property
    def classes_(self) -> npt.NDArray[Any]:
        """Both classes, as declared."""
        check_is_fitted(self, "training_")
        return np.asarray(self.classes)

    def _declared_target(self) -> Categorical:
        if len(self.classes) != 2:
            raise ValueError(f"Expected two classes, got classes={self.classes!r}. Train one against the rest.")
        return Categorical(2)

    def _checked(self, X: Any, y: Any, *, reset: bool) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        rows, target = validate_data(self, X, y, reset=reset, dtype=None)
        check_classification_targets(target)
        self._declared_target()
        if np.unique(target).size > 2:
            raise ValueError(
                "Only binary classification is supported. The type of the target is multiclass: "
                "train one class against the rest."
            )
        first, second = (np.asarray(target == label) for label in self.classes)
        if not np.all(first | second):
            row = int(np.argmin(first | second))
            raise ValueError(
                f"Class {target.tolist()[row]!r} in row {row} is not declared: classes={self.classes!r}. "
                "Declare both, e.g. classes=('no', 'yes')."
            )
        return rows, second.astype(np.int64)

    def predict_proba(self, X: Any) -> FloatArray:
        """Return the probabilities of both classes for each row."""
        second = self._predictions(X)
        return np.column_stack([1 - second, second])

    def decision_function(self, X: Any) -> FloatArray:
        """Return the log-odds of the second class for each row."""
        check_is_fitted(self, "model_")
        return np.asarray(self.training_.design.encode(self._rows(X), outside="keep") @ self.model_.average)

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """Return the more probable class of each row."""
        return np.asarray(self.classes_[(self.decision_function(X) > 0).astype(np.int64)])
