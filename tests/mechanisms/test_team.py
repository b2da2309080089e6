"""Loops that several threads share: every place is worked on once, by torch's threads, by Python's and after a fork."""

import os
from typing import Any

import numpy as np
import pytest
import torch

from noisette._random import generator
from noisette.mechanisms import _team
from noisette.mechanisms._compiled import compiled
from noisette.mechanisms._team import Loop, in_parts
from noisette.mechanisms.tensor.gaussian import _normal
from noisette.mechanisms.tensor.gaussian._normal import BLOCK, add_noise_to_all, words_of


def _note(out: Any, starts: Any, wrong: int, low: int, high: int) -> None:
    for place in range(low, high):
        out[place] += 1
        starts[place] = low
        if place == wrong:
            raise ValueError


_noted = compiled(_note)
NOTED = Loop(_noted, compiled(lambda given, team: in_parts(_noted, given, team)))


@pytest.fixture(params=["torch's threads", "Python's threads"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Either kind of threads, the first where torch's library is found."""
    if request.param == "Python's threads":
        monkeypatch.setattr(_team, "find_library", lambda: 0)
    elif not _team.find_library():
        pytest.skip("torch's threads are not found here")
    return request.param


@pytest.mark.parametrize("threads", [1, 2, 3, 7])
@pytest.mark.parametrize(("places", "least"), [(0, 1), (1, 1), (13, 1), (1000, 1), (1000, 64), (64, 64), (65, 64)])
def test_every_place_is_worked_on_once(way: str, places: int, least: int, threads: int) -> None:
    out, starts = np.zeros(places, dtype=np.int64), np.full(places, -1)
    NOTED(out, starts, -1, places=places, threads=threads, least=least)
    assert (out == 1).all()
    assert not (starts % least).any()
    if threads > 1 and places >= 1000:
        assert len(set(starts.tolist())) > threads


def test_an_error_in_a_part_is_no_silence(way: str) -> None:
    with pytest.raises((RuntimeError, ValueError)):
        NOTED(np.zeros(100, dtype=np.int64), np.zeros(100, dtype=np.int64), 70, places=100, threads=3)


def test_torchs_threads_are_found_where_torch_is_as_it_is_published() -> None:
    """On Linux, where all published builds of torch for processors use OpenMP; elsewhere Python's threads work."""
    if torch.backends.openmp.is_available() and os.uname().sysname == "Linux":
        assert _team.find_library()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_the_child_of_a_fork_waits_for_no_thread_of_its_parent() -> None:
    """Threads do not live in a child: one that waited for them would never end."""
    before = np.zeros(1000, dtype=np.int64)
    NOTED(before, before.copy(), -1, places=1000, threads=3)
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        out = np.zeros(1000, dtype=np.int64)
        NOTED(out, out.copy(), -1, places=1000, threads=3)
        os.write(writer, bytes([int(out.sum() == 1000), int(_team.find_library() == 0)]))
        os._exit(0)
    assert os.read(reader, 2) == b"\x01\x01"
    os.waitpid(child, 0)
    os.close(reader)
    os.close(writer)


ROWS = [(3 * BLOCK + 5, np.float32), (700, np.float64), (9 * BLOCK, np.float64), (1, np.float32), (BLOCK, np.float32)]


def drawn() -> list[np.ndarray]:
    """Return rows of numbers, long and short, in both precisions."""
    rng = np.random.default_rng(1)
    return [rng.normal(size=size).astype(kind) for size, kind in ROWS]


@pytest.mark.parametrize("step", [0.0, 2.0**-20])
def test_noise_under_a_seed_is_the_same_for_any_number_of_threads(way: str, step: float) -> None:
    made = []
    for threads in (1, 2, 3, 8):
        rows = drawn()
        add_noise_to_all(rows, np.random.default_rng(7), sigma=1.5, unit=1.0, step=step, threads=threads)
        made.append(rows)
    for other in made[1:]:
        for one, two in zip(made[0], other, strict=True):
            assert np.array_equal(one, two)
    assert all((row != plain).mean() > 0.99 for row, plain in zip(made[0], drawn(), strict=True))


def test_no_two_blocks_share_a_word(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each block's words, the spare ones too, are a stretch of the generator's that no other block has."""
    from noisette.mechanisms.tensor.gaussian import _loops

    rng, seen, total = np.random.default_rng(3), [], 0
    expected = np.random.default_rng(3)

    def noted(values: np.ndarray, *given: Any, places: int, threads: int) -> None:
        words, counts = given[3], given[6]
        whole = words_of(BLOCK)
        sizes = [min(BLOCK, values.size - place * BLOCK) for place in range(places)]
        seen.extend(words[at * whole : at * whole + words_of(size)].copy() for at, size in enumerate(sizes))
        assert sum(map(words_of, sizes)) == words.size
        counts[:places] = 0

    monkeypatch.setattr(_loops, "add_blocks", noted)
    add_noise_to_all(drawn(), rng, sigma=1.0, unit=1.0, threads=2)
    total = sum(part.size for part in seen)
    assert np.array_equal(np.concatenate(seen), expected.integers(0, 2**64, total, dtype=np.uint64))
    assert len(seen) == sum(-(-size // BLOCK) for size, _ in ROWS)


def test_secret_noise_never_comes_twice_though_its_memory_does(way: str) -> None:
    """Words are written over those of the call before: of two calls, and of two generators, no entry is the same."""
    made = []
    for rng in (generator(), generator()):
        for _ in range(2):
            row = np.zeros(6 * BLOCK)
            add_noise_to_all([row], rng, sigma=1.0, unit=1.0, threads=3)
            made.append(row)
    whole = np.concatenate(made)
    repeated = whole.size - len(np.unique(whole))
    # of 393,216 draws on a lattice of 2^-36 fewer than 10 pairs are alike, but with a chance of 1e-6
    assert repeated < 10
    assert abs(whole.mean()) < 5 / np.sqrt(whole.size)
    assert abs(whole.std() - 1) < 5 / np.sqrt(2 * whole.size)


def test_memory_for_words_is_used_where_it_is_large_enough() -> None:
    rng = generator()
    room = np.zeros(1002, dtype=np.uint64)
    words = _normal.bits64(rng, 1000, room)
    assert words.base is room or words.base is room.base
    assert len(np.unique(words)) == 1000
    kept = words.copy()
    more = _normal.bits64(rng, 1001, room)
    assert more.size == 1001
    assert np.array_equal(room[:1000], kept)
    assert not set(more.tolist()) & set(kept.tolist())
