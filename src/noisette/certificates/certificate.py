"""Write a certificate: the law that reports are drawn by, what is promised of it, and the hashes that bind both.

The sampler of a mechanism draws by the numbers of its law and by nothing else (`BaseMechanism.written_law`): what the
verifier proves of these numbers it proves of the reports. No certificate leaves here that the verifier does not prove.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from noisette import _files
from noisette.auditing.exact import worst_pair
from noisette.core import Mechanism
from noisette.guarantees import Guarantee
from noisette.mechanisms.written import tagged, texts


class CertificateError(ValueError):
    """What was asked for cannot be certified, or a certificate does not prove what it should."""


@dataclass(frozen=True)
class Certificate:
    """The JSON text of a certificate; every number in it is a text, so that no reader rounds one.

    >>> from noisette import Categorical, GeneralizedRandomizedResponse
    >>> print(certify(GeneralizedRandomizedResponse(epsilon=1.0, domain=Categorical(3))).verdict.proved)
    True
    """

    text: str

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Certificate:
        """Read a file; `verdict` says whether it proves anything."""
        return cls(Path(path).read_text(encoding="utf-8"))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the text to a file."""
        with _files.whole_file(path) as file:
            file.write(self.text.encode())

    @property
    def verdict(self) -> Any:
        """What the verifier says: ``proved``, the ``reason``, and the ``lines`` of the proof."""
        import noisette_verify

        return noisette_verify.verify(self.text)

    @property
    def fields(self) -> dict[str, Any]:
        """The parsed text."""
        found: dict[str, Any] = json.loads(self.text)
        return found

    @property
    def law_sha256(self) -> str:
        """Hash of the law."""
        return str(self.fields["law_sha256"])

    def spec(self) -> dict[str, Any]:
        """Return the description of what was certified, with its numbers as `from_spec` reads them."""
        found: dict[str, Any] = _untagged(self.fields["spec"])
        return found

    def check(self, subject: Any) -> None:
        """Refuse unless the verifier proves the certificate and it is about this very mechanism or survey."""
        verdict = self.verdict
        if not verdict.proved:
            raise CertificateError(f"The certificate is not proved: {verdict.reason} Do not rely on it.")
        fields, law = self.fields, texts(subject.written_law())
        for name, own in (("spec", tagged(subject.spec())), ("law", law), ("domain", texts(subject.domain.spec()))):
            if fields[name] != own:
                raise CertificateError(
                    f"The certificate is proved, but its {name} is not that of what is built here: "
                    "reports would follow another law than the certified one. Ask for a certificate of this version."
                )


def certify(subject: Any, *, epsilon: float | None = None, delta: float | None = None) -> Certificate:
    """Return a certificate of a mechanism, a survey, a campaign or a run, which `noisette-verify` proves.

    What is promised is ``epsilon`` and ``delta``, by default what was published of the method, which for all but the
    forms ``as_published`` is its guarantee. What cannot be proved is refused: a false claim with the pair of inputs
    that refutes it.

    >>> from noisette import Laplace
    >>> certificate = certify(Laplace(epsilon=1.0))
    >>> print(certificate.verdict.reason)  # doctest: +ELLIPSIS
    epsilon 1: whatever two values a person may hold, ...
    >>> certify(Laplace(epsilon=1.0), epsilon=0.9)
    Traceback (most recent call last):
    ...
    noisette.certificates.certificate.CertificateError: laplace is not 0.9-DP, ...
    """
    name = getattr(subject, "name", "the survey")
    guarantee: Guarantee = subject.guarantee
    claim, law = guarantee.claim, texts(subject.written_law())
    if epsilon is None and claim is not None and not guarantee.claim_holds:
        refuted = _refutation(subject, Fraction(claim.epsilon), Fraction(claim.delta))
        stated = f"({claim.epsilon:g}, {claim.delta:g})-DP" if claim.delta else f"{claim.epsilon:g}-DP"
        raise CertificateError(
            f"{name} is not {stated} per {claim.unit}, as its source claims. Certify the sound form.{refuted}"
        )
    if law is None:
        raise CertificateError(f"{name} cannot be certified yet: {subject.uncertified}. Audit it instead.")
    wanted = Fraction(epsilon if epsilon is not None else claim.epsilon if claim else guarantee.epsilon)
    slack = Fraction(delta if delta is not None else claim.delta if claim else guarantee.delta)
    promise: dict[str, Any] = {"epsilon": wanted, "delta": slack, "matrix": guarantee.matrix}
    promise |= {term: getattr(guarantee, term) for term in ("unit", "model", "relation")}
    given = {"spec": tagged(subject.spec()), "domain": texts(subject.domain.spec()), "guarantee": texts(promise)}
    certificate, verdict = _proved(json.dumps(given | {"law": law}))
    if not verdict.proved:
        refuted = _refutation(subject, wanted, slack)
        raise CertificateError(f"{name} is not {Guarantee(float(wanted), float(slack))}: {verdict.reason}{refuted}")
    return certificate


