"""One check that every mechanism must pass, yours included."""

from __future__ import annotations

import contextlib
import copy
import json
import math
import pickle
import sys
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields, replace
from functools import partial
from inspect import signature
from typing import Any, get_args

import numpy as np
from scipy.special import ndtri

from noisette import _random
from noisette._validate import FloatArray
from noisette.accounting.conversions import zcdp_delta
from noisette.auditing import exact_delta, exact_epsilon, exact_matrix, goodness, independence
from noisette.auditing.exact import NotWorst
from noisette.auditing.features import table
from noisette.auditing.inputs import admitted, drawn, groups, written
from noisette.core import (
    Aggregate,
    Capabilities,
    ConcentratedEvent,
    Estimate,
    Estimating,
    EventDeclared,
    GaussianEvent,
    PubliclyDrawn,
)
from noisette.domains import Box, Grid, Interval
from noisette.guarantees import Relation, Unit, gaussian_delta
from noisette.mechanisms import CATALOGUE, from_spec
from noisette.mechanisms._base import BaseMechanism
from noisette.mechanisms.vector.sampled import Reports

_BATCHES = 250
_CALLS = 32  # of privatize about one input, by turns two with and two without a seed
_ORDINARY = 8  # values of which most must be no special case, to tell the one that is
_SIZES = (*range(2, 41), 50, 64, 100, 128, 200, 256, 365, 500, 512, 1000, 1024, 2000, 2048)  # of batches
_DIFFERENT = 40  # values that are sent together
_COPIES = 128  # reports about each of many values: enough to tell one that has no noise
_COMPLAINTS = 400  # more than the tests that one check makes of a sampler
_SKEWNESS_SEEN = (
    15.0  # times the third moment over the cube of the deviation: so few reports that carry the variance were seen
)
_TRUSTED = (
    "privatize",
    "privatize_drawn",
    "draw",
    "_perturb",
    "_fill",
    "_draw",
    "_admit",
    "log_prob",
)  # what makes reports, and their law
_LIBRARY = "noisette.mechanisms."
_LOGS = 1e-8  # by which float64 may miss the log of a ratio of whole numbers
_SKEWED = 5.0  # the same, beyond which variances of batches are far from normal


def check_mechanism(mechanism: Estimating, *, samples: int = 100_000, false_alarm: float = 1e-6, rng: int = 0) -> None:
    """Raise AssertionError unless ``mechanism`` keeps the contract.

    It need not be in the catalogue; one that is must also survive its JSON description. Checked: what its class
    declares in ``capabilities`` is what it does; reports lie in the support; the input is left alone; a seed repeats
    the reports; aggregates merge in any order to the same bits; the exact epsilon, at the stated delta, is at most the
    stated one, and no report or input beats it; the estimate is unbiased; the variance is the stated one; what lies
    outside the domain is refused, or sent as its nearest value is; copies and pickles send what it does.

    The sampler is held against ``log_prob``, seeded and with ``rng=None``, at inputs from the whole domain: counts of
    reports or of cells of a lattice, its last bits, repeated reports, reports that show their value, independence
    within a call and between calls. Where a report is one number ten times ``samples`` are drawn, and
    as many again to see whether the value itself is sent. What surrounds a value changes nothing: the other values of
    its batch, their order and number, the thread, the kind of generator. Reports are plain arrays of one type and
    shape, no value of the domain is refused, and none draws a warning. A call logs, prints and keeps nothing. What
    takes more to be seen, and how many samples that is, stands in `docs/broken-mechanisms.md`.

    A sound mechanism fails with probability at most ``false_alarm``.

    >>> from noisette import Duchi
    >>> check_mechanism(Duchi(epsilon=1.0), samples=10_000)
    """
    _check_table(mechanism)
    inputs = _inputs(mechanism, rng)
    if isinstance(mechanism, BaseMechanism):
        _check_declarations(mechanism)
    tests = 8 * (len(inputs) + 2) * max(1, np.size(mechanism.readout.scale), inputs[0].size)
    level = float(ndtri(1 - false_alarm / tests / 2))
    _check_description(mechanism, inputs, rng)
    with _worst_named():
        _check_budget(mechanism, inputs)
        _check_event(mechanism)
    _check_beside(mechanism, inputs, rng)
    for number, x in enumerate(inputs):
        reports = _reports(mechanism, x, samples, rng + number)
        _check_likelihood(mechanism, reports, x, inputs[number - 1], level)
        _check_moments(mechanism, reports, x, level)
    share = false_alarm / _COMPLAINTS
    _check_forms(mechanism, inputs, share, rng)
    _check_drawn(mechanism, inputs, samples, share, level, rng)
    _check_sampler(mechanism, samples, share, level, rng)
    with _worst_named():
        _check_profile(mechanism, inputs, share, rng)
    _check_outside(mechanism, samples, share, level, rng)
    _check_many_values(mechanism, samples, share, rng)
    _check_surroundings(mechanism, inputs, share, rng)
    if isinstance(mechanism, BaseMechanism):
        _check_estimates(mechanism, np.asarray(inputs[-1]), rng)
    for x in (inputs[0], inputs[-1]):
        _check_squares(mechanism, _reports(mechanism, x, samples, rng), x, level)


def _check_table(mechanism: Estimating) -> None:
    """Check that a mechanism whose law is a table draws from that table, and from nothing else.

    Reports and likelihoods must come from the library's own code, and the weights must be whole numbers that add up
    to the total and are the likelihoods that `log_prob` states.
    """
    has_law = callable(getattr(type(mechanism), "law", None))
    if isinstance(mechanism, BaseMechanism):
        declared = mechanism.capabilities.tabled
        assert declared == has_law, f"{mechanism.name} declares tabled={declared}, and its law() says otherwise"
    if not has_law:
        return
    tabled: Any = mechanism
    law = tabled.law()
    parts = [getattr(type(mechanism), name, None) for name in _TRUSTED] + [type(law)]
    own = [method.__qualname__ for method in parts if method is not None and not method.__module__.startswith(_LIBRARY)]
    assert not own, f"{mechanism.name} has a table for its law, but does not draw from it: {', '.join(own)} is its own"
    source = np.random.default_rng(0)
    for x in drawn(mechanism.domain, source, 4):
        kinds = [(count, weight) for count, weight in law.kinds(tabled.place(x)) if count > 0]
        known = all(isinstance(number, int) and number >= 0 for kind in kinds for number in kind)
        assert known, f"{mechanism.name}: the table at {x} holds other than whole numbers"
        summed = sum(count * weight for count, weight in kinds)
        assert summed == law.total, f"{mechanism.name}: the table at {x} adds up to {summed}, not to {law.total}"
        logs = np.asarray([math.log(weight) - math.log(law.total) for _, weight in kinds if weight > 0])
        reports = mechanism.privatize(np.repeat(np.asarray(x)[None], 100, axis=0), rng=source)
        stated = mechanism.log_prob(reports, np.asarray(x)[None])
        off = min(
            float(np.abs(stated[:, None] + unit - logs).min(axis=1).max()) for unit in goodness.units(mechanism.support)
        )
        assert off <= _LOGS, f"{mechanism.name}: log_prob at {x} is off its table by {off}"


