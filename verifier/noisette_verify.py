"""Check a privacy certificate with integers and fractions: a program on its own, which needs Python and nothing else.

From a law, the chances with which a device answers, it computes how much more likely one value can make a report than
another, rounded to the safe side. It knows kinds of law and no mechanism, and says what it takes from THEOREMS.
"""

from __future__ import annotations

import hashlib
import json
import math
import operator
import re
import sys
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

Pair = tuple[Fraction, Fraction]  # on both sides of a number
FORMAT, VERSION = "noisette-certificate", "1"
UNIT, FINE = 1 << 53, 1 << 61  # draws of which a chance counts how many
BITS, ONE, SUMMED = 640, 1 << 640, 1 << 10  # of every enclosure; the sigma up to which noise is summed
LONGEST, MOST_DIGITS, MOST_BUDGET, MOST_WORK = 1 << 22, 1200, 1 << 20, 3000  # bytes, digits, epsilon, milliseconds
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
}
# Of each kind of law: its fields (from a least whole number on; q: any fraction), its theorems, and what it says.
KINDS = """
keep-or-replace size:2 keep:1 other:1 | | {other} draws report each of {size} values, {keep} more the own value.
hashed maps:1 response:object | mixture post-processing | One of {maps} maps of values to codes is drawn blindly.
subset size:2 length:1 own:1 | | {own} of 2^53 draws give a set of {length} of {size} that holds the own value.
columns order:2 own:1 | sylvester | {own} of 2^53 draws give one of {order} columns where the own row is +1.
cyclic order:2 block:1 own:1 other:1 | | Noise modulo {order} has {own} draws at each of {block} places, else {other}.
meeting-sets items:2 most:1 length:1 meeting:1 | | {meeting} of 2^53 draws give {length} of {items} with an own one.
drawn-answers options:1 true:1 | mixture | {true} of 2^53 draws tell the truth of 1 of {options} options.
arcs ring:2 arc:1 own:1 | mixture | {own} of 2^62 draws give a point of {ring} on an own arc of {arc}, laid by a map.
bits size:2 others:1 turned:1 | | {turned} of 2^61 draws turn the own bit of {size} off, {others} turn another on.
one-hot size:2 step:p noise:object | composition distance | Categories differ by 1 in two of {size} entries.
two-point low:q high:q | rounding | One of two numbers is reported, the higher one more often for higher values.
window first:q step:p width:1 moves:1 inside:1 | | {inside} of 2^53 draws lie in a window of {width} outputs.
window-over-all positions:1 width:1 inside:0 outputs:text | post-processing | {inside} of 2^53 draws take a window.
table levels:*0 outputs:text rows:list | mixture | The chances of a value lie between two rows of its level.
added-noise origin:q step:p steps:0 noise:object | distance mixture rounding | Values lie up to {steps} steps apart.
laplace rate:p | | The mass of the noise falls by one factor from step to step.
staircase rate:p width:1 first:1 inside:1 | | Noise falls in stairs of {width} steps; {inside} of 2^53 lie on the first.
gaussian sigma:p | | Noise k has mass in proportion to exp(-k^2 / (2 sigma^2)).
mixture share:0 parts:list | mixture | {share} of 2^53 draws use one law and the others another, whatever the value.
halves dims:1 above:1 tie:1 below:1 | mixture | {above}, {tie} or {below} of 2^53 keep signs, by how many agree.
sampled dims:1 report:1 part:object | composition mixture | {report} of {dims} dimensions are answered, drawn blindly.
record report:1 parts:list | composition mixture | {report} of the parts of a record are answered, drawn blindly.
coordinates dims:1 report:1 part:object | composition encoding | {report} numbers computed from the value are answered.
sphere-cap dims:2 gamma:q preferred:p | encoding post-processing | Analytic: a direction, often near the own one.
normal-cap dims:2 gamma:q preferred:p | encoding post-processing | Analytic: a normal vector, often on the own side.
ranges many:*1 width:*p sigma:*p | encoding gaussian post-processing | Analytic: computed numbers get Gaussian noise.
normal sigma:p | gaussian post-processing | Analytic: real Gaussian noise on every entry, then rounded.
entries unit:text steps:1 many:*1 keep:*0 noise:object | composition distance | Entries are kept, or get noise.
rounds times:1 part:object | composition gaussian-composition | The same law answers {times} times, afresh each time.
steps times:1 sampling:p noise:p order:2 | renyi | Examples are in each of {times} sums by chance, with Gaussian noise.
"""
CATEGORIES, SELECTION = "categorical size:2 labels:any", "selection size:1 most:1 labels:any"
INTERVAL, LATTICE, NUMBER = "interval low:q high:q", "lattice steps:0", {"kind": "interval", "low": "-1", "high": "1"}
LOCAL, CENTRAL = ["record", "local", "any-pair"], ["example", "central", "add-remove"]  # unit, model and relation
TENSOR, TYPES = "tensor dims:*1 low:q high:q", {"object": dict, "list": list, "text": str, "any": object}


