"""Campaigns as a web page is shown them: honest ones, mutated ones, and what each spends, computed without the page.

The masses here come from what a draw does with its random words, input by input and report by report, in fractions.
Nothing of the page's own arithmetic, and nothing of the mechanisms, is used for them.
"""

from __future__ import annotations

import copy
import json
import math
import random
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from decimal import Context, Decimal
from fractions import Fraction
from functools import lru_cache
from importlib.util import find_spec
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import noisette as nz
from noisette.domains import Attributes, Categorical, Interval, Selection, Texts
from noisette.mechanisms.graded.levelled import LevelledResponse
from noisette.mechanisms.graded.optimal import OptimalGraded
from noisette.mechanisms.vector.attributes import SampledAttributes

# node, in which the scripts of the page run: this machine's, or the one that Playwright brings
_PLAYWRIGHT = find_spec("playwright")
NODE = shutil.which("node") or (
    shutil.which(Path(_PLAYWRIGHT.origin).parent / "driver" / "node") if _PLAYWRIGHT and _PLAYWRIGHT.origin else None
)
UNIT, FINE = 2**53, 2**61
KINDS = (
    "two-point",
    "window",
    "mixture",
    "laplace",
    "keep-or-replace",
    "hash",
    "bits",
    "subset",
    "hadamard",
    "cyclic",
    "drawn-answers",
    "meeting-sets",
    "prefixes",
    "levels",
    "rows",
    "record",
)
_EXACT, _LOG = Context(prec=200), Context(prec=40)
_REAL = frozenset(
    {"low", "high", "first", "step", "map", "p_window", "share", "origin", "rate", "range", "edges", "pairs", "points"}
)
_OF_KIND = {
    "two-point": ("duchi",),
    "window": ("piecewise", "piecewise-optimal", "square-wave"),
    "mixture": ("hybrid",),
    "laplace": ("laplace",),
    "keep-or-replace": ("grr",),
    "hash": ("olh",),
    "bits": ("oue", "sue"),
    "subset": ("subset-selection",),
    "hadamard": ("hadamard",),
    "cyclic": ("pgr",),
}
_NUMBERS = ("duchi", "piecewise", "piecewise-optimal", "square-wave", "hybrid", "laplace")
_CATEGORIES = ("grr", "oue", "sue", "subset-selection", "hadamard", "pgr")

Table = dict[str, Any]
Masses = Iterator[list[Fraction]]  # for each report, or for one of each sort of them, its mass under every input


# ---- what a table spends ---------------------------------------------------------------------------------------------


def spent(table: Table, attributes: Sequence[dict[str, Any]]) -> Decimal:
    """Return the epsilon of a table, infinite where a report of one input is impossible for another."""
    read, asked = _read(table), _read(attributes)
    if read["kind"] == "record":
        each = sorted(nats(read["parts"][own], one) for own, one in zip(read["owners"], asked, strict=True))
        return sum(each[-read["report"] :], Decimal(0))
    (attribute,) = asked
    return nats(read, attribute)


def _read(thing: Any, name: str = "") -> Any:
    """Return a table as a page reads it, where 1 and 1.0 are one number: floats where it counts with floats."""
    if isinstance(thing, dict):
        return {key: _read(value, key) for key, value in thing.items()}
    if isinstance(thing, list):
        return [_read(value, name) for value in thing]
    if isinstance(thing, int | float):
        return float(thing) if name in _REAL else int(thing) if float(thing).is_integer() else thing
    return thing


def nats(table: Table, attribute: dict[str, Any]) -> Decimal:
    """Return the epsilon of one attribute's table."""
    return _nats(json.dumps([table, attribute]))


@lru_cache(maxsize=10_000)  # most parts of a mutated record are as they were
def _nats(told: str) -> Decimal:
    table, attribute = json.loads(told)
    if table["kind"] == "laplace":  # its reports have no end: each step costs the rate
        low, high = ((end - table["origin"]) / table["step"] for end in attribute["range"])
        steps = math.ceil(high) - math.floor(low)
        return _decimal(abs(Fraction(table["rate"]) * steps))
    worst = Fraction(1)
    for masses in _MASSES[table["kind"]](table, attribute):
        least, most = min(masses), max(masses)
        if least < 0 or (most > 0 and least == 0):
            return Decimal("inf")
        if most > 0:
            worst = max(worst, most / least)
    return _LOG.ln(_decimal(worst))


