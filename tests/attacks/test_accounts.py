"""Attacks on the accountant: releases taken for less than they are, and accounts that mix what does not add up."""

from __future__ import annotations

import contextlib
import itertools
import math
import sqlite3
import subprocess
import sys
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from statistics import NormalDist
from typing import Any

import dp_accounting
import mpmath
import numpy as np
import pytest

import noisette as nz
from noisette.accounting import (
    BudgetExceeded,
    Ledger,
    LedgerError,
    compose,
    event,
    gdp,
    gdp_epsilon,
    loss_distribution,
    noise_multiplier,
    privacy_curve,
    rdp,
    sampled_gaussian,
    shuffled,
    zcdp,
)
from noisette.core import EventDeclared, GaussianEvent
from noisette.prediction.graded import Reused

DELTA = 1e-6
DECOYS = ("mu", "sigma", "rho", "epsilon", "noise_multiplier", "report", "inner_mechanism", "gaussian", "event")


@dataclass(frozen=True)
class Decoy:
    """States a guarantee, and has one attribute that would promise far more if it were taken for a noise level."""

    guarantee: nz.Guarantee
    named: dict[str, Any] = field(default_factory=dict)

    def __getattr__(self, name: str) -> Any:
        if name in self.__dict__.get("named", {}):
            return self.named[name]
        raise AttributeError(name)


def test_hieras_reuse_count_is_no_noise_level() -> None:
    """HierA counts each report ``reuse`` times; the accountant took that count, then called mu, for Gaussian noise."""
    levelled = nz.LevelledResponse(edges=[-1, -0.6, 0, 1], epsilons=[3.0, 2.0, 1.0])
    reused = Reused(levelled, 2)
    assert reused.reuse == 2
    assert gdp(reused) is None


@pytest.mark.parametrize("name", DECOYS)
def test_an_attribute_by_a_telling_name_is_not_taken_for_noise(name: str) -> None:
    """A mechanism of epsilon 3 has an attribute 0.01 by the name of a noise level: its guarantee alone counts."""
    stated = nz.Guarantee(3.0)
    decoy: Any = Decoy(stated, {name: nz.Duchi(epsilon=0.01) if name == "inner_mechanism" else 0.01})
    assert getattr(decoy, name) is not None
    assert gdp(decoy) is None
    assert event(decoy) == event(stated)
    assert isinstance(event(decoy), dp_accounting.RandomizedResponseDpEvent)
    assert compose(decoy, 10, delta=DELTA).epsilon == compose(stated, 10, delta=DELTA).epsilon
    assert zcdp(decoy) == zcdp(stated)
    assert rdp(decoy, [2.0]) == rdp(stated, [2.0])
    assert (privacy_curve(decoy).deltas == privacy_curve(stated).deltas).all()
    found = loss_distribution(decoy).get_delta_for_epsilon(1.0)
    assert found == loss_distribution(stated).get_delta_for_epsilon(1.0)


def test_all_decoys_at_once_and_a_method_by_the_right_name() -> None:
    """A class that does not inherit the declaration declares nothing, whatever its methods are called."""
    stated = nz.Guarantee(3.0)
    named: dict[str, Any] = dict.fromkeys(DECOYS, 1)
    named |= {"inner_mechanism": nz.Duchi(epsilon=0.01), "privacy_event": lambda: GaussianEvent(0.01)}
    decoy: Any = Decoy(stated, named)
    assert gdp(decoy) is None
    assert compose(decoy, 10, delta=DELTA).epsilon == compose(stated, 10, delta=DELTA).epsilon


