"""Texts that nobody listed, and the public code that turns each into symbols."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from noisette import _validate
from noisette.domains._base import BoolArray, Described

Symbols = npt.NDArray[np.uint8]

LONGEST = 32
OPEN, ENDED = 0, 1  # states of a prefix: more symbols may follow; nothing but the end
_MOST_LETTERS = 255  # a symbol is a byte, and 0 is the end
_CONTINUED = range(0x80, 0xC0)
_CONTROL = {"Cc", "Cs", "Zl", "Zp"}  # controls, halves of pairs, and what breaks lines
_TURNING = {*map(chr, range(0x202A, 0x202F)), *map(chr, range(0x2066, 0x206A))}  # turn the direction of what follows


@dataclass(frozen=True)
class Texts(Described):
    """Texts of 1 to ``longest`` bytes of UTF-8 without control characters, or those written with an ``alphabet`` alone.

    A text is brought to Unicode's normal form C first, so that an accent typed apart is the same text. Nothing else is
    changed: neither case nor spaces.

    The public code: the symbols of a text are its bytes, or with an alphabet the places of its characters from 1 on.
    Symbol 0 is the end and repeats up to ``width``.

    >>> Texts(4).symbols(["né"]).tolist()
    [[110, 195, 169, 0]]
    >>> Texts(4, alphabet="abc").symbols(["cab"]).tolist()
    [[3, 1, 2, 0]]
    """

    longest: int = 24
    alphabet: str | None = None
    kind: ClassVar[str] = "texts"

    def __post_init__(self) -> None:
        object.__setattr__(self, "longest", _validate.integer(self.longest, "longest", low=1, high=LONGEST))
        letters = self.alphabet
        if letters is None:
            return
        if not isinstance(letters, str) or not 1 <= len(set(letters)) == len(letters) <= _MOST_LETTERS:
            raise ValueError(
                f"Expected alphabet={letters!r} to be 1 to {_MOST_LETTERS} different characters, such as "
                "'abcdefghijklmnopqrstuvwxyz'. Leave it out for texts of any characters."
            )
        if any(map(_controls, letters)) or unicodedata.normalize("NFC", letters) != letters:
            raise ValueError(f"Expected alphabet={letters!r} in normal form C and without control characters.")
        if self._least > self.longest:
            raise ValueError(f"Expected longest={self.longest} to hold a character of {self._least} bytes.")

    def __str__(self) -> str:
        written = "" if self.alphabet is None else f" of {self.alphabet!r}"
        return f"texts of 1 to {self.longest} bytes{written}"

    @property
    def _least(self) -> int:
        """Bytes of the shortest character."""
        return 1 if self.alphabet is None else min(len(one.encode()) for one in self.alphabet)

    @property
    def diameter(self) -> float:
        """Distance of two different texts seen as unit vectors."""
        return float(np.sqrt(2))

    @property
    def width(self) -> int:
        """How many symbols the code of a text has, ends included."""
        return self.longest // self._least

    @property
    def size(self) -> int:
        """How many symbols there are, with the end."""
        return 256 if self.alphabet is None else len(self.alphabet) + 1

    def contains(self, x: Any) -> BoolArray:
        """Tell which texts belong."""
        array = np.asarray(x)
        return np.asarray([self.fault(text) is None for text in array.reshape(-1).tolist()]).reshape(array.shape)

    def clip(self, x: Any) -> npt.NDArray[Any]:
        """Refuse: a text cut short is another text."""
        self.symbols(x)
        return np.asarray(x)

    def fault(self, text: Any) -> str | None:
        """Return what is wrong with a text and what to do, None if nothing is.

        >>> Texts(4).fault("tomato")
        'it has 6 bytes of UTF-8, more than 4. Shorten it, or ask for longer texts.'
        """
        if not isinstance(text, str):
            remedy = "Decode it first, e.g. value.decode('utf-8')." if isinstance(text, bytes) else "Give a text."
            return f"it is of type {type(text).__name__}. {remedy}"
        if not text:
            return "it is empty. Give an empty answer a text of its own, such as 'none'."
        bad = next(filter(_controls, text), None)
        if bad is not None and unicodedata.category(bad) == "Cs":
            return f"{bad!r} is half of a character, which UTF-8 cannot write. Decode the text anew."
        if bad is not None:
            return f"it has the control character {bad!r}. Remove it first."
        normal = unicodedata.normalize("NFC", text)
        if self.alphabet is not None and (strange := next((one for one in normal if one not in self.alphabet), None)):
            return f"{strange!r} is not in the alphabet. Replace it, or ask without an alphabet."
        size = len(normal.encode())
        if size > self.longest:
            return f"it has {size} bytes of UTF-8, more than {self.longest}. Shorten it, or ask for longer texts."
        return None

    def symbols(self, x: Any) -> Symbols:
        """Return the code of each text along a last axis."""
        array = np.asarray(x)
        texts = array.reshape(-1).tolist()
        if not texts:
            raise ValueError(f"Expected at least one text, got an empty array of shape {array.shape}.")
        found = self._coded(texts) if all(type(text) is str for text in texts) else None
        if found is None:
            row = next(row for row, text in enumerate(texts) if self.fault(text))
            raise ValueError(f"Expected {self}, got {texts[row]!r} as text {row}: {self.fault(texts[row])}")
        return found.reshape(*array.shape, self.width)

    def _coded(self, texts: list[str]) -> Symbols | None:
        """Return the codes of all texts at once, None if one does not belong.

        The texts are joined by the character 0, with which no character composes.
        """
        joined = unicodedata.normalize("NFC", "\0".join([*texts, ""]))
        try:
            raw = np.frombuffer(joined.encode(), dtype=np.uint8)
        except UnicodeEncodeError:
            return None
        lengths = _lengths(raw)
        control = (raw < 0x20) | (raw == 0x7F)
        odd = int(control.sum()) != len(texts) or lengths.min() == 0 or lengths.max() > self.longest
        if odd or (not joined.isascii() and any(map(joined.__contains__, _rare_controls()))):
            return None
        if self.alphabet is None:
            return _rows(raw, lengths, self.width)
        points = np.frombuffer(joined.encode("utf-32-le"), dtype="<u4")
        order = np.argsort(known := np.frombuffer(self.alphabet.encode("utf-32-le"), dtype="<u4"))
        places = np.minimum(np.searchsorted(known, points, sorter=order), known.size - 1)
        own = np.where(known[order[places]] == points, order[places] + 1, 0).astype(np.uint8)
        return _rows(own, _lengths(points), self.width) if int((own == 0).sum()) == len(texts) else None

    def text(self, symbols: Any) -> str | None:
        """Return the text of a code, None if there is no such text."""
        code = bytes(symbols).rstrip(b"\0")
        if self.alphabet is not None:
            found = "".join(self.alphabet[place - 1] for place in code)
        else:
            try:
                found = code.decode()
            except UnicodeDecodeError:
                return None
        return found if self.fault(found) is None and unicodedata.is_normalized("NFC", found) else None

    @cached_property
    def grammar(self) -> npt.NDArray[np.int8]:
        """Which state of a prefix follows on a state and a symbol, -1 where the symbol cannot follow.

        States above `ENDED` are within a character of several bytes.
        """
        if self.alphabet is not None:
            table = np.zeros((2, self.size), dtype=np.int8)
            table[:, 0], table[ENDED, 1:] = ENDED, -1
            return table
        return _utf8()


def _controls(character: str) -> bool:
    """Tell whether a character is a control: also one that turns the direction of the writing beside it."""
    return unicodedata.category(character) in _CONTROL or character in _TURNING


def _lengths(joined: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """Return the lengths of runs that end with 0."""
    return np.diff(np.flatnonzero(joined == 0), prepend=-1) - 1


def _rows(joined: npt.NDArray[np.uint8], lengths: npt.NDArray[np.int64], width: int) -> Symbols:
    """Return runs that end with 0 as rows of one width."""
    rows = np.zeros((lengths.size, width), dtype=np.uint8)
    rows[np.arange(width) < lengths[:, None]] = joined[joined != 0]
    return rows


def _rare_controls() -> list[str]:
    """Return the control characters outside ASCII."""
    return [*map(chr, range(0x80, 0xA0)), "\u2028", "\u2029", *_TURNING]


def _utf8() -> npt.NDArray[np.int8]:
    """Return the automaton of valid UTF-8 (Unicode 15, table 3-7) without control characters of one or two bytes."""
    table = np.full((10, 256), -1, dtype=np.int8)
    table[[OPEN, ENDED], 0] = ENDED
    table[OPEN, 0x20:0x7F] = OPEN
    for leads, after in ((range(0xC3, 0xE0), 2), (range(0xE1, 0xF0), 3), (range(0xF1, 0xF4), 4)):
        table[OPEN, leads] = after
    for state, then in ((2, OPEN), (3, 2), (4, 3)):
        table[state, _CONTINUED] = then
    # after these first bytes some second ones are too long a form, a control or no character
    for state, lead, second, then in (
        (5, 0xC2, range(0xA0, 0xC0), OPEN),
        (6, 0xE0, range(0xA0, 0xC0), 2),
        (7, 0xED, range(0x80, 0xA0), 2),
        (8, 0xF0, range(0x90, 0xC0), 3),
        (9, 0xF4, range(0x80, 0x90), 3),
    ):
        table[OPEN, lead] = state
        table[state, second] = then
    return table
