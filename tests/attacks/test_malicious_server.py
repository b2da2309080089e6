"""A Flower server that wants to read a client: what people have tried, and what it sees now.

The server sends whatever it likes: crafted weights, terms, rounds, runs, messages of other types. The client's app is
honest, but it computes with the weights that it gets, so the server decides when it overflows, raises or hangs, and can
make that depend on one pixel of the client's image. Everything that comes back is a transcript: errors, names, types,
shapes, numbers. Each attack is run against two images that differ in every pixel, and their transcripts must be the
same in all but the numbers of the private reports.
"""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest
from flwr.app import (
    Array,
    ArrayRecord,
    ConfigRecord,
    Context,
    Error,
    Message,
    MessageType,
    MetricRecord,
    RecordDict,
)
from tests.federated.conftest import flower_identity  # noqa: F401  # a fixture

import noisette as nz
from noisette.accounting import Ledger
from noisette.federated import ModelLayout, Norm, Ranges
from noisette.federated.client.mod import LocalPrivacy
from noisette.federated.clipping import Length
from noisette.federated.families import family
from noisette.federated.terms import Terms

SIDE, CLASSES = 28, 2
PIXELS = SIDE * SIDE
SHAPES = {"weight": (PIXELS, CLASSES), "bias": (CLASSES,)}
LAYOUT = ModelLayout(tuple(SHAPES), tuple(SHAPES.values()))
IMAGE = np.random.default_rng(11).integers(0, 2, PIXELS).astype(np.float32)
IMAGES = (IMAGE, 1 - IMAGE)


def weights(dtype=np.float32, **changes):
    """Return a model of zeros with some layers replaced."""
    layers = {name: np.zeros(shape, dtype) for name, shape in SHAPES.items()} | changes
    return ArrayRecord({name: Array(layer) for name, layer in layers.items()})


def terms(*, budget=2.0, **changes):
    own = {"run": "run", "mechanism": "privunit-g", "clip": Norm(1.0), "rounds": 1}
    own |= changes
    return Terms(**own, **{family(own["mechanism"]).price: budget})


EXACT = {"mechanism": "laplace", "clip": Ranges(0.0, 1.0), "budget": 600.0}  # noise so small that a report can be read


def softmax_step(image):
    """Return an honest app: a step of gradient descent of softmax regression on the client's image, of class 0."""

    def train(message, context):
        model = {name: array.numpy() for name, array in message.content["arrays"].items()}
        with np.errstate(all="ignore"):
            scores = image @ model["weight"] + model["bias"]
            chances = np.exp(scores - scores.max())
            error = chances / chances.sum() - np.eye(CLASSES, dtype=np.float32)[0]
            after = {"weight": model["weight"] - np.outer(image, error), "bias": model["bias"] - error}
        return answer(message, after)

    return train


def answer(message, arrays, **records):
    """Return the reply of an app that has trained."""
    named = {name: Array(np.asarray(array)) for name, array in arrays.items()}
    return Message(RecordDict({"arrays": ArrayRecord(named)} | records), reply_to=message)


def request(asked, number=1, *, kind=MessageType.TRAIN, arrays=None, **config):
    plain = {"server-round": number, "noisette": asked.to_json()} | config
    content = RecordDict({"arrays": weights() if arrays is None else arrays, "config": ConfigRecord(plain)})
    message = Message(content, 1, kind)
    message.metadata.__dict__["_message_id"] = "a"
    return message


class Client:
    """A node that runs the mod around an app; ``said`` is everything that the server gets from it."""

    def __init__(self, folder, app, epsilon=1e6, **options):
        folder.mkdir(parents=True, exist_ok=True)
        self.mod = LocalPrivacy(epsilon, 1e-3, ledger=folder / "budget.db", **options)
        self.app, self.calls, self.ledger = app, 0, folder / "budget.db"
        self.context = Context(run_id=1, node_id=1, node_config={}, state=RecordDict(), run_config={})
        self.said = []

    def ask(self, message):
        """Send a message; what gets past the mod, Flower sends to the server word for word."""

        def run(message, context):
            self.calls += 1
            return self.app(message, context)

        try:
            reply = self.mod(message, self.context, run)
        except Exception as error:
            reply = Message(Error(1, f"{type(error)}:<'{error}'>"), reply_to=message)
        self.said.append(seen(reply))
        return reply

    @property
    def spent(self):
        with Ledger(self.ledger) as ledger:
            return sum(float(account.epsilon) for account in ledger.accounts())


