"""Compile what the tests use before several processes do so at once: scripts/warm.py TIER.

Modules, tests (whose asserts pytest rewrites) and the loops that Numba compiles are all kept on disk.
"""

from __future__ import annotations

import doctest
import os
import subprocess
import sys
import warnings
from contextlib import redirect_stdout, suppress
from functools import partial
from importlib import import_module

import numpy as np
import pytest

PEOPLE = 4096  # enough for loops that are compiled from some number of reports on


def main() -> None:
    """Collect the tests of a tier, while another process compiles loops."""
    tier, *loops = sys.argv[1:]
    warnings.simplefilter("ignore")
    if loops:
        _compile(tier)
        return
    print("setup: compiling the tests and the loops of mechanisms, once", file=sys.stderr, flush=True)
    loops_too = subprocess.Popen([sys.executable, __file__, tier, "loops"])
    with loops_too, open(os.devnull, "w", encoding="utf-8") as nowhere, redirect_stdout(nowhere):
        pytest.main(["--collect-only", "-qq", f"--tier={tier}", "-p", "no:cacheprovider", "-p", "no:xdist"])


def _compile(tier: str) -> None:
    """Let every mechanism make some reports, and train a small model."""
    import noisette as nz

    made = [partial(cls.example, 1.0) for cls in nz.CATALOGUE.values()]
    made += [partial(nz.SubsetSelection, epsilon, nz.Categorical(size)) for epsilon, size in ((1.0, 50), (3.0, 200))]
    made += [partial(nz.SubsetSelection, 1.0, nz.Categorical(1000)), partial(nz.FastProjUnit, 4.0, dims=200, rows=64)]
    made += [partial(nz.FastProjUnit, 4.0, dims=200, rows=64, bits=8)]
    made += [partial(nz.ProjectiveGeometryResponse, epsilon, nz.Categorical(3000)) for epsilon in (0.5, 1.0, 2.0)]
    for make in made:
        with suppress(Exception):  # what does not work is for the tests to tell
            mechanism = make()
            one = np.asarray(mechanism.witnesses()[0])[:1]
            mechanism.aggregate(mechanism.privatize(np.repeat(one, PEOPLE, axis=0), rng=1))
    for module in ("categorical.texts.search", "geometric.spherical"):  # their examples do what no mechanism does alone
        doctest.testmod(import_module(f"noisette.mechanisms.{module}"), report=False)
    if tier == "test":
        _train()


def _train() -> None:
    """Make a private step of each kind of layer and of noise, in single and in double precision."""
    import torch
    from torch import nn
    from torch.utils.data import DataLoader, TensorDataset

    from noisette import sgd

    for perturb in ("gaussian", sgd.Geo(), sgd.Geo(average="angles")):
        for dtype in (torch.float32, torch.float64):
            with suppress(Exception):
                layers = (nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 2))
                model = nn.Sequential(*layers).to(dtype)
                rows = TensorDataset(torch.ones(64, 1, 8, 8, dtype=dtype), torch.zeros(64, dtype=torch.long))
                optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
                loader = DataLoader(rows, batch_size=16)
                private = sgd.make_private(
                    model, optimizer, loader, target=(3.0, 1e-5), epochs=1, perturb=perturb, rng=1
                )
                inputs, targets = next(iter(private.loader))
                nn.functional.cross_entropy(model(inputs), targets).backward()
                private.optimizer.step()


if __name__ == "__main__":
    main()
