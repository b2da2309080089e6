"""Check a privacy certificate with integers and fractions: a program on its own, which needs nothing but Python."""

import hashlib
import json
import math
import re
import sys
from collections.abc import Callable
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

FORMAT, VERSION, UNIT, FINE = "noisette-certificate", "1", 1 << 53, 1 << 61  # draws of which a chance counts how many
BITS, ONE, SUMMED, SLACK = 640, 1 << 640, 1 << 10, Fraction(1, 1 << 80)  # enclosures; a sigma to sum; for smoothing
LONGEST, MOST_DIGITS, MOST_BUDGET, MOST_WORK = 1 << 22, 1200, 1 << 16, 3000  # bytes, digits, epsilon, milliseconds
PI = "3141592653589793238462643383279502884197169399375105820974944592307816406286208998628034825342117067"  # cut off
THEOREMS = {
    "mixture": "A mixture whose shares do not depend on the value tells no more than the worst of its parts.",
    "composition": "Independent answers tell at most the sum of what each tells (Dwork, Roth 2014, Theorem 3.16).",
    "post-processing": "What is computed from a report alone tells no more (Dwork, Roth 2014, Proposition 2.1).",
    "rounding": "Rounding to the nearest float64 is monotone (IEEE 754), so the ends of an interval are the worst.",
    "distance": "Where the mass of noise falls with its distance from zero, values farthest apart are the worst.",
    "sylvester": "Every row but the first of Sylvester's matrix holds +1 in half of its columns.",
    "encoding": "What is computed from the value alone, before any chance, may be any value of the law's own domain.",
    "gaussian": "Noise that moves by m deviations has delta Q(e/m - m/2) - exp(e) Q(e/m + m/2) (Balle, Wang 2018).",
    "gaussian-composition": "Gaussian answers tell as much as one, mu^2 the sum of theirs (Dong, Roth, Su 2022).",
    "smoothing": "Discrete noise of variance s^2 is real noise of s^2 - 4 rounded at random, to 2^-100 (Peikert 2010).",
    "renyi": "Sampled Gaussian steps add up at an order, and bound a delta (Mironov et al. 2019, Canonne et al. 2020).",
    "leverage": "A row of most leverage h tells most: r Gaussians have variance 1 or 1 - h (Blocki et al. 2012).",
    "sums": "A float64 sum of n products is off by at most (n + 2) 2^-53 of the sum of their sizes (Higham 2002).",
}
# Of each kind of law: its fields (from a least whole number on; q: any fraction), its theorems, and what it says.
KINDS = """
keep-or-replace size:2 keep:1 other:1 | | {other} of 2^53 draws report each of {size} values, {keep} more the own.
hashed maps:1 response:object | mixture post-processing | One of {maps} maps of values to codes is drawn blindly.
subset size:2 length:1 own:1 | | {own} of 2^53 draws give {length} of {size} values, the own among them.
columns order:2 own:1 | sylvester | {own} of 2^53 draws give one of {order} columns where the own row is +1.
cyclic order:2 block:1 own:1 other:1 | | Noise modulo {order} has {own} draws at each of {block} places, else {other}.
meeting-sets items:2 most:1 length:1 meeting:1 | | {meeting} of 2^53 draws give a set with an own item.
drawn-answers options:1 true:1 | mixture | One of {options} is drawn blindly; {true} of 2^53 draws tell its truth.
arcs ring:2 arc:1 own:1 | mixture | A map lays arcs of {arc} of {ring} points; {own} of 2^62 draws give each own point.
bits size:2 others:1 turned:1 | | {turned} of 2^61 draws turn the own bit off, {others} turn another one on.
one-hot size:2 step:p noise:object | composition distance | Categories differ by 1 in two of {size} entries.
two-point low:q high:q | rounding | One of two numbers is reported, the higher one more often for higher values.
window first:q step:p width:1 moves:1 inside:1 | | {inside} of 2^53 draws lie in a window of {width} outputs.
window-over-all positions:1 width:1 inside:0 outputs:text | post-processing | {inside} of 2^53 draws take the window.
table levels:*0 outputs:text rows:**0 | mixture | The chances of a value lie between two rows of its level.
added-noise origin:q step:p steps:0 noise:object | distance mixture rounding | Two values lie at most {steps} apart.
laplace rate:p | | The mass of the noise falls by one factor from step to step.
staircase rate:p width:1 first:1 inside:1 | | Noise falls in stairs {width} wide; {inside} of 2^53 draws hit the first.
levels lows:*0 highs:*0 rates:*p | distance | Values of each level, between two places, have one rate of noise.
gaussian sigma:p | | Noise k has mass in proportion to exp(-k^2 / (2 sigma^2)).
mixture share:0 parts:list | mixture | {share} of 2^53 draws use one law and the others another, whatever the value.
halves dims:1 above:1 tie:1 below:1 | mixture | {above}, {tie} or {below} of 2^53 draws keep the signs.
sampled dims:1 report:1 part:object | composition mixture | Dimensions drawn blindly and answered: {report} of {dims}.
record report:1 parts:list | composition mixture | Parts of a record that are drawn blindly and answered: {report}.
coordinates dims:1 report:1 part:object | composition encoding | Answered numbers that the value gives: {report}.
sphere-cap dims:2 gamma:q preferred:p | encoding post-processing | Analytic: a direction, often near the own one.
normal-cap dims:2 gamma:q preferred:p | encoding post-processing | Analytic: a normal vector, often on the own side.
ranges many:*1 width:*p sigma:*p | encoding gaussian post-processing | Analytic: computed numbers get Gaussian noise.
normal sigma:p | gaussian post-processing | Analytic: real Gaussian noise on every entry, then rounded.
sketch projections:1 ridge:p | leverage post-processing | Analytic: Gaussian sums of rows and a ridge: {projections}.
queries step:p noise:object rows:**q | gaussian gaussian-composition post-processing smoothing sums | Sums get noise.
entries unit:text steps:1 many:*1 keep:*0 noise:object | composition distance | Entries are kept, or get noise.
rounds times:1 part:object | composition gaussian-composition | Independent answers by one law: {times}.
steps times:1 sampling:p noise:p order:2 | renyi | Sums with noise that an example is in by chance: {times}.
"""
LAWS = {one.split()[0]: re.split(r" ?\| ?", one) for one in KINDS.strip().splitlines()}
CATEGORIES, SELECTION = "categorical size:2 labels:names", "selection size:1 most:1 labels:names"
INTERVAL, LATTICE, NUMBER = "interval low:q high:q", "lattice steps:0", {"kind": "interval", "low": "-1", "high": "1"}
GRID, TENSOR, BALL = "grid step:q low:q high:q", "tensor dims:*1 low:q high:q", "tensor-ball dims:*1 radius:p mode:any"
TYPES: dict[str, Any] = {"object": dict, "list": list, "text": str, "names": (list, type(None)), "any": object}
LOCAL, CENTRAL = ("record", "local", "any-pair"), ("record", "central", "add-remove")  # unit, model and relation


