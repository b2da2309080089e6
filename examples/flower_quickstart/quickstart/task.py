"""The model, the data of a client, training and testing: nothing here knows of privacy."""

from functools import lru_cache

import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

from noisette.datasets import images


class Net(nn.Module):
    """Logistic regression on images of 7x7 pixels, each the mean of sixteen: noise grows with the number of weights."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(49, 10)

    def forward(self, x):
        return self.linear(nn.functional.avg_pool2d(x.unsqueeze(1), 4).flatten(1))


@lru_cache(maxsize=1)
def _mnist():
    mnist = images("mnist")
    halves = (mnist.train, mnist.train_labels), (mnist.test, mnist.test_labels)
    return [TensorDataset(torch.tensor(x).float() / 255, torch.tensor(y).long()) for x, y in halves]


def load_data(partition, partitions):
    """Return the share of a client."""
    train, _ = _mnist()
    share = range(partition, len(train), partitions)
    return DataLoader(torch.utils.data.Subset(train, share), batch_size=32, shuffle=True)


def load_test():
    """Return the test images, which the server has."""
    return DataLoader(_mnist()[1], batch_size=1000)


def train(net, loader, epochs, lr):
    """Train for some epochs."""
    optimizer = torch.optim.SGD(net.parameters(), lr=lr)
    for _ in range(epochs):
        for x, y in loader:
            optimizer.zero_grad()
            cross_entropy(net(x), y).backward()
            optimizer.step()


def test(net, loader):
    """Return the accuracy."""
    with torch.no_grad():
        right = sum(int((net(x).argmax(1) == y).sum()) for x, y in loader)
    return right / len(loader.dataset)
