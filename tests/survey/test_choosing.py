"""How a survey chooses mechanisms: budgets by exact fractions, curves, populations and blur by sums, ends of lists."""

from __future__ import annotations

from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy.stats import beta

import noisette as nz
from noisette.domains import Box, Categorical, Interval, Selection
from noisette.enhancement.channel import chances_at
from noisette.survey import choosing
from noisette.survey.choosing import Allowance, _curve, _fewer, _populations, _risk, _selecting, _wanted, blur, fairest
from noisette.survey.sums import BINS

PLACES = np.asarray([(place + 0.5) / 64 for place in range(64)])


def test_shares_of_a_budget_never_add_up_to_more() -> None:
    for epsilon, delta in ((1.0, 1e-6), (0.1, 0.0), (7.3, 1e-9)):
        budget = Allowance(epsilon, delta, 12)
        for own, of in ((1, 3), (2, 7), (5, 5), (3, 10)):
            part = budget.share(own, of)
            for name in ("epsilon", "delta"):
                exact = Fraction(getattr(budget, name)) * Fraction(own, of)
                found = Fraction(getattr(part, name))
                assert exact * (1 - Fraction(1, 2**50)) <= found <= exact
            assert part.users == 12
            assert part.spent == {"epsilon": part.epsilon, "delta": part.delta}


def test_populations_are_beta_laws_at_the_places() -> None:
    rows = _populations()
    pairs = [(mean, size) for mean in (0.03, 0.1, 0.2, 0.35, 0.5) for size in (2.0, 8.0, 30.0)]
    for row, (mean, size) in zip(rows, pairs, strict=True):
        density = beta(mean * size, (1 - mean) * size).pdf(PLACES)
        assert row == pytest.approx(density / density.sum(), rel=1e-9)


def candidate(mechanism: Any, **told: Any) -> Any:
    return SimpleNamespace(build=lambda: mechanism, **told)


def test_curves_are_variances_in_squared_ranges() -> None:
    wide = nz.Piecewise(epsilon=1.5, domain=Interval(-3.0, 7.0))
    curve, people = _curve(candidate(wide))
    assert people == 1.0
    assert curve == pytest.approx([float(wide.moments(-3.0 + 10.0 * x).variance) / 100.0 for x in PLACES])
    shares = SimpleNamespace(domain=Categorical(4))
    assert _curve(candidate(shares, mse=0.5, reports=3)) is None
    box = SimpleNamespace(domain=Box(3))
    curve, people = _curve(candidate(box, mse=0.5, reports=3))
    assert (curve.tolist(), people) == ([1.5] * 64, 1.0)


def test_a_sampled_entry_speaks_for_as_many_people_as_there_are_entries() -> None:
    sampled: Any = choosing.plan(
        users=1000, domain=Interval(-1, 1), dims=6, report=2, epsilon=1.0, delta=0.0, mechanisms=["piecewise"]
    )
    mechanism = sampled.candidates[0].build()
    curve, people = _curve(candidate(mechanism))
    assert people == 3.0
    inner = mechanism.inner_mechanism
    assert curve == pytest.approx([float(inner.moments(2 * x - 1).variance) / 4 for x in PLACES])


def test_the_fairest_is_judged_by_ratios(monkeypatch: pytest.MonkeyPatch) -> None:
    """One is 1.6 times the best where errors are small, the other 1.5 times where they are large."""
    people = _populations()
    low = people[:, :12].sum(axis=1) > 0.5
    small, large = 0.01, 5.0
    base = np.where(PLACES < 0.19, small, large)
    first, second = np.where(PLACES < 0.19, 3.0 * base, base), np.where(PLACES < 0.19, base, 1.5 * base)
    curves = {"first": (first, 1.0), "second": (second, 1.0), "third": (4.0 * base, 1.0)}
    assert low.any()
    monkeypatch.setattr(choosing, "_curve", lambda one: curves[one])
    chosen: Any = fairest
    errors = {name: people @ curve for name, (curve, _) in curves.items()}
    least = np.min(list(errors.values()), axis=0)
    worst = {name: float(np.max(error / least)) for name, error in errors.items()}
    assert chosen(list(curves)) == min(worst, key=worst.__getitem__) == "second"
    # people who report one entry in five: five times the error, and four times how much people differ
    curves["first"] = (first / 50, 5.0)
    spread = people @ PLACES**2 - (people @ PLACES) ** 2
    errors["first"] = 5.0 * (people @ first / 50) + 4.0 * spread
    least = np.min(list(errors.values()), axis=0)
    worst = {name: float(np.max(error / least)) for name, error in errors.items()}
    assert chosen(list(curves)) == min(worst, key=worst.__getitem__)
    assert chosen(["third", "second"]) == "second"
    assert chosen(["third"]) == "third"