def _declared(mechanism: Any) -> tuple[Capabilities, Callable[[bool, str, Any], None]]:
    """Return what the mechanism declares with its own options, and how to complain about it."""
    able: Capabilities = type(mechanism).declared(
        **{own.name: getattr(mechanism, own.name) for own in fields(mechanism)}
    )

    def require(holds: bool, declared: str, found: Any) -> None:
        assert holds, f"{mechanism.name} declares {declared}, which is not so: {found}"

    return able, require


def _check_declarations(mechanism: Any) -> None:
    """Hold what the class declares against the guarantee, the event and the options of the mechanism."""
    able, require = _declared(mechanism)
    own, stated = {field.name for field in fields(mechanism)}, mechanism.guarantee
    event = mechanism.privacy_event() if isinstance(mechanism, EventDeclared) else None
    require(able.takes(mechanism.domain), f"domains={able.domains}", mechanism.domain)
    require(able.delta != ("needed" if stated.delta == 0 else "none"), f"delta={able.delta!r}", stated)
    require(able.model == stated.model, f"model={able.model!r}", stated)
    require(able.gaussian or not isinstance(event, GaussianEvent), "gaussian=False", event)
    require(not able.gaussian or event is None or isinstance(event, GaussianEvent), "gaussian=True", event)
    require(able.slow_start or not mechanism.slow_start, "slow_start=False", "this budget takes seconds")
    require(able.levels == (stated.matrix is not None), f"levels={able.levels}", stated)
    require(able.composite == ("inner" in own), f"composite={able.composite}", sorted(own))
    for name, words in (("unit", get_args(Unit)), ("relation", get_args(Relation))):
        word = getattr(mechanism, name, None)
        require(word not in words or word == getattr(stated, name), f"{name}={word!r}", stated)
    if able.levels:
        spent = {"delta": stated.delta} if able.delta == "needed" else {}
        made = mechanism.fitted(domain=Interval(0, 2), epsilon=stated.epsilon, **spent)
        require(made.guarantee.epsilon <= stated.epsilon * (1 + 1e-9), "levels=True", made.guarantee)
    for kind in able.domains:
        _check_domain(mechanism, kind, require)


def _check_estimates(mechanism: Any, x: Any, seed: int) -> None:
    """Hold what the class declares of a report against reports."""
    able, require = _declared(mechanism)
    reports = mechanism.privatize(np.broadcast_to(x, (4000, *x.shape)).copy(), rng=seed)
    if not able.composite:
        require(reports.shape[1:] == mechanism.report_shape, f"report_shape={mechanism.report_shape}", reports.shape)
        require(reports.dtype == mechanism.report_dtype, f"report_dtype={mechanism.report_dtype}", reports.dtype)
    pair = mechanism.two_numbers
    require(pair is None or bool(np.isin(reports, pair).all()), f"two_numbers={pair}", "other reports")
    if mechanism.kind == "direction":
        require(not able.unbiased, "unbiased=True", "the mean of noisy directions is shorter than the vector")
    elif mechanism.kind in ("mean", "vector-mean") and not able.composite and (mechanism.kind, x.ndim) != ("mean", 1):
        _check_decoded(mechanism, able, x, reports, require)
    if able.entrywise:
        _check_entries(mechanism, require)
    if able.tells_category:
        every = np.arange(mechanism.domain.size)
        logs = np.asarray(mechanism.log_prob(every[:, None], every))
        wanted = np.log(np.where(np.eye(every.size) > 0, mechanism.p_own, mechanism.p_other))
        require(logs.shape == wanted.shape and np.allclose(logs, wanted), "tells_category=True", "its law is another")


def _check_domain(mechanism: Any, kind: type[Any], require: Callable[..., None]) -> None:
    """Check that the mechanism takes vectors or tensors of another kind of domain that it declares."""
    if isinstance(mechanism.domain, kind) or not mechanism.domain.shape:
        return
    other = kind(mechanism.domain.dims)
    try:
        replace(mechanism, domain=other).privatize(other.clip(np.ones(other.shape)), rng=0)
    except (ValueError, TypeError, AttributeError) as error:
        require(False, f"a domain of type {kind.__name__}", error)


def _check_decoded(mechanism: Any, able: Capabilities, x: Any, reports: Any, require: Callable[..., None]) -> None:
    """Check that what a report is decoded to has the stated bias, and no variance above the largest."""
    moments = mechanism.moments(x[None])
    off = float(np.abs(moments.bias).max())
    noise = math.sqrt(float(moments.variance.max()))
    # what reports on a lattice may miss, and float64 of values far from zero
    rounding = 1e-7 * mechanism.domain.diameter + 1e-5 * noise + 4 * float(np.spacing(np.abs(x).max()))
    require(able.unbiased == (off <= rounding), f"unbiased={able.unbiased}", f"bias {off}")
    decoded = np.asarray(mechanism.decode(reports))
    if not able.decoded:
        require(bool(np.array_equal(decoded, reports)), "decoded=False", "decode changes reports")
    require(decoded.shape == (len(reports), *x.shape), f"decoded={able.decoded}", f"shape {decoded.shape}")
    spread = 8 * np.sqrt(moments.variance[0] / len(reports)) + 1e-7 * mechanism.domain.diameter
    missed = np.abs(decoded.mean(axis=0) - x - moments.bias[0])
    require(bool(np.all(missed <= spread)), f"decoded={able.decoded}", f"means are off by {missed.max()}")
    if able.levels or isinstance(mechanism.domain, Grid):
        return
    largest, seen = mechanism.worst_variance(), float(moments.variance.max())
    coarse = 16 * float(np.spacing(np.abs(x).max())) / mechanism.domain.diameter
    require(seen <= largest * (1 + 1e-6 + coarse), f"worst_variance()={largest}", f"variance {seen} at {x}")


