"""Conformance vectors: random words and the reports that Python makes of them, which every other device must make too.

Run as a script it writes conformance.json, conformance_surveys.json and the two files of clients/js anew.
"""

from __future__ import annotations

import hashlib
import json
import math
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from randomgen.wrapper import UserBitGenerator

import noisette as nz
from noisette.certificates import certify
from noisette.domains import Attributes, Categorical, Interval, Selection, Texts
from noisette.mechanisms.graded.levelled import LevelledResponse
from noisette.mechanisms.graded.optimal import OptimalGraded
from noisette.mechanisms.vector.attributes import SampledAttributes
from noisette.survey.campaigns import Campaign

FILE = Path(__file__).parent / "conformance.json"
SURVEY_FILE = FILE.with_name("conformance_surveys.json")
MANY_FILE = Path(__file__).parents[2] / "clients" / "js" / "test" / "vectors.json"
DRAWN_FILE = MANY_FILE.with_name("drawn.json")
LAST = 2**64 - 1
BLOCKS, BLOCK = 4, 25  # of draws for each mechanism, with one digest a block


class Script:
    """A generator whose first words are given; more of them come from a seed. It remembers what was used."""

    def __init__(self, words: Sequence[int], seed: int) -> None:
        self.words, self.used = list(words), 0
        self._more = np.random.PCG64(seed)
        self._half: int | None = None
        self._source = UserBitGenerator(self._word, 64, next_32=self._word32)
        self.generator = np.random.Generator(self._source)

    def _word(self, _: Any) -> int:
        if self.used == len(self.words):
            self.words.append(int(self._more.random_raw()))
        self.used += 1
        return self.words[self.used - 1]

    def _word32(self, _: Any) -> int:
        """Return the lower half of a word, and the higher half the next time, as numpy's own generators do."""
        if self._half is not None:
            held, self._half = self._half, None
            return held
        word = self._word(None)
        self._half = word >> 32
        return word & 0xFFFFFFFF


def mechanisms() -> Iterator[tuple[Any, list[Any]]]:
    """Yield mechanisms and inputs for each of them."""
    wide, year = Interval(), Interval(0, 120)
    for epsilon in (0.1, 1.0, 4.0):
        for name in ("duchi", "piecewise", "piecewise-optimal", "hybrid", "laplace", "square-wave"):
            yield nz.CATALOGUE[name](epsilon=epsilon, domain=wide), [-1.0, 0.3, 1.0]
            yield nz.CATALOGUE[name](epsilon=epsilon, domain=year), [0.0, 35.25]
        for name in ("grr", "sue", "oue", "olh", "subset-selection", "hadamard", "pgr"):
            for size in (2, 20):
                yield nz.CATALOGUE[name](epsilon=epsilon, domain=Categorical(size)), [0, size - 1]
    yield nz.CATALOGUE["laplace"](epsilon=1e-4, domain=wide), [-1.0, 0.3]
    mixed = Attributes((year, 4, year, Interval(0, 1), 9, 4), names=tuple("abcdef"))
    inner = ("hybrid", "grr", "hybrid", "laplace", "subset-selection", "oue")
    for report in (1, 2, 5, 6):
        yield SampledAttributes(inner, epsilon=4.0, domain=mixed, report=report), [[35.0, 3, 120.0, 0.5, 8, 0]]
    levels: dict[str, Any] = {"edges": (-1.0, -0.5, 0.5, 1.0), "epsilons": (1.0, 2.0, 1.0)}
    for epsilon, budgets in ((0.5, (0.1578, 0.3156, 0.1578)), (3.0, (0.9765, 1.953, 0.9765))):
        for most in (1, 3, 6):
            for name in ("privset", "drawn-option"):
                domain = Selection(6, most)
                rows = [[-1] * most, [5] + [-1] * (most - 1), list(range(most))]
                yield nz.CATALOGUE[name](epsilon=epsilon, domain=domain), rows
        for texts in (Texts(6), Texts(12, alphabet="abcdefé ")):
            yield nz.CATALOGUE["pem"](epsilon=epsilon, domain=texts), ["a", "bé", "fée d"]
        yield LevelledResponse(levels["edges"], budgets), [-1.0, -0.5, 0.3, 1.0]
    yield OptimalGraded(**levels, rule="max", points=8, objective="average"), [-1.0, -0.5, 0.3, 1.0]
    for epsilon in (0.1, 1.0):
        yield nz.SlidingHalf(epsilon=epsilon, domain=year), [0.0, 35.25, 120.0]
    many = Attributes((3,) * 20, names=tuple(f"q{number}" for number in range(20)))
    yield SampledAttributes("olh", epsilon=2.0, domain=many, report=5), [[number % 3 for number in range(20)]]
    for epsilon, size, most in ((0.5, 300, 3), (4.0, 70, 1)):
        rows = [[-1] * most, [size - 1] + [-1] * (most - 1), list(range(most))]
        yield nz.Wheel(epsilon=epsilon, domain=Selection(size, most)), rows