@pytest.mark.slow
@pytest.mark.parametrize("ends", [(-1.0, 1.0), (2.0, 10.0)])
def test_blur_is_the_sum_of_inverse_informations(ends: tuple[float, float]) -> None:
    mechanism = nz.Piecewise(epsilon=2.0, domain=Interval(*ends))
    chances = chances_at(mechanism, ends[0] + PLACES * (ends[1] - ends[0]), bins=BINS)
    total = 0.0
    for wave in (1, 2, 3, 4):
        information = 0.0
        for row in chances:
            even = sum(row) / 64
            slope = sum(chance * np.cos(np.pi * wave * x) for chance, x in zip(row, PLACES, strict=True)) / 64
            information += slope**2 / even if even > 0 else 0.0
        total += 1 / information
    assert blur(mechanism) == pytest.approx(total, rel=1e-9)


def test_numbers_of_entries_below_one() -> None:
    assert [_fewer(most) for most in (0, 1, 2, 3, 4, 5, 8, 9)] == [
        *([], [], [1], [1, 2], [1, 2], [1, 2, 4], [1, 2, 4], [1, 2, 4, 8])
    ]


def test_risk_is_a_mean_over_questions_in_squared_signals() -> None:
    questions = [
        SimpleNamespace(quantities=("a",), signals=np.asarray([2.0])),
        SimpleNamespace(quantities=("b", "c"), signals=np.asarray([1.0, 4.0])),
    ]
    together: Any = SimpleNamespace(
        sections=[SimpleNamespace(questions=questions)], predict=lambda users: np.asarray([1.0, 2.0, 3.0]) / users
    )
    wanted = (1 / 4 + ((2 / 1) ** 2 + (3 / 4) ** 2) / 2) / 2
    assert _risk(together, 1) == pytest.approx(wanted)
    assert _risk(together, 10) == pytest.approx(wanted / 100)


def test_one_mechanism_for_what_is_asked_together() -> None:
    item: Any = SimpleNamespace(asked=("a", "b"))
    assert _wanted(item, "auto") == "auto"
    assert _wanted(item, {"a": "grr", "b": "grr", "c": "oue"}) == "grr"
    with pytest.raises(ValueError, match="one mechanism for a, b"):
        _wanted(item, {"a": "grr", "b": "oue"})


@pytest.mark.parametrize(
    ("spreads", "sizes", "taken"),
    [
        ([1.0, 1.1], [65, 64], [1]),  # nearly as good, and short enough
        ([1.0, 1.1000001], [65, 64], [0, 1]),  # none is
        ([1.0, 1.1], [64, 65], [0]),
        ([1.0, 1.05, 1.1], [200, 64, 3], [1, 2]),
    ],
)
def test_a_shorter_report_is_taken_if_it_is_nearly_best(
    monkeypatch: pytest.MonkeyPatch, spreads: list[float], sizes: list[int], taken: list[int]
) -> None:
    built = [
        SimpleNamespace(spread=(spread, 9.0), report_shape=(size,)) for spread, size in zip(spreads, sizes, strict=True)
    ]
    names = [str(place) for place in range(len(built))]

    def build(name: str, *_: Any) -> Any:
        if name == "none":
            raise ValueError("too small a budget")
        return built[int(name)]

    monkeypatch.setattr(choosing, "_made_for", lambda *_: ["none", *names])
    monkeypatch.setattr(choosing, "_built", build)
    monkeypatch.setattr(choosing, "_best", lambda found, _: found)
    assert _selecting(Selection(9, 2), Allowance(1.0, 0.0, 9)) == [built[place] for place in taken]


@pytest.mark.slow
def test_sections_share_the_budget_or_have_all_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the two the one of less risk is taken, whichever that is."""
    survey = nz.Survey([nz.Number("x", 0, 1), nz.Number("y", 0, 1), nz.Vector("v", 3, -1, 1)], epsilon=2.0)
    items = [item for one in survey.sections for item in one.items]
    assert [item.weight for item in items] == [1, 1, 1]
    budgets = list[float]()
    usual = choosing._section

    def noted(own: Any, share: Allowance, *rest: Any) -> Any:
        budgets.append(share.epsilon)
        return usual(own, share, *rest)

    monkeypatch.setattr(choosing, "_section", noted)
    for risks, drawn in (([1.0, 2.0], ()), ([2.0, 1.0], (2, 1))):
        left = list(risks)
        monkeypatch.setattr(choosing, "_risk", lambda made, users, left=left: left.pop(0) if users == 1000 else None)
        budgets.clear()
        made = choosing.choose(items, Allowance(2.0, 0.0, 1000), "auto", None)
        assert budgets == [pytest.approx(4 / 3), pytest.approx(2 / 3), 2.0, 2.0]
        assert made.draw == drawn
    with pytest.raises(ValueError, match="a mechanism for each of x, y, v"):
        choosing.choose(items, Allowance(2.0, 0.0, 1000), {"x": "laplace"}, None)
