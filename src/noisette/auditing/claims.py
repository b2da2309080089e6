"""What was published of a method, what holds, and what its reports show."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from noisette._random import Rng
from noisette.auditing.blackbox import audit, claim_of
from noisette.auditing.exact import exact_epsilon
from noisette.core import Mechanism
from noisette.guarantees import PrivacyWarning
from noisette.mechanisms import CATALOGUE
from noisette.mechanisms._base import BaseMechanism

_ROUNDING = 1e-9  # by which an exact epsilon may pass the claim
_SUMMED = 1e-6  # the same where it is found at a delta, by bisection on a sum


@dataclass(frozen=True)
class Finding:
    """One method: the epsilon and delta claimed for its unit, the exact epsilon, the black box's lower bound.

    ``form`` distinguishes a published form from the method itself: "as published", or by which of several calibrations.
    ``published`` is what ``source``, a key of the bibliography, states, with the unit it states it for; ``reading`` is
    how it was read, where it leaves a choice. ``model`` and ``relation`` say whom one trusts, and what is hidden.
    ``verdict`` is "violated" if either the exact epsilon or the lower bound is above what is claimed, else "holds". The
    bound is right with probability ``confidence`` at least; ``mu_lower_bound`` is that of a Gaussian guarantee.
    """

    method: str
    as_published: bool
    form: str
    unit: str
    model: str
    relation: str
    source: str
    reading: str
    published: str
    claimed: float
    delta: float
    exact_epsilon: float
    lower_bound: float
    mu_lower_bound: float
    confidence: float
    samples: int
    verdict: str

    def spec(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        return asdict(self)


def examine(mechanism: Mechanism, *, samples: int = 200_000, confidence: float = 0.999, rng: Rng = None) -> Finding:
    """Hold what is claimed of a mechanism against the exact calculator and the black-box auditor.

    >>> from noisette import Duchi
    >>> finding = examine(Duchi(epsilon=1.0), samples=20_000, rng=7)
    >>> finding.claimed, round(finding.exact_epsilon, 6), finding.verdict
    (1.0, 1.0, 'holds')
    """
    guarantee, claim = mechanism.guarantee, claim_of(mechanism)
    exact = exact_epsilon(mechanism, delta=claim.delta)
    seen = audit(mechanism, samples=samples, confidence=confidence, rng=rng)
    slack = claim.epsilon * (_SUMMED if claim.delta > 0 else _ROUNDING)
    violated = exact > claim.epsilon + slack or seen.lower_bound > claim.epsilon
    source = guarantee.claim
    citation = mechanism.citation if isinstance(mechanism, BaseMechanism) else ""
    return Finding(
        method=mechanism.name,
        as_published=isinstance(mechanism, BaseMechanism) and mechanism.as_published,
        form=form_of(mechanism),
        unit=guarantee.unit,
        model=guarantee.model,
        relation=guarantee.relation,
        source=citation if source is None else source.source,
        reading="" if source is None else source.reading,
        published="nothing" if source is None else f"{budget(source.epsilon, source.delta)} per {source.unit}",
        claimed=claim.epsilon,
        delta=claim.delta,
        exact_epsilon=exact,
        lower_bound=seen.lower_bound,
        mu_lower_bound=seen.mu_lower_bound,
        confidence=confidence,
        samples=seen.samples,
        verdict="violated" if violated else "holds",
    )


def forms(epsilon: float) -> Iterator[Mechanism]:
    """Return an example of every entry of the catalogue, and its published forms where those are others."""
    for cls in CATALOGUE.values():
        example = cls.example(epsilon)
        yield example
        if "as_published" in {field.name for field in fields(cls)}:
            yield published_form(example)
        if isinstance(example, BaseMechanism):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", PrivacyWarning)
                others = example.published_forms(epsilon)
            yield from others


def form_of(mechanism: Mechanism) -> str:
    """Return what sets a published form apart from the method itself; empty for the method."""
    return mechanism.form if isinstance(mechanism, BaseMechanism) else ""


def published_form(mechanism: Any) -> Any:
    """Return a mechanism as its source prints it, without the warning that the table gives anyway."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyWarning)
        return replace(mechanism, as_published=True)


def examine_all(
    epsilon: float = 1.0,
    *,
    samples: int = 200_000,
    confidence: float = 0.999,
    advance: Callable[[float], None] = lambda share: None,
    rng: int = 7,
) -> list[Finding]:
    """Examine every entry of the catalogue; ``advance`` is called with the share that is done."""
    found, every = [], list(forms(epsilon))
    for number, mechanism in enumerate(every):
        found.append(examine(mechanism, samples=samples, confidence=confidence, rng=rng))
        advance((number + 1) / len(every))
    return found


def budget(epsilon: float, delta: float) -> str:
    """Write a budget with six digits, which hide rounding to the private side."""
    shown = "∞" if math.isinf(epsilon) else f"{epsilon:.6g}"
    return shown if delta == 0 else f"({shown}, {delta:g})"
