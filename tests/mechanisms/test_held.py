"""What mechanisms for numbers and categories compute and draw, digit by digit, at several budgets and domains.

Laws, moments and samplers have independent tests of their own; here nothing may move, the reports of a known seed
included. python -m tests.mechanisms.test_held writes anew.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import pytest
from tests.held import Held, plain

import noisette as nz
from noisette import _random, cells
from noisette.mechanisms._base import Lattice, Points, coarseness, power_of_two
from noisette.mechanisms.build import build
from noisette.mechanisms.categorical import _singer, _subsets, hadamard, memoised
from noisette.mechanisms.categorical.texts import search
from noisette.mechanisms.scalar import _lp_solve, _lp_table

HELD = Held(__file__)
NUMBERS = (
    "laplace",
    "duchi",
    "piecewise",
    "piecewise-optimal",
    "square-wave",
    "hybrid",
    "staircase",
    "scdf",
    "gaussian",
    "lp-optimal",
    "sliding-half",
)
COUNTS = ("discrete-laplace", "discrete-gaussian")
CATEGORIES = ("grr", "sue", "oue", "olh", "subset-selection", "hadamard", "pgr", "histogram")
SELECTIONS = ("privset", "drawn-option", "wheel")
DOMAINS: dict[str, Any] = {
    "numbers": nz.Interval(2, 12),
    "counts": nz.Grid(-3, 9),
    "categories": nz.Categorical(5),
    "many": nz.Categorical(37),
    "selections": nz.Selection(9, most=3),
}


def summary(values: Any) -> Any:
    """Return the shape of an array, its sum, a sum with weights, and some entries."""
    array = np.asarray(values)
    if array.dtype.kind not in "biuf":
        return str(values)[:80]
    flat = np.asarray(array, dtype=float).reshape(-1)
    flat = np.where(np.isfinite(flat), flat, -1.0)
    weights = np.cos(np.arange(flat.size))
    return [list(array.shape), float(flat.sum()), float(flat @ weights), flat[:: max(1, flat.size // 5)][:6]]


def short(thing: Any) -> Any:
    """Return a description without long lists."""
    made = plain(thing)
    if isinstance(made, dict):
        return {name: short(one) for name, one in made.items()}
    if isinstance(made, list) and len(made) > 6 and all(isinstance(one, int | float) for one in made):
        return summary(made)
    if isinstance(made, list):
        return [short(one) for one in made[:6]]
    return made


def mechanism(name: str, domain: str, epsilon: float) -> Any:
    return build(name, DOMAINS[domain], epsilon=epsilon, delta=1e-5 if "gaussian" in name else 0.0)


def values(made: Any) -> Any:
    domain = made.domain
    if isinstance(domain, nz.Categorical):
        return np.asarray([0, 1, domain.size - 1, domain.size // 2])
    if isinstance(domain, nz.Selection):
        return np.asarray([[-1, -1, -1], [0, -1, -1], [8, 3, -1], [1, 2, 5]])
    share = np.asarray([0.0, 0.013, 0.5, 0.77, 1.0])
    found = domain.low + share * (domain.high - domain.low)
    return np.rint(found) if isinstance(domain, nz.Grid) else found


def whole(name: str, domain: str, epsilon: float) -> list[Any]:
    """Return all that one mechanism says of itself, and reports of a known seed with what they add up to."""
    made = mechanism(name, domain, epsilon)
    x = values(made)
    asked = np.concatenate([x] * 30)
    reports = made.privatize(asked, rng=7)
    found: list[Any] = [short(made.spec()), short(made.guarantee.spec()), summary(reports)]
    moments = made.moments(x)
    found += [summary(moments.bias), summary(moments.variance), summary(moments.third)]
    if made.kind == "mean":
        found.append(made.worst_variance())
    found.append(summary(made.log_prob(reports[:40], asked[:40])))
    tried, seen = made.witnesses()
    found += [summary(tried), summary(seen)]
    counted = made.aggregate(reports)
    estimate = counted.estimate()
    found += [summary(estimate.value), summary(estimate.std_error), short(made.readout), short(made.two_numbers)]
    found += [
        short(made.table()),
        summary(made.code_ends[0]),
        summary(made.report_ends[0]),
        summary(made.report_ends[1]),
    ]
    if isinstance(made, cells.Dissected):
        for one in list(made.dissect())[:3]:
            found.append([summary(one.pair), [summary(node) for node in one.nodes], summary(one.log_weight)])
            found.append([summary(one.places), summary(one.span), summary(one.tilt), one.bound, one.complete])
    return found


def searched() -> list[Any]:
    """Return the texts that a search finds among reports of a known seed, with all that is said of them."""
    found: list[Any] = []
    names = np.repeat(["yes", "no", "yet", "a"], [700, 500, 260, 90])
    for epsilon, width, people in ((6.0, 4, names), (5.0, 6, names[::2])):
        made: Any = nz.PrefixExtending(epsilon=epsilon, domain=nz.Texts(width))
        total = made.tally(made.privatize(people, rng=7)).total
        got = search.search(made, total, texts=2)
        found += [got.texts, got.share, got.std_error, got.checked, got.shown, got.threshold, got.users, got.reports]
        told = search.measured(made, total, ["no", "ye"])
        found += [told.value, told.std_error, told.ends]
        groups = search._groups(made, total)
        found.append([[one.length, one.users, one.noise, one.gap] for one in groups])
        symbols = made.domain.symbols(["yes", "a"])
        found += [
            search._pooled(made.domain, groups, symbols),
            summary(groups[0].without(symbols, np.asarray([0.4, 0.1]))),
        ]
    found += [
        search.check_level(users, kept, chance)
        for users, kept, chance in ((0.5, 4, 0.2), (90, 4, 0.2), (5000, 40, 0.02))
    ]
    words, after = search.extensions(nz.Texts(3), 0, 0, 2)
    found += [
        summary(words),
        summary(after),
        [summary(part) for half in search._halves(nz.Texts(3), 0, 0, 2) for part in half],
    ]
    return found


def kept_answers() -> list[Any]:
    """Return what protocols with kept answers claim, tell and estimate."""
    found: list[Any] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for periods in (1, 2, 3, 6):
            x = np.arange(40 * periods).reshape(40, periods) % 5
            for made in (
                memoised.BiLoloha(5, periods, 2.0, 1.2),
                memoised.LongitudinalOsue(5, periods, 2.0, 1.2),
                memoised.DBitFlip(5, periods, 2.0, 2.0, bits=2),
            ):
                reports = made.privatize(x, rng=3)
                found += [made.claimed, made.linked_epsilon(), made.variance, summary(made.frequencies(reports))]
                parts = reports if isinstance(reports, tuple) else (reports,)
                found.append([summary(part) for part in parts])
        found += [[one.name, one.size, one.periods, one.epsilon, one.once] for one in memoised.published(3)]
    return found


def programmes() -> list[Any]:
    """Return the parts of the linear programme, and its optimum over few outputs."""
    outputs = np.linspace(0, 2.2, 12)
    masses = np.exp(-outputs) / 30
    found: list[Any] = [
        vars(_lp_solve.respond(outputs, masses, 5.0)),
        vars(_lp_solve.respond(3 * outputs, 2 * masses, 9.0)),
    ]
    edges = np.asarray([-0.4, 0.3, 1.1]), np.asarray([0.5, 0.9, 3.0])
    found += [summary(part) for part in _lp_solve.window_cuts(outputs, *edges, 5.0)]
    found += [summary(part) for part in _lp_solve._tail_cuts(outputs, edges[0], 5.0)]
    found += [summary(part) for part in _lp_solve._first_cuts(outputs, 5.0, 2.2)]
    solved = _lp_solve.solve(1.2, outputs, gap=1e-4)
    return [*found, round(solved.worst, 4), round(solved.bound, 4)]


def laws() -> list[Any]:
    """Return tables of windows at the budgets at which another one is taken."""
    found: list[Any] = []
    for make, epsilons in ((_lp_table.exponential, (5e-4, 0.02, 0.75)), (_lp_table.sine, (8.1, 11.0))):
        for epsilon in epsilons:
            made = make(epsilon)
            found += [made.step, summary(made.codes), summary(made.counts), made.width / 2.0**48, made.p_window]
            found += [made.epsilon, made.ratio_above, made.reach, made.worst_variance, made.mean(0.3 * 2**48)]
            last = 2.0**48 - made.width
            places = np.asarray([0.0, 0.21, 0.5, 1.0]) * last
            found += [[summary(part) for part in made.moments(places)], summary(made.place(places / last * made.reach))]
            found.append(summary(made.mass(made.codes[[0, 1, -1]].astype(float), places[:3])))
            found.append(summary([float(weight / made.total) for weight in made.weights(int(places[1]))]))
            found.append(made.farthest(0.1 * last, 0.8 * last)[:4])
            found.append(summary(made.sample(np.repeat(places, 5), np.random.default_rng(3))))
    found += [_lp_table._round_up(x) for x in (0.1, 1.0, 3.7)]
    return found


def geometries() -> list[Any]:
    """Return counts over shifts of difference sets, by every way to count."""
    found: list[Any] = []
    for prime, power, dims in ((2, 1, 4), (2, 2, 3), (3, 1, 3), (5, 1, 3), (3, 2, 2), (7, 1, 4)):
        one = _singer.Singer(prime, power, dims)
        found += [one.field, one.order, one.block, one.shared, one.taps, summary(one.members)]
        drawn = np.asarray([3, 5, 5, 0, one.order - 1, one.order // 2] * 9) % one.order
        size = one.order - 2
        each = one._count_each(drawn, size)
        found.append(summary(each))
        assert np.array_equal(each, one._count_by_fourier(drawn, size))
        assert np.array_equal(each, one.count(drawn, size))
        if one.field in (2, 4):
            assert np.array_equal(each, one._count_by_signs(drawn, size))
        if power == 1:
            assert np.array_equal(each, one._count_sheared(drawn, size))
            assert np.array_equal(each, one._count_sheared(np.tile(drawn, 9), size) // 9)
        found.append(summary(one.contains(np.arange(one.order))))
        brute = [
            sum(int((v + x) % one.order in set(one.members.tolist())) for v in drawn) for x in range(min(size, 30))
        ]
        assert each[:30].tolist() == brute
    found += [_singer.prime_powers(40), _singer.factors(360), _singer.factors(97), _singer.primitive(5, 3)]
    found += [str(_singer._holding(n)) for n in (2**16 - 1, 2**16, 2**32 - 1, 2**32)]
    found += [str(_singer._signed_holding(n)) for n in (2**15 - 1, 2**15, 2**31 - 1, 2**31)]
    found.append(hadamard.walsh_hadamard(np.asarray([3, 1, 4, 1, 5, 9, 2, 6])))
    return found


def draws() -> list[Any]:
    found: list[Any] = []
    for rate in (1e-6, 0.01, 0.3, 3.0, 40.0, 800.0):
        found.append(summary(_random.geometric(np.random.default_rng(2), rate, 300)))
        found.append(summary(_random.discrete_laplace(np.random.default_rng(3), rate, 300)))
    for sigma in (0.1, 0.7, 3.0, 50.0, 3e6):
        found.append(summary(_random.discrete_gaussian(np.random.default_rng(4), sigma, 300)))
    for high in (1, 3, 2**31, 2**48, 2**62):
        found.append(summary(_random.words(np.random.default_rng(5), high, 50)))
    found.append([summary(part) for part in _random.one_of_two(np.random.default_rng(5), 7, 90, 50)])
    found.append(summary(_random.bernoulli_threshold(np.asarray([0.0, 0.3, 1.0]))))
    found += [_subsets.bits_and_draws(size, length) for size, length in ((5, 2), (40, 3), (1000, 30), (70000, 9))]
    found += [_subsets.mask_words(size, length) for size, length in ((5, 2), (40, 3), (60, 30), (64, 9))]
    return found


def numbers() -> list[Any]:
    found: list[Any] = [[power_of_two(x) for x in (0.3, 1.0, 1.4, 1.5, 9.0)], [coarseness(x) for x in (0.1, 3.0, 1e4)]]
    found += [
        cells.log_above(Fraction(7, 3)),
        cells.up(Fraction(1, 3)),
        cells.largest_ratio([(Fraction(1, 3), Fraction(1, 5))]),
    ]
    lattice, few = Lattice(0.5, 0.25, -1.0, 2.0), Points(np.asarray([-1.0, 0.5, 2.0]))
    for support in (lattice, few):
        given = np.asarray([-1.25, -1.0, 0.5, 0.6, 2.0, 2.25])
        found += [support.index(given), support.contains(given), support.low, support.high, str(support)]
        found += [
            support.value(np.asarray([0.0, 1.0])),
            support.exact_index(np.asarray([0.5, 2.0])),
            support.exact_index(given),
        ]
    one = cells.Cells.normal((0.0, 1.0), np.asarray([0.5, 0.1]), np.asarray([0.3, 0.4]), -2.0, 3)
    found.append(short(vars(one)))
    return found


def listed() -> list[Any]:
    """Return what a search finds where everybody reports about every text there may be."""
    made: Any = nz.PrefixExtending(epsilon=2.0, domain=nz.Texts(1, alphabet="abcdef"))
    total = made.tally(made.privatize(np.repeat(["a", "c", "f"], [300, 200, 60]), rng=7)).total
    got = search.search(made, total, texts=3)
    found: list[Any] = [got.texts, got.share, got.std_error, got.checked, got.shown, got.threshold, got.users]
    told = search.measured(made, total, ["a", "b"])
    return [*found, told.value, told.std_error, told.ends]


def windows() -> list[Any]:
    """Return where the windows of the least variance lie on two domains, and which inputs have them."""
    found: list[Any] = []
    for domain in (nz.Interval(), nz.Interval(2, 12)):
        made: Any = nz.LpOptimal(1.7, domain=domain)
        places = np.linspace(*made._place(np.asarray([domain.low, domain.high])), 5)
        inputs = [made._value(place) for place in places.tolist()]
        found += [vars(made._rungs) if hasattr(made._rungs, "__dict__") else made._rungs, places, inputs]
        assert made._place(np.asarray(inputs)) == pytest.approx(places, rel=1e-6, abs=1.0)
    return found


STORIES: dict[str, Callable[[], Any]] = {
    **{
        f"{name} {domain} {epsilon}": partial(whole, name, domain, epsilon)
        for names, domains in (
            (NUMBERS, ("numbers",)),
            (COUNTS, ("counts",)),
            (CATEGORIES, ("categories", "many")),
            (SELECTIONS, ("selections",)),
        )
        for name in names
        for domain in domains
        for epsilon in (0.2, 1.7, 5.5)
        if not (name == "lp-optimal" and epsilon > 0.75)
    },
    "searched": searched,
    "kept answers": kept_answers,
    "programmes": programmes,
    "laws": laws,
    "geometries": geometries,
    "draws": draws,
    "numbers": numbers,
    "listed": listed,
    "windows": windows,
}


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.slow] if n == "searched" else []) for n in STORIES]
)
def test_digits_are_the_ones_that_were_kept(name: str) -> None:
    HELD.check(name, STORIES[name]())


if __name__ == "__main__":
    HELD.write({name: story() for name, story in STORIES.items()})
