"""Which clients are asked in a round."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from noisette import _validate
from noisette._random import Rng, generator


def rounds_of_one(rounds: int, clients_per_round: int, clients: int) -> int:
    """Return in how many of ``rounds`` one client takes part at most if all take part equally often.

    >>> rounds_of_one(10, 100, 1000)
    1
    """
    per_round = min(_validate.integer(clients_per_round, "clients_per_round", low=1), clients)
    return min(rounds, math.ceil(rounds * per_round / _validate.integer(clients, "clients", low=1)))


def draw(
    available: Iterable[int], taken_part: Mapping[int, int], *, number: int, most: int, rng: Rng = None
) -> list[int]:
    """Return up to ``number`` of the available clients, at random among those that took part least often.

    Clients that took part ``most`` times are left out: they have nothing left to give. So ``number`` of n clients a
    round take part equally often, and a run costs each of them no more rounds than `rounds_of_one` says.

    >>> sorted(draw([1, 2, 3, 4], {1: 1, 2: 1, 3: 2}, number=3, most=2, rng=7))
    [1, 2, 4]
    """
    number, most = _validate.integer(number, "number", low=1), _validate.integer(most, "most", low=1)
    fit = sorted({node for node in available if taken_part.get(node, 0) < most})
    source = generator(rng)
    order = source.permutation(len(fit))
    ranked = sorted((taken_part.get(fit[i], 0), place) for place, i in enumerate(order))
    return [fit[order[place]] for _, place in ranked[:number]]
