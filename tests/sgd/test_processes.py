"""Two processes of torch.distributed make the very run that one would: one sample, one noise, one budget."""

import os
import subprocess
import sys
import textwrap

import pytest
import torch

RUN = textwrap.dedent(
    """
    import os, sys, warnings
    import torch
    from torch import nn
    from torch.utils.data import DataLoader, TensorDataset
    from torch.utils.data.distributed import DistributedSampler
    from noisette import sgd

    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    folder = sys.argv[1]
    torch.manual_seed(4)
    data = TensorDataset(torch.randn(60, 4, dtype=torch.float64), torch.randint(0, 3, (60,)))

    def trained(world, rank):
        torch.manual_seed(5 + rank)  # processes begin with different weights; those of the first count
        model = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3)).double()
        sampler = None
        if world > 1:
            model = nn.parallel.DistributedDataParallel(model)
            sampler = DistributedSampler(data, shuffle=True)
        inner = torch.optim.SGD(model.parameters(), lr=0.3, momentum=0.9)
        private = sgd.make_private(
            model, inner, DataLoader(data, batch_size=12 // world, sampler=sampler), target=(4.0, 1e-5), epochs=3,
            clip="quantile", physical_batch=4 // world, advice_steps=1, rng=6,
        )
        norms = sgd.advise_clip(private, nn.functional.cross_entropy).l2_clip_norm
        model, optimizer, loader = private
        seen = 0
        for _ in range(3):
            for inputs, targets in loader:
                seen += len(inputs)
                optimizer.zero_grad()
                nn.functional.cross_entropy(model(inputs), targets).backward()
                optimizer.step()
        row = torch.cat([value.detach().flatten() for value in model.parameters()])
        made = {"row": row, "steps": optimizer.steps, "epsilon": optimizer.guarantee.epsilon, "seen": seen,
                "norm": optimizer.clip.l2_clip_norm, "advised": norms}
        torch.save(made, f"{folder}/{world}-{rank}")

    trained(1, 0)  # before the fork, so that what it imports and compiles is there for all
    rank = 0 if os.fork() else 1
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2)
    trained(2, rank)
    try:
        sgd.make_private(nn.Linear(2, 2), torch.optim.SGD(nn.Linear(2, 2).parameters()), DataLoader(data),
                         target=(1.0 + rank, 1e-5), epochs=1)
    except ValueError as error:
        print(rank, error)
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()
    if rank == 0:
        os.wait()
    """
)


@pytest.mark.long
def test_two_processes_make_the_run_of_one(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", RUN, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=600,
        check=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    alone, first, second = (torch.load(tmp_path / name) for name in ("1-0", "2-0", "2-1"))
    assert torch.equal(first["row"], second["row"])
    # sums are added in another order; that shows, if at all, as a step of the lattice, a millionth of the noise
    torch.testing.assert_close(first["row"], alone["row"], rtol=0.0, atol=1e-6)
    assert first["steps"] == second["steps"] == alone["steps"] == 16
    assert first["epsilon"] == second["epsilon"] == alone["epsilon"] <= 4.0
    assert first["seen"] + second["seen"] == alone["seen"]
    assert abs(first["norm"] - alone["norm"]) < 1e-6
    assert first["norm"] == second["norm"]
    assert first["advised"] == second["advised"] == pytest.approx(alone["advised"], rel=1e-6)
    assert "Process 1 has target=(2.0, 1e-05), the first one has (1.0, 1e-05)" in done.stdout
