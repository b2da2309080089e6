"""RetainOrNoise against enumeration of its law, and the published form against what its authors claim."""

import itertools
import json
import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from scipy.special import ndtri
from scipy.stats import norm

import noisette as nz
from noisette.auditing.claims import published_form
from noisette.mechanisms.tensor.retain.calibration import Request, choose
from noisette.mechanisms.tensor.retain.laws import KeptGaussian, KeptLaplace
from noisette.mechanisms.tensor.retain.mechanism import RetainOrNoise

FALSE_ALARM = 1e-6
IMAGE = nz.TensorDomain((28, 28), 0, 255)
Array = npt.NDArray[np.float64]


def laplace_law(p_keep: float, rate: float, away: Array) -> Array:
    """Return P(y | x), away = y - x, as the specification writes it."""
    a = math.exp(-rate)
    return p_keep * (away == 0) + (1 - p_keep) * (1 - a) / (1 + a) * a ** np.abs(away)


def gaussian_law(p_keep: float, sigma: float, away: Array) -> Array:
    """Return the same with discrete Gaussian noise, normalised by a sum."""
    reach = np.arange(-60.0 * sigma - 60, 60 * sigma + 61).round()
    total = np.exp(-((reach / sigma) ** 2) / 2).sum()
    return p_keep * (away == 0) + (1 - p_keep) * np.exp(-((away / sigma) ** 2) / 2) / total


def entry_law(mechanism: RetainOrNoise, away: Array) -> Array:
    """Return the law of an entry of a sound mechanism without weights."""
    law, p_keep = mechanism.choice.law, float(mechanism.p_keep)
    if isinstance(law, KeptLaplace):
        return laplace_law(p_keep, law.rate, away)
    return gaussian_law(p_keep, law.sigma, away)


def one_entry(epsilon: float, delta: float = 0.0, *, levels: int = 5, **options: Any) -> RetainOrNoise:
    return RetainOrNoise(epsilon, delta, domain=nz.TensorDomain((1,), 0, levels - 1), levels=levels, **options)


def published(epsilon: float, domain: nz.TensorDomain = IMAGE, **options: Any) -> RetainOrNoise:
    with pytest.warns(nz.PrivacyWarning, match="does not hold"):
        return RetainOrNoise(epsilon, domain=domain, as_published=True, **options)


@pytest.mark.parametrize(
    ("epsilon", "delta", "noise"),
    [(1.0, 0.0, "laplace"), (9.0, 0.0, "laplace"), (1.5, 1e-3, "gaussian"), (4.0, 1e-5, "gaussian")],
)
def test_the_law_is_the_specified_one(epsilon: float, delta: float, noise: str) -> None:
    mechanism = one_entry(epsilon, delta, noise=noise, unit="element")
    reports = np.arange(-300.0, 305.0)
    for x in (0.0, 1.0, 4.0):
        law = np.exp(mechanism.log_prob(reports[:, None], np.asarray([x])))
        np.testing.assert_allclose(law, entry_law(mechanism, reports - x), rtol=1e-10, atol=1e-300)
        assert law.sum() == pytest.approx(1, abs=1e-12)
    between = np.exp(mechanism.log_prob(reports[:, None], np.asarray([1.25])))
    mixed = 0.75 * entry_law(mechanism, reports - 1) + 0.25 * entry_law(mechanism, reports - 2)
    np.testing.assert_allclose(between, mixed, rtol=1e-10, atol=1e-300)
    assert not np.allclose(between, entry_law(mechanism, reports - 1), rtol=1e-3)


def test_reports_off_the_grid_are_impossible() -> None:
    mechanism = one_entry(1.0)
    assert mechanism.log_prob(np.asarray([0.5]), np.asarray([0.0])) == -math.inf
    assert mechanism.log_prob(np.asarray([math.nan]), np.asarray([0.0])) == -math.inf


