"""The planner page in a real browser: its numbers are Python's, it answers to its controls, and it fits a phone."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from playwright.sync_api import Browser, Page, expect
from tests.contrast import CONTRAST

import noisette as nz
from noisette.cli import verbs
from noisette.planner import page as make
from noisette.prediction import plan

DIMS = 20
VALUES = [-4.5, -3.0, -2.5, 2.0, 4.5]  # on a range from -5 to 5
NEAR = ("laplace", "staircase", "piecewise", "hybrid", "square-wave")  # nine digits; others say how many
TENS = nz.Interval(-5, 5)
WHOLE = ("adaptive-duchi", "duchi-box", "fast-projunit", "privunit", "privunit-g")

PLAN = """states => states.map(state => {
  const mechanisms = noisette.data.laws.map(law => law.name);
  const { candidates, best, breakEven } = noisette.planner.plan({ ...state, mechanisms });
  return {
    candidates: candidates.map(found => {
      const { mechanism, report, mse, bias, std, unbiased } = found;
      return { mechanism, report, mse, bias, std, unbiased };
    }),
    best: best.mechanism, breakEven,
  };
})"""
HALF = 1.959963984540054  # standard errors in half of a 95 % interval


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of one number on [-1, 1], as the command writes it."""
    path = tmp_path_factory.mktemp("planner") / "one.html"
    result = CliRunner().invoke(verbs, ["plan", "--users", "20000", "--epsilon", "1", "--html", str(path)])
    assert result.exit_code == 0, result.output
    assert f"Wrote {path}" in result.stderr
    return path


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of some numbers from -5 to 5, of which a sample is known."""
    path = tmp_path_factory.mktemp("planner") / "many.html"
    text = make(users=5000, dims=DIMS, epsilon=2.0, domain=TENS, values=VALUES)
    path.write_text(text, encoding="utf-8")
    return path


@pytest.fixture
def show(browser: Browser) -> Iterator[Any]:
    """Open pages; whatever they ask for or complain about is an error in the end."""
    asked: list[str] = []
    said: list[str] = []
    context = browser.new_context(viewport={"width": 1280, "height": 900})

    def opened(path: Path, **options: Any) -> Page:
        shown = context.new_page()
        if options:
            shown.set_viewport_size(options)
        shown.on("request", lambda request: asked.append(request.url))
        shown.on("console", lambda message: said.append(message.text))
        shown.on("pageerror", lambda error: said.append(str(error)))
        shown.goto(path.as_uri())
        return shown

    yield opened
    context.close()
    assert set(asked) <= {url for url in asked if url.startswith("file:") and url.endswith(".html")}
    assert len(asked) <= 2
    assert not said


def _states(dims: list[int], populations: list[str], count: int, seed: int) -> list[dict[str, Any]]:
    rng = np.random.default_rng(seed)
    states = []
    for number in range(count):
        size = int(rng.choice(dims))
        some = int(rng.integers(1, size + 1)) if number % 2 else min(size, int(rng.integers(1, 6)))
        states.append(
            {
                "users": int(10 ** rng.uniform(1, 8)),
                "dims": size,
                "epsilon": float(10 ** rng.uniform(math.log10(0.05), math.log10(20))),
                "report": None if number % 4 == 0 or size == 1 else some,
                "population": populations[number % len(populations)],
            }
        )
    return states


def _python(
    state: dict[str, Any], domain: nz.Interval, mechanisms: list[str] | None = None, target: float | None = None
) -> Any:
    population = state["population"]
    known: dict[str, Any] = {"distribution": population}
    if population == "own":
        known = {"values": VALUES}
    elif population == "worst":
        known = {}
    setting = {name: state[name] for name in ("users", "dims", "epsilon", "report")}
    return plan(**setting, domain=domain, mechanisms=mechanisms, target_mse=target, **known)


def _compare(shown: Page, states: list[dict[str, Any]], domain: nz.Interval, whole: int) -> int:
    """Compare all candidates of all states and return how many there were."""
    half = domain.diameter / 2
    errors = shown.evaluate("Object.fromEntries(noisette.data.laws.map(law => [law.name, law.error]))")
    others = shown.evaluate("noisette.data.others")
    compared = 0
    for state, found in zip(states, shown.evaluate(PLAN, states), strict=True):
        made = _python(state, domain)
        on_page = {entry["mechanism"]: entry for entry in found["candidates"]}
        expected = {
            c.mechanism: c
            for c in made.candidates
            if c.mechanism not in others and (c.mechanism not in WHOLE or state["dims"] == whole)
        }
        assert on_page.keys() == expected.keys(), state
        for name, candidate in expected.items():
            close = 1e-9 if name in NEAR else max(1e-9, 2 * errors[name])
            entry, bias = on_page[name], abs(candidate.bias)
            # a lattice moves a bias by some 1e-10 of the range, and its square with it
            slack = 0.0 if candidate.unbiased else 2e-10 * half * math.sqrt(candidate.mse)
            assert abs(abs(entry["bias"]) - bias) <= 1e-9 * half, (name, state)
            assert abs(entry["mse"] - candidate.mse) <= close * candidate.mse + slack, (name, state)
            assert entry["std"] == pytest.approx(candidate.std, rel=close), (name, state)
            assert entry["unbiased"] == candidate.unbiased
            if name in NEAR and candidate.report is not None:
                assert entry["report"] == candidate.report, (name, state)
            compared += 1
        points = {(p["a"], p["b"]): p["population"] for p in found["breakEven"]}
        for point in made.break_even:
            if {point.a, point.b} <= expected.keys() and point.population < 1e12:
                assert points[point.a, point.b] == pytest.approx(point.population, rel=1e-4), state
                compared += 1
    return compared


@pytest.mark.long
def test_numbers_of_one_value_are_those_of_python(show: Any, one: Path) -> None:
    populations = ["worst", "uniform", "gaussian", "poisson", "beta"]
    states = _states([1, 2, 7, 40, 300], populations, 8, 3)
    assert _compare(show(one), states, nz.Interval(), 1) > 80


@pytest.mark.long
def test_numbers_on_another_range_are_those_of_python(show: Any, many: Path) -> None:
    states = _states([DIMS, DIMS, 1, 3, 5000], ["own", "worst", "gaussian"], 6, 4)
    assert _compare(show(many), states, TENS, DIMS) > 40


@pytest.mark.long
def test_a_range_without_middle_at_zero_has_no_balls(show: Any, tmp_path: Path) -> None:
    """Mechanisms on an L2 ball need a range that is centred: plan leaves them out, and so does the page."""
    path = tmp_path / "ages.html"
    ages = nz.Interval(0, 100)
    path.write_text(make(users=5000, dims=4, epsilon=2.0, domain=ages, mechanisms=["duchi-box", "hybrid"]))
    states = [{"users": 900, "dims": 4, "epsilon": 1.5, "report": None, "population": "beta"}]
    (found,) = show(path).evaluate(PLAN, states)
    made = _python(states[0], ages, ["duchi-box", "hybrid"])
    assert [c["mechanism"] for c in found["candidates"]] == [c.mechanism for c in made.candidates]
    assert found["candidates"][0]["mse"] == pytest.approx(made.best.mse, rel=1e-6)
    with pytest.raises(ValueError, match="Mechanism 'privunit' cannot be on the page"):
        make(users=5000, dims=4, epsilon=2.0, domain=ages, mechanisms=["privunit"])


@pytest.mark.long
def test_a_wrong_number_is_seen(show: Any, one: Path) -> None:
    """The twin: a page whose laws are off by a billionth part or two is not Python's."""
    shown = show(one)
    shown.evaluate("noisette.data.laws.forEach(law => law.panels.forEach(p => { p.rows[0][0] += 3e-9; }))")
    with pytest.raises(AssertionError):
        _compare(shown, _states([1], ["uniform"], 1, 3), nz.Interval(), 1)


