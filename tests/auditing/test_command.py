"""`noisette audit`: what it prints, what it writes, and how it fails."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import noisette as nz
from noisette.auditing import claims
from noisette.auditing.claims import examine, form_of, forms
from noisette.cli import verbs

every = claims.examine_all  # the command itself
ROOT = Path(__file__).resolve().parent.parent.parent


def run(*arguments: Any) -> Result:
    return CliRunner().invoke(verbs, ["audit", *map(str, arguments)])


def answer(*arguments: Any, status: int = 0) -> Any:
    result = run(*arguments, "--json")
    assert result.exit_code == status, result.output
    return json.loads(result.stdout)


def test_a_sound_mechanism_holds() -> None:
    found = answer("duchi", "--epsilon", 1, "--samples", 20_000)
    assert {"claimed", "exact_epsilon", "lower_bound", "verdict"} <= set(found)
    assert (found["claimed"], found["verdict"]) == (1.0, "holds")
    assert found["exact_epsilon"] == pytest.approx(1.0, rel=1e-9)
    assert 0.9 < found["lower_bound"] < 1


@pytest.mark.slow
def test_a_published_form_is_violated() -> None:
    found = answer("duchi-box", "-e", 0.5, "--as-published", "--param", "dims=6", "--samples", 100_000, status=1)
    assert (found["claimed"], found["verdict"]) == (0.5, "violated")
    assert round(found["exact_epsilon"], 3) == 0.974
    assert 0.5 < found["lower_bound"] < 0.975
    shown = run("duchi-box", "-e", 0.5, "--as-published", "--samples", 2000)
    assert "violated" in shown.stdout
    assert shown.exit_code == 1


@pytest.mark.slow
@pytest.mark.parametrize(("form", "status"), [("", 1), ("as published", 0)])
def test_the_table_fails_if_a_method_is_violated_in_its_own_form(
    form: str, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    sound = examine(nz.Duchi(1.0), samples=2000, rng=3)
    broken = replace(sound, form=form, verdict="violated")
    monkeypatch.setattr(claims, "examine_all", lambda *given, **more: [sound, broken])
    assert run("--all").exit_code == run("--all", "--json").exit_code == status


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "mechanism"),
    [
        (("grr", "--param", "size=7"), nz.GeneralizedRandomizedResponse(1.0, nz.Categorical(7))),
        (("laplace", "--param", "low=0", "--param", "high=9"), nz.Laplace(1.0, domain=nz.Interval(0, 9))),
        (("privunit", "--param", "dims=9"), nz.PrivUnit(1.0, 9)),
        (("gaussian", "--param", "delta=1e-4"), nz.Gaussian(1.0, 1e-4)),
        (
            ("sampled", "--param", "inner=duchi", "--param", "dims=5", "--param", "report=2"),
            nz.Sampled("duchi", 1.0, 5, report=2),
        ),
        (("oue", "--param", 'domain={"kind": "categorical", "size": 3}'), nz.UnaryEncoding(1.0, nz.Categorical(3))),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_options_reach_the_mechanism_and_its_domain(arguments: tuple[str, ...], mechanism: Any) -> None:
    found = answer(*arguments, "-e", 1, "--samples", 2000, "--seed", 3)
    assert found["seed"] == 3
    del found["seed"]
    assert found == json.loads(json.dumps(examine(mechanism, samples=2000, rng=3).spec()))


@pytest.mark.slow
def test_a_seed_repeats_the_answer() -> None:
    first, second, other = (answer("piecewise", "-e", 1, "--samples", 2000, "--seed", seed) for seed in (1, 1, 2))
    assert first == second
    assert first["lower_bound"] != other["lower_bound"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "Give the name of one mechanism, or --all."),
        (("duchi", "--all"), "Give the name of one mechanism, or --all."),
        (("duchi",), "noisette audit duchi --epsilon 1"),
        (("ducci", "-e", 1), "Did you mean duchi"),
        (("duchi", "-e", -1), "Expected epsilon=-1.0 > 0"),
        (("duchi", "-e", 1, "--as-published"), "leave --as-published out"),
        (("duchi", "-e", 1, "--param", "dims"), "Write e.g. --param dims=10"),
        (
            ("duchi", "-e", 1, "--param", "dims=3"),
            "duchi has no option 'dims'. Expected --param K=V with K one of high",
        ),
        (("duchi", "-e", 1, "--param", "kind=box"), "duchi has no option 'kind'"),
        (("duchi", "-e", 1, "--samples", 3), "samples=3"),
        (("duchi", "-e", 1, "--confidence", 2), "confidence=2.0 in (0, 1)"),
        (("duchi", "-e", 1, "--page", "x.md"), "add --all"),
        (("--all", "--as-published"), "leave --as-published and --param out"),
        (("--all", "-e", -1), "Expected epsilon=-1.0 > 0"),
        (("--all", "--page", "nowhere/x.md"), "The folder nowhere does not exist"),
    ],
)
def test_what_is_wrong_is_said_without_a_traceback(arguments: tuple[Any, ...], message: str) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert message in " ".join(result.stderr.split())


@pytest.fixture(scope="module")
def audited(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Any], Any]:
    """The page of one audit of all, what was found, and what the command answered: it takes long, and is made once."""
    target = tmp_path_factory.mktemp("claims") / "claims.md"
    found: list[Any] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(claims, "examine_all", lambda *given, **more: found.extend(every(*given, **more)) or found)
        return target, found, answer("--all", "--samples", 1000, "--page", target)


@pytest.mark.long
def test_the_table_of_claims(audited: tuple[Path, list[Any], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    target, found, answered = audited
    rows = answered["findings"]
    assert [(row["method"], row["form"]) for row in rows] == [(m.name, form_of(m)) for m in forms(1.0)]
    assert all(row["as_published"] == (row["form"] == "as published") for row in rows)
    false = [(m.name, form_of(m)) for m in forms(1.0) if not m.guarantee.claim_holds]
    assert ("duchi-box", "as published") in false
    assert ("tensor-gaussian", "by classical") in false
    assert [(row["method"], row["form"]) for row in rows if row["verdict"] == "violated"] == false
    text = target.read_text(encoding="utf-8")
    assert all(f"[{row['method']}](mechanisms/{row['method']}.md)" in text for row in rows)
    duchi = "[Duchi 2018](bibliography.md#duchi2018minimax)"
    start = f"| [duchi-box](mechanisms/duchi-box.md) as published | {duchi} | local |"
    assert f"{start} 1 | {math.log1p(math.e):.6g} |" in text
    assert "| central, add-remove | (1, 1e-06) |" in text
    assert all(row["reading"] for row in rows if row["verdict"] == "violated"), (
        "each that fails has its kindest reading"
    )
    for conceded in (
        "concede T d epsilon",
        "up to 1 - beta",
        "leaves r open",
        "stated for epsilon below 1",
        "Theorem 4",
    ):
        assert conceded in text
    classical = [row["verdict"] for row in rows if row["form"] == "by classical"]
    assert classical == ["holds", "violated"], "where it is published, and beyond"
    assert list(target.parent.iterdir()) == [target]
    monkeypatch.setattr(claims, "examine_all", lambda *given, **more: found)
    shown = run("--all", "--samples", 1000).stdout
    assert max(map(len, shown.splitlines())) <= 80
    assert all(row["method"] in shown for row in rows)


@pytest.mark.long
def test_the_page_in_the_documentation_is_of_this_catalogue(audited: tuple[Path, list[Any], Any]) -> None:
    """`make docs` writes it anew; until then it must at least name every form, its claim and what holds exactly."""
    committed = (ROOT / "docs" / "claims.md").read_text(encoding="utf-8").splitlines()
    rows = [_without_the_bound(line) for line in committed if line.startswith("| [")]
    fresh = audited[0].read_text(encoding="utf-8").splitlines()
    assert rows == [_without_the_bound(line) for line in fresh if line.startswith("| [")]
    rest = [line for line in committed if not line.startswith("| [") and "The auditor saw" not in line]
    assert rest == [line for line in fresh if not line.startswith("| [") and "The auditor saw" not in line]


def _without_the_bound(line: str) -> str:
    """Leave out what a black box found, which more reports make larger."""
    return re.sub(r"\| [\d.]+ \| ([^|]+) \|$", r"| \1 |", line)