def scripts(mechanism: Any) -> Iterator[list[int]]:
    """Yield the first words of scripts: none, the extremes, and those at which a draw is hard to decide."""
    yield from ([], [], [0], [LAST])
    if mechanism.name == "sampled-attributes":
        return  # among equal words which attributes are drawn is up to numpy's partition
    yield from ([0] * 25, [LAST] * 3)
    rate = mechanism.table().get("rate")
    if rate is not None and rate > 2.0**-26:  # U within float64's doubt of exp(-rate k); the sign at its two edges
        for steps in (1, 1000, round(1 / rate)):
            digits = math.floor(math.exp(-rate * steps) * 2**53)
            zero = math.tanh(rate / 2)
            for sign in (zero, (1 + zero) / 2):
                yield [LAST, digits << 11, math.floor(sign * 2**53) << 11]
    if mechanism.name in ("sue", "oue"):  # short draws that decide nothing, and one that 48 more bits leave open
        decided, sums = mechanism._others._shares
        bound, edge = (65536 - decided.size) << 48, sums[100] >> 424
        yield [0, LAST, -(-(edge << 64) // bound), 7, 9]


def vectors() -> list[dict[str, Any]]:
    """Return mechanisms, each with its draws: the input, the words that were used and the report."""
    found = []
    for place, (mechanism, inputs) in enumerate(mechanisms()):
        draws = []
        for number, (first, x) in enumerate((first, x) for first in scripts(mechanism) for x in inputs):
            script = Script(first, 1000 * place + number)
            report = np.asarray(mechanism.privatize(np.asarray([x]), rng=script.generator))[0].tolist()
            words = [f"{word:x}" for word in script.words[: script.used]]
            row = x if isinstance(x, list) else [x]
            if isinstance(mechanism.domain, Selection):  # the page knows no empty places
                row = [[code for code in row if code >= 0]]
            draws.append({"row": row, "words": words, "report": json.dumps(report, separators=(",", ":"))})
        law = {"mechanism": mechanism.name, "epsilon": mechanism.guarantee.epsilon, "table": mechanism.table()}
        law["law_sha256"] = certify(mechanism).law_sha256
        found.append(law | {"attributes": _attributes(mechanism.domain), "draws": draws})
    return found


class Mixed:
    """Words of splitmix64, which is a few lines in any language; it counts what was used."""

    def __init__(self, seed: int) -> None:
        self.used, self._state = 0, seed
        self._half: int | None = None
        self._source = UserBitGenerator(self._word, 64, next_32=self._word32)
        self.generator = np.random.Generator(self._source)

    def _word(self, _: Any) -> int:
        self.used += 1
        self._state = (self._state + 0x9E3779B97F4A7C15) & LAST
        word = self._state
        word = ((word ^ (word >> 30)) * 0xBF58476D1CE4E5B9) & LAST
        word = ((word ^ (word >> 27)) * 0x94D049BB133111EB) & LAST
        return word ^ (word >> 31)

    _word32 = Script._word32


def bits(report: Any) -> str:
    """Write a report so that only the same bits give the same text: numbers as float64, longer integers in digits."""
    if isinstance(report, list):
        return f"[{','.join(map(bits, report))}]"
    if isinstance(report, int) and abs(report) > 2**53:
        return str(report)
    return struct.pack(">d", report + 0.0).hex()  # there is no negative zero


def many(blocks: range = range(BLOCKS)) -> list[dict[str, Any]]:
    """Return mechanisms with the digests of their draws: of block b, draw k has the seed 2^32 place + 2^16 b + k."""
    found = []
    for place, (mechanism, inputs) in enumerate(mechanisms()):
        selects = isinstance(mechanism.domain, Selection)
        rows = [x if isinstance(x, list) else [x] for x in inputs]
        digests = []
        for block in blocks:
            lines = []
            for draw in range(BLOCK):
                words = Mixed((place << 32) + (block << 16) + draw)
                x = np.asarray([inputs[draw % len(inputs)]])
                report = np.asarray(mechanism.privatize(x, rng=words.generator))[0].tolist()
                lines.append(f"{bits(report)} {words.used}\n")
            digests.append(hashlib.sha256("".join(lines).encode()).hexdigest()[:32])
        law = {"mechanism": mechanism.name, "table": mechanism.table(), "attributes": _attributes(mechanism.domain)}
        shown = [[[code for code in row if code >= 0]] for row in rows] if selects else rows
        found.append(law | {"rows": shown, "draws": BLOCK, "digests": digests})
    return found


def _attributes(domain: Any) -> list[dict[str, Any]]:
    """Return what a campaign would say is asked: ranges of numbers, and labels of categories."""
    parts = domain.parts if isinstance(domain, Attributes) else (domain,)
    return [{"name": f"q{place}"} | _values(part) for place, part in enumerate(parts)]


def _values(part: Any) -> dict[str, Any]:
    if isinstance(part, Interval):
        return {"range": [part.low, part.high]}
    if isinstance(part, Selection):
        return {"options": [str(code) for code in range(part.size)], "most": part.most}
    if isinstance(part, Texts):
        return {"text": part.longest} | ({} if part.alphabet is None else {"alphabet": part.alphabet})
    return {"categories": [str(code) for code in range(part.size)]}


SURVEYS: tuple[tuple[dict[str, Any], dict[str, Any]], ...] = (
    ({"attributes": [{"name": "hours", "range": [0, 80], "want": "quantiles"}]}, {"hours": 37.5}),
    ({"attributes": [{"name": "age", "range": [18, 99], "want": "quantiles", "whole": True}]}, {"age": 42}),
    ({"attributes": [{"name": "hours", "range": [0, 80], "want": "variance"}]}, {"hours": 37.5}),
    ({"attributes": [{"name": "born", "range": ["1950-01-01", "2010-12-31"]}]}, {"born": "1987-05-04"}),
    ({"attributes": [{"name": "rises", "range": ["00:00", "12:00"], "want": "quantiles"}]}, {"rises": "06:45"}),
    ({"attributes": [{"name": "smokes", "categories": ["yes", "no"], "optional": True}]}, {"smokes": None}),
    ({"attributes": [{"name": "minutes", "range": [0, 120], "optional": True}]}, {"minutes": 30}),
    (
        {
            "attributes": [
                {"name": "minutes", "range": [0, 120]},
                {"name": "by", "categories": ["car", "bike", "bus"]},
                {"name": "devices", "options": ["phone", "tablet", "watch", "ring"], "most": 2},
                {"name": "site", "text": 8},
                {"name": "income", "levels": [[0, 50, 2.0], [50, 100, 1.0]]},
                {"name": "hours", "range": [0, 80], "want": "quantiles"},
            ],
            "mechanism": {"minutes": "piecewise", "by": "grr", "devices": "privset", "site": "pem"}
            | {"income": "levelled", "hours": "auto"},
        },
        {"minutes": 35, "by": "bike", "devices": ["watch"], "site": " é.org", "income": 50, "hours": 12.5},
    ),
    (
        {
            "attributes": [
                {"name": "by", "categories": ["car", "bike"]},
                {"name": "minutes", "range": [0, 120]},
                {"name": "region", "categories": ["n", "s"]},
            ],
            "joint": [["by", "minutes"]],
        },
        {"by": "bike", "minutes": 35, "region": "s"},
    ),
    ({"attributes": [{"name": "hours", "range": [0, 80], "want": "quantiles", "cells": 256}]}, {"hours": 37.5}),
    (
        {"attributes": [{"name": "born", "range": [1900, 2010], "want": "quantiles", "cells": 16, "whole": True}]},
        {"born": 1987},
    ),
    ({"attributes": [{"name": "has", "options": ["tv", "car"], "most": 2, "optional": True}]}, {"has": None}),
    ({"attributes": [{"name": "has", "options": ["tv", "car", "cat"], "most": 1, "optional": True}]}, {"has": ["cat"]}),
    ({"attributes": [{"name": "site", "text": 8, "optional": True}]}, {"site": None}),
    ({"attributes": [{"name": "word", "text": 3, "alphabet": "abc", "optional": True}]}, {"word": None}),
    ({"attributes": [{"name": "word", "text": 3, "alphabet": "a c", "optional": True}]}, {"word": "a c"}),
)


def survey_vectors() -> list[dict[str, Any]]:
    """Return campaigns of every kind of question, as a page is shown them, and what is drawn for one person."""
    found = []
    for place, (fields, values) in enumerate(SURVEYS):
        campaign = Campaign.from_dict({"id": "q", "epsilon": 2.0, "users": 10_000} | fields)
        draws = []
        for seed in range(12):
            script = Script([], 10_000 + 100 * place + seed)
            report = campaign.privatize(values, rng=script.generator)
            words = [f"{word:x}" for word in script.words[: script.used]]
            draws.append({"words": words, "report": json.dumps(report, separators=(",", ":"))})
        shown = campaign.to_wire() | {"table": campaign.mechanism.table()}
        kept = (
            "id",
            "version",
            "attributes",
            "joint",
            "epsilon",
            "period",
            "answers",
            "tokens",
            "public_group",
            "table",
        )
        law = certify(campaign.survey).law_sha256
        found.append(
            {"campaign": {name: shown[name] for name in kept}, "values": values, "law_sha256": law, "draws": draws}
        )
    return found


_TWENTY = [f"q{number}" for number in range(20)]
_TRACKED: dict[str, Any] = {"answers": "tracked", "attributes": [{"name": "by", "categories": ["car", "bike"]}]}
DRAWN: tuple[tuple[dict[str, Any], dict[str, Any]], ...] = (  # whatever a signature draws: seeds, groups, attributes
    ({"attributes": [{"name": "by", "categories": ["a", "b", "c"]}], "mechanism": "olh"}, {"by": "b"}),
    ({"attributes": [{"name": "has", "options": _TWENTY, "most": 3}], "mechanism": "wheel"}, {"has": ["q3", "q19"]}),
    ({"attributes": [{"name": "has", "options": _TWENTY, "most": 20}], "mechanism": "drawn-option"}, {"has": _TWENTY}),
    ({"attributes": [{"name": "site", "text": 8}]}, {"site": "é.org"}),
    ({"attributes": [{"name": "hours", "range": [0, 80], "want": "quantiles"}]}, {"hours": 37.5}),
    (
        {"attributes": [{"name": name, "range": [0, 1]} for name in _TWENTY], "report": 5, "mechanism": "piecewise"},
        dict.fromkeys(_TWENTY, 0.25),
    ),
    (
        {"attributes": [{"name": name, "categories": ["a", "b"]} for name in _TWENTY], "report": 9, "mechanism": "olh"},
        dict.fromkeys(_TWENTY, "b"),
    ),
    (
        {
            "attributes": [
                {"name": "drink", "text": 6},
                {"name": "age", "range": [0, 99]},
                {"name": "by", "categories": ["a", "b"]},
                {"name": "has", "options": _TWENTY, "most": 3},
            ],
            "mechanism": {"drink": "pem", "age": "piecewise", "by": "grr", "has": "wheel"},
        },
        {"drink": "tea", "age": 30, "by": "b", "has": []},
    ),
    (_TRACKED | {"period": "day", "begins": "2024-02-20", "periods": 400}, {"by": "car"}),
    (_TRACKED | {"period": "week", "begins": "2020-W50", "periods": 200}, {"by": "car"}),
    (_TRACKED | {"period": "month", "begins": "2026-11", "periods": 30}, {"by": "bike"}),
)


def drawn_vectors() -> list[dict[str, Any]]:
    """Return campaigns of drawn tokens, and what signatures and words make of one person's answers."""
    found = []
    for place, (fields, values) in enumerate(DRAWN):
        campaign = Campaign.from_dict({"id": "q", "epsilon": 2.0, "users": 10_000, "tokens": "drawn"} | fields)
        draws = []
        for seed in range(12):
            signature = hashlib.shake_256(f"signature {place} {seed}".encode()).digest(256)
            script = Script([], 20_000 + 100 * place + seed)
            report = campaign.survey.answer(values, signature=signature, rng=script.generator)
            words = [f"{word:x}" for word in script.words[: script.used]]
            made = {"words": words, "report": json.dumps(report, separators=(",", ":"))}
            draws.append({"signature": signature.hex(), "period": campaign.drawn_period(signature)} | made)
        shown = campaign.to_wire() | {"table": campaign.mechanism.table()}
        found.append({"campaign": shown, "values": values, "draws": draws})
    return found


def _written(found: list[dict[str, Any]]) -> str:
    return "\n".join(["[", ",\n".join(map(json.dumps, found)), "]", ""])


if __name__ == "__main__":
    FILE.write_text(_written(vectors()), encoding="utf-8")
    SURVEY_FILE.write_text(_written(survey_vectors()), encoding="utf-8")
    MANY_FILE.write_text(_written(many()), encoding="utf-8")
    DRAWN_FILE.write_text(_written(drawn_vectors()), encoding="utf-8")
