"""A forger who knows the verifier: deep, long, slow and oddly written certificates are refused, and soon."""

from __future__ import annotations

import contextlib
import json
import math
import random
import re
import time
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

import noisette as nz
import noisette_verify as verifier
from noisette.certificates import TrainingRun, certify

SLOWEST = 10.0  # CPU seconds of any verdict


def renewed(fields: dict[str, Any]) -> str:
    made = fields | {f"{part}_sha256": verifier.digest(fields[part]) for part in ("spec", "law")}
    return json.dumps(made | {"sha256": verifier.digest({k: v for k, v in made.items() if k != "sha256"})})


def forged(subject: Any, law: Any, domain: Any = None, **promise: Any) -> str:
    """Return the certificate of something with another law, and if wanted another domain and promise."""
    fields = certify(subject).fields
    fields |= {"law": law, "guarantee": fields["guarantee"] | promise}
    if domain is not None:
        fields |= {"domain": domain, "spec": {"domain": domain}}
    return renewed(fields)


def refused(text: str | bytes) -> str:
    began = time.process_time()
    verdict = verifier.verify(text)
    assert not verdict.proved, verdict.reason
    assert time.process_time() - began < SLOWEST
    return verdict.reason


def mixtures(depth: int) -> Any:
    """Return a law of 2^depth parts."""
    one = {"kind": "keep-or-replace", "size": "2", "keep": "3", "other": "1"}
    return {"kind": "mixture", "share": "1", "parts": [mixtures(depth - 1)] * 2} if depth else one


GRR = nz.GeneralizedRandomizedResponse(epsilon=1.0, domain=nz.Categorical(5))
DIGITS = "7" * 1100
BOMBS: dict[str, Any] = {
    "many choices": (
        {"kind": "meeting-sets", "items": "8000100", "most": "8000000", "length": "9", "meeting": "5"},
        {"kind": "selection", "size": "100", "most": "8000000", "labels": None},
    ),
    "a far level": (
        {"kind": "table", "levels": ["99999999999999"], "outputs": "o", "rows": [["1", "2"]]},
        {"kind": "interval", "low": "0", "high": "1"},
    ),
    "long fractions of many steps": (
        {"kind": "steps", "times": DIGITS, "sampling": f"1/{DIGITS}", "noise": f"{DIGITS}/8", "order": "256"},
        {"kind": "examples"},
    ),
    "a huge sphere": (
        {"kind": "sphere-cap", "dims": "1048577", "gamma": f"1/{DIGITS}", "preferred": f"1/{DIGITS}"},
        {"kind": "l2-ball", "dims": "1048576", "radius": "1"},
    ),
    "a sum of many long fractions": (
        {
            "kind": "ranges",
            "many": ["1"] * 1500,
            "width": [f"{DIGITS}/{10**1090 + 3 * place + 1}" for place in range(1500)],
            "sigma": [f"{10**1090 + 7 * place + 3}" for place in range(1500)],
        },
        {"kind": "l2-ball", "dims": "1500", "radius": "1"},
    ),
    "a record of many parts": (
        {
            "kind": "record",
            "report": "1",
            "parts": [{"kind": "keep-or-replace", "size": "2", "keep": "3", "other": "1"}] * 9000,
        },
        {"kind": "record", "parts": [{"kind": "categorical", "size": "2", "labels": None}] * 9000},
    ),
    "sums of many long fractions": (
        {
            "kind": "queries",
            "step": "1",
            "noise": {"kind": "gaussian", "sigma": "99999"},
            "rows": [[f"1/{10**1000 + 6 * (50 * row + place) + 1}" for place in range(50)] for row in range(50)],
        },
        {"kind": "tensor", "dims": ["50"], "low": "0", "high": "1"},
    ),
    "a record of long rates": (
        {
            "kind": "record",
            "report": "900",
            "parts": [
                {"kind": "added-noise", "origin": "0", "step": "1", "steps": "1", "noise": noise}
                for place in range(900)
                for noise in [{"kind": "laplace", "rate": str(Fraction(10**590 + 1, 10**590 + 6 * place + 3))}]
            ],
        },
        {"kind": "record", "parts": [{"kind": "interval", "low": "0", "high": "1"}] * 900},
    ),
    "a record of long deviations": (
        {
            "kind": "record",
            "report": "900",
            "parts": [
                {"kind": "added-noise", "origin": "0", "step": "1", "steps": "1", "noise": noise}
                for place in range(900)
                for noise in [{"kind": "gaussian", "sigma": str(Fraction(10**590 + 1, 10**580 + 6 * place + 1))}]
            ],
        },
        {"kind": "record", "parts": [{"kind": "interval", "low": "0", "high": "1"}] * 900},
    ),
    "a record of caps": (
        {
            "kind": "record",
            "report": "1",
            "parts": [{"kind": "sphere-cap", "dims": "1048577", "gamma": "1/9999", "preferred": "1/7"}] * 400,
        },
        {"kind": "record", "parts": [{"kind": "l2-ball", "dims": "1048576", "radius": "1"}] * 400},
    ),
    "a wide table of many levels": (
        {
            "kind": "table",
            "levels": [str(level) for level in range(64)],
            "outputs": "o",
            "rows": [[str(place + 1) for place in range(4000)]] * 64,
        },
        {"kind": "interval", "low": "0", "high": "1"},
    ),
    "a tree of mixtures": (mixtures(13), {"kind": "categorical", "size": "2", "labels": None}),
    "a huge box": (
        {"kind": "sampled", "dims": DIGITS, "report": "1", "part": {"kind": "laplace", "rate": "1"}},
        {"kind": "box", "dims": DIGITS, "low": "0", "high": "1"},
    ),
    "a far Gaussian": (
        {
            "kind": "added-noise",
            "origin": "0",
            "step": "1",
            "steps": "1",
            "noise": {"kind": "gaussian", "sigma": DIGITS},
        },
        {"kind": "interval", "low": "0", "high": "1"},
    ),
    "rounds without end": (
        {
            "kind": "rounds",
            "times": DIGITS,
            "part": {"kind": "keep-or-replace", "size": "5", "keep": "9", "other": "5"},
        },
        {"kind": "categorical", "size": "5", "labels": None},
    ),
}


