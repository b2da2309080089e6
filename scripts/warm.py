"""Compile what the tests use before several processes do so at once: scripts/warm.py TIER.

Modules, tests (whose asserts pytest rewrites) and the loops that Numba compiles are all kept on disk.
"""

from __future__ import annotations

import os
import sys
import warnings
from contextlib import redirect_stdout, suppress

import numpy as np
import pytest


def main() -> None:
    """Collect the tests of a tier, then let every mechanism make a few reports."""
    print("setup: compiling the tests and the loops of mechanisms, once", file=sys.stderr, flush=True)
    warnings.simplefilter("ignore")
    with open(os.devnull, "w", encoding="utf-8") as nowhere, redirect_stdout(nowhere):
        pytest.main(["--collect-only", "-qq", f"--tier={sys.argv[1]}", "-p", "no:cacheprovider", "-p", "no:xdist"])
    import noisette as nz

    for cls in nz.CATALOGUE.values():
        with suppress(Exception):  # what does not work is for the tests to tell
            mechanism = cls.example(1.0)
            inputs = np.asarray(mechanism.witnesses()[0])
            mechanism.aggregate(mechanism.privatize(inputs, rng=1))


if __name__ == "__main__":
    main()