def _decimal(fraction: Fraction) -> Decimal:
    return _EXACT.divide(Decimal(fraction.numerator), Decimal(fraction.denominator))


@lru_cache(maxsize=1000)
def _below(chance: float) -> Fraction:
    """Return how often a uniform multiple of 2^-53 is below a chance."""
    return Fraction(min(max(math.ceil(Fraction(chance) * UNIT), 0), UNIT), UNIT)


def _inputs(attribute: dict[str, Any]) -> list[float]:
    low, high = attribute["range"]
    return [low, low + (high - low) * 0.3, high]


def _pair(table: Table, attribute: dict[str, Any]) -> list[tuple[float, list[Fraction]]]:
    """Return both reports with their masses."""
    low, high = table["low"], table["high"]
    p_high = [_below((x - low) * (1 / (high - low))) for x in _inputs(attribute)]
    return [(low, [1 - p for p in p_high]), ((high - low) + low, p_high)]


def _two_point(table: Table, attribute: dict[str, Any]) -> Masses:
    yield from (masses for _, masses in _pair(table, attribute))


def _mass_at(table: Table, place: int, index: int) -> Fraction:
    """Return the mass of one report of a window at a place."""
    inside = _below(table["p_window"])
    if place <= index < place + table["width"]:
        return inside / table["width"]
    return (1 - inside) / table["moves"]


def _reports(table: Table, places: Sequence[int]) -> set[int]:
    """Return all reports of a short window; of a long one the first after each edge, for between edges none differs."""
    total = table["width"] + table["moves"]
    if total <= 40:
        return set(range(total))
    edges = {0, *places, *(place + table["width"] for place in places)}
    return {index for index in edges if index < total}


def _places(table: Table, attribute: dict[str, Any]) -> list[int]:
    a, b = table["map"]
    return [min(max(round(x * b + a), 0), table["moves"]) for x in _inputs(attribute)]


def _window(table: Table, attribute: dict[str, Any]) -> Masses:
    places = _places(table, attribute)
    for index in _reports(table, places):
        yield [_mass_at(table, place, index) for place in places]


def _mixture(table: Table, attribute: dict[str, Any]) -> Masses:
    window, share = table["window"], _below(table["share"])
    places = _places(window, attribute)
    pair = dict(_pair(table["pair"], attribute))
    indices = _reports(window, places)
    last = window["width"] + window["moves"] - 1
    for report, masses in pair.items():  # where the two reports lie among those of the window
        index = round((Fraction(report) - Fraction(window["first"])) / Fraction(window["step"]))
        index = min(max(index, 0), last)
        if index * window["step"] + window["first"] == report:
            indices.add(index)
        else:
            yield [(1 - share) * mass for mass in masses]
    for index in indices:
        two = pair.get(index * window["step"] + window["first"], [Fraction(0)] * len(places))
        yield [
            share * _mass_at(window, place, index) + (1 - share) * own for place, own in zip(places, two, strict=True)
        ]


def _keep(table: Table, attribute: dict[str, Any]) -> Masses:
    size, keep, other = table["size"], table["keep"], table["other"]
    end = min(keep + size * other, UNIT)  # draws from here on are made again
    kept = max(0, end - size * other)
    codes = range(len(attribute["categories"])) if size <= 5 else (0, 1, size - 1)
    for report in codes:
        replaced = max(0, min((report + 1) * other, end) - min(report * other, end))
        yield [Fraction(replaced + (kept if report == code else 0), end) for code in codes]


def _hash(table: Table, _: dict[str, Any]) -> Masses:
    buckets = table["response"]["size"]  # every seed is as likely as any other; some send two categories anywhere
    yield from _keep(table["response"], {"categories": range(buckets)})


def _bits(table: Table, _: dict[str, Any]) -> Masses:
    rare, off = (Fraction(int(table[name]), FINE) for name in ("others", "turned"))
    own, other = {1: 1 - off, 0: off}, {1: rare, 0: 1 - rare}
    for first in (0, 1):  # the bits of two categories; the rest are the same for both
        for second in (0, 1):
            yield [own[first] * other[second], other[first] * own[second]]