class Refused(Exception):
    """The certificate proves nothing, for the reason given."""


def check(holds: bool, why: str) -> None:
    if not holds:
        raise Refused(f"The certificate does not fit: {why}.")


class Verdict(NamedTuple):
    """Whether the promise is proved, and what was done, in words."""

    proved: bool
    reason: str
    lines: tuple[str, ...] = ()
    theorems: tuple[str, ...] = ()

    def __str__(self) -> str:
        cited = (f"Taken from a theorem ({name}): {THEOREMS[name]}" for name in self.theorems)
        return "\n".join([("" if self.proved else "NOT ") + f"PROVED: {self.reason}", *self.lines, *cited])


def exp_bounds(x: Fraction, bits: int = BITS) -> Pair:  # Taylor's series at x / 2^k, squared k times
    if x < 0:
        return 1 / exp_bounds(-x, bits)[1], 1 / exp_bounds(-x, bits)[0]
    check(x <= MOST_BUDGET, "a power is too large to compare with")
    halvings = (x.numerator // x.denominator + 1).bit_length() + 8
    low_x = (x.numerator << bits) // (x.denominator << halvings)
    low, term, n, exponent = 1 << bits, 1 << bits, 0, -bits
    while term:
        n, term = n + 1, term * low_x // ((n + 1) << bits)
        low += term
    high = low + 4 * n + 8  # a term is off by less than 2 of the last bits, x by 1; what is left out is below 2
    for _ in range(halvings):
        low, high, exponent = low * low, high * high, 2 * exponent
        extra = max(0, high.bit_length() - 2 * bits)
        low, high, exponent = low >> extra, -(-high >> extra), exponent + extra
    return low * Fraction(2) ** exponent, high * Fraction(2) ** exponent


def log_above(ratio: Fraction) -> Fraction:  # a fraction of few digits whose exp is certainly at least ``ratio``
    scale = ratio.numerator.bit_length() - ratio.denominator.bit_length()
    guess = Fraction(math.log(ratio / Fraction(2) ** scale) + scale * math.log(2))
    for _ in range(4):  # Newton's steps double the digits
        guess = Fraction(math.ceil((guess + ratio / exp_bounds(guess)[0] - 1) * 2**560) + 1, 2**560)
    check(ratio <= exp_bounds(guess)[0], "a logarithm could not be enclosed")
    return guess


def root_above(square: Fraction) -> Fraction:  # a fraction above the root of a square
    return Fraction(math.isqrt(math.ceil(square * ONE * ONE)) + 1, ONE)


def root_two_pi(bits: int) -> Pair:  # fractions on both sides of the root of 2 pi
    low, high = (math.isqrt((2 * end << 2 * bits) // 10 ** (len(PI) - 1)) for end in (int(PI), int(PI) + 1))
    return Fraction(low, 1 << bits), Fraction(high + 1, 1 << bits)


def normal_tail(x: Fraction) -> Pair:  # Q(x) = P(N(0, 1) > x), x >= 0, by 1/2 - phi(x) sum x^(2n+1) / (2n+1)!!
    if x > 1400:
        return Fraction(0), exp_bounds(Fraction(-980_000))[1]
    if x > 16:  # by phi(x) / x (1 - 1/x^2 + 3/x^4 - ...), which every two sums that follow each other enclose
        total = term = ONE
        for n in range(1, 65):
            term = (1 - 2 * n) * term * x.denominator**2 // x.numerator**2
            total += term
        ends, roots, off = exp_bounds(-x * x / 2), root_two_pi(BITS), abs(term) + 200
        return (total - off) * ends[0] / (ONE * x * roots[1]), (total + off) * ends[1] / (ONE * x * roots[0])
    bits = BITS + 2 * math.ceil(x * x)
    low_x, sums = (x.numerator << bits) // x.denominator, []
    for start, up in ((low_x, 0), (low_x + 1, 1)):
        square, term, total, n = start * start, start, start, 0
        while term > up or (n < 2 * math.ceil(x * x) + 2):
            n += 1
            term = (term * square >> 2 * bits) // (2 * n + 1) + up
            total += term + up
        sums.append(Fraction(total + up * (2 * term + 2), 1 << bits))  # the rest is below twice the last term
    (low_root, high_root), (low_exp, high_exp) = root_two_pi(bits), exp_bounds(-x * x / 2, bits)
    return Fraction(1, 2) - sums[1] * high_exp / low_root, Fraction(1, 2) - sums[0] * low_exp / high_root


def gaussian_sum(sigma: Fraction, first: int) -> Pair:  # of f(k) = exp(-k^2 / (2 sigma^2)) over k >= first >= 1
    ends = []
    for up in (0, 1):
        total, powers = 0, (-(first**2) / (2 * sigma**2), -(2 * first + 1) / (2 * sigma**2), -1 / sigma**2)
        term, ratio, change = (math.floor(exp_bounds(power)[up] * ONE) + up for power in powers)
        while term >> 64:
            total += term
            term, ratio = (term * ratio >> BITS) + up, (ratio * change >> BITS) + up
        # from here on terms fall at least as fast as a geometric series of this ratio
        ends.append((total + (term / (1 - Fraction(ratio, ONE)) if up else Fraction(0))) / ONE)
    return tuple(ends)  # type: ignore[return-value]


def gaussian_delta(sigma: Fraction, steps: int, epsilon: Fraction) -> Fraction:  # at least that of discrete noise
    first = math.ceil(epsilon * sigma**2 / steps - Fraction(steps, 2))  # from here on f(k) >= exp(epsilon) f(k + steps)
    all_of = [1 + 2 * end for end in gaussian_sum(sigma, 1)]
    growth, far = exp_bounds(epsilon)[0], gaussian_sum(sigma, first + steps)[0]
    if first >= 1:
        return (gaussian_sum(sigma, first)[1] - growth * far) / all_of[0]
    return 1 - (gaussian_sum(sigma, 1 - first)[0] + growth * far) / all_of[1]


def normal_delta(square: Fraction, epsilon: Fraction) -> Fraction:  # at least that of real noise, or of smoothed one
    mu, slack = root_above(square), Fraction(1, 1 << 80)  # for what smoothing leaves of up to 2^31 numbers
    epsilon = max(epsilon - slack, slack)
    first, second = epsilon / mu - mu / 2, epsilon / mu + mu / 2
    near = normal_tail(first)[1] if first >= 0 else 1 - normal_tail(-first)[0]
    return (1 + slack) * (near - exp_bounds(epsilon)[0] * normal_tail(second)[0])


def steps_delta(times: int, sampling: Fraction, noise: Fraction, order: int, epsilon: Fraction) -> Fraction:  # at least
    chances = [math.comb(order, k) * (1 - sampling) ** (order - k) * sampling**k for k in range(order + 1)]
    terms = (chance * exp_bounds(k * (k - 1) / (2 * noise**2))[1] for k, chance in enumerate(chances))
    total = times * log_above(Fraction(math.ceil(sum(terms) * ONE), ONE)) - (order - 1) * epsilon
    return exp_bounds(total)[1] * Fraction(order - 1, order) ** order / (order - 1)


def sphere_tail(dims: int, gamma: Fraction) -> Fraction:  # below P(T >= gamma), T a coordinate of a point
    # S_m, the integral of (1 - t^2)^m from gamma to 1, has (2m + 1) S_m = 2m S_(m-1) - gamma (1 - gamma^2)^m
    low, whole, power, n = math.floor((1 - gamma) * ONE), 2 * ONE, ONE, 0
    if dims % 2 == 0:  # from m = -1/2 on, not from 0: pi, and arccos(gamma) = 2 arcsin(x), x^2 = (1 - gamma) / 2
        x = term = math.isqrt(math.floor((1 - gamma) * ONE * ONE / 2))
        low, whole = 0, (int(PI) + 1) * ONE // 10 ** (len(PI) - 1) + 1
        power = math.ceil(root_above(1 / (1 - gamma * gamma)) * ONE)
        while term:
            low, n = low + 2 * term, n + 1
            term = (term * x * x >> 2 * BITS) * (2 * n - 1) ** 2 // (2 * n * (2 * n + 1))
    step, ratio = math.ceil(gamma * ONE), math.ceil((1 - gamma * gamma) * ONE)
    for twice in range(1 + dims % 2, dims - 2, 2):  # twice m
        power = (power * ratio >> BITS) + 1
        low, whole = (twice * low - (step * power >> BITS) - 1) // (twice + 1), twice * whole // (twice + 1) + 1
    return Fraction(low, whole)


class Proof:
    """What laws give away as logs, the lines that say how, and the theorems that it rests on."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.theorems: set[str] = set()
        self.delta: Any = None  # of noise that has one, as a function of epsilon
        self.square: Fraction | None = None  # of the deviations by which the mean of real Gaussian noise moves
        self.matrix: list[list[Fraction]] | None = None  # between levels of a table
        self.noise: tuple[Fraction, int] | None = None  # discrete Gaussian: sigma, and the steps that it hides
        self.terms, self.work = LOCAL, 0

    def fields(self, law: Any, domain: Any) -> tuple[str, list[Any]]:  # its kind and values, noted
        kind = str(law.get("kind")) if isinstance(law, dict) else "none"
        found = re.search(rf"^{re.escape(kind)} (.*?) \| (.*?) ?\| (.*)$", KINDS, re.MULTILINE)
        if not isinstance(domain, dict) or found is None or " " in kind:  # a kind's name ends before its fields
            raise Refused(f"The certificate does not fit: no law of kind {kind[:40]!r} is known, or no domain.")
        values = taken(law, f"law of kind {kind}", found[1])
        dear = values[0] >> 9 if kind == "sphere-cap" else values[1] >> 8 if kind == "meeting-sets" else 0
        self.work += 1 + dear + sum(len(one) for one in values if isinstance(one, list)) // 2
        check(self.work <= MOST_WORK, "it has too many parts")
        line = found[3].format(**dict(zip(re.findall(r"(\w+):", found[1]), values, strict=True)))
        self.lines += [line] if line not in self.lines else []
        self.theorems.update(found[2].split())
        if "size:" in found[1]:
            check(held(domain, CATEGORIES)[0] == values[0], "it is about another number of categories")
        return kind, values

    def pure(self, law: Any, domain: Any) -> Fraction:  # what a part of a law gives away
        loss = self.loss(law, domain)
        check(self.delta is self.square is None, "unlike parts with a delta are not added up by this program")
        return loss

    def often(self, times: int, law: Any, domain: Any) -> Fraction:  # what independent answers of one law give away
        loss = self.loss(law, domain)
        if self.noise is not None and (times > 1 or self.noise[0] > SUMMED):  # take discrete noise for real noise
            check(self.noise[0] > 2 and times < 1 << 31, "the noise is too narrow to be taken for real noise")
            self.theorems.update(["smoothing", "gaussian", *["gaussian-composition"] * (times > 1)])
            self.square, self.delta, self.noise = Fraction(self.noise[1] ** 2) / (self.noise[0] ** 2 - 4), None, None
        check(self.delta is None or times == 1, "answers with such a delta are not added up by this program")
        self.square = None if self.square is None else times * self.square
        return Fraction(times * loss)

    def loss(self, law: Any, domain: Any) -> Fraction:  # at least the log of every ratio of chances
        match self.fields(law, domain):
            case "keep-or-replace", (size, keep, other):
                return odds(keep + other, other, keep + size * other <= UNIT, "the weights are above 2^53")
            case "hashed", (_, response):
                return self.pure(response, {"kind": "categorical", "labels": None, "size": response.get("size")})
            case "subset", (size, length, own):  # C(size-1, length-1) sets hold it, C(size-1, length) do not
                return odds(own * (size - length), (UNIT - own) * length, length < size, "a set leaves nothing over")
            case "columns", (order, own):
                return odds(own, UNIT - own, not order & (order - 1) and held(domain, CATEGORIES)[0] < order, "no rows")
            case "cyclic", (order, block, own, other):
                fits = own * block + other * (order - block) <= UNIT and block < order >= held(domain, CATEGORIES)[0]
                return odds(own, other, fits, "the weights are above 2^53, or there are too few reports")
            case "meeting-sets", (items, most, length, meeting):
                options, chosen, _ = held(domain, SELECTION)
                fits = most == chosen <= 1 << 12 and items == options + most
                ends = [math.prod(range(end - most + 1, end + 1)) if fits else 0 for end in (items - length, items)]
                without = Fraction(ends[0], ends[1] or 1)  # of all sets, C(items - most, length) / C(items, length)
                return odds(meeting * without, (UNIT - meeting) * (1 - without), fits, "the items are not the options")
            case "drawn-answers", (options, true):
                return odds(true, UNIT - true, held(domain, SELECTION)[0] == options, "the options are others")
            case "arcs", (ring, arc, own):  # a point on no own arc has least where these share nothing
                covered = held(domain, SELECTION)[1] * arc
                fits = covered < ring and covered * own < 1 << 62 <= own * ring
                return odds(own * (ring - covered), (1 << 62) - covered * own, fits, "the arcs hold too little or much")
            case "bits", (size, others, turned):
                return odds((FINE - turned) * (FINE - others), turned * others, max(others, turned) < FINE, "no law")
            case "one-hot", (_, step, noise):
                check((1 / step).denominator == 1, "0 and 1 are not on the lattice")
                return 2 * self.pure(noise, {"kind": "lattice", "steps": str(1 / step)})
            case "two-point", (low, high):
                ends = held(domain, INTERVAL)
                check(float(low) == low < ends[0] and ends[1] < high == float(high), "a report lies inside the domain")
                scale = 1 / float(high - low)  # as the device computes in float64
                first, last = (math.ceil(Fraction(float(end - low) * scale) * UNIT) for end in ends)
                return max(odds(first, last), odds(UNIT - first, UNIT - last))
            case "window", (first, step, width, moves, inside):
                low, high = held(domain, INTERVAL)
                fits = first <= low and high <= first + step * (width + moves)
                return odds(inside * moves, (UNIT - inside) * width, fits, "outputs miss the domain")
            case "window-over-all", (positions, width, inside, _):
                fits, rest = len(held(domain, INTERVAL)) == 2 and width <= positions, (UNIT - inside) * width
                return odds(inside * positions + rest, rest, fits, "the window is wider than all positions")
            case "table", (levels, _, rows):
                box(domain) if domain.get("kind") == "box" else held(domain, INTERVAL)  # levels are those of numbers
                return self.table(levels, rows)
            case "added-noise", (origin, step, steps, noise):
                check(float(origin) == origin and steps == distance(domain, origin, step), "values lie otherwise apart")
                return self.often(1, noise, {"kind": "lattice", "steps": str(steps)})
            case "mixture", (share, parts):
                check(len(parts) == 2 and share <= UNIT, "a mixture has two parts, and a share of 2^53")
                return max(self.pure(part, domain) for part in parts)
            case "halves", (dims, above, tie, below):
                used = (above, tie, below) if dims % 2 == 0 else (above, below)
                return odds(max(used), min(used), dims == box(domain) and max(used) <= UNIT, "it has other dimensions")
            case ("sampled" | "coordinates") as kind, (dims, report, part):
                check(report <= dims == (box(domain) if kind == "sampled" else sphere(domain)[0]), "wrong dimensions")
                return self.often(report, part, NUMBER)
            case "record", (report, parts):
                domains = value_of(domain["parts"] if domain["kind"] in ("record", "attributes") else 0, "list", "it")
                check(report <= len(parts) == len(domains), "each part has one law")
                return sum(sorted(map(self.pure, parts, domains), reverse=True)[:report], Fraction(0))
            case "laplace", (rate,):
                return Fraction(rate * held(domain, LATTICE)[0])
            case "staircase", (rate, width, first, inside):
                check(inside < UNIT and held(domain, LATTICE)[0] <= width, "values lie farther apart than a stair")
                (low, high), top = exp_bounds(-rate), Fraction(inside * width, (UNIT - inside) * first)
                return max(Fraction(rate), log_above(top / (1 - high)), log_above((1 - low) / top))
            case "gaussian", (sigma,):
                self.noise = sigma, held(domain, LATTICE)[0]
                self.delta = partial(gaussian_delta, *self.noise)
            case ("sphere-cap" | "normal-cap") as kind, (dims, gamma, preferred):
                check(dims <= sphere(domain)[1] and 0 <= gamma < 40 and preferred < 1, "it is no cap of the domain")
                mass = sphere_tail(dims, gamma) if kind == "sphere-cap" else normal_tail(gamma)[0]
                return odds(1 + preferred / ((1 - preferred) * mass), 1, mass > 0, "the cap is empty")
            case "ranges", (many, width, sigma):  # rounding as in `moved`: to 2^-36 deviations, and float64's
                check(sum(many) == sphere(domain)[0] and len(many) < 9, "it has other dimensions")
                far = [one / own * (1 + Fraction(1, 1 << 49)) for one, own in zip(width, sigma, strict=True)]
                self.square = Fraction(sum(n * (x + Fraction(1, 1 << 36)) ** 2 for n, x in zip(many, far, strict=True)))
            case "normal", (sigma,):
                self.square = moved(domain, sigma)
            case "rounds", (times, part):
                return self.often(times, part, domain)
            case "entries", (unit, steps, many, keep, noise):
                fits = sum(many) == math.prod(held(domain, TENSOR)[0]) and max(keep) < UNIT
                check(fits and len(many) == len(keep) and unit in ("element", "record"), "it is about other entries")
                loss = self.often(sum(many) if unit == "record" else 1, noise, {"kind": "lattice", "steps": str(steps)})
                self.terms = [unit, *LOCAL[1:]]
                check(noise["kind"] == "laplace" or max(keep) == 0, "such noise does not hide what is kept")
                end = exp_bounds(-fraction(noise.get("rate", "1"), "rate"))[1]  # P(no noise) = (1 - end) / (1 + end)
                each = [log_above(1 + Fraction(one, UNIT - one) * (1 + end) / (1 - end)) if one else 0 for one in keep]
                return loss + (max(each) if unit == "element" else sum(map(operator.mul, many, each)))
            case "steps", (times, sampling, noise, order):
                check(domain == {"kind": "examples"} and sampling <= 1 and order <= 256, "it is no run of steps")
                self.terms, self.delta = CENTRAL, partial(steps_delta, times, sampling, noise, order)
        return Fraction(0)

    def table(self, owners: list[int], rows: list[Any]) -> Fraction:  # and what it tells between levels
        size, self.work = range(min(len({*owners}), 64)), self.work + len({*owners}) ** 2 * (1 + len(rows[0]) // 512)
        check(self.work <= MOST_WORK and len(owners) == len(rows) and {*owners} == {*size}, "it has too many levels")
        weights = [value_of(row, "*0", "a row") for row in rows]
        check(len({(len(row), sum(row)) for row in weights}) == 1, "the rows do not have one length and one total")
        check(all(min(column) > 0 or max(column) == 0 for column in zip(*weights, strict=True)), "a zero stands alone")
        kept = [column for column in zip(*weights, strict=True) if max(column)]
        rows_of = [[place for place, own in enumerate(owners) if own == level] for level in size]
        most, least = ([[pick(c[r] for r in own) for c in kept] for own in rows_of] for pick in (max, min))
        self.matrix = [[log_above(max(map(Fraction, most[i], least[j]))) for j in size] for i in size]
        return max(map(max, self.matrix))


def taken(raw: Any, what: str, wanted: str) -> list[Any]:  # by a line such as "size:2 rate:q"
    fields = dict(one.split(":") for one in wanted.split())
    check(isinstance(raw, dict) and set(raw) - {"kind"} == set(fields), f"the {what} has other fields than {wanted}")
    return [value_of(raw[name], kind, f"{name} of the {what}") for name, kind in fields.items()]


def value_of(value: Any, kind: str, what: str) -> Any:  # a field as what it has to be
    if kind in TYPES:
        check(isinstance(value, TYPES[kind]), f"{what} is no {kind}")
        return value
    if kind[0] == "*":  # a list of such numbers
        return [value_of(one, kind[1:], what) for one in value_of(value, "list", what)]
    number = fraction(value, what)
    fits = number > 0 if kind == "p" else kind == "q" or (number.denominator == 1 and number >= int(kind))
    check(fits, f"{what} is {value[:40]}, not " + ("positive" if kind == "p" else f"a whole number from {kind} on"))
    return number if kind in "pq" else int(number)


def odds(one: Fraction | int, other: Fraction | int, fits: bool = True, why: str = "") -> Fraction:  # log, rounded up
    check(fits and one > 0 and other > 0, why if not fits else "a chance leaves nothing over")
    return log_above(Fraction(max(one, other)) / min(one, other))


def fraction(text: Any, what: str) -> Fraction:  # written in one way
    check(isinstance(text, str) and len(text) <= MOST_DIGITS, f"{what} is no text of at most {MOST_DIGITS} digits")
    written = re.fullmatch(r"(0|-?[1-9][0-9]*)(/[1-9][0-9]*)?", text, re.ASCII)
    check(written is not None and str(Fraction(text)) == text, f"{what} is {text[:40]!r}, no fraction in lowest terms")
    return Fraction(text)


def held(domain: Any, wanted: str) -> list[Any]:  # the fields of a domain, by its kind and a line of fields
    kind, _, fields = wanted.partition(" ")
    check(domain.get("kind") == kind, f"the domain is no {kind}")
    found = taken(domain, "domain", fields)
    floats = "low:q high:q" not in fields or float(found[-2]) == found[-2] < found[-1] == float(found[-1])
    check(floats, "the domain is empty, or its ends are no float64")
    return found


def distance(domain: Any, origin: Fraction, step: Fraction) -> Any:  # in steps, once on the lattice
    if domain.get("kind") == "grid":
        own, low, high = held(domain, "grid step:q low:q high:q")
        check((origin, step) == (low, own), "the lattice is not the domain's grid")
        return round((high - low) / own)
    below, above = (Fraction(float(end - origin)) / step for end in held(domain, INTERVAL))
    return math.ceil(above) - math.floor(below)


def box(domain: Any) -> int:
    dims, *ends = held(domain, "box dims:1 low:any high:any")
    lists = [value_of(end if isinstance(end, list) else [end], "*q", "an end") for end in ends]
    most = max(map(len, lists))  # one number holds for all dimensions
    fits = most in (1, dims) and {len(one) for one in lists} <= {1, most}
    check(fits and all(map(operator.lt, *(one * (most // len(one)) for one in lists))), "the box is empty, or no box")
    return int(dims)


def sphere(domain: Any) -> tuple[int, int]:  # dimensions of vectors, and of their directions
    dims, _ = held(domain, ("sphere" if domain.get("kind") == "sphere" else "l2-ball") + " dims:1 radius:p")
    check(dims <= 1 << 20, "the domain has too many dimensions")
    return dims, dims + (domain["kind"] == "l2-ball")


def moved(domain: Any, sigma: Fraction) -> Fraction:  # square of the deviations by which two values move noise
    # rounding to 2^-36 deviations moves an entry by at most that, float64's sums a vector by 2^-49 of its length
    ball = domain.get("kind") == "tensor-ball"
    sizes, *ends = held(domain, "tensor-ball dims:*1 radius:p mode:any" if ball else TENSOR)
    low, high = (-ends[0], ends[0]) if ball else ends
    check(not (ball and ends[1] is not None), "only the length of whole tensors is known here")
    root = root_above(Fraction(math.prod(sizes)))
    far, longest = (high - low, high) if ball else ((high - low) * root, max(-low, high) * root)
    return Fraction(((far + longest / 2**49) / sigma + root / 2**36) ** 2)


def digest(value: Any) -> str:  # the hash of a value's one text: sorted keys, no spaces, UTF-8
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def read(text: str | bytes) -> dict[str, Any]:  # no numbers but in texts, no key twice
    check(len(text) <= LONGEST, f"the file is longer than {LONGEST} bytes")
    hooks: Any = dict.fromkeys(("parse_float", "parse_int", "parse_constant"), partial(check, False))  # are not read
    hooks["object_pairs_hook"] = lambda own: dict(own) if len(dict(own)) == len(own) else check(False, "a key is twice")
    return dict(value_of(json.loads(text, **hooks), "object", "the file"))


def prove(told: dict[str, Any]) -> Verdict:  # the verdict on a certificate that was read, or refuse
    fields = "format version spec spec_sha256 domain guarantee law law_sha256 theorems sha256"
    check(set(told) == set(fields.split()), f"it has other fields than {fields}")
    check([told["format"], told["version"]] == [FORMAT, VERSION], f"it is no {FORMAT} of version {VERSION}")
    for name in ("spec", "law"):
        check(told[f"{name}_sha256"] == digest(told[name]), f"the {name} is not the one that was hashed")
    check(told["sha256"] == digest({k: v for k, v in told.items() if k != "sha256"}), "it was changed after hashing")
    spec, domain = value_of(told["spec"], "object", "the spec"), told["domain"]
    plain = re.sub(r'\{"(integer|number)": ("[^"]*")\}', r"\2", json.dumps(spec.get("domain", domain)))
    check(json.loads(plain) == domain, "the domain is not the one of the spec, whose numbers are tagged")
    promise = "epsilon:q delta:q matrix:any unit:text model:text relation:text"
    epsilon, delta, matrix, *terms = taken(told["guarantee"], "guarantee", promise)
    check(0 < epsilon <= MOST_BUDGET and 0 <= delta < 1, "epsilon is not positive, or delta not below 1")
    loss = (proof := Proof()).loss(told["law"], domain)
    check(terms == proof.terms, f"the law is about unit, model and relation {proof.terms}, not {terms}")
    chance = partial(normal_delta, proof.square) if proof.square is not None else proof.delta
    budget = f"epsilon {float(epsilon):.17g}" + (f", delta {float(delta):.17g}" if delta else "")
    check(chance is None or (loss == 0 < delta and chance(epsilon) <= delta), f"the noise tells more than {budget}")
    check(loss <= epsilon, f"a report may be exp({float(loss):.17g}) times as likely under one value, not {budget}")
    if matrix is not None:
        known = (proof.matrix or []) if told["law"]["kind"] == "table" else []  # of the whole law, not of a part
        levels = [value_of(row, "*q", "the matrix") for row in matrix]
        check([len(row) for row in levels] == [len(known)] * len(known) != [], "the law has other levels")
        check(all(all(map(operator.le, *rows)) for rows in zip(known, levels, strict=True)), "two levels tell more")
    check(told["theorems"] == sorted(proof.theorems), f"the proof rests on the theorems {sorted(proof.theorems)}")
    either = "one person's example is there or not" if terms[1] == "central" else "two values a person may hold"
    reason = f"{budget}: whatever {either}, no report is more than exp(epsilon) times as likely under one as under the "
    reason += "other" + (f", but for a chance of {float(delta):g}." if delta else ".")
    return Verdict(True, reason, tuple(proof.lines), tuple(sorted(proof.theorems)))


def verify(text: str | bytes) -> Verdict:  # the verdict on the text of a certificate
    try:
        return prove(read(text))
    except (Refused, ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        return Verdict(False, "The file is not JSON." if hasattr(error, "doc") else str(error)[:400] or repr(error))


def main() -> None:  # verify the file named on the command line
    try:
        verdict = verify(Path(sys.argv[1]).read_bytes())
    except (IndexError, OSError) as error:
        sys.exit(f"NOT PROVED: {error}. Use: noisette-verify FILE. The exit status is 0 only if FILE is proved.")
    print(verdict)
    sys.exit(0 if verdict.proved else 1)


if __name__ == "__main__":
    main()
