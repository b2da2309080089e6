"""One thing, one name: no two modules define a class of the same name, whether they are public or not."""

from __future__ import annotations

import importlib
import re
from collections import defaultdict
from pathlib import Path

import pytest

import noisette

SOURCE = Path(noisette.__file__).parent


def _homes() -> dict[str, list[str]]:
    """Return the modules that define each class, inside of functions too."""
    found: dict[str, list[str]] = defaultdict(list)
    for file in sorted(SOURCE.rglob("*.py")):
        for name in re.findall(r"^\s*class (\w+)[ (:]", file.read_text(encoding="utf-8"), re.MULTILINE):
            found[name].append(str(file.relative_to(SOURCE)))
    return found


def test_a_class_name_is_defined_once() -> None:
    homes = _homes()
    assert len(homes) > 400, "the search itself is broken"
    double = {name: where for name, where in homes.items() if len(where) > 1}
    assert not double, double


@pytest.mark.parametrize(
    ("package", "old", "new"),
    [
        ("accounting", "Receipt", "DebitReceipt"),
        ("federated", "Layout", "ModelLayout"),
        ("federated", "Release", "ClientRelease"),
        ("shuffler", "Layout", "PacketLayout"),
    ],
)
def test_a_public_class_is_found_under_its_old_name(package: str, old: str, new: str) -> None:
    module = importlib.import_module(f"noisette.{package}")
    with pytest.warns(DeprecationWarning, match=f"noisette.{package}.{old} is now noisette.{package}.{new}. Use that"):
        assert getattr(module, old) is getattr(module, new)
    assert old not in dir(module)


@pytest.mark.needs("torch")
@pytest.mark.parametrize(
    ("old", "new"), [("Gaussian", "GaussianPerturbation"), ("TensorGaussian", "TensorPerturbation")]
)
def test_perturbations_are_found_under_their_old_names(old: str, new: str) -> None:
    from noisette import sgd

    with pytest.warns(DeprecationWarning, match=f"noisette.sgd.{old} is now noisette.sgd.{new}. Use that"):
        assert getattr(sgd, old) is getattr(sgd, new)
