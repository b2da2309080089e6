"""Batches of reports in, one aggregate out; and an aggregate's portable text back."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from noisette._validate import IntArray
from noisette.core import Aggregate, decode_array
from noisette.domains import Attributes, Categorical, Domain, Selection, Texts
from noisette.mechanisms import from_spec
from noisette.mechanisms.build import MEANS

_FORMAT, _VERSION = "noisette-aggregate", 1
_REMEDY = "Give the whole text that Aggregate.to_json() returned."


def aggregate_stream(mechanism: Any, batches: Iterable[Any], *, names: Sequence[str] | None = None) -> Aggregate:
    """Aggregate any number of batches of reports, of which one is held at a time.

    The sums are integers: how the reports are cut into batches does not change a bit of the result.

    >>> from noisette import Duchi
    >>> m = Duchi(epsilon=1.0)
    >>> batches = (m.privatize([0.2, 0.4], rng=seed) for seed in range(1000))
    >>> aggregate_stream(m, batches).users
    2000
    """
    total: Aggregate | None = None
    for batch in batches:
        sums = mechanism.aggregate(batch)
        total = sums if total is None else total + sums
    if total is None:
        raise ValueError("Expected at least one batch of reports, got none.")
    return total if names is None else named(total, names)


def named(aggregate: Aggregate, names: Sequence[str] | None) -> Aggregate:
    """Return the aggregate with names for its dimensions."""
    if names is None:
        return aggregate
    return replace(aggregate, names=checked_names(aggregate.mechanism, names))


def checked_names(mechanism: Any, names: Sequence[str]) -> tuple[str, ...]:
    """Return one name for each quantity that a mechanism estimates."""
    size = quantities(mechanism.domain)
    if len(names) != size:
        raise ValueError(f"Expected {size} names of dimensions, got {len(names)}: {list(names)[:5]}.")
    return tuple(map(str, names))


def quantities(domain: Domain) -> int:
    """Return how many numbers an estimate over this domain has."""
    if isinstance(domain, Attributes):
        return sum(domain.groups)
    if isinstance(domain, Selection):
        return domain.size + 1  # and the number of options
    return domain.size if isinstance(domain, Categorical) else math.prod(domain.shape)


def load(text: str) -> Aggregate:
    """Read back the text of `Aggregate.to_json`, refusing what is foreign, truncated or impossible.

    >>> from noisette import Duchi
    >>> m = Duchi(epsilon=1.0)
    >>> aggregate = m.aggregate(m.privatize([0.2, 0.4], rng=7))
    >>> load(aggregate.to_json()) == aggregate
    True
    """
    fields = _fields(text)
    try:
        mechanism = from_spec(fields["mechanism"])
        users, names = fields["users"], fields["names"]
        count, total, squares = (decode_array(fields[name]) for name in ("count", "total", "squares"))
    except KeyError as error:
        raise ValueError(f"Expected a field {error} in an aggregate's text. {_REMEDY}") from error
    except (TypeError, ValueError, AttributeError) as error:
        raise ValueError(f"An aggregate's text is damaged: {error} {_REMEDY}") from error
    _check_sums(_size(mechanism), users, count, total, squares)
    return named(Aggregate(mechanism, users, count, total, squares), names)


def _fields(text: str) -> dict[str, Any]:
    """Parse the text and check that it is an aggregate of a version we know."""
    try:
        fields = json.loads(text)
    except (TypeError, ValueError) as error:
        raise ValueError(f"Expected an aggregate's text, got what is not JSON ({error}). {_REMEDY}") from error
    if not isinstance(fields, dict) or fields.get("format") != _FORMAT:
        raise ValueError(f"Expected JSON with format={_FORMAT!r}, got other JSON. {_REMEDY}")
    if fields.get("version") != _VERSION:
        raise ValueError(
            f"Expected version {_VERSION} of an aggregate's text, got {fields.get('version')!r}. "
            "Read it with the version of noisette that wrote it."
        )
    return fields


def _size(mechanism: Any) -> int:
    """Return how many sums of each kind a mechanism keeps: one for each quantity, or for each kind of report."""
    weights = mechanism.readout.weights
    if weights is not None:
        return int(weights.size)
    if isinstance(mechanism.domain, Texts):
        return int(mechanism.support.size)
    if mechanism.kind not in MEANS:  # what is estimated is not the value itself
        return int(np.size(mechanism.target(np.zeros(mechanism.domain.shape))))
    return quantities(mechanism.domain)


def _check_sums(size: int, users: Any, *sums: IntArray) -> None:
    """Refuse sums that no set of reports has."""
    if any(array.shape != (size,) for array in sums):
        raise ValueError(f"Expected {size} sums of each kind, got {[array.size for array in sums]}. {_REMEDY}")
    if isinstance(users, bool) or not isinstance(users, int) or users < 0:
        raise ValueError(f"Expected users={users!r} to be a whole number >= 0. {_REMEDY}")
    count, _, squares = sums
    if np.any(count < 0) or np.any(count > users) or np.any(squares < 0):
        raise ValueError(f"Expected counts from 0 to users={users} and squares >= 0. {_REMEDY}")