def seen(reply):
    """Return all that a reply shows, but for the numbers of a report, which are private, and the time it was made."""
    metadata = {
        name: getattr(reply.metadata, name)
        for name in ("run_id", "src_node_id", "dst_node_id", "group_id", "message_type", "reply_to_message_id")
    }
    if reply.has_error():
        return metadata, reply.error.code, reply.error.reason
    content = reply.content
    arrays = {
        (record, name): (array.dtype, array.shape, array.stype, len(array.data))
        for record, found in content.array_records.items()
        for name, array in found.items()
    }
    others = {name: dict(content[name]) for name in (*content.metric_records, *content.config_records)}
    return metadata, list(content), arrays, others


def estimate(reply, asked, layout=LAYOUT):
    """Return what a report says about the client's update."""
    return asked.channel(layout).estimate(reply.content["arrays"]["report"].numpy())


def both(tmp_path, make_app, attack, **options):
    """Run an attack against the clients with either image; return the clients, whose transcripts must be the same."""
    clients = []
    for number, image in enumerate(IMAGES):
        client = Client(tmp_path / str(number), make_app(image), **options)
        attack(client)
        clients.append(client)
    assert clients[0].said == clients[1].said
    return clients


def overflows_if(pixel):
    """Return a model in which a score is too large for a float32 if and only if this pixel is above one half."""
    weight, bias = np.zeros(SHAPES["weight"], np.float32), np.zeros(SHAPES["bias"], np.float32)
    weight[pixel, 1], bias[1] = 2.8e38, 2.0e38
    return weights(weight=weight, bias=bias)


def test_the_crafted_weights_do_overflow_at_one_pixel():
    """The attack is real: the honest app's update is finite for one of the images and not for the other."""
    for pixel in (0, 100, PIXELS - 1):
        for image in IMAGES:
            reply = softmax_step(image)(request(terms(), arrays=overflows_if(pixel)), None)
            finite = np.isfinite(reply.content["arrays"]["weight"].numpy()).all()
            assert finite == (image[pixel] <= 0.5)


@pytest.mark.long
def test_reading_an_image_pixel_by_pixel_through_overflow(tmp_path):
    """One request a pixel: a client that refused updates that are not finite told all 784 bits, for one debit.

    The attack goes on long after the only round that was paid for is answered.
    """

    def attack(client):
        for pixel in range(PIXELS):
            client.ask(request(terms(), pixel + 1, arrays=overflows_if(pixel)))

    for client in both(tmp_path, softmax_step, attack):
        assert client.calls == 1  # the data were looked at for the report that was paid for, and never again
        assert client.spent == pytest.approx(2.0)
        assert len({repr(one) for one in client.said[1:]}) == 1


@pytest.mark.long
def test_reading_an_image_with_a_budget_for_every_pixel(tmp_path):
    """The same where each request is paid for: all that comes back are reports, of one type and length."""

    def attack(client):
        for pixel in range(100):
            client.ask(request(terms(rounds=100), pixel + 1, arrays=overflows_if(pixel)))

    for client in both(tmp_path, softmax_step, attack):
        assert client.calls == 100
        assert len({repr(one[1:3]) for one in client.said}) == 1


class Escape(BaseException):
    """What an app may raise beside exceptions."""


def _raise(error):
    raise error


