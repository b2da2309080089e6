"""Was this example in the training data? Attacks that answer, how well they do, and what that says about epsilon.

Scores are higher for examples that look like members. Attacks here take losses, confidences or features that some
model gave; training the models is the caller's.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from scipy.special import logsumexp, ndtri
from scipy.stats import rankdata

from noisette import _random, _validate
from noisette._random import Rng
from noisette._validate import FloatArray
from noisette.auditing.intervals import lower_bounds, promised_bounds, rate_above, rate_below
from noisette.auditing.one_run import against
from noisette.auditing.one_run import one_run as one_run
from noisette.auditing.one_run import one_run_epsilon as one_run_epsilon

_FALSE_ALARMS = 0.01  # the rate of false alarms at which hits are counted
_SMALLEST_CHANCE = 1e-12


@dataclass(frozen=True)
class Rate:
    """An estimate with the ends of its confidence interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.3f} [{self.low:.3f}, {self.high:.3f}]"


@dataclass(frozen=True)
class Attack:
    """How well scores tell members from others.

    ``epsilon`` is a lower bound on the epsilon (at ``delta``) of whatever gave the scores, and ``mu`` one on its mu if
    its noise is Gaussian, each at ``confidence`` and if each score comes from a run of its own. Scores of one run are
    not independent: then it is an indication, and `noisette.auditing.one_run` has the test that holds.
    """

    auc: Rate
    balanced_accuracy: Rate
    hits_at_rare: Rate  # true positive rate at 1 % false positives
    epsilon: float
    mu: float
    delta: float
    confidence: float
    members: int
    others: int

    def words(self, claimed: float | None = None) -> str:
        """Say what was measured, what follows, and what does not."""
        found = self.auc.low > 0.5 or self.mu > 0
        at = f" at delta {self.delta:g}" if self.delta else ""
        bound = f"has an epsilon of at least {self.epsilon:.2f}{at}" if self.epsilon > 0 else "has no bound from them"
        rare = (
            f", and with 1 % of false alarms it finds {_percent(self.hits_at_rare)} of the members (guessing has 1 %)"
            if self.others * _FALSE_ALARMS >= 2  # half of them choose the threshold
            else ", and so few others show no false alarms of 1 %"
        )
        return " ".join(
            [
                f"The attack {'tells members from others' if found else 'does no better than guessing'}. Of one member "
                f"and one other it names the member in {_percent(self.auc)} of cases (guessing has 50 %){rare}.",
                f"That is from {self.members:,} members and {self.others:,} others, at confidence "
                f"{self.confidence:.4g}.",
                f"If every score comes from a run of its own, whatever gave them {bound}. Scores of one run are not "
                "independent: then this is an indication.",
                against(self.epsilon, claimed, "if every score comes from a run of its own, "),
            ]
        )


def _percent(rate: Rate) -> str:
    return f"{100 * rate.value:.1f} % ({100 * rate.low:.1f} to {100 * rate.high:.1f} %)"


def evaluate(members: Any, others: Any, *, delta: float = 0.0, confidence: float = 0.95, rng: Rng = 0) -> Attack:
    """Return how well scores tell members from others.

    The area under the curve has DeLong's interval. Thresholds are chosen on a random half of the scores and tried on
    the rest, with Clopper-Pearson limits; so is the event behind ``epsilon``.

    >>> scores = np.random.default_rng(1).normal(size=(2, 2000))
    >>> attack = evaluate(scores[0] + 1, scores[1])  # Gaussian, mu = 1: AUC is Phi(1 / sqrt(2)) = 0.760
    >>> attack.auc.low < 0.760 < attack.auc.high
    True
    """
    confidence = _validate.number(confidence, "confidence")
    if not 0 < confidence < 1:
        raise ValueError(f"Expected confidence={confidence!r} between 0 and 1.")
    inside, outside = _scores(members, "members"), _scores(others, "others")
    source = _random.generator(rng)
    learn_in, test_in = _halves(inside, source)
    learn_out, test_out = _halves(outside, source)
    epsilon, mu = (_bound(place, (learn_in, learn_out), (test_in, test_out), delta, confidence) for place in (0, 1))
    accuracy = _accuracy(learn_in, learn_out, test_in, test_out, confidence)
    rare = np.quantile(learn_out, 1 - _FALSE_ALARMS, method="higher")
    return Attack(
        auc=_auc(inside, outside, confidence),
        balanced_accuracy=accuracy,
        hits_at_rare=_rate(int((test_in > rare).sum()), len(test_in), confidence),
        epsilon=epsilon,
        mu=mu,
        delta=delta,
        confidence=confidence,
        members=len(inside),
        others=len(outside),
    )


