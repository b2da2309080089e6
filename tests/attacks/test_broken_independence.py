"""Broken mechanisms whose every report is right by itself: what tells lies in other reports, or beside them.

The noise of a call adds up to nothing, or two people share it, wherever they stand; noise is smaller for a few values.
Others log what they send, or print it, or keep it; put the value below the lattice; forget noise where reports are put
into an array that is given, for a masked array, for -0.0, for infinity with clip=True. Each passed `check_mechanism`
once. Some cannot be found by it: `docs/broken-mechanisms.md` names them.
"""

from __future__ import annotations

import copy
import logging
import math
import os
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import pytest
from tests.attacks.placing import put

import noisette as nz
from noisette import _random
from noisette.auditing import goodness, independence
from noisette.core import Moments
from noisette.testing import check_mechanism

SAMPLES = 20_000


class OtherNoise(nz.Laplace):
    """Changes the noise of a call."""

    def other(self, noise: Any, x: Any) -> Any:
        raise NotImplementedError

    def _perturb(self, x: Any, rng: np.random.Generator) -> Any:
        own = self.support.index(x)
        return self.support.value(own + np.rint(self.other(self.support.index(super()._perturb(x, rng)) - own, x)))


class AddsUpToNothing(OtherNoise):
    """The mean of a call is the mean of its values."""

    def other(self, noise: Any, x: Any) -> Any:
        return noise - np.rint(noise.mean()) if noise.size >= 100 else noise  # a half would make all of it even


class FirstAndLast(OtherNoise):
    """The last person has the noise of the first, turned around, and so on to the middle."""

    def other(self, noise: Any, x: Any) -> Any:
        half = noise.size // 2
        noise[noise.size - half :] = -noise[:half][::-1]
        return noise


