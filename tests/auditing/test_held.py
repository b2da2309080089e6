"""What audits compute, digit by digit: false-alarm rates of checks, learned scores, inputs that are tried, bounds.

A check of goodness of fit answers yes or no; what is kept is the false-alarm rate from which on it complains, on data
in which one thing is wrong. tests/auditing holds the same functions to independent values, and to mechanisms that are
sound or broken. python -m tests.auditing.test_held writes anew.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from experiments.claims import lower_error
from tests.held import Held

import noisette as nz
from noisette.auditing import (
    blackbox,
    exact,
    features,
    goodness,
    independence,
    inputs,
    intervals,
    membership,
    one_run,
)
from noisette.mechanisms._base import Lattice
from noisette.mechanisms.vector.sampled import Reports

HELD = Held(__file__)


def critical(check: Callable[[float], str | None], high: float = 300.0) -> list[Any]:
    """Return the least false-alarm rate at which a check complains, and what it says; None if it never does."""
    low = -700.0
    if check(math.exp(high)) is None:
        return [None, None]
    if check(math.exp(low)) is not None:
        return ["always", check(math.exp(low))]
    while high - low > 1e-4:
        middle = (low + high) / 2
        low, high = (low, middle) if check(math.exp(middle)) is not None else (middle, high)
    return [round(high, 3), check(math.exp(high))]


def looked(check: Callable[[float], str | None]) -> list[Any]:
    """Return the chances that a check computes while it complains of nothing, and from when on it would."""
    found: list[float] = []
    with pytest.MonkeyPatch.context() as patch:
        for name in ("_chi_square", "_poisson_tail", "chdtrc", "bdtrc"):
            usual: Any = getattr(goodness, name)
            patch.setattr(
                goodness,
                name,
                lambda *given, usual=usual: found.append(float(np.min(made := usual(*given)))) or made,  # type: ignore[func-returns-value]
            )
        said = check(1e-300)
    return [found[:40], said]


def uniform(size: int, turn: float = 0.0) -> np.ndarray:
    """Return numbers between 0 and 1."""
    return np.random.default_rng(round(1e4 * turn)).random(size)


class Bell:
    """A law of numbers on a lattice, with a stated density: logistic, of a width, with a peak at some places."""

    domain = nz.Interval(-10, 10)
    report_shape = ()

    def __init__(self, step: float, width: float = 1.0, peak: float = 0.0, density: bool = False) -> None:
        self.support = Lattice(origin=0.25, step=step)
        self.width, self.peak, self.density = width, peak, density

    def masses(self, place: np.ndarray) -> np.ndarray:
        edge = np.asarray(place, dtype=float) * self.support.step / self.width
        half = self.support.step / self.width / 2
        return (1 / (1 + np.exp(-edge - half)) - 1 / (1 + np.exp(-edge + half))) * (1 - self.peak)

    def log_prob(self, reports: Any, x: Any) -> np.ndarray:
        place = np.rint((np.asarray(reports, dtype=float) - np.asarray(x, dtype=float)) / self.support.step)
        unit = math.log(self.support.step) if self.density else 0.0
        return np.log(np.maximum(self.masses(place), 1e-300) + self.peak * (place == 3)) - unit

    def reports(self, size: int, x: float, turn: float = 0.0, width: float | None = None) -> np.ndarray:
        u = np.random.default_rng(round(1000 * turn) + size).random(size)
        own = np.rint((width or self.width) * np.log(u / (1 - u)) / self.support.step)
        return np.asarray(self.support.value(self.support.index(np.asarray(x)) + own))


def fits(size: int) -> list[Any]:
    """Return when the fit on a lattice complains: of a wrong width, a shift, parity, rests, tails and repeats."""
    told = []
    for name in ("plain", "wide", "shifted", "odd", "rests", "tail", "peak", "gap"):
        for law in (Bell(2.0**-30), Bell(0.125)):
            y = law.reports(size, 0.25)
            place = law.support.index(y)
            if name == "wide":
                y = law.reports(size, 0.25, width=1.03)
            elif name == "shifted":
                y = law.support.value(place + np.rint(0.06 / law.support.step))
            elif name == "odd":
                y = law.support.value(place + (np.arange(size) % 9 == 0) * (place % 2))
            elif name == "rests":
                y = law.support.value(place - (np.arange(size) % 3 == 0) * (np.mod(place, 16) == 5) * 4)
            elif name == "tail":
                y = np.where((y > 5.0) & (np.arange(size) % 2 == 0), y - 10.0, y)
            elif name == "peak":
                y = np.where(np.arange(size) % 700 == 3, law.support.value(law.support.index(np.asarray(0.25)) + 3), y)
            elif name == "gap":
                y = np.where((y > 0.5) & (y < 0.6), y + 0.1, y)
            fit = functools.partial(goodness.fit, law, 0.25, [y[: size // 3], y[size // 3 :]])
            told.append(
                [size, name, *looked(fit), *(critical(fit) if size == 1150 and name in ("odd", "peak") else [])]
            )
    return told


def peaks(density: bool) -> list[Any]:
    """Return when the fit complains where one place has a mass of its own, stated or not, as a density or a mass."""
    told = []
    for stated, sent in ((0.02, 0.025), (0.02, 0.0), (0.0, 0.001), (0.4, 0.41)):
        law = Bell(2.0**-25, peak=stated, density=density)
        y = law.reports(9000, 1.0, turn=0.3)
        often = (np.arange(9000) < round(9000 * sent))[np.argsort(uniform(9000, 0.7))]
        y = np.where(often, law.support.value(law.support.index(np.asarray(1.0)) + 3), y)
        fit = functools.partial(goodness.fit, law, 1.0, [y])
        told.append([stated, sent, *looked(fit), *(critical(fit) if sent == 0.025 else [])])
    return told


class Flat:
    """A law that is flat on a lattice with ends, and has a second place of mass beside a first one, or none."""

    domain = nz.Interval(-10, 10)
    report_shape = ()

    def __init__(self, places: int, pair: float = 0.0) -> None:
        self.support = Lattice(origin=0.5, step=2.0**-20, low=0.5, high=0.5 + (places - 1) * 2.0**-20)
        self.places, self.pair = places, pair

    def log_prob(self, reports: Any, x: Any) -> np.ndarray:
        place = self.support.index(np.asarray(reports, dtype=float))
        tall = self.pair * ((place == 40_000) + 0.5 * (place == 40_001))
        return np.log((1 - 1.5 * self.pair) / self.places + tall) + 0.0 * np.asarray(x, dtype=float)

    def reports(self, size: int, less: int = 0) -> np.ndarray:
        place = np.floor((self.places - less) * uniform(size, 0.3))
        place[: round(self.pair * size)], place[-round(0.5 * self.pair * size) or size :] = 40_000, 40_001
        return np.asarray(self.support.value(place[np.argsort(uniform(size, 0.6))]))


def edges() -> list[Any]:
    """Return what checks say at the sizes from which on they look, of laws with ends, pairs of peaks, and vectors."""
    told: list[Any] = []
    for pair in (0.0, 0.05):
        for size, less in ((999, 0), (1000, 0), (1001, 0), (9000, 0), (9000, 3000)):
            law = Flat(70_000, pair)
            fit = functools.partial(goodness.fit, law, 1.0, [law.reports(size, less)])
            told.append([*looked(fit), fit(0.5)])
    cube = Cube(2.0**-20, 2)
    y = cube.reports(600, np.zeros(2))
    y[:5] = y[5]
    told.append(critical(functools.partial(goodness.fit, cube, np.zeros(2), [y[:300], y[300:]])))
    bell = Bell(2.0**-20, density=True)
    near = bell.reports(4000, 0.25)
    near[:9] = 0.25
    told += [
        critical(functools.partial(goodness.shown, law, 0.25, np.split(near, 4))) for law in (bell, Bell(2.0**-20))
    ]
    masses = np.asarray([0.1, 0.3, 0.099, 0.5])
    for counts in ([90, 320, 99, 491], [100, 300, 99, 501], [40, 300, 60, 600]):
        told.append(critical(functools.partial(goodness._counted, masses, np.asarray(counts), 1000)))
    for size in (40, 63, 64, 127, 128, 1500, 5000):
        rows = np.rint(1e5 * uniform(size, 0.2))[:, None]
        rows[: size // 3] = rows[size // 3 : 2 * (size // 3)]
        for step in (1.0, 2000.0):
            told.append(critical(functools.partial(goodness.collisions, SimpleNamespace(step=step), rows)))
    half = np.concatenate([np.rint(1e6 * uniform(900, 0.4)), np.full(1100, 77.0)])
    third = np.concatenate([np.rint(1e6 * uniform(1300, 0.4)), np.full(1900, 77.0)])
    for places in (half, third):
        rows = np.column_stack([places, places])
        told.append(looked(functools.partial(goodness.last_bits, SimpleNamespace(step=1.0), rows, rows[::-1] + 3)))
    law = SimpleNamespace(support=SimpleNamespace(step=4.0))
    told += [goodness._unit(law, np.log([1e-3, share]), width) for width in (1, 2, 3) for share in (1e-4, 0.05, 0.3)]
    parts = {"step": 1.0, "value": 0, "index": 0}
    told += [
        goodness._is_lattice(SimpleNamespace(**{k: v for k, v in parts.items() if k != out})) for out in ("", *parts)
    ]
    told.append(goodness._is_lattice(SimpleNamespace(step=1, value=0, index=0)))
    compact = Reports(np.asarray([[0, 3], [2, 1]]), np.asarray([[0.5, 1.5], [2.5, 3.5]]))
    told += [vars(goodness.joined([compact])), vars(goodness.joined([compact, compact])), goodness.joined([np.ones(2)])]
    told.append(goodness._same_width([np.ones((1, 2)), np.ones((1, 3))]))
    return told


class Cube:
    """A law of vectors on a lattice: each entry logistic."""

    def __init__(self, step: float, dims: int, steep: float = 0.0) -> None:
        self.support = SimpleNamespace(step=step, origin=0.5)
        self.domain = nz.L2Ball(dims, radius=2.0)
        self.report_shape = (dims,)
        self.dims, self.steep = dims, steep

    def log_prob(self, reports: Any, x: Any) -> np.ndarray:
        away = np.abs(np.asarray(reports) - np.asarray(x)) * (1 + self.steep * np.arange(self.dims))
        return (-away - 2 * np.log1p(np.exp(-away))).sum(axis=-1)

    def reports(self, size: int, x: np.ndarray, turn: float = 0.0) -> np.ndarray:
        u = np.random.default_rng(round(1000 * turn)).random((size, self.dims))
        raw = x + np.log(u / (1 - u))
        return 0.5 + self.support.step * np.rint((raw - 0.5) / self.support.step)


def whole_values(dims: int) -> list[Any]:
    """Return when reports show a vector, an entry of it, or its direction, from how many on."""
    told: list[Any] = []
    x = np.linspace(0.3, 0.9, dims) / math.sqrt(dims)
    for steep in (0.0, 3e6):
        law = Cube(2.0**-20, dims, steep)
        step, own = law.support.step, 0.5 + law.support.step * np.rint((x - 0.5) / law.support.step)
        for shown in (0, 2, 7):
            vectors, entry, line, near = (law.reports(1500, x) for _ in range(4))
            vectors[:shown] = own + step * np.asarray([1, -1, 0, 2, 0, 1, 0])[:shown, None]
            vectors[10:30] = own + step * np.linspace(-140, 140, 20).round()[:, None]
            entry[:shown, dims // 2] = own[dims // 2]
            entry[10:40, -1] = own[-1] + step * np.linspace(-135, 135, 30).round()
            line[:shown] = np.linspace(1, 3, shown)[:, None] * own
            near[: 3 * shown, 0] = own[0] + step * np.linspace(-3, 3, 3 * shown).round()
            for made in (vectors, entry, line, near):
                for check in (goodness.shown_whole, goodness.shown_in_part):
                    asked = functools.partial(check, law, x, [made[:600], made[600:]])
                    told.append(looked(asked) + (critical(asked) if shown == 7 else []))
    y = law.reports(40, x)
    for support, shape in (
        (SimpleNamespace(step=1), dims),
        (SimpleNamespace(step=1.0, real=True), dims),
        (law.support, 9),
    ):
        broken = SimpleNamespace(support=support, report_shape=(shape,), domain=law.domain, log_prob=law.log_prob)
        told += [check(broken, x, [y], 1e9) for check in (goodness.shown_whole, goodness.shown_in_part)]
    return told


def cleared(count: int, copies: int) -> list[Any]:
    """Return when reports about many inputs keep a distance, stay the same or repeat."""
    told = []
    law = Bell(2.0**-12)
    x = np.repeat(-9 + 18 * uniform(count), copies)
    u = uniform(x.size, 0.4)
    y = law.support.value(law.support.index(x) + np.rint(np.log(u / (1 - u)) / law.support.step))
    for moved in (0, 4, 9):
        made, same = y.copy(), y.copy()
        chosen = np.arange(moved) * 7 % x.size
        made[chosen] = law.support.value(law.support.index(x[chosen] + 5 * law.support.step))
        same[: moved * copies] = np.repeat(same[: moved * copies : copies], copies)
        for reports in (made, same):
            told.append(critical(functools.partial(goodness.in_the_clear, law, x, reports, copies)))
            told.append(looked(functools.partial(goodness.in_the_clear, law, x, reports, copies)))
            for more in (0.0, 20.0):
                flat: Any = SimpleNamespace(log_prob=lambda y, x, more=more: law.log_prob(y[:, 0], x[:, 0]) + more)
                told.append(critical(functools.partial(goodness.frozen, flat, x[:, None], reports[:, None], copies)))
                few = np.where(uniform(len(reports), 0.8) < 0.6, np.rint(reports), reports)[:, None]
                told.append(critical(functools.partial(goodness.frozen, flat, x[:, None], few, copies)))
    return told


def bits(kind: int) -> list[Any]:
    """Return when last bits, and entries that repeat, are complained of."""
    told = []
    size = 4000
    base = np.rint(1e6 * np.log(uniform(size) / (1 - uniform(size))))
    one, two = base.copy(), np.rint(1e6 * uniform(size, 0.2))
    one -= (kind == 1) * (np.arange(size) % 11 == 0) * (one % 2)
    one -= (kind == 2) * (np.arange(size) % 5 == 0) * (np.mod(one, 16) == 3) * 2
    two += (kind == 3) * (two > np.median(two)) * (np.arange(size) % 9 == 0) * (np.mod(two, 2) == 0)
    two[: 1200 * (kind == 4)] = two[0]
    columns = [np.column_stack([base, one, base]), np.column_stack([two, two, base + 1])]
    rows = [0.5 * (part if kind != 5 else part[:, :2]) + 1.25 for part in columns]
    for support in (SimpleNamespace(step=0.5, origin=1.25), SimpleNamespace(step=0.5), SimpleNamespace(step=2)):
        told.append(critical(functools.partial(goodness.last_bits, support, *rows)))
        told.append(looked(functools.partial(goodness.last_bits, support, *rows)))
    for support in (SimpleNamespace(step=0.5, origin=1.25), SimpleNamespace(step=64.0)):
        told.append(critical(functools.partial(goodness.collisions, support, rows[0])))
    return told


def dependent(calls: int) -> list[Any]:
    """Return when reports of one call, or at one place of several, are said to depend on each other."""
    told = []
    for tied in (0.0, 0.03, 0.3):
        table = np.stack([uniform(2001, 0.13 * k * k) for k in range(calls)])
        often = uniform(2001, 0.5) < tied
        across, along = np.where(often, table[0], table), table.copy()
        along[:, 1::2] = np.where(often[1::2], along[:, :-1:2][:, : often[1::2].size], along[:, 1::2])
        for made in (across, along, np.floor(5 * across), np.floor(2 * along)):
            told.append(looked(functools.partial(goodness.independence, list(made))))
            if calls == 3:
                told.append(critical(functools.partial(goodness.independence, list(made))))
    return told


def repeated() -> list[Any]:
    """Return when draws are said to be unlike, and reports to repeat."""
    told = []
    for share in (0.0, 0.03, 0.2):
        u = uniform(3000, 0.3)
        first, second = np.floor(7 * u**2), np.floor(7 * uniform(2500, 0.1) ** (2 + share))
        told.append(critical(functools.partial(goodness.unlike, first, second)))
        pair = np.column_stack([first, np.floor(300 * u)]), np.column_stack([second, np.floor(200 * second)])
        told.append(critical(functools.partial(goodness.unlike, *pair)))
    for n in (99, 100, 199, 200, 201):
        told.append(critical(functools.partial(goodness.unlike, np.zeros(n), np.ones(n))))
    counts, masses = np.asarray([3, 2, 1, 1, 5, 1]), np.asarray([1e-3, 1e-3, 2e-3, 1e-4, 1e-3, 1e-5])
    told.append(critical(functools.partial(goodness._repeats, masses, counts, 13)))
    for twice in (20, 60, 200):
        twin, mass = np.where(np.arange(3000) < twice, 2, 1), 1e-6 * (1 + np.arange(3000) % 7)
        told.append(critical(functools.partial(goodness._repeats, mass, twin, int(twin.sum()))))
        told.append(critical(functools.partial(goodness._repeats, 200 * mass, twin, int(twin.sum()))))
    return told


def sums() -> list[Any]:
    """Return sums of functions of whole numbers: smooth, with jumps, with peaks, over short and long stretches."""
    edges = np.asarray([-7.0, 25.0, 26.0, 58.0, 1000.0, 1e6, 3e6 + 17])
    made: list[Callable[[np.ndarray], np.ndarray]] = [
        lambda k: np.exp(-np.abs(k - 40) / 300),
        lambda k: 1 / (1 + ((k - 1.3e6) / 4e4) ** 2),
        lambda k: (k > 700) * 2.0 + (k > 2e6) * 5.0,
        lambda k: np.exp(-(((k - 2e6) / 5e3) ** 2) / 2) + 1e-9,
    ]
    chi = [
        goodness._chi_square([130, 90, 101, 3], [110, 105, 100, 9.0]),
        goodness._chi_square([130, 90, 50, 71], [110, 105, 60, 70.0]),
        goodness._chi_square([130, 90, 40], [110, 105, 1.0]),
        goodness._chi_square([130, 90, 80], [110, 105, 1.0]),
        goodness._chi_square([130], [110.0]),
        [goodness._poisson_tail(count, 3.5) for count in (3, 4, 9)],
    ]
    units = [goodness.units(SimpleNamespace(step=step)) for step in (0.25, 2)]
    logs = [np.log([0.5, 0.3, 0.2]), np.log([0.6, 0.3, 0.2]), np.log([40.0, 30.0]), np.asarray([99.0])]
    for step in (0.25, 1 / 64, 4.0):
        law: Any = SimpleNamespace(support=SimpleNamespace(step=step))
        units += [[goodness._unit(law, one, width) for width in (None, 1, 2, 3)] for one in logs]
    return [[goodness.integrate(one, edges) for one in made], chi, units]


def rows_of(kind: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return two samples and reports to score."""
    size = 240
    grid = np.stack([uniform(size, 0.17 * k * k) for k in range(40)], axis=1)
    first, second = np.log(grid / (1 - grid)), np.log(grid[::-1] / (1 - grid[::-1])) * 1.2
    first = first + 0.4 * np.sin(np.arange(40))
    if kind == "one":
        return first[:, :1], second[:, 1:2], first[:30, 2:3]
    if kind == "whole":
        return (
            np.floor(4 + first[:, :3]),
            np.floor(4.5 + second[:, 1:4]),
            np.floor(4 + first[:40, 4:7] * 1.5) + 0.5 * (np.arange(40) % 5 == 0)[:, None],
        )
    if kind == "missing":
        hole = lambda rows, turn: np.where(uniform(rows.size, turn).reshape(rows.shape) < 0.2, np.nan, rows)  # noqa: E731
        return hole(first[:, :4], 0.1), hole(second[:, :4], 0.9), hole(first[:30, 5:9], 0.4)
    if kind == "many":
        return first[:, :33], second[:, 2:35], first[:20, 3:36]
    return first[:, :5], second[:, 2:7], first[:30, 8:13]


