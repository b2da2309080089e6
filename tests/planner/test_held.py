"""What planner pages hold, digit by digit: laws, populations, plans of a survey, and where the sliders begin.

Other tests hold pages to `plan` in a browser, or look at one part; here nothing may move.
python -m tests.planner.test_held writes anew.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tests.held import Held

import noisette as nz
from noisette.planner import page, survey_page, tables

HELD = Held(__file__)
SURVEY = {
    "questions": [
        {"name": "age", "range": [18, 99], "want": "distribution"},
        {"name": "born", "range": ["1950-01-01", "2010-12-31"]},
        {"name": "diet", "categories": ["none", "vegan", "halal"]},
        {"name": "smokes", "categories": ["no", "yes"], "optional": True},
    ],
    "epsilon": 3.0,
    "groups": {"region": ["north", "south"]},
}


def data_of(text: str) -> Any:
    """Return what a page holds, as its script reads it."""
    return json.loads(text.partition(' id="data">')[2].partition("</script>")[0])


def made(**given: Any) -> Any:
    return data_of(page(**{"users": 500, "epsilon": 1.0, "mechanisms": ["duchi"]} | given))


def part(**given: Any) -> Any:
    """Leave out what all pages hold: the laws, and what else the true values may be like."""
    found = made(**given)
    return found | {"laws": [law["name"] for law in found["laws"]], "populations": found["populations"][:2]}


def told(**given: Any) -> Any:
    seen: list[float] = []
    return [data_of(survey_page(nz.Survey.from_dict(SURVEY), on_progress=seen.append, **given)), seen]


STORIES: dict[str, Callable[[], Any]] = {
    "page": made,
    "page beyond the sliders": lambda: part(epsilon=0.02, dims=12_000, report=7, mechanisms=["duchi", "laplace"]),
    "page of values": lambda: part(values=[3.0, 5.0, 5.5], probs=[0.2, 0.5, 0.3], domain=nz.Interval(2, 6)),
    "page of columns": lambda: part(values=[[0.5, -1.0], [0.25, 0.0]], dims=2, target_mse=0.004),
    "page of a distribution": lambda: part(distribution="beta:2,3", domain=nz.Interval(0, 4)),
    "page of a wave": lambda: made(mechanisms=["square-wave"])["laws"],
    "page of vectors": lambda: made(mechanisms=["duchi-box"], dims=3)["laws"],
    "page of a survey": lambda: told(users=4000),
    "page of few people": lambda: told(users=11, command="noisette plan"),
    "law from a low budget": lambda: tables.law("hybrid", low=0.001, high=2.0, dims=40, most=40),
    "law on a range": lambda: tables.law("piecewise", low=0.5, high=20.0, dims=1, most=3, domain=nz.Interval(3, 4)),
    "others": lambda: [tables.others(["laplace"], dims=dims, delta=delta) for dims in (1, 3) for delta in (0.0, 1e-6)],
}


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.slow] if "survey" in name or "few" in name else []) for name in STORIES],
)
def test_digits_are_the_ones_that_were_kept(name: str) -> None:
    HELD.check(name, STORIES[name]())


def test_another_digit_would_show() -> None:
    """The twin: a page whose slider begins elsewhere is another one."""
    with pytest.raises(AssertionError, match=r"page/limits/epsilon/0: 0.06, and 0.05 was kept"):
        HELD.check("page", HELD.kept["page"] | {"limits": {"epsilon": [0.06, 20.0], "dims": [1, 10_000]}})


def test_coefficients_have_fourteen_places() -> None:
    """More do not count, and would be most of a page."""
    panel = tables.Panel(0.5, 2.0, np.full((3, 2), 1 / 3), 1e-9)
    shown = tables.LawTable("laplace", nz.Laplace(1.0).guarantee, (panel,)).to_dict()["panels"][0]["rows"][0][0]
    assert repr(shown) == "0.33333333333333"


if __name__ == "__main__":
    HELD.write({name: story() for name, story in STORIES.items()})