def _subset(table: Table, _: dict[str, Any]) -> Masses:
    size, length, own = table["size"], table["length"], Fraction(table["own"], UNIT)
    beside, without = math.comb(size - 1, length - 1), math.comb(size - 1, length)
    codes = range(size) if size <= 6 else range(2)
    sets = combinations(range(size), length) if size <= 6 else _sorts(size, length)
    for chosen in sets:
        yield [own / beside if code in chosen else (1 - own) / without for code in codes]


def _sorts(size: int, length: int) -> Iterator[tuple[int, ...]]:
    """Yield a set for each way to contain categories 0 and 1 or not."""
    for start in [(), (0,), (1,), (0, 1)]:
        rest = length - len(start)
        if 0 <= rest <= size - 2:
            yield (*start, *range(2, 2 + rest))


def _hadamard(table: Table, attribute: dict[str, Any]) -> Masses:
    size, weights = len(attribute["categories"]), {True: table["own"], False: UNIT - table["own"]}
    codes = range(size) if size <= 4 else (0, 1, size - 1)
    laws: list[dict[int, int]] = []
    for row in (code + 1 for code in codes):
        law: dict[int, int] = {}
        for column in range(table["order"]):
            even = (row & column).bit_count() % 2 == 0
            for wanted, weight in weights.items():
                report = column if even == wanted else column ^ (row & -row)
                law[report] = law.get(report, 0) + weight
        laws.append(law)
    for masses in {tuple(law.get(report, 0) for law in laws) for report in set().union(*laws)}:
        yield [Fraction(mass) for mass in masses]


def _cyclic(table: Table, attribute: dict[str, Any]) -> Masses:
    order, prime, taps = table["order"], table["prime"], table["taps"]
    sequence = [0] * (len(taps) - 1) + [1]
    while len(sequence) < table["power"] * order:
        sequence.append(sum(tap * old for tap, old in zip(taps, sequence[-len(taps) :], strict=True)) % prime)
    runs = zip(*(sequence[run * order : (run + 1) * order] for run in range(table["power"])), strict=True)
    weights = [table["other"] if any(run) else table["own"] for run in runs]
    codes = (0, 1, len(attribute["categories"]) - 1)
    for masses in {tuple(weights[(report + code) % order] for code in codes) for report in range(order)}:
        yield [Fraction(mass) for mass in masses]


def _drawn_answers(table: Table, _: dict[str, Any]) -> Masses:
    true = Fraction(table["true"], UNIT)
    for answer in (True, False):  # about one option, for who chose it and for who did not
        yield [(true if chose == answer else 1 - true) / table["options"] for chose in (True, False)]


def _meeting_sets(table: Table, attribute: dict[str, Any]) -> Masses:
    """Look at all sets: of short lists for all selections, else for one and for another that is as far as can be."""
    items, most, length, meets = (table[name] for name in ("items", "most", "length", "meeting"))
    chance, without = Fraction(meets, UNIT), math.comb(items - most, length)
    every = math.comb(items, length)
    if every > 150:  # one set that meets own items, and one that does not
        yield [chance / (every - without), (1 - chance) / without]
        return
    options = len(attribute["options"])
    chosen = [one for many in range(most + 1) for one in combinations(range(options), many)]
    own = [{*one, *range(options + len(one), items)} for one in chosen][:12]
    for report in combinations(range(items), length):
        yield [chance / (every - without) if one & {*report} else (1 - chance) / without for one in own]


def _prefixes(table: Table, _: dict[str, Any]) -> Masses:
    yield from _keep(table["response"], {"categories": range(table["response"]["size"])})


def _ends_of_levels(edges: Sequence[float]) -> Iterator[tuple[int, float]]:
    """Yield values of each level: its ends, and some within."""
    for level, (low, high) in enumerate(pairwise(edges)):
        last = high if level == len(edges) - 2 else math.nextafter(high, -math.inf)
        yield from ((level, x) for x in (low, low + (last - low) * 0.3, last))