@pytest.mark.parametrize("epsilon", [1e-6, 1e-3, 0.5, 1.0, 4.0, 6.0, 12.0, 30.0, 100.0, 1e3])
@pytest.mark.parametrize("levels", [2, 5, 256])
def test_exact_epsilon_of_an_element(epsilon: float, levels: int) -> None:
    mechanism = RetainOrNoise(epsilon, domain=nz.TensorDomain((3,), -1, 1), levels=levels, unit="element")
    exact = nz.exact_epsilon(mechanism)
    assert exact <= epsilon
    law, p_keep, steps = mechanism.choice.law, float(mechanism.p_keep), levels - 1
    assert isinstance(law, KeptLaplace)
    a = math.exp(-law.rate)
    formula = steps * law.rate + math.log1p(p_keep / (1 - p_keep) * (1 + a) / (1 - a))
    assert exact == pytest.approx(formula, rel=1e-9, abs=1e-12)
    if epsilon < 30:
        assert exact == pytest.approx(epsilon, rel=1e-9)
    if levels < 10 and epsilon < 30:
        y = np.arange(-50.0, 60.0)
        ratio = np.log(laplace_law(p_keep, law.rate, y) / laplace_law(p_keep, law.rate, y - steps))
        assert exact == pytest.approx(np.abs(ratio).max(), rel=1e-9)


@pytest.mark.parametrize("epsilon", [0.3, 2.0, 9.0, 25.0])
@pytest.mark.parametrize("dims", [(1,), (2,), (2, 2)])
def test_exact_epsilon_and_delta_of_a_record(epsilon: float, dims: tuple[int, ...]) -> None:
    """Against the laws of all pairs of corners and all reports of a window that holds the mass."""
    mechanism = RetainOrNoise(epsilon, domain=nz.TensorDomain(dims, 0, 2), levels=3)
    size = math.prod(dims)
    assert nz.exact_epsilon(mechanism) <= epsilon
    assert nz.exact_epsilon(mechanism) == pytest.approx(epsilon, rel=1e-9)
    window = np.arange(-1.0, 4.0)  # tails have one ratio: their mass is put on their first place
    law = entry_law(mechanism, window[:, None] - np.asarray([0.0, 2.0]))
    choice = mechanism.choice.law
    assert isinstance(choice, KeptLaplace)
    law[[0, -1]] /= -math.expm1(-choice.rate)
    assert law.sum(axis=0) == pytest.approx([1, 1])
    first = np.asarray([math.prod(part) for part in itertools.product(law[:, 0], repeat=size)])
    second = np.asarray([math.prod(part) for part in itertools.product(law[:, 1], repeat=size)])
    for tried in (0.0, epsilon / 3, 0.9 * epsilon):
        expected = np.maximum(first - math.exp(tried) * second, 0).sum()
        assert nz.exact_delta(mechanism, tried) == pytest.approx(expected, rel=1e-9, abs=1e-14)


def test_a_record_of_many_entries_is_the_sum_of_its_entries() -> None:
    mechanism = RetainOrNoise(3.0, domain=IMAGE)
    assert nz.exact_epsilon(mechanism) <= 3.0
    assert nz.exact_epsilon(mechanism) == pytest.approx(3.0, rel=1e-9)
    with pytest.raises(ValueError, match="too many to sum over"):
        nz.exact_delta(mechanism, 1.0)


@pytest.mark.slow
@pytest.mark.parametrize(("epsilon", "levels"), [(0.2, 5), (1.5, 5), (4.0, 2), (4.0, 5), (6.0, 256), (40.0, 64)])
def test_gaussian_elements_are_as_private_as_stated(epsilon: float, levels: int) -> None:
    mechanism = one_entry(epsilon, 1e-5, noise="gaussian", unit="element", levels=levels)
    law = mechanism.choice.law
    assert isinstance(law, KeptGaussian)
    y = np.arange(-math.ceil(45 * law.sigma), math.ceil(45 * law.sigma) + levels + 1.0)
    own, other = entry_law(mechanism, y), entry_law(mechanism, y - (levels - 1))
    with np.errstate(over="ignore"):
        direct = np.maximum(own - math.exp(epsilon) * other, 0).sum()
    assert direct <= 1e-5 * (1 + 1e-6)
    assert nz.exact_delta(mechanism, epsilon) == pytest.approx(direct, rel=1e-6, abs=1e-14)
    assert nz.exact_epsilon(mechanism) == math.inf
    assert nz.exact_epsilon(mechanism, delta=1e-5) == pytest.approx(epsilon, rel=1e-6)
    p_keep = float(mechanism.p_keep)
    if p_keep < 1 - 1e-12:
        assert law.delta(epsilon, 1 - (1 - p_keep) / 1.01) > 1e-5, "the twin: keeping a little more breaks the promise"


