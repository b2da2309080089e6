"""Check a privacy certificate with integers and fractions: a program on its own, which needs Python and nothing else.

A certificate holds a law: the chances with which a device answers, as whole numbers. This program computes from the law
how much more likely one person's value can make a report than another's, rounds to the safe side, and compares that
with what is promised. It knows kinds of law and no mechanism; floats never enter a comparison. What it does not compute
it takes from the theorems in THEOREMS, and says so. Use: noisette-verify FILE. The exit status is 0 only if proved.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import sys
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

FORMAT, VERSION = "noisette-certificate", "1"
UNIT, FINE = 1 << 53, 1 << 61  # draws of which a chance counts how many
BITS = 640  # of every enclosure
LONGEST, MOST_DIGITS, MOST_BUDGET = 1 << 24, 1200, 1 << 20  # bytes of a file, digits of a number, epsilon
SUMMED = 1 << 10  # up to this sigma a discrete Gaussian is summed term by term
PI = "3141592653589793238462643383279502884197169399375105820974944592307816406286208998628034825342117067"  # cut off
THEOREMS = {
    "mixture": "A mixture whose shares do not depend on the value tells no more than the worst of its parts.",
    "composition": "Independent answers tell at most the sum of what each tells (Dwork, Roth 2014, Theorem 3.16).",
    "post-processing": "What is computed from a report alone tells no more (Dwork, Roth 2014, Proposition 2.1).",
    "rounding": "Rounding to the nearest float64 is monotone (IEEE 754), so the ends of an interval are the worst.",
    "distance": "Where the mass of noise falls with its distance from zero, values farthest apart are the worst.",
    "poisson": "Over all integers exp(-k^2 / (2 s^2)) adds up to s sqrt(2 pi) (1 + 2 sum exp(-2 pi^2 s^2 n^2)).",
    "euler-maclaurin": "A sum is an integral, its first correction, and a bounded rest (see gaussian_sum).",
    "sylvester": "Every row but the first of Sylvester's matrix holds +1 in half of its columns.",
}
# Of each kind of law: its fields (from a least whole number on; q: any fraction), its theorems, and what it says.
KINDS = """
keep-or-replace size:2 keep:1 other:1 | | Of all draws {keep} report the own one of {size}, and {other} more each one.
hashed maps:1 response:object | mixture post-processing | One of {maps} maps of values to codes is drawn blindly.
subset size:2 length:1 own:1 | | {own} of 2^53 draws give a set of {length} of {size} with the own one, all alike.
columns order:2 own:1 | sylvester | {own} of 2^53 draws give a column of {order} where the own row is +1, all alike.
cyclic order:2 block:1 own:1 other:1 | | Noise modulo {order} has {own} draws at each of {block} places, else {other}.
meeting-sets items:2 most:1 length:1 meeting:1 | | {meeting} of 2^53 draws give {length} of {items} with own ones.
drawn-answers options:1 true:1 | mixture | {true} of 2^53 draws tell the truth of 1 of {options} options.
bits size:2 others:1 turned:1 | | Of 2^61 draws {turned} turn the own bit of {size} off, {others} each other one on.
one-hot size:2 step:q noise:object | composition distance | Categories differ by 1 in two of {size} entries.
two-point low:q high:q | rounding | One of two numbers is reported, the higher one more often for higher values.
window first:q step:q width:1 moves:1 inside:1 | | {inside} of 2^53 draws lie in a window of {width} outputs.
window-over-all positions:1 width:1 inside:0 outputs:text | post-processing | {inside} of 2^53 draws take a window.
table levels:list outputs:text rows:list | mixture | The chances of a value lie between two rows of its level.
added-noise origin:q step:q steps:0 noise:object | distance mixture rounding | Values lie up to {steps} steps apart.
laplace rate:q | | The mass of the noise falls by one factor from step to step.
staircase rate:q width:1 first:1 inside:1 | | Noise falls in stairs of {width} steps; {inside} of 2^53 lie on the first.
gaussian sigma:q | poisson euler-maclaurin | Noise k has mass in proportion to exp(-k^2 / (2 sigma^2)).
mixture share:0 parts:list | mixture | {share} of 2^53 draws use one law and the others another, whatever the value.
halves dims:1 above:1 tie:1 below:1 | mixture | {above}, {tie} or {below} of 2^53 keep signs, by how many agree.
sampled dims:1 report:1 part:object | composition mixture | {report} of {dims} dimensions are answered, drawn blindly.
record report:1 parts:list | composition mixture | {report} of the parts of a record are answered, drawn blindly.
"""
TYPES: dict[str, Any] = {"object": dict, "list": list, "text": str, "any": object}


class Refused(Exception):
    """The certificate proves nothing, for the reason given."""


@dataclass(frozen=True)
class Verdict:
    """Whether the promise is proved, and what was done, in words."""

    proved: bool
    reason: str
    lines: tuple[str, ...] = ()
    theorems: tuple[str, ...] = ()

    def __str__(self) -> str:
        cited = (f"Taken from a theorem ({name}): {THEOREMS[name]}" for name in self.theorems)
        return "\n".join([("" if self.proved else "NOT ") + f"PROVED: {self.reason}", *self.lines, *cited])


def exp_bounds(x: Fraction, bits: int = BITS) -> tuple[Fraction, Fraction]:
    """Return fractions on both sides of exp(x): Taylor's series at x / 2^k, squared k times, rounded outward."""
    if x < 0:
        below, above = exp_bounds(-x, bits)
        return 1 / above, 1 / below
    if x > MOST_BUDGET:
        raise Refused(f"exp({float(x):g}) is too large to compare with.")
    halvings = (x.numerator // x.denominator + 1).bit_length() + 8
    low_x = (x.numerator << bits) // (x.denominator << halvings)
    low = high = term_low = term_high = 1 << bits
    n = 0
    while term_high > 1:
        n += 1
        term_low = term_low * low_x // (n << bits)
        term_high = -(-term_high * (low_x + 1) // (n << bits))
        low, high = low + term_low, high + term_high
    high += 2  # x / 2^k is below 1/128: what is left out is below the last term
    exponent = -bits
    for _ in range(halvings):
        low, high, exponent = low * low, high * high, 2 * exponent
        extra = max(0, high.bit_length() - 2 * bits)
        low, high, exponent = low >> extra, -(-high >> extra), exponent + extra
    return low * Fraction(2) ** exponent, high * Fraction(2) ** exponent


def log_above(ratio: Fraction) -> Fraction:
    """Return a fraction of few digits whose exp is certainly at least ``ratio``."""
    scale = ratio.numerator.bit_length() - ratio.denominator.bit_length()
    guess = Fraction(math.log(ratio / Fraction(2) ** scale) + scale * math.log(2))
    for _ in range(4):  # Newton's steps double the digits
        guess += ratio / exp_bounds(guess)[0] - 1
        guess = Fraction(math.ceil(guess * 2**560) + 1, 2**560)
    if ratio > exp_bounds(guess)[0]:
        raise Refused("A logarithm could not be enclosed.")
    return guess


def root_two_pi(bits: int) -> tuple[Fraction, Fraction]:
    """Return fractions on both sides of the root of 2 pi."""
    low, high = (math.isqrt((2 * end << 2 * bits) // 10 ** (len(PI) - 1)) for end in (int(PI), int(PI) + 1))
    return Fraction(low, 1 << bits), Fraction(high + 1, 1 << bits)


def normal_tail(x: Fraction) -> tuple[Fraction, Fraction]:
    """Return fractions on both sides of Q(x) = P(N(0, 1) > x), x >= 0, by 1/2 - phi(x) sum x^(2n+1) / (2n+1)!!."""
    if x > 40:
        return Fraction(0), exp_bounds(-x * x / 2)[1] / 2
    bits = BITS + 2 * math.ceil(x * x)
    low_x = (x.numerator << bits) // x.denominator
    sums = []
    for start, up in ((low_x, 0), (low_x + 1, 1)):
        square, term, total, n = start * start, start, start, 0
        while term > up or (n < 2 * math.ceil(x * x) + 2):
            n += 1
            term = (term * square >> 2 * bits) // (2 * n + 1) + up
            total += term + up
        sums.append(Fraction(total + up * (2 * term + 2), 1 << bits))  # the rest is below twice the last term
    low_root, high_root = root_two_pi(bits)
    low_exp, high_exp = exp_bounds(-x * x / 2, bits)
    return Fraction(1, 2) - sums[1] * high_exp / low_root, Fraction(1, 2) - sums[0] * low_exp / high_root


def gaussian_sum(sigma: Fraction, first: int) -> tuple[Fraction, Fraction]:
    """Return fractions on both sides of the sum of f(k) = exp(-k^2 / (2 sigma^2)) over the integers k >= first >= 1."""
    if sigma <= SUMMED:
        ends: list[Fraction] = []
        for up in (0, 1):
            powers = -(first**2) / (2 * sigma**2), -(2 * first + 1) / (2 * sigma**2), -1 / sigma**2
            term, ratio, change = (math.floor(exp_bounds(power)[up] * 2**BITS) + up for power in powers)
            total = 0
            while term >> 64:
                total += term
                term, ratio = (term * ratio >> BITS) + up, (ratio * change >> BITS) + up
            # from here on terms fall at least as fast as a geometric series of this ratio
            ends.append((total + (term / (1 - Fraction(ratio, 1 << BITS)) if up else Fraction(0))) / 2**BITS)
        return ends[0], ends[1]
    # Euler-Maclaurin from t sigma = first - 1/2 on: sum = integral + slope / 24 +- 1/384 of what the fourth
    # derivative adds up to, at most 4 / sigma^3 and t^3 f / sigma^3 beyond the last turn of the third one, t = 2.4
    t = (first - Fraction(1, 2)) / sigma
    density, tail, roots = exp_bounds(-t * t / 2), normal_tail(t), root_two_pi(BITS)
    rest = (t**3 * density[1] if t > Fraction(5, 2) else 4) / (384 * sigma**3)
    low, high = (sigma * roots[i] * tail[i] - t * density[1 - i] / (24 * sigma) for i in (0, 1))
    return low - rest, high + rest


def gaussian_delta(sigma: Fraction, steps: int, epsilon: Fraction) -> Fraction:
    """Return an upper bound of delta of discrete Gaussian noise between values ``steps`` apart."""
    if steps == 0:
        return Fraction(0)
    first = math.ceil(epsilon * sigma**2 / steps - Fraction(steps, 2))  # from here on f(k) >= exp(epsilon) f(k + steps)
    if sigma < 8:
        all_of = tuple(1 + 2 * end for end in gaussian_sum(sigma, 1))
    else:  # Poisson's other terms are below 4 exp(-2 pi^2 64)
        low, high = root_two_pi(BITS)
        all_of = sigma * low, sigma * high * (1 + Fraction(1, 1 << 1800))
    growth, far = exp_bounds(epsilon)[0], gaussian_sum(sigma, first + steps)[0]
    if first >= 1:
        return (gaussian_sum(sigma, first)[1] - growth * far) / all_of[0]
    return 1 - (gaussian_sum(sigma, 1 - first)[0] + growth * far) / all_of[1]


class Proof:
    """What laws give away as logs, the lines that say how, and the theorems that it rests on."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.theorems: set[str] = set()
        self.gaussian: tuple[Fraction, int] | None = None  # sigma, and steps between values
        self.matrix: list[list[Fraction]] | None = None  # between levels of a table

    def fields(self, law: Any, domain: Any) -> tuple[str, list[Any]]:
        """Return the kind of a law and its fields, and note what is said of it."""
        kind = str(law.get("kind")) if isinstance(law, dict) else "none"
        found = re.search(rf"^{re.escape(kind)} (.*?) \| (.*?) ?\| (.*)$", KINDS, re.MULTILINE)
        if found is None or not isinstance(domain, dict):
            raise Refused(f"A law of kind {kind[:40]!r} is not known, or its domain is no object.")
        values = taken(law, f"law of kind {kind}", found[1])
        line = found[3].format(**dict(zip(re.findall(r"(\w+):", found[1]), values, strict=True)))
        self.lines += [line] if line not in self.lines else []
        self.theorems.update(found[2].split())
        if "size:" in found[1]:
            check(categories(domain) == values[0], f"it is about {values[0]} categories, the domain has others")
        return kind, values

    def pure(self, law: Any, domain: Any) -> Fraction:
        """Return what a part of a law gives away."""
        loss = self.loss(law, domain)
        check(self.gaussian is None, "parts with a delta are not added up by this program")
        return loss

    def loss(self, law: Any, domain: Any) -> Fraction:
        """Return an upper limit of the log of the ratio of the chances of any report for any two values."""
        match self.fields(law, domain):
            case "keep-or-replace", (size, keep, other):
                check(keep + size * other <= UNIT, "the weights add up to more than 2^53 draws")
                return odds(keep + other, other)
            case "hashed", (_, response):
                return self.pure(response, {"kind": "categorical", "labels": None, "size": response.get("size")})
            case "subset", (size, length, own):
                check(length < size, "a set leaves nothing over")
                # C(size-1, length-1) sets hold the own category and C(size-1, length) do not
                return odds(own * (size - length), (UNIT - own) * length)
            case "columns", (order, own):
                check(order & (order - 1) == 0 and categories(domain) < order, "the matrix has too few rows")
                return odds(own, UNIT - own)
            case "cyclic", (order, block, own, other):
                check(block < order >= categories(domain), "there are too few reports")
                check(own * block + other * (order - block) <= UNIT, "the weights add up to more than 2^53 draws")
                return odds(own, other)
            case "meeting-sets", (items, most, length, meeting):
                options, chosen = selection(domain)
                check(
                    most == chosen and items == options + most <= LONGEST, "the items are options and one for none each"
                )
                # the share of all sets without an own item, C(items - most, length) / C(items, length)
                without = math.prod((Fraction(items - length - i, items - i) for i in range(most)), start=Fraction(1))
                return odds(meeting * without, (UNIT - meeting) * (1 - without))
            case "drawn-answers", (options, true):
                check(selection(domain)[0] == options, "the options are not the domain's")
                return odds(true, UNIT - true)
            case "bits", (size, others, turned):
                check(others < FINE and turned < FINE, "a chance leaves nothing over")
                return odds((FINE - turned) * (FINE - others), turned * others)
            case "one-hot", (_, step, noise):
                check(step > 0 and (1 / step).denominator == 1, "0 and 1 are not on the lattice")
                return 2 * self.pure(noise, {"kind": "lattice", "steps": str(1 / step)})
            case "two-point", (low, high):
                ends = interval(domain)
                check(low < ends[0] and ends[1] < high, "a report lies inside the domain")
                scale = nearest(1 / nearest(high - low))  # as the device computes in float64
                first, last = (math.ceil(nearest(nearest(end - low) * scale) * UNIT) for end in ends)
                return max(odds(first, last), odds(UNIT - first, UNIT - last))
            case "window", (first, step, width, moves, inside):
                low, high = interval(domain)
                check(step > 0 and first <= low and high <= first + step * (width + moves), "outputs miss the domain")
                return odds(inside * moves, (UNIT - inside) * width)
            case "window-over-all", (positions, width, inside, _):
                interval(domain)
                check(width <= positions, "the window is wider than all positions")
                return odds(inside * positions + (UNIT - inside) * width, (UNIT - inside) * width)
            case "table", (levels, _, rows):
                check(domain.get("kind") in ("interval", "box"), "levels are those of numbers")
                return self.table(levels, rows)
            case "added-noise", (origin, step, steps, noise):
                check(step > 0, "a step is not positive")
                check(steps == distance(domain, origin, step), f"values do not lie up to {steps} steps apart")
                return self.loss(noise, {"kind": "lattice", "steps": str(steps)})
            case "mixture", (share, parts):
                check(len(parts) == 2 and share <= UNIT, "a mixture has two parts, and a share of 2^53")
                return max(self.pure(part, domain) for part in parts)
            case "halves", (dims, above, tie, below):
                check(dims == box(domain), f"the law is about {dims} dimensions, the domain has others")
                used = (above, tie, below) if dims % 2 == 0 else (above, below)
                check(max(used) <= UNIT, "a weight is above 2^53")
                return odds(max(used), min(used))
            case "sampled", (dims, report, part):
                check(report <= dims == box(domain), "the dimensions are not the domain's")
                return Fraction(report) * self.pure(part, {"kind": "interval", "low": "-1", "high": "1"})
            case "record", (report, parts):
                domains = domain.get("parts")
                check(isinstance(domains, list) and report <= len(parts) == len(domains), "each part has one law")
                losses = sorted(map(self.pure, parts, domains), reverse=True)
                return sum(losses[:report], Fraction(0))
            case "laplace", (rate,):
                check(rate > 0, "the rate of the noise is not positive")
                return Fraction(rate * steps_of(domain))
            case "staircase", (rate, width, first, inside):
                check(rate > 0 and inside < UNIT, "a chance leaves nothing over")
                check(steps_of(domain) <= width, f"values lie farther apart than a stair of {width}")
                (low, high), top = exp_bounds(-rate), Fraction(inside * width, (UNIT - inside) * first)
                return max(Fraction(rate), log_above(top / (1 - high)), log_above((1 - low) / top))
            case _, (sigma,):
                check(sigma > 0, "sigma is not positive")
                self.gaussian = sigma, steps_of(domain)
        return Fraction(0)

    def table(self, levels: list[Any], rows: list[Any]) -> Fraction:
        """Return what a table of weights gives away, and between which levels."""
        check(len(levels) == len(rows) > 0 and all(isinstance(row, list) for row in rows), "a row has one level")
        *weights, owners = [[taken({"a": one}, "table", "a:0")[0] for one in row] for row in [*rows, levels]]
        check(len({(len(row), sum(row)) for row in weights}) == 1, "the rows do not have one length and one total")
        check(all(min(column) > 0 or max(column) == 0 for column in zip(*weights, strict=True)), "a zero stands alone")
        size = range(max(owners) + 1)
        check(set(owners) == set(size), "a level has no row")
        kept = [column for column in zip(*weights, strict=True) if max(column)]
        rows_of = [[place for place, own in enumerate(owners) if own == level] for level in size]
        most, least = ([[pick(c[r] for r in own) for c in kept] for own in rows_of] for pick in (max, min))
        found = [[log_above(max(map(Fraction, most[i], least[j]))) for j in size] for i in size]
        self.matrix = found
        return max(map(max, found))


def taken(raw: Any, what: str, wanted: str) -> list[Any]:
    """Return the fields of an object, refusing others, by a line such as "size:2 rate:q"."""
    fields = dict(one.split(":") for one in wanted.split())
    if not isinstance(raw, dict) or set(raw) - {"kind"} != set(fields):
        raise Refused(f"The {what} has the fields {sorted(fields)}, and others were found.")
    values: list[Any] = []
    for name, kind in fields.items():
        value = raw[name]
        if kind in TYPES and not isinstance(value, TYPES[kind]):
            raise Refused(f"{name} of the {what} is no {kind}.")
        if kind not in TYPES:
            value = fraction(value, f"{name} of the {what}")
            if kind != "q" and (value.denominator != 1 or value < int(kind)):
                raise Refused(f"{name} of the {what} is {value}, no whole number from {kind} on.")
        values.append(value if kind in TYPES or kind == "q" else int(value))
    return values


def check(holds: bool, why: str) -> None:
    if not holds:
        raise Refused(f"The law does not fit: {why}.")


def odds(one: Fraction | int, other: Fraction | int) -> Fraction:
    """Return the log of the ratio of two weights, the larger by the smaller, rounded up."""
    check(one > 0 and other > 0, "a chance leaves nothing over")
    return log_above(Fraction(max(one, other)) / min(one, other))


def fraction(text: Any, what: str) -> Fraction:
    """Read a whole number or a fraction in lowest terms: every number is written in one way."""
    if not isinstance(text, str) or len(text) > MOST_DIGITS:
        raise Refused(f"{what} is {str(text)[:40]!r}, no text of at most {MOST_DIGITS} digits.")
    if not re.fullmatch(r"-?(0|[1-9][0-9]*)(/[1-9][0-9]*)?", text, re.ASCII) or str(value := Fraction(text)) != text:
        raise Refused(f"{what} is {text[:40]!r}, neither a whole number nor a fraction in lowest terms.")
    return value


def nearest(value: Fraction) -> Fraction:
    """Round to the nearest float64, as the device does."""
    return Fraction(float(value))


def categories(domain: Any) -> int:
    check(domain.get("kind") == "categorical", "the domain has no categories")
    return int(taken(domain, "domain", "size:2 labels:any")[0])


def selection(domain: Any) -> list[int]:
    check(domain.get("kind") == "selection", "the domain is no selection")
    return taken(domain, "domain", "size:1 most:1 labels:any")[:2]


def interval(domain: Any) -> tuple[Fraction, Fraction]:
    check(domain.get("kind") == "interval", "the domain is no interval")
    low, high = taken(domain, "domain", "low:q high:q")
    check(low < high, "the domain is empty")
    return low, high


def distance(domain: Any, origin: Fraction, step: Fraction) -> Any:
    """Return how many steps the values of an interval or a grid lie apart once they are on the lattice."""
    if domain.get("kind") == "grid":
        low, high, own = taken(domain, "domain", "low:q high:q step:q")
        check((origin, step) == (low, own) and high >= low, "the lattice is not the domain's grid")
        return round((high - low) / own)
    below, above = (nearest(end - origin) / step for end in interval(domain))
    return math.ceil(above) - math.floor(below)


def steps_of(domain: Any) -> int:
    check(domain.get("kind") == "lattice", "noise is added on a lattice")
    return int(taken(domain, "lattice", "steps:0")[0])


def box(domain: Any) -> int:
    check(domain.get("kind") == "box", "the domain is no box")
    dims, *ends = taken(domain, "domain", "dims:1 low:any high:any")
    lows, highs = (end if isinstance(end, list) else [end] * min(dims, LONGEST) for end in ends)
    check(len(lows) == len(highs) == dims, "the box has another number of dimensions")
    for low, high in set(zip(map(str, lows), map(str, highs), strict=True)):
        check(fraction(low, "an end of the box") < fraction(high, "an end of the box"), "the domain is empty")
    return int(dims)


def digest(value: Any) -> str:
    """Return the hash of a value's one text: sorted keys, no spaces, UTF-8."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def untagged(value: Any) -> Any:
    """Return part of a spec with its numbers as in the rest of the certificate."""
    if isinstance(value, dict) and len(value) == 1 and set(value) <= {"integer", "number"}:
        return next(iter(value.values()))
    if isinstance(value, dict):
        return {key: untagged(inner) for key, inner in value.items()}
    return [untagged(inner) for inner in value] if isinstance(value, list) else value


def read(text: str | bytes) -> dict[str, Any]:
    """Parse a certificate strictly: no numbers but in texts, and no key twice."""

    def no_number(found: str) -> Any:
        raise Refused(f"The number {found[:40]} stands outside of quotes: floats and bare integers are not read.")

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            raise Refused("A key occurs twice in one object.")
        return found

    if len(text) > LONGEST:
        raise Refused(f"The file is longer than {LONGEST} bytes.")
    try:
        hooks: Any = dict.fromkeys(("parse_float", "parse_int", "parse_constant"), no_number)
        value = json.loads(text, object_pairs_hook=once, **hooks)
    except (ValueError, RecursionError) as error:
        raise Refused(f"The file is not JSON: {str(error)[:200]}") from None
    return value if isinstance(value, dict) else {}


_FIELDS = {"format", "version", "spec", "spec_sha256", "domain", "guarantee", "law", "law_sha256", "theorems", "sha256"}
_PROMISE = "epsilon:q delta:q matrix:any unit:text model:text relation:text"
_TERMS = ["record", "local", "any-pair"]


def prove(certificate: dict[str, Any]) -> Verdict:
    """Return the verdict on a certificate that was read, or refuse."""
    if set(certificate) != _FIELDS:
        raise Refused(f"A certificate has other fields: look at {sorted(set(certificate) ^ _FIELDS)}.")
    if [certificate["format"], certificate["version"]] != [FORMAT, VERSION]:
        raise Refused(f"This is not of the format {FORMAT}, version {VERSION}.")
    for name in ("spec", "law"):
        if certificate[f"{name}_sha256"] != digest(certificate[name]):
            raise Refused(f"The {name} is not the one that was hashed.")
    if certificate["sha256"] != digest({key: value for key, value in certificate.items() if key != "sha256"}):
        raise Refused("The certificate was changed after it was hashed.")
    spec, domain = certificate["spec"], certificate["domain"]
    if not isinstance(spec, dict) or untagged(spec.get("domain", domain)) != domain:
        raise Refused("The domain is not the one of the spec.")
    epsilon, delta, matrix, *terms = taken(certificate["guarantee"], "guarantee", _PROMISE)
    if terms != _TERMS:
        raise Refused(f"The laws known here are about unit, model and relation {_TERMS}, not {terms}.")
    if not (0 < epsilon <= MOST_BUDGET and 0 <= delta < 1):
        raise Refused("The promise says nothing: epsilon is positive, and delta below 1.")
    proof = Proof()
    loss = proof.loss(certificate["law"], domain)
    budget = f"epsilon {float(epsilon):.17g}" + (f", delta {float(delta):.17g}" if delta else "")
    if proof.gaussian and (delta == 0 or gaussian_delta(*proof.gaussian, epsilon) > delta):
        raise Refused(f"Gaussian noise has a larger delta than is promised with {budget}.")
    if loss > epsilon:
        raise Refused(f"A report may be exp({float(loss):.17g}) times as likely under one value: more than {budget}.")
    if matrix is not None:
        known = proof.matrix or []
        check(isinstance(matrix, list) and [len(row) for row in matrix] == [len(known)] * len(known) != [], "no levels")
        pairs = [pair for own, promised in zip(known, matrix, strict=True) for pair in zip(own, promised, strict=True)]
        check(all(own <= fraction(promised, "the matrix") for own, promised in pairs), "two levels are told apart more")
    if certificate["theorems"] != sorted(proof.theorems):
        raise Refused(f"The proof rests on the theorems {sorted(proof.theorems)}, and others are named.")
    reason = (
        f"{budget}: whatever two values a person may hold, no report is more than exp(epsilon) times as likely under "
    )
    reason += "one as under the other" + (f", but for a chance of {float(delta):g}." if delta else ".")
    return Verdict(True, reason, tuple(proof.lines), tuple(sorted(proof.theorems)))


def verify(text: str | bytes) -> Verdict:
    """Return the verdict on the text of a certificate."""
    try:
        return prove(read(text))
    except (Refused, ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        return Verdict(False, str(error)[:400] or type(error).__name__)


def main() -> None:
    """Verify the file named on the command line."""
    try:
        verdict = verify(Path(sys.argv[1]).read_bytes())
    except (IndexError, OSError) as error:
        sys.exit(f"NOT PROVED: {error}. Use: noisette-verify FILE. The exit status is 0 only if FILE is proved.")
    print(verdict)
    sys.exit(0 if verdict.proved else 1)


if __name__ == "__main__":
    main()
