"""The client's side: when packets leave, how they are grouped, and what happens when the shuffler does not answer."""

from __future__ import annotations

from typing import Any

import httpx
import numpy as np
import pytest
from scipy.stats import chi2, kstest
from tests.shuffler.helpers import KEY, LAYOUT, fresh, post_of, values_of

from noisette.shuffler import PacketLayout, Sender, new_secret
from noisette.shuffler.sender import Http, NotSent, _waits
from noisette.shuffler.store import PostRefused
from noisette.shuffler.wire import Frame


class _Notebook:
    """A carrier that writes down what it gets, and a clock that only its sleeper moves."""

    def __init__(self) -> None:
        self.posts: list[tuple[float, str, Frame]] = []
        self.now = 0.0

    def post(self, number: str, body: bytes, *, minimum: int = 0) -> None:
        self.posts.append((self.now, number, Frame.decode(body)))

    def close(self) -> None:
        pass

    def sleep(self, seconds: float) -> None:
        self.now = max(self.now, seconds)  # the sender sleeps until a time since its start, of which little has passed


def test_delays_are_uniform_after_the_correction() -> None:
    """U(0, T) exactly; moved by what the slowest device still needs. Kolmogorov-Smirnov at 1e-6, seed fixed."""
    waits = _waits(20_000, 8.0, 30.0, 12.5, None, 5)
    assert kstest((waits - 17.5) / 8.0, "uniform").pvalue > 1e-6
    assert kstest((waits - 30.0) / 8.0, "uniform").pvalue < 1e-6  # the twin: without what was needed already
    assert kstest(waits / 8.0, "uniform").pvalue < 1e-6
    assert waits.min() >= 17.5
    late = _waits(1000, 8.0, 30.0, 31.0, None, 5)  # slower than the slowest was thought to be: no more waiting than U
    assert late.min() < 0.1
    slots = _waits(16_000, 8.0, 0.0, 0.0, 16, 5)
    found, counts = np.unique(slots, return_counts=True)
    assert found.tolist() == [0.5 * k for k in range(1, 17)]
    assert ((counts - 1000) ** 2 / 1000).sum() < chi2.isf(1e-6, 15)


def test_all_devices_answer_over_the_same_interval() -> None:
    """elapsed + wait lies in [slowest, slowest + spread], whatever a device needed: so the paper's correction works."""
    for elapsed in (1.0, 7.0, 20.0):
        ends = elapsed + _waits(5000, 4.0, 20.0, elapsed, None, 1)
        assert ends.min() >= 20.0
        assert ends.max() <= 24.0


@pytest.mark.parametrize("wrong", [{"spread": -1.0}, {"slowest": np.inf}, {"elapsed": np.nan}, {"slots": 0}])
def test_bad_delays(wrong: dict[str, Any]) -> None:
    sender = Sender(_Notebook(), KEY.public)
    with pytest.raises(ValueError, match="Expected"):
        sender.send(values_of(1), LAYOUT, context="run", number=1, **wrong)


def test_packets_leave_in_the_order_of_their_delays() -> None:
    notebook, layout = _Notebook(), PacketLayout(100, 1)
    sender = Sender(notebook, KEY.public, sleep=notebook.sleep)
    sent = sender.send(values_of(1, layout), layout, context="run", number=3, spread=1000.0, slots=None, rng=2)
    assert (sent.packets, sent.posts) == (100, 100)
    order = [frame.packets[0][0] for _, _, frame in notebook.posts]
    assert order == np.argsort(_waits(100, 1000.0, 0.0, 0.0, None, 2)).tolist()
    times = [time for time, _, _ in notebook.posts]
    assert times == pytest.approx(sorted(_waits(100, 1000.0, 0.0, 0.0, None, 2)), abs=1.0)
    assert len({number for _, number, _ in notebook.posts}) == 100


