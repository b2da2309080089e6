"""A small Flower federation in this process: real apps, real messages, no network."""

from __future__ import annotations

import uuid
from types import SimpleNamespace

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid

SHAPES = {"weight": (4, 3), "bias": (3,)}
DIMS = 15


def model(value=0.0):
    return ArrayRecord({name: Array(np.full(shape, value, np.float32)) for name, shape in SHAPES.items()})


def moving_app(mods, step=0.05, metrics=None, calls=None, extra=None):
    """Return an app whose training adds ``step`` to every weight."""
    app = ClientApp(mods=mods)

    @app.train()
    def train(message: Message, context: Context) -> Message:
        if calls is not None:
            calls.append(context.node_id)
        arrays = {name: array.numpy() + np.float32(step) for name, array in message.content["arrays"].items()}
        content = RecordDict({"arrays": ArrayRecord({name: Array(array) for name, array in arrays.items()})})
        content["metrics"] = MetricRecord(metrics or {"num-examples": 10, "train-loss": 0.5})
        for name, record in (extra or {}).items():
            content[name] = record
        return Message(content, reply_to=message)

    @app.evaluate()
    def evaluate(message: Message, context: Context) -> Message:
        return Message(RecordDict({"metrics": MetricRecord({"num-examples": 3, "loss": 0.1})}), reply_to=message)

    return app


class LocalGrid(Grid):
    """Runs a ClientApp for each message when its reply is asked for; ``tamper(reply, node)`` may change replies."""

    def __init__(self, app, nodes, tamper=None):
        self.app, self.nodes, self.tamper = app, list(nodes), tamper
        self.waiting = {}
        self.most_waiting = 0
        self.contexts = {
            node: Context(run_id=1, node_id=node, node_config={"partition-id": node}, state=RecordDict(), run_config={})
            for node in self.nodes
        }

    def set_run(self, run):
        raise NotImplementedError

    @property
    def run(self):
        return SimpleNamespace(run_id=1)

    def create_message(self, *args, **kwargs):
        raise NotImplementedError

    def get_node_ids(self):
        return list(self.nodes)

    def push_messages(self, messages):
        numbers = []
        for message in messages:
            number = str(uuid.uuid4())
            message.metadata.__dict__["_message_id"] = number
            self.waiting[number] = message
            numbers.append(number)
        self.most_waiting = max(self.most_waiting, len(self.waiting))
        return numbers

    def pull_messages(self, message_ids):
        replies = []
        for number in list(message_ids):
            message = self.waiting.get(number)
            if message is None:
                continue
            node = message.metadata.dst_node_id
            reply = self.app(message, self.contexts[node])
            if self.tamper is not None:
                reply = self.tamper(reply, node)
            if reply is None:  # never answers
                continue
            del self.waiting[number]
            reply.metadata.__dict__["_reply_to_message_id"] = number
            replies.append(reply)
        return replies

    def send_and_receive(self, messages, *, timeout=None):
        return self.pull_messages(self.push_messages(messages))
