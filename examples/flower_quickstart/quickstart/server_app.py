"""The server: averages what the clients send, and tests the model on images of its own."""

from flwr.app import ArrayRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp

from noisette.federated import Norm, PrivateFedAvg  # noisette
from quickstart.task import Net, load_test, test

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run all rounds."""
    run = context.run_config
    target = {"target_epsilon": run["target-epsilon"], "target_delta": run["target-delta"]}
    asked = {"clients_per_round": run["clients-per-round"], "rounds_per_client": 1}
    strategy = PrivateFedAvg("privunit-g", clip=Norm(1.0), **target, **asked)  # noisette
    strategy.start(grid, ArrayRecord(Net().state_dict()), num_rounds=run["num-server-rounds"], evaluate_fn=evaluate)


def evaluate(number: int, arrays: ArrayRecord) -> MetricRecord:
    """Return the accuracy on the test images."""
    net = Net()
    net.load_state_dict(arrays.to_torch_state_dict())
    return MetricRecord({"accuracy": test(net, load_test())})
