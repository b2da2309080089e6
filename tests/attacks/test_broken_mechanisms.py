"""Broken mechanisms that people have tried to pass off as sound, each with the check that catches it.

Their likelihoods are honest unless it says otherwise: what is wrong is what they send, or what they say is worst.
Sound twins pass. Every check keeps a false-alarm rate of 1e-6; half of the reports come without a seed, so figures
differ from run to run, and each flaw is caught with a margin of some standard deviations.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pytest
from tests.attacks.placing import put

import noisette as nz
from noisette.auditing import goodness
from noisette.cells import Cells
from noisette.mechanisms.scalar._additive import GaussianNoise, LaplaceNoise
from noisette.testing import check_mechanism


class TooLittleNoise(nz.Gaussian):
    """0.85 of the noise that (epsilon, delta) asks for, and a likelihood that says so."""

    @cached_property
    def _noise(self) -> GaussianNoise:
        return GaussianNoise(0.85 * super()._noise.sigma)


class RawWithoutSeed(nz.Laplace):
    """Noise where there is a seed, as in every test; without one the value, on the lattice."""

    def privatize(self, x: Any, *, clip: bool = False, rng: Any = None) -> Any:
        reports = super().privatize(x, clip=clip, rng=rng)
        return reports if rng is not None else self.support.value(self.support.index(np.asarray(x, dtype=float)))


class TwoCallsAlike(nz.Laplace):
    """Without a seed the same noise in every call."""

    def privatize(self, x: Any, *, clip: bool = False, rng: Any = None) -> Any:
        return super().privatize(x, clip=clip, rng=12345 if rng is None else rng)


class ParityOfTheValue(nz.Laplace):
    """The last bit of the place on the lattice says whether the value is positive."""

    def _perturb(self, x: Any, rng: np.random.Generator) -> Any:
        index = self.support.index(super()._perturb(x, rng))
        return self.support.value(index + (np.mod(index, 2) != (x > 0)))


class ParityOfTheNoise(nz.Laplace):
    """The last bit says whether the noise was positive; over all reports it is even as often as odd."""

    def _perturb(self, x: Any, rng: np.random.Generator) -> Any:
        reports = super()._perturb(x, rng)
        index = self.support.index(reports)
        return self.support.value(index + (np.mod(index, 2) != (reports > x)))


class TwentyBits(nz.Laplace):
    """Noise made of 20 random bits: a million different values."""

    def _perturb(self, x: Any, rng: np.random.Generator) -> Any:
        uniform = (rng.integers(0, 1 << 20, x.size) + 0.5) / (1 << 20)
        noise = -np.sign(uniform - 0.5) * np.log1p(-2 * np.abs(uniform - 0.5)) / self._noise.rate
        return self.support.value(self.support.index(x) + np.rint(noise))


class StretchInTheClear(nz.Laplace):
    """Values from 0.300 to 0.301 are sent as they are."""

    def _perturb(self, x: Any, rng: np.random.Generator) -> Any:
        own = self.support.value(self.support.index(x))
        return np.where((x >= 0.3) & (x <= 0.301), own, super()._perturb(x, rng))


class OneValueInTheClear(nz.Laplace):
    """One value, a round one, is sent as it is."""

    def _perturb(self, x: Any, rng: np.random.Generator) -> Any:
        return np.where(x == 0.25, self.support.value(self.support.index(x)), super()._perturb(x, rng))


class OneDecimalInTheClear(nz.Laplace):
    """0.123 is sent as it is; the nearest float to it is not the one that shares of the domain come to."""

    def privatize(self, x: Any, *, clip: bool = False, rng: Any = None) -> Any:
        reports, own = super().privatize(x, clip=clip, rng=rng), self.support.index(np.asarray(x, dtype=float))
        return np.where(np.asarray(x) == 0.123, self.support.value(own), reports)


class OneGridPointInTheClear(nz.DiscreteLaplace):
    """One of 129 points of a grid is sent as it is."""

    def _perturb(self, x: Any, rng: np.random.Generator) -> Any:
        return np.where(x == 0.328125, x, super()._perturb(x, rng))


class EasyPair(nz.Gaussian):
    """A fifth of the noise; witnesses and dissect show two inputs that are close together."""

    @cached_property
    def _noise(self) -> GaussianNoise:
        return GaussianNoise(0.2 * super()._noise.sigma)

    @property
    def _close(self) -> np.ndarray:
        return np.asarray([self._origin, self._origin + self._step * (self._steps // 16)])

    def witnesses(self) -> Any:
        return self._close, super().witnesses()[1]

    def dissect(self) -> Iterator[Cells]:
        yield self._cells(self._close)


class EasyPurePair(nz.Laplace):
    """Half of the noise; witnesses and dissect show two inputs that are close together."""

    @cached_property
    def _noise(self) -> LaplaceNoise:
        return LaplaceNoise(2 * super()._noise.rate)

    def witnesses(self) -> Any:
        return np.asarray([-0.25, 0.25]), np.asarray([0.0])

    def dissect(self) -> Iterator[Cells]:
        yield self._cells(np.asarray([-0.25, 0.25]))


class TenfoldClip(nz.Laplace):
    """With clip=True values are moved into ten times the domain."""

    def _admit(self, x: Any, *, clip: bool) -> Any:
        return np.clip(x, 10 * self.domain.low, 10 * self.domain.high) if clip else super()._admit(x, clip=False)


class TenfoldTensorClip(nz.MatrixMechanism):
    """The same for tensors."""

    def _admit(self, rows: Any, *, clip: bool) -> Any:
        return np.clip(rows, -900, 900) if clip else super()._admit(rows, clip=False)


class Sharper(nz.Laplace):
    """The sampler's noise is 2 % narrower than that of the likelihood."""

    def _perturb(self, x: Any, rng: np.random.Generator) -> Any:
        index, rest = self._position(x)
        index += rng.random(x.size) < rest
        return self.support.value(index + LaplaceNoise(self._noise.rate / 0.98).sample(rng, x.size))


