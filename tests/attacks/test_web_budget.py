"""A collector tells the web device a table that leaks more than the campaign promises.

The page computes the epsilon of the law that it is going to draw from, both ways, and refuses what is no law. Each
attack here is run on the page's own scripts, in node; what the page lets through is enumerated in fractions by
`web_tables`, which shares no arithmetic with it.
"""

from __future__ import annotations

import copy
import json
import os
import random
import subprocess
import unicodedata
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from tests.attacks.web_tables import FINE, KINDS, NODE, UNIT, Page, honest, mutated, refused, shown, spent

import noisette as nz
from noisette.collector.web.pages import CLIENT

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(NODE is None, reason="node, in which the scripts run, is not installed"),
]

MORE = """import { extend } from "./laws.js";
import more from "./laws-more.js";
extend(more);
"""
CHECK = (
    MORE
    + """import { check } from "./noisette.js";
const answer = campaign => { check(campaign, "q"); return true; };
"""
)
# tables of each of the sixteen kinds; NOISETTE_FULL=1 asks for 104,000 mutated and 10,400 honest ones in all
MUTANTS, HONEST = (6_500, 650) if os.environ.get("NOISETTE_FULL") else (150, 20)
NUMBER, FOUR = {"name": "x", "range": [0.0, 120.0]}, {"name": "x", "categories": ["a", "b", "c", "d"]}
WINDOW = {"kind": "window", "map": [0.0, 1.0], "first": 0.0, "step": 1.0, "width": 100, "moves": 120}


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Page:
    return Page(Path(str(CLIENT)), tmp_path_factory.mktemp("web"))


