"""What a planner page holds, without a browser: where it starts, what it compares, and what it leaves out."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest
from scipy import stats

import noisette as nz
from noisette.planner import page, survey_page
from noisette.planner.tables import others


def _data(text: str) -> dict[str, Any]:
    """Return what a page holds, as its script reads it."""
    found: dict[str, Any] = json.loads(text.partition(' id="data">')[2].partition("</script>")[0])
    return found


@pytest.mark.slow
def test_what_a_page_starts_with_needs_no_browser() -> None:
    seen: list[float] = []
    named: Any = {"mechanisms": ["duchi", "laplace", "piecewise", "duchi"], "on_progress": seen.append}
    found = _data(page(users=700, epsilon=0.5, dims=6, report=2, domain=nz.Interval(2, 7), **named))
    assert seen == [0, pytest.approx(1 / 3), pytest.approx(2 / 3)]
    assert found["start"] == {
        "users": 700, "dims": 6, "report": 2, "epsilon": 0.5, "population": "worst", "target": 0.1
    }  # fmt: skip
    assert found["domain"] == {"low": 2, "high": 7}
    assert found["limits"]["epsilon"][0] <= 0.5 < found["limits"]["epsilon"][1]
    assert found["limits"]["dims"][0] == 1
    assert found["others"] == []
    assert [law["name"] for law in found["laws"]] == ["duchi", "laplace", "piecewise"]
    assert [one["name"] for one in found["populations"]] == ["worst", "uniform", "gaussian", "poisson", "beta"]


@pytest.mark.parametrize(
    ("given", "label", "option"),
    [
        ({"values": [3.0, 5.0, 5.0]}, "Given: your values", "--values ..."),
        ({"distribution": "gaussian:0.5,0.1"}, "Given: gaussian:0.5,0.1", "--distribution gaussian:0.5,0.1"),
    ],
)
def test_values_that_are_given_are_on_the_page(given: dict[str, Any], label: str, option: str) -> None:
    found = _data(
        page(users=700, epsilon=1.0, domain=nz.Interval(2, 6), mechanisms=["duchi"], target_mse=0.01, **given)
    )
    own = found["populations"][1]
    assert (own["name"], own["label"], own["option"]) == ("own", label, option)
    assert found["start"]["population"] == "own"
    assert found["start"]["target"] == pytest.approx(0.1 * stats.norm.isf(0.025), rel=1e-9)
    if "values" in given:  # on [-1, 1] these are -0.5, 0.5 and 0.5
        assert own["fixed"] == pytest.approx([1 / 6, 1 / 36, 1 / 4])


def test_a_page_of_all_mechanisms_names_those_that_it_leaves_out() -> None:
    found = others({"duchi", "laplace"}, dims=1, delta=1e-6)
    assert not {"duchi", "laplace"} & set(found)
    assert {"gaussian", "piecewise"} <= set(found)
    assert "gaussian" not in others((), dims=1, delta=0.0)
    assert "duchi-box" in others((), dims=3, delta=0.0)


def test_a_page_of_a_survey_tells_how_far_it_is() -> None:
    seen: list[float] = []
    survey = nz.Survey.from_dict({"questions": [{"name": "by", "categories": ["car", "bus"]}], "epsilon": 1.0})
    survey_page(survey, 1000, on_progress=seen.append)
    assert seen == pytest.approx([place / len(seen) for place in range(len(seen))])
    assert len(seen) > 2


def test_what_cannot_be_on_a_page_is_left_out_unless_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["noisette.planner.page"], "compared", lambda: ["gaussian", "duchi"])
    found = _data(page(users=700, epsilon=1.0, delta=1e-6))
    assert [law["name"] for law in found["laws"]] == ["duchi"]
    assert "gaussian" in found["others"]
    with pytest.raises(ValueError, match="'gaussian' cannot be on the page"):
        page(users=700, epsilon=1.0, delta=1e-6, mechanisms=["duchi", "gaussian"])