@pytest.mark.long
@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=pytest.mark.long) if n.startswith(("a record", "a tree")) else n for n in sorted(BOMBS)],
)
def test_what_would_take_for_ever_is_refused_soon(name: str) -> None:
    law, domain = BOMBS[name]
    refused(forged(GRR, law, domain))


@pytest.mark.slow
def test_deep_and_long_files_are_refused() -> None:
    deep: Any = {"kind": "laplace", "rate": "1"}
    for _ in range(400):
        deep = {"kind": "rounds", "times": DIGITS, "part": deep}
    refused(forged(GRR, deep))
    refused("[" * 200_000)
    refused('{"a":' * 100_000 + "1" + "}" * 100_000)
    refused(b"\xff\xfe" + b"0" * 100)
    refused("9" * (1 << 23))
    refused("")


def test_numbers_are_written_in_one_way() -> None:
    fields = certify(GRR).fields
    keep = fields["law"]["keep"]
    arabic = "".join(chr(0x660 + int(digit)) for digit in keep)
    for odd in (arabic, f"{keep}\n", f" {keep}", f"+{keep}", f"{keep}.0", f"{keep}e0", f"0x{int(keep):x}", f"{keep}/1"):
        refused(renewed(fields | {"law": fields["law"] | {"keep": odd}}))
    for bare in ("NaN", "Infinity", "-Infinity", "1e400", keep):
        refused(certify(GRR).text.replace(f'"keep": "{keep}"', f'"keep": {bare}'))
    for weight in ("0", f"-{keep}", "-0"):
        refused(renewed(fields | {"law": fields["law"] | {"other": weight}}))


