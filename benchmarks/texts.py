"""Texts that nobody listed: coverage and recall over many collections, and a million users of 24 bytes.

python benchmarks/texts.py coverage [COLLECTIONS]     shown texts, false alarms and coverage of 95 % intervals
python benchmarks/texts.py million [USERS]            24 bytes of any characters, epsilon 4, on one core
"""

from __future__ import annotations

import sys
import time

import numpy as np

import noisette as nz
from noisette.mechanisms.categorical.search import search
from noisette.prediction.texts import TextPrediction


def zipf(words: list[str]) -> np.ndarray:
    """Return shares that fall as rank^-1.2."""
    shares = 1 / np.arange(1, len(words) + 1) ** 1.2
    return shares / shares.sum()


def drawn_words(rng: np.random.Generator, letters: str, longest: int, size: int) -> list[str]:
    """Return different words of all lengths."""
    found = ("".join(rng.choice(list(letters), rng.integers(1, longest + 1))) for _ in range(3 * size))
    return list(dict.fromkeys(found))[:size]


def coverage(collections: int) -> None:
    """Count what is shown and covered over many collections of 20,000 users at epsilon 2, beside the plan."""
    rng = np.random.default_rng(11)
    words = drawn_words(rng, "abcdefgh", 4, 1500)
    shares, users, texts = zipf(words), 20_000, 5
    m = nz.PrefixExtending(2.0, nz.Texts(4, alphabet="abcdefgh"))
    predicted = sum(TextPrediction(m, users, texts).recall(dict(zip(words, shares.tolist(), strict=True))).values())
    place = {word: number for number, word in enumerate(words)}
    shown = covered = alarms = 0
    for _ in range(collections):
        answers = np.asarray(words)[rng.choice(len(words), users, p=shares)]
        found = search(m, m.tally(m.privatize(answers, rng=rng)).total, texts)
        truth = np.asarray([shares[place[text]] if text in place else 0.0 for text in found.texts])
        inside = np.abs(found.share - truth) <= 1.959964 * found.std_error
        shown += int(found.shown.sum())
        covered += int((inside & found.shown).sum())
        alarms += bool(((truth == 0) & found.shown).any())
    print(f"{collections} collections of {users:,}: {shown / collections:.3f} texts shown, predicted {predicted:.3f}; ")
    print(f"coverage of 95 % intervals {covered / shown:.4f} of {shown}; false alarms in {alarms / collections:.4f}")


def million(users: int) -> None:
    """Search texts of up to 24 bytes of any characters."""
    rng = np.random.default_rng(1)
    syllables = [a + b for a in "bcdfghklmnprstvz" for b in "aeiou"]
    drawn = ("".join(rng.choice(syllables, rng.integers(2, 13)))[:24] for _ in range(12_000))
    words = list(dict.fromkeys(drawn))[:10_000]
    answers = np.asarray(words)[rng.choice(len(words), users, p=zipf(words))]
    m = nz.PrefixExtending(4.0, nz.Texts(24))
    start = time.process_time()
    reports = m.privatize(answers, rng=3)
    sent = time.process_time()
    total = m.tally(reports).total
    search(nz.PrefixExtending(4.0, nz.Texts(2)), np.zeros(4 * m.seeds * m.buckets, dtype=np.int64))  # compile
    counted = time.process_time()
    found = search(m, total)
    done = time.process_time()
    right = sum(text in words[:20] for text in found.texts[:20])
    print(
        f"{users:,} users, 24 bytes, epsilon 4: privatised in {sent - start:.1f} s, searched in {done - counted:.1f} s"
    )
    print(f"of processor time; {right} of the first 20 are of the top 20, {int(found.shown.sum())} are shown")


if __name__ == "__main__":
    what, *rest = sys.argv[1:] or ["coverage"]
    if what == "coverage":
        coverage(int(rest[0]) if rest else 2000)
    else:
        million(int(rest[0]) if rest else 1_000_000)