def check(holds: bool, why: str) -> None:
    if not holds:
        raise ValueError(f"The certificate does not fit: {why}.")


class Verdict(NamedTuple):  # whether the promise is proved, and what was done, in words
    proved: bool
    reason: str
    lines: tuple[str, ...] = ()

    def __str__(self) -> str:
        return "\n".join([("" if self.proved else "NOT ") + f"PROVED: {self.reason}", *self.lines])


def series(ratio: Callable[[int], tuple[int, int]], bits: int = BITS) -> int:  # 1 + r(1) + r(1) r(2) + ..., by 2^bits
    total, term, n = 0, 1 << bits, 0
    while term:  # each is cut off: the sum is too small by less than 2^(140-bits) of itself
        total, n = total + term, n + 1
        term = term * ratio(n)[0] // ratio(n)[1]
    return total


def exp_bounds(x: Fraction, bits: int = BITS) -> tuple[Fraction, Fraction]:  # of |x| / 2^k, squared k times
    check(x <= MOST_BUDGET, "a power is too large to compare with")
    size = min(abs(x), Fraction(MOST_BUDGET))  # the exp of less is between 0 and that of its negative
    halvings = int(size).bit_length() + 6
    low_x = math.floor(size * (1 << bits - halvings))
    low = series(lambda n: (low_x, n << bits), bits)
    high = low + (low >> bits - 140)
    for _ in range(halvings):
        low, high = low * low >> bits, -(-high * high >> bits)
    ends = Fraction(low, 1 << bits), Fraction(high, 1 << bits)
    return ends if x >= 0 else (1 / ends[1] if size == -x else Fraction(0), 1 / ends[0])


def log_above(ratio: Fraction) -> Fraction:  # of few digits, and above the log by less than 2^-500
    guess = Fraction(math.log(ratio.numerator) - math.log(ratio.denominator))
    for _ in range(4):  # Newton's steps double the digits
        guess = Fraction(math.ceil((guess + ratio / exp_bounds(guess)[0] - 1) * 2**560) + 1, 2**560)
    check(ratio <= exp_bounds(guess)[0], "a logarithm could not be enclosed")
    return guess


def root_above(square: Fraction) -> Fraction:  # a fraction above the root of a square
    return Fraction(math.isqrt(math.ceil(square * ONE * ONE)) + 1, ONE)