def loss_scores(losses: Any) -> FloatArray:
    """Return the scores of the loss-threshold attack: members have smaller losses (Yeom et al. 2018)."""
    return -_scores(losses, "losses")


def scaled_logits(logits: Any, labels: Any) -> FloatArray:
    """Return phi = z_y - ln(sum over other classes of exp z) of each example, from logits (..., examples, classes).

    That is ln(p / (1 - p)) of the true label, computed so that no confidence near 1 loses what sets it apart: in single
    precision p is 1 from phi = 17 on (Carlini et al. 2022).

    >>> scaled_logits(np.float32([[30.0, 0.0], [0.0, 2.0]]), [0, 1]).tolist()
    [30.0, 2.0]
    """
    values = _validate.reals(logits, "logits")
    places = np.asarray(labels)
    if values.ndim < 2 or places.shape != values.shape[-2:-1] or values.shape[-1] < 2:
        raise ValueError(
            f"Expected logits (..., examples, classes) of two classes or more and labels (examples,); got "
            f"{values.shape} and {places.shape}."
        )
    if places.dtype.kind not in "iu" or not ((places >= 0) & (places < values.shape[-1])).all():
        raise ValueError(f"Expected labels as whole numbers from 0 to {values.shape[-1] - 1}.")
    true = np.arange(values.shape[-1]) == places[:, None]
    own = np.where(true, values, 0.0).sum(-1)
    return np.asarray(own - logsumexp(np.where(true, -np.inf, values), axis=-1))


def likelihood_ratio_scores(
    confidences: Any, shadow: Any, inside: Any = None, *, scale: Literal["confidence", "logit"] = "confidence"
) -> FloatArray:
    """Return LiRA's scores from the confidence of a model, and of shadow models, in each example's true label.

    ``shadow`` is (models, examples), ``inside`` marks which of the models saw which example. With phi =
    ln(p / (1 - p)), the score is ln N(phi; mean and variance of those inside) - ln N(phi; those outside) (Carlini et
    al. 2022, Algorithm 1). With fewer than 64 models on a side the variance is that of all examples together.

    With ``inside=None`` no shadow model saw any of the examples: the attack is offline, and the score is (phi - mean) /
    deviation of those outside, which orders examples as their chance 1 - P[N > phi] does. With ``scale="logit"`` what
    is given is phi, as `scaled_logits` computes it: confidences in single precision understate what leaks.
    """
    if scale not in ("confidence", "logit"):
        raise ValueError(f"Expected scale={scale!r} to be 'confidence' or 'logit'.")
    own, others = (
        _logits(values) if scale == "confidence" else _validate.reals(values, name)
        for values, name in ((confidences, "confidences"), (shadow, "shadow"))
    )
    seen = np.zeros(others.shape, dtype=bool) if inside is None else np.asarray(inside, dtype=bool)
    if others.ndim != 2 or seen.shape != others.shape or own.shape != others.shape[1:]:
        raise ValueError(
            f"Expected confidences of shape (examples,), shadow and inside of shape (models, examples); got "
            f"{own.shape}, {others.shape}, {seen.shape}."
        )
    if inside is None:
        if len(others) < 2:
            raise ValueError(f"Expected two shadow models or more, got {len(others)}.")
        mean, variance = _moments(others, ~seen)
        return (own - mean) / np.sqrt(variance)
    if not (seen.any(0) & ~seen.all(0)).all():
        raise ValueError(
            "Expected every example to be inside of one shadow model and outside of another at least. Where none saw "
            "any, leave inside out: the attack is offline."
        )
    scores = np.zeros(own.shape)
    for side, sign in ((seen, 1.0), (~seen, -1.0)):
        mean, variance = _moments(others, side)
        scores += sign * (-((own - mean) ** 2) / (2 * variance) - 0.5 * np.log(variance))
    return scores