def learned() -> list[Any]:
    told: list[Any] = []
    for kind in ("one", "whole", "missing", "many", "plain"):
        first, second, asked = rows_of(kind)
        told.append([scorer(asked) for scorer in features.scorers(first, second)])
    clear = features._independent(np.floor(rows_of("plain")[0]), np.floor(rows_of("plain")[1]) + 1, 16, clear=4.0)
    told.append(clear(rows_of("plain")[2]))
    wide = np.sin(np.arange(6 * 1025.0)).reshape(6, 1025)
    told += [[part[:9] for part in features._directions(wide[:, :n], 2 * wide[::-1, :n] + 0.1)] for n in (1024, 1025)]
    told.append(features._directions(np.zeros((4, 3)), np.ones((4, 3))))
    for low, high, columns in ((0, 2, 3), (0, 3, 3), (0, 4096, 2), (0, 4097, 2), (-3, 40, 2)):
        ends = np.linspace(low, high, 20 * columns).round().reshape(20, columns)
        made = list(features._members(np.repeat(ends, 9, axis=0), np.repeat(ends[:11], 7, axis=0)))
        told.append([one(np.vstack([ends, ends + 0.5, ends - 1, ends + 1])) for one in made])
    told.append(features._ratio((np.asarray([3, 0, 9]), np.asarray([1, 2, 2]))))
    compact = Reports(np.asarray([[0, 3], [2, 1]]), np.asarray([[0.5, 1.5], [2.5, 3.5]]))
    told += [features.table(one) for one in (compact, [1 + 2j, 3j], ["a", "b", "a"], [[1], [1, 2]], [np.inf, -1e308])]
    told.append(features.row_keys(np.asarray([[0.0, 1.5], [-0.0, 1.5], [1.5, 0.0]])).astype(str))
    return told