# what an app does where its pixel is set, each visible to the server in some version of this mod or of Flower
FAILURES = {
    "raises, with the image in the text": lambda message, image: _raise(ValueError(f"bad image {image.tolist()}")),
    "raises an error of the operating system": lambda message, image: _raise(OSError("disk")),
    "runs out of memory": lambda message, image: _raise(MemoryError("784 pixels")),
    "recurses without end": lambda message, image: FAILURES["recurses without end"](message, image),
    "ends itself": lambda message, image: _raise(SystemExit(int(image.sum()))),
    "raises what is no exception": lambda message, image: _raise(Escape(str(image[0]))),
    "stops an iterator": lambda message, image: next(iter(())),
    "returns an error": lambda message, image: Message(Error(17, f"pixel {image[0]}"), reply_to=message),
    "returns nothing": lambda message, image: None,
    "returns an empty reply": lambda message, image: Message(RecordDict(), reply_to=message),
    "returns no arrays": lambda message, image: answer(message, {}),
    "returns other layers": lambda message, image: answer(message, {"other": np.zeros(3)}),
    "returns layers in another order": lambda message, image: answer(
        message, {name: np.zeros(SHAPES[name]) for name in reversed(SHAPES)}
    ),
    "returns another shape": lambda message, image: answer(message, {"weight": np.zeros((3, 3)), "bias": np.zeros(2)}),
    "returns text": lambda message, image: answer(
        message, {"weight": np.full(SHAPES["weight"], "a"), "bias": np.zeros(CLASSES)}
    ),
    "returns complex numbers": lambda message, image: answer(
        message, {name: np.zeros(shape, complex) for name, shape in SHAPES.items()}
    ),
    "returns NaN": lambda message, image: answer(message, filled(np.nan)),
    "returns one infinity": lambda message, image: answer(
        message, {"weight": np.zeros(SHAPES["weight"]), "bias": np.asarray([0.0, -np.inf])}
    ),
    "returns both infinities": lambda message, image: answer(
        message, {"weight": np.zeros(SHAPES["weight"]), "bias": np.asarray([np.inf, -np.inf])}
    ),
    "returns numbers beyond float64": lambda message, image: answer(
        message, {name: np.full(shape, np.longdouble("1e4000")) for name, shape in SHAPES.items()}
    ),
    "returns bytes that are no array": lambda message, image: broken(message),
    "returns two models": lambda message, image: answer(message, filled(0.0), second=weights()),
    "returns its image in a second record": lambda message, image: answer(
        message, filled(0.0), image=ArrayRecord({"image": Array(image)})
    ),
}
# where an update comes back, but something else with it
LEAKS = {
    "metrics": lambda message, image: answer(
        message, filled(0.25), metrics=MetricRecord({"num-examples": int(image.sum()), "loss": 0.5})
    ),
    "config": lambda message, image: answer(message, filled(0.25), config=ConfigRecord({"image": image.tobytes()})),
    "a type": lambda message, image: answer(
        message, {name: array.astype(np.float16) for name, array in filled(0.25).items()}
    ),
    "whole numbers": lambda message, image: answer(
        message, {name: array.astype(np.int8) for name, array in filled(1).items()}
    ),
    "huge numbers": lambda message, image: answer(message, filled(1e300)),
    "denormals": lambda message, image: answer(message, filled(5e-324)),
}


def filled(value):
    return {name: np.full(shape, float(value)) for name, shape in SHAPES.items()}


def broken(message):
    reply = answer(message, filled(0.0))
    reply.content["arrays"]["bias"].data = b"no array"
    return reply


def failing(failure, well=lambda message, image: answer(message, filled(0.25))):
    """Return a maker of apps that fail where the first pixel is set, and train elsewhere."""

    def make(image):
        return lambda message, context: failure(message, image) if image[0] > 0.5 else well(message, image)

    return make


MECHANISMS = {
    "privunit-g": terms(rounds=2),
    "tensor-gaussian": terms(mechanism="tensor-gaussian", budget=0.5, delta=1e-6, rounds=2),
    "laplace": terms(**EXACT, rounds=2),
    "adaptive-duchi": terms(mechanism="adaptive-duchi", clip=Ranges(0.0, 1.0), rounds=2),
    "weights": terms(**EXACT, sends="weights", rounds=2),
}


@pytest.mark.parametrize("name", [*FAILURES, *LEAKS])
def test_making_the_app_fail_at_one_pixel(tmp_path, name):
    """An app that fails if a pixel is set: errors, their text, missing replies and their types told the pixel."""

    def attack(client):
        for kind, asked in MECHANISMS.items():
            for number in (1, 2, 2, 3):
                client.ask(request(replace_run(asked, kind), number))

    both(tmp_path, failing((FAILURES | LEAKS)[name]), attack)


def replace_run(asked, run):
    return Terms.read(asked.to_json().replace('"run": "run"', f'"run": "{run}"'))