def test_the_twin_a_declared_event_is_used() -> None:
    """What inherits the declaration is composed by it: the test above would pass if no event were ever used."""

    class Noisy(Decoy, EventDeclared):
        def privacy_event(self) -> GaussianEvent:
            return GaussianEvent(0.01)

    noisy: Any = Noisy(nz.Guarantee(3.0, 1e-9))
    assert gdp(noisy) == 0.01
    assert event(noisy) == dp_accounting.GaussianDpEvent(100.0)
    assert compose(noisy, 10, delta=DELTA).epsilon < 0.2


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(nz.CATALOGUE))
def test_repetitions_are_never_told_by_a_count_that_is_ignored(name: str) -> None:
    """dp-accounting counts repeated randomised responses once: each repetition is an event of its own."""
    mechanism = nz.CATALOGUE[name].example(1.0)
    three = event(mechanism, times=3)
    one = three.events[0]
    assert three.events == [one] * 3
    relation = dp_accounting.NeighboringRelation.REPLACE_ONE
    orders = (1.5, 2, 4, 8, 16, 32, 64)  # few: what is counted twice is so at any
    accountant, unrolled, alone = (dp_accounting.rdp.RdpAccountant(orders, relation) for _ in range(3))
    for _ in range(3):
        unrolled.compose(one)
    spent = accountant.compose(three).get_epsilon(DELTA)
    assert spent == pytest.approx(unrolled.get_epsilon(DELTA), rel=1e-9)
    assert spent > alone.compose(one).get_epsilon(DELTA) * 1.2 or math.isinf(spent)


def test_a_delta_too_small_for_a_fourier_transform() -> None:
    """One sampled release at a delta of 1e-16: the stated epsilon was below the true one."""
    q, delta = 0.1, 1e-16
    epsilon = sampled_gaussian(1.0, delta, sampling_prob=q).epsilon
    inner = math.log1p(math.expm1(epsilon) / q)  # removing an example: exp(inner) = (exp(epsilon) - 1 + q) / q
    near, far = (math.erfc((inner + sign * 0.5) / math.sqrt(2)) / 2 for sign in (-1, 1))
    assert q * (near - math.exp(inner) * far) <= delta * (1 + 1e-9)


def test_a_thousand_steps_at_a_small_delta_are_not_priced_three_times_too_high() -> None:
    """12.4 was stated where Renyi divergences give 4.98: whoever believes it adds noise for nothing."""
    assert sampled_gaussian(1.0, 1e-14, releases=1000, sampling_prob=0.01).epsilon < 4.98


def renyi_of_grr(epsilon: float, categories: int, order: float) -> float:
    """Return the Renyi divergence of generalised randomised response between two categories, with 60 digits."""
    with mpmath.workdps(60):
        e, a = mpmath.mpf(epsilon), mpmath.mpf(order)
        kept = mpmath.exp(e) / (mpmath.exp(e) + categories - 1)
        other = kept * mpmath.exp(-e)
        moment = kept**a * other ** (1 - a) + other**a * kept ** (1 - a) + (categories - 2) * other
        return float(mpmath.log(moment) / (a - 1))


@pytest.mark.parametrize("categories", [10, 100, 10_000, 1_000_000])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 5.0])
def test_a_loss_that_is_rare_is_concentrated_at_large_orders(tmp_path: Path, epsilon: float, categories: int) -> None:
    """Orders up to some 5 were looked at: 8.8e-6 was stated, and debited, for a rho of 0.0188, a million categories."""
    grr = nz.GeneralizedRandomizedResponse(epsilon=epsilon, domain=nz.Categorical(categories))
    truth = max(renyi_of_grr(epsilon, categories, a) / a for a in (1 + 10 ** (n / 20) for n in range(-60, 80)))
    assert truth <= zcdp(grr) <= truth * 1.03  # what is listed here is coarser
    with Ledger(tmp_path / "budget.db") as ledger:
        ledger.open_account("user", 100.0, 1e-6, composition="zcdp")
        assert float(ledger.debit("user", grr).rho) >= truth


@pytest.mark.parametrize("epsilon", [1e-7, 1e-6, 1e-4, 1.0, 25.0])
@pytest.mark.parametrize("categories", [2, 3, 1000])
def test_divergences_of_tiny_budgets_keep_their_digits(epsilon: float, categories: int) -> None:
    """A logarithm of a sum near one was taken: 0 was stated at a budget of 1e-6 and order 1.0001."""
    grr = nz.GeneralizedRandomizedResponse(epsilon=epsilon, domain=nz.Categorical(categories))
    orders = [1.0001, 1.5, 2.0, 30.0, 1e4, 1e9]
    for stated, order in zip(rdp(grr, orders), orders, strict=True):
        truth = renyi_of_grr(epsilon, categories, order)
        assert truth * (1 - 1e-13) <= stated <= truth * (1 + 1e-5) + 1e-12 * (categories > 2)