def _moments(values: FloatArray, side: npt.NDArray[np.bool_]) -> tuple[FloatArray, FloatArray]:
    """Return the mean and the variance of each column over some rows; one variance where there are few rows."""
    count = side.sum(0)
    mean = np.where(side, values, 0.0).sum(0) / count
    squares = np.where(side, (values - mean) ** 2, 0.0).sum(0)
    if count.min() < 64:
        variance = np.full(mean.shape, squares.sum() / max((count - 1).sum(), 1))
    else:
        variance = squares / (count - 1)
    return mean, np.maximum(variance, _SMALLEST_CHANCE)


def relative_scores(
    confidences: Any,
    shadow: Any,
    population: Any,
    shadow_population: Any,
    *,
    inside: Any = None,
    gamma: float = 1.0,
    slope: float = 0.3,
) -> FloatArray:
    """Return the scores of RMIA: for how many others z is an example's likelihood ratio to z at least ``gamma``.

    All are chances of the true label: of the examples by the model (examples,) and by shadow models (models, examples),
    and likewise of a population that nobody trained on. With ratio = p(x | model) / p(x), the score is the share of z
    with ratio(x) >= gamma ratio(z). p(x) is the mean over shadow models, one half for those that ``inside`` says saw x
    and one half for the others. With ``inside=None`` none did, and p(x) = ((1 + slope) p_out(x) + 1 - slope) / 2.

    Zarifzadeh, Liu, Shokri (2024).
    """
    own, others = _chances(confidences, "confidences"), _chances(shadow, "shadow")
    near, far = _chances(population, "population"), _chances(shadow_population, "shadow_population")
    seen = np.zeros(others.shape, dtype=bool) if inside is None else np.asarray(inside, dtype=bool)
    if (others.ndim, far.ndim) != (2, 2) or (others.shape[1:], far.shape[1:]) != (own.shape, near.shape):
        raise ValueError(
            f"Expected confidences (examples,) with shadow (models, examples), and population (z,) with "
            f"shadow_population (models, z); got {own.shape}, {others.shape}, {near.shape}, {far.shape}."
        )
    if seen.shape != others.shape or (inside is not None and not (seen.any(0) & ~seen.all(0)).all()):
        raise ValueError("Expected inside of shape (models, examples), with a model on each side for every example.")
    gamma = _validate.positive(gamma, "gamma")
    if not 0 <= slope <= 1:
        raise ValueError(f"Expected slope={slope!r} in [0, 1].")
    out = np.where(seen, 0.0, others).sum(0) / (~seen).sum(0)
    if inside is None:
        prior = ((1 + slope) * out + 1 - slope) / 2
        base = ((1 + slope) * far.mean(0) + 1 - slope) / 2
    else:
        prior, base = (out + np.where(seen, others, 0.0).sum(0) / seen.sum(0)) / 2, far.mean(0)
    ratios = np.sort(near / base)
    return np.asarray(np.searchsorted(gamma * ratios, own / prior, side="right") / len(ratios))


def _chances(values: Any, name: str) -> FloatArray:
    array = _validate.reals(values, name)
    if not ((array >= 0) & (array <= 1)).all() or not array.size:
        raise ValueError(f"Expected {name} as chances from 0 to 1.")
    return np.maximum(array, _SMALLEST_CHANCE)


def learned_scores(features: Any, inside: Any, candidates: Any, *, rng: Rng = 0) -> FloatArray:
    """Return the scores of an attack learned on examples of known membership, from whatever a white box shows.

    Features may be sorted posteriors, the loss, the label and gradients of the last layer (Duan 2024, section 5.3.5).
    A gradient-boosted classifier (scikit-learn) learns from those of known membership and scores the candidates.
    """
    try:
        from sklearn.ensemble import HistGradientBoostingClassifier
    except ImportError as error:
        raise ImportError("The learned attack needs scikit-learn: pip install scikit-learn.") from error
    known = np.asarray(features, dtype=np.float64)
    wanted = np.asarray(candidates, dtype=np.float64)
    labels = np.asarray(inside, dtype=bool)
    if known.ndim != 2 or wanted.ndim != 2 or known.shape[1] != wanted.shape[1] or labels.shape != known.shape[:1]:
        raise ValueError(
            f"Expected features (known, d), inside (known,) and candidates (wanted, d); got {known.shape}, "
            f"{labels.shape}, {wanted.shape}."
        )
    seed = int(_random.generator(rng).integers(2**31))
    model = HistGradientBoostingClassifier(max_iter=100, max_leaf_nodes=15, learning_rate=0.08, random_state=seed)
    return np.asarray(model.fit(known, labels).decision_function(wanted))