@pytest.mark.slow
@pytest.mark.parametrize("dims", [(2,), (5,), (3, 4)])
def test_gaussian_records_are_as_private_as_stated(dims: tuple[int, ...]) -> None:
    """Where nothing is kept, delta is that of the sum of the entries, here a convolution of their laws."""
    mechanism = RetainOrNoise(1.0, 1e-4, domain=nz.TensorDomain(dims, 0, 3), levels=4, noise="gaussian")
    law, size = mechanism.choice.law, math.prod(dims)
    assert isinstance(law, KeptGaussian)
    assert not mechanism.choice.helps
    reach = math.ceil(12 * law.sigma)
    single = gaussian_law(0.0, law.sigma, np.arange(-reach, reach + 1.0))
    joint = single
    for _ in range(size - 1):
        joint = np.convolve(joint, single)
    sums = np.arange(-size * reach, size * reach + 1.0)
    for epsilon in (0.3, 1.0, 2.0):
        # the loss of a report with sum s is K (I K - 2 s) / (2 sigma^2)
        loss = 3 * (3 * size - 2 * sums) / (2 * law.sigma**2)
        expected = (joint * np.maximum(-np.expm1(epsilon - loss), 0)).sum()
        assert nz.exact_delta(mechanism, epsilon) == pytest.approx(expected, rel=1e-6)
    assert nz.exact_epsilon(mechanism, delta=1e-4) == pytest.approx(1.0, rel=1e-6)
    assert nz.exact_epsilon(mechanism) == math.inf
    assert mechanism.privacy_event().rho == pytest.approx(size * 9 / (2 * law.sigma**2))
    assert nz.accounting.event(mechanism).rho == pytest.approx(mechanism.privacy_event().rho)
    composed = nz.accounting.loss_distribution(mechanism).get_epsilon_for_delta(1e-4)
    assert composed == pytest.approx(1.0, rel=1e-3)


@pytest.mark.long
@pytest.mark.parametrize(("epsilon", "levels"), [(3.0, 4), (12.0, 3), (60.0, 3)])
@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_composed_records_are_as_private_as_stated(epsilon: float, levels: int, noise: str) -> None:
    """Against the exact law of the loss: entries at their own value, entries at the other, and sums of the rest."""
    size, delta, steps = 12, 1e-6, levels - 1
    domain = nz.TensorDomain((size,), 0, steps)
    mechanism = RetainOrNoise(epsilon, delta, domain=domain, levels=levels, noise=noise)
    law = mechanism.choice.law
    y = np.arange(-300.0, 300.0 + levels)
    own, other = entry_law(mechanism, y), entry_law(mechanism, y - steps)
    base = law.rate if isinstance(law, KeptLaplace) else steps / (2 * law.sigma**2)  # losses are multiples of it
    rest = (y != 0) & (y != steps) & (own > 1e-30)
    index = np.rint(np.log(own[rest] / other[rest]) / base).astype(int)
    spread = int(np.abs(index).max())
    single = np.bincount(index + spread, weights=own[rest], minlength=2 * spread + 1)
    powers = [np.ones(1)]
    for _ in range(size):
        powers.append(np.convolve(powers[-1], single))
    near, far = float(own[y == 0][0]), float(own[y == steps][0])
    exact = 0.0
    for kept, seen in itertools.product(range(size + 1), repeat=2):
        left = size - kept - seen
        if left >= 0:
            losses = (np.arange(powers[left].size) - left * spread) * base + (kept - seen) * math.log(near / far)
            ways = math.comb(size, kept) * math.comb(size - kept, seen) * near**kept * far**seen
            exact += ways * float(powers[left] @ np.maximum(-np.expm1(epsilon - losses), 0))
    assert exact <= delta * (1 + 1e-6) + 1e-13


def test_composition_would_notice_too_much_keeping() -> None:
    """The twin: a chance to keep that one entry could afford is refused to a record."""
    request = Request("laplace", 2, 12.0, 1e-6, True, (1.0,), (12,))
    law = KeptLaplace(0.3, 2)
    kept = request.kept(law)
    assert kept is not None
    assert request.spent(law, kept) == pytest.approx(12.0, rel=1e-6)
    assert request.spent(law, 1.2 * kept) > 12.0
    assert law.largest_kept(12.0) > kept