def delta_of_responses(each: list[tuple[int, int]], unit: float, times: int, epsilon: float) -> float:
    """Return delta of responses of (epsilon in units, categories), each so often, by adding up losses directly."""
    law, lowest = np.ones(1), 0
    for size, categories in each:
        kept = 1 / (1 + (categories - 1) * math.exp(-size * unit))
        one = np.zeros(2 * size + 1)
        one[[0, size, -1]] += kept * math.exp(-size * unit) * np.asarray([1, categories - 2, 0]) + [0, 0, kept]
        for _ in range(times):
            law, lowest = np.convolve(law, one), lowest - size
    gap = epsilon - unit * (lowest + np.arange(law.size))
    return float((law * -np.expm1(np.minimum(gap, 0.0))).sum())


@pytest.mark.parametrize("delta", [1e-9, 1e-11, 3e-12, 1e-15, 1e-40])
@pytest.mark.parametrize(
    ("unit", "each", "times"),
    [
        (0.147, [(3, 1000), (3, 10)], 30),
        (0.00367, [(1, 1_000_000), (3, 10)], 200),
        (0.252, [(3, 2), (3, 3)], 30),
        (0.4, [(1, 10), (3, 1000)], 30),
        (0.05, [(2, 50)], 100),
    ],
)
def test_sums_of_losses_at_small_deltas(unit: float, each: list[tuple[int, int]], times: int, delta: float) -> None:
    """A Fourier transform loses some 1e-15 of the masses: delta was up to 1.001 times what was stated at 2e-12."""
    responses = [nz.GeneralizedRandomizedResponse(epsilon=size * unit, domain=nz.Categorical(k)) for size, k in each]
    found = compose(responses if len(each) > 1 else responses[0], times, delta=delta).epsilon
    assert delta_of_responses(each, unit, times, found * (1 + 1e-13)) <= delta
    assert delta_of_responses(each, unit, times, found * (1 - 3e-3)) > delta  # and is no larger than that


def test_curves_of_tiny_budgets_are_bounds() -> None:
    """Sums of masses lose some 1e-14, which is more than nothing beside a delta of 5e-8: curves lay 7e-7 too low."""
    for name in ("laplace", "discrete-laplace", "staircase", "retain-or-noise", "duchi", "piecewise"):
        for epsilon in (1e-7, 1e-6):
            mechanism = nz.CATALOGUE[name].example(epsilon)
            for share in (0.0, 0.3, 0.7):
                truth = nz.exact_delta(mechanism, share * epsilon) - 1e-14  # what it may lose itself
                assert float(privacy_curve(mechanism).delta(share * epsilon)) >= truth


def test_little_noise_does_not_undo_sampling() -> None:
    """Table 5.3's plain run was printed with 3.28e8; its example is drawn 0.5 times on average in 400 steps."""
    assert sampled_gaussian(0.05 / 64, 1e-5, releases=400, sampling_prob=64 / 50_000).epsilon < 5.8e6


@pytest.mark.parametrize("relation", ["add-remove", "replace"])
@pytest.mark.parametrize("noise", [1e-7, 1e-9, 1e-12, 1e-100])
def test_next_to_no_noise(noise: float, relation: Any) -> None:
    """At 1e-9 an epsilon of 1.8e17 was stated for 5.0e17: exp(epsilon) was multiplied by a chance without digits."""
    mu = (1 if relation == "add-remove" else 2) / noise
    for delta in (1e-9, 0.3, 0.9):
        for releases in (1, 4):
            far = mu * math.sqrt(releases)
            truth = far * far / 2 + far * NormalDist().inv_cdf(1 - delta)  # but for a chance below 1 / far
            stated = sampled_gaussian(noise, delta, releases=releases, relation=relation).epsilon
            assert truth * (1 - 1e-12) - far <= stated <= truth * (1 + 1e-10) + far


@pytest.mark.parametrize("releases", [1, 820])
@pytest.mark.parametrize("epsilon", [1e-6, 0.04, 350.0])
def test_an_example_that_is_hardly_ever_drawn(epsilon: float, releases: int) -> None:
    """Delta covers that it is drawn at all, so any noise will do: the search went on to mu = infinity, and raised."""
    found = noise_multiplier(epsilon, 1e-8, releases=releases, sampling_prob=1e-12)
    assert 0 < found <= 1e-6
    assert sampled_gaussian(found, 1e-8, releases=releases, sampling_prob=1e-12).epsilon <= epsilon


