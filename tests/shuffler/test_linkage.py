"""What linked fragments cost: the stated guarantee against enumeration, and the one that forgets links rejected."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict

import pytest
from scipy.stats import binom

import noisette as nz
from noisette.accounting import compose, shuffled
from noisette.guarantees import Guarantee
from noisette.shuffler import PacketLayout, shuffled_blocks

Bits = tuple[int, ...]


def _view(people: list[Bits], epsilon: float) -> dict[Bits, float]:
    """Return the law of what the server sees of one block: how often each string of bits was sent."""
    keep = 1 / (1 + math.exp(-epsilon))
    texts = list(itertools.product((0, 1), repeat=len(people[0])))
    law = {(0,) * len(texts): 1.0}
    for own in people:
        after: dict[Bits, float] = defaultdict(float)
        for counts, mass in law.items():
            for index, sent in enumerate(texts):
                chance = math.prod(keep if a == b else 1 - keep for a, b in zip(own, sent, strict=True))
                after[(*counts[:index], counts[index] + 1, *counts[index + 1 :])] += mass * chance
        law = after
    return law


def _delta(first: dict[Bits, float], second: dict[Bits, float], epsilon: float) -> float:
    """Return the least delta at an epsilon, over both directions."""
    sides = ((first, second), (second, first))
    return max(sum(max(0.0, mass - math.exp(epsilon) * b[seen]) for seen, mass in a.items()) for a, b in sides)


@pytest.mark.parametrize("others", [(0, 0), (0, 1)])
@pytest.mark.parametrize(("clients", "delta"), [(5, 0.05), (20, 0.01)])
def test_pairs_of_linked_bits_by_enumeration(clients: int, delta: float, others: Bits) -> None:
    stated = shuffled_blocks(Guarantee(epsilon=1.0), PacketLayout(2, 2), clients=clients, delta=delta)
    views = [_view([own, *[others] * (clients - 1)], 1.0) for own in ((0, 0), (1, 1))]
    assert _delta(*views, stated.epsilon) <= delta
    assert _delta(*views, 0.05) > delta  # it is not that nothing can be learnt


def _standing_out(ones: int, clients: int, batch: int, epsilon: float, least: int) -> float:
    """Return the chance that some packet has ``least`` ones, if one client's bits are all ones or all zeros."""
    keep = 1 / (1 + math.exp(-epsilon))
    own = float(binom.sf(least - 1, batch, keep if ones else 1 - keep))
    other = float(binom.sf(least - 1, batch, 1 - keep))
    return 1 - (1 - own) * (1 - other) ** (clients - 1)


def test_a_statement_that_forgets_the_links_is_false() -> None:
    """Eight linked bits stand out of 200 packets: the linked statement allows it, the other one does not."""
    epsilon, clients, delta = 2.0, 200, 1e-3
    with_one, without = (_standing_out(ones, clients, 8, epsilon, 6) for ones in (1, 0))

    def broken(stated: Guarantee) -> bool:
        return with_one > math.exp(stated.epsilon) * without + delta

    linked = shuffled_blocks(Guarantee(epsilon=epsilon), PacketLayout(8, 8), clients=clients, delta=delta)
    forgetful = shuffled_blocks(Guarantee(epsilon=epsilon), PacketLayout(8, 1), clients=clients, delta=delta)
    assert not broken(linked)
    assert broken(forgetful)


def test_what_is_composed() -> None:
    one = Guarantee(epsilon=0.05)
    layout = PacketLayout(dims=100, batch=10)
    stated = shuffled_blocks(one, layout, clients=500, delta=1e-6, rounds=3)
    assert stated.epsilon == shuffled(Guarantee(epsilon=0.5), 500, 1e-6, times=30).epsilon
    assert (stated.model, stated.relation, stated.unit, stated.delta) == ("shuffled", "replace", "record", 1e-6)
    whole = shuffled_blocks(one, PacketLayout(100, 100), clients=500, delta=1e-6)
    assert whole.epsilon == compose(one, 100, delta=1e-6).epsilon  # five of epsilon among 500 hide nothing
    single = shuffled_blocks(nz.Duchi(epsilon=1.0), PacketLayout(1, 1), clients=1000, delta=1e-6)
    assert single.epsilon == shuffled(nz.Duchi(epsilon=1.0), 1000, 1e-6).epsilon


def test_longer_blocks_never_help() -> None:
    found = [
        shuffled_blocks(Guarantee(epsilon=0.02), PacketLayout(60, batch), clients=300, delta=1e-6).epsilon
        for batch in (1, 2, 5, 20, 60)
    ]
    assert found == sorted(found)
    assert found[0] < found[-1]
