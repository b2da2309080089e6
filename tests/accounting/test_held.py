"""What accounting computes, digit by digit: every bound, and the parts that bounds are made of.

tests/accounting holds the bounds to independent values, but for what rounding, lattices and searches add on the safe
side; here nothing may move. python -m tests.accounting.test_held writes anew.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from tests.held import Held

import noisette as nz
from noisette.accounting import (
    _numbers,
    _runs,
    _sums,
    calibration,
    composition,
    conversions,
    curves,
    events,
    likelihoods,
    sampling,
    shuffling,
)
from noisette.accounting.curves import Curve
from noisette.guarantees import Guarantee, gaussian_delta, gaussian_epsilon, gaussian_mu

HELD = Held(__file__, digits=13)
CLOSE = 1e-10  # relative: most margins on the safe side show

MECHANISMS: dict[str, Callable[[], Any]] = {
    "duchi": lambda: nz.Duchi(0.7),
    "response": lambda: nz.GeneralizedRandomizedResponse(1.2, nz.Categorical(5)),
    "counts": lambda: nz.DiscreteLaplace(0.8, domain=nz.Grid(0, 12)),
    "piecewise": lambda: nz.Piecewise(1.3),
    "laplace": lambda: nz.Laplace(1.0),
    "gaussian": lambda: nz.Gaussian(1.0, 1e-6),
    "gaussian of counts": lambda: nz.DiscreteGaussian(1.0, 1e-5, domain=nz.Grid(0, 5)),
    "staircase": lambda: nz.Staircase(1.1),
}


def mechanism(name: str) -> Any:
    return MECHANISMS[name]()


def summary(values: Any) -> list[Any]:
    """Return the size of an array, its sum, a sum with weights, and some of its entries."""
    array = np.asarray(values, dtype=float).reshape(-1)
    finite = np.where(np.isfinite(array), array, 0.0)
    some = array[:: max(1, array.size // 12)]
    return [array.size, finite.sum(), (finite * np.cos(np.arange(array.size))).sum(), some]


def seen(search: Callable[..., float], limit: float, *given: Any, **options: Any) -> list[Any]:
    """Return what a search finds and every place that it looks at."""
    places: list[float] = []

    def holds(x: float) -> bool:
        places.append(x)
        return x >= limit

    found = search(holds, *given, **options)
    return [found, len(places), places[:30]]


# Sampling.


def sampled() -> list[Any]:
    cases = [
        (0.8, 1e-5, 1, 1.0, "add-remove"),
        (0.8, 1e-5, 3, 1.0, "replace"),
        (0.8, 1e-5, 1, 0.2, "add-remove"),
        (0.8, 1e-5, 1, 0.2, "replace"),
        (0.02, 1e-9, 5, 0.2, "replace"),
        (0.002, 1e-9, 5, 0.2, "add-remove"),
        (0.28, 1e-5, 4, 0.01, "add-remove"),
        (0.9, 1e-5, 6, 0.3, "add-remove"),
        (0.9, 1e-5, 6, 0.3, "replace"),
        (1.3, 1e-40, 70, 0.02, "add-remove"),
        (3.0, 0.3, 5, 0.1, "replace"),
    ]
    return [sampling.sampled_epsilon(*case) for case in cases]  # type: ignore[arg-type]


def counted() -> list[Any]:
    cases = (
        (0.001, 1e-5, 1000, 0.01),
        (0.2, 1e-7, 30, 0.2),
        (0.05, 0.9, 3, 0.1),
        (0.1, 1e-3, 2, 1e-4),
        (0.1, 1e-200, 9, 0.5),
    )
    return [[sampling.counted(*case), sampling.counted(*case, "replace")] for case in cases]


def pairs() -> list[Any]:
    told: list[Any] = []
    for relation in ("add-remove", "replace"):
        for shift, q in ((0.7, 0.3), (2.5, 0.01)):
            pair = sampling.Pair(shift, q, relation)  # type: ignore[arg-type]
            told.append([pair.delta(e) for e in (0.0, 0.05, 0.3, 1.0, 2.4, 29.9, 30.1, 80.0)])
            told.append([pair.epsilon(d) for d in (0.2, 1e-3, 1e-30)])
            pieces = pair._pieces
            told += [summary(part) for part in (pieces.low, pieces.high, pieces.log_mass, pieces.middle)]
            told.append(pieces.error * 1e12)
            points, logs = pieces.on_lattice(0.07)
            told += [summary(points), summary(np.exp(logs)), len(pair.laws), [law.way for law in pair.laws]]
            for law in pair.laws:
                told.append(
                    [law.epsilon(n, d, enough=e) for n, d, e in ((3, 1e-4, 0.0), (2, 1e-4, 1e9), (2, 1e-4, 5.0))]
                )
    return told


def sums() -> list[Any]:
    losses, logs = np.asarray([-1.0, 0.2, 0.9, 3.0]), np.log([0.2, 0.5, 0.2, 0.1])
    told: list[Any] = [_sums.cumulants(losses, logs, tilt) for tilt in (-2.0, 0.0, 0.7)]
    told += [_sums.saddle([(losses, logs, n)], target) for n in (20, 50) for target in (-3.0, -30.0)]
    told.append(_sums.saddle([(np.append(losses, 900.0), np.append(logs, -2001.0), 3)], -9.0))
    for n, tilt in ((3, 0.4), (40, 1.3)):
        lattice = _sums.LossSum.repeated(np.asarray([-20, 4, 18, 60]), logs, 0.05, tilt, n, 1e-13)
        told += [lattice.bound(-9.0), lattice._tail * 1e12, lattice._window, lattice.size, lattice._mistake * 1e13]
        told += [lattice.epsilon(target) for target in (-0.01, -5.0, -40.0, -300.0)]
    upward = _sums.LossSum.repeated(np.asarray([4, 18, 60]), np.log([0.5, 0.3, 0.2]), 0.05, 0.4, 3, 1e-13)
    told.append([upward._window, [upward.epsilon(-target) for target in np.geomspace(1e-6, 5, 60)]])
    places = np.linspace(-50, 60, 23)
    told += [sampling._log_mixture(places, m, q) for m, q in ((0.3, 0.2), (4.0, 0.01))]
    told.append(sampling._log_sum(np.asarray([[0.0, 1.0], [-900.0, -901.0], [-np.inf, -np.inf]])))
    told += [sampling._log_above(e, 0.2) for e in (0.1, 29.0, 30.0, 31.0, 800.0)]
    return told


# Numbers and searches.


def numbers() -> list[Any]:
    told: list[Any] = []
    for n in (0, 1, 5, 31, 32, 33, 200, 10**6):
        k = np.unique(
            np.clip(np.asarray([-1, 0, 1, 2, 0.3 * n, 0.33 * n, 0.4 * n, n - 1, n, n + 1]).round(), -1, n + 1)
        )
        told.append(_numbers.log_binomial(k, n, 0.3, 0.7))
    told += [
        _numbers.binomial_window(n, p, deviations=d)
        for n, p, d in ((100, 0.3, 2.0), (10**6, 0.3, 9.0), (9, 0.99, 40.0))
    ]
    told.append(_numbers.binomial_window(10**6, 0.2))
    told.append(_numbers._deviance(np.asarray([0.0, 5.0, 11.0, 12.1, 12.3, 99.0]), np.full(6, 10.0)))
    told.append(_numbers._deviance(np.asarray([3.0]), np.asarray([1e-310])))
    told.append([_numbers._log_of(value, 1 - value) for value in (0.0, 0.2, 0.5, 0.9)])
    for limit in (0.0, 0.3, 2.0, 6.9):
        told.append(seen(_numbers.least_above, limit, 0.0, 7.0, tolerance=0.01))
        for guess in (0.25, 1.9, 2.05, 8.0):
            told.append(seen(_numbers.least_above, limit, 0.0, 7.0, tolerance=0.01, guess=guess, trust=0.1))
        told.append(
            seen(
                lambda h, *a, **o: _numbers.largest_below(lambda x: not h(x), *a, **o), limit, 1e-3, 6.5, tolerance=0.01
            )
        )
    told.append(seen(lambda h, *a, **o: _numbers.largest_below(lambda x: not h(x), *a, **o), 9.0, 1e-3, 6.5))
    for power, guess in ((1.0, 3.0), (4.0, 0.01), (0.3, 90.0), (1.0, 1e-9)):
        places: list[float] = []

        def falling(x: float, power: float = power, places: list[float] = places) -> float:
            places.append(x)
            return math.inf if x < 1e-3 else 0.0 if x > 50 else 7 * x**-power

        told.append([_numbers.least_meeting(falling, 2.0, 200.0, guess=guess, tolerance=1e-3), places])
    return told


# Runs of reports and sums of many of them.


def runs() -> list[Any]:
    losses = _runs.PairLosses(
        *(np.asarray(x) for x in ([0.5, 0.3, 0.2], [0.2, 0.3, 0.5], [0.7, -0.1, -1.2], [1.0, -0.1, -0.8]))
    )
    told: list[Any] = [vars(losses.swapped()), losses.below(0.0)[1], vars(losses.below(0.9)[0]), losses.atoms()]
    told.append(_runs.PairLosses(*(np.asarray(x) for x in ([0.4, 0.0], [0.2, 0.0], [0.6, 0.1], [0.8, 0.3]))).atoms())
    lines = [
        np.asarray([[-2.0, -0.01, 0.0], [-2.5, -0.02, 0.0]]),
        np.asarray([[-9.0, 0.03, -1e-4], [-9.0, 0.02, -1e-4]]),
    ]
    for line in lines:
        for places in (5.0, 400.0, 2.0**14 - 1, 2.0**14, 2.0**14 + 1, 5e4, math.inf):
            told.append([summary(part) for part in _runs._along(line, places, 1e-5, -0.3)])
            told.append(_runs._last(line, places))
        told.append([_runs._peak(line[0], last) for last in (10.0, 1e3)])
    values = np.asarray([[[0.0, 1.0], [2.0, 4.0], [3.0, 5.0]], [[1.0, 1.0], [2.0, 7.0], [9.0, 2.0]]])
    told += [_runs._polynomials(values[:, :nodes], np.asarray([2.0, 5.0])) for nodes in (1, 2, 3)]
    for name in MECHANISMS:
        found = _runs.pair_losses(mechanism(name))
        told.append(None if found is None else [[summary(part) for part in vars(one).values()] for one in found])
    return told


def excess() -> list[Any]:
    values, weights = np.asarray([-1.3, -0.2, 0.1, 2.0]), np.asarray([0.3, 0.4, 0.2, 0.1])
    told: list[Any] = []
    for shift in (0.0, -0.4, -0.02):
        for share, users in ((0.3, 20), (0.01, 300), (0.9, 600), (1e-5, 100)):
            told.append(_sums.expected_excess(values + shift, weights, share, users))
    told.append(_sums.expected_excess(-np.abs(values), weights, 0.3, 20))
    told.append(_sums.expected_excess(np.append(values, 4000.0), np.append(0.999 * weights, 0.001), 0.5, 5000))
    term = _sums._Term.build(values - 0.3, weights, 0.4, 0.25)
    told += [vars(term), [term.reach(users) for users in (1, 3, 99, 100, 101, 9000)]]
    told.append(_sums._on_lattice(np.asarray([-1.25, 3.5, 2.0]), np.asarray([0.5, 0.3, 0.2]), 0.6))
    told.append(_sums._on_lattice(np.asarray([1.25, 3.5]), np.asarray([0.5, 0.5]), 0.6))
    told += [
        _sums._tilt(np.arange(-3.0, 4), np.log(np.asarray(w) / sum(w)))
        for w in ([7, 6, 5, 4, 3, 2, 1], [1, 1, 1, 1, 1, 1, 2])
    ]
    told += [summary(_sums._convolved(term, users, 40)) for users in (3, 60, 70, 400)]
    return told


# Shuffling.


def blankets() -> list[Any]:
    told: list[Any] = []
    for epsilon in (0.4, 2.0, 9.0):
        own = shuffling.Blanket.clones(epsilon)
        told += [
            vars(own),
            own.mu(50),
            own.delta(50, [0.0, 0.1, 0.3]),
            own.delta(3000, [0.0, 0.02, 0.3]),
            own.delta(2, 0.1),
        ]
    told.append(
        [shuffling.shuffled_closed_form(e, n, d) for e in (0.3, 3.0) for n in (100, 10**4, 10**6) for d in (1e-3, 1e-9)]
    )
    return told


def blankets_of(name: str) -> list[Any]:
    told: list[Any] = []
    for one in shuffling.blankets(mechanism(name)):
        told += [one.share, [summary(part) for part in (one.weights, one.first, one.second)], one.is_binary]
        told += [one.mu(90), one.delta(90, [0.0, 0.05])]
    return told


def shuffled_by(name: str) -> list[Any]:
    told: list[Any] = []
    for method in ("clones", "closed-form"):
        told.append(shuffling.shuffled(mechanism(name), 90, 1e-4, method=method).epsilon)  # type: ignore[arg-type]
    told.append([shuffling.shuffled_delta(mechanism(name), users, 0.1) for users in (1, 2, 90)])
    if name == "duchi":
        told.append([shuffling.shuffled(mechanism(name), 700, 1e-5, times=times).epsilon for times in (1, 3)])
    return told


def shuffles() -> list[Any]:
    told: list[Any] = []
    for epsilon in (0.9, 29.0, 31.0):
        stated = Guarantee(epsilon)
        told.append([shuffling.shuffled(stated, users, 1e-6).epsilon for users in (1, 2, 10**5)])
        told.append([shuffling.shuffled_delta(stated, 1000, at) for at in (0.0, 0.2, 0.9, 40.0)])
    return told


# Curves and composition.


def dots() -> list[Any]:
    told: list[Any] = []
    made = {
        "response": Curve.randomized_response(0.9, 0.02),
        "nothing": Curve.randomized_response(0.0, 0.3),
        "three": Curve.three_point(0.9, 0.2),
        "most": Curve.three_point(0.9, 0.99),
        "through": Curve.through(0.25, np.asarray([0.5, 0.42, 0.41, 0.2, 0.19, 0.0])),
    }
    for curve in made.values():
        told += [curve.interval, curve.deltas, curve.delta([0.0, 0.1, 0.3, 0.9, 2.0]), *curve.losses]
        told += [curve.spaced(0.4).deltas, curve.spaced(curve.interval).deltas, curve.spaced(0.45).deltas]
        told.append(curve.distribution().get_delta_for_epsilon([0.0, 0.2]))
    for name in MECHANISMS:
        for count in (2, 40):
            curve = curves.privacy_curve(mechanism(name), dots=count)
            told.append([curve.interval, summary(curve.deltas)])
    told.append(
        curves._repeated(nz.core.RepeatedEvent(mechanism("counts"), 3), Curve.randomized_response(2.4), 30).deltas
    )
    told.append(
        curves._repeated(nz.core.RepeatedEvent(mechanism("counts"), 1), Curve.randomized_response(2.4), 30).deltas
    )
    endless = nz.core.RepeatedEvent(mechanism("gaussian of counts"), 2)
    last = curves._repeated(endless, Curve.randomized_response(1.0, 0.01), 30).deltas[-1]
    assert last > 0  # what never ends has no epsilon without a delta
    told.append(last * 1e12)
    return told


def composed() -> list[Any]:
    rr = composition.randomized_response_delta
    told: list[Any] = [
        [rr(e, n, t) for t in (0.0, 0.5, 1.0, 3.0)] for e, n in ((0.5, 1), (0.5, 2), (0.1, 1000), (9.0, 3))
    ]
    told.append(
        [
            composition.randomized_response_epsilon(e, n, d)
            for e, n, d in ((0.5, 9, 0.0), (0.5, 9, 1e-3), (0.01, 10**5, 1e-9))
        ]
    )
    parts = [mechanism("counts"), mechanism("gaussian"), mechanism("laplace")]
    found = [None if composition.gdp(part) is not None else curves.privacy_curve(part, dots=60) for part in parts]
    told += [composition._common_interval(parts, found, times) for times in (1, 400, 10**9)]
    told.append([composition.as_randomized_response(mechanism(name)) for name in MECHANISMS])
    return told


SLOW: dict[str, Callable[[], Any]] = {
    "composed of three": lambda: (
        composition.compose([mechanism("duchi"), mechanism("gaussian"), mechanism("counts")], 2, delta=1e-4).epsilon
    ),
    "composed at a small delta": lambda: [
        composition.compose(mechanism("duchi"), 4, delta=1e-13).epsilon,
        composition.compose([mechanism("counts"), mechanism("response")], 300, delta=1e-13).epsilon,
    ],
    "by formula": lambda: [shuffling._by_formula(0.5, 10**4, 1e-5, times) for times in (1, 3)],
}


def composed_of(name: str) -> list[Any]:
    released = mechanism(name)
    told: list[Any] = [composition.compose(released, 3, delta=1e-4).epsilon]
    if name not in ("gaussian", "gaussian of counts"):
        told.append([composition.compose(released, 3).epsilon, composition.rdp(released, [1.5, 2.0, 9.0])])
        told.append(composition.zcdp(released))
    told.append([composition.meets(released, 2, e, 1e-4) for e in (0.5, 1.2, 1.6, 2.5, 9.0)])
    return told


def repeated() -> list[Any]:
    curve = Curve.randomized_response(0.01)
    told: list[Any] = [composition.summed_epsilon([curve], n, 1e-5) for n in (1, 999, 1000, 1001, 2000, 2500)]
    far = Curve.randomized_response(300.0)
    told += [composition.summed_epsilon([far], n, 1e-5) for n in (1, 2, 3)]
    told.append(composition.summed_epsilon([curve, Curve(0.01, curve.deltas / 2), curve], 40, 1e-9))
    told.append(composition.summed_epsilon([Curve.randomized_response(0.01, 1e-8)], 40, 1e-5))
    return told


def laid_out() -> list[Any]:
    told: list[Any] = []
    for name in ("duchi", "response", "counts", "piecewise", "staircase", "laplace"):
        made = mechanism(name)
        found = likelihoods.likelihoods(made)
        told.append(None if found is None else [summary(part) for part in vars(found).values()])
        told.append(None if found is None else list(found.pairs())[:9])
    for rate in (0.002, 3e-4):  # lattices so long that stretches of them are put together
        wide = likelihoods.likelihoods(nz.DiscreteLaplace(rate, domain=nz.Grid(0, 3)))
        told.append(None if wide is None else [summary(part) for part in vars(wide).values()])
    told.append(likelihoods._stretches(np.asarray([-3, 0, 1, 700, 704]), np.asarray([0, 1, 700])))
    made = mechanism("counts")
    told.append(likelihoods._ends(made, made.support, np.asarray([0.0, 3.0]), np.asarray([0.0, 12.0])))
    told.append(likelihoods._mesh(mechanism("piecewise"), np.asarray([-1.0, 0.123])))
    masses = np.asarray([[0.2], [0.3], [0.5]])
    for scale in (1.0, 4.0, 1 + 9e-8, 1 + 2e-7):
        logs = np.log(masses * scale)[:, None, :]
        one = likelihoods._checked(np.ones((3, 1)), logs, logs[:, :, 0] - 1, 0.25)
        told.append(None if one is None else vars(one))
    return told


# Conversions, calibration and events.


def converted() -> list[Any]:
    some = (0.01, 0.7, 3.0, 40.0)
    told: list[Any] = [[conversions.zcdp_from_pure(e), conversions.gdp_from_pure(e)] for e in some]
    told += [[conversions.zcdp_delta(r, e) for r in (0.02, 1.3)] for e in some]
    told += [
        [f(r, d) for d in (0.3, 1e-6, 1e-60)]
        for f in (conversions.zcdp_epsilon, conversions.zcdp_rho)
        for r in (0.02, 1.3)
    ]
    told += [[conversions.gdp_epsilon(m, d) for d in (0.3, 1e-6, 1e-60)] for m in (0.02, 1.3, 50.0)]
    told += [[conversions.gdp_mu(e, d) for d in (0.3, 1e-6, 1e-60)] for e in some]
    told += [[conversions.gdp_delta(m, e) for e in (0.0, 0.5, 9.0)] for m in (1e-4, 0.0099, 0.0101, 2.0, 30.0)]
    told.append(conversions.rdp_epsilon([2.0, 8.0, 32.0], [0.1, 0.4, 1.6], 1e-6))
    told += [[gaussian_epsilon(m, 0.1), gaussian_mu(m, 0.1)] for m in (0.1, 3.0, 500.0)]
    told.append(gaussian_delta(np.asarray([1e-3, 0.009, 0.011, 9.0, 90.0]), 3.0))
    return told


CALIBRATED: dict[str, Callable[[], float]] = {
    "many": lambda: calibration.calibrate(nz.Duchi, 1.0, 1e-6, times=90).epsilon,
    "pure": lambda: calibration.calibrate(nz.Duchi, 1.0, times=9).epsilon,
    "shuffled": lambda: calibration.calibrate(Guarantee, 0.5, 1e-6, users=2000).epsilon,
    "counts": lambda: (
        calibration.calibrate(
            lambda e: nz.DiscreteLaplace(e, domain=nz.Grid(0, 3)), 1.0, 1e-4, times=30, tolerance=1e-2
        ).epsilon
    ),
    "reports": lambda: calibration.report_epsilon(1.0, times=50),
    "sampled": lambda: calibration.sampled_gaussian(1.1, 1e-6, releases=4, sampling_prob=0.1).epsilon,
    "noise": lambda: calibration.noise_multiplier(2.0, 1e-6, releases=100),
    "noise by replacing": lambda: calibration.noise_multiplier(2.0, 1e-6, releases=7, relation="replace"),
    "any noise": lambda: calibration.noise_multiplier(2.0, 0.5, releases=3, sampling_prob=0.1),
    "noise of samples": lambda: calibration.noise_multiplier(1.5, 1e-5, releases=5, sampling_prob=0.1, tolerance=0.01),
    "noise of one": lambda: calibration.noise_multiplier(1.5, 1e-5, releases=1, sampling_prob=0.3, relation="replace"),
}


def happened() -> list[Any]:
    told: list[Any] = []
    for made in MECHANISMS.values():
        released = made()
        told += [str(events.event(released))[:60], events.gdp(released), events.concentration(released)]
        told.append(events.loss_distribution(released, interval=0.01).get_delta_for_epsilon(0.3))
    for stated in (Guarantee(0.0), Guarantee(1.0, 0.1), Guarantee(699.0), Guarantee(701.0), Guarantee(2.0)):
        told.append(str(events.event(stated))[:60])
    told.append(str(events.event(nz.GeneralizedRandomizedResponse(1.0, nz.Categorical(50))))[:80])
    told.append(events.loss_distribution(mechanism("gaussian")).get_delta_for_epsilon(0.3))
    return told


# Margins on the safe side are some 1e-12 of a bound: what is kept is what follows the ninth digit.


def ninth(value: float) -> float:
    """Return the digits of a number from the ninth on, as thousandths of a millionth of it, and a thousand more."""
    return 1000 + (value / float(f"{value:.9g}") - 1) * 1e9


LAST: dict[str, Callable[[], float]] = {
    "counted": lambda: sampling.counted(0.2, 1e-7, 30, 0.2),
    "counted by replacing": lambda: sampling.counted(0.05, 1e-9, 12, 0.3, "replace"),
    "one release": lambda: sampling.Pair(0.7, 0.3, "add-remove").epsilon(1e-5),
    "one release by replacing": lambda: sampling.Pair(0.7, 0.3, "replace").epsilon(1e-5),
    "no sampling": lambda: sampling.sampled_epsilon(0.8, 1e-5, 3, 1.0, "add-remove"),
    "gdp of pure": lambda: conversions.gdp_from_pure(0.7),
    "zcdp of pure": lambda: conversions.zcdp_from_pure(0.7),
    "gdp epsilon": lambda: conversions.gdp_epsilon(1.3, 1e-6),
    "gdp mu": lambda: conversions.gdp_mu(1.3, 1e-6),
    "zcdp epsilon": lambda: conversions.zcdp_epsilon(0.3, 1e-6),
    "zcdp rho": lambda: conversions.zcdp_rho(1.3, 1e-6),
    "responses": lambda: composition.randomized_response_epsilon(0.5, 9, 1e-3),
    "divergence": lambda: float(composition.rdp(Guarantee(1.0), [2.0])[0]),
    "three points": lambda: float(curves.privacy_curve(mechanism("response")).deltas[0]),
    "a curve": lambda: float(curves.privacy_curve(mechanism("counts"), dots=40).deltas[3]),
    "an excess": lambda: _sums.expected_excess(np.asarray([-1.0, 0.5]), np.asarray([0.6, 0.4]), 1e-6, 9),
    "a shuffled delta": lambda: float(shuffling.Blanket.clones(0.4).delta(50, 0.1)[0]),
    "noise": lambda: calibration.noise_multiplier(2.0, 1e-6, releases=100),
}


def last_digits() -> list[float]:
    return [ninth(story()) for story in LAST.values()]


STORIES: dict[str, Callable[[], Any]] = {
    "sampled": sampled,
    "counted": counted,
    "pairs": pairs,
    "sums": sums,
    "numbers": numbers,
    "runs": runs,
    "excess": excess,
    "blankets": blankets,
    "shuffles": shuffles,
    **{f"blankets of {name}": partial(blankets_of, name) for name in ("duchi", "response", "counts", "piecewise")},
    **{f"shuffled by {name}": partial(shuffled_by, name) for name in ("duchi", "response", "counts")},
    "dots": dots,
    "composed": composed,
    **{f"composed of {name}": partial(composed_of, name) for name in MECHANISMS},
    "repeated": repeated,
    "laid out": laid_out,
    "converted": converted,
    **{f"calibrated {name}": story for name, story in CALIBRATED.items()},
    "happened": happened,
    "last digits": last_digits,
}


STORIES |= SLOW
WEIGHTY = {*SLOW, "shuffled by duchi", "calibrated shuffled", "composed of laplace", "composed of staircase"}


@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.slow] if n in WEIGHTY else []) for n in STORIES])
def test_digits_are_the_ones_that_were_kept(name: str) -> None:
    HELD.check(name, STORIES[name](), close=3e-7 if name == "last digits" else CLOSE)


if __name__ == "__main__":
    HELD.write({name: story() for name, story in STORIES.items()})