KINDS = [
    nz.Guarantee(0.5, 1e-7, unit=unit, model=model, relation=relation)
    for unit, model, relation in itertools.product(
        ("element", "record", "example"),
        ("local", "shuffled", "distributed", "central"),
        ("any-pair", "replace", "add-remove"),
    )
]
TRUST = [{"local"}, {"shuffled", "distributed"}, {"central"}]  # the two in the middle imply nothing of each other


def _trusts(model: str) -> int:
    return next(step for step, models in enumerate(TRUST) if model in models)


def _cost(spent: nz.Guarantee, account: nz.Guarantee) -> float | None:
    """Return how many times its epsilon a guarantee costs in an account of other terms, None if it must be refused."""
    if spent.unit != account.unit or (spent.model != account.model and _trusts(spent.model) >= _trusts(account.model)):
        return None
    costs = {("any-pair", "replace"): 1.0, ("add-remove", "replace"): 2.0}
    return 1.0 if spent.relation == account.relation else costs.get((spent.relation, account.relation))


@pytest.mark.slow
def test_debits_of_all_kinds_into_accounts_of_all_kinds(tmp_path: Path) -> None:
    """1,296 pairs: each is counted at the cost that is proved and says so, or refused with both names and no trace."""
    with Ledger(tmp_path / "budget.db") as ledger:
        for number, own in enumerate(KINDS):
            ledger.open_account(f"{number}", 1e6, 1.0, unit=own.unit, model=own.model, relation=own.relation)
            for spent in KINDS:
                before, cost = ledger.balance(f"{number}"), _cost(spent, own)
                if cost is None:
                    with pytest.raises(ValueError, match=r"Nothing was debited\.$") as refused:
                        ledger.debit(f"{number}", spent)
                    assert f"unit {own.unit}, model {own.model}, relation {own.relation}" in str(refused.value)
                    assert str(spent) in str(refused.value)
                    assert ledger.balance(f"{number}") == before
                    with pytest.raises(ValueError, match="cannot be counted as"):
                        spent.implied(unit=own.unit, model=own.model, relation=own.relation)
                    continue
                receipt = ledger.debit(f"{number}", spent)
                assert receipt.epsilon == Decimal("0.5") * Decimal(cost)
                assert float(receipt.delta) >= (1e-7 if cost == 1 else (1 + math.exp(0.5)) * 1e-7) * (1 - 1e-9)
                same = (spent.model, spent.relation) == (own.model, own.relation)
                assert (receipt.converted == "") == same
                if not same:
                    assert str(spent) in receipt.converted
                    assert f"model {own.model}, relation {own.relation}" in receipt.converted
        ledger.verify()
        assert [r.converted for r in ledger.history("0")] == [""]


def test_a_training_run_a_shuffled_and_a_local_report_in_one_account(tmp_path: Path) -> None:
    """All three were added up in silence. A local account takes the local one; the others name what they are."""
    run = nz.Guarantee(1.0, 1e-6, model="central", relation="add-remove")
    mixed = shuffled(nz.Duchi(epsilon=1.0), 1000, 1e-6)
    with Ledger(tmp_path / "budget.db") as ledger:
        ledger.open_account("user", 10.0, 1e-3)
        ledger.debit("user", nz.Duchi(epsilon=1.0))
        for other in (run, mixed):
            with pytest.raises(ValueError, match=f"model {other.model}, relation {other.relation}, and cannot"):
                ledger.debit("user", other)
        assert ledger.balance("user").debits == 1
        balance = ledger.balance("user")
        assert (balance.unit, balance.model, balance.relation) == ("record", "local", "any-pair")
        ledger.open_account("published", 10.0, 1e-3, model="central", relation="replace")
        spent = [ledger.debit("published", some).epsilon for some in (nz.Duchi(epsilon=1.0), run)]
        assert spent == [1, 2]