@pytest.mark.parametrize("name", FAILURES)
def test_a_failure_is_reported_as_a_zero_update(tmp_path, name):
    """Where noise is next to nothing the report can be read: it says zero, and cost what a report costs.

    An entry has noise of scale 1/300: one of 1,570 is off by 0.12 with a chance below 1e-6.
    """
    asked = terms(**EXACT)
    image = np.ones(PIXELS, np.float32)
    client = Client(tmp_path, failing(FAILURES[name])(image))
    assert estimate(client.ask(request(asked)), asked) == pytest.approx(np.zeros(LAYOUT.dims), abs=0.12)
    assert client.spent > 9e5
    healthy = Client(tmp_path / "healthy", failing(FAILURES[name])(1 - image))
    assert estimate(healthy.ask(request(asked)), asked) == pytest.approx(np.full(LAYOUT.dims, 0.25), abs=0.12)


def test_a_failure_told_apart_from_an_update_by_statistics(tmp_path):
    """An auditor who holds both laws of what leaves the client finds no more than the epsilon that was paid for.

    The app raises on one of two images; each weight is answered on its own, so a message holds many samples. The audit
    errs with a chance of 1e-6; at a smaller claim it finds a violation, so that it does see the difference.
    """
    runs = iter(range(100))

    def reports(x, n, rng):
        def app(message, context):
            if x > 0:
                raise ValueError(str(x))
            return answer(message, {"update": np.full(n, x)})

        asked = terms(run=f"{next(runs)}", mechanism="laplace", clip=Ranges(0.0, 0.1), budget=1.0)
        client = Client(tmp_path / asked.run, app)
        reply = client.ask(request(asked, arrays=ArrayRecord({"update": Array(np.zeros(n))})))
        return estimate(reply, asked, ModelLayout.of(np.zeros(n)))

    pair = {"inputs": (-0.1, 0.1), "samples": 100_000, "confidence": 1 - 1e-6, "rng": 7}
    assert nz.audit(reports, claimed=1.0, **pair).verdict == "holds"
    assert nz.audit(reports, claimed=0.2, **pair).verdict == "violated"


@pytest.mark.parametrize("name", ["raises", "returns"])
def test_asking_again_while_the_app_runs(tmp_path, name):
    """Whoever asks for the round a second time at once gets a report of zero, which is about nothing.

    Where the app failed the same report was the answer to the first request: two equal answers told that it had
    failed, so that weights that overflow at one pixel read the pixel. Now the two differ, whatever the app does.
    """
    asked = terms(rounds=1)

    def attack(image):
        early = []

        def app(message, context):
            early.append(client.mod(request(asked), client.context, app))
            if image[0] > 0.5:
                return _raise(ValueError("overflow")) if name == "raises" else answer(message, filled(np.nan))
            return answer(message, filled(0.25))

        client = Client(tmp_path / str(image[0]), app)
        late = client.ask(request(asked))
        again = client.ask(request(asked))
        first, second, third = (one.content["arrays"]["report"].numpy() for one in (*early, late, again))
        return seen(early[0]), client.said, np.array_equal(first, second), np.array_equal(second, third)

    one, other = (attack(image) for image in IMAGES)
    assert one == other
    assert one[2:] == (False, True)


@pytest.mark.parametrize(
    "clip",
    [
        *(Norm(5e-324), Norm(1e-310), Norm(1.7e308), Length(5e-324), Length(1.7e308)),
        *(Ranges(0.0, 5e-324), Ranges(0.25, 5e-324), Ranges(1.7e308, 1.7e308), Ranges(-1.7e308, 5e-324)),
        *(Ranges(0.0, 1.0, 5e-324), Ranges(0.0, 1.7e308, 1.7e308), Ranges(1e308, 1e-300, 1e-300)),
    ],
    ids=str,
)
@pytest.mark.parametrize("value", [0.0, 0.25, 1e308, -1e308, 5e-324])
def test_terms_whose_clip_divides_by_nothing(tmp_path, clip, value):
    """A radius of 5e-324 turned "this weight is exactly 0.25" into NaN, and NaN into an error."""
    mechanism = {"ball": "privunit-g", "sphere": "privunit-g", "box": "laplace"}[clip.shape]
    asked = terms(mechanism=mechanism, clip=clip)

    def make(image):
        return lambda message, context: answer(message, filled(value if image[0] > 0.5 else 0.25))

    both(tmp_path, make, lambda client: client.ask(request(asked)))