@pytest.mark.parametrize("order", [1.001, 1.5, 2.0, 7.0, 40.0])
@pytest.mark.parametrize("p_keep", [0.0, 0.01, 0.5, 0.99])
@pytest.mark.parametrize("law", [KeptLaplace(0.3, 7), KeptLaplace(2.0, 1), KeptGaussian(9.0, 7), KeptGaussian(2.0, 3)])
def test_renyi_divergences(law: KeptLaplace | KeptGaussian, p_keep: float, order: float) -> None:
    y = np.arange(-700.0, 700.0)
    scale = law.rate if isinstance(law, KeptLaplace) else law.sigma
    logs = []
    for away in (y, y - law.steps):
        shape = -scale * np.abs(away) if isinstance(law, KeptLaplace) else -((away / scale) ** 2) / 2
        noise = math.log1p(-p_keep) + shape - np.logaddexp.reduce(shape)
        with np.errstate(divide="ignore"):
            logs.append(np.where(away == 0, np.logaddexp(np.log(p_keep), noise), noise))
    own, other = logs
    direct = float(np.logaddexp.reduce(order * own - (order - 1) * other)) / (order - 1)
    stated = float(law.renyi(np.asarray([order]), np.asarray(p_keep))[0])
    assert stated == pytest.approx(direct, rel=1e-5, abs=1e-8)
    assert stated >= direct - 1e-9


@pytest.mark.parametrize(("epsilon", "levels"), [(2.0, 5), (5.0, 5), (12.0, 5), (9.0, 256), (12.0, 256), (20.0, 256)])
def test_no_other_noise_is_better(epsilon: float, levels: int) -> None:
    """Against a search over all scales of noise, by the formula for the chance to keep."""
    steps = levels - 1
    rate = np.geomspace(1e-4, 1, 20_001) * epsilon / steps
    a = np.exp(-rate)
    odds = (1 - a) / (1 + a) * np.expm1(epsilon - steps * rate)
    error = 2 * a / (1 - a) ** 2 / (1 + odds)
    choice = choose(Request("laplace", steps, epsilon, 0.0, False, (1.0,), (1,)))
    assert choice.error == pytest.approx(error.min(), rel=1e-5)
    assert choice.error <= choice.plain
    assert choice.helps == (error.min() < error[-1] * (1 - 1e-9))


@pytest.mark.parametrize(("levels", "starts"), [(5, 4.42), (256, 10.57)])
def test_where_keeping_begins_to_help(levels: int, starts: float) -> None:
    helps = [
        choose(Request("laplace", levels - 1, starts * factor, 0.0, False, (1.0,), (1,))).helps
        for factor in (0.1, 0.99, 1.01, 2)
    ]
    assert helps == [False, False, True, True]


@pytest.mark.long
@pytest.mark.parametrize(
    "mechanism",
    [
        one_entry(9.0, levels=3),
        one_entry(4.0, 1e-5, noise="gaussian", unit="element"),
        RetainOrNoise(1.0, 1e-4, domain=nz.TensorDomain((2, 2), -1, 3), levels=9, noise="gaussian"),
        RetainOrNoise(20.0, domain=nz.TensorDomain((2, 2)), levels=3, weights=[0.0, 0.5], weights_epsilon=0.0),
        RetainOrNoise(
            8.0, domain=nz.TensorDomain((3,)), levels=3, unit="element", weights=[0.2, 0.5, 1.0], weights_epsilon=0
        ),
    ],
    ids=lambda m: f"{m.noise}-{m.unit}-{m.epsilon:g}",
)
def test_contract(mechanism: RetainOrNoise) -> None:
    nz.testing.check_mechanism(mechanism, samples=20_000)