def test_posts_are_bounded_and_whole() -> None:
    notebook = _Notebook()
    sender = Sender(notebook, KEY.public, post_bytes=4 + 48 + 8 * 4 + 10, sleep=notebook.sleep)
    assert sender.send(values_of(1), LAYOUT, context="run", number=3).posts == 3
    notebook.posts.clear()
    wide = Sender(notebook, KEY.public, sleep=notebook.sleep)
    layout = PacketLayout(1000, 1)
    assert wide.send(values_of(1, layout), layout, context="run", number=3, spread=5.0, rng=1).posts == 16
    blocks = [block for _, _, frame in notebook.posts for block, _ in frame.packets]
    assert sorted(blocks) == list(range(1000))
    opened = {b: KEY.open(s, frame.round.label(b)) for _, _, frame in notebook.posts for b, s in frame.packets}
    assert [np.frombuffer(opened[b])[0] for b in range(1000)] == values_of(1, layout).tolist()


class _Flaky:
    """A shuffler that fails in every way before it accepts."""

    def __init__(self, *outcomes: Any) -> None:
        self.outcomes = list(outcomes)
        self.seen: list[tuple[str, bytes]] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.seen.append((request.headers["Noisette-Post"], request.content))
        outcome = self.outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome if isinstance(outcome, httpx.Response) else httpx.Response(outcome, json={})


def _http(flaky: _Flaky, pauses: list[float]) -> Http:
    return Http(
        "http://shuffler",
        client="a",
        secret=new_secret(),
        attempts=5,
        transport=httpx.MockTransport(flaky),
        sleep=pauses.append,
    )


def test_a_post_is_tried_again_under_the_same_number() -> None:
    flaky, pauses = _Flaky(httpx.ConnectError("no"), 503, httpx.ReadTimeout("slow"), 429, 201), []
    carrier = _http(flaky, pauses)
    carrier.post("number-1", b"body")
    assert set(flaky.seen) == {("number-1", b"body")}
    assert len(flaky.seen) == 5
    assert all(0.1 * 2**k <= pause <= 0.2 * 2**k for k, pause in enumerate(pauses))
    carrier.close()


def test_giving_up_says_why() -> None:
    for outcomes, said, tries in (([503] * 5, "503", 5), ([401], "401", 1), ([413], "413", 1)):
        flaky = _Flaky(*outcomes)
        carrier = _http(flaky, [])
        with pytest.raises(NotSent, match=said):
            carrier.post(fresh(), b"body")
        assert len(flaky.seen) == tries
        carrier.close()


def test_blocks_that_came_before_stand() -> None:
    """A client that was restarted in the middle of a round sends the rest."""
    told = {"reason": "already-sent", "detail": "1 of these blocks came before.", "blocks": [1]}
    flaky = _Flaky(httpx.Response(409, json=told), 201)
    sender = Sender(_http(flaky, []), KEY.public)
    sent = sender.send(values_of(1), LAYOUT, context="run", number=1)
    assert (sent.packets, sent.known) == (2, 1)
    assert [block for block, _ in Frame.decode(flaky.seen[1][1]).packets] == [0, 2]
    assert flaky.seen[0][0] != flaky.seen[1][0]
    for reason, blocks in (("post-reused", []), ("already-sent", []), ("round-over", [1])):
        flaky = _Flaky(httpx.Response(409, json=told | {"reason": reason, "blocks": blocks}))
        with pytest.raises(NotSent):
            Sender(_http(flaky, []), KEY.public).send(values_of(1), LAYOUT, context="run", number=1)


def test_a_conflict_without_words() -> None:
    with pytest.raises(NotSent):
        _http(_Flaky(httpx.Response(409, text="?")), []).post(fresh(), post_of(1))
    told = {"reason": "post-reused", "detail": "x", "blocks": []}
    with pytest.raises(PostRefused):
        _http(_Flaky(httpx.Response(409, json=told)), []).post(fresh(), post_of(1))
