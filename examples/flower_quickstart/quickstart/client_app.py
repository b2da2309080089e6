"""The client: trains on its own images."""

from flwr.app import ArrayRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from noisette.federated import LocalPrivacy  # noisette
from quickstart.task import Net, load_data
from quickstart.task import train as train_net

app = ClientApp(mods=[LocalPrivacy(8.0, 1e-6, ledger="budget.db")])  # noisette


@app.train()
def train(message: Message, context: Context) -> Message:
    """Train the model that the server sent, and return it."""
    net = Net()
    net.load_state_dict(message.content["arrays"].to_torch_state_dict())
    node, run = context.node_config, context.run_config
    loader = load_data(node["partition-id"], node["num-partitions"])
    train_net(net, loader, run["local-epochs"], run["lr"])
    return Message(RecordDict({"arrays": ArrayRecord(net.state_dict())}), reply_to=message)