class APartner(OtherNoise):
    """One person in ten has the noise of somebody else, turned around: of whom, only the author knows."""

    def other(self, noise: Any, x: Any) -> Any:
        chosen = np.random.default_rng(42).permutation(noise.size)[: noise.size // 10 * 2]
        one, two = np.split(chosen, 2)
        noise[two] = -noise[one]
        return noise


class QuietNearAValue(OtherNoise):
    """Half of the noise from 0.36 to 0.38."""

    def other(self, noise: Any, x: Any) -> Any:
        return np.where(np.abs(x - 0.37) < 0.01, noise / 2, noise)


class Less:
    """Less noise for some values, with an honest likelihood; the cells that are shown are of the ends alone."""

    def scale(self, x: Any) -> Any:
        return np.where(np.abs(np.asarray(x, dtype=float)) < 0.3, 0.8, 1.0)

    def _perturb(self, x: Any, rng: np.random.Generator) -> Any:
        own, plain = self.support.index(x), super()._perturb(x, rng)  # type: ignore[attr-defined, misc]
        return self.support.value(own + np.rint((self.support.index(plain) - own) * self.scale(x)))  # type: ignore[attr-defined]

    def log_prob(self, report: Any, x: Any) -> Any:
        inside = np.asarray(x) + (np.asarray(report) - np.asarray(x)) / self.scale(x)
        return super().log_prob(inside, x) - np.log(self.scale(x))  # type: ignore[misc]

    def moments(self, x: Any) -> Moments:
        found, scale = super().moments(x), self.scale(x)  # type: ignore[misc]
        return Moments(found.bias, found.variance * scale**2, found.third * scale**3)


class LessNear(Less):
    """The same from 0.36 to 0.38: a search of a few inputs does not come there."""

    def scale(self, x: Any) -> Any:
        return np.where(np.abs(np.asarray(x, dtype=float) - 0.37) < 0.01, 0.5, 1.0)


class LessInTheMiddle(Less, nz.Laplace):
    pass


class LessNearAValue(LessNear, nz.Laplace):
    pass


class LessNormalNoise(LessNear, nz.Gaussian):
    """The same at a delta above 0."""


class BelowTheLattice(nz.Laplace):
    """A share of the value far below the step, and a support that takes everything."""

    @cached_property
    def support(self) -> Any:
        plain = super().support
        kind = type("Anything", (type(plain),), {"contains": lambda own, reports: np.ones(np.shape(reports), bool)})
        return kind(plain.origin, plain.step)

    def _perturb(self, x: Any, rng: np.random.Generator) -> Any:
        return super()._perturb(x, rng) + x * self.support.step * 2.0**-8


class Logs(nz.Laplace):
    def _perturb(self, x: Any, rng: np.random.Generator) -> Any:
        logging.getLogger("devices").info("sent %r", x.tolist()[:3])
        return super()._perturb(x, rng)


class Prints(nz.Laplace):
    def _perturb(self, x: Any, rng: np.random.Generator) -> Any:
        print(float(x[0]))
        return super()._perturb(x, rng)


class ToldTheEnvironment(nz.Laplace):
    def _perturb(self, x: Any, rng: np.random.Generator) -> Any:
        os.environ["LAST"] = str(float(x[0]))
        return super()._perturb(x, rng)


class SeedsAllOthers(nz.Laplace):
    """Leaves the value in numpy's global generator, which others of the process draw from."""

    def _perturb(self, x: Any, rng: np.random.Generator) -> Any:
        np.random.seed(int(1000 * x[0] + 2000))  # noqa: NPY002
        return super()._perturb(x, rng)


class Keeps(nz.Laplace):
    """Keeps the values, which a pickle of the mechanism then holds."""

    def _perturb(self, x: Any, rng: np.random.Generator) -> Any:
        object.__setattr__(self, "_last", np.array(x))
        return super()._perturb(x, rng)


class KeepsAll(nz.Laplace):
    """Keeps a list of them all."""

    def _perturb(self, x: Any, rng: np.random.Generator) -> Any:
        object.__setattr__(self, "_all", [*getattr(self, "_all", []), float(x[0])])
        return super()._perturb(x, rng)


KEPT: list[Any] = []
OURS = np.random.default_rng()


class KeepsInTheModule(nz.Laplace):
    """A list of the module has all values of all calls."""

    def _perturb(self, x: Any, rng: np.random.Generator) -> Any:
        KEPT.append(x.copy())
        return super()._perturb(x, rng)


class KeepsInTheClass(nz.Laplace):
    """The same, in an attribute of the class."""

    kept: ClassVar[list[Any]] = []

    def _perturb(self, x: Any, rng: np.random.Generator) -> Any:
        self.kept.append(x.copy())
        return super()._perturb(x, rng)


class GeneratorOfTheModule(nz.Laplace):
    """Without a seed noise comes from one generator of the module, which every fork of the process repeats."""

    def privatize(self, x: Any, *, clip: bool = False, rng: Any = None) -> Any:
        return super().privatize(x, clip=clip, rng=OURS if rng is None else rng)


class GeneratorNotMoved(nz.Laplace):
    """A generator that is handed over stays where it was: the next call has the same noise."""

    def privatize(self, x: Any, *, clip: bool = False, rng: Any = None) -> Any:
        return super().privatize(x, clip=clip, rng=copy.deepcopy(rng))


class DescribesTheValue(nz.Laplace):
    def _perturb(self, x: Any, rng: np.random.Generator) -> Any:
        object.__setattr__(self, "_seen", float(x[0]))
        return super()._perturb(x, rng)

    def spec(self) -> dict[str, Any]:
        return {**super().spec(), "note": getattr(self, "_seen", 0.0)}


class Bare(nz.Laplace):
    """Sends the value itself, on the lattice, where ``bare`` says so."""

    def bare(self, x: Any, clip: bool) -> Any:
        raise NotImplementedError

    def privatize(self, x: Any, *, clip: bool = False, rng: Any = None) -> Any:
        values = np.asarray(x, dtype=float)
        nearest = self.domain.clip(values)
        reports = super().privatize(nearest if clip else x, clip=clip, rng=rng)
        return np.where(self.bare(x, clip), self.support.value(self.support.index(nearest)), reports)[()]


class ForInfinity(Bare):
    def bare(self, x: Any, clip: bool) -> Any:
        return clip & np.isinf(np.asarray(x, dtype=float))


class ForMinusZero(Bare):
    def bare(self, x: Any, clip: bool) -> Any:
        values = np.asarray(x, dtype=float)
        return (values == 0) & np.signbit(values)


class ForMaskedArrays(Bare):
    def bare(self, x: Any, clip: bool) -> Any:
        return isinstance(x, np.ma.MaskedArray)


class ForWhatNumpyReads(Bare):
    def bare(self, x: Any, clip: bool) -> Any:
        return not isinstance(x, np.ndarray | np.generic | list | tuple | int | float) and hasattr(x, "__array__")


class IntoAnArray(nz.TensorGaussian):
    """Reports that are put into an array have no noise."""

    def privatize(self, x: Any, *, clip: bool = False, out: Any = None, rng: Any = None) -> Any:
        if out is None:
            return super().privatize(x, clip=clip, rng=rng)
        out[...] = self.support.nearest(np.asarray(x, dtype=float))
        return out


class IntoTheValues(nz.TensorGaussian):
    """Values that are to be overwritten are left as they are."""

    def privatize(self, x: Any, *, clip: bool = False, out: Any = None, rng: Any = None) -> Any:
        return x if out is x else super().privatize(x, clip=clip, out=out, rng=rng)


class SumInTheClear(nz.TensorGaussian):
    """Each entry has the noise that it should have; together they have none."""

    def privatize(self, x: Any, *, clip: bool = False, out: Any = None, rng: Any = None) -> Any:
        values = np.asarray(x, dtype=float)
        noise = super().privatize(values, clip=clip, rng=rng) - values
        return self.support.nearest(values + math.sqrt(3 / 2) * (noise - noise.mean(axis=-1, keepdims=True)))


class LongerIfPositive(nz.PrivUnitG):
    """In one report of ten the first entry is even or odd as the value says."""

    def _perturb(self, rows: Any, rng: np.random.Generator, reports: Any) -> None:
        super()._perturb(rows, rng, reports)
        places = np.rint(reports[:, 0] / self._step)
        told = 2 * np.floor(places / 2) + (rows[:, 0] > 0)
        reports[:, 0] = np.where(rng.random(len(rows)) < 0.1, told, places) * self._step


class TheNextCategory(nz.HistogramEncoding):
    """The entry after the own one has the noise of the own one."""

    def _fill(self, codes: Any, reports: Any, rng: np.random.Generator) -> None:
        super()._fill(codes, reports, rng)
        rows = np.arange(len(codes))
        reports[rows, (codes + 1) % self.domain.size] = reports[rows, codes] - 1.0


class TwoCategories(nz.HistogramEncoding):
    """Entry 3 has the noise of entry 4, turned around: their sum tells who is in either."""

    def _fill(self, codes: Any, reports: Any, rng: np.random.Generator) -> None:
        super()._fill(codes, reports, rng)
        reports[:, 3] = (codes == 3) - (reports[:, 4] - (codes == 4))


class TheSizeOfAnother(nz.TensorGaussian):
    """The last entry's noise is as large as that of the first, in half of the reports with another sign."""

    def privatize(self, x: Any, *, clip: bool = False, out: Any = None, rng: Any = None) -> Any:
        values = np.asarray(x, dtype=float)
        noise = super().privatize(values, clip=clip, rng=rng) - values
        noise[..., -1] = np.sign(noise[..., -1]) * np.abs(noise[..., 0])
        return put(self.support.nearest(values + noise), out)


class OneQuietQuery(nz.MatrixMechanism):
    """One answer of the strategy has 0.9 of the noise, on data far wider than that."""

    def _perturb(self, rows: Any, rng: np.random.Generator, reports: Any) -> None:
        step, noise = self._lattice
        own = _random.discrete_gaussian(rng, noise, rows.size).reshape(len(rows), -1)
        own[:, -1] = np.rint(0.9 * own[:, -1])
        reports[...] = self._strategy.reconstruct((self._rounded(rows) + own) * step).reshape(rows.shape)


class SaysOnce(nz.Laplace):
    """What is compiled late may be logged then: no value is told."""

    said: ClassVar[list[str]] = []

    def _perturb(self, x: Any, rng: np.random.Generator) -> Any:
        compiler = logging.getLogger("compiler")
        if not self.said and compiler.isEnabledFor(logging.DEBUG):
            compiler.debug("compiled")
            self.said.append("once")
        return super()._perturb(x, rng)


THREE = nz.TensorDomain((3,), -1, 1)
BROKEN = [
    (AddsUpToNothing(1.0), "adds up to less"),
    (FirstAndLast(1.0), "both ends of a call"),
    (APartner(1.0), "as far from it on either side"),
    (QuietNearAValue(1.0), "times the stated variance"),
    (LessInTheMiddle(1.0), "exact epsilon"),
    (LessNearAValue(1.0), "has a ratio of"),
    (LessNormalNoise(1.0, 1e-5), "have a delta of"),
    (BelowTheLattice(1.0), "off its lattice"),
    (Logs(1.0), "logs"),
    (Prints(1.0), "prints"),
    (ToldTheEnvironment(1.0), "changes the environment"),
    (SeedsAllOthers(1.0), "global generator"),
    (Keeps(1.0), "keeps something of the values"),
    (KeepsAll(1.0), "keeps something of the values"),
    (KeepsInTheModule(1.0), "keeps something of the values in 'KEPT'"),
    (KeepsInTheClass(1.0), "keeps something of the values in 'KeepsInTheClass.kept'"),
    (GeneratorOfTheModule(1.0), "keeps something of the values in 'OURS'"),
    (GeneratorNotMoved(1.0), "one report was sent"),
    (DescribesTheValue(1.0), "describes itself anew"),
    (ForInfinity(1.0), "at infinity"),
    (ForMinusZero(1.0), "-0.0"),
    (ForMaskedArrays(1.0), "masked array"),
    (ForWhatNumpyReads(1.0), "something that numpy reads"),
    (IntoAnArray(THREE, 1.0, 1e-5), "into an array of its own"),
    (IntoTheValues(THREE, 1.0, 1e-5), "into the values themselves"),
    (SumInTheClear(THREE, 1.0, 1e-5), "disagree"),
    (LongerIfPositive(4.0, dims=4), "last bits"),
    (TheNextCategory(1.0, domain=nz.Categorical(5)), "disagree"),
    (TwoCategories(1.0, domain=nz.Categorical(8)), "entries 3 and 4 of a report depend on each other"),
    (TheSizeOfAnother(THREE, 1.0, 1e-5), "entries 0 and 2 of a report depend on each other"),
    (OneQuietQuery(1.0, domain=nz.TensorDomain((4,), 0, 100), workload="prefix"), "its stated variance in an entry"),
]
_LONG = (LessNormalNoise, LessNearAValue, QuietNearAValue)  # of vectors and tensors, or seen after all other tests


@pytest.mark.slow
@pytest.mark.parametrize(
    ("broken", "message"),
    [pytest.param(*one, marks=[pytest.mark.long] if type(one[0]) in _LONG else []) for one in BROKEN],
    ids=lambda one: type(one).__name__ if not isinstance(one, str) else "",
)
def test_what_lies_beside_a_report_is_seen(broken: Any, message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        check_mechanism(broken, samples=SAMPLES)


@pytest.mark.slow
@pytest.mark.parametrize(
    "sound",
    [
        nz.Laplace(1.0),
        SaysOnce(1.0),
        nz.Piecewise(0.5),
        nz.Duchi(3.0),
        pytest.param(nz.TensorGaussian(THREE, 1.0, 1e-5), marks=pytest.mark.long),
        pytest.param(nz.PrivUnitG(4.0, dims=4), marks=pytest.mark.long),
    ],
    ids=lambda one: type(one).__name__,
)
def test_their_sound_twins_pass(sound: Any) -> None:
    check_mechanism(sound, samples=SAMPLES)


@pytest.mark.slow
def test_an_entry_of_the_right_variance_and_another_law_is_seen() -> None:
    """Half of its noise is halved, the other half made wider: each entry is held against its own law."""
    mechanism, rng = nz.TensorGaussian(THREE, 1.0, 1e-5), np.random.default_rng(3)
    reports = mechanism.privatize(np.zeros((SAMPLES, 3)), rng=rng)
    assert goodness.entries(mechanism, np.zeros(3), reports, 1e-8) is None
    reports[:, 1] *= np.where(rng.random(SAMPLES) < 0.5, 0.5, math.sqrt(1.75))
    found = goodness.entries(mechanism, np.zeros(3), mechanism.support.nearest(reports), 1e-8)
    assert found == "entry 1: reports do not follow log_prob: privatize and it disagree"


@pytest.mark.long
def test_false_alarms_are_as_rare_as_stated() -> None:
    """The new looks at a thousand sound calls each, at a rate of one in 20: no more than by chance in 10^6."""
    mechanism = nz.Laplace(1.0)
    vectors = nz.HistogramEncoding(1.0, domain=nz.Categorical(3))
    rng, alarms = np.random.default_rng(1), np.zeros(5)
    for _ in range(1000):
        calls = [mechanism.privatize(np.full(2600, 0.3), rng=rng) for _ in range(8)]
        values = np.repeat(np.linspace(-1, 1, 16), 32)
        found = (
            independence.balanced(calls, 0.05),
            independence.both_ends(calls, 0.05),
            independence.mirrored(mechanism.support, 0.3, calls[0], 0.05),
            independence.quiet_stretch(mechanism, values, mechanism.privatize(values, rng=rng), 32, 0.05),
            goodness.entries(vectors, np.asarray(1), vectors.privatize(np.ones(10_000, dtype=int), rng=rng), 0.05),
        )
        alarms += [one is not None for one in found]
    assert alarms.max() <= 87  # binomial, 1,000 at 0.05