@pytest.mark.parametrize(
    "options", [{}, {"noise": "gaussian"}, {"rounded": True}, {"rounded": True, "noise": "gaussian"}]
)
def test_moments_of_the_published_form_by_sampling(options: dict[str, Any]) -> None:
    mechanism = published(2.0, nz.TensorDomain((2,), 0, 3), levels=4, **options)
    x, samples = np.asarray([1.0, 2.6]), 200_000
    error = mechanism.privatize(np.tile(x, (samples, 1)), rng=5) - x
    moments = mechanism.moments(x)
    np.testing.assert_allclose(moments.bias, [0.0, 0.4], atol=1e-12)
    level = float(ndtri(1 - FALSE_ALARM / 12))
    centred = error - moments.bias
    for power, expected in ((1, 0 * x), (2, moments.variance), (3, moments.third)):
        values = centred if power == 1 else np.abs(centred) ** power
        slack = level * values.std(axis=0) / math.sqrt(samples)
        assert np.all(np.abs(values.mean(axis=0) - expected) <= slack)
        assert np.any(np.abs(values.mean(axis=0) - 1.2 * expected - 0.1 * (power == 1)) > slack), "the twin"
    total = np.concatenate([mechanism.privatize(np.tile(x, (50, 1)), rng=seed) for seed in range(4)])
    assert mechanism.aggregate(total).estimate().value == pytest.approx(total.mean(axis=0), rel=1e-3)


# -- the published form


def test_reference_numbers_of_the_published_form() -> None:
    """Delta is at least 0.78; rounded to the grid, 1.689 an entry and 1,324 a record, where 1 is claimed."""
    real = published(1.0)
    assert 1 / float(real.p_keep) == pytest.approx(513)
    assert real.p_any_kept == pytest.approx(0.78, abs=0.005)
    assert real.guarantee.epsilon == math.inf
    assert nz.exact_epsilon(real) == math.inf
    entry = published(1.0, rounded=True, unit="element")
    assert entry.guarantee.epsilon == pytest.approx(1.689, abs=5e-4)
    record = published(1.0, rounded=True)
    assert record.guarantee.epsilon == pytest.approx(1324, abs=0.5)
    assert nz.exact_epsilon(record) == pytest.approx(record.guarantee.epsilon, rel=1e-9)
    for mechanism in (real, entry, record):
        claim = mechanism.guarantee.claim
        assert claim is not None
        assert (claim.epsilon, claim.delta, claim.unit) == (1.0, 0.0, "record")
        assert not mechanism.guarantee.claim_holds


def test_rounded_outputs_by_the_specification_s_formula() -> None:
    """ln[(p + (1-p) c) / ((1-p) tail(Delta - 1))] with c and tail from the normal or Laplace distribution functions."""
    mechanism = published(1.0, rounded=True, unit="element")
    b, p_keep = 256.0, 1 / 513
    centre = 1 - math.exp(-0.5 / b)
    tail = (math.exp(-254.5 / b) - math.exp(-255.5 / b)) / 2
    expected = math.log((p_keep + (1 - p_keep) * centre) / ((1 - p_keep) * tail))
    assert mechanism.guarantee.epsilon == pytest.approx(expected, rel=1e-9)
    assert nz.exact_epsilon(mechanism) == pytest.approx(expected, rel=1e-9)
    assert expected == pytest.approx(1 + math.log(2), abs=0.01)
    tiny = published(2.0, nz.TensorDomain((1,), 0, 3), levels=4, rounded=True, noise="gaussian")
    y = np.arange(-9.0, 10.0)
    mass = norm.cdf((y + 0.5) / 2) - norm.cdf((y - 0.5) / 2)  # sigma^2 = 16 / 4
    p_keep = float(tiny.p_keep)
    law = np.exp(tiny.log_prob(y[:, None] + 1, np.asarray([1.0])))
    np.testing.assert_allclose(law, (1 - p_keep) * mass + p_keep * (y == 0), rtol=1e-8)
    assert tiny.guarantee.epsilon == nz.exact_epsilon(tiny) == math.inf


@pytest.mark.parametrize("retention", ["algorithm-1", "proof"])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 30.0])
@pytest.mark.parametrize(("levels", "dims"), [(2, (3, 4)), (5, (20,)), (3, (2,))])
def test_rounded_records_where_hardly_anything_is_kept(
    epsilon: float, retention: str, levels: int, dims: tuple[int, ...]
) -> None:
    """There a tail tells more than a kept entry, noise that rounds to zero being rarer than its neighbours suggest."""
    mechanism = published(
        epsilon, nz.TensorDomain(dims, 0, levels - 1), levels=levels, retention=retention, rounded=True
    )
    y, p_keep, b = np.arange(-9.0, 10.0 + levels), float(mechanism.p_keep), levels / epsilon
    masses = []
    for away in (np.abs(y), np.abs(y - levels + 1)):
        with np.errstate(under="ignore"):
            log_noise = np.where(away == 0, np.log(-np.expm1(-0.5 / b)), -away / b + np.log(np.sinh(0.5 / b)))
        noise = np.log1p(-p_keep) + log_noise
        masses.append(np.where(away == 0, np.logaddexp(np.log(p_keep), noise), noise))
    expected = math.prod(dims) * np.abs(masses[0] - masses[1]).max()
    assert mechanism.guarantee.epsilon == pytest.approx(expected, rel=1e-9)
    assert nz.exact_epsilon(mechanism) == pytest.approx(expected, rel=1e-9)