def _check_entries(mechanism: Any, require: Callable[..., None]) -> None:
    """Check that the law of a vector is the product of those of its entries, of the budget asked for each."""
    domain = mechanism.domain
    canonical = Box(domain.dims) if isinstance(domain, Box) else replace(domain, low=-1.0, high=1.0)
    made = type(mechanism).by_entry(canonical, epsilon=0.5)
    one = made.entry
    require(abs(one.guarantee.epsilon - 0.5) < 1e-12, "entrywise=True", one.guarantee)
    x = np.linspace(-1.0, 1.0, math.prod(domain.shape)).reshape(domain.shape)
    reports = made.privatize(x[None], rng=0)
    shape = (x.size, *one.domain.shape)
    logs = one.log_prob(reports.reshape(shape), x.reshape(shape))
    gap = abs(float(made.log_prob(reports, x[None])[0]) - float(np.sum(logs)))
    require(gap < 1e-6, "entrywise=True", f"log_prob is off the sum of its entries' by {gap}")


def _reports(mechanism: Estimating, x: Any, size: int, rng: Any, *, clip: bool = False) -> Any:
    """Return reports about one input, all of them in the support."""
    many = np.broadcast_to(x, (size, *np.shape(x))).copy()
    reports = _plain(mechanism, mechanism.privatize(many, clip=clip, rng=rng), size)
    assert np.all(mechanism.support.contains(reports)), f"{mechanism.name} sent a report outside {mechanism.support}"
    places = None if isinstance(reports, Reports) else goodness.places(mechanism.support, reports)
    assert places is None or np.array_equal(places, reports), f"{mechanism.name} sent a report off its lattice"
    numbers = table(reports)
    assert not np.signbit(numbers[numbers == 0]).any(), f"{mechanism.name} sent -0.0, whose sign may carry a bit"
    return reports


def _plain(mechanism: Estimating, reports: Any, count: int) -> Any:
    """Return reports, once it is seen that nothing travels with them: they are plain arrays of one type and shape.

    A class of its own, the memory of a larger array, a note in the type, another length or byte order may all depend on
    the values.
    """
    arrays: list[Any] = [reports.indices, reports.values] if isinstance(reports, Reports) else [reports]
    for array in arrays:
        own = array.base is None or (type(array.base) is np.ndarray and array.base.nbytes <= array.nbytes)
        plain = type(array) is np.ndarray and own and array.dtype.isnative and array.dtype.metadata is None
        assert plain and array.flags.writeable, f"{mechanism.name} sent reports that are no plain array of their own"
        assert len(array) == count, f"{mechanism.name} sent {len(array)} reports about {count} values"
    if isinstance(mechanism, BaseMechanism) and not isinstance(reports, Reports):
        kind = (reports.dtype, reports.shape[1:])
        said = (mechanism.report_dtype, mechanism.report_shape)
        assert kind == said, f"{mechanism.name} sent reports of {kind}, and says {said}"
    return reports


def _complain(mechanism: Estimating, complaint: str | None, where: str = "") -> None:
    assert complaint is None, f"{mechanism.name}{where}: {complaint}"


