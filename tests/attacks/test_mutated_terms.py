"""A Flower server that sends terms at random: whatever it asks for, what comes back does not depend on the client.

Each set of terms is an honest one with some values replaced, multiplied, taken away or added. Two clients whose images
differ in every pixel get the same ones; their transcripts must be the same, in a few fixed words or a private report,
and no client may spend more than it allows.
"""

from __future__ import annotations

import json
import math
import random
from dataclasses import dataclass

import pytest
from tests.attacks.test_malicious_server import IMAGES, Client, request, softmax_step, terms
from tests.federated.conftest import flower_identity  # noqa: F401  # a fixture

from noisette.federated import Ranges
from noisette.federated.client.mod import ANSWERED, NOT_AFFORDED, NOT_AGREED, NOT_READY, NOT_UNDERSTOOD

SPENT, MUTATED = 20.0, 150
WORDS = {f"noisette: {reason}" for reason in (ANSWERED, NOT_AFFORDED, NOT_AGREED, NOT_READY, NOT_UNDERSTOOD)}
ODD = [None, True, 0, -1, 2**31, 2**63, 2**70, 1e-308, 1e308, math.nan, math.inf, -math.inf]
ODD += ["", "nan", "laplace", "gaussian", "local", "central", "element", [], [1], {}, {"a": 1}]
NAMES = ["extra", "__class__", "rounds", "relation", "epsilon", "delta"]


@dataclass
class Text:
    """Terms as a server writes them."""

    text: str

    def to_json(self):
        return self.text


def mutated(value, draw):
    """Return a JSON value with something in it changed."""
    if isinstance(value, dict) and value and draw.random() < 0.85:
        name, changed = draw.choice(list(value)), dict(value)
        kind = draw.random()
        if kind < 0.1:
            del changed[name]
        elif kind < 0.2:
            changed[draw.choice(NAMES)] = draw.choice(ODD)
        else:
            changed[name] = mutated(value[name], draw)
        return changed
    if isinstance(value, list) and value and draw.random() < 0.7:
        place = draw.randrange(len(value))
        return [mutated(one, draw) if number == place else one for number, one in enumerate(value)]
    if isinstance(value, int | float) and not isinstance(value, bool) and draw.random() < 0.4:
        return value * draw.choice([0.5, 2, 10, -1, 1e9, 1e-9])
    return draw.choice(ODD)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_mutated_terms_tell_nothing(tmp_path, seed):
    draw, seen = random.Random(seed), set()
    for number in range(MUTATED):
        exact = {"mechanism": "laplace", "clip": Ranges(0.0, 1.0), "budget": 6.0}
        asked = json.loads(terms(**draw.choice([{}, exact]), rounds=draw.choice([1, 3])).to_json())
        for _ in range(draw.randint(1, 3)):
            asked = mutated(asked, draw)
        text, round_number = json.dumps(asked), draw.choice([1, 2, 0, -1, 2**40])
        clients = [Client(tmp_path / f"{number}-{k}", softmax_step(image), SPENT) for k, image in enumerate(IMAGES)]
        for client in clients:
            reply = client.ask(request(Text(text), round_number))
            seen.add(reply.error.reason if reply.has_error() else "report")
            assert not reply.has_error() or client.calls == 0
            assert client.spent <= SPENT
        assert clients[0].said == clients[1].said
    assert seen <= WORDS | {"report"}
    assert {"report", f"noisette: {NOT_UNDERSTOOD}", f"noisette: {NOT_AFFORDED}"} <= seen