def test_a_matrix_is_that_of_the_whole_law() -> None:
    """Answers of several tables tell more between two levels than one of them: the part's matrix is no promise."""
    levelled = nz.LevelledResponse(edges=[-1, -0.6, 0, 1], epsilons=[3.0, 2.0, 1.0])
    fields = certify(levelled).fields
    twice = {"kind": "rounds", "times": "2", "part": fields["law"]}
    wide = {"epsilon": "100", "matrix": fields["guarantee"]["matrix"]}
    made = fields | {"law": twice, "guarantee": fields["guarantee"] | wide}
    made["theorems"] = sorted({*fields["theorems"], "composition", "gaussian-composition"})
    assert "longer" in refused(renewed(made))  # than the levels of the whole law, of which there are none
    assert verifier.verify(renewed(made | {"guarantee": made["guarantee"] | {"matrix": None}})).proved


def test_parts_with_a_delta_are_not_taken_for_one() -> None:
    normal = {"kind": "normal", "sigma": "9"}
    domain = {"kind": "tensor", "dims": ["2"], "low": "0", "high": "1"}
    both = {"kind": "record", "parts": [domain, domain]}
    refused(forged(GRR, {"kind": "record", "report": "2", "parts": [normal, normal]}, both, delta="1/10"))
    refused(forged(GRR, {"kind": "mixture", "share": "1", "parts": [normal, normal]}, domain, delta="1/10"))
    steps = TrainingRun(1.0, 0.01, 10, 1e-5)
    refused(
        renewed(certify(steps).fields | {"law": {"kind": "rounds", "times": "9", "part": certify(steps).fields["law"]}})
    )
    for term, other in (("unit", "record"), ("model", "local"), ("relation", "any-pair")):
        fields = certify(steps).fields
        refused(renewed(fields | {"guarantee": fields["guarantee"] | {term: other}}))


def of_two_units() -> list[str]:
    """Return promises for a whole record of laws one part of which hides single elements alone."""
    tensor = {"kind": "tensor", "dims": ["1000"], "low": "0", "high": "1"}
    noise = [{"kind": "laplace", "rate": rate} for rate in ("1", "1/1000")]
    one = {"kind": "entries", "unit": "element", "steps": "4", "many": ["1000"], "keep": ["0"], "noise": noise[0]}
    parts = [one, one | {"unit": "record", "steps": "1", "noise": noise[1]}]
    both = {"kind": "record", "parts": [tensor, tensor]}
    laws = [
        ({"kind": "mixture", "share": "1"}, tensor, ["mixture"]),
        ({"kind": "record", "report": "2"}, both, ["mixture"]),
    ]
    return [
        json.dumps(json.loads(renewed(
            json.loads(forged(GRR, law | {"parts": parts}, domain, epsilon="5"))
            | {"theorems": sorted({"composition", "distance", *cited})}
        )), sort_keys=True, indent=1)
        for law, domain, cited in laws
    ]  # fmt: skip


def test_the_unit_of_one_part_is_not_that_of_all() -> None:
    """An epsilon of 5 was proved for one of 4,000 where a law about elements stood before one about records."""
    for text in of_two_units():
        assert "unlike units" in refused(text)


def test_a_kind_does_not_swallow_its_first_field() -> None:
    """The table of kinds is a text: a kind that ends within a line of it is no kind."""
    law = {"kind": "window first:q", "step": "1/1000000000", "width": "1", "moves": "1", "inside": "256"}
    promise = {"unit": "example", "model": "central", "relation": "add-remove", "delta": "1/1000"}
    assert "no law of kind" in refused(forged(GRR, law, {"kind": "examples"}, **promise))


def test_a_domain_is_what_a_device_can_hold() -> None:
    for low, high in (("1", "0"), ("1", "1"), ("-1/10", "1"), ("0", "1/3"), ("0", "9" * 400)):
        for mechanism in (nz.Duchi(epsilon=1.0), nz.Laplace(epsilon=1.0), nz.RetainOrNoise.example(1.0)):
            fields = certify(mechanism).fields
            domain = fields["domain"] | {"low": low, "high": high}
            refused(renewed(fields | {"domain": domain, "spec": {"domain": domain}}))
    fields = certify(nz.SampledAttributes.example(1.0)).fields
    refused(renewed(fields | {"domain": fields["domain"] | {"kind": "people"}, "spec": {}}))