def test_concentrated_accounts_convert_by_group_privacy(tmp_path: Path) -> None:
    """rho of a group of two is four times rho, and a pure epsilon of two is at most that of 2 epsilon."""
    workload = nz.CATALOGUE["matrix"].example(1.0)
    assert workload.guarantee.relation == "add-remove"
    with Ledger(tmp_path / "budget.db") as ledger:
        ledger.open_account("one", 100.0, 1e-6, model="central", relation="add-remove", composition="zcdp")
        ledger.open_account("two", 100.0, 1e-6, model="central", relation="replace", composition="zcdp")
        once, twice = (float(ledger.debit(name, workload).rho) for name in ("one", "two"))
        assert twice == pytest.approx(4 * once, rel=1e-9)
        pure = nz.Guarantee(0.5, model="central", relation="add-remove")
        assert float(ledger.debit("two", pure).rho) == pytest.approx(zcdp(nz.Guarantee(1.0)), rel=1e-9)


def test_composing_across_relations() -> None:
    """A sequence of releases is counted in terms that all of them imply, at the cost that is proved, or refused."""
    local, run = nz.Duchi(epsilon=1.0), nz.Guarantee(0.5, 1e-8, model="central", relation="add-remove")
    both = compose([local, run])
    assert (both.epsilon, both.model, both.relation) == (2.0, "central", "replace")
    assert both.delta >= (1 + math.exp(0.5)) * 1e-8
    assert compose([local, run], delta=1e-5).epsilon >= 1.0
    for other in (nz.Guarantee(1.0, unit="example"), nz.Guarantee(1.0, unit="element", model="central")):
        with pytest.raises(ValueError, match="cannot be counted as unit record"):
            compose([local, other])
    with pytest.raises(ValueError, match="has to hold for any pair of values"):
        shuffled(nz.Guarantee(1.0, relation="replace"), 1000, 1e-6)


def test_a_curve_that_has_lost_its_terms() -> None:
    """The curve of a central release under add-remove was composed, and told as one of the local model."""
    workload = nz.CATALOGUE["matrix"].example(1.0)
    element = nz.Guarantee(1.0, unit="element")
    for parts in (privacy_curve(workload), [privacy_curve(element), nz.Guarantee(1.0)]):
        with pytest.raises(TypeError, match="Expected mechanisms or Guarantees"):
            compose(parts, delta=1e-5)
    for told in (event, zcdp):
        with pytest.raises(TypeError, match="Expected mechanisms or Guarantees"):
            told(privacy_curve(workload))


def test_an_event_is_told_for_a_record_that_is_replaced() -> None:
    """The RDP accountant counts a Gaussian event once under REPLACE_ONE, whatever change its noise was made for."""
    workload = nz.CATALOGUE["matrix"].example(1.0)
    accountant = dp_accounting.rdp.RdpAccountant(neighboring_relation=dp_accounting.NeighboringRelation.REPLACE_ONE)
    spent = accountant.compose(event(workload)).get_epsilon(1e-5)
    mu = gdp(workload)
    assert mu is not None
    assert gdp_epsilon(mu, 1e-5) < gdp_epsilon(2 * mu, 1e-5) <= spent  # what holds for one change, and for two
    pure = nz.Guarantee(1.0, model="central", relation="add-remove")
    assert event(pure) == event(nz.Guarantee(2.0))
    assert event(nz.Guarantee(1.0, model="central", relation="replace")) == event(nz.Guarantee(1.0))


def test_a_release_without_an_epsilon_beside_another_relation() -> None:
    """2 epsilon is epsilon where that is 0, so the release was taken for converted: its delta was not doubled."""
    swapped = nz.Guarantee(0.0, 1e-3, model="central", relation="add-remove")
    other = nz.Guarantee(1.0, 1e-9, model="central", relation="replace")
    with pytest.raises(ValueError, match="No epsilon meets delta"):  # with a chance of 2e-3 anything may be told
        compose([swapped, other], delta=1.5e-3)
    assert compose([swapped, other], delta=2.1e-3).epsilon > 0.9


def test_a_delta_that_only_a_huge_epsilon_makes_matter() -> None:
    """exp(epsilon) was cut off at exp(700): 1e-320 became 1e-16, where (1 + exp(720)) 1e-320 is 5e-8."""
    for epsilon in (699.0, 701.0, 720.0, 1e6, math.inf):
        own = nz.Guarantee(epsilon, 1e-320, model="central", relation="add-remove")
        pair = own.implied(unit="record", model="central", relation="replace")
        assert math.log(pair.delta) >= min(0.0, epsilon + math.log(1e-320)) - 1e-9
        pure = nz.Guarantee(epsilon, model="central", relation="add-remove")
        assert pure.implied(unit="record", model="central", relation="replace").delta == 0