def check_promise(subject: Any) -> bool:
    """Refuse what does not keep its guarantee, by the verifier's word; tell whether the verifier knows its law.

    A device asks this of a survey before it answers: what it proves is the law that it is about to draw by.
    """
    if subject.written_law() is None:
        return False
    certify(subject, epsilon=subject.guarantee.epsilon, delta=subject.guarantee.delta)
    return True


@lru_cache(maxsize=128)
def _proved(given: str) -> tuple[Certificate, Any]:
    """Return the certificate of a spec, a domain, a law and a promise, and what the verifier says of it."""
    import noisette_verify

    fields = json.loads(given) | {"format": noisette_verify.FORMAT, "version": noisette_verify.VERSION}
    fields |= {f"{what}_sha256": noisette_verify.digest(fields[what]) for what in ("spec", "law")}
    proof = noisette_verify.Proof()
    try:
        proof.loss(fields["law"], fields["domain"])
    except ValueError as reason:
        raise CertificateError(f"It cannot be certified. {reason}") from None
    fields["theorems"] = sorted(proof.theorems)
    fields["sha256"] = noisette_verify.digest(fields)
    certificate = Certificate(json.dumps(fields, sort_keys=True, indent=1, ensure_ascii=False) + "\n")
    return certificate, certificate.verdict


def _refutation(subject: Any, epsilon: Fraction, delta: Fraction) -> str:
    """Return what refutes an epsilon and a delta, if something does: two inputs, and a report that distinguishes
    them."""
    if not isinstance(subject, Mechanism):
        return ""
    holds = f". What holds is {subject.guarantee}."
    if delta == 0:
        gap, one, other, report = _witnessed(subject)
        if gap > epsilon:
            shown = f"the report {report} is exp({gap:.6g}) times as likely for {one} as for {other}"
            return f" Refuted: {shown}{holds}"
    chance, *pair = worst_pair(subject, float(epsilon))
    if not chance > delta * (1 + Fraction(1, 10**9)) + Fraction(1, 10**12):  # which the calculator may be off by
        return ""
    one, other = (np.asarray(value).tolist() for value in pair)
    times = f"exp({float(epsilon):g}) times its chance for {other} by {chance:.3g}; at most {float(delta):g} is claimed"
    return f" Refuted: a set of reports has a chance for {one} that exceeds {times}{holds}"


def _witnessed(subject: Mechanism) -> tuple[float, Any, Any, Any]:
    """Return the largest log ratio among the witnesses, the two inputs and the report, in plain numbers."""
    inputs, reports = subject.witnesses()
    best: tuple[float, Any, Any, Any] = (-math.inf, None, None, None)
    for report in reports:
        masses = [float(np.squeeze(subject.log_prob(report, one))) for one in inputs]
        most, least = int(np.argmax(masses)), int(np.argmin(masses))
        best = max(best, (masses[most] - masses[least], inputs[most], inputs[least], report), key=lambda row: row[0])
    gap, one, other, report = best
    return gap, *(np.asarray(value).tolist() for value in (one, other, report))


def _untagged(value: Any) -> Any:
    """Return a description with its numbers back."""
    if isinstance(value, Mapping):
        if set(value) == {"number"}:
            return float(Fraction(value["number"]))
        if set(value) == {"integer"}:
            return int(value["integer"])
        return {key: _untagged(inner) for key, inner in value.items()}
    return [_untagged(inner) for inner in value] if isinstance(value, list) else value
