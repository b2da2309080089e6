"""One checkpoint, two processes that go on from it: each has the budget that was left, and neither knows of the other.

No file is shared by the two, so that nothing can refuse the second. What is refused is to hide it: whoever brings both
together, to average them or to choose, loads both states, and the steps of both are counted, each once.
"""

import torch
from torch import nn

from noisette import sgd


def run():
    torch.manual_seed(1)
    data = torch.utils.data.TensorDataset(torch.randn(60, 3), torch.randn(60, 1))
    model = nn.Linear(3, 1)
    loader = torch.utils.data.DataLoader(data, batch_size=20)
    return sgd.make_private(model, torch.optim.SGD(model.parameters(), lr=0.1), loader, target=(2.0, 1e-4), epochs=3)


def train(private, steps):
    model, optimizer, loader = private
    made = 0
    while made < steps:
        for inputs, targets in loader:
            optimizer.zero_grad()
            nn.functional.mse_loss(model(inputs), targets).backward()
            optimizer.step()
            made += 1
            if made == steps:
                break


def test_both_ends_of_a_fork_are_counted_where_they_meet():
    first = run()
    train(first, 3)
    saved = first.optimizer.state_dict()
    ends = []
    for steps in (2, 3):
        branch = run()
        branch.optimizer.load_state_dict(saved)
        train(branch, steps)
        assert branch.optimizer.steps == 3 + steps
        ends.append(branch.optimizer.state_dict())
    both = run()
    for _ in range(2):  # a state that is loaded again counts once
        for state in ends:
            both.optimizer.load_state_dict(state)
    assert both.optimizer.steps == 3 + 2 + 3
    spent = both.optimizer.guarantee.epsilon
    assert spent > max(both.optimizer.budget.spent(steps).epsilon for steps in (5, 6))
    assert spent <= 2.0
