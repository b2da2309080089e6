"""One thing, one name: no two public modules define a class of the same name."""

from __future__ import annotations

import ast
import importlib
from collections import defaultdict
from pathlib import Path

import pytest

import noisette

SOURCE = Path(noisette.__file__).parent


def _homes() -> dict[str, list[str]]:
    """Return the public modules that define each public class."""
    found: dict[str, list[str]] = defaultdict(list)
    for file in sorted(SOURCE.rglob("*.py")):
        parts = file.relative_to(SOURCE).with_suffix("").parts
        if any(part.startswith("_") and part != "__init__" for part in parts):
            continue
        for node in ast.parse(file.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found[node.name].append(".".join(parts))
    return found


def test_a_class_name_is_defined_in_one_public_module() -> None:
    homes = _homes()
    assert len(homes) > 200, "the search itself is broken"
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
    with pytest.warns(DeprecationWarning, match=f"noisette.{package}.{old} is now noisette.{package}.{new};"):
        assert getattr(module, old) is getattr(module, new)
    assert old not in dir(module)


@pytest.mark.needs("torch")
@pytest.mark.parametrize(
    ("old", "new"), [("Gaussian", "GaussianPerturbation"), ("TensorGaussian", "TensorPerturbation")]
)
def test_perturbations_are_found_under_their_old_names(old: str, new: str) -> None:
    from noisette import sgd

    with pytest.warns(DeprecationWarning, match=f"noisette.sgd.{old} is now noisette.sgd.{new};"):
        assert getattr(sgd, old) is getattr(sgd, new)