@pytest.mark.long
@pytest.mark.parametrize("population", ["gaussian", "worst"])
def test_people_needed_are_those_of_the_plan(show: Any, one: Path, population: str) -> None:
    shown, wanted = show(one), 0.05**2
    state = {"users": 1000, "dims": 20, "epsilon": 2.0, "report": 2, "population": population}
    found = shown.evaluate(
        """([state, wanted]) => noisette.planner.plan({ ...state, mechanisms: noisette.state.mechanisms }).candidates
            .map(found => [found.mechanism, noisette.planner.needed(found, wanted)])""",
        [state, wanted],
    )
    expected = {c.mechanism: c.needed["mse"] for c in _python(state, nz.Interval(), target=wanted).candidates}
    for name, users in found:
        assert (users is None) == (expected[name] is None) == (name == "square-wave"), name
        if users is not None:  # one user more or less is a matter of the last digit
            assert abs(users - expected[name]) <= 1 + 1e-3 * users * (name not in NEAR), name
    assert len(found) >= 8


@pytest.mark.long
def test_the_verdict_follows_the_plan_and_what_is_wanted(show: Any, one: Path) -> None:
    """A few people, some and many, for each thing that may be known; ± is half of a 95 % interval."""
    shown, seen, names = show(one), set(), ["laplace", "hybrid"]
    for population in ("worst", "uniform", "beta"):
        for users in (3, 10, 100, 10_000):
            state = {"users": users, "dims": 1, "epsilon": 1.0, "report": None, "population": population}
            shown.evaluate(
                "state => { Object.assign(noisette.state, state); noisette.refresh(null); }",
                state | {"mechanisms": names, "target": 0.05},
            )
            tag, made = shown.locator("#verdict-tag").inner_text(), _python(state, nz.Interval(), names)
            fine = HALF * math.sqrt(made.best.mse) <= 0.05
            expected = (
                made.verdict if fine or made.verdict == "not worth collecting" else "not enough for what you want"
            )
            assert tag == expected, state
            seen.add(tag)
    assert seen == {"worth collecting", "not enough for what you want", "not worth collecting"}