def test_noise_without_an_epsilon_in_a_concentrated_account(tmp_path: Path) -> None:
    """The same with rho: what states (0, delta) under add-remove costs four times its rho under replace."""

    class Faint(Decoy, EventDeclared):
        def privacy_event(self) -> GaussianEvent:
            return GaussianEvent(0.01)

    faint: Any = Faint(nz.Guarantee(0.0, 0.005, model="central", relation="add-remove"))
    with Ledger(tmp_path / "budget.db") as ledger:
        ledger.open_account("two", 1.0, 1e-6, model="central", relation="replace", composition="zcdp")
        assert ledger.debit("two", faint).rho == Decimal("0.0002")


@pytest.mark.parametrize("composition", ["basic", "zcdp"])
@pytest.mark.parametrize(
    "spent", [True, "0.1", b"1", None, math.nan, -0.1, math.inf, 0.0, 10**400, Decimal("1e999999"), nz.Guarantee(0.0)]
)
def test_debits_that_are_no_amounts(tmp_path: Path, spent: Any, composition: Any) -> None:
    """A concentrated account took texts and truth values; both kinds stopped at huge numbers with other errors."""
    with Ledger(tmp_path / "budget.db") as ledger:
        ledger.open_account("user", 1.0, 1e-6, composition=composition)
        with pytest.raises((TypeError, ValueError)):
            ledger.debit("user", spent)
        assert ledger.balance("user").debits == 0


@pytest.mark.parametrize("composition", ["basic", "zcdp"])
@pytest.mark.parametrize("spent", [Decimal("1e-400"), nz.Guarantee(5e-324), nz.Guarantee(1e-200)])
def test_debits_too_small_for_a_float_cost_something(tmp_path: Path, spent: Any, composition: Any) -> None:
    """rho of an epsilon of 1e-200 is no float: it was a division by zero, or cost nothing for ever."""
    with Ledger(tmp_path / "budget.db") as ledger:
        ledger.open_account("user", 1.0, 1e-6, composition=composition)
        receipt = ledger.debit("user", spent)
        assert receipt.epsilon + receipt.rho > 0


@pytest.mark.parametrize("key", [math.nan, 7, 7.0, b"report-1"])
def test_a_key_that_the_file_would_not_find_again(tmp_path: Path, key: Any) -> None:
    """SQLite keeps NaN as nothing, so one report was debited at each attempt, and 7 was another report's '7'."""
    with Ledger(tmp_path / "budget.db") as ledger:
        ledger.open_account("user", 1.0)
        ledger.debit("user", 0.1, idempotency_key="7")
        with pytest.raises(TypeError, match="Nothing was debited"):
            ledger.debit("user", 0.1, idempotency_key=key)
        assert ledger.balance("user").debits == 1


def test_group_privacy_is_attained() -> None:
    """The twin of 2 epsilon: counts of two cells with Laplace noise for one record that comes or goes.

    A record that moves from one cell to the other changes both, and their ratios multiply: less than 2 epsilon would
    be false.
    """
    epsilon, counts, moved = 0.7, (3.0, 5.0), (2.0, 6.0)
    seen = (3.0, 5.0)
    ratio = sum(epsilon * (abs(y - b) - abs(y - a)) for y, a, b in zip(seen, counts, moved, strict=True))
    stated = nz.Guarantee(epsilon, model="central", relation="add-remove")
    assert stated.implied(unit="record", model="central", relation="replace").epsilon == pytest.approx(ratio)