def normal_tail(x: Fraction) -> Fraction:  # Q(x) = P(N(0, 1) > x), to 2^-140 of itself
    if x < 0:
        return 1 - normal_tail(-x)
    bits = BITS + 4 * math.ceil(min(x, Fraction(16)) ** 2)
    root = math.isqrt((2 * int(PI) << 2 * bits) // 10 ** (len(PI) - 1))  # of 2 pi
    density, cut = exp_bounds(-x * x / 2, bits)[0] * Fraction(1 << bits, root), x
    if x <= 16:  # 1/2 - density (x + x^3/3 + x^5/15 + ...)
        square = math.floor(x * x * (1 << bits))
        return Fraction(1, 2) - density * x * Fraction(series(lambda n: (square, 2 * n + 1 << bits), bits), 1 << bits)
    for n in range(40, 0, -1):  # density / (x + 1/(x + 2/(x + ...)))
        cut = x + n / cut
    return density / cut


def noise_delta(sigma: Fraction, steps: int, epsilon: Fraction) -> Fraction:  # at least that of discrete Gaussian noise
    fall, bend, growth = (math.floor(exp_bounds(x)[0] * ONE) for x in (-1 / (2 * sigma**2), -1 / sigma**2, epsilon))
    masses = [ONE]  # exp(-k^2 / (2 sigma^2)), as long as there is any
    while masses[-1]:
        masses.append(masses[-1] * fall >> BITS)
        fall = fall * bend >> BITS
    both, none = [*masses[:0:-1], *masses], [0] * min(steps, 2 * len(masses))
    more = (max((one << BITS) - growth * two, 0) for one, two in zip([*both, *none], [*none, *both], strict=True))
    return Fraction(sum(more), sum(both) << BITS) + Fraction(1, 1 << 300)  # for what cutting off leaves out


def laplace_tail(rate: Fraction, bits: int, first: int) -> Fraction:  # P(noise >= first) of mass as exp(-rate |k|)
    if first < 1:
        return 1 - laplace_tail(rate, bits, 1 - first)
    return exp_bounds(-rate * first, bits)[0] / (1 + exp_bounds(-rate, bits)[0])


def levels_delta(own: Fraction, other: Fraction, steps: int, epsilon: Fraction) -> Fraction:  # at least, of two rates
    near, far = (partial(laplace_tail, rate, BITS + 2 * math.ceil(epsilon)) for rate in (own, other))
    height, reach = log_above((1 - 2 * near(1)) / (1 - 2 * far(1))) - epsilon, other * steps
    # log own(k) - log other(k - steps) - epsilon is straight up to 0, to steps and on: between roots it has one sign
    lines = (height + reach, other - own), (height + reach, other + own), (height - reach, own - other)
    cuts, growth = sorted(math.floor(top / slope) + 1 for top, slope in lines if slope), exp_bounds(epsilon)[0]
    left = [near(cut) - growth * far(cut - steps) for cut in cuts]  # what all places from there on add up to
    falls = (one - two for one, two in zip([1 - growth, *left], [*left, Fraction(0)], strict=True))
    return sum((fall for fall in falls if fall > 0), Fraction(1, 1 << 300))  # for roots and tails, off by less


def steps_delta(times: int, sampling: Fraction, noise: Fraction, order: int, epsilon: Fraction) -> Fraction:  # at least
    chances = [math.comb(order, k) * (1 - sampling) ** (order - k) * sampling**k for k in range(order + 1)]
    terms = (chance * exp_bounds(k * (k - 1) / (2 * noise**2))[1] for k, chance in enumerate(chances))
    total = times * log_above(Fraction(math.ceil(sum(terms) * ONE), ONE)) - (order - 1) * epsilon
    return exp_bounds(total)[1] * Fraction(order - 1, order) ** order / (order - 1)


def squares(degrees: int, x: Fraction) -> tuple[Fraction, Fraction]:  # P(so many <= x), P(> x), to 2^-150 of each
    check(x * 2**99 > 1 and (x - degrees) ** 2 <= (degrees << 12) + (1 << 24), "sums of squares so far out are unknown")
    # terms (x/2)^k / Gamma(k + 1), k = degrees/2 + n, in units of the first: n >= 0 make P(<= x), the others P(> x)
    low_x = math.floor(x * ONE)
    below = series(lambda n: (low_x, degrees + 2 * n << BITS))
    above = series(lambda n: ((degrees - 2 * n + 2) * (degrees > 2 * n - 1) << BITS, low_x)) - ONE
    one = 2 * normal_tail(root_above(x)) if degrees % 2 else 0  # P(one square > x), which such terms leave out
    return (1 - one) * Fraction(below, below + above), one + (1 - one) * Fraction(above, below + above)


def sketch_delta(degrees: int, leverage: Fraction, epsilon: Fraction) -> Fraction:  # at least, by less than 2^-139
    less, log, growth = 1 - leverage, degrees * log_above(1 / (1 - leverage)) / 2, exp_bounds(epsilon)[0]
    more, fewer = (2 * less * (log + change) / leverage for change in (epsilon, -epsilon))  # where the ratio is growth
    found = [squares(degrees, more)[1] - growth * squares(degrees, more / less)[1]]
    found += [squares(degrees, fewer / less)[0] - growth * squares(degrees, fewer)[0]] if fewer > 0 else []
    return max(found) + Fraction(1, 1 << 140)


def sphere_tail(dims: int, gamma: Fraction) -> Fraction:  # below P(T >= gamma), T a coordinate of a point
    # (1 - gamma (1 + s/2 + 3 s^2/8 + ...)) / 2, where s = 1 - gamma^2 and the sum has (dims - 1) / 2 terms, or in even
    # dimensions (arccos(gamma) - gamma sqrt(s) (1 + 2 s/3 + 8 s^2/15 + ...)) / pi, arccos(gamma) = 2 arcsin(sqrt(half))
    odd, side, half = dims % 2, math.ceil((1 - gamma * gamma) * ONE), math.floor((1 - gamma) * ONE / 2)
    total = series(lambda n: ((2 * n - odd) * (2 * n < dims - 2) * side, 2 * n + 1 - odd << BITS)) * (dims > 2)
    less = gamma * Fraction(total + (total >> BITS - 140), ONE)
    if odd:
        return (1 - less) / 2
    arc = series(lambda n: ((2 * n - 1) ** 2 * half, 2 * n * (2 * n + 1) << BITS)) * math.isqrt(half << BITS)
    low = Fraction(2 * arc, ONE * ONE) - root_above(Fraction(side, ONE)) * less
    return low * Fraction(10 ** (len(PI) - 1), int(PI) + 1)


class Loss(NamedTuple):  # how much more likely one value can make a report than another, rounded to the safe side
    pure: Fraction = Fraction(0)  # the log of a ratio of chances
    square: Fraction = Fraction(0)  # of the deviations by which real Gaussian noise moves
    delta: Callable[[Fraction], Fraction] | None = None  # at an epsilon, where that is not the square's
    many: int = 0  # discrete noises that the square takes for real ones
    terms: tuple[str, ...] = LOCAL
    levels: tuple[tuple["Loss", ...], ...] = ()  # between values of two levels

    def beyond(self, epsilon: Fraction) -> Fraction:  # the delta at an epsilon
        if epsilon < self.pure or not (self.square or self.delta):
            return Fraction(epsilon < self.pure)
        if self.delta:
            return self.delta(epsilon - self.pure)
        mu, left = root_above(self.square), max(epsilon - self.pure - SLACK, Fraction(0))  # SLACK is for smoothing
        near, far = normal_tail(left / mu - mu / 2), normal_tail(left / mu + mu / 2)
        return (1 + SLACK) * (near - exp_bounds(left)[0] * far) + Fraction(1, 1 << 130)


class Proof:  # what laws give away, the lines that say how, and the theorems that it rests on
    def __init__(self) -> None:
        self.lines: dict[str, None] = {}  # each once
        self.theorems: set[str] = set()
        self.work = 0  # in milliseconds, or so

    def works(self, more: int) -> None:
        self.work += more
        check(self.work <= MOST_WORK, "it has too many parts")

    def loss(self, law: Any, domain: Any) -> Loss:  # the line and the theorems of its kind are noted
        kind = str(law.get("kind")) if isinstance(law, dict) else "none"
        check(kind in LAWS and isinstance(domain, dict), f"no law of kind {kind[:40]!r} is known, or no domain")
        fields, cited, words = LAWS[kind]
        values = taken(law, f"law of kind {kind}", fields)[1:]
        self.works(1 + sum(len(one) for one in values if isinstance(one, list)) // 2)
        self.lines[words.format(**law)] = None
        self.theorems.update(cited.split())
        check("size:" not in fields or held(domain, CATEGORIES)[0] == values[0], "it has another number of categories")
        return self.given(kind, values, domain)

    def pure(self, law: Any, domain: Any) -> Loss:  # what a part of a law gives away, which has no delta
        loss = self.loss(law, domain)._replace(levels=())
        check(loss == Loss(loss.pure), "unlike units, or deltas, are not added up")
        return loss

    def answers(self, parts: list[Loss], most: int) -> Loss:  # so many of independent parts, or one part so often
        noisy, often = [part for part in parts if part.square or part.delta], most if len(parts) == 1 else 1
        rounded = ([math.ceil(getattr(part, one) * ONE) for part in parts] for one in ("pure", "square", "many"))
        pure, square, many = (Fraction(often * sum(sorted(each, reverse=True)[:most]), ONE) for each in rounded)
        if often * len(noisy) < 2:
            return [*noisy, *parts][0]._replace(pure=pure, levels=())
        check(all(part.square for part in noisy) and many < 1 << 31, "answers with such a delta are not added up")
        self.theorems.update(["gaussian", "gaussian-composition", *["smoothing"] * (many > 0)])
        return Loss(pure, square, None, int(many), parts[0].terms)

    def given(self, kind: str, values: list[Any], domain: Any) -> Loss:  # at least the log of every ratio
        match kind, values:
            case "keep-or-replace", (size, keep, other):
                return odds(keep + other, other, keep + size * other <= UNIT)
            case "hashed", (_, response):
                return self.pure(response, {"kind": "categorical", "labels": None, "size": response.get("size")})
            case "subset", (size, length, own):  # C(size-1, length-1) sets hold it, C(size-1, length) do not
                return odds(own * (size - length), (UNIT - own) * length, length < size)
            case "columns", (order, own):
                return odds(own, UNIT - own, not order & (order - 1) and held(domain, CATEGORIES)[0] < order)
            case "cyclic", (order, block, own, other):
                check(block < order >= held(domain, CATEGORIES)[0], "it has fewer places than categories")
                return odds(own, other, own * block + other * (order - block) <= UNIT)
            case "meeting-sets", (items, most, length, meeting):  # C(items - most, length) sets have no own item
                options, chosen, _ = held(domain, SELECTION)
                check(most == chosen <= 1 << 12 and length + most <= items == options + most, "sets of other items")
                self.works(most >> 8)
                without = Fraction(*(math.prod(range(end - most + 1, end + 1)) for end in (items - length, items)))
                return odds(meeting * without, (UNIT - meeting) * (1 - without))
            case "drawn-answers", (options, true):
                return odds(true, UNIT - true, held(domain, SELECTION)[0] == options)
            case "arcs", (ring, arc, own):  # a point on no own arc has least where these share nothing
                arcs, draws = held(domain, SELECTION)[1] * arc, 1 << 62
                return odds(own * (ring - arcs), draws - arcs * own, arcs < ring and arcs * own < draws <= own * ring)
            case "bits", (_, others, turned):
                return odds((FINE - turned) * (FINE - others), turned * others, max(others, turned) < FINE)
            case "one-hot", (_, step, noise):
                return self.answers([self.pure(noise, {"kind": "lattice", "steps": str(1 / step)})], 2)
            case "two-point", (low, high):  # in float64, as the device computes
                ends = held(domain, INTERVAL)
                check(float(low) == low < ends[0] and ends[1] < high == float(high), "a report lies inside the domain")
                first, last = (math.ceil(Fraction(float(end - low) * (1 / float(high - low))) * UNIT) for end in ends)
                return max(odds(first, last), odds(UNIT - first, UNIT - last))
            case "window", (first, step, width, moves, own):
                low, high = held(domain, INTERVAL)
                return odds(own * moves, (UNIT - own) * width, first <= low and high <= first + step * (width + moves))
            case "window-over-all", (positions, width, inside, _):
                fits, rest = len(held(domain, INTERVAL)) == 2 and width <= positions, (UNIT - inside) * width
                return odds(inside * positions + rest, rest, fits)
            case "table", (owners, _, rows):
                box(domain) if domain.get("kind") == "box" else held(domain, INTERVAL)  # levels are those of numbers
                size = range(min(len({*owners}), 64))
                self.works(len(size) ** 2 * (1 + len(rows[0]) // 512))
                check(len(owners) == len(rows) and {*owners} == {*size}, "a row has one of 64 levels")
                check(len({(sum(row), *map(bool, row)) for row in rows}) == 1, "totals differ, or a zero stands alone")
                owned = [[row for row, own in zip(rows, owners, strict=True) if own == one] for one in size]
                kept = [[(max(each), min(each)) for each in zip(*own, strict=True) if max(each)] for own in owned]
                ratios = [[max(map(lambda a, b: Fraction(a[0], b[1]), one, two)) for two in kept] for one in kept]
                levels = tuple(tuple(map(Loss, map(log_above, row))) for row in ratios)
                return Loss(max(one.pure for row in levels for one in row), levels=levels)
            case "added-noise", (origin, step, steps, noise):
                *own, low, high = held(domain, GRID if (grid := domain.get("kind") == "grid") else INTERVAL)
                below, above = (float(end - origin) / float(step) for end in (low, high))  # as the device computes
                far = math.floor((high - low) / step + Fraction(1, 2)) if grid else math.ceil(above) - math.floor(below)
                fits = float(origin) == origin and float(step) == step and (not grid or [step, origin] == [*own, low])
                check(fits and steps == far, "values lie otherwise apart")
                return self.loss(noise, {"kind": "lattice", "steps": str(steps)})
            case "mixture", (share, parts):
                check(len(parts) == 2 and share <= UNIT, "a mixture has two parts, and a share of 2^53")
                return max(self.pure(part, domain) for part in parts)
            case "halves", (dims, above, tie, below):
                used = (above, tie, below) if dims % 2 == 0 else (above, below)
                return odds(max(used), min(used), dims == box(domain) and max(used) <= UNIT)
            case (("sampled" | "coordinates"), (dims, report, part)):
                check(report <= dims == (box(domain) if kind == "sampled" else sphere(domain)[0]), "wrong dimensions")
                return self.answers([self.loss(part, NUMBER)], report)
            case "record", (report, parts):
                named = "attributes parts:list names:names"
                domains = held(domain, named if domain.get("kind") == "attributes" else "record parts:list")[0]
                check(report <= len(parts) == len(domains), "each part has one law")
                losses = [self.loss(part, own) for part, own in zip(parts, domains, strict=True)]
                check({loss.terms for loss in losses} == {LOCAL}, "unlike units are not added up")
                return self.answers(losses, report)
            case "laplace", (rate,):
                return Loss(rate * held(domain, LATTICE)[0])
            case "staircase", (rate, width, first, inside):
                check(inside < UNIT and held(domain, LATTICE)[0] <= width, "values lie farther apart than a stair")
                (low, high), top = exp_bounds(-rate), Fraction(inside * width, (UNIT - inside) * first)
                return Loss(max(rate, log_above(top / (1 - high)), log_above((1 - low) / top)))
            case "levels", (lows, tops, rates):
                self.works(len(rates) ** 2)
                fits = tops[-1] == held(domain, LATTICE)[0] and all(map(int.__le__, lows, map(min, tops, [0, *tops])))
                check(fits and min(rates) * 2**99 > 1, "levels leave values out, or noise is too wide")
                ends = list(zip(lows, tops, rates, strict=True))
                far = [[(a, b, max(high - start, end - low)) for start, end, b in ends] for low, high, a in ends]
                levels = tuple(tuple(Loss(delta=partial(levels_delta, *one)) for one in row) for row in far)
                return Loss(delta=lambda at: max(one.beyond(at) for row in levels for one in row), levels=levels)
            case "gaussian", (sigma,):
                [steps], delta = held(domain, LATTICE), None if sigma > SUMMED else partial(noise_delta, sigma)
                square = steps**2 / (sigma**2 - 4) if sigma > 2 else Fraction(0)
                self.theorems.update([] if delta else ["gaussian", "smoothing"])  # wide noise is taken for real noise
                return Loss(square=square, delta=delta and partial(delta, steps), many=1)
            case (("sphere-cap" | "normal-cap"), (dims, gamma, preferred)):
                check(dims <= sphere(domain)[1] and 0 <= gamma < (1 if kind == "sphere-cap" else 40), "it is no cap")
                self.works(dims >> 9)
                mass = sphere_tail(dims, gamma) if kind == "sphere-cap" else (1 - SLACK) * normal_tail(gamma)
                return odds(1 + preferred / ((1 - preferred) * mass), 1, mass > 0)
            case "ranges", (many, width, sigma):  # rounding as in "normal"
                check(sum(many) == sphere(domain)[0] and len(many) < 9, "it has other dimensions")
                far = [one / own * (1 + Fraction(1, 1 << 49)) for one, own in zip(width, sigma, strict=True)]
                return Loss(square=sum(n * (x + Fraction(1, 1 << 36)) ** 2 for n, x in zip(many, far, strict=True)))
            case "normal", (sigma,):
                sizes, *ends = held(domain, BALL if (ball := domain.get("kind") == "tensor-ball") else TENSOR)
                check(not (ball and ends[1] is not None), "only the length of whole tensors is known here")
                (low, high), root = (-ends[0], ends[0]) if ball else ends, root_above(Fraction(math.prod(sizes)))
                far, longest = (high - low, high) if ball else ((high - low) * root, max(-low, high) * root)
                return Loss(square=((far + longest / 2**49) / sigma + root / 2**36) ** 2)  # sums and rounding
            case "sketch", (projections, ridge):
                sizes, radius, mode = held(domain, BALL)
                check(len(sizes) == 2 and mode == "0" and projections <= 1 << 24, "it is no table of bounded rows")
                return Loss(delta=partial(sketch_delta, projections, radius**2 / (radius**2 + ridge)), terms=CENTRAL)
            case "queries", (step, noise, rows):  # float64 and rounding move a sum by a step at most
                sizes, low, high = held(domain, TENSOR)
                self.works(len(rows) * len(rows[0]) >> 7)
                fits = all(len(row) == math.prod(sizes) for row in rows)
                check(fits and all(a.denominator.bit_count() == 1 for row in rows for a in row), "it has other cells")
                reach = (sum(sizes) + 2 * len(sizes)) * max(-low, high) * max(sum(map(abs, row)) for row in rows)
                check(reach <= step * 2**52, "float64 may miss a sum by more than half a step")
                far = root_above(max(sum(a * a for a in cell) for cell in zip(*rows, strict=True))) / step
                far += 2 * root_above(Fraction(len(rows)))
                one = self.loss(noise, {"kind": "lattice", "steps": "1"})
                check(one.square > 0, "the noise is not Gaussian, or too narrow")
                return Loss(square=one.square * far**2, many=len(rows), terms=CENTRAL)
            case "rounds", (times, part):
                return self.answers([self.loss(part, domain)], times)
            case "entries", (unit, steps, many, keep, noise):
                fits = sum(many) == math.prod(held(domain, TENSOR)[0]) and max(keep) < UNIT
                check(fits and len(many) == len(keep) and unit in ("element", "record"), "it is about other entries")
                one = self.loss(noise, {"kind": "lattice", "steps": str(steps)})
                loss = self.answers([one], sum(many) if unit == "record" else 1)
                check(noise["kind"] == "laplace" or max(keep) == 0, "such noise does not hide what is kept")
                end = exp_bounds(-value_of(noise.get("rate", "1"), "p", "rate"))[1]  # P(0) = (1 - end) / (1 + end)
                each = [log_above(1 + Fraction(one, UNIT - one) * (1 + end) / (1 - end)) if one else 0 for one in keep]
                more = max(each) if unit == "element" else sum(n * x for n, x in zip(many, each, strict=True))
                return loss._replace(pure=loss.pure + more, terms=(unit, *LOCAL[1:]))
            case "steps", (times, sampling, noise, order):
                check(domain == {"kind": "examples"} and sampling <= 1 and order <= 256, "it is no run of steps")
                return Loss(delta=partial(steps_delta, times, sampling, noise, order), terms=("example", *CENTRAL[1:]))
        raise LookupError(f"Nothing is known of {kind}.")


def taken(raw: Any, what: str, wanted: str) -> list[Any]:  # by a line such as "gaussian sigma:p", its kind first
    fields = dict((one if ":" in one else "kind:text").split(":") for one in wanted.split())
    check(isinstance(raw, dict) and set(raw) == set(fields), f"the {what} has other fields than {wanted}")
    return [value_of(raw[name], kind, f"{name} of the {what}") for name, kind in fields.items()]


def value_of(value: Any, kind: str, what: str) -> Any:  # a field as what it has to be
    if kind in TYPES:
        check(isinstance(value, TYPES[kind]), f"{what} is no {kind}")
        return value
    if kind[0] == "*":  # a list of such numbers
        return [value_of(one, kind[1:], what) for one in value_of(value, "list", what)]
    check(len(value_of(value, "text", what)) <= MOST_DIGITS and not value.strip("-/0123456789"), f"{what} is no number")
    check(str(number := Fraction(value)) == value, f"{what} is {value[:40]!r}, not in lowest terms")
    fits = number > 0 if kind == "p" else kind == "q" or (number.denominator == 1 and number >= int(kind))
    check(fits, f"{what} is {value[:40]}, not " + ("positive" if kind == "p" else f"a whole number from {kind} on"))
    return number if kind in "pq" else int(number)


def odds(one: Fraction | int, other: Fraction | int, fits: bool = True) -> Loss:  # log of a ratio, rounded up
    check(fits and one > 0 and other > 0, "its numbers are no law for this domain, or a chance leaves nothing over")
    return Loss(log_above(Fraction(max(one, other)) / min(one, other)))


def held(domain: Any, wanted: str) -> list[Any]:  # the fields of a domain, by a line of its kind and its fields
    check(domain.get("kind") == wanted.split()[0], f"the domain is no {wanted.split()[0]}")
    found = taken(domain, "domain", wanted)[1:]
    check("low:q" not in wanted or float(found[-2]) == found[-2] < found[-1] == float(found[-1]), "no float64 interval")
    named = found[-1] if wanted.endswith(":names") else None  # names are as many as parts or categories, if any
    check(named is None or len(named) == (found[0] if "size" in wanted else len(found[0])), "it has other names")
    return found


def box(domain: Any) -> int:
    dims, *ends = held(domain, "box dims:1 low:any high:any")
    lists = [value_of(end if isinstance(end, list) else [end], "*q", "an end") for end in ends]
    most = max(map(len, lists))  # one number holds for all dimensions
    pairs = zip(*(one * (most if len(one) == 1 else 1) for one in lists), strict=True)
    check(most in (1, dims) and all(low < high for low, high in pairs), "the box is empty, or has other dimensions")
    return int(dims)


def sphere(domain: Any) -> tuple[int, int]:  # dimensions of vectors, and of their directions
    dims, _ = held(domain, ("sphere" if domain.get("kind") == "sphere" else "l2-ball") + " dims:1 radius:p")
    return dims, dims + (domain["kind"] == "l2-ball")


def digest(value: Any) -> str:  # the hash of a value's one text: sorted keys, no spaces, UTF-8
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def prove(told: dict[str, Any]) -> Verdict:  # the verdict on a certificate that was read, or refuse
    fields = "format version spec spec_sha256 domain guarantee law law_sha256 theorems sha256"
    check(set(told) == set(fields.split()), f"it has other fields than {fields}")
    check([told["format"], told["version"]] == [FORMAT, VERSION], f"it is no {FORMAT} of version {VERSION}")
    stated = [told["spec_sha256"], told["law_sha256"], told.pop("sha256")]
    check([*map(digest, (told["spec"], told["law"], told))] == stated, "it was changed after hashing")
    parts = [built] if {"domain", "edges"} & set(built := told["spec"].get("spec", told["spec"])) else built["parts"]
    own = [one.get("domain") or {"kind": "interval", "low": (e := one["edges"])[0], "high": e[-1]} for one in parts]
    own = json.loads(re.sub(r'\{"(integer|number)": ("[^"]*")\}', r"\2", json.dumps(own)))  # its numbers are tagged
    check(told["domain"] == ({"kind": "record", "parts": own} if own[1:] else own[0]), "the spec has another domain")
    promise = "epsilon:q delta:q matrix:any unit:text model:text relation:text"
    epsilon, delta, matrix, *terms = taken(told["guarantee"], "guarantee", promise)
    check(0 < epsilon <= MOST_BUDGET and 0 <= delta < 1, "epsilon is not in (0, 2^16], or delta not below 1")
    loss = (proof := Proof()).loss(told["law"], told["domain"])
    check(terms == [*loss.terms], f"the law is about unit, model and relation {[*loss.terms]}, not {terms}")
    budget = f"epsilon {float(epsilon):.17g}" + (f", delta {float(delta):.17g}" if delta else "")
    ratio = f"a report may be exp({float(loss.pure):.17g}) times as likely under one value"
    check(loss.beyond(epsilon) <= delta, f"{ratio if loss.pure > epsilon else 'the noise tells more'}, not {budget}")
    if matrix is not None:
        rows = zip(loss.levels, value_of(matrix, "**q", "the matrix"), strict=True)
        pairs = [pair for both in rows for pair in zip(*both, strict=True)]
        check(pairs != [] and all(one.beyond(most) <= delta for one, most in pairs), "levels are others, or tell more")
    check(told["theorems"] == sorted(proof.theorems), f"the proof rests on the theorems {sorted(proof.theorems)}")
    either = f"one person's {terms[0]} is there or not" if terms[1] == "central" else "two values a person may hold"
    reason = f"{budget}: whatever {either}, no report is more than exp(epsilon) times as likely under one as under the "
    reason += "other" + (f", but for a chance of {float(delta):g}." if delta else ".")
    cited = (f"Taken from a theorem ({name}): {THEOREMS[name]}" for name in told["theorems"])
    return Verdict(True, reason, (*proof.lines, *cited))


def verify(text: str | bytes) -> Verdict:  # the verdict on the text of a certificate
    hooks: Any = dict.fromkeys(("parse_float", "parse_int", "parse_constant"), partial(check, False))  # are not read
    hooks["object_pairs_hook"] = lambda own: dict(own) if len(dict(own)) == len(own) else check(False, "a key is twice")
    try:
        check(len(text) <= LONGEST, f"the file is longer than {LONGEST} bytes")
        return prove(value_of(json.loads(text, **hooks), "object", "the file"))
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        return Verdict(False, "The file is not JSON." if hasattr(error, "doc") else str(error)[:400] or repr(error))


def main() -> None:  # verify the file named on the command line
    try:
        print(verdict := verify(Path(sys.argv[1]).read_bytes()))
    except (IndexError, OSError) as error:
        sys.exit(f"NOT PROVED: {error}. Use: noisette-verify FILE. The exit status is 0 only if FILE is proved.")
    sys.exit(0 if verdict.proved else 1)


if __name__ == "__main__":
    main()
