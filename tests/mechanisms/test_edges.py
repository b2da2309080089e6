"""Guards of mechanisms for numbers, categories and selections: what is just refused, and what is just taken."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from tests.held import Held, refusal

import noisette as nz
from noisette import _random
from noisette.core import add_sums
from noisette.mechanisms._base import check_step, check_width
from noisette.mechanisms.categorical import memoised
from noisette.mechanisms.categorical._base import KeepOrReplace
from noisette.mechanisms.categorical._singer import Singer
from noisette.mechanisms.categorical.projective import CyclicNoise

HELD = Held(__file__)
CATALOGUE = nz.CATALOGUE
GRR = nz.GeneralizedRandomizedResponse(1.0, nz.Categorical(3))
PEM = nz.PrefixExtending.example(1.0)
PRIVSET = nz.PrivSet(1.0, nz.Selection(5, 2))
LAPLACE = nz.Laplace(1.0)
COUNTED = LAPLACE.aggregate([0.125, 0.25])
FIVE = np.arange(5)


def on(name: str, **options: Any) -> Callable[[Any], Any]:
    return lambda domain: CATALOGUE[name](1.0, domain=domain, **options)


EDGES: dict[str, tuple[Callable[[Any], Any], Any, Any]] = {
    "a seed": (lambda seed: LAPLACE.privatize(0.5, rng=seed), -1, 0),
    "a seed that is no number": (lambda seed: LAPLACE.privatize(0.5, rng=seed), True, np.int64(3)),
    "a rate": (
        lambda rate: _random.geometric(np.random.default_rng(1), rate, 3),
        2.0**-45 * (1 - 2.0**-53),
        2.0**-45,
    ),
    "no aggregate": (COUNTED.merge, 3, COUNTED),
    "another mechanism's aggregate": (COUNTED.merge, nz.Laplace(2.0).aggregate([0.125]), LAPLACE.aggregate([0.125])),
    "another's names": (COUNTED.merge, replace(COUNTED, names=("age",)), COUNTED),
    "sums of one entry more": (lambda sums: add_sums(FIVE, sums), np.arange(6), FIVE),
    "one sum of many that overflows": (
        lambda sums: add_sums(np.asarray([1, 2**62, 3]), sums),
        np.asarray([1, 2**62, 3]),
        np.asarray([1, 2**62 - 1, 3]),
    ),
    "a budget from below": (CATALOGUE["laplace"], math.nextafter(1e-7, 0), 1e-7),
    "a budget from above": (CATALOGUE["laplace"], math.nextafter(1e6, 2e6), 1e6),
    "a budget of categories": (
        lambda epsilon: CATALOGUE["grr"](epsilon, domain=nz.Categorical(2)),
        math.nextafter(1e-9, 0),
        1e-9,
    ),
    "a budget that keeps no category": (lambda e: KeepOrReplace.build(10**7, e), 1e-9, 2e-9),
    "a budget that no point of a ring keeps": (
        lambda e: CATALOGUE["wheel"](e, domain=nz.Selection(100, 2)),
        1e-10,
        1e-8,
    ),
    "a budget of a design": (lambda e: CyclicNoise.build(Singer(2, 1, 4), e), 1e-14, 1e-12),
    "a narrow domain": (check_width, nz.Interval(0, math.nextafter(1e-90, 0)), nz.Interval(0, 1e-90)),
    "a wide domain": (check_width, nz.Interval(0, math.nextafter(1e90, 1e91)), nz.Interval(0, 1e90)),
    "a step that is too long": (
        lambda step: check_step(step, nz.Interval(0, 3)),
        math.nextafter(3 / 2**10, 1),
        3 / 2**10,
    ),
    "a domain far from zero": (on("laplace"), nz.Interval(2.0**43, 2.0**43 + 1), nz.Interval(2.0**30, 2.0**30 + 1)),
    "categories of numbers": (on("grr"), nz.Interval(), nz.Categorical(2)),
    "numbers of categories": (on("laplace"), nz.Categorical(2), nz.Interval()),
    "selections of categories": (on("privset"), nz.Categorical(5), nz.Selection(5, 2)),
    "texts of categories": (on("pem"), nz.Categorical(5), nz.Texts(2)),
    "items of a set": (on("subset-selection"), nz.Categorical(2**31 + 1), nz.Categorical(2**31)),
    "items to hash": (on("olh"), nz.Categorical(2**31), nz.Categorical(2**31 - 1)),
    "categories of a design": (on("pgr"), nz.Categorical(2**25 + 1), nz.Categorical(2**25)),
    "options of a set": (on("privset"), nz.Selection(2**16 + 1, 2), nz.Selection(2**16, 2)),
    "options of a ring": (on("wheel"), nz.Selection(2**31 - 1, 2), nz.Selection(2**31 - 2, 2)),
    "options to choose on a ring": (on("wheel"), nz.Selection(40, 17), nz.Selection(40, 16)),
    "no category": (GRR.privatize, np.zeros(0, dtype=int), np.zeros(1, dtype=int)),
    "no category to weigh": (GRR.moments, np.zeros(0, dtype=int), np.zeros(1, dtype=int)),
    "a category from below": (GRR.privatize, [0, -1], [0, 0]),
    "a category from above": (GRR.privatize, [0, 3], [0, 2]),
    "a category that is no number": (GRR.privatize, [0.0, 1.0], [0, 1]),
    "no report": (GRR.tally, np.zeros(0, dtype=int), np.zeros(1, dtype=int)),
    "no selection": (PRIVSET.target, np.zeros((0, 2), dtype=int), np.zeros((1, 2), dtype=int) - 1),
    "a selection that is no number": (PRIVSET.target, [[0.0, 1.0]], [[0, 1]]),
    "an option from above": (PRIVSET.target, [[0, 5]], [[0, 4]]),
    "an option twice": (PRIVSET.target, [[3, 3]], [[3, 4]]),
    "no report of a prefix": (PEM.tally, np.zeros(0, dtype=np.int32), np.zeros(1, dtype=np.int32)),
    "a report of a prefix that is no integer": (PEM.tally, [1.0], [1]),
    "answers of another number of periods": (
        lambda x: memoised.BiLoloha(5, 3, 2.0, 1.2).privatize(x, rng=1),
        np.zeros((4, 2), dtype=int),
        np.zeros((4, 3), dtype=int),
    ),
    "answers in one row": (
        lambda x: memoised.BiLoloha(5, 3, 2.0, 1.2).privatize(x, rng=1),
        np.zeros(3, dtype=int),
        np.zeros((1, 3), dtype=int),
    ),
    "an answer from below": (
        lambda x: memoised.BiLoloha(5, 2, 2.0, 1.2).privatize(x, rng=1),
        np.asarray([[0, -1]]),
        np.asarray([[0, 0]]),
    ),
    "an answer from above": (
        lambda x: memoised.BiLoloha(5, 2, 2.0, 1.2).privatize(x, rng=1),
        np.asarray([[0, 5]]),
        np.asarray([[0, 4]]),
    ),
    "a first report at all of the budget": (lambda once: memoised.BiLoloha(5, 2, 2.0, once), 2.0, 1.9),
    "bits at another budget": (lambda once: memoised.DBitFlip(5, 2, 2.0, once), 1.9, 2.0),
    "values to answer with": (lambda size: memoised.DBitFlip(size, 3, 2.0, 2.0), 1, 2),
    "a period at least": (lambda periods: memoised.DBitFlip(5, periods, 2.0, 2.0), 0, 1),
    "periods": (lambda periods: memoised.DBitFlip(5, periods, 2.0, 2.0), 1001, 1000),
    "bits": (lambda bits: memoised.DBitFlip(5, 2, 2.0, 2.0, bits=bits), 6, 5),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", EDGES)
def test_what_is_just_refused_and_just_taken(name: str) -> None:
    asked, refused, taken = EDGES[name]
    HELD.check(name, refusal(lambda: asked(refused)))
    asked(taken)


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("no selection", "at least one selection"),
        ("no category", "at least one category"),
        ("no report", "at least one report"),
        ("no report of a prefix", "at least one, got"),
        ("a report of a prefix that is no integer", "to be integers"),
        ("a selection that is no number", "an array of float64"),
        ("a step that is too long", "too far from zero"),
    ],
)
def test_what_is_refused_is_named(name: str, shown: str) -> None:
    """Where another line, further on, would stop at it too, in words that help nobody."""
    asked, refused, _ = EDGES[name]
    with pytest.raises((ValueError, TypeError), match=shown):
        asked(refused)


def test_as_many_reports_as_one_sum_of_a_design_may_have(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sums of a Fourier transform are whole up to its rounding; one that is a quarter of a unit off is in doubt."""
    from scipy import fft

    design, plain = Singer(7, 1, 3), fft.irfft
    drawn = np.arange(design.order).repeat(40_000)[:2_000_000]
    wanted = design._count_by_fourier(drawn, 20)
    for off, taken in ((0.2, True), (0.24, True), (0.26, False)):

        def one_off(*given: Any, off: float = off, **named: Any) -> Any:
            sums = plain(*given, **named)
            sums[3] += off
            return sums

        monkeypatch.setattr(fft, "irfft", one_off)
        if taken:
            assert np.array_equal(design._count_by_fourier(drawn, 20), wanted)
        else:
            with pytest.raises(OverflowError, match="too many for one sum"):
                design._count_by_fourier(drawn, 20)


@pytest.mark.filterwarnings("ignore:.*published")
@pytest.mark.parametrize("name", sorted({*CATALOGUE} - {"privunit", "pgr", "lp-optimal"}))  # these take long
def test_no_budget_is_too_large_for_the_arithmetic(name: str) -> None:
    """exp(800) is no float: laws, moments and likelihoods are computed without it."""
    mechanism: Any = CATALOGUE[name].example(800.0)
    domain = mechanism.domain
    x = np.broadcast_to(domain.high, domain.shape) if hasattr(domain, "high") else mechanism.witnesses()[0][0]
    report = mechanism.privatize(x, rng=1)
    assert math.isfinite(float(np.max(mechanism.log_prob(report, x))))
    assert 0 <= float(np.max(mechanism.moments(x).variance)) < math.inf


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    HELD.write({name: refusal(partial(asked, refused)) for name, (asked, refused, _) in EDGES.items()})