def _check_sampler(mechanism: Estimating, samples: int, share: float, level: float, seed: int) -> None:
    """Hold reports about inputs from the whole domain against the law, seeded and not."""
    source = np.random.default_rng(seed)
    tried = [x for x in drawn(mechanism.domain, source, 2) if admitted(mechanism, x)] or _inputs(mechanism, seed)
    last: Any = None
    inner = tried[-1:] + tried[:-1] if np.ndim(tried[0]) == 0 else tried[-1:] + tried[:2]
    for number, x in enumerate(inner):
        single = np.ndim(x) == 0 and np.ndim(mechanism.privatize(x, rng=seed)) == 0
        total = 10 * samples if single and number == 0 else samples if single or number == 0 else samples // 4
        size = -(-total // _CALLS)
        calls = [_reports(mechanism, x, size, None if call // 2 % 2 else source) for call in range(_CALLS)]
        where = f" at {x}"
        _complain(mechanism, goodness.fit(mechanism, x, calls, share), where)
        _complain(mechanism, goodness.independence(calls, share), where)
        _complain(mechanism, independence.both_ends(calls, share), where)
        _complain(mechanism, independence.balanced(calls, share), where)
        _complain(mechanism, independence.mirrored(mechanism.support, x, calls[-1], share), where)
        if number == 0:
            more = (_reports(mechanism, x, samples, None) for _ in range(_CALLS))
            show = goodness.shown if single else goodness.shown_whole
            _complain(mechanism, show(mechanism, x, more, share), where)
            if not single:
                more = (_reports(mechanism, x, samples, None) for _ in range(_CALLS))
                _complain(mechanism, goodness.shown_in_part(mechanism, x, more, share), where)
        if not single:
            whole = goodness.joined(calls)
            if number > 0:
                _complain(mechanism, goodness.last_bits(mechanism.support, whole, last, share), where)
            last = whole
            _complain(mechanism, goodness.collisions(mechanism.support, whole, share), where)
            if not isinstance(mechanism, PubliclyDrawn):  # what is drawn lies on no lattice
                _complain(mechanism, goodness.entries(mechanism, x, whole, share), where)
            _check_mean(mechanism, whole, x, level)


def _check_profile(mechanism: Estimating, inputs: list[Any], share: float, seed: int) -> None:
    """Check that no pair of neighbours is easier to distinguish than the worst pair of the exact calculator."""
    stated = mechanism.guarantee
    if stated.delta == 0:
        return
    source = np.random.default_rng(seed)
    pairs = [(inputs[0], inputs[1])]
    for group in groups(mechanism, source, 4):
        pairs += [(group[0], group[1]), (group[1], group[-1]), (group[-1], group[0])]
    limits = _limits(mechanism)
    for x, other in pairs:
        reports = _reports(mechanism, x, 20_000, source)
        own, its = (mechanism.log_prob(reports, np.asarray(value)[None]) for value in (x, other))
        for epsilon, limit in limits.items():
            excess = -np.expm1(np.minimum(epsilon + its - own, 0.0))
            # Maurer, Pontil 2009, Theorem 4
            risk = math.log(2 / share)
            seen = excess.mean() - math.sqrt(2 * excess.var() * risk / excess.size) - 7 * risk / (3 * excess.size)
            assert seen <= limit + 1e-9, (
                f"{mechanism.name}: {x} and {other} have a delta of {seen:.3g} or more at epsilon {epsilon:.3g}, "
                f"where the worst inputs were said to have {limit:.3g}"
            )


def _limits(mechanism: Estimating) -> dict[float, float]:
    """Return the deltas that the worst inputs are said to have, by epsilon."""
    stated = mechanism.guarantee
    if stated.delta == 0:
        return {exact_epsilon(mechanism): 0.0}
    try:
        return {e * stated.epsilon: exact_delta(mechanism, e * stated.epsilon) for e in (0.0, 0.5, 1.0)}
    except ValueError:  # too many reports to sum over
        return {stated.epsilon: stated.delta}


def _check_outside(mechanism: Estimating, samples: int, share: float, level: float, seed: int) -> None:
    """Check that a value outside the domain is refused, or with ``clip`` sent as the nearest one is."""
    domain = mechanism.domain
    source = np.random.default_rng(seed + 1)
    ends = drawn(domain, source, 2)[:2]
    if not ends or np.asarray(ends).dtype.kind in "iuU":  # a category or a text has no nearest one
        return
    middle = (ends[0] + ends[1]) / 2
    for x in ends:
        _check_infinite(mechanism, x, share)
        far = np.asarray(x + 9.5 * (x - middle) + 3 * domain.diameter * np.sign(x - middle))
        if np.all(domain.contains(far)) or not admitted(mechanism, x):
            continue
        try:
            reports = _reports(mechanism, far, samples // 4, source, clip=True)
            nearest = np.asarray(domain.clip(far))
            mechanism.moments(nearest)
        except (ValueError, TypeError):  # some values have no nearest one
            continue
        try:
            mechanism.privatize(far[None], rng=source)
        except ValueError:
            pass
        else:
            raise AssertionError(f"{mechanism.name} took {far}, which is outside {domain}, without clip=True")
        where = f" at {far} with clip=True"
        _complain(mechanism, goodness.fit(mechanism, nearest, [reports], share), where)
        _check_mean(mechanism, reports, nearest, level)


def _check_infinite(mechanism: Estimating, x: Any, share: float) -> None:
    """Check that infinity is refused, or with ``clip`` sent as the value is that is nearest to it."""
    far = np.select([np.greater(x, 0), np.less(x, 0)], [np.inf, -np.inf], 0.0)
    copies = np.broadcast_to(far, (_COPIES, *far.shape)).copy()
    try:
        reports = mechanism.privatize(copies, clip=True)
        nearest = np.broadcast_to(mechanism.domain.clip(copies[0]), copies.shape)
        mechanism.moments(nearest)
    except (ValueError, TypeError):
        return
    _complain(mechanism, goodness.frozen(mechanism, nearest, reports, _COPIES, share), " at infinity with clip=True")


def _check_beside(mechanism: Estimating, inputs: list[Any], seed: int) -> None:
    """Check that a call says nothing but its reports, and keeps nothing of the values that it was given."""
    pair = [np.broadcast_to(x, (60, *np.shape(x))).copy() for x in inputs[:2]]
    for values in pair:  # what is loaded or compiled once
        mechanism.privatize(values, rng=seed)
        mechanism.privatize(values)
    said, heard, held = (mechanism.guarantee, _described(mechanism)), [], []
    for values in 3 * pair:
        world = independence.World()
        with world.watched():
            mechanism.privatize(values, rng=seed)
            mechanism.privatize(values)
        heard.append(world.said)
        held.append(independence.attributes(mechanism))
        assert (mechanism.guarantee, _described(mechanism)) == said, f"{mechanism.name} describes itself anew"
    # a library that compiles something late may say so once
    assert not (heard[-1] and heard[-2]), f"{mechanism.name} {heard[-1][0]} when it makes reports"
    for name in set.intersection(*(set(one) for one in held)):
        states = [one[name] for one in held]  # something computed when it is first needed changes now and then
        assert states[-1] == states[-2] or (states[-4:-2] != states[-2:] and len(set(states)) < len(states)), (
            f"{mechanism.name} keeps something of the values in {name!r}"
        )


def _described(mechanism: Any) -> Any:
    return mechanism.spec() if isinstance(mechanism, BaseMechanism) else None


def _check_many_values(mechanism: Estimating, samples: int, share: float, seed: int) -> None:
    """Check that no value is sent as it is: values anywhere, and those that people write down, each some times."""
    source = np.random.default_rng(seed + 2)
    single = np.ndim(mechanism.witnesses()[0][0]) == 0
    values = written(mechanism.domain)
    if isinstance(mechanism.domain, Interval | Grid):
        anywhere = source.uniform(mechanism.domain.low, mechanism.domain.high, max(1, samples // _COPIES))
        values = np.unique(mechanism.domain.clip(np.concatenate([values, anywhere])))
    if len(values) < _ORDINARY:
        return
    try:
        mechanism.privatize(values, rng=np.random.default_rng(0))
    except (ValueError, NotImplementedError) as error:
        assert mechanism.domain.shape, f"{mechanism.name} refuses a value of its domain: {error}"
        # it asks for more than its domain, such as tensors with a symmetry
        values = values[[admitted(mechanism, x) for x in values]]
    if len(values) < _ORDINARY:
        return
    inputs = np.repeat(source.permutation(values), _COPIES, axis=0)
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        reports = _plain(mechanism, mechanism.privatize(inputs.copy()), len(inputs))
    assert not heard, f"{mechanism.name} warns of values of its domain: {heard[0].message}"
    assert np.all(mechanism.support.contains(reports)), f"{mechanism.name} sent a report outside {mechanism.support}"
    if single and np.ndim(reports) == 1:
        _complain(mechanism, goodness.in_the_clear(mechanism, inputs, reports, _COPIES, share))
        if mechanism.kind == "mean":
            _complain(mechanism, independence.quiet_stretch(mechanism, inputs, reports, _COPIES, share))
            limits = _limits(mechanism)
            for end in (values[0], values[-1]):
                _complain(
                    mechanism, independence.told_apart(mechanism, inputs, reports, _COPIES, end, limits, share / 2)
                )
    else:
        _complain(mechanism, goodness.frozen(mechanism, inputs, reports, _COPIES, share))


def _check_surroundings(mechanism: Estimating, inputs: list[Any], share: float, seed: int) -> None:
    """Check that nothing around a value changes its report: batch, order, size, thread, generator."""
    middle = np.asarray(inputs[-1])
    copies = np.broadcast_to(middle, (_COPIES, *middle.shape)).copy()
    many = np.broadcast_to(middle, (_CALLS * _COPIES if middle.ndim == 0 else _COPIES, *middle.shape)).copy()
    for name, send in _ways(mechanism, seed):
        reports = send(copies if name.startswith("as numbers") else many)
        _complain(mechanism, goodness.fit(mechanism, middle, [reports], share), f" {name}")
        reports = reports[:_COPIES]
        _complain(mechanism, goodness.frozen(mechanism, copies, reports, _COPIES, share), f" {name}")
    sizes = [mechanism.privatize(np.broadcast_to(middle, (size, *middle.shape)).copy()) for size in _SIZES]
    _complain(mechanism, goodness.fit(mechanism, middle, sizes, share), " in batches of other sizes")
    for size, reports in zip(_SIZES, sizes, strict=True):
        same = np.broadcast_to(middle, (size, *middle.shape))
        _complain(mechanism, goodness.frozen(mechanism, same, reports, size, share / len(_SIZES)), " in a small batch")
    source = np.random.default_rng(seed + 3)
    different = [x for x in drawn(mechanism.domain, source, _DIFFERENT) if admitted(mechanism, x)]
    values = np.unique(np.asarray(different), axis=0) if different else np.zeros(0)
    if len(values) < _ORDINARY:
        return
    orders = {"ascending": np.arange(len(values)), "descending": np.arange(len(values))[::-1]}
    for name, order in {**orders, "any": source.permutation(len(values))}.items():
        calls = [mechanism.privatize(values[order], rng=source if call % 2 else None) for call in range(_CALLS)]
        places = np.arange(_CALLS * len(values)).reshape(_CALLS, -1).T.ravel()  # reports about one value together
        own, reports = np.repeat(values[order], _CALLS, axis=0), goodness.joined(calls)[places]
        single = np.ndim(values[0]) == 0 and getattr(reports, "ndim", 2) == 1
        look, where = goodness.in_the_clear if single else goodness.frozen, f" among different values in {name} order"
        _complain(mechanism, look(mechanism, own, reports, _CALLS, share), where)
        if single:
            alike = mechanism.privatize(np.broadcast_to(middle, len(reports)).copy())
            _complain(mechanism, goodness.other_bits(mechanism.support, reports, alike, share), where)


def _ways(mechanism: Estimating, seed: int) -> Iterator[tuple[str, Callable[[Any], Any]]]:
    """Yield ways to send the same values."""
    for kind in (np.random.MT19937, np.random.Philox, np.random.SFC64, np.random.PCG64DXSM):
        generator = np.random.Generator(kind(seed))
        yield f"with {kind.__name__}", partial(mechanism.privatize, rng=generator)
    yield "with a long seed", partial(mechanism.privatize, rng=2**40 + seed)
    wide: Any = np.int64(seed)
    yield "with a seed of numpy", partial(mechanism.privatize, rng=wide)

    def elsewhere(values: Any) -> Any:
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(mechanism.privatize, values).result()

    yield "in another thread", elsewhere
    if not mechanism.domain.shape and mechanism.domain.kind != "texts":
        yield "as numbers", lambda values: np.asarray([mechanism.privatize(value) for value in values.tolist()])
        yield "as numbers of numpy", lambda values: np.asarray([mechanism.privatize(value) for value in values])


def _inputs(mechanism: Estimating, seed: int) -> list[Any]:
    """Return the worst inputs and, where the domain is convex, points between them."""
    worst = [np.asarray(x) for x in mechanism.witnesses()[0]]
    if worst[0].dtype.kind in "iuU" or mechanism.domain.kind in ("sphere", "grid", "attributes"):
        return worst
    shares = np.random.default_rng(seed).dirichlet(np.ones(len(worst)), size=2)
    between = [np.asarray(np.tensordot(share, np.asarray(worst), axes=1)) for share in shares]
    return worst + [x for x in between if admitted(mechanism, x)]


def _check_description(mechanism: Estimating, inputs: list[Any], seed: int) -> None:
    """Check determinism, purity, JSON and merging on a small batch."""
    x = np.asarray(inputs)[np.arange(60) % len(inputs)]
    before = x.copy()
    rows = [slice(row, row + 1) for row in range(60)]
    reports = mechanism.privatize(x, rng=seed)
    assert np.array_equal(x, before), f"{mechanism.name} changed its input"
    whole = _aggregate(mechanism, reports)
    same = [mechanism]
    if CATALOGUE.get(mechanism.name) is type(mechanism):
        restored = from_spec(json.dumps(mechanism.spec()))
        same_fields = restored.spec() == mechanism.spec() and restored.domain == mechanism.domain
        assert same_fields, f"{mechanism.name} does not survive JSON"
        same.append(restored)
    if isinstance(mechanism, BaseMechanism):
        said, own = mechanism.spec(), vars(mechanism)
        wrong = [name for name in own if isinstance(own[name], int | float) and said.get(name, own[name]) != own[name]]
        assert not wrong, f"{mechanism.name} describes itself with another {wrong[0]}: {said[wrong[0]]}"
    for copied in (copy.copy, copy.deepcopy, _pickled):
        with contextlib.suppress(pickle.PicklingError, AttributeError, TypeError):  # a class of a function has no name
            same.append(copied(mechanism))
    for twin in same:
        again = twin.privatize(x, rng=_random.generator(seed))
        # one by one: sums of sixty other reports may well be the same
        alike = (_aggregate(mechanism, reports[row]) == _aggregate(twin, again[row]) for row in rows)
        assert all(alike), f"{mechanism.name} gives other reports for the same seed"
    assert _aggregate(mechanism, mechanism.privatize(x)).users == 60
    first, second, third = (_aggregate(mechanism, reports[block]) for block in (slice(9), slice(9, 40), slice(40, 60)))
    for merged in (first + second + third, third + (first + second), second + third + first):
        assert merged == whole, f"aggregates of {mechanism.name} depend on the order of merging"


def _pickled(mechanism: Estimating) -> Any:
    return pickle.loads(pickle.dumps(mechanism))


@contextlib.contextmanager
def _worst_named() -> Iterator[None]:
    """Turn the calculator's refusal of a pair of inputs into a failed check."""
    try:
        yield
    except NotWorst as error:
        raise AssertionError(str(error)) from error


def _check_budget(mechanism: Estimating, inputs: list[Any]) -> None:
    """Check the exact epsilon against the stated one, and that the witnesses were the worst."""
    exact, stated = exact_epsilon(mechanism), mechanism.guarantee
    try:
        spent = exact if stated.delta == 0 else exact_epsilon(mechanism, delta=stated.delta)
    except ValueError:  # too many reports to sum over: _check_profile estimates it from some
        spent = 0.0
    slack = (1e-9 if stated.delta == 0 else 1e-6) * stated.epsilon + 1e-11
    assert spent <= stated.epsilon + slack, f"{mechanism.name} has exact epsilon {spent}, above {stated.epsilon}"
    if stated.matrix is not None:
        found = exact_matrix(mechanism, delta=stated.delta)
        for row, (own, said) in enumerate(zip(found, stated.matrix, strict=True)):
            over = [column for column, (one, other) in enumerate(zip(own, said, strict=True)) if one > other + slack]
            assert not over, (
                f"{mechanism.name}: level {row} against level {over[0]} has {own[over[0]]}, above {said[over[0]]}"
            )
    x = np.asarray(inputs)
    reports = mechanism.privatize(x[np.arange(200) % len(x)], rng=1)
    for row in range(200):
        likelihood = mechanism.log_prob(reports[row : row + 1], x)
        gap = float(np.max(likelihood) - np.min(likelihood))
        assert gap <= exact + 1e-9 * max(1.0, abs(exact)), f"{mechanism.name}: a report has ratio {gap}, above {exact}"


def _check_event(mechanism: Estimating) -> None:
    """Check that what accounting composes covers the exact delta at several epsilons."""
    event = mechanism.privacy_event() if isinstance(mechanism, EventDeclared) else None
    if not isinstance(event, GaussianEvent | ConcentratedEvent):
        return
    scale = max(mechanism.guarantee.epsilon, 1e-3)
    for epsilon in (0.25 * scale, scale, 2 * scale):
        try:
            exact = exact_delta(mechanism, epsilon)
        except ValueError:  # too many reports to sum over
            return
        covered = (
            float(gaussian_delta(event.mu, epsilon))
            if isinstance(event, GaussianEvent)
            else zcdp_delta(event.rho, epsilon)
        )
        assert exact <= covered * (1 + 1e-5) + 1e-12, (
            f"{mechanism.name} declares {event}, which is not so: at epsilon {epsilon:.3g} that is a delta of "
            f"{covered:.6g}, and the exact one is {exact:.6g}"
        )


def _check_forms(mechanism: Estimating, inputs: list[Any], share: float, seed: int) -> None:
    """Check that a value gets the same report whatever it comes in: a list, float32, whole numbers, alone, clip=True.

    Seeded reports must be the same to the last bit; without a seed many reports about one value must follow the law.
    """
    x = np.asarray(inputs)
    x = x[np.arange(24) % len(x)]
    plain = mechanism.privatize(x, rng=seed)
    middle = np.asarray(inputs[-1])
    copies, secret = np.broadcast_to(middle, (_COPIES, *middle.shape)).copy(), _random.generator()
    for name, form in _forms(x):
        other = {"clip": True} if name == "clip=True" else {}
        try:
            given = form(x)
            reports = mechanism.privatize(given, rng=seed, **other)
        except (ValueError, TypeError, AttributeError):  # not every mechanism takes every form
            continue
        rounded = name.startswith(("float", "whole", "short whole", "yes"))
        meant = mechanism.privatize(np.asarray(given, float), rng=seed) if rounded else plain
        meant = meant if isinstance(meant, Reports) else meant.astype(_as_numpy(reports).dtype)
        same = np.array_equal(table(_as_numpy(reports)), table(meant), equal_nan=True)
        assert same, f"{mechanism.name} gives other reports for the same seed when values come as {name}"
        # without a seed, and with the generator that no seed stands for
        half = [mechanism.privatize(form(copies[: _COPIES // 2]), rng=free, **other) for free in (None, secret)]
        free = goodness.joined([_as_numpy(one) for one in half])
        where, meant_by = f" with values as {name}", np.asarray(_first(form(copies)), dtype=middle.dtype)
        _complain(mechanism, goodness.fit(mechanism, meant_by, [free], share), where)
        same_again = np.broadcast_to(meant_by, copies.shape)
        _complain(mechanism, goodness.frozen(mechanism, same_again, free, _COPIES, share), where)
    _check_places(mechanism, x, plain, copies, share, seed)
    alone = [mechanism.privatize(middle[None], rng=None if call % 2 else seed + call) for call in range(_COPIES)]
    _complain(mechanism, goodness.fit(mechanism, middle, alone, share), " one value at a time")
    _complain(mechanism, goodness.frozen(mechanism, copies, goodness.joined(alone), _COPIES, share), " alone")
    one, first = mechanism.privatize(middle, rng=seed), mechanism.privatize(middle[None], rng=seed)
    if not isinstance(first, Reports):
        assert np.array_equal(np.asarray(one), np.asarray(first)[0]), (
            f"{mechanism.name} gives other reports for the same seed to one value and to a batch of one"
        )


def _check_places(mechanism: Any, x: Any, plain: Any, copies: Any, share: float, seed: int) -> None:
    """Check that zero is one value whatever its sign is, and that reports are the same wherever they are put."""
    if copies.dtype.kind == "f" and admitted(mechanism, zero := np.zeros(copies.shape[1:])):
        zeros = np.broadcast_to(zero, copies.shape).copy()
        one, other = (table(mechanism.privatize(values, rng=seed)) for values in (-zeros, zeros))
        same = np.array_equal(one, other, equal_nan=True)
        assert same, f"{mechanism.name} gives other reports for the same seed to -0.0 and to 0.0"
        _complain(
            mechanism, goodness.frozen(mechanism, zeros, mechanism.privatize(-zeros), len(zeros), share), " at -0.0"
        )
    if "out" not in signature(mechanism.privatize).parameters:
        return
    for name, into in (("an array of its own", np.empty_like(x)), ("the values themselves", x.copy())):
        given = x.copy() if name == "an array of its own" else into
        same = np.array_equal(mechanism.privatize(given, out=into, rng=seed), plain)
        assert same, f"{mechanism.name} puts other reports for the same seed into {name}"
        free = copies.copy()
        mechanism.privatize(free if given is into else copies, out=free)
        _complain(mechanism, goodness.frozen(mechanism, copies, free, len(copies), share), f" put into {name}")


def _forms(x: Any) -> Iterator[tuple[str, Callable[[Any], Any]]]:
    """Yield ways in which the same values may come."""
    yield "clip=True", lambda values: values
    yield "a list", lambda values: values.tolist()
    yield "a tuple", lambda values: tuple(values.tolist())
    yield "objects", lambda values: values.astype(object)
    yield "an array that nobody may change", _kept
    yield "a masked array", lambda values: np.ma.masked_array(values)
    yield "something that numpy reads", _Read
    yield "numbers of another byte order", lambda values: values.astype(values.dtype.newbyteorder())
    yield "numbers at odd places of the memory", _unaligned
    yield "a view from behind", lambda values: values[::-1].copy()[::-1]
    if "pandas" in sys.modules and x.ndim == 1:
        yield "a column of pandas", lambda values: sys.modules["pandas"].Series(values)
    if "pyarrow" in sys.modules and x.ndim == 1:
        yield "a column of Arrow", lambda values: sys.modules["pyarrow"].array(values)
    if x.dtype.kind == "f":
        if np.all(np.abs(x) < 2.0**53):  # larger ones may not be whole numbers of 64 bits
            yield "whole numbers", lambda values: np.rint(values).astype(np.int64)
        if np.all(np.abs(x) < 2.0**31):
            yield "short whole numbers", lambda values: np.rint(values).astype(np.int32)
        if np.all(np.abs(x) < 2.0**7):
            yield "whole numbers of one byte", lambda values: np.rint(values).astype(np.int8)
            yield "whole numbers without a sign", lambda values: np.abs(np.rint(values)).astype(np.uint8)
        yield "yes or no", lambda values: values > np.mean(x)
        yield "longer floats", lambda values: values.astype(np.longdouble)
        sizes = np.abs(x[x != 0])
        if np.all((sizes > 1e-25) & (sizes < 1e25)):  # float32 holds them, and noise around them
            yield "float32", lambda values: np.asarray(values, dtype=np.float32)
        if x.ndim == 1 and np.all((sizes > 1e-3) & (sizes < 1e4)):  # reports of tensors would be as coarse
            yield "float16", lambda values: np.asarray(values, dtype=np.float16)
        if "torch" in sys.modules:
            yield "a torch tensor", lambda values: sys.modules["torch"].from_numpy(values.copy())
    elif x.dtype.kind in "iu":
        yield "int32", lambda values: values.astype(np.int32)


class _Read:
    """Holds an array, as tables of other libraries do."""

    def __init__(self, values: Any) -> None:
        self._values = values

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return self._values if dtype is None else self._values.astype(dtype)

    def __getitem__(self, place: Any) -> Any:
        return self._values[place]

    def __len__(self) -> int:
        return len(self._values)


def _unaligned(values: Any) -> Any:
    made = np.empty(values.nbytes + 1, dtype=np.uint8)[1:].view(values.dtype).reshape(values.shape)
    made[...] = values
    return made


def _kept(values: Any) -> Any:
    made = values.copy()
    made.flags.writeable = False
    return made


def _first(values: Any) -> Any:
    first = values.iloc[0] if hasattr(values, "iloc") else values[0]
    return first.as_py() if hasattr(first, "as_py") else first  # numpy makes '9' of Arrow's 'a', whose code is 97


def _as_numpy(reports: Any) -> Any:
    """Return reports as numpy has them."""
    return reports if isinstance(reports, Reports) else np.asarray(reports)


def _check_drawn(mechanism: Estimating, inputs: list[Any], samples: int, share: float, level: float, seed: int) -> None:
    """Check that what is drawn for a report without looking at the value is so drawn, and reports given it follow."""
    if not isinstance(mechanism, PubliclyDrawn):
        return
    source = np.random.default_rng(seed)
    many = samples // 10
    for number, x in enumerate(inputs):
        copies = np.broadcast_to(x, (many, *np.shape(x))).copy()
        given = mechanism.draw(many, source)
        reports = mechanism.privatize_drawn(copies, given, rng=None if number % 2 else source)
        assert np.array_equal(mechanism.drawn(reports), given), (
            f"{mechanism.name} reports another draw than it is given"
        )
        _complain(mechanism, goodness.fit(mechanism, x, [reports], share), f" at {x} with what was drawn")
        _check_likelihood(mechanism, reports, x, inputs[number - 1], level)
    first, *others = (
        mechanism.drawn(_reports(mechanism, x, samples, None if number % 2 else source))
        for number, x in enumerate(inputs)
    )
    for number, other in enumerate(others):
        _complain(mechanism, goodness.unlike(first, other, share), f" at {inputs[0]} and {inputs[number + 1]}")


def _check_likelihood(mechanism: Estimating, reports: Any, x: Any, other: Any, level: float) -> None:
    """Check that E[p(Y | other) / p(Y | x)] = 1 under x, which holds only if the sampler has this likelihood."""
    rows = slice(0, 20_000)
    own = mechanism.log_prob(reports[rows], x[None])
    assert np.all(np.isfinite(own)), f"{mechanism.name} sent a report that log_prob calls impossible"
    ratio = np.exp(np.minimum(mechanism.log_prob(reports[rows], other[None]) - own, 700.0))
    if mechanism.guarantee.delta > 0:
        # beyond exp(epsilon) at most delta of the mass lies, so cap there and lose no more than that
        ratio = np.minimum(ratio, math.exp(min(mechanism.guarantee.epsilon, 700.0)))
    error = level * float(ratio.std()) / math.sqrt(ratio.size) + mechanism.guarantee.delta
    error += 1e-9 + math.exp(min(2 * mechanism.guarantee.epsilon, 50.0)) * level / ratio.size
    assert abs(float(ratio.mean()) - 1) <= error, (
        f"{mechanism.name}: the mean likelihood ratio is {float(ratio.mean())}, not 1 within {error}: "
        "log_prob and privatize disagree"
    )


def _check_mean(mechanism: Estimating, reports: Any, x: Any, level: float) -> None:
    """Check that the estimate is unbiased."""
    truth, stated = _truth(mechanism, x), _stated_variance(mechanism, x).reshape(-1)
    whole = _aggregate(mechanism, reports).estimate()
    # reports on a lattice may miss the truth by a hundred-millionth of the domain
    error = level * np.sqrt(stated / whole.count) + 1e-7 * np.abs(truth) + 1e-8 * mechanism.domain.diameter
    # the second term of Bernstein's inequality: a few rare and large reports are no sign of a bias
    error += _skewness(mechanism, x, stated.shape) * np.sqrt(stated) * level**2 / (3 * whole.count)
    assert np.all(np.abs(whole.value - truth) <= error), (
        f"{mechanism.name} is biased at {x}: estimate {whole.value}, truth {truth}"
    )


def _check_moments(mechanism: Estimating, reports: Any, x: Any, level: float) -> None:
    """Check that the estimate is unbiased and has the stated variance, on means of batches and among all reports."""
    _check_mean(mechanism, reports, x, level)
    truth, stated = _truth(mechanism, x), _stated_variance(mechanism, x).reshape(-1)
    size = len(reports) // _BATCHES
    batches = [
        _aggregate(mechanism, reports[start : start + size]).estimate() for start in range(0, size * _BATCHES, size)
    ]
    skew = _skewness(mechanism, x, stated.shape)
    _check_variance(mechanism, batches, stated, skew, level, x)
    _check_third(mechanism, reports, x, level)
    scores = np.stack([(batch.value - truth) * np.sqrt(batch.count) for batch in batches])
    counts = np.stack([batch.count for batch in batches]).sum(axis=0)
    # at a large epsilon the variance may hang on reports too rare to be in the sample: then it cannot be judged
    seen = np.isfinite(scores).all(axis=0) & _noisy(stated) & (skew * _SKEWNESS_SEEN <= np.sqrt(counts))
    squares = (scores[:, seen] - scores[:, seen].mean(axis=0)) ** 2 / stated[seen]
    ratio = squares.mean(axis=0) * _BATCHES / (_BATCHES - 1)
    spread = level * np.maximum(squares.std(axis=0), math.sqrt(2)) / math.sqrt(_BATCHES)
    assert np.all(np.abs(ratio - 1) <= spread), f"{mechanism.name} has {ratio} times its stated variance at {x}"


def _check_variance(
    mechanism: Estimating, batches: list[Estimate], stated: FloatArray, skew: FloatArray, level: float, x: Any
) -> None:
    """Check the variance within batches, which every report has a part in."""
    found = np.stack([np.square(batch.std_error) * batch.count for batch in batches])
    coarse = np.asarray(mechanism.readout.coarse)
    grain = np.where(coarse > 1, 32 * coarse, 0.0) * np.abs(mechanism.readout.scale)  # squares are summed rounded
    seen = np.isfinite(found).all(axis=0) & (skew <= _SKEWED) & _noisy(stated)
    seen &= stated > np.broadcast_to(grain, stated.shape) ** 2
    ratio = found[:, seen] / stated[seen]
    error = level * ratio.std(axis=0) / math.sqrt(len(batches)) + 2e-3
    assert np.all(np.abs(ratio.mean(axis=0) - 1) <= error), (
        f"{mechanism.name} has {ratio.mean(axis=0)} times its stated variance at {x}"
    )


def _check_squares(mechanism: Any, reports: Any, x: Any, level: float) -> None:
    """Check the variance of each entry of vectors, report by report: what is summed up of squares is rounded."""
    decodes = hasattr(mechanism, "decode") and not isinstance(reports, Reports)
    if not decodes or np.ndim(x) == 0 or "mean" not in mechanism.kind:
        return
    decoded = np.asarray(mechanism.decode(reports))
    if decoded.shape != (len(reports), *np.shape(x)):
        return
    moments = mechanism.moments(x)
    stated = np.asarray(moments.variance, dtype=float)
    squares = (decoded - x - moments.bias) ** 2 / np.where(stated > 0, stated, 1.0)
    error = level * squares.std(axis=0) / math.sqrt(len(reports)) + 2e-3
    seen = _noisy(stated) & (_skewness(mechanism, x, (stated.size,)).reshape(stated.shape) <= _SKEWED)
    wrong = seen & (np.abs(squares.mean(axis=0) - 1) > error)
    assert not wrong.any(), (
        f"{mechanism.name} has {squares.mean(axis=0)[wrong][0]:.4g} times its stated variance in an entry at {x}"
    )


def _check_third(mechanism: Estimating, reports: Any, x: Any, level: float) -> None:
    """Check the third absolute central moment of single numbers, roughly, unless it hangs on a few reports."""
    if np.ndim(x) or mechanism.kind != "mean" or getattr(reports, "ndim", 2) != 1:
        return
    moments = mechanism.moments(x)
    stated = float(moments.third)
    if not 0 < stated < math.inf or float(_skewness(mechanism, x, (1,))[0]) > _SKEWED:
        return
    cubes = (np.abs(np.asarray(reports) - x - float(moments.bias)) / math.cbrt(stated)) ** 3  # of size 1
    if cubes.max() > 0.02 * cubes.sum():
        return
    ratio, spread = float(cubes.mean()), float(cubes.std()) / math.sqrt(cubes.size)
    assert abs(ratio - 1) <= 0.1 + 2 * level * spread, (
        f"{mechanism.name} has {ratio:.3g} times its stated third absolute moment at {x}"
    )


def _noisy(stated: FloatArray) -> Any:
    """Tell which variances are more than what float64 leaves of none, beside the largest of them."""
    return stated > 1e-16 * stated.max()


def _truth(mechanism: Estimating, x: Any) -> FloatArray:
    """Return what is estimated when everybody holds x: for most mechanisms x itself."""
    return np.asarray(mechanism.target(x)).reshape(-1)


def _stated_variance(mechanism: Estimating, x: Any) -> FloatArray:
    """Return the variance of the estimate from one report, which undoes an affine bias where there is one."""
    variance = mechanism.moments(x).variance
    if mechanism.kind != "mean":
        return variance
    worst = mechanism.witnesses()[0]
    bias = mechanism.moments(np.asarray([worst[0], worst[-1]])).bias
    slope = 1 + (bias[1] - bias[0]) / (worst[-1] - worst[0])
    return np.asarray(variance / slope**2)


def _skewness(mechanism: Estimating, x: Any, shape: tuple[int, ...]) -> FloatArray:
    """Return the third absolute central moment of a report over the cube of its standard deviation."""
    moments = mechanism.moments(x)
    variance = moments.variance.reshape(-1)
    return np.broadcast_to(moments.third.reshape(-1) / np.where(variance > 0, variance, 1.0) ** 1.5, shape)


def _aggregate(mechanism: Any, reports: Any) -> Aggregate:
    aggregate: Aggregate = mechanism.aggregate(reports)
    return aggregate
