"""Several choices asked together with a choice, a number, or other several choices."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations
from typing import Any

import numpy as np
import pytest

import noisette as nz

DIETS, DEVICES = ["none", "vegan", "halal"], ["phone", "tablet", "watch"]


def people(size: int, seed: int = 3) -> dict[str, Any]:
    """Return answers that depend on each other."""
    rng = np.random.default_rng(seed)
    diet = rng.choice(3, size, p=[0.5, 0.3, 0.2])
    chance = np.asarray([[0.6, 0.2, 0.1], [0.3, 0.3, 0.3], [0.1, 0.1, 0.6]])[diet]
    chosen = rng.random((size, 3)) < chance
    chosen[chosen.all(axis=1), 2] = False  # at most two
    devices = [[name for name, own in zip(DEVICES, row, strict=True) if own] for row in chosen]
    hours = np.clip(20 + 30 * chosen[:, 0] + rng.normal(0, 5, size), 0, 100)
    return {"diet": [DIETS[code] for code in diet], "devices": devices, "hours": hours, "chosen": chosen, "code": diet}


def survey(*names: str, epsilon: float = 2.0) -> nz.Survey:
    """Return a survey that asks two questions together."""
    asked = {
        "diet": nz.Choice("diet", DIETS),
        "devices": nz.Choices("devices", DEVICES, most=2),
        "hours": nz.Number("hours", 0, 100),
        "rooms": nz.Choices("rooms", ["hall", "attic"]),
    }
    return nz.Survey([asked[name] for name in names], epsilon=epsilon, joint=[names])


@pytest.mark.long
def test_the_crosstab_of_a_choice_and_several() -> None:
    """Every number is within five standard errors of the truth: false alarm below 1e-6 each."""
    told = people(20_000)
    own = survey("diet", "devices")
    results = own.estimate(own.privatize(told, rng=7))
    truth = np.stack([told["chosen"][told["code"] == code].sum(axis=0) for code in range(3)]) / 20_000
    table, error = results.crosstab("diet", "devices"), results.crosstab("diet", "devices", "std_error")
    assert [list(table.index), list(table.columns)] == [DIETS, DEVICES]
    assert np.all(np.abs(table.to_numpy() - truth) < 5 * error.to_numpy())
    assert np.abs(table.to_numpy() - truth[::-1]).max() > 5 * error.to_numpy().max()  # the twin: another order
    diet = np.bincount(told["code"]) / 20_000
    assert np.all(np.abs(results["diet"].shares - diet) < 5 * results["diet"].std_error)
    assert np.all(np.abs(results["devices"].shares - truth.sum(axis=0)) < 5 * results["devices"].std_error)
    number = results["devices chosen"].estimate
    assert abs(number.value[0] - truth.sum()) < 5 * number.std_error[0]
    other = survey("devices", "diet")
    turned = other.estimate(other.privatize(told, rng=7)).crosstab("devices", "diet")
    assert np.all(np.abs(turned.to_numpy().T - truth) < 5 * error.to_numpy())


def test_the_mean_of_a_number_among_those_who_chose() -> None:
    """The mean where each option was chosen, and that of all."""
    told = people(20_000)
    own = survey("hours", "devices")
    results = own.estimate(own.privatize(told, rng=5))
    found = results.joint("hours", "devices").estimate
    truth = [told["hours"][told["chosen"][:, option]].mean() for option in range(3)]
    assert np.all(np.abs(found.value - truth) < 5 * found.std_error)
    assert np.all(found.std_error < 3)
    assert abs(results["hours"].mean - told["hours"].mean()) < 5 * results["hours"].std_error
    with pytest.raises(ValueError, match=r"results\.joint"):
        results.crosstab("hours", "devices")


def test_two_questions_of_several_choices() -> None:
    """Pairs of options, of which a person may have several."""
    told = people(20_000)
    told["rooms"] = ["hall;attic" if row[0] else "attic" for row in told["chosen"]]
    own = survey("devices", "rooms")
    results = own.estimate(own.privatize(told, rng=5))
    shares = told["chosen"].mean(axis=0)
    truth = np.asarray([[shares[0], shares[0]], [(told["chosen"][:, 0] & told["chosen"][:, 1]).mean(), shares[1]]])
    table, error = (results.crosstab("devices", "rooms", what).to_numpy()[:2] for what in ("share", "std_error"))
    assert np.all(np.abs(table - truth) < 5 * error)
    assert np.all(np.abs(results["rooms"].shares - [shares[0], 1]) < 5 * results["rooms"].std_error)
    assert abs(results["rooms"].mean - shares[0] - 1) < 5 * results["rooms chosen"].std_error
    assert abs(results["devices"].mean - shares.sum()) < 5 * results["devices chosen"].std_error


def test_how_two_options_vary_together_by_enumeration() -> None:
    """The covariance of what a report says of two options, from the mass of every report."""
    m = nz.PrivSet(epsilon=0.5, domain=nz.Selection(20, 2))
    assert m.length > 1
    reports = np.asarray(list(combinations(range(m.items), m.length)))
    has = (reports[:, :, None] == np.arange(2)).any(axis=1)
    assert m.covariances is not None
    for row, stated in zip(([0, 5], [5, 6]), m.covariances, strict=True):
        mass = np.exp(m.log_prob(reports, np.asarray(row)))
        assert mass.sum() == pytest.approx(1)
        score = (has - m.p_other) / (m.p_own - m.p_other)
        seen = mass @ (score[:, 0] * score[:, 1]) - (mass @ score[:, 0]) * (mass @ score[:, 1])
        assert seen == pytest.approx(stated, rel=1e-9)
    assert m.covariances[0] != pytest.approx(m.covariances[1], rel=1e-3)
    assert nz.DrawnOption(epsilon=1.0, domain=nz.Selection(4)).covariances is None
    assert isinstance(m._joint_law[0], Fraction)


def test_the_plan_and_a_file(tmp_path: Any) -> None:
    """It is predicted, written and read."""
    own = survey("diet", "devices", epsilon=4.0)
    plan = own.plan(users=20_000).table().set_index("quantity")["std_error"]
    told = people(20_000)
    results = own.estimate(own.privatize(told, rng=1))
    seen = results.joint("diet", "devices").estimate.std_error
    assert 0.75 < np.sqrt(np.mean(seen**2)) / plan.loc["none, phone"] < 1.33  # planned for even shares
    assert plan.loc["mean number"] < 0.1
    own.save(tmp_path / "survey.yaml")
    assert nz.Survey.read(tmp_path / "survey.yaml") == own
    assert nz.Survey.from_spec(own.spec()) == own
    assert own.guarantee.epsilon == 4.0


def test_bad_pairs() -> None:
    """Too many pairs, and a mechanism whose sums have no known error."""
    many = [str(number) for number in range(200)]
    with pytest.raises(ValueError, match="at most 16,384 pairs"):
        nz.Survey([nz.Choice("a", many), nz.Choices("b", many, most=2)], epsilon=1.0, joint=[("a", "b")])
    with pytest.raises(ValueError, match="another mechanism than 'drawn-option'"):
        nz.Survey(
            [nz.Choice("a", many[:2]), nz.Choices("b", many[:3])],
            epsilon=1.0,
            joint=[("a", "b")],
            mechanism="drawn-option",
        )


@pytest.mark.long
def test_intervals_hold() -> None:
    """Over 75 collections each 95 % interval covers in 0.95 +- 0.1: four standard errors."""
    rng, own = np.random.default_rng(4), survey("diet", "devices")
    told = people(200_000, 9)
    joint = np.stack([told["chosen"][told["code"] == code].sum(axis=0) for code in range(3)]) / 200_000
    truth = np.concatenate([np.bincount(told["code"]) / 200_000, joint.sum(axis=0), joint.ravel(), [joint.sum()]])
    codes = {"diet": told["code"], "devices": own.question("devices").domain.encode(told["devices"])}
    held = np.zeros(truth.size)
    for _ in range(75):
        rows = rng.integers(0, 200_000, 4000)
        sums = own.layout.tally(own.privatize_coded({name: part[rows] for name, part in codes.items()}, rng=rng))
        low, high = (
            np.concatenate(ends)
            for ends in zip(*(one.interval(0.95) for one in sums.by_question().values()), strict=True)
        )
        held += (low <= truth) & (truth <= high)
    assert np.all(np.abs(held / 75 - 0.95) < 0.1)
