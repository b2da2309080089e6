"""What stands behind a guarantee.

certified: our stand-alone verifier proves it from the law. audited: the exact calculator or a black-box audit was tried
and did not refute it. accounted: an accountant of composition states it. stated: its authors do, and no audit was run.
refuted: a number is above the claim.
"""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any

import noisette as nz
from benchmarks.board.frame import RESULTS, Evidence
from noisette.auditing.exact import NotALaw
from noisette.certificates import CertificateError

UNSEEN = "no audit of ours was run"
# methods of other libraries that the audit has under another name than the board
_AUDITED_AS = {
    "multi-freq-ldpy SS": "multi-freq-ldpy SS, as returned",
    "multi-freq-ldpy THE": "multi-freq-ldpy HE",
}


def case_of(method: str) -> str:
    """Return the name under which a method of another library is audited, where it is."""
    library, _, name = method.partition(" ")
    return _AUDITED_AS.get(method, f"pure-ldp 1.2.0 {name}" if library == "pure-ldp" else method)


def renewed(row: dict[str, Any]) -> dict[str, Any]:
    """Return a result with what audits say now, where none had been run when it was measured."""
    if not row["words"].endswith(UNSEEN):
        return row
    found = of_peer(case_of(row["method"]))
    return row | {"verdict": found.verdict, "words": found.words if found.verdict != "stated" else row["words"]}


def of(subject: Any) -> Evidence:
    """Return what stands behind a mechanism or a survey of ours, in any of its forms."""
    guarantee = subject.guarantee
    claim = guarantee.claim
    if claim is not None and not guarantee.claim_holds:
        return Evidence(
            "refuted",
            f"claims {_budget(claim)} per {claim.unit}; what holds is {_budget(guarantee)}",
            guarantee.epsilon,
        )
    try:
        nz.certify(subject, epsilon=guarantee.epsilon, delta=guarantee.delta)
    except CertificateError as error:
        if not hasattr(subject, "log_prob"):
            return Evidence("audited", f"not certified: {str(error)[:160]}")
        try:
            exact = nz.exact_epsilon(subject, delta=guarantee.delta)
        except (NotALaw, ValueError, NotImplementedError) as failure:
            return Evidence("audited", f"conformance checks only: {str(failure)[:120]}")
        return Evidence("audited", f"exact calculator: {exact:.6g}", float(f"{exact:.6g}"))
    return Evidence("certified", "noisette-verify proves it from the law")


def accounted(words: str) -> Evidence:
    """Return the word of an accountant."""
    return Evidence("accounted", words)


def of_peer(case: str) -> Evidence:
    """Return what the black-box audit of another library's method found, see examples/audit_peers.py."""
    found = audits().get(case)
    if found is None:
        return Evidence("stated", f"stated by its authors; {UNSEEN}")
    shown = max(found["lower_bound"], found["gaussian_bound"] or 0.0)
    if found["verdict"] == "violated":
        return Evidence("refuted", f"claims {found['claimed']:.4g}; its reports show at least {shown:.4g}", shown)
    return Evidence("audited", f"black box: at least {shown:.4g} of the claimed {found['claimed']:.4g}", shown)


@lru_cache(maxsize=1)
def audits() -> dict[str, Any]:
    """Return the audits of other libraries, as `make audit-peers ARGS=--json` prints them."""
    path = RESULTS / "audits.json"
    rows = json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
    return {f"{row['library']} {row['method']}": row for row in rows}


def _budget(guarantee: Any) -> str:
    return f"{guarantee.epsilon:.4g}" if guarantee.delta == 0 else f"({guarantee.epsilon:.4g}, {guarantee.delta:g})"
