"""The server: it receives what the shuffler forwards, and averages."""

import json
import os
from pathlib import Path

import numpy as np
from flwr.app import Array, ArrayRecord, MetricRecord
from flwr.serverapp import ServerApp

from noisette._service import Tls
from noisette.federated.clipping import Ranges
from noisette.federated.server.mixing import FromShuffler
from noisette.federated.server.strategy import PrivateFedAvg
from noisette.shuffler import Clients, Receipt, ServerKey, create_receiver, receiving
from quickstart.task import accuracy, data, start

FOLDER = Path(os.environ["SERVER_FOLDER"])

app = ServerApp()


@app.main()
def main(grid, context):
    """Train for some rounds, and write down what came of it."""
    config = context.run_config
    tls = Tls(FOLDER / "cert.pem", FOLDER / "key.pem") if config["authority"] else None
    receipt, key = Receipt(FOLDER / "receipt.db"), ServerKey.read(FOLDER / "server.pem")
    rows, digits = data(FOLDER)

    def test(number, arrays):
        model = {name: array.numpy() for name, array in arrays.items()}
        np.save(FOLDER / f"model-{number}.npy", np.concatenate([layer.reshape(-1) for layer in model.values()]))
        return MetricRecord({"accuracy": accuracy(model, rows, digits)})

    strategy = PrivateFedAvg(
        "adaptive-duchi",
        target_epsilon=config["target-epsilon"],
        target_delta=1e-6,
        clip=Ranges((0.0,), (0.05,)),
        model="shuffled",
        minimum=config["clients"],
        min_available_nodes=config["clients"],
        mixer=FromShuffler(receipt, key),
        batch=785,
        spread=config["spread"],
        enhance="none",
        state=FOLDER / "state.json",
    )
    shufflers = Clients.read(FOLDER / "shufflers.json")
    with receiving(create_receiver(receipt, shufflers), port=config["receiver-port"], tls=tls):
        first = ArrayRecord({name: Array(layer) for name, layer in start().items()})
        result = strategy.start(grid, first, config["rounds"], timeout=3600, evaluate_fn=test)
    receipt.close()
    found = {
        "accuracy": [metrics["accuracy"] for _, metrics in sorted(result.evaluate_metrics_serverapp.items())],
        "rounds": strategy.run.rounds,
    }
    (FOLDER / "found.json").write_text(json.dumps(found), encoding="utf-8")