def test_weights_whose_difference_is_too_large(tmp_path):
    """Both models are finite, and their difference is not: an update is checked as it is, not as it was sent."""
    start = weights(np.float64, weight=np.full(SHAPES["weight"], -1.7e308))

    def attack(client):
        client.ask(request(terms(), arrays=start))

    def make(image):
        return lambda message, context: answer(message, filled(1.7e308 if image[0] > 0.5 else 0.0))

    both(tmp_path, make, attack)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_model_that_is_not_finite(tmp_path, value):
    """It would make every update NaN: it is refused for what it is, before the app sees it and without a debit."""
    bias = np.asarray([0.0, value], np.float32)

    def attack(client):
        client.ask(request(terms(), arrays=weights(bias=bias)))

    for client in both(tmp_path, softmax_step, attack):
        assert client.calls == 0
        assert not client.ledger.exists()


@pytest.mark.parametrize("kind", ["evaluate", "query", "evaluate.train", "query.weights", "system", "reconnect"])
def test_asking_for_an_evaluation_or_anything_else(tmp_path, kind):
    """Losses and accuracies of crafted models read an image as well as updates do."""

    def attack(client):
        client.ask(request(terms(), kind=kind))

    for client in both(tmp_path, softmax_step, attack):
        assert client.calls == 0
        assert "only training is answered" in client.said[0][2]


def test_refusals_have_fixed_words_and_never_touch_the_data(tmp_path):
    """No text of an exception, path, number of the ledger or part of the request comes back in a refusal."""
    wrong = [
        request(terms(), 0),
        request(terms(), "server-round"),
        request(terms(), noisette="{}"),
        request(terms(), noisette='{"run": "MARK"}'),
        request(terms(), noisette=terms().to_json().replace("privunit-g", "MARK")),
        request(terms(), noisette=terms().to_json().replace('"run": "run"', '"run": "' + "MARK" * 100 + '"')),
        request(terms(), noisette=terms().to_json().replace('"run": "run"', '"run": "\\ud800"')),
        request(terms(mechanism="laplace")),  # a clip of another shape
        request(terms(budget=1e9)),
        request(terms(budget=1e-320)),
        request(terms(rounds=10**12)),
        request(terms(mechanism="tensor-gaussian", budget=1e200, delta=1e-6)),
        request(terms(options={"as_published": True})),
        request(terms(placement="last-step")),
        request(terms(), arrays=ArrayRecord({"MARK": Array(np.zeros(0))})),
        request(terms(), arrays=ArrayRecord({"MARK": Array(np.full(3, "a"))})),
        request(terms(), **{"noisette-spread": -1.0}),
        request(terms(), **{"noisette-slowest": "MARK"}),
    ]
    wrong[0].content["more"] = weights()

    def attack(client):
        for message in wrong:
            client.ask(message)

    for client in both(tmp_path, softmax_step, attack, epsilon=5.0):
        assert client.calls == 0
        texts = {reason for _, _, reason in client.said}
        assert len(texts) <= 4
        assert not any("MARK" in text or str(tmp_path) in text for text in texts)


def test_the_debit_is_on_the_disk_before_the_app_runs(tmp_path):
    """An attacker who can stop the client while it trains has paid all the same."""
    found = []

    def app(message, context):
        found.append(client.spent)
        raise KeyboardInterrupt

    client = Client(tmp_path, app)
    with pytest.raises(KeyboardInterrupt):  # who operates the node may stop it
        client.ask(request(terms()))
    assert found == [pytest.approx(2.0)]


def test_a_client_that_died_while_training_is_asked_again(tmp_path):
    """If it refused, or trained again, the server would learn that and when it had died."""
    asked = terms(**EXACT)

    def app(message, context):
        raise KeyboardInterrupt

    client = Client(tmp_path, app)
    with pytest.raises(KeyboardInterrupt):
        client.ask(request(asked))
    reply = client.ask(request(asked))
    assert client.calls == 1
    assert estimate(reply, asked) == pytest.approx(np.zeros(LAYOUT.dims), abs=0.12)


def test_asking_for_a_round_again_with_other_weights(tmp_path):
    """Two reports about one debit would average the noise away: the first one is sent again, and nothing is trained."""
    client = Client(tmp_path, softmax_step(IMAGE))
    replies = [client.ask(request(terms(), arrays=overflows_if(pixel))) for pixel in range(5)]
    first, *others = (reply.content["arrays"]["report"].numpy() for reply in replies)
    assert all(np.array_equal(first, other) for other in others)
    assert client.calls == 1


