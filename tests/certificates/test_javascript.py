"""The verifier for web pages says in a real browser what the one in Python says."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("playwright")
from playwright.sync_api import Browser, Page, Route
from tests.certificates.test_certificates import FORGED, MANY, elsewhere, example, forged, sound_ones, written
from tests.certificates.test_forger import composed_ones, issued, of_two_units

import noisette as nz
import noisette_verify
from noisette.certificates import TrainingRun, certify
from noisette.collector.web.pages import CLIENT

HOST = "https://noisette.test"  # WebCrypto hashes on pages of https alone
VECTORS = json.loads(Path(noisette_verify.__file__).with_name("vectors.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def page(browser: Browser) -> Iterator[Page]:
    """A page that has loaded the verifier, and nothing else."""

    def serve(route: Route) -> None:
        asked = route.request.url.removeprefix(f"{HOST}/")
        script = CLIENT.joinpath(asked).read_text(encoding="utf-8") if asked.endswith(".js") else None
        route.fulfill(
            content_type="text/html" if script is None else "text/javascript",
            body=script or "<!doctype html><title>t</title>",
        )

    shown = browser.new_context().new_page()
    shown.route("**/*", serve)
    shown.goto(f"{HOST}/")
    shown.evaluate("import('/verify.js').then(found => { globalThis.verifier = found; })")
    yield shown
    shown.close()


def verdicts(page: Page, texts: list[str]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = page.evaluate("texts => Promise.all(texts.map(verifier.verify))", texts)
    return found


def plain(sentence: str) -> str:
    """Write the numbers of a sentence in one way."""
    return re.sub(r"[0-9][0-9.e-]*[0-9]|[0-9]", lambda found: f"{float(found[0]):.6g}", sentence)


@pytest.mark.slow
def test_the_vectors_get_the_same_verdicts(page: Page) -> None:
    for vector, found in zip(VECTORS, verdicts(page, [one["certificate"] for one in VECTORS]), strict=True):
        expected = vector["proved"]
        assert found["proved"] is expected, (vector["made"], found["reason"])
        if expected:
            assert found["theorems"] == json.loads(vector["certificate"])["theorems"]
            same = noisette_verify.verify(
                vector["certificate"]
            ).reason  # the same sentence, but for how digits are written
            assert plain(found["reason"]) == plain(same)


def refused(page: Page, name: str, count: int) -> None:
    """Forge certificates of one entry until there are so many, and find all refused."""
    made = [pair for pair in forged(name, count, random.Random(f"13 {name}")) if len(pair[1]) < 100_000]
    assert len(made) > count // 2, "most are short enough for a page"
    # forged texts in the form in which certificates are written, or their form alone would betray them
    texts = [written(text) for _, text in made]
    for (done, _), found in zip(made, verdicts(page, texts), strict=True):
        assert found["proved"] is False, (name, done)


@pytest.mark.long
def test_forgeries_are_refused_in_a_page(page: Page) -> None:
    for name in FORGED:
        refused(page, name, 10)


@pytest.mark.long
@pytest.mark.parametrize("name", FORGED)
def test_many_forgeries_of_each_kind_are_refused_in_a_page(page: Page, name: str) -> None:
    refused(page, name, MANY)


@pytest.mark.slow
@pytest.mark.parametrize("count", [40, pytest.param(MANY, marks=pytest.mark.long)])
def test_sound_mechanisms_are_not_refused_in_a_page(page: Page, count: int) -> None:
    texts = [certify(mechanism).text for mechanism in sound_ones(count, seed=17)]
    for text, found in zip(texts, verdicts(page, texts), strict=True):
        assert found["proved"], (found["reason"], text)


def test_a_page_says_which_epsilon_is_beyond_it(page: Page) -> None:
    text = certify(TrainingRun(0.57, 0.34, 2400, 1e-7)).text
    assert noisette_verify.verify(text).proved
    [found] = verdicts(page, [text])
    assert not found["proved"]
    assert "no epsilon above 1000; noisette-verify does" in found["reason"]


def test_groups_and_questions_may_be_named_by_digits(page: Page) -> None:
    """A page's objects put such keys first, as 9 before 10; the text that is hashed has them in the order of texts."""
    for groups in ({"2024": ["a", "b"]}, {"10": ["a", "b"], "9": ["c", "d"], "007": ["e", "f"], "\U0001f600": ["g"]}):
        asked = [nz.Choice("1", ["x", "y"]), nz.Choice("12", ["x", "y"]), nz.Choice("b", ["x", "y"])]
        survey = nz.Survey(asked, epsilon=1.0, groups=groups, mechanism=dict.fromkeys(["1", "12", "b"], "grr"))
        text = certify(survey).text
        assert noisette_verify.verify(text).proved
        changed, other = text.replace('"x"', '"z"', 1), json.dumps(dict(reversed(json.loads(text).items())), indent=1)
        assert [one["proved"] for one in verdicts(page, [text, changed, other])] == [True, False, False]


def test_the_domain_is_that_of_the_spec_in_a_page(page: Page) -> None:
    for pair in elsewhere():
        assert [one["proved"] for one in verdicts(page, list(pair))] == [True, False]


def test_the_unit_of_one_part_is_not_that_of_all_in_a_page(page: Page) -> None:
    for found in verdicts(page, of_two_units()):
        assert not found["proved"]
        assert "another unit" in found["reason"]


def test_one_unit_past_the_bound_is_refused_in_a_page(page: Page) -> None:
    fields = certify(example("grr", 1.0)).fields
    for change, proved in ((0, True), (400, False)):  # float64 leaves some 2^-46 of epsilon
        law = fields["law"] | {"keep": str(int(fields["law"]["keep"]) + change)}
        made = fields | {"law": law, "law_sha256": noisette_verify.digest(law)}
        made["sha256"] = noisette_verify.digest({key: value for key, value in made.items() if key != "sha256"})
        text = json.dumps(made, sort_keys=True, indent=1)
        assert noisette_verify.verify(text).proved is proved
        assert verdicts(page, [text])[0]["proved"] is proved


@pytest.mark.long
@pytest.mark.parametrize("count", [150, pytest.param(5 * MANY, marks=pytest.mark.long)])
def test_a_malicious_issuer_hears_the_same_from_both(page: Page, count: int) -> None:
    made = issued(random.Random(37), count)
    for (done, text), found in zip(made, verdicts(page, [text for _, text in made]), strict=True):
        assert found["proved"] is noisette_verify.verify(text).proved, (done, found["reason"])


@pytest.mark.slow
@pytest.mark.parametrize("count", [200, pytest.param(20 * MANY, marks=pytest.mark.long)])
def test_laws_made_of_laws_get_the_same_verdicts(page: Page, count: int) -> None:
    made = composed_ones(random.Random(43), count)
    for text, found in zip(made, verdicts(page, made), strict=True):
        if "no epsilon above 1000" not in found["reason"]:  # which the page says it does not prove
            assert found["proved"] is noisette_verify.verify(text).proved, (found["reason"], text)