def test_both_readings_of_p() -> None:
    domain = nz.TensorDomain((3,), 0, 7)
    e, levels, size = 0.5, 8, 3
    b, sigma = levels / e, levels / math.sqrt(2 * e)
    q = {
        ("laplace", "algorithm-1"): (math.exp(e - levels / b), 2 * b),
        ("laplace", "proof"): (math.exp(e - size * levels / b), 2 * b),
        ("gaussian", "algorithm-1"): (math.exp(-(levels**2) / (2 * sigma**2)), sigma * math.sqrt(2 * math.pi)),
        ("gaussian", "proof"): (math.exp(e - size * levels**2 / (2 * sigma**2)), sigma * math.sqrt(2 * math.pi)),
    }
    for (noise, retention), (part, width) in q.items():
        mechanism = published(e, domain, levels=levels, noise=noise, retention=retention)
        assert float(mechanism.p_keep) == pytest.approx(part / (width + part), rel=1e-12)
        assert mechanism.guarantee.epsilon == nz.exact_epsilon(mechanism) == math.inf
    default = published(e, domain, levels=levels)
    assert float(default.p_keep) == pytest.approx(1 / (2 * b + 1), rel=1e-12)


def test_in_the_proofs_p_vanishes_for_an_image() -> None:
    """What is left is noise alone, for which I e holds where e is claimed."""
    laplace = published(1.0, retention="proof")
    assert float(laplace.p_keep) == laplace.p_any_kept == 0
    assert laplace.guarantee.epsilon == pytest.approx(784 * 255 / 256)
    assert nz.exact_epsilon(laplace) == pytest.approx(784 * 255 / 256)
    gaussian = published(1.0, retention="proof", noise="gaussian")
    assert gaussian.guarantee.epsilon == nz.exact_epsilon(gaussian) == math.inf


@pytest.mark.slow
@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
@pytest.mark.parametrize("rounded", [False, True])
def test_the_auditor_finds_the_published_claim_false(noise: str, rounded: bool) -> None:
    """The sound form of the same budget is the twin: of it nothing is found."""
    options: dict[str, Any] = {"domain": nz.TensorDomain((2, 2), 0, 7), "levels": 8}
    with pytest.warns(nz.PrivacyWarning):
        broken = RetainOrNoise(1.0, as_published=True, noise=noise, rounded=rounded, **options)
    found = nz.audit(broken, samples=40_000, confidence=1 - FALSE_ALARM, rng=3)
    assert (found.claimed, found.verdict) == (1.0, "violated")
    sound = nz.audit(RetainOrNoise(1.0, **options), samples=40_000, confidence=1 - FALSE_ALARM, rng=3)
    assert sound.verdict == "holds"


def test_the_published_form_of_the_example() -> None:
    broken = published_form(RetainOrNoise.example(1.0))
    assert broken.as_published
    assert not broken.guarantee.claim_holds
    assert nz.from_spec(json.dumps(RetainOrNoise.example(1.0).spec())) == RetainOrNoise.example(1.0)


def test_kept_reals_are_told_apart_by_their_likelihood() -> None:
    mechanism = published(1.0, nz.TensorDomain((2,), 0, 3), levels=4)
    kept, other = np.asarray([1.0, 2.5]), np.asarray([1.5, 2.5])
    x = np.asarray([1.0, 2.0])
    p_keep = float(mechanism.p_keep)
    assert mechanism.log_prob(kept, np.asarray([2.0, 2.0])) == -math.inf
    rate = 1 / 4
    density = math.log((1 - p_keep) * rate / 2) - rate / 2
    assert mechanism.log_prob(kept, x) == pytest.approx(math.log(p_keep) + density)
    assert mechanism.log_prob(other, x) == pytest.approx(2 * density)


# -- weights


