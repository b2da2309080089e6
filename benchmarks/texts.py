"""Texts that nobody listed: coverage and recall over many collections, and a million users of 24 bytes.

python benchmarks/texts.py coverage [COLLECTIONS]     shown texts, false alarms and coverage of 95 % intervals
python benchmarks/texts.py million [USERS]            24 bytes of any characters, epsilon 4, on one core
python benchmarks/texts.py peer PYTHON [USERS] [SEEDS] [EPSILON]    pure-ldp's setting, 3 letters, beside it
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time

import numpy as np

import noisette as nz
from noisette.mechanisms.categorical.texts.search import search
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
        low, high = found.interval(0.95)
        inside = (low <= truth) & (truth <= high)
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


PEER = """
import json, random, sys, time
from pure_ldp.frequency_oracles.local_hashing import LHClient, LHServer
from pure_ldp.heavy_hitters import PEMClient, PEMServer
told = json.load(sys.stdin)
letters = told["letters"]
def place(text):
    number = 0
    for letter in text:
        number = number * len(letters) + letters.index(letter)
    return number
shape = dict(epsilon=told["epsilon"], start_length=1, max_string_length=3, fragment_length=1, alphabet=list(letters))
random.seed(1)
start = time.process_time()
oracle = dict(epsilon=told["epsilon"], d=1, use_olh=True, index_mapper=place)
client = PEMClient(**shape, index_mapper=place, fo_client=LHClient(**oracle))
server = PEMServer(**shape, index_mapper=place, fo_server=LHServer(**oracle))
for answer in told["answers"]:
    server.aggregate(client.privatise(answer))
found = server.find_heavy_hitters(k=20)[0]
print(json.dumps({"found": list(found), "seconds": time.process_time() - start}))
"""


def peer(python: str, users: int = 10_000, seeds: int = 10, epsilon: float = 4.0) -> None:
    """Find the top 20 of words of three letters, by pure-ldp in the environment of ``python`` and by ours.

    F1 is 2 x right / (told + 20): pure-ldp tells 20 words, ours those that it shows with intervals.
    """
    letters = "abcdefghijklmnopqrstuvwxyz"
    m = nz.PrefixExtending(epsilon, nz.Texts(3, alphabet=letters))
    search(m, m.tally(m.privatize(["abc"] * 1000, rng=1)).total, 20)  # compile
    table: dict[str, list[tuple[float, float, float]]] = {"pure-ldp": [], "ours": [], "our first 20": []}
    for seed in range(1, seeds + 1):
        rng = np.random.default_rng(seed)
        words = list(dict.fromkeys("".join(rng.choice(list(letters), 3)) for _ in range(2000)))
        answers = np.asarray(words)[rng.choice(len(words), users, p=zipf(words))]
        text = json.dumps({"letters": letters, "answers": answers.tolist(), "epsilon": epsilon})
        run = subprocess.run([python, "-c", PEER], input=text, capture_output=True, text=True, check=True)
        theirs = json.loads(run.stdout)
        start = time.process_time()
        made = search(m, m.tally(m.privatize(answers, rng=seed)).total, 20)
        own = time.process_time() - start
        shown = [one for one, is_shown in zip(made.texts, made.shown, strict=True) if is_shown]
        rows = (theirs["found"], theirs["seconds"]), (shown, own), (list(made.texts[:20]), own)
        for (found, seconds), row in zip(rows, table.values(), strict=True):
            right = sum(one in words[:20] for one in found)
            row.append((right, 2 * right / (len(found) + 20), seconds))
    for name, row in table.items():
        right, score, seconds = (statistics.mean(one) for one in zip(*row, strict=True))
        spread = f"{min(one[0] for one in row):.0f} to {max(one[0] for one in row):.0f}"
        setting = f"{users:,} users, epsilon {epsilon:g}, {seeds} seeds"
        print(f"{name}: {setting}: {right:.1f} right ({spread}), F1 {score:.3f}, {seconds:.3f} s")


if __name__ == "__main__":
    what, *rest = sys.argv[1:] or ["coverage"]
    if what == "coverage":
        coverage(int(rest[0]) if rest else 2000)
    elif what == "peer":
        peer(rest[0], *(int(one) for one in rest[1:3]), *(float(one) for one in rest[3:]))
    else:
        million(int(rest[0]) if rest else 1_000_000)
