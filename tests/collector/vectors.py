"""Conformance vectors: random words and the reports that Python makes of them, which every other device must make too.

Run as a script it writes conformance.json anew.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from randomgen.wrapper import UserBitGenerator

import noisette as nz
from noisette.domains import Attributes, Categorical, Interval
from noisette.mechanisms.vector.attributes import SampledAttributes

FILE = Path(__file__).parent / "conformance.json"
LAST = 2**64 - 1


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
    many = Attributes((3,) * 20, names=tuple(f"q{number}" for number in range(20)))
    yield SampledAttributes("olh", epsilon=2.0, domain=many, report=5), [[number % 3 for number in range(20)]]


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
            draws.append({"row": row, "words": words, "report": json.dumps(report, separators=(",", ":"))})
        law = {"mechanism": mechanism.name, "epsilon": mechanism.guarantee.epsilon, "table": mechanism.table()}
        found.append(law | {"attributes": _attributes(mechanism.domain), "draws": draws})
    return found


def _attributes(domain: Any) -> list[dict[str, Any]]:
    """Return what a campaign would say is asked: ranges of numbers, and labels of categories."""
    parts = domain.parts if isinstance(domain, Attributes) else (domain,)
    return [{"name": f"q{place}"} | _values(part) for place, part in enumerate(parts)]


def _values(part: Any) -> dict[str, Any]:
    if isinstance(part, Interval):
        return {"range": [part.low, part.high]}
    return {"categories": [str(code) for code in range(part.size)]}


if __name__ == "__main__":
    FILE.write_text("\n".join(["[", ",\n".join(map(json.dumps, vectors())), "]", ""]), encoding="utf-8")