ODD = [
    "0", "1", "-1", "1/2", "9" * 1200, "1/" + "9" * 1190, "NaN", "1e999", "\u0663", "\uff11", "1_000", " 5", "5\n", "",
    None, True, [], {}, ["1"], {"kind": "laplace", "rate": "1/1000000"}, "9007199254740992", "4611686018427387904",
]  # fmt: skip


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the paths of all texts and numbers inside a value."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else None
    if inner is None:
        yield path
    else:
        for key, one in inner:
            yield from places(one, (*path, key))


def mutated(fields: dict[str, Any], other: dict[str, Any], chance: random.Random) -> tuple[str, dict[str, Any]]:
    """Return a certificate with one thing changed, hashes and theorems as a malicious issuer would write them."""
    made = json.loads(json.dumps(fields))
    part = chance.choice(["law", "law", "law", "domain", "guarantee"])
    way = chance.choice(["odd", "scaled", "swapped", "nested", "renamed"])
    *path, last = chance.choice(list(places(made[part])))
    holder = made[part]
    for key in path:
        holder = holder[key]
    if way == "swapped":
        made[part] = other[part]
    elif way == "nested":
        for _ in range(chance.choice([1, 2, 50])):
            made["law"] = {"kind": chance.choice(["rounds", "mixture", "record"]), "times": "1", "part": made["law"]}
    elif way == "renamed" and isinstance(holder, dict):
        holder[f"\u200b{last}"] = holder.pop(last)
    elif way == "scaled" and isinstance(holder[last], str) and re.fullmatch(r"-?[0-9]+(/[0-9]+)?", holder[last]):
        holder[last] = str(Fraction(holder[last]) * chance.choice([2, Fraction(1, 2), 10, Fraction(1, 10), -1]))
    else:
        holder[last] = chance.choice(ODD)
    if part == "domain" and chance.random() < 0.7:
        made["spec"] = {"domain": made["domain"]}
    with contextlib.suppress(Exception):  # what cannot be proved needs no theorems
        proof = verifier.Proof()
        proof.loss(made["law"], made["domain"])
        made["theorems"] = sorted(proof.theorems)
    return f"{way} {part} {last}", json.loads(renewed(made))


def issued(chance: random.Random, count: int) -> list[tuple[str, str]]:
    """Return so many mutated certificates, written as certificates are."""
    names = [name for name in sorted(nz.CATALOGUE) if nz.CATALOGUE[name].example(1.0).written_law() is not None]
    sound = [certify(nz.CATALOGUE[name].example(chance.choice([0.3, 2.0, 12.0]))).fields for name in names]
    sound = [fields for fields in sound if len(json.dumps(fields)) < 100_000]
    found = []
    for _ in range(count):
        done, fields = mutated(chance.choice(sound), chance.choice(sound), chance)
        found.append((done, json.dumps(fields, sort_keys=True, indent=1, ensure_ascii=False)))
    return found


def composed(sound: list[dict[str, Any]], chance: random.Random, depth: int) -> tuple[Any, Any]:
    """Return a law made of laws, and a domain: rounds, records, mixtures and samples, some of them of unlike parts."""
    fields = chance.choice(sound)
    law, domain = fields["law"], fields["domain"]
    match (
        chance.choice(["rounds", "record", "mixture", "sampled", "hashed", "added-noise", "leaf"]) if depth else "leaf"
    ):
        case "rounds":
            law, domain = composed(sound, chance, depth - 1)
            return {
                "kind": "rounds",
                "times": chance.choice(["1", "2", "7", str(2**31), "9" * 40]),
                "part": law,
            }, domain
        case "record":
            parts = [composed(sound, chance, depth - 1) for _ in range(chance.choice([1, 2, 3]))]
            made = {
                "kind": "record",
                "report": chance.choice(["1", "2", str(len(parts))]),
                "parts": [p[0] for p in parts],
            }
            names = chance.choice([{"kind": "record"}, {"kind": "attributes", "names": None}])
            return made, names | {"parts": [p[1] for p in parts]}
        case "mixture":
            law, domain = composed(sound, chance, depth - 1)
            other = chance.choice([law, composed(sound, chance, depth - 1)[0]])
            return {
                "kind": "mixture",
                "share": chance.choice(["0", "1", str(2**53 + 1)]),
                "parts": [law, other],
            }, domain
        case "sampled":
            high = chance.choice(["1", ["1", "2", "3", "4"], ["1"]])
            made = {"kind": "sampled", "dims": "4", "report": chance.choice(["1", "2", "4"]), "part": law}
            return made, {"kind": "box", "dims": "4", "low": "0", "high": high}
        case "hashed":
            return {"kind": "hashed", "maps": "5", "response": law}, domain
        case "added-noise":
            steps = {"step": chance.choice(["1/4", "1", "1/3"]), "steps": chance.choice(["4", "1", "3", "0"])}
            sigma = chance.choice(["1/2", "2", "3", "1024", "1025"])
            noise = chance.choice([{"kind": "laplace", "rate": "1/9"}, {"kind": "gaussian", "sigma": sigma}])
            lattice = {"kind": "grid", "step": chance.choice(["1", "1/4", "1/3"])}
            space = chance.choice([{"kind": "interval"}, lattice]) | {"low": "0", "high": chance.choice(["1", "0"])}
            return {"kind": "added-noise", "origin": chance.choice(["0", "1/3", "-5"]), "noise": noise} | steps, space
    return law, domain


