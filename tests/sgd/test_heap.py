"""Memory that a step freed is there for the next one, unless the environment says otherwise."""

import os
import platform
import subprocess
import sys

import pytest

CODE = """
import resource, torch
from noisette.sgd.recording import _heap

def round_of_tensors():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    held = [torch.ones(2 * 2**20) for _ in range(4)]  # 32 MiB, 8,192 pages
    del held
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

_heap.keep_freed()
with _heap.beside_heap():
    beside = min(round_of_tensors() for _ in range(3))
for _ in range(9):  # small tensors come to lie between large ones before all have their place
    round_of_tensors()
kept = max(round_of_tensors() for _ in range(3))
_heap.give_back()
print(kept, round_of_tensors(), beside)
"""


def faults(**environment: str) -> list[int]:
    """Return how many pages a process asks for in a round of tensors: usually, after a trim, and beside the heap."""
    own = {name: value for name, value in os.environ.items() if not name.startswith(("MALLOC_", "GLIBC_TUNABLES"))}
    found = subprocess.run(
        [sys.executable, "-c", CODE], env={**own, **environment}, capture_output=True, text=True, check=True
    )
    return [int(number) for number in found.stdout.split()]


@pytest.mark.needs("torch")
@pytest.mark.slow
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only the GNU C library has these settings")
@pytest.mark.parametrize(
    "environment", [{}, {"MALLOC_TRIM_THRESHOLD_": "131072"}, {"GLIBC_TUNABLES": "glibc.malloc.trim_threshold=131072"}]
)
def test_freed_memory_is_kept_unless_the_environment_has_a_setting(environment):
    kept, given_back, beside = faults(**environment)
    assert (kept < 100) == (not environment)
    assert given_back > 4000
    assert beside > 4000 or environment