def _first_version(path: Path) -> None:
    """Write a ledger as the first version of the format did: accounts know their unit only."""
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.executescript(
            """
            CREATE TABLE accounts (key TEXT PRIMARY KEY, unit TEXT NOT NULL, composition TEXT NOT NULL,
                limit_epsilon INTEGER NOT NULL, limit_delta INTEGER NOT NULL, limit_rho INTEGER NOT NULL,
                epsilon INTEGER NOT NULL DEFAULT 0, delta INTEGER NOT NULL DEFAULT 0, rho INTEGER NOT NULL DEFAULT 0,
                debits INTEGER NOT NULL DEFAULT 0,
                CHECK (epsilon <= limit_epsilon AND delta <= limit_delta AND rho <= limit_rho)) WITHOUT ROWID;
            CREATE TABLE debits (number INTEGER PRIMARY KEY, key TEXT NOT NULL REFERENCES accounts (key),
                epsilon INTEGER NOT NULL CHECK (epsilon >= 0), delta INTEGER NOT NULL CHECK (delta >= 0),
                rho INTEGER NOT NULL CHECK (rho >= 0), note TEXT NOT NULL, idempotency_key TEXT, seconds REAL NOT NULL);
            CREATE UNIQUE INDEX once ON debits (key, idempotency_key) WHERE idempotency_key IS NOT NULL;
            CREATE INDEX of_account ON debits (key);
            INSERT INTO accounts VALUES ('used', 'record', 'basic', 1000000000000, 0, 0, 400000000000, 0, 0, 1);
            INSERT INTO accounts VALUES ('new', 'record', 'basic', 1000000000000, 0, 0, 0, 0, 0, 0);
            INSERT INTO debits VALUES (1, 'used', 400000000000, 0, 0, 'monday', 'report-1', 1.0);
            PRAGMA application_id = 1314540615;
            PRAGMA user_version = 1;
            """
        )


def test_a_file_of_the_first_version_loses_nothing_and_is_not_taken_for_local(tmp_path: Path) -> None:
    """Its debits may have been of any kind: they stay, and nothing is added until somebody says what they were."""
    path = tmp_path / "budget.db"
    _first_version(path)
    with Ledger(path, create=False) as ledger:
        ledger.verify()
        assert ledger.balance("used").epsilon == Decimal("0.4")
        assert [r.note for r in ledger.history("used")] == ["monday"]
        for name in ("used", "new"):
            with pytest.raises(LedgerError, match="wrote down no model and no relation"):
                ledger.debit(name, 0.1)
        with pytest.raises(LedgerError, match="Say model= and relation="):
            ledger.open_account("used", 1.0)
        with pytest.raises(ValueError, match="exists with other terms"):
            ledger.open_account("used", 2.0, model="local", relation="any-pair")
        ledger.open_account("used", 1.0, model="local", relation="any-pair")
        ledger.open_account("new", 1.0)
        assert ledger.debit("used", 0.4, idempotency_key="report-1").replayed
        assert ledger.debit("used", nz.Duchi(epsilon=0.6)).number == 2
        with pytest.raises(BudgetExceeded):
            ledger.debit("used", 0.1)
        ledger.verify()
    with Ledger(path) as again:
        assert again.balance("used").relation == "any-pair"


@pytest.mark.long
@pytest.mark.parametrize("statement", ["SELECT os_exit()", "SELECT nothing FROM nowhere"])
def test_a_process_that_dies_while_it_converts_a_file(tmp_path: Path, statement: str) -> None:
    """The file is then as it was: the first version, with every debit."""
    path = tmp_path / "budget.db"
    _first_version(path)
    script = f"""
import os, sys
from noisette.accounting import ledger
connect = ledger.sqlite3.connect
def dying(*some, **named):
    connection = connect(*some, **named)
    connection.create_function("os_exit", 0, lambda: os._exit(9))
    return connection
ledger.sqlite3.connect = dying
ledger._FROM_FIRST_VERSION = (*ledger._FROM_FIRST_VERSION[:2], "{statement}", *ledger._FROM_FIRST_VERSION[2:])
ledger.Ledger(sys.argv[1])
"""
    ended = subprocess.run([sys.executable, "-c", script, str(path)], capture_output=True, check=False)
    assert ended.returncode != 0
    with contextlib.closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (1,)
        assert len(connection.execute("SELECT * FROM accounts WHERE key = 'used'").fetchone()) == 10
        assert connection.execute("SELECT note FROM debits").fetchall() == [("monday",)]
    with Ledger(path) as ledger:
        ledger.verify()
        assert ledger.balance("used").epsilon == Decimal("0.4")


def test_a_file_of_a_later_version_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "budget.db"
    Ledger(path).close()
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA user_version = 3")
    with pytest.raises(LedgerError, match="written by a newer noisette"):
        Ledger(path)
