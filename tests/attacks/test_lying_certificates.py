"""Certificates that lie where nobody looked: both verifiers proved the first three of these kinds, or one did."""

from __future__ import annotations

import json
from typing import Any

import noisette as nz
import noisette_verify as verifier

PROMISE = {"epsilon": "1", "delta": "0", "matrix": None, "unit": "record", "model": "local", "relation": "any-pair"}
CODES = {"kind": "keep-or-replace", "size": "2", "keep": "3", "other": "2"}
TWO = {"kind": "categorical", "size": "2", "labels": None}


def verdict(law: Any, domain: Any, **promise: Any) -> Any:
    """Return what the verifier says of a certificate with right hashes and the theorems of its law."""
    proof = verifier.Proof()
    try:
        proof.loss(law, domain)
    except ValueError as error:
        return verifier.Verdict(False, str(error))
    made = {"format": verifier.FORMAT, "version": verifier.VERSION, "spec": {"domain": domain}, "domain": domain}
    made |= {"guarantee": PROMISE | promise, "law": law, "theorems": sorted(proof.theorems)}
    made |= {f"{part}_sha256": verifier.digest(made[part]) for part in ("spec", "law")}
    return verifier.verify(json.dumps(made | {"sha256": verifier.digest(made)}))


def test_sets_are_not_longer_than_their_items() -> None:
    """Sets of 8 of 5 items were proved: the count of sets without an own item was a product of negative numbers."""
    domain = {"kind": "selection", "size": "3", "most": "2", "labels": None}
    law = {"kind": "meeting-sets", "items": "5", "most": "2", "length": "2", "meeting": str(2**52)}
    assert verdict(law, domain, epsilon="2").proved
    for length in ("4", "5", "6", "8", "9"):
        assert not verdict(law | {"length": length}, domain, epsilon="99").proved


def test_a_domain_names_as_many_categories_as_the_law_has() -> None:
    """Two categories were proved for a domain whose labels are three: a person reads the labels."""
    assert verdict(CODES, TWO).proved
    assert verdict(CODES, TWO | {"labels": ["a", "b"]}).proved
    for labels in (["a", "b", "c"], ["a"], [], "ab", {}):
        assert not verdict(CODES, TWO | {"labels": labels}).proved
    answers = {"kind": "drawn-answers", "options": "2", "true": str(2**52 + 2**50)}
    chosen = {"kind": "selection", "size": "2", "most": "1", "labels": ["a", "b"]}
    assert verdict(answers, chosen, epsilon="2").proved
    assert not verdict(answers, chosen | {"labels": ["a", "b", "c"]}, epsilon="2").proved


def test_a_record_names_as_many_questions_as_it_has_laws() -> None:
    law = {"kind": "record", "report": "1", "parts": [CODES]}
    domain = {"kind": "attributes", "parts": [TWO], "names": ["smoker"]}
    assert verdict(law, domain).proved
    for other in ({"names": ["smoker", "weight"]}, {"names": []}, {"more": [TWO]}, {"kind": "record"}):
        assert not verdict(law, domain | other).proved


def test_a_guarantee_says_nothing_more() -> None:
    """A field `kind` was ignored in a guarantee, whatever it said."""
    assert not verdict(CODES, TWO, kind="perfect secrecy").proved


def test_levels_are_those_that_are_drawn() -> None:
    """Levels that lie nearer to each other than the sampler's, or noise that is less alike, is another law."""
    graded = nz.GradedLaplace(edges=[-1, -0.6, 0, 1], epsilons=[3.0, 2.0, 1.0], delta=1e-6)
    fields = nz.certify(graded).fields
    noise, promise = fields["law"]["noise"], fields["guarantee"]
    for field, values in (
        ("rates", ["4/67108864", *noise["rates"][1:]]),
        ("highs", ["67108864", *noise["highs"][1:]]),
        ("lows", ["0", "0", "0"]),
    ):
        law = fields["law"] | {"noise": noise | {field: [str(verifier.Fraction(one)) for one in values]}}
        assert not verdict(law, fields["domain"], **promise).proved
    assert verdict(fields["law"], fields["domain"], **promise).proved
    matrix = [list(row) for row in promise["matrix"]]
    matrix[0][1] = str(verifier.Fraction(matrix[0][1]) * verifier.Fraction(999, 1000))
    assert not verdict(fields["law"], fields["domain"], **promise | {"matrix": matrix}).proved