def _levels(table: Table, _: dict[str, Any]) -> Masses:
    inputs = list(_ends_of_levels(table["edges"]))
    for reported, (low, high) in enumerate(table["pairs"]):
        for sign in (-1, 1):
            masses = []
            for level, x in inputs:
                keep, other = table["weights"][level]
                p_high = Fraction(math.ceil((x - low) * (1 / (high - low)) * UNIT), UNIT)
                masses.append(Fraction(other + keep * (level == reported), UNIT) * (p_high if sign > 0 else 1 - p_high))
            yield masses


def _rows(table: Table, _: dict[str, Any]) -> Masses:
    for column in range(len(table["outputs"])):
        yield [Fraction(row[column], sum(row)) for row in table["rows"]]


_MASSES: dict[str, Callable[[Table, dict[str, Any]], Masses]] = {
    "two-point": _two_point,
    "window": _window,
    "mixture": _mixture,
    "keep-or-replace": _keep,
    "hash": _hash,
    "bits": _bits,
    "subset": _subset,
    "hadamard": _hadamard,
    "cyclic": _cyclic,
    "drawn-answers": _drawn_answers,
    "meeting-sets": _meeting_sets,
    "prefixes": _prefixes,
    "levels": _levels,
    "rows": _rows,
}


# ---- honest campaigns ------------------------------------------------------------------------------------------------


def shown(table: Any, attributes: Any, epsilon: Any) -> dict[str, Any]:
    """Return a campaign as a collector shows it to a page."""
    return {
        "version": 1,
        "id": "q",
        "title": "q",
        "epsilon": epsilon,
        "delta": 0.0,
        "period": "once",
        "answers": "permanent",
        "tokens": "open",
        "public_group": None,
        "attributes": attributes,
        "table": table,
        "spec": {"mechanism": "one"},
    }


def honest(kind: str, source: random.Random) -> dict[str, Any]:
    """Return a campaign of this kind of table, as Python's own mechanism makes it."""
    epsilon = math.exp(source.uniform(math.log(0.01), math.log(12.0)))
    if kind == "record":
        return _honest_record(epsilon, source)
    if kind in _OWN_KIND:
        return _OWN_KIND[kind](epsilon, source)
    name = source.choice(_OF_KIND[kind])
    if kind == "mixture":
        epsilon = max(epsilon, 0.62)  # below, hybrid is Duchi's mechanism
    if kind == "cyclic":
        epsilon = min(epsilon, 4.0)  # beyond, there are too many reports to look at
    domain = _interval(source) if name in _NUMBERS else Categorical(source.choice([2, 3, 4, 5, 7, 20, 60]))
    table = nz.CATALOGUE[name](epsilon=epsilon, domain=domain).table()
    return shown(table, [_asked("x", domain)], epsilon)


def _honest_options(name: str) -> Callable[[float, random.Random], dict[str, Any]]:
    def made(epsilon: float, source: random.Random) -> dict[str, Any]:
        size = source.choice([2, 3, 4, 5, 20])
        domain = Selection(size, source.randint(1, min(size, 6)))
        asked = {"name": "x", "options": [f"o{code}" for code in range(size)], "most": domain.most}
        return shown(nz.CATALOGUE[name](epsilon=epsilon, domain=domain).table(), [asked], epsilon)

    return made


def _honest_text(epsilon: float, source: random.Random) -> dict[str, Any]:
    domain = source.choice([Texts(4), Texts(24), Texts(8, alphabet="abcdefgh")])
    asked = {"name": "x", "text": domain.longest} | ({"alphabet": domain.alphabet} if domain.alphabet else {})
    return shown(nz.CATALOGUE["pem"](epsilon=epsilon, domain=domain).table(), [asked], epsilon)


def _honest_levels(_: float, source: random.Random) -> dict[str, Any]:
    return copy.deepcopy(_levelled(source.randrange(12)))


@lru_cache(maxsize=12)  # a calibration takes a while
def _levelled(seed: int) -> dict[str, Any]:
    source = random.Random(f"levels {seed}")
    domain, epsilon = _interval(source), math.exp(source.uniform(math.log(0.01), math.log(12.0)))
    cuts = sorted(source.uniform(0.05, 0.95) for _ in range(source.randint(0, 3)))
    edges = (domain.low, *(domain.low + cut * domain.diameter for cut in cuts), domain.high)
    budgets = tuple(source.uniform(0.5, 2) for _ in edges[1:])
    made = LevelledResponse(edges, budgets).calibrate(total=epsilon)
    levels = [[*ends, budget] for ends, budget in zip(pairwise(edges), budgets, strict=True)]
    return shown(made.table(), [{"name": "x", "levels": levels}], made.guarantee.epsilon)