class SharperGaussian(nz.Gaussian):
    """The same with Gaussian noise."""

    def _perturb(self, x: Any, rng: np.random.Generator) -> Any:
        index, rest = self._position(x)
        index += rng.random(x.size) < rest
        return self.support.value(index + GaussianNoise(0.98 * self._noise.sigma).sample(rng, x.size))


class SignsAtFixedPlaces(nz.Laplace):
    """At every 500th place of a call the noise has the sign of the value."""

    def _perturb(self, x: Any, rng: np.random.Generator) -> Any:
        reports = super()._perturb(x, rng)
        chosen = np.arange(x.size) % 500 == 0
        centre = self.support.value(self.support.index(x))
        return np.where(chosen, centre + np.sign(x + 1e-300) * np.abs(reports - centre), reports)


class RawNowAndThen(nz.Laplace):
    """Once in 100,000 reports the value itself, on the lattice."""

    def _perturb(self, x: Any, rng: np.random.Generator) -> Any:
        own = self.support.value(self.support.index(x))
        return np.where(rng.random(x.size) < 1e-5, own, super()._perturb(x, rng))


class AntitheticCalls(nz.Laplace):
    """Two reports that follow each other have opposite noise: the second undoes the first."""

    def _perturb(self, x: Any, rng: np.random.Generator) -> Any:
        centre = self.support.value(self.support.index(x))
        noise = super()._perturb(x, rng) - centre
        noise[1::2] = -noise[: noise.size // 2 * 2 : 2]
        return centre + noise


class BrokenTensor(nz.TensorGaussian):
    """Noise on three numbers, of which a subclass changes what is sent."""

    def changed(self, x: Any, reports: Any, seen: np.random.Generator) -> Any:
        raise NotImplementedError

    def privatize(self, x: Any, *, clip: bool = False, out: Any = None, rng: Any = None) -> Any:
        reports = super().privatize(np.asarray(x), clip=clip, rng=rng)
        chance = np.random.default_rng(abs(int(reports.flat[0] / self.support.step)))
        return put(self.support.nearest(self.changed(np.asarray(x, dtype=float), reports, chance)), out)


class OneTensorInTheClear(BrokenTensor):
    """One vector inside of the domain is sent as it is."""

    def changed(self, x: Any, reports: Any, seen: np.random.Generator) -> Any:
        return np.where((x == 0.5).all(axis=-1, keepdims=True), x, reports)


class TensorParityOfTheValue(BrokenTensor):
    """The last bit of the first entry says whether the value is positive."""

    def changed(self, x: Any, reports: Any, seen: np.random.Generator) -> Any:
        places = np.rint(reports / self.support.step)
        places[..., 0] += np.mod(places[..., 0], 2) != (x[..., 0] > 0)
        return places * self.support.step


class TensorParityOfTheNoise(BrokenTensor):
    """The last bit of the first entry says whether the noise was positive."""

    def changed(self, x: Any, reports: Any, seen: np.random.Generator) -> Any:
        places = np.rint(reports / self.support.step)
        places[..., 0] += np.mod(places[..., 0], 2) != (reports > x)[..., 0]
        return places * self.support.step


class RawTensorNowAndThen(BrokenTensor):
    """Once in 10,000 reports the vector itself, on the lattice."""

    def changed(self, x: Any, reports: Any, seen: np.random.Generator) -> Any:
        return np.where(seen.random((*reports.shape[:-1], 1)) < 1e-4, x, reports)


class SampledTwoCallsAlike(nz.Sampled):
    """Without a seed the same dimensions and the same noise in every call."""

    def privatize(self, x: Any, *, clip: bool = False, rng: Any = None) -> Any:
        return super().privatize(x, clip=clip, rng=12345 if rng is None else rng)


THREE = nz.TensorDomain((3,), -1, 1)
CAUGHT = [
    # mechanism, samples at which check_mechanism finds it (ten times as many about one value), what it says
    pytest.param(TooLittleNoise(1.0), 10_000, "exact epsilon", id="too-little-noise-at-a-delta"),
    pytest.param(RawWithoutSeed(1.0), 10_000, "one report was sent|outside", id="raw-value-without-a-seed"),
    pytest.param(
        TwoCallsAlike(1.0), 10_000, "depend on each other|in each of|was sent|repeat", id="same-noise-in-every-call"
    ),
    pytest.param(ParityOfTheValue(1.0), 10_000, "parity|rests|repeat", id="parity-carries-the-sign-of-the-value"),
    pytest.param(ParityOfTheNoise(1.0), 100_000, "parity|repeat", id="parity-carries-the-sign-of-the-noise"),
    pytest.param(TwentyBits(1.0), 100_000, "too few random bits|was sent", id="noise-of-20-random-bits"),
    pytest.param(StretchInTheClear(1.0), 10_000, "steps from their values|are the same", id="a-stretch-in-the-clear"),
    pytest.param(OneValueInTheClear(1.0), 10_000, "are the same|steps from", id="one-round-value-in-the-clear"),
    pytest.param(OneDecimalInTheClear(1.0), 10_000, "are the same", id="one-decimal-in-the-clear"),
    pytest.param(OneTensorInTheClear(THREE, 1.0, 1e-5), 4_000, "are the same", id="one-vector-in-the-clear"),
    pytest.param(
        TensorParityOfTheValue(THREE, 1.0, 1e-5),
        20_000,
        "tell inputs apart|entry 0: reports do not follow",
        id="parity-in-a-vector-carries-a-sign",
    ),
    pytest.param(
        TensorParityOfTheNoise(THREE, 1.0, 1e-5),
        20_000,
        "which way the noise went|entry 0: reports do not follow",
        id="parity-in-a-vector-carries-the-noise",
    ),
    pytest.param(RawTensorNowAndThen(THREE, 1.0, 1e-5), 10_000, "are the value itself", id="raw-vector-once-in-10000"),
    pytest.param(
        SampledTwoCallsAlike("piecewise", 1.0, dims=4, report=2),
        10_000,
        "depend on each other|in each of|was sent",
        id="same-sampled-noise-in-every-call",
    ),
    pytest.param(OneGridPointInTheClear(1.0), 10_000, "are the same|steps from", id="one-grid-point-in-the-clear"),
    pytest.param(EasyPair(1.0), 10_000, "has exact epsilon at least", id="an-easy-pair-at-a-delta"),
    pytest.param(EasyPurePair(1.0), 10_000, "exact epsilon", id="an-easy-pair"),
    pytest.param(TenfoldClip(1.0), 10_000, "clip=True|biased", id="clip-to-ten-times-the-domain"),
    pytest.param(
        TenfoldTensorClip(1.0, domain=nz.TensorDomain((4,), 0, 90), workload="prefix"),
        10_000,
        "biased",
        id="clip-of-tensors",
    ),
    pytest.param(Sharper(1.0), 100_000, "disagree|variance", id="sampler-2-percent-sharper"),
    pytest.param(SharperGaussian(1.0), 100_000, "disagree|variance", id="gaussian-sampler-2-percent-sharper"),
    pytest.param(SignsAtFixedPlaces(1.0), 100_000, "in each of", id="deterministic-signs-at-fixed-places"),
    pytest.param(RawNowAndThen(1.0), 100_000, "was sent|the value itself", id="raw-value-once-in-100000"),
    pytest.param(AntitheticCalls(1.0), 10_000, "depend on each other|variance", id="noise-that-undoes-itself"),
]


@pytest.mark.long
@pytest.mark.parametrize(("mechanism", "samples", "message"), CAUGHT)
def test_a_broken_mechanism_is_caught(mechanism: Any, samples: int, message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        check_mechanism(mechanism, samples=samples)


@pytest.mark.long
@pytest.mark.parametrize(
    "sound",
    [
        nz.Laplace(1.0),
        nz.Gaussian(1.0),
        nz.DiscreteLaplace(1.0),
        nz.TensorGaussian(THREE, 1.0, 1e-5),
        nz.SquareWave(20.0),  # a window of 337 places that holds 95 % of the mass
    ],
)
def test_their_sound_twins_pass(sound: Any) -> None:
    check_mechanism(sound, samples=40_000)


class KeepsTheLast(nz.GeneralizedRandomizedResponse):
    """The last category is kept a little too often."""

    def _fill(self, codes: Any, reports: Any, rng: np.random.Generator) -> None:
        super()._fill(codes, reports, rng)
        last = self.domain.size - 1
        reports[(codes == last) & (rng.random(codes.size) < 0.05)] = last


class SharperTwoPoints(nz.Duchi):
    """A table, and a sampler that is 2 % sharper."""

    def _perturb(self, x: Any, rng: np.random.Generator) -> Any:
        return super()._perturb(np.clip(1.02 * x, -1, 1), rng)


@pytest.mark.parametrize("broken", [KeepsTheLast(1.0, nz.Categorical(5)), SharperTwoPoints(1.0)])
def test_a_sampler_of_its_own_beside_a_table_is_refused(broken: Any) -> None:
    with pytest.raises(AssertionError, match="is its own"):
        check_mechanism(broken, samples=1000)


def test_counting_would_find_the_last_category_too() -> None:
    """Were there no table: 100,000 reports about each category."""
    broken, rng = KeepsTheLast(1.0, nz.Categorical(5)), np.random.default_rng(5)
    sound = nz.GeneralizedRandomizedResponse(1.0, nz.Categorical(5))
    for code in range(5):
        calls = [broken.privatize(np.full(50_000, code), rng=rng) for _ in range(2)]
        assert (goodness.fit(broken, np.asarray(code), calls, 1e-8) is not None) == (code == 4)
        calls = [sound.privatize(np.full(50_000, code), rng=rng) for _ in range(2)]
        assert goodness.fit(sound, np.asarray(code), calls, 1e-8) is None


@dataclass(frozen=True)
class RandomSigns(nz.Duchi):
    """In a random share of the reports the sign is that of the value."""

    share: float = 0.0

    def _perturb(self, x: Any, rng: np.random.Generator) -> Any:
        told = np.where(x >= 0, self._pair.high, self._pair.low)
        return np.where(rng.random(x.size) < self.share, told, super()._perturb(x, rng))


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.2, 0.05, 0.01])
def test_signs_that_are_deterministic_now_and_then_take_so_many_reports(share: float) -> None:
    """What docs/broken-mechanisms.md says of 0.2 %, at larger shares q: 80 / q^2 reports find it, a tenth does not."""
    mechanism, rng = RandomSigns(1.0, share=share), np.random.default_rng(7)
    needed = math.ceil(120 / share**2)
    reports = mechanism.privatize(np.full(needed, 0.01), rng=rng)
    assert goodness.fit(mechanism, np.asarray(0.01), [reports], 1e-9) is not None
    assert goodness.fit(mechanism, np.asarray(0.01), [reports[: needed // 20]], 1e-9) is None
    honest = nz.Duchi(1.0).privatize(np.full(needed, 0.01), rng=rng)
    assert goodness.fit(mechanism, np.asarray(0.01), [honest], 1e-9) is None