@pytest.mark.parametrize(
    "change",
    [
        {"run": "other"},
        {"budget": 2.5},
        {"unit": "element"},
        {"rounds": 2},
        {"sends": "weights"},
        {"clip": Length(1.0)},
    ],
    ids=str,
)
def test_runs_of_other_names_and_terms_share_one_budget(tmp_path, change):
    """A client with 3 left after the first run does not answer a second one that costs as much."""
    client = Client(tmp_path, softmax_step(IMAGE), epsilon=3.9)
    assert not client.ask(request(terms())).has_error()
    assert client.ask(request(terms(**change))).has_error()
    assert (client.calls, client.spent) == (1, pytest.approx(2.0))


def test_a_model_of_another_shape_is_another_run(tmp_path):
    """Terms that were paid for with few weights are not good for many."""
    client = Client(tmp_path, lambda message, context: answer(message, {"weight": np.zeros(4)}), epsilon=20.0)
    per_weight = terms(mechanism="laplace", clip=Ranges(0.0, 1.0), budget=2.0, rounds=2)
    assert not client.ask(request(per_weight, 1, arrays=ArrayRecord({"weight": Array(np.zeros(4))}))).has_error()
    assert client.ask(request(per_weight, 2)).has_error()
    assert client.calls == 1


def test_two_runs_with_one_name_in_the_clients_books():
    """What a client has paid for is found again by a hash of the terms: 64 bits of it collide in minutes."""
    hashes = {terms(budget=1 + k / 64).key(LAYOUT).split("-")[-1] for k in range(64)}
    assert len(hashes) == 64
    assert {len(one) for one in hashes} == {64}  # hexadecimal digits, all of SHA-256


def test_an_app_that_takes_longer_at_one_pixel(tmp_path):
    """With a deadline every report leaves then, and an app that has not finished has given no update."""
    release = threading.Event()
    asked, began = terms(**EXACT), {}

    def slow(message, image):
        release.wait(600)
        return answer(message, filled(0.25))

    def attack(client):
        began[client.ledger] = -time.monotonic()
        client.ask(request(asked))
        began[client.ledger] += time.monotonic()

    both(tmp_path, failing(slow), attack, deadline=0.5)
    release.set()
    assert min(began.values()) >= 0.5  # the quick one is held back
    assert max(began.values()) < 500  # the slow one is not waited for


@pytest.mark.parametrize("named_by", ["the app", "the node"])
def test_an_app_that_changes_its_folder_does_not_begin_a_new_budget(tmp_path, monkeypatch, named_by):
    """Libraries of experiments change the folder of the process: a ledger named by a relative path stays where it was.

    It was looked for in the new folder, was not there, and every run had the whole budget.
    """
    monkeypatch.chdir(tmp_path)

    def wandering(message, context):
        (tmp_path / f"run {client.calls}").mkdir()
        monkeypatch.chdir(tmp_path / f"run {client.calls}")
        return answer(message, filled(0.25))

    client = Client(tmp_path, wandering)
    client.mod = LocalPrivacy(2.5, 1e-3, ledger="own.db" if named_by == "the app" else "other.db")
    client.context.node_config = {} if named_by == "the app" else {"ledger": "own.db"}
    replies = [client.ask(request(terms(run=f"run {number}"), 1)) for number in range(3)]
    assert [reply.has_error() for reply in replies] == [False, True, True]
    assert [path.parent for path in tmp_path.rglob("*.db")] == [tmp_path]


def test_a_ledger_stays_where_it_is_when_the_folder_changes(tmp_path, monkeypatch):
    """Every thread opens the file for itself, and so does a fork."""
    monkeypatch.chdir(tmp_path)
    with Ledger("budget.db") as ledger:
        ledger.open_account("user", 1.0)
        ledger.debit("user", 0.7)
        (tmp_path / "elsewhere").mkdir()
        monkeypatch.chdir(tmp_path / "elsewhere")
        left = []
        thread = threading.Thread(target=lambda: left.append(ledger.balance("user").left["epsilon"]))
        thread.start()
        thread.join()
    assert [float(one) for one in left] == [0.3]
    assert not list((tmp_path / "elsewhere").iterdir())
