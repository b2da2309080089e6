"""Settings shared by all tests."""

import os
from pathlib import Path

import pytest
from hypothesis import settings

# Where the founders keep the real data; tests that need them are skipped, with a reason, where there are none.
_DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
if _DATA.is_dir():
    os.environ.setdefault("NOISETTE_DATA", str(_DATA))

# The same examples on every run and every machine; a slow machine is not a failure.
settings.register_profile("noisette", derandomize=True, deadline=None)
settings.load_profile("noisette")


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test marked ``needs_data`` where there are no real data."""
    if item.get_closest_marker("needs_data") and not os.environ.get("NOISETTE_DATA"):
        pytest.skip("NOISETTE_DATA names no folder")
