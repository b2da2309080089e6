"""The same random words give the same report in Python and in a real browser, which also finds the same epsilon."""

from __future__ import annotations

import base64
import copy
import json
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Browser, Error, Page, Route
from scipy.special import chdtri
from tests.collector import blind_vectors, seal_vectors
from tests.collector.vectors import (
    BLOCKS,
    DRAWN_FILE,
    FILE,
    MANY_FILE,
    SURVEY_FILE,
    drawn_vectors,
    many,
    survey_vectors,
    vectors,
)

from noisette.collector.web.pages import CLIENT
from noisette.device.blind import SigningKey, VerifyingKey
from noisette.domains import Categorical
from noisette.mechanisms.categorical.grr import GeneralizedRandomizedResponse

HOST = "https://noisette.test"  # WebCrypto hashes on pages of https alone

REPLAY = """vectors => vectors.map(({ table, attributes, draws }) => {
  const law = laws.readLaw(table, attributes);
  const reports = draws.map(({ row, words }) => {
    let used = 0;
    const source = () => BigInt("0x" + words[used++]);
    const report = laws.encode(law.draw(row, new random.Words(source)));
    return { report, used };
  });
  return { spends: law.epsilon, law: law.law, reports };
})"""

SURVEYS = """async vectors => Promise.all(vectors.map(async ({ campaign, values, draws }) => {
  const law = noisette.check(campaign, "q"), row = noisette.row(campaign, values);
  const reports = draws.map(({ words }) => {
    let used = 0;
    const report = laws.encode(law.draw(row, new random.Words(() => BigInt("0x" + words[used++]))));
    return { report, used };
  });
  return { hash: await verify.lawHash(law.law), reports };
}))"""

BLIND = """async vectors => Promise.all(vectors.map(async ({ modulus: text, steps }) => {
  const { blind: make, finish, readModulus } = blind, { fromHex, toHex } = bytes, modulus = readModulus(text);
  return Promise.all(steps.map(async ({ token, factor, signed }) => {
    const own = await make(fromHex(token), modulus, factor && BigInt("0x" + factor));
    const [blinded, inverse] = [own.blinded, own.inverse].map(toHex);
    try {
      const signature = toHex(await finish(fromHex(token), fromHex(signed), own.inverse, modulus));
      return { blinded, inverse, signature };
    } catch (error) {
      return { blinded, inverse, signature: error.message };
    }
  }));
}))"""

SEAL = """vectors => Promise.all(vectors.map(async ({ given }) => {
  const { campaign, period, report, body, key, once, client, secret } = given, { toHex, sha256, fromBase64 } = bytes;
  const jwk = { kty: "OKP", crv: "X25519", x: once.x };
  const pair = {
    publicKey: await crypto.subtle.importKey("jwk", jwk, "X25519", true, []),
    privateKey: await crypto.subtle.importKey("jwk", { ...jwk, d: once.d }, "X25519", false, ["deriveBits"]),
  };
  const padded = seal.pad(report, body), label = seal.label(campaign, period);
  const sealed = await seal.seal(padded, label, fromBase64(key), pair), frame = seal.frame(campaign, period, sealed);
  return {
    label: toHex(label),
    length: padded.length,
    sealed: toHex(await sha256(sealed)),
    frame: toHex(await sha256(frame)),
    headers: await seal.sign(secret, client, "post", frame),
  };
}))"""