@pytest.mark.long
def test_mechanisms_that_are_as_good_are_folded_away(show: Any, one: Path) -> None:
    shown = show(one)
    away = shown.locator("#errors tbody tr[data-twin]")
    assert away.count() > 0
    for row in away.all():
        twin, own = (
            shown.locator(f"#errors tr[data-mechanism={name}] td").nth(5).text_content()
            for name in (row.get_attribute("data-twin"), row.get_attribute("data-mechanism"))
        )
        assert math.sqrt(float(own or "nan") / float(twin or "nan")) < 1.01
        expect(row).not_to_be_visible()
    shown.locator("#fold").click()
    expect(away.first).to_be_visible()


@pytest.mark.long
def test_the_table_shows_the_plan(show: Any, one: Path) -> None:
    shown = show(one)
    on_page = shown.evaluate("noisette.data.laws.map(law => law.name)")
    made = plan(users=20_000, epsilon=1.0)
    assert made.best.mechanism in shown.locator("#absent").inner_text()  # its variance is no quadratic of the value
    best = next(one for one in made.candidates if one.unbiased and one.mechanism in on_page)
    expect(shown.locator("#errors tbody tr.best")).to_have_attribute("data-mechanism", best.mechanism)
    row = shown.locator("#errors tbody tr.best td")
    assert row.nth(2).inner_text().strip() == f"{HALF * math.sqrt(best.mse):.3g}"
    assert float(row.nth(5).inner_text()) == pytest.approx(best.mse, rel=5e-3)
    guarantee = best.build().guarantee
    said = shown.locator("#guarantee").inner_text()
    for word in (f"unit {guarantee.unit}", f"model {guarantee.model}", f"relation {guarantee.relation}", "ε = 1"):
        assert word in said


