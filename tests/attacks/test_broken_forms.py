"""More broken mechanisms, each of which passed every check once: what a sampler does to values in another form.

Where the first list (`test_broken_mechanisms`) has noise that is wrong, here it is right for an array of many float64
and wrong elsewhere: for one value, a list, float32, with clip=True, far out in a tail, in one entry of a vector, in its
direction. Others state something that is not so: a relation, a level's budget, an event, a third moment. Half of the
reports come without a seed; each flaw is caught with a margin of some standard deviations.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
import pytest
from tests.attacks.placing import put

import noisette as nz
from noisette._random import is_secret
from noisette.core import GaussianEvent, Moments
from noisette.testing import check_mechanism

THREE = nz.TensorDomain((3,), -1, 1)


class Bare(nz.Laplace):
    """Sends the value itself, on the lattice, where ``bare`` says so."""

    def bare(self, x: Any, clip: bool, rng: Any) -> bool:
        raise NotImplementedError

    def privatize(self, x: Any, *, clip: bool = False, rng: Any = None) -> Any:
        reports = super().privatize(x, clip=clip, rng=rng)
        if not self.bare(x, clip, rng):
            return reports
        values = self.domain.clip(np.asarray(x, dtype=float))
        return self.support.value(self.support.index(values)) + np.zeros_like(reports)


class ForOnePerson(Bare):
    """A batch of one gets no noise: nobody tests with one person."""

    def bare(self, x: Any, clip: bool, rng: Any) -> bool:
        return np.size(x) == 1


class ForOnePersonWithoutSeed(Bare):
    """The same without a seed only."""

    def bare(self, x: Any, clip: bool, rng: Any) -> bool:
        return np.size(x) == 1 and rng is None


class ForLists(Bare):
    def bare(self, x: Any, clip: bool, rng: Any) -> bool:
        return isinstance(x, list)


class ForFloat32(Bare):
    def bare(self, x: Any, clip: bool, rng: Any) -> bool:
        return getattr(x, "dtype", None) == np.float32


class ForFloat32WithoutSeed(Bare):
    def bare(self, x: Any, clip: bool, rng: Any) -> bool:
        return getattr(x, "dtype", None) == np.float32 and rng is None


class ForOtherStrides(Bare):
    """Arrays that do not lie in one piece."""

    def bare(self, x: Any, clip: bool, rng: Any) -> bool:
        return isinstance(x, np.ndarray) and x.ndim > 0 and not x.flags["C_CONTIGUOUS"]


class ForClipInside(Bare):
    """clip=True, for values that need no clipping."""

    def bare(self, x: Any, clip: bool, rng: Any) -> bool:
        return clip and bool(np.all(np.abs(np.asarray(x, dtype=float)) <= 1))


class LastRow(nz.Laplace):
    """The last report of a call is the value."""

    def _perturb(self, x: Any, rng: np.random.Generator) -> Any:
        reports = super()._perturb(x, rng)
        reports[-1:] = self.support.value(self.support.index(x[-1:]))
        return reports


class TailTells(nz.Laplace):
    """Noise beyond six times its scale, one report in 400, has the sign of the value."""

    def _perturb(self, x: Any, rng: np.random.Generator) -> Any:
        own = self.support.index(x)
        noise = self.support.index(super()._perturb(x, rng)) - own
        far = np.abs(noise) > 6 / self._noise.rate
        return self.support.value(own + np.where(far, np.abs(noise) * np.where(x > 0, 1, -1), noise))


class SharperWithoutSeed(nz.Laplace):
    """A tenth less noise without a seed."""

    def privatize(self, x: Any, *, clip: bool = False, rng: Any = None) -> Any:
        reports, own = super().privatize(x, clip=clip, rng=rng), self.support.index(np.asarray(x, dtype=float))
        return (
            reports if rng is not None else self.support.value(own + np.rint(0.9 * (self.support.index(reports) - own)))
        )


class RankTold(nz.Laplace):
    """Reports are given out in the order of the values."""

    def _perturb(self, x: Any, rng: np.random.Generator) -> Any:
        sorted_reports = np.empty(x.size)
        sorted_reports[np.argsort(x, kind="stable")] = np.sort(super()._perturb(x, rng))
        return sorted_reports


class SameNoiseForSameValue(nz.Laplace):
    """Equal values of a call get equal reports."""

    def _perturb(self, x: Any, rng: np.random.Generator) -> Any:
        _, first, kinds = np.unique(x, return_index=True, return_inverse=True)
        return super()._perturb(x, rng)[first][kinds]


class ManyDeltas(nz.Gaussian):
    """The value itself in 30 times delta of the reports."""

    def _perturb(self, x: Any, rng: np.random.Generator) -> Any:
        told = rng.random(x.size) < 30 * self.delta
        return np.where(told, self.support.value(self.support.index(x)), super()._perturb(x, rng))


class NowAndThenAnEntry(nz.TensorGaussian):
    """One entry has no noise where that of another happens to be small, once in a thousand reports."""

    def privatize(self, x: Any, *, clip: bool = False, out: Any = None, rng: Any = None) -> Any:
        values = np.asarray(x, dtype=float)
        noise = super().privatize(values, clip=clip, rng=rng) - values
        noise[..., 2] *= np.abs(noise[..., 0]) > 1e-3 * self.sigma
        return put(self.support.nearest(values + noise), out)


class OneNoise(nz.TensorGaussian):
    """Two entries share their noise: their difference is exact."""

    def privatize(self, x: Any, *, clip: bool = False, out: Any = None, rng: Any = None) -> Any:
        values = np.asarray(x, dtype=float)
        noise = super().privatize(values, clip=clip, rng=rng) - values
        noise[..., 1] = noise[..., 0]
        return put(self.support.nearest(values + noise), out)


class NowAndThenADirection(nz.PrivUnitG):
    """The direction itself, at a length that the law would have, once in 5,000 reports."""

    def privatize(self, x: Any, *, clip: bool = False, rng: Any = None) -> Any:
        reports = np.array(super().privatize(x, clip=clip, rng=rng))
        if reports.ndim == 2:
            chance = np.random.default_rng(int(1e6 * abs(reports.flat[0])))
            told = chance.random(len(reports)) < 2e-4
            lengths = np.linalg.norm(reports[told], axis=1, keepdims=True)
            reports[told] = np.rint(np.asarray(x)[told] * lengths / self.support.step) * self.support.step
        return reports


class DimensionTold(nz.Sampled):
    """Whose first number is large reports it more often."""

    def privatize(self, x: Any, *, clip: bool = False, rng: Any = None) -> Any:
        reports = super().privatize(x, clip=clip, rng=rng)
        indices = reports.indices.copy()
        large = np.asarray(x).reshape(-1, self.dims)[:, 0] > 0.9
        indices[large & (np.random.default_rng(len(indices)).random(len(indices)) < 0.2), 0] = 0
        return type(reports)(indices, reports.values)


class CornerTold(nz.DuchiBox):
    """In one corner of the box the first sign is always the same."""

    def privatize(self, x: Any, *, clip: bool = False, rng: Any = None) -> Any:
        reports = np.array(super().privatize(x, clip=clip, rng=rng))
        corner = (np.asarray(x).reshape(reports.shape) == 1).all(axis=-1)
        reports[corner, 0] = np.abs(reports[corner, 0])
        return reports


class EdgeInTheClear(nz.GradedLaplace):
    """The value at which two levels meet is sent as it is."""

    def privatize(self, x: Any, *, clip: bool = False, rng: Any = None) -> Any:
        reports, values = super().privatize(x, clip=clip, rng=rng), np.asarray(x, dtype=float)
        return np.where(values == 0.0, self.support.value(self.support.index(values)), reports)


class OtherLevel(nz.LevelledResponse):
    """One entry of the matrix of levels is stated too low; the largest one is right."""

    @cached_property
    def guarantee(self) -> nz.Guarantee:
        right = super().guarantee
        rows = [list(row) for row in right.matrix or ()]
        rows[0][1] *= 0.9
        return replace(right, matrix=tuple(map(tuple, rows)))


class SaidReplaced(nz.MatrixMechanism):
    """Noise for a record that comes or goes, stated for one that is replaced."""

    @property
    def guarantee(self) -> nz.Guarantee:
        return replace(super().guarantee, relation="replace")


class SaidRecord(nz.RetainOrNoise):
    """Noise for one entry, stated for the tensor."""

    @property
    def guarantee(self) -> nz.Guarantee:
        return replace(super().guarantee, unit="record")


class SaidLocal(nz.TensorGaussian):
    """The same for Gaussian noise."""

    @cached_property
    def guarantee(self) -> nz.Guarantee:
        return replace(super().guarantee, unit="record", model="local", relation="any-pair")


class LouderEvent(nz.Gaussian):
    """Accounting is told of half of the mu: two releases would be counted as half a one."""

    def privacy_event(self) -> GaussianEvent:
        return GaussianEvent(super().privacy_event().mu / 2)


class LouderTensorEvent(nz.TensorGaussian):
    """The same for tensors, by the number that the event is made of."""

    @property
    def mu(self) -> float:
        return super().mu / 2


class LighterTail(nz.Laplace):
    """States half of the third moment, which tells how far estimates are from normal."""

    def moments(self, x: Any) -> Moments:
        right = super().moments(x)
        return Moments(right.bias, right.variance, right.third / 2)


class LostMerge(nz.Laplace):
    """An aggregate of 30 users or more takes no others."""

    def aggregate(self, reports: Any) -> Any:
        made = super().aggregate(reports)

        class Full(type(made)):  # type: ignore[misc]
            def merge(self, other: Any) -> Any:
                return super().merge(other) if self.users < 30 else self

            __add__ = merge

        object.__setattr__(made, "__class__", Full)
        return made


class ForWholeNumbers(Bare):
    """Values that come as integers."""

    def bare(self, x: Any, clip: bool, rng: Any) -> bool:
        return getattr(x, "dtype", np.dtype(float)).kind == "i"


class ForColumns(Bare):
    """Values that come as a column of pandas."""

    def bare(self, x: Any, clip: bool, rng: Any) -> bool:
        return isinstance(x, pd.Series)


class ForASecretGenerator(Bare):
    """A generator that was handed over, and is secret: tests hand over seeds."""

    def bare(self, x: Any, clip: bool, rng: Any) -> bool:
        return isinstance(rng, np.random.Generator) and is_secret(rng)


class SignOfZero(nz.DiscreteLaplace):
    """Zero is sent as -0.0 where the value is below it: equal to 0.0, but for one bit of eight bytes."""

    def _perturb(self, x: Any, rng: np.random.Generator) -> Any:
        reports = super()._perturb(x, rng)
        return np.where(reports == 0, np.where(x < 0, -0.0, 0.0), reports)


class WeakerCopy(nz.Laplace):
    """A copy, as a process of its own would get it, has ten times the epsilon."""

    def __deepcopy__(self, memo: Any) -> Any:
        return type(self)(10 * self.epsilon, domain=self.domain)


class WeakerPickle(nz.Laplace):
    """The same for what comes out of a pickle."""

    def __reduce__(self) -> Any:
        return type(self), (10 * self.epsilon,)


class WeakerDescription(nz.Laplace):
    """What is written down for devices has twice the epsilon."""

    def spec(self) -> dict[str, Any]:
        return super().spec() | {"epsilon": 2 * self.epsilon}


class OtherTable(nz.LocalHashing):
    """Where the seed comes from a token, the likeliest of 41 reports is sent."""

    def privatize_drawn(self, x: Any, drawn: Any, *, rng: Any = None) -> Any:
        many = np.stack([super(OtherTable, self).privatize_drawn(x, drawn, rng=seed) for seed in range(41)])
        return np.asarray(np.median(many, axis=0), dtype=many.dtype)


class LouderWhenDrawn(nz.FastProjUnit):
    """The same without a table: with a seed of somebody else the budget is twice as large."""

    def privatize_drawn(self, x: Any, drawn: Any, *, rng: Any = None) -> Any:
        return nz.FastProjUnit(2 * self.epsilon, self.dims, rows=self.rows, bits=self.bits).privatize_drawn(
            x, drawn, rng=rng
        )


class LastOfMany(nz.Laplace):
    """Every second person has the noise of the one before, with the other sign."""

    def _perturb(self, x: Any, rng: np.random.Generator) -> Any:
        own = self.support.index(x)
        noise = self.support.index(super()._perturb(x, rng)) - own
        noise[1::2] = -noise[: noise.size // 2 * 2 : 2]
        return self.support.value(own + noise)


CAUGHT = [
    pytest.param(ForWholeNumbers(1.0), "come as whole numbers", id="raw-for-whole-numbers"),
    pytest.param(ForColumns(1.0), "come as a column of pandas", id="raw-for-a-column"),
    pytest.param(ForASecretGenerator(1.0), "was sent", id="raw-for-a-secret-generator"),
    pytest.param(SignOfZero(1.0, domain=nz.Grid(-3, 3)), "sent -0.0", id="sign-of-zero"),
    pytest.param(WeakerCopy(1.0), "other reports for the same seed", id="weaker-copy"),
    pytest.param(WeakerPickle(1.0), "other reports for the same seed", id="weaker-pickle"),
    pytest.param(WeakerDescription(1.0), "with another epsilon", id="weaker-description"),
    pytest.param(OtherTable(1.0, nz.Categorical(5)), "does not draw from it", id="other-reports-for-tokens"),
    pytest.param(LouderWhenDrawn(1.0, 80, rows=64, bits=3), "disagree", id="louder-for-tokens", marks=pytest.mark.long),
    pytest.param(LastOfMany(1.0), "variance", id="opposite-noise-of-two-people"),
    pytest.param(ForOnePerson(1.0), "one value at a time|was sent", id="raw-for-one-person"),
    pytest.param(ForOnePersonWithoutSeed(1.0), "one value at a time|was sent", id="raw-for-one-person-without-a-seed"),
    pytest.param(ForLists(1.0), "come as a list", id="raw-for-lists"),
    pytest.param(ForFloat32(1.0), "come as float32", id="raw-for-float32"),
    pytest.param(ForFloat32WithoutSeed(1.0), "values as float32", id="raw-for-float32-without-a-seed"),
    pytest.param(ForOtherStrides(1.0), "come as a view", id="raw-for-other-strides"),
    pytest.param(ForClipInside(1.0), "come as clip=True", id="raw-for-values-that-need-no-clipping"),
    pytest.param(LastRow(1.0), "was sent", id="last-row-raw"),
    pytest.param(TailTells(1.0), "far from their value", id="sign-in-the-tail"),
    pytest.param(SharperWithoutSeed(1.0), "disagree", id="sharper-without-a-seed"),
    pytest.param(RankTold(1.0), "variance|disagree", id="reports-in-the-order-of-the-values"),
    pytest.param(SameNoiseForSameValue(1.0), "disagree|variance|was sent", id="one-noise-for-equal-values"),
    pytest.param(ManyDeltas(1.0, 1e-5), "was sent|value itself", id="thirty-deltas-in-the-clear"),
    pytest.param(NowAndThenAnEntry(THREE, 1.0, 1e-5), "hold entry 2", id="one-entry-of-a-vector-once-in-1000"),
    pytest.param(OneNoise(THREE, 1.0, 1e-5), "disagree", id="two-entries-share-their-noise"),
    pytest.param(NowAndThenADirection(4.0, dims=4), "hold the direction", id="the-direction-once-in-5000"),
    pytest.param(DimensionTold("piecewise", 1.0, dims=4, report=1), "depends on the value", id="dimension-told"),
    pytest.param(CornerTold(1.0, dims=4), "disagree", id="one-corner-of-a-box"),
    pytest.param(EdgeInTheClear((-1, 0, 1), (1.0, 2.0)), "about 0.0 and -1.0 show a delta", id="edge-of-two-levels"),
    pytest.param(OtherLevel([-1, -0.6, 0, 1], [3.0, 2.0, 1.0]), "level 0 against level 1", id="one-level-understated"),
    pytest.param(
        SaidReplaced(1.0, 1e-6, domain=nz.TensorDomain((4,), 0, 9), workload="prefix"),
        "declares relation='add-remove'",
        id="add-remove-said-replace",
    ),
    pytest.param(
        SaidRecord(2.0, domain=nz.TensorDomain((2, 2)), levels=5, unit="element"),
        "declares unit='element'",
        id="element-said-record",
    ),
    pytest.param(SaidLocal(THREE, 1.0, 1e-5, relation="element"), "declares model='central'", id="element-said-local"),
    pytest.param(LouderEvent(1.0, 1e-6), "declares GaussianEvent", id="half-of-the-event"),
    pytest.param(LouderTensorEvent(THREE, 1.0, 1e-5), "declares GaussianEvent", id="half-of-the-event-of-a-tensor"),
    pytest.param(LighterTail(1.0), "third absolute moment", id="half-of-the-third-moment"),
    pytest.param(LostMerge(1.0), "order of merging", id="merges-that-are-lost"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("mechanism", "message"), CAUGHT)
def test_a_broken_mechanism_is_caught(mechanism: Any, message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        check_mechanism(mechanism, samples=20_000)


class ForgottenDomain(nz.Laplace):
    """Its description leaves the domain out: whoever reads it draws noise for [-1, 1]."""

    def spec(self) -> dict[str, Any]:
        return {name: value for name, value in super().spec().items() if name != "domain"}


def test_a_description_that_leaves_out_the_domain_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(nz.CATALOGUE, "laplace", ForgottenDomain)
    with pytest.raises(AssertionError, match="does not survive JSON"):
        check_mechanism(ForgottenDomain(1.0, domain=nz.Interval(0, 100)), samples=1000)


@pytest.mark.slow
@pytest.mark.parametrize(
    "sound",
    [
        nz.Laplace(1.0),
        pytest.param(nz.Gaussian(1.0, 1e-5), marks=pytest.mark.long),
        nz.TensorGaussian(THREE, 1.0, 1e-5),
        pytest.param(nz.PrivUnitG(4.0, dims=4), marks=pytest.mark.long),
        nz.Sampled("piecewise", 1.0, dims=4, report=1),
        nz.DuchiBox(1.0, dims=4),
        pytest.param(nz.GradedLaplace((-1, 0, 1), (1.0, 2.0)), marks=pytest.mark.long),
        pytest.param(nz.LevelledResponse([-1, -0.6, 0, 1], [3.0, 2.0, 1.0]), marks=pytest.mark.long),
        nz.SquareWave(9.0),
    ],
    ids=lambda mechanism: mechanism.name,
)
def test_their_sound_twins_pass(sound: Any) -> None:
    check_mechanism(sound, samples=20_000)
