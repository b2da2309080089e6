"""Modules that have moved are found under their old names for one release, with a warning."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest

import noisette
from noisette._moved import MOVED

_WITH_EXTRAS = ("collector", "sgd", "device", "federated", "survey")


@pytest.mark.parametrize("old", sorted(old for old, new in MOVED.items() if not new.startswith(_WITH_EXTRAS)))
def test_an_old_name_is_the_new_module(old: str) -> None:
    sys.modules.pop(f"noisette.{old}", None)
    with pytest.warns(DeprecationWarning, match=f"noisette.{old} is now noisette.{MOVED[old]}. Use that"):
        found = importlib.import_module(f"noisette.{old}")
    assert found is importlib.import_module(f"noisette.{MOVED[old]}")


def test_no_old_name_hides_what_a_package_shows() -> None:
    """Python sets the last part of a module's name on its parent, whatever stood there: once, `prediction.joint`."""
    for old in MOVED:
        parent, _, name = old.rpartition(".")
        package = importlib.import_module(f"noisette.{MOVED.get(parent, 'testing')}")
        assert parent not in MOVED or name not in getattr(package, "__all__", ()), old


def test_every_new_name_is_a_module() -> None:
    root = noisette.__path__[0]
    for new in MOVED.values():
        assert importlib.machinery.PathFinder.find_spec(
            new.rpartition(".")[2], [f"{root}/{new.rpartition('.')[0].replace('.', '/')}"]
        ), new


def test_a_name_of_a_module_that_became_a_package_is_found() -> None:
    from noisette.mechanisms.tensor import gaussian

    with pytest.warns(DeprecationWarning, match=r"gaussian.TensorGaussian is now .*gaussian.mechanism.TensorGaussian"):
        assert gaussian.TensorGaussian is noisette.TensorGaussian
    with pytest.raises(AttributeError, match="has no attribute 'Nothing'"):
        _ = gaussian.Nothing


@pytest.mark.long
@pytest.mark.needs("httpx", "sqlalchemy")
def test_the_clients_are_found_where_they_were() -> None:
    code = """
import warnings
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    from noisette.collector import Campaign, Client, Store
    from noisette.collector.client import Client as again
import noisette.device, noisette.survey.campaigns
assert Client is again is noisette.device.Client and Campaign is noisette.survey.campaigns.Campaign
assert {w.category for w in said} == {DeprecationWarning}, said
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_name_that_never_was_is_not_found() -> None:
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("noisette.utility_of_nothing")