@pytest.mark.long
def test_sliders_boxes_and_keys_change_the_plan(show: Any, many: Path) -> None:
    shown = show(many)
    error = shown.locator("#errors tbody tr.best td").nth(2)

    def best(**changes: Any) -> str:
        state = {"users": 5000, "dims": DIMS, "epsilon": 2.0, "report": None, "population": "own"} | changes
        return f"{HALF * math.sqrt(_python(state, TENS).best.mse):.3g}"

    assert error.inner_text().strip() == best()
    shown.locator("#users").fill("80000")
    shown.locator("#users").press("Enter")
    assert error.inner_text().strip() == best(users=80_000)
    assert float(shown.locator("#users-slider").input_value()) == pytest.approx(math.log10(80_000), abs=0.01)
    shown.locator("#epsilon-slider").focus()
    for _ in range(40):
        shown.keyboard.press("ArrowRight")
    epsilon = float(shown.locator("#epsilon").input_value())
    assert epsilon == pytest.approx(2 * 10**0.2, rel=0.05)
    assert error.inner_text().strip() == best(users=80_000, epsilon=epsilon)
    shown.get_by_label("the best for each mechanism").uncheck()
    shown.locator("#report").fill("20")
    shown.locator("#report").press("Enter")
    assert error.inner_text().strip() == best(users=80_000, epsilon=epsilon, report=20)
    shown.locator("#population").select_option("worst")
    changes = {"users": 80_000, "epsilon": epsilon, "report": 20, "population": "worst"}
    assert error.inner_text().strip() == best(**changes)
    shown.locator("#dims").fill("5")
    shown.locator("#dims").press("Enter")
    assert shown.locator("#report").input_value() == "5"
    assert "privunit is missing" in shown.locator("#absent").inner_text()
    assert f"--dims 5 --report 5 --epsilon {epsilon:g} --range -5,5" in shown.locator("#command").inner_text()
    first = shown.locator("#errors tbody tr.best").get_attribute("data-mechanism")
    shown.locator(f"#mechanisms input[value={first}]").uncheck()
    assert shown.locator(f"#errors tr[data-mechanism={first}]").count() == 0


@pytest.mark.long
def test_the_command_it_prints_gives_the_same_plan(show: Any, one: Path) -> None:
    shown = show(one)
    shown.locator("#population").select_option("uniform")
    words = shown.locator("#command").inner_text().split()
    result = CliRunner().invoke(verbs, [*words[1:], "--json"])
    assert result.exit_code == 0, result.output
    best = shown.locator("#errors tbody tr.best").get_attribute("data-mechanism")
    assert f'"best": "{best}"' in result.stdout
    assert "--target-mse" in words, "the error that is wanted is part of it"


@pytest.mark.long
@pytest.mark.parametrize(("box", "value"), [("users", "0"), ("users", "2.5"), ("epsilon", "50"), ("target", "-1")])
def test_what_cannot_be_is_marked_and_changes_nothing(show: Any, one: Path, box: str, value: str) -> None:
    shown = show(one)
    before = shown.locator("#results").inner_text()
    shown.locator(f"#{box}").fill(value)
    shown.locator(f"#{box}").press("Enter")
    assert shown.locator(f"#{box}").get_attribute("aria-invalid") == "true"
    assert "Expected" in shown.evaluate("id => document.getElementById(id).validationMessage", box)
    assert shown.locator("#results").inner_text() == before


@pytest.mark.long
def test_no_mechanism_no_plan(show: Any, one: Path) -> None:
    shown = show(one)
    for box in shown.locator("#mechanisms input").all():
        box.uncheck()
    expect(shown.locator("#verdict-title")).to_have_text("Choose at least one mechanism")


