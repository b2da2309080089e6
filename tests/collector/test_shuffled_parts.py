"""What a shuffler has to bring, decided by hand: how many may collude, what is held, released or refused, and kept."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from tests.collector.helpers import COMMUTE

from noisette.accounting import shuffled as amplified
from noisette.collector.intake.shuffled import Shuffled, _Door
from noisette.collector.storage.mixed import MixedBatch, MixedBatches, OtherTerms
from noisette.collector.storage.store import Store
from noisette.collector.web.forms import obstacle
from noisette.shuffler import Clients, ServerKey, new_secret
from noisette.survey.campaigns import Campaign

MADE = Shuffled(ServerKey.generate(), Clients({"shuffler": new_secret()}), minimum=40)


@pytest.mark.parametrize(("minimum", "colluders"), [(2, 1), (9, 1), (10, 1), (19, 1), (20, 2), (109, 10)])
def test_a_tenth_colludes_and_at_least_one(minimum: int, colluders: int) -> None:
    made = replace(MADE, minimum=minimum)
    assert (made.colluders, made.hidden) == (colluders, minimum - colluders)


def test_how_many_may_be_declared() -> None:
    for fine in (0, 1, 39):
        assert replace(MADE, colluding=fine).colluders == fine
    for wrong in (-1, 40, 41):
        with pytest.raises(ValueError, match="colluding"):
            replace(MADE, colluding=wrong)
    with pytest.raises(ValueError, match="minimum"):
        replace(MADE, minimum=1, colluding=0)
    for wrong in (0.0, 1.5):
        with pytest.raises(ValueError, match="delta"):
            replace(MADE, delta=wrong)


def test_what_is_stated_is_for_those_who_do_not_collude() -> None:
    campaign = Campaign.from_dict(COMMUTE)
    made = replace(MADE, minimum=3000, colluding=500)
    for accepted, hidden in ((0, 2500), (2000, 2500), (3000, 2500), (9000, 8500)):
        found = made.guarantee(campaign, accepted)
        assert found is not None
        assert found.epsilon == amplified(campaign.mechanism, hidden, 1e-6).epsilon < 2.0
    assert replace(MADE, minimum=2, colluding=1).guarantee(campaign) is None  # one alone is not hidden
    told = made.statement(campaign)
    assert (told["minimum"], told["colluding"]) == (3000, 500)
    assert told["arrived"] == {"batches": 0, "smallest": 0, "shuffled": None}
    assert told["shuffled"] == made.guarantee(campaign).spec()  # type: ignore[union-attr]
    batches = [
        MixedBatch(name, "commute", "once", 1, "released", many, many) for name, many in (("a", 9000), ("b", 4000))
    ]
    told = made.statement(campaign, batches)
    assert (told["arrived"]["batches"], told["arrived"]["smallest"]) == (2, 4000)
    assert told["arrived"]["shuffled"] == made.guarantee(campaign, 4000).spec()  # type: ignore[union-attr]
    grouped = Campaign.from_dict(COMMUTE | {"public_group": {"name": "town", "values": ["a", "b"]}})
    assert made.guarantee(grouped) is None
    assert made.statement(grouped, batches)["shuffled"] is None
    assert made.statement(grouped, batches)["arrived"]["shuffled"] is None


@pytest.mark.parametrize(
    ("packets", "accepted", "held", "state"),
    [
        (40, 40, [], "released"),
        (40, 36, [], "held"),  # four may hide nobody
        (40, 35, [], "refused"),
        (39, 39, [], "refused"),
        (39, 39, [30], "refused"),  # a small batch is not mixed among many, whatever is held
        (40, 36, [3], "held"),
        (40, 36, [4], "released"),
        (40, 36, [1, 2, 1], "released"),
    ],
)
def test_what_becomes_of_a_batch(packets: int, accepted: int, held: list[int], state: str) -> None:
    door = _Door(MADE, *[None] * 4)  # type: ignore[arg-type]
    waiting: Any = [SimpleNamespace(accepted=one) for one in held]
    assert door._decided(packets, accepted, waiting) == state


def test_batches_of_campaigns_periods_and_states_are_apart(store: Store) -> None:
    batches = MixedBatches(store)
    first, second = (store.register(Campaign.from_dict(COMMUTE | {"id": name})) for name in ("first", "second"))
    made = {}
    for name, campaign, period in (("a", first, "x"), ("b", first, "x"), ("c", first, "y"), ("d", second, "x")):
        made[name] = batches.add(campaign, period, name * 32, 0, 2, b"one")
        assert not batches.whole(made[name])
        batches.add(campaign, period, name * 32, 1, 2, b"two")
        assert batches.whole(made[name])
        assert [batches.frame(name * 32, place) for place in range(3)] == [b"one", b"two", None]
    with pytest.raises(OtherTerms):
        batches.add(first, "y", "a" * 32, 0, 2, b"one")
    assert batches.held(made["a"]) == batches.unfinished(made["a"]) == batches.released(first) == []
    for name in "bcd":
        batches.settle(made[name], "held", 5, 3, [])

    def names(found: list[MixedBatch]) -> list[str]:
        return sorted(one.name[0] for one in found)

    waiting = batches.held(made["a"])
    assert [(one.name[0], one.packets, one.accepted) for one in waiting] == [("b", 5, 3)]
    batches.settle(made["a"], "released", 7, 6, waiting)
    assert names(batches.unfinished(made["a"])) == names(batches.released(first)) == ["a", "b"]
    assert batches.released(second) == batches.held(made["a"]) == []
    assert names(batches.held(made["c"])) == ["c"]
    batches.erase("a" * 32)
    assert names(batches.unfinished(made["a"])) == ["b"]
    assert names(batches.released(first)) == ["a", "b"]
    assert batches.frame("a" * 32, 0) is None
    assert batches.frame("b" * 32, 0) == b"one"
    batches.settle(made["a"], "refused", 1, 1, [])  # what was decided stays
    assert names(batches.released(first)) == ["a", "b"]


def test_a_report_is_new_by_token_and_by_key(store: Store) -> None:
    digests = [bytes([place]) * 16 for place in range(6)]
    asked = [digests[0:2], digests[2:4], [digests[1], digests[4]], [digests[5], digests[2]], [digests[5]]]
    assert MixedBatches(store).new(asked) == [True, True, False, False, False]


def test_of_two_processes_that_sign_for_a_user_one_token_counts(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process may write between looking up and writing: what is in the database is what is signed."""
    one, two, older = (bytes([place]) * 16 for place in (1, 2, 3))
    assert store.issue([one], older, b"first") == b"first"
    assert store.issue([one, two], older, b"second") == b"first"
    assert store.issue([two], older, b"third") == b"first"
    assert store.issue([b"4" * 16], one, b"fourth") == b"first"  # looked up under the former secret
    insert = store.database.insert_new

    def late(connection: Any, table: Any, row: dict[str, Any]) -> Any:
        insert(connection, table, row | {"blinded": b"faster"})
        return insert(connection, table, row)

    monkeypatch.setattr(store.database, "insert_new", late)
    assert store.issue([b"5" * 16], b"6" * 16, b"slower") == b"faster"


def test_why_a_page_cannot_ask() -> None:
    def why(sealed: bool = False, **terms: Any) -> str | None:
        return obstacle(Campaign.from_dict(COMMUTE | terms), sealed)

    assert why() is None
    assert "takes sealed reports" in str(why(sealed=True))
    assert why(tokens="blind") is None
    assert why(tokens="drawn") is None
    assert why(tokens="drawn", period="day", answers="tracked", periods=3) is None
