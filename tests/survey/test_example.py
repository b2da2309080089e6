"""The example on real data runs, and its intervals hold the truth about as often as they say."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))
import census

from noisette import datasets

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(datasets.folder() is None, reason="NOISETTE_DATA names no folder with Adult and the ACS"),
]


@pytest.mark.long
def test_every_kind_on_real_people() -> None:
    """Of some thirty 95 % intervals more than six miss with probability below 1e-3."""
    table = census.compared(6000, 6000)
    assert len(table) >= 20
    assert (~table["holds"]).sum() <= 6
    assert table["quantity"].str.contains("median").sum() == 2