@pytest.mark.long
@pytest.mark.parametrize("width", [390, 320, 768, 920])
def test_it_fits_a_phone(show: Any, many: Path, width: int) -> None:
    shown = show(many, width=width, height=844)
    for state in ({"users": 5000}, {"users": 10**12, "epsilon": 0.05}, {"dims": 10_000, "epsilon": 0.05}):
        shown.evaluate("state => { Object.assign(noisette.state, state); noisette.refresh(null); }", state)
        shown.locator("summary").first.click()
        assert shown.evaluate("document.documentElement.scrollWidth") <= width
    small = shown.evaluate(
        """() => [...document.querySelectorAll("input, select")].filter(e => e.checkVisibility())
            .filter(e => (e.closest("label") || e).getBoundingClientRect().height < 24).map(e => e.id)"""
    )
    assert not small


@pytest.mark.long
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_word_can_be_read(show: Any, many: Path, scheme: str) -> None:
    """Contrast of at least 4.5 to 1, in both schemes, and a name for every control."""
    shown = show(many)
    shown.emulate_media(color_scheme=scheme)
    shown.evaluate("() => Promise.allSettled(document.getAnimations().map(each => each.finished)).then(() => 0)")
    assert not shown.evaluate(CONTRAST)
    unnamed = shown.evaluate(
        """() => [...document.querySelectorAll("input, select")]
            .filter(e => !e.labels.length && !e.getAttribute("aria-label")).map(e => e.id)"""
    )
    assert not unnamed


def test_poor_contrast_is_seen(show: Any, one: Path) -> None:
    """The twin: grey on white is found."""
    shown = show(one)
    shown.evaluate("document.getElementById('errors-hint').style.color = '#999999'")
    assert shown.evaluate(CONTRAST)


@pytest.mark.long
def test_what_is_left_out_is_named(show: Any, tmp_path: Path) -> None:
    """Gaussian noise has no pure guarantee; plan compares it where there is a delta, and the page says so."""
    path = tmp_path / "delta.html"
    path.write_text(make(users=100, epsilon=1.0, delta=1e-6), encoding="utf-8")
    shown = show(path)
    expected = {c.mechanism for c in plan(users=100, epsilon=1.0, delta=1e-6).candidates}
    on_page = set(shown.evaluate("noisette.data.laws.map(law => law.name)"))
    left_out = set(shown.evaluate("noisette.data.others"))
    assert "gaussian" in left_out
    assert expected <= on_page | left_out
    assert "gaussian" in shown.locator("#absent").inner_text()


@pytest.mark.long
def test_the_error_wanted_is_the_target_of_the_plan(show: Any, tmp_path: Path) -> None:
    path = tmp_path / "target.html"
    path.write_text(make(users=100, epsilon=1.0, mechanisms=["laplace"], target_mse=0.0009), encoding="utf-8")
    shown = show(path)
    assert shown.locator("#target").input_value() == "0.0587989"  # 1.96 times the root, which is 0.03
    assert shown.evaluate("noisette.state.target") == pytest.approx(1.959963984540054 * 0.03, rel=1e-15)
    assert shown.locator("#command").inner_text().endswith("--target-mse 0.0009")
    made = plan(users=100, epsilon=1.0, mechanisms=["laplace"], target_mse=0.0009)
    assert (
        shown.evaluate("noisette.planner.needed(noisette.planner.plan(noisette.state).best, 0.0009)")
        == (made.best.needed["mse"])
    )


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"epsilon": 50.0}, "Expected epsilon=50 from 0.001 to 20 for a page"),
        ({"epsilon": 1.0, "domain": nz.Categorical(5)}, "Plan frequencies without one"),
        ({"epsilon": 1.0, "mechanisms": ["gaussian"]}, "Mechanism 'gaussian' cannot be on the page"),
        ({"epsilon": 1.0, "dims": 3, "report": 4}, "report=4"),
        ({"epsilon": 1.0, "target_mse": 0.0}, "Expected target_mse=0"),
    ],
)
def test_what_a_page_cannot_show_is_refused(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        make(users=100, **arguments)