DOMAINS: dict[str, Any] = {
    "few": nz.Categorical(24),
    "many": nz.Categorical(25),
    "selection": nz.Selection(9, most=4),
    "interval": nz.Interval(-3, 7),
    "grid": nz.Grid(-2, 11, step=0.5),
    "box": nz.Box(3, [-1, 0, 2], [1, 5, 2.5]),
    "tensor": nz.TensorDomain((2, 3), low=-2, high=5),
    "ball": nz.L2Ball(4, radius=3.0),
    "sphere": nz.Sphere(3),
    "tensor ball": nz.TensorBall((2, 2), radius=0.5),
    "texts": nz.Texts(longest=6),
    "attributes": nz.Attributes([nz.Categorical(3), nz.Interval(2, 9)]),
    "wide": nz.Interval(-1e5, 3e5),
    "narrow": nz.Interval(0.9993, 1.0004),
    "large grid": nz.Grid(0, 5000),
    "unit": nz.Box(2),
}


def tried() -> list[Any]:
    told: list[Any] = []
    for domain in DOMAINS.values():
        for count in (1, 6, 7):
            told.append(inputs.drawn(domain, np.random.default_rng(5), count))
        values = inputs.written(domain)
        told.append([values.shape, values[:: max(1, len(values) // 40)], values.sum()])
    told.append(inputs._shares(nz.TensorDomain((3, 3)), np.random.default_rng(5), 2))
    told.append(
        [inputs._multiples(*given) for given in ((-0.5, 0.5, 4), (0.1, 0.9, 10, 8), (0.1, 0.9, 10, 9), (0.2, 0.3, 4))]
    )
    for made in (nz.Duchi(1.0), nz.RetainOrNoise(epsilon=1.0, domain=nz.TensorDomain((2, 2), 0, 255), unit="element")):
        told.append([list(group) for group in inputs.groups(made, np.random.default_rng(3), 5)])
    return told


def bounds() -> list[Any]:
    told: list[Any] = []
    for hits, other, size in ((90, 7, 100), (990, 700, 1000), (3, 0, 50), (50, 50, 50), (0, 0, 9)):
        for delta in (0.0, 0.03):
            for weight in (0.5, 0.3, 0.85):
                told.append(
                    intervals.lower_bounds(hits, other, size, delta=delta, confidence=0.97, weight=weight, shares=60)
                )
            told.append(intervals.promised_bounds([hits], [other], size, delta=delta, deviations=2.2))
            rates = hits / size, other / size
            told.append([intervals.best_weight(rates, size, delta=delta, confidence=0.97, quantity=q) for q in (0, 1)])
    told.append(intervals.lower_bounds(900, 100, 1000, delta=0.01, confidence=0.95))
    told.append([intervals._exponential_limit(w, risk) for w in (0.15, 0.5, 0.7) for risk in (0.3, 0.01, 1e-9)])
    for counts in ((40, 50, 200), (9, 9, 9), (0, 4, 8), (26, 50, 100), (180, 200, 200)):
        for delta in (0.0, 1e-3, 0.05):
            told.append([one_run.one_run_epsilon(*counts, delta=delta, confidence=0.9), one_run.one_run_mu(*counts)])
    curve = lambda x: x**2 / 2  # noqa: E731
    told.append([one_run.refuted_by_curve(n, 20, 30, 0.05, curve) for n in range(21)])
    told.append([one_run.refuted_by_curve(n, 20, 20, 0.3, lambda x: x / 3) for n in range(21)])
    u, v = uniform(301), uniform(257, 0.4)
    for shift, delta in ((0.0, 0.0), (0.4, 0.0), (1.5, 0.02)):
        told.append(
            membership.evaluate(np.log(u / (1 - u)) + shift, np.log(v / (1 - v)), delta=delta, confidence=0.9, rng=3)
        )
    told.append(
        [
            found.words(claimed)
            for found in (membership.evaluate(u, v), membership.evaluate(3 * u, v))
            for claimed in (None, 0.1, 9.0)
        ]
    )
    shadow = np.stack([uniform(40, 0.07 * k * k) for k in range(12)])
    seen = uniform(480, 0.3).reshape(12, 40) < 0.4
    seen[0], seen[1] = True, False
    own, asked = uniform(40, 0.9), uniform(25, 0.2)
    told.append(membership.likelihood_ratio_scores(own, shadow, seen))
    told.append(membership.likelihood_ratio_scores(own, shadow))
    for inside in (None, seen):
        for given in ({}, {"gamma": 1.7, "slope": 0.6}):
            far = np.stack([uniform(25, 0.05 * k * k) for k in range(12)])
            told.append(membership.relative_scores(own, shadow, asked, far, inside=inside, **given))
    told.append([membership._logits([0.0, 0.2, 1.0]), membership._chances([0.0, 0.2, 1.0], "x")])
    for count in (63, 64):
        values = np.stack([uniform(5, 0.31 * k * k) for k in range(2 * count)])
        side = np.arange(2 * count)[:, None] % 2 == np.arange(5) % 2
        told.append(membership._moments(values, side))
    told.append(membership._moments(np.ones((3, 2)), np.asarray([[1, 0], [0, 1], [0, 0]], dtype=bool)))
    told.append(lower_error(7, 0.6, 0.5, collections=300, seed=2))
    return told


def outside() -> list[Any]:
    """Return audits from the outside, each number of which depends on all choices before."""
    told = []
    for target, given in (
        (nz.Duchi(1.0), {}),
        (nz.GeneralizedRandomizedResponse(1.0, nz.Categorical(4)), {"inputs": (0, 1, 3)}),
        (nz.Laplace(1.0), {}),
        (nz.Piecewise(0.15), {}),  # little to see: chosen with the least caution
        (
            lambda x, n, rng: x + rng.laplace(scale=2.0, size=(n, 3)),
            {"inputs": (0.0, 1.0, 1.5), "claimed": 0.4, "delta": 0.01},
        ),
    ):
        made = blackbox.audit(target, samples=3000, rng=5, **given)
        told.append([made.lower_bound, made.claimed, made.delta, made.event_rates, made.mu_lower_bound, str(made.pair)])
    return told


def runs() -> list[Any]:
    """Return sums over runs of reports: level, straight and bent ones, short and long, tilted and endless."""
    told: list[Any] = []
    lines = [np.asarray(one) for one in ([-2.0, -0.01], [-3.0, 0.02], [-2.5, -0.01], [-1.0, -0.5], [-math.inf, 0.0])]
    for own in lines[:-1]:
        for other in lines:
            for places in (1.0, 2.0, 90.0):
                told.append([exact._run_sum(own, other, places, tilt) for tilt in (0.0, 0.01)])
    told.append(exact._run_sum(lines[0], lines[2], math.inf, 0.0))
    bent = np.asarray([-1.0, 0.3, -0.002]), np.asarray([-1.5, 0.25, -0.002])
    told += [exact._run_sum(*bent, places, tilt) for places in (5.0, 400.0) for tilt in (0.0, 0.003)]
    long = np.asarray([-15.0, 1e-6, -1e-13]), np.asarray([-14.5, 2e-7, -1e-13])
    told += [exact._run_sum(*long, places, 1e-8) for places in (2.0**20, 2.0**20 + 1, 3e6)]
    told += [exact._geometric(np.asarray([-1.0, slope]), 3.0, 9.0) for slope in (0.0, 0.2, -0.2)]
    told += [
        exact._positive(np.asarray(line), -5.0, 9.0)
        for line in ([1.0, 0.0], [0.0, 0.0], [-3.0, 1.0], [2.5, -1.0], [1.0, 0.1])
    ]
    visible = ([0.0, -1.0], [0.0, 2.0], [0.0, 0.3, -0.002], [0.0, -0.3, -2.0], [0.0, 0.0], [0.0, -0.5, 0.001])
    told += [exact._visible(np.asarray(line), low, 5000.0) for line in visible for low in (-4000.0, 17.0)]
    told.append(exact._visible(np.asarray([0.0, 0.0]), 3.0, 2.0))
    values = np.asarray([[[0.0, 1.0], [2.0, -math.inf], [3.0, 5.0]], [[1.0, 1.0], [2.0, 7.0], [9.0, 2.0]]])
    span = np.asarray([2.0, 5.0])
    told += [exact._through(values[:, :nodes], span) for nodes in (1, 2, 3)]
    told += [exact._least(lambda e, limit=limit: e < limit) for limit in (-1.0, 0.3, 1.0, 77.7, 9e5, 2e6)]
    told.append(exact._rounding(np.asarray([[1.0, -50.0, -math.inf], [2.0, 3.0, 100.0]])) * 1e15)
    return told


EXACT: dict[str, Callable[[], Any]] = {
    "duchi": lambda: nz.Duchi(0.7),
    "laplace": lambda: nz.DiscreteLaplace(0.8, domain=nz.Grid(0, 12)),
    "gaussian": lambda: nz.DiscreteGaussian(1.0, 1e-5, domain=nz.Grid(0, 5)),
    "piecewise": lambda: nz.Piecewise(1.3),
    "response": lambda: nz.GeneralizedRandomizedResponse(0.9, nz.Categorical(5)),
    "staircase": lambda: nz.Staircase(1.1),
}


def exactly() -> list[Any]:
    told = []
    for make in EXACT.values():
        made = make()
        told.append([exact.exact_epsilon(made), *(exact.exact_delta(made, e) for e in (0.0, 0.3, 0.69, 2.0))])
        told.append([exact.exact_epsilon(made, delta=d) for d in (0.5, 0.02)])
        told.append([str(part) for part in exact.worst_pair(made, 0.3)])
        told.append(exact._witnessed(made)[0])
    levelled = nz.LevelledResponse((-1.0, -0.2, 0.5, 2.0), (3.0, 1.0, 2.0))
    told += [exact.exact_matrix(levelled), exact.exact_matrix(levelled, delta=0.05)]
    return told


class Sloped:
    """A law whose reports are off by a bias that it states, with a variance that grows with the value."""

    def __init__(self, third: float = 2.0) -> None:
        self.third = third

    def moments(self, x: Any) -> Any:
        variance = 1 + 0.3 * np.abs(x)
        return SimpleNamespace(bias=0.5 + 0.25 * x, variance=variance, third=self.third * variance**1.5)

    def log_prob(self, reports: Any, x: Any) -> np.ndarray:
        return np.asarray(-np.abs(np.asarray(reports) - np.asarray(x)))


def alone() -> list[Any]:
    """Return when reports are said to depend on more than their own value: sums, ends, mirrors, stretches, pairs."""
    told: list[Any] = []
    for size in (99, 100, 400):
        for less in (0.0, 0.6, 1.0):
            table = np.stack([uniform(size, 0.17 * k) - 0.5 for k in range(6)])
            table = table - less * table.mean(axis=1, keepdims=True)
            two = [np.column_stack([np.zeros(size), row]) for row in table]
            for calls in (list(table), two):
                told.append(critical(functools.partial(independence.balanced, calls)))
    for tied in (0.0, 0.1, 0.9):
        for size, many in ((301, 70), (300, 80), (40, 3)):
            table = np.stack([uniform(size, 0.19 * k) for k in range(many)])
            often = uniform(size // 2, 0.6) < tied
            table[:, : size // 2][:, often] = table[:, ::-1][:, : size // 2][:, often]
            told.append(critical(functools.partial(independence.both_ends, list(table)), 0.0))
    support = SimpleNamespace(step=0.5, origin=0.25)
    for pairs in (0, 30, 60):
        for middle in (3.25, 3.5, 3.75):
            y = 0.25 + 0.5 * np.rint(1e5 * uniform(900, 0.4))
            y[:pairs] = 2 * middle - y[pairs : 2 * pairs]
            told.append(critical(functools.partial(independence.mirrored, support, middle, y)))
            rows = np.column_stack([np.full(900, np.nan), y])
            told.append(critical(functools.partial(independence.mirrored, support, [1.0, middle], rows)))
    told.append(independence._pairs(np.asarray([1.0, 1.0, 2.0, 1.0, 2.0])))
    x = np.repeat(np.linspace(-3, 5, 60)[np.argsort(uniform(60, 0.1))], 40)
    u = uniform(x.size, 0.9)
    for low in (1.0, 0.5):
        here = np.where((x > 0) & (x < 2), low, 1.0)
        y = x + 0.5 + 0.25 * x + here * np.sqrt(1 + 0.3 * np.abs(x)) * np.sqrt(12) * (u - 0.5)
        for third in (2.0, 4.99, 5.01):
            told.append(critical(functools.partial(independence.quiet_stretch, Sloped(third), x, y, 40), 0.0))
    for limits in ({1.0: 0.0}, {1.0: 0.02, 2.0: 0.05}, {0.5: 0.4}, {9.0: 0.0}):
        asked = functools.partial(independence.told_apart, Sloped(), x, y, 40, 0.3, limits)
        told.append(critical(asked, 0.0))
    return told


def once() -> list[Any]:
    """Return what is said where one report alone stands in a cell, one number is missing, or one test is of several."""
    told: list[Any] = []
    table = np.floor(2 * np.stack([uniform(2001, 0.13 * k * k) for k in range(3)]))
    table[:, 1::2] = np.where(uniform(1000, 0.5) < 0.3, table[:, :-1:2], table[:, 1::2])
    for place in (3, 4):
        for many in (1, 2):
            made = table.copy()
            made[:many, place] = 5.0
            told.append(critical(functools.partial(goodness.independence, list(made))))
    for first in (np.asarray([0.1, 0.4, math.nan, 0.9]), np.asarray([0.1, 0.4, 0.5, 0.9])):
        place, size = features._binning(first, np.asarray([0.2, 0.3, math.nan]), 3)
        told.append([size, place(np.asarray([math.nan, -1.0, 0.25, 0.4, 7.0]))])
    one, two = (
        np.asarray([[0, 1, 3], [1, 1, 3]] * 30, dtype=float),
        np.asarray([[2, 2, 3], [1, 2, 3]] * 30, dtype=float),
    )
    told += [score(np.asarray([[0.0, 1, 2], [3, 3, 3], [0.5, 9, -1]])) for score in features._members(one, two)]
    cube = Cube(2.0**-20, 2)
    y = cube.reports(9000, np.zeros(2))
    for shift in (0.0, 0.05, 0.1):
        moved = np.column_stack([y[:, 0] + cube.support.step * round(shift / cube.support.step), y[:, 1]])
        told.append(critical(functools.partial(goodness.entries, cube, np.zeros(2), moved), 0.0))
    return told


STORIES: dict[str, Callable[[], Any]] = {
    "alone": alone,
    "once": once,
    **{f"fits {size}": functools.partial(fits, size) for size in (900, 1150, 9000, 27_000)},
    "peaks of masses": functools.partial(peaks, density=False),
    "peaks of densities": functools.partial(peaks, density=True),
    **{f"whole values {dims}": functools.partial(whole_values, dims) for dims in (1, 2, 6)},
    "cleared 600": functools.partial(cleared, 600, 5),
    "cleared 40": functools.partial(cleared, 40, 50),
    **{f"bits {kind}": functools.partial(bits, kind) for kind in range(6)},
    **{f"dependent {calls}": functools.partial(dependent, calls) for calls in (2, 3, 5)},
    "repeated": repeated,
    "edges": edges,
    "sums": sums,
    "learned": learned,
    "tried": tried,
    "bounds": bounds,
    "outside": outside,
    "runs": runs,
    "exactly": exactly,
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] if name in ("exactly", "once") else []) for name in STORIES]
)
def test_digits_are_the_ones_that_were_kept(name: str) -> None:
    HELD.check(name, STORIES[name]())


if __name__ == "__main__":
    HELD.write({name: story() for name, story in STORIES.items()})