@lru_cache(maxsize=8)
def _solved(epsilon: float) -> OptimalGraded:
    edges, budgets = (-1.0, 0.0, 1.0), (epsilon / 2, epsilon)
    return OptimalGraded(edges=edges, epsilons=budgets, rule="max", points=4, objective="average")


def _honest_rows(_: float, source: random.Random) -> dict[str, Any]:
    made = _solved(source.choice([0.5, 1.0, 3.0]))
    levels = [[*ends, 1.0] for ends in pairwise(made.edges or ())]
    return shown(made.table(), [{"name": "x", "levels": levels}], made.guarantee.epsilon)


_OWN_KIND: dict[str, Callable[[float, random.Random], dict[str, Any]]] = {
    "drawn-answers": _honest_options("drawn-option"),
    "meeting-sets": _honest_options("privset"),
    "prefixes": _honest_text,
    "levels": _honest_levels,
    "rows": _honest_rows,
}


def _honest_record(epsilon: float, source: random.Random) -> dict[str, Any]:
    sizes = source.sample([2, 3, 4, 9], 2)
    epsilon = min(epsilon, 4.0)  # beyond, there are too many reports of some to look at
    parts = source.choices([_interval(source), *map(Categorical, sizes)], k=source.randint(2, 5))
    inner = {part: source.choice(_NUMBERS if isinstance(part, Interval) else _CATEGORIES) for part in parts}
    names = tuple(f"a{place}" for place in range(len(parts)))
    mechanism = SampledAttributes(
        tuple(inner[part] for part in parts),
        epsilon=epsilon,
        domain=Attributes(tuple(parts), names=names),
        report=source.randint(1, len(parts)),
    )
    attributes = [_asked(name, part) for name, part in zip(names, parts, strict=True)]
    return shown(mechanism.table(), attributes, epsilon)


def _interval(source: random.Random) -> Interval:
    low = source.choice([-1.0, 0.0, source.uniform(-100, 100)])
    return Interval(low, low + source.choice([1.0, 2.0, 120.0, source.uniform(0.1, 1e6)]))


def _asked(name: str, domain: Any) -> dict[str, Any]:
    if isinstance(domain, Interval):
        return {"name": name, "range": [domain.low, domain.high]}
    return {"name": name, "categories": [f"c{code}" for code in range(domain.size)]}


# ---- mutations -------------------------------------------------------------------------------------------------------

