"""A node: it trains on its own images, and its report leaves through the shuffler."""

import os
from pathlib import Path

from flwr.app import Array, ArrayRecord, Message, RecordDict
from flwr.clientapp import ClientApp

from noisette.federated.client.mod import LocalPrivacy
from noisette.shuffler import Sender
from noisette.shuffler.clients import read_credentials
from quickstart.task import data, train

FOLDER = Path(os.environ["NODE_FOLDER"])  # on the node's disk: its budget and its secret


def sender(context):
    """Return the way to the shuffler."""
    name, secret = read_credentials(FOLDER / "credentials.json")
    config = context.run_config
    authority = Path(config["authority"]) if config["authority"] else None
    return Sender.over_http(
        config["shuffler"],
        client=name,
        secret=secret,
        server=config["server-key"],
        authority=authority,
        attempts=12,  # over minutes: a shuffler may be down for a while
    )


app = ClientApp(
    mods=[
        LocalPrivacy(1e6, 1e-6, ledger=FOLDER / "budget.db", model="shuffled", minimum_set=3, shuffler=sender),
    ]
)


@app.train()
def learn(message, context):
    """Train from the server's model."""
    model = {name: array.numpy() for name, array in message.content["arrays"].items()}
    after = train(model, *data(FOLDER))
    return Message(
        RecordDict({"arrays": ArrayRecord({name: Array(layer) for name, layer in after.items()})}), reply_to=message
    )