def composed_ones(chance: random.Random, count: int) -> list[str]:
    """Return certificates of laws made of laws, most of which promise nearly what the verifier finds."""
    vectors = json.loads(Path(verifier.__file__).with_name("vectors.json").read_text(encoding="utf-8"))
    sound = [json.loads(one["certificate"]) for one in vectors if one["proved"] and len(one["certificate"]) < 20_000]
    found = []
    for _ in range(count):
        law, domain = composed(sound, chance, chance.choice([1, 2, 3]))
        promise = {"epsilon": "1", "delta": chance.choice(["0", "1/1000000", "1/10"]), "matrix": None}
        promise |= {"unit": "record", "model": "local", "relation": "any-pair"}
        made = chance.choice(sound) | {"law": law, "domain": domain, "spec": {"domain": domain}}
        with contextlib.suppress(Exception):  # what cannot be proved needs no theorems
            proof = verifier.Proof()
            loss = proof.loss(law, domain)
            made["theorems"] = sorted(proof.theorems)
            promise |= dict(zip(("unit", "model", "relation"), loss.terms, strict=True))
            room = chance.choice([Fraction(1, 2**80), -Fraction(1, 2**80), Fraction(1), Fraction(40), Fraction(300, 7)])
            promise["epsilon"] = str(Fraction(math.ceil((loss.pure + room) * 2**300), 2**300))
            if chance.random() < 0.1:
                promise |= chance.choice([{"unit": "element"}, {"unit": "r\u0435cord"}, {"matrix": [["1"]]}])
        written = json.loads(renewed(made | {"guarantee": promise}))
        found.append(json.dumps(written, sort_keys=True, indent=1, ensure_ascii=False))
    return found


@pytest.mark.slow
def test_laws_made_of_laws_get_a_verdict_soon() -> None:
    """Some are proved, most are not, and no verdict takes long."""
    proved = 0
    for text in composed_ones(random.Random(41), 200):
        began = time.process_time()
        verdict = verifier.verify(text)
        proved += verdict.proved
        assert verdict.reason
        assert time.process_time() - began < SLOWEST
    assert 20 < proved < 120


@pytest.mark.parametrize("dims", [4, 5])
@pytest.mark.parametrize("gamma", ["1", "10", "39"])
def test_a_cap_beyond_the_sphere_is_refused_at_once(dims: int, gamma: str) -> None:
    """The series of its mass grows for ever in even dimensions."""
    cap = nz.PrivUnit(epsilon=2.0, dims=dims)
    assert refused(forged(cap, certify(cap).fields["law"] | {"gamma": gamma})).endswith("it is no cap.")


@pytest.mark.slow
def test_a_malicious_issuer_gets_a_verdict_soon() -> None:
    """Whatever is written, a verdict comes within seconds, and nothing but a verdict."""
    for done, text in issued(random.Random(31), 150):
        began = time.process_time()
        verdict = verifier.verify(text)
        assert verdict.reason, done
        assert time.process_time() - began < SLOWEST, done