def test_weights_lower_the_chance_to_keep() -> None:
    domain = nz.TensorDomain((2, 3, 2), 0, 2)
    weights = np.asarray([[0.1, 0.2, 0.3], [0.2, 0.3, 0.4]])
    mechanism = RetainOrNoise(20.0, domain=domain, levels=3, unit="element", weights=weights, weights_epsilon=0.0)
    kept = mechanism.p_keep.reshape(2, 3, 2)
    assert np.all(kept[..., 0] == kept[..., 1])
    np.testing.assert_allclose(kept[..., 0] / kept[0, 0, 0], (1 - weights) / 0.9, rtol=1e-12)
    assert kept[0, 0, 0] > 0
    assert nz.exact_epsilon(mechanism) == pytest.approx(20.0, rel=1e-9)
    published_weights = published(1.0, domain, levels=3, weights=weights, weights_epsilon=0.0)
    np.testing.assert_allclose(published_weights.p_keep.reshape(2, 3, 2)[..., 0], (1 - weights) / 7, rtol=1e-12)


@pytest.mark.parametrize("seed", [1, 2])
def test_weighted_records_keep_their_budget(seed: int) -> None:
    weights = np.random.default_rng(seed).random((2, 2))
    mechanism = RetainOrNoise(30.0, domain=nz.TensorDomain((2, 2)), levels=3, weights=weights, weights_epsilon=0.0)
    assert mechanism.choice.helps
    law = mechanism.choice.law
    assert isinstance(law, KeptLaplace)
    y = np.arange(-60.0, 60.0)
    total = sum(
        np.abs(np.log(laplace_law(p, law.rate, y) / laplace_law(p, law.rate, y - 2))).max() for p in mechanism.p_keep
    )
    assert total <= 30.0
    assert total >= 29.0, "weights are rounded while the budget is shared out, but not by much"
    assert nz.exact_epsilon(mechanism) == pytest.approx(total, rel=1e-9)
    again = nz.from_spec(json.dumps(mechanism.spec()))
    assert again == mechanism
    assert np.array_equal(again.p_keep, mechanism.p_keep)


def test_weights_must_be_declared_and_paid_for() -> None:
    domain = nz.TensorDomain((2,))
    with pytest.raises(ValueError, match=r"Expected weights_epsilon beside weights.*If they are public"):
        RetainOrNoise(1.0, domain=domain, weights=[0.1, 0.2])
    with pytest.raises(ValueError, match=r"Expected weights_epsilon beside weights"):
        RetainOrNoise(1.0, domain=domain, weights=[0.1, 0.2], as_published=True)
    with pytest.raises(ValueError, match=r"weights_epsilon=1\.0 in \[0, epsilon=1\.0\)"):
        RetainOrNoise(1.0, domain=domain, weights=[0.1, 0.2], weights_epsilon=1.0)
    with pytest.raises(ValueError, match="Expected weights beside weights_epsilon"):
        RetainOrNoise(1.0, domain=domain, weights_epsilon=0.1)
    paid = RetainOrNoise(1.0, domain=domain, weights=[0.1, 0.2], weights_epsilon=0.4)
    assert paid.guarantee.epsilon == 1.0
    assert nz.exact_epsilon(paid) == pytest.approx(0.6, rel=1e-9)


@pytest.mark.parametrize("bad", [[-0.1, 0.5], [0.5, 1.1], [math.nan, 0.5]])
def test_weights_outside_the_unit_interval_are_refused(bad: list[float]) -> None:
    with pytest.raises(ValueError, match=r"Expected weights in \[0, 1\], got"):
        RetainOrNoise(1.0, domain=nz.TensorDomain((2,)), weights=bad, weights_epsilon=0.0)


def test_weights_of_a_wrong_shape_are_refused() -> None:
    with pytest.raises(ValueError, match=r"leading modes of \(2, 3\), got \(3,\)"):
        RetainOrNoise(1.0, domain=nz.TensorDomain((2, 3)), weights=[0.1, 0.2, 0.3], weights_epsilon=0.0)


def test_weights_of_one_leave_noise_alone() -> None:
    mechanism = RetainOrNoise(50.0, domain=nz.TensorDomain((2,)), levels=3, weights=[1, 1], weights_epsilon=0.0)
    assert np.all(mechanism.p_keep == 0)