_NASTY: tuple[Any, ...] = (
    *(0, 1, 2, 3, -1, 0.5, -0.0, 1.0 - 2.0**-53, 1.0, 1.5, 5e-324, 1e-17, 1e17, 1e308, -1e308, 2.0**-60),
    *(UNIT - 1, UNIT, UNIT + 2, UNIT // 2, 2**52, 2**31 - 1, 2**31, 2**32 + 1, 2**61, 2**63, 2**64, -(2**53)),
    *("", "0", "1", "-1", "1e3", "0x10", " 7", "٣", str(FINE), str(FINE - 1), str(FINE // 2), str(2**200), "3.5"),
    *("@NaN", "@Infinity", "@-Infinity", None, True, False, [], [0], {}, [1, 2], [1, 2, 3]),
    *("constructor", "__proto__", "toString", "window", "record"),
)


def _nasty(source: random.Random) -> Any:
    return copy.deepcopy(source.choice(_NASTY))


def mutated(start: dict[str, Any], source: random.Random) -> dict[str, Any]:
    """Return a campaign with one to three changes, of the table nearly always."""
    found = json.loads(json.dumps(start))  # a copy, faster than copy.deepcopy
    for _ in range(source.choice([1, 1, 1, 2, 3])):
        source.choice(_MUTATIONS)(found, source)
    return found


def _leaves(thing: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if isinstance(thing, dict | list) and thing:
        for key in thing if isinstance(thing, dict) else range(len(thing)):
            yield from _leaves(thing[key], (*path, key))
    elif path:
        yield path


def _holder(thing: Any, path: Sequence[Any]) -> Any:
    for key in path:
        thing = thing[key]
    return thing


def _leaf(campaign: dict[str, Any], source: random.Random) -> tuple[Any, Any]:
    """Return what holds one value of the table, and its key there."""
    if not isinstance(campaign["table"], dict):
        return campaign, "table"
    paths = [path for path in _leaves(campaign["table"]) if path[-1] != "kind"] or [("kind",)]
    path = source.choice(paths)
    return _holder(campaign["table"], path[:-1]), path[-1]


def _put_nasty(campaign: dict[str, Any], source: random.Random) -> None:
    holder, key = _leaf(campaign, source)
    holder[key] = _nasty(source)


def _nudge(campaign: dict[str, Any], source: random.Random) -> None:
    """Move a number by a little, by much, or across zero: many remain laws, some of them dearer than promised."""
    holder, key = _leaf(campaign, source)
    old = holder[key]
    written = isinstance(old, str) and old.isdigit()
    value = int(old) if written else old
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return
    near = 2.0 ** -source.randint(1, 52)
    factor = source.choice([1 + near, 1 - near, 1 + near, 1 - near, 0.5, 2.0, 10.0, -1.0, 1e-3])
    new: Any = value * factor if isinstance(value, float) else int(value * Fraction(factor))
    if source.random() < 0.2:
        new = value + source.choice([-1, 1])
    limit = UNIT if isinstance(value, float) and 0 < value < 1 else 0  # a chance stays one of 2^53
    holder[key] = str(new) if written else round(new * limit) / limit if limit else new


def _turn_round(campaign: dict[str, Any], source: random.Random) -> None:
    """Take the complement of a weight or of a chance: what was likely becomes rare."""
    holder, key = _leaf(campaign, source)
    old = holder[key]
    if isinstance(old, str) and old.isdigit():
        holder[key] = str(FINE - int(old))
    elif isinstance(old, int) and old > 2**20:
        holder[key] = UNIT - old
    elif isinstance(old, float) and 0 < old < 1:
        holder[key] = 1 - old


def _small(campaign: dict[str, Any], source: random.Random) -> None:
    """Take a small law at random, in which every report can be looked at."""
    table, near = campaign["table"], lambda: round(UNIT / (1 + math.exp(source.uniform(-2, 2))))
    kind = table.get("kind") if isinstance(table, dict) else None
    if kind == "window":
        table |= {"map": [source.uniform(-3, 9), source.uniform(-2, 2)], "first": 0.0, "step": 1.0}
        table |= {"width": source.randint(0, 6), "moves": source.randint(0, 6), "p_window": near() / UNIT}
    elif kind in ("subset", "hadamard"):
        table["own"] = near()
    elif kind in ("drawn-answers", "meeting-sets"):
        table["true" if kind == "drawn-answers" else "meeting"] = near()
    elif kind == "rows" and isinstance(table.get("rows"), list) and table["rows"]:
        row = source.choice(table["rows"])
        if isinstance(row, list) and len(row) > 1 and all(isinstance(one, int) for one in row):
            moved = source.randint(0, max(row[0] // 2, 1))  # from one output to another: the total stays
            row[0], row[-1] = row[0] - moved, row[-1] + moved
    elif kind == "levels" and isinstance(table.get("weights"), list):
        size = len(table["weights"])
        other = [UNIT // (size + source.randint(0, 4)) for _ in range(size)]
        table["weights"] = [[UNIT - size * one, one] for one in other]
    elif kind == "bits":
        table |= {"others": str(near() << 8), "turned": str(near() << 8)}
    elif kind == "keep-or-replace" and isinstance(table.get("size"), int) and 0 < table["size"] < 100:
        table["other"] = UNIT // (table["size"] + source.randint(0, 4))
        table["keep"] = max(0, UNIT - table["size"] * table["other"] - source.randint(0, 2))
    elif kind == "two-point":
        table |= {"low": source.uniform(-1e4, 0), "high": source.uniform(0, 1e4)}


def _promise_more(campaign: dict[str, Any], source: random.Random) -> None:
    """Promise another epsilon: a dear one, so that dear laws are taken, or one that is no number."""
    if source.random() < 0.7 and isinstance(campaign["epsilon"], float):
        campaign["epsilon"] *= source.choice([0.5, 1 - 1e-12, 1.5, 2.0, 4.0])
    else:
        campaign["epsilon"] = source.choice(["0.1", "1", None, "@NaN", "@Infinity", -1.0, 0, 0.0, [1], True, 1e300, {}])


def _drop(campaign: dict[str, Any], source: random.Random) -> None:
    holder, key = _leaf(campaign, source)
    if isinstance(holder, dict):
        del holder[key]
    else:
        holder.pop(key)


def _add(campaign: dict[str, Any], source: random.Random) -> None:
    if isinstance(campaign["table"], dict):
        campaign["table"][source.choice(["seed", "rng", "__proto__", "epsilon", "map", "own"])] = _nasty(source)


def _exchange(campaign: dict[str, Any], source: random.Random) -> None:
    """Give one field the value of another."""
    first, second = _leaf(campaign, source), _leaf(campaign, source)
    first[0][first[1]], second[0][second[1]] = second[0][second[1]], first[0][first[1]]


def _ask_otherwise(campaign: dict[str, Any], source: random.Random) -> None:
    """Ask another question than the one that the table is for."""
    attributes = campaign["attributes"]
    if not isinstance(attributes, list) or not attributes:
        return
    one = source.choice(attributes)
    if not isinstance(one, dict):
        return
    if "range" in one and isinstance(one["range"], list) and len(one["range"]) == 2 and source.random() < 0.5:
        one["range"][source.randrange(2)] = source.choice([-1e6, 1e6, 0.0, 0.5, "@NaN", "@Infinity", "3", None])
    elif isinstance(one.get("categories"), list) and source.random() < 0.5:
        one["categories"] = one["categories"] * 2 if source.random() < 0.5 else one["categories"][:-1]
    else:
        more = {"name": "more", "range": [0.0, 1.0]}
        source.choice(
            [
                lambda: attributes.append(more),
                lambda: one.update({"categories": ["a", "b", "c"], "range": [0.0, 1.0]}),
                lambda: one.pop("range", None),
                lambda: one.update({"range": [1.0, 0.0]}),
                attributes.pop,
            ]
        )()


def _other_kind(campaign: dict[str, Any], source: random.Random) -> None:
    if isinstance(campaign["table"], dict):
        campaign["table"]["kind"] = source.choice(KINDS) if source.random() < 0.5 else _nasty(source)


_MUTATIONS = (
    *(_put_nasty,) * 4,
    *(_nudge,) * 6,
    *(_turn_round,) * 2,
    *(_small,) * 3,
    *(_promise_more,) * 2,
    _drop,
    _add,
    _exchange,
    _ask_otherwise,
    _other_kind,
)


# ---- the page's own scripts, in node ---------------------------------------------------------------------------------

_REVIVE = """
const odd = { "@NaN": NaN, "@Infinity": Infinity, "@-Infinity": -Infinity };
const revive = (_, value) => (typeof value === "string" && Object.hasOwn(odd, value) ? odd[value] : value);
const lines = (await new Response(process.stdin).text()).split("\\n").filter(Boolean);
const told = work => { try { return work(); } catch (error) { return `refused: ${error.message}`; } };
for (const line of lines) console.log(JSON.stringify(told(() => answer(JSON.parse(line, revive)))));
"""


class Page:
    """The scripts of the page, as they are served, in node."""

    def __init__(self, scripts: Path, folder: Path) -> None:
        self.folder = folder / "page"
        shutil.copytree(scripts, self.folder)
        (self.folder / "package.json").write_text('{"type": "module"}', encoding="utf-8")

    def run(self, script: str, things: Sequence[Any]) -> list[Any]:
        """Return what ``answer``, which the script defines, says about each of the things; a refusal is a text."""
        source = self.folder / "probe.js"
        source.write_text(script + _REVIVE, encoding="utf-8")
        told = "\n".join(map(json.dumps, things))
        command = [str(NODE), str(source)]
        done = subprocess.run(command, input=told, capture_output=True, text=True, check=False, timeout=600)
        assert done.returncode == 0, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]


def refused(answer: Any) -> bool:
    """Tell whether the page refuses what it was shown."""
    return isinstance(answer, str) and answer.startswith("refused: ")
