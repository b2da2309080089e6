"""Ten more broken mechanisms: what a call does where its values differ, where nobody looks, or once too seldom.

Those that passed `check_mechanism` when they were written are marked so. `docs/broken-mechanisms.md` has the number of
reports that each takes, and of three that it does not find: half of the noise closer to zero than 1e-4, noise that is
1.5 % longer on one side for positive values, and directions of which 2 % are turned towards the value.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import noisette as nz
from noisette.auditing import goodness
from noisette.testing import check_mechanism

pytestmark = pytest.mark.slow

SAMPLES = 20_000
SCALE = 2.0  # of Laplace noise on [-1, 1] at epsilon 1


class OtherNoise(nz.Laplace):
    """Changes the noise of a call, in steps of the lattice."""

    def other(self, noise: Any, x: Any, rng: Any) -> Any:
        raise NotImplementedError

    def _perturb(self, x: Any, rng: np.random.Generator) -> Any:
        own = self.support.index(x)
        noise = self.support.index(super()._perturb(x, rng)) - own
        return self.support.value(own + np.rint(self.other(noise, x, rng)))


class QuietWhereValuesDiffer(OtherNoise):
    """Half of the noise in a call whose values are not all the same."""

    def other(self, noise: Any, x: Any, rng: Any) -> Any:
        return noise / 2 if np.size(x) > 1 and np.ptp(x) > 0 else noise


class ParityOfTheNeighbour(OtherNoise):
    """The last bit says whether the next person of the call has another value. It passed."""

    def other(self, noise: Any, x: Any, rng: Any) -> Any:
        told = x != np.roll(x, -1) if np.ndim(x) == 1 else np.zeros(1, dtype=bool)
        own = self.support.index(x)
        return 2 * np.floor((own + noise) / 2) + told - own if told.any() else noise


def note(x: Any, kept: list[float] = []) -> None:  # noqa: B006  # that is how it keeps them
    kept.append(float(np.ravel(x)[0]))


def noting() -> Callable[[Any], None]:
    kept: list[float] = []

    def note_it(x: Any) -> None:
        kept.append(float(np.ravel(x)[0]))

    return note_it


note_around = noting()


class KeepsInADefault(nz.Laplace):
    """Values are kept in the default of an argument of a function that it calls. It passed."""

    def _perturb(self, x: Any, rng: np.random.Generator) -> Any:
        note(x)
        return super()._perturb(x, rng)


class KeepsInAClosure(nz.Laplace):
    """In what a function that it calls has around it. It passed."""

    def _perturb(self, x: Any, rng: np.random.Generator) -> Any:
        note_around(x)
        return super()._perturb(x, rng)


class QuietWithPhilox(OtherNoise):
    """Half of the noise from one kind of numpy's generators. It passed."""

    def other(self, noise: Any, x: Any, rng: Any) -> Any:
        return noise / 2 if isinstance(rng.bit_generator, np.random.Philox) else noise


class QuietAtTheEnd(OtherNoise):
    """Half of the noise for values in the last quarter of a hundredth of the domain, at either end."""

    def other(self, noise: Any, x: Any, rng: Any) -> Any:
        return np.where(np.abs(x) > 0.995, noise / 2, noise)


class NeverFar(OtherNoise):
    """Noise farther than seven times its scale is folded back: reports there are never sent."""

    def other(self, noise: Any, x: Any, rng: Any) -> Any:
        return np.sign(noise) * np.mod(np.abs(noise), 7 * SCALE / self.support.step)


class LongerOnOneSide(OtherNoise):
    """Noise above zero is 1.5 % longer where the value is positive."""

    def other(self, noise: Any, x: Any, rng: Any) -> Any:
        return np.where((noise > 0) & (np.asarray(x) > 0), noise * 1.015, noise)


class Twins(nz.Sampled):
    """Both numbers that a person reports have the noise of the first."""

    def privatize(self, x: Any, *, clip: bool = False, rng: Any = None) -> Any:
        reports = super().privatize(x, clip=clip, rng=rng)
        values = reports.values.copy()
        values[..., 1] = values[..., 0]
        return type(reports)(reports.indices, values)


class NoiseOfTheOneBefore(OtherNoise):
    """In a large call the second half has the noise of the first, moved on by one person."""

    def other(self, noise: Any, x: Any, rng: Any) -> Any:
        half = np.size(noise) // 2
        if half >= 2048:
            noise[half : 2 * half] = np.roll(noise[:half], 1)
        return noise


CAUGHT = {
    "values differ": (lambda: QuietWhereValuesDiffer(1.0), "times the stated variance"),
    "the neighbour's parity": (lambda: ParityOfTheNeighbour(1.0), "last bits"),
    "kept in a default": (lambda: KeepsInADefault(1.0), "keeps something of the values in 'a default of note, 0'"),
    "kept in a closure": (lambda: KeepsInAClosure(1.0), "keeps something of the values in 'kept'"),
    "Philox": (lambda: QuietWithPhilox(1.0), "with Philox"),
    "the ends": (lambda: QuietAtTheEnd(1.0), "variance"),
    "twins": (lambda: Twins("piecewise", epsilon=1.0, dims=6, report=2), "disagree"),
    "the one before": (lambda: NoiseOfTheOneBefore(1.0), "repeat"),
}


@pytest.mark.parametrize(("made", "words"), CAUGHT.values(), ids=CAUGHT)
def test_it_is_caught(made: Callable[[], Any], words: str) -> None:
    with pytest.raises(AssertionError, match=words):
        check_mechanism(made(), samples=SAMPLES)


def test_reports_that_are_never_sent() -> None:
    with pytest.raises(AssertionError, match="variance"):
        check_mechanism(NeverFar(1.0), samples=100_000)


@pytest.mark.parametrize(("samples", "found"), [(200_000, False), (2_200_000, True)])
def test_longer_noise_on_one_side_takes_as_many_reports_as_the_page_says(samples: int, found: bool) -> None:
    made, x = LongerOnOneSide(1.0), np.float64(0.5)
    calls = [made.privatize(np.full(samples // 32, x), rng=np.random.default_rng(call)) for call in range(32)]
    assert (goodness.fit(made, x, calls, 1e-6 / 400) is not None) == found


@pytest.mark.parametrize("made", [nz.Laplace, nz.DiscreteLaplace, nz.Duchi])
def test_sound_ones_pass(made: Any) -> None:
    check_mechanism(made(1.0), samples=SAMPLES)