def _scores(values: Any, name: str) -> FloatArray:
    array = _validate.reals(values, name)
    if array.ndim != 1 or not np.isfinite(array).all():
        raise ValueError(f"Expected {name} as one row of finite numbers, got shape {array.shape}.")
    return array


def _logits(confidences: Any) -> FloatArray:
    """Return ln(p / (1 - p)), with p kept off 0 and 1."""
    chances = np.clip(_validate.reals(confidences, "confidences"), _SMALLEST_CHANCE, 1 - _SMALLEST_CHANCE)
    return np.log(chances) - np.log1p(-chances)


def _halves(scores: FloatArray, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
    if len(scores) < 4:
        raise ValueError(f"Expected at least 4 scores on each side, got {len(scores)}.")
    mixed = rng.permutation(scores)
    return mixed[: len(mixed) // 2], mixed[len(mixed) // 2 :]


def _auc(inside: FloatArray, outside: FloatArray, confidence: float) -> Rate:
    """Return the area under the curve with the interval of DeLong, DeLong, Clarke-Pearson 1988."""
    m, n = len(inside), len(outside)
    ranks = rankdata(np.concatenate([inside, outside]))
    above = (ranks[:m] - rankdata(inside)) / n
    below = 1 - (ranks[m:] - rankdata(outside)) / m
    value = float(above.mean())
    spread = math.sqrt(float(above.var(ddof=1)) / m + float(below.var(ddof=1)) / n)
    spread = spread or math.hypot(0.5 / m, 0.5 / n)  # a few scores that do not overlap prove no certainty
    reach = float(ndtri((1 + confidence) / 2)) * spread
    return Rate(value, max(value - reach, 0.0), min(value + reach, 1.0))


def _accuracy(
    learn_in: FloatArray, learn_out: FloatArray, test_in: FloatArray, test_out: FloatArray, confidence: float
) -> Rate:
    thresholds = np.sort(np.concatenate([learn_in, learn_out]))
    hits, alarms = (1 - np.searchsorted(np.sort(side), thresholds) / len(side) for side in (learn_in, learn_out))
    best = thresholds[int(np.argmax(hits - alarms))]
    hit, quiet = float((test_in >= best).mean()), float((test_out < best).mean())
    spread = (
        math.sqrt(
            max(hit * (1 - hit), 0.25 / len(test_in)) / len(test_in)
            + max(quiet * (1 - quiet), 0.25 / len(test_out)) / len(test_out)
        )
        / 2
    )
    value, reach = (hit + quiet) / 2, float(ndtri((1 + confidence) / 2)) * spread
    return Rate(value, max(value - reach, 0.0), min(value + reach, 1.0))


def _rate(hits: int, size: int, confidence: float) -> Rate:
    share = (1 - confidence) / 2
    return Rate(hits / size, float(rate_below(hits, size, share)), float(rate_above(hits, size, share)))


def _bound(
    place: int,
    learn: tuple[FloatArray, FloatArray],
    test: tuple[FloatArray, FloatArray],
    delta: float,
    confidence: float,
) -> float:
    """Return the lower bound on epsilon (0) or mu (1) from the threshold that promises most where it is chosen."""
    size = min(map(len, learn))
    thresholds = np.unique(np.concatenate(learn))
    hits, others = (_above(side[:size], thresholds) for side in learn)
    promised = promised_bounds(hits, others, size, delta=delta, deviations=float(ndtri(confidence)))[place]
    best = thresholds[[int(np.argmax(promised))]]
    size = min(map(len, test))
    hit, other = (int(_above(side[:size], best)[0]) for side in test)
    return max(lower_bounds(hit, other, size, delta=delta, confidence=confidence)[place], 0.0)


def _above(scores: FloatArray, thresholds: FloatArray) -> npt.NDArray[np.int64]:
    """Return how many scores are at least each threshold."""
    return np.asarray(len(scores) - np.searchsorted(np.sort(scores), thresholds), dtype=np.int64)