@pytest.fixture(scope="module")
def stored() -> Any:
    return json.loads(FILE.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def page(browser: Browser) -> Iterator[Page]:
    """A page that has loaded the modules, and nothing else."""

    def serve(route: Route) -> None:
        name = route.request.url.removeprefix(f"{HOST}/")
        if not name:
            route.fulfill(body="<!doctype html><title>test</title>", content_type="text/html")
        else:
            route.fulfill(body=CLIENT.joinpath(name).read_text(encoding="utf-8"), content_type="text/javascript")

    shown = browser.new_context().new_page()
    shown.route("**/*", serve)
    shown.goto(f"{HOST}/")
    for name in ("bytes", "random", "laws", "blind", "seal", "verify", "noisette"):
        shown.evaluate(f"import('/{name}.js').then(found => {{ globalThis.{name} = found; }})")
    shown.evaluate("import('/laws-more.js').then(found => laws.extend(found.default))")
    yield shown
    shown.close()


@pytest.fixture(scope="module")
def replayed(page: Page, stored: Any) -> Any:
    """What the browser makes of the stored words."""
    return page.evaluate(REPLAY, stored)


def _same(report: str, expected: str) -> bool:
    """Tell whether two texts hold the same numbers, to the bit; 1 and 1.0 are one number."""
    return bool(json.loads(report) == json.loads(expected))


def _alike(found: Any, stored: Any) -> None:
    """Compare vectors; the last bits of a linear programme's table are those of the machine that solved it."""
    for own, other in zip(found, stored, strict=True):
        if own["mechanism"] == "optimal-graded" and own["table"] != other["table"]:
            assert np.allclose(own["table"]["rows"], other["table"]["rows"], rtol=1e-9, atol=2.0**20)
        else:
            assert own == other


@pytest.mark.long
def test_the_vectors_are_what_python_does(stored: Any) -> None:
    _alike(vectors(), stored)


@pytest.mark.long
@pytest.mark.parametrize("blocks", [range(1), pytest.param(range(1, BLOCKS), marks=pytest.mark.long)], ids=str)
def test_the_many_vectors_are_what_python_does(blocks: range) -> None:
    """clients/js makes the bits of 10,500 draws of which Python made these digests; node's tests compare them."""
    many_stored = json.loads(MANY_FILE.read_text(encoding="utf-8"))
    assert sum(law["draws"] * len(law["digests"]) for law in many_stored) >= 10_000
    stored = [law | {"digests": law["digests"][blocks.start : blocks.stop]} for law in many_stored]
    _alike(json.loads(json.dumps(many(blocks))), stored)


@pytest.mark.long
def test_the_drawn_vectors_are_what_python_does() -> None:
    """clients/js draws the same from the same signatures; node's tests compare."""
    stored = json.loads(DRAWN_FILE.read_text(encoding="utf-8"))
    assert json.loads(json.dumps(drawn_vectors())) == stored
    drawn = {one["campaign"]["spec"]["mechanism"] for one in stored if "mechanism" in one["campaign"]["spec"]}
    assert drawn >= {"olh", "wheel", "drawn-option", "pem", "sampled-attributes"}


@pytest.mark.long
def test_a_browser_draws_the_same_reports(replayed: Any, stored: Any) -> None:
    for law, done in zip(stored, replayed, strict=True):
        for draw, made in zip(law["draws"], done["reports"], strict=True):
            assert _same(made["report"], draw["report"]), (law["mechanism"], draw)
            assert made["used"] == len(draw["words"]), (law["mechanism"], draw)


@pytest.mark.long
def test_other_words_give_other_reports(page: Page, stored: Any) -> None:
    """The twin: with their words exchanged, vectors of every mechanism fail."""
    changed = copy.deepcopy(stored)
    for law in changed:
        words = [draw["words"] for draw in law["draws"]]
        for draw, other in zip(law["draws"], words[-1:] + words[:-1], strict=True):
            draw["words"] = other + draw["words"] * 2
    failed = {
        law["mechanism"]
        for law, done in zip(stored, page.evaluate(REPLAY, changed), strict=True)
        for draw, made in zip(law["draws"], done["reports"], strict=True)
        if not _same(made["report"], draw["report"])
    }
    assert failed == {law["mechanism"] for law in stored}


@pytest.mark.long
def test_a_browser_answers_every_kind_of_question_as_python_does(page: Page) -> None:
    """Codings, sections and draws are the same, and the law is the very one that the certificate of the survey has."""
    stored = json.loads(SURVEY_FILE.read_text(encoding="utf-8"))
    assert json.loads(json.dumps(survey_vectors())) == stored
    for vector, done in zip(stored, page.evaluate(SURVEYS, stored), strict=True):
        asked = [one["name"] for one in vector["campaign"]["attributes"]]
        assert done["hash"] == vector["law_sha256"], asked
        for draw, made in zip(vector["draws"], done["reports"], strict=True):
            assert _same(made["report"], draw["report"]), (asked, draw)
            assert made["used"] == len(draw["words"]), (asked, draw)


def test_the_law_that_is_drawn_from_is_the_certified_one(page: Page, replayed: Any, stored: Any) -> None:
    hashes = page.evaluate("laws => Promise.all(laws.map(verify.lawHash))", [done["law"] for done in replayed])
    assert hashes == [law["law_sha256"] for law in stored]


def test_words_of_the_browser_itself(page: Page) -> None:
    """Reports from WebCrypto's words follow the law: a chi-square that an honest page exceeds once in a million."""
    law = GeneralizedRandomizedResponse(epsilon=1.0, domain=Categorical(20))
    draws = """(table) => {
      const categories = Array.from({ length: 20 }, (_, at) => String(at));
      const law = laws.readLaw(table, [{ name: "q", categories }]);
      return Array.from({ length: 20000 }, () => law.draw([3]));
    }"""
    counts = np.bincount(page.evaluate(draws, law.table()), minlength=20)
    expected = 20000 * np.exp(law.log_prob(np.arange(20), 3))
    assert np.square(counts - expected) @ (1 / expected) < chdtri(19, 1e-6)
    assert np.square(counts - 1000) @ np.full(20, 1e-3) > chdtri(19, 1e-6), "the twin: it is no uniform law"


def test_a_browser_reckons_what_a_table_spends(replayed: Any, stored: Any) -> None:
    """The epsilon that the page computes from the table is the one that Python states, or a little less."""
    for law, done in zip(stored, replayed, strict=True):
        assert math.isclose(done["spends"], law["epsilon"], rel_tol=1e-6), law["mechanism"]
        assert done["spends"] <= law["epsilon"], law["mechanism"]


def _blinded(page: Page, vectors: Any) -> list[Any]:
    """Let the browser go through blind tokens."""
    return [step for key in page.evaluate(BLIND, vectors) for step in key]


def test_a_browser_blinds_as_python_does(page: Page) -> None:
    """Token, key and factor give the same blinded token, and what is unblinded is OpenSSL's signature of the token."""
    stored = blind_vectors.stored()
    assert [blind_vectors.vector(SigningKey(base64.b64decode(one["pem"]))) for one in stored] == stored
    expected = [
        {name: step[name] for name in ("blinded", "inverse", "signature")} for one in stored for step in one["steps"]
    ]
    assert _blinded(page, stored) == expected


def test_a_browser_finds_out_what_is_not_signed(page: Page) -> None:
    """The twin: with the signatures of two tokens exchanged, or another key's, nothing is taken for a signature."""
    first, second = blind_vectors.stored()
    exchanged, others = copy.deepcopy(first), copy.deepcopy(first)
    for place, step in enumerate(exchanged["steps"]):
        step["signed"] = first["steps"][place - 1]["signed"]
        others["steps"][place]["signed"] = second["steps"][place]["signed"]
    found = _blinded(page, [exchanged, others])
    assert all("Do not answer" in step["signature"] for step in found)
    for wrong in ("", "xyz", first["modulus"][:-2], first["modulus"] + "01", first["modulus"][:-1] + "2"):
        with pytest.raises(Error, match="odd modulus of 2048 bits"):
            page.evaluate("text => blind.readModulus(text)", wrong)
    for odd in (0, 2**2048 + 1, int(first["modulus"], 16) - 1):
        with pytest.raises(ValueError, match="odd modulus of 2048 bits"):
            VerifyingKey(odd)


def test_a_browser_blinds_anew_each_time(page: Page) -> None:
    """Its own factors differ, lie all over the range, and what they hide is signed by Python all the same."""
    one = blind_vectors.stored()[0]
    key, token = SigningKey(base64.b64decode(one["pem"])), bytes(32)
    steps = [{"token": token.hex(), "signed": "00"}] * 40
    found = _blinded(page, [{"modulus": one["modulus"], "steps": steps}])
    assert len({step["blinded"] for step in found}) == 40
    # a fair first bit falls on one side 40 times out of 40 with probability 2 ** -39 < 1e-6
    high = sum(int(step["inverse"], 16) > key.public.modulus // 2 for step in found)
    assert 0 < high < 40
    for step in found[:3]:
        signed = key.sign(bytes.fromhex(step["blinded"]))
        assert key.public.finish(token, signed, int(step["inverse"], 16)).hex() == one["steps"][0]["signature"]


def test_the_sealed_vectors_are_what_python_does() -> None:
    assert seal_vectors.vectors() == json.loads(seal_vectors.FILE.read_text(encoding="utf-8"))
    for number, changes in enumerate(seal_vectors.CHANGES):
        vector, sealed = seal_vectors.steps(number, changes)
        opened = seal_vectors.server(number).open(sealed, bytes.fromhex(vector["found"]["label"]))
        assert opened.rstrip().decode() == vector["given"]["body"]


def test_a_browser_seals_the_same(page: Page) -> None:
    vectors = json.loads(seal_vectors.FILE.read_text(encoding="utf-8"))
    assert page.evaluate(SEAL, vectors) == [one["found"] for one in vectors]


@pytest.mark.parametrize(
    ("field", "steps"),
    [
        ("body", {"sealed", "frame", "headers"}),
        ("report", {"length", "sealed", "frame", "headers"}),
        ("period", {"label", "sealed", "frame", "headers"}),
        ("once", {"sealed", "frame", "headers"}),
        ("key", {"sealed", "frame", "headers"}),
        ("secret", {"headers"}),
    ],
)
def test_every_step_depends_on_what_it_should(page: Page, field: str, steps: set[str]) -> None:
    """The twin: with one thing of another vector, the steps that follow from it change and no others."""
    first, *_, other = json.loads(seal_vectors.FILE.read_text(encoding="utf-8"))[:4]
    changed = {"given": first["given"] | {field: other["given"][field]}}
    if field == "report":
        changed["given"]["report"] = "[1,2,3]"
    if field == "body":
        changed["given"]["body"] = first["given"]["body"].replace('"version":1', '"version":2')
    (made,) = page.evaluate(SEAL, [changed])
    assert {name for name, value in made.items() if value != first["found"][name]} == steps


def test_a_sealed_report_that_is_too_long(page: Page) -> None:
    with pytest.raises(Error, match="Expected a report of at most 2592 bytes, got 3000"):
        page.evaluate("seal.pad('1', 'x'.repeat(3000))")
