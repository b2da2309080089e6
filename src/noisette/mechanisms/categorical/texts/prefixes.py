"""Texts that nobody listed: each user reports a hashed prefix of her text, of a length that was drawn for her."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from noisette import _random, _validate
from noisette._random import Rng
from noisette._validate import FloatArray, IntArray
from noisette.cells import Cells, largest_ratio
from noisette.core import Capabilities, Law, Moments, PubliclyDrawn, Readout, Tally
from noisette.domains import Texts
from noisette.domains.texts import Symbols
from noisette.mechanisms._base import BLOCK, BaseMechanism, blocks
from noisette.mechanisms.categorical._base import Codes, KeepOrReplace, central, indicator_tail

SEEDS = 2048  # public hash functions, at most
COUNTERS = 1 << 16  # of one group of users, about: seeds times buckets
_MOST_BUCKETS = 1 << 12
_WORDS = 1 << 15  # by which a prefix is extended from one length to the next, at most
_LISTED = 2_000_000  # texts that an alphabet and a length allow, up to which all of them are looked at
_WORDS_OF_BYTES = 2  # bytes by which it is where texts may hold any characters: there are 17,000 pairs


@dataclass(frozen=True)
class PrefixHash:
    """Public maps of prefixes to buckets: a prefix goes to the sum of numbers that its symbols have at their places.

    For a random table of these numbers every two prefixes of one length collide with chance 1 / buckets, any three
    independently (simple tabulation). The table is a mix of seed, place and symbol, the same for everybody.
    """

    seeds: int
    buckets: int

    def table(self, seeds: Any, place: int, symbols: Any) -> npt.NDArray[np.uint32]:
        """Return the numbers of symbols at a place under seeds, which broadcast."""
        key = (np.asarray(seeds, dtype=np.uint32) << np.uint32(13)) | np.uint32(place << 8)
        mixed = np.asarray(key | np.asarray(symbols, dtype=np.uint32))
        # two rounds of xor, shift and product by constants that spread every bit (Wellons 2018, "lowbias32")
        mixed ^= mixed >> np.uint32(16)
        mixed *= np.uint32(0x7FEB352D)
        mixed ^= mixed >> np.uint32(15)
        mixed *= np.uint32(0x846CA68B)
        mixed ^= mixed >> np.uint32(16)
        return mixed % np.uint32(self.buckets)

    def bucket(self, seeds: Any, symbols: Symbols, lengths: Any) -> IntArray:
        """Return the buckets of the first ``lengths`` symbols; seeds and lengths broadcast with the rows of symbols."""
        total = np.zeros(np.broadcast_shapes(np.shape(seeds), np.shape(lengths), symbols.shape[:-1]), dtype=np.int64)
        for place in range(min(symbols.shape[-1], int(np.max(lengths)))):
            total += np.where(np.asarray(lengths) > place, self.table(seeds, place, symbols[..., place]), 0)
        return total % self.buckets

    @lru_cache(maxsize=32)  # noqa: B019  # the instance is two numbers
    def numbers(self, place: int) -> npt.NDArray[np.uint16]:
        """Return the numbers of all symbols at a place under every seed: a row for each symbol."""
        return self.table(np.arange(self.seeds), place, np.arange(256)[:, None]).astype(np.uint16)

    def every_bucket(self, symbols: Symbols, start: int) -> IntArray:
        """Return the bucket of each row of symbols, which begin at a place, under every seed: a row for each seed."""
        total = np.zeros((len(symbols), self.seeds), dtype=np.int32)
        for place in range(symbols.shape[1]):
            total += self.numbers(start + place)[symbols[:, place]]
        return np.ascontiguousarray((total % np.int32(self.buckets)).T, dtype=np.int64)


@dataclass(frozen=True)
class HashedPrefixes(Law):
    """A group and a seed drawn at random, and the bucket of a prefix under it, kept or replaced."""

    cells: int
    response: KeepOrReplace

    @property
    def total(self) -> int:
        return self.cells * self.response.total

    def written(self) -> dict[str, Any]:
        return {"kind": "hashed", "maps": self.cells, "response": self.response.written()}

    def kinds(self, place: Any) -> tuple[tuple[int, int], ...]:
        """Return the weights of own buckets and of others, one and the rest for each group and seed."""
        return tuple((self.cells * count, weight) for count, weight in self.response.kinds(place))


@dataclass(frozen=True)
class PrefixExtending(BaseMechanism, PubliclyDrawn):
    """Hash a prefix of the text to a few buckets, and report a noisy bucket; the server extends prefixes that recur.

    Formula: a user is in one of ``len(lengths)`` groups and has one of ``seeds`` public maps, both drawn without
    looking at her text. The first t symbols of her text, t the length of her group, are mapped to one of
    g = round(E) + 1 buckets, which is reported with probability E / (E + g - 1), each other with 1 / (E + g - 1),
    E = exp(e). A report is one number: (group * seeds + seed) * g + bucket.

    All groups but two search: `search.search`, beside this file, extends the prefixes of one length that have most
    support to the next. The last but one group checks what was found, the last one measures it: what is shown was
    chosen by others, so that its intervals hold. Where an alphabet and a length allow two million texts at most, all
    groups report about whole texts, and all of them choose and measure.

    *Guarantee*: epsilon-LDP for one text, exactly: group and seed say nothing of it, and the bucket is randomised
    response.
    *Utility*: a text is found if its share is some five times sqrt(4 E len(lengths) / n) / (E - 1), however many texts
    there are. Where the list is known, subset selection has less variance for all shares.
    Wang, Li, Jha 2021 (PEM), section 4, with the hashing of Wang, Blocki, Li, Jha 2017; groups that check and measure
    are ours.

    >>> m = PrefixExtending(epsilon=4.0, domain=Texts(24))
    >>> m.lengths
    (2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 24, 24)
    >>> m.privatize(["noisette.org", "example.com"], rng=7).shape
    (2,)
    """

    epsilon: float
    domain: Texts
    seeds: int = 0
    name: ClassVar[str] = "pem"
    kind: ClassVar[str] = "texts"
    capabilities: ClassVar[Capabilities] = Capabilities((Texts,), tabled=True)
    citation: ClassVar[str] = "wang2021locally"

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", _validate.epsilon(self.epsilon))
        if not isinstance(self.domain, Texts):
            raise TypeError(f"Expected domain={self.domain!r} to be Texts. Build it as Texts(longest=24).")
        most = max(1, min(SEEDS, COUNTERS // self.buckets))
        object.__setattr__(self, "seeds", _validate.integer(self.seeds, "seeds", low=0, high=1 << 16) or most)
        _ = self._response  # is checked here

    @classmethod
    def example(cls, epsilon: float) -> Self:
        """Return the mechanism on words of one letter, with two maps."""
        return cls(epsilon=epsilon, domain=Texts(1, alphabet="abcd"), seeds=2)

    @property
    def buckets(self) -> int:
        """Number of buckets: the one of least variance, as far as counters allow."""
        return min(round(math.exp(min(self.epsilon, 40.0))) + 1, _MOST_BUCKETS)

    @cached_property
    def lengths(self) -> tuple[int, ...]:
        """How many symbols of a text each group reports about.

        Prefixes grow by as many symbols as some ten thousand words have. A text that is searched in one step gets two
        groups for it.
        """
        width, step = self.domain.width, _WORDS_OF_BYTES
        if self.domain.alphabet is not None:
            step = int(math.log(_WORDS) / math.log(self.domain.size) + 1e-9)
            step = width if self.domain.size**width <= _LISTED else step
        steps = -(-width // step)
        ends = [-(-width * place // steps) for place in range(1, steps + 1)]
        return (*([width] if steps == 1 else []), *ends, width, width)

    @property
    def at_once(self) -> bool:
        """Whether every group reports about whole texts, so that no text has to be searched by its prefixes."""
        return min(self.lengths) == self.domain.width

    @cached_property
    def _response(self) -> KeepOrReplace:
        return KeepOrReplace.build(self.buckets, self.epsilon)

    @property
    def hash(self) -> PrefixHash:
        """The public maps."""
        return PrefixHash(self.seeds, self.buckets)

    @property
    def cells(self) -> int:
        """How many pairs of a group and a seed there are."""
        return len(self.lengths) * self.seeds

    @property
    def p_own(self) -> float:
        """Probability that a report supports its user's prefix."""
        return float(self._response.p_same)

    @property
    def p_other(self) -> float:
        """Probability that a report supports another prefix, over all maps."""
        return 1 / self.buckets

    @property
    def support(self) -> Codes:
        """All groups, seeds and buckets."""
        return Codes(self.cells * self.buckets)

    @property
    def report_dtype(self) -> npt.DTypeLike:
        """Type of a report: four bytes."""
        return np.int32

    def law(self) -> HashedPrefixes:
        """Return the weights of the own bucket and of the others."""
        return HashedPrefixes(self.cells, self._response)

    def written_law(self) -> dict[str, Any]:
        """Return the table's numbers."""
        return self.law().written()

    def table(self) -> dict[str, Any]:
        """Return the maps, the length of each group's prefixes, and the weights of buckets."""
        groups = {"seeds": self.seeds, "lengths": list(self.lengths)}
        return {"kind": "prefixes"} | groups | {"response": self._response.written()}

    def place(self, x: Any) -> Symbols:
        """Return the symbols of a text: the law knows no more of it."""
        return self.domain.symbols(x)

    def _own(self, cells: IntArray, symbols: Symbols) -> IntArray:
        """Return the own bucket of texts in cells, which broadcast."""
        lengths = np.asarray(self.lengths)[cells // self.seeds]
        return self.hash.bucket(cells % self.seeds, symbols, lengths)

    def _answer(self, x: Any, *, clip: bool, rng: Rng) -> Any:
        """Return one report for each text; a text has no nearest one, so ``clip`` moves nothing."""
        source = _random.generator(rng)
        return self.privatize_drawn(x, self.draw(np.size(x), source), rng=source)

    def draw(self, users: int, rng: np.random.Generator) -> IntArray:
        """Draw a group and a seed for each user, as one number."""
        return np.asarray(rng.integers(0, self.cells, users))

    def drawn(self, reports: Any) -> IntArray:
        """Return the group and seed of each report."""
        return np.asarray(reports).astype(np.int64).reshape(-1) // self.buckets

    def privatize_drawn(self, x: Any, drawn: IntArray, *, rng: Rng = None) -> Any:
        """Return one report for each text, of this group and seed."""
        symbols, source = self.domain.symbols(_validate.people(x, ())), _random.generator(rng)
        flat = symbols.reshape(-1, self.domain.width)
        reports = np.empty(len(flat), dtype=np.int64)
        for block in blocks(len(flat)):
            self._response.sample(self._own(drawn[block], flat[block]), reports[block], source)
            reports[block] += drawn[block] * self.buckets
        return reports.astype(self.report_dtype).reshape(symbols.shape[:-1])[()]

    def target(self, x: Any) -> FloatArray:
        """Return for each bucket of each group and seed whether the text is in it."""
        symbols = self.domain.symbols(x)[..., None, :]
        own = self._own(np.arange(self.cells), symbols)[..., None] == np.arange(self.buckets)
        return np.asarray(own.reshape(*own.shape[:-2], -1), dtype=float)

    def moments(self, x: Any) -> Moments:
        """Return the exact moments of the shares of buckets that a report of their group and seed estimates."""
        own = self.target(x) > 0
        same, different = self._response.p_same, self._response.p_different
        second, third = zip(*(central(chance, float(same - different)) for chance in (same, different)), strict=True)
        return Moments(np.zeros(own.shape), np.where(own, *second), np.where(own, *third))

    @property
    def readout(self) -> Readout:
        """The share of a group and seed that is in a bucket."""
        same, different = self._response.p_same, self._response.p_different
        gap = same - different
        return Readout(float(-different / gap), float(1 / gap), 0.0, 1.0, tail=indicator_tail(same, different))

    def tally(self, reports: Any) -> Tally:
        """Count the reports of each group, seed and bucket."""
        flat = np.asarray(reports).reshape(-1)
        if flat.size == 0 or flat.dtype.kind not in "iu":
            raise ValueError(
                f"Expected reports of {self.name} to be integers, at least one, got {np.asarray(reports)}."
            )
        total = np.zeros(self.support.size, dtype=np.int64)
        for block in blocks(flat.size, max(32 * BLOCK, total.size)):
            self.check_support(flat[block])
            total += np.bincount(flat[block], minlength=total.size)
        count = np.repeat(total.reshape(self.cells, -1).sum(axis=1), self.buckets)
        return Tally(flat.size, count, total, total)

    def log_prob(self, report: Any, x: Any) -> FloatArray:
        """Return the exact log mass of a report: that of its group and seed, and of its bucket given these."""
        reports, symbols = np.asarray(report), self.domain.symbols(x)
        possible = self.support.contains(reports)
        cells, buckets = np.divmod(np.where(possible, reports, 0).astype(np.int64), self.buckets)
        shape = np.broadcast_shapes(cells.shape, symbols.shape[:-1])
        own = self._own(np.broadcast_to(cells, shape), np.broadcast_to(symbols, (*shape, symbols.shape[-1]))) == buckets
        mass = np.where(own, math.log(self._response.p_same), math.log(self._response.p_different))
        return np.where(possible, mass - math.log(self.cells), -np.inf)

    @cached_property
    def _pair(self) -> tuple[tuple[str, str], IntArray]:
        """Return two short texts that some map sends apart, and the buckets of both in each cell."""
        letters = self.domain.alphabet or "abcdefghijklmnopqrstuvwxyz"
        texts = [one for one in (*letters, letters[0] * 2) if self.domain.fault(one) is None]
        for other in texts[1:]:
            own = self._own(np.arange(self.cells), self.domain.symbols([texts[0], other])[:, None])
            if np.any(own[0] != own[1]):
                return (texts[0], other), own
        raise ValueError(f"Expected maps that tell two of {texts} apart: give more seeds than {self.seeds}.")

    def dissect(self) -> Iterator[Cells]:
        """Return the reports sorted by which of two texts they support: all pairs that a map sends apart are alike."""
        pair, own = self._pair
        same, different = self._response.p_same, self._response.p_different
        sorts: list[tuple[int, int, Fraction, Fraction]] = []
        for alike in (True, False):
            cells = np.flatnonzero((own[0] == own[1]) == alike)
            if not cells.size:
                continue
            cell = int(cells[0])
            first, second = (int(bucket) for bucket in own[:, cell])
            if alike:
                sorts.append((cell * self.buckets + first, cells.size, same, same))
            else:
                sorts.append((cell * self.buckets + first, cells.size, same, different))
                sorts.append((cell * self.buckets + second, cells.size, different, same))
            other = next((one for one in range(self.buckets) if one not in (first, second)), None)
            if other is not None:
                rest = self.buckets - len({first, second})
                sorts.append((cell * self.buckets + other, cells.size * rest, different, different))
        reports, counts, *masses = zip(*sorts, strict=True)
        bound = largest_ratio(zip(*masses, strict=True))
        yield Cells.constant(pair, np.asarray(reports), np.log(counts), bound)

    def witnesses(self) -> tuple[npt.NDArray[Any], IntArray]:
        """Return two texts, and the reports of both in a cell whose map sends them apart."""
        pair, own = self._pair
        cell = int(np.argmax(own[0] != own[1]))
        return np.asarray(pair), cell * self.buckets + own[:, cell]
