"""Laws and descriptions in the words of a certificate: JSON in which every number is a text, and its hash."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import numpy as np


def law_sha256(subject: Any) -> str:
    """Return the hash of the law by which a mechanism or a survey draws, as its certificate has it.

    It goes with every report and every file of reports: who reads them knows whether they were drawn by the law that
    estimates are computed for. What has no written law is named by the hash of its description.

    >>> from noisette import Categorical, GeneralizedRandomizedResponse
    >>> law_sha256(GeneralizedRandomizedResponse(epsilon=1.0, domain=Categorical(3)))[:16]
    '423294f70413a51c'
    """
    import noisette_verify

    law = subject.written_law()
    return str(noisette_verify.digest(tagged(subject.spec()) if law is None else texts(law)))


def other_law(own: str, stated: str | None) -> str:
    """Say why reports of a law are refused, "" where they are not: older reports state none."""
    if stated is None or stated == own:
        return ""
    return f"It is about the law {stated!s:.16}, and reports follow the law {own:.16} here. Use the version it is from."


def texts(value: Any) -> Any:
    """Return JSON in which every number is the text of a whole number or of a fraction in lowest terms."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, Mapping):
        return {key: texts(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [texts(inner) for inner in value]
    if isinstance(value, bool | np.bool_):
        return bool(value)
    return str(Fraction(value) if isinstance(value, Fraction | float) else int(value))


def tagged(value: Any) -> Any:
    """Return a description in which numbers are texts, marked as integers or real numbers."""
    if value is None or isinstance(value, str | bool):
        return value
    if isinstance(value, Mapping):
        return {key: tagged(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [tagged(inner) for inner in value]
    return {"number": str(Fraction(value))} if isinstance(value, float) else {"integer": str(int(value))}