# -- input


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"epsilon": -1.0}, r"Expected epsilon=-1\.0 > 0"),
        ({"levels": 1}, "Expected 2 <= levels"),
        ({"noise": "uniform"}, "Expected noise='uniform' to be one of"),
        ({"unit": "example"}, "Expected unit='example' to be one of"),
        ({"retention": "proof"}, "only with as_published=True"),
        ({"rounded": True}, "only with as_published=True"),
        ({"retention": "best", "as_published": True}, "Expected retention='best' to be one of"),
        ({"noise": "gaussian"}, r"Expected delta=0\.0 > 0: Gaussian noise has no pure guarantee"),
        ({"delta": 1e-6, "unit": "element"}, "Laplace noise has a pure guarantee"),
        ({"delta": 1e-6, "as_published": True}, "the paper claims a pure guarantee"),
        ({"delta": 2.0}, r"Expected delta=2\.0 in \[0, 1\)"),
        ({"epsilon": 1e-9, "levels": 1 << 20}, "leave each entry a rate"),
    ],
)
def test_bad_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        RetainOrNoise(**({"epsilon": 1.0, "domain": nz.TensorDomain((2,))} | options))


def test_a_foreign_domain_is_refused() -> None:
    with pytest.raises(TypeError, match="to be a TensorDomain"):
        RetainOrNoise(1.0, domain=nz.Interval())


def test_bad_data_are_refused() -> None:
    mechanism = RetainOrNoise(1.0, domain=nz.TensorDomain((2, 2), 0, 255))
    with pytest.raises(ValueError, match=r"Expected entries in \[0, 255\], got 300\.0 at \(0, 1\).*clip=True"):
        mechanism.privatize([[0, 300.0], [0, 0]])
    with pytest.raises(ValueError, match=r"Expected finite values, got nan at \(1, 0\)"):
        mechanism.privatize([[0, 3.0], [math.nan, 0]])
    with pytest.raises(ValueError, match=r"Expected x of shape \(\.\.\., 2, 2\), got \(4,\)"):
        mechanism.privatize(np.zeros(4))
    with pytest.raises(ValueError, match="at least one value"):
        mechanism.privatize(np.zeros((0, 2, 2)))
    with pytest.raises(ValueError, match="outside the support"):
        mechanism.aggregate(np.full((1, 2, 2), 0.5))
    with pytest.raises(ValueError, match="outside the support"):
        mechanism.aggregate(np.full((1, 2, 2), 1e300))
    assert mechanism.privatize([[0, 300.0], [0, 0]], clip=True, rng=1).shape == (2, 2)


def test_torch_in_torch_out() -> None:
    torch = pytest.importorskip("torch")
    mechanism = RetainOrNoise(4.0, domain=nz.TensorDomain((2, 2), -1, 1))
    x = torch.zeros((5, 2, 2), dtype=torch.float32)
    reports = mechanism.privatize(x, rng=7)
    assert isinstance(reports, torch.Tensor)
    assert reports.dtype == torch.float32
    np.testing.assert_allclose(reports.numpy(), mechanism.privatize(x.numpy(), rng=7), rtol=1e-6)
    assert mechanism.aggregate(reports) == mechanism.aggregate(mechanism.privatize(x.numpy(), rng=7))
    whole = mechanism.privatize(torch.zeros((2, 2), dtype=torch.uint8), rng=7)
    assert whole.dtype == torch.get_default_dtype()
    assert torch.all(x == 0)
    assert isinstance(mechanism.privatize(x.numpy(), rng=7), np.ndarray)


def test_a_million_entries() -> None:
    mechanism = RetainOrNoise(1.0, domain=nz.TensorDomain((1000, 1000), 0, 255), unit="element")
    reports = mechanism.privatize(np.full((1000, 1000), 100.0), rng=1)
    error = float(ndtri(1 - FALSE_ALARM / 2)) * math.sqrt(mechanism.choice.error / 1e6)
    assert abs(float(reports.mean()) - 100) < error


@pytest.mark.filterwarnings("ignore::noisette.guarantees.PrivacyWarning")
@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_the_published_form_chooses_nothing_and_says_so(noise: str) -> None:
    published = nz.RetainOrNoise(1.0, domain=nz.TensorDomain((2, 2)), levels=5, noise=noise, as_published=True)
    with pytest.raises(ValueError, match="without as_published for the choice"):
        _ = published.choice
