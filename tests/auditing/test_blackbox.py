"""The black-box audit: it never says too much, comes near the truth, and catches what is broken."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom

import noisette as nz
from noisette.auditing import Audit
from noisette.auditing.features import scorers, table
from noisette.auditing.intervals import rate_above, rate_below
from noisette.mechanisms.scalar._additive import LaplaceNoise

FALSE_ALARM = 1e-6
GRR = nz.GeneralizedRandomizedResponse(1.0, nz.Categorical(5))


def laplace(x: float, n: int, rng: np.random.Generator) -> np.ndarray:
    """Laplace noise for values on [-1, 1] at epsilon 1."""
    return x + rng.laplace(scale=2.0, size=n)


# it never says too much


@pytest.mark.long
@pytest.mark.parametrize("mechanism", [nz.Laplace(3.0), GRR], ids=lambda m: m.name)  # numbers, and reports that recur
def test_the_bound_is_above_the_truth_no_more_often_than_stated(mechanism: Any) -> None:
    """At confidence 0.9 a tenth of all bounds may be too high; more than the limit are so one time in a million."""
    repeats, rate = 60, 0.1
    exact = nz.exact_epsilon(mechanism)
    bounds = [nz.audit(mechanism, samples=1000, confidence=1 - rate, rng=seed).lower_bound for seed in range(repeats)]
    assert sum(bound > exact for bound in bounds) <= binom.isf(FALSE_ALARM, repeats, rate)
    assert np.mean(bounds) > 0.4 * exact, "a bound that says nothing is never wrong either"


@pytest.mark.long
def test_mu_is_above_the_truth_no_more_often_than_stated() -> None:
    repeats, rate = 60, 0.1
    audits = [
        nz.audit(
            lambda x, n, rng: rng.normal(x, 1.0, n), inputs=(0.0, 1.0), claimed=1.0, samples=1000, confidence=0.9, rng=s
        )
        for s in range(repeats)
    ]
    assert sum(audit.mu_lower_bound > 1 for audit in audits) <= binom.isf(FALSE_ALARM, repeats, rate)
    assert np.mean([audit.mu_lower_bound for audit in audits]) > 0.6


@pytest.mark.long
def test_an_event_tested_on_the_samples_that_chose_it_would_fail() -> None:
    """The twin: without fresh samples the first test sees far too many bounds above the truth."""
    repeats, rate, size = 60, 0.1, 600
    too_high = 0
    for seed in range(repeats):
        rng = np.random.default_rng(seed)
        first, second = (table(laplace(x, size, rng)) for x in (-1.0, 1.0))
        best = 0.0
        for scorer in scorers(first, second):
            one, two = scorer(first), scorer(second)
            levels = np.unique(np.concatenate([one, two]))
            hits, others = ((score[:, None] >= levels).sum(axis=0) for score in (one, two))
            low, high = rate_below(hits, size, rate / 2), rate_above(others, size, rate / 2)
            best = max(best, float(np.log(np.maximum(low, 1e-300) / high).max()))
        too_high += best > 1
    assert too_high > binom.isf(FALSE_ALARM, repeats, rate)


# it comes near the truth


@pytest.mark.slow
@pytest.mark.parametrize(
    ("cls", "epsilon"),
    [(nz.GeneralizedRandomizedResponse, 3.0), (nz.Duchi, 1.0), (nz.Piecewise, 3.0), (nz.Laplace, 1.0)],
)
def test_a_million_samples_come_near_the_exact_epsilon(cls: type[Any], epsilon: float) -> None:
    mechanism = cls.example(epsilon)
    audit = nz.audit(mechanism, samples=1_000_000, rng=7)
    assert 0.95 * epsilon <= audit.lower_bound <= nz.exact_epsilon(mechanism)


# the same four as anybody might write them: no mechanism of ours is attached


def plain_response(epsilon: float) -> Any:
    def respond(x: int, n: int, rng: np.random.Generator) -> np.ndarray:
        keep = rng.random(n) < math.exp(epsilon) / (math.exp(epsilon) + 4)
        return np.where(keep, x, (x + rng.integers(1, 5, n)) % 5)

    return respond, range(5)


def plain_duchi(epsilon: float) -> Any:
    def flip(x: float, n: int, rng: np.random.Generator) -> np.ndarray:
        return np.where(rng.random(n) < 0.5 + x / 2 * math.tanh(epsilon / 2), 1.0, -1.0) / math.tanh(epsilon / 2)

    return flip, (-1.0, 0.0, 1.0)


def plain_piecewise(epsilon: float) -> Any:
    grown = math.exp(epsilon / 2)
    reach = (grown + 1) / (grown - 1)

    def spread(x: float, n: int, rng: np.random.Generator) -> np.ndarray:
        low = (reach + 1) / 2 * x - (reach - 1) / 2
        near = low + (reach - 1) * rng.random(n)
        far = -reach + (reach + 1) * rng.random(n)
        far += np.where(far > low, reach - 1, 0.0)
        return np.where(rng.random(n) < grown / (grown + 1), near, far)

    return spread, (-1.0, 0.0, 1.0)


def plain_laplace(epsilon: float) -> Any:
    return lambda x, n, rng: x + rng.laplace(scale=2 / epsilon, size=n), (-1.0, 0.0, 1.0)


@pytest.mark.long
@pytest.mark.parametrize(  # the other four of the eight are above, as mechanisms
    ("build", "epsilon"), [(plain_response, 1.0), (plain_duchi, 3.0), (plain_piecewise, 1.0), (plain_laplace, 3.0)]
)
def test_a_million_samples_of_any_function_come_near_too(build: Any, epsilon: float) -> None:
    function, inputs = build(epsilon)
    audit = nz.audit(function, inputs=inputs, claimed=epsilon, samples=1_000_000, rng=7)
    assert 0.95 * epsilon <= audit.lower_bound <= epsilon
    assert (audit.verdict, replace(audit, claimed=0.9 * epsilon).verdict) == ("holds", "violated")


@pytest.mark.slow
def test_what_a_set_holds_tells_wherever_it_stands() -> None:
    """Of twenty-five categories a report holds nine, in order: single places say little, membership nearly all."""
    mechanism = nz.SubsetSelection(1.0, nz.Categorical(25))
    assert nz.audit(mechanism, samples=20_000, rng=7).lower_bound > 0.85


@pytest.mark.slow
def test_columns_that_say_nothing_do_not_drown_the_others() -> None:
    """Two bits of two hundred differ; summing what chance does to the others would hide them."""
    mechanism = nz.SymmetricUnaryEncoding(1.0, nz.Categorical(200))
    assert nz.audit(mechanism, inputs=(0, 1), samples=20_000, rng=7).lower_bound > 0.8


@pytest.mark.long
@pytest.mark.parametrize("name", sorted(nz.CATALOGUE))
def test_every_mechanism_shows_most_of_its_epsilon(name: str) -> None:
    """Of a mechanism with a delta no event that samples can see shows all of epsilon: there mu is looked at, if any."""
    mechanism = nz.CATALOGUE[name].example(0.7)  # where LpOptimal has a closed form
    audit = nz.audit(mechanism, samples=200_000, rng=7)
    if mechanism.guarantee.delta == 0:
        assert 0.85 * mechanism.epsilon < audit.lower_bound <= mechanism.epsilon
    else:
        mu = nz.accounting.gdp(mechanism)
        assert 0 < audit.lower_bound <= nz.exact_epsilon(mechanism, delta=audit.delta)
        assert mu is None or 0.8 * mu < audit.mu_lower_bound < mu


@pytest.mark.slow
def test_the_worst_pair_is_found() -> None:
    """Only the last two inputs are told apart by more than chance allows."""

    def uneven(x: int, n: int, rng: np.random.Generator) -> np.ndarray:
        return rng.random(n) < (0.5, 0.5, 0.5, 0.2, 0.8)[x]

    audit = nz.audit(uneven, inputs=range(5), claimed=0.1, samples=50_000, rng=7)
    assert set(audit.pair) == {3, 4}
    assert 0.9 * math.log(4) < audit.lower_bound < math.log(4)


@pytest.mark.slow
def test_delta_takes_off_what_it_allows() -> None:
    """One time in a hundred the input itself is sent: epsilon is infinite, and within delta = 0.01 it is one."""

    def leaky(x: float, n: int, rng: np.random.Generator) -> np.ndarray:
        return np.where(rng.random(n) < 0.01, x, laplace(x, n, rng))

    audits = [nz.audit(leaky, inputs=(-1.0, 1.0), claimed=1.0, delta=delta, rng=7) for delta in (0.0, 0.02)]
    assert [audit.verdict for audit in audits] == ["violated", "holds"]


# what is broken is caught


class HalvedLaplace(nz.Laplace):
    """Noise of half the scale that epsilon asks for."""

    @property
    def _noise(self) -> LaplaceNoise:
        return LaplaceNoise(2 * self.epsilon / self._steps)


def test_noise_of_half_the_scale_is_caught() -> None:
    audit = nz.audit(HalvedLaplace(1.0), samples=50_000, rng=7)
    assert (audit.claimed, audit.verdict) == (1.0, "violated")
    assert audit.lower_bound == pytest.approx(2.0, rel=0.1)


@pytest.mark.long
@pytest.mark.filterwarnings("ignore::noisette.PrivacyWarning")
@pytest.mark.parametrize("dims", [2, pytest.param(8, marks=pytest.mark.long)])
def test_ties_in_both_halves_are_caught(dims: int) -> None:
    audit = nz.audit(nz.DuchiBox(0.5, dims, as_published=True), samples=200_000, rng=7)
    assert (audit.claimed, audit.verdict) == (0.5, "violated")
    assert audit.lower_bound < math.log1p(math.exp(0.5))
    assert nz.audit(nz.DuchiBox(0.5, dims), samples=200_000, rng=7).verdict == "holds"


@pytest.mark.parametrize("share", [0.01, 0.002])
def test_an_atom_is_caught(share: float) -> None:
    def atom(x: float, n: int, rng: np.random.Generator) -> np.ndarray:
        return np.where(rng.random(n) < share, x, laplace(x, n, rng))

    assert nz.audit(atom, inputs=(-1.0, 1.0), claimed=1.0, rng=7).verdict == "violated"


@pytest.mark.slow
def test_a_budget_spent_twice_on_unary_encoding_is_caught() -> None:
    """Both the own and another bit differ between two categories; a whole epsilon for each is two in all."""

    def doubled(x: int, n: int, rng: np.random.Generator) -> np.ndarray:
        own = np.arange(6) == x
        return rng.random((n, 6)) < np.where(own, 1, math.exp(-1)) / (1 + math.exp(-1))

    audit = nz.audit(doubled, inputs=(0, 1), claimed=1.0, samples=100_000, rng=7)
    assert audit.verdict == "violated"
    assert 1.8 < audit.lower_bound < 2


@pytest.mark.slow
def test_what_a_hash_hides_is_seen_through() -> None:
    """The twin of the sound one: buckets reported without noise in one report of ten."""

    class Careless(nz.LocalHashing):
        def _fill(self, codes: Any, reports: Any, rng: np.random.Generator) -> None:
            super()._fill(codes, reports, rng)
            bare = rng.random(codes.size) < 0.1
            reports[bare, 1] = self._hash.bucket(reports[bare, 0], codes[bare])

    mechanism = nz.LocalHashing(1.0, nz.Categorical(100))
    assert nz.audit(mechanism, samples=100_000, rng=7).verdict == "holds"
    assert nz.audit(mechanism, samples=100_000, rng=7).lower_bound > 0.9
    assert nz.audit(Careless(1.0, nz.Categorical(100)), samples=100_000, rng=7).verdict == "violated"


# anybody's code


@pytest.mark.slow
@pytest.mark.parametrize(
    "shape",
    [
        lambda y: np.where(y, "yes", "no"),
        lambda y: [("yes", 1) if hit else ("no", 2) for hit in y],
        lambda y: [[1] if hit else [2, 3] for hit in y],
        lambda y: y + 1j,
        lambda y: np.where(y, np.inf, np.nan),
        lambda y: np.stack([y, 1 - y], axis=1).reshape(-1, 2, 1),
        lambda y: y.tolist(),
    ],
    ids=["words", "tuples", "ragged", "complex", "not-finite", "matrices", "list"],
)
def test_reports_of_any_shape(shape: Any) -> None:
    def response(x: int, n: int, rng: np.random.Generator) -> Any:
        return shape((rng.random(n) < (0.3, 0.7)[x]).astype(int))

    audit = nz.audit(response, inputs=(0, 1), claimed=2.0, samples=20_000, rng=7)
    assert 0.85 * math.log(7 / 3) < audit.lower_bound < math.log(7 / 3)


@pytest.mark.slow
def test_wide_reports_are_taken_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("noisette.auditing.blackbox._ENTRIES", 1 << 18)
    asked = []

    def wide(x: float, n: int, rng: np.random.Generator) -> np.ndarray:
        asked.append(n)
        return x / 8 + rng.standard_normal((n, 64))

    audit = nz.audit(wide, inputs=(0.0, 1.0), claimed=0.1, samples=20_000, rng=7)
    assert max(asked) == 2**18 / 64
    assert audit.verdict == "violated"
    assert 0.8 < audit.mu_lower_bound < 1


@pytest.mark.slow
def test_a_seed_repeats_the_audit() -> None:
    first, second, other = (nz.audit(nz.Piecewise(1.0), samples=10_000, rng=seed) for seed in (7, 7, 8))
    assert first == second
    assert first != other
    assert isinstance(nz.audit(nz.Duchi(1.0), samples=1000), Audit)


def test_what_is_claimed_can_be_said() -> None:
    assert nz.audit(nz.Duchi(1.0), claimed=0.5, samples=20_000, rng=7).verdict == "violated"
    assert nz.audit(nz.Duchi(1.0), inputs=(-0.1, 0.1), samples=20_000, rng=7).lower_bound < 0.2


def test_a_claim_for_another_unit_is_not_what_is_tested() -> None:
    @dataclass(frozen=True)
    class PerElement(nz.Duchi):
        @property
        def guarantee(self) -> nz.Guarantee:
            return nz.Guarantee(self.epsilon, claim=nz.Claim(0.1, unit="element"))

    assert nz.audit(PerElement(1.0), samples=1000, rng=7).claimed == 1.0


# bad input


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"samples": 10}, ValueError, "samples=10"),
        ({"samples": 1e6}, TypeError, "samples=1000000.0"),
        ({"confidence": 1.0}, ValueError, r"confidence=1.0 in \(0, 1\)"),
        ({"claimed": -1.0}, ValueError, "claimed=-1.0 > 0"),
        ({"delta": 1.0}, ValueError, "delta=1.0"),
        ({"inputs": (0.5,)}, ValueError, "at least two different inputs"),
        ({"inputs": (0.5, 0.5)}, ValueError, "at least two different inputs"),
        ({"inputs": (0.5, 2.0)}, ValueError, "got 2.0"),
        ({"rng": -1}, ValueError, "rng=-1"),
    ],
)
def test_bad_options_are_refused(options: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        nz.audit(nz.Duchi(1.0), **options)


def test_a_function_needs_inputs_and_a_claim() -> None:
    for options in ({}, {"inputs": (-1.0, 1.0)}, {"claimed": 1.0}):
        with pytest.raises(ValueError, match="inputs="):
            nz.audit(laplace, **options)
    with pytest.raises(TypeError, match="got str"):
        nz.audit("laplace", inputs=(0, 1), claimed=1.0)


def test_a_function_must_return_as_many_reports_as_asked() -> None:
    with pytest.raises(ValueError, match=r"Expected 200 reports about -1.0, got 199"):
        nz.audit(lambda x, n, rng: np.zeros(n - 1), inputs=(-1.0, 1.0), claimed=1.0, samples=1000, rng=7)