KNOWN = {
    "subset with own 0: the own category is never in the set": (
        {"kind": "subset", "size": 4, "length": 2, "own": 0},
        FOUR,
    ),
    "bits with turned 2^61: the own bit is always off": (
        {"kind": "bits", "size": 4, "others": str(FINE // 2), "turned": str(FINE)},
        FOUR,
    ),
    "a window with p_window 0: no report near the value": (WINDOW | {"p_window": 0.0}, NUMBER),
    "hadamard with own 0: the own row is always -1": ({"kind": "hadamard", "order": 8, "own": 0}, FOUR),
    "two-point with a chance below 0: the lower end always says low": (
        {"kind": "two-point", "low": 1.0, "high": 2000.0},
        {"name": "x", "range": [0.0, 120.0]},
    ),
}


@pytest.mark.parametrize("attack", KNOWN)
def test_what_the_one_sided_check_let_through(page: Page, attack: str) -> None:
    """At a promised 0.1 each of these was accepted, and tells the value without any doubt."""
    table, attribute = KNOWN[attack]
    (answer,) = page.run(CHECK, [shown(table, [attribute], 0.1)])
    assert refused(answer)
    assert spent(table, [attribute]) > 1, "the twin: the enumeration sees what the attack gains"


def test_a_window_without_a_chance_reads_a_number(page: Page) -> None:
    """Fourteen campaigns whose window is never hit, each a little narrower, read 73.219 as 73.221; none is answered."""
    campaigns = []
    for halving in range(14):
        width = 120 * 2.0**-halving
        table = WINDOW | {"map": [0.0, 2**halving / 120], "width": 1, "moves": 2**halving, "p_window": 0.0}
        campaigns.append(shown(table | {"step": width}, [NUMBER], 0.1))
    assert all(map(refused, page.run(CHECK, campaigns)))


TURNED = {
    "the own category kept too seldom": ({"kind": "subset", "size": 4, "length": 2, "own": UNIT // 8}, FOUR),
    "the own bit turned off too often": (
        {"kind": "bits", "size": 4, "others": str(FINE // 2), "turned": str(FINE // 8 * 7)},
        FOUR,
    ),
    "a window that is avoided": (WINDOW | {"p_window": 0.125}, NUMBER),
    "a window that is avoided, in a mixture": (
        {
            "kind": "mixture",
            "share": 0.5,
            "window": WINDOW | {"p_window": 0.125},
            "pair": {"kind": "two-point", "low": -2000.0, "high": 2120.0},
        },
        NUMBER,
    ),
    "the own row -1 too often": ({"kind": "hadamard", "order": 8, "own": UNIT // 8}, FOUR),
}


@pytest.mark.parametrize("attack", TURNED)
def test_a_law_that_leaks_the_other_way_round(page: Page, attack: str) -> None:
    """What is rare near the value tells as much as what is frequent there; at the price it really has it is taken."""
    table, attribute = TURNED[attack]
    cost = float(spent(table, [attribute]))
    answers = page.run(CHECK, [shown(table, [attribute], epsilon) for epsilon in (0.1, cost * 0.999, cost * 1.001)])
    assert [refused(answer) for answer in answers] == [True, True, False]


def _mutants(kind: str, count: int) -> list[dict[str, Any]]:
    source = random.Random(f"mutants of {kind}")
    starts = [honest(kind, source) for _ in range(100)]
    return [mutated(source.choice(starts), source) for _ in range(count)]


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_mutated_tables(page: Page, kind: str) -> None:
    """Of many mutated tables of each kind, each is refused, or spends what its campaign promises."""
    campaigns = _mutants(kind, MUTANTS)
    answers = page.run(CHECK, campaigns)
    taken = [one for one, answer in zip(campaigns, answers, strict=True) if not refused(answer)]
    dear = 0
    for one in taken:
        cost, promised = spent(one["table"], one["attributes"]), Decimal(one["epsilon"])
        assert cost <= promised, json.dumps(one)
        dear += cost > promised / 2
    assert len(taken) > MUTANTS * 0.046, "not all is refused"
    assert len(campaigns) - len(taken) > MUTANTS * 0.29
    assert dear > MUTANTS * 0.015, "what is taken spends most of what is promised"


@pytest.mark.long
def test_honest_campaigns_are_answered(page: Page) -> None:
    """Of many campaigns that Python's mechanisms make none is refused: the check leaves no room above the promise."""
    source = random.Random("honest")
    campaigns = [honest(kind, source) for kind in KINDS for _ in range(HONEST)]
    answers = page.run(CHECK, campaigns)
    assert [(one, answer) for one, answer in zip(campaigns, answers, strict=True) if refused(answer)] == []


@pytest.mark.long
def test_a_promise_that_is_short_by_one_bit(page: Page) -> None:
    """The epsilon that the page computes is never below the enumerated one, and above it by rounding alone."""
    source = random.Random("bits")
    campaigns = [honest(kind, source) for kind in KINDS if kind != "mixture" for _ in range(50)]
    script = (
        MORE
        + """import { spends } from "./laws.js";
    const plain = ({ name, levels, ...rest }) =>
      (levels ? { name, range: [levels[0][0], levels.at(-1)[1]] } : { name, ...rest });
    const answer = ({ table, attributes }) => spends(table, attributes.map(plain));"""
    )
    for one, found in zip(campaigns, page.run(script, campaigns), strict=True):
        exact = spent(one["table"], one["attributes"])
        assert exact <= Decimal(found) <= exact * (1 + Decimal(2) ** -51), one


NO_LAW = {
    "a negative weight": {"table": {"keep": -1}},
    "weights above 2^53": {"table": {"keep": UNIT - 1}},
    "weights so few that the page would draw for ever": {"table": {"keep": 1, "other": 1}},
    "weights that are no whole numbers": {"table": {"keep": 0.5}},
    "a weight beyond 2^53": {"table": {"other": 2**54}},
    "a weight that is a text": {"table": {"keep": "7"}},
    "a weight that is no number": {"table": {"keep": "@NaN"}},
    "more categories than were asked": {"table": {"size": 5}},
    "fewer categories than were asked": {"table": {"size": 3}},
    "more categories than any number, which JSON writes as 1e999": {"table": {"size": "@Infinity"}},
    "as many categories as a page can hold": {"table": {"size": 10**9}},
    "a field that nobody reads": {"table": {"seed": 7}},
    "a field of the prototype": {"table": {"__proto__": {"keep": 1}}},
    "a kind that every object has": {"table": {"kind": "constructor"}},
    "a promise that is a text": {"epsilon": "1"},
    "a promise that is no number": {"epsilon": "@NaN"},
    "a promise without a bound": {"epsilon": "@Infinity"},
    "a promise that is missing": {"epsilon": None},
    "a period that the device does not know": {"period": "second"},
    "answers that are neither kept nor paid": {"answers": "free"},
    "tokens that the device does not know": {"tokens": "named"},
    "a public group of anything": {"public_group": {"name": "g", "values": "abc"}},
    "a question that is both a number and a category": {
        "attributes": [{"name": "x", "categories": ["a", "b", "c", "d"], "range": [0, 1]}]
    },
    "the same category twice": {"attributes": [{"name": "x", "categories": ["a", "b", "c", "c"]}]},
    "categories that are no texts": {"attributes": [{"name": "x", "categories": [1, 2, 3, 4]}]},
    "a second question without a law": {"attributes": [FOUR, FOUR | {"name": "y"}]},
    "no question": {"attributes": []},
}


@pytest.mark.parametrize("attack", NO_LAW)
def test_what_is_no_law_or_no_promise(page: Page, attack: str) -> None:
    """Four categories by randomised response at epsilon 1, with one thing changed."""
    source = random.Random(4)
    start = next(one for one in iter(lambda: honest("keep-or-replace", source), None) if one["table"]["size"] == 4)
    start |= {"attributes": [FOUR], "epsilon": 12.0}
    changed = copy.deepcopy(start)
    for name, change in NO_LAW[attack].items():
        changed[name] = changed[name] | change if isinstance(change, dict) and name == "table" else change
    assert [refused(answer) for answer in page.run(CHECK, [start, changed])] == [False, True]


def _record(**changes: Any) -> dict[str, Any]:
    source = random.Random(1)
    one, two = (honest("hadamard", source)["table"] | {"order": 8} for _ in range(2))
    table = {"kind": "record", "report": 1, "width": 2, "owners": [0, 1], "parts": [one, two]} | changes
    return shown(table, [FOUR, FOUR | {"name": "y"}], 24.0)


RECORDS = {
    "both attributes are sent, one is paid": {"report": 2, "width": 2, "owners": [0, 0]},
    "no attribute is sent": {"report": 0},
    "more attributes than there are": {"report": 3},
    "half an attribute": {"report": 1.5},
    "a report of a thousand million numbers": {"width": 10**9},
    "a part that belongs to nobody": {"owners": [0, 0]},
    "an owner that is no part": {"owners": [0, 2]},
    "an owner of the prototype": {"owners": [0, "length"]},
    "an attribute without an owner": {"owners": [0]},
    "no parts": {"parts": []},
    "a part whose size has no end, for which the page looked for ever": {
        "parts": [{"kind": "bits", "size": "@Infinity", "others": str(FINE // 4), "turned": str(FINE // 2)}] * 2
    },
    "a record in a record": {"parts": [{"kind": "record"}, {"kind": "record"}]},
}


@pytest.mark.parametrize("attack", RECORDS)
def test_records_that_do_not_fit(page: Page, attack: str) -> None:
    assert [refused(answer) for answer in page.run(CHECK, [_record(), _record(**RECORDS[attack])])] == [False, True]


def test_one_part_for_two_ranges(page: Page) -> None:
    """A part that is private on [0, 1] answers for [0, 120] as well: there its chance leaves [0, 1]."""
    pair = {"kind": "two-point", "low": -1.0, "high": 2.0}
    table = {"kind": "record", "report": 1, "width": 2, "owners": [0, 0], "parts": [pair]}
    narrow = {"name": "x", "range": [0.0, 1.0]}
    asked = [[narrow, narrow | {"name": "y"}], [narrow, NUMBER | {"name": "y"}]]
    answers = page.run(CHECK, [shown(table, attributes, 2.0) for attributes in asked])
    assert [refused(answer) for answer in answers] == [False, True]


def test_rounding_that_mixes_both_parts_of_a_mixture(page: Page) -> None:
    """Where the parts' reports are of different sizes, (one - two) + two depends on both draws and costs both of them.

    Each report has to be one that a single part can have sent.
    """
    # a range near 2^53, where floats are 2 apart, so that the window's outputs and the pair's are of different sizes
    ends = [2.0**53, 2.0**53 + 240.0]
    window = WINDOW | {"map": [-(2.0**52), 0.5], "first": 2.0**53, "step": 2.0, "p_window": 0.5}
    pair = {"kind": "two-point", "low": -200.3, "high": 2.0**54}
    mixture = {"kind": "mixture", "share": 0.5, "window": window, "pair": pair}
    script = (
        MORE
        + """import { readLaw } from "./laws.js";
    const answer = ([table, attribute]) => {
      const law = readLaw(table, [attribute]);
      return Array.from({ length: 2000 }, () => law.draw([2 ** 53 + 146]));
    };"""
    )
    (sent,) = page.run(script, [[mixture, {"name": "x", "range": ends}]])
    allowed = {ends[0] + 2.0 * index for index in range(220)} | {-200.3, (2.0**54 + 200.3) - 200.3}
    assert set(sent) <= allowed
    assert len(set(sent)) > 100, "both parts are drawn from"


def test_values_outside_the_question_are_not_drawn_for(page: Page) -> None:
    """A law draws for the inputs that its epsilon is about, and for no others, whoever calls it."""
    script = (
        MORE
        + """import { readLaw } from "./laws.js";
    const answer = ([table, attribute, value]) => { readLaw(table, [attribute]).draw([value]); return true; };"""
    )
    pair = {"kind": "two-point", "low": -200.0, "high": 320.0}
    hadamard = {"kind": "hadamard", "order": 8, "own": UNIT // 2 + 1}
    wrong = [(pair, NUMBER, value) for value in (-0.1, 120.1, "@NaN", "60", None)]
    wrong += [(hadamard, FOUR, code) for code in (-1, 4, 0.5, "a", 8)]
    assert all(map(refused, page.run(script, wrong)))
    right = [(pair, NUMBER, value) for value in (0.0, 60, 120.0)] + [(hadamard, FOUR, code) for code in range(4)]
    assert not any(map(refused, page.run(script, right)))


def test_a_page_takes_the_texts_that_python_takes(page: Page) -> None:
    """Every character that Unicode calls a control, a separator or a format one, within a text and with an alphabet."""
    odd = [chr(code) for code in range(0x3000) if unicodedata.category(chr(code)) in ("Cc", "Cf", "Zl", "Zp", "Zs")]
    texts = ["", "tea", "né", "ne\u0301", "a" * 9, *(f"a{one}b" for one in odd)]
    script = """import { symbols } from "./laws.js";
    const answer = text => symbols({ longest: 8, places: 8, letters: null }, text);"""
    for text, found in zip(texts, page.run(script, texts), strict=True):
        expected = None if nz.Texts(8).fault(text) else nz.Texts(8).symbols([text])[0].tolist()
        assert found == expected, repr(text)


def test_no_random_number_is_the_collectors_or_the_weak_generators() -> None:
    """Noise comes from the browser's cryptographic generator: without one nothing is drawn, and no seed is read."""
    names = ("laws.js", "laws-more.js", "random.js", "noisette.js")
    texts = {name: CLIENT.joinpath(name).read_text(encoding="utf-8") for name in names}
    assert "Math.random" not in texts["laws.js"] + texts["laws-more.js"] + texts["random.js"]
    assert texts["noisette.js"].count("Math.random") == 1, "the pause before another attempt, and nothing else"
    assert texts["random.js"].count("crypto.getRandomValues") == 1


DEVICE = """import { Client } from "./noisette.js";
const kept = new Map();
globalThis.localStorage = { getItem: name => kept.get(name) ?? null, setItem: (name, text) => kept.set(name, text) };
globalThis.navigator ??= {}; // without locks
let told = null;
globalThis.fetch = async () => new Response(JSON.stringify(told));
const client = await Client.open("https://collector.example", { apiKey: "key", epsilon: 9 }), said = [];
const lines = (await new Response(process.stdin).text()).split("\\n").filter(Boolean);
for (const line of lines) {
  told = JSON.parse(line);
  try { said.push(await client.answer(told.id, { x: 73 })); } catch (error) { said.push(`refused: ${error.message}`); }
}
console.log(JSON.stringify(said));
"""


@pytest.mark.parametrize("name", ["q", "__proto__", "constructor", "hasownproperty"])
def test_a_campaign_by_the_name_of_something_else(page: Page, name: str) -> None:
    """What was asked under the id '__proto__' was not remembered: its range could change with every visit."""
    shows = []
    for low, high in ((0.0, 120.0), (60.0, 120.0), (60.0, 90.0)):
        table = nz.Duchi(epsilon=0.1, domain=nz.Interval(low, high)).table()
        shows.append(shown(table, [{"name": "x", "range": [low, high]}], 0.1) | {"id": name, "answers": "fresh"})
    (page.folder / "device.js").write_text(DEVICE, encoding="utf-8")
    done = subprocess.run(
        [str(NODE), str(page.folder / "device.js")],
        input="\n".join(map(json.dumps, [*shows, shows[0]])),
        capture_output=True,
        text=True,
        check=True,
        timeout=600,
    )
    first, *others, again = json.loads(done.stdout)
    assert first is True, first
    assert all("asks something else than before" in str(one) for one in others), others
    assert again is False, again
